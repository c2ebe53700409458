"""Products by mma.sync of operands that are converted when their fragments are read: float32 and 8-bit floats.

float32 is rounded to tf32, to nearest with ties away from zero (``cvt.rna.tf32.f32``): 10 bits of fraction. Floats of
8 bits become float16 or bfloat16, exactly; from compute capability 8.9 on there is an instruction for e4m3, before it
is a product by a power of two; e5m2 is the upper half of a float16. Tiles lie in shared memory as they lie in memory,
row by row (`redalg.kernels.ir.tensor_cores.pitch_of`); tiles of numbers are held as there.

Which term of a sum a fragment holds may be chosen, as long as both operands choose alike:

- The weights of a tf32 product are the scores where they are: terms t and t + 4 of an instruction, t = lane mod 4, are
  elements 2·t and 2·t + 1 of a block, so that no thread needs another's. V is read in that order, 32 bits at a time:
  rows an odd number of 16-byte units apart meet no conflict of banks.
- A word of an operand of 8 bits holds four neighbours, 4·t to 4·t + 3. They are taken for terms 2·t, 2·t + 1, 2·t + 8
  and 2·t + 9 of an instruction; the other operand is read likewise.
- ``ldmatrix.trans`` moves pairs of bytes. Two neighbouring lanes of V come in one word, and go to two products: of 16
  lanes one tile of 8 holds the even ones and the next one the odd ones. `lanes_sorted` undoes that once, at the end.

Sources: PTX ISA 9.0, "mma.m16n8k8", "mma.m16n8k16", "ldmatrix", "cvt", "prmt".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from llvmlite import ir
from numba import types

from redalg.kernels.code.functions import (
    CC,
    F16,
    F32,
    I16,
    I32,
    Body,
    compute_capability,
    function,
    inline,
    lazy,
    numeric,
)
from redalg.kernels.cuda.intrinsics.mma import lane_address, loads_of_rows, matrices, multiplied, product
from redalg.kernels.cuda.intrinsics.wgmma import MEMORY, _data, _read, _write
from redalg.kernels.ir.tensor_cores import FORMAT, FP8, TF32, TYPE, terms_of

NARROW = tuple(FORMAT)
PAIR = ir.LiteralStructType([I32] * 2)


# --- conversions -----------------------------------------------------------------------------------------------------


def rounded(b: Any, word: Any) -> Any:
    """The bits of a float32 as those of the nearest tf32."""
    return inline(b, "cvt.rna.tf32.f32 $0, $1;", "=r,r", I32, [word])


def widened(b: Any, dtype: str, word: Any, kind: str, crossed: bool = False, cc: CC | None = None) -> list[Any]:
    """The four 8-bit floats of a word as two words of 16-bit floats: the first two and the last two of them, or,
    ``crossed``, the even and the odd ones."""
    orders = ((0, 2), (1, 3)) if crossed else ((0, 1), (2, 3))
    cc = compute_capability() if cc is None else cc
    if dtype == "float8_e5m2":
        found = [_upper(b, word, *order) for order in orders]
    elif cc >= FP8:
        found = _unpacked(b, _permuted(b, word, 0x3120) if crossed else word)
    else:
        found = [_computed(b, _upper(b, word, *order)) for order in orders]
    return found if kind == "float16" else [_brain(b, word) for word in found]


def _permuted(b: Any, word: Any, selector: int) -> Any:
    return inline(b, f"prmt.b32 $0, $1, 0, {selector:#06x};", "=r,r", I32, [word])


def _upper(b: Any, word: Any, low: int, high: int) -> Any:
    """Two bytes of a word as the upper bytes of two halves."""
    return _permuted(b, word, high << 12 | 4 << 8 | low << 4 | 4)


def _unpacked(b: Any, word: Any) -> list[Any]:
    cvt = "cvt.rn.f16x2.e4m3x2"
    text = f"{{ .reg .b16 low, high; mov.b32 {{low, high}}, $2; {cvt} $0, low; {cvt} $1, high; }}"
    made = inline(b, text, "=r,=r,r", PAIR, [word])
    return [b.extract_value(made, k) for k in range(2)]


def _computed(b: Any, upper: Any) -> Any:
    """e4m3 in upper bytes as float16: its bits are a float16's whose exponent is 8 too small.

    480, which stands for NaN, is the only one of its numbers that 137 takes beyond the largest float16; 0·∞ is NaN.
    """
    bits = b.or_(b.and_(upper, I32(0x80008000)), b.lshr(b.and_(upper, I32(0x7F007F00)), I32(1)))
    text = (
        "{ .reg .b32 c, x, y; mov.b32 c, 0x5c005c00; mul.rn.f16x2 x, $1, c; mov.b32 c, 0x58485848; "
        "mul.rn.f16x2 y, x, c; mov.b32 c, 0; fma.rn.f16x2 $0, y, c, x; }"
    )
    return inline(b, text, "=r,r", I32, [bits])


def _brain(b: Any, halves: Any) -> Any:
    """Two float16 that are 8-bit floats as bfloat16."""
    low, high = b.trunc(halves, I16), b.trunc(b.lshr(halves, I32(16)), I16)
    x, y = (b.fpext(b.bitcast(half, F16), F32) for half in (low, high))
    return inline(b, "cvt.rn.bf16x2.f32 $0, $1, $2;", "=r,f,f", I32, [y, x])


# --- products --------------------------------------------------------------------------------------------------------


def converted_product(
    columns: int,
    terms: int,
    kind: str,
    right: str,
    pitch: int,
    left: str = "",
    a: str = "registers",
    a_pitch: int = 0,
    fresh: bool = True,
    transposed: bool = False,
    tall: int = 1,
) -> Any:
    """``product(tile, a, place)``: tile[16·tall, columns] (+)= A[16·tall, terms]·B, as `mma.tile_product`.

    ``kind``: the type that is multiplied, "tf32", "float16" or "bfloat16"; ``right``: the type of B in shared memory,
    of 4 bytes or one; ``left``: that of A there, "" where it needs no conversion.

    Lanes have their addresses of B from `right_lane` (float32) or `row_lane` (8 bits), of a transposed B from
    `values_lane` (float32) or `left_lane`, of A from `left_lane`, or from `quad_lane` if it has 16 bits.
    """
    single = kind == TF32
    wide = 4 if tall == 1 and not single else 2  # words ahead take registers, too
    part: Callable[..., list[Any]] = partial(_narrow, columns, pitch, wide, transposed)
    if single:
        part = partial(_values_tf32, columns, pitch) if transposed else partial(_right_tf32, pitch)
    rows = partial(_left_registers, single, tall)
    if a == "shared":
        rows = partial(_left_shared, left, kind, a_pitch, tall)
    shape, word = ("m16n8k8", TF32) if single else ("m16n8k16", TYPE[kind])
    return product(
        "converted_product",
        columns,
        terms // terms_of(kind),
        wide,
        part,
        rows,
        partial(multiplied, shape, word),
        a == "registers",
        fresh,
        tall,
        partial(_ready, right, kind, transposed),
    )


def _right_tf32(pitch: int, b: Any, place: Any, step: int, group: int) -> list[Any]:
    """8 terms of 16 columns."""
    return matrices(b, place, 16 * pitch * group + 32 * step)


def _values_tf32(columns: int, pitch: int, b: Any, place: Any, step: int, group: int) -> list[Any]:
    """8 terms of up to 16 columns, of a matrix whose rows are terms: t and t + 4 are rows 2·t and 2·t + 1."""
    text, found = "ld.shared.b32 $0, [$1+{}];", []
    for tile in range(2 * group, min(2 * group + 2, columns // 8)):
        for k in range(2):
            at = (8 * step + k) * pitch + 32 * tile
            found.append(inline(b, text.format(at), f"=r,r,{MEMORY}", I32, [place], effects=True))
    return found


def _narrow(columns: int, pitch: int, wide: int, transposed: bool, b: Any, place: Any, step: int, group: int) -> Any:
    """16 terms of up to `wide` times 8 columns; ``transposed``: of a matrix whose rows are terms."""
    first = 8 * wide * group
    count = min(wide, (columns - first) // 8)
    at = 16 * pitch * step + first if transposed else pitch * first + 16 * step
    return matrices(b, place, at, transposed, count)


def _ready(dtype: str, kind: str, transposed: bool, b: Any, words: list[Any]) -> list[Any]:
    """The words of B that instructions take, two for 8 columns; of 16 lanes the even ones, then the odd ones."""
    if kind == TF32:
        return [rounded(b, w) for w in words]
    found: list[Any] = [widened(b, dtype, w, kind, transposed) for w in words]
    if transposed:
        found = [[first[k], last[k]] for first, last in zip(found[::2], found[1::2], strict=True) for k in range(2)]
    return [w for pair in found for w in pair]


def _left_registers(single: bool, tall: int, b: Any, given: list[Any], step: int) -> list[list[Any]]:
    """Four words of A for each 16 rows: rows g and g + 8 of its first terms, then of its last ones."""
    if single:
        return [[given[4 * (tall * step + m) + k] for k in (0, 2, 1, 3)] for m in range(tall)]
    return [[given[2 * tall * (2 * step + k) + 2 * m + r] for k in range(2) for r in range(2)] for m in range(tall)]


def _left_shared(left: str, kind: str, pitch: int, tall: int, b: Any, place: Any, step: int) -> list[list[Any]]:
    found = []
    for m in range(tall):
        at = 16 * pitch * m
        if kind == TF32:
            words = matrices(b, place, at + 32 * step)
            found.append([rounded(b, w) for w in words] if left else words)
            continue
        if left in NARROW:
            words = matrices(b, place, at + 16 * step, count=2)
            pairs = [widened(b, left, w, kind) for w in words]
        else:
            text = "ld.shared.v2.b32 {{$0, $1}}, [$2+{}];"
            made = [
                inline(b, text.format(at + 8 * pitch * r + 32 * step), f"=r,=r,r,{MEMORY}", PAIR, [place], effects=True)
                for r in range(2)
            ]
            pairs = [[b.extract_value(x, k) for k in range(2)] for x in made]
        found.append([pairs[r][k] for k in range(2) for r in range(2)])
    return found


# --- the left operand in registers -----------------------------------------------------------------------------------


def _global(b: Any, place: Any, exists: Any, at: int, n: int) -> list[Any]:
    """`n` words that lie together, `at` bytes behind a place; zeros where there is nothing."""
    load = "ld.global.nc.v2.b32 {$0, $1}" if n == 2 else "ld.global.nc.b32 $0"
    zeros = " ".join(f"mov.b32 ${k}, 0;" for k in range(n))
    text = f"{{ .reg .pred p; setp.ne.b32 p, ${n + 1}, 0; {zeros} @p {load}, [${n}+{at}]; }}"
    made = inline(
        b, text, ",".join(["=r"] * n + ["l", "r", MEMORY]), PAIR if n == 2 else I32, [place, exists], effects=True
    )
    return [b.extract_value(made, k) for k in range(n)] if n > 1 else [made]


def converted_load(terms: int, there: int, dtype: str, kind: str, tall: int = 1, first: int = 0) -> Any:
    """``load(words, pointer, offset, step, count)``: the fragments of a left operand of 16·tall rows, from memory, as
    `mma.left_load`; `offset` is that of the thread's first element: t, or 4·t of fewer than 4 bytes."""
    size = 4 if dtype == "float32" else 2 if dtype in TYPE and dtype not in NARROW else 1
    each = terms_of(kind)

    def fragments(b: Any, place: Any, exists: Any, step: int) -> list[Any]:
        """Both words of a row for one instruction."""
        if each * step >= there:
            return [I32(0)] * 2
        if size == 4:
            return [rounded(b, w) for k in range(2) for w in _global(b, place, exists, 32 * step + 16 * k, 1)]
        found = _global(b, place, exists, 16 * size * step, size)
        return widened(b, dtype, found[0], kind) if size == 1 else found

    def loaded(b: Any, place: Any, exists: Any, row: int) -> Iterator[tuple[int, Any]]:
        for k in range(terms // each):
            for half, word in enumerate(fragments(b, place, exists, k)):
                yield 4 * tall * (k + first // each) + (2 * row + half if size == 4 else 2 * tall * half + row), word

    return loads_of_rows("converted_load", tall, loaded)


# --- lanes in their order --------------------------------------------------------------------------------------------


def lanes_sorted(lanes: int, tall: int = 1) -> Any:
    """``sort(sums)``: after products of a transposed B of 8 bits, lanes where `mma` has them.

    A thread holds lanes 4·t to 4·t + 3 of every 16, and takes 2·t, 2·t + 1, 2·t + 8 and 2·t + 9 from two others.
    """
    held = 2 * tall

    def typed(sums: Any) -> tuple[Any, Body]:
        def body(context: Any, b: Any, sig: Any, args: Any) -> None:
            data = _data(context, b, sig.args[0], args[0])
            values = _read(b, data, held * lanes // 4)
            lane = inline(b, "mov.u32 $0, %laneid;", "=r", I32, [])
            odd = b.icmp_unsigned("!=", b.and_(lane, I32(1)), I32(0))
            first = b.or_(b.and_(lane, I32(28)), b.and_(b.lshr(lane, I32(1)), I32(1)))
            for pair in range(lanes // 16):
                for r in range(held):
                    at = [2 * held * (2 * pair + tile) + 2 * r for tile in range(2)]
                    mine = [[values[k], values[k + 1]] for k in at]
                    for tile in range(2):
                        source = b.add(first, I32(2 * tile))
                        for k in range(2):
                            low, high = (_from(b, mine[k][c], source) for c in range(2))
                            values[at[tile] + k] = b.select(odd, high, low)
            _write(b, data, values)

        return types.void(sums), body

    return function("lanes_sorted", "sums", typed)


def _from(b: Any, value: Any, source: Any) -> Any:
    return inline(b, "shfl.sync.idx.b32 $0, $1, $2, 31, -1;", "=f,f,r", F32, [value, source], effects=True)


# --- functions of one shape ------------------------------------------------------------------------------------------


def _tf32_word() -> Any:
    """``tf32_word(x)``: the bits of x, rounded to tf32."""
    return numeric("tf32_word", ("f32",), "u32", lambda b, x: rounded(b, b.bitcast(x, I32)))


def _none(b: Any, x: Any) -> Any:
    return I32(0)


def _row_lane() -> Any:
    """``row_lane(address, lane, pitch)``: a lane's address where matrices lie one below the other."""
    return lane_address("row_lane", lambda b, x: x, _none)


def _quad_lane() -> Any:
    """``quad_lane(address, lane, pitch)``: of the four elements of 16 bits of its row that a thread has."""
    return lane_address("quad_lane", lambda b, x: b.lshr(x, I32(2)), lambda b, x: b.and_(x, I32(3)), 8)


def _values_lane() -> Any:
    """``values_lane(address, lane, pitch)``: of row 2·(lane mod 4) and column lane/4 of 32-bit words."""
    return lane_address("values_lane", lambda b, x: b.shl(b.and_(x, I32(3)), I32(1)), lambda b, x: b.lshr(x, I32(2)), 4)


MAKERS: dict[str, Callable[[], Any]] = {
    "tf32_word": _tf32_word,
    "row_lane": _row_lane,
    "quad_lane": _quad_lane,
    "values_lane": _values_lane,
}


__getattr__ = lazy(__name__, MAKERS, globals())
