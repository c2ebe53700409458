"""Certificates of the catalog and beside it: what has been changed is refused, and the checker stands alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import redalg as ra
from redalg.proofs.certificate import Certificate
from redalg.proofs.checker.check import Judge, check
from redalg.proofs.document.document import Document
from redalg.proofs.document.errors import CertificateError
from redalg.proofs.document.work import metered
from tests.support.changes_of_meaning import changes
from tests.support.false_lemmas import lemma
from tests.support.forms import form_of
from tests.support.mutations import contradicted, judged, mutants
from tests.support.places import ROOT


def certificate(name: str) -> Certificate:
    return form_of(name).certificate


@pytest.mark.parametrize(
    "name",
    ["softmax", "kurtosis", "layer_norm_gemm", "moe_renormalised", "argmax", "p_norm_safe", "fp8_per_token_gemm"],
)
def test_corrupted_certificates_are_refused_unless_they_state_a_truth(name: str) -> None:
    original = certificate(name)
    harmless = {"stage.name", "anchor.generator", "stages", "slots", "anchors", "assumptions"}
    for m in mutants(original.to_json(), 25, ("test", name)):
        try:
            mutated = Certificate.from_json(m.text)
            report = mutated.verify()
        except CertificateError as e:
            assert e.what and e.why
            continue
        assert report.proved and mutated.spec_hash == original.spec_hash and m.where in harmless, m[:2]


@pytest.mark.parametrize("name", ["softmax", "variance", "two_norm_safe", "moe_renormalised", "attention_causal"])
def test_consistent_mutants_fail_in_a_proof_or_fold_to_their_definition(name: str) -> None:
    """A mutant with the obligations of what it has become: its proof fails, or what it says is true."""
    by: dict[str, int] = {}
    for m in mutants(certificate(name).to_json(), 25, ("consistent", name), obligations=False):
        found = judged(m)
        by[found.by] = by.get(found.by, 0) + 1
        if found.by == "accepted" and found.document is not None:
            assert not contradicted(found.document, 12, name), m[:2]
    assert by["proof"] >= 2


@pytest.mark.parametrize("name", ["softmax", "weighted_variance", "soft_minimum", "covariance", "welch_t", "argmax"])
def test_changes_of_meaning_are_refused_or_fold_to_their_definition(name: str) -> None:
    """Of axes, guards, anchors, domains, ties, positions, passes: `tests.support.changes_of_meaning` has the kinds."""
    refused = 0
    for m in changes(certificate(name).to_json(), 30, ("meaning", name)):
        found = judged(m)
        refused += found.by != "accepted"
        if found.by == "accepted" and found.document is not None:
            assert not contradicted(found.document, 12, name), m[:2]
    assert refused > 15


def _empty(terms: object) -> Document:
    return Document(terms, ("j",), {}, {}, (), ())  # type: ignore[arg-type]


def test_the_checker_needs_nothing_but_the_standard_library(tmp_path: Path) -> None:
    file = tmp_path / "attention.json"
    file.write_text(certificate("attention").to_json())
    code = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        top = name.split(".")
        foreign = top[0] in ("sympy", "numpy", "numba", "mpmath", "llvmlite", "scipy")
        if foreign or (top[0] == "redalg" and top[1:2] not in ([], ["proofs"])):
            raise ImportError(name)

sys.meta_path.insert(0, Blocker())
import redalg.proofs.certificate as c
print(c.Certificate.from_json(open(sys.argv[1]).read()).verify())
"""
    out = subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, text=True, cwd=ROOT, check=True)
    assert out.stdout.strip() == "25 proved"


def _outside() -> dict[str, ra.Spec]:
    x, y = ra.tensors("x[i,j] y[j]")
    mask = ra.tensors("mask[j]", bool=True)
    masked = ra.where(mask, x, -ra.oo)
    p, mean = ra.exp(masked - ra.max(masked, "j")), ra.mean(y, "j")
    return {
        "masked average": ra.Spec(a=ra.sum(p * y, "j") / ra.sum(p, "j")),
        "two centres": ra.Spec(a=ra.sum((y - mean) ** 4, "j"), b=ra.max(ra.abs(y - mean), "j")),
        "distance to the maximum": ra.Spec(a=ra.sum(ra.abs(y - ra.max(y, "j")), "j")),
        "quantifier": ra.Spec(a=ra.any(y > 3 * mean, "j")),
        "refused stages that cancel": ra.Spec(a=ra.sum(ra.relu(y - mean), "j") - ra.sum(ra.relu(mean - y), "j")),
        "counted ties": ra.Spec(a=ra.sum(ra.where(ra.eq(y, ra.max(y, "j")), 1, 0), "j")),
    }


@pytest.mark.parametrize("name", _outside())
def test_specs_outside_the_catalog(name: str) -> None:
    assert ra.derive_incremental(_outside()[name], axis="j").certificate.verify().proved


def test_a_users_monoid_is_held_to_its_laws() -> None:
    x = ra.tensors("x[j]")
    add = ra.Monoid("add2", lambda a, b: (a[0] + b[0], a[1] + b[1]), (0, 0), commutative=True)
    form = ra.derive_incremental(ra.Spec(s=ra.reduce((x, x * x), "j", monoid=add)[0]))
    report = form.certificate.verify()
    assert report.proved and {f.obligation.law for f in report.findings} >= {"O4", "O6", "O8"}


def test_gigantic_numbers_and_powers_end_in_unknown() -> None:
    for left in (
        ("pow", ("pow", ("pow", 3, 9999), 9999), 9999),
        ("pow", ("add", "a", "b", "c", "d"), 63),
        ("pow", ("add", "a", 1), 10**30),
    ):
        terms, obligation = lemma(("big", left, 1))
        with metered():
            assert not Judge(_empty(terms)).proves(obligation)


def test_check_is_a_function_of_the_document() -> None:
    doc = certificate("kurtosis").document
    assert [f.status for f in check(doc).findings] == [f.status for f in check(doc).findings]


def test_lean_forms_have_no_certificate_of_their_own() -> None:
    form = form_of("variance")
    assert form.certificate.verify().proved and form.lean is not None
    with pytest.raises(ra.RedalgError, match="the certificate of a lean form"):
        _ = form.lean.certificate
