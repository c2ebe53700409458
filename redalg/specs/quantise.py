"""Catalog: quantisation, alone and followed by a matrix product.

The matrix products read rounded numbers whose scale depends on the whole row: no rounding cast commutes with a change
of scale, so they derive only under the named assumption "cast_commutes". Where the rounded tensor itself is an output,
nothing has to be assumed: the cast happens after the statistics.
"""

from __future__ import annotations

import redalg as ra
from redalg.specs.entry import entry

COMMUTES = ("cast_commutes",)
DETTMERS = "Dettmers et al. 2022, LLM.int8()"
E4M3_MAX = 448
V3 = "DeepSeek-AI 2024, DeepSeek-V3, section 3.3.2"


@entry("Largest magnitude of every row", f"{DETTMERS}, section 2.1", "i=3 j=17")
def absmax() -> ra.Spec:
    return ra.Spec(a=ra.max(ra.abs(ra.tensors("x[i,j]")), "j"))


@entry(
    "Quantise every token to FP8 (E4M3) by its largest magnitude",
    f"{V3}; Micikevicius et al. 2022, FP8 Formats",
    "i=3 j=17",
)
def fp8_quantise() -> ra.Spec:
    x = ra.tensors("x[i,j]")
    scale = ra.max(ra.abs(x), "j") / E4M3_MAX
    return ra.Spec(q=ra.cast(x / scale, "float8_e4m3fn"), scale=scale)


@entry(
    "Quantise to int8 by the largest magnitude and multiply (both factors by vectors)",
    f"{DETTMERS}, section 3.1",
    "i=3 j=17 k=4",
    assume=COMMUTES,
)
def absmax_int8_gemm() -> ra.Spec:
    x, w = ra.tensors("x[i,j] w[j,k]")
    a, b = ra.max(ra.abs(x), "j"), ra.max(ra.abs(w), "j")
    xq, wq = ra.cast(127 * x / a, "int8"), ra.cast(127 * w / b, "int8")
    return ra.Spec(y=ra.sum(xq * wq, "j") * a * b / 127**2)


@entry("Quantise every token to FP8 (E4M3) and multiply with given weights", V3, "i=3 j=17 k=4", assume=COMMUTES)
def fp8_per_token_gemm() -> ra.Spec:
    x, w = ra.tensors("x[i,j] w[j,k]")
    scale = ra.max(ra.abs(x), "j") / E4M3_MAX
    return ra.Spec(y=ra.sum(ra.cast(x / scale, "float8_e4m3fn") * w, "j") * scale)


@entry(
    "Quantise to int8 with scale and zero point and multiply",
    f"Jacob et al. 2018, section 2.1, eq. 1; {DETTMERS}, section 2.1",
    "i=3 j=17 k=4",
    assume=COMMUTES,
)
def zero_point_int8_gemm() -> ra.Spec:
    x, w = ra.tensors("x[i,j] w[j,k]")
    low, high = ra.min(x, "j"), ra.max(x, "j")
    scale = (high - low) / 255
    q = ra.cast((x - low) / scale - 128, "int8")
    return ra.Spec(y=ra.sum(((q + 128) * scale + low) * w, "j"))


@entry(
    "Shift by the zero point, scale and multiply, before any rounding",
    "Jacob et al. 2018, section 2.1, eq. 1 solved for q",
    "i=3 j=17 k=4",
)
def zero_point_gemm() -> ra.Spec:
    x, w = ra.tensors("x[i,j] w[j,k]")
    low, high = ra.min(x, "j"), ra.max(x, "j")
    return ra.Spec(y=ra.sum(255 * (x - low) / (high - low) * w, "j"))


@entry(
    "Scale of ternary weights: their mean magnitude, with the weights rounded to -1, 0, 1",
    "Ma et al. 2024, The Era of 1-bit LLMs (BitNet b1.58), section 2, eq. 1 to 3",
    "i=3 j=17",
)
def ternary_quantise() -> ra.Spec:
    w = ra.tensors("w[i,j]")
    scale = ra.mean(ra.abs(w), "j")
    return ra.Spec(q=ra.maximum(-1, ra.minimum(1, ra.cast(w / scale, "int8"))), scale=scale)
