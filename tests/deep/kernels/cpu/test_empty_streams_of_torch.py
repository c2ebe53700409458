"""Streams of length 0 of PyTorch's tensors: results are the definition's, in every format of floats."""

from __future__ import annotations

from typing import Any

import pytest

import redalg as ra

torch: Any = pytest.importorskip("torch")
TEXTS = [
    "return y = prod[j](x[i,j])*z[i]",
    "return y = exp(z[i] + sum[j](x[i,j]))",
    "return y = max[j](x[i,j]) + z[i]",
    "return y = sqrt(1 + sum[j](x[i,j]**2))*z[i], q = prod[j](x[i,j])",
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("name", ["bfloat16", "float16", "float32", "float64"])
def test_they_are_the_definition(text: str, name: str) -> None:
    form, dtype = ra.derive_incremental(ra.parse(text)), getattr(torch, name)
    given = {"x": torch.zeros(3, 0, dtype=dtype), "z": torch.tensor([1.0, -0.3, 2.5], dtype=dtype)}
    found, wanted = (form.compile(target)(**given) for target in ("cpu", "numpy"))
    for got, want in zip(*(r.values() if isinstance(r, dict) else [r] for r in (found, wanted)), strict=True):
        assert got.dtype == want.dtype == dtype
        torch.testing.assert_close(got, want, rtol=0, atol=0)
    exact = ra.reference(form.spec, **{n: a.double().numpy() for n, a in given.items()})
    exact = exact.values() if isinstance(exact, dict) else [exact]
    for got, want in zip(found.values() if isinstance(found, dict) else [found], exact, strict=True):
        torch.testing.assert_close(got.double(), torch.as_tensor(want), rtol=1e-2, atol=1e-2)
