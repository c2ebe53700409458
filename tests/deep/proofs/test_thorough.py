"""`verify(thorough=True)` evaluates every kind of obligation, can refute every kind, and says what it did not draw."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path

import pytest

import redalg as ra
from redalg.cli.main import main
from redalg.errors import CertificateError
from redalg.proofs.checker.check import THOROUGH, Judge, check
from redalg.proofs.derivatives.proof import proved
from redalg.proofs.document.document import Document, Obligation
from redalg.proofs.document.terms import Term, Terms, walk
from redalg.proofs.falsification.falsify import falsify
from tests.support import forged_derivatives as derivatives

TEXTS = {
    "lists": "return v = topk[j:2:t](x[j]).values, at = topk[j:2:t](x[j]).indices",
    "positions": "return y = argmax[j](x[j]), z = argmin[j](abs(x[j])), s = sum[j](x[j])",
    "truths": "tensors c[j] bool; return a = any[j](c[j]), b = all[j](c[j]), n = sum[j](where(c[j], 1, 0))",
    "products": "return y = prod[j](x[j]), l = logsumexp[j](x[j])",
    "arrays in states": "m = mean[j](x[j,a]); return y = sum[j]((x[j,a] - m)**2), z = sum[j](x[j,a]*v[j])",
    "masked variance": "tensors c[j] bool; n = sum[j](where(c[j], 1, 0)); m = sum[j](where(c[j], x[j], 0))/n; "
    "return y = sum[j](where(c[j], (x[j] - m)**2, 0))/n",
    "outputs with the axis": "m = max[j](x[j]); l = sum[j](exp(x[j] - m)); return y = exp(x[j] - m)/l",
    "weights": "m = sum[j](w[j]*x[j])/sum[j](w[j]); return y = sum[j](w[j]*(x[j] - m)**2)/sum[j](w[j])",
    "distances": "m = mean[j](x[j]); return y = max[j](abs(x[j] - m))",
    "complex": "tensors z[j] complex; return y = sum[j](abs(z[j])**2)",
    "capture": "return y = sum[j](r[j,a]*sum[a](r[j,a] - u))",
}
KINDS = {"sum", "prod", "max", "min", "argmax", "argmin", "topk", "any", "all", "monoid"}
LEAVES = ("tensor", "state", "size")
SIDES = {"exact", "observational", "domain"}


def _monoid() -> ra.Spec:
    x, y = ra.tensors("x[j] y[j]")
    affine = ra.Monoid("affine", lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (1, 0))
    first, second = ra.reduce((x, y), "j", monoid=affine)
    return ra.Spec(y=first, z=second)


@cache
def documents() -> dict[str, Document]:
    found = {name: ra.derive_incremental(ra.parse(text)).certificate.document for name, text in TEXTS.items()}
    found["monoids"] = ra.derive_incremental(_monoid()).certificate.document
    two = ra.parse("m = mean[j](x[j]); return y = sum[j](relu(x[j] - m))")
    return found | {"two passes": ra.derive_incremental(two, max_passes=2).certificate.document}


def planted(t: Terms, o: Obligation) -> Iterator[tuple[str, Obligation]]:
    """The obligation made false for one sign, or one truth, of one of its variables alone."""
    zero = t.const(0)
    for leaf in sorted((x for x in walk(o.left, o.right) if x.op in LEAVES), key=lambda x: x.number):
        if leaf.op == "size":
            yield "size", replace(o, left=_changed(t, o, t("lt", t.const(1), leaf)))
            continue
        domain = leaf.attr.domain
        if "complex" in domain:
            continue
        signs = [t("lt", zero, leaf), t("lt", leaf, zero)] if "bool" not in domain else [leaf, t("not", leaf)]
        for where in signs[: 1 if domain & {"positive", "nonnegative"} else 2]:
            free = tuple(sorted(where.axes - o.left.axes - o.right.axes))
            yield f"{where.op} {leaf.attr.name}", replace(o, left=_changed(t, o, _any(t, free, where)))


def _any(t: Terms, axes: tuple[str, ...], where: Term) -> Term:
    return t.reduce("any", axes, where) if axes else where


def _changed(t: Terms, o: Obligation, where: Term) -> Term:
    if o.right.is_boolean:
        return t("or", t("and", where, t("not", o.left)), t("and", t("not", where), o.left))
    return t.add(o.left, t("where", where, t.const(Fraction(1, 7)), t.const(0)))


@pytest.mark.parametrize("name", [*TEXTS, "monoids", "two passes"])
def test_a_falsehood_planted_in_any_obligation_is_refuted(name: str) -> None:
    doc, count = documents()[name], 0
    for o in doc.obligations:
        assert falsify(o, doc, THOROUGH)[0] == "tested", str(o)
        for what, false in planted(doc.terms, o):
            count += 1
            assert falsify(false, doc, THOROUGH)[0] == "refuted", (str(o), what)
    assert count >= len(doc.obligations) or name == "complex"


def test_these_are_obligations_of_every_kind() -> None:
    obligations = [o for d in documents().values() for o in d.obligations]
    assert {o.law for o in obligations} == {f"O{k}" for k in range(1, 9)}
    assert {o.equality for o in obligations} == SIDES
    assert {s.kind for d in documents().values() for p in d.passes for s in p.slots} == KINDS


def test_what_no_point_says_anything_about_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one branch the other one's condition is given: no point meets that, and the report says so."""
    c = ra.derive_incremental(ra.catalog["absmax_int8_gemm"], assume=ra.catalog.entry("absmax_int8_gemm").assume)
    report = c.certificate.verify(thorough=True)
    told = [f for f in report.findings if f.detail]
    assert told and report.proved and all(f.status == "proved" for f in told)
    assert str(report).count("not evaluated, no drawn point") == len(told)
    evaluated = []

    def counted(o: Obligation, doc: Document, points: int) -> tuple[str, object]:
        evaluated.append(o)
        return "unknown", "nothing is drawn"

    monkeypatch.setattr("redalg.proofs.checker.check.falsify", counted)
    report = c.certificate.verify(thorough=True)
    assert evaluated == [f.obligation for f in report.findings]
    assert all(f.detail == "not evaluated, nothing is drawn" for f in report.findings)


@pytest.mark.parametrize("name", ["LSE", "RELU", "TWO", "GRAM", "LIST"])
@pytest.mark.parametrize("mode", ["vjp", "jvp"])
def test_proofs_of_derivatives_are_doubted_too(name: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    claims = derivatives.claims_of(getattr(derivatives, name), mode)
    report = proved(claims, thorough=True)
    assert report.proved and not any(f.detail for f in report.findings)
    mutants = list(derivatives.mutants(claims))
    monkeypatch.setattr(Judge, "obstacle", lambda self, o: "")
    refuted = accepted = 0
    for _, mutant in mutants:
        try:
            report = proved(mutant, thorough=True)
        except CertificateError:
            continue  # refused by its structure
        refuted += "refuted" in report.counts
        accepted += report.proved
    assert refuted > 3 * accepted  # a change may change nothing


def test_the_command_line_doubts_forms_and_derivatives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = ra.parse("m = mean[j](x[j]); return y = sum[j]((x[j] - m)**2)")
    refused = ra.verdict(ra.parse("m = mean[j](x[j]); return y = sum[j](abs(x[j] - m))"))
    for c in (ra.derive_incremental(spec).certificate, spec.vjp().certificate, refused.certificate):
        file = tmp_path / "certificate.json"
        file.write_text(c.to_json())
        assert main(["verify", "--thorough", str(file)]) == 0
    monkeypatch.setattr(
        "redalg.proofs.checker.check.falsify", lambda o, doc, points=8: ("refuted", {"point": {}, "at": {}})
    )
    for c in (ra.derive_incremental(spec).certificate, spec.vjp().certificate):
        file.write_text(c.to_json())
        assert main(["verify", "--thorough", str(file)]) != 0 and main(["verify", str(file)]) == 0
    assert "refuted" in capsys.readouterr().out


def test_a_checker_that_proves_everything_is_contradicted_for_every_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each law one obligation is replaced by a false one, which a report calls proved until it is doubted."""
    monkeypatch.setattr(Judge, "obstacle", lambda self, o: "")
    monkeypatch.setattr("redalg.proofs.checker.check.compare", lambda needed, stated: None)
    met = set()
    for doc in documents().values():
        for i, o in enumerate(doc.obligations):
            false = next((f for _, f in planted(doc.terms, o)), None)
            if false is None or (o.law, o.equality) in met:
                continue
            met.add((o.law, o.equality))
            changed = (*doc.obligations[:i], false, *doc.obligations[i + 1 :])
            monkeypatch.setattr("redalg.proofs.checker.check.required", lambda d, alike, changed=changed: changed)
            monkeypatch.setattr("redalg.proofs.checker.check.superfluous", lambda d, needed: [])
            assert check(doc).proved
            assert [f.obligation for f in check(doc, thorough=True).findings if f.status == "refuted"] == [false]
    assert {law for law, _ in met} == {f"O{k}" for k in range(1, 9)}
