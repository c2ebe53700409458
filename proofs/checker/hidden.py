"""Parts of a definition that may be finite past a pole: exp(-1/d²) is 0 at d = 0, and is known there by name alone.

Where the definition divides by 0 and yet is a number, no law of rational functions holds of what hides that: the two
sides of an equation are then compared with such a part as one variable, the same wherever the same part is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from redalg.proofs.checker.alike import Alike
from redalg.proofs.checker.domains import guarded
from redalg.proofs.checker.extended import LOW, NAN, NEG, ZERO, Extended
from redalg.proofs.checker.partial import conditions, is_partial
from redalg.proofs.document.defined import SHOW, copied
from redalg.proofs.document.document import Document
from redalg.proofs.document.terms import Term, walk
from redalg.proofs.document.work import spend

Holds = Callable[[str, Term, tuple[Term, ...]], bool]  # a condition where an output has a value, under guards


class Hidden:
    """Which parts of a document's definitions hide a pole, and terms with a variable for each of them.

    A comparison is true or false past a pole as well, and has a variable of its own inside others.
    """

    def __init__(self, doc: Document, extended: Extended, holds: Holds, alike: Alike) -> None:
        self.doc, self.terms, self.extended, self.holds = doc, doc.terms, extended, holds
        self.alike = alike
        self.truths: dict[Term, Term] = {}
        self.variables: dict[Term, Term] = {}
        for output, root in ((name, self.alike(t)) for name, t in doc.spec.items()):
            poles = set(self._poles(output, root)) if any(map(is_partial, walk(root))) else set()
            for t in walk(root) if poles else ():
                if t.is_boolean and not poles.isdisjoint(walk(t)):
                    self._name(t, self.truths)
            root, *left = (self.terms.substitute(t, self.truths) for t in (root, *poles))
            for part in _hiding(root, set(left)) if left else ():
                self._name(part, self.variables)

    def __bool__(self) -> bool:
        return bool(self.truths or self.variables)

    def __call__(self, t: Term) -> Term:
        return self.terms.substitute(self.terms.substitute(self.alike(t), self.truths), self.variables) if self else t

    def _poles(self, output: str, root: Term) -> Iterator[Term]:
        """Operations that may be outside their domain where the output has a value and selects them."""
        t = self.terms
        for x, guards, bound in guarded(t, root):
            if not is_partial(x):
                continue
            names = copied(bound & root.axes)
            for c in conditions(t, x):
                if not self.holds(output, t.renamed(c, names), tuple(t.renamed(g, names) for g in guards)):
                    yield x

    def _name(self, part: Term, named: dict[Term, Term]) -> None:
        """A variable of the part's own signs; along the stream's axes it also stands on either side of a merge."""
        if part in named:
            return
        t, signs = self.terms, self.extended.values(part)
        domain = {"bool"} if part.is_boolean else set()
        if not domain and not signs & (NEG | LOW | NAN):
            domain = {"nonnegative"} if signs & ZERO else {"positive"}
        number = len(self.truths) + len(self.variables)
        named[part] = variable = t.state(f"hidden%{number}", sorted(part.axes), domain)
        for axes in self.doc.sides if part.axes & set(self.doc.axis) else ():
            along = dict(zip(self.doc.axis, axes, strict=True))
            named[t.renamed(part, along)] = t.renamed(variable, along)


def _hiding(root: Term, poles: set[Term]) -> Iterator[Term]:
    """The outermost parts that may be finite though something below them is not."""
    seen: set[Term] = set()
    stack = [root]
    while stack:
        t = stack.pop()
        if t in seen:
            continue
        seen.add(t)
        spend()
        if _shows(t):
            stack += t.args
        elif t in poles and not any(x in poles for a in t.args for x in walk(a)):
            continue  # it is infinite itself, and what stands above it shows that
        elif not poles.isdisjoint(walk(t)):
            stack += t.args[1:] if t.op == "where" else ()
            if t.op != "where":
                yield t


def _shows(t: Term) -> bool:
    if t.op == "reduce":
        return t.attr.kind in ("sum", "prod")
    return t.op in SHOW or (t.op == "pow" and t.args[1].op == "const" and t.args[1].attr > 0)
