"""Diagrams of boxes in rows: what reads the stream comes in from the left, what reads another box from the right.

Positions are inches, so that what is measured beforehand fits: boxes have the size of their text, and every source has
a lane of its own. Where the axes are smaller than the diagram, everything shrinks together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from redalg.pictures.style import BLACK, BLUE, BODY, DASHES, GREEN, GREY, LIGHT, PALE, PALETTE, RED, SMALL, TITLE, axes
from redalg.pictures.text import extent, widest

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PAD, GAP, LANE, LINE = 0.09, 0.11, 0.13, 0.04
WIDER = 1.06  # letters fitted to pixels take a little more than their outlines
BOLD = 1.15  # how much wider bold letters are
KINDS = {  # border, dash, width
    "stage": (BLUE, "-", 1.3),
    "slot": (GREEN, "-", 1.3),
    "anchor": (RED, DASHES[1], 1.3),
    "output": (BLACK, "-", 1.0),
}


@dataclass(frozen=True)
class Row:
    """One box: a heading, lines of text below it, and what it needs: rows by name. Names are unique in a column."""

    name: str
    lines: tuple[str, ...]
    kind: str
    needs: tuple[str, ...] = ()
    reads: bool = False
    label: str = ""  # the heading, where it is not the name

    @property
    def heading(self) -> str:
        return self.label or self.name


@dataclass(frozen=True)
class Band:
    """Rows that are computed in one read of the stream, or (without `source`) from what is known already."""

    title: str
    source: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Side:
    """One column of a diagram. `key` starts the gid of every artist in it."""

    key: str
    title: str
    bands: tuple[Band, ...]
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> list[Row]:
        return [r for b in self.bands for r in b.rows]


class Layout:
    """Where everything of one column lies, with its top left corner at (0, 0) and y growing downwards."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.source = max((widest(b.source.split("\n"), BODY) + 2 * PAD for b in side.bands if b.source), default=0.0)
        self.boxes = max((box_size(r)[0] for r in side.rows), default=1.0)
        needed = {n for r in side.rows for n in r.needs}
        self.lanes = [r.name for r in side.rows if r.name in needed]
        self.left = PAD + self.source + (0.4 if self.source else 0.0)
        inside = self.left + self.boxes + 0.15 + LANE * len(self.lanes) + PAD
        titles = max((extent(b.title, SMALL)[0] + 2 * PAD for b in side.bands), default=0.0)
        heading = max(widest([side.title], BOLD * TITLE), widest(side.notes, SMALL))
        self.width = max(inside, titles, heading)
        self._place()

    def _place(self) -> None:
        y = extent(self.side.title, TITLE)[1] + 0.12
        self.at: dict[str, tuple[float, float]] = {}  # top and height of each box
        self.bands: list[tuple[float, float]] = []
        for band in self.side.bands:
            top = y
            y += extent(band.title, SMALL)[1] + 0.12
            for row in band.rows:
                height = box_size(row)[1]
                self.at[row.name] = (y, height)
                y += height + GAP
            lowest = top + extent(band.title, SMALL)[1] + 0.12 + extent(band.source, BODY)[1] + 3 * PAD
            y = max(y, lowest) if band.source else y
            self.bands.append((top, y - top))
            y += GAP
        self.notes = y
        self.height = y + sum(extent(n, SMALL)[1] + LINE for n in self.side.notes) + 0.05


def box_size(row: Row) -> tuple[float, float]:
    texts = [row.heading, *row.lines]
    height = sum(extent(t, BODY)[1] for t in texts) + LINE * len(row.lines) + 2 * PAD
    return max(widest([row.heading], BOLD * BODY), widest(row.lines, BODY)) * WIDER + 2 * PAD, height


def _shrunk(ax: Axes, width: float, height: float) -> float:
    """How much smaller the axes are than so many inches; at most 1."""
    place, dpi = ax.get_window_extent(), ax.figure.dpi
    return min(1.0, place.width / dpi / width, place.height / dpi / height)


class Pen:
    """Draws on axes in inches from their top left corner; text shrinks with the axes."""

    def __init__(self, ax: Axes | None, where: str, width: float, height: float) -> None:
        self.scale = 1.0 if ax is None else _shrunk(ax, width, height)
        self.ax = ax = axes(ax, where, width, height, whole=True)
        ax.set_xlim(0, width)
        ax.set_ylim(height, 0)
        ax.set_aspect("equal", adjustable="box", anchor="N")
        ax.set_axis_off()

    def text(self, x: float, y: float, text: str, size: float = BODY, gid: str | None = None, **more: object) -> None:
        options = {"va": "top", "ha": "left", "color": BLACK} | more
        self.ax.text(x, y, text, fontsize=size * self.scale, gid=gid, **options)  # type: ignore[arg-type]

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        gid: str,
        edge: str = PALE,
        face: str = "white",
        dash: object = "-",
        line: float = 1.0,
        radius: float = 0.05,
    ) -> None:
        from matplotlib.patches import FancyBboxPatch

        shape = FancyBboxPatch(
            (x, y),
            width,
            height,
            boxstyle=f"round,pad=0,rounding_size={radius}",
            edgecolor=edge,
            facecolor=face,
            linestyle=dash,
            linewidth=line * self.scale,
            gid=gid,
            mutation_aspect=1,
        )
        self.ax.add_patch(shape)

    def line(self, points: Sequence[tuple[float, float]], gid: str, color: str = BLACK, dash: object = "-") -> None:
        """A polygonal line with an arrowhead at its end."""
        from matplotlib.patches import FancyArrowPatch
        from matplotlib.path import Path

        arrow = FancyArrowPatch(
            path=Path(list(points)),
            arrowstyle="-|>",
            mutation_scale=7 * self.scale,
            color=color,
            linestyle=dash,
            linewidth=1.1 * self.scale,
            gid=gid,
            joinstyle="round",
            shrinkA=0,
            shrinkB=0,
        )
        self.ax.add_patch(arrow)


def draw(pen: Pen, layout: Layout, left: float, top: float) -> None:
    """One column with its top left corner at (left, top)."""
    side = layout.side
    pen.text(left, top, side.title, TITLE, f"{side.key}:title", fontweight="bold")
    for number, (band, (y, height)) in enumerate(zip(side.bands, layout.bands, strict=True), start=1):
        _band(pen, layout, band, number, left, top + y, height)
    for band in side.bands:
        for row in band.rows:
            _row(pen, layout, row, left + layout.left, top)
    _lanes(pen, layout, left, top)
    y = top + layout.notes
    for note in side.notes:
        pen.text(left, y, note, SMALL, f"{side.key}:note", color=GREY)
        y += extent(note, SMALL)[1] + LINE


def _band(pen: Pen, layout: Layout, band: Band, number: int, left: float, y: float, height: float) -> None:
    key = layout.side.key
    gid = f"{key}:read{number}" if band.source else f"{key}:known{number}"
    pen.box(left, y, layout.width, height - GAP / 2, gid, PALE, LIGHT if band.source else "white", line=0.8)
    pen.text(left + PAD, y + 0.06, band.title, SMALL, f"{gid}:title", color=GREY)
    if not band.source:
        return
    readers = [r.name for r in band.rows if r.reads]
    size = extent(band.source, BODY)[1] + 2 * PAD
    first = y + extent(band.title, SMALL)[1] + 0.12
    middle = sum(layout.at[r][0] + layout.at[r][1] / 2 for r in readers) / max(1, len(readers))
    at = min(max(first + size / 2, middle + (y - layout.bands[number - 1][0])), y + height - GAP - size / 2)
    pen.box(
        left + PAD,
        at - size / 2,
        layout.source,
        size,
        f"{gid}:source",
        BLACK,
        "white",
        radius=min(size, layout.source) / 2,
    )
    pen.text(left + PAD + layout.source / 2, at, band.source, BODY, f"{gid}:tensors", ha="center", va="center")
    start, trunk, end = left + PAD + layout.source, left + layout.left - 0.22, left + layout.left
    for name in readers:
        goal = y - layout.bands[number - 1][0] + layout.at[name][0] + layout.at[name][1] / 2
        pen.line([(start, at), (trunk, at), (trunk, goal), (end, goal)], f"{gid}->{name}")


def _row(pen: Pen, layout: Layout, row: Row, x: float, top: float) -> None:
    y, height = layout.at[row.name]
    color, dash, line = KINDS[row.kind]
    gid = f"{layout.side.key}:{row.kind}:{row.name}"
    pen.box(x, top + y, layout.boxes, height, gid, color, "white", dash, line)
    at = top + y + PAD
    pen.text(x + PAD, at, row.heading, BODY, f"{gid}:name", fontweight="bold", color=color)
    at += extent(row.heading, BODY)[1] + LINE
    for line_ in row.lines:
        pen.text(x + PAD, at, line_, BODY, f"{gid}:text")
        at += extent(line_, BODY)[1] + LINE


def _lanes(pen: Pen, layout: Layout, left: float, top: float) -> None:
    """From the right edge of a source down its lane, and into the right edge of everything that needs it."""
    edge = left + layout.left + layout.boxes
    rows = {r.name: r for r in layout.side.rows}
    for number, source in enumerate(layout.lanes):
        x = edge + 0.15 + LANE * number
        color, dash = PALETTE[number % len(PALETTE)], DASHES[number % len(DASHES)]
        y, height = layout.at[source]
        start = top + y + min(height / 2, 0.14)
        for name, row in rows.items():
            if source in row.needs:
                place = (row.needs.index(source) + 1) / (len(row.needs) + 1)
                goal = top + layout.at[name][0] + layout.at[name][1] * place
                path = [(edge, start), (x, start), (x, goal), (edge, goal)]
                pen.line(path, f"{layout.side.key}:{source}->{name}", color, dash)
