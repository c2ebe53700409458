"""Short rows, several at a time: blocks of rows are turned so that rows lie side by side, and walked as columns.

A row of seven elements keeps a vector of sixteen waiting. A block of rows, transposed in registers to memory that stays
in the first-level cache, is walked as rows side by side are: every vector holds an element of as many rows. What is
written for every element is turned back on its way to memory. Arrays whose rows lie side by side already are read and
written where they are.

The function that does so takes a table, as kernels do, and calls a kernel for one block after the other. Words of its
table: the kernel, the number of words of the kernel's table, rows of a block, of all, the length of a row, the word
that holds the number of rows, the number of arrays, bytes of scratch memory; the kernel's table; and of each array the
word it goes to, what is done with it, bytes of an element, its strides along rows and along the row, its scratch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from string import Template
from typing import NamedTuple

from redalg.graph.node import walk
from redalg.kernels.cpu.build import loaded_text
from redalg.kernels.cpu.math.vectors import shuffles
from redalg.kernels.cpu.schedule import TURNED, is_dear
from redalg.kernels.ir.layouts import View, program_nodes, readings
from redalg.kernels.ir.program import STORAGE, Loop, Param, Program, result_key

# Elements of rows that are turned, of float32, where results are turned back: for one reduction, and for every other
# one. Chosen like all of these by `python -m benchmarks.cpu.turned`, on a Xeon of 512 bits.
FIRST, FURTHER = 28, 26
# Where nothing is turned back: for a sum, an extremum or its position that is all there is, for the first of several
# reductions and for every other one, and for a function such as log of a row.
SUM, EXTREMUM, POSITION = 44, 84, 112
FIRST_ONCE, FURTHER_ONCE, OF_ROWS = 40, 40, 16
ALONE = {"sum": SUM, "max": EXTREMUM, "min": EXTREMUM, "argmax": POSITION, "argmin": POSITION}
WIDER = {1: 1.25, 2: 1.25, 4: 1.0, 8: 0.45}  # by the bytes of an element
BLOCK_ELEMENTS = 4096  # elements of a block, about
SQUARES = 8, 4  # rows and elements that are transposed at a time, of rows at least so long
# Elements of rows that are turned by whole vectors of memory, where rows lie without gaps, and their bits at most.
WOVEN, WOVEN_BITS = range(2, 8), 384
PREFETCHED = 1 << 20  # bytes of an array from which on it is not in the second-level cache
RECORD = 6  # words
MOVED, IN, OUT = range(3)  # what is done with an array: nothing, turned before, turned after


class Array(NamedTuple):
    """An array that differs from row to row: its strides along rows and along the stream, in elements."""

    name: str
    does: int
    row: int
    step: int
    itemsize: int


@dataclass(frozen=True)
class Blocks:
    """`size` rows of `length` elements at a time; `views`: the arrays of a block."""

    size: int
    length: int
    arrays: tuple[Array, ...]
    views: Mapping[str, View]

    def sizes(self, program: Program, sizes: Mapping[str, int]) -> dict[str, int]:
        """The lengths of axes as a kernel for a block sees them: its first axis of rows counts all of its rows."""
        return {**sizes, **dict.fromkeys(_rows(program), 1)}


def size_of(length: int) -> int:
    """Rows of a block: an odd multiple of 16, so that its elements do not compete for the same lines of a cache.

    >>> [size_of(n) for n in (1, 2, 7, 48)]
    [1008, 1008, 560, 80]
    """
    return max(6, min(1024, BLOCK_ELEMENTS // length) // 16) // 2 * 32 - 16 if length > 2 else 1008


def blocks_of(program: Program, sizes: Mapping[str, int], views: Mapping[str, View]) -> Blocks | None:
    """How rows are turned, by the length of a row and the strides alone; None where they had better not be."""
    if not (program.passes and _rows(program) and len(program.stream) == 1):
        return None
    length = sizes[program.stream[0]]
    if not 0 < length <= _longest(program):
        return None
    ways, size = _read_along(program, views), size_of(length)
    if ways is None:
        return None
    found = {name: _array(name, axes, program, sizes, views[name]) for name, axes in ways.items()}
    arrays = tuple(a for a in found.values() if a is not None)
    if len(arrays) < len(found) or not any(a.does for a in arrays):
        return None
    seen = {a.name: _seen(a, ways[a.name], program, length, size) for a in arrays}
    return Blocks(size, length, arrays, {**views, **seen})


def _longest(program: Program) -> float:
    """Elements of the rows up to which they had better be turned.

    What a row costs beside its vectors are the lanes of its reductions, which are joined, the lanes of the last vector
    that are left empty, and the functions computed for a row alone.
    """
    kinds = [f.kind for p in program.passes for s in p.lift if isinstance(s, Loop) for f in s.folds]
    if any(r.keeps for r in program.results):
        most = FIRST + FURTHER * (len(kinds) - 1)
    else:
        alone = ALONE.get(kinds[0], FIRST_ONCE) if len(kinds) == 1 else FIRST_ONCE
        most = alone + FURTHER_ONCE * (len(kinds) - 1) + OF_ROWS * _functions_of_rows(program)
    widths = [STORAGE[o.dtype] for o in program.operands if {*o.axes} & {*program.stream}]
    return min(TURNED, most * WIDER[max(widths, default=4)])


def _read_along(program: Program, views: Mapping[str, View]) -> dict[str, tuple[str, ...]] | None:
    """The arrays that differ from row to row, with their axes; None where one is read in two ways, or along others, and
    where anything but arrays does."""
    rows, ways = {*_rows(program)}, dict[str, tuple[str, ...]]()
    if _numbers_rows(program):
        return None
    for name, axes in readings(program):
        if name in views:
            if ways.setdefault(name, axes) != axes or not {*axes} <= rows | {*program.stream}:
                return None
    return {name: axes for name, axes in ways.items() if rows & {*axes}}


def _numbers_rows(program: Program) -> bool:
    """Whether anything depends on how many rows there are, or on their numbers: in a block both are the block's."""
    rows = {*_rows(program)}
    return any(n.op in ("size", "index") and n.attr in rows for n in program_nodes(program))


def _functions_of_rows(program: Program) -> int:
    """Functions that are computed once for a row."""
    nodes = walk(*(let.node for p in program.passes for let in p.exports), *(r.node for r in program.results))
    return sum(is_dear(n) and not n.axes & {*program.stream} for n in nodes)


def _rows(program: Program) -> tuple[str, ...]:
    """The axes that number rows: columns in the program of a kernel for blocks."""
    return program.rows or program.columns


def _array(name: str, axes: tuple[str, ...], program: Program, sizes: Mapping[str, int], view: View) -> Array | None:
    """None where its rows do not follow each other in equal steps."""
    steps = dict(zip(axes, view.strides, strict=True))
    row = _row_step(steps, _rows(program), sizes)
    if row is None:
        return None
    dtypes = {o.name: o.dtype for o in program.operands} | {r.key: r.dtype for r in program.results}
    along = [a for a in axes if a in program.stream]
    step = steps[along[0]] if along else 0
    written = name in {r.key for r in program.results}
    stays = not along or row == 1 or step == 0
    return Array(name, MOVED if stays else OUT if written else IN, row, step, STORAGE[dtypes[name]])


def _row_step(steps: Mapping[str, int], rows: tuple[str, ...], sizes: Mapping[str, int]) -> int | None:
    """The stride along all axes of rows together, if there is one."""
    if not {*rows} <= {*steps}:
        return None
    live = [a for a in rows if sizes[a] != 1] or [rows[-1]]
    step = steps[live[-1]]
    equal = all(steps[a] == step * prod(sizes[b] for b in live[at + 1 :]) for at, a in enumerate(live))
    return step if equal else None


def _seen(array: Array, axes: tuple[str, ...], program: Program, length: int, size: int) -> View:
    """The array of a block."""
    shape, strides = [], []
    for a in axes:
        first = a == _rows(program)[0]
        shape.append(length if a in program.stream else size if first else 1)
        row, step = (1, size) if array.does else (array.row, array.step)
        strides.append(step if a in program.stream else row)
    return View(tuple(shape), tuple(strides))


def words_of(blocks: Blocks, program: Program, params: tuple[Param, ...]) -> tuple[list[int], list[int]]:
    """The head of the table, but for the kernel and the number of rows; and the records behind the kernel's words."""
    known = {result_key(p.name) if p.role == "result" else p.name: at for at, p in enumerate(params) if _is_array(p)}
    size = next((at for at, p in enumerate(params) if p.role == "size" and p.name == _rows(program)[0]), -1)
    records: list[int] = []
    scratch = 0
    marks = [Array("marks", MOVED, 1, 0, 1)] if program.watched else []
    for a in (*blocks.arrays, *marks):
        if a.name in known:
            records += [known[a.name], a.does, a.itemsize, a.row, a.step, scratch]
            scratch += -(-(blocks.size * blocks.length * a.itemsize + 64) // 64) * 64 if a.does else 0
    head = [0, len(params), blocks.size, 0, blocks.length, size, len(records) // RECORD, scratch]
    return head, records


def _is_array(p: Param) -> bool:
    return p.role in ("operand", "result", "marks")


# --- the function ----------------------------------------------------------------------------------------------------


def _transposed(bits: int, n: int) -> Iterator[str]:
    """A function that turns n × n elements: `from` and `to` with the bytes between their rows."""
    kind = f"<{n} x i{bits}>"
    yield f"define internal void @turn{bits}.{n}(ptr %from, i64 %a, ptr %to, i64 %b) alwaysinline {{"
    names = []
    for r in range(n):
        yield f"  %fo{r} = mul i64 %a, {r}"
        yield f"  %fp{r} = getelementptr i8, ptr %from, i64 %fo{r}"
        yield f"  %in_{r} = load {kind}, ptr %fp{r}, align {bits // 8}"
        names.append(f"%in_{r}")
    stage, width = 1, n // 2
    while width:
        found = list(names)
        for r in range(n):
            if not r & width:
                low = [c if not c & width else n + (c ^ width) for c in range(n)]
                high = [c | width if not c & width else n + c for c in range(n)]
                for at, mask in ((r, low), (r | width, high)):
                    words = ", ".join(f"i32 {m}" for m in mask)
                    found[at] = f"%v{stage}_{at}"
                    pair = f"{kind} {names[r]}, {kind} {names[r | width]}"
                    yield f"  {found[at]} = shufflevector {pair}, <{n} x i32> <{words}>"
        names, stage, width = found, stage + 1, width // 2
    for r in range(n):
        yield f"  %to{r} = mul i64 %b, {r}"
        yield f"  %tp{r} = getelementptr i8, ptr %to, i64 %to{r}"
        yield f"  store {kind} {names[r]}, ptr %tp{r}, align {bits // 8}"
    yield "  ret void"
    yield "}"


def _woven(bits: int, length: int, forth: bool) -> Iterator[str]:
    """A function that turns short rows without gaps, as many at a time as a vector has lanes, to columns that lie
    `stride` bytes apart (`forth`) or from them: whole vectors are read and written. It gives how many rows it turned.
    """
    lanes = min(16, 512 // bits)
    kind, whole = f"<{lanes} x i{bits}>", lanes * bits // 8
    yield f"define internal i64 @{'part' if forth else 'join'}{bits}.{length}("
    yield "    ptr %rows, ptr %columns, i64 %stride, i64 %count) {"
    yield "entry:"
    yield f"  %last = sub i64 %count, {lanes}"
    for k in range(length):
        yield f"  %offset{k} = mul i64 %stride, {k}"
        yield f"  %column{k} = getelementptr i8, ptr %columns, i64 %offset{k}"
    yield "  %some = icmp sge i64 %last, 0"
    yield "  br i1 %some, label %turn, label %done"
    yield "turn:"
    yield "  %r = phi i64 [ 0, %entry ], [ %r.next, %turn ]"
    yield f"  %row.at = mul i64 %r, {length * bits // 8}"
    yield f"  %column.at = mul i64 %r, {bits // 8}"
    yield "  %row = getelementptr i8, ptr %rows, i64 %row.at"
    for k in range(length):
        yield f"  %in.row{k} = getelementptr i8, ptr %row, i64 {k * whole}"
        yield f"  %in.column{k} = getelementptr i8, ptr %column{k}, i64 %column.at"
    source, target = ("row", "column") if forth else ("column", "row")
    for k in range(length):
        yield f"  %x{k} = load {kind}, ptr %in.{source}{k}, align {bits // 8}"
    for k in range(length):
        if forth:
            places = [divmod(at * length + k, lanes) for at in range(lanes)]
        else:
            places = [divmod(k * lanes + at, length)[::-1] for at in range(lanes)]
        steps = shuffles(places, lanes)
        best = f"%x{min(v for v, _ in places)}"
        for n, (v, masks) in enumerate(steps):
            words = ", ".join(f"i32 {m}" for m in masks)
            yield f"  %y{k}.{n} = shufflevector {kind} {best}, {kind} %x{v}, <{lanes} x i32> <{words}>"
            best = f"%y{k}.{n}"
        yield f"  store {kind} {best}, ptr %in.{target}{k}, align {bits // 8}"
    yield f"  %r.next = add i64 %r, {lanes}"
    yield "  %more = icmp sle i64 %r.next, %last"
    yield "  br i1 %more, label %turn, label %done"
    yield "done:"
    yield "  %turned = phi i64 [ 0, %entry ], [ %r.next, %turn ]"
    yield "  ret i64 %turned"
    yield "}"


def _is_woven(bits: int, length: int) -> bool:
    return length in WOVEN and length * bits <= WOVEN_BITS


def _weave(widths: Sequence[int], length: int) -> Iterator[str]:
    """The function that calls those: it turns none where there is none for rows of this length."""
    given = "ptr %rows, ptr %columns, i64 %stride, i64 %count"
    names = {bits // 8: f"{bits}.{length}" for bits in widths if _is_woven(bits, length)}
    yield f"define internal i64 @weave({given}, i64 %bytes, i1 %forth) {{"
    yield f"  switch i64 %bytes, label %none [ {' '.join(f'i64 {key}, label %at{key}' for key in names)} ]"
    for key, name in names.items():
        yield f"at{key}:"
        yield f"  br i1 %forth, label %part{key}, label %join{key}"
        for way in ("part", "join"):
            yield f"{way}{key}:"
            yield f"  %{way}ed{key} = call i64 @{way}{name}({given})"
            yield f"  ret i64 %{way}ed{key}"
    yield "none:"
    yield "  ret i64 0"
    yield "}"


_TURN = """
; element (r, k) at from + r*ar + k*ak goes to to + r*br + k*bk, in bytes; one of ak, br is the size of an element where
; squares can be turned: `forth` where they are read along k
define internal void @turn${BITS}.${N}.all(
    ptr %from, i64 %ar, i64 %ak, ptr %to, i64 %br, i64 %bk, i64 %rows, i64 %length, i1 %forth) {
entry:
  %forth.unit = icmp eq i64 %ak, ${BYTES}
  %back.unit = icmp eq i64 %bk, ${BYTES}
  %unit = select i1 %forth, i1 %forth.unit, i1 %back.unit
  %long = icmp sge i64 %length, ${N}
  %many = icmp sge i64 %rows, ${N}
  %some = and i1 %long, %many
  %square = and i1 %some, %unit
  %full = and i64 %rows, -${N}
  br i1 %square, label %row, label %rest
row:
  %r = phi i64 [ 0, %entry ], [ %r.next, %row.end ]
  %from.r = mul i64 %r, %ar
  %to.r = mul i64 %r, %br
  %from.row = getelementptr i8, ptr %from, i64 %from.r
  %to.row = getelementptr i8, ptr %to, i64 %to.r
  br label %block
block:
  %k = phi i64 [ 0, %row ], [ %k.next, %turned ]
  %k.last = sub i64 %length, ${N}
  %over = icmp sgt i64 %k, %k.last
  %at = select i1 %over, i64 %k.last, i64 %k
  %from.k = mul i64 %at, %ak
  %to.k = mul i64 %at, %bk
  %f = getelementptr i8, ptr %from.row, i64 %from.k
  %t = getelementptr i8, ptr %to.row, i64 %to.k
  br i1 %forth, label %in, label %out
in:
  call void @turn${BITS}.${N}(ptr %f, i64 %ar, ptr %t, i64 %bk)
  br label %turned
out:
  call void @turn${BITS}.${N}(ptr %f, i64 %ak, ptr %t, i64 %br)
  br label %turned
turned:
  %k.next = add i64 %k, ${N}
  %k.more = icmp slt i64 %k.next, %length
  br i1 %k.more, label %block, label %row.end
row.end:
  %r.next = add i64 %r, ${N}
  %r.more = icmp slt i64 %r.next, %full
  br i1 %r.more, label %row, label %rest
rest:
  %begin = phi i64 [ 0, %entry ], [ %full, %row.end ]
  %left = icmp slt i64 %begin, %rows
  br i1 %left, label %outer, label %done
outer:
  %c = phi i64 [ 0, %rest ], [ %c.next, %outer.end ]
  %from.c = mul i64 %c, %ak
  %to.c = mul i64 %c, %bk
  %from.column = getelementptr i8, ptr %from, i64 %from.c
  %to.column = getelementptr i8, ptr %to, i64 %to.c
  br label %inner
inner:
  %i = phi i64 [ %begin, %outer ], [ %i.next, %inner ]
  %from.i = mul i64 %i, %ar
  %to.i = mul i64 %i, %br
  %one = getelementptr i8, ptr %from.column, i64 %from.i
  %other = getelementptr i8, ptr %to.column, i64 %to.i
  %value = load i${BITS}, ptr %one, align ${BYTES}
  store i${BITS} %value, ptr %other, align ${BYTES}
  %i.next = add i64 %i, 1
  %i.more = icmp slt i64 %i.next, %rows
  br i1 %i.more, label %inner, label %outer.end
outer.end:
  %c.next = add i64 %c, 1
  %c.more = icmp slt i64 %c.next, %length
  br i1 %c.more, label %outer, label %done
done:
  ret void
}
"""

_CASE = """w${BITS}.${N}:
  %w${BITS}.${N}.fits = icmp sge i64 %length, ${N}
  br i1 %w${BITS}.${N}.fits, label %w${BITS}.${N}.turn, label %${NEXT}
w${BITS}.${N}.turn:
  call void @turn${BITS}.${N}.all(
    ptr %from, i64 %ar, i64 %ak, ptr %target, i64 %br, i64 %bk, i64 %left, i64 %length, i1 %forth)
  br label %array.end
"""

_BLOCKS = """
declare ptr @malloc(i64)
declare void @free(ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)

define i32 @redalg_blocks(ptr %table, i64 %low, i64 %high) {
entry:
  %kernel = load ptr, ptr %table
${WORDS}
  %words = getelementptr i64, ptr %table, i64 8
  %records = getelementptr i64, ptr %words, i64 %count
  %count.bytes = mul i64 %count, 8
  %padded = add i64 %count.bytes, 191
  %all = add i64 %padded, %scratch
  %memory = call ptr @malloc(i64 %all)
  %none = icmp eq ptr %memory, null
  br i1 %none, label %failed, label %found
failed:
  ret i32 1
found:
  %memory.at = ptrtoint ptr %memory to i64
  %above = add i64 %memory.at, 63
  %aligned.at = and i64 %above, -64
  %room = inttoptr i64 %aligned.at to ptr
  %own = getelementptr i8, ptr %room, i64 %scratch
  call void @llvm.memcpy.p0.p0.i64(ptr %own, ptr %words, i64 %count.bytes, i1 false)
  %some = icmp slt i64 %low, %high
  br i1 %some, label %unit, label %over
unit:
  %u = phi i64 [ %low, %found ], [ %u.next, %unit.end ]
  %status = phi i32 [ 0, %found ], [ %status.next, %unit.end ]
  %first = mul i64 %u, %size
  %remain = sub i64 %total, %first
  %part = icmp slt i64 %remain, %size
  %rows = select i1 %part, i64 %remain, i64 %size
  %has.slot = icmp sge i64 %slot, 0
  br i1 %has.slot, label %sized, label %before
sized:
  %rows.at = getelementptr i64, ptr %own, i64 %slot
  store i64 %rows, ptr %rows.at
  br label %before
before:
  br label %each
each:
  %phase = phi i1 [ false, %before ], [ true, %computed ]
  %known = phi i32 [ 0, %before ], [ %gave, %computed ]
  br label %array
array:
  %n = phi i64 [ 0, %each ], [ %n.next, %array.end ]
  %n.words = mul i64 %n, 6
  %record = getelementptr i64, ptr %records, i64 %n.words
${FIELDS}
  %given.at = getelementptr i64, ptr %words, i64 %to
  %given = load ptr, ptr %given.at
  %row.bytes = mul i64 %row, %bytes
  %step.bytes = mul i64 %step, %bytes
  %offset = mul i64 %row.bytes, %first
  %begin = getelementptr i8, ptr %given, i64 %offset
  %turned = getelementptr i8, ptr %room, i64 %place
  %size.bytes = mul i64 %size, %bytes
  %moved = icmp eq i64 %does, 0
  %where = select i1 %moved, ptr %begin, ptr %turned
  %own.at = getelementptr i64, ptr %own, i64 %to
  store ptr %where, ptr %own.at
  %wanted = select i1 %phase, i64 2, i64 1
  %now = icmp eq i64 %does, %wanted
  %line.bytes = mul i64 %length, %bytes
  %along = icmp eq i64 %step.bytes, %bytes
  %close = icmp eq i64 %row.bytes, %line.bytes
  %dense = and i1 %along, %close
  %all.bytes = mul i64 %total, %row.bytes
  %beyond = icmp sge i64 %all.bytes, ${PREFETCHED}
  %far = and i1 %dense, %beyond
  %unmoved = or i1 %phase, %moved
  %ahead = select i1 %unmoved, i1 false, i1 %far
  br i1 %ahead, label %fetched, label %turn.if
; while the kernel computes: what the block after this one reads, and where this one writes
fetched:
  %is.in = icmp eq i64 %does, 1
  %block.bytes = mul i64 %size, %row.bytes
  %skip = select i1 %is.in, i64 %block.bytes, i64 0
  %fetch.end = add i64 %skip, %block.bytes
  br label %fetch
fetch:
  %p = phi i64 [ %skip, %fetched ], [ %p.next, %fetch.again ]
  %p.at = getelementptr i8, ptr %begin, i64 %p
  br i1 %is.in, label %to.read, label %to.write
to.read:
  call void @llvm.prefetch.p0(ptr %p.at, i32 0, i32 2, i32 1)
  br label %fetch.again
to.write:
  call void @llvm.prefetch.p0(ptr %p.at, i32 1, i32 3, i32 1)
  br label %fetch.again
fetch.again:
  %p.next = add i64 %p, 64
  %p.more = icmp slt i64 %p.next, %fetch.end
  br i1 %p.more, label %fetch, label %turn.if
turn.if:
  br i1 %now, label %turn, label %array.end
turn:
  %from.all = select i1 %phase, ptr %turned, ptr %begin
  %target.all = select i1 %phase, ptr %begin, ptr %turned
  %ar = select i1 %phase, i64 %bytes, i64 %row.bytes
  %ak = select i1 %phase, i64 %size.bytes, i64 %step.bytes
  %br = select i1 %phase, i64 %row.bytes, i64 %bytes
  %bk = select i1 %phase, i64 %step.bytes, i64 %size.bytes
  %forth = xor i1 %phase, true
  br i1 %dense, label %weave, label %unwoven
weave:
  %woven = call i64 @weave(ptr %begin, ptr %turned, i64 %size.bytes, i64 %rows, i64 %bytes, i1 %forth)
  br label %unwoven
unwoven:
  %ready = phi i64 [ 0, %turn ], [ %woven, %weave ]
  %from.ready = mul i64 %ready, %ar
  %target.ready = mul i64 %ready, %br
  %from = getelementptr i8, ptr %from.all, i64 %from.ready
  %target = getelementptr i8, ptr %target.all, i64 %target.ready
  %left = sub i64 %rows, %ready
  switch i64 %bytes, label %w${FIRST} [ ${OTHERS} ]
${CASES}
array.end:
  %n.next = add i64 %n, 1
  %n.more = icmp slt i64 %n.next, %arrays
  br i1 %n.more, label %array, label %arrays.end
arrays.end:
  br i1 %phase, label %unit.end, label %compute
compute:
  %gave = call i32 %kernel(ptr %own, i64 0, i64 1)
  br label %computed
computed:
  br label %each
unit.end:
  %status.next = or i32 %status, %known
  %u.next = add i64 %u, 1
  %u.more = icmp slt i64 %u.next, %high
  br i1 %u.more, label %unit, label %over
over:
  %result = phi i32 [ 0, %found ], [ %status.next, %unit.end ]
  call void @free(ptr %memory)
  ret i32 %result
}
"""


def _loads(base: str, names: Sequence[str], first: int) -> str:
    """Words that lie side by side, by their names."""
    lines = ("  %{0}.at = getelementptr i64, ptr %{1}, i64 {2}", "  %{0} = load i64, ptr %{0}.at")
    return "\n".join(line.format(name, base, n) for n, name in enumerate(names, first) for line in lines)


def _text(widths: Sequence[int], length: int) -> str:
    """The module for elements of these bits and rows of this length, or, longer than a square, of any."""
    lines: list[str] = []
    cases: list[str] = []
    squares = [n for n in SQUARES if n <= length or n == SQUARES[-1]]
    for bits in widths:
        if _is_woven(bits, length):
            lines += [line for forth in (True, False) for line in _woven(bits, length, forth)]
        words = {"BITS": bits, "BYTES": bits // 8}
        for n in squares:
            lines += [*_transposed(bits, n), Template(_TURN).substitute(words, N=n)]
        cases.append(f"w{bits}:\n  br label %w{bits}.{squares[0]}\n")
        for n, smaller in zip(squares, (*squares[1:], None), strict=True):
            following = f"w{bits}.{smaller or n}{'' if smaller else '.turn'}"  # which turns single elements, too
            cases.append(Template(_CASE).substitute(words, N=n, NEXT=following))
    text = Template(_BLOCKS).substitute(
        CASES="".join(cases),
        FIRST=widths[0],
        OTHERS=" ".join(f"i64 {bits // 8}, label %w{bits}" for bits in widths[1:]),
        PREFETCHED=PREFETCHED,
        WORDS=_loads("table", "count size total length slot arrays scratch".split(), 1),
        FIELDS=_loads("record", "to does bytes row step place".split(), 0),
    )
    return "\n".join([*lines, *_weave(widths, length), text])


def walker(blocks: Blocks) -> int:
    """Where the function lies that walks blocks of such arrays, turned by what they need alone: a module for all widths
    and lengths takes a second to compile."""
    widths = sorted({8 * a.itemsize for a in blocks.arrays if a.does})
    return _walker(tuple(widths), min(blocks.length, max(*SQUARES, *WOVEN)))


@lru_cache(maxsize=64)
def _walker(widths: tuple[int, ...], length: int) -> int:
    return loaded_text(_text(widths, length), ("redalg_blocks",))["redalg_blocks"]
