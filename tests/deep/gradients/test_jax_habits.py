"""Habits of JAX's users (`tests.support.jax_habits`) on every operator of the catalog, and on several devices.

A twelfth of the pairs, the same ones each time; `REDALG_HABITS=all` runs all.
"""

from __future__ import annotations

import os
from itertools import product
from zlib import crc32

import numpy as np
import pytest

from tests.support.jax_devices import on_devices
from tests.support.jax_habits import HABITS, OPERATORS, UNDECIDED, case, jax, loss, refused, run

pytest.importorskip("jax")
pytestmark = pytest.mark.filterwarnings("ignore")
SHARE = 1 if os.environ.get("REDALG_HABITS") == "all" else 12  # a twelfth of the pairs: six minutes on two cores


@pytest.mark.parametrize(
    "name, habit", [p for p in product(OPERATORS, HABITS) if not crc32(":".join(p).encode()) % SHARE]
)
def test_habits(name: str, habit: str) -> None:
    run(name, habit)


@pytest.mark.parametrize("name", ["layer_norm", "attention", "cross_entropy"])
def test_arrays_on_several_devices(name: str) -> None:
    """Results vary along the axes of a mesh that their arrays vary along, and gradients of shared arrays are summed."""
    on_devices([name])


@pytest.mark.parametrize("name", UNDECIDED)
def test_gradients_that_no_form_is_found_for_are_refused(name: str) -> None:
    """Those of the quantised elements; that of their scale, the mean of the sizes, is taken."""
    found = case(name)
    with jax.enable_x64(True):
        (w,) = found.drawn()
        refused(lambda: jax.grad(loss(lambda x: found.op(x)[0]))(w))
        plain = jax.grad(loss(lambda x: abs(x).mean(axis=-1)))(w)
        np.testing.assert_allclose(jax.grad(loss(lambda x: found.op(x)[1]))(w), plain, rtol=1e-12)
