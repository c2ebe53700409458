"""States along axes as single values of every thread, whole or in tiles: by emulation, in every family of schedules."""

from __future__ import annotations

import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import redalg as ra
from redalg.explore import kernel
from redalg.kernels.ir.program import Program
from redalg.kernels.programs import ROW_PROGRAM, program_of, tiled_programs, usual_dtypes
from redalg.kernels.rows import plan
from redalg.kernels.schedule.target import H200
from tests.support import forms
from tests.support.simulated import agree, run

COVARIANCE = "u = mean[j](X[j,a]); v = mean[j](X[j,b]); return C = mean[j]((X[j,a] - u)*(X[j,b] - v))"
TEXTS = {
    "inertia": str(ra.catalog["moment_of_inertia"]),
    "covariance": COVARIANCE,
    "weighted": "tensors Y[t,p], h[t] positive; s = sum[t](h[t]); "
    "u = sum[t](h[t]*Y[t,p])/s; v = sum[t](h[t]*Y[t,q])/s; "
    "return W = sum[t](h[t]*(Y[t,p] - u)*(Y[t,q] - v))/s",
    "scatter": "tensors X[j,a], g[j] integer, c[k]; "
    "return S = sum[j](where(eq(g[j], index[k]), (X[j,a] - c[k])*(X[j,b] - c[k]), 0))",
    "sums": "tensors X[j,a], g[j] integer, c[k,a]; return s = sum[j](where(eq(g[j], index[k]), X[j,a] - c[k,a], 0))",
    "product": "return P = sum[j](L[i,j]*R[j,k])",
    "furthest": "return m = max[j](abs(X[j,a] - X[j,b])), o = any[j](X[j,a] > 1.9)",
    "batches": "u = mean[j](X[i,j,a]); v = mean[j](X[i,j,b]); return C = mean[j]((X[i,j,a] - u)*(X[i,j,b] - v))",
}
WORDS = ("warp", "block", "cluster", "split", "column")


def form_of(name: str) -> Any:
    return ra.derive_incremental(ra.parse(TEXTS[name]), axis="t" if name == "weighted" else "j")


def drawn(form: Any, sizes: dict[str, int], seed: int) -> dict[str, Any]:
    rng, arrays = np.random.default_rng(seed), {}
    for t in form.spec.tensors:
        shape = [sizes[a] for a in t.axes]
        if t.array:
            arrays[t.name] = arrays[t.array]
        elif "integer" in t.domain:
            arrays[t.name] = rng.integers(-1, 4, shape)
        else:
            arrays[t.name] = rng.uniform(0.5, 2, shape).astype(np.float32)
    return arrays


def own(form: Any, arrays: dict[str, Any]) -> dict[str, Any]:
    return {t.name: arrays[t.name] for t in form.spec.tensors if not t.array}


@pytest.mark.parametrize("word", WORDS)
def test_every_family_computes_states_that_are_held_whole(word: str) -> None:
    """Unequal splits, the last of them empty."""
    form = form_of("inertia")
    arrays = drawn(form, {"j": 35, "d": 3}, 1)
    found, planned, _ = run(form, arrays, word, 1)
    assert planned.choice.schedule.family == word
    assert "cuda.local.array(COLUMNS" not in planned.module.source
    agree(form.spec, found, own(form, arrays), 1e-5)


SIZES = {"j": 11, "t": 9, "a": 3, "b": 3, "p": 2, "q": 2, "k": 3, "i": 3}
LONG = {**SIZES, "a": 9, "b": 7, "k": 18, "i": 5}
WHOLE = ("weighted", "scatter", "furthest", "batches")
TILES = ("covariance", "sums", "product")


@pytest.mark.parametrize("name, sizes", [*((n, SIZES) for n in WHOLE), *((n, LONG) for n in TILES)])
def test_states_agree_with_the_definition(name: str, sizes: dict[str, int]) -> None:
    """Tiles that end beyond an axis write nothing there."""
    form = form_of(name)
    arrays = drawn(form, sizes, len(name))
    program = program_of(form, _dtypes(arrays), ROW_PROGRAM)
    ways = list(tiled_programs(form, _dtypes(arrays), program, sizes))
    assert ways
    found, planned, _ = run(form, arrays, {"threads": 4}, 2)
    agree(form.spec, found, own(form, arrays), 1e-5)


@pytest.mark.parametrize("length, value", [(1, np.inf), (2, -np.inf), (5, np.inf), (5, np.nan)])
def test_values_that_are_no_numbers(length: int, value: float) -> None:
    form = form_of("covariance")
    arrays = drawn(form, {"j": length, "a": 3, "b": 3}, 5)
    arrays["X"][length // 2, 1] = value
    found, _, _ = run(form, arrays, "warp", None)
    agree(form.spec, found, own(form, arrays), 1e-5)


def test_entries_side_by_side_are_read_in_whole_vectors() -> None:
    """And one by one where a row starts elsewhere."""
    form = form_of("inertia")
    for shift in (0, 1):
        memory = np.random.default_rng(0).uniform(0.5, 2, (64 + shift) * 3).astype(np.float32)
        r = memory[shift : shift + 64 * 3].reshape(64, 3)
        arrays = {"r": r, "m": np.linspace(1, 2, 64, dtype=np.float32)}
        found, planned, _ = run(form, arrays, {"threads": 4, "vector": 4})
        assert (planned.module.source.count("load_float32x4(r, ") == 3) == (shift == 0)
        agree(form.spec, found, arrays, 1e-5)


@pytest.mark.parametrize("name, sizes", [("inertia", {"j": 67, "d": 3}), ("covariance", {"j": 130, "a": 3, "b": 3})])
@pytest.mark.parametrize("threads, vector, split", [(8, 4, 1), (32, 4, 2), (2, 2, 3)])
def test_lengths_that_are_no_multiple_of_a_vector(
    name: str, sizes: dict[str, int], threads: int, vector: int, split: int
) -> None:
    """Whole vectors of several entries each, and single elements behind the last of them."""
    form = form_of(name)
    arrays = drawn(form, sizes, 3)
    found, planned, _ = run(form, arrays, {"threads": threads, "vector": vector, "split": split, "peel": True}, 1)
    assert planned.choice.layout.packed and f"x{vector}(" in planned.module.source
    agree(form.spec, found, own(form, arrays), 1e-5)


@pytest.mark.parametrize("name, operand", [("covariance", "X"), ("product", "R")])
@pytest.mark.parametrize("width, shift, vector", [(8, 0, 4), (12, 2, 2), (8, 1, 1), (10, 0, 1)])
def test_neighbouring_entries_of_a_tile_come_in_one_load(
    name: str, operand: str, width: int, shift: int, vector: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the widest vectors that begin at all of their places; one by one where some tiles are cut."""
    fastest = plan._fastest
    monkeypatch.setattr(plan, "_fastest", lambda draft, ways: fastest(draft, ways[1:2]))
    form, rng = form_of(name), np.random.default_rng(width)
    arrays = drawn(form, {**SIZES, "j": 5, "a": width, "b": width, "k": width, "i": width}, 7)
    rows = len(arrays[operand])
    memory = rng.uniform(0.5, 2, shift + rows * width).astype(np.float32)
    arrays |= {n: memory[shift:].reshape(rows, width) for n in arrays if n.startswith(operand)}
    found, planned, _ = run(form, arrays, {"threads": 2}, 2)
    assert {w for n, w, _ in planned.choice.layout.adjacent if n == operand} == ({vector} if vector > 1 else set())
    assert (f"load_float32x{vector}({operand}" in planned.module.source) == (vector > 1)
    agree(form.spec, found, own(form, arrays), 1e-5)


@pytest.mark.parametrize("name, sizes", [("inertia", {"j": 67, "d": 3}), ("weighted", {"t": 45, "p": 2, "q": 2})])
def test_merges_divide_once_by_a_count(name: str, sizes: dict[str, int]) -> None:
    """And agree with the definition for counts whose reciprocals are rounded, also of small and large weights."""
    form = form_of(name)
    for scale in (1.0, 2.0**-122, 2.0**40):
        arrays = drawn(form, sizes, 11)
        masses = "m" if name == "inertia" else "h"
        arrays[masses] = arrays[masses] * np.float32(scale)
        found, planned, _ = run(form, arrays, {"threads": 4, "split": 3, "tile": 2}, 1)
        body = planned.module.source.partition("def combine(")[2].partition("@cuda.jit")[0]
        assert all(body.count(f"/ f32({count})") <= 1 for count in ("n", "n_b", "n_new")), body
        true = ra.reference(form.spec, **{n: a.astype(float) for n, a in own(form, arrays).items()})
        for output, value in (true if isinstance(true, dict) else {"W": true}).items():
            assert abs(found[output] - value).max() <= 1e-5 * abs(value).max(), output


def test_alike_entries_are_held_once() -> None:
    for name, axis, parts in (("covariance", "ab", 12), ("weighted", "pq", 10)):
        form = form_of(name)
        n = 3 if name == "covariance" else 2
        sizes = {"j": 64, "t": 64} | dict.fromkeys(axis, n)
        dtypes = usual_dtypes(form, "float32")
        (made, _), *_ = tiled_programs(form, dtypes, program_of(form, dtypes, ROW_PROGRAM), sizes)
        assert _entries(made) == parts, [x.name for x in made.passes[0].parts]


def test_a_small_state_is_predicted_at_the_rate_of_memory() -> None:
    """Of 2^24 particles, within 85 % of what reading them takes; beyond, the factor is told and warned of."""
    form, n = form_of("inertia"), 1 << 24
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = kernel(form, {"j": n, "d": 3}, "H200")
    assert 0.85 * made.seconds <= 16 * n / H200.reachable + H200.launch
    gram = ra.derive_incremental(ra.parse("return G = sum[j](X[j,a]*X[j,b])"))
    with pytest.warns(
        UserWarning, match=r"slow: .* times as long as reading .*(.|\n)*ordinary arithmetic, in tiles of 8"
    ):
        made = kernel(gram, {"j": 1 << 23, "a": 128, "b": 128}, "H200")
    assert any("times as long as reading" in line for line in made.reasons)


def _entries(program: Program) -> int:
    return sum(len(p.parts) for p in program.passes)


def _dtypes(arrays: dict[str, Any]) -> dict[str, str]:
    return {name: a.dtype.name for name, a in arrays.items()}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["cross_covariance", "covariance", "linear_regression", "pearson_correlation"])
def test_averages_about_first_guesses_of_narrow_elements(name: str, dtype: str) -> None:
    """A guess is the average of a part of the elements, whose number is known when these have been added."""
    entry = ra.catalog.entry(name)
    axis = entry.axis if isinstance(entry.axis, str) else entry.axis[0]
    for length in (1, 2, 77):
        given = entry.sample(3, dtype="float32", **{axis: length})
        arrays = {n: np.asarray(a).astype(getattr(ml_dtypes, dtype, dtype)) for n, a in given.items()}
        true = ra.reference(entry.spec, **{n: a.astype(np.float64) for n, a in arrays.items()})
        found, _, _ = run(forms.form_of(name), arrays)
        for output, value in found.items():
            one = true[output] if isinstance(true, dict) else true
            scale = max(1.0, float(np.max(np.abs(one[np.isfinite(one)]), initial=0)))
            np.testing.assert_allclose(np.asarray(value, np.float64), one, atol=0.02 * scale, rtol=0.02)
