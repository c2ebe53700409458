"""Kernels without columns, run by emulation (`tensor_emulated`): positions, lists of the largest, masks as bits.

Logits are sums of products of small whole numbers, exact in every type, with many ties: what is found has to be what
the definition says. `tests/deep/kernels/gpu/test_gpu_tensor_logits.py` runs the same kernels on a GPU.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.errors import RedalgError
from redalg.kernels.ir.program import Module
from redalg.kernels.launch.ptx import assemble, ptxas
from redalg.kernels.pipeline import mma_tiles
from redalg.kernels.schedule.target import A100, H200
from redalg.kernels.tile.level.cascade_print import emit_merge, emit_tensor
from redalg.kernels.tile.match import Class
from redalg.kernels.tile.plan import TensorPlan, long_plan
from tests.support.tensor_cases import class_of, form_of, views_of
from tests.support.tensor_emulated import Emulated

needs_ptxas = pytest.mark.skipif(ptxas() is None, reason="ptxas is not installed (the package nvidia-cuda-nvcc)")
LOGITS = "s = sum[d](H[i,d]*K[j,d]); "
SPECS = {
    "argmax": LOGITS + "return x = argmax[j](s)",
    "argmin": LOGITS + "return x = argmin[j](s)",
    "of a multiple": LOGITS + "return x = argmax[j](s/8), m = max[j](s/8)",
    "with a bias": "tensors b[j]; " + LOGITS + "return x = argmax[j](s + b[j])",
    "two": LOGITS + "return v = topk[j:2:c](s).values, x = topk[j:2:c](s).indices",
    "five": LOGITS + "return v = topk[j:5:c](s).values, x = topk[j:5:c](s).indices",
    "eight": LOGITS + "return v = topk[j:8:c](s).values, x = topk[j:8:c](s).indices",
    "masked by row": "tensors seen[i,j] bool; " + LOGITS + "u = where(seen[i,j], s, -oo); "
    "return v = topk[j:3:c](u).values, x = topk[j:3:c](u).indices",
    "masked": "tensors seen[j] bool; " + LOGITS + "return x = argmax[j](where(seen[j], s, -oo))",
    "of a part": "tensors n integer; " + LOGITS + "return x = argmax[j](where(index[j] < n, s, -oo))",
    "of the end": "tensors n integer; " + LOGITS + "u = where(n <= index[j], s, -oo); "
    "return x = argmax[j](u), y = topk[j:3:c](u).indices",
    "a maximum of some": "tensors seen[j] bool; " + LOGITS + "return y = max[j](where(seen[j], s, -oo))",
    "a sum of some": "tensors seen[j] bool; " + LOGITS + "return y = sum[j](where(seen[j], relu(s), 0))",
    "splade": "tensors seen[j] bool, c[i]; " + LOGITS + "return y = max[j](where(seen[j], relu(s + c[i]), 0))",
}
VOTED = {"masked", "of a part", "of the end", "a maximum of some", "splade"}


def prepared(text: str, i: int, j: int, d: int = 8) -> tuple[Class, TensorPlan, dict[str, int]]:
    made = class_of(text)
    sizes = {"i": i, "j": j, "d": d} | made.program.lengths
    made, plan = long_plan(made, sizes, d)
    return made, plan, sizes


def drawn(made: Class, sizes: dict[str, int], seed: int = 1) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    found: dict[str, Any] = {}
    for o in made.program.operands:
        shape = tuple(sizes[a] for a in o.axes)
        if o.number:
            found[o.name] = sizes["j"] // 2
        elif o.dtype == "bool":
            found[o.name] = rng.random(shape) < 0.6
        else:
            found[o.name] = rng.integers(-2, 3, shape).astype(np.float32)
    return found


def exact(
    name: str, j: int, i: int = 70, given: dict[str, Any] | None = None, old: str = "", new: str = "", splits: int = 1
) -> None:
    """Two groups of rows of every tile beside the definition; `old` and `new`: a mistake to make."""
    made, plan, sizes = prepared(SPECS[name], i, j)
    quads = Emulated(made, replace(plan, splits=splits), drawn(made, sizes) | (given or {}), splits)
    assert (quads.size == 32) == (name in VOTED)
    if old:
        text = quads.module.source
        assert old in text
        quads.module = Module(
            text.replace(old, new), *[getattr(quads.module, f) for f in ("entry", "params", "threads", "shared")]
        )
    beside(name, quads, [(0, 0, 0), (1, 0, 0)], [0, 8, 64, 72])


def beside(name: str, quads: Emulated, places: list[tuple[int, int, int]], first: list[int]) -> None:
    """The rows of some quads, or warps, beside the definition."""
    found, spec = quads.run(places), form_of(SPECS[name]).spec
    arrays = {n: a.astype(float) if np.asarray(a).dtype.kind == "f" else a for n, a in quads.given.items()}
    true = ra.reference(spec, **arrays)
    true = true if isinstance(true, dict) else {next(iter(spec.outputs)): true}
    rows = [x + k for x in first for k in range(8 if quads.size == 32 else 1) if x + k < quads.sizes["i"]]
    for output, value in true.items():
        np.testing.assert_array_equal(found[output][rows], np.asarray(value, float)[rows], err_msg=output)


@pytest.mark.parametrize("j", [1, 127, 300])
@pytest.mark.parametrize("name", SPECS)
def test_positions_lists_and_masks(name: str, j: int) -> None:
    exact(name, j)


@pytest.mark.parametrize("splits, j", [(2, 300), (3, 900)])
@pytest.mark.parametrize("name", ["argmax", "of a multiple", "five", "of the end", "a sum of some"])
def test_splits_of_the_stream(name: str, splits: int, j: int) -> None:
    """Unequal ones, also of equal logits."""
    made, _, sizes = prepared(SPECS[name], 9, j)
    exact(name, j, 9, splits=splits)
    if splits == 2:
        exact(name, j, 9, {"H": 0 * drawn(made, sizes)["H"]}, splits=splits)


@pytest.mark.parametrize("name", SPECS)
def test_tiles_of_mma(name: str) -> None:
    made, changes = class_of(SPECS[name]), {"tall": 1, "warps": 4} if name in ("argmin", "masked") else {}
    sizes = {"i": 70, "j": 140, "d": 72} | made.program.lengths
    made, plan = mma_tiles(made, sizes, views_of(made.program, sizes), A100, deterministic=True)
    plan = replace(plan, **changes)
    quads = Emulated(made, plan, drawn(made, sizes))
    wide = 16 * plan.tall
    first = [8 * k + wide * warp + t for t in (0, plan.rows) for warp in (0, 3) for k in range(plan.held)]
    beside(name, quads, [(-1, 0, 0), (-1, 3, 0)], first)


@pytest.mark.parametrize("name", [n for n in SPECS if n != "a sum of some"])
def test_ties_nan_and_infinities(name: str) -> None:
    made, _, sizes = prepared(SPECS[name], 70, 300)
    arrays = drawn(made, sizes, 2)
    arrays["H"][:, 3], arrays["K"][[5, 6, 280], 3] = np.abs(arrays["H"][:, 3]) + 1, np.inf
    exact(name, 300, given=arrays)
    arrays["K"][[6, 281, 299], 3] = -np.inf
    arrays["K"][[7, 290], 4] = np.nan
    exact(name, 300, given=arrays)
    exact(name, 300, given=arrays | {"H": 0 * np.nan_to_num(arrays["H"]), "K": np.ones_like(arrays["K"])})


@pytest.mark.parametrize(
    "name", ["masked", "masked by row", "of a part", "of the end", "a maximum of some", "a sum of some"]
)
def test_rows_that_see_little_or_nothing(name: str) -> None:
    made, _, sizes = prepared(SPECS[name], 70, 300)
    arrays = drawn(made, sizes)
    for count in (0, 2):
        if "n" in arrays:
            exact(name, 300, given={"n": 300 - count if name == "of the end" else count})
            continue
        arrays["seen"][:] = False
        arrays["seen"][..., 270 : 270 + count] = True
        exact(name, 300, given=arrays)


WRONG = [
    ("argmax", "(best >= ", "(best > "),
    ("argmax", "| (best != best)", ""),
    ("argmax", "in_bounds = i_j < size_j", "in_bounds = True"),
    ("eight", "(not has_bit(taken[k >> 5], k & 31)) & ", ""),
    ("masked", "bits[word] = (", "bits[0] = ("),
    ("a maximum of some", ">> np.uint32(2 * (lane & 3))", ""),
]


@pytest.mark.parametrize("case", WRONG, ids=[f"{name}: {new or 'without'}" for name, _, new in WRONG])
def test_a_kernel_with_a_mistake_is_noticed(case: tuple[str, str, str]) -> None:
    name, old, new = case
    made, _, sizes = prepared(SPECS[name], 70, 300)
    arrays = drawn(made, sizes)
    arrays["K"][[3, 290], 4] = np.nan if "!=" in old else 2
    arrays["H"] *= ">=" not in old  # ties alone
    arrays["H"] -= 10 * ("in_bounds" in old)  # logits of what is not there are 0, above those that are
    arrays["K"] = np.abs(arrays["K"]) + 1 if "in_bounds" in old else arrays["K"]
    exact(name, 300, given=arrays)
    with pytest.raises((AssertionError, RedalgError)):
        exact(name, 300, given=arrays, old=old, new=new)


# --- assembly --------------------------------------------------------------------------------------------------------


@needs_ptxas
@pytest.mark.parametrize("name", ["two", "splade"])
def test_everything_is_in_registers(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Also of blocks of 256 columns, and of the kernel that merges splits."""
    monkeypatch.setenv("REDALG_CACHE_DIR", str(tmp_path))
    made, plan, sizes = prepared(SPECS[name], 512, 5000, 256)
    assert plan.columns == 256 and views_of(made.program, sizes)
    for module in (emit_tensor(made, plan), emit_merge(made, replace(plan, splits=4))):
        found = assemble(module, H200.cc)
        assert found.spill_stores == found.spill_loads == found.stack == 0
