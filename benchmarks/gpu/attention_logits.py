"""Cells of `benchmarks.gpu.attention` for choices among logits: the largest, the k largest, gates of a router."""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.gpu.attention_cells import Contenders, compiled, form, matmul, sampled

LOGITS = "s = sum[d](h[i,d]*W[j,d]); "
ARGMAX = LOGITS + "return x = argmax[j](s)"
LARGEST = LOGITS + "return v = topk[j:8:c](s).values, x = topk[j:8:c](s).indices"
ROUTER = (
    LOGITS + "m = max[j](s); p = exp(s - m)/sum[j](exp(s - m)); v = topk[j:8:c](p).values; "
    "return g = v/sum[c](v), x = topk[j:8:c](p).indices"
)
SOME = 32  # rows that are held against float64


def chosen(text: str, i: int = 8192, d: int = 4096, n: int = 128 * 1024) -> Contenders:
    """What is compared are logits in float64 at the positions that were found: neighbours may differ by rounding."""
    import torch

    h = torch.randn(i, d, device="cuda", dtype=torch.bfloat16)
    W = torch.randn(n, d, device="cuda", dtype=torch.bfloat16) * 0.02
    logits = h[:SOME].double() @ W.double().T
    k = 1 if text == ARGMAX else 8
    truth = torch.topk(logits, k).values

    def eager() -> Any:
        if text == ARGMAX:
            return (h @ W.T).argmax(1)
        if text == LARGEST:
            return torch.topk(h @ W.T, k).indices
        gates, x = torch.topk(torch.softmax((h @ W.T).float(), -1), k)
        return {"x": x, "g": gates / gates.sum(-1, keepdim=True)}

    def sample(found: Any) -> Any:
        x = found["x"] if isinstance(found, dict) else found
        if x.is_floating_point():
            raise ValueError(f"positions of dtype {x.dtype}")
        return sampled(x, (i,) if x.dim() == 1 else (i, k), lambda y: logits.gather(1, y[:SOME].reshape(SOME, k)))

    run = form(text).compile("cuda", schedule="tensor")
    calls = {"ours": partial(run, h=h, W=W), "PyTorch": eager, **compiled(eager)}
    own = torch.empty(i, n, device="cuda", dtype=torch.bfloat16) if text == ROUTER else None
    calls["matmul"] = matmul() if own is None else partial(torch.mm, h, W.T, out=own)
    return Contenders(calls, 2 * i * d * n, "operations", sample, truth)
