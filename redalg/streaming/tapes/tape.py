"""Straight-line NumPy programs: what a graph becomes once, so that a call is nothing but a function's array operations.

A `Tape` is a printed function over registers. Every array in a register has one dimension per axis of the layout, of
length 1 where it does not vary, behind one leading batch dimension; so broadcasting is NumPy's own. Numbers known
without data stay Python or NumPy scalars. A step may write into the register of an argument that nobody reads
afterwards, and a name is taken again when nobody reads what it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from redalg.source.builder import Text
from redalg.source.compiled import executed
from redalg.source.names import axis_name, local, operand_name
from redalg.source.statements import Function

Array = Any
COMPLEX = {"f": "F", "d": "D", "g": "G"}  # real type code -> complex type code


@lru_cache
def complex_of(real: np.dtype) -> np.dtype:
    return np.dtype(COMPLEX[real.char])


class Value(NamedTuple):
    """What is known of a register when the tape is built: b(ool) i(nt) f(loat) c(omplex), and whether it is ours."""

    reg: int
    kind: str
    axes: frozenset[str]
    scalar: bool = False
    owned: bool = False


class Step(NamedTuple):
    """``out = fn(*ins, **statics)``."""

    fn: Callable[..., Any]
    out: int
    ins: tuple[int, ...]
    statics: Mapping[str, Any] = {}
    number: str = ""  # the kind of a number that is made of numbers alone
    ufunc: bool = False  # may write into the array of an argument
    aside: Aside | None = None


class Aside(NamedTuple):
    """What is looked at only where a watched value is not finite (or NaN): where the result is masked."""

    watched: int
    finite: bool
    steps: tuple[Step, ...]
    check: int


class Load(NamedTuple):
    """How an argument enters: dimensions permuted to the layout's order, new ones inserted, converted if needed."""

    reg: int
    name: str
    perm: tuple[int, ...]
    place: tuple[Any, ...]
    dtype: np.dtype | None
    contiguous: bool


class Ramp(NamedTuple):
    """``index(axis)``: consecutive positions from the offset on."""

    reg: int
    axis: str
    shape: tuple[int, ...]


class Root(NamedTuple):
    """How a result leaves: dimensions in the order asked for; axes it lacks are broadcast."""

    reg: int
    order: tuple[int, ...]
    kept: int
    axes: tuple[str, ...]
    lacks: bool
    copy: bool
    dtype: np.dtype


class Runs:
    """What is called with values by key, lengths of axes, and where indices begin."""

    call: Callable[..., Any]
    keys: tuple[str, ...]
    lengths: tuple[str, ...]
    starts: tuple[str, ...]
    extents: tuple[tuple[str, ...], ...]  # the distinct axis sets of temporaries

    def run(self, env: Mapping[str, Any], sizes: Mapping[str, int] = {}, offset: Mapping[str, int] = {}) -> list[Array]:
        """The roots as arrays with a leading batch dimension. Scalars (`n`, Python numbers) are taken as they are."""
        found: list[Array] = self.call(
            *[env[key] for key in self.keys],
            *[sizes[axis] for axis in self.lengths],
            *[offset.get(axis, 0) for axis in self.starts],
        )
        return found

    def extent(self, sizes: Mapping[str, int], streamed: str) -> int:
        """Elements that the largest temporary along the streamed axis has per index of it."""
        along = ({*axes} - {streamed} for axes in self.extents if streamed in axes)
        return max((prod(sizes.get(of_copy(axis), 1) for axis in axes) for axes in along), default=1)


@dataclass(frozen=True, eq=False)
class Called(Runs):
    """A function that is there."""

    call: Callable[..., Any]
    keys: tuple[str, ...]
    lengths: tuple[str, ...] = ()
    starts: tuple[str, ...] = ()
    extents: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, eq=False)
class Tape(Runs):
    """A printed function, which is compiled when it is called first."""

    text: Text
    keys: tuple[str, ...]
    lengths: tuple[str, ...]
    starts: tuple[str, ...]
    extents: tuple[tuple[str, ...], ...]
    calls: tuple[Any, ...]  # functions and other tapes that are called by their names
    real: np.dtype

    @property
    def name(self) -> str:
        return self.text.name

    @property
    def function(self) -> Function:
        return self.text.function

    @cached_property
    def call(self) -> Callable[..., Any]:  # type: ignore[override]
        return executed(self.text, self.names())

    @cached_property
    def by_item(self) -> Called:
        """The same where numbers, the count for one, may be arrays: one for every item of a batch.

        What is made of such a number is a batch, too, and has no room in what is made of parameters alone.
        """
        numbers = {kind.__name__: _by_item(kind) for kind in (int, float, bool)}
        names = {**self.names(), **numbers, "np": _NewArrays()}
        return Called(executed(self.text, names), self.keys, self.lengths, self.starts)

    def names(self) -> dict[str, Any]:
        """What the function calls, and the types that it calculates in."""
        names = {c.name: c.call for c in self.calls if isinstance(c, Tape)}
        names |= {c.__name__: c for c in self.calls if not isinstance(c, Tape)}
        return {**dtype_names(self.real), **names}

    def taking(self, keys: Sequence[str]) -> Tape:
        """The same with these arguments."""
        return replace(self, text=replace(self.text, takes=tuple(map(key_name, keys))), keys=tuple(keys))


class _NewArrays:
    """NumPy with functions that put what they give nowhere else (``out=``)."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(np, name)
        return partial(_anew, found) if isinstance(found, np.ufunc) else found


def _anew(ufunc: np.ufunc, *args: Any, out: Any = None, **options: Any) -> Any:
    return ufunc(*args, **options)


def _by_item(kind: type) -> Callable[[Any], Any]:
    return lambda x: x if isinstance(x, np.ndarray) and x.ndim else kind(x)


@lru_cache
def dtype_names(real: np.dtype) -> Mapping[str, Any]:
    """What printed programs call the types they calculate in: of inexact numbers, complex ones and numbers alone."""
    wide = np.result_type(real, np.float64)
    return {"np": np, "REAL": real.type, "COMPLEX": complex_of(real).type, "WIDE": wide.type}


def of_copy(axis: str) -> str:
    """The axis itself: that of ``g'``, a second index along ``g``, is ``g``."""
    return axis.rstrip("'")


def length_of(axis: str, sizes: Mapping[str, int]) -> int:
    return sizes[of_copy(axis)]


def key_name(key: str) -> str:
    """The name that a value goes by in printed text."""
    return operand_name(key.removeprefix("given:")) if key.startswith("given:") else local(key.replace(":", "_"))


def size_name(axis: str) -> str:
    return f"size_{axis_name(of_copy(axis))}"


def literal(value: Any, real: np.dtype) -> str:
    """A number, a type or a tuple of them in printed text."""
    if isinstance(value, tuple):
        return f"({', '.join(literal(v, real) for v in value)}{',' * (len(value) == 1)})"
    if isinstance(value, np.dtype):
        named = {real: "REAL", complex_of(real): "COMPLEX"}
        return named.get(value, f"np.{value.type.__name__}")
    if isinstance(value, np.generic):
        return _typed(value, real)
    if isinstance(value, Tape):
        return value.name
    text = {"inf": "np.inf", "-inf": "-np.inf", "nan": "np.nan"}.get(repr(value), repr(value))
    return text


def _typed(value: np.generic, real: np.dtype) -> str:
    if value.dtype.kind == "c":
        return f"{literal(value.dtype, real)}({literal(complex(value), real)})"
    plain = float(value)
    digits = literal(plain, real) if plain == value or plain != plain else repr(str(value))
    return f"{literal(value.dtype, real)}({digits})"
