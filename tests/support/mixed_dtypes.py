"""Calls of one callable with arrays of every dtype and library, one after the other: run in a process of its own.

``python -m tests.support.mixed_dtypes TARGET`` prints how many calls were held against the definition. Numbers are
small integers, so that every format holds every value and every partial sum, and results are compared bit by bit.
Results go to new arrays and, where the library has arrays that can be written to, to `out` inside a larger buffer, of
which not a byte beside may change.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np

import redalg as ra
from tests import conftest as conftest

FLOATS = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
WHOLE = ("int8", "int64", "uint8", "uint64", "bool")
MARK = 0xA5  # every byte around a result
AROUND = 64  # elements before and after it

ROWS = "m = max[j](x[i,j]); y = m - x[i,j]; s = sum[j](x[i,j]); return y, s"
COLUMNS = "m = max[i](x[i,j]); s = sum[i](m - x[i,j]); return s, m"
SCALED = "m = max[j](x[i,j]); return y = c * (m - x[i,j])"


@dataclass(frozen=True)
class Kind:
    """Arrays of one dtype of one library: how they are made, read back, and made for results."""

    library: str
    dtype: str
    make: Callable[[np.ndarray], Any]
    read: Callable[[Any], np.ndarray]
    guarded: Callable[[Any], tuple[Any, Callable[[], bool]]] | None = None  # like a result: room, and "is it intact?"

    def __str__(self) -> str:
        return f"{self.dtype} of {self.library}"


def numpy_kinds() -> Iterator[Kind]:
    for dtype in (*FLOATS, *WHOLE):
        found = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
        yield Kind("numpy", dtype, lambda a, d=found: a.astype(d), np.asarray, _numpy_room)


def _numpy_room(like: np.ndarray) -> tuple[np.ndarray, Callable[[], bool]]:
    whole = np.full((like.size + 2 * AROUND) * like.itemsize, MARK, np.uint8)
    ends = (whole[: AROUND * like.itemsize], whole[-AROUND * like.itemsize :])
    room = whole[AROUND * like.itemsize : -AROUND * like.itemsize].view(like.dtype).reshape(like.shape)
    return room, lambda: all((end == MARK).all() for end in ends)


def torch_kinds() -> Iterator[Kind]:
    import torch

    def room(like: Any) -> tuple[Any, Callable[[], bool]]:
        each = like.element_size()
        whole = torch.full(((like.numel() + 2 * AROUND) * each,), MARK, dtype=torch.uint8)
        found = whole[AROUND * each : -AROUND * each].view(like.dtype).reshape(like.shape)
        ends = (whole[: AROUND * each], whole[-AROUND * each :])
        return found, lambda: all(bool((end == MARK).all()) for end in ends)

    def made(values: np.ndarray, dtype: Any) -> Any:
        return torch.from_numpy(values.astype(np.float64)).to(dtype)

    for dtype in (*FLOATS, *(w for w in WHOLE if not w.startswith("uint") or w == "uint8")):
        kind = getattr(torch, dtype)
        yield Kind("torch", dtype, lambda a, d=kind: made(a, d), lambda t: t.to(torch.float64).numpy(), room)


def jax_kinds() -> Iterator[Kind]:
    import jax

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_platforms", "cpu")
    for dtype in (*FLOATS, "int8", "int64", "bool"):
        yield Kind("jax", dtype, lambda a, d=dtype: jax.numpy.asarray(a.astype(np.float64)).astype(d), np.asarray)


def every_kind() -> list[Kind]:
    found = list(numpy_kinds())
    found += torch_kinds() if find_spec("torch") else ()
    found += jax_kinds() if find_spec("jax") else ()
    return found


def drawn(shape: tuple[int, ...], dtype: str, draw: random.Random) -> np.ndarray:
    """Integers of which every format holds the differences, and few enough for every partial sum."""
    low, high = (0, 1) if dtype == "bool" else (0, 3) if dtype.startswith("uint") else (-1, 1)
    return np.array([draw.randint(low, high) for _ in range(int(np.prod(shape)))], np.float64).reshape(shape)


def definition(text: str, x: np.ndarray, c: float) -> dict[str, np.ndarray]:
    """The three specs by hand, in float64."""
    axis = 0 if text == COLUMNS else 1
    m = x.max(axis, keepdims=True)
    if text == COLUMNS:
        return {"s": (m - x).sum(0), "m": m[0]}
    return {"y": c * (m - x)} if text == SCALED else {"y": m - x, "s": x.sum(1)}


class Checker:
    """One spec, one callable, and what it was called with so far."""

    def __init__(self, text: str, target: str, seed: int) -> None:
        self.text, self.form, self.draw = text, ra.derive_incremental(ra.parse(text)), random.Random(seed)
        self.run, self.calls, self.before = self.form.compile(target), 0, "nothing"

    def call(self, kind: Kind, guarded: bool, c: Any = 1) -> None:
        shape = (7, 24) if self.text == COLUMNS else (5, 7)  # 24 rows side by side are walked together
        values = drawn(shape, kind.dtype, self.draw)
        given = {"x": kind.make(values)} | ({"c": c} if self.text == SCALED else {})
        expected = definition(self.text, values, float(c))
        like = by_name(self.form, ra.reference(self.form.spec, **given))
        out, intact = None, []
        if guarded and kind.guarded is not None:
            rooms = {name: kind.guarded(a) for name, a in like.items()}
            out, intact = {name: room for name, (room, _) in rooms.items()}, [ok for _, ok in rooms.values()]
        found = by_name(self.form, self.run(**given, out=out))
        what = f"{self.text}: {kind} after {self.before}, out={'given' if out else None}"
        for name, value in found.items():
            assert type(value) is type(like[name]) and value.dtype == like[name].dtype, what
            np.testing.assert_array_equal(np.asarray(kind.read(value), np.float64), expected[name], what)
        assert out is None or all(found[name] is room for name, room in out.items()), what
        assert all(ok() for ok in intact), f"{what}: written beside the result"
        if self.run.target == "numpy" and self.text == ROWS:
            self._accumulated(kind, given["x"], expected, what)
        self.calls, self.before = self.calls + 1, str(kind)

    def _accumulated(self, kind: Kind, x: Any, expected: dict[str, np.ndarray], what: str) -> None:
        """The same in pieces: accumulators of one form share what they compute with."""
        acc = self.form.accumulator()
        for low, high in ((0, 3), (3, 3), (3, 7)):
            acc.update(x=x[:, low:high])
        for name, value in (acc.result() | acc.apply(x=x, start=0)).items():
            np.testing.assert_array_equal(np.asarray(kind.read(value), np.float64), expected[name], what)


def by_name(form: Any, value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {next(iter(form.spec.outputs)): value}


def orders(kinds: list[Kind]) -> Iterator[list[Kind]]:
    """Orders in which every kind comes before every other for the first time, and at random among known ones."""
    yield [*kinds, *kinds[::-1], *random.Random(1).sample(kinds, len(kinds))]
    yield kinds[::-1]


def checked(target: str) -> int:
    kinds, calls = every_kind(), 0
    for text, some in ((ROWS, kinds), (COLUMNS, [k for k in kinds if k.dtype in ("float32", "bfloat16", "int8")])):
        for order in orders(some):
            checker = Checker(text, target, len(order))
            for n, kind in enumerate(order):
                checker.call(kind, guarded=n % 2 == 0)
                checker.call(kind, guarded=n % 2 == 1)
            calls += checker.calls
    scaled = Checker(SCALED, target, 3)
    floats = [k for k in kinds if k.dtype in ("float32", "bfloat16")]
    for a, b in pairwise([2, 2.0, True, 3, 1.0]):
        for kind in floats:
            scaled.call(kind, True, a)
            scaled.call(kind, True, b)
    return calls + scaled.calls


if __name__ == "__main__":
    print(f"{checked(sys.argv[1])} calls of {', '.join(dict.fromkeys(k.library for k in every_kind()))}")
