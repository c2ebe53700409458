"""Processes that form a process group (of gloo, or of NCCL with a GPU for each).

A test's function runs on every rank, and its results come back in files.
"""

from __future__ import annotations

import os
import pickle
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any

Work = Callable[[int, int], Any]
LIMIT = 120  # seconds until a test that hangs fails


def on_ranks(ranks: int, work: Work, backend: str = "gloo") -> list[Any]:
    """``work(rank, ranks)`` in processes of their own: results (errors as their texts), None of one that died."""
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    context = get_context("forkserver")
    context.set_forkserver_preload(["torch.distributed", "redalg.adapters.ranks.collective", "redalg.specs"])
    with tempfile.TemporaryDirectory() as folder:
        processes = [context.Process(target=_run, args=(work, r, ranks, folder, backend)) for r in range(ranks)]
        for p in processes:
            p.start()
        for p in processes:
            p.join(LIMIT)
        hung = [p for p in processes if p.is_alive()]
        for p in hung:
            p.kill()
        assert not hung, f"{len(hung)} ranks hung"
        files = [Path(folder, str(r)) for r in range(ranks)]
        return [pickle.loads(f.read_bytes()) if f.exists() else None for f in files]


def _run(work: Work, rank: int, ranks: int, folder: str, backend: str) -> None:
    import torch.distributed as dist

    if backend == "nccl":
        import torch

        torch.cuda.set_device(rank)
    limit = timedelta(seconds=LIMIT // 2)
    dist.init_process_group(backend, init_method=f"file://{folder}/meet", rank=rank, world_size=ranks, timeout=limit)
    try:
        found = work(rank, ranks)
    except Exception:
        found = traceback.format_exc()
    Path(folder, f"{rank}.part").write_bytes(pickle.dumps(found))
    os.rename(f"{folder}/{rank}.part", f"{folder}/{rank}")
    os._exit(0)
