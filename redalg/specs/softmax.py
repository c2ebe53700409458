"""Catalog: softmax, its pieces and its relatives, entropies and divergences, averages over a Boltzmann distribution."""

from __future__ import annotations

import redalg as ra
from redalg.specs.entry import entry

GBC = "Goodfellow, Bengio and Courville 2016, Deep Learning"
BHH = "Blanchard, Higham and Higham 2021, Accurately computing the log-sum-exp and softmax functions"


@entry("Softmax of every row", f"Bridle 1990; {GBC}, eq. 4.1 with the shift of section 4.1", "i=3 j=17")
def softmax() -> ra.Spec:
    x = ra.tensors("x[i,j]")
    p = ra.exp(x - ra.max(x, "j"))
    return ra.Spec(y=p / ra.sum(p, "j"))


@entry("Denominator of the safe softmax: the sum of exp(x - max x)", f"{BHH}, section 1", "i=3 j=17")
def softmax_denominator() -> ra.Spec:
    x = ra.tensors("x[i,j]")
    return ra.Spec(l=ra.sum(ra.exp(x - ra.max(x, "j")), "j"))


@entry(
    "Row maximum and denominator, the statistics kept for a backward pass",
    "Milakov and Gimelshein 2018, Online normalizer calculation for softmax, section 2",
    "i=3 j=17",
)
def softmax_statistics() -> ra.Spec:
    x = ra.tensors("x[i,j]")
    m = ra.max(x, "j")
    return ra.Spec(m=m, l=ra.sum(ra.exp(x - m), "j"))


@entry("log of the sum of exponentials", f"{BHH}, eq. 1.1", "i=3 j=17")
def logsumexp() -> ra.Spec:
    x = ra.tensors("x[i,j]")
    return ra.Spec(y=ra.logsumexp(x, "j"))


@entry("log of the mean of exponentials", "Burda, Grosse and Salakhutdinov 2016, section 3, eq. 8", "i=3 j=17")
def log_mean_exp() -> ra.Spec:
    x = ra.tensors("x[i,j]")
    return ra.Spec(y=ra.logsumexp(x, "j") - ra.log(ra.size("j")))


@entry("Logarithm of the softmax", f"{GBC}, eq. 6.30", "i=3 j=17")
def log_softmax() -> ra.Spec:
    x = ra.tensors("x[i,j]")
    m = ra.max(x, "j")
    return ra.Spec(y=x - m - ra.log(ra.sum(ra.exp(x - m), "j")))


@entry("Softmin: softmax of the negated scores", "Bridle 1990, with the sign of the scores reversed", "i=3 j=17")
def softmin() -> ra.Spec:
    x = ra.tensors("x[i,j]")
    p = ra.exp(ra.min(x, "j") - x)
    return ra.Spec(y=p / ra.sum(p, "j"))


@entry(
    "Smoothed minimum -g log(sum exp(-x/g))", "Cuturi and Blondel 2017, Soft-DTW, section 2", "i=3 j=17 ", draws="g=0.5"
)
def soft_minimum() -> ra.Spec:
    x, g = ra.tensors("x[i,j]"), ra.scalar("g", positive=True)
    return ra.Spec(y=-g * ra.logsumexp(-x / g, "j"))


@entry(
    "Cross-entropy of logits with the index of the true class",
    f"{GBC}, section 6.2.2.3",
    "i=3 j=17",
    draws="t=below:j",
)
def cross_entropy() -> ra.Spec:
    x, t = ra.tensors("x[i,j]"), ra.tensors("t[i]", integer=True)
    picked = ra.sum(ra.where(ra.eq(ra.index("j"), t), x, 0), "j")
    return ra.Spec(loss=ra.logsumexp(x, "j") - picked)


@entry(
    "Hessian-vector product of cross-entropy, by differentiating twice: (diag p - p pᵀ)·v for each row",
    "Pearlmutter 1994, Fast Exact Multiplication by the Hessian, section 3",
    "i=3 j=17",
)
def cross_entropy_hessian_product() -> ra.Spec:
    return cross_entropy.spec.vjp(wrt="x", given=()).specs["x"].vjp(wrt="x", given=()).specs["x"]


@entry(
    "Cross-entropy with the target smoothed towards the uniform distribution",
    "Szegedy et al. 2016, Rethinking the Inception Architecture, section 7",
    "i=3 j=17",
    draws="t=below:j smoothing=0.125",
)
def cross_entropy_label_smoothing() -> ra.Spec:
    x, t = ra.tensors("x[i,j]"), ra.tensors("t[i]", integer=True)
    smoothing = ra.scalar("smoothing")
    log_p = x - ra.logsumexp(x, "j")
    target = (1 - smoothing) * ra.where(ra.eq(ra.index("j"), t), 1, 0) + smoothing / ra.size("j")
    return ra.Spec(loss=-ra.sum(target * log_p, "j"))


@entry(
    "Cross-entropy of logits with soft targets",
    "Hinton, Vinyals and Dean 2015, section 2",
    "i=3 j=17",
    draws="q=probability",
)
def soft_cross_entropy() -> ra.Spec:
    x, q = ra.tensors("x[i,j]"), ra.tensors("q[i,j]", nonnegative=True)
    return ra.Spec(loss=-ra.sum(q * (x - ra.logsumexp(x, "j")), "j"))


@entry(
    "Cross-entropy of the logits of a linear head, streamed over the vocabulary",
    "Wijmans et al. 2024, Cut Your Losses in Large-Vocabulary Language Models, section 3",
    "i=3 j=17 d=4",
    draws="t=below:j",
)
def cross_entropy_linear_head() -> ra.Spec:
    h, W = ra.tensors("h[i,d] W[j,d]")
    t = ra.tensors("t[i]", integer=True)
    x = ra.sum(h * W, "d")
    picked = ra.sum(ra.where(ra.eq(ra.index("j"), t), x, 0), "j")
    return ra.Spec(loss=ra.logsumexp(x, "j") - picked)


@entry(
    "Predicted class and the maximum softmax probability, its confidence",
    "Hendrycks and Gimpel 2017, A baseline for detecting misclassified examples, section 2",
    "i=3 j=17",
)
def softmax_confidence() -> ra.Spec:
    x = ra.tensors("x[i,j]")
    e = ra.exp(x - ra.max(x, "j"))
    p = e / ra.sum(e, "j")
    return ra.Spec(confidence=ra.max(p, "j"), label=ra.argmax(x, "j"))


@entry("Shannon entropy of a distribution", "Shannon 1948, section 6", "i=3 j=17", draws="p=probability")
def entropy() -> ra.Spec:
    p = ra.tensors("p[i,j]", positive=True)
    return ra.Spec(H=-ra.sum(p * ra.log(p), "j"))


@entry(
    "Entropy of the distribution proportional to given weights",
    "Shannon 1948, section 6, with p = w / sum w",
    "i=3 j=17",
)
def entropy_of_weights() -> ra.Spec:
    w = ra.tensors("w[i,j]", positive=True)
    p = w / ra.sum(w, "j")
    return ra.Spec(H=-ra.sum(p * ra.log(p), "j"))


@entry("Entropy of the softmax of logits", "Shannon 1948, section 6, with p = softmax(x)", "i=3 j=17")
def softmax_entropy() -> ra.Spec:
    x = ra.tensors("x[i,j]")
    lse = ra.logsumexp(x, "j")
    return ra.Spec(H=-ra.sum(ra.exp(x - lse) * (x - lse), "j"))


@entry(
    "Kullback-Leibler divergence of two distributions",
    "Kullback and Leibler 1951, section 2",
    "i=3 j=17",
    draws="p=probability q=probability",
)
def kl_divergence() -> ra.Spec:
    p, q = ra.tensors("p[i,j] q[i,j]", positive=True)
    return ra.Spec(D=ra.sum(p * ra.log(p / q), "j"))


@entry(
    "Kullback-Leibler divergence between the softmaxes of two rows of logits",
    "Hinton, Vinyals and Dean 2015, section 2 (distillation)",
    "i=3 j=17",
)
def kl_divergence_of_logits() -> ra.Spec:
    x, z = ra.tensors("x[i,j] z[i,j]")
    log_p, log_q = x - ra.logsumexp(x, "j"), z - ra.logsumexp(z, "j")
    return ra.Spec(D=ra.sum(ra.exp(log_p) * (log_p - log_q), "j"))


@entry(
    "Thermal average of an observable at inverse temperature beta",
    "Gibbs 1902; Landau and Lifshitz 1980, Statistical Physics, section 28",
    "i=3 j=17",
    draws="beta=0.75",
)
def boltzmann_average() -> ra.Spec:
    E, a = ra.tensors("E[i,j] a[i,j]")
    beta = ra.scalar("beta")
    u = -beta * E
    w = ra.exp(u - ra.max(u, "j"))
    return ra.Spec(average=ra.sum(a * w, "j") / ra.sum(w, "j"))


@entry(
    "Boltzmann operator: the average of values weighted by their own exponentials",
    "Asadi and Littman 2017, An alternative softmax operator, section 2",
    "i=3 j=17",
    draws="beta=0.75",
)
def boltzmann_operator() -> ra.Spec:
    x, beta = ra.tensors("x[i,j]"), ra.scalar("beta")
    w = ra.exp(beta * x - ra.max(beta * x, "j"))
    return ra.Spec(y=ra.sum(x * w, "j") / ra.sum(w, "j"))


@entry(
    "Canonical ensemble: free energy, mean energy and heat capacity (k = 1)",
    "Landau and Lifshitz 1980, Statistical Physics, sections 28 and 31",
    "j=17",
    draws="beta=0.75",
)
def canonical_ensemble() -> ra.Spec:
    E, beta = ra.tensors("E[j]"), ra.scalar("beta", positive=True)
    w = ra.exp(-beta * E - ra.max(-beta * E, "j"))
    Z = ra.sum(w, "j")
    U = ra.sum(E * w, "j") / Z
    C = beta**2 * ra.sum((E - U) ** 2 * w, "j") / Z
    return ra.Spec(F=-ra.logsumexp(-beta * E, "j") / beta, U=U, C=C)
