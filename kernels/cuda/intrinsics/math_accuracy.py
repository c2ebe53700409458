"""How far the functions of `redalg.kernels.cuda.intrinsics.math` are from the exact result, in units in the last place.

One unit is the distance between the floats around the exact result (below the least normal number: of the least
subnormal); 0.5 is correct rounding. Sources: "guide" is the appendix on mathematical functions of the CUDA C++
Programming Guide 13 (tables for single and double precision, without fast-math flags), which counts from the
correctly rounded result, so half a unit is added; "ptx" is the PTX ISA 9.0 on the instruction; "derived" follows from
those by the comment. Bounds in tests are computed from this table, and
tests/deep/kernels/gpu/test_gpu_intrinsics_device.py measures it.
"""

from __future__ import annotations

from typing import NamedTuple

from redalg.graph.functions import FUNCTIONS


class Accuracy(NamedTuple):
    """Largest error in units in the last place, for float32 and float64; 0: the function does not exist or is exact."""

    f32: float
    f64: float
    source: str


def _guide(f32: float, f64: float) -> Accuracy:
    return Accuracy(f32 + 0.5, f64 + 0.5, "guide")


ERROR_ULP: dict[str, Accuracy] = {
    **{name: _guide(*row.ulp) for name, row in FUNCTIONS.items() if row.cuda == "library" and not row.computed},
    "pow": _guide(4, 2),
    "rsqrt": _guide(2, 1),
    "sqrt": _guide(0, 0),
    "rcp": _guide(0, 0),
    "div": _guide(0, 0),
    "floor": Accuracy(0, 0, "ptx"),
    "ceil": Accuracy(0, 0, "ptx"),
    "rint": Accuracy(0, 0, "ptx"),
    # z/(1 + z) or 1/(1 + z) with z = e^-|x| ≤ 1: the error of z, less than as much by the sum, a sum, a quotient
    "sigmoid": Accuracy(5, 3.5, "derived"),
    # ex2.approx is what the guide's exp2f is made of; rounding the product with the rest of the argument adds 0.5
    "exp_nonpositive": Accuracy(3, 0, "derived"),
    # rounding x·log2 e and its constant: |x| and 0.23 |x| units, and ex2.approx; here at its worst, |x| = 88
    "fast_exp": Accuracy(2.5 + 1.23 * 88, 0, "derived"),
    # lg2.approx is within 2^-22 on (1/2, 2): 22.2 units of log 1.125, the least it is used for; a product and ln 2: 1
    "fast_log": Accuracy(23.5, 0, "derived"),
    # the error of z = e^-|x| as of fast_exp, less than as much by the sum's, a sum, a reciprocal, a product
    "fast_sigmoid": Accuracy(5 + 1.23 * 88, 0, "derived"),
    # below 0.55 a fit to 2^-24.7, two roundings; above q = 2/(1 + e), e = e^2|x| off by (3|x| + 4)/2^24 of itself, and
    # so tanh by q·(e/(1 + e)·(3|x| + 4) + 3) + 1/2 units of 2^-24: most at 0.55, where that is 4.1
    "fast_tanh": Accuracy(4.5, 0, "derived"),
    # the fit 24.3; of e^-w, w = x² to 88: rounding x², x²·log2 e and its constant 1, 1 and 0.23 units of w, ex2.approx;
    # a reciprocal, whose error the fit follows by less than itself, and four roundings
    "fast_erfc": Accuracy(24.3 + 2.23 * 88 + 2 + 2 + 4, 0, "derived"),
    "exp2_ftz": Accuracy(2.5, 0, "ptx"),
    "fast_rcp": Accuracy(1, 0, "ptx"),
    "fast_div": Accuracy(2.5, 0, "measured"),
    # the residual is exact, what it adds less than two units of the quotient, by a reciprocal that is off by 2^-22
    "div_count": Accuracy(0.501, 0, "derived"),
    # 1 - x·r·r is off by 2^-24 for the rounded x·r, half of it at most half a unit of the result, which is rounded
    "rcp_sqrt": Accuracy(1, 0, "derived"),
}
