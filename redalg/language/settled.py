"""A spec as it is evaluated: without what counts in its derivatives alone."""

from __future__ import annotations

from redalg.graph.nonzero import settled
from redalg.language.spec import Spec


def as_evaluated(spec: Spec) -> Spec:
    """The spec in which factors that are 1 + c·b where b is 0 are 1 there (`redalg.graph.nonzero`)."""
    found = {n: settled(node) for n, node in spec.outputs.items()}
    if all(node is spec.outputs[n] for n, node in found.items()):
        return spec
    return Spec.from_nodes(found, tensors=spec.tensors, order=spec.output_axes, empty=spec.empty, dtypes=spec.dtypes)


__all__ = ["as_evaluated"]
