"""Forms over Dask by group: states by key for each block, a tree of merges, one lazy result whose length is not known.

Keys need not be known before, and a block may bring new ones. A partial says which blocks it covers, so that the last
merge finds each of them once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from redalg.adapters.columns import Columns, library, native, rows_of, unique
from redalg.adapters.operands import own_tensors
from redalg.errors import RedalgError
from redalg.form import Form
from redalg.groups.grouped import Grouped
from redalg.groups.keys import plain

WHERE = "form.dask"
Partial = tuple[frozenset[int], Grouped]


def by_group(form: Form, given: tuple[Any, ...], options: Mapping[str, Any], named: Mapping[str, Any]) -> Any:
    """Of a frame a lazy frame on the index of groups; of arrays the keys and the results, as lazy arrays.

    Raises: RedalgError for what has no groups, and for what `Form.grouped` refuses.
    """
    by, nulls, every = options["by"], options["nulls"], options["split_every"]
    if len(form.plan.passes) != 1:
        why = f"its plan reads the data {len(form.plan.passes)} times, and states by key are made in one reading"
        raise RedalgError("groups of this form", WHERE, why, "a form of one pass")
    if options["deterministic"] or options["reread"]:
        why = "groups are merged in the order of blocks, in one reading"
        raise RedalgError("by= with deterministic= or reread=", WHERE, why, "leave them out")
    if len(given) == 1 and hasattr(given[0], "divisions"):
        return _of_frame(Columns(form, named, WHERE, nulls), given[0], by, every, options["sort"])
    own = [d.name for d in own_tensors(form.spec)]
    if given:
        if len(given) > 1 or named or len(own) > 1:
            why = f"the spec reads {', '.join(own)}"
            raise RedalgError(f"{len(given)} arrays without a name", WHERE, why, f"pass them by name: {own[0]}=…")
        named = {own[0]: given[0]}
    missing = [n for n in own if n not in named] + [n for n in named if n not in own]
    if missing:
        why = f"the spec reads {', '.join(own)}"
        raise RedalgError(f"a call with other arrays ({missing[0]})", WHERE, why, "pass each tensor once, by name")
    return _of_arrays(form, named, by, nulls, every, options["sort"])


# --- frames ----------------------------------------------------------------------------------------------------------


def _of_frame(columns: Columns, frame: Any, by: Any, every: int, sort: bool) -> Any:
    dask, dd = library("dask", WHERE, "redalg[dask]"), library("dask.dataframe", WHERE, "redalg[dask]")
    columns.check_groups()
    keys = [by] if isinstance(by, str) else by
    if not isinstance(keys, list) or not keys or not all(isinstance(k, str) for k in keys):
        raise RedalgError(f"by={by!r}", WHERE, "groups of a frame are by its columns", 'by="shop", or a list of names')
    wanted = list(keys)
    for column in columns.streamed.values():
        wanted += column if isinstance(column, list) else [column]
    wanted = list(dict.fromkeys(wanted))
    missing = [c for c in wanted if c not in frame.columns]
    if missing:
        why = f"its columns are {', '.join(map(str, frame.columns))}"
        raise RedalgError(f"column {missing[0]!r}", WHERE, why, 'name one: form.dask(frame, by="shop", x="price")')
    for column in wanted:
        unique(frame, column, WHERE)
    parts, shared = frame[wanted].to_delayed(), dask.delayed(columns)
    part = dask.delayed(frame_part, pure=True)
    partials = [part(shared, p, keys, k) for k, p in enumerate(parts)]
    kinds = {key: _kind(frame._meta[key].dtype) for key in keys}
    whole = dask.delayed(frame_result, pure=True)(_tree(dask, partials, every), shared, len(parts), kinds, sort)
    try:
        filled = frame[wanted]._meta_nonempty
    except (TypeError, ValueError) as error:  # Dask makes up elements, and has none of every dtype (intervals)
        why = f"Dask has no elements of its columns: {error}"
        raise RedalgError(f"groups of the columns {', '.join(wanted)}", WHERE, why, "convert them, to text") from error
    meta = frame_result(frame_part(columns, filled, keys, 0), columns, 1, kinds, sort).iloc[:0]
    with dask.config.set({"dataframe.convert-string": False}):  # Dask would write arrays, which are objects, as text
        return dd.from_delayed([whole], meta=meta, verify_meta=False)


def frame_part(columns: Columns, frame: Any, keys: list[str], number: int) -> Partial:
    """The states of one partition, rows with a null key left out."""
    try:
        own = frame[keys].apply(native)
        groups = own.groupby(keys if len(keys) > 1 else keys[0], sort=False, observed=True)
        codes, sizes = groups.ngroup().to_numpy(), groups.size()
    except (TypeError, ValueError, NotImplementedError) as error:
        why = f"pandas does not group by it: {error}"
        raise RedalgError(f"by={keys!r}", WHERE, why, "convert the keys, to text for example") from error
    held = ~np.isnan(codes) if codes.dtype.kind == "f" else codes >= 0
    rows = None if held.all() else held
    codes, chunk = codes[held], {}
    for tensor, column in columns.streamed.items():
        parts = [rows_of(frame[c], rows) for c in (column if isinstance(column, list) else [column])]
        chunk[tensor] = columns.side_by_side(tensor, parts) if isinstance(column, list) else parts[0]
    found = columns.form.grouped(nulls=columns.nulls, **columns.bound)
    found.update(by=codes.astype(np.int64), **chunk)
    return frozenset([number]), found.relabelled(sizes.index.tolist())


def frame_result(partial: Partial, columns: Columns, blocks: int, kinds: Mapping[str, Any], sort: bool) -> Any:
    """A Series, or a frame of several outputs, on the index of groups; `kinds`: the keys, with their dtypes."""
    pd = library("pandas", WHERE, "redalg[pandas]")
    ranked = any(hasattr(kind, "categories") for kind in kinds.values())
    names, values = _whole(partial, blocks).result(sort=sort and not ranked)
    listed = names.tolist()
    parts = list(zip(*listed, strict=True)) if len(kinds) > 1 else [listed]
    parts = parts or [()] * len(kinds)
    found = [_level(pd, list(part), key, kind) for part, (key, kind) in zip(parts, kinds.items(), strict=True)]
    index = pd.MultiIndex.from_arrays(found, names=list(kinds)) if len(kinds) > 1 else found[0]
    series = {
        n: pd.Series(x if np.ndim(x) == 1 else list(x), index=index, name=n) for n, x in columns.named(values).items()
    }
    whole = next(iter(series.values())) if len(series) == 1 else pd.DataFrame(series)
    return whole.sort_index() if sort and ranked else whole


def _kind(dtype: Any) -> Any:
    """The dtype of a key; none of categories that are known to its partitions alone, and of objects."""
    unknown = "__UNKNOWN_CATEGORIES__" in getattr(dtype, "categories", ())
    if isinstance(dtype, np.dtype):
        return None if dtype.hasobject else dtype.newbyteorder("=")
    return None if unknown else dtype


def _level(pd: Any, keys: list[Any], name: str, dtype: Any) -> Any:
    """One column of keys, in its own dtype."""
    return pd.Index(keys, name=name) if dtype is None else pd.Index(pd.Series(keys, dtype=dtype), name=name)


# --- arrays ----------------------------------------------------------------------------------------------------------


def _of_arrays(form: Form, arrays: Mapping[str, Any], by: Any, nulls: str, every: int, sort: bool) -> Any:
    dask, da = library("dask", WHERE, "redalg[dask]"), library("dask.array", WHERE, "redalg[dask]")
    axis, axes = form.plan.axis[0], {d.name: d.axes for d in own_tensors(form.spec)}
    bound = {n: x for n, x in arrays.items() if axis not in axes[n]}
    streamed = {n: da.asarray(x) for n, x in arrays.items() if axis in axes[n]}
    at = {n: axes[n].index(axis) for n in streamed}
    # whole: objects have no size to cut them by
    keys = da.asarray(by) if hasattr(by, "dask") else da.from_array(np.asarray(plain(by)), chunks=-1)
    if keys.ndim != 1:
        raise RedalgError(
            f"by of {keys.ndim} axes", WHERE, "keys are a column", f"one key for each element of {axis!r}"
        )
    blocks = in_blocks(da, {**streamed, "by": keys}, {**at, "by": 0})
    shared, part = dask.delayed(form), dask.delayed(array_part, pure=True)
    count = len(blocks["by"])
    partials = [part(shared, bound, nulls, {n: b[k] for n, b in blocks.items()}, k) for k in range(count)]
    whole = dask.delayed(array_result, pure=True)(_tree(dask, partials, every), count, sort)
    one = {n: np.zeros([1 if k == at[n] else s for k, s in enumerate(x.shape)], x.dtype) for n, x in streamed.items()}
    like = array_part(form, bound, nulls, {**one, "by": np.zeros(1, keys.dtype)}, 0)
    meta = array_result(like, 1, sort)
    lazy = {n: da.from_delayed(whole[n], (math.nan, *np.shape(x)[1:]), np.asarray(x).dtype) for n, x in meta.items()}
    names = lazy.pop("")
    return names, next(iter(lazy.values())) if len(form.spec.outputs) == 1 else lazy


def array_part(form: Form, bound: Mapping[str, Any], nulls: str, chunks: Mapping[str, Any], number: int) -> Partial:
    """The states of one block."""
    found = form.grouped(nulls=nulls, **bound)
    found.update(**chunks)
    return frozenset([number]), found


def array_result(partial: Partial, blocks: int, sort: bool) -> dict[str, Any]:
    """Results by the names of outputs; the keys under an empty name."""
    groups = _whole(partial, blocks)
    keys, value = groups.result(sort=sort)
    kept = groups._like._layout.keeps
    own = value if isinstance(value, dict) else {next(n for n in groups.form.spec.outputs if n not in kept): value}
    return {"": keys, **own}


def in_blocks(da: Any, streamed: Mapping[str, Any], at: Mapping[str, int]) -> dict[str, Any]:
    """The blocks of each array along its axis `at`; other axes are in one piece."""
    pairs: list[Any] = []
    for n, x in streamed.items():
        others = {k: -1 for k in range(x.ndim) if k != at[n]}
        pairs += [da.asarray(x).rechunk(others), tuple("j" if k == at[n] else f"{n}{k}" for k in range(x.ndim))]
    try:
        whole = da.core.unify_chunks(*pairs)[1]
    except ValueError as error:
        fix = "give the arrays the same blocks, or x = x.compute_chunk_sizes()"
        raise RedalgError("blocks that do not fit", WHERE, str(error).splitlines()[0], fix) from error
    return {n: x.to_delayed(optimize_graph=False).ravel() for n, x in zip(streamed, whole, strict=True)}


# --- merging ---------------------------------------------------------------------------------------------------------


def _tree(dask: Any, parts: list[Any], every: int) -> Any:
    merge = dask.delayed(merged, pure=True)
    while len(parts) > 1:
        parts = [merge(parts[k : k + every]) for k in range(0, len(parts), every)]
    return parts[0]


def merged(parts: Sequence[Partial]) -> Partial:
    """Neighbours in order. Raises: RedalgError for a block that is there twice."""
    numbers, total = parts[0][0], parts[0][1].copy()
    for other, groups in parts[1:]:
        if numbers & other:
            why = f"block {min(numbers & other)} is in both of two partials"
            raise RedalgError("a partial that is there twice", WHERE, why, "compute it again")
        numbers |= other
        total.merge(groups)
    return numbers, total


def _whole(partial: Partial, blocks: int) -> Grouped:
    """The groups. Raises: RedalgError unless every block is in them."""
    if partial[0] != frozenset(range(blocks)):
        why = f"it has {len(partial[0])} of {blocks} blocks"
        raise RedalgError("a state that is not that of the whole", WHERE, why, "compute it again")
    return partial[1]


__all__ = ["by_group"]
