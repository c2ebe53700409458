"""The digests of a spec and of a form: what the numbers of its states mean, and nothing of how they are computed."""

from __future__ import annotations

import hashlib

from redalg.graph.operators import Custom
from redalg.graph.plan import MeanAnchor, PassPlan, Plan
from redalg.language.spec import Spec


def spec_digest(spec: Spec) -> str:
    """Of outputs and tensors, in whatever order they were declared."""
    outputs = sorted((name, node.digest.hex(), spec.output_axes[name]) for name, node in spec.outputs.items())
    decls = sorted((d.name, d.axes, sorted(d.domain), d.array or "") for d in spec.tensors)
    empty = sorted((name, str(value)) for name, value in spec.empty.items())
    return _digest((outputs, decls, empty, sorted(spec.dtypes.items())))


def form_digest(plan: Plan) -> str:
    """Of axes, anchors, slots and exports of every pass; equal in every process."""
    return _digest((plan.axis, [_pass(p) for p in plan.passes]))


def _digest(value: object) -> str:
    return hashlib.blake2b(repr(value).encode(), digest_size=16).hexdigest()


def _pass(p: PassPlan) -> tuple[object, ...]:
    anchors = []
    for a in p.anchors:
        target = "" if isinstance(a, MeanAnchor) else a.target.digest.hex()
        anchors.append((a.policy, a.name, a.axes, a.generator.digest.hex(), target))
    slots = []
    for s in p.slots:
        kind = f"monoid {s.op.monoid.digest}" if isinstance(s.op, Custom) else s.kind
        lift = [node.digest.hex() for node in s.lift]
        slots.append((s.name, kind, s.axes, s.parts, lift, s.anchors, s.average, s.vanishes))
    return p.order, anchors, slots, [(name, node.digest.hex()) for name, node in p.exports]
