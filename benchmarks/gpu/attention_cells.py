"""The cells of `benchmarks.gpu.attention`: arguments, contenders, and the truth for a sample of rows in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

Call = Callable[[], Any]


CEILINGS = frozenset({"matmul", "copy"})  # they show what the device gives, and compute nothing that is compared


@dataclass
class Contenders:
    """One cell: `work` is counted in `unit`, operations or bytes; `sample` cuts what `truth` holds out of a result, and
    raises for results of another shape."""

    calls: dict[str, Call]
    work: float
    unit: str
    sample: Callable[[Any], Any]
    truth: Any
    bound: float = 2e-2  # several times the rounding of weights and results to 8 bits of mantissa
    extra: dict[str, Any] = field(default_factory=dict)


def form(name: str) -> Any:
    """The form of an entry of the catalog, or of a text along j."""
    import redalg as ra

    if name not in ra.catalog:
        return ra.derive_incremental(ra.parse(name), axis="j")
    entry = ra.catalog.entry(name)
    return ra.derive_incremental(entry.spec, axis=entry.axis, assume=entry.assume)


def ours(name: str, **arguments: Any) -> dict[str, Call]:
    """Our kernel with a running maximum and, where it is offered, with a frozen one."""
    import torch

    found: dict[str, Call] = {}
    ways = (("ours", "tensor"), ("ours, frozen maximum", "frozen_max"), ("ours, mma.sync", "mma"))
    for label, schedule in ways:
        run = form(name).compile("cuda", schedule=schedule)
        try:
            made = run(**arguments)
        except Exception as problem:
            print(f"{name} {label}: {problem}", flush=True)
            continue
        first = next(iter(made.values())) if isinstance(made, dict) else made
        out = torch.full_like(first, float("nan"))
        found[label] = partial(run, out=out, **arguments) if not isinstance(made, dict) else partial(run, **arguments)
    return found


@contextmanager
def exact_tanh() -> Iterator[None]:
    """Kernels that are printed inside call the CUDA math library's tanh, as `torch.tanh` does."""
    from redalg.kernels.tile.printer import QUICK

    saved = QUICK.pop("tanh")
    try:
        yield
    finally:
        QUICK["tanh"] = saved


def softmax_rows(q: Any, k: Any, v: Any, rows: Any, score: Callable[[Any, Any, Any], Any]) -> Any:
    """Rows of attention in float64: `score` takes scores, row positions and key positions."""
    import torch

    s = q[rows].double() @ k.double().T
    s = score(s, rows[:, None], torch.arange(k.shape[0], device=k.device)[None, :])
    return torch.softmax(s, -1) @ v.double()


def attention(
    name: str,
    shape: tuple[int, int, int, int],
    dtype: str = "bfloat16",
    score: Any = None,
    share: float = 1.0,
    scale: float | None = None,
    peer: str = "sdpa",
    causal: bool = False,
    **more: Any,
) -> Contenders:
    """Forward attention of (batch, heads, length, dimension), batch and heads as one axis."""
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    b, h, n, d = shape
    kind = getattr(torch, dtype)
    q, k, v = (torch.randn(b * h, n, d, device="cuda", dtype=kind) for _ in range(3))
    c = 1 / math.sqrt(d) if scale is None else scale
    q4, k4, v4 = (x.view(b, h, n, d) for x in (q, k, v))
    spec = form(name).spec
    given = {t.name: c for t in spec.tensors if t.name == "scale"}
    if not given and scale is None:
        q = q * c  # the spec has no scale
    calls = ours(name, Q=q, K=k, V=v, **given, **more)
    if peer == "sdpa":

        def sdpa(backend: Any) -> Any:
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q4, k4, v4, is_causal=causal, scale=c)

        calls["cuDNN"] = partial(sdpa, SDPBackend.CUDNN_ATTENTION)
        calls["FlashAttention-2"] = partial(sdpa, SDPBackend.FLASH_ATTENTION)
    else:
        calls["FlexAttention"] = flex(q4, k4, v4, scale=c, **FLEX[name](more, n, h))
    if name == "attention_softcap":  # like with like: an exact tanh on both sides, and a quick one on both
        calls["FlexAttention, quick tanh"] = flex(q4, k4, v4, scale=c, score_mod=_softcap_by_exponentials(more))
        with exact_tanh():
            calls |= {f"{who}, exact tanh": call for who, call in ours(name, Q=q, K=k, V=v, **given, **more).items()}
    rows = torch.tensor([0, 1, n // 3, n // 2 + 1, n - 2, n - 1], device="cuda")
    heads = [0, b * h // 2, b * h - 1]
    judge = score or (lambda s, i, j: s.masked_fill(j > i, -math.inf) if causal else s)
    scaled = q.double() * (c if given else 1.0)
    truth = torch.stack(
        [softmax_rows(scaled[x], k[x], v[x], rows, partial(judge, x) if score else judge) for x in heads]
    )
    return Contenders(
        calls,
        4 * b * h * n * n * d * share,
        "operations",
        lambda o: sampled(
            o, (b * h, n, d) if o.dim() == 3 else (b, h, n, d), lambda x: x.reshape(b * h, n, d)[heads][:, rows]
        ),
        truth,
    )


def flex(q: Any, k: Any, v: Any, **options: Any) -> Call:
    import torch
    from torch.nn.attention.flex_attention import flex_attention

    return partial(torch.compile(flex_attention), q, k, v, **options)


MODES = {"Inductor": "default", "Inductor, max-autotune": "max-autotune-no-cudagraphs"}  # of `torch.compile`


def compiled(function: Call) -> dict[str, Call]:
    """What `torch.compile` makes of a function, by every mode that is measured."""
    import torch

    return {name: torch.compile(function, mode=mode) for name, mode in MODES.items()}


def _causal_blocks(n: int, test: Any = None) -> Any:
    from torch.nn.attention.flex_attention import create_block_mask

    return create_block_mask(test or (lambda b, h, i, j: j <= i), None, None, n, n)


def _softcap(more: Any, n: int, h: int) -> dict[str, Any]:
    import torch

    cap = more["cap"]
    return {"score_mod": lambda s, b, x, i, j: cap * torch.tanh(s / cap)}


def _softcap_by_exponentials(more: Any) -> Callable[..., Any]:
    """tanh u = 1 - 2/(1 + e^(2u)), as our kernels compute it: the compiler takes fast exponentials and quotients."""
    import torch

    cap = more["cap"]
    return lambda s, b, x, i, j: cap * (1 - 2 / (1 + torch.exp(s * (2 / cap))))


def _alibi(more: Any, n: int, h: int) -> dict[str, Any]:
    slope = more["slope"]
    return {"score_mod": lambda s, b, x, i, j: s - slope[b * h + x] * (i - j), "block_mask": _causal_blocks(n)}


def _window(more: Any, n: int, h: int) -> dict[str, Any]:
    w = more["window"]
    return {"block_mask": _causal_blocks(n, lambda b, x, i, j: (j <= i) & (i - j < w))}


FLEX = {"attention_softcap": _softcap, "attention_alibi": _alibi, "attention_window": _window}
STANDARD = (4, 16, 4096, 128)


def softcap() -> Contenders:
    import torch

    def score(head: int, s: Any, i: Any, j: Any) -> Any:
        return 20 * torch.tanh(s / 20)

    return attention("attention_softcap", STANDARD, score=score, scale=1.0, peer="flex", cap=20.0)


def alibi() -> Contenders:
    import torch

    slope = torch.rand(64, device="cuda").to(torch.bfloat16)

    def score(head: int, s: Any, i: Any, j: Any) -> Any:
        return (s - slope[head].double() * (i - j)).masked_fill(j > i, -math.inf)

    return attention("attention_alibi", STANDARD, score=score, share=0.5, peer="flex", slope=slope)


def window() -> Contenders:
    n, w = STANDARD[2], 1024

    def score(head: int, s: Any, i: Any, j: Any) -> Any:
        return s.masked_fill((j > i) | (i - j >= w), -math.inf)

    share = (w * n - w * (w - 1) / 2) / n**2
    return attention("attention_window", STANDARD, score=score, share=share, peer="flex", window=w)


def grouped(batch: int, groups: int, each: int, rows: int, n: int, d: int, decode: bool = False) -> Contenders:
    """Grouped queries; one query a head where keys and values are read once by all heads of a group."""
    import torch
    import torch.nn.functional as F

    q = torch.randn(batch, groups, each, rows, d, device="cuda", dtype=torch.bfloat16) / math.sqrt(d)
    k, v = (torch.randn(batch, groups, n, d, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    calls = ours("attention_grouped_query", Q=q, K=k, V=v)
    flat = q.view(batch, groups * each, rows, d)
    if decode:
        calls["PyTorch"] = partial(F.scaled_dot_product_attention, flat, k, v, scale=1.0, enable_gqa=True)
        calls["copy"] = copy_of(2 * k.numel() * 2)
    else:
        calls["FlexAttention"] = flex(flat, k, v, scale=1.0, enable_gqa=True)
    some = torch.tensor(sorted({0, rows // 2, rows - 1}), device="cuda")
    truth = torch.stack(
        [
            softmax_rows(q[b, g, r], k[b, g], v[b, g], some, lambda s, i, j: s)
            for b, g, r in ((0, 0, 0), (batch - 1, groups - 1, each - 1))
        ]
    )

    def sample(o: Any) -> Any:
        o = sampled(o, tuple(q.shape if o.dim() == q.dim() else flat.shape), lambda x: x.reshape(q.shape))
        return torch.stack([o[0, 0, 0][some], o[-1, -1, -1][some]])

    work = 2 * k.numel() * 2 if decode else 4 * batch * groups * each * rows * n * d
    return Contenders(calls, work, "bytes" if decode else "operations", sample, truth)


def copy_of(size: int) -> Call:
    """A copy that reads and writes `size` bytes in all."""
    import torch

    source, target = (torch.empty(size // 8, device="cuda", dtype=torch.float32) for _ in range(2))
    return partial(target.copy_, source)


def splade() -> Contenders:
    import torch

    b, s, d, n = 32, 256, 768, 30528
    H = torch.randn(b, s, d, device="cuda", dtype=torch.bfloat16)
    E = torch.randn(n, d, device="cuda", dtype=torch.bfloat16) * 0.05
    bias = torch.randn(n, device="cuda", dtype=torch.bfloat16)
    mask = torch.rand(b, s, device="cuda") > 0.1

    def eager() -> Any:
        return torch.where(mask[:, :, None], torch.log1p(torch.relu(H @ E.T + bias)), 0).amax(1)

    calls = ours("splade", H=H, E=E, bias=bias, mask=mask)
    calls |= {"PyTorch": eager, **compiled(eager), "matmul": matmul()}
    z = H[3].double() @ E[:500].double().T + bias[:500].double()
    truth = torch.where(mask[3][:, None], torch.log1p(torch.relu(z)), 0).amax(0)
    return Contenders(calls, 2 * b * s * d * n, "operations", lambda o: sampled(o, (b, n), lambda x: x[3, :500]), truth)


def linear_cross_entropy() -> Contenders:
    import torch
    import torch.nn.functional as F

    i, d, n = 8192, 4096, 128 * 1024
    h = torch.randn(i, d, device="cuda", dtype=torch.bfloat16)
    W = torch.randn(n, d, device="cuda", dtype=torch.bfloat16) * 0.02
    t = torch.randint(0, n, (i,), device="cuda")

    def eager() -> Any:
        return F.cross_entropy((h @ W.T).float(), t, reduction="none")

    calls = ours("cross_entropy_linear_head", h=h, W=W, t=t)
    memory = {}
    for who, call in (*calls.items(), ("PyTorch", eager)):
        call()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        torch.cuda.synchronize()
        memory[who] = round((torch.cuda.max_memory_allocated() - before) / 1e6, 1)
    calls |= {"PyTorch": eager, "matmul": matmul()}
    logits = h[:8].double() @ W.double().T
    truth = torch.logsumexp(logits, -1) - logits.gather(1, t[:8, None])[:, 0]
    return Contenders(
        calls,
        2 * i * d * n,
        "operations",
        lambda o: sampled(o, (i,), lambda x: x[:8]),
        truth,
        extra={"peak memory, MB": memory},
    )


def matmul(n: int = 8192) -> Call:
    """cuBLAS on 8192 × 8192 × 8192 in bfloat16: what the device gives."""
    import torch

    a = torch.randn(n, n, device="cuda", dtype=torch.bfloat16)
    return partial(torch.mm, a, a, out=torch.empty_like(a))


def sampled(found: Any, shape: tuple[int, ...], cut: Callable[[Any], Any]) -> Any:
    """What is compared of a result. Raises ValueError for any other shape than the one it must have."""
    if tuple(found.shape) != shape:
        raise ValueError(f"a result of shape {tuple(found.shape)} where {shape} is wanted")
    return cut(found)


def _latent(batch: int, keys: int) -> Contenders:
    from benchmarks.gpu.attention_latent import latent

    return latent(batch, keys)


def _chosen(what: str, **sizes: int) -> Contenders:
    from benchmarks.gpu import attention_logits as gpu_attention_logits

    return gpu_attention_logits.chosen(getattr(gpu_attention_logits, what), **sizes)


ARGMAX, LARGEST = (f"{what} of logits, 8192 x 4096 x 131072 bf16" for what in ("argmax", "eight largest"))
LATENT = "latent decode: batch 64, 128 heads, 576/512, 8k keys"
CELLS: dict[str, Callable[[], Contenders]] = {
    "attention (4,16,4096,128) bf16": partial(attention, "attention_scaled", STANDARD),
    "attention (4,16,4096,128) bf16 causal": partial(attention, "attention_causal", STANDARD, causal=True, share=0.5),
    "attention (128,16,512,64) fp16": partial(attention, "attention_scaled", (128, 16, 512, 64), "float16"),
    "attention (1,16,16384,128) bf16": partial(attention, "attention_scaled", (1, 16, 16384, 128)),
    "attention (1,16,16384,128) bf16 causal": partial(
        attention, "attention_causal", (1, 16, 16384, 128), causal=True, share=0.5
    ),
    "attention (16,16,1024,128) bf16": partial(attention, "attention_scaled", (16, 16, 1024, 128)),
    "soft-capped (4,16,4096,128) bf16": softcap,
    "ALiBi causal (4,16,4096,128) bf16": alibi,
    "window 1024 (4,16,4096,128) bf16": window,
    "grouped queries 8:1 (4,16,4096,128) bf16": partial(grouped, 4, 2, 8, 4096, 4096, 128),
    "decode: batch 16, 32 heads, 8 of keys, 32k keys, 128": partial(grouped, 16, 8, 4, 1, 32768, 128, True),
    LATENT: partial(_latent, 64, 8192),
    "latent decode: batch 1, 128 heads, 576/512, 32k keys": partial(_latent, 1, 32768),
    "SPLADE head (32,256,768) x 30528 bf16": splade,
    "linear cross-entropy, 8192 x 4096 x 131072 bf16": linear_cross_entropy,
    ARGMAX: partial(_chosen, "ARGMAX"),
    LARGEST: partial(_chosen, "LARGEST"),
    "router: softmax, eight of 256 experts, 16384 x 4096 bf16": partial(_chosen, "ROUTER", i=16384, n=256),
}
MATMUL = {
    LATENT,
    "latent decode: batch 1, 128 heads, 576/512, 32k keys",
    "SPLADE head (32,256,768) x 30528 bf16",
    "linear cross-entropy, 8192 x 4096 x 131072 bf16",
    ARGMAX,
    LARGEST,
}
