"""One callable beside one spec: calls it, and compares what it returns with the definition within a derived bound."""

from __future__ import annotations

import inspect
import warnings
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from redalg.api import verdict
from redalg.errors import NotDecomposable, RedalgError, Undecided
from redalg.testing.adversarial import Arrays, taken
from redalg.testing.arithmetic import NARROW
from redalg.testing.calling import Misbehaved, call, handed, refilled, repeated, written_to
from redalg.testing.limits import Limits, definition_limits, form_bounds, unbounded_stages
from redalg.testing.repeating import Repeats, repeated_limits

KEPT = 4  # calls whose arguments are looked at again after the next ones
ENDS = 128  # elements of either end of a long stream that stand for it where a form's error is analysed


@dataclass(frozen=True)
class Difference:
    """Where a result leaves its bound, or why there is none to compare."""

    output: str
    index: tuple[int, ...] = ()
    found: Any = None
    exact: Any = None
    error: float | None = None
    bound: float | None = None
    reason: str = ""
    repeats: bool = True  # whether one call shows it


@dataclass
class Tally:
    compared: int = 0
    open: int = 0
    worst: float = 0.0


@dataclass(frozen=True)
class Held:
    """A callable beside a spec: calls it, and compares what it returns with the definition."""

    spec: Any
    implementation: Callable[..., Any]
    dtype: str
    arithmetic: str
    convert: Callable[[Any], Any] | None
    flush: bool
    given_form: Any = None
    tolerance: float = 1.0

    @cached_property
    def form(self) -> Any:
        """The incremental form, where there is one: its error analysis allows for other algorithms."""
        if self.given_form is not None:
            return self.given_form
        try:
            found = verdict(self.spec, max_passes=3)
        except RedalgError:
            return None
        return None if isinstance(found, NotDecomposable | Undecided) else found

    @cached_property
    def lists_finite(self) -> bool:
        """Whether the callable is made of a form that lists "finite_stage_values": it may give NaN where one is not."""
        forms = (self.given_form, getattr(self.implementation, "form", None))
        return any("finite_stage_values" in getattr(form, "assumptions", ()) for form in forms)

    @cached_property
    def by_name(self) -> bool:
        """Whether the callable takes the tensors by their names; else they come in the order of the spec."""
        try:
            parameters = inspect.signature(self.implementation).parameters
        except (TypeError, ValueError):
            return False
        named = {n for n, p in parameters.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        free = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        return free or {d.name for d in self.spec.tensors} <= named

    def call(self, arrays: Arrays, layout: str = "contiguous", given: Arrays | None = None) -> dict[str, np.ndarray]:
        """The outputs by name, as NumPy arrays on the host; `given`: what is handed over."""
        names = list(self.spec.outputs)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return call(self.implementation, arrays, names, self.by_name, self.convert, layout, given)

    def limits(self, arrays: Arrays, repeats: Repeats | None = None) -> Limits | None:
        """None where the spec has no value for these lengths."""
        try:
            if repeats is not None:
                return repeated_limits(self.spec, arrays, self.arithmetic, self.flush, repeats)
            return definition_limits(self.spec, arrays, self.arithmetic, self.flush)
        except RedalgError:
            return None

    def difference(
        self, arrays: Arrays, layout: str = "contiguous", repeats: Repeats | None = None
    ) -> Difference | None:
        """The first result outside its bound; None where there is none, or no definition."""
        limits = self.limits(arrays, repeats)
        return None if limits is None else self.compared(arrays, limits, Tally(), layout, repeats)

    def compared(
        self,
        arrays: Arrays,
        limits: Limits,
        tally: Tally,
        layout: str = "contiguous",
        repeats: Repeats | None = None,
    ) -> Difference | None:
        """The first result outside its bound, with what was compared added to the tally."""
        try:
            results = self.call(arrays, layout)
        except Misbehaved as found:
            return Difference(next(iter(self.spec.outputs)), reason=str(found))
        except Exception as error:
            return Difference(next(iter(self.spec.outputs)), reason=f"it raised {type(error).__name__}: {error}")
        outside = (self._outside(n, results[n], limits, arrays, tally, repeats) for n in self.spec.outputs)
        return next((found for found in outside if found is not None), None)

    def unsteady(self, arrays: Arrays, others: Arrays, calls: int) -> Difference | None:
        """What earlier calls change in later ones with the same arguments, or later calls in earlier ones."""
        kept = deque[tuple[Arrays, Arrays]](maxlen=KEPT)

        def once(numbers: Arrays) -> dict[str, np.ndarray]:
            given = handed(numbers, self.convert)
            results = self.call(numbers, given=given)
            for name in (written_to(*before) for before in kept):
                if name:
                    raise Misbehaved(f"it wrote to the argument {name} of an earlier call")
            kept.append((given, numbers))
            return results

        found = repeated([lambda: once(arrays), lambda: once(others)], calls)
        if not found and self.convert is None:  # arrays of other libraries may be copies, or constant
            found = self._refilled(arrays, others)
        return Difference(next(iter(self.spec.outputs)), reason=found, repeats=False) if found else None

    def _refilled(self, arrays: Arrays, others: Arrays) -> str:
        try:
            return refilled(lambda numbers, given: self.call(numbers, given=given), arrays, others)
        except Misbehaved as found:
            return f"with arrays that it took before {found}"
        except Exception as error:
            return f"a call with arrays that it took before raised {type(error).__name__}: {error}"

    def _outside(
        self, name: str, result: Any, limits: Limits, arrays: Arrays, tally: Tally, repeats: Repeats | None
    ) -> Difference | None:
        exact, bounds = limits.exact[name], limits.bounds[name]
        if result.shape != exact.shape:
            return Difference(name, reason=f"its shape is {result.shape} instead of {exact.shape}")
        got = _numbers(result, exact)
        units = self._units(got, exact, bounds)
        if (units > self.tolerance).any() and self.form is not None:
            of_form = self._of_form(arrays)[name] if repeats is None else bounds * self._ratio(name, arrays, repeats)
            bounds = np.fmax(bounds, of_form)
            units = self._units(got, exact, bounds)
        if self.lists_finite and np.isnan(got[units > self.tolerance]).any():
            open_ = np.isnan(got)
            if repeats is None:
                open_ &= unbounded_stages(self.spec, arrays, self.arithmetic, self.flush)[name]
            bounds = np.where(open_, np.inf, bounds)
            units = self._units(got, exact, bounds)
        tally.compared += units.size
        tally.open += int(np.isinf(bounds).sum())
        tally.worst = max(tally.worst, float(units.max(initial=0.0)))
        if not (units > self.tolerance).any():
            return None
        at = np.unravel_index(int(np.argmax(units)), units.shape)
        index = tuple(int(i) for i in at)
        limit = float(self._limit(exact, bounds)[at])
        return Difference(name, index, result[at], float(exact[at]), abs(float(got[at] - exact[at])), limit)

    def _of_form(self, arrays: Arrays) -> dict[str, np.ndarray]:
        try:
            return form_bounds(self.form, arrays, self.arithmetic)
        except (RedalgError, ArithmeticError, NotImplementedError, IndexError):
            return {name: np.zeros(()) for name in self.spec.outputs}

    def _ratio(self, name: str, arrays: Arrays, repeats: Repeats) -> float:
        """How much more the error of the form may be than that of the definition, by both ends of a long stream."""
        n = len(repeats.which)
        few = taken(self.spec, arrays, repeats.axis, np.r_[0 : min(n, ENDS), max(ENDS, n - ENDS) : n])
        limits = self.limits(few)
        if limits is None:
            return 1.0
        of_form, own = np.broadcast_arrays(self._of_form(few)[name], limits.bounds[name])
        known = (own > 0) & np.isfinite(own) & np.isfinite(of_form)
        return float(np.max(of_form[known] / own[known], initial=1.0))

    def _limit(self, exact: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        """The bound, and one rounding to the type of the result."""
        bits, least, _, _ = NARROW[self.dtype]
        with np.errstate(all="ignore"):
            limit = bounds + 2.0**-bits * np.abs(exact) + (bounds > 0) * 2.0 ** (least - bits)
        return np.asarray(np.where(np.isfinite(exact), limit, 0.0))

    def _units(self, got: np.ndarray, exact: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        """Errors in units of their limits: infinite for a NaN or an infinity in the wrong place, 0 where it is open."""
        with np.errstate(all="ignore"):
            limit = self._limit(exact, bounds)
            largest = np.abs(exact) + limit >= NARROW[self.dtype][2]
            fine = (got == exact) | (np.isnan(got) & np.isnan(exact)) | np.isinf(bounds)
            fine |= largest & np.isinf(got) & (np.sign(got) == np.sign(exact))
            fine |= np.isinf(exact) & (bounds > 0) & (got == np.copysign(NARROW[self.dtype][2], exact))
            error = np.where(np.isfinite(exact) & np.isfinite(got), np.abs(got - exact), np.inf)
            return np.asarray(np.where(fine | (error == 0), 0.0, error / limit))


def _numbers(result: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """A result as floats: integers have no infinities, and an extremum of none is the end of their range."""
    got = result.astype(float)
    if result.dtype.kind in "iu":
        ends = np.iinfo(result.dtype)
        for end, infinity in ((ends.min, -np.inf), (ends.max, np.inf)):
            got = np.where((exact == infinity) & (result == end), infinity, got)
    return got
