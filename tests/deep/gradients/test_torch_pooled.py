"""Heads whose values are extrema over rows of products, against autograd of the whole products in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

import redalg as ra
from redalg.adapters.heads.extrema import pooled
from redalg.errors import RedalgError
from tests.support.profiles import examples

torch = pytest.importorskip("torch")
from redalg.adapters.heads.gathers import PART, parts_by_position  # noqa: E402

Arrays = dict[str, Any]
WIDE = torch.float64


def z(a: Arrays) -> Any:
    return torch.einsum("bsd,vd->bsv", a["H"], a["E"])


def kept(a: Arrays) -> Any:
    return (torch.arange(a["H"].shape[1])[None] < a["n"][:, None])[..., None]


def places(a: Arrays) -> Any:
    return torch.arange(a["H"].shape[1], dtype=WIDE)[None, :, None]


H = "tensors H[b,s,d], E[v,d]"
CASES: dict[str, tuple[str, Callable[[Arrays], Any]]] = {
    "bare": ("return m = max[s](sum[d](H[b,s,d]*E[v,d]))", lambda a: z(a).max(1).values),
    "least, the other way round": (
        "tensors E[v,d], H[s,d,b]; return m = min[s](2*sum[d](E[v,d]*H[s,d,b])/3)",
        lambda a: (2 * torch.einsum("sdb,vd->vbs", a["H"], a["E"]) / 3).min(2).values,
    ),
    "bias after it, lengths": (
        f"{H}, bias[v], n[b] integer; m = max[s](where(index[s] < n[b], sum[d](H[b,s,d]*E[v,d]), -oo));"
        "return Y = log(1 + relu(m + bias[v]))",
        lambda a: torch.log1p(torch.relu(z(a).masked_fill(~kept(a), -torch.inf).max(1).values + a["bias"])),
    ),
    "bias and map in it, masks": (
        f"{H}, bias[v], ok[b,s] bool; t = log(1 + relu(sum[d](H[b,s,d]*E[v,d]) + bias[v]));"
        "return Y = max[s](where(ok[b,s], t, 0))",
        lambda a: torch.log1p(torch.relu(z(a) + a["bias"])).masked_fill(~a["ok"][..., None], 0).max(1).values,
    ),
    "weights of rows, positions, two outputs": (
        f"{H}, w[b,s], c; q = w[b,s]*tanh(c*sum[d](H[b,s,d]*E[v,d])) + index[s]/size[s];"
        "return low = min[s](q), at = argmin[s](q), whole = sum[v](min[s](q)**2)",
        lambda a: _two(a["w"][..., None] * torch.tanh(a["c"] * z(a)) + places(a) / a["H"].shape[1]),
    ),
    "both ends": (
        f"{H}, o[s]; q = sum[d](H[b,s,d]*E[v,d]) + o[s]; return width = max[s](q) - min[s](q)",
        lambda a: (q := z(a) + a["o"][None, :, None]).max(1).values - q.min(1).values,
    ),
    "late interaction": (
        "tensors Q[q,i,d], H[c,j,d]; return score = sum[i](max[j](sum[d](Q[q,i,d]*H[c,j,d])))",
        lambda a: torch.einsum("qid,cjd->qicj", a["Q"], a["H"]).max(3).values.sum(1),
    ),
}


def _two(q: Any) -> Any:
    low = q.min(1)
    return low.values, low.indices, (low.values**2).sum(1)


def drawn(spec: ra.Spec, sizes: dict[str, int], seed: int, whole: bool = False) -> Arrays:
    torch.manual_seed(seed)
    found = {}
    for d in spec.tensors:
        shape = [sizes[a] for a in d.axes]
        if "integer" in d.domain:
            found[d.name] = torch.randint(0, sizes["s"] + 1, shape)
        elif "bool" in d.domain:
            found[d.name] = torch.rand(shape) < 0.5
        else:  # small whole numbers have ties, of which the first row gets the gradient
            made = torch.randint(-2, 3, shape).to(WIDE) if whole else torch.randn(shape, dtype=WIDE)
            found[d.name] = made.requires_grad_()
    return found


def compared(name: str, arrays: Arrays, workspace: int | None) -> None:
    text, truth = CASES[name]
    op = ra.torch.head(ra.parse(text), workspace=workspace)
    results = [x if isinstance(x, tuple) else (x,) for x in (op(**arrays), truth(arrays))]
    for own, want in zip(*results, strict=True):
        torch.testing.assert_close(own, want, rtol=1e-10, atol=1e-11)
    floats = [[x for x in each if x.requires_grad] for each in results]
    slopes = [torch.randn_like(x) for x in floats[1]]
    leaves = [x for x in arrays.values() if x.requires_grad]
    found = [torch.autograd.grad(x, leaves, slopes, retain_graph=True) for x in (*floats, floats[0])]
    for own, want, again in zip(*found, strict=True):
        torch.testing.assert_close(own, want, rtol=1e-9, atol=1e-10)
        assert torch.equal(own, again)


@pytest.mark.parametrize("workspace", [None, 700])
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name: str, workspace: int | None) -> None:
    spec = ra.parse(CASES[name][0])
    sizes = {"b": 3, "s": 7, "j": 7, "v": 19, "d": 4, "q": 2, "i": 5, "c": 3}
    arrays = drawn(spec, sizes, 1)
    if "n" in arrays:
        arrays["n"] = torch.tensor([7, 1, 3])
    if "ok" in arrays:
        arrays["ok"][1] = False  # nothing of a text counts
    compared(name, arrays, workspace)


@pytest.mark.parametrize("name", CASES)
def test_tangents(name: str) -> None:
    sizes = {"b": 3, "s": 7, "j": 7, "v": 5, "d": 4, "q": 2, "i": 5, "c": 3}
    arrays = drawn(ra.parse(CASES[name][0]), sizes, 1)
    level, op = torch.autograd.forward_ad, ra.torch.head(ra.parse(CASES[name][0]))
    with level.dual_level():
        moving = {n: level.make_dual(a.detach(), a.detach().cos()) if a.requires_grad else a for n, a in arrays.items()}
        results = [op(**moving), CASES[name][1](moving)]
        pairs = [[level.unpack_dual(x) for x in (r if isinstance(r, tuple) else (r,))] for r in results]
    for (own, slope), (value, want) in zip(*pairs, strict=True):
        torch.testing.assert_close(own, value, rtol=1e-10, atol=1e-12)
        if value.is_floating_point():
            torch.testing.assert_close(slope, want, rtol=1e-9, atol=1e-11)


@given(data=st.data())
@examples(12)
def test_ties_go_to_the_lowest_row(data: st.DataObject) -> None:
    """Small whole numbers, any lengths; PyTorch's `max` along an axis takes the first on the CPU, too."""
    name = data.draw(st.sampled_from(["bare", "bias after it, lengths", "both ends", "late interaction"]))
    sizes = {
        a: data.draw(st.integers(1, most), a) for a, most in zip("bsvdqicj", (3, 6, 9, 3, 2, 3, 3, 6), strict=True)
    }
    arrays = drawn(ra.parse(CASES[name][0]), sizes, data.draw(st.integers(0, 99)), whole=True)
    if "n" in arrays:
        arrays["n"] = arrays["n"].clamp_min(1)
    compared(name, arrays, data.draw(st.sampled_from([None, 200])))


def test_nothing_of_a_text() -> None:
    """No token counts, or there is none: log(1 + relu(-oo)) is 0, with no gradient."""
    op = ra.torch.head(ra.parse(CASES["bias after it, lengths"][0]))
    for tokens in (0, 4):
        H, E, b = (torch.randn(s, dtype=WIDE, requires_grad=True) for s in ((2, tokens, 3), (5, 3), (5,)))
        Y = op(H, E, b, torch.zeros(2, dtype=torch.int64))
        assert torch.equal(Y, torch.zeros(2, 5, dtype=WIDE))
        assert not any(g.any() for g in torch.autograd.grad(Y.sum(), (H, E, b)))


@given(data=st.data())
@examples(15)
def test_parts_have_every_value_once(data: st.DataObject) -> None:
    """Of skewed positions: in order, in parts that do not cross positions, without values of weight 0."""
    count, columns, length = (data.draw(st.integers(1, n)) for n in (3, 300, 5))
    torch.manual_seed(data.draw(st.integers(0, 99)))
    at = torch.randint(0, length, (count, columns))
    at[torch.rand(count, columns) < data.draw(st.sampled_from([0.0, 0.4, 1.0]))] = length - 1
    weights = (torch.rand(count, columns) < data.draw(st.sampled_from([0.0, 0.1, 1.0]))).to(torch.float32)
    order, start, stop, first, last = parts_by_position(weights, at, length)
    assert int((stop - start).max()) <= PART and int((stop - start).min()) >= 0
    for n in range(count):
        for p in range(length):
            r = n * length + p
            taken = [range(int(start[k]), int(stop[k])) for k in range(int(first[r]), int(last[r]))]
            assert all(len(x) == PART for x in taken[:-1])
            found = [int(order.flatten()[e]) for x in taken for e in x]
            assert found == torch.nonzero((at[n] == p) & (weights[n] != 0))[:, 0].tolist()
    used = int(last[-1])
    assert torch.equal(start[used:], stop[used:])


OTHERS = {  # what is taken apart at the product, as a head for each b: why not at the extremum, and what it is
    "return r = sum[s](sum[d](H[b,s,d]*E[v,d]))": ("no extremum", lambda q, k, n: q.sum(1)),
    "return r = max[s](sum[d](H[b,s,d]*K[b,v,d]))": ("both operands of the product have b", lambda q, k, n: k.amax(1)),
    "q = sum[d](H[b,s,d]*E[v,d]); return r = max[s](q) + sum[s](q)": (
        "outside of an extremum",
        lambda q, k, n: q.amax(1) + q.sum(1),
    ),
    "q = sum[d](H[b,s,d]*E[v,d]) + sum[s](n[b,s]); return r = max[s](q)": (
        "reduction beside the product",
        lambda q, k, n: (q + n.sum(1)[:, None, None]).amax(1),
    ),
}


@pytest.mark.parametrize("text", OTHERS)
def test_what_is_taken_apart_at_the_product(text: str) -> None:
    why, definition = OTHERS[text]
    spec = ra.parse(text)
    assert why in str(pooled(spec))
    torch.manual_seed(0)
    shapes = {"H": (2, 5, 3), "E": (4, 3), "K": (2, 4, 3), "n": (2, 5)}
    arrays = {n: torch.randn(s, dtype=torch.float64).abs().add(1 / 8).requires_grad_() for n, s in shapes.items()}
    H, E, K, n = arrays.values()
    truth = definition(H @ E.T, H @ K.mT, n)
    op = ra.torch.head(spec)
    own = op(**{d.name: arrays[d.name] for d in op.tensors})
    torch.testing.assert_close(own, truth)
    cotangent, leaves = torch.randn_like(own), [arrays[d.name] for d in op.tensors]
    pairs = (torch.autograd.grad(x, leaves, cotangent) for x in (own, truth))
    for a, b in zip(*pairs, strict=True):
        torch.testing.assert_close(a, b)


def test_gradients_of_extrema_are_taken_later() -> None:
    with pytest.raises(ra.RedalgError, match="is known when its rows are"):
        ra.torch.head(ra.parse("return r = sum[b,v](max[s](sum[d](H[b,s,d]*E[v,d])))"), gradients="now")


def test_pytorch_sees_operators() -> None:
    """Schemas and shapes without data, a compiled function without a break, autocast, no gradient of second order."""
    op = ra.torch.head(ra.parse(CASES["bias after it, lengths"][0]))
    sizes = {"b": 3, "s": 7, "v": 19, "d": 4}
    arrays = {n: x.float() if x.is_floating_point() else x for n, x in drawn(op.parts.spec, sizes, 1).items()}
    arrays = {n: x.detach().requires_grad_(x.is_floating_point()) for n, x in arrays.items()}
    own = [arrays[d.name].detach() for d in op.tensors]
    torch.library.opcheck(op._ops["_values"], tuple(own), test_utils=("test_schema", "test_faketensor"))
    kept = op._ops["_values"](*own)
    cotangents = [torch.randn_like(x) for x in kept if x.is_floating_point()]
    given = (*own, *kept, *cotangents)
    torch.library.opcheck(op._ops["_backward"], given, test_utils=("test_schema", "test_faketensor"))
    leaves = [x for x in arrays.values() if x.requires_grad]

    def step(*own: Any) -> Any:
        return op(*own) * 3

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    pairs = [torch.autograd.grad(f(*arrays.values()).square().sum(), leaves) for f in (step, compiled)]
    assert all(torch.allclose(a, b) for a, b in zip(*pairs, strict=True))
    with torch.autocast("cpu", torch.bfloat16):
        narrow = op(*arrays.values())
    assert narrow.dtype == torch.float32
    assert torch.allclose(narrow, op(*arrays.values()), atol=0.2)
    (slope,) = torch.autograd.grad(op(*arrays.values()).square().sum(), leaves[:1], create_graph=True)
    with pytest.raises(RedalgError, match="a gradient of a gradient"):
        torch.autograd.grad(slope.sum(), leaves)
