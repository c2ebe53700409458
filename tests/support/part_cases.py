"""Specs whose products stand inside of other reductions, with bounds of what rounding does to them.

A bound is in units of one rounding of the numbers that are calculated with. A sum of n terms in any order is off by at
most n roundings of the sum of its terms' magnitudes, a product of f factors by f of its own; a map that is 1-Lipschitz
hands on what its argument is off by; exp of x turns an error of x into a relative one of as much. `EXTRA` are roundings
of the few other operations and functions (each within 5, `redalg.kernels.cpu.math.table.ERROR_ULP`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import redalg as ra
from redalg.kernels.lower.partition import Partition

EXTRA = 32
Arrays = Mapping[str, np.ndarray]
Bound = Callable[[Arrays, Mapping[str, int], float], dict[str, np.ndarray]]


@dataclass(frozen=True)
class Case:
    text: str
    axis: Any
    bound: Bound

    @property
    def spec(self) -> Any:
        return ra.parse(self.text)


def _sum(formula: str, *arrays: np.ndarray) -> np.ndarray:
    return np.einsum(formula, *map(np.abs, arrays))


def _chain(x: Arrays, n: Mapping[str, int], u: float) -> dict[str, np.ndarray]:
    return {"Y": (n["k"] + n["n"] + EXTRA) * u * _sum("mk,nk,ln->ml", x["X"], x["B"], x["D"])}


def _two(x: Arrays, n: Mapping[str, int], u: float) -> dict[str, np.ndarray]:
    size = _sum("mk,nk,ln->ml", x["X"], x["B"], x["D"])
    off = (n["k"] + n["n"] + EXTRA) * u * size
    return {"Y": off, "Q": (2 * size * off + off**2).sum(1) + (n["l"] + EXTRA) * u * (size**2).sum(1)}


def _lora(x: Arrays, n: Mapping[str, int], u: float) -> dict[str, np.ndarray]:
    size = _sum("mk,nk->mn", x["X"], x["W"]) + _sum("mk,rk,nr->mn", x["X"], x["A"], x["B"])
    return {"Y": (n["k"] + n["r"] + EXTRA) * u * size}


def _weighted(off: np.ndarray, terms: int, u: float, values: np.ndarray) -> np.ndarray:
    """What a mean of values with weights exp(s - max s) is off by, where scores s are by `off`: weights by twice that
    and their sum, too."""
    return np.minimum(np.expm1(4 * off), 2) * values + (2 * terms + EXTRA) * u * values


def _projected(x: Arrays, n: Mapping[str, int], u: float) -> dict[str, np.ndarray]:
    off = ((n["d"] + EXTRA) * u * _sum("hid,hjd->hij", x["Q"], x["K"])).max(2)[:, :, None]
    largest = np.abs(x["V"]).max(1)[:, None, :]
    made = _weighted(off, n["j"], u, largest)
    size = _sum("hie,che->ic", np.broadcast_to(largest, made.shape), x["W"])
    return {"Y": _sum("hie,che->ic", made, x["W"]) + (n["h"] * n["e"] + EXTRA) * u * size}


def _projections(x: Arrays, n: Mapping[str, int], u: float) -> dict[str, np.ndarray]:
    q, k = _sum("ic,hdc->hid", x["Y"], x["A"]), _sum("jc,hdc->hjd", x["X"], x["B"])
    v = _sum("jc,hec->hje", x["X"], x["G"])
    off = ((2 * n["c"] + n["d"] + EXTRA) * u * _sum("hid,hjd->hij", q, k)).max(2)[:, :, None]
    largest = v.max(1)[:, None, :]
    found = _weighted(off, n["j"], u, largest) + (n["c"] + EXTRA) * u * largest
    return {"O": found.transpose(1, 0, 2)}


def _entropy(x: Arrays, n: Mapping[str, int], u: float) -> dict[str, np.ndarray]:
    logits = _sum("mk,nk,vn->mv", x["X"], x["W"], x["V"]).max(1)
    return {"L": (n["k"] + n["n"] + EXTRA) * u * logits + (n["v"] + EXTRA) * u * (1 + logits + np.log(n["v"]))}


def _router(x: Arrays, n: Mapping[str, int], u: float) -> dict[str, np.ndarray]:
    off = ((n["k"] + EXTRA) * u * _sum("mk,ek->me", x["X"], x["G"])).max(1)[:, None]
    size = _sum("mk,enk,eln->eml", x["X"], x["B"], x["D"])
    largest = size.max(0)
    return {"Y": _weighted(off, n["e"], u, largest) + (n["k"] + n["n"] + EXTRA) * u * largest}


def _deep(x: Arrays, n: Mapping[str, int], u: float) -> dict[str, np.ndarray]:
    size = _sum("mk,nk,ln,ol->mo", x["X"], x["B"], x["D"], x["E"])
    return {"Y": (n["k"] + n["n"] + n["l"] + EXTRA) * u * size}


CASES = {
    "chain": Case("return Y = sum[n](relu(sum[k](X[m,k]*B[n,k]))*D[l,n])", "n", _chain),
    "two outputs": Case("y = sum[n](relu(sum[k](X[m,k]*B[n,k]))*D[l,n]); return Y = y, Q = sum[l](y*y)", "l", _two),
    "low rank": Case("return Y = sum[k](X[m,k]*W[n,k]) + sum[r](sum[k](X[m,k]*A[r,k])*B[n,r])", "k", _lora),
    "low rank, along r": Case("return Y = sum[k](X[m,k]*W[n,k]) + sum[r](sum[k](X[m,k]*A[r,k])*B[n,r])", "r", _lora),
    "projected": Case(
        "s = sum[d](Q[h,i,d]*K[h,j,d])/8; p = exp(s - max[j](s)); o = sum[j](p*V[h,j,e])/sum[j](p); "
        "return Y = sum[h,e](o*W[c,h,e])",
        ("h", "e"),
        _projected,
    ),
    "projections": Case(
        "q = sum[c](Y[i,c]*A[h,d,c]); k = sum[c](X[j,c]*B[h,d,c]); v = sum[c](X[j,c]*G[h,e,c]); s = sum[d](q*k); "
        "p = exp(s - max[j](s)); return O = sum[j](p*v)/sum[j](p)",
        "j",
        _projections,
    ),
    "entropy": Case(
        "h = sum[k](X[m,k]*W[n,k]); l = sum[n](h*V[v,n]); return L = log(sum[v](exp(l-max[v](l))))+max[v](l)",
        "v",
        _entropy,
    ),
    "router": Case(
        "g = sum[k](X[m,k]*G[e,k]); p = exp(g-max[e](g))/sum[e](exp(g-max[e](g))); "
        "return Y = sum[e](p*sum[n](relu(sum[k](X[m,k]*B[e,n,k]))*D[e,l,n]))",
        "e",
        _router,
    ),
    "three": Case("return Y = sum[l](sum[n](relu(sum[k](X[m,k]*B[n,k]))*D[l,n])*E[o,l])", "l", _deep),
}


@cache
def form(name: str) -> Any:
    return ra.derive_incremental(CASES[name].spec, axis=CASES[name].axis, max_passes=8)


def arrays_of(spec: Any, sizes: Mapping[str, int], seed: int, dtype: str = "float64") -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {t.name: rng.standard_normal([sizes[a] for a in t.axes]).astype(dtype) for t in spec.tensors}


def by_name(spec: Any, value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {next(iter(spec.outputs)): value}


def put_together(spec: Any, partition: Partition, arrays: Arrays) -> dict[str, np.ndarray]:
    """The outputs, each part by its definition."""
    held = dict(arrays)
    for part in (*partition.before, partition.last):
        held |= by_name(part, ra.reference(part, **{t.name: held[t.name] for t in part.tensors}))
    return {n: held[n] for n in spec.outputs}


def agree(name: str, found: Mapping[str, Any], arrays: Arrays, unit: float, kept: float = 0.0) -> None:
    """Within the bound of a case, for numbers that are rounded by `unit` on the way; `kept`: by which results are."""
    spec = CASES[name].spec
    wide = {n: np.asarray(x, np.float64) for n, x in arrays.items()}
    sizes = {a: length for t in spec.tensors for a, length in zip(t.axes, np.shape(arrays[t.name]), strict=True)}
    with np.errstate(all="ignore"):
        true = by_name(spec, ra.reference(spec, **wide))
        bound = CASES[name].bound(wide, sizes, unit + np.finfo(np.float64).eps)
    for output, x in found.items():
        value = np.asarray(x, np.float64)
        assert value.shape == true[output].shape
        known = np.isfinite(true[output])
        np.testing.assert_array_equal(value[~known], true[output][~known])
        with np.errstate(all="ignore"):
            allowed = bound[output] + kept * np.abs(true[output]) + (kept and 2.0**-24)
            held = (np.abs(value - true[output]) <= allowed) | ~np.isfinite(bound[output])
        assert held[known].all(), (name, output, np.abs(value - true[output])[known & ~held].max())
