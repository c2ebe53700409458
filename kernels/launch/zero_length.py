"""What is computed on the host and sent back: streams of length 0, by what the definition says of an empty axis."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from redalg.kernels.launch.arrays import CUPY, JAX, NUMPY, TORCH, Framework
from redalg.numeric.array_origin import to_numpy
from redalg.numeric.definition import reference

if TYPE_CHECKING:
    from redalg.form import Form


def definition_of_zero_length(
    form: Form, framework: Framework, arrays: Mapping[str, Any], outputs: Sequence[tuple[str, tuple[int, ...], str]]
) -> list[Any]:
    """The outputs, as arrays of the framework (NumPy: on the host)."""
    return computed_on_host(lambda host: reference(form.spec, **host), framework, arrays, outputs)


def computed_on_host(
    compute: Callable[[Mapping[str, Any]], Any],
    framework: Framework,
    arrays: Mapping[str, Any],
    outputs: Sequence[tuple[str, tuple[int, ...], str]],
) -> list[Any]:
    """What a function of arrays on the host gives (one output, or a dict), as arrays of the framework."""
    found = compute({name: _on_host(framework, x) for name, x in arrays.items()})
    values = found if isinstance(found, dict) else {outputs[0][0]: found}
    like = next((x for x in arrays.values() if hasattr(x, "dtype")), None)
    return [_sent(framework, to_numpy(values[name]), dtype, like) for name, _, dtype in outputs]


def _on_host(framework: Framework, x: Any) -> Any:
    if isinstance(x, bool | int | float):
        return x
    if framework is TORCH:
        return x.cpu()
    if framework is CUPY:
        return x.get()
    return x.copy_to_host() if hasattr(x, "copy_to_host") else to_numpy(x)


def _sent(framework: Framework, value: np.ndarray, dtype: str, like: Any) -> Any:
    import sys

    if framework is TORCH:
        torch = sys.modules["torch"]
        plain = (
            np.array(value, np.float32) if value.dtype.kind not in "fiub" or value.dtype.itemsize < 2 else value.copy()
        )
        return torch.from_numpy(plain).to(device=like.device, dtype=getattr(torch, dtype))
    if framework is NUMPY:
        return value
    if framework is CUPY:
        return sys.modules["cupy"].asarray(value)
    if framework is JAX:
        return sys.modules["jax"].numpy.asarray(value)
    from numba import cuda

    return cuda.to_device(np.array(value, order="C"))
