"""A spec in parts on the CPU: products that other reductions read are computed once, and lie in arrays between kernels.

Which parts, or none, is decided for a kind of call by counted operations (`redalg.kernels.cpu_operations`) and what
lies between them; of every way that `redalg.kernels.lower.partition` finds. Axes that no reduction runs along count as
if they had `USUAL` elements; with `deterministic=True` a row alone and the same row among others are computed by the
same kernels, else calls too small to gain by parts stay one (`Choice.pays_by_rows`).

Each part is a run of its own form, which may be in parts itself. Nothing between them is rounded to 16 bits. Where an
element between parts leaves the range of its numbers although all that it is made of is finite, or a row of the last
part does, NumPy computes these rows of the whole spec anew, as it does for one kernel (`redalg.kernels.cpu.rescue`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite, prod
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from redalg.errors import RedalgError
from redalg.graph.contractions import above_reductions
from redalg.graph.node import leaves, outermost_reductions, walk
from redalg.kernels.cpu.plan import Kind
from redalg.kernels.cpu.products.blocks import block_of
from redalg.kernels.cpu.products.calls import FASTER, Multiplied, is_over_pairs, may_multiply
from redalg.kernels.cpu.products.lost import Lost, tells
from redalg.kernels.cpu.ready import Ready
from redalg.kernels.cpu.rescue import Rescue
from redalg.kernels.cpu.walk import Compiled
from redalg.kernels.cpu_operations import operations_of
from redalg.kernels.ir.layouts import View, memory_order
from redalg.kernels.ir.one_hot import one_hot_of
from redalg.kernels.ir.program import STORAGE, Program
from redalg.kernels.launch.store import Once
from redalg.kernels.lower.cuts import may_be_cut
from redalg.kernels.lower.partition import Partition, form_over, partitions
from redalg.kernels.lower.program import COMPENSATED
from redalg.kernels.programs import BrokenPass
from redalg.numeric.array_origin import BFLOAT16_BITS, format_name
from redalg.numeric.binding import Bound
from redalg.numeric.out import by_output, shared

if TYPE_CHECKING:
    from redalg.form import Form
    from redalg.language.spec import Spec

WHERE = "the call"
USUAL = 64  # elements of an axis that no reduction runs along, as far as this choice goes
LESS = 0.8  # of the operations of one kernel: parts take at most so many
CALL = 20_000  # operations that a call of a kernel takes as long as
NESTED = 2  # times what lies between parts, with what lies between parts of these
LARGE, MOST_KEPT = 1 << 18, 64 << 20  # bytes of an array between parts that is kept for the next call, and of all
LEAST_TRIED, MOST_TRIED = 8, 48  # ways to part a call, and its parts
WORTH = 250_000  # operations of a call for which one more way is looked into
KEPT = 8  # operations that writing a float32 between parts, and reading it, takes as long as
MOST_HELD = 16  # times the bytes of a call's arrays, that lie between parts


@dataclass(frozen=True)
class Asked:
    """A kind of call, as far as the choice of parts depends on it: `sizes` are its lengths; `usual` has `USUAL` for
    axes that nothing is reduced along, and powers of two for others, so that few lengths are counted anew; `views` are
    operands of these."""

    kind: Kind
    sizes: Mapping[str, int]
    usual: Mapping[str, int]
    views: Mapping[str, View]

    @property
    def key(self) -> Hashable:
        return self.kind, tuple(self.usual.items()), tuple(self.views.items())


@dataclass(frozen=True)
class Choice:
    """The parts of a call, if any; operations of its kernels, and those of one kernel for all. `rows`: the former where
    no product is multiplied by tiles; `by_rows`: whether parts take fewer even then."""

    operations: float
    whole: float
    rows: float
    partition: Partition | None = None
    by_rows: bool = True

    def pays_by_rows(self, asked: Asked, any_rows: bool) -> bool:
        """Whether parts pay though nothing is multiplied by tiles; `any_rows`: however many rows there are."""
        if self.partition is None or any_rows or not self.by_rows:
            return self.by_rows
        calls = CALL * (1 + len(self.partition.before))
        share = prod(n / asked.usual[a] for a, n in asked.sizes.items() if a in asked.usual)
        return (self.whole - self.operations + calls) * share > calls


@dataclass
class Tried:
    """How many ways were looked into for a call, those of its parts among them; ``most``: as many as it is worth."""

    count: int = 0
    most: int = MOST_TRIED

    @property
    def enough(self) -> bool:
        return self.count >= self.most

    def begin(self, operations: float) -> None:
        """For a call that takes so many operations as one kernel."""
        self.count, self.most = 0, max(LEAST_TRIED, min(MOST_TRIED, int(operations / WORTH)))


def asked_of(spec: Spec, kind: Kind, sizes: Mapping[str, int], views: Mapping[str, View]) -> Asked:
    """What is asked for a call with arrays that lie like these."""
    reduced = {a for n in walk(*spec.outputs.values()) if n.op == "reduce" for a in n.attr.axes}
    free = {a for axes in spec.output_axes.values() for a in axes} - reduced
    usual = {a: USUAL if a in free else 1 << (n - 1).bit_length() for a, n in sizes.items()}
    axes = {t.name: t.axes for t in spec.tensors}
    return Asked(kind, sizes, usual, {n: _usual_view(axes[n], v, usual) for n, v in views.items()})


def _usual_view(axes: Sequence[str], view: View, usual: Mapping[str, int]) -> View:
    """An array of usual lengths that lies as one does: its axes in the same order, and with gaps where it has some."""
    shape = tuple(usual[a] for a in axes)
    long = [s for s, n in zip(view.strides, view.shape, strict=True) if n != 1]
    steps, step = [0] * len(axes), 1 if 1 in long or not long else 2
    for d in reversed(memory_order(view.shape, view.strides)):
        steps[d], step = (step, step * shape[d]) if view.strides[d] else (0, step)
    return View(shape, tuple(steps))


def _derived(spec: Spec) -> Form | None:
    """The form of a part, over what its outermost reductions run along, if anything; None where it has none."""
    along = dict.fromkeys(n.attr.axes for n in outermost_reductions(*spec.outputs.values()))
    for axes in along or [()]:
        with suppress(RedalgError):
            return form_over(spec, axes)
    return None


class Parts:
    """The parts of calls of a form. `run`: a run of another form, that is compiled like this one.

    `able`: whether there may be any. Specs with one sum inside another do, unless sums are held as pairs. `multiplies`:
    whether products are multiplied by tiles; ``tried``: ways that were looked into, for all parts of
    a call.
    """

    def __init__(
        self,
        form: Form,
        program: Callable[[Kind], Program],
        run: Callable[[Form], Any],
        able: bool,
        multiplies: bool,
    ) -> None:
        self.form, self._program, self._run, self._multiplies = form, program, run, multiplies
        self.tried = Tried()
        self.able = able and form.accuracy != COMPENSATED and _has_parts(form.spec)
        self._once = Once()

    def choice(self, asked: Asked, of_part: bool = True) -> Choice:
        """What takes the fewest operations; `of_part`: of a part of another call, whose ways count among its own."""
        if not self.able:
            return self._chosen(asked, True)
        counted = [n.attr for n in walk(*self.form.spec.outputs.values()) if n.op == "size"]
        along = {a for axes in counted for a in ((axes,) if isinstance(axes, str) else axes)}
        key = asked.key, tuple(asked.sizes[a] for a in sorted(along) if a in asked.sizes)
        return cast(Choice, self._once(key, lambda: self._chosen(asked, of_part)))

    def _chosen(self, asked: Asked, of_part: bool) -> Choice:
        program = self._program(asked.kind)
        whole = rows = operations_of(self.form, asked.kind, program, asked.usual, asked.views)
        if self._multiplies and may_multiply(self.form.spec, [str(d) for _, d in asked.kind.dtypes]):
            whole /= FASTER
        if not of_part:
            self.tried.begin(whole)
        best, most = Choice(whole, whole, rows), LESS * whole
        ways = list(partitions(self.form.spec, asked.sizes)) if self.able else []
        for partition in sorted(ways, key=lambda p: _at_least(p, asked.usual, self._multiplies)):
            try:
                found = self._operations(partition, asked, program, most)
            except BrokenPass:
                raise
            except RedalgError:  # a part has no kernel
                continue
            if found is not None and found[0] < most:
                most = found[0]
                best = Choice(most, whole, min(found[1], rows), partition, found[1] < LESS * rows)
        return best

    def _operations(
        self, partition: Partition, asked: Asked, program: Program, most: float
    ) -> tuple[float, float] | None:
        """Those of all parts, and those where none is multiplied by tiles; None where a part has no form, or calculates
        with fewer bits than one kernel does, and where they are as many as `most` at least."""
        parts = *partition.before, partition.last
        each = [_of_part_at_least(spec, asked.usual, self._multiplies) for spec in parts]
        between = KEPT / STORAGE["float32"] * _held(partition, asked.usual, program.real)
        if not self._may_lie_between(partition, asked, program) or between + sum(each) >= most or self.tried.enough:
            return None
        self.tried.count += 1
        rows = between + CALL * len(parts)
        for k, spec in enumerate(parts):
            run = self.run_of(spec)
            if run is None:
                return None
            own = self.asked_of(spec, partition, asked, program)
            if run._program_of(own.kind).real != program.real:
                return None
            choice = run._parts.choice(own)
            each[k], rows = CALL + choice.operations, rows + choice.rows
            if between + sum(each) >= most:
                return None
        return between + sum(each), rows

    def _may_lie_between(self, partition: Partition, asked: Asked, program: Program) -> bool:
        """Whether it is not far larger than a call's arrays, and is not masked by an infinity: each is looked into."""
        made = [n for s in partition.before for o, n in s.outputs.items() if o in partition.between]
        arrays = [(x.axes, x.dtype) for x in program.operands] + [(x.axes, x.dtype) for x in program.results]
        own = sum(prod(asked.usual[a] for a in axes) * STORAGE[dtype] for axes, dtype in arrays)
        infinite = any(n.op == "special" for root in made for n in above_reductions(root))
        return not infinite and _held(partition, asked.usual, program.real) <= MOST_HELD * own

    def run_of(self, spec: Spec) -> Any:
        """A run of a part, for all kinds of calls; None where the part has no form."""
        form = _derived(spec)
        return self._once(spec, lambda: self._run(form)) if form is not None else None

    def asked_of(self, spec: Spec, partition: Partition, asked: Asked, program: Program) -> Asked:
        """What is asked of a part."""
        names = [t.name for t in spec.tensors]
        real = dict.fromkeys(partition.between, program.real)
        dtypes, stored = ({**dict(x), **real} for x in (asked.kind.dtypes, asked.kind.stored))
        results = {r.name: r.dtype for r in program.results} | real
        kind = Kind(
            tuple((n, dtypes[n]) for n in names),
            tuple((n, stored[n]) for n in names if n in stored),
            tuple((n, results[n]) for n in spec.outputs),
        )
        laid = {n: View.contiguous(tuple(asked.usual[a] for a in axes)) for n, axes in partition.between.items()}
        views = {**asked.views, **laid}
        return Asked(kind, asked.sizes, asked.usual, {n: views[n] for n in names if n in views})

    def block(self, choice: Choice, asked: Asked, program: Program, held: Sequence[Any]) -> tuple[str, int] | None:
        """The axis along which a call runs in blocks of rows, and the rows of one; None where it is one block.

        Raises: TooLarge where what lies between parts is far larger than caches, and no axis can be cut.
        """
        partition = choice.partition
        assert partition is not None
        size = NESTED * _held(partition, asked.sizes, program.real)
        plain = all(not isinstance(x, np.ndarray) or x.dtype == program.real for x in held)
        reduced = {a for n in walk(*self.form.spec.outputs.values()) if n.op == "reduce" for a in n.attr.axes}
        every = [{*axes} for axes in (*self.form.spec.output_axes.values(), *partition.between.values())]
        free = set.intersection(*every) - reduced if plain else set()
        return block_of({a: asked.sizes[a] for a in self.form.spec.axes if a in free}, size)

    def ready(
        self, choice: Choice, asked: Asked, program: Program, bound: Bound, held: Sequence[Any], whole: Ready
    ) -> InParts:
        """What such calls are prepared to do. `whole`: the same by one kernel, which tells what results are like."""
        partition = choice.partition
        assert partition is not None
        between = {n: np.empty([asked.sizes[a] for a in axes], program.real) for n, axes in partition.between.items()}
        known = dict(zip(bound.arrays, held, strict=True)) | between
        dtypes = {**bound.dtypes, **{n: x.dtype for n, x in between.items()}}
        wanted = {**{n: dtype for n, (_, dtype) in whole.wants.items()}, **{n: x.dtype for n, x in between.items()}}
        places = {n: place for place, n in enumerate(known)}
        steps = []
        for spec in (*partition.before, partition.last):
            run, own = self.run_of(spec), self.asked_of(spec, partition, asked, program)
            arrays = {t.name: known[t.name] for t in spec.tensors}
            part = Bound(arrays, dict(bound.sizes), {n: dtypes[n] for n in arrays})
            ready = run._made_ready(own.kind, part, [*arrays.values()], {n: wanted[n] for n in spec.outputs}, own)
            if not partition.between.keys().isdisjoint(spec.outputs):
                ready.lie_contiguous()
            steps.append(Step(spec, ready, tuple(places[n] for n in arrays), {n: places[n] for n in arrays}))
        rescue = Rescue(self.form, program, whole.sizes, bound.dtypes, lambda **arrays: None)
        return InParts(steps, places, whole, Wrong(self.form.spec, partition, rescue), bound, choice)


def _at_least(partition: Partition, sizes: Mapping[str, int], multiplies: bool) -> float:
    """Operations that parts take at least, known before any of them has a form: each term of their sums once, of
    products of matrices in less time."""
    parts = (*partition.before, partition.last)
    between = sum(prod(sizes[a] for a in axes) for axes in partition.between.values())
    return KEPT * between + sum(_of_part_at_least(spec, sizes, multiplies) for spec in parts)


def _of_part_at_least(spec: Spec, sizes: Mapping[str, int], multiplies: bool) -> float:
    """Operations of a part and its call, at least."""
    sums = (n for n in walk(*spec.outputs.values()) if n.op == "reduce" and one_hot_of(n) is None)
    each = ((prod(sizes.get(a, 1) for a in n.axes | {*n.attr.axes}), multiplies and is_over_pairs(n)) for n in sums)
    return 2 * sum(count / FASTER if fast else count for count, fast in each) + CALL


def _held(partition: Partition, sizes: Mapping[str, int], real: str) -> int:
    """Bytes of what lies between parts."""
    return sum(prod(sizes[a] for a in axes) for axes in partition.between.values()) * STORAGE[real]


def _has_parts(spec: Spec) -> bool:
    """Whether there may be parts, and they may read the tensors."""
    return may_be_cut(spec.outputs) and not spec.empty and not any(t.dimensions for t in spec.tensors)


def all_floats(dtypes: Mapping[str, Any]) -> bool:
    """Whether all tensors hold floats: parts pass floats to one another."""
    return all("float" in (d.__name__ if isinstance(d, type) else format_name(d)) for d in dtypes.values())


# --- calls -----------------------------------------------------------------------------------------------------------


class Seen(Mapping[str, Any]):
    """The arrays of one part in one call, by name, for what looks into them: those of 16 bits as float32, so that
    nothing is rounded. `marked`: rows of the last part that left the range of the reals."""

    __slots__ = ("held", "marked", "places")

    def __init__(self, places: Mapping[str, int], held: Sequence[Any]) -> None:
        self.places, self.held = places, held
        self.marked: list[tuple[tuple[str, ...], np.ndarray]] = []

    def __getitem__(self, name: str) -> Any:
        return _wide(self.held[self.places[name]])

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)


def _wide(x: Any) -> Any:
    return x.astype(np.float32) if isinstance(x, np.ndarray) and x.dtype.itemsize < STORAGE["float32"] else x


def _is_finite(x: Any) -> Any:
    if not isinstance(x, np.ndarray) or x.dtype != BFLOAT16_BITS:
        return np.isfinite(x)
    exponent = np.uint16(0x7F80)
    return (x.view(np.uint16) & exponent) != exponent


@dataclass(frozen=True)
class Step:
    """A part: what it is prepared to do, and which arrays it takes, by place and by name."""

    spec: Spec
    ready: Any
    takes: tuple[int, ...]
    places: Mapping[str, int]

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(self.spec.outputs)


def _gives(step: Step, between: Mapping[str, Any], places: Mapping[str, int]) -> int | tuple[str, ...]:
    """Where what a part computes lies, if that is one array between parts; else its names."""
    names = step.outputs
    return places[names[0]] if len(names) == 1 and names[0] in between else names


class InParts:
    """What calls of one kind do that run in parts, as `redalg.kernels.cpu.ready.Ready` is for one kernel.

    `places`: where arrays of a call and those between parts are in a list of both.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        places: Mapping[str, int],
        whole: Ready,
        wrong: Wrong,
        bound: Bound,
        choice: Choice,
    ) -> None:
        self._steps = steps
        *before, last = steps
        self._before = [(s.ready, s.takes, s.places, _gives(s, wrong.between, places)) for s in before]
        self._last = last.ready, last.takes, last.places, last.outputs
        self.choice = choice
        self._whole, self._wrong = whole, wrong
        self._places, self._names = places, tuple(whole.wants)
        self._between = tuple(wrong.between)
        lengths = {n: [whole.sizes[a] for a in axes] for n, axes in wrong.between.items()}
        large = {places[n]: shape for n, shape in lengths.items() if LARGE <= prod(shape) * STORAGE[wrong.real]}
        few = sum(map(prod, large.values())) * STORAGE[wrong.real] <= MOST_KEPT
        self._large = large if few else {}
        self._idle: list[dict[Any, np.ndarray]] = []  # appending to a list, and taking from it, is atomic
        self._restore = None if bound.origin.kind == "numpy" else bound.origin.restore
        last.ready.tell_marks()

    def __call__(self, given: Sequence[Any], arrays: Mapping[str, Any], out: Any) -> Any:
        """The results for arrays of this kind, as kernels read them (`given`) and as the caller passed them."""
        if out is not None:
            return self._into(out, given, arrays)
        made = self._computed(given, arrays, None)
        found = [made[n] for n in self._names]
        if self._restore is not None:
            found = [self._restore(x) for x in found]
        return found[0] if len(found) == 1 else dict(zip(self._names, found, strict=True))

    def _into(self, out: Any, given: Sequence[Any], arrays: Mapping[str, Any]) -> Any:
        """Inputs are read to the end of a call: where `out` overlaps one, results go elsewhere first."""
        targets = self._whole.received(out)
        inputs = [x for x in given if isinstance(x, np.ndarray)]
        apart = not any(shared(x, target) for x in inputs for target in targets.values())
        made = self._computed(given, arrays, targets if apart else None)
        for name, x in made.items():
            if x is not targets[name]:
                targets[name][...] = x
        own = by_output(out, list(targets), WHERE)
        return own[self._names[0]] if len(targets) == 1 else {name: own[name] for name in targets}

    def _computed(
        self, given: Sequence[Any], arrays: Mapping[str, Any], targets: Mapping[str, np.ndarray] | None
    ) -> dict[str, Any]:
        """The outputs by name, those of the last part in `targets`."""
        held: list[Any] = [*given, *self._between]
        found: dict[str, Any] = {}
        large = self._taken()
        for ready, takes, places, gives in self._before:
            made = ready([held[at] for at in takes], Seen(places, held), large.get(gives))
            if isinstance(gives, int):
                held[gives] = made
            else:
                self._keep(made, gives, held, found)
        ready, takes, places, names = self._last
        seen = Seen(places, held)
        out = {n: targets[n] for n in names} if targets is not None else None
        made = ready([held[at] for at in takes], seen, out)
        if len(names) > 1:
            found.update(made)
        else:
            found[names[0]] = made
        between = held[len(given) :]
        if seen.marked or not self._are_finite(between, found) or self._is_lost(between, given):
            self._correct(seen, given, arrays, found)
        self._idle.append(large)  # of a call that raised it is lost
        return found

    def _taken(self) -> dict[Any, np.ndarray]:
        """Large arrays between parts, by place, that no other call uses now: new pages of memory cost as much as
        writing them."""
        try:
            return self._idle.pop()
        except IndexError:
            return {place: np.empty(shape, self._wrong.real) for place, shape in self._large.items()}

    def _keep(self, made: Any, names: tuple[str, ...], held: list[Any], found: dict[str, Any]) -> None:
        """What a part gave that has several outputs, or one of the whole call."""
        for name, x in made.items() if len(names) > 1 else ((names[0], made),):
            if name in self._places:
                held[self._places[name]] = x
            else:
                found[name] = x

    def _are_finite(self, between: Sequence[np.ndarray], found: Mapping[str, np.ndarray]) -> bool:
        """Whether nothing has to be looked into: squares of finite numbers are infinite soon, which is looked into."""
        if not all(isfinite(np.vdot(x, x)) for x in between):
            return False
        return not self._wrong.divides or all(_is_finite(x).all() for x in found.values())

    def _is_lost(self, between: Sequence[np.ndarray], given: Sequence[Any]) -> bool:
        """Whether a sum between parts fell below the range, and what reads it would tell."""
        if not self._wrong.lost:
            return False
        known, named = dict(zip(self._between, between, strict=True)), dict(zip(self._places, given, strict=False))
        return any(lost(known[n], named, _wide) is not None for n, lost in self._wrong.lost.items())

    def _correct(self, seen: Seen, given: Sequence[Any], arrays: Mapping[str, Any], found: dict[str, Any]) -> None:
        between = {n: seen.held[self._places[n]] for n in self._between}
        marked = self._wrong(between, dict(zip(self._places, given, strict=False)), seen.marked, arrays, found)
        if marked is not None and isinstance(arrays, Seen):  # a part of a part
            arrays.marked.append(marked)

    # --- what was done -----------------------------------------------------------------------------------------------

    @property
    def multiplies(self) -> bool:
        """Whether a part is multiplied by tiles."""
        every = (step.ready for step in self._steps)
        return any(r.multiplies if isinstance(r, InParts) else isinstance(r, Multiplied) for r in every)

    def lie_contiguous(self) -> None:
        """Leave results in row-major order, as `Ready.lie_contiguous` does."""
        for step in self._steps:
            step.ready.lie_contiguous()

    def tell_marks(self) -> None:
        """As a last part: rows that leave the range are those of what it is a part of, which is told in every call."""

    @property
    def last(self) -> tuple[Compiled, ...]:
        """What calls ran, kernel by kernel."""
        return tuple(c for step in self._steps for c in step.ready.last)

    @property
    def rescued(self) -> int:
        """Rows that left the range of the reals and were computed in wider numbers, of all calls so far."""
        return self._wrong.rows + sum(step.ready.rescued for step in self._steps)

    def summary(self) -> str:
        """What runs, in a line."""
        between = ", ".join(f"{n}[{','.join(axes)}] {self._wrong.real}" for n, axes in self._wrong.between.items())
        return f"in parts: {len(self.last)} kernels, {between or 'nothing'} between them"

    def lines(self) -> Iterator[str]:
        """Why, and what each part does."""
        yield f"operations: {self.choice.operations:.3g}, and {self.choice.whole:.3g} as one kernel"
        for step in self._steps:
            names = ", ".join(step.spec.outputs)
            if isinstance(step.ready, InParts):
                yield f"{names}: {step.ready.summary()}"
                yield from (f"  {line}" for line in step.ready.lines())
            else:
                yield from (f"{names}: {c.schedule}" for c in step.ready.last)


class Wrong:
    """Rows of a call that parts cannot compute, since what lies between left its range: computed anew, as a whole."""

    def __init__(self, spec: Spec, partition: Partition, rescue: Rescue) -> None:
        self._rescue, self.between, self.real = rescue, partition.between, rescue.program.real
        self.divides = any(w.low for w in rescue.program.watched)  # of a sum below the range, 0 is left between parts
        made = {o: n for s in partition.before for o, n in s.outputs.items() if o in partition.between}
        read = [n for s in (*partition.before, partition.last) for n in s.outputs.values()]
        sums = {
            o: Lost.of(n, partition.between[o], self.real) for o, n in made.items() if self.divides or tells(o, read)
        }
        self.lost = {o: lost for o, lost in sums.items() if lost is not None}
        self._made_of = {o: [leaf.attr for leaf in leaves(n, "tensor")] for o, n in {**made, **spec.outputs}.items()}
        self._output_axes = spec.output_axes
        reduced = {a for n in walk(*spec.outputs.values()) if n.op == "reduce" for a in n.attr.axes}
        self._kept = [a for a in rescue.program.rows if a not in reduced]  # along which rows have nothing in common

    @property
    def rows(self) -> int:
        return self._rescue.rows

    def __call__(
        self,
        between: Mapping[str, np.ndarray],
        given: Mapping[str, Any],
        marked: Sequence[tuple[tuple[str, ...], np.ndarray]],
        arrays: Mapping[str, Any],
        results: Mapping[str, np.ndarray],
    ) -> tuple[tuple[str, ...], np.ndarray] | None:
        """Correct the results; the rows that were, over their axes."""
        rows = self._rescue.program.rows
        wrong = np.zeros([self._rescue.sizes[a] for a in rows], bool)
        for name, x in {**between, **(results if self.divides else {})}.items():
            bad = ~_is_finite(x)
            if bad.any():
                axes = self.between.get(name) or self._output_axes[name]
                wrong |= self._rows(axes, bad & self._sound(name, axes, given))
        for name, lost in self.lost.items():
            where = lost(between[name], given, _wide)
            if where is not None:
                wrong |= self._rows(lost.axes, where & self._sound(name, lost.axes, given))
        for axes, mask in marked:
            wrong |= self._rows(axes, mask != 0)
        if not wrong.any():
            return None
        self._rescue.anew(wrong, arrays, results)
        return rows, wrong

    def _sound(self, name: str, axes: Sequence[str], given: Mapping[str, Any]) -> np.ndarray:
        """Which elements between parts, or of an output, are made of finite numbers."""
        found = np.ones((1,) * len(axes), bool)
        for t in self._made_of[name]:
            found = found & _along(_is_finite(_wide(given[t.name])), t.axes, axes, np.logical_and)
        return found

    def _rows(self, axes: Sequence[str], mask: np.ndarray) -> np.ndarray:
        """The rows that read one of these elements."""
        kept = [a for a in axes if a in self._kept]
        own = _along(mask, axes, kept, np.logical_or)
        return _along(own, kept, self._rescue.program.rows, np.logical_or)


def _along(x: np.ndarray, own: Sequence[str], axes: Sequence[str], join: np.ufunc) -> np.ndarray:
    """An array over its own axes over others, joined along those that these lack.

    >>> _along(np.array([[True, False], [False, False]]), "ab", "ca", np.logical_or)
    array([[ True, False]])
    """
    lost = tuple(d for d, a in enumerate(own) if a not in axes)
    x = join.reduce(x, axis=lost) if lost else x
    left = [a for a in own if a in axes]
    x = np.asarray(x).transpose([left.index(a) for a in axes if a in left])
    return x[tuple(slice(None) if a in left else None for a in axes)]


__all__ = ["Asked", "InParts", "Parts", "all_floats", "asked_of"]
