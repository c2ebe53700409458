"""What a certificate of a refusal proves, and the proof: its matrix, recomputed from the spec alone, has full rank.

*Stage.* Let F be the body of a sum over the axis, x_p elements that occur in every stream, D_q what the reductions over
stream q make of it. If F(x, D) were a sum of fewer than K products G(x)·H(D) wherever x occurs in a stream with the
results D, the matrix F(x_p, D_q) would have a rank below K. For a product the body is log|F|. *Whole output, any ⊕.*
If the output were a locally Lipschitz function of a state of fewer than K reals and of what follows, the derivatives
with respect to elements x_p of a common beginning of all streams would have a rank below K.

A stage is refused for the outputs that need it (`redalg.proofs.refusals.influence`).

Every entry is enclosed at growing precision until Gaussian elimination on the enclosures finds a pivot that is
certainly not 0 in every column. The determinant of a rational matrix is not 0 if it is not 0 modulo a prime.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

from redalg.proofs.checker.scoping import Scope, check_monoid
from redalg.proofs.document.document import Document
from redalg.proofs.document.intervals import admits
from redalg.proofs.document.shown import Shown
from redalg.proofs.document.terms import Leaf, walk
from redalg.proofs.document.work import Exhausted, metered
from redalg.proofs.falsification.evaluate import Evaluation, TooMuch, Unfit
from redalg.proofs.numbers.duals import Dual, Duals, tangents
from redalg.proofs.numbers.dyadic import compare_rational
from redalg.proofs.numbers.enclosure import Interval
from redalg.proofs.numbers.value_maps import ONE, ZERO, Value
from redalg.proofs.numbers.values import Numbers
from redalg.proofs.refusals.evidence import Array, Entry, Evidence, broken
from redalg.proofs.refusals.rank import LONGEST, regular, regular_rational
from redalg.proofs.refusals.stages import shown, surviving

PRECISIONS = (256, 420, 700, 2000, 6000)  # entries are stated to 100 digits, 333 bits
BUDGET = 400_000  # evaluations per stream
STEPS = 1_500_000  # of work for all precisions together (`redalg.proofs.document.work`)


@dataclass(frozen=True)
class Refuted(Shown):
    """What was proved: no form of the class with fewer than `excluded_slots` slots, for the `stage`, as text.

    `outputs` are those that are shown to need the stage: the others have its text and may do without its value.
    """

    excluded_slots: int
    scope: str
    stage: str = ""
    outputs: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.scope


def refuted(r: Evidence) -> Refuted:
    """The claim of the certificate, proved. Raises: CertificateError naming the place where it fails."""
    prove_rank(r)
    return Refuted(r.excluded_slots, _scope(r), shown(r.stage), _survives(r))


def prove_rank(r: Evidence) -> None:
    """Recompute the matrix, and prove that its rank is full, within a budget of work. Raises: CertificateError."""
    try:
        with metered(STEPS):
            _prove(r)
    except Exhausted as e:
        raise broken("the proof of full rank", "matrix", str(e)) from None


def _prove(r: Evidence) -> None:
    """Raise CertificateError unless the matrix is that of the stage, of full rank, and as large as the claim."""
    streams, n = Streams(r), len(r.points)
    if not 1 <= r.excluded_slots <= n:
        raise broken(f"{r.excluded_slots} excluded slots", "claim", f"a matrix of {n} rows excludes 1 to {n}")
    for bits in PRECISIONS:
        matrix = [streams.column(q, bits) for q in range(n)]  # transposed: one list per stream
        open_entries = [(p, q) for p, q in product(range(n), repeat=2) if not _agrees(r, p, q, matrix[q][p])]
        rational = all(type(v) is Fraction for column in matrix for v in column)
        if not open_entries and (regular_rational(matrix) if rational else regular(matrix, bits)):
            return
        if rational:
            raise broken("the matrix", "matrix", "its determinant is 0: it excludes nothing")
    why = f"neither that nor its entries are decided by enclosures of {PRECISIONS[-1]} bits"
    raise broken("a determinant other than 0", "matrix", why)


def _survives(r: Evidence) -> tuple[str, ...]:
    if r.kind == "jacobian":
        return tuple(name for name, t in r.document.spec.items() if t is r.stage)
    outputs, missing = surviving(r)
    if not outputs:
        raise broken(f"the stage {shown(r.stage)}", "stage", f"no output is shown to need its value: {missing}")
    return outputs


def _scope(r: Evidence) -> str:
    axis, k = ",".join(r.document.axis), r.excluded_slots
    if r.kind == "jacobian":
        return f"any ⊕ over {axis}: no state of fewer than {k} reals with locally Lipschitz continuations"
    return f"{r.excludes} over {axis}: no form with fewer than {k} slots"


def _check_spec(doc: Document) -> None:
    """That the spec has one meaning."""
    Scope(doc)
    for m in doc.monoids:
        check_monoid(m)
    if not set(doc.empty) <= set(doc.spec):
        raise broken(
            f"empty {sorted(doc.empty)}"[:200], "spec.empty", "a value for empty rows of no output of the spec"
        )


# --- the matrix ------------------------------------------------------------------------------------------------------


class Streams:
    """The streams of a certificate, held to what they must be, and the values of its spec on them."""

    def __init__(self, r: Evidence) -> None:
        self.r = r
        self.head, *self.trailing = r.document.axis or ("",)
        _check_spec(r.document)
        self._check_stage()
        self._check_shapes()
        self.leaves = self._leaves()
        self.lengths = self._lengths()
        self._check_streams()
        if r.kind == "jacobian":
            self._check_variable()
        elif r.variable is not None:
            raise broken(f"the variable {r.variable!r:.80}", "variable", "a minor differentiates by none")

    def _check_stage(self) -> None:
        r = self.r
        spec = list(r.document.spec.values())
        if r.kind == "jacobian":
            good = r.excludes == "jacobian" and r.stage in spec
            why = "it is no output of the spec, or its class is not that of a Jacobian"
        else:
            kind = {"(sum, ×)": "sum", "(prod, power)": "prod"}.get(r.excludes)
            good = r.stage.op == "reduce" and r.stage.attr.kind == kind and r.stage.attr.axes == r.document.axis
            good = good and r.stage in set(walk(*spec))
            why = "it is no reduction of its class over the axis in the spec"
        if not good:
            raise broken(f"the stage {r.stage!r:.80}", "stage", why)

    def _check_shapes(self) -> None:
        r, n = self.r, len(self.r.points)
        sides = {len(r.places), len(r.streams), len(r.matrix), *(len(row) for row in r.matrix)}
        if sides != {n} or not n:
            why = "points, places, streams and the rows and columns of the matrix are equally many"
            raise broken(f"{n} points", "points", why)

    def _leaves(self) -> dict[str, Leaf]:
        found: dict[str, Leaf] = {}
        for t in walk(self.r.stage):
            if t.op == "state" or (t.op == "tensor" and found.setdefault(t.attr.name, t.attr) != t.attr):
                raise broken(f"the name {t.attr.name!r:.80}", "stage", "it is no tensor, or one read in two ways")
        return found

    def _lengths(self) -> dict[str, int]:
        """The lengths of the arrays beside the streamed axis: one place where an axis only selects a copy."""
        r = self.r
        bound = {a for t in walk(r.stage) if t.op == "reduce" for a in t.attr.axes}
        for axis, n in r.sizes.items():
            if axis == self.head or n < 1 or (axis in self.trailing and n != 1):
                raise broken(f"the size {n} of axis {axis:.80}", "sizes", "it is the stream's, or no length")
        for axis, at in r.positions.items():
            if axis not in r.stage.axes or axis in bound or not 0 <= at < r.sizes.get(axis, 0):
                why = "the stage has no such axis, reduces it, or it ends before that"
                raise broken(f"position {at} of axis {axis:.80}", "positions", why)
        return {a: 1 if a in r.positions else n for a, n in r.sizes.items()}

    def _check_streams(self) -> None:
        r = self.r
        streamed = {name for name, leaf in self.leaves.items() if self.head in leaf.axes}
        if set(r.parameters) != set(self.leaves) - streamed:
            raise broken(f"the parameters {sorted(r.parameters)}"[:200], "parameters", "the stage reads others")
        for name, array in r.parameters.items():
            self._held(name, array, "parameters")
        for q, stream in enumerate(r.streams):
            for j, element in enumerate(stream):
                where = f"streams[{q}][{j}]"
                if set(element) != streamed:
                    raise broken(f"an element of {sorted(element)}"[:200], where, f"it is one of {sorted(streamed)}")
                for name, array in element.items():
                    self._held(name, array, where)
            for p, (place, point) in enumerate(zip(r.places, r.points, strict=True)):
                if not 0 <= place < len(stream) or stream[place] != point:
                    raise broken(f"points[{p}]", f"streams[{q}]", f"the point does not occur in it at place {place}")

    def _held(self, name: str, array: Array, where: str) -> None:
        for _, value in self._entries(name, array, where):
            domain = self.leaves[name].domain
            if (type(value) is bool) != ("bool" in domain):
                raise broken(f"the value {value!r:.60} of {name:.80}", where, "truths are for Boolean tensors alone")
            if not ("bool" in domain or admits(domain, value)) or ("integer" in domain and value.denominator != 1):
                raise broken(f"the value {value!s:.60} of {name:.80}", where, f"its domain is {sorted(domain)}")

    def _entries(self, name: str, array: Array, where: str) -> Iterator[tuple[tuple[int, ...], Any]]:
        """(indices along the other axes, value), for an array of exactly the right shape."""
        axes = [a for a in self.leaves[name].axes if a != self.head]
        todo: list[tuple[tuple[int, ...], Any]] = [((), array)]
        for axis in axes:
            if axis not in self.lengths or any(
                not isinstance(v, tuple) or len(v) != self.lengths[axis] for _, v in todo
            ):
                raise broken(f"an array of {name:.80}", where, f"it has not the length of axis {axis:.80}")
            todo = [((*at, i), x) for at, v in todo for i, x in enumerate(v)]
        if any(isinstance(v, tuple) for _, v in todo):
            raise broken(f"an array of {name:.80}", where, "it has more axes than the tensor")
        yield from todo

    def _check_variable(self) -> None:
        r = self.r
        leaf = self.leaves.get(r.variable or "")
        if leaf is None or self.head not in leaf.axes or leaf.domain & {"integer", "bool"}:
            raise broken(f"the variable {r.variable!r:.80}", "variable", "it is no real tensor along the stream")
        common = 1 + max(r.places)
        if any(stream[:common] != r.streams[0][:common] for stream in r.streams):
            raise broken("the streams", "streams", "they do not begin alike up to the last point")
        if self.head in r.stage.axes and any(len(stream) == common for stream in r.streams):
            raise broken("a stream", "streams", "it ends with a point, which the output reads there without a state")
        for p, point in enumerate(r.points):
            if "nonnegative" in leaf.domain and not next(v for _, v in self._entries(leaf.name, point[leaf.name], "")):
                raise broken(f"points[{p}]", "points", "it lies on the border of its domain")

    # --- values ---

    def column(self, q: int, bits: int) -> list[Value]:
        """The entries of stream q, one per point."""
        r = self.r
        try:
            column = self._derivatives(q, bits) if r.kind == "jacobian" else self._bodies(q, bits)
        except (TooMuch, Unfit) as e:
            raise broken(f"streams[{q}]", "streams", str(e)) from None
        except RecursionError:
            raise broken("the stage", "stage", "it is nested too deeply") from None
        for p, value in enumerate(column):
            if type(value) is float:
                raise broken(f"the entry [{p}][{q}]", "matrix", f"its value is {value}, no finite number")
        return column

    def _bodies(self, q: int, bits: int) -> list[Value]:
        numbers = Numbers(bits, LONGEST)
        evaluation, body = self._evaluation(q, numbers, {}), self.r.stage.args[0]
        evaluation.table(body)
        first = dict.fromkeys(body.axes, 0)
        values = [evaluation.value(body, first | {self.head: place}) for place in self.r.places]
        values = [Fraction(v) if type(v) is bool else v for v in values]
        if self.r.excludes == "(prod, power)":
            values = [numbers.map("log", numbers.map("abs", v)) for v in values]
        return values

    def _derivatives(self, q: int, bits: int) -> list[Value]:
        numbers, root = Duals(bits, LONGEST), self.r.stage
        evaluation = self._evaluation(q, numbers, {place: p for p, place in enumerate(self.r.places)})
        evaluation.table(root)
        at = dict.fromkeys(root.axes, 0) | {self.head: len(self.r.streams[q]) - 1}
        value = evaluation.value(root, at)
        if type(value) is not Dual and type(value) is not Fraction and type(value) is not Interval:
            return [value] * len(self.r.places)
        found = tangents(value)
        return [found.get(p, ZERO) for p in range(len(self.r.places))]

    def _evaluation(self, q: int, numbers: Numbers, varying: Mapping[int, int]) -> Evaluation:
        """The values on stream q; `varying` says which place holds which variable."""
        r, stream = self.r, self.r.streams[q]
        leaves: dict[str, dict[tuple[int, ...], Value]] = {}
        for name, leaf in self.leaves.items():
            if self.head not in leaf.axes:
                leaves[name] = dict(self._entries(name, r.parameters[name], "parameters"))
                continue
            where, values = leaf.axes.index(self.head), {}
            for j, element in enumerate(stream):
                for at, value in self._entries(name, element[name], "streams"):
                    if name == r.variable and j in varying and not any(at):
                        value = Dual(value, {varying[j]: ONE})
                    values[(*at[:where], j, *at[where:])] = value
            leaves[name] = values
        length = {self.head: len(stream)}
        return Evaluation(
            numbers,
            leaves,
            self.lengths | length,
            sizes={**r.sizes, **length},
            offsets=r.positions,
            monoids=r.document.monoids,
            budget=BUDGET,
        )


def _agrees(r: Evidence, p: int, q: int, value: Value) -> bool:
    """Whether the entry is what is stated; False where that takes more digits."""
    stated: Entry = r.matrix[p][q]
    low, high = stated if isinstance(stated, tuple) else (stated, stated)
    if type(value) is Fraction:
        if low <= value <= high:
            return True
    elif type(value) is not Interval:
        return False
    elif compare_rational(value.low, low) >= 0 and compare_rational(value.high, high) <= 0:
        return True
    elif compare_rational(value.high, low) >= 0 and compare_rational(value.low, high) <= 0:
        return False
    raise broken(f"the entry [{p}][{q}]", "matrix", "the body at the point in the stream has another value")
