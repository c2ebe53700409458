"""Chains whose products a library computes, on a GPU: the definition, arrays of the caller, streams, graphs, NaN."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.kernels.gemm import library, tiles

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu
ROWS = "return z = sum[n](relu(sum[k](A[m,k]*B[n,k]))*D[l,n])"
PLAIN = "return z = sum[n](sum[k](A[m,k]*B[k,n])*D[n,l])"
PIXELS = "return z = sum[n](relu(sum[c](x[b,h,w,c]*U[n,c]))*V[m,n])"
WINDOWS = "return z = sum[n](relu(sum[r,s,c](x[b,{0}*h+r-1,w+{1}*s-{1},c]*U[n,r,s,c]))*V[m,n])"
CASES: dict[str, tuple[str, dict[str, tuple[int, ...]]]] = {
    "rows": (ROWS, {"A": (1000, 136), "B": (264, 136), "D": (72, 264)}),
    "129 rows": (ROWS, {"A": (129, 136), "B": (264, 136), "D": (72, 264)}),
    "weights across": (PLAIN, {"A": (777, 520), "B": (520, 72), "D": (72, 200)}),
    "pixels": (PIXELS, {"x": (9, 14, 13, 64), "U": (520, 64), "V": (40, 520)}),
    "windows": (WINDOWS.format(1, 1), {"x": (5, 14, 9, 72), "U": (136, 3, 3, 72), "V": (24, 136)}),
    "steps, dilation": (WINDOWS.format(2, 2), {"x": (3, 20, 23, 32), "U": (64, 3, 3, 32), "V": (16, 64)}),
}


def _run(text: str) -> Any:
    return ra.derive_incremental(ra.parse(text), axis="n", max_passes=4).compile("cuda")


def _case(name: str, seed: int = 3) -> tuple[Any, dict[str, Any]]:
    torch.manual_seed(seed)
    text, shapes = CASES[name]
    return _run(text), {n: torch.randn(s, device="cuda").bfloat16() for n, s in shapes.items()}


def _ways(run: Any) -> list[bool]:
    return [p.vendor is not None for p in (*run.planned.before, run.planned)]


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "seconds", lambda *given: 1e-12)


def _true(run: Any, arrays: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """The definition in float64, and of magnitudes."""
    wide = {n: a.double().cpu().numpy() for n, a in arrays.items()}
    sizes = {n: abs(a) for n, a in wide.items()}
    return np.asarray(ra.reference(run.spec, **wide)), np.asarray(ra.reference(run.spec, **sizes))


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("name", CASES)
def test_the_definition(name: str) -> None:
    """What lies between is rounded to bfloat16, and so is the result, by the library as by kernels of ours."""
    run, arrays = _case(name)
    found = run(**arrays)
    assert _ways(run) == [True, True] and found.is_contiguous()
    true, size = _true(run, arrays)
    got = found.double().cpu().numpy()
    assert (abs(got - true) <= 2.0**-8 * abs(true) + 2.0**-8 * size).all()
    own = run.form.compile("cuda", schedule="tensor")(**arrays).double().cpu().numpy()
    assert np.median(abs(got - true)) <= 1.2 * np.median(abs(own - true)) + 1e-30


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("name", ["rows", "windows"])
def test_arrays_of_the_caller_streams_and_graphs(name: str) -> None:
    run, arrays = _case(name)
    first = run(**arrays)
    out = torch.full_like(first, torch.nan)
    assert run(**arrays, out=out) is out and torch.equal(out, first)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    aside = run(**arrays, stream=stream)
    stream.synchronize()
    assert torch.equal(aside, first)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = run(**arrays)
    for a in arrays.values():
        a.copy_(a.flip(0))
    graph.replay()
    assert torch.equal(kept, run(**arrays)) and not torch.equal(kept, first)
    with torch.autocast("cuda", dtype=torch.float16):
        assert torch.equal(run(**arrays), kept)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("name", ["rows", "windows"])
def test_what_is_not_finite(name: str) -> None:
    """The library's relu keeps NaN, as the definition does."""
    run, arrays = _case(name)
    left = next(iter(arrays.values()))
    left.view(-1)[5], left.view(-1)[-3] = torch.nan, torch.inf
    own = run.form.compile("cuda", schedule="tensor")(**arrays)
    found = run(**arrays)
    assert torch.equal(found.isnan(), own.isnan()) and torch.equal(found.isinf(), own.isinf()) and found.isnan().any()


@pytest.mark.usefixtures("eager")
def test_other_arrays_and_the_usual_choice() -> None:
    run, arrays = _case("rows")
    run(**arrays)
    assert "left to cuBLAS (torch.mm" in run.explain() and run.source.startswith("# Not launched")
    strict = run.form.compile("cuda", deterministic=True)
    strict(**arrays)
    assert _ways(strict) == [False, False]


@pytest.mark.parametrize(
    ("m", "n", "k"), [(6272, 1024, 256), (9001, 520, 72), (25088, 512, 128), (20003, 264, 64), (3000, 2056, 1000)]
)
def test_tiles_written_by_bulk_copies(m: int, n: int, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bits as by stores of every thread, where blocks compute several tiles; nothing behind the last row."""
    torch.manual_seed(n)
    a, b = (torch.randn(s, k, device="cuda").bfloat16() for s in (m, n))
    text = "return y = relu(sum[k](a[m,k]*b[n,k]))"
    found = {}
    for short in (0, 20):
        monkeypatch.setattr(tiles, "SHORT", short)
        run = ra.derive_incremental(ra.parse(text)).compile("cuda", schedule="tensor")
        whole = torch.full((m + 8, n), -1.0, device="cuda", dtype=torch.bfloat16)
        run(a=a, b=b, out=whole[:m])
        assert ("bulk_store" in run.source) == (short > 0) and (whole[m:] == -1).all()
        found[short] = whole[:m].clone()
    assert torch.equal(found[0], found[20])
    true, size = (x @ y.t() for x, y in ((a.double(), b.double()), (a.double().abs(), b.double().abs())))
    assert ((found[20].double() - true.relu()).abs() <= 2.0**-8 * true.abs() + 2.0**-17 * size).all()
