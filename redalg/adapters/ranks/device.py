"""A form over ranks by compiled kernels, on tensors where they lie: a fold, then a gather of states or two all-reduces.

Nothing of it goes by the host, and nothing waits for it, so that a call can be captured in a CUDA graph. The kernels of
`RankSpecs` write the state into a buffer. It is gathered as it is, and the merge reads the states of all where they
arrive, in the order of ranks: the same parts give the same bits. Or, by `ReduceSpecs`, anchors are all-reduced first,
then sums at the anchors of all: fewer bytes where ranks are many.
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
from redalg.adapters.ranks.links import NVLINK, Choice, Links
from redalg.adapters.ranks.pieces import cut, joined
from redalg.adapters.ranks.reduced import COUNTED, ReduceSpecs, why_not_reduced
from redalg.adapters.ranks.specs import RankSpecs
from redalg.api import derive_incremental
from redalg.errors import RedalgError
from redalg.form import Form
from redalg.graph.operators import Extremum, Quantifier
from redalg.language.spec import Spec
from redalg.numeric.array_origin import declared_dtype
from redalg.numeric.binding import by_output
from redalg.numeric.dtypes import output_flows

torch: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") else None

Kinds = dict[str, tuple[np.dtype, tuple[int, ...]]]  # the dtype and shape of each part
LINE = 16  # bytes that parts are aligned to


@dataclass(frozen=True)
class Packed:
    """Arrays in one tensor of bytes, each at a multiple of `LINE`; `rows`: one such tensor for every rank."""

    flat: Any
    views: Mapping[str, Any]

    @classmethod
    def of(cls, kinds: Kinds, device: Any, rows: int | None = None) -> Packed:
        at, places = 0, {}
        for name, (dtype, shape) in kinds.items():
            places[name] = (at, dtype, shape)
            at += -(-max(1, prod(shape)) * dtype.itemsize // LINE) * LINE
        flat = torch.zeros((rows or 1) * at, dtype=torch.uint8, device=device)
        wide = flat if rows is None else flat.view(rows, at)

        def view(low: int, dtype: np.dtype, shape: tuple[int, ...]) -> Any:
            typed = wide[..., low : low + prod(shape) * dtype.itemsize].view(getattr(torch, dtype.name))
            return typed.view((*wide.shape[:-1], *shape))

        return cls(flat, {name: view(*place) for name, place in places.items()})


@dataclass(frozen=True)
class Round:
    """What one all-reduce brings: buffers with the operation that joins each, and a view of each part."""

    buffers: tuple[tuple[Any, str], ...]
    views: Mapping[str, Any]

    @property
    def nbytes(self) -> int:
        return sum(x.numel() * x.element_size() for x, _ in self.buffers)

    @property
    def summable(self) -> bool:
        """Whether no sum can leave its dtype unseen."""
        return all(op != "SUM" or x.dtype.is_floating_point for x, op in self.buffers)


@dataclass(frozen=True)
class Buffers:
    """A rank's own state, and what is sent of it: by rounds, or as it is to all ranks."""

    mine: Packed
    pieces: Packed | None
    everyone: Packed | None
    rounds: tuple[Round, Round] | None
    choice: Choice


class DeviceCollective:
    """``collective(x=local_part)`` on tensors of PyTorch on one device, of a form that has `RankSpecs`.

    The first call of a kind (dtypes, lengths of other axes) compares it over all ranks and raises on all of them where
    they differ; later calls compare nothing, so all ranks have to make the same ones. Lengths along the axis may differ
    from call to call, and be 0. `start`: where the pieces of the part begin, which have one length. Tensors without the
    axis are not compared. Results are in the dtypes of the form.

    `way`: "gather" or "reduce" (two all-reduces, `ReduceSpecs`); None: the faster one by `links` for a kind of call.
    """

    def __init__(
        self, form: Form, channel: Channel, target: str, way: str | None = None, links: Links = NVLINK
    ) -> None:
        self.form, self.channel, self.target, self.links = form, channel, target, links
        self.specs = RankSpecs(form)
        self.why_not = why_not_reduced(form)
        if way == "reduce" and self.why_not is not None:
            raise RedalgError('way="reduce"', "form.collective", self.why_not, 'way="gather"')
        self.way = way
        self.choices: tuple[Choice, ...] = ()  # of the last call
        self._buffers: dict[Any, Buffers] = {}
        self._agreed: set[int] = set()

    # --- kernels -----------------------------------------------------------------------------------------------------

    @cached_property
    def fold(self) -> Any:
        return derive_incremental(self.specs.fold, self.form.plan.axis).compile(self.target)

    @cached_property
    def join(self) -> Any:
        """What the pieces of one rank come to."""
        return derive_incremental(self.specs.state, self.specs.rank).compile(self.target, deterministic=True)

    @cached_property
    def merge(self) -> Any:
        return derive_incremental(self.specs.merge, self.specs.rank).compile(self.target, deterministic=True)

    @cached_property
    def apply(self) -> Any:
        return derive_incremental(self.specs.apply).compile(self.target) if self.specs.kept else None

    @cached_property
    def reduced(self) -> ReduceSpecs:
        return ReduceSpecs(self.form)

    @cached_property
    def steps(self) -> tuple[Any, Any, Any]:
        """What goes into the first all-reduce, what into the second, and the results."""

        def compiled(spec: Spec | None) -> Any:
            return None if spec is None else derive_incremental(spec).compile(self.target)

        return compiled(self.reduced.first), compiled(self.reduced.second), compiled(self.reduced.merge)

    # --- a call ------------------------------------------------------------------------------------------------------

    def __call__(self, /, start: tuple[int, ...] | None = None, **arrays: Any) -> Any:
        specs, axis = self.specs, self.form.plan.axis[0]
        places = self._places(start)
        parts = cut(self.form, arrays, len(places))
        sizes = {
            a: n for d in self.form.spec.tensors if d.axes for a, n in zip(d.axes, arrays[d.name].shape, strict=True)
        }
        length = sizes.pop(axis)
        first = next(arrays[d.name] for d in self.form.spec.tensors if d.axes)
        self._compare(arrays, sizes, len(places))
        buffers = self._of(sizes, arrays, first.device, len(places))
        self.choices, own = (buffers.choice,), buffers.mine.views
        if buffers.pieces is None:
            self._folded(parts[0], places[0], length, own)
        else:
            views = buffers.pieces.views
            for k, (part, place) in enumerate(zip(parts, places, strict=True)):
                self._folded(part, place, length // len(places), {n: x[k] for n, x in views.items()})
            own["part_n"].fill_(float(length))
            _into(self.join, specs.state, {**arrays, **views}, own)
        found = self._gathered(buffers, arrays) if buffers.rounds is None else self._reduced(buffers, arrays)
        results = {o: found[o] for o in specs.merged}
        if self.apply is not None:
            kept = [
                by_output(specs.apply.outputs, self.apply(**_taken(specs.apply, {**part, **found, **place})))
                for part, place in zip(parts, places, strict=True)
            ]
            axes = self.form.spec.output_axes
            results |= {o: joined([x[o] for x in kept], axes[o].index(axis)) for o in specs.kept}
        dtypes = self._dtypes(arrays)
        results = {o: results[o].to(dtypes[o]) for o in self.form.spec.outputs}
        return results if len(results) > 1 else next(iter(results.values()))

    def _folded(self, part: Mapping[str, Any], place: Mapping[str, int], length: int, own: Mapping[str, Any]) -> None:
        """The state of a piece, in these views."""
        own["part_n"].fill_(float(length))
        if length:
            _into(self.fold, self.specs.fold, {**part, **place}, own)
        else:
            self._nothing(own)

    def _gathered(self, buffers: Buffers, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Results of the states of all ranks, merged in the order of ranks."""
        assert buffers.everyone is not None
        self.channel.gather_into(buffers.everyone.flat, buffers.mine.flat)
        spec = self.specs.merge
        return by_output(spec.outputs, self.merge(**_taken(spec, {**arrays, **buffers.everyone.views})))

    def _reduced(self, buffers: Buffers, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Results of anchors of all ranks, then of sums at these anchors."""
        assert buffers.rounds is not None
        held = {**arrays, **buffers.mine.views}
        specs, counted = (self.reduced.first, self.reduced.second), self.reduced.counted
        for turn, spec, step, name in zip(buffers.rounds, specs, self.steps[:2], ("first", "second"), strict=True):
            if spec is not None:
                _into(step, spec, held, turn.views)
            if counted == name:
                turn.views[COUNTED].copy_(held["part_n"])
            for buffer, op in turn.buffers:
                self.channel.reduce_into(buffer, op)
            held |= turn.views
        return by_output(self.reduced.merge.outputs, self.steps[2](**_taken(self.reduced.merge, held)))

    def _places(self, start: tuple[int, ...] | None) -> list[dict[str, int]]:
        """Raises: RedalgError where the form reads positions, and the part has none."""
        if start is None and self.specs.positional:
            why = f"the form reads index({self.form.plan.axis[0]!r}), and the part does not say where it begins"
            raise RedalgError("a part without a place", WHERE, why, "pass start= on every rank")
        return [{"part_start": a} for a in start or (0,)]

    def _compare(self, arrays: Mapping[str, Any], sizes: Mapping[str, int], pieces: int) -> None:
        """Raises: RedalgError, on every rank, where the calls differ in more than their lengths along the axis."""
        kinds = [(n, declared_dtype(x), x.ndim) if hasattr(x, "ndim") else (n, "number", 0) for n, x in arrays.items()]
        kind = digest(self.form.spec.digest, sorted(kinds), sorted(sizes.items()), pieces)
        if kind in self._agreed:
            return
        options = digest(self.way, self.links)
        others = (
            digest(self.form.spec.digest),
            options,
            digest(sorted(kinds)),
            digest(sorted(sizes.items())),
            0,
            pieces,
        )
        agreed(self.channel, Part(others, 0, None))
        self._agreed.add(kind)

    def _of(self, sizes: Mapping[str, int], arrays: Mapping[str, Any], device: Any, pieces: int) -> Buffers:
        key = (
            pieces,
            tuple(sorted(sizes.items())),
            tuple(sorted((n, str(getattr(x, "dtype", ""))) for n, x in arrays.items())),
        )
        found = self._buffers.get(key)
        if found is None:
            found = self._buffers[key] = self._made(sizes, arrays, device, pieces)
        return found

    def _made(self, sizes: Mapping[str, int], arrays: Mapping[str, Any], device: Any, count: int) -> Buffers:
        fold, ranks = self.specs.fold, self.channel.ranks
        kinds = _kinds(fold, {**arrays, "part_start": 0}, sizes)
        real = next((dtype for dtype, _ in kinds.values() if dtype.kind == "f"), np.dtype(np.float32))
        kinds = {"part_n": (real, ()), **kinds}
        mine = Packed.of(kinds, device)
        pieces = Packed.of(kinds, device, count) if count > 1 else None
        rounds = self._rounds(mine, arrays, sizes, device) if self.way != "gather" and self.why_not is None else None
        choice = self._choice(mine.flat.numel(), rounds)
        if choice.way == "reduce":
            return Buffers(mine, pieces, None, rounds, choice)
        return Buffers(mine, pieces, Packed.of(kinds, device, ranks), None, choice)

    def _rounds(
        self, mine: Packed, arrays: Mapping[str, Any], sizes: Mapping[str, int], device: Any
    ) -> tuple[Round, Round]:
        held, found = {**arrays, **mine.views}, []
        for name, spec in (("first", self.reduced.first), ("second", self.reduced.second)):
            kinds = {} if spec is None else _kinds(spec, held, sizes)
            if self.reduced.counted == name:
                n = mine.views["part_n"]
                kinds[COUNTED] = (np.dtype(declared_dtype(n)), ())
            groups: dict[tuple[str, np.dtype], dict[str, Any]] = {}
            for part, kind in kinds.items():
                op = "MAX" if part.startswith("ranks_max_") else "SUM"
                groups.setdefault((op, kind[0]), {})[part] = kind
            packs = [(Packed.of(parts, device), op, dtype) for (op, dtype), parts in groups.items()]
            views = {part: x for pack, _, _ in packs for part, x in pack.views.items()}
            held |= views
            buffers = tuple((pack.flat.view(getattr(torch, dtype.name)), op) for pack, op, dtype in packs)
            found.append(Round(buffers, views))
        return found[0], found[1]

    def _choice(self, gathered: int, rounds: tuple[Round, Round] | None) -> Choice:
        """How states of this kind are joined. Raises: RedalgError where ``way="reduce"`` is asked for in vain."""
        ranks, seconds = self.channel.ranks, {"gather": self.links.gather_seconds(gathered, self.channel.ranks)}
        why = self.why_not
        if rounds is not None and not all(turn.summable for turn in rounds):
            why = "a sum of integers may leave its dtype"
        if rounds is None or why is not None:
            if self.way == "reduce":
                raise RedalgError('way="reduce"', "form.collective", str(why), 'way="gather"')
            return Choice("gather", why or "way= or deterministic= asks for it", ranks, gathered, None, seconds)
        sent = (rounds[0].nbytes, rounds[1].nbytes)
        seconds["reduce"] = self.links.reduce_seconds(*sent, ranks)
        way, why = self.links.choose(*sent, gathered, ranks), f"the faster by the model {self.links.name!r}"
        if self.way is not None:
            way, why = self.way, "way= asks for it"
        return Choice(way, why, ranks, gathered, sent, seconds)

    def _nothing(self, own: Mapping[str, Any]) -> None:
        """The state of no element."""
        ends = {"max": -np.inf, "min": np.inf, "any": False, "all": True}
        for s in self.specs.p.slots:
            first = ends[s.kind] if isinstance(s.op, Extremum | Quantifier) else 0
            for part in s.parts:
                if self.specs.name(part) in own:
                    own[self.specs.name(part)].fill_(first)
        for a in self.specs.p.anchors:
            if self.specs.name(a.name) in own:
                own[self.specs.name(a.name)].fill_(1.0 if a.divides else 0.0)

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


def _kinds(
    spec: Spec, arrays: Mapping[str, Any], sizes: Mapping[str, int]
) -> dict[str, tuple[np.dtype, tuple[int, ...]]]:
    """Dtype and shape of each output."""
    flows = output_flows(spec, _dtypes_of(spec, arrays))
    return {o: (flow.dtype, tuple(sizes[a] for a in spec.output_axes[o])) for o, flow in flows.items()}


def _into(run: Any, spec: Spec, arrays: Mapping[str, Any], views: Mapping[str, Any]) -> None:
    """Runs with its results in these views."""
    out = {o: views[o] for o in spec.outputs}
    run(**_taken(spec, arrays), out=out if len(out) > 1 else next(iter(out.values())))


def _taken(spec: Any, arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {d.name: arrays[d.name] for d in spec.tensors}


def check(form: Form, arrays: Mapping[str, Any]) -> None:
    """Raises: RedalgError for arrays that the form does not read."""
    names = {d.name for d in form.spec.tensors}
    if set(arrays) != names:
        why = f"the spec reads {', '.join(map(str, form.spec.tensors))}"
        raise RedalgError(f"the arrays {', '.join(arrays)}", WHERE, why, "pass each tensor once, by name")


__all__ = ["DeviceCollective", "check"]
