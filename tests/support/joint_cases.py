"""Specs whose gradients one reading of the rows can give, plans of them without a GPU, and the truth."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

import redalg as ra
from redalg.joint import Joint, units
from redalg.kernels.ir.layouts import View
from redalg.kernels.joint import planned
from redalg.kernels.launch.planned import Planned
from redalg.kernels.schedule.target import H200, Target
from redalg.numeric.casts import cast_array
from tests.support.chain_cases import emulated

SMALL = H200.having(multiprocessors=1, blocks=2)  # two blocks run at once, and have several rows each

SPECS = {
    "rms_norm": "tensors x[i,j], w[j]; return y = x[i,j]/sqrt(mean[j](x[i,j]**2) + 1/1000)*w[j]",
    "layer_norm": "tensors x[i,j], w[j], b[j]; u = mean[j](x[i,j]); v = mean[j]((x[i,j] - u)**2);"
    "return y = (x[i,j] - u)/sqrt(v + 1/1000)*w[j] + b[j]",
    "gated softmax": "tensors x[i,j], w[j]; z = x[i,j]*w[j]; m = max[j](z); e = exp(z - m); return y = e/sum[j](e)",
    "two axes": "tensors x[a,b,c], w[c]; return y = x[a,b,c]/sqrt(sum[c](x[a,b,c]**2) + 1)*w[c]",
    "an axis of two": "tensors x[i,c,d], w[d]; return y = x[i,c,d]/sqrt(sum[c,d](x[i,c,d]**2) + 1)*w[d]",
    "two streams": "tensors x[i,c,d], w[c,d]; return y = x[i,c,d]/sqrt(sum[c,d](x[i,c,d]**2) + 1)*w[c,d]",
}
FORWARD = {  # not gradients: outputs of rows, and sums over rows of what uses their stage values
    "statistics": ("s = sum[j](x[i,j]**2); return y = x[i,j]/sqrt(s + 1)", "return t = 2*sum[i](x[i,j]*a[i]) + c[j]"),
    "stages": (
        "m = max[j](x[i,j]); e = exp(x[i,j] - m); return y = e/sum[j](e)",
        "m = max[j](x[i,j]); e = exp(x[i,j] - m); return q = sum[i](e/sum[j](e))",
    ),
}


@cache
def joint_of(name: str, given: str = "all") -> Joint:
    if name in FORWARD:
        specs = [ra.parse(text) for text in FORWARD[name]]
    else:
        vjp = ra.parse(SPECS[name]).vjp(given="all" if given == "all" else ())
        specs = list(dict.fromkeys(vjp.specs.values()))
    (found,) = units(specs)
    assert isinstance(found, Joint)
    return found


def dtypes_of(joint: Joint, kind: str) -> dict[str, str]:
    """Tensors of the format; what is saved is float32, as a forward pass saves it."""
    own = {t.name: t.axes for t in joint.spec.tensors}
    return {n: "float32" if n.startswith(("mean", "max", "sum")) and kind != "float64" else kind for n in own}


def plan_of(
    name: str,
    sizes: Mapping[str, int],
    kind: str = "float32",
    schedule: Any = None,
    given: str = "all",
    target: Target = H200,
) -> Planned:
    """The plan of a call with contiguous arrays; with a schedule ({} for the best) nothing is compared."""
    joint = joint_of(name, given)
    views = {t.name: View.contiguous(tuple(sizes[a] for a in t.axes)) for t in joint.spec.tensors if t.axes}
    return planned(joint, dtypes_of(joint, kind), views, target, {} if schedule is None else schedule)


def drawn(
    name: str, sizes: Mapping[str, int], kind: str = "float32", seed: int = 0, given: str = "all"
) -> dict[str, Any]:
    joint, rng = joint_of(name, given), np.random.default_rng(seed)
    dtypes, found = dtypes_of(joint, kind), {}
    for t in joint.spec.tensors:
        x = rng.standard_normal([sizes[a] for a in t.axes])
        x = np.abs(x) + 0.5 if t.name.startswith(("mean", "max", "sum")) else x
        found[t.name] = np.asarray(cast_array(x, dtypes[t.name]), np.float64)
    return found


def truth(name: str, arrays: Mapping[str, Any], given: str = "all") -> dict[str, np.ndarray]:
    """The definitions, each by itself."""
    found: dict[str, Any] = {}
    for spec in joint_of(name, given).apart:
        made = ra.reference(spec, **{t.name: arrays[t.name] for t in spec.tensors})
        found |= made if isinstance(made, dict) else {next(iter(spec.outputs)): made}
    return found


__all__ = ["FORWARD", "SPECS", "drawn", "dtypes_of", "emulated", "joint_of", "plan_of", "truth"]
