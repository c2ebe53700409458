"""Specs whose gradients share sums along innermost axes, plans of them without a GPU, and the truth."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

import redalg as ra
from redalg.gradients.steps import Steps, together
from redalg.kernels.ir.layouts import View
from redalg.kernels.launch.planned import Planned
from redalg.kernels.schedule.target import H200
from redalg.kernels.steps import planned
from redalg.numeric.casts import cast_array

SPECS = {  # by the axes of weights: some of the row's streamed ones, some that number rows, or of both kinds
    "group norm": "tensors x[n,g,c,k], w[g,c], b[g,c]; u = mean[c,k](x[n,g,c,k]); v = mean[c,k]((x[n,g,c,k] - u)**2);"
    "return y = (x[n,g,c,k] - u)/sqrt(v + 1/1000)*w[g,c] + b[g,c]",
    "instance norm": "tensors x[n,c,k], w[c], b[c]; u = mean[k](x[n,c,k]); v = mean[k]((x[n,c,k] - u)**2);"
    "return y = (x[n,c,k] - u)/sqrt(v + 1/1000)*w[c] + b[c]",
    "batch norm": "tensors x[n,c,k], w[c], b[c]; u = mean[n,k](x[n,c,k]); v = mean[n,k]((x[n,c,k] - u)**2);"
    "return y = (x[n,c,k] - u)/sqrt(v + 1/1000)*w[c] + b[c]",
    "channels": "tensors x[n,c,k], w[c]; return y = x[n,c,k]/sqrt(sum[c,k](x[n,c,k]**2) + 1)*w[c]",
    "gate of channels": "tensors x[n,c,k], w[c], v[n]; t = x[n,c,k]*tanh(w[c]) + v[n]; m = max[c,k](t);"
    "e = exp(t - m); return y = e/sum[c,k](e)",
    "kept apart": "tensors x[n,c,k], w[c], ok[n,c,k] bool; t = where(ok[n,c,k], x[n,c,k]*w[c], 0);"
    "return y = t/sqrt(sum[c,k](t**2) + 1)",
}


@cache
def steps_of(name: str, given: str = "all") -> Steps:
    vjp = ra.parse(SPECS[name]).vjp(given="all" if given == "all" else ())
    (found,) = together(dict.fromkeys(vjp.specs.values()))
    assert isinstance(found, Steps), found
    return found


def dtypes_of(steps: Steps, kind: str) -> dict[str, str]:
    """Tensors of the format; what is saved is float32, as a forward pass saves it."""
    wide = "float64" if kind == "float64" else "float32"
    narrow = {"x", "w", "b", "v", "grad_y"}
    own = steps.spec.tensors
    return {t.name: "bool" if "bool" in t.domain else kind if t.name in narrow else wide for t in own}


def plan_of(name: str, sizes: Mapping[str, int], kind: str = "float32", schedule: Any = None, way: int = -1) -> Planned:
    """The plan of a call with contiguous arrays; with a schedule ({} for the best) nothing is compared. `way`: one."""
    steps = steps_of(name)
    steps = steps if way < 0 else Steps(steps.apart, steps.ways[way : way + 1])
    views = {t.name: View.contiguous(tuple(sizes[a] for a in t.axes)) for t in steps.spec.tensors if t.axes}
    return planned(steps, dtypes_of(steps, kind), views, H200, schedule)


def drawn(name: str, sizes: Mapping[str, int], kind: str = "float32", seed: int = 0) -> dict[str, Any]:
    """Arguments, and what a forward pass leaves of them, rounded to their formats."""
    steps, rng = steps_of(name), np.random.default_rng(seed)
    vjp, dtypes = ra.parse(SPECS[name]).vjp(given="all"), dtypes_of(steps, kind)

    def rounded(t: Any, x: Any) -> Any:
        if "bool" in t.domain:
            return x
        return np.asarray(cast_array(np.asarray(x, np.float64), dtypes[t.name]), np.float64)

    own = {t.name: t for t in steps.spec.tensors}
    found = {}
    for t in vjp.spec.tensors:
        shape = [sizes[a] for a in t.axes]
        x = rng.random(shape) < 0.7 if "bool" in t.domain else rng.standard_normal(shape)
        found[t.name] = rounded(t, x) if t.name in own else x
    made = ra.reference(vjp.forward, **found)
    made = made if isinstance(made, dict) else {next(iter(vjp.forward.outputs)): made}
    found |= {t: rounded(own[t], made[n]) for t, n in vjp.saved_tensors.items() if t in own}
    missing = {n: t for n, t in own.items() if n not in found}
    found |= {n: rounded(t, rng.standard_normal([sizes[a] for a in t.axes])) for n, t in missing.items()}
    return {n: found[n] for n in own}


def truth(name: str, arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The definitions, each by itself."""
    found: dict[str, Any] = {}
    for spec in steps_of(name).apart:
        made = ra.reference(spec, **{t.name: arrays[t.name] for t in spec.tensors})
        found |= made if isinstance(made, dict) else {next(iter(spec.outputs)): made}
    return found


__all__ = ["SPECS", "drawn", "dtypes_of", "plan_of", "steps_of", "truth"]
