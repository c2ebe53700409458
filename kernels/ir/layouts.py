"""How the arrays of a call lie in memory, as far as a kernel may know it: patterns and vector widths, no sizes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd, prod

from redalg.graph.node import Decl, Node, walk
from redalg.kernels.ir.program import STORAGE, Join, Loop, Program, Result, Step
from redalg.kernels.ir.schedule import Layout

VECTOR_BYTES = 16  # the widest load and store
WORD = 4  # bytes
WIDTHS = (16, 8, 4, 2, 1)


@dataclass(frozen=True)
class View:
    """Shape, strides in elements, and the largest power of two (up to 16) that divides the address in bytes.

    ``array``: of windows of an array with zeros around it that lie nowhere: the lengths of the array. The first window
    begins before the address then."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    align: int = VECTOR_BYTES
    array: tuple[int, ...] = ()

    @staticmethod
    def contiguous(shape: tuple[int, ...], align: int = VECTOR_BYTES) -> View:
        """An array in row-major order.

        >>> View.contiguous((2, 3)).strides
        (3, 1)
        """
        return View(shape, tuple(prod(shape[d + 1 :]) for d in range(len(shape))), align)

    @property
    def elements(self) -> int:
        """How many elements of memory it reads or writes: one that several places share counts once.

        >>> View((2, 3, 2), (9, 1, 2)).elements, View((4, 1000), (0, 1)).elements  # windows; rows that are one row
        (12, 1000)
        """
        if self.array:
            return prod(self.array)
        moved = [(n, abs(step)) for n, step in zip(self.shape, self.strides, strict=True) if step]
        return min(prod(n for n, _ in moved), 1 + sum((n - 1) * step for n, step in moved)) if all(self.shape) else 0

    @staticmethod
    def usual(decl: Decl, sizes: Mapping[str, int], zeros: bool = True) -> View:
        """A tensor in row-major order; one that is read in windows as windows of such an array, in which the `zeros`
        around it lie, too.

        >>> from redalg.language.leaves import tensors
        >>> View.usual(tensors("x[b, h + 2*r]").decl, {"b": 2, "h": 5, "r": 3}).strides
        (9, 1, 2)
        """
        lengths = [1 + sum(step * (sizes[a] - 1) for a, step, _ in d.terms) for d in decl.dimensions]
        lengths = [n if zeros else max(1, n - 2 * d.pad) for n, d in zip(lengths, decl.dimensions, strict=True)]
        outer = iter(View.contiguous(tuple(lengths)).strides)
        strides = tuple(n * step for d in decl.dimensions for n in [next(outer)] for _, step, _ in d.terms)
        plain = View.contiguous(tuple(sizes[a] for a in decl.axes))
        array = tuple(lengths) if not zeros and any(d.pad for d in decl.dimensions) else ()
        return replace(plain, strides=strides, array=array) if decl.dimensions else plain


def memory_order(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """The axes of a new array that lies as one with these strides does, without its gaps, from the outermost on: in
    their own order where that is row-major but for axes of length 1 (NumPy's ``order="K"``).

    >>> memory_order((3, 64), (1, 3)), memory_order((3, 64), (128, 2)), memory_order((1, 64), (1, 2))
    ((1, 0), (0, 1), (0, 1))
    """
    long = [d for d, n in enumerate(shape) if n != 1]
    if sorted(long, key=lambda d: (-abs(strides[d]), d)) == long:
        return tuple(range(len(shape)))
    return tuple(sorted(range(len(shape)), key=lambda d: (-abs(strides[d]), d)))


@dataclass(frozen=True)
class Placed:
    """One array that is read or written along the stream.

    ``pattern``: "stream" (neighbours along the stream are neighbours in memory), "rows" (neighbouring rows are), "same"
    (the stream does not move it), "packed" (what is read of neighbours along the stream is, one element's ``together``
    after another's) or "apart". ``width``: elements of the widest vectors its rows start at, or, where
    neighbouring rows are neighbours, the widest vectors of such rows. ``phase``: strides of the axes of rows modulo 16,
    where the array starts at a multiple of 16 bytes: rows of arrays of the same phase start at the same place between
    multiples of a vector. ``held``: elements are loaded into a tile. ``dense``: rows follow each other without gaps, in
    the order of their numbers, from a multiple of 16 bytes on. ``reach``: how many neighbouring rows, counted from a
    multiple of as many on, are neighbours in memory, wherever they start there (up to 16). ``together``: neighbours in
    memory that are read at every place (`Program.places`), one after the other, along ``entries``. ``adjacent``: such
    that a load brings several of, how many, and the axes of each, in their order.
    """

    name: str
    pattern: str
    width: int
    size: int  # bytes of an element
    phase: tuple[int, ...] | None = None
    held: bool = True
    written: bool = False
    dense: bool = False
    reach: int = 1
    together: int = 1
    entries: tuple[tuple[str, ...], ...] = ()
    adjacent: tuple[tuple[int, tuple[tuple[str, ...], ...]], ...] = ()

    @property
    def peels(self) -> bool:
        """Whether whole vectors of elements that have several entries lie in its only row."""
        return self.pattern == "packed" and self.phase == ()

    def astride(self, coarsen: int) -> bool:
        """Whether so many neighbouring rows, that make up a word, are loaded together though they start anywhere: from
        the two words that hold them. (Two words by pairs of 8 bytes take longer: variance of 30011 rows of 1001
        columns bfloat16 67 us on an H100, 46 by pairs of 4; 2026-11-25.)"""
        return (
            self.pattern == "rows"
            and not self.written
            and self.width < coarsen <= self.reach
            and coarsen * self.size == WORD
        )


@dataclass(frozen=True)
class Walk:
    """What the strides of a call allow: hashable and without sizes, so that calls of one kind share one kernel."""

    arrays: tuple[Placed, ...]
    flat: bool = True

    @property
    def column(self) -> bool:
        """Whether the stream is better walked with rows side by side: only neighbouring rows lie side by side."""
        patterns = {a.pattern for a in self.arrays}
        return "rows" in patterns and "stream" not in patterns

    def layout(self, vector: int, coarsen: int = 1, peel: bool = False, led: bool = True) -> Layout:
        """The layout of a kernel that loads `vector` elements at a time, or `coarsen` rows. `peel`: from rows that
        start anywhere, `led` by one of them."""
        key = ("peeled", led) if peel else (vector, coarsen)
        found = self._layouts.get(key)
        if found is None:
            found = self._layouts[key] = self._peeled(led) if peel else self._whole(vector, coarsen)
        return found

    @cached_property
    def _layouts(self) -> dict[tuple[object, ...], Layout]:
        """Those that were asked for: hundreds of schedules of a call share a few."""
        return {}

    def _whole(self, vector: int, coarsen: int) -> Layout:
        unit, wide = self._wide("stream", vector), self._wide("rows", coarsen) if coarsen > 1 else frozenset()
        packed = self._wide("packed", vector) if vector > 1 else frozenset()
        entries = tuple((a.name, a.entries) for a in self.arrays if a.name in packed)
        astride = frozenset(a.name for a in self.arrays if a.astride(coarsen))
        return Layout(unit, self.flat, coarsened=wide, astride=astride, packed=entries, adjacent=self._adjacent)

    @property
    def _adjacent(self) -> tuple[tuple[str, int, tuple[tuple[str, ...], ...]], ...]:
        return tuple((a.name, *several) for a in self.arrays for several in a.adjacent)

    def _peeled(self, led: bool) -> Layout:
        along = [a for a in self.arrays if a.pattern == "stream" and a.held]
        leader = self.leader if led else None
        unit = {a.name for a in along if leader and (a is leader or a.phase == leader.phase is not None)}
        shifted = frozenset(a.name for a in along if a.name not in unit and not a.written)
        alone = leader is None or leader.phase == ()  # one row, which starts where a vector does
        packed = tuple((a.name, a.entries) for a in self.arrays if a.peels and alone)
        return Layout(
            frozenset(unit),
            self.flat,
            shifted=shifted,
            leader=leader.name if leader else None,
            packed=packed,
            adjacent=self._adjacent,
        )

    @cached_property
    def peelable(self) -> list[Placed]:
        """The arrays that are read in whole vectors of rows that start anywhere."""
        return [a for a in self.arrays if a.pattern == "stream" and a.held or a.peels]

    @property
    def leader(self) -> Placed | None:
        """The array whose rows vectors are aligned with: a result, for stores cannot be shifted; else the operand whose
        phase most bytes have."""
        along = [a for a in self.arrays if a.pattern == "stream" and a.held]

        def share(a: Placed) -> tuple[bool, int]:
            alike = [b.size for b in along if b is a or b.phase == a.phase is not None]
            return a.written, sum(alike)

        return max(along, key=share, default=None)

    def _wide(self, pattern: str, width: int) -> frozenset[str]:
        return frozenset(a.name for a in self.arrays if a.pattern == pattern and a.width >= width)

    def pattern(self, name: str) -> str:
        array = self.by_name.get(name)
        return "same" if array is None else array.pattern

    @cached_property
    def by_name(self) -> dict[str, Placed]:
        """The arrays; the first one of a name."""
        return {a.name: a for a in reversed(self.arrays)}


def turned(program: Program, walk: Walk) -> frozenset[str]:
    """The results that a column schedule writes through shared memory: their rows lie one after another."""
    if len(program.rows) != 1:
        return frozenset()
    whole = {r.key for r in program.results if {*program.rows, *program.stream} == {*r.axes}}
    return frozenset(a.name for a in walk.arrays if a.written and a.pattern == "stream" and a.name in whole)


def walk_of(program: Program, views: Mapping[str, View]) -> Walk:
    """The patterns of a call. `views`: every array of the program, operands by name and results by `Result.key`.

    An array is walked in steps of 1 if all axes of the stream, taken together, have stride 1 in it. Axes of length 1
    have no say. A vector of w elements may be loaded where w divides the length of the stream, all strides between rows
    and the address.

    >>> import redalg as ra
    >>> from redalg.kernels.programs import lower
    >>> program = lower(ra.derive_incremental(ra.catalog["softmax"]), {"x": "bfloat16"})
    >>> rows = walk_of(program, {"x": View.contiguous((8, 64)), "y made": View.contiguous((8, 64))})
    >>> rows.column, [(a.name, a.pattern, a.width) for a in rows.arrays]
    (False, [('x', 'stream', 16), ('y made', 'stream', 16)])
    >>> columns = View((8, 64), (1, 8))
    >>> walk_of(program, {"x": columns, "y made": columns}).column
    True
    """
    sizes = lengths_of(program, views)
    dtypes = {o.name: o.dtype for o in program.operands} | {r.key: r.dtype for r in program.results}
    ways: dict[str, list[tuple[str, ...]]] = {}
    for name, axes in readings(program):
        if name in views and axes not in ways.setdefault(name, []):
            ways[name].append(axes)
    arrays, flat = [], True
    results = {r.key for r in program.results}
    for name, several in ways.items():
        size = STORAGE[dtypes[name]]
        found = [_Reading(program, sizes, axes, views[name], size) for axes in several]
        moving = [r for r in found if r.moves]
        flat &= all(r.flat for r in moving)
        arrays += [_placed(name, moving, size, name in results)] if moving else []
    return Walk(tuple(arrays), flat or len(program.stream) < 2)


def _placed(name: str, readings: Sequence[_Reading], size: int, written: bool) -> Placed:
    """How an array lies along all axes that it is read along."""
    pattern = readings[0].pattern if len({r.pattern for r in readings}) == 1 else "apart"
    if readings[0].program.places:
        return _tiled(name, pattern, readings, size, written)
    if pattern == "stream":
        phases = {r.phase for r in readings}
        phase = phases.pop() if len(phases) == 1 else None
        held = all(r.held for r in readings) and (len(readings) == 1 or phase is not None)
        dense = len(readings) == 1 and readings[0].dense
        return Placed(name, pattern, min(r.width for r in readings), size, phase, held, written, dense)
    if pattern == "rows":
        width, reach = (min(w) for w in zip(*((r.width_across_rows, r.reach) for r in readings), strict=True))
        return Placed(name, pattern, width, size, written=written, reach=reach)
    return Placed(name, pattern, 1, size)


def _tiled(name: str, pattern: str, readings: Sequence[_Reading], size: int, written: bool) -> Placed:
    """How an array lies of which several entries are read at every place."""
    together = len({r.offset for r in readings})
    side_by_side = {r.offset for r in readings} == {*range(together)}
    width = min(r.width for r in readings)
    if pattern == "apart" and side_by_side and together > 1:
        if {r.step for r in readings} == {together} == {len(readings)}:
            entries = tuple(r.axes for r in sorted(readings, key=lambda r: r.offset))
            phase = readings[0].phase
            return Placed(name, "packed", width, size, phase, written=written, together=together, entries=entries)
        across = {r.tiled for r in readings}
        pattern = "rows" if together in across <= {0, together} else "apart"
    if pattern == "stream":
        return _single(name, readings[0], width, size, written, together == 1)
    adjacent = () if written else tuple(_adjacent(readings))
    return Placed(name, pattern, 1, size, written=written, together=together if side_by_side else 1, adjacent=adjacent)


def _adjacent(readings: Sequence[_Reading]) -> Iterator[tuple[int, tuple[tuple[str, ...], ...]]]:
    """The entries along each axis of tiles that lie side by side, where a load brings several of them."""
    groups: dict[tuple[str, ...], list[_Reading]] = {}
    for r in sorted(readings, key=lambda r: r.offset):
        groups.setdefault(r.tiled_axes, []).append(r)
    for group in groups.values():
        width = min(r.adjacent(len(group)) for r in group)
        if [r.offset for r in group] == [*range(len(group))] and width > 1:
            yield width, tuple(r.axes for r in group)


def _single(name: str, first: _Reading, width: int, size: int, written: bool, alone: bool) -> Placed:
    """How an array lies of which a row reads one entry at every place, if it is `alone`, side by side."""
    return Placed(name, "stream", width, size, first.phase if alone else None, alone and first.held, written)


def lengths_of(program: Program, views: Mapping[str, View]) -> dict[str, int]:
    """The length of every axis the arrays of a call have."""
    sizes = dict(program.lengths)
    arrays = [(o.name, o.axes) for o in program.operands] + [(r.key, r.axes) for r in program.results]
    for name, axes in arrays:
        if name in views:
            sizes |= zip(axes, views[name].shape, strict=True)
    sizes |= dict.fromkeys(program.places, 1)
    return sizes | {p.outer: -(-sizes[p.axis] // p.tile) for p in program.places.values() if p.outer}


def steps_nodes(steps: Iterable[Step]) -> Iterator[Node]:
    for step in steps:
        if isinstance(step, Loop):
            yield from (body for fold in step.folds for body in fold.bodies)
        elif isinstance(step, Join):
            yield from (*step.a, *step.b)
        else:
            yield step.node


def program_nodes(program: Program) -> Iterator[Node]:
    """Every node that is computed for a row, its elements or its results, each once."""
    nodes: list[Node] = [r.node for r in program.results]
    for p in program.passes:
        nodes += [*steps_nodes(p.lift), *steps_nodes(p.update), *(let.node for let in p.exports)]
    return walk(*nodes)


def readings(program: Program) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Every array, results by `Result.key`, with the axes it is read or written along (an operand along several)."""
    for n in program_nodes(program):
        if n.op == "tensor":
            yield n.attr.name, n.attr.axes
    yield from ((r.key, r.axes) for r in program.results if not r.summed)


def prefetched_arrays(program: Program) -> list[tuple[str, tuple[str, ...]]]:
    """The operands of which every row has elements of its own, with the axes they are read along."""
    rows, stream = {*program.rows}, {*program.stream}
    arrays = {o.name for o in program.operands if rows and not o.number}
    found = [(n, {*axes}, axes) for n, axes in dict.fromkeys(readings(program)) if n in arrays]
    return [(n, axes) for n, along, axes in found if rows <= along <= rows | stream and along & stream]


def kept_arrays(program: Program) -> list[tuple[str, tuple[str, ...]]]:
    """Those of them that are read in one way, of types whose numbers come back from memory as they were."""
    own = prefetched_arrays(program)
    dtypes = {o.name: o.dtype for o in program.operands}
    once = [n for n, _ in own]
    narrow = ("float16", "bfloat16", "float32") if program.real == "float32" else (program.real,)
    return [(n, axes) for n, axes in own if dtypes[n] in narrow and once.count(n) == 1]


def kept_places(program: Program, results: Iterable[Result]) -> dict[str, str]:
    """The kept arrays whose places results that turn may have, one each, by the keys of these; none if not all may."""
    sizes = {o.name: STORAGE[o.dtype] for o in program.operands}
    free, found = [n for n, _ in kept_arrays(program)], dict[str, str]()
    for r in results:
        fits = [n for n in free if sizes[n] == STORAGE[r.dtype] and "float" in r.dtype]
        if not fits:
            return {}
        found[r.key] = fits[0]
        free.remove(fits[0])
    return found


class _Reading:
    """One array along given axes: how it moves with the stream."""

    def __init__(
        self, program: Program, sizes: Mapping[str, int], axes: tuple[str, ...], view: View, size: int
    ) -> None:
        self.program, self.sizes, self.axes, self.view, self.size = program, sizes, axes, view, size
        self.strides = dict(zip(axes, view.strides, strict=True))
        places = [(program.places[a], s) for a, s in self.strides.items() if a in program.places]
        self.offset = sum(p.number * s for p, s in places)
        self.strides |= {p.outer: p.tile * s for p, s in places if p.outer}
        stream = program.stream
        self.moves = any(a in stream for a in axes)
        self.live = [a for a in stream if sizes.get(a, 1) != 1]
        self.step = self._step()

    def _step(self) -> int | None:
        """The stride along the flattened stream, if there is one."""
        if not all(a in self.strides for a in self.live):
            return None
        for outer, inner in zip(self.live, self.live[1:], strict=False):
            if self.strides[outer] != self.strides[inner] * self.sizes[inner]:
                return None
        return self.strides[self.live[-1]] if self.live else 1

    @property
    def flat(self) -> bool:
        """Whether a kernel may step by the stride of the last axis of the stream; of length 1 it may have any."""
        last = max((a for a in self.axes if a in self.program.stream), key=self.axes.index)
        return self.step is not None and self.strides[last] == self.step

    @property
    def pattern(self) -> str:
        if self.step == 1:
            return "stream"
        if self.step == 0 or not any(self.strides.get(a) for a in self.live):
            return "same"
        rows = [a for a in self.program.rows if self.sizes.get(a, 1) != 1]
        return "rows" if rows and self.strides.get(rows[-1]) == 1 else "apart"

    @property
    def tiled(self) -> int:
        """The stride between neighbouring rows."""
        rows = [a for a in self.program.rows if self.sizes.get(a, 1) != 1]
        return self.strides.get(rows[-1], 0) if rows else 0

    @property
    def held(self) -> bool:
        """Whether elements are loaded into a tile: not those that hold further axes."""
        return set(self.axes) <= {*self.program.fixed, *self.program.stream}

    @property
    def dense(self) -> bool:
        """Whether the array holds row after row without gaps, from a multiple of 16 bytes on."""
        expected, along = 1, (*self.program.rows, *self.program.stream)
        if {*along} != {*self.axes} or not self.program.rows or self.view.align != VECTOR_BYTES:
            return False
        for a in reversed(along):
            if self.sizes.get(a, 1) != 1 and self.strides[a] != expected:
                return False
            expected *= self.sizes.get(a, 1)
        return True

    @property
    def phase(self) -> tuple[int, ...] | None:
        """The strides of rows modulo the longest vector; None where the array starts at no multiple of 16 bytes."""
        rows = [a for a in self.program.rows if self.sizes.get(a, 1) != 1]
        return tuple(self.strides.get(a, 0) % WIDTHS[0] for a in rows) if self.view.align == VECTOR_BYTES else None

    @property
    def width(self) -> int:
        """The widest vectors its rows start at; elements that hold further axes are not loaded in vectors at all."""
        if not self.held:
            return WIDTHS[0]
        length = prod(self.sizes.get(a, 1) for a in self.program.stream)
        return self._widest(length, [a for a in self.strides if a in self.program.fixed])

    @property
    def width_across_rows(self) -> int:
        """The widest vectors of neighbouring rows: they start there at every place of the stream."""
        last = next(a for a in reversed(self.program.rows) if self.sizes.get(a, 1) != 1)
        return self._widest(self.sizes[last], [a for a in self.axes if a != last])

    @property
    def reach(self) -> int:
        """How many neighbouring rows lie side by side: all of them, or a power of two that divides the last axis."""
        rows = [n for a in self.program.rows if (n := self.sizes.get(a, 1)) != 1]
        return WIDTHS[0] if len(rows) == 1 else next(w for w in WIDTHS if rows[-1] % w == 0)

    @property
    def tiled_axes(self) -> tuple[str, ...]:
        """Its axes, those of tiles by what numbers the tiles."""
        places = self.program.places
        return tuple(places[a].outer if a in places else a for a in self.axes)

    def adjacent(self, count: int) -> int:
        """How many of `count` entries side by side a load brings, at every place; 1 where some tiles are cut."""
        places = [self.program.places[a] for a in self.axes if a in self.program.places]
        others = [s for a, s in self.strides.items() if a not in self.program.places and self.sizes.get(a, 1) > 1]
        if not (self.held and all(p.exact for p in places)):
            return 1
        common, widest = gcd(count, *others), min(VECTOR_BYTES, self.view.align) // self.size
        return next(w for w in WIDTHS if common % w == 0 and w <= max(1, widest))

    def _widest(self, length: int, others: list[str]) -> int:
        packed = self.pattern == "apart"  # entries of one element lie side by side (`Program.places`)
        own = self.program.places if not packed else {}
        common = gcd(length, *(self.strides[a] for a in others if self.sizes.get(a, 1) > 1 or a in own))
        return next(w for w in WIDTHS if common % w == 0 and (w == 1 or self.view.align % min(w * self.size, 16) == 0))
