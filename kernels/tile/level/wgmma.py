"""Tile programs of a producer and consumers as statements, by wgmma (compute capability 9.0).

One thread of the producer warpgroup asks the copy engine for boxes, a warp of it computes values of the stream, and
every consumer warpgroup multiplies and maps 64 rows. Each operation of the tile program is printed by one method.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction

from redalg.graph.node import ZERO, Node, add, const, mul, walk
from redalg.kernels.code.scalars import ATOM, MUL, Scalars
from redalg.kernels.ir.program import Module, Result
from redalg.kernels.ir.tensor_cores import CHUNK
from redalg.kernels.launch.planned import Map as TensorMap
from redalg.kernels.tile.contractions import Outside
from redalg.kernels.tile.level.derive import Parts, assuming, one_sided
from redalg.kernels.tile.level.program import (
    Arrive,
    Clear,
    Convert,
    For,
    Free,
    Load,
    Map,
    Mma,
    Store,
    TileProgram,
    Wait,
    inner,
)
from redalg.kernels.tile.level.sizes import Sizes
from redalg.kernels.tile.level.warpgroups import (
    Ring,
    Warpgroups,
    at,
    barriers,
    described,
    indices,
    map_at,
    multiplied,
    registers,
)
from redalg.kernels.tile.printer import NUMBERS, QUICK, TilePrinter
from redalg.source.names import axis_name, operand_name, result_name

LOG2E = const(Fraction("1.442695040888963407359924681001892137"))
EXP2 = "exp2_of"  # exp(rate·x/LOG2E + shift/LOG2E): arguments x, rate, shift
GROUPS = 8  # of eight columns in one loop: of longer ones the compiler leaves the registers in memory


class TileElements(Scalars):
    """Expressions on elements: exponentials by base 2."""

    def _exp2_of(self, node: Node) -> tuple[int, str]:
        x, rate, shift = node.args
        if shift is ZERO:
            return ATOM, f"exp2_fast({self.converted(x, 'f', MUL)} * {self.converted(rate, 'f', ATOM)})"
        return ATOM, f"exp2_fast(fma_f32({', '.join(self.converted(a, 'f') for a in (x, rate, shift))}))"


class KernelPrinter(TilePrinter, Warpgroups):
    """Prints one kernel."""

    def __init__(self, parts: Parts, tiles: TileProgram, sizes: Sizes, maps: Sequence[TensorMap]) -> None:
        super().__init__(parts.program)
        self.parts, self.tiles, self.sizes, self.maps = parts, tiles, sizes, maps
        self.shapes: dict[str, str] = {}  # what makes functions of tiles' shapes
        self.row, self.stream = axis_name(parts.row), axis_name(parts.stream)
        self.clamped: set[str] = set()
        self.boxes = [b.name for b in parts.boxes.values()]
        self.streamed = [b.name for b in parts.boxes.values() if b.streamed]
        self.vectors = self._vectors()
        self.bounds = self.bounded(parts.condition, parts.row, parts.stream, lambda: self.scope({}))
        self.held = self._held()
        self.known: dict[Node, str] = {}  # what is the same for all of a tile, by its name
        self.row_values: dict[Node, str] = {}

    def _vectors(self) -> dict[Node, str]:
        ops = [op for body in self.tiles.bodies.values() for op in inner(body)]
        return {op.source: op.tile for op in ops if isinstance(op, Load) and not op.box}

    def _held(self) -> dict[str, str]:
        """The array of registers of every tile; weights take the place of scores that are not read any more."""
        found = {s.tile: s.tile for s in self.parts.scores} | {s.tile: s.tile for s in self.parts.sums}
        free = [s.tile for s in self.parts.scores]
        maps = [op for op in inner(self.tiles.bodies["consumers"]) if isinstance(op, Map)]
        for number, op in enumerate(maps):
            later = {t for m in maps[number + 1 :] for t in m.reads}
            for name in (t for t in op.writes if t not in found):
                own = [t for t in free if t not in later]
                found[name] = own[0] if own else name
                if own:
                    free.remove(own[0])
        return found

    # --- nodes -------------------------------------------------------------------------------------------------------

    @staticmethod
    def by_base_2(node: Node, parts: Parts) -> Node:
        """Exponentials of something linear in one score as powers of 2, their factors and shifts once a row, a column
        or a tile."""
        new: dict[Node, Node] = {}
        for n in walk(node):
            args = tuple(new[a] for a in n.args)
            if n.op == "exp":
                new[n] = _power_of_2(args[0])
            else:
                new[n] = n if args == n.args else Node(n.op, args, n.attr)
        return new[node]

    def variant(self, node: Node, whole: bool) -> Node:
        """A node as it is printed for blocks in which the condition holds everywhere, or for any."""
        condition = self.parts.condition
        if whole and condition is not None:
            node = assuming(node, condition, True)
        return self.by_base_2(node, self.parts)

    def scope(self, known: Mapping[Node, str]) -> TileElements:
        made = TileElements("f32", self.kinds, self.leaf, self.access.size, self.counter, known, names=QUICK)
        return made

    def leaf(self, node: Node) -> str:
        if node.op == "state":
            raise Outside(f"{node.attr.name} is read where it is not held")
        return super().leaf(node)

    def is_clamped(self, axis: str) -> bool:
        return axis in self.clamped

    # --- the kernel --------------------------------------------------------------------------------------------------

    def module(self) -> Module:
        self.write()
        s = self.sizes
        about = self.about(f"a tile program of {s.rows} rows and blocks of {s.columns} of the stream, on tensor cores")
        return self.finished(f"{result_name(self.program.name)}_kernel", about, s.threads, s.shared)

    def constants(self) -> dict[str, object]:
        s = self.sizes
        sizes = {"ROWS": s.rows, "COLUMNS": s.columns, "STAGES": s.stages, "CONSUMERS": s.consumers}
        return {**NUMBERS, **sizes}

    def makers(self) -> dict[str, str]:
        return {**self.shapes, **registers()}

    @property
    def consumers(self) -> int:
        return self.sizes.consumers

    def write(self) -> None:
        out = self.out
        out.comment(*self.tiles.text().splitlines()[1:])
        self.shared()
        self.roles()

    def producer(self) -> None:
        """One thread asks for boxes, and a few warps compute values of the stream."""
        out, bodies = self.out, self.tiles.bodies
        self.producer_head()
        with out.block("if t == 0:"):
            out("stage = 0", "phase = 1", "stay_phase = 1")
            with self.each_tile():
                self.produce(bodies["producer"])
        if "values" in bodies:
            with out.block(f"if t >= 32 and t < {32 + 32 * self.sizes.value_warps}:"):
                out("number = t - 32", "lane = t & 31", "stage = 0", "phase = 1")
                with self.each_tile():
                    self.tile_values([op.source for op in inner(bodies["values"]) if isinstance(op, Load)], [])
                    self.produce(bodies["values"])

    def shared(self) -> None:
        out, s = self.out, self.sizes
        self.began()
        out("base = shared_base(smem)")
        for name in self.boxes:
            out(f"{operand_name(name)}_tile = base + {s.place(name)}")
        out(f"values_at = base + {s.values_at}", f"stay_full = base + {s.barriers_at}", "stay_free = stay_full + 8")
        place = "stay_full + 16"
        for name in self.streamed:
            out(f"{operand_name(name)}_full = {place}")
            place = f"{operand_name(name)}_full + 8 * STAGES"
        out(f"values_full = {place}", "free = values_full + 8 * STAGES")
        with self.initialised():
            out(*barriers("stay_full", "stay_free"))
            with out.block("for k in range(STAGES):"):
                out(*(f"mbarrier_init({operand_name(name)}_full + 8 * k, 1)" for name in self.streamed))
                out(
                    f"mbarrier_init(values_full + 8 * k, {s.value_warps})", "mbarrier_init(free + 8 * k, 4 * CONSUMERS)"
                )

    # --- tiles of the result -----------------------------------------------------------------------------------------

    @contextmanager
    def each_tile(self) -> Iterator[None]:
        parts, b = self.parts, self.bounds
        with self.in_turns(self.fix("tiles")):
            across = "" if parts.condition is None else self.descending if b.high else "across"
            self.located(parts.batch, parts.row, across=across)
            self.visited(b, self.access.size(parts.stream), "COLUMNS")
            yield

    def whole(self) -> str:
        """Whether all elements of a block exist and the condition holds for them."""
        more = "" if self.bounds.whole == "True" else f" and {self.bounds.whole}"
        if self.bounds.whole == "False":
            return "False"
        return f"{self.stream}_last < {self.access.size(self.parts.stream)}{more}"

    # --- producers ---------------------------------------------------------------------------------------------------

    def ring(self, tile: str) -> Ring:
        """What stays has a barrier of its own; boxes of a stage have one each, and one that says that all are read."""
        step = "phase ^= stage == STAGES - 1", "stage = (stage + 1) % STAGES"
        if tile in self.parts.boxes and not self.parts.boxes[tile].streamed:
            return Ring("stay_full", "stay_free", "stay_phase", ("stay_phase ^= 1",), single=True)
        name = "values" if tile in self.vectors.values() else operand_name(tile)
        return Ring(f"{name}_full + 8 * stage", "free + 8 * stage", "phase", step)

    def fill(self, op: For) -> None:
        out = self.out
        out("block = low")
        with out.block("while block <= last:"):
            self.produce(op.body)
            values = [x for x in op.body if isinstance(x, Load) and not x.box]
            if values:
                self.computed(values)
            out("phase ^= stage == STAGES - 1", "stage = (stage + 1) % STAGES", "block = opaque(block + 1)")

    def free(self, op: Free) -> None:
        ring = self.ring(op.tiles[0])
        self.out(*ring.freed, *([ring.expected(self.sizes.stay_bytes)] if ring.single else []))

    def load(self, op: Load) -> None:
        """A tile, in chunks of 64 columns."""
        if not op.box:
            return
        b, size, ring = self.parts.boxes[op.tile], self.sizes.bytes_of(op.tile), self.ring(op.tile)
        number, load, place = (
            self.boxes.index(op.tile),
            f"load_{operand_name(op.tile)}",
            f"{operand_name(op.tile)}_tile",
        )
        m = self.maps[number]
        starts = {self.parts.row: f"{self.row}_first", self.parts.stream: "block * COLUMNS"}
        first, row = starts.get(b.axes[1]), starts.get(b.axes[0], "0")
        self.shapes[load] = f"tma_load({m.rank})"
        if not ring.single:
            self.out(ring.expected(size))
            place += f" + {size} * stage"
        for k in range(m.count):
            column = at(first, CHUNK * k) if first else str(CHUNK * k)
            where = at(place, k * m.rows * 128), map_at(number), ring.full
            self.out(f"{load}({', '.join([*where, column, row, *indices(m)])})")

    def computed(self, loads: Sequence[Load]) -> None:
        """Values of the stream, by some warps: 0 beyond its end. All of a thread's are loaded before one is stored,
        since a store orders memory and loads take long."""
        out, size, s = self.out, self.access.size(self.parts.stream), self.sizes
        threads = 32 * s.value_warps
        with out.block(f"for k in range({-(-s.columns // threads)}):"):
            out(f"column = number + {threads} * k", f"i_{self.stream} = block * COLUMNS + column")
            out(f"inside = i_{self.stream} < {size}", f"clamped_{self.stream} = min(i_{self.stream}, {size} - 1)")
            self.clamped = {self.parts.stream}
            scope = self.scope(self.known)
            scope.announce([op.source for op in loads])
            for number, op in enumerate(loads):
                text = scope.converted(op.source, "f")
                scope.lines.append(f"value_{number} = {text}")
            out(*scope.lines)
            self.clamped = set()
            with out.block("if column < COLUMNS:" if s.columns % threads else None):
                for number in range(len(loads)):
                    at = f"values_at + {s.vector_bytes} * stage + {4 * s.columns * number} + 4 * column"
                    out(f"shared_store_f32({at}, value_{number} if inside else f32(0))")
        out("syncwarp()", "mbarrier_arrive(values_full + 8 * stage, lane == 0)")

    # --- consumers ---------------------------------------------------------------------------------------------------

    def consumer(self) -> None:
        out, s = self.out, self.sizes
        self.consumer_head()
        out("stay_phase = 0", "stage = 0", "phase = 0")
        out(self.registers)
        for name, held in self.held.items():
            if name == held:
                tile = self.tiles.tiles[name]
                self.array(name, tile.lengths[1] // 2)
        for name in self.parts.weights:
            self.array(f"{name}_words", s.columns // 4, "np.uint32")
        with self.each_tile():
            out(f"row = {self.row}_first + 64 * warpgroup + 16 * warp + (lane >> 2)")
            self.mapped_values()
            self.consume(self.tiles.bodies["consumers"])

    def mapped_values(self) -> None:
        """What maps read that is the same for a row or for a tile."""
        out = self.out
        maps = [n for op in inner(self.tiles.bodies["consumers"]) if isinstance(op, Map) for _, n in op.targets]
        nodes = [self.variant(n, whole) for n in maps for whole in (True, False)]
        self.tile_values(nodes, self.vectors)
        rows = dict.fromkeys(n for n, side in one_sided(nodes, self.parts.row, self.parts.stream) if side == "row")
        self.row_values = {n: f"row_value{k}" for k, n in enumerate(rows)}
        if not rows:
            return
        self.clamped = {self.parts.row}
        for r in range(2):
            out(f"clamped_{self.row} = min(row + {8 * r}, {self.access.size(self.parts.row)} - 1)")
            out(f"i_{self.row} = clamped_{self.row}")
            scope = self.scope(self.known)
            for n, name in self.row_values.items():
                text = scope.converted(n, "f")
                out(*scope.lines, f"{name}_{r} = {text}")
                scope.lines = []
        self.clamped = set()

    def tile_values(self, nodes: Iterable[Node], but: Iterable[Node]) -> None:
        """Names for what is the same for all of a tile."""
        varying = {self.parts.row, self.parts.stream, *self.program.columns}
        self.known = {}
        scope = self.scope({})
        stack, seen = list(nodes), set(but)
        while stack:
            n = stack.pop()
            if n in seen:
                continue
            seen.add(n)
            still = not varying & n.axes and not any(x.op in ("state", "index") for x in walk(n))
            if still and not n.is_boolean and n.op not in ("const", "special") and self.kinds.of(n) == "f":
                name = f"tile_value{len(self.known)}"
                text = scope.converted(n, "f")
                self.out(*scope.lines, f"{name} = {text}")
                scope.lines = []
                self.known[n] = name
            else:
                stack += n.args

    def clear(self, op: Clear) -> None:
        with self.out.block(f"for k in range({self.tiles.tiles[op.tile].lengths[1] // 2}):"):
            self.out(f"{op.tile}[k] = f32(0)")

    def loop(self, op: For) -> None:
        out, s = self.out, self.stream
        with out.block("for block in range(low, last + 1):"):
            out(f"{s}_first = block * COLUMNS", f"{s}_last = {s}_first + (COLUMNS - 1)")
            for x, after in zip(op.body, (*op.body[1:], None), strict=True):
                if isinstance(x, Wait) and x.products and isinstance(after, Map):
                    self.preloaded(after)
                self.consume((x,))

    def wait(self, op: Wait) -> None:
        if op.products:
            for tile in op.tiles:
                self.wait_product(tile, op.under_way)
            return
        for ring in dict.fromkeys(map(self.ring, op.tiles)):
            self.out(*ring.filled)

    def wait_product(self, tile: str, groups: int) -> None:
        size = self.tiles.tiles[tile].lengths[1] // 2
        name, left = f"{tile}_wait_{groups}", next((s.left for s in self.parts.sums if s.tile == tile), None)
        held = f", {self.sizes.columns // 4}" if left else ""
        self.shapes[name] = f"wgmma_wait({groups}, {size}{held})"
        self.out(f"{name}({tile}{f', {left}_words' if left else ''})")

    def multiply(self, op: Mma) -> None:
        p, s, tiles = self.parts, self.sizes, self.tiles.tiles
        box = p.boxes[op.right]
        size = s.bytes_of(op.right)
        columns, terms = tiles[op.tile].lengths[1], s.length(op.over, p)
        across = box.axes[1] != op.over if op.fresh else box.axes[1] != p.stream
        rows = s.length(box.axes[0], p)
        right = described(f"stage_at({operand_name(op.right)}_tile, {size}, stage)", rows * 128 if across else 16)
        kind, name = "shared" if op.fresh else "registers", f"multiply_{op.tile}"
        more = {"rows": s.rows, "b_rows": rows, "fresh": op.fresh, "transposed": across}
        self.shapes[name] = multiplied(columns, terms, p.dtype, kind, more)
        left = f"{op.left.removesuffix(chr(39))}_words"
        if op.fresh:
            left = described(f"{operand_name(op.left)}_tile + 8192 * warpgroup")
        self.out(f"{name}({op.tile}, {left}, {right})")

    def arrive(self, op: Arrive) -> None:
        self.out(*self.ring(op.tiles[0]).given_back)

    def convert(self, op: Convert) -> None:
        held = self.held[op.source]
        with self.out.block(f"for k in range({self.sizes.columns // 4}):"):
            self.out(f"{op.source}_words[k] = pack_{self.parts.dtype}({held}[2 * k], {held}[2 * k + 1])")

    # --- maps --------------------------------------------------------------------------------------------------------

    def map(self, op: Map) -> None:
        out, whole = self.out, self.whole()
        if whole == "False":
            self.elements(op, False)
            return
        with out.block(f"if {whole}:"):
            self.elements(op, True)
        with out.block("else:"):
            self.elements(op, False)

    def elements(self, op: Map, whole: bool) -> None:
        """A loop over groups of eight columns, of which a thread has two in each of its two rows."""
        out, groups = self.out, self.sizes.columns // 8
        targets = [(t, self.variant(n, whole)) for t, n in op.targets]
        with out.block(f"for k in range({min(groups, GROUPS)}):") as body:
            for r in range(2):
                for c in range(2):
                    self.element(op, targets, whole, r, c)
        for first in range(GROUPS, groups, GROUPS):
            with out.block(f"for k in range({first}, {min(groups, first + GROUPS)}):"):
                out(*body)

    def preloaded(self, op: Map) -> None:
        """What a map reads of the stream's values, to registers, while products that it waits for are under way."""
        if not op.values:
            return
        with self.out.block(f"for k in range({self.sizes.columns // 8}):"):
            for v in op.values:
                self.array(f"{v}_pairs", self.sizes.columns // 4)
                number = list(self.vectors.values()).index(v)
                at = f"values_at + {self.sizes.vector_bytes} * stage + {4 * self.sizes.columns * number}"
                self.out(f"shared_load_pair({v}_pairs, 2 * k, {at} + 32 * k + 8 * (lane & 3))")

    def positional(self, targets: Sequence[tuple[str, Node]], known: Mapping[Node, str]) -> bool:
        """Whether an element depends on where it is, beyond its scores and what is known."""
        return any(n.op in ("index", "tensor") for _, x in targets for n in _unknown(x, known))

    def position(self, r: int, c: int) -> None:
        out, size = self.out, self.access.size(self.parts.stream)
        column = f"{self.stream}_first + 8 * k + 2 * (lane & 3)" + (f" + {c}" if c else "")
        out(f"i_{self.stream} = {column}", f"i_{self.row} = row + {8 * r}" if r else f"i_{self.row} = row")
        out(f"inside = i_{self.stream} < {size}")
        out(f"clamped_{self.stream} = min(i_{self.stream}, {size} - 1)")
        out(f"clamped_{self.row} = min(i_{self.row}, {self.access.size(self.parts.row)} - 1)")
        self.clamped = {self.parts.stream, self.parts.row}

    def element(self, op: Map, targets: Sequence[tuple[str, Node]], whole: bool, r: int, c: int) -> None:
        out = self.out
        register = f"[4 * k + {2 * r + c}]"
        known = self.known | {n: f"{name}_{r}" for n, name in self.row_values.items()}
        known |= {n: f"{v}_pairs[2 * k + {c}]" for n, v in self.vectors.items()}
        if not whole or self.positional(targets, known):
            self.position(r, c)
        leaves = {n for _, x in targets for n in walk(x) if n.op == "state"}
        known |= {n: f"{self.held[n.attr.name]}{register}" for n in leaves}
        scope = self.scope(known)
        scope.announce([x for _, x in targets])
        made = []
        for tile, node in targets:
            text = scope.converted(node, "f")
            name = scope.fresh()
            scope.lines.append(f"{name} = {text}")
            scope.known[node] = name
            made.append((tile, name))
        out(*scope.lines)
        self.clamped = set()
        for tile, name in made:
            guard = f"{name} if inside else f32(0)" if not whole and tile in op.guarded else name
            out(f"{self.held[tile]}{register} = {guard}")

    # --- results -----------------------------------------------------------------------------------------------------

    def store(self, op: Store) -> None:
        for x in self.tiles.bodies["consumers"]:
            if isinstance(x, Store):
                self.result(x)

    def result(self, op: Store) -> None:
        out = self.out
        result = next(r for r in self.program.results if r.name == op.result)
        column = next(a for a in result.axes if a in self.program.columns)
        tile = next(t for t in self.parts.part if any(n.op == "state" and n.attr.name == t for n in walk(op.node)))
        groups = self.tiles.tiles[tile].lengths[1] // 8
        rows = [n for n, side in one_sided([op.node], self.parts.row, column) if side == "row"]
        for r in range(2):
            out(f"i_{self.row} = row + {8 * r}")
            with out.block(f"if i_{self.row} < {self.access.size(self.parts.row)}:"):
                scope = self.scope({})
                scope.hoist(rows, [])
                scope.hoist(_still(op.node, self.parts.row, column), [])
                out(*scope.lines)
                scope.lines = []
                for first in range(0, groups, GROUPS):
                    with out.block(f"for k in range({first}, {min(groups, first + GROUPS)}):"):
                        self.pair(result, op.node, column, r, dict(scope.known))

    def pair(self, result: Result, node: Node, column: str, r: int, known: dict[Node, str]) -> None:
        out, values = self.out, []
        at = f"i_{axis_name(column)}"
        for c in range(2):
            out(f"{at} = 8 * k + 2 * (lane & 3) + {c}")
            own = known | {n: f"{n.attr.name}[4 * k + {2 * r + c}]" for n in walk(node) if n.op == "state"}
            scope = self.scope(own)
            scope.announce([node])
            text = scope.converted(node, "f")
            out(*scope.lines, f"result_{c} = {text}")
            values.append(f"result_{c}")
        out(f"{at} = 8 * k + 2 * (lane & 3)")
        where = " + ".join(self.access.offset(result.name, result.axes, result.axes, True))
        if result.axes[-1] == column:
            out(self.access.store(result, where, values))
            return
        step = self.access.stride(result.name, result.axes.index(column), True)
        for c, value in enumerate(values):
            out(self.access.store(result, f"{where} + {c} * {step}", [value]))


def _power_of_2(arg: Node) -> Node:
    terms = arg.args if arg.op == "add" else (arg,)
    scores = [t for t in terms if any(n.op == "state" for n in walk(t))]
    if len(scores) != 1:
        return Node("exp", (arg,))
    factors = scores[0].args if scores[0].op == "mul" else (scores[0],)
    own = [f for f in factors if any(n.op == "state" for n in walk(f))]
    rest = [f for f in factors if f not in own]
    x = own[0] if len(own) == 1 else Node("mul", tuple(own))
    shifts = tuple(mul(LOG2E, t) for t in terms if t is not scores[0])
    shift = add() if not shifts else shifts[0] if len(shifts) == 1 else Node("add", shifts)
    return Node(EXP2, (x, mul(LOG2E, *rest), shift))


def _unknown(node: Node, known: Mapping[Node, str]) -> Iterator[Node]:
    stack, seen = [node], set(known)
    while stack:
        n = stack.pop()
        if n not in seen:
            seen.add(n)
            stack += n.args
            yield n


def _still(node: Node, row: str, column: str) -> Iterator[Node]:
    """Maximal parts that vary neither along rows nor along columns."""
    stack = [node]
    while stack:
        n = stack.pop()
        varies = {row, column} & n.axes or any(x.op in ("state", "index") for x in walk(n))
        if not varies and not n.is_boolean and n.op not in ("const", "special"):
            yield n
        elif n.args:
            stack += n.args
