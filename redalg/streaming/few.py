"""Updates of a state of single numbers by a few elements: `redalg.streaming.tapes.scalars`, prepared."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from redalg.graph.plan import COUNT
from redalg.numeric.integers import LARGEST
from redalg.source.builder import Builder
from redalg.source.names import local
from redalg.source.statements import Block, Expression, Function, Return, expression, mapped, rewritten
from redalg.streaming.lift import Engine
from redalg.streaming.pieces import Single
from redalg.streaming.program import start_name
from redalg.streaming.state import State
from redalg.streaming.tapes.inline import inlined
from redalg.streaming.tapes.scalars import Numbers, Unsupported, numbers, uses_arrays, written
from redalg.streaming.tapes.tape import Tape, key_name

if TYPE_CHECKING:
    from redalg.streaming.program import Program


OFTEN = 4  # updates that are done on arrays first
KINDS = 64  # of chunks for which a form keeps functions
POWER = 6  # of what is still a normal number, of ordinary ones (`tapes.scalars.ordinary`)
TINY = 2.0**-900  # beside larger sums what underflows is no rounding


class Held(Single):
    """A state of numbers; its arrays are made when somebody reads them."""

    found: Numbers
    few: Few

    def __init__(self, found: Numbers, few: Few) -> None:
        self.__dict__.update(found=found, few=few)

    @cached_property
    def state(self) -> State:
        return self.few.arrays(self.found)

    @property
    def empty(self) -> bool:
        return False

    @property
    def reach(self) -> int:
        return max((abs(self.found.parts[name]) for name in self.few.whole), default=0)

    def __reduce__(self) -> Any:
        return Single, (self.state,)


class Few:
    """The functions of a pass for numbers, called with chunks of one length of the tensors `keys`.

    Raises: Unsupported.
    """

    def __init__(self, program: Program, keys: Sequence[str], known: Mapping[str, Any], length: int) -> None:
        self.single = program.real == np.float32
        if program.noted and not self.single and (program.hides or program.degree > POWER):
            raise Unsupported("products inside of functions, high powers")
        self.program, self.names, self.lists = program, program.arrays, _lists(program)
        single = [name for name in self.names if name not in self.lists]
        self.floats = tuple(name for name in single if program.kinds[name] == "f")
        watched = program.products if program.noted and not self.single else ()
        self.computed = tuple(part for part in watched if part in self.floats)
        self.whole = tuple(name for name in single if program.kinds[name] == "i")
        update = Update(self, keys, known, length)
        values = {key_name(key): x for key, x in known.items()}
        first, after = update.first(), update.next()
        self._first, self._next = numbers(first, program.real, values), numbers(after, program.real, values)
        self._quiet = not (self.single or uses_arrays(after))

    # --- states --------------------------------------------------------------------------------------------------

    def numbers(self, state: State) -> Numbers | None:
        """The state as numbers; None of one that is wide, or where something is not finite."""
        dtypes = self.program.dtypes
        if state.wide or any(x.dtype != dtypes[name] or x.shape[0] != 1 for name, x in state.parts.items()):
            return None
        own = self.floats if self.single else ()
        parts = {name: x[0] if name in own else x[0].tolist() for name, x in state.parts.items()}
        found = Numbers(state.n, parts, {name: x[0] if self.single else x.item() for name, x in state.low.items()})
        return found if self._finite(found) else None

    def arrays(self, found: Numbers) -> State:
        dtypes = self.program.dtypes
        parts = {name: np.array([found.parts[name]], dtypes[name]) for name in self.names}
        parts = {name: parts[self.program.aliases.get(name, name)] for name in found.parts}
        return State(found.n, parts, {name: np.array([x], self.program.real) for name, x in found.low.items()})

    def _finite(self, found: Numbers) -> bool:
        parts, total = found.parts, 0.0
        for name in self.floats:
            total += parts[name]
        for x in found.low.values():
            total += x
        for name in self.whole:
            if not -LARGEST < parts[name] < LARGEST:
                return False
        return isfinite(total)

    # --- updates -------------------------------------------------------------------------------------------------

    def extended(self, pieces: Single, arrays: Sequence[Any], start: int) -> Held | None:
        """The state after a chunk that begins at a position; None where arrays have to do it."""
        if self._quiet:
            return self._extended(pieces, arrays, start)
        if not (self.single and self.program.noted):
            with np.errstate(all="ignore"):
                return self._extended(pieces, arrays, start)
        left: list[str] = []
        kinds: Any = dict.fromkeys(self.program.noted, "call")
        with np.errstate(all="ignore", **kinds, call=lambda kind, _: left.append(kind)):
            found = self._extended(pieces, arrays, start)
        return None if left else found

    def _extended(self, pieces: Single, arrays: Sequence[Any], start: int) -> Held | None:
        state: Numbers | None = None
        if isinstance(pieces, Held):
            state = pieces.found
        elif pieces.state is not None:
            state = self.numbers(pieces.state)
            if state is None:
                return None
        try:
            found = self._first(start, *arrays) if state is None else self._next(state, start, *arrays)
        except (ArithmeticError, ValueError):
            return None
        if found is None or self.single and not self._rounded(found):
            return None
        return Held(found, self)

    def _rounded(self, found: Numbers) -> bool:
        """Whether all floats are of the stream's type: Python's own have another precision."""
        floats = [*(found.parts[name] for name in self.floats), *found.low.values()]
        return all(type(x) is np.float32 for x in floats)


class Update:
    """An update by a chunk of one length as a single function: lift, and what joins it to a state."""

    def __init__(self, few: Few, keys: Sequence[str], known: Mapping[str, Any], length: int) -> None:
        self.few, self.program, self.length, self.known = few, few.program, length, known
        self.vectors = [key_name(key) for key in keys]
        self.tapes: dict[str, Function] = {}
        self.out = Builder()
        starts = [start_name(a) for a in self.program.means] if length > 1 else []
        self.names = dict(zip(keys, self.vectors, strict=True)) | {key: key_name(key) for key in starts}
        self.names[COUNT.attr.name] = str(length)
        if length == 1:
            self.out(*(f"{x} = {self._element(x)}" for x in self.vectors))
        if starts:
            one = self.names | {key: self._element(self.names[key]) for key in keys} | {COUNT.attr.name: "1"}
            self._call(", ".join(map(key_name, starts)), "start", self.program.first, one)
        tape = self.program.single if length == 1 else self.program.block
        self._call(", ".join(map(local, few.names)), "lift", tape, self.names, () if length == 1 else keys)
        for name in self.program.placed:
            x = local(name)
            self.out(f"{x} = " + (f"later({x}, position)" if name in few.lists else f"{x} + position"))
        self._finite([local(name) for name in few.floats], [local(name) for name in few.whole])

    def _call(self, results: str, name: str, tape: Tape, names: Mapping[str, str], vectors: Sequence[str] = ()) -> None:
        if tape.starts or tape.lengths:
            raise Unsupported("positions and lengths")
        self.tapes[name] = written(tape, vectors, self.length, self.few.single)
        self.out(f"[{results}] = {name}({', '.join(self._argument(key, names) for key in tape.keys)})")

    def _element(self, vector: str) -> str:
        """The text of the first element."""
        return f"{vector}[0]" if self.few.single else f"{vector}.item(0)"

    def _argument(self, key: str, names: Mapping[str, str]) -> str:
        if key not in names and self.known[key] is None:
            raise Unsupported("parameters that are arrays")
        return names.get(key) or key_name(key)

    def _finite(self, floats: Sequence[str], whole: Sequence[str]) -> None:
        """Give up where a number is not finite, or an integer beyond int64."""
        if floats:
            self.out(f"if not isfinite({' + '.join(floats)}):", "    return None")
        for x in whole:
            self.out(f"if not {-LARGEST} < {x} < {LARGEST}:", "    return None")

    def first(self) -> Function:
        """The function of a position and a chunk that gives the state of the chunk."""
        parts = {name: local(name) for name in self.few.names}
        parts |= {anchor: parts[part] for anchor, part in self.program.aliases.items()}
        low = dict.fromkeys(self.program.sums, "rounded(0.0)" if self.few.single else "0.0")
        inside = self.out.body()
        made = Builder()
        held = self._held([local(name) for name in self.few.computed])
        made(*inside, *held, f"return State({self.length}, {_dict(parts)}, {_dict(low)})")
        return inlined(made.function("first", ["position", *self.vectors]), self.tapes)

    def next(self) -> Function:
        """The function of a state, a position and a chunk that gives the state after it."""
        combine = self.program.combine
        more = [self._argument(key, {}) for key in combine.keys[3:]]
        made = Builder()
        made(*self.out.body(), f"return combine({', '.join(['a', 'b', 'False', *more])})")
        tapes = {**self.tapes, "combine": written(combine, (), single=self.few.single)}
        whole = inlined(made.function("next", ["a", "position", *self.vectors]), tapes)
        *body, last = mapped(whole.body, self._of_chunk)
        assert isinstance(last, Return) and isinstance(last.value, ast.Call)
        _, parts, low, _ = last.value.args
        return replace(whole, body=(*body, *self._checked(parts, low), last))

    def _of_chunk(self, e: Expression) -> Expression:
        """What is read of the second state is what was lifted."""
        held = self.program.aliases

        def rule(inner: Expression) -> Expression | None:
            if _of_b(inner) == "n":
                return expression(str(self.length))
            if isinstance(inner, ast.Subscript) and (what := _of_b(inner.value)):
                name = ast.literal_eval(inner.slice)
                return expression(local(held.get(name, name)) if what == "parts" else "0.0")
            return None

        return rewritten(e, rule)

    def _checked(self, parts: Expression, low: Expression) -> Block:
        assert isinstance(parts, ast.Dict) and isinstance(low, ast.Dict)
        by_name = {ast.literal_eval(k): ast.unparse(v) for k, v in zip(parts.keys, parts.values, strict=True) if k}
        self.out = Builder()
        self._finite(
            [*(by_name[n] for n in self.few.floats), *map(ast.unparse, low.values)],
            [by_name[n] for n in self.few.whole],
        )
        self.out(*self._held([by_name[n] for n in self.few.computed]))
        return self.out.body()

    def _held(self, computed: Sequence[str]) -> list[str]:
        """Give up where what is left of products may be what underflowed, which numbers do not note."""
        if not computed:
            return []
        tiny = " or ".join(f"{-TINY!r} < {x} < {TINY!r}" for x in computed)
        read = [*self.vectors, *(key_name(key) for key, x in self.known.items() if isinstance(x, float))]
        return [f"if ({tiny}) and not ordinary({', '.join(read)}):", "    return None"]


def _of_b(e: Expression) -> str | None:
    """Which attribute of the second state an expression is."""
    return e.attr if isinstance(e, ast.Attribute) and isinstance(e.value, ast.Name) and e.value.id == "b" else None


def _dict(items: Mapping[str, str]) -> str:
    return f"{{{', '.join(f'{key!r}: {value}' for key, value in items.items())}}}"


class Asked:
    """The functions for numbers, made when they were asked for so often that compiling them pays."""

    def __init__(self, engine: Engine, keys: tuple[str, ...], length: int) -> None:
        self.engine, self.keys, self.length, self.times = engine, keys, length, 0
        self.found: Few | None = None

    def __call__(self) -> Few | None:
        if self.times < OFTEN:
            self.times += 1
            if self.times == OFTEN:
                self.found = self._made()
        return self.found

    def _made(self) -> Few | None:
        """The functions, which accumulators of one form share; None where there are none."""
        program, params = self.engine.program, self.engine.params
        known = {key: _number(x, program.real) for key, x in params.items() if key not in self.keys}
        kind = self.keys, self.length, *((key, type(x), x) for key, x in known.items())
        found: dict[Any, Few | None] = program.for_numbers
        if kind not in found:
            if len(found) >= KINDS:
                found.clear()
            try:
                found[kind] = Few(program, self.keys, known, self.length)
            except Unsupported:
                found[kind] = None
        return found[kind]


def _lists(program: Program) -> frozenset[str]:
    """The parts that are lists of a top-k. Raises: Unsupported where others are no single numbers."""
    slots = program.plan.slots
    lists = frozenset(part for s in slots if s.kind.startswith("topk") for part in s.parts)
    rows = [part for s in slots for i, part in enumerate(s.parts) if s.leaf(i).attr.axes and part not in lists]
    if rows or any(a.axes for a in program.plan.anchors):
        raise Unsupported("rows")
    if len(program.axis) != 1 or program.real not in (np.float64, np.float32) or not slots:
        raise Unsupported("composite axes, other dtypes")
    return lists


def _number(x: Any, real: np.dtype) -> Any:
    """A parameter as a number."""
    if isinstance(x, np.ndarray):
        if x.ndim or x.dtype != real:
            return None
        return x[()] if real == np.float32 else x.item()
    return x
