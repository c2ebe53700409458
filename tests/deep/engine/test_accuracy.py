"""The accuracy table on fewer draws: never behind the published updates, far ahead of them at large offsets."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from benchmarks.accuracy import scales
from benchmarks.accuracy import specs as accuracy_specs
from benchmarks.accuracy.cells import CASES, FLOOR, WIDE, Case, Cell, Setting, measure, table
from benchmarks.accuracy.feeding import FEEDS, run_peer
from benchmarks.accuracy.peers import MOMENTS, PAIRS, SOFTMAX

DRAWS = 12
ULP = 2.0**-52
# softmax statistics are as good as their scores: published updates already lose nothing at an offset
WELL_CONDITIONED = {"logsumexp", "attention"}


@functools.cache
def cells(case: str, setting: str) -> list[Cell]:
    chosen = next(c for c in CASES if c.spec == case)
    return measure(chosen, next(s for s in chosen.settings if s.name == setting), DRAWS)


JOBS = [(case, setting) for case in CASES for setting in case.settings]


@pytest.mark.parametrize(("case", "setting"), JOBS, ids=[f"{c.spec}-{s.name}".replace(" ", "_") for c, s in JOBS])
def test_at_least_as_accurate_as_the_best_published_update(case: Case, setting: Setting) -> None:
    """To one ulp: two roundings of equally good formulas differ by as much.

    Gentleman's rotations, which take one element at a time and cannot be merged, sum squared residuals directly; the
    difference Syy - b·Sxy at the end of a mergeable update costs its condition number, here below 8.
    """
    mergeable = {p.name for p in case.peers if p.update and p.merge}
    for cell in cells(case.spec, setting.name):
        assert cell.ours <= min(e for name, e in cell.peers.items() if name in mergeable) + ULP, str(cell)
        assert cell.ours <= 8 * cell.best, str(cell)


MOMENTS_LIKE = [c for c in CASES if not WELL_CONDITIONED & {*c.outputs.values()} and c.settings is not WIDE]


@pytest.mark.parametrize("case", MOMENTS_LIKE, ids=lambda c: c.spec)
def test_orders_of_magnitude_better_at_large_offsets(case: Case) -> None:
    for setting in ("offset 1e+08", "offset 1e+15"):
        for cell in cells(case.spec, setting):
            assert cell.ours * 1e3 <= cell.best, str(cell)
            assert cell.ours <= 1e-12, str(cell)


def test_the_peers_compute_what_they_are_said_to() -> None:
    """On easy input every published algorithm agrees with the truth: the table compares working competitors."""
    for case in CASES:
        arrays = case.draw(np.random.default_rng(5), case.settings[0], 3)
        true = case.truth(arrays)
        for peer in {id(p): p for p in (*MOMENTS, *PAIRS, *SOFTMAX) if p in case.peers}.values():
            for feed in FEEDS:
                for name, value in (run_peer(peer, arrays, feed) or {}).items():
                    if name in true:
                        np.testing.assert_allclose(value, [float(t) for t in true[name]], rtol=1e-11, err_msg=peer.name)


def test_a_cell_tells_who_is_better() -> None:
    worse = Cell("variance", "offset 0", "chunks", 1e-10, FLOOR, "Chan", {"Chan": FLOOR})
    assert not worse.at_least_as_good and "**worse**" in str(worse)
    assert "1 are worse" in table([worse], 1)


@pytest.mark.parametrize("spec", accuracy_specs.SPECS, ids=lambda s: s.name.replace(" ", "_"))
def test_specs_without_a_published_update_stay_within_their_bounds(spec: accuracy_specs.Spec) -> None:
    """The bounds are linear in the offset: sums of powers that are not centred lose its square."""
    for offset in spec.offsets:
        for line in accuracy_specs.measure(spec, offset, 2):
            assert line.ours <= line.bound, str(line)


@pytest.mark.parametrize("spec", scales.SPECS, ids=lambda s: s.name.replace(" ", "_"))
def test_no_scale_takes_digits_from_what_is_divided_by_one(spec: scales.Spec) -> None:
    for dtype, ends in (("float32", spec.narrow), ("float64", spec.wide)):
        for scale in (min(ends), max(ends)):
            line = scales.measure(spec, dtype, scale, 1, ["numpy"])
            assert all(e <= line.bound for e in line.errors.values()), str(line)
