"""Specs that ended in an internal error while they were derived, and whose kind drawn specs come upon: now verdicts."""

from __future__ import annotations

import numpy as np
import pytest

import redalg as ra
from redalg.errors import Undecided
from redalg.graph import node as g
from tests.support.sample import one_in
from tests.support.witness_recompute import check

SHARES = "tensors k[j] integer; m = max[j](k[j]); return y = mean[j](softmax[j](k[j]*m))"


@pytest.mark.parametrize("target", ["numpy", "cpu"])
@pytest.mark.parametrize("length", [1, 2, 7])
def test_weights_that_sum_to_one_leave_the_count(target: str, length: int) -> None:
    """No pass keeps anything: the length, where it is known."""
    form = ra.derive_incremental(ra.parse(SHARES))
    k = np.arange(length) - 2
    assert form.compile(target)(k=k) == pytest.approx(1 / length)
    parts = form.accumulator()
    for low, high in ((0, 1), (1, 1), (1, length)):
        parts.update(k=k[low:high])
    assert parts.result() == pytest.approx(1 / length)


def test_a_cancellation_without_an_anchor_is_undecided() -> None:
    """Centring hides what the raw analysis saw, and there is no anchor to do without."""
    text = "tensors b[j] bool, x[j], X[j,d], c[d]; v = count[j](b[j] or x[j] <= c[d]); "
    found = ra.verdict(ra.parse(text + "return y = mean[j](sum[d](softmax[j](maximum(X[j,d], v))))"), "j", 4)
    assert isinstance(found, Undecided) and found.missing


@pytest.mark.parametrize("stage", ["sum[j](max[d](exp(X[j,d] - m)))", "sum[j](sum[d](exp(exp(X[j,d] - m))))"])
def test_a_stage_beside_one_of_its_own_is_refuted_or_undecided(stage: str) -> None:
    """A witness holds in front of other code, or what is missing is said."""
    found = ra.verdict(ra.parse(f"m = max[j](X[j,d]); v = {stage}; return y = v, z = m"), "j")
    if isinstance(found, ra.NotDecomposable):
        found.certificate.verify()
        check(found.witness, found.refuted[1], sample=10)
    else:
        assert isinstance(found, Undecided) and "whether an output needs" in found.missing


@pytest.mark.parametrize(
    "text",
    [
        "v = std[j](X[j,d]); return y = sum[j](sum[d]((x[j] - v)/v))",
        "v = std[j](X[j,d]**3); return y = mean[j](sum[d](where(c[d] > 0, (x[j] - v)/v, 0)))",
        "v = std[j](X[j,d]); return y = sum[j](sum[d](c[d]*(x[j] - v)/v))",
        "v = std[j](X[j,d]); return y = mean[j](sum[d]((x[j] - v)/v)**2)",
    ],
)
def test_an_axis_that_roots_cancel_from_counts_its_positions(text: str) -> None:
    """``v/v`` of one inner axis, where v is a root of what slots hold: what is left of the sum is a length."""
    form, rng = ra.derive_incremental(ra.parse(text), axis="j"), np.random.default_rng(0)
    drawn = {"X": rng.normal(size=(7, 3)), "x": rng.normal(size=7), "c": np.array([2.0, -1.0, 0.5])}
    arrays = {t.name: drawn[t.name] for t in form.spec.tensors}
    expected = ra.reference(form.spec, **arrays)
    parts = form.accumulator(**{n: a for n, a in arrays.items() if n == "c"})
    for low, high in ((0, 2), (2, 2), (2, 7)):
        parts.update(**{n: a[low:high] for n, a in arrays.items() if n != "c"})
    assert form.compile("numpy")(**arrays) == pytest.approx(expected)
    assert parts.result() == pytest.approx(expected)


MASKED = "tensors x[j], b[j] bool, z[j]; u = where(b[j], x[j], -oo); m = max[j](u); "
DEVIATION = "h = std[j](z[j]); "
EXTREMA = (
    MASKED + "return y = z[j]*max[j](exp(u - m))",
    MASKED + "return y = sum[j](z[j]*max[j](exp(u - m)))",
    MASKED + "return y = min[j](exp(u - m)) + sum[j](z[j])",
    "m = max[j](x[j]); return y = max[j](exp(x[j]/4 - m/4)), z = min[j](exp(x[j] - m))",
    DEVIATION + "return y = argmin[j](x[j]/h)/2",
    DEVIATION + "return y = argmax[j](x[j]/h)/max[j](z[j])",
)


@pytest.mark.parametrize(("given", "text"), one_in(3, ["all", "some", "none"], EXTREMA))
def test_extrema_of_exponentials_and_positions_in_results(text: str, given: str) -> None:
    """Where all is masked the exponentials are 0; a position by a deviation of 0 leaves NaN, and no other number."""
    form = ra.derive_incremental(ra.parse(text), axis="j")
    kept = np.array({"all": [True] * 4, "some": [False, True, False, False], "none": [False] * 4}[given])
    x, deviates = np.array([1.5, -2.0, 0.5, 3.0]), given != "none"
    masked = "bool" in text or "std" in text  # by a condition, or not at all
    drawn = {
        "x": x if masked else np.where(kept, x, -np.inf),
        "b": kept,
        "z": np.arange(4.0) if deviates or "bool" in text else np.full(4, 2.0),
    }
    arrays = {t.name: drawn[t.name] for t in form.spec.tensors}
    true, found = (as_dict(f) for f in (ra.reference(form.spec, **arrays), form.compile("numpy")(**arrays)))
    for name, value in true.items():
        nan = np.isnan(found[name])
        np.testing.assert_allclose(np.where(nan, value, found[name]), value, err_msg=name)
        assert not nan.any() or "std" in text


def as_dict(results: object) -> dict[str, np.ndarray]:
    return results if isinstance(results, dict) else {"y": np.asarray(results)}


def test_two_readings_of_a_window_are_two_nodes() -> None:
    """Along r and along a copy of r: digests order the factors of a product, and name its slots."""
    read = ra.parse("tensors L[2*j+r:3-1]; return y = sum[j](L[2*j+r:3-1])").tensors[0]
    node = g.Node("tensor", (), read)
    assert len({node.digest, *(g.rename_axes(node, {"r": name}).digest for name in ("r~1", "r'", "q"))}) == 4
    text = "tensors x[j], L[2*j+r:3-1]; m = max[j](x[j]); "
    form = ra.derive_incremental(ra.parse(text + "return y = var[j](sum[r](where(x[j] == m, L[2*j+r:3-1], 0)))"), "j")
    arrays = {"x": np.array([2.0, 1.0, 2.0, 0.0]), "L": np.array([1.0, 3.0, -2.0, 0.5, 4.0, -1.0, 2.0, 2.5])}
    assert form.compile("numpy")(**arrays) == pytest.approx(ra.reference(form.spec, **arrays))


SCORES = ("(x[j] + z[j])*w[j]", "sum[d](floor(c[d]*X[j,d]))*(max[d](abs(X[j,d])) + 1)", "(x[j] + 1)*w[j]")


@pytest.mark.parametrize("result", ["max[j](p)/sum[j](p)", "max[j](p)", "min[j](exp((u - m)*2))"])
@pytest.mark.parametrize("score", SCORES)
def test_scores_that_are_a_product_with_a_sum_of_elements(score: str, result: str) -> None:
    """No statistic is in the sum: the product is an element, and no factor of it scales an exponent."""
    form = ra.derive_incremental(ra.parse(f"u = {score}; m = max[j](u); p = exp(u - m); return y = {result}"))
    rng = np.random.default_rng(1)
    drawn = {n: rng.uniform(0.5, 2, (4,) + (3,) * (n == "X")) for n in "xzwX"} | {"c": np.array([2.0, -1.0, 0.5])}
    for special in (1.0, np.inf, -np.inf):
        arrays = {t.name: drawn[t.name].copy() for t in form.spec.tensors}
        arrays["X" if "X" in arrays else "x"].flat[0] *= special
        with np.errstate(all="ignore"):
            wanted, found = ra.reference(form.spec, **arrays), form.compile("numpy")(**arrays)
        assert found == pytest.approx(wanted, nan_ok=True) or np.isnan(found) and form.assumptions


@pytest.mark.parametrize(
    "divisor", ["w[j]*size[j] - w[j]", "w[j]*size[j]**2 - 2*w[j]", "x[j]*w[j]*size[j] - w[j]*x[j]"]
)
@pytest.mark.parametrize("text", ["sum[j](x[j]/({}))", "prod[j](x[j]/({}))", "var[j](1/({}))", "sum[j](relu(1/({})))"])
def test_divisors_of_elements_and_their_number(text: str, divisor: str) -> None:
    """That such a divisor is not 0 is no condition on elements alone: nothing keeps it while they come."""
    form, rng = ra.derive_incremental(ra.parse(f"return y = {text.format(divisor)}")), np.random.default_rng(0)
    for drawn in ([2.0, -1.0, 3.0, 0.5], [1.0, 0.0, 2.0], [np.inf, 1.0, -4.0], [np.nan, 1.0], [5.0]):
        given = {"w": np.array(drawn), "x": rng.normal(size=len(drawn))}
        given = {t.name: given[t.name] for t in form.spec.tensors}
        with np.errstate(all="ignore"):
            expected, parts = ra.reference(form.spec, **given), form.accumulator()
            for low, high in ((0, 1), (1, 1), (1, len(drawn))):
                parts.update(**{n: a[low:high] for n, a in given.items()})
            for found in (form.compile("numpy")(**given), parts.result()):
                assert np.isnan(found) or found == pytest.approx(expected), drawn


@pytest.mark.parametrize("text", ["maximum({}, -inf)", "minimum(inf, {}, inf)", "clip({}, -inf, inf)"])
def test_bounds_that_are_infinite_leave_an_element_as_it_is(text: str) -> None:
    spec = ra.parse(f"return y = sum[j]({text.format('x[j] - max[j](x[j])')})")
    assert spec.outputs == ra.parse("return y = sum[j](x[j] - max[j](x[j]))").outputs


DECISIONS = (
    "where({a} > 3, 1, 2)",
    "where({a} > {b}, sum[j](x[j]), 2)",
    "where({a} == sum[j](x[j]), sum[j](x[j]), 2)",
    "floor({a})",
    "sign({a} - 3)",
    "cast({a}, int8)",
    "argmax[j](x[j] + {a})",
)


@pytest.mark.parametrize("decision", DECISIONS)
@pytest.mark.parametrize("factor", ["tanh(q)", "log1p(q)", "tanh(p*q)", "where(q > 0, tanh(q), q)"])
def test_what_the_last_digit_decides_tells_no_form_from_its_definition(decision: str, factor: str) -> None:
    """Exact points have integers, at which a quotient of functions is as large as what it is compared with."""
    a, b = (f"sum[j]({f}*x[j])/{f}" for f in (factor, factor.replace("tanh", "expm1")))
    form = ra.derive_incremental(ra.parse("return y = " + decision.format(a=a, b=b)), axis="j")
    form.certificate.verify(allow={"tested", "unknown"})
    arrays = {"x": np.array([0.75, 4.0, -1.5]), "q": 0.7, "p": 1.3}
    arrays = {d.name: arrays[d.name] for d in form.spec.tensors}
    if "{b}" not in decision and "==" not in decision:  # there it is the last digit of float64
        np.testing.assert_allclose(form.compile("numpy")(**arrays), ra.reference(form.spec, **arrays))


MASKED = "l = log_softmax[j](where(m[j] > 0, x[j], -oo)); return y = "
BESIDE = (
    "sum[j](where(b[j] > 0, x[j]*sum[j](exp(l)), 0))",
    "sum[j](x[j]*sum[j](exp(l)))",
    "where(b[j] > 0, x[j]*sum[j](exp(l)), 0)",
    "mean[j](x[j] - sum[j](exp(l)*x[j]))",
    "max[j](x[j]*sum[j](exp(l)))",
    "logsumexp[j](where(b[j] > 0, x[j] + sum[j](exp(l)), -oo))",
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("body", BESIDE)
def test_weights_of_a_mask_beside_another_one(body: str) -> None:
    """Weights of nothing add up to 0, and those of something to 1: separations are ones of numbers."""
    form = ra.derive_incremental(ra.parse(MASKED + body), axis="j")
    form.certificate.verify(allow={"tested", "unknown"})
    x = np.array([0.5, -1.0, 2.0, 1.0])
    for m in ((1, -1, 1, 1), (-1, -1, -1, 1), (-1, -1, -1, -1)):
        for b in ((1, 1, -1, 1), (-1, -1, -1, -1)):
            for n in (4, 1, 0):
                arrays = {"x": x[:n], "m": np.array(m[:n]), "b": np.array(b[:n])}
                arrays = {d.name: arrays[d.name] for d in form.spec.tensors}
                got, wanted = form.compile("numpy")(**arrays), ra.reference(form.spec, **arrays)
                void = np.isnan(got) & ("finite_stage_values" in form.assumptions)
                assert (void | np.isclose(got, wanted, equal_nan=True)).all(), f"{got} and not {wanted} of {arrays}"
