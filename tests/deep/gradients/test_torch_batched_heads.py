"""Heads with several axes of rows, or with axes that both operands share, against PyTorch's whole products."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import redalg as ra
from redalg.adapters.heads.batches import Batched, batched
from redalg.errors import RedalgError

torch = pytest.importorskip("torch")

LENGTHS = {"b": 2, "t": 5, "c": 3, "v": 11, "d": 4, "u": 2, "k": 2}
# operands, and what is taken for a batch and for rows
OPERANDS = {
    "H[b,t,d] W[v,d]": ("", "bt"),
    "H[t,b,d] W[d,v]": ("", "bt"),
    "H[d,b,u,t] W[v,d]": ("", "but"),
    "H[b,t,c,d] W[c,d,v]": ("c", "bt"),
    "H[b,t,d] W[b,v,d]": ("b", "t"),
    "H[t,d] W[c,v,d]": ("c", "t"),
    "H[t,c,b,d] W[v,b,c,d]": ("bc", "t"),
}
LOSSES, LOSS = tuple(OPERANDS)[::3], "loss = mean[ROWS](l - pick + l**2/100)"


def axes_of(text: str) -> str:
    return text[text.index("[") + 1 : -1].replace(",", "")


def spec_of(operands: str, outputs: str, more: str = "") -> ra.Spec:
    H, W = operands.split()
    labels = sorted(set(axes_of(H) + axes_of(W)) - set("dv"))
    y = f"y[{','.join(labels)}]"
    return ra.parse(
        f"tensors {H}, {W}, {y} integer{more}; z = sum[d]({H}*{W}); l = logsumexp[v](z);"
        f"pick = sum[v](where(index[v] == {y}, z, 0)); return {outputs.replace('ROWS', ','.join(labels))}"
    )


def drawn(op: object, lengths: dict, seed: int = 0, dtype: object = torch.float64) -> dict:
    torch.manual_seed(seed)
    found = {}
    for d in op.tensors:
        shape = [lengths[a] for a in d.axes]
        if "integer" in d.domain:
            found[d.name] = torch.randint(0, max(1, lengths["v"]), shape)
        else:
            found[d.name] = torch.randn(shape, dtype=dtype).requires_grad_()
    return found


def logits(operands: str, arrays: dict) -> tuple[object, str]:
    """The whole products, with columns last and the other axes in the order of the alphabet."""
    H, W = map(axes_of, operands.split())
    rows = "".join(sorted(set(H + W) - set("dv")))
    return torch.einsum(f"{H},{W}->{rows}v", arrays["H"], arrays["W"]), rows


def same_gradients(own: object, truth: object, arrays: dict) -> None:
    leaves = [a for a in arrays.values() if a.requires_grad]
    pairs = (torch.autograd.grad(x, leaves, retain_graph=True) for x in (own, truth))
    for a, b in zip(*pairs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("operands", OPERANDS)
def test_what_is_rows_and_what_is_a_batch(operands: str) -> None:
    found = batched(spec_of(operands, "loss = mean[ROWS](l - pick)"))
    assert isinstance(found, Batched)
    assert (set(found.batch), set(found.rows)) == tuple(map(set, OPERANDS[operands]))


@pytest.mark.parametrize(("operands", "workspace"), list(zip(OPERANDS, (300, 1 << 29) * 4, strict=False)))
def test_values_and_losses(operands: str, workspace: int) -> None:
    """In slabs of some rows, or in one."""
    for lengths in (LENGTHS, {**LENGTHS, "t": 1, "v": 1}, {**LENGTHS, "b": 1, "c": 1}):
        op = ra.torch.head(spec_of(operands, "pick = pick - l, lse = l, at = argmax[v](z)"), workspace=workspace)
        arrays = drawn(op, lengths)
        z, rows = logits(operands, arrays)
        pick, lse, at = op(**arrays)
        order = [rows.index(a) for a in op.parts.spec.output_axes["lse"]]
        expected = torch.log_softmax(z, -1).gather(-1, arrays["y"].unsqueeze(-1)).squeeze(-1)
        for x, e in ((pick, expected), (lse, z.logsumexp(-1)), (at, z.argmax(-1))):
            torch.testing.assert_close(x, e.permute(order), rtol=1e-11, atol=1e-12)
        cotangent = torch.randn_like(lse)
        same_gradients(
            (cotangent * (pick + lse**2)).sum(),
            (cotangent * (expected + z.logsumexp(-1) ** 2).permute(order)).sum(),
            arrays,
        )
        for mode in ("later", "now") if operands in LOSSES else ():
            spec = spec_of(operands, LOSS)
            loss = ra.torch.head(spec, gradients=mode, workspace=workspace)(**arrays)
            truth = (z.logsumexp(-1) ** 2 / 100 - expected).mean()
            torch.testing.assert_close(loss, truth, rtol=1e-11, atol=1e-12)
            same_gradients(loss, truth, arrays)
            if lengths is LENGTHS:
                plain = {n: a.detach().numpy() for n, a in arrays.items()}
                np.testing.assert_allclose(loss.item(), ra.reference(spec, **plain), rtol=1e-12)


@pytest.mark.parametrize("mode", ("later", "now"))
def test_tensors_along_some_of_the_rows(mode: str) -> None:
    """Weights of sequences and of places, positions and lengths of rows, in slabs that divide nothing."""
    spec = ra.parse("""tensors H[b,t,d], W[v,d], w[b], s[t], n[b] integer;
        z = s[t]*sum[d](H[b,t,d]*W[v,d]);
        l = logsumexp[v](z) - sum[v](where(index[v] == index[t], z, 0)) + index[b]/size[b];
        return loss = sum[b](w[b]*sum[t](where(index[t] < n[b], l, 0)))/size[t]""")
    for workspace in (200, 1 << 29):
        op = ra.torch.head(spec, gradients=mode, workspace=workspace)
        arrays = drawn(op, LENGTHS, 1)
        z = arrays["s"][:, None] * (arrays["H"] @ arrays["W"].T)
        places = torch.arange(5)
        of_row = z.logsumexp(-1) - z[:, places, places] + torch.arange(2)[:, None] / 2
        inside = places < arrays["n"][:, None]
        truth = (arrays["w"] * torch.where(inside, of_row, 0).sum(1)).sum() / 5
        loss = op(**arrays)
        torch.testing.assert_close(loss, truth, rtol=1e-11, atol=1e-12)
        same_gradients(loss, truth, arrays)


def test_masks_of_columns_are_a_batch() -> None:
    """A mask along b and v would be as large as the products, were it repeated for every row: b is a batch then."""
    spec = ra.parse("""tensors H[b,t,d], W[v,d], m[b,v], g[b];
        z = sum[d](H[b,t,d]*W[v,d]) + m[b,v]; return loss = sum[b](g[b]*mean[t](logsumexp[v](z)))""")
    for mode in ("later", "now"):
        op = ra.torch.head(spec, gradients=mode)
        assert (op.parts.batch, op.parts.rows) == (("b",), ("t",))
        arrays = drawn(op, LENGTHS, 2)
        with torch.no_grad():
            arrays["m"][0, 3] = -torch.inf
        truth = (arrays["g"] * (arrays["H"] @ arrays["W"].T + arrays["m"][:, None]).logsumexp(-1).mean(1)).sum()
        loss = op(**arrays)
        torch.testing.assert_close(loss, truth, rtol=1e-11, atol=1e-12)
        same_gradients(loss, truth, arrays)


def test_values_with_an_axis_of_their_own() -> None:
    """Several labels a row; outputs in the order that the spec names."""
    spec = ra.parse("""tensors H[b,t,d], W[v,d], y[k,t,b] integer; z = sum[d](H[b,t,d]*W[v,d]);
        return p = sum[v](where(index[v] == y[k,t,b], z, 0)) - logsumexp[v](z)""")
    op = ra.torch.head(spec)
    arrays = drawn(op, LENGTHS, 3)
    whole = torch.log_softmax(arrays["H"] @ arrays["W"].T, -1)
    truth = torch.stack([whole.gather(-1, y.T.unsqueeze(-1)).squeeze(-1) for y in arrays["y"]], -1)  # b, t, k
    own = op(**arrays)
    order = ["btk".index(a) for a in spec.output_axes["p"]]
    torch.testing.assert_close(own, truth.permute(order), rtol=1e-11, atol=1e-12)
    same_gradients((own**2).sum(), (truth**2).sum(), arrays)


def test_no_rows_and_no_batch() -> None:
    for operands, empty in product(tuple(OPERANDS)[::2], "btc"):
        spec = spec_of(operands, "lse = l - pick")
        op, lengths = ra.torch.head(spec), {**LENGTHS, empty: 0}
        arrays = drawn(op, lengths)
        out = op(**arrays)
        assert list(out.shape) == [lengths[a] for a in spec.output_axes["lse"]]


def test_operands_that_are_views() -> None:
    operands = "H[b,t,c,d] W[c,d,v]"
    op = ra.torch.head(spec_of(operands, "lse = l - pick, l = l"))
    arrays = drawn(op, LENGTHS)
    views = {n: a.detach().mT.contiguous().mT.requires_grad_(a.requires_grad) for n, a in arrays.items()}
    torch.testing.assert_close(op(**views), op(**arrays))
    same_gradients(op(**views)[1].sum(), logits(operands, views)[0].logsumexp(-1).sum(), views)


@pytest.mark.parametrize("mode", ("later", "now"))
def test_narrow_operands_autocast_and_the_same_bits(mode: str) -> None:
    op = ra.torch.head(spec_of(LOSSES[1], LOSS), gradients=mode, workspace=1 << 29)
    narrow = drawn(op, LENGTHS, 4, torch.bfloat16)
    loss = op(**narrow)
    assert loss.dtype == torch.bfloat16
    loss.backward()
    wide = {n: a.detach().double() if a.is_floating_point() else a for n, a in narrow.items()}
    wide = {n: a.requires_grad_(a.is_floating_point()) for n, a in wide.items()}
    truth = op(**wide)
    truth.backward()
    assert abs(loss.item() - truth.item()) <= 2**-8 * (1 + abs(truth.item()))
    for n in "HW":
        assert narrow[n].grad.dtype == torch.bfloat16
        assert (narrow[n].grad.double() - wide[n].grad).abs().max() <= 2**-6 * wide[n].grad.abs().max()
    single = drawn(op, LENGTHS, 4, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        assert op(**single).dtype == torch.float32 and op(**wide).dtype == torch.float64
    one, two = (torch.autograd.grad(op(**single), [single[n] for n in "HW"]) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def test_compilers_do_not_break_the_graph() -> None:
    op = ra.torch.head(spec_of(LOSSES[1], LOSS), workspace=1 << 29)
    arrays = drawn(op, LENGTHS, 4)

    def step(H: object, W: object, y: object) -> object:
        return op(H * 2, W, y) * 3

    given = [arrays[n] for n in "HWy"]
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    pairs = [torch.autograd.grad(f(*given), given[:2]) for f in (step, compiled)]
    assert all(torch.allclose(a, b) for a, b in zip(*pairs, strict=True))


@pytest.mark.parametrize(
    ("source", "why"),
    (
        ("return l = logsumexp[v](sum[d](H[b,t,d]*W[b,t,v,d]))", "no axis is one of rows alone"),
        ("return l = logsumexp[b,v](sum[d](H[b,t,d]*W[v,d]))", "alone"),
        ("z = sum[d](H[b,t,d]*W[v,d]); return y = sum[v](z)/sum[t](z)", "no value of one b,t alone"),
    ),
)
def test_refusals(source: str, why: str) -> None:
    with pytest.raises(RedalgError, match=why):
        ra.torch.head(ra.parse(source))


def test_lengths_that_differ_are_refused() -> None:
    op = ra.torch.head(ra.parse("return l = logsumexp[v](sum[d](H[b,t,d]*W[v,d]))"))
    with pytest.raises(RedalgError, match="d has 4 in another tensor"):
        op(torch.zeros(2, 3, 4), torch.zeros(7, 5))
    with pytest.raises(RedalgError, match="dimensions"):
        op(torch.zeros(3, 4), torch.zeros(7, 4))
