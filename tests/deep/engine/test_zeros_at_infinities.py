"""An infinite factor beside combinations of tensors that are 0: the definition is NaN, so the form may be no number."""

from __future__ import annotations

from itertools import product
from random import Random

import numpy as np
import pytest

import redalg as ra
from tests.deep.engine.test_infinities import agree, run

ZEROS = ("(y[j] + x[j])", "(x[j] - y[j])", "(y[j]**2 - x[j]**2)", "(x[j] + y[j] - 2*z[j])")
FACTORS = ("(1 + mean[j](x[j])**2)", "exp(max[j](x[j]))", "sum[j](abs(x[j]))", "(1 + relu(sum[j](x[j])))")


@pytest.mark.parametrize("kind", ["max[j]({})", "min[j](-{})", "topk[j:2]({}).values", "min[j]({})/sum[j](z[j]**2)"])
@pytest.mark.parametrize("zero", ZEROS)
def test_extrema_of_what_cancels_times_what_is_infinite(kind: str, zero: str) -> None:
    for factor in FACTORS:
        form = ra.derive_incremental(ra.parse(f"return r = {kind.format(f'{zero}*{factor}')}"))
        rng = np.random.default_rng(len(factor))
        for value, place in product((np.inf, -np.inf), range(4)):
            arrays = {d.name: rng.integers(-2, 3, 4) / 2 for d in form.spec.tensors}
            arrays["x"][place] = value
            for results in run(form, arrays, Random(place)):
                agree(form, results, arrays)
