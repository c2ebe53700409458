"""``schedule="measure"`` on a GPU: candidates timed on the arrays of the first call, the fastest one kept.

Every candidate runs on the caller's arrays and writes results of its own; before each run, what lies in L2 is driven
out of it; times lie between two events of the driver. Winners are kept on disk (`redalg.kernels.launch.store`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

from redalg.errors import RedalgError
from redalg.kernels.ir.schedule import FUSED_PROLOGUE, MMA, TENSOR, Schedule
from redalg.kernels.launch.driver import checked, is_capturing
from redalg.kernels.launch.ptx import PACKAGES, package_version
from redalg.kernels.launch.store import Disk
from redalg.kernels.pipeline import plan, situation
from redalg.kernels.schedule.case import Case
from redalg.kernels.schedule.cost import estimate
from redalg.kernels.schedule.legality import refusals
from redalg.kernels.schedule.target import Target
from redalg.kernels.schedule.tuning import MOST, WORTH, Measured, Store, Time, Way, candidates, key_of, measure, race

if TYPE_CHECKING:
    from redalg.form import Form
    from redalg.kernels.cuda.run import Ready
    from redalg.kernels.ir.layouts import View


def ways_of(
    form: Form,
    dtypes: Mapping[str, Any],
    views: Mapping[str, View],
    target: Target,
    deterministic: bool = False,
    k: int = MOST,
) -> tuple[list[Way], str]:
    """What is worth measuring for a kind of call, the model's own choice first, and the key of the winner.

    Contractions on tensor cores are one way, or several where the instructions of older devices are another and where
    what prepares an operand can run inside the product's kernel; ordinary kernels are others as far as they are
    predicted to come near. A frozen maximum depends on numbers, which differ from call to call, and is none.
    """
    program, sizes, walk = situation(form, dtypes, views)
    key = key_of(program, sizes, walk, target, deterministic, *map(package_version, ("redalg", *PACKAGES)))
    tensor = _on_tensor_cores(form, dtypes, views, target, deterministic)
    if not tensor or TENSOR not in tensor:
        others = candidates(program, sizes, walk, target, k - len(tensor), deterministic)
        return [*others[:1], *([] if deterministic else tensor), *others[1:]], key
    if deterministic:
        return [TENSOR], key
    case, most = Case.of(program, sizes, walk, target), WORTH * tensor[TENSOR]
    others = candidates(program, sizes, walk, target, k - len(tensor))
    return [*tensor, *(s for s in others if estimate(case, s).seconds <= most)], key


def _on_tensor_cores(
    form: Form, dtypes: Mapping[str, Any], views: Mapping[str, View], target: Target, deterministic: bool
) -> dict[Way, float]:
    """The ways on tensor cores that print different kernels, with the seconds predicted for each."""
    found: dict[str, tuple[Way, float]] = {}
    for word in (TENSOR, MMA, FUSED_PROLOGUE):
        with suppress(RedalgError):
            planned = plan(form, dtypes, views, target, deterministic, word)
            found.setdefault(planned.module.source, (word, planned.choice.seconds))
    return dict(found.values())


def is_legal(form: Form, dtypes: Mapping[str, Any], views: Mapping[str, View], target: Target) -> Callable[[Way], bool]:
    """Whether a way that was remembered computes this call."""

    def legal(way: Way) -> bool:
        if isinstance(way, Schedule):
            return next(refusals(Case.of(*situation(form, dtypes, views), target), way), None) is None
        try:
            return plan(form, dtypes, views, target, False, way) is not None
        except RedalgError:
            return False

    return legal


def fastest(
    ways: Sequence[Way],
    key: str,
    make: Callable[[Way], Ready],
    timed: Callable[[Sequence[Ready | Exception]], Sequence[Time]],
    store: Store,
    legal: Callable[[Way], bool],
) -> Ready:
    """The fastest of the ways as a call that is ready: `make` prepares one, `timed` gives the times of several."""
    made: dict[Way, Ready] = {}

    def prepared(way: Way) -> Ready | Exception:
        try:
            return made.setdefault(way, make(way))
        except Exception as problem:  # whatever a printer or a compiler raises
            return problem

    found = measure(ways, lambda several: timed([prepared(w) for w in several]), key, store, legal)
    ready = made[found.way] if found.way in made else make(found.way)
    return _explained(ready, found)


def _explained(ready: Ready, found: Measured) -> Ready:
    """What was measured takes the place of what is said of a schedule that was asked for."""
    choice = ready.planned.choice
    kept = [line for line in choice.reasons if not line.startswith("asked for by schedule=")]
    ready.planned = replace(ready.planned, choice=replace(choice, reasons=(kept[0], *found.lines(), *kept[1:])))
    return ready


# --- on a device -----------------------------------------------------------------------------------------------------


def measured(
    first: Ready,
    make: Callable[[Way], Ready],
    situation: tuple[Form, Mapping[str, Any], Mapping[str, View], Target, bool],
    held: list[Any],
    stream: int,
) -> Ready:
    """The call of a run with ``schedule="measure"``, prepared: `held` are its arguments on the device.

    `first`: the same by the model's own choice.

    Raises: RedalgError while the stream is being captured, unless the winner is known.
    """
    form, dtypes, views, target, deterministic = situation
    ways, key = ways_of(*situation)

    def timed(several: Sequence[Ready | Exception]) -> list[Time]:
        refuse_captured(stream)
        with Clock(target, stream) as clock:
            made = first.scratch(held)
            runs = [r if isinstance(r, Exception) else r.rehearsal(held, made, stream) for r in several]
            return race(runs, clock.seconds)

    if len(ways) == 1:
        return first
    return fastest(ways, key, make, timed, Disk(), is_legal(form, dtypes, views, target))


def refuse_captured(stream: int) -> None:
    if is_capturing(stream):
        raise RedalgError(
            'schedule="measure" while a stream is captured',
            "the first call of a kind of arrays",
            "candidates are timed then, and a captured stream runs nothing",
            "call it once with such arrays before the capture",
        )


class Clock:
    """Times of launches on a stream, each after L2 was filled with something else."""

    def __init__(self, target: Target, stream: int) -> None:
        from cuda.bindings import driver

        self.driver, self.stream, self.words = driver, stream, target.l2 // 2  # twice the size of L2
        self.begin, self.end = checked(driver.cuEventCreate(0)), checked(driver.cuEventCreate(0))
        self.other = checked(driver.cuMemAlloc(4 * self.words), "memory for measuring")

    def __enter__(self) -> Clock:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self.driver.cuStreamSynchronize(self.stream)
        self.driver.cuMemFree(self.other)
        for event in (self.begin, self.end):
            self.driver.cuEventDestroy(event)

    def seconds(self, run: Callable[[], Any]) -> float:
        """Filling L2 takes longer than the host takes to launch: the device does not wait between the events."""
        driver = self.driver
        checked(driver.cuMemsetD32Async(self.other, 0, self.words, self.stream))
        checked(driver.cuEventRecord(self.begin, self.stream))
        run()
        checked(driver.cuEventRecord(self.end, self.stream))
        checked(driver.cuEventSynchronize(self.end), "a candidate's kernel")
        return float(checked(driver.cuEventElapsedTime(self.begin, self.end))) * 1e-3
