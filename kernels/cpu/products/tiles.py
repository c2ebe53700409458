"""Products of matrices on the CPU: C[i,j] = c·Σ_k A[i,k]·B[j,k], with tiles of sums in registers; and sums over pairs
like them, Σ_k f(A[i,k], B[j,k]) (`redalg.kernels.cpu.products.terms`).

The layers around the inner loop are those of Goto and van de Geijn (Anatomy of High-Performance Matrix Multiplication,
2008): B is packed in panels of as many columns as a tile has, so that its vectors are read one after the other; a block
of rows and terms of A stays in the second-level cache while a panel's terms are in the first: as it lies where terms
are neighbours in memory, else packed, too, since lines of memory a power of two apart have few places in caches. Sums
are kept in the type of the operands; every one adds its terms in their order, by fused multiplications and additions,
so that it does not depend on where it lies in a tile, on blocks, or on threads.

Two functions in LLVM's language, compiled for this processor (`redalg.kernels.cpu.build.loaded_text`): one packs
panels `low` to `high`, the other computes units `low` to `high`, each a block of rows by some panels.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir

from redalg.kernels.code.processor import processor
from redalg.kernels.cpu import pool
from redalg.kernels.cpu.build import SHAPE, loaded_text
from redalg.kernels.cpu.products.terms import PRODUCT, Printed, Term
from redalg.kernels.cpu.threads import share, threads

WORDS = (
    "a b p c a_batch a_row a_term b_batch b_column b_term c_batch c_row c_column "
    "rows columns terms panels row_blocks chunks chunk factor"
).split()
TERMS = 384  # of a panel that are multiplied at a time: with a tile's columns they fill the first-level cache
TURNED = 64  # terms of a panel that are packed at a time, where they are neighbours in memory and columns are not
TILES = 8  # of rows in a block
UNITS = 256  # of a product, where there is enough to share out among threads
PACKED_UNITS = 32  # where each packs its rows
SHARE = 1 << 21  # terms that are worth waking a thread
SHORT = 3  # operations of a term whose values take no more than a register
I64, I32, I8 = ir.IntType(64), ir.IntType(32), ir.IntType(8)


class Tile(NamedTuple):
    """Rows of a tile, vectors beside each other in it, numbers in a vector."""

    rows: int
    vectors: int
    lanes: int

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes


@lru_cache(maxsize=8)
def tile_of(itemsize: int, short: bool = True) -> Tile:
    """As many sums as there are registers beside those for a row of B and a number of A, and, where a term is not
    `short`, for what is calculated of them."""
    features = {word for word in processor().features.split(",") if word.startswith("+")}
    if "+avx512f" in features:
        return Tile(12 if short else 8, 2, 64 // itemsize)
    return Tile(6 if short else 4, 2, (32 if "+avx2" in features else 16) // itemsize)


def tile_for(itemsize: int, term: Term) -> Tile:
    """The tile of sums of such terms."""
    return tile_of(itemsize, term.steps <= SHORT)


@dataclass(frozen=True)
class Shape:
    """Lengths, and strides in elements: of A along batches, rows and terms, of B along batches, columns and terms, of C
    along batches, rows and columns."""

    batches: int
    rows: int
    columns: int
    terms: int
    a: tuple[int, int, int]
    b: tuple[int, int, int]
    c: tuple[int, int, int]


class Product:
    """A product of one shape, or a sum of other terms."""

    def __init__(self, shape: Shape, dtype: np.dtype, factor: float = 1.0, term: Term = PRODUCT) -> None:
        self.shape, self.dtype, self.term, tile = shape, dtype, term, tile_for(dtype.itemsize, term)
        self._pack, self._multiply = _functions(dtype.itemsize, term)
        self.panels = -(-shape.columns // tile.columns)
        self.row_blocks = -(-shape.rows // (tile.rows * TILES))
        work = shape.batches * shape.rows * shape.columns * shape.terms
        self._workers = max(1, min(work // SHARE, 1 << 16))
        units = UNITS if shape.a[2] == 1 else PACKED_UNITS
        wanted = -(-units // (shape.batches * self.row_blocks))
        self.chunk = max(1, -(-self.panels // min(wanted, self.panels)))
        self.chunks = -(-self.panels // self.chunk)
        words = (*shape.a, *shape.b, *shape.c, shape.rows, shape.columns, shape.terms)
        counts = (self.panels, self.row_blocks, self.chunks, self.chunk)
        bits = struct.unpack("<q", struct.pack("<d", factor))
        self._tail = struct.pack(f"<{len(WORDS) - 4}q", *words, *counts, *bits)
        self._packed = shape.batches * self.panels * tile.columns * shape.terms

    def __call__(self, a: int, b: int, c: int) -> None:
        """Compute what lies at these addresses."""
        held = np.empty(self._packed + 64 // self.dtype.itemsize, self.dtype)
        at = -(-held.ctypes.data // 64) * 64
        table = struct.pack("<4q", a, b, at, c) + self._tail
        self._run(self._pack, table, self.shape.batches * self.panels)
        self._run(self._multiply, table, self.shape.batches * self.row_blocks * self.chunks)

    def _run(self, function: _Function, table: bytes, total: int) -> None:
        there = threads() if self._workers > 1 else 1
        workers = min(there, self._workers, total)
        if workers <= 1:
            function.call(table, 0, total)
        elif pool.available():
            pool.pool_of(there).share(function.job, table, total, workers)
        else:
            share(total, workers, lambda low, high: function.call(table, low, high))


class _Function:
    def __init__(self, address: int) -> None:
        self.call, self.job = SHAPE(address), pool.Job([(address, 1)], False)


@lru_cache(maxsize=256)
def _functions(itemsize: int, term: Term) -> tuple[_Function, _Function]:
    names = _names(itemsize, term)
    found = loaded_text(text_of(itemsize, term), names)
    return _Function(found[names[0]]), _Function(found[names[1]])


def _names(itemsize: int, term: Term) -> tuple[str, str]:
    mark = "" if term == PRODUCT else f"_{sha256(str(term).encode()).hexdigest()[:16]}"
    return f"redalg_pack_{8 * itemsize}{mark}", f"redalg_multiply_{8 * itemsize}{mark}"


# --- in LLVM's language ----------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def text_of(itemsize: int, term: Term = PRODUCT) -> str:
    """Both functions, for numbers of so many bytes."""
    module = ir.Module(name="product")
    kind = ir.FunctionType(I32, (I8.as_pointer(), I64, I64))
    pack, multiply = (ir.Function(module, kind, name) for name in _names(itemsize, term))
    _Pack(pack, tile_for(itemsize, term), itemsize).whole()
    _Multiply(multiply, tile_for(itemsize, term), itemsize, term).whole()
    text = str(module)
    return "\n".join(line for line in text.splitlines() if not line.startswith("target "))


class _Printer(ABC):
    """What both functions are printed by: their words, and loops."""

    def __init__(self, function: Any, tile: Tile, itemsize: int) -> None:
        self.function, self.tile = function, tile
        self.real = ir.FloatType() if itemsize == 4 else ir.DoubleType()
        self.vector = ir.VectorType(self.real, tile.lanes)
        self.b = ir.IRBuilder(function.append_basic_block("entry"))
        table = self.b.bitcast(function.args[0], I64.as_pointer())
        self.w = {name: self.b.load(self.b.gep(table, [I64(i)])) for i, name in enumerate(WORDS)}

    def whole(self) -> None:
        with _loop(self.b, self.function.args[1], self.function.args[2]) as unit:
            self.unit(unit)
        self.b.ret(I32(0))

    @abstractmethod
    def unit(self, unit: Any) -> None:
        """What is done for one unit."""

    def array(self, name: str) -> Any:
        return self.b.inttoptr(self.w[name], self.real.as_pointer())

    def at(self, pointer: Any, *terms: tuple[Any, Any] | Any) -> Any:
        """The address of an element: products of indices and strides, added."""
        total: Any = None
        for t in terms:
            value = self.b.mul(*t) if isinstance(t, tuple) else t
            total = value if total is None else self.b.add(total, value)
        return self.b.gep(pointer, [total])

    def least(self, x: Any, y: Any) -> Any:
        return self.b.select(self.b.icmp_signed("<", x, y), x, y)

    def align(self, own: bool) -> int:
        return 64 if own else 4 if self.real == ir.FloatType() else 8

    def vectors(self, pointer: Any) -> Any:
        return self.b.bitcast(pointer, self.vector.as_pointer())


class _Pack(_Printer):
    """A panel of B: its columns side by side for every term, zeros behind the last one."""

    def unit(self, unit: Any) -> None:
        b, w, columns = self.b, self.w, I64(self.tile.columns)
        batch, panel = b.sdiv(unit, w["panels"]), b.srem(unit, w["panels"])
        source = self.at(self.array("b"), (batch, w["b_batch"]))
        target = self.at(self.array("p"), (b.mul(unit, w["terms"]), columns))
        first = b.mul(panel, columns)
        whole = b.icmp_signed("<=", b.add(first, columns), w["columns"])
        with b.if_else(b.and_(whole, b.icmp_signed("==", w["b_column"], I64(1)))) as (lines, single):
            with lines, _loop(b, I64(0), w["terms"]) as k:
                for v in range(self.tile.vectors):
                    one = I64(v * self.tile.lanes)
                    here = self.vectors(self.at(source, first, one, (k, w["b_term"])))
                    there = self.vectors(self.at(target, (k, columns), one))
                    b.store(b.load(here, align=self.align(False)), there, align=self.align(False))
            with single:
                self._singly(source, target, first)

    def _singly(self, source: Any, target: Any, first: Any) -> None:
        """Number by number: terms that are neighbours in memory a few at a time."""
        b, w, columns = self.b, self.w, I64(self.tile.columns)
        lying = b.icmp_signed("==", w["b_term"], I64(1))
        with b.if_else(lying) as (along, across):
            with along, _loop(b, I64(0), w["terms"], TURNED) as begin:
                end = self.least(b.add(begin, I64(TURNED)), w["terms"])
                with _loop(b, I64(0), columns) as j, _loop(b, begin, end) as k:
                    self._one(source, target, first, j, k)
            with across, _loop(b, I64(0), w["terms"]) as k, _loop(b, I64(0), columns) as j:
                self._one(source, target, first, j, k)

    def _one(self, source: Any, target: Any, first: Any, j: Any, k: Any) -> None:
        b, w = self.b, self.w
        column = b.add(first, j)
        there = b.icmp_signed("<", column, w["columns"])
        found = b.load(self.at(source, (b.select(there, column, first), w["b_column"]), (k, w["b_term"])))
        b.store(b.select(there, found, self.real(0.0)), self.at(target, (k, I64(self.tile.columns)), j))


class _Multiply(_Printer):
    """A block of rows by a chunk of panels."""

    def __init__(self, function: Any, tile: Tile, itemsize: int, term: Term) -> None:
        super().__init__(function, tile, itemsize)
        self.term, self.printed = term, Printed(self.b, self.vector, function.module)
        self.held = self.b.alloca(self.vector, tile.rows * tile.vectors)  # a tile on its way from or to C
        self.held.align = 64
        self.rows = self.b.alloca(self.real, TILES * tile.rows * TERMS)  # a block of A, tile by tile, term by term
        self.rows.align = 64
        self.packs = self.b.icmp_signed("!=", self.w["a_term"], I64(1))

    def unit(self, unit: Any) -> None:
        b, w, tile = self.b, self.w, self.tile
        chunk, rest = b.srem(unit, w["chunks"]), b.sdiv(unit, w["chunks"])
        block, batch = b.srem(rest, w["row_blocks"]), b.sdiv(rest, w["row_blocks"])
        first = b.mul(block, I64(tile.rows * TILES))
        last = self.least(b.add(first, I64(tile.rows * TILES)), w["rows"])
        low = b.mul(chunk, w["chunk"])
        high = self.least(b.add(low, w["chunk"]), w["panels"])
        a = self.at(self.array("a"), (batch, w["a_batch"]))
        c = self.at(self.array("c"), (batch, w["c_batch"]))
        with _loop(b, I64(0), w["terms"], TERMS) as k:
            count = self.least(I64(TERMS), b.sub(w["terms"], k))
            with b.if_then(self.packs):
                self._packed(a, first, last, k, count)
            with _loop(b, low, high) as panel:
                place = b.add(b.mul(b.add(b.mul(batch, w["panels"]), panel), w["terms"]), k)
                p = self.at(self.array("p"), (place, I64(tile.columns)))
                with _loop(b, first, last, tile.rows) as row:
                    self._tile(a, c, p, first, row, b.mul(panel, I64(tile.columns)), k, count)

    def _packed(self, a: Any, first: Any, last: Any, k: Any, count: Any) -> None:
        """A block of A: the rows of a tile side by side for every term; those behind the last one repeat it."""
        b, w, tile = self.b, self.w, self.tile
        line = ir.VectorType(self.real, tile.rows).as_pointer()
        with _loop(b, first, last, tile.rows) as row:
            target = self.at(self.rows, (b.sub(row, first), I64(TERMS)))
            whole = b.icmp_signed("<=", b.add(row, I64(tile.rows)), w["rows"])
            lying = b.and_(whole, b.icmp_signed("==", w["a_row"], I64(1)))
            with _loop(b, I64(0), count) as t, b.if_else(lying) as (together, single):
                with together:
                    source = self.at(a, row, (b.add(k, t), w["a_term"]))
                    value = b.load(b.bitcast(source, line), align=self.align(False))
                    b.store(value, b.bitcast(self.at(target, (t, I64(tile.rows))), line), align=self.align(False))
                with single, _loop(b, I64(0), I64(tile.rows)) as r:
                    mine = self.least(b.add(row, r), b.sub(w["rows"], I64(1)))
                    value = b.load(self.at(a, (mine, w["a_row"]), (b.add(k, t), w["a_term"])))
                    b.store(value, self.at(target, (t, I64(tile.rows)), r))

    def _tile(self, a: Any, c: Any, p: Any, first: Any, row: Any, column: Any, k: Any, count: Any) -> None:
        b, w, tile = self.b, self.w, self.tile
        live = self.least(b.sub(w["rows"], row), I64(tile.rows))
        own = self.least(b.sub(w["columns"], column), I64(tile.columns))
        corner = self.at(c, (row, w["c_row"]), (column, w["c_column"]))
        lying = b.and_(b.icmp_signed("==", w["c_column"], I64(1)), b.icmp_signed("==", own, I64(tile.columns)))
        zero = ir.Constant(self.vector, None)
        with b.if_else(b.icmp_signed("==", k, I64(0))) as (begun, on):
            with begun, _loop(b, I64(0), I64(tile.rows * tile.vectors)) as i:
                b.store(zero, b.gep(self.held, [i]))
            with on:
                self._moved(corner, live, own, lying, False)
        self._summed(a, p, first, row, k, count)
        ended = b.icmp_signed("==", b.add(k, count), w["terms"])
        with b.if_then(ended):
            factor = b.bitcast(w["factor"], ir.DoubleType())
            factor = b.fptrunc(factor, self.real) if self.real != ir.DoubleType() else factor
            scale = self._spread(factor)
            with _loop(b, I64(0), I64(tile.rows * tile.vectors)) as i:
                cell = b.gep(self.held, [i])
                b.store(b.fmul(b.load(cell), scale), cell)
        self._moved(corner, live, own, lying, True)

    def _spread(self, x: Any) -> Any:
        one = self.b.insert_element(ir.Constant(self.vector, ir.Undefined), x, I32(0))
        mask = ir.Constant(ir.VectorType(I32, self.tile.lanes), None)
        return self.b.shuffle_vector(one, ir.Constant(self.vector, ir.Undefined), mask)

    def _moved(self, corner: Any, live: Any, own: Any, lying: Any, out: bool) -> None:
        """The tile to C, or what C has of it from there: by vectors where columns are neighbours, else one by one."""
        b, w, tile = self.b, self.w, self.tile
        cells = b.bitcast(self.held, self.real.as_pointer())
        with _loop(b, I64(0), live) as r, b.if_else(lying) as (whole, single):
            with whole:
                for v in range(tile.vectors):
                    there = self.vectors(b.gep(self.at(corner, (r, w["c_row"])), [I64(v * tile.lanes)]))
                    here = b.gep(self.held, [b.add(b.mul(r, I64(tile.vectors)), I64(v))])
                    source, target = (here, there) if out else (there, here)
                    b.store(b.load(source, align=self.align(out)), target, align=self.align(not out))
            with single, _loop(b, I64(0), own) as j:
                there = self.at(corner, (r, w["c_row"]), (j, w["c_column"]))
                here = self.at(cells, (r, I64(tile.columns)), j)
                source, target = (here, there) if out else (there, here)
                b.store(b.load(source), target)

    def _summed(self, a: Any, p: Any, first: Any, row: Any, k: Any, count: Any) -> None:
        """The inner loop: a number of every row and a line of the panel, for `count` terms."""
        b, w, tile = self.b, self.w, self.tile
        limit = b.sub(w["rows"], I64(1))
        lines = []
        for r in range(tile.rows):
            mine = self.least(b.add(row, I64(r)), limit)  # rows behind the last one repeat it, and are not kept
            there = self.at(a, (mine, w["a_row"]), (k, w["a_term"]))
            lines.append(b.select(self.packs, self.at(self.rows, (b.sub(row, first), I64(TERMS)), I64(r)), there))
        stride = b.select(self.packs, I64(tile.rows), w["a_term"])
        cells = [(r, v) for r in range(tile.rows) for v in range(tile.vectors)]
        begun = [b.load(b.gep(self.held, [I64(r * tile.vectors + v)]), align=64) for r, v in cells]
        before = b.block
        body, after = self.function.append_basic_block("terms"), self.function.append_basic_block("summed")
        b.branch(body)
        b.position_at_end(body)
        turn = b.phi(I64)
        turn.add_incoming(I64(0), before)
        sums = []
        for x in begun:
            phi = b.phi(self.vector)
            phi.add_incoming(x, before)
            sums.append(phi)
        line = b.mul(turn, I64(tile.columns))
        right = [
            b.load(self.vectors(b.gep(p, [b.add(line, I64(v * tile.lanes))])), align=16) for v in range(tile.vectors)
        ]
        step = b.mul(turn, stride)
        made = []
        for r in range(tile.rows):
            left = self._spread(b.load(b.gep(lines[r], [step])))
            own = sums[r * tile.vectors : (r + 1) * tile.vectors]
            made += [self.printed.added(self.term, left, *pair) for pair in zip(right, own, strict=True)]
        following = b.add(turn, I64(1))
        turn.add_incoming(following, body)
        for phi, x in zip(sums, made, strict=True):
            phi.add_incoming(x, body)
        b.cbranch(b.icmp_signed("<", following, count), body, after)
        b.position_at_end(after)
        for (r, v), x in zip(cells, made, strict=True):
            b.store(x, b.gep(self.held, [I64(r * tile.vectors + v)]), align=64)


class _loop:
    """``for i in range(start, stop, step)`` around what is printed inside."""

    def __init__(self, b: Any, start: Any, stop: Any, step: int = 1) -> None:
        self.b, self.start, self.stop, self.step = b, start, stop, step

    def __enter__(self) -> Any:
        b, function = self.b, self.b.function
        self.head, body = function.append_basic_block("head"), function.append_basic_block("body")
        self.end = function.append_basic_block("end")
        before = b.block
        b.branch(self.head)
        b.position_at_end(self.head)
        self.index = b.phi(I64)
        self.index.add_incoming(self.start, before)
        b.cbranch(b.icmp_signed("<", self.index, self.stop), body, self.end)
        b.position_at_end(body)
        return self.index

    def __exit__(self, *why: object) -> None:
        b = self.b
        self.index.add_incoming(b.add(self.index, I64(self.step)), b.block)
        b.branch(self.head)
        b.position_at_end(self.end)
