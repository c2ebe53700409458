"""One block of scores in registers: masking, folds and the weights of the next product, printed from a pass's steps.

A thread holds two rows of the block; everything below is printed once, inside a loop over them that the compiler
unrolls. Element k of a row is register ``4·(k/2) + 2·r + k mod 2`` of the tile, in column ``8·(k/2) + k mod 2`` from
the thread's first one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from redalg.graph.node import Node, is_const, walk
from redalg.graph.operators import Extremum, Sum
from redalg.kernels.code.scalars import ATOM
from redalg.kernels.code.text import joined, literal
from redalg.kernels.ir.program import Fold, Join, Let, Loop, Pass, Step, step_nodes
from redalg.kernels.tile.columns import SHOWN, Columns
from redalg.kernels.tile.contractions import share_of
from redalg.kernels.tile.match import weight_of
from redalg.kernels.tile.plan import Frozen
from redalg.kernels.tile.scalars import Element, TileScalars, exponents, floored, guarded_top, only_shrinks, risen
from redalg.kernels.tile.top_k import Listed, TopKPrinter
from redalg.source.names import axis_name, local

if TYPE_CHECKING:
    from redalg.kernels.tile.kernel import TensorKernel

WAYS = 4  # chains of a reduction over the registers of a row
START = {"sum": "f32(-0.0)", "max": "-INF", "min": "INF"}  # x + -0 is x, which the compiler knows
QUAD = "for step in range(2):"  # over the four threads that share a row


class Tile:
    """Prints blocks of one kernel."""

    def __init__(self, kernel: TensorKernel) -> None:
        self.kernel, self.made, self.out = kernel, kernel.made, kernel.out
        self.columns, self.top_k = Columns(kernel), TopKPrinter(kernel)
        self.deferred = deferred(kernel.made.walk)
        self.unscaled: list[Fold] = []  # extrema that a factor waits for
        steps = (*self.made.walk.lift, *self.made.walk.update)
        folds = [f for s in steps if isinstance(s, Loop) for f in s.folds]
        self.tops = {_part(f.names[0]) for f in folds if f.kind == "max" and f.bodies[0] is self.made.value}
        self.moves = self._moves()
        self.shrunk = {node: f"exp2_fast({local(name)}[r])" for name, (_, _, node) in self.moves.items()}

    def _moves(self) -> dict[str, tuple[Node, Node, Node]]:
        """By how much maxima of all that is exponentiated rise with a block, by name: the maximum before and after it,
        and the exponential that alone reads it. They have a floor, so that elements must have it, too."""
        found, steps = {}, self.made.walk.update
        nodes = [n for s in steps for n in step_nodes(s)]
        for step in (s for s in steps if isinstance(s, Let) and not isinstance(self.kernel.plan.anchor, Frozen)):
            pair, node = risen(step.node, self.tops), only_shrinks(nodes, step.name)
            if pair is not None and node is not None and floored(nodes, self.made.value, pair[1], self.tops):
                found[step.name] = (*pair, node)
        return found

    # --- scores ------------------------------------------------------------------------------------------------------

    def scores(self, first: bool) -> None:
        """Scores of elements there are none of, and values that have to be there before they are folded."""
        kernel, out, made = self.kernel, self.out, self.made
        whole = "True" if self.columns.passed_over else kernel.whole(first)
        if made.scale is None or whole != "True":
            out.comment(self._about(whole))
        if made.scale is not None:  # scores are what is folded: there is only something to leave out
            if whole != "True":
                with out.block(f"if not ({whole}):" if whole != "False" else None):
                    self._each(True, first)
        elif whole in ("True", "False"):
            self._each(whole == "False", first)
        else:
            with out.block(f"if {whole}:"):
                self._each(False, first)
            with out.block("else:"):
                self._each(True, first)

    def _about(self, whole: str) -> str:
        """What happens to scores before they are folded."""
        value = "Elements in place of their scores" if self.made.scale is None else "Scores"
        if whole == "True":
            return f"{value}."
        number = _number(self.made.missing)
        missing = "0" if number == 0 else "inf" if number > 0 else "-inf"
        where = "" if whole == "False" else "; a block that is whole and unmasked needs no test"
        return f"{value}, {missing} where masked or beyond the end{where}."

    def _each(self, masked: bool, first: bool) -> None:
        """Write the value of every element in place of its score."""
        kernel, out = self.kernel, self.out
        with out.block(self.kernel.each_row):
            kernel.row_places()
            self._place(kernel.row_scope(), masked, first)

    def _place(self, scope: TileScalars, masked: bool, first: bool) -> None:
        kernel, out, made = self.kernel, self.out, self.made
        shown = made.scores if made.scale is not None else made.shown
        voted = masked and self.columns.voted
        nodes = [shown] + ([made.condition] if masked and not voted and made.condition is not None else [])
        self._hoisted(scope, nodes, (made.scores,))
        there, varying = masked and first and not voted, self._varying(nodes)
        with kernel.elements(masked and not voted or bool(varying), 0, there, _reads(varying)):
            inner = scope.child([made.stream])
            inner.element = Element(made.scores, "S[s]", floats=kernel.floats())
            inner.known[made.scores] = "S[s]"
            inner.announce(nodes)
            text = inner.converted(shown, "f")
            text = self._masked(text, there, inner) if masked else text
            kernel.flush(inner)
            out(f"S[s] = {text}")

    def _masked(self, text: str, there: bool, scope: TileScalars) -> str:
        """An element's text where it is there and shown, else what a missing one is."""
        condition, voted = self.made.condition, self.columns.voted
        tests = ["in_bounds"] if there else [SHOWN] if voted else []
        if condition is not None and not voted:
            tests.append(scope.text(condition, ATOM))
        missing = literal(_number(self.made.missing), "f", self.kernel.real)
        if not text.isidentifier() and text != "S[s]":
            scope.lines.append(f"shown = {text}")
            text = "shown"
        return f"{text} if {' & '.join(tests)} else {missing}" if tests else text

    def _varying(self, nodes: Iterable[Node]) -> set[Node]:
        """Leaves that differ from element to element, but for what is in registers."""
        nodes = list(nodes)
        ready = {self.made.value, self.made.scores}.difference(nodes)
        found = (n for n in walk(*nodes, done=ready) if n.op in ("index", "tensor"))
        return {n for n in found if self.made.stream in (*n.axes, n.attr)}

    def _hoisted(self, scope: TileScalars, nodes: list[Node], but: Iterable[Node] = ()) -> None:
        """Name what is the same for all elements of the row."""
        known = dict(scope.known)
        scope.known |= dict.fromkeys(but, "S[s]")
        floats = self.kernel.floats()
        scope.known |= {n: f"i_{axis_name(n.attr)}" for n in floats}  # positions are added to each other first
        varying = [self.made.stream, *self.kernel.program.columns]
        stack = list(nodes)
        while stack:  # one division a row, and a product for every element
            n = stack.pop()
            if n.op == "pow" and is_const(n.args[1], -1) and n.axes.isdisjoint(varying) and not self._varying([n]):
                scope.define(n)
            stack += () if n in but or n in scope.known else n.args
        scope.hoist(nodes, varying)
        scope.known = {n: t for n, t in scope.known.items() if n not in floats and n not in but or n in known}
        self.kernel.flush(scope)

    # --- folds -------------------------------------------------------------------------------------------------------

    def rows(self, steps: Sequence[Let | Join], parts: Sequence[str], end: str) -> None:
        """Steps per row; then the names of these parts that end so become the state. Both rows of a thread take a step
        before the next one is printed: what one waits for, the other uses."""
        kernel, out = self.kernel, self.out
        out.comment("The state of each row, updated." if parts else "What the next fold needs of each row.")
        with out.block(self.kernel.each_row):
            kernel.row_places()
            scope = kernel.row_scope()
            scope.known |= self.shrunk
            scope.announce([s.node for s in steps if isinstance(s, Let)])
            for step in steps:
                if isinstance(step, Join):
                    self._join(step, scope)
                    continue
                kernel.array(local(step.name), kernel.held)
                scope.lines.append(f"{local(step.name)}[r] = {self._let(step, scope)}")
            kernel.flush(scope)
            out(*(f"{local(part)}[r] = {local(part)}{end}[r]" for part in parts))

    def _let(self, step: Let, scope: TileScalars) -> str:
        """The text of a value; what maxima rise by as an exponent of 2, with the floor that elements have."""
        if step.name not in self.moves:
            return scope.converted(step.node, self.kernel.kinds.names[step.name])
        old, new = (f"max_nan_f32({scope.converted(x, 'f')}, LOWEST)" for x in self.moves[step.name][:2])
        return f"LOG2E * ({old} - {new})"

    def _join(self, step: Join, scope: TileScalars) -> None:
        kernel = self.kernel
        name = local(step.names[0])
        scope.announce([*step.a, *step.b])
        if step.axes:
            share = share_of(step)
            if share is not None:
                scope.lines.append(f"{kernel.share}[r] = {scope.converted(share, 'f')}")
            return
        kernel.array(name, kernel.held)
        self.joined_row(step, scope)

    def joined_row(self, step: Join, scope: TileScalars) -> None:
        a, b = (scope.converted(side[0], "f", 2) for side in (step.a, step.b))
        name = local(step.names[0]) + ("" if self.kernel.single else "[r]")
        scope.lines.append(f"{name} = {joined(step.kind, 'f', self.kernel.real, a, b)}")

    def reduce(self, loop: Loop, first: bool) -> None:
        """Walk the elements of both rows; then the four threads of each tell each other what they found."""
        kernel, made, element = self.kernel, self.made, self.kernel.element()
        bodies = {f.names[0]: weight_of(f, made.values) if f.axes and made.values else f.bodies[0] for f in loop.folds}
        for f in (f for f in loop.folds if isinstance(f.op, Listed)):
            self.top_k.fold(f, element)
        folds = [f for f in loop.folds if not isinstance(f.op, Listed)]
        if not folds:
            return
        plain = [f for f in folds if not f.axes]
        self.out.comment(self._folds(folds, element))
        with self.out.block(kernel.each_row):
            kernel.row_places()
            scope = kernel.row_scope()
            self._shifts(bodies.values(), element, scope)
            self._hoisted(scope, list(bodies.values()), (made.value,))
            scope.element = element
            self._walk(folds, bodies, scope, first)
            for f in plain:
                self._gathered(f)
        self._exchanged([f for f in plain if f.names[0].removesuffix("_b") not in self.deferred])
        self.unscaled = [f for f in plain if bodies[f.names[0]] is made.value] if element.factor else []
        if not kernel.wide:
            self.scaled()

    def _folds(self, folds: list[Fold], element: Element) -> str:
        """What a loop over the elements leaves."""
        plain = [local(f.names[0]) for f in folds if not f.axes]
        ends = f"{', '.join(plain)} of the block by {WAYS} chains a row" if plain else ""
        weights = "weights in place of S, for the product with values" if len(plain) < len(folds) else ""
        return f"Fold on registers: {'; '.join(x for x in (ends, weights) if x)}."

    def _walk(self, folds: list[Fold], bodies: Mapping[str, Node], scope: TileScalars, first: bool) -> None:
        """Every element of a row: joined with its chains, and what it weighs in its place."""
        kernel, made, element = self.kernel, self.made, scope.element
        assert element is not None
        plain = [f for f in folds if not f.axes]
        begun = self._begin(plain, bodies, element, len(plain) == len(folds))
        varying = self._varying([b for b in bodies.values() if b is not made.value])
        there = first and (any(f.names[0] in made.guarded for f in folds) or _reads(varying))
        with kernel.elements(there or bool(varying), begun, there, _reads(varying)):
            inner = scope.child([made.stream])
            inner.known.pop(made.value, None)
            inner.announce(bodies.values())
            for f in plain:
                self._chained(f, bodies[f.names[0]], inner, first)
            for f in (f for f in folds if f.axes):
                weight = inner.converted(bodies[f.names[0]], "f")
                inner.lines.append(f"S[s] = {self._folded(f, weight, inner, first)}")
            kernel.flush(inner)

    def _chained(self, f: Fold, body: Node, scope: TileScalars, first: bool) -> None:
        """Join an element with the chain whose turn it is."""
        name = f"{local(f.names[0])}_way[k % {WAYS}]"
        assert scope.element is not None
        text = scope.element.text if self._raw(f, body) else scope.converted(body, "f", 2)
        text = self._folded(f, text, scope, first)
        passed = f" if {SHOWN} else {name}" if self.columns.passed_over else ""
        scope.lines.append(f"{name} = {joined(f.kind, 'f', self.kernel.real, name, text)}{passed}")

    def scaled(self) -> None:
        """Multiply extrema, once they are those of the whole block, by the factor that could wait."""
        if self.unscaled:
            with self.out.block(self.kernel.each_row):
                for f in self.unscaled:
                    self.out(f"{local(f.names[0])}[r] = factor * {local(f.names[0])}[r]")
            self.unscaled = []

    def _folded(self, f: Fold, text: str, scope: TileScalars, first: bool) -> str:
        """What a fold adds: its identity where there is no element, if the score there does not see to that."""
        if not first or f.names[0] not in self.made.guarded:
            return text
        name = scope.fresh()
        scope.lines.append(f"{name} = {text}")
        identity = "f32(0)" if isinstance(f.op, Sum) else START[f.kind]
        return f"({name} if in_bounds else {identity})"

    def _raw(self, f: Fold, body: Node) -> bool:
        """Whether the fold is an extremum of the registers as they are; a factor, which is positive, can wait."""
        if f.names[0] in self.made.guarded:
            return False
        return isinstance(f.op, Extremum) and body is self.made.value

    def _begin(self, plain: list[Fold], bodies: Mapping[str, Node], element: Element, alone: bool) -> int:
        """The start of the chains of a row; how many elements they hold already: none where the loop over elements does
        more with each (`alone`: nothing but chains)."""
        kernel, out = self.kernel, self.out
        raw = bool(plain) and alone and all(self._raw(f, bodies[f.names[0]]) for f in plain)
        begun = WAYS if raw and not self.columns.passed_over else 0
        for f in plain:
            kernel.array(f"{local(f.names[0])}_way", WAYS)
        if begun:
            with out.block(f"for k in range({WAYS}):"):
                out(kernel.register)
                out(*(f"{local(f.names[0])}_way[k] = {element.text}" for f in plain))
        elif plain:
            with out.block(f"for k in range({WAYS}):"):
                out(*(f"{local(f.names[0])}_way[k] = {START[f.kind]}" for f in plain))
        return begun

    def _shifts(self, bodies: Iterable[Node], element: Element, scope: TileScalars) -> None:
        """Name what exponents add to the value, times log2 e, once per row."""
        element.shifts = {}
        for rest in exponents(bodies, self.made.value):
            if not (rest.axes & {self.made.stream}) and not self._varying([rest]) and not is_const(rest, 0):
                name = f"shift{len(element.shifts) + 1}" if element.shifts else "shift"
                # Under a frozen maximum, what is exact is found to be the same in all blocks, and computed before them.
                top = guarded_top(rest, self.tops) if not isinstance(self.kernel.plan.anchor, Frozen) else None
                text = f"-max_nan_f32({scope.converted(top, 'f')}, LOWEST)" if top else scope.converted(rest, "f", 3)
                scope.lines.append(f"{name} = LOG2E * {text}")
                scope.known[rest] = element.shifts[rest] = name
        self.kernel.flush(scope)

    def _gathered(self, f: Fold) -> None:
        """Join the chains of a row."""
        kernel, name = self.kernel, local(f.names[0])
        kernel.array(name, kernel.held)
        ways = [f"{name}_way[{k}]" for k in range(WAYS)]
        while len(ways) > 1:
            ways = [joined(f.kind, "f", kernel.real, *ways[k : k + 2]) for k in range(0, len(ways), 2)]
            ways = [f"({w})" if isinstance(f.op, Sum) and len(ways) > 1 else w for w in ways]
        self.out(f"{name}[r] = {ways[0]}")

    def _exchanged(self, found: list[Fold]) -> None:
        """Join what the four threads of a row hold."""
        if found:
            self.out.comment("The four lanes of a quad share rows: a butterfly joins what they have.")
            with self.out.block(QUAD), self.out.block(self.kernel.each_row):
                for f in found:
                    name = f"{local(f.names[0])}[r]"
                    text = joined(f.kind, "f", self.kernel.real, name, f"shfl_xor_f32({name}, 1 << step)")
                    self.out(f"{name} = {text}")


def _part(name: str) -> str:
    return name.removesuffix("_b").removesuffix("_new")


def _reads(leaves: Iterable[Node]) -> bool:
    return any(n.op == "tensor" for n in leaves)


def _number(node: Node) -> float:
    return 0.0 if node.op == "const" else float("inf") if node.attr == "oo" else float("-inf")


def deferred(p: Pass) -> set[str]:
    """Sums that only their own update reads, linearly: every thread keeps its share of them to the end."""
    read = {name for step in (*p.lift, *p.update) for name in _parts_read(step)}
    kinds = {f.names[0].removesuffix("_b"): f.kind for s in p.update if isinstance(s, Loop) for f in s.folds}
    return {part.name for part in p.parts if not part.axes and kinds.get(part.name) == "sum" and part.name not in read}


def _parts_read(step: Step) -> set[str]:
    """Parts of the state that a step reads; not the one that a sum is added to, times a factor."""
    if not isinstance(step, Join):
        return {_bare(n) for n in walk(*step_nodes(step)) if n.op == "state"}
    part, found = step.names[0].removesuffix("_new"), set[str]()
    for side in (step.a[0], step.b[0]):
        factors = side.args if side.op == "mul" else (side,)
        linear = isinstance(step.op, Sum) and any(f.op == "state" and _bare(f) == part for f in factors)
        names = {_bare(n) for n in walk(side) if n.op == "state"}
        found |= names - {part} if linear else names
    return found


def _bare(n: Node) -> str:
    return str(n.attr.name).removesuffix("_new").removesuffix("_b")
