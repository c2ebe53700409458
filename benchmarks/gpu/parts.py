"""Specs of several products, norms and softmaxes as kernels in parts, beside PyTorch, in one run.

`python -m benchmarks.gpu.parts [--only 'attention*'] [--out FILE] [--compile] [--kind KIND]`: each cell is a layer as
mathematics writes it, whose products stand inside of other reductions (`redalg.kernels.partitioned`): low-rank
adapters, attention with its projections, a head's cross entropy, experts by a router, a recurrent cell, statistics
behind a product. Ours and PyTorch's (and by `--compile` torch.compile's) as captured graphs, in turns, on operands in
turn that exceed the L2. Ours is checked against the definition in float64 first; the error is relative to its largest
value, and PyTorch's own error stands beside it. `--kind`: also float16 and float32.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import redalg as ra
from benchmarks.gpu.chains import COLD, _captured, _count, _raced
from benchmarks.harness.processes import stamp

Arrays = dict[str, Any]


class Cell(NamedTuple):
    """A spec, the axis it streams over, the lengths of its axes, and what PyTorch's users write."""

    text: str
    axis: str | None
    sizes: dict[str, int]
    peer: Callable[[Arrays], Any]


def _lora(x: Arrays) -> Any:
    import torch.nn.functional as F

    return F.linear(x["X"], x["W"]) + F.linear(F.linear(x["X"], x["A"]), x["B"])


def _attention(x: Arrays, scale: float) -> Any:
    import torch.nn.functional as F

    return F.scaled_dot_product_attention(x["Q"][None], x["K"][None], x["V"][None], scale=scale)[0]


def _projected(x: Arrays) -> Any:
    import torch.nn.functional as F

    o = _attention(x, 1 / 8).transpose(0, 1)
    return F.linear(o.reshape(o.shape[0], -1), x["W"].reshape(x["W"].shape[0], -1))


def _layer(x: Arrays) -> Any:
    import torch.nn.functional as F

    def heads(z: Any, w: Any) -> Any:
        return F.linear(z, w.reshape(-1, w.shape[-1])).view(z.shape[0], w.shape[0], w.shape[1]).transpose(0, 1)

    o = _attention({"Q": heads(x["X"], x["A"]), "K": heads(x["Z"], x["B"]), "V": heads(x["Z"], x["C"])}, 1 / 8)
    return o.transpose(0, 1)


def _statistics(x: Arrays) -> Any:
    import torch.nn.functional as F

    y = F.linear(F.relu(F.linear(x["A"], x["B"])), x["D"])
    return y, (y * y).sum(-1)


def _entropy(x: Arrays) -> Any:
    import torch

    return torch.logsumexp(torch.nn.functional.linear(torch.nn.functional.linear(x["X"], x["W"]), x["V"]), -1)


def _experts(x: Arrays) -> Any:
    import torch

    p = torch.softmax(torch.nn.functional.linear(x["X"], x["G"]), -1)
    h = torch.relu(torch.matmul(x["X"], x["B"].transpose(1, 2)))
    return torch.einsum("eml,me->ml", torch.matmul(h, x["D"].transpose(1, 2)), p)


def _recurrent(x: Arrays) -> Any:
    import torch
    import torch.nn.functional as F

    return torch.tanh(F.linear(x["X"], x["W"]) + F.linear(x["H"], x["U"]) + x["b"])


def _bilinear(x: Arrays) -> Any:
    import torch

    return (torch.einsum("ma,oab->mob", x["X"], x["W"]) * x["Z"][:, None]).sum(-1)


def _normal_logits(x: Arrays) -> Any:
    import torch

    return torch.softmax(torch.nn.functional.linear(x["X"], x["W"]), -1)


def _three(x: Arrays) -> Any:
    import torch.nn.functional as F

    return F.linear(F.relu(F.linear(F.relu(F.linear(x["A"], x["B"])), x["D"])), x["H"])


def _heads_of(x: Arrays) -> Any:
    import torch

    return torch.einsum("mc,hdc->mhd", x["X"], x["W"])


def _query(x: Arrays) -> Any:
    import torch.nn.functional as F

    return F.scaled_dot_product_attention(x["Q"][:, :, None], x["K"], x["V"], scale=1 / 8)[:, :, 0]


def _token(x: Arrays) -> Any:
    import torch.nn.functional as F

    z = F.rms_norm(x["X"], x["X"].shape, x["g"], 1e-6)
    return x["R"] + F.linear(F.silu(F.linear(z, x["B"])) * F.linear(z, x["C"]), x["D"])


def _cosine(x: Arrays) -> Any:
    import torch.nn.functional as F

    return _attention({"Q": F.normalize(x["Q"], dim=-1), "K": F.normalize(x["K"], dim=-1), "V": x["V"]}, 10.0)


def _normalised(x: Arrays) -> Any:
    import torch.nn.functional as F

    q, k = (F.rms_norm(x[n], x[n].shape[-1:], x[w], 1e-6) for n, w in (("Q", "g"), ("K", "w")))
    return _attention({"Q": q, "K": k, "V": x["V"]}, x["Q"].shape[-1] ** -0.5)


def _difference(x: Arrays) -> Any:
    return _attention(x, 1 / 8) - 0.5 * _attention({"Q": x["Z"], "K": x["X"], "V": x["V"]}, 1 / 8)


def _late(x: Arrays) -> Any:
    import torch

    return torch.einsum("id,njd->nij", x["Q"], x["X"]).amax(-1).sum(-1)


def _nearest(x: Arrays) -> Any:
    import torch

    return torch.cdist(x["X"], x["Z"]).amin(1) ** 2


def _regression(x: Arrays) -> Any:
    import torch

    return torch.exp(-0.01 * torch.cdist(x["X"], x["Z"]) ** 2) @ x["w"]


def _distances(x: Arrays) -> Any:
    import torch

    return torch.cdist(x["X"], x["Z"], p=1)


LORA = "return Y = sum[k](X[m,k]*W[n,k]) + sum[r](sum[k](X[m,k]*A[r,k])*B[n,r])"
ATTENTION = "s = sum[d](Q[h,i,d]*K[h,j,d])/8; p = exp(s - max[j](s)); o = sum[j](p*V[h,j,e])/sum[j](p)"
LAYER = "Q = sum[c](X[i,c]*A[h,d,c]); K = sum[c](Z[j,c]*B[h,d,c]); V = sum[c](Z[j,c]*C[h,e,c])"
GATE = "g = sum[k](X[m,k]*G[e,k]); p = exp(g-max[e](g))/sum[e](exp(g-max[e](g)))"
CELLS = {
    "adapter": Cell(LORA, "k", {"m": 512, "k": 4096, "n": 4096, "r": 16}, _lora),
    "adapter, few rows": Cell(LORA, "k", {"m": 16, "k": 4096, "n": 4096, "r": 64}, _lora),
    "attention": Cell(
        f"{ATTENTION}; return o", "j", {"h": 16, "i": 2048, "j": 2048, "d": 64, "e": 64}, lambda x: _attention(x, 1 / 8)
    ),
    "attention, projected": Cell(
        f"{ATTENTION}; return Y = sum[h,e](o*W[c,h,e])",
        None,
        {"h": 16, "i": 2048, "j": 2048, "d": 64, "e": 64, "c": 1024},
        _projected,
    ),
    "attention layer": Cell(
        f"{LAYER}; s = sum[d](Q*K)/8; p = exp(s - max[j](s)); O = sum[j](p*V)/sum[j](p); order O = i h e; return O",
        "j",
        {"h": 16, "i": 2048, "j": 2048, "d": 64, "e": 64, "c": 1024},
        _layer,
    ),
    "statistics": Cell(
        "y = sum[n](relu(sum[k](A[m,k]*B[n,k]))*D[l,n]); return Y = y, S = sum[l](y*y)",
        "n",
        {"m": 512, "k": 1024, "n": 4096, "l": 1024},
        _statistics,
    ),
    "softmax of logits": Cell(
        "y = sum[k](X[m,k]*W[n,k]); return P = exp(y-max[n](y))/sum[n](exp(y-max[n](y)))",
        "n",
        {"m": 2048, "k": 1024, "n": 1000},
        _normal_logits,
    ),
    "cross entropy": Cell(
        "h = sum[k](X[m,k]*W[n,k]); l = sum[n](h*V[v,n]); return L = log(sum[v](exp(l-max[v](l))))+max[v](l)",
        "v",
        {"m": 1024, "k": 1024, "n": 1024, "v": 32000},
        _entropy,
    ),
    "experts": Cell(
        f"{GATE}; return Y = sum[e](p*sum[n](relu(sum[k](X[m,k]*B[e,n,k]))*D[e,l,n]))",
        "e",
        {"m": 256, "e": 8, "k": 512, "n": 2048, "l": 512},
        _experts,
    ),
    "recurrent cell": Cell(
        "return Y = tanh(sum[k](X[m,k]*W[n,k]) + sum[j](H[m,j]*U[n,j]) + b[n])",
        "k",
        {"m": 256, "k": 1024, "n": 1024, "j": 1024},
        _recurrent,
    ),
    "bilinear": Cell(
        "return Y = sum[b](sum[a](X[m,a]*W[o,a,b])*Z[m,b])", "b", {"m": 256, "a": 256, "b": 256, "o": 128}, _bilinear
    ),
    "three products": Cell(
        "return F = sum[l](relu(sum[n](relu(sum[k](A[m,k]*B[n,k]))*D[l,n]))*H[o,l])",
        None,
        {"m": 512, "k": 784, "n": 1000, "l": 504, "o": 10},
        _three,
    ),
    "heads": Cell(
        "Y = sum[c](X[m,c]*W[h,d,c]); order Y = m h d; return Y",
        "c",
        {"m": 2048, "c": 1024, "h": 16, "d": 64},
        _heads_of,
    ),
    "one query": Cell(
        "s = sum[d](Q[b,h,d]*K[b,h,j,d])/8; p = exp(s - max[j](s)); return O = sum[j](p*V[b,h,j,e])/sum[j](p)",
        "j",
        {"b": 4, "h": 32, "j": 4096, "d": 128, "e": 128},
        _query,
    ),
    "one token": Cell(
        "z = X[k]*g[k]/sqrt(mean[k](X[k]*X[k]) + 1e-6); "
        "return Y = R[l] + sum[n](silu(sum[k](z*B[n,k]))*sum[k](z*C[n,k])*D[l,n])",
        "n",
        {"k": 4096, "n": 11008, "l": 4096},
        _token,
    ),
    "attention of cosines": Cell(
        "q = sqrt(sum[d](Q[h,i,d]*Q[h,i,d])); k = sqrt(sum[d](K[h,j,d]*K[h,j,d])); "
        "s = sum[d](Q[h,i,d]*K[h,j,d])/(q*k)*10; p = exp(s - max[j](s)); return O = sum[j](p*V[h,j,e])/sum[j](p)",
        "j",
        {"h": 16, "i": 2048, "j": 2048, "d": 128, "e": 128},
        _cosine,
    ),
    "attention of normalised rows": Cell(
        "q = Q[h,i,d]/sqrt(mean[d](Q[h,i,d]*Q[h,i,d]) + 1e-6)*g[d]; "
        "k = K[h,j,d]/sqrt(mean[d](K[h,j,d]*K[h,j,d]) + 1e-6)*w[d]; "
        "s = sum[d](q*k)/sqrt(size(d)); p = exp(s - max[j](s)); return O = sum[j](p*V[h,j,e])/sum[j](p)",
        "j",
        {"h": 16, "i": 2048, "j": 2048, "d": 128, "e": 128},
        _normalised,
    ),
    "difference of attentions": Cell(
        "s = sum[d](Q[h,i,d]*K[h,j,d])/8; t = sum[d](Z[h,i,d]*X[h,j,d])/8; p = exp(s - max[j](s)); "
        "q = exp(t - max[j](t)); return O = sum[j](p*V[h,j,e])/sum[j](p) - 0.5*sum[j](q*V[h,j,e])/sum[j](q)",
        "j",
        {"h": 16, "i": 2048, "j": 2048, "d": 64, "e": 128},
        _difference,
    ),
    "late interaction": Cell(
        "return S = sum[i](max[j](sum[d](Q[i,d]*X[n,j,d])))", None, {"i": 32, "n": 1000, "j": 180, "d": 128}, _late
    ),
    "nearest centre": Cell(
        "return M = min[k](sum[d]((X[i,d] - Z[k,d])*(X[i,d] - Z[k,d])))",
        "k",
        {"i": 100_000, "k": 1000, "d": 64},
        _nearest,
    ),
    "kernel regression": Cell(
        "return Y = sum[k](exp(-0.01*sum[d]((X[i,d] - Z[k,d])*(X[i,d] - Z[k,d])))*w[k])",
        "k",
        {"i": 10_000, "k": 10_000, "d": 32},
        _regression,
    ),
    "distances": Cell("return D = sum[d](abs(X[i,d] - Z[k,d]))", "d", {"i": 4096, "k": 4096, "d": 256}, _distances),
    "product": Cell(
        "return Y = sum[k](X[m,k]*W[n,k])",
        "k",
        {"m": 4096, "n": 4096, "k": 4096},
        lambda x: __import__("torch").nn.functional.linear(x["X"], x["W"]),
    ),
}


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="*")
    parser.add_argument("--kind", default="bfloat16")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--compile", action="store_true", help="torch.compile, max-autotune, too")
    options = parser.parse_args(words)
    for name, cell in CELLS.items():
        if fnmatch.fnmatch(name, options.only):
            line = {"cell": name, "kind": options.kind} | _line(cell, options.kind, options.compile)
            print(json.dumps(line), flush=True)
            if options.out:
                with options.out.open("a") as f:
                    f.write(json.dumps(line | stamp()) + "\n")


def _line(cell: Cell, kind: str, compiled: bool) -> dict[str, Any]:
    import torch

    form = ra.derive_incremental(ra.parse(cell.text), axis=cell.axis, max_passes=8)
    first = _drawn(form, cell.sizes, kind)
    size = sum(x.numel() * x.element_size() for x in first.values())
    sets = [first, *(_drawn(form, cell.sizes, kind) for _ in range(max(1, min(60, COLD // size))))]
    line: dict[str, Any] = {"sizes": cell.sizes, "device": torch.cuda.get_device_name()}
    try:
        run = form.compile("cuda")
        expected = _all(cell.peer({n: a.double() for n, a in first.items()}))
        line["error"] = _error(_all(run(**first)), expected)
        line["torch error"] = _error(_all(cell.peer(first)), expected)
        calls: dict[str, Callable[[Arrays], Any]] = {"ours": lambda x: run(**x), "torch": cell.peer}
        if compiled:
            from benchmarks.gpu.lab import AUTOTUNE

            torch._dynamo.reset()
            calls["torch.compile"] = torch.compile(cell.peer, dynamic=False, mode=AUTOTUNE)
        line["us"] = _raced({who: _captured(call, sets) for who, call in calls.items()}, len(sets))
        line["kernels"] = _count(run.planned)
        line["predicted"] = round(run.planned.choice.seconds * 1e6, 2)
    except Exception as problem:
        line["failed"] = repr(problem)[:300]
    torch.cuda.empty_cache()
    return line


def _all(found: Any) -> list[Any]:
    return [*found.values()] if isinstance(found, dict) else [*found] if isinstance(found, tuple) else [found]


def _error(found: list[Any], expected: list[Any]) -> float:
    """The largest of all results, relative to the largest value."""
    pairs = zip(found, expected, strict=True)
    return max(float(((x.double() - y).abs().max() / y.abs().max()).item()) for x, y in pairs)


def _drawn(form: Any, sizes: dict[str, int], kind: str) -> Arrays:
    """Weights of a size at which every product is of order 1."""
    import torch

    made = {}
    for t in form.spec.tensors:
        shape = [sizes[a] for a in t.axes]
        wide = (
            t.name not in ("X", "Z", "H", "Q", "K", "V")
            or t.name == "H"
            and "l" in t.axes
            or t.name == "V"
            and "v" in t.axes
        )
        scale = shape[-1] ** -0.5 if wide and len(shape) > 1 else 1.0
        made[t.name] = (torch.randn(shape, device="cuda") * scale).to(getattr(torch, kind))
    return made


if __name__ == "__main__":
    main()
