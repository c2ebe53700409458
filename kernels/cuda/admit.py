"""What a call on a GPU is given: one kind of arrays on one device, held against the spec before it is computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from redalg.errors import RedalgError
from redalg.kernels.launch.arrays import NUMPY, Framework, dtype_name, framework_of
from redalg.numeric.array_origin import stand_in
from redalg.numeric.binding import bind

if TYPE_CHECKING:
    from redalg.language.spec import Spec

WHERE = "the call"
NUMBERS = frozenset({int, float, bool})


def admitted(spec: Spec, arrays: Mapping[str, Any]) -> tuple[Framework, dict[str, Any]]:
    """The framework and dtypes of a call, validated as on every target.

    Shapes, names and dtypes are held against the spec by `redalg.numeric.binding`, with stand-ins that hold no data.
    """
    found: Framework | None = None
    first, device = "", None
    stand_ins: dict[str, Any] = {}
    for name, array in arrays.items():
        framework = framework_of(array)
        if framework is None:
            stand_ins[name] = array
            continue
        if getattr(array, "requires_grad", False) is True:
            why = "results carry no gradient, and dropping it silently would be wrong"
            raise RedalgError(f"{name}, a tensor that requires a gradient", WHERE, why, f"pass {name}.detach()")
        if found is not None and framework is not found:
            why = f"{name} is {framework.kind}, {first} is {found.kind}"
            raise RedalgError("mixed kinds of arrays", WHERE, why, f"convert {name} to {found.kind} first")
        place = framework.device(array)
        if device is not None and place != device:
            why = f"{name} lies on device {place}, {first} on device {device}"
            raise RedalgError("mixed devices", WHERE, why, f"move {name} to device {device} first")
        found, first, device = framework, first or name, place
        stand_ins[name] = stand_in(array)
    bound = bind(spec, stand_ins, where=WHERE)
    if found is None:
        found = NUMPY
    dtypes = {}
    for name, array in arrays.items():
        number = isinstance(array, bool | int | float) and not isinstance(array, np.generic)
        dtypes[name] = type(array) if number else dtype_name(array) if hasattr(array, "dtype") else bound.dtypes[name]
    return found, dtypes
