"""The judges judged: generated ranks against sampled matrices, the scalar evaluator, balls, rounding."""

from __future__ import annotations

import math
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.graph.node import Node, leaves, walk
from redalg.testing import sampling
from redalg.testing.arithmetic import NARROW, Digits, round_narrow
from redalg.testing.balls import Balls
from redalg.testing.bodies import FAMILIES, make_world, random_body
from redalg.testing.evaluator import Evaluator
from redalg.testing.generator import KINDS, generate
from redalg.testing.simulate import simulate
from tests.support.handwritten import covariance, variance

NUMBER = Digits(60)


def rank_of(matrix: list[list[Any]]) -> int:
    """Numerical rank by full pivoting; 60 digits leave 40 between what is zero and what is not."""
    rows, rank = [[NUMBER.wide(v) for v in row] for row in matrix], 0
    scale = max(abs(v) for row in rows for v in row)
    while rows and rows[0]:
        _, i, j = max((abs(v), i, j) for i, row in enumerate(rows) for j, v in enumerate(row))
        if abs(rows[i][j]) <= scale * NUMBER.context.mpf(10) ** -40:
            break
        pivot, rank = rows.pop(i), rank + 1
        rows = [_without(row, pivot, j) for row in rows]
    return rank


def _without(row: list[Any], pivot: list[Any], j: int) -> list[Any]:
    factor = row[j] / pivot[j]
    return [v - factor * w for k, (v, w) in enumerate(zip(row, pivot, strict=True)) if k != j]


def sampled_matrix(body: Node, spec: Any, rng: Random, size: int) -> list[list[Any]]:
    """F(x_p, D_q): the body at free elements (held behind the stream's end), in the contexts of random streams."""
    elements = {d.name: [_number(d, rng) for _ in range(size)] for d in spec.tensors}
    rows = []
    for _ in range(size):
        stream = {d.name: [_number(d, rng) for _ in range(3)] + elements[d.name] for d in spec.tensors}
        env = {}
        for d in spec.tensors:
            env[d.name] = np.array(stream[d.name], dtype=object).reshape((1,) * (len(d.axes) - 1) + (-1,))
        inner = Evaluator(NUMBER, env, {"i": 1, "j": 3}, {"j": range(3)})
        rows.append([inner.value(body, {"i": 0, "j": 3 + p}) for p in range(size)])
    return rows


def _number(decl: Any, rng: Random) -> Fraction:
    value = Fraction(rng.randint(1, 4000), 1000)
    return value if "positive" in decl.domain else value - 2


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_the_rank_of_a_body_is_what_its_terms_say(name: str) -> None:
    for seed in range(6):
        rng = Random(f"{name}{seed}")
        body = FAMILIES[name](rng, make_world(rng))
        spec = ra.Spec(y=ra.sum(body.expr, "j"))
        node = ra.Spec(y=body.expr).outputs["y"]
        assert rank_of(sampled_matrix(node, spec, rng, body.rank + 3)) == body.rank, body.expr


def test_random_bodies_have_their_rank_and_all_ranks_occur() -> None:
    seen = set()
    for seed in range(40):
        rng = Random(seed)
        name, body = random_body(rng, make_world(rng))
        node = ra.Spec(y=body.expr).outputs["y"]
        assert rank_of(sampled_matrix(node, ra.Spec(y=ra.sum(body.expr, "j")), rng, 7)) == body.rank, (name, body.expr)
        seen.add(body.rank)
    assert seen == {1, 2, 3, 4}


@pytest.mark.parametrize("seed", range(12))
def test_inseparable_bodies_have_no_small_rank(seed: int) -> None:
    """The rank of the body on samples exceeds what separable bodies of the generator have."""
    generated = generate(seed, "inseparable")
    total = [n for n in walk(generated.spec.outputs["y"]) if n.op == "reduce"][-1]
    assert rank_of(sampled_matrix(total.args[0], generated.spec, Random(seed), 12)) >= 5, generated


def test_generation_is_a_function_of_the_seed() -> None:
    for kind in KINDS:
        assert generate(7, kind).spec == generate(7, kind).spec
    assert len({generate(seed).spec.digest for seed in range(60)}) > 50


# --- arithmetics -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_narrow_rounding_agrees_with_numpy(dtype: str) -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=200) * 10.0 ** rng.integers(-9, 5, 200)
    values = np.concatenate([values, [0.0, 1e300, -7e4, 65519.9, 65520.0]])
    with np.errstate(over="ignore"):
        wanted = values.astype(dtype).astype(float)
    got = [float(round_narrow(Fraction(v), dtype)) for v in values]
    assert got == wanted.tolist()


def test_fp8_rounding_on_its_own_grid() -> None:
    rounded = [float(round_narrow(Fraction(v), "float8_e4m3fn")) for v in (0.3, 17, 465, -1e9)]
    assert rounded == [0.3125, 16.0, 448.0, -448.0]
    assert math.isinf(round_narrow(Fraction(61441), "float8_e5m2"))
    assert all(bits > 0 and largest > 0 for bits, _, largest, _ in NARROW.values())


@given(st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=3), st.sampled_from("exp log tanh sigmoid sin abs".split()))
def test_a_ball_contains_the_exact_value(values: list[float], name: str) -> None:
    """f(((a + b)·c - a)/64): the exact value lies within the radius."""

    def compute(ar: Any) -> Any:
        a, b, c = (ar.number(v) for v in values)
        difference = ar.add([ar.mul([ar.add([a, b]), c]), ar.mul([ar.number(-1), a])])
        return ar.unary(name, ar.mul([difference, ar.number(Fraction(1, 64))]))

    ball, exact = compute(Balls()), NUMBER.wide(compute(NUMBER))
    if NUMBER.context.isfinite(exact) and abs(exact) < 1e300 and math.isfinite(ball.mid):
        assert abs(exact - ball.mid) <= ball.rad, (ball, exact)


@pytest.mark.parametrize("plan_of", [variance, covariance])
def test_the_radius_of_a_derived_bound_is_of_the_size_of_rounding(plan_of: Any) -> None:
    """At offset 1e8, one element at a time: the bound is a few ulp of the moment, not of the square of the offset."""
    outputs, plan = plan_of()
    rng = np.random.default_rng(1)
    env = {leaf.attr.name: 1e8 + rng.normal(size=9) for node in outputs.values() for leaf in leaves(node)}
    balls = simulate(plan, Balls(), env, {"j": 9}, list(range(10)))
    for name, node in outputs.items():
        exact = Evaluator(NUMBER, env, {"j": 9}).value(node, {})
        ball = balls[name][()]
        assert abs(ball.mid - float(exact)) <= ball.rad <= 1e-13 * abs(ball.mid) + 1e-14


def test_pieces_always_include_an_empty_one() -> None:
    for seed in range(50):
        borders = sampling.cuts(Random(seed), 5)
        assert borders[0] == 0 and borders[-1] == 5 and borders == sorted(borders)
        assert any(a == b for a, b in zip(borders, borders[1:], strict=False))
