"""What generated CUDA kernels do that Python has no word for: typed loads and stores, shuffles, clusters, arrivals.

Pointers are `types.CPointer` of the storage type (`ir.STORAGE`; bfloat16 and float16 are passed as uint16, 8-bit floats
and Booleans as uint8), indices count elements. A load widens narrow floats to float32 and integers to int64; a store
rounds once, to nearest even (float8_e4m3fn saturates). ``load_<dtype>x<V>`` and ``store_<dtype>x<V>`` move V elements
(16 bytes at most) at once; the address must be a multiple of their size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.cuda.extending import intrinsic

from redalg.kernels.gpu_convert import narrow, widen
from redalg.kernels.ir import STORAGE

I8, I16, I32, I64 = (ir.IntType(b) for b in (8, 16, 32, 64))
F32, F64 = ir.FloatType(), ir.DoubleType()
LLVM = {
    types.float32: F32,
    types.float64: F64,
    types.int32: I32,
    types.int64: I64,
    types.uint32: I32,
    types.boolean: ir.IntType(1),
    types.uint64: I64,
}
POINTEE = {
    "float32": types.float32, "float64": types.float64, "bfloat16": types.uint16, "float16": types.uint16,
    "float8_e4m3fn": types.uint8, "float8_e5m2": types.uint8, "bool": types.uint8,
    **{f"{u}int{b}": getattr(types, f"{u}int{b}") for u in ("", "u") for b in (8, 16, 32, 64)},
}  # fmt: skip
CELL = {"float32": F32, "float64": F64} | {
    n: ir.IntType(8 * b) for n, b in STORAGE.items() if n not in ("float32", "float64")
}
VALUE = {
    **{n: types.float32 for n in STORAGE if "float" in n},
    **{n: types.int64 for n in STORAGE if "int" in n},
    "float64": types.float64, "bool": types.boolean,
}  # fmt: skip


def _constant(value: int) -> ir.Constant:
    return ir.Constant(I32, value)


def _load(dtype: str, width: int) -> Any:
    cell, value = CELL[dtype], VALUE[dtype]

    @intrinsic
    def load(typing: Any, pointer: Any, index: Any) -> Any:
        signature = (types.UniTuple(value, width) if width > 1 else value)(pointer, index)

        def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
            place = b.gep(args[0], [args[1]])
            if width == 1:
                return widen(b, dtype, b.load(place))
            vector = b.load(b.bitcast(place, ir.VectorType(cell, width).as_pointer()))
            vector.align = width * STORAGE[dtype]
            cells = [b.extract_element(vector, _constant(k)) for k in range(width)]
            return context.make_tuple(b, sig.return_type, [widen(b, dtype, c) for c in cells])

        return signature, generate

    return load


def _load_fresh(dtype: str) -> Any:
    """A load that sees what other blocks wrote (volatile: neither cached by the compiler nor read-only)."""
    value = types.uint64 if dtype == "uint64" else VALUE[dtype]

    @intrinsic
    def load(typing: Any, pointer: Any, index: Any) -> Any:
        def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
            kind, bits = {"float32": ("f", 32), "float64": ("d", 64), "bool": ("h", 8)}.get(dtype, ("l", 64))
            place = b.ptrtoint(b.gep(args[0], [args[1]]), I64)
            if dtype == "bool":
                kind, bits = "r", 8
            result = I32 if dtype == "bool" else LLVM[value]
            suffix = {"f": f"f{bits}", "d": f"f{bits}"}.get(kind, f"u{bits}")
            asm = ir.InlineAsm(
                ir.FunctionType(result, [I64]), f"ld.relaxed.gpu.global.{suffix} $0, [$1];" if dtype != "bool"
                else "ld.volatile.global.u8 $0, [$1];", f"={kind},l,~{{memory}}", True
            )  # fmt: skip
            found = b.call(asm, [place])
            return b.icmp_unsigned("!=", found, ir.Constant(I32, 0)) if dtype == "bool" else found

        return value(pointer, index), generate

    return load


def _store(dtype: str, width: int) -> Any:
    cell, value = CELL[dtype], VALUE[dtype]

    @intrinsic
    def store(typing: Any, pointer: Any, index: Any, given: Any) -> Any:
        signature = types.void(pointer, index, types.UniTuple(value, width) if width > 1 else value)

        def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
            place = b.gep(args[0], [args[1]])
            if width == 1:
                b.store(narrow(b, dtype, args[2]), place)
                return context.get_dummy_value()
            vector = ir.Constant(ir.VectorType(cell, width), ir.Undefined)
            for k in range(width):
                vector = b.insert_element(vector, narrow(b, dtype, b.extract_value(args[2], k)), _constant(k))
            b.store(vector, b.bitcast(place, vector.type.as_pointer())).align = width * STORAGE[dtype]
            return context.get_dummy_value()

        return signature, generate

    return store


def _asm(text: str, constraints: str, result: Any, arguments: list[Any], effects: bool = True) -> Any:
    """An instruction as a function; integer arguments of another width are converted."""

    def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
        taken = [_as_width(b, a, LLVM[t]) for a, t in zip(args, arguments, strict=True)]
        returned = ir.VoidType() if result is types.void else LLVM[result]
        asm = ir.InlineAsm(ir.FunctionType(returned, [LLVM[t] for t in arguments]), text, constraints, effects)
        found = b.call(asm, taken, attrs=("convergent", "nounwind") if effects else ("nounwind",))
        return context.get_dummy_value() if result is types.void else found

    return _with_arity(len(arguments), lambda given: result(*given), generate, arguments)


def _with_arity(count: int, signature: Callable[[Any], Any], generate: Any, arguments: list[Any]) -> Any:
    """`intrinsic` reads the number of arguments off the function, so that one is made for each number."""

    def typed(given: tuple[Any, ...]) -> Any:
        kept = [
            g if isinstance(g, types.Integer) and isinstance(t, types.Integer) else t
            for g, t in zip(given, arguments, strict=True)
        ]
        return signature(kept), generate

    if count == 0:
        return intrinsic(lambda typing: typed(()))
    if count == 1:
        return intrinsic(lambda typing, a: typed((a,)))
    if count == 2:
        return intrinsic(lambda typing, a, b: typed((a, b)))
    return intrinsic(lambda typing, a, b, c: typed((a, b, c)))


def _as_width(b: Any, value: Any, wanted: Any) -> Any:
    if value.type == wanted or not isinstance(wanted, ir.IntType):
        return value
    return b.trunc(value, wanted) if value.type.width > wanted.width else b.sext(value, wanted)


# --- between the lanes of a warp -------------------------------------------------------------------------------------


def _shuffle(mode: str, kind: Any) -> Any:
    """shfl.sync of a 32-bit word, or of both halves of a 64-bit one; all lanes of the warp take part."""
    bits = LLVM[kind].width if isinstance(LLVM[kind], ir.IntType) else {F32: 32, F64: 64}[LLVM[kind]]
    clamp = 31 if mode != "up" else 0

    @intrinsic
    def shuffle(typing: Any, value: Any, by: Any) -> Any:
        def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
            by = _as_width(b, args[1], I32)
            asm = ir.InlineAsm(
                ir.FunctionType(I32, [I32, I32]), f"shfl.sync.{mode}.b32 $0, $1, $2, {clamp}, -1;", "=r,r,r", True
            )

            def moved(word: Any) -> Any:
                return b.call(asm, [word, by], attrs=("convergent", "nounwind"))

            if bits < 32:
                return b.trunc(moved(b.zext(args[0], I32)), LLVM[kind])
            if bits == 32:
                return b.bitcast(moved(b.bitcast(args[0], I32)), LLVM[kind])
            word = b.bitcast(args[0], I64)
            low, high = moved(b.trunc(word, I32)), moved(b.trunc(b.lshr(word, ir.Constant(I64, 32)), I32))
            joined = b.or_(b.zext(low, I64), b.shl(b.zext(high, I64), ir.Constant(I64, 32)))
            return b.bitcast(joined, LLVM[kind])

        return kind(kind, by), generate

    return shuffle


@intrinsic
def shfl_xor_some_u64(typing: Any, value: Any, mask: Any, width: Any) -> Any:
    """shfl.sync.bfly of a 64-bit word among the `width` neighbouring lanes (a power of two) this lane belongs to."""

    def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
        mask, width = (_as_width(b, a, I32) for a in args[1:])
        lane = b.call(ir.InlineAsm(ir.FunctionType(I32, []), "mov.u32 $0, %laneid;", "=r", False), [])
        first = b.and_(lane, b.neg(width))
        members = b.shl(b.sub(b.shl(ir.Constant(I32, 1), width), ir.Constant(I32, 1)), first)
        asm = ir.InlineAsm(
            ir.FunctionType(I32, [I32, I32, I32]), "shfl.sync.bfly.b32 $0, $1, $2, 31, $3;", "=r,r,r,r", True
        )
        low = b.call(asm, [b.trunc(args[0], I32), mask, members], attrs=("convergent", "nounwind"))
        high = b.trunc(b.lshr(args[0], ir.Constant(I64, 32)), I32)
        high = b.call(asm, [high, mask, members], attrs=("convergent", "nounwind"))
        return b.or_(b.zext(low, I64), b.shl(b.zext(high, I64), ir.Constant(I64, 32)))

    return types.uint64(types.uint64, mask, width), generate


# --- between the blocks of a cluster ---------------------------------------------------------------------------------


def _remote(kind: Any) -> Any:
    """Element `index` of a shared array of another block of the cluster (ld.shared::cluster)."""
    bits, letter = {
        types.float32: ("f32", "f"), types.float64: ("f64", "d"), types.int64: ("b64", "l"), types.boolean: ("u8", "r"),
        types.uint64: ("b64", "l"),
    }[kind]  # fmt: skip
    text = (
        "{.reg .b32 a; .reg .b32 r; cvt.u32.u64 a, $1; cvt.u32.u64 r, $2; "
        f"mapa.shared::cluster.u32 a, a, r; ld.shared::cluster.{bits} $0, [a];}}"
    )

    @intrinsic
    def load(typing: Any, array: Any, index: Any, rank: Any) -> Any:
        def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
            data = context.make_array(sig.args[0])(context, b, args[0]).data
            generic = b.ptrtoint(b.gep(data, [args[1]]), I64)
            shared = b.call(
                ir.InlineAsm(ir.FunctionType(I64, [I64]), "cvta.to.shared.u64 $0, $1;", "=l,l", False), [generic]
            )
            returned = I32 if kind is types.boolean else LLVM[kind]
            asm = ir.InlineAsm(ir.FunctionType(returned, [I64, I64]), text, f"={letter},l,l,~{{memory}}", True)
            found = b.call(asm, [shared, _as_width(b, args[2], I64)])
            return b.icmp_unsigned("!=", found, ir.Constant(I32, 0)) if kind is types.boolean else found

        return kind(array, index, rank), generate

    return load


cluster_sync = _asm(
    "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;", "~{memory}", types.void, []
)

# --- between the blocks of a grid ------------------------------------------------------------------------------------

fence_gpu = _asm("fence.acq_rel.gpu;", "~{memory}", types.void, [])
udiv32 = _asm("div.u32 $0, $1, $2;", "=r,r,r", types.int32, [types.int32, types.int32], False)
urem32 = _asm("rem.u32 $0, $1, $2;", "=r,r,r", types.int32, [types.int32, types.int32], False)


@intrinsic
def atomic_inc_acq_rel(typing: Any, pointer: Any, index: Any) -> Any:
    """Add 1 to a counter of uint32; what it held before. Orders memory on both sides."""

    def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
        place = b.ptrtoint(b.gep(args[0], [args[1]]), I64)
        asm = ir.InlineAsm(
            ir.FunctionType(I32, [I64]), "atom.add.acq_rel.gpu.global.u32 $0, [$1], 1;", "=r,l,~{memory}", True
        )
        return b.zext(b.call(asm, [place]), I64)

    return types.int64(pointer, index), generate


# --- a value with its position in one word (`redalg.kernels.packing`) ------------------------------------------------


@intrinsic
def key_of(typing: Any, value: Any, place: Any) -> Any:
    """The key of a float32 at a position below 2^32 - 1: larger values first, NaN before all, then lower positions."""

    def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
        value = b.fadd(args[0], ir.Constant(F32, 0.0))  # -0.0 becomes 0.0, which it equals
        bits = b.bitcast(value, I32)
        flip = b.or_(b.ashr(bits, ir.Constant(I32, 31)), ir.Constant(I32, 1 << 31))
        upper = b.xor(bits, flip)
        upper = b.select(b.fcmp_unordered("uno", value, value), ir.Constant(I32, 0xFFFFFFFF), upper)
        lower = b.not_(_as_width(b, args[1], I32))
        return b.or_(b.shl(b.zext(upper, I64), ir.Constant(I64, 32)), b.zext(lower, I64))

    return types.uint64(types.float32, place), generate


@intrinsic
def key_value(typing: Any, key: Any) -> Any:
    """The value in a key; -inf for the key of no element."""

    def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
        upper = b.trunc(b.lshr(args[0], ir.Constant(I64, 32)), I32)
        flip = b.or_(b.not_(b.ashr(upper, ir.Constant(I32, 31))), ir.Constant(I32, 1 << 31))
        nothing = b.icmp_unsigned("==", args[0], ir.Constant(I64, 0))
        value = b.bitcast(b.xor(upper, flip), F32)
        return b.select(nothing, ir.Constant(F32, float("-inf")), value)

    return types.float32(types.uint64), generate


@intrinsic
def key_place(typing: Any, key: Any) -> Any:
    """The position in a key; -1 for the key of no element."""

    def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
        place = b.zext(b.not_(b.trunc(args[0], I32)), I64)
        nothing = b.icmp_unsigned("==", args[0], ir.Constant(I64, 0))
        return b.select(nothing, ir.Constant(I64, -1), place)

    return types.int64(types.uint64), generate


# --- by name ---------------------------------------------------------------------------------------------------------

KINDS = {
    "f32": types.float32, "f64": types.float64, "i32": types.int32, "i64": types.int64, "b1": types.boolean, "u64": types.uint64,
}  # fmt: skip
for _dtype, _bytes in STORAGE.items():
    for _width in (1, 2, 4, 8, 16):
        if _width * _bytes <= 16 or _width <= 8 and _bytes <= 4:
            _end = f"x{_width}" if _width > 1 else ""
            globals()[f"load_{_dtype}{_end}"] = _load(_dtype, _width)
            globals()[f"store_{_dtype}{_end}"] = _store(_dtype, _width)
for _dtype in ("float32", "float64", "int64", "uint64", "bool"):
    globals()[f"load_acquire_{_dtype}"] = _load_fresh(_dtype)
for _name, _kind in KINDS.items():
    for _mode, _word in (("bfly", "xor"), ("down", "down"), ("idx", "idx")):
        globals()[f"shfl_{_word}_{_name}"] = _shuffle(_mode, _kind)
    if _name != "i32":
        globals()[f"dsm_load_{_name}"] = _remote(_kind)
