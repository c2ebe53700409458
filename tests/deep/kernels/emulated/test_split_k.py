"""Split-K by emulation: parts of the terms by blocks of their own, and the kernel that adds them; and when it is
taken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.errors import RedalgError
from redalg.kernels.gemm import parts
from redalg.kernels.ir.layouts import View
from redalg.kernels.launch.planned import Planned
from redalg.kernels.launch.ptx import assemble, ptxas
from redalg.kernels.pipeline import plan
from redalg.kernels.schedule.target import H200
from redalg.numeric.casts import cast_array
from tests.support import forms
from tests.support.chain_cases import emulated

FEW = replace(H200, multiprocessors=6)
GRAM = "return G = sum[t](X[t,a]*X[t,b])"
WEIGHTS = "return W = sum[t](X[t,a]*Y[t,b])"
ROWS = "return y = sum[t](x[a,t]*w[b,t])"
EPILOGUE = "s = sum[t](x[a,t]*w[b,t]); return z = relu(s*r[a] + c[b]), s = s/2"
GATE = "return h = silu(sum[t](x[a,t]*w[t,b]))*sum[t](x[a,t]*v[t,b])"
BATCHED = "return y = sum[t](x[p,a,t]*w[p,t,b])"
BOTH = "return y = sum[t](x[a,c,t]*w[t,b])"
HOSTILE = "return partial = sum[t](part[t,piece]*term[t,b]) + chunk[b]"


def form_of(text: str) -> Any:
    return forms.form_of_text(text, "t", 2)


def planned(text: str, sizes: Mapping[str, int], target: Any = FEW, kind: str = "bfloat16", **options: Any) -> Planned:
    form = form_of(text)
    views = {t.name: View.contiguous(tuple(sizes[a] for a in t.axes)) for t in form.spec.tensors}
    return plan(form, dict.fromkeys(views, kind), views, target, schedule="tensor", **options)


def drawn(text: str, sizes: Mapping[str, int], kind: str) -> dict[str, np.ndarray]:
    """Numbers of the format; a tensor that is read along two axes is one array."""
    rng, found = np.random.default_rng(sum(sizes.values())), dict[str, np.ndarray]()
    for t in form_of(text).spec.tensors:
        name = t.array or t.name
        if name not in found:
            found[name] = np.asarray(cast_array(rng.standard_normal([sizes[a] for a in t.axes]), kind), np.float64)
        found[t.name] = found[name]
    return found


RUNS = {
    "gram": (GRAM, {"t": 1000, "a": 64, "b": 64}),
    "gram of odd columns": (GRAM, {"t": 1003, "a": 21, "b": 21}),
    "weights": (WEIGHTS, {"t": 1100, "a": 72, "b": 136}),
    "rows": (ROWS, {"t": 1096, "a": 33, "b": 40}),
    "epilogue": (EPILOGUE, {"t": 1096, "a": 33, "b": 37}),
    "gate": (GATE, {"t": 1096, "a": 66, "b": 72}),
    "batched": (BATCHED, {"t": 1096, "a": 33, "b": 40, "p": 2}),
    "several rows": (BOTH, {"t": 1096, "a": 7, "c": 5, "b": 40}),
    "pairs": (WEIGHTS, {"t": 1600, "a": 200, "b": 64}),
    "hostile names": (HOSTILE, {"t": 1100, "piece": 40, "b": 48}),
}


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Terms are shared out, however few there are."""
    monkeypatch.setattr(parts, "GAIN", 1e9)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", RUNS)
def test_sums_of_parts_are_the_definition(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a rounding of the result and one of float32 for every addition of a run of terms."""
    text, sizes = RUNS[name]
    if name == "pairs":
        monkeypatch.setattr(parts.Splitting, "seconds", lambda self, plan: 9.0 - plan.sharing.blocks)
    made, given = planned(text, sizes, kind=kind), drawn(text, sizes, kind)
    reasons = " ".join(made.choice.reasons)
    assert "split-K" in reasons and made.before, reasons
    if name == "pairs":
        assert made.before[-1].geometry.cluster == 2
    found, names = emulated(made, given), {t.array or t.name for t in form_of(text).spec.tensors}
    expected = ra.reference(form_of(text).spec, **{n: given[n] for n in names})
    wanted = expected if isinstance(expected, dict) else {next(iter(form_of(text).spec.outputs)): expected}
    sizes_of_sums = ra.reference(form_of(text).spec, **{n: abs(given[n]) for n in names})
    large = sizes_of_sums if isinstance(sizes_of_sums, dict) else dict.fromkeys(wanted, sizes_of_sums)
    unit = {"bfloat16": 2.0**-8, "float16": 2.0**-11}[kind]
    for n, exact in wanted.items():
        bound = unit * abs(exact) + sizes["t"] * 2.0**-23 * (1 + large[n]) * (40 if name == "gate" else 1)
        assert found[n].shape == exact.shape and (abs(found[n] - exact) <= bound).all(), n


COVARIANCE = "m = mean[t](X[t,a]); n = mean[t](X[t,b]); return C = mean[t]((X[t,a] - m)*(X[t,b] - n))"
CROSS = "m = mean[t](X[t,a]); n = mean[t](Y[t,b]); return C = mean[t]((X[t,a] - m)*(Y[t,b] - n))"


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("text", [COVARIANCE, CROSS])
def test_both_operands_may_be_computed(text: str) -> None:
    """They are rounded once to the type of what they read, a relative 2^-9 of Σ|L·R| each. One is made where both are
    the same numbers."""
    sizes = {"t": 700, "a": 24, "b": 24}
    made, given = planned(text, sizes), drawn(text, sizes, "bfloat16")
    (product,) = made.before
    assert [n for n in ("left", "right") if n in product.scratch] == (
        ["left"] if text == COVARIANCE else ["left", "right"]
    )
    given = {n: np.asarray(cast_array(x + 3, "bfloat16"), np.float64) for n, x in given.items()}
    found = emulated(made, given)["C"]
    left, right = (x - x.mean(0) for x in (given["X"], given[[*given][-1]]))
    exact, size = left.T @ right / 700, abs(left).T @ abs(right) / 700
    assert (abs(found - exact) <= 2.0**-8 * abs(exact) + 2.1 * 2.0**-9 * size).all()


def test_weights_whose_sum_the_epilogue_reads() -> None:
    """A stage of no axes, kept by the kernel that makes the left operand."""
    text = (
        "tensors X[t,a], w[t] positive; s = sum[t](w[t]); m = sum[t](w[t]*X[t,a])/s; n = sum[t](w[t]*X[t,b])/s; "
        "return C = sum[t](w[t]*(X[t,a] - m)*(X[t,b] - n))/s"
    )
    sizes = {"t": 300, "a": 24, "b": 24}
    made, given = planned(text, sizes), drawn(text, sizes, "bfloat16")
    given["w"] = abs(given["w"])
    found, (w, x) = emulated(made, given)["C"], (given["w"], given["X"])
    y = x - (w[:, None] * x).sum(0) / w.sum()
    exact, size = ((f * w[:, None]).T @ g / w.sum() for f, g in ((y, y), (abs(y), abs(y))))
    assert (abs(found - exact) <= 2.0**-8 * abs(exact) + 2.1 * 2.0**-9 * size).all()


def test_what_is_computed_of_two_formats_says_no_type() -> None:
    form = form_of(CROSS)
    views = {t.name: View.contiguous((700, 24)) for t in form.spec.tensors}
    with pytest.raises(RedalgError, match="neither operand says what type of 16 bits"):
        plan(form, {"X": "bfloat16", "Y": "float16"}, views, FEW, schedule="tensor")


@pytest.mark.usefixtures("always")
def test_bits_do_not_depend_on_the_order_of_blocks() -> None:
    text, sizes = RUNS["weights"]
    made, given = planned(text, sizes), drawn(text, sizes, "bfloat16")
    first, second = (emulated(made, given, seed)["W"] for seed in (1, 2))
    assert np.array_equal(first, second)


@pytest.mark.usefixtures("always")
def test_infinite_and_missing_terms_of_one_part_reach_the_result() -> None:
    text, sizes = RUNS["rows"]
    made, given = planned(text, sizes), drawn(text, sizes, "bfloat16")
    x = given["x"].copy()
    x[3, 1090], x[5, 70], x[8, 0] = np.inf, np.nan, -np.inf
    found = emulated(made, {**given, "x": x})["y"]
    assert np.isinf(found[3]).all() and np.isnan(found[5]).all() and np.isinf(found[8]).all()
    assert np.isfinite(found[[0, 1, 2, 4, 6, 7, *range(9, 33)]]).all()


@pytest.mark.usefixtures("always")
def test_a_part_that_is_left_out_is_seen() -> None:
    """The mutant multiplies the first part's terms everywhere."""
    text, sizes = RUNS["rows"]
    made, given = planned(text, sizes), drawn(text, sizes, "bfloat16")
    (product,) = made.before
    source = product.module.source.replace("term = opaque(piece * ", "term = opaque(0 * ")
    assert source != product.module.source
    broken = replace(product, kernel=product.kernel._replace(module=replace(product.module, source=source)))
    with pytest.raises(RedalgError, match="a TMA box arrives at a block that has ended"):
        emulated(replace(made, before=(broken,)), given)  # the last part is shorter, and waits for less
    source = product.module.source.replace("term = opaque(piece * ", "term = opaque((piece | 1) * ")
    source = source.replace("CHUNKS - OWN_CHUNKS * piece", "CHUNKS - OWN_CHUNKS * (piece | 1)")
    broken = replace(product, kernel=product.kernel._replace(module=replace(product.module, source=source)))
    found = emulated(replace(made, before=(broken,)), given)["y"]
    assert abs(found - given["x"] @ given["w"].T).max() > 1


def test_when_terms_are_shared_out() -> None:
    """Few tiles and many terms; not where one order of additions or one launch is asked for, which is said."""

    def parted(text: str, sizes: Mapping[str, int], why: str = "", **options: Any) -> bool:
        reasons = " ".join(planned(text, sizes, H200, **options).choice.reasons)
        assert ("no split-K: " in reasons and why in reasons) is bool(why)
        return ", split-K: " in reasons

    few = {"t": 65536, "a": 512, "b": 512}
    assert parted(WEIGHTS, few) and parted(ROWS, few) and parted(GRAM, {"t": 1 << 20, "a": 128, "b": 128})
    assert not parted(WEIGHTS, {"t": 512, "a": 512, "b": 512}, "are predicted with it")
    assert not parted(WEIGHTS, {"t": 8192, "a": 4096, "b": 4096})
    assert not parted(ROWS, few, "one launch, or one order", deterministic=True)
    assert not parted(ROWS, few, "one launch, or one order", launches=1)
    assert not parted(ROWS, few, "sums of float8", kind="float8_e4m3fn")


@pytest.mark.skipif(ptxas() is None, reason="ptxas was not found")
@pytest.mark.parametrize("columns", [64, 128, 512, 1000])
def test_kernels_assemble_without_spills(columns: int) -> None:
    made = planned(WEIGHTS, {"t": 1 << 16, "a": columns, "b": columns}, H200)
    for kernel in (*made.before, made):
        found = assemble(kernel.module, (9, 0))
        assert found.spill_loads == found.spill_stores == 0 and not found.serialised
