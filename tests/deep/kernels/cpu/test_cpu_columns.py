"""Streams that are not contiguous on the CPU: rows side by side, walked together, against the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.kernels.code.optimise import optimised
from redalg.kernels.code.processor import machine
from redalg.kernels.cpu import schedule as cpu_schedule
from redalg.kernels.cpu import walk as cpu_walk
from redalg.kernels.cpu.build import kinds_of, llvm_text
from redalg.kernels.cpu.kernel import RANGE
from tests.support.assembly import packed
from tests.support.cpu_cases import agree

A = ra.tensors("x[i,j]")
TOP = ra.max(A, "i")
E = ra.exp(A - TOP)
MEAN = ra.mean(A, "i")
SPECS = {
    "sum": ra.Spec(y=ra.sum(A, "i")),
    "variance": ra.Spec(v=ra.mean((A - MEAN) ** 2, "i"), m=MEAN),
    "softmax": ra.Spec(y=E / ra.sum(E, "i")),
    "logsumexp": ra.Spec(y=TOP + ra.log(ra.sum(E, "i")), top=TOP),
    "extrema": ra.Spec(at=ra.argmax(A, "i"), low=ra.argmin(A, "i"), least=ra.min(A, "i")),
    "weighted": ra.Spec(y=ra.sum(ra.tensors("w[i]") * A * ra.tensors("c[j]"), "i")),
    "normalised": ra.Spec(y=(A - MEAN) / ra.sqrt(ra.mean((A - MEAN) ** 2, "i") + 1) * ra.tensors("w[i]")),
    "place": ra.Spec(at=ra.argmin(ra.tensors("w[i]") * (1 + MEAN**2), "i"), y=A - MEAN),
    "masked": ra.Spec(y=ra.sum(ra.where(ra.index("i") <= ra.index("j"), A, 0), "i")),
}


@pytest.fixture(params=["whole", "splits"])
def walked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Columns in one split, and in splits of 16 elements; small tiles and small calls on 3 threads either way."""
    monkeypatch.setattr(cpu_schedule, "SPAN", 16)
    monkeypatch.setattr(cpu_schedule, "FEWEST", 16 if request.param == "splits" else 1 << 20)
    monkeypatch.setattr(cpu_walk, "SHARE", 1e-3)
    monkeypatch.setenv("REDALG_THREADS", "3")
    return str(request.param)


def compiled(name: str) -> Any:
    return ra.derive_incremental(SPECS[name], axis="i").compile("cpu")


def drawn(name: str, shape: tuple[int, int], seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    given = {"x": rng.standard_normal(shape), "w": rng.standard_normal(shape[0]), "c": rng.standard_normal(shape[1])}
    return {t.name: given[t.name] for t in SPECS[name].tensors}


@pytest.mark.parametrize("name", sorted(SPECS))
def test_columns_agree_with_the_definition(name: str, walked: str) -> None:
    """A block and a bit of columns, tiles and splits whose last ones are shorter."""
    arrays, run = drawn(name, (150, 1030)), compiled(name)
    agree(SPECS[name], run(**arrays), arrays, 2.0**-53)
    assert "side by side along j" in run.schedule and ("splits" in run.schedule) == (walked == "splits")


@pytest.mark.parametrize("length", [0, 1, 2, 15, 16, 17, 33, 64, 65, 129])
def test_any_length(length: int, walked: str) -> None:
    for name in ("variance", "softmax", "weighted", "place"):
        arrays = drawn(name, (length, 9), length)
        agree(SPECS[name], compiled(name)(**arrays), arrays, 2.0**-53)


@pytest.mark.parametrize("length", [1, 3, 64, 70])
@pytest.mark.parametrize("name", ["softmax", "extrema", "normalised"])
def test_blocks_for_every_thread(name: str, length: int, walked: str) -> None:
    """Fewer columns than a block has at most, in streams of one tile and of two; rows of one element, too."""
    for columns in (9, 128, 129, 300, 1500):
        arrays = drawn(name, (length, columns))
        agree(SPECS[name], compiled(name)(**arrays), arrays, 2.0**-53)
        if length == 1:
            alike = arrays | {"x": np.ascontiguousarray(arrays["x"].T).T}
            agree(SPECS[name], compiled(name)(**alike), alike, 2.0**-53)


@pytest.mark.parametrize("columns", [0, 1, 7, 8, 31, 1024, 1025])
def test_any_number_of_columns(columns: int, walked: str) -> None:
    for name in ("softmax", "extrema"):
        arrays, run = drawn(name, (40, columns), columns), compiled(name)
        agree(SPECS[name], run(**arrays), arrays, 2.0**-53)
        if columns:
            assert ("side by side" in run.schedule) == (columns >= 8)


SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 5e-324, 1.0, 1.0, 2.0]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["softmax", "logsumexp", "extrema"])
def test_special_values_and_ties(name: str, dtype: str, walked: str) -> None:
    rng = np.random.default_rng(7)
    x = rng.choice(SPECIAL, (50, 300))
    x[:, 0], x[:, 1], x[:, 2] = -np.inf, 3.0, np.inf
    x[:, 3:100] = rng.choice([1.0, 2.0, -np.inf], (50, 97))
    x[:33, 100:140] = -np.inf  # tiles and splits that hold nothing
    x = x.astype(dtype)
    found, true = compiled(name)(x=x), ra.reference(SPECS[name], x=x.astype(np.float64))
    for output, value in found.items() if isinstance(found, dict) else [("y", found)]:
        expected = true[output] if isinstance(true, dict) else true
        tiny = 1e-12 if dtype == "float64" else 50 * 2.0**-22  # 50 terms, a few functions each
        np.testing.assert_allclose(value, expected, rtol=tiny, atol=1e-37)


def test_every_number_of_threads_gives_the_same_bits(walked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("variance", "softmax", "extrema"):
        arrays, run = drawn(name, (90, 1100)), compiled(name)
        found = []
        for threads in (1, 2, 3, 7):
            monkeypatch.setenv("REDALG_THREADS", str(threads))
            value = run(**arrays)
            found.append([np.array(v) for v in (value.values() if isinstance(value, dict) else [value])])
        for other in found[1:]:
            assert all(a.tobytes() == b.tobytes() for a, b in zip(found[0], other, strict=True))


@pytest.mark.parametrize("axis", ["i", "j", "k"])
def test_first_and_middle_axes_share_one_walk_for_all_that_follow_them(axis: str, walked: str) -> None:
    x = ra.tensors("x[i,j,k]")
    spec = ra.Spec(v=ra.mean((x - ra.mean(x, axis)) ** 2, axis), y=ra.exp(x - ra.max(x, axis)), b=ra.argmax(x, axis))
    array = np.random.default_rng(2).standard_normal((19, 18, 17))
    run = ra.derive_incremental(spec, axis=axis).compile("cpu")
    agree(spec, run(x=array), {"x": array}, 2.0**-53)
    assert ("side by side along " + {"i": "j,k", "j": "k", "k": "?"}[axis] in run.schedule) == (axis != "k")


def test_a_tensor_along_one_of_the_axes_that_lie_side_by_side(walked: str) -> None:
    x, c, d = ra.tensors("x[i,j,k] c[k] d[i,j]")
    spec = ra.Spec(s=ra.sum(x * c + d, "i"))
    rng = np.random.default_rng(3)
    arrays = {"x": rng.standard_normal((20, 5, 6)), "c": rng.standard_normal(6), "d": rng.standard_normal((20, 5))}
    run = ra.derive_incremental(spec, axis="i").compile("cpu")
    agree(spec, run(**arrays), arrays, 2.0**-53)
    assert "side by side along j,k" in run.schedule


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "int64", "bool"])
def test_narrow_dtypes(dtype: str, walked: str) -> None:
    import ml_dtypes

    x = ra.tensors("x[i,j]")
    spec = ra.Spec(s=ra.sum(x, "i"), m=ra.max(x, "i"), at=ra.argmax(x, "i"))
    array = np.random.default_rng(1).integers(0, 2 if dtype == "bool" else 8, (40, 33))
    array = array.astype(getattr(ml_dtypes, dtype, dtype))
    found, true = ra.derive_incremental(spec, axis="i").compile("cpu")(x=array), ra.reference(spec, x=array)
    for name in ("s", "m", "at"):
        assert found[name].dtype == true[name].dtype
        np.testing.assert_array_equal(found[name].astype(np.float64), true[name].astype(np.float64))


def test_columns_of_views_and_into_views(walked: str) -> None:
    base = np.random.default_rng(5).standard_normal((120, 80))
    run = compiled("softmax")
    for view in (base[::2, :40], base[::-1], base[:, 3:70], np.asfortranarray(base), base[:, ::2]):
        agree(SPECS["softmax"], run(x=view), {"x": np.array(view)}, 2.0**-53)
    out = np.full((120, 160), np.nan)
    run(x=base, out=out[:, ::2])
    np.testing.assert_array_equal(out[:, ::2], run(x=base))
    assert np.isnan(out[:, 1::2]).all()


def test_lists_and_monoids_are_walked_row_by_row(walked: str) -> None:
    x = ra.tensors("x[i,j]")
    best = ra.topk(x, 3, "i")
    spec = ra.Spec(v=best.values, at=best.indices)
    array = np.random.default_rng(6).standard_normal((50, 20))
    run = ra.derive_incremental(spec, axis="i").compile("cpu")
    agree(spec, run(x=array), {"x": array}, 2.0**-53)
    assert "side by side" not in run.schedule


def test_the_loops_over_columns_are_vector_instructions() -> None:
    for name in ("variance", "softmax", "extrema"):
        run, arrays = compiled(name), drawn(name, (64, 64))
        run(**{k: v.astype(np.float32) for k, v in arrays.items()})
        made = run._last[0].module
        text = llvm_text(made.source, [made.entry], kinds_of(made.params[: -len(RANGE)]))
        packed(machine().emit_assembly(optimised(text)), f"{name}, columns")
