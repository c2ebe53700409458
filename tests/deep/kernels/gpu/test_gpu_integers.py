"""Integers on a GPU: results are right or an error, as everywhere; what cannot leave int64 is not looked at."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.errors import RedalgError
from redalg.kernels.cuda.integers import extrema_run

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")


def compiled(text: str) -> Any:
    return ra.derive_incremental(ra.parse(text)).compile("cuda")


SUM, SQUARES, DOT = "return y = sum[j](k[i,j])", "return y = sum[j](k[i,j]**2)", "return y = sum[j](k[i,j]*h[j])"
VARIANCE = "u = mean[j](k[i,j]); return y = mean[j]((k[i,j]-u)**2)"


def on_gpu(rows: Any, dtype: Any = None) -> Any:
    return torch.tensor(rows, dtype=dtype or torch.int64, device="cuda")


@pytest.mark.parametrize("text", [SUM, SQUARES])
def test_what_leaves_int64_raises_and_leaves_out_alone(text: str) -> None:
    run, k = compiled(text), on_gpu([[2**62, 2**62, 1], [1, 2, 3]])
    out = torch.full((2,), 7, dtype=torch.int64, device="cuda")
    for more in ({}, {"out": out}):
        with pytest.raises(RedalgError, match="int64"):
            run(k=k, **more)
    assert out.tolist() == [7, 7]
    assert run(k=on_gpu([[3, -4, 1], [1, 2, 3]]), out=out) is out
    assert out.tolist() == ([0, 6] if text == SUM else [26, 14])


def test_sums_near_the_limit_are_right() -> None:
    run, side = compiled(SUM), torch.cuda.Stream()
    k = on_gpu([[2**63 - 1, -5, 0], [-(2**63), 3, 2], [2**62, 2**62 - 1, 0]])
    exact = [sum(row) for row in k.tolist()]
    found = run(k=k)
    assert found.tolist() == exact and found.is_cuda and found.dtype == torch.int64
    side.wait_stream(torch.cuda.current_stream())
    assert run(k=k, stream=side).tolist() == exact
    out = torch.zeros(3, dtype=torch.int64, device="cuda")
    assert run(k=k, out=out) is out and out.tolist() == exact


def test_a_call_looks_at_what_was_written_on_its_own_stream() -> None:
    run, side = compiled(SUM), torch.cuda.Stream()
    k = torch.zeros(4, 1 << 20, dtype=torch.int64, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        k.fill_(2**62)
        with pytest.raises(RedalgError, match="int64"):
            run(k=k)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "uint8"])
def test_sums_of_narrow_columns_are_not_looked_at(dtype: str) -> None:
    run = compiled(SUM)
    k = torch.randint(0, 100, (5, 3001), device="cuda").to(getattr(torch, dtype))
    assert torch.equal(run(k=k), k.long().sum(1)) and run._last.looking is None
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run(k=k)
    graph.replay()
    assert torch.equal(captured, k.long().sum(1))


def test_a_graph_of_calls_that_must_be_looked_at_is_refused() -> None:
    run, k = compiled(SUM), on_gpu([[1, 2, 3]])
    assert run(k=k).tolist() == [6] and "int64" in run.explain()
    graph, errors = torch.cuda.CUDAGraph(), []
    with torch.cuda.graph(graph):
        y = k + 1
        try:
            run(k=k)
        except RedalgError as error:
            errors.append(error)
    graph.replay()  # the capture goes on
    assert errors and "captured" in str(errors[0]) and y.tolist() == [[2, 3, 4]]


@pytest.mark.parametrize("shape", [(7,), (300, 1001), (5, 64, 33)])
@pytest.mark.parametrize("dtype", ["int64", "int32", "int8", "uint8"])
def test_the_magnitudes_are_those_of_the_array(shape: tuple[int, ...], dtype: str) -> None:
    info = np.iinfo(dtype)
    drawn = np.random.default_rng(3).integers(info.min, info.max, shape, dtype, endpoint=True)
    x = torch.from_numpy(drawn).cuda()
    turned = x.permute(*reversed(range(len(shape))))
    for view in (x, turned, x[..., ::3], turned[..., 1:], x[..., :1].expand(shape)):
        order = tuple(sorted(range(view.dim()), key=lambda d: -view.stride(d)))
        found = extrema_run(order)(k=view)
        assert found["high"].item() == view.max().item() and found["low"].item() == view.min().item()


def test_scalars_and_numbers_take_part() -> None:
    run = compiled("tensors k[j] integer, c integer; return y = c * sum[j](k[j])")
    k = on_gpu([2**40, 5])
    for c, exact in ((3, 3 * (2**40 + 5)), (2**22, 2**22 * (2**40 + 5))):
        assert run(k=k, c=c).item() == exact and run(k=k, c=on_gpu(c)).item() == exact
    for c in (2**24, on_gpu(2**24)):
        with pytest.raises(RedalgError, match="int64"):
            run(k=k, c=c)


def test_variances_far_from_zero_are_those_of_the_integers() -> None:
    k = on_gpu([[2**60 + n * n for n in range(9)], [n * n for n in range(9)]])
    found = compiled(VARIANCE)(k=k).cpu().numpy()
    np.testing.assert_allclose(found, [np.var([n * n for n in range(9)])] * 2, rtol=1e-13)


def test_arrays_of_numpy_are_looked_at_where_they_are() -> None:
    run = compiled(DOT)
    k, h = np.array([[2**30, 3], [1, 2]]), np.array([2**30, -4])
    assert run(k=k, h=h).tolist() == (k @ h).tolist()
    with pytest.raises(RedalgError, match="int64"):
        run(k=k * 2**20, h=h * 2**20)
