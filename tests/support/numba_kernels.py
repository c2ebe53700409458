"""Printed CPU kernels compiled by Numba, which knows nothing of how the library translates them: a judge."""

from __future__ import annotations

import linecache
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from numba import njit, types

from redalg.kernels.cpu.build import kinds_of
from redalg.kernels.ir.program import Param

TYPES = {"i64": types.int64, "f64": types.float64}
FAST = 'fastmath={"reassoc", "contract"}'


def module_of(source: str) -> ModuleType:
    """The generated text as a module whose lines tracebacks can show."""
    file = f"<redalg cpu kernel {abs(hash(source)):x}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    made = ModuleType(file)
    exec(compile(source, file, "exec"), made.__dict__)
    return made


def functions_by_numba(source: str, names: Sequence[str], params: Sequence[Param]) -> Mapping[str, Any]:
    """What `redalg.kernels.cpu.build.functions` gives."""
    signature = types.void(*(TYPES[kind] for kind in kinds_of(params)))
    module = module_of(source)
    found = {}
    for name in names:
        printed = getattr(module, name)
        options = {k: v for k, v in printed.targetoptions.items() if k != "nopython"}
        found[name] = njit(signature, **options)(printed.py_func)
    return found


def in_order(source: str) -> str:
    """The text without leave to reorder and to contract: what it computes is settled to the last bit."""
    assert FAST in source
    return source.replace(FAST, "fastmath=False")
