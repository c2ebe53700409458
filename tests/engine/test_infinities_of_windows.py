"""Windows whose length an index says are looked at at infinities as any tensor is; what no stream shows is said."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.errors import RedalgError
from redalg.laws import infinities

SPECS = {  # over {x}, and the axis that is streamed over
    "a share of what is positive": ("return y = sum[r](where(0 < {x}, {x}, 0)/sum[r](where(0 < {x}, 1, 0)))", "r"),
    "the least deviation": ("return y = min[r]({x} - mean[r]({x}))", "r"),
    "a maximum": ("return y = max[r]({x})", "r"),
    "a softmax's largest": ("m = max[r]({x}); return y = max[r](exp({x} - m)/sum[r](exp({x} - m)))", "r"),
    "along another axis": ("return y = min[b]({x} - mean[b]({x}))", "b"),
    "two largest": ("return y = topk[r:2:t]({x} - mean[r]({x})).values", "r"),
}
WINDOWS = ("h + r:1", "h + r:2", "2*h + r:3", "h + r:5", "h + r:7 - 1")
SPECIAL = (np.inf, -np.inf, np.nan, -1.0)  # -1: nothing but negative numbers


def derived(name: str, index: str) -> ra.Form:
    text, axis = SPECS[name]
    return ra.derive_incremental(ra.parse(text.format(x=f"x[b,{index}]")), axis=axis)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SPECS)
def test_said_lengths_change_nothing(name: str) -> None:
    plain = derived(name, "h,r")
    for index in WINDOWS:
        form = derived(name, index)
        assert form.assumptions == plain.assumptions, index
        if name == "two largest" and ":1" in index:
            continue
        for place in range(8):
            for value in SPECIAL:
                x = np.full((2, 8), value) if value == -1 else np.array([[1.0, -2, 4, 0, 3, -5, 7, 2]] * 2) * [[1], [2]]
                x[0, place] = value
                wanted, got = ra.reference(form.spec, x=x), form.compile("numpy")(x=x)
                void = np.isnan(got) & ("finite_stage_values" in form.assumptions)
                assert (void | np.isclose(got, wanted, equal_nan=True)).all(), f"{index}: {got} and not {wanted}"


def test_every_stream_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def halved(cases: Any) -> list[Any]:
        raise AssertionError(f"streams were refused: {cases.refusal}")

    monkeypatch.setattr(infinities.Cases, "halves", property(halved))
    for name in SPECS:
        derived(name, "h + r:3")
    ra.derive_incremental(ra.parse("return y = sum[j](X[j,a]*X[j,b])"))


def test_that_every_stream_was_refused_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: Any, **options: Any) -> Any:
        raise RedalgError("an array", "a call", "it does not fit", "another one")

    monkeypatch.setattr(infinities, "reference", refused)
    form = ra.derive_incremental(ra.parse("return y = sum[j](x[j])"))
    assert "refused" in form.assumptions["finite_stage_values"]
    assert np.isnan(form.compile("numpy")(x=[1.0, np.inf]))
