"""The library's own kernels under `check_equivalence`: every spec of the catalog."""

from __future__ import annotations

from redalg.testing import check_equivalence
from redalg.testing.adversarial import KINDS, outermost
from tests.support.forms import form_without_assumptions
from tests.support.sample import by_name


@by_name()
def test_every_spec_of_the_catalog(name: str) -> None:
    form = form_without_assumptions(name)
    sizes = {a: (2,) for d in form.spec.tensors for a in d.axes if a in outermost(form.spec)}
    report = check_equivalence(name, form.compile("numpy"), kinds=KINDS, sizes=sizes, layouts=(), calls=3)
    assert report.worst <= 1 and report.compared > report.open
