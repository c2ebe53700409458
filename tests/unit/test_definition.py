"""The definition itself: results as users see them, rows without a valid element, and lengths 0 and 1."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from tests.support.profiles import examples

inf, nan = np.inf, np.nan


def attention(empty: dict | None = None, **more: object) -> ra.Spec:
    q, k, v = ra.tensors("Q[h,i,d] K[h,j,d] V[h,j,e]")
    mask = ra.tensors("mask[i,j]", bool=True)
    s = ra.where(mask, ra.sum(q * k, "d") * ra.scalar("scale"), -ra.oo)
    m = ra.max(s, "j")
    p = ra.exp(s - m)
    total = ra.sum(p, "j")
    return ra.Spec(O=ra.sum(p * v, "j") / total, lse=m + ra.log(total), empty=empty, **more)


def inputs(h: int = 2, i: int = 3, j: int = 5, d: int = 4) -> dict:
    rng = np.random.default_rng(7)
    q, k, v = (rng.standard_normal(s).astype(np.float32) for s in ((h, i, d), (h, j, d), (h, j, 2)))
    return {"Q": q, "K": k, "V": v, "mask": rng.random((i, j)) < 0.7, "scale": 0.5}


def test_attention_is_what_numpy_says() -> None:
    data = inputs()
    data["mask"][:, 0] = True
    s = np.where(data["mask"], np.einsum("hid,hjd->hij", *(data[n].astype(float) for n in "QK")) * 0.5, -inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    results = ra.reference(attention(), **data)
    assert list(results) == ["O", "lse"] and results["O"].dtype == results["lse"].dtype == np.float32
    np.testing.assert_allclose(results["O"], np.einsum("hij,hje->hie", p / p.sum(-1, keepdims=True), data["V"]), 1e-6)
    np.testing.assert_allclose(results["lse"], np.log(p.sum(-1)) + s.max(-1), 1e-6)
    exact = ra.reference(attention(), exact=True, **data)
    assert exact["O"].shape == (2, 3, 2) and exact["O"].dtype == object
    np.testing.assert_allclose(results["O"], exact["O"].astype(float), 1e-6)


def test_rows_without_a_valid_element() -> None:
    data = inputs()
    data["mask"][0], data["mask"][1:] = False, True
    plain, filled = ra.reference(attention(), **data), ra.reference(attention({"O": 0}), **data)
    assert np.isnan(plain["O"][:, 0]).all() and (plain["lse"][:, 0] == -inf).all()
    assert (filled["O"][:, 0] == 0).all() and (filled["lse"][:, 0] == -inf).all()
    np.testing.assert_array_equal(filled["O"][:, 1:], plain["O"][:, 1:])
    exact = ra.reference(attention({"O": Fraction(1, 3), "lse": -ra.oo}), exact=True, **data)
    assert exact["O"][0, 0, 0] == Fraction(1, 3) and exact["lse"][0, 0] == mpmath.mpf("-inf")


def test_nan_is_not_an_empty_row() -> None:
    data = inputs()
    data["mask"][...] = True
    data["K"][:, 2] = nan
    assert np.isnan(ra.reference(attention({"O": 0}), **data)["O"]).all()
    data["K"][:, 2], data["V"][0, 1, 0] = 0, nan
    result = ra.reference(attention({"O": 0}), **data)["O"]
    assert np.isnan(result[0, :, 0]).all() and np.isfinite(result[1]).all() and np.isfinite(result[0, :, 1]).all()


def test_an_axis_of_length_zero() -> None:
    data = inputs(j=0)
    results = ra.reference(attention({"O": 7}), **data)
    assert (results["O"] == 7).all() and (results["lse"] == -inf).all() and results["O"].shape == (2, 3, 2)
    x = ra.tensors("x[i,j]")
    spec = ra.Spec(
        sum=ra.sum(x, "j"),
        mean=ra.mean(x, "j"),
        max=ra.max(x, "j"),
        arg=ra.argmax(x, "j"),
        top=ra.topk(x, 2, "j").indices,
        any=ra.any(x > 0, "j"),
        y=x - ra.mean(x, "j"),
        empty={"mean": 1, "arg": -2},
    )
    results = ra.reference(spec, x=np.ones((2, 0), np.float32))
    assert {k: v.tolist() for k, v in results.items()} == {
        "sum": [0, 0],
        "mean": [1, 1],
        "max": [-inf, -inf],
        "arg": [-2, -2],
        "top": [[-1, -1], [-1, -1]],
        "any": [False, False],
        "y": [[], []],
    }
    assert [v.dtype.kind for v in results.values()] == list("fffiibf")
    free = ra.reference(spec, x=np.ones((0, 3)))
    assert [v.shape for v in free.values()] == [(0,), (0,), (0,), (0,), (0, 2), (0,), (0, 3)]


def test_masked_means_and_sums() -> None:
    x, keep = ra.tensors("x[i,j]"), ra.tensors("keep[i,j]", bool=True)
    mean = ra.sum(ra.where(keep, x, 0), "j") / ra.sum(keep, "j")
    spec = ra.Spec(mean=mean, weighted=ra.sum(x * ra.tensors("w[j]"), "j"), empty={"mean": -1, "weighted": -1})
    data = {"x": np.array([[1.0, 2], [nan, nan]]), "keep": np.array([[True, False], [False, False]]), "w": np.zeros(2)}
    results = ra.reference(spec, **data)
    assert results["mean"].tolist() == [1, -1]
    np.testing.assert_array_equal(results["weighted"], [0, nan])  # weights of 0 are valid, and NaN stays NaN


def test_softmax_keeps_its_axis_and_fills_whole_rows() -> None:
    x = ra.tensors("x[i,j]")
    p = ra.exp(x - ra.max(x, "j"))
    spec = ra.Spec(y=p / ra.sum(p, "j"), empty={"y": 0})
    result = ra.reference(spec, x=np.array([[-inf, -inf], [-inf, 3]]))
    assert result.tolist() == [[0, 0], [0, 1]]


def test_shapes_order_and_kinds_of_results() -> None:
    x, y = ra.tensors("x[i,j] y[k]")
    assert ra.reference(ra.Spec(s=ra.sum(x, ["i", "j"])), x=np.ones((2, 3))).shape == ()
    outer = ra.Spec(o=ra.sum(x, "j") * y, order={"o": "k i"})
    assert ra.reference(outer, x=np.ones((2, 3)), y=np.ones(5)).shape == (5, 2)
    copied = np.ones(5)
    assert not np.shares_memory(ra.reference(ra.Spec(o=y), y=copied), copied)
    assert ra.reference(ra.Spec(o=ra.sum(y, "k")), y=[1, 2]).dtype == np.int64


def test_names_of_tensors_may_be_those_of_the_options() -> None:
    spec = ra.tensors("spec[j]")
    assert ra.reference(ra.Spec(s=ra.sum(spec, "j")), spec=np.ones(3)) == 3


def test_integers_wrap_and_saturate_as_documented() -> None:
    n = ra.tensors("n[j]", integer=True)
    spec = ra.Spec(total=ra.sum(n, "j"), best=ra.max(n, "j"), twice=2 * n)
    results = ra.reference(spec, n=np.array([100, 100], np.int8))
    assert results["total"] == 200 and results["best"].dtype == np.int8 and results["twice"].tolist() == [-56, -56]
    nothing = ra.reference(spec, n=np.zeros(0, np.int8))
    assert nothing["best"] == -128 and nothing["total"] == 0
    with pytest.raises(ra.RedalgError, match="give an integer"):
        ra.reference(ra.Spec(m=ra.max(n, "j"), empty={"m": Fraction(1, 2)}), n=np.zeros(0, np.int8))


def test_narrow_floats_are_rounded_once() -> None:
    x = ra.tensors("x[j]")
    data = np.full(4096, 0.1, np.float16)
    assert ra.reference(ra.Spec(s=ra.sum(x, "j")), x=data) == np.float16(4096 * float(np.float16(0.1)))


floats = st.floats(-1e3, 1e3, width=32)


@examples(40)
@given(st.lists(st.tuples(floats, floats), min_size=1, max_size=6))
def test_statistics_agree_with_rational_arithmetic(pairs: list[tuple[float, float]]) -> None:
    x, y = ra.tensors("x[j] y[j]")
    dx, dy = x - ra.mean(x, "j"), y - ra.mean(y, "j")
    spec = ra.Spec(cov=ra.mean(dx * dy, "j"), var=ra.mean(dx**2, "j"), peak=ra.max(ra.abs(dx), "j"))
    a, b = (np.array(column) for column in zip(*pairs, strict=True))
    computed, exact = ra.reference(spec, x=a, y=b), ra.reference(spec, exact=True, x=a, y=b)
    n = len(pairs)
    mx, my = sum(map(Fraction, a)) / n, sum(map(Fraction, b)) / n
    assert exact["cov"][()] == sum((Fraction(p) - mx) * (Fraction(q) - my) for p, q in pairs) / n
    assert exact["peak"][()] == max(abs(Fraction(p) - mx) for p, _ in pairs)
    scale = 1e-15 * (1 + max(np.abs(a).max(), np.abs(b).max())) ** 2
    for name in spec.outputs:
        assert abs(float(computed[name]) - float(exact[name][()])) <= scale


def test_fractions_go_in_and_come_out() -> None:
    x = ra.tensors("x[j]")
    thirds = np.array([Fraction(1, 3), Fraction(2, 3)], dtype=object)
    assert ra.reference(ra.Spec(v=ra.mean((x - ra.mean(x, "j")) ** 2, "j")), exact=True, x=thirds) == Fraction(1, 36)
    with pytest.raises(ra.RedalgError, match="dtype object"):
        ra.reference(ra.Spec(s=ra.sum(x, "j")), x=thirds)


def test_every_spec_of_the_catalog_agrees_with_its_exact_value() -> None:
    rng = np.random.default_rng(11)
    for name, spec in ra.catalog.items():
        data = {}
        for decl in spec.tensors:
            shape = [3] * len(decl.axes)
            array = np.abs(rng.standard_normal(shape)) + 0.125 if decl.domain else rng.standard_normal(shape)
            if "integer" in decl.domain:
                array = rng.integers(0, 3, shape)
            data[decl.name] = rng.random(shape) < 0.6 if "bool" in decl.domain else np.asarray(array)
        computed, exact = ra.reference(spec, **data), ra.reference(spec, exact=True, **data)
        if not isinstance(computed, dict):
            computed, exact = {"": computed}, {"": exact}
        for key, value in computed.items():
            wide = np.array([float(v) for v in exact[key].flat]).reshape(value.shape)
            np.testing.assert_allclose(value.astype(float), wide, rtol=1e-9, atol=1e-11, err_msg=f"{name}.{key}")


def test_only_a_spec_has_a_definition() -> None:
    x = ra.tensors("x[j]")
    with pytest.raises(ra.RedalgError, match="TensorSymbol") as caught:
        ra.reference(x, x=[1.0])
    assert caught.value.where and caught.value.why and caught.value.fix
