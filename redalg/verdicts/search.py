"""Search for a minor: evaluate the contexts of every stream, fill the matrix, choose pivots, prove the choice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from redalg.graph.node import Node, fn, walk
from redalg.verdicts.adjoint import ONE, Backward
from redalg.verdicts.balls import Ball, BallNumbers, closed_form, midpoint
from redalg.verdicts.design import SCANNED, Design, Draw, Element, Problem, Sample
from redalg.verdicts.evaluate import STREAM, Evaluation, Unsupported, Value, align
from redalg.verdicts.minors import Pivots, determinant, enclose_minor, pivots, round_outward
from redalg.verdicts.numbers import NAN, Numbers
from redalg.verdicts.residues import FieldNumbers, NeedsEnclosures, Residue
from redalg.verdicts.scan import thin

Suffix = list[Element]
POINTS = 20
PRECISIONS = (600, 1500, 3000)
SHOWN_BITS = 400  # of entries that are rounded, where the determinant loses none
CLOSED_LIMIT = 20  # operations in a closed form; above, rational midpoints are given


def stage_body(stage: Node) -> Node | None:
    """The function whose separation decides: F for a sum, log|F| for a product; None for other stages."""
    if stage.op != "reduce" or stage.attr.kind not in ("sum", "prod"):
        return None
    body = stage.args[0]
    return body if stage.attr.kind == "sum" else fn("log", fn("abs", body))


def own_contexts(body: Node, axis: str, known: frozenset[Node], sizes: bool = False) -> list[Node]:
    """The outermost reductions over the axis that are not known (with `sizes`: the other nodes met on the way)."""
    return [n for n in _outermost(body, axis) if (n.op == "reduce" and axis in n.attr.axes) != sizes and n not in known]


def _outermost(body: Node, axis: str) -> Iterable[Node]:
    seen, stack = {body}, [body]
    while stack:
        node = stack.pop()
        yield node
        if node.op == "reduce" and axis in node.attr.axes:
            continue
        fresh = [a for a in node.args if a not in seen]
        seen.update(fresh)
        stack.extend(fresh)


def known_contexts(body: Node, axis: str, known: frozenset[Node]) -> list[Node]:
    """All known contexts that occur anywhere in the body, also inside other contexts."""
    found = (n for n in walk(body) if n in known and n.op == "reduce" and axis in n.attr.axes)
    return sorted(found, key=lambda n: n.digest)


@dataclass
class Found:
    """A proven minor of a sample."""

    sample: Sample
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    matrix: tuple[tuple[Any, ...], ...]
    value: Fraction | tuple[Fraction, Fraction]
    variable: str | None


class Laboratory:
    """Draws samples for one body (or, with a `variable`, for one output's derivatives) and looks for a minor."""

    def __init__(
        self, root: Node, problem: Problem, earlier: list[Node], variable: str | None, least: int, shown: int
    ) -> None:
        self.root, self.problem, self.earlier, self.variable = root, problem, earlier, variable
        self.least, self.shown = least, shown
        self.contexts = [n for n in _outermost(root, problem.axis) if n.op == "reduce" and problem.axis in n.attr.axes]
        self.seed = int.from_bytes(root.digest[:8], "big")
        self.numbers: Numbers = FieldNumbers()

    def attempt(self, design: Design, number: int) -> tuple[Found | None, bool]:
        """One sample. Also says whether the sample was clean: a full matrix whose rank is plainly finite."""
        sample = self._sample(design, number)
        if sample is None:
            return None, True
        try:
            first, rest = self._portions(sample)
            matrix, keys = self._matrix(replace(sample, suffixes=first))
            if rest:
                if _plainly_finite(pivots(matrix, POINTS, self._prec())):
                    return None, True
                more, more_keys = self._matrix(replace(sample, suffixes=rest))
                matrix, keys = np.hstack([matrix, more]), keys + more_keys
                sample = replace(sample, suffixes=first + rest)
        except Unsupported:
            return None, True
        except ZeroDivisionError:
            return None, False
        columns = _largest_group(keys) if self.earlier else list(range(matrix.shape[1]))
        if len(columns) < self.least:
            return None, False
        choice = pivots(matrix[:, columns], matrix.shape[0], self._prec())
        if choice.rank < self.least or not choice.saturated:
            return None, choice.distinct >= self.least
        k = min(choice.rank, self.shown)
        rows, picked = choice.rows[:k], tuple(columns[c] for c in choice.columns[:k])
        return self._prove(sample, rows, picked, matrix), False

    def _sample(self, design: Design, number: int) -> Sample | None:
        scattered = design.suffixes == "scattered"
        points = SCANNED if scattered else max(POINTS, self.least + 8)
        sample = Draw(self.problem, design, points, self.seed + number).sample()
        return thin(self.root, self.problem, sample, self.least) if scattered else sample

    def _portions(self, sample: Sample) -> tuple[list[Suffix], list[Suffix]]:
        """Where entries are dear, a first portion of the suffixes that shows whether the rank is plainly finite."""
        cheap = self.variable is None and isinstance(self.numbers, FieldNumbers)
        step = len(sample.suffixes) // (self.least + 4)
        if self.earlier or cheap or step < 2:
            return sample.suffixes, []
        rest = [s for i, s in enumerate(sample.suffixes) if i % step]
        return sample.suffixes[::step], rest

    def _prec(self) -> int:
        return self.numbers.prec if isinstance(self.numbers, BallNumbers) else PRECISIONS[0]

    def _matrix(self, sample: Sample) -> tuple[np.ndarray, list[Any]]:
        """Entries [point][stream] and, per stream, what an earlier pass knows of it."""
        try:
            return self._fill(sample, self.numbers)
        except NeedsEnclosures:
            self.numbers = BallNumbers(PRECISIONS[0])
            return self._fill(sample, self.numbers)

    def _fill(self, sample: Sample, numbers: Numbers) -> tuple[np.ndarray, list[Any]]:
        matrix = np.full((len(sample.rows), len(sample.suffixes)), NAN, dtype=object)
        keys: list[Any] = [None] * len(sample.suffixes)
        batches: dict[int, list[int]] = defaultdict(list)
        for q, suffix in enumerate(sample.suffixes):
            batches[len(suffix)].append(q)
        for length, members in batches.items():
            streams = _Streams(self, sample, members, len(sample.prefix) + length, numbers)
            block = streams.derivatives(self.variable) if self.variable else streams.bodies()
            matrix[:, members] = block
            for q, key in zip(members, streams.keys(), strict=True):
                keys[q] = (length, *key)
        return matrix, keys

    def _prove(
        self, sample: Sample, rows: tuple[int, ...], columns: tuple[int, ...], matrix: np.ndarray
    ) -> Found | None:
        part: Any = matrix[np.ix_(rows, columns)]
        if all(isinstance(v, Fraction) for v in part.flat):
            value: Any = determinant(part.tolist())
            return self._found(sample, rows, columns, part, value) if value else None
        chosen = replace(sample, suffixes=[sample.suffixes[q] for q in columns])
        if any(isinstance(v, Residue) for v in part.flat):
            part = None
        for prec in PRECISIONS:
            if part is None:
                part = self._fill(chosen, BallNumbers(prec))[0][list(rows)]
            minor = enclose_minor(part.tolist(), prec)
            if minor is not None and len(minor.rows) >= self.least:
                kept = part[np.ix_(minor.rows, minor.columns)]
                value = round_outward(minor.low, minor.high)
                return self._found(sample, [rows[i] for i in minor.rows], columns[: len(minor.columns)], kept, value)
            part = None
        return None

    def _found(self, sample: Sample, rows: Any, columns: Any, part: np.ndarray, value: Any) -> Found:
        return Found(
            sample, tuple(sample.rows[i] for i in rows), tuple(columns), _shown(part, value), value, self.variable
        )


class _Streams:
    """Streams of one length, evaluated side by side."""

    def __init__(self, lab: Laboratory, sample: Sample, members: list[int], length: int, numbers: Numbers) -> None:
        self.lab, self.sample, self.count = lab, sample, len(members)
        axis = lab.problem.axis
        rows = [sample.prefix + sample.suffixes[q] for q in members]
        self.leaves = self._parameters()
        for d in lab.problem.streamed:
            own = tuple(a for a in d.axes if a != axis)
            array = np.empty((len(rows), length, *(sample.lengths[a] for a in own)), dtype=object)
            for q, j in np.ndindex(len(rows), length):
                array[q, j, ...] = rows[q][j][d.name]
            self.leaves[d.name] = array, (STREAM, axis, *own)
        self.lengths = sample.lengths | {axis: length}
        self.sizes = sample.sizes | {axis: length}
        self.whole = Evaluation(self.leaves, self.lengths, self.sizes, sample.first, numbers)

    def _parameters(self) -> dict[str, Value]:
        return {d.name: (self.sample.parameters[d.name], d.axes) for d in self.lab.problem.parameters}

    def keys(self) -> list[tuple[Any, ...]]:
        """The values of earlier contexts in every stream, as far as they are rational."""
        columns = [self._per_stream(self.whole.value(n)) for n in self.lab.earlier]
        return [tuple(c[q] for c in columns) for q in range(self.count)]

    def _per_stream(self, value: Value) -> list[Any]:
        array = np.broadcast_to(align(value, tuple(sorted({STREAM, *value[1]}))), self._shape(value))
        rows = array.reshape(self.count, -1)
        return [tuple(v if isinstance(v, (Fraction, bool)) else object() for v in row) for row in rows]

    def _shape(self, value: Value) -> tuple[int, ...]:
        array, axes = value
        return array.shape if STREAM in axes else (self.count, *array.shape)

    def bodies(self) -> np.ndarray:
        """F(x_p, D_q) for the candidate points."""
        contexts = {n: self.whole.value(n) for n in self.lab.contexts}
        axis, rows = self.lab.problem.axis, self.sample.rows
        leaves = self._parameters()
        for d in self.lab.problem.streamed:
            array, axes = self.leaves[d.name]
            leaves[d.name] = array[0, rows], axes[1:]
        lengths = self.lengths | {axis: len(rows)}
        numbers, first = self.whole.numbers, self.sample.first
        points = Evaluation(leaves, lengths, self.sizes, first, numbers, contexts, {axis: rows})
        return self._entry(points.value(self.lab.root), (STREAM, axis), (self.count, len(rows))).T

    def derivatives(self, variable: str | None) -> np.ndarray:
        """∂out/∂x_p along every stream; the output at the last position where it keeps the axis."""
        axis = self.lab.problem.axis
        array, axes = self.whole.value(self.lab.root)
        seed = np.full(array.shape, Fraction(0), dtype=object)
        at = tuple(slice(None) if a == STREAM else (-1 if a == axis else 0) for a in axes)
        seed[at] = ONE
        if STREAM not in axes:
            raise Unsupported("an output that does not depend on the stream")
        total = np.full((self.count, self.lengths[axis]), Fraction(0), dtype=object)
        for gradient, own in Backward(self.whole, self.lab.root, str(variable)).sweep(seed).values():
            total = self._entry((gradient, own), (STREAM, axis), total.shape) + total
        return total.T[self.sample.rows]

    @staticmethod
    def _entry(value: Value, axes: tuple[str, ...], shape: tuple[int, ...]) -> np.ndarray:
        """The array over the given axes, at index 0 of all others."""
        array, own = value
        index = tuple(slice(None) if a in axes else 0 for a in own)
        kept = np.asarray(array[index], dtype=object)
        names = tuple(a for a in own if a in axes)
        full = align((kept, names), axes)
        return np.broadcast_to(full, shape)


def _plainly_finite(seen: Pivots) -> bool:
    """Whether the rank is well below what the sample could show."""
    return seen.distinct >= 6 and seen.rank <= 0.6 * seen.distinct


def _largest_group(keys: list[Any]) -> list[int]:
    groups: dict[Any, list[int]] = defaultdict(list)
    for q, key in enumerate(keys):
        groups[key].append(q)
    return max(groups.values(), key=len)


def _shown(part: np.ndarray, value: Any) -> tuple[tuple[Any, ...], ...]:
    """Rationals as they are; other numbers in closed form where that is short, else rationals inside the enclosure."""
    if not any(isinstance(v, Ball) for v in part.flat):
        return tuple(map(tuple, part))
    memo: dict[int, Any] = {}
    closed = [[closed_form(v, memo, CLOSED_LIMIT) if isinstance(v, Ball) else v for v in row] for row in part]
    if any(v is None for row in closed for v in row):
        bits = _wanted(part, value)
        return tuple(tuple(_short(v, bits) for v in row) for row in part)
    return tuple(map(tuple, closed))


def _wanted(part: np.ndarray, value: Any) -> int:
    """Bits of entries whose determinant agrees with the value: as many more as that is smaller than it might be."""
    least = min(abs(v) for v in (value if isinstance(value, tuple) else (value,)))
    return SHOWN_BITS + max(0, sum(max(_exponent(midpoint(v)) for v in row) for row in part) - _exponent(least))


def _exponent(value: Fraction) -> int:
    return value.numerator.bit_length() - value.denominator.bit_length()


def _short(value: Any, bits: int) -> Fraction:
    """A rational that agrees with the number to so many bits."""
    middle = midpoint(value)
    if middle == 0 or not isinstance(value, Ball):
        return middle
    unit = Fraction(2) ** (_exponent(middle) - bits)
    return round(middle / unit) * unit
