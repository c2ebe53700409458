"""Conditions of ``empty=`` that depend on reductions over the streamed axis themselves, such as a mask ``x > mean x``.

Such a condition is a spec of its own: its form is derived like any other and runs beside the first one, under names
that no part of it has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import count

from redalg import _hooks
from redalg.errors import NotDecomposable, RedalgError, Undecided
from redalg.graph.node import Decl, Node, leaves, state, substitute
from redalg.graph.plan import PassPlan, Plan, Slot
from redalg.language.spec import Spec, lengths_beside


def beside(spec: Spec, plan: Plan, conditions: Mapping[str, Node]) -> tuple[Plan, dict[str, Node]]:
    """The plan with what the conditions need, and each condition over the state of its last pass.

    Raises: RedalgError where a condition cannot be had in as many passes as the plan has.
    """
    found = _renamed(_derived(spec, plan, conditions), _free_prefix(spec, plan))
    early = len(plan.passes) - len(found.passes)  # the last passes coincide
    passes = list(plan.passes[:early])
    passes += [_joined(p, q) for p, q in zip(plan.passes[early:], found.passes, strict=True)]
    return replace(plan, passes=tuple(passes)), {o.name: o.guarded for o in found.outputs}


def _derived(spec: Spec, plan: Plan, conditions: Mapping[str, Node]) -> Plan:
    assumed = {name for name, _ in plan.assumptions} & {"cast_commutes"}
    try:
        own = Spec.from_nodes(conditions, tensors=_read_by(spec, conditions))
        return _hooks.derive(own, plan.axis, len(plan.passes), assumed).plan
    except (NotDecomposable, Undecided) as error:
        name = next(iter(conditions))
        raise RedalgError(
            f"empty={{{name!r}: {spec.empty[name]}}}",
            f"a form of {name} in {len(plan.passes)} pass{'es' if len(plan.passes) > 1 else ''}",
            f"which rows have no valid element is not known then: {error.why}",
            "derive with more passes (max_passes=...), or leave empty out",
        ) from error


def _read_by(spec: Spec, conditions: Mapping[str, Node]) -> list[Decl]:
    """The tensors of the conditions, and the first of the spec that says how long an axis is which none of them has."""
    read = {leaf.attr for node in conditions.values() for leaf in leaves(node)}
    whole = [d for d in spec.tensors if not (d.array or d.dimensions)]
    lengths = sorted(lengths_beside(conditions.values(), read))
    read |= {next(d for d in whole if a in d.axes) for a in lengths if any(a in d.axes for d in whole)}
    return [d for d in spec.tensors if d in read]


def _free_prefix(spec: Spec, plan: Plan) -> str:
    taken = {t.name for t in spec.tensors}
    for p in plan.passes:
        taken |= {a.name for a in p.anchors} | {name for s in p.slots for name in (s.name, *s.parts)}
        taken |= {name for name, _ in p.exports}
    prefixes = (f"void{i or ''}_" for i in count())
    return next(prefix for prefix in prefixes if not any(name.startswith(prefix) for name in taken))


def _joined(p: PassPlan, q: PassPlan) -> PassPlan:
    return PassPlan(p.anchors + q.anchors, p.slots + q.slots, p.order + q.order, p.exports + q.exports)


def _renamed(plan: Plan, prefix: str) -> Plan:
    names: dict[str, str] = {}
    for p in plan.passes:
        own = [a.name for a in p.anchors] + [name for s in p.slots for name in (s.name, *s.parts)]
        names |= {name: prefix + name for name in (*own, *(name for name, _ in p.exports))}
    outputs = tuple(replace(o, value=_read(o.guarded, names), guard=None) for o in plan.outputs)
    return replace(plan, passes=tuple(_pass(p, names) for p in plan.passes), outputs=outputs)


def _pass(p: PassPlan, names: Mapping[str, str]) -> PassPlan:
    def read(node: Node) -> Node:
        return _read(node, names)

    return PassPlan(
        tuple(replace(a.map(read), name=names[a.name]) for a in p.anchors),
        tuple(_slot(s, names) for s in p.slots),
        tuple(names[name] for name in p.order),
        tuple((names[name], _read(value, names)) for name, value in p.exports),
    )


def _slot(s: Slot, names: Mapping[str, str]) -> Slot:
    s = s.map(lambda node: _read(node, names))
    return replace(
        s,
        name=names[s.name],
        parts=tuple(names[part] for part in s.parts),
        anchors=tuple(names[a] for a in s.anchors),
        moves=tuple(replace(m, slot=names.get(m.slot, m.slot)) for m in s.moves),
    )


def _read(node: Node, names: Mapping[str, str]) -> Node:
    """The node with its state leaves, and those for the shifts of anchors, under their new names."""
    mapping = {}
    for leaf in leaves(node, "state"):
        before, colon, name = leaf.attr.name.rpartition(":")
        if name in names:
            mapping[leaf] = state(before + colon + names[name], leaf.attr.axes, leaf.attr.domain)
    return substitute(node, mapping) if mapping else node
