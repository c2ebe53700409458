"""Factors that are no numbers where a mask selects nothing: a sum of what it selects is 0 there, whatever they are."""

from __future__ import annotations

from itertools import product
from random import Random

import numpy as np
import pytest

import redalg as ra
from tests.deep.engine.test_infinities import agree, exported, named, run

FACTORS = {
    "reciprocal": "1/s",
    "a power": "1/s**(3/2)",
    "a root": "1/sqrt(s)",
    "a third": "1/s**(2/3)",
    "logarithm": "log(s)",
    "mean": "t/n",
    "deviation": "1/sqrt(s/n - (t/n)**2)",
    "maximum": "m",
    "minimum": "min[j](where(A[i,j], x[i,j], oo))",
    "range": "1/(m - min[j](where(A[i,j], x[i,j], oo)))",
    "normaliser": "m + log(l)",
    "an exponential": "exp(-m)",
    "a softmax's": "1/l",
    "of a root of a logarithm": "sqrt(log(s + 1))/s",
    "of two masks": "log(sum[j](where(A[i,j] and B[i,j], abs(x[i,j]), 0)))",
    "of another mask": "n/sqrt(sum[j](where(B[i,j], x[i,j]**2, 0)))",
}
BODIES = (  # the first four are sums of nothing in the rows in which their factors are of nothing
    "where(A[i,j], u[i,j]*f, 0)",
    "where(A[i,j], (u[i,j]*f)**2, 0)",
    "where(A[i,j], u[i,j]*f + x[i,j]*f, 0)",
    "where(A[i,j] and u[i,j] > 0, u[i,j]*f, 0)",
    "where(B[i,j], u[i,j]*f, 0)",
    "where(A[i,j], x[i,j], 0)*f",
)
DECLARED = {"x": "x[i,j]", "u": "u[i,j]", "A": "A[i,j] bool", "B": "B[i,j] bool"}
STAGES = """z = where(A[i,j], x[i,j], -oo); m = max[j](z);
    s = sum[j](where(A[i,j], x[i,j]**2, 0)); t = sum[j](where(A[i,j], x[i,j], 0)); n = sum[j](where(A[i,j], 1, 0));
    l = sum[j](exp(z - m)); """
LENGTHS = (1, 2, 5)
GUARDED = {"deviation": 2, "range": 2, "of two masks": 4}  # forms that are NaN in such rows, at most


def read_by(body: str, factor: str) -> set[str]:
    return {"A", "x"} | {n for n in "uB" if f"{n}[" in body + factor}


def drawn(length: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """No two elements of a row alike, none 0; rows of nothing, of everything, of one element, of any."""
    masks = rng.random((4, length)) < np.array([[0.0], [1.0], [0.0], [0.5]])
    masks[2, rng.integers(length)] = True
    x, u = (rng.permuted(np.tile(np.arange(1, length + 1) / 4, (4, 1)), axis=1) for _ in range(2))
    return {"x": x, "u": u * rng.choice([-1, 1], u.shape), "A": masks, "B": rng.random((4, length)) < 0.5}


@pytest.mark.parametrize("factor", FACTORS)
def test_a_sum_of_nothing(factor: str) -> None:
    """The definition's number, in one go and in pieces; where that is none, NaN or what the definition is. A form whose
    laws hold with a guard of its divisors alone is NaN there, and says what it assumes."""
    rng, derived, guarded = np.random.default_rng(len(factor)), 0, set[str]()
    for body, around in product(BODIES, ("2 - sum[j]({})", "where(A[i,j], sum[j]({})*x[i,j], 1)")):
        text = f"{STAGES} f = {FACTORS[factor]}; return y = {around.format(body)}"
        declared = [d for n, d in DECLARED.items() if n in read_by(body + around, FACTORS[factor])]
        text = f"tensors {', '.join(declared)}; {text}"
        spec = ra.parse(text)
        form = ra.verdict(spec, max_passes=3)
        if isinstance(form, ra.RedalgError):
            assert "bound the stage values" in str(form), form  # a pole beside another power of itself
            continue
        derived += 1
        program = exported(form)
        for length in LENGTHS:
            arrays = {n: a for n, a in drawn(length, rng).items() if n in {d.name for d in spec.tensors}}
            want = np.asarray(ra.reference(spec, **arrays))
            found = [program(arrays, 2), *run(form, arrays, Random(length))]
            if body is BODIES[0]:
                found.append(named(form, form.compile("cpu")(**arrays)))
            for results in found:
                agree(form, results, arrays)
                got = np.asarray(results["y"])
                if body in BODIES[:4]:
                    nothing = ~arrays["A"].any(axis=1)
                    if np.isnan(got[nothing]).any() and "finite_stage_values" in form.assumptions:
                        guarded.add(text)
                        continue
                    assert np.isfinite(got[nothing]).all(), (text, arrays, got, want, form.finalize)
    assert derived > 6 and len(guarded) <= GUARDED.get(factor, 0), guarded
