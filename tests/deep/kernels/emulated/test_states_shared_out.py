"""States along two axes that blocks share out, as outer products of what varies along one: by emulation."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.kernels.ir.layouts import View
from redalg.kernels.ir.program import Program
from redalg.kernels.ir.schedule import Schedule
from redalg.kernels.pipeline import plan
from redalg.kernels.programs import ROW_PROGRAM, program_of, usual_dtypes
from redalg.kernels.schedule import outer_cost
from redalg.kernels.schedule.outer import Outer, Undivided, in_areas, outer, outers
from redalg.kernels.schedule.target import H200
from tests.deep.kernels.emulated.test_tiles_of_states import TEXTS, drawn, own
from tests.support.profiles import examples
from tests.support.simulated import agree, run

SPECS = {
    **TEXTS,
    "gram": "return G = sum[j](X[j,a]*X[j,b])",
    "cross": "u = mean[j](X[j,a]); v = mean[j](Y[j,b]); return C = mean[j]((X[j,a] - u)*(Y[j,b] - v))",
    "weighted cross": "tensors Y[t,p], Z[t,q], h[t] positive; s = sum[t](h[t]); "
    "u = sum[t](h[t]*Y[t,p])/s; v = sum[t](h[t]*Z[t,q])/s; "
    "return W = sum[t](h[t]*(Y[t,p] - u)*(Z[t,q] - v))/s",
    "pairs": "return D = sum[j](abs(X[a,j] - Y[b,j]))",
    "pairs, one turned": "return D = relu(sum[j](X[a,j]*Y[j,b]) + c[b])/(1 + r[a]*r[a])",
    "pairs, centred": "u = mean[j](X[a,j]); return D = sum[j]((X[a,j] - u)*Y[b,j]*w[j]), E = sum[j](Y[b,j]*w[j])*u",
    "groups": "tensors X[j,d], g[j] integer, c[k,d]; "
    "return s = sum[j](where(eq(g[j], index[k]), X[j,d] - c[k,d], 0)), n = sum[j](where(eq(g[j], index[k]), 1, 0))",
}


def form_of(name: str) -> Any:
    return ra.derive_incremental(ra.parse(SPECS[name]), axis="t" if "weighted" in name else "j")


def shared(threads: int, split: int, entries: int, tile: int = 2, vector: int = 1) -> Schedule:
    return Schedule(threads, 1, vector, tile, split=split, persistent=True, entries=entries)


CASES = [
    ("covariance", {"j": 41, "a": 5, "b": 5}, shared(32, 3, 2)),
    ("covariance", {"j": 3, "a": 3, "b": 3}, shared(64, 4, 4)),  # a split has no element
    ("covariance", {"j": 23, "a": 12, "b": 12}, shared(64, 2, 8, 1, 4)),  # tiles of two vectors
    ("covariance", {"j": 75, "a": 4, "b": 4}, shared(64, 2, 4, 1, 4)),  # many lines
    ("covariance", {"j": 301, "a": 5, "b": 5}, shared(32, 3, 4, 1)),  # too many elements for one look at all of them
    ("covariance", {"j": 300, "a": 16, "b": 16}, shared(64, 4, 8, 1, 2)),
    ("gram", {"j": 40, "a": 3, "b": 3}, shared(128, 9, 4)),  # lanes of several warps
    ("cross", {"j": 29, "a": 5, "b": 3}, shared(64, 2, 2)),
    ("cross", {"j": 29, "a": 6, "b": 4}, shared(64, 2, 4, 2, 2)),
    ("weighted", {"t": 21, "p": 4, "q": 4}, shared(32, 2, 2, 1, 2)),  # means with weights, of all elements
    ("weighted cross", {"t": 21, "p": 4, "q": 2}, shared(32, 2, 2, 2, 2)),
    ("gram", {"j": 1, "a": 3, "b": 3}, shared(32, 1, 1)),
    ("batches", {"i": 3, "j": 19, "a": 4, "b": 4}, shared(32, 2, 4)),
    ("furthest", {"j": 23, "a": 4, "b": 4}, shared(32, 2, 2)),
    ("scatter", {"j": 17, "a": 4, "b": 4, "k": 2}, shared(32, 2, 2)),
    ("groups", {"j": 37, "k": 5, "d": 3}, shared(32, 3, 2)),
    ("product", {"j": 13, "i": 3, "k": 5}, shared(32, 2, 2)),
    ("pairs", {"j": 13, "a": 5, "b": 6}, shared(32, 1, 2)),  # runs of single elements; results as pairs
    ("pairs", {"j": 24, "a": 8, "b": 16}, shared(32, 1, 4, 4)),  # runs of vectors; results as vectors
    ("pairs", {"j": 44, "a": 16, "b": 24}, shared(64, 3, 8, 8)),  # splits begin at vectors
    ("pairs", {"j": 4, "a": 3, "b": 7}, shared(32, 3, 4, 4)),  # a split has no element; nor has a line
    ("pairs, one turned", {"j": 24, "a": 9, "b": 12}, shared(32, 1, 4, 4)),
    ("pairs, one turned", {"j": 1, "a": 2, "b": 3}, shared(32, 1, 2)),
    ("pairs, centred", {"j": 20, "a": 5, "b": 8}, shared(32, 2, 2, 4)),
]


@pytest.mark.parametrize("name, sizes, schedule", CASES)
def test_states_agree_with_the_definition(name: str, sizes: dict[str, int], schedule: Schedule) -> None:
    form = form_of(name)
    arrays = drawn(form, sizes, len(name))
    found, planned, _ = run(form, arrays, schedule, 1)
    assert planned.choice.schedule == schedule
    agree(form.spec, found, own(form, arrays), 1e-5)


def symmetric(name: str) -> bool:
    return name in ("gram", "covariance", "weighted", "batches")


WIDE = [
    ("gram", {"j": 23, "a": 20, "b": 20}, shared(64, 2, 4)),
    ("gram", {"j": 23, "a": 24, "b": 24}, shared(64, 2, 4, 1, 4)),
    ("covariance", {"j": 41, "a": 21, "b": 21}, shared(64, 3, 4)),  # the last area has fewer columns
    ("covariance", {"j": 41, "a": 20, "b": 20}, shared(64, 1, 8, 1, 2)),
    ("covariance", {"j": 2, "a": 17, "b": 17}, shared(64, 3, 4)),  # a split has no element
    ("cross", {"j": 29, "a": 20, "b": 3}, shared(64, 2, 2)),  # one axis is whole
    ("cross", {"j": 29, "a": 6, "b": 12}, shared(64, 2, 4, 2, 2)),
    ("weighted", {"t": 21, "p": 12, "q": 12}, shared(64, 2, 2, 1, 2)),
    ("weighted cross", {"t": 21, "p": 11, "q": 9}, shared(64, 2, 2)),
    ("batches", {"i": 3, "j": 19, "a": 12, "b": 12}, shared(64, 2, 4)),
    ("furthest", {"j": 23, "a": 12, "b": 12}, shared(64, 2, 2)),
    ("groups", {"j": 37, "k": 13, "d": 11}, shared(64, 3, 2)),
    ("pairs", {"j": 12, "a": 20, "b": 28}, shared(32, 1, 4, 4)),
    ("pairs", {"j": 12, "a": 19, "b": 21}, shared(32, 1, 2, 4)),
    ("pairs, one turned", {"j": 10, "a": 17, "b": 12}, shared(32, 1, 4, 2)),
]


@pytest.mark.parametrize("name, sizes, schedule", WIDE)
def test_areas_of_a_wide_state_agree_with_the_definition(
    name: str, sizes: dict[str, int], schedule: Schedule, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, made = outer_cost.outers, list[Outer]()

    def areas(program: Program, lengths: dict[str, int]) -> list[Outer]:
        made[:] = [in_areas(found, 8) for found in real(program, lengths)]
        return made

    monkeypatch.setattr(outer_cost, "outers", areas)
    form = form_of(name)
    arrays = drawn(form, sizes, len(name))
    found, planned, _ = run(form, arrays, schedule, 1)
    assert planned.choice.schedule == schedule and made[0].areas > 1
    assert planned.geometry.blocks == made[0].areas * sizes.get("i", 1) * schedule.split
    along = [side.areas for side in made[0].sides]
    assert made[0].areas == (along[0] * (along[0] + 1) // 2 if symmetric(name) else along[0] * along[1])
    agree(form.spec, found, own(form, arrays), 1e-5)


@examples(16)
@given(
    st.sampled_from(["gram", "covariance", "cross", "batches"]),
    st.integers(9, 21),
    st.sampled_from([0, 4]),
    st.sampled_from([2, 4]),
    st.sampled_from(["float32", "float16"]),
)
def test_rows_with_gaps_are_read_where_they_begin_and_end(
    name: str, width: int, first: int, vector: int, kind: str
) -> None:
    """Columns of a wider array, in areas: rows begin at vectors, and the last columns may be no whole one."""
    form, sizes = form_of(name), {"i": 2, "j": 7, "a": width, "b": width}
    arrays, kept = drawn(form, sizes, width), dict[str, Any]()
    for t in form.spec.tensors:
        x = arrays[t.name].astype(kind)
        wide = np.full((*x.shape[:-1], -(-(first + width) // 4) * 4), np.nan, kind)
        wide[..., first : first + width] = x
        kept[t.name] = kept[t.array] if t.array else wide[..., first : first + width]
    real = outer_cost.outers
    with mock.patch.object(outer_cost, "outers", lambda *given: [in_areas(found, 8) for found in real(*given)]):
        try:
            found, planned, _ = run(form, kept, shared(64, 2, 4, 1, vector), 1)
        except ra.RedalgError as refused:
            assert width % vector and "entries" in str(refused), refused
            return
    assert planned.choice.schedule.vector == vector
    agree(form.spec, found, own(form, kept), 1e-5 if kind == "float32" else 2.0**-10)


@pytest.mark.parametrize("name, sizes", [("cross", {"j": 5, "a": 3, "b": 2}), ("groups", {"j": 5, "d": 8, "k": 2})])
def test_a_schedule_with_wider_vectors_than_rows_is_refused(name: str, sizes: dict[str, int]) -> None:
    """Of tables that are read, and of those that are made of positions."""
    form = form_of(name)
    with pytest.raises(ra.RedalgError, match="entries"):
        run(form, drawn(form, sizes, 1), shared(64, 2, 1, 1, 4), None)


def test_areas_are_several() -> None:
    """What fits one area is taken as a whole, where it is symmetric, too."""
    for width in (65, 128, 129):
        program = program_of(form_of("gram"), usual_dtypes(form_of("gram"), "float32"), ROW_PROGRAM)
        found = list(outers(program, {"j": 9, "a": width, "b": width}))
        assert found and all(made.areas > 1 for made in found[1:]), width


@pytest.mark.parametrize("width, whole", [(176, True), (300, False), (1000, False)])
def test_wide_states_are_cut_into_areas(width: int, whole: bool) -> None:
    """More columns than the threads of a block have tiles for."""
    form = form_of("gram")
    views = {n: View.contiguous((20000, width)) for n in ("X", "X_j_b")}
    made = plan(form, usual_dtypes(form, "float32"), views, H200)
    assert made.choice.schedule.entries and ("areas" in made.choice.reasons[0]) is not whole
    assert not plan(form, usual_dtypes(form, "float32"), views, H200, deterministic=True).choice.schedule.entries


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_elements_of_16_bits_come_as_vectors(dtype: str) -> None:
    """Their anchors are looked for in a part of the elements before they are shared out."""
    form = form_of("covariance")
    ml_dtypes = pytest.importorskip("ml_dtypes")
    kind = np.dtype(np.float16 if dtype == "float16" else ml_dtypes.bfloat16)
    x = np.random.default_rng(3).normal(size=(77, 8)).astype(kind)
    found, planned, _ = run(form, {"X": x, "X_j_b": x}, shared(64, 3, 4, 1, 4), None)
    assert f"load_{dtype}x4(" in planned.module.source
    wide = x.astype(np.float64) - x.astype(np.float64).mean(0)
    rounding = 2.0**-10 if dtype == "float16" else 2.0**-7
    assert np.abs(np.asarray(found["C"], np.float64) - wide.T @ wide / 77).max() <= rounding * np.abs(wide).max() ** 2


@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("place", [0, 5])
def test_values_that_are_no_numbers(value: float, place: int) -> None:
    """Also where a split finds its anchor."""
    form = form_of("covariance")
    arrays = drawn(form, {"j": 9, "a": 3, "b": 3}, 5)
    arrays["X"][place, 1] = value
    found, _, _ = run(form, arrays, shared(32, 2, 2), None)
    agree(form.spec, found, own(form, arrays), 1e-5)


def test_anchors_that_are_far_from_most_elements() -> None:
    """The first elements of a split say nothing of the others: moments about what is guessed from a part of them."""
    form = form_of("covariance")
    arrays = drawn(form, {"j": 160, "a": 2, "b": 2}, 7)
    arrays["X"] += np.float32(3000)
    arrays["X"][:2] = 0
    arrays["X"][80] = 0
    found, _, _ = run(form, arrays, shared(32, 2, 2), None)
    agree(form.spec, found, own(form, arrays), 1e-4)


def test_what_is_the_same_along_both_axes_is_held_once() -> None:
    """One table, tiles on and above the diagonal; of two tensors none of that."""
    for name, tables, tiles in (("covariance", 1, 3), ("weighted", 2, 3), ("cross", 2, 4)):
        form = form_of(name)
        arrays = drawn(form, dict.fromkeys("jt", 9) | dict.fromkeys("abpq", 4), 1)
        _, planned, _ = run(form, arrays, shared(32, 2, 2), None)
        source = planned.module.source
        assert f"TILES = {tiles}\n" in source
        assert source.count("np.float32, 16)") == tables


def test_what_cannot_be_divided() -> None:
    program = program_of(form_of("batches"), usual_dtypes(form_of("batches"), "float32"), ROW_PROGRAM)
    with pytest.raises(Undivided, match="both axes"):
        outer(program, ("i", "a"), dict.fromkeys("ijab", 4))
    text = "v = sum[c](Z[j,c]*C[e,c]); return y = sum[j](exp(sum[d](Q[i,d]*K[j,d]))*v)"  # c would have no number there
    form = ra.derive_incremental(ra.parse(text), axis="j")
    program = program_of(form, usual_dtypes(form, "float32"), ROW_PROGRAM)
    with pytest.raises(Undivided, match="a reduction along an axis of its own"):
        outer(program, ("i", "e"), dict.fromkeys("ijcde", 4))


def test_a_schedule_that_does_not_fit_is_refused() -> None:
    form = form_of("gram")
    arrays = drawn(form, {"j": 9, "a": 20, "b": 20}, 1)
    with pytest.raises(ra.RedalgError, match="entries"):
        run(form, arrays, shared(32, 2, 2), None)
