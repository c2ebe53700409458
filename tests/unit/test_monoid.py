"""A user's monoids: content, application to expressions and nodes, identity of content, refusals."""

import functools
import itertools
import pickle

import numpy as np
import pytest
import sympy

import redalg as ra
from redalg.graph import node as g
from redalg.language.sympy_bridge import to_node
from tests.unit.test_expr import refused

x, y = ra.tensors("x[j] y[j]")


def compose(f, h):
    """First f, then h, for the affine maps t → f0·t + f1: like products of matrices, it does not commute."""
    return f[0] * h[0], f[1] * h[0] + h[1]


def add_exp(a, b):
    """Pairs (m, s) that stand for e**m · s."""
    m = ra.maximum(a[0], b[0])
    return m, a[1] * ra.exp(a[0] - m) + b[1] * ra.exp(b[0] - m)


affine = ra.Monoid("affine", compose, (1, 0), actions=(("post", lambda f, h: (f[0] * h, f[1] * h)),))
logsum = ra.Monoid("logsum", add_exp, (-ra.oo, 0), commutative=True)
product = ra.Monoid("product", lambda a, b: a * b, 1, commutative=True)


def test_content():
    assert (affine.width, affine.commutative, affine.identity, affine.single) == (2, False, (1, 0), False)
    assert (product.width, product.commutative, product.identity, product.single) == (1, True, 1, True)


def test_combine_on_numbers_and_expressions():
    assert affine.combine((2, 3), (5, 7)) == (10, 22)
    assert product.combine(x, 2) == 2 * x
    assert affine.actions[0][0] == "post" and affine.actions[0][1]((2, 3), x) == (2 * x, 3 * x)
    m, s = logsum.combine((0, 1), (0, 1))
    assert (m, s) == (0, 2)


def test_combine_is_associative_and_not_commutative():
    draw = np.random.default_rng(0).integers(-5, 6, (20, 3, 2))
    for a, b, c in (map(tuple, d.tolist()) for d in draw):
        assert affine.combine(affine.combine(a, b), c) == affine.combine(a, affine.combine(b, c))
        assert affine.combine(affine.identity, a) == a == affine.combine(a, affine.identity)
    a, b = (2, 0), (1, 1)
    assert affine.combine(a, b) != affine.combine(b, a)


def test_order_of_a_fold_is_the_order_of_the_maps():
    maps = [(2, 1), (3, -1), (-1, 4)]
    expected = 10
    for slope, offset in maps:
        expected = slope * expected + offset
    slope, offset = functools.reduce(affine.combine, maps)
    assert slope * 10 + offset == expected
    assert len({functools.reduce(affine.combine, p) for p in itertools.permutations(maps)}) > 1


def test_nodes():
    one, two = (to_node(x), to_node(y)), (g.const(2), g.const(3))
    combined = affine.combine_nodes(one, two)
    assert combined == (g.mul(g.const(2), one[0]), g.add(g.mul(g.const(2), one[1]), g.const(3)))
    assert affine.identity_nodes == (g.ONE, g.ZERO)
    assert affine.action_nodes("post", two, one[0]) == (g.mul(two[0], one[0]), g.mul(two[1], one[0]))


def test_reduce_gives_parts():
    slope, offset = ra.reduce((x, y), "j", monoid=affine)
    assert to_node(offset) is g.reduction("monoid", ["j"], to_node(x), to_node(y), extra=(affine, 1))
    assert to_node(ra.reduce(x, "j", product)).attr.extra == (product, 0)
    assert slope.free_symbols == {x, y}


def test_equal_content_is_equal_and_pickles_without_its_functions():
    again = ra.Monoid("affine", lambda p, q: (p[0] * q[0], p[1] * q[0] + q[1]), (1, 0), actions=affine.actions)
    assert again == affine and hash(again) == hash(affine) and again != ra.Monoid("affine", compose, (1, 0))
    copy = pickle.loads(pickle.dumps(affine))
    assert copy == affine and copy.combine((2, 3), (5, 7)) == (10, 22)
    spec = ra.Spec(o=ra.reduce((x, y), "j", affine)[1], p=ra.reduce((x, y), "j", logsum)[1])
    assert pickle.loads(pickle.dumps(spec)) == spec == ra.parse(str(spec))


@pytest.mark.parametrize(
    ("build", "what"),
    [
        (lambda: ra.Monoid("a b", compose, (1, 0)), "the name 'a b'"),
        (lambda: ra.Monoid("a", 3, 0), "3"),
        (lambda: ra.Monoid("a", lambda a, b: (), ()), "identity=()"),
        (lambda: ra.Monoid("a", lambda a, b: (a, b), 0), "a tuple of 2 parts"),
        (lambda: ra.Monoid("a", lambda a, b: (a[0],), (0, 1)), "the result (a0,)"),
        (lambda: ra.Monoid("a", lambda a, b: a + sympy.Symbol("q"), 0), "the symbol q"),
        (lambda: ra.Monoid("a", lambda a, b: a + b, "0"), "the string '0'"),
        (lambda: ra.Monoid("a", lambda a, b: a + b, 0, actions=(3,)), "the action 3"),
        (lambda: ra.Monoid("a", len, 0), "<built-in function len>"),
        (lambda: ra.reduce(x, "j", monoid=3), "monoid=3"),
        (lambda: ra.reduce((x, x), "j", monoid=product), "2 expression(s) for the monoid 'product'"),
        (lambda: ra.reduce(x, "j", monoid=affine), "1 expression(s) for the monoid 'affine'"),
    ],
)
def test_refusals(build, what):
    assert refused(build).what == what
