"""Calls drawn at random: a generated spec, lengths, dtypes and strides; and how their results are held against it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

import redalg as ra
from redalg.graph.node import add, const, mul, substitute, tensor
from redalg.numeric.binding import bind
from redalg.streaming.results import real_dtype
from redalg.testing.equivalence import Held, Tally
from redalg.testing.generator import generate
from redalg.testing.limits import definition_limits

KINDS = ("known_rank", "masked", "masked_scores", "weighted", "monotone", "positions", "splitting", "near_miss_derived")
FLOATS = ("float64", "float32", "float16", "bfloat16")
WHOLE = ("int8", "int32", "int64")
SEEDS = 1 << 20
LENGTHS = {"i": (1, 2, 3, 5, 12), "j": (1, 2, 3, 7, 8, 16, 33)}


@dataclass(frozen=True)
class Call:
    """`arrays`: views of larger arrays, as the call gets them; `drawn`: for the message of a failure."""

    form: Any
    arrays: Mapping[str, np.ndarray]
    drawn: str

    @property
    def spec(self) -> Any:
        return self.form.spec

    def check(self, results: Any, tolerance: float = 1.0) -> int:
        """Every result lies within the derived bound of the definition; returns how many numbers were told apart."""
        found = results if isinstance(results, Mapping) else {next(iter(self.spec.outputs)): results}
        exact = {n: a.astype(float) if a.dtype != bool else a for n, a in self.arrays.items()}
        real = str(real_dtype(self.spec, bind(self.spec, self.arrays).dtypes))
        limits, tally = definition_limits(self.spec, exact, real, False), Tally()
        assert list(found) == list(self.spec.outputs), self.drawn
        for name, value in found.items():
            value = np.asarray(value)
            narrow = value.dtype.name if value.dtype.name in FLOATS else "float64"
            held = Held(self.spec, print, narrow, real, None, False, self.form, tolerance)
            outside = held._outside(name, value, limits, exact, tally, None)
            assert outside is None, f"{outside}\n{self.drawn}"
        return tally.compared - tally.open


AXES = (("j",), ("i", "j"), ("j", "i"))


@lru_cache(maxsize=256)
def form_of(seed: int, axes: tuple[tuple[str, ...], ...], shift: int, kept: bool) -> Any:
    """A generated spec with rows: its tensors have these axes in turn. Outputs go by the names of tensors where `shift`
    says so, and may come beside one that keeps the streamed axis."""
    generated = generate(seed, *KINDS)
    spec = generated.spec
    leaves = [tensor(t.name, t.axes if len(t.axes) > 1 else axes[k], t.domain) for k, t in enumerate(spec.tensors)]
    mapping = {tensor(t.name, t.axes, t.domain): leaf for t, leaf in zip(spec.tensors, leaves, strict=True)}
    outputs = {name: substitute(node, mapping) for name, node in spec.outputs.items()}
    if kept and generated.kind != "near_miss_derived":  # whose sums separate together alone
        first, x = next(iter(outputs.values())), next(n for n in leaves if "bool" not in n.attr.domain)
        if not first.is_boolean and "j_top" not in first.axes:
            outputs["kept"] = add(mul(const(2), x), first)
    if shift and len(outputs) <= len(leaves):
        outputs = {leaves[(shift + k) % len(leaves)].attr.name: node for k, node in enumerate(outputs.values())}
    return ra.derive_incremental(ra.Spec.from_nodes(outputs, tensors=[n.attr for n in leaves]), axis="j")


@st.composite
def calls(draw: Any, host: bool = False) -> Call:
    """`host`: arrays may start at any byte, as they do nowhere on a GPU, and the stream may have length 0."""
    seed, shift, kept = draw(st.integers(0, SEEDS - 1)), draw(st.integers(0, 3)), draw(st.booleans())
    axes = draw(st.tuples(*[st.sampled_from(AXES)] * 4))
    form = form_of(seed, axes, shift, kept)
    sizes = {a: draw(st.sampled_from(n)) for a, n in LENGTHS.items()}
    if host and draw(st.integers(0, 9)) == 0:
        sizes["j"] = 0
    rng, told, arrays = Random(seed), [], {}
    for t in form.spec.tensors:
        shape = tuple(sizes.get(a, 3) for a in t.axes)
        dtype = "bool" if "bool" in t.domain else draw(st.sampled_from((*FLOATS, *FLOATS, *WHOLE)))
        step, how = draw(strides(shape))
        odd = host and draw(st.integers(0, 4)) == 0
        arrays[t.name] = laid(values(t, shape, dtype, rng), step, how, int(odd))
        told.append(f"{t} of {dtype}, strides {step}, {how} elements{' and a byte' if odd else ''} in")
    what = f"form_of({seed}, {axes}, {shift}, {kept}): {form.spec}"
    return Call(form, arrays, "\n".join([what, *told]))


def values(decl: Any, shape: tuple[int, ...], dtype: str, rng: Random) -> np.ndarray:
    """Numbers of every format: quarters between -2 and 2, with ties."""
    if dtype == "bool":
        return np.array([rng.random() < 0.6 for _ in range(int(np.prod(shape)))], bool).reshape(shape)
    low, each = (1 if "positive" in decl.domain else -8), 1 if dtype in WHOLE else 4
    drawn = [max(1 if low > 0 else -9, rng.randint(low, 8) // (4 // each)) / each for _ in range(int(np.prod(shape)))]
    return np.array(drawn, float).reshape(shape).astype(getattr(ml_dtypes, dtype, None) or dtype)


@st.composite
def strides(draw: Any, shape: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """Strides in elements (axes in any order, backwards, with gaps, or 0), and elements before the view."""
    steps, within = [0] * len(shape), 1
    plain = draw(st.integers(0, 2)) == 0
    for axis in range(len(shape))[::-1] if plain else draw(st.permutations(range(len(shape)))):
        if not plain and draw(st.integers(0, 5)) == 0:
            continue
        gap = 0 if plain else draw(st.sampled_from((0, 0, 1, 3)))
        steps[axis] = (within + gap) * (-1 if not plain and draw(st.integers(0, 4)) == 0 else 1)
        within = abs(steps[axis]) * max(1, shape[axis])
    return tuple(steps), 0 if plain else draw(st.sampled_from((0, 1, 2, 4)))


def laid(given: np.ndarray, steps: tuple[int, ...], before: int, odd: int = 0) -> np.ndarray:
    """The values (of which one of many remains where a stride is 0) in a larger array full of other numbers.

    `odd`: bytes before that array's first element, in memory that is aligned.
    """
    reach = [s * (n - 1) for s, n in zip(steps, given.shape, strict=True) if n]
    low, high = sum(min(0, r) for r in reach), sum(max(0, r) for r in reach)
    whole = np.full(before - low + high + 5, 77).astype(given.dtype)
    each = whole.itemsize
    memory: np.ndarray = whole
    if odd:
        memory = np.concatenate([np.zeros(odd, np.uint8), whole.view(np.uint8)])
    found = np.ndarray(given.shape, given.dtype, memory, odd + (before - low) * each, tuple(s * each for s in steps))
    found[...] = given
    return found
