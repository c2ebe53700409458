"""Every habit of PyTorch's users (`tests.support.torch_habits`) on every operator of the table."""

from __future__ import annotations

import pytest

from tests.support.torch_habits import HABITS, case
from tests.support.torch_operators import OPERATORS

pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("habit", HABITS)
@pytest.mark.parametrize("name", OPERATORS)
def test_habits(name: str, habit: str) -> None:
    HABITS[habit](case(name))
