"""The NumPy evaluator against the exact one, and the special values both must agree on."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redalg.graph.masked import masked_row
from redalg.graph.node import (
    INF,
    NEG_INF,
    ONE,
    ZERO,
    Node,
    add,
    compare,
    const,
    div,
    extremum,
    fn,
    logical,
    mul,
    negate,
    power,
    reduction,
    size,
    sub,
    tensor,
    walk,
    where,
)
from redalg.numeric import reductions
from redalg.numeric.evaluate import evaluate
from redalg.numeric.exact import Exact
from tests.support.profiles import examples

inf, nan = math.inf, math.nan
X, Y, W, C = tensor("x", "ij"), tensor("y", "j"), tensor("w", "i"), tensor("c")
N = tensor("n", "j", {"integer"})
B = tensor("b", "ij", {"bool"})


def softmax(logits: Node, axis: str = "j") -> tuple[Node, Node, Node]:
    m = reduction("max", axis, logits)
    p = fn("exp", sub(logits, m))
    return m, p, reduction("sum", axis, p)


def one(node: Node, env: dict, **options) -> np.ndarray:
    return evaluate([node], env, **options)[0]


def exact_array(
    node: Node, env: dict, sizes: dict, order: tuple[str, ...], evaluator: Exact | None = None
) -> np.ndarray:
    evaluator = evaluator or Exact(env, sizes)
    array = np.empty([sizes[a] for a in order], dtype=object)
    for at in np.ndindex(*array.shape):
        array[at] = evaluator.numbers.public(evaluator.value(node, dict(zip(order, at, strict=True))))
    return array


# --- random graphs over numbers on which float64 makes no rounding error ----------------------------------------------

halves = st.integers(-6, 6).map(lambda n: n / 2)
specials = st.one_of(halves, st.sampled_from([inf, -inf, nan, 0.0, 1.0]))


@st.composite
def numbers(draw, depth: int = 3) -> Node:
    """A numeric node whose operations are exact on small halves."""
    if depth == 0:
        return draw(
            st.sampled_from([X, Y, W, C, N, Node("index", (), "j"), size("j"), const(Fraction(1, 2)), const(3)])
        )
    a, b = draw(numbers(depth - 1)), draw(numbers(depth - 1))
    kind = draw(st.integers(0, 8))
    if kind == 0:
        return add(a, b)
    if kind == 1:
        return mul(a, b)
    if kind == 2:
        return sub(a, mul(const(draw(st.integers(1, 3))), b))
    if kind == 3:
        return fn(draw(st.sampled_from(["abs", "sign", "relu", "floor", "ceil"])), a)
    if kind == 4:
        return extremum(draw(st.sampled_from(["maximum", "minimum"])), a, b)
    if kind == 5:
        return where(draw(conditions(depth - 1)), a, draw(st.sampled_from([b, ZERO, ONE, NEG_INF, INF])))
    if kind == 6:
        return Node("cast", (a,), draw(st.sampled_from(["int8", "float8_e4m3fn", "float8_e5m2", "float16", "uint4"])))
    return reduced(draw, a)


def reduced(draw, body: Node) -> Node:
    kind = draw(st.sampled_from(["sum", "max", "min", "argmax", "argmin", "prod"]))
    axes = tuple(a for a in "ij" if a in body.axes)
    if not axes:
        return body
    chosen = draw(st.sampled_from([axes, axes[:1], axes[-1:], axes[::-1]]))
    return reduction(kind, chosen, body)


@st.composite
def conditions(draw, depth: int) -> Node:
    a, b = draw(numbers(depth)), draw(numbers(depth))
    kind = draw(st.integers(0, 4))
    plain = compare(draw(st.sampled_from(["eq", "ne", "lt", "le"])), a, b)
    if kind == 0:
        return B
    if kind == 1:
        return negate(plain)
    if kind == 2:
        return logical(draw(st.sampled_from(["and", "or"])), plain, B)
    if kind == 3 and "j" in plain.axes:
        return reduction(draw(st.sampled_from(["any", "all"])), "j", plain)
    return plain


@st.composite
def arrays(draw, elements) -> tuple[dict, dict]:
    i, j = draw(st.integers(0, 3)), draw(st.integers(0, 4))

    def array(*shape: int) -> np.ndarray:
        count = math.prod(shape)
        return np.array(draw(st.lists(elements, min_size=count, max_size=count)), dtype=float).reshape(shape)

    env = {"x": array(i, j), "y": array(j), "w": array(i), "c": array()}
    env["n"] = np.array(draw(st.lists(st.integers(-3, 3), min_size=j, max_size=j)), dtype=np.int32)
    env["b"] = np.array(draw(st.lists(st.booleans(), min_size=i * j, max_size=i * j)), dtype=bool).reshape(i, j)
    return env, {"i": i, "j": j}


def harmless(node: Node, evaluator: Exact, finite: bool = False) -> bool:
    """Whether float64 holds every intermediate value exactly."""
    for below in walk(node):
        for v in exact_array(below, {}, evaluator.sizes, tuple(sorted(below.axes)), evaluator).flat:
            if isinstance(v, Fraction) and (abs(v.numerator) > 2**40 or v.denominator.bit_length() > 24):
                return False
            if finite and not isinstance(v, Fraction | bool):
                return False
    return True


def same(computed: np.ndarray, exact: np.ndarray) -> bool:
    wide = np.array([float(v) for v in exact.flat]).reshape(exact.shape)
    return np.array_equal(computed.astype(float), wide, equal_nan=True)


@examples(150)
@given(node=numbers(), data=arrays(specials))
def test_exact_operations_agree_with_the_exact_evaluator(node: Node, data: tuple[dict, dict]) -> None:
    env, sizes = data
    order = tuple(sorted(node.axes))
    evaluator = Exact(env, sizes)
    if harmless(node, evaluator):
        exact = exact_array(node, env, sizes, order, evaluator)
        assert same(one(node, env, sizes=sizes, orders=[order]), exact)


@examples(80)
@given(node=numbers(), data=arrays(halves), divisor=st.integers(1, 7))
def test_fractions_are_computed_without_error(node: Node, data: tuple[dict, dict], divisor: int) -> None:
    env, sizes = data
    for name in ("x", "y", "w", "c"):
        env[name] = np.asarray(np.frompyfunc(lambda v: Fraction(v) / divisor, 1, 1)(env[name]), dtype=object)
    order = tuple(sorted(node.axes))
    evaluator = Exact(env, sizes)
    if harmless(node, evaluator, finite=True):
        computed = one(node, env, sizes=sizes, dtype=object, orders=[order])
        assert np.array_equal(computed, exact_array(node, env, sizes, order, evaluator))


# --- special values and lengths ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "p", "lse"),
    [
        ([1.0, 1.0], [1, 1], 1 + math.log(2)),
        ([-inf, 3.0], [0, 1], 3.0),
        ([-inf, -inf], [0, 0], -inf),
        ([inf, 1.0], [nan, 0], nan),
        ([inf, -inf], [nan, 0], nan),
        ([nan, -inf], [nan, nan], nan),
        ([], [], -inf),
    ],
)
def test_the_rule_for_minus_infinity(row: list[float], p: list[float], lse: float) -> None:
    m, weights, total = softmax(Y)
    computed = evaluate([weights, add(m, fn("log", total))], {"y": np.array(row)})
    np.testing.assert_array_equal(computed[0], p)
    np.testing.assert_array_equal(computed[1], lse)
    exact = exact_array(weights, {"y": row}, {"j": len(row)}, ("j",))
    np.testing.assert_array_equal([float(v) for v in exact], p)


@pytest.mark.parametrize("scaled", [False, True])
def test_the_rule_reaches_through_biases_scales_and_masks(scaled: bool) -> None:
    logits = add(X, tensor("bias", "j"))
    m = reduction("max", "j", logits)
    argument = sub(logits, m)
    argument = mul(argument, power(C, -1)) if scaled else where(B, argument, NEG_INF)
    env = {"x": np.zeros((1, 2)), "bias": np.full(2, -inf), "c": np.array(2.0), "b": np.ones((1, 2), bool)}
    assert one(fn("exp", argument), env).tolist() == [[0, 0]]
    exact = exact_array(fn("exp", argument), env, {"i": 1, "j": 2}, ("i", "j"))
    assert exact.tolist() == [[0, 0]]


def test_void_rows() -> None:
    masked = where(B, X, NEG_INF)
    m, p, total = softmax(masked)
    out = div(reduction("sum", "j", mul(p, Y)), total)
    void = masked_row(out)
    assert void is compare("eq", m, NEG_INF)
    mean = div(reduction("sum", "j", where(B, X, ZERO)), reduction("sum", "j", where(B, ONE, ZERO)))
    env = {"x": np.array([[nan, 1], [2, 3], [nan, -inf]]), "y": np.array([nan, 0.0])}
    env["b"] = np.array([[False, False], [False, True], [True, True]])
    for node in (void, masked_row(mean)):
        assert one(node, env).tolist() == [True, False, False]
    empty = {"x": np.ones((2, 0)), "y": np.ones(0), "b": np.ones((2, 0), bool)}
    assert one(void, empty).tolist() == [True, True]
    plain = masked_row(div(reduction("sum", "j", X), size("j")))
    assert one(plain, empty, sizes={"i": 2, "j": 0}, orders=["i"]).tolist() == [True, True]
    assert one(masked_row(out), {**env, "x": np.full((3, 2), -inf)}).tolist() == [True, True, True]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("sum", 0),
        ("prod", 1),
        ("max", -inf),
        ("min", inf),
        ("argmax", -1),
        ("argmin", -1),
        ("any", False),
        ("all", True),
    ],
)
def test_reductions_over_nothing(kind: str, value: float) -> None:
    body = B if kind in ("any", "all") else X
    env = {"b": np.ones((2, 0), bool), "x": np.ones((2, 0))}
    assert one(reduction(kind, "j", body), env).tolist() == [value, value]
    assert exact_array(reduction(kind, "j", body), env, {"i": 2, "j": 0}, ("i",)).tolist() == [value, value]


def test_extrema_propagate_nan_and_ties_go_to_the_lowest_index() -> None:
    y = np.array([1.0, nan, 3.0, nan, 3.0])
    kinds = ("max", "min", "argmax", "argmin")
    results = evaluate([reduction(k, "j", Y) for k in kinds], {"y": y})
    assert [str(r) for r in results] == ["nan", "nan", "1", "1"]
    ties = evaluate([reduction(k, "j", Y) for k in kinds], {"y": np.array([2.0, 3.0, 3.0, 2.0])})
    assert [float(r) for r in ties] == [3, 2, 1, 0]
    assert np.isnan(one(fn("relu", Y), {"y": np.array([nan])})).all()


@pytest.mark.parametrize("row", [[1, 5, 5, nan, 2], [1, 5], [], [-inf, -inf, -inf, -inf], [nan, nan, 0, 7]])
def test_top_k(row: list[float]) -> None:
    nodes = [reduction(kind, "j", Y, extra=(3, "t")) for kind in ("topk_values", "topk_indices")]
    values, indices = evaluate(nodes, {"y": np.array(row, float)})
    order = sorted(range(len(row)), key=lambda k: (not math.isnan(row[k]), -row[k], k))[:3]
    assert indices.tolist() == (order + [-1] * 3)[:3]
    np.testing.assert_array_equal(values, ([row[k] for k in order] + [-inf] * 3)[:3])
    for node, computed in zip(nodes, (values, indices), strict=True):
        exact = exact_array(node, {"y": row}, {"j": len(row), "t": 3}, ("t",))
        np.testing.assert_array_equal([float(v) for v in exact], computed)


def test_a_reduction_may_run_over_the_axis_a_top_k_makes() -> None:
    best = reduction("topk_values", "j", X, extra=(2, "t"))
    x = np.array([[3.0, 1, 2], [0, 5, 4]])
    assert one(reduction("sum", "t", best), {"x": x}).tolist() == [5, 9]


# --- contraction, accuracy, axes --------------------------------------------------------------------------------------


def test_contractions_equal_the_written_out_sum() -> None:
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal(s) for s in ((2, 40, 8), (2, 50, 8), (2, 50, 7)))
    score = reduction("sum", "d", mul(tensor("q", "hid"), tensor("k", "hjd"), const(Fraction(1, 3))))
    out = reduction("sum", "j", mul(score, tensor("v", "hje"), tensor("w", "j")))
    w = rng.standard_normal(50)
    computed = one(out, {"q": q, "k": k, "v": v, "w": w}, orders=["ehi"])
    np.testing.assert_allclose(computed, np.einsum("hid,hjd,hje,j->ehi", q, k, v, w) / 3, rtol=1e-11)


def test_long_sums_lose_no_digits_in_any_layout() -> None:
    x = np.full((3, 100_000), 0.1)
    for layout in (x, np.asfortranarray(x)):
        total = one(reduction("sum", "j", X), {"x": layout})
        np.testing.assert_allclose(total, 10_000, rtol=4e-16)
    x32 = np.full((100_000, 2), np.float32(0.1)).T
    np.testing.assert_allclose(one(reduction("sum", "j", X), {"x": x32}), 1e5 * float(np.float32(0.1)), rtol=3e-7)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 49, 1000, 1001])
@pytest.mark.parametrize("value", [0.1, 1e15 + 1, 1e-310])
def test_the_mean_of_a_constant_is_the_constant(n: int, value: float) -> None:
    mean = div(reduction("sum", "j", Y), size("j"))
    assert one(mean, {"y": np.full(n, value)}) == pytest.approx(value, rel=3e-16, abs=0)


def test_composite_axes_are_row_major_and_axes_are_broadcast_by_name() -> None:
    x = np.array([[1.0, 4, 2], [7, 0, 9]])
    assert one(reduction("argmax", "ij", X), {"x": x}) == 5
    assert one(reduction("argmax", "ji", X), {"x": x}) == 5
    assert one(reduction("argmin", "ji", X), {"x": x}) == 3
    assert one(add(Y, W), {"y": np.array([1.0, 2]), "w": np.array([10.0])}, orders=["ij"]).tolist() == [[11, 12]]
    assert one(Y, {"y": np.array([1.0, 2])}, sizes={"i": 2}, orders=["ij"]).tolist() == [[1, 2], [1, 2]]


def test_positions_start_at_the_offset() -> None:
    index = Node("index", (), "j")
    assert one(index, {}, sizes={"j": 3}, offsets={"j": 5}).tolist() == [5, 6, 7]
    assert Exact({}, {"j": 3}, offsets={"j": 5}).value(index, {"j": 1}) == 6


# --- dtypes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.complex64])
def test_arithmetic_stays_in_one_dtype(dtype: type) -> None:
    y = np.array([1, 2, 3], dtype)
    weak = mul(add(Y, C, const(Fraction(1, 3))), size("j"), power(size("j"), Fraction(-1, 2)))
    expected = np.float32 if dtype is np.float16 else dtype
    assert one(weak, {"y": y, "c": 0.5}).dtype == expected
    assert one(mul(Y, Node("index", (), "j")), {"y": y}).dtype == expected
    assert one(Node("maximum", (const(Fraction(1, 3)), size("j"), Y)), {"y": y}).dtype == expected


def test_integers_stay_integers_until_they_are_divided() -> None:
    env = {"n": np.array([1, 2, 4], np.int8), "b": np.ones((2, 3), bool)}
    assert one(reduction("sum", "j", mul(N, N)), env).dtype == np.int64
    assert one(reduction("sum", "j", B), env).tolist() == [3, 3]
    assert one(div(N, const(2)), env).tolist() == [0.5, 1, 2]
    assert one(power(N, 2), env).dtype == np.int64


class Affine:
    """(a, b) stands for x -> a·x + b; combination in stream order is composition and does not commute."""

    identity_nodes = (ONE, ZERO)

    @staticmethod
    def combine_nodes(f: tuple[Node, ...], g: tuple[Node, ...]) -> tuple[Node, ...]:
        return mul(f[0], g[0]), add(mul(g[0], f[1]), g[1])


@pytest.mark.parametrize("n", [0, 1, 2, 5, 8, 13])
def test_a_users_monoid_is_folded_in_order(n: int) -> None:
    rng = np.random.default_rng(n)
    x, y = rng.integers(-2, 3, (2, n)).astype(float), rng.integers(-2, 3, n).astype(float)
    monoid = Affine()
    nodes = [reduction("monoid", "j", X, Y, extra=(monoid, part)) for part in range(2)]
    a, b = np.ones(2), np.zeros(2)
    for t in range(n):
        a, b = a * x[:, t], x[:, t] * b + y[t]
    for node, expected in zip(nodes, (a, b), strict=True):
        np.testing.assert_array_equal(one(node, {"x": x, "y": y}), expected)
        exact = exact_array(node, {"x": x, "y": y}, {"i": 2, "j": n}, ("i",))
        np.testing.assert_array_equal([float(v) for v in exact], expected)


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="length . here and . elsewhere"):
        one(add(X, Y), {"x": np.ones((1, 2)), "y": np.ones(3)})
    with pytest.raises(ValueError, match="dimensions"):
        one(X, {"x": np.ones(2)})


@pytest.mark.parametrize("ufunc", [np.maximum, np.minimum, np.fmax, np.fmin, np.logical_and, np.logical_or])
@pytest.mark.parametrize(
    "shape", [(300, 1), (300, 2), (300, 7), (129, 8), (127, 8), (200, 9), (2, 3, 200), (1, 1), (400,)]
)
def test_short_rows_are_reduced_as_numpy_reduces_them(ufunc: np.ufunc, shape: tuple[int, ...]) -> None:
    """With infinities, NaN and zeros of either sign, in any memory layout; never the array that was given."""
    rng = np.random.default_rng(len(shape) * 1000 + shape[-1])
    data = rng.choice([inf, -inf, nan, 0.0, -0.0, 1.5, -2.5], shape)
    for x in (
        data,
        np.asfortranarray(data),
        data.astype(np.float32),
        data > 0,
        np.nan_to_num(data, posinf=3, neginf=-3).astype(int),
    ):
        for axes in [(p,) for p in range(x.ndim)] + [tuple(range(x.ndim)), tuple(range(1, x.ndim))]:
            found, wanted = reductions.reduced(ufunc, x, axes), ufunc.reduce(x, axis=axes, keepdims=True)
            assert found.dtype == wanted.dtype and found.shape == wanted.shape
            np.testing.assert_array_equal(found, wanted)
            assert not np.shares_memory(found, x)
