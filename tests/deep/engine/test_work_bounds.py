"""What a verdict costs grows no faster than the spec, or a budget ends it: counted in work, never in seconds."""

from __future__ import annotations

import cProfile
import pstats
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.algebra import polynomial as nf
from redalg.algebra.work import PRODUCT, SEARCH, allowance, spent
from redalg.engine.passes import derive_plan
from redalg.graph import node as g
from redalg.graph.plan import Plan
from redalg.laws import laws
from redalg.laws.infinities import differences
from redalg.numeric.exact import Exact
from redalg.verdicts import numbers as scalar
from redalg.verdicts.balls import FUNCTION, BallNumbers
from redalg.verdicts.evaluate import Evaluation
from redalg.verdicts.minors import determinant
from redalg.verdicts.residues import FieldNumbers

X = g.tensor("x", ("j",))


def calls(act: Callable[[], Any]) -> int:
    with cProfile.Profile() as profile:
        act()
    return int(pstats.Stats(profile).total_calls)


# --- nests ---------------------------------------------------------------------------------------------------------

LINKS = {
    "maps": lambda e: g.fn("relu", g.sub(e, g.ONE)),
    "choices": lambda e: g.where(g.compare("lt", X, e), e, g.sub(X, e)),
    "stages": lambda e: g.reduction("sum", ("j",), g.mul(X, g.sub(e, g.ONE))),
}


@pytest.mark.parametrize("kind", LINKS)
def test_an_exact_value_takes_one_visit_of_every_node(kind: str) -> None:
    def value(depth: int) -> int:
        node = X
        for _ in range(depth):
            node = LINKS[kind](node)
        values = {"x": [Fraction(1), Fraction(-1), Fraction(0)]}
        return calls(lambda: Exact(values, {"j": 3}).value(node, {"j": 0}))

    assert value(400) < 2.6 * value(200)


# --- long numbers --------------------------------------------------------------------------------------------------

GROWING = {
    "squares": lambda e: g.add(g.power(e, 2), g.ONE),
    "products": lambda e: g.mul(e, g.add(e, X)),
    "quotients": lambda e: g.add(g.power(e, -2), X),
    "stages": lambda e: g.add(X, g.reduction("prod", ("j",), g.add(e, X))),
    "large powers": lambda e: g.power(g.add(e, g.ONE), 1000),
}


@pytest.mark.parametrize("kind", GROWING)
def test_rationals_of_a_search_are_cut_at_a_length_and_charged_by_it(kind: str) -> None:
    elements = np.array([Fraction(k, 7) for k in (2, -3, 5)], dtype=object)

    def work(depth: int) -> int:
        node: g.Node = X
        for _ in range(depth):
            node = GROWING[kind](node)
        with allowance(SEARCH, "operations"):
            found = Evaluation({"x": (elements, ("j",))}, {"j": 3}, {"j": 3}, {}, FieldNumbers())
            found.value(node)
            assert all(scalar.bits(v) <= scalar.LONGEST for array, _ in found.memo.values() for v in array.flat)
            return spent()

    assert work(60) < work(30) + 2_000  # all that is long is NaN by then


def test_a_determinant_is_charged_by_the_length_of_its_entries() -> None:
    def work(bits: int) -> int:
        rows = [[Fraction((1 << bits) + 7**i * (j + 1) ** i, 3) for j in range(8)] for i in range(8)]
        with allowance(1 << 60, "operations"):
            determinant(rows)
            return spent()

    assert work(40) == 0 and work(8000) > 3 * work(4000) > 0


@pytest.mark.parametrize("depth", [40])
def test_nested_conditions_end_within_the_budget_of_a_search(monkeypatch: Any, depth: int) -> None:
    monkeypatch.setattr("redalg.verdicts.refute.SEARCH", 20_000)
    x = ra.tensors("x[j]")
    m, body = ra.max(x, "j"), x
    for k in range(depth, 0, -1):
        body = ra.where(x < k * m, body, k * x)
    found = ra.verdict(ra.Spec(y=ra.sum(body, "j")))
    assert isinstance(found, ra.Undecided)
    assert "a budget of 20000 operations on exact numbers" in found.why


# --- powers of sums ------------------------------------------------------------------------------------------------

LOW = g.compare("lt", X, g.tensor("u"))
TERMS = {
    "element": nf.generator(X),
    "other": nf.generator(g.tensor("u")),
    "root": nf.generator(X, Fraction(1, 2)),
    "inverse": nf.generator(X, -1),
    "constant": nf.constant(Fraction(-2, 3)),
    "one": nf.constant(1),
    "size": nf.generator(g.fn("abs", X)) * nf.generator(X),
    "condition": nf.generator(LOW) * nf.generator(X),
    "its negation": nf.generator(g.negate(LOW)),
}


@pytest.mark.parametrize("power", [nf.EXPANDED, nf.EXPANDED + 1, nf.EXPANDED + 2])
def test_a_binomial_sum_is_the_product(power: int) -> None:
    for one in TERMS.values():
        for other in TERMS.values():
            base = one - other
            product = nf.constant(1)
            for _ in range(power):
                product = product * base
            assert base**power == product


def test_large_powers_of_two_terms_take_work_in_proportion() -> None:
    def work(power: int) -> int:
        with allowance(1 << 60, "products"):
            (nf.generator(X) - nf.constant(2)) ** power
            return spent()

    assert work(800) <= 2 * work(400)


# --- what a budget counts is what is done --------------------------------------------------------------------------

NAMES = ("x", "weight", "g", "t1", "z")


def _product(size: int) -> str:
    return f"return y = sum[j]({'*'.join(f'({n}[j] - mean[j]({n}[j]))' for n in NAMES[: size // 3])})"


def _power(size: int) -> str:
    return f"return y = mean[i]((x[i] - mean[i](x[i]))**{size})"


def _powers_times_exponentials(size: int) -> str:
    powers, exps = ("+".join(form.format(k) for k in range(1, size // 2)) for form in ("d**{}", "exp({}*d)"))
    return f"m = mean[j](x[j]); d = x[j] - m; return y = sum[j](({powers})*({exps}))"


def _chain(size: int) -> str:
    return "".join(f"m{k} = prod[j](x[j]/m{k - 1}); " for k in range(1, size)).join(
        ("m0 = max[j](x[j]); ", f"return y = m{size - 1}")
    )


def _outputs(size: int) -> str:
    return "m = mean[j](x[j]); return " + ", ".join(f"v{k} = mean[j]((x[j] - m)**{k})" for k in range(2, 2 + size // 2))


def _selections(size: int) -> str:
    inside = "".join(f"where(x[j] > {k}, (x[j] - m)**2 + {k}, " for k in range(size))
    return f"m = mean[j](x[j]); return y = sum[j]({inside}x[j] - m{')' * size})"


def _maps(size: int) -> str:
    terms = "+".join(f"exp({k}*d) + sin({k}*d) + x[j]*cos({k}*x[j] - m)" for k in range(1, size // 2))
    return f"m = mean[j](x[j]); d = x[j] - m; return y = sum[j]({terms})"


FAMILIES = [_product, _power, _powers_times_exponentials, _chain, _outputs, _selections, _maps]
RATES = {"plan": 300, "laws": 25, "infinities": 40}  # calls for a unit of a budget; about 130, 8 and 10 are seen


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_derivation_takes_is_counted(family: Callable[[int], str]) -> None:
    """Calls per unit of each budget stay below one number, whatever the kind of spec."""
    spec = ra.parse(family(6))
    plan = derive_plan(spec)
    assert isinstance(plan, Plan)
    steps: dict[str, tuple[Callable[[], Any], int]] = {
        "plan": (lambda: derive_plan(spec), PRODUCT),
        "laws": (lambda: laws._verify(spec, plan), 1),
        "infinities": (lambda: differences(ra.Form(spec, plan)), 1),
    }
    for name, (step, charged) in steps.items():
        with allowance(1 << 60, "operations"):
            done, counted = calls(step), spent() // charged
        assert done < RATES[name] * (counted + 500), name


@pytest.mark.parametrize("family", FAMILIES)
def test_laws_beyond_their_budget_are_undecided(family: Callable[[int], str], monkeypatch: Any) -> None:
    monkeypatch.setattr("redalg.api._proved", lambda spec, plan: False)
    monkeypatch.setattr(laws, "LAWS_TESTED", 5_000)
    found = ra.verdict(ra.parse(family(6)))
    assert isinstance(found, ra.Undecided)
    assert "a budget of 5000 operations in testing the laws of a form" in found.missing


@pytest.mark.parametrize("bits", [150, 600])
@pytest.mark.parametrize("name", ["exp", "tanh", "erf", "sigmoid"])
def test_functions_of_enclosures_are_charged_by_their_bits(name: str, bits: int) -> None:
    with allowance(1 << 60, "operations"):
        BallNumbers(bits).unary(name, Fraction(1, 3))
        assert spent() >= bits // FUNCTION


def test_plans_with_guards_share_one_budget(monkeypatch: Any) -> None:
    """A form that cannot be compared at infinities within it is NaN wherever an element is infinite, and says so."""
    spec = ra.parse("m = mean[j](w[j]); return y = sum[j]((w[j] - m)**3*t[j])/sum[j](t[j])")
    monkeypatch.setattr("redalg.api.INFINITIES", 10)
    form = ra.derive_incremental(spec)
    assert "budget" in form.assumptions["finite_stage_values"]
    with np.errstate(invalid="ignore"):
        assert np.isnan(form.compile("numpy")(w=[1.0, np.inf, 2.0], t=[1.0, 0.0, 1.0]))
