"""Tensor cores from compute capability 8.0 on (Ampere, Ada): products of a warp's registers, asynchronous copies.

A warp multiplies 16·tall rows. Its tile is a local array of which element k of a thread lies in row
``lane/4 + 8·(k/2 mod 2·tall)`` and column ``8·(k/(4·tall)) + 2·(lane mod 4) + k mod 2``: with tall = 1, as the
registers of a warpgroup do (`intrinsics_tensor`). The weights it holds, packed in pairs, are the left operand of the
next product. Tiles in shared memory lie row by row, the rows an odd number of 16-byte units apart: eight rows of a
matrix then start in eight different groups of banks, and `ldmatrix` meets no conflict at any column (PTX ISA 9.0,
"mma.sync", "ldmatrix", "cp.async").

Functions that depend on the shape of a tile are made by a call at the head of a generated module: ``tile_product``,
``tile_copy``, ``left_load``, ``cp_async_wait``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from math import gcd
from typing import Any

from llvmlite import ir
from numba import types

from redalg.kernels.code.functions import F32, I32, I64, VOID, Body, function, inline, instruction, lazy
from redalg.kernels.cuda.intrinsics.async_copies import left, sent
from redalg.kernels.cuda.intrinsics.wgmma import MEMORY, _data, _read, _write, shared_address
from redalg.kernels.ir.tensor_cores import STEP, TYPE, UNIT

FOUR, TWO = ir.LiteralStructType([I32] * 4), ir.LiteralStructType([I32] * 2)


# --- products --------------------------------------------------------------------------------------------------------


def matrices(b: Any, address: Any, offset: int, transposed: bool = False, count: int = 4) -> list[Any]:
    """The words of `count` 8 × 8 matrices, whose rows start where the lanes' addresses say."""
    outs, turned = ", ".join(f"${k}" for k in range(count)), ".trans" if transposed else ""
    text = f"ldmatrix.sync.aligned.m8n8.x{count}{turned}.shared.b16 {{{outs}}}, [${count}+{offset}];"
    shape = FOUR if count == 4 else TWO
    made = inline(b, text, ",".join(["=r"] * count + ["r", MEMORY]), shape, [address], effects=True)
    return [b.extract_value(made, k) for k in range(count)]


def multiplied(
    shape: str, kind: str, b: Any, tile: Sequence[Any], left: Sequence[Any], right: Sequence[Any]
) -> list[Any]:
    """One instruction: 16 rows, 8 columns."""
    text = (
        f"mma.sync.aligned.{shape}.row.col.f32.{kind}.{kind}.f32 "
        "{$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13};"
    )
    constraints = ",".join(["=f"] * 4 + ["r"] * 6 + ["f"] * 4)
    made = inline(b, text, constraints, ir.LiteralStructType([F32] * 4), [*left, *right, *tile], effects=True)
    return [b.extract_value(made, k) for k in range(4)]


def tile_product(
    columns: int,
    terms: int,
    dtype: str,
    pitch: int,
    a: str = "registers",
    a_pitch: int = 0,
    fresh: bool = True,
    transposed: bool = False,
    tall: int = 1,
    a_transposed: bool = False,
) -> Any:
    """``product(tile, a, place)``: tile[16·tall, columns] (+)= A[16·tall, terms]·B.

    ``a``: "registers" (a local array of 4·tall words for every 16 terms) or "shared" (the lane's address in a tile
    whose rows are `a_pitch` bytes apart). B lies in shared memory, its rows `pitch` bytes apart: as [columns, terms],
    or, ``transposed``, as [terms, columns]; `place` is the lane's address in it. Lanes have their addresses from
    `right_lane` (or `left_lane` for A, and for a transposed B). ``a_transposed``: A lies in shared memory as [terms,
    16·tall], with addresses from `right_lane`. ``fresh`` overwrites the tile, else it is added to.
    """
    steps, kind = terms // STEP, TYPE[dtype]

    def part(b: Any, place: Any, step: int, pair: int) -> list[Any]:
        """The words of B for 16 terms and up to 16 columns."""
        if transposed:
            return matrices(b, place, 16 * pitch * step + 32 * pair, True, 4 if 16 * pair + 8 < columns else 2)
        return matrices(b, place, 16 * pitch * pair + 32 * step)

    def rows(b: Any, given: Any, step: int) -> list[list[Any]]:
        """The words of A for 16 terms: four for each 16 rows."""
        if a_transposed:
            return [matrices(b, given, 16 * a_pitch * step + 32 * m, True) for m in range(tall)]
        if a == "shared":
            return [matrices(b, given, 16 * a_pitch * m + 32 * step) for m in range(tall)]
        at = [4 * tall * step + 2 * tall * half + 2 * m for m in range(tall) for half in range(2)]
        words = [given[k + r] for k in at for r in range(2)]
        return [words[4 * m : 4 * m + 4] for m in range(tall)]

    multiply = partial(multiplied, "m16n8k16", kind)
    return product("tile_product", columns, steps, 2, part, rows, multiply, a == "registers", fresh, tall)


def product(
    name: str,
    columns: int,
    steps: int,
    wide: int,
    part: Callable[..., list[Any]],
    rows: Callable[..., list[list[Any]]],
    multiply: Callable[..., list[Any]],
    registers: bool,
    fresh: bool,
    tall: int,
    converted: Callable[..., list[Any]] | None = None,
) -> Any:
    """A function ``product(tile, a, place)``, `steps` instructions deep. ``part(b, place, step, group)``: the words
    of B of up to `wide` times 8 columns, ``converted(b, words)``: two for each 8 of them; ``rows(b, a, step)``: those
    of A, four for each 16 rows."""
    groups = -(-columns // (8 * wide))

    def typed(tile: Any, left: Any, place: Any) -> tuple[Any, Body]:
        def body(context: Any, b: Any, sig: Any, args: Any) -> None:
            data, given = _data(context, b, sig.args[0], args[0]), args[1]
            size = columns * tall // 2
            values = [F32(0)] * size if fresh else _read(b, data, size)
            if registers:
                given = _read(b, _data(context, b, sig.args[1], given), 4 * tall * steps)
            order = [(step, group) for step in range(steps) for group in range(groups)]
            prefetched, after = part(b, args[2], *order[0]), rows(b, given, 0)
            for k, (step, group) in enumerate(order):  # what comes next is loaded while this is multiplied
                right, mine = converted(b, prefetched) if converted else prefetched, after
                if k + 1 < len(order):
                    prefetched = part(b, args[2], *order[k + 1])
                    after = rows(b, given, step + 1) if order[k + 1][0] != step else mine
                for half in range(len(right) // 2):
                    for m in range(tall):
                        at = 4 * (tall * (wide * group + half) + m)
                        words = right[2 * half : 2 * half + 2]
                        if at < size:
                            values[at : at + 4] = multiply(b, values[at : at + 4], mine[m], words)
            _write(b, data, values)

        return types.void(tile, left if registers else types.int32, types.int32), body

    return function(name, "tile left place", typed)


# --- copies ----------------------------------------------------------------------------------------------------------


def _either(b: Any, condition: Any, yes: Any, no: Any) -> Any:
    return b.select(condition, yes, no)


def tile_copy(
    rows: int, units: int, pitch: int, threads: int, wide: int = 0, ragged: bool = False, exact: bool = False
) -> Any:
    """``copy(address, pointer, offset, step, count, t)``: start copying rows of `units` × 16 bytes to shared memory.

    Rows start `step` elements apart, the first one at element `offset`; those from `count` on are filled with zeros,
    and so are the units from `units` up to `wide`. ``ragged``: one more argument says how many units there are, or,
    ``exact``, how many bytes. `t` is the thread of the `threads` that share the work: neighbours copy neighbouring
    units.
    """
    wide = max(wide, units)
    each = gcd(wide, 8)  # threads of one row
    high = threads // each  # rows at a time
    moved = "cp.async.cg.shared.global.L2::128B [${0}+{2}], [${1}+{3}], 16, $2;"

    def typed(address: Any, pointer: Any, offset: Any, step: Any, count: Any, t: Any, *left: Any) -> tuple[Any, Body]:
        def body(context: Any, b: Any, sig: Any, args: Any) -> None:
            place, _, start, stride, there, thread, *some = args
            along, across = b.and_(thread, I32(each - 1)), b.lshr(thread, I32(each.bit_length() - 1))
            to = b.add(place, b.add(b.mul(across, I32(pitch)), b.shl(along, I32(4))))
            begin = b.add(start, b.mul(b.zext(across, I64), stride))
            source = b.add(b.ptrtoint(b.gep(args[1], [begin]), I64), b.zext(b.shl(along, I32(4)), I64))
            size = b.sub(b.ptrtoint(b.gep(args[1], [stride]), I64), b.ptrtoint(args[1], I64))
            for k in range(-(-rows // high)):
                row = b.add(across, I32(k * high))
                amount = _either(b, b.icmp_signed("<", row, there), I32(16), I32(0))
                rest = rows - k * high < high
                for j in range(wide // each):
                    last, filled = each * j + each - 1, amount
                    if exact:
                        bytes_left = b.sub(some[0], b.shl(b.add(along, I32(each * j)), I32(4)))
                        bytes_left = _either(b, b.icmp_signed("<", bytes_left, I32(UNIT)), bytes_left, I32(UNIT))
                        bytes_left = _either(b, b.icmp_signed(">", bytes_left, I32(0)), bytes_left, I32(0))
                        filled = _either(b, b.icmp_signed("<", row, there), bytes_left, I32(0))
                    elif some or last >= units:
                        limit = some[0] if some else I32(units)
                        inside = b.icmp_signed("<", b.add(along, I32(each * j)), limit)
                        filled = _either(b, inside, amount, I32(0))
                    text = moved.format(0, 1, k * high * pitch + UNIT * each * j, UNIT * each * j)
                    given, letters = [to, source, filled], "r,l,r"
                    if rest:
                        text = f"{{ .reg .pred p; setp.lt.s32 p, $3, {rows}; @p {text} }}"
                        given, letters = [*given, row], "r,l,r,r"
                    inline(b, text, f"{letters},{MEMORY}", VOID, given, effects=True)
                if k + 1 < -(-rows // high):
                    source = b.add(source, b.mul(size, I64(high)))

        numbers: list[Any] = [types.int64, types.int64, types.int32, types.int32, *[types.int32] * len(left)]
        return types.void(*[types.int32, pointer, *numbers]), body

    names = "address pointer offset step count t" + (" inside" if ragged else "")
    if ragged:
        return function("tile_copy", names, lambda a, p, o, s, c, t, w: typed(a, p, o, s, c, t, w))
    return function("tile_copy", names, lambda a, p, o, s, c, t: typed(a, p, o, s, c, t))


def cp_async_wait(groups: int) -> Any:
    """``done()``: wait until at most `groups` groups of this thread's copies are under way."""
    return left(groups, "cp_async_wait")


def left_load(terms: int, there: int, tall: int = 1, first: int = 0) -> Any:
    """``load(words, pointer, offset, step, count)``: the fragments of a left operand of 16·tall rows, from memory.

    `offset`: of the thread's first element, `step`: elements from a row to the next; `count`: rows there are from the
    thread's first one on. Rows that do not exist, and terms from `there` on, are zeros. ``first``: the term of an array
    of words that they begin at.
    """
    text = "{{ .reg .pred p; setp.ne.b32 p, $2, 0; mov.b32 $0, 0; @p ld.global.nc.b32 $0, [$1+{}]; }}"

    def loaded(b: Any, place: Any, exists: Any, row: int) -> Iterator[tuple[int, Any]]:
        for k in range(terms // 8):
            word: Any = I32(0)
            if 8 * k < there:
                word = inline(b, text.format(16 * k), f"=r,l,r,{MEMORY}", I32, [place, exists], effects=True)
            yield 2 * tall * (k + first // 8) + row, word

    return loads_of_rows("left_load", tall, loaded)


def loads_of_rows(name: str, tall: int, loaded: Callable[[Any, Any, Any, int], Iterable[tuple[int, Any]]]) -> Any:
    """Such a function, of what it loads from an address of each of a thread's rows, if the row exists: where words
    stand among those of the thread, and the words."""

    def typed(words: Any, pointer: Any, *_: Any) -> tuple[Any, Body]:
        def body(context: Any, b: Any, sig: Any, args: Any) -> None:
            offset, step, count = args[2:]
            data = _data(context, b, sig.args[0], args[0])
            for r in range(2 * tall):
                place = b.ptrtoint(b.gep(args[1], [b.add(offset, b.mul(step, I64(8 * r)))]), I64)
                exists = b.zext(b.icmp_signed("<", I32(8 * r), count), I32)
                for at, word in loaded(b, place, exists, r):
                    b.store(word, b.gep(data, [I32(at)]))

        return types.void(words, pointer, types.int64, types.int64, types.int32), body

    return function(name, "words pointer offset step count", typed)


# --- functions of one shape ------------------------------------------------------------------------------------------


def _shared_start() -> Any:
    """The first address of the block's shared memory of run-time size, a multiple of 16."""
    return shared_address("shared_start")


def lane_address(name: str, row: Callable[[Any, Any], Any], unit: Callable[[Any, Any], Any], size: int = UNIT) -> Any:
    """``name(address, lane, pitch)``: the address of a lane's row, and of its unit of `size` bytes in it."""

    def body(context: Any, b: Any, sig: Any, args: Any) -> Any:
        place, lane, pitch = args
        return b.add(place, b.add(b.mul(row(b, lane), pitch), b.mul(unit(b, lane), I32(size))))

    takes = (types.int32, types.int32, types.int32)
    return function(name, "address lane pitch", lambda *_: (types.int32(*takes), body))


def _left_lane() -> Any:
    """``left_lane(address, lane, pitch)``: a lane's address in a tile of 16 rows of A, or of a transposed B: matrices
    one below the other, then side by side."""
    return lane_address("left_lane", lambda b, x: b.and_(x, I32(15)), lambda b, x: b.lshr(x, I32(4)))


def _right_lane() -> Any:
    """``right_lane(address, lane, pitch)``: a lane's address in a tile of 16 columns of B: matrices side by side, then
    one below the other."""

    def row(b: Any, x: Any) -> Any:
        return b.add(b.and_(x, I32(7)), b.and_(b.lshr(x, I32(1)), I32(8)))

    return lane_address("right_lane", row, lambda b, x: b.and_(b.lshr(x, I32(3)), I32(1)))


MAKERS: dict[str, Callable[[], Any]] = {
    "shared_start": _shared_start,
    "left_lane": _left_lane,
    "right_lane": _right_lane,
    "this_thread": partial(instruction, "this_thread", "mov.u32 $0, %tid.x;", "", "i32"),
    "cp_async_commit": sent,
}


__getattr__ = lazy(__name__, MAKERS, globals())
