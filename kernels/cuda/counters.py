"""Counters in device memory that a kernel finds at 0 and leaves at 0: a set for every stream and every captured call.

Calls on one stream follow each other, so they may count in the same words; nothing has to clear them in between. A
captured call gets words of its own, since its graph may be launched on any stream, beside any other call. (Launches of
one executable graph follow each other too; CUDA C++ Programming Guide 13, "CUDA Graphs".) A graph may outlive what it
was captured of, so that its words are never given to another; those of a stream go to later calls on the same stream.
"""

from __future__ import annotations

import threading
import weakref

from redalg.kernels.launch.driver import checked, kept

WORDS = 64  # words of a set are in memory that no other set shares a sector with
SETS = 256  # taken at a time
_FREE: dict[int, list[int]] = {}  # by device: sets that nobody has
_LEFT: dict[int, list[int]] = {}  # by the number of a stream: sets of `Counters` that are no more
_lock = threading.Lock()


class Counters:
    """Sets of `count` words each, at 0."""

    def __init__(self, count: int, device: int = 0) -> None:
        assert count <= WORDS
        self.device = device
        self._of_stream: dict[int, int] = {}
        weakref.finalize(self, _leave, self._of_stream)

    def at(self, stream: int) -> int:
        """Where the words lie that a call on this stream counts in."""
        from cuda.bindings import driver as d

        error, status = d.cuStreamIsCapturing(stream)
        if not int(error) and int(status):
            return _taken(self.device)
        # A handle may come back for another stream while the work of the first one is still under way; a number not.
        number = int(checked(d.cuStreamGetId(stream), "the number of a stream"))
        found = self._of_stream.get(number)
        if found is None:
            words = _left(number) or _taken(self.device)
            found = self._of_stream.setdefault(number, words)
            if found != words:  # another thread was faster
                _leave({number: words})
        return found


def _leave(of_stream: dict[int, int]) -> None:
    """Called by the garbage collector, in the middle of anything: no lock is taken and no driver asked."""
    for number, words in of_stream.items():
        _LEFT.setdefault(number, []).append(words)


def _left(number: int) -> int | None:
    try:
        return _LEFT[number].pop()
    except LookupError:
        return None


def _taken(device: int) -> int:
    with _lock:
        free = _FREE.setdefault(device, [])
        if not free:
            first = _zeros(WORDS * SETS)
            free.extend(first + 4 * WORDS * k for k in range(SETS))
        return free.pop()


def _zeros(words: int) -> int:
    from cuda.bindings import driver as d

    return kept(4 * words, lambda address, stream: d.cuMemsetD32Async(address, 0, words, stream), "counters")
