"""The checker's evaluator against the library's exact one (`redalg.numeric.exact`), with which it shares no code."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from fractions import Fraction
from itertools import product
from typing import Any

import mpmath
import pytest

import redalg as ra
from redalg.certify.export import Export
from redalg.graph.formats import INTEGERS, NAMES, cast_fraction
from redalg.numeric.exact import Exact
from redalg.proofs.document.rounding import rounded
from redalg.proofs.document.terms import Term, Terms
from redalg.proofs.falsification.evaluate import Evaluation, TooMuch, Unfit
from redalg.proofs.numbers.complexes import Complex, parts
from redalg.proofs.numbers.enclosure import Interval
from redalg.proofs.numbers.value_maps import UNKNOWN
from redalg.proofs.numbers.values import INF, NAN, NEG_INF, Numbers

DIGITS = 80
MP = mpmath.MPContext()
MP.dps = DIGITS + 60

SHORT = {
    "softmax": "m = max[j](X); p = exp(X - m); return y = p / sum[j](p), lse = m + log(sum[j](p))",
    "scaled": "m = max[j](X); p = exp((X - m) / 3); return y = p / sum[j](p)",
    "attention": "s = sum[d](Q[i,d] * K[j,d]); m = max[j](s); p = exp(s - m); return O = sum[j](p*V[j,d]) / sum[j](p)",
    "causal": "s = where(index(j) <= index(i), X, -oo); p = exp(s - max[j](s)); return y = sum[j](p * X) / sum[j](p)",
    "order": "return a = argmax[j](X), b = argmin[j](X), c = max[j](abs(X)), d = min[i](X * X)",
    "ranked": "return v = topk[j:2](X).values, i = topk[j:2](X).indices",
    "ties": "return y = argmax[j](exp(X) / sum[j](exp(X))), k = topk[j:2](sigmoid(X)).indices",
    "both": "return y = sum[i, j](X * index(j)), z = argmax[i, j](X), n = size(j) * size(i)",
    "truths": "return a = any[j](X > 0), b = all[j](X <= 1 or X != X), c = sum[j](X == 0)",
    "moments": "m = mean[j](X); return s = mean[j]((X - m)**3) / mean[j]((X - m)**2)**(3/2), g = prod[j](X)",
    "casts": "return a = cast(X * 37 / 3, float8_e4m3fn), b = cast(X / 3, float16), c = cast(X * 19, int8)",
    "maps": "return a = tanh(X) + erf(X), b = log1p(abs(X)) * sin(X), c = floor(X / 2) + relu(X), "
    "d = sqrt(X), e = log(X), f = atan(X) - asinh(X), g = X**X, h = 1 / X",
    "edges": "return a = maximum(X, 0), b = minimum(X, 1/X), c = where(X > 0, X, 0), d = abs(X)**(1/3)",
}
SPECS = {name: text.replace("X", "x[i,j]") for name, text in SHORT.items()}


def drawn(tensors: Any, lengths: dict[str, int], draw: random.Random, wild: bool) -> dict[str, dict[tuple, Any]]:
    def one() -> Any:
        if wild and draw.random() < 0.25:
            return draw.choice([INF, NEG_INF, NAN, NEG_INF])
        return Fraction(draw.randint(-2, 3)) if draw.random() < 0.6 else Fraction(draw.randint(-40, 40), 7)

    return {t.name: {at: one() for at in product(*(range(lengths[a]) for a in t.axes))} for t in tensors}


def agree(found: Any, expected: Any, note: Any) -> None:
    if isinstance(expected, bool) or isinstance(found, bool):
        assert found is expected, note
    elif isinstance(found, Interval):
        low, high = (MP.ldexp(MP.mpf(e[0]), e[1]) for e in (found.low, found.high))
        value = MP.mpf(expected.numerator) / expected.denominator if isinstance(expected, Fraction) else expected
        slack = MP.mpf(10) ** -DIGITS * max(1, abs(value))
        assert low - slack <= value <= high + slack, note
        assert high - low <= MP.mpf(10) ** -50 * max(1, abs(low)), note
    elif isinstance(found, Fraction):
        assert found == expected, note
    else:
        assert isinstance(found, float), note
        assert (found != found and expected != expected) or found == expected, (note, found, expected)


@pytest.mark.parametrize("wild", [False, True])
@pytest.mark.parametrize("name", sorted(SPECS))
def test_outputs_are_those_of_the_exact_evaluator(name: str, wild: bool) -> None:
    spec, draw, known, unknown = ra.parse(SPECS[name]), random.Random(name), 0, 0
    export = Export(spec, None)  # type: ignore[arg-type]
    for n in (0, 1, 2, 3, 5) if not wild else (1, 2, 4, 4):
        lengths = dict.fromkeys(spec.axes, 2) | {"j": n, "j_top": 2}
        values = drawn(spec.tensors, lengths, draw, wild)
        lengths = {a: n for a, n in lengths.items() if a != "j_top" or "top" in SPECS[name]}
        exact = Exact(values, lengths, DIGITS)
        mine = Evaluation(Numbers(300), values, lengths)
        for output, node in spec.outputs.items():
            term = export(node)
            for at in mine.places(sorted(term.axes)):
                found = mine.value(term, at)
                unknown += found is UNKNOWN
                if found is UNKNOWN:
                    continue
                known += 1
                agree(found, exact.value(node, at), (name, output, at, values))
    assert known >= 8 and unknown <= known / 4


def test_a_tie_of_numbers_that_are_not_rational_is_a_tie() -> None:
    spec = ra.parse(SPECS["ties"])
    export, third = Export(spec, None), Fraction(1, 3)  # type: ignore[arg-type]
    values = {"x": {(0, j): v for j, v in enumerate([0, third, -third, third])}}
    mine = Evaluation(Numbers(), values, {"i": 1, "j": 4})
    assert mine.table(export(spec.outputs["y"])) == [1]
    assert mine.table(export(spec.outputs["k"])) == [1, 3]


def test_numbers_that_differ_by_less_than_the_precision_are_undecided() -> None:
    t = Terms()
    x, y = t.state("x"), t.state("y")
    near = {"x": {(): Fraction(1)}, "y": {(): 1 + Fraction(1, 10**90)}}
    mine = Evaluation(Numbers(), near, {})
    assert mine.table(t("lt", x, y)) == [True]
    assert mine.table(t("lt", t("exp", x), t("exp", y))) == [UNKNOWN]
    assert Evaluation(Numbers(400), near, {}).table(t("lt", t("exp", x), t("exp", y))) == [True]


def test_offsets_sizes_and_starts() -> None:
    t = Terms()
    from redalg.proofs.document.terms import Leaf

    x = t("tensor", attr=Leaf("x", ("j_b",), frozenset()))
    values = {"x": {(i,): Fraction(10 * i) for i in range(5)}}
    mine = Evaluation(Numbers(), values, {"j_b": 2}, sizes={"j_b": 7}, offsets={"j_b": 3}, starts={"j_b": 3})
    assert mine.table(x) == [30, 40]
    assert mine.table(t("index", attr="j_b")) == [3, 4] and mine.table(t("size", attr="j_b")) == [7]


def test_a_monoid_is_folded_in_the_order_of_the_stream() -> None:
    pair = ra.Monoid("affine", lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (1, 0))
    a, b = ra.tensors("a[j] b[j]")
    spec = ra.Spec(y=ra.reduce((a, b), "j", monoid=pair)[1])
    export = Export(spec, None)  # type: ignore[arg-type]
    term = export(spec.outputs["y"])
    monoids = tuple(export._monoid(m) for m in export.monoids)
    values = {"a": {(i,): Fraction(i + 2) for i in range(3)}, "b": {(i,): Fraction(5 - i) for i in range(3)}}
    assert Evaluation(Numbers(), values, {"j": 3}, monoids=monoids).table(term) == [(5 * 3 + 4) * 4 + 3]
    assert Evaluation(Numbers(), values, {"j": 0}, monoids=monoids).table(term) == [0]
    with pytest.raises(Unfit):
        Evaluation(Numbers(), values, {"j": 3}).table(term)


def test_a_cast_may_be_assumed_to_commute() -> None:
    t = Terms()
    x = t("cast", t.const(Fraction(1, 3)), attr="int8")
    assert Evaluation(Numbers(), {}, {}).table(x) == [0]
    assert Evaluation(Numbers(), {}, {}, casts=False).table(x) == [Fraction(1, 3)]


@pytest.mark.parametrize("name", sorted(NAMES - {"bool"}))
def test_rounding_is_that_of_the_formats(name: str) -> None:
    draw = random.Random(name)
    for _ in range(400):
        x = Fraction(draw.randint(-(2**40), 2**40), draw.choice([1, 3, 2**20, 2**39])) * Fraction(2) ** draw.choice(
            [0, 0, -8, -20, -30, -150, 5, 100, 900]
        )
        assert rounded(x, name) == cast_fraction(x, name), x
    if name in INTEGERS:
        halves = [Fraction(2 * k + 1, 2) for k in range(-6, 6)]
        assert [rounded(h, name) for h in halves] == [cast_fraction(h, name) for h in halves]


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "float16", "bfloat16"])
def test_rounding_at_every_midpoint_goes_to_the_even_neighbour(name: str) -> None:
    neighbours = sorted({cast_fraction(Fraction(k, 2**12), name) for k in range(2**12, 2**14, 3)})
    for low, high in zip(neighbours, neighbours[1:], strict=False):
        middle, nudge = (low + high) / 2, Fraction(1, 2**60)
        assert rounded(middle - nudge, name) == low and rounded(middle + nudge, name) == high
        assert rounded(middle, name) == cast_fraction(middle, name) and rounded(-middle, name) == -rounded(middle, name)


def _tower(t: Terms, levels: int) -> Term:
    x = t.const(7)
    for _ in range(levels):
        x = t("pow", x, x)
    return x


def test_work_is_bounded() -> None:
    t = Terms()
    assert Evaluation(Numbers(), {}, {}).table(_tower(t, 60)) == [UNKNOWN]
    x = t.const(3)
    for _ in range(3000):
        x = t.mul(x, x)
    assert Evaluation(Numbers(), {}, {}).table(x) == [UNKNOWN]
    x = t.const(1)
    for _ in range(3000):
        x = t("exp", x)
    assert Evaluation(Numbers(), {}, {}).table(x) == [UNKNOWN]
    deep = t.state("y")
    for i in range(20_000):
        deep = t.add(deep, t.const(Fraction(1, i + 1)))
    (total,) = Evaluation(Numbers(), {"y": {(): Fraction(0)}}, {}).table(deep)
    assert isinstance(total, Interval) and total.is_narrow(150)


def test_an_evaluation_that_costs_too_much_is_refused_before_it_is_done() -> None:
    t = Terms()
    wide = t.reduce("sum", ("j",), t("index", attr="j"))
    with pytest.raises(TooMuch):
        Evaluation(Numbers(), {}, {"j": 10**9}).table(wide)
    with pytest.raises(TooMuch):
        Evaluation(Numbers(), {}, {"j": 2}).table(
            t.reduce("topk_values", ("j",), t("index", attr="j"), extra=(10**14, "k"))
        )


def test_values_that_do_not_fit_are_refused() -> None:
    t = Terms()
    with pytest.raises(Unfit):
        Evaluation(Numbers(), {}, {}).table(t.state("x"))
    with pytest.raises(Unfit):
        Evaluation(Numbers(), {}, {}).table(t("index", attr="j"))
    with pytest.raises(Unfit):
        Evaluation(Numbers(), {}, {"j": 3}).table(t.reduce("topk_values", ("j",), t("index", attr="j"), extra=(2, "j")))


@pytest.mark.parametrize("name", "exp log abs conj re im cosh sinh expm1 log1p sigmoid tanh cos sin power root".split())
def test_a_function_of_a_complex_number_is_that_of_mpmath(name: str) -> None:
    draw, numbers = random.Random(name), Numbers(300)
    special: dict[str, Any] = {
        "log": MP.ln,
        "abs": abs,
        "sigmoid": lambda z: 1 / (1 + MP.exp(-z)),
        "power": lambda z: z**-5,
        "root": lambda z: MP.power(z, MP.mpf(2) / 3),
        **{n: getattr(MP, n) for n in ("conj", "re", "im")},
    }
    for _ in range(40):
        z = Complex(Fraction(draw.randint(-9, 9), 4), Fraction(draw.choice((-7, -3, -1, 2, 5)), 4))
        exponent = {"power": Fraction(-5), "root": Fraction(2, 3)}.get(name)
        found = numbers.map(name, z) if exponent is None else numbers.power(z, exponent)
        value = (special.get(name) or getattr(MP, name))(MP.mpc(float(z.re), float(z.im)))
        for part, expected in zip(parts(found), (MP.re(value), MP.im(value)), strict=True):
            low, high = numbers.reals.ends(numbers.interval(part))
            slack = MP.mpf(10) ** -(DIGITS + 40)
            assert MP.mpf(low.numerator) / low.denominator - slack <= expected
            assert expected <= MP.mpf(high.numerator) / high.denominator + slack
            assert high - low <= Fraction(1, 10**70) * max(1, abs(low))


def test_a_complex_number_without_an_imaginary_part_is_a_real_one() -> None:
    numbers, z = Numbers(), Complex(Fraction(1), Fraction(2))
    assert numbers.add([z, numbers.map("conj", z)]) == 2 and numbers.mul([z, numbers.map("conj", z)]) == 5
    assert numbers.compare("eq", z, Complex(Fraction(1), Fraction(2))) is True
    assert numbers.compare("ne", z, Fraction(1)) is True and numbers.compare("lt", z, Fraction(1)) is UNKNOWN
    assert numbers.extremum("max", [z, Fraction(1)]) is UNKNOWN and numbers.map("relu", z) is UNKNOWN
    assert numbers.power(numbers.special("i"), Fraction(2)) == -1
    assert parts(numbers.cast(Complex(Fraction(1, 3), Fraction(7, 3)), "int8")) == (0, 2)


ENCLOSURES = """
import random, sys
from fractions import Fraction
from redalg.proofs.document.terms import Leaf, Terms
from redalg.proofs.falsification.evaluate import Evaluation
from redalg.proofs.numbers.enclosure import Interval
from redalg.proofs.numbers.values import Numbers

clutter, draw = [Interval((k, 0), (k, 0)) for k in range(4000)], random.Random(sys.argv[1])
draw.shuffle(clutter)
del clutter[::2]  # what is allocated now lies in the holes, in another order
t = Terms()
x, y = (t("tensor", attr=Leaf(name, axes, frozenset())) for name, axes in (("x", ("i", "j")), ("y", ("j",))))
u = [t(f, t.mul(x, y)) for f in ("exp", "sin", "tanh", "atan", "cosh")]
e = [t.reduce(kind, ("j",), t.add(*u, t("log", t.add(t.const(4), y)))) for kind in ("sum", "prod", "max")]
e += [t.reduce("sum", ("j",), t.mul(*u)), t.reduce("sum", ("i", "j"), t("pow", t.add(*u), t.const(Fraction(3, 2))))]
values = {"x": {}, "y": {}}
for j in range(7):
    values["y"][j,] = Fraction(3 * j - 8, 7)
    values["x"] |= {(i, j): Fraction(2 * i - j, 3) for i in range(3)}
evaluation = Evaluation(Numbers(), values, {"i": 3, "j": 7})
for term in (*u, *e, t.add(*e), t.mul(*e)):
    print(evaluation.table(term))
"""


def test_enclosures_are_the_same_in_every_process() -> None:
    """To the last digit, wherever in memory their operands lie and however Python hashes."""
    found = set()
    for seed in "123":
        command, own = [sys.executable, "-c", ENCLOSURES, seed], os.environ | {"PYTHONHASHSEED": seed}
        done = subprocess.run(command, env=own, capture_output=True, text=True, check=True)
        found.add(done.stdout)
    assert len(found) == 1 and "2^" in found.pop()
