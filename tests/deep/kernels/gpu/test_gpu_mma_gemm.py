"""Matrix products by mma.sync on a GPU, against their definitions in float64, within the bounds of
`tests.deep.kernels.gpu.test_gpu_tensor_gemm`.

Any device from compute capability 8.0 on runs them: by themselves where it is not 9.0, there as asked for.
"""

from __future__ import annotations

from typing import Any

import pytest

import redalg as ra
from redalg.kernels.gemm import mma_tiles
from redalg.kernels.gemm.mma_tiles import DEPTHS, SHAPES, Warps
from redalg.kernels.launch import driver
from tests.deep.kernels.gpu.test_gpu_tensor_gemm import CASES, EDGES, agree, drawn, surrounded
from tests.support.gemm_cases import BATCHED, BIASED, PLAIN, form_of
from tests.support.gpu_calls import replayed

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not driver.available(), reason="no GPU")]
torch: Any = pytest.importorskip("torch")
WGMMA = ("plain fp8", "fp8 per token", "fp8 per token, copied")  # float8 is multiplied by wgmma alone
MINE = [name for name in CASES if name not in WGMMA]
MAJOR = ("", "x", "w")


@pytest.fixture(autouse=True)
def _eight() -> None:
    if driver.target_of(0).cc < (8, 0):
        pytest.skip("mma.sync of compute capability 8.0 and later")


def run_of(text: str, **options: Any) -> Any:
    return form_of(text).compile("cuda", schedule="mma", **options)


def check(text: str, sizes: dict[str, int], **options: Any) -> None:
    arrays, run = drawn(text, sizes, **options), run_of(text)
    out = run(**arrays)
    assert "tensor cores by mma.sync" in run.explain() and not run.planned.maps
    agree(text, out, arrays)


@pytest.mark.parametrize("name", MINE)
@pytest.mark.parametrize("sizes", [(256, 256, 256), (300, 200, 328), (1030, 520, 1032)], ids=str)
def test_products_are_what_they_are_defined_as(name: str, sizes: tuple[int, int, int]) -> None:
    text, options = CASES[name]
    check(text, {"i": sizes[0], "j": sizes[1], "k": sizes[2], "b": 3}, **options)


@pytest.mark.parametrize("n", EDGES)
def test_lengths_that_divide_nothing(n: int) -> None:
    for major in MAJOR:
        check(PLAIN, {"i": n, "j": n, "k": n}, major=major)
        check(PLAIN, {"i": 130, "j": n, "k": 72}, major=major)
        check(BATCHED, {"i": 33, "j": 40, "k": n, "b": 5}, major=major)
        check(PLAIN, {"i": n, "j": 1, "k": 9}, major=major)


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_shape_of_a_tile(shape: Warps, depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mma_tiles, "SHAPES", (shape,))
    monkeypatch.setattr(mma_tiles, "DEPTHS", (depth,))
    monkeypatch.setattr(mma_tiles, "NARROW", 128)
    monkeypatch.setattr(mma_tiles, "READING", mma_tiles.REGISTERS)
    for text, major in ((PLAIN, ""), (PLAIN, "x"), (PLAIN, "w"), (BIASED, "")):
        check(text, {"i": 700, "j": 776, "k": 1032}, major=major)


def test_matrices_that_are_parts_of_others_are_read_in_place() -> None:
    """Rows of 16-byte multiples; what lies between them is NaN."""
    for major in MAJOR:
        arrays = drawn(PLAIN, {"i": 201, "j": 147, "k": 93}, major=major)
        for n, x in arrays.items():
            lines = x.transpose(-1, -2) if n == major else x
            room = torch.full((lines.shape[0], 256), float("nan"), dtype=x.dtype, device="cuda")
            room[:, : lines.shape[1]] = lines
            part = room[:, : lines.shape[1]]
            arrays[n] = part.transpose(-1, -2) if n == major else part
        run = run_of(PLAIN)
        agree(PLAIN, run(**arrays), arrays)
        assert not run.planned.before


def test_what_lies_beyond_the_tensors_is_not_seen() -> None:
    arrays = drawn(PLAIN, {"i": 130, "j": 72, "k": 200})
    assert torch.equal(run_of(PLAIN)(**surrounded(arrays)), run_of(PLAIN)(**arrays))


def test_rows_of_infinities_and_nan_reach_no_other_row() -> None:
    arrays = drawn(PLAIN, {"i": 140, "j": 128, "k": 136})
    clean, x = run_of(PLAIN)(**arrays), arrays["x"].clone()
    x[3], x[17, 5], x[64, 0] = 0, float("nan"), float("inf")
    found = run_of(PLAIN)(**arrays | {"x": x})
    rows = [i for i in range(140) if i not in (3, 17, 64)]
    assert torch.equal(found[rows], clean[rows]) and found[17].isnan().all()
    assert (found[3] == 0).all() and found[64].isinf().all()


def test_the_same_bits_in_every_call_and_whatever_the_number_of_rows() -> None:
    arrays = drawn(PLAIN, {"i": 1030, "j": 512, "k": 520})
    run = run_of(PLAIN, deterministic=True)
    whole = run(**arrays)
    assert all(torch.equal(run(**arrays), whole) for _ in range(5))
    for n in (1, 64, 200):
        assert torch.equal(run(**arrays | {"x": arrays["x"][:n]}), whole[:n])


def test_streams_and_graphs() -> None:
    arrays = drawn("rms_norm_gemm", {"i": 256, "j": 256, "k": 256})
    agree("rms_norm_gemm", replayed(run_of("rms_norm_gemm"), arrays, "x", -2), arrays)


def test_chains_are_one_kernel_after_the_other() -> None:
    text = "return y = sum[n](relu(sum[k](A[m,k]*B[k,n]))*D[n,l])"
    run = ra.derive_incremental(ra.parse(text), axis="n", max_passes=4).compile("cuda", schedule="mma")
    A, B, D = (torch.randn(s, device="cuda").bfloat16() for s in ((300, 264), (264, 520), (520, 136)))
    found = run(A=A, B=B / 16, D=D)
    hidden = torch.relu(A.double() @ (B / 16).double())
    bound = 2.0**-7 * (hidden @ D.double().abs()) + 1e-6
    assert ((found.double() - hidden @ D.double()).abs() <= bound).all()
    assert all("mma.sync" in p.choice.reasons[0] for p in (run.planned, *run.planned.before))
