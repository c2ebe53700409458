"""Cells of `benchmarks.gpu.attention` for operands that tensor cores do not multiply as they are: float32, float8."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.gpu.attention_cells import STANDARD, Call, Contenders, copy_of, form, sampled, softmax_rows


def called(name: str, schedule: str | None, **arguments: Any) -> Call:
    """Our kernel, with results in the same place every time."""
    import torch

    run = form(name).compile("cuda", schedule=schedule)
    return partial(run, out=torch.full_like(run(**arguments), float("nan")), **arguments)


def single(shape: tuple[int, int, int, int] = STANDARD, causal: bool = False) -> Contenders:
    """Attention of float32 with products in tf32, which PyTorch is allowed, too."""
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    torch.backends.cuda.matmul.allow_tf32 = True
    b, h, n, d = shape
    q, k, v = (torch.randn(b * h, n, d, device="cuda") for _ in range(3))
    q4, k4, v4 = (x.view(b, h, n, d) for x in (q, k, v))
    scale = 1 / math.sqrt(d)

    def sdpa(backend: Any) -> Any:
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q4, k4, v4, is_causal=causal, scale=scale)

    calls = {
        "ours": called("attention_causal" if causal else "attention_scaled", "tf32", Q=q, K=k, V=v, scale=scale),
        "efficient attention": partial(sdpa, SDPBackend.EFFICIENT_ATTENTION),
        "math": partial(sdpa, SDPBackend.MATH),
    }
    rows, heads = torch.tensor([0, 1, n // 3, n - 1], device="cuda"), [0, b * h - 1]

    def score(s: Any, i: Any, j: Any) -> Any:
        return s.masked_fill(j > i, -math.inf) if causal else s

    truth = torch.stack([softmax_rows(q[x].double() * scale, k[x], v[x], rows, score) for x in heads])
    work = 4 * b * h * n * n * d * (0.5 if causal else 1)
    return Contenders(calls, work, "operations", lambda o: o.reshape(b * h, n, d)[heads][:, rows], truth, bound=5e-3)


def decode(batch: int, groups: int, each: int, n: int, d: int) -> Contenders:
    """One query a head over a cache of float8; peers read bfloat16, or make it of the float8 first."""
    import torch
    import torch.nn.functional as F

    q = torch.randn(batch, groups, each, 1, d, device="cuda", dtype=torch.bfloat16) / math.sqrt(d)
    k, v = (torch.randn(batch, groups, n, d, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    k8, v8 = (x.to(torch.float8_e4m3fn) for x in (k, v))
    k, v = k8.to(torch.bfloat16), v8.to(torch.bfloat16)
    flat = q.view(batch, groups * each, 1, d)

    def dequantised() -> Any:
        wide = (x.to(torch.bfloat16) for x in (k8, v8))
        return F.scaled_dot_product_attention(flat, *wide, scale=1.0, enable_gqa=True)

    name = "attention_grouped_query"
    calls = {
        "ours": called(name, "tensor", Q=q, K=k8, V=v8),
        "ours, bfloat16 cache": called(name, "tensor", Q=q, K=k, V=v),
        "PyTorch": partial(F.scaled_dot_product_attention, flat, k, v, scale=1.0, enable_gqa=True),
        "dequantised": dequantised,
        "copy": copy_of(2 * k8.numel()),
    }
    some = torch.zeros(1, dtype=torch.int64, device="cuda")
    places = ((0, 0, 0), (batch - 1, groups - 1, each - 1))
    truth = torch.stack([softmax_rows(q[b, g, r], k[b, g], v[b, g], some, lambda s, i, j: s) for b, g, r in places])

    def sample(o: Any) -> Any:
        o = sampled(o, tuple(q.shape if o.dim() == q.dim() else flat.shape), lambda x: x.reshape(q.shape))
        return torch.stack([o[place][some] for place in places])

    return Contenders(calls, 2 * k8.numel(), "bytes", sample, truth)


def prefill(shape: tuple[int, int, int, int] = STANDARD) -> Contenders:
    """Queries in bfloat16, keys and values in float8, beside all of them in bfloat16."""
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    b, h, n, d = shape
    q, k, v = (torch.randn(b * h, n, d, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    k8, v8 = (x.to(torch.float8_e4m3fn) for x in (k, v))
    k, v = k8.to(torch.bfloat16), v8.to(torch.bfloat16)
    scale = 1 / math.sqrt(d)

    def flash() -> Any:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return F.scaled_dot_product_attention(*(x.view(b, h, n, d) for x in (q, k, v)), scale=scale)

    calls = {
        "ours": called("attention_scaled", "tensor", Q=q, K=k8, V=v8, scale=scale),
        "ours, mma.sync": called("attention_scaled", "mma", Q=q, K=k, V=v, scale=scale),
        "FlashAttention-2": flash,
    }
    rows, heads = torch.tensor([0, n // 3, n - 1], device="cuda"), [0, b * h - 1]
    truth = torch.stack([softmax_rows(q[x].double() * scale, k[x], v[x], rows, lambda s, i, j: s) for x in heads])
    whole = (b * h, n, d)
    return Contenders(
        calls,
        4 * b * h * n * n * d,
        "operations",
        lambda o: sampled(o, whole if o.dim() == 3 else shape, lambda x: x.reshape(whole)[heads][:, rows]),
        truth,
    )


CELLS: dict[str, Callable[[], Contenders]] = {
    "attention (4,16,4096,128) fp32 as tf32": single,
    "attention (4,16,4096,128) fp32 as tf32 causal": partial(single, causal=True),
    "decode, float8 cache: batch 16, 32 heads, 8 of keys, 32k keys, 128": partial(decode, 16, 8, 4, 32768, 128),
    "attention (4,16,4096,128) bf16, keys and values float8": prefill,
}
