"""Forms over xarray's labelled arrays: dimensions are matched to axes by name, coordinates are kept.

Dimensions that no axis of a tensor is named like are mapped over: the form is derived once more with an axis for each.
Arrays in Dask's blocks give lazy results (`redalg.adapters.dask`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from redalg.adapters.columns import library
from redalg.adapters.operands import mapped_form, own_tensors
from redalg.errors import RedalgError
from redalg.form import Form
from redalg.groups.grouped import Grouped
from redalg.numeric.binding import by_output
from redalg.numeric.windows import refuse_windows

WHERE = "form.xarray"


def over_xarray(form: Form, given: tuple[Any, ...], by: Any, axes: Mapping[str, str] | None, named: Any) -> Any:
    """A `DataArray` of one output, a `Dataset` of several. Raises: RedalgError, and without xarray."""
    xr = library("xarray", WHERE, "redalg[xarray]")
    refuse_windows(form.spec.tensors, WHERE)
    call = _labelled(xr, form, _arrays(xr, form, given, named), dict(axes or {}))
    if by is None:
        values = call.run()
        return call.wrapped(values, (), {})
    labels = _labels(xr, call, given[0][by] if isinstance(by, str) and given else by)
    try:
        keys, codes = np.unique(np.asarray(labels), return_inverse=True)
    except TypeError as error:
        why = f"groups are sorted by their labels, and these have no order: {error}"
        raise RedalgError("by with these labels", WHERE, why, "give labels of one type, without None") from error
    name = labels.name if labels.name is not None else "group"
    return call.wrapped(call.grouped(codes, len(keys)), (name,), {name: keys})


def _labels(xr: Any, call: _Call, by: Any) -> Any:
    """Raises: RedalgError for labels that are not those of the elements along the streamed dimension, in order."""
    labels = by if isinstance(by, xr.DataArray) else xr.DataArray(np.asarray(by), dims=[call.streamed])
    if labels.dims != (call.streamed,):
        why, fix = f"groups are along {call.streamed!r}", "give one label for each of its elements"
        raise RedalgError(f"by with the dimensions {labels.dims}", WHERE, why, fix)
    dim, both = call.streamed, (labels.coords, call.coords)
    if all(dim in coords for coords in both) and not labels.indexes[dim].equals(call.coords[dim].to_index()):
        why = f"its coordinates along {dim!r} are not those of the arrays"
        raise RedalgError("by with other coordinates", WHERE, why, "by.reindex_like(x), or by.data")
    return labels


def _arrays(xr: Any, form: Form, given: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
    """A value for every tensor; names of variables are read in the dataset that comes first."""
    names = [d.name for d in own_tensors(form.spec)]
    data: Any = given[0] if given else None
    if len(given) == 1 and isinstance(data, xr.DataArray) and not named and len(names) == 1:
        return {names[0]: data}
    if len(given) > 1 or given and not isinstance(data, xr.Dataset):
        why = f"the spec reads {', '.join(names)}"
        raise RedalgError(f"{len(given)} arrays without a name", WHERE, why, f"pass them by name: {names[0]}=…")
    unknown = [n for n in named if n not in names]
    if unknown:
        raise RedalgError(f"an array named {unknown[0]!r}", WHERE, f"the spec reads {', '.join(names)}", "leave it out")
    return {n: _value(n, named.get(n, n if given else None), data) for n in names}


def _value(name: str, value: Any, data: Any) -> Any:
    """An array, or the variable of that name."""
    if value is None or isinstance(value, str) and data is None:
        why = "no dataset comes first, whose variables could be named"
        raise RedalgError(f"a call without {name}", WHERE, why, f"pass {name}=…")
    if not isinstance(value, str):
        return value
    if value not in data:
        why = f"its variables are {', '.join(map(str, data.variables))}"
        raise RedalgError(f"variable {value!r}", WHERE, why, f'name one: {name}="…"')
    return data[value]


@dataclass
class _Call:
    """A form whose axes are dimensions, and arrays with their dimensions in its order."""

    xr: Any
    form: Form
    dims: dict[str, Any]  # axis -> dimension
    arrays: dict[str, Any]
    coords: dict[Any, Any]

    @property
    def streamed(self) -> Any:
        return self.dims.get(self.form.plan.axis[0], self.form.plan.axis[0]) if self.form.plan.axis else ""

    @property
    def lazy(self) -> bool:
        return any(hasattr(x, "dask") for x in self.arrays.values())

    def run(self) -> dict[str, Any]:
        found = self.form.dask(**self.arrays) if self.lazy else self.form.compile("numpy")(**self.arrays)
        return by_output(self.form.spec.outputs, found)

    def wrapped(self, values: Mapping[str, Any], before: Sequence[Any], labels: Mapping[Any, Any]) -> Any:
        found = {}
        for name, value in values.items():
            dims = [*before, *(self.dims.get(a, a) for a in self.form.spec.output_axes[name])]
            twice = next((d for d in dims if dims.count(d) > 1), None)
            if twice is not None:
                why = f"{name} would have two dimensions called {twice!r}"
                raise RedalgError(
                    f"the dimensions {tuple(dims)}", WHERE, why, "rename one of the arrays, or of the labels"
                )
            coords = {k: c for k, c in self.coords.items() if set(c.dims) <= set(dims)}
            found[name] = self.xr.DataArray(value, dims=dims, coords={**coords, **labels}, name=name)
        if len(found) == 1:
            return next(iter(found.values()))
        try:
            return self.xr.Dataset(found)
        except (ValueError, self.xr.MergeError) as error:
            why = f"they make no dataset: {str(error).splitlines()[0]}"
            fix = "rename outputs of the spec, or coordinates"
            raise RedalgError(f"the outputs {', '.join(found)}", WHERE, why, fix) from error

    # --- groups ---

    def grouped(self, codes: Any, groups: int) -> dict[str, Any]:
        """The outputs with a leading axis of groups; of blocks, lazily."""
        axis = self.form.plan.axis[0]
        axes = {d.name: d.axes for d in own_tensors(self.form.spec)}
        bound = {n: np.asarray(x) for n, x in self.arrays.items() if axis not in axes[n]}
        streamed = {n: x for n, x in self.arrays.items() if axis in axes[n]}
        at = {n: axes[n].index(axis) for n in streamed}
        passes = len(self.form.plan.passes)
        if self.lazy and passes != 1:
            why = f"its plan reads the data {passes} times, and states by label are made in one reading"
            raise RedalgError("groups of this form over blocks", WHERE, why, "a form of one pass, or x.compute()")
        if self.lazy:
            return _lazy_groups(self.form, bound, streamed, at, codes, groups)
        return group_results(group_part(self.form, bound, codes, streamed))


def group_part(form: Form, bound: Mapping[str, Any], codes: Any, chunks: Mapping[str, Any]) -> Grouped:
    found = form.grouped(**bound)
    for number in range(len(form.plan.passes)):
        if number:
            found.next_pass()
        found.update(by=codes, **chunks)
    return found


def group_results(groups: Grouped) -> dict[str, Any]:
    """By name, in the order of their numbers."""
    value = groups.result(sort=True)[1]
    kept = groups._like._layout.keeps
    return value if isinstance(value, dict) else {next(n for n in groups.form.spec.outputs if n not in kept): value}


def _lazy_groups(form: Form, bound: Any, streamed: Any, at: Mapping[str, int], codes: Any, groups: int) -> Any:
    dask, da = library("dask", WHERE, "redalg[dask]"), library("dask.array", WHERE, "redalg[dask]")
    part, merged, results = (dask.delayed(f, pure=True) for f in (group_part, sum, group_results))
    cuts, blocks = _in_blocks(da, streamed, at)
    shared, parts = dask.delayed(form), []
    for k, (low, high) in enumerate(zip(cuts, cuts[1:], strict=False)):
        parts.append(part(shared, bound, codes[low:high], {n: b[k] for n, b in blocks.items()}))
    while len(parts) > 1:
        parts = [merged(parts[k : k + 8]) for k in range(0, len(parts), 8)]
    found = results(parts[0])
    length = min(groups, 1)
    one = {
        n: np.zeros([length if k == at[n] else s for k, s in enumerate(x.shape)], x.dtype) for n, x in streamed.items()
    }
    meta = group_results(group_part(form, bound, np.zeros(length, np.int64), one))
    return {n: da.from_delayed(found[n], (groups, *np.shape(x)[1:]), x.dtype) for n, x in meta.items()}


def _in_blocks(da: Any, streamed: Mapping[str, Any], at: Mapping[str, int]) -> tuple[list[int], dict[str, Any]]:
    """Where blocks begin and end, and those of each array; other dimensions are in one piece."""
    pairs: list[Any] = []
    for n, x in streamed.items():
        others = {k: -1 for k in range(x.ndim) if k != at[n]}
        pairs += [da.asarray(x).rechunk(others), tuple("j" if k == at[n] else f"{n}{k}" for k in range(x.ndim))]
    chunks, whole = da.core.unify_chunks(*pairs)
    blocks = {n: x.to_delayed(optimize_graph=False).ravel() for n, x in zip(streamed, whole, strict=True)}
    return np.cumsum([0, *chunks["j"]]).tolist(), blocks


# --- dimensions ------------------------------------------------------------------------------------------------------


def _labelled(xr: Any, form: Form, arrays: dict[str, Any], dims: dict[str, Any]) -> _Call:
    labelled = {n: x for n, x in arrays.items() if isinstance(x, xr.DataArray)}
    axes = dict.fromkeys(a for d in own_tensors(form.spec) for a in d.axes)
    unknown = [a for a in dims if a not in axes]
    if unknown:
        why, fix = f"the axes are {', '.join(axes)}", 'axes={"j": "time"}: of an axis to a dimension'
        raise RedalgError(f"axes={dims!r}", WHERE, why, fix)
    try:
        labelled = dict(zip(labelled, xr.align(*labelled.values(), join="exact", copy=False), strict=True))
    except ValueError as error:
        fix = "xarray.align them first, by the join that is meant"
        raise RedalgError("arrays with other coordinates", WHERE, str(error).splitlines()[0], fix) from error
    wanted = {d.name: [dims.get(a, a) for a in d.axes] for d in own_tensors(form.spec)}
    for name, x in labelled.items():
        _check_dimensions(name, x, wanted[name])
    form, dims, wanted = _mapped(form, dims, wanted, labelled)
    data = {n: x.transpose(*wanted[n]).data for n, x in labelled.items()}
    return _Call(xr, form, dims, {**arrays, **data}, _coords(labelled.values()))


def _coords(arrays: Iterable[Any]) -> dict[Any, Any]:
    """The coordinates of all arrays, as in xarray's arithmetic: of dimensions, and others where they do not differ."""
    found: dict[Any, Any] = {}
    differ = set()
    for name, c in (item for x in arrays for item in x.coords.items()):
        held = found.setdefault(name, c)
        if c.dims == (name,):
            found[name] = c
        elif held.dims != (name,) and not c.variable.identical(held.variable):
            differ.add(name)
    return {name: c for name, c in found.items() if name not in differ or c.dims == (name,)}


def _check_dimensions(name: str, x: Any, wanted: Sequence[Any]) -> None:
    for dim in wanted:
        if dim not in x.dims:
            why, fix = f"its dimensions are {x.dims}", f'rename one, or axes={{"{dim}": "its name"}}'
            raise RedalgError(f"{name} without the dimension {dim!r}", WHERE, why, fix)


def _mapped(form: Form, dims: dict[str, Any], wanted: dict[str, list[Any]], labelled: Mapping[str, Any]) -> Any:
    """The form with an axis for every dimension that no axis is named like."""
    extra = list(dict.fromkeys(d for n, x in labelled.items() for d in x.dims if d not in wanted[n]))
    for dim in reversed(extra):
        names = [n for n, x in labelled.items() if dim in x.dims and dim not in wanted[n]]
        form = mapped_form(form, names)
        added = next(d.axes[0] for d in own_tensors(form.spec) if d.name == names[0])
        dims = {**dims, added: dim}
        wanted = {n: [dim, *w] if n in names else w for n, w in wanted.items()}
    return form, dims, wanted


__all__ = ["over_xarray"]
