"""Arrays in generated CPU kernels: addresses as typed pointers, and loads and stores of every storage type.

Pointers spare a test for negative indices, which keeps loops from being vectorised; the compiler may still see
that a loop runs over consecutive elements. A load widens narrow floats to float32 and integers to int64, a store rounds
once, to nearest even.

>>> OPERATIONS["load_bfloat16"].takes, OPERATIONS["load_bfloat16"].gives
(('*u16', 'i64'), 'f32')
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from redalg.kernels.cpu.math.table import OPERATIONS as MATH
from redalg.kernels.cpu.math.values import KINDS, Operation, type_of
from redalg.kernels.ir.program import STORAGE

CELL = {
    "float32": "f32",
    "float64": "f64",
    "float16": "u16",
    "bfloat16": "u16",
    "float8_e4m3fn": "u8",
    "float8_e5m2": "u8",
    "bool": "u8",
    **{f"{word}{bits}": f"{sign}{bits}" for word, sign in (("int", "i"), ("uint", "u")) for bits in (8, 16, 32, 64)},
}
# Of every function that takes arrays. LLVM has processors by Intel compute on half of their widest registers, for the
# sake of the clock; here most time goes into exponentials and the like, of which whole registers hold twice as many.
WIDE = '"prefer-vector-width"="512"'
LINE = 64  # bytes; buffers on the stack start at a cache line
NARROW = frozenset({"float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"})
I32, I64 = ir.IntType(32), ir.IntType(64)
BYTE = ir.IntType(8).as_pointer()


def bytes_of(kind: str) -> int:
    return int(kind[1:]) // 8


def _declared(b: Any, name: str, gives: Any, *takes: Any) -> Any:
    found = b.module.globals.get(name)
    return found if found is not None else ir.Function(b.module, ir.FunctionType(gives, takes), name)


def _pointer(cell: str) -> Operation:
    def emit(b: Any, address: Any) -> Any:
        set.add(b.function.attributes, WIDE)  # llvmlite's own `add` knows attributes without a value alone
        return b.inttoptr(address, type_of(f"*{cell}"))

    return Operation(("i64",), f"*{cell}", emit)


def _buffer(cell: str, heap: bool) -> Operation:
    """Room for a number of cells that nothing else points to: on the stack if they are few, else from the C library."""

    def emit(b: Any, count: Any) -> Any:
        if not heap:
            cells = b.alloca(KINDS[cell], size=count)
            cells.align = LINE
            return cells
        size = b.add(b.mul(count, I64(bytes_of(cell))), I64(1))  # of nothing it may give none
        callee = _declared(b, "malloc", BYTE, I64)
        callee.return_value.add_attribute("noalias")
        return b.bitcast(b.call(callee, [size]), type_of(f"*{cell}"))

    return Operation(("i64",), f"*{cell}", emit)


def _free(b: Any, pointer: Any) -> None:
    """Give back what came from the C library."""
    b.call(_declared(b, "free", ir.VoidType(), BYTE), [b.bitcast(pointer, BYTE)])


def _missing(b: Any, pointer: Any) -> Any:
    """Whether there was no room."""
    return b.icmp_unsigned("==", pointer, ir.Constant(pointer.type, None))


def _prefetch(b: Any, pointer: Any, index: Any) -> None:
    """Bring the cache line of an element nearer; any index will do, whether there is an element or not."""
    callee = _declared(b, "llvm.prefetch.p0", ir.VoidType(), BYTE, I32, I32, I32)
    b.call(callee, [b.bitcast(b.gep(pointer, [index]), BYTE), I32(0), I32(2), I32(1)])


def _unlikely(b: Any, condition: Any) -> Any:
    """A condition that hardly ever holds: what it guards lies apart, and takes no registers from what does not."""
    bit = ir.IntType(1)
    return b.call(_declared(b, "llvm.expect.i1", bit, bit, bit), [condition, bit(0)])


def _drained(b: Any) -> None:
    """What went past the caches is seen by other threads from here on."""
    b.fence("seq_cst")


@contextmanager
def counted(b: Any, count: Any) -> Iterator[Any]:
    """The body of a loop over 0, 1, … below `count`, whose index it is given."""
    before = b.block
    head, body, done = (b.append_basic_block(f"for.{word}") for word in ("head", "body", "done"))
    b.branch(head)
    b.position_at_end(head)
    index = b.phi(count.type)
    index.add_incoming(count.type(0), before)
    b.cbranch(b.icmp_signed("<", index, count), body, done)
    b.position_at_end(body)
    yield index
    index.add_incoming(b.add(index, count.type(1), flags=["nsw"]), b.block)
    b.branch(head)
    b.position_at_end(done)


def _stream(cell: str) -> Operation:
    """``stream(pointer, index, step, buffer, count)``: elements of a buffer to memory, whole lines past the caches.

    A line that is written as a whole need not be read before. Where elements do not lie side by side (`step`), and at
    either end, they are written as ever. `drained` has to follow before others read them.
    """
    size = bytes_of(cell)
    lanes = LINE // size
    line = ir.VectorType(KINDS[cell], lanes).as_pointer()

    def emit(b: Any, target: Any, index: Any, step: Any, source: Any, count: Any) -> None:
        past = b.module.add_metadata([I32(1)])
        first = b.gep(target, [index])

        def one_by_one(low: Any, high: Any) -> None:
            with counted(b, b.sub(high, low)) as each:
                k = b.add(low, each)
                b.store(b.load(b.gep(source, [k])), b.gep(first, [b.mul(k, step)]))

        leading = b.and_(b.udiv(b.sub(I64(0), b.ptrtoint(first, I64)), I64(size)), I64(lanes - 1))
        begin = b.select(b.icmp_signed("<", leading, count), leading, count)
        whole = b.and_(b.ptrtoint(first, I64), I64(size - 1))  # elements at odd addresses have no lines
        fits = b.icmp_signed("==", b.or_(whole, b.xor(step, I64(1))), I64(0))
        begin = b.select(fits, begin, count)
        lines = b.sdiv(b.sub(count, begin), I64(lanes))
        end = b.add(begin, b.mul(lines, I64(lanes)))
        one_by_one(I64(0), begin)
        with counted(b, lines) as each:
            k = b.add(begin, b.mul(each, I64(lanes)))
            values = b.load(b.bitcast(b.gep(source, [k]), line), align=size)
            written = b.store(values, b.bitcast(b.gep(first, [k]), line), align=LINE)
            written.set_metadata("nontemporal", past)
        one_by_one(end, count)

    return Operation((f"*{cell}", "i64", "i64", f"*{cell}", "i64"), "", emit)


def _load(dtype: str) -> Operation:
    cell = CELL[dtype]
    widen = MATH[f"widen_{dtype}_f32"].emit if dtype in NARROW else None
    extended = "sext" if cell.startswith("i") else "zext"

    def emit(b: Any, pointer: Any, index: Any) -> Any:
        value = b.load(b.gep(pointer, [index]))
        if widen is not None:
            return widen(b, value)
        if dtype == "bool":
            return b.icmp_unsigned("!=", value, value.type(0))
        return value if cell.startswith("f") or value.type == I64 else getattr(b, extended)(value, I64)

    gives = "f32" if widen else "b1" if dtype == "bool" else cell if cell.startswith("f") else "i64"
    return Operation((f"*{cell}", "i64"), gives, emit, apart=True)


def _store(dtype: str) -> Operation:
    cell = CELL[dtype]
    narrow = MATH[f"narrow_{dtype}_f32"].emit if dtype in NARROW else None

    def emit(b: Any, pointer: Any, index: Any, value: Any) -> None:
        b.store(narrow(b, value) if narrow else value, b.gep(pointer, [index]))

    return Operation((f"*{cell}", "i64", "f32" if narrow else cell), "", emit, apart=True)


def _operations() -> dict[str, Operation]:
    table = {
        "free": Operation(("*",), "", _free),
        "missing": Operation(("*",), "b1", _missing),
        "prefetch": Operation(("*", "i64"), "", _prefetch),
        "drained": Operation((), "", _drained),
        "unlikely": Operation(("b1",), "b1", _unlikely),
    }
    ways: dict[str, Callable[[str], Operation]] = {"load": _load, "store": _store, "store_stream": _store}
    for dtype in STORAGE:
        cell = CELL[dtype]
        held = "t8" if dtype == "bool" else cell  # elements of buffers are read by subscripts
        table |= {f"{way}_{dtype}": made(dtype) for way, made in ways.items()}
        table |= {
            f"pointer_{dtype}": _pointer(cell),
            f"stream_{dtype}": _stream(cell),
            f"stack_{dtype}": _buffer(held, heap=False),
            f"heap_{dtype}": _buffer(held, heap=True),
        }
    return table


OPERATIONS = _operations()
