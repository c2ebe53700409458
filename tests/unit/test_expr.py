"""Tensors, reductions and maps: what they build, and what they refuse and how."""

import pickle
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import sympy

import redalg as ra
from redalg.graph import node as g
from redalg.language.sympy_bridge import to_node

x, y = ra.tensors("x[i,j] y[j]")
positive = ra.tensors("w[j]", positive=True)
mask = ra.tensors("mask[j]", bool=True)
z = ra.tensors("z[j]", complex=True)


def refused(build) -> ra.RedalgError:
    """The error of a construction, with all of its four parts."""
    with pytest.raises(ra.RedalgError) as caught:
        build()
    error = caught.value
    assert all((error.what, error.where, error.why, error.fix)), str(error)
    assert [line.split(":")[0] for line in str(error).splitlines()][:4] == ["refused", "where", "why", "try"]
    return error


def test_import_is_lazy():
    code = "import sys, redalg; assert not {'sympy', 'numpy', 'numba'} & set(sys.modules); redalg.sum"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_name_loads_and_none_is_a_submodule():
    import importlib.util

    for name in ra.__all__:
        assert getattr(ra, name) is not None
        assert importlib.util.find_spec(f"redalg.{name}") is None
    with pytest.raises(AttributeError, match="no attribute"):
        ra.no_such_name  # noqa: B018


def test_one_declaration_is_one_object():
    assert ra.tensors("x[i,j]") is x
    assert ra.tensors("x[i,j]", positive=True) != x
    assert ra.tensors("x[j,i]") != x
    assert ra.scalar("s") is ra.tensors("s")
    assert [t.axes for t in ra.tensors("a[i,j], b[ j ] c")] == [("i", "j"), ("j",), ()]
    assert pickle.loads(pickle.dumps(x)) is x


@pytest.mark.parametrize(
    ("value", "exact"),
    [
        (0.1, Fraction(0.1)),
        (np.float32(0.1), Fraction(float(np.float32(0.1)))),
        (np.int64(3), Fraction(3)),
        (Fraction(1, 3), Fraction(1, 3)),
        (Decimal("0.1"), Fraction(1, 10)),
        (sympy.Float(0.1), Fraction(0.1)),
        (np.array(0.5), Fraction(1, 2)),
    ],
)
def test_numbers_are_the_rationals_they_hold(value, exact):
    if not isinstance(value, np.ndarray):
        assert to_node(y * value) is g.mul(g.const(exact), to_node(y))
        assert to_node(ra.maximum(y, value)) is g.extremum("maximum", to_node(y), g.const(exact))
    assert to_node((y + x) * float(exact)).op == "add"


def test_nonfinite_numbers():
    assert to_node(ra.where(y > 0, y, -np.inf)).args[2] is g.NEG_INF
    assert to_node(ra.where(y > 0, y, float("nan"))).args[2] is g.special("nan")


def test_undeclared_tensors_are_extended_reals():
    assert y.is_extended_real and y.is_real is None
    assert positive.is_extended_positive and positive.is_finite is None
    assert sympy.sqrt(y**2) == sympy.Abs(y)
    assert not isinstance(ra.exp(y) > 0, sympy.logic.boolalg.BooleanTrue)  # exp(-oo) = 0
    assert to_node(ra.exp(ra.log(y) - x)).op == "exp"  # not y·exp(-x), which is 0·inf where exp(-oo) is meant


def test_reductions_without_the_axis_broadcast():
    n, e = to_node(ra.size("i")), to_node(y)
    assert to_node(ra.sum(y, "i")) is g.mul(n, e)
    assert to_node(ra.prod(y, "i")) is g.power(e, n)
    for reduction in (ra.max, ra.min, ra.mean):
        assert reduction(y, "i") is y
    assert ra.any(mask, "i") is mask
    assert ra.argmax(y, "i") == 0
    assert to_node(ra.logsumexp(y, "i")) is g.add(e, g.fn("log", n))
    assert to_node(ra.sum(y, ["i", "j"])) is g.mul(n, g.reduction("sum", ["j"], e))
    assert to_node(ra.argmax(y, ["j", "i"])) is g.mul(n, g.reduction("argmax", ["j"], e))
    assert to_node(ra.argmax(y, ["i", "j"])) is g.reduction("argmax", ["j"], e)


def test_conditions_count_as_zero_and_one():
    one = g.where(g.compare("lt", g.ZERO, to_node(y)), g.ONE, g.ZERO)
    assert to_node(ra.sum(y > 0, "j")) is g.reduction("sum", ["j"], one)
    assert to_node(ra.mean(mask, "j")).op == "mul"
    assert to_node(mask * y).args[0].op in ("where", "tensor")


def test_any_and_all_are_conditions():
    some = ra.any(y > 0, "j")
    assert to_node(ra.where(some & ~ra.all(mask, "j"), x, 0)).op == "where"
    assert to_node(sympy.Or(some, x < 1)).is_boolean
    assert to_node(ra.where(x > 0, some, mask)).is_boolean
    mixed = ra.where(x > 0, y > 0, y)
    assert to_node(mixed).args[1] is g.where(g.compare("lt", g.ZERO, to_node(y)), g.ONE, g.ZERO)
    assert mixed.is_extended_real


def test_topk_is_a_pair():
    top = ra.topk(y, 3, "j")
    values, indices = top
    assert (values, indices) == (top.values, top.indices)
    assert to_node(values).attr == g.Reduce("topk_values", ("j",), (3, "j_top"))
    assert to_node(ra.topk(y, np.int64(2), "j", name="best").indices).axes == {"best"}
    assert to_node(ra.topk(x, 1, ["i", "j"]).values).axes == {"i_j_top"}


def test_reductions_are_leaves_to_sympy_with_free_symbols():
    total = ra.sum(x * y, "j")
    assert total.args == () and total.free_symbols == {x, y}
    assert (total.kind, total.axis, total.axes, total.body) == ("sum", ("j",), ("i",), x * y)
    assert total.subs(y, 2) == ra.sum(2 * x, "j")
    assert (1 + total).xreplace({x: sympy.Integer(1)}) == 1 + ra.sum(y, "j")
    assert total.diff(ra.scalar("s")) == 0
    assert pickle.loads(pickle.dumps(total)) is total


def test_functions_calculate_on_numbers():
    assert float(ra.sigmoid(ra.log(3))) == pytest.approx(0.75)
    assert ra.minimum(2, 1, 3) == 1 and ra.maximum(y, 1, 2) == ra.maximum(2, y)
    assert ra.log(0) == -ra.oo and ra.log(-1) is sympy.nan and ra.relu(-3) == 0
    assert ra.abs(-2 * y) == 2 * ra.abs(y) and ra.abs(positive) is positive
    assert ra.eq(2, 2) == sympy.true and ra.ne(sympy.nan, sympy.nan) == sympy.true


@pytest.mark.parametrize(
    ("build", "what"),
    [
        (lambda: ra.where(y == 0, 1, 2), "the Python bool False"),
        (lambda: ra.where(np.bool_(True), 1, 2), "the Python bool True"),
        (lambda: ra.where(y, 1, 2), "the number y as a condition"),
        (lambda: ra.any(y, "j"), "the number y as a condition"),
        (lambda: ra.tensors("A[i,i]"), "the axis 'i' named twice"),
        (lambda: ra.tensors("x[j"), "'[j'"),
        (lambda: ra.tensors(""), "''"),
        (lambda: ra.tensors("sum[j]"), "the tensor name 'sum'"),
        (lambda: ra.tensors("out[j]"), "the tensor name 'out'"),
        (lambda: ra.tensors("2x"), "the tensor name '2x'"),
        (lambda: ra.tensors("q", posit=True), "the domain 'posit'"),
        (lambda: ra.tensors("q", positive=1), "positive=1"),
        (lambda: ra.tensors("q", positive=True, complex=True), "the domains complex and positive"),
        (lambda: ra.sum(y, 3), "the axis 3"),
        (lambda: ra.sum(y, ["j", "j"]), "the axis 'j' named twice"),
        (lambda: ra.index(["i", "j"]), "the axis ['i', 'j']"),
        (lambda: ra.sum("y", "j"), "the string 'y'"),
        (lambda: ra.exp(np.ones(2)), "a value of type ndarray"),
        (lambda: y + np.ones(2), "a value of type ndarray"),
        (lambda: np.ones(2) * y, "a value of type ndarray"),
        (lambda: y * True, "the Python bool True"),
        (lambda: y * (y > 0), "the condition y > 0"),
        (lambda: y < (y > 0), "the condition y > 0"),
        (lambda: ra.exp(y > 0), "the condition y > 0"),
        (lambda: ra.cast(y, "float12"), "the dtype 'float12'"),
        (lambda: ra.maximum(), "no arguments"),
        (lambda: ra.topk(y, 2, "i"), "topk over the axis 'i'"),
        (lambda: ra.topk(y, 0, "j"), "k = 0"),
        (lambda: ra.topk(y, True, "j"), "k = True"),
        (lambda: ra.topk(y, 1.5, "j"), "k = 1.5"),
        (lambda: ra.topk(x, 1, "j", name="i"), "the new axis 'i'"),
        (lambda: ra.argmax(ra.tensors("u[i,k]"), ["i", "j", "k"]), "argmax over the composite axis ['i', 'j', 'k']"),
    ],
)
def test_refusals_name_the_value(build, what):
    assert refused(build).what == what


def test_errors_pickle():
    error = ra.NotDecomposable("a", "b", "c", "d", stage="s", witness={"x": 1}, passes=2, scope="K < 5")
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.stage, copy.reason, copy.witness, copy.passes) == (str(error), "s", "c", {"x": 1}, 2)
    missing = pickle.loads(pickle.dumps(ra.Undecided("a", "b", "c", "d", stage="s", missing="the sign of h")))
    assert missing.missing == "the sign of h" and isinstance(missing, ra.RedalgError)


def test_equations_are_atoms_for_the_logic_of_sympy():
    a, b = sympy.symbols("a b")
    chosen = ra.where(ra.eq(a, b), 1, b)
    assert sympy.simplify(chosen) == chosen and sympy.simplify(ra.ne(a, b)) == ra.ne(a, b)
    assert sympy.simplify(ra.eq(a, b) | ~ra.eq(a, b)) == sympy.true
