"""Named parts: no part is counted twice, whatever order, trips and repetitions there are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.streaming import ids
from tests.support.forms import form_of_text

TEXT = "return s = sum[j](x[j]), v = var[j](x[j])"
NAMES = st.one_of(st.integers(0, 9), st.sampled_from(["a", "b/7", "part 3"]))


def part(name: str | int | None, *elements: float) -> ra.Accumulator:
    found = form_of_text(TEXT).accumulator(id=name)
    found.update(x=list(elements))
    return found


@given(st.lists(NAMES, max_size=8))
def test_a_merge_is_refused_exactly_where_a_part_comes_again(names: list[str | int]) -> None:
    form, total, seen = form_of_text(TEXT), form_of_text(TEXT).accumulator(), []
    for name in names:
        one = form.from_bytes(part(name, float(len(str(name)))).to_bytes())
        before = total.to_bytes()
        if name in seen:
            with pytest.raises(ra.RedalgError, match="is in both"):
                total.merge(one)
            assert total.to_bytes() == before
        else:
            total.merge(one)
            seen.append(name)
        total = form.from_bytes(total.to_bytes())
    assert total.count == len(seen)
    if seen:
        assert total.result()["s"] == sum(len(str(name)) for name in seen)


@given(st.permutations(range(12)), st.integers(1, 11))
def test_sets_of_numbers_are_runs(order: list[int], cut: int) -> None:
    sides = []
    for side in (order[:cut], order[cut:]):
        found: ids.Ids = frozenset()
        for k in side:
            found = ids.joined(found, ids.named(k, "here"))
        assert all((ids.shared(found, ids.named(k, "here")) == str(k)) == (k in side) for k in range(12))
        sides.append(found)
    assert ids.shared(*sides) is None and ids.joined(*sides) == {"0..11"}


def test_named_and_unnamed_elements_do_not_mix() -> None:
    with pytest.raises(ra.RedalgError, match="without a name"):
        part("a", 1.0).merge(part(None, 1.0))
    with pytest.raises(ra.RedalgError, match="without a name"):
        part(None, 1.0).merge(part("a", 1.0))
    assert part("a", 1.0).merge(form_of_text(TEXT).accumulator()).count == 1


@pytest.mark.parametrize("name", ["", "3..9", -1, True, 1.5, ("a", 1)])
def test_other_names_are_refused(name: object) -> None:
    with pytest.raises(ra.RedalgError, match="named by a text"):
        form_of_text(TEXT).accumulator(id=name)  # type: ignore[arg-type]
