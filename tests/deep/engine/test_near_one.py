"""Logarithms of means and ratios that are near 1, and what exponentials differ by, against exact numbers.

e^(x-m) of elements close to m rounds to a number near 1, in which x - m is lost; so is a logarithm of n beside one of a
sum that is nearly n. The bound is a few roundings of the largest difference of two exponents: no size of the elements
and no logarithm of their number is in it.
"""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.graph.node import walk
from redalg.testing import running
from tests.support.forms import Forms

LSE = "max[j]({0}) + log(sum[j](exp({0} - max[j]({0}))))"
X, Z = LSE.format("x[j]"), LSE.format("z[j]")
# results of the size of the largest difference of two exponents, or of its square
SPREAD = {
    "mean of exponentials": "return y = log(mean[j](exp(x[j] - max[j](x[j]))))",
    "about the smallest": "return y = log(mean[j](exp(min[j](x[j]) - x[j])))",
    "of expm1": "return y = log1p(mean[j](expm1(x[j] - max[j](x[j]))))",
    "sum of expm1": "return y = sum[j](expm1(x[j] - max[j](x[j])))/size[j]",
    "sum of exp - 1": "return y = sum[j](exp(2*x[j] - 2*max[j](x[j])) - 1)/size[j]",
    "squares of expm1": "return y = sum[j](expm1(x[j] - max[j](x[j]))**2)/size[j]",
    "weighted expm1": "return y = sum[j](w[j]*expm1(x[j] - max[j](x[j])))/sum[j](w[j])",
    "expm1 about the mean": "return y = mean[j](expm1(x[j] - mean[j](x[j])))",
    "masked expm1": "M = max[j](where(t[j], x[j], -oo)); return y = sum[j](where(t[j], expm1(x[j] - M), 0))/size[j]",
    "weighted mean": "return y = log(sum[j](w[j]*exp(x[j] - max[j](x[j])))/sum[j](w[j]))",
    "masked mean": "M = max[j](where(t[j], x[j], -oo));"
    " return y = log(sum[j](where(t[j], exp(x[j] - M), 0))/sum[j](where(t[j], 1, 0)))",
    "gap to the mean": f"return y = {X} - log(size[j]) - mean[j](x[j])",
    "gap, about the mean": "return y = log(mean[j](exp(x[j] - mean[j](x[j]))))",
    "gap, by expm1": "return y = log1p(mean[j](expm1(x[j] - mean[j](x[j]))))",
    "logits": f"a = {X}; b = {Z}; return y = sum[j](exp(x[j] - a)*(x[j] - a - z[j] + b))",
    "free energy": "return y = -log(mean[j](exp((min[j](x[j]) - x[j])/T)))*T",
    "second order": f"return y = {LSE.format('2*x[j]')} - 2*({X}) + log(size[j])",
    "mean less 1": "return y = 1 - mean[j](exp(x[j] - max[j](x[j])))",
    "relative variance": "e = exp(x[j] - max[j](x[j])); return y = size[j]*sum[j](e**2)/sum[j](e)**2 - 1",
    "effective number": "e = exp(x[j] - max[j](x[j])); return y = 1 - sum[j](e)**2/sum[j](e**2)/size[j]",
    "chi-square": f"a = {X}; b = {Z}; return y = sum[j](exp(x[j] - a)**2/exp(z[j] - b)) - 1",
    "Bhattacharyya": f"a = {X}; b = {Z}; return y = -log(sum[j](sqrt(exp(x[j] - a)*exp(z[j] - b))))",
    "Hellinger": f"a = {X}; b = {Z}; return y = 1 - sum[j](sqrt(exp(x[j] - a)*exp(z[j] - b)))",
    "missing entropy": f"a = {X}; return y = log(size[j]) + sum[j](exp(x[j] - a)*(x[j] - a))",
    "shares beside equal ones": "p = v[j]/sum[j](v[j]); return y = sum[j](p*log(p*size[j]))",
    "inequality": "u = mean[j](v[j]); return y = mean[j](v[j]/u*log(v[j]/u))",
    "one more": "return y = log(1 + sum[j](w[j]*(x[j] - min[j](x[j]))))",
    "keeps the axis": f"return y = x[j] - ({X}) + log(size[j])",
}
# results that hold an element: as large as these
SIZE = {
    "ratio": f"return y = ({X}) - ({Z})",
    "log mean exp": f"return y = {X} - log(size[j])",
    "overflowing": "return y = log(mean[j](exp(x[j])))",
    "temperature": "m = max[j](-x[j]/T); return y = -(m + log(sum[j](exp(-x[j]/T - m))) - log(size[j]))*T",
}
TEXTS = SPREAD | SIZE
DOMAINS = {"w": "w[j] positive", "t": "t[j] bool", "x": "x[j]", "z": "z[j]", "v": "v[j] positive", "T": "T positive"}
EPS = float(np.finfo(float).eps)


def _declared(text: str) -> str:
    names = [n for n in DOMAINS if (f"{n}[j]" if n != "T" else "/T") in text]
    return f"tensors {', '.join(DOMAINS[n] for n in names)}; {text}"


FORMS = Forms({name: _declared(text) for name, text in TEXTS.items()}, "j")


def _drawn(form: Any, rng: np.random.Generator, length: int, offset: float, spread: float) -> dict[str, Any]:
    """Elements `spread` apart about the offset; x beside z about the same numbers, which are some units apart."""
    close = {d.name for d in form.spec.tensors} >= {"x", "z"}
    middle = offset + (rng.normal(size=length) if close else 0.0)
    made = {n: middle + spread * rng.normal(size=length) for n in "xz"}
    made |= {"v": np.exp(spread * rng.normal(size=length))}
    made |= {"w": rng.uniform(0.1, 2, length), "t": np.arange(length) % 3 != 1, "T": 0.75}
    return {d.name: made[d.name] for d in form.spec.tensors}


def _bound(name: str, given: dict[str, Any], exact: Any) -> float:
    """Roundings of the largest difference between exponents, and of elements where the result holds one.

    Of large differences also what their rounding does to an exponential, and log n.
    """
    t = np.log(given["v"]) if "v" in given else given["x"] - given["z"] if "z" in given else given["x"]
    apart, n = float(np.ptp(t)), len(t)
    size = apart * n**0.5 + (float(np.max(np.abs(t))) if name in SIZE else 0.0)
    return 16 * EPS * (size + (apart > 0.1) * (np.log(n) + (1 + apart) * max(abs(float(e)) for e in exact.flat)))


def _values(form: Any, given: dict[str, Any], rng: np.random.Generator) -> list[tuple[str, Any]]:
    length = len(next(iter(given.values())))
    found = [(target, form.compile(target)(**given)) for target in ("numpy", "cpu")]
    first, second = sorted(rng.integers(0, length + 1, 2))
    for tree in ([0, 0, 0], [2, 1, 0]):  # one part is empty
        borders = [0, first, first, second, length]
        found.append((f"merged {borders} {tree}", running.merged(form, given, borders, tree)["y"]))
    borders = [0, second, second, length]
    found.append((f"shuffled {borders}", running.shuffled(form, given, borders, Random(length))["y"]))
    return found


@pytest.mark.parametrize("name", TEXTS)
def test_values_near_zero_have_the_digits_of_their_elements(name: str) -> None:
    form = FORMS[name]
    rng = np.random.default_rng(len(name))
    # exponentials that overflow do so in the definition, too; 2*x - z is rounded before its maximum is taken from it
    offsets = {"overflowing": (0.0, 1.0, -300.0), "chi-square": (0.0, 1.0)}.get(name, (0.0, 1.0, -1e3, 1e6))
    for offset, spread, length in product(offsets, (1e-12, 1e-8, 1e-4, 1.0, 30.0), (1, 2, 38)):
        given = _drawn(form, rng, length, offset, spread)
        exact = np.asarray(ra.reference(form.spec, exact=True, **given))
        bound = _bound(name, given, exact)
        for where, got in _values(form, given, rng):
            worst = max(abs(float(e - type(e)(float(v)))) for e, v in zip(exact.flat, np.ravel(got), strict=True))
            assert worst <= bound + 1e-90, (where, offset, spread, length, float(exact.flat[0]), worst, bound)


@pytest.mark.parametrize("name", TEXTS)
def test_forms_of_what_is_near_one_are_proved(name: str) -> None:
    FORMS[name].certificate.verify()


@pytest.mark.parametrize(
    "name", ["log mean exp", "gap to the mean", "logits", "weighted mean", "sum of expm1", "ratio"]
)
def test_infinities_and_empty_streams_are_those_of_the_definition(name: str) -> None:
    """What a difference of infinities makes NaN takes the logarithms themselves."""
    form = FORMS[name]
    oo, nan = np.inf, np.nan
    rows = [
        [],
        [oo],
        [-oo],
        [nan],
        [-oo, -oo],
        [-oo, 0],
        [oo, 0, 1],
        [oo, oo],
        [nan, 0],
        [800, 0, -800],
        [0, 0, 0],
        [-oo, 1, -oo],
    ]
    for x, z in product(rows, rows if "z" in DOMAINS and "z[j]" in TEXTS[name] else [[]]):
        if len(x) != len(z) and "z[j]" in TEXTS[name]:
            continue
        made = {"x": np.array(x, float), "z": np.array(z, float), "w": np.arange(1.0, len(x) + 1)}
        given = {d.name: made[d.name] for d in form.spec.tensors}
        with np.errstate(all="ignore"):
            wanted = np.asarray(ra.reference(form.spec, **given), float)
            got = [form.compile(target)(**given) for target in ("numpy", "cpu")]
            got.append(running.merged(form, given, [0, len(x) // 2, len(x) // 2, len(x)], [1, 0])["y"])
        for value in got:
            np.testing.assert_allclose(value, wanted, 1e-12, 1e-12, err_msg=str((x, z)))


def test_sums_over_two_axes_are_beside_their_size() -> None:
    x = ra.tensors("x[i,j]")
    form = ra.derive_incremental(ra.Spec(y=ra.logsumexp(x, ["i", "j"]) - ra.log(ra.size("i")) - ra.log(ra.size("j"))))
    arrays = {"x": 1e-10 * np.random.default_rng(4).normal(size=(3, 9))}
    exact = ra.reference(form.spec, exact=True, **arrays).item()
    for target in ("numpy", "cpu"):
        got = float(form.compile(target)(**arrays))
        assert abs(float(exact - type(exact)(got))) <= 16 * EPS * 1e-9, target


def test_what_is_not_near_one_keeps_its_form() -> None:
    """One logarithm alone, logarithms that others are added to, shares and scores have no use for a second sum."""
    shares, scores = "x[j] - max[j](x[j]) - log(sum[j](exp(x[j] - max[j](x[j]))))", LSE.format("sum[d](q[i,d]*k[j,d])")
    for text in (X, f"{X} + {Z} - log(size[j])", shares, f"{scores} - log(size[j])"):
        form = ra.derive_incremental(ra.parse(f"return y = {text}"), axis="j")
        lifts = [x for slot in form.plan.passes[0].slots for x in slot.lift]
        assert not any(n.op == "expm1" for n in walk(*lifts))
