"""Heads of PyTorch (`ra.torch.head`): values against the definition, gradients against PyTorch's of whole products."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.adapters.heads.parts import head
from redalg.adapters.heads.slabs import Slabs
from redalg.errors import RedalgError
from redalg.graph.node import walk
from tests.support.profiles import examples

torch: Any = pytest.importorskip("torch")

SIZES = ((37, 53, 8), (1, 1, 3), (5, 300, 4), (2, 7, 1))
SMALL, LARGE = 4000, 1 << 29  # bytes of products: some slabs, and one
OUTPUTS = {
    "rows": "logp = pick - l, lse = l, entropy = l - sum[v](p*c)/sum[v](p)",
    "mean": "loss = mean[t](l - pick + l**2/1000)",
    "weighted": "loss = sum[t]((l - pick)*w[t])/sum[t](w[t])",
}


def text(outputs: str, capped: bool, biased: bool) -> str:
    return f"""tensors H[t,d], W[v,d]{", b[v]" if biased else ""}, y[t] integer{", w[t]" if "w[t]" in outputs else ""};
        z = sum[d](H[t,d]*W[v,d]){" + b[v]" if biased else ""};
        c = {"30*tanh(z/30)" if capped else "z"};
        m = max[v](c); p = exp(c - m); l = m + log(sum[v](p));
        pick = sum[v](where(index[v] == y[t], c, 0));
        return {outputs}"""


def whole(arrays: dict, capped: bool) -> dict:
    """The same with the products in memory, by PyTorch."""
    z = arrays["H"] @ arrays["W"].T + arrays.get("b", 0)
    c = 30 * torch.tanh(z / 30) if capped else z
    lse, p = torch.logsumexp(c, 1), torch.softmax(c, 1)
    pick = c.gather(1, arrays["y"][:, None])[:, 0]
    w = arrays.get("w", torch.ones_like(lse))
    return {
        "rows": (pick - lse, lse, lse - (p * c).sum(1)),
        "mean": ((lse - pick + lse**2 / 1000).mean(),),
        "weighted": (((lse - pick) * w).sum() / w.sum(),),
    }


def drawn(sizes: tuple[int, int, int], seed: int, dtype: object = None, scale: float = 1.0) -> dict:
    rows, columns, inner = sizes
    torch.manual_seed(seed)
    dtype = dtype or torch.float64
    shapes = {"H": (rows, inner), "W": (columns, inner), "b": (columns,), "w": (rows,)}
    arrays = {n: (torch.randn(*s, dtype=torch.float64) * scale).to(dtype) for n, s in shapes.items()}
    arrays["w"] = arrays["w"].abs() + 0.1
    return {n: a.requires_grad_() for n, a in arrays.items()} | {"y": torch.randint(0, columns, (rows,))}


def read_by(op: object, arrays: dict) -> dict:
    return {d.name: arrays[d.name] for d in op.tensors}


def tupled(found: object) -> tuple:
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.parametrize("workspace", (SMALL, LARGE))
@pytest.mark.parametrize("kind", OUTPUTS)
@pytest.mark.parametrize("capped", (False, True), ids=("plain", "capped"))
@pytest.mark.parametrize("biased", (False, True), ids=("", "biased"))
def test_values_and_gradients(kind: str, capped: bool, biased: bool, workspace: int) -> None:
    spec = ra.parse(text(OUTPUTS[kind], capped, biased))
    for mode in ("later",) if kind == "rows" else ("later", "now"):
        op = ra.torch.head(spec, gradients=mode, workspace=workspace)
        for seed, sizes in enumerate(SIZES):
            arrays = read_by(op, drawn(sizes, seed))
            found = tupled(op(**arrays))
            plain = {n: a.detach().numpy() for n, a in arrays.items()}
            truth = ra.reference(spec, **plain)
            truth = truth if isinstance(truth, dict) else {"loss": truth}
            for n, x in zip(spec.outputs, found, strict=True):
                np.testing.assert_allclose(x.detach().numpy(), truth[n], rtol=1e-12, atol=1e-12)
            expected = whole(arrays, capped)[kind]
            cotangents = [torch.randn_like(x) for x in found]
            leaves = [a for a in arrays.values() if a.requires_grad]
            own = torch.autograd.grad(found, leaves, cotangents)
            for x, e in zip(own, torch.autograd.grad(expected, leaves, cotangents), strict=True):
                assert torch.allclose(x, e, rtol=1e-10, atol=1e-12)


def test_both_ways_to_cut_are_taken() -> None:
    """Columns where everything a gradient needs of a row was saved; rows where one sums along rows (a temperature)."""
    arrays = {n: a.detach() for n, a in drawn((6, 5000, 3), 0).items()} | {"s": torch.tensor(0.5).double()}
    axes = []
    for factor in ("", "*s"):
        op = ra.torch.head(ra.parse(f"z = sum[d](H[t,d]*W[v,d]){factor}; return lse = logsumexp[v](z)"))
        axes.append(op.slabs._gradient_slabs(read_by(op, arrays))[0])
    assert axes == ["v", "t"]
    H, W, s = (arrays[n].requires_grad_() for n in "HWs")
    for workspace in (SMALL, LARGE):
        own = ra.torch.head(op.parts.spec, workspace=workspace)(H=H, W=W, s=s)
        truth = torch.logsumexp(H @ W.T * s, 1)
        pairs = (torch.autograd.grad(x.sum(), (H, W, s)) for x in (own, truth))
        assert all(torch.allclose(a, b) for a, b in zip(*pairs, strict=True))


@given(data=st.data())
@examples(30)
def test_any_slab_gives_the_same(data: st.DataObject) -> None:
    """Slabs that do not divide the lengths, of one row or column and of all; layouts; labels at their borders."""
    rows, columns, inner = (data.draw(st.integers(1, n)) for n in (9, 400, 5))
    workspace = data.draw(st.integers(1, 8 * rows * columns + 8))
    spec = ra.parse(text(OUTPUTS["rows"], data.draw(st.booleans()), False))
    arrays = {n: a.detach() for n, a in drawn((rows, columns, inner), 3).items()}
    arrays["y"] = torch.tensor(data.draw(st.lists(st.integers(0, columns - 1), min_size=rows, max_size=rows)))
    if data.draw(st.booleans()):
        arrays |= {n: arrays[n].T.contiguous().T for n in "HW"}
    made = []
    for each in (ra.torch.head(spec, workspace=workspace), ra.torch.head(spec)):
        leaves = {n: a.clone().requires_grad_(a.is_floating_point()) for n, a in read_by(each, arrays).items()}
        found = each(**leaves)
        grads = torch.autograd.grad(sum((k + 1) * x.sum() for k, x in enumerate(found)), [leaves["H"], leaves["W"]])
        made.append((*found, *grads))
    for a, b in zip(*made, strict=True):
        assert torch.allclose(a, b, rtol=1e-11, atol=1e-12)


def test_two_heads() -> None:
    """The divergence of two heads: two products, one of which is not differentiated."""
    spec = ra.parse("""tensors H[t,d], W[v,d], G[t,e], U[v,e];
        z = sum[d](H[t,d]*W[v,d]); s = sum[e](G[t,e]*U[v,e]);
        q = exp(s - max[v](s)); u = sum[v](q);
        return kl = sum[v](q*(s - z))/u - logsumexp[v](s) + logsumexp[v](z)""")
    torch.manual_seed(1)
    H, W = (torch.randn(n, 5, dtype=torch.float64, requires_grad=True) for n in (7, 31))
    G, U = (torch.randn(n, 3, dtype=torch.float64) for n in (7, 31))
    for workspace in (SMALL, LARGE):
        kl = ra.torch.head(spec, workspace=workspace)(H, W, G, U)
        p, q = torch.log_softmax(H @ W.T, 1), torch.log_softmax(G @ U.T, 1)
        expected = (q.exp() * (q - p)).sum(1)
        assert torch.allclose(kl, expected, rtol=1e-10, atol=1e-12)
        own, truth = (torch.autograd.grad(x.square().sum(), (H, W)) for x in (kl, expected))
        assert all(torch.allclose(a, b, rtol=1e-9, atol=1e-11) for a, b in zip(own, truth, strict=True))


def test_positions_have_no_gradient_and_count_over_slabs() -> None:
    spec = ra.parse("z = sum[d](H[t,d]*W[v,d]); return best = argmax[v](z), lse = logsumexp[v](z)")
    arrays = drawn((9, 200, 3), 5)
    best, lse = ra.torch.head(spec, workspace=SMALL)(arrays["H"], arrays["W"])
    assert torch.equal(best, (arrays["H"] @ arrays["W"].T).argmax(1)) and not best.requires_grad
    (own,) = torch.autograd.grad(lse.sum(), arrays["W"])
    (truth,) = torch.autograd.grad(torch.logsumexp(arrays["H"] @ arrays["W"].T, 1).sum(), arrays["W"])
    assert torch.allclose(own, truth)


LINEAR = {
    "sum[v](z)": lambda z: z.sum(1),
    "mean[v](z)*size[v]**2": lambda z: z.mean(1) * z.shape[1] ** 2,
    "max[v](z)": lambda z: z.max(1).values,
    "sum[v](z) + index[t]*size[t]": lambda z: z.sum(1) + torch.arange(len(z)) * len(z),
}


@pytest.mark.parametrize("text", LINEAR)
def test_gradients_that_do_not_read_the_products(text: str) -> None:
    """Of sums: the same along a row, from lengths and positions alone; over slabs of some rows, and of all."""
    arrays = drawn((9, 50, 3), 8)
    H, W = arrays["H"], arrays["W"]
    for mode in ("later", "now"):
        out = f"sum[t]({text})" if mode == "now" else text
        spec = ra.parse(f"z = sum[d](H[t,d]*W[v,d]); return r = {out}")
        for workspace in (900, LARGE):
            own = ra.torch.head(spec, gradients=mode, workspace=workspace)(H, W)
            truth = LINEAR[text](H @ W.T)
            truth = truth.sum() if mode == "now" else truth
            assert torch.allclose(own, truth)
            cotangent = torch.randn_like(own)
            pairs = (torch.autograd.grad(x, (H, W), cotangent) for x in (own, truth))
            assert all(torch.allclose(a, b) for a, b in zip(*pairs, strict=True))


def test_operands_as_they_are_declared() -> None:
    """Either axis first, a factor beside the product, no rows at all."""
    spec = ra.parse("tensors H[d,t], W[v,d]; z = 3*sum[d](H[d,t]*W[v,d])/7; return lse = logsumexp[v](z)")
    op = ra.torch.head(spec)
    H = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    W = torch.randn(11, 4, dtype=torch.float64, requires_grad=True)
    expected = torch.logsumexp(3 / 7 * (H.T @ W.T), 1)
    own, truth = (torch.autograd.grad(x.sum(), (H, W)) for x in (op(H, W), expected))
    assert all(torch.allclose(a, b) for a, b in zip(own, truth, strict=True))
    assert op(torch.zeros(4, 0), torch.zeros(11, 4)).shape == (0,)


@pytest.mark.parametrize("dtype", ("bfloat16", "float16", "float32"))
@pytest.mark.parametrize("held", (None, "bfloat16"))
@pytest.mark.parametrize("mode", ("later", "now"))
def test_narrow_operands(dtype: str, held: str | None, mode: str) -> None:
    """Logits of relative error 2⁻⁹ (held in bfloat16) or of float32; results and gradients rounded once more."""
    spec = ra.parse(text(OUTPUTS["mean"], False, False))
    op = ra.torch.head(spec, gradients=mode, logits=held, workspace=20000)
    kind = getattr(torch, dtype)
    arrays = read_by(op, drawn((40, 90, 16), 2, kind))
    loss = op(**arrays)
    assert loss.dtype == kind
    loss.backward()
    wide = {n: a.detach().double().requires_grad_() if a.is_floating_point() else a for n, a in arrays.items()}
    (expected,) = whole(wide, False)["mean"]
    expected.backward()
    rounding = {"bfloat16": 2**-8, "float16": 2**-11, "float32": 2**-23}[dtype]
    logit = {None: 2**-24 * 16, "bfloat16": 2**-9}[held] * float((wide["H"] @ wide["W"].T).detach().abs().max())
    assert abs(loss.item() - expected.item()) <= 4 * (logit + rounding * abs(expected.item()))
    # |dZ| sums to at most 2 a row over 40 rows; each is off by its rounding and, relatively, by twice the logit's error
    for n in "HW":
        other = wide["W" if n == "H" else "H"].detach().abs().max()
        bound = 2 * float(other) * (2 * rounding + 4 * logit) * (1 if n == "W" else 1 / 20)
        assert float((arrays[n].grad.double() - wide[n].grad).abs().max()) <= bound


def test_repeated_calls_give_the_same_bits() -> None:
    spec = ra.parse(text(OUTPUTS["mean"], True, True))
    for mode in ("later", "now"):
        op = ra.torch.head(spec, gradients=mode, workspace=SMALL)
        arrays = read_by(op, drawn((50, 70, 6), 4, torch.float32))
        leaves = [a for a in arrays.values() if a.requires_grad]
        one, two = (torch.autograd.grad(op(**arrays), leaves) for _ in range(2))
        assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def test_ignored_rows_and_masked_columns() -> None:
    """A label that no column has picks nothing; a bias of -oo leaves a column out, of sums and of gradients."""
    spec = ra.parse("""tensors H[t,d], W[v,d], b[v], y[t] integer;
        z = sum[d](H[t,d]*W[v,d]) + b[v];
        pick = sum[v](where(index[v] == y[t], z, 0));
        return loss = sum[t](where(y[t] >= 0, logsumexp[v](z) - pick, 0))""")
    arrays = drawn((8, 30, 4), 6)
    bias = torch.zeros(30, dtype=torch.float64)
    bias[7] = -torch.inf
    labels = torch.tensor([-100, 1, 2, -100, 29, 0, 3, 5])
    for mode in ("later", "now"):
        for workspace in (SMALL, LARGE):
            op = ra.torch.head(spec, gradients=mode, workspace=workspace)
            own = op(arrays["H"], arrays["W"], bias, labels)
            expected = torch.nn.functional.cross_entropy(
                arrays["H"] @ arrays["W"].T + bias, labels, ignore_index=-100, reduction="sum"
            )
            assert torch.allclose(own, expected)
            pairs = (torch.autograd.grad(x, (arrays["H"], arrays["W"])) for x in (own, expected))
            assert all(torch.allclose(a, b) for a, b in zip(*pairs, strict=True))


def test_autocast_and_compile() -> None:
    spec = ra.parse(text(OUTPUTS["mean"], False, False))
    for mode in ("later", "now"):
        op = ra.torch.head(spec, gradients=mode)
        arrays = read_by(op, drawn((6, 40, 8), 7, torch.float32))
        with torch.autocast("cpu", torch.bfloat16):
            loss = op(**arrays)
        assert loss.dtype == torch.float32
        loss.backward()
        assert arrays["W"].grad.dtype == torch.float32

        wide = read_by(op, drawn((6, 40, 8), 7))
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(op(**wide), op(*wide.values())) and op(**wide).dtype == torch.float64
        assert torch.allclose(op(**wide), whole(wide, False)["mean"][0])

        def step(H, W, y, op=op):
            return op(H * 2, W, y) * 3

        args = [arrays[n] for n in ("H", "W", "y")]
        compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
        pairs = [torch.autograd.grad(f(*args), args[:2]) for f in (step, compiled)]
        assert all(torch.allclose(a, b) for a, b in zip(*pairs, strict=True))


@pytest.mark.parametrize(
    ("source", "options", "why"),
    (
        ("return y = sum[v](x[t,v]*w[v])", {}, "no stage is a sum over one axis of products"),
        ("return z = sum[d](H[t,d]*W[v,d])", {}, "it has the axes of the products"),
        ("z = sum[d](H[t,d]*W[v,d]); return y = sum[t](sum[v](z*z)), x = sum[v](sum[t](exp(z)))", {}, "alone"),
        ("z = sum[d](H[t,d]*W[v,d]); return l = logsumexp[v](z/sum[t](s[t]))", {}, "a stage over t"),
        ("return l = logsumexp[v](sum[d](H[t,d]*W[v,d]))", {"gradients": "now"}, "one scalar"),
        ("return s = sum[t](logsumexp[v](sum[d](H[t,d]*W[v,d])))**2", {"gradients": "now"}, "when all rows are"),
        ("return l = logsumexp[v](sum[d](H[t,d]*W[v,d]))", {"gradients": "soon"}, "'later' or 'now'"),
        ("return l = logsumexp[v](sum[d](H[t,d]*W[v,d]))", {"logits": "int8"}, "floats"),
        ("return l = logsumexp[v](sum[d](H[t,d]*W[v,d]))", {"workspace": 0}, "bytes"),
    ),
)
def test_refusals(source: str, options: dict, why: str) -> None:
    with pytest.raises(RedalgError, match=why):
        ra.torch.head(ra.parse(source), **options)


def test_operands_of_other_lengths_are_refused() -> None:
    op = ra.torch.head(ra.parse("return l = logsumexp[v](sum[d](H[t,d]*W[v,d]))"))
    with pytest.raises(RedalgError, match="multiplied along d"):
        op(torch.zeros(2, 3), torch.zeros(4, 5))
    with pytest.raises(RedalgError, match="dimensions"):
        op(torch.zeros(2), torch.zeros(4, 5))


def test_what_varies_along_rows_alone_is_computed_for_rows_alone() -> None:
    """No quotient, power or logarithm of numbers of a row is left in what runs for every element."""
    for kind in ("rows", "mean"):
        for of_rows, rest in Slabs(head(ra.parse(text(OUTPUTS[kind], True, False))), None, None).gradient_specs:
            assert of_rows is not None and all(axes == ("t",) for axes in of_rows.spec.output_axes.values())
            for n in walk(*rest.spec.outputs.values()):
                assert n.axes != {"t"} or n.op == "tensor" or n.is_boolean, n


@pytest.mark.parametrize("name", ["sum1", "max1", "mean1", "grad_y"])
@pytest.mark.parametrize("operand", ["H", "W", "b", "y"])
def test_operands_may_be_called_as_saved_values_are(operand: str, name: str) -> None:
    """The operands of products are no tensors of what is differentiated, but are called by name beside its values."""
    text = "tensors H[t,d], W[v,d], b[v]; z = sum[d](H[t,d]*W[v,d]) + b[v]; m = max[v](z);"
    text += "return y = mean[t](m + log(sum[v](exp(z - m))))"
    arrays = {n: a for n, a in drawn((5, 5, 5), 3).items() if n in "HWb"}
    true = torch.logsumexp(arrays["H"] @ arrays["W"].T + arrays["b"], 1).mean()
    true.backward()
    given = {name if n == operand else n: a.detach().clone().requires_grad_() for n, a in arrays.items()}
    found = ra.torch.head(ra.parse(re.sub(rf"\b{operand}\b", name, text)))(**given)
    found.backward()
    torch.testing.assert_close(found, true)
    for a, other in zip(given.values(), arrays.values(), strict=True):
        torch.testing.assert_close(a.grad, other.grad)


class _Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4, 3, dtype=torch.float64))
        self.softmax, self.loss = ra.torch.compile(ra.catalog["softmax"]), ra.torch.head(ra.parse(COPIED))

    def forward(self, rows: Any, labels: Any) -> Any:
        return self.loss(self.softmax(rows), self.weight, labels)


COPIED = (
    "tensors H[t,d], W[v,d], y[t] integer; z = sum[d](H[t,d]*W[v,d]); pick = sum[v](where(index[v] == y[t], z, 0));"
    "return loss = mean[t](logsumexp[v](z) - pick)"
)


def test_modules_with_operators_are_copied_and_pickled() -> None:
    model, rows, labels = _Model(), torch.rand(2, 3, dtype=torch.float64), torch.tensor([0, 3])
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert other.loss is model.loss and other.softmax is model.softmax and other.weight is not model.weight
        torch.testing.assert_close(other(rows, labels), model(rows, labels), rtol=0, atol=0)
    batched = ra.torch.head(ra.parse("tensors H[b,c,d], W[c,v,d]; return y = logsumexp[v](sum[d](H[b,c,d]*W[c,v,d]))"))
    assert copy.deepcopy(batched) is pickle.loads(pickle.dumps(batched)) is batched


@pytest.mark.parametrize("gradients", ["later", "now"])
@pytest.mark.parametrize("reentrant", [False, True])
def test_heads_under_a_checkpoint(gradients: str, reentrant: bool) -> None:
    """What a checkpoint makes anew is given once."""
    operator, generator = ra.torch.head(ra.parse(COPIED), gradients=gradients), torch.Generator().manual_seed(1)
    rows, weights = (torch.rand(n, 3, dtype=torch.float64, generator=generator) for n in (2, 4))
    labels, found = torch.tensor([0, 3]), []
    for kept in (True, False):
        own = [a.clone().requires_grad_() for a in (rows, weights)]

        def loss(h: Any, w: Any) -> Any:
            return operator(h, w, labels)

        made = loss(*own) if kept else torch.utils.checkpoint.checkpoint(loss, *own, use_reentrant=reentrant)
        made.backward()
        found.append([a.grad for a in own])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)
