"""Loops that end in masked vectors, which processors with vectors of 512 bits are given: against the definition."""

from __future__ import annotations

import numpy as np
import pytest

import redalg as ra
from redalg.kernels.cpu import build
from redalg.kernels.launch.store import Once
from tests.support.forms import form_of_text

TEXTS = {
    "sums": "m = max[j](x[i,j]); e = exp(x[i,j] - m); return p = e/sum[j](e)",
    "places": "return at = argmin[j](x[i,j]), any = any[j](x[i,j] > 2), n = sum[j](where(x[i,j] < 0, 1, 0))",
    "additions": "u = mean[j](x[i,j]); return s = sum[j](x[i,j]), v = sum[j]((x[i,j] - u)**2), y = x[i,j] - u",
    "columns": "u = mean[j](x[j,i]); return y = (x[j,i] - u)*w[j], at = argmax[j](x[j,i])",
}
LENGTHS = (1, 15, 16, 17, 63, 64, 65, 127, 128, 255, 256, 331)


@pytest.fixture
def masked(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setattr(build, "masks", lambda: True)
    monkeypatch.setattr(build, "_once", Once())
    monkeypatch.setenv("REDALG_CACHE_DIR", str(tmp_path))


@pytest.mark.parametrize(
    "name, dtype",
    [
        ("sums", "float32"),
        ("additions", "float32"),
        ("additions", "float64"),
        ("places", "float64"),
        ("columns", "float32"),
    ],
)
def test_every_length_around_a_vector(masked: None, name: str, dtype: str) -> None:
    form = form_of_text(TEXTS[name], "j")
    run, rng = form.compile("cpu"), np.random.default_rng(5)
    for n in LENGTHS:
        x = rng.integers(-3, 4, (9, n)).astype(dtype)
        x[1, rng.integers(n)] = -np.inf
        x[2, rng.integers(n)] = np.nan
        given = {"x": x} if name != "columns" else {"x": x.T.copy(), "w": x[0]}
        true, found = ra.reference(form.spec, **given), run(**given)
        for key, y in (found if isinstance(found, dict) else {"p": found}).items():
            bound = 8 * (n + 8) * np.finfo(dtype).eps if y.dtype.kind == "f" else 0
            np.testing.assert_allclose(y, true[key] if isinstance(true, dict) else true, rtol=bound, atol=4 * bound)


@pytest.mark.parametrize(
    "body, wish, loops",
    [
        ("store_float32(y, i, max(load_float32(x, i), s))", "llvm.loop.unroll.disable", 2),  # whole vectors, and masked
        ("s = s + load_float32(x, i)", "llvm.loop.unroll.disable", 1),
        ("s = max(s, load_float32(x, i))", "llvm.loop.vectorize.predicate.enable", 1),
        ("s = s + exp_f32(load_float32(x, i))", "llvm.loop.vectorize.predicate.enable", 1),
    ],
)
def test_loops_ask_for_masks(masked: None, body: str, wish: str, loops: int) -> None:
    """The test above would pass without any."""
    text = build.llvm_text(SOURCE.format(body=body), ["f"], ["i64"] * 4)
    assert text.count(f'"{wish}"') == 1
    assert text.count(", !llvm.loop !") == loops


@pytest.mark.parametrize(
    "body, word", [("store_float32(y, i, load_float32(x, i))", "store"), ("s = s + load_float32(x, i)", "load")]
)
def test_loops_are_written_out(masked: None, body: str, word: str) -> None:
    source = SOURCE.format(body=body).replace("@njit", '@njit(fastmath={"reassoc"})')
    text = build.llvm_text(source, ["f"], ["i64"] * 4)
    assert f'@"llvm.masked.{word}.' in text


SOURCE = """
from redalg.kernels.cpu.math.functions import exp_f32
from redalg.kernels.cpu.memory import load_float32, pointer_float32, store_float32
import numpy as np
@njit
def f(x, y, low, high):
    x = pointer_float32(x)
    y = pointer_float32(y)
    s = np.float32(0)
    for i in range(low, high):
        {body}
    store_float32(y, 0, s)
"""
