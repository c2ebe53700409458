"""Specs as PyTorch operators for the impatient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redalg import _hooks

if TYPE_CHECKING:
    from redalg.adapters.torch_op import TorchOp
    from redalg.language.spec import Spec


def compile(spec: Spec, axis: Any = None, max_passes: int = 4) -> TorchOp:
    """A spec as a PyTorch operator without a name of its own: derived, and registered as ``redalg::spec_<digest>``.

    See `Form.torch_op`. Raises: RedalgError without PyTorch, and what `ra.derive_incremental` raises.

    >>> import redalg as ra, torch                                                           # doctest: +SKIP
    >>> ra.torch.compile(ra.catalog["softmax"])(torch.zeros(1, 2)).tolist()                  # doctest: +SKIP
    [[0.5, 0.5]]
    """
    return _hooks.torch_spec(spec, axis, max_passes)


__all__ = ["compile"]
