"""Functions and reductions that are spelled out in terms of others, against 50 digits and against NumPy."""

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import redalg as ra
from redalg.errors import RedalgError

inf, nan = math.inf, math.nan
MP = mpmath.MPContext()
MP.dps = 50
SPECIAL = [0.0, -0.0, inf, -inf, nan, 5e-324, -5e-324, 2.0**-1074, 1e-310, 1e300, -1e300, 709.0, -745.0, 36.7, -36.7]
VALUES = st.one_of(st.sampled_from(SPECIAL), st.floats(width=64), st.floats(-40, 40))
x, y, X = ra.tensors("x[j] y[j] X[j,a]")


def silu(t: Any) -> Any:
    return t / (1 + MP.exp(-t)) if MP.isfinite(t) else nan if t != inf else inf


def gelu(t: Any) -> Any:
    if not MP.isfinite(t):
        return inf if t == inf else nan
    return t * MP.erfc(-t / MP.sqrt(2)) / 2 if abs(t) < 60 else max(t, 0)


def softplus(t: Any) -> Any:
    if t != t or abs(t) > 1e4:
        return max(t, 0) if t == t else nan
    return MP.log1p(MP.exp(t))


def exp2(t: Any) -> Any:
    if t != t or abs(t) > 1e5:
        return nan if t != t else inf if t > 0 else 0
    return MP.mpf(2) ** t


DEFINITIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any], int]] = {  # and units in the last place
    "softplus": (ra.softplus, softplus, 4),
    "silu": (ra.silu, silu, 6),
    "gelu": (ra.gelu, gelu, 2000),  # a relative error of x/√2 is one of 2x² in the tail
    "log2": (ra.log2, lambda t: nan if t != t or t < 0 else -inf if t == 0 else MP.log(t, 2), 2),
    "exp2": (ra.exp2, exp2, 2),
}


def rounded(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return inf if value > 0 else -inf


@pytest.mark.parametrize("name", sorted(DEFINITIONS))
@given(values=st.lists(VALUES, min_size=0, max_size=8))
@example(values=SPECIAL)
def test_values_are_those_of_fifty_digits(name: str, values: list[float]) -> None:
    build, definition, units = DEFINITIONS[name]
    found = ra.reference(ra.Spec(y=build(x)), x=np.array(values))
    for t, value in zip(values, found, strict=True):
        true = rounded(definition(MP.mpf(t)))
        if true != true or math.isinf(true):
            assert value == true or (value != value and true != true), (t, value, true)
        else:
            subnormal = 5e-324 * (1 + abs(t) if name in ("silu", "gelu") and true else 1)  # a factor that was one
            assert abs(value - true) <= units * max(np.spacing(abs(true)), subnormal), (t, value, true)


@given(a=VALUES, b=VALUES)
@example(a=-inf, b=-inf)
@example(a=inf, b=inf)
@example(a=inf, b=-inf)
@example(a=1e300, b=1e300)
def test_logaddexp_and_clip_and_isnan_are_numpys(a: float, b: float) -> None:
    spec = ra.Spec(l=ra.logaddexp(x, y), c=ra.clip(x, -1, y), n=ra.isnan(x))
    found = ra.reference(spec, x=np.array([a]), y=np.array([b]))
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(found["l"], np.logaddexp([a], [b]), rtol=1e-15, atol=5e-324)
        np.testing.assert_array_equal(found["c"], np.minimum(np.maximum([a], -1), [b]))
    assert found["n"].tolist() == [a != a]


DATA = [np.array([1.5]), np.array([3.0, 1.0]), np.array([2.0, 2.0, 2.0]), np.array([1e-3, -7.0, 4.0, 4.0, 0.0])]


@pytest.mark.parametrize("data", DATA, ids=len)
def test_moments_and_norms_are_numpys(data: np.ndarray) -> None:
    other = data[::-1] * 3 + 1
    spec = ra.Spec(
        v=ra.var(x, "j"),
        s=ra.std(x, "j"),
        c=ra.cov(x, y, "j"),
        two=ra.norm(x, "j"),
        one=ra.norm(x, "j", p=1),
        top=ra.norm(x, "j", p=ra.inf),
        three=ra.norm(x, "j", p=3),
        n=ra.count(x > 1, "j"),
    )
    form = ra.derive_incremental(spec)
    wanted = {
        "v": data.var(),
        "s": data.std(),
        "c": np.cov(data, other, ddof=0)[0, 1],
        "two": np.linalg.norm(data),
        "one": np.abs(data).sum(),
        "top": np.abs(data).max(),
        "three": np.linalg.norm(data, 3),
        "n": (data > 1).sum(),
    }
    for found in (ra.reference(spec, x=data, y=other), form.compile("numpy")(x=data, y=other)):
        for name, value in wanted.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-13, atol=1e-14)
    assert form.certificate.verify()


@pytest.mark.parametrize("data", [*DATA, np.array([-inf, 0.0, -inf]), np.array([1000.0, -1000.0])], ids=str)
def test_softmax_of_any_row(data: np.ndarray) -> None:
    spec = ra.Spec(p=ra.softmax(x, "j"), l=ra.log_softmax(x, "j"))
    found = ra.derive_incremental(spec).compile("numpy")(x=data)
    weights = np.exp(data - data.max())
    np.testing.assert_allclose(found["p"], weights / weights.sum(), rtol=1e-14)
    np.testing.assert_allclose(found["l"], data - data.max() - np.log(weights.sum()), rtol=1e-14, atol=1e-15)


def test_ddof_divides_as_written() -> None:
    data = np.array([1.0, 4.0, 7.0])
    spec = ra.Spec(v=ra.var(x, "j", ddof=1), s=ra.std(x, "j", ddof=2), c=ra.cov(x, y, "j", ddof=1))
    found = ra.reference(spec, x=data, y=2 * data)
    assert (found["v"], found["s"], found["c"]) == (9.0, math.sqrt(18.0), 18.0)
    assert math.isnan(ra.reference(ra.Spec(v=ra.var(x, "j", ddof=1)), x=[3.0]))


@pytest.mark.parametrize(
    ("text", "build"),
    [
        ("var[j](x[j])", lambda: ra.var(x, "j")),
        ("var[j:1](x[j])", lambda: ra.var(x, "j", ddof=1)),
        ("std[j:1](x[j])", lambda: ra.std(x, "j", ddof=1)),
        ("cov[j](x[j], y[j])", lambda: ra.cov(x, y, "j")),
        ("norm[j](x[j])", lambda: ra.norm(x, "j")),
        ("norm[j:inf](x[j])", lambda: ra.norm(x, "j", p=ra.inf)),
        ("norm[j:3](x[j])", lambda: ra.norm(x, "j", p=3)),
        ("count[j](x[j] > 0)", lambda: ra.count(x > 0, "j")),
        ("softmax[j](x[j])", lambda: ra.softmax(x, "j")),
        ("log_softmax[j](x[j])", lambda: ra.log_softmax(x, "j")),
        ("silu(x[j])", lambda: ra.silu(x)),
        ("gelu(x[j])", lambda: ra.gelu(x)),
        ("clip(x[j], 0, inf)", lambda: ra.clip(x, 0, ra.inf)),
        ("logaddexp(x[j], y[j])", lambda: ra.logaddexp(x, y)),
        ("where(isnan(x[j]), 0, x[j])", lambda: ra.where(ra.isnan(x), 0, x)),
        ("softplus(x[j])", lambda: ra.softplus(x)),
        ("log2(x[j]) + exp2(x[j])", lambda: ra.log2(x) + ra.exp2(x)),
    ],
)
def test_text_and_python_spell_the_same(text: str, build: Callable[[], Any]) -> None:
    parsed = ra.parse(f"return r = {text}")
    assert parsed.outputs == ra.Spec(r=build()).outputs
    assert ra.parse(str(parsed)) == parsed


def test_words_of_spellings_stay_free_as_names() -> None:
    spec = ra.parse("var = sum[j](norm[j] * count[j]); return var")
    assert [t.name for t in spec.tensors] == ["norm", "count"]
    assert ra.parse(str(spec)) == spec


@pytest.mark.parametrize("word", ["inf", "nan"])
def test_inf_and_nan_are_words(word: str) -> None:
    for declare in (lambda: ra.tensors(f"{word}[j]"), lambda: ra.scalar(word), lambda: ra.tensors(f"x[{word}]")):
        with pytest.raises(RedalgError, match=word):
            declare()
    assert ra.parse(f"return r = max[j](where(x[j] > 0, x[j], -{word}))").outputs["r"].op == "reduce"
    assert ra.inf is ra.oo and ra.Spec(r=x * 0 + ra.nan).outputs["r"].attr == "nan"


@pytest.mark.parametrize(
    "refused",
    [
        lambda: ra.var(x, "j", ddof=-1),
        lambda: ra.var(x, "j", ddof=0.5),
        lambda: ra.var(x, "i"),
        lambda: ra.norm(x, "j", p=0.5),
        lambda: ra.count(x, "j"),
        lambda: ra.parse("return r = var[j:1](x[j], y[j])"),
        lambda: ra.parse("return r = count[j:1](x[j] > 0)"),
        lambda: ra.parse("return r = clip(x[j], 1)"),
    ],
)
def test_what_has_no_meaning_is_refused(refused: Callable[[], Any]) -> None:
    with pytest.raises(RedalgError) as caught:
        refused()
    assert all(part in str(caught.value) for part in ("refused", "where", "why", "try"))
