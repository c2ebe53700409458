"""Forged certificates of refusals are refused in four parts, by the library and on the command line."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

import redalg as ra
from redalg.cli.main import main
from redalg.proofs.document.errors import CertificateError
from redalg.proofs.refusals.document import Refusal
from tests.support.forged_refusals import AT_THE_END, FALSE, HARMLESS, VANISHING, forged

TEXTS = {
    "sizes": "m = mean[j](x[j]); return y = sum[j](abs(x[j] - m))",
    "two outputs": "tensors c[j] bool; m = mean[j](x[j]); "
    "return y = sum[j](where(c[j], relu(x[j] - m), 0)), z = sum[j](x[j])",
    "whole numbers": "tensors k[j] integer; m = mean[j](k[j]); return y = sum[j](tanh(k[j] - m)**2)",
    "rows": "m = mean[j](x[i,j]); return y = sum[j](abs(x[i,j] - m)*exp(v[i])), z = max[j](x[i,j])",
    "positions": "m = mean[j](x[i,j]); return y = sum[j](where(index(j) <= index(i), abs(x[i,j] - m), 0))",
    "products": "m = mean[j](x[j]); return y = prod[j](1 + abs(x[j] - m))",
    "weights": "tensors w[j] positive; m = sum[j](w[j]*x[j])/sum[j](w[j]); return y = sum[j](w[j]*abs(x[j] - m))",
}
FORGED = VANISHING | FALSE


@cache
def refusal(name: str) -> Refusal:
    found = ra.verdict(ra.parse(TEXTS[name]))
    assert isinstance(found, ra.NotDecomposable)
    return Refusal.from_json(found.certificate.to_json())


@pytest.mark.parametrize("name", TEXTS)
def test_a_forged_refusal_is_refused_in_four_parts(name: str) -> None:
    changes = FORGED if name == "products" else FORGED | AT_THE_END
    for what, change in changes.items():
        try:
            text = forged(refusal(name), change)
        except AssertionError:
            continue  # it is so already
        with pytest.raises(CertificateError) as caught:
            pytest.fail(f"{what}: {Refusal.from_json(text).verify()}")
        assert all((caught.value.what, caught.value.where, caught.value.why, caught.value.fix)), what


@pytest.mark.parametrize("name", TEXTS)
def test_what_is_harmless_stays_proved(name: str) -> None:
    for change in HARMLESS.values():
        found = Refusal.from_json(forged(refusal(name), change)).verify()
        assert found.stage and found.outputs and found.excluded_slots == refusal(name).excluded_slots


@pytest.mark.parametrize("what", [*FORGED, *AT_THE_END])
def test_the_command_line_reads_refusals_and_refuses_forged_ones(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "refusal.json"
    file.write_text(refusal("sizes").to_json())
    assert main(["verify", str(file)]) == 0
    assert "refused: sum[j](abs(" in capsys.readouterr().out
    file.write_text(forged(refusal("sizes"), (FORGED | AT_THE_END)[what]))
    assert main(["verify", str(file)]) == 3
    told = capsys.readouterr().err
    assert all(part in told for part in ("refused:", "where:", "why:", "try:")) and "Traceback" not in told
