"""Results in the caller's arrays (`out=`): whatever they share memory with, they are the definition's."""

from __future__ import annotations

import tracemalloc
from importlib.util import find_spec
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.errors import RedalgError
from redalg.numeric.out import self_overlapping
from tests.support.profiles import examples

SPECS = {  # on integers every one of them is exact, however it is computed
    "kept": "return y = x[i,j] - max[j](x[i,j])",
    "turned": "order y j i; return y = x[i,j] - max[j](x[i,j])",
    "weighted": "return s = sum[j](w[j] * x[i,j])",
    "columns": "return s = sum[i](x[i,j])",
    "both": "s = sum[j](x[i,j]); y = s - 2 * x[i,j]; return y, s",
    "map": "return y = x[i,j] - v[i]",
    "pointed": "return y = x[i,j] - max[j](x[i,j]) - sum[j](where(index(j) == t[i], x[i,j], 0))",
    "two": "a = x[i,j] - max[j](x[i,j]); b = x[i,j] + max[j](x[i,j]); return a, b",
}
POOL = 420
RUNS: dict[tuple[str, str], Any] = {}


def run_of(name: str, target: str) -> Any:
    key = name, target
    if key not in RUNS:
        text = SPECS[name]
        order = {"y": "j i"} if text.startswith("order") else None
        spec = ra.parse(text.removeprefix("order y j i; "))
        if order:
            x = ra.tensors("x[i,j]")
            spec = ra.Spec(y=x - ra.max(x, "j"), order=order)
        RUNS[key] = ra.derive_incremental(spec, axis="i" if name == "columns" else None).compile(target)
    return RUNS[key]


@st.composite
def views(draw: Any, shape: tuple[int, ...], apart: bool = False) -> tuple[int, tuple[int, ...]]:
    """A place in the pool: an offset and strides, in elements; `apart`: no two elements share one."""
    steps: list[int] = [0] * len(shape)
    within = 1
    for axis in draw(st.permutations(range(len(shape)))):
        if not apart and draw(st.integers(0, 7)) == 0:
            continue  # the same elements again and again
        steps[axis] = draw(st.sampled_from((1, 1, 1, -1))) * (within + draw(st.sampled_from((0, 0, 0, 1, 5))))
        within = abs(steps[axis]) * max(1, shape[axis])
    reach = [s * (n - 1) for s, n in zip(steps, shape, strict=True) if n]
    low, high = sum(min(0, r) for r in reach), sum(max(0, r) for r in reach)
    if high - low >= POOL:
        return draw(views(shape, apart))
    near = draw(st.sampled_from((0, 0, 1, 2, 7)))  # beginnings that nearly meet are likely
    return min(near - low, POOL - 1 - high), tuple(steps)


def placed(pool: np.ndarray, shape: tuple[int, ...], at: tuple[int, tuple[int, ...]]) -> np.ndarray:
    each = pool.itemsize
    return np.ndarray(shape, pool.dtype, pool.data, at[0] * each, tuple(s * each for s in at[1]))


def shapes_of(spec: Any, sizes: dict[str, int]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(sizes[a] for a in axes) for name, axes in spec.output_axes.items()}


def tensors_in(data: Any, spec: Any, sizes: dict[str, int], pool: np.ndarray) -> dict[str, Any]:
    """Inputs all of which lie in the pool, but for the positions `t`."""
    found: dict[str, Any] = {}
    for t in spec.tensors:
        shape = tuple(sizes[a] for a in t.axes)
        if t.name == "t":
            found[t.name] = np.minimum(np.arange(sizes["i"]), max(sizes["j"] - 1, 0))
        else:
            found[t.name] = placed(pool, shape, data.draw(views(shape)))
    return found


def room_in(data: Any, shapes: dict[str, tuple[int, ...]], arrays: dict[str, Any], pool: np.ndarray) -> dict[str, Any]:
    """Room for results: where an input of that shape lies, anywhere in the pool, or, if that is taken, elsewhere."""
    found: dict[str, Any] = {}
    for name, shape in shapes.items():
        like = [a for a in arrays.values() if a.shape == shape and not self_overlapping(shape, a.strides, 8)]
        if like and data.draw(st.booleans()):
            room = data.draw(st.sampled_from(like)).view()
        else:
            room = placed(pool, shape, data.draw(views(shape, apart=True)))
        taken = any(np.shares_memory(room, other) for other in found.values())
        found[name] = np.empty(shape) if taken else room
    return found


@pytest.mark.parametrize("target", ["numpy", "cpu"])
@pytest.mark.parametrize("name", SPECS)
@examples(40)
@given(data=st.data())
def test_results_in_memory_of_inputs(name: str, target: str, data: Any) -> None:
    run = run_of(name, target)
    spec = run.form.spec
    sizes = {"i": data.draw(st.sampled_from((1, 2, 3, 9))), "j": data.draw(st.sampled_from((1, 3, 8, 0)))}
    pool = np.random.default_rng(data.draw(st.integers(0, 99))).integers(-3, 4, POOL).astype(float)
    arrays = tensors_in(data, spec, sizes, pool)
    shapes = {n: tuple(sizes[a] for a in axes) for n, axes in spec.output_axes.items()}
    out = room_in(data, shapes, arrays, pool)
    true = by_name(spec, ra.reference(spec, **{n: a.copy() for n, a in arrays.items()}))
    expected, copies = pool.copy(), {n: a.copy() for n, a in out.items()}
    for n, room in out.items():
        copies[n][...] = room
        room[...] = true[n]
    expected, pool[...] = pool.copy(), expected
    found = by_name(spec, run(**arrays, out=out if len(out) > 1 else next(iter(out.values()))))
    assert all(found[n] is room for n, room in out.items())
    np.testing.assert_array_equal(pool, expected)
    for n, room in out.items():
        np.testing.assert_array_equal(room, true[n])


def by_name(spec: Any, value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {next(iter(spec.outputs)): value}


# --- named cases -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["numpy", "cpu"])
def test_turned_shifted_and_reversed_views(target: str) -> None:
    softmax = ra.derive_incremental(ra.catalog["softmax"]).compile(target)
    whole = np.random.default_rng(0).standard_normal((9, 8))
    for x, y in (
        (lambda a: a[:8].T, lambda a: a[:8]),
        (lambda a: a[:8], lambda a: a[1:]),
        (lambda a: a[1:], lambda a: a[:8]),
        (lambda a: a[:8], lambda a: a[7::-1]),
        (lambda a: a[:8, ::-1], lambda a: a[:8]),
        (lambda a: a, lambda a: a),
        (lambda a: a[:1].repeat(8, 0), lambda a: a[:8]),
        (lambda a: np.broadcast_to(a[2], (9, 8)), lambda a: a),
    ):
        a = whole.copy()
        true = softmax(x=x(a).copy())
        given = x(a)
        np.testing.assert_allclose(softmax(x=given, out=y(a)), true, rtol=1e-13)
        np.testing.assert_allclose(y(a), true, rtol=1e-13)


def test_the_same_view_takes_no_memory_where_the_schedule_allows_it() -> None:
    softmax = ra.derive_incremental(ra.catalog["softmax"]).compile("cpu")
    for view in (lambda a: a, lambda a: a.T, lambda a: a[::-1, ::2]):
        x = view(np.random.default_rng(0).standard_normal((600, 600)))
        true = softmax(x=x)
        again = view(np.random.default_rng(0).standard_normal((600, 600)))
        softmax(x=again, out=again)
        tracemalloc.start()
        softmax(x=x, out=x)
        taken = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        np.testing.assert_allclose(x, true, rtol=1e-12)
        assert taken < x.nbytes / 4


def test_results_of_narrow_formats_in_place() -> None:
    softmax = ra.derive_incremental(ra.catalog["softmax"]).compile("cpu")
    a = np.random.default_rng(0).standard_normal((8, 8)).astype(ml_dtypes.bfloat16)
    true = softmax(x=a.T.copy())
    assert (softmax(x=a.T, out=a) == true).all()


# --- refused ---------------------------------------------------------------------------------------------------------


TWO = "m = max[j](x[i,j]); s = sum[j](x[i,j]); return m, s"
X = np.arange(24.0).reshape(4, 6)


def fixed(a: np.ndarray) -> np.ndarray:
    a.flags.writeable = False
    return a


ROOM = np.zeros(12)
REFUSED: list[tuple[Any, list[str]]] = [
    ({"m": ROOM[:4], "s": ROOM[:4]}, ["out for m and out for s", "share memory"]),
    ({"m": ROOM[:4], "s": ROOM[3:7]}, ["out for m and out for s"]),
    ({"m": ROOM[:8:2], "s": ROOM[6::-2]}, ["out for m and out for s"]),
    ({"m": np.lib.stride_tricks.as_strided(ROOM, (4,), (0,)), "s": ROOM[4:8]}, ["out for m with strides (0,)"]),
    ({"m": fixed(np.zeros(4)), "s": ROOM[4:8]}, ["out for m", "read-only"]),
    ({"m": np.zeros(4, "f4"), "s": ROOM[4:8]}, ["out for m of shape (4,) and dtype float32", "float64"]),
    ({"m": np.zeros(5), "s": ROOM[4:8]}, ["shape (5,)"]),
    ({"m": [0.0] * 4, "s": ROOM[4:8]}, ["of type list"]),
    ({"m": np.ma.masked_array(np.zeros(4), [0, 1, 0, 0]), "s": ROOM[4:8]}, ["of type MaskedArray"]),
    ({"m": ROOM[:4]}, ["out=dict", "m, s"]),
    (ROOM[:4], ["out=ndarray", "m, s"]),
]


@pytest.mark.parametrize("target", ["numpy", "cpu"])
@pytest.mark.parametrize("out, words", REFUSED, ids=[str(words) for _, words in REFUSED])
def test_what_cannot_take_its_result_is_refused(target: str, out: Any, words: list[str]) -> None:
    run = RUNS.setdefault((TWO, target), ra.derive_incremental(ra.parse(TWO)).compile(target))
    ROOM[...] = 7
    refused(lambda: run(x=X, out=out), *words)
    assert (ROOM == 7).all()


def refused(call: Any, *words: str) -> None:
    with pytest.raises(RedalgError) as caught:
        call()
    assert all((caught.value.what, caught.value.where, caught.value.why, caught.value.fix))
    for word in words:
        assert word in str(caught.value)


def test_arrays_side_by_side_are_no_overlap() -> None:
    run = ra.derive_incremental(ra.parse(TWO)).compile("numpy")
    room = np.zeros((4, 4))
    found = run(x=X, out={"m": room[:, 0], "s": room[:, 1]})
    assert found["m"].tolist() == room[:, 0].tolist() == X.max(1).tolist() and room[:, 1].tolist() == X.sum(1).tolist()
    assert not room[:, 2:].any()


@pytest.mark.parametrize("target", ["numpy", "cpu"])
@pytest.mark.skipif(not find_spec("torch"), reason="PyTorch cannot be imported here")
def test_tensors_of_pytorch(target: str) -> None:
    import torch

    run = run_of("kept", target)
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        a = torch.arange(64.0).reshape(8, 8).to(dtype) % 5
        true = run(x=a.T.clone())
        assert run(x=a.T, out=a) is a and torch.equal(a, true)
    x = torch.zeros(2, 2, dtype=torch.float64)
    refused(lambda: run(x=x, out=torch.zeros(2, 2, dtype=torch.float64, requires_grad=True)), "requires a gradient")
    refused(lambda: run(x=x, out=torch.zeros(2, 2, dtype=torch.complex128).conj().imag), "negates")
    refused(lambda: run(x=x, out=torch.zeros(2, 1, dtype=torch.float64).expand(2, 2)), "share memory")
    refused(lambda: run(x=x, out=np.zeros((2, 2))), "of type ndarray", "torch")
    refused(lambda: run(x=x, out=torch.zeros(2, 2)), "torch.float32", "float64")
    refused(lambda: run(x=x, out=torch.zeros(2, 2, device="meta", dtype=torch.float64)), "of type Tensor")


@pytest.mark.parametrize("target", ["numpy", "cpu"])
@pytest.mark.skipif(not find_spec("jax"), reason="JAX cannot be imported here")
def test_arrays_of_jax_do_not_change(target: str) -> None:
    import jax.numpy as jnp

    x = jnp.zeros((2, 2))
    refused(lambda: run_of("kept", target)(x=x, out=x), "arrays of JAX do not change")


@pytest.mark.parametrize(
    "shape, strides, found",
    [
        ((), (), False),
        ((1, 1), (0, 0), False),
        ((0, 3), (0, 0), False),
        ((2, 3), (3, 1), False),
        ((2, 3), (-3, 1), False),
        ((2, 3), (2, 1), True),
        ((3, 2), (1, 3), False),
        ((2,), (0,), True),
        ((4, 4), (1, 1), True),
    ],
)
def test_elements_of_one_array_that_share_memory(shape: Any, strides: Any, found: bool) -> None:
    assert self_overlapping(shape, strides, 1) is found
    if 0 not in shape:
        places = sum(np.indices(shape)[d] * s for d, s in enumerate(strides)) if shape else np.zeros(1)
        assert bool(np.unique(places).size < np.prod(shape, dtype=int)) is found
