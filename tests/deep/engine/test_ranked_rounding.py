"""The k largest of elements times a stage value: entries of both ends are compared by values that are rounded alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.forms import Forms
from tests.support.profiles import examples

FORMS = Forms(
    {
        "scaled": "s=sum[j](w[j]); t=sum[j](x[j]*w[j]); return y=topk[j:2](s*(x[j]+1/10)/t).values",
        "thirds": "s=sum[j](w[j]); t=sum[j](w[j]**2); return y=topk[j:3](x[j]*s/t/3).values",
    }
)
NUMBER = st.floats(-3, 3).map(lambda v: round(v, 2)).filter(bool)
COLUMNS = st.integers(3, 6).flatmap(lambda n: st.tuples(*[st.lists(NUMBER, min_size=n, max_size=n)] * 2))


@pytest.mark.parametrize("name", sorted(FORMS))
@given(columns=COLUMNS)
@examples(100)
def test_no_entry_is_lost_by_rounding(name: str, columns: Any) -> None:
    x, w = map(np.array, columns)
    s = w.sum()
    with np.errstate(all="ignore"):
        h = s / (x * w).sum() if name == "scaled" else s / (w**2).sum() / 3
        wanted = np.sort((x + 0.1 if name == "scaled" else x) * h)[::-1][: 2 if name == "scaled" else 3]
        found = FORMS[name].compile("numpy")(x=x, w=w)
    if np.isfinite(h) and abs(s) > 1e-6:
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
