"""Documents that state a falsehood are refused, however consistent; and folding them shows the falsehood."""

from __future__ import annotations

import random

import pytest

import redalg as ra
from redalg.proofs.certificate import Certificate
from redalg.proofs.checker.check import Judge, check
from redalg.proofs.document.document import Document, Obligation
from redalg.proofs.document.errors import CertificateError
from redalg.proofs.smt.smt import smt_lib
from tests.engine.forged_places import PLACES
from tests.support.folding import differs, drawn
from tests.support.forged_certificates import CLASSES
from tests.support.forged_domains import DOMAINS
from tests.support.forged_shapes import SHAPES, roundings_to_other_formats
from tests.support.forging import Forge, text_of
from tests.support.forms import form_of

STREAMS = 200
FORGED = CLASSES | DOMAINS | PLACES | SHAPES
NOT_COMPUTED = {  # forgeries that no stream shows, because they are of no shape that can be computed at all
    ("conflated_axes", "a list along an axis of its elements"),
    ("monoids_of_something_else", "a tensor"),
    ("monoids_of_something_else", "fewer parts"),
    ("names_the_spec_lacks", "a length"),
    ("names_the_spec_lacks", "a position"),
    ("names_the_spec_lacks", "the stream along j~1"),
}


@pytest.mark.parametrize("forgery", FORGED)
def test_forged_certificates_are_refused(forgery: str) -> None:
    for name, doc in FORGED[forgery]():
        with pytest.raises(CertificateError) as caught:
            Certificate.from_json(text_of(doc)).verify()
        assert caught.value.what and caught.value.where and caught.value.why, name


def test_an_assumption_on_roundings_is_about_those_of_the_spec() -> None:
    for name, doc in roundings_to_other_formats():
        with pytest.raises(CertificateError, match="the spec rounds to"):
            pytest.fail(f"{name}: {Certificate.from_json(text_of(doc)).verify()}")


@pytest.mark.parametrize("forgery", FORGED)
def test_forged_certificates_are_false(forgery: str) -> None:
    for name, doc in FORGED[forgery]():
        if (forgery, name) not in NOT_COMPUTED:
            draw = random.Random(name)
            assert any(differs(doc, *drawn(doc, draw), draw) for _ in range(STREAMS)), name


@pytest.mark.parametrize(
    "name", ["variance", "attention", "kurtosis", "weighted_variance", "moe_softmax_topk", "argmax"]
)
def test_derived_forms_fold_to_their_definitions(name: str) -> None:
    doc = form_of(name).certificate.document
    draw = random.Random(name)
    assert not any(differs(doc, *drawn(doc, draw), draw) for _ in range(6))


def _true() -> dict[str, Document]:
    """Forms near the forged ones, with what makes them true."""
    found: dict[str, Document] = {}
    f = Forge()
    total = ("sum:j", "x[j]")
    guarded = ("where", ("ne", "d", 0), ("div", total, "d"), 7)
    value = ("where", ("ne", "d", 0), ("div", "$s", "d"), 7)
    found["a guarded divisor"] = f.document({"y": guarded}, [f.slot("s", "sum", "x[j]")], {"y": value})
    f = Forge()
    spec = {"y": ("pow", ("max:j", "+x[j]"), "+n")}
    found["a power of what is positive"] = f.document(
        {"y": ("max:j", ("pow", "+x[j]", "+n"))}, [f.slot("m", "max", "+x[j]")], {"y": ("pow", "$m", "+n")}
    )
    f = Forge()
    body = ("pow", ("pow", ("add", "+x[j]", 1), -2), -1)
    found["an even power of what is positive"] = f.document(
        {"y": ("max:j", body)}, [f.slot("m", "max", ("add", "+x[j]", 1))], {"y": ("pow", "$m", 2)}
    )
    f = Forge()
    h = "$shift:A[i]"
    parts = [
        f.slot("m", "max", "x[i,j]", "i"),
        f.extremum("A", "$m[i]", "i"),
        f.slot("u", "sum", ("abs", ("sub", "x[i,j]", "$A[i]")), "i", [(1, "u"), (h, "n")]),
    ]
    spec = {"y": ("sum:j", ("abs", ("sub", "x[i,j]", ("max:j", "x[i,j]"))))}
    found["distances to the own maximum"] = f.document(spec, parts, {"y": "$u[i]"})
    f = Forge()
    scale = ("where", ("eq", "$m", 0), 1, "$m")
    parts = [
        f.slot("m", "max", ("abs", "x[j]")),
        f.extremum("A", scale, kind="mul"),
        f.slot("u", "sum", ("div", "x[j]", "$A"), "", [("$shift:A", "u")]),
    ]
    for name, mask in (("a product of ratios", None), ("a product under a mask", ("lt", 0, "c[j]"))):
        g = Forge()
        ratios = [("div", "z[j]", of) for of in ("$A", ("max:j", "+x[j]"))]
        lift, body = ratios if mask is None else [("where", mask, r, 1) for r in ratios]
        count = "$#+n" if mask is None else "$k"
        held = [] if mask is None else [g.slot("k", "sum", ("where", mask, 1, 0))]
        held += [g.slot("m", "max", "+x[j]"), g.extremum("A", "$m", kind="mul")]
        held.append(g.slot("u", "prod", lift, "", [(("pow", "$shift:A", count), "u")]))
        found[name] = g.document({"y": ("prod:j", body)}, held, {"y": "$u"})
    found["a guarded scale"] = f.document({"y": total}, parts, {"y": ("mul", "$A", "$u")})
    f = Forge()
    spec = {"y": ("mul", total, "w[j_a]", "v[j_b]")}
    parts = [
        f.mean("A", "x[j]", ("div", "$u", "$n")),
        f.slot("u", "sum", ("sub", "x[j]", "$A"), "", [(1, "u"), (("neg", "$shift:A"), "n")]),
    ]
    value = ("mul", ("add", "$u", ("mul", "$n", "$A")), "w[j_a]", "v[j_b]")
    found["axes named as sides are"] = f.document(spec, parts, {"y": value})
    return found


def _true_of_places() -> dict[str, Document]:
    """The same of what a definition divides by at every place, and of products under a mask."""
    found: dict[str, Document] = {}
    for other in ("nan", 7):
        f = Forge()
        spec = {"y": ("sum:g", ("div", ("sum:j", "x[j]"), ("sum:j", "w[j,g]")))}
        parts = [f.slot("s", "sum", "x[j]"), f.slot("w", "sum", "w[j,g]", "g")]
        shown = ("where", ("any:g", ("eq", "$w[g]", 0)), other, ("sum:g", ("div", "$s", "$w[g]")))
        found[f"a divisor is 0 at some place, else {other}"] = f.document(spec, parts, {"y": shown})
    f = Forge()
    spec = {"y": ("div", ("sum:j", "x[j]"), "d[g]"), "z": ("sum:g", ("div", ("sum:j", "x[j]"), "d[g]"))}
    at_one = ("where", ("eq", "d[g]", 0), 7, ("div", "$s", "d[g]"))
    values = {"y": at_one, "z": ("mul", "$s", ("sum:g", ("div", 1, "d[g]")))}
    found["outputs at one place and at all"] = f.document(spec, [f.slot("s", "sum", "x[j]")], values)
    chosen = ("lt", 0, "c[j]")
    f = Forge()
    parts = [f.slot("c", "sum", ("where", chosen, 0, 1)), f.slot("u", "prod", ("where", chosen, "x[j]", 1))]
    value = ("mul", "$u", ("pow", "+h", "$c"))
    spec = {"y": ("prod:j", ("where", chosen, "x[j]", "+h"))}
    found["a product taken apart"] = f.document(spec, parts, {"y": value})
    return found


TRUE = _true() | _true_of_places()


@pytest.mark.parametrize("name", TRUE)
def test_true_forms_beside_forged_ones_are_proved(name: str) -> None:
    doc = TRUE[name]
    draw = random.Random(name)
    assert not any(differs(doc, *drawn(doc, draw), draw) for _ in range(20))
    if name != "distances to the own maximum":  # its Σ|x - max x| needs a stage of its own
        assert Certificate.from_json(text_of(doc)).verify().proved


def _hash(f: Forge, spec: dict[str, object], **more: object) -> str:
    return f.document(spec, [], {}, **more).spec_hash  # type: ignore[arg-type]


def test_different_specs_have_different_hashes() -> None:
    """Names, axes, values of empty rows, monoids and actions are all told apart."""
    plain = [("y", "x[j]"), ("empty y", "x[j]"), ("y=1", "x[j]"), ("monoid plus 0", "x[j]"), ("y", "x[k]")]
    hashes = [_hash(Forge(axis), {name: e}) for axis in ("j", "k", "j,k") for name, e in plain]
    f = Forge()
    hashes += [_hash(f, {"y": "x[j]"}, empty={"y": "x[j]"}), _hash(f, {"y": "x[j]", "empty y": "x[j]"})]
    hashes += [_hash(f, {"y": "x[j]", "z": 1}), _hash(f, {"y": "x[j]"}, empty={"y": 1})]
    spec = {"y": ("monoid:j:0:0", "x[j]")}
    for combined, identity, acts in (("add", 0, {}), ("mul", 1, {}), ("add", 1, {}), ("add", 0, {"scale": ["$a0"]})):
        own = f.monoid("plus", [(combined, "$a0", "$b0")], [identity], True, **acts)
        hashes.append(_hash(f, spec, monoids=(own,)))
        other = f.monoid("plus", [("maximum", "$a0", "$b0")], ["-oo"], True)
        hashes += [_hash(f, spec, monoids=(own, other)), _hash(f, spec, monoids=(other, own))]
    other = f.monoid("plus", [("add", "$a0", "$b0")], [0], True, scale=[("mul", "$a0", "$h")])
    hashes.append(_hash(f, spec, monoids=(other,)))
    assert len(set(hashes)) == len(hashes)


def test_the_hash_is_that_of_the_spec_alone() -> None:
    f, g = Forge(), Forge()
    g("z[k]")  # numbered before the others
    assert _hash(f, {"y": ("sum:j", "x[j]")}) == _hash(g, {"y": ("sum:j", "x[j]")})


def test_what_is_given_unequal_to_a_number_is_not_given_unequal_to_zero() -> None:
    f = Forge()
    for other, proved in ((0, True), (5, False), ("z", False)):
        given = (f(("ne", "x", other)),)
        o = Obligation("O7", "y", f(("ne", "x", 0)), f.terms("true"), "domain", given)
        assert Judge(f.document({"y": "x"}, [], {})).proves(o) is proved


@pytest.mark.parametrize(
    "forgery", ["guards_that_are_dropped", "spreads_of_something_else", "extrema_through_even_powers"]
)
def test_thorough_verification_contradicts_a_judge_that_proves_everything(
    forgery: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Judge, "obstacle", lambda self, o: "")
    for name, doc in FORGED[forgery]():
        assert check(doc).proved, name
        if name == "a factor that may be 0":
            continue  # 0 and 0 alike: no drawn point tells them apart
        with pytest.raises(CertificateError, match="is refuted"):
            Certificate(doc).verify(thorough=True)


def test_thorough_verification_leaves_true_certificates_as_they_are() -> None:
    c = ra.derive_incremental(ra.catalog["variance"]).certificate
    assert c.verify(thorough=True) == c.verify()


def test_thorough_verification_has_one_budget_and_says_what_it_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    c = ra.derive_incremental(ra.catalog["variance"]).certificate
    spent = []
    for steps in (20_000, 60_000):
        monkeypatch.setattr("redalg.proofs.checker.check.DOUBTS", steps)
        report = c.verify(thorough=True)
        left = [f for f in report.findings if f.detail]
        spent.append(len(left))
        assert report.proved and all("not evaluated" in str(f.detail) for f in left)
        assert str(report).count("not evaluated") == len(left) > 0
    assert len(report.findings) > spent[0] > spent[1]


@pytest.mark.parametrize("forgery", SHAPES)
def test_what_has_no_form_is_not_written_for_solvers(forgery: str) -> None:
    refused = 0
    for _, doc in SHAPES[forgery]():
        try:
            smt_lib(Certificate(doc))
        except CertificateError:
            refused += 1
    assert refused or forgery == "numbers_that_are_not_real"


@pytest.mark.parametrize("text", ["max[j](exp(x[j] - max[j](x[j]))*w[j])", "max[j](softmax[j](x[j])*exp(w[j]))"])
def test_an_extremum_that_reads_an_anchor_is_no_damage(text: str) -> None:
    """Nothing is wrong with the document: the checker has no law for it, and says so."""
    certificate = ra.derive_incremental(ra.parse(f"return y = {text}")).certificate
    with pytest.raises(CertificateError, match="only sums and products may read anchors") as error:
        certificate.verify(allow={"tested"})
    assert "export" not in error.value.fix and "check_equivalence" in error.value.fix
