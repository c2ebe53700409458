"""Arrays in generated CPU kernels: addresses as typed pointers, and loads and stores of every storage type.

Pointers spare Numba's test for negative indices, which keeps loops from being vectorised; the compiler may still see
that a loop runs over consecutive elements. A load widens narrow floats to float32 and integers to int64, a store rounds
once, to nearest even.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.extending import intrinsic

from redalg.kernels import cpu_math
from redalg.kernels.ir import STORAGE

CELL = {
    "float32": types.float32, "float64": types.float64, "float16": types.uint16, "bfloat16": types.uint16,
    "float8_e4m3fn": types.uint8, "float8_e5m2": types.uint8, "bool": types.uint8,
    **{f"{u}int{b}": getattr(types, f"{u}int{b}") for u in ("", "u") for b in (8, 16, 32, 64)},
}  # fmt: skip
# Of every function that takes arrays. LLVM has processors by Intel compute on half of their widest registers, for the
# sake of the clock; here most time goes into exponentials and the like, of which whole registers hold twice as many.
WIDE = '"prefer-vector-width"="512"'
LINE = 64  # bytes; buffers on the stack start at a cache line
NARROW = frozenset({"float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"})


def _pointer(cell: Any) -> Any:
    @intrinsic
    def pointer(typing: Any, address: Any) -> Any:
        kind = types.CPointer(cell)

        def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
            set.add(b.function.attributes, WIDE)  # llvmlite's own `add` knows attributes without a value alone
            return b.inttoptr(args[0], context.get_value_type(kind))

        return kind(types.int64), generate

    return pointer


@intrinsic
def _read(typing: Any, pointer: Any, index: Any) -> Any:
    def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
        return b.load(b.gep(args[0], [args[1]]))

    return pointer.dtype(pointer, types.int64), generate


@intrinsic
def _write(typing: Any, pointer: Any, index: Any, value: Any) -> Any:
    def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
        b.store(args[2], b.gep(args[0], [args[1]]))
        return ir.Constant(ir.IntType(8).as_pointer(), None)

    return types.voidptr(pointer, types.int64, pointer.dtype), generate


_get: Any = _read  # what Numba makes of an intrinsic is called without the typing context
_put: Any = _write


def _buffer(cell: Any, heap: bool) -> Any:
    """Room for a number of cells that nothing else points to: on the stack if they are few, else from the C library."""

    @intrinsic
    def buffer(typing: Any, count: Any) -> Any:
        kind = types.CPointer(cell)

        def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
            item = context.get_data_type(cell)
            if not heap:
                room = b.alloca(item, size=args[0])
                room.align = LINE
                return room
            word, byte = ir.IntType(64), ir.IntType(8).as_pointer()
            size = b.add(b.mul(args[0], word(context.get_abi_sizeof(item))), word(1))  # of nothing it may give none
            callee = cgutils.get_or_insert_function(b.module, ir.FunctionType(byte, [word]), "malloc")
            callee.return_value.add_attribute("noalias")
            return b.bitcast(b.call(callee, [size]), context.get_value_type(kind))

        return kind(types.int64), generate

    return buffer


@intrinsic
def free(typing: Any, pointer: Any) -> Any:
    """Give back what came from the C library."""

    def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        callee = cgutils.get_or_insert_function(b.module, ir.FunctionType(ir.VoidType(), [byte]), "free")
        b.call(callee, [b.bitcast(args[0], byte)])
        return context.get_dummy_value()

    return types.none(pointer), generate


@intrinsic
def prefetch(typing: Any, pointer: Any, index: Any) -> Any:
    """Bring the cache line of an element nearer; any index will do, whether there is an element or not."""

    def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        shape = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        callee = cgutils.get_or_insert_function(b.module, shape, "llvm.prefetch.p0")
        b.call(callee, [b.bitcast(b.gep(args[0], [args[1]]), byte), word(0), word(2), word(1)])
        return context.get_dummy_value()

    return types.none(pointer, types.int64), generate


def _stream(cell: Any) -> Any:
    """``stream(pointer, index, step, buffer, count)``: elements of a buffer to memory, whole lines past the caches.

    A line that is written as a whole need not be read before. Where elements do not lie side by side (`step`), and at
    either end, they are written as ever. `drained` has to follow before others read them.
    """

    @intrinsic
    def stream(typing: Any, pointer: Any, index: Any, step: Any, buffer: Any, count: Any) -> Any:
        def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
            target, index, step, source, count = args
            word, item = ir.IntType(64), context.get_data_type(cell)
            size = context.get_abi_sizeof(item)
            lanes = LINE // size
            line = ir.VectorType(item, lanes).as_pointer()
            past = b.module.add_metadata([ir.Constant(ir.IntType(32), 1)])
            first = b.gep(target, [index])

            def one_by_one(low: Any, high: Any) -> None:
                with cgutils.for_range(b, b.sub(high, low)) as loop:
                    k = b.add(low, loop.index)
                    b.store(b.load(b.gep(source, [k])), b.gep(first, [b.mul(k, step)]))

            ahead = b.and_(b.udiv(b.sub(word(0), b.ptrtoint(first, word)), word(size)), word(lanes - 1))
            begin = b.select(b.icmp_signed("<", ahead, count), ahead, count)
            whole = b.and_(b.ptrtoint(first, word), word(size - 1))  # elements at odd addresses have no lines
            fits = b.icmp_signed("==", b.or_(whole, b.xor(step, word(1))), word(0))
            begin = b.select(fits, begin, count)
            lines = b.sdiv(b.sub(count, begin), word(lanes))
            end = b.add(begin, b.mul(lines, word(lanes)))
            one_by_one(word(0), begin)
            with cgutils.for_range(b, lines) as loop:
                k = b.add(begin, b.mul(loop.index, word(lanes)))
                values = b.load(b.bitcast(b.gep(source, [k]), line), align=size)
                written = b.store(values, b.bitcast(b.gep(first, [k]), line), align=LINE)
                written.set_metadata("nontemporal", past)
            one_by_one(end, count)
            return context.get_dummy_value()

        return types.none(pointer, types.int64, types.int64, buffer, types.int64), generate

    return stream


@intrinsic
def drained(typing: Any) -> Any:
    """What went past the caches is seen by other threads from here on."""

    def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
        b.fence("seq_cst")
        return context.get_dummy_value()

    return types.none(), generate


@intrinsic
def missing(typing: Any, pointer: Any) -> Any:
    """Whether there was no room."""

    def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
        return b.icmp_unsigned("==", args[0], ir.Constant(args[0].type, None))

    return types.boolean(pointer), generate


def _inlined(function: Any) -> Any:
    return njit(fastmath=False, error_model="numpy", forceinline=True)(function)


def _load(dtype: str) -> Any:
    if dtype in NARROW:
        widen = getattr(cpu_math, f"widen_{dtype}_f32")
        return _inlined(lambda pointer, i: widen(_get(pointer, i)))
    if dtype == "bool":
        return _inlined(lambda pointer, i: _get(pointer, i) != 0)
    if dtype.startswith("float"):
        return _inlined(lambda pointer, i: _get(pointer, i))
    return _inlined(lambda pointer, i: types.int64(_get(pointer, i)))


def _store(dtype: str) -> Any:
    cell = CELL[dtype]
    if dtype in NARROW:
        narrow = getattr(cpu_math, f"narrow_{dtype}_f32")
        return _inlined(lambda pointer, i, value: _put(pointer, i, narrow(value)))
    return _inlined(lambda pointer, i, value: _put(pointer, i, cell(value)))


for _dtype in STORAGE:
    globals()[f"pointer_{_dtype}"] = _pointer(CELL[_dtype])
    globals()[f"stream_{_dtype}"] = _stream(CELL[_dtype])
    globals()[f"stack_{_dtype}"], globals()[f"heap_{_dtype}"] = (_buffer(CELL[_dtype], heap) for heap in (False, True))
    globals()[f"load_{_dtype}"] = _load(_dtype)
    globals()[f"store_{_dtype}"] = globals()[f"store_stream_{_dtype}"] = _store(_dtype)
