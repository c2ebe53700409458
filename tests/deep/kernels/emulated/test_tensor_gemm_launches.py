"""What prepares an operand inside the product's own launch: what is planned, printed, computed and assembled."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from redalg.errors import RedalgError
from redalg.kernels.emulate.run import run
from redalg.kernels.gemm.launches import CLOSE, LAUNCHES
from redalg.kernels.gemm.prologue import PARTS
from redalg.kernels.ir.layouts import View
from redalg.kernels.ir.program import Param
from redalg.kernels.launch.planned import Planned
from redalg.kernels.schedule.target import H200
from redalg.source.render import render
from redalg.source.statements import statements
from tests.support.gemm_cases import BATCHED, PLAIN, SCALED, dtypes_of, form_of, planned
from tests.support.gemm_emulated import first_rows, memory, prepared, stored, workers

E4M3 = "float8_e4m3fn"
LARGE = {"i": 4096, "j": 4096, "k": 4096, "b": 2}
PAIR = replace(H200, multiprocessors=2)
BESIDE = "a = max[j](abs(x[i,j])); q = cast(448*x[i,j]/a, float8_e4m3fn); y = sum[j](q*w[j,k])*a; return y, a, q"
FP8 = ("fp8_per_token_gemm", {"w": E4M3, "major": ("w",)})

# --- what is planned -------------------------------------------------------------------------------------------------


def test_the_model_takes_one_launch_where_it_is_no_slower() -> None:
    """Times so close that a prediction does not tell are no slower."""
    for text, options in (FP8, ("layer_norm_gemm", {}), ("rms_norm_gemm", {}), (PLAIN, {"w": E4M3})):
        for sizes in (LARGE, {"i": 16, "j": 4096, "k": 4096}):
            found = planned(text, sizes, launches=0, **options)
            assert not found.before and len(found.inside) == 1
            assert [p.role for p in found.module.params].count("counters") == 1
            reasons = "\n".join(found.choice.reasons)
            assert "fused prologue: all warpgroups first prepare rows" in reasons and "before it" not in reasons
            two = planned(text, sizes, launches=2, **options)
            assert found.choice.seconds - two.choice.seconds <= (CLOSE - 1) * two.before[0].choice.seconds


def test_blocks_that_wait_for_each_other_are_launched_together() -> None:
    """Never more than run at once: one on each multiprocessor, which its shared memory fills."""
    for sizes in (LARGE, {"i": 300, "j": 128, "k": 4096}, {"i": 10, "j": 64, "k": 64}):
        found = planned(*FP8[:1], sizes, launches=1, **FP8[1])  # type: ignore[arg-type]
        g = found.geometry
        assert g.persistent and g.waiting == min(2, g.blocks) and g.blocks <= H200.multiprocessors
        two = planned(*FP8[:1], sizes, launches=2, **FP8[1]).geometry  # type: ignore[arg-type]
        assert not two.persistent and two.waiting == 1 and two.blocks == g.blocks


def test_two_launches_remain_with_the_reason() -> None:
    both = planned("fp8_per_token_gemm", LARGE, w=E4M3, launches=0)
    assert len(both.before) == 2 and "a launch of its own: both operands are prepared" in "\n".join(both.choice.reasons)
    long = {"i": 256, "j": 131072, "k": 256}
    for options in ({}, {"deterministic": True}):
        found = planned("layer_norm_gemm", long, launches=0, **options)  # type: ignore[arg-type]
        assert bool(found.before) != bool(found.inside)
        if found.before:
            assert any(line.startswith("a launch of its own: ") for line in found.choice.reasons)


def test_a_call_that_says_nothing_takes_the_launches_of_the_constant() -> None:
    found = planned("rms_norm_gemm", LARGE)
    assert len(found.before) == (LAUNCHES == 2) and len(found.inside) == (LAUNCHES == 1)


def test_what_is_insisted_on_and_cannot_be_is_refused() -> None:
    with pytest.raises(RedalgError) as error:
        planned("fp8_per_token_gemm", LARGE, w=E4M3, launches=1)
    assert "both operands" in error.value.why


def test_one_launch_is_a_schedule() -> None:
    found = planned(*FP8[:1], LARGE, schedule="fused_prologue", **FP8[1])  # type: ignore[arg-type]
    assert found.module == planned(*FP8[:1], LARGE, launches=1, **FP8[1]).module  # type: ignore[arg-type]
    assert found.inside and not found.before
    assert not planned(PLAIN, LARGE, schedule="fused_prologue").inside  # nothing is prepared


def test_one_launch_of_something_else_is_refused() -> None:
    for text, sizes in (("fp8_per_token_gemm", LARGE), ("logsumexp", {"j": 64, "i": 64})):
        with pytest.raises(RedalgError) as error:
            planned(text, sizes, schedule="fused_prologue", w=E4M3)
        assert "fused_prologue" in error.value.what and error.value.why


def test_the_same_additions_in_one_launch_and_in_two() -> None:
    """With `deterministic` the launches may depend on the number of rows, the order of additions may not."""
    for text, options in (FP8, ("layer_norm_gemm", {}), ("rms_norm_gemm", {})):
        found = set()
        for i in (1, 64, 4096):
            for launches in (1, 2):
                p = planned(text, LARGE | {"i": i}, deterministic=True, launches=launches, **options)
                s = (p.inside or p.before)[0].choice.schedule
                found.add((s.threads, s.vector, s.tile, s.resident, s.column, s.split, s.cluster))
        assert len(found) == 1


# --- what is computed ------------------------------------------------------------------------------------------------

RUNS: dict[str, tuple[str, tuple[int, int, int], dict[str, Any]]] = {
    "fp8": (FP8[0], (100, 128, 66), FP8[1]),
    "layer norm": ("layer_norm_gemm", (70, 256, 64), {}),
    "rms norm, padded": ("rms_norm_gemm", (70, 99, 64), {"kind": "float16"}),
    "zero point": ("zero_point_gemm", (20, 256, 64), {}),
    "copied": (PLAIN, (130, 72, 64), {"major": ("x",)}),
    "right": (PLAIN, (65, 64, 320), {"w": E4M3}),
    "batched": (BATCHED, (80, 64, 72), {"x": E4M3}),
    "several rows": (SCALED, (33, 72, 64), {"x": E4M3}),
    "beside": (BESIDE, (70, 128, 64), {"w": E4M3, "major": ("w",)}),
}


def cells_of(text: str, sizes: dict[str, int], options: dict[str, Any]) -> dict[str, Any]:
    """Operands as cells of memory, or numbers; one row is zero, and one holds an infinity."""
    rng, found = np.random.default_rng(sum(sizes.values())), {}
    names = {n: k for n, k in options.items() if n in ("x", "w")}
    kinds = dtypes_of(text, options.get("kind", "bfloat16"), **names)
    for t in form_of(text).spec.tensors:
        if not t.axes:
            found[t.name] = 1e-5
            continue
        drawn = rng.standard_normal([sizes[a] for a in t.axes])
        if len(t.axes) > 1:
            drawn[..., 0, :], drawn[..., -1, 0] = 0, np.inf
        cells = stored(drawn, kinds[t.name])
        if t.name in options.get("major", ()):
            cells = np.ascontiguousarray(np.swapaxes(cells, -1, -2)).swapaxes(-1, -2)
        found[t.name] = cells
    return found


def apart(made: Planned, cells: dict[str, Any], like: dict[str, Any]) -> dict[str, Any]:
    """The same rows by a kernel of their own."""
    found = {n: np.full(x.size * x.itemsize, 0xFF, np.uint8).view(x.dtype) for n, x in like.items()}
    given: list[Any] = []
    for p in made.module.params:
        if p.role in ("operand", "number"):
            given.append(memory(cells[p.name]) if p.role == "operand" else cells[p.name])
        elif p.role == "result":
            given.append(found[p.name])
        else:
            given.append(made.sizes[p.name] if p.role == "size" else _step(p, made, cells))
    run(made.module, given, made.geometry.blocks, made.geometry.threads)
    return found


def _step(p: Param, made: Planned, cells: dict[str, Any]) -> int:
    if p.role == "stride":
        return int(cells[p.name].strides[p.dim] // cells[p.name].itemsize)
    view = made.results.get(p.name) or View.contiguous(made.shapes[p.name])
    return view.strides[p.dim]


@pytest.mark.parametrize("name", RUNS)
def test_rows_have_the_bits_that_a_launch_of_their_own_gives_them(name: str) -> None:
    text, (i, j, k), options = RUNS[name]
    sizes = {"i": i, "j": j, "k": k, "b": 2}
    planned_one = planned(text, sizes, target=PAIR, launches=1, **options)
    cells = cells_of(text, sizes, options)
    found = prepared(planned_one, cells, seed=len(name))
    assert found.pop("finished").tolist() == [workers(planned_one)] * PARTS + [0]
    true = apart(planned_one.inside[0], cells, found)
    assert set(true) == {r.name for r in planned_one.inside[0].program.results}
    for n, x in true.items():
        assert found[n].tobytes() == x.tobytes(), n
        assert (x != np.asarray(-1).astype(x.dtype)).any()


@pytest.mark.parametrize("parts", range(PARTS - 1))
def test_parts_are_the_rows_that_tiles_wait_for(parts: int) -> None:
    """A tile waits for part r // span of its last row r: all rows before the end of a part are written in it."""
    sizes = {"i": 260, "j": 128, "k": 64}
    one = planned(FP8[0], sizes, target=PAIR, launches=1, **FP8[1])
    found = prepared(one, cells_of(FP8[0], sizes, FP8[1]), parts)
    every = -(-one.fixed["row_groups"] // (workers(one) * PARTS))
    span = every * workers(one) * first_rows(one)
    written = (found["state1"] == found["state1"]).reshape(-1)
    assert written.tolist() == [r < parts * span for r in range(sizes["i"])]
    assert 0 < span < sizes["i"]


def test_the_function_is_the_kernel_of_the_form() -> None:
    """Line for line, but for comments, who the threads are and where rows come from."""
    one = planned(FP8[0], LARGE, launches=1, **FP8[1])
    own, inner = (render(statements(m.source), 10**6) for m in (one.inside[0].module, one.module))  # no line is broken
    inner = re.sub(r"_out(?=\b|_)", "", inner)
    inner = re.sub(r"\((cuda\.threadIdx\.x) & 127\)|(cuda\.threadIdx\.x) & 127", r"\1\2", inner)  # of a warpgroup
    lines = [line.strip() for line in own[own.index("first = t * VECTOR") :].split("\n")]
    found = {
        line.strip().replace("named_barrier_sync(1 + warpgroup, 128)", "cuda.syncthreads()")
        for line in inner.split("\n")
    }
    lines = [line for line in lines if not line.startswith("#")]
    missing = [line for line in lines if line not in found and "shared.array" not in line and "left_part[" not in line]
    assert len(lines) > 20 and not missing
