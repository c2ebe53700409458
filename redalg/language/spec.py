"""A specification: named outputs over named tensors, held as a shared graph."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import sympy

from redalg import _hooks
from redalg.errors import RedalgError
from redalg.graph import node as g
from redalg.graph.node import Decl, Node
from redalg.language.leaves import TensorSymbol, check_name, declaration_time
from redalg.language.operand import exact_number, is_python_bool, operand
from redalg.language.spec_checks import check_axes, check_complex, check_declarations, check_monoids
from redalg.language.sympy_bridge import settle, to_node, to_sympy
from redalg.shown import Shown
from redalg.text.latex import spec_latex
from redalg.text.nodes import spec_text

if TYPE_CHECKING:
    from redalg.gradients.calls import Jvp, Vjp

Number = Fraction | float
AT_LEAST = ("float32", "float64")


class Spec(Shown):
    """``Spec(O=O, lse=m + log(l))``: outputs by name, each an expression over declared tensors.

    * `tensors`: the tensors in order (default: order of declaration). Output axes follow first appearance there.
      One that no output reads may be listed if it alone has an axis whose positions or length they ask for.
    * `order`: ``{"O": "i h e"}`` overrides the axes of an output.
    * `empty`: ``{"O": 0}`` is the value of an output where no element is valid (all masked, or none at all).
    * `dtypes`: ``{"lse": "float32"}``: of at least this format where it would have fewer bits (float32, float64), or
      ``{"grad_x": "x"}``: of that tensor's, where it is one of floats. Other outputs have NumPy's result type.

    Frozen, hashable, picklable; ``parse(str(spec)) == spec``.

    Raises: RedalgError for functions outside the language, two declarations of one name, axes that no tensor has,
    and options that do not fit the outputs.

    >>> from redalg.language.leaves import tensors
    >>> x, w = tensors("x[i,j] w[j]")
    >>> spec = Spec(y=sympy.tanh(x) * w)
    >>> spec.output_axes["y"], [str(t) for t in spec.tensors]
    (('i', 'j'), ['x[i,j]', 'w[j]'])
    >>> spec.expressions["y"]
    w*tanh(x)
    """

    __slots__ = ("outputs", "tensors", "output_axes", "empty", "dtypes", "axes", "digest", "_expressions")
    outputs: Mapping[str, Node]
    tensors: tuple[Decl, ...]
    output_axes: Mapping[str, tuple[str, ...]]
    empty: Mapping[str, Number]
    dtypes: Mapping[str, str]
    axes: tuple[str, ...]
    digest: str
    _expressions: Mapping[str, Any] | None

    def __init__(
        self,
        /,
        *unnamed: Any,
        tensors: Sequence[Any] | None = None,
        order: Mapping[str, Any] | None = None,
        empty: Mapping[str, Any] | None = None,
        dtypes: Mapping[str, str] | None = None,
        **outputs: Any,
    ) -> None:
        if unnamed:
            raise RedalgError(f"{unnamed[0]} without a name", "ra.Spec", "outputs are named", "ra.Spec(y=…)")
        for option, value in (("order", order), ("empty", empty), ("dtypes", dtypes)):
            if value is not None and not isinstance(value, Mapping):
                why = f"it is not a dict by output ({option} is an argument, not a name for an output)"
                raise RedalgError(f"{option}={value!r}", "ra.Spec", why, f'{option}={{"O": …}}')
        if not outputs:
            raise RedalgError(
                "a spec without outputs", "ra.Spec()", "there is nothing to compute", "ra.Spec(y=expression)"
            )
        nodes = {}
        for name, expr in outputs.items():
            check_name(name, "output", "ra.Spec")
            nodes[name] = settle(to_node(operand(expr, f"output {name!r} of ra.Spec")))
        self._fill(
            nodes, _ordered_tensors(nodes, tensors), order or {}, _empty_values(empty or {}, nodes), dtypes or {}
        )

    def _fill(
        self,
        nodes: Mapping[str, Node],
        tensors: tuple[Decl, ...],
        order: Mapping[str, Any],
        empty: Mapping[str, Number],
        dtypes: Mapping[str, str],
    ) -> None:
        check_declarations(tensors)
        roots = tuple(nodes.values())
        axes = _all_axes(tensors, roots)
        check_axes(roots, tensors)
        check_complex(roots)
        check_monoids(roots)
        put = object.__setattr__
        put(self, "outputs", MappingProxyType(dict(nodes)))
        put(self, "tensors", tensors)
        put(self, "axes", axes)
        put(self, "output_axes", MappingProxyType(_output_axes(nodes, axes, order)))
        put(self, "empty", MappingProxyType(dict(empty)))
        put(self, "dtypes", MappingProxyType(_dtypes(dtypes, nodes, tensors)))
        put(self, "digest", self._digest())
        put(self, "_expressions", None)

    @classmethod
    def from_nodes(
        cls,
        outputs: Mapping[str, Node],
        *,
        tensors: Sequence[Decl] | None = None,
        order: Mapping[str, Any] | None = None,
        empty: Mapping[str, Number] | None = None,
        dtypes: Mapping[str, str] | None = None,
    ) -> Spec:
        """A spec straight from graph nodes, which are kept as they are."""
        spec = cls.__new__(cls)
        spec._fill(outputs, _ordered_tensors(outputs, tensors), order or {}, empty or {}, dtypes or {})
        return spec

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a Spec is frozen: {name} cannot be set")

    __delattr__ = __setattr__  # type: ignore[assignment]

    @property
    def expressions(self) -> Mapping[str, Any]:
        """The outputs as SymPy expressions (built on first use)."""
        found = self._expressions
        if found is None:
            found = MappingProxyType({name: to_sympy(node) for name, node in self.outputs.items()})
            object.__setattr__(self, "_expressions", found)
        return found

    def vjp(self, wrt: Any = None, given: Any = None, assume: Any = (), sizes: Any = None) -> Vjp:
        """The reverse-mode derivative, by specs: ``g.specs``, ``g.forward``, ``g(x=…, cotangents={…})``.

        * `wrt`: names of tensors and scalars; default: all that hold real numbers.
        * `given`: which values of the forward pass are read instead of computed again: "all", (), or names out of
          ``str(spec)`` (and of outputs); default: what moves the fewest bytes (`redalg.traffic`).
        * `sizes`: axis -> length, for that default; 4096 for others.
        * `assume`: of ``straight_through`` (what is cast is differentiated as if it were not).

        Raises: RedalgError for what has no derivative, and for names that are no tensors of real numbers.
        Source: the chain rule on the graph; see `redalg.gradients.calls.Vjp` for conventions and errors.

        >>> import redalg as ra
        >>> softmax = ra.parse("m = max[j](x[i,j]); p = exp(x[i,j] - m); return y = p / sum[j](p)")
        >>> print(softmax.vjp().specs["x"])  # doctest: +NORMALIZE_WHITESPACE
        tensors grad_y[i,j], y[i,j] nonnegative;
        sum1 = sum[j](grad_y[i,j] * y[i,j]); grad_x = (grad_y[i,j] - sum1) * y[i,j]; return grad_x
        """
        return _hooks.vjp(self, wrt, given, assume, sizes)

    def jvp(self, wrt: Any = None, assume: Any = ()) -> Jvp:
        """The forward-mode derivative, Σ ∂y/∂x·ẋ, by one spec: ``g.spec``, ``g(x=…, tangents={"x": …})`` (see `vjp`).

        Raises: RedalgError for what has no derivative, and for names that are no tensors of real numbers.

        >>> import redalg as ra
        >>> print(ra.parse("return y = sum[j](sin(x[j]))").jvp().spec)
        tangent_y = sum[j](cos(x[j]) * tangent_x[j]); return tangent_y
        """
        return _hooks.jvp(self, wrt, assume)

    def _digest(self) -> str:
        parts = [(n, node.digest.hex(), self.output_axes[n]) for n, node in self.outputs.items()]
        decls = [(t.name, t.axes, sorted(t.domain)) for t in self.tensors]
        more = [sorted(self.dtypes.items())] if self.dtypes else []
        text = repr((parts, decls, sorted((n, str(v)) for n, v in self.empty.items()), *more))
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spec) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __reduce__(self) -> tuple[Any, ...]:
        rows: list[tuple[Any, ...]] = []
        at: dict[Node, int] = {}
        for n in g.walk(*self.outputs.values()):
            at[n] = len(rows)
            rows.append((n.op, tuple(at[a] for a in n.args), n.attr))
        roots = {name: at[n] for name, n in self.outputs.items()}
        return _unpickled, (
            tuple(rows),
            roots,
            self.tensors,
            dict(self.output_axes),
            dict(self.empty),
            dict(self.dtypes),
        )

    def __str__(self) -> str:
        return spec_text(self)

    def __repr__(self) -> str:
        return f"Spec[{self}]"

    def _repr_latex_(self) -> str:
        return spec_latex(self)


def _unpickled(rows: Any, roots: dict[str, int], tensors: Any, order: Any, empty: Any, dtypes: Any = None) -> Spec:
    nodes: list[Node] = []
    for op, args, attr in rows:
        nodes.append(Node(op, tuple(nodes[i] for i in args), attr))
    outputs = {n: nodes[i] for n, i in roots.items()}
    return Spec.from_nodes(outputs, tensors=tensors, order=order, empty=empty, dtypes=dtypes)


def _ordered_tensors(outputs: Mapping[str, Node], given: Sequence[Any] | None) -> tuple[Decl, ...]:
    """The tensors in the order of `tensors=`, or of their declaration."""
    found = [n.attr for n in g.walk(*outputs.values()) if n.op == "tensor"]
    if given is None:
        check_declarations(found)
        times = {d: declaration_time(d) for d in found}
        return tuple(sorted(found, key=lambda d: (bool(d.array), times[d] is None, times[d] or 0, d.array and d.name)))
    decls = _listed_tensors(given)
    check_declarations([*found, *decls])
    lengths = lengths_beside(outputs.values(), found)
    for d in (*(d for d in found if d not in decls), *(d for d in decls if d not in found)):
        if d in decls and lengths & {*d.axes}:
            continue
        unread = "no output reads it (automatic evaluation may have removed it), or asks for an axis that it alone has"
        why = unread if d in decls else "an output reads it"
        fix = "leave it out" if d in decls else "list every tensor that is read"
        raise RedalgError(f"tensors={[str(x) for x in decls]}, about {d}", "ra.Spec", why, fix)
    return tuple(decls)


def lengths_beside(outputs: Iterable[Node], read: Iterable[Decl]) -> set[str]:
    """The axes whose positions or length outputs ask for, and that no tensor has which they read: another tensor may be
    listed, that says how long these are."""
    along = {n.attr for n in g.walk(*outputs) if n.op in ("index", "size")}
    return along - {a for d in read for a in d.axes}


def _listed_tensors(given: Sequence[Any]) -> list[Decl]:
    """What `tensors=` lists, each tensor once."""
    items = (given,) if isinstance(given, TensorSymbol) else given
    if not isinstance(items, (tuple, list)):
        raise RedalgError(f"tensors={given!r}", "ra.Spec", "it is not a sequence of tensors", "write tensors=(Q, K, V)")
    decls = [t.decl if isinstance(t, TensorSymbol) else t for t in items]
    for d in decls:
        if not isinstance(d, Decl) or decls.count(d) > 1:
            why = "it is listed twice" if isinstance(d, Decl) else "it is not a declared tensor"
            raise RedalgError(f"{d!s} in tensors=", "ra.Spec", why, "list each ra.tensors object once")
    return decls


def _all_axes(tensors: Sequence[Decl], roots: Sequence[Node]) -> tuple[str, ...]:
    axes = dict.fromkeys(a for t in tensors for a in t.axes)
    for n in g.walk(*roots):
        if n.op == "reduce" and n.attr.kind.startswith("topk"):
            axes.setdefault(n.attr.extra[1])
    return tuple(axes)


def _output_axes(
    nodes: Mapping[str, Node], axes: Sequence[str], order: Mapping[str, Any]
) -> dict[str, tuple[str, ...]]:
    result = {name: tuple(a for a in axes if a in node.axes) for name, node in nodes.items()}
    for name, wanted in order.items():
        where = f"order={{{name!r}: {wanted!r}}} of ra.Spec"
        if name not in result:
            raise RedalgError(f"the output {name!r}", where, f"the outputs are {list(nodes)}", "name an output")
        names = tuple(re.findall(r"[^\s,]+", wanted) if isinstance(wanted, str) else map(str, _listed(wanted, where)))
        if sorted(names) != sorted(result[name]):
            raise RedalgError(
                f"the axes {list(names)}",
                where,
                f"{name} has the axes {list(result[name])}",
                "name each axis of the output once",
            )
        result[name] = names
    return result


def _listed(value: Any, where: str) -> Sequence[Any]:
    if isinstance(value, (tuple, list)):
        return value
    raise RedalgError(f"{value!r}", where, "the axes are named by a string or a list", 'write order={"O": "i h e"}')


def _dtypes(dtypes: Mapping[str, str], nodes: Mapping[str, Node], tensors: Sequence[Decl]) -> dict[str, str]:
    """What outputs are rounded to, in their order."""
    own = [t.name for t in tensors if not t.array]
    for name, word in dtypes.items():
        where = f"dtypes={{{name!r}: {word!r}}} of ra.Spec"
        if name not in nodes:
            raise RedalgError(f"the output {name!r}", where, f"the outputs are {list(nodes)}", "name an output")
        if word not in (*own, *AT_LEAST) or word in own and word in AT_LEAST:
            why = f"it is neither one of {', '.join(AT_LEAST)} nor one of the tensors, {', '.join(own)}"
            raise RedalgError(f"the dtype {word!r}", where, why, f'dtypes={{{name!r}: "float32"}}')
    return {n: dtypes[n] for n in nodes if n in dtypes}


def _empty_values(empty: Mapping[str, Any], nodes: Mapping[str, Node]) -> dict[str, Number]:
    result: dict[str, Number] = {}
    for name, value in empty.items():
        where = f"empty={{{name!r}: {value!r}}} of ra.Spec"
        if name not in nodes:
            raise RedalgError(f"the output {name!r}", where, f"the outputs are {list(nodes)}", "name an output")
        number = None if is_python_bool(value) else operand(value, where)
        if isinstance(number, sympy.Number):
            number = exact_number(number) if isinstance(number, sympy.Float) else number
            finite = isinstance(number, sympy.Rational)
            result[name] = Fraction(int(number.p), int(number.q)) if finite else float(number)
        else:
            raise RedalgError(f"the value {value!r}", where, "it is not a real number", "give a number such as 0")
    return result
