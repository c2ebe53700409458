"""Counters that launches share: who gets which words, on a driver that keeps books."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from redalg.kernels.cuda.counters import SETS, WORDS, Counters

bindings: Any = pytest.importorskip("cuda.bindings")


class Books:
    """The calls that counters make. Streams are numbers; those in `captured` are captured."""

    CUstream_flags = SimpleNamespace(CU_STREAM_NON_BLOCKING=1)
    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED=2)

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}
        self.captured: set[int] = set()
        self.taken: list[tuple[int, int]] = []
        self.cleared: list[tuple[int, int]] = []
        self.freed: list[int] = []

    def cuStreamIsCapturing(self, stream: int) -> Any:  # noqa: N802
        return 0, int(stream in self.captured)

    def cuStreamGetId(self, stream: int) -> Any:  # noqa: N802
        return 0, self.numbers.get(stream, 1000 + stream)

    def cuMemAlloc(self, size: int) -> Any:  # noqa: N802
        self.taken.append((4096 * 1024 * (len(self.taken) + 1), size))
        return 0, self.taken[-1][0]

    def cuMemsetD32Async(self, address: int, value: int, count: int, stream: int) -> Any:  # noqa: N802
        assert value == 0 and stream == 77
        self.cleared.append((address, 4 * count))
        return (0,)

    def cuStreamCreate(self, flags: int) -> Any:  # noqa: N802
        return 0, 77

    def cuStreamSynchronize(self, stream: int) -> Any:  # noqa: N802
        return (0,)

    cuStreamDestroy = cuStreamSynchronize  # noqa: N815

    def cuThreadExchangeStreamCaptureMode(self, mode: int) -> Any:  # noqa: N802
        return 0, 0

    def cuMemFree(self, address: int) -> Any:  # noqa: N802
        self.freed.append(address)
        return (0,)


@pytest.fixture
def books(monkeypatch: pytest.MonkeyPatch) -> Books:
    made = Books()
    monkeypatch.setattr(bindings, "driver", made, raising=False)
    return made


def test_a_stream_keeps_its_words_and_shares_them_with_no_other(books: Books) -> None:
    counters = Counters(5)
    found = [counters.at(stream) for stream in range(1, 8)]
    assert len(set(found)) == 7 and found == [counters.at(stream) for stream in range(1, 8)]
    assert all(abs(a - b) >= 4 * WORDS for a in found for b in found if a != b)
    assert books.cleared == books.taken and len(books.taken) == 1


def test_a_handle_that_comes_back_for_another_stream_gets_other_words(books: Books) -> None:
    counters = Counters(5)
    before = counters.at(3)
    books.numbers[3] = 5
    assert counters.at(3) != before


def test_every_captured_call_has_words_of_its_own(books: Books) -> None:
    counters, books.captured = Counters(5), {4}
    found = [counters.at(4) for _ in range(SETS + 3)]
    assert len(set(found)) == SETS + 3 and counters.at(5) not in found and len(books.taken) == 2
    low, size = books.taken[1]
    assert (
        all(any(a <= x and x + 4 * WORDS <= a + n for a, n in books.taken) for x in found) and size == 4 * WORDS * SETS
    )
    assert low


def test_threads_that_meet_on_a_stream_count_in_the_same_words(books: Books) -> None:
    counters = Counters(5)
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(counters.at(9))) for _ in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(set(found)) == 1


def test_memory_goes_back_with_the_counters(books: Books) -> None:
    counters = Counters(5)
    counters.at(1)
    del counters
    assert books.freed == [books.taken[0][0]]
