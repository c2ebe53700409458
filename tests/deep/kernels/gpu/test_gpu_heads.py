"""Heads of PyTorch on a GPU: narrow operands, slabs of rows and of columns, against float64."""

from __future__ import annotations

import pytest

import redalg as ra

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

LOSS = """tensors H[t,d], W[v,d], y[t] integer;
    c = 20*tanh(sum[d](H[t,d]*W[v,d])/20); l = logsumexp[v](c);
    return loss = mean[t](l - sum[v](where(index[v] == y[t], c, 0)))"""
ROWS = """tensors H[t,d], W[v,d], y[t] integer;
    c = sum[d](H[t,d]*W[v,d]); m = max[v](c); p = exp(c - m); l = m + log(sum[v](p));
    return logp = sum[v](where(index[v] == y[t], c, 0)) - l, entropy = l - sum[v](p*c)/sum[v](p), best = argmax[v](c)"""


@pytest.mark.parametrize("dtype", ("bfloat16", "float16", "float32"))
@pytest.mark.parametrize("held", (None, "bfloat16"))
@pytest.mark.parametrize("workspace", (100_000, 1 << 29))
@pytest.mark.parametrize("sizes", ((129, 1001, 64), (1, 5003, 40), (300, 8, 8)))
def test_values_and_gradients(sizes: tuple[int, int, int], workspace: int, held: str | None, dtype: str) -> None:
    rows, columns, inner = sizes
    torch.manual_seed(rows)
    kind = getattr(torch, dtype)
    H = torch.randn(rows, inner, device="cuda").to(kind).requires_grad_()
    W = (torch.randn(columns, inner, device="cuda") / inner**0.5).to(kind).requires_grad_()
    y = torch.randint(0, columns, (rows,), device="cuda")
    h, w = (a.detach().double().requires_grad_() for a in (H, W))
    z = h @ w.T
    c = 20 * torch.tanh(z / 20)
    p = torch.log_softmax(z, 1)
    tolerance = {"bfloat16": 2**-6, "float16": 2**-9, "float32": 2**-19}[dtype] + (2**-5 if held else 0)
    truths = {
        "now": (torch.nn.functional.cross_entropy(c, y),),
        "later": (torch.nn.functional.cross_entropy(c, y),),
        "rows": (p.gather(1, y[:, None])[:, 0], -(p.exp() * p).sum(1)),
    }
    for mode, truth in truths.items():
        spec = ra.parse(ROWS if mode == "rows" else LOSS)
        op = ra.torch.head(spec, gradients="later" if mode == "rows" else mode, logits=held, workspace=workspace)
        found = op(H, W, y)
        found = found if isinstance(found, tuple) else (found,)
        for x, e in zip(found, truth, strict=False):
            off = (x.detach().double() - e.detach()).abs().max()
            assert float(off) <= tolerance * (1 + float(e.detach().abs().max()))
        slopes = [torch.randn_like(e) for e in truth]
        own = torch.autograd.grad(
            found[: len(truth)], (H, W), [s.to(x.dtype) for s, x in zip(slopes, found, strict=False)]
        )
        twice = torch.autograd.grad(
            op(H, W, y)[: len(truth)] if mode == "rows" else op(H, W, y),
            (H, W),
            [s.to(x.dtype) for s, x in zip(slopes, found, strict=False)],
        )
        expected = torch.autograd.grad(truth, (h, w), slopes, retain_graph=True)
        for a, b, e in zip(own, twice, expected, strict=True):
            assert torch.equal(a, b)
            assert float((a.double() - e).abs().max()) <= 4 * tolerance * (1e-30 + float(e.abs().max()))


POOLED = """tensors H[b,s,d], E[v,d], bias[v], n[b] integer;
    m = max[s](where(index[s] < n[b], sum[d](H[b,s,d]*E[v,d]), -oo)); return Y = log(1 + relu(m + bias[v]))"""
INSIDE = """tensors H[b,s,d], E[v,d], bias[v], n[b] integer;
    t = tanh(sum[d](H[b,s,d]*E[v,d]) + bias[v]); return Y = max[s](where(index[s] < n[b], t, 0))"""


@pytest.mark.parametrize("dtype", ("bfloat16", "float16", "float32", "float64"))
@pytest.mark.parametrize("text", (POOLED, INSIDE))
@pytest.mark.parametrize("sizes", ((3, 70, 1000, 64), (5, 129, 333, 40), (2, 1, 17, 8), (1, 300, 5000, 128)))
def test_extrema_over_rows(sizes: tuple[int, int, int, int], text: str, dtype: str) -> None:
    """Of whole numbers, whose products are exact: ties, one place that has almost half of the maxima, a text of
    nothing; gradients twice the same, whoever computes the values."""
    texts, tokens, vocabulary, width = sizes
    torch.manual_seed(tokens)
    kind = getattr(torch, dtype)
    H, E, bias = (
        torch.randint(-2, 3, s, device="cuda") for s in ((texts, tokens, width), (vocabulary, width), (vocabulary,))
    )
    H[:, tokens // 2] *= 2
    n = torch.randint(tokens // 2 + 1, tokens + 1, (texts,), device="cuda")
    n[-1] = 0 if texts > 1 else tokens
    scale = 1 if text == POOLED else 2**-6  # a power of 2: sums stay exact
    leaves = [(x * y).to(kind).requires_grad_() for x, y in ((H, scale), (E, 1), (bias, scale))]
    wide = [x.detach().double().requires_grad_() for x in leaves]
    beyond = (torch.arange(tokens, device="cuda")[None] >= n[:, None])[..., None]
    z = torch.einsum("bsd,vd->bsv", *wide[:2])
    if text == POOLED:
        place = z.masked_fill(beyond, -torch.inf).cpu().max(1).indices.cuda()
        top = z.gather(1, place[:, None])[:, 0].masked_fill((n == 0)[:, None], -torch.inf)
        truth = torch.log1p(torch.relu(top + wide[2]))
    else:
        t = torch.tanh(z + wide[2]).masked_fill(beyond, 0)
        place = t.cpu().max(1).indices.cuda()
        truth = t.gather(1, place[:, None])[:, 0]
    op = ra.torch.head(ra.parse(text))
    own, again = op(*leaves, n), op(*leaves, n)
    eps = {"bfloat16": 2**-8, "float16": 2**-11, "float32": 2**-22, "float64": 2**-44}[dtype]
    assert float((own.double() - truth).abs().max()) <= 2 * eps * (1 + float(truth.abs().max()))
    slope = torch.randn_like(truth).to(own.dtype)
    found = [torch.autograd.grad(y, leaves, slope) for y in (own, again)]
    expected = torch.autograd.grad(truth, wide, slope.double())
    for a, b, e in zip(*found, expected, strict=True):
        assert torch.equal(a, b)
        if text == POOLED or dtype in ("float32", "float64"):  # tanh of neighbours may round to a tie
            assert float((a.double() - e).abs().max()) <= 8 * eps * (1e-30 + float(e.abs().max()))
