"""The operations that are timed on CPU and GPU: their specs, how their arguments are drawn, and how bytes are counted.

Specs come from the catalog where it has them. Shapes follow from the spec's axes, so that the count of bytes is the
same for every contender: each argument read once, each result written once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import prod
from typing import Any

import redalg as ra

ITEMSIZE = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "int64": 8}
TOP = 8


@dataclass(frozen=True)
class Operation:
    """A spec to be timed. `length` names the axis whose length the tables show.

    `draws`: argument -> "normal", "positive", "probability", "below:<axis>" or a number, where the tensor's domain
    does not say it; `integers`: results that are int64, all others have the arguments' dtype; `extra`: lengths of axes
    that belong to the operation, as the k of a top-k.
    """

    name: str
    build: Callable[[], ra.Spec]
    length: str = "j"
    draws: Mapping[str, str] = field(default_factory=dict)
    integers: tuple[str, ...] = ()
    extra: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def spec(self) -> ra.Spec:
        return self.build()

    @cached_property
    def form(self) -> Any:
        return ra.derive_incremental(self.spec)

    def arguments(self, sizes: Mapping[str, int]) -> dict[str, tuple[tuple[int, ...], str]]:
        """Argument -> (shape, how it is drawn). Integer tensors are int64; a shape of () is a Python number."""
        found = {}
        for t in self.spec.tensors:
            draw = self.draws.get(t.name) or ("positive" if "positive" in t.domain else "normal")
            found[t.name] = tuple(sizes[a] for a in t.axes), draw
        return found

    def results(self, sizes: Mapping[str, int], dtype: str) -> dict[str, tuple[tuple[int, ...], str]]:
        """Result -> (shape, dtype)."""
        lengths = {**self.extra, **sizes}
        return {
            name: (tuple(lengths[a] for a in axes), "int64" if name in self.integers else dtype)
            for name, axes in self.spec.output_axes.items()
        }

    def traffic(self, sizes: Mapping[str, int], dtype: str) -> tuple[int, int]:
        """The least bytes that must be read and written: every argument and every result once.

        >>> OPERATIONS["softmax"].traffic({"i": 2, "j": 8}, "bfloat16")
        (32, 32)
        >>> OPERATIONS["cross_entropy"].traffic({"i": 2, "j": 8}, "float32")  # two int64 classes, two losses
        (80, 8)
        """
        read = sum(
            prod(shape) * ITEMSIZE["int64" if draw.startswith("below:") else dtype]
            for shape, draw in self.arguments(sizes).values()
            if shape
        )
        written = sum(prod(shape) * ITEMSIZE[kind] for shape, kind in self.results(sizes, dtype).values())
        return read, written


def _of_catalog(name: str, **options: Any) -> Operation:
    entry = ra.catalog.entry(name)
    return Operation(name, lambda: entry.spec, draws=entry.draws, **options)


def _var_mean() -> ra.Spec:
    x = ra.tensors("x[i,j]")
    mean = ra.mean(x, "j")
    return ra.Spec(var=ra.mean((x - mean) ** 2, "j"), mean=mean)


def _column_variance() -> ra.Spec:
    x = ra.tensors("x[i,j]")
    return ra.Spec(var=ra.mean((x - ra.mean(x, "i")) ** 2, "i"))


def _column_softmax() -> ra.Spec:
    x = ra.tensors("x[i,j]")
    e = ra.exp(x - ra.max(x, "i"))
    return ra.Spec(y=e / ra.sum(e, "i"))


def _softmax_top() -> ra.Spec:
    x = ra.tensors("x[i,j]")
    e = ra.exp(x - ra.max(x, "j"))
    best = ra.topk(e / ra.sum(e, "j"), TOP, "j")
    return ra.Spec(gates=best.values, experts=best.indices)


def _log_relu(axes: str) -> Callable[[], ra.Spec]:
    def build() -> ra.Spec:
        x, b = ra.tensors(f"x[i,j] b[{axes}]")
        return ra.Spec(y=ra.log(ra.relu(x + b)))

    return build


@lru_cache(maxsize=1)
def _all() -> dict[str, Operation]:
    found = (
        _of_catalog("softmax"),
        _of_catalog("log_softmax"),
        _of_catalog("logsumexp"),
        _of_catalog("layer_norm"),
        _of_catalog("rms_norm"),
        Operation("var_mean", _var_mean),
        _of_catalog("variance"),
        _of_catalog("cross_entropy"),
        _of_catalog("fp8_quantise"),
        _of_catalog("argmax", integers=("position",)),
        _of_catalog("absmax"),
        _of_catalog("entropy"),
        _of_catalog("kl_divergence"),
        _of_catalog("kl_divergence_of_logits"),
        _of_catalog("cosine_similarity"),
        Operation("column_variance", _column_variance, length="i"),
        Operation("column_softmax", _column_softmax, length="i"),
        Operation("softmax_top8", _softmax_top, integers=("experts",), extra={"j_top": TOP}),
        Operation("log_relu", _log_relu("i,j")),
        Operation("log_relu_broadcast", _log_relu("j")),
    )
    return {op.name: op for op in found}


OPERATIONS: dict[str, Operation] = _all()


# --- tolerances ------------------------------------------------------------------------------------------------------

# half the distance between neighbouring numbers, relative: what rounding a result once may cost
ROUNDING = {"float64": 0.0, "float32": 0.0, "bfloat16": 2.0**-8, "float16": 2.0**-11}
STRICT = 2e-5  # float32 arithmetic over rows of up to 16 M elements, relative
TINY = {"float16": 2.0**-24}  # half a subnormal and a bit
# absolute: results that are differences of larger numbers carry the rounding errors of those
ABSOLUTE = {
    "layer_norm": 2e-5,
    "rms_norm": 1e-6,
    "var_mean": 1e-5,
    "log_softmax": 1e-5,
    "cross_entropy": 1e-5,
    "entropy": 1e-5,
    "kl_divergence": 1e-5,
    "kl_divergence_of_logits": 3e-5,
    "cosine_similarity": 1e-5,
    "log_relu": 1e-6,
    "log_relu_broadcast": 1e-6,
    "logsumexp": 1e-5,
}


def strict_tolerance(operation: str, dtype: str) -> tuple[float, float]:
    """What ours are held to, relative and absolute: float32 arithmetic and one rounding to the dtype.

    >>> strict_tolerance("softmax", "float32")
    (2e-05, 1e-12)
    """
    return STRICT + ROUNDING[dtype], max(ABSOLUTE.get(operation, 1e-12), TINY.get(dtype, 0.0))
