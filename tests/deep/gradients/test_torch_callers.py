"""Who else calls operators of PyTorch: tracers, modules that are saved, loaders, other processes; what is refused."""

from __future__ import annotations

import copy
import io
import os
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.errors import RedalgError
from redalg.kernels.cpu.threads import threads
from tests.support.gloo_ranks import on_ranks

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore")

SOFTMAX = "m = max[j](x[i,j]); p = exp(x[i,j] - m); return y = p/sum[j](p)"
NORM = """
tensors x[i,j], w[j], b[j], eps; u = mean[j](x[i,j]);
return y = (x[i,j] - u)/sqrt(mean[j]((x[i,j] - u)**2) + eps)*w[j] + b[j]
"""
HEAD = """
tensors H[t,d], W[v,d], y[t] integer, ok[t] bool, s, w[t];
z = sum[d](H[t,d]*W[v,d]); l = logsumexp[v](z);
return loss = sum[t](where(ok[t], w[t]*(l - (1 - s)*sum[v](where(index[v] == y[t], z, 0))), 0))
"""


def softmax() -> Any:
    return ra.torch.compile(ra.parse(SOFTMAX))


class Norm(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.op = ra.torch.compile(ra.parse(NORM))
        self.weight, self.bias = (torch.nn.Parameter(f(width)) for f in (torch.ones, torch.zeros))

    def forward(self, x: Any) -> Any:
        return self.op(x, self.weight, b=self.bias, eps=1e-5)


class Called(torch.nn.Module):
    def __init__(self, op: Any) -> None:
        super().__init__()
        self.op = op

    def forward(self, *given: Any) -> Any:
        return self.op(*given)


class Tagged(torch.Tensor):
    """Tensors of a class that a user made, in a module of the user's."""


def model() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), Norm(8), torch.nn.Linear(8, 8), Norm(8))


def refused(call: Callable[[], Any], why: str) -> None:
    with pytest.raises(RedalgError, match=why) as caught:
        call()
    error = caught.value
    assert all((error.what, error.where, error.why, error.fix))


# --- compilers ---


def test_a_compiled_module_is_compiled_once_for_all_lengths() -> None:
    torch._dynamo.reset()
    graphs = []

    def backend(graph: Any, given: Any) -> Any:
        graphs.append(graph)
        return torch._dynamo.lookup_backend("aot_eager")(graph, given)

    norm = Norm(8)
    step = torch.compile(norm, fullgraph=True, backend=backend)
    for n in (3, 4, 5, 20):
        x = torch.randn(n, 8)
        torch.testing.assert_close(step(x), norm(x))
        step(x).square().sum().backward()
    assert len(graphs) == 2  # one for 3 rows, one for any number
    torch._dynamo.reset()
    graphs.clear()
    whole = torch.compile(lambda *a: norm.op(*a, 1e-5), fullgraph=True, backend=backend)
    for rows, width in ((3, 8), (4, 9), (7, 5)):
        x, w, b = torch.randn(rows, width), torch.randn(width, requires_grad=True), torch.randn(width)
        for a, axes in ((x, (0, 1)), (w, 0), (b, 0)):
            torch._dynamo.mark_dynamic(a, axes)
        torch.testing.assert_close(whole(x, w, b), torch.nn.functional.layer_norm(x, (width,), w, b))
    assert len(graphs) == 1


def test_operators_and_heads_are_made_inside_of_what_is_compiled() -> None:
    """What derives is not traced."""
    torch._dynamo.reset()
    head = "z = sum[d](H[t,d]*W[v,d]); return y = logsumexp[v](z*2)"

    def step(x: Any) -> Any:
        op = ra.torch.compile(ra.parse("return y = sum[j](exp(x[i,j])*x[i,j]*5)"))
        return op(x) * 2 + ra.torch.head(ra.parse(head))(x, x)

    x = torch.randn(3, 4)
    want = (10 * x.exp() * x).sum(1) + (2 * x @ x.T).logsumexp(1)
    for _ in range(2):
        torch.testing.assert_close(torch.compile(step, backend="aot_eager")(x), want)


def test_numbers_and_arrays_in_compiled_and_symbolically_traced_heads() -> None:
    head = ra.torch.head(ra.parse(HEAD))
    H, W, w = (torch.rand(s, dtype=torch.float64, requires_grad=True) for s in ((3, 4), (5, 4), (3,)))
    y, ok = torch.tensor([0, 1, 4]), torch.tensor([True, False, True])
    want = head(H, W, y, ok, torch.tensor(0.1, dtype=torch.float64), w)

    def step(rows: Any, columns: Any, weights: Any) -> Any:
        return head(rows, columns, y=y, ok=ok, s=0.1, w=weights)

    torch._dynamo.reset()
    graph = torch.fx.symbolic_trace(step)
    for f in (torch.compile(step, fullgraph=True, backend="aot_eager"), graph, copy.deepcopy(graph)):
        found = f(H, W, w)
        torch.testing.assert_close(found, want, rtol=1e-13, atol=0)
        pairs = zip(*(torch.autograd.grad(v, (H, W, w), retain_graph=True) for v in (found, want)), strict=True)
        for one, other in pairs:
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-13)
    refused(lambda: torch.jit.trace(step, (H, W, w)), "TorchScript")


@pytest.mark.parametrize("gradients", ["now", "later"])
def test_compiled_heads_of_one_tensor_twice(gradients: str) -> None:
    """PyTorch compiles no function of autograd with a tensor given twice, and takes the context of one of two tensors
    for a tensor where no gradient is wanted."""
    head = ra.torch.head(ra.parse("return y = sum[t](logsumexp[v](sum[d](H[t,d]*W[v,d])))"), gradients=gradients)
    for wanted in (True, False):
        x, y = (torch.rand(3, 4, dtype=torch.float64, requires_grad=wanted) for _ in range(2))
        for given in ((x, x), (x, y)):
            torch._dynamo.reset()
            found = torch.compile(head, fullgraph=True, backend="aot_eager")(*given)
            want = (given[0] @ given[1].mT).logsumexp(1).sum()
            torch.testing.assert_close(found, want)
            if wanted:
                torch.testing.assert_close(torch.autograd.grad(found, x), torch.autograd.grad(want, x))


def test_graphs_of_what_is_not_there_are_refused() -> None:
    several = ra.torch.compile(ra.parse("return a = sum[j](x[j]**2), b = max[j](x[j]), c = argmax[j](x[j])"))
    graph = torch.fx.symbolic_trace(lambda x: several(x)[1] + several(x=x)[0])
    x = torch.tensor([1.0, 3.0])
    assert float(graph(x)) == 13
    windows = ra.torch.compile(ra.parse("return y = max[r](x[2*i+r:3-1])"))
    torch.testing.assert_close(torch.fx.symbolic_trace(lambda x: windows(x))(x), windows(x))
    code = torch.fx.symbolic_trace(lambda x: several(x)[0])
    for node in code.graph.nodes:
        if node.op == "call_function" and node.args[0] == several.name:
            node.args = "mylib::never_made", *node.args[1:]
    code.recompile()
    refused(lambda: code(x), "no spec")


def test_windows_are_compiled_exported_and_mapped_over() -> None:
    """A product of windows broke the graph, and zeros around an array were written in place, which no map takes."""
    op = ra.torch.compile(ra.parse("return y = sum[r](x[b,2*i+r:3-1]*w[r])"))
    x, w = (torch.rand(s, dtype=torch.float64, requires_grad=True) for s in ((2, 9), (3,)))

    def plain(x: Any, w: Any) -> Any:
        return torch.nn.functional.conv1d(x[:, None], w[None, None], stride=2, padding=1)[:, 0]

    for dynamic in (False, True):
        torch._dynamo.reset()
        step = torch.compile(op, fullgraph=True, backend="aot_eager", dynamic=dynamic)
        for given in (x, torch.rand(3, 12, dtype=torch.float64)):
            torch.testing.assert_close(step(given, w), plain(given, w))
        slopes = [torch.autograd.grad(f(x, w).sin().sum(), (x, w)) for f in (step, plain)]
        torch.testing.assert_close(*slopes)
    program = torch.export.export(Called(op), (x.detach(), w.detach()))
    torch.testing.assert_close(program.module()(x, w), plain(x, w))
    own = x.detach().as_subclass(Tagged)
    torch.testing.assert_close(torch.Tensor(op(own, w)), plain(x, w))
    many = torch.stack([x, 2 * x]).detach()
    torch.testing.assert_close(torch.vmap(op, (0, None))(many, w), torch.stack([plain(x, w), plain(2 * x, w)]))
    slope, want = (torch.func.grad(lambda x, f=f: f(x, w.detach()).sin().sum()) for f in (op, plain))
    torch.testing.assert_close(torch.vmap(slope)(many), torch.stack([want(a) for a in many]))


def test_derivatives_of_complex_numbers_are_refused() -> None:
    """They were dropped: there was no gradient where PyTorch has one."""
    op = ra.torch.compile(ra.parse("tensors z[j] complex, x[j]; return y = sum[j](z[j]*x[j]), u = sum[j](x[j]**2)"))
    z, x = torch.randn(3, dtype=torch.complex128), torch.randn(3, dtype=torch.float64)
    torch.testing.assert_close(op(z, x), ((z * x).sum(), (x**2).sum()))
    refused(lambda: op(z.clone().requires_grad_(), x), "by or of z")
    refused(lambda: op(x.clone().requires_grad_(), x), "by or of z")
    refused(lambda: op(z, x.clone().requires_grad_()), "by or of y")
    alone = ra.torch.compile(ra.parse("tensors z[j] complex; return y = sum[j](z[j])"))
    refused(lambda: alone(z.clone().requires_grad_()), "by or of z")
    for mapped in (lambda f: f, lambda f: lambda a: torch.vmap(f)(torch.stack([a, a]))):
        for taken in (torch.func.grad, lambda f: lambda a: torch.func.jvp(f, (a,), (a,))[1]):
            of_z, of_x = (mapped(taken(f)) for f in (lambda z: op(z, x)[0].abs(), lambda x: op(z, x)[0].abs()))
            refused(partial(of_z, z), "by or of z")
            refused(partial(of_x, x), "by or of y")
    torch._dynamo.reset()
    refused(lambda: torch.compile(lambda z: op(z, x), backend="aot_eager")(z.clone().requires_grad_()), "by or of z")
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        own, z, x = op.form.jax(), *(jax.numpy.asarray(a.numpy()) for a in (z, x))
        for at, name in ((0, "z"), (1, "y")):
            refused(partial(jax.grad(lambda *a: abs(own(*a)[0]), at), z, x), f"by or of {name}")
        refused(lambda: jax.jvp(lambda z: own(z, x), (z,), (z,)), "by or of z")


# --- what heads are given ---


def test_heads_take_numbers_and_arrays_in_all_digits() -> None:
    """They were rounded to float32 beside float64; masks of NumPy and lists were refused."""
    head = ra.torch.head(ra.parse(HEAD))
    H, W, w = (torch.rand(s, dtype=torch.float64) for s in ((3, 4), (5, 4), (3,)))
    y, ok, z = torch.tensor([0, 1, 4]), torch.tensor([True, False, True]), H @ W.T
    want = (w * (z.logsumexp(1) - 0.9 * z.gather(1, y[:, None])[:, 0]))[ok].sum()
    exact = torch.tensor(0.1, dtype=torch.float64)
    for given in (
        (y, ok, 0.1, w),
        (y, ok, exact, w.numpy()),
        (y.numpy(), ok.numpy(), np.float64(0.1), w),
        (y.tolist(), ok.tolist(), 0.1, w.tolist()),
    ):
        torch.testing.assert_close(head(H, W, *given), want, rtol=1e-14, atol=0)
    narrow = head(H.float(), W.float(), y, ok, 0.1, w.float())
    assert narrow.dtype == torch.float32
    torch.testing.assert_close(narrow, want.float())
    refused(lambda: head(H, W, y, ok, "much", w), "given as str|invalid data type")
    refused(lambda: head(H.to_sparse(), W, y, ok, 0.1, w), "dense")


def test_threads_that_ask_for_one_head_are_given_one() -> None:
    spec, found = ra.parse("return y = logsumexp[v](7*sum[d](H[t,d]*W[v,d]))"), []
    start = threading.Barrier(4)

    def ask() -> None:
        start.wait()
        try:
            found.append(ra.torch.head(spec))
        except BaseException as error:
            found.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(found) == 4 and found == [ra.torch.head(spec)] * 4


# --- kinds of tensors ---


def test_kinds_of_tensors_that_are_refused_say_why() -> None:
    op, head = softmax(), ra.torch.head(ra.parse("return y = logsumexp[v](sum[d](H[t,d]*W[v,d]))"))
    rows = [torch.randn(2, 3), torch.randn(4, 3)]
    x = torch.randn(2, 3)
    for layout in (torch.strided, torch.jagged):
        for wanted in (False, True):
            nested = torch.nested.nested_tensor(rows, layout=layout, requires_grad=wanted)
            refused(lambda nested=nested: op(nested), "every part has its own")
            refused(lambda nested=nested: head(nested, x), "every part has its own")
    for odd in (x.to_sparse(), x.to_sparse_csr(), x.to_mkldnn()):
        refused(lambda odd=odd: op(odd), "dense")
        refused(lambda odd=odd: head(odd, x), "dense")
    labels = ra.torch.compile(
        ra.parse("tensors x[i], t[i] integer, ok[i] bool; return y = sum[i](where(ok[i], x[i]*t[i], 0))")
    )
    good = torch.ones(2), torch.ones(2, dtype=torch.int64), torch.ones(2, dtype=torch.bool)
    for k, dtype in ((0, torch.complex64), (1, torch.float32), (2, torch.int64)):
        for device in ("cpu", "meta"):
            given = [a.to(dtype if j == k else a.dtype).to(device) for j, a in enumerate(good)]
            refused(lambda given=given: labels(*given), "declared|real")
    assert labels(*(a.to("meta") for a in good)).dtype == labels(*good).dtype == torch.float64


def test_zeros_without_memory_are_zeros() -> None:
    op, zero = softmax(), torch._efficientzerotensor((2, 4))
    assert (op(zero) == 0.25).all()
    x = torch.randn(2, 4, requires_grad=True)
    assert not torch.autograd.grad(op(x), x, zero)[0].any()


def test_the_operator_alone_refuses_what_has_no_derivative() -> None:
    """By its name it gave no gradient, with a warning."""
    op = ra.torch.compile(ra.parse("return y = sum[j](cast(x[j], float16)*w[j])"))
    x = torch.ones(3, requires_grad=True)
    (y,) = getattr(torch.ops.redalg, op.name.partition("::")[2])(x, x)
    with pytest.raises(RedalgError, match="rounding"):
        y.backward()


def test_a_default_device_is_that_of_new_tensors_alone() -> None:
    op, norm = softmax(), Norm(4)
    head = ra.torch.head(ra.parse("return y = sum[t](logsumexp[v](sum[d](H[t,d]*W[v,d])))"), gradients="now")
    root = ra.torch.compile(ra.parse("return y = sqrt(sum[j](x[j]**2)/size[j])"))
    x, far = torch.randn(3, 4, requires_grad=True), torch.full((4,), 1e25, requires_grad=True)
    with torch.device("meta"):
        (slope,) = torch.autograd.grad(norm(x).square().sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(slope.sum(), x)
        (of_head,) = torch.autograd.grad(head(x, x), x)
        (again,) = torch.autograd.grad(root(far), far)
        curved = torch.func.hessian(lambda x: op(x).square().sum())(x.detach())
        assert Norm(4)(torch.randn(2, 4)).device.type == "meta"
    assert all(a.device.type == "cpu" and torch.isfinite(a).all() for a in (slope, second, of_head, curved))
    torch.testing.assert_close(again, torch.full((4,), 0.25))


# --- modules ---


def test_modules_are_saved_hooked_and_scaled() -> None:
    net, buffer = model(), io.BytesIO()
    torch.save(net, buffer)
    buffer.seek(0)
    loaded, x = torch.load(buffer, weights_only=False), torch.randn(3, 4, requires_grad=True)
    torch.testing.assert_close(loaded(x), net(x), rtol=0, atol=0)
    seen: list[str] = []
    norm = net[1]
    norm.register_full_backward_hook(lambda *_: seen.append("module"))
    norm.register_full_backward_pre_hook(lambda *_: seen.append("before"))
    norm.weight.register_post_accumulate_grad_hook(lambda p: seen.append("parameter"))
    torch.use_deterministic_algorithms(True)
    try:
        net(x).square().sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)
    assert sorted(seen) == ["before", "module", "parameter"]
    optimizer, scaler = torch.optim.SGD(net.parameters(), 0.1), torch.amp.GradScaler("cpu")
    before = norm.weight.detach().clone()
    with torch.autocast("cpu", torch.float16):
        loss = net(x).square().mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert torch.isfinite(norm.weight).all() and (norm.weight != before).any()


def test_parameters_keep_memory_that_can_be_freed() -> None:
    """What NumPy shares memory with is never resized, and what shards parameters frees them so."""
    norm, x = Norm(4), torch.randn(3, 4)
    for call in (lambda: norm(x).sum().backward(), lambda: torch.no_grad()(norm)(x), lambda: torch.vmap(norm)(x[None])):
        for p in norm.parameters():
            p.requires_grad_(True)
        call()
        norm.bias.requires_grad_(False)
        call()
    for p in norm.parameters():
        assert p.untyped_storage().resizable()
    w = torch.nn.Parameter(torch._neg_view(torch.ones(4)))
    torch.testing.assert_close(norm.op(x, w, norm.bias, 1e-5), norm.op(x, -torch.ones(4), norm.bias, 1e-5))


class Rows(torch.utils.data.Dataset):
    def __init__(self, op: Any) -> None:
        self.op = op

    def __len__(self) -> int:
        return 4

    def __getitem__(self, k: int) -> Any:
        return self.op(torch.arange(64 * 512.0).reshape(64, 512) + k)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_loaders_call_operators_in_their_processes(start: str) -> None:
    op = softmax()
    op(torch.randn(2000, 512))  # the threads of this process are none of a forked one
    loader = torch.utils.data.DataLoader(Rows(op), 2, num_workers=1, multiprocessing_context=start, timeout=100)
    batches = list(loader)
    assert len(batches) == 2
    for batch in batches:
        torch.testing.assert_close(batch.sum(-1), torch.ones(2, 64))


class Threads(Rows):
    def __getitem__(self, k: int) -> Any:
        return threads()


def test_loaders_are_one_thread_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """As PyTorch's functions are there: a process for every processor, each with as many threads, would be slow."""
    monkeypatch.delenv("REDALG_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2}, raising=False)
    assert threads() == 3
    loader = torch.utils.data.DataLoader(Threads(None), 4, num_workers=1, multiprocessing_context="fork", timeout=100)
    assert next(iter(loader)).tolist() == [1] * 4
    monkeypatch.setenv("REDALG_THREADS", "2")
    assert next(iter(loader)).tolist() == [2] * 4


def sharded(rank: int, ranks: int) -> list[Any]:
    """Gradients of the same step by every way to spread it."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    x = torch.arange(24.0).reshape(6, 4).sin()[rank::ranks]
    plain, whole = model(), model()
    spread = torch.nn.parallel.DistributedDataParallel(plain)
    mesh = init_device_mesh("cpu", (ranks,))
    for layer in (*whole, whole):
        fully_shard(layer, mesh=mesh)
    found = []
    for net in (spread, whole):
        for _ in range(2):
            net.zero_grad()
            net(x).square().mean().backward()
        grads = [p.grad for p in net.parameters()]
        found.append([(g.full_tensor() if hasattr(g, "full_tensor") else g).numpy() for g in grads])
    return found


@pytest.mark.skipif(not torch.distributed.is_available(), reason="PyTorch without torch.distributed")
def test_parameters_are_replicated_and_sharded() -> None:
    alone = model()
    alone(torch.arange(24.0).reshape(6, 4).sin()).square().mean().backward()
    for found in on_ranks(2, sharded):
        assert isinstance(found, list), found
        for grads in found:
            for p, grad in zip(alone.parameters(), grads, strict=True):
                np.testing.assert_allclose(grad, p.grad.numpy(), 1e-3, 1e-6)
