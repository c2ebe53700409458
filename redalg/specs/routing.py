"""Catalog: choosing among candidates - mixture-of-experts routing, top-k, nearest neighbours."""

from __future__ import annotations

from typing import Any

import redalg as ra
from redalg.specs.entry import entry


def probabilities(x: Any) -> Any:
    e = ra.exp(x - ra.max(x, "j"))
    return e / ra.sum(e, "j")


@entry("Position of the largest element", "Cormen et al. 2009, Introduction to Algorithms, section 9.1", "i=3 j=17")
def argmax() -> ra.Spec:
    return ra.Spec(position=ra.argmax(ra.tensors("x[i,j]"), "j"))


@entry(
    "Position of the element of largest magnitude",
    "Lawson et al. 1979, Basic Linear Algebra Subprograms, IxAMAX",
    "i=3 j=17",
)
def argmax_magnitude() -> ra.Spec:
    return ra.Spec(position=ra.argmax(ra.abs(ra.tensors("x[i,j]")), "j"))


@entry("The four largest elements and their positions", "Knuth 1998, TAOCP volume 3, section 5.3.3", "i=3 j=17")
def top_k() -> ra.Spec:
    best = ra.topk(ra.tensors("x[i,j]"), 4, "j")
    return ra.Spec(values=best.values, indices=best.indices)


@entry(
    "Switch routing: the most probable expert and its probability",
    "Fedus, Zoph and Shazeer 2022, eq. 1 and 2",
    "i=3 j=17",
)
def moe_switch() -> ra.Spec:
    p = probabilities(ra.tensors("x[i,j]"))
    return ra.Spec(gate=ra.max(p, "j"), expert=ra.argmax(p, "j"))


@entry(
    "Expert routing: softmax over all experts, then the top two",
    "Dai et al. 2024, DeepSeekMoE, section 2, eq. 3 to 5",
    "i=3 j=17",
)
def moe_softmax_topk() -> ra.Spec:
    best = ra.topk(probabilities(ra.tensors("x[i,j]")), 2, "j")
    return ra.Spec(gates=best.values, experts=best.indices)


@entry(
    "Expert routing: softmax, top two, gates divided by their sum",
    "Lepikhin et al. 2021, GShard, section 2.2, algorithm 1",
    "i=3 j=17",
)
def moe_renormalised() -> ra.Spec:
    best = ra.topk(probabilities(ra.tensors("x[i,j]")), 2, "j", name="k")
    return ra.Spec(gates=best.values / ra.sum(best.values, "k"), experts=best.indices)


@entry(
    "Expert routing: top two logits, then a softmax over these",
    "Shazeer et al. 2017, section 2.1; Jiang et al. 2024, Mixtral of Experts, section 2.1",
    "i=3 j=17",
)
def moe_topk_softmax() -> ra.Spec:
    best = ra.topk(ra.tensors("x[i,j]"), 2, "j", name="k")
    e = ra.exp(best.values - ra.max(best.values, "k"))
    return ra.Spec(gates=e / ra.sum(e, "k"), experts=best.indices)


@entry(
    "Expert routing with sigmoid affinities, the top four divided by their sum",
    "DeepSeek-AI 2024, DeepSeek-V3, section 2.1.2, eq. 13 to 15",
    "i=3 j=17",
)
def moe_sigmoid() -> ra.Spec:
    best = ra.topk(ra.sigmoid(ra.tensors("x[i,j]")), 4, "j", name="k")
    return ra.Spec(gates=best.values / ra.sum(best.values, "k"), experts=best.indices)


@entry(
    "Nearest neighbour in Euclidean distance",
    "Cover and Hart 1967, Nearest neighbor pattern classification",
    "i=3 j=17 d=4",
)
def nearest_neighbour() -> ra.Spec:
    q, x = ra.tensors("q[i,d] x[j,d]")
    square = ra.sum((q - x) ** 2, "d")
    return ra.Spec(distance=ra.sqrt(ra.min(square, "j")), position=ra.argmin(square, "j"))


@entry(
    "SPLADE head: term weights by max over the sequence of log(1 + relu(logit)), padding excluded",
    "Formal et al. 2021, SPLADE v2, section 3 (max pooling)",
    "b=2 s=13 d=4 v=5",
    axis="s",
)
def splade() -> ra.Spec:
    H, E = ra.tensors("H[b,s,d] E[v,d]")
    bias = ra.tensors("bias[v]")
    mask = ra.tensors("mask[b,s]", bool=True)
    logits = ra.sum(H * E, "d") + bias
    return ra.Spec(w=ra.max(ra.where(mask, ra.log1p(ra.relu(logits)), 0), "s"))
