"""A row that leaves the range of its numbers on the way gives what the definition has, and never another number.

float32 elements near 1e25 have squares that are infinite, and those near 1e-25 squares that are 0: a LayerNorm of them
was its bias. Kernels mark such rows, which are computed anew in wider numbers (`redalg.kernels.cpu.rescue`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.kernels.cpu import rescue
from tests.support.range_cases import KEEPS, LEAST, MOST, agree, definition, drawn, form, named
from tests.support.sample import deep

SHAPES = ((1, 1), (3, 2), (5, 7), (20, 9), (4, 130))
WAYS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "rows": np.ascontiguousarray,
    "columns": np.asfortranarray,
    "gaps": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
}
_RUNS: dict[str, Any] = {}


def run(name: str) -> Any:
    return _RUNS.setdefault(name, form(name).compile("cpu"))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", ["layer norm", *deep(["several", "weighted mean"])])
@given(data=st.data())
def test_rows_of_any_size(name: str, data: st.DataObject) -> None:
    """Rows, columns and gaps; ordinary rows beside those out of range, which alone are computed otherwise."""
    dtype = data.draw(st.sampled_from(("float32", "float32", "float64")))
    powers = data.draw(st.lists(st.floats(LEAST[dtype] + 8, MOST[dtype] + 0.4), min_size=1, max_size=4))
    shape = data.draw(st.sampled_from(SHAPES))
    arrays = drawn(name, shape, dtype, powers, data.draw(st.integers(0, 99)))
    arrays["x"] = WAYS[data.draw(st.sampled_from(list(WAYS)))](arrays["x"])
    true = definition(name, arrays)
    for output, value in named(name, run(name)(**arrays)).items():
        agree(value, true[output])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", KEEPS)
@pytest.mark.parametrize("shape", ((6, 5), (6, 130)))
def test_results_in_the_place_of_operands(name: str, shape: tuple[int, int]) -> None:
    """What is computed anew is read before it is written over, also where rows hold infinities, NaN or zeros."""
    arrays = drawn(name, shape, "float32", [0, 25, -25, 38.4, 1, 0], 3)
    arrays["x"][4, 1] = np.inf
    arrays["x"][5] = 0
    plain = run(name)(**arrays)
    true = definition(name, arrays)[next(iter(form(name).spec.outputs))]
    agree(plain[:4], true[:4])
    for way in (np.ascontiguousarray, np.asfortranarray):
        x = way(arrays["x"].copy())
        assert run(name)(**{**arrays, "x": x}, out=x) is x
        np.testing.assert_allclose(x, plain, rtol=1e-5, equal_nan=True)
    out = np.empty_like(plain)
    np.testing.assert_array_equal(run(name)(**arrays, out=out), plain)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("threads", ["3", *deep(["1"])])
def test_long_rows_in_splits(threads: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Splits are merged before the row is looked at, and rows side by side have marks of their own."""
    monkeypatch.setenv("REDALG_THREADS", threads)
    for name in ("layer norm", "variance"):
        arrays = drawn(name, (3, 50000), "float32", [25, 0, -26], 5)
        (true,) = definition(name, arrays).values()
        for way in (np.ascontiguousarray, np.asfortranarray):
            found = run(name)(**{**arrays, "x": way(arrays["x"])})
            np.testing.assert_allclose(found, true, rtol=3e-3, atol=1e-5)


def test_only_such_rows_are_computed_anew(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Infinities, NaN, zeros and equal elements are what they are; a row out of range changes no bit of another."""
    shapes: list[Any] = []
    wide = rescue.run_wide

    def counted(form: Any, arrays: Any) -> Any:
        shapes.append(arrays["x"].shape)
        return wide(form, arrays)

    monkeypatch.setattr(rescue, "run_wide", counted)
    for name in ("layer norm", "rms norm"):
        for shape in ((8, 6), (8, 150)):
            arrays = drawn(name, shape, "float32", [0], 7)
            ordinary = run(name)(**arrays)
            x = arrays["x"]
            x[1, 2], x[2, 1], x[3], x[4] = np.inf, np.nan, 0, 3 if name == "layer norm" else 0
            run(name)(**arrays)
            assert not shapes
            x[6] *= np.float32(1e25)
            with caplog.at_level(logging.INFO, "redalg"):
                found = run(name)(**arrays)
            assert shapes == [(1, shape[1])] and "1 rows left the range of float32" in caplog.text
            np.testing.assert_array_equal(found[[0, 5, 7]], ordinary[[0, 5, 7]])
            np.testing.assert_allclose(found[6], ordinary[6], rtol=1e-5)
            assert np.isnan(found[[2, 3]]).all()
            assert "leaves the range of float32 are computed by NumPy in float64" in run(name).explain()
            shapes.clear()


@pytest.mark.parametrize("way", WAYS)
def test_rows_of_one_element_are_looked_at_by_nobody(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their variance is 0, unless the element is no number."""
    looked: list[Any] = []
    monkeypatch.setattr(rescue.Rescue, "__call__", lambda *given: looked.append(given))
    arrays = drawn("layer norm", (40, 1), "float32", [0, 25, -25], 3)
    true = definition("layer norm", arrays)
    arrays["x"] = WAYS[way](arrays["x"])
    for value in named("layer norm", run("layer norm")(**arrays)).values():
        agree(value, next(iter(true.values())))
    assert not looked
    arrays["x"][7] = np.inf
    run("layer norm")(**arrays)
    assert looked


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("length", (7, 130, 3000))
@pytest.mark.parametrize("name, value", [("rms norm", 0), *deep([("layer norm", 3)])])
def test_equal_elements_and_zeros_are_looked_at_by_nobody(
    name: str, value: float, length: int, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are what they are, also where results lie over them; what underflows beside them is not."""
    looked: list[Any] = []
    rescued = rescue.Rescue.__call__
    monkeypatch.setattr(rescue.Rescue, "__call__", lambda *given: (looked.append(given), rescued(*given)))
    arrays = drawn(name, (20, length), "float32", [0], 3)
    arrays["x"][5:8] = value
    arrays["x"] = WAYS[way](arrays["x"])
    true = next(iter(definition(name, arrays).values()))
    agree(run(name)(**arrays), true)
    arrays["x"][9] *= np.float32(1e-30)
    true = next(iter(definition(name, arrays).values()))
    assert not looked
    agree(run(name)(**{**arrays, "x": (x := arrays["x"].copy())}, out=x), true)
    assert looked


@pytest.mark.parametrize("name", ("softmax", "logsumexp", "argmax", "top_k", "l2_normalise", "crest_factor"))
def test_nothing_is_asked_of_sums_that_are_bounded(name: str) -> None:
    source = ra.derive_incremental(ra.catalog[name]).compile("cpu").source
    assert "marks" not in source
    halves = ra.derive_incremental(ra.catalog["layer_norm"]).compile("cpu")
    x = np.ones((3, 4), np.float16)
    halves(x=x, weight=x[0], bias=x[0], eps=1e-5)
    assert "marks" not in halves.source and "range:" not in halves.explain()


BESIDE = {  # a row reads what lies in other rows
    "own sums": "return y = sum[j](r[j,a]*sum[a](r[j,a] - u))",
    "ratio": "return y = sum[j](r[j,a]*sum[a](r[j,a])) / sum[j](r[j,a]**2) + u",
    "maximum beside": "return y = sum[j]((r[j,a] - u)**2*max[a](r[j,a])) / sum[j](r[j,a]**2)",
    "a tensor beside": "return y = sum[j](r[j,a]*sum[a](v[j,a])) / sum[j](r[j,a]**2) + u",
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", BESIDE)
def test_rows_that_read_other_rows_are_computed_with_these(name: str) -> None:
    """An axis bound inside and free outside: no row is taken alone, and a NaN in one row is in the sums of all."""
    form = ra.derive_incremental(ra.parse(BESIDE[name]), axis="j")
    rng, call = np.random.default_rng(7), form.compile("cpu")
    large, small = (12, -12) if name in ("own sums", "maximum beside") else (25, -25)  # what results are numbers for
    for n, rows, power in ((1, 2, 0), (1, 3, 0), (4, 3, large), (5, 2, small), (9, 5, 0), (40, 3, large)):
        for special in (None, np.nan, np.inf, -np.inf, 0.0):
            r = (rng.normal(size=(n, rows)) * 10.0**power).astype("float32")
            v = (rng.normal(size=(n, rows)) * 10.0**power).astype("float32")
            if special is not None:
                r[rng.integers(n), rng.integers(rows)] = v[rng.integers(n), rng.integers(rows)] = special
                r[:, 0] = 0 if rows == 5 else r[:, 0]
            arrays = {"r": r, "u": 0.25} | ({"v": v} if "v[" in BESIDE[name] else {})
            true = ra.reference(
                form.spec, **{k: np.asarray(x, "float64") if k != "u" else x for k, x in arrays.items()}
            )
            found = np.asarray(call(**arrays), "float64")
            narrow = np.asarray(true).astype("float32").astype("float64")
            assert np.array_equal(np.isnan(found), np.isnan(narrow)), (n, rows, power, special, found, true)
            np.testing.assert_allclose(found, narrow, rtol=2e-4, err_msg=str((n, rows, power, special)))


TRUTHS = {
    "a quantifier beside a mean": "tensors c[j] bool; return y = any[j](c[j]), z = mean[j](x[i,j]), w = all[j](c[j])",
    "a masked variance": "tensors c[j] bool; n = sum[j](where(c[j], 1, 0)); m = sum[j](where(c[j], x[i,j], 0))/n; "
    "return y = sum[j](where(c[j], (x[i,j] - m)**2, 0))/n",
}


@pytest.mark.parametrize("name", TRUTHS)
@pytest.mark.parametrize("length", [3, 40001, *deep([1025, 4097])])
@pytest.mark.parametrize("dtype", ["float32", *deep(["float64"])])
def test_truths_in_tiles_and_in_states_of_splits(name: str, length: int, dtype: str) -> None:
    """A truth in the buffer of a tile is one in the state that tiles and splits are merged to."""
    form = ra.derive_incremental(ra.parse(TRUTHS[name]), axis="j")
    rng = np.random.default_rng(length)
    x, c = rng.normal(size=(2, length)).astype(dtype), rng.random(length) < 0.5
    true = ra.reference(form.spec, x=x, c=c)
    found = form.compile("cpu")(x=x, c=c)
    for output, value in named_of(form, true).items():
        np.testing.assert_allclose(named_of(form, found)[output], value, rtol=1e-4, atol=1e-5)


def named_of(form: Any, values: Any) -> dict[str, Any]:
    return values if isinstance(values, dict) else {next(iter(form.spec.outputs)): values}


@pytest.mark.parametrize(
    "text",
    (
        "y = max[j](x[i,j]); return y",
        "at = argmin[j](abs(x[i,j])); y = 2*max[j](abs(x[i,j])); return at, y",
        "y = max[j](where(x[i,j] > 0, x[i,j], -oo)); return y",
        "y = max[j](x[i,j]**2); return y",
        "y = exp(x[i,j] - max[j](x[i,j])); return y",
    ),
)
def test_nothing_is_asked_of_extrema_of_numbers(text: str) -> None:
    """A number of the data leaves no range, and one that is a result by itself is an infinity where it should be."""
    assert "marks" not in ra.derive_incremental(ra.parse(text)).compile("cpu").source
