"""Tensors of a call of a kind: what PyTorch's own guards accept at once, our questions accept one by one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redalg.kernels.cuda import quick

torch = pytest.importorskip("torch")


class Other(torch.Tensor):  # type: ignore[misc, name-defined]
    pass


DTYPES = torch.float32, torch.float16, torch.int32, torch.complex64
CHANGES = {
    "nothing": lambda x: x,
    "a subclass": lambda x: x.as_subclass(Other),
    "a negated view": torch._neg_view,
    "a gradient": lambda x: x.clone().requires_grad_() if x.is_floating_point() else x,
    "another device": lambda x: x.to("meta"),
    "sparse": lambda x: x.to_sparse(),
    "a number": lambda x: 2.0,
}


def tensors() -> Any:
    """Small tensors of any layout: shapes, strides and dtypes that often agree, and now and then a change."""
    lengths = st.lists(st.sampled_from((0, 1, 2, 3)), min_size=1, max_size=2)

    @st.composite
    def one(draw: Any) -> Any:
        shape = draw(lengths)
        strides = [draw(st.sampled_from((1, 2, 3))) for _ in shape]
        x = torch.empty_strided(shape, strides, dtype=draw(st.sampled_from(DTYPES)))
        return CHANGES[draw(st.sampled_from((*CHANGES, *["nothing"] * 6)))](x)

    return one()


def accepts(first: Any, other: Any) -> bool:
    """Whether the questions that are printed for `first` accept `other`, but for the device's number."""
    names: dict[str, Any] = {"a0": other}
    ready: Any = SimpleNamespace(device=first.get_device())
    asked = quick._asked(0, first, ready, names)
    try:
        return bool(eval(asked, names))
    except quick.ELSEWHERE:
        return False


@given(tensors(), tensors(), st.booleans(), st.booleans())
def test_what_guards_accept_at_once_is_accepted_one_by_one(first: Any, other: Any, here: bool, there: bool) -> None:
    if not isinstance(first, torch.Tensor) or type(first) is not torch.Tensor or first.is_sparse:
        return
    if first.requires_grad or first.is_neg() or first.device.type != "cpu":
        return  # no call of such a kind is prepared
    with torch.inference_mode(here):
        same = quick._same([first])
    assert same is not None
    with torch.inference_mode(there):
        assert not same(other) or accepts(first, other)
        if here == there:
            twin = torch.empty_strided(first.shape, first.stride(), dtype=first.dtype)
            assert same(twin) or torch.is_inference(twin) and accepts(first, twin)


def test_a_pytorch_without_such_guards_is_asked_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._C._dynamo.guards, "TensorGuards", None)
    assert quick._same([torch.zeros(3)]) is None
