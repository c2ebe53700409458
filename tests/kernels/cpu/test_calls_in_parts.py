"""A spec in parts on the CPU gives what its definition does, however it is parted, and takes fewer operations."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.kernels import cpu_partitioned
from redalg.kernels.lower.partition import partitions
from tests.support.part_cases import CASES, agree, arrays_of, by_name, form
from tests.support.sample import deep

USUAL = {
    "m": 24,
    "k": 96,
    "n": 200,
    "l": 40,
    "h": 3,
    "i": 20,
    "j": 24,
    "d": 16,
    "e": 8,
    "c": 32,
    "r": 8,
    "v": 60,
    "o": 24,
}
LENGTHS = st.sampled_from((1, 2, 3, 5, 7, 8, 17))
UNIT = {"float16": 2.0**-23, "bfloat16": 2.0**-23, "float32": 2.0**-23, "float64": 2.0**-52}
KEPT = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 0.0, "float64": 0.0}


@contextmanager
def forced(number: int) -> Iterator[None]:
    """Every spec that has parts runs so, by one of its ways, whatever is counted."""

    def one(spec: Any, lengths: Any) -> Iterator[Any]:
        found = list(partitions(spec, lengths))
        return iter(found[number % len(found) :][:1]) if found else iter(())

    always = patch.object(cpu_partitioned.Choice, "pays_by_rows", lambda *_: True)
    with patch.multiple(cpu_partitioned, partitions=one, LESS=np.inf, MOST_HELD=np.inf), always:
        yield


@cache
def run(name: str, number: int) -> Any:
    """One for every way: a run chooses once for a kind of call."""
    return form(name).compile("cpu")


def is_parted(made: Any) -> bool:
    return "in parts: " in made.schedule


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", ["two outputs", *deep(sorted({*CASES} - {"two outputs"}))])
@given(data=st.data())
def test_parts_give_what_the_definition_does(name: str, data: st.DataObject) -> None:
    spec = CASES[name].spec
    sizes = {a: data.draw(LENGTHS, a) for a in spec.axes}
    dtype = data.draw(st.sampled_from(("float32", "float64", "float16")))
    arrays = arrays_of(spec, sizes, data.draw(st.integers(0, 99)), dtype)
    for special in data.draw(st.lists(st.sampled_from((np.inf, -np.inf, np.nan, 0.0)), max_size=2)):
        x = arrays[data.draw(st.sampled_from(sorted(arrays)))]
        x[tuple(data.draw(st.integers(0, n - 1)) for n in x.shape)] = special
    if turned := data.draw(st.sampled_from((None, *sorted(arrays)))):
        arrays[turned] = np.asfortranarray(arrays[turned])
    number = data.draw(st.integers(0, 5))
    made = run(name, number)
    with forced(number):
        found = by_name(spec, made(**arrays))
        assert is_parted(made)
    assert {x.dtype for x in found.values()} == {np.dtype(dtype)}
    agree(name, found, arrays, UNIT[dtype], KEPT[dtype])


@pytest.mark.parametrize("name", ["chain", *deep(sorted({*CASES} - {"chain"}))])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_what_lies_between_parts_is_not_rounded_to_16_bits(name: str, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    drawn = arrays_of(CASES[name].spec, USUAL, 5)
    arrays = {n: torch.tensor(x / 8).to(getattr(torch, dtype)) for n, x in drawn.items()}
    made = form(name).compile("cpu")
    with forced(0):
        found = by_name(CASES[name].spec, made(**arrays))
    assert all(x.dtype == getattr(torch, dtype) for x in found.values())
    wide = {n: x.double().numpy() for n, x in arrays.items()}
    agree(name, {n: x.double().numpy() for n, x in found.items()}, wide, UNIT[dtype], KEPT[dtype])


FEW = ("chain", "low rank, along r", "two outputs")


@pytest.mark.parametrize("name", [*FEW, *deep(sorted({*CASES} - {*FEW}))])
def test_parts_take_far_fewer_operations(name: str) -> None:
    sizes = USUAL | {"m": 128}  # of fewer rows, some are one kernel
    arrays, made = arrays_of(CASES[name].spec, sizes, 1, "float32"), form(name).compile("cpu")
    agree(name, by_name(CASES[name].spec, made(**arrays)), arrays, UNIT["float32"])
    told = next(line for line in made.explain().splitlines() if "operations:" in line)
    operations, whole = (float(word.rstrip(",")) for word in told.split() if word[0].isdigit())
    assert operations < (0.8 if name in ("chain", "low rank, along r") else 0.2) * whole


@pytest.mark.deep
def test_parts_of_parts() -> None:
    arrays, made = arrays_of(CASES["three"].spec, USUAL, 2, "float32"), form("three").compile("cpu")
    with forced(0):
        found = made(**arrays)
    assert "in parts: 4 kernels" in made.schedule and made.source.count("@njit") >= 3
    agree("three", {"Y": found}, arrays, UNIT["float32"])


@pytest.mark.parametrize("name", ["projected", "two outputs"])
def test_out_is_written_and_may_overlap_what_is_read(name: str) -> None:
    spec, made = CASES[name].spec, form(name).compile("cpu")
    sizes = {**USUAL, "l": USUAL["k"], "c": USUAL["d"], "i": 2}
    arrays = arrays_of(spec, sizes, 3, "float32")
    if name == "projected":  # Y[i,c] lies where Q[h=0,i,d] does
        arrays["Q"] = np.ascontiguousarray(arrays["Q"])
    wanted = by_name(spec, made(**arrays))
    fresh = {n: np.full_like(x, np.nan) for n, x in wanted.items()}
    given_back = by_name(spec, made(**arrays, out=fresh if len(fresh) > 1 else fresh["Y"]))
    assert all(given_back[n] is x for n, x in fresh.items())
    over = dict(fresh)
    over["Y"] = arrays["Q"][0] if name == "projected" else arrays["X"]
    kept = {n: x.copy() for n, x in arrays.items()}
    made(**arrays, out=over)
    for n, x in wanted.items():
        np.testing.assert_array_equal(fresh[n], x)
        np.testing.assert_array_equal(over[n], x)
    agree(name, over, kept, UNIT["float32"])
    with pytest.raises(ra.RedalgError, match="shape"):
        made(**kept, out={n: x[..., :1] for n, x in fresh.items()})


def test_arrays_of_other_libraries_and_strides() -> None:
    torch, spec = pytest.importorskip("torch"), CASES["chain"].spec
    arrays, made = arrays_of(spec, USUAL, 4, "float32"), form("chain").compile("cpu")
    wide = {n: np.repeat(np.repeat(x, 2, 0), 3, 1)[::2, ::3] for n, x in arrays.items()}
    for given_arrays in (wide, {n: torch.tensor(x) for n, x in arrays.items()}):
        found = made(**given_arrays)
        assert type(found) is type(given_arrays["X"])
        agree("chain", {"Y": np.asarray(found)}, arrays, UNIT["float32"])
    jax = pytest.importorskip("jax")
    found = made(**{n: jax.numpy.asarray(x) for n, x in arrays.items()})
    assert isinstance(found, jax.Array)
    agree("chain", {"Y": np.asarray(found)}, arrays, UNIT["float32"])


def test_a_row_alone_has_the_bits_that_it_has_among_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("chain", "low rank", "projected", "router"):  # how many rows there are decides for tiles of sums
        spec, made = CASES[name].spec, form(name).compile("cpu", deterministic=True)
        arrays, row = arrays_of(spec, USUAL, 6, "float32"), "i" if name == "projected" else "m"
        whole = made(**arrays)
        alone = dict(arrays)
        for t in (t for t in spec.tensors if row in t.axes):
            alone[t.name] = arrays[t.name].take([1], t.axes.index(row))
        np.testing.assert_array_equal(made(**alone), whole[1:2])
        assert is_parted(made)
        for threads in ("1", "3"):
            monkeypatch.setenv("REDALG_THREADS", threads)
            np.testing.assert_array_equal(made(**arrays), whole)


def test_what_stays_whole() -> None:
    spec = CASES["chain"].spec
    arrays = arrays_of(spec, USUAL, 7, "float32")
    asked, plain = form("chain").compile("cpu", schedule="rows"), form("chain").compile("cpu")
    for made in (asked, plain):
        agree("chain", {"Y": made(**arrays)}, arrays, UNIT["float32"])
    assert [is_parted(x) for x in (asked, plain)] == [False, True]
    paired, logits = form("entropy").compile("cpu", accuracy="compensated"), arrays_of(CASES["entropy"].spec, USUAL, 7)
    agree("entropy", {"L": paired(**logits)}, logits, UNIT["float64"])
    assert not is_parted(paired)
    plain(**{n: x.astype(np.int64) for n, x in arrays.items()})
    assert not is_parted(plain)
    mixed = {**arrays, "D": arrays["D"].astype(np.float64)}  # one kernel multiplies all of them in float64
    agree("chain", {"Y": plain(**mixed)}, mixed, UNIT["float64"])
    assert not is_parted(plain)
    none = {"X": arrays["X"], "B": arrays["B"][:0], "D": arrays["D"][:, :0]}
    np.testing.assert_array_equal(plain(**none), np.zeros((USUAL["m"], USUAL["l"]), np.float32))
    assert not is_parted(plain)


def test_runs_in_parts_are_pickled_and_deterministic() -> None:
    arrays = arrays_of(CASES["router"].spec, USUAL, 8, "float32")
    made = form("router").compile("cpu", deterministic=True)
    found = made(**arrays)
    twice = pickle.loads(pickle.dumps(made))
    np.testing.assert_array_equal(twice(**arrays), found)
    assert is_parted(twice) and twice.deterministic
    for line in ("part1[m,e] float32", "part2[m,e,n] float32", "operations:", "Y: "):
        assert line in twice.explain()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    ("text", "axis", "scales"),
    [
        ("return Y = sum[n](relu(sum[k](X[m,k]*B[n,k]))*D[l,n])", "n", {"X": 1e30, "B": 1e30, "D": 1e-30}),
        ("return Y = sum[n](exp(sum[k](X[m,k]*B[n,k]))*D[l,n])", "n", {"X": 10, "D": 1e-30}),
        ("h = sum[k](X[m,k]*B[n,k]); return Y = sum[n](h*D[l,n])/sum[n](h)", "n", {"X": 1e-30, "B": 1e-30}),
        (
            "h = sum[k](X[m,k]*B[n,k]); l = sum[n](h*V[v,n]); return Y = log(sum[v](exp(l-max[v](l))))+max[v](l)",
            "v",
            {"X": 1e30, "B": 1e30, "V": 1e-35},
        ),
    ],
)
def test_what_leaves_the_range_between_parts_is_computed_anew(text: str, axis: str, scales: dict[str, float]) -> None:
    """Rows beside such ones have the bits that they have alone."""
    spec = ra.parse(text)
    made = ra.derive_incremental(spec, axis=axis, max_passes=8).compile("cpu")
    arrays = {n: np.abs(x) + 0.5 for n, x in arrays_of(spec, {"m": 5, "k": 4, "n": 5, "l": 3, "v": 4}, 9).items()}
    arrays = {n: (x * scales.get(n, 1) ** (n != "X")).astype(np.float32) for n, x in arrays.items()}
    arrays["X"][1:3] *= np.float32(scales["X"])
    with forced(0):
        found = made(**arrays)
        assert is_parted(made)
        for row in range(5):
            np.testing.assert_array_equal(made(**{**arrays, "X": arrays["X"][row : row + 1]})[0], found[row])
        out = np.zeros_like(found)
        np.testing.assert_array_equal(made(**arrays, out=out), found)
    np.testing.assert_allclose(found, ra.reference(spec, **arrays), rtol=1e-4)
    assert np.isfinite(found).all()


def test_results_of_bfloat16_that_are_no_numbers() -> None:
    """Where results divide, they are looked at: sums that are 0 by rounding between parts are not 0 by definition."""
    torch = pytest.importorskip("torch")
    spec = ra.parse("h = sum[k](X[m,k]*B[n,k]); return Y = sum[n](h*D[l,n])/sum[n](h)")
    made = ra.derive_incremental(spec, axis="n").compile("cpu")
    drawn = {n: np.abs(x) + 0.5 for n, x in arrays_of(spec, {"m": 4, "k": 4, "n": 5, "l": 3}, 1).items()}
    drawn["X"][1] *= 1e-30
    drawn["B"] *= 1e-30
    drawn["X"][2, 0] = np.nan
    drawn["X"][3] = 0
    arrays = {n: torch.tensor(x).to(torch.bfloat16) for n, x in drawn.items()}
    with forced(0):
        found = made(**arrays).double().numpy()
        assert is_parted(made)
    true = ra.reference(spec, **{n: x.double().numpy() for n, x in arrays.items()})
    np.testing.assert_allclose(found, true, rtol=KEPT["bfloat16"] + 64 * UNIT["bfloat16"])
    assert np.isfinite(found[:2]).all() and np.isnan(found[2:]).all()


@pytest.mark.parametrize(
    ("text", "axis", "parted"),
    [
        ("return Y = sum[e](sum[j](p*V[j,e])/sum[j](p)*W[c,e])", "e", True),
        ("return Y = sum[j](p*V[j,e])/sum[j](p)", "j", False),
    ],
)
def test_masks_with_an_infinity(text: str, axis: str, parted: bool) -> None:
    """What lies between parts is not masked with one, which every call would look into: rows of a softmax are whole."""
    scores = "s = where(index(j) <= index(i), sum[d](Q[i,d]*K[j,d]), -oo); p = exp(s - max[j](s)); "
    spec = ra.parse(scores + text)
    made = ra.derive_incremental(spec, axis=axis, max_passes=8).compile("cpu")
    arrays = {n: x / 8 for n, x in arrays_of(spec, {**USUAL, "i": 24}, 4, "float32").items()}
    with forced(0), patch.object(cpu_partitioned.Wrong, "__call__", side_effect=AssertionError):
        tried = [made(**arrays)]
    with forced(1):
        tried.append(ra.derive_incremental(spec, axis=axis, max_passes=8).compile("cpu")(**arrays))
    free = ra.derive_incremental(spec, axis=axis, max_passes=8).compile("cpu")
    for found in (*tried, free(**arrays)):
        true = ra.reference(spec, **{n: x.astype(np.float64) for n, x in arrays.items()})
        np.testing.assert_allclose(found, true, atol=(24 + 2 * 16 + 64) * UNIT["float32"] * np.abs(true).max())
    assert is_parted(free) == parted
