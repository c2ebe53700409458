"""Trees of Python text from several threads at once."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from typing import Any

import pytest

from redalg.source.statements import statements

THREADS, TEXTS = 4, 100


class _Garbage:
    """A cycle whose collection runs Python, so that another thread may go on in the middle of a tree."""

    def __init__(self) -> None:
        self.me = self
        weakref.finalize(self, sum, range(50))


@pytest.fixture
def hurried() -> Any:
    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(20)
    yield
    sys.setswitchinterval(interval)
    gc.set_threshold(*threshold)


@pytest.mark.deep
def test_threads_read_statements_side_by_side(hurried: Any) -> None:
    failed: list[str] = []

    def read(thread: int) -> None:
        for k in range(TEXTS):
            _Garbage()
            text = f"moved = rested(total, {'+'.join(f'x{i}*({i} + y{thread}_{k})' for i in range(20))})"
            try:
                assert len(statements(text)) == 1
            except SystemError as error:
                failed.append(str(error))

    threads = [threading.Thread(target=read, args=(t,)) for t in range(THREADS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed
