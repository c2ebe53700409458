"""SymPy to nodes and back: the exact counterparts, and that the round trip is the identity."""

import random

import pytest
import sympy

import redalg as ra
from redalg.graph import node as g
from redalg.language.sympy_bridge import settle, to_node, to_sympy
from tests.support.sample import one_in

x, y = ra.tensors("x[i,j] y[j]")
w = ra.tensors("w[j]", positive=True)
count = ra.tensors("count[i]", integer=True)
mask = ra.tensors("mask[j]", bool=True)
s = ra.scalar("s", nonnegative=True)
X, Y = to_node(x), to_node(y)


@pytest.mark.parametrize(
    ("expr", "node"),
    [
        (sympy.Max(x, y), g.extremum("maximum", X, Y)),
        (sympy.Piecewise((x, y > 0), (y, True)), g.where(g.compare("lt", g.ZERO, Y), X, Y)),
        (sympy.Piecewise((x, y > 0)), g.where(g.compare("lt", g.ZERO, Y), X, g.special("nan"))),
        (x >= y, g.compare("le", Y, X)),
        (sympy.Eq(x, y), g.compare("eq", X, Y)),
        (sympy.Ne(x, y), g.compare("ne", X, Y)),
        (sympy.log(x, 2), g.div(g.fn("log", X), g.fn("log", g.const(2)))),
        (x - y / 2, g.sub(X, g.mul(g.HALF, Y))),
        (sympy.exp(1), g.special("e")),
        (sympy.ceiling(x), g.fn("ceil", X)),
        (
            sympy.Xor(x > 0, mask),
            g.logical(
                "or",
                g.logical("and", g.compare("lt", g.ZERO, X), g.negate(to_node(mask))),
                g.logical("and", g.negate(g.compare("lt", g.ZERO, X)), to_node(mask)),
            ),
        ),
    ],
)
def test_counterparts(expr, node):
    assert to_node(expr) is node


def test_heaviside_selects_and_keeps_nan():
    node = to_node(sympy.Heaviside(x, sympy.Rational(1, 2)))
    assert node.op == "where" and any(n is g.special("nan") for n in g.walk(node))


def test_negated_order_comparisons_stay_negated():
    node = g.negate(g.compare("lt", X, Y))
    assert to_node(to_sympy(node)) is node


def test_states_become_plain_symbols():
    m, shift = g.state("m", ("i",)), g.state("m_a")
    node = g.fn("exp", g.sub(shift, m))
    assert to_sympy(node, plain=True) == sympy.exp(sympy.Symbol("m_a") - sympy.Symbol("m"))
    assert to_node(sympy.Symbol("m") + x, symbols={sympy.Symbol("m"): m}) is g.add(m, X)


def test_plain_expressions_are_sympys_own():
    spec = ra.Spec(o=ra.sigmoid(x) + ra.where(x > 0, ra.relu(x), ra.log1p(y)) + ra.maximum(x, y) + ra.abs(x - y))
    plain = to_sympy(spec.outputs["o"], plain=True)
    assert {type(f).__module__.split(".")[0] for f in plain.atoms(sympy.Function)} == {"sympy"}
    value = plain.subs({x: sympy.Rational(1, 2), y: 2})
    assert float(value) == pytest.approx(1 / (1 + 2.718281828459045**-0.5) + 0.5 + 2 + 1.5)


# --- random expressions: whatever SymPy made of them, a spec prints, parses and translates to itself -----------------

_LEAVES = [x, y, w, s, count, mask, ra.index("j"), ra.size("i"), 0, 1, -1, 2, 0.1, -0.5, 1 / 3, sympy.pi, ra.oo, -ra.oo]
_MAPS = [
    ra.exp,
    ra.log,
    ra.sqrt,
    ra.abs,
    ra.relu,
    ra.sigmoid,
    ra.tanh,
    ra.log1p,
    ra.erf,
    sympy.exp,
    sympy.log,
    sympy.sin,
    sympy.sign,
    sympy.floor,
    abs,
]
_REDUCTIONS = [ra.sum, ra.max, ra.mean, ra.prod, ra.min, ra.logsumexp]


def number(r: random.Random, depth: int):
    def part():
        return sympy.sympify(number(r, depth - 1))

    if depth <= 0:
        return r.choice(_LEAVES)
    choices = [
        lambda: part() + part(),
        lambda: part() * part(),
        lambda: part() * (part() - part()),
        lambda: part() / part(),
        lambda: part() ** r.choice([2, -1, 0.5, -2, 3, sympy.Rational(1, 3), -0.5]),
        lambda: r.choice(_MAPS)(part()),
        lambda: ra.where(condition(r, depth - 1), part(), part()),
        lambda: r.choice([ra.maximum, ra.minimum])(part(), part()),
        lambda: ra.cast(part(), r.choice(["float16", "int8"])),
        lambda: ra.topk(part() + x, 2, "j").values,
        lambda: ra.argmax(part() * y, "j"),
        lambda: r.choice(_REDUCTIONS)(part(), r.choice(["j", "i", ["i", "j"]])),
    ]
    try:
        return r.choice(choices)()
    except (ra.RedalgError, TypeError):  # zoo, or an order of complex constants: not in the language
        return number(r, depth - 1)


def condition(r: random.Random, depth: int):
    if depth <= 0:
        return mask
    left, right = (sympy.sympify(number(r, depth - 1)) for _ in range(2))
    choices = [
        lambda: r.choice([ra.eq, ra.ne])(left, right),
        lambda: condition(r, depth - 1) & condition(r, depth - 1),
        lambda: condition(r, depth - 1) | ~condition(r, depth - 1),
        lambda: ra.any(condition(r, depth - 1), "j"),
        lambda: left < right,
        lambda: left >= right,
    ]
    return r.choice(choices)()


@pytest.mark.parametrize(("block", "heavy"), one_in(2, range(4), [60, 6]))
def test_random_specs_round_trip(block, heavy, monkeypatch):
    monkeypatch.setattr("redalg.language.sympy_bridge._HEAVY", heavy)
    built = 0
    for seed in range(60 * block, 60 * block + 60):
        r = random.Random(seed)
        try:
            spec = ra.Spec(o=number(r, r.choice([2, 3, 4])))
        except ra.RedalgError:
            continue
        built += 1
        node = spec.outputs["o"]
        assert to_node(to_sympy(node)) is node and settle(node) is node
        assert ra.parse(str(spec)) == spec, str(spec)
        assert to_sympy(node, plain=True) is not None
        assert spec._repr_latex_()
    assert built > 30
