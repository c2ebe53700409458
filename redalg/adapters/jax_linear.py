"""Linear maps with a transpose and a derivative of their own, as a primitive of JAX.

JAX takes forward mode from tangents and reverse mode from transposes of what is linear in them. Neither `custom_vjp`
(which has no forward mode) nor `custom_jvp` (which transposes the operations that a tangent is made of, and kernels
behind a callback have no transpose) has both. So what is linear in a derivative is an operation here: it knows the
function that computes it, the map that is its transpose, and the same map in functions that are differentiable.

A map takes arrays, values that were saved of them, and what it is linear in. Values depend on the arrays: a derivative
along the arrays counts for them, and their own tangents are left out.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

jax: Any = importlib.import_module("jax") if importlib.util.find_spec("jax") else None


Some = Callable[[Sequence[int]], "Linear"]


class Way(Protocol):
    """One direction: computed by kernels, and in functions that JAX differentiates."""

    def run(self, own: Sequence[Any], values: Sequence[Any], linear: Sequence[Any]) -> tuple[Any, ...]: ...

    def differentiable(self, own: Sequence[Any], values: Sequence[Any], linear: Sequence[Any]) -> tuple[Any, ...]: ...


@dataclass(eq=False)
class Linear:
    """A linear map of the last arguments: ``linear(own, values, along)``; `other` is its transpose.

    `own` says how many arguments are arrays, `values` how many were saved of them, and `some` gives the map to some of
    the results: what others are may be infinite, and 0 times that is not 0. Compared by identity, so that a
    compiled function is found again: what a batch of it is, is kept in `mapped`.
    """

    run: Callable[..., Any]
    differentiable: Callable[..., Any]
    own: int
    some: Some
    other: Linear | None = None
    mapped: dict[Any, Linear] = field(default_factory=dict)

    @staticmethod
    def pair(push: Way, pull: Way, own: int, to: Some, along: Some) -> Linear:
        """The map and its transpose, each the other's `other`; `to` some of its results, and the transpose to some of
        what the map is linear in."""
        there, back = Linear(push.run, push.differentiable, own, to), Linear(pull.run, pull.differentiable, own, along)
        there.other, back.other = back, there
        return there

    def __call__(self, own: Sequence[Any], values: Sequence[Any], along: Sequence[Any]) -> Any:
        return _applied().bind(*own, *values, *along, linear=self, saved=len(values))

    def parts(self, args: Sequence[Any], saved: int) -> tuple[Any, Any, Any]:
        held = self.own + saved
        return tuple(args[: self.own]), tuple(args[self.own : held]), tuple(args[held:])

    def over(self, places: tuple[Any, ...], saved: int, size: int) -> Linear:
        """The map of a batch: the first `places` say where arrays and values have it; all else has it first."""
        key = places, saved, size
        if key not in self.mapped:
            there, back = self._batched(places, saved, size), self.transpose._batched(places, saved, size)
            there.other, back.other = back, there
            self.mapped[key] = there
        return self.mapped[key]

    def _batched(self, places: tuple[Any, ...], saved: int, size: int) -> Linear:
        def batched(function: Callable[..., Any]) -> Callable[..., Any]:
            axes = (places[: self.own], places[self.own :], 0)
            return jax.vmap(lambda *parts: function(*parts), axes, axis_size=size)

        def some(kept: Sequence[int]) -> Linear:
            return self.some(kept).over(places, saved, size)

        run, differentiable = batched(self.run), batched(self.differentiable)
        return Linear(run, differentiable, self.own, some)

    @property
    def transpose(self) -> Linear:
        assert self.other is not None
        return self.other


def _run(*args: Any, linear: Linear, saved: int) -> list[Any]:
    return list(linear.run(*linear.parts(args, saved)))


def _shapes(*avals: Any, linear: Linear, saved: int) -> list[Any]:
    return list(jax.make_jaxpr(partial(_run, linear=linear, saved=saved))(*avals).out_avals)


def _moved(args: Sequence[Any], tangents: Sequence[Any], *, linear: Linear, saved: int) -> tuple[Any, Any]:
    """The value, and its tangent: the map of the tangents of what it is linear in, and what moves with the arrays."""
    ad = jax.interpreters.ad
    own, values, along = linear.parts(args, saved)
    moved_own, _, moved_along = linear.parts(tangents, saved)
    out = linear(own, values, along)
    found: list[Any] = []
    if not all(isinstance(t, ad.Zero) for t in moved_along):
        found.append(linear(own, values, [ad.instantiate_zeros(t) for t in moved_along]))
    moving = [k for k, t in enumerate(moved_own) if not isinstance(t, ad.Zero)]
    if moving:

        def of(*some: Any) -> Any:
            arrays = list(own)
            for k, array in zip(moving, some, strict=True):
                arrays[k] = array
            return linear.differentiable(tuple(arrays), values, along)

        found.append(jax.jvp(of, tuple(own[k] for k in moving), tuple(moved_own[k] for k in moving))[1])
    if not found:
        return out, [ad.Zero.from_primal_value(o) for o in out]
    return out, found[0] if len(found) == 1 else [jax.numpy.add(a, b) for a, b in zip(*found, strict=True)]


def _transposed(cotangents: Sequence[Any], *args: Any, linear: Linear, saved: int) -> list[Any]:
    ad = jax.interpreters.ad
    own, values, along = linear.parts(args, saved)
    moving = [k for k, c in enumerate(cotangents) if not isinstance(c, ad.Zero)]
    back = linear.transpose if len(moving) == len(cotangents) else linear.some(moving).transpose
    found = back(own, values, [cotangents[k] for k in moving])
    kept = [f if ad.is_undefined_primal(a) else None for a, f in zip(along, found, strict=True)]
    return [None] * (len(own) + len(values)) + kept


def _batched(args: Sequence[Any], places: Sequence[Any], *, linear: Linear, saved: int) -> tuple[Any, Any]:
    size = next(a.shape[p] for a, p in zip(args, places, strict=True) if p is not None)
    held = linear.own + saved
    pairs = zip(args[held:], places[held:], strict=True)
    along = [
        jax.numpy.broadcast_to(a, (size, *a.shape)) if p is None else jax.numpy.moveaxis(a, p, 0) for a, p in pairs
    ]
    own, values, _ = linear.parts(args, saved)
    found = linear.over(tuple(places[:held]), saved, size)(own, values, along)
    return found, [0] * len(found)


def varying(arrays: Sequence[Any]) -> frozenset[Any]:
    """The axes of a mesh along which any of the arrays differs between devices, inside of `jax.shard_map`."""
    types = [jax.typeof(a) for a in arrays] if hasattr(jax.lax, "pcast") else []
    return frozenset().union(*(t.mat.varying if hasattr(t, "mat") else t.vma for t in types))


def whole(array: Any) -> Any:
    """An array whose type says how it is sharded (axes of a mesh that are `AxisType.Explicit`) as one that is not, as
    results of callbacks are: its gradient is sharded again as it is. Elsewhere the array."""
    sharding = getattr(jax.typeof(array), "sharding", None)
    if sharding is None or all(part is None for part in sharding.spec):
        return array
    return jax.sharding.reshard(array, jax.sharding.PartitionSpec())


def spread(arrays: Sequence[Any], axes: frozenset[Any]) -> list[Any]:
    """As arrays that may differ along these axes, as JAX takes operands: gradients of those that do not are summed."""
    cast = [tuple(sorted(axes - varying([a]), key=str)) for a in arrays]
    return [jax.lax.pcast(a, more, to="varying") if more else a for a, more in zip(arrays, cast, strict=True)]


_PRIMITIVE: list[Any] = []


def _applied() -> Any:
    """The primitive, made when the first map is applied."""
    if not _PRIMITIVE:
        core, mlir = importlib.import_module("jax.extend.core"), importlib.import_module("jax.interpreters.mlir")
        ad = importlib.import_module("jax.interpreters.ad")
        batching = importlib.import_module("jax.interpreters.batching")
        made = core.Primitive("redalg_linear")
        made.multiple_results = True
        made.def_impl(_run)
        made.def_abstract_eval(_shapes)
        ad.primitive_jvps[made] = _moved
        ad.primitive_transposes[made] = _transposed
        batching.primitive_batchers[made] = _batched
        mlir.register_lowering(made, mlir.lower_fun(_run, multiple_results=True))
        _PRIMITIVE.append(made)
    return _PRIMITIVE[0]


__all__ = ["Linear", "spread", "varying", "whole"]
