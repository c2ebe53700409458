"""The definition of statistics of statistics takes as many operations as it has nodes, not twice as many a stage."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import redalg as ra
from redalg.graph.node import walk
from redalg.numeric.evaluate import Evaluator

X, W = ra.tensors("x[j] w[j]")
STAGES: dict[str, Callable[[ra.Expr], ra.Expr]] = {
    "logsumexp": lambda s: ra.logsumexp(X - s, "j"),
    "softmax": lambda s: ra.sum(ra.softmax(X * W - s, "j") * W, "j"),
    "masked": lambda s: ra.logsumexp(ra.where(W > 0, X - s, -ra.oo), "j"),
    "squares": lambda s: ra.mean((X - s) ** 2 * ra.exp(-s), "j"),
    "products": lambda s: ra.max(W * s - s * s, "j"),
}


@pytest.mark.parametrize("length", [3, 3000])
@pytest.mark.parametrize("element", [1.0, -np.inf, np.nan])
@pytest.mark.parametrize("stage", STAGES)
def test_nested_stages_are_computed_once(
    stage: str, element: float, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = []
    apply = Evaluator._apply
    monkeypatch.setattr(Evaluator, "_apply", lambda self, node: (counted.append(node), apply(self, node))[1])
    value = ra.mean(X, "j")
    for _ in range(12):
        value = STAGES[stage](value)
    spec, x = ra.Spec(y=value), np.linspace(-1, 1, length)
    x[0] = element
    ra.reference(spec, **{t.name: x if t.name == "x" else np.linspace(2, -1, length) for t in spec.tensors})
    assert len(counted) <= 4 * len({*walk(*spec.outputs.values())})
