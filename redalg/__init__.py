"""redalg: naive specifications of cascaded reductions, and their incremental forms.

Names load lazily: ``import redalg`` imports nothing heavy.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_HOME: dict[str, tuple[str, ...]] = {
    "redalg.errors": ("RedalgError", "NotDecomposable", "Undecided", "CertificateError"),
    "redalg.expr": ("tensors", "scalar", "index", "size", "oo"),
    "redalg.reductions": (
        "sum", "prod", "max", "min", "mean", "any", "all", "argmax", "argmin", "logsumexp", "topk", "reduce",
    ),
    "redalg.maps": (
        "exp", "log", "sqrt", "abs", "relu", "sigmoid", "tanh", "log1p", "erf", "where", "cast", "maximum", "minimum",
        "eq", "ne",
    ),
    "redalg.monoid": ("Monoid",),
    "redalg.spec": ("Spec",),
    "redalg.grammar": ("parse",),
    "redalg.derive": ("derive_incremental", "verdict"),
    "redalg.form": ("Form",),
    "redalg.streaming": ("Accumulator",),
    "redalg.definition": ("reference",),
    "redalg.specs": ("catalog",),
    "redalg.kernels.traffic": ("traffic",),
}  # fmt: skip
_SUBMODULES = frozenset({"display", "explore", "pictures"})  # whole modules that are public under the package's name
_MODULE = {name: module for module, names in _HOME.items() for name in names}
__all__ = ["__version__", *_MODULE]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"redalg.{name}")
    module = _MODULE.get(name)
    if module is None:
        raise AttributeError(f"module 'redalg' has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_SUBMODULES})
