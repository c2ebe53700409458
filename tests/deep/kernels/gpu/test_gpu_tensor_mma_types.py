"""Kernels by mma.sync that convert their operands, on a GPU, within the bounds of
`tests.deep.kernels.gpu.test_gpu_tensor`.

`tests/deep/kernels/emulated/test_tensor_mma_types.py` runs the printed kernels on the CPU,
`tests/kernels/emulated/test_tensor_lanes.py` the fragments.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.errors import RedalgError
from tests.deep.kernels.emulated.test_tensor_mma_types import E4M3, E5M2, TYPES, converted, inside
from tests.deep.kernels.gpu.test_gpu_tensor import OWN, agree, by_name, four, host, misaligned, run_of
from tests.deep.kernels.gpu.test_gpu_tensor import drawn as drawn_plain
from tests.deep.kernels.print.test_tensor_class import INSIDE
from tests.support.tensor_cases import CLASS, form_of

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")
SCHEDULE = {"tf32": "tf32", "cache": "tensor", "values": "tensor", "all": "mma"}
LENGTHS = [(7, 1000), (63, 65), (65, 127), (127, 63), (1000, 7), (200, 333), (1000, 1000)]


def drawn(text: str, types: str, *sizes: int, **more: Any) -> dict[str, Any]:
    arrays = drawn_plain(text, *sizes, kind="float32", **more)
    known = TYPES[types]
    return {n: x.to(getattr(torch, known[n])) if n in known else x for n, x in arrays.items()}


def rounds_to(text: str, types: str) -> str:
    """The type that weights are rounded to."""
    return converted(text, types).dtype


def judge(text: str, types: str, arrays: dict[str, Any]) -> None:
    run = run_of(text, SCHEDULE[types])
    found = run(**arrays)
    assert "tensor cores by mma.sync" in run.explain()
    agree(text, found, arrays, rounds_to(text, types))


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("name", CLASS)
def test_the_catalog(name: str, types: str, lengths: tuple[int, int]) -> None:
    if inside(name, types):
        pytest.skip(inside(name, types))
    judge(name, types, drawn(name, types, *lengths, 80, 80))


@pytest.mark.parametrize("types", ["tf32", "cache"])
@pytest.mark.parametrize("name", OWN)
def test_specs_of_their_own(name: str, types: str) -> None:
    if inside(INSIDE[name], types):
        pytest.skip(inside(INSIDE[name], types))
    judge(INSIDE[name], types, drawn(INSIDE[name], types, 200, 333))


HEADS = [(16, 16), (48, 32), (80, 80), (128, 128), (192, 128), (32, 208), (256, 256)]


@pytest.mark.parametrize("heads", HEADS, ids=str)
@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("name", ["attention_causal", "attention_bias"])
def test_lengths_of_heads(name: str, types: str, heads: tuple[int, int]) -> None:
    for lengths in ((130, 200), (300, 517)):
        judge(name, types, drawn(name, types, *lengths, *heads))


def test_heads_of_float32_that_are_no_multiple_of_16() -> None:
    for heads in ((8, 8), (24, 40), (40, 24)):
        judge("attention_causal", "tf32", drawn("attention_causal", "tf32", 130, 200, *heads))


@pytest.mark.parametrize("rows", [1, 5, 16, 17, 33, 64])
@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("name", ["attention_causal", "attention_window", "attention_with_lse"])
def test_few_rows_and_splits_of_the_stream(name: str, types: str, rows: int) -> None:
    arrays = drawn(name, types, rows, 4097, 128, 128)
    judge(name, types, arrays)
    run = run_of(name, SCHEDULE[types])
    run(**arrays)
    assert "splits" in run.explain()


@pytest.mark.parametrize("d", [16, 64, 80, 208, 768])
@pytest.mark.parametrize("types", ["tf32", "cache", "all"])
def test_contractions_in_chunks(types: str, d: int) -> None:
    for lengths in ((130, 200), (1000, 77)):
        judge("splade", types, drawn("splade", types, *lengths, d))
        judge(INSIDE["lse alone"], types, drawn(INSIDE["lse alone"], types, *lengths, d))


@pytest.mark.parametrize("scale", [-1.0, -0.125, 0.0, -0.0, 2.0])
@pytest.mark.parametrize("head", [64, 128, 256])
@pytest.mark.parametrize("types", TYPES)
def test_scales_of_either_sign(types: str, head: int, scale: float) -> None:
    for rows in (9, 130):
        arrays = drawn("attention_scaled", types, rows, 400, head, head) | {"scale": scale}
        judge("attention_scaled", types, arrays)


@pytest.mark.parametrize("types", TYPES)
def test_infinite_scores_and_nan(types: str) -> None:
    arrays = drawn("attention_bias", types, 130, 300)
    bias = arrays["bias"]
    bias[:, 0], bias[:, 1, :299], bias[:, 2, 5] = -np.inf, -np.inf, np.inf
    bias[1, 3, 7], bias[:, 4, 128:] = np.nan, -np.inf
    for name, at in (("Q", (0, 6, 3)), ("V", (1, 9, 11))):
        wide = arrays[name].float()
        wide[at] = float("nan")
        arrays[name] = wide.to(arrays[name].dtype)
    judge("attention_bias", types, arrays)
    arrays = drawn("attention", types, 130, 300)
    wide = arrays["K"].float()
    wide[0, 17, 5] = float("nan")
    arrays["K"] = wide.to(arrays["K"].dtype)
    found = run_of("attention", SCHEDULE[types])(**arrays)
    assert bool(torch.isnan(found[0].float()).all()) and not bool(torch.isnan(found[1].float()).any())


def test_infinities_of_e5m2_and_subnormal_numbers() -> None:
    arrays = drawn("attention", "all", 130, 300)
    wide = arrays["Q"].float()
    wide[0, 3, 7] = float("inf")
    arrays["Q"] = wide.to(torch.float8_e5m2)
    found = run_of("attention", "mma")(**arrays)
    assert bool(torch.isnan(found[0, 3].float()).all())
    for kind in (E4M3, E5M2):
        every = torch.arange(256, dtype=torch.uint8, device="cuda").view(getattr(torch, kind))
        finite = every[torch.isfinite(every.float())].float()
        small = finite[finite.abs() < 2.0**-5]
        arrays = drawn("attention", "cache", 130, 304)
        values = small.repeat(2 * 304 * 64 // small.numel() + 1)[: 2 * 304 * 64].view(2, 304, 64)
        arrays["V"] = values.to(getattr(torch, kind))
        agree("attention", run_of("attention", "mma")(**arrays), arrays, "float16")


def test_products_of_tf32_are_rounded_and_no_more() -> None:
    """Whole numbers of 11 bits are tf32: their products, and what is added of them, come out as float32 has them."""
    spec = INSIDE["maximum"]
    arrays = drawn(spec, "tf32", 130, 200)
    for name in "QK":
        arrays[name] = (arrays[name] * 300).round().clamp(-2047, 2047)
    run = run_of(spec, "tf32")
    found, true = run(**arrays), ra.reference(form_of(spec).spec, **{n: host(x) for n, x in arrays.items()})
    np.testing.assert_allclose(host(found), true, rtol=2.0**-22 * 64)


@pytest.mark.parametrize("types", TYPES)
def test_strided_operands(types: str) -> None:
    arrays = drawn("attention_causal", types, 200, 333)
    turned = {n: x.transpose(0, 1).contiguous().transpose(0, 1) if n in "QKV" else x for n, x in arrays.items()}
    whole = run_of("attention_causal", SCHEDULE[types])(**arrays)
    assert torch.equal(run_of("attention_causal", SCHEDULE[types])(**turned).float(), whole.float())


@pytest.mark.parametrize("types", TYPES)
def test_the_same_bits_every_time_and_for_any_number_of_rows(types: str) -> None:
    arrays = drawn("attention_causal", types, 517, 700)
    run = form_of("attention_causal").compile("cuda", schedule=SCHEDULE[types], deterministic=True)
    first = run(**arrays).float()
    assert all(torch.equal(first, run(**arrays).float()) for _ in range(20))
    for rows in (7, 33, 100):
        few = {n: x[:, :rows].contiguous() if n == "Q" else x for n, x in arrays.items()}
        assert torch.equal(run(**few).float(), first[:, :rows])


@pytest.mark.parametrize("types", TYPES)
def test_neighbours_of_the_operands_are_not_read(types: str) -> None:
    for name in ("attention_bias", "attention_masked"):
        arrays = drawn(name, types, 130, 197, 80, 48)
        given = {}
        for n, x in arrays.items():
            if not hasattr(x, "is_floating_point") or not x.is_floating_point():
                given[n] = x
                continue
            room = torch.full((x.numel() + 4096,), float("nan"), device="cuda").to(x.dtype)
            room[2048:-2048] = x.reshape(-1)
            given[n] = room[2048:-2048].view(x.shape)
        run = run_of(name, SCHEDULE[types])
        assert torch.equal(run(**given).float(), run(**arrays).float())


REFUSED: dict[str, tuple[str, str, Any, str]] = {
    "not float32": ("attention", "tf32", lambda: drawn_plain("attention", 130, 200), "float32"),
    "not asked for": ("attention", "tensor", lambda: drawn("attention", "tf32", 130, 200), 'schedule="tf32"'),
    "rows of 8 bits": ("attention", "mma", lambda: drawn("attention", "cache", 130, 200, 72), "16"),
    "a frozen maximum": ("attention", "frozen_max", lambda: drawn("attention", "cache", 130, 200), "registers"),
    "rows not aligned": ("attention", "mma", lambda: misaligned("attention"), "16"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_it_does_not_fit_is_refused_by_name_and_computed_otherwise(name: str) -> None:
    spec, schedule, make, word = REFUSED[name]
    arrays = make()
    with pytest.raises(RedalgError) as error:
        run_of(spec, schedule)(**arrays)
    four(error.value)
    assert schedule in error.value.what and word in error.value.why
    found = by_name(form_of(spec).spec, run_of(spec, None)(**arrays))["O"]
    true = ra.reference(form_of(spec).spec, **{n: host(x) for n, x in arrays.items()})
    np.testing.assert_allclose(host(found), true, rtol=2e-2, atol=2e-2 * np.abs(true).max())
