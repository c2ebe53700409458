"""A spec evaluated by JAX along named axes, so that JAX differentiates what the project does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from redalg.graph import node as g
from redalg.graph.masked import new_axes
from redalg.graph.node import Node

Named = tuple[Any, tuple[str, ...]]  # an array, and its axes
Arrays = dict[str, Any]


def outputs(spec: Any, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Output -> its array, axes in the spec's order."""
    return Evaluation(spec, arrays).outputs()


class Evaluation:
    def __init__(self, spec: Any, arrays: Mapping[str, Any]) -> None:
        import jax

        self.jax, self.np, self.spec, self.arrays = jax, jax.numpy, spec, arrays
        self.sizes = dict(new_axes(*spec.outputs.values()))
        for d in spec.tensors:
            self.sizes |= dict(zip(d.axes, np.shape(arrays[d.array or d.name]), strict=True))

    def outputs(self) -> dict[str, Any]:
        done: dict[Node, Named] = {}
        for n in g.walk(*self.spec.outputs.values()):
            done[n] = self.value(n, [done[a] for a in n.args])
        return {name: self.aligned(done[node], self.spec.output_axes[name]) for name, node in self.spec.outputs.items()}

    def aligned(self, value: Named, axes: tuple[str, ...]) -> Any:
        array, own = value
        order = [own.index(a) for a in axes if a in own]
        moved = self.np.transpose(array, order) if own else array
        moved = moved.reshape([self.sizes[a] if a in own else 1 for a in axes])
        return self.np.broadcast_to(moved, [self.sizes[a] for a in axes])

    def value(self, n: Node, args: list[Named]) -> Named:
        if n.op == "tensor":
            return self.np.asarray(self.arrays[n.attr.array or n.attr.name]), n.attr.axes
        if n.op == "index":
            return self.np.arange(self.sizes[n.attr]), (n.attr,)
        if n.op == "size":
            return self.np.asarray(float(self.sizes[n.attr])), ()
        if n.op in ("const", "special", "true", "false"):
            return self.np.asarray(self.number(n)), ()
        axes = tuple(dict.fromkeys(a for _, own in args for a in own))
        if n.op == "reduce":
            return self.reduced(n, args[0])
        return self.elementwise(n, [self.aligned(a, axes) for a in args]), axes

    def number(self, n: Node) -> Any:
        named = {"oo": np.inf, "-oo": -np.inf, "nan": np.nan, "pi": np.pi, "e": np.e}
        return float(n.attr) if n.op == "const" else named[n.attr] if n.op == "special" else n.op == "true"

    def elementwise(self, n: Node, args: list[Any]) -> Any:
        jnp, nn, special = self.np, self.jax.nn, self.jax.scipy.special
        several = {"add": jnp.add, "mul": jnp.multiply, "maximum": jnp.maximum, "minimum": jnp.minimum}
        several |= {"and": jnp.logical_and, "or": jnp.logical_or}
        if n.op == "cast":  # straight through
            return args[0] + self.jax.lax.stop_gradient(self.rounded(args[0], n.attr) - args[0])
        if n.op in several:
            found = args[0]
            for a in args[1:]:
                found = several[n.op](found, a)
            return found
        if n.op == "pow":
            e = n.args[1].attr if n.args[1].op == "const" else None
            return args[0] ** (int(e) if e is not None and e.denominator == 1 else args[1])
        named = {"eq": jnp.equal, "ne": jnp.not_equal, "lt": jnp.less, "le": jnp.less_equal, "not": jnp.logical_not}
        named |= {"relu": nn.relu, "sigmoid": nn.sigmoid, "softplus": nn.softplus, "silu": nn.silu, "where": jnp.where}
        named |= {"erf": special.erf, "erfc": special.erfc, "asin": jnp.arcsin, "acos": jnp.arccos, "atan": jnp.arctan}
        named |= {"asinh": jnp.arcsinh, "acosh": jnp.arccosh, "atanh": jnp.arctanh}
        named["gelu"] = lambda x: nn.gelu(x, approximate=False)
        return named[n.op](*args) if n.op in named else getattr(jnp, n.op)(*args)

    def rounded(self, value: Any, kind: str) -> Any:
        dtype = self.np.dtype(kind)
        if self.np.issubdtype(dtype, self.np.integer):
            held = self.np.iinfo(dtype)
            return self.np.clip(self.np.round(value), held.min, held.max)
        return value.astype(dtype).astype(value.dtype)

    def reduced(self, n: Node, body: Named) -> Named:
        """Over one composite axis, brought last, row by row."""
        along = n.attr.axes
        own = tuple(a for a in body[1] if a not in along)
        array = self.aligned(body, (*own, *along)).reshape([*(self.sizes[a] for a in own), -1])
        kind = n.attr.kind
        if kind.startswith("topk"):
            k, axis = n.attr.extra
            order = self.np.argsort(-array, axis=-1, stable=True)[..., :k]
            held = order if kind == "topk_indices" else self.np.take_along_axis(array, order, axis=-1)
            return held, (*own, axis)
        return getattr(self.np, kind)(array, axis=-1), own


def drawn(spec: Any, rng: np.random.Generator) -> Arrays:
    """Away from ties, kinks and poles, with probability one; axes of different lengths."""
    lengths = {a: 3 + k % 3 for k, a in enumerate(spec.axes)}
    arrays: Arrays = {}
    for d in spec.tensors:
        shape = [lengths[a] for a in d.axes]
        if "bool" in d.domain:
            arrays[d.name] = rng.random(shape) < 0.7
        elif "integer" in d.domain:
            arrays[d.name] = rng.integers(0, 3, shape)
        elif d.domain & {"positive", "nonnegative"} or any(w.startswith(("above", "below")) for w in d.domain):
            arrays[d.name] = rng.uniform(0.25, 0.75, shape)
        else:
            arrays[d.name] = rng.uniform(-1.5, 1.5, shape)
    return {d.name: arrays[d.name] for d in spec.tensors if not d.array}


def close(got: Any, want: Any, what: object) -> None:
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape, what
    known = np.isfinite(want)  # JAX multiplies what a `where` leaves out by 0
    bound = 1e-9 * (1 + np.abs(want).max(initial=0, where=known))
    np.testing.assert_allclose(got[known], want[known], 1e-9, bound, err_msg=str(what))
    assert np.isfinite(got).all() or not known.all(), what
