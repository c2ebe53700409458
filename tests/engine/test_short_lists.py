"""Lists of integers that have fewer elements than entries: what is calculated with their -oo, wherever it runs."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from tests.support.forms import form_of_text
from tests.support.profiles import examples
from tests.support.sample import deep, one_in

ENTRIES = (
    "v",
    "v - max[t](v)",
    "abs(v)",
    "-v",
    "v/3",
    "v*c[i]",
    "exp(v)",
    "where(v > -oo, 1, 0)",
    "v*v",
    "maximum(v, n[i])",
)
OUTPUTS = (
    "{}",
    "sum[t]({})",
    "min[t]({})",
    "max[t]({})",
    "mean[t]({})",
    "prod[t]({})*c[i]",
    "sum[t]({})*n[i]",
    "argmax[t]({})",
)
ELEMENTS = ("x[i,j]", "-x[i,j]", "2*x[i,j] + 1", "abs(x[i,j])")


def _same(found: Any, right: Any, what: str) -> None:
    for name, value in right.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-12, err_msg=f"{what}: {name}")


def _arrays(spec: ra.Spec, length: int, draw: random.Random) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(draw.getrandbits(32))
    kind = draw.choice(("int8", "int32", "int64", "uint8"))
    every = {"x": (2, length), "n": (2,), "c": (2,)}
    found = {
        t.name: rng.integers(1, 6, every[t.name]).astype("float64" if t.name == "c" else kind) for t in spec.tensors
    }
    return found


@pytest.mark.parametrize("seed", range(4))
def test_entries_that_are_not_there_are_infinite(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(6):
        y = draw.choice(OUTPUTS).format(draw.choice(ENTRIES))
        spec = ra.parse(f"v = topk[j:3:t]({draw.choice(ELEMENTS)}).values; return y = {y}, w = v")
        form = ra.derive_incremental(spec)
        for length in (1, 2, 4):
            arrays = _arrays(spec, length, draw)
            with np.errstate(all="ignore"):
                right = ra.reference(spec, **arrays)
                _same(form.compile("numpy")(**arrays), right, f"numpy {spec} {arrays}")
                left, behind = form.accumulator(**_fixed(arrays), start=0), form.accumulator(**_fixed(arrays), start=1)
                left.update(x=arrays["x"][:, :1])
                behind.update(x=arrays["x"][:, 1:])
                _same(left.merge(behind).result(), right, f"merged {spec} {arrays}")


QUOTIENTS = (
    "1/v - x[i,j]",
    "v/3 - v/2",
    "x[i,j]/v + v/2",
    "1/v + 1/(v - 1)",
    "1/(v*v) - x[i,j]",
    "v/v + x[i,j]",
)


@pytest.mark.parametrize("text", QUOTIENTS)
def test_quotients_of_entries_that_are_not_there(text: str) -> None:
    """Rational expressions of integers are one quotient, rounded once, only where all of them are integers."""
    spec = ra.parse(f"tensors x[i,j] integer; v = topk[j:3:t](x[i,j]).values; return y = {text}, w = sum[t](1/v)")
    form = ra.derive_incremental(spec)
    for length in (1, 2, 3, 5):
        x = np.random.default_rng(length).integers(-4, 6, (3, length))
        _same(form.compile("numpy")(x=x), ra.reference(spec, x=x), f"{text}, {length} elements")


def _fixed(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {n: a for n, a in arrays.items() if n != "x"}


def test_definitions_of_entries_that_are_not_there() -> None:
    spec = ra.parse("v = topk[j:3:t](x[j]).values; return y = mean[t](-v), z = v/3, w = v")
    found = ra.reference(spec, x=np.array([6, 3]))
    np.testing.assert_array_equal(found["y"], np.inf)
    np.testing.assert_array_equal(found["z"], [2, 1, -np.inf])
    np.testing.assert_array_equal(found["w"], [6, 3, np.iinfo(np.int64).min])


def test_kernels_leave_short_lists_to_numpy() -> None:
    form = ra.derive_incremental(ra.parse("v = topk[j:3:t](x[i,j]).values; return y = exp(v - max[t](v))"))
    run = form.compile("cpu")
    for length in (1, 2, 3):
        x = np.arange(2 * length).reshape(2, length)
        np.testing.assert_allclose(run(x=x), ra.reference(form.spec, x=x), rtol=1e-14)


@pytest.mark.parametrize(
    "output", ["sum[j](where({}, 1, 0))", "max[j](where({}, index[j]/2, -oo))", "all[j](index[j] > 0)"]
)
@pytest.mark.parametrize("condition", ["index[j] > index[i] + 1", "index[j]*index[i] > 2"])
def test_values_of_empty_rows_where_no_tensor_is_reduced(condition: str, output: str) -> None:
    spec = ra.parse(f"tensors x[i,j]; empty y = 1; return y = {output.format(condition)}")
    form = ra.derive_incremental(spec)
    for length in (0, 1, 2, 4):
        x = np.zeros((3, length))
        wanted = ra.reference(spec, x=x)
        for target in ("numpy", "cpu"):
            np.testing.assert_array_equal(form.compile(target)(x=x), wanted)


@pytest.mark.parametrize("output", ["-v", "v - x[j]", "3*v", "floor(v)", "maximum(v, 2)"])
def test_lists_that_are_not_full_keep_their_digits(output: str) -> None:
    """Beside -oo, which is no integer, integers beyond 2^53 are not rounded by the definition."""
    spec = ra.parse(f"v = topk[j:3:t](x[j]).values; return y = {output}")
    for large in (2**53 + 1, 2**56 - 3):
        exact = ra.reference(spec, x=np.array([large, 3]), exact=True)
        found = ra.reference(spec, x=np.array([large, 3]))
        finite = np.array([abs(float(v)) < 2**63 for v in exact.flat]).reshape(exact.shape)
        if found.dtype.kind == "i":
            assert [int(v) for v in found[finite]] == [int(v) for v in exact[finite]]


INTEGERS = ("int8", "int64", "uint8")
FACTORS = ("max[j](z[j])", "sum[j](abs(z[j]))", "(c + min[j](z[j]))")
SCALED = ("index[j]*{}", "z[j]*{}", "(z[j] - 1)*{}", "z[j] + {}", "-z[j]*{}")


@pytest.mark.parametrize(
    ("target", "kinds"), [("numpy", INTEGERS), ("cpu", INTEGERS[:1]), *deep([("cpu", INTEGERS[1:])])]
)
@pytest.mark.parametrize(("element", "factor"), one_in(3, SCALED, FACTORS))
def test_lists_that_a_stage_value_scales_end_as_lists_do(
    element: str, factor: str, target: str, kinds: tuple[str, ...]
) -> None:
    """Entries that are not there are not scaled: of integers they are the least of the dtype."""
    form = form_of_text(f"return y = topk[j:4:t]({element.format(factor)}).values")
    for kind, length in itertools.product(kinds, (1, 2, 4, 5)):
        arrays = {"z": np.arange(1, length + 1).astype(kind), "c": np.array(3, kind)}
        given = {t.name: arrays[t.name] for t in form.spec.tensors}
        np.testing.assert_array_equal(form.compile(target)(**given), ra.reference(form.spec, **given))


@pytest.mark.parametrize(
    ("stage", "value", "dtype"),
    [
        ("max[j](x[i,j])", -1, "uint8"),
        ("min[j](x[i,j])", 300, "int8"),
        ("argmax[j](x[i,j])", 2**63, "float64"),
        ("any[j](x[i,j] > 0)", -1, "float64"),
        ("any[j](x[i,j] > 0)", 2, "float64"),
    ],
)
def test_a_value_of_empty_rows_is_one_of_the_dtype(stage: str, value: int, dtype: str) -> None:
    form = ra.derive_incremental(ra.parse(f"empty y = {value}; return y = {stage}"))
    x = np.ones((2, 0), dtype)
    acc = form.accumulator()
    acc.update(x=x)
    for call in (lambda: ra.reference(form.spec, x=x), lambda: form.compile("numpy")(x=x), acc.result):
        with pytest.raises(ra.RedalgError, match=f"empty=.*{value}"):
            call()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("return y = topk[j:2:t](x[i,j]).values - x[i,j]", "y along t and the streamed axis"),
        ("tensors x[i,j]; empty y = 1/2; return y = argmax[j](where(x[i,j] > 0, x[i,j], -oo))", "empty={'y': 1/2}"),
        ("tensors x[i,j]; empty y = oo; return y = argmax[j](where(x[i,j] > 0, x[i,j], -oo))", "empty={'y': inf}"),
    ],
)
def test_results_that_kernels_do_not_write_are_refused(text: str, what: str) -> None:
    form = ra.derive_incremental(ra.parse(text))
    x = np.array([[1.0, 2.0, 4.0]])
    with pytest.raises(ra.RedalgError, match="refused") as problem:
        form.compile("cpu")(x=x)
    assert what in str(problem.value)
    assert form.compile("numpy")(x=x).shape == ra.reference(form.spec, x=x).shape


@pytest.mark.parametrize("k", [2, 5, 8])
@pytest.mark.parametrize("element", ["x[j]/sum[j](abs(x[j]))", "x[j]*exp(-max[j](abs(x[j])))", "x[j]*c"])
def test_an_infinite_element_that_a_list_leaves_out_is_told(element: str, k: int) -> None:
    spec = ra.parse(f"return y = sum[t](topk[j:{k}:t]({element}).values)")
    run = ra.derive_incremental(spec).compile("numpy")
    for length, at in ((k, 0), (k + 1, 0), (k + 1, k), (k + 3, 1)):
        for special in (np.inf, -np.inf, np.nan):
            x = np.random.default_rng(length).normal(size=length)
            x[at] = special
            arrays = {"x": x, "c": np.array(0.0)} if "c" in [t.name for t in spec.tensors] else {"x": x}
            with np.errstate(all="ignore"):
                found, right = run(**arrays), ra.reference(spec, **arrays)
            assert np.isnan(found) or found == right, (found, right, x)


def test_lists_that_no_tensor_changes() -> None:
    """Positions by the index alone: what is added to all elements is left out, and a case is as good as another."""
    spec = ra.parse("m = argmax[j](x[j]); return p = topk[j:2:t](cos(m**2) - index[j]).indices, m = m")
    form = ra.derive_incremental(spec)
    x = np.random.default_rng(0).normal(size=7)
    _same(form.compile("numpy")(x=x), ra.reference(spec, x=x), str(spec))


@examples(40)
@given(
    st.sampled_from(["x[j]", "2 - 3*x[j]"]),
    st.lists(
        st.tuples(st.sampled_from(["int64", "int8", "uint8", "float32", "float64"]), st.integers(0, 2)), max_size=4
    ),
    st.integers(0, 99),
)
def test_lists_keep_what_they_lack_where_dtypes_change(element: str, parts: list[tuple[str, int]], seed: int) -> None:
    """Also among elements below the least integer, which stands for nothing in lists of integers."""
    text = f"v = topk[j:4:t]({element}).values; return v = v, p = topk[j:4:t]({element}).indices, s = min[t](v)"
    form, rng = form_of_text(text), np.random.default_rng(seed)
    chunks = [rng.integers(1, 6, n).astype(dtype) for dtype, n in parts]
    chunks += [np.array([-1e20])] if seed % 2 else []
    if not sum(map(len, chunks)):
        return
    fed, joined, groups = form.accumulator(), form.accumulator(), form.grouped()
    for x in chunks:
        part = form.accumulator()
        part.update(x=x)
        fed.update(x=x)
        joined = form.from_bytes((joined + part).to_bytes())
        groups.update(by=np.zeros(len(x), int), x=x)
    dtype = np.result_type(*(x.dtype for x in chunks if len(x)))
    right = ra.reference(form.spec, x=np.concatenate([x.astype(dtype) for x in chunks]))
    grouped = {name: x[0] for name, x in groups.result()[1].items()}
    for found in (fed.result(), joined.result(), grouped):
        assert {n: x.dtype for n, x in found.items()} == {n: x.dtype for n, x in right.items()}
        _same(found, right, f"{parts} of {element}")
