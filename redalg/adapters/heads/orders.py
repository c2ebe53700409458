"""The operators of a head as functions of autograd, each with gradients and tangents by the others.

With values y(x), cotangents c and tangents ẋ: gradients g(x, c) = Jᵀ·c and tangents t(x, ẋ) = J·ẋ. What is weighed by
w and differentiated by x is the same for both, ∂⟨c, J·w⟩/∂x, and so is how g moves along w (second derivatives
commute): the operator of second order (`redalg.adapters.heads.second`). That is differentiated no more.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from typing import Any

from redalg.adapters.torch_modes import carry_tangents, differentiates, transformable
from redalg.errors import RedalgError

torch: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") else None


class Orders:
    """Of one `TorchHead`. Given tensors are the caller's, then what is saved, then cotangents or tangents."""

    def __init__(self, head: Any) -> None:
        self.head = head
        self.count, self.saved = len(head.tensors), len(head.slabs.kept)
        of = self._operator
        self.values = transformable(of("_values"), self._keep_values, self.pull, self._push)
        self.gradients = transformable(of("_backward"), self._keep_all, self._pull_gradients, self._push_gradients)
        self.tangents = transformable(of("_tangents"), self._keep_tensors, self._pull_tangents, self._refuse)
        self.second = transformable(of("_second"), self._keep_nothing, self._refuse, self._refuse)

    def _operator(self, name: str) -> Any:
        return lambda *given: self.head._ops[name](*given)

    def _made(self, name: str, function: Any, *given: Any) -> Sequence[Any]:
        """By a function that has derivatives of its own where somebody may take them."""
        tensors = [a for a in given if isinstance(a, torch.Tensor)]
        taken = torch.is_grad_enabled() or differentiates() or carry_tangents(tensors)
        run = function.apply if taken and not torch.compiler.is_compiling() else self.head._ops[name]
        found: Sequence[Any] = run(*given)
        return found

    # --- values ---

    def keep(self, ctx: Any, own: Any, found: Any) -> None:
        """What a backward pass reads."""
        ctx.save_for_backward(*own, *found)
        count = len(self.head.outputs)
        whole = (x for x in found[:count] if not x.is_floating_point())
        ctx.mark_non_differentiable(*whole, *found[count:])
        ctx.set_materialize_grads(False)

    def _keep_values(self, ctx: Any, own: Any, found: Any) -> None:
        """For tangents, too; what is saved beside values has tangents of 0 (as `TorchOp` has it)."""
        ctx.save_for_backward(*own, *found)
        ctx.save_for_forward(*own, *found)
        ctx.mark_non_differentiable(*(x for x in found if not x.is_floating_point()))
        ctx.set_materialize_grads(False)

    def pull(self, ctx: Any, gradients: Sequence[Any]) -> tuple[Any, ...]:
        """The gradients of the tensors."""
        saved = ctx.saved_tensors  # asked for once: a checkpoint makes them anew, and gives them once
        own, kept = saved[: self.count], saved[self.count :]
        pulled = [
            torch.zeros_like(value) if gradient is None else gradient
            for name, value, gradient in zip(self.head.outputs, kept, gradients, strict=False)
            if name in self.head.slabs.cotangents
        ]
        found = self._made("_backward", self.gradients, *own, *kept, *pulled)
        return _wanted(found, own, ctx.needs_input_grad)

    def _push(self, ctx: Any, moving: Sequence[Any]) -> tuple[Any, ...]:
        saved = ctx.saved_tensors
        own, kept = saved[: self.count], saved[self.count :]
        made = self._made("_tangents", self.tangents, *saved, *_floats(moving, own))
        found = dict(zip(self.head.slabs.cotangents, made, strict=True))
        pairs = zip(self.head.slabs.kept, kept, strict=True)
        return tuple(found.get(n, torch.zeros_like(x)) if x.is_floating_point() else None for n, x in pairs)

    # --- gradients ---

    def _keep_all(self, ctx: Any, given: Any, found: Any) -> None:
        ctx.save_for_backward(*given)
        ctx.save_for_forward(*given)
        ctx.mark_non_differentiable(*(x for x, a in zip(found, given, strict=False) if not a.is_floating_point()))
        ctx.set_materialize_grads(False)

    def _pull_gradients(self, ctx: Any, weights: Sequence[Any]) -> tuple[Any, ...]:
        own, _, pulled = self._parts(ctx.saved_tensors)
        found = self._of_second_order(own, pulled, weights)
        needs = ctx.needs_input_grad
        changes = _wanted(found[self.count :], pulled, needs[self.count + self.saved :])
        return (*_wanted(found[: self.count], own, needs[: self.count]), *[None] * self.saved, *changes)

    def _push_gradients(self, ctx: Any, moving: Sequence[Any]) -> tuple[Any, ...]:
        """Along the tensors by second order, along the cotangents as they are pulled themselves."""
        own, kept, pulled = self._parts(ctx.saved_tensors)
        along, _, slopes = self._parts(moving)
        along, found = _floats(along, own), [torch.zeros_like(a) for a in own]
        if any(t is not None for t in along):
            found = list(self._of_second_order(own, pulled, along)[: self.count])
        if any(t is not None for t in slopes):
            held = [torch.zeros_like(c) if t is None else t for c, t in zip(pulled, slopes, strict=True)]
            more = self._made("_backward", self.gradients, *own, *kept, *held)
            found = [x + y for x, y in zip(found, more, strict=True)]
        return tuple(x if a.is_floating_point() else None for x, a in zip(found, own, strict=True))

    def _of_second_order(self, own: Sequence[Any], pulled: Sequence[Any], weights: Sequence[Any]) -> Sequence[Any]:
        if "_second" not in self.head._ops:
            why = "gradients of an extremum over rows are taken at positions, once"
            raise RedalgError("a gradient of a gradient", self.head.name, why, "ra.torch.compile(spec)")
        held = [torch.zeros_like(a) if w is None else w for a, w in zip(own, weights, strict=True)]
        return self._made("_second", self.second, *own, *pulled, *held)

    # --- tangents ---

    def _keep_tensors(self, ctx: Any, given: Any, found: Any) -> None:
        ctx.save_for_backward(*given)
        ctx.save_for_forward(*given)
        ctx.set_materialize_grads(False)

    def _pull_tangents(self, ctx: Any, gradients: Sequence[Any]) -> tuple[Any, ...]:
        own, kept, along = self._parts(ctx.saved_tensors)
        of = dict(zip(self.head.slabs.kept, kept, strict=True))
        pairs = zip(self.head.slabs.cotangents, gradients, strict=True)
        pulled = [torch.zeros_like(of[n]) if c is None else c for n, c in pairs]
        needs, curved, moved = ctx.needs_input_grad, [None] * self.count, [None] * self.count
        if any(needs[: self.count]):
            found = self._of_second_order(own, pulled, along)
            curved = list(_wanted(found[: self.count], own, needs[: self.count]))
        if any(needs[self.count + self.saved :]):
            found = self._made("_backward", self.gradients, *own, *kept, *pulled)
            moved = list(_wanted(found, own, needs[self.count + self.saved :]))
        return (*curved, *[None] * self.saved, *moved)

    # --- what is left ---

    def _keep_nothing(self, ctx: Any, given: Any, found: Any) -> None:
        pass

    def _refuse(self, ctx: Any, given: Any) -> Any:
        why = "heads have gradients of first and second order, and tangents of these"
        raise RedalgError("a derivative of third order, or a tangent of a tangent", self.head.name, why, FIX)

    def _parts(self, given: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
        first = self.count + self.saved
        return given[: self.count], given[self.count : first], given[first:]


FIX = "ra.torch.compile(spec)"


def _wanted(found: Sequence[Any], of: Sequence[Any], needs: Sequence[bool]) -> tuple[Any, ...]:
    return tuple(x if n and a.is_floating_point() else None for x, a, n in zip(found, of, needs, strict=True))


def _floats(moving: Sequence[Any], own: Sequence[Any]) -> list[Any]:
    return [t if t is not None and a.is_floating_point() else None for t, a in zip(moving, own, strict=True)]


__all__ = ["Orders"]
