"""Kernels by mma.sync on a GPU against the definition in float64, within the bounds of
`tests.deep.kernels.gpu.test_gpu_tensor`.

Any device from compute capability 8.0 on runs them: by themselves where it is not 9.0, elsewhere because they are asked
for. `tests/deep/kernels/emulated/test_tensor_mma.py` holds what needs no GPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.errors import RedalgError
from tests.deep.kernels.emulated.test_tensor_kernels import SUM
from tests.deep.kernels.gpu.test_gpu_tensor import (
    KINDS,
    LENGTHS,
    OWN,
    agree,
    by_name,
    drawn,
    four,
    host,
    infinite_scores_and_nan,
    misaligned,
    rows_without_any_element,
    run_of,
)
from tests.deep.kernels.print.test_tensor_class import INSIDE
from tests.support.tensor_cases import CLASS, form_of, outside

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")
MMA = "mma"


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CLASS)
def test_the_catalog(name: str, kind: str, lengths: tuple[int, int]) -> None:
    if outside(name, kind):
        pytest.skip(outside(name, kind))
    arrays = drawn(name, *lengths, kind=kind)
    run = run_of(name, MMA)
    found = run(**arrays)
    assert "tensor cores by mma.sync" in run.explain()
    agree(name, found, arrays, kind)


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("lengths", [(65, 127), (200, 333)], ids=str)
def test_specs_of_their_own(name: str, lengths: tuple[int, int]) -> None:
    arrays = drawn(INSIDE[name], *lengths)
    agree(INSIDE[name], run_of(INSIDE[name], MMA)(**arrays), arrays)


HEADS = [(8, 8), (16, 16), (40, 24), (80, 80), (96, 96), (128, 128), (192, 128), (24, 200), (256, 256)]


@pytest.mark.parametrize("heads", HEADS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["attention_causal", "attention_bias", "attention_with_lse"])
def test_lengths_of_heads(name: str, kind: str, heads: tuple[int, int]) -> None:
    for lengths in ((130, 200), (300, 517)):
        arrays = drawn(name, *lengths, *heads, kind=kind)
        agree(name, run_of(name, MMA)(**arrays), arrays, kind)


@pytest.mark.parametrize("d", [8, 64, 72, 200, 768])
@pytest.mark.parametrize("lengths", [(130, 200), (1000, 77)], ids=str)
def test_contractions_in_chunks(lengths: tuple[int, int], d: int) -> None:
    arrays = drawn("splade", *lengths, d)
    agree("splade", run_of("splade", MMA)(**arrays), arrays)
    arrays = drawn(INSIDE["lse alone"], *lengths, d)
    agree(INSIDE["lse alone"], run_of(INSIDE["lse alone"], MMA)(**arrays), arrays)


@pytest.mark.parametrize("j", [130, 1000, 4097])
@pytest.mark.parametrize("name", ["attention_causal", "attention_window", "attention_with_lse", "attention_masked"])
def test_few_rows_and_splits_of_the_stream(name: str, j: int) -> None:
    arrays = drawn(name, 5, j, 128, 128)
    run = run_of(name, MMA)
    agree(name, run(**arrays), arrays)
    assert j < 1000 or "splits" in run.explain()


@pytest.mark.parametrize("scale", [-1.0, -0.125, 0.0, -0.0, 2.0])
@pytest.mark.parametrize("head", [64, 256])
@pytest.mark.parametrize("name", ["attention_scaled", "attention_causal", "attention_alibi"])
def test_scales_of_either_sign(name: str, head: int, scale: float) -> None:
    arrays = drawn(name, 130, 200, head, head) | {"scale": scale}
    agree(name, run_of(name, MMA)(**arrays), arrays)


@pytest.mark.parametrize("terms", [(64, 24), (40, 8), (16, 128)], ids=str)
@pytest.mark.parametrize("lengths", [(9, 1000), (130, 200)], ids=str)
def test_sums_of_contractions(lengths: tuple[int, int], terms: tuple[int, int]) -> None:
    arrays = drawn(SUM, *lengths, terms[0])
    for name, axis in (("A", 0), ("B", 1)):
        arrays[name] = torch.randn(2, lengths[axis], terms[1], device="cuda").to(torch.bfloat16) / 4
    run = run_of(SUM, MMA)
    agree(SUM, run(**arrays), arrays)
    assert "mma.sync" in run.explain()


def test_infinite_scores_and_nan() -> None:
    infinite_scores_and_nan(MMA)


def test_rows_without_any_element() -> None:
    rows_without_any_element(MMA)


@pytest.mark.parametrize("name", ["attention", "attention_causal", "attention_with_lse"])
def test_strided_operands(name: str) -> None:
    """Heads inside, parts of longer rows, one head for all: as the strides say."""
    arrays = drawn(name, 200, 333)
    turned = {n: x.transpose(0, 1).contiguous().transpose(0, 1) if n in "QKV" else x for n, x in arrays.items()}
    wide = {n: torch.cat([x, x], -1)[..., :64] if n in "QKV" else x for n, x in arrays.items()}
    plain = by_name(form_of(name).spec, run_of(name, MMA)(**arrays))
    for given in (turned, wide):
        found = by_name(form_of(name).spec, run_of(name, MMA)(**given))
        assert all(torch.equal(found[n], plain[n]) for n in plain)
    shared = {n: x[:1].expand(2, -1, -1) if n in "KV" else x for n, x in arrays.items()}
    agree(name, run_of(name, MMA)(**shared), shared)


def test_the_same_bits_every_time_and_for_any_number_of_rows() -> None:
    arrays = drawn("attention_causal", 517, 700)
    run = run_of("attention_causal", MMA)
    first = run(**arrays)
    assert all(torch.equal(first, run(**arrays)) for _ in range(20))
    few = {n: x[:, :33].contiguous() if n == "Q" else x for n, x in arrays.items()}
    assert torch.equal(run(**few), first[:, :33])


def test_neighbours_of_the_operands_are_not_read() -> None:
    """What lies beyond the tensors is NaN; nothing of it is seen."""
    for name in ("attention_bias", "attention_masked", "attention_alibi"):
        arrays = drawn(name, 130, 197, 72, 40)
        padded = {}
        for n, x in arrays.items():
            if not hasattr(x, "is_floating_point") or not x.is_floating_point():
                padded[n] = x
                continue
            room = torch.full((x.numel() + 4096,), float("nan"), dtype=x.dtype, device="cuda")
            room[2048:-2048] = x.reshape(-1)
            padded[n] = room[2048:-2048].view(x.shape)
        found = run_of(name, MMA)(**padded)
        assert torch.equal(found, run_of(name, MMA)(**arrays))
        agree(name, found, arrays)


def test_nothing_beyond_the_results_is_written() -> None:
    arrays = drawn("attention_causal", 130, 200)
    run = run_of("attention_causal", MMA)
    room = torch.full((2 * 130 * 64 + 64,), 7.0, dtype=torch.bfloat16, device="cuda")
    out = room[32:-32].view(2, 130, 64)
    assert run(**arrays, out=out) is out and torch.equal(out, run(**arrays))
    assert bool((room[:32] == 7).all()) and bool((room[-32:] == 7).all())


REFUSED: dict[str, tuple[str, Any, str]] = {
    "float32": ("attention", lambda: {n: x.float() for n, x in drawn("attention", 130, 200).items()}, "float32"),
    "rows not aligned": ("attention", lambda: misaligned("attention"), "16"),
    "heads too long": ("attention", lambda: drawn("attention", 64, 64, 512, 64), "256"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_it_does_not_fit_is_refused_by_name_and_computed_otherwise(name: str) -> None:
    spec, make, word = REFUSED[name]
    arrays = make()
    with pytest.raises(RedalgError) as error:
        run_of(spec, MMA)(**arrays)
    four(error.value)
    assert MMA in error.value.what and word in error.value.why
    found = host(run_of(spec, None)(**arrays))
    true = ra.reference(form_of(spec).spec, **{n: host(x) for n, x in arrays.items()})
    np.testing.assert_allclose(found, true, rtol=2e-2, atol=2e-2 * np.abs(true).max())
