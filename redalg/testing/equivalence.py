"""`check_equivalence`: any callable held against the definition of a spec: derived bounds, adversarial input."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from redalg.binding_origin import to_numpy
from redalg.errors import NotDecomposable, RedalgError, Undecided
from redalg.testing.adversarial import KINDS, Arrays, Case, cases
from redalg.testing.arithmetic import NARROW
from redalg.testing.limits import Limits, definition_limits, form_bounds
from redalg.testing.reducing import reduced

WHERE = "redalg.testing.check_equivalence"
ACCUMULATES = {"float16": "float32", "bfloat16": "float32"}


class NotEquivalent(RedalgError, AssertionError):
    """A callable differs from the definition of a spec by more than the bound.

    Attributes: ``arrays`` (the smallest failing input found), ``kind``, ``output``, ``index``, ``found``, ``exact``,
    ``error`` and ``bound`` (numbers, or None where the callable raised or returned another shape).

    >>> import redalg as ra
    >>> spec = ra.parse("return y = sum[j](x[i,j])")
    >>> try:
    ...     check_equivalence(spec, lambda x: x[:, 1:].sum(axis=1), kinds=["ordinary"])
    ... except NotEquivalent as found:
    ...     print(found.kind, found.output, found.index, found.arrays["x"].shape, found.error > found.bound)
    ordinary y (0,) (1, 1) True
    """

    arrays: Arrays
    kind: str
    output: str
    index: tuple[int, ...]
    found: Any
    exact: Any
    error: float | None
    bound: float | None


@dataclass(frozen=True)
class EquivalenceReport:
    """`cases` held, `compared` numbers, `open` numbers about which the bound says nothing, `refused` cases that have no
    definition; `worst` error in units of its bound, by kind of case in `worst_by_kind`.

    >>> import redalg as ra
    >>> report = check_equivalence(ra.parse("return y = max[j](x[i,j])"), lambda x: x.max(axis=1, initial=-np.inf))
    >>> report.compared > report.cases > 0, report.open, report.worst
    (True, 0, 0.0)
    """

    cases: int
    compared: int
    open: int
    refused: int
    worst: float
    worst_at: str
    worst_by_kind: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        kinds = ", ".join(f"{k} {w:.3g}" for k, w in self.worst_by_kind.items())
        at = f" ({self.worst_at})" if self.worst_at else ""
        return (
            f"{self.cases} cases, {self.compared} numbers compared, {self.open} open, {self.refused} cases undefined\n"
            f"largest error {self.worst:.3g} of its bound{at}\nby kind: {kinds}"
        )


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
        from redalg.derive import verdict

        try:
            found = verdict(self.spec, max_passes=3)
        except RedalgError:
            return None
        return None if isinstance(found, NotDecomposable | Undecided) else found

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

    def call(self, arrays: Arrays) -> dict[str, np.ndarray]:
        """The outputs by name, as NumPy arrays on the host."""
        given = {k: self._converted(v) for k, v in arrays.items()}
        found = self.implementation(**given) if self.by_name else self.implementation(*given.values())
        names = list(self.spec.outputs)
        if isinstance(found, Mapping):
            return {name: on_host(found[name]) for name in names}
        parts = found if isinstance(found, tuple | list) and len(names) > 1 else [found]
        return {name: on_host(part) for name, part in zip(names, parts, strict=True)}

    def _converted(self, value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        return self.convert(value.copy()) if self.convert is not None else value.copy()

    def limits(self, arrays: Arrays) -> Limits | None:
        """None where the spec has no value for these lengths."""
        try:
            return definition_limits(self.spec, arrays, self.arithmetic, self.flush)
        except RedalgError:
            return None

    def difference(self, arrays: Arrays) -> Difference | None:
        """The first result outside its bound; None where there is none, or no definition."""
        limits = self.limits(arrays)
        return None if limits is None else self.compared(arrays, limits, Tally())

    def compared(self, arrays: Arrays, limits: Limits, tally: Tally) -> Difference | None:
        """The first result outside its bound, with what was compared added to the tally."""
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                results = self.call(arrays)
        except Exception as error:
            return Difference(next(iter(self.spec.outputs)), reason=f"it raised {type(error).__name__}: {error}")
        outside = (self._outside(n, results[n], limits, arrays, tally) for n in self.spec.outputs)
        return next((found for found in outside if found is not None), None)

    def _outside(self, name: str, result: Any, limits: Limits, arrays: Arrays, tally: Tally) -> Difference | None:
        exact, bounds = limits.exact[name], limits.bounds[name]
        if result.shape != exact.shape:
            return Difference(name, reason=f"its shape is {result.shape} instead of {exact.shape}")
        got = result.astype(float)
        units = self._units(got, exact, bounds)
        if (units > self.tolerance).any() and self.form is not None:
            bounds = np.fmax(bounds, self._of_form(arrays)[name])
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


def on_host(array: Any) -> np.ndarray:
    """An array of any library as NumPy sees it, copied from a device if it lies on one."""
    for method in ("copy_to_host", "get"):
        if hasattr(array, "__cuda_array_interface__") and hasattr(array, method):
            return np.asarray(getattr(array, method)())
    if type(array).__module__.partition(".")[0] == "torch":
        array = array.detach().cpu()
    return np.asarray(to_numpy(array))


def check_equivalence(
    spec: Any,
    implementation: Callable[..., Any],
    *,
    sizes: Mapping[str, int | Sequence[int]] | None = None,
    dtype: Any = "float64",
    arithmetic: str | None = None,
    kinds: Iterable[str] = KINDS,
    convert: Callable[[np.ndarray], Any] | None = None,
    sample: Callable[..., Mapping[str, Any]] | None = None,
    flush_subnormals: bool = False,
    units: float = 1.0,
    seed: int = 0,
) -> EquivalenceReport:
    """Hold a callable against the definition of a spec on adversarial input, within derived error bounds.

    `implementation` takes the tensors of the spec by name (or in their order, if its parameters are named otherwise)
    and returns the output, or several as a dict or in their order. `spec` may be a form, or the name of a catalog spec.

    * `sizes`: lengths of axes, or several to try. Default 0, 1, 2, 3 and 17 along the axes of the outermost
      reductions, 3 along the others.
    * `dtype`: the float type of the tensors (float64, float32, float16, or bfloat16 of ml_dtypes); conditions are
      bool, integers int64, scalars Python numbers.
    * `arithmetic`: the float type computed in; default `dtype`, but float32 for 16-bit types.
    * `kinds` of input: ordinary, ties, offset (spread 1 around the square root of 1/u), zeros, subnormals, huge,
      infinities, nan, masked (rows of which nothing is left: all False, or -inf where no tensor is a mask).
    * `convert` makes an array of another library from a NumPy one, such as ``torch.from_numpy``.
    * ``sample(sizes, seed)`` draws ordinary arguments where the declared domains do not say enough.
    * `flush_subnormals`: the arithmetic may replace subnormal numbers by zero.
    * `units`: how many bounds an error may be. The bound is a running error analysis (Higham, 2002, section 3.3) of
      the definition as written, with sums in any bracketing, or of the incremental form if that is larger
      (`redalg.testing.limits`). Where infinities or NaN belong they must be there and nowhere else. A number is
      open, and not judged, where errors decide a comparison or where the way to it leads beyond the largest number.

    Returns: a report with the number of cases and the largest error in units of its bound.
    Raises: `NotEquivalent` (a RedalgError and an AssertionError) with the smallest failing input found; RedalgError for
    arguments that do not fit.

    >>> import numpy as np
    >>> import redalg as ra
    >>> x = ra.tensors("x[i,j]")
    >>> spec = ra.Spec(y=ra.logsumexp(x, "j"))
    >>> def naive(x):
    ...     return np.log(np.exp(x).sum(axis=1))
    >>> check_equivalence(spec, naive, kinds=["ties"]).worst < 1
    True
    >>> check_equivalence(spec, naive, kinds=["huge"])
    Traceback (most recent call last):
        ...
    redalg.testing.equivalence.NotEquivalent: refused: output y of naive is inf instead of 1000.0
    where:   redalg.testing.check_equivalence, huge input, i=1, j=1, float64
    why:     the error inf exceeds the bound 1.11e-13 for x = [[1000.0]]
    try:     correct naive, or leave kinds= to what it is meant for
    """
    held, draw = _held(spec, implementation, dtype, arithmetic, convert, flush_subnormals, sample, units)
    wanted = _kinds(kinds)
    lengths = _lengths(held.spec, sizes or {})
    tallies: dict[str, Tally] = {}
    count = refused = 0
    at = ""
    for case in cases(held.spec, _numpy_dtype(dtype), wanted, lengths, seed, draw):
        limits = held.limits(case.arrays)
        if limits is None:
            refused += 1
            continue
        count += 1
        tally, before = tallies.setdefault(case.kind, Tally()), max([0.0, *(t.worst for t in tallies.values())])
        found = held.compared(case.arrays, limits, tally)
        if found is not None:
            raise _error(held, case, found)
        at = str(case) if tally.worst > before else at
    worst = {kind: tally.worst for kind, tally in tallies.items()}
    compared, undecided = (sum(getattr(t, n) for t in tallies.values()) for n in ("compared", "open"))
    return EquivalenceReport(count, compared, undecided, refused, max(worst.values(), default=0.0), at, worst)


def _held(
    spec: Any, implementation: Any, dtype: Any, arithmetic: Any, convert: Any, flush: bool, sample: Any, units: float
) -> tuple[Held, Any]:
    form = spec if hasattr(spec, "plan") else None
    if isinstance(spec, str):
        from redalg.specs import catalog

        entry = catalog.entry(spec)
        spec = entry.spec
        sample = sample or (lambda sizes, seed: entry.sample(seed, **sizes))
    spec = form.spec if form is not None else spec
    if not hasattr(spec, "output_axes"):
        raise RedalgError(f"a {type(spec).__name__}", WHERE, "the definition of a spec is the judge", "pass a Spec")
    if not callable(implementation):
        raise RedalgError(f"{implementation!r}", WHERE, "it cannot be called", "pass a function of the spec's tensors")
    if any("complex" in d.domain for d in spec.tensors):
        raise RedalgError("a spec of complex tensors", WHERE, "there is no error analysis for them", "compare by hand")
    name = _numpy_dtype(dtype).name
    computed = arithmetic or ACCUMULATES.get(name, name)
    for word, given in (("dtype", name), ("arithmetic", computed)):
        if given not in ("float64", "float32", "float16", "bfloat16"):
            why = "the bounds are known for float64, float32, float16 and bfloat16"
            raise RedalgError(f"{word}={given!r}", WHERE, why, f'{word}="float32"')
    return Held(spec, implementation, name, computed, convert, flush, form, float(units)), sample


def _numpy_dtype(dtype: Any) -> np.dtype:
    try:
        if dtype == "bfloat16":
            import ml_dtypes

            return np.dtype(ml_dtypes.bfloat16)
        return np.dtype(dtype)
    except (TypeError, ImportError) as error:
        raise RedalgError(f"dtype={dtype!r}", WHERE, str(error), 'dtype="float32"') from error


def _kinds(kinds: Iterable[str]) -> tuple[str, ...]:
    given = (kinds,) if isinstance(kinds, str) else tuple(kinds)
    for kind in given or ("none",):
        if kind not in KINDS:
            raise RedalgError(f"the kind {kind!r}", WHERE, f"the kinds are {', '.join(KINDS)}", "name some of them")
    return given


def _lengths(spec: Any, sizes: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    axes = {a for d in spec.tensors for a in d.axes}
    found = {}
    for axis, given in sizes.items():
        lengths = (given,) if isinstance(given, int) else tuple(given)
        if axis not in axes or not lengths or any(not isinstance(n, int) or n < 0 for n in lengths):
            why = f"the axes are {', '.join(sorted(axes))}, and lengths are not negative"
            raise RedalgError(f"sizes={{{axis!r}: {given!r}}}", WHERE, why, 'sizes={"j": (0, 1, 17)}')
        found[axis] = lengths
    return found


def _error(held: Held, case: Case, found: Difference) -> NotEquivalent:
    """The error of the smallest input that still fails."""
    arrays, found = reduced(held.spec, case.arrays, found, held.difference)
    name = getattr(held.implementation, "__name__", type(held.implementation).__name__)
    at = f"[{', '.join(map(str, found.index))}]" if len(found.index) > 1 or any(found.index) else ""
    given = ", ".join(f"{k} = {np.asarray(v).tolist()}" for k, v in arrays.items())
    if found.reason:
        what, why = f"output {found.output} of {name}", f"{found.reason} for {given}"
    else:
        what = f"output {found.output}{at} of {name} is {found.found} instead of {found.exact!r}"
        why = f"the error {found.error:.3g} exceeds the bound {found.bound:.3g} for {given}"
    shapes = {a: n for d in held.spec.tensors for a, n in zip(d.axes, np.shape(arrays[d.name]), strict=True)}
    lengths = "".join(f", {a}={n}" for a, n in shapes.items())
    where = f"{WHERE}, {case.kind} input{lengths}, {held.dtype}"
    error = NotEquivalent(what, where, why, f"correct {name}, or leave kinds= to what it is meant for")
    error.arrays, error.kind = arrays, case.kind
    for part in ("output", "index", "found", "exact", "error", "bound"):
        setattr(error, part, getattr(found, part))
    return error
