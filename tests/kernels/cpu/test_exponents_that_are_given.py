"""Powers whose exponents are tensors, reduced: nothing is known of how large they are."""

from __future__ import annotations

import numpy as np
import pytest

import redalg as ra
from tests.support.forms import form_of_text


@pytest.mark.parametrize(
    "text",
    [
        "return y = sum[j](abs(x[i,j])**p[i])",
        "s = sum[j](abs(x[i,j])**p[j]); return y = x[i,j]/s",
        "m = max[j](abs(x[i,j])); return y = sum[j]((abs(x[i,j])/m)**p[i])",
    ],
)
def test_they_are_the_definition(text: str) -> None:
    form, rng = form_of_text(text), np.random.default_rng(2)
    given = {"x": rng.uniform(0.5, 2, (3, 40)), "p": rng.uniform(1, 2, 3 if "p[i]" in text else 40)}
    wanted = ra.reference(form.spec, **given)
    for target in ("numpy", "cpu"):
        np.testing.assert_allclose(form.compile(target)(**given), wanted, rtol=1e-13)
