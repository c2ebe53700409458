"""What printed kernels that convert their operands compute, run on the CPU by `tests/support/tensor_emulated.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.errors import RedalgError
from redalg.kernels.emulate.fragments import tf32
from redalg.kernels.ir.program import Module
from redalg.kernels.schedule.target import H200, L40S
from tests.deep.kernels.emulated.test_tensor_kernels import BATCH, SUM, bound, drawn
from tests.deep.kernels.emulated.test_tensor_mma_kernels import SHAPES, compare
from tests.deep.kernels.emulated.test_tensor_mma_types import TYPES, prepared
from tests.deep.kernels.print.test_tensor_class import INSIDE
from tests.support.tensor_cases import CLASS, form_of
from tests.support.tensor_emulated import Emulated


def judge(
    text: str, types: str, seed: int = 1, given: Mapping[str, Any] | None = None, spread: float = 1.0, **more: Any
) -> None:
    made, tiles, sizes = prepared(text, types, **more)
    arrays = drawn(made, sizes, seed, spread) | (given or {})
    compare(Emulated(made, tiles, arrays), arrays, text)


@pytest.mark.parametrize("types", ["tf32", "cache"])
@pytest.mark.parametrize("name", CLASS)
def test_every_kernel_of_the_catalog(name: str, types: str) -> None:
    judge(name, types)


@pytest.mark.parametrize("types", ["values", "all"])
@pytest.mark.parametrize("name", ["attention_alibi", "attention_relu", "attention_sink", "attention_softcap"])
def test_every_mixture_of_types(name: str, types: str) -> None:
    if (name, types) == ("attention_relu", "values"):
        assert prepared(name, types)[0].dtype == "bfloat16"
    judge(name, types)


@pytest.mark.parametrize("name", ["two masks", "scaled lanes", "output and lse", "keys are values"])
@pytest.mark.parametrize("types", ["tf32", "cache"])
def test_specs_of_their_own(name: str, types: str) -> None:
    judge(INSIDE[name], types)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: " ".join(map(str, s.values())))
@pytest.mark.parametrize("types", ["tf32", "cache", "all"])
def test_tiles_of_any_shape(types: str, shape: dict[str, Any]) -> None:
    judge("attention_causal", types, i=150, j=170, d=32, e=48, spread=0.5, **shape)
    judge("attention_scaled", types, i=40, j=70, d=32, e=48, given={"scale": -0.7}, **shape)


@pytest.mark.parametrize("i, j", [(1, 1000), (7, 127), (63, 65), (65, 63), (127, 64)])
@pytest.mark.parametrize("types", TYPES)
def test_lengths_that_divide_nothing(types: str, i: int, j: int) -> None:
    judge("attention_masked", types, i=i, j=j, d=256 if i < 10 else 48, e=32, seed=i)


@pytest.mark.parametrize("splits, j", [(2, 150), (5, 129)])
@pytest.mark.parametrize("types", TYPES)
def test_splits_of_the_stream(types: str, splits: int, j: int) -> None:
    judge("attention_with_lse", types, i=9, j=j, d=128, spread=0.5, splits=splits)
    judge("attention_window", types, i=9, j=j, d=128, e=48, spread=0.5, splits=splits)


@pytest.mark.parametrize("shape", SHAPES[::3], ids=lambda s: " ".join(map(str, s.values())))
@pytest.mark.parametrize("types", ["tf32", "cache", "all"])
def test_sums_of_contractions(types: str, shape: dict[str, Any]) -> None:
    judge(SUM, types, i=40, j=90, d=16, e=32, spread=0.5, **shape)


@pytest.mark.parametrize("d", [16, 80, 128])
@pytest.mark.parametrize("types", ["tf32", "cache", "all"])
def test_contractions_in_chunks(types: str, d: int) -> None:
    judge("splade", types, i=70, j=70, d=d, spread=0.5)
    if d == 80:
        judge("splade", types, target=L40S, i=70, j=150, d=d, spread=0.5, stages=3, warps=4)


@pytest.mark.parametrize("types", TYPES)
def test_infinite_scores_and_nan(types: str) -> None:
    bias = np.zeros((BATCH, 70, 150), np.float32)
    bias[:, 0], bias[:, 8, 3], bias[:, 53, :149], bias[1, 61, 0] = -np.inf, np.inf, -np.inf, np.nan
    judge("attention_bias", types, given={"bias": bias})
    judge("attention_masked", types, given={"mask": np.zeros((150,), bool)})


UNIT = 2.0**-11  # of tf32, and of float16


@pytest.mark.parametrize("name", ["attention_causal", "attention_with_lse"])
def test_rounding_to_tf32_stays_within_its_bound(name: str) -> None:
    """A score Σ q·k of rounded factors is off by at most (2·unit + unit²)·Σ|q||k| ≤ 2.01·unit·|q||k|, twice that enters
    a quotient of exponentials; weights and V are rounded once each. And it is not exact."""
    made, tiles, sizes = prepared(name, "tf32", i=70, j=300, d=32, e=32, tall=1, warps=4, in_registers=True)
    arrays = drawn(made, sizes, 7)
    found = Emulated(made, tiles, arrays, rounds=True).run([(-1, 0, 0), (-1, 3, 0)])
    true = ra.reference(form_of(name).spec, **{n: np.asarray(a, float) if np.ndim(a) else a for n, a in arrays.items()})
    true = true if isinstance(true, dict) else {"O": true}
    scale = arrays.get("scale", 1.0)
    length = np.linalg.norm(arrays["Q"], axis=-1).max() * np.linalg.norm(arrays["K"], axis=-1).max() * abs(scale)
    largest = np.abs(arrays["V"]).max()
    most = (4.02 * UNIT * length * np.exp(4.02 * UNIT * length) + 2.01 * UNIT) * largest + bound(made, arrays)
    rows = [0, 8, 48, 56]
    error = np.abs(found["O"][:, rows] - true["O"][:, rows]).max()
    assert 1e-5 < error <= most
    assert np.array_equal(tf32(np.float32([1 + 2.0**-11, 1 - 2.0**-12, -3.0])), [1 + 2.0**-10, 1, -3])


WRONG = [
    ("tf32", "values_at + read_at", "values_at"),
    ("tf32", "tf32_word(shared_load_f32(left_tile + 4 * k))", "shared_load_f32(left_tile + 4 * k)"),
    ("all", "sort_lanes(sums)", ""),
    ("cache", "Q_s1, size_i - ", "Q_s1, 99 + size_i - "),
    ("all", "| (sign_bits >> np.uint32(8))", ""),
    ("tf32", "sign_bits = sign_bits & np.uint32(0x80000000)", ""),
    ("cache", "sums[k] * rescale[(k >> 1) & 3]", "sums[k]"),
]


@pytest.mark.parametrize("case", WRONG, ids=[f"{types}: {new or 'without'}" for types, _, new in WRONG])
def test_a_kernel_with_a_mistake_is_noticed(case: tuple[str, str, str]) -> None:
    types, old, new = case
    made, tiles, sizes = prepared("attention_scaled", types, H200, i=200, j=300, d=32, e=32)
    arrays = drawn(made, sizes, 1) | {"scale": -0.7}
    quads = Emulated(made, tiles, arrays)
    text = quads.module.source
    assert old in text
    text = text.replace(old, new)
    quads.module = Module(text, *[getattr(quads.module, f) for f in ("entry", "params", "threads", "shared")])
    with pytest.raises((AssertionError, RedalgError)):
        compare(quads, arrays, "attention_scaled")
