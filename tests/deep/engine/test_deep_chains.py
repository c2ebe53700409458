"""Chains of a hundred stages, one below the other: derived, run, certified and pickled by no recursion, or a budget."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pytest

import redalg as ra
from redalg.algebra.signs import NONNEGATIVE, POS, Signs
from redalg.graph import node as g

LENGTH = 5
CHAINS = {  # a stage from the one before; values stay near 1
    "exponentials": "sum[j](exp(x[j] - {p}))",
    "logarithms": "mean[j](log(x[j]/{p})) + 2",
    "distances": "max[j](abs(x[j] - {p}))",
    "cosines": "mean[j](cos(x[j] - {p}))",
    "choices": "where(any[j](x[j] > 0), {p} + 1, 0)",
    "maps": "tanh({p})*sum[j](x[j])",
    "rectified": "relu({p}) + max[j](x[j])",
    "roots": "sqrt({p}**2 + sum[j](x[j]**2))",
    "sums": "sum[j](w[j]*x[j])/sum[j](w[j]) + {p}",
    "positions": "argmax[j](x[j]*exp({p})) + {p}",
    "inner": "sum[j](sum[d](r[j,d]*{p}))/16",
}
BUDGETS = {  # beyond what a verdict may take, and never beyond Python's stack
    "counts": "sum[j](where(x[j] - {p} > 0, 1, 0))",
}


def chain(body: str, stages: int) -> ra.Spec:
    text = "; ".join(f"m{i} = {body.format(p=f'm{i - 1}')}" for i in range(1, stages))
    return ra.parse(f"tensors x[j] positive; m0 = mean[j](x[j]); {text}; return y = m{stages - 1}")


def arrays(spec: ra.Spec) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    return {d.name: rng.random((LENGTH, 3)[: len(d.axes)]) + 0.5 for d in spec.tensors}


@pytest.mark.parametrize("kind", CHAINS)
def test_a_hundred_stages_have_a_form_that_runs_everywhere(kind: str) -> None:
    spec = chain(CHAINS[kind], 100)
    form = pickle.loads(pickle.dumps(ra.derive_incremental(spec)))
    data = arrays(spec)
    wanted = ra.reference(spec, **data)
    parts = [form.accumulator(), form.accumulator(), form.accumulator()]
    for acc, (start, stop) in zip(parts, ((0, 1), (1, 1), (1, LENGTH)), strict=True):
        acc.update(**{name: x[start:stop] for name, x in data.items()})
    for other in parts[1:]:
        parts[0].merge(other)
    assert np.allclose(parts[0].result(), wanted, rtol=1e-9)
    for target in ("numpy", "cpu"):
        assert np.allclose(form.compile(target)(**data), wanted, rtol=1e-9), target
    assert form.explain() and form.certificate.to_json()


@pytest.mark.parametrize("kind", BUDGETS)
def test_a_hundred_stages_end_at_a_budget_of_work(kind: str) -> None:
    found = ra.verdict(chain(BUDGETS[kind], 100))
    assert isinstance(found, ra.Undecided) and "budget" in found.missing


def test_units_of_a_chain_of_squares_are_powers() -> None:
    """Their degree doubles with every stage: 2^99 factors, one after the other, would fill any memory."""
    spec = chain("sum[j]((x[j]/{p})**2)", 100)
    assert isinstance(ra.verdict(spec), ra.Form)


def test_three_hundred_maps_of_stages_derive() -> None:
    spec = chain("maximum({p}, mean[j](x[j]))", 300)
    assert np.allclose(ra.derive_incremental(spec).compile("cpu")(**arrays(spec)), ra.reference(spec, **arrays(spec)))


@pytest.mark.parametrize("power", [10**6, 10**9])
@pytest.mark.parametrize("result", ["max[j](k[j])**{e}", "sum[j](k[j])/size[j]**{e}"])
def test_powers_of_integers_are_refused_and_not_worked_out(power: int, result: str) -> None:
    """3^(10^9) has 1.6 billion bits."""
    spec = ra.parse(f"tensors k[j] integer; return y = {result.format(e=power)}")
    form = ra.derive_incremental(spec)
    k = np.array([2, 3, 3])
    for run in (lambda k: ra.reference(spec, k=k), form.compile("numpy"), form.compile("cpu")):
        with pytest.raises(ra.RedalgError, match=re.escape(f"3**{power}")):
            run(k=k)
    acc = form.accumulator()
    acc.update(k=k)
    with pytest.raises(ra.RedalgError, match="bits"):
        acc.result()
    assert acc.count == 3


def test_signs_of_deep_nests_are_those_of_shallow_ones() -> None:
    """Levels at which the walk rests change nothing, also under a mask."""
    x = g.tensor("x", ("j",), ("positive",))
    top = g.reduction("max", ("j",), x)
    for mask in (None, g.compare("lt", g.ZERO, x)):
        deep, known = x, Signs([top])
        for _ in range(300):
            deep = g.mul(g.fn("exp", deep), g.add(deep, g.ONE))
        assert known.of(deep, mask) == POS
        assert known.of(g.sub(top, x), mask) == NONNEGATIVE


DIVIDED = (
    "sum[j](x[j])/size[j]**60",
    "sum[j](x[j]/size[j]**45)",
    "sum[j](x[j])/(size[j]**3 + 1)**20",
    "sum[j](x[j])/max[j](k[j])**60",
    "sum[j](x[j]/k[j]**50)",
    "sum[j](x[j])/sum[j](k[j])**30",
)


@pytest.mark.parametrize("result", DIVIDED)
def test_powers_of_integers_that_divide_never_wrap(result: str) -> None:
    """The quotient is a float, and what it is divided by an integer: 3^60 is not in int64, 3^30 is."""
    declared = "tensors k[j] integer; " if "k[" in result else ""
    spec = ra.parse(f"{declared}return y = {result}")
    data = {"x": np.array([0.5, 0.25, 2.0]), "k": np.array([2, 3, 3])}
    given = {d.name: data[d.name] for d in spec.tensors}
    run = ra.derive_incremental(spec).compile("cpu")
    assert np.allclose(run(**given), ra.reference(spec, **given), rtol=1e-12, atol=0)


@pytest.mark.parametrize("power", [10**6 + 1, 10**13])
def test_large_powers_of_stage_values_end(power: int) -> None:
    """Neither 2^power terms are counted, nor does a name of a kernel hold an exponent of ten."""
    spec = ra.parse(f"return y = sum[j](x[j])*(mean[j](x[j]) + mean[j](z[j]))**{power}")
    form = ra.derive_incremental(spec)
    x = np.array([0.25, 0.75])
    for run in (form.compile("numpy"), form.compile("cpu")):
        assert run(x=x, z=x) == 1.0


def scaled_and_centred(stages: int) -> str:
    """Every other stage an extremum, of what was divided by one of unknown sign."""
    lines, last = [], "x[i,j]"
    for k in range(stages):
        kind, sign = ("mean", "-") if k % 2 else ("max", "/")
        lines.append(f"s{k} = {kind}[j]({last}); y{k} = {last} {sign} s{k}")
        last = f"y{k}"
    return "; ".join([*lines, f"return y = {last}"])


@pytest.mark.parametrize("stages", [12, 40, 100])
def test_extrema_of_what_extrema_divide_are_found_once(stages: int) -> None:
    """Both ends of every stage are asked for, of both ends of the one before."""
    spec, rng = ra.parse(scaled_and_centred(stages)), np.random.default_rng(7)
    form, x = ra.derive_incremental(spec), rng.standard_normal((3, 7))
    wanted = ra.reference(spec, x=x)
    for target in ("numpy", "cpu"):
        np.testing.assert_allclose(form.compile(target)(x=x), wanted, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("stages", [24, 100])
def test_gradients_of_chains_of_extrema_end_at_a_budget(stages: int) -> None:
    """Parts of the adjoint double with each extremum."""
    with pytest.raises(ra.Undecided, match="a budget of 256 parts of an adjoint"):
        ra.parse(scaled_and_centred(stages)).vjp()


@pytest.mark.parametrize("stage", ["logsumexp[j]({0})", "mean[j](({0} - mean[j]({0}))**2)"])
def test_gradients_of_a_hundred_results_beside_one_another(stage: str) -> None:
    outputs = ", ".join(f"y{k} = {stage.format(f'(x[i,j]*{k + 1} + 1)')}" for k in range(100))
    spec, rng, step = ra.parse(f"return {outputs}"), np.random.default_rng(7), 1e-6
    x, d = rng.uniform(-0.1, 0.1, (2, 3)), rng.standard_normal((2, 3))
    cotangents = {n: rng.standard_normal(2) for n in spec.outputs}
    found = spec.vjp()(x=x, cotangents=cotangents, target="numpy")["x"]
    ends = [ra.reference(spec, x=x + sign * step * d) for sign in (1, -1)]
    slope = sum(((ends[0][n] - ends[1][n]) @ c for n, c in cotangents.items()), 0.0) / (2 * step)
    np.testing.assert_allclose((found * d).sum(), slope, rtol=1e-5)
