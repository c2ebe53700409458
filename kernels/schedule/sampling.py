"""Anchors found from a part of a tile, where elements have at most 16 bits: means that only centre what is summed.

A sum of (x - A)^p holds at every anchor A; a good one keeps rounding small. The mean of a part of the tile, its share
being 1/f, is such an anchor: |A - mean|^p is at most f times the tile's mean of |x - mean|^p (Jensen on the part), so
that, by Minkowski, moments about A are at most (1 + f^(1/p))^p times those about the mean, and so are their roundings:
15 times for p = 2 (9, since the mixed term is 0) and 52 for p = 4 with f = `SHARE`. In sums of float32 that is far less
than the rounding of elements and results of 16 bits, and the walk over the tile that looked for its mean is saved. Only
anchors that are a plain mean of their elements are found so: with weights, a part may have none of them.

Where rows lie side by side and are walked in short tiles, several tiles in a row are summed about an anchor that the
first of them gives, and joined to the state together: joining takes as many instructions as summing a dozen elements.
The bound is the same, with f the number of tiles; elements of more than 16 bits have half as many.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from redalg.graph.node import Node, add, leaves, mul, state, substitute, walk
from redalg.graph.operators import Extremum, Product, Quantifier, Sum
from redalg.graph.plan import COUNT
from redalg.kernels.ir.program import STORAGE, First, Fold, Let, Loop, Pass, Program, Step, step_nodes
from redalg.kernels.ir.schedule import Schedule

SHARE = 8  # elements of a tile for one that is looked at
LEAST = 4  # elements of a tile that may say what further tiles are centred by
TOGETHER = 64  # elements of a thread that are summed, one after the other, before they are joined to its state
SOME = state("n_some", (), COUNT.attr.domain)
ALL = state("n_b", (), COUNT.attr.domain)


def sampled(program: Program) -> Program:
    """The program with a part of the tile in place of all of it, where that is enough.

    >>> import redalg as ra
    >>> from redalg.kernels.programs import lower
    >>> form = ra.derive_incremental(ra.catalog["variance"])
    >>> program = sampled(lower(form, {"x": "bfloat16"}))
    >>> [step.part for step in program.passes[0].lift if isinstance(step, Loop)]
    [True, False]
    >>> program = lower(form, {"x": "float32"})
    >>> sampled(program) is program
    True
    """
    if not _narrow(program) or program.columns or program.inner:
        return program
    return replace(program, passes=tuple(replace(p, lift=_lift(p)) for p in program.passes))


def _narrow(program: Program) -> bool:
    """Whether elements have at most 16 bits, and are computed with in float32."""
    widths = [STORAGE[o.dtype] for o in program.operands if "float" in o.dtype and not o.number]
    return program.real == "float32" and bool(widths) and max(widths) <= 2


class Anchored(NamedTuple):
    """A lift in three: how a tile gives the anchors, the sums about them, and what follows from the sums."""

    before: tuple[Step, ...]
    sums: Loop
    after: tuple[Step, ...]


def together(s: Schedule, most: int) -> int:
    """How many tiles of a thread are summed about one anchor before they are joined to its state, of at most so many.

    >>> [together(Schedule(4, 32, tile=n, column=True), 4) for n in (2, 8, 16, 32, 64)]
    [1, 4, 4, 2, 1]
    """
    several = s.column and not s.resident and s.tile >= LEAST
    return max(1, min(most, TOGETHER // s.tile)) if several else 1


def most_together(program: Program, p: Pass) -> int:
    """How many tiles may be summed about the anchors that the first of them gives.

    >>> import redalg as ra
    >>> from redalg.kernels.programs import lower
    >>> found = [lower(ra.derive_incremental(ra.catalog[n]), {"x": "float32"}) for n in ("variance", "softmax")]
    >>> [most_together(program, program.passes[0]) for program in found]
    [4, 1]
    """
    if program.columns or program.inner or p.ordered or p.update and p.absorbs or anchored(p) is None:
        return 1
    return SHARE if _narrow(program) else SHARE // 2


def anchored(p: Pass) -> Anchored | None:
    """The lift of a pass in three, where all that its sums need of a tile are plain means that centre them."""
    whole = tuple(_whole(step) for step in p.lift)
    known, loops = means(replace(p, lift=whole)), [n for n, s in enumerate(whole) if isinstance(s, Loop)]
    if not known:
        return None
    before = tuple(s for s in _guesses(whole[: loops[-1]], known) if not isinstance(s, Loop) or s.folds)
    rest = tuple(f for n in loops for f in _folds(whole[n]) if f.names[0] not in known)
    found = Anchored(before, Loop(rest), whole[loops[-1] + 1 :])
    return found if rest and _centres(before, known) and _waits(found) else None


def _folds(step: Step) -> tuple[Fold, ...]:
    return step.folds if isinstance(step, Loop) else ()


def _guesses(steps: Iterable[Step], known: set[str]) -> Iterator[Step]:
    """The steps, of whose walks only what guesses are moved by is left."""
    for s in steps:
        yield Loop(tuple(f for f in s.folds if f.names[0] in known)) if isinstance(s, Loop) else s


def _centres(before: Iterable[Step], known: set[str]) -> bool:
    """Whether the number of elements is asked for means of these sums alone."""
    read = [{n.attr.name for n in leaves_of(step)} for step in before]
    return all(names & known for names in read if ALL.attr.name in names)


def _waits(found: Anchored) -> bool:
    """Whether nothing before the sums reads one, nor any of them another one (weights ``exp(x - max x)`` would be of
    the maximum so far), and further elements may be added to each."""
    names = {n for f in found.sums.folds for n in f.names}
    read = {n.attr.name for step in (*found.before, found.sums) for n in leaves_of(step)}
    adds = all(isinstance(f.op, Sum | Product | Extremum | Quantifier) and not f.axes for f in found.sums.folds)
    return adds and names.isdisjoint(read)


def _whole(step: Step) -> Step:
    """A step as it is where all of a tile is looked at."""
    if isinstance(step, Loop):
        return replace(step, part=False)
    return replace(step, node=substitute(step.node, {SOME: ALL}, raw=True)) if isinstance(step, Let) else step


def some(s: Schedule) -> int:
    """Vectors of a thread that are the part of its tile."""
    return -(-s.tile // s.vector // SHARE)


def counted(s: Schedule, length: str = "length") -> str:
    """The text of the number of elements of that part: a thread's, or, where the tile is the row, of all threads.
    `length`: the text of how many elements of a row lie in whole vectors."""
    most = some(s) * s.vector * (s.threads if s.together else 1)
    if s.exact:
        return str(most * (s.cluster if s.together else 1))
    if not s.together:
        return f"min(n_b, {most})"
    more = [f" + max(0, min({length} - {p * s.threads * s.tile}, {most}))" for p in range(1, s.cluster)]
    return f"min({length}, {most}){''.join(more)}"


def _lift(p: Pass) -> tuple[Step, ...]:
    known = means(p)
    found: list[Step] = []
    for step in p.lift:
        if isinstance(step, Loop):
            some = tuple(f for f in step.folds if f.names[0] in known)
            rest = tuple(f for f in step.folds if f.names[0] not in known)
            found += [Loop(folds, part) for folds, part in ((some, True), (rest, False)) if folds]
        elif isinstance(step, Let) and any(n.attr.name in known for n in leaves(step.node, "state")):
            found.append(replace(step, node=substitute(step.node, {ALL: SOME}, raw=True)))
        else:
            found.append(step)
    return tuple(found)


def means(p: Pass) -> set[str]:
    """Names of the sums whose only use is the mean that a first guess of an anchor is moved by."""
    lets = {s.name: s.node for s in p.lift if isinstance(s, Let)}
    firsts = {s.name for s in p.lift if isinstance(s, First)}
    readers = _readers(p)
    found = set()
    for fold in (f for s in p.lift if isinstance(s, Loop) for f in s.folds if isinstance(f.op, Sum) and not f.axes):
        users = readers.get(fold.names[0], [])
        mean = users[0] if len(users) == 1 else ""
        anchors = readers.get(mean, []) if mean in lets else []
        if anchors and all(_guessed(a, mean, lets, firsts) for a in anchors):
            found.add(fold.names[0])
    return found


def _readers(p: Pass) -> dict[str, list[str]]:
    """The steps that read each name of the state: their own names, "" for folds."""
    found: dict[str, list[str]] = {}
    for step in p.lift:
        name = step.name if isinstance(step, Let | First) else ""
        for leaf in leaves_of(step):
            found.setdefault(leaf.attr.name, []).append(name)
    return found


def _guessed(name: str, mean: str, lets: dict[str, Node], firsts: set[str]) -> bool:
    """Whether the name is that of a guess moved by the mean."""
    guess = f"{name.removesuffix('_seen_b')}_first"
    if not name.endswith("_seen_b") or guess not in firsts or name not in lets:
        return False
    known = {leaf.attr.name: leaf for leaf in leaves(lets[name], "state")}
    if not {guess, mean} <= set(known):
        return False
    by = [n for n in walk(lets[name]) if n.op == "pow2"]  # of an element in units of the data
    return lets[name] in (add(known[guess], known[mean]), *(add(known[guess], mul(u, known[mean])) for u in by))


def leaves_of(step: Step) -> set[Node]:
    """The leaves of a step's state."""
    return {leaf for n in step_nodes(step) for leaf in leaves(n, "state")}
