"""Laws over generated specs, found by Hypothesis: floats within derived bounds, SymPy expressions exactly."""

from __future__ import annotations

import functools
import itertools
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import redalg as ra
from redalg.testing import expressions, sampling, strategies
from redalg.testing.arithmetic import Digits
from redalg.testing.bounds import axis_sizes
from redalg.testing.evaluator import Evaluator
from redalg.testing.form_laws import LAWS, Law, Subject
from tests.support.profiles import examples

DIGITS = Digits(60)
DERIVABLE = (
    "known_rank",
    "masked",
    "masked_scores",
    "weighted",
    "monotone",
    "positions",
    "splitting",
    "near_miss_derived",
)
# purely rational specs: their forms agree with the definition in Fractions, without a tolerance
RATIONAL = {
    "mean": "return y = mean[j](x[j])",
    "variance": "m = mean[j](x[j]); return y = mean[j]((x[j] - m)**2)",
    "third and fourth moments": "m = mean[j](x[j]); return a = sum[j]((x[j] - m)**3), b = sum[j]((x[j] - m)**4)",
    "covariance": "a = mean[j](x[j]); b = mean[j](y[j]); return c = mean[j]((x[j] - a)*(y[j] - b))",
    "rank 9": "a = mean[j](x[j]); b = mean[j](y[j]); return c = mean[j]((x[j] - a)**2*(y[j] - b)**2)",
    "slope": (
        "a = mean[j](x[j]); b = mean[j](y[j]); s = sum[j]((x[j] - a)*(y[j] - b))/sum[j]((x[j] - a)**2); "
        "return s = s, r = sum[j]((y[j] - b - s*(x[j] - a))**2)"
    ),
    "weighted": "w = sum[j](p[j]); m = sum[j](p[j]*x[j])/w; return y = sum[j](p[j]*(x[j] - m)**2)/w, m",
    "range": "lo = min[j](x[j]); hi = max[j](x[j]); return y = sum[j]((x[j] - lo)/(hi - lo + 1))",
    "below the maximum": "return y = sum[j](abs(x[j] - max[j](x[j]))), t = argmax[j](x[j] - mean[j](x[j]))",
    "positive part": "m = mean[j](x[j]); return y = sum[j](where(x[j]*m > 0, x[j], y[j]))",
    "largest deviation": "m = mean[j](x[j]); return y = max[j](abs(x[j] - m)), z = max[j]((x[j] - m)**2)",
    "product": "m = max[j](x[j]); return y = prod[j](x[j]*(1 + m**2))",
}


@functools.cache
def derived(text: str) -> Any:
    return ra.derive_incremental(ra.parse(text), axis="j")


def elements(spec: Any, arrays: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    length = axis_sizes(spec, arrays)["j"]
    return [{k: v[p] for k, v in arrays.items()} for p in range(length)]


def same(got: dict[str, Any], form: Any, arrays: dict[str, np.ndarray]) -> None:
    inner = Evaluator(DIGITS, arrays, axis_sizes(form.spec, arrays))
    for name, node in form.spec.outputs.items():
        assert got[name] == inner.value(node, {}) and isinstance(got[name], Fraction), (name, got)


numbers = st.fractions(-8, 8, max_denominator=12)
streams = st.lists(st.tuples(numbers, numbers, numbers), min_size=1, max_size=7)


@pytest.mark.parametrize("name", sorted(RATIONAL))
@examples(12)
@given(stream=streams, data=st.data())
def test_symbolic_forms_are_exact_in_rational_arithmetic(name: str, stream: list[Any], data: st.DataObject) -> None:
    """lift, update, combine, finalize as SymPy expressions: every partition and bracketing gives the definition."""
    form = derived(RATIONAL[name])
    x, y, p = (np.array(column, dtype=object) for column in zip(*stream, strict=True))
    arrays = {k: v for k, v in {"x": x, "y": y, "p": p}.items() if k in {d.name for d in form.spec.tensors}}
    assume("p" not in arrays or all(sum(p[:k]) for k in range(1, len(p) + 1)))
    assume(name != "slope" or len(set(x)) > 1)
    items = elements(form.spec, arrays)
    same_as = functools.partial(same, form=form, arrays=arrays)
    same_as(expressions.finalize(form, DIGITS, expressions.fold(form, DIGITS, items), {}))
    borders = sorted(data.draw(st.sets(st.integers(1, len(items)), max_size=3)) | {0, len(items)})
    pieces = [items[a:b] for a, b in itertools.pairwise(borders)]
    assume("p" not in arrays or all(sum(e["p"] for e in piece) for piece in pieces))
    states = [expressions.fold(form, DIGITS, piece) for piece in pieces]
    while len(states) > 1:
        at = data.draw(st.integers(0, len(states) - 2))
        states[at : at + 2] = [_combined(form, *states[at : at + 2])]
    same_as(expressions.finalize(form, DIGITS, states[0], {}))


def _combined(form: Any, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    return expressions.combine(form, DIGITS, a, b)


@examples(40)
@given(generated=strategies.generated(*DERIVABLE), data=st.data())
def test_generated_forms_keep_the_laws(generated: Any, data: st.DataObject) -> None:
    """Any spec, any input, any pieces (one of them empty), any bracketing, any order where it is legal."""
    form = ra.derive_incremental(generated.spec, axis="j")
    arrays = data.draw(strategies.inputs(form.spec))
    law = data.draw(st.sampled_from(LAWS))
    law(Subject(form, arrays, data.draw(strategies.randoms())))


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_every_law_holds_of_a_long_stream(law: Law) -> None:
    """The laws on 60 elements: the bounds grow with the stream, and still hold with room for nothing else."""
    form = derived(RATIONAL["covariance"])
    rng = Random(5)
    law(Subject(form, sampling.arguments(form.spec, rng, j=60), rng))


# --- several passes ---------------------------------------------------------------------------------------------------

TWO_PASSES = {
    "mean absolute deviation": "m = mean[j](x[j]); return y = mean[j](abs(x[j] - m))",
    "softmax of z-scores": (
        "m = mean[j](x[j]); z = (x[j] - m)/sqrt(mean[j]((x[j] - m)**2) + 1); p = exp(z - max[j](z)); "
        "return y = sum[j](p*y[j])/sum[j](p)"
    ),
    "tanh below the maximum": "return y = sum[j](tanh(x[j] - max[j](x[j])))",
    "count above the mean": "m = mean[j](x[j]); return n = sum[j](where(x[j] > m, 1, 0)), m",
}


@pytest.mark.parametrize("name", sorted(TWO_PASSES))
def test_what_needs_two_passes_is_refused_one_and_right_in_two(name: str) -> None:
    spec = ra.parse(TWO_PASSES[name])
    refused = ra.verdict(spec)
    assert isinstance(refused, ra.NotDecomposable) and refused.passes == 2
    form = ra.derive_incremental(spec, max_passes=2)
    assert form.passes.statistics == 2
    for seed, law in itertools.product(range(3), LAWS):
        rng = Random(seed)
        law(Subject(form, sampling.arguments(spec, rng, j=7), rng))
