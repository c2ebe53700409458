"""The library's own kernels of focal losses under `check_equivalence`."""

from __future__ import annotations

import numpy as np
import pytest

import redalg as ra
from redalg.testing import NotEquivalent, check_equivalence
from redalg.testing.adversarial import KINDS

FOCAL = {
    "of log-softmax": "lp = x[i,j]-logsumexp[j](x[i,j]); return y = -sum[j](t[i,j]*(1-exp(lp))**2*lp)",
    "of softmax": "m = max[j](x[i,j]); e = exp(x[i,j]-m); p = e/sum[j](e); return y = -sum[j](t[i,j]*(1-p)**2*log(p))",
    "cubed": "lp = z[n,c]-logsumexp[c](z[n,c]); return q = -sum[c](k[n,c]*(1-exp(lp))**3*lp)",
}


@pytest.mark.parametrize("target", ["numpy", "cpu"])
def test_focal_losses_at_every_kind_of_input(target: str) -> None:
    for text in list(FOCAL.values())[: 3 if target == "numpy" else 1]:
        form = ra.derive_incremental(ra.parse(text))
        axis = form.plan.axis[0]
        kinds = KINDS if "**3" not in text else [k for k in KINDS if k != "huge"]  # 3·p² next to the largest number
        run = form.compile(target)
        assert check_equivalence(form.spec, run, kinds=kinds, sizes={axis: (1, 2, 3)}, calls=5).worst <= 1


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
