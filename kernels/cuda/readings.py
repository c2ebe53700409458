"""How the arrays of a call are read: by one tensor or several, in windows, behind zeros that lie in memory or nowhere.

Zeros around an array are a copy of it into a larger one, but where only tensor maps of pixels read them
(`redalg.kernels.gemm.places`): what lies outside of an array is zero there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from redalg.errors import RedalgError
from redalg.graph.node import Decl
from redalg.kernels.ir.layouts import View
from redalg.kernels.launch.arrays import Framework, framework_of
from redalg.kernels.tile.match import TYPES, Outside
from redalg.numeric.array_origin import stand_in
from redalg.numeric.binding import with_readings
from redalg.numeric.windows import padded, stepped, windows

UNREADABLE = KeyError, AttributeError, AssertionError, TypeError, RedalgError


class Readings:
    """The readings of a spec's tensors.

    ``aliased``: an array is read by several tensors, or in windows; ``padded``: tensors with zeros around them;
    ``copied``: kinds of calls whose arrays have to be copied into zeros.
    """

    def __init__(self, decls: Sequence[Decl]) -> None:
        self.decls = decls
        self.aliased = any(t.array or t.dimensions for t in decls)
        self.padded = [t for t in decls if padded(t)]
        self.copied: set[Any] = set()

    def read(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """An array for every tensor, with zeros in memory."""
        return dict(with_readings(self.decls, arrays))

    def without_zeros(
        self, arrays: Mapping[str, Any], keyed: Callable[[Framework, list[Any]], list[Any]]
    ) -> tuple[Framework, dict[str, Any], Any] | None:
        """The library, an array for every tensor without zeros around them, and the kind of call; None where that is
        known to be no way, or where the general way will say what is wrong."""
        try:
            held = dict(with_readings(self.decls, arrays, padding=False))
            framework = framework_of(held[self.padded[0].name])
            assert framework is not None
            key = "without zeros", framework.kind, *keyed(framework, [held[t.name] for t in self.decls])
            return None if key in self.copied else (framework, held, key)
        except UNREADABLE:
            return None

    def require_pixels(self, held: Mapping[str, Any], dtypes: Mapping[str, Any]) -> None:
        """Raises: Outside where tensor maps of pixels cannot read what has zeros around it."""
        if any(dtypes[t.name] not in TYPES or len(held[t.name].shape) != t.rank for t in self.padded):
            raise Outside("tensor maps of pixels are of 16 bits, and of arrays that hold no windows themselves")

    def viewed(self, views: dict[str, View], held: Mapping[str, Any]) -> dict[str, View]:
        """How arrays lie; those that are no windows yet as windows that reach beyond them."""
        whole = [t for t in self.padded if t.name in held and len(views[t.name].shape) == t.rank]
        if not whole:
            return views
        shapes = windows(self.decls, {n: stand_in(a) for n, a in held.items()}, {})
        made = {
            t.name: View(shapes[t.name].shape, stepped(t, view.strides), view.align, view.shape)
            for t in whole
            for view in [views[t.name]]
        }
        return views | made
