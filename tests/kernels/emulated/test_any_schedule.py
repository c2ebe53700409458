"""Whatever schedule is asked for: it is refused, or the kernel gives the definition, in any order of threads."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.errors import RedalgError
from redalg.kernels.ir.schedule import Schedule
from tests.support.forms import Forms
from tests.support.profiles import examples
from tests.support.simulated import agree, run

LIST = "topk[j:3:t](x[i,j])"
TEXTS = {
    "position": "return at = argmin[j](x[i,j])",
    "softmax": "m = max[j](x[i,j]); e = exp(x[i,j] - m); return y = e/sum[j](e)",
    "several": "return v = var[j](x[i,j]), l = logsumexp[j](x[i,j]), "
    "t = sum[j](where(x[i,j] == max[j](x[i,j]), w[j], 0))",
    "list": f"return v = sum[t]({LIST}.values), p = max[t]({LIST}.indices), a = any[j](x[i,j] > 1)",
    "two passes": "m = mean[j](x[i,j]); return d = mean[j](abs(x[i,j] - m)), s = std[j](x[i,j]*w[j])",
}
FORMS = Forms(TEXTS, axis="j", max_passes=2)
SCHEDULES = st.builds(
    Schedule,
    threads=st.sampled_from([1, 2, 4, 8, 16, 32]),
    rows=st.sampled_from([1, 2, 4]),
    vector=st.sampled_from([1, 1, 2, 4]),
    tile=st.sampled_from([1, 2, 4, 8]),
    resident=st.booleans(),
    column=st.booleans(),
    cluster=st.sampled_from([1, 1, 2]),
    split=st.sampled_from([1, 1, 1, 2, 3]),
    persistent=st.sampled_from([False, False, True]),
    peel=st.sampled_from([False, False, True]),
    coarsen=st.sampled_from([1, 1, 2, 4]),
)


@examples(120)
@given(st.sampled_from(list(TEXTS)), SCHEDULES, st.integers(1, 5), st.sampled_from([3, 8, 17, 33]), st.booleans())
def test_it_is_refused_or_gives_the_definition(
    name: str, schedule: Schedule, rows: int, length: int, turned: bool
) -> None:
    rng = np.random.default_rng(length + rows)
    drawn = {"x": np.round(rng.normal(size=(rows, length)) * 2, 1), "w": rng.normal(size=length)}
    drawn["w"][np.argmin(drawn["x"][0])] = np.inf if name == "several" else 1  # which is never selected
    drawn["x"] = np.asfortranarray(drawn["x"]) if turned else drawn["x"]
    form = FORMS[name]
    arrays = {t.name: drawn[t.name] for t in form.spec.tensors}
    try:
        found, _, _ = run(form, arrays, schedule, rows)
    except RedalgError as refused:
        assert refused.where == "schedule=", refused
        return
    agree(form.spec, found, arrays, 1e-12)


@examples(12)
@given(st.sampled_from(["position", "softmax", "several", "two passes"]), st.integers(33, 64), st.sampled_from([1, 2]))
def test_one_thread_holds_a_column_of_up_to_64_elements(name: str, length: int, coarsen: int) -> None:
    schedule = Schedule(1, 64, 1, length, resident=True, column=True, exact=True, coarsen=coarsen)
    rng, rows = np.random.default_rng(length), 6
    drawn = {"x": np.asfortranarray(np.round(rng.normal(size=(rows, length)) * 2, 1)), "w": rng.normal(size=length)}
    drawn["x"][0, 3:9], drawn["x"][1], drawn["x"][2, 5] = drawn["x"][0, 3], -1, 5e-324
    form = FORMS[name]
    arrays = {t.name: drawn[t.name] for t in form.spec.tensors}
    try:
        found, _, _ = run(form, arrays, schedule, rows)
    except RedalgError as refused:
        assert name == "softmax" and coarsen == 2 and "shared memory" in str(refused), refused  # of its results
        return
    agree(form.spec, found, arrays, 1e-12)


def test_clusters_of_a_persistent_grid_write_once_all_blocks_have_begun() -> None:
    """Memory of a block that has not begun is not there; the emulator begins all at once."""
    fields = {"threads": 4, "rows": 32, "tile": 16, "resident": True, "column": True, "cluster": 2, "persistent": True}
    form = ra.derive_incremental(ra.parse("return v = var[j](x[j,i])"))
    source = ra.explore.kernel(form, {"i": 64, "j": 100}, schedule=Schedule(**fields)).source
    before, _, within = source.partition("while group")
    assert "cluster_sync()" in before and "cluster" in within
