"""Programs, sizes and strides the tests of schedules share."""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any

import redalg as ra
from redalg.kernels.ir.layouts import View, Walk, walk_of
from redalg.kernels.ir.program import Program
from redalg.kernels.ir.schedule import Schedule
from redalg.kernels.programs import lower
from redalg.kernels.schedule.case import Case
from redalg.kernels.schedule.choose import choose
from redalg.kernels.schedule.target import H200, Target
from tests.support.forms import form_of

X, Y, B = ra.tensors("x[i,j] y[i,j,k] b[j]")
SPECS = {
    "top8": ra.Spec(g=ra.topk(ra.exp(X - ra.max(X, "j")) / ra.sum(ra.exp(X - ra.max(X, "j")), "j"), 8, "j").values),
    "everything": ra.Spec(s=ra.sum(X, ["i", "j"])),
    "map": ra.Spec(y=ra.log(ra.relu(X + B))),
    "middle": ra.Spec(s=ra.sum(Y, "j")),
}


@cache
def program(name: str, dtype: str = "float32") -> Program:
    """A catalog spec, or one of `SPECS`, with all floating tensors of one dtype."""
    if name in SPECS:
        spec = SPECS[name]
        return lower(ra.derive_incremental(spec), {t.name: dtype for t in spec.tensors})
    entry = ra.catalog.entry(name)
    form = form_of(name)
    given = {
        k: type(v) if isinstance(v, bool | int | float) else dtype if v.dtype.kind == "f" else v.dtype.name
        for k, v in entry.sample(dtype="float32").items()
    }
    return lower(form, given)


def sizes_of(p: Program, rows: int, length: int, other: int = 16) -> dict[str, int]:
    """Lengths of all axes: the first row axis and the last stream axis as given, other rows and streams 1."""
    sizes = {a: other for array in (*p.operands, *p.results) for a in array.axes}
    sizes |= dict.fromkeys((*p.rows, *p.stream), 1) | p.lengths
    if p.rows:
        sizes[p.rows[0]] = rows
    if p.stream:
        sizes[p.stream[-1]] = length
    return sizes


def views_of(p: Program, sizes: dict[str, int], order: str = "C", align: int = 16, pad: int = 0) -> dict[str, View]:
    found = {}
    for array in [o for o in p.operands if not o.number] + list(p.results):
        shape = tuple(sizes[a] for a in array.axes)
        turned = shape if order == "C" else shape[::-1]
        wide = (*turned[:-1], turned[-1] + pad) if turned else ()
        strides = tuple(prod(wide[d + 1 :]) for d in range(len(wide)))
        found[getattr(array, "key", array.name)] = View(shape, strides if order == "C" else strides[::-1], align)
    return found


def case_of(
    p: Program, rows: int, length: int, target: Target = H200, **view: Any
) -> tuple[dict[str, int], Walk, Case]:
    sizes = sizes_of(p, rows, length)
    walk = walk_of(p, views_of(p, sizes, **view))
    return sizes, walk, Case.of(p, sizes, walk, target)


def chosen(p: Program, rows: int, length: int, target: Target = H200, **more: Any) -> Schedule:
    view = {k: more.pop(k) for k in ("order", "align", "pad") if k in more}
    sizes, walk, _ = case_of(p, rows, length, target, **view)
    return choose(p, sizes, walk, target, **more).schedule


NAMES = ["softmax", "logsumexp", "variance", "layer_norm", "argmax", "top_k", "kl_divergence", "standard_scores", "map"]
NAMES += ["everything", "attention", "weighted_mean", "moe_softmax_topk", "cross_entropy"]
