"""Forged forms over positions, lists, monoids, arrays in states, several outputs and passes are refused, and false."""

from __future__ import annotations

import random

import pytest

from redalg.proofs.certificate import Certificate
from redalg.proofs.document.errors import CertificateError
from redalg.proofs.falsification.evaluate import Unfit
from tests.support.folding import differs, drawn
from tests.support.forged_operators import NOT_FOLDED, OPERATORS
from tests.support.forging import text_of


@pytest.mark.parametrize("forgery", OPERATORS)
def test_forged_forms_are_refused_in_four_parts_and_are_false(forgery: str) -> None:
    for name, doc in OPERATORS[forgery]():
        with pytest.raises(CertificateError) as caught:
            pytest.fail(f"{name}: {Certificate.from_json(text_of(doc)).verify(thorough=True)}")
        assert all((caught.value.what, caught.value.where, caught.value.why, caught.value.fix)), name
        if name not in NOT_FOLDED:
            draw = random.Random(name)
            assert any(_is_false(doc, draw) for _ in range(100)), name


def _is_false(doc: object, draw: random.Random) -> bool | None:
    try:
        return differs(doc, *drawn(doc, draw), draw)  # type: ignore[arg-type]
    except Unfit:  # it is of no shape that can be computed
        return True
