"""`reduction_tree`: one tree per stage before fusion, each over the whole stream; one tree with its merges after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from redalg.algebra import state as symbolic
from redalg.errors import RedalgError
from redalg.graph.node import leaves
from redalg.graph.plan import PassPlan
from redalg.pictures.diagram import BOLD, LANE, LINE, PAD, WIDER, Pen
from redalg.pictures.flow import moving
from redalg.pictures.style import BLACK, BLUE, BODY, DASHES, GREEN, GREY, LIGHT, PALETTE, SMALL, TITLE
from redalg.pictures.text import extent, formula, widest, wrapped
from redalg.pictures.written import Step, Written, written_form
from redalg.text.tables import listed, plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from redalg.form import Form

BAR, LEVEL, APART, WIDE = 0.24, 0.34, 0.5, 3.0
TICKED = 64  # elements up to which each is drawn
Span = tuple[int, int]  # the first and the last piece a node covers


@dataclass(frozen=True)
class Tree:
    """One read of the stream: what is read, whether its pieces are merged, and what stands at the root."""

    name: str
    source: str
    merges: bool
    lines: tuple[str, ...]
    needs: tuple[str, ...]
    color: str
    inside: str = ""  # what every edge carries


def reduction_tree(form: Form, lengths: Sequence[int], *, ax: Axes | None = None) -> Axes:
    """Reduction trees of a form over pieces of so many elements each, before fusion (left) and after (right).

    Before, every stage is a tree of its own that reads the stream again, and a later stage waits for the roots it needs
    (lanes on the right). After, one tree carries the whole state, and the text under it says how the slots move when
    two states meet. Small numbers count the elements a node covers; a piece of length 0 is a state like any other.

    Edges have the gid ``side:tree:child->parent``, nodes ``side:tree:node``, where a node is ``first-last`` piece.

    Raises: RedalgError for lengths that are not integers of at least 0, or none at all, and without matplotlib.

    >>> import redalg as ra
    >>> form = ra.derive_incremental(ra.catalog["logsumexp"])
    >>> edges = [a.get_gid() for a in reduction_tree(form, (3, 0, 4)).lines if "->" in a.get_gid()]
    >>> sum(e.startswith("before") for e in edges), sum(e.startswith("after") for e in edges)
    (16, 8)
    """
    counts = _checked(lengths)
    columns = [_Column("before", *_before(form), counts), _Column("after", *_after(form), counts)]
    width = sum(c.width for c in columns) + APART + 0.1
    height = max(c.height for c in columns) + 0.1
    pen, left = Pen(ax, "reduction_tree", width, height), 0.05
    for column in columns:
        column.draw(pen, left, 0.05)
        left += column.width + APART
    return pen.ax


def _checked(lengths: Sequence[int]) -> tuple[int, ...]:
    counts = tuple(lengths)
    if not counts or any(isinstance(n, bool) or not isinstance(n, int) or n < 0 for n in counts):
        why, fix = "a tree is drawn over at least one piece of 0 or more elements", "lengths=(3, 0, 5, 2)"
        raise RedalgError(f"lengths={lengths!r}", "redalg.pictures.reduction_tree", why, fix)
    return counts


def merge_levels(pieces: int) -> list[list[Span]]:
    """A balanced tree: the pieces, then neighbours merged until one node is left; one left over goes down as it is.

    >>> merge_levels(3)
    [[(0, 0), (1, 1), (2, 2)], [(0, 1), (2, 2)], [(0, 2)]]
    """
    levels = [[(k, k) for k in range(pieces)]]
    while len(levels[-1]) > 1:
        last = levels[-1]
        pairs = [last[k : k + 2] for k in range(0, len(last), 2)]
        levels.append([(pair[0][0], pair[-1][1]) for pair in pairs])
    return levels


# --- what the trees say ----------------------------------------------------------------------------------------------


def _before(form: Form) -> tuple[str, list[Tree], list[str]]:
    cascade = written_form(form)
    lines = cascade.lines()
    trees = []
    for step in (*cascade.stages, *(o for o in cascade.outputs if o.level)):
        is_stage = step in cascade.stages
        text = formula(step.node, lines.names, WIDE, defined=is_stage)
        source = ", ".join(step.reads)
        trees.append(Tree(step.name, source, is_stage, (text,), step.needs, BLUE if is_stage else BLACK))
    title = f"as written: {plural(len(trees), 'tree')}, each reads the stream"
    notes = [wrapped(f"{name} = {text}", WIDE) for name, text in lines.bindings()]
    notes += [f"{o.name} = {_spelled(o, cascade)}" for o in cascade.outputs if not o.level]
    return title, trees, notes


def _spelled(output: Step, cascade: Written) -> str:
    return formula(output.node, cascade.lines().names, WIDE - 0.5)


def _after(form: Form) -> tuple[str, list[Tree], list[str]]:
    axis, trees, notes = form.plan.axis, [], []
    before: tuple[str, ...] = ()
    passes = [p for p in form.plan.passes if p.order]
    for number, p in enumerate(passes, start=1):
        name = "state" if len(passes) == 1 else f"state{number}"
        parts = [part.name for part in symbolic.parts(p)]
        read = dict.fromkeys(n.attr.name for s in p.slots for b in s.lift for n in leaves(b) if n.axes & set(axis))
        trees.append(Tree(name, ", ".join(read), True, (wrapped(", ".join(parts), WIDE),), before, GREEN))
        notes += _joining(p)
        before = (name,)
    values = symbolic.outputs(form.plan)
    for out in form.plan.outputs:
        text = formula(values[out.name], {}, WIDE)
        if out.keeps_axis or not axis:
            read = dict.fromkeys(n.attr.name for n in leaves(values[out.name]) if n.axes & set(axis) or not axis)
            trees.append(Tree(out.name, ", ".join(read), False, (text,), before, BLACK))
        else:
            notes.append(f"{out.name} = {text}")
    title = f"fused: {plural(len(trees), 'tree')}, {plural(form.passes.reads, 'read')} of the stream"
    return title, trees, notes


def _joining(p: PassPlan) -> list[str]:
    """What happens to every slot where two states meet."""
    found = ["where a and b meet:"]
    still = [s for s in p.slots if not s.vanishes and not s.moves]
    for kind in dict.fromkeys(s.kind for s in still):
        found.append(f"{listed(s.parts[0] for s in still if s.kind == kind)}: {kind} of both")
    for s in p.slots:
        if s.moves and not s.vanishes:
            text = f"{s.name} {moving(s, p, WIDE)}"
            found.append(text)
    return found


# --- where they lie, and drawing them --------------------------------------------------------------------------------


class _Column:
    """Trees one below the other, growing downwards from the pieces they read to their roots."""

    def __init__(self, key: str, title: str, trees: list[Tree], notes: list[str], counts: tuple[int, ...]) -> None:
        self.key, self.title, self.trees, self.notes, self.counts = key, title, trees, notes, counts
        self.levels = merge_levels(len(counts))
        self.source = widest((t.source for t in trees), BODY) + 0.1
        self.pieces = self._cut()
        self.bar = self.pieces[-1][1]
        self.roots = max((self._root(t)[0] for t in trees), default=1.0)
        needed = {n for t in trees for n in t.needs}
        self.lanes = [t.name for t in trees if t.name in needed]
        self.span = max(self.bar, self.roots)
        heading = max(widest([title], BOLD * TITLE), widest(notes, SMALL))
        self.width = max(self.source + self.span + 0.2 + LANE * len(self.lanes) + PAD, heading)
        self.tops = []
        y = extent(title, TITLE)[1] + 0.15
        for t in trees:
            self.tops.append(y)
            y += self._height(t) + 0.28
        self.below = y
        self.height = y + sum(extent(n, SMALL)[1] + LINE for n in notes) + 0.05

    def _cut(self) -> list[tuple[float, float]]:
        """Where each piece of the bar begins and ends: as long as it has elements, but never too short for its text."""
        each = min(0.16, 3.4 / max(1, sum(self.counts)))
        at, found = 0.0, []
        for n in self.counts:
            width = max(0.32, each * n)
            found.append((at, at + width))
            at += width + 0.06
        return found

    def _root(self, t: Tree) -> tuple[float, float]:
        height = sum(extent(x, BODY)[1] + LINE for x in (t.name, *t.lines)) + 2 * PAD
        return max(widest([t.name], BOLD * BODY), widest(t.lines, BODY)) * WIDER + 2 * PAD, height

    def _height(self, t: Tree) -> float:
        levels = len(self.levels) if t.merges else 0
        return BAR + 0.3 + LEVEL * levels + self._root(t)[1]

    def draw(self, pen: Pen, left: float, top: float) -> None:
        pen.text(left, top, self.title, TITLE, f"{self.key}:title", fontweight="bold")
        for t, y in zip(self.trees, self.tops, strict=True):
            self._tree(pen, t, left + self.source, top + y)
        self._waiting(pen, left + self.source + self.span, top)
        y = top + self.below
        for note in self.notes:
            pen.text(left, y, note, SMALL, f"{self.key}:note")
            y += extent(note, SMALL)[1] + LINE

    def _tree(self, pen: Pen, t: Tree, left: float, y: float) -> None:
        gid, shift = f"{self.key}:{t.name}", (self.span - self.bar) / 2
        left += shift
        pen.text(left - 0.08, y + BAR / 2, t.source, BODY, f"{gid}:source", ha="right", va="center")
        self._bar(pen, gid, left, y)
        width, height = self._root(t)
        top = y + self._height(t) - height
        middle = left + self.bar / 2
        if t.merges:
            at = self._merges(pen, gid, t.color, left, y + BAR)
            self._edge(pen, f"{gid}:root", at, (middle, top), t.color)
        else:
            for k, (a, b) in enumerate(self.pieces):
                self._edge(pen, f"{gid}:{k}-{k}", (left + (a + b) / 2, y + BAR), (middle, top), t.color)
        pen.box(middle - width / 2, top, width, height, f"{gid}:box", t.color, "white", "-", 1.3)
        pen.text(middle - width / 2 + PAD, top + PAD, t.name, BODY, f"{gid}:name", fontweight="bold", color=t.color)
        at_y = top + PAD + extent(t.name, BODY)[1] + LINE
        for line in t.lines:
            pen.text(middle - width / 2 + PAD, at_y, line, BODY, f"{gid}:text")
            at_y += extent(line, BODY)[1] + LINE

    def _bar(self, pen: Pen, gid: str, left: float, y: float) -> None:
        """The pieces, and in them one tick per element."""
        for k, ((a, b), n) in enumerate(zip(self.pieces, self.counts, strict=True)):
            pen.box(left + a, y, b - a, BAR, f"{gid}:piece{k}", BLACK, LIGHT, "-" if n else DASHES[2], 0.9, 0.02)
            if n and sum(self.counts) <= TICKED:
                for i in range(n):
                    x = left + a + (b - a) * (i + 0.5) / n
                    pen.ax.plot(
                        [x, x], [y + 0.06, y + BAR - 0.06], color=BLACK, lw=1.1 * pen.scale, gid=f"{gid}:element"
                    )

    def _merges(self, pen: Pen, gid: str, color: str, left: float, y: float) -> tuple[float, float]:
        """Nodes and edges, level by level; the place of the last node."""
        places: dict[Span, tuple[float, float]] = {}
        below: dict[Span, float] = {}  # how far to the right the next node lies
        for depth, level in enumerate(self.levels):
            for span in level:
                before = [c for c in self.levels[depth - 1] if span[0] <= c[0] and c[1] <= span[1]] if depth else []
                if before == [span]:
                    continue
                at = self._centre(span) + left, y + LEVEL * (depth + 0.75)
                for child in before:
                    below[child] = at[0]
                    self._edge(pen, f"{gid}:{child[0]}-{child[1]}->{span[0]}-{span[1]}", places[child], at, color)
                if not before:
                    self._edge(pen, f"{gid}:piece{span[0]}->{span[0]}-{span[0]}", (at[0], y), at, color)
                places[span] = at
        for span, at in places.items():
            n = sum(self.counts[span[0] : span[1] + 1])
            merged, gid_ = span[0] < span[1], f"{gid}:{span[0]}-{span[1]}"
            pen.ax.plot(
                *at,
                marker="o",
                ms=(5.5 if merged else 4.5) * pen.scale,
                mec=color,
                mfc=color if n and merged else "white",
                gid=gid_,
            )
            aside = -1 if below.get(span, 0) > at[0] else 1  # away from the line to the next node
            pen.text(
                at[0] + 0.07 * aside,
                at[1],
                str(n),
                SMALL - 1,
                f"{gid_}:count",
                va="top",
                ha="right" if aside < 0 else "left",
                color=GREY,
            )
        return places[self.levels[-1][0]]

    def _centre(self, span: Span) -> float:
        return (self.pieces[span[0]][0] + self.pieces[span[1]][1]) / 2

    @staticmethod
    def _edge(pen: Pen, gid: str, start: tuple[float, float], end: tuple[float, float], color: str) -> None:
        name = gid if "->" in gid else f"{gid}->root" if not gid.endswith(":root") else f"{gid[:-5]}:all->root"
        pen.ax.plot([start[0], end[0]], [start[1], end[1]], color=color, lw=1.1 * pen.scale, zorder=0.5, gid=name)

    def _waiting(self, pen: Pen, edge: float, top: float) -> None:
        """Lanes from a root to the reads that need its value before they can start."""
        heights = {t.name: (y, self._height(t)) for t, y in zip(self.trees, self.tops, strict=True)}
        for number, source in enumerate(self.lanes):
            x, (y, height) = edge + 0.15 + LANE * number, heights[source]
            root = self._root(next(t for t in self.trees if t.name == source))
            start = left_of = top + y + height - root[1] / 2
            right = edge - self.span / 2 + root[0] / 2
            for t in self.trees:
                if source in t.needs:
                    place = (t.needs.index(source) + 1) / (len(t.needs) + 1)
                    goal = top + heights[t.name][0] + BAR * place
                    end = edge - (self.span - self.bar) / 2
                    color, dash = PALETTE[number % len(PALETTE)], DASHES[number % len(DASHES)]
                    path = [(right, start), (x, left_of), (x, goal), (end, goal)]
                    pen.line(path, f"{self.key}:{source}->{t.name}", color, dash)
