"""What a form is, in words and formulas. Every sentence is computed from the plan: nothing is stored about any spec."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from redalg.algebra import state as symbolic
from redalg.algebra.corrections import corrected
from redalg.algebra.transport import moved
from redalg.graph.node import ONE, Node, add, leaves, substitute, walk
from redalg.graph.operators import Custom, Position, TopK
from redalg.graph.plan import COUNT, Anchor, MeanAnchor, PassPlan, Plan, Slot, StageReport, UnitAnchor
from redalg.text.nodes import short
from redalg.text.tables import Lines, Paint, bytes_of, equations, listed, plural, table, volume

if TYPE_CHECKING:
    from redalg.form import Form

BYTES = 8  # of a float64 or int64 part


# --- meanings ------------------------------------------------------------------------------------------------------


def meaning(part: symbolic.Part, p: PassPlan, axis: tuple[str, ...]) -> str:
    """What one part of the state holds."""
    if part.anchor is not None:
        a = part.anchor
        return f"{short(a.generator)} is held as {short(a.generator)} {'/' if a.divides else '-'} {a.name}"
    if part.slot is None:
        return f"number of elements seen along {','.join(axis)}"
    slot = part.slot
    return slot.meaning or _slot_meaning(slot, slot.parts.index(part.name), ",".join(axis), aliased(p))


@lru_cache(maxsize=16)
def aliased(p: PassPlan) -> dict[str, Node]:
    """Anchors that are slots, under the slot's name."""
    known = symbolic.leaf_state(p)
    return {a.name: known[a.name] for a in p.anchors if symbolic.alias(a, p)}


def _slot_meaning(slot: Slot, part: int, axis: str, names: dict[str, Node]) -> str:
    body = ", ".join(short(symbolic.resolve(b, names, {})) for b in slot.lift)
    if slot.lift[0].op == "add":
        body = f"({body})"
    match slot.op:
        case Position(kind):
            first = f"the first position of {slot.parts[0]}"
            return (f"{kind.removeprefix('arg')} over {axis} of {body}", first)[part]
        case TopK(k):
            return (f"the {k} largest over {axis} of {body}, descending", f"the positions of {slot.parts[0]}")[part]
        case Custom(monoid):
            return f"part {part} of {monoid.name} over {axis} of {body}"
        case _:
            return f"{'mean' if slot.average else slot.kind} over {axis} of {body}"


# --- the algebra, line by line -------------------------------------------------------------------------------------


def merged(p: PassPlan) -> dict[str, Node]:
    """combine with each part written over the parts before it; the sum of the counts is `n`."""
    a, b = symbolic.leaf_state(p, "_a"), symbolic.leaf_state(p, "_b")
    count = COUNT.attr.name
    whole = {add(a[count], b[count]): COUNT}
    values = symbolic.combine(p, a, b, named=True)
    aliases = {x.name for x in p.anchors if symbolic.alias(x, p)}
    return {k: v if k == count else substitute(v, whole) for k, v in values.items() if k not in aliases}


def lifted(p: PassPlan) -> dict[str, Node]:
    values = symbolic.lift(p)
    return {part.name: values[part.name] for part in symbolic.parts(p)}


def _section(title: str, lines: list[str]) -> list[str]:
    return ["", title, *lines] if lines else []


def _equations(values: dict[str, Node], taken: set[str], paint: Paint = str) -> list[str]:
    lines = Lines(values.values(), taken, paint=paint)
    return equations([*lines.bindings(), *((name, lines.text(v)) for name, v in values.items())])


def taken_names(form: Form) -> set[str]:
    plan = form.plan
    names = {t.name for t in form.spec.tensors} | set(form.spec.outputs)
    return names | {part.name for p in plan.passes for part in symbolic.parts(p)}


def summary(form: Form, paint: Paint = str) -> str:
    """The definition, and below it the incremental form; `paint` is applied to the text of corrections."""
    plan = form.plan
    lines = ["definition", *_definition(form)]
    for number, p in statistics(plan):
        title = f" of pass {number + 1}" if len(plan.passes) > 1 else ""
        lines += _section(f"lift{title} (one element)", _equations(lifted(p), taken_names(form)))
        values = corrected(p, merged(p))
        lines += _section(f"combine{title} (a, then b)", _equations(values, taken_names(form), paint))
        lines += _section(f"exports{title}", _equations(symbolic.exports(plan, number), taken_names(form)))
    lines += _section("finalize", _equations(symbolic.outputs(plan), taken_names(form)))
    return "\n".join(lines)


def statistics(plan: Plan) -> list[tuple[int, PassPlan]]:
    """The numbered passes that accumulate something."""
    return [(number, p) for number, p in enumerate(plan.passes) if p.order]


def _definition(form: Form) -> list[str]:
    return [f"  {statement.strip()}" for statement in str(form.spec).split(";") if statement.strip()]


# --- explain -------------------------------------------------------------------------------------------------------


def explain(form: Form) -> str:
    """The state with meanings, corrections, anchors and deferred factors with reasons, stages, passes, bytes."""
    plan = form.plan
    lines = ["definition", *_definition(form)]
    lines += _section(f"state, along {','.join(plan.axis)}" if plan.axis else "state", _state(form))
    for number, p in statistics(plan):
        title = f" of pass {number + 1}" if len(plan.passes) > 1 else ""
        lines += _section(f"corrections{title} (from the anchors A_a to A)", _corrections(p, taken_names(form)))
        lines += _section(f"anchors{title}", list(_anchors(p)))
    lines += _section("finalize", _equations(symbolic.outputs(plan), taken_names(form)))
    stages = _stage_lines(form)
    lines += _section("stages", _stages(plan, stages))
    lines += _section("deferred to finalize", list(_deferred(plan, stages)))
    lines += _section("passes", _passes(form))
    lines += _section("bytes", _bytes(form))
    lines += _section("assumptions", table((f"{name}:", text) for name, text in plan.assumptions))
    lines += _lean(form)
    return "\n".join(lines)


def _state(form: Form) -> list[str]:
    if not form.passes.statistics:
        return ["  none: every output is computed from one element"]
    rows = [("name", "monoid", "shape", "anchor", "dtype", "meaning")]
    for info in form.slots:
        rows.append(
            (info.name, info.monoid, state_shape(form, info.name), info.anchor or "-", info.dtype, info.meaning)
        )
    return table(rows)


def _parts(form: Form) -> dict[str, symbolic.Part]:
    return {part.name: part for p in form.plan.passes for part in symbolic.parts(p)}


def state_shape(form: Form, name: str) -> str:
    return f"[{','.join(_parts(form)[name].leaf.attr.axes)}]"


def _corrections(p: PassPlan, taken: set[str]) -> list[str]:
    values = {s.name: moved(s, p) for s in p.slots if s.moves and not s.vanishes}
    return _equations(values, taken | set(values))


def _anchors(p: PassPlan) -> Iterator[str]:
    """Why each anchor is where it is, what it carries, and when it moves."""
    for anchor in p.anchors:
        same = symbolic.alias(anchor, p)
        name = f"{same} (as {anchor.name})" if same else anchor.name
        carried = [s.name for s in p.slots if anchor.name in s.anchors and not s.vanishes]
        yield f"  {name}: {_policy(anchor)}; carries {listed(carried)}."
        if anchor.why:
            yield f"    {anchor.why}"


def _policy(anchor: Anchor) -> str:
    what = short(anchor.generator)
    if isinstance(anchor, MeanAnchor):
        return f"a running value subtracted from {what}, moved by {short(anchor.shift)} wherever that is finite"
    verb = "divided out of" if anchor.divides else "subtracted from"
    power = ", a power of 2," if isinstance(anchor, UnitAnchor) else ""
    return f"{short(anchor.target)}{power} is {verb} {what}, and follows the data"


def _stage_lines(form: Form) -> Lines:
    """Writes stages by their names, and what several of them share by a name of its own."""
    stages = form.plan.stages
    roots = [n for s in stages for n in (*s.node.args, *s.coefficients, *s.generators)]
    return Lines(roots, taken_names(form), {s.node: s.name for s in stages})


def _deferred(plan: Plan, lines: Lines) -> Iterator[str]:
    """Factors of a body that are the same for all elements: they stay outside the reduction until finalize."""
    for stage in plan.stages:
        inside = set(walk(*stage.node.args))
        read = {s.node: s.name for s in plan.stages if s.node in inside and not _is_anchored(s.node, plan)}
        if read:
            factors = [lines.text(h) for h in stage.coefficients if read.keys() & set(walk(h))] or list(read.values())
            verb = "stays" if len(factors) == 1 else "stay"
            yield f"  {stage.name} reads {listed(read.values())}: {listed(factors)} {verb} outside its reduction."


def _is_anchored(stage: Node, plan: Plan) -> bool:
    """Whether some anchor follows the stage: an extremum over the same body, or a mean of what is centred."""
    body = stage.args[0]
    for p in plan.passes:
        followed = {s.leaf(): s for s in p.slots if s.lift[0] is body and s.kind == stage.attr.kind}
        for a in p.anchors:
            if isinstance(a, MeanAnchor):
                found = body is a.generator or body.op == "mul" and a.generator in body.args
            else:
                found = not followed.keys().isdisjoint(walk(a.target))
            if found:
                return True
    return False


def _stages(plan: Plan, lines: Lines) -> list[str]:
    if not plan.stages:
        return []
    rows = [("stage", "pair", "rank", "pass", "rules")]
    for s in plan.stages:
        rows.append((s.name, s.pair, "-" if s.rank is None else str(s.rank), str(s.passes), ", ".join(s.rules) or "-"))
    found = table(rows) + equations(lines.bindings())
    for s in plan.stages:
        found.append(f"  {s.name} = {lines.definition(s.node)}")
        found += _separated(s, lines)
    return found


def _separated(stage: StageReport, lines: Lines) -> list[str]:
    """The body as Σ H·G, a factor 1 left out."""
    if not stage.generators or len(stage.generators) == 1 and stage.coefficients[0] is ONE:
        return []
    terms = []
    for h, g in zip(stage.coefficients, stage.generators, strict=True):
        factors = [f"({lines.text(f)})" for f in (h, g) if f is not ONE]
        terms.append("·".join(factors) or "1")
    return ["    body = " + " + ".join(terms)]


def _passes(form: Form) -> list[str]:
    own, reads = form.passes
    axis = ",".join(form.plan.axis) or "the input"
    kept = [o.name for o in form.plan.outputs if o.keeps_axis]
    lines = [f"  {plural(own, 'pass')} over {axis} for the state; {plural(reads, 'read')} of the input in all."]
    if kept:
        lines.append(
            f"  {listed(kept)} {'keep' if len(kept) > 1 else 'keeps'} the axis and is computed in one more read."
        )
    for number, p in enumerate(form.plan.passes):
        if p.exports:
            lines.append(
                f"  Pass {number + 1} hands on {listed(k for k, _ in p.exports)}: later bodies do not separate in it."
            )
    return lines


def _bytes(form: Form) -> list[str]:
    axis = set(form.plan.axis)
    lines = []
    for number, p in statistics(form.plan):
        read = list(dict.fromkeys(leaf.attr for s in p.slots for b in s.lift for leaf in leaves(b) if axis & leaf.axes))
        values = bytes_of((volume(tuple(a for a in d.axes if a not in axis)) for d in read), BYTES)
        title = f"pass {number + 1}: " if len(form.plan.passes) > 1 else ""
        lines.append(f"  {title}read per element: {values} for {listed(map(str, read))} in float64.")
        state = bytes_of((volume(part.leaf.attr.axes) for part in symbolic.parts(p)), BYTES)
        lines.append(f"  {title}state: {state}, whatever the length of {','.join(form.plan.axis)}.")
    return lines


def _lean(form: Form) -> list[str]:
    lean = form.lean
    if lean is None:
        return []
    gone = [s.name for p in lean.plan.passes for s in p.slots if s.vanishes]
    verb, them = ("vanish", "them") if len(gone) > 1 else ("vanishes", "it")
    text = f"  {listed(gone)} {verb} over the reals once the anchors have moved; form.lean drops {them}."
    return ["", "invariants", text, "  Kept here: the residual holds what rounding took from the anchor."]
