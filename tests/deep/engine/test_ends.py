"""Positions that both ends of the elements decide: |x - u|, even powers and x·u, against the definition."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import redalg as ra
from tests.support.simulated import run as simulated

PLAIN = [  # the definition's position whatever is infinite or NaN
    "argmax[j](abs(x[j] - u))",
    "argmax[j]((x[j] - u)**2)",
    "argmax[j]((u - 2*x[j])**4)",
    "argmax[j](cosh(x[j] - u))",
    "argmin[j]((x[j] - u)**(-2))",
    "argmin[j](3 - abs(x[j] - u))",
    "argmin[j](1/(1 + (x[j] - u)**2))",
    "argmax[j](sqrt(abs(x[j] - u)))",
    "argmax[j](abs(log(1 + exp(x[j])) - u))",
    "argmax[j](where(g[j] > 0, abs(x[j] - u), -oo))",
    "argmin[j](where(g[j] > 0, -(x[j] - u)**2, oo))",
]
FACTORS = [  # -1 where the factor is infinite
    "argmax[j](x[j]*u)",
    "argmin[j](x[j]*u)",
    "argmax[j](v - x[j]*u)",
    "argmax[j](tanh(x[j]*u))",
    "argmax[j](abs(x[j]*u - v))",
    "argmax[j](x[j]*relu(u))",
    "argmin[j](u/(1 + exp(x[j])))",
    "argmax[j](relu(u)*abs(x[j] - v))",
    "argmax[j](where(g[j] > 0, x[j]*u, -oo))",
    "argmin[j](where(g[j] > 0, x[j]*u, oo))",
]
STAGES = {  # exact on the numbers drawn, so that ties are ties
    "own": "u = max[j](x[j]) - 1; v = min[j](x[j]);",
    "other": "u = max[j](y[j]); v = sum[j](y[j]);",
}
NUMBERS = np.array([-2.0, -1, -0.0, 0.0, 1, 2])


def drawn(rng: np.random.Generator, names: list[str], broken: bool) -> dict[str, Any]:
    """Short streams with ties, zeros of both signs and, where `broken`, infinities and NaN."""
    n = int(rng.choice([1, 2, 3, 4, 7]))
    arrays = {name: rng.choice(NUMBERS, n) for name in names}
    if "g" in names:
        arrays["g"] = rng.choice([-1.0, 1.0], n)
    for name in {"x", "y"} & set(names):
        for _ in range(2 if broken and rng.random() < 0.7 else 0):
            arrays[name][rng.integers(n)] = rng.choice([np.inf, -np.inf, np.nan])
    return arrays


OFFSET = 5


def merged(form: ra.Form, arrays: dict[str, Any], rng: np.random.Generator) -> int:
    """Three pieces of a stream that starts later, of which one may be empty, merged from the right."""
    n = len(next(iter(arrays.values())))
    cuts = [0, *sorted(rng.integers(0, n + 1, 2)), n]
    parts = []
    for start, stop in zip(cuts, cuts[1:], strict=False):
        part = form.accumulator(start=OFFSET + int(start))
        part.update(**{k: v[start:stop] for k, v in arrays.items()})
        parts.append(part)
    parts[1].merge(parts[2])
    parts[0].merge(parts[1])
    found = int(parts[0].result())
    return found if found < 0 else found - OFFSET


@pytest.mark.parametrize("stages", STAGES)
@pytest.mark.parametrize("body", PLAIN + FACTORS)
def test_the_position_is_the_definitions(body: str, stages: str) -> None:
    spec = ra.parse(f"{STAGES[stages]} return at = {body}")
    form = ra.derive_incremental(spec)
    names, rng = [d.name for d in spec.tensors], np.random.default_rng(7)
    compiled = form.compile("numpy")
    with np.errstate(all="ignore"):
        for number in range(40):
            arrays = drawn(rng, names, broken=number % 2 == 1)
            wanted = int(ra.reference(spec, **arrays))
            allowed = {wanted}
            if body in FACTORS and not all(np.isfinite(arrays[k]).all() for k in {"x", "y"} & set(names)):
                assert "finite_stage_values" in form.assumptions
                allowed.add(-1)
            assert int(compiled(**arrays)) in allowed, arrays
            assert merged(form, arrays, rng) in allowed, arrays


def test_nothing_is_assumed_of_a_distance() -> None:
    for body in PLAIN:
        form = ra.derive_incremental(ra.parse(f"{STAGES['own']} return at = {body}"))
        assert not form.assumptions, body


@pytest.mark.parametrize("name", ["abs(x[i,j] - u)", "(u - x[i,j])**2", "x[i,j]*u"])
def test_the_checker_proves_it(name: str) -> None:
    form = ra.derive_incremental(ra.parse(f"u = mean[j](x[i,j]*y[j]); return at = argmax[j]({name})"))
    form.certificate.verify()


def test_the_states_are_two_positions_with_their_values_and_the_first() -> None:
    form = ra.derive_incremental(
        ra.parse("u = max[j](y[j]); return at = argmax[j](abs(x[j] - u)), m = argmin[j](x[j])")
    )
    assert sorted(s.kind for s in form.plan.passes[0].slots) == ["argmax", "argmax", "argmin", "max"]


@pytest.mark.parametrize(
    "body",
    [
        "argmin[j](abs(x[j] - u))",
        "argmin[j]((x[j] - u)**2)",
        "argmax[j](-cosh(x[j] - u))",
        "argmax[j](u*abs(x[j] - v))",
        "argmax[j](abs(x[j] - u) + x[j]*v)",
        "argmax[j](abs(abs(x[j] - u) - v))",
        "argmax[j](cos(x[j] - u))",
    ],
)
def test_what_the_ends_do_not_decide_is_not_derived(body: str) -> None:
    assert not isinstance(ra.verdict(ra.parse(f"u = mean[j](x[j]); v = sum[j](x[j]); return at = {body}")), ra.Form)


def test_it_runs_in_every_backend() -> None:
    spec = ra.parse(
        "u = (max[j](x[i,j]) + min[j](x[i,j]))/2; v = max[j](y[j]) - 2;"
        "return far = argmax[j](abs(x[i,j] - u)), most = argmax[j](x[i,j]*v)"
    )
    form, rng = ra.derive_incremental(spec), np.random.default_rng(3)
    for top in (1.0, 2.0, 3.0):  # a factor below 0, at 0 and above
        x = rng.choice(NUMBERS, (5, 37)).astype(np.float32)
        y = np.full(37, top, np.float32)
        wanted = ra.reference(spec, x=x, y=y)
        found, _, _ = simulated(form, {"x": x, "y": y})
        for got in (found, form.compile("numpy")(x=x, y=y), form.compile("cpu")(x=x, y=y)):
            for name in ("far", "most"):
                np.testing.assert_array_equal(got[name], wanted[name])


def test_integers_are_compared_exactly() -> None:
    spec = ra.parse("u = max[j](y[j]); return at = argmax[j](abs(x[j] - u))")
    x, y = np.array([2**53 + 1, 2**53, -(2**53) - 2]), np.zeros(3, np.int64)
    got = ra.derive_incremental(spec).compile("numpy")(x=x, y=y)
    distances = [abs(Fraction(int(v))) for v in x]
    assert int(got) == distances.index(max(distances))


@pytest.mark.parametrize("reduction", ["max", "min", "argmax", "argmin"])
@pytest.mark.parametrize("power", [-5, -3, -2, -1, 2, 3, 5])
def test_powers_of_products_with_a_factor_leave_no_element_outside(reduction: str, power: int) -> None:
    """(m*x)**p is one power: what does not vary of c*(m*x)**p is c alone, and nothing is divided out of the rest."""
    rng = np.random.default_rng(power % 97)
    for factor in ("32", "-2", "1/3"):
        form = ra.verdict(ra.parse(f"m = max[j](x[j]); return o = {reduction}[j]({factor}*(m*x[j])**({power}))"))
        if power % 2 == 0 and isinstance(form, ra.Undecided):
            continue  # the near end of an even power
        assert isinstance(form, ra.Form)
        for length in (1, 2, 7):
            x = rng.integers(1, 9, length) * rng.choice([-0.5, 0.5], length)
            parts = [form.accumulator(start=at) for at in (0, 1, 1)]
            for part, piece in zip(parts, (x[:1], x[1:1], x[1:]), strict=True):
                part.update(x=piece)
            for part in parts[1:]:
                parts[0].merge(part)
            np.testing.assert_allclose(parts[0].result(), ra.reference(form.spec, x=x), rtol=1e-12)
