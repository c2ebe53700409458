"""Where to look for a witness: elements, and suffixes that put the contexts *between* the elements.

Elements sit in a narrow cluster, so that one more element of moderate size moves a mean (or a sum, a variance, a
softmax weight) across all of them; further suffixes move the extremes. Designs differ in centre, width, how several
tensors vary together, and in what every suffix leaves unchanged (for contexts that belong to an earlier pass).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from redalg.graph.intervals import admits, is_interval, moved
from redalg.graph.node import Decl, Node, Reduce, walk
from redalg.verdicts.evaluate import Unsupported

Element = dict[str, np.ndarray]  # tensor -> values over its other axes (declared order)
KINKS = frozenset("abs relu sign floor ceil cast where maximum minimum eq ne lt le".split())


@dataclass(frozen=True)
class Problem:
    """What a stage or an output reads: streamed tensors, parameters, and the axes beside the streamed one."""

    streamed: tuple[Decl, ...]
    parameters: tuple[Decl, ...]
    axis: str
    free: tuple[str, ...]  # one index is fixed
    complete: tuple[str, ...]  # reduced inside an element, always whole
    trailing: tuple[str, ...]  # the rest of a composite streamed axis; of length one
    analytic: bool  # no kinks: the generic rank shows in every design
    positional: bool
    ranked: tuple[tuple[str, int], ...] = ()  # axes that top-k makes, with their lengths


SCANNED = 48  # elements of a scattered sample


def survey(root: Node, axis: tuple[str, ...]) -> Problem:
    """Read the leaves of a graph; raises `Unsupported` for what the exact numbers do not model."""
    nodes = list(walk(root))
    decls = dict.fromkeys(n.attr for n in nodes if n.op in ("tensor", "state"))
    _check_modelled(nodes, decls)
    reductions = [n.attr for n in nodes if n.op == "reduce"]
    reduced = dict.fromkeys(a for r in reductions for a in r.axes)
    everything = dict.fromkeys([*(a for d in decls for a in d.axes), *reduced])
    everything |= dict.fromkeys(n.attr for n in nodes if n.op in ("index", "size"))
    others = [a for a in everything if a not in axis]
    head = axis[0]
    return Problem(
        streamed=tuple(d for d in decls if head in d.axes),
        parameters=tuple(d for d in decls if head not in d.axes),
        axis=head,
        free=tuple(a for a in others if a not in reduced),
        complete=tuple(a for a in others if a in reduced),
        trailing=tuple(axis[1:]),
        analytic=not any(map(_kinked, nodes)),
        positional=any(n.op == "index" for n in nodes),
        ranked=_ranked(reductions),
    )


def _check_modelled(nodes: Sequence[Node], decls: Iterable[Decl]) -> None:
    names = [d.name for d in decls]
    if len(set(names)) < len(names):
        raise Unsupported("a tensor read along two axes")
    if any("complex" in d.domain for d in decls) or any(n.op == "special" and n.attr == "i" for n in nodes):
        raise Unsupported("complex numbers")


def _kinked(n: Node) -> bool:
    return n.op in KINKS or (n.op == "reduce" and n.attr.kind not in ("sum", "prod"))


def _ranked(reductions: Iterable[Reduce]) -> tuple[tuple[str, int], ...]:
    """The axes that top-k makes, with their lengths."""
    return tuple(dict(r.extra[::-1] for r in reductions if r.kind.startswith("topk")).items())


@dataclass(frozen=True)
class Design:
    """One way to draw a sample. `suffixes` names the family of suffixes: means, sums, squares, mirrored, circle,
    lengths, or scattered (many, to be thinned out)."""

    centre: Fraction = Fraction(0)
    width: Fraction = Fraction(1, 4)
    together: str = "independent"  # how further tensors vary with the first: independent, same, opposite
    suffixes: str = "means"
    complete: int = 2
    first: int = 1000  # the index of a free axis that is compared with positions


@dataclass
class Sample:
    """Elements common to all streams (those at `rows` are wanted as points), and the suffixes."""

    prefix: list[Element]
    rows: list[int]
    suffixes: list[list[Element]]
    parameters: Element
    lengths: dict[str, int]
    first: dict[str, int]
    sizes: dict[str, int] = field(default_factory=dict)


SCATTERED = (  # centre and half width
    (Fraction(0), Fraction(3)),
    (Fraction(2), Fraction(3, 2)),
    (Fraction(1, 2), Fraction(1, 4)),
    (Fraction(1, 16), Fraction(1, 16)),
    (Fraction(0), Fraction(30)),
)


def designs(keep_earlier: bool, positional: bool, scan: bool) -> Iterator[Design]:
    """The designs in the order they are tried; `keep_earlier` asks for suffixes that leave mean and extremes alone."""
    signed, positive = Design(), Design(Fraction(2), Fraction(1, 128))
    balanced = [
        Design(Fraction(2), Fraction(1, 128), suffixes="mirrored"),
        Design(Fraction(2), Fraction(1, 512), suffixes="circle"),
    ]
    if keep_earlier:
        yield from balanced
    yield signed
    yield positive
    if scan:
        yield from (Design(centre, width, suffixes="scattered") for centre, width in SCATTERED)
    yield Design(together="opposite", complete=1, first=20 if positional else 1000)
    yield Design(Fraction(1, 2), Fraction(1, 800))
    yield Design(Fraction(1, 32), Fraction(1, 4000), together="same")
    yield Design(suffixes="sums")
    yield Design(Fraction(1, 32), Fraction(1, 4000), suffixes="squares")
    yield Design(suffixes="lengths")
    yield Design(Fraction(-2), Fraction(1, 128), complete=1)
    if not keep_earlier:
        yield balanced[0]
    yield Design(Fraction(30), Fraction(1), together="opposite")


class Draw:
    """Draws one sample of a design, the same for equal seeds."""

    def __init__(self, problem: Problem, design: Design, points: int, seed: int) -> None:
        self.problem, self.design, self.points = problem, design, points
        self.random = random.Random(seed)
        self.lengths = dict.fromkeys((*problem.free, *problem.trailing), 1) | dict.fromkeys(
            problem.complete, design.complete
        )
        self.lengths |= dict(problem.ranked)
        self.first = dict.fromkeys(problem.free, design.first) if problem.positional else {}

    def sample(self) -> Sample:
        tracks = [self._track(d, k) for k, d in enumerate(self._entries())]
        family = {
            "means": self._means,
            "mirrored": self._mirrored,
            "circle": self._circle,
            "lengths": self._copies,
            "sums": self._sums,
            "squares": self._squares,
            "scattered": self._scattered,
        }
        suffixes = [self._suffix(tracks, n, build) for n, build in enumerate(family[self.design.suffixes]())]
        suffixes.sort(key=lambda suffix: max(map(_magnitude, suffix)))  # mild streams first: larger minors
        length = len(tracks[0].prefix) if tracks else self.points
        prefix = [self._element([t.prefix[j] for t in tracks]) for j in range(length)]
        sizes = self.lengths | {a: self.first.get(a, 0) + 1 for a in self.problem.free}
        parameters = {d.name: self._parameter(d) for d in self.problem.parameters}
        return Sample(prefix, list(range(self.points)), suffixes, parameters, self.lengths, self.first, sizes)

    def _entries(self) -> list[Decl]:
        """One track of scalars for every entry of every streamed tensor."""
        return [d for d in self.problem.streamed for _ in range(int(np.prod(self._shape(d))))]

    def _shape(self, d: Decl) -> tuple[int, ...]:
        return tuple(self.lengths[a] for a in d.axes if a != self.problem.axis)

    def _track(self, d: Decl, number: int) -> Track:
        centre, width = self._cluster(d)
        half = self.points // 2
        offsets = [Fraction(8 * k + self.random.randrange(4), 8) for k in range(-half, (self.points + 1) // 2)]
        self._vary(offsets, number)
        prefix = self._prefix(centre, width, offsets)
        gaps = list(range(self.points))
        self._vary(gaps, number)
        return Track(d, centre, width, [self._admit(d, v) for v in prefix], gaps, sorted(offsets))

    def _cluster(self, d: Decl) -> tuple[Fraction, Fraction]:
        """Centre and width of the cluster that a tensor's elements sit in, inside its domain."""
        centre, width = self.design.centre, self.design.width
        signed = not d.domain & {"positive", "nonnegative"}
        if "integer" in d.domain:
            return Fraction(0 if signed else 300), Fraction(1)
        return (centre, width) if signed or centre > 0 else (Fraction(2), Fraction(1, 128))

    def _vary(self, values: list[Any], number: int) -> None:
        """Order the values of every tensor but the first as the design lets several tensors vary together."""
        if number and self.design.together == "independent":
            self.random.shuffle(values)
        if number and self.design.together == "opposite":
            values.reverse()

    def _prefix(self, centre: Fraction, width: Fraction, offsets: Sequence[Fraction]) -> list[Fraction]:
        if self.design.suffixes == "scattered":
            return [self._scatter(centre, width) for _ in range(self.points)]
        prefix = [centre + width * o for o in offsets]
        if self.design.suffixes in ("mirrored", "circle"):
            prefix += [-v for v in prefix] + [2 * centre, -2 * centre, Fraction(0), Fraction(0)]
        return prefix

    def _admit(self, d: Decl, value: Fraction) -> Any:
        if "bool" in d.domain:
            return self.random.random() < 0.5
        if is_interval(d.domain):
            return value if admits(d.domain, value) and "integer" not in d.domain else moved(d.domain, value)
        if "integer" in d.domain:
            value = Fraction(round(value))
        if "positive" in d.domain and value <= 0:
            return Fraction(1) if "integer" in d.domain else Fraction(1, 3) / (1 - value)
        return max(value, Fraction(0)) if "nonnegative" in d.domain else value

    def _element(self, values: list[Any]) -> Element:
        element, at = {}, 0
        for d in self.problem.streamed:
            shape = self._shape(d)
            array = np.empty(shape, dtype=object)
            for place in np.ndindex(*shape):
                array[place] = values[at]
                at += 1
            element[d.name] = array
        return element

    def _suffix(self, tracks: list[Track], number: int, build: Callable[[Track, int], list[Fraction]]) -> list[Element]:
        columns = [[self._admit(t.decl, v) for v in build(t, k)] for k, t in enumerate(tracks)]
        length = len(columns[0]) if columns else number + 1  # without tensors only the length of a stream matters
        return [self._element([c[j] for c in columns]) for j in range(length)]

    def _parameter(self, d: Decl) -> np.ndarray:
        shape = tuple(self.lengths.get(a, 1) for a in d.axes)
        array = np.empty(shape, dtype=object)
        for at in np.ndindex(*shape):
            value = Fraction(self.random.choice([4, 5, 6, 7, 9, 3]), 4)
            if self.design.centre and self.random.random() < 0.25 and not d.domain:
                value = -value
            array[at] = self._admit(d, value)
        return array

    # --- families of suffixes: functions from a track to the values of the added elements ---

    def _means(self) -> Iterator[Callable[[Track, int], list[Fraction]]]:
        few = self.problem.analytic
        for g in range(0, self.points, 2 if few else 1):
            yield lambda t, k, g=g: [t.for_mean(g, 1)]  # type: ignore[misc]
        for g in range(5 if few else 10):
            yield lambda t, k, g=g: [t.beyond(g, 1) if k == 0 or self.random.random() < 0.5 else t.for_mean(g, 1)]  # type: ignore[misc]
            yield lambda t, k, g=g: [t.beyond(g, -1) if k == 0 or self.random.random() < 0.5 else t.for_mean(g, 1)]  # type: ignore[misc]
        for g in range(1, self.points, 4):
            yield lambda t, k, g=g: t.pair(g, self.random.randrange(-60, 60))  # type: ignore[misc]

    def _sums(self) -> Iterator[Callable[[Track, int], list[Fraction]]]:
        for g in range(self.points):
            yield lambda t, k, g=g: [t.target(g) - sum(t.prefix)]  # type: ignore[misc]

    def _squares(self) -> Iterator[Callable[[Track, int], list[Fraction]]]:
        for g in range(self.points):
            yield lambda t, k, g=g: [t.for_squares(g)]  # type: ignore[misc]

    def _scattered(self) -> Iterator[Callable[[Track, int], list[Fraction]]]:
        for _ in range(240):
            yield lambda t, k: [self._scatter(t.centre, t.width * Fraction(2) ** self.random.randrange(-2, 8))]

    def _scatter(self, centre: Fraction, width: Fraction) -> Fraction:
        return centre + width * Fraction(self.random.randrange(-(2**12), 2**12), 2**12)

    def _mirrored(self) -> Iterator[Callable[[Track, int], list[Fraction]]]:
        for g in range(self.points):
            yield lambda t, k, g=g: t.opposite(g)  # type: ignore[misc]

    def _circle(self) -> Iterator[Callable[[Track, int], list[Fraction]]]:
        for g in range(2 * self.points):
            yield lambda t, k, g=g: t.on_circle(g if k == 0 else self.random.randrange(2 * self.points))  # type: ignore[misc]

    def _copies(self) -> Iterator[Callable[[Track, int], list[Fraction]]]:
        for m in range(1, self.points + 8):
            yield lambda t, k, m=m: [t.beyond(m % 5, 1 if m % 2 else -1)] * m  # type: ignore[misc]


def _magnitude(element: Element) -> Fraction:
    return max((abs(Fraction(v)) for array in element.values() for v in array.flat), default=Fraction(0))


@dataclass(frozen=True)
class Track:
    """The scalars of one entry of one tensor along the stream."""

    decl: Decl
    centre: Fraction
    width: Fraction
    prefix: list[Any]
    gaps: list[int]
    offsets: list[Fraction]

    def target(self, gap: int) -> Fraction:
        """A value between two neighbouring elements (beyond the last one for the last gap)."""
        g = self.gaps[gap % len(self.gaps)]
        upper = self.offsets[g + 1] if g + 1 < len(self.offsets) else self.offsets[g] + 1
        return self.centre + self.width * (self.offsets[g] + upper) / 2

    def for_mean(self, gap: int, added: int) -> Fraction:
        """The element that moves the mean into the gap."""
        return (len(self.prefix) + added) * self.target(gap) - sum(self.prefix)

    def pair(self, gap: int, step: int) -> list[Fraction]:
        inside = self.centre + self.width * Fraction(step, 7)
        return [inside, self.for_mean(gap, 2) - inside]

    def beyond(self, step: int, side: int) -> Fraction:
        reach = abs(self.offsets[-1] if side > 0 else self.offsets[0])
        return self.centre + side * self.width * (reach + 1 + Fraction(3 * step + step * step, 4))

    def opposite(self, gap: int) -> list[Fraction]:
        """v and -v that move the mean absolute value into the gap and leave the mean alone."""
        count = len(self.prefix) + 2
        v = (count * self.target(gap) - sum(abs(x) for x in self.prefix)) / 2
        return [v, -v]

    def for_squares(self, gap: int) -> Fraction:
        """About the element that moves the sum of squares into the gap (or moves it a little, where it is beyond)."""
        missing = self.target(gap) - sum(x * x for x in self.prefix)
        return Fraction(round(math.sqrt(missing) * 2**20), 2**20) if missing > 0 else self.beyond(gap, 1)

    def on_circle(self, step: int) -> list[Fraction]:
        """v, -v, w, -w with v² + w² constant: mean, second moment and extremes stay."""
        u = Fraction(2 * step + 1, 4 * len(self.offsets) + 3)
        radius = self.centre * Fraction(7, 4)
        v, w = radius * (1 - u * u) / (1 + u * u), radius * 2 * u / (1 + u * u)
        return [v, -v, w, -w]
