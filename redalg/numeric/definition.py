"""The definition of a spec, computed as written: every reduction over its whole axis, stage by stage.

This is what every other way of computing a spec is compared with. It works in float64 whatever the input, or exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from redalg.errors import RedalgError
from redalg.graph.masked import masked_row, new_axes
from redalg.graph.node import Node, walk
from redalg.numeric.array_origin import format_name, narrowed
from redalg.numeric.binding import Bound, bind, result_flows, with_unnamed
from redalg.numeric.casts import cast_array
from redalg.numeric.dtypes import flows
from redalg.numeric.evaluate import evaluate
from redalg.numeric.exact import Exact
from redalg.numeric.integer_bounds import DECISIVE, decisive
from redalg.numeric.integers import EXACT, LARGEST, Beyond, as_float, magnitude, nearest_float, within
from redalg.numeric.maps import FLOAT_MAPS

if TYPE_CHECKING:
    from redalg.language.spec import Spec


def reference(spec: Spec, /, *unnamed: Any, exact: bool = False, **arrays: Any) -> Any:
    """The outputs of a spec by definition: multi-pass, in float64 (integers in int64).

    One output gives its array, several a dict of arrays by name; a full reduction is a 0-d array. Dimensions are in the
    order of ``spec.output_axes``. The dtype is NumPy's result type of the tensors whose values flow into the output
    (`redalg.numeric.dtypes`), rounded to once. The same kind of array comes back that went in.

    What SymPy evaluates is part of the language, and products and quotients of equal powers are the power of the
    product: ``(x/a)**2`` is evaluated so, though SymPy holds x²/a², and so is ``x**2/a**2``
    (`redalg.language.equal_powers`).

    With ``exact=True`` every float is taken as the rational it holds, and the result is an object array of Fractions
    where everything is rational, of mpmath numbers with 50 digits (and 50 to spare) where not; arrays of Fractions are
    taken too. Meant for short axes: it is a recursion over single elements.

    Rows without a valid element (`redalg.graph.masked.masked_row`: everything masked out, or an axis of length 0) get
    the spec's ``empty=`` value where there is one.

    Where the spec has one tensor, its array may come without a name.

    Raises: RedalgError for arrays that do not fit the spec (see `redalg.numeric.binding`).

    >>> from redalg.language.leaves import tensors
    >>> from redalg.language.reductions import mean
    >>> from redalg.language.spec import Spec
    >>> x = tensors("x[j]")
    >>> reference(Spec(v=mean((x - mean(x, "j")) ** 2, "j")), x=[1.0, 2.0, 4.0])
    array(1.55555556)
    >>> reference(Spec(v=mean((x - mean(x, "j")) ** 2, "j")), [1.0, 2.0, 4.0], exact=True)
    array(Fraction(14, 9), dtype=object)
    """
    if not hasattr(spec, "output_axes"):
        why, fix = "the definition of a spec is computed", "ra.reference(ra.Spec(y=expression), ...), or form.spec"
        raise RedalgError(f"a {type(spec).__name__}", "ra.reference", why, fix)
    if unnamed:
        arrays = with_unnamed(spec.tensors, unnamed, arrays, "ra.reference")
    bound = bind(spec, arrays, where="ra.reference", exact=exact)
    values = _exact_outputs(spec, bound) if exact else _float_outputs(spec, bound)
    return next(iter(values.values())) if len(values) == 1 else values


_FEW = 4096  # elements of a call whose integers are rounded nowhere but at its end


def masked_rows(spec: Spec) -> dict[str, Node]:
    """For each output with an ``empty=`` value, the Boolean node that says where it applies."""
    return {name: masked_row(spec.outputs[name]) for name in spec.empty}


def _float_outputs(spec: Spec, bound: Bound) -> dict[str, Any]:
    masked = masked_rows(spec)
    nodes = [*spec.outputs.values(), *masked.values()]
    orders = [spec.output_axes[name] for name in [*spec.outputs, *masked]]
    limit = _limit(nodes, bound)
    if limit and _decided(nodes, bound, min(limit + DECISIVE, EXACT)):
        return _rounded_once(spec, bound)
    try:
        found = evaluate(nodes, bound.arrays, bound.sizes, dtype=np.float64, orders=orders, limit=limit)
    except Beyond:
        return _rounded_once(spec, bound)
    rows = dict(zip(masked, found[len(spec.outputs) :], strict=True))
    flow = result_flows(spec, bound)
    results = {}
    for name, value in zip(spec.outputs, found, strict=False):
        result = finished(value, flow[name].dtype)
        if name in rows:
            result = with_empty(result, rows[name], spec.empty[name], name)
        results[name] = bound.origin.restore(result)
    return results


def _decided(nodes: list[Node], bound: Bound, most: int) -> bool:
    """Whether something is decided by floats that larger integers become."""
    read = (x for x in bound.arrays.values() if isinstance(x, np.ndarray) and x.dtype.kind in "iu")
    return any(magnitude(x) > most for x in read) and bool(decisive(flows(nodes, bound.dtypes)))


def _limit(nodes: list[Node], bound: Bound) -> int:
    """The largest integer that floats are calculated with: none in rational specs, else one whose square is exact.

    With much data it is one that is exact alone.
    """
    if any(isinstance(d, np.dtype) and d.kind == "c" or d is complex for d in bound.dtypes.values()):
        return 0
    whole = any(isinstance(x, np.ndarray) and x.dtype.kind in "iu" for x in bound.arrays.values())
    if not whole or sum(np.size(x) for x in bound.arrays.values()) > _FEW:
        return EXACT
    rational = all(n.op not in FLOAT_MAPS and (n.op != "pow" or _is_whole(n.args[1])) for n in walk(*nodes))
    return 1 if rational else 1 << 26


def _is_whole(exponent: Node) -> bool:
    return exponent.op == "const" and exponent.attr.denominator == 1


def _rounded_once(spec: Spec, bound: Bound) -> dict[str, Any]:
    """The exact outputs, each rounded once: where integers that floats do not hold meet other numbers."""
    flow, results = result_flows(spec, bound), {}
    for name, value in _exact_outputs(spec, bound).items():
        if value.dtype == object:
            whole = flow[name].kind == "i"
            kept = np.array([(_nearest_integer if whole else nearest_float)(v) for v in value.flat], dtype=object)
            kept = kept.reshape(value.shape)
            value = kept if whole else kept.astype(np.float64)
        results[name] = bound.origin.restore(finished(value, flow[name].dtype))
    return results


def _nearest_integer(value: Any) -> int:
    """An exact number as an integer; an infinity, which an extremum of nothing is, as the end of int64."""
    if isinstance(value, Fraction) or np.isfinite(float(value)):
        return round(value)
    return LARGEST if value > 0 else -LARGEST - 1


def finished(value: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """A computed value in the dtype of its result: a fresh array, rounded once; narrow integers wrap as in NumPy.

    The identities of integer max and min (the ends of int64) become the ends of the narrower dtype.
    Raises: RedalgError for an integer outside int64.
    """
    if value.dtype in (object, np.uint64):  # NumPy makes uint64 of one integer of 2^63 and more
        whole = dtype.kind in "biu"
        value = within(value, "a result", "the computation") if whole else np.asarray(as_float(value, np.float64))
    if value.dtype.kind == "f" and dtype.kind in "iu":
        return _whole(value, dtype)
    if value.dtype.kind in "iu" and dtype.kind in "iu" and dtype != np.int64:
        wide, narrow = np.iinfo(np.int64), np.iinfo(dtype)
        result = np.asarray(value.astype(dtype))
        result[value == wide.min] = narrow.min
        result[(value == wide.max) & (dtype != np.uint64)] = narrow.max
        return result
    with np.errstate(all="ignore"):
        if value.dtype.kind == "c" and dtype.kind != "c":
            value = value.real
        if dtype.kind == "V":
            return narrowed(cast_array(value, format_name(dtype)), dtype)
        return np.array(value.astype(dtype))


def _whole(value: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Floats as integers: the infinite identities of an integer max or min of nothing are the ends of the dtype;
    what has no value (0 times one of them) is the least."""
    if (np.isfinite(value) & (np.abs(value) >= 2.0**63)).any():
        within(np.array([int(v) if np.isfinite(v) else 0 for v in value.flat], object), "a result", "the computation")
    ends = np.iinfo(dtype)
    with np.errstate(all="ignore"):
        result = np.asarray(np.rint(np.where(np.isfinite(value), value, 0)).astype(np.int64).astype(dtype))
    result[value == np.inf], result[np.isneginf(value) | np.isnan(value)] = ends.max, ends.min
    return result


def check_empty(value: Fraction | float, dtype: np.dtype, name: str, where: str) -> None:
    """Raises: RedalgError for a value that integers, or conditions, of this dtype do not have."""
    if dtype.kind not in "iub":
        return
    least, most = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    if not least <= value <= most or Fraction(value).denominator != 1:
        fix = f"give an integer from {least} to {most}"
        raise RedalgError(f"empty={{{name!r}: {value}}}", where, f"{name} has dtype {dtype}", fix)


def with_empty(result: np.ndarray, masked: np.ndarray, value: Fraction | float, name: str) -> np.ndarray:
    """The result with ``value`` in the rows where ``masked`` is true; refuses a value the dtype cannot hold."""
    if not masked.any():
        return result
    check_empty(value, result.dtype, name, "a row without a valid element")
    rows = np.broadcast_to(masked, result.shape)
    if result.dtype.kind == "V":
        result[rows] = finished(np.array(float(value)), result.dtype)
    else:
        result[rows] = float(value) if result.dtype.kind in "fc" else int(value)
    return result


def _exact_outputs(spec: Spec, bound: Bound) -> dict[str, Any]:
    evaluator = Exact(bound.arrays, {**bound.sizes, **new_axes(*spec.outputs.values())})
    masked = masked_rows(spec)
    results = {}
    for name, node in spec.outputs.items():
        axes = spec.output_axes[name]
        array = np.empty([evaluator.sizes[a] for a in axes], dtype=bool if node.is_boolean else object)
        for where in np.ndindex(*array.shape):
            at: Mapping[str, int] = dict(zip(axes, where, strict=True))
            if name in masked and evaluator.value(masked[name], at):
                array[where] = _number(spec.empty[name])
            else:
                array[where] = evaluator.numbers.public(evaluator.value(node, at))
        results[name] = array
    return results


def _number(value: Fraction | float) -> Any:
    from mpmath import mpf

    return value if isinstance(value, Fraction) else mpf(value)
