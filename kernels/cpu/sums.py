"""Loops that add up numbers, as vectors written out: `redalg.kernels.cpu.translate` asks for them.

LLVM makes vectors of such a loop that begin wherever a row does, and adds up lanes twice: those of whole vectors, and
those of what they leave. Here loads begin at lines of the caches, elements are asked for a little ahead, and lanes are
added up once. What is added to what follows from the numbers of elements, not from where a row lies in memory: where
loads begin before the row does, partial sums lie in other lanes, from which they are turned back in the end.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llvmlite import ir

from redalg.kernels.cpu.math.formats import HALVES
from redalg.kernels.cpu.math.values import KINDS
from redalg.kernels.cpu.math.vectors import widened

if TYPE_CHECKING:
    from redalg.kernels.cpu.translate import Translation

LINE = 64  # bytes of a cache line, and of a vector of numbers
GROUP = 4  # vectors that are added to sums of their own
ALIGNED = 256  # elements of a row from which on loads begin at lines
AHEAD = 8192
LOADS = {"load_float32": "f32", "load_float64": "f64", "load_bfloat16": "f32"}
CELLS = {"load_float32": 4, "load_float64": 8, "load_bfloat16": 2, "load_float16": 2}  # bytes
OPERATORS = (ast.Add, ast.Sub, ast.Mult)
I1, I8, I32, I64 = (ir.IntType(n) for n in (1, 8, 32, 64))
if HALVES:
    LOADS["load_float16"] = "f32"


class Shape:
    """What the statements of a loop's body are: numbers of elements, values of them, and sums of those.

    `kind`: of all numbers; "" where the body has anything else.
    """

    def __init__(self, t: Translation, s: ast.For) -> None:
        self.t, self.loads = t, list[ast.Call]()
        assert isinstance(s.target, ast.Name)
        self.steps: dict[str, int] = {s.target.id: 1}  # of integers, from one turn to the next
        self.places: list[ast.Assign] = []  # that compute them
        self.values: dict[str, str] = {}  # numbers of an element, by their kinds
        self.body: list[ast.Assign] = []
        self.sums: list[str] = []
        kinds = {self._statement(x) for x in s.body}
        self.kind = (kinds - {"place"}).pop() if len(kinds - {"place"}) == 1 and self.loads and self.sums else ""

    def _statement(self, s: ast.stmt) -> str:
        """The kind of what a statement computes, "place" of an integer; "" of what is neither."""
        if not (isinstance(s, ast.Assign) and len(s.targets) == 1 and isinstance(s.targets[0], ast.Name)):
            return ""
        name = s.targets[0].id
        step = self.step(s.value)
        if step is not None:
            self.steps[name] = step
            self.places.append(s)
            return "place"
        self.body.append(s)
        if name not in self._read(s.value):
            found = self.values[name] = self.number(s.value)
            return found
        self.sums.append(name)
        own = self.t.scope.variables.get(name)
        added = s.value.right if isinstance(s.value, ast.BinOp) else s.value
        return own.kind if own is not None and own.kind == self.number(added) else ""

    def _read(self, e: ast.expr) -> set[str]:
        return {n.id for n in ast.walk(e) if isinstance(n, ast.Name)}

    def step(self, e: ast.expr) -> int | None:
        """By how much an integer grows from one turn to the next, where that is known."""
        if isinstance(e, ast.Constant):
            return 0 if type(e.value) is int else None
        if isinstance(e, ast.Name):
            return self.steps[e.id] if e.id in self.steps else 0 if self._outer(e.id).startswith("i") else None
        if not isinstance(e, ast.BinOp) or not isinstance(e.op, OPERATORS):
            return None
        a, c = self.step(e.left), self.step(e.right)
        if a is None or c is None or isinstance(e.op, ast.Mult):
            return 0 if a == c == 0 else None
        return a - c if isinstance(e.op, ast.Sub) else a + c

    def _outer(self, name: str) -> str:
        """The kind of what a loop leaves as it is."""
        value = self.t.scope.variables.get(name)
        return value.kind if value is not None and name not in self.values else ""

    def number(self, e: ast.expr) -> str:
        """The kind of a number of an element; "" where it is no such."""
        if isinstance(e, ast.Name):
            return self.values.get(e.id) or self._outer(e.id)
        if isinstance(e, ast.BinOp) and isinstance(e.op, OPERATORS):
            a, c = self.number(e.left), self.number(e.right)
            return a if a == c else ""
        if not isinstance(e, ast.Call) or not isinstance(e.func, ast.Name):
            return ""
        word = self.t.text.operations.get(e.func.id, "")
        if word in LOADS and self.step(e.args[1]) == 1 and isinstance(e.args[0], ast.Name):
            self.loads.append(e)
            return LOADS[word]
        if self.t.text.known(e.func) is abs:
            return self.number(e.args[0])
        plain = len(e.args) == 1 and isinstance(e.args[0], ast.Constant)
        return self.t.value(e).kind if plain and not word else ""


class Sums:
    """One loop over `turns` elements from `start` on."""

    def __init__(self, t: Translation, s: ast.For, shape: Shape, start: Any, turns: Any) -> None:
        self.t, self.b, self.shape, self.turns = t, t.b, shape, turns
        self.lanes = LINE // (4 if shape.kind == "f32" else 8)
        self.vector = ir.VectorType(KINDS[shape.kind], self.lanes)
        before = dict(t.scope.variables)
        t.assign(s.target.id, t.valued("i64", start))
        t.block(shape.places)
        self.firsts = [t.b.gep(t.value(load.args[0]).v, [t.value(load.args[1]).v]) for load in shape.loads]
        t.scope.variables = before
        self.sums = {name: [self._zeros() for _ in range(GROUP)] for name in shape.sums}
        self.walk()

    def _zeros(self) -> Any:
        return self.t.unnamed(self.b, ir.Constant(self.vector, [0.0] * self.lanes))

    def walk(self) -> None:
        """Groups of vectors: the first one masked where it begins before the row, and what is left over."""
        b, group = self.b, I64(self.lanes * GROUP)
        size = CELLS[self._read_by(self.shape.loads[0])]
        address = b.udiv(b.ptrtoint(self.firsts[0], I64), I64(size))
        long = b.icmp_signed(">=", self.turns, I64(ALIGNED))
        skipped = b.select(long, b.and_(address, I64(self.lanes - 1)), I64(0))
        end, apart = b.add(self.turns, skipped), b.icmp_signed("!=", skipped, I64(0))
        self.firsts = [b.gep(first, [b.neg(skipped)]) for first in self.firsts]
        place = self.t.unnamed(b, I64(0))
        with b.if_then(apart):
            self._group(I64(0), [b.icmp_unsigned(">=", self._numbers(0), self._word_of(skipped))])
            b.store(group, place)
        with self.t.repeated(lambda: b.icmp_signed("<=", b.add(b.load(place), group), end)):
            at = b.load(place)
            self._group(at)
            b.store(b.add(at, group), place)
        at = b.load(place)
        with b.if_then(b.icmp_signed("<", at, end)):
            left = self._word_of(b.sub(end, at))
            self._group(at, [b.icmp_unsigned("<", self._numbers(n), left) for n in range(GROUP)])
        with b.if_then(apart):
            self._turn_back(skipped)
        for name, places in self.sums.items():
            self._add_up(name, [b.load(p) for p in places])

    def _read_by(self, load: ast.Call) -> str:
        return self.t.text.operations[ast.unparse(load.func)]

    def _ask_ahead(self, at: Any) -> None:
        b, pointer = self.b, I8.as_pointer()
        shape = ir.FunctionType(ir.VoidType(), [pointer, I32, I32, I32])
        callee = self.b.module.globals.get("llvm.prefetch.p0") or ir.Function(self.b.module, shape, "llvm.prefetch.p0")
        for first, load in zip(self.firsts, self.shape.loads, strict=True):
            size = CELLS[self._read_by(load)]
            for line in range(0, self.lanes * GROUP * size, LINE):
                place = b.gep(first, [b.add(at, I64((AHEAD + line) // size))])
                b.call(callee, [b.bitcast(place, pointer), I32(0), I32(3), I32(1)])

    def _numbers(self, n: int) -> Any:
        """Those that the lanes of a vector have in its group."""
        lanes = ir.VectorType(I32, self.lanes)
        return ir.Constant(lanes, [n * self.lanes + k for k in range(self.lanes)])

    def _word_of(self, number: Any) -> Any:
        """A number of elements of a group, for every lane."""
        return self._splat(self.b.trunc(number, I32), ir.VectorType(I32, self.lanes))

    def _group(self, at: Any, masks: Sequence[Any] = ()) -> None:
        """A group of vectors from an element on, of which the first ones are masked."""
        self._ask_ahead(at)
        for n in range(GROUP):
            self._vector(self.b.add(at, I64(n * self.lanes)), n, masks[n] if n < len(masks) else None)

    def _vector(self, at: Any, number: int, mask: Any) -> None:
        loads = [self._load(*pair, at, mask) for pair in zip(self.shape.loads, self.firsts, strict=True)]
        known: dict[str, Any] = {}
        given = iter(loads)
        for s in self.shape.body:
            assert isinstance(s.targets[0], ast.Name)
            name = s.targets[0].id
            if name not in self.sums:
                known[name] = self._value(s.value, known, given)
                continue
            assert isinstance(s.value, ast.BinOp)
            added = self._value(s.value.right, known, given)
            if mask is not None:
                added = self.b.select(mask, added, ir.Constant(self.vector, [0.0] * self.lanes))
            place = self.sums[name][number]
            self.b.store(self.b.fadd(self.b.load(place), added, flags=self.t.scope.flags), place)

    def _load(self, load: ast.Call, first: Any, at: Any, mask: Any) -> Any:
        b, word = self.b, self._read_by(load)
        cell, size = first.type.pointee, CELLS[word]
        cells = ir.VectorType(cell, self.lanes)
        place = b.bitcast(b.gep(first, [at]), cells.as_pointer())
        if mask is None:
            return widened(b, word.removeprefix("load_"), b.load(place, align=size), self.lanes)
        letter = {ir.FloatType(): "f32", ir.DoubleType(): "f64"}.get(cell) or f"i{cell.width}"
        name, masks = f"llvm.masked.load.v{self.lanes}{letter}.p0", ir.VectorType(I1, self.lanes)
        shape = ir.FunctionType(cells, [cells.as_pointer(), I32, masks, cells])
        callee = b.module.globals.get(name) or ir.Function(b.module, shape, name)
        found = b.call(callee, [place, I32(size), mask, ir.Constant(cells, None)])
        return widened(b, word.removeprefix("load_"), found, self.lanes)

    def _value(self, e: ast.expr, known: dict[str, Any], loads: Any) -> Any:
        """A number of as many elements; loads come in the order in which they are read."""
        if isinstance(e, ast.Name) and e.id in known:
            return known[e.id]
        if isinstance(e, ast.BinOp):
            a, c = self._value(e.left, known, loads), self._value(e.right, known, loads)
            word = {ast.Add: "fadd", ast.Sub: "fsub", ast.Mult: "fmul"}[type(e.op)]
            return getattr(self.b, word)(a, c, flags=self.t.flags_of(type(e.op)))
        if isinstance(e, ast.Call) and self.t.text.operations.get(ast.unparse(e.func)) in LOADS:
            return next(loads)
        if isinstance(e, ast.Call) and self.t.text.known(e.func) is abs:
            x = self._value(e.args[0], known, loads)
            callee = self.b.module.declare_intrinsic("llvm.fabs", [self.vector])
            return self.b.call(callee, [x], fastmath=self.t.scope.flags)
        return self._splat(self.t.value(e).v, self.vector)

    def _splat(self, value: Any, kind: Any) -> Any:
        one = self.b.insert_element(ir.Constant(kind, None), value, I32(0))
        return self.b.shuffle_vector(one, one, ir.Constant(ir.VectorType(I32, kind.count), [0] * kind.count))

    def _turn_back(self, skipped: Any) -> None:
        """Partial sums to the lanes they have where loads begin with the row."""
        b, wide = self.b, self.shape.kind == "f64"
        word = I64 if wide else I32
        lanes = ir.VectorType(word, self.lanes)
        name = f"llvm.x86.avx512.vpermi2var.p{'d' if wide else 's'}.512"
        shape = ir.FunctionType(self.vector, [self.vector, lanes, self.vector])
        callee = b.module.globals.get(name) or ir.Function(b.module, shape, name)
        by = self._splat(skipped if wide else b.trunc(skipped, I32), lanes)
        at = b.add(ir.Constant(lanes, [*range(self.lanes)]), by)
        for places in self.sums.values():
            parts = [b.load(p) for p in places]
            for n, place in enumerate(places):
                b.store(b.call(callee, [parts[n], at, parts[(n + 1) % GROUP]]), place)

    def _add_up(self, name: str, parts: Sequence[Any]) -> None:
        """The sum of all lanes, added to what the variable holds."""
        b, flags = self.b, self.t.scope.flags
        while len(parts) > 1:
            half = len(parts) // 2
            parts = [b.fadd(parts[n], parts[half + n], flags=flags) for n in range(half)]
        letter, kind = self.shape.kind, KINDS[self.shape.kind]
        word = f"llvm.vector.reduce.fadd.v{self.lanes}{letter}"
        shape = ir.FunctionType(kind, [kind, self.vector])
        callee = b.module.globals.get(word) or ir.Function(b.module, shape, word)
        found = b.call(callee, [ir.Constant(kind, -0.0), parts[0]], fastmath=("reassoc",))
        old = self.t.scope.variables[name]
        self.t.assign(name, self.t.valued(old.kind, b.fadd(b.load(old.v), found, flags=flags)))
