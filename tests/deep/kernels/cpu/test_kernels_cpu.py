"""`form.compile("cpu")` against the definition: the whole catalog, every dtype and layout, special values, edges."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import redalg as ra
from redalg.errors import RedalgError
from tests.support.cpu_cases import ROUNDED, agree, by_name, views
from tests.support.forms import form_of

NAMES = sorted(ra.catalog)


@pytest.mark.parametrize("name", NAMES)
def test_every_form_of_the_catalog_agrees_with_its_definition(name: str) -> None:
    entry, form = ra.catalog.entry(name), form_of(name)
    axis = entry.axis if isinstance(entry.axis, str) else entry.axis[0]
    arrays = entry.sample(3, dtype="float32", **{axis: 37})
    found = form.compile("cpu")(**arrays)
    agree(entry.spec, found, arrays, 2.0**-24, ROUNDED.get(name, 0.0))


@pytest.mark.parametrize("length", [0, 1, 2, 7, 1023, 1025, 8192, 8193, 20000])
def test_any_length_of_the_stream(length: int) -> None:
    x = np.random.default_rng(length).standard_normal((3, length))
    for name in ("softmax", "logsumexp", "variance", "argmax"):
        if length == 0 and name == "argmax":
            continue  # refused by the definition as well
        agree(ra.catalog[name], form_of(name).compile("cpu")(x=x), {"x": x}, 2.0**-53)


@pytest.mark.parametrize(
    "dtype",
    [
        "float64",
        "float32",
        "float16",
        "bfloat16",
        "float8_e4m3fn",
        "float8_e5m2",
        "int8",
        "uint8",
        "int16",
        "int32",
        "int64",
        "uint32",
        "bool",
    ],
)
def test_every_dtype_is_read_and_accumulated_wide(dtype: str) -> None:
    x, y = ra.tensors("x[i,j] y[i,j]")
    spec = ra.Spec(s=ra.sum(x, "j"), m=ra.max(x, "j"), at=ra.argmax(x, "j"))
    form = ra.derive_incremental(spec)
    drawn = np.random.default_rng(1).integers(0, 2 if dtype == "bool" else 8, (5, 300))
    array = drawn.astype(getattr(ml_dtypes, dtype, dtype))
    found, true = form.compile("cpu")(x=array), ra.reference(spec, x=array)
    for name in ("s", "m", "at"):
        assert found[name].dtype == true[name].dtype
        np.testing.assert_array_equal(found[name].astype(np.float64), true[name].astype(np.float64))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("name", ["softmax", "logsumexp", "softmax_entropy"])
def test_exponentials_of_narrow_elements_are_rounded_once(name: str, dtype: str) -> None:
    kind = getattr(ml_dtypes, dtype, np.float16)
    x = (3 * np.random.default_rng(2).standard_normal((5, 300))).astype(kind)
    found = form_of(name).compile("cpu")(x=x)
    unit = float(ml_dtypes.finfo(found.dtype).eps) / 2  # of the result's dtype: what rounding to it costs
    smallest = float(ml_dtypes.finfo(found.dtype).smallest_subnormal)
    wide = x.astype(np.float64)
    true = ra.reference(ra.catalog[name], x=wide)
    np.testing.assert_allclose(found.astype(np.float64), true, rtol=1.1 * unit, atol=smallest + 300 * 2.0**-24)


@pytest.mark.parametrize("name", ["softmax", "variance", "argmax", "logsumexp"])
def test_strided_views_are_read_where_they_are(name: str) -> None:
    x = np.random.default_rng(5).standard_normal((17, 65))
    run = form_of(name).compile("cpu")
    for view in views(x).values():
        agree(ra.catalog[name], run(x=view), {"x": np.array(view)}, 2.0**-53)


@pytest.mark.parametrize("axes", ["i", "j", "k", ("i", "j"), ("j", "k"), ("i", "j", "k"), ("i", "k")])
def test_first_middle_last_and_several_axes(axes: Any) -> None:
    x = ra.tensors("x[i,j,k]")
    array = np.random.default_rng(2).standard_normal((4, 5, 6))
    mean = ra.mean(x, axes)
    spec = ra.Spec(v=ra.mean((x - mean) ** 2, axes), y=ra.exp(x - ra.max(x, axes)))
    for given in (array, array.transpose(2, 0, 1).copy().transpose(1, 2, 0)):
        agree(spec, ra.derive_incremental(spec, axis=axes).compile("cpu")(x=given), {"x": given}, 2.0**-53)


SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 5e-324, 1e308, -1e308, 1.0]


@pytest.mark.parametrize("name", ["softmax", "logsumexp", "argmax", "absmax", "top_k"])
def test_special_values_and_ties(name: str) -> None:
    rng = np.random.default_rng(7)
    x = rng.choice(SPECIAL[:5] + [1.0, 1.0, 2.0], (200, 11))
    x[0], x[1] = -np.inf, 3.0
    spec = ra.catalog[name]
    found, true = (by_name(spec, v) for v in (form_of(name).compile("cpu")(x=x), ra.reference(spec, x=x)))
    for output, value in true.items():
        np.testing.assert_allclose(found[output], value, rtol=1e-12, atol=1e-300)


def test_a_monoid_that_does_not_commute_keeps_the_order_of_the_stream() -> None:
    def product(a: Any, b: Any) -> Any:
        return (
            a[0] * b[0] + a[1] * b[2],
            a[0] * b[1] + a[1] * b[3],
            a[2] * b[0] + a[3] * b[2],
            a[2] * b[1] + a[3] * b[3],
        )

    matrices = ra.Monoid("matrix_product", product, (1, 0, 0, 1))
    p, q = ra.tensors("p[i,j] q[i,j]")
    found = ra.reduce((p, q, 0, 1), "j", monoid=matrices)
    spec = ra.Spec(a=found[0], b=found[1])
    rng = np.random.default_rng(0)
    arrays = {"p": rng.uniform(0.5, 1.5, (3, 1500)), "q": rng.standard_normal((3, 1500))}
    agree(spec, ra.derive_incremental(spec).compile("cpu")(**arrays), arrays, 2.0**-53, 1e-10)


def test_results_do_not_depend_on_threads_or_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(3).standard_normal((64, 9000)).astype(np.float32)
    run = form_of("variance").compile("cpu", deterministic=True)
    whole = run(x=x)
    monkeypatch.setenv("REDALG_THREADS", "1")
    np.testing.assert_array_equal(whole, run(x=x))
    np.testing.assert_array_equal(whole[5:9], run(x=x[5:9]))


def test_out_receives_the_result_and_wrong_ones_are_refused() -> None:
    x = np.random.default_rng(4).standard_normal((3, 40))
    run = form_of("softmax").compile("cpu")
    out = np.empty((3, 40))
    assert run(x=x, out=out) is out
    np.testing.assert_array_equal(out, run(x=x))
    for wrong in (np.empty((3, 41)), np.empty((3, 40), np.float32), [0.0]):
        with pytest.raises(RedalgError) as error:
            run(x=x, out=wrong)
        assert error.value.fix
    frozen = np.zeros((3, 40))
    frozen.flags.writeable = False
    with pytest.raises(RedalgError, match="read-only"):
        run(x=x, out=frozen)
    assert not frozen.any()


def test_refusals_have_four_parts() -> None:
    form = form_of("softmax")
    run = form.compile("cpu")
    for call in (
        lambda: run(x=np.zeros(3)),
        lambda: run(),
        lambda: run(x=np.zeros((2, 3)), stream=1),
        lambda: form.compile("cpu", schedule="warp"),
    ):
        with pytest.raises(RedalgError) as error:
            call()
        assert error.value.what and error.value.where and error.value.why and error.value.fix


def test_runs_pickle_and_are_called_from_several_threads() -> None:
    x = np.random.default_rng(6).standard_normal((50, 700)).astype(np.float32)
    run = pickle.loads(pickle.dumps(form_of("softmax").compile("cpu")))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: run(x=x), range(8)))
    assert all(np.array_equal(found[0], y) for y in found)
    assert run.target == "cpu" and "def y_rows" in run.source and "cpu" in run.explain()


@pytest.mark.parametrize("shape", [(1, 1), (3, 50), (40, 3000)])
def test_maps_run_as_one_kernel(shape: tuple[int, int]) -> None:
    x, b, c = ra.tensors("x[i,j] b[i,j] c[j]")
    spec = ra.Spec(y=ra.log(ra.relu(x + b)), z=ra.maximum(x, c) * 2, s=c + 1)
    rng = np.random.default_rng(8)
    arrays = {"x": rng.standard_normal(shape), "b": rng.standard_normal(shape), "c": rng.standard_normal(shape[1])}
    found, true = ra.derive_incremental(spec).compile("cpu")(**arrays), ra.reference(spec, **arrays)
    for name, value in true.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-14)
