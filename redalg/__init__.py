"""redalg: naive specifications of cascaded reductions, and their incremental forms.

Names load lazily: ``import redalg`` imports nothing heavy.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_HOME: dict[str, tuple[str, ...]] = {
    "redalg.errors": ("RedalgError", "NotDecomposable", "Undecided", "CertificateError"),
    "redalg.language.leaves": ("tensors", "scalar", "index", "size", "oo", "inf", "nan"),
    "redalg.language.reductions": (
        "sum",
        "prod",
        "max",
        "min",
        "mean",
        "any",
        "all",
        "argmax",
        "argmin",
        "logsumexp",
        "topk",
        "reduce",
    ),
    "redalg.language.maps": (
        *"exp exp2 log log2 sqrt abs relu sigmoid softplus tanh log1p expm1 erf erfc".split(),
        *"where cast maximum minimum eq ne".split(),
    ),
    "redalg.language.spellings": ("silu", "gelu", "clip", "logaddexp", "isnan"),
    "redalg.language.statistics": ("var", "std", "cov", "norm", "count", "softmax", "log_softmax"),
    "redalg.language.monoid": ("Monoid",),
    "redalg.language.spec": ("Spec",),
    "redalg.language.grammar": ("parse",),
    "redalg.api": ("derive_incremental", "verdict"),
    "redalg.form": ("Form",),
    "redalg.streaming": ("Accumulator",),
    "redalg.numeric.definition": ("reference",),
    "redalg.specs.collection": ("catalog",),
    "redalg.kernels.traffic": ("traffic",),
}
_SUBMODULES = frozenset({"display", "explore", "kernels", "pictures", "proofs", "testing", "torch"})  # public packages
_MODULE = {name: module for module, names in _HOME.items() for name in names}
__all__ = ["__version__", *_MODULE]  # noqa: PLE0604

try:
    from redalg import _moved
except ImportError:  # certificates are checked also where nothing else of the project can be imported
    pass
else:
    _moved.install()


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
    """What is public, whatever was imported: completion shows no internal module."""
    return sorted({*__all__, *_SUBMODULES})
