"""An accumulator as a document, a header and named arrays, and back: every field is checked against the form.

Arrays are named ``bound/NAME``, ``export/NAME``, ``part/NAME`` and ``low/NAME`` (what rounding took from a sum); those
of the nodes of a deterministic accumulator are ``node0/part/NAME``, ….
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from redalg.encoding.container import LARGEST, Array, damaged
from redalg.encoding.digest import form_digest, spec_digest
from redalg.encoding.invariants import Intervals, broken
from redalg.encoding.numbers import EXTENDED, EXTENDED_COMPLEX, INTEGER, coded, decoded
from redalg.errors import RedalgError
from redalg.graph.node import Decl
from redalg.numeric.array_origin import BFLOAT16_BITS, NARROW_ONLY, Origin
from redalg.numeric.binding import Bound, check_kind
from redalg.numeric.integers import EXACT
from redalg.streaming import checks, ids, nulls, promote
from redalg.streaming.accumulator import Accumulator
from redalg.streaming.machine import export_axes
from redalg.streaming.pieces import Pieces, Single
from redalg.streaming.program import Program
from redalg.streaming.snapshot import Layout, Snapshot
from redalg.streaming.span import Span
from redalg.streaming.state import State
from redalg.streaming.tapes.tape import length_of
from redalg.streaming.tree import LEVELS, Tree

if TYPE_CHECKING:
    from redalg.form import Form

Header = dict[str, Any]
KINDS = ("numpy", "torch", "jax", "numba")  # of arrays on the CPU
_BITS = "bfloat16 bits"
_NUMBERS: dict[str, type] = {"bool": bool, "int": int, "float": float, "complex": complex}


# --- writing ---------------------------------------------------------------------------------------------------------


def document(a: Accumulator) -> tuple[Header, dict[str, Array]]:
    """The header and the arrays of an accumulator."""
    now, layout = a._now, a._layout
    writer = _Writer()
    span = now.span
    header: Header = {
        "kind": "state of a redalg form",
        "spec": spec_digest(a.form.spec),
        "form": form_digest(layout.plan),
        "pass": now.number,
        "placed": span.placed,
        "start": span.start,
        "stop": span.stop,
        "intervals": [list(interval) for interval in span.intervals],
        "ids": sorted(now.ids),
        "expected": now.expected,
        "deterministic": now.deterministic,
        "nulls": now.nulls,
        "sizes": now.sizes,
        "dtypes": _written_dtypes(now.dtypes),
        "origin": _origin(now.origin),
        "bound": writer.bound(a._bound),
        "exports": writer.all("export", now.exports),
        "states": [],
    }
    if isinstance(now.pieces, Tree):
        header["inner"] = now.pieces.inner
        nodes = [(f"node{k}/", key, state) for k, (key, state) in enumerate(now.pieces.nodes)]
    else:
        state = None if now.pieces.empty else now.pieces.state  # type: ignore[attr-defined]
        nodes = [("", (0, 0), state)] if state is not None else []
    program = a._machine(now.dtypes).program(now.number) if nodes else None
    for before, (level, index), state in nodes:
        assert program is not None
        parts = {name: state.parts[name] for name in program.arrays}
        writer.all(f"{before}part", parts)
        writer.all(f"{before}low", {name: state.low[name] for name in program.sums})
        row = {"n": state.n, "wide": state.wide, "kept": state.kept, "level": level, "index": index}
        header["states"].append(row)
    if now.beyond:
        header["beyond"] = {name: str(value) for name, value in now.beyond.items()}
    if now.nothing and now.dtypes is None:
        header["nothing"] = _written_dtypes(now.nothing)
    return {**header, "coded": writer.coded}, writer.arrays


def _written_dtypes(dtypes: Mapping[str, Any] | None) -> Any:
    return dtypes and {name: [dtype_name(d)] for name, d in dtypes.items()}


class _Writer:
    def __init__(self) -> None:
        self.arrays: dict[str, Array] = {}
        self.coded: dict[str, list[Any]] = {}

    def all(self, folder: str, arrays: Mapping[str, Any]) -> list[str]:
        for name, x in arrays.items():
            kind, found = coded(np.asarray(x))
            self.arrays[f"{folder}/{name}"] = np.ascontiguousarray(found).reshape(found.shape)
            if kind:
                self.coded[f"{folder}/{name}"] = [kind, list(np.shape(x))]
        return list(arrays)

    def bound(self, found: Bound) -> Header:
        """The tensors without the axis: arrays, and Python numbers as text that keeps every bit."""
        arrays = {name: x for name, x in found.arrays.items() if isinstance(x, np.ndarray)}
        plain = {n: x.astype(np.float32) if x.dtype.name in NARROW_ONLY else x for n, x in arrays.items()}
        self.all("bound", plain)
        numbers = {name: _written(x) for name, x in found.arrays.items() if name not in arrays}
        dtypes = {name: dtype_name(found.dtypes[name]) for name in arrays}
        return {"dtypes": dtypes, "numbers": numbers, "origin": _origin(found.origin)}


def _written(x: Any) -> list[str]:
    kind = next(word for word, t in _NUMBERS.items() if isinstance(x, t))
    if kind == "complex":
        return [kind, float(x.real).hex(), float(x.imag).hex()]
    return [kind, float(x).hex() if kind == "float" else str(int(x))]


def _origin(found: Origin | None) -> list[str] | None:
    return None if found is None else [found.kind, found.device]


def dtype_name(dtype: Any) -> str:
    return _BITS if dtype == BFLOAT16_BITS else np.dtype(dtype).name


# --- reading ---------------------------------------------------------------------------------------------------------


def accumulator(form: Form, header: Header, arrays: Mapping[str, Array], where: str) -> Accumulator:
    """The accumulator of a document. Raises: RedalgError where anything is not what the form would write."""
    reader = _Reader(header, arrays, where)
    layout = Layout.of(form.spec, form.plan)
    _same_form(form, layout, reader)
    bound = reader.bound(layout)
    span = reader.span()
    sizes = reader.sizes(layout, bound)
    number = reader.whole("pass", layout.passes - 1)
    dtypes = reader.dtypes(layout)
    if dtypes is not None and any(
        axis not in sizes for d in layout.streamed for axis in d.axes if axis != layout.axis[0]
    ):
        raise reader.wrong("sizes")
    if dtypes is not None and any(
        place % (layout.inner(sizes) or 1) for interval in span.intervals for place in interval
    ):
        raise reader.wrong("intervals")
    expected = reader.expected(number, dtypes)
    now = Snapshot(
        span,
        sizes,
        reader.flag("deterministic"),
        Single(),
        dtypes,
        number,
        {},
        expected,
        reader.origin("origin", header.get("origin")),
        nulls.checked(layout, reader.text("nulls"), span.placed, where),
        reader.ids(),
        reader.beyond(dtypes),
        reader.nothing(layout, dtypes),
    )
    found = Accumulator._of(form, bound, now)
    now = replace(now, exports=reader.exports(found, number))
    pieces = reader.pieces(found, now)
    reader.finished()
    return Accumulator._of(form, bound, replace(now, pieces=pieces))


def _same_form(form: Form, layout: Layout, reader: _Reader) -> None:
    mine, its = spec_digest(form.spec), reader.text("spec")
    if its != mine:
        why = f"it is of the spec with the digest {its[:32]}, and this form's is {mine}"
        raise RedalgError("this state", reader.where, why, "read it with the form of the spec that wrote it")
    if reader.text("form") != form_digest(layout.plan):
        why = "it is of another form of this spec: the slots, or what they mean, are not the same"
        fix = "derive the form with the options (and by the version) of the one that wrote it"
        raise RedalgError("this state", reader.where, why, fix)


class _Reader:
    """Fields of a header, each of the type and in the range that it must have."""

    def __init__(self, header: Header, arrays: Mapping[str, Array], where: str) -> None:
        self.header, self.where = header, where
        self.arrays = dict(arrays)
        self.coded = self.table("coded")

    def wrong(self, field: str) -> RedalgError:
        return damaged(self.where, f"its field {field!r} is missing, or not what this form would write")

    # --- fields ---

    def flag(self, field: str, source: Any = None) -> bool:
        return bool(self._typed(field, bool, source))

    def text(self, field: str) -> str:
        return str(self._typed(field, str))

    def whole(self, field: str, most: int, source: Any = None) -> int:
        found = self._typed(field, int, source)
        if not 0 <= found <= most:
            raise self.wrong(field)
        return int(found)

    def table(self, field: str, source: Any = None) -> dict[str, Any]:
        found: dict[str, Any] = self._typed(field, dict, source)
        return found

    def rows(self, field: str) -> list[Any]:
        found: list[Any] = self._typed(field, list)
        return found

    def _typed(self, field: str, kind: type, source: Any = None) -> Any:
        found = (self.header if source is None else source).get(field)
        if type(found) is not kind:
            raise self.wrong(field)
        return found

    # --- the stream ---

    def span(self) -> Span:
        intervals = self._intervals()
        placed, start, stop = self.flag("placed"), self.whole("start", LARGEST), self.whole("stop", LARGEST)
        begins = {low for low, _ in intervals[:1]} or {start}
        if not placed and (start, begins, len(intervals) > 1) != (0, {0}, False):
            raise self.wrong("start")
        if stop not in ({high for _, high in intervals} or {start}):
            raise self.wrong("stop")
        return Span(placed, tuple(intervals), start, stop)

    def _intervals(self) -> list[tuple[int, int]]:
        intervals: list[tuple[int, int]] = []
        for row in self.rows("intervals"):
            if not isinstance(row, list) or len(row) != 2 or any(type(x) is not int for x in row):
                raise self.wrong("intervals")
            low, high = row
            if not (intervals[-1][1] if intervals else -1) < low < high <= LARGEST:
                raise self.wrong("intervals")
            intervals.append((low, high))
        return intervals

    def expected(self, number: int, dtypes: Mapping[str, Any] | None) -> int | None:
        """How many elements the first pass saw, of which later ones know the dtypes."""
        found = self.whole("expected", LARGEST) if self.header.get("expected") is not None else None
        if bool(found) != bool(number) or number and dtypes is None:
            raise self.wrong("expected")
        return found

    def ids(self) -> frozenset[str]:
        found = self.rows("ids")
        if any(type(name) is not str for name in found) or found != sorted(set(found)) or not ids.sound(found):
            raise self.wrong("ids")
        return frozenset(found)

    def beyond(self, dtypes: Mapping[str, Any] | None) -> dict[str, int]:
        """Integers that no float64 holds, in decimal; states without one have no such field."""
        if "beyond" not in self.header:
            return {}
        found: dict[str, int] = {}
        for name, text in self.table("beyond").items():
            digits = text.removeprefix("-") if type(text) is str else ""
            if name not in (dtypes or {}) or not (digits.isascii() and digits.isdigit() and len(digits) < 20):
                raise self.wrong("beyond")
            found[name] = int(text)
            if not EXACT < abs(found[name]) <= LARGEST + (found[name] < 0) or not promote.long((dtypes or {})[name]):
                raise self.wrong("beyond")
        return found

    def sizes(self, layout: Layout, bound: Bound) -> dict[str, int]:
        found = self.table("sizes")
        known = {**bound.sizes, **dict(layout.new_axes)}
        axes = {axis for d in layout.streamed for axis in d.axes} - {layout.axis[0]} | set(known)
        for axis in found:
            self.whole(axis, LARGEST, found)
        if not set(found) <= axes or any(found.get(axis) != n for axis, n in known.items()):
            raise self.wrong("sizes")
        if any(16 * prod(found.get(axis) or 1 for axis in d.axes) > LARGEST for d in layout.streamed):
            raise self.wrong("sizes")
        return dict(found)

    def dtypes(self, layout: Layout) -> dict[str, Any] | None:
        if self.header.get("dtypes") is None:
            if self.header.get("states") or self.header.get("intervals"):
                raise self.wrong("dtypes")
            return None
        return self._chunk_dtypes(layout, "dtypes")

    def nothing(self, layout: Layout, dtypes: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """The dtypes of chunks of length 0; states that saw an element or none of these have no such field."""
        if "nothing" not in self.header:
            return None
        if dtypes is not None:
            raise self.wrong("nothing")
        return self._chunk_dtypes(layout, "nothing")

    def _chunk_dtypes(self, layout: Layout, field: str) -> dict[str, Any]:
        found = self.table(field)
        if set(found) != set(layout.names):
            raise self.wrong(field)
        return {d.name: self._chunk_dtype(d, found[d.name]) for d in layout.streamed}

    def _chunk_dtype(self, decl: Decl, names: Any) -> np.dtype:
        if not isinstance(names, list) or len(names) != 1 or type(names[0]) is not str:
            raise self.wrong("dtypes")
        return self.dtype(decl, names[0])

    def dtype(self, decl: Decl, name: str) -> np.dtype:
        """The dtype of a tensor. Raises: RedalgError where the tensor does not take it."""
        if name == _BITS:
            found = BFLOAT16_BITS
        elif name in NARROW_ONLY:
            found = _narrow(name, self.where)
        elif name in _PLAIN:
            found = np.dtype(name)
        else:
            raise self.wrong("dtypes")
        check_kind(decl, "f" if name in {_BITS, *NARROW_ONLY} else found.kind, name, self.where)
        return found

    def origin(self, field: str, found: Any) -> Origin | None:
        if found is None:
            return None
        if not isinstance(found, list) or len(found) != 2 or found[0] not in KINDS or found[1] != "cpu":
            raise self.wrong(field)
        return Origin(found[0], "cpu") if _there(found[0]) else Origin()

    # --- arrays ---

    def array(self, name: str) -> Array:
        if name not in self.arrays:
            raise damaged(self.where, f"array {name!r} is missing")
        found = self.arrays.pop(name)
        if name not in self.coded:
            return found
        row = self.coded.pop(name)
        if not isinstance(row, list) or len(row) != 2 or row[0] not in (INTEGER, EXTENDED, EXTENDED_COMPLEX):
            raise self.wrong("coded")
        shape = row[1]
        if (
            not isinstance(shape, list)
            or len(shape) > 32
            or any(type(n) is not int or not 0 <= n <= LARGEST for n in shape)
        ):
            raise self.wrong("coded")
        return decoded(found, row[0], tuple(shape), self.where)

    def bound(self, layout: Layout) -> Bound:
        source = self.table("bound")
        dtypes, numbers = self.table("dtypes", source), self.table("numbers", source)
        decls = {d.name: d for d in layout.fixed}
        if set(dtypes) | set(numbers) != set(decls) or set(dtypes) & set(numbers):
            raise self.wrong("bound")
        arrays = {name: self.array(f"bound/{name}") for name in dtypes}
        kinds = {name: self.dtype(decls[name], str(text)) for name, text in dtypes.items()}
        for name, dtype in kinds.items():
            held = np.dtype(np.float32) if dtype == BFLOAT16_BITS or dtype.name in NARROW_ONLY else dtype
            if arrays[name].dtype != held:
                raise self.wrong("bound")
        found = checks.bound(layout, {**arrays, **{name: self._number(row) for name, row in numbers.items()}})
        origin = self.origin("bound", source.get("origin")) or Origin()
        return Bound(found.arrays, found.sizes, {**found.dtypes, **kinds}, origin)

    def _number(self, row: Any) -> Any:
        texts = isinstance(row, list) and bool(row) and all(type(text) is str and len(text) < 40 for text in row)
        if not texts or row[0] not in _NUMBERS or len(row) != (3 if row[0] == "complex" else 2):
            raise self.wrong("bound")
        try:
            if row[0] in ("bool", "int"):
                return bool(int(row[1])) if row[0] == "bool" else int(row[1])
            found = [float.fromhex(text) for text in row[1:]]
        except (ValueError, OverflowError) as error:
            raise self.wrong("bound") from error
        return complex(*found) if row[0] == "complex" else found[0]

    def exports(self, a: Accumulator, number: int) -> dict[str, Array]:
        layout, now = a._layout, a._now
        names = [name for p in layout.plan.passes[:number] for name, _ in p.exports]
        if self.rows("exports") != names:
            raise self.wrong("exports")
        found = {name: self.array(f"export/{name}") for name in names}
        if not found:
            return {}
        kinds = a._machine(now.dtypes).program(number).kinds
        for name, x in found.items():
            shape = tuple(length_of(axis, now.sizes) for axis in export_axes(layout.plan, layout.masked, name))
            if x.shape != shape or x.dtype.kind not in _EXPORTED[kinds[name]]:
                raise self.misshapen(f"export/{name}")
        return found

    # --- states ---

    def pieces(self, a: Accumulator, now: Snapshot) -> Pieces:
        rows = self.rows("states")
        if any(not isinstance(row, dict) for row in rows):
            raise self.wrong("states")
        if not now.deterministic:
            if len(rows) != bool(now.span.count):
                raise self.wrong("states")
            single = [self._state(a, now, "", row, now.span.intervals) for row in rows]
            return Single(*single)
        return self._tree(a, now, rows)

    def _tree(self, a: Accumulator, now: Snapshot, rows: list[Header]) -> Tree:
        """Nodes in order that cover the positions of the accumulator, none of them halves of one."""
        inner = self.whole("inner", LARGEST)
        if rows and inner != a._layout.inner(now.sizes) or not inner:
            raise self.wrong("inner")
        nodes: list[tuple[tuple[int, int], State]] = []
        covered = Span(True, (), 0, 0)
        for k, row in enumerate(rows):
            level, index = self.whole("level", LEVELS, row), self.whole("index", LARGEST, row)
            low, high = (index << level) * inner, (index + 1 << level) * inner
            if low < covered.stop or high > LARGEST or (level, index ^ 1) in dict(nodes):
                raise self.wrong("states")
            covered = covered.joined(Span(True, ((low, high),), low, high))
            nodes.append(((level, index), self._state(a, now, f"node{k}/", row, ((low, high),))))
        if covered.intervals != now.span.intervals:
            raise self.wrong("states")
        return Tree(tuple(nodes), inner)

    def _state(self, a: Accumulator, now: Snapshot, before: str, row: Header, covered: Intervals) -> State:
        count = sum(high - low for low, high in covered)
        n, wide, kept = self.whole("n", count, row), self.flag("wide", row), self.flag("kept", row)
        machine = a._machine(now.dtypes)
        source = machine.wide if wide else machine
        if n != count or (kept and not wide):
            raise self.wrong("states")
        if source is None:
            why = "it holds numbers of a range or precision that this machine's floats lack"
            raise RedalgError("this state", self.where, why, "read it on a machine like the one that wrote it")
        program = source.program(now.number)
        sizes, axes = {**now.sizes}, part_axes(program)
        parts = {name: self._part(f"{before}part/{name}", program, name, axes[name], sizes) for name in program.arrays}
        low = {name: self._part(f"{before}low/{name}", program, name, axes[name], sizes) for name in program.sums}
        parts |= {anchor: parts[part] for anchor, part in program.aliases.items()}
        state = State(n, parts, low, wide, kept)
        found = broken(program, state, covered, {**a._bound.dtypes, **(now.dtypes or {})})
        if found is not None:
            raise damaged(self.where, f"{before}{found.part} is what no stream leads to: {found.why}")
        return state

    def _part(self, field: str, program: Program, name: str, axes: Sequence[str], sizes: Mapping[str, int]) -> Array:
        found = self.array(field)
        taken = {program.dtypes[name], *_LONGER.get(program.dtypes[name].char, ())}
        if found.dtype not in taken or found.shape != (1, *(length_of(axis, sizes) for axis in axes)):
            raise self.misshapen(field)
        return found

    def misshapen(self, field: str) -> RedalgError:
        return damaged(self.where, f"array {field!r} is not of the dtype and the shape that the form says")

    def finished(self) -> None:
        if self.arrays or self.coded:
            raise damaged(self.where, f"array {next(iter([*self.arrays, *self.coded]))[:80]!r} is none of this form's")


_PLAIN = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128".split()
)


_EXPORTED = {"b": "b", "i": "iOf", "f": "f", "c": "c"}  # of kinds that tapes know; integers beside -oo are floats

# What a part may be held in beside its own dtype: integers without bounds, what NumPy made of a longer constant, and
# places of conditions among integers.
_LONGER = {
    "f": (np.dtype(np.float64),),
    "F": (np.dtype(np.complex128),),
    "d": (np.dtype(np.longdouble),),
    "?": (np.dtype(np.int64),),
} | dict.fromkeys("lq", (np.dtype(object),))


def part_axes(program: Program) -> dict[str, tuple[str, ...]]:
    """The axes of every part that is stored."""
    found = {a.name: a.axes for a in program.plan.anchors}
    return found | {part: s.leaf(i).attr.axes for s in program.plan.slots for i, part in enumerate(s.parts)}


def _narrow(name: str, where: str) -> np.dtype:
    """A dtype that extends NumPy."""
    try:
        importlib.import_module("ml_dtypes")
        return np.dtype(name)
    except (ImportError, TypeError) as error:
        why = f"its chunks are {name}, which NumPy has with the package ml_dtypes alone"
        raise RedalgError("this state", where, why, "pip install ml_dtypes") from error


def _there(kind: str) -> bool:
    """Whether the library that results come from is there; where it is not they are NumPy's."""
    if kind in ("numpy", "numba") or kind in sys.modules:
        return True
    try:
        importlib.import_module(kind)
    except ImportError:
        return False
    return True
