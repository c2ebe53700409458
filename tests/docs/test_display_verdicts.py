"""Displays of refusals and certificates: the witness stands in the page, and nothing unchecked is claimed."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

import redalg as ra
from redalg.display import html, plain
from tests.support.forms import form_of_text
from tests.support.pages import well_formed

REFUSED = ra.verdict(ra.parse("u = mean[j](x[j]); return y = sum[j](abs(x[j] - u))"))
ANCHORED = "m = max[j](3 * x[j]); return y = sum[j](exp(3 * x[j] - m))"


# --- refusals --------------------------------------------------------------------------------------------------------


def test_the_page_of_a_refusal_shows_a_witness_that_can_be_recomputed() -> None:
    """Streams and matrix as they stand in the page, against the definition."""
    w = REFUSED.witness
    tables = well_formed(html(REFUSED)).tables
    streams = next(t for t in tables if t[0][0] == "stream")
    matrix = next(t for t in tables if t[0][0] == "")
    prefix = [e["x"] for e in w.streams[0]][: -1 if len(w.streams[0]) > 1 else None]
    columns = []
    for end in streams[1][1:]:
        elements = prefix + [Fraction(end.removeprefix("x="))]
        columns.append(sum(elements) / Fraction(len(elements)))
    assert len(matrix) == len(w.points) + 1 and matrix[0][1:] == streams[0][1:]
    for row in matrix[1:]:
        point = Fraction(row[0].removeprefix("x="))
        assert [Fraction(entry) for entry in row[1:]] == [abs(point - mean) for mean in columns]
    assert f"determinant: {w.value}" in well_formed(html(REFUSED)).words


def test_the_text_of_a_refusal_shows_the_same_witness() -> None:
    text = plain(REFUSED)
    w = REFUSED.witness
    for point, row in zip(w.points, w.matrix, strict=True):
        assert re.search(rf"^x={re.escape(str(point['x']))} +{' +'.join(map(re.escape, map(str, row)))}$", text, re.M)
    assert f"determinant: {w.value}" in text


def test_another_witness_gives_another_table() -> None:
    w = REFUSED.witness
    matrix = ((w.matrix[0][0] + 1, *w.matrix[0][1:]), *w.matrix[1:])
    other = ra.NotDecomposable("y", witness=replace(w, matrix=matrix), stage="stage2", scope=REFUSED.scope)
    assert html(other) != html(REFUSED) and str(w.matrix[0][0] + 1) in html(other)


def test_long_numbers_are_rounded_and_say_so() -> None:
    from redalg.display.verdicts import entry

    assert entry(Fraction(1, 3)) == "1/3"
    assert "≈ 0.333333" in str(entry(Fraction(10**40, 3 * 10**40 + 1)))


# --- certificates ----------------------------------------------------------------------------------------------------


def test_a_certificate_is_shown_without_being_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    from redalg.proofs import certificate

    def never(*args: Any) -> Any:
        raise AssertionError("a display proves nothing")

    monkeypatch.setattr(certificate, "check", never)
    page = html(form_of_text(ANCHORED).certificate)
    assert "Claims only" in page and "proved" not in page.replace("proves each", "")


def test_every_obligation_is_counted_by_its_law() -> None:
    c = ra.derive_incremental(ra.catalog["variance"]).certificate
    rows = well_formed(html(c)).tables[0][1:]
    assert sum(int(row[3]) for row in rows) == len(c.obligations)
    assert [row[0] for row in rows] == sorted({o.law for o in c.obligations})


def test_a_refuted_obligation_shows_where_its_sides_differ() -> None:
    from redalg.proofs.checker.check import check
    from redalg.proofs.checker.required import required

    doc = form_of_text(ANCHORED).certificate.document
    (only,) = doc.passes
    slots = []
    for s in only.slots:
        moves = tuple(replace(m, coefficient=doc.terms.mul(doc.terms.const(2), m.coefficient)) for m in s.moves)
        slots.append(replace(s, moves=moves))
    forged = replace(doc, passes=(replace(only, slots=tuple(slots)),))
    report = check(replace(forged, obligations=required(forged)))
    rows = well_formed(html(report)).tables[1][1:]
    assert rows and all(status == "refuted" and "on the left" in why for _, status, why in rows)
    assert "on the right" in plain(report) and plain(report).startswith("11 proved, 4 refuted")
