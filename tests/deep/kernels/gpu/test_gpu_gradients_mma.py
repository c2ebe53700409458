"""Gradients of attention by mma.sync on a GPU, against float64 within what roundings of weights and results allow.

`tests/kernels/emulated/test_tile_programs.py` runs the printed kernels on the CPU, in all but their instructions.
"""

from __future__ import annotations

from typing import Any

import pytest

import redalg as ra
from redalg.errors import RedalgError

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")
SCALARS = {"scale": 0.7, "cap": 2.0, "window": 100}
NAMES = ("scaled", "causal", "window", "masked", "softcap", "alibi", "bias", "grouped_query")
LENGTHS = [(1, 7), (7, 1), (63, 65), (130, 17), (200, 333), (1000, 1000), (517, 2050)]
HEADS = [(16, 16), (48, 32), (80, 112), (64, 64), (128, 128), (192, 64), (256, 256)]
UNIT = {"bfloat16": 2.0**-8, "float16": 2.0**-11}


def drawn(name: str, kind: str, i: int, j: int, d: int, e: int, device: str = "cuda") -> dict[str, Any]:
    """Tensors of two heads (of two heads of keys with three of queries each), and what the forward pass has saved."""
    torch.manual_seed(i + 3 * j + 5 * d + 7 * e)
    batch, heads = ((1, 2), (1, 2, 3)) if name == "grouped_query" else ((2,), (2,))
    real = {
        "Q": torch.randn(*heads, i, d) * d**-0.5,
        "K": torch.randn(*batch, j, d),
        "V": torch.randn(*batch, j, e),
        "grad_O": torch.randn(*heads, i, e),
    }
    made: dict[str, Any] = {n: x.to(getattr(torch, kind)) for n, x in real.items()} | SCALARS
    made |= {"slope": torch.rand(2) * 0.1, "bias": torch.randn(2, i, j), "mask": torch.arange(j) % 3 != 1}
    whole = {n: x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for n, x in made.items()}
    scores, _ = scored(name, whole)
    top = scores.max(-1).values
    weights = torch.exp(scores - torch.where(top.isinf(), 0.0, top)[..., None])
    total = weights.sum(-1)
    out = weights @ keyed(name, whole["V"]) / total[..., None]
    made |= {"max1": top.float(), "total": total.float(), "O": out.to(getattr(torch, kind))}
    return {n: x.to(device) if isinstance(x, torch.Tensor) else x for n, x in made.items()}


def keyed(name: str, x: Any) -> Any:
    """A tensor of keys for all heads of queries."""
    return x[:, :, None] if name == "grouped_query" else x


def scored(name: str, a: dict[str, Any]) -> tuple[Any, Any]:
    """Scores in float64, and how fast each changes with its product of query and key."""
    s = a["Q"] @ keyed(name, a["K"]).mT
    i, j = (torch.arange(n, device=s.device) for n in s.shape[-2:])
    slope: Any = torch.ones_like(s)
    if name in ("scaled", "causal", "alibi"):
        s, slope = s * a["scale"], slope * a["scale"]
    if name == "softcap":
        s = torch.tanh(s / a["cap"])
        s, slope = a["cap"] * s, 1 - s * s
    if name == "alibi":
        s = s - a["slope"][:, None, None] * (i[:, None] - j)
    if name == "bias":
        s = s + a["bias"]
    seen = torch.ones_like(s, dtype=torch.bool)
    if name in ("causal", "alibi", "window"):
        seen &= j <= i[:, None]
    if name == "window":
        seen &= i[:, None] - j < a["window"]
    if name == "masked":
        seen &= a["mask"]
    return s.masked_fill(~seen, float("-inf")), slope


def expected(name: str, kind: str, a: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Gradients in float64, and what roundings of weights are relative to: a weight's own is UNIT of it, and those of
    sums of e products in float32, of which it is a difference, (e + 2)·2^-24 of their absolute values each."""
    a = {n: x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for n, x in a.items()}
    scores, slope = scored(name, a)
    p = torch.exp(scores - a["max1"][..., None]) / a["total"][..., None]
    grad, values = a["grad_O"], keyed(name, a["V"])
    z = p * (grad @ values.mT - (grad * a["O"]).sum(-1)[..., None]) * slope
    sums = grad.abs() @ values.mT.abs() + (grad * a["O"]).abs().sum(-1)[..., None]
    wide = z.abs() + p * sums * slope.abs() * (values.shape[-1] + 2) * 2.0**-24 / UNIT[kind]
    found = {
        "grad_Q": (z, wide, keyed(name, a["K"])),
        "grad_K": (z.mT, wide.mT, a["Q"]),
        "grad_V": (p.mT, p.mT, grad),
    }
    return {n: (x @ y, size @ y.abs()) for n, (x, size, y) in found.items()}


def gradients(name: str) -> list[Any]:
    """The forms of a gradient of the queries, and of keys with values where these take one stream."""
    made = ra.catalog[f"attention_{name}"].vjp(wrt="Q K V")
    return [made.forms[made.specs[w]] for w in ("Q" if name == "grouped_query" else "QK")]


def judge(name: str, kind: str, *sizes: int) -> None:
    a = drawn(name, kind, *sizes)
    want = expected(name, kind, a)
    for form in gradients(name):
        run = form.compile("cuda", schedule="mma")
        own = {t.name: a["total" if t.name.startswith("sum") else t.name] for t in form.spec.tensors}
        first, second = run(**own), run(**own)
        assert "tensor cores by mma.sync: a tile program" in run.explain()
        outputs = [*form.spec.outputs]
        for n in outputs:
            found, again = (x[n] if len(outputs) > 1 else x for x in (first, second))
            assert torch.equal(found, again)
            true, size = want[n]
            bound = UNIT[kind] * (size + true.abs()) + 2.0**-12 * size.max()
            off = float(((found.double() - true).abs() / bound).max())
            assert off <= 1, f"{name} {kind} {sizes} {n}: {off} of the bound"


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("kind", UNIT)
@pytest.mark.parametrize("name", NAMES)
def test_the_catalog(name: str, kind: str, lengths: tuple[int, int]) -> None:
    if name == "masked" and lengths[1] == 1 or name in ("causal", "alibi", "window") and lengths[0] < lengths[1]:
        lengths = (lengths[1], lengths[1])  # so that no key is without a query
    if name == "window" and lengths[0] - lengths[1] >= SCALARS["window"]:
        lengths = (lengths[0], lengths[0])  # so that no query is without a key
    judge(name, kind, *lengths, 64, 64)


@pytest.mark.parametrize("heads", HEADS, ids=str)
@pytest.mark.parametrize("name", ["causal", "softcap"])
def test_lengths_of_heads(name: str, heads: tuple[int, int]) -> None:
    if heads == (256, 256):
        with pytest.raises(RedalgError, match="no tiles of these lengths fit"):
            judge(name, "bfloat16", 300, 300, *heads)
        return
    judge(name, "bfloat16", 300, 300, *heads)
