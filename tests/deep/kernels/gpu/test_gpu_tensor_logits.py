"""Positions, lists of the largest, and extrema of logits on tensor cores, none of which are stored, beside float64.

Logits of small whole numbers are exact in every type, so that positions have to be those of the definition, ties
included; for others a value is held to the bound of a sum of products in float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import redalg as ra
from tests.support.tensor_cases import form_of

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")
LOGITS = "s = sum[d](h[i,d]*W[j,d]); "
SOFT = LOGITS + "m = max[j](s); p = exp(s - m)/sum[j](exp(s - m)); "
SPECS = {
    "argmax": LOGITS + "return x = argmax[j](s)",
    "argmin": LOGITS + "return x = argmin[j](s)",
    "of a multiple": LOGITS + "return x = argmax[j](s/8), m = max[j](s/8)",
    "with a bias": "tensors b[j]; " + LOGITS + "return x = argmax[j](s + b[j])",
    "two of the largest": LOGITS + "return v = topk[j:2:c](s).values, x = topk[j:2:c](s).indices",
    "three of the largest": LOGITS + "return v = topk[j:3:c](s).values, x = topk[j:3:c](s).indices",
    "eight of the largest": LOGITS + "return v = topk[j:8:c](s).values, x = topk[j:8:c](s).indices",
    "masked": "tensors seen[j] bool; " + LOGITS + "return x = argmax[j](where(seen[j], s, -oo))",
    "masked by row": "tensors seen[i,j] bool; " + LOGITS + "u = where(seen[i,j], s, -oo); "
    "return v = topk[j:3:c](u).values, x = topk[j:3:c](u).indices",
    "of a part": "tensors n integer; " + LOGITS + "u = where(index[j] < n, s, -oo); "
    "return v = topk[j:3:c](u).values, x = topk[j:3:c](u).indices",
    "of the end": "tensors n integer; " + LOGITS + "u = where(n <= index[j], s, -oo); "
    "return v = topk[j:3:c](u).values, x = topk[j:3:c](u).indices",
    "batches": "tensors h[b,i,d], W[b,j,d], seen[b,j] bool; s = sum[d](h[b,i,d]*W[b,j,d]); "
    "return x = argmax[j](where(seen[b,j], s, -oo))",
    "a maximum of some": "tensors seen[j] bool; " + LOGITS + "return y = max[j](where(seen[j], s, -oo))",
}
SWITCH = SOFT + "return gate = max[j](p), expert = argmax[j](p)"
ROUTER = SOFT + "v = topk[j:4:c](p).values; return g = v/sum[c](v), x = topk[j:4:c](p).indices"
GREEDY = SOFT + "return x = argmax[j](p), lse = log(sum[j](exp(s - m))) + m"
LENGTHS = [1, 2, 7, 63, 65, 127]


@pytest.fixture(scope="module", autouse=True)
def hopper() -> None:
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("tensor-core kernels are written for compute capability 9.0")


def drawn(text: str, j: int, i: int = 0, d: int = 64, spread: int = 2, seed: int = 1) -> dict[str, Any]:
    """Whole numbers for what is multiplied, few enough for many ties."""
    rng, spec = np.random.default_rng(seed), form_of(text).spec
    sizes = {"j": j, "d": d, "b": 2, "i": i or max(70, -(-(1 << 16) // (j * d)))}
    found: dict[str, Any] = {}
    for t in spec.tensors:
        shape = tuple(sizes[a] for a in t.axes)
        if not shape:
            found[t.name] = j // 2
        elif "bool" in t.domain:
            found[t.name] = rng.random(shape) < 0.6
        else:
            found[t.name] = rng.integers(-spread, spread + 1, shape).astype(np.float64)
    return found


def on_device(arrays: dict[str, Any], kind: str = "bfloat16") -> dict[str, Any]:
    given = {n: torch.as_tensor(x, device="cuda") if np.ndim(x) else x for n, x in arrays.items()}
    return {
        n: x.to(getattr(torch, kind)) if np.ndim(arrays[n]) and x.is_floating_point() else x for n, x in given.items()
    }


def found_by(text: str, arrays: dict[str, Any], kind: str = "bfloat16") -> dict[str, np.ndarray]:
    run = form_of(text).compile("cuda", schedule="tensor")
    found = run(**on_device(arrays, kind))
    found = found if isinstance(found, dict) else {next(iter(form_of(text).spec.outputs)): found}
    return {n: (x.double() if x.is_floating_point() else x).cpu().numpy() for n, x in found.items()}


def truth(text: str, arrays: dict[str, Any]) -> dict[str, np.ndarray]:
    true = ra.reference(form_of(text).spec, **arrays)
    return true if isinstance(true, dict) else {next(iter(form_of(text).spec.outputs)): true}


def exact(text: str, arrays: dict[str, Any], kind: str = "bfloat16") -> None:
    """Positions are those of the definition; values are its, rounded once to the type of the result."""
    found, true = found_by(text, arrays, kind), truth(text, arrays)
    for name, value in true.items():
        want = np.asarray(value)
        if want.dtype.kind == "f":
            want = torch.as_tensor(want).to(getattr(torch, kind)).double().numpy()
        np.testing.assert_array_equal(found[name], want, err_msg=name)


# --- exact logits ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SPECS)
def test_positions_and_values(name: str) -> None:
    exact(SPECS[name], drawn(SPECS[name], 1000))


@pytest.mark.parametrize("name", ["argmax", "batches", "three of the largest", "masked by row"])
def test_short_streams(name: str) -> None:
    for j in LENGTHS:
        exact(SPECS[name], drawn(SPECS[name], j))


@pytest.mark.parametrize("name", ["argmax", "three of the largest"])
def test_float16_and_long_sums(name: str) -> None:
    exact(SPECS[name], drawn(SPECS[name], 333), "float16")
    exact(SPECS[name], drawn(SPECS[name], 1500, 130, 520))


@pytest.mark.parametrize("name", ["argmax", "three of the largest"])
def test_splits_of_a_long_stream(name: str) -> None:
    arrays = drawn(SPECS[name], 20_011, 70)
    exact(SPECS[name], arrays)
    exact(SPECS[name], arrays | {"h": np.zeros_like(arrays["h"])})  # every logit is the same


@pytest.mark.parametrize("name", SPECS)
def test_rows_of_ties(name: str) -> None:
    arrays = drawn(SPECS[name], 1000)
    arrays["h"][..., :5, :] = 0
    arrays["W"][..., 300:310, :] = arrays["W"][..., 10:20, :]
    exact(SPECS[name], arrays)


@pytest.mark.parametrize("name", [n for n in SPECS if n != "with a bias"])
def test_nan_and_infinities(name: str) -> None:
    """One term is infinite or NaN in some columns of W; the rows' signs decide, and 0·∞ is NaN."""
    for seed, places in ((1, (5,)), (2, (5, 6, 299)), (3, range(300)), (4, (0, 255, 256, 999))):
        arrays = drawn(SPECS[name], 1000, seed=seed)
        arrays["W"][..., list(places), 3] = np.inf
        exact(SPECS[name], arrays)
        arrays["W"][..., list(places)[::2], 3] = -np.inf
        exact(SPECS[name], arrays)
        arrays["W"][..., list(places)[::3], 7] = np.nan
        exact(SPECS[name], arrays)
        arrays["h"][..., 3:9, :] = np.nan
        exact(SPECS[name], arrays)


@pytest.mark.parametrize("name", ["masked", "masked by row", "of a part", "of the end", "batches", "a maximum of some"])
def test_rows_that_see_little_or_nothing(name: str) -> None:
    arrays = drawn(SPECS[name], 1000)
    for count in (0, 1, 2):
        if "n" in arrays:
            exact(SPECS[name], arrays | {"n": 1000 - count if name == "of the end" else count})
            continue
        arrays["seen"][:] = False
        arrays["seen"][..., 290 : 290 + count] = True
        exact(SPECS[name], arrays)


# --- softmax ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("j", [64, 1000])
@pytest.mark.parametrize("text", [SWITCH, ROUTER, GREEDY], ids=["switch", "router", "greedy"])
def test_gates(text: str, j: int) -> None:
    """Whole logits: positions are exact. A weight is off by two exponentials and a sum of j of them, then rounded."""
    arrays = drawn(text, j, spread=1)
    found, true = found_by(text, arrays), truth(text, arrays)
    for name, value in true.items():
        want = np.asarray(value)
        if want.dtype.kind != "f":
            np.testing.assert_array_equal(found[name], want)
        else:
            most = (2.0**-8 + 2.0**-24 * (j + 200)) * np.abs(want) + 2.0**-24 * 64
            assert (np.abs(found[name] - want) <= most).all()


def test_the_gates_of_random_logits() -> None:
    """What is chosen is as large as the largest, within the rounding of a sum of products."""
    rng = np.random.default_rng(7)
    h, W = (torch.as_tensor(rng.standard_normal(s)).to(torch.bfloat16) for s in ((300, 256), (5000, 256)))
    logits = h.double().numpy() @ W.double().numpy().T
    off = 2.0**-24 * 272 * (np.abs(h.double().numpy()) @ np.abs(W.double().numpy()).T).max()
    run = form_of(SPECS["eight of the largest"]).compile("cuda", schedule="tensor")
    chosen = run(h=h.cuda(), W=W.cuda())["x"].cpu().numpy()
    assert all(len(set(row)) == 8 for row in chosen.tolist())
    values = np.take_along_axis(logits, chosen, 1)
    largest = -np.sort(-logits, 1)[:, :8]
    assert np.abs(values - largest).max() <= 2 * off


# --- the call --------------------------------------------------------------------------------------------------------


def test_every_call_gives_the_same_bits() -> None:
    rng = np.random.default_rng(3)
    h, W = (torch.as_tensor(rng.standard_normal(s)).to(torch.bfloat16).cuda() for s in ((200, 128), (9000, 128)))
    run = form_of(ROUTER).compile("cuda", schedule="tensor")
    first = run(h=h, W=W)
    assert "tensor cores" in run.explain()
    for _ in range(20):
        again = run(h=h, W=W)
        assert all(torch.equal(first[n], again[n]) for n in first)


def test_no_logits_are_stored() -> None:
    h, W = (torch.ones(n, 64, device="cuda", dtype=torch.bfloat16) for n in (2048, 8192))
    run = form_of(SPECS["argmax"]).compile("cuda", schedule="tensor")
    run(h=h, W=W)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run(h=h, W=W)
    torch.cuda.synchronize()
    assert torch.cuda.max_memory_allocated() - before < 2048 * 8192 * 2 / 16
