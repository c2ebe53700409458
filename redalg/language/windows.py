"""Affine indices: ``x[b, 2*h + r - 1, c]`` reads windows of an array, one for every h, whose elements r counts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from redalg.errors import RedalgError
from redalg.graph.intervals import admits, domain_text
from redalg.graph.node import Dimension

_TERM = re.compile(r"(?:(\d+)\s*\*\s*)?([^\W\d]\w*)(?:\s*\*\s*(\d+))?(?:\s*:\s*(\d+))?")
_PADDED = re.compile(r"(.*?)(?:-\s*(\d+))?\s*", re.DOTALL)
_LARGEST = 2**31 - 1  # of an index, so that places in memory are int64
_FORM = "write sums of axes, each with a step, and a padding of zeros: x[2*h + r - 1]; r:3 says how long r is"


def is_affine(text: str) -> bool:
    """Whether an index is more than the names of axes.

    >>> is_affine("h + r"), is_affine("i, j")
    (True, False)
    """
    return any(sign in text for sign in "+-*:")


def dimensions(indices: Sequence[str], where: str) -> tuple[tuple[str, ...], tuple[Dimension, ...]]:
    """The axes of a reading in the order of its indices, and its dimensions: none where each is an axis.

    Element (h, r) of ``x[s*h + t*r - p]`` is the element s·h + t·r - p of x, and 0 where x has none. The first axis of
    a sum counts the windows, as many as lie in x with p zeros before it and behind it.

    >>> axes, (first, second) = dimensions(["2*h + r:3 - 1", "c"], "here")
    >>> axes, str(first), first.pad, str(second)
    (('h', 'r', 'c'), '2*h+r:3-1', 1, 'c')
    >>> dimensions(["i", "j"], "here")
    (('i', 'j'), ())

    Raises: RedalgError for an index that is no such sum: steps and lengths are positive, an axis alone is an axis.
    """
    found = tuple(_dimension(text, where) for text in indices)
    axes = tuple(a for d in found for a, _, _ in d.terms)
    return axes, () if all(len(d.terms) == 1 for d in found) else found


def _dimension(text: str, where: str) -> Dimension:
    far = next((n for n in re.findall(r"\d+", text) if len(n) > 10 or int(n) > _LARGEST), None)
    if far is not None:
        why = f"{far if len(far) < 40 else f'a number of {len(far)} digits'} is beyond {_LARGEST}"
        raise RedalgError(f"the index {text.strip()[:80]}", where, why, "smaller steps, lengths and paddings")
    terms, pad = _PADDED.fullmatch(text).groups()  # type: ignore[union-attr]
    found = Dimension(tuple(_term(t, text, where) for t in terms.split("+")), int(pad or 0))
    if len(found.terms) == 1 and (found.pad or found.terms[0][1:] != (1, 0)):
        why = "an axis alone is read from its first element to its last"
        raise RedalgError(f"the index {text.strip()}", where, why, f"write {found.terms[0][0]}, or {_FORM[6:]}")
    return found


def _term(text: str, index: str, where: str) -> tuple[str, int, int]:
    match = _TERM.fullmatch(text.strip())
    if match is None:
        raise RedalgError(f"the index {index.strip()}", where, f"{text.strip()!r} is no axis with a step", _FORM)
    before, axis, behind, length = match.groups()
    if before and behind or "0" in {str(int(n)) for n in (before, behind, length) if n}:
        why = f"in {text.strip()!r}, a step and a length are one positive number each"
        raise RedalgError(f"the index {index.strip()}", where, why, _FORM)
    return axis, int(before or behind or 1), int(length or 0)


def check_padding(name: str, found: Sequence[Dimension], domain: frozenset[str], where: str) -> None:
    """Zeros around a tensor lie in its domain. Raises: RedalgError."""
    padded = next((d for d in found if d.pad), None)
    if padded is not None and not admits(domain, 0):
        why = f"zeros lie around it, and {name} is declared {domain_text(domain)}"
        raise RedalgError(f"the index {padded} of {name}", where, why, "leave out the padding, or the domain")


def without_lengths(found: Sequence[Dimension]) -> tuple[Dimension, ...]:
    """The dimensions as they are written where the lengths of axes were said before."""
    return tuple(replace(d, terms=tuple((a, step, 0) for a, step, _ in d.terms)) for d in found)
