"""Matrix products with a cascade on their input on a GPU, against their definitions in float64, within derived bounds.

With u the unit roundoff of a format and M = Σ_j |L|·|R|: an operand that is rounded adds u·M; products of 16 bits are
added in float32, where every instruction may truncate: K·2^-22·M. Sums of float8 products are kept to 13 bits after the
point of the largest term by an instruction that adds 32 terms to a sum, four of them for a chunk of 128:
4·33·2^-13·M. Statistics in float32 add K·2^-23 of M, results their own rounding.
"""

from __future__ import annotations

from typing import Any

import pytest

from redalg.errors import RedalgError
from redalg.kernels.launch import driver
from tests.support.gemm_cases import BATCHED, BIASED, PLAIN, SCALED, form_of
from tests.support.gpu_calls import replayed

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not driver.available(), reason="no GPU")]
torch: Any = pytest.importorskip("torch")
E4M3 = "float8_e4m3fn"
ROUNDING = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24, E4M3: 2.0**-4}
EIGHT = 4 * 33 * 2.0**-13
EDGES = (1, 7, 63, 65, 127, 1000)


@pytest.fixture(autouse=True)
def _nine() -> None:
    if driver.target_of(0).cc != (9, 0):
        pytest.skip("tensor cores of compute capability 9.0")


def drawn(text: str, sizes: dict[str, int], kind: str = "bfloat16", major: str = "", **others: str) -> dict[str, Any]:
    """Normal numbers; the tensor named `major` lies with its last two axes exchanged."""
    torch.manual_seed(sum(map(ord, text)) + sum(sizes.values()))
    found: dict[str, Any] = {}
    for t in form_of(text).spec.tensors:
        if not t.axes:
            found[t.name] = 1e-5
            continue
        shape = [sizes[a] for a in t.axes]
        dtype = getattr(torch, others.get(t.name, kind))
        if t.name == major:
            found[t.name] = torch.randn(*shape[:-2], shape[-1], shape[-2], device="cuda").to(dtype).transpose(-1, -2)
        else:
            found[t.name] = torch.randn(shape, device="cuda").to(dtype)
    return found


def eight(x: Any) -> Any:
    return x.clamp(-448, 448).to(torch.float8_e4m3fn).double()


def truth(text: str, a: dict[str, Any]) -> tuple[Any, Any, Any]:
    """The result, Σ|L|·|R| as it enters it, and what casts may differ by that are next to a tie."""
    d = {n: v.double() if torch.is_tensor(v) else v for n, v in a.items()}
    x, w, near = d["x"], d.get("w", d.get("W")), 0.0
    top = x.abs().amax(-1, keepdim=True)
    if text == "fp8_per_token_gemm":
        q, c = 448 * x / top, top / 448
        near = ((eight((q * (1 + 2**-21)).float()) - eight((q * (1 - 2**-21)).float())).abs() @ w.abs()) * c
        q = eight(q.float())
        return (q @ w) * c, (q.abs() @ w.abs()) * c, near
    if text == "absmax_int8_gemm":
        b = w.abs().amax(0, keepdim=True)
        q, r = 127 * x / top, 127 * w / b
        loose = [((v * (1 + 2**-21)).round() - (v * (1 - 2**-21)).round()).abs() for v in (q, r)]
        near = (loose[0] @ r.abs() + q.abs() @ loose[1] + loose[0] @ loose[1]) * top * b / 127**2
        q, r = q.round(), r.round()
        return (q @ r) * top * b / 127**2, (q.abs() @ r.abs()) * top * b / 127**2, near
    if text == "layer_norm_gemm":
        c = x - x.mean(1, keepdim=True)
        left = c / (c.square().mean(1, keepdim=True) + d["eps"]).sqrt() * d["weight"] + d["bias"]
    elif text == "rms_norm_gemm":
        left = x / (x.square().mean(1, keepdim=True) + d["eps"]).sqrt() * d["weight"]
    elif text == "zero_point_gemm":
        low, high = x.amin(1, keepdim=True), x.amax(1, keepdim=True)
        left = 255 * (x - low) / (high - low)
    elif text == BIASED:
        y, m = x @ w, x.abs() @ w.abs()
        return torch.relu(y * d["s"][:, None] + d["c"]), m * d["s"].abs()[:, None] + d["c"].abs(), near
    else:
        left = x
    return left @ w, left.abs() @ w.abs(), near


def agree(text: str, found: Any, a: dict[str, Any]) -> None:
    """Within the bound; NaN and infinities where the definition has them."""
    if isinstance(found, dict):
        found = found["z"]
    true, size, near = truth(text, a)
    w = a.get("w", a.get("W"))
    length = a["x"].shape[-1]
    kinds = {str(v.dtype).split(".")[-1] for v in (a["x"], w)}
    u = 0.0 if text in (PLAIN, BATCHED, SCALED, BIASED) else ROUNDING["float16" if "float16" in kinds else "bfloat16"]
    u = 0.0 if text in ("fp8_per_token_gemm", "absmax_int8_gemm") else u
    adding = EIGHT if str(w.dtype).endswith(E4M3) else length * 2.0**-22
    own = ROUNDING[str(found.dtype).split(".")[-1]]
    bound = size * (u + adding + (length + 64) * 2.0**-23) + near + own * true.abs() + 1e-30
    bound = bound + (2.0**-10 if own == ROUNDING[E4M3] else 0.0)  # half of the least float8
    bad = ~((found.double() - true).abs() <= bound * 1.01)
    bad &= ~(found.double().isnan() & true.isnan()) & (found.double() != true)
    assert not bad.any(), f"{int(bad.sum())} of {bad.numel()}: {found[bad][:3]} for {true[bad][:3]}"


def run_of(text: str, schedule: Any = "tensor") -> Any:
    return form_of(text).compile("cuda", schedule=schedule)


def check(text: str, sizes: dict[str, int], schedule: Any = "tensor", **options: Any) -> None:
    arrays = drawn(text, sizes, **options)
    agree(text, run_of(text, schedule)(**arrays), arrays)


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "plain bf16": (PLAIN, {}),
    "plain fp16": (PLAIN, {"kind": "float16"}),
    "plain major": (PLAIN, {"major": "w"}),
    "left major": (PLAIN, {"major": "x"}),
    "plain fp8": (PLAIN, {"kind": E4M3, "major": "w"}),
    "batched": (BATCHED, {}),
    "several rows": (SCALED, {}),
    "two results": (BIASED, {}),
    "float32 results": (BIASED, {"s": "float32"}),
    "fp8 per token": ("fp8_per_token_gemm", {"w": E4M3, "major": "w"}),
    "fp8 per token, copied": ("fp8_per_token_gemm", {"w": E4M3}),
    "fp8 in bf16": ("fp8_per_token_gemm", {}),
    "layer norm": ("layer_norm_gemm", {}),
    "layer norm fp16": ("layer_norm_gemm", {"kind": "float16"}),
    "rms norm": ("rms_norm_gemm", {"major": "W"}),
    "zero point": ("zero_point_gemm", {}),
    "int8": ("absmax_int8_gemm", {}),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("sizes", [(256, 256, 256), (300, 200, 328), (1030, 520, 1032)])
def test_products_are_what_they_are_defined_as(name: str, sizes: tuple[int, int, int]) -> None:
    text, options = CASES[name]
    check(text, {"i": sizes[0], "j": sizes[1], "k": sizes[2], "b": 3}, **options)


@pytest.mark.parametrize("n", EDGES)
def test_lengths_that_divide_nothing(n: int) -> None:
    for text, options in ((PLAIN, {}), ("fp8_per_token_gemm", {"w": E4M3}), ("layer_norm_gemm", {})):
        if n > 1 or text != "layer_norm_gemm":
            check(text, {"i": n, "j": n, "k": n}, **options)
        check(text, {"i": 130, "j": max(n, 2), "k": 72}, **options)


def test_many_tiles_in_pairs_of_blocks() -> None:
    for text, options in (
        (PLAIN, {}),
        (PLAIN, {"major": "w"}),
        ("fp8_per_token_gemm", {"w": E4M3, "major": "w"}),
        ("rms_norm_gemm", {}),
        (PLAIN, {"kind": E4M3, "major": "w"}),
    ):
        sizes = {"i": 3000, "j": 6000, "k": 4104}  # rows of more terms than what is written by bulk copies instead
        arrays = drawn(text, sizes, **options)
        run = run_of(text)
        out = torch.full((3000, 4104), float("nan"), device="cuda", dtype=run(**arrays).dtype)
        agree(text, run(out=out, **arrays), arrays)
        assert run.planned.geometry.cluster == 2


def test_rows_of_zeros_infinities_and_nan_are_as_defined() -> None:
    """A row's numbers reach no other row."""
    for text, options in (("fp8_per_token_gemm", {"w": E4M3, "major": "w"}), ("rms_norm_gemm", {}), (PLAIN, {})):
        arrays = drawn(text, {"i": 140, "j": 128, "k": 136}, **options)
        clean = run_of(text)(**arrays)
        x = arrays["x"].clone()
        x[3], x[17, 5], x[64, 0], x[139, 127] = 0, float("nan"), float("inf"), -float("inf")
        found = run_of(text)(**arrays | {"x": x})
        rows = [i for i in range(140) if i not in (3, 17, 64, 139)]
        assert torch.equal(found[rows], clean[rows])
        assert found[17].isnan().all()
        if text == "fp8_per_token_gemm":
            assert found[3].isnan().all() and found[64].isnan().all()  # 0/0, inf/inf
        elif text == PLAIN:
            assert (found[3] == 0).all() and found[64].isinf().all()
        else:
            assert (found[3] == 0).all() and found[64].isnan().all()


def surrounded(arrays: dict[str, Any]) -> dict[str, Any]:
    """The same tensors with NaN before and behind them."""
    padded = {}
    for n, x in arrays.items():
        room = torch.full((x.numel() + 4096,), float("nan"), dtype=x.dtype, device="cuda")
        room[2048:-2048] = x.reshape(-1)
        padded[n] = room[2048:-2048].view(x.shape)
    return padded


def test_what_lies_beyond_the_tensors_is_not_seen() -> None:
    arrays = drawn(PLAIN, {"i": 130, "j": 72, "k": 200})
    assert torch.equal(run_of(PLAIN)(**surrounded(arrays)), run_of(PLAIN)(**arrays))


def test_the_same_bits_whatever_the_number_of_rows() -> None:
    for text, options in ((PLAIN, {}), ("fp8_per_token_gemm", {"w": E4M3, "major": "w"})):
        arrays = drawn(text, {"i": 1030, "j": 512, "k": 520}, **options)
        run = form_of(text).compile("cuda", deterministic=True)
        whole = run(**arrays)
        for n in (1, 64, 200):
            assert torch.equal(run(**arrays | {"x": arrays["x"][:n]}), whole[:n])


def test_streams_and_graphs() -> None:
    arrays = drawn("rms_norm_gemm", {"i": 256, "j": 256, "k": 256})
    agree("rms_norm_gemm", replayed(run_of("rms_norm_gemm"), arrays, "x", -2), arrays)


def test_outputs_beside_the_product() -> None:
    text = (
        "a = max[j](abs(x[i,j])); q = cast(448*x[i,j]/a, float8_e4m3fn); y = sum[j](q*w[j,k])*a; "
        "return y, a, q, t = sum[j](w[j,k])"
    )
    arrays = drawn(text, {"i": 300, "j": 256, "k": 264})
    found = run_of(text)(**arrays)
    assert list(found) == ["y", "a", "q", "t"]
    assert torch.equal(found["a"], arrays["x"].abs().amax(1))
    q = found["q"].double()
    assert torch.equal(eight(found["q"].float()), q)
    size = (q.abs() @ arrays["w"].double().abs()) * found["a"].double()[:, None]
    true = (q @ arrays["w"].double()) * found["a"].double()[:, None]
    assert ((found["y"].double() - true).abs() <= size * 256 * 2.0**-22 + 2.0**-8 * true.abs()).all()
    total = arrays["w"].double().sum(0)
    assert (
        (found["t"].double() - total).abs() <= 2.0**-8 * total.abs() + 2.0**-15 * arrays["w"].double().abs().sum(0)
    ).all()


def test_what_does_not_fit_is_refused_by_name_and_computed_otherwise() -> None:
    arrays = drawn(PLAIN, {"i": 40, "j": 50, "k": 60}, kind="float32")
    with pytest.raises(RedalgError) as error:
        run_of(PLAIN)(**arrays)
    assert "float32" in error.value.why and "tensor" in error.value.what
    found = run_of(PLAIN, None)(**arrays)
    assert torch.allclose(found.double(), arrays["x"].double() @ arrays["w"].double(), rtol=1e-4, atol=1e-4)
