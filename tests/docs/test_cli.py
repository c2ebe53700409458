"""The command line as a user meets it: exit status, what is printed where, errors in four parts."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import redalg as ra
from redalg.cli.demo import load_data, numpy_attention, numpy_layer_norm, pieces, stream
from redalg.cli.main import _kernel_without_gpu, main
from redalg.text.terminal import difference, progress, table
from tests.support.forms import form_of
from tests.support.places import ROOT

DATA = str(ROOT / "redalg" / "data" / "minilm_layer0.npz")
MAD = "return y = sum[j](abs(x[j] - sum[j](x[j]) / size[j]))"


@pytest.fixture
def sample(tmp_path: Path) -> str:
    path = tmp_path / "data.npz"
    np.savez(path, x=np.linspace(-1.0, 2.0, 24).reshape(2, 12), scale=np.float64(0.5))
    return str(path)


def _four_parts(text: str) -> bool:
    return all(f"{label}:" in text for label in ("refused", "where", "why", "try")) and "Traceback" not in text


def test_derive_by_name_prints_the_definition_and_the_form(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["derive", "variance"]) == 0
    out = capsys.readouterr().out
    assert out.strip() == str(ra.derive_incremental(ra.catalog["variance"], axis="j")).strip()
    assert "definition" in out and "combine" in out


def test_derive_from_text() -> None:
    assert main(["derive", "m = max[j](x[j]); s = sum[j](exp(x[j] - m)); return s"]) == 0


def test_derive_a_refusal_shows_the_witness_and_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["derive", MAD]) == 1
    out = capsys.readouterr().out
    verdict = ra.verdict(ra.parse(MAD))
    assert isinstance(verdict, ra.NotDecomposable)
    assert "not decomposable" in out and "s1  " in out and f"determinant: {verdict.witness.value}" in out


def test_a_refused_spec_may_derive_in_two_passes() -> None:
    assert main(["derive", MAD, "--max-passes", "2"]) == 0


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "softmax_denominator"]) == 0
    form = ra.derive_incremental(ra.catalog["softmax_denominator"], axis="j")
    assert capsys.readouterr().out.strip() == form.explain().strip()


def test_run_compares_with_the_definition_and_saves(
    sample: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.npz"
    assert main(["run", "softmax", sample, "--out", str(out)]) == 0
    assert "max error" in capsys.readouterr().out
    x = np.load(sample)["x"]
    e = np.exp(x - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(np.load(out)["y"], e / e.sum(axis=1, keepdims=True), rtol=1e-12)


def test_run_reads_settings_from_the_file_or_as_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["--set", "x=embedding", "--set", "weight=ln_weight", "--set", "bias=ln_bias", "--set", "eps=1e-12"]
    assert main(["run", "layer_norm", DATA, *names]) == 0
    assert "(234, 384)" in capsys.readouterr().out


@pytest.mark.parametrize(
    "number", ["9007199254740993", "-9223372036854775807", "3", "0.5", "1e2", "-inf", "nan", " 7 "]
)
def test_numbers_are_those_that_python_reads(number: str, tmp_path: Path) -> None:
    data, out = tmp_path / "data.npz", tmp_path / "out.npz"
    np.savez(data, x=np.array([1, 0]))
    with np.errstate(invalid="ignore"):
        assert main(["run", "return y = c*max[j](x[j])", str(data), "--set", f"c={number}", "--out", str(out)]) == 0
    value = eval(number, {"inf": np.inf, "nan": np.nan})
    found = np.load(out)["y"]
    assert found.dtype == (np.int64 if isinstance(value, int) else np.float64)
    assert found.item() == value or value != value


@pytest.mark.parametrize(
    "arguments",
    [
        ["derive", "atention"],
        ["derive", "return y = sum[j](x[j]"],
        ["derive", "variance", "--axis", "z"],
        ["derive", "__import__('os').system('true')"],
        ["derive", ""],
        ["derive"],
        ["fly"],
        [],
        ["run", "softmax", "/nowhere/data.npz"],
        ["run", "softmax", str(ROOT / "LICENSE")],
        ["run", "softmax", DATA],
        ["run", "softmax", DATA, "--set", "x=nothing"],
        ["run", "softmax", DATA, "--set", "x=tokens"],
        ["run", "softmax", DATA, "--set", "x=scale"],
        ["run", "softmax", DATA, "--set", "x=embedding", "--set", "z=1"],
        ["run", "softmax", DATA, "--set", "x=embedding", "--out", "/nowhere/out.npz"],
        ["source", "softmax", "--target", "abacus"],
        ["verify", "certificate.json"],
        ["catalog", "atention"],
    ],
    ids=" ".join,
)
def test_what_cannot_be_done_is_a_four_part_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 3
    assert _four_parts(capsys.readouterr().err)


def test_verify_reads_certificates_of_derivatives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "derivative.json"
    file.write_text(ra.catalog["softmax"].vjp().certificate.to_json())
    assert main(["verify", str(file)]) == 0
    said = capsys.readouterr().out
    assert "derivative of y by x" in said and "exp: x̄ = ȳ·(y) (d_exp)" in said and "2 proved" in said
    assert main(["verify", str(file), "--smt", str(tmp_path)]) == 3
    assert _four_parts(capsys.readouterr().err)


def test_catalog_lists_and_shows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["catalog"]) == 0
    assert set(ra.catalog) <= set(capsys.readouterr().out.split())
    assert main(["catalog", "layer_norm"]) == 0
    assert ra.catalog.entry("layer_norm").source in capsys.readouterr().out


def test_source_prints_code_that_compiles(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["source", "variance"]) == 0
    compile(capsys.readouterr().out, "<generated>", "exec")


def test_source_of_a_gpu_needs_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["source", "softmax", "--target", "cuda"]) == 0
    said = capsys.readouterr()
    compile(said.out, "<generated>", "exec")
    assert "@cuda.jit" in said.out
    assert "@cuda.jit" in _kernel_without_gpu(form_of("softmax"))
    assert "no GPU can be used here: the kernel for an H200, float32, i=64, j=4096" in capsys.readouterr().err


def test_progress_speaks_only_after_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("quick"):
        pass
    assert capsys.readouterr().err == ""
    with progress("slow"):
        time.sleep(1.2)
    assert "slow" in capsys.readouterr().err


def test_a_table_is_aligned() -> None:
    assert table([["a", 1], ["bb", 22]]) == "a   1\nbb  22"


def test_difference_treats_special_values_by_name() -> None:
    assert difference([np.nan, np.inf, 2.0], [np.nan, np.inf, 4.0]) == (2.0, 0.5)
    assert difference([np.nan], [1.0])[0] == np.inf
    assert difference(np.zeros((0, 3)), np.zeros((0, 3))) == (0.0, 0.0)
    with pytest.raises(ra.RedalgError):
        difference(np.zeros(2), np.zeros(3))


# --- the demo --------------------------------------------------------------------------------------------------------


def test_the_demo_shows_its_parts() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "redalg", "demo"], capture_output=True, text=True, cwd=ROOT, timeout=300
    )
    assert done.returncode == 0, done.stderr
    for part in ("Attention", "LayerNorm", "the form against plain NumPy", "not decomposable", "determinant"):
        assert part in done.stdout


def test_the_demo_has_an_empty_piece_and_covers_the_axis() -> None:
    parts = pieces(234)
    assert any(p.start == p.stop for p in parts) and len({p.stop - p.start for p in parts}) == len(parts)
    assert parts[0].start == 0 and parts[-1].stop == 234


def test_attention_on_the_real_input_agrees_with_plain_numpy() -> None:
    data = load_data()
    arguments = {"Q": data["Q"], "K": data["K"], "V": data["V"], "scale": float(data["scale"])}
    form = ra.derive_incremental(ra.catalog["attention_scaled"])
    assert difference(stream(form, arguments, "j")["O"], numpy_attention(**arguments))[1] < 1e-5


def test_layer_norm_on_the_real_input_agrees_with_plain_numpy() -> None:
    data = load_data()
    arguments = {"x": data["embedding"], "weight": data["ln_weight"], "bias": data["ln_bias"], "eps": 1e-12}
    form = ra.derive_incremental(ra.catalog["layer_norm"])
    assert difference(stream(form, arguments, "j")["y"], numpy_layer_norm(**arguments))[1] < 1e-5
