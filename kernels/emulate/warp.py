"""What threads do together, as requests: the functions of `redalg.kernels.cuda.intrinsics` that wait for other threads.

An emulation gives a `Request`; `redalg.kernels.emulate.run` collects those of all threads concerned and gives each its
answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

KINDS: dict[str, Any] = {
    "f32": np.float32,
    "f64": np.float64,
    "i32": np.int32,
    "i64": np.int64,
    "u32": np.uint32,
    "u64": np.uint64,
    "b1": np.bool_,
}
MODES = ("xor", "down", "up", "idx")
UNKNOWN: dict[Any, Any] = {  # what a lane that does not exist answers
    np.float32: np.float32(np.nan),
    np.float64: np.float64(np.nan),
    np.bool_: np.bool_(True),
    **{t: t(0x5A5A5A5A) for t in (np.int32, np.int64, np.uint32, np.uint64)},
}
Lanes = Sequence["tuple[int, Request]"]  # by number of the lane within the warp


def _no_answers(lanes: Lanes) -> list[Any]:
    return [None] * len(lanes)


@dataclass(frozen=True)
class Request:
    """`scope`: who must ask together: "group" (`width` neighbouring threads of a block, 128 for a warpgroup), "block",
    "cluster" or "grid" (all threads of those that run together), or "self" (none: wait until `ready` says so).

    `answer` maps the requests of all of them to their answers; `orders`: whether memory is ordered among them;
    `product`: threads that are not of the sample end here (`redalg.kernels.emulate.run`).
    """

    name: str
    scope: str
    width: int = 32
    value: Any = None
    by: int = 0
    answer: Callable[[Lanes], list[Any]] = _no_answers
    orders: bool = False
    ready: Callable[[], bool] | None = None
    product: bool = False


def exchanged(lanes: Lanes, mode: str) -> list[Any]:
    """The answers of a shuffle within a group.

    >>> group = [(k, Request("", "group", 4, np.float32(k), 1)) for k in range(4)]
    >>> [float(v) for v in exchanged(group, "down")], [float(v) for v in exchanged(group, "xor")]
    ([1.0, 2.0, 3.0, 3.0], [1.0, 0.0, 3.0, 2.0])
    """
    values = {lane: request.value for lane, request in lanes}
    found = []
    for lane, request in lanes:
        first = lane - lane % request.width
        last, by = first + request.width - 1, int(request.by)
        other = {"xor": lane ^ by, "down": lane + by, "up": lane - by, "idx": first + by % request.width}[mode]
        if not first <= other <= last:
            other = lane
        found.append(values[other] if other in values else UNKNOWN[type(request.value)])
    return found


def voted(lanes: Lanes) -> list[Any]:
    bits = np.uint32(sum(1 << lane for lane, request in lanes if request.value))
    return [bits] * len(lanes)


def extreme(lanes: Lanes, choose: Callable[..., Any]) -> list[Any]:
    return [choose(request.value for _, request in lanes)] * len(lanes)


def _any(lanes: Lanes) -> list[Any]:
    return [np.int32(any(request.value for _, request in lanes))] * len(lanes)


def _cast(value: Any, kind: str) -> Any:
    """As the argument of the intrinsic is: floats are not rounded unasked."""
    real = KINDS[kind]
    if isinstance(value, np.floating) and not np.can_cast(value.dtype, real):
        raise TypeError(f"{value!r} is exchanged as {kind}")
    return real(value)


def _shuffle(value: Any, by: Any, width: Any = 32, *, mode: str, kind: str, name: str) -> Request:
    width = int(width)
    if width not in (1, 2, 4, 8, 16, 32):
        raise ValueError(f"{name} among {width} lanes")
    return Request(name, "group", width, _cast(value, kind), int(by), partial(exchanged, mode=mode))


def _redux(value: Any, *, choose: Callable[..., Any], kind: str, name: str) -> Request:
    return Request(name, "group", 32, _cast(value, kind), 0, partial(extreme, choose=choose))


EMULATED: dict[str, Callable[..., Request]] = {
    "ballot": lambda flag: Request("ballot", "group", 32, flag, 0, voted),
    "ballot_some": lambda flag, width: Request("ballot_some", "group", int(width), flag, 0, voted),
    "syncwarp": lambda: Request("syncwarp", "group", orders=True),
    "cluster_sync": lambda: Request("cluster_sync", "cluster", orders=True),
    "cluster_wait": lambda: Request("cluster_wait", "cluster", orders=True),
    "splits_sync": lambda pointer, index, count: Request("splits_sync", "grid", orders=True),
}
NUMBA: dict[str, Callable[..., Request]] = {  # called as attributes of `cuda`
    "syncthreads": lambda: Request("cuda.syncthreads", "block", orders=True),
    "syncthreads_or": lambda flag: Request("cuda.syncthreads_or", "block", 32, flag, 0, _any, orders=True),
    "syncwarp": lambda mask=None: EMULATED["syncwarp"](),
}
for _kind in KINDS:
    for _mode in MODES:
        for _name in (f"shfl_{_mode}_{_kind}", f"shfl_{_mode}_some_{_kind}"):
            EMULATED[_name] = partial(_shuffle, mode=_mode, kind=_kind, name=_name)
for _kind in ("i32", "u32"):
    for _word, _choose in (("max", max), ("min", min)):
        _name = f"redux_{_word}_{_kind}"
        EMULATED[_name] = partial(_redux, choose=_choose, kind=_kind, name=_name)
