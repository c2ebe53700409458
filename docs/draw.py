"""The README's picture, drawn from a derived form: ``python docs/draw.py`` writes `docs/attention.svg`.

The file says in its metadata what it shows, so that a test can tell when the engine's answer has changed.
"""

from __future__ import annotations

import re
from pathlib import Path

import redalg as ra

PICTURE = Path(__file__).resolve().parent / "attention.svg"
TEXT = "S = sum[d](Q[i,d] * K[j,d]); p = exp(S - max[j](S)); return O = sum[j](p * V[j,e]) / sum[j](p)"


def description() -> str:
    """What the picture is computed from: the form as text, on one line."""
    return re.sub(r"\s+", " ", str(ra.derive_incremental(ra.parse(TEXT)))).strip()


def draw(path: Path = PICTURE) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from redalg import pictures

    with matplotlib.rc_context({"svg.hashsalt": "redalg", "svg.fonttype": "path", "figure.facecolor": "white"}):
        figure = pictures.data_flow(ra.derive_incremental(ra.parse(TEXT))).figure
        metadata = {"Date": None, "Creator": None, "Description": description()}
        figure.savefig(path, metadata=metadata, bbox_inches="tight", pad_inches=0.1)
    path.write_text("".join(line.rstrip() + "\n" for line in path.read_text().splitlines()))


if __name__ == "__main__":
    draw()
