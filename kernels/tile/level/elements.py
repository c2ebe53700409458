"""What kernels of tile programs do between products: maps over tiles in registers, values, and what is stored.

A tile in registers has the same place for every number whatever multiplies: with `held` rows of a thread, element k
lies in its row k/2 mod `held`, and in column ``8·(k/(2·held)) + 2·(lane mod 4) + k mod 2``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

from redalg.graph.node import ZERO, Node, add, const, mul, outermost, walk
from redalg.kernels.code.scalars import ATOM, MUL, Scalars
from redalg.kernels.ir.program import Module, Result
from redalg.kernels.tile.contractions import Outside
from redalg.kernels.tile.level.derive import Parts, assuming, one_sided
from redalg.kernels.tile.level.lowering import Lowering
from redalg.kernels.tile.level.program import Clear, Convert, Load, Map, Op, Store, TileProgram, inner
from redalg.kernels.tile.level.sizes import Sizes
from redalg.kernels.tile.printer import QUICK, TilePrinter
from redalg.source.names import axis_name, result_name

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


class TileKernel(TilePrinter, Lowering):
    """Prints one kernel: what does not depend on who copies and multiplies."""

    def __init__(self, parts: Parts, tiles: TileProgram, sizes: Sizes) -> None:
        super().__init__(parts.program)
        self.parts, self.tiles, self.sizes = parts, tiles, sizes
        self.shapes: dict[str, str] = {}  # what makes functions of tiles' shapes
        self.row, self.stream = axis_name(parts.row), axis_name(parts.stream)
        self.clamped: set[str] = set()
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
        maps = [op for op in inner(self.body) if isinstance(op, Map)]
        for number, op in enumerate(maps):
            later = {t for m in maps[number + 1 :] for t in m.reads}
            for name in (t for t in op.writes if t not in found):
                own = [t for t in free if t not in later]
                found[name] = own[0] if own else name
                if own:
                    free.remove(own[0])
        return found

    @property
    def body(self) -> tuple[Op, ...]:
        """What is done by whoever multiplies."""
        return self.tiles.bodies.get("consumers") or self.tiles.bodies["all"]

    def registers_of(self, tile: str) -> int:
        """Numbers of a tile that a thread holds."""
        return self.tiles.tiles[tile].lengths[1] * self.sizes.thread_rows // 4

    def register(self, r: int, c: int) -> str:
        """Where a thread has a number of group k of eight columns, of its row r."""
        return f"[{2 * self.sizes.thread_rows} * k + {2 * r + c}]"

    def value(self, vector: str, c: int) -> str:
        """The text of a value of the stream, of a thread's column c of group k."""
        raise NotImplementedError

    def group(self, op: Map) -> None:
        """What comes before the numbers of a group of eight columns."""

    def declared(self) -> None:
        """Registers of tiles, and of weights as products read them."""
        for name, held in self.held.items():
            if name == held:
                self.array(name, self.registers_of(name))
        for name in self.parts.weights:
            self.array(f"{name}_words", self.registers_of(name) // 2, "np.uint32")

    # --- nodes -------------------------------------------------------------------------------------------------------

    def variant(self, node: Node, whole: bool) -> Node:
        """A node as it is printed for blocks in which the condition holds everywhere, or for any."""
        condition = self.parts.condition
        if whole and condition is not None:
            node = assuming(node, condition, True)
        return by_base_2(node)

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

    def write(self) -> None:
        raise NotImplementedError

    def module(self) -> Module:
        self.write()
        s = self.sizes
        about = self.about(f"a tile program of {s.rows} rows and blocks of {s.columns} of the stream, on tensor cores")
        return self.finished(f"{result_name(self.program.name)}_kernel", about, s.threads, s.shared)

    def whole(self) -> str:
        """Whether all elements of a block exist and the condition holds for them."""
        more = "" if self.bounds.whole == "True" else f" and {self.bounds.whole}"
        if self.bounds.whole == "False":
            return "False"
        return f"{self.stream}_last < {self.access.size(self.parts.stream)}{more}"

    def mapped_values(self) -> None:
        """What maps read that is the same for a row or for a tile."""
        out = self.out
        maps = [n for op in inner(self.body) if isinstance(op, Map) for _, n in op.targets]
        nodes = [self.variant(n, whole) for n in maps for whole in (True, False)]
        self.tile_values(nodes, self.vectors)
        rows = dict.fromkeys(n for n, side in one_sided(nodes, self.parts.row, self.parts.stream) if side == "row")
        self.row_values = {n: f"row_value{k}" for k, n in enumerate(rows)}
        if not rows:
            return
        self.clamped = {self.parts.row}
        for r in range(self.sizes.thread_rows):
            out(f"clamped_{self.row} = min(row + {8 * r}, {self.access.size(self.parts.row)} - 1)")
            out(f"i_{self.row} = clamped_{self.row}")
            scope = self.scope(self.known)
            for n, name in self.row_values.items():
                text = scope.converted(n, "f")
                out(*scope.lines, f"{name}_{r} = {text}")
                scope.lines = []
        self.clamped = set()

    def stream_values(self, nodes: Sequence[Node], position: str) -> None:
        """``value_0``, ``value_1``, …: values of the stream at a position, if that is `inside`."""
        out, size = self.out, self.access.size(self.parts.stream)
        out(f"i_{self.stream} = {position}", f"inside = i_{self.stream} < {size}")
        out(f"clamped_{self.stream} = min(i_{self.stream}, {size} - 1)")
        self.clamped = {self.parts.stream}
        scope = self.scope(self.known)
        scope.announce(nodes)
        for number, node in enumerate(nodes):
            text = scope.converted(node, "f")
            scope.lines.append(f"value_{number} = {text}")
        out(*scope.lines)
        self.clamped = set()

    def tile_values(self, nodes: Iterable[Node], but: Iterable[Node]) -> None:
        """Names for what is the same for all of a tile."""
        varying = {self.parts.row, self.parts.stream, *self.program.columns}
        self.known = {}
        scope = self.scope({})

        def wanted(n: Node) -> bool:
            still = not varying & n.axes and not any(x.op in ("state", "index") for x in walk(n))
            return still and not n.is_boolean and n.op not in ("const", "special") and self.kinds.of(n) == "f"

        for n in outermost(wanted, *nodes, done=set(but)):
            name = f"tile_value{len(self.known)}"
            text = scope.converted(n, "f")
            self.out(*scope.lines, f"{name} = {text}")
            scope.lines = []
            self.known[n] = name

    def clear(self, op: Clear) -> None:
        with self.out.block(f"for k in range({self.registers_of(op.tile)}):"):
            self.out(f"{op.tile}[k] = f32(0)")

    def convert(self, op: Convert) -> None:
        held = self.held[op.source]
        with self.out.block(f"for k in range({self.registers_of(op.source) // 2}):"):
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
            self.group(op)
            for r in range(self.sizes.thread_rows):
                for c in range(2):
                    self.element(op, targets, whole, r, c)
        for first in range(GROUPS, groups, GROUPS):
            with out.block(f"for k in range({first}, {min(groups, first + GROUPS)}):"):
                out(*body)

    def positional(self, targets: Sequence[tuple[str, Node]], known: Mapping[Node, str]) -> bool:
        """Whether an element depends on where it is, beyond its scores and what is known."""
        return any(n.op in ("index", "tensor") for _, x in targets for n in walk(x, done=known))

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
        register = self.register(r, c)
        known = self.known | {n: f"{name}_{r}" for n, name in self.row_values.items()}
        known |= {n: self.value(v, c) for n, v in self.vectors.items()}
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
        for x in self.body:
            if isinstance(x, Store):
                self.result(x)

    def result(self, op: Store) -> None:
        out = self.out
        result = next(r for r in self.program.results if r.name == op.result)
        column = next(a for a in result.axes if a in self.program.columns)
        tile = next(t for t in self.parts.part if any(n.op == "state" and n.attr.name == t for n in walk(op.node)))
        groups = self.tiles.tiles[tile].lengths[1] // 8
        rows = [n for n, side in one_sided([op.node], self.parts.row, column) if side == "row"]
        for r in range(self.sizes.thread_rows):
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
            own = known | {n: f"{n.attr.name}{self.register(r, c)}" for n in walk(node) if n.op == "state"}
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


def by_base_2(node: Node) -> Node:
    """Exponentials of something linear in one score as powers of 2, their factors and shifts once a row, a column or a
    tile."""
    new: dict[Node, Node] = {}
    for n in walk(node):
        args = tuple(new[a] for a in n.args)
        if n.op == "exp":
            new[n] = _power_of_2(args[0])
        else:
            new[n] = n if args == n.args else Node(n.op, args, n.attr)
    return new[node]


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


def _still(node: Node, row: str, column: str) -> Iterator[Node]:
    """Maximal parts that vary neither along rows nor along columns."""

    def still(n: Node) -> bool:
        varies = {row, column} & n.axes or any(x.op in ("state", "index") for x in walk(n))
        return not varies and not n.is_boolean and n.op not in ("const", "special")

    return outermost(still, node)
