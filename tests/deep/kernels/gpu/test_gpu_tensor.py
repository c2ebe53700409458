"""Kernels for tensor cores on a GPU against the definition in float64, within bounds that are derived.

`tests/deep/kernels/emulated/test_tensor_kernels.py` runs the same printed kernels on the CPU, in all but the
instructions of
tensor cores.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.errors import RedalgError
from tests.deep.kernels.print.test_tensor_class import INSIDE
from tests.support.gpu_calls import replayed
from tests.support.tensor_cases import CLASS, OPTIMISTIC, form_of, outside

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")
KINDS = ("bfloat16", "float16")
UNIT = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-53}
UNIT |= {"tf32": 2.0**-10 * (1 + 2.0**-12), "float8_e4m3fn": 2.0**-4, "float8_e5m2": 2.0**-3}  # tf32: of both factors
LEAST = {"bfloat16": 2.0**-134, "float16": 2.0**-25, "float32": 2.0**-150, "float64": 0.0}  # half of the least number
LEAST |= {"tf32": 2.0**-126, "float8_e4m3fn": 2.0**-10, "float8_e5m2": 2.0**-17}
# Specs whose weights are not negative and vary continuously with the scores.
OWN = (
    "or within",
    "two masks",
    "scaled lanes",
    "output and lse",
    "keys are values",
    "values named as the terms",
    "scale of a row",
    "scale of head and of all",
    "bias of both",
    "relative bias",
    "shown the other way",
    "lse alone",
    "maximum",
    "minimum",
    "output and maximum",
    "no heads",
    "added mask",
    "documents",
    "documents, causal",
    "a prefix",
    "a prefix of each",
    "lengths",
    "lengths, causal",
)
LENGTHS = [(1, 7), (7, 1), (17, 63), (63, 65), (65, 127), (127, 130), (130, 17), (200, 333), (1000, 1000)]
LENGTHS += [(65, 4097), (4097, 63)]


@pytest.fixture(scope="module", autouse=True)
def hopper() -> None:
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("tensor-core kernels are written for compute capability 9.0")


# --- input -----------------------------------------------------------------------------------------------------------


def drawn(text: str, i: int, j: int, d: int = 64, e: int = 64, kind: str = "bfloat16", seed: int = 3) -> dict[str, Any]:
    """Tensors on the device for a spec of the catalog or a text; what is multiplied in 16 bits, the rest in float32."""
    spec = form_of(text).spec
    rng = np.random.default_rng(seed)
    rows = {"v": i, "s": j} if text == "splade" else {"i": i, "j": j}
    sizes = dict.fromkeys(spec.axes, 2) | {"d": d, "e": e} | rows
    found: dict[str, Any] = {}
    for t in spec.tensors:
        shape = tuple(sizes[a] for a in t.axes)
        if "bool" in t.domain:
            value: Any = rng.random(shape) < 0.6
        elif "integer" in t.domain:
            value = rng.integers(1, 40, shape)
        else:
            value = rng.standard_normal(shape)
            value = np.abs(value) + 0.1 if "positive" in t.domain or not t.axes else value
        if not t.axes:
            found[t.name] = value.item() if hasattr(value, "item") else value
            continue
        there = torch.from_numpy(np.ascontiguousarray(value)).cuda()
        real = getattr(torch, kind if t.name.isupper() else "float32")
        found[t.name] = there.to(real) if there.is_floating_point() else there
    return found


def host(x: Any) -> Any:
    if not hasattr(x, "is_floating_point"):
        return x
    return (x.double() if x.is_floating_point() else x).cpu().numpy()


def by_name(spec: Any, value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {next(iter(spec.outputs)): value}


# --- bounds ----------------------------------------------------------------------------------------------------------


def off_by(text: str, known: Mapping[str, Any], kind: str = "") -> float:
    """How far an exponent may be off: a score is a sum of d products, each step of which is off by at most 2^-23 of
    Σ|q k| ≤ |q||k| (tensor cores may cut off), and a few more roundings follow, of numbers that are no larger than what
    scales, biases and distances make of it. Rounding both factors to tf32 makes it off by 2^-10 of Σ|q k|, and a
    little."""
    first, second = ("H", "E") if text == "splade" else ("Q", "K")
    lengths = [np.nan_to_num(np.linalg.norm(known[n], axis=-1), posinf=0).max() for n in (first, second)]
    factor = 1.0
    for name, x in known.items():
        values = np.abs(np.asarray(x, float))
        if name not in "QKVHE" and np.asarray(x).dtype.kind == "f" and np.isfinite(values).any():
            factor *= 1 + values[np.isfinite(values)].max()
    distance = max(known[first].shape[-2], known[second].shape[-2]) if "index" in str(form_of(text).spec) else 0
    steps = 2.0**-23 * (known[first].shape[-1] + 16) + (UNIT[kind] if kind == "tf32" else 0)
    return float(steps * (lengths[0] * lengths[1] + distance) * factor)


def limits(text: str, known: Mapping[str, Any], kind: str, results: Mapping[str, str]) -> dict[str, Any]:
    """For every result, how far it may be from the definition: |Σ pV/l - true| ≤ (unit of 16 bits that weights are
    rounded to + exponents + exp2, sums and moves in float32)·Σ|p||V|/l, what vanishes below the least number of the
    type, and the rounding of the result. Weights of sums without columns are not rounded."""
    spec = form_of(text).spec
    true = by_name(spec, ra.reference(spec, **known))
    size = {n: np.abs(x) if n not in "QKHE" and np.asarray(x).dtype.kind == "f" else x for n, x in known.items()}
    if "V" in known:  # Σ|p||V|/l: the weights as they are, everything they are multiplied by without its sign
        size |= {n: x for n, x in known.items() if n not in ("V", "a", "c") or "a" not in known}
        size |= {n: np.abs(known[n]) for n in ("V", "a", "c") if n == "V" or n in known and "a" in known}
    largest = by_name(spec, ra.reference(spec, **size))
    if "V" not in known and "K" in known and "O" in spec.outputs:  # keys are values: no |V| without |K|
        largest = {"O": np.full_like(true["O"], np.abs(known["K"]).max())}
    off, stream = np.expm1(2 * off_by(text, known, kind)) / 2, known["E" if text == "splade" else "K"].shape[-2]
    stream = known["H"].shape[-2] if text == "splade" else stream
    found = {}
    for name, value in true.items():
        sums = 2.0**-24 * (stream + 64)
        if name == "O":
            values = np.nan_to_num(np.abs(known["V" if "V" in known else "K"]), nan=0, posinf=0)
            most = (UNIT[kind] + 2 * off + sums) * np.abs(largest[name]) + stream * LEAST[kind] * values.max()
            most = most + off * values.mean(-2, keepdims=True).max() if text == "attention_relu" else most
        else:
            most = 2 * off + sums * (1 + np.abs(value))
        unit = UNIT[results[name]]
        found[name] = most * (1 + unit) + unit * np.abs(value) + LEAST[results[name]]
    return found


def agree(text: str, found: Any, arrays: Mapping[str, Any], kind: str = "bfloat16") -> None:
    spec = form_of(text).spec
    known = {n: host(x) for n, x in arrays.items()}
    true, ours = by_name(spec, ra.reference(spec, **known)), by_name(spec, found)
    most = limits(text, known, kind, {n: str(x.dtype).removeprefix("torch.") for n, x in ours.items()})
    for name, value in ours.items():
        a, b = np.asarray(host(value)), np.asarray(true[name])
        assert a.shape == b.shape
        np.testing.assert_array_equal(np.isnan(a), np.isnan(b), err_msg=name)
        finite = np.isfinite(b)
        np.testing.assert_array_equal(a[~finite], b[~finite], err_msg=name)
        excess = np.abs(a - b)[finite] / np.broadcast_to(most[name], b.shape)[finite]
        assert excess.size == 0 or excess.max() <= 1, f"{name}: {excess.max():.3g} times the bound"


def run_of(text: str, schedule: str | None = "tensor") -> Any:
    return form_of(text).compile("cuda", schedule=schedule)


# --- every variant ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CLASS)
def test_the_catalog(name: str, kind: str, lengths: tuple[int, int]) -> None:
    if outside(name, kind):
        pytest.skip(outside(name, kind))
    arrays = drawn(name, *lengths, kind=kind)
    run = run_of(name)
    found = run(**arrays)
    assert "tensor cores" in run.explain()
    agree(name, found, arrays, kind)


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spread", [1, 64])
@pytest.mark.parametrize("name", OPTIMISTIC)
def test_anchors_that_stay(name: str, spread: int, kind: str, lengths: tuple[int, int]) -> None:
    """With scores 64 times as large most rows fail the test and are computed again."""
    arrays = drawn(name, *lengths, kind=kind)
    arrays["Q"] = arrays["Q"] * spread
    found, moves = run_of(name, "frozen_max")(**arrays), run_of(name)(**arrays)
    agree(name, found, arrays, kind)
    # The scores are the same bits, so that only what follows them differs.
    spec = form_of(name).spec
    for output, x in by_name(spec, found).items():
        a, b = host(x), host(by_name(spec, moves)[output])
        np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
        known = {n: host(v) for n, v in arrays.items()}
        scores = off_by(name, known) / (arrays["Q"].shape[-1] + 16) * 16
        largest = np.abs(known["V"]).max() if output == "O" else 1 + np.nanmax(np.abs(b))
        own = UNIT[str(x.dtype).removeprefix("torch.")] * np.nanmax(np.abs(b))
        most = (
            2 * UNIT[kind] + 2 * scores + 2.0**-23 * (lengths[1] + 64) + lengths[1] * LEAST[kind]
        ) * largest + 2 * own
        assert np.nanmax(np.abs(a - b), initial=0) <= most


def test_rows_whose_later_blocks_overflow_are_computed_again() -> None:
    """The stream is walked from its end: its first elements come last, and are far above the anchor."""
    for kind in KINDS:
        arrays = drawn("attention", 200, 600, kind=kind)
        arrays["Q"], arrays["K"] = arrays["Q"].abs(), arrays["K"] / 16
        arrays["K"][:, 3], arrays["K"][:, 5] = 8, 7.9375
        agree("attention", run_of("attention", "frozen_max")(**arrays), arrays, kind)
        arrays["K"][:, 3:6] = 0.125  # and weights between 2^15 and 65,504, or just above, for float16
        for height in (0.15, 0.2, 0.25, 0.3):
            arrays["K"][:, 3] = height
            agree("attention", run_of("attention", "frozen_max")(**arrays), arrays, kind)


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("lengths", [(1, 7), (65, 127), (200, 333), (63, 4097), (1000, 1)], ids=str)
def test_specs_of_their_own(name: str, lengths: tuple[int, int]) -> None:
    arrays = drawn(INSIDE[name], *lengths)
    agree(INSIDE[name], run_of(INSIDE[name])(**arrays), arrays)


@pytest.mark.parametrize("heads", [(8, 8), (40, 24), (80, 80), (96, 96), (128, 128), (192, 128), (256, 256)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["attention_causal", "attention_bias", "attention_with_lse"])
def test_lengths_of_heads(name: str, kind: str, heads: tuple[int, int]) -> None:
    for lengths in ((130, 200), (300, 517)):
        arrays = drawn(name, *lengths, *heads, kind=kind)
        agree(name, run_of(name)(**arrays), arrays, kind)


# --- special values --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [-1.0, -0.125, 0.0, -0.0, 2.0])
@pytest.mark.parametrize("head", [64, 256])
@pytest.mark.parametrize("name", ["attention_scaled", "attention_causal", "attention_alibi"])
def test_scales_of_either_sign(name: str, head: int, scale: float) -> None:
    arrays = drawn(name, 130, 200, head, head) | {"scale": scale}
    agree(name, run_of(name)(**arrays), arrays)
    if scale == 0 and name == "attention_scaled":  # all weights are equal
        found = host(run_of(name)(**arrays))
        mean = host(arrays["V"]).mean(1, keepdims=True)
        np.testing.assert_allclose(found, np.broadcast_to(mean, found.shape), rtol=2.0**-8, atol=2.0**-9)


def infinite_scores_and_nan(schedule: str) -> None:
    arrays = drawn("attention_bias", 130, 300)
    bias = arrays["bias"]
    bias[:, 0], bias[:, 1, :299], bias[:, 2, 5] = -np.inf, -np.inf, np.inf
    bias[1, 3, 7], bias[:, 4, 128:] = np.nan, -np.inf
    arrays["Q"][0, 6] = np.nan
    arrays["V"][1, 9, 11] = np.nan
    agree("attention_bias", run_of("attention_bias", schedule)(**arrays), arrays)
    arrays = drawn("attention", 130, 300)
    arrays["K"][0, 17] = np.nan
    found = run_of("attention", schedule)(**arrays)
    assert bool(torch.isnan(found[0]).all()) and not bool(torch.isnan(found[1]).any())


def rows_without_any_element(schedule: str) -> None:
    arrays = drawn("attention_masked", 130, 300)
    arrays["mask"][:] = False
    assert bool((run_of("attention_masked", schedule)(**arrays) == 0).all())
    arrays = drawn("attention_window", 300, 130)  # rows far behind the end see nothing
    agree("attention_window", run_of("attention_window", schedule)(**arrays), arrays)
    for window in (0, -5, 1, 37, 10_000):
        arrays["window"] = window
        agree("attention_window", run_of("attention_window", schedule)(**arrays), arrays)


@pytest.mark.parametrize("schedule", ["tensor", "frozen_max"])
def test_infinite_scores_and_nan(schedule: str) -> None:
    infinite_scores_and_nan(schedule)


def test_rows_without_any_element() -> None:
    rows_without_any_element("tensor")


# --- the call --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["attention", "attention_causal", "attention_with_lse"])
def test_strided_operands(name: str) -> None:
    """Heads inside: tensors (n, h, d) seen as (h, n, d); parts of longer rows; one head of many."""
    arrays = drawn(name, 200, 333)
    turned = {n: x.transpose(0, 1).contiguous().transpose(0, 1) if n in "QKV" else x for n, x in arrays.items()}
    wide = {n: torch.cat([x, x], -1)[..., :64] if n in "QKV" else x for n, x in arrays.items()}
    part = {n: torch.cat([x, x, x])[2:4] if n in "QKV" else x for n, x in arrays.items()}
    assert turned["Q"].stride() != arrays["Q"].stride() != wide["Q"].stride()
    plain = by_name(form_of(name).spec, run_of(name)(**arrays))
    for given in (turned, wide):
        found = by_name(form_of(name).spec, run_of(name)(**given))
        assert all(torch.equal(found[n], plain[n]) for n in plain)
    agree(name, run_of(name)(**part), part)


@pytest.mark.parametrize("schedule", ["tensor", "frozen_max"])
@pytest.mark.parametrize("name", ["attention_causal", "attention_bias", "attention_with_lse"])
def test_results_have_the_same_bits_every_time(name: str, schedule: str) -> None:
    arrays = drawn(name, 517, 700)
    run = run_of(name, schedule)
    first = by_name(form_of(name).spec, run(**arrays))
    for _ in range(20):
        again = by_name(form_of(name).spec, run(**arrays))
        assert all(torch.equal(first[n], again[n]) for n in first)


def test_results_are_written_where_they_are_asked_for() -> None:
    arrays = drawn("attention_causal", 130, 200)
    run = run_of("attention_causal")
    true = run(**arrays)
    room = torch.full((2 * 130 * 64 + 64,), 7.0, dtype=torch.bfloat16, device="cuda")
    out = room[32:-32].view(2, 130, 64)
    assert run(**arrays, out=out) is out and torch.equal(out, true)
    assert bool((room[:32] == 7).all()) and bool((room[-32:] == 7).all())
    with pytest.raises(RedalgError) as error:
        run(**arrays, out=room[1:-63].view(2, 130, 64))
    four(error.value)
    arrays = drawn("attention_with_lse", 130, 200)
    given = {"O": torch.empty_like(arrays["Q"]), "lse": torch.empty(2, 130, dtype=torch.bfloat16, device="cuda")}
    found = run_of("attention_with_lse")(**arrays, out=given)
    assert all(found[n] is given[n] for n in given)
    agree("attention_with_lse", found, arrays)


def test_neighbours_of_the_operands_are_not_read() -> None:
    """What lies beyond the tensors is NaN; nothing of it is seen."""
    for name in ("attention_bias", "attention_masked", "attention_alibi"):
        arrays = drawn(name, 130, 197)
        padded = {}
        for n, x in arrays.items():
            if not hasattr(x, "is_floating_point") or not x.is_floating_point():
                padded[n] = x
                continue
            room = torch.full((x.numel() + 4096,), float("nan"), dtype=x.dtype, device="cuda")
            room[2048:-2048] = x.reshape(-1)
            padded[n] = room[2048:-2048].view(x.shape)
        found = run_of(name)(**padded)
        assert torch.equal(found, run_of(name)(**arrays))
        agree(name, found, arrays)


def test_streams_and_graphs() -> None:
    for schedule in ("tensor", "frozen_max"):
        arrays = drawn("attention_causal", 130, 200)
        agree("attention_causal", replayed(run_of("attention_causal", schedule), arrays, "Q", -1), arrays)


@pytest.mark.parametrize("lengths", [(130, 200), (2, 5000)], ids=["tiles", "splits"])
def test_a_captured_graph_outlives_its_run(lengths: tuple[int, int]) -> None:
    """What a run leaves behind is collected in the middle of the capture of another, which goes on."""
    run, other, arrays = run_of("attention"), run_of("attention", None), drawn("attention", *lengths)
    plain, expected = run(**arrays), other(**arrays)
    first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(first):
        early = run(**arrays)
    with torch.cuda.graph(second):
        del run
        gc.collect()
        late = other(**arrays)
    filled = [torch.full((1 << 20,), 255, dtype=torch.uint8, device="cuda") for _ in range(64)]
    early.zero_(), late.zero_(), first.replay(), second.replay()
    torch.cuda.synchronize()
    assert torch.equal(early, plain) and torch.equal(late, expected) and all(int(x[-1]) == 255 for x in filled)


# --- refusals --------------------------------------------------------------------------------------------------------


def four(error: RedalgError) -> None:
    assert error.what and error.where and error.why and error.fix


def misaligned(name: str) -> dict[str, Any]:
    arrays = drawn(name, 130, 200)
    room = torch.empty(2, 130, 65, dtype=torch.bfloat16, device="cuda")
    room[..., :64] = arrays["Q"]
    return arrays | {"Q": room[..., :64]}


REFUSED: dict[str, tuple[str, str, Callable[[], Mapping[str, Any]], str]] = {
    "float32": (
        "attention",
        "tensor",
        lambda: {n: x.float() for n, x in drawn("attention", 130, 200).items()},
        "float32",
    ),
    "rows not aligned": ("attention", "tensor", lambda: misaligned("attention"), "16"),
    "heads too long": ("attention", "tensor", lambda: drawn("attention", 64, 64, 64, 320), "320 columns"),
    "no matrix": ("attention_cosine", "tensor", lambda: drawn("attention_cosine", 130, 200), "sums over one axis"),
    "an anchor that is seen": ("attention_masked", "frozen_max", lambda: drawn("attention_masked", 130, 200), "anchor"),
    "no anchor": ("attention_sigmoid", "frozen_max", lambda: drawn("attention_sigmoid", 130, 200), "anchor"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_it_does_not_fit_is_refused_by_name_and_computed_otherwise(name: str) -> None:
    spec, schedule, make, word = REFUSED[name]
    arrays = make()
    with pytest.raises(RedalgError) as error:
        run_of(spec, schedule)(**arrays)
    four(error.value)
    assert schedule in error.value.what and word in error.value.why
    found = host(run_of(spec, None)(**arrays))  # no schedule asked for: another kernel
    true = ra.reference(form_of(spec).spec, **{n: host(x) for n, x in arrays.items()})
    np.testing.assert_allclose(found, true, rtol=2e-2, atol=2e-2 * np.abs(true).max())
