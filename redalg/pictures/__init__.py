"""Pictures of specs and forms: every number and every word in them is computed from what is drawn.

* `reduction_tree(form, lengths)`: one tree per stage before fusion, one tree with its merges after.
* `data_flow(spec_or_form)`: stages, slots and outputs, what reads what, and the passes over the stream.
* `bytes_moved(spec, sizes)`: what `redalg.traffic` counts, as bars.
* `roofline(form, sizes)`: a kernel's predicted or measured time under the roofs of a device.
* `evolution(form, x=…)`: anchor, corrections and result while elements arrive.
* `error_growth(form)`: errors of competing one-pass forms against 50 digits.
* `separation_rank(spec, stage)`: a stage's body at elements × contexts, its rank, or the minor that refutes one.

Every function draws on the axes it is given (``ax=None`` makes a figure) and returns them; what a picture shows more
than one panel of lies in insets of these axes (``ax.child_axes``). Colours are those of Okabe and Ito (2008), and no
colour is the only difference between two things. Needs matplotlib: ``pip install 'redalg[notebook]'``; this module
itself loads nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redalg.pictures.bars import bytes_moved as bytes_moved
    from redalg.pictures.evolving import evolution as evolution
    from redalg.pictures.flow import data_flow as data_flow
    from redalg.pictures.growth import error_growth as error_growth
    from redalg.pictures.ranks import separation_rank as separation_rank
    from redalg.pictures.roofs import roofline as roofline
    from redalg.pictures.trees import reduction_tree as reduction_tree

_HOME = {
    "reduction_tree": "redalg.pictures.trees",
    "data_flow": "redalg.pictures.flow",
    "bytes_moved": "redalg.pictures.bars",
    "roofline": "redalg.pictures.roofs",
    "evolution": "redalg.pictures.evolving",
    "error_growth": "redalg.pictures.growth",
    "separation_rank": "redalg.pictures.ranks",
}
__all__ = [*_HOME]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'redalg.pictures' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
