"""What a form gives where one element is infinite: what the definition gives, or NaN under a named assumption.

A form is an identity of real functions. Where a stage value is infinite its sides may differ: Σ(x-a)(y-b) is NaN where
a is infinite, and expanded about anchors it may be infinite; a maximum that a stage value was pulled out of is -oo
where the definition has oo - oo. So every form is run on short streams, in pieces, with one infinity at every place
along them. An output that is a number there, and another one than the definition's, is given a guard: it is NaN (a
position is -1, or the first where the definition takes that of a NaN) unless the stage values its stages read are
finite. One that is NaN where the definition is a number is said to assume finite stage values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from redalg import graph as g
from redalg.definition import reference
from redalg.graph import Decl, Node
from redalg.intervals import admits, is_interval, moved_array
from redalg.plan import COUNT
from redalg.void import finite

if TYPE_CHECKING:
    from redalg.form import Form
    from redalg.plan import Plan
    from redalg.spec import Spec

LENGTH = 4  # of the streamed axis; axes of their own have 2
POSITIONS = ("argmax", "argmin", "topk_indices")
LEVELS = 3  # of guards, see `guard`
MINUS_ONE = g.const(-1)
FINITE = ("finite_stage_values", "every stage value is finite (no divisor 0, no stage without elements); else NaN")
Arrays = dict[str, Any]


# --- guards ----------------------------------------------------------------------------------------------------------


def guard(node: Node, axis: tuple[str, ...], level: int) -> tuple[Node, Node]:
    """(condition, value otherwise) of an output: which values of its stages have to be finite.

    Level 1: those that other stages read. Level 2: all of them. Level 3: every element of every tensor.
    """
    stages = [n for n in g.walk(node) if n.op == "reduce" and n.attr.axes == axis and n.attr.kind not in POSITIONS]
    read = [s for s in stages if any(s is not t and s in set(g.walk(t)) for t in g.walk(node) if t.op == "reduce")]
    values = [s for s in (read if level == 1 else stages) if not s.is_boolean and s.attr.kind != "monoid"]
    conditions = [_over(_usable(_as_read(v, node), level), v.axes - node.axes) for v in values]
    if level == 3:
        tensors = [n for n in g.leaves(node) if not n.attr.domain & {"bool", "integer", "complex"}]
        along = [g.reduction("all", axis, finite(t)) if t.axes & set(axis) else finite(t) for t in tensors]
        conditions = [_over(c, c.axes - node.axes) for c in along]
    return g.logical("and", *conditions), _otherwise(node, values)


def _usable(value: Node, level: int) -> Node:
    """Finite; an extremum may be the identity of its monoid at first: then all its elements are."""
    if level == 1 and value.op == "reduce" and value.attr.kind in ("max", "min"):
        return g.compare("lt", value, g.INF) if value.attr.kind == "max" else g.compare("lt", g.NEG_INF, value)
    return finite(value)


def _as_read(value: Node, node: Node) -> Node:
    """A sum that is only read as a mean as that mean: it need not be held as a sum, too."""
    inverse = g.power(COUNT, -1)
    readers = [n for n in g.walk(node) if value in n.args]
    return g.mul(value, inverse) if readers and all(n.op == "mul" and inverse in n.args for n in readers) else value


def _over(condition: Node, axes: frozenset[str]) -> Node:
    return g.reduction("all", tuple(sorted(axes)), condition) if axes else condition


def is_position(node: Node) -> bool:
    return node.op == "reduce" and node.attr.kind in POSITIONS


def _otherwise(node: Node, values: list[Node]) -> Node:
    if not is_position(node):
        return g.special("nan")
    entering = _calculated(node.args[0])
    broken = [Node("ne", (v, v)) for v in values if v in entering and not v.axes - node.axes]
    rank = Node("index", (), node.attr.extra[1]) if node.attr.kind == "topk_indices" else g.ZERO
    first = g.where(g.compare("lt", rank, COUNT), rank, MINUS_ONE)
    return g.where(g.logical("or", *broken), first, MINUS_ONE) if broken else MINUS_ONE


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


def assuming(plan: Plan, assumption: tuple[str, str]) -> Plan:
    """The plan under one more named assumption."""
    known = dict(plan.assumptions)
    return plan if assumption[0] in known else replace(plan, assumptions=(*plan.assumptions, assumption))


# --- finding where they are needed -----------------------------------------------------------------------------------


def differences(form: Form) -> dict[str, str]:
    """Output -> "number" where the form is another number than the definition, else "nan" where it alone is NaN."""
    found: dict[str, str] = {}
    spec, axis = form.spec, form.plan.axis
    if not axis or not form.plan.passes or any("complex" in d.domain for d in spec.tensors):
        return found
    patterns = "cast_commutes" in form.assumptions  # numbers differ by rounding anyway
    sizes = _sizes(spec, axis)
    with np.errstate(all="ignore"):
        for arrays in _cases(spec, axis, sizes):
            wanted = _named(spec, reference(spec, **arrays))
            for got in _results(form, arrays, sizes[axis[0]]):
                for name, value in got.items():
                    kind = _difference(value, wanted[name], patterns, is_position(spec.outputs[name]))
                    if kind and found.get(name) != "number":
                        found[name] = kind
    return found


def _rows(spec: Spec, axis: tuple[str, ...]) -> str | None:
    """An axis of independent rows: every output has it."""
    common = set.intersection(*(set(axes) for axes in spec.output_axes.values())) - set(axis)
    return next((a for d in spec.tensors for a in d.axes if a in common), None)


def _sizes(spec: Spec, axis: tuple[str, ...]) -> dict[str, int]:
    sizes = dict.fromkeys((a for d in spec.tensors for a in d.axes), 2)
    sizes[axis[0]] = LENGTH // 2 ** (len(axis) - 1)
    rows = _rows(spec, axis)
    return sizes if rows is None else {**sizes, rows: sizes[axis[0]]}


def _cases(spec: Spec, axis: tuple[str, ...], sizes: Mapping[str, int]) -> Iterator[Arrays]:
    """Random numbers with one infinity in a row, at every place along the stream of every tensor, and with nothing
    else in one of them: of either sign, of both, and NaN."""
    rng = np.random.default_rng(crc32(repr(spec.digest).encode()))
    for batch in _batches(spec):
        places = [list(_places(d, axis, sizes, _rows(spec, axis))) for d in batch]
        for step in range(max(map(len, places))):
            arrays = {t.name: _draw(t.domain, [sizes[a] for a in t.axes], rng) for t in spec.tensors}
            for d, found in zip(batch, places, strict=True):
                if step < len(found):
                    at, value = found[step]
                    arrays[d.name][at] = value
            yield arrays


def _batches(spec: Spec) -> Iterator[list[Decl]]:
    """Tensors that no output reads together are made infinite together: the work does not grow with both."""
    group: dict[str, list[str]] = {}
    for node in spec.outputs.values():
        names = [leaf.attr.name for leaf in g.leaves(node)]
        joined = list(dict.fromkeys(x for n in names for x in (n, *group.get(n, ()))))
        group |= dict.fromkeys(joined, joined)
    drawn = {d.name: d for d in spec.tensors if not d.domain & {"bool", "integer"}}
    held = [[drawn[n] for n in names if n in drawn] for names in {id(v): v for v in group.values()}.values()]
    for number in range(max(map(len, held), default=0)):
        yield [names[number] for names in held if number < len(names)]


def _places(d: Decl, axis: tuple[str, ...], sizes: Mapping[str, int], rows: str | None) -> Iterator[tuple[Any, float]]:
    """Where one tensor is made infinite, and with which sign."""
    places: list[tuple[Any, ...]] = [tuple(0 for _ in d.axes)]
    if axis[0] in d.axes:
        along = np.arange(sizes[axis[0]])
        steps = [along] if rows in d.axes else list(along)
        places = [tuple(j if a in (axis[0], rows) else 0 for a in d.axes) for j in steps]
    for at in places:
        for value in (np.inf, -np.inf)[: 1 if d.domain & {"positive", "nonnegative"} else 2]:
            if not is_interval(d.domain) or admits(d.domain, value):
                yield at, value
    if axis[0] in d.axes:
        yield from ((..., value) for value in _wholly(d, axis[0], sizes))


def _wholly(d: Decl, axis: str, sizes: Mapping[str, int]) -> Iterator[Any]:
    """What takes the place of a whole tensor: infinities of either sign, of both along the stream, and NaN."""
    along = np.arange(sizes[axis]).reshape([-1 if a == axis else 1 for a in d.axes])
    if not d.domain & {"positive", "nonnegative"}:
        yield -np.inf
        yield np.where(along % 2, np.inf, -np.inf)
    yield np.inf
    yield np.nan


def _draw(domain: frozenset[str], shape: list[int], rng: np.random.Generator) -> np.ndarray:
    if "bool" in domain:
        return np.asarray(rng.random(shape) < 0.7)
    sign = 1 if domain & {"positive", "nonnegative"} else rng.choice((-1, 1), shape)
    if "integer" in domain:
        return moved_array(domain, np.asarray(rng.integers(1, 9, shape) * sign))
    drawn = rng.uniform(0.25, 2, shape) * sign  # no two alike: what rounding decides is not judged
    return moved_array(domain, np.asarray(drawn))


def _named(spec: Spec, result: Any) -> dict[str, Any]:
    return result if isinstance(result, dict) else {next(iter(spec.outputs)): result}


def _results(form: Form, arrays: Arrays, length: int) -> Iterator[dict[str, Any]]:
    """The whole stream at once, and in pieces: two accumulators merged where one pass suffices."""
    axis, spec = form.plan.axis[0], form.spec
    streamed = {d.name: d.axes.index(axis) for d in spec.tensors if axis in d.axes}
    bound = {k: v for k, v in arrays.items() if k not in streamed}
    inner = int(np.prod([2 for _ in form.plan.axis[1:]], dtype=int))

    def piece(start: int, stop: int) -> Arrays:
        return {k: arrays[k][(slice(None),) * at + (slice(start, stop),)] for k, at in streamed.items()}

    for cuts in ((0, length), (0, 1, length), (0, length - 1, length)):
        parts = list(zip(cuts, cuts[1:], strict=False))
        total = form.accumulator(start=0, **bound)
        for number in range(form.passes.statistics):
            if number:
                total.next_pass(start=0)
                for start, stop in parts:
                    total.update(**piece(start, stop))
                continue
            total.update(**piece(*parts[0]))
            for start, stop in parts[1:]:
                other = form.accumulator(start=start * inner, **bound)
                other.update(**piece(start, stop))
                total.merge(other)
        yield _read(form, total, piece(0, length))


def _read(form: Form, total: Any, chunk: Arrays) -> dict[str, Any]:
    kept = [o.name for o in form.plan.outputs if o.keeps_axis]
    found = {} if len(kept) == len(form.plan.outputs) else _named(form.spec, total.result())
    applied = _named(form.spec, total.apply(start=0, **chunk)) if kept else {}
    return {**found, **{k: v for k, v in applied.items() if k in kept}}


def _difference(got: Any, wanted: Any, patterns: bool, position: bool) -> str | None:
    a, b = np.asarray(got, dtype=float), np.asarray(wanted, dtype=float)
    if np.asarray(got).dtype.kind in "bi":  # a condition or a count has no NaN: it is said, and -1 is no position
        other = (a != b) & (a != -1)
        return "number" if position and other.any() else "nan" if (a != b).any() else None
    close = np.abs(a - b) <= 1e-6 * (1 + np.abs(b))
    same = (a == b) | (np.isnan(a) & np.isnan(b)) | close | (np.isfinite(a) & np.isfinite(b) & patterns)
    if same.all():
        return None
    return "number" if (~same & ~np.isnan(a)).any() else "nan"
