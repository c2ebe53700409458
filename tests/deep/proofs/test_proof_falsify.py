"""What holds is never refuted, what is false is, and both are found with bounded work."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import pytest

import redalg as ra
from redalg.proofs.checker.check import THOROUGH
from redalg.proofs.document.document import Document, Obligation
from redalg.proofs.document.terms import Leaf, Term, Terms, leaves, walk
from redalg.proofs.falsification.falsify import falsify
from tests.support.false_lemmas import FALSE, TRUE, lemma
from tests.support.forms import form_of


@cache
def document(name: str) -> Document:
    return form_of(name).certificate.document


def bare(t: Terms, **known: Any) -> Document:
    return Document(t, ("j",), known.pop("spec", {}), {}, (), (), **known)


def off(t: Terms, o: Obligation) -> Obligation:
    """The obligation with another left side."""
    left = t("not", o.left) if o.right.is_boolean else t.add(o.left, t.const(Fraction(1, 7)))
    return replace(o, left=left)


@pytest.mark.parametrize("name", ra.catalog)
def test_no_obligation_of_the_catalog_is_refuted_and_every_altered_one_is(name: str) -> None:
    doc = document(name)
    for o in doc.obligations:
        status, found = falsify(o, doc, points=4)
        if any(doc.terms("not", fact) in o.given for fact in o.given):
            assert status == "unknown"  # a branch within the other branch: there is no such point
            continue
        if status == "unknown" and o.left.op == "ne" and o.left.args[0] in walk(*o.given):
            continue  # where a largest size is 0, as is given, the definition is 0/0: there is no such point
        assert status == "tested" and found >= 3, (str(o), status, found)
        assert falsify(off(doc.terms, o), doc, points=4)[0] == "refuted", str(o)


@pytest.mark.parametrize("entry", FALSE, ids=lambda e: e[0])
def test_a_false_lemma_is_refuted(entry: Any) -> None:
    t, o = lemma(entry)
    status, found = falsify(o, bare(t), points=THOROUGH)
    assert status == "refuted", found
    assert found["left"] is not found["right"] and set(found) == {"point", "sizes", "at", "left", "right"}


@pytest.mark.parametrize("entry", TRUE, ids=lambda e: e[0])
def test_a_true_lemma_is_tested(entry: Any) -> None:
    t, o = lemma(entry)
    assert falsify(o, bare(t)) == ("tested", 8)


def test_the_points_depend_on_the_obligation_and_the_seed_alone() -> None:
    t, o = lemma(FALSE[3])
    again, same = lemma(FALSE[3])
    assert repr(falsify(o, bare(t))) == repr(falsify(same, bare(again)))
    assert repr(falsify(o, bare(t), seed=1)) != repr(falsify(o, bare(t), seed=2))


def element(t: Terms, *domain: str, name: str = "x", axis: str = "j") -> Term:
    return t("tensor", attr=Leaf(name, (axis,), frozenset(domain)))


def test_what_is_given_and_declared_holds_at_every_point() -> None:
    t = Terms()
    x, a, b = element(t), t.state("A"), t.state("A'")
    facts = (t("le", x, a), t("le", a, b), t("ne", b, t.const(0)))
    top = t.reduce("max", ("j",), x)
    assert falsify(Obligation("O2", "s", t("maximum", top, b), b, given=facts), bare(t)) == ("tested", 8)
    assert falsify(Obligation("O2", "s", t("maximum", top, b), a, given=facts), bare(t))[0] == "refuted"
    low = t.reduce("min", ("j",), x)
    down = (t("le", a, x), t("le", b, a))
    assert falsify(Obligation("O2", "s", t("minimum", low, b), b, given=down), bare(t)) == ("tested", 8)
    u, n, m = element(t, "positive", name="u"), element(t, "integer", name="n"), element(t, "bool", name="m")
    true = t("true")
    assert falsify(Obligation("O7", "s", t("lt", t.const(0), u), true), bare(t)) == ("tested", 8)
    assert falsify(Obligation("O7", "s", t("eq", t("floor", n), n), true), bare(t)) == ("tested", 8)
    assert falsify(Obligation("O4", "s", t("or", m, t("not", m)), true), bare(t)) == ("tested", 8)
    assert falsify(Obligation("O7", "s", t("lt", t.const(0), x), true), bare(t))[0] == "refuted"
    assert falsify(Obligation("O7", "s", t("eq", t("floor", x), x), true), bare(t))[0] == "refuted"


def test_an_anchor_above_values_that_are_not_rational() -> None:
    t = Terms()
    u, a = t("exp", element(t)), t.state("A")
    o = Obligation("O2", "s", t("maximum", t.reduce("max", ("j",), u), a), a, given=(t("le", u, a),))
    assert falsify(o, bare(t)) == ("tested", 8)


def test_the_streams_of_a_homomorphism_hold_different_elements() -> None:
    """Equal streams would make this true."""
    t = Terms()
    x = element(t)
    a, b = (t.reduce("sum", (f"j_{side}",), t.renamed(x, {"j": f"j_{side}"})) for side in "ab")
    sizes = t.mul(a, t("size", attr="j_b")), t.mul(b, t("size", attr="j_a"))
    assert falsify(Obligation("O8", "s", *sizes), bare(t))[0] == "refuted"


def test_complex_tensors_are_complex_at_every_point() -> None:
    t = Terms()
    z, w = element(t, "complex", name="z"), element(t, "complex", name="w")
    i, half = t.special("i"), t.const(Fraction(1, 2))
    size, product = t("abs", t.mul(z, w)), t.mul(t("abs", z), t("abs", w))
    euler = t.add(t("cos", z), t.mul(i, t("sin", z)))
    true = [
        (size, product),
        (t("exp", t.add(z, w)), t.mul(t("exp", z), t("exp", w))),
        (t("exp", t.mul(i, z)), euler),
        (t("exp", t("log", z)), z),
        (t("re", z), t.mul(half, t.add(z, t("conj", z)))),
        (t.reduce("sum", ("j",), t.mul(z, t.special("i"))), t.mul(i, t.reduce("sum", ("j",), z))),
        (t.mul(z, t.div(w, z)), w),
        (t("pow", t("pow", z, half), t.const(2)), z),
    ]
    for left, right in true:
        assert falsify(Obligation("O1", "s", left, right), bare(t)) == ("tested", 8)
    false = [(t("conj", z), z), (t("im", z), t.const(0)), (t("pow", z, t.const(2)), t("pow", t("abs", z), t.const(2)))]
    for left, right in false + [(t("exp", t.mul(i, z)), t("conj", euler)), (t("eq", z, t("conj", z)), t("true"))]:
        assert falsify(Obligation("O1", "s", left, right), bare(t))[0] == "refuted"


@pytest.mark.parametrize(
    "text", ["sum[j](z[j] * 2)", "sum[j](z[j] * x[j]) / sum[j](abs(z[j])**2)", "mean[j](conj(z[j]))"]
)
def test_forms_of_complex_specs(text: str) -> None:
    spec = ra.parse(f"tensors z[j] complex, x[j]; return y = {text}, s = sum[j](x[j])")
    doc = ra.derive_incremental(spec).certificate.document
    for o in doc.obligations:
        assert falsify(o, doc)[0] == "tested", str(o)
        assert falsify(off(doc.terms, o), doc)[0] == "refuted", str(o)


def test_a_domain_counts_only_where_the_definition_is_a_number() -> None:
    t = Terms()
    x, zero = t("tensor", attr=Leaf("x", ("i",), frozenset())), t.const(0)
    nonzero = Obligation("O7", "y", t("ne", x, zero), t("true"), "domain")
    divides, reads = t.div(t.const(1), x), t.add(x, t.const(1))
    assert falsify(nonzero, bare(t, spec={"y": divides}))[0] == "tested"
    assert falsify(nonzero, bare(t, spec={"y": reads}))[0] == "refuted"
    assert falsify(nonzero, bare(t, spec={"y": divides, "z": reads}))[0] == "tested"
    assert falsify(replace(nonzero, subject="z"), bare(t, spec={"y": divides, "z": reads}), points=32)[0] == "refuted"
    slot = replace(nonzero, subject="a slot")  # whichever output reads it
    assert falsify(slot, bare(t, spec={"y": divides, "z": t.mul(x, divides)}))[0] == "tested"
    assert falsify(slot, bare(t, spec={"y": divides, "z": reads}), points=32)[0] == "refuted"


def test_a_left_side_that_is_no_number_refutes_unless_something_is_assumed() -> None:
    t = Terms()
    x, half = t.state("x"), t.const(Fraction(1, 2))
    split = t.mul(t("pow", x, half), t("pow", x, half))
    turned = Obligation("O1", "s", t("abs", x), split)
    assert falsify(turned, bare(t))[0] == "refuted"
    assert falsify(turned, bare(t, assumptions=("nonnegative_factors",)))[0] == "tested"
    o = Obligation("O8", "y", split, t("abs", x), "observational")
    assert falsify(o, bare(t))[0] == "refuted"
    assert falsify(o, bare(t, assumptions=("nonnegative_factors",)))[0] == "tested"
    wrong = replace(o, left=t.add(split, t.const(1)))
    assert falsify(wrong, bare(t, assumptions=("nonnegative_factors",)))[0] == "refuted"


def test_casts_are_left_out_only_where_that_is_assumed() -> None:
    t = Terms()
    x, c = t.state("x"), t.const(Fraction(1, 3))
    o = Obligation("O2", "s", t("cast", t.mul(c, x), attr="int8"), t.mul(c, t("cast", x, attr="int8")))
    assert falsify(o, bare(t))[0] == "refuted"
    assert falsify(o, bare(t, assumptions=("cast_commutes",))) == ("tested", 8)


def test_a_law_without_a_right_side_is_refuted() -> None:
    """What a form lacks is written as NaN."""
    t = Terms()
    x, nan = t.state("x"), t.special("nan")
    assert falsify(Obligation("O2", "s", x, nan), bare(t))[0] == "refuted"
    assert falsify(Obligation("O8", "y", nan, x, "observational"), bare(t))[0] == "refuted"
    assert falsify(Obligation("O3", "s", nan, nan), bare(t))[0] == "unknown"


def _sum(t: Terms, axes: int) -> Term:
    names = tuple(f"a{i}" for i in range(axes))
    return t.reduce("sum", names, t("tensor", attr=Leaf("x", names, frozenset())))


def _ranked(t: Terms) -> Term:
    return t.reduce("topk_values", ("j",), element(t), extra=(10**14, "k"))


@pytest.mark.parametrize(
    ("build", "status"),
    [
        (lambda t: (t("exp", t("exp", t("exp", t.add(t.state("x"), t.const(10**9))))), t.const(1)), "unknown"),
        (lambda t: (t("asin", t.special("i")), t.const(1)), "unknown"),
        (lambda t: (_sum(t, 40), _sum(t, 40)), "tested"),
        (lambda t: (_ranked(t), t.const(1)), "unknown"),
        (lambda t: (element(t, axis="k"), _ranked(t)), "unknown"),
        (lambda t: (t.reduce("monoid", ("j",), element(t), extra=(3, 0)), t.const(1)), "unknown"),
        (lambda t: (t("log", t.const(-9)), t.special("nan")), "unknown"),
        (lambda t: (t.const(1), t("pow", t("sin", t.state("x")), t.const(-(10**40)))), "unknown"),
    ],
)
def test_work_is_bounded_and_what_is_not_known_is_said(build: Any, status: str) -> None:
    t = Terms()
    left, right = build(t)
    found = falsify(Obligation("O1", "s", left, right), bare(t), budget=20_000)
    assert found[0] == status and found[1], found


def test_a_deep_obligation_does_not_recurse() -> None:
    t = Terms()
    deep = t.state("x")
    for _ in range(3000):
        deep = t("maximum", t.mul(t.const(Fraction(1, 2)), deep), t.const(-1))
    assert falsify(Obligation("O1", "s", deep, deep), bare(t), points=2) == ("tested", 2)


WHERE = {
    "negative": lambda t, a: t("lt", a, t.const(0)),
    "far below 0": lambda t, a: t("lt", a, t.const(-5)),
    "positive": lambda t, a: t("lt", t.const(0), a),
}


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize(
    "name", ["softmax", "variance", "attention", "cross_entropy_linear_head", "weighted_variance", "log_mean_exp"]
)
def test_what_is_false_at_some_anchors_alone_is_refuted(name: str, where: str) -> None:
    """Few points reach anchors of either sign, also where those are maxima of products."""
    doc = document(name)
    t, of_anchors = doc.terms, {a.name for p in doc.passes for a in p.anchors}
    altered = 0
    for o in doc.obligations:
        if o.equality == "domain" or o.left.is_boolean:
            continue
        for leaf in leaves(o.left, o.right):
            shown = leaf.attr.name.removeprefix("shift:").rstrip("'").removesuffix("_a").removesuffix("_b")
            if shown not in of_anchors or {"positive", "nonnegative"} & leaf.attr.domain:
                continue
            wrong = t.add(o.left, t("where", WHERE[where](t, leaf), t.const(1), t.const(0)))
            assert falsify(replace(o, left=wrong), doc)[0] == "refuted", (str(o), leaf.attr.name)
            altered += 1
    assert altered
