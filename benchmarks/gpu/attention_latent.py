"""Cells of `benchmarks.gpu.attention` for latent attention: absorbed projections, 576 terms, 512 columns."""

from __future__ import annotations

import math
from typing import Any

from benchmarks.gpu.attention_cells import Contenders, compiled, matmul, ours, sampled

LATENT = """tensors Q[b,h,c], Qr[b,h,r], C[b,j,c], Kr[b,j,r], scale;
s = (sum[c](Q[b,h,c] * C[b,j,c]) + sum[r](Qr[b,h,r] * Kr[b,j,r])) * scale;
p = exp(s - max[j](s));
O = sum[j](p * C[b,j,c]) / sum[j](p);
return O"""


def latent(batch: int, keys: int, heads: int = 128, columns: int = 512, turned: int = 64) -> Contenders:
    """One query of every head; keys and values are the same latent vectors, and a turned part of the keys."""
    import torch

    def random(*shape: int) -> Any:
        return torch.randn(shape, device="cuda", dtype=torch.bfloat16)

    q, qr = random(batch, heads, columns), random(batch, heads, turned)
    c, kr = random(batch, keys, columns), random(batch, keys, turned)
    scale = 1 / math.sqrt(columns + turned)

    def eager() -> Any:
        s = (torch.bmm(q, c.transpose(1, 2)) + torch.bmm(qr, kr.transpose(1, 2))) * scale
        return torch.bmm(torch.softmax(s, -1), c)

    calls = ours(LATENT, Q=q, Qr=qr, C=c, Kr=kr, scale=scale)
    calls |= {"PyTorch": eager, **compiled(eager), "matmul": matmul()}
    some = torch.tensor([0, heads // 2, heads - 1], device="cuda")

    def definition(b: int) -> Any:
        s = (q[b, some].double() @ c[b].double().T + qr[b, some].double() @ kr[b].double().T) * scale
        return torch.softmax(s, -1) @ c[b].double()

    truth = torch.stack([definition(b) for b in (0, batch - 1)])
    shape = (batch, heads, columns)
    work = 2 * batch * heads * keys * (2 * columns + turned)
    return Contenders(calls, work, "operations", lambda o: sampled(o, shape, lambda x: x[[0, -1]][:, some]), truth)
