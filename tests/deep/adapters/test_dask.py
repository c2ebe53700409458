"""`form.dask`: the definition's results for any blocks, lazily, on threads and on workers that die."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from tests.support import engines
from tests.support.forms import form_of_text
from tests.support.profiles import examples

dask: Any = pytest.importorskip("dask")
da: Any = pytest.importorskip("dask.array")

GRID = "m = max[j](x[i,j]); e = exp(x[i,j] - m); return y = e / sum[j](e), v = var[j](x[i,j]), p = argmax[j](x[i,j])"


def in_blocks(x: Any, sizes: Any) -> Any:
    """An array in blocks of these lengths, empty ones among them."""
    cuts = np.cumsum([0, *sizes])
    parts = [dask.delayed(x[a:b]) for a, b in zip(cuts, cuts[1:], strict=False)]
    name = f"parts-{dask.base.tokenize(x, sizes)}"
    dsk = {(name, k): p.key for k, p in enumerate(parts)}
    graph = dask.highlevelgraph.HighLevelGraph.from_collections(name, dsk, dependencies=parts)
    return da.Array(graph, name, chunks=(tuple(sizes),), dtype=x.dtype)


@pytest.mark.parametrize("name", engines.TEXTS)
@examples(30)
@given(st.data())
def test_results_are_the_definitions(name: str, data: st.DataObject) -> None:
    columns, sizes = data.draw(engines.streams())
    form = engines.form(name)
    arrays = {n: in_blocks(x, sizes) for n, x in engines.columns_of(form, columns).items()}
    if data.draw(st.booleans()):  # unknown lengths
        for x in arrays.values():
            x._chunks = ((np.nan,) * len(sizes),)
    found = form.dask(**arrays, split_every=data.draw(st.integers(2, 4)), reread=data.draw(st.booleans()))
    lazily = engines.by_name(form, found)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # exp of what is not finite
        values = dict(zip(lazily, dask.compute(*lazily.values(), scheduler="sync"), strict=True))
    assert all(values[n].dtype == x.dtype for n, x in lazily.items())
    engines.check(form, values, columns)


@pytest.mark.parametrize("sizes", [(0, 0), (0, 1), (1, 0, 0), (0, 2, 0), (1, 1)])
def test_blocks_of_no_element_beside_another_array(sizes: tuple[int, ...]) -> None:
    """Dask joins the blocks of axes of length 0 or 1, which it would stretch."""
    n, rng = sum(sizes), np.random.default_rng(0)
    form = form_of_text("return y = sum[j](x[j]*X[i,j]), m = max[j](X[i,j])")
    x, X = rng.normal(size=n), rng.normal(size=(n, n))
    lazy = form.dask(x=da.from_array(x, chunks=(sizes,)), X=da.from_array(X, chunks=(sizes, sizes)))
    for name, wanted in ra.reference(form.spec, x=x, X=X).items():
        assert lazy[name].shape == wanted.shape
        np.testing.assert_allclose(lazy[name].compute(scheduler="sync"), wanted, rtol=1e-14)


@pytest.mark.parametrize("reread", [False, True])
def test_free_axes_stay_in_blocks_and_no_task_has_the_whole(reread: bool) -> None:
    x = np.random.default_rng(1).normal(size=(6, 50))
    form = form_of_text(GRID, "j")
    found = form.dask(x=da.from_array(x, chunks=(2, 7)), reread=reread)
    assert found["y"].chunks == ((2, 2, 2), (7,) * 7 + (1,)) and found["v"].chunks == ((2, 2, 2),)
    largest = 0

    class Sizes(dask.callbacks.Callback):  # type: ignore[misc]
        def _posttask(self, key: Any, value: Any, *rest: Any) -> None:
            nonlocal largest
            if isinstance(value, np.ndarray) and isinstance(key, tuple):  # not what is returned, nor the source
                largest = max(largest, value.size)

    with Sizes():
        values = dask.compute(found, optimize_graph=False, scheduler="sync")[0]
    assert 0 < largest <= 14
    for name, wanted in ra.reference(form.spec, x=x).items():
        np.testing.assert_allclose(values[name], wanted, rtol=1e-12)
        assert values[name].dtype == wanted.dtype == found[name].dtype


@pytest.mark.parametrize(
    "text", ["u = mean[j](x[j]); return y = mean[j](abs(x[j] - u))", "return y = x[j] / max[j](x[j])"]
)
def test_blocks_that_are_read_again_do_not_wait_in_memory(text: str) -> None:
    form = form_of_text(text, "j", 2)
    x = da.concatenate([da.from_delayed(dask.delayed(np.full)(4, k + 1.0), (4,), float) for k in range(20)])
    most = {}
    for reread in (False, True):
        most[reread] = 0

        class Alive(dask.callbacks.Callback):  # type: ignore[misc]
            def _posttask(self, key: Any, value: Any, dsk: Any, state: Any, worker: Any, reread: bool = reread) -> None:
                alive = {id(v) for v in state["cache"].values() if isinstance(v, np.ndarray) and v.size == 4}
                most[reread] = max(most[reread], len(alive))

        with Alive():
            form.dask(x=x, reread=reread).sum().compute(scheduler="sync")
    assert most[True] <= 4 < 20 <= most[False]


def test_contractions_bound_blocks_and_masks_of_positions() -> None:
    rng = np.random.default_rng(2)
    q, k, v = rng.normal(size=(2, 5, 4)), rng.normal(size=(2, 9, 4)), rng.normal(size=(2, 9, 3))
    form = ra.derive_incremental(ra.catalog["attention"])
    found = form.dask(
        Q=da.from_array(q, chunks=(1, 2, 2)), K=da.from_array(k, chunks=(2, 4, 3)), V=da.from_array(v, chunks=(1, 3, 2))
    )
    assert found.chunks == ((1, 1), (2, 2, 1), (2, 1))
    np.testing.assert_allclose(found.compute(), ra.reference(form.spec, Q=q, K=k, V=v), rtol=1e-12)
    masked = form_of_text("return y = sum[j](where(index[j] <= t[i], x[i,j], 0))", "j")
    x, t = rng.normal(size=(4, 30)), np.array([0, 3, 40, 7])
    found = masked.dask(x=da.from_array(x, chunks=(2, 7)), t=t)
    np.testing.assert_allclose(found.compute(), ra.reference(masked.spec, x=x, t=t), rtol=1e-12)
    unknown = da.from_array(x, chunks=(4, 7))
    unknown._chunks = ((4,), (np.nan,) * 5)
    with pytest.raises(ra.RedalgError, match="lengths of its blocks are not known"):
        masked.dask(x=unknown, t=t)


def test_the_tree_is_the_same_whoever_computes_it() -> None:
    x = np.random.default_rng(3).normal(size=10_000) * 1e8
    form = form_of_text("return v = var[j](x[j]), s = sum[j](exp(x[j] / 1e9))")
    found = [
        [
            np.asarray(y).tobytes()
            for y in dask.compute(*form.dask(x=da.from_array(x, chunks=101)).values(), scheduler=s)
        ]
        for s in ("sync", "threads", "threads")
    ]
    assert found[0] == found[1] == found[2]
    tree = [form.dask(x=da.from_array(x, chunks=c), deterministic=True)["v"].compute().tobytes() for c in (101, 999)]
    assert tree[0] == tree[1]


def test_columns_of_a_frame_with_nulls_and_an_empty_partition() -> None:
    dd, pd = pytest.importorskip("dask.dataframe"), pytest.importorskip("pandas")
    rng = np.random.default_rng(4)
    frame = pd.DataFrame(
        {"price": rng.normal(size=90), "volume": rng.integers(1, 9, 90), "day": np.repeat([1, 2, 3], 30)}
    )
    frame.loc[5, "price"] = np.nan
    parts = dd.from_pandas(frame, npartitions=9)
    form = form_of_text("return y = sum[j](x[j] * w[j]) / sum[j](w[j]), n = count[j](x[j] > -9)")
    kept = frame[frame.day != 2]
    filtered = parts[parts.day != 2]
    assert np.isnan(form.dask(filtered, x="price", w="volume")["y"].compute())
    found = form.dask(filtered, x="price", w="volume", nulls="skip")
    whole = kept.dropna()
    assert found["n"].compute() == len(whole)
    wanted = (whole.price * whole.volume).sum() / whole.volume.sum()
    np.testing.assert_allclose(found["y"].compute(), wanted, rtol=1e-13)
    with pytest.raises(ra.RedalgError, match="column 'cost'"):
        form.dask(parts, x="cost", w="volume")
    with pytest.raises(Exception, match="are null"):
        form.dask(filtered, x="price", w="volume", nulls="error")["y"].compute()


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"x": [1.0, 2.0]}, "without w"),
        ({"x": np.ones((2, 2)), "w": np.ones(2)}, "dimension"),
        ({"x": np.ones(3), "w": np.ones(2)}, "length"),
        ({"x": np.ones(2), "w": np.ones(2), "split_every": 1}, "two states"),
        ({"x": np.array(["a", "b"]), "w": np.ones(2)}, "dtype"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_runs(arguments: dict[str, Any], match: str) -> None:
    with pytest.raises(ra.RedalgError, match=match):
        form_of_text("return c = cov[j](x[j], w[j])").dask(**arguments)


def test_a_lost_or_repeated_block_is_refused() -> None:
    from redalg.adapters import blocks

    form = form_of_text("return s = sum[j](x[j])")
    empty = blocks.template(form, {}, None, (), ())
    for placed in (True, False):
        parts = [blocks.part(empty, 2 * k if placed else None, k, ["x"], [np.ones(2)]) for k in range(4)]
        assert blocks.results(blocks.total(empty, blocks.merged(empty, parts), 4, 8.0))["s"] == 8
        with pytest.raises(ra.RedalgError, match="not that of the whole"):
            blocks.total(empty, blocks.merged(empty, parts[:2] + parts[3:]), 4, 8.0)
        with pytest.raises(ra.RedalgError, match="both cover|is in both"):
            blocks.merged(empty, [*parts[:3], parts[1]])


# --- processes -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Any:
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with (
        distributed.LocalCluster(**options, memory_limit=0, silence_logs=50) as found,
        distributed.Client(found) as client,
    ):
        yield client


def _slow(x: Any) -> Any:
    time.sleep(0.05)
    return x


def test_workers_in_processes_and_one_that_is_killed(cluster: Any) -> None:
    x = np.random.default_rng(5).normal(size=(2, 6000))
    form = form_of_text(GRID, "j")
    wanted = ra.reference(form.spec, x=x)
    slow = da.from_array(x, chunks=(1, 150)).map_blocks(_slow, dtype=x.dtype)
    plain = cluster.compute(form.dask(x=da.from_array(x, chunks=(1, 2000)))["v"]).result()
    np.testing.assert_allclose(plain, wanted["v"], rtol=1e-12)
    pids = list(cluster.run(os.getpid).values())
    killed = threading.Timer(1.0, os.kill, (pids[0], signal.SIGKILL))
    found = form.dask(x=slow)
    futures = {name: cluster.compute(y) for name, y in found.items()}
    killed.start()
    values = {name: future.result(timeout=60) for name, future in futures.items()}
    killed.join()
    assert pids[0] not in cluster.run(os.getpid).values()
    for name, value in wanted.items():
        np.testing.assert_allclose(values[name], value, rtol=1e-12)


def test_progress_is_shown(capsys: Any) -> None:
    from dask.diagnostics import ProgressBar

    with ProgressBar():
        form_of_text("return s = sum[j](x[j])").dask(x=da.ones(100, chunks=10)).compute(scheduler="threads")
    assert "100%" in capsys.readouterr().out
