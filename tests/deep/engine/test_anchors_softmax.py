"""Anchors of exponentials: none is dropped in silence, each mask has its own, and every target holds the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.engine import passes
from redalg.engine.reads import Unresolved, centred
from redalg.engine.rules.cascade import Blocked
from redalg.graph.node import leaves
from redalg.graph.plan import IN_RANGE, MODERATE
from redalg.proofs.checker.check import Judge
from redalg.proofs.document.document import Obligation
from redalg.proofs.document.terms import Leaf
from redalg.proofs.document.work import metered
from tests.support.anchor_cases import (
    EPS,
    GROUPS,
    MASKED,
    SCORES,
    WAYS,
    by_name,
    derived,
    error,
    folded,
    grouped,
    moment,
    scored,
    scores,
)
from tests.support.simulated import run as simulated

SPREADS = (
    "tensors x[j]; u = mean[j](exp(x[j])); p = exp(x[j] - max[j](x[j])); m = mean[j](p); "
    "return v = mean[j]((exp(x[j]) - u)**2)/u**2, s = mean[j]((exp(x[j]) - u)**3)/u**3, w = mean[j]((p - m)**2)"
)


@pytest.mark.parametrize("size", [100, 1000])
@pytest.mark.parametrize("way", sorted(WAYS))
@pytest.mark.parametrize("name", sorted(SCORES))
def test_softmax_of_centred_scores_has_its_maximum(name: str, way: str, size: float) -> None:
    """Scores of hundreds, in float32: exp(s) overflows where it is not held at the maximum."""
    text = scored(name, way)
    form, rng = derived(text), np.random.default_rng(size)
    arrays = scores(text, size, rng)
    true = by_name(form, ra.reference(form.spec, exact=True, **arrays))
    got = folded(form, arrays, [0, 3, 3, 21], rng)
    # a score is off by some ulps of Σ|q·k|, of which 30·size is a bound: that is the relative error of a weight
    bound = 8 * 2.0**-24 * (8 + 30 * size)
    for output, t in true.items():
        assert np.isfinite(np.asarray(got[output], dtype=float)).all()
        assert error(got[output], t) <= bound
        assert error(by_name(form, form.compile("numpy")(**arrays))[output], t) <= bound
    assert not form.assumptions.keys() & {IN_RANGE, MODERATE}


@pytest.mark.parametrize("name", sorted(SCORES))
def test_softmax_of_centred_scores_is_proved(name: str) -> None:
    """But for a centre whose weights may add up to 0 beside scores that are masked there: O8 is tested."""
    allow = {"tested"} if name == "weighted centre" else set()
    report = derived(scored(name, "softmax")).certificate.verify(allow=allow)
    assert report.proved or allow


@pytest.mark.parametrize("apart", [1.0, 1000.0])
@pytest.mark.parametrize("name", sorted(MASKED))
def test_each_group_has_its_own_maximum(name: str, apart: float) -> None:
    """Maxima of empty groups are -oo: certificates of sums over groups are tested, since that is not followed."""
    allow = {"tested"} if name in ("elements first", "with values") else set()
    form, rng = derived(MASKED[name]), np.random.default_rng(5)
    member = rng.integers(0, 3, 40)
    arrays = {"x": rng.standard_normal(40) + apart * member, "G": 1.0 * (member[:, None] == np.arange(3))}
    arrays |= {"h": member - 0.5, "v": rng.uniform(1, 2, 40)}
    arrays = {n: a for n, a in arrays.items() if n in {d.name for d in form.spec.tensors}}
    true = ra.reference(form.spec, exact=True, **arrays)
    for value in (folded(form, arrays, [0, 1, 1, 30], rng)["y"], form.compile("numpy")(**arrays)):
        assert error(value, true) <= 16 * EPS * (1 + apart)
    assert form.certificate.verify(allow=allow).proved or allow


@pytest.mark.parametrize("spread", [1e-9, 1e-3, 1.0, 50.0])
def test_exponentials_that_hardly_differ_are_told_apart(spread: float) -> None:
    """e^(u-A) - 1 keeps what e^(u-A) has rounded away, and large spreads and -oo stay what they were."""
    form, rng = derived(SPREADS), np.random.default_rng(8)
    x = spread * rng.standard_normal(40) - 100
    true = by_name(form, ra.reference(form.spec, exact=True, x=x))
    got = folded(form, {"x": x}, [0, 2, 2, 19], rng)
    for output, t in true.items():
        assert error(got[output], t) <= 1e-12 * (1 + 1e-4 / spread), output
    assert form.certificate.verify().proved


@pytest.mark.parametrize("absent", [[0], [0, 1, 2], [39], list(range(40))])
def test_exponentials_of_minus_infinity_are_0(absent: list[int]) -> None:
    form, rng = (
        derived(SPREADS.split("; p =")[0] + "; return c = mean[j]((exp(x[j]) - u)**2)"),
        np.random.default_rng(9),
    )
    x = rng.standard_normal(40)
    x[absent] = -np.inf
    true = ra.reference(form.spec, x=x)
    for got in (folded(form, {"x": x}, [0, 1, 2, 20], rng)["c"], form.compile("numpy")(x=x)):
        assert error(got, true) <= 1e-13


# --- everywhere alike -----------------------------------------------------------------------------------------------

EVERYWHERE = {
    "groups": (GROUPS["groups"], lambda rng: grouped(GROUPS["groups"], 1e8, rng)),
    "two outputs": (GROUPS["two outputs"], lambda rng: grouped(GROUPS["two outputs"], 1e8, rng)),
    "groups by a mask": (GROUPS["groups by a mask"], lambda rng: grouped(GROUPS["groups by a mask"], 1e8, rng)),
    "masked maxima": (
        MASKED["elements first"],
        lambda rng: {"x": 1000 * (rng.random(40) > 0.5) + rng.random(40), "G": 1.0 * (rng.random((40, 3)) > 0.4)},
    ),
    "softmax": (scored("queries", "softmax"), lambda rng: scores(scored("queries", "softmax"), 300, rng, 40, float)),
    "exponential": (
        moment("exponential", "weighted", 2, "xzw")[0],
        lambda rng: {"x": 1e-4 * rng.random(40), "w": rng.random(40)},
    ),
    "square": (moment("square", "weighted", 2, "xzw")[0], lambda rng: {"x": 1e7 + rng.random(40), "w": rng.random(40)}),
    "cosine": (moment("cosine", "masked", 2, "xzw")[0], lambda rng: {"x": rng.random(40), "w": 2 * rng.random(40)}),
}


@pytest.mark.parametrize("name", sorted(EVERYWHERE))
def test_generated_kernels_hold_the_same_anchors(name: str) -> None:
    """Numba on the CPU, and the printed CUDA kernel under emulation."""
    text, draw = EVERYWHERE[name]
    form, arrays = derived(text), draw(np.random.default_rng(6))
    true = by_name(form, ra.reference(form.spec, exact=True, **arrays))
    bound = 1e-7 if name == "square" else 1e-12  # |x²|/sd(x²) is 1e7
    for result in (by_name(form, form.compile("cpu")(**arrays)), simulated(form, arrays)[0]):
        for output, t in true.items():
            assert error(result[output], t) <= bound, output


# --- nothing is dropped in silence ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("stubborn", "named"), [("v", {MODERATE}), ("x", {IN_RANGE, MODERATE})])
def test_a_form_without_an_anchor_says_so(stubborn: str, named: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where an anchor cannot be had the others stay, and an assumption names what the form does without."""

    def refusing(read: Any, around: Any) -> None:
        if any(leaf.attr.name == stubborn for c in read.choices.all() for leaf in leaves(c.generator)):
            raise Unresolved(Blocked(read.stages[-1], read.stages[-1], "it is stubborn"))
        centred(read, around)

    changed = tuple(p._replace(run=refusing) if p.run is centred else p for p in passes.READ_PASSES)
    monkeypatch.setattr(passes, "READ_PASSES", changed)
    text = "tensors x[j], v[j]; m = max[j](x[j]); e = exp(x[j] - m); u = sum[j](e*v[j])/sum[j](e); "
    form = derived.__wrapped__(text + "return y = sum[j](e*(v[j] - u)**2)")
    assert form.assumptions.keys() == named
    assert all(stubborn in form.assumptions[name] or name == MODERATE for name in named)
    assert all(name in str(form.explain()) for name in named)
    assert form.certificate.verify().proved


# --- what the checker learned for it --------------------------------------------------------------------------------


def test_a_count_of_what_occurs_is_no_zero() -> None:
    """A divisor is in its domain under a guard that says so, and under no other."""
    doc = derived("tensors x[j], w[j]; return y = sum[j](w[j]*x[j])").certificate.document
    t = doc.terms
    x, w = (
        t("tensor", attr=Leaf(name, ("j",), frozenset(domain))) for name, domain in (("x", ()), ("p", ["positive"]))
    )
    zero, one = t.const(0), t.const(1)
    above, below = t("lt", zero, x), t("not", t("lt", zero, x))
    far, other = t("lt", one, x), t("lt", one, w)

    def proved(condition: Any, yes: Any, no: Any, guard: Any) -> bool:
        divisor = t.reduce("sum", ("j",), t("where", condition, yes, no))
        given = (t.reduce("any", ("j",), guard),)
        return Judge(doc).proves(Obligation("O7", "y", t("ne", divisor, zero), t("true"), "domain", given))

    with metered():
        assert proved(above, one, zero, above) and proved(above, zero, one, below) and proved(above, w, zero, above)
        assert proved(far, one, zero, far) and proved(below, one, zero, below)
        assert not proved(far, one, zero, above) and not proved(above, one, zero, below)
        assert not proved(above, one, zero, other) and not proved(above, one, t.const(-1), above)
        assert not proved(below, w, zero, above) and not proved(above, t.sub(w, one), zero, above)


def test_sums_over_groups_are_joined_soundly() -> None:
    """Σ_gj w·t_g/(Σ_j w)² is Σ_g t_g/Σ_j w; with other weights, or with what j has a part in, it is not."""
    doc = derived("tensors G[j,g], x[j]; return y = sum[j](sum[g](G[j,g]*x[j]))").certificate.document
    t, n = doc.terms, Judge(doc).plain()
    g, h, x = (
        t("tensor", attr=Leaf(name, axes, frozenset()))
        for name, axes in (("G", ("j", "g")), ("H", ("j", "g")), ("x", ("j",)))
    )

    def over(term: Any, *axes: str) -> Any:
        return t.reduce("sum", axes, term)

    def squared(a: Any) -> Any:
        return t.mul(a, a)

    whole = over(t.div(squared(over(t.mul(g, x), "j")), over(g, "j")), "g")
    with metered():
        for weight, divisor, same in ((g, g, True), (h, g, False), (g, h, False), (t.mul(g, x), g, False)):
            inner = t.div(squared(over(t.mul(g, x), "j")), squared(over(divisor, "j")))
            assert (n(over(over(t.mul(weight, inner), "g"), "j")) == n(whole)) == same
