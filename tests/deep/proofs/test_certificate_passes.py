"""Certificates of forms that read the data several times; names that are bound; divisors of the definition."""

from __future__ import annotations

import json

import pytest

import redalg as ra
from redalg.errors import CertificateError
from redalg.proofs.certificate import Certificate
from redalg.proofs.checker.check import Judge
from redalg.proofs.document.document import Document, Obligation
from redalg.proofs.document.terms import Leaf, Term, Terms
from tests.support.false_lemmas import Expression, term

LOCATIONS = {
    "mean": "u = mean[j](x[i,j]);",
    "weighted": "W = sum[j](w[j]); u = sum[j](w[j]*x[i,j])/W;",
    "masked": "u = sum[j](where(g[j]>0, x[i,j], 0))/sum[j](where(g[j]>0, 1, 0));",
    "maximum": "u = max[j](x[i,j]);",
    "root": "u = sqrt(mean[j](x[i,j]**2));",
    "logsumexp": "u = logsumexp[j](x[i,j]);",
    "variance": "c = mean[j](x[i,j]); u = mean[j]((x[i,j]-c)**2);",
    "position": "u = argmax[j](x[i,j]);",
}
BODIES = {
    "abs": "sum[j](abs(x[i,j]-u))",
    "relu": "sum[j](relu(x[i,j]-u)*w[j])",
    "gauss": "sum[j](exp(-(x[i,j]-u)**2/2))",
    "tanh": "mean[j](tanh(x[i,j]*u))",
    "selected": "sum[j](where(x[i,j]>u, x[i,j]*w[j], 0))/sum[j](where(x[i,j]>u, w[j], 0))",
    "tempered": "logsumexp[j](x[i,j]*u)",
    "cubes": "max[j](w[j]*(x[i,j]-u)**3)",
    "position": "argmin[j](abs(x[i,j]-u))",
    "product": "prod[j](1+x[i,j]*u)",
    "log": "sum[j](log(1+(x[i,j]-u)**2))",
}
PAIRED = [(a, b) for k, a in enumerate(LOCATIONS) for n, b in enumerate(BODIES) if (k + n) % 4 == 0 or b == "tempered"]
PAIRED += [("weighted", b) for b in BODIES if b != "position" and ("weighted", b) not in PAIRED]
PAIRED.remove(("weighted", "position"))  # where the weights add up to 0 it is a place among infinities
OTHERS = {
    "three passes": "u = mean[j](x[j]); v = mean[j](abs(x[j]-u)); return y = mean[j](abs(abs(x[j]-u)-v))",
    "reweighted": "u = mean[j](x[j]); w = 1/(1+abs(x[j]-u)); v = sum[j](w*x[j])/sum[j](w); r = 1/(1+abs(x[j]-v)); "
    "return y = sum[j](r*x[j])/sum[j](r)",
    "groups": "v = sum[j](G[j,c]*x[j])/sum[j](G[j,c]); return y = sum[j](sum[c](G[j,c]*abs(x[j]-v)))",
    "contraction": "s = sum[d](q[i,d]*(k[j,d]-mean[j](k[j,d]))); return y = sum[j](relu(s)*v[j,e])",
    "matrix": "C = mean[j](r[j,a]*s[j,b]); return y = sum[j](abs(sum[b](C*s[j,b])-r[j,a]))",
    "own axis": "u = mean[j](r[j,a]); return y = sum[j](r[j,a]*sum[a](abs(r[j,a]-u)))",
    "kept axis": "u = mean[j](x[j]); d = mean[j](abs(x[j]-u)); return y = (x[j]-u)/d, d = d",
    "positions": "u = mean[j](x[j]); return y = sum[j](index(j)*abs(x[j]-u))",
    "quantifiers": "u = mean[j](x[j]); return y = any[j](w[j]*abs(x[j]-u)>3), z = all[j](w[j]*abs(x[j]-u)<9)",
}
ONE_PASS = {
    "bound and free": "u = mean[j](x[j]); return y = sum[j](r[j,a]*sum[a](r[j,a]-u))",
    "bound and free, other names": "m = mean[t](z[t]); return q = sum[t](v[t,b]*sum[b](w[b]*(v[t,b]-m)))",
    "bound twice": "u = mean[j](x[j]); return y = sum[j](sum[a](r[j,a])*sum[a](r[j,a]-u)*r[j,a])",
    "masked variance": "n = sum[j](where(g[j]>0, 1, 0)); u = sum[j](where(g[j]>0, x[j], 0))/n; "
    "return y = sum[j](where(g[j]>0, (x[j]-u)**2, 0))/n",
    "masked twice": "n = sum[j](where(g[j]>0, where(h[j]<2, 1, 0), 0)); "
    "u = sum[j](where(g[j]>0, where(h[j]<2, x[j], 0), 0))/n; "
    "return y = sum[j](where(g[j]>0, where(h[j]<2, (x[j]-u)**2, 0), 0))/n",
    "masked by equality": "n = sum[j](where(eq(g[j], 3), 1, 0)); u = sum[j](where(eq(g[j], 3), x[j], 0))/n; "
    "return y = sum[j](where(eq(g[j], 3), (x[j]-u)**2, 0))/n",
    "masked by a complement": "n = sum[j](where(ne(g[j], 3), 1, 0)); u = sum[j](where(ne(g[j], 3), x[j], 0))/n; "
    "return y = sum[j](where(ne(g[j], 3), (x[j]-u)**2, 0))/n",
    "masked and weighted": "n = sum[j](where(g[j]>=0, w[j], 0)); u = sum[j](where(g[j]>=0, w[j]*x[j], 0))/n; "
    "return y = sum[j](where(g[j]>=0, w[j]*(x[j]-u)**2, 0))/n",
}

RENAMED = {  # what is pulled out of a sum over a is read along a copy of a
    "largest size": "m = max[j](abs(x[j,a])); return y = sum[j](sum[a](x[j,a]/m*sum[b](x[j,b]*u[a,b])))",
    "smallest size": "m = min[j](abs(x[j,a])); return y = sum[j](sum[a](w[a]*x[j,a]*m*sum[b](x[j,b])))",
    "larger of two": "m = max[j](maximum(x[j,a], z[j,a])); return y = sum[j](sum[a](x[j,a]*m*sum[b](x[j,b]*u[a,b])))",
    "larger of two extrema": "m = maximum(max[j](x[j,a]), max[j](z[j,a])); "
    "return y = sum[j](sum[a](x[j,a]*m*sum[b](z[j,b]*u[a,b])))",
    "product": "m = prod[j](1 + x[j,a]**2); return y = sum[j](sum[a](x[j,a]*m*sum[b](x[j,b]*u[a,b])))",
    "place": "m = argmax[j](abs(x[j,a])); return y = sum[j](sum[a](x[j,a]*m*sum[b](x[j,b]*u[a,b])))",
    "scaled twice": "m = max[j](abs(x[j,a])); "
    "return y = sum[j](sum[a](x[j,a]/m*sum[b](x[j,b]/max[j](abs(x[j,b]))*u[a,b])))",
}
SEVERAL_AXES = {  # an extremum over further axes than the stream's
    "softmax": "s = sum[d](q[i,d]*k[j,d]); m = max[i,j](s); return y = sum[j](sum[i](exp(s - m)))",
    "other order": "s = sum[d](q[i,d]*k[j,d]); m = max[j,i](s); n = max[i](max[j](s)); "
    "return y = sum[j](sum[i](exp(s - m))), z = m - n",
    "size": "m = max[i,j](abs(x[i,j])); return y = sum[j](x[i,j]/m)",
    "nested": "m = max[i](max[h](max[j](x[h,i,j]))); return y = sum[j](sum[h,i](exp(x[h,i,j] - m)))",
}


def _form(text: str, passes: int = 3) -> ra.Form:
    found = ra.verdict(ra.parse(text), max_passes=passes)
    assert isinstance(found, ra.Form), str(found)
    return found


def _verified(form: ra.Form) -> Document:
    assert Certificate.from_json(form.certificate.to_json()).verify().proved
    return form.certificate.document


@pytest.mark.parametrize("pair", PAIRED, ids="-".join)
def test_a_second_pass_is_certified(pair: tuple[str, str]) -> None:
    location, body = pair
    _verified(_form(f"{LOCATIONS[location]} return y = {BODIES[body]}"))


def test_a_place_among_infinities_is_unknown_and_not_refuted() -> None:
    form = _form(f"{LOCATIONS['weighted']} return y = {BODIES['position']}")
    with pytest.raises(CertificateError, match="is unknown"):
        form.certificate.verify()
    assert form.certificate.verify(allow={"unknown"}).counts["unknown"] == 1


@pytest.mark.parametrize("name", OTHERS)
def test_forms_of_several_passes_are_certified_and_no_name_means_two_things(name: str) -> None:
    form = _form(OTHERS[name])
    doc = _verified(form)
    assert len(doc.passes) > 1
    names = [a.name for p in form.plan.passes for a in p.anchors]
    names += [part for p in form.plan.passes for s in p.slots for part in s.parts]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", ONE_PASS)
def test_bound_names_and_masks_are_certified(name: str) -> None:
    _verified(_form(ONE_PASS[name], 1))


@pytest.mark.parametrize("name", RENAMED)
def test_axes_that_are_renamed_inside_extrema_are_certified(name: str) -> None:
    _verified(_form(RENAMED[name], 1))


@pytest.mark.parametrize("name", SEVERAL_AXES)
def test_extrema_over_several_axes_are_certified(name: str) -> None:
    _verified(ra.derive_incremental(ra.parse(SEVERAL_AXES[name]), axis="j"))


def test_what_the_catalog_needs_two_passes_for_is_certified() -> None:
    rounded = [n for n in ra.catalog if "cast(" in str(ra.catalog[n])]
    refused = [n for n in rounded if not isinstance(ra.verdict(ra.catalog[n]), ra.Form)]
    assert refused
    for name in refused:
        _verified(ra.derive_incremental(ra.catalog[name], max_passes=2))


# --- what passes may read --------------------------------------------------------------------------------------------


def _changed(form: ra.Form, change: object) -> Certificate:
    data = json.loads(form.certificate.to_json())
    change(data)  # type: ignore[operator]
    return Certificate.from_json(json.dumps(data))


def test_a_stage_reads_no_result_that_no_earlier_pass_hands_on() -> None:
    form = _form(OTHERS["kept axis"])
    stage = next(k for k, s in enumerate(form.certificate.document.stages) if s.generators and "known" in _names(s))

    def written_out(data: dict[str, object]) -> None:
        body = data["terms"][data["stages"][stage]["node"]][-1]  # type: ignore[index]
        data["stages"][stage]["generators"] = [body]  # type: ignore[index]

    with pytest.raises(CertificateError, match="a result of the axis"):
        _changed(form, written_out).verify()

    def last_pass_hands_on(data: dict[str, object]) -> None:
        first, last = data["passes"]  # type: ignore[misc]
        first["exports"], last["exports"] = [], first["exports"]

    with pytest.raises(CertificateError, match="not there"):
        _changed(form, last_pass_hands_on).verify()


def _names(stage: object) -> str:
    from redalg.proofs.document.terms import leaves

    return " ".join(t.attr.name for g in stage.generators for t in leaves(g))  # type: ignore[attr-defined]


def test_an_export_is_read_along_its_own_axes() -> None:
    """A value per row that is read without its row would be captured by whatever binds that name."""
    form = _form("u = mean[j](x[i,j]); return y = sum[j](sum[i](w[i]*abs(x[i,j]-u)))")

    def without_row(data: dict[str, object]) -> None:
        for t in data["terms"]:  # type: ignore[attr-defined]
            if t[0] == "state" and str(t[1]).startswith("known"):
                t[2] = []

    with pytest.raises(CertificateError, match="other axes than its own"):
        _changed(form, without_row).verify()


# --- names that are bound --------------------------------------------------------------------------------------------


def _tensor(t: Terms, name: str, *axes: str) -> Term:
    return t("tensor", attr=Leaf(name, axes, frozenset()))


def _proved(t: Terms, left: Term, right: Term) -> bool:
    return Judge(Document(t, ("j",), {}, {}, (), ())).proves(Obligation("O4", "names", left, right))


def test_what_a_sum_binds_is_another_axis_of_that_name() -> None:
    t = Terms()
    sum_a = t.reduce("sum", ("a",), t.mul(_tensor(t, "r", "a"), _tensor(t, "s", "b")))
    renamed = t.renamed(sum_a, {"b": "a"})
    assert renamed.axes == {"a"} and renamed.attr.axes == ("a'",)
    assert _proved(t, renamed, t.mul(t.reduce("sum", ("a",), _tensor(t, "r", "a")), _tensor(t, "s", "a")))
    assert not _proved(t, renamed, t.reduce("sum", ("a",), t.mul(_tensor(t, "r", "a"), _tensor(t, "s", "a"))))
    assert t.renamed(sum_a, {"a": "c"}) is sum_a  # only what is free is renamed


def test_sums_are_told_apart_by_what_they_bind_alone() -> None:
    t = Terms()
    r = {x: _tensor(t, "r", "j", x) for x in ("a", "a'", "a~1", "b")}
    for bound in ("a", "a'", "a~1"):
        assert _proved(t, t.reduce("sum", (bound,), r[bound]), t.reduce("sum", ("a",), r["a"]))
    outer = t.mul(r["a"], t.reduce("sum", ("a",), r["a"]))
    assert _proved(t, outer, t.reduce("sum", ("a'",), t.mul(r["a"], r["a'"])))
    assert _proved(t, outer, t.mul(r["a"], t.reduce("sum", ("a~1",), r["a~1"])))
    assert not _proved(t, outer, t.reduce("sum", ("a",), t.mul(r["a"], r["a"])))
    assert not _proved(t, outer, t.mul(r["b"], t.reduce("sum", ("a",), r["a"])))
    both = t.reduce("sum", ("j",), t.mul(outer, t.reduce("sum", ("a",), t.mul(r["a"], r["a"]))))
    inner = t.mul(r["a"], r["a'"], t("pow", r["a~1"], t.const(2)))
    assert _proved(t, both, t.reduce("sum", ("j", "a'", "a~1"), inner))
    assert not _proved(t, both, t.reduce("sum", ("j", "a'", "a~1"), t.mul(r["a"], r["a'"], r["a~1"])))


@pytest.mark.parametrize("kind", ["max", "min", "prod"])
def test_what_is_renamed_inside_an_extremum_is_not_captured(kind: str) -> None:
    """Σ_a m_a·m_b is m_b·Σ_a m_a, m being made of sizes, of larger ones of two, or of both; never Σ_a m_a²."""
    t = Terms()

    def size(a: str) -> Term:
        r, s = _tensor(t, "r", "j", a), _tensor(t, "s", "j", a)
        return t.reduce(kind, ("j",), t("maximum", t("abs", r), s) if kind != "prod" else t.add(r, t("abs", s)))

    outer = t.mul(size("a"), t.reduce("sum", ("a",), size("a")))
    assert _proved(t, outer, t.reduce("sum", ("a'",), t.mul(size("a"), size("a'"))))
    assert _proved(t, outer, t.mul(t.reduce("sum", ("a~1",), size("a~1")), size("a")))
    assert not _proved(t, outer, t.reduce("sum", ("a",), t("pow", size("a"), t.const(2))))
    assert not _proved(t, outer, t.mul(size("b"), t.reduce("sum", ("a",), size("a"))))
    two = t("maximum", _tensor(t, "r", "a"), _tensor(t, "r", "b"))  # alike where a and b are one place
    both = t.reduce("sum", ("a",), two)
    assert _proved(t, t.renamed(both, {"b": "c"}), t.reduce("sum", ("a'",), t.renamed(two, {"a": "a'", "b": "c"})))
    assert not _proved(t, t.renamed(both, {"b": "a"}), t.reduce("sum", ("a",), _tensor(t, "r", "a")))


def test_extrema_over_several_axes_are_one_and_no_others() -> None:
    t = Terms()
    r = _tensor(t, "r", "i", "j")

    def over(*kinds: str) -> Term:
        found = r
        for k in reversed(kinds):
            found = t.reduce(k.split(":")[0], tuple(k.split(":")[1].split(",")), found)
        return found

    for kind, other in (("max", "min"), ("min", "max")):
        ways = [
            over(f"{kind}:i,j"),
            over(f"{kind}:j,i"),
            over(f"{kind}:i", f"{kind}:j"),
            over(f"{kind}:j", f"{kind}:i"),
        ]
        assert all(_proved(t, ways[0], w) for w in ways)
        assert not _proved(t, over(f"{kind}:i", f"{other}:j"), over(f"{other}:j", f"{kind}:i"))
        assert not any(_proved(t, ways[0], over(f"{kind}:{a}")) for a in "ij")
        assert not _proved(t, over(f"{kind}:i", f"{other}:j"), ways[0])
    squared = t.mul(r, over("max:i"))  # along j
    assert not _proved(
        t, t.reduce("max", ("i", "j"), squared), t.reduce("max", ("i",), t.reduce("min", ("j",), squared))
    )


# --- where the definition has no value -------------------------------------------------------------------------------

COUNT = ("sum:j", ("where", "?g@j", 1, 0))
OTHER = ("sum:j", ("where", "?h@j", 1, 0))
TOTAL = ("sum:j", ("where", "?g@j", "x@j", 0))
ANY = ("any:j", "?g@j")
OVER_COUNT = ("mul", TOTAL, ("pow", COUNT, -1))
OVER_MORE = ("mul", TOTAL, ("pow", ("add", COUNT, 1), -1))
OVER_OTHER = ("mul", TOTAL, ("pow", OTHER, -1))


def _observed(definition: Expression, form: Expression, law: str = "O8") -> bool:
    t = Terms()
    d, f = term(t, definition), term(t, form)
    sides = (d, f) if law == "O1" else (f, d)
    equality = "exact" if law == "O1" else "observational"
    return Judge(Document(t, ("j",), {"y": d}, {}, (), ())).proves(Obligation(law, "y", *sides, equality))


@pytest.mark.parametrize(
    "definition, form, holds",
    [
        (OVER_COUNT, ("where", ANY, OVER_COUNT, 0), True),
        (OVER_COUNT, ("where", ANY, OVER_COUNT, 7), True),
        (OVER_OTHER, ("where", ANY, OVER_OTHER, 7), False),
        (OVER_MORE, ("where", ANY, OVER_MORE, 7), False),
        (TOTAL, ("where", ANY, TOTAL, 0), True),
        (TOTAL, ("where", ANY, TOTAL, 7), False),
        (OVER_COUNT, ("where", ("all:j", "?g@j"), OVER_COUNT, 0), False),
        (OVER_COUNT, ("where", ("any:j", "?h@j"), OVER_COUNT, 0), False),
        (("mul", TOTAL, COUNT), ("where", ANY, ("mul", TOTAL, COUNT), 7), False),
    ],
)
def test_only_what_the_definition_divides_by_is_not_zero(definition: Expression, form: Expression, holds: bool) -> None:
    assert _observed(definition, form) is holds


W = ("sum:j", "w@j")
SCALED = ("mul", "x", ("pow", W, -1))
RATIO = ("mul", "x@k", ("pow", W, -1))
BELOW = ("where", ("lt", SCALED, 1), 0, 1)
ONE_OR_TWO, TWO_OR_ONE = ("where", ("lt", 0, W), 1, 2), ("where", ("le", 0, W), 1, 2)


@pytest.mark.parametrize(
    "body, separated, holds",
    [
        (("add", SCALED, ONE_OR_TWO), ("add", SCALED, TWO_OR_ONE), True),
        (("add", ("exp", SCALED), ONE_OR_TWO), ("add", ("exp", SCALED), TWO_OR_ONE), False),
        (("where", ("lt", 0, W), SCALED, 5), ("where", ("le", 0, W), SCALED, 5), False),
        (ONE_OR_TWO, TWO_OR_ONE, False),
        (("sum:k", ("add", RATIO, ONE_OR_TWO)), ("sum:k", ("add", RATIO, TWO_OR_ONE)), True),
        (("add", BELOW, ONE_OR_TWO), ("add", BELOW, TWO_OR_ONE), False),
    ],
)
def test_a_body_without_value_is_where_it_divides_whatever_is_chosen(
    body: Expression, separated: Expression, holds: bool
) -> None:
    assert _observed(body, separated, "O1") is holds
