"""Functions of arguments that must be distributed or split first: angles of contractions, exponents with a choice."""

from __future__ import annotations

import numpy as np
import pytest

import redalg as ra
from tests.support.sample import deep

SPECS = [
    "tensors k[d], r[j,d]; m = mean[j](r[j,d]); return y = sum[j](cos(sum[d](k[d]*(r[j,d] - m))))",
    "tensors q[d], v[j,d]; m = max[j](v[j,d]); return z = sum[j](sin(sum[d](q[d]*(m - v[j,d]))))",
    "tensors q[i,d], v[j,d]; m = mean[j](v[j,d]); return z = sum[j](cos(2*sum[d](q[i,d]*(v[j,d] - m)) + 1))",
    "tensors k, r[j]; m = mean[j](r[j]); return y = sum[j](cos(k*(r[j] - m)))",
    "tensors k[d], r[j,d]; m = mean[j](r[j,d]); return y = sum[j](exp(sum[d](k[d]*(r[j,d] - m))))",
    "tensors x[j], t[j]; a = max[j](x[j]); b = mean[j](x[j]); return y = sum[j](exp(x[j] - where(t[j] > 0, a, b)))",
    "tensors x[j], t[j]; a = max[j](x[j]); b = min[j](x[j]); return y = sum[j](t[j]*exp(2*where(t[j]<1, b, a) - x[j]))",
    "tensors x[j], t[j]; a = mean[j](x[j]); b = min[j](x[j]); return y = sum[j](cos(x[j] - where(t[j] > 0, a, b)))",
]


@pytest.mark.parametrize("text", SPECS)
def test_arguments_are_distributed_and_split(text):
    spec = ra.parse(text)
    form = ra.derive_incremental(spec)
    rng, lengths = np.random.default_rng(7), {"i": 2, "j": 11, "d": 3}
    arrays = {t.name: rng.standard_normal([lengths[a] for a in t.axes]) for t in spec.tensors}
    wanted = ra.reference(spec, **arrays)
    np.testing.assert_allclose(form.compile("numpy")(**arrays), wanted, rtol=1e-13, atol=1e-13)
    streamed = {t.name for t in spec.tensors if "j" in t.axes}
    pieces = []
    for start, stop in ((0, 4), (4, 4), (4, 11)):
        piece = form.accumulator(**{k: v for k, v in arrays.items() if k not in streamed})
        piece.update(**{k: arrays[k][start:stop] for k in streamed})
        pieces.append(piece)
    pieces[0].merge(pieces[1])
    pieces[0].merge(pieces[2])
    np.testing.assert_allclose(pieces[0].result(), wanted, rtol=1e-13, atol=1e-13)


CULPRITS = [
    ("u = mean[j](x[j]); s = sqrt(mean[j]((x[j] - u)**2)); return y = sum[j](where((x[j] - u)/s > {c}, 1, 0))", " < "),
    ("u = mean[j](x[j]); s = sqrt(mean[j]((x[j] - u)**2)); return y = sum[j](tanh((x[j] - u)/s + {c}))", "tanh("),
    ("u = mean[j](x[j]**4); return y = sum[j](log(u + {c} + x[j]**2))", "log("),
]


@pytest.mark.parametrize("c", [2, *deep([3])])
@pytest.mark.parametrize(("text", "culprit"), CULPRITS)
def test_what_is_missing_names_the_body_and_not_an_earlier_stage(text, culprit, c):
    found = ra.verdict(ra.parse(text.format(c=c)))
    assert culprit in getattr(found, "missing", "") or culprit in getattr(found, "reason", ""), str(found)


PLANTED = [
    "u = mean[j](x[j]); m = max[j](x[j]); v = mean[j]((x[j] - u)**2); return s = sum[j](exp(x[j]-m)), w = v, y = {bad}",
    "u = mean[j](x[j]); b = {bad}; return y = mean[j]((x[j] - b)**2)",
    "m = max[j](x[j]); u = m + log(sum[j](exp(x[j] - m))); b = {bad}; return p = exp(x[j] - u), y = sum[j](x[j]*b)",
]


@pytest.mark.parametrize("text", [*PLANTED[:2], *deep(PLANTED[2:])])
@pytest.mark.parametrize(
    ("bad", "culprit"), [("sum[j](where(x[j] > u*3/2, x[j], 0))", " < "), *deep([("sum[j](tanh(x[j] - u))", "tanh(")])]
)
def test_a_culprit_among_stages_that_have_a_form_is_named(text, bad, culprit):
    found = ra.verdict(ra.parse(text.format(bad=bad)))
    assert culprit in getattr(found, "missing", "") or culprit in getattr(found, "reason", ""), str(found)
