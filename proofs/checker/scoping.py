"""Who may read what: the names, axes and domains of a document, before its obligations mean anything.

A form is read as a fold. Its terms may therefore hold nothing that a fold does not have: no reduction along the stream,
no length of it, no tensor but those of the spec (as the spec declares them), no part of the state that is not there
yet, and no claim about a part that is written on a leaf alone. The names that obligations make (``A'`` for a later
time, ``j_a`` and ``j_b`` for the two sides of a merge, ``d~1`` for another place along d) are kept free for them.

What a new kind of form must keep to: only sums and products may read anchors, because only they have transports (a
product moves by the power of a ratio whose exponent counts its factors); whatever else is to move with an anchor needs
a law of its own in `redalg.proofs.checker.required` first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from redalg.proofs.document.document import Document, Monoid, Pass
from redalg.proofs.document.errors import CertificateError
from redalg.proofs.document.terms import Term, base, walk
from redalg.proofs.document.work import spend

OF_ARRAYS = frozenset({"tensor", "index", "size", "reduce"})  # operations that no combination of two states has
MADE = "'%"  # characters of names that the checker makes
COUNTED = frozenset({"integer", "positive"})  # the domain of the number of elements
Names = dict[str, tuple[tuple[str, ...], frozenset[str]]]  # part of a state -> its axes and domain


class Scope:
    """What the spec declares, and what the form of a document may read of it."""

    def __init__(self, doc: Document) -> None:
        self.doc, self.stream = doc, set(doc.axis)
        self.places: dict[str, list[set[str]]] = {}  # tensor -> per dimension the axes along which the spec reads it
        self.domains: dict[str, frozenset[str]] = {}
        self.axes: set[str] = set()
        self.lists: dict[str, int] = {}  # axis of a list -> its length
        self.arrays: set[str] = set()  # axes of the spec that are those of no list
        self.exports = {name for p in doc.passes for name, _ in p.exports}
        self.anchors = {a.name for p in doc.passes for a in p.anchors}
        self._spec()

    def _spec(self) -> None:
        doc = self.doc
        for t in walk(*doc.spec.values(), *doc.empty.values()):
            if t.op == "state":
                raise wrong("spec", t.attr.name, "a definition reads no state")
            if t.op == "tensor":
                self._declare(t)
            self.axes |= set(_own_axes(t))
            self.lists_of(t, "spec")
            if t.op == "reduce" and t.attr.kind == "monoid":
                self._of_monoid(t)
        for a in (*self.axes, *doc.axis):
            if any(c in a for c in MADE) or "~" in a or not a:
                raise wrong("spec", a, "an axis of this name would be taken for another one")
        self.arrays = self.axes - self.lists.keys()
        for name, places in self.places.items():
            for found in places:
                if found & self.stream and len(found) > 1:
                    raise wrong(f"tensor {name}", sorted(found), "it is read along the stream and along another axis")

    def _declare(self, t: Term) -> None:
        name, axes, domain = t.attr
        if self.domains.setdefault(name, domain) != domain:
            raise wrong(f"tensor {name}", sorted(domain), "it is declared with two domains")
        places = self.places.setdefault(name, [set() for _ in axes])
        if len(places) != len(axes):
            raise wrong(f"tensor {name}", list(axes), "it has another number of axes elsewhere")
        for found, a in zip(places, axes, strict=True):
            found.add(a)

    def lists_of(self, t: Term, where: str) -> None:
        """The axis of a list is its own, and as long as the list."""
        if t.op != "reduce" or not t.attr.kind.startswith("topk"):
            return
        k, axis = t.attr.extra
        if axis in t.args[0].axes or axis in t.attr.axes or axis in self.stream:
            raise wrong(where, axis, "the axis of a list is one its elements have")
        self.list_along(k, axis, where)

    def list_along(self, k: int, axis: str, where: str) -> None:
        if base(axis) in self.arrays:
            raise wrong(where, axis, "it is an axis of the spec along which no list lies")
        if self.lists.setdefault(base(axis), k) != k:
            raise wrong(where, axis, "two lists along it have two lengths")

    def _of_monoid(self, t: Term) -> None:
        number, part = t.attr.extra
        if not 0 <= number < len(self.doc.monoids):
            raise wrong("spec", number, "there is no such monoid")
        if not 0 <= part < len(self.doc.monoids[number].combined) == len(t.args):
            raise wrong("spec", part, "its monoid has another number of parts")

    # --- terms of the form ---

    def check(self, term: Term, names: Names, where: str) -> None:
        """Hold a term of the form to the spec's tensors and axes, and to the parts of the state that are there."""
        for t in walk(term):
            spend(1 + len(t.axes) // 8)
            if t.op == "reduce" and self.stream & set(t.attr.axes):
                raise wrong(where, t.attr.kind, "it reduces along the stream, which is not there")
            if t.op == "size" and t.attr in self.stream:
                raise wrong(where, f"size {t.attr}", "how long the stream is, is not known before its end")
            if t.op == "tensor":
                self._tensor(t, where)
            elif t.op == "state":
                self._state(t, names, where)
            for a in _own_axes(t):
                self._axis(a, where)
            self.lists_of(t, where)

    def read(self, term: Term, names: Names, where: str) -> None:
        """Hold what a term of a stage reads to the spec's tensors and to `names`; results of the stream may stand."""
        for t in walk(term):
            if t.op == "tensor":
                self._tensor(t, where)
            elif t.op == "state":
                self._state(t, names, where)

    def _tensor(self, t: Term, where: str) -> None:
        name, axes, domain = t.attr
        places = self.places.get(name)
        if places is None or len(places) != len(axes):
            raise wrong(where, name, "the spec has no such tensor")
        if self.domains[name] != domain:
            raise wrong(where, sorted(domain), f"the spec declares another domain of {name}")
        for known, a in zip(places, axes, strict=True):
            if a not in known and base(a) not in known - self.stream:
                raise wrong(where, a, f"{name} is read along an axis that it does not have there")

    def _state(self, t: Term, names: Names, where: str) -> None:
        name, axes, domain = t.attr
        if name not in names and name in self.anchors:
            why = "only sums and products may read anchors: the checker has no law for what else moves with one"
            raise wrong(
                where,
                name,
                why,
                'redalg.testing.check_equivalence(form.spec, form.compile("numpy")) compares it with its definition',
            )
        if name not in names:
            raise wrong(where, name, "it reads a name that is not there at that time")
        own, declared = names[name]
        mine, theirs = [base(a) for a in own], [base(a) for a in axes]
        if name in self.exports:
            mine, theirs = sorted(mine), sorted(theirs)  # an export has its axes by name, not by place
        elif mine and theirs and mine[-1] in self.lists and self.lists.get(theirs[-1]) == self.lists[mine[-1]]:
            mine[-1] = theirs[-1]  # a list may be read along the axis of another one that is as long
        if mine != theirs:
            raise wrong(where, name, "it is read along other axes than its own")
        if domain != declared:
            raise wrong(where, sorted(domain), f"{name} is declared with another domain; a leaf proves none")

    def _axis(self, a: str, where: str) -> None:
        """An axis of the spec, or another place along one of them that is not the stream's."""
        own = base(a)
        if own not in self.axes | self.stream or "%" in a or (own != a and own in self.stream):
            raise wrong(where, a, "the spec has no such axis")

    # --- names ---

    def free_names(self, names: Iterable[str], exports: Iterable[str]) -> None:
        """No part has a name that an obligation makes of another one's."""
        every = set(names)
        for name in every:
            if any(c in name for c in MADE) or name.startswith("shift:") or not name:
                raise wrong("passes", name, "a part of this name would be taken for another one")
        for name in exports:
            if name[-2:] in ("_a", "_b") and (name[:-2] in every or name[:-2] == "n"):
                raise wrong("passes", name, "an export of this name would be taken for one side of a merge")


def _own_axes(t: Term) -> Iterator[str]:
    """The axes a term names itself."""
    if t.op in ("tensor", "state"):
        yield from t.attr.axes
    elif t.op in ("index", "size"):
        yield t.attr
    elif t.op == "reduce":
        yield from t.attr.axes
        if t.attr.kind.startswith("topk"):
            yield t.attr.extra[1]


def parts_of(p: Pass) -> Names:
    """The parts of a pass's state, by name."""
    found: Names = {"n": ((), COUNTED)} | {a.name: (a.axes, a.leaf.domain) for a in p.anchors}
    for s in p.slots:
        found |= {part: (s.leaf(i).axes, s.domain) for i, part in enumerate(s.parts)}
    return found


def exports_of(p: Pass) -> Names:
    """What a pass hands on, by name: read along its axes, or copies of them."""
    return {name: (tuple(sorted(v.axes)), frozenset()) for name, v in p.exports}


def check_monoid(m: Monoid) -> None:
    """A combination reads the parts of its two sides, an action those of one side and what acts."""
    sides = {f"{side}{i}" for side in "ab" for i in range(len(m.combined))}
    if len(m.identity) != len(m.combined) or not m.combined:
        raise wrong(f"monoid {m.name}", len(m.identity), "its identity has another number of parts")
    for t in walk(*m.combined, *m.identity):
        _check_operand(t, sides, f"monoid {m.name}")
    if any(t.op == "state" for t in walk(*m.identity)):
        raise wrong(f"monoid {m.name}", "its identity", "it is no constant")
    for name, terms in m.actions:
        _check_action(name, terms, len(m.combined))


def _check_operand(t: Term, sides: set[str], where: str) -> None:
    if t.op in OF_ARRAYS or (t.op == "state" and t.attr.name not in sides):
        raise wrong(where, t.attr and t.attr[0], "it reads something else than its two sides")
    if t.op == "state" and (t.attr.axes or t.attr.domain):
        raise wrong(where, t.attr.name, "its sides are numbers without a domain")


def _check_action(name: str, terms: tuple[Term, ...], parts: int) -> None:
    if len(terms) != parts:
        raise wrong(f"action {name}", len(terms), "it has another number of parts")
    for t in walk(*terms):
        if t.op in OF_ARRAYS:
            raise wrong(f"action {name}", t.op, "it reads something else than the state and what acts")


def wrong(
    where: str, value: object, why: str, fix: str = "export the certificate again with its method to_json()"
) -> CertificateError:
    return CertificateError(f"{value!r:.120}", where, why, fix)
