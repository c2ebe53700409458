"""`bytes_moved`: what `redalg.traffic` counts, as bars."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from redalg.kernels.traffic import traffic
from redalg.pictures.style import BLUE, BODY, HATCHES, ORANGE, SMALL, TITLE, axes, dress, of_bytes, of_seconds
from redalg.text.tables import plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from redalg.form import Form
    from redalg.language.spec import Spec

WAYS = ("op_by_op", "stage_by_stage", "fused")


def bytes_moved(
    spec: Spec,
    sizes: Mapping[str, int],
    dtype: str = "float32",
    form: Form | None = None,
    bandwidth: float | None = None,
    *,
    ax: Axes | None = None,
) -> Axes:
    """Bars of the bytes a spec moves, run op by op, stage by stage and fused: what is read below what is written.

    Arguments are those of `redalg.traffic`, which does the counting and says what each way means. Above each bar: its
    bytes, the passes over the streamed axis, and with a `bandwidth` the time. The container labels are ``read`` and
    ``written``; heights are bytes.

    Raises: RedalgError for what `redalg.traffic` refuses, and without matplotlib.

    >>> import redalg as ra
    >>> ax = bytes_moved(ra.catalog["softmax"], {"i": 8, "j": 100})
    >>> [round(bar.get_height()) for bar in ax.containers[0]]
    [16064, 9696, 6400]
    """
    found = traffic(spec, sizes, dtype, form, bandwidth)
    ways = [getattr(found, name) for name in WAYS]
    ax = axes(ax, "bytes_moved", 5.2, 3.6)
    places = range(len(WAYS))
    read, written = [m.read for m in ways], [m.written for m in ways]
    ax.bar(places, read, 0.62, label="read", color=BLUE, edgecolor="black", linewidth=0.8)
    ax.bar(
        places, written, 0.62, read, label="written", color=ORANGE, edgecolor="black", linewidth=0.8, hatch=HATCHES[1]
    )
    for k, m in enumerate(ways):
        words = [of_bytes(m.bytes), plural(m.passes, "pass")]
        words += [of_seconds(m.seconds)] if m.seconds is not None else []
        ax.annotate(
            "\n".join(words), (k, m.bytes), (0, 3), textcoords="offset points", ha="center", va="bottom", fontsize=SMALL
        )
    dress(ax, "", "moved")
    ax.set_xticks(list(places), [name.replace("_", " ") for name in WAYS], fontsize=BODY)
    ax.yaxis.set_major_formatter(lambda value, _: of_bytes(value) if value else "0")
    ax.grid(False, axis="x")
    ax.set_ylim(0, max(m.bytes for m in ways) * 1.28 or 1)
    ax.legend(fontsize=SMALL, frameon=False, loc="upper right")
    lengths = ", ".join(f"|{a}| = {n}" for a, n in sizes.items())
    best, worst = ways[2].bytes, ways[0].bytes
    gain = f"moves {worst / best:.3g} times fewer bytes than op by op" if best else "moves nothing"
    outputs = ", ".join(spec.outputs)
    ax.set_title(f"Fused, {outputs} {gain}\n{lengths}, {dtype}", fontsize=TITLE)
    return ax
