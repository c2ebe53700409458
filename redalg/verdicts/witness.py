"""Witnesses: why no incremental form of a class exists, as numbers anyone can recompute.

*Stage, (sum, ×)*: elements x_1 … x_K and suffixes v_1 … v_K give streams (x_1 … x_K)·v_q; with D_q the contexts of the
stream, a non-zero determinant of M[p][q] = F(x_p, D_q) proves that F is no sum of fewer than K products G(x)·H(D), not
even on the pairs that occur together. *Whole spec, any ⊕*: a non-zero determinant of ∂out(x·v_q)/∂x_p excludes every
state of fewer than K reals whose continuations are locally Lipschitz. Values are decided exactly: rationals, images
in F_p (`redalg.verdicts.residues`), or enclosures (`redalg.verdicts.balls`). Source: `theory`, section 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from redalg.graph.node import Node
from redalg.verdicts.design import Problem, Sample, designs, survey
from redalg.verdicts.evaluate import Unsupported
from redalg.verdicts.search import Found, Laboratory, known_contexts, own_contexts, stage_body

DEFAULT_MINIMUM = 9
SAMPLES = 20
SHOWN = 12  # size of the minor that is shown where the rank allows it


@dataclass(frozen=True)
class Witness:
    """Evidence for a refusal, as plain data.

    `kind` is "minor" (`matrix[p][q]` is the stage's body at `points[p]` in the context of `streams[q]`) or "jacobian"
    (the derivative of the output along `streams[q]` with respect to the first entry of tensor `variable` at
    `points[p]`; a product stage's body is log|F|). Every point occurs in every stream, at position `places[p]`. Values
    are rationals, nested tuples over a tensor's other axes. `value` is the determinant of the K×K `matrix`: a rational,
    or a pair of rationals that enclose it and exclude 0. Entries are rationals or closed SymPy numbers; long ones are
    given as rationals that agree to 120 digits, and as many more as `value` needs.

    `parameters` are the tensors that do not vary along the axis, `sizes` the lengths of the other axes, `positions` the
    index fixed on axes that only select a copy.

    >>> import redalg as ra
    >>> w = ra.verdict(ra.parse("m = max[j](x[j]); return y = sum[j](tanh(x[j] - m))")).witness
    >>> w.kind, w.slots_excluded, len(w.matrix)
    ('minor', 12, 12)
    >>> element, stream = w.points[3], w.streams[5]
    >>> element in stream, stream[w.places[3]] == element
    (True, True)
    >>> import sympy
    >>> largest = max(x["x"] for x in stream)
    >>> bool(sympy.Abs(sympy.N(w.matrix[3][5] - sympy.tanh(sympy.Rational(element["x"] - largest)), 50)) < 1e-45)
    True
    """

    kind: str
    points: tuple[dict[str, Any], ...]
    streams: tuple[tuple[dict[str, Any], ...], ...]
    matrix: tuple[tuple[Any, ...], ...]
    value: Fraction | tuple[Fraction, Fraction]
    scope: str
    axis: tuple[str, ...]
    places: tuple[int, ...]
    parameters: dict[str, Any]
    sizes: dict[str, int]
    positions: dict[str, int]
    variable: str | None = None

    @property
    def slots_excluded(self) -> int:
        """The K of the claim: no form of the class with fewer than K slots."""
        return len(self.points)


def refute_stage(
    stage: Node,
    axis: tuple[str, ...],
    known: frozenset[Node] = frozenset(),
    *,
    minimum_k: int = DEFAULT_MINIMUM,
) -> Witness | None:
    """A witness that a sum (or product) over `axis` has no one-pass form with few slots, or None if none was found.

    `known` are contexts of an earlier pass: they have the same value in every stream of the witness. `minimum_k` must
    exceed the rank of every form one would accept. None proves nothing. The result is a function of the arguments.

    >>> from redalg.graph.node import const, div, fn, reduction, size, sub, tensor
    >>> x = tensor("x", ("j",))
    >>> mean = div(reduction("sum", ("j",), x), size(("j",)))
    >>> refute_stage(reduction("sum", ("j",), fn("abs", sub(x, mean))), ("j",)).slots_excluded
    12
    """
    body = stage_body(stage)
    if body is None:
        return None
    own, earlier = own_contexts(body, axis[0], known), known_contexts(body, axis[0], known)
    reads_size = any(n.op == "size" and n.attr == axis[0] for n in own_contexts(body, axis[0], known, sizes=True))
    if not own and (earlier or not reads_size):
        return None
    found = _search(body, axis, minimum_k, SAMPLES, None, earlier)
    return None if found is None else _witness(found, "minor", axis, _stage_scope(stage, axis, found, bool(earlier)))


def refute_output(
    output: Node, axis: tuple[str, ...], *, minimum_k: int = DEFAULT_MINIMUM, budget: int = SAMPLES
) -> Witness | None:
    """A witness that no state of few reals determines the output, whatever ⊕ is, or None if none was found.

    Where the output keeps the axis it is read at the last position of the stream. `minimum_k` must exceed the size of
    every state one would accept (entries of a top-k are added to it here). Step functions have no such witness.

    >>> from redalg.graph.node import add, reduction, tensor
    >>> x = tensor("x", ("j",))
    >>> refute_output(reduction("prod", ("j",), add(x, reduction("sum", ("j",), x))), ("j",)).kind
    'jacobian'
    """
    own = own_contexts(output, axis[0], frozenset())
    if not own:
        return None
    minimum_k += sum(n.attr.extra[0] for n in own if n.attr.kind.startswith("topk"))
    try:
        problem = survey(output, axis)
    except Unsupported:
        return None
    for decl in problem.streamed:
        if decl.domain & {"integer", "bool"}:
            continue
        found = _search(output, axis, minimum_k, budget, decl.name, [])
        if found is not None:
            k = len(found.rows)
            scope = (
                f"any ⊕ over {','.join(axis)}: no state of fewer than {k} reals with locally Lipschitz continuations"
            )
            return _witness(found, "jacobian", axis, scope)
    return None


def _search(
    root: Node, axis: tuple[str, ...], minimum_k: int, budget: int, variable: str | None, earlier: list[Node]
) -> Found | None:
    try:
        problem = survey(root, axis)
    except Unsupported:
        return None
    if not problem.streamed and not problem.positional:
        return None
    laboratory = Laboratory(root, problem, earlier, variable, minimum_k, max(SHOWN, minimum_k))
    quiet, scan = 0, not problem.analytic and not earlier and variable is None
    for number, design in enumerate(designs(bool(earlier), problem.positional, scan)):
        if number >= budget or quiet >= _patience(problem, laboratory):
            return None
        try:
            found, clean = laboratory.attempt(design, number)
        except ArithmeticError:  # numbers too long to write down, as exp(exp(50)) has them: no sample
            found, clean = None, False
        if found is not None:
            return found
        quiet += clean
    return None


def _patience(problem: Problem, laboratory: Laboratory) -> int:
    """How many samples of plainly finite rank are believed: fewer where one shows all, or where each is dear."""
    if problem.analytic:
        return 3
    if laboratory.numbers.name == "field":
        return 100
    return 8 if laboratory.variable is None else 5


def _stage_scope(stage: Node, axis: tuple[str, ...], found: Found, earlier: bool) -> str:
    pair = "(sum, ×)" if stage.attr.kind == "sum" else "(prod, power)"
    passes = ", the values of earlier passes being equal in all streams" if earlier else ""
    return f"{pair} over {','.join(axis)}: no form with fewer than {len(found.rows)} slots{passes}"


def _witness(found: Found, kind: str, axis: tuple[str, ...], scope: str) -> Witness:
    sample: Sample = found.sample
    prefix = tuple(_plain(e) for e in sample.prefix)
    streams = tuple(prefix + tuple(_plain(e) for e in sample.suffixes[q]) for q in found.columns)
    return Witness(
        kind=kind,
        points=tuple(prefix[p] for p in found.rows),
        streams=streams,
        matrix=found.matrix,
        value=found.value,
        scope=scope,
        axis=axis,
        places=found.rows,
        parameters=_plain(sample.parameters),
        sizes=dict(sample.sizes),
        positions=dict(sample.first),
        variable=found.variable,
    )


def _plain(element: dict[str, Any]) -> dict[str, Any]:
    return {name: _nested(array.tolist()) for name, array in element.items()}


def _nested(value: Any) -> Any:
    return tuple(map(_nested, value)) if isinstance(value, list) else value


__all__ = ["Problem", "Witness", "refute_output", "refute_stage"]
