"""Domains that are intervals: declared, printed and read back, kept by draws, used by signs, held by certificates."""

from __future__ import annotations

import json
import pickle
import random
import re
from fractions import Fraction

import numpy as np
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.algebra import signs
from redalg.graph import intervals
from redalg.graph.plan import Obligation
from redalg.laws.check import Sample
from redalg.proofs import Certificate
from redalg.proofs.document import intervals as proven
from redalg.proofs.document.reading import Reader
from redalg.testing import sampling
from tests.support.profiles import examples

END = st.fractions(min_value=-9, max_value=9, max_denominator=8)
BETWEEN = st.tuples(END | st.just(-sympy.oo), END | st.just(sympy.oo)).filter(
    lambda b: b[0] < b[1] and b != (-sympy.oo, sympy.oo)
)


@given(BETWEEN)
@examples(25)
def test_declared_intervals_are_printed_and_read_back(between):
    w, al = ra.tensors("w[j]", between=between), ra.scalar("al", between=between)
    spec = ra.Spec(y=ra.sum(w * al, "j"))
    again = ra.parse(str(spec))
    assert again == spec and hash(again) == hash(spec) and str(again) == str(spec)
    assert pickle.loads(pickle.dumps(spec)) == spec
    low, high = intervals.ends(al.domain)
    assert (between[0] == -sympy.oo) == (low is None) and (between[1] == sympy.oo) == (high is None)
    assert intervals.ends(al.domain) == proven.ends(al.domain) and proven.is_sound(al.domain)
    plain = ra.tensors("w[j]"), ra.scalar("al")
    assert ra.Spec(y=ra.sum(plain[0] * plain[1], "j")) != spec


@given(BETWEEN, st.integers(0, 999), st.booleans())
@examples(25)
def test_every_draw_keeps_to_the_interval(between, seed, integer):
    try:
        w = ra.tensors("w[j]", between=between, integer=integer)
    except ra.RedalgError as error:
        assert integer and "empty" in str(error)
        return
    assert all(intervals.admits(w.domain, v) for v in sampling.draw(w.decl, (7,), random.Random(seed)).tolist())
    sample = Sample([Obligation("O1", "s", w.node, w.node)], seed)
    for _ in range(7):
        value = sample._value(w.domain, False)
        assert intervals.admits(w.domain, value) and proven.admits(w.domain, proven.moved(w.domain, value))
        assert not integer or value.denominator == 1


@pytest.mark.parametrize(
    "between", [(1, 0), (1, 1), (float("nan"), 1), (0,), 3, ("0", 1), (ra.oo, 1), (0, -ra.oo), (1j, 2), (True, 2)]
)
def test_what_is_no_interval_is_refused(between):
    with pytest.raises(ra.RedalgError, match="try:"):
        ra.scalar("al", between=between)


def test_kinds_that_have_no_interval_are_refused():
    for words in ({"bool": True}, {"complex": True}, {"integer": True}):
        with pytest.raises(ra.RedalgError):
            ra.scalar("al", between=(0, 1), **words)
    with pytest.raises(ra.RedalgError, match="empty"):
        ra.scalar("al", between=(-2, 0), nonnegative=True)


def test_floats_are_the_rationals_they_hold():
    assert intervals.ends(ra.scalar("al", between=(0.1, 1)).domain)[0] == Fraction(0.1)
    assert ra.scalar("al", between=(0, ra.oo)) is ra.scalar("al", positive=True)


DECLARED = {"a": (0, 1), "b": (Fraction(1, 2), 1), "c": (2, 3)}
SIGNED = [
    "1 - a",
    "2 - a - b",
    "1 - a*b",
    "1 - a**3*b",
    "a - b + 1",
    "(1 - a)*(1 - b)",
    "c - a",
    "a*b - c",
    "a/3 - b",
]
UNSIGNED = ["1 - 2*a", "b - a", "a - b*c/2", "1 - a*c", "c - 5/2", "a - a*b - 1/8"]


def _sign(text):
    read = [n for n in DECLARED if n in text]
    words = ", ".join(f"{n} between({DECLARED[n][0]}, {DECLARED[n][1]})" for n in read)
    return signs.Signs(()).of(ra.parse(f"tensors {words}; return y = {text}").outputs["y"])


@pytest.mark.parametrize("text", SIGNED)
def test_signs_follow_from_intervals(text):
    truth = eval(text, {"a": 0.3, "b": 0.6, "c": 2.5})
    assert _sign(text) == (signs.POS if truth > 0 else signs.NEG)


@pytest.mark.parametrize("text", UNSIGNED)
def test_signs_claim_nothing_that_the_intervals_leave_open(text):
    assert _sign(text) & signs.POS and _sign(text) & signs.NEG


AVERAGES = [
    "tensors {a} between(0, 1), {x}[j]; return y = sum[j]((1-{a})**(size[j]-1-index[j])*{x}[j])",
    "tensors {a} between(0, 1), {x}[j]; return y = sum[j]({a}*(1-{a})**(size[j]-index[j])*{x}[j])",
    "tensors {a}[i] between(0, 1), {x}[i,j]; return y = sum[j]((1-{a}[i])**(size[j]-1-index[j])*{x}[i,j])",
    "tensors {a} between(-1/2, 1/2), {x}[j]; return y = sum[j]((1+{a})**(2*size[j]-2*index[j]-2)*{x}[j])",
    "tensors {a} between(0, 1), {x}[j]; w = (1-{a})**(size[j]-1-index[j]); return y = sum[j](w*{x}[j])/sum[j](w)",
]


@pytest.mark.parametrize("text", AVERAGES)
@pytest.mark.parametrize("names", [("al", "x"), ("n", "max_u")])
def test_exponentially_weighted_sums_stream(text, names):
    spec = ra.parse(text.format(a=names[0], x=names[1]))
    form = ra.derive_incremental(spec)
    rng = np.random.default_rng(5)
    for n in (1, 2, 7, 400):
        sizes = {"j": n, "i": 3}
        arrays = {d.name: rng.standard_normal([sizes[a] for a in d.axes]) for d in spec.tensors}
        arrays[names[0]] = np.asarray(rng.uniform(0.05, 0.4, np.shape(arrays[names[0]])))[()]
        wanted = ra.reference(spec, **arrays)
        sizes_of_terms = ra.reference(spec, **{**arrays, names[1]: np.abs(arrays[names[1]])})
        scale = 40 * (n + 1) * 2.0**-53 * np.max(sizes_of_terms)  # an exponent of n·log is rounded to 2^-53 of itself
        np.testing.assert_allclose(form.compile("numpy")(**arrays), wanted, rtol=0, atol=scale)
        outer = {names[0]: arrays[names[0]]}
        pieces = []
        for start, stop in ((0, n // 3), (n // 3, n // 3), (n // 3, n)):
            piece = form.accumulator(start=start, **outer)
            piece.update(**{names[1]: arrays[names[1]][..., start:stop]})
            pieces.append(piece)
        whole = pieces[0]
        for piece in pieces[1:]:
            whole.merge(piece)
        np.testing.assert_allclose(whole.result(), wanted, rtol=0, atol=scale)


PROVED = [
    "tensors al between(0, 1), x[j]; m = max[j](x[j]); return y = sum[j](abs((1-al)*(x[j]-m)))",
    "tensors al[j] between(0, 1), x[j]; m = max[j](x[j]); return y = sum[j](relu((1-al[j])*(m-x[j])))",
    "tensors al between(-3, 1/2), x[j]; return y = sum[j]((1/2-al)**(size[j]-1-index[j])*x[j])",
]


@pytest.mark.parametrize("text", PROVED)
def test_certificates_are_proved_from_the_interval_and_not_from_a_wider_one(text):
    written = ra.derive_incremental(ra.parse(text)).certificate.to_json()
    Certificate.from_json(written).verify()
    end = re.search('"below [^"]*"', written).group()
    for word in ('"below 2"', '"below 7/3"'):
        forged = json.loads(written.replace(end, word))
        forged["spec_hash"] = Reader(forged).document(sealed=False).spec_hash
        with pytest.raises(ra.RedalgError, match="obligation"):
            Certificate.from_json(json.dumps(forged)).verify()


@pytest.mark.parametrize("word", ["below x", "below 1/0", "above 1", "below -1", "below 1 ", "between", "below 01"])
def test_words_that_are_no_ends_are_refused(word):
    written = ra.derive_incremental(ra.parse(PROVED[0])).certificate.to_json()
    with pytest.raises(ra.RedalgError):
        Certificate.from_json(written.replace('"below 1"', json.dumps(word))).verify()
