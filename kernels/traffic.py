"""Bytes a spec moves: run operation by operation, stage by stage, and fused (published as ``ra.traffic``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from numbers import Integral
from typing import TYPE_CHECKING

from redalg import _hooks
from redalg.errors import RedalgError
from redalg.graph.node import POSITIONS, Node, leaves, outermost, outermost_reductions, walk
from redalg.kernels.ir.program import STORAGE
from redalg.shown import Shown

if TYPE_CHECKING:
    from redalg.form import Form
    from redalg.language.spec import Spec

FREE = frozenset({"const", "special", "true", "false", "size", "index", "tensor"})


@dataclass(frozen=True)
class Moved:
    """What one way of running a spec reads and writes, in bytes, and how often it walks over the streamed axis."""

    read: int
    written: int
    passes: int
    seconds: float | None = None

    @property
    def bytes(self) -> int:
        return self.read + self.written


@dataclass(frozen=True)
class Traffic(Shown):
    """Three ways of running a spec: `op_by_op`, `stage_by_stage` and `fused`. Prints as a table.

    >>> import redalg as ra
    >>> moved = ra.traffic(ra.catalog["softmax"], {"i": 2, "j": 4})
    >>> for line in str(moved).splitlines():
    ...     print(line.rstrip())
                    bytes read  bytes written  passes  seconds
          op by op         176            112       5
    stage by stage         120             48       3
             fused          64             32       2
    >>> moved.fused.read, moved.stage_by_stage.passes
    (64, 3)
    """

    op_by_op: Moved
    stage_by_stage: Moved
    fused: Moved

    def __str__(self) -> str:
        rows = [("", "bytes read", "bytes written", "passes", "seconds")]
        for name in ("op_by_op", "stage_by_stage", "fused"):
            m: Moved = getattr(self, name)
            seconds = "" if m.seconds is None else f"{m.seconds:.3g}"
            rows.append((name.replace("_", " "), f"{m.read}", f"{m.written}", f"{m.passes}", seconds))
        widths = [max(len(row[k]) for row in rows) for k in range(5)]
        return "\n".join("  ".join(x.rjust(w) for x, w in zip(row, widths, strict=True)) for row in rows)


def traffic(
    spec: Spec,
    sizes: Mapping[str, int],
    dtype: str = "float32",
    form: Form | None = None,
    bandwidth: float | None = None,
) -> Traffic:
    """Bytes and passes of a spec at given lengths: op by op, stage by stage, and fused.

    *Op by op*: every binary operation, map, comparison, choice, reduction and contraction is a kernel of its own that
    reads its operands at their own size and writes its result, as eager frameworks do; a difference and a quotient are
    one operation, numbers and positions are free. *Stage by stage*: every reduction is one kernel with what leads to it
    fused in, and so is every other output. *Fused*: the derived form; a tensor that varies along the streamed axis is
    read once in every walk that needs it, everything else once, states stay on the chip.

    `sizes`: axis -> length; `dtype` of all inexact arrays (Booleans take 1 byte, integers 8); `bandwidth` in bytes per
    second gives times. `form`: if it is derived already (else it is, along the only candidate axis).
    Raises: RedalgError for what is no spec, an axis without a length, one that is no whole number or below 0, and an
    unknown dtype.

    >>> import redalg as ra
    >>> x, b = ra.tensors("x[i,j] b[i,j]")
    >>> t = traffic(ra.Spec(y=ra.log(ra.relu(x + b))), {"i": 10, "j": 100}, "float32")
    >>> t.op_by_op.bytes // 4000, t.fused.bytes // 4000
    (7, 3)
    """
    if not hasattr(spec, "output_axes"):
        raise RedalgError(
            f"a spec of type {type(spec).__name__}", "ra.traffic", "it counts for a Spec", "pass form.spec"
        )
    count = _Count(spec, sizes, dtype)
    stream = form.plan.axis if form is not None else _stream(spec)
    if form is None and stream is not None:
        form = _hooks.derive(spec, axis=stream or None)
    reads = form.passes.reads if form is not None else 1
    axis = frozenset(form.plan.axis) if form is not None else frozenset()
    found = (count.op_by_op(axis), count.stages(axis), count.fused(axis, reads, _walks(form)))
    if bandwidth is not None:
        found = tuple(Moved(m.read, m.written, m.passes, m.bytes / bandwidth) for m in found)  # type: ignore[assignment]
    return Traffic(*found)


def _walks(form: Form | None) -> dict[str, int]:
    """Tensor -> in how many walks over the streamed axis its elements are needed."""
    found: dict[str, int] = {}
    if form is None:
        return found
    walks = [[n for s in p.slots for n in s.lift] for p in form.plan.passes]
    walks.append([o.value for o in form.plan.outputs if o.keeps_axis])
    for nodes in walks:
        for name in {leaf.attr.name for n in nodes for leaf in leaves(n)}:
            found[name] = found.get(name, 0) + 1
    return found


def _stream(spec: Spec) -> tuple[str, ...] | None:
    """The axis of the outermost reductions; empty for a map; None for several."""
    found = {n.attr.axes for n in outermost_reductions(*spec.outputs.values())}
    return next(iter(found)) if len(found) == 1 else () if not found else None


class _Count:
    def __init__(self, spec: Spec, sizes: Mapping[str, int], dtype: str) -> None:
        if dtype not in STORAGE:
            raise RedalgError(f"dtype={dtype!r}", "ra.traffic", "no such storage type", f"one of {', '.join(STORAGE)}")
        self.spec, self.sizes, self.item = spec, dict(sizes), STORAGE[dtype]
        for n in walk(*spec.outputs.values()):
            if n.op == "reduce" and n.attr.kind.startswith("topk"):
                self.sizes.setdefault(n.attr.extra[1], n.attr.extra[0])
        for axis in (*spec.axes, *(a for axes in spec.output_axes.values() for a in axes)):
            if not isinstance(self.sizes.get(axis), Integral) or self.sizes[axis] < 0:
                given = ", ".join(f"{a}={n}" for a, n in sizes.items()) or "none"
                what = f"axis {axis} of length {self.sizes.get(axis, 'unknown')}"
                raise RedalgError(what, "ra.traffic", f"the lengths given are: {given}", f"sizes={{{axis!r}: …}}")

    def bytes(self, node: Node) -> int:
        """What a value takes in memory; numbers and positions nothing."""
        if node.op in ("const", "special", "true", "false", "size", "index"):
            return 0
        if node.op == "tensor" and node.attr.dimensions:  # windows lie in one array
            reach = [1 + sum(step * (self.sizes[a] - 1) for a, step, _ in d.terms) for d in node.attr.dimensions]
            pads = [2 * d.pad for d in node.attr.dimensions]
            return prod(max(0, n - p) for n, p in zip(reach, pads, strict=True)) * self._item(node)
        return self._size(node.axes) * self._item(node)

    def _size(self, axes: Iterable[str]) -> int:
        return prod(self.sizes[a] for a in axes)

    def _item(self, node: Node) -> int:
        if node.is_boolean:
            return 1
        integer = node.op in ("tensor", "state") and "integer" in node.attr.domain
        places = node.op == "reduce" and node.attr.kind in POSITIONS
        return 8 if integer or places else self.item

    # --- op by op ---------------------------------------------------------------------------------

    def op_by_op(self, axis: frozenset[str]) -> Moved:
        read = written = passes = 0
        for reads, result in self._operations():
            read += sum(map(self.bytes, reads))
            written += result
            passes += any(n.axes & axis for n in reads)
        return Moved(read, written, passes)

    def _operations(self) -> list[tuple[list[Node], int]]:
        """Every operation: the values it reads, and the bytes of its result."""
        found: list[tuple[list[Node], int]] = []
        inside = self._parts()
        for node in walk(*self.spec.outputs.values()):
            if node.op in FREE or node in inside:
                continue
            if node.op in ("add", "mul", "maximum", "minimum", "and", "or"):
                found += self._chain(node)
            elif node.op == "reduce":
                found.append((self._reduced(node), self.bytes(node)))
            else:
                found.append((list(node.args), self.bytes(node)))
        return found

    def _parts(self) -> set[Node]:
        """Nodes that belong to the operation that uses them: negations in sums, reciprocals in products, products that
        are contracted."""
        used: dict[Node, list[Node]] = {}
        for node in walk(*self.spec.outputs.values()):
            for a in node.args:
                used.setdefault(a, []).append(node)
        outputs = set(self.spec.outputs.values())
        return {n for n, users in used.items() if n not in outputs and all(self._part(n, u) for u in users)}

    def _part(self, n: Node, user: Node) -> bool:
        if user.op == "add":
            return n.op == "mul" and len(n.args) == 2 and n.args[0].op == "const" and abs(n.args[0].attr) == 1
        if user.op == "mul":
            return n.op == "pow" and n.args[1].op == "const" and n.args[1].attr == -1
        return user.op == "reduce" and self._contracts(user)

    @staticmethod
    def _contracts(node: Node) -> bool:
        body = node.args[0]
        return node.attr.kind == "sum" and body.op == "mul" and len({f.axes for f in body.args if f.axes}) > 1

    def _reduced(self, node: Node) -> list[Node]:
        return [f for f in node.args[0].args if f.axes] if self._contracts(node) else list(node.args)

    def _operand(self, n: Node, user: str) -> Node:
        if (
            user == "add"
            and n.op == "mul"
            and len(n.args) == 2
            and n.args[0].op == "const"
            and abs(n.args[0].attr) == 1
        ):
            return n.args[1]
        if user == "mul" and n.op == "pow" and n.args[1].op == "const" and n.args[1].attr == -1:
            return n.args[0]
        return n

    def _chain(self, node: Node) -> list[tuple[list[Node], int]]:
        """n terms are n - 1 operations, the smallest first."""
        terms = sorted((self._operand(a, node.op) for a in node.args), key=lambda n: (self._size(n.axes), n.digest))
        found = []
        axes, before = terms[0].axes, terms[0]
        for i, term in enumerate(terms[1:]):
            axes |= term.axes
            last = i == len(terms) - 2
            result = self._size(axes) * (self._item(node))
            found.append(([before, term], self.bytes(node) if last else result))
            before = Node("state", (), _Held(tuple(sorted(axes))))  # the value of the terms so far
        return found

    # --- stage by stage, and fused ----------------------------------------------------------------

    def stages(self, axis: frozenset[str]) -> Moved:
        """One kernel per reduction and per other output; each reads the tensors and earlier stages it needs once."""
        reductions = [n for n in walk(*self.spec.outputs.values()) if n.op == "reduce" and set(n.attr.axes) & axis]
        kernels: list[tuple[Iterable[Node], Node]] = [(n.args, n) for n in reductions]
        kernels += [((o,), o) for o in self.spec.outputs.values() if o not in reductions]
        read = written = passes = 0
        for bodies, result in kernels:
            needed = list(outermost(lambda n: n.op == "tensor" or n in reductions, *bodies))
            read += sum(map(self.bytes, needed))
            written += self.bytes(result)
            passes += any(n.axes & axis for n in needed)
        return Moved(read, written, passes)

    def fused(self, axis: frozenset[str], reads: int, walks: Mapping[str, int]) -> Moved:
        used = {leaf.attr.name: leaf for o in self.spec.outputs.values() for leaf in leaves(o)}
        read = sum(self.bytes(n) * (max(1, walks.get(name, 1)) if n.axes & axis else 1) for name, n in used.items())
        return Moved(read, sum(map(self.bytes, self.spec.outputs.values())), reads)


@dataclass(frozen=True)
class _Held:
    """A stand-in for a value that has no node of its own."""

    axes: tuple[str, ...]
    name: str = "value"
    domain: frozenset[str] = frozenset()
