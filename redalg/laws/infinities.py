"""What a form gives where one element is infinite: what the definition gives, or NaN under a named assumption.

A form is an identity of real functions. Where a stage value is infinite its sides may differ: Σ(x-a)(y-b) is NaN where
a is infinite, and expanded about anchors it may be infinite; a maximum that a stage value was pulled out of is -oo
where the definition has oo - oo. So every form is run on short streams, in pieces, with one infinity or NaN at every
place along them, among numbers that are the same for every spec, of either sign, zeros, and infinities in the other
tensors. An output that is a number there, and another one than the definition's, is given a guard: it is NaN (a
position is -1, or the first where the definition takes that of a NaN) unless the stage values its stages read are
finite. One that is NaN where the definition is a number is said to assume finite stage values. All these data are run
together, along one more axis (`redalg.laws.batch`).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from redalg.algebra.work import INFINITIES, MOVE, SLOT, spend, within
from redalg.errors import RedalgError
from redalg.graph import node as g
from redalg.graph.domains import conditions, factored
from redalg.graph.masked import finite, new_axes
from redalg.graph.node import Decl, Node, is_position
from redalg.graph.plan import COUNT
from redalg.laws.batch import free_axis, plan_over, spec_over
from redalg.laws.check import is_exact
from redalg.laws.drawn import Tensor, count, data
from redalg.laws.parameters import COLUMNS, at_points, points
from redalg.numeric.binding import by_output
from redalg.numeric.definition import reference

if TYPE_CHECKING:
    from redalg.form import Form
    from redalg.graph.plan import Plan
    from redalg.language.spec import Spec
    from redalg.streaming.run import Divided

LENGTH = 4  # of the streamed axis, if no list holds all of it; axes of their own have 2
LONG = 5, 3  # of an axis of its own whose positions are read, which a mask may then leave out; of each of several
ALL_STAGES = 2  # of the levels of guards, see `guard`
LEVELS = 4  # at the last one an output is NaN where any element is infinite or NaN, or at a pole that is read,
ANYWHERE = 5  # and beyond it at any pole of elements
FINITE = ("finite_stage_values", "every stage value is finite (no divisor 0, no stage without elements); else NaN")
EXACT = (FINITE[0], f"{FINITE[1]}, but conditions and counts, which have no NaN, are what the form makes of it")
UNGUARDED = (
    FINITE[0],
    f"{FINITE[1]}; where rounding decides a condition or a pole of stage values, it may be another number",
)
WORK = "operations on infinite elements"
VECTOR = 64  # elements that cost as much as an operation
DIVISORS = "/"
POLES = "1/0"
UNREAD = "1/0 that nothing reads"
IDENTITIES = {"max": g.NEG_INF, "min": g.INF}
Arrays = dict[str, Any]
Level = int | frozenset[str]  # of a guard; names of tensors, and words for divisors and poles: a last level of these


# --- guards ----------------------------------------------------------------------------------------------------------


def guard(node: Node, axis: tuple[str, ...], level: Level, held: Callable[[Node], bool]) -> tuple[Node, Node]:
    """(condition, value otherwise) of an output: which values of its stages have to be finite.

    Level 1: those that other stages read. Level 2: all of them, but extrema of no element. Level 3: these, too, and
    what they are divided by is not 0, and functions of them have a value. Level 4: every element of every tensor and
    what is calculated of it and read, every extremum and every divisor; 5: also what nothing reads; a set of names: of
    these. A stage that has no form and cancels is not `held`, and cannot be asked.
    """
    among, level = (everything(node, level), min(level, LEVELS)) if isinstance(level, int) else (level, LEVELS)
    held_ones = [n for n in g.walk(node) if n.op == "reduce" and n.attr.axes == axis and held(n)]
    stages = [s for s in held_ones if not is_position(s)]
    asked = _read_by_others(stages, node) if level == 1 else stages
    values = [s for s in asked if not s.is_boolean and s.attr.kind != "monoid"]
    bound, outer = _bound(node, axis), node.axes
    if level == LEVELS:
        conditions = _finite_elements(node, axis, among)
    else:
        conditions = _usable_where_read(node, axis, level, values, set(held_ones))
    if DIVISORS in among:
        conditions += _away_from_poles(node, axis, level, held_ones, UNREAD in among)
    whole = g.logical("and", *(_over(c, c.axes - outer | bound[u] & c.axes) for c, u in conditions))
    return whole, _otherwise(node, values)


def _bound(node: Node, axis: tuple[str, ...]) -> dict[Node, frozenset[str]]:
    """The axes, beside the stream, that reductions take what a node is at: one that a result has, too, is there as a
    whole (``max[j](z[i,j])`` of a result along j)."""
    found: dict[Node, frozenset[str]] = {}
    for n in reversed([*g.walk(node)]):
        above = found.setdefault(n, frozenset())
        inside = above | ({*n.attr.axes} - {*axis} if n.op == "reduce" else frozenset())
        for a in n.args:
            found[a] = found.get(a, frozenset()) | inside
    return found


def _selected(node: Node, asked: Callable[[Node], bool]) -> dict[Node, Node]:
    """Where nodes are read, by conditions that can be asked: of ``1/x`` in ``where(0 < x, 1/x, 0)`` where x is
    positive. What is reduced along an axis is read all along it, whatever reads the result at one place."""
    found = {node: g.TRUE}
    for n in reversed([*g.walk(node)]):
        whole = n.op == "reduce" and found[n].axes & {*n.attr.axes}
        places = [g.TRUE if whole else found[n]] * len(n.args)
        if n.op == "where":
            chosen = n.args[0], g.negate(n.args[0])
            places[1:] = (g.logical("and", places[0], _implied(c, asked)) for c in chosen)
        for a, place in zip(n.args, places, strict=True):
            found[a] = g.logical("or", found.get(a, g.FALSE), place)
    return found


def _implied(condition: Node, asked: Callable[[Node], bool]) -> Node:
    """What can be asked of what a condition says."""
    if asked(condition):
        return condition
    if condition.op in ("and", "or"):
        return g.logical(condition.op, *(_implied(c, asked) for c in condition.args))
    if condition.op == "not" and condition.args[0].op in ("and", "or"):
        inner = condition.args[0]
        other = "or" if inner.op == "and" else "and"
        return g.logical(other, *(_implied(g.negate(c), asked) for c in inner.args))
    return g.TRUE


def _where_read(node: Node, unread: bool, asked: Callable[[Node], bool]) -> dict[tuple[Node, Node], None]:
    """What arguments of nodes have to satisfy, and these; with `unread` also where nothing reads the nodes."""
    places = {} if unread else _selected(node, asked)
    needed = ((places.get(n, g.TRUE), c, n.args[0]) for n in g.walk(node) for c in conditions(n))
    pairs = (pair for at, c, u in needed for pair in _of_branches(at, c, u, asked))
    return dict.fromkeys((g.logical("or", g.negate(at), c), u) for at, c, u in pairs if not _says(at, c))


def _of_branches(at: Node, c: Node, u: Node, asked: Callable[[Node], bool]) -> Iterator[tuple[Node, Node, Node]]:
    """What is asked of an argument, where it is read; of a choice that cannot be asked, what is asked of its branches:
    elements in one of them are asked beside a stage value in the other."""
    yield at, c, u
    if u.op == "where" and not asked(u):
        for chosen, branch in zip((u.args[0], g.negate(u.args[0])), u.args[1:], strict=True):
            place = g.logical("and", at, _implied(chosen, asked))
            own = g.compare(c.op, *(branch if a is u else a for a in c.args))
            yield from _of_branches(place, own, branch, asked) if own is not g.TRUE else ()


def _says(place: Node, condition: Node) -> bool:
    """Whether a condition of a domain plainly holds at a place."""
    if place.op == "or":
        return all(_says(p, condition) for p in place.args)
    stronger, (a, b) = {condition}, condition.args
    if condition.op == "ne":
        stronger |= {Node("ne", (b, a)), Node("lt", (a, b)), Node("lt", (b, a))}
    elif condition.op == "le":
        stronger.add(Node("lt", (a, b)))
    return not stronger.isdisjoint(place.args if place.op == "and" else (place,))


def _read_by_others(stages: list[Node], node: Node) -> list[Node]:
    below = [set(g.walk(*t.args)) for t in g.walk(node) if t.op == "reduce"]
    return [s for s in stages if any(s in nodes for nodes in below)]


def _away_from_poles(
    node: Node, axis: tuple[str, ...], level: int, held_ones: list[Node], unread: bool
) -> list[tuple[Node, Node]]:
    """That stage values that something is divided by, or that a logarithm is of, are in its domain, and at the last
    level that no extremum is one of no element: as far as a level asks for them; and what that is asked of."""
    if level < LEVELS - 1:
        return []
    found = list(_poles(node, axis, set(held_ones), unread))
    if level == LEVELS:
        return found + [(finite(s), s) for s in held_ones if _of_nothing(s) is not g.FALSE]
    asked = set(_read_by_others([u for _, u in found], node))
    return [(condition, u) for condition, u in found if u in asked]


def _poles(node: Node, axis: tuple[str, ...], held: set[Node], unread: bool) -> Iterator[tuple[Node, Node]]:
    """What stage values that are held, and functions of parameters, have to satisfy where something has a value for
    some alone, and these."""

    def asked(n: Node) -> bool:
        return _can_be_asked(n, axis, held)

    yield from (pair for pair in _where_read(node, unread, asked) if asked(pair[1]))


def _can_be_asked(n: Node, axis: tuple[str, ...], held: set[Node]) -> bool:
    """Of stage values: it is the same all along the stream, and what it reduces is held."""
    return not n.axes & {*axis} and _reductions(n) <= held


def _reductions(n: Node) -> set[Node]:
    return {s for s in g.walk(n) if s.op == "reduce"}


def everything(node: Node, level: int = LEVELS) -> frozenset[str]:
    """What a last level asks of: tensors by name, divisors, and poles of elements."""
    poles = {POLES, UNREAD} if level == ANYWHERE else {POLES}
    return frozenset({DIVISORS, *poles, *(t.attr.name for t in _numbers(node))})


def _numbers(node: Node) -> list[Node]:
    return [n for n in g.leaves(node) if not n.attr.domain & {"bool", "integer", "complex"}]


def _defined_elements(node: Node, axis: tuple[str, ...], unread: bool) -> list[tuple[Node, Node]]:
    """That what is calculated of elements alone has a value where it is read: ``where(b, x, 0)/x`` is NaN where x is
    0, and ``where(x != 0, 1/x, 0)`` is not."""
    along = {*axis}
    mixed = {n for n in g.walk(node) if n.op == "reduce" and along & {*n.attr.axes}}

    def asked(n: Node) -> bool:
        return mixed.isdisjoint(g.walk(n))

    found = [(c, u) for c, u in _where_read(node, unread, asked) if u.axes & along and asked(u)]
    apart = [pair for c, u in found for pair in (_apart(c, u, along) if COUNT in g.walk(u) else [(c, u)])]
    return [(g.reduction("all", axis, c) if c.axes & along else c, u) for c, u in apart]


def _apart(condition: Node, u: Node, along: set[str]) -> list[tuple[Node, Node]]:
    """That factors are not 0, of elements or of their number: of both at once, a condition has no form. ``w*n - w`` is
    not 0 where w and n - 1 are not."""
    if condition.op != "ne" or condition.args[1] is not g.ZERO or u.op != "add":
        return []
    common, rest = factored(u)
    factors = [*common, rest]
    return [(g.compare("ne", f, g.ZERO), u) for f in factors if f.axes.isdisjoint(along) or COUNT not in g.walk(f)]


def _finite_elements(node: Node, axis: tuple[str, ...], among: frozenset[str]) -> list[tuple[Node, Node]]:
    tensors = [t for t in _numbers(node) if t.attr.name in among]
    found = [(g.reduction("all", axis, finite(t)) if t.axes & set(axis) else finite(t), t) for t in tensors]
    return found + (_defined_elements(node, axis, UNREAD in among) if POLES in among else [])


def _usable_where_read(
    node: Node, axis: tuple[str, ...], level: int, values: list[Node], held: set[Node]
) -> list[tuple[Node, Node]]:
    """That stage values can be calculated with where they are read, and these: one that nothing selects may be of
    elements at a pole, as in ``where(0 < q, sum[j](w*x)/sqrt(q), 0)`` where w is divided by q."""
    places = _selected(node, lambda n: _can_be_asked(n, axis, held))
    return [(g.logical("or", g.negate(places[v]), _usable(_as_read(v, node), level)), v) for v in values]


def _usable(value: Node, level: int) -> Node:
    """Finite; an extremum may be the identity of its monoid at first: then all its elements are."""
    if level == 1 and value.op == "reduce" and value.attr.kind in IDENTITIES:
        return g.compare("lt", value, g.INF) if value.attr.kind == "max" else g.compare("lt", g.NEG_INF, value)
    return g.logical("or", finite(value), _of_nothing(value)) if level == 2 else finite(value)


def _of_nothing(value: Node) -> Node:
    """Where an extremum is one of no element, by a condition on tensors that its body states: no element is infinite
    then, and what is selected by that condition, too, is 0 whatever the extremum is."""
    if value.op != "reduce" or value.attr.kind not in IDENTITIES:
        return g.FALSE
    counts = _counts(value.args[0], IDENTITIES[value.attr.kind])
    known = counts is not g.TRUE and not any(n.op == "reduce" for n in g.walk(counts))
    return g.negate(g.reduction("any", value.attr.axes, counts)) if known else g.FALSE


def _counts(body: Node, identity: Node) -> Node:
    """Where the body of an extremum is not its identity, as far as conditions say."""
    if body.op != "where":
        return g.FALSE if body is identity else g.TRUE
    condition, then, other = body.args
    chosen = g.logical("and", condition, _counts(then, identity))
    return g.logical("or", chosen, g.logical("and", g.negate(condition), _counts(other, identity)))


def _as_read(value: Node, node: Node) -> Node:
    """A sum that is only read as a mean as that mean: it need not be held as a sum, too."""
    inverse = g.power(COUNT, -1)
    readers = [n for n in g.walk(node) if value in n.args]
    return g.mul(value, inverse) if readers and all(n.op == "mul" and inverse in n.args for n in readers) else value


def _over(condition: Node, axes: frozenset[str]) -> Node:
    return g.reduction("all", tuple(sorted(axes)), condition) if axes else condition


def positions(node: Node) -> list[Node]:
    """The positions that an output of integers is, or is calculated from."""
    found = [] if node.is_boolean else [n for n in g.walk(node) if is_position(n)]
    whole = {t: g.ONE for t in g.leaves(node, "tensor") if "integer" in t.attr.domain} if found else {}
    return found if found and is_exact(g.substitute(node, whole, raw=True)) else []


def hides_stages(node: Node, axis: tuple[str, ...]) -> bool:
    """Whether a position is one of elements that read stage values, and positions: which of the elements it is may
    show beyond the short streams alone, ``argmin[j](sin(index[j]) - mean[j](t[j]))`` is 0 on all of them."""
    along = {*axis}
    for p in positions(node):
        body = p.args[0]
        places = along & {*p.attr.axes} & {n.attr for n in g.walk(body) if n.op == "index"}
        if places and any(n.op == "reduce" and along & {*n.attr.axes} for n in _calculated(body)):
            return True
    return False


def _otherwise(node: Node, values: list[Node]) -> Node:
    """NaN; no position, or what the first ones (of elements that are all alike) make where a NaN makes every element
    one."""
    found = positions(node)
    if not found:
        return g.special("nan")
    broken = [g.logical("or", *_broken(p, node.axes, values)) for p in found]
    first = {p: Node("reduce", (g.ZERO,), g.Reduce(p.attr.kind, p.attr.axes, p.attr.extra)) for p in found}
    return g.where(g.logical("and", *broken), g.substitute(node, first), g.MINUS_ONE)


def _broken(position: Node, axes: frozenset[str], values: list[Node]) -> list[Node]:
    entering = _calculated(position.args[0])
    return [Node("ne", (v, v)) for v in values if v in entering and not v.axes - axes]


def _calculated(root: Node) -> set[Node]:
    """Nodes whose NaN is the root's: conditions and what they select among are not."""
    found: set[Node] = set()
    stack = [root]
    while stack:
        n = stack.pop()
        if n not in found and not n.is_boolean:
            found.add(n)
            stack.extend(() if n.op in ("where", "reduce") else n.args)
    return found


def unchecked(budget: str) -> tuple[str, str]:
    """What a form assumes that has not been looked at at infinities within a budget."""
    return FINITE[0], f"every element is finite; else NaN: to look at the form at infinities takes more than {budget}"


def unseen(refusal: str) -> tuple[str, str]:
    """What a form assumes that could be run on no stream with infinities."""
    return FINITE[0], f"every element is finite; else NaN: every stream with infinities was refused ({refusal})"


class Unseen(Exception):
    """Every stream with infinities was refused, and why: nothing is known of the form there."""


def assuming(plan: Plan, assumption: tuple[str, str]) -> Plan:
    """The plan under one more named assumption."""
    known = dict(plan.assumptions)
    if known.get(assumption[0], FINITE[1]) != FINITE[1] or assumption[1] == known.get(assumption[0]):
        return plan  # what says more stands
    return replace(plan, assumptions=tuple((known | {assumption[0]: assumption[1]}).items()))


# --- finding where they are needed -----------------------------------------------------------------------------------


def differences(form: Form) -> dict[str, str]:
    """Output -> "number" where the form is another number than the definition, "exact" where it is another condition or
    count, which cannot be guarded; else "nan" where it alone is NaN.

    Raises: Exhausted where comparing them would take too many operations.
    """
    return Definitions().differences(form)


class Definitions:
    """What a spec and parts of it are at infinities, which forms are compared with."""

    def __init__(self) -> None:
        self.cases: dict[tuple[str, ...], Cases] = {}  # by the axis of cases and the outputs

    def differences(self, form: Form) -> dict[str, str]:
        """Of one of the forms of a spec, or of a part of it that has these outputs."""
        spec, axis = form.spec, form.plan.axis
        if not axis or not form.plan.passes or any("complex" in d.domain for d in spec.tensors):
            return {}
        found = [self._of_length(form, n) for n in (max(LENGTH, _longest(spec) + 1), *_not_full(spec))]
        return {name: _worst(f.get(name, "") for f in found) for name in spec.outputs if any(name in f for f in found)}

    def _of_length(self, form: Form, elements: int) -> dict[str, str]:
        """On streams of so many elements."""
        spec, axis = form.spec, form.plan.axis
        lists = new_axes(*spec.outputs.values())
        places = {n.attr for n in g.walk(*spec.outputs.values()) if n.op == "index"} - {*axis}
        own = LONG[len(places) > 1]
        sizes = {**{a: own if a in places else 2 for d in spec.tensors for a in d.axes}, **lists}
        sizes[axis[0]] = -(-elements // 2 ** (len(axis) - 1))
        batches = tuple(_batches(spec))  # none where there are integers and conditions alone
        tensors = tuple(_tensor(d, axis[0], sizes, places) for d in spec.tensors)
        special = points(spec.outputs.values(), axis) if batches else []
        cost = _cost(form, sizes, count(tensors, batches) + len(special) * COLUMNS)
        within(cost, INFINITIES, WORK)
        spend(cost)
        case = free_axis(spec, form.plan)
        key = (case, str(elements), *spec.outputs)
        if key not in self.cases:
            arrays = {d.name: x for d, x in zip(spec.tensors, data(tensors, batches), strict=True)}
            arrays = at_points(arrays, special) if special else arrays
            self.cases[key] = Cases(spec_over(spec, case), case, sizes[axis[0]], arrays)
        with np.errstate(all="ignore"):
            found = self.cases[key].compared(form)
        if found is None:
            raise Unseen(str(self.cases[key].refusal))
        return found


class Cases:
    """A spec over many data, computed together, and the forms that were run on them.

    A form whose passes another one has (it has a guard more) is read where that one ended.
    """

    def __init__(self, spec: Spec, axis: str, length: int, arrays: Arrays) -> None:
        self.spec, self.axis, self.length, self.arrays = spec, axis, length, arrays
        self.refusal: RedalgError | None = None  # why all of the cases could not be run together
        self.run: list[tuple[Plan, Plan, Divided]] = []  # a plan, the same over all cases, and where its passes ended

    @cached_property
    def wanted(self) -> dict[str, Any]:
        """The definition."""
        found = reference(self.spec, **self.arrays)
        return by_output(self.spec.outputs, found)

    @cached_property
    def halves(self) -> list[Cases]:
        """Half of the cases each; none of one."""
        middle = min(x.shape[-1] for x in self.arrays.values()) // 2
        parts = (slice(middle), slice(middle, None)) if middle else ()
        arrays = ({name: x[..., part] for name, x in self.arrays.items()} for part in parts)
        return [Cases(self.spec, self.axis, self.length, half) for half in arrays]

    def compared(self, form: Form) -> dict[str, str] | None:
        """What differs; integers beyond int64 are refused, there as in every call. None: every case is, and nothing is
        known of the form."""
        outputs, patterns = form.spec.outputs, "cast_commutes" in form.assumptions  # such forms differ by rounding
        found = dict[str, str]()
        try:
            for got in self._results(form):
                for name, value in got.items():
                    kind = _difference(value, self.wanted[name], patterns, bool(positions(outputs[name])))
                    if kind and found.get(name) != "number":
                        found[name] = kind
                if list(found.values()).count("number") == len(outputs):
                    break  # there is no more to find
            return found
        except RedalgError as refusal:
            self.refusal = refusal
        halves = [h for half in self.halves if (h := half.compared(form)) is not None]
        return {name: _worst(h.get(name, "") for h in halves) for half in halves for name in half} if halves else None

    def _results(self, form: Form) -> Iterator[dict[str, Any]]:
        """Of the whole stream at once, and in pieces: what two accumulators merge to, where one pass suffices."""
        same = next((known for known in self.run if known[0].passes == form.plan.passes), None)
        plan = plan_over(form.plan, self.axis, same[1].passes if same else ())
        over, length = replace(form, spec=self.spec, plan=plan), self.length
        if same is None:
            cuts = ((0, length), (0, 1, length), (0, length - 1, length))
            same = form.plan, plan, over._divided(self.arrays, cuts)
            self.run.append(same)
        return same[2].values(over)


def _worst(kinds: Iterable[str]) -> str:
    return max(kinds, key=("", "nan", "exact", "number").index)


def _not_full(spec: Spec) -> list[int]:
    """Lengths of streams on which a list of integers or conditions alone has one entry too few, which is -oo: others
    have that where elements are."""
    nodes = g.walk(*spec.outputs.values())
    lists = (n for n in nodes if n.op == "reduce" and n.attr.kind == "topk_values" and not _numbers(n))
    return sorted({n.attr.extra[0] - 1 for n in lists if n.attr.extra[0] > 1})


def _longest(spec: Spec) -> int:
    """The entries of the longest list: an element that is infinite may be the one that it leaves out."""
    nodes = g.walk(*spec.outputs.values())
    return max((n.attr.extra[0] for n in nodes if n.op == "reduce" and n.attr.kind.startswith("topk")), default=0)


def _cost(form: Form, sizes: Mapping[str, int], cases: int) -> int:
    """Operations: of the definition, of the form in three divisions of the stream, and of printing its code."""
    slots = [s for p in form.plan.passes for s in p.slots]
    nodes = list(g.walk(*form.spec.outputs.values(), *(n for s in slots for n in s.lift)))
    volume = max(prod(sizes.get(a, 2) for a in n.axes) for n in nodes)
    built = SLOT * len(slots) + MOVE * sum(len(s.moves) for s in slots)
    return built + (len(nodes) + 10 * len(slots)) * (1 + volume * cases // VECTOR)


def _tensor(d: Decl, streamed: str, sizes: Mapping[str, int], places: Container[str]) -> Tensor:
    """`places`: axes whose positions are read."""
    along = d.axes.index(streamed) if streamed in d.axes else None
    return Tensor(
        tuple(sizes[a] for a in d.axes), d.domain, along, tuple(k for k, a in enumerate(d.axes) if a in places)
    )


def _batches(spec: Spec) -> Iterator[tuple[int, ...]]:
    """Tensors that no output reads together are made infinite together: the work does not grow with both."""
    group: dict[str, list[str]] = {}
    for node in spec.outputs.values():
        names = [leaf.attr.name for leaf in g.leaves(node)]
        joined = list(dict.fromkeys(x for n in names for x in (n, *group.get(n, ()))))
        group |= dict.fromkeys(joined, joined)
    drawn = {d.name: k for k, d in enumerate(spec.tensors) if not d.domain & {"bool", "integer"}}
    held = [[drawn[n] for n in names if n in drawn] for names in {id(v): v for v in group.values()}.values()]
    for number in range(max(map(len, held), default=0)):
        yield tuple(numbers[number] for numbers in held if number < len(numbers))


def _difference(got: Any, wanted: Any, patterns: bool, position: bool) -> str | None:
    a, b = np.asarray(got, dtype=float), np.asarray(wanted, dtype=float)
    a = a[..., None] if a.ndim < b.ndim else a  # what no tensor changes is once for all cases
    if np.asarray(got).dtype.kind in "bi":  # a condition or a count has no NaN: it is said, and -1 is no position
        other = (a != b) & (a != -1)
        if position:
            return "number" if other.any() else "nan" if (a != b).any() else None
        return "exact" if (a != b).any() else None
    close = np.abs(a - b) <= 1e-6 * (1 + np.abs(b))
    same = (a == b) | (np.isnan(a) & np.isnan(b)) | close | (np.isfinite(a) & np.isfinite(b) & patterns)
    if same.all():
        return None
    return "number" if (~same & ~np.isnan(a)).any() else "nan"
