"""Certificates of refusals are about a stage that an output needs, name it, and are read by the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import redalg as ra
from redalg.cli.main import main
from redalg.errors import CertificateError
from redalg.proofs import Refusal

REFUSED = {
    "deviation": "u = mean[j](x[j]); return y = sum[j](abs(x[j]-u))",
    "one of several": "u = mean[j](x[j]); return y = sum[j](abs(x[j]-u)), m = u, n = sum[j](x[j]**2)",
    "inside": "u = mean[j](x[j]); s = sum[j](relu(x[j]-u)); return y = exp(-s)/(1+s**2)",
    "product": "u = mean[j](x[j]); return y = prod[j](x[j]+u)",
    "rows": "u = mean[j](x[i,j]); return y = sum[j](tanh(x[i,j]-u))",
    "chosen": "u = mean[j](x[j]); s = sum[j](where(x[j] > u, x[j], 0)); return y = where(u > 0, s, 0)",
}


def refusal(name: str) -> Refusal:
    found = ra.verdict(ra.parse(REFUSED[name]))
    assert isinstance(found, ra.NotDecomposable)
    return found.certificate


def grafted(given: Refusal, outputs: dict[str, Any]) -> Refusal:
    """The certificate with other outputs around its stage; an output is a nested list over "stage" and numbers."""
    data = json.loads(given.to_json())
    rows = data["terms"]

    def term(e: Any) -> int:
        if e == "stage":
            return int(data["stage"])
        if isinstance(e, list):
            rows.append([e[0], *(term(a) for a in e[1:])])
        elif isinstance(e, str):
            rows.append(["true"] if e == "true" else ["const", e])
        else:
            return int(e)
        return len(rows) - 1

    data["spec"]["outputs"] = {name: term(e) for name, e in outputs.items()}
    data["spec_hash"] = ""
    with pytest.raises(CertificateError) as hashed:
        Refusal.from_json(json.dumps(data))
    data["spec_hash"] = str(hashed.value).split("hash ")[-1].split("\n")[0].strip()
    return Refusal.from_json(json.dumps(data))


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_stage_is_named_with_the_outputs_that_need_it(name: str) -> None:
    found = refusal(name).verify()
    assert found.outputs == ("y",) and "[j](" in found.stage and len(found.stage) <= 160
    assert {"deviation": "abs(", "product": "prod[", "rows": "tanh("}.get(name, "") in found.stage


@pytest.mark.parametrize(
    "output",
    [
        "3",
        ["mul", "0", "stage"],
        ["add", "stage", ["mul", "-1", "stage"]],
        ["pow", "stage", "0"],
        ["where", "true", "1", "stage"],
        ["add", "1", ["mul", ["add", "stage", ["mul", "-1", "stage"]], "7"]],
    ],
)
@pytest.mark.parametrize("name", ["deviation", "product"])
def test_a_stage_without_influence_refuses_nothing(name: str, output: Any) -> None:
    with pytest.raises(CertificateError) as error:
        grafted(refusal(name), {"y": output}).verify()
    assert "stage" in error.value.where


def test_a_stage_that_survives_elsewhere_still_refuses() -> None:
    given = refusal("deviation")
    both = grafted(given, {"none": ["mul", "0", "stage"], "some": ["add", "1", ["mul", "2", "stage"]]})
    assert both.verify().outputs == ("some",)


def test_stages_that_cancel_each_other_refuse_nothing() -> None:
    """Both sums of relu have no form; their difference is a sum of deviations, which has one."""
    text = "u = mean[j](x[j]); a = sum[j](relu(x[j]-u)); b = sum[j](relu(u-x[j])); return y = a {} b"
    assert isinstance(ra.verdict(ra.parse(text.format("-"))), ra.Form)
    refused = ra.verdict(ra.parse(text.format("+")))
    assert isinstance(refused, ra.NotDecomposable)
    certificate = refused.certificate
    assert certificate.verify().outputs == ("y",)
    data = json.loads(certificate.to_json())
    rows, total = data["terms"], data["spec"]["outputs"]["y"]
    op, first, second = rows[total]
    assert op == "add"
    rows += [["const", "-1"], ["mul", len(rows), second], ["add", first, len(rows) + 1]]
    data["spec"]["outputs"]["y"] = len(rows) - 1
    with pytest.raises(CertificateError) as hashed:
        Refusal.from_json(json.dumps(data))
    data["spec_hash"] = str(hashed.value).split("hash ")[-1].split("\n")[0].strip()
    with pytest.raises(CertificateError, match="no output is shown to need its value"):
        Refusal.from_json(json.dumps(data)).verify()


def test_the_command_line_reads_refusals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "refused.json"
    file.write_text(refusal("one of several").to_json(), encoding="utf-8")
    assert main(["verify", str(file)]) == 0
    out = capsys.readouterr().out
    assert "no form with fewer than 12 slots" in out and "abs(" in out and "in y\n" in out
    data = json.loads(file.read_text(encoding="utf-8"))
    data["matrix"][0][0] = "12345"
    file.write_text(json.dumps(data), encoding="utf-8")
    assert main(["verify", str(file)]) != 0
    assert "entry [0][0]" in capsys.readouterr().err
    file.write_text(refusal("deviation").to_json(), encoding="utf-8")
    assert main(["verify", str(file), "--rocq", str(tmp_path / "a.v")]) != 0
    file.write_text("[]", encoding="utf-8")
    assert main(["verify", str(file)]) != 0
