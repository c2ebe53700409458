"""Expressions of many operations: deep nests end in a verdict, for work in proportion to them."""

from __future__ import annotations

import cProfile
import pstats
from collections.abc import Callable
from typing import Any

import pytest

import redalg as ra

x = ra.tensors("x[j]")


def nested(link: Callable[[Any], Any], depth: int) -> Any:
    e = x
    for _ in range(depth):
        e = link(e)
    return e


CASES: dict[str, tuple[Callable[[], Any], int]] = {  # how it is built, and its operations
    "numbers added": (lambda: nested(lambda e: e + 1, 10**4), 10**4),
    "affine maps": (lambda: nested(lambda e: 2 * e + 1, 10**4), 10**4),
    "maps": (lambda: nested(ra.tanh, 10**3), 10**3),
    "choices": (lambda: nested(lambda e: ra.where(e > 0, e, -e), 300), 300),
    "quotients": (lambda: nested(lambda e: 1 / (1 + e), 300), 300),
}
START, EACH = 10_000_000, 20_000  # calls of functions: of any derivation, and for each operation


@pytest.mark.parametrize("name", CASES)
def test_many_operations_end_in_a_verdict(name: str) -> None:
    build, operations = CASES[name]
    with cProfile.Profile() as profile:
        try:
            found = ra.verdict(ra.Spec(y=ra.sum(build(), "j")))
        except ra.RedalgError as refused:
            assert refused.what and refused.where and refused.why and refused.fix
            found = refused
    assert isinstance(found, ra.RedalgError) or found.slots
    assert pstats.Stats(profile).total_calls < START + EACH * operations
