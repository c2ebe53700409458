"""A reduction down columns in two steps: states of stacked columns, then one state of each column.

An array of L lines of C columns without gaps is one of L/M lines of M·C columns, too. Those lines begin at sectors of
memory where the others begin anywhere, and are wide where the others are narrow. Each column has M states then, of
every M-th element from the first, the second, ... on (and one more of the lines that are left); a second kernel merges
them, and a third one, over stacked lines again, writes results that every element has.

`stacked` makes the three programs of one. The states of a column are elements of the second one, of a monoid whose
operation is the pass's own ``combine``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from redalg.graph.masked import finite
from redalg.graph.node import (
    ONE,
    ZERO,
    Node,
    add,
    compare,
    div,
    extremum,
    fresh,
    leaves,
    logical,
    mul,
    neg,
    size,
    state,
    substitute,
    tensor,
    walk,
    where,
    with_states,
)
from redalg.graph.operators import Average, Custom, Extremum, NumberExtremum, Product, Quantifier, Sum
from redalg.graph.plan import COUNT
from redalg.kernels.ir.compensated import COMPENSATED
from redalg.kernels.ir.kinds import program_kinds
from redalg.kernels.ir.program import Fold, Join, Let, Loop, Operand, Part, Pass, Program, Result, step_nodes
from redalg.kernels.lower.adjoined import OwnMonoid

DTYPE = {"i": "int64", "b": "bool"}  # of a table of states; "f" is the program's own


class Stacked(NamedTuple):
    """The programs of a reduction down columns in two steps, and what they leave for each other.

    ``states``: a state of every column it is given; ``merged``: results of columns, and what results of elements read
    of them, for every line of those that are stacked (`line`), from the states that lie along `axis`; ``mapped``: those
    results. ``tables``: of states; ``handed``: what the last one reads; ``flat``: whether that may read stacked lines.
    """

    states: Program
    merged: Program
    mapped: Program | None
    tables: tuple[Operand, ...]
    handed: tuple[Operand, ...]
    axis: str
    line: str
    flat: bool


@dataclass(unsafe_hash=True, kw_only=True)
class Merging(OwnMonoid):
    """A state, as several numbers, under the operation that merges two of them (`Pass.combine`).

    ``counted``: the last of its parts is the number of elements; without elements it is the identity. Else the identity
    of each part is (`Pass.absorbs`).
    """

    plan: Pass
    parts: tuple[Part, ...]
    counted: bool

    @staticmethod
    def of(plan: Pass, parts: tuple[Part, ...], counted: bool) -> Merging:
        """What parts begin with is said by the parts. It commutes, as a pass that is not ordered says (`laws`)."""
        return Merging(
            plan=plan,
            parts=parts,
            counted=counted,
            name="states",
            digest=f"states of {plan}",
            width=len(parts),
            commutative=True,
            identity_nodes=(ZERO,) * len(parts),
        )

    def combine_nodes(self, a: Sequence[Node], b: Sequence[Node]) -> tuple[Node, ...]:
        """Both states as one."""
        known = dict(zip((p.name for p in self.parts), a, strict=True))
        known |= {f"{p.name}_b": node for p, node in zip(self.parts, b, strict=True)}
        if self.counted:
            known |= {"n": a[-1], "n_b": b[-1], "n_new": add(a[-1], b[-1])}
        for step in self.plan.combine:
            known |= _made(step, known)
        both = [known[f"{p.name}_new"] for p in self.plan.parts] + ([known["n_new"]] if self.counted else [])
        if not self.counted:
            return tuple(both)
        none, other = compare("eq", a[-1], ZERO), compare("eq", b[-1], ZERO)
        return tuple(where(other, x, where(none, y, z)) for x, y, z in zip(a, b, both, strict=True))


def _made(step: object, known: dict[str, Node]) -> dict[str, Node]:
    """What a step of a merge leaves, over what is known."""
    if isinstance(step, Let):
        return {} if step.name == "n_new" else {step.name: with_states(step.node, known)}
    assert isinstance(step, Join)
    a, b = (tuple(with_states(n, known) for n in side) for side in (step.a, step.b))
    match step.op:
        case Custom(monoid):
            found = monoid.combine_nodes(a, b)
        case Average():
            found = (_average(a[0], b[0], div(known["n_b"], known["n_new"])),)
        case NumberExtremum():
            better = compare("lt", a[0], b[0]) if step.op.kind == "max" else compare("lt", b[0], a[0])
            found = (where(better, b[0], a[0]),)
        case Extremum():
            found = (extremum(step.op.operation, a[0], b[0]),)
        case Quantifier():
            found = (logical(step.op.operation, a[0], b[0]),)
        case Product():
            found = (mul(a[0], b[0]),)
        case _:
            found = (add(a[0], b[0]),)
    return dict(zip(step.names, found, strict=True))


def _average(a: Node, b: Node, share: Node) -> Node:
    """a + (b - a)·share; where that is not finite the weighted sum, in which infinities stay what they are."""
    near = add(a, mul(add(b, neg(a)), share))
    return where(finite(near), near, add(mul(a, add(ONE, neg(share))), mul(b, share)))


def _over(r: Result, by: Mapping[Node, Node]) -> Result:
    """A result with other nodes in the place of some."""
    masked = None if r.masked is None else substitute(r.masked, dict(by), raw=True)
    return replace(r, node=substitute(r.node, dict(by), raw=True), masked=masked)


def stacked(program: Program) -> Stacked | str:
    """The program in two steps, or why there is none.

    >>> import redalg as ra
    >>> from redalg.kernels.programs import lower
    >>> form = ra.derive_incremental(ra.parse("return y = max[t](x[t,c])"), axis="t")
    >>> found = stacked(lower(form, {"x": "float32"}))
    >>> [(o.name, o.axes) for o in found.tables], found.mapped is None
    ([('states', ('entry', 'line', 'c'))], True)
    """
    why = next((why for holds, why in laws(program) if not holds), "")
    return why or _Steps(program).found()


def laws(program: Program) -> Iterator[tuple[bool, str]]:
    """Whether each law of two steps holds, and what is wrong where it does not."""
    one = len(program.passes) == len(program.stream) == len(program.rows) == 1
    yield one, "there is more than one pass, streamed axis, or axis of columns"
    plain = not (program.columns or program.inner or program.places or program.lengths or program.summed)
    yield plain, "a state, or an element, holds more than numbers"
    if one and plain:
        yield from _laws_of_states(program)
        yield from _laws_of_results(program)


def _laws_of_states(program: Program) -> Iterator[tuple[bool, str]]:
    p = program.passes[0]
    yield not p.ordered, "states are merged in the order of the stream alone"
    walks = [s for s in (*p.lift, *p.update) if isinstance(s, Loop)]
    ops = [f.op for s in walks for f in s.folds] + [s.op for s in p.combine if isinstance(s, Join)]
    plain = all(isinstance(o, Sum | Product | Extremum | Quantifier | Average | Custom) for o in ops)
    yield plain and COMPENSATED not in ops, "a state holds positions, lists or pairs"
    lifted = [n for s in (*p.lift, *p.update) for n in step_nodes(s)]
    merged = [n for s in p.combine for n in step_nodes(s)]
    yield _whole(program, lifted), "an element reads what does not lie as all elements do"
    yield not _any(lifted, ("index", "size", "reduce")), "an element reads where it stands"
    yield (
        not _arrays(program, merged) and not _any(merged, ("index", "size", "reduce")),
        "merging reads more than states",
    )


def _laws_of_results(program: Program) -> Iterator[tuple[bool, str]]:
    yield not _any(values(program.results), ("reduce",)), "a result reduces"
    kept = [r for r in program.results if r.keeps]
    both = {*program.rows, *program.stream}
    own = all({*n.attr.axes} <= both for n in _arrays(program, values(kept)))
    yield own and not _any(values(kept), ("index",)), "a result of an element reads where it stands"
    yield all({*r.axes} == both for r in kept), "a result of an element lacks an axis"


def values(results: Iterable[Result]) -> list[Node]:
    """What is computed for results."""
    return [n for r in results for n in (r.node, r.masked) if n is not None]


def _arrays(program: Program, nodes: Iterable[Node]) -> list[Node]:
    """The tensors that are read, but for numbers."""
    numbers = {o.name for o in program.operands if o.number}
    return [n for n in walk(*nodes) if n.op == "tensor" and n.attr.name not in numbers]


def _whole(program: Program, nodes: Sequence[Node], other: Collection[str] = ()) -> bool:
    """Whether all tensors that are read have the axes of all elements, or the `other` ones; and no length is read."""
    allowed = ({*program.rows, *program.stream}, {*other})
    return all({*n.attr.axes} in allowed for n in _arrays(program, nodes)) and not _any(nodes, ("size",))


def _any(nodes: Iterable[Node], ops: Collection[str]) -> bool:
    return any(n.op in ops for n in walk(*nodes))


class _Steps:
    def __init__(self, program: Program) -> None:
        self.program, self.plan = program, program.passes[0]
        (self.stream,), (self.column,) = program.stream, program.rows
        self.taken = {o.name for o in program.operands} | {r.name for r in program.results}
        self.taken |= {a for o in program.operands for a in o.axes} | {p.name for p in self.plan.parts}
        self.axis, self.line = fresh("entry", self.taken), fresh("line", self.taken)
        self.counted = not self.plan.absorbs or COUNT.attr.name in self._merged_names()
        count = (Part(fresh("elements", self.taken), "i", 0),) if self.counted else ()
        self.parts = (*self.plan.parts, *count)

    def _merged_names(self) -> set[str]:
        nodes = [n for s in self.plan.combine if getattr(s, "name", "") != "n_new" for n in step_nodes(s)]
        names = {leaf.attr.name for n in nodes for leaf in leaves(n, "state")}
        return {COUNT.attr.name} if names & {"n", "n_b", "n_new"} else set()

    def found(self) -> Stacked:
        """The three programs."""
        tables = tuple(
            Operand(
                fresh("states", self.taken), (self.axis, self.line, self.column), DTYPE.get(p.kind, self.program.real)
            )
            for p in self.parts
        )
        kept = [r for r in self.program.results if r.keeps]
        totals = [r for r in self.program.results if not r.keeps]
        known = {let.name: let.node for let in self.plan.exports}
        for name, node in known.items():
            known[name] = with_states(node, known)
        kept, totals = ([self._finished(r, known) for r in some] for some in (kept, totals))
        handed, mapped = self._mapped(kept)
        merged = self._merged(tables, [*totals, *handed])
        operands = tuple(Operand(r.name, (self.column,), r.dtype) for r in handed)
        flat = _whole(mapped, values(mapped.results), {self.column}) if mapped is not None else False
        return Stacked(self._states(tables), merged, mapped, tables, operands, self.axis, self.line, flat)

    def _leaf(self, name: str, end: str = "") -> Node:
        return state(name + end, (self.column,))

    def _finished(self, r: Result, exports: dict[str, Node]) -> Result:
        """A result over parts, with the length of the stream for the number of elements."""
        masked = None if r.masked is None else with_states(r.masked, exports)
        return _over(replace(r, node=with_states(r.node, exports), masked=masked), {COUNT: size((self.stream,))})

    def _states(self, tables: Sequence[Operand]) -> Program:
        """The program whose results are the parts of a state."""
        nodes = [self._leaf(p.name) for p in self.plan.parts] + ([COUNT] if self.counted else [])
        results = tuple(Result(t.name, (self.column,), t.dtype, n) for t, n in zip(tables, nodes, strict=True))
        name, title = f"{self.program.name}_states", f"states of {self.program.title}"
        return replace(self.program, name=name, title=title, results=results)

    def _merged(self, tables: Sequence[Operand], results: Sequence[Result]) -> Program:
        """The program over the states of a column."""
        monoid = Custom(Merging.of(self.plan, self.parts, self.counted))
        a, b = (tuple(self._leaf(p.name, end) for p in self.parts) for end in ("", "_b"))
        elements = tuple(tensor(t.name, t.axes) for t in tables)
        fold = Fold(tuple(f"{p.name}_b" for p in self.parts), monoid, elements)
        counts = add(state("n", (), COUNT.attr.domain), state("n_b", (), COUNT.attr.domain))
        join = Join(tuple(f"{p.name}_new" for p in self.parts), monoid, a, b)
        made = Pass(self.parts, (Loop((fold,)),), (Let("n_new", counts), join), (), True)
        nodes = values(results)
        read = {n.attr.name for n in walk(*nodes) if n.op == "tensor"}
        lengths = {n.attr for n in walk(*nodes) if n.op == "size"} - {self.column}
        for axis in lengths:  # the length is that of a tensor that nothing else is read of
            read.add(next(o.name for o in self.program.operands if axis in o.axes))
        own = tuple(o for o in self.program.operands if o.number or o.name in read)
        return replace(
            self.program,
            name=f"{self.program.name}_merged",
            title=f"merged states of {self.program.title}",
            rows=(self.line, self.column),
            stream=(self.axis,),
            operands=(*tables, *own),
            results=tuple(results),
            passes=(made,),
        )

    def _mapped(self, kept: Sequence[Result]) -> tuple[list[Result], Program | None]:
        """What results of elements read of a column, as results of columns; and the program of the elements."""
        if not kept:
            return [], None
        handed = self._handed(kept)
        by = {r.node: tensor(r.name, (self.column,)) for r in handed}
        results = tuple(_over(r, by) for r in kept)
        read = {n.attr.name for n in walk(*values(results)) if n.op == "tensor"}
        lengths = {n.attr for n in walk(*values(results)) if n.op == "size"}
        own = [o for o in self.program.operands if o.number or o.name in read or lengths & {*o.axes}]
        return handed, replace(
            self.program,
            name=f"{self.program.name}_mapped",
            title=f"elements of {self.program.title}",
            rows=self.program.stream,
            stream=self.program.rows,
            operands=(*own, *(Operand(r.name, (self.column,), r.dtype) for r in handed)),
            results=results,
            passes=(),
            attained=frozenset(),
        )

    def _handed(self, kept: Sequence[Result]) -> list[Result]:
        """What these results read of a column, each a result of its own."""
        kinds = program_kinds(self.program)
        inner = dict.fromkeys(n for node in values(kept) for n in self._of_columns(node))
        axes, real = (self.line, self.column), self.program.real
        return [Result(fresh("of_column", self.taken), axes, DTYPE.get(kinds.of(n), real), n) for n in inner]

    def _of_columns(self, node: Node) -> Iterator[Node]:
        """The largest parts of a value that are the same for all elements of a column."""
        if self.stream not in node.axes:
            yield from [node] if node.axes else []
            return
        for a in node.args:
            yield from self._of_columns(a)


__all__ = ["Merging", "Stacked", "laws", "stacked"]
