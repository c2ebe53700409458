"""Collectives by compiled kernels: the fold, the gather and the merge of `RankSpecs`, here with kernels for the CPU.

On GPUs they are `tests/deep/kernels/gpu/test_gpu_collective.py`; the way through the ranks is the same.
"""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.adapters.ranks.channel import Channel
from redalg.adapters.ranks.device import DeviceCollective
from redalg.adapters.ranks.pieces import zigzag
from redalg.adapters.ranks.reduced import COUNTED, ReduceSpecs
from redalg.adapters.ranks.specs import RankSpecs, why_not
from tests.support.forms import form_of_text
from tests.support.gloo_ranks import on_ranks
from tests.support.rank_cases import CASES, arguments, checked, form_of_case, part
from tests.support.ranks import in_threads
from tests.support.simulated import run as simulated

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="PyTorch without torch.distributed")
OVER_GLOO = ("attention", "labels", "layer norm", "covariance")  # the others by emulation alone: deriving takes long
CUTS = {4: [0, 3, 4, 4, 40]}


def everything(rank: int, ranks: int) -> dict[tuple[str, str], list[dict[str, np.ndarray]]]:
    found: dict[tuple[str, str], list[dict[str, np.ndarray]]] = {}
    for name in OVER_GLOO:
        form, cuts = form_of_case(name), CUTS[ranks]
        for way in ("gather", "reduce"):
            made = DeviceCollective(form, Channel(None), "cpu", way)
            found[name, way] = []
            for seed in (0, 1, 1):
                mine = part(form, arguments(form, seed), cuts[rank], cuts[rank + 1])
                given = {n: torch.from_numpy(np.array(x)) if np.ndim(x) else x for n, x in mine.items()}
                result = made(start=(cuts[rank],), **given)
                result = result if isinstance(result, dict) else {next(iter(form.spec.outputs)): result}
                found[name, way].append({n: x.numpy().copy() for n, x in result.items()})
            assert made.choices[0].way == way
    found |= {("causal", way): [in_pieces(rank, ranks, way)] for way in ("gather", "reduce")}
    return found


def causal() -> tuple[ra.Form, dict[str, Any]]:
    form = ra.derive_incremental(ra.catalog["attention_causal"])
    return form, arguments(form, 6)


def in_pieces(rank: int, ranks: int, way: str) -> dict[str, np.ndarray]:
    """Causal attention over keys split from both ends."""
    form, arrays = causal()
    made = DeviceCollective(form, Channel(None), "cpu", way)
    mine = [part(form, arrays, a, b) for a, b in zigzag(40, rank, ranks)]
    given = {d.name: _joined(form, d, mine) for d in form.spec.tensors}
    return {"O": made(start=tuple(a for a, _ in zigzag(40, rank, ranks)), **given).numpy().copy()}


def _joined(form: ra.Form, d: Any, mine: list[dict[str, Any]]) -> Any:
    if not d.axes:
        return mine[0][d.name]
    axis = form.plan.axis[0]
    at = d.axes.index(axis) if axis in d.axes else None
    return torch.from_numpy(mine[0][d.name] if at is None else np.concatenate([m[d.name] for m in mine], at))


@pytest.mark.parametrize("ranks", [4])
def test_every_rank_has_the_definition_and_repeats_its_bits(ranks: int) -> None:
    results = on_ranks(ranks, everything)
    for name, way in product(OVER_GLOO, ("gather", "reduce")):
        form = form_of_case(name)
        for k, seed in enumerate((0, 1, 1)):
            for rank, (a, b) in enumerate(pairwise(CUTS[ranks])):
                assert not isinstance(results[rank], str), results[rank]
                checked(form, arguments(form, seed), results[rank][name, way][k], a, b)
        for found in results:
            once, again = found[name, way][1:]
            assert way == "reduce" or all(once[n].tobytes() == again[n].tobytes() for n in once)
            for n in RankSpecs(form).merged:
                assert once[n].tobytes() == results[0][name, way][1][n].tobytes()

    form, arrays = causal()
    expected = ra.reference(form.spec, **arrays)
    for found, way in product(results, ("gather", "reduce")):
        np.testing.assert_allclose(found["causal", way][0]["O"], expected, rtol=1e-9)


@pytest.mark.parametrize("way", ["gather", "reduce"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite(value: float, way: str, monkeypatch: Any) -> None:
    """In one row of one rank; of the other rank, and of other rows, nothing is lost."""
    text = "return m = max[j](x[i,j]), l = min[j](x[i,j]), a = any[j](x[i,j] > 3)"
    for f in (form_of_text(text), form_of_case("loss")):
        arrays = arguments(f, 7)
        arrays["x"][1, :13] = value
        parts = [part(f, arrays, a, b) for a, b in pairwise([0, 13, 40])]

        def work(rank: Any, f: ra.Form = f, parts: Any = parts) -> Any:
            made = DeviceCollective(f, rank, "cpu", way)
            given = {n: torch.from_numpy(np.array(x)) for n, x in parts[rank.rank].items()}
            return {n: x.numpy().copy() for n, x in made(**given).items()}

        with np.errstate(all="ignore"):
            expected = ra.reference(f.spec, **arrays)
        for found in in_threads(2, work, monkeypatch):
            assert not isinstance(found, Exception), found
            for name, x in expected.items():
                np.testing.assert_allclose(found[name], x, rtol=1e-12, atol=1e-12)


def test_sums_of_integers_are_gathered(monkeypatch: Any) -> None:
    """What an all-reduce adds might leave int64 unseen."""
    form, x = form_of_text("return s = sum[j](x[i,j]), m = max[j](x[i,j])"), np.arange(24).reshape(2, 12)

    def work(rank: Any, way: str | None = None) -> Any:
        made = DeviceCollective(form, rank, "cpu", way)
        found = made(x=torch.from_numpy(x[:, 6 * rank.rank : 6 * rank.rank + 6].copy()))
        return made.choices[0], {n: v.numpy() for n, v in found.items()}

    for choice, found in in_threads(2, work, monkeypatch):
        assert (choice.way, choice.why) == ("gather", "a sum of integers may leave its dtype")
        assert found["s"].tolist() == x.sum(1).tolist() and found["m"].tolist() == [11, 23]
    for error in in_threads(2, lambda rank: work(rank, "reduce"), monkeypatch):
        assert isinstance(error, ra.RedalgError) and "sum of integers" in str(error)


def test_what_has_no_specs_says_why() -> None:
    form = ra.derive_incremental(ra.parse("return a = argmax[j](x[j])"))
    assert "neither a sum nor an extremum" in str(why_not(form))
    with pytest.raises(ra.RedalgError, match="neither a sum nor an extremum"):
        RankSpecs(form)


def test_fully_masked_ranks_are_as_if_they_were_not_there() -> None:
    form = form_of_case("loss")
    specs = RankSpecs(form)
    merge = ra.derive_incremental(specs.merge, specs.rank).compile("cpu")
    fold = ra.derive_incremental(specs.fold, form.plan.axis).compile("cpu")
    arrays = arguments(form, 3)
    masked = {**arrays, "x": np.full_like(arrays["x"], -np.inf)}
    states = [fold(**{d.name: a[d.name] for d in specs.fold.tensors}) for a in (masked, arrays)]
    held = {n: np.stack([s[n] for s in states]) for n in states[0]} | {"part_n": np.array([40.0, 40.0])}
    got = merge(**{d.name: held[d.name] for d in specs.merge.tensors})
    expected = ra.reference(
        form.spec,
        **{**arrays, "x": np.concatenate([masked["x"], arrays["x"]], axis=1)}
        | {"w": np.concatenate([arrays["w"], arrays["w"]])},
    )
    np.testing.assert_allclose(got["lse"], expected["lse"], rtol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_printed_gpu_kernels_give_the_definition_by_emulation(name: str) -> None:
    """The fold of every rank, and the merge of states that lie in the bytes of all ranks, as they are gathered."""
    form, cuts = form_of_case(name), [0, 13, 40]
    specs, arrays = RankSpecs(form), arguments(form, 4, np.float32)
    fold = ra.derive_incremental(specs.fold, form.plan.axis)
    merge = ra.derive_incremental(specs.merge, specs.rank)
    parts = [part(form, arrays, a, b) for a, b in pairwise(cuts)]
    parts = [{n: np.ascontiguousarray(x) if np.ndim(x) else x for n, x in p.items()} for p in parts]
    for p, a in zip(parts, cuts, strict=False):
        p["part_start"] = a
    states = [simulated(fold, {d.name: p[d.name] for d in specs.fold.tensors})[0] for p in parts]
    held = {n: _strided([s[n] for s in states]) for n in states[0]}
    held["part_n"] = _strided([np.array(b - a, np.float32) for a, b in pairwise(cuts)])
    given = {**arrays, **held}
    found = simulated(merge, {d.name: given[d.name] for d in specs.merge.tensors}, deterministic=True)[0]
    for mine, (a, b) in zip(parts, pairwise(cuts), strict=True):
        results = {o: found[o] for o in specs.merged}
        if specs.kept:
            own = {**mine, **found}
            apply = ra.derive_incremental(specs.apply)
            results |= simulated(apply, {d.name: own[d.name] for d in specs.apply.tensors})[0]
        checked(form, arrays, results, a, b, 3e-7)


@pytest.mark.parametrize("name", CASES)
def test_printed_gpu_kernels_of_two_all_reduces_give_the_definition_by_emulation(name: str) -> None:
    """With a part of nothing; MAX drops NaN, as a backend may."""
    form, cuts = form_of_case(name), [0, 0, 13, 40]
    specs, arrays = ReduceSpecs(form), arguments(form, 5, np.float32)
    held = []
    for a, b in pairwise(cuts):
        p = {n: np.ascontiguousarray(x) if np.ndim(x) else x for n, x in part(form, arrays, a, b).items()}
        held.append(_folded(specs, p, a, b - a))
    if specs.first is not None:
        _all_reduced(specs.first, held)
    for h in held:
        h[COUNTED] = np.array(cuts[-1], np.float32)
    if specs.second is not None:
        _all_reduced(specs.second, held)
    for h, (a, b) in list(zip(held, pairwise(cuts), strict=True))[1:]:
        found = simulated(ra.derive_incremental(specs.merge), {d.name: h[d.name] for d in specs.merge.tensors})[0]
        results = {o: found[o] for o in specs.merged}
        if specs.kept:
            own = {**h, **found}
            results |= simulated(
                ra.derive_incremental(specs.apply), {d.name: own[d.name] for d in specs.apply.tensors}
            )[0]
        checked(form, arrays, results, a, b, 3e-7)


def _folded(specs: RankSpecs, mine: dict[str, Any], start: int, length: int) -> dict[str, Any]:
    """A rank's arrays and the parts of its state, by the printed kernel, or those of no element."""
    held = {**mine, "part_start": start, "part_n": np.array(length, np.float32)}
    fold = ra.derive_incremental(specs.fold, specs.form.plan.axis)
    if length:
        return held | simulated(fold, {d.name: held[d.name] for d in specs.fold.tensors})[0]
    whole = arguments(specs.form, 5, np.float32)
    sizes = {a: n for d in specs.form.spec.tensors if d.axes for a, n in zip(d.axes, whole[d.name].shape, strict=True)}
    ends = {"max": -np.inf, "min": np.inf, "any": False, "all": True}
    first = {x: ends[s.kind] for s in specs.p.slots for x in s.parts if s.kind in ends}
    first |= {a.name: 1.0 for a in specs.p.anchors if a.divides and a.name not in first}
    for name, axes in specs.parts.items():
        kind = bool if isinstance(first.get(name), bool) else np.float32
        held[specs.name(name)] = np.full([sizes[a] for a in axes], first.get(name, 0), kind)
    return held


def _all_reduced(spec: ra.Spec, held: list[dict[str, Any]]) -> None:
    """The outputs of all ranks joined, as in the buffers of an all-reduce."""
    form = ra.derive_incremental(spec)
    sent = [simulated(form, {d.name: h[d.name] for d in spec.tensors})[0] for h in held]
    for name in spec.outputs:
        join = np.fmax if name.startswith("ranks_max_") else np.add
        total = sent[0][name]
        for x in sent[1:]:
            total = join(total, x[name])
        for h in held:
            h[name] = total


def _strided(parts: list[np.ndarray]) -> np.ndarray:
    """Parts in rows that are longer than they are, as in a buffer that holds other parts beside them."""
    flat = [np.ravel(x) for x in parts]
    room = np.zeros((len(parts), -(-flat[0].size // 4) * 4 + 8), flat[0].dtype)
    room[:, : flat[0].size] = flat
    found = room[:, : flat[0].size].view()
    found.shape = (len(parts), *np.shape(parts[0]))  # refuses to copy
    return found
