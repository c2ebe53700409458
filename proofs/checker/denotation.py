"""What the parts of a state mean: each as a term over a whole stream, written in the language of specs.

A sum slot is Σ_j lift(x_j; A) (divided by n where it is held as an average), an extremum, a position or a list is its
reduction of the lift; an anchor of policy "extremum" is its target, one of policy "mean" stays a free variable, because
nothing may depend on it, and so does a "scale", which is positive.
"""

from __future__ import annotations

from collections.abc import Mapping

from redalg.proofs.document.document import Anchor, Document, Slot
from redalg.proofs.document.errors import damaged
from redalg.proofs.document.terms import Term, Terms, base, leaves

COUNT = "n"


class Denotation:
    """The meaning of every name of a document, over its spec's axis."""

    def __init__(self, doc: Document) -> None:
        self.doc, self.terms, self.axis = doc, doc.terms, doc.axis
        self.sources: dict[str, tuple[object, int]] = {}
        self.declared: dict[str, tuple[str, ...]] = {COUNT: ()}
        self.found: dict[str, Term] = {COUNT: doc.terms.size(doc.axis)}
        self.open: set[str] = set()
        for p in doc.passes:
            for a in p.anchors:
                self._declare(a.name, a, 0, a.axes)
            for s in p.slots:
                for i, part in enumerate(s.parts):
                    self._declare(part, s, i, s.leaf(i).axes)
            for name, value in p.exports:
                self._declare(name, value, 0, tuple(sorted(value.axes)))

    def _declare(self, name: str, source: object, part: int, axes: tuple[str, ...]) -> None:
        if name in self.sources or name == COUNT:
            raise damaged(f"the name {name!r:.80}", "passes", "two parts of the state have it")
        self.sources[name], self.declared[name] = (source, part), axes

    def of(self, name: str) -> Term | None:
        """The meaning of a name; None for a name that is no part of the state (a shift, a primed anchor)."""
        if name not in self.found and name in self.sources:
            if name in self.open:
                raise damaged(f"the part {name!r:.80}", "passes", "it is computed from itself")
            self.open.add(name)
            self.found[name] = self._meaning(name, *self.sources[name])
        return self.found.get(name)

    def _meaning(self, name: str, source: object, part: int) -> Term:
        if isinstance(source, Anchor):
            if source.target is None:
                return self.terms.state(name, source.axes, source.leaf.domain)
            return self(source.target)
        if isinstance(source, Slot):
            return self.reduced(source, part, [self(body) for body in source.lift], self.axis)
        assert isinstance(source, Term)
        return self(source)

    def reduced(self, s: Slot, part: int, bodies: list[Term], axis: tuple[str, ...]) -> Term:
        """A slot's value over the elements along `axis`."""
        t = self.terms
        if s.kind == "sum":
            total = t.reduce("sum", axis, *bodies)
            return t.div(total, t.size(axis)) if s.average else total
        if s.kind in ("argmax", "argmin"):
            return t.reduce((s.kind[3:], s.kind)[part], axis, *bodies)
        if s.kind == "topk":
            return t.reduce(("topk_values", "topk_indices")[part], axis, *bodies, extra=s.extra)
        if s.kind == "monoid":
            return t.reduce("monoid", axis, *bodies, extra=(s.monoid or 0, part))
        return t.reduce(s.kind, axis, *bodies)

    def __call__(self, term: Term) -> Term:
        """The term with every part of the state replaced by what it means."""
        values = {}
        for leaf in leaves(term):
            meaning = self.of(leaf.attr.name)
            if meaning is not None:
                values[leaf] = self.read(meaning, leaf)
        return self.terms.substitute(term, values)

    def exported(self, term: Term) -> Term:
        """The term with what earlier passes handed on replaced by what it means; anchors and slots stay variables."""
        values = {}
        for leaf in leaves(term):
            name = leaf.attr.name
            if name in self.sources and isinstance(self.sources[name][0], Term):
                values[leaf] = self.read(self.of(name) or leaf, leaf)
        return self.terms.substitute(term, values)

    def read(self, value: Term, leaf: Term) -> Term:
        """A value where a leaf reads it, along the leaf's axes: those of a part in its order, of an export by name.

        Raises: CertificateError where they are not as many, or which is which cannot be told.
        """
        own, read = self.declared.get(leaf.attr.name, leaf.attr.axes), leaf.attr.axes
        if isinstance(self.sources.get(leaf.attr.name, (None,))[0], Term):
            copies = sorted(read, key=base)
            read = own if set(own) == set(read) else tuple(copies)
            if len({base(a) for a in own}) < len(own) and read != own:
                raise damaged(f"the export {leaf.attr.name!r:.80}", "passes", "it is read along axes not its own")
        if len(own) != len(read) or len(set(read)) < len(read):
            raise damaged(f"the part {leaf.attr.name!r:.80}", "passes", "it is read along another number of axes")
        renaming = {a: b for a, b in zip(own, read, strict=True) if a != b}
        return self.terms.renamed(value, renaming) if renaming else value


class Pieces(Denotation):
    """What the parts of a state mean on one piece of the stream, of which the definition says nothing.

    The piece is the first side of a merge (`j_a`): whatever holds on it for all elements holds on every piece. What
    earlier passes handed on is about the whole stream.
    """

    def __init__(self, doc: Document, whole: Denotation) -> None:
        super().__init__(doc)
        self.whole = whole
        self.along = dict(zip(doc.axis, doc.sides[0], strict=True))
        self.found = {COUNT: self.terms.size(doc.sides[0])}

    def _meaning(self, name: str, source: object, part: int) -> Term:
        if isinstance(source, Slot):
            bodies = [self.terms.renamed(self(body), self.along) for body in source.lift]
            return self.reduced(source, part, bodies, self.doc.sides[0])
        if isinstance(source, Anchor):
            return super()._meaning(name, source, part)
        return self.whole.of(name) or self.terms.special("nan")


def resolve(terms: Terms, term: Term, values: Mapping[str, Term], declared: Mapping[str, tuple[str, ...]]) -> Term:
    """State leaves replaced by name; a leaf read along other axes reads the value along those."""
    mapping = {}
    for leaf in leaves(term):
        if leaf.attr.name in values:
            own = declared.get(leaf.attr.name, leaf.attr.axes)
            renaming = {a: b for a, b in zip(own, leaf.attr.axes, strict=False) if a != b}
            value = values[leaf.attr.name]
            mapping[leaf] = terms.renamed(value, renaming) if renaming else value
    return terms.substitute(term, mapping)
