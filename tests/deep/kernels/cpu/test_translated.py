"""Kernels as they are translated for LLVM, beside Numba's compilation of the same text: the same bits.

What generated text allows LLVM to reorder may differ in the last bits, as loops are unrolled in ways of their own; so
both compile it without that leave, and every operation of either must be one of the other.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from redalg.kernels.cpu import build, run
from tests.support.forms import form_of
from tests.support.numba_kernels import functions_by_numba, in_order
from tests.support.sample import SAMPLE

DTYPES = ("float32", "float64", "bfloat16", "float16", "float8_e4m3fn", "int32", "bool")
WAYS = (("rows", False), ("split", False), ("columns", True), ("rows", True))  # schedule, transposed
LENGTHS = (1, 2, 19, 1100, 9000)


def arrays_of(name: str, length: int, dtype: str, transposed: bool) -> dict[str, Any]:
    rng, sizes = np.random.default_rng(length), dict[str, int]()
    found: dict[str, Any] = {}
    for t in form_of(name).spec.tensors:
        for axis in t.axes:
            sizes.setdefault(axis, length if axis == "j" else (3, 5, 16, 7)[len(sizes) % 4])
        shape = tuple(sizes[axis] for axis in t.axes)
        domain = str(t.domain)
        x: Any = np.round(rng.normal(size=shape) * 3, 2)
        if "bool" in domain:
            x = rng.random(shape) < 0.5
        elif "integer" in domain:
            x = rng.integers(0, 3, shape)
        elif not t.axes:
            x = float(abs(x) + 0.25)
        else:
            x = (abs(x) + 0.25 if "positive" in domain or "nonnegative" in domain else x).astype(
                getattr(ml_dtypes, dtype, None) or dtype
            )
        found[t.name] = np.asfortranarray(x) if transposed and t.axes else x
    return found


def results(name: str, dtype: str, schedule: str, transposed: bool) -> list[dict[str, bytes]]:
    made = form_of(name).compile("cpu", schedule=schedule)
    found = []
    for length in LENGTHS:
        with np.errstate(all="ignore"):
            given = made(**arrays_of(name, length, dtype, transposed))
        given = given if isinstance(given, dict) else {"": given}
        found.append({n: np.ascontiguousarray(v).tobytes() for n, v in given.items()})
    return found


@pytest.mark.parametrize(
    "name, schedule, transposed",
    [(n, *way) for k, n in enumerate(sorted(SAMPLE)) for j, way in enumerate(WAYS) if (j - k) % len(WAYS) < 2],
)
def test_numba_finds_the_same_bits(name: str, schedule: str, transposed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each form in two of the ways and each kernel in one of the dtypes, so that all of them occur."""
    case = sorted(SAMPLE).index(name) + WAYS.index((schedule, transposed))
    dtype = DTYPES[case % len(DTYPES)]
    found = []
    for functions in (build.functions, functions_by_numba):
        monkeypatch.setattr(run, "functions", lambda source, *rest, f=functions: f(in_order(source), *rest))
        found.append(results(name, dtype, schedule, transposed))
    assert found[0] == found[1]
