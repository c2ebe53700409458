"""Specs as PyTorch operators for the impatient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redalg import _hooks

if TYPE_CHECKING:
    from redalg.adapters.heads.batches import BatchedHead
    from redalg.adapters.heads.operator import TorchHead
    from redalg.adapters.torch_op import TorchOp
    from redalg.language.spec import Spec


def compile(spec: Spec, axis: Any = None, max_passes: int = 4, assume: Any = ()) -> TorchOp:
    """A spec as a PyTorch operator without a name of its own: derived, and registered as ``redalg::spec_<digest>``.

    See `Form.torch_op`. `assume`: named assumptions, of ``cast_commutes`` (of the form, see `ra.derive_incremental`)
    and ``straight_through`` (of its derivative: what is rounded is differentiated as if it were not).

    Raises: RedalgError without PyTorch, and what `ra.derive_incremental` raises.

    >>> import redalg as ra, torch                                                           # doctest: +SKIP
    >>> ra.torch.compile(ra.catalog["softmax"])(torch.zeros(1, 2)).tolist()                  # doctest: +SKIP
    [[0.5, 0.5]]
    """
    return _hooks.torch_spec(spec, axis, max_passes, assume)


def head(
    spec: Spec,
    name: str | None = None,
    gradients: str = "later",
    logits: str | None = None,
    workspace: int | None = None,
) -> TorchHead | BatchedHead:
    """A spec over products of two matrices (a loss over logits) as an operator that never holds the products whole.

    See `redalg.adapters.heads.operator.TorchHead`, and `redalg.adapters.heads.batches.BatchedHead` where rows have
    several axes, or both operands share some.

    >>> import redalg as ra, torch                                                           # doctest: +SKIP
    >>> loss = ra.torch.head(ra.parse('''                                                    # doctest: +SKIP
    ...     tensors H[t,d], W[v,d], y[t] integer;
    ...     z = sum[d](H[t,d]*W[v,d]);
    ...     pick = sum[v](where(index[v] == y[t], z, 0));
    ...     return loss = mean[t](logsumexp[v](z) - pick)'''), gradients="now")
    >>> H, W = torch.zeros(2, 3, requires_grad=True), torch.zeros(4, 3, requires_grad=True)  # doctest: +SKIP
    >>> loss(H, W, torch.tensor([0, 3])).backward()                                          # doctest: +SKIP
    """
    return _hooks.torch_head(spec, name, gradients, logits, workspace)


__all__ = ["compile", "head"]
