"""Forms as SymPy algebra: exact under rationals for any bracketing, picklable, and told from the plan alone."""

from __future__ import annotations

import pickle
import random
from fractions import Fraction

import numpy as np
import pytest
import sympy

import redalg as ra
from redalg.errors import RedalgError
from redalg.form import Form, expression
from redalg.graph.plan import PassPlan, Plan
from redalg.language.spec import Spec
from redalg.numeric.exact import exact_value
from tests.support.handwritten import ALL, w, x, y

SCALAR = ["variance", "weighted_mean", "covariance", "argmax", "deviation"]


def form_of(name: str) -> Form:
    outputs, plan = ALL[name]()
    return Form(Spec.from_nodes(outputs, order={o.name: o.axes for o in plan.outputs}), plan)


def substituted(expressions, values):
    known = {sympy.Symbol(k): v for k, v in values.items() if isinstance(k, str)}
    known |= {k: v for k, v in values.items() if not isinstance(k, str)}
    return {name: sympy.sympify(e).xreplace(known).doit() for name, e in expressions.items()}


def element(form, row):
    return {
        expression(leaf): sympy.Rational(row[leaf.attr.name]) for leaf in (x, y, w) if leaf.attr in form.spec.tensors
    }


def folded(form, rows, draw, known):
    """A state from a random bracketing of updates and combines."""
    if len(rows) == 1:
        return substituted(form.lift, element(form, rows[0]) | known)
    if draw.random() < 0.5:
        before = folded(form, rows[:-1], draw, known)
        return substituted(form.update, before | element(form, rows[-1]) | known)
    cut = draw.randint(1, len(rows) - 1)
    a, b = folded(form, rows[:cut], draw, known), folded(form, rows[cut:], draw, known)
    sides = {f"{k}_a": v for k, v in a.items()} | {f"{k}_b": v for k, v in b.items()}
    return substituted(form.combine, sides | known)


@pytest.mark.parametrize("name", SCALAR)
@pytest.mark.parametrize("seed", range(6))
def test_any_bracketing_is_exact(name, seed):
    form, draw = form_of(name), random.Random(seed)
    rows = [{t: Fraction(draw.randint(-9, 9), draw.randint(1, 4)) for t in "xyw"} for _ in range(1 + seed)]
    known = {}
    for number in range(len(form.plan.passes)):
        part = one_pass(form, number)
        state = folded(part, rows, draw, known)
        known |= substituted(part.exports, state)
    result = substituted(form.finalize, state)
    data = {t: [r[t] for r in rows] for t in "xyw"}
    for output, node in form.spec.outputs.items():
        wanted = exact_value(node, data, {"j": len(rows)})
        if isinstance(wanted, Fraction):
            assert result[output] == sympy.Rational(wanted.numerator, wanted.denominator)
        else:
            assert not result[output].is_finite  # 0/0 by the definition


def one_pass(form: Form, number: int) -> Form:
    p: PassPlan = form.plan.passes[number]
    return Form(form.spec, Plan(form.plan.axis, (p,), ()))


def test_the_lean_form_is_as_exact():
    form, draw = form_of("variance").lean, random.Random(1)
    assert [s.name for s in form.slots] == ["n", "mu", "v"]
    rows = [{"x": Fraction(v)} for v in (3, 1, 4, 1, 5)]
    state = folded(form, rows, draw, {})
    assert substituted(form.finalize, state) == {"var": sympy.Rational(64, 25)}
    assert form.lean is None and form_of("argmax").lean is None


def test_attention_reads_as_the_online_softmax():
    form = form_of("attention")
    l_a, l_b, m_a, m_b, m = sympy.symbols("l_a l_b m_a m_b m")
    top = form.combine["m"]
    assert form.combine["l"] == l_a * sympy.exp(m_a - top) + l_b * sympy.exp(m_b - top)
    assert str(form.corrections["l"]) == "exp(-m + m_a)" and form.corrections["m"] == 1
    assert form.lift["l"] == 1 and form.lift["n"] == 1
    assert form.finalize["O"] == sympy.Symbol("o") / sympy.Symbol("l")
    assert set(form.combine) == set(form.lift) == set(form.update) == {s.name for s in form.slots}


def test_expressions_take_numbers_and_go_on_calculating():
    form = form_of("attention")
    l_a, l_b, m_a, m_b = symbols = sympy.symbols("l_a l_b m_a m_b")
    merged = form.combine["l"]
    assert merged.subs({l_a: 2, l_b: 3, m_a: 5, m_b: 1}) == 2 + 3 * sympy.exp(-4)
    assert sympy.lambdify(symbols, merged)(2.0, 3.0, 5.0, 1.0) == pytest.approx(2 + 3 * np.exp(-4))
    assert merged.subs(m_b, m_a).diff(l_a) == 1


def test_slots_are_described():
    slots = {s.name: s for s in form_of("attention").slots}
    assert slots["n"].monoid == "sum" and slots["n"].dtype == "int64"
    assert slots["l"].anchor == "m" and slots["l"].monoid == "sum"
    assert slots["o"].meaning == "sum over j of exp(sum[d](Q[i,d] * K[j,d]) - m[i]) * V[j,e]"
    best = {s.name: s for s in form_of("argmax").slots}
    assert best["best_at"].dtype == "int64" and best["best"].dtype == "float"
    assert {s.name: s.anchor for s in form_of("covariance").slots}["c"] == "a, b"


def test_passes_and_ranks():
    assert form_of("deviation").passes == (2, 2)
    assert form_of("softmax").passes.reads == 2 and form_of("pure").passes == (0, 1)
    assert dict(form_of("variance").ranks) == {"v": 3}
    assert dict(form_of("variance").assumptions) == {}


def test_lists_are_opaque_functions():
    form = form_of("top2")
    assert str(form.combine["t"]) == "topk_merge(t_a, t_b)"
    assert str(form.update["t_at"]) == "topk_merge_indices(t, t_at, topk_single(x), n + topk_single_index())"


@pytest.mark.parametrize("name", ALL)
def test_forms_pickle_and_are_frozen(name):
    form = form_of(name)
    form.explain()
    again = pickle.loads(pickle.dumps(form))
    assert again == form and str(again) == str(form) and dict(again.combine) == dict(form.combine)
    with pytest.raises(AttributeError):
        form.plan = None
    with pytest.raises(TypeError):
        form.combine["x"] = 1


def test_what_this_version_lacks_is_refused_in_four_parts():
    form = form_of("argmax")
    for refused in (lambda: form.compile("cuda"), lambda: form.compile("tpu")):
        with pytest.raises(RedalgError) as caught:
            refused()
        assert caught.value.what and caught.value.where and caught.value.why and caught.value.fix


def test_obligations_are_kept():
    assert {o.name for o in form_of("variance").obligations} == {"O1", "O2", "O3", "O4", "O5", "O8"}


def test_pure_maps_have_no_state():
    u = ra.tensors("u[i,j]")
    form = ra.derive_incremental(ra.Spec(y=ra.log(ra.relu(u) + 1)))
    assert form.slots == () and dict(form.combine) == {} and form.passes == (0, 1)
    assert form.finalize["y"] == sympy.log(sympy.Max(u, 0) + 1)


def test_a_lean_form_runs_and_keeps_less():
    form = ra.derive_incremental(ra.catalog["variance"])
    rows = np.random.default_rng(0).normal(size=(3, 40))
    full, lean = form.accumulator(), form.lean.accumulator()
    for acc in (full, lean):
        acc.update(x=rows[:, :7])
        acc.update(x=rows[:, 7:])
    np.testing.assert_allclose(lean.result(), full.result(), rtol=1e-13)
    assert set(lean.state) < set(full.state)
    assert {s.name for s in form.lean.slots} - {"n"} == set(lean.state)


@pytest.mark.parametrize("name", ["variance", "covariance", "cross_covariance", "geometric_mean"])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_a_lean_form_gives_no_number_where_the_definition_has_none(name, value):
    entry = ra.catalog.entry(name)
    form = ra.derive_incremental(entry.spec, axis=entry.axis).lean
    for seed, tensor in enumerate(t for t in form.spec.tensors if form.plan.axis[0] in t.axes):
        arrays = {n: np.asarray(a, float) for n, a in entry.sample(seed).items()}
        along = {t.name: t.axes.index(form.plan.axis[0]) for t in form.spec.tensors if form.plan.axis[0] in t.axes}
        length = arrays[tensor.name].shape[along[tensor.name]]
        for place in (0, length // 2, length - 1):
            hit = {n: a.copy() for n, a in arrays.items()}
            hit[tensor.name][(slice(None),) * along[tensor.name] + (place,)] = abs(value) if tensor.domain else value
            parts = [form.accumulator(**{n: a for n, a in hit.items() if n not in along}) for _ in range(3)]
            for part, (lo, hi) in zip(parts, [(0, 1), (1, 1), (1, length)], strict=True):
                part.update(**{n: hit[n].take(range(lo, hi), k) for n, k in along.items()})
            with np.errstate(all="ignore"):
                parts[0].merge(parts[1])
                parts[0].merge(parts[2])
                found, truth = np.asarray(parts[0].result()), np.asarray(ra.reference(form.spec, **hit))
            assert np.all(np.isnan(found) | (found == truth)), (tensor.name, place, found, truth)
