"""Anchors: every value that deviates from stage values has one, and there is one per target.

Truth is the definition to 50 digits. A moment of c = u - A can be no better than u itself is known: fl(u) is off by
some ulps of |u|, and that is a relative error of |u|/sd(u) ulps of the moment. A form without an anchor loses the
square of that, and more for higher moments, so that every bound here tells the two apart.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.graph.plan import IN_RANGE, MODERATE
from tests.support.anchor_cases import EPS, GROUPS, VALUES, WEIGHTS, by_name, derived, error, folded, grouped, moment
from tests.support.profiles import examples

NAMES = st.lists(
    st.sampled_from(["x", "a", "n", "A_x", "mean1", "shift", "avg_x", "z", "w2"]), min_size=3, max_size=3, unique=True
)


@examples(16)
@given(
    value=st.sampled_from(sorted(VALUES)),
    weight=st.sampled_from(sorted(WEIGHTS)),
    power=st.sampled_from([2, 2, 3, 4]),
    digits=st.sampled_from([1, 4, 7]),
    names=NAMES,
    cuts=st.lists(st.integers(0, 40), min_size=2, max_size=5),
    seed=st.integers(0, 99),
)
def test_moments_of_any_value_are_as_good_as_the_value(
    value: str, weight: str, power: int, digits: int, names: list[str], cuts: list[int], seed: int
) -> None:
    text, known = moment(value, weight, power, names)
    form, rng = derived(text), np.random.default_rng(seed)
    drawn = VALUES[value].draw(rng, 40, 10.0**digits) | {"w": rng.uniform(0.5, 1.5, 40)}
    arrays = {known[n]: a for n, a in drawn.items() if known[n] in {d.name for d in form.spec.tensors}}
    true = ra.reference(form.spec, exact=True, **arrays)
    # |u|/sd(u) is at most some 7·10^digits; odd moments may be small beside their terms
    bound = (16 if power % 2 == 0 else 400) * power * EPS * 7 * 10.0**digits
    assert error(folded(form, arrays, cuts, rng)["y"], true) <= bound
    assert error(form.compile("numpy")(**arrays), true) <= bound
    assert not form.assumptions.keys() & {IN_RANGE, MODERATE}


@pytest.mark.parametrize("value", sorted(VALUES))
def test_moments_of_any_value_are_proved(value: str) -> None:
    """Their transport is the binomial one, whatever the value is."""
    text, _ = moment(value, "weighted", 2, ["x", "z", "w"])
    assert derived(text).certificate.verify().proved


@pytest.mark.parametrize("value", sorted(VALUES))
def test_equal_elements_have_no_spread_at_all(value: str) -> None:
    text, _ = moment(value, "none", 2, ["x", "z", "w"])
    form = derived(text)
    arrays = {n: np.full(9, a[0]) for n, a in VALUES[value].draw(np.random.default_rng(1), 9, 10.0).items()}
    for cuts in ([0, 0, 1], [4, 7], range(1, 9)):
        assert folded(form, arrays, cuts, np.random.default_rng(2))["y"] == 0


@pytest.mark.parametrize("apart", [1e4, 1e8])
@pytest.mark.parametrize("name", sorted(GROUPS))
def test_groups_far_apart_do_not_disturb_each_other(name: str, apart: float) -> None:
    form, rng = derived(GROUPS[name]), np.random.default_rng(len(name))
    arrays = grouped(GROUPS[name], apart, rng)
    true = by_name(form, ra.reference(form.spec, exact=True, **arrays))
    got = folded(form, arrays, [0, 0, 1, 17, 18, 39], rng)
    whole = by_name(form, form.compile("numpy")(**arrays))
    squares = name == "groups of squares"  # their own rounding: |x²|/sd(x²) is `apart`
    for output, t in true.items():
        for value in (got[output], whole[output]):
            assert error(value, t) <= (EPS * (64 + (16 * apart if squares else 0)) if name != "skew" else 1e-13), output


@pytest.mark.parametrize("name", sorted(GROUPS))
def test_forms_with_an_anchor_per_target_are_proved(name: str) -> None:
    """But for one sum of all groups, whose cases are taken before divisors are multiplied out: it is tested."""
    derived(GROUPS[name]).certificate.verify(allow={"tested"} if name == "one sum" else ())


def test_a_group_without_elements_takes_no_part() -> None:
    """Under a mask it contributes nothing; as a weight of 0 it has no mean, and neither has the definition."""
    form = derived(GROUPS["groups by a mask"])
    arrays = grouped("x[ G[", 1e6, np.random.default_rng(3), 12)
    arrays["G"][:, 1] = 0
    true = ra.reference(form.spec, exact=True, **arrays)
    assert error(folded(form, arrays, [0, 5], np.random.default_rng(4))["v"], true) <= 64 * EPS
    assert np.isnan(derived(GROUPS["groups"]).compile("numpy")(**arrays))
