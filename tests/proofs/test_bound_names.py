"""What an axis is called that a reduction binds says nothing: reductions are equal under every name."""

from __future__ import annotations

import pytest

from redalg.proofs.checker.check import Judge
from redalg.proofs.document.document import Document, Obligation
from redalg.proofs.document.terms import Leaf, Term, Terms

KINDS = ["sum", "prod", "max", "min", "argmax", "argmin", "any", "all", "topk_values", "topk_indices"]
OTHER = ["i'", "i''", "i~1"]  # names of copies of an axis i
BODIES = ["leaf", "scaled", "mixed", "abs", "where", "index"]


def _read(t: Terms, name: str, *axes: str) -> Term:
    return t("tensor", attr=Leaf(name, axes, frozenset()))


def _body(t: Terms, what: str, i: str) -> Term:
    x, w, a = _read(t, "x", i), _read(t, "w", i, "a"), _read(t, "a")
    if what == "leaf":
        return x
    if what == "scaled":
        return t.mul(a, x, t("exp", x))
    if what == "mixed":
        return t.add(t.mul(x, w), t("pow", x, t.const(3)))
    if what == "abs":
        return t("abs", t.sub(x, a))
    if what == "where":
        return t("where", t("lt", x, t.const(0)), w, t.mul(t.const(2), x))
    return t.mul(x, t("index", attr=i))


def _reduced(t: Terms, kind: str, what: str, i: str) -> Term:
    body = _body(t, what, i)
    if kind in ("any", "all"):
        return t.reduce(kind, (i,), t("lt", t.const(1), body))
    return t.reduce(kind, (i,), body, extra=(2, "k") if kind.startswith("topk") else None)


@pytest.mark.parametrize("what", BODIES)
@pytest.mark.parametrize("kind", KINDS)
def test_reductions_are_equal_under_every_name(kind: str, what: str) -> None:
    """Alone, and beside what is free along the axis of that name."""
    t = Terms()
    judge = Judge(Document(t, (), {}, {}, (), ()), finite=True)
    own, free = _reduced(t, kind, what, "i"), _read(t, "v", "i")

    def beside(r: Term) -> Term:
        return t("where", r, free, t("index", attr="i")) if r.is_boolean else t.add(t.mul(free, r), t.const(1))

    for other in OTHER:
        renamed = _reduced(t, kind, what, other)
        for left, right in ((own, renamed), (beside(own), beside(renamed))):
            assert judge.proves(Obligation("D3", "y", left, right, "exact")), (kind, what, other)
            if left is not own and kind != "topk_values":  # a list may end in infinities, which no sum here is about
                summed = (t.reduce("sum", ("i",), side) for side in (left, right))
                assert judge.proves(Obligation("D3", "y", *summed, "exact")), (kind, what, other)


@pytest.mark.parametrize("kind", KINDS)
def test_reductions_over_another_body_differ(kind: str) -> None:
    """What is free stays what it is: the name of a bound axis is not that of a free one."""
    t = Terms()
    judge = Judge(Document(t, (), {}, {}, (), ()), finite=True)
    free, bound = _read(t, "w", "i", "i'"), _read(t, "w", "i'", "i")
    extra = (2, "k") if kind.startswith("topk") else None
    bodies = [t("lt", t.const(1), b) for b in (free, bound)] if kind in ("any", "all") else [free, bound]
    left, right = (t.reduce(kind, ("i'",), b, extra=extra) for b in bodies)
    assert not judge.proves(Obligation("D3", "y", left, right, "exact"))
    same = t.reduce(kind, ("i''",), t.renamed(bodies[0], {"i'": "i''"}), extra=extra)
    assert judge.proves(Obligation("D3", "y", left, same, "exact"))
