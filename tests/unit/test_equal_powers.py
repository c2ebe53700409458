"""Products and quotients of equal powers are evaluated as the power of the product, however the spec is written."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.graph.node import ONE, Node, const, is_const, mul, power, tensor, walk
from redalg.language.equal_powers import joined
from redalg.numeric.exact import exact_value
from tests.support.profiles import examples

NAMES = ("u", "v", "w", "speed")
WHOLE = [Fraction(n) for n in (-4, -3, -2, -1, 1, 2, 3, 4, 6)]
BROKEN = [Fraction(n, 2) for n in (-5, -3, -1, 1, 3, 5)]


def close(got: Any, exact: Any, ulps: float = 64) -> None:
    exact = np.asarray(exact, dtype=float)
    assert np.isfinite(exact).all()
    np.testing.assert_allclose(np.asarray(got), exact, rtol=ulps * 2.0**-53, atol=0)


@st.composite
def products(draw: Any) -> tuple[Fraction, dict[str, Fraction]]:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
    coefficient = draw(st.sampled_from([1, -1, 4, Fraction(3, 7), Fraction(10) ** 80, Fraction(7, 10**90), 2**70]))
    return Fraction(coefficient), {n: draw(st.sampled_from(WHOLE + BROKEN)) for n in names}


def product_of(found: tuple[Fraction, dict[str, Fraction]]) -> Node:
    return mul(const(found[0]), *(power(tensor(n), e) for n, e in found[1].items()))


@given(products(), st.randoms())
@examples(200)
def test_joining_keeps_the_value_and_is_canonical(found: Any, rng: Any) -> None:
    """Same value at exact points; joining again, or other factors first, changes nothing."""
    node = product_of(found)
    result = joined(node)
    assert joined(result) is result
    factors = list(found[1].items())
    rng.shuffle(factors)
    cut = rng.randrange(len(factors) + 1)
    pieces = [joined(mul(*(power(tensor(n), e) for n, e in part))) for part in (factors[:cut], factors[cut:])]
    assert joined(mul(const(found[0]), *pieces)) is result
    values = {n: Fraction(rng.randrange(1, 50), rng.randrange(1, 50)) ** 2 for n in NAMES}
    assert exact_value(result, values) == exact_value(node, values)


@given(products())
@examples(100)
def test_negative_values_keep_their_kind(found: Any) -> None:
    """No root of a negative number becomes a number, and none is lost."""
    node = product_of(found)
    values = {n: Fraction((-1) ** i * (i + 2)) for i, n in enumerate(NAMES)}
    a, b = exact_value(node, values), exact_value(joined(node), values)
    assert (a != a) == (b != b)
    assert a != a or abs(float(a) - float(b)) <= 1e-14 * abs(float(a))


@pytest.mark.parametrize("name", ["x", "frequency", "E"])
@pytest.mark.parametrize("scale", [1e-250, 1e-120, 1.0, 1e120, 1e250])
@pytest.mark.parametrize("e", ["2", "3", "4", "(5/2)", "p", "(-2)"])
def test_a_power_of_a_quotient_has_the_range_of_the_quotient(name: str, scale: float, e: str) -> None:
    body = f"abs({name}[i,j])/m"
    texts = (
        f"m = max[j](abs({name}[i,j])); return y = sum[j](({body})**{e})",
        f"m = sum[j](abs({name}[i,j])); return y = sum[j](w[j]*({body})**{e})",
        f"m = max[j](abs({name}[i,j])); return y = ({body})**{e}",
    )
    rng = np.random.default_rng(3)
    for text in texts:
        spec = ra.parse(text)
        assert ra.parse(str(spec)) == spec
        arrays: dict[str, Any] = {name: scale * rng.uniform(0.5, 2, (2, 5)) * rng.choice([-1, 1], (2, 5))}
        arrays |= {"w": rng.uniform(1, 2, 5)} if "w[" in text else {}
        arrays |= {"p": 3.25} if "**p" in text else {}
        close(ra.reference(spec, **arrays), ra.reference(spec, exact=True, **arrays))


def test_python_and_text_give_the_same_graph() -> None:
    x = ra.tensors("x[j]")
    m = ra.max(ra.abs(x), "j")
    written = ra.parse("m = max[j](abs(x[j])); return y = sum[j]((x[j]/m)**2)")
    for body in ((x / m) ** 2, x**2 / m**2, x * x / m / m, (x / m) * (x / m), 1 / (m / x) ** 2):
        assert ra.Spec(y=ra.sum(body, "j")) == written


def test_constants_are_powers_like_others() -> None:
    """(x/c)² reaches us as x²/c²: a coefficient far from 1 goes back inside, whether it is a square or not."""
    x, w = ra.tensors("x[j] w[j]")
    for c in (1e200, 1e-200, 3e150):
        spec = ra.Spec(y=ra.sum(w * (x / c) ** 2 / 3, "j"))
        assert ra.parse(str(spec)) == spec
        arrays = {"x": c * np.array([1.0, -2.0, 0.5]), "w": np.array([1.0, 2.0, 3.0])}
        close(ra.reference(spec, **arrays), ra.reference(spec, exact=True, **arrays))


def test_near_constants_stay_where_they_are() -> None:
    x = tensor("x")
    assert joined(mul(const(4), power(x, 2))) is mul(const(4), power(x, 2))
    assert not any(n.op == "pow" and is_const(n.args[1], 0) for n in walk(joined(mul(ONE, power(x, 3)))))


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint32, np.uint64])
def test_quotients_of_integer_columns_do_not_wrap(dtype: Any) -> None:
    spec = ra.parse("m = max[j](abs(x[i,j])); return y = m*sqrt(sum[j]((x[i,j]/m)**2)), z = sum[j]((x[i,j]/m)**4)")
    top = np.iinfo(dtype).max // 2
    arrays = {"x": np.array([[top, top // 3, 1], [3, 4, 0]], dtype=dtype)}
    found, exact = ra.reference(spec, **arrays), ra.reference(spec, exact=True, **arrays)
    for name in found:
        close(found[name], exact[name])


@pytest.mark.parametrize(
    "text",
    [
        "m = max[j](abs(x[j])); return y = m*sqrt(sum[j]((x[j]/m)**2))",
        "m = max[j](abs(x[j])); return y = m*sum[j]((abs(x[j])/m)**(5/2))**(2/5)",
        "m = sum[j](x[j]); return y = sum[j]((x[j]/m)**2)",
        "u = mean[j](x[j]); v = mean[j]((x[j]-u)**2); return y = mean[j](((x[j]-u)/sqrt(v))**3)",
    ],
)
def test_forms_agree_at_scales_where_squares_overflow(text: str) -> None:
    form = ra.derive_incremental(ra.parse(text))
    rng = np.random.default_rng(5)
    for scale in (1e-100, 1.0, 1e140):
        arrays: dict[str, Any] = {"x": scale * rng.uniform(0.5, 2, 9)}
        exact = ra.reference(form.spec, exact=True, **arrays)
        np.testing.assert_allclose(form.compile("numpy")(**arrays), np.asarray(exact, dtype=float), rtol=1e-12)


def test_a_power_that_is_a_parameter_still_separates() -> None:
    form = ra.derive_incremental(ra.parse("m = max[j](abs(x[j])); return y = m*sum[j]((abs(x[j])/m)**p)**(1/p)"))
    arrays = {"x": np.array([3.0, -4.0, 1.0, 0.0]), "p": 3.5}
    close(form.compile("numpy")(**arrays), ra.reference(form.spec, exact=True, **arrays))


@pytest.mark.parametrize(
    "text",
    [
        "return y = sum[j]((x[j]/a[j])**2)",
        "return y = sum[j]((x[j]/(a[j] + 1))**2)",
        "return y = sum[j](x[j]**3/a[j]**3)/size[j]",
        "u = mean[j](x[j]/a[j]); return y = mean[j]((x[j]/a[j] - u)**2)",
        "return y = max[j]((x[j]/a[j])**4)",
    ],
)
def test_quotients_of_elements_stay_whole_in_forms(text: str) -> None:
    form = ra.derive_incremental(ra.parse(text))
    rng = np.random.default_rng(6)
    arrays: dict[str, Any] = {"x": rng.uniform(1, 2, 7) * 1e200, "a": rng.uniform(1, 2, 7) * 1e200}
    exact = np.asarray(ra.reference(form.spec, exact=True, **arrays), dtype=float)
    np.testing.assert_allclose(form.compile("numpy")(**arrays), exact, rtol=1e-12)
    parts = [form.accumulator() for _ in range(3)]
    for acc, (lo, hi) in zip(parts, [(0, 2), (2, 2), (2, 7)], strict=True):
        acc.update(**{name: a[lo:hi] for name, a in arrays.items()})
    parts[0].merge(parts[1])
    parts[0].merge(parts[2])
    np.testing.assert_allclose(parts[0].result(), exact, rtol=1e-12)
