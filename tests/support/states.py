"""States that were saved once and are read for ever (`tests/golden/states`): what wrote them, and what they mean.

`python -m tests.support.states` writes those that are missing, and never one that is there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import redalg as ra
from redalg.streaming import Accumulator
from tests.support.forms import form_of_text
from tests.support.places import ROOT

FOLDER = Path(ROOT) / "tests" / "golden" / "states"
X = np.array([3.0, -1.5, 0.1, 1e300, np.inf, -0.0, 7.25])
TEXTS = {
    "variance": "u = mean[j](x[i,j]); return v = mean[j]((x[i,j] - u)**2)",
    "logsumexp": "m = max[j](x[j]); return s = m + log(sum[j](exp(x[j] - m)))",
    "attention": "S = sum[d](Q[i,d] * K[j,d]); p = exp(S - max[j](S)); return O = sum[j](p * V[j,e]) / sum[j](p)",
    "argmax": "return y = argmax[j](x[j])",
    "scaled": "return y = sum[j](a * x[j])",
    "two_passes": "u = mean[j](x[j]); return y = mean[j](abs(x[j] - u))",
}


def form(name: str) -> ra.Form:
    return form_of_text(TEXTS[name], "j", 2 if name == "two_passes" else 1)


def _fed(name: str, chunks: dict[str, Any], *, bound: dict[str, Any] | None = None, **options: Any) -> Accumulator:
    found = form(name).accumulator(**options, **(bound or {}))
    found.update(**chunks)
    return found


def _variance(dtype: Any = np.float64, **options: Any) -> Accumulator:
    rows = np.array([[1, 2, 4, 8, 9], [3, 3, 3, 3, 3], [-1, 0, 5, 2, 2]])
    return _fed("variance", {"x": rows.astype(dtype)}, **options)


def _attention() -> Accumulator:
    rng = np.random.default_rng(0)
    q, k, v = (rng.integers(-8, 9, shape) / 4 for shape in ((2, 3), (5, 3), (5, 2)))
    return _fed("attention", {"K": k, "V": v}, bound={"Q": q})


def _second_pass() -> Accumulator:
    found = _fed("two_passes", {"x": [1.0, 2.0, 6.0]})
    found.next_pass()
    found.update(x=[1.0, 2.0])
    return found


def _placed() -> Accumulator:
    found = _fed("logsumexp", {"x": [5.0, 1.0]}, start=10)
    return found.merge(_fed("logsumexp", {"x": [2.0]}, start=3))


CASES: dict[str, tuple[str, Callable[[], Accumulator]]] = {
    "variance": ("variance", _variance),
    "variance_float32": ("variance", lambda: _variance(np.float32)),
    "variance_float16_tree": ("variance", lambda: _variance(np.float16, start=4, deterministic=True)),
    "variance_int64": ("variance", lambda: _variance(np.int64)),
    "variance_big": ("variance", lambda: _fed("variance", {"x": np.array([[2**62, -(2**62), 5]])})),
    "logsumexp_placed": ("logsumexp", _placed),
    "logsumexp_special": ("logsumexp", lambda: _fed("logsumexp", {"x": np.array([-np.inf, np.nan, 1.0])})),
    "attention": ("attention", _attention),
    "argmax": ("argmax", lambda: _fed("argmax", {"x": X[:4]})),
    "scaled_wide": ("scaled", lambda: _fed("scaled", {"x": np.array([1e308, 1e308, 3.0])}, bound={"a": 0.1})),
    "two_passes": ("two_passes", _second_pass),
    "empty": ("logsumexp", lambda: form("logsumexp").accumulator()),
}

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, (_, make) in CASES.items():
        if not (FOLDER / f"{name}.state").exists():
            (FOLDER / f"{name}.state").write_bytes(make().to_bytes())
