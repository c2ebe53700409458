"""Every spec of the catalog by group: each group gets the definition's result on its own rows."""

from __future__ import annotations

import numpy as np
import pytest

import redalg as ra
from tests.engine.test_groups import definition, fed, rows_of
from tests.support.forms import form_of
from tests.support.sample import by_name
from tests.support.streams import assert_close, bound, length


@by_name()
def test_groups_of_unequal_lengths_have_the_definition(name: str) -> None:
    form = form_of(name)
    entry = ra.catalog.entry(name)
    if form.passes.statistics > 1 or not any(not o.keeps_axis for o in form.plan.outputs):
        with pytest.raises(ra.RedalgError):
            fed(form, entry.sample(1), [0, 0], [0, 2]).result()
        return
    arrays = entry.sample(1)
    n = length(form, arrays)
    by = np.random.default_rng(0).integers(0, 3, n)
    by[-1] = 7  # a group of one
    groups = fed(form, arrays, by, [0, n // 3, n // 3, n])
    keys, values = groups.result()
    values = values if isinstance(values, dict) else {next(iter(form.spec.outputs)): values}
    for k, key in enumerate(keys.tolist()):
        rows = np.flatnonzero(by == key).tolist()
        expected = definition(form, arrays, rows)
        if "cast_commutes" in form.assumptions:  # equal up to roundings that the definition has elsewhere
            alone = form.accumulator(**bound(form, arrays))
            alone.update(**rows_of(form, arrays, [r for r in rows if r < n // 3]))
            alone.update(**rows_of(form, arrays, [r for r in rows if r >= n // 3]))
            found = alone.result()
            expected = found if isinstance(found, dict) else dict.fromkeys(form.spec.outputs, found)
        assert_close({o: x[k] for o, x in values.items()}, {o: expected[o] for o in values}, ulps=1 << 14)
