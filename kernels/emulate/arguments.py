"""The arguments of a kernel, from arrays, lengths and strides by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from redalg.kernels.ir.program import Param


@dataclass(frozen=True)
class Arguments:
    """What the parameters of a module stand for.

    `operands`: memory, and numbers by value; `results`, `scratch` (workspaces, counters, marks of rows): memory.
    `sizes`: lengths of axes; `fixed`: numbers that are the same for all calls of a kind; `strides`, `strides_out`: of
    operands and results in elements; `maps`: tensor maps.

    >>> given = Arguments({"x": np.arange(3.0)}, {"y": np.zeros(1)}, sizes={"j": 3}, strides={"x": (1,)})
    >>> given.of([Param("size", "j", "int64"), Param("stride", "x", "int64")])
    [np.int64(3), np.int64(1)]
    """

    operands: Mapping[str, Any]
    results: Mapping[str, Any]
    scratch: Mapping[str, Any] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    fixed: Mapping[str, int] = field(default_factory=dict)
    strides: Mapping[str, Sequence[int]] = field(default_factory=dict)
    strides_out: Mapping[str, Sequence[int]] = field(default_factory=dict)
    maps: Any = None

    def of(self, params: Sequence[Param]) -> list[Any]:
        return [self._one(p) for p in params]

    def _one(self, p: Param) -> Any:
        if p.role == "maps":
            return self.maps
        if p.role in ("stride", "stride_out"):
            return np.int64((self.strides if p.role == "stride" else self.strides_out)[p.name][p.dim])
        tables: dict[str, Mapping[str, Any]] = {
            "operand": self.operands,
            "number": self.operands,
            "result": self.results,
            "scratch": self.scratch,
            "counters": self.scratch,
            "marks": self.scratch,
            "size": self.sizes,
            "fixed": self.fixed,
        }
        found = tables[p.role][p.name]
        if p.role == "number":
            return np.dtype(p.dtype).type(found)
        return np.int64(found) if p.role in ("size", "fixed") else found
