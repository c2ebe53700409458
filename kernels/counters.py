"""Counters in device memory that a kernel finds at 0 and leaves at 0: a set for every stream and every captured call.

Calls on one stream follow each other, so they may count in the same words; nothing has to clear them in between. A
captured call gets words of its own, since its graph may be launched on any stream, beside any other call. (Launches of
one executable graph follow each other too; CUDA C++ Programming Guide 13, "CUDA Graphs".)
"""

from __future__ import annotations

import threading
from typing import Any

from redalg.kernels.driver import checked, relaxed

ROOM = 64  # words of a set are in memory that no other set shares a sector with
SETS = 256  # taken at a time


class Counters:
    """Sets of `count` words each, at 0. They stay where they are as long as this object does."""

    def __init__(self, count: int) -> None:
        assert count <= ROOM
        self._of_stream: dict[int, int] = {}
        self._free: list[int] = []
        self._kept: list[_Zeros] = []
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
                self._kept.append(_Zeros(4 * ROOM * SETS))
                first = self._kept[-1].address
                self._free = [first + 4 * ROOM * k for k in range(SETS)]
            return self._free.pop()


class _Zeros:
    """Bytes of device memory at 0, given back with this object."""

    def __init__(self, size: int) -> None:
        from cuda.bindings import driver as d

        with relaxed():
            self.address = int(checked(d.cuMemAlloc(size), "memory for counters"))
            own: Any = checked(d.cuStreamCreate(d.CUstream_flags.CU_STREAM_NON_BLOCKING))
            checked(d.cuMemsetD32Async(self.address, 0, size // 4, own), "clearing counters")
            checked(d.cuStreamSynchronize(own))
            checked(d.cuStreamDestroy(own))

    def __del__(self) -> None:
        try:
            from cuda.bindings import driver as d

            d.cuMemFree(self.address)
        except Exception:  # the interpreter or the context is gone
            return
