"""Long rows in splits on the CPU: every form against its definition, and the same bits for every number of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.kernels.cpu import schedule as cpu_schedule
from redalg.kernels.cpu import walk as cpu_walk
from redalg.kernels.cpu.schedule import CpuSchedule, span_of
from redalg.kernels.programs import lower
from tests.support.cpu_cases import ROUNDED, agree, by_name
from tests.support.forms import form_of

SPAN = 16
THREADS = (1, 2, 3, 7)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of 16 elements, and threads for rows of any length."""
    monkeypatch.setattr(cpu_schedule, "SPAN", SPAN)
    monkeypatch.setattr(cpu_schedule, "FEWEST", SPAN)
    monkeypatch.setattr(cpu_walk, "SHARE", 1e-3)
    monkeypatch.setenv("REDALG_THREADS", "3")


def split(form: Any) -> Any:
    return form.compile("cpu", schedule="split")


def same_bits(a: Any, b: Any) -> bool:
    return np.array_equal(np.asarray(a).view(np.uint8), np.asarray(b).view(np.uint8))


NAMES = (  # slots and moves of every kind the catalog has
    "attention",
    "attention_causal",
    "attention_sink",
    "cross_entropy",
    "fp8_per_token_gemm",
    "kurtosis",
    "layer_norm",
    "layer_norm_gemm",
    "linear_regression",
    "max_deviation",
    "moe_renormalised",
    "pearson_correlation",
    "softmax",
    "three_sigma_outlier",
    "two_norm_safe",
    "weighted_geometric_mean",
)


@pytest.mark.parametrize("name", NAMES)
def test_forms_of_the_catalog_are_merged_from_pieces(name: str) -> None:
    """37 = 16 + 16 + 5 elements: three splits, the last one shorter, two for each of the first two threads."""
    entry, form = ra.catalog.entry(name), form_of(name)
    axis = entry.axis if isinstance(entry.axis, str) else entry.axis[0]
    arrays = entry.sample(3, dtype="float32", **{axis: 37})
    run = split(form)
    found = run(**arrays)
    agree(entry.spec, found, arrays, 2.0**-24, ROUNDED.get(name, 0.0))
    assert "splits" in run.schedule


@pytest.mark.parametrize("length", [0, 1, 2, 15, 16, 17, 31, 32, 33, 250])
@pytest.mark.parametrize("name", ["softmax", "variance", "argmax", "top_k"])
def test_any_length(name: str, length: int) -> None:
    if length == 0 and name == "argmax":
        return  # refused by the definition as well
    x = np.random.default_rng(length).standard_normal((2, length))
    agree(ra.catalog[name], split(form_of(name))(x=x), {"x": x}, 2.0**-53)


@pytest.mark.parametrize("rows", [1, 2, 8])
@pytest.mark.parametrize("name", ["softmax", "logsumexp", "variance", "layer_norm", "argmax", "skewness"])
def test_every_number_of_threads_gives_the_same_bits(name: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = ra.catalog.entry(name)
    arrays = entry.sample(5, dtype="float32", i=rows, j=333)
    run = form_of(name).compile("cpu", deterministic=True)
    found = []
    for threads in THREADS:
        monkeypatch.setenv("REDALG_THREADS", str(threads))
        found.append(run(**arrays))
    assert all(same_bits(found[0], f) for f in found)
    one = {k: v[:1] if np.ndim(v) == 2 else v for k, v in arrays.items()}
    assert same_bits(found[0][:1], run(**one))


SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 5e-324, 1.0, 1.0, 2.0]


@pytest.mark.parametrize("name", ["softmax", "logsumexp", "argmax", "absmax", "top_k"])
def test_special_values_ties_and_pieces_without_a_number(name: str) -> None:
    rng = np.random.default_rng(7)
    x = rng.choice(SPECIAL[1:], (60, 50))
    x[0], x[1] = -np.inf, 3.0
    x[2:12] = rng.choice([1.0, 2.0], (10, 50))
    x[12:20, :32] = -np.inf  # the first two splits hold nothing, and then one in the middle
    x[20:28, 16:32] = -np.inf
    x[28:40, rng.integers(0, 50, 12)] = np.nan
    found, true = (
        by_name(ra.catalog[name], v) for v in (split(form_of(name))(x=x), ra.reference(ra.catalog[name], x=x))
    )
    for output, value in true.items():
        np.testing.assert_allclose(found[output], value, rtol=1e-12, atol=1e-300)


def test_infinite_and_missing_elements_spread_as_the_definition_says() -> None:
    x = np.random.default_rng(1).standard_normal((6, 100))
    x[0, 3], x[1, 70], x[2, 99], x[3, 0] = np.nan, np.nan, np.inf, -np.inf
    for name in ("variance", "layer_norm"):
        arrays = ra.catalog.entry(name).sample(0, i=6, j=100) | {"x": x}
        agree(ra.catalog[name], split(form_of(name))(**arrays), arrays, 2.0**-53)


@pytest.mark.parametrize("view", ["transposed", "strided", "reversed", "broadcast"])
def test_strided_rows(view: str) -> None:
    from tests.support.cpu_cases import views

    x = views(np.random.default_rng(5).standard_normal((9, 77)))[view]
    for name in ("softmax", "variance", "argmax"):
        agree(ra.catalog[name], split(form_of(name))(x=x), {"x": np.array(x)}, 2.0**-53)


@pytest.mark.parametrize("axes", [("i", "j"), ("i", "k"), ("i", "j", "k")])
def test_several_axes_in_pieces(axes: Any) -> None:
    x = ra.tensors("x[i,j,k]")
    array = np.random.default_rng(2).standard_normal((7, 5, 6))
    mean = ra.mean(x, axes)
    spec = ra.Spec(v=ra.mean((x - mean) ** 2, axes), y=ra.exp(x - ra.max(x, axes)), at=ra.argmin(x, axes))
    agree(spec, split(ra.derive_incremental(spec, axis=axes))(x=array), {"x": array}, 2.0**-53)


def test_two_passes_hand_on_what_the_first_exports() -> None:
    x = ra.tensors("x[i,j]")
    spec = ra.Spec(d=ra.mean(ra.abs(x - ra.mean(x, "j")), "j"), y=x - ra.mean(x, "j"))
    form = ra.derive_incremental(spec, max_passes=2)
    array = np.random.default_rng(4).standard_normal((3, 200))
    run = split(form)
    agree(spec, run(x=array), {"x": array}, 2.0**-53)
    assert run.source.count("def d_y_") == 5  # fold and merge twice, write once


def test_a_monoid_that_does_not_commute_keeps_the_order_of_the_pieces() -> None:
    affine = ra.Monoid("affine", lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (1, 0))
    p, q = ra.tensors("p[i,j] q[i,j]")
    found = ra.reduce((p, q), "j", monoid=affine)
    spec = ra.Spec(a=found[0], b=found[1])
    rng = np.random.default_rng(0)
    arrays = {"p": rng.uniform(0.5, 1.5, (2, 150)), "q": rng.standard_normal((2, 150))}
    agree(spec, split(ra.derive_incremental(spec))(**arrays), arrays, 2.0**-53, 1e-10)


def test_integers_and_truths_are_merged_exactly() -> None:
    x, b = ra.tensors("x[i,j]", integer=True), ra.tensors("b[i,j]", bool=True)
    spec = ra.Spec(s=ra.sum(x, "j"), m=ra.min(x, "j"), any=ra.any(b, "j"), all=ra.all(b, "j"), n=ra.sum(b, "j"))
    rng = np.random.default_rng(3)
    arrays = {"x": rng.integers(-(2**40), 2**40, (4, 100)), "b": rng.integers(0, 2, (4, 100)).astype(bool)}
    arrays["b"][0], arrays["b"][1] = True, False
    found, true = split(ra.derive_incremental(spec))(**arrays), ra.reference(spec, **arrays)
    for name, value in true.items():
        np.testing.assert_array_equal(found[name], value)


def test_maps_are_shared_out_in_pieces() -> None:
    x = ra.tensors("x[i,j]")
    run = ra.derive_incremental(ra.Spec(y=x * 2 + 1)).compile("cpu")
    array = np.random.default_rng(8).standard_normal((1, 100))
    np.testing.assert_array_equal(run(x=array), array * 2 + 1)
    assert "splits" in run.schedule


def test_how_a_row_is_cut_depends_on_its_sizes_alone() -> None:
    form = form_of("attention_causal")
    program = lower(form, dict.fromkeys("QKV", "float32") | {"scale": float})
    cheap = lower(form_of("logsumexp"), {"x": "float32"})
    sizes = {"h": 1, "i": 1, "j": 10**6, "d": 2, "e": 2}
    assert span_of(cheap, {"i": 5, "j": 10}) == span_of(cheap, {"i": 1, "j": 10**6}) == SPAN
    assert span_of(program, sizes) == span_of(program, sizes | {"i": 9}) == SPAN
    assert CpuSchedule(split=True).family == "split" and CpuSchedule().family == "rows"


def test_wrong_numbers_of_threads_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("0", "-1", "two"):
        monkeypatch.setenv("REDALG_THREADS", text)
        with pytest.raises(ra.RedalgError) as error:
            split(form_of("variance"))(x=np.ones((1, 40)))
        assert error.value.what and error.value.fix
