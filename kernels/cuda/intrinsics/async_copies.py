"""Copies from memory to shared memory that run behind the thread that starts them (PTX ISA 9.0, "cp.async").

``copy_<dtype>x<V>(room, place, pointer, index)`` starts to copy V elements of 4, 8 or 16 bytes in all, from element
`index` of an array to element `place` of an array in shared memory. ``cp_async_commit()`` makes a group of those that
this thread has started since the last one, and ``cp_async_wait_<n>()`` waits until at most n groups are under way;
``cp_async_wait_all()`` waits for all copies of this thread. Other threads see them after a barrier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from numba import types

from redalg.kernels.code.functions import GLOBAL, I32, I64, SHARED, VOID, Body, function, inline, instruction
from redalg.kernels.cuda.intrinsics.memory import WIDTHS, Way, address
from redalg.kernels.ir.program import STORAGE
from redalg.kernels.ir.schedule import COPIED, MOST_DISTANCE

MEMORY = "~{memory}"


def sent() -> Any:
    """``cp_async_commit()``."""
    return instruction("cp_async_commit", "cp.async.commit_group;")


def left(groups: int, name: str = "cp_async_wait") -> Any:
    """A function that waits until at most `groups` groups of this thread's copies are under way."""
    return instruction(name, f"cp.async.wait_group {groups};")


def _copy(name: str, size: int) -> Any:
    how = "cg" if size == 16 else "ca"  # 16 bytes pass the first-level cache by
    text = f"cp.async.{how}.shared.global.L2::128B [$0], [$1], {size};"

    def typed(shared: Any, place: Any, pointer: Any, index: Any) -> tuple[Any, Body]:
        def body(context: Any, b: Any, sig: Any, args: Any) -> None:
            to = address(context, b, sig.args[0], args[0], args[1], Way(space=SHARED))
            source = address(context, b, sig.args[2], args[2], args[3], Way(space=GLOBAL))
            given = [b.ptrtoint(to, I32), b.ptrtoint(source, I64)]
            inline(b, text, f"r,l,{MEMORY}", VOID, given, effects=True)

        return types.void(shared, place, pointer, index), body

    return function(name, "shared place pointer index", typed)


def _names() -> Iterator[tuple[str, Callable[[], Any]]]:
    yield "cp_async_wait_all", partial(instruction, "cp_async_wait_all", "cp.async.wait_all;")
    yield "cp_async_commit", sent
    for n in range(1, MOST_DISTANCE + 1):
        yield f"cp_async_wait_{n}", partial(left, n, f"cp_async_wait_{n}")
    for dtype, size in STORAGE.items():
        for width in (w for w in WIDTHS if w * size in COPIED):
            name = f"copy_{dtype}x{width}" if width > 1 else f"copy_{dtype}"
            yield name, partial(_copy, name, width * size)


MAKERS = dict(_names())
