"""Recompute a witness of a refusal from the stage as it is printed, without anything the engine computed."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import sympy

import redalg as ra
from redalg.graph import Node
from redalg.testing.arithmetic import Digits
from redalg.testing.evaluator import Evaluator

NUMBER = Digits(120)
STEP = Fraction(1, 10**40)


def recompute(error: Any, spec: Any) -> None:
    """Every entry of the matrix, the determinant, and that every point occurs in every stream."""
    w = error.witness
    _points_occur(w)
    rows = _minor(error, w) if w.kind == "minor" else _jacobian(w, spec)
    for p, row in enumerate(rows):
        for q, value in enumerate(row):
            stated = NUMBER.wide(number(w.matrix[p][q]))
            assert abs(stated - value) <= (1 + abs(value)) * NUMBER.context.mpf(10) ** -30, (p, q, stated, value)
    _determinant(rows, w.value)


def number(value: Any) -> Any:
    """A witness's number (a Fraction, an integer or a closed SymPy number) with 120 digits."""
    if isinstance(value, sympy.Basic):
        value = NUMBER.context.mpf(str(sympy.N(value, 120)))
    return NUMBER.number(value)


def _points_occur(w: Any) -> None:
    for stream in w.streams:
        for point, place in zip(w.points, w.places, strict=True):
            assert stream[place] == point
    assert len(set(w.places)) == len(w.points) == len(w.streams) == w.slots_excluded


def _minor(error: Any, w: Any) -> list[list[Any]]:
    """matrix[p][q]: the printed stage's body at points[p] in the context of streams[q]."""
    stage = next(iter(ra.parse(f"return y = {stage_text(error)}").outputs.values()))
    columns = []
    for stream in w.streams:
        inner = evaluator(stage, w, stream)
        at = [{**dict.fromkeys(stage.args[0].axes, 0), **w.positions, w.axis[0]: place} for place in w.places]
        values = [inner.value(stage.args[0], point) for point in at]
        columns.append([_logarithm(v) if stage.attr.kind == "prod" else NUMBER.wide(v) for v in values])
    return [list(row) for row in zip(*columns, strict=True)]


def stage_text(error: Any) -> str:
    return str(error).splitlines()[0].removeprefix("refused: ")


def _logarithm(v: Any) -> Any:
    return NUMBER.context.log(abs(NUMBER.wide(v)))


def evaluator(node: Node, w: Any, stream: tuple[dict[str, Any], ...]) -> Evaluator:
    env = {k: np.array(v, dtype=object) for k, v in w.parameters.items()}
    for name in stream[0]:
        env[name] = _array([element[name] for element in stream], node, name, w)
    return Evaluator(NUMBER, env, {**w.sizes, w.axis[0]: len(stream)})


def _array(values: list[Any], node: Node, name: str, w: Any) -> np.ndarray:
    """Elements stacked along the streamed axis, which may be any axis of the tensor."""
    from redalg.graph import leaves

    axes = next(leaf.attr.axes for leaf in leaves(node) if leaf.attr.name == name)
    return np.moveaxis(np.array(values, dtype=object), 0, axes.index(w.axis[0]))


def _jacobian(w: Any, spec: Any) -> list[list[Any]]:
    """Central differences with step 1e-40 and 120 digits: exact to far more digits than compared."""
    node = next(iter(spec.outputs.values()))
    columns = []
    for stream in w.streams:
        columns.append([_slope(node, w, stream, place) for place in w.places])
    return [list(row) for row in zip(*columns, strict=True)]


def _slope(node: Node, w: Any, stream: tuple[dict[str, Any], ...], place: int) -> Any:
    values = []
    for sign in (1, -1):
        moved = [dict(element) for element in stream]
        moved[place][w.variable] = _shifted(moved[place][w.variable], sign * STEP)
        inner = evaluator(node, w, tuple(moved))
        values.append(NUMBER.wide(inner.value(node, {a: w.positions.get(a, 0) for a in node.axes})))
    return (values[0] - values[1]) / NUMBER.wide(2 * STEP)


def _shifted(value: Any, step: Fraction) -> Any:
    return (_shifted(value[0], step), *value[1:]) if isinstance(value, tuple) else value + step


def _determinant(rows: list[list[Any]], value: Any) -> None:
    """Non-zero, and what the witness says: a rational, or an enclosure."""
    determinant = NUMBER.context.det(NUMBER.context.matrix(rows))
    low, high = value if isinstance(value, tuple) else (value, value)
    assert low * high > 0, "the determinant is not shown to be different from 0"
    slack = abs(determinant) * NUMBER.context.mpf(10) ** -20
    assert NUMBER.wide(Fraction(low)) - slack <= determinant <= NUMBER.wide(Fraction(high)) + slack
