"""`check_equivalence`: any callable held against the definition of a spec: derived bounds, adversarial input."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import Any

import numpy as np

from redalg.errors import RedalgError
from redalg.numeric.windows import refuse_windows
from redalg.proofs.audits.drawing import hypothesis_of
from redalg.specs.collection import catalog
from redalg.testing.adversarial import KINDS, LONG, USUAL, Arrays, Case, cases, long_cases, make, nearly, taken
from redalg.testing.calling import LAYOUTS, alike
from redalg.testing.holding import Difference, Held, Tally
from redalg.testing.reducing import reduced
from redalg.testing.repeating import Repeats

WHERE = "redalg.testing.check_equivalence"
SHOWN = 200  # elements of an array that an error writes out
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
    definition, `calls` made in all; `worst` error in units of its bound, by kind of case in `worst_by_kind`.

    >>> import redalg as ra
    >>> report = check_equivalence(ra.parse("return y = max[j](x[i,j])"), lambda x: x.max(axis=1, initial=-np.inf))
    >>> report.compared > report.cases > 0, report.open, report.worst
    (True, 0, 0.0)
    """

    cases: int
    compared: int
    open: int
    refused: int
    calls: int
    worst: float
    worst_at: str
    worst_by_kind: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        kinds = ", ".join(f"{k} {w:.3g}" for k, w in self.worst_by_kind.items())
        at = f" ({self.worst_at})" if self.worst_at else ""
        return (
            f"{self.cases} cases, {self.compared} numbers compared, {self.open} open, {self.refused} cases undefined, "
            f"{self.calls} calls\n"
            f"largest error {self.worst:.3g} of its bound{at}\nby kind: {kinds}"
        )


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
    calls: int = 300,
    layouts: Iterable[str] | None = None,
    long: Iterable[int] | None = None,
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
    * `calls`: how often the largest ordinary case is called again: the bits may not change, nor a result or an argument
      of before; nor may it matter that others went before that differ in the middle of one argument, or that the same
      arrays held other numbers.
    * `layouts` in which the ordinary cases are handed over as well, of contiguous, fortran, strided, reversed,
      unaligned, sliced (columns of a wider array), turned (its transpose), read-only, broadcast (rows, then columns,
      that are all equal, with strides of 0); default all, with `convert` contiguous alone.
    * `long`: lengths of the first reduced axis that are tried with one row; default powers of two from 32 to 2048 or
      their neighbours, and 4097, 32769 and 65537, where neither `sizes` nor other `kinds` than ordinary ones are
      chosen. With them go 5, 33, 130 and 65537 short rows. What is longer than 2049 has sixteen different elements, in
      two orders, and is judged by these (`redalg.testing.repeating`); so are rows. By default it is left out where
      positions, lists of the k largest or a user's monoid decide along the axis; `long` tries it element by element.
    * `units`: how many bounds an error may be. The bound is a running error analysis (Higham, 2002, section 3.3) of
      the definition as written, with sums in any bracketing, or of the incremental form if that is larger
      (`redalg.testing.limits`). Where infinities or NaN belong they must be there and nowhere else. A number is
      open, and not judged, where errors decide a comparison or where the way to it leads beyond the largest number.

    Hypothesis draws the input and makes smaller what fails (``pip install 'redalg[testing]'``): a function of the
    arguments, as long as the callable is one. A difference that is not there when the callable is called again says so.

    No call may write to its arguments, nor return their memory. A compiled form that lists the assumption
    `finite_stage_values` may give NaN in places whose definition meets a reduction that is not finite, or a divisor 0.

    Returns: a report with the number of cases and the largest error in units of its bound.
    Raises: `NotEquivalent` (a RedalgError and an AssertionError) with the smallest failing input found; RedalgError for
    arguments that do not fit, or where Hypothesis is not installed.

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
    hypothesis_of(WHERE)
    _check_numbers(units, calls, seed)
    held, draw = _held(spec, implementation, dtype, arithmetic, convert, flush_subnormals, sample, units)
    wanted, ways = _kinds(kinds), _layouts(layouts, convert)
    lengths, longest = _lengths(held.spec, sizes or {}), _long(long, wanted, sizes or {})
    tried, number = _Tried(held, ways), _numpy_dtype(dtype)
    for case in cases(held.spec, number, wanted, lengths, seed, draw):
        tried.hold(case, steady=True)
    for case in long_cases(held.spec, number, longest, lengths, seed, draw):
        tried.hold(case)
    if tried.last is not None and calls > 1:
        others = make(held.spec, tried.last.sizes, number, "ordinary", seed + 1, draw)
        tried.again(tried.last, others, calls, sample is None)
    return tried.report()


class _Tried:
    """What has been held so far; `last` is the last ordinary case of usual length."""

    def __init__(self, held: Held, ways: Sequence[str]) -> None:
        self.held, self.ways = held, ways
        self.tallies: dict[str, Tally] = {}
        self.count = self.refused = self.calls = 0
        self.at = ""
        self.last: Case | None = None

    def hold(self, case: Case, steady: bool = False) -> None:
        limits = self.held.limits(case.arrays, case.repeats)
        if limits is None:
            self.refused += 1
            return
        self.count += 1
        before = max([0.0, *(t.worst for t in self.tallies.values())])
        tally = self.tallies.setdefault(case.kind, Tally())
        self.refuse(case, self.held.compared(case.arrays, limits, tally, repeats=case.repeats))
        self.at = str(case) if tally.worst > before else self.at
        self.calls += 1
        if steady and case.kind == "ordinary":
            self.last = case
            for way in self.ways:
                self.refuse(case, self.held.compared(case.arrays, limits, Tally(), way), way)
                self.calls += 1

    def again(self, case: Case, others: Arrays, calls: int, free: bool) -> None:
        """A case again and again, beside others; `free`: elements may change places, equal ones stand side by side."""
        for arrays in (others, *(nearly(case.arrays, others) if free else ())):
            self.refuse(replace(case, arrays=arrays), self.held.difference(arrays))
            self.calls += 1
        for axis in (0, -1) if free and "broadcast" in self.ways else ():
            equal = {k: alike(v, axis) if isinstance(v, np.ndarray) and v.size else v for k, v in case.arrays.items()}
            for way in ("contiguous", "broadcast"):
                self.refuse(replace(case, arrays=equal), self.held.difference(equal, way), way)
                self.calls += 1
        self.refuse(case, self.held.unsteady(case.arrays, others, calls))
        self.calls += calls

    def refuse(self, case: Case, found: Difference | None, way: str = "contiguous") -> None:
        if found is not None:
            raise _error(self.held, case, found, way)

    def report(self) -> EquivalenceReport:
        worst = {kind: tally.worst for kind, tally in self.tallies.items()}
        compared, undecided = (sum(getattr(t, n) for t in self.tallies.values()) for n in ("compared", "open"))
        largest = max(worst.values(), default=0.0)
        return EquivalenceReport(self.count, compared, undecided, self.refused, self.calls, largest, self.at, worst)


def _held(
    spec: Any, implementation: Any, dtype: Any, arithmetic: Any, convert: Any, flush: bool, sample: Any, units: float
) -> tuple[Held, Any]:
    form, own = spec if hasattr(spec, "plan") else None, sample
    if isinstance(spec, str):
        entry = catalog.entry(spec)
        spec = entry.spec
        sample = sample or (lambda sizes, seed: entry.sample(seed, **sizes))
    spec = form.spec if form is not None else spec
    if not hasattr(spec, "output_axes"):
        raise RedalgError(f"a {type(spec).__name__}", WHERE, "the definition of a spec is the judge", "pass a Spec")
    if not callable(implementation):
        raise RedalgError(f"{implementation!r}", WHERE, "it cannot be called", "pass a function of the spec's tensors")
    refuse_windows(spec.tensors, WHERE)
    if any("complex" in d.domain for d in spec.tensors):
        raise RedalgError("a spec of complex tensors", WHERE, "there is no error analysis for them", "compare by hand")
    name = _numpy_dtype(dtype).name
    computed = arithmetic or ACCUMULATES.get(name, name)
    for word, given in (("dtype", name), ("arithmetic", computed)):
        if given not in ("float64", "float32", "float16", "bfloat16"):
            why = "the bounds are known for float64, float32, float16 and bfloat16"
            raise RedalgError(f"{word}={given!r}", WHERE, why, f'{word}="float32"')
    draw = sample if own is None else _checked_sample(spec, own)
    return Held(spec, implementation, name, computed, convert, flush, form, float(units)), draw


def _check_numbers(units: Any, calls: Any, seed: Any) -> None:
    """A bound that is no number would let every callable pass."""
    if not isinstance(units, Real) or not 0 < float(units) < math.inf:
        raise RedalgError(f"units={units!r}", WHERE, "an error may be a positive number of bounds", "units=1")
    if not isinstance(calls, Integral) or calls < 0:
        raise RedalgError(
            f"calls={calls!r}", WHERE, "it says how often one call is repeated", "calls=300, or 0 for none"
        )
    if not isinstance(seed, Integral):
        raise RedalgError(f"seed={seed!r}", WHERE, "it is no integer", "seed=0")


def _checked_sample(spec: Any, sample: Any) -> Any:
    """The caller's `sample`, whose arguments have to be those of the spec; what it leaves out is drawn."""

    def draw(sizes: Mapping[str, int], seed: int) -> Mapping[str, Any]:
        found = sample(sizes, seed)
        fix = 'sample=lambda sizes, seed: {"x": …}, arrays of these lengths'
        if not isinstance(found, Mapping):
            raise RedalgError(f"a sample that is a {type(found).__name__}", WHERE, "arguments go by name", fix)
        shapes = {d.name: tuple(sizes[a] for a in d.axes) for d in spec.tensors}
        for name, x in found.items():
            if name not in shapes:
                raise RedalgError(f"a sample of {name!r}", WHERE, f"the spec reads {', '.join(shapes)}", fix)
            if np.shape(x) != shapes[name]:
                why = f"for {dict(sizes)} it has the shape {shapes[name]}"
                raise RedalgError(f"a sample of {name} of shape {np.shape(x)}", WHERE, why, fix)
        return found

    return draw


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


def _layouts(layouts: Iterable[str] | None, convert: Any) -> tuple[str, ...]:
    """Those beside the contiguous one; arrays of other libraries are handed over as `convert` makes them."""
    if layouts is None:
        return LAYOUTS[1:] if convert is None else ()
    given = (layouts,) if isinstance(layouts, str) else tuple(layouts)
    unknown = [w for w in given if w not in LAYOUTS]
    if unknown:
        raise RedalgError(f"the layout {unknown[0]!r}", WHERE, f"they are {', '.join(LAYOUTS)}", "name some of them")
    return tuple(w for w in given if w != LAYOUTS[0])


def _long(long: Iterable[int] | None, kinds: tuple[str, ...], sizes: Mapping[str, Any]) -> tuple[int, ...]:
    """Lengths of one long row: usual ones where neither lengths nor kinds of input are chosen."""
    if long is None:
        return USUAL if not sizes and "ordinary" in kinds else ()
    found = (long,) if isinstance(long, int) else tuple(long)
    if any(not isinstance(n, int) or n < 0 for n in found):
        raise RedalgError(f"long={found!r}", WHERE, "lengths are integers that are not negative", "long=(1023, 1025)")
    return found


def _lengths(spec: Any, sizes: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    axes = {a for d in spec.tensors for a in d.axes}
    found = {}
    for axis, given in sizes.items():
        lengths = tuple(given) if isinstance(given, Iterable) else (given,)
        if axis not in axes or not lengths or any(not isinstance(n, int) or n < 0 for n in lengths):
            why = f"the axes are {', '.join(sorted(axes))}, and lengths are not negative"
            raise RedalgError(f"sizes={{{axis!r}: {given!r}}}", WHERE, why, 'sizes={"j": (0, 1, 17)}')
        found[axis] = lengths
    return found


def _error(held: Held, case: Case, found: Difference, way: str) -> NotEquivalent:
    """The error of the smallest input that still fails; what takes several calls to be seen is left as it is."""
    if case.repeats is not None:
        case, found = _shorter(held, case, case.repeats, found)
    arrays, again = case.arrays, ""
    if found.repeats and (case.repeats is None or len(case.repeats.which) <= LONG[-1]):
        arrays, found = reduced(held.spec, arrays, found, lambda a: held.difference(a, way))
        again = "" if held.difference(arrays, way) else ", but not when it was called again"
    name = getattr(held.implementation, "__name__", type(held.implementation).__name__)
    at = f"[{', '.join(map(str, found.index))}]" if len(found.index) > 1 or any(found.index) else ""
    given = ", ".join(f"{k} = {_shown(np.asarray(v))}" for k, v in arrays.items())
    given += f" ({way} arrays)" if way != LAYOUTS[0] else ""
    if found.reason:
        what, why = f"output {found.output} of {name}", f"{found.reason} for {given}{again}"
    else:
        what = f"output {found.output}{at} of {name} is {found.found} instead of {found.exact!r}"
        why = f"the error {found.error:.3g} exceeds the bound {found.bound:.3g} for {given}{again}"
    shapes = {a: n for d in held.spec.tensors for a, n in zip(d.axes, np.shape(arrays[d.name]), strict=True)}
    lengths = "".join(f", {a}={n}" for a, n in shapes.items())
    where = f"{WHERE}, {case.kind} input{lengths}, {held.dtype}"
    error = NotEquivalent(what, where, why, f"correct {name}, or leave kinds= to what it is meant for")
    error.arrays, error.kind = arrays, case.kind
    for part in ("output", "index", "found", "exact", "error", "bound"):
        setattr(error, part, getattr(found, part))
    return error


def _shorter(held: Held, case: Case, repeats: Repeats, found: Difference) -> tuple[Case, Difference]:
    """The shortest beginning of a long stream that bisection finds to fail."""
    low, high, shortest = 0, len(repeats.which), case
    while high - low > 1:
        middle = (low + high) // 2
        few = repeats.until(middle)
        arrays = taken(held.spec, case.arrays, repeats.axis, np.arange(middle))
        other = held.difference(arrays, repeats=few)
        if other is None:
            low = middle
        else:
            high, found = middle, other
            shortest = Case(case.kind, {**case.sizes, repeats.axis: middle}, arrays, few)
    return shortest, found


def _shown(array: np.ndarray) -> str:
    return str(array.tolist()) if array.size <= SHOWN else f"{array.dtype} of shape {array.shape}"
