"""Which results may be written over an operand that is still being read: where every element is read before, and only
for, the element of the result that takes its place.
"""

from __future__ import annotations

from collections.abc import Mapping

from redalg.graph.node import walk
from redalg.kernels.ir.layouts import readings
from redalg.kernels.ir.program import Program


def in_place(program: Program) -> Mapping[str, frozenset[str]]:
    """Result -> operands it may overwrite, if index by index it lies where they do.

    A row is folded before anything of it is written, and reads no element of another row where all axes of rows and of
    the stream are the operand's. Then elements are read and written one by one, which leaves room for one such result
    only, and for nothing in it that looks elsewhere along the stream.

    >>> import redalg as ra
    >>> from redalg.kernels.programs import lower
    >>> {n: sorted(over) for n, over in in_place(
    ...     lower(ra.derive_incremental(ra.catalog["softmax"]), {"x": "float32"})).items()}
    {'y': ['x']}
    >>> in_place(lower(ra.derive_incremental(ra.catalog["logsumexp"]), {"x": "float32"}))
    {}
    """
    kept = [r for r in program.results if r.keeps and not r.summed]
    if len(kept) != 1 or {*kept[0].axes} != {*program.rows, *program.stream}:
        return {}
    result = kept[0]
    if any(n.op == "reduce" for n in walk(result.node, *([] if result.masked is None else [result.masked]))):
        return {}
    ways: dict[str, set[tuple[str, ...]]] = {}
    for name, axes in readings(program):
        ways.setdefault(name, set()).add(axes)
    operands = [o.name for o in program.operands if o.axes]
    return {result.name: frozenset(n for n in operands if ways.get(n) == {result.axes})}
