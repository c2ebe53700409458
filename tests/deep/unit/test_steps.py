"""Which specs are computed in steps, and that every way of doing so is what was written."""

from __future__ import annotations

import numpy as np
import pytest

import redalg as ra
from redalg.gradients.steps import Steps, stepped, together
from tests.support.step_cases import SPECS, drawn, steps_of, truth


def sizes_of(count: int) -> dict[str, int]:
    return {"n": count, "g": 2, "c": 3, "k": 4}


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("name", sorted(SPECS))
def test_every_way_is_the_specs(name: str, count: int) -> None:
    """The definitions of all steps, one after the other, in float64."""
    steps, arrays = steps_of(name), drawn(name, sizes_of(count), "float64")
    expected = truth(name, arrays)
    assert steps.ways
    for way in steps.ways:
        known = dict(arrays)
        for spec in way:
            made = ra.reference(spec, **{t.name: known[t.name] for t in spec.tensors})
            known |= made if isinstance(made, dict) else {next(iter(spec.outputs)): made}
        for output, value in expected.items():
            np.testing.assert_allclose(known[output], value, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", sorted(SPECS))
@pytest.mark.parametrize("units", ["n", "g", "c", "k", "gc", "nc", "nk", "ngck"])
def test_without_axes_of_length_1(name: str, units: str) -> None:
    """The definitions of what is left, on arrays without these axes."""
    steps, sizes = steps_of(name), sizes_of(3) | dict.fromkeys(units, 1)
    arrays = drawn(name, sizes, "float64")
    expected, (left, narrow) = truth(name, arrays), steps.narrowed(a for a in sizes if a in units)
    assert left <= {*units} and all(set(t.axes) - left for s in steps.apart for t in s.tensors if t.axes)
    if narrow is None:
        return
    dims = {t.name: tuple(d for d, a in enumerate(t.axes) if a in left) for t in steps.spec.tensors}
    for spec in narrow.apart:
        made = ra.reference(spec, **{t.name: arrays[t.name].squeeze(dims[t.name]) for t in spec.tensors})
        for output, value in (made if isinstance(made, dict) else {next(iter(spec.outputs)): made}).items():
            np.testing.assert_allclose(np.reshape(value, expected[output].shape), expected[output], rtol=1e-11)


@pytest.mark.parametrize("target", ["numpy", "cpu"])
@pytest.mark.parametrize("name", ["batch norm", "group norm"])
def test_one_call_gives_what_the_definitions_give(name: str, target: str) -> None:
    arrays = drawn(name, sizes_of(2), "float64")
    found, expected = steps_of(name).compile(target)(**arrays), truth(name, arrays)
    assert set(found) == set(expected)
    for output, value in expected.items():
        np.testing.assert_allclose(found[output], value, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", ["group norm", "batch norm", "instance norm"])
def test_no_step_adds_along_axes_apart(name: str) -> None:
    """In the last way wide tensors are added along the innermost axis alone, or not at all."""
    for spec in steps_of(name).ways[-1]:
        wide = [n for n in spec.outputs.values() if n.op == "reduce" and "k" in n.args[0].axes]
        assert all(n.attr.axes == ("k",) for n in wide)


APART = {
    "a matrix product": "return y = sum[k](sum[d](q[i,d]*r[k,d])*v[k,e])",
    "one streamed axis": "m = max[j](x[i,j]); e = exp(x[i,j] - m); return y = e/sum[j](e)",
    "weights of rows alone": "return y = w[i]*x[i,j]/sum[j](x[i,j])",
    "no sum": "tensors x[i,j], w[i]; return y = x[i,j]*w[i]",
}


@pytest.mark.parametrize("case", sorted(APART))
def test_what_stays_as_it_is(case: str) -> None:
    vjp = ra.parse(APART[case]).vjp()
    assert not any(isinstance(u, Steps) for u in together(dict.fromkeys(vjp.specs.values())))


def test_lengths_of_axes_that_steps_do_not_have() -> None:
    """A mean of a vector beside a matrix: its gradient divides by a length that no tensor of a small step has."""
    spec = ra.parse("tensors x[i,j], y[j]; return z = max[j](maximum(mean[j](y[j]), x[i,j]))")
    x, y = np.array([[1.0, -2.0, 3.0], [0.5, 1.0, -1.0]]), np.array([1.0, 2.0, 3.0])
    for given in ("all", ()):
        found = spec.vjp(given=given)(x=x, y=y, cotangents={"z": np.array([5.0, 6.0])}, target="numpy")
        np.testing.assert_allclose(found["y"], [2.0, 2.0, 2.0])


def test_names_that_are_taken() -> None:
    """What steps hand on is not called what a tensor, an axis or an output is."""
    spec = ra.parse("tensors x[n,inner1,k], inner2[inner1]; t = x[n,inner1,k]*inner2[inner1]; return y = sum[n,k](t)")
    steps = stepped([spec])
    assert steps is not None and "inner3" in steps.ways[-1][0].outputs
