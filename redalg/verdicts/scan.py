"""Thin out a large scattered sample in floating point before anything is computed exactly.

Bodies with kinks separate elements only where a context falls between them, so most suffixes are useless. A few
thousand entries cost a millisecond in float64; the rows and columns that matter are then decided exactly. Nothing is
proved here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from redalg.errors import RedalgError
from redalg.graph.node import Node, substitute, tensor
from redalg.numeric.evaluate import evaluate
from redalg.verdicts.design import Problem, Sample
from redalg.verdicts.evaluate import STREAM

TOLERANCE = 1e-9  # pivots below this part of their row are taken for rounding


def thin(root: Node, problem: Problem, sample: Sample, least: int) -> Sample | None:
    """The part of the sample that shows the rank, or None where the rank is small or does not grow with the sample."""
    matrix = _floats(root, problem, sample)
    if matrix is None:
        return None
    rows, columns = _pivots(matrix)
    fewer = min(len(_pivots(part)[0]) for part in (matrix[::2], matrix[:, ::2]))
    if len(rows) < least or fewer > len(rows) - 2:
        return None
    keep = least + 8
    return replace(
        sample,
        rows=[sample.rows[i] for i in sorted(rows[:keep])],
        suffixes=[sample.suffixes[q] for q in columns[:keep]],
    )


def _floats(root: Node, problem: Problem, sample: Sample) -> np.ndarray | None:
    """The body at every element in the context of every stream, in float64 (suffixes of one length)."""
    axis, streams = problem.axis, len(sample.suffixes)
    env: dict[str, Any] = {d.name: sample.parameters[d.name].astype(_kind(d)) for d in problem.parameters}
    mapping: dict[Node, Node] = {}
    for d in problem.streamed:
        mapping[Node("tensor", (), d)] = tensor(d.name, (STREAM, *d.axes), d.domain)
        at = 1 + d.axes.index(axis)
        prefix: Any = np.stack([e[d.name] for e in sample.prefix]).astype(_kind(d))
        suffixes: Any = np.stack([np.stack([e[d.name] for e in s]) for s in sample.suffixes]).astype(_kind(d))
        whole = np.concatenate([np.broadcast_to(prefix, (streams, *prefix.shape)), suffixes], axis=1)
        env[d.name] = np.moveaxis(whole, 1, at)
    varied = substitute(root, mapping, raw=True)
    others = sorted(varied.axes - {STREAM, axis})
    try:
        order = (STREAM, axis, *others)
        values = evaluate([varied], env, sample.lengths, dtype=np.float64, offsets=sample.first, orders=[order])[0]
    except (RedalgError, ArithmeticError, LookupError, TypeError, ValueError):
        return None
    full: Any = np.asarray(values, dtype=float)
    while full.ndim > 2:
        full = full[..., 0]
    if full.shape[0] != streams or full.shape[1] < len(sample.prefix):
        return None
    matrix = full[:, sample.rows].T
    return np.where(np.isfinite(matrix), matrix, 0.0)


def _kind(decl: Any) -> type:
    return bool if "bool" in decl.domain else float


def _pivots(matrix: np.ndarray) -> tuple[list[int], list[int]]:
    """Gaussian elimination with complete pivoting on rows scaled to size one."""
    work = matrix / np.maximum(np.abs(matrix).max(axis=1, keepdims=True), 1e-300)
    rows, columns = [], []
    for _ in range(min(work.shape)):
        i, j = np.unravel_index(np.abs(work).argmax(), work.shape)
        if abs(work[i, j]) < TOLERANCE:
            break
        rows.append(int(i))
        columns.append(int(j))
        work = work - np.outer(work[:, j] / work[i, j], work[i])
        work[i], work[:, j] = 0.0, 0.0
    return rows, columns
