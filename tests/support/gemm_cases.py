"""Matrix products with a cascade on their input that the tests share: texts, plans without a GPU, and dtypes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import redalg as ra
from redalg.kernels.gemm.match import Cut, cut
from redalg.kernels.ir.layouts import View
from redalg.kernels.launch.planned import Planned
from redalg.kernels.pipeline import plan
from redalg.kernels.schedule.target import H200, Target
from redalg.kernels.tile.match import Outside
from redalg.numeric.casts import cast_array
from tests.support import forms

GEMMS = ("fp8_per_token_gemm", "layer_norm_gemm", "rms_norm_gemm", "zero_point_gemm", "absmax_int8_gemm")
PLAIN = "y = sum[j](x[i,j]*w[j,k]); return y"
BATCHED = "y = sum[j](x[b,i,j]*w[b,j,k]); return y"
SCALED = "a = max[j](abs(x[b,i,j])); y = sum[j](x[b,i,j]/a*w[j,k])*a; return y"
BIASED = "y = sum[j](x[i,j]*w[j,k]); return z = relu(y*s[i] + c[k]), y2 = y*2"


def form_of(text: str) -> Any:
    """The form of a catalog entry by name, or of a text, over its axis or j."""
    return forms.form_of(text) if text in ra.catalog else forms.form_of_text(text, "j", 3)


def dtypes_of(text: str, kind: str = "bfloat16", **others: str) -> dict[str, Any]:
    return {t.name: others.get(t.name, kind) if t.axes else float for t in form_of(text).spec.tensors}


def cut_of(text: str, kind: str = "bfloat16", **others: str) -> Cut:
    form = form_of(text)
    return cut(form.spec, form.plan.axis, dtypes_of(text, kind, **others))


def why_not(text: str, kind: str = "bfloat16", **others: str) -> str:
    """Why a spec is no matrix product; "" if it is one."""
    try:
        cut_of(text, kind, **others)
    except Outside as why:
        return str(why)
    return ""


def views_of(text: str, sizes: Mapping[str, int], major: tuple[str, ...] = (), apart: int = 0) -> dict[str, View]:
    """How tensors lie: contiguous, those in `major` with their last two axes exchanged; matrices with so many elements
    behind each of their rows."""
    found = {}
    for t in form_of(text).spec.tensors:
        shape = tuple(sizes[a] for a in t.axes)
        lying = (*shape[:-2], shape[-1], shape[-2]) if t.name in major else shape
        strides = View.contiguous((*lying[:-1], lying[-1] + apart) if len(shape) > 1 else lying).strides
        if t.axes:
            found[t.name] = View(shape, (*strides[:-2], 1, strides[-2]) if t.name in major else strides)
    return found


def planned(
    text: str,
    sizes: Mapping[str, int],
    kind: str = "bfloat16",
    schedule: Any = "tensor",
    major: tuple[str, ...] = (),
    target: Target = H200,
    deterministic: bool = False,
    launches: int | None = None,
    apart: int = 0,
    **others: str,
) -> Planned:
    """The plan of a call with arrays that lie as `views_of` says."""
    form, views = form_of(text), views_of(text, sizes, major, apart)
    return plan(form, dtypes_of(text, kind, **others), views, target, deterministic, schedule, launches)


def example(text: str, sizes: Mapping[str, int], found: Planned) -> tuple[dict[str, Any], dict[str, Any]]:
    """Operands of a product, scratch among them, and what results are in float64, with Σ|L|·|R| as it enters them."""
    rng = np.random.default_rng(sum(sizes.values()))
    kinds = {o.name: o.dtype for o in found.program.operands}
    given: dict[str, Any] = {}
    for t in form_of(text).spec.tensors:
        drawn = rng.standard_normal([sizes[a] for a in t.axes])
        given[t.name] = np.asarray(cast_array(drawn, kinds[t.name]), np.float64)
    x, w = given["x"], given["w"]
    scratch: dict[str, Any] = {"left": x, "right": np.swapaxes(w, -1, -2)}
    top = abs(x).max(-1)
    c: Any = 1.0
    if text == "fp8_per_token_gemm":
        x, c = np.asarray(cast_array(448 * x / top[..., None], "float8_e4m3fn"), np.float64), top[..., None] / 448
    scratch |= {"left": x, "state1": top}
    for name, (operand, view) in found.scratch.items():
        lying = (
            scratch[name] if operand.axes[-1] == "j" or len(operand.axes) < 2 else np.swapaxes(scratch[name], -1, -2)
        )
        given[name] = lying.reshape(view.shape)
        assert operand.name == name
    y, size = (x @ w) * c, (abs(x) @ abs(w)) * c
    true: dict[str, Any] = {"y": (y, size)}
    if text == BIASED:
        s, b = given["s"][:, None], given["c"]
        true = {"z": (np.maximum(y * s + b, 0), size * abs(s) + abs(b)), "y2": (2 * y, 2 * size)}
    return given, true
