"""Joining loops over columns changes nothing that is computed: random statements, run as they are and joined."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import AbstractContextManager
from typing import Any

import pytest

from redalg.kernels.code.fused import fused, once
from redalg.kernels.code.roles import Role, each_column
from redalg.source.builder import Builder
from redalg.source.render import render
from redalg.source.statements import Block, For

COLUMNS = 4
SCALARS, TABLES, MEMORY = ("s", "t", "k"), ("a", "b", "c"), ("x", "y")


def _value(rng: random.Random, inside: bool) -> str:
    index = rng.choice(["m", "m", "m", "m + k", "k"]) if inside else "0"
    kinds = [
        rng.choice(SCALARS),
        f"{rng.choice(TABLES)}[{index}]",
        f"load_word({rng.choice(MEMORY)}, {rng.choice(['m', 'm', '3 - m', 'k']) if inside else 0})",
    ]
    return f"{rng.choice([rng.choice(kinds), str(rng.randrange(9))])} {rng.choice('+-')} {rng.choice(kinds)}"


def _line(rng: random.Random, inside: bool) -> str:
    value, index = _value(rng, inside), rng.choice(["m", "m", "m", "m + k", "k"]) if inside else "0"
    kinds = [
        f"{rng.choice(SCALARS[:2])} = {value}",
        f"{rng.choice(TABLES)}[{index}] = {value}",
        f"{rng.choice(TABLES)}[{index}] = {value}",
        f"store_word({rng.choice(MEMORY)}, {'m' if inside else 0}, {value})",
        f"{rng.choice(TABLES[:2])} = {rng.choice(TABLES)}"
        if not inside
        else rng.choice([f"s = s + {value}", "k = 1 - k"]),
        f"if s > 5:\n    t = {value}" if inside else rng.choice(["k = 0", "k = 1", "a = b", "b = a"]),
    ]
    return rng.choice(kinds)


def _block(rng: random.Random) -> Block:
    out = Builder()
    for _ in range(rng.randrange(2, 6)):
        if rng.random() < 0.4:
            out(_line(rng, False))
        else:
            with each_column(out):
                for _ in range(rng.randrange(1, 4)):
                    out(_line(rng, True))
    return out.body()


def _run(text: str) -> dict[str, Any]:
    values: dict[str, Any] = {"COLUMNS": COLUMNS, "s": 1, "t": 2, "k": 0}
    values |= {n: [10 * i + j for j in range(COLUMNS + 2)] for i, n in enumerate((*TABLES, *MEMORY))}
    values |= {"load_word": lambda x, i: x[i], "store_word": lambda x, i, v: x.__setitem__(i, v % 1000)}
    exec(text, values)
    return {n: values[n] for n in (*SCALARS, *TABLES, *MEMORY)}


@pytest.mark.parametrize("seed", range(4))
def test_joined_loops_compute_what_loops_apart_do(seed: int) -> None:
    rng, found = random.Random(seed), Counter[bool]()
    for _ in range(50):
        block = _block(rng)
        text, made = render(block), render(fused(block))
        found[made.count("for ") < text.count("for ")] += 1
        assert _run(made) == _run(text), f"{text}\n---\n{made}"
    assert min(found[True], found[False]) > 3, found  # some are joined, some cannot be


def _tile(out: Builder, roles: bool) -> None:
    def loop(head: str, role: Role) -> AbstractContextManager[object]:
        return out.block(head, role if roles else None)

    out("first = i64(0)")
    with loop("while first < length:", Role.TILES):
        with loop("for m in range(COLUMNS):", Role.COLUMNS):
            out("total[m] = f32(0)")
        out("unrolled = count // 4 * 4")
        with loop("for k in range(0, unrolled, 4):", Role.GROUPS), loop("for m in range(COLUMNS):", Role.COLUMNS):
            out("total[m] = total[m] + x[4 * m]")
        with loop("for k in range(unrolled, count):", Role.ELEMENTS):
            out("at = first + k")
            with loop("for m in range(COLUMNS):", Role.COLUMNS):
                out("total[m] = total[m] + x[at + m]")
        out("first += TILE", role=Role.NEXT_TILE if roles else None)
    with loop("for m in range(COLUMNS):", Role.COLUMNS):
        out("y[m] = total[m]")


def test_steps_of_a_row_of_one_element_are_one_loop() -> None:
    out = Builder()
    _tile(out, True)
    made = fused(once(out.body()))
    assert sum(isinstance(s, For) for s in made) == 1, render(made)


def test_passes_look_at_roles_and_at_no_text() -> None:
    """The same lines without roles stay as they are, and loops over columns under another name are joined."""
    out = Builder()
    _tile(out, False)
    assert render(fused(once(out.body()))) == render(out.body())
    other = Builder()
    for line in ("a[q] = f(q)", "b[q] = a[q]"):
        with other.block("for q in range(WIDTH):", Role.COLUMNS):
            other(line)
    assert sum(isinstance(s, For) for s in fused(other.body())) == 1
