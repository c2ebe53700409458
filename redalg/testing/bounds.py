"""Derived error bounds: how far the accumulated result of a form may lie from its definition.

The bound is not a constant somebody guessed. It is the form itself, run over the same pieces and the same merges in
the arithmetic of `redalg.testing.balls`, where every operation adds the error it can make. With unit roundoff u::

    lift      a slot of k elements:  Σ_j err(φ(x_j; A)) + (k-1)·u·Σ_j |φ(x_j; A)|
    merge     u = T(h_a)·u_a + T(h_b)·u_b:  |T|·err(u) + |u|·err(T) + u·|result|, so u·depth·Σ|φ| over a tree
    finalize  first-order propagation with the supremum of the derivative over the ball (condition number)

Anchors carry no error: the laws hold for every anchor, so the number it happens to be is exact. What is bounded is the
distance of *one* float evaluation from the exact value; the library may round otherwise than the simulation, so two
evaluations are within twice the radius of each other's exact value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from redalg.graph.node import walk
from redalg.graph.plan import Plan
from redalg.testing.arithmetic import NARROW, Digits
from redalg.testing.balls import Balls
from redalg.testing.evaluator import Evaluator
from redalg.testing.simulate import Values, simulate


def axis_sizes(spec: Any, arrays: Mapping[str, Any]) -> dict[str, int]:
    """Axis -> length, read from the arrays of a spec's tensors; the new axes of top-k lists have length k."""
    sizes: dict[str, int] = {}
    for node in walk(*spec.outputs.values()):
        if node.op == "reduce" and node.attr.kind.startswith("topk"):
            sizes[node.attr.extra[1]] = node.attr.extra[0]
    for decl in spec.tensors:
        if decl.name in arrays:
            sizes.update(zip(decl.axes, np.shape(arrays[decl.name]), strict=True))
    return sizes


def as_array(values: Values, shape: Sequence[int], read: Any) -> np.ndarray:
    result = np.empty(tuple(shape), dtype=float)
    for key, v in values.items():
        result[key] = read(v)
    return result


def error_bounds(
    plan: Plan,
    spec: Any,
    arrays: Mapping[str, Any],
    cuts: Sequence[int],
    tree: Sequence[int] | None = None,
    dtype: str = "float64",
    casts_round: bool = False,
) -> dict[str, np.ndarray]:
    """Output name -> bound on |computed - definition|, for the pieces and the tree given (see the module).

    With `casts_round` every cast counts as an error of half a unit of its type, as it does between a form derived under
    "cast_commutes" and its spec: both lie within their own radius of the spec without casts.
    The arrays are taken as exact. `inf` where the errors leave a comparison or a divisor open.
    """
    sizes = axis_sizes(spec, arrays)
    env = {name: np.asarray(a) for name, a in arrays.items()}
    outputs = simulate(plan, Balls(dtype, casts_round), env, sizes, cuts, tree)
    shapes = {name: [sizes[a] for a in spec.output_axes[name]] for name in outputs}
    radii = {name: as_array(v, shapes[name], _radius) for name, v in outputs.items()}
    if not casts_round:
        return {name: 2 * r for name, r in radii.items()}
    inner = Evaluator(Balls(dtype, casts_round), env, sizes)
    unrounded = {name: inner.array(node, spec.output_axes[name]) for name, node in spec.outputs.items()}
    return {name: 2 * r + as_array(unrounded[name], shapes[name], _radius) for name, r in radii.items()}


def _radius(value: Any) -> float:
    if isinstance(value, bool):
        return 0.0
    return math.inf if value is None else value.rad


def definition(spec: Any, arrays: Mapping[str, Any], digits: int = 60) -> dict[str, np.ndarray]:
    """The definition of every output, computed as the spec says in rationals and `digits` digits, rounded once."""
    sizes = axis_sizes(spec, arrays)
    inner = Evaluator(Digits(digits), {k: np.asarray(v) for k, v in arrays.items()}, sizes)
    results = {}
    for name, node in spec.outputs.items():
        axes = spec.output_axes[name]
        results[name] = as_array(inner.array(node, axes), [inner.sizes[a] for a in axes], float)
    return results


def assert_within(result: Any, exact: np.ndarray, bound: np.ndarray, message: str = "", dtype: str = "float64") -> None:
    """|result - exact| <= bound and one rounding to `dtype`; infinities and NaN of the same kind at the same places."""
    got = np.asarray(result, dtype=float)
    assert got.shape == exact.shape, f"shape {got.shape} instead of {exact.shape} {message}"
    special = ~np.isfinite(exact)
    same = (got == exact) | (np.isnan(got) & np.isnan(exact))
    assert same[special].all(), f"{got[special & ~same]} instead of {exact[special & ~same]} {message}"
    with np.errstate(invalid="ignore"):
        error = np.abs(got - exact)
    limit = bound + 2.0 ** -NARROW[dtype][0] * np.abs(exact)
    ok = (error <= limit) | special
    assert ok.all(), f"error {error[~ok].max()} > bound {limit[~ok].max()} {message}"
