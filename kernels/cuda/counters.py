"""Counters in device memory, ready for the next launch when one ends: a set for every stream and every captured call.

A kernel that counts leaves them at 0. A barrier (`splits_sync`) leaves the highest bit changed: a kernel that counts
would never find such words full, and leave its results unwritten. So neither kind is given to the other.

Calls on one stream follow each other, so they may count in the same words; nothing has to clear them in between. A
captured call gets words of its own, since its graph may be launched on any stream, beside any other call. (Launches of
one executable graph follow each other too; CUDA C++ Programming Guide 13, "CUDA Graphs".) A graph may outlive what it
was captured of, so that its words are never given to another; those of a stream go to later calls on the same stream.
"""

from __future__ import annotations

import threading
import weakref

from redalg.kernels.launch.driver import checked, kept

Use = tuple[int, int, bool]  # device, the number of a stream, and whether blocks meet there
WORDS = 64  # words of a set are in memory that no other set shares a sector with
SETS = 256  # taken at a time
_FREE: dict[int, list[int]] = {}  # by device: sets that nobody has
_LEFT: dict[Use, list[int]] = {}  # sets of `Counters` that are no more
_lock = threading.Lock()


class Counters:
    """Sets of `count` words each, at 0; those of a `barrier` with any highest bit."""

    def __init__(self, count: int, device: int = 0, *, barrier: bool = False) -> None:
        assert count <= WORDS
        self.device, self.barrier = device, barrier
        self._of_stream: dict[int, int] = {}
        weakref.finalize(self, _leave, self._of_stream, device, barrier)

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
            words = _left((self.device, number, self.barrier)) or _taken(self.device)
            found = self._of_stream.setdefault(number, words)
            if found != words:  # another thread was faster
                _leave({number: words}, self.device, self.barrier)
        return found


def _leave(of_stream: dict[int, int], device: int, barrier: bool) -> None:
    """Called by the garbage collector, in the middle of anything: no lock is taken and no driver asked."""
    for number, words in of_stream.items():
        _LEFT.setdefault((device, number, barrier), []).append(words)


def _left(use: Use) -> int | None:
    try:
        return _LEFT[use].pop()
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
