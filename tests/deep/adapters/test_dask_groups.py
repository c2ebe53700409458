"""`form.dask(by=)`: the definition's results of every group for any blocks, keys that appear late, lost partials."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.adapters import dask_groups
from tests.deep.adapters.test_dask import in_blocks
from tests.support import engines
from tests.support.forms import form_of_text
from tests.support.profiles import examples

dask: Any = pytest.importorskip("dask")
da: Any = pytest.importorskip("dask.array")
KEYS = {"numbers": np.array([-4, 0, 7, 10**12]), "words": np.array(["a", "b", "", "zz"])}
NAMES = [name for name, (_, passes) in engines.TEXTS.items() if passes == 1]


@pytest.mark.parametrize("name", NAMES)
@examples(20)
@given(st.data())
def test_every_group_is_as_alone(name: str, data: st.DataObject) -> None:
    columns, sizes = data.draw(engines.streams())
    form, length = engines.form(name), sum(sizes)
    arrays = {n: in_blocks(x, sizes) for n, x in engines.columns_of(form, columns).items()}
    kind = data.draw(st.sampled_from(sorted(KEYS)))
    keys = KEYS[kind][data.draw(st.lists(st.integers(0, 3), min_size=length, max_size=length))] if length else []
    keys = np.asarray(keys, KEYS[kind].dtype)
    lazy = in_blocks(keys, sizes)
    if data.draw(st.booleans()):  # unknown lengths
        for x in (*arrays.values(), lazy):
            x._chunks = ((np.nan,) * len(sizes),)
    sort = data.draw(st.booleans())
    found = form.dask(**arrays, by=lazy, split_every=data.draw(st.integers(2, 4)), sort=sort)
    names, values = dask.compute(*found, scheduler="sync")
    first = dict.fromkeys(keys.tolist())
    assert names.tolist() == (sorted(first) if sort else list(first))
    alone = form.grouped()
    alone.update(by=keys, **engines.columns_of(form, columns))
    wanted = alone.result(sort=sort)[1]
    wanted = wanted if isinstance(wanted, dict) else {next(iter(form.spec.outputs)): wanted}
    values = values if isinstance(values, dict) else {next(iter(wanted)): values}
    for key, expected in wanted.items():
        assert values[key].dtype == expected.dtype
        close = 64 * float(np.finfo(expected.dtype).eps) if expected.dtype.kind == "f" else 0
        finite = expected[np.isfinite(expected.astype(float))].astype(float)
        scale = max(float(np.abs(finite).max(initial=0)), engines._size(columns) ** 2)
        np.testing.assert_allclose(values[key], expected, rtol=close, atol=close * scale)
    for k, key in enumerate(names.tolist()):  # and the definition, where numbers are tame
        own = {n: x[keys == key] for n, x in engines.columns_of(form, columns).items()}
        if all(np.isfinite(x).all() and np.abs(x.astype(float)).max(initial=0) < 1e9 for x in own.values()):
            definition = ra.reference(form.spec, **own)
            for n, x in engines.by_name(form, definition).items():
                if n in form.spec.outputs and not form.spec.output_axes[n]:
                    got = values[n] if n in values else values[next(iter(values))]
                    eps = float(np.finfo(x.dtype).eps) if x.dtype.kind == "f" else 0
                    np.testing.assert_allclose(got[k], x, rtol=256 * eps, atol=256 * eps * engines._size(own) ** 2)


def test_frames_with_null_keys_several_columns_and_new_keys() -> None:
    dd, pd = pytest.importorskip("dask.dataframe"), pytest.importorskip("pandas")
    rng = np.random.default_rng(4)
    frame = pd.DataFrame({"shop": np.repeat(list("abc"), 30), "day": rng.integers(0, 3, 90), "x": rng.normal(size=90)})
    frame.loc[[5, 70], "shop"] = None
    parts, form = dd.from_pandas(frame, npartitions=9), form_of_text("return v = var[j](x[j])")
    found = form.dask(parts, by="shop", x="x")
    assert found.dtype == np.float64 and found.name == "v"
    wanted = frame.groupby("shop").x.var(ddof=0)
    pd.testing.assert_series_equal(found.compute(), wanted, check_names=False, check_index_type=False)
    two = form_of_text("return v = var[j](x[j]), p = argmax[j](x[j])")
    table = two.dask(parts[parts.shop != "b"], by=["shop", "day"], split_every=2).compute()
    groups = frame[frame.shop != "b"].groupby(["shop", "day"]).x
    np.testing.assert_allclose(table.v, groups.var(ddof=0), rtol=1e-12)
    assert table.p.tolist() == groups.apply(lambda g: int(g.to_numpy().argmax())).tolist()
    assert table.index.names == ["shop", "day"]
    skipped = frame.assign(x=frame.x.where(frame.day != 1))
    found = form.dask(dd.from_pandas(skipped, npartitions=4), by="shop", nulls="skip").compute()
    np.testing.assert_allclose(found, skipped.groupby("shop").x.var(ddof=0), rtol=1e-12)
    for call, match in (
        (lambda: form.dask(parts, by="shop", x="cost"), "column 'cost'"),
        (lambda: form.dask(parts, by=parts.shop, x="x"), "by its columns"),
        (lambda: form.dask(parts, by="shop", x="x", deterministic=True), "leave them out"),
        (lambda: form.dask(y=da.ones(3), by=[1, 2, 3]), "other arrays"),
        (lambda: form.dask(x=da.ones(3), by=np.ones((3, 2))), "keys are a column"),
        (lambda: form.dask(x=da.ones(3), by=[1, 2]), "not fit"),
        (lambda: engines.form("deviation").dask(x=da.ones(3), by=[1, 2, 3]), "one reading"),
    ):
        with pytest.raises(ra.RedalgError, match=match):
            call()


@pytest.mark.parametrize(
    "text", ["return y = sum[j](c[a]*x[j])", "return m = max[j](x[j]), y = topk[j:2:t](x[j]).values"]
)
def test_results_of_several_numbers_are_arrays(text: str) -> None:
    """Dask makes strings of objects, of eight digits and without what is in the middle of long ones."""
    dd, pd = pytest.importorskip("dask.dataframe"), pytest.importorskip("pandas")
    form, rng = form_of_text(text), np.random.default_rng(3)
    frame = pd.DataFrame({"shop": ["b", "a", "b", "a", "b"], "x": rng.normal(size=5)})
    given = {"c": rng.normal(size=1100)} if "c[a]" in text else {}
    lazy = form.dask(dd.from_pandas(frame, npartitions=2), by="shop", x="x", **given)
    found = {"y": lazy} if lazy.ndim == 1 else {n: lazy[n] for n in lazy.columns}
    for key, rows in frame.groupby("shop"):
        wanted = engines.by_name(form, ra.reference(form.spec, x=rows.x.to_numpy(), **given))
        for name, x in found.items():
            np.testing.assert_allclose(x.compute()[key], wanted[name], rtol=1e-14)
            assert not form.spec.output_axes[name] or x.dtype == object


def test_a_lost_or_repeated_partial_is_refused() -> None:
    form = form_of_text("return s = sum[j](x[j])")
    parts = [dask_groups.array_part(form, {}, "propagate", {"x": np.ones(2), "by": [k, 0]}, k) for k in range(4)]
    assert dask_groups.array_result(dask_groups.merged(parts), 4, True)["s"].tolist() == [5.0, 1.0, 1.0, 1.0]
    with pytest.raises(ra.RedalgError, match="3 of 4 blocks"):
        dask_groups.array_result(dask_groups.merged(parts[:3]), 4, True)
    with pytest.raises(ra.RedalgError, match="there twice"):
        dask_groups.merged([*parts, parts[2]])


def _slow(x: Any) -> Any:
    time.sleep(0.05)
    return x


def test_a_killed_worker_changes_no_group() -> None:
    distributed = pytest.importorskip("distributed")
    x, keys = np.random.default_rng(5).normal(size=4000), np.arange(4000) % 7
    form = form_of_text("return v = var[j](x[j])")
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with (
        distributed.LocalCluster(**options, memory_limit=0, silence_logs=50) as cluster,
        distributed.Client(cluster) as client,
    ):
        pids = list(client.run(os.getpid).values())
        slow = da.from_array(x, chunks=100).map_blocks(_slow, dtype=x.dtype)
        names, values = form.dask(x=slow, by=keys)
        futures = [client.compute(names), client.compute(values)]
        killed = threading.Timer(0.7, os.kill, (pids[0], signal.SIGKILL))
        killed.start()
        got = [f.result(timeout=60) for f in futures]
        killed.join()
        assert pids[0] not in client.run(os.getpid).values()
    assert got[0].tolist() == list(range(7))
    np.testing.assert_allclose(got[1], [x[keys == k].var() for k in range(7)], rtol=1e-12)
