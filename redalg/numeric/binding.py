"""Validating the arrays of a call: names, dimensions, lengths, dtypes, kinds and devices, before anything is computed.

Every refusal is a `RedalgError` with four parts. Nothing is guessed: no axis of length 1 is stretched, no string or
object is converted, no real tensor takes complex data. What is *not* looked at is the data itself: a tensor declared
positive may hold anything, and a form's named assumptions turn violations into NaN.

What each declaration takes: ``bool`` only bool; ``integer`` only integers; ``complex`` any number; undeclared tensors
integers, floats and bool (counted as 0 and 1). Python numbers are taken by tensors without axes and are weak in the
result's dtype. Nested lists are read as NumPy would read them.
"""

from __future__ import annotations

import difflib
import numbers
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from redalg.errors import RedalgError
from redalg.graph.masked import new_axes
from redalg.graph.node import Decl
from redalg.numeric.array_origin import (
    BFLOAT16_BITS,
    NARROW_ONLY,
    Origin,
    declared_dtype,
    dtype_name,
    is_masked_array,
    origin_of,
    to_numpy,
)
from redalg.numeric.dtypes import Flow, output_flows
from redalg.numeric.encoded import columns_of, decoded, element, refuse_wider
from redalg.numeric.integers import told
from redalg.numeric.windows import windows

if TYPE_CHECKING:
    from redalg.language.spec import Spec

_SMALLEST, _LARGEST = int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max)


@dataclass(frozen=True)
class Bound:
    """The validated arrays of a call, as NumPy arrays or weak Python numbers, with the lengths of their axes."""

    arrays: dict[str, Any]
    sizes: dict[str, int]
    dtypes: dict[str, Any]  # a NumPy dtype, or a Python type for a weak number
    origin: Origin = field(default_factory=Origin)


def bind(spec: Spec, arrays: Mapping[str, Any], *, where: str = "the call", exact: bool = False) -> Bound:
    """Validate one array for every tensor of the spec.

    >>> from redalg.language.leaves import tensors
    >>> from redalg.language.spec import Spec
    >>> x, w = tensors("x[i,j] w[j]")
    >>> bind(Spec(y=x * w), {"x": np.ones((2, 3)), "w": np.ones(4)})
    Traceback (most recent call last):
        ...
    redalg.errors.RedalgError: refused: w[j] of shape (4,)
    where:   the call
    why:     axis j has length 4 here and 3 in x[i,j]
    try:     make the lengths along j equal (an axis of length 1 is not stretched)
    """
    lists = new_axes(*spec.outputs.values())
    return bind_arrays(spec.tensors, arrays, sizes=lists, whose="the topk along it", where=where, exact=exact)


def with_unnamed(
    decls: Sequence[Decl], given: Sequence[Any], named: Mapping[str, Any], where: str = "the call"
) -> dict[str, Any]:
    """The arrays of a call by name, of which one may come without: where there is one tensor, it can only be that.

    Raises: RedalgError for several arrays without a name, several tensors, and one that is named as well.
    """
    if len(decls) == len(given) == 1 and not named and decls[0].axes:
        return {decls[0].name: given[0]}
    names = [d.name for d in decls if d.axes and not d.array]
    if len(names) == len(given) == 1 and names[0] not in named:
        return {names[0]: given[0], **named}
    what = "an array" if len(given) == 1 else f"{len(given)} arrays"
    takes = [d.name for d in decls if not d.array]
    why = f"it takes {', '.join(takes) or 'no array'}, and one array goes without a name where there is one tensor"
    if len(names) == 1 and names[0] in named:
        why = f"{names[0]} is given by name as well"
    fix = f"pass {', '.join(f'{n}=…' for n in takes)}" if takes else "leave it out"
    raise RedalgError(f"{what} without a name", where, why, fix)


def with_readings(
    decls: Sequence[Decl],
    arrays: Mapping[str, Any],
    sizes: Mapping[str, int] | None = None,
    where: str = "the call",
    padding: bool = True,
    partial: Collection[str] = (),
) -> Mapping[str, Any]:
    """The arrays of a call with one for every declaration: a tensor's array is also that of its other readings, and
    one that is read in windows comes as a view of them (`redalg.numeric.windows`); `sizes` are known lengths of axes.
    ``padding=False``: one with zeros around it comes as it is. `partial`: axes of which arrays hold a part.
    """
    if any(d.dimensions for d in decls):
        return windows(decls, _with_other_readings(decls, arrays), sizes or {}, where, padding, partial)
    return _with_other_readings(decls, arrays)


def _with_other_readings(decls: Sequence[Decl], arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    readings = [d for d in decls if d.array]
    if not readings:
        return arrays
    found = dict(arrays)
    for d in readings:
        if d.array in arrays:
            found.setdefault(d.name, arrays[d.array])
    own = {d.name for d in decls}
    return {name: x for name, x in found.items() if name in own or name not in {d.array for d in readings}}


def bind_arrays(
    decls: Sequence[Decl],
    arrays: Mapping[str, Any],
    *,
    sizes: Mapping[str, int] | None = None,
    whose: str = "what was bound before",
    origin: Origin | None = None,
    where: str = "the call",
    exact: bool = False,
    partial: Collection[str] = (),
) -> Bound:
    """Validate one array for each of ``decls`` against lengths (``sizes``) and an origin that are already settled.

    With ``exact``, arrays of Python objects are taken when every element is a real number. `partial`: axes of which
    arrays hold a part.
    """
    arrays = with_readings(decls, arrays, sizes, where, partial=partial)
    _check_names(decls, arrays, where)
    common = _common_origin(decls, arrays, origin, where)
    known: dict[str, tuple[int, str | Decl]] = {a: (n, whose) for a, n in (sizes or {}).items()}
    values: dict[str, Any] = {}
    dtypes: dict[str, Any] = {}
    for decl in decls:
        values[decl.name], dtypes[decl.name] = _admit(decl, arrays[decl.name], where, exact)
        _check_shape(decl, np.shape(values[decl.name]), known, where)
    return Bound(values, {axis: n for axis, (n, _) in known.items()}, dtypes, common)


def result_flows(spec: Spec, bound: Bound) -> dict[str, Flow]:
    """For each output its kind and, as ``.dtype``, the dtype of its result."""
    return output_flows(spec, bound.dtypes)


def result_dtypes(spec: Spec, bound: Bound) -> dict[str, np.dtype]:
    """The dtype of each output for these arrays."""
    return {name: flow.dtype for name, flow in result_flows(spec, bound).items()}


def by_output(outputs: Iterable[str], result: Any) -> dict[str, Any]:
    """Results by name, also where there is one output and the call gives the bare array."""
    return result if isinstance(result, dict) else {next(iter(outputs)): result}


# --- names and kinds -------------------------------------------------------------------------------------------------


def _check_names(decls: Sequence[Decl], arrays: Mapping[str, Any], where: str) -> None:
    names = [d.name for d in decls]
    for name in arrays:
        if name not in names:
            expected = ", ".join(map(str, decls)) or "none"
            missing = {n.lower(): n for n in names if n not in arrays}
            close = [missing[n] for n in difflib.get_close_matches(name.lower(), missing, n=1)]
            fix = f"did you mean {close[0]!r}?" if close else f"leave {name!r} out"
            raise RedalgError(f"an array named {name!r}", where, f"the tensors read here are: {expected}", fix)
    for decl in decls:
        if decl.name not in arrays:
            given = ", ".join(arrays) or "none"
            raise RedalgError(
                f"a call without {decl}", where, f"the arrays given are: {given}", f"pass {decl.array or decl.name}=…"
            )


def _common_origin(decls: Sequence[Decl], arrays: Mapping[str, Any], settled: Origin | None, where: str) -> Origin:
    seen, first = settled, "what was bound before"
    for decl in decls:
        array = arrays[decl.name]
        _check_gradient(decl, array, where)
        found = origin_of(array)
        if found is None:
            continue
        if seen is not None and found != seen:
            what = "kinds of arrays" if found.kind != seen.kind else "devices"
            why = f"{decl.name} is {found}, {first} is {seen}"
            raise RedalgError(f"mixed {what}", where, why, f"convert {decl.name} to {seen} first")
        if seen is None:
            seen, first = found, decl.name
    if seen is not None and seen.device != "cpu":
        why = f"{first} lies on {seen.device}, and this computation runs on the CPU"
        raise RedalgError(f"arrays on {seen.device}", where, why, "copy the arrays to the CPU first")
    return seen or Origin()


def _check_gradient(decl: Decl, array: Any, where: str) -> None:
    if getattr(array, "requires_grad", False) is True:
        why = "results carry no gradient, and dropping it silently would be wrong"
        raise RedalgError(f"{decl}, a tensor that requires a gradient", where, why, f"pass {decl.name}.detach()")


# --- one array -------------------------------------------------------------------------------------------------------


def _admit(decl: Decl, given: Any, where: str, exact: bool) -> tuple[Any, Any]:
    """The array as NumPy sees it (or a weak Python number) and its dtype (or Python type)."""
    if isinstance(given, bool | int | float | complex) and not isinstance(given, np.generic):
        return _python_number(decl, given, where, exact), _plain(given)
    if exact and isinstance(given, numbers.Rational):
        return Fraction(int(given.numerator), int(given.denominator)), float
    array = _dense(decl, given, where)
    name = declared_dtype(given) if hasattr(given, "dtype") and array is not given else dtype_name(array.dtype)
    if name in NARROW_ONLY:
        dtype, array = _narrow_dtype(array, name), array.astype(np.float32)
    elif exact and array.dtype.hasobject:
        return _exact_array(decl, array, where), np.dtype(np.float64)
    else:
        array = _of_nothing(decl, given, array)
        _refuse_large(decl, array, where)
        check_kind(decl, array.dtype.kind, name, where)
        if not array.dtype.isnative:  # one dtype for each format, which everything that follows compares
            array = array.astype(array.dtype.newbyteorder("="))
        dtype = array.dtype
    _check_width(decl, array, where)
    return np.asarray(array), dtype


def _of_nothing(decl: Decl, given: Any, array: np.ndarray) -> np.ndarray:
    """The array; an empty list, which NumPy takes for floats, in what the tensor is declared."""
    if array.size or not isinstance(given, list | tuple):
        return array
    wanted = next((dtype for word, dtype in _DECLARED.items() if word in decl.domain), array.dtype)
    return array.astype(wanted)


def _refuse_large(decl: Decl, array: np.ndarray, where: str) -> None:
    """Raises: RedalgError for Python integers of which one is beyond int64."""
    if array.dtype != object or not all(isinstance(v, numbers.Integral) for v in array.flat):
        return
    value = max(map(int, array.flat), key=abs, default=0)
    if not _SMALLEST <= value <= _LARGEST:
        why = f"integers are computed in int64, and one of them {told(value)}"
        raise RedalgError(f"{decl} with integers beyond int64", where, why, f"pass floats for {decl.name}")


def _python_number(decl: Decl, given: Any, where: str, exact: bool) -> Any:
    check_kind(decl, "b" if isinstance(given, bool) else _PYTHON_KINDS[_plain(given)], type(given).__name__, where)
    if not exact and isinstance(given, int) and not _SMALLEST <= given <= _LARGEST:
        why = f"integers are computed in int64, and it {told(given)}"
        raise RedalgError(f"{decl} given as an int", where, why, f"pass float({decl.name})")
    return given


def _dense(decl: Decl, given: Any, where: str) -> np.ndarray:
    """A plain dense array that holds what is given."""
    if getattr(given, "is_nested", False) is True:
        why = "an axis has one length, and in a nested tensor every part has its own"
        raise RedalgError(f"{decl} given as a nested tensor", where, why, "pad it, and read the lengths in the spec")
    if getattr(given, "is_sparse", False) is True or is_masked_array(given):
        raise RedalgError(f"{decl} given as {type(given).__name__}", where, "it is not a plain dense array", "fill it")
    if type(given) is not np.ndarray:
        given = decoded(given)
        refuse_wider(decl, given, where)
    try:
        found = to_numpy(given)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        raise _not_an_array(decl, given, where, str(error)) from error
    check_digits(decl, given, found, where)
    return found


def check_digits(decl: Decl, given: Any, found: np.ndarray, where: str) -> None:
    """Raises: RedalgError where nulls or other columns made floats of integers that float64 rounds."""
    if found is given:  # NumPy's own
        return
    for k, column in enumerate(columns_of(given) or () if found.ndim == 2 else ()):
        check_digits(decl, column, found[:, k], where)
    kind = getattr(given, "type" if type(given).__module__.startswith("pyarrow") else "dtype", None)
    if found.dtype.kind != "f" or not str(kind).lower().startswith(("int", "uint")):
        return
    magnitudes = np.nan_to_num(np.abs(found), copy=False)
    largest = int(np.argmax(magnitudes)) if magnitudes.size else 0
    if magnitudes.size and magnitudes.flat[largest] >= 1 << 53:
        why = (
            f"beside nulls or floats it is converted to float64, and {abs(element(given, largest))} is not below 2**53"
        )
        raise RedalgError(f"{decl} given as {kind}", where, why, "drop or fill the nulls, or convert it yourself")


_DECLARED = {"bool": np.dtype(bool), "integer": np.dtype(np.int64)}
_PYTHON_KINDS = {int: "i", float: "f", complex: "c"}


def _plain(value: Any) -> type:
    return next(t for t in (bool, int, float, complex) if isinstance(value, t))


def _narrow_dtype(array: np.ndarray, name: str) -> np.dtype:
    """The array's own dtype (an extension of NumPy); else bfloat16 as bits, and float32 for the 8-bit formats."""
    if array.dtype.name == name:
        return array.dtype
    return BFLOAT16_BITS if name == "bfloat16" else np.dtype(np.float32)


def _exact_array(decl: Decl, array: np.ndarray, where: str) -> np.ndarray:
    for value in array.flat:
        if not isinstance(value, numbers.Real) and not hasattr(value, "_mpf_"):
            raise _not_an_array(decl, value, where, f"it holds {value!r}, which is not a real number")
    return array


def _not_an_array(decl: Decl, given: Any, where: str, why: str) -> RedalgError:
    return RedalgError(f"{decl} given as {type(given).__name__}", where, why, "pass an array of numbers")


def check_kind(decl: Decl, kind: str, name: str, where: str) -> None:
    """Raises: RedalgError for numbers of a kind (b, i, u, f, c) that a tensor of this domain does not take."""
    declared = next((word for word in ("bool", "integer", "complex") if word in decl.domain), "real")
    taken, fix = _TAKEN[declared]
    if kind not in taken:
        why = f"{decl.name} is declared {declared}" if declared != "real" else f"{decl.name} is a real tensor"
        if kind not in "biufc":
            narrow = name.startswith(("int", "uint", "float"))  # such as int4, which extends NumPy
            why = "nothing is computed in it" if narrow else "it does not hold numbers"
            fix = "convert it to a numeric dtype of NumPy"
        raise RedalgError(f"{decl} with dtype {name}", where, why, fix.format(decl.name))


_TAKEN = {
    "bool": ("b", "pass an array of bool, such as {0} != 0"),
    "integer": ("iu", "pass integers, or declare the tensor without integer=True"),
    "complex": ("iufcb", ""),
    "real": ("iufb", "declare the tensor with complex=True"),
}


def _check_width(decl: Decl, array: np.ndarray, where: str) -> None:
    if array.dtype.kind in "fc" and array.dtype.itemsize > (8 if array.dtype.kind == "f" else 16):
        why = "it would be rounded to float64"
        raise RedalgError(f"{decl} with dtype {array.dtype.name}", where, why, f"pass {decl.name}.astype(float)")
    if array.dtype == np.uint64 and array.size and int(array.max()) > _LARGEST:
        why = f"integers are computed in int64, and it holds {int(array.max())}"
        raise RedalgError(f"{decl} with dtype uint64", where, why, "convert it to float64")


def _check_shape(decl: Decl, shape: tuple[int, ...], known: dict[str, tuple[int, str | Decl]], where: str) -> None:
    if len(shape) != len(decl.axes):
        why = f"it has {len(shape)} dimensions, and {decl} has {decl.rank}"
        fix = f"pass an array with the axes ({', '.join(decl.axes)})" if decl.axes else "pass a number"
        fix = f"pass the array, or its windows, {fix[5:]}" if decl.dimensions else fix
        raise RedalgError(f"{decl} of shape {shape}", where, why, fix)
    for axis, length in zip(decl.axes, shape, strict=True):
        expected, source = known.setdefault(axis, (length, decl))
        if length != expected:
            why = f"axis {axis} has length {length} here and {expected} in {source}"
            fix = f"make the lengths along {axis} equal (an axis of length 1 is not stretched)"
            raise RedalgError(f"{decl} of shape {shape}", where, why, fix)
