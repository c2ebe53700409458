"""Typed loads and stores: one element, or up to 16 bytes at once, with the cache behaviour in the name.

``load_<dtype>(pointer, i)``, ``load_<dtype>x<V>``, ``store_<dtype>(pointer, i, value)``, ``store_<dtype>x<V>``; after
``load_`` and ``store_`` may stand a way (`WAYS`): ``load_stream_float32x4``, ``load_early_shifted_float16x8``. Pointers
are `types.CPointer` of the storage type (`CELLS`), with the way ``shared`` they are arrays in shared memory of that
type; indices count elements. The address of V elements must be a multiple of their size (16 bytes where they are more:
they are moved in parts of 16). A load widens narrow floats to float32, integers to int64 (``load32_``: those of 32 bits
and less to int32), bool to Boolean; a store rounds once, to nearest even (float8_e4m3fn saturates), and integers wrap.

``load_shifted_<dtype>x<V>``: V elements of at most 16 bytes in all, wherever they begin: from the two aligned vectors
that hold them, so that nothing is touched but vectors of which an element is asked for.
``unaligned_<dtype>x<V>(pointer, i)``: how many elements follow, from element i on,
before the first address that is a multiple of V elements.

``load_relaxed_``, ``load_acquire_``, ``store_relaxed_``, ``store_release_``: single elements that other blocks of the
running grid write or read (PTX ISA 9.0, "Memory Consistency Model", scope .gpu).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.errors import TypingError

from redalg.kernels.code.functions import (
    F32,
    F64,
    GLOBAL,
    I8,
    I16,
    I32,
    I64,
    SHARED,
    VOID,
    compute_capability,
    function,
    inline,
    real_argument,
)
from redalg.kernels.cuda.intrinsics.conversions import has_pairs, narrow, narrow_pair, widen, widen_pair
from redalg.kernels.ir.program import STORAGE
from redalg.kernels.ir.tensor_cores import FP8

VALUE = {
    **{n: types.float32 for n in STORAGE if "float" in n},
    **{n: types.int64 for n in STORAGE if "int" in n},
    "float64": types.float64,
    "bool": types.boolean,
}
LETTER = {I8: "h", I16: "h", I32: "r", I64: "l"}


@dataclass(frozen=True)
class Way:
    """How memory is reached. Empty texts: by LLVM's own load and store, which the compiler may move and join."""

    load: str = ""
    store: str = ""
    space: int = GLOBAL
    stays: bool = False  # a load is where it is written, also where a branch alone takes what it loads


WAYS = {
    "": Way(),
    # Read or written once: no place in L1, first to leave L2. Nothing may write what is loaded while the kernel runs.
    "stream": Way("ld.global.nc.L1::no_allocate", "st.global.cs"),
    "shared": Way(space=SHARED),
    "early": Way("ld.global", stays=True),
}
ORDERED = {
    "relaxed": Way("ld.relaxed.gpu.global", "st.relaxed.gpu.global"),
    "acquire": Way(load="ld.acquire.gpu.global"),
    "release": Way(store="st.release.gpu.global"),
}
WIDTHS = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Shape:
    """V elements of a dtype as the machine words that move them."""

    dtype: str
    width: int

    @property
    def bytes(self) -> int:
        return self.width * STORAGE[self.dtype]

    @property
    def word(self) -> Any:
        """The widest register word: 64 bits for 8-byte elements, else 32 or what there is."""
        return ir.IntType(8 * min(self.bytes, max(4, STORAGE[self.dtype])))

    @property
    def parts(self) -> list[int]:
        """Words of each instruction."""
        total, most = self.bytes * 8 // self.word.width, 128 // self.word.width
        return [most] * (total // most) if total > most else [total]

    @property
    def tuple(self) -> Any:
        value = VALUE[self.dtype]
        return types.UniTuple(value, self.width) if self.width > 1 else value


# --- addresses -------------------------------------------------------------------------------------------------------


def address(context: Any, b: Any, kind: Any, base: Any, index: Any, way: Way) -> Any:
    if isinstance(kind, types.Array):
        base = context.make_array(kind)(context, b, base).data
    place = b.gep(base, [index])
    return b.addrspacecast(place, place.type.pointee.as_pointer(way.space))


def _part(b: Any, place: Any, word: Any, count: int, skip: int) -> Any:
    """The address of a part that begins `skip` words in."""
    kind = ir.VectorType(word, count) if count > 1 else word
    at = b.bitcast(place, word.as_pointer(place.type.addrspace))
    at = b.gep(at, [I32(skip)]) if skip else at
    return b.bitcast(at, kind.as_pointer(place.type.addrspace))


def _suffix(word: Any, count: int) -> str:
    return (f".v{count}" if count > 1 else "") + f".b{word.width}"


# --- words -----------------------------------------------------------------------------------------------------------


def _read(b: Any, place: Any, shape: Shape, way: Way) -> list[Any]:
    found: list[Any] = []
    for count in shape.parts:
        at = _part(b, place, shape.word, count, len(found))
        by_ptx = partial(_read_by_ptx, text=way.load, effects=way.stays, memory=False)
        found += by_ptx(b, at, shape.word, count) if way.load else _read_plain(b, at, count)
    return found


def _read_plain(b: Any, at: Any, count: int) -> list[Any]:
    value = b.load(at)
    if count == 1:
        return [value]
    value.align = count * value.type.element.width // 8
    return [b.extract_element(value, I32(k)) for k in range(count)]


def _read_by_ptx(
    b: Any, at: Any, word: Any, count: int, text: str, effects: bool = False, memory: bool = True
) -> list[Any]:
    letter, address = LETTER[word], b.ptrtoint(at, I64)
    register = I16 if word == I8 else word  # there are no registers of 8 bits
    registers = ", ".join(f"${k}" for k in range(count))
    text = f"{text}{_suffix(word, count)} {f'{{{registers}}}' if count > 1 else '$0'}, [${count}];"
    result = ir.LiteralStructType([register] * count) if count > 1 else register
    clobbers = ",~{memory}" if effects and memory else ""
    found = inline(b, text, ",".join([f"={letter}"] * count) + ",l" + clobbers, result, [address], effects)
    values = [b.extract_value(found, k) for k in range(count)] if count > 1 else [found]
    return [b.trunc(v, word) if word == I8 else v for v in values]


def _write(b: Any, place: Any, shape: Shape, words: list[Any], way: Way) -> None:
    done = 0
    for count in shape.parts:
        at = _part(b, place, shape.word, count, done)
        part = words[done : done + count]
        if way.store:
            _write_by_ptx(b, at, shape.word, part, way.store)
        else:
            _write_plain(b, at, part)
        done += count


def _write_plain(b: Any, at: Any, part: list[Any]) -> None:
    if len(part) == 1:
        b.store(part[0], at)
        return
    value = ir.Constant(at.type.pointee, ir.Undefined)
    for k, word in enumerate(part):
        value = b.insert_element(value, word, I32(k))
    b.store(value, at).align = len(part) * part[0].type.width // 8


def _write_by_ptx(b: Any, at: Any, word: Any, part: list[Any], text: str) -> None:
    letter, count = LETTER[word], len(part)
    part = [b.zext(v, I16) if word == I8 else v for v in part]
    registers = ", ".join(f"${k + 1}" for k in range(count))
    text = f"{text}{_suffix(word, count)} [$0], {f'{{{registers}}}' if count > 1 else '$1'};"
    inline(b, text, "l" + f",{letter}" * count + ",~{memory}", VOID, [b.ptrtoint(at, I64), *part], effects=True)


# --- words and values ------------------------------------------------------------------------------------------------


def _values(b: Any, shape: Shape, words: list[Any]) -> list[Any]:
    """What the words hold, widened."""
    dtype, cc = shape.dtype, compute_capability()
    if dtype in ("float32", "float64"):
        return [b.bitcast(w, F32 if dtype == "float32" else F64) for w in words]
    if dtype.startswith("float8") and shape.width > 1 and cc >= FP8:
        return [v for pair in _split(b, words, 16) for v in widen_pair(b, dtype, pair)]
    return [widen(b, dtype, cell, cc) for cell in _split(b, words, 8 * STORAGE[dtype])]


def _split(b: Any, words: list[Any], bits: int) -> list[Any]:
    if words[0].type.width == bits:
        return words
    kind, per = ir.IntType(bits), words[0].type.width // bits
    return [b.trunc(b.lshr(w, w.type(bits * k)) if k else w, kind) for w in words for k in range(per)]


def _words(b: Any, shape: Shape, values: list[Any]) -> list[Any]:
    """The words that hold the values, rounded."""
    dtype, cc = shape.dtype, compute_capability()
    if dtype in ("float32", "float64"):
        values = [b.fptrunc(v, F32) if dtype == "float32" and v.type == F64 else v for v in values]
        return [b.bitcast(v, I32 if dtype == "float32" else I64) for v in values]
    if shape.width > 1 and has_pairs(dtype, cc):
        cells = [narrow_pair(b, dtype, values[k], values[k + 1], cc) for k in range(0, len(values), 2)]
    else:
        cells = [narrow(b, dtype, v, cc) for v in values]
    return _join(b, cells, shape.word)


def _join(b: Any, cells: list[Any], word: Any) -> list[Any]:
    per = word.width // cells[0].type.width
    if per == 1:
        return cells
    found = []
    for first in range(0, len(cells), per):
        total = b.zext(cells[first], word)
        for k in range(1, per):
            total = b.or_(total, b.shl(b.zext(cells[first + k], word), word(k * cells[0].type.width)))
        found.append(total)
    return found


# --- functions -------------------------------------------------------------------------------------------------------


def _load(name: str, shape: Shape, way: Way, value: Any = None) -> Any:
    result = value or shape.tuple

    def typed(pointer: Any, index: Any) -> Any:
        def body(context: Any, b: Any, sig: Any, args: Any) -> Any:
            place = address(context, b, sig.args[0], args[0], args[1], way)
            found = _values(b, shape, _read(b, place, shape, way))
            found = [b.trunc(v, I32) for v in found] if value is types.int32 else found
            return found[0] if shape.width == 1 else context.make_tuple(b, sig.return_type, found)

        return result(pointer, index), body

    return function(name, "pointer index", typed)


def _place_of(context: Any, b: Any, sig: Any, args: Any) -> tuple[Any, Any]:
    """The address of an element, and that address as a number."""
    place = address(context, b, sig.args[0], args[0], args[1], Way())
    return place, b.ptrtoint(place, I64)


def _unaligned(name: str, shape: Shape) -> Any:
    def typed(pointer: Any, index: Any) -> Any:
        def body(context: Any, b: Any, sig: Any, args: Any) -> Any:
            _, at = _place_of(context, b, sig, args)
            left = b.and_(b.neg(at), I64(shape.bytes - 1))
            return b.lshr(left, I64(STORAGE[shape.dtype].bit_length() - 1))

        return types.int64(pointer, index), body

    return function(name, "pointer index", typed)


def _shifted(name: str, shape: Shape, way: Way) -> Any:
    """A load of a vector that need not be aligned: two that are, and the words between."""

    def typed(pointer: Any, index: Any) -> Any:
        def body(context: Any, b: Any, sig: Any, args: Any) -> Any:
            place, at = _place_of(context, b, sig, args)
            each, mask = STORAGE[shape.dtype], I64(-shape.bytes)
            low, high = b.and_(at, mask), b.and_(b.add(at, I64(shape.bytes - each)), mask)
            words = [w for a in (low, high) for w in _read(b, b.inttoptr(a, place.type), shape, way)]
            found = _values(b, shape, _between(b, words, b.trunc(b.sub(at, low), I32), each))
            return context.make_tuple(b, sig.return_type, found)

        return shape.tuple(pointer, index), body

    return function(name, "pointer index", typed)


def _between(b: Any, words: list[Any], skip: Any, each: int) -> list[Any]:
    """The words that begin `skip` bytes after the first of twice as many."""
    count, kind = len(words) // 2, words[0].type
    step = count
    while step > 1:  # by halves of the vector, quarters, …
        step //= 2
        far = b.icmp_unsigned("!=", b.and_(skip, I32(step * kind.width // 8)), I32(0))
        words = [b.select(far, words[k + step], words[k]) for k in range(len(words) - step)]
    if each * 8 == kind.width:
        return words[:count]
    bits = b.shl(b.and_(skip, I32(kind.width // 8 - 1)), I32(3))
    return [_funnel(b, x, y, bits) for x, y in list(zip(words, words[1:], strict=False))[:count]]


def _funnel(b: Any, low: Any, high: Any, bits: Any) -> Any:
    """The 32 bits that begin so many bits into two words."""
    return inline(b, "shf.r.wrap.b32 $0, $1, $2, $3;", "=r,r,r,r", I32, [low, high, bits])


def _store(name: str, shape: Shape, way: Way, value: Any = None) -> Any:
    def typed(pointer: Any, index: Any, given: Any) -> Any:
        def body(context: Any, b: Any, sig: Any, args: Any) -> None:
            place = address(context, b, sig.args[0], args[0], args[1], way)
            values = [b.extract_value(args[2], k) for k in range(shape.width)] if shape.width > 1 else [args[2]]
            _write(b, place, shape, _words(b, shape, values), way)

        return types.void(pointer, index, value or _taken(name, shape, given)), body

    return function(name, "pointer index value", typed)


def _taken(name: str, shape: Shape, given: Any) -> Any:
    """The type of the value a store takes: float64 is rounded to a narrower float once, not by way of float32."""
    whole: Any = given
    kinds = tuple(whole) if isinstance(given, types.BaseTuple) else (given,)
    if len(kinds) != shape.width:
        raise TypingError(f"{name} takes {shape.width} values, and {len(kinds)} were given")
    wanted = VALUE[shape.dtype]
    if wanted == types.float32 and types.float64 in kinds:
        wanted = types.float64
    for kind in kinds:
        real_argument(name, kind, wanted)
    return types.UniTuple(wanted, shape.width) if shape.width > 1 else wanted


def _ordered(name: str, dtype: str, way: Way) -> Any:
    """One element, in an order that other blocks agree on: a load, or else a store."""
    shape = Shape(dtype, 1)
    result = types.uint64 if dtype == "uint64" else shape.tuple  # words of bits travel between blocks

    def load(pointer: Any, index: Any) -> Any:
        def body(context: Any, b: Any, sig: Any, args: Any) -> Any:
            place = address(context, b, sig.args[0], args[0], args[1], Way())
            at = _part(b, place, shape.word, 1, 0)
            return _values(b, shape, _read_by_ptx(b, at, shape.word, 1, way.load, effects=True))[0]

        return result(pointer, index), body

    if way.load:
        return function(name, "pointer index", load)
    return _store(name, shape, way, result if dtype == "uint64" else None)


def _names() -> Iterator[tuple[str, Callable[[], Any]]]:
    for dtype, size in STORAGE.items():
        for width in (w for w in WIDTHS if w * size <= 32):
            shape, end = Shape(dtype, width), f"{dtype}x{width}" if width > 1 else dtype
            for word, way in WAYS.items():
                label = f"{word}_{end}" if word else end
                yield f"load_{label}", partial(_load, f"load_{label}", shape, way)
                yield f"store_{label}", partial(_store, f"store_{label}", shape, way)
        if "int" in dtype and size <= 4:
            yield f"load32_{dtype}", partial(_load, f"load32_{dtype}", Shape(dtype, 1), Way(), types.int32)
        for word, way in ORDERED.items():
            for verb, one in (("load", Way(load=way.load)), ("store", Way(store=way.store))):
                if one != Way():
                    name = f"{verb}_{word}_{dtype}"
                    yield name, partial(_ordered, name, dtype, one)


def _anywhere() -> Iterator[tuple[str, Callable[[], Any]]]:
    """What vectors that begin anywhere take."""
    for dtype, width in ((d, w) for d, size in STORAGE.items() for w in WIDTHS if 1 < w and w * size <= 16):
        shape, end = Shape(dtype, width), f"{dtype}x{width}"
        if shape.bytes >= 4:
            for word in ("", "early_"):
                name = f"load_{word}shifted_{end}"
                yield name, partial(_shifted, name, shape, WAYS[word.rstrip("_")])
        yield f"unaligned_{end}", partial(_unaligned, f"unaligned_{end}", shape)


MAKERS = {**dict(_names()), **dict(_anywhere())}
