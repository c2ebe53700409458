"""One infinity or NaN at any place of any tensor: a form gives what the definition gives, or NaN and says so."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.testing import sampling
from redalg.testing.generator import generate
from redalg.testing.running import merged, named, streamed
from tests.simulated import run as simulated

pytestmark = pytest.mark.filterwarnings("ignore")
SPECIAL = (np.inf, -np.inf, np.nan)
BLOCK, DEEP = 3, 18  # seeds of one test, generated specs in all
Arrays = dict[str, Any]


def drawn(spec: Any, rng: np.random.Generator, lengths: dict[str, int]) -> Arrays:
    """No two numbers alike, so that no result hangs on a rounding."""
    found = {}
    for d in spec.tensors:
        shape = [lengths.get(a, 2) for a in d.axes]
        sign = 1 if d.domain & {"positive", "nonnegative"} else rng.choice((-1, 1), shape)
        plain = rng.random(shape) < 0.7 if "bool" in d.domain else rng.uniform(0.25, 2, shape) * sign
        found[d.name] = np.asarray(rng.integers(1, 6, shape) * sign if "integer" in d.domain else plain)
    return found


def cases(spec: Any, rng: Random, lengths: dict[str, int], per_tensor: int) -> Iterator[Arrays]:
    """Special values at random places, and alone in a streamed tensor; a declared domain is taken at its word."""
    axes = {a for a, n in lengths.items() if n}
    for d in spec.tensors:
        if d.domain & {"bool", "integer", "complex"}:
            continue
        for _ in range(per_tensor):
            arrays = drawn(spec, np.random.default_rng(rng.getrandbits(32)), lengths)
            at = tuple(rng.randrange(n) for n in arrays[d.name].shape)
            arrays[d.name][at] = rng.choice(SPECIAL[:1] if d.domain & {"positive", "nonnegative"} else SPECIAL)
            yield arrays
        values = SPECIAL[::2] if d.domain & {"positive", "nonnegative"} else SPECIAL
        for chosen in [*((v,) for v in values), SPECIAL[: len(values) - 1]]:  # nothing else in it, and both infinities
            arrays = drawn(spec, np.random.default_rng(rng.getrandbits(32)), lengths)
            if not axes.isdisjoint(d.axes):
                arrays[d.name] = np.random.default_rng(rng.getrandbits(32)).choice(chosen, arrays[d.name].shape)
                yield arrays


def agree(form: Any, results: Arrays, arrays: Arrays) -> None:
    wanted = named(form, ra.reference(form.spec, **arrays))
    rounded = "cast_commutes" in form.assumptions
    for name, value in wanted.items():
        got, want = np.asarray(results[name]), np.asarray(value)
        void = np.isnan(got) if got.dtype.kind == "f" else got == -1
        if got.dtype.kind == "b":
            void = got != want  # a condition has no NaN
        with np.errstate(invalid="ignore"):
            same = (got == want) | (void & (np.isnan(want) if want.dtype.kind == "f" else got == want))
            if got.dtype.kind == "f":
                same |= np.abs(got - want) <= 1e-6 * (1e-3 + np.abs(want))
                same |= np.isfinite(got) & np.isfinite(want) & rounded
        context = f"{name} = {got} and not {want} for {arrays}: {form.assumptions}"
        assert (same | void).all(), f"another number: {context}"
        assert same.all() or "finite_stage_values" in form.assumptions, f"nothing said: {context}"


def run(form: Any, arrays: Arrays, rng: Random) -> Iterator[Arrays]:
    axis = form.plan.axis[0]
    n = next(np.shape(arrays[d.name])[d.axes.index(axis)] for d in form.spec.tensors if axis in d.axes)
    borders = sampling.cuts(rng, n)
    if form.passes.statistics == 1:
        yield merged(form, arrays, borders, sampling.bracketing(rng, len(borders) - 1))
    yield streamed(form, arrays, borders)


@pytest.mark.parametrize("name", sorted(ra.catalog))
def test_the_catalog(name: str) -> None:
    entry = ra.catalog.entry(name)
    form = ra.derive_incremental(entry.spec, axis=entry.axis, assume=entry.assume)
    if not form.plan.passes or any("complex" in d.domain for d in form.spec.tensors):
        return
    rng = Random(name)
    for arrays in cases(form.spec, rng, dict.fromkeys(form.plan.axis, 4), 1):
        for results in run(form, arrays, rng):
            agree(form, results, arrays)


@pytest.mark.parametrize("block", range(0, DEEP, BLOCK))
def test_generated_specs(block: int) -> None:
    for seed in range(block, min(block + BLOCK, DEEP)):
        drawn_spec = generate(1000 + seed)
        if drawn_spec.expected != "derived":
            continue
        form = ra.derive_incremental(drawn_spec.spec, axis="j")
        rng = Random(seed)
        for arrays in cases(form.spec, rng, {"j": 5}, 2):
            for results in run(form, arrays, rng):
                agree(form, results, arrays)


TEXTS = (
    "return y = min[j](x[i,j] - mean[j](x[i,j]))",
    "return y = max[j](mean[j](x[i,j]) - 2*x[i,j])",
    "a = mean[j](x[i,j]); b = mean[j](w[j]); return y = mean[j]((x[i,j]-a)*(w[j]-b))",
    "m = max[j](x[i,j]); l = sum[j](exp(x[i,j]-m)); return y = argmax[j](exp(x[i,j]-m)/l)",
    "m = max[j](x[i,j]); return y = max[j](exp(x[i,j]-m)/sum[j](exp(x[i,j]-m)))",
    "return y = min[j](abs(x[i,j])/max[j](abs(x[i,j])))",
)


@pytest.mark.parametrize("text", TEXTS)
def test_extrema_covariances_and_positions(text: str) -> None:
    """At every place, in every accumulator: the infinity a mean leaves an extremum with is no number."""
    form = ra.derive_incremental(ra.parse(text), axis="j")
    rng = Random(7)
    for value in SPECIAL:
        for j in range(4):
            arrays = drawn(form.spec, np.random.default_rng(j), {"j": 4})
            arrays["x"][0, j] = value
            arrays["x"][1] = value
            agree(form, named(form, form.compile("numpy")(**arrays)), arrays)
            for results in run(form, arrays, rng):
                agree(form, results, arrays)


@pytest.mark.parametrize("text", [TEXTS[0], TEXTS[2], TEXTS[4]])
def test_kernels_keep_the_guard(text: str) -> None:
    form = ra.derive_incremental(ra.parse(text), axis="j")
    cpu = form.compile("cpu")
    for j, value in enumerate((np.inf, -np.inf, np.nan, np.inf)):
        arrays = {k: v.astype(np.float32) for k, v in drawn(form.spec, np.random.default_rng(j), {"j": 4}).items()}
        arrays["x"][0, j] = arrays["x"][1] = value
        agree(form, named(form, cpu(**arrays)), arrays)
        agree(form, simulated(form, arrays)[0], arrays)


def test_an_infinite_element_reaches_contractions_squared() -> None:
    """An anchor that is read along two axes at once."""
    form = ra.derive_incremental(ra.parse("u = mean[j](k[j,d]); return y = sum[j]((sum[d](q[i,d]*(k[j,d]-u)))**2)"))
    for at in ((0, 0), (2, 1)):
        arrays = drawn(form.spec, np.random.default_rng(1), {"j": 4})
        arrays["k"][at] = np.inf
        for results in run(form, arrays, Random(3)):
            agree(form, results, arrays)


@pytest.mark.parametrize("text", [
    "return y = sum[j](where(x[j] > max[j](x[j]), 1, 0))", "return y = sum[j](where(x[j] < min[j](x[j]), k[j], 0))",
    "return y = sum[j](where(x[j] >= max[j](x[j]), k[j], 0))", "return y = any[j](x[j] > max[j](x[j]))",
])  # fmt: skip
def test_conditions_with_nan_are_false_and_no_integer_is_made_of_nan(text: str) -> None:
    form = ra.derive_incremental(ra.parse(f"tensors k[j] integer; {text}" if "k[j]" in text else text))
    x = np.array([1.0, np.nan, 2.0])
    arrays = {"x": x, "k": np.array([1, 2, 3])} if "k[j]" in text else {"x": x}
    for results in run(form, arrays, Random(5)):
        for name, value in named(form, ra.reference(form.spec, **arrays)).items():
            assert results[name] == value and results[name].dtype == value.dtype
