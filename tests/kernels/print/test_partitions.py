"""Specs in parts (`redalg.kernels.lower.partition`): put together, each by its definition, they are the spec."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.graph.contractions import contracts
from redalg.graph.node import walk
from redalg.kernels.lower.partition import partitions
from tests.support.part_cases import CASES, arrays_of, by_name, put_together

LENGTHS = st.sampled_from((1, 2, 3, 4, 7))
MAPS = ("relu({})", "tanh({})", "sqrt({})", "{}", "({})*g[m]", "{} + c[{axis}]")
ENDS = (
    "return Y = {h}",
    "return Y = {h}, Z = sum[{axis}]({h}*{h})",
    "return Z = log(sum[{axis}](exp({h} - max[{axis}]({h})))) + max[{axis}]({h})",
    "return Z = sum[{axis}]({h}*v[{axis}])/sum[{axis}]({h}), A = max[{axis}]({h})",
    "return Y = {h}/sum[{axis}]({h})",
    "return Y = {h} + sum[r](sum[a](x[m,a]*s[r,a])*t[{axis},r])",
)
ROUNDINGS = 32  # of the maps of a layer, each of a condition number of at most 1 for numbers above 0


def drawn(data: st.DataObject) -> str:
    """A spec of layers: sums of products, with maps between them, of numbers above 0."""
    names, h, steps = "abdef", "x[m,a]", []
    for layer in range(data.draw(st.integers(1, 3))):
        before, after = names[layer], names[layer + 1]
        made = f"sum[{before}]({h}*w{layer}[{after},{before}])"
        step = data.draw(st.sampled_from(MAPS)).format(made, axis=after).replace("c[", f"c{layer}[")
        if data.draw(st.booleans()):
            step += f"*sum[{before}]({h}*u{layer}[{after},{before}])"
        h = f"h{layer}"
        steps.append(f"{h} = {step}")
    axis = names[len(steps)]
    return "; ".join([*steps, data.draw(st.sampled_from(ENDS)).format(h=h, axis=axis)])


@given(data=st.data())
def test_parts_put_together_are_the_spec(data: st.DataObject) -> None:
    """Relative errors of sums and products of numbers above 0 add up: a rounding for every term on the way."""
    spec = ra.parse(drawn(data))
    sizes = {a: data.draw(LENGTHS, a) for a in spec.axes}
    arrays = {n: np.abs(x) + 0.25 for n, x in arrays_of(spec, sizes, data.draw(st.integers(0, 99))).items()}
    true = by_name(spec, ra.reference(spec, **arrays))
    depth = 8  # how often a layer is multiplied with itself or another one at most
    unit = depth * (sum(sizes.values()) + ROUNDINGS) * np.finfo(np.float64).eps
    for partition in partitions(spec, sizes):
        for name, x in put_together(spec, partition, arrays).items():
            largest = float(np.abs(true[name]).max(initial=1.0))
            np.testing.assert_allclose(x, true[name], rtol=unit, atol=unit * largest)


INNER = ("sum[d]({}*{})", "max[d]({} - {})", "sqrt(sum[d](({} - {})*({} - {})))", "sum[d](abs({} + {}))/size(d)")
ROWS = ("x[i,d]", "x[i,d]/sqrt(sum[d](x[i,d]*x[i,d]))", "x[i,d]*g[d]/max[d](x[i,d])", "(x[i,d] + g[d])")
WHOLE = (
    "return m = max[j]({s}), n = sum[j]({s}*{s})",
    "p = exp({s} - max[j]({s})); return o = sum[j](p*v[j,e])/sum[j](p)",
    "return o = sum[j]({s}*v[j,e])/sum[j]({s}) + w[i]*sum[j]({t}*v[j,e])/max[j]({t}), l = log(sum[j]({t}))",
    "return o = sum[i](max[j]({s})), u = min[j]({s} + {t})",
)


@given(data=st.data())
def test_reductions_along_axes_of_their_own_put_together_are_the_spec(data: st.DataObject) -> None:
    """Scores that are no products, operands that are computed, results that have nothing in common; numbers are above
    0, and those that are subtracted leave at least half of the larger one."""

    def scores(other: str) -> str:
        left = data.draw(st.sampled_from(ROWS))
        right = data.draw(st.sampled_from(ROWS)).replace("x[i,d]", f"{other}[j,d]").replace("g[d]", "c[d]")
        made = data.draw(st.sampled_from(INNER))
        return made.format(*[f"({left})", f"({right})"] * (made.count("{}") // 2))

    spec = ra.parse(data.draw(st.sampled_from(WHOLE)).format(s=scores("y"), t=scores("z")))
    sizes = {a: data.draw(LENGTHS, a) for a in spec.axes}
    arrays = {n: np.abs(x) / 8 + (8 if n == "x" else 1) for n, x in arrays_of(spec, sizes, 3).items()}
    true = by_name(spec, ra.reference(spec, **arrays))
    found = list(partitions(spec, sizes))
    assert found
    for partition in found:
        for name, x in put_together(spec, partition, arrays).items():
            largest = float(np.abs(true[name]).max(initial=1.0))
            np.testing.assert_allclose(x, true[name], rtol=1e-9, atol=1e-9 * largest)


@pytest.mark.parametrize("name", sorted(CASES))
def test_parts_are_ordinary_specs_with_a_product_each(name: str) -> None:
    spec = CASES[name].spec
    sizes = dict.fromkeys(spec.axes, 3)
    found = list(partitions(spec, sizes))
    assert found
    given_names, counts = {t.name for t in spec.tensors}, [len(p.before) for p in found]
    assert counts[0] == max(counts)
    for p in found:
        parts = (*p.before, p.last)
        assert {n for part in parts for n in part.outputs} == {*spec.outputs, *p.between}
        assert {t.name for part in p.before for t in part.tensors} <= given_names
        assert {*p.between} <= {t.name for t in p.last.tensors} <= given_names | {*p.between}
        assert not given_names & {*p.between}
        for part in p.before:
            assert any(contracts(n) for n in walk(*part.outputs.values()))
            assert {n: part.output_axes[n] for n in p.between if n in part.outputs}.items() <= p.between.items()
        arrays = arrays_of(spec, sizes, 1)
        true = by_name(spec, ra.reference(spec, **arrays))
        for output, x in put_together(spec, p, arrays).items():
            largest = float(np.abs(true[output]).max())
            np.testing.assert_allclose(x, true[output], atol=1e-12 * max(1.0, largest))


@pytest.mark.parametrize(
    "text",
    [
        "return y = sum[j](x[i,j])",  # no product
        "return y = sum[k](a[i,k]*b[j,k])",  # nothing reads it
        "m = max[j](x[i,j]); return y = sum[j](exp(x[i,j] - m)*w[j])",  # a weighted sum
    ],
)
def test_specs_of_one_part(text: str) -> None:
    spec: Any = ra.parse(text)
    assert list(partitions(spec, dict.fromkeys(spec.axes, 4))) == []


def test_lengths_that_a_part_has_no_more_are_numbers() -> None:
    spec = ra.parse("h = sum[k](x[m,k]*a[k,r]); return y = sum[r](mean[k](x[m,k])*h*b[r,n]) + size(k)*sum[r](h*b[r,n])")
    sizes = {"m": 2, "k": 3, "r": 4, "n": 2}
    arrays = arrays_of(spec, sizes, 2)
    for p in partitions(spec, sizes):
        np.testing.assert_allclose(put_together(spec, p, arrays)["y"], ra.reference(spec, **arrays), atol=1e-12)
