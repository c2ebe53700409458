"""Gradients by outputs of which a vmap maps over some: each sample's cotangent counts once."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

import redalg as ra

torch = pytest.importorskip("torch")

TEXTS = [
    "tensors x[j], p[j]; m = max[j](x[j]); return a = sum[j](p[j]*exp(x[j] - m)), m",
    "tensors x[j], p[j]; return a = mean[j](x[j]*p[j]), b = var[j](x[j]), c = prod[j](p[j])",
    "tensors x[i,j], p[j], s; l = logsumexp[j](x[i,j]*s); return l, a = sum[j](p[j]**2)*s, y = x[i,j] - l",
]
AXES = {"i": 2, "j": 5}
CASES = [(text, mapped) for text in TEXTS for mapped in product((0, None), repeat=text.count("s;") + 2) if 0 in mapped]


def gradients(results: Any, own: list[Any], cotangents: list[Any]) -> Any:
    pairs = [(r, c) for r, c in zip(results, cotangents, strict=True) if r.requires_grad]
    found = torch.autograd.grad([r for r, _ in pairs], own, [c for _, c in pairs], allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for g, x in zip(found, own, strict=True)]


@pytest.mark.parametrize(("text", "mapped"), CASES)
@pytest.mark.parametrize("outside", [False, True])
def test_every_sample_counts_once(text: str, mapped: tuple[int | None, ...], outside: bool) -> None:
    op, rng = ra.torch.compile(ra.parse(text)), torch.Generator().manual_seed(len(text))

    def drawn(*shape: int) -> Any:
        return torch.randn(shape, generator=rng, dtype=torch.float64)

    shapes = [tuple(AXES[a] for a in d.axes) for d in op.tensors]
    own = [drawn(*(shape if at is None else (3, *shape))) for shape, at in zip(shapes, mapped, strict=True)]
    own = [x.requires_grad_() for x in own]
    calls = [op(*(x if at is None else x[k] for x, at in zip(own, mapped, strict=True))) for k in range(3)]
    wanted = [torch.stack(list(r)) for r in zip(*calls, strict=True)]
    cotangents = [drawn(*r.shape) for r in wanted]
    both = torch.vmap(op, in_dims=mapped)
    if outside:

        def loss(*arrays: Any) -> Any:
            return sum((r * c).sum() for r, c in zip(both(*arrays), cotangents, strict=True))

        found = torch.func.grad(loss, argnums=tuple(range(len(own))))(*(x.detach() for x in own))
    else:
        found = gradients(both(*own), own, cotangents)
    for mine, plain in zip(found, gradients(wanted, own, cotangents), strict=True):
        torch.testing.assert_close(mine, plain, rtol=1e-10, atol=1e-12)
