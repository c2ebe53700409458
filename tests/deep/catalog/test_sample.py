"""The sample of the fast suite has every kind of slot, anchor and ending that the catalog has."""

from __future__ import annotations

from collections.abc import Iterable

import redalg as ra
from tests.support.forms import form_of
from tests.support.sample import SAMPLE


def kinds(names: Iterable[str]) -> set[tuple[str, object]]:
    """What the plans of some specs consist of."""
    found: set[tuple[str, object]] = set()
    for name in names:
        plan = form_of(name).plan
        for part in plan.passes:
            found |= {("slot", s.kind, s.average) for s in part.slots}
            found |= {("anchor", type(a)) for a in part.anchors}
        found |= {("keeps the axis", o.keeps_axis) for o in plan.outputs}
    return found


def test_the_sample_is_a_dozen_specs_of_the_catalog() -> None:
    assert len(SAMPLE) == 12 and set(ra.catalog) >= SAMPLE


def test_the_sample_has_every_kind_of_slot_and_anchor() -> None:
    assert kinds(ra.catalog) - kinds(SAMPLE) == set()
