"""Tensors that a spec reads along several axes (``X[j,a]*X[j,b]``): their derivative is that of all readings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from redalg.graph import node as g
from redalg.graph.node import Decl, Node
from redalg.language.spec import Spec


def own_tensors(spec: Spec) -> list[Decl]:
    """The tensors that a caller passes, in the spec's order: other readings of a tensor are not passed again.

    A derivative may read a tensor along the axes of such a reading alone; it is passed as that.

    >>> import redalg as ra
    >>> gram = ra.parse("return y = sum[d](x[i,d]*x[j,d]*w[d])")
    >>> [str(d) for d in own_tensors(gram)]
    ['x[i,d]', 'w[d]']
    """
    names = {d.name for d in spec.tensors}
    found: dict[str, Decl] = {}
    for d in spec.tensors:
        if not d.array:
            found[d.name] = d
        elif d.array not in names:
            found.setdefault(d.array, replace(d, name=d.array, array=""))
    return list(found.values())


def under_own_names(spec: Spec) -> Spec:
    """The spec, where a tensor that is read along other axes alone is declared by the name that it is passed by.

    Derivatives of ``x[i,d]*x[j,d]`` read ``x[j,d]``, and nothing else of x; to be differentiated once more they have to
    say of what this is a reading.
    """
    passed = {d.name: d for d in own_tensors(spec)}
    given = {d for d in spec.tensors if not d.array}
    renamed = {d: passed[d.array] for d in spec.tensors if d.array and passed[d.array] not in given}
    renamed = {d: own for d, own in renamed.items() if d.axes == own.axes}
    if not renamed:
        return spec
    leaves = {Node("tensor", (), d): Node("tensor", (), own) for d, own in renamed.items()}
    return Spec.from_nodes(
        {n: g.substitute(node, leaves) for n, node in spec.outputs.items()},
        tensors=[renamed.get(d, d) for d in spec.tensors],
        order=spec.output_axes,
        empty=spec.empty,
        dtypes=spec.dtypes,
    )


def readings(spec: Spec) -> dict[Decl, list[Decl]]:
    """Tensor -> its declarations, the one that names its axes first."""
    found: dict[Decl, list[Decl]] = {d: [d] for d in spec.tensors if not d.array}
    named = {d.name: d for d in found}
    for d in spec.tensors:
        if d.array:
            found[named[d.array]].append(d)
    return found


def along(root: Node, reading: Decl, wanted: Decl, spec: Spec) -> Node:
    """A node along the axes of a reading, along those of another: all names of axes are exchanged, bound ones too.

    An exchange of names one to one captures nothing.
    """
    moved = {a: b for a, b in zip(reading.axes, wanted.axes, strict=True) if a != b}
    back = [a for a in moved if a not in moved.values()]
    free = [b for b in moved.values() if b not in moved]
    moved |= dict(zip(free, back, strict=True))
    return _exchanged(root, moved, spec.tensors) if moved else root


def _exchanged(root: Node, names: Mapping[str, str], known: Iterable[Decl]) -> Node:
    declared = {(d.array or d.name, d.axes): d for d in known}
    done: dict[Node, Node] = {}
    for n in g.walk(root):
        args = tuple(done[a] for a in n.args)
        if n.op == "tensor":
            done[n] = Node("tensor", (), _read_along(n.attr, _renamed(n.attr.axes, names), declared))
        elif n.op in ("index", "size"):
            done[n] = Node(n.op, (), names.get(n.attr, n.attr))
        elif n.op == "reduce":
            done[n] = Node("reduce", args, _bound(n.attr, names))
        else:
            done[n] = g.rebuild(n, args)
    return done[root]


def _renamed(axes: tuple[str, ...], names: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(names.get(a, a) for a in axes)


def _bound(attr: g.Reduce, names: Mapping[str, str]) -> g.Reduce:
    extra = attr.extra
    if attr.kind.startswith("topk"):
        extra = (extra[0], names.get(extra[1], extra[1]))
    return g.Reduce(attr.kind, _renamed(attr.axes, names), extra)


def _read_along(d: Decl, axes: tuple[str, ...], declared: Mapping[tuple[str, tuple[str, ...]], Decl]) -> Decl:
    """The declaration that reads the same array along these axes: the spec's where it has one."""
    array = d.array or d.name
    if axes == d.axes:
        return d
    return declared.get((array, axes)) or replace(d, name="_".join((array, *axes)), axes=axes, array=array)


__all__ = ["along", "own_tensors", "readings", "under_own_names"]
