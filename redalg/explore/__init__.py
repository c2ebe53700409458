"""Trying things out: walk through a stream element by element, and change a definition and see its verdict at once.

* `steps(form, x=…)`: the state of one row before and after every element, with what moved it and what the element gave.
* `edit("u = mean[j](x[j]); return y = …")`: the text of a spec with its verdict, form or refusal, beside it.
* `kernel(form, {"i": 4096, "j": 4096}, "H200")`: the CUDA kernel that would be launched there, printed without a GPU.

In a notebook the first two are interactive where ipywidgets is installed (``pip install 'redalg[notebook]'``); without
it, in a terminal, and on a page that shows a notebook, they are tables and text. This module itself loads nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redalg.explore.editing import Edit as Edit
    from redalg.explore.editing import edit as edit
    from redalg.explore.printing import Printed as Printed
    from redalg.explore.printing import kernel as kernel
    from redalg.explore.stepping import Step as Step
    from redalg.explore.stepping import Steps as Steps
    from redalg.explore.stepping import steps as steps

_HOME = {
    "redalg.explore.editing": ("Edit", "edit"),
    "redalg.explore.printing": ("Printed", "kernel"),
    "redalg.explore.stepping": ("Step", "Steps", "steps"),
}
_MODULE = {name: module for module, names in _HOME.items() for name in names}
__all__ = [*_MODULE]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _MODULE:
        raise AttributeError(f"module 'redalg.explore' has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
