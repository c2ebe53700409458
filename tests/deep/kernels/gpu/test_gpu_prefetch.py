"""Rows prefetched to shared memory, on a GPU, against the definition.

`tests/deep/kernels/emulated/test_kernel_prefetch.py` runs printed kernels on the CPU; what only a device shows is that
copies have arrived when they are read, and that none overwrites what is still to be read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.kernels.ir.schedule import Schedule
from tests.deep.kernels.gpu.test_gpu_kernels import agree, sent
from tests.support.forms import form_of

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")
KEPT = ("softmax", "log_softmax", "layer_norm", "standard_scores", "max_abs_scaling")
# (dtype, rows, length, schedule): rows to a block (many, few), bounds, rows side by side, clusters, splits, distances
CASES = [
    ("float32", 3000, 4096, Schedule(256, 1, 4, 16, resident=True, persistent=True, prefetch=4096)),
    (
        "float32",
        3000,
        4096,
        Schedule(256, 1, 4, 16, resident=True, persistent=True, prefetch=4096, prefetch_distance=2, exact=True),
    ),
    ("float32", 700, 4100, Schedule(512, 1, 4, 16, resident=True, persistent=True, prefetch=8192)),
    ("bfloat16", 700, 4104, Schedule(128, 1, 8, 16, persistent=True, prefetch=6144)),
    ("float32", 5001, 256, Schedule(32, 4, 4, 8, persistent=True, prefetch=256, prefetch_distance=1, exact=True)),
    ("float32", 5001, 252, Schedule(32, 4, 4, 8, resident=True, persistent=True, prefetch=256)),
    ("bfloat16", 500, 65536, Schedule(512, 1, 8, 32, persistent=True, prefetch=65536, prefetch_distance=3, exact=True)),
    ("bfloat16", 3, 65528, Schedule(1024, 1, 8, 32, persistent=True, prefetch=65536)),
    ("float16", 300, 32768, Schedule(256, 1, 8, 16, persistent=True, prefetch=32768, prefetch_distance=9, exact=True)),
    (
        "float32",
        300,
        65536,
        Schedule(512, 1, 4, 16, persistent=True, cluster=2, prefetch=32768, prefetch_distance=3, exact=True),
    ),
    (
        "float32",
        64,
        1 << 18,
        Schedule(256, 1, 4, 16, persistent=True, split=16, prefetch=16384, prefetch_distance=3, exact=True),
    ),
    ("bfloat16", 33, 300000, Schedule(256, 1, 8, 32, persistent=True, split=6, prefetch=57344)),
    ("float32", 9, 300000, Schedule(512, 1, 4, 8, persistent=True, split=33, prefetch=12288)),
]


@pytest.mark.parametrize("dtype, rows, length, schedule", CASES, ids=str)
@pytest.mark.parametrize("name", KEPT)
def test_rows_brought_ahead(name: str, dtype: str, rows: int, length: int, schedule: Schedule) -> None:
    entry = ra.catalog.entry(name)
    arrays = sent(entry.sample(rows, dtype="float32", i=rows, j=length), dtype)
    run = form_of(name).compile("cuda", schedule=schedule)
    first = run(**arrays)
    agree(entry.spec, first, arrays, dtype)
    assert "prefetch_tile(" in run.source
    for _ in range(20):
        assert torch.equal(run(**arrays), first)


ONCE = [
    (name, *c)
    for name in ("logsumexp", "variance", "cosine_similarity", "argmax")
    for c in [c for c in CASES if c[3].split == 1][::2]
    if c[2] < 1 << 14 or name != "cosine_similarity"  # two longer rows do not fit
]


@pytest.mark.parametrize("name, dtype, rows, length, schedule", ONCE, ids=str)
def test_results_once_per_row(name: str, dtype: str, rows: int, length: int, schedule: Schedule) -> None:
    entry = ra.catalog.entry(name)
    arrays = sent(entry.sample(rows, dtype="float32", i=rows, j=length), dtype)
    agree(entry.spec, form_of(name).compile("cuda", schedule=schedule)(**arrays), arrays, dtype)


CHOSEN = [
    ("bfloat16", 700, 65536),
    ("bfloat16", 1100, 65536),
    ("float32", 40, 1 << 20),
    ("bfloat16", 70, 1 << 20),
    ("float32", 130, 300000),
]


@pytest.mark.parametrize("dtype, rows, length", CHOSEN)
def test_what_the_model_chooses_and_graphs(dtype: str, rows: int, length: int) -> None:
    """Infinities and NaN stay in their rows; a captured call gives the same bits every time."""
    x = np.random.default_rng(length).standard_normal((rows, length)).astype(np.float32)
    x[1, 5], x[3, -1], x[-1, 0] = np.nan, np.inf, -np.inf
    arrays: dict[str, Any] = sent({"x": x}, dtype)
    run = form_of("softmax").compile("cuda")
    first = run(**arrays)
    assert run.schedule.prefetch and "prefetched to shared memory" in run.explain()
    agree(ra.catalog["softmax"], first, arrays, dtype)
    out = torch.empty_like(first)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run(**arrays, out=out)
    for _ in range(3):
        out.zero_()
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(torch.nan_to_num(out), torch.nan_to_num(first))
