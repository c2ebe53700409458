"""``accuracy="compensated"`` on a device: whole rows, clusters, splits and columns, against exact sums of fractions."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.forms import form_of_text
from tests.support.sums_of_pairs import TEXTS, arrays, excess

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("schedule", [None, "warp", "block", "cluster", "split"])
@pytest.mark.parametrize("name", TEXTS)
def test_within_the_bound_of_pairs(name: str, schedule: str | None, dtype: type) -> None:
    form = form_of_text(TEXTS[name], "j")
    run = form.compile("cuda", schedule, accuracy="compensated")
    rng = np.random.default_rng(7)
    for n in (1, 2, 129, 4096, 5001) if schedule is None else (4096,):
        given = arrays(rng, 3, n, dtype)
        found = run(**{t.name: torch.from_numpy(given[t.name]).cuda() for t in form.spec.tensors})
        found = found["y"] if isinstance(found, dict) else found
        assert max(excess(name, found.cpu().numpy(), given)) <= 1, n


def test_infinities_are_no_errors() -> None:
    form = form_of_text(TEXTS["product"], "j")
    run = form.compile("cuda", accuracy="compensated")
    x = torch.zeros(3, 300, device="cuda")
    x[0, 5], x[1, 5], x[1, 6], x[2, 7] = torch.inf, torch.inf, -torch.inf, torch.nan
    found = run(x=x, w=torch.ones(300, device="cuda")).tolist()
    assert found[0] == np.inf and np.isnan(found[1]) and np.isnan(found[2])
