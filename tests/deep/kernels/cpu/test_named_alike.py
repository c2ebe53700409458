"""A tensor, an output and what a state holds may have one name, or each other's: nothing is taken for the other.

Everything a call knows of an array (how it lies, its kind, its length) goes by a key; specs here are run with names
exchanged, and the result must be what the same spec says under names of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.kernels.ir.schedule import Schedule
from redalg.testing.generator import generate
from tests.support.simulated import run

# The words A, B and so on are replaced by names.
SHAPES = {
    "kept": "tensors A[i,j]; return B=A[i,j]-max[j](A[i,j])",
    "turned": "tensors A[j,i]; return B=A[j,i]-max[j](A[j,i])",
    "rows": "tensors A[i,j]; return B=sum[j](A[i,j])",
    "one": "tensors A[j]; return B=sum[j](A[j])",
    "map": "tensors A[i,j]; return B=2*A[i,j]+1",
    "two": "tensors A[i,j], C[j]; m=mean[j](A[i,j]); return B=(A[i,j]-m)*C[j], D=m",
    "spread": "tensors A[j,i], C[j]; m=mean[j](A[j,i]); return B=mean[j]((A[j,i]-m)**2*C[j])",
    "lanes": "tensors A[i,d], C[j,d], E[j,e]; s=sum[d](A[i,d]*C[j,d]); m=max[j](s); return B=sum[j](exp(s-m)*E[j,e])",
}
# Which tensor an output is named after, and tensors named as what states hold or as each other's output.
NAMES: dict[str, dict[str, str]] = {
    "own": {"A": "y", "B": "y", "C": "x", "D": "x", "E": "v"},
    "other": {"A": "x", "B": "w", "C": "w", "D": "x", "E": "v"},
    "count": {"A": "n", "B": "n", "C": "n_b", "D": "n_b", "E": "n_new"},
    "state": {"A": "x", "B": "max_x", "C": "max_x_b", "D": "avg_x_new", "E": "A_x_b"},
}
ORDERS = {
    "C": lambda a: a,
    "F": np.asfortranarray,
    "apart": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
}
SIZES = {"i": 12, "j": 20, "d": 2, "e": 4}
PLAIN = {"A": "tensor_a", "B": "first", "C": "tensor_c", "D": "second", "E": "tensor_e"}


def named(text: str, names: Mapping[str, str]) -> ra.Spec:
    for letter, name in names.items():
        text = "".join(name if part == letter else part for part in _parts(text))
    return ra.parse(text)


def _parts(text: str) -> Iterator[str]:
    """Words, and single characters between them."""
    word = ""
    for c in text:
        if c.isidentifier() or (word and c.isdigit()):
            word += c
            continue
        yield from (word, c)
        word = ""
    yield word


def drawn(shape: str, names: Mapping[str, str], order: str, dtype: Any = np.float32) -> dict[str, Any]:
    rng = np.random.default_rng(7)
    found = {}
    for decl in named(SHAPES[shape], PLAIN).tensors:
        letter = next(k for k, v in PLAIN.items() if v == decl.name)
        whole = rng.integers(-8, 9, [SIZES[a] for a in decl.axes]).astype(dtype) / 4
        found[names[letter]] = ORDERS[order](whole)
    return found


def wanted(shape: str, names: Mapping[str, str], arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The definition, under names that have nothing in common."""
    plain = {PLAIN[k]: arrays[v] for k, v in names.items() if PLAIN[k] in {t.name for t in _plain(shape).tensors}}
    found = ra.reference(_plain(shape), **plain)
    given = found if isinstance(found, dict) else {"first": found}
    return {names[next(k for k, v in PLAIN.items() if v == name)]: value for name, value in given.items()}


def _plain(shape: str) -> ra.Spec:
    return named(SHAPES[shape], PLAIN)


def compared(found: Any, want: Mapping[str, Any]) -> None:
    given = found if isinstance(found, dict) else {next(iter(want)): found}
    assert list(given) == list(want)
    for name, value in want.items():
        assert np.shape(given[name]) == np.shape(value)
        np.testing.assert_allclose(np.asarray(given[name], np.float64), value, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "words, order",
    [
        ("own", "C"),
        ("own", "F"),
        ("own", "apart"),
        ("other", "F"),
        ("count", "C"),
        ("state", "F"),
    ],
)
@pytest.mark.parametrize("shape", SHAPES)
def test_numpy_and_the_simulated_gpu(shape: str, words: str, order: str) -> None:
    names = NAMES[words]
    form = ra.derive_incremental(named(SHAPES[shape], names), axis="j" if shape != "map" else None)
    arrays = drawn(shape, names, order)
    want = wanted(shape, names, arrays)
    compared(form.compile("numpy")(**arrays), want)
    compared(run(form, arrays)[0], want)


@pytest.mark.parametrize("shape, words", [("turned", "own"), ("two", "count"), ("kept", "state")])
@pytest.mark.parametrize(
    "schedule",
    [
        Schedule(8, 4, 1, 4, column=True),
        Schedule(8, 4, 1, 4, column=True, coarsen=2),
        Schedule(32, 1, 4, 4, resident=True),
        "cluster",
        "warp",
        "thread",
    ],
    ids=str,
)
def test_every_family_of_schedules(schedule: Any, shape: str, words: str) -> None:
    """Coarsening, vectors and splits are where an array's pattern decides how it is read."""
    names = NAMES[words]
    form = ra.derive_incremental(named(SHAPES[shape], names), axis="j")
    for order in ("C", "F"):
        arrays = drawn(shape, names, order)
        try:
            found = run(form, arrays, schedule)[0]
        except ra.RedalgError as refusal:
            assert refusal.where == "schedule="  # it is not legal for these strides
            continue
        compared(found, wanted(shape, names, arrays))


@pytest.mark.parametrize(
    "shape, words, order",
    [
        ("kept", "own", "F"),
        ("turned", "own", "C"),
        ("rows", "own", "C"),
        ("two", "count", "C"),
        ("lanes", "count", "F"),
    ],
)
def test_cpu(shape: str, words: str, order: str) -> None:
    names = NAMES[words]
    arrays = drawn(shape, names, order)
    form = ra.derive_incremental(named(SHAPES[shape], names), axis="j")
    compared(form.compile("cpu")(**arrays), wanted(shape, names, arrays))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("words", NAMES)
def test_accumulators_in_pieces(shape: str, words: str) -> None:
    names = NAMES[words]
    if shape == "map":
        pytest.skip("a map has no state")
    arrays = drawn(shape, names, "C", np.float64)
    spec = named(SHAPES[shape], names)
    form = ra.derive_incremental(spec, axis="j")
    along = {t.name: t.axes.index("j") for t in spec.tensors if "j" in t.axes}
    fixed = {n: a for n, a in arrays.items() if n not in along}
    whole, late = form.accumulator(**fixed), form.accumulator(**fixed)
    for acc, low, high in ((whole, 0, 7), (whole, 7, 7), (late, 7, 20)):
        acc.update(**{n: np.take(arrays[n], range(low, high), axis=d) for n, d in along.items()})
    whole.merge(late)
    want = wanted(shape, names, arrays)
    totals = {o.name for o in form.plan.outputs if not o.keeps_axis}
    if totals:
        compared(whole.result(), {n: x for n, x in want.items() if n in totals})
    if totals < set(want):
        kept = whole.apply(**{n: arrays[n] for n in along})
        compared(kept, {n: x for n, x in want.items() if n not in totals})


@pytest.mark.parametrize("seed", range(24))
def test_generated_specs_with_outputs_named_as_tensors(seed: int) -> None:
    """On the NumPy target, and on the simulated GPU where the spec has rows."""
    spec = generate(seed, "known_rank", "masked", "masked_scores", "weighted", "monotone", "positions").spec
    names = [t.name for t in spec.tensors]
    turned = {n: names[(seed + k) % len(names)] for k, n in enumerate(spec.outputs)}
    if len(set(turned.values())) < len(turned):
        pytest.skip("more outputs than tensors")
    twin = ra.Spec.from_nodes({turned[n]: node for n, node in spec.outputs.items()}, tensors=spec.tensors)
    rng = np.random.default_rng(seed)
    arrays = {t.name: _values(rng, t) for t in spec.tensors}
    arrays = {n: np.asfortranarray(a) if seed % 2 else a for n, a in arrays.items()}
    form = ra.derive_incremental(twin)
    found = ra.reference(spec, **arrays)
    given = found if isinstance(found, dict) else {next(iter(spec.outputs)): found}
    want = {turned[n]: value for n, value in given.items()}
    compared(form.compile("numpy")(**arrays), want)
    compared(run(form, arrays)[0], want)


def _values(rng: Any, decl: Any) -> Any:
    shape = [{"i": 5, "j": 9}.get(a, 3) for a in decl.axes]
    if "bool" in decl.domain:
        return rng.random(shape) < 0.7
    low = 1 if "positive" in decl.domain else -8
    return rng.integers(low, 9, shape).astype(np.float64) / 4
