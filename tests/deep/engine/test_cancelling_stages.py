"""Stages without a form of their own that cancel in every output: whatever stands beside them, a form is found."""

from __future__ import annotations

from itertools import cycle

import numpy as np
import pytest

import redalg as ra
from tests.support.simulated import run as simulated

STAGES = (  # pairs whose difference has a form, neither of which has one
    "u = {c}*mean[j](x[j]); A = sum[j](relu(x[j]-u)); B = sum[j](relu(u-x[j]))",
    "u = {c}*mean[j](x[j]); A = sum[j](maximum(x[j], u)); B = sum[j](abs(x[j]-u)/2)",
)
OUTPUTS = (
    "y = A-B; return y, z = {c}*x[j]+y",
    "return z = x[j]+{c}*A-{c}*B",
    "return y = 3*A-3*B, z = x[j]*(A-B)",
    "return z = (A+x[j]-B)**2",
    "return z = exp(x[j]/9-(A-B)/50), y = A-B",
    "return z = A*u+x[j]-B*u",
    "return z = x[j]*exp(A/9)*exp(-B/9)",
    "return z = where(x[j]>{c}, A-B, B-A)",
)


@pytest.mark.parametrize("stages", STAGES)
def test_what_cancels_is_found_beside_elements(stages: str) -> None:
    rng = np.random.default_rng(2)
    for c, outputs in zip(cycle((2, 5)), OUTPUTS, strict=False):
        spec = ra.parse(f"{stages}; {outputs}".format(c=c))
        arrays = {d.name: rng.uniform(-2, 2, 7 if "j" in d.axes else 3) for d in spec.tensors}
        form = ra.derive_incremental(spec, axis="j")
        found, wanted = form.compile("numpy")(**arrays), ra.reference(spec, **arrays)
        for name in spec.outputs:
            got, want = (v[name] if isinstance(v, dict) else v for v in (found, wanted))
            assert got == pytest.approx(want, rel=1e-10, abs=1e-10), spec


@pytest.mark.parametrize("outputs", ["return z = x[j]+2*A-B", "return y = A-B, z = x[j]+A", "return z = x[j]*A+B"])
def test_what_does_not_cancel_is_refused(outputs: str) -> None:
    for stages in STAGES:
        verdict = ra.verdict(ra.parse(f"{stages}; {outputs}".format(c=2)), axis="j")
        assert isinstance(verdict, ra.NotDecomposable)


# --- nothing left but elements --------------------------------------------------------------------------------------

NOTHING = (
    "return y = x[j]*sum[j](x[j] - mean[j](x[j]))",
    "return y = x[j] + sum[j](x[j] - mean[j](x[j]))",
    "return y = z[j]*sum[j](x[j] - {c}*mean[j](x[j])/{c}) + w[j]",
    "return y = w[j]*z[j]*sum[j](x[j] - mean[j](x[j]))",
    "return y = index(j)*sum[j](x[j] - mean[j](x[j])), t = sum[j](x[j] - mean[j](x[j]))",
    "return y = x[j]*size[j] + sum[j](x[j] - mean[j](x[j]))",
    "u = mean[j](x[j]); A = sum[j](relu(x[j]-u)); B = sum[j](relu(u-x[j])); return y = x[j]*A - x[j]*B",
    "u = mean[j](x[j]); A = sum[j](relu(x[j]-u)); B = sum[j](relu(u-x[j])); return y = (z[j]+{c})*A - B*({c}+z[j])",
    "u = mean[j](x[j]); A = sum[j](abs(x[j]-u)+x[j]); B = sum[j](abs(x[j]-u)); return y = z[j]*A + A/2 - B*(z[j]+1/2)",
    "u = mean[j](x[j]); A = sum[j](abs(x[j]-u)+x[j]); B = sum[j](abs(x[j]-u)); return y = exp(z[j]*A/{c}-z[j]*B/{c})",
    "u = mean[j](x[j]); A = sum[j](abs(x[j]-u)+x[j]); B = sum[j](abs(x[j]-u)); return y = maximum(x[j]*A-x[j]*B, 1)",
)


def as_named(spec: ra.Spec, found: object) -> dict[str, np.ndarray]:
    return found if isinstance(found, dict) else {next(iter(spec.outputs)): found}  # type: ignore[dict-item]


def in_pieces(form: ra.Form, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Two unequal parts and an empty one."""
    parts = []
    for at in (slice(0, 2), slice(2, 2), slice(2, None)):
        parts.append(form.accumulator(start=at.start))
        parts[-1].update(**{name: x[at] for name, x in arrays.items()})
    for part in parts[1:]:
        parts[0].merge(part)
    total = [o.name for o in form.plan.outputs if not o.keeps_axis]
    some = len(total) < len(form.plan.outputs)
    kept = as_named(form.spec, parts[0].apply(start=0, **arrays)) if some else {}
    return {**(as_named(form.spec, parts[0].result()) if total else {}), **kept}


@pytest.mark.parametrize("text", NOTHING)
def test_outputs_keep_their_axis_where_all_stages_cancel(text: str) -> None:
    rng = np.random.default_rng(4)
    spec = ra.parse(text.format(c=3))
    arrays = {d.name: rng.uniform(0.5, 2, 5) for d in spec.tensors}
    form = ra.derive_incremental(spec)
    wanted = as_named(spec, ra.reference(spec, **arrays))
    for found in (form.compile("numpy")(**arrays), in_pieces(form, arrays), simulated(form, arrays)[0]):
        for name, want in wanted.items():
            np.testing.assert_allclose(as_named(spec, found)[name], want, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("text", NOTHING)
def test_what_cancels_hides_no_nan(text: str) -> None:
    """A form is NaN wherever its definition is; where it alone is, it says so."""
    rng = np.random.default_rng(5)
    spec = ra.parse(text.format(c=2))
    form = ra.derive_incremental(spec)
    for d in spec.tensors:
        for special in (np.nan, np.inf, -np.inf):
            arrays = {t.name: rng.uniform(-2, 2, 4) for t in spec.tensors}
            arrays[d.name][1] = special
            with np.errstate(all="ignore"):
                wanted = as_named(spec, ra.reference(spec, **arrays))
                found = as_named(spec, form.compile("numpy")(**arrays))
            for name, want in wanted.items():
                got = np.broadcast_to(found[name], np.shape(want))
                assert np.isnan(got[np.isnan(want)]).all(), (d.name, special)
                alone = np.isnan(got) & ~np.isnan(want)
                assert not alone.any() or "finite_stage_values" in form.assumptions


@pytest.mark.parametrize("body", ["x[j]*A-x[j]*B", "(x[j]+A-B-u)**2", "(A-B)*z[j]*x[j]"])
@pytest.mark.parametrize("pair", ["abs(x[j]-u)+x[j] abs(x[j]-u)", "relu(x[j]-u) relu(u-x[j])"])
def test_guards_ask_no_stage_without_a_form(body: str, pair: str) -> None:
    """Measured before: 10 GB and no end, for a guard that waited for a stage that had cancelled."""
    first, second = pair.split()
    stages = f"u = mean[j](x[j]); A = sum[j]({first}); B = sum[j]({second})"
    spec = ra.parse(f"{stages}; return y = sum[j]({body}) + A - B")
    arrays = {d.name: np.random.default_rng(6).uniform(0.5, 2, 6) for d in spec.tensors}
    found = ra.derive_incremental(spec).compile("numpy")(**arrays)
    np.testing.assert_allclose(found, ra.reference(spec, **arrays), rtol=1e-9, atol=1e-12)


# --- nothing over nothing -------------------------------------------------------------------------------------------

NUMERATORS = (
    "sum[j](x[j] - mean[j](x[j]))",
    "max[j](x[j] - max[j](x[j]))",
    "min[j](x[j] - min[j](x[j]))",
)
DIVISORS = (
    "argmin[j](x[j])",
    "(1 - argmax[j](v[j]))",
    "(2 - sum[j](v[j]))",
    "(max[j](v[j]) - 1)**2",
    "sqrt(sum[j](v[j]**2))",
)
HIDING = ("{n}/{d}", "sum[j](v[j]) + {n}/{d}", "2*{n}*x[j]/{d}**3")


@pytest.mark.parametrize("divisor", DIVISORS)
def test_what_has_cancelled_is_divided_by_all_the_same(divisor: str) -> None:
    """0/0 is NaN, whatever the form has simplified; numbers are such that the definition rounds nothing."""
    rng = np.random.default_rng(len(divisor))
    for numerator, hiding in zip(NUMERATORS, HIDING, strict=True):
        form = ra.derive_incremental(ra.parse("return y = " + hiding.format(n=numerator, d=divisor)), axis="j")
        seen = {True: 0, False: 0}
        for trial in range(24):
            x, v = rng.integers(-2, 3, 4) * 4.0, rng.choice([0.0, 1.0, 1.0, -1.0], 4)
            v[0] = np.nan if trial % 8 == 0 else 0 if trial % 3 == 0 else v[0]
            v = v * (trial % 5 > 0)
            arrays = {d.name: {"x": x, "v": v}[d.name] for d in form.spec.tensors}
            with np.errstate(all="ignore"):
                wanted = as_named(form.spec, ra.reference(form.spec, **arrays))["y"]
                found = [as_named(form.spec, form.compile(t)(**arrays))["y"] for t in ("numpy", "cpu")]
                found.append(in_pieces(form, arrays)["y"])
            for got in found:
                assert np.all(np.isnan(got) | (got == wanted)), (arrays, got, wanted)
                assert form.assumptions or not np.any(np.isnan(got) & ~np.isnan(wanted)), (arrays, got, wanted)
            seen[bool(np.isnan(wanted).any())] += 1
        assert min(seen.values()) > 1


# --- divisors that cancel and need another pass ----------------------------------------------------------------------


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("body", ["abs(x[j]-u)", "tanh(x[j]-u)", "relu(2*x[j]-u)", "where(x[j]>u, x[j], 0)"])
def test_what_cancels_is_nan_where_its_divisor_is_0(body: str, reduction: str) -> None:
    """The divisor has no form beside the mean it reads: a second pass knows whether it is 0.

    It is 0 but for rounding where values lie on either side of their mean alike, which is in none of these.
    """
    text = f"u = mean[j](x[j]); v = {reduction}[j]({body}); w = sum[j]({body}/v); return y = w, z = u*w/(1+u**2)"
    spec = ra.parse(text)
    assert isinstance(ra.verdict(spec), ra.NotDecomposable | ra.Undecided)
    form = ra.derive_incremental(spec, max_passes=2)
    assert form.passes.statistics == 2
    for x in (np.array([1.0, -2.5, 4.0, 0.75]), np.full(3, 0.0), np.array([2.0]), np.full(5, 0.75)):
        wanted = ra.reference(spec, x=x)
        for target in ("numpy", "cpu"):
            found = form.compile(target)(x=x)
            for name in spec.outputs:
                assert found[name] == pytest.approx(wanted[name], rel=1e-12, nan_ok=True), (text, x, target)
