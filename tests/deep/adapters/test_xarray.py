"""`form.xarray`: dimensions by name, coordinates kept, groups, blocks of Dask."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from tests.support import engines
from tests.support.forms import form_of_text
from tests.support.profiles import examples

xr: Any = pytest.importorskip("xarray")
VARIANCE = "return v = var[time](x[time])"
WEIGHTED = "return y = sum[time](x[time,lat] * w[time]) / sum[time](w[time])"


def cube(dask: bool = False) -> Any:
    if dask:
        pytest.importorskip("dask.array")
    x = np.random.default_rng(0).normal(size=(12, 3, 4)) + 100
    coords = {"time": np.arange("2026-01", "2027-01", dtype="M8[M]").astype("M8[ns]"), "lat": [1.0, 2.0, 3.0]}
    coords["height"] = ("lat", [5.0, 6.0, 7.0])
    found = xr.DataArray(x, dims=("time", "lat", "lon"), coords=coords, name="temperature")
    return found.chunk(time=5, lat=2) if dask else found


@pytest.mark.parametrize("dask", [False, True])
def test_other_dimensions_are_mapped_over_and_coordinates_kept(dask: bool) -> None:
    x = cube(dask)
    found = form_of_text(VARIANCE).xarray(x.transpose("lon", "time", "lat"))
    wanted = x.var("time")
    assert set(found.dims) == {"lat", "lon"} and sorted(found.coords) == ["height", "lat"] and found.name == "v"
    assert (found.chunks is not None) == dask
    xr.testing.assert_allclose(found.transpose("lat", "lon").rename(None), wanted.rename(None), rtol=1e-12)


@pytest.mark.parametrize("dask", [False, True])
def test_variables_of_a_dataset_and_weights(dask: bool) -> None:
    x, w = cube(dask), xr.DataArray(np.arange(1.0, 13), dims="time", coords={"time": cube().time})
    data = xr.Dataset({"temperature": x, "w": w})
    found = form_of_text(WEIGHTED).xarray(data, x="temperature")
    xr.testing.assert_allclose(found.transpose("lat", "lon"), x.weighted(w).mean("time").rename("y"), rtol=1e-12)
    renamed = form_of_text("return a = mean[j](x[j]), z = x[j] - mean[j](x[j])").xarray(
        x=x[:, 0, 0], axes={"j": "time"}
    )
    xr.testing.assert_allclose(renamed.z, (x[:, 0, 0] - x[:, 0, 0].mean()).rename("z"), rtol=1e-9)
    assert sorted(renamed.z.coords) == ["height", "lat", "time"]


@pytest.mark.parametrize("dask", [False, True])
def test_groups_by_labels(dask: bool) -> None:
    x = cube(dask)
    found = form_of_text(VARIANCE).xarray(x=x, by=x.time.dt.quarter)
    wanted = x.groupby(x.time.dt.quarter).var("time")
    assert found.dims[0] == "quarter" and found.quarter.values.tolist() == [1, 2, 3, 4]
    assert (found.chunks is not None) == dask
    xr.testing.assert_allclose(found.transpose("quarter", "lat", "lon"), wanted.rename("v"), rtol=1e-10)


@pytest.mark.parametrize("name", [n for n, (_, passes) in engines.TEXTS.items() if n != "kept" and passes == 1])
@examples(15)
@given(st.data())
def test_groups_are_the_definitions(name: str, data: st.DataObject) -> None:
    columns, sizes = data.draw(engines.streams(["float64", "int64"]))
    n = sum(sizes)
    if not n:
        return
    form = engines.form(name)
    labels = np.array(data.draw(st.lists(st.sampled_from("abc"), min_size=n, max_size=n)))
    arrays = {k: xr.DataArray(v, dims="j") for k, v in engines.columns_of(form, columns).items()}
    if data.draw(st.booleans()):
        pytest.importorskip("dask.array")
        arrays = {k: v.chunk(j=data.draw(st.integers(1, 4))) for k, v in arrays.items()}
    found = form.xarray(by=xr.DataArray(labels, dims="j", name="label"), **arrays).compute()
    for label in np.unique(labels):
        own = {k: v[labels == label] for k, v in columns.items()}
        one = found.sel(label=label)
        values = {k: one[k].values for k in one} if isinstance(one, xr.Dataset) else one.values
        engines.check(form, values, own)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda f, x: f.xarray(x=x.rename(time="t")), "without the dimension 'time'"),
        (lambda f, x: f.xarray(), "without x"),
        (lambda f, x: f.xarray(x=x, y=x), "array named 'y'"),
        (lambda f, x: f.xarray(xr.Dataset({"a": x}), x="b"), "variable 'b'"),
        (lambda f, x: f.xarray(x=x, by=x.lat), "by with the dimensions"),
    ],
)
def test_what_does_not_fit_is_refused(call: Any, match: str) -> None:
    with pytest.raises(ra.RedalgError, match=match):
        call(form_of_text(VARIANCE), cube())


def test_other_coordinates_are_refused() -> None:
    x = xr.DataArray([1.0, 2.0], dims="j", coords={"j": [0, 1]})
    with pytest.raises(ra.RedalgError, match="other coordinates"):
        form_of_text("return c = cov[j](x[j], w[j])").xarray(x=x, w=x.assign_coords(j=[1, 2]))


@pytest.mark.parametrize("dask", [False, True])
@examples(6)
@given(st.data())
def test_groups_are_by_label_and_not_by_place(dask: bool, data: st.DataObject) -> None:
    """Labels in another order than the elements are refused; in their order they are each element's own."""
    x, form = cube(dask).isel(lat=0, lon=0, drop=True), form_of_text(VARIANCE)
    order = data.draw(st.permutations(range(12)))
    labels = xr.DataArray(np.arange(12) % 3, dims="time", coords={"time": x.time}, name="third")
    shuffled = labels.isel(time=list(order))
    if list(order) != sorted(order):
        with pytest.raises(ra.RedalgError, match="other coordinates"):
            form.xarray(x, by=shuffled)
    for by in (shuffled.reindex_like(labels), labels.data, labels.drop_vars("time")):
        found = form.xarray(x, by=by)
        for k in range(3):
            np.testing.assert_allclose(found[k], x.isel(time=np.arange(12) % 3 == k).var("time"), rtol=1e-12)


@pytest.mark.parametrize(
    ("text", "arrays", "options", "words"),
    [
        (VARIANCE, {"x": ("time", "lat")}, {"by": ("time", "lat")}, "two dimensions called 'lat'"),
        ("return y = w[k]*sum[j](x[j])", {"x": ("j", "k"), "w": ("k",)}, {}, "two dimensions called 'k'"),
        (VARIANCE, {"x": ("time",)}, {"axes": {"zz": "time"}}, "the axes are time"),
        ("return a = sum[time](x[time]), lat = sum[time](x[time])", {"x": ("time", "lat")}, {}, "no dataset"),
    ],
)
def test_names_that_would_be_there_twice_are_refused(text: str, arrays: Any, options: Any, words: str) -> None:
    lengths = {"time": 3, "lat": 2, "j": 3, "k": 2}
    held = {n: xr.DataArray(np.ones([lengths[d] for d in dims]), dims=dims) for n, dims in arrays.items()}
    held = {n: x.assign_coords({d: np.arange(lengths[d]) for d in x.dims}) for n, x in held.items()}
    if "by" in options:
        options = {"by": xr.DataArray([0, 1, 0], dims=options["by"][0], name=options["by"][1])}
    with pytest.raises(ra.RedalgError, match=words):
        form_of_text(text).xarray(**held, **options)


def test_dimensions_and_labels_of_any_kind() -> None:
    form = form_of_text(VARIANCE)
    for name in (0, "a b; 1", ("t", 1), "sum", "x", "v"):
        found = form.xarray(xr.DataArray(np.arange(6.0).reshape(2, 3), dims=(name, "time")))
        assert found.dims == (name,) and np.allclose(found, 2 / 3)
    x = xr.DataArray(np.arange(3.0), dims="time")
    with pytest.raises(ra.RedalgError, match="no order"):
        form.xarray(x, by=np.array(["a", None, "a"], object))
    assert form.xarray(x, by=[1.0, np.nan, np.nan]).values.tolist() == [0.0, 0.25]


COORDINATES = st.dictionaries(st.sampled_from(["lat", "station", "height", "run"]), st.integers(0, 1), max_size=3)


@examples(25)
@given(COORDINATES, COORDINATES, st.booleans())
def test_coordinates_are_those_of_xarrays_own_arithmetic(first: Any, second: Any, swapped: bool) -> None:
    """A vector cut out of an array carries where it was cut as a coordinate without a dimension."""
    x = xr.DataArray(np.arange(6.0).reshape(2, 3), dims=("lat", "j"), coords={"lat": [10, 20], "j": [0, 1, 2]})
    x = x.assign_coords({k: v for k, v in first.items() if k != "lat"})
    w = xr.DataArray([1.0, 2.0, 4.0], dims="j", coords={"j": [0, 1, 2]}).assign_coords(second)
    given_arrays = {"w": w, "x": x} if swapped else {"x": x, "w": w}
    found = form_of_text("return y = sum[j](x[lat,j]*w[j])").xarray(**given_arrays)
    own = (x * w.drop_vars("lat", errors="ignore")).sum("j")
    xr.testing.assert_identical(found.rename(None), own)


@given(st.lists(st.sampled_from("abc"), min_size=6, max_size=6))
def test_groups_of_a_form_of_two_passes_and_over_blocks(labels: list[str]) -> None:
    pytest.importorskip("dask.array")
    form = form_of_text("u = mean[time](x[time]); return y = mean[time](abs(x[time] - u))", max_passes=2)
    x = xr.DataArray(np.arange(6.0) ** 2, dims="time")
    found = form.xarray(x, by=labels)
    for label in set(labels):
        part = x.values[np.array(labels) == label]
        np.testing.assert_allclose(found.sel(group=label), np.abs(part - part.mean()).mean())
    with pytest.raises(ra.RedalgError, match="over blocks"):
        form.xarray(x.chunk(time=2), by=labels)
