"""States as bytes, dicts of arrays and record batches: equal bits after every trip, and nothing else is read."""

from __future__ import annotations

import io
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.encoding import container
from redalg.streaming import Accumulator
from tests.support import states
from tests.support.forms import form_of, form_of_text
from tests.support.places import ROOT
from tests.support.profiles import examples
from tests.support.sample import by_name

Trip = Callable[[Any, Accumulator], Accumulator]


def through_bytes(form: Any, a: Accumulator) -> Accumulator:
    return form.from_bytes(a.to_bytes())


def through_npz(form: Any, a: Accumulator) -> Accumulator:
    file = io.BytesIO()
    np.savez(file, **a.state_dict())
    file.seek(0)
    return form.from_state_dict(np.load(file, allow_pickle=False))


def through_torch(form: Any, a: Accumulator) -> Accumulator:
    torch = pytest.importorskip("torch")
    file = io.BytesIO()
    torch.save({name: torch.from_numpy(x) for name, x in a.state_dict().items()}, file)
    file.seek(0)
    return form.from_state_dict(torch.load(file, weights_only=True))


def through_arrow(form: Any, a: Accumulator) -> Accumulator:
    pa = pytest.importorskip("pyarrow")
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, (batch := a.to_arrow()).schema) as writer:
        writer.write_batch(batch)
    sink.seek(0)
    return form.from_arrow(pa.ipc.open_stream(sink).read_all())


TRIPS = [through_bytes, through_npz, through_torch, through_arrow]


def same(a: Any, b: Any) -> bool:
    """Equal to the last bit (whatever the bits of NaN)."""
    if isinstance(a, dict):
        return set(a) == set(b) and all(same(a[name], b[name]) for name in a)
    x, y = np.asarray(a), np.asarray(b)
    return (
        x.dtype == y.dtype
        and x.shape == y.shape
        and bool(np.all((x == y) & (np.signbit(x) == np.signbit(y)) | (x != x) & (y != y)))
    )


def drawn(name: str, n: int, seed: int = 0) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """A form, its bound tensors and those with the axis."""
    entry, form = ra.catalog.entry(name), form_of(name)
    first = form.plan.axis[0]
    arrays = entry.sample(seed, **{first: n})
    axes = {d.name: d.axes for d in form.spec.tensors}
    streamed = {key for key in arrays if first in axes[key]}
    return form, {k: x for k, x in arrays.items() if k not in streamed}, {k: arrays[k] for k in streamed}


def cut(form: Any, arrays: dict[str, Any], low: int, high: int) -> dict[str, Any]:
    axes = {d.name: d.axes for d in form.spec.tensors}
    at = {name: axes[name].index(form.plan.axis[0]) for name in arrays}
    return {name: np.asarray(x)[(slice(None),) * at[name] + (slice(low, high),)] for name, x in arrays.items()}


@by_name()
@examples(4)
@given(st.data())
def test_a_state_saved_at_every_step_has_the_bits_of_one_that_never_was(name: str, data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 9))
    form, fixed, arrays = drawn(name, n, data.draw(st.integers(0, 3)))
    if len(form.plan.axis) > 1:
        steps = [0, n]
    else:
        steps = [0, *sorted(data.draw(st.lists(st.integers(0, n), max_size=4))), n, n]  # an empty one, always
    deterministic = data.draw(st.booleans())
    saved, plain = [
        [
            form.accumulator(start=low if len(form.plan.axis) == 1 else 0, deterministic=deterministic, **fixed)
            for low in steps[:-1]
        ]
        for _ in range(2)
    ]
    for k, (low, high) in enumerate(zip(steps, steps[1:], strict=False)):
        middle = data.draw(st.integers(low, high)) if len(form.plan.axis) == 1 else low
        for a, b in ((low, middle), (middle, high)):
            saved[k].update(**cut(form, arrays, a, b))
            plain[k].update(**cut(form, arrays, a, b))
            saved[k] = data.draw(st.sampled_from([through_bytes, through_npz]))(form, saved[k])
    total, expected = saved[0], plain[0]
    for one, two in zip(saved[1:], plain[1:], strict=True):
        total, expected = through_bytes(form, total + one), expected + two
    assert total.covered == expected.covered and total.nbytes == expected.nbytes
    assert total.to_bytes() == expected.to_bytes()
    if any(not out.keeps_axis for out in form.plan.outputs):
        assert same(total.result(), expected.result())
    if any(out.keeps_axis for out in form.plan.outputs):
        assert same(total.apply(start=0, **arrays), expected.apply(start=0, **arrays))


@pytest.mark.parametrize("trip", TRIPS)
@pytest.mark.parametrize("case", states.CASES)
def test_every_way_keeps_every_bit(case: str, trip: Trip) -> None:
    name, make = states.CASES[case]
    a = make()
    b = trip(states.form(name), a)
    assert b.to_bytes() == a.to_bytes() and (b.covered, b.nbytes, b.count) == (a.covered, a.nbytes, a.count)
    if case != "two_passes":
        assert same(b.result(), a.result())


TWICE = {  # a product of two sums over one inner axis: numbers for pairs of places along it
    "averages": "u = mean[j](X[j,d]); return y = mean[j](sum[d](X[j,d]*u)**2)",
    "threes": "u = mean[j](X[j,d]); return y = mean[j](sum[d](X[j,d]*u)**3)",
    "two axes": "u = mean[j](W[j,d,e]); return y = mean[j](sum[d,e](W[j,d,e]*u)**2)",
    "anchors": "m = max[j](X[j,d]); return y = mean[j](var[d](exp(X[j,d] - m)))",
    "units": "n = norm[j](X[j,d]); return y = mean[j](sum[d](X[j,d]/n)**2)",
    "two passes": "u = mean[j](X[j,d]); v = mean[j](sum[d](X[j,d]*u)**2); return y = mean[j](abs(X[j,d] - v))",
}


@pytest.mark.parametrize("name, trip", [*((n, through_bytes) for n in TWICE), *(("averages", t) for t in TRIPS[1:])])
def test_states_with_two_indices_along_an_axis_are_read_again(name: str, trip: Trip) -> None:
    form = form_of_text(TWICE[name], "j", 2)
    x = np.random.default_rng(0).normal(size=(5, 3, 2)) if name == "two axes" else np.arange(15.0).reshape(5, 3) ** 0.5
    tensor = form.spec.tensors[0].name
    saved, plain = form.accumulator(), form.accumulator()
    for number in range(len(form.plan.passes)):
        for low, high in ((0, 2), (2, 2), (2, 5)):
            saved.update(**{tensor: x[low:high]})
            plain.update(**{tensor: x[low:high]})
            saved = trip(form, saved)
        if number < len(form.plan.passes) - 1:
            saved.next_pass()
            plain.next_pass()
            saved = trip(form, saved)
    assert same(saved.result(), plain.result())


@pytest.mark.parametrize("case", states.CASES)
def test_states_kept_in_files_are_read_for_ever(case: str) -> None:
    name, make = states.CASES[case]
    form = states.form(name)
    held = form.from_bytes((states.FOLDER / f"{case}.state").read_bytes())
    a = make()
    assert held.covered == a.covered and held.count == a.count
    if case == "two_passes":
        for one in (held, a):
            one.update(x=[6.0])
    assert same(held.result(), a.result())
    if case == "variance_float32":  # what was saved means what the definition says
        rows = np.array([[1, 2, 4, 8, 9], [3, 3, 3, 3, 3], [-1, 0, 5, 2, 2]], float)
        assert np.allclose(held.result(), rows.var(axis=1), rtol=1e-6)


def test_a_golden_file_is_there_for_every_case() -> None:
    assert {f"{case}.state" for case in states.CASES} == {path.name for path in states.FOLDER.iterdir()}


def test_another_process_goes_on_where_this_one_stopped() -> None:
    """The spec is declared in another order there, among other names."""
    rng = np.random.default_rng(1)
    w, x = rng.random(40), rng.normal(size=40)
    text = "return y = sum[j](w[j] * x[j]) / sum[j](w[j])"
    form = form_of_text(text)
    first, whole = form.accumulator(), form.accumulator()
    first.update(w=w[:13], x=x[:13])
    whole.update(w=w[:13], x=x[:13])
    whole.update(w=w[13:], x=x[13:])
    program = f"""
import sys, io, numpy as np, redalg as ra
ra.tensors("v[j] x[j] w[j]")
form = ra.derive_incremental(ra.parse({text!r}))
acc = form.from_bytes(bytes.fromhex(sys.stdin.readline()))
rest = np.array([float.fromhex(t) for t in sys.stdin.readline().split()]).reshape(2, -1)
acc.update(w=rest[0], x=rest[1])
print(acc.to_bytes().hex())
"""
    rest = " ".join(float(t).hex() for t in [*w[13:], *x[13:]])
    sent = f"{first.to_bytes().hex()}\n{rest}\n"
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    found = subprocess.run(
        [sys.executable, "-c", program],
        input=sent,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    back = form.from_bytes(bytes.fromhex(found.stdout))
    assert back.to_bytes() == whole.to_bytes()
    assert np.isclose(back.result(), np.average(x, weights=w))


def test_a_plan_of_two_passes_knows_which_one_it_is_in() -> None:
    form = states.form("two_passes")
    first = form.accumulator()
    first.update(x=[1.0, 2.0, 6.0])
    first = through_bytes(form, first)
    with pytest.raises(ra.RedalgError, match="pass 1 of 2"):
        first.result()
    first.next_pass()
    again = through_bytes(form, first)
    with pytest.raises(ra.RedalgError, match="saw 3 elements"):
        through_bytes(form, states.CASES["two_passes"][1]()).result()
    again.update(x=[1.0, 2.0, 6.0])
    assert through_bytes(form, again).result() == 2.0
    fresh = form.accumulator()
    with pytest.raises(ra.RedalgError, match="pass"):
        fresh.merge(again)


# --- + and sum -------------------------------------------------------------------------------------------------------


def test_sums_of_accumulators_are_new_ones() -> None:
    form = states.form("logsumexp")
    parts = [form.accumulator() for _ in range(3)]
    for part, chunk in zip(parts, ([1.0, 5.0], [], [2.0]), strict=True):
        part.update(x=chunk)
    total = sum(parts)
    assert isinstance(total, Accumulator) and total.count == 3 and [p.count for p in parts] == [2, 0, 1]
    assert np.isclose(total.result(), np.log(np.exp([1.0, 5.0, 2.0]).sum()), rtol=1e-15)
    assert parts[0].merge(parts[2]) is parts[0]
    for wrong in (1, 0.0, "a", None, False):
        with pytest.raises(TypeError):
            wrong + parts[0]
        with pytest.raises(TypeError):
            parts[0] + wrong
    with pytest.raises(ra.RedalgError, match="another form"):
        parts[0] + states.form("argmax").accumulator()


def test_what_was_merged_from_bytes_is_not_merged_twice() -> None:
    form = states.form("logsumexp")
    a, b = form.accumulator(start=0), form.accumulator(start=2)
    a.update(x=[1.0, 2.0])
    b.update(x=[3.0])
    blob = b.to_bytes()
    a.merge(form.from_bytes(blob))
    with pytest.raises(ra.RedalgError, match=r"both cover the positions \[2, 3\)"):
        through_bytes(form, a).merge(form.from_bytes(blob))


# --- refusals --------------------------------------------------------------------------------------------------------


def refused(form: Any, blob: Any, why: str) -> None:
    with pytest.raises(ra.RedalgError) as caught:
        form.from_bytes(blob)
    assert why in caught.value.why, caught.value
    assert caught.value.what and caught.value.where == "form.from_bytes" and caught.value.fix


def test_versions_and_digests_are_refused_with_a_reason() -> None:
    form, other = states.form("logsumexp"), states.form("argmax")
    blob = form.accumulator().to_bytes()
    for version, why in (((2, 0), "too new"), ((1, 1), "too new"), ((0, 9), "too old")):
        changed = blob[:8] + version[0].to_bytes(2, "little") + version[1].to_bytes(2, "little") + blob[12:]
        refused(form, changed, why)
    refused(other, blob, "digest")
    variance = states.form("variance")
    assert variance.lean is not None
    refused(variance.lean, variance.accumulator().to_bytes(), "another form of this spec")
    refused(form, pickle.dumps({}), "does not begin")
    refused(form, "text", "bytes")


@given(st.data())
def test_flipped_bits_and_cut_ends_are_refused(data: st.DataObject) -> None:
    case = data.draw(st.sampled_from(sorted(states.CASES)))
    form = states.form(states.CASES[case][0])
    blob = (states.FOLDER / f"{case}.state").read_bytes()
    at = data.draw(st.integers(0, 8 * len(blob) - 1))
    flipped = bytearray(blob)
    flipped[at // 8] ^= 1 << at % 8
    for bad in (bytes(flipped), blob[: at // 8], blob + b"\0", blob[at // 8 + 1 :], data.draw(st.binary(max_size=200))):
        with pytest.raises(ra.RedalgError):
            form.from_bytes(bad)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from(["skip", "float64", "float32", "bool", "object", "integer", "extended", "int"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["x", "i", "n", "level"]) | st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] * bool(path) + [found for key, inner in items for found in _paths(inner, (*path, key))]


@examples(200)
@given(st.data())
def test_a_forged_header_with_a_right_checksum_is_read_or_refused(data: st.DataObject) -> None:
    """Whoever forges a checksum gets a state of the form's own shapes, or a refusal."""
    case = data.draw(st.sampled_from(sorted(states.CASES)))
    form = states.form(states.CASES[case][0])
    blob = (states.FOLDER / f"{case}.state").read_bytes()
    size = int.from_bytes(blob[12:16], "little")
    header = json.loads(blob[16 : 16 + size])
    path = data.draw(st.sampled_from(_paths(header)))
    inside = header
    for key in path[:-1]:
        inside = inside[key]
    if data.draw(st.booleans()):
        del inside[path[-1]]
    else:
        inside[path[-1]] = data.draw(JSON)
    text = json.dumps(header).encode()
    body = blob[:12] + len(text).to_bytes(4, "little") + text + blob[16 + size : -16]
    try:
        found = form.from_bytes(container.with_digest(body, []))
    except ra.RedalgError:
        return
    again = form.from_bytes(found.to_bytes())
    assert again.to_bytes() == found.to_bytes() and again.covered == found.covered
    assert {name: x.shape for name, x in found.state.items()} == {name: x.shape for name, x in again.state.items()}


def forged(**changes: Any) -> bytes:
    header, arrays = container.unpacked((states.FOLDER / "variance.state").read_bytes(), "test")
    return container.packed({**header, **changes}, arrays)


@pytest.mark.parametrize(
    "blob",
    [
        forged(nulls="run this"),
        forged(intervals=[[0, 5], [5, 6]]),
        forged(intervals=[[0, 6]], stop=6),
        forged(states=[]),
        forged(sizes={"i": 2**62}),
        forged(sizes={"i": 3, "z": 1}),
        forged(dtypes={"x": ["object"]}),
        forged(dtypes={"x": ["complex128"]}),
        forged(nothing={"x": ["float32"]}),
        forged(origin=["os", "cpu"]),
        forged(**{"pass": 1}),
        forged(coded={"part/A_x": ["integer", [1, 3]]}),
        forged(coded={"nowhere": ["integer", [1, 3]]}),
        container.HEAD.pack(container.MAGIC, 1, 0, 2**32 - 1),
        container.with_digest(container.HEAD.pack(container.MAGIC, 1, 0, 200000) + b"[" * 200000, []),
        container.packed({}, {"a": np.zeros(3)}),
        container.with_digest(
            container.HEAD.pack(container.MAGIC, 1, 0, 43) + b'{"arrays":[["a","<f8",[999999999999999999]]]}'[:43], []
        ),
    ],
)
def test_forged_states_are_refused(blob: bytes) -> None:
    with pytest.raises(ra.RedalgError):
        states.form("variance").from_bytes(blob)


def test_damaged_dicts_and_batches_are_refused() -> None:
    form = states.form("variance")
    a = states.CASES["variance"][1]()
    good = a.state_dict()
    part = next(name for name in good if name.startswith("part/"))
    changed = good[part].copy()
    changed.flat[0] += 1
    for bad in (
        {**good, part: changed},
        {**good, part: good[part].astype(np.float32)},
        {**good, part: good[part][:0]},
        {**good, "more": good[part]},
        {name: x for name, x in good.items() if name != part},
        {**good, part: "text"},
        {**good, part: np.array([object()])},
        {**good, "redalg": good["redalg"][:-1]},
        {**good, "redalg": np.zeros(3)},
        {"redalg": np.zeros(0, np.uint8)},
        {},
        None,
    ):
        with pytest.raises(ra.RedalgError):
            form.from_state_dict(bad)
    pa = pytest.importorskip("pyarrow")
    batch = a.to_arrow()
    both = pa.Table.from_batches([batch, batch])
    assert form.from_arrow(both.slice(1, 1)).to_bytes() == a.to_bytes()
    for wrong in (
        both,
        batch.slice(0, 0),
        batch.select([part]),
        batch.drop_columns([part]),
        pa.table({"redalg": [b"x"]}),
        3,
    ):
        with pytest.raises(ra.RedalgError):
            form.from_arrow(wrong)
