"""erf x and erfc x, as values of `redalg.kernels.cpu.math.values`: full range, no branches.

erfc x = e^(-x²)·P(q)/(1 + 2x), q = (x - K)/(x + K), for x ≥ 0 (Shepherd & Laframboise 1981, "Chebyshev approximation of
(1 + 2x) exp(x²) erfc x in 0 ≤ x < ∞"), the rounding of x² being put back. erf x = x + x·P(x²) for |x| < 1, and beyond
1 - 2^(-P(x)). The polynomials are minimax, found by Remez's exchange.
"""

from __future__ import annotations

from redalg.kernels.cpu.math.exp import exp, exp2_inside
from redalg.kernels.cpu.math.values import Value, absolute, call, clamped, fma, polynomial, select, with_sign

MIDDLE = 3.75
# erf x = x + x·(c₀ + c₁·x² + …) for |x| ≤ 1
ERF = {
    "f32": (0.12837917, -0.37612626, 0.112835854, -0.026853813, 0.0051883277, -0.00080101937, 7.8538615e-05),
    "f64": (
        0.1283791670955126,
        -0.3761263890318375,
        0.11283791670954857,
        -0.026866170645072893,
        0.005223977624780861,
        -0.0008548326978741853,
        0.00012055331036886443,
        -1.4925593506565355e-05,
        1.6460972811714553e-06,
        -1.6350025165750664e-07,
        1.4657879458374625e-08,
        -1.1365664483814334e-09,
        5.945259272145766e-11,
    ),
}
# -log₂ erfc x = c₀ + c₁·x + … for 1 ≤ x ≤ 4 or 6, from where on erf x rounds to 1; the error is relative to erf x
FAR = {
    "f32": (0.00051030813, 1.6259751, 0.920765, 0.14865151, -0.03145843, 0.004240958, -0.0002677268),
    "f64": (
        2.659823365025371e-07,
        1.6279043098562551,
        0.9184610724272876,
        0.1482320755235373,
        -0.02752223631419692,
        -0.00040715889843415424,
        0.0025548927727443386,
        -0.0009274016496956475,
        6.629225300558806e-05,
        0.0001006333113785523,
        -6.459148353444159e-05,
        2.3691963415322993e-05,
        -6.206373431571439e-06,
        1.2194023185332704e-06,
        -1.801004287789228e-07,
        1.950934669743279e-08,
        -1.4673614708359102e-09,
        6.85562318612197e-11,
        -1.4991137220567641e-12,
    ),
}
# (1 + 2x)·e^(x²)·erfc x = c₀ + c₁·q + … for 0 ≤ x ≤ 10.1 or 27.3
ERFC = {
    "f32": (
        1.2375126,
        -0.14024052,
        0.0035847898,
        0.08227323,
        -0.10879279,
        0.09235745,
        -0.058734383,
        0.028048782,
        -0.009904996,
        0.0023290568,
        0.001102734,
    ),
    "f64": (
        1.2375126308378275,
        -0.1402405985855467,
        0.003585415485462491,
        0.0822767384901131,
        -0.10880393014164262,
        0.09230432116152015,
        -0.05869339859177659,
        0.0283622774001513,
        -0.009746579537757063,
        0.0017556260245705402,
        0.0002937135704525565,
        -0.00029015503174631267,
        5.1649266624166755e-05,
        2.2387577121025114e-05,
        -1.1443775620501284e-05,
        -9.810492358827676e-07,
        1.7491038326099089e-06,
        -4.672654839632167e-08,
        -2.531485801327906e-07,
        1.4738026368836556e-08,
        3.275767394781426e-08,
        -4.150866065680523e-10,
        -2.243157873551338e-09,
    ),
}
ONE_FROM = {"f32": 4.0, "f64": 6.0}
LARGEST = {"f32": 10.1, "f64": 27.3}  # erfc is 0 from here on


def erf(x: Value) -> Value:
    size = absolute(x)
    t = clamped(size, None, ONE_FROM[x.form.name])
    far = 1.0 - exp2_inside(-polynomial(t, FAR[x.form.name]))
    return select(size < 1.0, _near(x), with_sign(far, x))


def erfc(x: Value) -> Value:
    size = absolute(x)
    y = _upper(size)
    return select(size < 0.5, 1.0 - _near(x), select(x < 0.0, 2.0 - y, y))


def _near(x: Value) -> Value:
    """erf x for |x| ≤ 1."""
    return fma(x, polynomial(x * x, ERF[x.form.name]), x)


def _upper(x: Value) -> Value:
    """erfc x for x ≥ 0."""
    x = clamped(x, None, LARGEST[x.form.name])
    square = x * x
    lost = call("fma", x, x, -square)
    q = (x - MIDDLE) / (x + MIDDLE)
    e = exp(-square)
    scaled = polynomial(q, ERFC[x.form.name]) / fma(x, 2.0, 1.0)
    return e * fma(scaled, -lost, scaled)
