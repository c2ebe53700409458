"""Integers on a GPU: kernels calculate in int64, which wraps, so calls whose integers might leave it are looked at.

What dtypes and lengths say is settled once per kind of call; where it is enough, calls cost nothing. Other calls find
the largest magnitudes of their integers on the device first, by a maximum and a minimum that are derived and compiled
like every form, in the order of the caller's stream, and wait for them. Where these do not show that int64 holds
everything, NumPy computes the call on the host, and raises where it has to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from redalg import _hooks
from redalg.errors import RedalgError
from redalg.graph.masked import new_axes
from redalg.kernels.launch import driver
from redalg.kernels.launch.arrays import NUMPY, Framework, dtype_name, handle_of
from redalg.kernels.launch.zero_length import computed_on_host
from redalg.language.grammar import parse
from redalg.numeric.integer_bounds import Integers, infinite_extremum
from redalg.numeric.integers import LARGEST, magnitude
from redalg.streaming import run_numpy

if TYPE_CHECKING:
    from redalg.form import Form
    from redalg.kernels.ir.layouts import View

WHOLE = frozenset("int64 int32 int16 int8 uint64 uint32 uint16 uint8 bool".split())


class Looking:
    """The calls of one kind whose integers might leave int64. `names`: the tensors to be looked at."""

    def __init__(
        self,
        form: Form,
        framework: Framework,
        device: int,
        found: Integers,
        unsigned: Sequence[str],
        sizes: Mapping[str, int],
    ) -> None:
        self.form, self.framework, self.device = form, framework, device
        self._integers, self._unsigned, self._sizes = found, frozenset(unsigned), sizes
        self.names = tuple(sorted({*found.names, *unsigned}))

    def __str__(self) -> str:
        what = ", ".join(self.names) or "lengths"
        return f"integers might leave int64, by {what}: each call looks first, and NumPy computes those that might."

    def fits(self, arrays: Mapping[str, Any], stream: Any) -> bool:
        """Whether int64 holds every integer of this call.

        Raises: RedalgError while the stream is being captured, unless the numbers of the call settle it.
        """
        numbers = {name: abs(int(arrays[name])) for name in self.names if isinstance(arrays[name], bool | int)}
        if not self._unsigned and self._integers.certain(self._sizes, numbers):
            return True
        driver.activate(self.device)
        handle = self._handle(stream)
        self._refuse_captured(handle)
        seen = [name for name in self.names if name not in numbers]
        found = numbers | {name: self._magnitude(arrays[name], stream, handle) for name in seen}
        return max(found.values(), default=0) <= LARGEST + 1 and self._integers.fit(self._sizes, found)

    def computed(
        self, arrays: Mapping[str, Any], outputs: Sequence[tuple[str, tuple[int, ...], str]], stream: Any
    ) -> list[Any]:
        """The outputs of a call by NumPy. Raises: RedalgError where one is outside int64."""
        driver.wait(self._handle(stream))
        return computed_on_host(lambda host: run_numpy(self.form, host), self.framework, arrays, outputs)

    def _handle(self, stream: Any) -> int:
        return self.framework.stream(self.device) if stream is None else handle_of(stream)

    def _magnitude(self, x: Any, stream: Any, handle: int) -> int:
        if self.framework is NUMPY:
            return magnitude(np.asarray(x))
        if 0 in tuple(x.shape):
            return 0
        ends = self._extrema(x, stream) if len(x.shape) else [self.framework.enter(x)]
        values = [self._value(y, handle) for y in ends]
        if dtype_name(x) == "uint64" and min(values) < 0:  # kernels read uint64 as int64
            return 1 << 64
        return max(map(abs, values))

    def _extrema(self, x: Any, stream: Any) -> list[Any]:
        strides = self.framework.strides(x)
        run = extrema_run(tuple(sorted(range(len(strides)), key=lambda d: -abs(strides[d]))))
        return list(run(k=x, stream=stream).values())

    def _value(self, x: Any, handle: int) -> int:
        """The only element of an array, when everything before on the stream is done."""
        dtype = np.dtype(dtype_name(x).replace("uint64", "int64"))
        return int(np.frombuffer(driver.read(self.framework.pointer(x), dtype.itemsize, handle), dtype)[0])

    def _refuse_captured(self, handle: int) -> None:
        if self.framework is NUMPY or not driver.is_capturing(handle):
            return
        what = ", ".join(self.names) or "lengths"
        raise RedalgError(
            f"a call whose integers might leave int64 (by {what}) while a stream is captured",
            "the call",
            "kernels wrap there, so that data are looked at before each call; a captured stream runs nothing, "
            "and what a graph is replayed on is seen by nobody",
            "call it outside the capture, or pass dtypes that rule it out: narrower integers, or floats",
        )


def looking(
    form: Form, framework: Framework, device: int, dtypes: Mapping[str, Any], views: Mapping[str, View], real: str
) -> Looking | None:
    """What a kind of call has to find out before its kernels, which calculate in `real`, run; None where dtypes and
    lengths say enough."""
    outputs, sizes = list(form.spec.outputs.values()), _sizes(form, views)
    found, sizes = Integers(outputs, _kinds(dtypes), form.plan, real), sizes | new_axes(*outputs)
    unsigned = [n for n, d in dtypes.items() if d == "uint64"]
    if not unsigned and found.certain(sizes):
        return None
    return Looking(form, framework, device, found, unsigned, sizes)


def has_infinite_extremum(form: Form, dtypes: Mapping[str, Any], views: Mapping[str, View]) -> bool:
    """Whether an extremum of integers is over an axis of length 0, where the definition has an infinity."""
    if all(all(view.shape) for view in views.values()):
        return False
    return infinite_extremum(form.spec.outputs.values(), _sizes(form, views), _kinds(dtypes)) is not None


def _kinds(dtypes: Mapping[str, Any]) -> dict[str, Any]:
    return {n: d if isinstance(d, type) else np.dtype(d if d in WHOLE else "float32") for n, d in dtypes.items()}


def _sizes(form: Form, views: Mapping[str, View]) -> dict[str, int]:
    shapes = {t: views[t.name].shape for t in form.spec.tensors if t.name in views}
    return {axis: n for t, shape in shapes.items() for axis, n in zip(t.axes, shape, strict=True)}


def extrema(order: tuple[int, ...]) -> Form:
    """The largest and the smallest element of an array, read along its axes in this order (the last one innermost).

    >>> extrema((0, 1)).compile("numpy")(k=np.array([[3, -5], [2, 4]]))
    {'high': array(4), 'low': array(-5)}
    """
    place = ",".join(f"d{n}" for n in range(len(order)))
    along = ",".join(f"d{n}" for n in order)
    return _hooks.derive(parse(f"return high = max[{along}](k[{place}]), low = min[{along}](k[{place}])"))


@lru_cache(maxsize=64)
def extrema_run(order: tuple[int, ...]) -> Any:
    run = extrema(order).compile("cuda")
    run.looks = False  # what looks is not looked at
    return run
