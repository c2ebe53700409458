"""Walks over a tile: each thread reduces the elements it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, assert_never

from redalg.graph.node import Node, state, walk
from redalg.graph.operators import (
    Average,
    Custom,
    Extremum,
    NumberExtremum,
    Position,
    Product,
    Quantifier,
    Sum,
    TopK,
    UserMonoid,
)
from redalg.kernels.code.scalars import Scalars
from redalg.kernels.code.text import better, follows, joined, literal
from redalg.kernels.ir.compensated import COMPENSATED
from redalg.kernels.ir.program import Fold, KeyMax, KeyTop, Loop
from redalg.kernels.ir.schedule import by_network
from redalg.kernels.rows.element import DTYPE
from redalg.kernels.schedule.sampling import counted
from redalg.source.names import local
from redalg.source.statements import function

if TYPE_CHECKING:
    from redalg.kernels.rows.kernel import Kernel

IDENTITY = {
    "sum": 0,
    "prod": 1,
    "max": float("-inf"),
    "min": float("inf"),
    "any": False,
    "all": True,
    "argmax": float("-inf"),
    "argmin": float("inf"),
    "topk": float("-inf"),
}
INTEGER = {"max": -(2**63), "min": 2**63 - 1}


class Folding:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def loop(self, loop: Loop, scope: Scalars) -> None:
        """One walk over the tile: start every fold, then add each element to all of them."""
        kernel, elements = self.kernel, self.kernel.elements
        bodies = [b for fold in loop.folds for b in fold.bodies]
        if loop.part:
            kernel.out(f"n_some = {counted(kernel.schedule, kernel.peel.in_whole_vectors)}")
        scope.hoist([b for b in bodies if b not in scope.known], kernel.program.stream)
        kernel.flush(scope)
        copies = {fold: name for fold in loop.folds if (name := self._largest_of(fold, loop)) is not None}
        folds = [fold for fold in loop.folds if fold not in copies]
        later = [fold for fold in loop.folds if self._found_later(fold)]
        self.start(folds)
        if not loop.part:
            self._declare_shared(bodies)
        position, axes = elements.needs(bodies)
        position |= any(isinstance(f.op, Position | TopK | KeyMax | KeyTop) and f not in later for f in loop.folds)
        elements.bounds.part = loop.part
        self._visit(loop, folds, position, axes, scope)
        elements.bounds.part = False
        for fold, name in copies.items():
            kernel.out(f"{local(fold.names[0])} = {name}  # the largest value of this thread")
        for fold in later:
            Place(self, fold).print(scope)

    def start(self, folds: Iterable[Fold]) -> None:
        """What folds begin with."""
        for fold in folds:
            self._start(fold)

    def add(self, loop: Loop, scope: Scalars) -> None:
        """Walk over the tile, and add each element to folds that were started before, of which nothing is kept."""
        bodies = [b for fold in loop.folds for b in fold.bodies]
        scope.hoist([b for b in bodies if b not in scope.known], self.kernel.program.stream)
        self.kernel.flush(scope)
        self._visit(loop, loop.folds, *self.kernel.elements.needs(bodies), scope)

    def _visit(self, loop: Loop, folds: Sequence[Fold], position: bool, axes: Iterable[str], scope: Scalars) -> None:
        """Every element of the tile, added to the folds."""
        bodies = [b for fold in loop.folds for b in fold.bodies]
        with self._walked(loop, position, axes):
            self._elements(folds, bodies, scope, not loop.part)

    def _elements(self, folds: Sequence[Fold], bodies: list[Node], scope: Scalars, keep: bool) -> None:
        """An element, added to every fold; with `keep`, what later walks need of it is kept."""
        inner = self.element_scope(scope)
        inner.announce(bodies)
        if keep:
            self.keep_shared(inner, bodies)
        for fold in folds:
            self._add(fold, inner)
            self.kernel.flush(inner)

    positions_later = True  # whether the place of an extremum is looked for when its value is known

    def _found_later(self, fold: Fold) -> bool:
        """Whether the value is found first: its elements are in registers as they are, so that they cost nothing."""
        body = fold.bodies[0]
        held = body.args[-1] if body.op == "mul" and body.args[0].op == "const" and len(body.args) == 2 else body
        tiled = held in self.kernel.elements.tiles_of and held not in self.kernel.elements.shared
        return self.positions_later and isinstance(fold.op, KeyMax) and tiled and self.kernel.schedule.tile > 1

    def _bounds(self, fold: Fold) -> bool:
        """Whether the k largest are selected by a bound from the largest value of each thread."""
        s = self.kernel.schedule
        return isinstance(fold.op, KeyTop) and s.together and s.threads > 1 and not self._networked(fold)

    def _networked(self, fold: Fold) -> bool:
        """Whether sorting networks select the k largest, after the walk."""
        return isinstance(fold.op, KeyTop) and by_network(self.kernel.schedule, fold.op.k)

    def _largest_of(self, fold: Fold, loop: Loop) -> str | None:
        """The maximum of the same values, which the walk computes anyway; with a NaN there is no bound to use."""
        if not self._bounds(fold):
            return None
        equal = (f for f in loop.folds if f.op == Extremum("max") and f.bodies == fold.bodies and not f.axes)
        return next((local(f.names[0]) for f in equal), None)

    def _walked(self, loop: Loop, position: bool, axes: Iterable[str]) -> AbstractContextManager[None]:
        """The loop over the elements of the tile."""
        return self.kernel.elements.each(position, axes)

    def element_scope(self, scope: Scalars) -> Scalars:
        inner = scope.child()
        inner.leaf = self.kernel.elements.element_leaf
        inner.known |= {n: f"{name}[k]" for n, name in self.kernel.elements.tiles_of.items()}
        return inner

    def _declare_shared(self, bodies: list[Node]) -> None:
        elements = self.kernel.elements
        count = len(elements.stored)
        for node in self._fresh(bodies):
            count += 1
            dtype, name = DTYPE.get(self.kernel.kinds.of(node), elements.real), elements.value_name(count, node)
            self.kernel.out(f"{name} = cuda.local.array({self.kernel.peel.entries}, {dtype})")

    def _fresh(self, bodies: list[Node]) -> list[Node]:
        elements = self.kernel.elements
        return [n for n in walk(*bodies) if n in elements.shared and n not in elements.stored]

    def keep_shared(self, inner: Scalars, bodies: list[Node]) -> None:
        """Compute what later walks need again, and keep it."""
        for node in self._fresh(bodies):
            text = inner.text(node)
            kept = self.kernel.elements.stored_value(node)
            inner.lines.append(f"{kept} = {text}")
            inner.known[node] = text if text.isidentifier() else kept
        self.kernel.flush(inner)

    def _number(self, fold: Fold) -> str:
        if isinstance(fold.op, KeyMax | KeyTop):
            return "k"
        return self.kernel.kinds.names.get(fold.names[0]) or self.kernel.kinds.reduced(fold.kind, fold.bodies)

    def identities(self, fold: Fold) -> list[str]:
        number, real = self._number(fold), self.kernel.real
        if fold.op == COMPENSATED:
            return [literal(0.0, "f", real)] * 2
        if isinstance(fold.op, Custom):
            kinds = [self.kernel.kinds.names[name] for name in fold.names]
            parts = {part.name: part for p in self.kernel.program.passes for part in p.parts}
            values = [parts[name.removesuffix("_b")].identity for name in fold.names]
            return [literal(v, k, real) for v, k in zip(values, kinds, strict=True)]
        return [self.identity(fold.kind, number)] + (["MISSING"] if len(fold.names) > 1 else [])

    def identity(self, kind: str, number: str) -> str:
        if number == "k":
            return "NONE"
        value = IDENTITY[kind]
        if number == "i" and kind not in ("sum", "prod"):
            value = INTEGER["min" if kind.endswith("min") else "max"]
        return literal(value, number, self.kernel.real)

    def _start(self, fold: Fold) -> None:
        out, names = self.kernel.out, [local(n) for n in fold.names]
        identities = self.identities(fold)
        if self._networked(fold):
            return
        if self._bounds(fold):
            out(f"{names[0]} = -INF  # the largest value of this thread, NaN left out")
            return
        if self._found_later(fold):
            out(f"{names[0]}_value = -INF  # the largest value of this thread")
            return
        if not isinstance(fold.op, TopK | KeyTop):
            out(*(f"{name} = {value}" for name, value in zip(names, identities, strict=True)))
            return
        k = fold.op.k
        dtypes = [DTYPE.get(self._number(fold), self.kernel.elements.real), "np.int64"]
        out(*(f"{name} = cuda.local.array({k}, {dtype})" for name, dtype in zip(names, dtypes, strict=False)))
        with out.block(f"for i in range({k}):"):
            out(*(f"{name}[i] = {value}" for name, value in zip(names, identities, strict=True)))

    def _add(self, fold: Fold, inner: Scalars) -> None:
        names, number, real = [local(n) for n in fold.names], self._number(fold), self.kernel.real
        match fold.op:
            case Custom(monoid):
                self._add_monoid(fold, monoid, inner)
            case Position(kind):
                item = inner.atom(fold.bodies[0], number)
                if self.kernel.schedule.peel:  # the head comes after what it stands before
                    wins = better(kind, number, names[0], item, names[1], "at")
                else:
                    wins = follows(kind, number, names[0], item, names[1])
                inner.lines += [f"if {wins}:", f"    {names[0]} = {item}"]
                inner.lines += [f"    {names[1]} = i64(at)"]
            case KeyMax() | KeyTop():
                inner.lines += self._add_key(fold, fold.op, names[0], inner.atom(fold.bodies[0], "f"))
            case TopK(k):
                item = inner.atom(fold.bodies[0], number)
                inner.lines.append(f"{self.insertion(k, number)}({names[0]}, {names[1]}, {item}, i64(at))")
            case NumberExtremum():
                item = inner.atom(fold.bodies[0], number)
                inner.lines.append(f"{names[0]} = {item} if {item} {fold.op.relation} {names[0]} else {names[0]}")
            case Sum() | Average() | Product() | Extremum() | Quantifier():
                item = inner.converted(fold.bodies[0], number, 4 if isinstance(fold.op, Quantifier) else 2)
                inner.lines.append(f"{names[0]} = {joined(fold.kind, number, real, names[0], item)}")
            case _:
                assert_never(fold.op)

    def _add_monoid(self, fold: Fold, monoid: UserMonoid, inner: Scalars) -> None:
        kinds = self.kernel.kinds.names
        before = tuple(state(name) for name in fold.names)
        combined = monoid.combine_nodes(before, tuple(fold.bodies))
        inner.announce(combined)
        made = []
        for name, node in zip(fold.names, combined, strict=True):
            made.append(inner.fresh())
            inner.lines.append(f"{made[-1]} = {inner.converted(node, kinds[name])}")
        inner.lines += [f"{local(name)} = {value}" for name, value in zip(fold.names, made, strict=True)]
        for node in list(inner.known):
            if any(n in before for n in walk(node)):
                del inner.known[node]

    def _add_key(self, fold: Fold, op: KeyMax | KeyTop, name: str, item: str) -> list[str]:
        if self._networked(fold):
            return []
        if self._found_later(fold):
            return [f"{name}_value = max_nan_f32({name}_value, {item})"]
        if isinstance(op, KeyMax):
            return [f"{name} = max({name}, key_of({item}, at))"]
        if self._bounds(fold):
            return [f"{name} = {item} if {item} > {name} else {name}"]
        return [f"{self.key_insertion(op.k)}({name}, key_of({item}, at))"]

    def key_insertion(self, k: int) -> str:
        """The name of the function that puts a key into a descending list of k."""
        name = f"insert_key{k}"
        self.kernel.functions[name] = function(
            "\n".join(
                [
                    "@cuda.jit(device=True)",
                    f"def {name}(keys, key):",
                    f'    """Put a key into a descending list of {k}."""',
                    f"    if key > keys[{k - 1}]:",
                    f"        for i in range({k}):",
                    "            first = max(keys[i], key)",
                    "            key = min(keys[i], key)",
                    "            keys[i] = first",
                ]
            )
        )
        return name

    # --- sorted lists ------------------------------------------------------------------------------------------------

    def insertion(self, k: int, number: str) -> str:
        """The name of the function that puts an element into a sorted list of k."""
        name = f"insert_top{k}{'' if number == 'f' else '_' + number}"
        better_first = better("topk", number, "values[{0}]", "value", "places[{0}]", "place")
        up = better("topk", number, "values[i - 1]", "values[i]", "places[i - 1]", "places[i]")
        self.kernel.functions[name] = function(
            "\n".join(
                [
                    "@cuda.jit(device=True)",
                    f"def {name}(values, places, value, place):",
                    f'    """Put an element into a list of {k}, largest first; the lowest position among equals."""',
                    f"    if {better_first.format(k - 1)}:",
                    f"        values[{k - 1}] = value",
                    f"        places[{k - 1}] = place",
                    f"        for step in range({k - 1}):",
                    f"            i = {k - 1} - step",
                    f"            if {up}:",
                    "                values[i - 1], values[i] = values[i], values[i - 1]",
                    "                places[i - 1], places[i] = places[i], places[i - 1]",
                ]
            )
        )
        return name


class Place:
    """The place of the largest element of a thread's tile, looked for from the last element to the first.

    A walk for the largest value takes one instruction an element and this one two, where a key for every element takes
    a dozen. Where the largest is NaN, the first NaN is looked for.
    """

    def __init__(self, folding: Folding, fold: Fold) -> None:
        self.folding, self.fold, self.kernel = folding, fold, folding.kernel

    def print(self, scope: Scalars) -> None:
        out, name, s = self.kernel.out, local(self.fold.names[0]), self.kernel.schedule
        value = f"{name}_value"
        out("place = i32(-1)")
        with out.block(f"if {value} == {value}:"):
            self._search(scope, lambda item: f"{item} == {value}")
        with out.block("else:"):
            self._search(scope, lambda item: f"{item} != {item}")
        stride = self.kernel.elements.stride
        at = f"place * {stride}" if s.vector == 1 else f"place // VECTOR * {stride} + place % VECTOR"
        out(f"{name} = key_of({value}, first + {at}) if place >= 0 else NONE")
        if s.peel:
            with out.block("if edge < length:"):
                out("k = TILE")
                inner = self.folding.element_scope(scope)
                item = inner.atom(self.fold.bodies[0], "f")
                self.kernel.flush(inner)
                out(f"{name} = max({name}, key_of({item}, edge))")

    def _search(self, scope: Scalars, found: Callable[[str], str]) -> None:
        out, s, elements = self.kernel.out, self.kernel.schedule, self.kernel.elements
        count = s.tile // s.vector
        with out.block(f"for w in range({count}):"):
            out(f"v = {count - 1} - w")
            with out.block(None if s.exact else f"if first + v * {elements.stride} < {elements.stop}:"):
                with out.block("for d in range(VECTOR):" if s.vector > 1 else None):
                    out("k = v * VECTOR + VECTOR - 1 - d" if s.vector > 1 else "k = v")
                    inner = self.folding.element_scope(scope)
                    item = inner.atom(self.fold.bodies[0], "f")
                    self.kernel.flush(inner)
                    with out.block(f"if {found(item)}:"):
                        out("place = i32(k)")
