"""Laws over variables alone are proved once; no name, domain, axis or assumption is taken for another."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product

import pytest

from redalg.proofs.checker import lemmas
from redalg.proofs.checker.check import Judge
from redalg.proofs.document.document import Document, Obligation
from redalg.proofs.document.terms import Term, Terms
from redalg.proofs.document.work import metered, spent
from tests.support.forms import form_of

KINDS = ((), ("positive",), ("nonnegative",), ("integer",))


def judge(terms: Terms, *assumed: str) -> Judge:
    return Judge(Document(terms, ("j",), {}, {}, (), (), assumptions=assumed))


def law(terms: Terms, left: Term, right: Term) -> Obligation:
    return Obligation("O4", "s", left, right)


def test_names_that_differ_are_one_law_and_names_that_coincide_another() -> None:
    """Every way to call the four places of u + v = w + x: the sums are equal where the names are."""
    t = Terms()
    for names in product("abcd", repeat=4):
        a, b, c, d = (t.state(name) for name in names)
        assert judge(t).proves(law(t, t.add(a, b), t.add(c, d))) is (sorted(names[:2]) == sorted(names[2:]))


@pytest.mark.parametrize("order", [KINDS, KINDS[::-1]], ids=["fewer facts first", "more facts first"])
def test_a_law_that_needs_a_domain_is_one_with_it(order: tuple[tuple[str, ...], ...]) -> None:
    """|x| = x and the square root of x² is x where x is not negative."""
    for domain in order:
        t = Terms()
        x = t.state("x", (), domain)
        root = t("pow", t.mul(x, x), t.const(Fraction(1, 2)))
        known = bool({"positive", "nonnegative"} & set(domain))
        assert judge(t).proves(law(t, t("abs", x), x)) is known
        assert judge(t).proves(law(t, root, x)) is known


def test_an_assumption_is_made_by_those_that_state_it() -> None:
    """log(x·y) = log x + log y for positive factors."""
    t = Terms()
    x, y = t.state("x"), t.state("y")
    split = law(t, t("log", t.mul(x, y)), t.add(t("log", x), t("log", y)))
    assert [judge(t, *a).proves(split) for a in ((), ("positive_log_arguments",), ())] == [False, True, False]


def test_axes_are_part_of_a_law() -> None:
    t = Terms()
    x, other = t.state("x", ("g",)), t.state("x", ("h",))
    assert judge(t).proves(law(t, t.add(x, x), t.mul(t.const(2), x)))
    assert not judge(t).proves(law(t, t.add(x, other), t.mul(t.const(2), x)))


FORMS = ("variance", "attention", "argmax", "top_k", "linear_regression", "absmax_int8_gemm", "geometric_mean")


def test_what_was_proved_before_changes_no_verdict_and_no_count() -> None:
    """Every obligation of some forms, and false ones, from an empty table and from one that holds all the others."""
    documents = [form_of(name).certificate.document for name in FORMS]

    def all_of_them() -> list[tuple[bool, int]]:
        found = []
        for doc in documents:
            one = Judge(doc)
            for o in doc.obligations:
                with metered():
                    found.append((one.proves(o), spent()))
                with metered():
                    found.append((one.proves(replace(o, right=doc.terms.add(o.right, doc.terms.const(1)))), spent()))
        return found

    lemmas._STEPS.clear()
    first = all_of_them()
    assert lemmas._STEPS and all_of_them() == first
    assert all(proved for proved, _ in first[::2])


def test_laws_about_elements_are_none() -> None:
    t = Terms()
    x = t("tensor", attr=t.state("x", ("j",)).attr)
    total = t.reduce("sum", ("j",), x)
    lemmas._STEPS.clear()
    assert judge(t).proves(law(t, t.add(total, total), t.mul(t.const(2), total)))
    assert not lemmas._STEPS
