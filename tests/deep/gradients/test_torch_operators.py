"""Fifty operators as somebody who trains models writes them, beside plain PyTorch (`tests.support.torch_operators`)."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import pytest

import redalg as ra
from redalg.errors import RedalgError
from tests.support.torch_operators import OPERATORS, Operator

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore")


def op_of(row: Operator) -> Any:
    return ra.torch.compile(row.spec, axis=row.axis, assume=row.assume)


def drawn(row: Operator, dtype: Any = None) -> list[Any]:
    made = row.drawn(torch.Generator().manual_seed(5))
    return [a.to(dtype or a.dtype).requires_grad_() if a.is_floating_point() else a for a in made]


def parts(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def leaves(given: list[Any]) -> list[Any]:
    return [a for a in given if a.is_floating_point()]


def total(result: Any) -> Any:
    own = [p for p in parts(result) if p.is_floating_point()]
    return sum((p * torch.cos(torch.arange(p.numel(), dtype=p.dtype)).reshape(p.shape)).sum() for p in own)


def slopes(result: Any, given: list[Any], create_graph: bool = False) -> list[Any]:
    wanted = leaves(given)
    found = torch.autograd.grad(total(result), wanted, allow_unused=True, create_graph=create_graph)
    return [torch.zeros_like(a) if f is None else f for a, f in zip(wanted, found, strict=True)]


def close(found: Any, wanted: Any, rtol: float = 1e-9, atol: float = 1e-11) -> None:
    for got, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, want, rtol=rtol, atol=atol)


@pytest.mark.parametrize("name", OPERATORS)
def test_values_and_gradients_are_those_of_plain_pytorch(name: str) -> None:
    row = OPERATORS[name]
    op, given = op_of(row), drawn(row)
    own, plain = op(*given), row.plain(*given)
    close(parts(own), parts(plain))
    close(slopes(own, given), slopes(plain, given))
    narrow = drawn(row, torch.float32)
    for got, want in zip(parts(op(*narrow)), parts(plain), strict=True):
        if want.is_floating_point():
            assert got.dtype == torch.float32
            torch.testing.assert_close(got.double(), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["rms_norm", "focal", "kl_of_logits", "gem", "pearson", "rational", "decayed_mean"])
def test_second_derivatives(name: str) -> None:
    row = OPERATORS[name]
    op = op_of(row)

    def second(function: Any) -> list[Any]:
        given = drawn(row)
        first = [s for s in slopes(function(*given), given, create_graph=True) if s.requires_grad]
        return slopes(tuple(s.sin() for s in first), given)

    close(second(op), second(row.plain), 1e-7, 1e-9)


@pytest.mark.parametrize("name", ["clip_both_ways", "maximum_mean_discrepancy", "vicreg"])
def test_sums_over_several_axes_have_gradients(name: str) -> None:
    """The gradient of a number needs the statistics of rows and of columns: it streams over one of both axes."""
    row = OPERATORS[name]
    given = drawn(row)
    close(slopes(op_of(row)(*given), given), slopes(row.plain(*given), given))


def test_a_spec_without_a_name_has_one_operator_for_each_axis() -> None:
    """The name was that of the spec alone, so that the second axis was refused."""
    spec = ra.parse("return y = sum[i](sum[j](x[i,j]**2)*w[i]), z = sum[j](sum[i](x[i,j])*v[j])")
    x, w, v = (torch.rand(s, dtype=torch.float64) for s in ((3, 4), (3,), (4,)))
    want = ((x**2).sum(1) @ w, x.sum(0) @ v)
    names = set()
    for axis in ("i", "j"):
        op = ra.torch.compile(spec, axis=axis)
        assert op is ra.torch.compile(spec, axis=axis)
        names.add(op.name)
        close(op(x, w, v), want)
        mapped = torch.vmap(op, (0, None, None))(torch.stack([x, 2 * x]), w, v)
        close([m[0] for m in mapped], want)
    assert len(names) == 2


def test_what_a_derivative_assumes_is_a_part_of_the_operator() -> None:
    text = "tensors x[j], s positive; return y = cast(clip(x[j]/s, -8, 7), int8)*s"
    form = ra.derive_incremental(ra.parse(text))
    op = form.torch_op("trained::fake", assume="straight_through")
    assert op is form.torch_op("trained::fake", assume={"straight_through"}) and pickle.loads(pickle.dumps(op)) is op
    with pytest.raises(RedalgError, match="another form"):
        form.torch_op("trained::fake")
    for make in (
        lambda: form.torch_op("trained::other", assume={"straight"}),
        lambda: ra.torch.compile(form.spec, assume="x"),
    ):
        with pytest.raises(RedalgError, match="known assumptions"):
            make()
    x = torch.tensor([0.3, -9.0, 2.2], dtype=torch.float64, requires_grad=True)
    s = torch.tensor(0.5, dtype=torch.float64)
    assert torch.autograd.grad(op(x, s).sum(), x)[0].tolist() == [1, 0, 1]
    assert torch.func.jvp(lambda x: op(x, s), (x.detach(),), (torch.ones_like(x),))[1].tolist() == [1, 0, 1]
    each = torch.vmap(torch.func.grad(lambda x: op(x, s).sum()))(torch.stack([x.detach(), x.detach()]))
    assert each.tolist() == [[1, 0, 1]] * 2
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.autograd.grad(op(x, s).sum(), x)[0].tolist() == [1, 0, 1]
    gemm = ra.torch.compile(ra.catalog["absmax_int8_gemm"], assume={"cast_commutes", "straight_through"})
    a, b = torch.randn(3, 4, requires_grad=True), torch.randn(4, 2)
    torch.testing.assert_close(torch.autograd.grad(gemm(a, b).sum(), a)[0], b.sum(1).expand(3, 4), rtol=0.1, atol=0.3)
    torch.testing.assert_close(torch.vmap(gemm)(a.detach()[None], b[None])[0], gemm(a.detach(), b))


def test_threads_that_ask_for_one_name_are_given_one_operator() -> None:
    form, found = ra.derive_incremental(ra.parse("return y = sum[j](sinh(x[j])*w[j])")), []
    start = threading.Barrier(4)

    def ask() -> None:
        start.wait()
        op = form.torch_op("trained::asked")
        x = torch.ones(3, dtype=torch.float64, requires_grad=True)
        (slope,) = torch.autograd.grad(op(x, x).sin(), x, create_graph=True)
        found.append((op, torch.autograd.grad(slope.sum(), x)[0]))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len({id(op) for op, _ in found}) == 1 and len(found) == 4
    close([s for _, s in found], [found[0][1]] * 4, 0, 0)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (lambda: (torch.ones(3, 4), torch.ones(5)), "length"),
        (lambda: (torch.ones(3, 4, device="meta"), torch.ones(5, device="meta")), "length"),
        (lambda: (torch.ones(3, 4, device="meta"), torch.ones(4)), "one device"),
        (lambda: (torch.ones(4, device="meta"), torch.ones(4, device="meta")), "dimensions"),
        (lambda: (torch.ones(3, 4), "one"), "given as str"),
        (lambda: (torch.ones(3, 4), None), "given as NoneType"),
        (lambda: (torch.ones(3, 4), [[1.0], [1.0, 2.0]]), "given as list"),
        (lambda: (torch.ones(3, 4), torch.ones(4, dtype=torch.complex64)), "complex"),
        (lambda: (torch.ones(3, 4),), "it takes"),
    ],
)
def test_refusals_have_four_parts(given: Any, why: str) -> None:
    op = ra.torch.compile(ra.parse("return y = sum[j](x[i,j]*w[j])"))
    with pytest.raises(RedalgError, match=why) as caught:
        op(*given())
    error = caught.value
    assert all((error.what, error.where, error.why, error.fix))


def test_arrays_keep_their_digits_beside_tensors() -> None:
    """A number is of the tensors' dtype; an array of NumPy has its own."""
    op = ra.torch.compile(ra.parse("return y = sum[j](x[i,j]*w[j])"))
    x, w = torch.ones(2, 3), torch.full((3,), 1 / 3, dtype=torch.float64)
    assert op(x, w.numpy()).dtype == op(x, w).dtype == torch.float64
    assert torch.equal(op(x, w.numpy()), op(x, w))


def test_lengths_that_a_compiler_does_not_know_are_checked() -> None:
    op = ra.torch.compile(ra.parse("return y = sum[j](x[i,j]*w[j])"))
    step = torch.compile(lambda x, w: op(x, w) * 2, fullgraph=True, backend="aot_eager", dynamic=True)
    for n in (3, 5):
        x, w = torch.rand(2, n), torch.rand(n)
        torch.testing.assert_close(step(x, w), op(x, w) * 2)
    with pytest.raises(Exception, match="length"):
        step(torch.rand(2, 4), torch.rand(5))
