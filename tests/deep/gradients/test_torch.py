"""Forms as PyTorch operators: gradients of both orders, PyTorch's checks of operators, compiling, vmap, refusals."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.errors import RedalgError

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore")

SPECS = {  # text, shapes of the tensors in the spec's order
    "softmax": ("m = max[j](x[i,j]); p = exp(x[i,j] - m); return y = p/sum[j](p)", [(3, 5)]),
    "attention": (
        "s = sum[d](q[i,d]*k[j,d]); m = max[j](s); p = exp(s - m); return o = sum[j](p*v[j,e])/sum[j](p)",
        [(3, 2), (4, 2), (4, 3)],
    ),
    "layer_norm": (
        "u = mean[j](x[i,j]); v = mean[j]((x[i,j] - u)**2); return y = (x[i,j] - u)/sqrt(v + 1/100)*w[j] + b[j]",
        [(3, 4), (4,), (4,)],
    ),
    "several": ("return a = sum[j](x[j]**2), b = max[j](x[j]*w), c = argmax[j](x[j])", [(5,), ()]),
    "moments": ("u = mean[i](x[i,j]); return v = mean[i]((x[i,j] - u)**2)", [(4, 3)]),
    "means": ("tensors x[i,j], w[i]; return y = sum[i](w[i]*mean[j](x[i,j]))/size[i]", [(2, 3), (2,)]),  # reads lengths
    "elementwise": ("return y = tanh(x[i,j])*w[j]", [(2, 3), (3,)]),
}


def op_of(name: str) -> Any:
    text, _ = SPECS[name]
    return ra.derive_incremental(ra.parse(text)).torch_op(f"tested::{name}")


def drawn(name: str, dtype: Any = None) -> list[Any]:
    torch.manual_seed(len(name))
    made = [torch.randn(shape, dtype=dtype or torch.float64) for shape in SPECS[name][1]]
    return [t.requires_grad_() for t in made]


def smooth(result: Any) -> Any:
    """The results that have a derivative."""
    parts = result if isinstance(result, tuple) else (result,)
    return tuple(p for p in parts if p.dtype.is_floating_point)


@pytest.mark.parametrize("name", SPECS)
def test_gradients_of_both_orders(name: str) -> None:
    op, given = op_of(name), drawn(name)
    assert torch.autograd.gradcheck(lambda *a: smooth(op(*a)), given)
    assert torch.autograd.gradgradcheck(lambda *a: smooth(op(*a)), given)


@pytest.mark.parametrize("name", SPECS)
def test_results_are_those_of_the_form(name: str) -> None:
    op, given = op_of(name), [t.detach() for t in drawn(name)]
    wanted = ra.reference(op.spec, **{d.name: t.numpy() for d, t in zip(op.spec.tensors, given, strict=True)})
    wanted = wanted if isinstance(wanted, dict) else {next(iter(op.spec.outputs)): wanted}
    found = op(*given)
    for got, want in zip(found if isinstance(found, tuple) else (found,), wanted.values(), strict=True):
        assert got.is_contiguous() and got.dtype == torch.as_tensor(want).dtype
        np.testing.assert_allclose(got.numpy(), want, 1e-12, 1e-13)
    by_name = op(**{d.name: t for d, t in zip(op.spec.tensors, given, strict=True)})
    np.testing.assert_array_equal(smooth(by_name)[0].numpy(), smooth(found)[0].numpy())


@pytest.mark.parametrize("name", SPECS)
def test_pytorchs_own_checks(name: str) -> None:
    """Schema, autograd registration, shapes without data, tracing; of permuted tensors, too."""
    op, given = op_of(name), drawn(name)
    permuted = [t.detach().mT.contiguous().mT.requires_grad_() if t.dim() == 2 else t for t in given]
    for arrays in (given, permuted):
        torch.library.opcheck(op.plain, tuple(arrays))
        torch.library.opcheck(op.with_saved, tuple(arrays))


@pytest.mark.parametrize("name", SPECS)
def test_compiling_breaks_no_graph(name: str) -> None:
    op, given = op_of(name), drawn(name)

    def loss(*arrays: Any) -> Any:
        return sum((2 * part).sin().sum() for part in smooth(op(*[a * 1.5 for a in arrays])))

    want = torch.autograd.grad(loss(*given), given)
    got = torch.autograd.grad(torch.compile(loss, fullgraph=True, backend="aot_eager")(*given), given)
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g, w, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["softmax", "attention", "several"])
def test_an_exported_program_runs_the_operator_at_other_lengths(name: str) -> None:
    op, given = op_of(name), [t.detach() for t in drawn(name)]

    class Model(torch.nn.Module):
        def forward(self, *arrays: Any) -> Any:
            return op(*arrays)

    first = {d: torch.export.Dim(f"length_{d}") for d in range(given[0].dim())}
    rest = [dict(enumerate([torch.export.Dim.AUTO] * t.dim())) for t in given[1:]]
    program = torch.export.export(Model(), tuple(given), dynamic_shapes=((first if name == "softmax" else {}, *rest),))
    assert any(str(node.target) == f"tested.{name}.default" for node in program.graph.nodes)
    longer = [torch.cat([t, 2 * t]) if name == "softmax" else t + 1 for t in given]
    torch.testing.assert_close(program.module()(*longer), op(*longer), rtol=0, atol=0)


@pytest.mark.parametrize("name", ["softmax", "attention", "layer_norm", "elementwise"])
def test_mapping_over_some_tensors_and_over_gradients(name: str) -> None:
    op, given = op_of(name), [t.detach() for t in drawn(name)]
    first = torch.randn(3, *given[0].shape, dtype=torch.float64)
    rest = given[1:]
    places = (0, *(None for _ in rest))
    want = torch.stack([op(x, *rest) for x in first])
    torch.testing.assert_close(torch.vmap(op, places)(first, *rest), want, rtol=1e-12, atol=1e-12)
    moved = torch.vmap(op, (first.dim() - 1, *places[1:]))(first.movedim(0, -1), *rest)
    torch.testing.assert_close(moved, want, rtol=1e-12, atol=1e-12)
    last = len(given) - 1

    def loss(*arrays: Any) -> Any:
        return op(*arrays).sin().sum()

    for at in {0, last}:
        slope = torch.func.grad(loss, at)
        each = torch.stack([slope(x, *rest) for x in first])
        torch.testing.assert_close(torch.vmap(slope, places)(first, *rest), each, rtol=1e-12, atol=1e-12)


def test_without_a_gradient_nothing_is_saved() -> None:
    op, given = op_of("softmax"), drawn("softmax")
    assert op(*given).requires_grad
    with torch.no_grad():
        assert not op(*given).requires_grad
    assert not op(*[t.detach() for t in given]).requires_grad


def test_narrow_types_and_whole_numbers() -> None:
    op = op_of("layer_norm")
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        given = drawn("layer_norm", dtype)
        found = op(*given)
        found.sum().backward()
        assert found.dtype == dtype and all(t.grad.dtype == dtype for t in given)
    labels = ra.parse("tensors x[i,j], t[i] integer; return y = sum[j](where(index[j] == t[i], x[i,j]**2, 0))")
    picked = ra.derive_incremental(labels).torch_op("tested::picked")
    x = torch.arange(6.0).reshape(2, 3).requires_grad_()
    picked(x, torch.tensor([2, 0])).sum().backward()
    assert x.grad.tolist() == [[0, 0, 4], [6, 0, 0]]


def test_numbers_are_of_the_tensors_type() -> None:
    scaled = ra.torch.compile(ra.parse("return y = sum[j](x[j]*w)"))
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        assert scaled(torch.ones(3, dtype=dtype), 2.5).dtype == dtype
        assert float(scaled(torch.ones(3, dtype=dtype), w=2)) == 6


def test_one_name_is_one_form() -> None:
    form = ra.derive_incremental(ra.parse(SPECS["softmax"][0]))
    assert form.torch_op("tested::softmax") is op_of("softmax")
    other = ra.derive_incremental(ra.parse("return y = sum[j](x[j])"))
    for name, said in (("tested::softmax", "another form"), ("softmax", "namespace"), ("a::b c", "namespace")):
        with pytest.raises(RedalgError, match=said):
            other.torch_op(name)
    with pytest.raises(RedalgError, match=r"it takes x\[j\]"):
        other.torch_op("tested::total")()


def test_specs_without_a_derivative_run_and_say_so() -> None:
    op = ra.torch.compile(ra.parse("return y = sum[j](cast(x[j], float16)*w[j])"))
    x = torch.ones(3)
    assert op(x, x) == 3
    with pytest.raises(RedalgError, match="derivative"):
        op(x.requires_grad_(), x)


def test_a_small_model_learns() -> None:
    """Attention, a norm and a loss, each from its spec, in a training loop."""
    attend = ra.torch.compile(ra.parse(SPECS["attention"][0]))
    norm = ra.torch.compile(ra.parse(SPECS["layer_norm"][0]))
    loss_of = ra.torch.compile(
        ra.parse(
            "tensors x[i,j], t[i] integer; m = max[j](x[i,j]); l = m + log(sum[j](exp(x[i,j] - m)));"
            "return y = mean[i](l - sum[j](where(index[j] == t[i], x[i,j], 0)))"
        )
    )
    torch.manual_seed(3)
    data, labels = torch.randn(12, 6), torch.arange(12) % 4
    weights = [torch.randn(6, 6) * 0.3 for _ in range(3)] + [torch.ones(6), torch.zeros(6), torch.randn(6, 4) * 0.3]
    for w in weights:
        w.requires_grad_()
    optimizer, losses = torch.optim.Adam(weights, 0.05), []
    for _ in range(60):
        q, k, v, gain, bias, head = weights
        loss = loss_of(norm(data + attend(data @ q, data @ k, data @ v), gain, bias) @ head, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.2 * losses[0]
    gc.collect()


def test_only_wanted_gradients_are_computed() -> None:
    op, arrays = op_of("layer_norm"), drawn("layer_norm")
    want = torch.autograd.grad(op(*arrays).square().sum(), arrays)
    for chosen in ([0], [1], [2], [0, 2], [1, 2]):
        given = [a.detach().requires_grad_(k in chosen) for k, a in enumerate(arrays)]
        leaves = [given[k] for k in chosen]
        for got, k in zip(torch.autograd.grad(op(*given).square().sum(), leaves), chosen, strict=True):
            torch.testing.assert_close(got, want[k])
        compiled = torch.compile(lambda *a: op(*a).square().sum(), fullgraph=True, backend="aot_eager")
        for got, k in zip(torch.autograd.grad(compiled(*given), leaves), chosen, strict=True):
            torch.testing.assert_close(got, want[k])
    held = [found for found in op._compiled.values() if isinstance(found, tuple)]
    ran = {tuple(form.spec.outputs) for _, plan in held for form, *_ in plan}
    assert {("grad_x",), ("grad_w",), ("grad_b",), ("grad_w", "grad_b")} <= ran


def test_the_largest_score_of_a_vocabulary_over_tokens() -> None:
    """SPLADE's head: rows of unequal lengths, most maxima at one token; twice the same bits."""
    spec = ra.parse(
        "tensors H[b,s,d], E[v,d], bias[v], n[b] integer;"
        "m = max[s](where(index[s] < n[b], sum[d](H[b,s,d]*E[v,d]), -oo)); return Y = log(1 + relu(m + bias[v]))"
    )
    op, n = ra.torch.compile(spec), torch.tensor([7, 3, 1, 2])
    torch.manual_seed(4)
    H, E, bias = (torch.randn(s, dtype=torch.float64) for s in ((4, 7, 4), (9, 4), (9,)))
    H[:, 0] *= 10
    leaves = [a.requires_grad_() for a in (H, E, bias)]
    scores = torch.einsum("bsd,vd->bsv", H, E)
    beyond = torch.arange(7)[None] >= n[:, None]
    whole = torch.log1p(torch.relu(scores.masked_fill(beyond[..., None], -torch.inf).amax(1) + bias))
    own, again, slope = op(*leaves, n), op(*leaves, n), torch.randn_like(whole)
    torch.testing.assert_close(own, whole, rtol=1e-13, atol=1e-13)
    found, twice = (torch.autograd.grad(y, leaves, slope) for y in (own, again))
    for got, same, want in zip(found, twice, torch.autograd.grad(whole, leaves, slope), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-11, atol=1e-12)
        assert torch.equal(got, same) and want.abs().sum() > 0
