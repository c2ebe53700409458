"""What no condition selects has no say: a pole there leaves the number that the definition has."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.testing import running

ROOT = "where(0 < x[j], sqrt(x[j]), 0)"
FORMS: dict[str, Callable[[], ra.Form]] = {
    "a divisor of all": lambda: derived("m = mean[j](x[j]); return o = where(m > 0, 1/m, 0)*y[j]"),
    "tangents of a product": lambda: ra.parse("return o = prod[j](x[j])").jvp().form,
    "gradients of a root at two places": lambda: derived(
        ra.parse(f"return o = sum[j]({ROOT}/(1 + max[j]({ROOT}))*y[j])").vjp(given=()).specs["x"], max_passes=2
    ),
    "second derivatives of a guarded norm": lambda: derived(
        ra.parse("q = sum[j](where(ne(x[j], 0), 1/x[j], x[j])**2); return o = where(q > 0, sqrt(q), 0)")
        .vjp(given=())
        .specs["x"]
        .vjp(wrt="x", given=())
        .specs["x"]
    ),
}
VALUES = np.array([-1.5, -1.0, 0.0, 0.0, 0.5, 2.0])


def derived(spec: Any, **options: Any) -> ra.Form:
    return ra.derive_incremental(ra.parse(spec) if isinstance(spec, str) else spec, **options)


@pytest.mark.parametrize("name", FORMS)
def test_what_is_not_selected_may_have_no_value(name: str) -> None:
    form, rng = FORMS[name](), np.random.default_rng(len(name))
    run, numbers = form.compile("numpy"), 0
    for length, _ in product((1, 2, 4), range(5)):
        arrays = {d.name: rng.choice(VALUES, length if d.axes else None) for d in form.spec.tensors}
        with np.errstate(all="ignore"):
            wanted, found = running.named(form, ra.reference(form.spec, **arrays)), [running.named(form, run(**arrays))]
            if len(form.plan.passes) == 1:
                found.append(running.merged(form, arrays, [0, length // 2, length], [0]))
        for got, (key, true) in product(found, wanted.items()):
            numbers += int(np.isfinite(true).all())
            np.testing.assert_allclose(got[key], true, 1e-12, 1e-12, err_msg=f"{key} of {arrays}")
    assert numbers >= 8
