"""Anchors: every value that deviates from stage values has one, one per target, and none is dropped in silence.

Truth is the definition to 50 digits. A moment of c = u - A can be no better than u itself is known: fl(u) is off by
some ulps of |u|, and that is a relative error of |u|/sd(u) ulps of the moment. A form without an anchor loses the
square of that, and more for higher moments, so that every bound here tells the two apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated import run as simulated

import redalg as ra
from redalg import assembling
from redalg.graph import leaves
from redalg.plan import IN_RANGE, MODERATE
from redalg.proofs.check import Judge
from redalg.proofs.document import Obligation
from redalg.proofs.terms import Leaf
from redalg.proofs.work import metered

EPS = 2.0**-52
Arrays = dict[str, np.ndarray]


# --- feeding --------------------------------------------------------------------------------------------------------


def folded(form: Any, arrays: Arrays, cuts: Sequence[int], rng: np.random.Generator) -> dict[str, Any]:
    """Accumulators over unequal pieces (empty ones included), merged by a random tree."""
    axes = {d.name: d.axes for d in form.spec.tensors}
    along = {name for name in arrays if "j" in axes[name]}
    length = next(arrays[name].shape[axes[name].index("j")] for name in along)
    places = [0, *sorted(min(c, length) for c in cuts), length]
    pieces = []
    for low, high in zip(places, places[1:], strict=False):
        pieces.append(form.accumulator(**{n: a for n, a in arrays.items() if n not in along}))
        part = {n: arrays[n].take(range(low, high), axis=axes[n].index("j")) for n in along}
        pieces[-1].update(**part)
    while len(pieces) > 1:
        k = int(rng.integers(len(pieces) - 1))
        pieces[k].merge(pieces.pop(k + 1))
    return by_name(form, pieces[0].result())


def by_name(form: Any, result: Any) -> dict[str, Any]:
    return result if isinstance(result, dict) else {next(iter(form.spec.outputs)): result}


def error(got: Any, true: Any) -> float:
    """The largest error relative to the largest true value."""
    size = max(abs(t) for t in np.ravel(np.asarray(true, dtype=object)))
    apart = [abs(a - b) for a, b in zip(np.ravel(got).tolist(), np.ravel(np.asarray(true, dtype=object)), strict=True)]
    return float(max(apart) / size) if size else float(max(apart))


@cache
def derived(text: str) -> Any:
    return ra.derive_incremental(ra.parse(text), axis="j")


# --- moments of generated values ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Value:
    """u as text over x (and z), the streams it is evaluated on, and u in floating point."""

    text: str
    draw: Callable[[np.random.Generator, int, float], Arrays]
    tensors: str = "{x}[j]"


def near(centre: float, spread: float = 1.0) -> Callable[[np.random.Generator, int, float], Arrays]:
    """centre·(1 + noise/ratio): values near a centre, that many times their spread away from 0."""
    return lambda rng, n, ratio: {"x": centre * (1 + spread * rng.standard_normal(n) / ratio)}


def two(rng: np.random.Generator, n: int, ratio: float) -> Arrays:
    return {name: 3 * (1 + rng.standard_normal(n) / ratio) for name in ("x", "z")}


VALUES = {
    "square": Value("{x}[j]**2", near(-7.0)),
    "cube": Value("{x}[j]**3", near(5.0)),
    "seventh": Value("{x}[j]**7", near(1.5)),
    "root": Value("sqrt({x}[j])", near(1000.0)),
    "reciprocal": Value("1/{x}[j]", near(0.25)),
    "power": Value("{x}[j]**(3/2)", near(9.0)),
    "logarithm": Value("log({x}[j])", near(1e6)),
    "cosine": Value("cos({x}[j])", near(1.0)),
    "sine": Value("sin({x}[j])", near(2.0)),
    "tanh": Value("tanh({x}[j])", near(0.5)),
    "size": Value("abs({x}[j])", near(-4.0)),
    "product": Value("{x}[j]*{z}[j]", two, "{x}[j], {z}[j]"),
    "of squares": Value("{x}[j]**2*{z}[j]", two, "{x}[j], {z}[j]"),
    "sum": Value("({x}[j] + {z}[j]**2)", two, "{x}[j], {z}[j]"),
    "scaled": Value("3*{x}[j]**2", near(2.0)),
    "selected": Value("where({x}[j] > {z}[j], {x}[j], 2*{z}[j])", two, "{x}[j], {z}[j]"),
    "plain": Value("{x}[j]", near(1.0)),
}  # fmt: skip
WEIGHTS = {
    "none": ("", "mean[j]({u})", "mean[j]({t})"),
    "weighted": ("{w}[j]", "sum[j]({w}[j]*({u}))/sum[j]({w}[j])", "sum[j]({w}[j]*({t}))/sum[j]({w}[j])"),
    "masked": (
        "{w}[j]",
        "sum[j](where({w}[j] > 1, {u}, 0))/sum[j](where({w}[j] > 1, 1, 0))",
        "sum[j](where({w}[j] > 1, {t}, 0))/sum[j](where({w}[j] > 1, 1, 0))",
    ),
    "not masked": (
        "{w}[j]",
        "sum[j](where({w}[j] > 1, 0, {u}))/sum[j](where({w}[j] > 1, 0, 1))",
        "sum[j](where({w}[j] > 1, 0, {t}))/sum[j](where({w}[j] > 1, 0, 1))",
    ),
}
NAMES = st.lists(st.sampled_from(["x", "a", "n", "A_x", "mean1", "shift", "avg_x", "z", "w2"]), min_size=3, max_size=3,
                 unique=True)  # fmt: skip


def moment(value: str, weight: str, power: int, names: Sequence[str]) -> tuple[str, dict[str, str]]:
    x, z, w = names
    known = {"x": x, "z": z, "w": w}
    u = VALUES[value].text.format(**known)
    held, mean, whole = WEIGHTS[weight]
    tensors = ", ".join(t for t in (VALUES[value].tensors.format(**known), held and f"{w}[j]") if t)
    m = mean.format(u=u, **known)
    y = whole.format(t=f"({u} - centre)**{power}", **known)
    return f"tensors {tensors}; centre = {m}; return y = {y}", known


@settings(max_examples=16)
@given(
    value=st.sampled_from(sorted(VALUES)), weight=st.sampled_from(sorted(WEIGHTS)), power=st.sampled_from([2, 2, 3, 4]),
    digits=st.sampled_from([1, 4, 7]), names=NAMES, cuts=st.lists(st.integers(0, 40), min_size=2, max_size=5),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_moments_of_any_value_are_as_good_as_the_value(
    value: str, weight: str, power: int, digits: int, names: list[str], cuts: list[int], seed: int
) -> None:
    text, known = moment(value, weight, power, names)
    form, rng = derived(text), np.random.default_rng(seed)
    drawn = VALUES[value].draw(rng, 40, 10.0**digits) | {"w": rng.uniform(0.5, 1.5, 40)}
    arrays = {known[n]: a for n, a in drawn.items() if known[n] in {d.name for d in form.spec.tensors}}
    true = ra.reference(form.spec, exact=True, **arrays)
    # |u|/sd(u) is at most some 7·10^digits; odd moments may be small beside their terms
    bound = (16 if power % 2 == 0 else 400) * power * EPS * 7 * 10.0**digits
    assert error(folded(form, arrays, cuts, rng)["y"], true) <= bound
    assert error(form.compile("numpy")(**arrays), true) <= bound
    assert not form.assumptions.keys() & {IN_RANGE, MODERATE}


@pytest.mark.parametrize("value", sorted(VALUES))
def test_moments_of_any_value_are_proved(value: str) -> None:
    """Their transport is the binomial one, whatever the value is."""
    text, _ = moment(value, "weighted", 2, ["x", "z", "w"])
    assert derived(text).certificate.verify().proved


@pytest.mark.parametrize("value", sorted(VALUES))
def test_equal_elements_have_no_spread_at_all(value: str) -> None:
    text, _ = moment(value, "none", 2, ["x", "z", "w"])
    form = derived(text)
    arrays = {n: np.full(9, a[0]) for n, a in VALUES[value].draw(np.random.default_rng(1), 9, 10.0).items()}
    for cuts in ([0, 0, 1], [4, 7], range(1, 9)):
        assert folded(form, arrays, cuts, np.random.default_rng(2))["y"] == 0


# --- one anchor per target ------------------------------------------------------------------------------------------

TWO = (
    "tensors x[j], g[j]; a = sum[j](where(g[j] > 0, x[j], 0))/sum[j](where(g[j] > 0, 1, 0)); "
    "b = sum[j](where(g[j] > 0, 0, x[j]))/sum[j](where(g[j] > 0, 0, 1)); "
)
GROUPS = {
    "two outputs": TWO
    + "return v = sum[j](where(g[j] > 0, (x[j] - a)**2, 0)), w = sum[j](where(g[j] > 0, 0, (x[j] - b)**2))",
    "one sum": TWO + "return v = sum[j](where(g[j] > 0, (x[j] - a)**2, (x[j] - b)**2))",
    "skew": TWO + "return v = sum[j](where(g[j] > 0, (x[j] - a)**3, 0)), w = sum[j](where(g[j] > 0, 0, (x[j] - b)**3))",
    "means beside": TWO + "return a = a, b = b, v = sum[j](where(g[j] > 0, (x[j] - a)**2, 0))",
    "two weights": (
        "tensors x[j], p[j], q[j]; a = sum[j](p[j]*x[j])/sum[j](p[j]); b = sum[j](q[j]*x[j])/sum[j](q[j]); "
        "return v = sum[j](p[j]*(x[j] - a)**2), w = sum[j](q[j]*(x[j] - b)**2)"
    ),
    "weights of one sum": (
        "tensors x[j], p[j], q[j]; a = sum[j](p[j]*x[j])/sum[j](p[j]); b = sum[j](q[j]*x[j])/sum[j](q[j]); "
        "return v = sum[j](p[j]*(x[j] - a)**2 + q[j]*(x[j] - b)**2)"
    ),
    "between": (  # both locations in one term: each factor about its own
        "tensors x[j], p[j]; a = sum[j](p[j]*x[j])/sum[j](p[j]); b = mean[j](x[j]); "
        "return v = sum[j](p[j]*(x[j] - a)*(x[j] - b)**2)"
    ),
    "groups": (
        "tensors x[j], G[j,g]; a = sum[j](G[j,g]*x[j])/sum[j](G[j,g]); return v = sum[j](sum[g](G[j,g]*(x[j] - a)**2))"
    ),
    "groups by a mask": (
        "tensors x[j], G[j,g]; a = sum[j](where(G[j,g] > 0, x[j], 0))/sum[j](where(G[j,g] > 0, 1, 0)); "
        "return v = sum[j](sum[g](where(G[j,g] > 0, (x[j] - a)**2, 0)))"
    ),
    "groups summed last": (
        "tensors x[j], G[j,g]; a = sum[j](G[j,g]*x[j])/sum[j](G[j,g]); return v = sum[g](sum[j](G[j,g]*(x[j] - a)**2))"
    ),
    "every group": (
        "tensors x[j], G[j,g]; a = sum[j](G[j,g]*x[j])/sum[j](G[j,g]); return v = sum[j](G[j,g]*(x[j] - a)**2), a = a"
    ),
    "groups of squares": (
        "tensors x[j], G[j,g]; a = sum[j](G[j,g]*x[j]**2)/sum[j](G[j,g]); "
        "return v = sum[j](sum[g](G[j,g]*(x[j]**2 - a)**2))"
    ),
}  # fmt: skip


def grouped(text: str, apart: float, rng: np.random.Generator, n: int = 40) -> Arrays:
    """Groups whose means are `apart` standard deviations from each other."""
    member = rng.integers(0, 3, n)
    found = {"g": np.where(member > 0, 1.0, -1.0), "p": (member > 0) * rng.uniform(0.5, 1.5, n)}
    found |= {"q": (member == 0) * rng.uniform(0.5, 1.5, n), "G": 1.0 * (member[:, None] == np.arange(3))}
    at = member if "G[" in text else member > 0
    found["x"] = rng.standard_normal(n) + apart * at
    return {name: a for name, a in found.items() if f"{name}[" in text}


@pytest.mark.parametrize("apart", [1e4, 1e8])
@pytest.mark.parametrize("name", sorted(GROUPS))
def test_groups_far_apart_do_not_disturb_each_other(name: str, apart: float) -> None:
    form, rng = derived(GROUPS[name]), np.random.default_rng(len(name))
    arrays = grouped(GROUPS[name], apart, rng)
    true = by_name(form, ra.reference(form.spec, exact=True, **arrays))
    got = folded(form, arrays, [0, 0, 1, 17, 18, 39], rng)
    whole = by_name(form, form.compile("numpy")(**arrays))
    squares = name == "groups of squares"  # their own rounding: |x²|/sd(x²) is `apart`
    for output, t in true.items():
        for value in (got[output], whole[output]):
            assert error(value, t) <= (EPS * (64 + (16 * apart if squares else 0)) if name != "skew" else 1e-13), output


@pytest.mark.parametrize("name", sorted(GROUPS))
def test_forms_with_an_anchor_per_target_are_proved(name: str) -> None:
    assert derived(GROUPS[name]).certificate.verify().proved


def test_a_group_without_elements_takes_no_part() -> None:
    """Under a mask it contributes nothing; as a weight of 0 it has no mean, and neither has the definition."""
    form = derived(GROUPS["groups by a mask"])
    arrays = grouped("x[ G[", 1e6, np.random.default_rng(3), 12)
    arrays["G"][:, 1] = 0
    true = ra.reference(form.spec, exact=True, **arrays)
    assert error(folded(form, arrays, [0, 5], np.random.default_rng(4))["v"], true) <= 64 * EPS
    assert np.isnan(derived(GROUPS["groups"]).compile("numpy")(**arrays))


# --- softmax --------------------------------------------------------------------------------------------------------

SCORES = {
    "centred keys": "s = sum[d](q[d]*(k[j,d] - mean[j](k[j,d])))",
    "weighted centre": "s = sum[d](q[d]*(k[j,d] - sum[j](w[j]*k[j,d])/sum[j](w[j])))",
    "two contractions": "s = sum[d](q[d]*(k[j,d] - mean[j](k[j,d]))) + sum[e](r[e]*(l[j,e] - mean[j](l[j,e])))",
    "another's mean": "s = sum[d](q[d]*(k[j,d] - mean[j](h[j,d])))",
    "bias": "s = sum[d](q[d]*(k[j,d] - mean[j](k[j,d]))) + b[j]",
    "queries": "s = sum[d](q[i,d]*(k[j,d] - mean[j](k[j,d])))",
    "scaled": "s = 3*sum[d](q[d]*(k[j,d] - mean[j](k[j,d])))",
    "sum of keys": "s = sum[d](q[d]*(k[j,d] + h[j,d] - mean[j](k[j,d])))",
}
TENSORS = {
    "q[d]": 5, "q[i,d]": 5, "k[j,d]": 5, "h[j,d]": 5, "r[e]": 2, "l[j,e]": 2, "w[j]": None, "b[j]": None, "v[j]": None,
}  # fmt: skip
WAYS = {
    "softmax": "m = max[j](s); p = exp(s - m); return y = sum[j](p*v[j])/sum[j](p), t = m + log(sum[j](p))",
    "without its maximum": "return y = sum[j](exp(s)*v[j])/sum[j](exp(s))",
}


def scored(name: str, way: str) -> str:
    body = f"{SCORES[name]}; {WAYS[way]}"
    return f"tensors {', '.join(t for t in TENSORS if t in body)}; {body}"


def scores(text: str, size: float, rng: np.random.Generator, n: int = 40, dtype: Any = np.float32) -> Arrays:
    found = {}
    for t in TENSORS:
        if t in text:
            name, axes = t.rstrip("]").split("[")
            lengths = {"j": n, "d": 5, "e": 2, "i": 3}
            a = rng.standard_normal([lengths[x] for x in axes.split(",")])
            found[name] = (a * (size if name in "qrb" else 1)).astype(dtype)
    return found


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
    assert derived(scored(name, "softmax")).certificate.verify().proved


MASKED = {
    "elements first": "tensors G[j,g], x[j]; a = max[j](where(G[j,g] > 0, x[j], -oo)); "
    "return y = sum[j](sum[g](where(G[j,g] > 0, exp(x[j] - a), 0)))",
    "groups first": "tensors G[j,g], x[j]; a = max[j](where(G[j,g] > 0, x[j], -oo)); "
    "return y = sum[g](sum[j](where(G[j,g] > 0, exp(x[j] - a), 0)))",
    "with values": "tensors G[j,g], x[j], v[j]; a = max[j](where(G[j,g] > 0, x[j], -oo)); "
    "return y = sum[j](sum[g](where(G[j,g] > 0, exp(x[j] - a)*v[j], 0)))",
    "every group": "tensors G[j,g], x[j]; a = max[j](where(G[j,g] > 0, x[j], -oo)); "
    "l = sum[j](where(G[j,g] > 0, exp(x[j] - a), 0)); return y = a + log(l)",
    "two masks": "tensors h[j], x[j]; a = max[j](where(h[j] > 0, x[j], -oo)); b = max[j](where(h[j] > 0, -oo, x[j])); "
    "l = sum[j](where(h[j] > 0, exp(x[j] - a), 0)); k = sum[j](where(h[j] > 0, 0, exp(x[j] - b))); "
    "return y = a + log(l) - b - log(k)",
}  # fmt: skip


@pytest.mark.parametrize("apart", [1.0, 1000.0])
@pytest.mark.parametrize("name", sorted(MASKED))
def test_each_group_has_its_own_maximum(name: str, apart: float) -> None:
    form, rng = derived(MASKED[name]), np.random.default_rng(5)
    member = rng.integers(0, 3, 40)
    arrays = {"x": rng.standard_normal(40) + apart * member, "G": 1.0 * (member[:, None] == np.arange(3))}
    arrays |= {"h": member - 0.5, "v": rng.uniform(1, 2, 40)}
    arrays = {n: a for n, a in arrays.items() if n in {d.name for d in form.spec.tensors}}
    true = ra.reference(form.spec, exact=True, **arrays)
    for value in (folded(form, arrays, [0, 1, 1, 30], rng)["y"], form.compile("numpy")(**arrays)):
        assert error(value, true) <= 16 * EPS * (1 + apart)
    assert form.certificate.verify().proved


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
    "square": (moment("square", "weighted", 2, "xzw")[0], lambda rng: {"x": 1e7 + rng.random(40), "w": rng.random(40)}),
    "cosine": (moment("cosine", "masked", 2, "xzw")[0], lambda rng: {"x": rng.random(40), "w": 2 * rng.random(40)}),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(EVERYWHERE))
def test_generated_kernels_hold_the_same_anchors(name: str) -> None:
    """Numba on the CPU, and the printed CUDA kernel in the simulator."""
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
    build = assembling._build

    def refusing(raw: Any, nodes: Any, stages: Any, choices: Any, *rest: Any) -> Any:
        if any(leaf.attr.name == stubborn for c in choices.all() for leaf in leaves(c.generator)):
            raise assembling.Unresolved(stage=stages[-1])
        return build(raw, nodes, stages, choices, *rest)

    monkeypatch.setattr(assembling, "_build", refusing)
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
    g, h, x = (t("tensor", attr=Leaf(name, axes, frozenset())) for name, axes in (
        ("G", ("j", "g")), ("H", ("j", "g")), ("x", ("j",))))  # fmt: skip

    def over(term: Any, *axes: str) -> Any:
        return t.reduce("sum", axes, term)

    def squared(a: Any) -> Any:
        return t.mul(a, a)

    whole = over(t.div(squared(over(t.mul(g, x), "j")), over(g, "j")), "g")
    with metered():
        for weight, divisor, same in ((g, g, True), (h, g, False), (g, h, False), (t.mul(g, x), g, False)):
            inner = t.div(squared(over(t.mul(g, x), "j")), squared(over(divisor, "j")))
            assert (n(over(over(t.mul(weight, inner), "g"), "j")) == n(whole)) == same
