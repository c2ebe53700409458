"""Catalog: normalisation layers, alone and followed by a matrix product."""

from __future__ import annotations

from typing import Any

import redalg as ra
from redalg.specs.entry import entry

BA = "Ba, Kiros and Hinton 2016, Layer Normalization, eq. 3 and section 3.1"
ZHANG = "Zhang and Sennrich 2019, Root Mean Square Layer Normalization, eq. 4"


def standardised(x: Any, axis: Any, eps: Any) -> Any:
    """(x - mean) / sqrt(variance + eps), the variance by its two-pass definition."""
    d = x - ra.mean(x, axis)
    return d / ra.sqrt(ra.mean(d**2, axis) + eps)


@entry("Layer normalisation", BA, "i=3 j=17", draws="eps=1e-5")
def layer_norm() -> ra.Spec:
    x, weight, bias = ra.tensors("x[i,j] weight[j] bias[j]")
    return ra.Spec(y=standardised(x, "j", ra.scalar("eps", nonnegative=True)) * weight + bias)


@entry("Layer normalisation followed by a matrix product", BA, "i=3 j=17 k=4", draws="eps=1e-5")
def layer_norm_gemm() -> ra.Spec:
    x, weight, bias, W = ra.tensors("x[i,j] weight[j] bias[j] W[j,k]")
    y = standardised(x, "j", ra.scalar("eps", nonnegative=True)) * weight + bias
    return ra.Spec(z=ra.sum(y * W, "j"))


@entry("Root mean square normalisation", ZHANG, "i=3 j=17", draws="eps=1e-5")
def rms_norm() -> ra.Spec:
    x, weight = ra.tensors("x[i,j] weight[j]")
    eps = ra.scalar("eps", nonnegative=True)
    return ra.Spec(y=x / ra.sqrt(ra.mean(x**2, "j") + eps) * weight)


@entry(
    "Hessian-vector product of root mean square normalisation, by differentiating twice",
    "Pearlmutter 1994, Fast Exact Multiplication by the Hessian, section 3",
    "i=3 j=17",
    draws="eps=1e-5",
)
def rms_norm_hessian_product() -> ra.Spec:
    return rms_norm.spec.vjp(wrt="x", given=()).specs["x"].vjp(wrt="x", given=()).specs["x"]


@entry("Root mean square normalisation followed by a matrix product", ZHANG, "i=3 j=17 k=4", draws="eps=1e-5")
def rms_norm_gemm() -> ra.Spec:
    x, weight, W = ra.tensors("x[i,j] weight[j] W[j,k]")
    eps = ra.scalar("eps", nonnegative=True)
    y = x / ra.sqrt(ra.mean(x**2, "j") + eps) * weight
    return ra.Spec(z=ra.sum(y * W, "j"))


@entry(
    "Group normalisation over the channels and positions of a group",
    "Wu and He 2018, Group Normalization, section 3.1",
    "b=2 g=2 c=3 s=7",
    axis=("c", "s"),
    draws="eps=1e-5",
)
def group_norm() -> ra.Spec:
    x, weight, bias = ra.tensors("x[b,g,c,s] weight[g,c] bias[g,c]")
    return ra.Spec(y=standardised(x, ["c", "s"], ra.scalar("eps", nonnegative=True)) * weight + bias)


@entry(
    "Batch normalisation over samples and positions of every channel",
    "Ioffe and Szegedy 2015, Batch Normalization, algorithm 1 and section 3.2",
    "n=5 c=3 s=7",
    axis=("n", "s"),
    draws="eps=1e-5",
)
def batch_norm() -> ra.Spec:
    x, weight, bias = ra.tensors("x[n,c,s] weight[c] bias[c]")
    y = standardised(x, ["n", "s"], ra.scalar("eps", nonnegative=True)) * weight + bias
    mean = ra.mean(x, ["n", "s"])
    return ra.Spec(y=y, batch_mean=mean, batch_variance=ra.mean((x - mean) ** 2, ["n", "s"]))


@entry(
    "Instance normalisation of every image and channel",
    "Ulyanov, Vedaldi and Lempitsky 2016, Instance Normalization, section 2",
    "b=2 c=3 s=17",
    axis="s",
    draws="eps=1e-5",
)
def instance_norm() -> ra.Spec:
    x = ra.tensors("x[b,c,s]")
    return ra.Spec(y=standardised(x, "s", ra.scalar("eps", nonnegative=True)))


@entry("Vectors of unit Euclidean length", "Golub and Van Loan 2013, Matrix Computations, section 2.2.1", "i=3 j=17")
def l2_normalise() -> ra.Spec:
    x = ra.tensors("x[i,j]")
    return ra.Spec(y=x / ra.sqrt(ra.sum(x**2, "j")))


@entry("Min-max scaling to [0, 1]", "Han, Kamber and Pei 2011, Data Mining, section 3.5.2, eq. 3.8", "i=3 j=17")
def min_max_scaling() -> ra.Spec:
    x = ra.tensors("x[i,j]")
    low, high = ra.min(x, "j"), ra.max(x, "j")
    return ra.Spec(y=(x - low) / (high - low))


@entry("Standard scores (z-scores)", "Han, Kamber and Pei 2011, Data Mining, section 3.5.2, eq. 3.9", "i=3 j=17")
def standard_scores() -> ra.Spec:
    return ra.Spec(z=standardised(ra.tensors("x[i,j]"), "j", 0))


@entry("Rows scaled by their largest magnitude", "Han, Kamber and Pei 2011, Data Mining, section 3.5.2", "i=3 j=17")
def max_abs_scaling() -> ra.Spec:
    x = ra.tensors("x[i,j]")
    return ra.Spec(y=x / ra.max(ra.abs(x), "j"))
