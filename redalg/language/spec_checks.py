"""What a spec refuses, beyond what its parts refuse when they are built. Every check is one walk of the graph."""

from __future__ import annotations

from collections.abc import Sequence

from redalg.errors import RedalgError
from redalg.graph import node as g
from redalg.graph.intervals import domain_text
from redalg.graph.node import Decl, Node
from redalg.text.nodes import short

_REAL = frozenset({"abs", "re", "im"}) | g.BOOLEAN
_ORDERED = frozenset({"lt", "le", "maximum", "minimum", "relu", "floor", "ceil"})
_ORDERED_KINDS = frozenset({"max", "min", "argmax", "argmin", "topk_values", "topk_indices"})
_REAL_KINDS = frozenset({"any", "all"})


def check_declarations(decls: Sequence[Decl]) -> None:
    """One name, one declaration."""
    seen: dict[str, Decl] = {}
    for d in decls:
        other = seen.setdefault(d.name, d)
        if other != d:
            raise RedalgError(
                f"two declarations of the name {d.name!r}",
                "ra.Spec",
                f"it is {_declared(other)} and {_declared(d)} in one spec",
                "give the second array a name of its own (the same array may be passed twice)",
            )
    read: dict[str, Decl] = {}
    for d in decls:
        other = read.setdefault(d.array or d.name, d)
        if other.rank != d.rank or other.domain != d.domain:
            why = f"it is {_declared(other)} and {_declared(d)} in one spec"
            fix = "readings of one tensor have its number of dimensions and its domain"
            raise RedalgError(f"two declarations of the name {d.array or d.name!r}", "ra.Spec", why, fix)


def _declared(d: Decl) -> str:
    return f"{d} {domain_text(d.domain)}".rstrip()


def check_monoids(roots: Sequence[Node]) -> None:
    """One name, one monoid."""
    seen: dict[str, object] = {}
    for n in g.walk(*roots):
        if n.op == "reduce" and n.attr.kind == "monoid":
            monoid = n.attr.extra[0]
            if seen.setdefault(monoid.name, monoid) != monoid:
                raise RedalgError(
                    f"two monoids named {monoid.name!r}", "ra.Spec", "they combine differently", "rename one of them"
                )


def check_axes(roots: Sequence[Node], tensors: Sequence[Decl]) -> None:
    """Every axis has a length: from a tensor, or from a topk, whose axis has one length (that of tensors along it)."""
    carried = {a for t in tensors for a in t.axes}
    lengths: dict[str, int] = {}
    nodes = list(g.walk(*roots))
    for n in nodes:
        if n.op == "reduce" and n.attr.kind.startswith("topk"):
            k, axis = n.attr.extra
            if axis in n.attr.axes or any(axis in a.axes for a in n.args):
                why = "it is an axis of what is ranked"
                raise RedalgError(f"the new axis {axis!r} of topk", "ra.Spec", why, 'choose another name="..."')
            if lengths.setdefault(axis, k) != k:
                raise RedalgError(
                    f"the new axis {axis!r} of topk",
                    "ra.Spec",
                    f"it would have the lengths {lengths[axis]} and {k}",
                    'give each topk its own name="..."',
                )
    asks = " (a sum of what lacks the axis asks for it)"
    for n in nodes:
        named = {n.attr} if n.op in ("index", "size") else set(n.attr.axes) if n.op == "reduce" else set()
        for axis in sorted(named - carried - lengths.keys()):
            raise RedalgError(
                f"the unknown axis {axis!r}",
                f"{short(n)} in ra.Spec",
                f"no tensor has it, so its length is unknown{asks if n.op == 'size' else ''}; the axes are "
                f"{sorted(carried)}",
                "correct the name, or use a tensor with this axis",
            )


def check_complex(roots: Sequence[Node]) -> None:
    """Complex values need a complex tensor, and have no order."""
    nodes = list(g.walk(*roots))
    declared = any(map(_complex_tensor, nodes))
    is_complex: set[Node] = set()
    for n in nodes:
        if _imaginary_unit(n) and not declared:
            raise RedalgError(
                "the imaginary unit",
                "ra.Spec",
                "no tensor of the spec is complex, and its values are real",
                "declare a tensor with complex=True, or keep to real numbers (log and sqrt below 0 are NaN)",
            )
        inside = next((a for a in n.args if a in is_complex), None)
        if inside is None:
            if _imaginary_unit(n) or _complex_tensor(n):
                is_complex.add(n)
            continue
        if n.op in _ORDERED or _reduces(n, _ORDERED_KINDS):
            raise RedalgError(
                f"an order of complex numbers, {short(inside)}",
                f"{short(n)} in ra.Spec",
                "complex numbers have no order",
                "compare ra.abs(...), sympy.re(...) or sympy.im(...)",
            )
        if n.op not in _REAL and not _reduces(n, _REAL_KINDS):
            is_complex.add(n)


def _imaginary_unit(n: Node) -> bool:
    return n.op == "special" and n.attr == "i"


def _complex_tensor(n: Node) -> bool:
    return n.op == "tensor" and "complex" in n.attr.domain


def _reduces(n: Node, kinds: frozenset[str]) -> bool:
    return n.op == "reduce" and n.attr.kind in kinds
