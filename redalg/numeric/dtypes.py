"""Which dtype an output has, computed from the dtypes of the tensors whose *values* flow into it.

The rule is NumPy's promotion: the result type of those tensors, Python numbers being weak. Comparisons, conditions and
positions pass no dtype on, as in NumPy. Beside it: sums and products of integers are int64; counts, positions and
indices are int64 always; comparisons, any and all are bool; a division, a mean or a function like exp of integers is
float64. Casts round values and leave the dtype alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from redalg.graph.formats import FLOATS
from redalg.graph.node import BOOLEAN, POSITIONS, Node, state, walk
from redalg.numeric.array_origin import NARROW_ONLY

if TYPE_CHECKING:
    from redalg.language.spec import Spec

_ORDER = "bifc"
_SAME = frozenset({"conj", "sign", "relu", "floor", "ceil", "abs", "re", "im"})


@dataclass(frozen=True)
class Flow:
    """What is known of a value: kind "b", "i", "f" or "c", the dtypes that flow in, and whether integers are int64."""

    kind: str
    dtypes: frozenset[np.dtype] = frozenset()
    wide: bool = False

    @property
    def dtype(self) -> np.dtype:
        """The dtype of an output with this flow."""
        if self.kind == "b":
            return np.dtype(bool)
        common = promote(self.dtypes)
        if self.kind == "i":
            return np.dtype(np.int64) if self.wide or common is None or common.kind not in "iu" else common
        if common is None or common.kind in "biu":
            common = np.dtype(np.float64)
        if self.kind == "c":
            return common if common.kind == "c" else np.dtype(f"c{2 * max(common.itemsize, 4)}")
        return np.dtype(f"f{common.itemsize // 2}") if common.kind == "c" else common


@lru_cache(maxsize=64)
def _name(dtype: np.dtype) -> str:
    return str(dtype.names[0]) if dtype.names else dtype.name


def promote(dtypes: Iterable[np.dtype]) -> np.dtype | None:
    """NumPy's result type; two formats that NumPy cannot combine (float16 with bfloat16) meet in float32.

    Every number of a float8 is one of the 16-bit formats, so that it has no say beside one of these. Formats that NumPy
    lacks have one rule, whichever dtype stands for them: they stay beside integers of 8 bits, as float16 does.
    """
    found = list(dtypes)
    if any(_name(d) in ("bfloat16", "float16") for d in found):
        found = [d for d in found if not _name(d).startswith("float8")]
    if not found:
        return None
    larger = [d for d in found if d.kind not in "biu" or d.itemsize > 1]
    if larger and {_name(d) for d in larger} <= {_name(larger[0])} & NARROW_ONLY:
        return larger[0]
    try:
        return np.result_type(*found)
    except TypeError:
        return np.result_type(np.float32, *(d for d in found if d.kind in "iufcb"))


def flows(nodes: Iterable[Node], tensors: Mapping[str, np.dtype | type | None]) -> dict[Node, Flow]:
    """The flow of every node below ``nodes``; ``tensors`` gives a dtype per leaf, a Python type for a weak number.

    >>> from redalg.graph.node import tensor, div, reduction, size
    >>> mean = div(reduction("sum", "j", tensor("x", "j")), size("j"))
    >>> flows([mean], {"x": np.dtype("float32")})[mean].dtype, flows([mean], {"x": np.dtype("int8")})[mean].dtype
    (dtype('float32'), dtype('float64'))
    """
    found: dict[Node, Flow] = {}
    for node in walk(*nodes):
        found[node] = _flow(node, [found[a] for a in node.args], tensors)
    return found


def output_flows(spec: Spec, tensors: Mapping[str, np.dtype | type | None]) -> dict[str, Flow]:
    """The flow of every output by name, with the formats that the spec names.

    >>> from redalg.language.grammar import parse
    >>> spec = parse("dtype s = float32; return y = x[i], s = sum[i](x[i])")
    >>> [str(flow.dtype) for flow in output_flows(spec, {"x": np.dtype("float16")}).values()]
    ['float16', 'float32']
    """
    found = flows(spec.outputs.values(), tensors)
    return {n: _as_named(found[node], spec.dtypes.get(n), tensors) for n, node in spec.outputs.items()}


def _as_named(flow: Flow, word: str | None, tensors: Mapping[str, np.dtype | type | None]) -> Flow:
    """Of at least a format, or of a tensor's; what is no real number of floats stays."""
    if word is None or flow.kind != "f":
        return flow
    named = tensors.get(word, None) if word in tensors else np.dtype(word)
    if not isinstance(named, np.dtype) or named.kind in "biuc":
        return flow
    return flow if word not in tensors and flow.dtype.itemsize >= named.itemsize else Flow("f", frozenset({named}))


def _flow(node: Node, args: list[Flow], tensors: Mapping[str, Any]) -> Flow:
    op = node.op
    if op in ("tensor", "state"):
        return _leaf(node, tensors.get(node.attr.name))
    if op in BOOLEAN:
        return Flow("b")
    if op in ("size", "index"):
        return Flow("i", wide=True)
    if op == "const":
        return Flow("i" if node.attr.denominator == 1 else "f")
    if op == "special":
        return Flow("c" if node.attr == "i" else "f")
    if op == "reduce":
        return _reduced(node, args)
    if op == "where":
        return args[1] if node.is_boolean else _joined(args[1:])
    if op in ("add", "mul", "maximum", "minimum"):
        return _joined(args)
    if op == "pow":
        return _powered(node, args)
    return _mapped(node, args[0])


def _leaf(node: Node, dtype: Any) -> Flow:
    if dtype is None or isinstance(dtype, type):
        kind = {bool: "b", int: "i", complex: "c"}.get(dtype or float, "f")
        if dtype is None and node.op == "state":
            domain = node.attr.domain
            kind = next((k for word, k in (("bool", "b"), ("integer", "i"), ("complex", "c")) if word in domain), "f")
        return Flow(kind, wide=node.op == "state")
    kind = {"b": "b", "i": "i", "u": "i", "c": "c"}.get(dtype.kind, "f")
    return Flow(kind, frozenset() if kind == "b" else frozenset({dtype}))


def _counted(flow: Flow) -> Flow:
    return Flow("i", wide=True) if flow.kind == "b" else flow


def _joined(args: list[Flow]) -> Flow:
    counted = [_counted(a) for a in args]
    kind = max((a.kind for a in counted), key=_ORDER.index)
    return Flow(kind, frozenset().union(*(a.dtypes for a in counted)), any(a.wide for a in counted))


def _powered(node: Node, args: list[Flow]) -> Flow:
    exponent = node.args[1]
    flow = _joined(args)
    if exponent.op == "const" and exponent.attr.denominator == 1 and exponent.attr > 0:
        return flow
    return Flow("f", flow.dtypes) if flow.kind == "i" else flow


def _mapped(node: Node, arg: Flow) -> Flow:
    arg = _counted(arg)
    if node.op == "cast":
        if node.attr == "bool":
            return Flow("b")
        return Flow("f", arg.dtypes) if arg.kind == "i" and node.attr in FLOATS else arg
    if node.op in ("abs", "re", "im") and arg.kind == "c":
        return Flow("f", arg.dtypes)
    if node.op in _SAME or arg.kind in "fc":
        return arg
    return Flow("f", arg.dtypes)


def _reduced(node: Node, args: list[Flow]) -> Flow:
    kind = node.attr.kind
    if kind in ("any", "all"):
        return Flow("b")
    if kind in POSITIONS:
        return Flow("i", wide=True)
    if kind == "monoid":
        return _folded(node, args)
    flow = _joined(args)
    return Flow(flow.kind, flow.dtypes, wide=True) if kind in ("sum", "prod") else flow


def _folded(node: Node, args: list[Flow]) -> Flow:
    """A user's monoid: the flow of the part once combining no longer changes any."""
    monoid, part = node.attr.extra
    leaves = [tuple(state(f"{side}{i}") for i in range(len(args))) for side in ("fold.a", "fold.b")]
    combined = monoid.combine_nodes(*leaves)
    current = args
    for _ in range(len(args) + 1):
        known = {leaf: flow for side in leaves for leaf, flow in zip(side, current, strict=True)}
        for n in walk(*combined):
            if n not in known:
                known[n] = _flow(n, [known[a] for a in n.args], {})
        current = [_joined([flow, known[n]]) for flow, n in zip(current, combined, strict=True)]
    return current[part]


def accumulation_dtype(outputs: Iterable[Flow], tensors: Mapping[str, Any]) -> np.dtype:
    """The float dtype to compute in: wide enough for every inexact output and tensor, at least float32."""
    found = [f.dtype for f in outputs if f.kind in "fc"]
    found += [d for d in tensors.values() if isinstance(d, np.dtype) and d.kind not in "biu"]
    common = promote(found)
    if common is None:
        return np.dtype(np.float64)
    if common.kind == "c":
        common = np.dtype(f"f{common.itemsize // 2}")
    return common if common.kind == "f" and common.itemsize >= 4 else np.dtype(np.float32)
