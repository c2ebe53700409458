"""`ra.verdict` answers with a verdict, whatever it is asked: nothing else is raised, nothing hangs."""

from __future__ import annotations

import cProfile
import pstats
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sympy

import redalg as ra
from redalg.form import Form
from redalg.laws.laws import InternalError
from tests.support.hostile_specs import hostile


@pytest.mark.parametrize("block", range(2))
def test_a_verdict_or_an_error_of_the_spec(block: int) -> None:
    asked = 0
    for seed in range(10 * block, 10 * block + 10):
        spec = hostile(seed)
        if spec is None:
            continue
        asked += 1
        try:
            found = ra.verdict(spec)
        except InternalError as error:
            pytest.fail(f"seed {seed}: {spec}\n{error}")
        except ra.RedalgError:
            continue  # an axis to choose, a reduction over more than it: what is missing is in the call
        assert isinstance(found, Form | ra.NotDecomposable | ra.Undecided)
    assert asked > 2


def compare(spec: ra.Spec, rtol: float = 1e-9, **arrays: np.ndarray) -> Any:
    """The form in two unequal parts and an empty one, and as a program, against the definition."""
    form = ra.derive_incremental(spec)
    expected = ra.reference(spec, **arrays)
    bound = {t.name: arrays[t.name] for t in spec.tensors if "j" not in t.axes}
    streamed = {t.name: arrays[t.name] for t in spec.tensors if "j" in t.axes}
    parts = []
    for at in (slice(0, 2), slice(2, 2), slice(2, None)):
        part = form.accumulator(**bound)
        part.update(**{k: v[at] for k, v in streamed.items()})
        parts.append(part)
    parts[0].merge(parts[1])
    parts[0].merge(parts[2])
    for found in (parts[0].result(), form.compile("numpy")(**arrays)):
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=1e-12, equal_nan=True)
    return form


# --- powers and budgets --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("power, name", [(13, "x"), (16, "of")])
def test_high_central_moments_have_one_slot_per_power(power: int, name: str) -> None:
    form = compare(
        ra.parse(f"m = mean[j]({name}[j]); return y = mean[j](({name}[j] - m)**{power})"),
        rtol=1e-6,
        **{name: np.random.default_rng(power).normal(size=7)},
    )
    assert len(form.slots) <= power + 3  # the powers, the count and the anchor


def test_a_product_of_high_powers_is_derived() -> None:
    rng = np.random.default_rng(0)
    spec = ra.parse("m = mean[j](x[j]); n = min[j](y[j]); return z = sum[j]((x[j] - m)**13 * (y[j] - n)**2)")
    compare(spec, rtol=1e-6, x=rng.normal(size=6), y=rng.normal(size=6))


@pytest.mark.parametrize("factors, power", [(4, 4), (5, 3), (3, 12), (2, 24)])
def test_what_grows_beyond_a_budget_is_undecided_and_says_so(factors: int, power: int) -> None:
    xs = ra.tensors(" ".join(f"x{k}[j]" for k in range(factors)))
    body = sympy.Mul(*(x - ra.mean(x, "j") for x in xs)) ** power
    found = ra.verdict(ra.Spec(z=ra.sum(body, "j")))
    assert isinstance(found, ra.Undecided)
    assert "budget of" in found.missing


# --- inner axes ----------------------------------------------------------------------------------------------------

GROUPS = {
    "means": "a = sum[j](G[j,g]*x[j])/sum[j](G[j,g]); return S = sum[j](sum[g](G[j,g]*(x[j] - a)**2))",
    "maxima": "a = max[j](G[j,g]*x[j]); return S = sum[j](sum[g](G[j,g]*(x[j] - a)**2))",
    "sums": "a = sum[j](G[j,g]*x[j]); m = mean[j](x[j]); return S = mean[j](sum[g]((x[j] - a)*(x[j] - m)))",
    "exponentials": "a = max[j](G[j,g]*x[j]); return S = sum[j](sum[g](exp(G[j,g]*x[j] - a)))",
    "centroids": "c = sum[j](G[j,g]*y[j,d])/sum[j](G[j,g]); return S = sum[j](sum[g](G[j,g]*sum[d]((y[j,d] - c)**2)))",
    "analysis of variance": "a = sum[j](G[j,g]*x[j])/sum[j](G[j,g]); m = mean[j](x[j]); "
    "W = sum[j](sum[g](G[j,g]*(x[j] - a)**2)); T = sum[j](sum[g](G[j,g]*(x[j] - m)**2)); return S = (T - W)/W",
}


@pytest.mark.parametrize("kind", GROUPS)
@pytest.mark.parametrize("names", [{}, {"g": "b", "d": "a"}])
def test_stage_values_with_an_inner_axis_beside_elements_without_it(kind: str, names: dict[str, str]) -> None:
    rng, text = np.random.default_rng(3), GROUPS[kind]
    for old, new in names.items():
        text = text.replace(f"[{old}]", f"[{new}]").replace(f",{old}]", f",{new}]")
    arrays = {"G": rng.uniform(0.1, 1, size=(7, 3)), "x": rng.normal(size=7) + 1000, "y": rng.normal(size=(7, 2))}
    spec = ra.parse(text)
    compare(spec, rtol=1e-8, **{t.name: arrays[t.name] for t in spec.tensors})


@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize("body", ["log(x[j])", "log1p(x[j])", "asin(x[j])", "acosh(x[j])", "log(x[j]) * 2 + 1"])
def test_an_extremum_of_elements_alone_always_has_a_form(kind: str, body: str) -> None:
    spec = ra.parse(f"return y = {kind}[j]({body})")
    with np.errstate(invalid="ignore", divide="ignore"):
        compare(spec, x=np.array([0.5, 0.25, 1.0, 0.75]))
        compare(spec, x=np.array([0.5, -1.25, 1.5, 0.75]))


# --- top-k, complex numbers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize(
    "body",
    [
        lambda x, t: ra.where(x > t, x, 0),
        lambda x, t: ra.relu(x - t),
        lambda x, t: ra.exp(x - t) * ra.abs(x + t),
        lambda x, t: ra.tanh(x * t),
    ],
)
def test_thresholds_from_the_largest_elements_leak_nothing(k: int, body: Callable[[Any, Any], Any]) -> None:
    x = ra.tensors("x[j]")
    for reduce in (ra.min, ra.sum):
        threshold = reduce(ra.topk(x, k, "j").values, "j_top")
        found = ra.verdict(ra.Spec(y=ra.sum(body(x, threshold), "j")))
        assert isinstance(found, ra.NotDecomposable | ra.Undecided)


@pytest.mark.parametrize("reduce", [ra.min, ra.mean])
def test_thresholds_from_the_largest_elements_are_known_in_a_second_pass(reduce: Callable[..., Any]) -> None:
    x = ra.tensors("x[j]")
    threshold = reduce(ra.topk(x, 3, "j").values, "j_top")
    spec = ra.Spec(y=ra.sum(ra.where(x >= threshold, x, 0), "j"))
    form = ra.derive_incremental(spec, max_passes=2)
    drawn = np.array([0.5, 3, -1, 3, 2, -np.inf, 0])  # a tie
    np.testing.assert_array_equal(form.compile("numpy")(x=drawn), ra.reference(spec, x=drawn))


COMPLEX = {
    "spread": lambda z, u: ra.mean(ra.abs(z - u) ** 2, "j"),
    "fourth power": lambda z, u: ra.sum(ra.abs(z - u) ** 4, "j"),
    "scaled": lambda z, u: ra.sum(ra.abs(z * u) ** 2, "j"),
    "mixed with its square": lambda z, u: ra.sum(ra.abs(z - u) ** 2 * z, "j"),
    "parts": lambda z, u: ra.sum(sympy.re(z * u) * sympy.im(z - u), "j"),
    "inverse": lambda z, u: ra.sum(ra.abs(z / u) ** 2, "j"),
    "of the square": lambda z, u: ra.sum(ra.abs(z**2 - u) ** 2, "j"),
}


@pytest.mark.parametrize("kind", COMPLEX)
def test_the_modulus_of_a_complex_number_is_not_its_square(kind: str) -> None:
    z = ra.tensors("z[j]", complex=True)
    rng = np.random.default_rng(5)
    values = rng.normal(size=7) + 1j * rng.normal(size=7) + 2
    compare(ra.Spec(v=COMPLEX[kind](z, ra.mean(z, "j"))), z=values)


@pytest.mark.parametrize("body", [lambda z, s: ra.log(z * s), lambda z, s: ra.sqrt(z * s), lambda z, s: ra.abs(z - s)])
def test_branches_of_complex_functions_do_not_split(body: Callable[[Any, Any], Any]) -> None:
    z = ra.tensors("z[j]", complex=True)
    assert isinstance(ra.verdict(ra.Spec(v=ra.sum(body(z, ra.sum(z, "j")), "j"))), ra.Undecided)


MODULI: dict[str, Callable[[Any, Any], Any]] = {
    "deviation": lambda z, u: ra.abs(z - u),
    "square": lambda z, u: ra.abs(z - u) ** 2,
    "product": lambda z, u: ra.abs(z * u),
    "logarithm": lambda z, u: ra.log(ra.abs(z + u)),
    "masked": lambda z, u: ra.where(sympy.re(z) > 0, ra.abs(z - u), -ra.oo),
    "root": lambda z, u: 3 - ra.sqrt(ra.abs(z - 2 * u)),
    "part": lambda z, u: sympy.re(z - u),
}
EXTREMA: dict[str, Callable[[Any], Any]] = {
    "max": lambda v: ra.max(v, "j"),
    "min": lambda v: ra.min(v, "j"),
    "argmax": lambda v: ra.argmax(v, "j"),
    "argmin": lambda v: ra.argmin(v, "j"),
    "topk": lambda v: ra.topk(v, 2, "j").values,
    "places": lambda v: ra.topk(v, 2, "j").indices,
    "any": lambda v: ra.any(v > 1, "j"),
    "count": lambda v: ra.sum(ra.where(v > ra.max(v, "j"), 1, 0), "j"),
}


@pytest.mark.parametrize("extremum", EXTREMA)
@pytest.mark.parametrize("modulus", MODULI)
def test_complex_numbers_have_no_order_to_pull_anything_out_of(modulus: str, extremum: str) -> None:
    """|z - u| is no valley of z: what depends on that is undecided, and what has a form is the definition."""
    z, rng = ra.tensors("z[j]", complex=True), np.random.default_rng(7)
    spec = ra.Spec(v=EXTREMA[extremum](MODULI[modulus](z, ra.mean(z, "j"))))
    found = ra.verdict(spec)
    if isinstance(found, Form):
        compare(spec, z=rng.normal(size=7) + 1j * rng.normal(size=7) + 2)


@pytest.mark.parametrize(
    "body", ["(x[j] - u)*(w[j] - u)", "abs(x[j] - u)*w[j]", "sin(x[j] - u)", "tanh(x[j] - u)*w[j]"]
)
@pytest.mark.parametrize("counted", ["1", "x[j]*u", "(x[j] - u)**2"])
@pytest.mark.parametrize("condition", ["v > max[j](v)", "v < min[j](v)", "v >= max[j](v)", "not v <= max[j](v)"])
def test_conditions_on_extrema_that_have_no_form(body: str, counted: str, condition: str) -> None:
    """What an order fact settles has a form, though the extremum in it has none; the rest is no internal error."""
    spec = ra.parse(f"u = mean[j](x[j]); v = {body}; return y = sum[j](where({condition}, {counted}, 0))")
    if isinstance(ra.verdict(spec), Form):
        rng = np.random.default_rng(3)
        compare(spec, **{t.name: rng.normal(size=6) for t in spec.tensors})


# --- long chains ---------------------------------------------------------------------------------------------------

LINKS = {
    "means": lambda x, m: ra.mean(x - m, "j"),
    "maxima": lambda x, m: ra.max(x - m, "j"),
    "products": lambda x, m: ra.sum(x * m, "j") / 4,
    "exponentials": lambda x, m: ra.mean(ra.exp(x - m), "j"),
    "logsumexps": lambda x, m: ra.logsumexp(x - m, "j"),
    "maps between": lambda x, m: ra.sum(x * ra.tanh(m), "j"),
}


@pytest.mark.parametrize("kind", LINKS)
def test_chains_are_as_long_as_they_like(kind: str) -> None:
    spec = _chain(kind, 30 if kind == "products" else 100)
    compare(spec, rtol=1e-6, x=np.random.default_rng(1).uniform(0.2, 1, size=5))


def test_a_chain_of_products_names_its_budget() -> None:
    """The degree of its slots grows with its length."""
    verdict = ra.verdict(_chain("products", 100))
    assert isinstance(verdict, ra.Undecided) and "budget" in verdict.missing


def _chain(kind: str, length: int) -> ra.Spec:
    x = ra.tensors("x[j]")
    found = ra.mean(x, "j")
    for _ in range(length):
        found = LINKS[kind](x, found)
    return ra.Spec(y=found)


@pytest.mark.parametrize("link", [lambda e: ra.relu(e - 1), lambda e: ra.maximum(e, 2) - ra.index("j")])
@pytest.mark.parametrize("depth", [150, 250])
def test_deep_nests_of_maps_name_the_budget(link: Callable[[Any], Any], depth: int) -> None:
    found = ra.tensors("x[j]")
    for _ in range(depth):
        found = link(found)
    verdict = ra.verdict(ra.Spec(y=ra.sum(found, "j")))
    assert isinstance(verdict, ra.Undecided)
    assert "a budget of 220 operations nested" in verdict.missing


# --- cost ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["variance", "logsumexp"])
def test_the_cost_of_many_outputs_is_linear(kind: str) -> None:
    """Measured: 2.0 times the calls for twice the outputs. Every slot's laws are stated and tested."""

    def output(x: Any) -> Any:
        m = ra.max(x, "j")
        variance = ra.mean((x - ra.mean(x, "j")) ** 2, "j")
        return variance if kind == "variance" else m + ra.log(ra.sum(ra.exp(x - m), "j"))

    def calls(count: int) -> int:
        tensors = ra.tensors(" ".join(f"x{k}[j]" for k in range(count)))
        spec = ra.Spec(**{f"y{k}": output(x) for k, x in enumerate(tensors)})
        with cProfile.Profile() as profile:
            form = ra.derive_incremental(spec)
        moving = {s.name for p in form.plan.passes for s in p.slots if s.moves}
        assert moving <= {o.subject for o in form.obligations if o.name in ("O2", "O3")}
        return int(pstats.Stats(profile).total_calls)

    calls(2)  # what is imported and kept
    assert calls(14) < 2.6 * calls(7)
