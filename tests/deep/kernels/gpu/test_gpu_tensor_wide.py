"""Latent attention and splits of the stream with columns, on a GPU against the definition in float64."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.errors import RedalgError
from tests.deep.kernels.gpu.test_gpu_tensor import LEAST, UNIT, by_name, hopper, host  # noqa: F401
from tests.support.tensor_cases import form_of
from tests.support.tensor_wide_cases import BIASED, LATENT, PLAIN, ROPE, WINDOW

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")
LENGTHS = (1, 7, 63, 65, 127, 129, 1000, 4097)


def drawn(text: str, kind: str = "bfloat16", seed: int = 5, **sizes: int) -> dict[str, Any]:
    generator = torch.Generator("cuda").manual_seed(seed)
    found: dict[str, Any] = {}
    for t in form_of(text).spec.tensors:
        shape = tuple(sizes[a] for a in t.axes)
        real = torch.float32 if t.name == "bias" else getattr(torch, kind)
        if not t.axes:
            found[t.name] = 150 if "integer" in t.domain else 0.06
        else:
            found[t.name] = torch.randn(shape, device="cuda", generator=generator).to(real)
    return found


def agree(text: str, found: Any, arrays: dict[str, Any], kind: str = "bfloat16") -> None:
    """|Σ pV/l - true| ≤ (rounding of weights + what exponents are off by + float32 sums)·Σ p|V|/l, what vanishes below
    the least number of the type, and the result's rounding; exponents are off by 2^-23·(terms + 16)·Σ|q||k|."""
    spec, known = form_of(text).spec, {n: host(x) for n, x in arrays.items()}
    true, ours = by_name(spec, ra.reference(spec, **known)), by_name(spec, found)
    values = "V" if "V" in known else "C"
    off, terms = 0.0, 16
    for q, k in (("Q", "C" if "C" in known else "K"), ("Qr", "Kr")):
        if q in known:
            terms += known[q].shape[-1]
            norms = (np.nan_to_num(np.linalg.norm(known[n], axis=-1), posinf=0).max() for n in (q, k))
            off += float(prod(norms))
    off = 2.0**-23 * terms * (off * known.get("scale", 1.0) + np.abs(known.get("bias", 0.0)).max())
    stream, largest = known[values].shape[-2], np.abs(known[values][np.isfinite(known[values])]).max()
    for name, value in ours.items():
        a, b = np.asarray(host(value)), np.asarray(true[name])
        unit = UNIT[str(value.dtype).removeprefix("torch.")]
        if name == "O":
            most = (UNIT[kind] + 2 * off + 2.0**-24 * (stream + 64)) * largest
            most = np.full(b.shape, most + stream * LEAST[kind] * largest)
        else:
            most = 2 * off + 2.0**-24 * (stream + 64) * (1 + np.abs(b))
        np.testing.assert_array_equal(np.isnan(a), np.isnan(b), err_msg=name)
        finite = np.isfinite(b)
        np.testing.assert_array_equal(a[~finite], b[~finite], err_msg=name)
        excess = np.abs(a[finite] - b[finite]) / (most * (1 + unit) + unit * np.abs(b))[finite]
        assert excess.size == 0 or excess.max() <= 1, f"{name}: {excess.max():.3g} times the bound"


def run_of(text: str, schedule: str | None = "tensor", **options: Any) -> Any:
    return form_of(text).compile("cuda", schedule=schedule, **options)


@pytest.mark.parametrize("j", LENGTHS)
@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_latent_attention(kind: str, j: int) -> None:
    arrays = drawn(LATENT, kind, b=3, h=70 if j % 2 else 128, c=512, r=64, j=max(j, 2))
    run = run_of(LATENT)
    found = run(**arrays)
    assert "256 columns each" in run.explain() and "C is loaded once" in run.explain()
    agree(LATENT, found, arrays, kind)


@pytest.mark.parametrize("spread", [1, 64])
def test_latent_attention_with_an_anchor_that_stays(spread: int) -> None:
    arrays = drawn(LATENT, b=2, h=70, c=512, r=64, j=777)
    arrays |= {"Q": arrays["Q"] * spread, "Qr": arrays["Qr"] * spread}
    agree(LATENT, run_of(LATENT, "frozen_max")(**arrays), arrays)


@pytest.mark.parametrize("lengths", [(17, 300), (130, 65), (333, 333), (200, 1500)], ids=str)
@pytest.mark.parametrize("text", [PLAIN, ROPE, BIASED, WINDOW], ids=["plain", "rope", "biased", "window"])
def test_other_sums_of_contractions(text: str, lengths: tuple[int, int]) -> None:
    wide = text in (PLAIN, WINDOW)
    sizes = {"d": 576, "e": 384, "c": 384} if wide else {"d": 72, "r": 40, "e": 128}
    arrays = drawn(text, b=2, h=lengths[0], j=lengths[1], **sizes)
    run = run_of(text)
    agree(text, run(**arrays), arrays)
    assert ("columns each" in run.explain()) == wide


def test_special_values() -> None:
    """A key that is NaN, and one that is infinite; a row of zeros; ties of all scores."""
    arrays = drawn(PLAIN, b=4, h=70, j=200, d=576, e=384)
    arrays["K"][0, 60] = float("nan")
    arrays["V"][1, 70, 3] = float("inf")
    arrays["Q"][2, 5] = 0
    arrays["K"][3] = arrays["K"][3, :1]
    agree(PLAIN, run_of(PLAIN)(**arrays), arrays)


@pytest.mark.parametrize("h", [1, 5, 64, 65])
@pytest.mark.parametrize("text", [LATENT, ROPE, BIASED], ids=["latent", "rope", "biased"])
def test_splits_of_the_stream(text: str, h: int) -> None:
    """Few rows and a long stream; where rows see little of it (causal) most splits are empty."""
    sizes = {"c": 512, "r": 64} if text == LATENT else {"d": 128, "r": 64, "e": 128}
    arrays = drawn(text, b=1, h=h, j=3001, **sizes)
    run = run_of(text)
    found = run(**arrays)
    assert "splits; a second kernel merges" in run.explain()
    agree(text, found, arrays)


def test_the_same_bits_for_any_batch() -> None:
    """A row's bits do not depend on how many rows there are, with deterministic=True; splits follow from that."""
    arrays = drawn(LATENT, b=3, h=128, c=512, r=64, j=3001)
    run = run_of(LATENT, deterministic=True)
    found = run(**arrays)
    assert "splits; a second kernel" not in run.explain()
    few = {n: x if not hasattr(x, "shape") else x[1:2, 60:77] if n[0] == "Q" else x[1:2] for n, x in arrays.items()}
    few = {n: x.contiguous() if hasattr(x, "shape") else x for n, x in few.items()}
    assert torch.equal(run(**few), found[1:2, 60:77])


def test_one_warpgroup_has_few_rows_the_same_bits() -> None:
    arrays = drawn(ROPE, b=2, h=300, j=700, d=128, r=64, e=128)
    run = run_of(ROPE, deterministic=True)
    found = run(**arrays)
    few = {n: x[:1, :40].contiguous() if n[0] == "Q" else x for n, x in arrays.items()}
    few = {n: x[:1].contiguous() if hasattr(x, "shape") else x for n, x in few.items()}
    assert torch.equal(run(**few), found[:1, :40])


def test_lanes_that_two_warpgroups_cannot_halve_are_refused() -> None:
    with pytest.raises(RedalgError, match="fits registers and shared memory"):
        run_of(PLAIN)(**drawn(PLAIN, b=1, h=64, j=500, d=64, e=320))
