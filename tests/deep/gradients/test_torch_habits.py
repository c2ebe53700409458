"""Habits of PyTorch's users (`tests.support.torch_habits`) on every operator of the table.

A quarter of the pairs, the same ones each time; `REDALG_HABITS=all` runs all 1,500 (some 40 minutes on two cores).
"""

from __future__ import annotations

import os
from itertools import product
from zlib import crc32

import pytest

from tests.support.torch_habits import HABITS, case
from tests.support.torch_operators import OPERATORS

pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore")
SHARE = 1 if os.environ.get("REDALG_HABITS") == "all" else 4


@pytest.mark.parametrize(
    "name, habit", [p for p in product(OPERATORS, HABITS) if not crc32(":".join(p).encode()) % SHARE]
)
def test_habits(name: str, habit: str) -> None:
    HABITS[habit](case(name))
