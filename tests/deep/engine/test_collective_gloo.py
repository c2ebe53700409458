"""`form.collective` over gloo: 2, 3 and 4 processes against the definition on the whole; errors, a rank that dies."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.errors import RedalgError
from tests.support.gloo_ranks import on_ranks

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="PyTorch without torch.distributed")

CUTS = {2: [0, 0, 31], 3: [0, 7, 7, 31], 4: [0, 1, 20, 20, 31]}
LOSS = """
m = max[j](x[i,j]); l = m + log(sum[j](exp(x[i,j] - m)));
return loss = l - sum[j](where(index[j] == t[i], x[i,j], 0))
"""
NORM = "u = mean[j](x[i,j]); v = mean[j]((x[i,j] - u)**2); return y = (x[i,j] - u)/sqrt(v + 1/100), v = v"


def _specs(ranks: int) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Decoding with any number of ranks, each of the others with one: deriving is what takes time."""
    names = {
        2: ("decoding", "first"),
        3: ("decoding", "vocabulary", "variance of rows"),
        4: ("decoding", "norm", "deviation"),
    }
    return {name: case for name, case in _cases().items() if name in names[ranks]}


def _cases() -> dict[str, tuple[Any, dict[str, Any]]]:
    rng = np.random.default_rng(5)
    normal = rng.normal
    attention = ra.catalog["attention"]
    return {
        "decoding": (
            attention,
            {"Q": normal(size=(2, 1, 4)), "K": normal(size=(2, 31, 4)), "V": normal(size=(2, 31, 3))},
        ),
        "vocabulary": (ra.parse(LOSS), {"x": normal(size=(3, 31)) * 9, "t": np.array([0, 30, 8])}),
        "norm": (ra.parse(NORM), {"x": normal(size=(2, 31)) + 1e4}),
        "variance of rows": (ra.parse("return v = var[i](x[i,j])"), {"x": normal(size=(31, 4)) + 50}),
        "first": (
            ra.parse("return p = argmax[j](x[i,j]), k = topk[j:4](x[i,j]).indices"),
            {"x": rng.integers(0, 3, (2, 31))},
        ),
        "deviation": (
            ra.parse("u = mean[j](x[i,j]); return y = mean[j](abs(x[i,j] - u)), z = x[i,j] - u"),
            {"x": normal(size=(2, 31)).astype(np.float32)},
        ),
    }


def _along(spec: Any, axis: str, arrays: dict[str, Any], a: int, b: int) -> dict[str, Any]:
    axes = {d.name: d.axes for d in spec.tensors}
    found = {}
    for name, x in arrays.items():
        at = (slice(None),) * axes[name].index(axis) + (slice(a, b),) if axis in axes[name] else ()
        found[name] = x[at]
    return found


def everything(rank: int, ranks: int) -> dict[str, list[Any]]:
    """Each spec by the model's choice and twice by the gather: results, and what was explained."""
    found = {}
    cuts = CUTS[ranks]
    for name, (spec, arrays) in _specs(ranks).items():
        form = ra.derive_incremental(spec, max_passes=2)
        mine = _along(spec, form.plan.axis[0], arrays, cuts[rank], cuts[rank + 1])
        given = {n: torch.from_numpy(np.array(x)) for n, x in mine.items()}
        made, again = form.collective(), form.collective(deterministic=True)
        results = [made(**given), again(**given), again(**given)]
        kinds = {type(x).__name__ for r in results for x in (r.values() if isinstance(r, dict) else [r])}
        assert kinds == {"Tensor"}
        plain = [{n: x.numpy() for n, x in r.items()} if isinstance(r, dict) else r.numpy() for r in results]
        found[name] = [*plain, made.explain()]
        if name in ("decoding", "vocabulary", "norm", "variance of rows"):
            found[name].append(_plain(form.collective(way="reduce")(**given)))
    return found


def _plain(result: Any) -> Any:
    return {n: x.numpy() for n, x in result.items()} if isinstance(result, dict) else result.numpy()


@pytest.mark.parametrize("ranks", CUTS)
def test_parts_of_processes_give_the_definition_on_the_whole(ranks: int) -> None:
    found, cuts = on_ranks(ranks, everything), CUTS[ranks]
    for got in found:
        assert isinstance(got, dict), got
    for name, (spec, arrays) in _specs(ranks).items():
        whole = ra.reference(spec, **arrays)
        wanted = whole if isinstance(whole, dict) else {next(iter(spec.outputs)): whole}
        axis = ra.derive_incremental(spec, max_passes=2).plan.axis[0]
        for rank, got in enumerate(found):
            one, two, three, text, *rest = got[name]
            assert f"{ranks} ranks over gloo" in text and "predicted" in text
            for result in (one, two, three, *rest):
                named = result if isinstance(result, dict) else {next(iter(spec.outputs)): result}
                for output, expected in wanted.items():
                    axes = spec.output_axes[output]
                    if axis in axes:
                        at = (slice(None),) * axes.index(axis) + (slice(cuts[rank], cuts[rank + 1]),)
                        expected = expected[at]
                    assert named[output].dtype == expected.dtype
                    close = 1e-5 if expected.dtype == np.float32 else 1e-11
                    np.testing.assert_allclose(named[output], expected, rtol=close, atol=close, err_msg=name)
            assert _bits(two) == _bits(three)
            if axis not in {
                a for axes in spec.output_axes.values() for a in axes
            }:  # the whole is the same on all ranks
                for mine, other in zip((one, two, *rest), (found[0][name][k] for k in (0, 1, 4)), strict=False):
                    assert _bits(mine) == _bits(other)


def _bits(result: Any) -> list[bytes]:
    return [np.ascontiguousarray(x).tobytes() for x in (result.values() if isinstance(result, dict) else [result])]


def different(rank: int, ranks: int) -> list[str]:
    """Calls that differ, one after the other: a hang in any of them would be one of the test."""
    total = ra.derive_incremental(ra.parse("return s = sum[j](x[i,j]*w[i])"))
    other = ra.derive_incremental(
        ra.parse("u = mean[j](x[i,j]); return s = mean[j](abs(x[i,j] - u*w[i]))"), max_passes=2
    )
    x, w, last = np.ones((2, 3 * rank)), np.ones(2), rank == ranks - 1
    calls = [
        lambda: (other if last else total).collective()(x=x, w=w),
        lambda: total.collective()(x=x.astype(np.float32) if last else x, w=w),
        lambda: total.collective()(x=np.ones((3, 2)) if last else x, w=np.ones(3) if last else w),
        lambda: total.collective()(x=x, w=w + rank),
        lambda: total.collective()(x=np.ones(3) if last else x, w=w),
        lambda: total.collective()(x=np.ones((2, 3)), w=w, start=2 * rank),
    ]
    said = []
    for call in calls:
        try:
            said.append(f"no error: {call()}")
        except RedalgError as error:
            said.append(error.what)
    after = total.collective()(x=x, w=w)
    return [*said, str(after.tolist())]


def test_calls_that_differ_are_refused_on_every_rank_and_the_group_goes_on() -> None:
    found = on_ranks(3, different)
    wanted = ["the form", "the dtypes", "lengths of axes", "tensors without the axis", None, "overlap"]
    for rank, said in enumerate(found):
        assert isinstance(said, list), said
        for k, word in enumerate(wanted):
            expected = word or ("x[i,j]" if rank == 2 else "without all ranks")
            assert expected in said[k], (rank, k, said[k])
        assert said[-1] == "[9.0, 9.0]"


def one_dies(rank: int, ranks: int) -> str:
    form = ra.derive_incremental(ra.parse("return v = var[j](x[j])"))
    made = form.collective()
    assert made(x=np.arange(3.0) + rank).shape == ()
    if rank == 1:
        os._exit(7)
    try:
        return f"a number: {made(x=np.arange(3.0))}"
    except RedalgError as error:
        return f"ours: {error}"
    except RuntimeError as error:
        return f"theirs: {error}"


def test_a_rank_that_dies_makes_the_others_fail_with_an_error_of_torch() -> None:
    found = on_ranks(3, one_dies)
    assert found[1] is None
    assert all(str(found[r]).startswith("theirs: ") for r in (0, 2)), found


def without_all(rank: int, ranks: int) -> Any:
    """A group of some of the ranks: its ranks are merged, and another refuses."""
    group = torch.distributed.new_group([0, 2])
    form = ra.derive_incremental(ra.parse("return s = sum[j](x[j])"))
    try:
        return float(form.collective(group)(x=np.array([1.0 + rank])))
    except RedalgError as error:
        return error.why


def test_a_group_of_some_of_the_ranks() -> None:
    found = on_ranks(3, without_all)
    assert found[0] == found[2] == 4.0 and "none of the group" in found[1]


def test_without_a_process_group_there_is_no_collective() -> None:
    form = ra.derive_incremental(ra.parse("return s = sum[j](x[j])"))
    with pytest.raises(RedalgError, match="there is no process group"):
        form.collective()
