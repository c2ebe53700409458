"""Axes of length 0 on a GPU: results that lack such an axis are what the definition says."""

from __future__ import annotations

from itertools import combinations

import pytest

import redalg as ra
from tests.kernels.cpu.test_axes_of_nothing import SPECS
from tests.support.forms import form_of_text

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", SPECS)
def test_results_that_lack_an_axis_of_nothing(name: str) -> None:
    form = form_of_text(*SPECS[name])
    axes = [*form.spec.axes]
    for none in [*combinations(axes, 1), *combinations(axes, 2)]:
        sizes = {a: 0 if a in none else 3 for a in axes}
        torch.manual_seed(len(none))
        given = {
            t.name: torch.randn([sizes[a] for a in t.axes], device="cuda") if t.axes else 1.5 for t in form.spec.tensors
        }
        host = {n: x if isinstance(x, float) else x.cpu().numpy() for n, x in given.items()}
        wanted = ra.reference(form.spec, **host)
        found = form.compile("cuda")(**given)
        for n, exact in wanted.items():
            close = torch.allclose(found[n].double().cpu(), torch.as_tensor(exact).double(), rtol=1e-6, equal_nan=True)
            assert close, (n, none)
