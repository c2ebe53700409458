"""Products of chains that are left to cuBLAS and cuDNN: the laws, the choice, what is said of it, and the numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.kernels.cuda.library import ROUNDED, Product, said
from redalg.kernels.gemm import library
from redalg.kernels.ir.layouts import View
from redalg.kernels.launch.planned import Lying, Planned, Vendor
from redalg.kernels.pipeline import plan
from redalg.kernels.schedule.target import H100
from redalg.numeric.binding import with_readings
from redalg.numeric.windows import stepped
from tests.support import forms

torch = pytest.importorskip("torch")
Shapes = Mapping[str, tuple[int, ...]]
WINDOWS = "relu(sum[r,s,c](x[b,{0}*h+r-1,w+{1}*s-{1},c]*U[n,r,s,c]))"
# the first product, what the second one multiplies it by, and shapes
CASES: dict[str, tuple[str, str, Shapes]] = {
    "rows": ("relu(sum[k](A[m,k]*B[n,k]))", "D[l,n]", {"A": (300, 72), "B": (136, 72), "D": (40, 136)}),
    "weights across": ("sum[k](A[m,k]*B[k,n])", "D[n,l]", {"A": (257, 64), "B": (64, 24), "D": (24, 200)}),
    "pixels": ("relu(sum[c](x[b,h,w,c]*U[n,c]))", "V[m,n]", {"x": (4, 5, 7, 16), "U": (24, 16), "V": (8, 24)}),
    "windows": (WINDOWS.format(1, 1), "V[m,n]", {"x": (5, 6, 5, 16), "U": (24, 3, 3, 16), "V": (8, 24)}),
    "steps, dilation": (WINDOWS.format(2, 2), "V[m,n]", {"x": (7, 8, 9, 24), "U": (8, 3, 3, 24), "V": (16, 8)}),
}


def planned(text: str, shapes: Shapes, kind: str = "bfloat16", whose: str = "torch", **how: Any) -> Any:
    """The plan of a call, the arrays that its kernels read, and those of the call."""
    form = forms.form_of_text(text, "n", 4)
    draw = torch.Generator().manual_seed(len(text))
    arrays = {n: torch.randn(s, generator=draw).to(getattr(torch, kind)) for n, s in shapes.items()}
    arrays |= {n: a.t().contiguous().t() for n, a in arrays.items() if n in how.get("turned", "")}
    how.pop("turned", "")
    held = dict(with_readings(form.spec.tensors, arrays, padding=False))
    views = {n: View(tuple(a.shape), tuple(a.stride())) for n, a in held.items()}
    for t in form.spec.tensors:
        if t.dimensions and len(views[t.name].shape) == t.rank:
            own, lengths = views[t.name], with_readings(form.spec.tensors, arrays)[t.name].shape
            views[t.name] = View(tuple(lengths), stepped(t, own.strides), own.align, own.shape)
    return plan(form, dict.fromkeys(held, kind), views, H100, library=whose, **how), held, arrays


def chain(name: str, **how: Any) -> Any:
    first, second, shapes = CASES[name]
    return planned(f"return z = sum[n]({first}*{second})", shapes, **how)


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries that are predicted to take no time, and cuDNN's convolutions as PyTorch computes them on a CPU."""
    monkeypatch.setattr(library, "seconds", lambda *given: 1e-12)

    def convolved(x: Any, u: Any, pad: Any, step: Any, dilation: Any, groups: int, *flags: Any) -> Any:
        return torch.nn.functional.conv2d(x.float(), u.float(), None, step, pad, dilation, groups).to(x.dtype)

    def with_relu(x: Any, u: Any, bias: Any, step: Any, pad: Any, dilation: Any, groups: int) -> Any:
        return convolved(x, u, pad, step, dilation, groups).relu()

    monkeypatch.setattr(torch, "cudnn_convolution", convolved, raising=False)
    monkeypatch.setattr(torch, "cudnn_convolution_relu", with_relu, raising=False)


def lines(found: Planned) -> list[str]:
    return [line for line in found.choice.reasons if "left to cu" in line]


def close(found: Any, text: str, arrays: Mapping[str, Any]) -> None:
    """One rounding to the operands' type of sums in float32."""
    spec = ra.parse(text)
    given = {t.array or t.name: arrays[t.array or t.name].double().numpy() for t in spec.tensors}
    true = np.asarray(ra.reference(spec, **given))
    size = np.asarray(ra.reference(spec, **{n: abs(a) for n, a in given.items()}))
    got = found.double().numpy().reshape(true.shape)
    assert (abs(got - true) <= 2.0**-8 * abs(true) + 2.0**-18 * size + 2.0**-24).all()


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("name", CASES)
def test_every_product_gives_the_definition(name: str) -> None:
    """Each product of what the one before it has left, in the caller's array or in one of its own."""
    found, held, arrays = chain(name)
    (first,), inner, factor = found.before, *CASES[name][:2]
    assert len(lines(found)) == 2 and not any("not left" in line for line in lines(found))
    between, shape = first.vendor.result, first.shapes[first.vendor.result]
    results = [torch.full((int(np.prod(shape)),), torch.nan, dtype=torch.bfloat16)]
    Product(first.vendor, [*held], [(between, shape)]).run([*held.values()], results, None, True)
    close(results[0], f"return y = {inner}", arrays)
    given = {**held, between: results[0]}
    mine = [torch.full(found.shapes["z"], torch.nan, dtype=torch.bfloat16)]
    before = mine[0]
    Product(found.vendor, [*given], [("z", found.shapes["z"])]).run([*given.values()], mine, None, False)
    assert mine[0] is before
    rows = {"q": results[0].reshape(-1, shape[-1]), **arrays}
    close(mine[0], f"return y = sum[n](q[i,n]*{factor})", rows)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    ("text", "shapes", "how", "why"),
    [
        (None, None, {"whose": "numpy"}, "PyTorch's"),
        (None, None, {"whose": ""}, "PyTorch's"),
        (None, None, {"deterministic": True}, "order of its additions"),
        (None, {"A": (128, 72)}, {}, "128 rows or fewer"),
        ("relu(sum[k](A[m,k]*B[n,k]))", None, {"turned": "B"}, "do not lie together"),
        ("gelu(sum[k](A[m,k]*B[n,k]))", None, {}, "of sums that are rounded already"),
        ("silu(sum[k](A[m,k]*B[n,k]))*sum[k](A[m,k]*C[n,k])", {"C": (136, 72)}, {}, "once for each product"),
        ("sum[k](A[g,m,k]*B[g,n,k])", {"A": (2, 130, 72), "B": (2, 136, 72)}, {}, "a batch"),
        ("sum[k](A[m,k]*B[n,k])", {"B": (132, 72), "D": (40, 132)}, {}, "padded"),
    ],
)
def test_every_law_is_told(text: str | None, shapes: Shapes | None, how: dict[str, Any], why: str) -> None:
    first, second, own = CASES["rows"]
    found, *_ = planned(f"return z = sum[n]({text or first}*{second})", {**own, **(shapes or {})}, **how)
    before = next(p for p in found.before if p.maps)
    assert before.vendor is None and any(why in line and "not left" in line for line in lines(before)), lines(before)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    ("text", "shapes", "why"),
    [
        ("x[b,h+r-1,w+s-1,c]*U[r,s,c,n]", {"U": (3, 3, 16, 24)}, "do not lie together"),
        ("x[b,h+r-1,w+s-1,c]*U[n,s,r,c]", {}, "do not lie together"),
        ("x[h+r-1,w,c]*U[n,r,c]", {"x": (16, 15, 16), "U": (24, 3, 16)}, None),
        ("x[b,w+r-1,c]*U[n,r,c]", {"x": (16, 15, 16), "U": (24, 3, 16)}, "dimensions"),
        ("x[b,2*h+r,w+s-1,c]*U[n,r,s,c]", {"x": (9, 8, 5, 16)}, None),
    ],
)
def test_windows_that_a_library_would_copy_stay(text: str, shapes: Shapes, why: str | None) -> None:
    taps = ",".join(a for a in "rs" if f",{a}" in text or f"[{a}," in text)
    found, *_ = planned(f"return z = sum[n](relu(sum[{taps},c]({text}))*V[m,n])", {**CASES["windows"][2], **shapes})
    (before,) = found.before
    assert (before.vendor is None) == (why is not None), lines(before)
    assert why is None or why in lines(before)[0]


@pytest.mark.usefixtures("eager")
def test_what_is_asked_for_by_name_and_single_products_stay() -> None:
    found, *_ = chain("rows", schedule="tensor")
    assert [p.vendor for p in (found, *found.before)] == [None, None]
    alone = plan(
        ra.derive_incremental(ra.parse("return z = sum[k](A[m,k]*B[n,k])")),
        dict.fromkeys("AB", "bfloat16"),
        {"A": View.contiguous((3000, 72)), "B": View.contiguous((136, 72))},
        H100,
        library="torch",
    )
    assert alone.vendor is None and not lines(alone)


def test_the_way_that_is_predicted_to_be_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours within the margin, the library's beyond it; `explain` has both times and the break-even."""
    sizes = {"A": (4096, 768), "B": (3072, 768), "D": (768, 3072)}
    first, second, _ = CASES["rows"]
    text = f"return z = sum[n]({first}*{second})"
    own, *_ = planned(text, sizes, whose="")
    alone = own.choice.seconds - own.before[0].choice.seconds
    for share, left in ((0.99 / library.MARGIN, True), (1.01 / library.MARGIN, False)):
        monkeypatch.setattr(library, "seconds", lambda *given, share=share: share * alone)
        found, *_ = planned(text, sizes)
        assert (found.vendor is not None) == left
        (line,) = [line for line in lines(found) if not line.startswith("before it")]
        assert line.startswith("left to cuBLAS (torch.mm" if left else "not left to cuBLAS: ")
        assert f"{alone * 1e6:.1f} µs for a kernel of ours" in line and "rows" in line.rsplit(";", 1)[1]
        assert (found.choice.seconds - found.before[0].choice.seconds < alone * 0.999) == left
        assert said(found.vendor).startswith("# Not launched") == left
    again, *_ = planned(text, sizes)
    assert again.choice == found.choice


def test_flags_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums stay in float32 during the call, whatever PyTorch's flags were, and also where the call fails."""
    flags, seen = torch.backends.cuda.matmul, []
    usual = getattr(flags, ROUNDED[0])
    setattr(flags, ROUNDED[0], True)
    made = Vendor(Lying("a", (2, 3), (3, 1)), Lying("b", (3, 4), (4, 1)), "y", (2, 4))
    run = Product(made, ["a", "b"], [("y", (2, 4))])
    product = torch.mm

    def watched(left: Any, right: Any, out: Any) -> None:
        seen.append([getattr(flags, name, False) for name in ROUNDED])
        product(left, right, out=out)
        if len(seen) > 1:
            raise ValueError

    monkeypatch.setattr(torch, "mm", watched)
    out = [torch.zeros(8)]
    run.run([torch.ones(2, 3), torch.ones(3, 4)], out, None, True)
    assert (out[0] == 3).all()
    with pytest.raises(ValueError):
        run.run([torch.ones(2, 3), torch.ones(3, 4)], out, None, True)
    back = getattr(flags, ROUNDED[0])
    setattr(flags, ROUNDED[0], usual)
    assert seen == [[False] * len(ROUNDED)] * 2 and back
