"""Certificates: every obligation of the catalog is proved, none can be left out or changed, nothing false is proved."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

import redalg as ra
from redalg.cli.main import main
from redalg.proofs.certificate import Certificate
from redalg.proofs.checker.check import Judge
from redalg.proofs.document.document import Document
from redalg.proofs.document.errors import CertificateError
from tests.support.false_lemmas import FALSE, TRUE, lemma
from tests.support.forms import form_of
from tests.support.sample import by_name


def certificate(name: str) -> Certificate:
    return form_of(name).certificate


@by_name()
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
        ("splade", {"O4": ["max_u"] * 2, "O6": ["max_u"] * 2, "O8": ["w"], "O7": ["max_u"]}),
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


@by_name(["attention", "variance", "argmax", "moe_softmax_topk", "absmax_int8_gemm"])
def test_json_round_trips_and_holds_no_status(name: str) -> None:
    c = certificate(name)
    again = Certificate.from_json(c.to_json())
    assert again == c and again.spec_hash == c.spec_hash and pickle.loads(pickle.dumps(c)) == c
    assert "proved" not in c.to_json() and again.verify().proved
    assert form_of.__wrapped__(name).certificate.to_json() == c.to_json()  # derived anew


@by_name(["attention", "variance", "moe_switch"])
def test_no_obligation_can_be_left_out(name: str) -> None:
    data = json.loads(certificate(name).to_json())
    for i in range(len(data["obligations"])):
        fewer = data | {"obligations": data["obligations"][:i] + data["obligations"][i + 1 :]}
        with pytest.raises(CertificateError, match="missing or changed"):
            Certificate.from_json(json.dumps(fewer)).verify()


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


def test_a_pure_map_has_outputs_to_prove() -> None:
    u = ra.tensors("u[i,j]")
    report = ra.derive_incremental(ra.Spec(y=ra.log(ra.relu(u) + 1))).certificate.verify()
    assert report.proved and [f.obligation.law for f in report.findings] == ["O8"]


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
