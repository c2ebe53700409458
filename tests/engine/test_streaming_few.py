"""Updates by a few elements: numbers give the bits of arrays, and give way to them where something is not finite."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.streaming import few
from redalg.streaming.few import Held
from redalg.testing.generator import generate
from tests.support.sample import one_in

TEXTS = (
    "return y = sum[j](x[j])",
    "return y = mean[j](x[j])",
    "m = max[j](x[j]); return y = log(sum[j](exp(x[j] - m))) + m",
    "u = mean[j](x[j]); return y = mean[j]((x[j] - u)**2)",
    "u = mean[j](x[j]); return y = mean[j]((x[j] - u)**3)",
    "m = max[j](x[j]); p = exp(x[j] - m); return y = sum[j](p*z[j])/sum[j](p)",
    "u = mean[j](x[j]); w = mean[j](z[j]); return y = mean[j]((x[j] - u)*(z[j] - w))",
    "return a = any[j](x[j] > 1), b = all[j](x[j] < 2), c = argmin[j](x[j]), d = argmax[j](x[j])",
)


@cache
def forms() -> list[Any]:
    x = ra.tensors("x[j]")
    top = ra.topk(x, 3, "j")
    drawn = [generate(seed) for seed in range(1000, 1030)]
    flat = [d.spec for d in drawn if d.expected == "derived" and all(t.axes == ("j",) for t in d.spec.tensors)]
    found = [*map(ra.parse, TEXTS), ra.Spec(v=top.values, at=top.indices), *flat]
    return [ra.derive_incremental(spec, axis="j") for spec in found if not any(t.domain for t in spec.tensors)]


def prepared() -> list[Any]:
    return forms()[: len(TEXTS) + 1]


def bits(acc: ra.Accumulator) -> list[tuple[str, Any, bytes]]:
    held = {**acc.state, **acc._now.pieces.state.low}  # type: ignore[attr-defined]
    return [(name, x.dtype, repr(x).encode() if x.dtype.itemsize > 8 else x.tobytes()) for name, x in held.items()]


def chunks(form: Any, length: int, sort: str, count: int = 7, dtype: str = "f8") -> list[dict[str, np.ndarray]]:
    rng, found = np.random.default_rng(length), []
    for k in range(count):
        chunk = {t.name: rng.normal(size=length).astype(dtype) for t in form.spec.tensors}
        for x in chunk.values():
            if sort == "ties":
                x[:] = np.round(x)
            elif sort == "zeros":
                x[:] = np.where(x < 0, -0.0, 0.0)
            elif sort == "huge":
                x *= 1e307 if dtype == "f8" else 1e37
            elif sort == "tiny" and k != 2:
                x *= 1e-160 if dtype == "f8" else 1e-22
            elif sort == "far":
                x += 1e9 if dtype == "f8" else 1e4
            elif sort == "infinite" and k == 4:
                x[0] = (np.inf, -np.inf, np.nan)[length % 3]
            elif sort == "masked" and k == 0:
                x[:] = -np.inf
        found.append(chunk)
    return found


def fed(form: Any, arrays: Sequence[dict[str, np.ndarray]]) -> ra.Accumulator:
    acc = form.accumulator(start=3)
    with np.errstate(all="ignore"):
        for chunk in arrays:
            acc.update(**chunk)
    return acc  # type: ignore[no-any-return]


LENGTHS, DTYPES = (1, 2, 5, 13, 16, 100), ("f8", "f4")
SORTS = ("plain", "ties", "zeros", "huge", "infinite", "masked", "tiny", "far")


@pytest.mark.parametrize(("length", "sort", "dtype"), one_in(3, LENGTHS, SORTS, DTYPES))
def test_numbers_give_the_bits_of_arrays(length: int, sort: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for form in forms():
        arrays = chunks(form, length, sort, dtype=dtype)
        monkeypatch.setattr(few, "OFTEN", 2)
        numbers = fed(form, arrays)
        monkeypatch.setattr(few, "OFTEN", 1 << 60)
        by_arrays = fed(form, arrays)
        if (sort, dtype) == ("tiny", "f8"):  # arrays take wider floats where anything vanished, numbers where it shows
            found, wanted = (r if isinstance(r, dict) else {"": r} for r in (numbers.result(), by_arrays.result()))
            for name, value in wanted.items():
                np.testing.assert_allclose(found[name], value, 1e-11)
            continue
        assert bits(numbers) == bits(by_arrays), form
        assert (numbers.count, numbers.nbytes) == (by_arrays.count, by_arrays.nbytes)
        assert not isinstance(by_arrays._now.pieces, Held)
        assert isinstance(numbers._now.pieces, Held) or form not in prepared() or sort != "plain", form


def test_what_is_held_as_numbers_is_an_accumulator_like_others() -> None:
    for form in prepared():
        arrays = chunks(form, 4, "plain", count=12)
        acc, other = fed(form, arrays), form.accumulator(start=1000)
        other.update(**arrays[0])
        assert isinstance(acc._now.pieces, Held)
        twin, again = acc.copy(), pickle.loads(pickle.dumps(acc))
        for a in (acc, twin, again):
            a.merge(other)
        assert bits(acc) == bits(twin) == bits(again) and acc.count == 52


def test_inputs_are_left_alone_and_errors_stay_the_same() -> None:
    for form in forms():
        arrays = chunks(form, 5, "plain", count=12)
        before = [{name: x.copy() for name, x in chunk.items()} for chunk in arrays]
        acc = fed(form, arrays)
        state = bits(acc)
        for name in arrays[0]:
            bad = {"wrong": np.ones(5), **arrays[0]}, {**arrays[0], name: np.ones((5, 1))}, {**arrays[0], name: [None]}
            for chunk in bad:
                with pytest.raises(ra.RedalgError) as caught:
                    acc.update(**chunk)
                assert all((caught.value.what, caught.value.where, caught.value.why, caught.value.fix))
        assert bits(acc) == state
        for one, two in zip(arrays, before, strict=True):
            assert all(np.array_equal(one[name], two[name]) for name in one)
