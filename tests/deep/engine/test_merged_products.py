"""Products of several tensors in units: merges take every quotient by a unit before they multiply.

Moving the slot of ``(x - a)·(z - b)/(S·T)`` takes ``(a - a')·(b - b')/(S·T)``. Where x and z are near 1e154 the product
a·b has no number, nor has S·T, though each quotient is near 1; which of the four meet first was a matter of hashes, and
so of the names of tensors.

Tensors are scaled by powers of 2, which changes no digit of anything in units: results are those of plain data times a
power of 2, and so is the bound, which is derived (`redalg.testing.bounds`) for the pieces and the tree of each merge.
"""

from __future__ import annotations

import re
from itertools import pairwise
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st

import redalg as ra
from redalg.adapters.ranks.specs import RankSpecs
from redalg.testing import running
from redalg.testing.bounds import assert_within, error_bounds
from tests.support.profiles import examples
from tests.support.simulated import run as simulated

LENGTH = 9
TREES = (([0, 3, 3, 9], [0, 0]), ([0, 0, 1, 5, 9], [2, 0, 0]), ([0, 2, 4, 9, 9], [2, 0, 0]))
RANGE = {np.float64: (532, 960), np.float32: (66, 110)}  # exponents of 2 of a tensor, at most, and of a result
NAMES = "d e f g h k l m p q r s t u v w x y z X Z alpha beta left right price mass".split()


class Case(NamedTuple):
    """A spec over tensors x, z, w along j (of which w is positive) or X, Z along i, j, and the degree in each."""

    text: str
    degrees: dict[str, int] = {}


MEANS = "a = mean[j](x[j]); b = mean[j](z[j]); c = mean[j](w[j]); "
VX, VZ, VW = ("mean[j]((x[j] - a)**2)", "mean[j]((z[j] - b)**2)", "mean[j]((w[j] - c)**2)")
COV = "mean[j]((x[j] - a)*(z[j] - b))"
WEIGHTED = "W = sum[j](w[j]); a = sum[j](w[j]*x[j])/W; b = sum[j](w[j]*z[j])/W; "
CASES = {
    "correlation": Case(f"{MEANS}y = {COV}/sqrt({VX}*{VZ})"),
    "correlation of sums": Case(
        f"{MEANS}y = sum[j]((x[j] - a)*(z[j] - b))/sqrt(sum[j]((x[j] - a)**2)*sum[j]((z[j] - b)**2))"
    ),
    "determination": Case(f"{MEANS}y = {COV}**2/({VX}*{VZ})"),
    "slope": Case(f"{MEANS}y = {COV}/{VX}", {"x": -1, "z": 1}),
    "intercept": Case(f"{MEANS}y = b - {COV}/{VX}*a", {"z": 1}),
    "slope of three": Case(
        f"{MEANS}y = ({COV}*{VW} - mean[j]((x[j] - a)*(w[j] - c))*mean[j]((z[j] - b)*(w[j] - c)))"
        f"/({VX}*{VW} - mean[j]((x[j] - a)*(w[j] - c))**2)",
        {"x": -1, "z": 1},
    ),
    "cosine": Case("y = sum[j](x[j]*z[j])/sqrt(sum[j](x[j]**2)*sum[j](z[j]**2))"),
    "cosine of three": Case(
        "y = sum[j](x[j]*z[j]*w[j])/sqrt(sum[j](x[j]**2)*sum[j](z[j]**2)*sum[j](w[j]**2))",
    ),
    "shares of three": Case("y = sum[j]((x[j]/sum[j](x[j]))*(z[j]/sum[j](z[j]))*(w[j]/sum[j](w[j])))"),
    "moment of three": Case(f"{MEANS}y = mean[j]((x[j] - a)*(z[j] - b)*(w[j] - c))/sqrt({VX}*{VZ}*{VW})"),
    "moment of four": Case(f"{MEANS}y = mean[j]((x[j] - a)*(z[j] - b)*(w[j] - c)**2)/(sqrt({VX}*{VZ})*{VW})"),
    "co-skewness": Case(f"{MEANS}y = mean[j]((x[j] - a)**2*(z[j] - b))/({VX}*sqrt({VZ}))"),
    "co-kurtosis": Case(f"{MEANS}y = mean[j]((x[j] - a)**2*(z[j] - b)**2)/({VX}*{VZ})"),
    "weighted correlation": Case(
        f"{WEIGHTED}y = sum[j](w[j]*(x[j] - a)*(z[j] - b))/sqrt(sum[j](w[j]*(x[j] - a)**2)*sum[j](w[j]*(z[j] - b)**2))",
    ),
    "weighted slope": Case(
        f"{WEIGHTED}y = sum[j](w[j]*(x[j] - a)*(z[j] - b))/sum[j](w[j]*(x[j] - a)**2)", {"x": -1, "z": 1}
    ),
    "relative covariance": Case(f"{MEANS}y = {COV}/(a*b)"),
    "relative moment": Case(f"{MEANS}y = mean[j]((x[j] - a)*(z[j] - b)*(w[j] - c))/(a*b*c)"),
    "correlations": Case(f"{MEANS}y = {COV}/sqrt({VX}*{VZ}) + mean[j]((w[j] - c)*(z[j] - b))/sqrt({VW}*{VZ})"),
    "rows": Case(
        "A = mean[j](X[i,j]); B = mean[j](Z[i,j]); "
        "y = mean[j]((X[i,j] - A)*(Z[i,j] - B))/sqrt(mean[j]((X[i,j] - A)**2)*mean[j]((Z[i,j] - B)**2))"
    ),
    "a row and rows": Case(
        "A = mean[j](X[i,j]); b = mean[j](z[j]); y = mean[j]((X[i,j] - A)*(z[j] - b))/mean[j]((z[j] - b)**2)",
        {"X": 1, "z": -1},
    ),
}


class Drawn(NamedTuple):
    form: ra.Form
    plain: dict[str, np.ndarray]
    arrays: dict[str, np.ndarray]
    exponent: int  # of the result, which is that of plain data times 2**exponent
    dtype: Any


_forms: dict[str, ra.Form] = {}


def form_of(text: str, names: dict[str, str]) -> ra.Form:
    """The form of a text whose tensors have other names, and which binds those means alone that it reads."""
    *bindings, last = text.split("; ")
    bindings = [b for b in bindings if re.search(rf"\b{b[0]}\b", text.replace(b, ""))]
    text = re.sub(r"\b([xzwXZ])\[", lambda found: names[found[1]] + "[", "; ".join([*bindings, f"return {last}"]))
    if text not in _forms:
        _forms[text] = ra.derive_incremental(ra.parse(text), axis="j")
    return _forms[text]


def draw(name: str, names: dict[str, str], scales: dict[str, int], dtype: Any, seed: int) -> Drawn:
    """Tensors that are correlated, two standard deviations from 0: no result is worse conditioned than that."""
    case, rng = CASES[name], np.random.default_rng(seed)
    form = form_of(case.text, names)
    read = {t.name for t in form.spec.tensors}
    both, plain, arrays, exponent = rng.normal(size=LENGTH), {}, {}, 0
    for old, new in names.items():
        if new in read:
            shape = (2, LENGTH) if old in "XZ" else (LENGTH,)
            values = np.abs(2 + 0.6 * both + 0.6 * rng.normal(size=shape)) + 0.1
            plain[new] = values.astype(dtype)
            arrays[new] = np.ldexp(plain[new], scales[old])
            exponent += case.degrees.get(old, 0) * scales[old]
    return Drawn(form, plain, arrays, exponent, dtype)


def check(drawn: Drawn, got: Any, cuts: list[int], tree: list[int], message: str, times: int = 1) -> None:
    name = np.dtype(drawn.dtype).name
    true = np.asarray(ra.reference(drawn.form.spec, exact=True, **drawn.plain), float)
    bound = error_bounds(drawn.form.plan, drawn.form.spec, drawn.plain, cuts, tree, name)["y"] * times
    assert np.all(bound < times * 2000 * np.finfo(drawn.dtype).eps), bound  # says something
    assert_within(np.ldexp(np.asarray(got, float), -drawn.exponent), true, bound, message, name)


@st.composite
def drawing(draw_: Any) -> tuple[Drawn, str]:
    name = draw_(st.sampled_from(sorted(CASES)))
    names = dict(zip("xzwXZ", draw_(st.permutations(NAMES)), strict=False))
    dtype = draw_(st.sampled_from([np.float64, np.float32]))
    most, of_result = RANGE[dtype]
    near = st.one_of(st.integers(-most, most), st.sampled_from([-most, most, most - 20, 20 - most]))
    scales = {old: draw_(near) for old in "xzwXZ"}
    if draw_(st.booleans()):
        scales = dict.fromkeys(scales, scales["x"])
    if abs(sum(d * scales[t] for t, d in CASES[name].degrees.items())) > of_result:
        scales = dict.fromkeys(scales, scales["x"])
    return draw(name, names, scales, dtype, draw_(st.integers(0, 5))), f"{name} {names} {scales}"


@examples(100, phases=(Phase.explicit, Phase.generate))
@given(drawing())
def test_no_name_and_no_scale_changes_what_merges_make(found: tuple[Drawn, str]) -> None:
    drawn, message = found
    with np.errstate(all="ignore"):
        for cuts, tree in TREES:
            check(drawn, running.merged(drawn.form, drawn.arrays, cuts, tree)["y"], cuts, tree, message)
        cuts = [0, 4, 4, 9]
        check(drawn, running.streamed(drawn.form, drawn.arrays, cuts)["y"], cuts, [0, 0], message)
        check(drawn, drawn.form.compile("numpy")(**drawn.arrays), [0, LENGTH], [], message)


@pytest.mark.parametrize("name", CASES)
def test_kernels_compute_them(name: str) -> None:
    """Threads of a warp or a block have 9 elements in parts of one, which merge in a tree."""
    rng = Random(name)
    for dtype in (np.float32, np.float64):
        most, of_result = RANGE[dtype]
        for seed in range(2):
            names = dict(zip("xzwXZ", rng.sample(NAMES, 5), strict=True))
            scale = rng.choice([-most, most - 16, 16 - most, most])
            scales = {t: scale + rng.randrange(-8, 9) for t in "xzwXZ"}
            drawn = draw(name, names, scales, dtype, seed)
            cuts, tree = list(range(LENGTH + 1)), [0] * (LENGTH - 1)
            with np.errstate(all="ignore"):
                got = drawn.form.compile("cpu")(**drawn.arrays)
                check(drawn, got, [0, LENGTH], [], f"{names} {scales}")
                if dtype == np.float32:
                    for schedule in ("block", "warp"):
                        got = next(iter(simulated(drawn.form, drawn.arrays, schedule)[0].values()))
                        check(drawn, got, cuts, tree, f"{schedule} {names} {scales}")


def of_ranks(drawn: Drawn, cuts: list[int]) -> Any:
    """The result of the kernels of GPUs that join the states of ranks, by emulation."""
    specs = RankSpecs(drawn.form)
    fold = ra.derive_incremental(specs.fold, drawn.form.plan.axis)
    merge = ra.derive_incremental(specs.merge, specs.rank)
    states = []
    for a, b in pairwise(cuts):
        part = {n: np.ascontiguousarray(x[..., a:b]) for n, x in drawn.arrays.items()}
        states.append(simulated(fold, part)[0] | {"part_n": np.array(b - a, drawn.dtype)})
    held = {n: np.stack([s[n] for s in states]) for n in states[0]}
    return simulated(merge, {d.name: held[d.name] for d in specs.merge.tensors}, deterministic=True)[0]["y"]


@pytest.mark.parametrize("name", CASES)
def test_ranks_join_them(name: str) -> None:
    """Their units are no powers of 2: dividing by one is a rounding more, on each rank and where states are merged."""
    rng = Random(name)
    for seed in range(2):
        names = dict(zip("xzwXZ", rng.sample(NAMES, 5), strict=True))
        scales = {t: rng.randrange(-8, 9) for t in "xzwXZ"}
        drawn = draw(name, names, scales, np.float32, seed)
        with np.errstate(all="ignore"):
            got = of_ranks(drawn, [0, 2, 6, LENGTH])
        check(drawn, got, [0, 2, 6, LENGTH], [0, 0], f"{names} {scales}", times=4)
