"""Judges for forms and kernels: laws, derived error bounds, adversarial input, Hypothesis strategies, random specs.

For users, by name and loaded when first asked for. Searches, laws of functions and strategies need Hypothesis
(``pip install 'redalg[testing]'``):

* `check_equivalence`: hold any callable (a kernel, a NumPy or PyTorch function) against the definition of a spec.
* `laws`: what must hold of a form, a monoid or a merge function, as callables for ``pytest.mark.parametrize``.
* `arrays`, `streams`, `partitions`, `bracketings`, `specs`: strategies for Hypothesis.
* `fold`: the tree of merges that a bracketing means.

Below them, module by module:

* `redalg.testing.form_laws`: what must hold of a form on any stream, as values.
* `redalg.testing.bounds`: how far a float result may lie from the definition, computed by running error analysis.
* `redalg.testing.simulate`: the laws of a plan run in any arithmetic (rationals, 60 digits, balls).
* `redalg.testing.generator`, `bodies`: random specs whose verdict, and where possible rank, is known by construction.

Nothing here is shared with the engine or the evaluators it judges.

>>> import numpy as np
>>> import redalg as ra
>>> from redalg.testing import check_equivalence
>>> x = ra.tensors("x[i,j]")
>>> spec = ra.Spec(y=ra.mean((x - ra.mean(x, "j")) ** 2, "j"))
>>> check_equivalence(spec, lambda x: x.var(axis=1)).cases > 30
True
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redalg.testing.equivalence import EquivalenceReport as EquivalenceReport
    from redalg.testing.equivalence import NotEquivalent as NotEquivalent
    from redalg.testing.equivalence import check_equivalence as check_equivalence
    from redalg.testing.sampling import fold as fold
    from redalg.testing.strategies import arrays as arrays
    from redalg.testing.strategies import bracketings as bracketings
    from redalg.testing.strategies import partitions as partitions
    from redalg.testing.strategies import specs as specs
    from redalg.testing.strategies import streams as streams
    from redalg.testing.suites import laws as laws

_HOME = {
    "redalg.testing.equivalence": ("check_equivalence", "EquivalenceReport", "NotEquivalent"),
    "redalg.testing.sampling": ("fold",),
    "redalg.testing.strategies": ("arrays", "streams", "partitions", "bracketings", "specs"),
    "redalg.testing.suites": ("laws",),
}
_MODULE = {name: module for module, names in _HOME.items() for name in names}
__all__ = [*_MODULE]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _MODULE:
        raise AttributeError(f"module 'redalg.testing' has no attribute {name!r}")
    value = getattr(import_module(_MODULE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
