"""Names of parts, so that what is delivered twice is not counted twice where elements have no positions.

A set of names is a frozenset of texts; consecutive numbers are one text (``"4..9"``), so that a thousand numbered parts
take no more room than one. The law: an accumulator holds the names of all parts that were merged into it, and two that
share a name are refused, as are two of which one has elements without a name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from redalg.errors import RedalgError

Ids = frozenset[str]
_NUMBER, _RUN = re.compile(r"0|[1-9]\d{0,99}", re.ASCII), re.compile(r"(\d{1,100})\.\.(\d{1,100})", re.ASCII)


def named(name: Any, where: str) -> Ids:
    """The set of one name, a text or a whole number; None: of none. Raises: RedalgError for anything else."""
    if name is None:
        return frozenset()
    whole = isinstance(name, int) and not isinstance(name, bool) and name >= 0
    if not whole and (not isinstance(name, str) or not name or _RUN.fullmatch(name)):
        why = "a part is named by a text that is not empty, or by a whole number"
        raise RedalgError(f"id={name!r}", where, why, 'id="2026-11-24/part-7", or id=7')
    return frozenset([str(name)])


def shared(a: Ids, b: Ids) -> str | None:
    """A name that is in both, if any."""
    words = _words(a) & _words(b)
    if words:
        return min(words)
    for low, high in _runs(a):
        for low2, high2 in _runs(b):
            if max(low, low2) <= min(high, high2):
                return str(max(low, low2))
    return None


def joined(a: Ids, b: Ids) -> Ids:
    """The union of two sets that share no name."""
    if not a or not b:
        return a or b
    runs: list[tuple[int, int]] = []
    for low, high in sorted([*_runs(a), *_runs(b)]):
        if runs and runs[-1][1] + 1 == low:
            runs[-1] = runs[-1][0], high
        else:
            runs.append((low, high))
    return frozenset([*_words(a), *_words(b), *(str(p) if p == q else f"{p}..{q}" for p, q in runs)])


def sound(ids: Sequence[str]) -> bool:
    """Whether they are a set that names are joined to: texts, and runs of numbers that neither meet nor touch."""
    runs = sorted(_runs(ids))
    written = {str(p) if p == q else f"{p}..{q}" for p, q in runs}
    apart = all(p <= q for p, q in runs) and all(a[1] + 1 < b[0] for a, b in pairwise(runs))
    return apart and "" not in ids and written == {*ids} - _words(ids)


def _words(ids: Iterable[str]) -> set[str]:
    return {name for name in ids if not _NUMBER.fullmatch(name) and not _RUN.fullmatch(name)}


def _runs(ids: Iterable[str]) -> list[tuple[int, int]]:
    found = []
    for name in ids:
        if _NUMBER.fullmatch(name):
            found.append((int(name), int(name)))
        elif run := _RUN.fullmatch(name):
            found.append((int(run[1]), int(run[2])))
    return found
