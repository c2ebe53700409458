"""What a program costs, before any decision about threads: bytes, instructions, values held in registers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import NamedTuple

from redalg.graph.functions import FUNCTIONS
from redalg.graph.node import Node, is_inverse, leaves, state, substitute, walk
from redalg.graph.operators import Position, TopK
from redalg.kernels.ir.all_reduce import all_reduced
from redalg.kernels.ir.layouts import program_nodes, steps_nodes
from redalg.kernels.ir.one_hot import gathered_axes
from redalg.kernels.ir.program import STORAGE, KeyMax, Loop, Part, Pass, Program, Step
from redalg.kernels.schedule.sampling import SHARE, most_together

# Instructions of one thread; what is not listed takes one. Estimated from the generated PTX: a special function is a
# handful of fused multiplications around one of the special unit, which issues at a quarter of the rate.
INSTRUCTIONS = {
    **{name: row.cost for name, row in FUNCTIONS.items()},
    "cast": 3,
    "tensor": 0,
    "state": 0,
    "const": 0,
    "special": 0,
    "size": 0,
    "true": 0,
    "false": 0,
    "index": 1,
}
DIVISION, ROOT, POWER, ROUND8 = 8, 8, 70, 10
QUICK, QUICKLY = 4, {"exp": 3, "log": 14}  # a division of elements of at most 16 bits, and functions of them
FOLDS = {"argmax": 4, "argmin": 4, "topk": 3, "max": 1, "min": 1, "monoid": 4}
DEAR = frozenset({"reduce"} | {name for name, row in FUNCTIONS.items() if row.dear})


def repeated(groups: Sequence[Sequence[Node]], rows: frozenset[str], stream: frozenset[str]) -> set[Node]:
    """The dear values of elements that several walks over a tile need: computed once, held in registers."""
    seen: dict[Node, set[int]] = {}
    for number, group in enumerate(groups):
        for n in walk(*group):
            if n.op in DEAR and n.axes & stream and n.axes <= rows | stream:
                seen.setdefault(n, set()).add(number)
    several = [n for n, places in seen.items() if len(places) > 1]
    inside = {m for n in several for m in walk(*n.args)}
    return {n for n in several if n not in inside}


@dataclass(frozen=True)
class Reading:
    """An operand that varies along the stream. `times`: how many walks over the row read it; `elements`: distinct ones
    in the call; `inner`: for one element of the stream; `by_row`: whether it varies from row to row."""

    name: str
    size: int
    elements: int
    times: int
    inner: int = 1
    by_row: bool = True
    held: bool = True  # loaded into a tile; not where elements hold contractions or columns
    entries: int = 1  # that a row reads at one place of the stream (`Program.places`)


class Instructions(NamedTuple):
    """Instructions of one thread."""

    lifted: float  # per element where the row is resident
    folded: float  # per element where it is streamed (all walks over it)
    heaviest: float  # per element of the heaviest single walk
    narrow: float  # per element to widen what is loaded
    per_tile: float  # per tile that is joined with a state
    together: int  # tiles that are joined with it at once, at most (`redalg.kernels.schedule.sampling`)
    merge: float  # to join two states


class Held(NamedTuple):
    """What a thread holds: registers of a state (32-bit words), entries of sorted lists in it, and the most arrays of a
    tile that are alive at once, where the row is resident and where it is streamed; arrays of sums over its rows."""

    state: int
    lists: int
    resident: int
    streamed: int
    summed: int


class Reductions(NamedTuple):
    """Reductions over the threads of a row, one after the other."""

    resident: int  # where they hold the row
    states: int  # where their states are merged at once; 0 where by trees
    words: int  # of 4 bytes, that the latter reduce


@dataclass(frozen=True)
class Work:
    """A program at given sizes."""

    length: int
    rows: int
    columns: int
    reads: tuple[Reading, ...]
    other: int  # bytes of operands that do not vary along the stream, and of results that do not keep it
    writes: tuple[tuple[str, int, int], ...]  # results that keep the stream: key, bytes of an element, elements
    instructions: Instructions
    held: Held
    reductions: Reductions
    walks: int  # walks over the row where it is streamed
    double: bool
    rewalked: bool  # whether a tile that is streamed is walked more than once

    @property
    def element_bytes(self) -> int:
        """Bytes a thread loads for one element of the stream."""
        return sum(r.size * r.entries for r in self.reads)

    @property
    def own_bytes(self) -> int:
        """Those of them that differ from row to row."""
        return sum(r.size for r in self.reads if r.by_row)

    @property
    def reread_bytes(self) -> int:
        """Those of them that it loads once more for results."""
        return sum(r.size for r in self.reads if r.times > 1)


def work_of(program: Program, sizes: Mapping[str, int]) -> Work:
    """The work of a program whose axes have the given lengths.

    >>> import redalg as ra
    >>> from redalg.kernels.programs import lower
    >>> w = work_of(lower(ra.derive_incremental(ra.catalog["softmax"]), {"x": "float32"}), {"i": 8, "j": 64})
    >>> w.rows, w.length, w.reductions.resident, w.walks, [(r.name, r.times) for r in w.reads], w.held.resident
    (8, 64, 2, 2, [('x', 2)], 1)
    """
    return _Counter(program, {**sizes, **program.lengths}).work()


def rounds_elements(program: Program) -> bool:
    """Whether elements have at most 16 bits, and so have all results where a number for each row has more."""
    floats = [o for o in program.operands if "float" in o.dtype and not o.number]
    along = [STORAGE[o.dtype] for o in floats if set(o.axes) & {*program.stream}]
    if not along or max(along) > 2:
        return False
    written = [STORAGE[r.dtype] for r in program.results if "float" in r.dtype and not r.summed]
    return max(STORAGE[o.dtype] for o in floats) <= 2 or max(written, default=4) <= 2


class _Counter:
    def __init__(self, program: Program, sizes: Mapping[str, int]) -> None:
        self.program, self.sizes = program, {**sizes, **{a: sizes.get(b, 1) for a, b in program.inner.items()}}
        self.sizes |= dict.fromkeys(gathered_axes(program), 1)
        self.stream = frozenset(program.stream)
        self.plain = {*program.fixed, *program.stream, *program.lengths}
        self.kept = [r.node for r in program.results if r.keeps]
        self.words = 2 if program.real == "float64" else 1
        self.fast = self.words == 1 and rounds_elements(program)  # exponentials of 16-bit numbers are short
        self.division = QUICK if self.fast else DIVISION

    def size(self, axes: Iterable[str]) -> int:
        return prod(self.sizes.get(a, 1) for a in axes)

    # --- instructions ------------------------------------------------------------------------------------------------

    def count(self, nodes: Iterable[Node]) -> float:
        """Instructions per element: what varies along the stream, times the length of inner axes."""
        return sum(
            self._instructions(n) * self._inside(n) for n in walk(*nodes) if self._inner(n) or n.axes & self.stream
        )

    def _inner(self, n: Node) -> bool:
        return bool(n.axes - self.plain)

    def _inside(self, n: Node) -> int:
        inner = set(n.axes - self.plain)
        if n.op == "reduce":
            inner |= set(n.attr.axes) - self.stream
        return self.size(inner)

    def _instructions(self, n: Node) -> float:
        if n.op == "tensor":
            return 6 if self._inner(n) else 0  # not held in a tile: an address and a load of its own for every use
        if n.op == "pow":
            e = n.args[1].attr if n.args[1].op == "const" else None
            if e is None:
                return POWER
            return ROOT if abs(e) == Fraction(1, 2) else self.division if e < 0 else 1 if e.denominator == 1 else POWER
        if n.op == "mul":
            return len(n.args) - 1 + sum(self.division for a in n.args if self._divides(a))
        if n.op == "cast" and str(n.attr).startswith("float8"):
            return ROUND8
        if self.fast and n.op in QUICKLY:
            return QUICKLY[n.op]
        return INSTRUCTIONS.get(n.op, max(1, len(n.args) - 1))

    def _divides(self, n: Node) -> bool:
        """Whether a factor is one over a value of the row: printed as a division of every element."""
        base = n.args[0] if n.op == "pow" else n
        if base.op == "state" and base.attr.name.removesuffix("_b") in self.program.attained:
            return False  # multiplied by its reciprocal
        return is_inverse(n) and not n.axes & self.stream

    def per_row(self, nodes: Iterable[Node]) -> float:
        """Instructions of nodes that are evaluated once per row or tile; 32 threads share columns, not inner axes."""
        columns, found = max(1, self.size(self.program.columns) // 32), 4.0
        for n in walk(*nodes):
            inner = (n.axes | {*n.attr.axes} if n.op == "reduce" else n.axes) - self.plain
            found += self._instructions(n) * (columns if n.axes & {*self.program.columns} else 1) * self.size(inner)
        return found

    def folds(self, steps: Sequence[Step], kept: Sequence[Node] = (), resident: bool = False) -> float:
        """Instructions per element of the walks of some steps: bodies, each once, and what joins them to the fold."""
        loops = [s for s in steps if isinstance(s, Loop)]
        bodies = self.count([*(b for s in loops if not s.part for f in s.folds for b in f.bodies), *kept])
        bodies += self.count([b for s in loops if s.part for f in s.folds for b in f.bodies]) / SHARE
        joins = sum(
            (FOLDS.get(f.kind, 1) + (self._listed(f.op.k, resident) if isinstance(f.op, TopK) else 0))
            * self.size(f.axes)
            for s in loops
            if not s.part
            for f in s.folds
        )
        return bodies + joins

    def _listed(self, k: int, resident: bool) -> float:
        """Instructions per element of a top-k: a bound and few candidates, or insertions into a sorted list."""
        return 8.0 if resident else 18.0 * k  # one of 32 lanes inserts nearly every time, and all of them wait

    # --- registers ---------------------------------------------------------------------------------------------------

    def alive(self, groups: Sequence[Sequence[Node]], kept: Sequence[Node] = ()) -> int:
        """The most arrays of a tile that are alive between two walks: leaves, and dear values that are used again.

        `kept`: what the last walk computes for results. What all rows share is loaded there vector by vector.
        """
        places = self._places(groups)
        dear = [n for n, at in places.items() if len(at) > 1 and n.op != "tensor"]
        inside = {m for n in dear for m in walk(*n.args)}
        shared = [n for n in dear if n not in inside]
        late = len(groups) - 1 if kept and self.program.passes else -1
        alive = [0] * (len(groups) + 1)
        for n, at in places.items():
            if n in shared:
                spans = range(at[0] + 1, at[-1] + 1)
            elif n.op == "tensor" and not (at[0] == late and not n.axes >= {*self.program.rows}):
                spans = range(self._last(n, places, shared) + 1)
            else:
                continue
            for place in spans:
                alive[place] += 1
        return max(alive)

    def _places(self, groups: Sequence[Sequence[Node]]) -> dict[Node, list[int]]:
        """The walks that need each value that a tile may hold."""
        places: dict[Node, list[int]] = {}
        for number, group in enumerate(groups):
            for n in walk(*group):
                if n.axes & self.stream and not self._inner(n) and (n.op in DEAR or n.op == "tensor"):
                    places.setdefault(n, []).append(number)
        return places

    @staticmethod
    def _last(leaf: Node, places: Mapping[Node, list[int]], shared: Sequence[Node]) -> int:
        """The last walk that needs a leaf: what is read through a shared value alone is not read again."""
        last = places[leaf][-1]
        readers = [n for n in shared if leaf in walk(n)]
        return min(last, max(places[n][0] for n in readers)) if readers else last

    def streamed_alive(self, walks: Sequence[Sequence[Sequence[Node]]]) -> int:
        return max([self.alive(w, self.kept if list(w) == [self.kept] else ()) for w in walks], default=0)

    def groups(self, steps: Sequence[Step]) -> list[list[Node]]:
        return [[b for f in s.folds for b in f.bodies] for s in steps if isinstance(s, Loop) and not s.part]

    # --- everything --------------------------------------------------------------------------------------------------

    def streamed(self, p: Pass) -> tuple[Step, ...]:
        return p.update if p.update and p.absorbs else p.lift

    def work(self) -> Work:
        program, passes = self.program, self.program.passes
        here, walks = self.lifted(self.kept), self.walks()
        parts = [x for p in passes for x in p.parts]
        reads = self.reads([[n for g in w for n in g] for w in walks])
        lists = sum(x.top or 0 for x in parts)
        lifted = [s for p in passes for s in p.lift]
        own = [r for r in program.results if not r.summed]
        return Work(
            length=self.size(program.stream),
            rows=self.size(program.rows),
            columns=self.size(program.columns),
            reads=reads,
            other=self.other(reads),
            writes=tuple((r.key, STORAGE[r.dtype], self.size(r.axes)) for r in own if r.keeps),
            instructions=Instructions(
                lifted=self.folds(lifted, here, resident=True),
                folded=sum(map(self.folds, map(self.streamed, passes))) + self.count(self.kept),
                heaviest=self._heaviest(),
                narrow=self.narrow(reads),
                per_tile=sum(map(self._joined_tile, passes)),
                together=min((most_together(program, p) for p in passes), default=1),
                merge=self._merge(lists),
            ),
            held=Held(
                state=sum(map(self._registers, parts)),
                lists=lists,
                resident=self.alive([*self.groups(lifted), *([here] if here else [])], here),
                streamed=self.streamed_alive(walks),
                summed=len(program.summed),
            ),
            reductions=self._reductions(passes),
            walks=max(1, len(walks)),
            double=program.real == "float64",
            rewalked=max(map(len, walks), default=0) > 1 or self._searched(),
        )

    def walks(self) -> list[list[list[Node]]]:
        """What every walk over a streamed row computes of an element, tile by tile."""
        walks = [self.groups(self.streamed(p)) for p in self.program.passes]
        return walks + ([[self.kept]] if self.kept else [])

    def _heaviest(self) -> float:
        """Instructions per element of the heaviest walk over a tile."""
        steps = [s for p in self.program.passes for s in (*p.lift, *self.streamed(p))]
        return max([self.count(self.kept), *(self.folds([s]) for s in steps)])

    def _joined_tile(self, p: Pass) -> float:
        """Instructions to join a tile with a state."""
        return self.per_row(steps_nodes(s for s in self.joining(p) if not isinstance(s, Loop)))

    def _merge(self, lists: int) -> float:
        """Instructions to merge two states; what is exported and computed of the last one is done by few threads."""
        passes = self.program.passes
        joined = [n for p in passes for n in steps_nodes(p.combine)]
        exported = [let.node for p in passes for let in p.exports] + [r.node for r in self.program.results]
        return self.per_row(joined) + 12 * lists + self.per_row(exported) / 8

    def _registers(self, part: Part) -> int:
        """Registers of a part of the state; an array along columns is shared out among 32 threads."""
        columns = max(1, -(-self.size(self.program.columns) // 32)) if part.axes else 1
        return (part.top or 1) * (2 if part.kind == "i" else self.words) * columns

    def _reductions(self, passes: Sequence[Pass]) -> Reductions:
        found = [all_reduced(p) for p in passes]
        loops = [s for steps in found for s in steps or () if isinstance(s, Loop)] if all(found) else []
        names = [name for loop in loops for fold in loop.folds for name in fold.names]
        whole = {f"{part.name}_new" for p in passes for part in p.parts if part.kind == "i"} | {"n_new"}
        words = sum(2 if name in whole else self.words for name in names)
        counts = [loop for loop in loops if all(fold.names == ("n_new",) for fold in loop.folds)]  # of splits alone
        return Reductions(sum(map(self._resident, passes)), len(loops) - len(counts), words)

    @staticmethod
    def _resident(p: Pass) -> int:
        """Reductions of a row that threads hold."""
        return sum(isinstance(s, Loop) for s in p.lift) + sum((x.top or 0) // 2 for x in p.parts)

    def _searched(self) -> bool:
        """Whether the place of an extremum is looked for in the tile once its value is known."""
        loops = [s for p in self.program.passes for s in p.lift if isinstance(s, Loop)]
        return any(isinstance(f.op, Position | KeyMax) for loop in loops for f in loop.folds)

    def lifted(self, nodes: Sequence[Node]) -> list[Node]:
        """The nodes where the row is resident: they read the tile's own state, as the last walk does."""
        parts = {x.name for p in self.program.passes[-1:] for x in p.parts}
        found = {leaf for n in nodes for leaf in leaves(n, "state") if leaf.attr.name in parts}
        moved = {leaf: state(f"{leaf.attr.name}_b", leaf.attr.axes, leaf.attr.domain) for leaf in found}
        return [substitute(n, moved, raw=True) if moved else n for n in nodes]

    def joining(self, p: Pass) -> tuple[Step, ...]:
        return self.streamed(p) if self.streamed(p) is p.update else (*p.lift, *p.combine)

    def reads(self, walks: Sequence[Sequence[Node]]) -> tuple[Reading, ...]:
        dtypes = {o.name: o.dtype for o in self.program.operands if not o.number}
        axes: dict[str, set[str]] = {}
        entries: dict[str, set[tuple[str, ...]]] = {}
        times: dict[str, set[int]] = {}
        loose: set[str] = set()
        for number, nodes in enumerate(walks):
            for n in walk(*nodes):
                if n.op == "tensor" and n.axes & self.stream and n.attr.name in dtypes:
                    axes.setdefault(n.attr.name, set()).update(n.axes)
                    entries.setdefault(n.attr.name, set()).add(n.attr.axes)
                    times.setdefault(n.attr.name, set()).add(number)
                    loose |= {n.attr.name} if self._inner(n) else set()
        return tuple(
            Reading(
                name,
                STORAGE[dtypes[name]],
                self.distinct(entries[name]) if self.program.places else self.size(along),
                len(times[name]),
                self.size(along - self.plain),
                bool(self.program.outer(along)),
                name not in loose,
                len(entries[name]) if self.program.places else 1,
            )
            for name, along in axes.items()
        )

    def distinct(self, entries: Iterable[tuple[str, ...]]) -> int:
        """Elements of an array that is read along these axes, some of which are one place or a tile of one."""
        whole: dict[frozenset[str], int] = {}
        for axes in entries:
            plain = {a for a in axes if a not in self.program.places}
            along = frozenset(plain | self.program.outer(axes))
            whole[along] = whole.get(along, 0) + self.size(along)
        return max(whole.values())

    def other(self, reads: Sequence[Reading]) -> int:
        streamed = {r.name for r in reads}
        used = {n.attr.name for n in program_nodes(self.program) if n.op == "tensor"}  # others are read by another name
        operands = [o for o in self.program.operands if not o.number and o.name in used - streamed]
        arrays = [(o.axes, o.dtype) for o in operands]
        arrays += [(r.axes, r.dtype) for r in self.program.results if not r.keeps]
        return sum(self.size(a) * STORAGE[d] for a, d in arrays)

    def narrow(self, reads: Sequence[Reading]) -> float:
        return sum({1: 3.0, 2: 1.0}.get(r.size, 0.0) for r in reads)
