"""What PyTorch's modes do to operators of forms: autocast, checkpoints that choose by name, no_grad."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import numpy as np
import pytest

import redalg as ra

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore")

ATTENTION = "s = sum[d](q[i,d]*k[j,d]); m = max[j](s); p = exp(s - m); return o = sum[j](p*v[j,e])/sum[j](p)"
SOFTMAX = "m = max[j](x[i,j]); p = exp(x[i,j] - m); return y = p/sum[j](p)"
HEAD = (
    "tensors h[i,d], w[v,d], t[i] integer; s = sum[d](h[i,d]*w[v,d]); m = max[v](s); l = m + log(sum[v](exp(s - m)));"
    "return loss = l - sum[v](where(index[v] == t[i], s, 0))"
)
BFLOAT16 = functools.partial(torch.autocast, "cpu", torch.bfloat16)


def op_of(text: str, name: str) -> Any:
    return ra.derive_incremental(ra.parse(text)).torch_op(f"modes::{name}")


@pytest.mark.parametrize("given", ["float32", "bfloat16", "float16"])
def test_autocast_takes_products_of_matrices_narrow_and_the_rest_wide(given: str) -> None:
    """As PyTorch does on GPUs; on CPUs it takes fewer operators to float32."""
    dtype = getattr(torch, given)
    q, x = torch.randn(3, 4).to(dtype), torch.randn(2, 5).to(dtype)
    attend, softmax, scaled = op_of(ATTENTION, "o"), op_of(SOFTMAX, "y"), op_of("return y = tanh(x[i,j])*2", "z")
    with BFLOAT16():
        assert attend(q, q, q).dtype == (q @ q.T).dtype == torch.bfloat16
        assert softmax(x).dtype == torch.float32
        assert scaled(x).dtype == torch.tanh(x).dtype == dtype
        np.testing.assert_allclose(softmax(x), torch.softmax(x.float(), 1), 1e-6, 1e-7)
        want = torch.softmax(q.bfloat16().double() @ q.bfloat16().double().T, 1) @ q.bfloat16().double()
        np.testing.assert_allclose(attend(q, q, q).double(), want, 0.02, 0.02)
    assert attend(q, q, q).dtype == softmax(x).dtype == dtype


def test_autocast_leaves_float64_and_other_devices_alone() -> None:
    attend, softmax = op_of(ATTENTION, "o"), op_of(SOFTMAX, "y")
    q = torch.randn(3, 4, dtype=torch.float64)
    with BFLOAT16():
        assert attend(q, q, q).dtype == softmax(q).dtype == torch.float64
        with torch.autocast("cpu", enabled=False):
            assert attend(q.float(), q.float(), q.float()).dtype == torch.float32
    with torch.autocast("cpu", torch.float16):
        assert attend(q.float(), q.float(), q.float()).dtype == torch.float16


def test_the_loss_of_a_linear_head_stays_wide_under_autocast() -> None:
    """As cross_entropy(linear(h, w), t) would be, but for rounded logits; gradients are of the weights' type."""
    head = op_of(HEAD, "head")
    h, w = torch.randn(4, 6).requires_grad_(), torch.randn(9, 6).requires_grad_()
    t = torch.tensor([0, 3, 8, 3])
    with BFLOAT16():
        loss = head(h, w, t)
        assert loss.dtype == torch.float32
    loss.sum().backward()
    assert h.grad.dtype == w.grad.dtype == torch.float32
    narrow = [a.detach().bfloat16().double().requires_grad_() for a in (h, w)]
    want = torch.nn.functional.cross_entropy(narrow[0] @ narrow[1].T, t, reduction="none")
    torch.testing.assert_close(loss.double(), want, rtol=1e-5, atol=1e-5)
    want.sum().backward()
    for got, exact in ((h.grad, narrow[0].grad), (w.grad, narrow[1].grad)):
        torch.testing.assert_close(got.double(), exact, rtol=2e-2, atol=2e-2)


def test_autocast_in_a_compiled_function() -> None:
    attend, softmax = op_of(ATTENTION, "o"), op_of(SOFTMAX, "y")
    q = torch.randn(3, 4).requires_grad_()

    def both(q: Any) -> Any:
        with BFLOAT16():
            return attend(q, q, q), softmax(q)

    torch._dynamo.reset()
    found, want = torch.compile(both, fullgraph=True, backend="aot_eager")(q), both(q)
    assert [f.dtype for f in found] == [torch.bfloat16, torch.float32]
    for got, value in zip(found, want, strict=True):
        torch.testing.assert_close(got, value)
    grads = [torch.autograd.grad(sum(part.float().sin().sum() for part in parts), q)[0] for parts in (found, want)]
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("keep", [True, False])
def test_checkpoints_keep_by_name_what_a_policy_says(keep: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The forward operator of training is ``ns::name_saved``: kept, it does not run again in the backward pass."""
    from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

    attend, runs = op_of(ATTENTION, "o"), []
    original = attend._results

    def counted(form: Any, arrays: Any) -> Any:
        runs.append(form.spec)
        return original(form, arrays)

    monkeypatch.setattr(attend, "_results", counted)

    def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        named = op == torch.ops.modes.o_saved.default
        return CheckpointPolicy.MUST_SAVE if keep and named else CheckpointPolicy.PREFER_RECOMPUTE

    def block(q: Any) -> Any:
        return attend(q.sin(), q.cos(), q.tanh()).exp()

    q = torch.randn(3, 4, dtype=torch.float64).requires_grad_()
    (want,) = torch.autograd.grad(block(q).sum(), q)
    forward = attend.vjp.forward
    assert runs.count(forward) == 1
    contexts = functools.partial(create_selective_checkpoint_contexts, policy)
    found = checkpoint(block, q, use_reentrant=False, context_fn=contexts)
    runs.clear()
    (got,) = torch.autograd.grad(found.sum(), q)
    assert runs.count(forward) == (0 if keep else 1)
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])
def test_nothing_is_saved_where_no_gradient_is_wanted(mode: str) -> None:
    softmax, kept = op_of(SOFTMAX, "y"), []
    weight = torch.nn.Parameter(torch.randn(2, 3))
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        with getattr(torch, mode)():
            found = softmax(weight)
        assert not found.requires_grad and found.grad_fn is None and not kept
        with torch.no_grad(), torch.enable_grad():
            assert softmax(weight).requires_grad
        assert kept
    torch.testing.assert_close(found, torch.softmax(weight.detach(), 1))
    with contextlib.suppress(RuntimeError):  # tensors of inference mode have no gradient later
        assert not softmax(found).requires_grad


class _Seen(torch.utils._python_dispatch.TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def test_whoever_looks_on_sees_the_operator() -> None:
    """Modes, profilers, tracers, fake tensors, subclasses and transforms: only a call that nobody sees is shortened."""
    softmax, x = op_of(SOFTMAX, "y"), torch.randn(2, 3)
    softmax(x)
    with _Seen() as seen:
        softmax(x)
        softmax(x.clone().requires_grad_()).sum().backward()
    assert [n for n in seen.names if "modes" in n] == [f"modes.y{s}.default" for s in ("", "_saved", "_backward")]
    with torch.profiler.profile() as profiled:
        softmax(x)
    assert "modes::y" in {e.name for e in profiled.events()}
    with torch._subclasses.FakeTensorMode():
        assert type(softmax(torch.empty(5, 7))).__name__ == "FakeTensor"
    assert softmax(torch.empty(5, 7, device="meta")).shape == (5, 7)
    graph = torch.fx.experimental.proxy_tensor.make_fx(softmax)(x).graph
    assert any(str(node.target) == "modes.y.default" for node in graph.nodes)
    early = torch.fx.experimental.proxy_tensor.make_fx(softmax, pre_dispatch=True)(x).graph
    assert any(str(node.target) == "modes.y.default" for node in early.nodes)
    traced = torch.jit.trace(softmax.__call__, x, check_trace=False)
    torch.testing.assert_close(traced(2 * x), torch.softmax(2 * x, 1))  # no constant
    torch.testing.assert_close(torch.vmap(softmax)(x.expand(4, 2, 3)), torch.softmax(x, 1).expand(4, 2, 3))
    functional = torch.func.functionalize(lambda x: softmax(x.clone().mul_(2)))(x)
    torch.testing.assert_close(functional, torch.softmax(2 * x, 1))
    called = []

    class Watched(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            called.append(str(func))
            return func(*args, **(kwargs or {}))

    with Watched():
        softmax(x)
    assert any("modes.y" in name for name in called)


def test_forward_mode_is_not_dropped() -> None:
    softmax = op_of(SOFTMAX, "y")
    x, t = torch.randn(2, 3), torch.rand(2, 3)
    with torch.autograd.forward_ad.dual_level():
        found = torch.autograd.forward_ad.unpack_dual(softmax(torch.autograd.forward_ad.make_dual(x, t)))
        torch.testing.assert_close(softmax(torch.zeros(2, 2)), torch.full((2, 2), 0.5))
    want = torch.func.jvp(lambda x: torch.softmax(x, 1), (x,), (t,))
    torch.testing.assert_close((found.primal, found.tangent), want)


def test_shortened_calls_are_the_operators_own() -> None:
    """Bit for bit, gradients too; what a view, a parameter, another layout or an expanded tensor holds, is read."""
    attend = op_of(ATTENTION, "o")
    base = torch.randn(4, 6, dtype=torch.float64)
    for q in (base, base.mT.contiguous().mT, base[::2], base[:1].expand(4, 6), torch.nn.Parameter(base)):
        direct, seen = attend(q, base, base), attend.plain(q, base, base)[0]
        assert torch.equal(direct, seen) and direct.is_contiguous()
        leaves = [a.detach().clone().requires_grad_() for a in (q, base, base)]
        (attend(*leaves) ** 2).sum().backward()
        with _Seen():
            others = [a.detach().clone().requires_grad_() for a in (q, base, base)]
            (attend(*others) ** 2).sum().backward()
        assert all(torch.equal(a.grad, b.grad) for a, b in zip(leaves, others, strict=True))


BATCHED = {
    "softmax": SOFTMAX,
    "attention": ATTENTION,
    "neighbours": "tensors s[i,j], v[j,e], ok[i,j] bool; z = where(ok[i,j], s[i,j], -oo); m = max[j](z);"
    "p = exp(z - m); empty y = 0; return y = sum[j](p*v[j,e])/sum[j](p)",
    "two outputs": "tensors x[i,j], k[i] integer;"
    "return a = sum[j](x[i,j]**3), b = max[j](x[i,j])*k[i], c = argmax[j](x[i,j])",
    "a number": "tensors x[j], w; return y = mean[j](log(1 + exp(w*x[j])))",
}


@pytest.mark.parametrize("length", [1, 3])
@pytest.mark.parametrize("name", BATCHED)
def test_batched_cotangents_are_those_one_by_one(name: str, length: int) -> None:
    """Jacobians and Hessians of `torch.autograd.functional`, whose vmap is another one than that of `torch.func`."""
    spec = ra.parse(BATCHED[name])
    op, rng = op_of(BATCHED[name], f"batched{name.replace(' ', '')}"), torch.Generator().manual_seed(len(name))
    sizes = {"i": 2, "j": 3, "d": 2, "e": 2, "v": 3}
    given: list[Any] = []
    for d in spec.tensors:
        shape = [sizes[a] for a in d.axes]
        x = torch.rand(shape, generator=rng, dtype=torch.float64)
        given.append(x > 0.7 if "bool" in d.domain else (x * 5).long() if "integer" in d.domain else x.requires_grad_())
    leaves = [a for a in given if a.is_floating_point()]
    found = op(*given)
    outputs = [o for o in (found if isinstance(found, tuple) else (found,)) if o.requires_grad]
    cotangents = [torch.rand(length, *o.shape, generator=rng, dtype=torch.float64) for o in outputs]
    options = {"retain_graph": True, "create_graph": True, "allow_unused": True}
    batched = torch.autograd.grad(outputs, leaves, cotangents, is_grads_batched=True, **options)
    for k in range(length):
        alone = torch.autograd.grad(outputs, leaves, [c[k] for c in cotangents], **options)
        for many, one in zip(batched, alone, strict=True):
            torch.testing.assert_close(many[k], one, rtol=1e-12, atol=1e-14)
    assert all(len(many) == length for many in batched)

    def loss(*own: Any) -> Any:
        pairs = iter(own)
        made = op(*(next(pairs) if a.is_floating_point() else a for a in given))
        return sum((o**2).sum() for o in (made if isinstance(made, tuple) else (made,)) if o.is_floating_point())

    fast, slow = (torch.autograd.functional.hessian(loss, tuple(leaves), vectorize=v) for v in (True, False))
    for rows in zip(fast, slow, strict=True):
        for one, other in zip(*rows, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_batched_cotangents_nest() -> None:
    op, x = op_of(SOFTMAX, "y"), torch.rand(2, 3, dtype=torch.float64)

    def jacobian(rows: Any, vectorize: bool) -> Any:
        def inner(a: Any) -> Any:
            return torch.autograd.functional.jacobian(op, a, create_graph=True, vectorize=vectorize)

        return torch.autograd.functional.jacobian(inner, rows, vectorize=vectorize)

    torch.testing.assert_close(jacobian(x, True), jacobian(x, False), rtol=1e-12, atol=1e-14)
    assert torch.autograd.gradgradcheck(op, (x.requires_grad_(),), check_batched_grad=True)
