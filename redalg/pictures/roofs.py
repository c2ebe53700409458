"""`roofline`: a form's kernel under the roofs of a device, predicted or measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redalg.errors import RedalgError
from redalg.kernels.ir.layouts import View, walk_of
from redalg.kernels.launch import driver
from redalg.kernels.programs import lower
from redalg.kernels.schedule.case import Case
from redalg.kernels.schedule.choose import choose
from redalg.kernels.schedule.cost import estimate
from redalg.kernels.schedule.target import TABLE, Target
from redalg.kernels.traffic import traffic
from redalg.pictures.style import (
    BLACK,
    BLUE,
    DASHES,
    GREY,
    MARKERS,
    PALETTE,
    RED,
    SMALL,
    TITLE,
    axes,
    dress,
    of_bytes,
    of_seconds,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from redalg.form import Form

Measured = float | Mapping[str, float] | None


@dataclass(frozen=True)
class Point:
    """One way of running a form: bytes it moves and seconds it takes, for the same instructions."""

    label: str
    instructions: float
    bytes: int
    seconds: float

    @property
    def intensity(self) -> float:
        return self.instructions / self.bytes

    @property
    def rate(self) -> float:
        return self.instructions / self.seconds


def roofline(
    form: Form,
    sizes: Mapping[str, int],
    target: Target | str | None = None,
    measured: Measured = None,
    dtype: str = "float32",
    *,
    ax: Axes | None = None,
) -> Axes:
    """Instructions per second against instructions per byte, both logarithmic, under the roofs of a device.

    Work is what one evaluation of the form takes in instructions of single threads
    (`redalg.kernels.schedule.cost_terms`), the same
    for every point; roofs are the rate at which the device issues them and the bandwidths of memory (the data sheet's,
    and what a copy reaches) and of L2 (`redalg.kernels.schedule.target`). *Op by op* and *stage by stage* stand on
    the roof over
    the bytes `redalg.traffic` counts: no kernels run that way can be faster. *Predicted* is the model's schedule and
    time over the bytes a kernel cannot avoid: every element once. `measured` are seconds, or several by name.

    `sizes`: axis -> length; `target`: a `Target`, a name of the table, or None for the GPU that is there, else the
    table's first. Lines and points carry their labels.

    Raises: RedalgError for a missing length, an unknown target or dtype, seconds that are not positive, and without
    matplotlib. Source: Williams, Waterman and Patterson (2009); with instructions in place of flops, Ding and
    Williams (2019).

    >>> import redalg as ra
    >>> form = ra.derive_incremental(ra.catalog["softmax"])
    >>> ax = roofline(form, {"i": 4096, "j": 4096}, "H200")
    >>> [line.get_label() for line in ax.lines if line.get_marker() != "None"]
    ['op by op, at best', 'stage by stage, at best', 'predicted']
    """
    times = _times(measured)
    device = _device(target)
    points, issue = _points(form, sizes, device, times, dtype)
    ax = axes(ax, "roofline", 5.6, 4.9)
    intensities = [p.intensity for p in points]
    ridges = [issue / device.l2_bandwidth, issue / device.reachable]
    low, high = min(intensities + ridges) / 4, max(intensities + ridges) * 4
    _roofs(ax, device, issue, low, high)
    for k, p in enumerate(points):
        model = k < 3 and p.label.endswith("best")
        color = GREY if model else PALETTE[k % len(PALETTE)]
        face = "white" if k < 3 else color
        ax.plot(
            p.intensity,
            p.rate,
            marker=MARKERS[k % len(MARKERS)],
            ms=7,
            mec=color,
            mew=1.6,
            ls="none",
            label=p.label,
            mfc=face,
        )
        text = of_bytes(p.bytes) if model else of_seconds(p.seconds)
        ax.annotate(text, (p.intensity, p.rate), (7, -3), textcoords="offset points", fontsize=SMALL, va="top")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(low, high)
    ax.set_ylim(min(p.rate for p in points) / 4, issue * 3)
    dress(ax, "instructions of a thread per byte moved", "instructions per second")
    ax.legend(fontsize=SMALL, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2)
    ax.set_title(_title(form, points, issue, device, sizes, dtype), fontsize=TITLE)
    return ax


def _times(measured: Measured) -> dict[str, float]:
    times = dict(measured) if isinstance(measured, Mapping) else {} if measured is None else {"measured": measured}
    for name, seconds in times.items():
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < float("inf"):
            why, fix = "a kernel takes a positive time", "measured=21e-6, in seconds"
            raise RedalgError(f"measured {name}={seconds!r}", "redalg.pictures.roofline", why, fix)
    return times


def _device(target: Target | str | None) -> Target:
    if isinstance(target, Target):
        return target
    if target is None:
        return driver.target_of(0) if driver.available() else TABLE[0]
    for part in TABLE:
        if part.name == target:
            return part
    names = ", ".join(t.name for t in TABLE)
    raise RedalgError(
        f"target={target!r}", "redalg.pictures.roofline", f"the table has {names}", "a Target, or one of these"
    )


def _points(
    form: Form, sizes: Mapping[str, int], device: Target, times: Mapping[str, float], dtype: str
) -> tuple[list[Point], float]:
    """All points, and the rate at which the device issues instructions of that precision."""
    moved = traffic(form.spec, sizes, dtype, form)
    program = lower(form, {t.name: _dtype(t, dtype) for t in form.spec.tensors})
    lengths = {**sizes, **program.lengths}
    arrays = {o.name: o.axes for o in program.operands if not o.number} | {r.key: r.axes for r in program.results}
    views = {name: View.contiguous(tuple(lengths[a] for a in names)) for name, names in arrays.items()}
    walk = walk_of(program, views)
    choice, case = choose(program, lengths, walk, device), Case.of(program, lengths, walk, device)
    work, once = case.work, estimate(case, choice.schedule).moved
    instructions = max(1.0, work.instructions.lifted) * max(1, work.rows) * max(1, work.length)
    issue = device.issue * (min(1.0, 2 * device.double) if work.double else 1.0)
    points = []
    for name, way in (("op by op", moved.op_by_op), ("stage by stage", moved.stage_by_stage)):
        least = max(way.bytes / device.reachable, instructions / issue)
        points.append(Point(f"{name}, at best", instructions, way.bytes, least))
    points.append(Point("predicted", instructions, once, choice.seconds))
    points += [Point(name, instructions, once, seconds) for name, seconds in times.items()]
    return points, issue


def _dtype(tensor: Any, dtype: str) -> Any:
    if "bool" in tensor.domain:
        return "bool"
    if not tensor.axes:
        return int if "integer" in tensor.domain else float
    return "int64" if "integer" in tensor.domain else dtype


def _roofs(ax: Axes, device: Target, issue: float, low: float, high: float) -> None:
    roofs = (
        (f"copy: {of_bytes(device.reachable)}/s", device.reachable, BLACK, "-"),
        (f"memory, data sheet: {of_bytes(device.bandwidth)}/s", device.bandwidth, BLUE, DASHES[1]),
        (f"L2: {of_bytes(device.l2_bandwidth)}/s", device.l2_bandwidth, RED, DASHES[2]),
    )
    for label, bandwidth, color, dash in roofs:
        ridge = issue / bandwidth
        ax.plot([low, ridge], [low * bandwidth, issue], color=color, ls=dash, lw=1.3, label=label, marker="None")
    ax.plot(
        [issue / device.l2_bandwidth, high],
        [issue, issue],
        color=BLACK,
        ls="-",
        lw=1.3,
        marker="None",
        label=f"issue: {issue / 1e12:.3g}·10¹² instructions/s",
    )


def _title(form: Form, points: list[Point], issue: float, device: Target, sizes: Mapping[str, int], dtype: str) -> str:
    last = points[2] if len(points) == 3 else points[3]
    roof = min(issue, last.intensity * device.reachable)
    bound = "issue" if roof == issue else "copy"
    lengths = ", ".join(f"|{a}| = {n}" for a, n in sizes.items())
    what = f"{', '.join(form.spec.outputs)} on {device.name}: {last.label} at {100 * last.rate / roof:.0f} % of the"
    return f"{what} {bound} roof\n{lengths}, {dtype}"
