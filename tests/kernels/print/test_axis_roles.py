"""Plans for kernels: every value is read along the axes it is held in, in outputs and in their guards."""

from __future__ import annotations

from dataclasses import replace

import pytest

import redalg as ra
from redalg.algebra.state import declared_axes
from redalg.graph.node import INF, Node, compare, fn, leaves, mul, reduction, special, state
from redalg.graph.plan import Guard, Plan
from redalg.kernels.ir.axis_roles import aligned, roles


def finite(node: Node) -> Node:
    return compare("lt", fn("abs", node), INF)


def read_along_b(where: str) -> Plan:
    """A mean along a, and the same state read along b: in the value, in the guard, or in what else the result is."""
    form = ra.derive_incremental(ra.parse("u = mean[j](x[j,a]); return y = mean[j]((x[j,a] - u)**2)"))
    output, name = form.plan.outputs[0], form.plan.passes[0].slots[0].parts[0]
    product = mul(state(name, ("a",)), state(name, ("b",)))
    parts: dict[str, Node] = {"value": output.value, "finite": finite(output.value), "otherwise": special("nan")}
    parts[where] = finite(product) if where == "finite" else product
    guard = Guard(parts["finite"], parts["otherwise"])
    return replace(form.plan, outputs=(replace(output, axes=("a", "b"), value=parts["value"], guard=guard),))


@pytest.mark.parametrize("where", ["value", "finite", "otherwise"])
def test_what_is_read_along_other_axes_is_a_slot_of_its_own(where: str) -> None:
    plan = aligned(read_along_b(where))
    declared = declared_axes(plan.passes[-1])
    found = leaves(plan.outputs[0].guarded, "state")
    assert any("b" in leaf.attr.axes for leaf in found)
    assert all(leaf.attr.axes == declared.get(leaf.attr.name, leaf.attr.axes) for leaf in found)
    assert {leaf.attr.name for leaf in found} <= {*declared, "n"}


def test_axes_that_guards_reduce_over_are_columns() -> None:
    """One row has to hold all of such an axis."""
    plan = read_along_b("value")
    guard = reduction("all", ("a",), finite(plan.outputs[0].value))
    guarded = replace(plan.outputs[0], axes=("b",), value=special("pi"), guard=Guard(guard, special("nan")))
    assert "a" in roles(replace(plan, outputs=(guarded,)), ("j", "a", "b")).columns


def test_what_earlier_passes_found_is_read_along_the_axes_that_it_has() -> None:
    """It may vary along fewer than those it was planned to be read along."""
    spec = ra.parse("u = mean[j](x[i,j]); return y = sum[j](where(x[i,j] > u, x[i,j], 0)) + u")
    plan = ra.derive_incremental(spec, max_passes=2).plan
    first, last = plan.passes
    constant = replace(first, exports=tuple((name, special("pi")) for name, _ in first.exports))
    made = aligned(replace(plan, passes=(constant, last)))
    names = {name for name, _ in first.exports}
    read = [n for o in made.outputs for n in leaves(o.guarded, "state")]
    read += [n for s in made.passes[-1].slots for part in s.lift for n in leaves(part, "state")]
    assert names and names <= {n.attr.name for n in read}
    assert all(n.attr.axes == () for n in read if n.attr.name in names)
