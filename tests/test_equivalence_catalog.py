"""The library's own kernels under `check_equivalence`: every spec of the catalog, and focal losses."""

from __future__ import annotations

import numpy as np
import pytest

import redalg as ra
from redalg.testing import NotEquivalent, check_equivalence
from redalg.testing.adversarial import KINDS, outermost

FOCAL = {
    "of log-softmax": "lp = x[i,j]-logsumexp[j](x[i,j]); return y = -sum[j](t[i,j]*(1-exp(lp))**2*lp)",
    "of softmax": "m = max[j](x[i,j]); e = exp(x[i,j]-m); p = e/sum[j](e); return y = -sum[j](t[i,j]*(1-p)**2*log(p))",
    "cubed": "lp = z[n,c]-logsumexp[c](z[n,c]); return q = -sum[c](k[n,c]*(1-exp(lp))**3*lp)",
}


@pytest.mark.parametrize("name", list(ra.catalog))
def test_every_spec_of_the_catalog(name: str) -> None:
    form = ra.derive_incremental(ra.catalog[name], max_passes=2)
    sizes = {a: (2,) for d in form.spec.tensors for a in d.axes if a in outermost(form.spec)}
    report = check_equivalence(name, form.compile("numpy"), kinds=KINDS, sizes=sizes, layouts=(), calls=3)
    assert report.worst <= 1 and report.compared > report.open


@pytest.mark.parametrize("target", ["numpy", "cpu"])
def test_focal_losses_at_every_kind_of_input(target: str) -> None:
    for text in list(FOCAL.values())[: 3 if target == "numpy" else 1]:
        form = ra.derive_incremental(ra.parse(text))
        axis = form.plan.axis[0]
        assert check_equivalence(form.spec, form.compile(target), sizes={axis: (1, 2, 3)}, calls=5).worst <= 1


def test_a_listed_assumption_excuses_nan_alone_and_only_where_it_fails() -> None:
    form = ra.derive_incremental(ra.parse(FOCAL["of softmax"]))
    assert "finite_stage_values" in form.assumptions
    run = form.compile("numpy")

    class Other:
        """Calls like a compiled form, with its results changed."""

        def __init__(self, change: object) -> None:
            self.form, self.change = form, change

        def __call__(self, x: object, t: object) -> object:
            return self.change(run(x=x, t=t))  # type: ignore[operator]

    some = {"sizes": {"j": (2,)}, "calls": 1, "layouts": ()}
    assert check_equivalence(form.spec, Other(lambda y: y), **some).worst <= 1
    with pytest.raises(NotEquivalent):  # NaN in every row
        check_equivalence(form.spec, Other(lambda y: y * np.nan), **some)
    with pytest.raises(NotEquivalent):  # another number in its place
        check_equivalence(form.spec, Other(lambda y: np.nan_to_num(y, nan=-1.0)), **some)
    with pytest.raises(NotEquivalent):  # a callable that lists nothing
        check_equivalence(form.spec, lambda x, t: run(x=x, t=t), **some)
