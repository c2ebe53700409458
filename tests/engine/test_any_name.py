"""Tensors and outputs may be called `self`: names of a spec are keywords of every call, arguments of none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import redalg as ra

SPEC = ra.parse("return self = sum[j](self[i,j]*form[j])")
ARRAYS: dict[str, Any] = {"self": np.ones((2, 3)), "form": np.arange(3.0)}


def _accumulated(form: ra.Form, arrays: dict[str, Any]) -> Any:
    acc = form.accumulator()
    acc.update(**arrays)
    return acc.result()


def _grouped(form: ra.Form, arrays: dict[str, Any]) -> Any:
    groups = form.grouped()
    groups.update(by=["a"] * 3, **arrays)
    return groups.result()[1][0]


WAYS = {
    "reference": lambda form, arrays: ra.reference(form.spec, **arrays),
    "numpy": lambda form, arrays: form.compile("numpy")(**arrays),
    "cpu": lambda form, arrays: form.compile("cpu")(**arrays),
    "accumulator": _accumulated,
    "grouped": _grouped,
}


@pytest.mark.parametrize("way", WAYS)
def test_a_tensor_and_an_output_called_self(way: str) -> None:
    np.testing.assert_array_equal(WAYS[way](ra.derive_incremental(SPEC), ARRAYS), [3.0, 3.0])


def test_gradients_of_a_tensor_called_self() -> None:
    found = SPEC.vjp()(cotangents={"self": np.ones(2)}, target="numpy", **ARRAYS)
    assert found["self"].tolist() == [[0, 1, 2]] * 2 and found["form"].tolist() == [2, 2, 2]
    moved = SPEC.jvp()(tangents={"self": np.ones((2, 3))}, target="numpy", **ARRAYS)
    assert moved["self"].tolist() == [3, 3]
