"""Sharing the work of one call among threads: the caller takes shares itself, and others join in if they are awake."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from itertools import count

from redalg.errors import RedalgError

CHUNKS = 8  # per thread: a thread that is held up leaves the rest to the others
_ENVIRON = getattr(os.environ, "_data", None)  # a dict, which says ten times as quickly that it lacks something
_NAME = getattr(os.environ, "encodekey", str)("REDALG_THREADS")


def threads() -> int:
    """How many threads share a call: ``REDALG_THREADS``, else as many as this process may run on.

    In processes of PyTorch's loaders it is one, as PyTorch's own functions have there: there are many of them.
    """
    given = os.environ.get("REDALG_THREADS", "") if _ENVIRON is None or _NAME in _ENVIRON else ""
    if not given:
        loaders = sys.modules.get("torch.utils.data")
        if loaders is not None and loaders.get_worker_info() is not None:
            return 1
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not given.isdigit() or not int(given):
        raise RedalgError(f"REDALG_THREADS={given!r}", "the environment", "it counts threads", "a number from 1 on")
    return int(given)


@lru_cache(maxsize=8)
def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, thread_name_prefix="redalg")


def share(total: int, workers: int, work: Callable[[int, int], None]) -> None:
    """Call `work(low, high)` on ranges that cover 0 to `total`, from `workers` threads at once.

    >>> found = []
    >>> share(10, 3, lambda low, high: found.extend(range(low, high)))
    >>> sorted(found) == list(range(10))
    True
    """
    chunks = min(total, CHUNKS * workers)
    if workers == 1 or chunks <= 1:
        if total:
            work(0, total)
        return
    turns = count()

    def run() -> None:
        while (turn := next(turns)) < chunks:
            work(total * turn // chunks, total * (turn + 1) // chunks)

    others: list[Future[None]] = [_pool(workers - 1).submit(run) for _ in range(min(workers, chunks) - 1)]
    try:
        run()
    finally:
        waiting = [job for job in others if not job.cancel()]  # one that has not begun finds nothing left to do
        for job in waiting:
            job.exception()
    for job in waiting:
        job.result()
