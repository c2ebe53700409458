"""Specs in parts on a GPU (`redalg.kernels.partitioned`), against the definition in float64: layers whose products of
matrices stand inside of other reductions, of drawn lengths, in three types, into `out=`, and in a graph."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.graph.node import factors, walk
from tests.support import forms

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

ATTENTION = "p = exp(s - max[j](s)); o = sum[j](p*{v})/sum[j](p)"
SPECS = {  # text, stream; how often a value is rounded to 16 bits on its way
    "adapter": ("return Y = sum[k](X[m,k]*W[n,k]) + sum[r](sum[k](X[m,k]*A[r,k])*B[n,r])", "k", 2),
    "recurrent": ("return Y = tanh(sum[k](X[m,k]*W[n,k]) + sum[j](X2[m,j]*U[n,j]) + b[n])", "k", 1),
    "projected": (
        f"s = sum[d](X[h,i,d]*K[h,j,d])/8; {ATTENTION.format(v='V[h,j,e]')}; return Y = sum[h,e](o*W[c,h,e])",
        None,
        3,
    ),
    "layer": (
        "q = sum[c](X[i,c]*A[h,d,c]); k = sum[c](Z[j,c]*B[h,d,c]); v = sum[c](Z[j,c]*C[h,e,c]); "
        f"s = sum[d](q*k)/8; {ATTENTION.format(v='v')}; return o",
        "j",
        4,
    ),
    "statistics": ("y = sum[n](relu(sum[k](X[m,k]*B[n,k]))*D[l,n]); return Y = y, S = sum[l](y*y)", "n", 3),
    "softmax": ("y = sum[k](X[m,k]*W[n,k]); return P = exp(y-max[n](y))/sum[n](exp(y-max[n](y)))", "n", 1),
    "entropy": (
        "h = sum[k](X[m,k]*W[n,k]); l = sum[n](h*V[v,n]); return L = log(sum[v](exp(l-max[v](l))))+max[v](l)",
        "v",
        2,
    ),
    "experts": (
        "g = sum[k](X[m,k]*G[e,k]); p = exp(g-max[e](g))/sum[e](exp(g-max[e](g))); "
        "return Y = sum[e](p*sum[n](relu(sum[k](X[m,k]*B[e,n,k]))*D[e,l,n]))",
        "e",
        3,
    ),
    "bilinear": ("return Y = sum[b](sum[a](X[m,a]*W[o,a,b])*Z[m,b])", "b", 1),
    "heads": ("Y = sum[c](X[m,c]*W[h,d,c]) + R[m,h,d]*b[h,d]; order Y = m h d; return Y", "c", 2),
    "norm behind": (
        "y = sum[k](X[m,k]*W[n,k]) + R[m,n]; return Y = y/sqrt(mean[n](y*y) + 1e-3)*g[n]",
        "n",
        2,
    ),
}
KINDS = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-18}  # of the last one: sums in another order


def drawn(form: Any, name: str, kind: str, seed: int) -> dict[str, Any]:
    """Lengths from 1 to some hundred, not rounded; weights of a size at which every product is of order 1."""
    r = random.Random(f"{name} {seed}")
    sizes = {a: max(1, int(2 ** r.uniform(0, 8.3))) for a in form.spec.axes}
    if seed % 2:  # where tensor cores read everything in place
        sizes = {a: -(-n // 16) * 16 for a, n in sizes.items()}
    torch.manual_seed(seed)
    return {t.name: numbers(form, t, sizes).to(getattr(torch, kind)) for t in form.spec.tensors}


def numbers(form: Any, t: Any, sizes: dict[str, int]) -> Any:
    """Of a size at which the sum that a weight is a factor of is of order 1."""
    sums = [n for n in walk(*form.spec.outputs.values()) if n.op == "reduce" and n.attr.kind == "sum"]
    along = [n.attr.axes for n in sums if any(f.op == "tensor" and f.attr.name == t.name for f in factors(n))]
    weight = along and t.name[0] not in "XZ"
    scale = math.prod(sizes[a] for a in along[0]) ** -0.5 if weight else 1.0
    return torch.randn([sizes[a] for a in t.axes], device="cuda") * scale


def of_definition(form: Any, given: dict[str, Any]) -> dict[str, np.ndarray]:
    found = ra.reference(form.spec, **{n: x.double().cpu().numpy() for n, x in given.items()})
    return found if isinstance(found, dict) else {next(iter(form.spec.outputs)): found}


def named(form: Any, found: Any) -> dict[str, Any]:
    return found if isinstance(found, dict) else {next(iter(form.spec.outputs)): found}


def compared(form: Any, found: Any, expected: dict[str, np.ndarray], rounds: int, eps: float) -> None:
    """Errors relative to the largest value: a few roundings of what is added, each by `eps` of it."""
    for n, x in named(form, found).items():
        assert tuple(x.shape) == expected[n].shape
        error = np.abs(x.double().cpu().numpy() - expected[n]).max(initial=0)
        assert error <= 4 * rounds * eps * max(1.0, np.abs(expected[n]).max(initial=0)), (n, error)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SPECS)
def test_parts_give_the_definition(name: str, kind: str) -> None:
    text, along, rounds = SPECS[name]
    form = forms.form_of_text(text, along, 8)
    run = form.compile("cuda")
    for seed in range(8):
        given = drawn(form, name, kind, seed)
        expected = of_definition(form, given)
        first = named(form, run(**given))
        compared(form, first, expected, rounds, KINDS[kind])
        again = named(form, run(**given))  # as a prepared call
        assert all(torch.equal(x, again[n]) for n, x in first.items())
        out = {n: torch.full_like(x, float("nan")) for n, x in first.items()}
        run(**given, out=out if len(out) > 1 else next(iter(out.values())))
        assert all(torch.equal(x, out[n]) for n, x in first.items())


@pytest.mark.parametrize("name", ["adapter", "recurrent", "projected", "experts", "heads", "layer"])
def test_on_tensor_cores(name: str) -> None:
    """Large calls run in parts on tensor cores, in a graph, too, and with operands that lie otherwise."""
    text, along, rounds = SPECS[name]
    form = forms.form_of_text(text, along, 8)
    run = form.compile("cuda")
    sizes = {a: 16 if a in "rhe" and name != "projected" else 2 if a == "h" else 256 for a in form.spec.axes}
    given = {t.name: numbers(form, t, sizes).bfloat16() for t in form.spec.tensors}
    expected = of_definition(form, given)
    first = run(**given)
    assert run.planned.choice.reasons[0].startswith(("in parts", "tensor cores"))
    compared(form, first, expected, rounds, KINDS["bfloat16"])
    turned = {n: x.mT.contiguous().mT if x.ndim > 1 else x for n, x in given.items()}
    compared(form, run(**turned), expected, rounds, KINDS["bfloat16"])
    run(**given)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run(**given)
    given["X"].mul_(-0.5)
    graph.replay()
    torch.cuda.synchronize()
    compared(form, captured, of_definition(form, given), rounds, KINDS["bfloat16"])
