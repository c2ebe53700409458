"""What mixed precision means for a spec, read off its structure: matrix products are narrow, the rest is wide."""

from __future__ import annotations

from redalg.graph.contractions import above_reductions, contracts
from redalg.graph.node import Node, walk
from redalg.language.spec import Spec


def multiplies_matrices(spec: Spec) -> bool:
    """Whether any stage of the spec does."""
    return any(contracts(n) for n in walk(*spec.outputs.values()))


def reduces(spec: Spec) -> bool:
    return any(n.op == "reduce" for n in walk(*spec.outputs.values()))


def wide_outputs(spec: Spec) -> list[str]:
    """The outputs whose last stage is no matrix product: a loss, a norm or a statistic at the end of one."""
    return [n for n, node in spec.outputs.items() if not any(map(contracts, _last(node)))]


def _last(node: Node) -> list[Node]:
    """The reductions nearest to the result."""
    return [n for n in above_reductions(node) if n.op == "reduce"]


__all__ = ["multiplies_matrices", "reduces", "wide_outputs"]
