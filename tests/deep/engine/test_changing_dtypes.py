"""One form, one operator, one collective, called with changing dtypes: a call gives what it would give as the first.

Numbers are small integers, so that every format holds every value and partial sum: results are the definition's bit by
bit. `tests.support.mixed_dtypes` does the same for compiled forms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from random import Random
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import redalg as ra
from redalg.form import Form
from redalg.numeric.array_origin import format_name
from redalg.numeric.dtypes import promote
from tests.support.ranks import in_threads

KINDS = ("float16", "bfloat16", "float32", "int8", "bool")
TEXT = "m = max[j](x[i,j]); return s = sum[j](w[j]*x[i,j]), m, a = argmax[j](x[i,j]), z = m - x[i,j]"
COLUMN = "return s = sum[j](w[j]*x[j]), m = max[j](x[j]), a = argmax[j](x[j]), b = any[j](x[j] > 0)"
CELL = {"bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}
CUTS = ((0, 2), (2, 2), (2, 7))
Arrays = dict[str, np.ndarray]


def again(form: Form) -> Form:
    """The same form, which nothing was called of."""
    return Form(form.spec, form.plan)


def drawn(shapes: dict[str, tuple[int, ...]], kinds: Sequence[str], draw: Random) -> Arrays:
    """Integers that all kinds hold, in C order, in Fortran order, or as a view with gaps backwards."""
    low = 0 if any(k == "bool" or k.startswith("uint") for k in kinds) else -1
    found = {}
    for (name, shape), kind in zip(shapes.items(), kinds, strict=True):
        a = np.array([draw.randint(low, 1) for _ in range(int(np.prod(shape)))], np.float64).reshape(shape)
        a = a.astype(getattr(ml_dtypes, kind, None) or kind)
        turned = draw.choice((np.ascontiguousarray, np.asfortranarray, lambda a: a.repeat(2, -1)[..., ::-2][..., ::-1]))
        found[name] = turned(a)
    return found


def pieces(arrays: Arrays) -> Iterator[Arrays]:
    return ({name: a[..., low:high] for name, a in arrays.items()} for low, high in CUTS)


def streamed(form: Form, arrays: Arrays) -> Any:
    """In pieces, saved between them, and merged."""
    first, *rest = pieces(arrays)
    one, other = form.accumulator(start=0), form.accumulator(start=2)
    one.update(**first)
    for part in rest:
        other.update(**part)
    found = form.from_bytes(one.to_bytes()).merge(form.from_state_dict(other.state_dict()))
    return {**found.result(), **found.apply(start=0, **arrays)}


def ranked(form: Form, calls: Sequence[Arrays], fresh: bool, patch: Any) -> list[Any]:
    """Every call on three ranks, by one collective for all, or by one for each: what the last rank has of it."""
    split = [list(pieces(arrays)) for arrays in calls]

    def work(channel: Any) -> list[Any]:
        made = form.collective()
        return [(again(form).collective() if fresh else made)(**parts[channel.rank]) for parts in split]

    found = in_threads(3, work, patch)[-1]
    if isinstance(found, Exception):
        raise found
    return list(found)


def same(found: Any, expected: Any, what: Any) -> None:
    assert list(found) == list(expected), what
    for name, value in expected.items():
        assert found[name].dtype == value.dtype and found[name].shape == value.shape, (name, what)
        np.testing.assert_array_equal(found[name].astype(float), value.astype(float), f"{name} {what}")


def test_accumulators_and_ranks(monkeypatch: Any) -> None:
    form, draw = ra.derive_incremental(ra.parse(TEXT)), Random(1)
    pairs = draw.sample([*product(KINDS, KINDS)], len(KINDS) ** 2)
    calls = [drawn({"x": (3, 7), "w": (7,)}, pair, draw) for pair in pairs]
    before = [{n: a.tobytes() for n, a in arrays.items()} for arrays in calls]
    on_ranks = zip(*(ranked(form, calls, fresh, monkeypatch) for fresh in (False, True)), strict=True)
    for pair, arrays, (merged, alone) in zip(pairs, calls, on_ranks, strict=True):
        expected = ra.reference(form.spec, **arrays)
        same(streamed(form, arrays), expected, pair)
        last = {**expected, "z": expected["z"][..., 2:]}
        same(merged, last, pair)
        same(alone, last, pair)
    assert before == [{n: a.tobytes() for n, a in arrays.items()} for arrays in calls]


def test_groups() -> None:
    form, draw = ra.derive_incremental(ra.parse(COLUMN)), Random(2)
    for pair in draw.sample([*product(KINDS, KINDS)], len(KINDS) ** 2):
        arrays, by = drawn({"x": (7,), "w": (7,)}, pair, draw), np.array([4, 1, 4, 4, 1, 1, 4])
        groups, more = form.grouped(), form.grouped()
        for made, (low, high) in zip((groups, more, more), CUTS, strict=True):
            made.update(by=by[low:high], **{n: a[low:high] for n, a in arrays.items()})
        keys, found = groups.merge(more).result()
        for k, key in enumerate(keys):
            expected = ra.reference(form.spec, **{n: a[by == key] for n, a in arrays.items()})
            same({n: v[k] for n, v in found.items()}, expected, pair)


def test_rows_of_an_empty_stream_have_the_dtype_of_their_chunk() -> None:
    form = ra.derive_incremental(ra.parse("m = max[j](x[i,j]); return m, z = m - x[i,j]"))
    for kind in KINDS:
        x, acc = np.zeros((3, 0), getattr(ml_dtypes, kind, None) or kind), form.accumulator()
        acc.update(x=x)
        assert acc.apply(x=x)["z"].dtype == ra.reference(form.spec, x=x)["z"].dtype


def test_results_of_nothing_have_the_dtype_of_the_chunks() -> None:
    text = "return s = sum[j](x[i,j]), m = max[j](x[i,j]), u = mean[j](x[i,j]), z = size[j]"
    form = ra.derive_incremental(ra.parse(text))

    def of_nothing(*kinds: str) -> ra.Accumulator:
        acc = form.accumulator()
        for kind in kinds:
            acc.update(x=np.zeros((3, 0), getattr(ml_dtypes, kind, None) or kind))
        return acc

    def types(kind: str, length: int = 0) -> Any:
        found = ra.reference(form.spec, x=np.zeros((3, length), getattr(ml_dtypes, kind, None) or kind))
        return {n: np.asarray(v).dtype for n, v in found.items()}

    def of(acc: ra.Accumulator) -> Any:
        return {n: v.dtype for n, v in acc.result().items()}

    for one, other in product(KINDS, KINDS):
        assert of(of_nothing(one)) == types(one)
        assert of(of_nothing(one).merge(of_nothing(one))) == of(form.accumulator().merge(of_nothing(one))) == types(one)
        both = format_name(promote([np.dtype(getattr(ml_dtypes, k, None) or k) for k in (one, other)]))
        assert of(of_nothing(one, other)) == of(of_nothing(one).merge(of_nothing(other))) == types(both)
        first, second = (form.from_bytes(of_nothing(kind).to_bytes()) for kind in (one, other))
        assert first.to_bytes() == of_nothing(one).to_bytes() and of(first) == types(one)
        assert of(first.merge(second)) == of(form.from_state_dict(first.state_dict())) == types(both)
        more = of_nothing(one)
        more.update(x=np.ones((3, 2), getattr(ml_dtypes, other, None) or other))
        assert of(more) == of(more.merge(of_nothing(one))) == of(form.from_bytes(more.to_bytes())) == types(other, 2)


# --- formats that NumPy lacks, beside integers ----------------------------------------------------------------------

NARROW = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
STANDARD = tuple("bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64 complex64".split())


@pytest.mark.parametrize("narrow", NARROW)
@pytest.mark.parametrize("other", (*STANDARD, *NARROW))
def test_results_have_one_dtype_whatever_stands_for_a_format(narrow: str, other: str) -> None:
    """Extensions of NumPy (arrays of JAX), and structures that stand for these formats (in kernels, for PyTorch)."""
    found = set()
    for stand in ((lambda n: np.dtype(getattr(ml_dtypes, n))), (lambda n: np.dtype([(n, f"u{CELL[n]}")]))):
        one, two = (stand(n) if n in NARROW else np.dtype(n) for n in (narrow, other))
        found |= {format_name(d) if not d.names else d.names[0] for d in (promote([one, two]), promote([two, one]))}
    assert len(found) == 1
    if other in ("bool", "int8", "uint8", narrow):
        assert found == {narrow}


@pytest.mark.parametrize(("x", "w"), [("int8", "bfloat16"), ("float8_e4m3fn", "uint8"), ("uint16", "bfloat16")])
def test_kernels_write_results_of_mixed_operands_where_they_belong(x: str, w: str) -> None:
    """Results lie in a larger array, of which nothing else may change."""
    form, draw = ra.derive_incremental(ra.parse("return s = sum[j](w[j]*x[i,j]), y = w[j]*x[i,j]")), Random(3)
    arrays = drawn({"x": (3, 7), "w": (7,)}, (x, w), draw)
    expected = ra.reference(form.spec, **arrays)
    for target in ("numpy", "cpu"):
        whole = {n: np.full(4 * v.size, 9, v.dtype) for n, v in expected.items()}
        out = {n: whole[n][v.size : 2 * v.size].reshape(v.shape) for n, v in expected.items()}
        same(form.compile(target)(**arrays, out=out), expected, (x, w, target))
        for n, v in expected.items():
            out[n][...] = 9
            assert (whole[n] == np.full(4 * v.size, 9, v.dtype)).all(), (n, target)
        same(form.compile(target)(**arrays), expected, (x, w, target))


# --- operators -------------------------------------------------------------------------------------------------------

COMPLEX = "tensors x[i,j] complex, w[j]; return s = sum[j](w[j]*x[i,j]), y = 2*x[i,j]"
REAL = "m = max[j](x[i,j]); return s = sum[j](w[j]*x[i,j]), z = m - x[i,j]"


def in_every_order(kinds: Sequence[Any], shared: Callable[..., Any], fresh: Callable[[], Callable[..., Any]]) -> None:
    """`shared` and calls made for each kind give the same bits, whatever kind was called before."""
    alone = [fresh()(kind) for kind in kinds]
    for numbers in product(range(len(kinds)), repeat=2):
        for k in numbers:
            assert shared(kinds[k]) == alone[k], f"{kinds[k]} in the order {[kinds[n] for n in numbers]}"


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        (COMPLEX, (("float32", "float32"), ("complex64", "float32"))),
        (REAL, (("float32", "float32"), ("bfloat16", "int8"))),
    ],
    ids=("complex", "real"),
)
def test_operators_of_pytorch(text: str, kinds: Any) -> None:
    torch = pytest.importorskip("torch")
    form, names = ra.derive_incremental(ra.parse(text)), iter(range(99))

    def call(op: Any, kind: tuple[str, str]) -> list[Any]:
        arrays = drawn({"x": (3, 7), "w": (7,)}, ("int8", "int8"), Random(str(kind)))
        given = [torch.tensor(a.copy()).to(getattr(torch, t)) for a, t in zip(arrays.values(), kind, strict=True)]
        expected = ra.reference(form.spec, **dict(zip(arrays, given, strict=True)))
        smooth = [a.requires_grad_() for a in given if a.is_floating_point() and text == REAL]
        found = op(*given)
        for value, want in zip(found, expected.values(), strict=True):
            assert value.dtype == want.dtype and torch.equal(value.detach(), want), kind
        if smooth:
            x, w = (a.detach().double() for a in given)
            pulled = torch.autograd.grad(found, smooth, [torch.ones_like(v) for v in found])
            peak = torch.nn.functional.one_hot(x.argmax(1), 7) * 7
            for gradient, want in zip(pulled, (w + peak - 1, x.sum(0)), strict=False):
                assert torch.equal(gradient.double(), want), kind
            found = (*found, *pulled)
        return [(str(v.dtype), v.tolist()) for v in found]

    def fresh() -> Any:
        op = again(form).torch_op(f"changing::{'real' if text == REAL else 'complex'}{next(names)}")
        return lambda kind: call(op, kind)

    in_every_order(kinds, fresh(), fresh)


def test_functions_of_jax() -> None:
    jax = pytest.importorskip("jax")
    form = ra.derive_incremental(ra.parse(COMPLEX))

    def call(op: Any, kind: str) -> list[Any]:
        arrays = drawn({"x": (3, 7), "w": (7,)}, ("int8", "int8"), Random(kind))
        given = {"x": jax.numpy.asarray(arrays["x"]).astype(kind), "w": jax.numpy.asarray(arrays["w"], "float32")}
        found = dict(zip(form.spec.outputs, map(np.asarray, op(**given)), strict=True))
        expected = ra.reference(form.spec, **{n: np.asarray(a) for n, a in given.items()})
        for name, value in expected.items():
            assert found[name].dtype == value.dtype and (found[name] == value).all(), kind
        return [v.tolist() for v in found.values()]

    def fresh() -> Any:
        op = again(form).jax()
        return lambda kind: call(op, kind)

    in_every_order(("float32", "complex64"), fresh(), fresh)
