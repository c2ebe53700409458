"""Products whose rows are pixels on a GPU, beside the definition, PyTorch's convolutions, and in graphs."""

from __future__ import annotations

import numpy as np
import pytest

import redalg as ra
from tests.support.window_cases import CASES, case, form_of, truth

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu
CONV = "return y = sum[r,s,c](x[b,{0}*h+{1}*r-{2},{0}*w+{1}*s-{2},c]*U[r,s,c,n])"
CHAIN = "return z = sum[n](relu(sum[r,s,c](x[b,{0}*h+{1}*r-{2},{0}*w+{1}*s-{2},c]*U[r,s,c,n]))*V[n,m])"


def _bits(x: np.ndarray, kind: str):  # type: ignore[no-untyped-def]
    return torch.as_tensor(x, device="cuda").to(getattr(torch, kind))


@pytest.mark.parametrize("name", CASES)
def test_every_case_gives_the_definition(name: str) -> None:
    form, arrays, kind = case(name)
    run = form.compile("cuda", schedule="tensor")
    found = run(**{n: _bits(x, kind) for n, x in arrays.items()}).double().cpu().numpy()
    assert run.planned.maps[0].operand == "x"
    ((true,), (size,)) = (list(x.values()) for x in truth(form, arrays))
    assert (abs(found - true) <= 2.0**-8 * abs(true) + 2.0**-18 * size).all()


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    ("b", "side", "c", "n", "k", "step", "dilation", "pad"),
    [
        (1, 56, 64, 64, 3, 1, 1, 1),
        (32, 56, 64, 64, 3, 1, 1, 1),
        (3, 28, 128, 128, 3, 1, 1, 1),
        (32, 14, 256, 256, 3, 1, 1, 1),
        (1, 7, 512, 512, 3, 1, 1, 1),
        (32, 7, 512, 512, 3, 1, 1, 1),
        (2, 57, 96, 200, 3, 2, 1, 1),
        (5, 33, 40, 136, 5, 2, 1, 2),
        (2, 31, 72, 72, 3, 1, 2, 2),
        (4, 19, 8, 24, 2, 1, 3, 0),
        (1, 112, 64, 128, 1, 2, 1, 0),
        (2, 224, 8, 64, 7, 2, 1, 2),
        (2, 9, 12, 24, 3, 1, 1, 1),
        (1, 20, 24, 16, 3, 9, 1, 1),
    ],
)
def test_beside_pytorch(
    b: int, side: int, c: int, n: int, k: int, step: int, dilation: int, pad: int, kind: str
) -> None:
    torch.manual_seed(side)
    x = torch.randn(b, side, side, c, device="cuda").to(getattr(torch, kind))
    u = (torch.randn(k, k, c, n, device="cuda") / (k * k * c) ** 0.5).to(x.dtype)
    form = form_of(CONV.format(step, dilation, pad).replace("-0", ""))
    run = form.compile("cuda", schedule="tensor")
    found = run(x=x, U=u).double()
    how = {"stride": step, "dilation": dilation, "padding": pad}
    wide = x.double().permute(0, 3, 1, 2), u.double().permute(3, 2, 0, 1)
    true = torch.nn.functional.conv2d(*wide, **how).permute(0, 2, 3, 1)
    size = torch.nn.functional.conv2d(*(a.abs() for a in wide), **how).permute(0, 2, 3, 1)
    assert found.shape == true.shape
    assert bool(((found - true).abs() <= 2.0**-8 * true.abs() + 2.0**-17 * size).all())


def test_a_part_of_images_and_infinities() -> None:
    """Rows of a part of an image are no axis; zeros around it times an infinity are NaN, as in the definition."""
    x = torch.randn(2, 20, 20, 64, device="cuda").bfloat16()[:, 3:17, 4:15]
    u = torch.randn(64, 72, device="cuda").bfloat16()
    run = form_of("return y = sum[c](x[b,h,w,c]*U[c,n])").compile("cuda", schedule="tensor")
    found, true = run(x=x, U=u).double(), x.double() @ u.double()
    assert run.planned.maps[0].pixels is not None
    assert bool(((found - true).abs() <= 2.0**-8 * true.abs() + 2.0**-17 * (x.double().abs() @ u.double().abs())).all())
    x = torch.ones(1, 6, 6, 8, device="cuda").bfloat16()
    u = torch.ones(3, 3, 8, 8, device="cuda").bfloat16()
    u[0, 1, 2, 3] = float("inf")
    run = form_of(CONV.format(1, 1, 1)).compile("cuda", schedule="tensor")
    found = run(x=x, U=u).float().cpu().numpy()
    true = ra.reference(run.spec, x=np.ones((1, 6, 6, 8)), U=u.double().cpu().numpy())
    np.testing.assert_array_equal(np.isnan(found), np.isnan(true))
    np.testing.assert_array_equal(np.isinf(found), np.isinf(true))


def test_no_images_and_no_windows() -> None:
    run = form_of(CONV.format(1, 1, 1)).compile("cuda")
    u = torch.ones(3, 3, 8, 16, device="cuda").bfloat16()
    for shape, expected in (((0, 5, 5, 8), (0, 5, 5, 16)), ((2, 0, 5, 8), (2, 0, 5, 16))):
        assert run(x=torch.ones(shape, device="cuda").bfloat16(), U=u).shape == expected


def test_what_reads_zeros_otherwise_gets_a_copy() -> None:
    """A map of every element before the product; windows that the call passes itself; results into an array."""
    torch.manual_seed(1)
    x, u = torch.randn(2, 9, 9, 16, device="cuda").bfloat16(), torch.randn(3, 3, 16, 24, device="cuda").bfloat16()
    convolved = lambda x: torch.nn.functional.conv2d(  # noqa: E731
        x.double().permute(0, 3, 1, 2), u.double().permute(3, 2, 0, 1), padding=1
    ).permute(0, 2, 3, 1)
    size = convolved(x.abs()).abs() + 144 * u.abs().max()
    mapped = form_of("return y = sum[r,s,c](exp(x[b,h+r-1,w+s-1,c])*U[r,s,c,n])")
    found = mapped.compile("cuda", schedule="tensor")(x=x, U=u).double()
    ones = torch.nn.functional.pad(x.double(), (0, 0, 1, 1, 1, 1)).exp().permute(0, 3, 1, 2)
    true = torch.nn.functional.conv2d(ones, u.double().permute(3, 2, 0, 1)).permute(0, 2, 3, 1)
    assert bool(((found - true).abs() <= 2.0**-6 * (size + true.abs())).all())
    run = form_of(CONV.format(1, 1, 1)).compile("cuda", schedule="tensor")
    expected = run(x=x, U=u)
    assert bool(((expected.double() - convolved(x)).abs() <= 2.0**-8 * size).all())
    windows = torch.nn.functional.pad(x, (0, 0, 1, 1, 1, 1)).unfold(1, 3, 1).unfold(2, 3, 1).permute(0, 1, 4, 2, 5, 3)
    for given in (windows, windows.contiguous()):
        assert bool(((run(x=given, U=u).double() - convolved(x)).abs() <= 2.0**-8 * size).all())
    out = torch.empty_like(expected)
    assert torch.equal(run(x=x, U=u, out=out), expected) and torch.equal(run(x=x, U=u), expected)


@pytest.mark.parametrize(
    ("b", "side", "c", "n", "m"), [(1, 7, 512, 512, 2048), (32, 14, 256, 256, 1024), (2, 9, 64, 136, 72)]
)
def test_a_chain_in_a_graph(b: int, side: int, c: int, n: int, m: int) -> None:
    torch.manual_seed(side)
    arrays = {
        "x": torch.randn(b, side, side, c),
        "U": torch.randn(3, 3, c, n) / (9 * c) ** 0.5,
        "V": torch.randn(n, m) / n**0.5,
    }
    given = {k: a.cuda().bfloat16() for k, a in arrays.items()}
    run = form_of(CHAIN.format(1, 1, 1)).compile("cuda")
    expected = run(**given)
    x, u, v = (given[k].double() for k in ("x", "U", "V"))
    first = torch.nn.functional.conv2d(x.permute(0, 3, 1, 2), u.permute(3, 2, 0, 1), padding=1).permute(0, 2, 3, 1)
    true = first.relu() @ v
    size = first.abs() @ v.abs()
    assert bool(((expected.double() - true).abs() <= 2.0**-8 * true.abs() + 2.0**-7 * size).all())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run(**given)
    for _ in range(20):
        graph.replay()
    assert torch.equal(captured, expected)
