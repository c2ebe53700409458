"""Elements of a row in a kernel: their places, tiles of them in registers, and loops over a tile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from redalg.graph.node import Node, walk
from redalg.kernels.code.roles import Role
from redalg.kernels.code.text import conjunction
from redalg.kernels.code.whole import in_two
from redalg.kernels.ir.program import Loop, Result, Step, step_nodes
from redalg.kernels.rows.access import tensor_leaves
from redalg.kernels.schedule.cost_terms import repeated
from redalg.kernels.schedule.sampling import some
from redalg.source.names import axis_name, local

if TYPE_CHECKING:
    from redalg.kernels.rows.kernel import Kernel

AS_LOADED = frozenset({"float32", "float64", "int64"})  # what is computed with as memory holds it
DTYPE = {"i": "np.int64", "b": "np.bool_", "k": "np.uint64"}
WORDS = {"i": "integer", "b": "flag", "k": "key"}  # in names of tiles of such values


@dataclass
class Bounds:
    """What loops over a tile are over, and what they know of the row's end.

    ``part``: they are over a part of the tile only.
    ``left``: the number of places that are left of the row, from the tile's first one on, has that name; ``empty``: it
    may be 0 or less; ``whole``: a loop is over all places of the tile, in the row or not.
    """

    part: bool = False
    left: bool = False
    empty: bool = False
    whole: bool = False

    def place(self, step: str, stop: str) -> str:
        """The text of the place so far from the tile's first one, or of the last one before `stop`."""
        return (
            f"min(first, {stop} - 1) + min({step}, max(left - 1, 0))"
            if self.empty
            else f"first + min({step}, left - 1)"
        )


class Elements:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.program, self.access = kernel, kernel.program, kernel.access
        self.bases: dict[tuple[str, tuple[str, ...]], str] = {}
        self.result_bases: dict[tuple[str, tuple[str, ...]], str] = {}
        self.tiles_of: dict[Node, str] = {}  # element leaves, and shared values, held in registers
        self.parts_of: dict[
            Node, tuple[str, str]
        ] = {}  # of element leaves few vectors are held: where, from which entry
        self.stored: set[Node] = set()
        self.shared: set[Node] = set()
        self.stop = "length"
        self.bounds = Bounds()
        self.in_portion: str | None = None  # the first element of those they are over, if these are a part (`portion`)

    @cached_property
    def rows(self) -> frozenset[str]:
        return self.program.fixed

    @cached_property
    def stream(self) -> frozenset[str]:
        return frozenset(self.program.stream)

    # --- leaves ------------------------------------------------------------------------------------------------------

    def row_leaf(self, node: Node) -> str:
        """The text of a leaf where nothing varies along the stream."""
        if node.op == "size":
            return self.access.size(node.attr)
        if node.op == "index":
            return self.position(node.attr)
        if node.op == "state":
            return self._state(node)
        return self.read(node, "0" if node.axes & self.stream else None)

    def element_leaf(self, node: Node) -> str:
        """The text of a leaf at element k of the tile, position `at` of the stream."""
        if node in self.tiles_of:
            return f"{self.tiles_of[node]}[k]"
        if node in self.parts_of:
            return _entry(*self.parts_of[node], "c")
        if node.op == "tensor":
            return self.read(node, "at")
        return self.row_leaf(node)

    def first_leaf(self, node: Node) -> str:
        """The text of a leaf at the first element of the tile: of a thread's own, where it folds that alone."""
        shared = bool(self.program.columns) and self.kernel.schedule.threads > 1  # each takes in the whole tile
        if node in self.tiles_of and not self.kernel.schedule.resident and not shared:
            tile = self.tiles_of[node]
            peels = self.kernel.schedule.peel
            return f"({tile}[0] if first < {self.stop} else {tile}[TILE])" if peels else f"{tile}[0]"
        if self._first_is_held(node):
            return self._first_held(self.tiles_of[node])
        at = "0" if self.kernel.schedule.resident else "base" if shared else "first"
        if at == "first" and self.kernel.schedule.peel:
            at = f"(first if first < {self.stop} else edge)"
        if node.op == "index" and node.attr in self.stream:
            return at
        return self.read(node, at if shared else "0") if node.op == "tensor" else self.row_leaf(node)

    def _first_is_held(self, node: Node) -> bool:
        """Whether a lane of the row's warp has its first element in a register, and nothing is gained by another load.

        LayerNorm of 1580 rows of 62 bfloat16 takes an H200 2.27 us, 2.37 with one more load. Of several vectors of a
        thread, ptxas delays all but the first until that has been exchanged: variance and mean of 547 rows of 878
        float32 take 3.03 us so, and 2.78 with a load behind the others (2026-11-27).
        """
        s = self.kernel.schedule
        near = s.threads == 1 or s.threads <= 32 and s.tile == s.vector and not s.column
        held = s.resident and not s.prefetch and s.blocks_per_row == 1
        return self.loads_first and held and near and node in self.tiles_of and self.kernel.kinds.of(node) == "f"

    def _first_held(self, tile: str) -> str:
        """The first element, from the lane that has it: of unaligned rows, before its first vector."""
        s = self.kernel.schedule
        first = f"{tile}[TILE] if edge == 0 else {tile}[0]" if s.peel else f"{tile}[0]"
        if s.threads == 1:
            return f"({first})" if s.peel else first
        return self.kernel.told(first, self.kernel.real, "cuda.threadIdx.x - t")

    def position(self, axis: str) -> str:
        return "at" if self.program.stream == (axis,) else f"i_{axis_name(axis)}"

    def _state(self, node: Node) -> str:
        name = node.attr.name
        bare = name.removesuffix("_b").removesuffix("_new")
        if node.axes & frozenset(self.program.columns):
            return f"{local(name)}[m]"
        if bare not in self.kernel.lists:
            return local(name)
        at = self.access.index(node.attr.axes[-1])
        if self.kernel.kinds.names.get(name) == "k":
            shared = self.kernel.group.shared_lists.get(name)
            if shared is None:
                return f"{local(name)}[{at}]"
            table, length = shared
            return f"{table}[{shared_row(self.kernel, length)}{at}]"
        entry = f"{local(name)}[{at}]"
        return (
            f"(-1 if {entry} == MISSING else {entry})"
            if self.kernel.kinds.of(node) == "i" and self._places(bare)
            else entry
        )

    def _places(self, name: str) -> bool:
        return any(part.name == name and part.identity == -1 for p in self.program.passes for part in p.parts)

    def read(self, node: Node, at: str | None) -> str:
        operand, axes = self.access.operands[node.attr.name], node.attr.axes
        if operand.number:
            name = self.access.array_names[operand.name]
            return {"float64": f"{self.kernel.real}({name})", "int64": name, "bool": name}[operand.dtype]
        staged = self.kernel.staging.load(node, at) if at is not None else None
        return staged or self.access.load(operand, self.index_of(operand.name, axes, at), way=self.kernel.peel.way)

    def index_of(self, name: str, axes: tuple[str, ...], at: str | None) -> str:
        """The text of an element's index at a position of the stream."""
        terms = [self.bases.get((name, axes), "")]
        if at is not None:
            terms.append("" if at == "0" else self.access.along(name, axes, at))
        inner = [a for a in axes if a not in self.rows and a not in self.stream]
        terms += self.access.offset(name, axes, inner)
        return " + ".join(x for x in terms if x) or "0"

    # --- where a row starts ------------------------------------------------------------------------------------------

    def offsets(self) -> None:
        """Print the offset of every array's row."""
        found = dict.fromkeys((n.attr.name, n.attr.axes) for n in tensor_leaves(self.everything()))
        for name, axes in found:
            terms = [] if self.access.operands[name].number else self.access.offset(name, axes, self.rows)
            if terms:
                count = sum(n == name for n, _ in self.bases)
                base = f"{self.access.array_names[name]}_row{count + 1 if count else ''}"
                self.bases[name, axes] = base
                self.kernel.out(f"{base} = {' + '.join(terms)}")
        for result in (r for r in self.program.results if not r.summed):
            terms = self.access.offset(result.name, result.axes, self.rows, True)
            if terms:
                count = sum(n == result.name for n, _ in self.result_bases)
                base = f"{self.access.result_names[result.name]}_row{count + 1 if count else ''}"
                self.result_bases[result.name, result.axes] = base
                self.kernel.out(f"{base} = {' + '.join(terms)}")

    def result_base(self, result: Result) -> str:
        """The name of where a result's row begins; empty where that is its first element."""
        return self.result_bases.get((result.name, result.axes), "")

    def everything(self) -> list[Node]:
        nodes = [r.node for r in self.program.results]
        nodes += [r.masked for r in self.program.results if r.masked is not None]
        for p in self.program.passes:
            nodes += [n for step in (*p.lift, *p.update, *p.combine) for n in step_nodes(step)]
            nodes += [let.node for let in p.exports]
        return nodes

    # --- tiles -------------------------------------------------------------------------------------------------------

    @property
    def stride(self) -> int:
        """How far apart consecutive vectors of one thread lie."""
        s = self.kernel.schedule
        if self.ordered:
            return s.vector
        return s.threads * s.vector

    ordered = False

    def whole_tile(self, steps: Sequence[Step] = (), bodies: Sequence[Node] = ()) -> None:
        """Start the one tile of a resident row and load it (or, for a map that is not resident, nothing)."""
        s = self.kernel.schedule
        if not s.resident:
            return
        self.start()
        self.kernel.prefetch.walk()
        groups = self._walks(steps)
        self.shared = repeated([*groups, list(bodies)], self.rows, self.stream)
        early = self._early(bodies) if steps else tensor_leaves(bodies or self._kept())
        self._load_leaves([n for step in steps for n in step_nodes(step)] + early)
        self._fence_loads()
        self.kernel.prefetch.next()
        self.kernel.staging.next()

    loads_first = True  # whether the target's compiler would delay loads

    def _fence_loads(self) -> None:
        """Keep all loads of a row ahead of what takes any of it.

        ptxas moves a load down to the branch that adds what it loads, even past branches that add what other loads
        bring, and each is waited for by itself: the largest of 59 rows of 2174 float16 takes an H100 3.5 us so by
        vectors of 8. No memory access passes a barrier of a warp, which is no instruction where its threads are
        together (ptxas 13, sm_90).
        """
        s = self.kernel.schedule
        if self.loads_first and self.tiles_of and not (s.prefetch or s.staged):
            self.kernel.out("cuda.syncwarp()")

    def start(self) -> None:
        """Where the one tile of a thread begins, and where the row ends."""
        s = self.kernel.schedule
        self.kernel.out(f"first = {self.placed('split * (THREADS * TILE)' if s.blocks_per_row > 1 else '')}")
        self.stop = self.kernel.staging.stop or self.kernel.peel.end
        self.bounds.left = s.resident and s.vector == 1 and not (s.exact or s.staged or s.peel)
        self.bounds.empty = self.bounds.left
        if self._counts_left:
            self.kernel.out(f"left = i32({self.stop} - first)", role=Role.LEFT)

    @property
    def _counts_left(self) -> bool:
        """Whether bounds are compared with how many places are left of a row from a thread's first one on: numbers that
        a kernel knows against one of 32 bits, while places of 64 bits would be held for all elements and rows."""
        s = self.kernel.schedule
        return self.bounds.left or bool(self.program.summed) and s.vector == 1 and not s.exact

    def of_all_rows(self) -> None:
        """Before the loop over rows, where threads have the same places of all of them: what all rows share there."""
        kernel, program = self.kernel, self.program
        steps = [n for p in program.passes for step in p.lift for n in step_nodes(step)]
        common = [n for n in tensor_leaves(steps) if n.axes & self.stream and n.axes <= self.stream]
        if not common or kernel.schedule.peel:
            return
        kernel.comment("What all rows share, at the places of this thread.")
        kernel.who()
        kernel.out(f"length = {kernel.row_length()}")
        self.start()
        self._load_leaves(common)

    def of_row(self, nodes: Sequence[Node]) -> list[Node]:
        """The tensors that differ from row to row: loaded first. What all rows share lies in the caches."""
        return [n for n in tensor_leaves(nodes) if {*self.program.rows} <= n.axes]

    def numbers_of_row(self, nodes: Sequence[Node]) -> None:
        """Ask for numbers of the row, here and nowhere else."""
        for leaf in tensor_leaves(nodes):
            operand, axes = self.access.operands[leaf.attr.name], leaf.attr.axes
            if not operand.number and leaf.axes <= self.rows and leaf not in self.kernel.row.known:
                index = self.index_of(operand.name, axes, None)
                name = self.kernel.row.known[leaf] = self.kernel.row.fresh()
                self.kernel.out(f"{name} = {self.access.load(operand, index, way='early_')}")

    def _early(self, bodies: Sequence[Node]) -> list[Node]:
        """What results read that is loaded with the row: its own elements, and what all rows share where that fits."""
        own = self.of_row(bodies)
        found = [n for n in tensor_leaves(bodies) if n.axes & self.stream and n.axes <= self.rows | self.stream]
        common = dict.fromkeys(n for n in found if n not in own and not self.rows & n.axes)
        return [*own, *common] if self.kernel.schedule.early(len(common)) else own

    def placed(self, low: str, led: bool = True) -> str:
        """Where a thread begins in what begins at `low`, counted from the row's first vector unless `led`."""
        s = self.kernel.schedule
        mine = "" if s.threads == 1 else "t * VECTOR" if s.vector > 1 else "t"
        head = "head" if self.kernel.layout.leader and low != "low" and led else ""
        return " + ".join(x for x in (head, low, mine) if x) or "0"

    def _kept(self) -> list[Node]:
        return [r.node for r in self.program.results if r.keeps] if not self.program.passes else []

    @contextmanager
    def tiles(
        self, ordered: bool = False, backwards: bool = False, then: Callable[[], None] | None = None
    ) -> Iterator[None]:
        """The loop over the tiles of a thread; inside, `first` is its first position and `stop` where its part ends.
        `then` prints what follows in the loop, where `first` is the first position of the next tile.

        `backwards`: from the last tile to the first, where they have been walked before: caches still hold the last.
        """
        s, out = self.kernel.schedule, self.kernel.out
        self.ordered = ordered and s.threads > 1
        self.tiles_of, self.stored, self.shared = {}, set(), set()
        step = self._share()
        self.kernel.peel.begin()
        if backwards:
            step = f"({step})" if " " in step else step
            back = f"({self.stop} - 1 - begin) // {step} * {step}"
            out("begin = first", f"first += {f'max({back}, 0)' if s.peel else back}")
            with out.block("while first >= begin:"):
                with self._in_two(f"first + {(s.tile - 1) * self.stride} < {self.stop}"):
                    yield
                out(f"first -= {step}", *self.kernel.peel.done())
            return
        self.kernel.prefetch.walk()
        with out.block(f"while {self.kernel.peel.more(self.stop)}:"):
            self.kernel.prefetch.tile()
            with self._in_two(f"first + {(s.tile - 1) * self.stride} < {self.stop}"):
                yield
            self.kernel.prefetch.turn()
            out(f"first += {step}", *self.kernel.peel.done())
            if then is not None:
                then()
        self.ordered = False

    @contextmanager
    def _in_two(self, whole: str) -> Iterator[None]:
        """The work of a tile, in columns without bounds where it is whole."""
        s = self.kernel.schedule
        if not s.column or s.exact or s.tile == 1 or self.ordered:
            yield
            return
        with self.kernel.out.apart() as said:
            self.kernel.out(f"left = i32({self.stop} - first)", role=Role.LEFT)
            self.bounds.left = True
            yield
            self.bounds.left = False
        self.kernel.out(*in_two(said, whole))

    @contextmanager
    def in_step(self, backwards: bool) -> Iterator[None]:
        """The loop over tiles that all threads of a block walk, whether they have elements of them or not; inside, a
        tile of all of them begins at `base`."""
        self.tiles_of, self.stored, self.shared = {}, set(), set()
        self._share()
        out, low = self.kernel.out, "low" if self.kernel.schedule.blocks_per_row > 1 else ""
        self.bounds.empty = True
        span = self.kernel.schedule.threads * self.kernel.schedule.tile
        if backwards:
            last = f"({self.stop} - 1{' - low' if low else ''}) // {span} * {span}"
            out(f"base = {f'{low} + ' if low else ''}{last}")
        else:
            out(f"base = {low or 'i64(0)'}")
        with out.block(f"while base >= {low or '0'}:" if backwards else f"while base < {self.stop}:"):
            out("first = base + t")
            with self._in_two(f"base + {span} <= {self.stop}"):  # all threads of the block go the same way
                yield
            out(f"base {'-' if backwards else '+'}= {span}")
        self.bounds.empty = False

    def _share(self) -> str:
        """Print where this thread's part of a row begins and ends; the text of the step to its next tile."""
        s, out, end = self.kernel.schedule, self.kernel.out, self.kernel.peel.end
        parts, span = s.split * s.cluster, s.threads * s.tile
        if parts > 1:
            share = "PREFETCH" if s.prefetch else "chunk"
            if not s.prefetch:
                unit, of = (span, "tiles") if s.column else (s.threads * s.vector, "vectors of all threads")
                shares = f"div_u64(length + {parts * unit - 1}, {parts * unit})"
                out(f"chunk = {shares} * {unit}  # per split, in whole {of}")
            head = "head + " if self.kernel.layout.leader else ""
            out(f"low = {head}split * {share}", f"stop = min(low + {share}, {end})")
        self.stop = "stop" if parts > 1 else end
        if self.ordered:
            plus, minus = ("low + ", " - low") if parts > 1 else ("", "")
            out(f"chunk = ({self.stop}{minus} + THREADS - 1) // THREADS  # consecutive elements for every thread")
            out(f"first = {plus}t * chunk", f"stop = min(first + chunk, {self.stop})")
            self.stop = "stop"
            return "TILE"
        out(f"first = {self.placed('low' if parts > 1 else '')}")
        return "THREADS * TILE" if s.threads > 1 else "TILE"

    def begun(self) -> None:
        """Called where the tile of a warp begins, `n_b` elements long."""

    def count(self) -> str:
        """The number of elements of the tile a thread has."""
        s = self.kernel.schedule
        if s.exact:
            return "TILE"
        vectors = f"({self.stop} - first + {self.stride - 1}) // {self.stride}"
        if s.peel:
            return self.kernel.peel.count(vectors, s.tile // s.vector)
        text = f"min({s.tile // s.vector}, {vectors})"
        return f"{text} * VECTOR" if s.vector > 1 else text

    def load_tile(self, steps: Sequence[Step], bodies: Sequence[Node] = ()) -> None:
        """Load the elements a tile's steps read, and note what several of its loops share."""
        groups = self._walks(steps)
        self.shared = repeated([*groups, list(bodies)], self.rows, self.stream)
        self._load_leaves([n for step in steps for n in step_nodes(step)] + list(bodies))

    def _load_leaves(self, nodes: Sequence[Node]) -> None:
        wanted = [n for n in tensor_leaves(nodes) if n.axes & self.stream and n.axes <= self.rows | self.stream]
        vectors: list[Node] = []
        single: list[Node] = []
        for leaf in dict.fromkeys(wanted):
            if leaf in self.tiles_of:
                continue
            name = self.access.array_names[leaf.attr.name]
            name += f"{sum(x.op == leaf.op and x.attr.name == leaf.attr.name for x in self.tiles_of) or ''}_tile"
            self.tiles_of[leaf] = name
            kind = self.kernel.kinds.of(leaf)
            self.kernel.out(f"{name} = cuda.local.array({self.kernel.peel.entries}, {DTYPE.get(kind, self.real)})")
            (vectors if self.in_vectors(leaf) else single).append(leaf)
        for name, entries in self.kernel.layout.packed:
            own = [leaf for leaf in vectors if leaf.attr.name == name]
            if len(own) < len(entries):  # some were loaded before
                single += own
                vectors = [leaf for leaf in vectors if leaf not in own]
        self._fill(vectors, single)

    def in_vectors(self, leaf: Node) -> bool:
        """Whether neighbouring elements are loaded together."""
        layout, name = self.kernel.layout, leaf.attr.name
        along = name in layout.unit or name in layout.shifted or name in dict(layout.packed)
        return self.kernel.schedule.vector > 1 and along

    @property
    def real(self) -> str:
        return "np.float32" if self.program.real == "float32" else "np.float64"

    def _fill(self, vectors: list[Node], single: list[Node]) -> None:
        with self.kernel.out.block(self._any(self.clamps([*vectors, *single]))):
            self._load_vectors(vectors)
            self._load_single(single)

    def _load_vectors(self, leaves: list[Node]) -> None:
        out, width = self.kernel.out, self.kernel.schedule.vector
        if not leaves:
            return
        with self.beyond(leaves), self.vectors():
            out("k = v * VECTOR")
            packed = dict(self.kernel.layout.packed)
            for name, along in packed.items():
                self._load_packed([leaf for leaf in leaves if leaf.attr.name == name], along)
            for leaf in (n for n in leaves if n.attr.name not in packed):
                entries = [f"{self.tiles_of[leaf]}[k{f' + {c}' if c else ''}]" for c in range(width)]
                out(f"{', '.join(entries)} = {self._vector_of(leaf)}")
        self.kernel.peel.fill(leaves)

    def _load_packed(self, leaves: Sequence[Node], entries: Sequence[tuple[str, ...]]) -> None:
        """One vector of elements whose entries lie side by side: one load after the other, dealt out to their tiles."""
        if not leaves:
            return
        out, width, count = self.kernel.out, self.kernel.schedule.vector, len(entries)
        tiles = {leaf.attr.axes: self.tiles_of[leaf] for leaf in leaves}
        operand = self.access.operands[leaves[0].attr.name]
        start = self.index_of(operand.name, entries[0], "j")
        for load in range(count):
            places = [divmod(load * width + c, count) for c in range(width)]
            targets = [f"{tiles[entries[e]]}[k{f' + {k}' if k else ''}]" for k, e in places]
            more = f" + {load * width}" if load else ""
            out(f"{', '.join(targets)} = {self.access.load(operand, start + more, width, self.kernel.peel.way)}")

    def _load_single(self, leaves: list[Node]) -> None:
        staged = [leaf for leaf in leaves if self.kernel.staging.unbounded(leaf)]
        if staged:
            out, stride = self.kernel.out, self.stride
            with out.block("for k in range(TILE):"):
                out(f"at = first + k * {stride}" if stride > 1 else "at = first + k")
                out(*(f"{self.tiles_of[leaf]}[k] = {self.read(leaf, 'at')}" for leaf in staged))
        leaves = [leaf for leaf in leaves if leaf not in staged]
        leaves = self._load_kept(leaves)
        if not leaves:
            return
        spread = [leaf.attr.axes for leaf in leaves if not self.access.walks_flat(leaf.attr.axes)]
        with self.beyond(leaves), self.each(True, {a for axes in spread for a in axes}):
            for leaf in self._load_adjacent(leaves):
                self.kernel.out(f"{self.tiles_of[leaf]}[k] = {self.read(leaf, 'at')}")
        self._keep(leaves)

    def _load_kept(self, leaves: list[Node]) -> list[Node]:
        """The elements that an earlier walk has left in shared memory; what is left."""
        kept = self.kernel.kept
        there = [leaf for leaf in leaves if kept.has(leaf)]
        if there:
            with self.whole(), self.each(True):
                self.kernel.out(*(f"{self.tiles_of[leaf]}[k] = {kept.load(leaf)}" for leaf in there))
        return [leaf for leaf in leaves if leaf not in there]

    def _keep(self, leaves: list[Node]) -> None:
        """Leave elements in shared memory for later walks."""
        kept = self.kernel.kept
        taken = [leaf for leaf in leaves if kept.takes(leaf)]
        if taken:
            with self.whole(), self.each(True):
                for leaf in taken:
                    kept.keep(leaf, f"{self.tiles_of[leaf]}[k]")
        kept.there |= set(taken)

    def _load_adjacent(self, leaves: list[Node]) -> list[Node]:
        """The entries of an element that lie side by side, several to a load; what is left."""
        for name, width, entries in self.kernel.layout.adjacent:
            own = {n.attr.axes: n for n in leaves if n.attr.name == name and n.attr.axes in entries}
            if len(own) < len(entries):  # some were loaded before
                continue
            for first in range(0, len(entries), width):
                some = entries[first : first + width]
                targets = [f"{self.tiles_of[own[axes]]}[k]" for axes in some]
                at = self.index_of(name, some[0], "at")
                self.kernel.out(f"{', '.join(targets)} = {self.access.load(self.access.operands[name], at, width)}")
            leaves = [n for n in leaves if n not in own.values()]
        return leaves

    def clamps(self, leaves: Sequence[Node]) -> bool:
        """Whether places beyond the row are those of its last vector when a tile is loaded, instead of being left out.

        What is widened after it was loaded is waited for before a branch ends, and every load would wait for the one
        before: variance of 801 rows of 2110 columns float16 takes an H100 24 us where memory takes 3 (2026-11-25). A
        load of float32 is waited for where it is used, or where LLVM computes the only thing that is made of it and of
        constants, which is at once: the largest absolute values of a transposed 917x539 take 6.2 us, 3.3 without. A
        vector that is put together from two is waited for, too: RMSNorm of 29 rows of 1354 float32 takes an H200 3.2 us
        by three vectors of a thread, 2.1 by as many that are aligned (2026-11-28).
        """
        s = self.kernel.schedule
        waited = any(map(self._waited_for, leaves))
        return (waited or self.bounds.left) and not (s.exact or s.prefetch or s.staged and not s.persistent)

    def _waited_for(self, leaf: Node) -> bool:
        """Whether something is computed of what a load brings where it is loaded."""
        name = leaf.attr.name
        together = name in self.kernel.layout.shifted and self.in_vectors(leaf)
        return together or self.access.operands[name].dtype not in AS_LOADED or leaf in self._mapped

    @cached_property
    def _mapped(self) -> frozenset[Node]:
        """The leaves of which one thing is made, by nothing but constants."""
        takers: dict[Node, list[Node]] = {}
        for node in walk(*self.everything()):
            for leaf in {a for a in node.args if a.op == "tensor"}:
                takers.setdefault(leaf, []).append(node)
        alone = {leaf: found[0] for leaf, found in takers.items() if len(found) == 1}
        return frozenset(n for n, taker in alone.items() if all(a is n or a.op == "const" for a in taker.args))

    @contextmanager
    def beyond(self, leaves: Sequence[Node], loading: bool = True) -> Iterator[None]:
        """Where such leaves are loaded."""
        peel = self.kernel.peel
        before, peel.clamped = peel.clamped, loading and self.clamps(leaves)
        yield
        peel.clamped = before

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Where kept rows are read and written: there is room for whole tiles, and what is beyond the row is read by
        nobody. Loads and stores behind bounds have addresses of their own, 64 registers more of 16 elements."""
        self.bounds.whole = True
        yield
        self.bounds.whole = False

    def _any(self, clamped: bool) -> str | None:
        """The text of whether a row has a last element; a row that is walked has one, and so has one that is peeled."""
        s = self.kernel.schedule
        return "if length > 0:" if clamped and s.resident and not s.peel else None

    def late(self, nodes: Sequence[Node]) -> list[Node]:
        """The element leaves that are not in registers yet and may be loaded as vectors."""
        found = [n for n in tensor_leaves(nodes) if n.axes & self.stream and n.axes <= self.rows | self.stream]
        return [n for n in dict.fromkeys(found) if self.in_vectors(n) and n not in self.tiles_of]

    def loaded_together(self, leaves: Sequence[Node]) -> int:
        """How many vectors of such leaves are asked for before results are written: no load may pass a store, since
        what is written might be what it reads."""
        return self.kernel.schedule.asked(len(leaves)) if leaves else 1

    def name_parts(self, leaves: Sequence[Node], together: int) -> None:
        """Room for vectors of every leaf."""
        for leaf in leaves:
            name = f"{self.access.array_names[leaf.attr.name]}_part"
            name += f"{sum(x.attr.name == leaf.attr.name for x in self.parts_of) or ''}"
            self.parts_of[leaf] = name, f"{self.kernel.schedule.vector} * u" if together > 1 else ""
            dtype = DTYPE.get(self.kernel.kinds.of(leaf), self.real)
            self.kernel.out(f"{name} = cuda.local.array({together * self.kernel.schedule.vector}, {dtype})")

    def load_parts(self, leaves: Sequence[Node]) -> None:
        """Load one vector of every leaf."""
        width = self.kernel.schedule.vector
        for leaf in leaves:
            entries = ", ".join(_entry(*self.parts_of[leaf], str(c) if c else "") for c in range(width))
            self.kernel.out(f"{entries} = {self._vector_of(leaf)}")

    def _vector_of(self, leaf: Node) -> str:
        """The text of the vector of a leaf that begins at element j."""
        operand, width = self.access.operands[leaf.attr.name], self.kernel.schedule.vector
        base = self.bases.get((operand.name, leaf.attr.axes))
        return self.kernel.prefetch.load(leaf, width) or self.access.load(
            operand, f"{base} + j" if base else "j", width, self.kernel.peel.way
        )

    # --- loops over a tile -------------------------------------------------------------------------------------------

    @contextmanager
    def vectors(self, late: Sequence[Node] = ()) -> Iterator[None]:
        """For every vector of the tile (or a part) in the row; j is its first position. `late`: leaves loaded here."""
        s, out, together = self.kernel.schedule, self.kernel.out, self.loaded_together(late)
        self.name_parts(late, together)
        if together == 1:
            over = f"for v in range({some(s) if self.bounds.part else s.tile // s.vector}):"
            with out.block(over), self._vector():
                self.load_parts(late)
                yield
            return
        with out.block(f"for g in range({s.tile // s.vector // together}):"):
            for loading in (True, False):
                with out.block(f"for u in range({together}):"):
                    out(f"v = {together} * g + u")
                    # rows that are walked, or peeled, have a last vector
                    with self.beyond(late, loading and (s.peel or not s.resident)), self._vector():
                        if loading:
                            self.load_parts(late)
                        else:
                            yield

    @contextmanager
    def _vector(self) -> Iterator[None]:
        out, at, clamped = self.kernel.out, f"first + v * {self.stride}", self.kernel.peel.clamped
        out(f"j = min({at}, {self.stop} - VECTOR)" if clamped else f"j = {at}")
        with out.block(conjunction([None if clamped or self.kernel.schedule.exact else f"j < {self.stop}"])):
            yield

    @contextmanager
    def each(self, position: bool = False, axes: Iterable[str] = ()) -> Iterator[None]:
        """For every element of the tile, or of a part of it, in the row; `at` is its position if that is asked for."""
        if self.kernel.schedule.vector == 1:
            with self._single(position, axes):
                yield
            return
        with self.vectors(), self.within(position, axes):
            yield
        self.kernel.peel.repeat(axes if position else ())

    @contextmanager
    def _single(self, position: bool, axes: Iterable[str]) -> Iterator[None]:
        """The same of elements that are read one by one."""
        s, out, clamped = self.kernel.schedule, self.kernel.out, self.kernel.peel.clamped
        over = f"for k in range({some(s) if self.bounds.part else 'TILE'}):"
        with out.block(f"for u in range({s.turned}):" if self.in_portion else over):
            out(*([f"k = {self.in_portion} + u"] if self.in_portion else []))
            step = f"k * {self.stride}" if self.stride > 1 else "k"
            if position or not (s.exact or self._counts_left):
                out(f"at = {self._place(step, clamped)}", role=Role.PLACE)
            bound = f"{step} < left" if self._counts_left else f"at < {self.stop}"
            free = clamped or self.bounds.whole or s.exact
            with out.block(None if free else f"if {bound}:", Role.INSIDE):
                self.places_along(axes if position else ())
                yield

    def _place(self, step: str, clamped: bool) -> str:
        """The text of the place so far from the tile's first one, or, where loads are `clamped`, of the row's last."""
        if self.bounds.whole or not clamped:
            return f"first + {step}"
        return self.bounds.place(step, self.stop) if self.bounds.left else f"min(first + {step}, {self._last})"

    @property
    def _last(self) -> str:
        """The text of the last place of a row; of another one where this thread's is none (`StagedGroups.stop`)."""
        return "length - 1" if self.stop == self.kernel.staging.stop else f"{self.stop} - 1"

    @contextmanager
    def portion(self, first: str) -> Iterator[None]:
        """Loops over the elements of a thread that are written at a time, from this one on."""
        self.in_portion = first
        yield
        self.in_portion = None

    @contextmanager
    def within(self, position: bool = False, axes: Iterable[str] = ()) -> Iterator[None]:
        """For every element of a vector."""
        out = self.kernel.out
        with out.block("for c in range(VECTOR):") as said:
            out("k = v * VECTOR + c", *(["at = j + c"] if position else []))
            self.places_along(axes if position else ())
            before = len(said)
            yield
            self.kernel.peel.repeated = said[before:]

    def places_along(self, axes: Iterable[str]) -> None:
        """The index along every axis of a composite stream, where one is read by itself."""
        stream = self.program.stream
        if len(stream) == 1 or not set(axes) & set(stream):
            return
        self.kernel.out("rest = at", *self.access.indices("rest", stream))

    def needs(self, nodes: Sequence[Node]) -> tuple[bool, set[str]]:
        """Whether elements read their position, and along which axes of the stream by name."""
        axes: set[str] = set()
        position = False
        for n in walk(*nodes):
            if n.op == "index" and n.attr in self.stream:
                position = True
                axes |= {n.attr} if len(self.program.stream) > 1 else set()
            elif n.op == "tensor" and n.axes & self.stream and n not in self.tiles_of and n not in self.late(nodes):
                position = True
                axes |= set() if self.access.walks_flat(n.attr.axes) else {a for a in n.attr.axes if a in self.stream}
        return position, axes

    @staticmethod
    def _walks(steps: Sequence[Step]) -> list[list[Node]]:
        """What every walk over the whole tile computes."""
        return [step_nodes(s) for s in steps if isinstance(s, Loop) and not s.part]

    # --- values that several loops use -------------------------------------------------------------------------------

    def value_name(self, number: int, node: Node) -> str:
        """The name of a tile of values: CPU kernels have one buffer for all tiles of a name."""
        return f"{WORDS.get(self.kernel.kinds.of(node), 'value')}{number}_tile"

    def stored_value(self, node: Node) -> str:
        """Where a shared value of this element is kept."""
        name = self.tiles_of[node] = self.value_name(len(self.stored) + 1, node)
        self.stored.add(node)
        return f"{name}[k]"


def _entry(table: str, start: str, c: str) -> str:
    """An entry of a table, counted from one of them."""
    return f"{table}[{' + '.join(x for x in (start, c) if x) or '0'}]"


def shared_row(kernel: Kernel, length: str) -> str:
    """Where a row's entries start in a table of shared memory that has as many for every row of the block."""
    return f"r * {length} + " if kernel.schedule.rows > 1 else ""
