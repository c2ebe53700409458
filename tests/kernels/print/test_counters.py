"""Counters that launches share and tensor maps: who gets which memory, on a driver that keeps books."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

import redalg as ra
from redalg.kernels.cuda import counters as counters_module
from redalg.kernels.cuda.counters import SETS, WORDS, Counters
from redalg.kernels.ir.layouts import View
from redalg.kernels.ir.program import BARRIER
from redalg.kernels.pipeline import plan
from redalg.kernels.schedule.target import H200
from redalg.kernels.tile import tensor_maps
from redalg.kernels.tile.tensor_maps import TensorMaps

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
        self.copied: list[tuple[int, bytes]] = []
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

    def cuMemcpyHtoDAsync(self, address: int, source: int, size: int, stream: int) -> Any:  # noqa: N802
        assert stream == 77
        self.copied.append((address, ctypes.string_at(source, size)))
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
    monkeypatch.setattr(counters_module, "_FREE", {})
    monkeypatch.setattr(counters_module, "_LEFT", {})
    monkeypatch.setattr(tensor_maps, "_WRITTEN", {})
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


def test_a_captured_graph_outlives_what_it_was_captured_of(books: Books) -> None:
    """A graph counts in its words as long as there is the graph, of which nobody tells us: nobody else gets them, and
    no memory is given back, which would end a capture under way, too."""
    first, books.captured = Counters(5), {4}
    captured = {first.at(4) for _ in range(SETS // 2)}
    plain = first.at(1)
    del first
    others = [Counters(5) for _ in range(SETS)]
    found = [x.at(stream) for x in others for stream in (2, 3, 4)]
    assert len({*found}) == len(found) and not {*found, plain} & captured and not books.freed


def test_words_of_a_stream_go_to_later_calls_on_it_alone(books: Books) -> None:
    """Those follow what may still be under way; the number of a stream, unlike its handle, does not come back."""
    first = Counters(5)
    words = first.at(1)
    del first
    second, third = Counters(5), Counters(5)
    books.numbers[2] = 7
    assert second.at(2) != words and second.at(1) == words and third.at(1) != words
    assert Counters(5).at(1) not in (words, third.at(1))


def test_words_are_of_the_device_that_counts_there(books: Books) -> None:
    Counters(5, 0).at(1)
    Counters(5, 1).at(2)
    assert len(books.taken) == 2


class Told(TensorMaps):
    """Maps that hold addresses, and nothing else."""

    def __init__(self, device: int = 0) -> None:
        super().__init__(None, {}, device)  # type: ignore[arg-type]

    def _map(self, number: int, pointer: int) -> list[int]:
        return [pointer] * 16


def places_of(made: Told, every: Sequence[Sequence[int]]) -> list[int]:
    return [made.at(pointers) for pointers in every]


def test_maps_stay_where_a_captured_graph_reads_them(books: Books) -> None:
    """They are not given back with the call, and those of arrays that come back are not written again."""
    sets = [(4096 * k, 4096 * k + 512) for k in range(1, 40)]
    first = Told()
    places = places_of(first, sets)
    del first
    assert not books.freed and len({*places}) == len(sets) and places_of(Told(), sets) == places
    assert len(books.copied) == len(sets) and not {*places_of(Told(1), sets)} & {*places}
    for (address, text), pointers in zip(books.copied, [*sets, *sets], strict=True):
        assert address and text == b"".join(16 * p.to_bytes(8, "little") for p in pointers)


def test_words_of_a_barrier_go_to_barriers_alone(books: Books) -> None:
    """Blocks that met leave the highest bit changed, where a kernel that counts never finds its words full."""
    met = Counters(5, barrier=True)
    words = met.at(1)
    del met
    assert Counters(5).at(1) != words and Counters(5, barrier=True).at(1) == words
    assert Counters(5, 1, barrier=True).at(1) != words  # another device


@pytest.mark.parametrize("name, rows", [("softmax", 3), ("layer_norm", 1), ("logsumexp", 3), ("variance", 7)])
def test_blocks_meet_in_words_of_their_own(name: str, rows: int) -> None:
    """Kernels count where they leave zeros, and meet where they do not."""
    form = ra.derive_incremental(ra.catalog[name])
    tensors = form.spec.tensors
    views = {x.name: View.contiguous((rows, 400_001)[-len(x.axes) :]) for x in tensors if x.axes}
    module = plan(form, {x.name: "float32" for x in tensors}, views, H200, False, "split").module
    words = [p.name for p in module.params if p.role == "scratch" and p.dtype == "uint32"]
    meets = "splits_sync(" in module.source
    assert meets == (name in ("softmax", "layer_norm")) and words == [BARRIER if meets else "counter"]
    assert (f"splits_sync({BARRIER}," in module.source) == meets
    assert ("atomic_inc_acq_rel(counter," in module.source) == (not meets)
