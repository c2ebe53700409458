"""The largest of elements that lie side by side in memory, and where a number lies among them: vectors written out.

LLVM makes vectors of a loop that looks for a maximum, with a scalar loop for what its vectors leave; a search that ends
where it finds something it leaves as it is. Here what is left over is a vector that overlaps the one before (what is
seen twice changes neither a maximum nor the first place), and one test tells whether any of several vectors has a hit.

NaN is the largest and the smallest of all, and the first NaN is where it lies; of equal numbers it is the first.

>>> OPERATIONS["largest_float16"].takes, OPERATIONS["place_float16"].takes
(('*u16', 'i64', 'i64'), ('*u16', 'i64', 'i64', 'f32'))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from redalg.kernels.cpu.math.formats import HALVES
from redalg.kernels.cpu.math.values import HALF, KINDS, Operation

WIDTH = 64  # bytes of the numbers of a vector: one or two registers of every processor's
TOGETHER = 4  # vectors that are looked at between two tests
APART = range(2, 8)  # steps between elements that are read by whole vectors, of which the others are left out
CELLS = {"float32": ("f32", "f32"), "float64": ("f64", "f64"), "int64": ("i64", "i64"), "bfloat16": ("u16", "f32")}
CELLS |= {"float16": ("u16", "f32")} if HALVES else {}  # what memory holds, and the numbers that are compared
LOWEST = -(2**63)
I1, I32, I64 = ir.IntType(1), ir.IntType(32), ir.IntType(64)
Each = Callable[[Any, Sequence[Any]], None]  # what is done with an index, and with vectors or numbers from there on


def shuffles(places: Sequence[tuple[int, int]], lanes: int) -> list[tuple[int, list[int]]]:
    """How a vector is put together of lanes of several others, each named by the number of its vector and its own:
    vectors that come in turn, and of each the lanes of what there is so far (of the first vector, at first) and, from
    `lanes` on, its own.

    >>> shuffles([(0, 0), (0, 3), (1, 2), (2, 1)], 4)
    [(1, [0, 3, 6, 3]), (2, [0, 1, 2, 5])]
    """
    first, *others = sorted({v for v, _ in places})
    found: list[tuple[int, list[int]]] = []
    for v in others:
        so_far = [at if found or source != first else lane for at, (source, lane) in enumerate(places)]
        found.append((v, [lanes + lane if w == v else at for at, (w, lane) in zip(so_far, places, strict=True)]))
    return found


def widened(b: Any, dtype: str, value: Any, lanes: int) -> Any:
    """Numbers of a narrow format in float32; one, or a vector of so many."""

    def several(kind: Any) -> Any:
        return kind if lanes == 1 else ir.VectorType(kind, lanes)

    if dtype == "float16":
        return b.fpext(b.bitcast(value, several(HALF)), several(ir.FloatType()))
    if dtype == "bfloat16":
        word, shift = several(I32), 16 if lanes == 1 else [16] * lanes
        return b.bitcast(b.shl(b.zext(value, word), ir.Constant(word, shift)), several(ir.FloatType()))
    return value


class Lanes:
    """Elements of one format, several at a time."""

    def __init__(self, b: Any, dtype: str, pointer: Any, index: Any, count: Any) -> None:
        self.b, self.dtype, self.count = b, dtype, count
        self.cell, kind = CELLS[dtype]
        self.number, self.real = KINDS[kind], kind != "i64"
        self.lanes = WIDTH // (4 if kind == "f32" else 8)
        self.first = b.gep(pointer, [index])
        self.bytes, self.wide = (int(word[1:]) // 8 for word in (self.cell, kind))

    @property
    def vector(self) -> Any:
        return ir.VectorType(self.number, self.lanes)

    def splat(self, value: Any) -> Any:
        one = self.b.insert_element(ir.Constant(self.vector, None), value, I32(0))
        return self.b.shuffle_vector(one, one, ir.Constant(ir.VectorType(I32, self.lanes), [0] * self.lanes))

    def number_at(self, at: Any) -> Any:
        return self._widened(self.b.load(self.b.gep(self.first, [at])), 1)

    def vector_at(self, at: Any) -> Any:
        return self._widened(self._cells_at(at))

    def vector_of(self, at: Any, step: int, skipped: int) -> Any:
        """Every so manieth of the elements of whole vectors from one on, of which so many are skipped at first."""
        cells = [self._cells_at(self.b.add(at, I64(v * self.lanes))) for v in range(step)]
        found = cells[0]
        for v, masks in shuffles([divmod(skipped + lane * step, self.lanes) for lane in range(self.lanes)], self.lanes):
            words = ir.Constant(ir.VectorType(I32, self.lanes), masks)
            found = self.b.shuffle_vector(found, cells[v], words)
        return self._widened(found)

    def _cells_at(self, at: Any) -> Any:
        cells = ir.VectorType(KINDS[self.cell], self.lanes).as_pointer()
        return self.b.load(self.b.bitcast(self.b.gep(self.first, [at]), cells), align=self.bytes)

    def _widened(self, value: Any, lanes: int = 0) -> Any:
        return widened(self.b, self.dtype, value, lanes or self.lanes)

    # --- walks -------------------------------------------------------------------------------------------------------

    def walk(self, group: Each, one: Each, single: Each) -> None:
        """TOGETHER vectors at a time, then one by one, then one that ends with the last element; where there are fewer
        elements than a vector holds, one by one."""
        b, lanes = self.b, I64(self.lanes)
        few = b.icmp_signed("<", self.count, lanes)
        with b.if_else(few) as (short, long):
            with short:
                self.loop(I64(0), 1, lambda at: single(at, [self.number_at(at)]))
            with long:
                at = self.loop(I64(0), TOGETHER * self.lanes, lambda at: group(at, self._vectors(at, TOGETHER)))
                at = self.loop(at, self.lanes, lambda at: one(at, self._vectors(at, 1)))
                with b.if_then(b.icmp_signed("<", at, self.count)):
                    last = b.sub(self.count, lanes)
                    one(last, self._vectors(last, 1))

    def _vectors(self, at: Any, count: int) -> list[Any]:
        return [self.vector_at(self.b.add(at, I64(n * self.lanes))) for n in range(count)]

    def loop(self, start: Any, step: int, body: Callable[[Any], None]) -> Any:
        """Turns for `step` elements each, as long as there are so many; where they end."""
        b, before = self.b, self.b.block
        head, turn, after = (b.append_basic_block(word) for word in ("some", "turn", "after"))
        b.branch(head)
        b.position_at_end(head)
        at = b.phi(I64)
        at.add_incoming(start, before)
        following = b.add(at, I64(step), flags=["nsw"])
        b.cbranch(b.icmp_signed("<=", following, self.count), turn, after)
        b.position_at_end(turn)
        body(at)
        at.add_incoming(following, b.block)
        b.branch(head)
        b.position_at_end(after)
        return at

    # --- what is done with vectors -----------------------------------------------------------------------------------

    def reduced(self, word: str, value: Any, flags: Sequence[str] = ()) -> Any:
        """All lanes of a vector as one."""
        kind = value.type.element
        letter = {ir.FloatType(): "f32", ir.DoubleType(): "f64"}.get(kind) or f"i{kind.width}"
        name = f"llvm.vector.reduce.{word}.v{value.type.count}{letter}"
        callee = self.b.module.globals.get(name)
        if callee is None:
            callee = ir.Function(self.b.module, ir.FunctionType(kind, [value.type]), name)
        return self.b.call(callee, [value], fastmath=flags)

    def further(self, relation: str, x: Any, best: Any) -> Any:
        """The second number, unless the relation holds for the first: NaN is never taken."""
        b = self.b
        holds = b.fcmp_ordered(relation, x, best) if self.real else b.icmp_signed(relation, x, best)
        return b.select(holds, x, best)


def _variable(b: Any, value: Any) -> Any:
    with b.goto_entry_block():
        place = b.alloca(value.type)
    b.store(value, place)
    return place


def _end(dtype: str, way: str) -> Operation:
    """``largest_…(pointer, index, count)``: NaN if there is one; of no elements what all others are further than.

    One instruction compares and chooses, and gives the second number where the first is NaN; whether there was one is
    noted beside it, of two vectors at a time.
    """
    relation, end, short = (">", -1.0, "max") if way == "largest" else ("<", 1.0, "min")

    def emit(b: Any, pointer: Any, index: Any, count: Any) -> Any:
        x = Lanes(b, dtype, pointer, index, count)
        least = end * math.inf if x.real else LOWEST if relation == ">" else -LOWEST - 1
        bests = [_variable(b, ir.Constant(x.vector, [least] * x.lanes)) for _ in range(TOGETHER)]
        single = _variable(b, ir.Constant(x.number, least))
        word = ir.VectorType(ir.IntType(8 * WIDTH // x.lanes), x.lanes)
        strange = _variable(b, ir.Constant(word, [0] * x.lanes))
        alone = _variable(b, I1(0))

        def several(at: Any, values: Sequence[Any]) -> None:
            for place, value in zip(bests, values, strict=False):
                b.store(x.further(relation, value, b.load(place)), place)
            for pair in zip(values[::2], values[1::2] or values, strict=True) if x.real else ():
                b.store(b.or_(b.load(strange), b.sext(b.fcmp_unordered("uno", *pair), word)), strange)

        def one(at: Any, values: Sequence[Any]) -> None:
            b.store(x.further(relation, values[0], b.load(single)), single)
            if x.real:
                b.store(b.or_(b.load(alone), b.fcmp_unordered("uno", values[0], values[0])), alone)

        x.walk(several, several, one)
        all_of = b.load(bests[0])
        for place in bests[1:]:
            all_of = x.further(relation, b.load(place), all_of)
        found = x.reduced(f"f{short}" if x.real else f"s{short}", all_of, ("nnan", "nsz") if x.real else ())
        found = x.further(relation, b.load(single), found)
        if not x.real:
            return found
        some = b.or_(b.load(alone), b.icmp_unsigned("!=", x.reduced("or", b.load(strange)), word.element(0)))
        return b.select(some, ir.Constant(x.number, math.nan), found)

    cell, kind = CELLS[dtype]
    return Operation((f"*{cell}", "i64", "i64"), kind, emit, apart=True)


def _place(dtype: str) -> Operation:
    """``place_…(pointer, index, count, value)``: the first of so many elements that is a value, or NaN if that is; the
    number of elements where there is none."""

    def emit(b: Any, pointer: Any, index: Any, count: Any, value: Any) -> Any:
        x = Lanes(b, dtype, pointer, index, count)
        found, done = _variable(b, count), b.append_basic_block("found")
        wanted = x.splat(value)

        def looked(hit: Callable[[Any, Any], Any]) -> None:
            def several(at: Any, values: Sequence[Any]) -> None:
                hits = [hit(v, wanted) for v in values]
                any_of = hits[0]
                for h in hits[1:]:
                    any_of = b.or_(any_of, h)
                with b.if_then(x.reduced("or", any_of), likely=False):
                    bits = I64(0)
                    for n, h in enumerate(hits):
                        own = b.zext(b.bitcast(h, ir.IntType(x.lanes)), I64)
                        bits = b.or_(bits, b.shl(own, I64(n * x.lanes)))
                    count_zeros = b.module.declare_intrinsic("llvm.cttz", [I64], ir.FunctionType(I64, [I64, I1]))
                    b.store(b.add(at, b.call(count_zeros, [bits, I1(1)])), found)
                    b.branch(done)
                    b.position_at_end(b.append_basic_block("never"))

            def one(at: Any, values: Sequence[Any]) -> None:
                with b.if_then(hit(values[0], value), likely=False):
                    b.store(at, found)
                    b.branch(done)
                    b.position_at_end(b.append_basic_block("never"))

            x.walk(several, several, one)

        if x.real:
            with b.if_else(b.fcmp_ordered("ord", value, value), likely=True) as (number, strange):
                with number:
                    looked(lambda v, w: b.fcmp_ordered("==", v, w))
                with strange:
                    looked(lambda v, w: b.fcmp_unordered("uno", v, v))
        else:
            looked(lambda v, w: b.icmp_signed("==", v, w))
        b.branch(done)
        b.position_at_end(done)
        return b.load(found)

    cell, kind = CELLS[dtype]
    return Operation((f"*{cell}", "i64", "i64", kind), "i64", emit, apart=True)


def _every(dtype: str) -> Operation:
    """``every_…(pointer, index, step, buffer, count)``: every so manieth of the elements from an index on, to a buffer.

    Vectors are read from where lines of the caches begin: others take twice as long. How many elements are read alone
    until then, and how many of the first vector are left out, follows from the address: as step·t ≡ skipped - lane
    has a solution t for some `skipped` below gcd(step, lanes). The last element is always read alone, so that a vector
    that is read as a whole ends before one that is there.
    """
    cell, kind = CELLS[dtype]

    def emit(b: Any, pointer: Any, index: Any, step: Any, buffer: Any, count: Any) -> None:
        x, ready = Lanes(b, dtype, pointer, index, count), _variable(b, I64(0))
        lanes, rest = x.lanes, b.append_basic_block("rest")
        lane = b.and_(b.udiv(b.ptrtoint(x.first, I64), I64(x.bytes)), I64(lanes - 1))

        def alone(at: Any) -> None:
            b.store(x.number_at(b.mul(at, step)), b.gep(buffer, [at]))

        def vectors(each: int, skipped: int, start: Any) -> None:
            def turn(at: Any) -> None:
                place = b.bitcast(b.gep(buffer, [at]), x.vector.as_pointer())
                b.store(x.vector_of(b.sub(b.mul(at, I64(each)), I64(skipped)), each, skipped), place, align=x.wide)

            b.store(x.loop(start, lanes, turn), ready)
            b.branch(rest)

        ways = b.switch(step, rest)
        for each in APART:
            common = math.gcd(each, lanes)
            period = lanes // common
            own = b.append_basic_block(f"every{each}")
            ways.add_case(I64(each), own)
            b.position_at_end(own)
            skipped = b.and_(lane, I64(common - 1))
            turns = b.mul(
                b.udiv(b.sub(I64(lanes), b.sub(lane, skipped)), I64(common)), I64(pow(each // common, -1, period))
            )
            turns = b.and_(turns, I64(period - 1))
            before = b.and_(b.icmp_unsigned("==", turns, I64(0)), b.icmp_unsigned("!=", skipped, I64(0)))
            turns = b.select(before, I64(period), turns)
            few = b.icmp_signed("<=", count, turns)
            x.count = b.select(few, count, turns)
            start = x.loop(I64(0), 1, alone)
            x.count = b.sub(count, I64(1))
            kinds = [b.append_basic_block(f"every{each}.{n}") for n in range(common)]
            chosen = b.switch(skipped, kinds[0])
            for n, block in enumerate(kinds):
                if n:
                    chosen.add_case(I64(n), block)
                b.position_at_end(block)
                vectors(each, n, start)
        b.position_at_end(rest)
        x.count = count
        x.loop(b.load(ready), 1, alone)

    return Operation((f"*{cell}", "i64", "i64", f"*{kind}", "i64"), "", emit, apart=True, called=True)


OPERATIONS = {f"{way}_{dtype}": _end(dtype, way) for dtype in CELLS for way in ("largest", "smallest")}
OPERATIONS |= {f"place_{dtype}": _place(dtype) for dtype in CELLS}
OPERATIONS |= {f"every_{dtype}": _every(dtype) for dtype in CELLS}
