"""Positions packed with their values: argmax, argmin and top-k of float32 values as the maximum of one 64-bit key.

The upper half of a key orders like the value (the bits of a float, complemented below zero; NaN above everything), the
lower half is the complement of the position. So one unsigned comparison decides, ties go to the lowest position, and
the first NaN wins. The key 0 is no element. (The sign of a zero is lost.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from redalg.graph.node import Node, leaves, neg, state, substitute
from redalg.graph.operators import Position, TopK
from redalg.kernels.ir.check import check
from redalg.kernels.ir.kinds import program_kinds
from redalg.kernels.ir.program import (
    First,
    Fold,
    FoldOperator,
    Join,
    KeyMax,
    KeyTop,
    Let,
    Loop,
    Part,
    Pass,
    Program,
    Step,
)


def packed(program: Program) -> Program:
    """The program with packed keys in place of (value, position) pairs, where values are computed in float32.

    >>> import redalg as ra
    >>> from redalg.kernels.programs import lower
    >>> program = packed(lower(ra.derive_incremental(ra.catalog["argmax"]), {"x": "float32"}))
    >>> [(part.name, part.kind) for part in program.passes[0].parts]
    [('argmax_x_key', 'k')]
    """
    if program.real != "float32":
        return program
    kinds = program_kinds(program).names
    passes: list[Pass] = []
    names: dict[str, tuple[str, str, int]] = {}
    for p in program.passes:
        found = _pairs(p, kinds)
        names |= found
        passes.append(_packed_pass(p, found) if found else p)
    if not names:
        return program
    read = {
        part + end: (key + end, which, sign) for part, (key, which, sign) in names.items() for end in ("", "_b", "_new")
    }
    results = tuple(
        replace(r, node=_read(r.node, read), masked=None if r.masked is None else _read(r.masked, read))
        for r in program.results
    )
    return check(replace(program, passes=tuple(passes), results=results))


Names = Mapping[str, tuple[str, str, int]]  # part -> its key, which half of it, and the sign of the value in it


def _pairs(p: Pass, kinds: Mapping[str, str]) -> dict[str, tuple[str, str, int]]:
    found = {}
    for step in p.lift:
        for fold in step.folds if isinstance(step, Loop) else ():
            value, place = (name.removesuffix("_b") for name in fold.names) if len(fold.names) == 2 else ("", "")
            if isinstance(fold.op, Position | TopK) and kinds[value] == "f" and not fold.axes:
                sign = -1 if fold.kind == "argmin" else 1
                key = f"{value.removesuffix('_values').removesuffix('_value')}_key"
                found[value], found[place] = (key, "value", sign), (key, "place", sign)
    return found


def _packed_pass(p: Pass, names: Names) -> Pass:
    read = {
        part + end: (key + end, which, sign) for part, (key, which, sign) in names.items() for end in ("", "_b", "_new")
    }
    parts = []
    for part in p.parts:
        if part.name not in names:
            parts.append(part)
        elif names[part.name][1] == "value":
            parts.append(Part(names[part.name][0], "k", 0, part.axes, part.top))
    lift, combine, update = (tuple(_step(s, names, read) for s in steps) for steps in (p.lift, p.combine, p.update))
    exports = tuple(Let(e.name, _read(e.node, read)) for e in p.exports)
    return replace(p, parts=tuple(parts), lift=lift, combine=combine, update=update, exports=exports)


def _step(step: Step, names: Names, read: Names) -> Step:
    if isinstance(step, Let | First):
        return replace(step, node=_read(step.node, read))
    if isinstance(step, Loop):
        return replace(step, folds=tuple(_fold(f, names, read) for f in step.folds))
    base = step.names[0].removesuffix("_new")
    if base in names:
        key = names[base][0]
        sides = ((state(key + end, step.a[0].attr.axes),) for end in ("", "_b"))
        a, b = sides
        return Join((f"{key}_new",), _key(step.op), a, b, step.axes)
    return replace(step, a=tuple(_read(n, read) for n in step.a), b=tuple(_read(n, read) for n in step.b))


def _fold(fold: Fold, names: Names, read: Names) -> Fold:
    bodies = tuple(_read(b, read) for b in fold.bodies)
    name = fold.names[0].removesuffix("_b")
    if name not in names:
        return replace(fold, bodies=bodies)
    key, _, sign = names[name]
    return Fold((f"{key}_b",), _key(fold.op), bodies if sign > 0 else (neg(bodies[0]),), fold.axes)


def _key(op: FoldOperator) -> KeyMax | KeyTop:
    return KeyTop(op.k, op.axis) if isinstance(op, TopK) else KeyMax()


def _read(node: Node, read: Names) -> Node:
    mapping = {}
    for leaf in leaves(node, "state"):
        if leaf.attr.name in read:
            key, which, sign = read[leaf.attr.name]
            half = Node("call", (state(key, leaf.attr.axes),), f"key_{which}")
            mapping[leaf] = neg(half) if sign < 0 and which == "value" else half
    return substitute(node, mapping, raw=True) if mapping else node
