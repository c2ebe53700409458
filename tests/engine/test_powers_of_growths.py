"""Sums of products of e^(x-u) - 1 keep the digits of x - u: their coefficients are polynomials in e^(A-u) - 1.

Multiplied out, e^(2(A-u)) - 2·e^(A-u) + 1 has the rounding of 1, however small it is.
"""

from __future__ import annotations

import numpy as np
import pytest

import redalg as ra
from tests.support.forms import Forms
from tests.support.streams import three_ways

G, H = "(exp(x[j] - u) - 1)", "(exp(2*x[j] - 2*u) - 1)"
BODIES = {
    "square": f"{G}**2",
    "weighed square": f"w[j]*{G}**2",
    "cube": f"w[j]*{G}**3",
    "fourth power": f"{G}**4",
    "two rates": f"w[j]*{G}*{H}",
    "less its first order": f"w[j]*({G} - {H}/2)",
    "from below": "w[j]*(1 - exp(u - x[j]))**2",
    "beside a weight that is a sum": f"(2 - w[j])*{G}**2",
    "masked": f"where(w[j] > 0.6, {G}**2, 0)",
}
PLACES = {
    "max": "u = max[j](z[j])",
    "mean": "u = mean[j](x[j])",
    "own max": "u = max[j](x[j])",
    "min": "u = min[j](x[j])",
}
SPECS = {f"{b} {p}": f"{PLACES[p]}; return s = sum[j]({BODIES[b]})" for b in BODIES for p in PLACES}
ORDERS = {"cube": 3, "fourth power": 4}
FORMS = Forms(SPECS, "j")


def centre(name: str, x: np.ndarray, z: np.ndarray, w: np.ndarray) -> float:
    place = next(p for p in ("own max", "max", "mean", "min") if name.endswith(p))
    return float({"own max": x.max(), "max": z.max(), "mean": x.mean(), "min": x.min()}[place])


@pytest.mark.parametrize("name", SPECS)
def test_products_of_small_growths_keep_their_digits(name: str) -> None:
    form, order = FORMS[name], next((n for body, n in ORDERS.items() if name.startswith(body)), 2)
    for seed, spread in enumerate((1e-9, 1e-6, 1e-3, 0.1, 1.0, 5.0)):
        for n in (1, 2, 7):
            rng = np.random.default_rng(seed)
            every = {"x": spread * rng.normal(size=n), "z": spread * rng.normal(size=n), "w": rng.uniform(0.5, 1, n)}
            given = {t.name: every[t.name] for t in form.spec.tensors}
            true = float(np.asarray(ra.reference(form.spec, exact=True, **given)).item())
            x = every["x"]
            far = np.abs(np.expm1(np.abs(x - centre(name, **every)))) ** order  # what the definition adds up
            for where, found in three_ways(form, given, seed):
                assert abs(found - true) <= 1e-13 * max(abs(true), 4 * far.max()), (where, spread, n, found, true)


@pytest.mark.parametrize("name", [n for n in SPECS if n.endswith(("max", "mean")) and "masked" not in n])
def test_products_of_growths_are_proved(name: str) -> None:
    FORMS[name].certificate.verify()


@pytest.mark.parametrize("weight", ["(2*w[j] - 1)*z[j]", "z[j]", "(z[j] - w[j])"])
def test_an_infinite_mean_leaves_no_number(weight: str) -> None:
    """e^(x-u) of an x and a mean of -oo is none; with weights of both signs oo - oo must not become an infinity."""
    text = f"u = sum[j](w[j]*x[j])/sum[j](w[j]); return s = mean[j]({weight}*{G}**2), t = sum[j]({weight}*u), v = u"
    form, rng = ra.derive_incremental(ra.parse(text)), np.random.default_rng(0)
    for _ in range(60):
        n = int(rng.integers(1, 6))
        given = {"x": rng.normal(size=n), "z": rng.normal(size=n), "w": rng.uniform(size=n)}
        given["x"][rng.integers(n)] = -np.inf
        with np.errstate(all="ignore"):
            assert np.isnan(form.compile("numpy")(**given)["s"])


@pytest.mark.parametrize(
    "body", ["exp(u - t) - exp(t - u)", "exp(2*(u - t)) - exp(t - u)", "2*exp((u - t)/2) - 2*exp(t - u)"]
)
@pytest.mark.parametrize("h", [np.inf, -np.inf, 800.0, 1e-9, -1e-5, 0.0, 3.0])
def test_exponentials_of_either_sign_keep_digits_and_infinities(body: str, h: float) -> None:
    form = ra.derive_incremental(ra.parse(f"u = max[j](x[j]); t = max[j](z[j]); return y = {body}"))
    given = {"x": np.array([h, h]), "z": np.array([0.0, -1.0])}
    with np.errstate(all="ignore"):
        true = float(np.asarray(ra.reference(form.spec, exact=abs(h) < 700, **given)).item())
        for where, found in three_ways(form, given, 1):
            assert found == true or abs(found - true) <= 1e-15 * abs(true), (where, found, true)
