"""`check_equivalence` finds callables that are wrong from some length on, or write to arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.testing import NotEquivalent, check_equivalence

TEXTS = {
    "lists": "return v = topk[j:2:t](x[i,j]).values, at = topk[j:2:t](x[i,j]).indices",
    "positions": "return y = argmax[j](x[i,j]), z = argmin[j](x[i,j])",
    "truths": "return y = any[j](x[i,j] > 1), z = all[j](x[i,j] > -1)",
    "outputs": "return l = logsumexp[j](x[i,j]), m = mean[j](x[i,j])",
    "outputs with the axis": "m = max[j](x[i,j]); p = exp(x[i,j] - m); return y = p/sum[j](p)",
}


def right(name: str) -> Callable[..., Any]:
    return ra.derive_incremental(ra.parse(TEXTS[name]), axis="j").compile("numpy")


def held(name: str, implementation: Callable[..., Any], **options: Any) -> Any:
    return check_equivalence(ra.parse(TEXTS[name]), implementation, calls=20, **options)


def _wrong(found: Any) -> Any:
    """Another value in the last place of the first output."""
    if isinstance(found, dict):
        first = next(iter(found))
        return found | {first: _wrong(found[first])}
    found = np.array(found)
    if found.size:
        last = found.reshape(-1)[-1]
        found.reshape(-1)[-1] = not last if found.dtype == bool else last + 1
    return found


@pytest.mark.parametrize("name", TEXTS)
def test_what_is_right_passes(name: str) -> None:
    report = held(name, right(name))
    assert report.worst <= 1 and report.compared > report.open


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("length", [18, 700])
def test_what_is_wrong_from_some_length_on_is_found(name: str, length: int) -> None:
    run = right(name)
    with pytest.raises(NotEquivalent) as caught:
        held(name, lambda x: _wrong(run(x=x)) if x.shape[1] >= length else run(x=x), kinds=["ordinary"])
    assert caught.value.arrays["x"].shape[1] >= length


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("least", [1, 18])
def test_what_writes_to_its_argument_is_found(name: str, least: int) -> None:
    run = right(name)

    def writes(x: Any) -> Any:
        found = run(x=x)
        if x.shape[1] >= least and x.size and x.flags.writeable:
            x[..., -1] = 0.5
        return found

    with pytest.raises(NotEquivalent, match="argument|wrote|written|changed"):
        held(name, writes, kinds=["ordinary"])
