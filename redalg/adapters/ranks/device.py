"""A form over ranks by compiled kernels, on tensors where they lie: a fold, one all-gather of states, a merge.

Nothing of it goes by the host, and nothing waits for it: the kernels of `RankSpecs` write the state into a buffer that
is gathered as it is, and the merge reads the states of all where they arrive, in the order of ranks. So a call can be
captured in a CUDA graph, and the same parts give the same bits.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from redalg.adapters.ranks.channel import WHERE, Channel, Part, agreed, digest
from redalg.adapters.ranks.specs import RankSpecs
from redalg.api import derive_incremental
from redalg.errors import RedalgError
from redalg.form import Form
from redalg.graph.operators import Extremum, Quantifier
from redalg.numeric.array_origin import declared_dtype
from redalg.numeric.dtypes import output_flows

torch: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") else None

LINE = 16  # bytes that parts are aligned to


@dataclass(frozen=True)
class Buffers:
    """A state's bytes and those of all ranks, with a view of each part."""

    mine: Any
    everyone: Any
    own: Mapping[str, Any]  # part -> a tensor
    held: Mapping[str, Any]  # part -> a tensor with an axis of ranks


class DeviceCollective:
    """``collective(x=local_part)`` on tensors of PyTorch on one device, of a form that has `RankSpecs`.

    The first call of a kind (dtypes, lengths of other axes) compares it over all ranks and raises on all of them where
    they differ; later calls compare nothing, so all ranks have to make the same ones. Lengths along the axis may differ
    from call to call, and be 0. Tensors without the axis are not compared. Results are in the dtypes of the form.
    """

    def __init__(self, form: Form, channel: Channel, target: str) -> None:
        self.form, self.channel, self.target = form, channel, target
        self.specs = RankSpecs(form)
        self._buffers: dict[Any, Buffers] = {}
        self._agreed: set[int] = set()

    # --- kernels -----------------------------------------------------------------------------------------------------

    @cached_property
    def fold(self) -> Any:
        return derive_incremental(self.specs.fold, self.form.plan.axis).compile(self.target)

    @cached_property
    def merge(self) -> Any:
        return derive_incremental(self.specs.merge, self.specs.rank).compile(self.target, deterministic=True)

    @cached_property
    def apply(self) -> Any:
        return derive_incremental(self.specs.apply).compile(self.target) if self.specs.kept else None

    # --- a call ------------------------------------------------------------------------------------------------------

    def __call__(self, start: int | None = None, **arrays: Any) -> Any:
        specs, axis = self.specs, self.form.plan.axis[0]
        place = self._place(start)
        sizes = {
            a: n for d in self.form.spec.tensors if d.axes for a, n in zip(d.axes, arrays[d.name].shape, strict=True)
        }
        length = sizes.pop(axis)
        first = next(arrays[d.name] for d in self.form.spec.tensors if d.axes)
        self._compare(arrays, sizes)
        buffers = self._of(sizes, arrays, first.device)
        buffers.own["part_n"].fill_(float(length))
        if length:
            out = {o: buffers.own[o] for o in specs.fold.outputs}
            self.fold(**_taken(specs.fold, {**arrays, **place}), out=out if len(out) > 1 else next(iter(out.values())))
        else:
            self._nothing(buffers)
        self.channel.gather_into(buffers.everyone, buffers.mine)
        found = _named(specs.merge, self.merge(**_taken(specs.merge, {**arrays, **buffers.held})))
        results = {o: found[o] for o in specs.merged}
        if self.apply is not None:
            results |= _named(specs.apply, self.apply(**_taken(specs.apply, {**arrays, **found, **place})))
        dtypes = self._dtypes(arrays)
        results = {o: results[o].to(dtypes[o]) for o in self.form.spec.outputs}
        return results if len(results) > 1 else next(iter(results.values()))

    def _place(self, start: int | None) -> dict[str, int]:
        """Raises: RedalgError where the form reads positions, and the part has none."""
        if start is None and self.specs.positional:
            why = f"the form reads index({self.form.plan.axis[0]!r}), and the part does not say where it begins"
            raise RedalgError("a part without a place", WHERE, why, "pass start= on every rank")
        return {"part_start": start or 0}

    def _compare(self, arrays: Mapping[str, Any], sizes: Mapping[str, int]) -> None:
        """Raises: RedalgError, on every rank, where the calls differ in more than their lengths along the axis."""
        kinds = [(n, declared_dtype(x), x.ndim) if hasattr(x, "ndim") else (n, "number", 0) for n, x in arrays.items()]
        kind = digest(self.form.spec.digest, sorted(kinds), sorted(sizes.items()))
        if kind in self._agreed:
            return
        others = (digest(self.form.spec.digest), 0, digest(sorted(kinds)), digest(sorted(sizes.items())), 0, 0)
        agreed(self.channel, Part(others, 0, None))
        self._agreed.add(kind)

    def _of(self, sizes: Mapping[str, int], arrays: Mapping[str, Any], device: Any) -> Buffers:
        key = (
            tuple(sorted(sizes.items())),
            tuple(sorted((n, str(getattr(x, "dtype", ""))) for n, x in arrays.items())),
        )
        found = self._buffers.get(key)
        if found is None:
            found = self._buffers[key] = self._made(sizes, arrays, device)
        return found

    def _made(self, sizes: Mapping[str, int], arrays: Mapping[str, Any], device: Any) -> Buffers:
        flows = output_flows(self.specs.fold, _dtypes_of(self.specs.fold, {**arrays, "part_start": 0}))
        real = next((f.dtype for f in flows.values() if f.kind == "f"), np.dtype(np.float32))
        kinds = {"part_n": real} | {name: flow.dtype for name, flow in flows.items()}
        axes: dict[str, tuple[str, ...]] = {"part_n": (), **self.specs.fold.output_axes}
        at, places = 0, {}
        for name, dtype in kinds.items():
            shape = tuple(sizes[a] for a in axes[name])
            places[name] = (at, dtype, shape)
            at += -(-max(1, prod(shape)) * dtype.itemsize // LINE) * LINE
        ranks = self.channel.ranks
        mine = torch.zeros(at, dtype=torch.uint8, device=device)
        everyone = torch.zeros(ranks * at, dtype=torch.uint8, device=device)

        def view(x: Any, low: int, dtype: np.dtype, shape: tuple[int, ...]) -> Any:
            size = prod(shape) * dtype.itemsize
            typed = x[..., low : low + size].view(getattr(torch, dtype.name))
            return typed.view((*x.shape[:-1], *shape))

        own = {n: view(mine, *place) for n, place in places.items()}
        held = {n: view(everyone.view(ranks, at), *place) for n, place in places.items()}
        return Buffers(mine, everyone, own, held)

    def _nothing(self, buffers: Buffers) -> None:
        """The state of no element."""
        ends = {"max": -np.inf, "min": np.inf, "any": False, "all": True}
        for s in self.specs.p.slots:
            first = ends[s.kind] if isinstance(s.op, Extremum | Quantifier) else 0
            for part in s.parts:
                if self.specs.name(part) in buffers.own:
                    buffers.own[self.specs.name(part)].fill_(first)
        for a in self.specs.p.anchors:
            if self.specs.name(a.name) in buffers.own:
                buffers.own[self.specs.name(a.name)].fill_(1.0 if a.divides else 0.0)

    def _dtypes(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        flows = output_flows(self.form.spec, _dtypes_of(self.form.spec, arrays))
        return {o: getattr(torch, _word(flow.dtype)) for o, flow in flows.items()}


def _word(dtype: np.dtype) -> str:
    return str(dtype.names[0]) if dtype.names else dtype.name


def _dtypes_of(spec: Any, arrays: Mapping[str, Any]) -> dict[str, Any]:
    from_torch = {"bfloat16": np.dtype([("bfloat16", np.uint16)])}
    found: dict[str, Any] = {}
    for d in spec.tensors:
        x = arrays[d.name]
        name = declared_dtype(x) if hasattr(x, "dtype") else None
        found[d.name] = type(x) if name is None else from_torch.get(name) or np.dtype(name)
    return found


def _taken(spec: Any, arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {d.name: arrays[d.name] for d in spec.tensors}


def _named(spec: Any, value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {next(iter(spec.outputs)): value}


def check(form: Form, arrays: Mapping[str, Any]) -> None:
    """Raises: RedalgError for arrays that the form does not read."""
    names = {d.name for d in form.spec.tensors}
    if set(arrays) != names:
        why = f"the spec reads {', '.join(map(str, form.spec.tensors))}"
        raise RedalgError(f"the arrays {', '.join(arrays)}", WHERE, why, "pass each tensor once, by name")


__all__ = ["DeviceCollective", "check"]
