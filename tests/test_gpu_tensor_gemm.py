"""Matrix products with a cascade on their input on a GPU, against their definitions in float64, within derived bounds.

With u the unit roundoff of a format and M = Σ_j |L|·|R|: an operand that is rounded adds u·M; products of 16 bits are
added in float32, where every instruction may truncate: K·2^-22·M. Sums of float8 products are kept to 13 bits after the
point of the largest term by an instruction that adds 32 terms to a sum, four of them for a chunk of 128:
4·33·2^-13·M. Statistics in float32 add K·2^-23 of M, results their own rounding.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gemm_cases import BATCHED, BIASED, PLAIN, SCALED, form_of
from gpu_calls import replayed

from redalg.errors import RedalgError
from redalg.kernels import driver
from redalg.kernels.cuda_run import Ready
from redalg.kernels.planning import plan

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
    "plain bf16": (PLAIN, {}), "plain fp16": (PLAIN, {"kind": "float16"}), "plain major": (PLAIN, {"major": "w"}),
    "left major": (PLAIN, {"major": "x"}), "plain fp8": (PLAIN, {"kind": E4M3, "major": "w"}),
    "batched": (BATCHED, {}), "several rows": (SCALED, {}), "two results": (BIASED, {}),
    "float32 results": (BIASED, {"s": "float32"}),
    "fp8 per token": ("fp8_per_token_gemm", {"w": E4M3, "major": "w"}),
    "fp8 per token, copied": ("fp8_per_token_gemm", {"w": E4M3}), "fp8 in bf16": ("fp8_per_token_gemm", {}),
    "layer norm": ("layer_norm_gemm", {}), "layer norm fp16": ("layer_norm_gemm", {"kind": "float16"}),
    "rms norm": ("rms_norm_gemm", {"major": "W"}), "zero point": ("zero_point_gemm", {}),
    "int8": ("absmax_int8_gemm", {}),
}  # fmt: skip


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
        (PLAIN, {}), (PLAIN, {"major": "w"}), ("fp8_per_token_gemm", {"w": E4M3, "major": "w"}),
        ("rms_norm_gemm", {}), (PLAIN, {"kind": E4M3, "major": "w"}),
    ):  # fmt: skip
        sizes = {"i": 3000, "j": 1000, "k": 4104}
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


def test_what_lies_beyond_the_tensors_is_not_seen() -> None:
    arrays = drawn(PLAIN, {"i": 130, "j": 72, "k": 200})
    padded = {}
    for n, x in arrays.items():
        room = torch.full((x.numel() + 4096,), float("nan"), dtype=x.dtype, device="cuda")
        room[2048:-2048] = x.reshape(-1)
        padded[n] = room[2048:-2048].view(x.shape)
    assert torch.equal(run_of(PLAIN)(**padded), run_of(PLAIN)(**arrays))


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


# --- one launch and two ----------------------------------------------------------------------------------------------


def two_launches(run: Any, arrays: dict[str, Any]) -> Any:
    """The same call with the rows prepared by a launch of their own, in the same order of additions."""
    run(**arrays)
    one = run._last
    assert len(one.planned.inside) == 1
    dtypes = {n: str(a.dtype).split(".")[-1] if torch.is_tensor(a) else type(a) for n, a in arrays.items()}
    made = plan(run.form, dtypes, one.views, driver.target_of(0), schedule="tensor", launches=2)
    assert len(made.before) == 1
    ready = Ready(run, one.framework, dtypes, arrays, "tensor", replace(made, before=one.planned.inside))
    return lambda a: ready([a[n] for n in run._names], None, None)


ONE: dict[str, tuple[str, dict[str, Any]]] = {
    "fp8 per token": ("fp8_per_token_gemm", {"w": E4M3, "major": "w"}), "layer norm": ("layer_norm_gemm", {}),
    "rms norm": ("rms_norm_gemm", {}), "right": (PLAIN, {"w": E4M3}), "copied": (PLAIN, {"major": "x"}),
    "batched": (BATCHED, {"x": E4M3}), "several rows": (SCALED, {"x": E4M3}),
}  # fmt: skip


@pytest.mark.parametrize("name", ONE)
def test_one_launch_and_two_give_the_same_bits(name: str) -> None:
    text, options = ONE[name]
    for i, j, k in ((256, 256, 256), (301, 200, 328), (1, 128, 64), (2050, 520, 1032), (5000, 64, 64)):
        arrays = drawn(text, {"i": i, "j": j, "k": k, "b": 3}, **options)
        run = run_of(text)
        other = two_launches(run, arrays)(arrays)
        for _ in range(5):
            assert torch.equal(run(**arrays), other)


def test_many_rounds_on_other_inputs() -> None:
    """Rows of the call before are never multiplied: every round has inputs of its own in the same memory."""
    text, options = ONE["fp8 per token"]
    arrays = drawn(text, {"i": 2048, "j": 512, "k": 1024}, **options)
    run = run_of(text)
    apart = two_launches(run, arrays)
    inputs = [torch.randn_like(arrays["x"]) for _ in range(8)]
    true = [apart(arrays | {"x": x}) for x in inputs]
    outs = [torch.empty_like(true[0]) for _ in range(200)]
    for n, out in enumerate(outs):
        run(out=out, **arrays | {"x": inputs[n % 8]})
    assert all(torch.equal(out, true[n % 8]) for n, out in enumerate(outs))


def test_streams_that_run_side_by_side() -> None:
    """Every stream counts in words of its own, and no grid starts before all of its blocks can run."""
    text, options = ONE["layer norm"]
    arrays = drawn(text, {"i": 700, "j": 512, "k": 520}, **options)
    run = run_of(text)
    inputs = [torch.randn_like(arrays["x"]) for _ in range(4)]
    true = [run(**arrays | {"x": x}).clone() for x in inputs]
    streams = [torch.cuda.Stream() for _ in inputs]
    torch.cuda.synchronize()
    found: list[Any] = [[] for _ in inputs]
    for _ in range(40):
        for n, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                found[n].append(run(**arrays | {"x": inputs[n]}))
    torch.cuda.synchronize()
    assert all(torch.equal(y, true[n]) for n in range(4) for y in found[n])


def test_graphs_are_replayed_beside_calls_and_each_other() -> None:
    for name in ("fp8 per token", "rms norm", "several rows"):
        text, options = ONE[name]
        arrays = drawn(text, {"i": 300, "j": 256, "k": 264, "b": 2}, **options)
        run = run_of(text)
        run(**arrays)
        inputs = [arrays["x"].clone() for _ in range(2)]
        graphs, results = [torch.cuda.CUDAGraph() for _ in inputs], []
        for graph, x in zip(graphs, inputs, strict=True):
            with torch.cuda.graph(graph):
                results.append(run(**arrays | {"x": x}))
        for scale in (2.0, -0.5, 4.0):
            fresh = [(arrays["x"].float() * scale * (n + 1)).to(arrays["x"].dtype) for n in range(2)]
            true = [run(**arrays | {"x": x}) for x in fresh]
            for x, new in zip(inputs, fresh, strict=True):
                x.copy_(new)
            torch.cuda.synchronize()
            sides = [torch.cuda.Stream() for _ in graphs]
            for _ in range(10):
                for graph, side in zip(graphs, sides, strict=True):
                    with torch.cuda.stream(side):
                        graph.replay()
                beside = run(**arrays | {"x": fresh[0]})
            torch.cuda.synchronize()
            assert all(torch.equal(y, z) for y, z in zip(results, true, strict=True)) and torch.equal(beside, true[0])


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
