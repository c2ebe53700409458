"""Catalog: moments, association and regression, all by their two-pass definitions."""

from __future__ import annotations

from typing import Any

import redalg as ra
from redalg.specs.entry import entry

CHAN = "Chan, Golub and LeVeque 1983, Algorithms for computing the sample variance, eq. 1.1"
JOANES = "Joanes and Gill 1998, Comparing measures of sample skewness and kurtosis, section 1"
PEARSON = "Pearson 1895, Note on regression and inheritance in the case of two parents"


def central(x: Any, order: int) -> Any:
    """Central moment, the mean of (x - mean)^order."""
    return ra.mean((x - ra.mean(x, "j")) ** order, "j")


@entry("Arithmetic mean", "Hardy, Littlewood and Polya 1934, Inequalities, section 2.1", "i=3 j=17")
def mean() -> ra.Spec:
    return ra.Spec(mu=ra.mean(ra.tensors("x[i,j]"), "j"))


@entry("Population variance", CHAN, "i=3 j=17")
def variance() -> ra.Spec:
    return ra.Spec(var=central(ra.tensors("x[i,j]"), 2))


@entry("Sample standard deviation with Bessel's correction", CHAN, "i=3 j=17")
def standard_deviation() -> ra.Spec:
    x = ra.tensors("x[i,j]")
    return ra.Spec(s=ra.sqrt(ra.sum((x - ra.mean(x, "j")) ** 2, "j") / (ra.size("j") - 1)))


@entry("Skewness g1", JOANES, "i=3 j=17")
def skewness() -> ra.Spec:
    x = ra.tensors("x[i,j]")
    return ra.Spec(g1=central(x, 3) / central(x, 2) ** 1.5)


@entry("Excess kurtosis g2", JOANES, "i=3 j=17")
def kurtosis() -> ra.Spec:
    x = ra.tensors("x[i,j]")
    return ra.Spec(g2=central(x, 4) / central(x, 2) ** 2 - 3)


@entry(
    "Jarque-Bera statistic of a test for normality",
    "Jarque and Bera 1987, A test for normality of observations and regression residuals, eq. 5",
    "i=3 j=17",
)
def jarque_bera() -> ra.Spec:
    x = ra.tensors("x[i,j]")
    v = central(x, 2)
    g1_squared, g2 = central(x, 3) ** 2 / v**3, central(x, 4) / v**2 - 3
    return ra.Spec(jb=ra.size("j") / 6 * (g1_squared + g2**2 / 4))


@entry(
    "Covariance of two variables",
    "Bennett et al. 2009, Numerically stable, single-pass, parallel statistics, section II",
    "i=3 j=17",
)
def covariance() -> ra.Spec:
    x, y = ra.tensors("x[i,j] y[i,j]")
    return ra.Spec(cov=ra.mean((x - ra.mean(x, "j")) * (y - ra.mean(y, "j")), "j"))


@entry(
    "Cross-covariance matrix of two sets of variables",
    "Hotelling 1936, Relations between two sets of variates, section 2",
    "j=17 a=3 b=4",
)
def cross_covariance() -> ra.Spec:
    X, Y = ra.tensors("X[j,a] Y[j,b]")
    return ra.Spec(C=ra.mean((X - ra.mean(X, "j")) * (Y - ra.mean(Y, "j")), "j"))


@entry("Pearson's correlation coefficient", PEARSON, "i=3 j=17")
def pearson_correlation() -> ra.Spec:
    x, y = ra.tensors("x[i,j] y[i,j]")
    dx, dy = x - ra.mean(x, "j"), y - ra.mean(y, "j")
    return ra.Spec(r=ra.sum(dx * dy, "j") / ra.sqrt(ra.sum(dx**2, "j") * ra.sum(dy**2, "j")))


@entry(
    "Simple linear regression: slope, intercept, residual sum of squares",
    "Draper and Smith 1998, Applied Regression Analysis, chapter 1, section 1.2",
    "i=3 j=17",
)
def linear_regression() -> ra.Spec:
    x, y = ra.tensors("x[i,j] y[i,j]")
    mx, my = ra.mean(x, "j"), ra.mean(y, "j")
    slope = ra.sum((x - mx) * (y - my), "j") / ra.sum((x - mx) ** 2, "j")
    intercept = my - slope * mx
    rss = ra.sum((y - intercept - slope * x) ** 2, "j")
    return ra.Spec(slope=slope, intercept=intercept, rss=rss)


@entry("Welch's t statistic of two samples", "Welch 1947, The generalization of Student's problem", "i=3 j=17")
def welch_t() -> ra.Spec:
    x, y = ra.tensors("x[i,j] y[i,j]")
    n = ra.size("j")
    error = ra.sqrt((central(x, 2) + central(y, 2)) / (n - 1))
    return ra.Spec(t=(ra.mean(x, "j") - ra.mean(y, "j")) / error)


@entry("Weighted mean", "West 1979, Updating mean and variance estimates, section 2", "i=3 j=17", draws="w=positive")
def weighted_mean() -> ra.Spec:
    x, w = ra.tensors("x[i,j] w[i,j]")
    return ra.Spec(mu=ra.sum(w * x, "j") / ra.sum(w, "j"))


@entry(
    "Weighted variance", "West 1979, Updating mean and variance estimates, section 2", "i=3 j=17", draws="w=positive"
)
def weighted_variance() -> ra.Spec:
    x, w = ra.tensors("x[i,j] w[i,j]")
    total = ra.sum(w, "j")
    mu = ra.sum(w * x, "j") / total
    return ra.Spec(var=ra.sum(w * (x - mu) ** 2, "j") / total)


@entry("Effective sample size of weights", "Kish 1965, Survey Sampling, section 11.7", "i=3 j=17", draws="w=positive")
def effective_sample_size() -> ra.Spec:
    w = ra.tensors("w[i,j]")
    return ra.Spec(n_eff=ra.sum(w, "j") ** 2 / ra.sum(w**2, "j"))


@entry(
    "Moment of inertia about the centre of mass, with the centre of mass",
    "Goldstein, Poole and Safko 2002, Classical Mechanics, section 5.3",
    "j=17 d=3",
)
def moment_of_inertia() -> ra.Spec:
    r = ra.tensors("r[j,d]")
    m = ra.tensors("m[j]", positive=True)
    centre = ra.sum(m * r, "j") / ra.sum(m, "j")
    return ra.Spec(centre=centre, I=ra.sum(m * ra.sum((r - centre) ** 2, "d"), "j"))


@entry(
    "Whether any element lies more than three standard deviations from the mean",
    "Pukelsheim 1994, The three sigma rule",
    "i=3 j=17",
)
def three_sigma_outlier() -> ra.Spec:
    x = ra.tensors("x[i,j]")
    return ra.Spec(found=ra.any(ra.abs(x - ra.mean(x, "j")) > 3 * ra.sqrt(central(x, 2)), "j"))


@entry("Largest deviation from the mean", "David 1970, Order Statistics, section 5.3", "i=3 j=17")
def max_deviation() -> ra.Spec:
    x = ra.tensors("x[i,j]")
    return ra.Spec(d=ra.max(ra.abs(x - ra.mean(x, "j")), "j"))
