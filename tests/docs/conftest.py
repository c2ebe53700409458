"""What benchmarks change for the process they are made for, undone after each test."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def gradients_of_torch_as_they_were() -> Iterator[None]:
    """Harnesses switch them off; a test of gradients may come next in this process."""
    yield
    if "torch" in sys.modules:
        sys.modules["torch"].set_grad_enabled(True)
