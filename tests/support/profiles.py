"""Hypothesis profiles: how many examples are drawn in which suite.

`fast` in `make test`, `deep` in `make test-deep`, `landing` there in ``.ci/run``, `thorough` by hand
(``HYPOTHESIS_PROFILE=thorough``). Without the variable, the folder of a module decides. All but the last draw the same
examples in every run and have no deadline.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings

from tests.support.places import ROOT

DEEP = ROOT / "tests" / "deep"
EXAMPLES = {"fast": 25, "landing": 40, "deep": 100, "thorough": 1000}  # of a property that does not say

for _name, _count in EXAMPLES.items():
    settings.register_profile(
        _name,
        deadline=None,
        print_blob=True,
        derandomize=_name != "thorough",
        suppress_health_check=[HealthCheck.too_slow],
        max_examples=_count,
    )


def load(module: Path) -> None:
    """Loads the profile for properties that a module is about to define."""
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("deep" if module.is_relative_to(DEEP) else "fast"))


def examples(count: int, **more: Any) -> settings:
    """Settings of a property that takes `count` examples in the deep suite: a quarter of them in the fast one."""
    return settings(max_examples=max(1, count * settings().max_examples // EXAMPLES["deep"]), **more)
