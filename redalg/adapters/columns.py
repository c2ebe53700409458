"""What adapters of frames share: tensors by column, chunks folded pass by pass, results by name."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from redalg.adapters.operands import own_tensors
from redalg.errors import RedalgError
from redalg.form import Form
from redalg.graph.node import Decl
from redalg.groups.grouped import Grouped
from redalg.numeric.binding import check_digits
from redalg.numeric.encoded import decoded, refuse_wider
from redalg.numeric.windows import refuse_windows
from redalg.streaming import nulls as null
from redalg.streaming.accumulator import Accumulator
from redalg.streaming.checks import without_axis
from redalg.streaming.snapshot import Layout

Chunks = Iterable[Mapping[str, Any]]


def library(name: str, where: str, install: str) -> Any:
    """The module. Raises: RedalgError where it is not installed."""
    if importlib.util.find_spec(name.partition(".")[0]) is None:
        raise RedalgError("this call", where, f"{name} cannot be imported", f"pip install {install}")
    return importlib.import_module(name)


def by_place(form: Form, given: Sequence[Any], columns: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Columns by tensor, with those without a name for the tensors that have none, in the spec's order.

    Raises: RedalgError for more of them than there are tensors.
    """
    streamed = set(Layout.of(form.spec, form.plan).names)
    own = [d.name for d in own_tensors(form.spec) if d.name in streamed and d.name not in columns]
    if len(given) > len(own):
        why = f"the tensors without a column are {', '.join(own) or 'none'}"
        raise RedalgError(f"{len(given)} columns without a name", where, why, "name a column for each: x='price'")
    return {**dict(zip(own, given, strict=False)), **columns}


def unique(frame: Any, column: Any, where: str) -> None:
    """Raises: RedalgError where several columns have the name, of which one is meant (frames of pandas and Dask)."""
    if frame.columns.nlevels == 1 and not isinstance(frame.columns.get_loc(column), int):
        why = f"{int((frame.columns == column).sum())} columns are called so"
        raise RedalgError(f"a column {column!r}", where, why, "rename one of them")


def rows_of(column: Any, rows: np.ndarray | None) -> Any:
    """The elements of a Series that a mask selects; None: all of them."""
    return column if rows is None else native(column)[rows]


def native(column: Any) -> Any:
    """A Series in the byte order of this machine: pandas neither selects of others nor groups by them."""
    dtype = column.dtype
    return column if not isinstance(dtype, np.dtype) or dtype.isnative else column.astype(dtype.newbyteorder("="))


@dataclass(frozen=True)
class Columns:
    """Where a form's tensors come from: `streamed` ones are columns (a list of them: one more axis), others are bound.

    A tensor that is not named is the column of its own name.
    """

    form: Form
    given: Mapping[str, Any]
    where: str
    nulls: str = "propagate"
    streamed: Mapping[str, Any] = field(init=False)
    bound: Mapping[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        layout = self.layout
        if not layout.axis:
            why = f"{without_axis(layout.plan)}, so there is no axis to stream"
            raise RedalgError("this form over columns", self.where, why, "run = form.compile(); run(...)")
        refuse_windows(self.form.spec.tensors, self.where)
        null.checked(layout, self.nulls, False, self.where)
        own = {d.name: d for d in own_tensors(self.form.spec)}
        for name in self.given:
            if name not in own:
                why = f"the tensors are {', '.join(map(str, own.values()))}"
                raise RedalgError(f"a tensor named {name!r}", self.where, why, f"leave {name!r} out")
        names = {d.name for d in layout.streamed}
        streamed = {d.name: self.given.get(d.name, d.name) for d in own.values() if d.name in names}
        for name, column in streamed.items():
            self._check(own[name], column)
        missing = [str(d) for d in own.values() if d.name not in names and d.name not in self.given]
        if missing:
            why = f"{missing[0]} lacks the streamed axis {layout.axis[0]!r}, so it is no column"
            raise RedalgError(f"a call without {missing[0]}", self.where, why, "pass it as an array or a number")
        object.__setattr__(self, "streamed", streamed)
        object.__setattr__(self, "bound", {n: x for n, x in self.given.items() if n not in names})

    @cached_property
    def layout(self) -> Layout:
        return Layout.of(self.form.spec, self.form.plan)

    @cached_property
    def decls(self) -> dict[str, Decl]:
        return {d.name: d for d in self.layout.streamed}

    def _check(self, d: Decl, column: Any) -> None:
        if isinstance(column, list) and len(d.axes) != 2:
            why = f"a list of columns is a tensor of two axes, and {d} has {len(d.axes)}"
            raise RedalgError(f"{d.name}={column!r}", self.where, why, "name one column")
        if isinstance(column, list) and not column:
            raise RedalgError(
                f"{d.name}=[]", self.where, "a list of no columns says no dtype", "name one column or more"
            )

    def side_by_side(self, name: str, parts: Sequence[Any]) -> Any:
        """Columns as the matrix of a tensor, masked where one has nulls (by "propagate" these are NaN).

        Raises: RedalgError for integers that the dtype which all columns have in common does not hold.
        """
        decl, parts = self.decls[name], [decoded(x) for x in parts]
        for x in parts:
            refuse_wider(decl, x, self.where)
        masks = [null.mask(x) for x in parts]
        found = list(map(null.with_nan if self.nulls == "propagate" else null.filled, parts))
        for given, x in zip(parts, found, strict=True):
            check_digits(decl, given, x, self.where)
        common = np.result_type(*(x.dtype for x in found)) if all(x.dtype.kind in "biuf" for x in found) else None
        if common is not None and common.kind == "f":
            for x in found:
                held_by_floats(decl, x, common, self.where)
        values = np.stack(found, axis=-1)
        if self.nulls != "propagate":
            none = np.zeros(len(values), bool)
            values = np.ma.MaskedArray(values, np.stack([none if m is None else m for m in masks], axis=-1))
        return self.oriented(name, values)

    def oriented(self, name: str, x: Any) -> Any:
        """A matrix of rows by columns, with its axes as the tensor has them."""
        axes = self.decls[name].axes
        return x.T if len(axes) == 2 and axes.index(self.layout.axis[0]) == 1 else x

    def sole(self) -> str:
        """The one tensor that is a column. Raises: RedalgError if there are more."""
        if len(self.streamed) != 1:
            why = f"the form reads {', '.join(map(str, self.decls.values()))}, and one column was given"
            raise RedalgError("a column without a name", self.where, why, "name a column for each: x='price'")
        return next(iter(self.streamed))

    # --- folding -----------------------------------------------------------------------------------------------------

    def accumulated(self, chunks: Callable[[], Chunks]) -> Accumulator:
        """All chunks, read once for every pass of the plan."""
        place = 0 if self.layout.positional else None
        acc = self.form.accumulator(start=place, nulls=self.nulls, **self.bound)
        for number in range(self.layout.passes):
            if number:
                if not acc.count:
                    break
                acc.next_pass()
            for chunk in chunks():
                acc.update(**chunk)
        return acc

    def grouped(self, chunks: Callable[[], Chunks]) -> Grouped:
        """The same by key: each chunk has its keys as `by`."""
        self.check_groups()
        groups = self.form.grouped(nulls=self.nulls, **self.bound)
        for number in range(self.layout.passes):
            if number:
                groups.next_pass()
            for chunk in chunks():
                groups.update(**chunk)
        return groups

    def check_keys(self, keys: Sequence[str]) -> None:
        """Raises: RedalgError for names of key columns that would not be those of a table of results."""
        if not keys:
            raise RedalgError("by=[]", self.where, "groups are by a column or several", 'by="shop", or leave it out')
        twice = next((key for key in keys if list(keys).count(key) > 1), None)
        if twice is not None:
            raise RedalgError(f"by={list(keys)!r}", self.where, f"{twice!r} is there twice", "name each column once")
        both = next((key for key in keys if key in self.form.spec.outputs), None)
        if both is not None:
            why = "an output of the form has this name, too, and the result has one column of a name"
            raise RedalgError(f"the key {both!r}", self.where, why, "rename the key column, or the output in the spec")

    def check_groups(self) -> None:
        """Raises: RedalgError where no output is one value for a group."""
        if set(self.layout.keeps) == set(self.form.spec.outputs):
            why, fix = "every output keeps the streamed axis", "call the form on each group (transform, map_groups)"
            raise RedalgError("a result by group", self.where, why, fix)

    def named(self, value: Any) -> dict[str, Any]:
        """Results by the names of outputs, those that keep the axis left out."""
        if isinstance(value, dict):
            return value
        kept = [name for name in self.form.spec.outputs if name not in self.layout.keeps]
        return {(kept or list(self.form.spec.outputs))[0]: value}

    def results(self, acc: Accumulator, chunks: Callable[[], Chunks]) -> dict[str, Any]:
        """All outputs: those of the whole, and those that keep the axis from one more reading."""
        found: dict[str, Any] = {}
        keeps = self.layout.keeps
        if len(keeps) < len(self.form.spec.outputs):
            found |= self.named(acc.result())
        if keeps:
            pieces, at = [], 0
            for chunk in chunks():
                value = acc.apply(start=at, **chunk) if self.layout.positional_rows else acc.apply(**chunk)
                pieces.append(value if isinstance(value, dict) else {keeps[0]: value})
                at += np.shape(next(iter(pieces[-1].values())))[self._place(keeps[0])]
            for name in keeps:
                if not pieces:
                    why = f"{name} has an element for every row, and no batch says of which dtype"
                    raise RedalgError("a source without a batch", self.where, why, "pass a table, or an empty batch")
                found[name] = np.concatenate([p[name] for p in pieces], axis=self._place(name))
        return {name: found[name] for name in self.form.spec.outputs}

    def _place(self, output: str) -> int:
        return self.form.spec.output_axes[output].index(self.layout.axis[0])


def beyond_float64(x: np.ndarray) -> int | None:
    """The largest magnitude of integers, where float64 may round it: beyond 2^53.

    >>> beyond_float64(np.array([1, -(2**53) - 1])), beyond_float64(np.array([2**53])), beyond_float64(np.ones(2))
    (9007199254740993, None, None)
    """
    if x.dtype.kind not in "iu" or x.dtype.itemsize < 8 or not x.size:
        return None
    largest = max(abs(int(x.max())), abs(int(x.min())))
    return largest if largest > 1 << 53 else None


def held_by_floats(what: object, x: np.ndarray, common: np.dtype, where: str) -> None:
    """Raises: RedalgError for integers of a column that are rounded beside columns of another dtype."""
    largest = beyond_float64(x)
    if largest is not None:
        why = f"beside the other columns it is converted to {common}, and {largest} is beyond 2**53"
        raise RedalgError(f"{what} with a column of {x.dtype}", where, why, "convert the columns to one dtype first")


__all__ = [
    "Chunks",
    "Columns",
    "beyond_float64",
    "by_place",
    "held_by_floats",
    "library",
    "native",
    "rows_of",
    "unique",
]
