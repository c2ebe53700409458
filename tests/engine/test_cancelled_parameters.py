"""A factor of parameters that cancels leaves the form without its pole and its domain: there it is NaN all the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import redalg as ra

SHAPES = (
    "sum[j]({f}*x[j])/{f}",
    "mean[j]({f}*x[j])/{f}",
    "sum[j]({f}*x[j])/{f}**2",
    "sum[j]({f}*x[j]) - {f}*sum[j](x[j])",
    "sum[j](x[j]/{f}) - sum[j](x[j])/{f}",
    "sum[j]({f}*x[j])/sum[j]({f}*w[j])",
    "sum[j](where(w[j] > 0.7, {f}*x[j], 0))/{f}",
    "max[j](x[j] - sum[j]({f}*x[j])/{f})",
    "argmax[j](x[j] + sum[j]({f}*w[j])/{f})",
    "where(max[j](x[j]) > 3, sum[j]({f}*x[j])/{f}, 0)",
    "x[j] - sum[j]({f}*x[j])/{f}",
    "cast(sum[j]({f}*x[j])/{f}, int8)",
    "where(sum[j]({f}*x[j])/{f} > 1/3, 3/2, sum[j](x[j]))",
    "where(sum[j]({f}*x[j])/{f} > 1/3, log(q), 3/2)",
    "where(not (sum[j]({f}*x[j])/{f} <= 1/3) and max[j](x[j]) > 0, 3/2, sum[j](x[j]))",
    "max[j](where(sum[j]({f}*x[j])/{f} > 1/3, x[j], -x[j]))",
    "sum[j](x[j])*(1 + argmax[j](x[j] + sum[j]({f}*w[j])/{f}))",
)
FACTORS = ("q", "q**2", "(q - 30)", "log(q)", "sqrt(q)", "(q*(q - 30))", "where(q > 0, q, 0)", "exp(q)")
BRANCHES = ("where(q > 0, log1p(q), q)", "where(q > 1, log(q), 1/q)", "where(q <= 1, q, sqrt(q - 1))")  # with domains
PARAMETERS = np.array([0.0, -0.0, 1.0, 30.0, 0.5, -1.0, -800.0, np.inf, -np.inf, np.nan])
ELEMENTS = ((1.0, 2.0, 4.0), (1.0, -2.0, 4.0), (0.0, 0.0, 0.0), (1.0, np.inf, 2.0))


def text(shape: str, factor: str) -> str:
    return "return y = " + re.sub(r"\bq\b", "q[i]", shape.format(f=factor))


def results(form: Any, arrays: dict[str, Any]) -> Iterator[np.ndarray]:
    """Of a call, and of an accumulator that is given unequal pieces, one of them empty."""
    yield np.asarray(form.compile("numpy")(**arrays))
    if arrays["x"].size and "j" not in form.spec.output_axes["y"]:
        acc = form.accumulator(q=arrays["q"])
        for piece in (slice(0, 0), slice(0, 1), slice(1, None)):
            acc.update(**{name: a[piece] for name, a in arrays.items() if name != "q"})
        yield np.asarray(acc.result())


def judge(form: Any, arrays: dict[str, Any]) -> None:
    arrays = {name: a for name, a in arrays.items() if name in {d.name for d in form.spec.tensors}}
    wanted = np.asarray(ra.reference(form.spec, **arrays))
    for got in results(form, arrays):
        void = got == -1 if got.dtype.kind == "i" else np.isnan(got)
        same = (got == wanted) | np.isclose(got, wanted, rtol=1e-9, equal_nan=True)
        context = f"{got} and not {wanted} for {arrays}"
        assert (same | void).all(), f"another number: {context}"
        assert same.all() or "finite_stage_values" in form.assumptions, f"nothing said: {context}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("shape", SHAPES)
def test_there_is_a_number_only_where_the_definition_has_it(shape: str) -> None:
    for factor in (*FACTORS, *BRANCHES):
        form = ra.derive_incremental(ra.parse(text(shape, factor)), axis="j")
        q = PARAMETERS
        if factor == "exp(q)":  # forms have a wider range than the reference, and it rounds
            q = q[(np.abs(q) < 30) | ~np.isfinite(q)]
        for elements in (*ELEMENTS, ()):
            judge(form, {"q": q, "x": np.array(elements), "w": np.array([0.5, 1.0, 2.0][: len(elements)])})


@pytest.mark.filterwarnings("ignore")
def test_a_parameter_without_an_axis_and_sums_over_its_axis() -> None:
    alone = ra.derive_incremental(ra.parse("return y = sum[j](x[j]*s)/s"))
    whole = ra.derive_incremental(ra.parse("return y = sum[i](sum[j](q[i]*x[j])/q[i])"), axis="j")
    for value in PARAMETERS:
        for x in map(np.array, ELEMENTS):
            wanted = ra.reference(alone.spec, x=x, s=value), ra.reference(whole.spec, x=x, q=np.array([value, 2.0]))
            np.testing.assert_allclose(alone.compile("numpy")(x=x, s=value), wanted[0])
            np.testing.assert_allclose(whole.compile("numpy")(x=x, q=np.array([value, 2.0])), wanted[1])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "body",
    [
        "sum[j](sum[d](q*z[j,d]))/q",
        "sum[j](sum[d](q*z[j,d])**2)/q**2",
        "sum[j](sum[d](v[d]*q*z[j,d]))/q",
        "sum[j](max[d](z[j,d])*q)/q",
    ],
)
def test_sums_along_an_axis_of_their_own_may_be_empty(body: str) -> None:
    form = ra.derive_incremental(ra.parse(f"return y = {body}"), axis="j")
    for n, m in ((3, 2), (0, 2), (3, 0), (0, 0)):
        for q in PARAMETERS:
            arrays = {"q": q, "z": np.arange(1.0, 1 + n * m).reshape(n, m), "v": np.arange(1.0, 1 + m)}
            arrays = {d.name: arrays[d.name] for d in form.spec.tensors}
            np.testing.assert_allclose(
                form.compile("numpy")(**arrays), ra.reference(form.spec, **arrays), err_msg=f"{q}"
            )


@pytest.mark.parametrize("factor", [*FACTORS, *BRANCHES])
def test_the_guard_is_proved(factor: str) -> None:
    form = ra.derive_incremental(ra.parse(text(SHAPES[0], factor)), axis="j")
    form.certificate.verify()
    assert not form.assumptions


@pytest.mark.parametrize("body", ["sum[j](q*x[j])", "sum[j](x[j])/q", "sum[j](exp(x[j]/q))", "max[j](x[j]*q)/q"])
def test_what_does_not_cancel_has_no_guard(body: str) -> None:
    form = ra.derive_incremental(ra.parse(f"return y = {body}"))
    assert "nan" not in str(form.explain())
