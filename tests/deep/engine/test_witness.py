"""Refusals carry evidence: witnesses are found, are right, and are never found for what separates."""

from __future__ import annotations

import pickle

import pytest

from redalg.graph.node import (
    HALF,
    NEG_INF,
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
    neg,
    power,
    reduction,
    size,
    sub,
    tensor,
    where,
)
from redalg.verdicts.witness import refute_output, refute_stage
from tests.support.witness_recompute import check

J = ("j",)
x, y = tensor("x", J), tensor("y", J)
w, u = tensor("w", J, ("positive",)), tensor("u", J, ("positive",))
K, Q, V = tensor("K", ("j", "d")), tensor("Q", ("d",)), tensor("V", ("j", "e"))


def total(e: Node) -> Node:
    return reduction("sum", J, e)


def mean(e: Node) -> Node:
    return div(total(e), size(J))


def exp(e: Node) -> Node:
    return fn("exp", e)


def indicator(c: Node) -> Node:
    return where(c, ONE, ZERO)


mu, nu, top, low = mean(x), mean(y), reduction("max", J, x), reduction("min", J, x)
dev = sub(x, mu)
square = power(dev, 2)
deviation = power(mean(square), HALF)
weight = div(exp(sub(x, top)), total(exp(sub(x, top))))
share = div(u, total(u))
position = Node("index", (), "j")
score = reduction("sum", ("d",), mul(K, Q))
masked = where(compare("le", position, Node("index", (), "i")), score, NEG_INF)

INSEPARABLE = {
    "abs": fn("abs", dev),
    "relu": fn("relu", dev),
    "tanh(x - max)": fn("tanh", sub(x, top)),
    "step": indicator(compare("lt", mu, x)),
    "exp(x mu)": exp(mul(x, mu)),
    "gauss": exp(neg(square)),
    "log(1 + dev^2)": fn("log", add(ONE, square)),
    "sqrt(1 + dev^2)": power(add(ONE, square), HALF),
    "cauchy": power(add(ONE, square), -1),
    "sigmoid": fn("sigmoid", dev),
    "exp(z)": exp(div(dev, deviation)),
    "fp8": Node("cast", (mul(const(448), div(x, reduction("max", J, fn("abs", x)))),), "float8_e4m3fn"),
    "erf": fn("erf", dev),
    "max(x, mu)": extremum("maximum", x, mu),
    "|x - rms|": fn("abs", sub(x, power(mean(power(x, 2)), HALF))),
    "x > sum of squares": indicator(compare("lt", total(power(x, 2)), x)),
    "|x - sum|": fn("abs", sub(x, total(x))),
    "|x - weighted mean|": fn("abs", sub(x, div(total(mul(w, x)), total(w)))),
    "relu(p - 1/n)": fn("relu", sub(weight, div(ONE, size(J)))),
    "log(x + mean)": fn("log", add(u, mean(u))),
    "tanh of a contraction": fn("tanh", reduction("sum", ("d",), mul(K, mean(K)))),
    "masked": fn("tanh", sub(where(compare("le", position, Node("index", (), "i")), score, ZERO), mean(score))),
    "|x - midrange|": fn("abs", sub(x, div(add(top, low), const(2)))),
    "position": fn("relu", sub(position, div(size(J), const(2)))),
    "sin(x mu)": fn("sin", mul(x, mu)),
    "|x - geometric mean|": fn("abs", sub(u, exp(mean(fn("log", u))))),
}
SEPARABLE = {
    "x - mu": dev,
    "|x - max|": fn("abs", sub(x, top)),
    "relu(max - x)": fn("relu", sub(top, x)),
    **{f"dev^{k}": power(dev, k) for k in (2, 3, 4, 12)},
    "squares": mul(square, power(sub(y, nu), 2)),
    "softmax": exp(sub(x, top)),
    "sin(x - mu)": fn("sin", dev),
    "[x mu > 0]": indicator(compare("lt", ZERO, mul(x, mu))),
    "tanh(x - 0)": fn("tanh", sub(x, total(dev))),
    "p log p": mul(share, fn("log", share)),
    "p y": mul(weight, y),
    "log(x / max)": fn("log", div(u, reduction("max", J, u))),
    "attention": mul(exp(sub(score, reduction("max", J, score))), V),
    "masked attention": mul(exp(sub(masked, reduction("max", J, masked))), V),
    "z": div(dev, deviation),
    "[x = max]": indicator(compare("eq", x, top)),
    "log-softmax": sub(x, add(top, fn("log", total(exp(sub(x, top)))))),
    "relu(x e^mu)": fn("relu", mul(x, exp(mu))),
    "temperature": exp(mul(tensor("t"), sub(x, top))),
    "no context": fn("tanh", x),
}


@pytest.mark.parametrize("name", INSEPARABLE)
def test_inseparable_bodies_have_a_witness_that_holds(name: str) -> None:
    stage = total(INSEPARABLE[name])
    witness = refute_stage(stage, J)
    assert witness is not None and witness.kind == "minor"
    assert witness.slots_excluded >= 9
    check(witness, stage, sample=12)


@pytest.mark.parametrize("name", SEPARABLE)
def test_separable_bodies_have_none(name: str) -> None:
    assert refute_stage(total(SEPARABLE[name]), J) is None


def test_the_claim_grows_with_what_is_asked() -> None:
    witness = refute_stage(total(fn("abs", dev)), J, minimum_k=15)
    assert witness is not None and witness.slots_excluded >= 15


def test_a_witness_is_plain_data_and_a_function_of_the_stage() -> None:
    stage = total(exp(div(dev, deviation)))
    first, second = refute_stage(stage, J), refute_stage(stage, J)
    assert first == second
    assert pickle.loads(pickle.dumps(first)) == first


def test_products_are_decided_by_their_logarithm() -> None:
    stage = reduction("prod", J, add(u, mean(u)))
    witness = refute_stage(stage, J)
    assert witness is not None and "(prod, power)" in witness.scope
    check(witness, stage, sample=12)
    assert refute_stage(reduction("prod", J, mul(u, mean(u))), J) is None


def test_composite_axes_and_free_axes() -> None:
    a, b = tensor("a", ("h", "i", "j")), ("i", "j")
    centred = sub(a, div(reduction("sum", b, a), size(b)))
    witness = refute_stage(reduction("sum", b, fn("abs", centred)), b)
    assert witness is not None
    check(witness, reduction("sum", b, fn("abs", centred)), sample=12)
    assert refute_stage(reduction("sum", b, power(centred, 2)), b) is None


class TestEarlierPasses:
    """Contexts of an earlier pass are constants: a witness keeps them equal in all streams."""

    sums = frozenset({total(x)})
    spread = mean(fn("abs", dev))

    def test_a_stage_of_known_contexts_is_not_refuted(self) -> None:
        assert refute_stage(total(fn("abs", dev)), J, self.sums) is None

    def test_a_new_context_on_top_is(self) -> None:
        stage = total(fn("abs", sub(x, self.spread)))
        witness = refute_stage(stage, J, self.sums)
        assert witness is not None and "earlier passes" in witness.scope
        assert len({sum(e["x"] for e in stream) for stream in witness.streams}) == 1
        assert len({len(stream) for stream in witness.streams}) == 1
        check(witness, stage, sample=12)

    def test_reachability_is_respected(self) -> None:
        never_above = fn("relu", sub(x, extremum("maximum", top, self.spread)))
        assert refute_stage(total(never_above), J, frozenset({top, *self.sums})) is None

    def test_second_moments_are_kept_equal(self) -> None:
        known = frozenset({total(x), total(square)})
        z = div(dev, deviation)
        stage = total(fn("abs", sub(z, mean(fn("abs", z)))))
        witness = refute_stage(stage, J, known)
        assert witness is not None
        check(witness, stage, sample=6)


OUTPUTS = {
    "product": reduction("prod", J, add(x, mu)),
    "abs": total(fn("abs", dev)),
    "tanh": total(fn("tanh", sub(x, top))),
    "nested": total(fn("abs", sub(x, mean(fn("abs", dev))))),
    "maximum": reduction("max", J, sub(mul(x, y), mul(mu, x))),
    "log": total(fn("log", add(ONE, square))),
    "quotient": div(total(fn("abs", dev)), total(exp(sub(x, top)))),
    "keeps the axis": mul(x, total(fn("relu", dev))),
    "exp(z)": total(exp(div(dev, deviation))),
}
FINITE = {
    "variance": mean(square),
    "deviation": deviation,
    "maximum": top,
    "|x - max|": total(fn("abs", sub(x, top))),
    "greatest deviation": reduction("max", J, fn("abs", dev)),
    "Boltzmann": total(mul(weight, y)),
    "attention": div(total(mul(exp(sub(score, reduction("max", J, score))), V)), total(exp(score))),
    "cancels": sub(total(fn("relu", dev)), total(fn("relu", neg(dev)))),
    "softmax": weight,
    "argmax": reduction("argmax", J, x),
    "top": reduction("topk_values", J, x, extra=(12, "t")),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs_without_a_small_state_have_a_jacobian(name: str) -> None:
    witness = refute_output(OUTPUTS[name], J)
    assert witness is not None and witness.kind == "jacobian"
    check(witness, OUTPUTS[name], sample=4)


@pytest.mark.parametrize("name", FINITE)
def test_outputs_with_a_small_state_have_none(name: str) -> None:
    assert refute_output(FINITE[name], J) is None
