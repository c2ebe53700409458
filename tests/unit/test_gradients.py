"""`Spec.vjp` and `Spec.jvp`: conventions at kinks, ties, zeros and masks, what is saved, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.errors import RedalgError
from redalg.gradients import calls, tangent
from redalg.graph import node as g
from tests.support.sample import deep

INF = np.inf


def gradient(text: str, cotangent: Any = 1.0, **arrays: Any) -> dict[str, Any]:
    """Both ways: with saved values, and with all of them computed again."""
    spec = ra.parse(text)
    given = {k: np.asarray(v, float) if np.asarray(v).dtype.kind == "f" else np.asarray(v) for k, v in arrays.items()}
    found = [spec.vjp(given=g)(**given, cotangents={"y": cotangent}, target="numpy") for g in ("all", ())]
    for name, value in found[0].items():
        np.testing.assert_allclose(found[1][name], value, 1e-14, 1e-15, err_msg=name)
    return found[0]


@pytest.mark.parametrize(
    ("body", "slopes"),
    [
        ("abs(x[j])", [-1, 0, 0, 1]),
        ("relu(x[j])", [0, 0, 0, 1]),
        ("floor(x[j])*x[j]", [-2, 0, 0, 2]),
        ("maximum(x[j], 0)", [0, 0.5, 0.5, 1]),
        ("sign(x[j])", [0, 0, 0, 0]),
        ("x[j]**2", [-4, 0, 0, 4]),
    ],
)
def test_slopes_at_kinks(body: str, slopes: list[float]) -> None:
    assert gradient(f"return y = sum[j]({body})", x=[-2.0, -0.0, 0.0, 2.0])["x"].tolist() == slopes


@pytest.mark.parametrize("kind", ["max", "min"])
def test_the_first_of_several_equal_elements_gets_all(kind: str) -> None:
    assert gradient(f"return y = {kind}[j](x[j])", 3.0, x=[1.0, 2.0, 2.0, 1.0])["x"].tolist() == [
        3.0 * (j == (1 if kind == "max" else 0)) for j in range(4)
    ]
    assert gradient(f"return y = {kind}[j](x[j])", 3.0, x=[2.0])["x"].tolist() == [3.0]


def test_extrema_over_composite_axes_count_places_row_by_row() -> None:
    spec = ra.parse("return y = max[i,j](x[i,j])")
    x = np.array([[1.0, 5.0, 2.0], [5.0, 0.0, 5.0]])
    got = spec.vjp()(x=x, cotangents={"y": 2.0}, target="numpy")["x"]
    assert got.tolist() == [[0, 2, 0], [0, 0, 0]]


@pytest.mark.parametrize("target", ["numpy", "cpu"])
@pytest.mark.parametrize("name", ["max", *deep(["min"])])
@pytest.mark.parametrize("axes", ["k", *deep(["j,k"])])
def test_extrema_pass_on_at_a_position_that_the_forward_pass_found(name: str, axes: str, target: str) -> None:
    """The tensor says how long its axes are, and none of its elements is read: they may be anything by then."""
    vjp = ra.parse(f"return y = {name}[{axes}](a[i,j,k]*2)").vjp(given="all")
    (spec,) = dict.fromkeys(vjp.specs.values())
    assert "a" in [d.name for d in spec.tensors] and not any(
        d.attr.name == "a" for d in g.leaves(spec.outputs["grad_a"])
    )
    rng = np.random.default_rng(4)
    for shape in ((1, 1, 1), (2, 1, 3), (3, 4, 5)):
        a = rng.integers(-2, 3, shape).astype(np.float64)  # with ties
        a[-1, -1, -1] = rng.choice([np.nan, INF, -INF, 0.0])
        cotangent = rng.standard_normal(shape[: 2 - (axes == "j,k")])
        rows = a.reshape(-1, shape[2]) if axes == "k" else a.reshape(shape[0], -1)
        at = np.argmax(rows if name == "max" else -rows, 1)
        expected = np.zeros(rows.shape)
        expected[np.arange(len(rows)), at] = 2 * cotangent.ravel()
        run = vjp.forms[vjp.forward].compile(target)
        values = run(a=a)
        assert np.asarray(vjp(a=a, cotangents={"y": cotangent}, target=target)["a"]).ravel() == pytest.approx(
            expected.ravel()
        )
        held = {n: values[saved] for n, saved in vjp.saved_tensors.items()}
        again = vjp.forms[spec].compile(target)(a=np.full_like(a, np.nan), grad_y=cotangent, **held)
        assert np.asarray(again).ravel() == pytest.approx(expected.ravel())


@pytest.mark.parametrize("body", ["x[j]*index[j]", "x[j]*index[j]**2/size[j]"])
def test_positions_need_no_tensor_that_is_read_along_them(body: str) -> None:
    got = gradient(f"return y = sum[j]({body})", 2.0, x=[1.0, 2.0, 4.0, 8.0])["x"]
    index = np.arange(4.0)
    assert got == pytest.approx(2 * (index if "size" not in body else index**2 / 4))


@pytest.mark.parametrize(
    ("x", "slopes"),
    [([2.0, 3, 4], [12, 8, 6]), ([2, 0.0, 4], [0, 8, 0]), ([0.0, 0, 4], [0, 0, 0]), ([0.0], [1]), ([-0.0, 5], [5, 0])],
)
def test_products_with_zeros(x: list[float], slopes: list[float]) -> None:
    assert gradient("return y = prod[j](x[j])", x=x)["x"].tolist() == slopes


def test_a_list_of_the_largest_sends_each_cotangent_back() -> None:
    got = gradient("return y = topk[j:2:k](x[i,j]).values", np.array([[1.0, 10.0]]), x=[[3.0, 7.0, 3.0, 1.0]])
    assert got["x"].tolist() == [[10.0, 1.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    ("text", "x", "slopes"),
    [
        ("return y = sum[j](where(x[j] > 0, log(x[j]), 0))", [-1.0, 0.0, 2.0], [0, 0, 0.5]),
        ("return y = sum[j](where(x[j] == 0, 0, 1/x[j]))", [0.0, 2.0], [0, -0.25]),
        ("return y = sum[j](where(x[j] > 0, sqrt(x[j])*x[j], -x[j]))", [0.0, 4.0, -3.0], [-1, 3, -1]),
        ("s = sum[j](where(x[j] > 0, sqrt(x[j]), 0)); return y = where(s > 0, log(s), s)", [-1.0, 0.0], [0, 0]),
    ],
)
def test_what_is_left_out_has_no_slope_however_steep(text: str, x: list[float], slopes: list[float]) -> None:
    """JAX and PyTorch multiply by 0 here, and give NaN."""
    assert gradient(text, x=x)["x"].tolist() == slopes


@pytest.mark.parametrize(("x", "w"), [(0.0, 0.0), (1.0, 1.0), (-2.0, 5.0), (5.0, -2.0), (800.0, 800.0), (-800.0, 3.0)])
def test_logaddexp_is_smooth_where_its_arguments_are_equal(x: float, w: float) -> None:
    """No comparison decides a derivative: the share of x is sigmoid(x - w), its slope sigmoid'."""
    a, b = np.array([x]), np.array([w])
    share = np.exp(-np.logaddexp(0, w - x))
    text = "return y = sum[j](logaddexp(x[j], w[j]))"
    got = gradient(text, x=a, w=b)
    assert got["x"] == pytest.approx(share) and got["w"] == pytest.approx(1 - share)
    tangent = ra.parse(text).jvp()(x=a, w=b, tangents={"x": np.ones(1), "w": np.zeros(1)}, target="numpy")
    assert tangent["y"] == pytest.approx(share)
    second = ra.parse(text).vjp(given=()).specs["x"].vjp(wrt="x")
    got = second(x=a, w=b, grad_y=1.0, cotangents={"grad_x": np.ones(1)}, target="numpy")
    assert got["x"] == pytest.approx(share * (1 - share))


ATTENTION = (
    "tensors q[i,d], k[j,d], v[j,e], ok[i,j] bool; s = where(ok[i,j], sum[d](q[i,d]*k[j,d]), -oo); m = max[j](s);"
    "p = exp(s - m); empty y = 0; return y = sum[j](p*v[j,e])/sum[j](p)"
)


@pytest.mark.parametrize("hidden", ["exp(20*x[j])", "1/(x[j] - 1)", "log(x[j] - 1)"])
def test_tangents_of_what_relu_leaves_out_are_0_however_steep(hidden: str) -> None:
    """relu selects, forward as backward: 0 times the infinity that is left out would be NaN."""
    x = np.array([1.0, 1000.0])
    spec = ra.parse(f"return z = relu(0 - sum[j](abs({hidden})))")
    assert spec.jvp()(x=x, tangents={"x": np.ones(2)}, target="numpy")["z"] == 0
    assert not spec.vjp()(x=x, cotangents={"z": np.float64(1)}, target="numpy")["x"].any()


@pytest.mark.deep
def test_rows_without_a_valid_element_pass_nothing_on() -> None:
    rng = np.random.default_rng(1)
    q, k, v = (rng.normal(size=(3, 2)) for _ in range(3))
    ok = np.array([[True, False, True], [False, False, False], [False, True, False]])
    cotangent = rng.normal(size=(3, 2))
    got = gradient(ATTENTION, cotangent, q=q, k=k, v=v, ok=ok)
    assert all(np.isfinite(a).all() for a in got.values()) and not got["q"][1].any()
    some = [0, 2]
    np.testing.assert_array_equal(gradient(ATTENTION, cotangent[some], q=q[some], k=k, v=v, ok=ok[some])["k"], got["k"])
    tangent = ra.parse(ATTENTION).jvp()(q=q, k=k, v=v, ok=ok, tangents={"q": q, "v": v}, target="numpy")["y"]
    assert np.isfinite(tangent).all() and not tangent[1].any()


@pytest.mark.deep
def test_second_derivatives_pass_nothing_on_in_rows_without_a_valid_element() -> None:
    """Nor do these rows spoil what is summed over all rows."""
    rng = np.random.default_rng(5)
    spec = ra.parse(
        "tensors s[i,j], v[j], ok[i,j] bool; t = where(ok[i,j], s[i,j], -oo); m = max[j](t); p = exp(t - m);"
        "empty y = 0; return y = sum[j](p*v[j])/sum[j](p)"
    )
    s, v, c, d = rng.normal(size=(3, 4)), rng.normal(size=4), rng.normal(size=3), rng.normal(size=(3, 4))
    ok = np.array([[True, False, True, True], [False] * 4, [False, True, True, False]])
    first = spec.vjp(wrt="s", given=()).specs["s"]
    for given in ((), "all"):
        second = first.vjp(given=given)
        got, some = (
            second(s=s[at], v=v, ok=ok[at], grad_y=c[at], cotangents={"grad_s": d[at]}, target="numpy")
            for at in ([0, 1, 2], [0, 2])
        )
        assert not got["s"][1].any() and not got["grad_y"][1]
        np.testing.assert_allclose(got["v"], some["v"], 1e-12)
        np.testing.assert_allclose(got["s"][[0, 2]], some["s"], 1e-12)


@pytest.mark.parametrize("order", ["", "order y = j i;", "order y = i j;"])
@pytest.mark.parametrize("body", ["p/l", "tanh(x[i,j]/l)", "x[i,j] - m + log(l)*0 + (x[i,j] - m)**2/l"])
def test_outputs_in_another_order_are_read_as_they_lie(order: str, body: str) -> None:
    """A square, whose axes nothing else tells apart."""
    rng = np.random.default_rng(6)
    x, c = rng.normal(size=(3, 3)), rng.normal(size=(3, 3))
    text = "tensors x[i,j]; m = max[j](x[i,j]); p = exp(x[i,j] - m); l = sum[j](p);"
    want = ra.parse(f"{text} return y = {body}").vjp(given=())(x=x, cotangents={"y": c}, target="numpy")["x"]
    spec = ra.parse(f"{text} {order} return y = {body}")
    for given in ("all", (), None):
        own = c.T if order == "order y = j i;" else c
        got = spec.vjp(given=given)(x=x, cotangents={"y": own}, target="numpy")["x"]
        np.testing.assert_allclose(got, want, 1e-12, 1e-14)


def test_a_row_whose_other_factor_is_masked_has_a_gradient() -> None:
    spec = ra.parse(
        "tensors x[i,j], ok[i,j] bool, q[i,d], on[i,d] bool; t = where(ok[i,j], x[i,j], -oo); empty y = 0;"
        "return y = max[j](t)*exp(sum[d](where(on[i,d], q[i,d], 0)))"
    )
    x, ok, q, on = np.array([[1.0, 2.0]]), np.ones((1, 2), bool), np.ones((1, 3)), np.zeros((1, 3), bool)
    for given in ((), "all", *spec.vjp(given="all").saved_tensors.values()):
        got = spec.vjp(given=given)(x=x, ok=ok, q=q, on=on, cotangents={"y": np.ones(1)}, target="numpy")
        assert got["x"].tolist() == [[0.0, 1.0]], given


def test_a_maximum_that_only_anchors_is_not_differentiated() -> None:
    """No position is looked for, and one reading of the data does for the sums."""
    softmax = ra.parse("m = max[j](x[i,j]); p = exp(x[i,j] - m); return y = p/sum[j](p)")
    for given in ("all", ()):
        assert "argmax" not in str(softmax.vjp(given=given).specs["x"])
    assert "argmax" not in str(softmax.jvp().spec)
    assert "argmax" in str(ra.parse("m = max[j](x[j]); return y = sum[j](x[j] - m)").vjp().specs["x"])


def test_a_variance_does_not_depend_on_its_mean() -> None:
    norm = ra.parse("u = mean[j](x[i,j]); v = mean[j]((x[i,j] - u)**2); return y = (x[i,j] - u)/sqrt(v + 1/1000)")
    gradients = norm.vjp()
    assert gradients.specs["x"] is not None and ra.derive_incremental(gradients.specs["x"], axis="j").passes == (1, 2)
    assert sorted(n for n in gradients.forward.outputs if n != "y") == ["mean1", "mean1_2"]


def test_what_is_saved_is_named_and_chosen() -> None:
    lse = ra.parse("m = max[j](x[j]); return lse = m + log(sum[j](exp(x[j] - m)))")
    assert list(lse.vjp().forward.outputs) == ["lse", "max1", "sum1"]
    assert list(lse.vjp(given="max1").forward.outputs) == ["lse", "max1"]
    assert list(lse.vjp(given=()).forward.outputs) == ["lse"]
    with pytest.raises(RedalgError, match=r"given='median'[\s\S]*max1, sum1"):
        lse.vjp(given=["median"])


def test_gradients_that_stream_alike_share_a_spec() -> None:
    specs = ra.parse(ATTENTION).vjp().specs
    assert specs["k"] is specs["v"] is not specs["q"]


def test_one_tensor_read_along_two_axes() -> None:
    spec, rng = ra.parse("return y = sum[j](x[j,a]*x[j,b]*w[a])"), np.random.default_rng(2)
    x, w, c = rng.normal(size=(4, 3)), rng.normal(size=3), rng.normal(size=(3, 3))
    got = spec.vjp()(x=x, w=w, cotangents={"y": c}, target="numpy")
    np.testing.assert_allclose(got["x"], (x * 1) @ (w[:, None] * c).T + x @ (w[:, None] * c), 1e-13)
    np.testing.assert_allclose(got["w"], ((x.T @ x) * c).sum(1), 1e-13)
    moved = spec.jvp()(x=x, w=w, tangents={"x": x}, target="numpy")["y"]
    np.testing.assert_allclose(moved, 2 * w[:, None] * (x.T @ x), 1e-13)


def test_what_does_not_depend_is_zero_and_what_is_alike_is_repeated() -> None:
    spec = ra.parse("return y = sum[j](x[i,j]) + sum[j](sign(z[j]))")
    got = spec.vjp()(x=np.ones((2, 3)), z=np.ones(3), cotangents={"y": np.array([1.0, 4.0])}, target="numpy")
    assert got["x"].tolist() == [[1.0] * 3, [4.0] * 3] and got["z"].tolist() == [0.0] * 3
    moved = spec.jvp(wrt="z")(x=np.ones((2, 3)), z=np.ones(3), tangents={"z": np.ones(3)}, target="numpy")
    assert moved["y"].tolist() == [0.0, 0.0]
    nothing = spec.jvp(wrt="z")(x=np.ones((2, 0)), z=np.ones(0), tangents={"z": np.ones(0)}, target="numpy")
    assert nothing["y"].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(("module", "budget"), [(tangent, "INVARIANCE"), (calls, "STAGES")])
def test_what_is_not_shown_is_differentiated_all_the_same(
    module: ModuleType, budget: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Showing that nothing depends on a stage value has a budget; the derivative is the same without."""
    softmax, x = ra.parse("m = max[j](x[j]); p = exp(x[j] - m); return y = p/sum[j](p)"), np.array([1.0, 3.0, 2.0])
    shown = softmax.vjp(given=())
    monkeypatch.setattr(module, budget, 0)
    blind = softmax.vjp(given=())
    assert "argmax" in str(blind.specs["x"]) and "argmax" not in str(shown.specs["x"])
    found = [g(x=x, cotangents={"y": x**2}, target="numpy")["x"] for g in (shown, blind)]
    np.testing.assert_allclose(*found, 1e-13)


def test_a_product_of_many_sums_is_differentiated() -> None:
    factors = "*".join(f"(x[j] - m + {k}*w)" for k in range(1, 8))
    spec, rng = ra.parse(f"m = max[j](x[j]); return y = sum[j]({factors})"), np.random.default_rng(3)
    x, w, d, h = rng.uniform(-1, 1, 5), np.array(0.5), rng.uniform(-1, 1, 5), 1e-6
    slope = (ra.reference(spec, x=x + h * d, w=w) - ra.reference(spec, x=x - h * d, w=w)) / (2 * h)
    got = spec.vjp(wrt="x")(x=x, w=w, cotangents={"y": 1.0}, target="numpy")["x"] @ d
    np.testing.assert_allclose(got, slope, 1e-6)


@pytest.mark.parametrize("length", [0, 1, 2])
def test_short_axes(length: int) -> None:
    got = gradient("return y = sum[j](x[j]**3)", x=np.arange(1.0, 1 + length))
    assert got["x"].tolist() == [3 * (j + 1.0) ** 2 for j in range(length)]


def test_outputs_without_a_cotangent_count_as_zero() -> None:
    spec = ra.parse("return a = sum[j](x[j]), b = sum[j](x[j]**2)")
    x = np.array([1.0, 3.0])
    assert spec.vjp()(x=x, cotangents={"b": 1.0}, target="numpy")["x"].tolist() == [2.0, 6.0]
    assert spec.vjp()(x=x, cotangents={}, target="numpy")["x"].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("return y = sum[j](x[j])", {"wrt": "z"}, "the tensors are x"),
        ("tensors k[j] integer; return y = sum[j](k[j])", {"wrt": "k"}, "declared integer"),
        ("return y = sum[j](cast(x[j], int8))", {}, "straight_through"),
        ("return y = sum[j](x[j])", {"assume": "smooth"}, "known assumptions"),
        ("monoid f = (a0*b0,) identity (1,); return y = reduce[j:f](x[j])", {}, "a user's monoid"),
    ],
)
def test_refusals_have_four_parts(text: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(RedalgError, match=said) as refusal:
        ra.parse(text).vjp(**options)
    assert all(part in str(refusal.value) for part in ("refused: ", "where: ", "why: ", "try: "))


def test_calls_name_what_they_get() -> None:
    spec = ra.parse("return y = sum[j](x[j]), at = argmax[j](x[j])")
    x = np.ones(2)
    with pytest.raises(RedalgError, match=r"cotangent of 'at'[\s\S]*outputs with a derivative are y"):
        spec.vjp()(x=x, cotangents={"at": 1})
    with pytest.raises(RedalgError, match="tangent of 'y'"):
        spec.jvp()(x=x, tangents={"y": x})
    with pytest.raises(RedalgError, match="a call without"):
        spec.vjp()(cotangents={"y": 1.0})


def test_what_is_cast_passes_straight_through_where_that_is_assumed() -> None:
    spec = ra.parse("return y = sum[j](cast(x[j]*3, int8)*x[j])")
    got = spec.vjp(assume={"straight_through"})(x=np.array([0.5]), cotangents={"y": 1.0}, target="numpy")
    assert got["x"].tolist() == [2.0 + 3 * 0.5]  # 1.5 is rounded to 2


def test_arrays_of_other_libraries_come_back() -> None:
    jax = pytest.importorskip("jax")
    x = jax.numpy.asarray(np.array([[1.0, 2.0]], np.float32))
    got = ra.parse("return y = sum[j](x[i,j]*w[j])").vjp()(
        x=x, w=x[0], cotangents={"y": jax.numpy.ones(1, np.float32)}, target="cpu"
    )
    assert all(isinstance(g, jax.Array) and g.dtype == np.float32 for g in got.values())
    assert got["w"].tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("text", "wrt", "reads", "not_"),
    [  # an output is read where that spares a tensor of its size or a pass, and nowhere else
        ("return y = w[j]*x[i,j]/sqrt(mean[j](x[i,j]**2))", "x", "x w", "y"),
        ("return r = a[k,n]*g[n]/(1 + sum[n](abs(a[k,n])))", "a", "a", "r"),
        ("m = max[j](x[i,j]); p = exp(x[i,j] - m); return y = p/sum[j](p)", "x", "y", "x"),
        (
            "s = sum[d](q[i,d]*k[j,d]); m = max[j](s); p = exp(s - m); return o = sum[j](p*v[j,e])/sum[j](p)",
            "q",
            "o",
            "",
        ),
        ("return l = log(sum[j](exp(x[i,j])))", "x", "x", ""),
    ],
)
def test_outputs_are_read_where_that_spares_reading(text: str, wrt: str, reads: str, not_: str) -> None:
    tensors = {d.name for d in ra.parse(text).vjp().specs[wrt].tensors}
    assert set(reads.split()) <= tensors and tensors.isdisjoint(not_.split())


def test_some_gradients_are_computed_alone() -> None:
    rng = np.random.default_rng(5)
    g = ra.catalog["layer_norm"].vjp()
    arrays = {"x": rng.standard_normal((3, 5)), "weight": rng.standard_normal(5), "bias": rng.standard_normal(5)}
    arrays, cotangents = arrays | {"eps": 0.25}, {"y": rng.standard_normal((3, 5))}
    whole = g(**arrays, cotangents=cotangents, target="numpy")
    values = g.forms[g.forward].compile("numpy")(**arrays)
    for wanted in ([], ["weight"], ["bias", "x"], ["eps"], [*g.wrt]):
        ran: list[ra.Spec] = []

        def run(form: ra.Form, given: Mapping[str, Any], ran: list[ra.Spec] = ran) -> Any:
            ran.append(form.spec)
            return form.compile("numpy")(**given)

        found = g.pulled(arrays, values, cotangents, run, wanted)
        assert list(found) == wanted and {n for s in ran for n in s.outputs} == {f"grad_{n}" for n in wanted}
        for name, value in found.items():
            np.testing.assert_allclose(value, whole[name], rtol=1e-12)


@pytest.mark.parametrize(
    "name,reductions", [("variance", 0), ("standard_scores", 2), ("layer_norm", 2), ("instance_norm", 2)]
)
def test_the_mean_in_a_variance_passes_nothing_on(name: str, reductions: int) -> None:
    """Saved, it is read, and nothing is added up for what would be 0: the textbook gradients of norms."""
    (node,) = (n for o, n in ra.catalog[name].vjp().specs["x"].outputs.items() if o == "grad_x")
    assert sum(n.op == "reduce" for n in g.walk(node)) == reductions


@pytest.mark.parametrize(
    "text", ["return y = sum[j](w[j]*x[j]**2)", "m = mean[j](x[j]); return y = sum[j](w[j]*(x[j] - m)**2)"]
)
def test_gradients_have_the_dtype_of_their_tensor_whatever_stands_beside_it(text: str) -> None:
    """A value is saved in the second spec only."""
    derivative = ra.parse(text).vjp()
    for own, other in product(("float16", "float32", "float64"), ("bool", "int8", "int64", "float32", "float64")):
        arrays = {"x": np.array([1, 2, 3], own), "w": np.array([1, 0, 1], other)}
        result = np.result_type(own, other)  # which the spec's output has
        found = derivative(**arrays, cotangents={"y": np.ones((), result)}, target="numpy")
        assert found["x"].dtype == own
        assert found["w"].dtype == (other if other.startswith("float") else result)


WHOLE = (bool, np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64)


@pytest.mark.parametrize(
    "text",
    [
        "return y = sum[j](x[j]**3*w[j]), m = max[j](w[j])",
        "return z = x[j]*w[j]*max[j](x[j])**2",
        "u = mean[j](x[j]); return v = sum[j](w[j]*(x[j] - u)**2)",
        "return y = x[j]*max[j](x[j]), n = sum[j](where(w[j] > 0, 1, 0))",
    ],
)
def test_derivatives_of_whole_numbers_are_those_of_the_real_numbers_that_they_are(text: str) -> None:
    """Narrow integers would wrap, and a tangent of truth values add up to one."""
    spec, rng = ra.parse(text), np.random.default_rng(len(text))
    forward, reverse = spec.jvp(), spec.vjp()
    outputs = {n: (5,) if axes else () for n, axes in spec.output_axes.items()}
    for dtype in WHOLE:
        low, high = (0, 1) if dtype is bool else (max(-999, np.iinfo(dtype).min), min(999, np.iinfo(dtype).max))

        def drawn(shape: Any, dtype: Any = dtype, low: int = low, high: int = high) -> Any:
            return rng.integers(low, high, shape, endpoint=True).astype(dtype)

        arrays, tangents = ({n: drawn(5) for n in "xw"} for _ in range(2))
        cotangents = {n: drawn(shape) for n, shape in outputs.items()}
        held = [arrays, tangents, cotangents, dict([*cotangents.items()][1:])]
        real = [{n: np.asarray(a, float) for n, a in some.items()} for some in held]
        for found, wanted in (
            *(
                (forward(**held[0], tangents=own, target="numpy"), forward(**real[0], tangents=other, target="numpy"))
                for own, other in ((held[1], real[1]), ({}, {}))
            ),
            *(
                (
                    reverse(**held[0], cotangents=held[k], target="numpy"),
                    reverse(**real[0], cotangents=real[k], target="numpy"),
                )
                for k in (2, 3)
            ),
        ):
            for name, value in wanted.items():
                assert found[name].dtype == np.float64, (dtype, name)
                np.testing.assert_allclose(found[name], value, 1e-12, 0, err_msg=f"{name} of {dtype}")


def test_derivatives_of_whole_numbers_in_other_libraries() -> None:
    jax, torch = pytest.importorskip("jax"), pytest.importorskip("torch")
    spec = ra.parse("return y = sum[j](x[j]**2), z = sum[j](w[j])")
    for library, kind, real in ((jax.numpy, "int8", "float64"), (torch, torch.int8, torch.float64)):
        x = library.asarray([100, -3], dtype=kind)
        found = spec.jvp()(x=x, w=x, tangents={"x": x}, target="numpy")
        assert [found["y"].tolist(), found["z"].tolist(), found["y"].dtype] == [2 * 10009, 0, real]
        got = spec.vjp()(x=x, w=x, cotangents={"y": library.asarray(100, dtype=kind)}, target="numpy")
        assert [got["x"].tolist(), got["w"].tolist(), got["x"].dtype] == [[20000, -600], [0, 0], real]


BETWEEN, ELEMENT, ROW = "s[i] <= t[j]", "0 < t[j]", "0 < s[i]"
CONDITIONS = (  # of an element, and of the result that it is in
    *((c, c) for c in (BETWEEN, ELEMENT, ROW)),
    *((BETWEEN, "t[j] < s[i]"), (BETWEEN, "true"), ("true", BETWEEN), (ELEMENT, f"{BETWEEN} and {ELEMENT}")),
)
SHARES = {
    "sum": "u**2/(1 + sum[j](u))",
    "weights": "exp(u)/sum[j](exp(u))",
    "mean": "(u - mean[j](u))**2",
    "relu": "relu(u)*sum[j](relu(u)*t[j])",
    "prod": "u*prod[j](u + 3)",
}


@pytest.mark.parametrize("share", ["mean", "relu", *deep(sorted({*SHARES} - {"mean", "relu"}))])
def test_elements_under_a_condition_that_comes_again_outside(share: str) -> None:
    """u reaches the result under a condition, and through a reduction without it; where u selects by the same one,
    both count (central differences of the definition, away from kinks)."""
    rng = np.random.default_rng(len(share))
    for within, outside in CONDITIONS:
        u = f"where({within}, x[j], {rng.choice(['0', '1/3', 'x[j]/2'])})"
        body = f"sum[i](where({outside}, ({SHARES[share]})*s[i]*t[j], 0))"
        spec = ra.parse(f"tensors x[j] positive, t[j], s[i]; u = {u}; return y = {body}")
        arrays = {d.name: rng.normal(size=3 if d.axes == ("i",) else 5) for d in spec.tensors}
        arrays["x"] = np.abs(arrays["x"]) + 0.3
        cotangents = {"y": rng.normal(size=5)}

        def weighed(x: np.ndarray, spec: Any = spec, arrays: Any = arrays, cotangents: Any = cotangents) -> float:
            return float(np.sum(ra.reference(spec, **{**arrays, "x": x}) * cotangents["y"]))

        steps = 1e-5 * np.eye(5)
        expected = [(weighed(arrays["x"] + h) - weighed(arrays["x"] - h)) / 2e-5 for h in steps]
        got = spec.vjp(wrt="x", given=())(**arrays, cotangents=cotangents, target="numpy")["x"]
        np.testing.assert_allclose(got, expected, 1e-6, 1e-7, err_msg=str(spec))


def test_a_call_without_a_target_takes_numpy_where_kernels_have_none() -> None:
    """Gradients of scores of normalised vectors reduce a state along some of its axes, which CPU kernels refuse."""
    g = ra.parse(
        "na = sqrt(sum[d](a[i,d]**2)); nb = sqrt(sum[d](b[j,d]**2)); s = sum[d](a[i,d]*b[j,d])/(na*nb);"
        "return l = mean[i](logsumexp[j](s) - sum[j](where(index[j] == index[i], s, 0)))"
    ).vjp()
    rng = np.random.default_rng(0)
    given = {"a": rng.normal(size=(4, 3)), "b": rng.normal(size=(4, 3)), "cotangents": {"l": 2.0}}
    found, wanted = g(**given), g(**given, target="numpy")
    for name in "ab":
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-12)


@pytest.mark.parametrize("zeros", range(5))
def test_derivatives_of_products_count_factors_of_zero(zeros: int) -> None:
    """Of two and three factors: the product of the others, whichever of them are 0."""
    first = ra.parse("return o = prod[j](x[j])").vjp(given=()).specs["x"]
    back, forth = first.vjp(wrt="x", given=()), first.jvp(wrt="x")
    third = back.specs["x"].jvp(wrt="x")
    rng = np.random.default_rng(zeros)
    for n in (zeros, zeros + 2):
        x, t, u = rng.permuted(np.r_[np.zeros(zeros), rng.uniform(-2, 2, n - zeros)]), *rng.uniform(-1, 1, (2, n))
        two, three = np.zeros((n, n)), np.zeros((n, n, n))
        for a, b, c in product(range(n), repeat=3):
            two[a, b] = a != b and np.prod(np.delete(x, [a, b]))
            three[a, b, c] = len({a, b, c}) == 3 and np.prod(np.delete(x, [a, b, c]))
        known = {"x": x, "grad_o": 1.0}
        with np.errstate(all="ignore"):
            for got in (
                back(**known, cotangents={"grad_x": t}, target="numpy")["x"],
                forth(**known, tangents={"x": t}, target="numpy")["grad_x"],
            ):
                np.testing.assert_allclose(got, two @ t, 1e-12, 1e-12)
            got = ra.reference(third.spec, **known, grad_grad_x=t, **{third.tangents["x"]: u})
        np.testing.assert_allclose(got, three @ t @ u, 1e-12, 1e-12)


@pytest.mark.parametrize("result", ["max[r]({})", "min[r]({})", "sum[t](topk[r:2:t]({}).values)"])
def test_extrema_of_windows_alone_pass_on_to_the_elements_they_are(result: str) -> None:
    """Of a tensor that says alone how long a window is."""
    spec, rng = ra.parse(f"return y = {result.format('x[2*h+r:3-1]')}"), np.random.default_rng(len(result))
    vjp = spec.vjp()
    for length in (1, 5):
        x, c = rng.permutation(length) - 2.5, rng.uniform(-1, 1, (length - 1) // 2 + 1)
        c = c[: len(ra.reference(spec, x=x))]
        found = vjp(x=x, cotangents={"y": c}, target="numpy")["x"]
        for at in range(length):
            step = 1e-4 * (np.arange(length) == at)
            moved = (ra.reference(spec, x=x + step) - ra.reference(spec, x=x - step)) / 2e-4
            np.testing.assert_allclose(found[at], moved @ c, 1e-8, 1e-8)


@pytest.mark.parametrize(
    "text",
    [
        "return y = sum[j](where(index[j] == argmin[j](x[i,j]), sum[k](where(index[k] == index[j], x[i,k]**3, 0)), 0))",
        "return y = sum[j](w[j]*x[i,j])*sum[k](where(index[k] <= index[j], x[i,k]*z[i,k], 0))",
        "return y = prod[j](sum[k](where(index[k] <= index[j], x[i,k], 0)))*w[j] + z[i,k]",
    ],
)
def test_gradients_of_one_reading_are_differentiated_by_its_tensor(text: str) -> None:
    """A gradient may read a tensor along the axes of another reading alone, or ask how long these are."""
    spec, rng = ra.parse(text), np.random.default_rng(len(text))
    known = {d.array or d.name: rng.permutation(9)[: 3 ** len(d.axes)] / 4 - 0.9 for d in spec.tensors}
    known = {d.name: known[d.name].reshape((3,) * len(d.axes)) for d in spec.tensors if not d.array}
    first = spec.vjp(given=())
    known |= {t: rng.uniform(-1, 1, (3,) * len(spec.output_axes[n])) for n, t in first.cotangents.items()}
    for gradient in dict.fromkeys(first.specs.values()):
        held = {n: known[n] for n in {d.array or d.name for d in gradient.tensors}}
        second = gradient.vjp()
        c = {n: rng.uniform(-1, 1, (3,) * len(gradient.output_axes[n])) for n in second.cotangents}
        found = second(**held, cotangents=c, target="numpy")
        for name, value in found.items():
            step = rng.uniform(-1, 1, value.shape)
            ends = [ra.reference(gradient, **{**held, name: held[name] + s * step}) for s in (1e-6, -1e-6)]
            ends = [e if isinstance(e, dict) else {next(iter(c)): e} for e in ends]
            moved = sum(((ends[0][n] - ends[1][n]) / 2e-6 * c[n]).sum() for n in c)
            assert (value * step).sum() == pytest.approx(moved, 1e-6, 1e-7), name


@pytest.mark.parametrize("mask", ["b[i,j]", "not b[i,j]", "b[i,j] and c[i,j]", "b[i,j] or u[j] > 0"])
@pytest.mark.parametrize("reduction", ["prod", "sum"])
def test_slopes_of_exclusive_conditions_are_derived_in_steps(mask: str, reduction: str) -> None:
    """Of what one condition chooses by what the other one does: a sum of 0 there reads no tensor along its axes."""
    named = "u[j], a[i], b[i,j] bool" + (", c[i,j] bool" if "c[" in mask else "")
    spec = ra.parse(f"tensors {named}; return y = {reduction}[j](where({mask}, a[i], u[j]))**2")
    rng = np.random.default_rng(len(mask))
    known = {"u": np.array([0.5, -1.5, 2.0]), "a": np.array([0.75, -2.0]), "b": np.array([[1, 0, 1], [0, 0, 1]]) > 0}
    known |= {"c": np.array([[1, 1, 0], [0, 1, 1]]) > 0, "grad_y": rng.uniform(-1, 1, 2)}
    for gradient in spec.vjp(given=()).specs.values():
        second = gradient.vjp()
        for names in (second.wrt, *((n,) for n in second.wrt)):
            assert second.together(names)
        for s in second.specs.values():
            sums = [n for n in g.walk(*s.outputs.values()) if n.op == "reduce" and n.attr.kind == "sum"]
            assert not any(n.args[0] is g.ZERO for n in sums)
        held = {d.name: known[d.name] for d in gradient.tensors}
        (name,) = second.cotangents
        c = rng.uniform(-1, 1, known[name.removeprefix("grad_")].shape)
        for of, value in second(**held, cotangents={name: c}, target="numpy").items():
            step = rng.uniform(-1, 1, value.shape)
            up, down = (ra.reference(gradient, **{**held, of: held[of] + s * step}) for s in (1e-6, -1e-6))
            assert (value * step).sum() == pytest.approx(((up - down) / 2e-6 * c).sum(), 1e-6, 1e-7), of
