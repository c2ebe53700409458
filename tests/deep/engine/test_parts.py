"""Forms as parts that share nothing: what is said of one that is alike is said of the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

import redalg as ra
from redalg.engine.parts import Parts
from redalg.engine.passes import Planner, derive_plan
from redalg.graph import node as g
from redalg.graph.plan import Plan
from redalg.laws.infinities import Level
from redalg.laws.laws import InternalError
from redalg.proofs.checker import check as checker

BODIES = {
    "variance": "mean[j](({0}[j] - mean[j]({0}[j]))**2)",
    "third moment": "mean[j](({0}[j] - mean[j]({0}[j]))**3)",
    "twice the variance": "mean[j]((2*{0}[j] - 2*mean[j]({0}[j]))**2)",
    "weighted": "sum[j]({1}[j]*({0}[j] - sum[j]({1}[j]*{0}[j])/sum[j]({1}[j]))**2)/sum[j]({1}[j])",
    "logsumexp": "max[j]({0}[j]) + log(sum[j](exp({0}[j] - max[j]({0}[j]))))",
    "maximum": "max[j]({0}[j])",
    "minimum": "min[j]({0}[j])",
    "position": "argmax[j]({0}[j])",
    "rows": "max[j]({0}[i,j])",
    "masked": "sum[j](where({1}[j] > 0, {0}[j], 0))",
}


def written(*bodies: str) -> ra.Spec:
    outputs = (f"y{k} = " + BODIES[body].format(f"x{k}", f"w{k}") for k, body in enumerate(bodies))
    return ra.parse("return " + ", ".join(outputs))


def planned(spec: ra.Spec) -> Plan:
    plan = derive_plan(spec)
    assert isinstance(plan, Plan)
    return plan


@pytest.mark.parametrize("one", BODIES)
@pytest.mark.parametrize("other", BODIES)
def test_parts_are_alike_where_they_differ_in_names_alone(one: str, other: str) -> None:
    spec = written(one, other, one)
    alike = Parts(spec).alike(planned(spec))
    names = [{o for part in parts for o in part.spec.outputs} for parts in alike]
    assert set().union(*names) == {"y0", "y1", "y2"}
    mixed = [held for held in names if "y1" in held and len(held) > 1]
    if one != other:
        assert not mixed
    elif one != "weighted":  # whose slots may come in another order, by the names of tensors
        assert len(names) == 1


def test_what_is_declared_of_a_tensor_tells_parts_apart() -> None:
    x, y = ra.tensors("x[j] y[j]")
    p = ra.tensors("p[j]", positive=True)
    spec = ra.Spec(a=ra.sum(x, "j"), b=ra.sum(y, "j"), c=ra.sum(p, "j"))
    assert sorted(len(parts) for parts in Parts(spec).alike(planned(spec))) == [1, 2]


SHARED = {
    "a stage": "m = mean[j](x[j]); return a = mean[j]((x[j] - m)**2), b = mean[j]((x[j] - m)**3)",
    "weights": "return a = sum[j](w[j]*x[j])/sum[j](w[j]), b = sum[j](w[j]*y[j])/sum[j](w[j])",
}


@pytest.mark.parametrize("kind", SHARED)
def test_what_shares_a_slot_is_one_part(kind: str) -> None:
    spec = ra.parse(SHARED[kind])
    assert [len(parts) for parts in Parts(spec).alike(planned(spec))] == [1]


@pytest.mark.parametrize("body", ["variance", "weighted", "logsumexp", "masked"])
def test_parts_are_the_forms_of_their_outputs(body: str) -> None:
    """Each is a form by itself: it computes what the definition of its outputs does."""
    spec = written(body, "minimum", body)
    data = {d.name: [[1.5, -2.0, 0.25, 4.0]] * 2 if "i" in d.axes else [1.5, -2.0, 0.25, 4.0] for d in spec.tensors}
    for parts in Parts(spec).alike(planned(spec)):
        for part in parts:
            arrays = {d.name: data[d.name] for d in part.spec.tensors}
            acc = ra.Form(part.spec, part.plan).accumulator()
            for cut in (slice(0, 1), slice(1, 1), slice(1, 4)):
                acc.update(**{name: x[cut] for name, x in arrays.items()})
            assert acc.result() == pytest.approx(ra.reference(part.spec, **arrays))


@pytest.mark.parametrize("at", range(3))
def test_an_error_in_any_of_the_parts_is_found(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    right = Planner.__call__

    def wrong(planner: Planner, guards: Mapping[str, Level]) -> Plan:
        plan = right(planner, guards)
        assert isinstance(plan, Plan)
        outputs = list(plan.outputs)
        outputs[at] = replace(outputs[at], value=g.add(outputs[at].value, g.ONE))
        return replace(plan, outputs=tuple(outputs))

    monkeypatch.setattr("redalg.api.Planner.__call__", wrong)
    with pytest.raises(InternalError):
        ra.derive_incremental(written("variance", "variance", "variance"))


@pytest.mark.parametrize("body", ["variance", "weighted", "logsumexp", "masked"])
def test_the_whole_form_has_what_its_parts_have(body: str) -> None:
    """What is said of parts by one that is alike is what the whole certificate says, and each form alone."""
    whole, alone = ra.derive_incremental(written(body, body, body)), ra.derive_incremental(written(body))
    assert checker.check(whole.certificate.document).proved
    assert dict(whole.assumptions) == dict(alone.assumptions)
    assert [o.guard is None for o in whole.plan.outputs] == 3 * [alone.plan.outputs[0].guard is None]


def test_the_work_of_laws_does_not_grow_with_outputs_that_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    kept = checker.proves
    monkeypatch.setattr("redalg.api.proves", lambda doc: seen.append(len(doc.spec)) or kept(doc))
    ra.derive_incremental(written(*["variance"] * 12))
    assert seen == [1]
