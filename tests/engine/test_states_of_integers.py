"""States of integers beside conditions: int64, uint64 and bool tensors in one form, in any chunks and order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from tests.support.forms import form_of_text

FORMS = {
    "covariance": "return y = cov[j](x[j], w[j])",
    "weighted mean": "return y = sum[j](w[j]*x[j]) / sum[j](w[j])",
    "conditions": "u = mean[j](x[j] > 1); return y = mean[j]((where(x[j] > 1, 1, 0) - u)*w[j])",
    "correlation": """u = mean[j](x[j]); v = mean[j](w[j])
        return y = mean[j]((x[j] - u)*(w[j] - v)) / sqrt(mean[j]((x[j] - u)**2)*mean[j]((w[j] - v)**2) + 1)""",
    "rows": "u = mean[j](x[i,j]); return y = mean[j]((x[i,j] - u)*w[j])",
    "extrema": "m = max[j](x[j]); return y = sum[j]((m - x[j])*w[j])",
}
DTYPES = ("bool", "int64", "uint64", "int8", "float64")


@pytest.mark.parametrize("name", FORMS)
@given(st.data())
def test_integers_beside_conditions_are_the_definition(name: str, data: Any) -> None:
    form = form_of_text(FORMS[name])
    n = data.draw(st.integers(1, 6))
    shapes = {"i": 2, "j": n}
    arrays = {}
    for d in form.spec.tensors:
        dtype = np.dtype(data.draw(st.sampled_from(DTYPES), label=f"dtype of {d.name}"))
        low = 0 if dtype.kind in "bu" else -9
        size = int(np.prod([shapes[a] for a in d.axes]))
        values = data.draw(st.lists(st.integers(low, 1 if dtype.kind == "b" else 9), min_size=size, max_size=size))
        arrays[d.name] = np.array(values, dtype).reshape([shapes[a] for a in d.axes])
    cuts = [0, *sorted(data.draw(st.lists(st.integers(0, n), max_size=3))), n]
    deterministic = data.draw(st.booleans())
    parts = []
    for low, high in zip(cuts[:-1], cuts[1:], strict=True):
        acc = form.accumulator(start=low, deterministic=deterministic)
        acc.update(**{d.name: arrays[d.name][..., low:high] for d in form.spec.tensors})
        parts.append(form.from_bytes(acc.to_bytes()) if data.draw(st.booleans()) else acc)
    total = form.accumulator(start=0, deterministic=deterministic)
    for part in data.draw(st.permutations(parts)):
        total.merge(part)
    one = form.accumulator()
    for low, high in zip(cuts[:-1], cuts[1:], strict=True):
        one.update(**{d.name: arrays[d.name][..., low:high] for d in form.spec.tensors})
    with np.errstate(all="ignore"):
        true = ra.reference(form.spec, **arrays)
        for found in (total.result(), one.result()):
            assert found.dtype == true.dtype
            np.testing.assert_allclose(found, true, rtol=1e-12, atol=1e-12)


@given(st.lists(st.integers(-(2**60), 2**60), min_size=1, max_size=8), st.data())
def test_large_integers_are_noted_under_the_name_of_their_tensor(values: list[int], data: Any) -> None:
    """Whatever chunks they come in, of one length or several: states are read again, and floats beside them refused."""
    form = form_of_text("return y = max[j](x[j]), n = sum[j](w[j])")
    acc = form.accumulator()
    length = data.draw(st.integers(1, 3))
    for low in range(0, len(values), length):
        acc.update(x=np.array(values[low : low + length]), w=np.ones(len(values[low : low + length]), np.int64))
        if data.draw(st.booleans()):
            acc = form.from_bytes(acc.to_bytes())
    assert int(acc.result()["y"]) == max(values)
    if max(map(abs, values)) > 2**53:
        with pytest.raises(ra.RedalgError, match="beyond 2"):
            acc.update(x=[0.5], w=[1])
        assert int(acc.result()["y"]) == max(values)
    else:
        acc.update(x=[0.5], w=[1])
        assert float(acc.result()["y"]) == max(0.5, *values)


PRODUCTS = ("x[j]", "x[j]*x[j]", "x[j]*x[j]*minimum(maximum(x[j], -1), 1)", "-x[j]*x[j]*w[j]")


@pytest.mark.parametrize("element", PRODUCTS)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=6), st.integers(0, 6), st.booleans())
def test_lists_of_integers_beyond_int64_merge(element: str, values: list[int], cut: int, deterministic: bool) -> None:
    """What is less than every int64 still comes before entries that are not there."""
    form = form_of_text(f"return y = topk[j:5:t]({element}).indices")
    arrays = {"x": np.array(values), "w": np.arange(1, len(values) + 1)}
    given = {t.name: arrays[t.name] for t in form.spec.tensors}
    acc, rest = (form.accumulator(start=at, deterministic=deterministic) for at in (0, min(cut, len(values))))
    acc.update(**{name: x[:cut] for name, x in given.items()})
    rest.update(**{name: x[cut:] for name, x in given.items()})
    np.testing.assert_array_equal((rest + acc).result(), ra.reference(form.spec, **given))


@given(st.lists(st.integers(2**51, 2**54), min_size=2, max_size=5), st.integers(1, 2))
def test_the_last_pass_takes_large_integers_in_chunks(values: list[int], length: int) -> None:
    form = form_of_text("return y = sum[j](relu(x[j] - 2*min[j](x[j])))", max_passes=2)
    x, acc = np.array(values), form.accumulator()
    for number in range(form.passes.statistics):
        if number:
            acc.next_pass()
        for low in range(0, len(x), length):
            acc.update(x=x[low : low + length])
    assert int(acc.result()) == int(ra.reference(form.spec, x=x))


@pytest.mark.parametrize("position", ["argmin[j](x[j] - std[j](w[j]))", "argmax[j](x[j]*max[j](w[j]))"])
@given(st.lists(st.integers(2**53, 2**62), min_size=1, max_size=4))
def test_integers_beside_positions_are_not_rounded(position: str, values: list[int]) -> None:
    """A NaN inside of a position is a position, and none of what it is added to."""
    form = form_of_text(f"return y = where(w[j] <= 0, 0, w[j]) + {position}")
    arrays = {"x": np.arange(len(values)) % 2, "w": np.array(values)}
    wanted = ra.reference(form.spec, **arrays)
    for found in (form.compile("numpy")(**arrays), form.compile("cpu")(**arrays)):
        np.testing.assert_array_equal(found, wanted)


BEYOND = (
    "sum[j](k[j]**{e}*x[j])/sum[j](k[j]**{e})",
    "mean[j]((x[j] - mean[j](x[j]))*k[j]**{e})/mean[j](k[j]**{e})",
    "sum[j](where(x[j] > 1, k[j]**{e}*x[j], 0))/sum[j](where(x[j] > 1, k[j]**{e}, 0))",
    "sum[j](k[j]**{e}*(x[j] - max[j](x[j])))/max[j](k[j]**{e})",
    "sum[j](softmax[j](x[j])*k[j]**{e})/sum[j](k[j]**{e})",
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("body", BEYOND)
@pytest.mark.parametrize("exponent", [3, 30, 90])
def test_powers_of_integers_beyond_int64_beside_floats(body: str, exponent: int) -> None:
    """Sums of Python's integers are the weights of what is centred, in one piece and in unequal ones."""
    form = form_of_text("tensors k[j] integer, x[j]; return y = " + body.format(e=exponent))
    for k in ((1, 2, 3, 2), (7, -6, 40, 5), (0, 0, 0, 0), (900, 3, 2, 1)):
        for n in (4, 2, 1, 0):
            arrays = {"k": np.array(k[:n], np.int64), "x": np.array([0.5, 3.0, 1.25, -2.0][:n])}
            wanted = ra.reference(form.spec, **arrays)
            parts = form.accumulator()
            for low, high in ((0, 1), (1, 1), (1, n)):
                parts.update(**{name: a[low:high] for name, a in arrays.items()})
            for got in (form.compile("numpy")(**arrays), parts.result()):
                void = np.isnan(got) and "finite_stage_values" in form.assumptions
                assert void or got == pytest.approx(wanted, rel=1e-9, nan_ok=True), arrays
