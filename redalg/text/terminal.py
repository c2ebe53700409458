"""What the command line and the demo share: tables, refusals as text, progress, and errors between arrays."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from redalg.errors import NotDecomposable, RedalgError, Undecided

QUIET_SECONDS = 1.0


@contextmanager
def progress(what: str) -> Iterator[None]:
    """Say on stderr what is going on once it has taken more than a second, and at the end how long it took."""
    started, finished = time.monotonic(), threading.Event()
    live = sys.stderr.isatty()

    def report() -> None:
        wait = QUIET_SECONDS
        while not finished.wait(wait):
            seconds = time.monotonic() - started
            print(f"{what} … {seconds:.0f} s", end="\r" if live else "\n", file=sys.stderr, flush=True)
            wait = 0.5 if live else 5.0

    reporter = threading.Thread(target=report, daemon=True)
    reporter.start()
    try:
        yield
    finally:
        finished.set()
        reporter.join()
        seconds = time.monotonic() - started
        if seconds > QUIET_SECONDS:
            print(f"{what}: {seconds:.1f} s", file=sys.stderr, flush=True)


def table(rows: Sequence[Sequence[object]], header: Sequence[object] = ()) -> str:
    """Columns aligned with two spaces between them; a rule under the header.

    >>> print(table([["x", 1], ["longer", 22]], ["name", "n"]))
    name    n
    ------  --
    x       1
    longer  22
    """
    texts = [[str(cell) for cell in row] for row in ([header] if header else []) + list(rows)]
    if not texts:
        return ""
    widths = [max(len(row[c]) for row in texts if c < len(row)) for c in range(max(map(len, texts)))]
    if header:
        texts.insert(1, ["-" * w for w in widths])
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=False)).rstrip() for row in texts)


def refusal(verdict: NotDecomposable | Undecided) -> str:
    """A verdict other than a form, as text; a refusal with its witness as a table that can be recomputed by hand."""
    if isinstance(verdict, Undecided):
        return "\n".join([f"undecided at stage {verdict.stage}", f"missing: {verdict.missing}", "", str(verdict)])
    lines = [f"not decomposable: stage {verdict.stage}", f"reason: {verdict.reason}", f"scope: {verdict.scope}"]
    if verdict.passes is not None:
        lines.append(f"passes: {verdict.passes}")
    return "\n".join(lines + (["", witness_table(verdict.witness)] if verdict.witness is not None else []))


def witness_table(witness: Any) -> str:
    """Streams, points and matrix of a witness; its kind says what an entry of the matrix is."""
    shared = shared_prefix(witness)
    names = [f"s{q}" for q in range(1, len(witness.streams) + 1)]
    ends = [
        [name, ", ".join(map(element_text, stream[len(shared) :])) or "(nothing more)"]
        for name, stream in zip(names, witness.streams, strict=True)
    ]
    rows = [[element_text(point), *map(str, row)] for point, row in zip(witness.points, witness.matrix, strict=True)]
    begin = f"every stream begins with {', '.join(shared)}, then" if shared else "streams"
    return "\n\n".join(
        [
            f"witness: {witness.kind}",
            begin,
            table(ends),
            witness_meaning(witness),
            table(rows, ["", *names]),
            f"determinant: {witness.value}",
        ]
    )


def witness_meaning(witness: Any) -> str:
    """What an entry of the matrix is."""
    return {
        "minor": "the stage's body at the element of the row, in the context of the stream of the column",
        "jacobian": "the derivative of the output by the element of the row, along the stream of the column",
    }[witness.kind]


def shared_prefix(witness: Any) -> list[str]:
    """The elements with which every stream of a witness begins."""
    return _common_prefix([[element_text(e) for e in stream] for stream in witness.streams])


def _common_prefix(lists: Sequence[list[str]]) -> list[str]:
    shared: list[str] = []
    for elements in zip(*lists, strict=False):
        if len(set(elements)) > 1:
            break
        shared.append(elements[0])
    return shared


def element_text(element: Mapping[str, object]) -> str:
    """``{x: 1}`` is ``x=1``, and ``(x=1, w=2)`` where an element consists of several numbers."""
    text = ", ".join(f"{name}={value}" for name, value in element.items())
    return text if len(element) == 1 else f"({text})"


def difference(value: Any, reference: Any) -> tuple[float, float]:
    """(largest absolute error, the same over the largest finite magnitude of the reference), in float64.

    Where both are NaN or the same infinity the error is 0; where only one of them is, it is infinite.
    """
    import numpy as np

    a, b = np.asarray(value), np.asarray(reference)
    if a.shape != b.shape:
        raise RedalgError(
            what=f"arrays of shapes {a.shape} and {b.shape} cannot be compared",
            where="redalg.text.terminal.difference",
            why="an output and its reference have the same shape",
            fix="pass two results of the same spec for the same input",
        )
    wide = np.complex128 if "c" in a.dtype.kind + b.dtype.kind else np.float64
    a, b = a.astype(wide), b.astype(wide)
    with np.errstate(all="ignore"):
        error = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    error = np.where(np.isnan(error), np.inf, error)
    largest = float(np.max(error, initial=0.0))
    scale = float(np.max(np.abs(b), where=np.isfinite(b), initial=0.0))
    return largest, largest / scale if scale else largest
