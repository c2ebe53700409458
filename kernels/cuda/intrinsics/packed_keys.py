"""A float32 with its position in one word (`redalg.kernels.lower.packed_keys`): what one unsigned comparison orders.

``key_of(value, place)`` for a position below 2^32 - 1: larger values are larger keys, NaN is above all, and of equal
values the lower position is. ``key_value(key)`` and ``key_place(key)`` take a key apart (the sign of a zero is lost);
the key of no element, 0, gives -inf and -1.

``short_key_<dtype>(value, place)`` is a key of 32 bits, of a value that a float of 16 bits holds and a position below
2^16: in the same order, compared by one instruction. ``long_key_<dtype>(key)`` is what `key_of` gives for them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from numba import types

from redalg.kernels.code.functions import F16, F32, I16, I32, I64, as_width, function, numeric

SIGN = 1 << 31


def _upper(b: Any, value: Any) -> Any:
    """The half of a key that orders like the value."""
    value = b.fadd(value, F32(0.0))  # -0.0 becomes 0.0, which it equals
    bits = b.bitcast(value, I32)
    upper = b.xor(bits, b.or_(b.ashr(bits, I32(31)), I32(SIGN)))
    return b.select(b.fcmp_unordered("uno", value, value), I32(0xFFFFFFFE), upper)  # no key has all bits set


def _key_of() -> Any:
    def typed(value: Any, place: Any) -> Any:
        def body(context: Any, b: Any, sig: Any, args: Any) -> Any:
            lower = b.not_(as_width(b, args[1], I32))
            return b.or_(b.shl(b.zext(_upper(b, args[0]), I64), I64(32)), b.zext(lower, I64))

        return types.uint64(types.float32, place), body

    return function("key_of", "value place", typed)


def _short_key(dtype: str) -> Any:
    """The same from the bits of the narrow float, in the upper half of a word."""

    def typed(value: Any, place: Any) -> Any:
        def body(context: Any, b: Any, sig: Any, args: Any) -> Any:
            value = b.fadd(args[0], F32(0.0))
            bits = b.bitcast(value, I32)
            if dtype == "float16":
                bits = b.shl(b.zext(b.bitcast(b.fptrunc(value, F16), I16), I32), I32(16))
            upper = b.xor(bits, b.or_(b.ashr(bits, I32(31)), I32(SIGN)))
            upper = b.select(b.fcmp_unordered("uno", value, value), I32(-1), upper)
            lower = b.xor(as_width(b, args[1], I32), I32(0xFFFF))
            return b.or_(b.and_(upper, I32(0xFFFF0000)), lower)

        return types.uint32(types.float32, place), body

    return function(f"short_key_{dtype}", "value place", typed)


def _long_key(dtype: str) -> Any:
    def body(b: Any, key: Any) -> Any:
        flip = b.or_(b.not_(b.ashr(key, I32(31))), I32(SIGN))
        bits = b.and_(b.xor(key, flip), I32(0xFFFF0000))
        value = b.bitcast(bits, F32)
        if dtype == "float16":
            value = b.fpext(b.bitcast(b.trunc(b.lshr(bits, I32(16)), I16), F16), F32)
        lower = b.zext(b.or_(key, I32(0xFFFF0000)), I64)
        found = b.or_(b.shl(b.zext(_upper(b, value), I64), I64(32)), lower)
        return b.select(b.icmp_unsigned("==", key, I32(0)), I64(0), found)

    return numeric(f"long_key_{dtype}", ("u32",), "u64", body)


def _none(b: Any, key: Any) -> Any:
    return b.icmp_unsigned("==", key, I64(0))


def _value(b: Any, key: Any) -> Any:
    upper = b.trunc(b.lshr(key, I64(32)), I32)
    flip = b.or_(b.not_(b.ashr(upper, I32(31))), I32(SIGN))
    return b.select(_none(b, key), F32(float("-inf")), b.bitcast(b.xor(upper, flip), F32))


def _place(b: Any, key: Any) -> Any:
    return b.select(_none(b, key), I64(-1), b.zext(b.not_(b.trunc(key, I32)), I64))


MAKERS: dict[str, Callable[[], Any]] = {
    "key_of": _key_of,
    "key_value": lambda: numeric("key_value", ("u64",), "f32", _value),
    "key_place": lambda: numeric("key_place", ("u64",), "i64", _place),
}
for _dtype in ("bfloat16", "float16"):
    MAKERS[f"short_key_{_dtype}"] = partial(_short_key, _dtype)
    MAKERS[f"long_key_{_dtype}"] = partial(_long_key, _dtype)
