"""`redalg.pictures.separation_rank`: the table is the body, exactly; ranks and minors are the engine's."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

import redalg as ra
from redalg.errors import RedalgError

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

from redalg import pictures  # noqa: E402
from redalg.pictures.tables import _ranked, counted, drawn_table, matrix_table, witness_table  # noqa: E402
from redalg.pictures.written import written  # noqa: E402

X = ra.tensors("x[j]")
MEAN = ra.mean(X, "j")
REFUSED = {
    "absolute": ra.Spec(y=ra.mean(ra.abs(X - MEAN), "j")),
    "exponential": ra.Spec(y=ra.sum(ra.exp(X * MEAN), "j")),
    "count": ra.Spec(y=ra.sum(ra.where(X > MEAN, 1, 0), "j")),
    "tanh": ra.Spec(y=ra.sum(ra.tanh(X - ra.max(X, "j")), "j")),
    "product": ra.Spec(y=ra.prod(X + MEAN, "j")),
}
RANKS = {"softmax": 1, "variance": 3, "skewness": 4, "covariance": 4, "linear_regression": 6, "layer_norm_gemm": 3}


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    plt.close("all")


def form_of(name: str) -> ra.Form:
    entry = ra.catalog.entry(name)
    return ra.derive_incremental(entry.spec, entry.axis, assume=entry.assume)


def shown(ax: plt.Axes) -> np.ndarray:
    return np.asarray(ax.child_axes[0].images[0].get_array())


def remainders(ax: plt.Axes) -> list[float]:
    return list(next(line for line in ax.child_axes[2].lines if line.get_gid() == "remainders").get_ydata())


def frames(ax: plt.Axes) -> list[int]:
    """The rows inside a frame."""
    found = [p for p in ax.child_axes[0].patches if p.get_gid() == "minor"]
    return [r for p in found for r in range(round(p.get_y() + 0.44), round(p.get_y() + p.get_height() + 0.44))]


# --- derived stages --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(RANKS))
def test_nothing_is_left_after_as_many_rows_as_the_rank(name: str) -> None:
    form = form_of(name)
    ax = pictures.separation_rank(form)
    left = remainders(ax)
    assert max(r for r in form.ranks.values() if r is not None) == RANKS[name]
    assert left[0] == 1 and left[RANKS[name]] == 0 and all(r > 0 for r in left[: RANKS[name]])
    assert len(left) == RANKS[name] + 1 and f"rank {RANKS[name]} in the form" in ax.get_title()


def test_the_heat_map_is_the_body_by_hand() -> None:
    """(x_p - mean of stream q)², from the streams of the table in plain Fractions."""
    spec = ra.Spec(v=ra.sum((X - MEAN) ** 2, "j"))
    cascade = written(spec)
    stage = cascade.stages[1]
    table = drawn_table(spec, counted(stage.node.args[0], cascade.axis), cascade.axis, (), 5, seed=3)
    ax = pictures.separation_rank(spec, "stage2", seed=3)
    assert shown(ax)[:5, 0].shape == (5,)
    for q, stream in enumerate(table.streams):
        x = [Fraction(float(v)) for v in stream["x"]]
        assert x[:5] == [Fraction(float(v)) for v in table.streams[0]["x"][:5]]
        mean = sum(x) / len(x)
        for p in range(5):
            assert table.values[p][q] == (x[p] - mean) ** 2
    bigger = drawn_table(spec, counted(stage.node.args[0], cascade.axis), cascade.axis, (), len(shown(ax)), seed=3)
    assert np.array_equal(shown(ax), np.array([[float(v) for v in row] for row in bigger.values]))


def test_a_constant_of_the_spec_changes_the_table() -> None:
    tables = [shown(pictures.separation_rank(ra.Spec(v=ra.sum((X - c * MEAN) ** 2, "j")), "stage2")) for c in (1, 2)]
    assert tables[0].shape == tables[1].shape and not np.allclose(*tables)


def test_stages_by_name_and_passes() -> None:
    ax = pictures.separation_rank(form_of("variance"), "stage1")
    assert "stage1 separates: 1 of" in ax.get_title()
    two = ra.derive_incremental(REFUSED["absolute"], max_passes=2)
    held = pictures.separation_rank(two, "stage2")  # the mean of the first pass is the same in all streams: rank 1
    assert remainders(held)[1] == 0 and all((row == row[0]).all() for row in shown(held))


def test_the_pivots_are_marked() -> None:
    ax = pictures.separation_rank(form_of("variance"))
    ring = next(line for line in ax.child_axes[0].lines if line.get_gid() == "pivots")
    columns, rows = list(ring.get_xdata()), list(ring.get_ydata())
    assert len(set(columns)) == len(set(rows)) == 3
    values = shown(ax)[np.ix_(rows, columns)]
    assert abs(np.linalg.det(values)) > 1e-6


# --- refused stages --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_the_table_of_a_refusal_holds_the_witness_where_the_frame_is(name: str) -> None:
    refusal = ra.verdict(REFUSED[name])
    witness = refusal.witness
    ax = pictures.separation_rank(REFUSED[name])
    marked = frames(ax)
    table = shown(ax)
    assert sorted(witness.places) == marked and table.shape[0] >= witness.slots_excluded == table.shape[1]
    assert all(stream[p] == witness.streams[0][p] for stream in witness.streams for p in range(table.shape[0]))
    matrix = np.array([[float(v) for v in row] for row in witness.matrix])
    assert table[list(witness.places)] == pytest.approx(matrix, rel=1e-12, abs=1e-300)
    left = remainders(ax)
    assert len(left) == witness.slots_excluded and all(r > 0 for r in left)
    assert f"fewer than {witness.slots_excluded} slots" in ax.get_title()


def test_recomputed_entries_agree_to_all_digits() -> None:
    spec = REFUSED["exponential"]
    cascade = written(spec)
    witness = ra.verdict(spec).witness
    table = witness_table(witness, counted(cascade.stages[1].node.args[0], cascade.axis))
    given = matrix_table(witness)
    with mpmath.workdps(110):
        for row, place in enumerate(witness.places):
            for mine, theirs in zip(table.values[place], given.values[row], strict=True):
                assert abs(mpmath.mpmathify(mine) - mpmath.mpmathify(theirs)) <= mpmath.mpf(10) ** -90 * abs(mine)


def test_the_remainders_multiply_to_the_minor() -> None:
    """Complete pivoting: the determinant is the product of the pivots, and a pivot is what is the largest then."""
    witness = ra.verdict(REFUSED["absolute"]).witness
    found = matrix_table(witness)
    largest = max(abs(v) for row in found.values for v in row)
    product = np.prod([r * float(largest) for r in found.remainders])
    low, high = witness.value if isinstance(witness.value, tuple) else (witness.value, witness.value)
    assert float(min(abs(low), abs(high))) * (1 - 1e-9) <= product <= float(max(abs(low), abs(high))) * (1 + 1e-9)


def test_a_refusal_alone_shows_its_matrix() -> None:
    refusal = ra.verdict(REFUSED["absolute"])
    ax = pictures.separation_rank(refusal)
    matrix = np.array([[float(v) for v in row] for row in refusal.witness.matrix])
    assert np.array_equal(shown(ax), matrix) and frames(ax) == list(range(len(matrix)))


def test_a_jacobian_is_shown_as_it_stands() -> None:
    from redalg.errors import NotDecomposable
    from redalg.verdicts.witness import refute_output

    spec = REFUSED["product"]
    witness = refute_output(spec.outputs["y"], ("j",))
    assert witness is not None
    ax = pictures.separation_rank(NotDecomposable("y", "spec", "because", "change it", stage="stage2", witness=witness))
    assert "Jacobian" in ax.get_title() and shown(ax).shape == (witness.slots_excluded,) * 2


def test_another_stage_of_a_refused_spec() -> None:
    ax = pictures.separation_rank(REFUSED["absolute"], "stage1")
    assert "stage1 separates: 1 of" in ax.get_title() and not frames(ax)


# --- the rank of a table ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [0, 1, 3, 5])
def test_rank_of_products_of_random_factors(rank: int) -> None:
    rng = np.random.default_rng(rank)
    a, b = (rng.integers(-9, 9, shape) for shape in ((5, rank), (rank, 6)))
    rows = [[Fraction(int(v)) for v in row] for row in a @ b]
    table = _ranked(rows, ())
    assert table.rank == np.linalg.matrix_rank(a @ b) == len(table.rows)
    with mpmath.workdps(110):
        digits = [[mpmath.mpf(v.numerator) / 3 for v in row] for row in rows]
    assert _ranked(digits, ()).rank == table.rank


def test_what_has_no_table_is_refused() -> None:
    form = form_of("softmax")
    for given, stage in ((form, "stage1"), (form, "stage9"), (ra.Spec(y=ra.exp(X)), None), ("spec", None)):
        with pytest.raises(RedalgError) as error:
            pictures.separation_rank(given, stage)  # type: ignore[arg-type]
        assert error.value.what and error.value.where and error.value.why and error.value.fix


def test_values_far_apart_and_of_both_signs_get_a_scale_that_shows_them(monkeypatch: Any) -> None:
    from redalg.pictures.ranks import _colours

    both = _colours(np.array([[-1.0, 2.0]]))
    assert both["cmap"] == "PuOr" and both["norm"].vmin == -both["norm"].vmax == -2
    assert _colours(np.array([[1.0, 2.0]]))["cmap"] == "cividis"
    assert type(_colours(np.array([[1e-9, 1e-9, 1e9]]))["norm"]).__name__ == "SymLogNorm"
    assert _colours(np.zeros((2, 2)))["norm"] is not None
