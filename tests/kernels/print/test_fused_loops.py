"""Joining loops over columns changes nothing that is computed: random statements, run as they are and joined."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from redalg.kernels.code.fused import fused, once
from redalg.source.render import render
from redalg.source.statements import For, statements

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


def _text(rng: random.Random) -> str:
    parts = []
    for _ in range(rng.randrange(2, 6)):
        if rng.random() < 0.4:
            parts.append(_line(rng, False))
        else:
            lines = "\n".join(_line(rng, True) for _ in range(rng.randrange(1, 4)))
            parts.append("for m in range(COLUMNS):\n" + "\n".join(f"    {line}" for line in lines.split("\n")))
    return "\n".join(parts)


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
        text = _text(rng)
        made = render(fused(statements(text)))
        found[made.count("for ") < text.count("for ")] += 1
        assert _run(made) == _run(text), f"{text}\n---\n{made}"
    assert min(found[True], found[False]) > 3, found  # some are joined, some cannot be


def test_steps_of_a_row_of_one_element_are_one_loop() -> None:
    text = """
first = i64(0)
for m in range(COLUMNS):
    total[m] = f32(0)
unrolled = count // 4 * 4
for k in range(0, unrolled, 4):
    for m in range(COLUMNS):
        total[m] = total[m] + x[4 * m]
for k in range(unrolled, count):
    at = first + k
    for m in range(COLUMNS):
        total[m] = total[m] + x[at + m]
for m in range(COLUMNS):
    y[m] = total[m]
"""
    made = fused(once(statements(text)))
    assert sum(isinstance(s, For) for s in made) == 1, render(made)
