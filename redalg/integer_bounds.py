"""Whether the integers of a call stay in int64: bounds on every integer a spec calculates, from those of its tensors.

Generated kernels calculate in int64, which wraps. A call whose integers are certain to stay inside, by the ranges of
their dtypes and the lengths of their axes, or by the largest magnitudes in its arrays, may run there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from redalg.binding_dtypes import flows
from redalg.graph import Node, walk
from redalg.numeric_integers import magnitude

SAFE = 1 << 61  # a form centres integers before it multiplies them: at most twice the magnitude, in two factors
_CAPPED = 200  # bits: more is too much, however much more


def calculated(nodes: Sequence[Node], dtypes: Mapping[str, Any]) -> tuple[str, ...]:
    """The integer tensors that such a spec adds or multiplies; () where it does neither.

    >>> from redalg.graph import tensor, reduction
    >>> calculated([reduction("sum", "j", tensor("k", "j"))], {"k": np.dtype("int64")})
    ('k',)
    """
    kinds = flows(nodes, dtypes)
    busy = [n for n in kinds if kinds[n].kind == "i" and (n.op in ("add", "mul", "pow") or n.op == "reduce")]
    busy = [n for n in busy if n.op != "reduce" or n.attr.kind in ("sum", "prod", "monoid")]
    read = {leaf.attr.name for leaf in walk(*busy) if leaf.op == "tensor" and kinds[leaf].kind == "i"}
    return tuple(sorted(read))


def fits(nodes: Sequence[Node], dtypes: Mapping[str, Any], sizes: Mapping[str, int], arrays: Mapping[str, Any]) -> bool:
    """Whether every integer the spec calculates from these arrays is certain to stay in int64.

    The data are looked at only where the ranges of the dtypes leave it open.
    """
    names = calculated(nodes, dtypes)
    if not names:
        return True
    ranges = {name: _range(dtypes[name], arrays[name]) for name in names}
    if _largest(nodes, dtypes, sizes, ranges) <= SAFE:
        return True
    return _largest(nodes, dtypes, sizes, {name: magnitude(arrays[name]) for name in names}) <= SAFE


def _range(dtype: Any, value: Any) -> int:
    return magnitude(value) if isinstance(dtype, type) else 1 << (8 * dtype.itemsize - (dtype.kind == "i"))


def _largest(
    nodes: Sequence[Node], dtypes: Mapping[str, Any], sizes: Mapping[str, int], tensors: Mapping[str, int]
) -> int:
    kinds = flows(nodes, dtypes)
    bounds: dict[Node, int] = {}
    for n in walk(*nodes):
        whole = kinds[n].kind in "bi"
        bounds[n] = _bound(n, [bounds[a] for a in n.args], sizes, tensors) if whole else 0
    return max(bounds.values(), default=0)


def _bound(n: Node, args: list[int], sizes: Mapping[str, int], tensors: Mapping[str, int]) -> int:
    if n.op == "const":
        return abs(int(n.attr))
    if n.op in ("size", "index"):
        return sizes.get(n.attr, 1)
    if n.op == "tensor":
        return tensors.get(n.attr.name, 1)
    if n.op == "add":
        return sum(args)
    if n.op == "mul":
        return _power(args, 1)
    if n.op == "pow":
        return _power(args[:1], int(n.args[1].attr) if n.args[1].op == "const" else _CAPPED)
    if n.op == "reduce":
        terms = int(np.prod([sizes.get(a, 1) for a in n.attr.axes], dtype=object))
        if n.attr.kind == "prod":
            return _power(args, terms)
        return args[0] * max(terms, 1) if n.attr.kind in ("sum", "monoid") else max(*args, terms, 1)
    return max(args, default=1)


def _power(factors: list[int], e: int) -> int:
    result = 1
    for f in factors:
        if f > 1 and f.bit_length() * e > _CAPPED:
            return 1 << _CAPPED
        result *= f**e if f > 1 else max(f, 1)
    return result
