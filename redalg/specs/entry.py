"""What one catalog entry is: a spec built when it is asked for, where it comes from, and how to draw input for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from redalg.graph.node import Decl
    from redalg.language.spec import Spec

DRAWS = "normal positive unit probability integer bool below:<axis> or a number"


@dataclass(frozen=True)
class Entry:
    """A named spec with its source.

    `axis` is the streamed axis (a tuple for a composite one), `assume` what a derivation has to be told, `sizes` small
    default lengths of all axes, and `draws` how to draw a tensor whose declared domain does not say it already.

    >>> import redalg as ra
    >>> softmax = ra.catalog.entry("softmax")
    >>> softmax.axis, sorted(softmax.sample(j=5)), softmax.sample(j=5)["x"].shape
    ('j', ['x'], (3, 5))
    """

    name: str
    description: str
    source: str
    axis: str | tuple[str, ...]
    sizes: Mapping[str, int]
    draws: Mapping[str, str]
    assume: frozenset[str]
    build: Callable[[], Spec] = field(repr=False, compare=False)

    @cached_property
    def spec(self) -> Spec:
        return self.build()

    def sample(self, seed: int = 0, *, dtype: str = "float64", **sizes: int) -> dict[str, Any]:
        """Arguments for `run` or `reference`: arrays of the default sizes, or of those given by axis name.

        Scalars are Python numbers; integers int64, conditions bool, everything else `dtype`. The same seed and sizes
        give the same numbers.
        """
        import numpy as np

        rng = np.random.default_rng(seed)
        lengths = {**self.sizes, **sizes}
        values: dict[str, Any] = {}
        for decl in self.spec.tensors:
            shape = tuple(lengths[a] for a in decl.axes)
            array = self._draw(decl, shape, lengths, rng)
            if not decl.axes:
                values[decl.name] = array.item()
            else:
                values[decl.name] = array.astype(dtype) if array.dtype.kind == "f" else array
        return values

    def _draw(
        self, decl: Decl, shape: tuple[int, ...], lengths: Mapping[str, int], rng: np.random.Generator
    ) -> np.ndarray:
        import numpy as np

        kind = self.draws.get(decl.name) or next(
            (word for word in ("bool", "integer", "positive", "nonnegative") if word in decl.domain), "normal"
        )
        if kind == "normal":
            return rng.standard_normal(shape)
        if kind in ("positive", "nonnegative"):
            return rng.uniform(0.25, 2.0, shape)
        if kind == "unit":
            return rng.uniform(0.0, 1.0, shape)
        if kind == "probability":
            weights = rng.uniform(0.25, 2.0, shape)
            streamed = (self.axis,) if isinstance(self.axis, str) else self.axis
            over = tuple(p for p, a in enumerate(decl.axes) if a in streamed)
            return weights / weights.sum(axis=over, keepdims=True)
        if kind == "integer":
            return rng.integers(-4, 5, shape)
        if kind == "bool":
            return rng.random(shape) < 0.75
        if kind.startswith("below:"):
            return rng.integers(0, max(1, lengths[kind.removeprefix("below:")]), shape)
        return np.full(shape, int(kind) if "integer" in decl.domain else float(kind))


def entry(
    description: str,
    source: str,
    sizes: str,
    *,
    axis: str | tuple[str, ...] = "j",
    draws: str = "",
    assume: Iterable[str] = (),
) -> Callable[[Callable[[], Spec]], Entry]:
    """Turn a function that builds a spec into the catalog entry of the function's name.

    `sizes` is ``"i=3 j=17"``, `draws` ``"w=positive t=below:j"`` in the words of `DRAWS`.
    """

    def decorate(build: Callable[[], Spec]) -> Entry:
        return Entry(
            name=build.__name__,
            description=description,
            source=source,
            axis=axis,
            sizes={a: int(n) for a, n in _pairs(sizes)},
            draws=dict(_pairs(draws)),
            assume=frozenset(assume),
            build=build,
        )

    return decorate


def _pairs(text: str) -> list[tuple[str, str]]:
    return [(word.partition("=")[0], word.partition("=")[2]) for word in text.split()]
