"""What every picture shares: colours, dashes, markers and hatches, figures and panels, the error without matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from redalg.errors import RedalgError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito, Color Universal Design (2008); without their yellow, which is too light for lines on white.
BLACK, ORANGE, SKY, GREEN, BLUE, RED, PURPLE = (
    "#000000",
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
)
PALETTE = (BLUE, RED, GREEN, PURPLE, ORANGE, SKY, BLACK)
GREY, PALE, LIGHT = "#666666", "#D9D9D9", "#F2F2F2"  # words beside the matter, borders, grounds
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)), (0, (8, 2)), (0, (3, 1, 1, 1, 1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "++++")
SMALL, BODY, TITLE = 8.0, 9.0, 10.5  # points


def require(where: str) -> None:
    """Refuse where matplotlib is missing."""
    try:
        import matplotlib.pyplot  # noqa: F401
    except ImportError as missing:
        why = f"pictures are drawn with matplotlib, and importing it fails: {missing}"
        raise RedalgError(
            f"redalg.pictures.{where}", "import matplotlib", why, "pip install 'redalg[notebook]'"
        ) from None


def axes(ax: Axes | None, where: str, width: float, height: float, whole: bool = False) -> Axes:
    """The axes to draw on: those given, or a new figure's of so many inches (`whole`: they fill it to its edges)."""
    require(where)
    from matplotlib.axes import Axes as Kind

    if ax is None:
        import matplotlib.pyplot as plt

        if whole:
            return plt.figure(figsize=(width, height)).add_axes((0, 0, 1, 1))
        return plt.subplots(figsize=(width, height), layout="constrained")[1]
    if not isinstance(ax, Kind):
        why = "a picture draws on one matplotlib Axes"
        raise RedalgError(
            f"ax={ax!r}", f"redalg.pictures.{where}", why, "ax=matplotlib.pyplot.subplots()[1], or ax=None"
        )
    return ax


def panels(ax: Axes, heights: Sequence[float], gap: float = 0.12) -> list[Axes]:
    """Panels one above the other inside the axes, which themselves show nothing but their title."""
    ax.set_axis_off()
    whole, top, found = sum(heights) + gap * (len(heights) - 1), 1.0, []
    for h in heights:
        share = h / whole
        found.append(ax.inset_axes((0.0, top - share, 1.0, share)))
        top -= share + gap / whole
    return found


def columns(ax: Axes, *spans: tuple[float, float]) -> list[Axes]:
    """Panels side by side inside the axes, each from one share of the width to another."""
    ax.set_axis_off()
    return [ax.inset_axes((a, 0.0, b - a, 1.0)) for a, b in spans]


def dress(ax: Axes, x: str = "", y: str = "") -> None:
    """Labels, a light grid below the data, no box on the right and above."""
    ax.set_xlabel(x, fontsize=BODY)
    ax.set_ylabel(y, fontsize=BODY)
    ax.tick_params(labelsize=SMALL)
    ax.grid(True, color=PALE, linewidth=0.5)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def of_bytes(n: float) -> str:
    """
    >>> of_bytes(1536), of_bytes(3e9), of_bytes(12)
    ('1.54 kB', '3 GB', '12 B')
    """
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n >= size:
            return f"{n / size:.3g} {unit}"
    return f"{n:.3g} B"


def of_seconds(t: float) -> str:
    """
    >>> of_seconds(0.0213), of_seconds(1.3e-5), of_seconds(2)
    ('21.3 ms', '13 µs', '2 s')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if t >= size:
            return f"{t / size:.3g} {unit}"
    return f"{t / 1e-9:.3g} ns"
