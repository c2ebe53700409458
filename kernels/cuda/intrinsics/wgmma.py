"""Tensor cores of compute capability 9.0 (Hopper): tiles of matrices in shared memory and in registers.

Tiles lie in shared memory as the tensor memory accelerator writes them: chunks of 64 columns of 16 bits, row by row,
128 bytes a row, swizzled by 128 bytes (PTX ISA 9.0, "Asynchronous warpgroup level matrix"). A tile in the registers of
a warpgroup is a local array: element k of a thread lies in row ``16·warp + lane/4 + 8·(k/2 mod 2)`` and column
``8·(k/4) + 2·(lane mod 4) + k mod 2``.

Multiplications are asynchronous: what they read and write belongs to them until a wait that names it. Functions that
depend on the shape of a tile are made by a call at the head of a generated module: ``tile_product``, ``wgmma_wait``,
``setmaxnreg``, ``tma_load``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from llvmlite import ir
from numba import types

from redalg.kernels.code.functions import (
    F32,
    I32,
    I64,
    LLVM,
    VOID,
    Body,
    constrained,
    function,
    inline,
    instruction,
    kind_of,
    lazy,
    numeric,
)
from redalg.kernels.ir.tensor_cores import STEP, TYPE

MEMORY = "~{memory}"


# --- arrays of registers ---------------------------------------------------------------------------------------------


def _read(b: Any, data: Any, count: int) -> list[Any]:
    return [b.load(b.gep(data, [I32(k)])) for k in range(count)]


def _write(b: Any, data: Any, values: Sequence[Any]) -> None:
    for k, value in enumerate(values):
        b.store(value, b.gep(data, [I32(k)]))


def _data(context: Any, b: Any, kind: Any, array: Any) -> Any:
    return context.make_array(kind)(context, b, array).data


def _registers(numbers: Iterable[int]) -> str:
    return "{" + ", ".join(f"${k}" for k in numbers) + "}"


def _chunk_offset(step: int, rows: int) -> int:
    """Bytes from the first 16 terms to those of a step: chunks of 64 terms, of `rows` rows of 128 bytes each."""
    return (step // 4) * rows * 128 + (step % 4) * 32


def _product_text(
    columns: int,
    steps: int,
    dtype: str,
    registers: bool,
    chunk_rows: tuple[int, int],
    fresh: bool,
    transposed: tuple[bool, bool],
    first: int,
) -> str:
    """The instructions of `tile_product`, over the tile (twice, unless it is fresh), A and the descriptor of B."""
    kind = ".".join(TYPE[d] for d in (dtype.split("/") * 2)[:2])
    pairs, count = 2 if "float8" in dtype else 1, columns // 2
    place = count if fresh else 2 * count
    right = place + (4 * steps if registers else 1)
    tile, shape = _registers(range(count)), f"m64n{columns}k{STEP * pairs}"
    lines = ["{ .reg .b64 xa, xb; wgmma.fence.sync.aligned;"]
    for k in range(steps):
        s = k + first
        steps_in = [
            s * STEP * 128 if across else _chunk_offset(s, n) for across, n in zip(transposed, chunk_rows, strict=True)
        ]
        lines.append(f"add.s64 xb, ${right}, {steps_in[1] >> 4};")
        if registers:
            left, ends = _registers(range(place + 4 * k, place + 4 * k + 4)), f"1, 1, {int(transposed[1])}"
        else:
            lines.append(f"add.s64 xa, ${place}, {steps_in[0] >> 4};")
            across = f", {int(transposed[0])}, {int(transposed[1])}" * (pairs == 1)
            left, ends = "xa", f"1, 1{across}"
        scale = 0 if fresh and k == 0 else 1
        lines.append(f"wgmma.mma_async.sync.aligned.{shape}.f32.{kind} {tile}, {left}, xb, {scale}, {ends};")
    return " ".join([*lines, "wgmma.commit_group.sync.aligned; }"])


def tile_product(
    columns: int,
    terms: int,
    dtype: str,
    a: str = "registers",
    rows: int = 64,
    b_rows: int = 64,
    fresh: bool = True,
    transposed: bool = False,
    first: int = 0,
    a_rows: int = 64,
    tiles: int = 1,
    a_transposed: bool = False,
) -> Any:
    """``product(tile, a, b)``: tile[64, columns] (+)= A[64, terms]·B, started and committed as one group.

    ``tiles``: so many are given, each with its part of the columns: right operands of one A that lie one behind the
    other are one instruction, which reads A once.

    ``a``: "registers" (a local array of 4 words for every 16 terms) or "shared" (a descriptor; its chunks have `rows`
    rows, or it lies, ``a_transposed``, as [terms, 64]). B lies in shared memory (a descriptor): as [columns, terms],
    or, ``transposed``, as [terms, columns]; its chunks have `b_rows` rows. ``fresh`` overwrites the tile, else products
    are added to it. ``first``: the 16 terms to begin with. ``dtype``: of both, or "A/B" of float8; there, `terms` and
    `first` count pairs of terms, and B is given as [columns, terms]. ``a_rows``: rows of A that are there; what is
    multiplied for the others is whatever lies there.
    """
    count, steps = columns // 2, -(-terms // STEP)
    tied, each = 0 if fresh else count, columns // 2 // tiles
    given = 4 * steps if a == "registers" else 1
    text = _product_text(
        columns, steps, dtype, a == "registers", (rows, b_rows), fresh, (a_transposed, transposed), first
    )
    letters = ["=f"] * count + [str(k) for k in range(tied)] + (["r"] * given if a == "registers" else ["l"])
    constraints = ",".join([*letters, "l", MEMORY])

    def typed(*kinds: Any) -> tuple[Any, Body]:
        def body(context: Any, b: Any, sig: Any, args: Any) -> None:
            data = [_data(context, b, kind, tile) for kind, tile in zip(sig.args[:tiles], args[:tiles], strict=True)]
            values = [x for one in data for x in _read(b, one, each)] if tied else []
            if a == "registers":
                values += _read(b, _data(context, b, sig.args[tiles], args[tiles]), given)
            else:
                values.append(args[tiles])
            shape = ir.LiteralStructType([F32] * count)
            made = inline(b, text, constraints, shape, [*values, args[-1]], effects=True)
            for number, one in enumerate(data):
                _write(b, one, [b.extract_value(made, k + each * number) for k in range(each)])

        left = kinds[tiles] if a == "registers" else types.uint64
        return types.void(*kinds[:tiles], left, types.uint64), body

    names = "".join(f"tile{k} " for k in range(tiles))
    return function("tile_product", f"{names}left right", typed)


def wgmma_wait(groups: int, count: int, held: int = 0) -> Any:
    """``wait(tile)`` or, with `held` words, ``wait(tile, words)``: until at most `groups` groups are under way.

    `count` elements of the tile may be read from here on, and the words, which a product has read, be written.
    """
    letters = ["=f"] * count + [str(k) for k in range(count)] + ["r"] * held + [MEMORY]
    text = f"wgmma.wait_group.sync.aligned {groups};"

    def body(context: Any, b: Any, sig: Any, args: Any) -> None:
        data = _data(context, b, sig.args[0], args[0])
        values = _read(b, data, count)
        if held:
            values += _read(b, _data(context, b, sig.args[1], args[1]), held)
        shape = ir.LiteralStructType([F32] * count)
        made = inline(b, text, ",".join(letters), shape, values, effects=True)
        _write(b, data, [b.extract_value(made, k) for k in range(count)])

    if held:
        return function("wgmma_wait", "tile words", lambda tile, words: (types.void(tile, words), body))
    return function("wgmma_wait", "tile", lambda tile: (types.void(tile), body))


def setmaxnreg(count: int, more: bool) -> Any:
    """``set()``: from here on each thread of the warpgroup has `count` registers, more or fewer than before."""
    text = f"setmaxnreg.{'inc' if more else 'dec'}.sync.aligned.u32 {count};"
    return instruction("setmaxnreg", text)


def _load_text(dimensions: int, first: int, offsets: int, multicast: str) -> str:
    """A copy of a box, whose coordinates and then offsets are arguments from `first` on; `multicast`: a register that
    says to which blocks."""
    places = ", ".join(f"${first + k}" for k in range(dimensions))
    load = f"cp.async.bulk.tensor.{dimensions}d.shared::cluster.global{'.im2col' * (offsets > 0)}"
    load += f".mbarrier::complete_tx::bytes{'.multicast::cluster' * bool(multicast)}"
    more = [f"{{{', '.join(f'o{k}' for k in range(offsets))}}}"] * bool(offsets) + [multicast] * bool(multicast)
    registers = "".join(f" .reg .b16 o{k}; cvt.u16.u32 o{k}, ${first + dimensions + k};" for k in range(offsets))
    return f"{registers} {load} [$0], [$1, {{{places}}}], {', '.join(['[$2]', *more])};"


def tma_multicast(dimensions: int, offsets: int = 0) -> Any:
    """``load(address, map, barrier, blocks, x, y, …)``: a box of a tensor to the shared memory of the blocks of the
    cluster whose bits are set; its bytes count at the barrier of each, at the same addresses. ``offsets``: as in
    `tma_load`."""
    count = dimensions + offsets
    text = f"{{ .reg .b16 to; cvt.u16.u32 to, $3;{_load_text(dimensions, 4, offsets, 'to')} }}"
    return instruction("tma_multicast", text, "i32 u64 i32 i32" + " i32" * count)


def tma_load(dimensions: int, pair: bool = False, offsets: int = 0) -> Any:
    """``load(address, map, barrier, x, y, …)``: a box of a tensor to shared memory; its bytes count at the barrier.

    ``pair``: the box and the count come to both blocks of a cluster of two, at the same addresses (multicast).
    ``offsets``: of pixels, for a map in im2col mode: behind the coordinates, how far each of so many dimensions is
    moved.
    """
    count = dimensions + offsets
    text = _load_text(dimensions, 3, offsets, "both" if pair else "")
    text = f"{{{' .reg .b16 both; mov.b16 both, 3;' * pair}{text} }}" if pair or offsets else text[1:]
    return instruction("tma_load", text, "i32 u64 i32" + " i32" * count)


def tma_store(dimensions: int) -> Any:
    """``store(address, map, x, y, …)``: a box from shared memory to a tensor, but for what lies outside of the tensor.

    The box belongs to the copy engine until the same thread has passed ``tma_store_wait``.
    """
    places = ", ".join(f"${2 + k}" for k in range(dimensions))
    text = f"cp.async.bulk.tensor.{dimensions}d.global.shared::cta.bulk_group [$1, {{{places}}}], [$0];"
    text += " cp.async.bulk.commit_group;"
    return instruction("tma_store", text, "i32 u64" + " i32" * dimensions)


# --- functions of one shape ------------------------------------------------------------------------------------------


def shared_address(name: str, rounded: Callable[[Any, Any], Any] = lambda b, at: at) -> Any:
    """``name(array)``: the first address of the block's shared memory of run-time size, `rounded`."""

    def typed(array: Any) -> tuple[Any, Body]:
        def body(context: Any, b: Any, sig: Any, args: Any) -> Any:
            data = _data(context, b, sig.args[0], args[0])
            text = "{ .reg .u64 a; cvta.to.shared.u64 a, $1; cvt.u32.u64 $0, a; }"
            return rounded(b, inline(b, text, "=r,l", I32, [b.ptrtoint(data, I64)]))

        return types.int32(array), body

    return function(name, "array", typed)


def _shared_base() -> Any:
    """The first address of the block's shared memory of run-time size, rounded up to 1024 bytes."""
    return shared_address("shared_base", lambda b, at: b.and_(b.add(at, I32(1023)), I32(-1024)))


def _descriptor() -> Any:
    """``descriptor(address, leading)``: of a tile in shared memory; `leading` bytes from one chunk to the next."""

    def body(b: Any, address: Any, leading: Any) -> Any:
        low = b.lshr(b.and_(address, I32(0x3FFFF)), I32(4))
        leading_bits = b.shl(b.lshr(leading, I32(4)), I32(16))
        low = inline(
            b, "mov.b32 $0, $1;", "=r,r", I32, [b.or_(low, leading_bits)]
        )  # nothing is found in 64 bits above it
        return b.or_(b.zext(low, I64), I64((1024 >> 4) << 32 | 1 << 62))

    return numeric("descriptor", ("i32", "i32"), "u64", body)


def _loaded(name: str, text: str, count: int, letter: str, kind: Any) -> Any:
    """``name(array, k, address)``: array[k] and those after it, `count` of them from shared memory."""
    text = text.format("{" + ", ".join(f"${j}" for j in range(count)) + f"}}, [${count}]")
    constraints = f"={letter}," * count + f"r,{MEMORY}"

    def typed(array: Any, k: Any, address: Any) -> tuple[Any, Body]:
        def body(context: Any, b: Any, sig: Any, args: Any) -> None:
            made = inline(b, text, constraints, ir.LiteralStructType([kind] * count), [args[2]], effects=True)
            data = _data(context, b, sig.args[0], args[0])
            for j in range(count):
                b.store(b.extract_value(made, j), b.gep(data, [b.add(args[1], I64(j))]))

        return types.void(array, types.int64, types.int32), body

    return function(name, "array k address", typed)


def _of_element(name: str, text: str, takes: str = "", gives: str = "") -> Any:
    """``name(pointer, index, …)``: PTX over the address of an element of an array in memory, and numbers."""
    kinds = takes.split()
    constraints, result = constrained(["u64", *kinds], gives, True), LLVM[kind_of(gives)] if gives else VOID

    def typed(pointer: Any, index: Any, *_: Any) -> tuple[Any, Body]:
        def body(context: Any, b: Any, sig: Any, args: Any) -> Any:
            place = b.ptrtoint(b.gep(args[0], [args[1]]), I64)
            found = inline(b, text, constraints, result, [place, *args[2:]], effects=True)
            return found if gives else None

        return (kind_of(gives) if gives else types.void)(pointer, types.int64, *map(kind_of, kinds)), body

    return function(name, f"pointer index {' '.join('abcd'[: len(kinds)])}", typed)


def _stage_at() -> Any:
    """``stage_at(first, size, k)``: the address of element k in shared memory.

    In 32 bits: the compiler finds it in uniform registers, where the same sum of Python's integers takes others.
    """
    return numeric("stage_at", ("i32", "i32", "i32"), "i32", lambda b, first, size, k: b.add(first, b.mul(size, k)))


def _pure(name: str, text: str, takes: str, gives: str) -> Any:
    kinds = takes.split()
    constraints, result = constrained(kinds, gives), LLVM[kind_of(gives)]
    return numeric(name, kinds, gives, lambda b, *a: inline(b, text, constraints, result, a))


def _convert() -> Any:
    """``f32_i32(i)``: a position below 2^24 as a float, exactly."""
    return numeric("f32_i32", ("i32",), "f32", lambda b, i: b.sitofp(i, F32))


def _has_bit() -> Any:
    """``has_bit(word, k)``: whether bit k is set."""

    def body(b: Any, word: Any, k: Any) -> Any:
        return b.trunc(b.lshr(word, k), ir.IntType(1))

    return numeric("has_bit", ("u32", "i32"), "b1", body)


WAIT, WAIT_CLUSTER = (
    f"{{ .reg .pred p; W: mbarrier.try_wait.parity{order}.shared::cta.b64 p, [$0], $1; @p bra D; bra W; D: }}"
    for order in ("", ".acquire.cluster")
)
ARRIVE = "{ .reg .pred p; setp.ne.s32 p, $1, 0; @p mbarrier.arrive.shared::cta.b64 _, [$0]; }"
# Counts at the barrier of both blocks of a pair, which lies at one address in each.
ARRIVE_PAIR = (
    "{ .reg .pred p; .reg .b32 a, b; setp.ne.s32 p, $1, 0; "
    "mapa.shared::cluster.u32 a, $0, 0; mapa.shared::cluster.u32 b, $0, 1; "
    "@p mbarrier.arrive.shared::cluster.b64 _, [a]; @p mbarrier.arrive.shared::cluster.b64 _, [b]; }"
)
# Another block of the cluster: what lies at the same address there (PTX ISA 9.0, "mapa"). An arrival releases nothing
# to other blocks: `.release.cluster` would wait for all of a thread's memory, microseconds on a busy device, and stages
# are read by products that have ended. What was stored there comes before it by `fence_cluster` of every thread and a
# barrier of the warp; the wait acquires it.
PEER_STORE = "{ .reg .b32 a; mapa.shared::cluster.u32 a, $0, $1; st.shared::cluster.v4.f32 [a], {$2, $3, $4, $5}; }"
ARRIVE_PEER = (
    "{ .reg .pred p; .reg .b32 a; setp.ne.s32 p, $2, 0; mapa.shared::cluster.u32 a, $0, $1; "
    "@p mbarrier.arrive.shared::cluster.b64 _, [a]; }"
)
# Until a counter that other blocks raise has reached a number. What they wrote before is seen from here on, by bulk
# copies too (PTX ISA 9.0, "Proxies": these are another way to memory than loads and stores).
COUNT_WAIT = (
    "{ .reg .pred p; .reg .b32 v; W: ld.acquire.gpu.global.s32 v, [$0]; setp.ge.s32 p, v, $1; @p bra D; "
    "nanosleep.u32 40; bra W; D: fence.proxy.async.global; }"
)
INSTRUCTIONS = {  # text, what it takes, what it gives; all order memory
    # The descriptor of a tensor, to the cache that copies look it up in: 128 bytes that the first copy would wait for.
    "prefetch_map": ("prefetch.tensormap [$0];", "u64"),
    "mbarrier_init": ("mbarrier.init.shared::cta.b64 [$0], $1;", "i32 i32"),
    "fence_mbarrier_init": ("fence.mbarrier_init.release.cluster;",),
    "mbarrier_expect_tx": ("mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;", "i32 i32"),
    "mbarrier_wait": (WAIT, "i32 i32"),
    "mbarrier_wait_cluster": (WAIT_CLUSTER, "i32 i32"),
    "mbarrier_arrive": (ARRIVE, "i32 i32"),
    "mbarrier_arrive_pair": (ARRIVE_PAIR, "i32 i32"),
    "mbarrier_arrive_peer": (ARRIVE_PEER, "i32 i32 i32"),
    "named_barrier_sync": ("bar.sync $0, $1;", "i32 i32"),
    "named_barrier_arrive": ("bar.arrive $0, $1;", "i32 i32"),
    "fence_cluster": ("fence.acq_rel.cluster;",),
    "fence_proxy_async": ("fence.proxy.async.shared::cta;",),
    # What this thread wrote, before bulk copies that follow a barrier, a `counter_add_release` of any of its threads
    # and a `counter_wait_acquire`: the count releases what all of them wrote before the barrier.
    "fence_proxy_async_global": ("fence.proxy.async.global;",),
    "tma_store_wait": ("cp.async.bulk.wait_group.read 0;",),
    "shared_load_b32": ("ld.shared.b32 $0, [$1];", "i32", "i32"),
    "shared_store_b32": ("st.shared.b32 [$0], $1;", "i32 i32"),
    "shared_load_f32": ("ld.shared.f32 $0, [$1];", "i32", "f32"),
    "shared_store_f32": ("st.shared.f32 [$0], $1;", "i32 f32"),
    # an element of 16 bits
    "shared_load_bfloat16": (
        "{ .reg .b16 h, z; ld.shared.b16 h, [$1]; mov.b16 z, 0; mov.b32 $0, {z, h}; }",
        "i32",
        "f32",
    ),
    "shared_load_float16": ("{ .reg .b16 h; ld.shared.b16 h, [$1]; cvt.f32.f16 $0, h; }", "i32", "f32"),
    # 16 bytes to the same address of another block of the cluster: (address, rank, a, b, c, d)
    "peer_store_quad": (PEER_STORE, "i32 i32 f32 f32 f32 f32"),
    # words of four 8 × 8 matrices to rows of 16 bytes in shared memory: (address, a, b, c, d)
    "stmatrix_x4": ("stmatrix.sync.aligned.m8n8.x4.shared.b16 [$0], {$1, $2, $3, $4};", "i32 u32 u32 u32 u32"),
}
OF_ELEMENTS = {
    # 16 bytes from shared memory to an element and those after it: (pointer, index, address)
    "copy_vector": (
        "{ .reg .b32 a, b, c, d; ld.shared.v4.b32 {a, b, c, d}, [$1]; st.global.v4.b32 [$0], {a, b, c, d}; }",
        "i32",
    ),
    # 16 bytes from an element and those after it to shared memory, behind the thread that asks for them, which has to
    # wait for all of its copies before it tells others: (pointer, index, address)
    **{f"fetch_{d}x8": ("cp.async.cg.shared.global [$1], [$0], 16;", "i32") for d in ("bfloat16", "float16")},
    # So many bytes from shared memory to an element and those after it, in multiples of 16 from a multiple of 16 on:
    # (pointer, index, address, size). They belong to the copy engine until the thread has passed `tma_store_wait`.
    "bulk_store": (
        "cp.async.bulk.global.shared::cta.bulk_group [$0], [$1], $2; cp.async.bulk.commit_group;",
        "i32 i32",
    ),
    "counter_add_release": ("red.release.gpu.global.add.s32 [$0], 1;",),
    "counter_wait_acquire": (COUNT_WAIT, "i32"),
    "counter_add_acq_rel": ("atom.acq_rel.gpu.global.add.s32 $0, [$1], 1;", "", "i32"),
}
PURE = {  # without effects
    # two numbers, rounded once, in one word, the first in its lower half
    **{f"pack_{d}": (f"cvt.rn.{TYPE[d]}x2.f32 $0, $2, $1;", "f32 f32", "u32") for d in ("bfloat16", "float16")},
    "quotient": ("div.u32 $0, $1, $2;", "i32 i32", "i32"),
    "exp2_fast": ("ex2.approx.ftz.f32 $0, $1;", "f32", "f32"),
    "fma_f32": ("fma.rn.f32 $0, $1, $2, $3;", "f32 f32 f32", "f32"),
}
MATRICES = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {};"  # the fragments of a 16 × 16 part of a left operand
MAKERS: dict[str, Callable[[], Any]] = {
    "shared_base": _shared_base,
    "descriptor": _descriptor,
    "stage_at": _stage_at,
    "f32_i32": _convert,
    "has_bit": _has_bit,
    "opaque": partial(instruction, "opaque", "mov.b32 $0, $1;", "i32", "i32", memory=False),
    "warp_uniform": partial(
        instruction, "warp_uniform", "shfl.sync.idx.b32 $0, $1, 0, 31, -1;", "i32", "i32", memory=False
    ),
    "ldmatrix_x4": partial(_loaded, "ldmatrix_x4", MATRICES, 4, "r", I32),
    "shared_load_pair": partial(_loaded, "shared_load_pair", "ld.shared.v2.f32 {};", 2, "f", F32),
    "shared_load_quad": partial(_loaded, "shared_load_quad", "ld.shared.v4.f32 {};", 4, "f", F32),
    **{name: partial(instruction, name, *row) for name, row in INSTRUCTIONS.items()},
    **{name: partial(_of_element, name, *row) for name, row in OF_ELEMENTS.items()},
    **{name: partial(_pure, name, *row) for name, row in PURE.items()},
}


__getattr__ = lazy(__name__, MAKERS, globals())
