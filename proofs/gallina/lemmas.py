"""One obligation as one lemma over plain variables, with the tactic that closes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from redalg.proofs.document.document import Document, Obligation
from redalg.proofs.document.terms import Term, Terms, walk
from redalg.proofs.gallina.sums import script
from redalg.proofs.gallina.words import Unprintable, Words, identifier, nonnegative, positive


@dataclass(frozen=True)
class Lemma:
    """A printed obligation."""

    name: str
    statement: str
    proof: tuple[str, ...]  # one tactic after the other
    obligation: Obligation

    def __str__(self) -> str:
        steps = "\n  ".join(f"{step}." for step in self.proof)
        return f"Lemma {self.name} : {self.statement}.\nProof.\n  {steps}\nQed.\n"


# The identity of an extremum is no real number: it is adjoined (Fold.v), and an empty state is None.
ADJOINED = {
    op: (f"forall a : R, adjoin {word} None (Some a) = Some a /\\ adjoin {word} (Some a) None = Some a", ("now split",))
    for op, word in (("maximum", "Rmax"), ("minimum", "Rmin"))
}


def _infinite(o: Obligation) -> bool:
    return o.left.op in ADJOINED and any(a.op == "special" for a in o.left.args)


def stream_axes(doc: Document) -> frozenset[str]:
    """The axis of the stream, and its names on either side of a merge."""
    return frozenset(doc.axis).union(*doc.sides)


def lemma(doc: Document, o: Obligation, name: str) -> Lemma:
    """The lemma of an obligation. Raises: Unprintable, with the reason."""
    if o.law == "O6" and _infinite(o):
        return Lemma(name, *ADJOINED[o.left.op], o)
    given = [*o.given, *conditions(doc, o)]
    words = Words(stream_axes(doc), (o.left, o.right, *given), doc.assumptions)
    if o.equality == "domain":
        conclusion = words.proposition(o.left)
    else:
        conclusion = f"{words(o.left)} = {words(o.right)}"
    facts = [words.fact(g) for g in given]
    lists = [f"{words.lists[a]} <> nil" for a in sorted(words.lists) if a in words.stream]
    written = doc.spec.values() if o.equality in ("domain", "observational") else ()
    known = [
        t for t in roots_of(written) if words.bound >= {a for n in walk(t) if n.op == "reduce" for a in n.attr.axes}
    ]
    known = [t for t in known if not t.axes & (words.bound - set(words.scope))]
    proof = script(doc.terms, words, (o.left, o.right, *given), known, scales(doc, words))
    statement = "".join(f"{h} -> " for h in dict.fromkeys([*lists, *words.domains, *facts])) + conclusion
    binders = words.quantified()
    return Lemma(name, f"forall {binders}, {statement}" if binders else statement, proof, o)


def conditions(doc: Document, o: Obligation) -> Iterator[Term]:
    """Where the definition has a value: divisors are not 0, logarithms and roots are in their domain."""
    if o.equality == "domain":
        yield from dict.fromkeys(c for definition in doc.spec.values() for c in defined(doc.terms, definition))
    elif o.law == "O1" or o.equality == "observational":
        yield from defined(doc.terms, o.right if o.equality == "observational" else o.left)


def scales(doc: Document, words: Words) -> list[str]:
    """The scales that a lemma reads, and the product of all: what is measured in units of them."""
    names = {a.name for p in doc.passes for a in p.anchors if a.policy == "scale"}
    read = {words(t) for t in walk(*words.roots) if t.op == "state" and t.attr.name in names}
    found = sorted(name for name in read if words.variables.get(name) == "R")  # no function of an axis
    return [*found, f"({' * '.join(found)})"] if len(found) > 1 else found


def roots_of(definitions: Iterable[Term]) -> Iterator[Term]:
    """What the definition takes even roots of and writes so that it is not negative."""
    for n in walk(*definitions):
        if n.op == "pow" and n.args[1].op == "const" and n.args[1].attr.denominator % 2 == 0 and nonnegative(n.args[0]):
            if any(t.op == "reduce" for t in walk(n.args[0])):
                yield n.args[0]


def defined(t: Terms, definition: Term) -> Iterator[Term]:
    zero = t.const(0)
    for n in walk(definition):
        if n.op == "log" and not positive(n.args[0]):
            yield t("lt", zero, n.args[0])
        if n.op == "pow" and n.args[1].op == "const":
            base, e = n.args[0], n.args[1].attr
            if e.denominator % 2 == 0 and not nonnegative(base):
                yield t("lt" if e < 0 else "le", zero, base)
            elif e < 0 and not positive(base):
                yield t("ne", base, zero)


def lemmas(doc: Document) -> tuple[list[Lemma], list[tuple[Obligation, str]]]:
    """Every obligation as a lemma, and those that cannot be printed with the reason."""
    found: list[Lemma] = []
    skipped: list[tuple[Obligation, str]] = []
    seen: dict[str, int] = {}
    statements: dict[str, str] = {}
    for o in doc.obligations:
        stem = wish(o)
        seen[stem] = seen.get(stem, 0) + 1
        name = stem if seen[stem] == 1 else f"{stem}_{seen[stem]}"
        try:
            made = lemma(doc, o, name)
        except Unprintable as e:
            skipped.append((o, str(e)))
            continue
        if made.statement not in statements:
            statements[made.statement] = name
            found.append(made)
    return found, skipped


def wish(o: Obligation) -> str:
    still = o.law == "O3" and not o.given and any(t.op == "const" for t in walk(o.left)) and _still(o)
    return identifier(f"{o.law}_{o.subject}{'_still' if still else ''}")


def _still(o: Obligation) -> bool:
    """T(0) = I: its right side is the slot alone."""
    return o.right.op == "state"
