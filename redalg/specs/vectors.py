"""Catalog: means other than the arithmetic one, norms, similarities and distances."""

from __future__ import annotations

from sympy import Rational

import redalg as ra
from redalg.specs.entry import entry

HLP = "Hardy, Littlewood and Polya 1934, Inequalities"
GVL = "Golub and Van Loan 2013, Matrix Computations, section 2.2.1"


@entry("Geometric mean", f"{HLP}, section 2.1", "i=3 j=17")
def geometric_mean() -> ra.Spec:
    x = ra.tensors("x[i,j]", positive=True)
    return ra.Spec(g=ra.exp(ra.mean(ra.log(x), "j")))


@entry("Weighted geometric mean, the product of x^(w / sum w)", f"{HLP}, section 2.2", "i=3 j=17")
def weighted_geometric_mean() -> ra.Spec:
    x, w = ra.tensors("x[i,j] w[i,j]", positive=True)
    return ra.Spec(g=ra.prod(x ** (w / ra.sum(w, "j")), "j"))


@entry("Harmonic mean", f"{HLP}, section 2.1", "i=3 j=17")
def harmonic_mean() -> ra.Spec:
    x = ra.tensors("x[i,j]", positive=True)
    return ra.Spec(h=ra.size("j") / ra.sum(1 / x, "j"))


@entry("The p-norm of every row", GVL, "i=3 j=17", draws="p=3")
def p_norm() -> ra.Spec:
    x, p = ra.tensors("x[i,j]"), ra.scalar("p", positive=True)
    return ra.Spec(norm=ra.sum(ra.abs(x) ** p, "j") ** (1 / p))


@entry("Cubic p-norm of elements scaled by the largest, safe from overflow", f"{GVL}; Blue 1978", "i=3 j=17")
def p_norm_safe() -> ra.Spec:
    x = ra.tensors("x[i,j]")
    a = ra.max(ra.abs(x), "j")
    return ra.Spec(norm=a * ra.sum((ra.abs(x) / a) ** 3, "j") ** Rational(1, 3))


@entry(
    "Euclidean norm of elements scaled by the largest, safe from overflow",
    "Blue 1978, A portable Fortran program to find the Euclidean norm of a vector",
    "i=3 j=17",
)
def two_norm_safe() -> ra.Spec:
    x = ra.tensors("x[i,j]")
    a = ra.max(ra.abs(x), "j")
    return ra.Spec(norm=a * ra.sqrt(ra.sum((x / a) ** 2, "j")))


@entry("Root mean square", f"{HLP}, section 2.1, order 2", "i=3 j=17")
def root_mean_square() -> ra.Spec:
    return ra.Spec(rms=ra.sqrt(ra.mean(ra.tensors("x[i,j]") ** 2, "j")))


@entry("Crest factor: peak magnitude over root mean square", "IEC 60050-103:2009, 103-06-08 (peak factor)", "i=3 j=17")
def crest_factor() -> ra.Spec:
    x = ra.tensors("x[i,j]")
    return ra.Spec(c=ra.max(ra.abs(x), "j") / ra.sqrt(ra.mean(x**2, "j")))


@entry(
    "Cosine similarity", "Salton and McGill 1983, Introduction to Modern Information Retrieval, chapter 6", "i=3 j=17"
)
def cosine_similarity() -> ra.Spec:
    x, y = ra.tensors("x[i,j] y[i,j]")
    return ra.Spec(c=ra.sum(x * y, "j") / (ra.sqrt(ra.sum(x**2, "j")) * ra.sqrt(ra.sum(y**2, "j"))))


@entry("Chebyshev (L-infinity) distance", "Deza and Deza 2009, Encyclopedia of Distances, section 5.2", "i=3 j=17")
def linf_distance() -> ra.Spec:
    x, y = ra.tensors("x[i,j] y[i,j]")
    return ra.Spec(d=ra.max(ra.abs(x - y), "j"))
