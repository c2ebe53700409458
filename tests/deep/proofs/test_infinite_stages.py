"""Maxima of nothing and lists that are short: -oo on ordinary data, and what a certificate may say of it."""

from __future__ import annotations

import random

import pytest

import redalg as ra
from redalg.proofs.certificate import Certificate
from redalg.proofs.document.errors import CertificateError
from tests.support.folding import differs, drawn
from tests.support.forged_infinities import FIRST, INFINITIES, LARGEST, MASKED, TOTAL
from tests.support.forging import Expression, Forge, text_of


@pytest.mark.parametrize("forgery", INFINITIES)
def test_forged_certificates_are_refused_and_false(forgery: str) -> None:
    for name, doc in INFINITIES[forgery]():
        with pytest.raises(CertificateError):
            Certificate.from_json(text_of(doc)).verify()
        draw = random.Random(name)
        assert any(differs(doc, *drawn(doc, draw), draw) for _ in range(200)), name


TRUE: dict[str, tuple[Expression, Expression]] = {  # definition, and form over s = Σ x, m = max where(b, x, -oo), t
    "a maximum": (LARGEST, "$m"),
    "a comparison": (("where", ("le", LARGEST, LARGEST), TOTAL, 7), "$s"),
    "a positive part": (("relu", LARGEST), ("maximum", "$m", 0)),
    "a square": (("where", ("lt", -1, ("pow", LARGEST, 2)), TOTAL, 7), "$s"),
    "a guard": (("where", ("eq", LARGEST, "-oo"), 0, LARGEST), ("where", ("lt", "-oo", "$m"), "$m", 0)),
    "an exponential": (("exp", LARGEST), ("exp", "$m")),
    "the larger of two": (("maximum", LARGEST, TOTAL), ("maximum", "$s", "$m")),
    "a shift": (("max:j", ("where", "?b[j]", ("add", "x[j]", "u"), "-oo")), ("add", "$m", "u")),
    "a list": (("sum:top", ("exp", FIRST)), ("sum:top", ("exp", "$t values[top]"))),
    "a list without its end": (
        ("sum:top", ("where", ("lt", ("topk_indices:j:2:top", "x[j]"), 0), 0, FIRST)),
        ("sum:top", ("where", ("lt", "$t indices[top]", 0), 0, "$t values[top]")),
    ),
}


@pytest.mark.parametrize("name", TRUE)
def test_true_forms_beside_forged_ones_are_proved(name: str) -> None:
    definition, value = TRUE[name]
    f = Forge()
    slots = [f.slot("s", "sum", "x[j]"), f.slot("m", "max", MASKED), f.slot("t", "topk", "x[j]", extra=(2, "top"))]
    doc = f.document({"y": definition}, [x for x in slots if f"${x.name}" in str(value)], {"y": value})
    draw = random.Random(name)
    assert not any(differs(doc, *drawn(doc, draw), draw) for _ in range(20))
    assert Certificate.from_json(text_of(doc)).verify().proved


TOP = "max[j](where({0}, x[j], -oo))"
SPECS = (
    "a = {0}; return y = a + log(sum[j](exp(where({1}, x[j], -oo) - a)))",
    "a = {0}; return y = sum[j](where({1}, exp(x[j] - a)*v[j], 0))/sum[j](where({1}, exp(x[j] - a), 0))",
    "a = {0}; k = sum[j](where({1}, 1, 0)); return y = where(k > 0, a, 0), z = sum[j](v[j]) + relu(a*t)",
    "a = {0}; return y = a + log(sum[j](where(not {1}, 0, exp(x[j] - a))))",
    "a = {0}; b = min[j](where({1}, x[j], oo)); return y = a - b, p = exp(where({1}, x[j], -oo) - a)*v[j]",
)


@pytest.mark.parametrize("condition", ["m[j] > 0", "index(j) <= n", "m[j] > 0 and w[j] < x[j]", "not m[j] == c"])
@pytest.mark.parametrize("text", SPECS)
def test_derived_forms_of_what_is_selected_are_proved(text: str, condition: str) -> None:
    spec = ra.parse(text.format(TOP.format(condition), f"({condition})"))
    assert ra.derive_incremental(spec, axis="j").certificate.verify().proved


def test_masked_sums_of_groups_are_proved() -> None:
    a = "max[j](where(G[j,g] > 0, x[j], -oo))"
    spec = f"a = {a}; return s = sum[g](sum[j](where(G[j,g] > 0, exp(x[j] - a), 0)))"
    assert ra.derive_incremental(ra.parse(spec), axis="j").certificate.verify().proved
