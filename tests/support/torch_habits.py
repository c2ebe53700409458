"""What users of PyTorch do with any function, as tests of one operator beside the same in plain PyTorch.

Each habit is a function of a `Case`, an operator with tensors for it; `HABITS` names them.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import importlib.util
import io
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import redalg as ra
from redalg.errors import RedalgError
from tests.support.torch_operators import OPERATORS, Operator

torch: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") else None


@dataclass(frozen=True)
class Case:
    """An operator, the same in plain PyTorch, and tensors that both take."""

    name: str
    row: Operator
    op: Any

    @property
    def plain(self) -> Callable[..., Any]:
        return self.row.plain

    def drawn(self, dtype: Any = None, seed: int = 5) -> list[Any]:
        """Floats require a gradient; labels and masks are as they are."""
        made = self.row.drawn(torch.Generator().manual_seed(seed))
        return [a.to(dtype or a.dtype).requires_grad_() if a.is_floating_point() else a for a in made]

    def fixed(self, dtype: Any = None, seed: int = 5) -> list[Any]:
        return [a.detach() for a in self.drawn(dtype, seed)]


@functools.cache
def case(name: str) -> Case:
    row = OPERATORS[name]
    return Case(name, row, ra.torch.compile(row.spec, axis=row.axis, assume=row.assume))


def parts(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def smooth(result: Any) -> tuple[Any, ...]:
    return tuple(p for p in parts(result) if p.is_floating_point())


def leaves(given: list[Any]) -> list[Any]:
    return [a for a in given if a.is_floating_point()]


def wave(a: Any) -> Any:
    return torch.cos(torch.arange(a.numel(), dtype=a.dtype)).reshape(a.shape)


def total(result: Any) -> Any:
    return sum((p * wave(p)).sum() for p in smooth(result))


def slopes(result: Any, wanted: list[Any], create_graph: bool = False) -> list[Any]:
    found = torch.autograd.grad(total(result), wanted, allow_unused=True, create_graph=create_graph)
    return [torch.zeros_like(a) if f is None else f for a, f in zip(wanted, found, strict=True)]


def close(found: Any, wanted: Any, rtol: float = 1e-9, atol: float = 1e-11) -> None:
    for got, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, want, rtol=rtol, atol=atol)


def of_floats(function: Callable[..., Any], given: list[Any]) -> Callable[..., Any]:
    """The results that are reals as a function of the tensors that are."""

    def made(*some: Any) -> tuple[Any, ...]:
        own = iter(some)
        return smooth(function(*(next(own) if a.is_floating_point() else a for a in given)))

    return made


def both(case: Case, given: list[Any], rtol: float = 1e-9) -> None:
    """Values and gradients, of the tensors as they are given, beside plain PyTorch."""
    own, plain = case.op(*given), case.plain(*given)
    close(parts(own), parts(plain), rtol)
    wanted = [a for a in given if a.requires_grad]
    if wanted:
        close(slopes(own, wanted), slopes(plain, wanted), rtol)


# --- what PyTorch checks itself ---------------------------------------------------------------------------------------


def pytorchs_check_of_operators(case: Case) -> None:
    for op in (case.op.plain, case.op.with_saved):
        torch.library.opcheck(op, tuple(case.drawn()))


def jumping(case: Case, given: list[Any]) -> list[Any]:
    """Tensors that are compared with each other and are equal somewhere are no place for differences: constants."""
    return [a.detach() if case.name == "pairwise_ranking" and k > 1 else a for k, a in enumerate(given)]


def first_derivatives(case: Case) -> None:
    if case.row.assume:
        return  # the derivative is another function's
    given = jumping(case, case.drawn())
    options = {"check_forward_ad": True, "check_batched_grad": True, "fast_mode": True}
    assert torch.autograd.gradcheck(of_floats(case.op, given), leaves(given), **options)


def second_derivatives(case: Case) -> None:
    if case.row.assume:
        return
    given = jumping(case, case.drawn())
    assert torch.autograd.gradgradcheck(of_floats(case.op, given), leaves(given), fast_mode=True)


# --- compilers --------------------------------------------------------------------------------------------------------


def compiled(case: Case, dynamic: bool = False) -> None:
    torch._dynamo.reset()
    given = case.drawn()

    def loss(*arrays: Any) -> Any:
        return total(case.op(*arrays)).sin()

    step = torch.compile(loss, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    own, want = (torch.autograd.grad(f(*given), leaves(given), allow_unused=True) for f in (step, loss))
    close([o for o in own if o is not None], [w for w in want if w is not None], 1e-12)
    with torch.no_grad():
        close([step(*given)], [loss(*given)], 1e-12)


def compiled_for_any_lengths(case: Case) -> None:
    compiled(case, True)


def exported(case: Case) -> None:
    op, given = case.op, case.fixed()

    class Model(torch.nn.Module):
        def forward(self, *arrays: Any) -> Any:
            return op(*arrays)

    program = torch.export.export(Model(), tuple(given))
    assert any(str(n.target) == f"{op.name.replace('::', '.')}.default" for n in program.graph.nodes)
    other = case.fixed(seed=6)
    close(parts(program.module()(*other)), parts(op(*other)), 0, 0)


def traced(case: Case) -> None:
    given, other = case.fixed(), case.fixed(seed=6)
    graph = torch.fx.experimental.proxy_tensor.make_fx(case.op)(*given)
    close(parts(graph(*other)), parts(case.op(*other)), 0, 0)
    functional = torch.func.functionalize(lambda *arrays: case.op(*arrays))
    close(parts(functional(*given)), parts(case.op(*given)), 0, 0)


def compiled_by_name(case: Case) -> None:
    """Tensors by name, and numbers that are no tensors, inside of what is compiled."""
    torch._dynamo.reset()
    given, names = case.fixed(), [d.name for d in case.op.tensors]
    numbers = [a.item() if a.is_floating_point() and not a.dim() else a for a in given]
    if not any(isinstance(a, torch.Tensor) for a in numbers):
        numbers = given

    def step(arrays: list[Any]) -> Any:
        return parts(case.op(arrays[0], **dict(zip(names[1:], arrays[1:], strict=True))))

    close(torch.compile(step, fullgraph=True, backend="aot_eager")(numbers), parts(case.op(*given)), 1e-12)


def transformed_where_compiling_stops(case: Case) -> None:
    """PyTorch compiles no `torch.func.grad` of an operator: it runs as it is, and nothing below it is compiled."""
    torch._dynamo.reset()
    given = case.fixed()
    many = [torch.stack(pair) for pair in zip(given, case.fixed(seed=6), strict=True)]
    places = tuple(k for k, a in enumerate(given) if a.is_floating_point())
    slope = torch.func.grad(lambda *arrays: total(case.op(*arrays)), places)
    close(torch.compile(slope, backend="aot_eager")(*given), slope(*given), 1e-12, 1e-13)
    mapped = torch.vmap(slope)
    close(torch.compile(lambda *arrays: mapped(*arrays), backend="aot_eager")(*many), mapped(*many), 1e-12, 1e-13)


def in_a_graph_of_fx(case: Case) -> None:
    """What `torch.fx.symbolic_trace` hands over is no tensor; the graph is saved, and runs as a call does."""
    given, other = case.fixed(), case.fixed(seed=6)
    names = ", ".join(f"a{k}" for k in range(len(given)))
    call: Any = eval(f"lambda {names}: op({names})", {"op": case.op})
    by_name: Any = eval(
        f"lambda {names}: op({', '.join(f'{d.name}=a{k}' for k, d in enumerate(case.op.tensors))})", {"op": case.op}
    )
    for function in (call, by_name):
        graph = torch.fx.symbolic_trace(function)
        graph = pickle.loads(pickle.dumps(copy.deepcopy(graph)))
        close(parts(graph(*other)), parts(case.op(*other)), 0, 0)
    both(Case(case.name, case.row, graph), case.drawn())
    torch._dynamo.reset()
    close(parts(torch.compile(graph, fullgraph=True, backend="aot_eager")(*given)), parts(case.op(*given)), 1e-12)


def in_torchscript(case: Case) -> None:
    graph = torch.jit.trace(case.op, tuple(case.drawn()))
    both(Case(case.name, case.row, graph), case.drawn(seed=6))


def without_data(case: Case) -> None:
    given = case.fixed()
    want = parts(case.op(*given))
    meta = parts(case.op(*(a.to("meta") for a in given)))
    with torch._subclasses.FakeTensorMode() as mode:
        fake = parts(case.op(*(mode.from_tensor(a) for a in given)))
    for found in (meta, fake):
        for got, value in zip(found, want, strict=True):
            assert (got.shape, got.dtype, got.stride()) == (value.shape, value.dtype, value.stride())


# --- transforms -------------------------------------------------------------------------------------------------------


def mapped(case: Case) -> None:
    """Over all tensors, over each alone from its last axis, and over gradients."""
    many = [torch.stack(pair) for pair in zip(case.fixed(), case.fixed(seed=6), strict=True)]
    each = [parts(case.op(*(a[k] for a in many))) for k in range(2)]
    found = parts(torch.vmap(case.op)(*many))
    close(found, [torch.stack(pair) for pair in zip(*each, strict=True)], 1e-12, 1e-13)
    given = case.fixed()
    for at, a in enumerate(given):
        if a.is_floating_point():
            places = tuple(a.dim() if k == at else None for k in range(len(given)))
            rows = [*given[:at], torch.stack([a, a * 1.1], -1), *given[at + 1 :]]
            alone = [parts(case.op(*given[:at], x, *given[at + 1 :])) for x in (a, a * 1.1)]
            want = [torch.stack(pair) for pair in zip(*alone, strict=True)]
            close(parts(torch.vmap(case.op, places)(*rows)), want, 1e-12, 1e-13)
    places = tuple(k for k, a in enumerate(given) if a.is_floating_point())
    slope = torch.func.grad(lambda *arrays: total(case.op(*arrays)), places)
    each = [slope(*(a[k] for a in many)) for k in range(2)]
    close(torch.vmap(slope)(*many), [torch.stack(pair) for pair in zip(*each, strict=True)], 1e-10, 1e-12)


def pushed_forward(case: Case) -> None:
    given = case.fixed()
    x = tuple(leaves(given))
    t = tuple(map(wave, x))
    value, tangent = torch.func.jvp(of_floats(case.op, given), x, t)
    close(value, of_floats(case.plain, given)(*x))
    plain = [a.requires_grad_() for a in case.drawn() if a.is_floating_point()]
    of_plain = of_floats(case.plain, given)
    zeros = [torch.zeros_like(v, requires_grad=True) for v in of_plain(*plain)]
    pulled = torch.autograd.grad(of_plain(*plain), plain, zeros, create_graph=True, allow_unused=True)
    along = sum((p * s).sum() for p, s in zip(pulled, t, strict=True) if p is not None)
    close(tangent, torch.autograd.grad(along, zeros))
    level = torch.autograd.forward_ad
    with level.dual_level():
        found = [level.unpack_dual(p).tangent for p in of_floats(case.op, given)(*map(level.make_dual, x, t))]
    close(found, tangent, 1e-12, 1e-13)


def jacobians_and_hessians(case: Case) -> None:
    given = case.fixed()
    x = tuple(leaves(given))
    places = tuple(range(len(x)))
    own = of_floats(case.op, given)
    pairs = zip(*(torch.utils._pytree.tree_leaves(j(own, places)(*x)) for j in jacobians()), strict=True)
    for reverse, forward in pairs:
        torch.testing.assert_close(reverse, forward, rtol=1e-9, atol=1e-11)
    functions = [squared(of_floats(f, given), x[1:]) for f in (case.op, case.plain)]
    slope = torch.func.grad(functions[0])
    forward, reverse = torch.func.jacfwd(slope)(x[0]), torch.func.jacrev(slope)(x[0])
    torch.testing.assert_close(forward, reverse, rtol=1e-8, atol=1e-10)
    plain = torch.autograd.functional.hessian(functions[1], x[0])
    torch.testing.assert_close(reverse, plain, rtol=1e-7, atol=1e-9)


def squared(function: Any, rest: tuple[Any, ...]) -> Any:
    return lambda a: total(function(a, *rest)).square()


def jacobians() -> tuple[Any, Any]:
    return torch.func.jacrev, torch.func.jacfwd


# --- modes ------------------------------------------------------------------------------------------------------------


def autocast(case: Case) -> None:
    given = case.drawn(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        found = parts(case.op(*given))
        total(found).backward()
    for got, want in zip(found, parts(case.op(*case.fixed())), strict=True):
        assert got.is_floating_point() == want.is_floating_point()
        if got.is_floating_point():
            assert got.dtype in (torch.bfloat16, torch.float32) and torch.isfinite(got).all()
            scale = max(1, float(want.detach().abs().max()))
            assert (got.double() - want).abs().max() <= 0.1 * scale
    assert all(a.grad is None or a.grad.dtype == torch.float32 for a in leaves(given))


def without_gradients(case: Case) -> None:
    given = case.drawn()
    want = parts(case.op(*case.fixed()))
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            found = parts(case.op(*given))
        assert not any(f.requires_grad for f in found)
        close(found, want, 0, 0)
    with torch.inference_mode():
        frozen = [a.clone() for a in given]
    close(parts(case.op(*frozen)), want, 0, 0)


def anomalies(case: Case) -> None:
    with torch.autograd.detect_anomaly(check_nan=True):
        given = case.drawn()
        total(case.op(*given)).backward()


def default_dtype(case: Case) -> None:
    before = torch.get_default_dtype()
    given = case.fixed(torch.float32)
    want = parts(case.op(*given))
    try:
        torch.set_default_dtype(torch.float64)
        close(parts(case.op(*given)), want, 0, 0)
    finally:
        torch.set_default_dtype(before)


# --- tensors ----------------------------------------------------------------------------------------------------------


def other_layouts(case: Case) -> None:
    """Transposed in memory, every second element, reversed twice, lazily negated: gradients have the shapes given."""
    ways: list[Callable[[Any], Any]] = [
        lambda a: a.mT.contiguous().mT if a.dim() > 1 else a.clone(),
        lambda a: torch.stack([a, a], -1)[..., 0],
        lambda a: torch.cat([a, a])[: len(a)] if a.dim() else a.clone(),
        lambda a: torch._neg_view(-a) if a.is_floating_point() else a,
        lambda a: a.flatten()[torch.arange(a.numel())].as_strided(a.shape, a.stride()) if a.is_contiguous() else a,
    ]
    for way in ways:
        both(case, [way(a.detach()).requires_grad_(a.requires_grad) for a in case.drawn()])
        base = case.drawn()
        close(slopes(case.op(*map(way, base)), leaves(base)), slopes(case.plain(*map(way, base)), leaves(base)))


def expanded(case: Case) -> None:
    """Of stride 0; a gradient of a leaf that was expanded is a sum."""
    base = case.drawn()
    wide = [a[:1].expand(a.shape) if a.is_floating_point() and a.dim() and len(a) > 1 else a for a in base]
    try:
        want = slopes(case.plain(*wide), leaves(base))
    except RuntimeError:
        return
    if not all(torch.isfinite(w).all() for w in want) or any((w.abs() > 1e6).any() for w in want):
        return
    own, plain = case.op(*wide), case.plain(*wide)
    for got, value in zip(parts(own), parts(plain), strict=True):
        if got.is_floating_point():
            torch.testing.assert_close(got, value, rtol=1e-9, atol=1e-9)


def nothing(case: Case) -> None:
    """Tensors without elements along one axis: what PyTorch gives of the shape, values where it gives any."""
    names = [d.axes for d in case.op.tensors]
    for axis in sorted({a for axes in names for a in axes}):
        given = [
            a.narrow(axes.index(axis), 0, 0) if axis in axes else a for a, axes in zip(case.fixed(), names, strict=True)
        ]
        given = [a.requires_grad_() if a.is_floating_point() else a for a in given]
        try:
            own = case.op(*given)
        except RedalgError as error:
            assert all((error.what, error.where, error.why, error.fix))
            continue
        meta = parts(case.op(*(a.detach().to("meta") for a in given)))
        assert [(p.shape, p.dtype) for p in parts(own)] == [(p.shape, p.dtype) for p in meta]
        if smooth(own):
            for a, g in zip(leaves(given), slopes(own, leaves(given)), strict=True):
                assert g.shape == a.shape


def some_wanted(case: Case) -> None:
    given = case.drawn()
    want = slopes(case.op(*given), leaves(given))
    for k, a in enumerate(leaves(given)):
        own = [b.detach().requires_grad_(b is a) for b in given]
        result = case.op(*own)
        if total(result).requires_grad:
            (got,) = slopes(result, [b for b in own if b.requires_grad])
            torch.testing.assert_close(got, want[k], rtol=1e-12, atol=1e-13)


def some_results(case: Case) -> None:
    """A gradient of one result alone; the other cotangents are undefined."""
    given = case.drawn()
    own, plain = smooth(case.op(*given)), smooth(case.plain(*given))
    for k in range(len(own)):
        pairs = [
            torch.autograd.grad(r[k].sum(), leaves(given), retain_graph=True, allow_unused=True) for r in (own, plain)
        ]
        for a, got, want in zip(leaves(given), *pairs, strict=True):
            zero = torch.zeros_like(a)
            close([zero if got is None else got], [zero if want is None else want])


def mixed_dtypes(case: Case) -> None:
    """Tensors of several types of floats: the result's is that of the fake, a gradient's that of its tensor."""
    types = (torch.float32, torch.bfloat16, torch.float64, torch.float16)
    for turn in range(len(types)):
        given = case.fixed()
        at = iter(range(turn, turn + len(given)))
        given = [a.to(types[next(at) % 4]).requires_grad_() if a.is_floating_point() else a for a in given]
        found = parts(case.op(*given))
        meta = parts(case.op(*(a.detach().to("meta") for a in given)))
        assert [f.dtype for f in found] == [m.dtype for m in meta]
        want = parts(case.op(*(a.detach().double() if a.is_floating_point() else a for a in given)))
        for got, value in zip(found, want, strict=True):
            if got.is_floating_point():
                eps = max(torch.finfo(got.dtype).eps, torch.finfo(torch.float16).eps / 64)
                scale = max(1.0, float(value.abs().max()))
                assert (got.double() - value).abs().max() <= 40 * eps * scale
        total(found).backward()
        assert all(a.grad is None or (a.grad.dtype, a.grad.shape) == (a.dtype, a.shape) for a in leaves(given))


def tensors_that_are_changed(case: Case) -> None:
    """A saved tensor that is written to before the backward pass is an error, or has the gradient of before."""
    for k in range(len(leaves(case.drawn()))):
        given = case.drawn()
        held = [a * 1 if a.is_floating_point() else a for a in given]
        want = slopes(case.op(*held), leaves(given))
        held = [a * 1 if a.is_floating_point() else a for a in given]
        result = case.op(*held)
        leaves(held)[k].detach().add_(1)  # the version counter is that of both
        try:
            got = slopes(result, leaves(given))
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error)
        else:
            close(got, want, 1e-12, 1e-13)
    given = case.drawn()
    results = smooth(case.op(*given))
    want = slopes(results, leaves(given))
    with contextlib.suppress(RuntimeError):
        changed = [r.mul_(3) for r in smooth(case.op(*given))]
        close(slopes(tuple(changed), leaves(given)), [3 * w for w in want], 1e-11, 1e-12)


def one_tensor_twice(case: Case) -> None:
    """The same tensor for two arguments of the same shape."""
    given = case.drawn()
    for k, a in enumerate(given):
        for m in range(k):
            if a.requires_grad and given[m].requires_grad and given[m].shape == a.shape:
                same = [given[m] if j == k else b for j, b in enumerate(given)]
                wanted = [b for j, b in enumerate(same) if b.requires_grad and j != k]
                apart = [b.detach().clone().requires_grad_(b.requires_grad) for b in same]
                found = slopes(case.op(*apart), [b for b in apart if b.requires_grad])
                left, right = (sum(b.requires_grad for b in same[:j]) for j in (m, k))
                want = [f + found[right] if j == left else f for j, f in enumerate(found) if j != right]
                if all(torch.isfinite(w).all() for w in want):
                    close(slopes(case.op(*same), wanted), want, 1e-10, 1e-12)


def kinds_of_tensors(case: Case) -> None:
    """Parameters, and subclasses that see what is called."""
    called = []

    class Watched(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            called.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    given = case.fixed()
    want = parts(case.op(*given))
    watched = parts(case.op(*(a.as_subclass(Watched) if a.is_floating_point() else a for a in given)))
    assert called
    close([w.as_subclass(torch.Tensor) for w in watched], want, 0, 0)
    parameters = [torch.nn.Parameter(a) if a.is_floating_point() else a for a in given]
    close(parts(case.op(*parameters)), want, 1e-12, 1e-13)  # what is saved may be another kernel's
    sparse = given[0].to_sparse() if given[0].dim() else None
    if sparse is not None:
        try:
            close(parts(case.op(sparse, *given[1:])), want)
        except RedalgError as error:
            assert all((error.what, error.where, error.why, error.fix))


# --- the graph of autograd --------------------------------------------------------------------------------------------


def backward_twice(case: Case) -> None:
    given = case.drawn()
    loss = total(case.op(*given))
    loss.backward(retain_graph=True)
    once = [None if a.grad is None else a.grad.clone() for a in leaves(given)]
    loss.backward()
    for a, first in zip(leaves(given), once, strict=True):
        if first is not None:
            torch.testing.assert_close(a.grad, 2 * first, rtol=1e-14, atol=0)


def hooks(case: Case) -> None:
    """On tensors, on results, on nodes, and on what is saved."""
    given, seen = case.drawn(), []
    want = slopes(case.op(*given), leaves(given))
    handles = [a.register_hook(lambda g: seen.append(g) or 2 * g) for a in leaves(given)]
    with torch.autograd.graph.saved_tensors_hooks(lambda t: io_of(t), lambda b: torch.load(io.BytesIO(b))):
        result = case.op(*given)
    results = smooth(result)
    results[0].register_hook(lambda g: seen.append(g) or g)
    results[0].grad_fn.register_hook(lambda *_: seen.append(None))
    close(slopes(results, leaves(given)), [2 * w for w in want], 1e-12, 1e-13)
    assert any(s is None for s in seen)
    for handle in handles:
        handle.remove()


def io_of(tensor: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(tensor.detach(), buffer)
    return buffer.getvalue()


def checkpoints(case: Case) -> None:
    from torch.utils.checkpoint import checkpoint

    given = case.drawn()
    want = slopes(tuple(p.exp() for p in smooth(case.op(*given))), leaves(given))
    for reentrant in (False, True):
        found = checkpoint(lambda *a: tuple(p.exp() for p in smooth(case.op(*a))), *given, use_reentrant=reentrant)
        if reentrant:
            own = [a.detach().requires_grad_(a.requires_grad) for a in given]
            found = checkpoint(lambda *a: tuple(p.exp() for p in smooth(case.op(*a))), *own, use_reentrant=True)
            total(found).backward()
            close([torch.zeros_like(a) if a.grad is None else a.grad for a in leaves(own)], want, 1e-12, 1e-13)
        else:
            close(slopes(found, leaves(given)), want, 1e-12, 1e-13)


def modules(case: Case) -> None:
    """Copied, saved and loaded, and called with other parameters."""
    given = case.fixed()

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.op = case.op
            self.held = torch.nn.ParameterList(leaves(given))

        def forward(self) -> Any:
            own = iter(self.held)
            return case.op(*(next(own) if a.is_floating_point() else a for a in given))

    model = Model()
    want = parts(model())
    twin = copy.deepcopy(model)
    assert twin.op is case.op and pickle.loads(pickle.dumps(case.op)) is case.op
    close(parts(twin()), want, 0, 0)
    assert all(a is not b for a, b in zip(model.parameters(), twin.parameters(), strict=True))
    twin.load_state_dict(model.state_dict())
    other = {n: p.detach() * 1.01 for n, p in model.named_parameters()}
    slope = torch.func.grad(lambda held: total(torch.func.functional_call(model, held, ())))(other)
    assert all(slope[n].shape == p.shape for n, p in other.items())


def registered_once(case: Case) -> None:
    row, op = case.row, case.op
    assert ra.torch.compile(row.spec, axis=row.axis, assume=row.assume) is op
    assert op.form.torch_op(op.name, row.assume) is op
    other = ra.derive_incremental(ra.parse("return y = sum[j](x[j]*17)"))
    with contextlib.suppress(RedalgError):
        other.torch_op(op.name)
        raise AssertionError("another form took the name")


def by_name(case: Case) -> None:
    given = case.fixed()
    names = [d.name for d in case.op.tensors]
    want = parts(case.op(*given))
    close(parts(case.op(**dict(zip(names, given, strict=True)))), want, 0, 0)
    close(parts(case.op(given[0], **dict(zip(names[1:], given[1:], strict=True)))), want, 0, 0)
    numbers = [float(a) if a.is_floating_point() and not a.dim() else a for a in given]
    if any(isinstance(a, torch.Tensor) for a in numbers):
        close(parts(case.op(*numbers)), want, 1e-12)


HABITS: dict[str, Callable[[Case], None]] = {
    f.__name__: f
    for f in (
        *(pytorchs_check_of_operators, first_derivatives, second_derivatives),
        *(compiled, compiled_for_any_lengths, compiled_by_name, transformed_where_compiling_stops),
        *(exported, traced, in_a_graph_of_fx, in_torchscript, without_data),
        *(mapped, pushed_forward, jacobians_and_hessians),
        *(autocast, without_gradients, anomalies, default_dtype),
        *(other_layouts, expanded, nothing, some_wanted, some_results, mixed_dtypes),
        *(tensors_that_are_changed, one_tensor_twice, kinds_of_tensors),
        *(backward_twice, hooks, checkpoints, modules, registered_once, by_name),
    )
}
