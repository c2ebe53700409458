"""Kernels before a tile program's: reductions that vary along one side alone, each computed once, in float32."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from redalg import _hooks
from redalg.errors import RedalgError
from redalg.graph.node import walk
from redalg.kernels.tile.contractions import Outside
from redalg.kernels.tile.level.derive import Parts
from redalg.language.spec import Spec

if TYPE_CHECKING:
    from redalg.form import Form


@dataclass(frozen=True)
class Values:
    """A form with its dtypes, and the dtypes of its results."""

    form: Form
    dtypes: Mapping[str, Any]
    results: Mapping[str, str]


def firsts_of(parts: Parts, dtypes: Mapping[str, Any]) -> Iterator[Values]:
    """Raises: Outside where one does not derive."""
    for name, node in parts.firsts.items():
        held = next(o for o in parts.program.operands if o.name == name)
        spec = Spec.from_nodes({name: node}, order={name: list(held.axes)} if len(held.axes) > 1 else {})
        taken = {n.attr.name for n in walk(node) if n.op == "tensor"}
        try:
            form = _derived(spec, tuple(node.attr.axes))
        except RedalgError as problem:
            raise Outside(f"what comes before the tiles does not derive: {problem.why}") from problem
        yield Values(form, {n: dtypes[n] for n in taken}, {name: "float32"})


@lru_cache(maxsize=256)
def _derived(spec: Spec, axes: tuple[str, ...]) -> Form:
    return _hooks.derive(spec, axis=axes, max_passes=1)
