"""Catalog: attention in the forms in which it is published."""

from __future__ import annotations

from typing import Any

import redalg as ra
from redalg.specs.entry import entry

SIZES = "h=2 i=3 j=17 d=4 e=5"
VASWANI = "Vaswani et al. 2017, Attention Is All You Need"


def scores() -> tuple[Any, Any]:
    """The raw scores q_i · k_j and the values they weigh."""
    Q, K, V = ra.tensors("Q[h,i,d] K[h,j,d] V[h,j,e]")
    return ra.sum(Q * K, "d"), V


def weighted(S: Any, V: Any) -> Any:
    """Values averaged with the softmax of the scores as weights."""
    p = ra.exp(S - ra.max(S, "j"))
    return ra.sum(p * V, "j") / ra.sum(p, "j")


@entry("Dot-product attention", "Luong, Pham and Manning 2015, section 3.1, score 'dot'", SIZES)
def attention() -> ra.Spec:
    S, V = scores()
    return ra.Spec(O=weighted(S, V))


@entry("Scaled dot-product attention", f"{VASWANI}, eq. 1", SIZES, draws="scale=0.5")
def attention_scaled() -> ra.Spec:
    S, V = scores()
    return ra.Spec(O=weighted(S * ra.scalar("scale"), V))


@entry("Causal attention: a query sees positions up to its own", f"{VASWANI}, section 3.2.3", SIZES, draws="scale=0.5")
def attention_causal() -> ra.Spec:
    S, V = scores()
    seen = ra.index("j") <= ra.index("i")
    return ra.Spec(O=weighted(ra.where(seen, S * ra.scalar("scale"), -ra.oo), V))


@entry(
    "Sliding-window attention: a query sees the last `window` positions up to its own",
    "Beltagy, Peters and Cohan 2020, Longformer, section 3.1; Jiang et al. 2023, Mistral 7B, section 2",
    "h=2 i=12 j=17 d=4 e=5",
    draws="window=5",
)
def attention_window() -> ra.Spec:
    S, V = scores()
    window = ra.scalar("window", integer=True)
    i, j = ra.index("i"), ra.index("j")
    return ra.Spec(O=weighted(ra.where((j <= i) & (i - j < window), S, -ra.oo), V))


@entry(
    "Attention with a padding mask; a row without any key gives zero",
    f"{VASWANI}, section 3.2.3, with key padding",
    SIZES,
)
def attention_masked() -> ra.Spec:
    S, V = scores()
    mask = ra.tensors("mask[j]", bool=True)
    return ra.Spec(O=weighted(ra.where(mask, S, -ra.oo), V), empty={"O": 0})


@entry(
    "Attention with linear biases (ALiBi)",
    "Press, Smith and Lewis 2022, section 3",
    SIZES,
    draws="slope=positive scale=0.5",
)
def attention_alibi() -> ra.Spec:
    S, V = scores()
    slope = ra.tensors("slope[h]")
    i, j = ra.index("i"), ra.index("j")
    biased = S * ra.scalar("scale") - slope * (i - j)
    return ra.Spec(O=weighted(ra.where(j <= i, biased, -ra.oo), V))


@entry("Attention with a learned bias per pair of positions", "Raffel et al. 2020, T5, section 2.1", SIZES)
def attention_bias() -> ra.Spec:
    S, V = scores()
    return ra.Spec(O=weighted(S + ra.tensors("bias[h,i,j]"), V))


@entry(
    "Attention with soft-capped logits, cap · tanh(S / cap)",
    "Gemma Team 2024, Gemma 2, section 2 (logit soft-capping)",
    SIZES,
    draws="cap=2.0",
)
def attention_softcap() -> ra.Spec:
    S, V = scores()
    cap = ra.scalar("cap", positive=True)
    return ra.Spec(O=weighted(cap * ra.tanh(S / cap), V))


@entry(
    "Attention with a learned sink: one extra logit per head that takes weight and gives no value",
    "Xiao et al. 2024, StreamingLLM, section 3; OpenAI 2025, gpt-oss model card, section 2",
    SIZES,
)
def attention_sink() -> ra.Spec:
    S, V = scores()
    sink = ra.tensors("sink[h]")
    m = ra.maximum(ra.max(S, "j"), sink)
    p = ra.exp(S - m)
    return ra.Spec(O=ra.sum(p * V, "j") / (ra.sum(p, "j") + ra.exp(sink - m)))


@entry(
    "Grouped-query attention: r query heads share one head of keys and values",
    "Ainslie et al. 2023, GQA, section 2.2",
    "b=2 g=2 r=3 i=3 j=17 d=4 e=5",
)
def attention_grouped_query() -> ra.Spec:
    Q, K, V = ra.tensors("Q[b,g,r,i,d] K[b,g,j,d] V[b,g,j,e]")
    return ra.Spec(O=weighted(ra.sum(Q * K, "d"), V))


@entry(
    "Multi-head latent attention: keys and values from one latent vector, and a shared rotary part of the keys",
    "DeepSeek-AI 2024, DeepSeek-V2, sections 2.1.2 and 2.1.3",
    "h=2 i=3 j=17 d=4 e=5 c=3 r=2",
    draws="scale=0.5",
)
def attention_latent() -> ra.Spec:
    Q, Qr = ra.tensors("Q[h,i,d] Qr[h,i,r]")
    C, Kr = ra.tensors("C[j,c] Kr[j,r]")
    UK, UV = ra.tensors("UK[h,d,c] UV[h,e,c]")
    K, V = ra.sum(UK * C, "c"), ra.sum(UV * C, "c")
    S = ra.sum(Q * K, "d") + ra.sum(Qr * Kr, "r")
    return ra.Spec(O=weighted(S * ra.scalar("scale"), V))


@entry(
    "Attention that also returns its logsumexp, for merging partial results",
    "Dao 2023, FlashAttention-2, section 3.1.1",
    SIZES,
)
def attention_with_lse() -> ra.Spec:
    S, V = scores()
    return ra.Spec(O=weighted(S, V), lse=ra.logsumexp(S, "j"))


@entry(
    "Attention with row statistics: maximum, its position, mean score, largest weight and entropy of the weights",
    f"{VASWANI}, eq. 1; Shannon 1948, section 6",
    SIZES,
)
def attention_with_statistics() -> ra.Spec:
    S, V = scores()
    m, lse = ra.max(S, "j"), ra.logsumexp(S, "j")
    return ra.Spec(
        O=weighted(S, V),
        m=m,
        position=ra.argmax(S, "j"),
        mean_score=ra.mean(S, "j"),
        top_weight=ra.exp(m - lse),
        entropy=-ra.sum(ra.exp(S - lse) * (S - lse), "j"),
    )


@entry(
    "Differential attention: the difference of two softmaxes weighs the values",
    "Ye et al. 2024, Differential Transformer, eq. 1",
    SIZES,
    draws="lam=0.25",
)
def attention_differential() -> ra.Spec:
    Q1, K1, Q2, K2, V = ra.tensors("Q1[h,i,d] K1[h,j,d] Q2[h,i,d] K2[h,j,d] V[h,j,e]")
    first, second = weighted(ra.sum(Q1 * K1, "d"), V), weighted(ra.sum(Q2 * K2, "d"), V)
    return ra.Spec(O=first - ra.scalar("lam") * second)


@entry(
    "Attention on scaled cosines of queries and keys",
    "Liu et al. 2022, Swin Transformer V2, section 3.3, eq. 2",
    SIZES,
    draws="tau=0.5",
)
def attention_cosine() -> ra.Spec:
    Q, K, V = ra.tensors("Q[h,i,d] K[h,j,d] V[h,j,e]")
    tau = ra.scalar("tau", positive=True)
    lengths = ra.sqrt(ra.sum(Q**2, "d")) * ra.sqrt(ra.sum(K**2, "d"))
    return ra.Spec(O=weighted(ra.sum(Q * K, "d") / lengths / tau, V))


@entry(
    "Sigmoid attention with a bias (minus the logarithm of the expected sequence length)",
    "Ramapuram et al. 2024, Theory, Analysis, and Best Practices for Sigmoid Self-Attention, section 3",
    SIZES,
    draws="bias=-2.5",
)
def attention_sigmoid() -> ra.Spec:
    S, V = scores()
    return ra.Spec(O=ra.sum(ra.sigmoid(S + ra.scalar("bias")) * V, "j"))


@entry("ReLU attention, divided by the sequence length", "Wortsman et al. 2023, Replacing softmax with ReLU", SIZES)
def attention_relu() -> ra.Spec:
    S, V = scores()
    return ra.Spec(O=ra.sum(ra.relu(S) / ra.size("j") * V, "j"))


@entry(
    "Linear attention with the feature map elu(x) + 1",
    "Katharopoulos et al. 2020, Transformers are RNNs, eq. 4 and 7",
    SIZES,
)
def attention_linear() -> ra.Spec:
    Q, K, V = ra.tensors("Q[h,i,d] K[h,j,d] V[h,j,e]")
    q = ra.where(Q > 0, Q + 1, ra.exp(Q))
    k = ra.where(K > 0, K + 1, ra.exp(K))
    w = ra.sum(q * k, "d")
    return ra.Spec(O=ra.sum(w * V, "j") / ra.sum(w, "j"))
