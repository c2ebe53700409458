"""Cells of the random table: shapes nobody chose, the specs, and what users of other libraries write for them.

A seed gives the same cells on every machine. Bytes of the input are log-uniform, and of its elements a log-uniform part
lies along the axis that is reduced; nothing is rounded to anything.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import exp, log
from typing import Any

import numpy as np

import redalg as ra

BYTES = 256, 32 << 20
DTYPES = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2}
LAYOUTS = "rows", "columns", "transposed"
EPS = 1e-5
# X is the input, with its axes in the order of the layout; j is reduced
TEXTS = {
    "softmax": "m = max[j](X); e = exp(X - m); return y = e/sum[j](e)",
    "log_softmax": "m = max[j](X); return y = X - m - log(sum[j](exp(X - m)))",
    "logsumexp": "m = max[j](X); return y = log(sum[j](exp(X - m))) + m",
    "layer_norm": f"u = mean[j](X); v = mean[j]((X - u)**2); return y = (X - u)/sqrt(v + {EPS})*w[j] + b[j]",
    "rms_norm": f"return y = X/sqrt(mean[j](X**2) + {EPS})*w[j]",
    "variance": "u = mean[j](X); return y = mean[j]((X - u)**2)",
    "argmax": "return y = argmax[j](X)",
    "absmax": "return y = max[j](abs(X))",
    "sum": "return y = sum[j](X)",
}
PARAMETERS = {"layer_norm": ("w", "b"), "rms_norm": ("w",)}


@dataclass(frozen=True)
class Cell:
    """`rows` times `length` elements. Layouts: *rows* reduces the last axis, *columns* the first of a contiguous array,
    *transposed* the last of an array whose memory is that of columns."""

    operation: str
    rows: int
    length: int
    dtype: str
    layout: str

    @property
    def name(self) -> str:
        return f"{self.operation} {self.rows}x{self.length} {self.dtype} {self.layout}"

    @property
    def axis(self) -> int:
        """The one that is reduced."""
        return 0 if self.layout == "columns" else 1

    @property
    def elements(self) -> int:
        return self.rows * self.length

    @cached_property
    def spec(self) -> ra.Spec:
        read = "x[j,i]" if self.layout == "columns" else "x[i,j]"
        return ra.parse(TEXTS[self.operation].replace("X", read))

    def drawn(self, seed: int) -> dict[str, np.ndarray]:
        """Numbers around 0.5, and parameters along the axis."""
        rng = np.random.default_rng(seed)
        shape = (self.rows, self.length) if self.layout == "rows" else (self.length, self.rows)
        x = (2 * rng.standard_normal(shape, dtype=np.float32) + 0.5).astype(_numpy(self.dtype))
        found = {"x": x.T if self.layout == "transposed" else x}
        for name in PARAMETERS.get(self.operation, ()):
            found[name] = rng.standard_normal(self.length, dtype=np.float32).astype(x.dtype)
        return found


def _numpy(dtype: str) -> Any:
    if dtype == "bfloat16":
        import ml_dtypes  # of JAX

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(dtype)


def cells(seed: str) -> Iterator[Cell]:
    """Cells without end; half of them float32, two thirds rows.

    >>> from itertools import islice
    >>> [c.name for c in islice(cells("2026-01-01"), 2)] == [c.name for c in islice(cells("2026-01-01"), 2)]
    True
    """
    rng = random.Random(seed)
    while True:
        dtype = rng.choices(list(DTYPES), (4, 1, 2, 1))[0]
        total = exp(rng.uniform(*map(log, BYTES))) / DTYPES[dtype]
        length = max(1, round(total ** rng.random()))
        layout = rng.choices(LAYOUTS, (4, 1, 1))[0]
        yield Cell(rng.choice(list(TEXTS)), max(1, round(total / length)), length, dtype, layout)


# --- what users write ------------------------------------------------------------------------------------------------

Compute = Callable[..., Any]


def numpy_version(cell: Cell, reference: bool = False) -> Compute:
    """The careful text, with few temporary arrays; narrow formats are widened and results narrowed. As a `reference`:
    in float64, not narrowed."""
    operation, axis = _NUMPY[cell.operation], cell.axis
    inner = np.dtype("float64") if reference or cell.dtype == "float64" else np.dtype("float32")

    def compute(x: np.ndarray, **parameters: np.ndarray) -> Any:
        wide = {n: _along(p.astype(inner, copy=False), axis) for n, p in parameters.items()}
        y = operation(x if cell.operation == "argmax" else x.astype(inner, copy=False), axis, **wide)
        return y if reference or cell.operation == "argmax" else y.astype(x.dtype, copy=False)

    return compute


def _along(parameter: Any, axis: int) -> Any:
    return parameter[:, None] if axis == 0 else parameter


def _softmax(x: Any, axis: int) -> Any:
    y = np.subtract(x, x.max(axis, keepdims=True))
    np.exp(y, out=y)
    y /= y.sum(axis, keepdims=True)
    return y


def _log_softmax(x: Any, axis: int) -> Any:
    y = np.subtract(x, x.max(axis, keepdims=True))
    y -= np.log(np.exp(y).sum(axis, keepdims=True))
    return y


def _logsumexp(x: Any, axis: int) -> Any:
    m = x.max(axis, keepdims=True)
    y = np.subtract(x, m)
    return np.log(np.exp(y, out=y).sum(axis)) + m.squeeze(axis)


def _squares(x: Any, axis: int) -> Any:
    return np.einsum("ij,ij->j" if axis == 0 else "ij,ij->i", x, x) / x.shape[axis]


def _layer_norm(x: Any, axis: int, w: Any, b: Any) -> Any:
    y = np.subtract(x, x.mean(axis, keepdims=True))
    y /= np.expand_dims(np.sqrt(_squares(y, axis) + EPS), axis)
    y *= w
    y += b
    return y


def _rms_norm(x: Any, axis: int, w: Any) -> Any:
    y = x / np.expand_dims(np.sqrt(_squares(x, axis) + EPS), axis)
    y *= w
    return y


_NUMPY: Mapping[str, Compute] = {
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "logsumexp": _logsumexp,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "variance": lambda x, axis: _squares(np.subtract(x, x.mean(axis, keepdims=True)), axis),
    "argmax": lambda x, axis: x.argmax(axis),
    "absmax": lambda x, axis: np.maximum(x.max(axis), -x.min(axis)),
    "sum": lambda x, axis: x.sum(axis),
}


def torch_version(cell: Cell, torch: Any) -> Compute:
    """PyTorch's own functions."""
    axis, nn = cell.axis, torch.nn.functional

    def normed(of_rows: Compute) -> Compute:
        """Its norms reduce the last axis."""
        return of_rows if axis else lambda x, **p: of_rows(x.T, **p).T

    return {
        "softmax": lambda x: torch.softmax(x, axis),
        "log_softmax": lambda x: torch.log_softmax(x, axis),
        "logsumexp": lambda x: torch.logsumexp(x, axis),
        "layer_norm": normed(lambda x, w, b: nn.layer_norm(x, (cell.length,), w, b, EPS)),
        "rms_norm": normed(lambda x, w: nn.rms_norm(x, (cell.length,), w, EPS)),
        "variance": lambda x: torch.var(x, axis, correction=0),
        "argmax": lambda x: torch.argmax(x, axis),
        "absmax": lambda x: torch.linalg.vector_norm(x, float("inf"), axis),
        "sum": lambda x: torch.sum(x, axis),
    }[cell.operation]


def torch_arrays(arrays: Mapping[str, np.ndarray], torch: Any) -> dict[str, Any]:
    def tensor(x: np.ndarray) -> Any:
        if x.dtype.name == "bfloat16":
            return torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(x)

    return {n: tensor(x) for n, x in arrays.items()}


def jax_version(cell: Cell, jax: Any) -> Compute:
    """The usual text, compiled. Its arrays have no strides: a transposed one is read as columns, and so are results."""
    np_, nn, axis = jax.numpy, jax.nn, 1 if cell.layout == "rows" else 0

    def layer_norm(x: Any, w: Any, b: Any) -> Any:
        u, v = x.mean(axis, keepdims=True), x.var(axis, keepdims=True)
        return (x - u) * jax.lax.rsqrt(v + EPS) * _along(w, axis) + _along(b, axis)

    def rms_norm(x: Any, w: Any) -> Any:
        return x * jax.lax.rsqrt((x * x).mean(axis, keepdims=True) + EPS) * _along(w, axis)

    return jax.jit(
        {
            "softmax": lambda x: nn.softmax(x, axis),
            "log_softmax": lambda x: nn.log_softmax(x, axis),
            "logsumexp": lambda x: nn.logsumexp(x, axis),
            "layer_norm": layer_norm,
            "rms_norm": rms_norm,
            "variance": lambda x: x.var(axis),
            "argmax": lambda x: x.argmax(axis),
            "absmax": lambda x: np_.abs(x).max(axis),
            "sum": lambda x: x.sum(axis),
        }[cell.operation]
    )
