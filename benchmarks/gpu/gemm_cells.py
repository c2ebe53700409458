"""Cells of `benchmarks.gpu.attention` for products of matrices with a cascade on their input, 4096 × 4096 × 4096.

Peers: what `torch.compile` makes of the normalisation or quantisation, and cuBLAS behind it (``torch._scaled_mm`` for
float8, with a scale for every row, sums promoted to float32); the plain product beside cuBLAS alone. Where an operand
is prepared, the call runs in one launch and in two.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.gpu.attention_cells import Contenders, compiled, form, sampled

N = 4096
ROWS = (0, 1, N // 3, N // 2 + 1, N - 2, N - 1)


def contenders(name: str | Any, arrays: dict[str, Any], left: Any, right: Any, **peers: Any) -> Contenders:
    """`left`: the sampled rows of the operand in float64."""
    import torch

    made = form(name) if isinstance(name, str) else name
    run = made.compile("cuda", schedule="tensor")
    out = torch.full_like(run(**arrays), float("nan"))
    calls = {"ours": partial(run, out=out, **arrays), **launches(run, arrays), **peers}
    n, k = arrays["x"].shape[0], right.shape[1]
    work = 2 * n * right.shape[0] * k
    truth = left @ right.double()
    return Contenders(calls, work, "operations", lambda y: sampled(y, (n, k), lambda z: z[list(ROWS)]), truth)


def launches(run: Any, arrays: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """The call in the number of launches that it does not take by itself, where an operand is prepared."""
    import torch

    from redalg.errors import RedalgError
    from redalg.kernels.cuda.run import Ready
    from redalg.kernels.launch.driver import target_of
    from redalg.kernels.pipeline import plan

    kind = run._last
    made = kind.planned
    if not made.inside and not made.before:
        return {}
    dtypes = {n: str(a.dtype).split(".")[-1] if torch.is_tensor(a) else type(a) for n, a in arrays.items()}
    other, words = (2, "two launches") if made.inside else (1, "one launch")
    try:
        planned = plan(run.form, dtypes, kind.views, target_of(kind.device), schedule="tensor", launches=other)
    except RedalgError:
        return {}
    ready = Ready(run, kind.framework, dtypes, arrays, "tensor", planned)
    given = [arrays[n] for n in run._names]
    out = ready(given, None, None)
    return {f"ours, {words}": lambda: ready(given, out, None)}


def drawn(*shape: int, dtype: str = "bfloat16") -> Any:
    import torch

    return torch.randn(*shape, device="cuda").to(getattr(torch, dtype))


def layer_norm(kind: str = "layer") -> Contenders:
    import torch.nn.functional as F

    x, W, weight, bias = drawn(N, N), drawn(N, N), drawn(N), drawn(N)
    rows = x[list(ROWS)].double()
    arrays = {"x": x, "W": W, "weight": weight, "eps": 1e-5}
    if kind == "layer":
        arrays["bias"] = bias
        left = F.layer_norm(rows, (N,), weight.double(), bias.double(), 1e-5)
        calls = compiled(lambda: F.layer_norm(x, (N,), weight, bias, 1e-5) @ W)
    else:
        left = F.rms_norm(rows, (N,), weight.double(), 1e-5)
        calls = compiled(lambda: F.rms_norm(x, (N,), weight, 1e-5) @ W)
    return contenders(f"{kind}_norm_gemm", arrays, left, W, **calls)


def fp8_per_token() -> Contenders:
    import torch

    e4m3 = torch.float8_e4m3fn
    x, w = drawn(N, N), drawn(N, N, dtype="float8_e4m3fn").T
    one = torch.ones(1, N, device="cuda")

    def quantised(x: Any) -> Any:
        scale = x.abs().amax(1, keepdim=True).float() / 448
        return (x.float() / scale).to(e4m3), scale

    def behind(call: Any) -> Any:
        q, scale = call(x)
        return torch._scaled_mm(q, w, scale_a=scale, scale_b=one, out_dtype=torch.bfloat16)

    peers = {name: partial(behind, call) for name, call in compiled(quantised).items()}

    q, scale = quantised(x[list(ROWS)])
    return contenders("fp8_per_token_gemm", {"x": x, "w": w}, q.double() * scale.double(), w, **peers)


def plain(major: bool = False) -> Contenders:
    import torch

    import redalg as ra

    x, w = drawn(N, N), drawn(N, N)
    w = w.T if major else w
    made = ra.derive_incremental(ra.parse("y = sum[j](x[i,j]*w[j,k]); return y"), axis="j")
    peer = partial(torch.mm, x, w, out=torch.empty_like(x))
    return contenders(made, {"x": x, "w": w}, x[list(ROWS)].double(), w, PyTorch=peer)


CELLS: dict[str, Callable[[], Contenders]] = {
    "quantise every token to fp8, then multiply, 4096^3": fp8_per_token,
    "LayerNorm, then multiply, 4096^3 bf16": layer_norm,
    "RMSNorm, then multiply, 4096^3 bf16": partial(layer_norm, "rms"),
    "matrix product 4096^3 bf16": plain,
    "matrix product 4096^3 bf16, second operand transposed": partial(plain, True),
}
