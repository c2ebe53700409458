"""Counters in device memory that a kernel finds at 0 and leaves at 0: a set for every stream and every captured call.

Calls on one stream follow each other, so they may count in the same words; nothing has to clear them in between. A
captured call gets words of its own, since its graph may be launched on any stream, beside any other call. (Launches of
one executable graph follow each other too; CUDA C++ Programming Guide 13, "CUDA Graphs".)
"""

from __future__ import annotations

import threading

from redalg.kernels.launch.driver import Kept, checked

WORDS = 64  # words of a set are in memory that no other set shares a sector with
SETS = 256  # taken at a time


class Counters:
    """Sets of `count` words each, at 0. They stay where they are as long as this object does."""

    def __init__(self, count: int) -> None:
        assert count <= WORDS
        self._of_stream: dict[int, int] = {}
        self._free: list[int] = []
        self._kept: list[Kept] = []
        self._lock = threading.Lock()

    def at(self, stream: int) -> int:
        """Where the words lie that a call on this stream counts in."""
        from cuda.bindings import driver as d

        error, status = d.cuStreamIsCapturing(stream)
        if not int(error) and int(status):
            return self._taken()
        # A handle may come back for another stream while the work of the first one is still under way; a number not.
        number = int(checked(d.cuStreamGetId(stream), "the number of a stream"))
        found = self._of_stream.get(number)
        if found is None:
            found = self._of_stream.setdefault(number, self._taken())
        return found

    def _taken(self) -> int:
        with self._lock:
            if not self._free:
                self._kept.append(_zeros(WORDS * SETS))
                first = self._kept[-1].address
                self._free = [first + 4 * WORDS * k for k in range(SETS)]
            return self._free.pop()


def _zeros(words: int) -> Kept:
    from cuda.bindings import driver as d

    return Kept(4 * words, lambda address, stream: d.cuMemsetD32Async(address, 0, words, stream), "counters")
