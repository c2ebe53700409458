"""What the lanes of a warp do together.

``shfl_<mode>_<t>(value, by)`` is shfl.sync over the whole warp: mode ``xor`` (lane ^ by), ``down`` (lane + by),
``up`` (lane - by), ``idx`` (lane by); t a key of `gpu_build.KINDS`. Out of range, ``down`` and ``up`` give the lane's
own value. ``shfl_<mode>_some_<t>(value, by, width)`` is the same within groups of `width` neighbouring lanes (a power
of two), ``idx`` counting from the group's first lane; only the lanes of the caller's group have to take part.
``ballot(flag)`` is a uint32 with a bit for every lane, ``redux_max_u32`` and ``redux_min_u32`` are over the whole
warp, ``ballot_some(flag, width)`` is of the caller's group (bits at the places of its lanes), ``syncwarp()`` orders
the memory of the lanes. ``and_i32(a, b)`` is a & b as an int64, of which LLVM does not see how large it is: it would
write sums of places as ors, which are no offset in an address (RMSNorm of a transposed 26995x72 float32 takes an H100
7.8 us, 6.2 without; 2026-11-27). ``div_u32(a, b)``, ``rem_u32(a, b)`` and ``div_u64(a, b)`` are a // b and a % b of
numbers that are not negative, as int64: of signed ones LLVM would correct what is left. (PTX ISA 9.0, sections
"shfl.sync", "vote.sync", "redux.sync", "bar.warp.sync".)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from redalg.kernels.code.functions import (
    I32,
    I64,
    KINDS,
    LLVM,
    compute_capability,
    from_words,
    inline,
    instruction,
    numeric,
    words,
)

MODES = {"xor": "bfly", "down": "down", "up": "up", "idx": "idx"}
REDUX = (8, 0)  # compute capability from which redux.sync is there


def lane(b: Any) -> Any:
    return inline(b, "mov.u32 $0, %laneid;", "=r", I32, [])


def members(b: Any, width: Any) -> Any:
    """The mask of the caller's group of neighbouring lanes."""
    ones = b.lshr(I32(-1), b.sub(I32(32), width))  # width ones
    return b.shl(ones, b.and_(lane(b), b.neg(width)))


def _exchange(b: Any, mode: str, value: Any, by: Any, clamp: Any, mask: Any) -> Any:
    """`clamp`: the last lane of the segment (up: the first), and above bit 8 which bits of a lane name its segment."""
    text = f"shfl.sync.{MODES[mode]}.b32 $0, $1, $2, $3, $4;"
    moved = [inline(b, text, "=r,r,r,r,r", I32, [w, by, clamp, mask], effects=True) for w in words(b, value)]
    return from_words(b, moved, value.type)


def _clamp(mode: str) -> int:
    return 0 if mode == "up" else 31


def _shuffle(name: str, mode: str, kind: str) -> Any:
    def body(b: Any, value: Any, by: Any) -> Any:
        text = f"shfl.sync.{MODES[mode]}.b32 $0, $1, $2, {_clamp(mode)}, -1;"
        moved = [inline(b, text, "=r,r,r", I32, [w, by], effects=True) for w in words(b, value)]
        return from_words(b, moved, LLVM[KINDS[kind]])

    return numeric(name, (kind, "i32"), kind, body)


def _shuffle_some(name: str, mode: str, kind: str) -> Any:
    def body(b: Any, value: Any, by: Any, width: Any) -> Any:
        clamp = b.or_(b.shl(b.sub(I32(32), width), I32(8)), I32(_clamp(mode)))
        return _exchange(b, mode, value, by, clamp, members(b, width))

    return numeric(name, (kind, "i32", "i32"), kind, body)


def _vote(b: Any, flag: Any, mask: Any) -> Any:
    text = "{ .reg .pred p; setp.ne.u32 p, $1, 0; vote.sync.ballot.b32 $0, p, $2; }"
    return inline(b, text, "=r,r,r", I32, [b.zext(flag, I32), mask], effects=True)


def _ballot() -> Any:
    return numeric("ballot", ("b1",), "u32", lambda b, flag: _vote(b, flag, I32(-1)))


def _ballot_some() -> Any:
    return numeric("ballot_some", ("b1", "i32"), "u32", lambda b, flag, width: _vote(b, flag, members(b, width)))


def _redux(name: str, word: str, kind: str) -> Any:
    """One instruction from compute capability 8.0 on, five exchanges before."""
    compare = "icmp_signed" if kind == "i32" else "icmp_unsigned"

    def body(b: Any, value: Any) -> Any:
        if compute_capability() >= REDUX:
            letter = "s" if kind == "i32" else "u"
            text = f"redux.sync.{word}.{letter}32 $0, $1, -1;"
            return inline(b, text, "=r,r", I32, [value], effects=True)
        for step in (16, 8, 4, 2, 1):
            other = _exchange(b, "xor", value, I32(step), I32(31), I32(-1))
            wins = getattr(b, compare)(">" if word == "max" else "<", other, value)
            value = b.select(wins, other, value)
        return value

    return numeric(name, (kind,), kind, body)


def _group_mask() -> Any:
    return numeric("group_mask", ("i32",), "u32", members)


def _and() -> Any:
    text = "{ .reg .b32 r; and.b32 r, $1, $2; cvt.s64.s32 $0, r; }"
    return numeric("and_i32", ("i32", "i32"), "i64", lambda b, x, y: inline(b, text, "=l,r,r", I64, [x, y]))


def _unsigned(name: str, operation: str) -> Any:
    end = f"i{name[-2:]}"

    def body(b: Any, x: Any, y: Any) -> Any:
        found = getattr(b, operation)(x, y)
        return b.zext(found, I64) if end == "i32" else found

    return numeric(name, (end, end), "i64", body)


def _lane_id() -> Any:
    return numeric("lane_id", (), "i32", lane)


MAKERS: dict[str, Callable[[], Any]] = {
    "ballot": _ballot,
    "ballot_some": _ballot_some,
    "lane_id": _lane_id,
    "and_i32": _and,
    "div_u32": partial(_unsigned, "div_u32", "udiv"),
    "rem_u32": partial(_unsigned, "rem_u32", "urem"),
    "div_u64": partial(_unsigned, "div_u64", "udiv"),
    "group_mask": _group_mask,
    "syncwarp": lambda: instruction("syncwarp", "bar.warp.sync -1;"),
}
for _kind in KINDS:
    for _mode in MODES:
        MAKERS[f"shfl_{_mode}_{_kind}"] = partial(_shuffle, f"shfl_{_mode}_{_kind}", _mode, _kind)
        MAKERS[f"shfl_{_mode}_some_{_kind}"] = partial(_shuffle_some, f"shfl_{_mode}_some_{_kind}", _mode, _kind)
    for _word in ("max", "min"):
        if _kind in ("i32", "u32"):
            MAKERS[f"redux_{_word}_{_kind}"] = partial(_redux, f"redux_{_word}_{_kind}", _word, _kind)
