"""Certificates: every obligation of the catalog is proved, none can be left out or changed, nothing false is proved."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import redalg as ra
from redalg.cli import main
from redalg.proofs.certificate import Certificate
from redalg.proofs.check import Judge, check
from redalg.proofs.document import Document
from redalg.proofs.refusals import CertificateError
from redalg.proofs.work import metered
from tests.false_lemmas import FALSE, TRUE, lemma
from tests.mutations import contradicted, judged, mutants

ROOT = Path(__file__).parent.parent


def certificate(name: str) -> Certificate:
    entry = ra.catalog.entry(name)
    return ra.derive_incremental(entry.spec, axis=entry.axis, assume=entry.assume).certificate


@pytest.mark.parametrize("name", ra.catalog)
def test_every_obligation_of_the_catalog_is_proved(name: str) -> None:
    report = certificate(name).verify(thorough=True)  # and no exact point contradicts a proof
    assert report.proved and len(report.findings) == len(certificate(name).obligations)


def _listed(name: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for o in certificate(name).obligations:
        found.setdefault(o.law, []).append(o.subject)
    return found


@pytest.mark.parametrize(
    ("name", "laws"),
    [
        ("argmax", {"O4": ["argmax_x"] * 3, "O8": ["position"]}),
        ("absmax", {"O4": ["max_abs_x"] * 2, "O6": ["max_abs_x"] * 2, "O8": ["a"]}),
        ("splade", {"O4": ["max_u"] * 2, "O6": ["max_u"] * 2, "O8": ["w"], "O7": ["max_u", "w"]}),
        (
            "softmax_denominator",
            {
                "O1": ["stage2"],
                "O2": ["sum_exp"],
                "O3": ["sum_exp"] * 2,
                "O5": ["sum_exp"],
                "O4": ["max_x"] * 2 + ["sum_exp"] * 2,
                "O6": ["max_x"] * 2 + ["sum_exp"] * 2,
                "O8": ["sum_exp", "l"],
            },
        ),
        (
            "mean",
            {
                "O1": ["stage1"],
                "O2": ["avg_x"],
                "O3": ["avg_x"] * 2,
                "O5": ["avg_x"] * 2,
                "O4": ["avg_x"] * 4,
                "O8": ["avg_x", "mu", "A_x"],
            },
        ),
        (
            "variance",
            {
                "O1": ["stage1", "stage2"],
                "O2": ["avg_x", "avg_x2"],
                "O3": ["avg_x"] * 2 + ["avg_x2"] * 2,
                "O5": ["avg_x"] * 2 + ["avg_x2"] * 3,
                "O4": ["avg_x"] * 4 + ["avg_x2"] * 4,
                "O8": ["avg_x", "avg_x2", "var", "A_x"],
            },
        ),
    ],
)
def test_the_obligations_of_six_specs_in_full(name: str, laws: dict[str, list[str]]) -> None:
    assert _listed(name) == laws


@pytest.mark.parametrize("name", ["attention", "variance", "argmax", "moe_softmax_topk", "absmax_int8_gemm"])
def test_json_round_trips_and_holds_no_status(name: str) -> None:
    c = certificate(name)
    again = Certificate.from_json(c.to_json())
    assert again == c and again.spec_hash == c.spec_hash and pickle.loads(pickle.dumps(c)) == c
    assert "proved" not in c.to_json() and again.verify().proved
    assert certificate(name).to_json() == c.to_json()


@pytest.mark.parametrize("name", ["attention", "variance", "moe_switch"])
def test_no_obligation_can_be_left_out(name: str) -> None:
    data = json.loads(certificate(name).to_json())
    for i in range(len(data["obligations"])):
        fewer = data | {"obligations": data["obligations"][:i] + data["obligations"][i + 1 :]}
        with pytest.raises(CertificateError, match="missing or changed"):
            Certificate.from_json(json.dumps(fewer)).verify()


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


def _empty(terms: object) -> Document:
    return Document(terms, ("j",), {}, {}, (), ())  # type: ignore[arg-type]


@pytest.mark.parametrize("entry", FALSE, ids=lambda e: str(e[0]))
def test_nothing_false_is_proved(entry: tuple[object, ...]) -> None:
    terms, obligation = lemma(entry)
    assert Judge(_empty(terms)).decide(obligation).status in ("refuted", "unknown", "tested")
    assert not Judge(_empty(terms)).proves(obligation)


@pytest.mark.parametrize("entry", TRUE, ids=lambda e: str(e[0]))
def test_true_lemmas_are_proved(entry: tuple[object, ...]) -> None:
    terms, obligation = lemma(entry)
    assert Judge(_empty(terms)).proves(obligation)


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


def test_a_certificate_names_the_assumptions_it_needs() -> None:
    assert certificate("fp8_per_token_gemm").assumptions == ("cast_commutes",)
    data = json.loads(certificate("fp8_per_token_gemm").to_json())
    with pytest.raises(CertificateError):
        Certificate.from_json(json.dumps(data | {"assumptions": []})).verify()
    more = json.loads(certificate("variance").to_json()) | {"assumptions": ["cast_commutes"]}
    with pytest.raises(CertificateError, match="assumption"):
        Certificate.from_json(json.dumps(more)).verify()


def test_verify_says_what_is_not_proved_and_allow_relaxes() -> None:
    with pytest.raises(CertificateError, match="allow"):
        certificate("mean").verify(allow={"refuted"})
    data = json.loads(certificate("mean").to_json())
    data["terms"] = [["const", "2"] if row == ["const", "-1"] else row for row in data["terms"]]
    with pytest.raises(CertificateError, match=r"obligation O\d .* is (unknown|refuted|tested)|spec hash"):
        Certificate.from_json(json.dumps(data)).verify()


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


def test_a_pure_map_has_outputs_to_prove() -> None:
    u = ra.tensors("u[i,j]")
    report = ra.derive_incremental(ra.Spec(y=ra.log(ra.relu(u) + 1))).certificate.verify()
    assert report.proved and [f.obligation.law for f in report.findings] == ["O8"]


def test_a_users_monoid_is_held_to_its_laws() -> None:
    x = ra.tensors("x[j]")
    add = ra.Monoid("add2", lambda a, b: (a[0] + b[0], a[1] + b[1]), (0, 0), commutative=True)
    form = ra.derive_incremental(ra.Spec(s=ra.reduce((x, x * x), "j", monoid=add)[0]))
    report = form.certificate.verify()
    assert report.proved and {f.obligation.law for f in report.findings} >= {"O4", "O6", "O8"}


def test_command_line_writes_and_checks_certificates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "softmax.json"
    assert main(["derive", "softmax", "--certificate", str(file)]) == 0
    assert main(["verify", str(file)]) == 0
    assert "15 proved" in capsys.readouterr().out
    file.write_text(file.read_text().replace('"sum"', '"max"', 1))
    assert main(["verify", str(file)]) == 3
    assert "refused:" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[]",
        "3",
        "[" * 100_000,
        '{"format": "redalg certificate"}',
        '{"a": NaN}',
        '{"a": 1, "a": 2}',
        '{"a": 1e999}',
        '"' + "x" * 1000 + '"',
        "\ud800".encode("utf-8", "surrogatepass"),
    ],
    ids=lambda t: repr(t)[:20],
)
def test_hostile_texts_are_refused_in_four_parts(text: str | bytes) -> None:
    with pytest.raises(CertificateError) as caught:
        Certificate.from_json(text)
    assert caught.value.what and caught.value.where and caught.value.why and caught.value.fix


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
    form = ra.derive_incremental(ra.catalog["variance"])
    assert form.certificate.verify().proved and form.lean is not None
    with pytest.raises(ra.RedalgError, match="the certificate of a lean form"):
        _ = form.lean.certificate
