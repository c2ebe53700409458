"""Random bodies: those of finite rank by construction never get a witness, inseparable ones nearly always do."""

from __future__ import annotations

import random
import time
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from redalg.graph.node import (
    HALF,
    ONE,
    ZERO,
    Node,
    add,
    compare,
    const,
    div,
    extremum,
    fn,
    mul,
    power,
    reduction,
    size,
    sub,
    tensor,
    where,
)
from redalg.verdicts.witness import refute_stage
from tests.support.profiles import examples
from tests.support.witness_recompute import check

J = ("j",)
x, y, w = tensor("x", J), tensor("y", J), tensor("w", J, ("positive",))


def total(e: Node) -> Node:
    return reduction("sum", J, e)


def mean(e: Node) -> Node:
    return div(total(e), size(J))


def exp(e: Node) -> Node:
    return fn("exp", e)


top, low = reduction("max", J, x), reduction("min", J, x)
soft = exp(sub(x, top))
SMOOTH = (mean(x), total(y), mean(mul(x, y)), div(total(mul(w, x)), total(w)), mean(power(x, 2)), add(mean(x), mean(y)))
TRANSCENDENTAL = (div(total(mul(soft, y)), total(soft)), power(mean(power(x, 2)), HALF), fn("log", mean(w)))
EXTREME = (top, low, reduction("max", J, fn("abs", x)), div(add(top, low), const(2)))
ELEMENT = (
    x,
    y,
    w,
    mul(x, y),
    power(x, 2),
    exp(x),
    fn("tanh", x),
    fn("abs", x),
    fn("log", w),
    where(compare("lt", ZERO, x), y, w),
    fn("sin", x),
    fn("relu", sub(x, y)),
    extremum("maximum", x, y),
    ONE,
)
MAPS = ("exp", "tanh", "sin", "sigmoid", "abs", "relu")


@st.composite
def finite_bodies(draw: st.DrawFn) -> Node:
    """Σ_{k<=4} G_k(x)·H_k(D), D from means, sums, maxima."""
    contexts = st.sampled_from(SMOOTH[:4] + EXTREME[:2] + TRANSCENDENTAL[:1])
    terms = []
    for _ in range(draw(st.integers(1, 4))):
        d = draw(contexts)
        h = draw(st.sampled_from((d, power(d, 2), fn("tanh", d), fn("abs", d), mul(d, draw(contexts)))))
        terms.append(mul(const(draw(st.integers(1, 3))), draw(st.sampled_from(ELEMENT)), h))
    body = add(*terms)
    if draw(st.booleans()) and not body.is_boolean:
        shift = sub(x, draw(contexts))
        body = add(body, power(shift, draw(st.integers(2, 3))))
    return body


@examples(20)
@given(finite_bodies())
def test_finite_rank_is_never_refuted(body: Node) -> None:
    assert refute_stage(total(body), J, minimum_k=9) is None


def kernels(t: Node, d: Node, kinks: bool) -> list[Node]:
    """Functions of an element term and a context that have no finite rank."""
    gap = sub(t, d)
    square = power(gap, 2)
    smooth = [
        fn("tanh", gap),
        fn("sigmoid", gap),
        fn("log", add(ONE, square)),
        exp(mul(const(-1), square)),
        fn("erf", gap),
        power(add(ONE, square), HALF),
        power(add(ONE, square), -1),
        exp(mul(t, d)),
        fn("sin", mul(t, d)),
        fn("atan", gap),
    ]
    broken = [
        fn("abs", gap),
        fn("relu", gap),
        where(compare("lt", d, t), ONE, ZERO),
        extremum("maximum", t, d),
        where(compare("lt", gap, ZERO), y, square),
        Node("cast", (gap,), "float8_e4m3fn"),
    ]
    return smooth + (broken if kinks else [])


def inseparable_body(rng: random.Random) -> Node:
    extreme = rng.random() < 0.25
    d = rng.choice(EXTREME if extreme else SMOOTH + TRANSCENDENTAL)
    t = rng.choice((x, mul(x, y), add(x, y), sub(x, mul(const(Fraction(1, 2)), y)), mul(w, x)))
    body = rng.choice(kernels(t, d, kinks=not extreme))
    if rng.random() < 0.3:
        body = mul(body, rng.choice((y, w, fn("tanh", d))))
    if rng.random() < 0.3:
        body = add(body, mul(y, mean(x)))
    return body


def test_inseparable_bodies_are_refuted() -> None:
    rng, count, missed, times = random.Random(5), 80, [], []
    for number in range(count):
        body = inseparable_body(rng)
        start = time.process_time()
        witness = refute_stage(total(body), J)
        times.append(time.process_time() - start)
        if witness is None:
            missed.append(body)
        elif number % 10 == 0:
            check(witness, total(body), sample=3)
    times.sort()
    print(f"\nrefuted {count - len(missed)} of {count}; median {times[count // 2]:.3f} s, worst {times[-1]:.3f} s")
    assert len(missed) <= 0.05 * count
