"""A small folder of documents: what the form of a certificate computes on a stream, element by element.

It follows the laws at the top of `redalg.graph.plan` and nothing else: an element is lifted, two states are combined at
the anchors of both, the outputs are read off the last state. Terms are evaluated exactly
(`redalg.proofs.falsification.evaluate`), so that a difference from the definition refutes the document. No code of the
checker takes part: no normal form, no obligation, no denotation.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from fractions import Fraction
from itertools import product
from typing import Any

from redalg.proofs.document.document import Anchor, Document, Pass, Slot
from redalg.proofs.document.terms import Leaf, Term, walk
from redalg.proofs.falsification.evaluate import Evaluation, Unfit
from redalg.proofs.numbers.value_maps import UNKNOWN
from redalg.proofs.numbers.values import Numbers

Array = dict[tuple[int, ...], Any]  # place -> value
State = dict[str, Array]
BINARY = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "any": "or", "all": "and"}


class NotAFold(Exception):
    """The document does not say how to compute: a name is read before it is there."""


class Undecided(Exception):
    """An enclosure does not tell which of two values is larger."""


class Folder:
    """One stream, and the states of its pieces."""

    def __init__(self, doc: Document, tensors: Mapping[str, Array], sizes: Mapping[str, int]) -> None:
        self.doc, self.terms, self.tensors, self.sizes = doc, doc.terms, dict(tensors), dict(sizes)
        for t in walk(*_roots(doc)):
            if t.op == "reduce" and t.attr.kind.startswith("topk"):
                self.sizes[t.attr.extra[1]] = t.attr.extra[0]
        for p in doc.passes:
            self.sizes |= {s.extra[1]: s.extra[0] for s in p.slots if s.extra}
        self.handed: State = {}
        self.draw = random.Random(0)
        self.axes: dict[str, tuple[str, ...]] = {"n": ()}
        for p in doc.passes:
            for a in p.anchors:
                self.axes[a.name] = self.axes[f"shift:{a.name}"] = a.axes
            for s in p.slots:
                self.axes |= {part: s.leaf(i).axes for i, part in enumerate(s.parts)}
            for name, value in p.exports:
                self.axes[name] = tuple(sorted(value.axes))
        self.casts = not {"cast_commutes", "cast_left_out"} & set(doc.assumptions)

    # --- terms ---

    def table(
        self, term: Term, axes: tuple[str, ...], state: State, at: Mapping[str, int] | None = None, whole: bool = False
    ) -> Array:
        """The values of a term along `axes`, with the parts of a state; `at`: the element that is read."""
        known = self.handed | state
        own = {}  # a tensor may have the name of a part
        for leaf in walk(term):
            if leaf.op == "state":
                if leaf.attr.name not in known:
                    raise NotAFold(leaf.attr.name)
                own[leaf] = self.terms("state", attr=leaf.attr._replace(name=f"part {leaf.attr.name}"))
        term = self.terms.substitute(term, own)
        lengths = {a: self.sizes.get(a, self.sizes.get(a.split("~")[0], 1)) for a in (*_every_axis(term), *axes)}
        starts = dict(at or {})
        if not whole:
            lengths |= dict.fromkeys(self.doc.axis, 1)
        leaves = {**self.tensors, **{f"part {name}": values for name, values in known.items()}}
        e = Evaluation(
            Numbers(), leaves, lengths, starts=starts, offsets=starts, monoids=self.doc.monoids, casts=self.casts
        )
        e.table(term)
        found = {}
        for place in product(*(range(lengths[a]) for a in axes)):
            found[place] = e.value(term, dict.fromkeys(self.doc.axis, 0) | dict(zip(axes, place, strict=True)))
        return found

    # --- states ---

    def lift(self, p: Pass, at: Mapping[str, int]) -> State:
        anchors, slots = {a.name: a for a in p.anchors}, {s.name: s for s in p.slots}
        state: State = {"n": {(): Fraction(1)}}
        for name in p.order:
            if name in slots:
                state |= _stored(slots[name], self._lifted(slots[name], state, at))
            elif anchors[name].policy == "mean":
                state[name] = self._nonzero(anchors[name], self._of(anchors[name].generator, anchors[name], state, at))
            else:
                state[name] = self._placed(anchors[name], state, at)
        return state

    def _placed(self, a: Anchor, state: State, at: Mapping[str, int] | None = None) -> Array:
        """Where an anchor of a target stands; a scale stands anywhere above 0."""
        if a.policy != "scale":
            return self._of(a.target, a, state, at)
        places = product(*(range(self.sizes[x]) for x in a.axes))
        return {place: Fraction(2) ** self.draw.randint(-3, 3) for place in places}

    def _of(self, term: Term | None, a: Anchor, state: State, at: Mapping[str, int] | None = None) -> Array:
        assert term is not None
        return self.table(term, a.axes, state, at)

    def _nonzero(self, a: Anchor, value: Array) -> Array:
        return {k: Fraction(1) if a.kind == "mul" and v == 0 else v for k, v in value.items()}

    def _lifted(self, s: Slot, state: State, at: Mapping[str, int]) -> State:
        bodies = [self.table(body, s.axes, state, at) for body in s.lift]
        if s.kind in ("argmax", "argmin"):
            return {s.parts[0]: bodies[0], s.parts[1]: {k: Fraction(0) for k in bodies[0]}}
        if s.kind == "topk":
            k, _ = s.extra or (1, "")
            rows = {place: [(v, Fraction(0))] for place, v in bodies[0].items()}
            return self._listed(s, rows, k)
        return dict(zip(s.parts, bodies, strict=True))

    def _listed(self, s: Slot, rows: dict[tuple[int, ...], list[Any]], k: int) -> State:
        values, indices = {}, {}
        for place, row in rows.items():
            for i in range(k):
                v, index = row[i] if i < len(row) else (float("-inf"), Fraction(-1))
                values[(*place, i)], indices[(*place, i)] = v, index
        return {s.parts[0]: values, s.parts[1]: indices}

    def combine(self, p: Pass, a: State, b: State) -> State:
        anchors, slots = {x.name: x for x in p.anchors}, {s.name: s for s in p.slots}
        new: State = {"n": {(): a["n"][()] + b["n"][()]}}
        here = {x.name: a[x.name] for x in p.anchors}  # until an anchor moves, both sides are held at a's
        for name in p.order:
            if name in slots:
                new |= _stored(slots[name], self.joined(p, slots[name], a, b, here))
                continue
            x = anchors[name]
            if x.policy != "mean":
                moved = self._placed(x, new)
            else:
                moved = self._stepped(p, x, a, b, here, new)
            here[name] = new[name] = moved
        return new

    def _stepped(self, p: Pass, x: Anchor, a: State, b: State, here: State, new: State) -> Array:
        """A + shift over the slots of both sides at A; A where that is no number (or a scale would be 0)."""
        held = dict(new)
        for s in p.slots:
            held |= self.joined(p, s, a, b, here)
        for other in p.anchors:
            held.setdefault(other.name, here[other.name])
        step = self._of(x.shift, x, held)
        numbers, found = Numbers(), {}
        for k, old in here[x.name].items():
            v = numbers.add([old, step[k]]) if x.kind == "add" else numbers.mul([old, step[k]])
            good = numbers.is_finite(v) and not (x.kind == "mul" and v == 0)
            found[k] = v if good else old
        return found

    def joined(self, p: Pass, s: Slot, a: State, b: State, here: State) -> State:
        if s.kind == "sum":
            sides = [self.moved(p, s, side, here) for side in (a, b)]
            n, m = a["n"][()], b["n"][()]
            numbers = Numbers()
            if s.average:
                share = Fraction(m) / Fraction(n + m)
                both = {
                    k: numbers.add(
                        [v, numbers.mul([numbers.add([sides[1][k], numbers.mul([Fraction(-1), v])]), share])]
                    )
                    for k, v in sides[0].items()
                }
            else:
                both = {k: numbers.add([v, sides[1][k]]) for k, v in sides[0].items()}
            return {s.parts[0]: both}
        if s.kind == "topk":
            return self._merged_lists(s, a, b)
        if s.kind in ("argmax", "argmin"):
            return self._merged_positions(s, a, b)
        if s.kind == "monoid":
            return self._by_monoid(s, a, b)
        t = self.terms
        left, right = (t("state", attr=Leaf(f"{side}~", s.axes, frozenset())) for side in "ab")
        term = t(BINARY[s.kind], left, right)
        sides = [self.moved(p, s, x, here) if s.kind == "prod" else x[s.parts[0]] for x in (a, b)]
        return {s.parts[0]: self.table(term, s.axes, {"a~": sides[0], "b~": sides[1]})}

    def moved(self, p: Pass, s: Slot, side: State, here: State) -> Array:
        if not s.moves:
            return side[s.parts[0]]
        numbers, by_name = Numbers(), {x.name: x for x in p.slots}
        shifts: State = {"n": side["n"]}
        if s.kind == "prod":  # how many factors a side has
            shifts |= {x.name: side[x.parts[0]] for x in p.slots if x.kind == "sum"}
        for x in p.anchors:
            old, new = side[x.name], here[x.name]
            if x.policy == "scale":
                shifts[x.name] = new
            shifts[f"shift:{x.name}"] = {k: _apart(numbers, x.kind, new[k], old[k]) for k in old}
        total: dict[tuple[int, ...], list[Any]] = {}
        n = side["n"][()]
        for m in s.moves:
            coefficient = m.coefficient
            source = by_name.get(m.slot)
            axes = source.axes if source is not None else ()
            t = self.terms
            value = t("state", attr=Leaf("u~", axes, frozenset()))
            held = side[source.parts[0]] if source is not None else {(): Fraction(1) if s.average else n}
            if source is not None and source.average != s.average:
                scale = 1 / n if s.average else n
                held = {k: numbers.mul([v, scale]) for k, v in held.items()}
            product_ = t.mul(coefficient, value)
            fresh = tuple(sorted(x for x in product_.axes if x not in s.axes))
            term = t.reduce("sum", fresh, product_) if fresh else product_
            for k, v in self.table(term, s.axes, {**shifts, "u~": held}).items():
                total.setdefault(k, []).append(v)
        return {k: numbers.add(v) for k, v in total.items()}

    def _merged_lists(self, s: Slot, a: State, b: State) -> State:
        k, _ = s.extra or (1, "")
        rows: dict[tuple[int, ...], list[Any]] = {}
        for side, shift in ((a, Fraction(0)), (b, a["n"][()])):
            for place, v in side[s.parts[0]].items():
                index = side[s.parts[1]][place]
                if index >= 0:
                    rows.setdefault(place[:-1], []).append((v, index + shift))
        numbers = Numbers()
        best = {}
        for place, row in rows.items():
            order = numbers.ranked([v for v, _ in row], k)
            if any(i is UNKNOWN for i, _ in order):
                raise Undecided
            best[place] = [(v, row[int(i)][1]) for i, v in order]
        return self._listed(s, best, k)

    def _merged_positions(self, s: Slot, a: State, b: State) -> State:
        numbers, values, places = Numbers(), {}, {}
        for k, v in a[s.parts[0]].items():
            w = b[s.parts[0]][k]
            sign = numbers.order(v, w)
            later = sign is not None and (sign < 0 if s.kind == "argmax" else sign > 0)
            values[k] = w if later else v
            places[k] = b[s.parts[1]][k] + a["n"][()] if later else a[s.parts[1]][k]
        return {s.parts[0]: values, s.parts[1]: places}

    def _by_monoid(self, s: Slot, a: State, b: State) -> State:
        m = self.doc.monoids[s.monoid or 0]
        found: State = {part: {} for part in s.parts}
        for k in a[s.parts[0]]:
            leaves: State = {f"a{i}": {(): a[part][k]} for i, part in enumerate(s.parts)}
            leaves |= {f"b{i}": {(): b[part][k]} for i, part in enumerate(s.parts)}
            for part, term in zip(s.parts, m.combined, strict=True):
                found[part][k] = self.table(term, (), leaves)[()]
        return found

    # --- streams ---

    def run(self, draw: random.Random) -> dict[str, Array]:
        """The outputs, the stream cut at random and combined in a random tree (in order)."""
        ranges = [range(self.sizes[a]) for a in self.doc.axis]
        elements = [dict(zip(self.doc.axis, place, strict=True)) for place in product(*ranges)]
        state: State = {}
        for p in self.doc.passes:
            states = [self.lift(p, at) for at in elements]
            while len(states) > 1:
                i = draw.randrange(len(states) - 1)
                states[i : i + 2] = [self.combine(p, states[i], states[i + 1])]
            state = states[0]
            exported = {name: self.table(value, self.axes[name], state) for name, value in p.exports}
            self.handed |= exported
        found = {}
        for o in self.doc.outputs:
            axes = tuple(sorted(self.doc.spec[o.name].axes))
            found[o.name] = self.table(o.value, axes, state, whole=o.keeps_axis)
        return found

    def definition(self) -> dict[str, Array]:
        found = {}
        for name, term in self.doc.spec.items():
            found[name] = self.table(term, tuple(sorted(term.axes)), {}, whole=True)
        return found


def differs(doc: Document, tensors: Mapping[str, Array], sizes: Mapping[str, int], draw: random.Random) -> bool | None:
    """Whether the form certainly gives another value than the definition; None where the definition is no number."""
    folder = Folder(doc, tensors, sizes)
    wanted = folder.definition()
    try:
        found = folder.run(draw)
    except (NotAFold, Unfit):  # it reads what is not there
        return True
    except Undecided:
        return None
    numbers, compared = Numbers(), False
    for name, values in wanted.items():
        for place, right in values.items():
            left = found[name][place]
            if not numbers.is_finite(right):
                continue
            if type(left) is bool or type(right) is bool:
                compared = True
                if bool(left) != bool(right):
                    return True
                continue
            if numbers.is_nan(left) and doc.assumptions:
                continue  # where an assumption fails a form may be NaN, never another number
            if numbers.is_nan(left):
                return True
            sign = numbers.order(left, right)
            compared = compared or sign is not None
            if sign:
                return True
    return False if compared else None


def drawn(doc: Document, draw: random.Random) -> tuple[dict[str, Array], dict[str, int]]:
    """A random stream for the tensors of the spec: ties, zeros and signs are likely."""
    axes = sorted({a for t in doc.spec.values() for a in _every_axis(t)})
    sizes = {a: draw.choice((1, 2, 3, 4) if a in doc.axis else (2, 3)) for a in axes}
    tensors: dict[str, Array] = {}
    mode = draw.randrange(5)
    for t in walk(*doc.spec.values(), *(x for m in doc.monoids for x in m.combined)):
        if t.op != "tensor":
            continue
        known = tensors.setdefault(t.attr.name, {})  # one tensor may be read along several axes
        for p in product(
            *(range(max(sizes[b] for b in axes) if len(t.attr.axes) > 1 else sizes[a]) for a in t.attr.axes)
        ):
            known.setdefault(p, _value(draw, t.attr.domain, mode))
    return tensors, sizes


def _value(draw: random.Random, domain: frozenset[str], mode: int) -> Any:
    if "bool" in domain:
        return draw.random() < 0.5
    v = Fraction(draw.choice((-3, -2, -1, 0, 0, 1, 2, 3)))
    if mode == 1 and "integer" not in domain:
        v = Fraction(draw.randint(-20, 20), draw.randint(1, 8))
    if mode == 4:
        v = Fraction(draw.choice((-1, 0, 0, 0, 1)))
    if mode == 2 or domain & {"positive", "nonnegative"}:
        v = abs(v)
    return Fraction(1) if not v and ("positive" in domain or mode == 3) else v


def _stored(s: Slot, parts: State) -> State:
    """What is kept of a slot: one that vanishes is left out of the state and read as 0."""
    return {name: {k: Fraction(0) for k in values} for name, values in parts.items()} if s.vanishes else parts


def _apart(numbers: Numbers, kind: str, new: Any, old: Any) -> Any:
    if type(new) is type(old) and new == old:
        return Fraction(0 if kind == "add" else 1)
    if kind == "add":
        return numbers.add([new, numbers.mul([Fraction(-1), old])])
    return numbers.mul([old, numbers.power(new, Fraction(-1))])


def _roots(doc: Document) -> list[Term]:
    found = list(doc.spec.values()) + [o.value for o in doc.outputs]
    for p in doc.passes:
        found += [x for a in p.anchors for x in (a.generator, a.target, a.shift) if x is not None]
        found += [b for s in p.slots for b in s.lift] + [m.coefficient for s in p.slots for m in s.moves]
        found += [v for _, v in p.exports]
    return found


def _every_axis(term: Term) -> set[str]:
    found: set[str] = set()
    for t in walk(term):
        found |= t.axes
        if t.op == "reduce":
            found |= set(t.attr.axes)
        if t.op == "size":
            found.add(t.attr)
    return found
