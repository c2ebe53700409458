"""Second derivatives of masked specs, against differences of exact numbers: rows that are full, short and empty."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import redalg as ra

STEP = Fraction(1, 10**12)  # of differences of numbers of 50 digits
MASK = "tensors s[i,j], A[i,j] bool; "
SCORES = "z = where(A[i,j], s[i,j], -oo); m = max[j](z); p = exp(z - m); "
COUNTED = "tensors x[i,j], A[i,j] bool; n = sum[j](where(A[i,j], 1, 0)); "
EMPTY = "empty y = 0; "
SPECS = {
    "attention": "tensors s[i,j], v[j,e], A[i,j] bool; " + SCORES + EMPTY + "return y = sum[j](p*v[j,e])/sum[j](p)",
    "graph attention": "tensors a[i], b[j], v[j,e], A[i,j] bool; t = a[i] + b[j];"
    "z = where(A[i,j], where(t > 0, t, t/5), -oo); m = max[j](z); p = exp(z - m);"
    "empty y = 0; return y = sum[j](p*v[j,e])/sum[j](p)",
    "projected scores": "tensors q[i,d], k[j,d], v[j,e], A[i,j] bool; z = where(A[i,j], sum[d](q[i,d]*k[j,d]), -oo);"
    "m = max[j](z); p = exp(z - m); empty y = 0; return y = sum[j](p*v[j,e])/sum[j](p)",
    "softmax": MASK + SCORES + EMPTY + "return y = p/sum[j](p)",
    "logsumexp": MASK + SCORES + EMPTY + "return y = m + log(sum[j](p))",
    "entropy": MASK + SCORES + EMPTY + "l = sum[j](p); return y = log(l) - sum[j](where(A[i,j], p*(s[i,j] - m), 0))/l",
    "mean": COUNTED + EMPTY + "return y = sum[j](where(A[i,j], x[i,j]**3, 0))/n",
    "weighted mean": "tensors x[i,j], w[i,j] positive, A[i,j] bool; empty y = 0;"
    "return y = sum[j](where(A[i,j], w[i,j]*x[i,j], 0))/sum[j](where(A[i,j], w[i,j], 0))",
    "variance": COUNTED + EMPTY + "u = sum[j](where(A[i,j], x[i,j], 0))/n;"
    "return y = sum[j](where(A[i,j], (x[i,j] - u)**2, 0))/n",
    "norm": "tensors x[i,j], A[i,j] bool; empty y = 0; return y = sqrt(sum[j](where(A[i,j], x[i,j]**2, 0)))",
    "normalised": "tensors x[i,j], A[i,j] bool; empty y = 0;"
    "return y = where(A[i,j], x[i,j], 0)/sqrt(sum[j](where(A[i,j], x[i,j]**2, 0)))",
    "count asked for": COUNTED + "return y = where(n > 0, sum[j](where(A[i,j], x[i,j]**3, 0))/n, 0)",
    "variance or nothing": COUNTED + "u = where(n > 0, sum[j](where(A[i,j], x[i,j], 0))/n, 0);"
    "return y = where(n > 0, sum[j](where(A[i,j], (x[i,j] - u)**2, 0))/n, 0)",
    "nested": "tensors x[i,j], A[i,j] bool;"
    "return y = sum[j](where(A[i,j], where(x[i,j] > 0, sqrt(x[i,j]), x[i,j]**3), 0))",
    "nested the other way": "tensors x[i,j], A[i,j] bool;"
    "return y = sum[j](where(x[i,j] > 0, where(A[i,j], log(x[i,j]), x[i,j]**2), 0))",
    "largest": MASK + SCORES + EMPTY + "return y = m**3",
    "at the largest": "tensors s[i,j], x[i,j], A[i,j] bool; z = where(A[i,j], s[i,j], -oo); empty y = 0;"
    "return y = sum[j](where(A[i,j] and index[j] == argmax[j](z), s[i,j]*x[i,j]**2, 0))",
    "product": "tensors x[i,j], A[i,j] bool; empty y = 0; return y = prod[j](where(A[i,j], x[i,j], 1))**2",
    "smallest over largest": "tensors x[i,j] positive, A[i,j] bool; empty y = 0;"
    "return y = min[j](where(A[i,j], x[i,j], oo))/max[j](where(A[i,j], x[i,j], -oo))",
    "two outputs": "tensors s[i,j], v[j,e], A[i,j] bool; "
    + SCORES
    + "empty y = 0; empty l = 0; return y = sum[j](p*v[j,e])/sum[j](p), l = m + log(sum[j](p))",
    "divided inside": "tensors x[i,j], A[i,j] bool;"
    "return y = sum[j](where(A[i,j], x[i,j]/sum[j](where(A[i,j], x[i,j]**2, 0)), 0))",
    "another factor": "tensors x[i,j], q[i,d], A[i,j] bool, B[i,d] bool; f = exp(sum[d](where(B[i,d], q[i,d], 0)));"
    "empty y = 0; return y = sum[j](where(A[i,j], x[i,j]*f, 0))",
}
ROWS = ([0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 0, 0], [0, 0, 0, 0], [1, 0, 1, 1])


def arrays_of(spec: Any, seed: int) -> dict[str, Any]:
    """Rows of every kind, no two elements alike; axes of 2 to 4 elements."""
    rng = np.random.default_rng(seed)
    lengths = {a: {"i": 3, "j": 4}.get(a, 2) for a in spec.axes}
    arrays: dict[str, Any] = {}
    for d in spec.tensors:
        shape = [lengths[a] for a in d.axes]
        if "bool" in d.domain:
            rows = [ROWS[(k + seed) % len(ROWS)] for k in range(shape[0])]
            arrays[d.name] = np.array(rows, bool)[:, : shape[1]]
        else:
            signs = 1 if "positive" in d.domain else rng.choice([-1, 1], shape)
            arrays[d.name] = rng.choice(np.arange(3, 24), shape, replace=False) / 16 * signs
    return arrays


def differences(spec: Any, arrays: Mapping[str, Any], directions: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Output -> its slope along the directions, by the definition in exact numbers."""
    ends = []
    for sign in (1, -1):
        moved = dict(arrays)
        for name, d in directions.items():
            step = np.vectorize(
                lambda v, t, sign=sign: Fraction(float(v)) + sign * STEP * Fraction(float(t)), otypes=[object]
            )
            moved[name] = step(arrays[name], d)
        found = ra.reference(spec, exact=True, **moved)
        ends.append(found if isinstance(found, dict) else {next(iter(spec.outputs)): found})
    return {
        n: np.vectorize(lambda a, b: float((a - b) / (2 * STEP)), otypes=[float])(ends[0][n], ends[1][n])
        for n in ends[0]
    }


def by_name(spec: Any, found: Any) -> dict[str, Any]:
    return found if isinstance(found, dict) else {next(iter(spec.outputs)): found}


def by_definition(spec: Any, known: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs of a spec as it says, whatever its form makes of it."""
    return by_name(spec, ra.reference(spec, **held(spec, known)))


def pulled(gradients: Any, arrays: Mapping[str, Any], cotangents: Mapping[str, Any], forms: bool) -> dict[str, Any]:
    if forms:
        return gradients(**arrays, cotangents=cotangents, target="numpy")
    values = by_definition(gradients.forward, arrays)
    known = {**arrays, **{t: values[n] for t, n in gradients.saved_tensors.items()}}
    known |= {t: cotangents[n] for n, t in gradients.cotangents.items()}
    found = {n: np.zeros(np.shape(arrays[n])) for n in gradients.wrt}
    for spec in dict.fromkeys(gradients.specs.values()):
        for n, value in by_definition(spec, known).items():
            of = n.removeprefix("grad_")
            found[of] = gradients.stretched(of, value, arrays[of])
    return found


def compare(spec: Any, arrays: Mapping[str, Any], seed: int, forms: bool) -> None:
    """Both modes, whatever is saved, by Σ cotangent·slope = Σ gradient·direction; all of it numbers."""
    rng = np.random.default_rng(seed)
    tangents = spec.jvp()
    directions = {n: rng.integers(-8, 9, np.shape(arrays[n])) / 8 for n in tangents.wrt}
    slopes = {n: x for n, x in differences(spec, arrays, directions).items() if n in tangents.results}
    if forms:
        moved = tangents(**arrays, tangents=directions, target="numpy")
    else:
        known = {**arrays, **{tangents.tangents[n]: d for n, d in directions.items()}}
        made = by_definition(tangents.spec, known) if tangents.spec is not None else {}
        moved = {n: made.get(t, 0.0) for n, t in tangents.results.items()}
    for n, want in slopes.items():
        close = np.allclose(np.broadcast_to(moved[n], want.shape), want, 1e-9, 1e-9)
        assert close or tangents.spec.output_axes[f"tangent_{n}"] != spec.output_axes[n], (
            n,
            moved[n],
            want,
            tangents.spec,
        )
    cotangents = {n: rng.integers(-8, 9, x.shape) / 8 for n, x in slopes.items()}
    left = sum(float((c * slopes[n]).sum()) for n, c in cotangents.items())
    one = [] if forms else [(name,) for name in spec.vjp(given="all").saved_tensors.values()]
    for given in ("all", (), None, *one):
        gradients = spec.vjp(given=given)
        found = pulled(gradients, arrays, cotangents, forms)
        for n, value in found.items():
            assert np.isfinite(value).all(), (given, n, value, gradients.specs.get(n))
        right = sum(float((np.asarray(found[n]) * d).sum()) for n, d in directions.items())
        assert abs(left - right) <= 1e-8 * max(1.0, abs(left)), (given, left, right, gradients.specs)


def held(spec: Any, known: Mapping[str, Any]) -> dict[str, Any]:
    return {n: known[n] for n in {d.array or d.name for d in spec.tensors}}


def derivatives(spec: Any, arrays: Mapping[str, Any], seed: int) -> list[tuple[Any, dict[str, Any]]]:
    """The specs of the first derivatives, in both modes, and what they read."""
    rng, gradients, tangents = np.random.default_rng(seed), spec.vjp(given=()), spec.jvp()
    outputs = by_definition(spec, arrays)
    known = {**arrays, **{t: rng.integers(-8, 9, outputs[n].shape) / 8 for n, t in gradients.cotangents.items()}}
    known |= {t: rng.integers(-8, 9, arrays[n].shape) / 8 for n, t in tangents.tangents.items()}
    return [(s, held(s, known)) for s in dict.fromkeys((*gradients.specs.values(), tangents.spec)) if s is not None]


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("seed", [0, 1])
def test_first_and_second_derivatives_as_specs(name: str, seed: int) -> None:
    spec = ra.parse(SPECS[name])
    arrays = arrays_of(spec, seed)
    compare(spec, arrays, seed, forms=False)
    for first, known in derivatives(spec, arrays, seed):
        compare(first, known, seed + 1, forms=False)


@pytest.mark.parametrize("name", SPECS)
def test_their_certificates_are_proved(name: str) -> None:
    spec = ra.parse(SPECS[name])
    for given in ("all", ()):
        assert spec.vjp(given=given).certificate.verify().proved
    assert spec.jvp().certificate.verify().proved


# Weights of a softmax that selects nothing are 0/0 beside an infinite maximum, which a form may not tell from others.
ASSUMING = {"graph attention"}


@pytest.mark.parametrize("name", [n for n in SPECS if n not in ASSUMING])
def test_forms_of_second_derivatives(name: str) -> None:
    spec = ra.parse(SPECS[name])
    arrays = arrays_of(spec, 1)
    compare(spec, arrays, 1, forms=True)
    for first, known in derivatives(spec, arrays, 1):
        compare(first, known, 2, forms=True)
