"""Chains of matrix products that tests share: texts, the axis they stream over, plans without a GPU, and the truth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import redalg as ra
from redalg.kernels.ir.layouts import View
from redalg.kernels.launch.planned import Planned
from redalg.kernels.pipeline import plan
from redalg.kernels.schedule.target import H200, Target
from redalg.numeric.casts import cast_array
from tests.support import forms
from tests.support.gemm_emulated import product_of

CHAINS = {  # text, stream
    "relu": ("return E = sum[n](relu(sum[k](A[m,k]*B[k,n]))*D[n,l])", "n"),
    "gated": (
        "g = sum[k](A[m,k]*B[n,k]); u = sum[k](A[m,k]*C[n,k]); return E = sum[n](silu(g)*u*D[l,n]) + R[m,l]",
        "n",
    ),
    "biased": ("return E = relu(sum[n](gelu(sum[k](A[m,k]*B[k,n]) + b[n])*D[n,l]) + c[l])", "n"),
    "three": ("h = relu(sum[k](A[m,k]*B[k,n])); return F = sum[l](tanh(sum[n](h*D[n,l]))*G[l,o])", "l"),
    "batched": ("return E = sum[n](relu(sum[k](A[p,m,k]*B[p,k,n]))*D[p,n,l])", "n"),
    "gate": ("return H = silu(sum[k](A[m,k]*B[k,n]))*sum[k](A[m,k]*C[k,n])", "k"),
    "glu": ("return H = silu(sum[k](A[m,k]*B[n,k]))*sum[k](A[m,k]*C[n,k])", "k"),
    "glus": ("return H = silu(sum[k](A[m,k]*B[k,n]))*sum[k](A[m,k]*C[k,n]) + sum[k](A[m,k]*D[k,n])", "k"),
    "two results": ("return P = sum[k](A[m,k]*B[k,n]), Q = relu(sum[k](A[m,k]*C[k,n]))", "k"),
}


def form_of(name: str) -> Any:
    return forms.form_of_text(*CHAINS[name], 4)


def planned(
    name: str, sizes: Mapping[str, int], kind: str = "bfloat16", schedule: Any = "tensor", target: Target = H200
) -> Planned:
    """The plan of a call with contiguous arrays."""
    form = form_of(name)
    views = {t.name: View.contiguous(tuple(sizes[a] for a in t.axes)) for t in form.spec.tensors}
    return plan(form, dict.fromkeys(views, kind), views, target, schedule=schedule)


def drawn(name: str, sizes: Mapping[str, int], kind: str = "bfloat16") -> dict[str, np.ndarray]:
    """Numbers of the format, of a size at which every stage is of order 1."""
    rng = np.random.default_rng(sum(sizes.values()))
    given = {}
    for t in form_of(name).spec.tensors:
        inner = sizes["k" if "k" in t.axes else "n" if "n" in t.axes else "l"] if len(t.axes) > 1 else 4
        x = rng.standard_normal([sizes[a] for a in t.axes]) / (inner**0.5 if t.name not in ("A", "R") else 1.0)
        given[t.name] = np.asarray(cast_array(x, kind), np.float64)
    return given


def truth(name: str, given: Mapping[str, Any]) -> dict[str, np.ndarray]:
    found = ra.reference(form_of(name).spec, **given)
    return found if isinstance(found, dict) else {next(iter(form_of(name).spec.outputs)): found}


def emulated(
    made: Planned, given: Mapping[str, Any], seed: int = 0, views: Mapping[str, View] | None = None
) -> dict[str, Any]:
    """Results of a launch and of those before it, which fill its scratch. `views`: how operands lie."""
    given, found = dict(given), {}
    for first in made.before:
        results = emulated(first, given, seed, views)
        found |= {n: x for n, x in results.items() if n not in made.scratch}
        given |= {
            n: _relaid(x, first.results.get(n), made.scratch[n][1]) for n, x in results.items() if n in made.scratch
        }
    return found | product_of(made, given, views).run(seed)


def _relaid(x: Any, written: View | None, read: View) -> Any:
    """What one kernel wrote, as the next one reads it."""
    if written is None:
        return x.reshape(read.shape)
    memory = np.full(max(n * s for n, s in zip(read.shape, read.strides, strict=True)), np.nan)
    for view, copy in ((written, x), (read, None)):
        seen = np.lib.stride_tricks.as_strided(memory, view.shape, [s * memory.itemsize for s in view.strides])
        if copy is not None:
            seen[...] = copy
    return seen


__all__ = ["CHAINS", "drawn", "emulated", "form_of", "planned", "truth"]
