"""GPU kernels mark rows that leave the range of their numbers on the way, and such rows are computed anew.

By emulation, over the families of schedules: what the kernel wrote, with marked rows repaired as for arrays of the
host, is the definition's; a row that is not out of range has the bits it has without the others; and a kernel that
marks nothing writes nothing.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.errors import RedalgError
from redalg.kernels.cuda import marks as marks_of_rows
from redalg.kernels.cuda.marks import RowMarks, marks_rows
from redalg.kernels.ir.schedule import Schedule
from tests.support.gpu_standins import host_marks
from tests.support.profiles import examples
from tests.support.range_cases import LEAST, MOST, TEXTS, agree, definition, drawn, form
from tests.support.simulated import no_marks, run

pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
FAMILIES: dict[str, Any] = {
    "chosen": None,
    "thread": "thread",
    "warp": "warp",
    "block": "block",
    "cluster": "cluster",
    "split": "split",
    "column": "column",
    "tiles": Schedule(threads=8, rows=4, tile=2),
    "tiles of a block": Schedule(threads=64, rows=1, tile=2),
    "prefetch": Schedule(threads=32, rows=1, tile=4, persistent=True, prefetch=128),
    "prefetch, held": Schedule(threads=8, rows=4, tile=8, resident=True, persistent=True, prefetch=64),
    "persistent": Schedule(threads=32, rows=1, tile=2, persistent=True),
    "staged": Schedule(threads=4, rows=8, tile=16, resident=True, staged=True),
    "several rows": Schedule(threads=8, rows=4, tile=8, resident=True, coarsen=2),
    "kept": Schedule(threads=32, rows=8, tile=4, column=True, kept=128),
    "resident column": Schedule(threads=4, rows=8, tile=16, column=True, resident=True),
    "cluster held": Schedule(threads=32, rows=1, tile=4, cluster=2, resident=True),
}


@pytest.fixture(autouse=True, scope="module")
def memory_of_the_host() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        host_marks(patch)
        yield


def repaired(name: str, arrays: dict[str, Any], way: Any, seed: int | None = None) -> tuple[dict[str, Any], RowMarks]:
    """What a call with arrays of the host gives, and what is known of its marks. Raises: RedalgError."""
    marks = no_marks()
    found, planned, _ = run(form(name), arrays, way, seed=seed, marks=marks)
    known = RowMarks(form(name), planned)
    known.table[:], known.word.value = marks["marks"], marks["marked"][0]
    told = known.word.value
    known.repaired(arrays, found)
    known.word.value = told
    return found, known


def check(name: str, arrays: dict[str, Any], way: Any, seed: int | None = None) -> RowMarks | None:
    try:
        found, known = repaired(name, arrays, way, seed)
    except RedalgError as refused:
        assert "schedule=" in refused.where or "Schedule" in refused.what or "schedule" in refused.what, refused
        return None
    for output, true in definition(name, arrays).items():
        x = arrays["x"]
        small = np.abs(np.where(np.isfinite(x), x, 0)).max(-1, initial=0) < np.finfo(x.dtype).smallest_normal
        rough = small[:, None] if true.ndim == 2 else small if true.ndim else np.asarray(small.any())
        agree(found[output], true, rough)
    return known


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", TEXTS)
def test_rows_of_all_sizes(name: str, family: str) -> None:
    """Ordinary rows beside those out of range, of an even and of an odd length."""
    for shape, powers in (((6, 37), [0, 25, -25, -21, 38.4, 1]), ((5, 16), [19.5, 0, -19, 30])):
        check(name, drawn(name, shape, "float32", powers, 3), FAMILIES[family], seed=5)
    check(name, drawn(name, (4, 24), "float64", [0, 200, -200, 1], 3), FAMILIES[family])


@examples(60)
@given(
    st.sampled_from(list(TEXTS)),
    st.sampled_from(list(FAMILIES)),
    st.sampled_from(["float32", "float64"]),
    st.integers(1, 9),
    st.sampled_from([1, 2, 3, 8, 17, 40]),
    st.lists(st.integers(0, 100), min_size=1, max_size=4),
    st.sampled_from(["", "inf", "nan", "zero", "equal"]),
    st.integers(0, 2**16),
)
def test_drawn_rows(
    name: str, family: str, dtype: str, rows: int, length: int, sizes: list[int], special: str, seed: int
) -> None:
    powers = [LEAST[dtype] + k * (MOST[dtype] - LEAST[dtype]) / 100 for k in sizes]
    arrays = drawn(name, (rows, length), dtype, [*powers, 0], seed)
    if special:
        at = seed % length
        row = arrays["x"][seed % rows]
        row[slice(None) if special in ("zero", "equal") else at] = {"inf": np.inf, "nan": np.nan, "zero": 0}.get(
            special, 3
        )
    check(name, arrays, FAMILIES[family], seed)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_runs_and_tells(family: str) -> None:
    """Schedules that are refused would show nothing above."""
    arrays = {n: drawn(n, (5, 16), "float32", [0, 25], 3) for n in TEXTS}
    known = [found for n in TEXTS if (found := check(n, arrays[n], FAMILIES[family])) is not None]
    assert len(known) >= 3 and any(k.word.value for k in known)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", ("layer norm", "rms norm", "mean"))
def test_what_is_told(name: str, family: str) -> None:
    """A row out of range is named; ordinary rows, zeros and equal elements are not, and change no bit of others."""
    arrays = drawn(name, (5, 24), "float32", [0], 7)
    marks = no_marks()
    try:
        plain, planned, moved = run(form(name), arrays, FAMILIES[family], marks=marks)
    except RedalgError:
        return
    assert marks_rows(planned) and not marks["marks"].any() and not marks["marked"].any()
    assert moved["marks marks"].stored == moved["marks marked"].stored == 0
    arrays["x"][1] = 0 if name != "layer norm" else 3
    run(form(name), arrays, FAMILIES[family], marks=marks)
    assert not marks["marked"].any()
    if name == "mean":  # averages of tiles are merged as such, and stay in the range
        return
    arrays["x"][3] = np.abs(arrays["x"][3]) * np.float32(3.4e38)
    found, known = repaired(name, arrays, FAMILIES[family])
    assert known.word.value == 4 and "at i = 3" in str(known.taken()) and known.rows == 1
    assert known.taken() is None
    for output, x in found.items():
        np.testing.assert_array_equal(x[[0, 2, 4]], plain[output][[0, 2, 4]])


def test_squares_that_vanish_are_told() -> None:
    arrays = drawn("rms norm", (3, 24), "float32", [0, -25, 0], 7)
    _, known = repaired("rms norm", arrays, None)
    assert known.word.value == 2 and known.rows == 1


@pytest.mark.parametrize("name", ("softmax", "logsumexp", "argmax", "l2_normalise"))
def test_nothing_is_asked_of_sums_that_are_bounded(name: str) -> None:
    found = ra.derive_incremental(ra.catalog[name])
    x = np.ones((3, 24), np.float32)
    assert not marks_rows(run(found, {"x": x})[1])


def test_a_warning_comes_once() -> None:
    arrays = drawn("mean", (2, 24), "float32", [0, 38.4], 1)
    arrays["x"] = np.abs(arrays["x"])
    _, known = repaired("mean", arrays, None)
    known.word.value = 2
    with pytest.warns(UserWarning, match="out of range: y at i = 1"):
        known.tell()
    known.word.value = 2
    known.tell()
    assert "y at i = 1" in str(known.asked()) and known.asked() is None  # `check()` is told of all calls
    assert known.word.value == 0 and "NumPy computes them in float64" in known.line()


def test_memory_outlives_what_it_was_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A captured graph may write there when nobody has the call any more; the next kind of call begins at 0."""
    host_marks(monkeypatch)
    planned = run(form("mean"), drawn("mean", (2, 24), "float32", [0], 1), None, marks=no_marks())[1]
    known = RowMarks(form("mean"), planned)
    memory = known.memory
    known.word.value, known.table[3] = 2, 1
    del known
    gc.collect()
    assert marks_of_rows.FREE == [memory]
    again = RowMarks(form("mean"), planned)
    assert again.memory is memory and again.taken() is None and not again.table.any() and not marks_of_rows.FREE
