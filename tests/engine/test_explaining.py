"""Every sentence follows the plan: renaming a tensor or changing a constant changes the text and nothing else."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from redalg.form import Form
from redalg.graph.node import const, mul, substitute, tensor
from redalg.graph.plan import PassPlan, Plan, StageReport
from redalg.language.spec import Spec
from redalg.text.tables import bytes_of, listed, table
from tests.engine.test_form import form_of
from tests.support.handwritten import ALL, x


def mapped(name: str, mapping) -> Form:
    """The hand-written form with nodes replaced in the spec and everywhere in the plan."""
    outputs, plan = ALL[name]()

    def new(node):
        return substitute(node, mapping)

    def new_pass(p: PassPlan) -> PassPlan:
        anchors = (a.map(new) for a in p.anchors)
        slots = (replace(s, lift=tuple(map(new, s.lift))) for s in p.slots)
        return replace(p, anchors=tuple(anchors), slots=tuple(slots))

    def new_stage(s: StageReport) -> StageReport:
        factors = (tuple(map(new, s.generators)), tuple(map(new, s.coefficients)))
        return replace(s, node=new(s.node), generators=factors[0], coefficients=factors[1])

    finalize = tuple(replace(o, value=new(o.value)) for o in plan.outputs)
    changed = Plan(plan.axis, tuple(map(new_pass, plan.passes)), finalize, tuple(map(new_stage, plan.stages)))
    return Form(Spec.from_nodes({k: new(v) for k, v in outputs.items()}), changed)


@pytest.mark.parametrize("name", ["variance", "softmax", "argmax", "deviation"])
def test_renaming_a_tensor_renames_it_in_the_text(name):
    renamed = mapped(name, {x: tensor("pressure", "j")})
    for before, after in ((form_of(name).explain(), renamed.explain()), (str(form_of(name)), str(renamed))):
        assert squeezed(re.sub(r"\bx\[j\]", "pressure[j]", before)) == squeezed(after)
        assert not re.search(r"\bx\[j\]", after)


def squeezed(text: str) -> list[str]:
    return sorted(re.findall(r"\w+", text))


def test_changing_a_constant_changes_the_text():
    before, after = form_of("softmax").explain(), mapped("softmax", {x: mul(const(7), x)}).explain()
    assert "7 * x[j]" in after and "7 * x[j]" not in before


def test_every_part_correction_and_anchor_is_told():
    text = form_of("covariance").explain()
    for name in ("n", "a", "b", "r", "s", "c"):
        assert re.search(rf"^  {name} ", text, re.M)
    assert "the mean moves with the data" in text
    assert "x[j] is held as x[j] - a" in text
    assert "r and s vanish over the reals" in text
    assert "state: 48, whatever the length of j" in text


def test_passes_and_bytes_are_formulas():
    text = form_of("attention").explain()
    assert "1 pass over j for the state; 1 read of the input in all." in text
    assert "read per element: 8·(|d| + |e|) for K[j,d] and V[j,e]" in text
    assert "state: 8·(1 + 2·|i| + |i|·|e|)" in text
    assert "m (as M)" in text and "exp(m_a[i] - m[i])" in text
    assert "Pass 1 hands on mean" in form_of("deviation").explain()
    assert "none: every output is computed from one element" in form_of("pure").explain()


def test_the_summary_goes_from_definition_to_form():
    text = str(form_of("softmax"))
    order = [text.index(word) for word in ("definition", "lift", "combine", "finalize")]
    assert order == sorted(order)
    assert "l_b" in text and "return y" in text


@pytest.mark.parametrize("name", ALL)
def test_latex_is_one_display(name):
    text = form_of(name)._repr_latex_()
    assert text.startswith("$\\displaystyle") and text.count("\\begin{aligned}") == text.count("\\end{aligned}") == 2
    assert text.count("{") == text.count("}")


def test_text_helpers():
    assert table([]) == [] and listed([]) == "nothing" and listed("abc") == "a, b and c"
    assert bytes_of([]) == "0" and bytes_of(["|i|·|j|"]) == "8·|i|·|j|"
