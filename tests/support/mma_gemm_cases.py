"""Matrix products by mma.sync that tests share: small whole numbers, whose sums are exact, through the emulator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import redalg as ra
from redalg.kernels.launch.planned import Planned
from redalg.kernels.schedule.target import A100, L40S, Target
from tests.support.chain_cases import emulated
from tests.support.gemm_cases import form_of, planned, views_of

UNIT = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-20}
TARGETS = {"8.0": A100, "8.6": L40S.having(cc=(8, 6)), "8.9": L40S, "12.0": L40S.having(cc=(12, 0))}
GELU = "y = sum[j](x[i,j]*w[j,k]) + c[k]; return z = 0.5*y*(1 + tanh(0.797*(y + 0.0447*y**3))) + r[i,k]"


def drawn(text: str, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Whole numbers that all formats hold."""
    rng = np.random.default_rng(sum(sizes.values()))
    form = form_of(text)
    return {t.name: rng.integers(-3, 4, [sizes[a] for a in t.axes]).astype(float) for t in form.spec.tensors}


def near(found: Mapping[str, Any], text: str, given: Mapping[str, Any], made: Planned, loose: float = 0.0) -> None:
    """Assert that results are the definition in float64, rounded once. `loose`: what else they may be off by."""
    spec = form_of(text).spec
    true = ra.reference(spec, **given)
    true = true if isinstance(true, dict) else {next(iter(spec.outputs)): true}
    units = {r.name: UNIT.get(r.dtype, 0.0) for r in made.program.results}
    assert found.keys() == true.keys()
    for name, x in found.items():
        off, allowed = abs(x - true[name]), units[name] * abs(true[name]) + loose
        assert (off <= allowed).all(), f"{name} is off by {(off - allowed).max()}: {made.choice.reasons[0]}"


def check(
    text: str,
    sizes: Mapping[str, int],
    target: Target = A100,
    loose: float = 0.0,
    seed: int = 0,
    given: Mapping[str, Any] | None = None,
    **options: Any,
) -> Planned:
    """The plan of a call, by mma.sync, whose results are the definition."""
    views = views_of(text, sizes, options.get("major", ()), options.get("apart", 0))
    made = planned(text, sizes, target=target, schedule=options.pop("schedule", "mma"), **options)
    assert "mma.sync" in made.choice.reasons[0] and not made.maps
    given = drawn(text, sizes) if given is None else given
    near(emulated(made, given, seed, views), text, given, made, loose)
    return made
