"""Affine indices, ``x[b, 2*h + r - 1]``: the elements that loops over the definition of an index read."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.graph.node import Decl, Dimension
from redalg.numeric.binding import with_readings
from redalg.numeric.windows import folded
from redalg.testing import check_equivalence

DTYPES = ["float64", "float32", "float16", "int64", "int8", "bool"]


def looped(array: np.ndarray, dims: tuple[Dimension, ...], sizes: dict[str, int]) -> np.ndarray:
    """The windows by the definition of an index, one element after the other."""
    axes = [a for d in dims for a, _, _ in d.terms]
    found = np.zeros([sizes[a] for a in axes], array.dtype)
    for places in product(*(range(sizes[a]) for a in axes)):
        at = dict(zip(axes, places, strict=True))
        index = tuple(sum(step * at[a] for a, step, _ in d.terms) - d.pad for d in dims)
        if all(0 <= i < n for i, n in zip(index, array.shape, strict=True)):
            found[places] = array[index]
    return found


@st.composite
def readings(draw: Any) -> tuple[Decl, np.ndarray, dict[str, int]]:
    """A tensor that is read in windows, an array for it, and the lengths of the axes that the array does not say."""
    names, dims, known = iter("abcdefgh"), [], {}
    for _ in range(draw(st.integers(1, 2))):
        terms = []
        for number in range(draw(st.integers(1, 3))):
            alone = number == 0
            length = 0 if alone else draw(st.integers(0, 3))
            name = next(names)
            if not alone and draw(st.booleans()) or not length and not alone:
                known[name], length = max(length, draw(st.integers(0, 3))), 0
            terms.append((name, draw(st.integers(1, 3)), length))
        if len(terms) == 1:
            terms = [(terms[0][0], 1, 0)]
        dims.append(Dimension(tuple(terms), draw(st.integers(0, 2)) if len(terms) > 1 else 0))
    shape = [draw(st.integers(0, 7)) for _ in dims]
    array = np.arange(1, 1 + int(np.prod(shape))).reshape(shape).astype(draw(st.sampled_from(DTYPES)))
    if draw(st.booleans()):
        array = np.repeat(array, 2, axis=-1)[..., ::2]
    decl = Decl("x", tuple(a for d in dims for a, _, _ in d.terms), dimensions=tuple(dims))
    return decl, array, known


def number_of_windows(dim: Dimension, length: int, sizes: dict[str, int]) -> int:
    """By trying: as many as end inside the array and the zeros around it."""
    (_, step, _), *others = dim.terms
    if not others:
        return length
    reach = sum(s * max(sizes[a] - 1, 0) for a, s, _ in others)
    return sum(1 for k in range(length + 2 * dim.pad) if step * k + reach < length + 2 * dim.pad)


@given(readings())
def test_windows_hold_the_elements_of_their_indices(case: tuple[Decl, np.ndarray, dict[str, int]]) -> None:
    decl, array, known = case
    others = {a: Decl(f"w{a}", (a,)) for a in known}
    arrays = {"x": array} | {others[a].name: np.zeros(n) for a, n in known.items()}
    found = np.asarray(with_readings([decl, *others.values()], arrays)["x"])
    sizes = known | {a: n for d in decl.dimensions for a, _, n in d.terms if n}
    for dim, length in zip(decl.dimensions, array.shape, strict=True):
        sizes[dim.terms[0][0]] = number_of_windows(dim, length, sizes)
    if not decl.dimensions or all(len(d.terms) == 1 for d in decl.dimensions):
        return
    expected = looped(array, decl.dimensions, sizes)
    assert found.dtype == array.dtype and found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)
    again = with_readings([decl], {"x": found})["x"]
    np.testing.assert_array_equal(np.asarray(again), expected)  # windows themselves are taken as they are


@given(readings(), st.integers(0, 2**32))
def test_folding_is_the_adjoint_of_reading(case: tuple[Decl, np.ndarray, dict[str, int]], seed: int) -> None:
    decl, array, known = case
    if all(len(d.terms) == 1 for d in decl.dimensions):
        return
    array = array.astype(np.float64)
    others = [Decl(f"w{a}", (a,)) for a in known]
    arrays = {"x": array} | {d.name: np.zeros(known[d.axes[0]]) for d in others}
    read = np.asarray(with_readings([decl, *others], arrays)["x"])
    weights = np.random.default_rng(seed).integers(-9, 9, read.shape).astype(np.float64)
    back = folded(decl, weights, array.shape)
    assert back.shape == array.shape and np.sum(read * weights) == np.sum(array * back)


@given(readings(), st.data())
def test_lengths_that_an_index_says_hold(case: tuple[Decl, np.ndarray, dict[str, int]], data: Any) -> None:
    """Of every axis, the first of a sum among them, for an array and for its windows."""
    decl, array, known = case
    if not decl.dimensions or all(len(d.terms) == 1 for d in decl.dimensions):
        return
    others = [Decl(f"w{a}", (a,)) for a in known]
    zeros = {d.name: np.zeros(known[d.axes[0]]) for d in others}
    found = np.asarray(with_readings([decl, *others], {"x": array} | zeros)["x"])
    inner = {a for d in decl.dimensions for a, _, _ in d.terms[1:]}
    axis = data.draw(st.sampled_from(decl.axes))
    right = found.shape[decl.axes.index(axis)]
    said = data.draw(st.sampled_from([n for n in (right, right + 1, 7) if n]))
    terms = (tuple((a, s, said if a == axis else n) for a, s, n in d.terms) for d in decl.dimensions)
    dims = tuple(Dimension(t, d.pad) for t, d in zip(terms, decl.dimensions, strict=True))
    given = data.draw(st.sampled_from([found] if axis in inner else [found, array]))
    call = {"x": given} | zeros
    if said == right:
        np.testing.assert_array_equal(with_readings([Decl("x", decl.axes, dimensions=dims), *others], call)["x"], found)
        return
    with pytest.raises(ra.RedalgError, match=f"says {said}"):
        with_readings([Decl("x", decl.axes, dimensions=dims), *others], call)


REFUSED = {
    "return y = sum[r](x[i+1])": "no axis with a step",
    "return y = sum[i](x[2*i])": "an axis alone",
    "return y = sum[i](x[i-1])": "an axis alone",
    "return y = sum[r](x[i+r:0])": "positive number",
    "return y = sum[i](x[i+i])": "named twice",
    "tensors x[i+r:3-1] positive; return y = sum[r](x[i+r:3-1])": "declared positive",
    "tensors x[i+r:3-1] between(1, 2); return y = sum[r](x[i+r:3-1])": "between(1, 2)",
    "return y = sum[r](x[i+r:3]*x[i,r])": "two declarations",
    "return y = sum[r](x[i+r:2147483648])": "is beyond 2147483647",
    f"return y = sum[r](x[1{'0' * 5000}*i+r:2])": "a number of 5001 digits",
    "return y = sum[r](x[i+r:2-99999999999])": "is beyond 2147483647",
}


@pytest.mark.parametrize("text", REFUSED)
def test_indices_that_are_no_windows_are_refused(text: str) -> None:
    with pytest.raises(ra.RedalgError) as error:
        ra.parse(text)
    assert REFUSED[text] in str(error.value) and "try:" in str(error.value)


def test_calls_that_do_not_fit_are_refused() -> None:
    spec = ra.parse("return y = sum[r](x[i+r])")
    with pytest.raises(ra.RedalgError, match="its length is not said"):
        ra.reference(spec, x=np.ones(4))
    spec = ra.parse("return y = sum[r](w[r]*x[i+r:3])")
    with pytest.raises(ra.RedalgError, match="axis r has length"):
        ra.reference(spec, x=np.ones(4), w=np.ones(2))
    spec = ra.parse("return y = z[i] + sum[r](x[i+r:3])")
    with pytest.raises(ra.RedalgError, match="axis i has length"):
        ra.reference(spec, x=np.ones(4), z=np.ones(4))
    spec = ra.parse("return y = sum[q,r](x[i+r:2147483647+q:2147483647])")
    with pytest.raises(ra.RedalgError, match="more elements than an array can have"):
        ra.reference(spec, x=np.ones(4))
    form = ra.derive_incremental(ra.parse("return y = sum[r](x[i:5+r:3])"))
    for call in (form.compile("numpy"), form.compile("cpu"), form.accumulator().update):
        with pytest.raises(ra.RedalgError, match="says 5"):
            call(x=np.ones((4, 3)))
    with pytest.raises(ra.RedalgError, match="1 dimensions, and .* has 2"):
        ra.reference(ra.parse("return y = sum[r](x[b, i+r:3])"), x=np.ones(4))


def test_streams_take_chunks_where_an_axis_is_one_of_the_array() -> None:
    form = ra.derive_incremental(ra.parse("return y = sum[c](x[h+r:2,c]*k[c])"))
    x, k = np.random.default_rng(7).normal(size=(4, 7)), np.linspace(-1.0, 1.0, 7)
    acc = form.accumulator()
    for a, b in ((0, 3), (3, 3), (3, 7)):
        acc.update(x=x[:, a:b], k=k[a:b])
    np.testing.assert_allclose(acc.result(), ra.reference(form.spec, x=x, k=k), rtol=1e-14)
    sliding = ra.derive_incremental(ra.parse("return y = sum[r](x[i+r:3])"))
    with pytest.raises(ra.RedalgError, match="elements of several places"):
        sliding.accumulator().update(x=np.ones(5))
    acc = sliding.accumulator()
    acc.update(x=np.ones((5, 2)))  # the windows themselves
    acc.update(x=np.ones((5, 1)))
    np.testing.assert_array_equal(acc.result(), np.full(5, 3.0))


def test_python_and_text_say_the_same() -> None:
    x, w = ra.tensors("x[b, 2*h + r - 1] w[r]")
    assert ra.Spec(y=ra.sum(x * w, "r")) == ra.parse("tensors x[b,2*h+r-1], w[r]; return y = sum[r](x[b,2*h+r-1]*w[r])")
    z = ra.tensors("z[t]")
    assert str(z["i + 2*r:3"]) == "z_i_2_r_3" and z["i + 2*r:3"].decl.rank == 1


def test_masks_and_sparse_tensors_are_refused_as_ever() -> None:
    """A view of windows would drop what they say."""
    spec = ra.parse("return y = sum[r](x[i+r:2])")
    masked = np.ma.masked_array([1.0, 100.0, 3.0], [False, True, False])
    for call in (lambda: ra.reference(spec, x=masked), lambda: ra.derive_incremental(spec).compile("numpy")(x=masked)):
        with pytest.raises(ra.RedalgError, match="plain dense array"):
            call()


@pytest.mark.deep
def test_what_cuts_arrays_refuses_windows() -> None:
    """Parts of a rank, blocks, columns and drawn arrays are cut along axes of the windows."""
    spec = ra.parse("return y = sum[r](x[i+r:3])")
    form = ra.derive_incremental(spec)
    calls = {
        "collective": lambda: form.collective(),
        "dask": lambda: form.dask(x=np.ones(5)),
        "check_equivalence": lambda: check_equivalence(spec, lambda x: x),
        "nulls": lambda: form.accumulator(nulls="skip"),
    }
    for name, call in calls.items():
        with pytest.raises(ra.RedalgError) as error:
            call()
        assert "read " in str(error.value) and "windows" in str(error.value), name


def test_readings_are_compared_by_dimensions_of_the_array() -> None:
    """The streamed axis lies along the second dimension of both, and is the third axis of one of them."""
    form = ra.derive_incremental(ra.parse("return y = sum[c](x[g,c]*x[h+r:2,c])"))
    x, acc = np.arange(12.0).reshape(3, 4), form.accumulator()
    for a, b in ((0, 1), (1, 1), (1, 4)):
        acc.update(x=x[:, a:b])
    np.testing.assert_array_equal(acc.result(), ra.reference(form.spec, x=x))


@pytest.mark.parametrize("deterministic", [False, True])
def test_chunks_of_one_shape_are_read_in_windows_one_after_another(deterministic: bool) -> None:
    """An accumulator remembers kinds of chunks; what it remembers is how windows were read, not the array."""
    spec = ra.parse("return y = sum[b](max[r](x[b,2*h+r:2-1])*w[h])")
    form, rng = ra.derive_incremental(spec, axis="b"), np.random.default_rng(0)
    x, w = rng.standard_normal((8, 5)), rng.standard_normal(3)
    acc = form.accumulator(w=w, deterministic=deterministic)
    for at in range(0, 8, 2):
        acc.update(x=x[at : at + 2])
    np.testing.assert_allclose(acc.result(), ra.reference(spec, x=x, w=w), 1e-12)
