"""What a form must be before its obligations mean anything: its shape, and who may read what.

A lift reads the element, parameters and anchors that stand before it (only a sum's and a product's: nothing else is
moved with them);
a move's coefficient reads shifts, the scales it moves to, parameters and the count, never the element; a target reads
the state before it. These are conditions on the shape of a document and are checked on its terms
(`redalg.proofs.checker.scoping`).
"""

from __future__ import annotations

from redalg.proofs.checker.denotation import COUNT
from redalg.proofs.checker.scoping import Names, Scope, check_monoid, exports_of, parts_of, wrong
from redalg.proofs.document.document import Anchor, Document, Output, Pass, Slot
from redalg.proofs.document.terms import Term

IDENTITIES = {"sum", "prod", "max", "min", "any", "all"}
TRUTHS = ("any", "all")


def check_structure(doc: Document) -> None:
    """Raise CertificateError unless the document is a form of its spec's shape."""
    if (
        (any(p.slots for p in doc.passes) and not doc.axis)
        or set(doc.spec) != {o.name for o in doc.outputs}
        or len(doc.outputs) != len(doc.spec)
    ):
        raise wrong("outputs", sorted(o.name for o in doc.outputs), "they are not the outputs of the spec")
    if not set(doc.empty) <= set(doc.spec):
        raise wrong("spec.empty", sorted(doc.empty), "a value for empty rows of an output the spec lacks")
    scope = Scope(doc)
    for m in doc.monoids:
        check_monoid(m)
    _check_names(doc, scope)
    handed: Names = {}
    for number, p in enumerate(doc.passes):
        _PassCheck(doc, scope, p, handed, f"passes[{number}]").check()
        handed = handed | exports_of(p)
    own = parts_of(doc.passes[-1]) if doc.passes else {}
    for o in doc.outputs:
        _check_output(doc, scope, o, handed | own)
    _check_stages(doc, scope)


def _check_names(doc: Document, scope: Scope) -> None:
    names = [n for p in doc.passes for a in p.anchors for n in (a.name,)]
    names += [part for p in doc.passes for s in p.slots for part in s.parts]
    exports = [name for p in doc.passes for name, _ in p.exports]
    scope.free_names((*names, *exports, *(s.name for p in doc.passes for s in p.slots)), exports)


def _check_output(doc: Document, scope: Scope, o: Output, names: Names) -> None:
    where, axis = f"output {o.name}", set(doc.axis)
    scope.check(o.value, names, where)
    if o.keeps_axis != bool(doc.spec[o.name].axes & axis):
        raise wrong(where, o.keeps_axis, "whether it keeps the axis is otherwise in the definition")
    if not o.keeps_axis and o.value.axes & axis:
        raise wrong(where, sorted(doc.axis), "it reads elements but does not keep the axis")
    if not doc.spec[o.name].axes <= set(o.axes) or not o.value.axes <= set(o.axes):
        raise wrong(where, list(o.axes), "its axes are not those of the definition")


def _check_stages(doc: Document, scope: Scope) -> None:
    if len({s.name for s in doc.stages}) < len(doc.stages):
        raise wrong("stages", [s.name for s in doc.stages], "two have one name")
    for s in doc.stages:
        if len(s.generators) != len(s.coefficients) or (s.rank or 0) != len(s.generators):
            raise wrong(f"stage {s.name}", s.rank, "its rank is not the number of its generators and coefficients")
        _check_stage(doc, scope, s.name, s.generators, s.coefficients)


def _check_stage(
    doc: Document, scope: Scope, name: str, generators: tuple[Term, ...], coefficients: tuple[Term, ...]
) -> None:
    """A generator reads the element and what passes before the last one hand on, a coefficient anything else."""
    axis = set(doc.axis)
    handed: Names = {}
    for p in doc.passes[:-1]:
        handed |= exports_of(p)
    for h in coefficients:
        scope.read(h, {}, f"stage {name}")
        if h.axes & axis:
            raise wrong(f"stage {name}", "a coefficient", "it reads the element")
    for g in generators:
        scope.read(g, handed, f"stage {name}")
        if _reads_result(g, axis):
            raise wrong(f"stage {name}", "a generator", "it reads a result of the axis")


def _reads_result(g: Term, axis: set[str]) -> bool:
    """Whether a result over the axis is read, other than in the comparison of an element with its extremum.

    What is tied with the extremum, or strictly inside it, moves with it (theory, section 3.4), so a result may stand on
    one side of a comparison.
    """
    seen: set[Term] = set()
    stack = [g]
    while stack:
        t = stack.pop()
        if t in seen:
            continue
        seen.add(t)
        if t.op == "reduce" and axis & set(t.attr.axes):
            return True
        tied = t.op in ("eq", "ne", "lt") and any(a.axes & axis for a in t.args)
        stack += [a for a in t.args if not (tied and a.op == "reduce" and axis & set(a.attr.axes))]
    return False


def _counts(s: Slot) -> bool:
    """Whether a sum is a number of elements: of 1 where a condition on the element holds, of 0 elsewhere."""
    body = s.lift[0]
    chosen = body.args[1:] if body.op == "where" else (body,)
    numbers = all(x.op == "const" and x.attr.denominator == 1 and x.attr >= 0 for x in chosen)
    return numbers and not s.average and not s.moves


class _PassCheck:
    """Holds the parts of one pass to their shape; `handed` are the exports of earlier passes."""

    def __init__(self, doc: Document, scope: Scope, p: Pass, handed: Names, where: str) -> None:
        self.doc, self.scope, self.form, self.handed, self.where = doc, scope, p, handed, where
        self.names = parts_of(p) | handed
        self.shifts: Names = {f"shift:{a.name}": (a.axes, frozenset()) for a in p.anchors}
        self.shifts |= {a.name: (a.axes, a.leaf.domain) for a in p.anchors if a.policy == "scale"}
        self.sums = {s.name: s for s in p.slots if s.kind == "sum"}

    def check(self) -> None:
        p = self.form
        anchors, slots = {a.name: a for a in p.anchors}, {s.name: s for s in p.slots}
        if sorted(p.order) != sorted({*anchors, *slots}) or len(p.order) != len(p.anchors) + len(p.slots):
            raise wrong(f"{self.where}.order", list(p.order), "it is not every anchor and slot once")
        there: Names = dict(self.handed) | {"n": self.names["n"]}
        for name in p.order:
            if name in anchors:
                self._anchor(anchors[name], there)
                there = there | {name: self.names[name]}
            else:
                self._slot(slots[name], there)
                there = there | {part: self.names[part] for part in slots[name].parts}
        for name, value in p.exports:
            self.scope.check(value, self.names, f"{self.where}, export {name}")
            self._free_of(value, f"{self.where}, export {name}")

    def _anchor(self, a: Anchor, there: Names) -> None:
        """A target reads what stands before it; a mean's shift what is held at the old anchor."""
        where, axis = f"{self.where}, anchor {a.name}", set(self.doc.axis)
        if a.generator is not None:
            self.scope.check(a.generator, self.handed, where)
            self._along(a.generator, {*a.axes, *axis}, where)
        for t, names in ((a.target, there), (a.shift, self.names)):
            if t is not None:
                self.scope.check(t, names, where)
                self._free_of(t, where)
                self._along(t, set(a.axes), where)

    def _slot(self, s: Slot, there: Names) -> None:
        where, axis = f"{self.where}, slot {s.name}", set(self.doc.axis)
        anchors = {a.name for a in self.form.anchors if a.name in there} if s.kind in ("sum", "prod") else set()
        readable = self.handed | {name: there[name] for name in anchors}
        for body in s.lift:
            self.scope.check(body, readable, where)
            self._along(body, {*s.axes, *axis}, where)
        for m in s.moves:
            if s.kind == "prod":
                self._power(s, m.coefficient, m.slot, where)
            else:
                self._move(s, m.coefficient, m.slot, where)
        self._kind(s, where)

    def _move(self, s: Slot, coefficient: Term, source: str, where: str) -> None:
        self.scope.check(coefficient, self.shifts | self.handed | {"n": self.names["n"]}, where)
        self._free_of(coefficient, where)
        self._along(coefficient, set(s.axes), where)
        if source not in {*self.sums, "n"} or s.kind != "sum":
            raise wrong(where, source, "it is no sum of the same pass")
        if source in self.sums and not set(self.sums[source].axes) <= set(s.axes):
            raise wrong(where, source, "what moves it has axes the slot lacks")

    def _power(self, s: Slot, coefficient: Term, source: str, where: str) -> None:
        """A product moves by t^n: t over shifts and parameters, n the number of its factors, a whole number."""
        if source != s.name or len(s.moves) != 1 or coefficient.op != "pow":
            raise wrong(where, source, "a product moves by a power of its own alone")
        ratio, number = coefficient.args
        counted = {x.leaf() for x in self.sums.values() if _counts(x)}
        if number.op != "state" or not (number.attr.name == COUNT or number.attr in counted):
            raise wrong(where, number.op, "what a product moves by is raised to what counts no elements")
        self.scope.check(number, {"n": self.names["n"]} | {x.name: (x.axes, x.domain) for x in counted}, where)
        self.scope.check(ratio, self.shifts | self.handed, where)
        self._free_of(ratio, where)
        self._along(coefficient, set(s.axes), where)

    def _kind(self, s: Slot, where: str) -> None:
        if set(s.axes) & set(self.doc.axis):
            raise wrong(where, list(s.axes), "a part of the state has the axis of the stream")
        if s.vanishes:
            raise wrong(where, "vanishes", "a slot that is left out of the state is not proved to be 0")
        truths = frozenset({"bool"}) if s.kind in TRUTHS else frozenset()
        if not s.domain <= truths | {"integer"}:
            raise wrong(where, sorted(s.domain), "a domain of a part of the state is a claim that nothing proves")
        self._identity(s, where)
        if s.average and s.kind != "sum":
            raise wrong(where, s.kind, "only sums are held as averages")
        if s.extra is not None:
            self._list(s, *s.extra, where)
        if s.monoid is not None:
            self._monoid(s, s.monoid, where)

    def _identity(self, s: Slot, where: str) -> None:
        if (s.identity is not None) != (s.kind in IDENTITIES | {"monoid"} and not s.average):
            raise wrong(where, s.kind, "an identity is stated where there is none, or is missing")
        if s.identity is not None and len(s.identity) != len(s.parts):
            raise wrong(where, len(s.identity), "the identity has another number of parts")

    def _list(self, s: Slot, k: int, axis: str, where: str) -> None:
        if axis in {*s.axes, *self.doc.axis, *(a for b in s.lift for a in b.axes)}:
            raise wrong(where, axis, "the axis of a list is one its elements have")
        self.scope.list_along(k, axis, where)

    def _monoid(self, s: Slot, number: int, where: str) -> None:
        if not 0 <= number < len(self.doc.monoids):
            raise wrong(where, number, "there is no such monoid")
        m = self.doc.monoids[number]
        if len(m.combined) != len(s.parts) or s.identity != m.identity:
            raise wrong(where, m.name, "its parts and its identity are not those of its monoid")

    def _along(self, term: Term, axes: set[str], where: str) -> None:
        if term.axes - axes:
            raise wrong(where, sorted(term.axes - axes), "it has axes that what it is part of lacks")

    def _free_of(self, term: Term, where: str) -> None:
        if term.axes & set(self.doc.axis):
            raise wrong(where, sorted(self.doc.axis), "it reads the element")
