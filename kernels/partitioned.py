"""A spec in parts as kernels one after the other: products of matrices that others read are written to memory once.

`parted` plans every way that `redalg.kernels.lower.partition` finds, each part by whatever computes it best: tensor
cores, kernels of rows, or parts of its own. What one writes for another lies in scratch, in the precision that kernels
calculate in; where it is multiplied by tensor cores alone it is rounded once to the 16 bits of the tensors, as
operands of chains are (`redalg.kernels.gemm.match`), and its rows begin at multiples of 16 bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, prod
from typing import TYPE_CHECKING

from redalg.errors import RedalgError
from redalg.graph.contractions import contracts
from redalg.graph.node import BOOLEAN, Node, outermost_reductions, walk
from redalg.kernels.gemm.match import SMALL, TYPES
from redalg.kernels.ir.layouts import VECTOR_BYTES, View
from redalg.kernels.ir.one_hot import one_hot_of
from redalg.kernels.ir.program import STORAGE, Operand, Program, Result
from redalg.kernels.ir.schedule import TENSOR
from redalg.kernels.launch.planned import Planned
from redalg.kernels.lower.draft import Call
from redalg.kernels.lower.partition import Partition, form_over, partitions
from redalg.kernels.programs import BrokenPass
from redalg.kernels.schedule.choose import micro, size
from redalg.kernels.schedule.target import Target
from redalg.kernels.tile.match import Outside

if TYPE_CHECKING:
    from redalg.form import Form
    from redalg.language.spec import Spec

Scratch = dict[str, tuple[Operand, View]]
Whole = Callable[[Call], Planned]  # how a part is planned
# How a product is planned whose rows are reduced in its epilogue: its call, the form of the rows, the tensor that they
# read it as, the results of both. Raises: RedalgError, Outside.
Folded = Callable[[Call, "Form", str, tuple[Result, ...]], Planned]
MOST_PLANNED = 48  # parts that are planned for a call, in all ways together
LANES = 128  # multiplications and additions of a multiprocessor in a cycle
MOST_HELD, LITTLE = 16, 2 << 30  # times the bytes of a call's arrays, that lie between parts; bytes that always may


def parted(
    call: Call, program: Program, sizes: Mapping[str, int], whole: Whole, folded: Folded | None = None
) -> Planned | None:
    """The kernels of the parts that are predicted to take the least time together; None where a spec has no parts.
    `folded`: how rows that a product has made are reduced in its epilogue, where they may be."""
    if any(n == 0 for n in sizes.values()):
        return None
    best = None
    further = {str(call.dtypes[t.name]) for t in call.form.spec.tensors if t.axes}.isdisjoint((*TYPES, *SMALL))
    ways = partitions(call.form.spec, sizes, call.among.taken, further)
    floats = (p for p in ways if _is_of_floats(p, call))
    for partition in sorted(floats, key=lambda p: len(p.before)):
        plain = _Parts(call, program, sizes, partition, whole, False)
        if folded is not None and not plain.narrow:
            best = lesser_of(best, plain.in_epilogue(folded))
        rounded = [replace(plain, rounded=True, scratch={})] if plain.narrow else []
        found = next(filter(None, (made.tried(best) for made in (*rounded, plain))), None)
        if found is not None and (call.schedule != TENSOR or on_tensor_cores(found)):
            best = found
    return best


def lesser_of(best: Planned | None, other: Planned | None) -> Planned | None:
    """The plan that takes less time, of those that there are."""
    if best is None or other is None:
        return best or other
    return min(best, other, key=lambda p: p.choice.seconds)


def least_seconds(spec: Spec, sizes: Mapping[str, int], target: Target) -> float:
    """What the products of matrices in a spec take at least by ordinary arithmetic, each computed once."""
    products = (n for n in walk(*spec.outputs.values()) if contracts(n))
    operations = sum(prod(sizes.get(a, 1) for a in (*n.axes, *n.attr.axes)) for n in products)
    return operations / (LANES * target.multiprocessors * target.clock)


class _Slower(Exception):
    """A way takes no less time than one that is known."""


def on_tensor_cores(made: Planned) -> bool:
    """Whether a kernel, or one before it, multiplies on tensor cores or is left to a library that does."""
    own = made.module.threads or made.vendor is not None
    return bool(own) or any(map(on_tensor_cores, made.before))


def _in_a_row(every: Sequence[Planned], scratch: Scratch) -> tuple[list[Planned], Scratch]:
    """Kernels one after the other, with all scratch; those whose scratch has names of others' keep it to themselves."""
    found, held = list[Planned](), dict(scratch)
    for made in (replace(p, over={}) for p in every):
        if made.scratch.keys() & held.keys():
            found.append(made)
            continue
        held |= made.scratch
        before, held = _in_a_row(made.before, held)
        read = (*made.program.operands, *(o for o, _ in made.scratch.values()))
        found += [*before, replace(made, program=replace(made.program, operands=read), before=(), scratch={})]
    return found, held


def _multiplied(name: str, made: Planned) -> bool:
    """Whether kernels that read an array are on tensor cores."""
    reads = any(o.name == name for o in made.program.operands) and name not in made.scratch
    return (bool(made.module.threads) or not reads) and all(_multiplied(name, before) for before in made.before)


def _is_of_floats(partition: Partition, call: Call) -> bool:
    """Whether parts pass floats to one another: integers and truth values are compared, or select elements, alone."""
    others = {t.name for t in call.form.spec.tensors if t.axes and "float" not in str(call.dtypes[t.name])}
    made = [x for spec in partition.before for n, x in spec.outputs.items() if n in partition.between]
    stack, seen = made if others else [], set[Node]()
    while stack:
        node = stack.pop()
        if node in seen or node.op in BOOLEAN:
            continue
        seen.add(node)
        if node.op == "tensor" and node.attr.name in others:
            return False
        stack += node.args[1:] if node.op == "where" else node.args
    return True


def _along(spec: Spec, sizes: Mapping[str, int]) -> tuple[str, ...]:
    """What the reductions of a part run along, if there are any: the longest of several products that are added.

    Raises: Outside where other reductions run along different axes.
    """
    folds = list(outermost_reductions(*spec.outputs.values()))
    along = list(dict.fromkeys(n.attr.axes for n in reversed(folds)))
    if not along:
        return ()
    if len(along) != 1 and not all(map(contracts, folds)):
        raise Outside("its outermost reductions run along different axes")
    return max(along, key=lambda axes: prod(sizes[a] for a in axes))


def _known(call: Call, spec: Spec, whole: Whole) -> Planned:
    """The kernels of a part, planned once for all ways that have it. Raises: what planning it raises."""
    given = (tuple(sorted(x.items())) for x in (call.views, call.results))
    key = (*spec.outputs.items(), *given, *((n, str(d)) for n, d in sorted(call.dtypes.items())), call.rounded)
    known = call.among.known.setdefault(key, [])
    found = next((x for x in known if isinstance(x, Exception) or call.among.taken.isdisjoint(x.scratch)), None)
    if found is None:
        if sum(map(len, call.among.known.values())) >= MOST_PLANNED:
            raise Outside(f"{MOST_PLANNED} parts were planned")
        try:
            found = whole(call)
        except BrokenPass:
            raise
        except (RedalgError, Outside) as why:
            found = why
        known.append(found)
    if isinstance(found, Exception):
        raise found
    assert isinstance(found, Planned)
    return found


@dataclass
class _Parts:
    """One way. ``rounded``: what products of matrices alone read is of 16 bits."""

    call: Call
    program: Program
    sizes: Mapping[str, int]
    partition: Partition
    whole: Whole
    rounded: bool
    scratch: Scratch = field(default_factory=dict)

    @property
    def narrow(self) -> dict[str, str]:
        """What is rounded, and to which type: that of all tensors, where results have it, too. Numbers of float16 may
        be too small for what they round; that is done where tensor cores are asked for by name."""
        kind = self.kind
        every = {str(self.call.dtypes[t.name]) for t in self.call.form.spec.tensors if t.axes}
        kinds = {kind for kind in every if "float" in kind} - {*SMALL}
        allowed = kind == TYPES[0] or self.call.schedule is not None
        return dict.fromkeys(self.partition.factors, kind) if kinds <= {kind} <= {*TYPES} and allowed else {}

    @property
    def kind(self) -> str:
        """What all results of the whole call are rounded to, if that is one type."""
        kinds = {r.dtype for r in self.program.results}
        return self.call.rounded or (kinds.pop() if len(kinds) == 1 else "")

    def tried(self, best: Planned | None) -> Planned | None:
        """The kernels, or the best so far where these take no less time; None where there are none."""
        try:
            return self.planned(best.choice.seconds if best is not None else inf)
        except BrokenPass:
            raise
        except _Slower:
            return best
        except (RedalgError, Outside):  # a part does not derive, or has no kernel
            return None

    def planned(self, limit: float = inf) -> Planned:
        """The kernels, as the last one after the others. Raises: RedalgError; _Slower if they take `limit` seconds."""
        narrow = self.narrow if self.rounded else {}
        for name, axes in self.partition.between.items():
            dtype = narrow.get(name, self.program.real)
            self.scratch[name] = Operand(name, axes, dtype), self._lying(axes, dtype)
        self._require_small()
        every = self._every(narrow, limit)
        last, names = every[-1], {*self.call.form.spec.outputs}
        seconds, moved = (sum(x) for x in zip(*((p.choice.seconds, p.choice.bytes) for p in every), strict=True))
        choice = replace(
            last.choice, seconds=seconds, bytes=moved, moved=0, reasons=tuple(self._reasons(every, seconds))
        )
        sizes = {a: n for p in every for a, n in p.sizes.items()} | dict(self.sizes)
        wanted = {r.name: r for p in every for r in p.program.results}
        results = tuple(wanted[n] for n in self.call.form.spec.outputs)
        whole = replace(last.program, results=results)
        views = {n: v for p in every for n, v in p.results.items() if n in names}
        assert self.scratch.keys().isdisjoint(last.scratch)  # names of parts inside of the last one are its own
        launched, scratch = _in_a_row([last], self.scratch)  # its scratch first: it is the one that has to have all
        first, scratch = _in_a_row(every[:-1], scratch)
        launched = [*first, *launched]
        return replace(
            last,
            program=whole,
            choice=choice,
            sizes=sizes,
            before=tuple(launched[:-1]),
            scratch=scratch,
            results=views,
            over={},
        )

    def _every(self, narrow: Mapping[str, str], limit: float) -> list[Planned]:
        """The parts, in order."""
        every: list[Planned] = []
        order = self.partition.last, *self.partition.before
        seconds = [self._least_seconds(spec, narrow) for spec in order]
        for k, spec in enumerate(order):
            if sum(seconds) < limit:
                every.append(self._part(spec))
                seconds[k] = every[k].choice.seconds
            if sum(seconds) >= limit:
                raise _Slower
            if not all(_multiplied(n, every[0]) for n in narrow):
                raise Outside("what would be rounded is not multiplied by tensor cores")
        return [*every[1:], every[0]]

    def _least_seconds(self, spec: Spec, narrow: Mapping[str, str]) -> float:
        """What a part takes at least: its launch, and what it reads and writes; of a table, it may be few rows."""
        if any(n.op == "reduce" and one_hot_of(n) is not None for n in walk(*spec.outputs.values())):
            return self.call.target.launch
        target, sizes, lying = self.call.target, self.sizes, self.program.real
        known = {n: str(d) for n, d in self.call.dtypes.items()} | {r.name: r.dtype for r in self.program.results}
        arrays = {t.name: t.axes for t in spec.tensors if t.axes} | dict(spec.output_axes)
        kinds = ((axes, narrow.get(n) or known.get(n, lying)) for n, axes in arrays.items())
        moved = sum(prod(sizes[a] for a in axes) * STORAGE[kind] for axes, kind in kinds if kind in STORAGE)
        return target.launch + max(0, moved - target.l2) / target.reachable

    def _lying(self, axes: tuple[str, ...], dtype: str) -> View:
        """Contiguous, but for rows that begin at multiples of 16 bytes."""
        shape = tuple(self.sizes[a] for a in axes)
        if STORAGE[dtype] > 2 or not shape:
            return View.contiguous(shape)
        step = VECTOR_BYTES // STORAGE[dtype]
        return View(shape, View.contiguous((*shape[:-1], -(-shape[-1] // step) * step)).strides)

    def in_epilogue(self, folded: Folded) -> Planned | None:
        """The last part in the epilogue of a product, where that is the only other one and makes its rows."""
        if len(self.partition.before) != 1 or not self.partition.last.output_axes:
            return None
        (first,), last = self.partition.before, self.partition.last
        read = [t.name for t in last.tensors if t.name in self.partition.between]
        if len(read) != 1 or any(n not in self.partition.between for n in first.outputs if n not in self._results):
            return None
        try:
            rows = form_over(last, _along(last, self.sizes))
            results = {read[0]: (self.program.real, View.contiguous(self._lengths(self.partition.between[read[0]])))}
            call = self._call(first, results | self._written(first.outputs), {*self.call.dtypes})
            return folded(call, rows, read[0], tuple(self._results.values()))
        except BrokenPass:
            raise
        except (RedalgError, Outside):
            return None

    @property
    def _results(self) -> dict[str, Result]:
        return {r.name: r for r in self.program.results}

    def _lengths(self, axes: tuple[str, ...]) -> tuple[int, ...]:
        return tuple(self.sizes[a] for a in axes)

    def _require_small(self) -> None:
        """Raises: Outside where what lies between parts is far larger than what a call reads and writes."""
        held = sum(view.elements * STORAGE[o.dtype] for o, view in self.scratch.values())
        arrays = [(x.axes, x.dtype) for x in self.program.operands]
        arrays += [(x.axes, x.dtype) for x in self.program.results]
        own = sum(prod(self.sizes[a] for a in axes) * STORAGE[dtype] for axes, dtype in arrays if dtype in STORAGE)
        if held > max(MOST_HELD * own, LITTLE):
            raise Outside(f"between its parts lie {held} bytes, and all of the call's arrays have {own}")

    def _part(self, spec: Spec) -> Planned:
        """The kernels of one part."""
        between = {n: (o.dtype, view) for n, (o, view) in self.scratch.items() if n in spec.outputs}
        call = self._call(spec, between | self._written(spec.outputs), {t.name for t in spec.tensors})
        return _known(call, spec, self.whole)

    def _call(self, spec: Spec, results: Mapping[str, tuple[str, View]], names: Collection[str]) -> Call:
        """A part as a call; `names`: of the tensors that it may read."""
        laid = {n: x for n, x in self.scratch.items() if n in names}
        dtypes = {n: d for n, d in self.call.dtypes.items() if n in names} | {n: o.dtype for n, (o, _) in laid.items()}
        views = {n: v for n, v in self.call.views.items() if n in names} | {n: v for n, (_, v) in laid.items()}
        form = form_over(spec, _along(spec, self.sizes))
        call = replace(self.call, form=form, dtypes=dtypes, views=views, schedule=None, launches=None, alike=False)
        rounded = self.kind if self.kind in TYPES else ""
        among = replace(self.call.among, taken=self.call.among.taken | self.scratch.keys())
        return replace(call, results=results, rounded=rounded, among=among)

    def _written(self, outputs: Collection[str]) -> dict[str, tuple[str, View]]:
        """Results of the whole call among the outputs of a part: their dtypes, and how they lie."""
        own = {n: r for n, r in self._results.items() if n in outputs}
        plain = {n: (r.dtype, View.contiguous(self._lengths(r.axes))) for n, r in own.items()}
        return plain | {n: x for n, x in self.call.results.items() if n in own}

    def _reasons(self, every: Sequence[Planned], seconds: float) -> Iterator[str]:
        count = sum(1 + len(p.before) for p in every)
        held = sum(view.elements * STORAGE[o.dtype] for o, view in self.scratch.values())
        between = ", ".join(f"{n}[{','.join(o.axes)}] {o.dtype}" for n, (o, _) in self.scratch.items())
        said = f"{between or 'nothing'} between them ({size(held)})"
        yield f"in parts: {count} kernels, {said}, predicted {micro(seconds)}"
        for p in every:
            names = ", ".join(r.name for r in p.program.results)
            first, *more = p.choice.reasons
            yield f"{names}: {micro(p.choice.seconds)}, {first}"
            yield from (f"  {line}" for line in more)


__all__ = ["least_seconds", "on_tensor_cores", "parted"]
