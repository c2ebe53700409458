"""Forms over Dask's arrays and dataframes: a state for each block, a tree of merges, lazy results.

Every task is a pure function of a block or of a few states, so that what a lost worker held is computed again. Blocks
are merged with their neighbours in order, by a tree that depends on their number alone. A state says which positions it
covers (or, where lengths are not known, which blocks), and the last merge has to find each once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate, product
from typing import Any

import numpy as np

from redalg.adapters import blocks
from redalg.adapters.columns import unique
from redalg.adapters.dask_groups import by_group
from redalg.encoding.digest import form_digest, spec_digest
from redalg.errors import RedalgError
from redalg.form import Form
from redalg.graph.node import Decl
from redalg.numeric.binding import Bound, result_dtypes, with_readings
from redalg.numeric.windows import refuse_windows
from redalg.streaming import nulls as null
from redalg.streaming.snapshot import Layout

try:
    import dask.array as da
    from dask._task_spec import DataNode, TaskRef, convert_legacy_graph
    from dask._task_spec import Task as Node
    from dask.base import is_dask_collection, tokenize
    from dask.highlevelgraph import HighLevelGraph
except ImportError:
    da = None

WHERE = "form.dask"
Task = tuple[Any, ...]


def over_dask(form: Form, given: tuple[Any, ...], options: Mapping[str, Any], named: Mapping[str, Any]) -> Any:
    """The lazy results. Raises: RedalgError for what does not fit, and without Dask."""
    if da is None:
        raise RedalgError("Dask's arrays", WHERE, "Dask cannot be imported", "pip install 'redalg[dask]'")
    refuse_windows(form.spec.tensors, WHERE)
    options = dict(options)
    every = options["split_every"]
    if not isinstance(every, int) or every < 2:
        raise RedalgError(f"split_every={every!r}", WHERE, "a merge takes at least two states", "split_every=8")
    if options["by"] is not None:
        return by_group(form, given, options, named)
    reread, options = options["reread"], {k: options[k] for k in ("deterministic", "nulls")}
    framed = len(given) == 1 and hasattr(given[0], "divisions")
    arrays = _columns(form, given[0], named) if framed else _named(form, given, named)
    graph = _Graph(form, _laid_out(form, arrays), options, every, reread)
    found = {name: graph.output(name) for name in form.spec.outputs}
    return next(iter(found.values())) if len(found) == 1 else found


# --- arguments -------------------------------------------------------------------------------------------------------


def _named(form: Form, given: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
    own = [d.name for d in form.spec.tensors if not d.array]
    if not given:
        return dict(named)
    if len(given) > 1 or named or len(own) > 1:
        why = f"the spec reads {', '.join(own)}"
        raise RedalgError(f"{len(given)} arrays without a name", WHERE, why, f"pass them by name: {own[0]}=…")
    return {own[0]: given[0]}


def _columns(form: Form, frame: Any, named: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a frame as arrays, of which each partition is read once; a tensor that is not named has that of
    its own name."""
    streamed = Layout.of(form.spec, form.plan).names
    named = {n: n for n in (d.name for d in form.spec.tensors if not d.array) if n in streamed} | dict(named)
    missing = [c for c in named.values() if isinstance(c, str) and c not in frame.columns]
    if missing:
        why = f"its columns are {', '.join(map(str, frame.columns))}"
        raise RedalgError(f"column {missing[0]!r}", WHERE, why, 'name one: form.dask(frame, x="price")')
    wanted = list(dict.fromkeys(c for c in named.values() if isinstance(c, str)))
    for column in wanted:
        unique(frame, column, WHERE)
    parts = frame[wanted].to_delayed()
    found: dict[str, Any] = {}
    for name, column in named.items():
        found[name] = _Column(frame._meta[column], column, parts) if isinstance(column, str) else column
    return found


@dataclass
class _Column:
    """A column as a vector in blocks of unknown lengths."""

    meta: Any
    name: str
    parts: Sequence[Any]

    @property
    def dtype(self) -> np.dtype:
        """Raises: RedalgError for a column of text, categories or dates with a zone: no numbers of NumPy's."""
        dtype = self.meta.dtype
        try:
            return np.dtype(getattr(dtype, "numpy_dtype", dtype))
        except TypeError:
            why = f"it holds {dtype}, and no numbers"
            raise RedalgError(f"column {self.name!r}", WHERE, why, "convert it to a numeric dtype") from None

    def array(self) -> Any:
        label = f"column-{tokenize(self.name, [p.key for p in self.parts])}"
        dsk = {(label, k): (_column, p.key, self.name, self.dtype) for k, p in enumerate(self.parts)}
        graph = HighLevelGraph.from_collections(label, dsk, dependencies=list(self.parts))
        return da.Array(graph, label, chunks=((math.nan,) * len(self.parts),), dtype=self.dtype)


def _column(frame: Any, name: str, dtype: np.dtype) -> Any:
    found = frame[name]
    return found.to_numpy(dtype=dtype) if not len(found) else found


@dataclass
class _Layout:
    """Arrays in blocks that fit one another."""

    arrays: dict[str, Any]  # by the name of their declaration: Dask's, or numbers of Python
    chunks: dict[str, tuple[float, ...]]  # of every axis
    sizes: dict[str, int]
    dtypes: dict[str, np.dtype]  # of the outputs
    streamed: dict[str, Any]  # dtypes of the tensors in chunks
    free: tuple[str, ...]  # axes cut beside the streamed one


def _laid_out(form: Form, given: Mapping[str, Any]) -> _Layout:
    layout = Layout.of(form.spec, form.plan)
    blocks.refuse_double_readings(layout, WHERE)
    axes = {d.name: d.axes for d in form.spec.tensors}
    arrays = {n: _array(x) for n, x in with_readings(form.spec.tensors, given).items()}
    cut = (*form.plan.axis[:1], *blocks.free_axes(form))
    bound = _described(form, arrays, axes)
    long = {n: x for n, x in arrays.items() if isinstance(x, da.Array) and x.ndim}
    long = {n: x.rechunk({k: -1 for k, a in enumerate(axes[n]) if a not in cut}) for n, x in long.items()}
    try:
        unified = da.core.unify_chunks(*(y for n, x in long.items() for y in (x, axes[n])))[1]
    except ValueError as error:
        fix = "give the arrays the same blocks, or x = x.compute_chunk_sizes()"
        raise RedalgError("blocks that do not fit", WHERE, str(error).splitlines()[0], fix) from error
    arrays |= dict(zip(long, unified, strict=True))
    # as they lie now: Dask joins the blocks of an axis of length 0 or 1, and tells of those before
    chunks = {a: sizes for n in long for a, sizes in zip(axes[n], arrays[n].chunks, strict=True)}
    dtypes, streamed = result_dtypes(form.spec, bound), {n: bound.dtypes[n] for n in layout.names}
    return _Layout(arrays, chunks, bound.sizes, dtypes, streamed, cut[len(form.plan.axis[:1]) :])


def _described(form: Form, arrays: Mapping[str, Any], axes: Mapping[str, Sequence[str]]) -> Bound:
    """Lengths and dtypes; those of blocks may be unknown along the streamed axis, and count as 1 here."""
    for name, x in arrays.items():
        for axis, sizes in zip(axes.get(name, ()), getattr(x, "chunks", ()), strict=False):
            if axis not in form.plan.axis[:1] and any(map(math.isnan, sizes)):
                why = f"the lengths of its blocks along {axis!r} are not known"
                raise RedalgError(
                    f"{name}[{','.join(axes[name])}]", WHERE, why, f"{name} = {name}.compute_chunk_sizes()"
                )
    shapes = {n: tuple(1 if math.isnan(k) else int(k) for k in np.shape(x)) for n, x in arrays.items()}
    kinds = {n: np.dtype(x.dtype) if isinstance(x, da.Array) else x for n, x in arrays.items()}
    return blocks.described(form, shapes, kinds, WHERE)


def _array(x: Any) -> Any:
    if isinstance(x, bool | int | float | complex | da.Array):
        return x
    if isinstance(x, _Column):
        return x.array()
    if is_dask_collection(x):
        if not hasattr(x, "to_dask_array"):
            raise RedalgError(f"a {type(x).__name__}", WHERE, "it is no array and no column", "pass a dask array")
        return x.to_dask_array()
    found = np.asarray(x)
    return da.from_array(found, chunks=-1) if found.ndim else da.from_array(found)


# --- the graph -------------------------------------------------------------------------------------------------------


class _Graph:
    """The tasks of one call; keys are (name of a step, index among the free axes…, number of the block)."""

    def __init__(self, form: Form, laid: _Layout, options: Mapping[str, Any], every: int, reread: bool) -> None:
        self.form, self.laid, self.options, self.every = form, laid, dict(options), every
        self.layout = Layout.of(form.spec, form.plan)
        self.axis = form.plan.axis[0] if form.plan.axis else None
        inputs = {n: getattr(x, "name", x) for n, x in laid.arrays.items()}
        digest = spec_digest(form.spec), form_digest(form.plan)
        self.label = f"redalg-{'-'.join(form.spec.outputs)}-{tokenize(digest, inputs, self.options, every, reread)}"
        self.dsk: dict[Any, Any] = {self.label: form}
        self.arrays, self.before = laid.arrays, [x for x in laid.arrays.values() if isinstance(x, da.Array)]
        self._check()
        self._tasks(reread)

    # --- places ---

    @cached_property
    def starts(self) -> list[int] | None:
        """Where each block begins; None where lengths are not known, or nulls move what follows."""
        sizes = self.laid.chunks[str(self.axis)]
        if self.options["nulls"] == "skip" or any(map(math.isnan, sizes)):
            return None
        inner = self.layout.inner(self.laid.sizes)
        return [0, *(int(k) * inner for k in accumulate(sizes))][: len(sizes)]

    @property
    def length(self) -> float:
        return float(sum(self.laid.chunks[str(self.axis)])) * self.layout.inner(self.laid.sizes)

    def _check(self) -> None:
        if self.axis is None:
            return
        null.checked(self.layout, self.options["nulls"], False, WHERE)
        if self.starts is None and (self.layout.positional or self.layout.positional_rows):
            why = f"the form reads index({self.axis!r}), and the lengths of its blocks are not known"
            raise RedalgError("blocks without a place", WHERE, why, "x = x.compute_chunk_sizes()")
        if self.starts is None and self.options["deterministic"]:
            why = "the tree lies over positions, and the lengths of the blocks are not known"
            raise RedalgError("deterministic=True", WHERE, why, "x = x.compute_chunk_sizes()")

    @property
    def count(self) -> int:
        return len(self.laid.chunks[str(self.axis)])

    @property
    def cells(self) -> Iterator[tuple[int, ...]]:
        return product(*(range(len(self.laid.chunks[a])) for a in self.laid.free))

    def _blocks(self, decls: Sequence[Decl], b: tuple[int, ...], k: int) -> list[Any]:
        """The keys of the blocks of tensors."""
        at: dict[str | None, int] = dict(zip(self.laid.free, b, strict=True))
        at[self.axis] = k
        found = []
        for d in decls:
            x = self.arrays[d.name]
            found.append((x.name, *(at.get(a, 0) for a in d.axes)) if isinstance(x, da.Array) else x)
        return found

    # --- tasks ---

    def _key(self, step: str, *index: int) -> Task:
        return (f"{self.label}-{step}", *index)

    def _tasks(self, reread: bool) -> None:
        """Pass after pass; where the data is read again, no block of it is before the pass that came first is done."""
        if self.axis is None:
            decls = self.form.spec.tensors
            for b in self.cells:
                own = [d.name for d in decls], self._blocks(decls, b, 0)
                self.dsk[self._key("results", *b)] = (blocks.whole, self.label, *own)
            return
        fixed, passes = self.layout.fixed, len(self.layout.plan.passes)
        for b in self.cells:
            own = [d.name for d in fixed], self._blocks(fixed, b, 0)
            self.dsk[self._key("empty0", *b)] = (blocks.template, self.label, self.options, self.laid.streamed, *own)
        for p in range(passes):
            if p:
                self._barrier(p, reread)
            for b in self.cells:
                self._fold(p, b)
        if len(self.layout.keeps) < len(self.form.spec.outputs):
            for b in self.cells:
                self.dsk[self._key("results", *b)] = (blocks.results, self._template(passes, b))
        if self.layout.keeps:
            self._barrier(passes, reread)
            for b, k in product(self.cells, range(self.count)):
                self.dsk[self._key("rows", *b, k)] = (blocks.rows, self._template(passes, b), *self._read(b, k))

    def _template(self, p: int, b: tuple[int, ...]) -> Task:
        """The accumulator that pass `p` starts with; after all passes, that of the whole."""
        passes = len(self.layout.plan.passes)
        return self._key(f"total{p - 1}" if p == passes and p else f"empty{p}", *b)

    def _read(self, b: tuple[int, ...], k: int) -> tuple[Any, ...]:
        streamed = self.layout.streamed
        start = None if self.starts is None else self.starts[k]
        return start, [d.name for d in streamed], self._blocks(streamed, b, k)

    def _fold(self, p: int, b: tuple[int, ...]) -> None:
        """One pass: a state for each block, merged."""
        empty, passes = self._template(p, b), len(self.layout.plan.passes)
        for k in range(self.count):
            start, names, chunks = self._read(b, k)
            self.dsk[self._key(f"part{p}", *b, k)] = (blocks.part, empty, start, k, names, chunks)
        whole = self._key(f"total{p}", *b)
        self.dsk[whole] = (blocks.total, empty, self._tree(p, b, empty), self.count, self.length)
        if p + 1 < passes:
            self.dsk[self._template(p + 1, b)] = (blocks.next_pass, whole, self.starts is not None)

    def _barrier(self, p: int, reread: bool) -> None:
        """Read the arrays once more, after the pass before, so that no block waits in memory for its second use."""
        streamed = {d.name for d in self.layout.streamed}
        again = {n: x for n, x in self.laid.arrays.items() if n in streamed and isinstance(x, da.Array)}
        if not reread or not p or not again:
            return
        done = self._key(f"done{p}")  # after the templates: a block that is there can be folded at once
        self.dsk[done] = (_nothing, [self._template(p, b) for b in self.cells])
        name = f"{self.label}-{p}"
        tasks = _anew({k: t for x in again.values() for k, t in dict(x.__dask_graph__()).items()}, done, name)
        self.dsk |= tasks
        copies = [da.Array(tasks, f"{name}-{x.name}", x.chunks, dtype=x.dtype) for x in again.values()]
        self.arrays = {**self.arrays, **dict(zip(again, copies, strict=True))}

    def _tree(self, p: int, b: tuple[int, ...], empty: Task) -> Task:
        """The key of the state of all blocks."""
        keys, level = [self._key(f"part{p}", *b, k) for k in range(self.count)], 0
        while len(keys) > 1:
            level += 1
            groups = [keys[k : k + self.every] for k in range(0, len(keys), self.every)]
            keys = [self._key(f"merge{p}-{level}", *b, k) for k in range(len(groups))]
            for key, group in zip(keys, groups, strict=True):
                self.dsk[key] = (blocks.merged, empty, group)
        return keys[0]

    # --- results ---

    @cached_property
    def _graph(self) -> Any:
        return HighLevelGraph.from_collections(self.label, self.dsk, dependencies=self.before)

    def output(self, name: str) -> Any:
        """The lazy array of one output."""
        axes, kept = self.form.spec.output_axes[name], name in self.layout.keeps and self.axis is not None
        lengths = {**self.laid.sizes, **dict(self.layout.new_axes)}
        cut = {*self.laid.free, *([self.axis] if kept else [])}
        chunks = tuple(self.laid.chunks[a] if a in cut and a in self.laid.chunks else (lengths[a],) for a in axes)
        label = f"{self.label}-{name}"
        dsk: dict[Any, Any] = {}
        for index in product(*(range(len(c)) for c in chunks)):
            at = dict(zip(axes, index, strict=True))
            b = tuple(at.get(a, 0) for a in self.laid.free)
            key = self._key("rows", *b, at.get(str(self.axis), 0)) if kept else self._key("results", *b)
            dsk[(label, *index)] = (_item, key, name)
        layers = {**self._graph.layers, label: dsk}
        dependencies = {**self._graph.dependencies, label: {self.label}}
        return da.Array(HighLevelGraph(layers, dependencies), label, chunks=chunks, dtype=self.laid.dtypes[name])


def _anew(graph: Mapping[Any, Any], done: Task, label: str) -> dict[Any, Any]:
    """The tasks of a graph under other names; those that depend on nothing wait for `done`."""
    names = {k: (f"{label}-{k[0]}", *k[1:]) if isinstance(k, tuple) else f"{label}-{k}" for k in graph}
    found: dict[Any, Any] = {}
    for key, node in convert_legacy_graph(graph).items():
        new = names[key]
        if isinstance(node, DataNode):
            found[new] = DataNode(new, node.value)
        elif node.dependencies:
            found[new] = node.substitute(names, key=new)
        else:
            found[new] = Node(new, partial(_after, node), TaskRef(done))
    return found


def _after(node: Any, done: None) -> Any:
    return node()


def _nothing(states: Sequence[Any]) -> None:
    return None


def _item(found: Mapping[str, Any], name: str) -> Any:
    return np.asarray(found[name])


__all__ = ["over_dask"]
