"""The proof that a spec is the derivative of another: rebuilt by the table of rules, and compared in normal form.

==  ===================================================================================================================
D1  each term passes values on by its rule (compared with the table; there is nothing to prove)
D2  what is cancelled has the adjoint 0: the outputs, or one reduction, do not depend on it
D3  the stated derivative, saved values written out, equals the rebuilt one wherever that and the outputs are numbers
D4  where a stated derivative is filled by 0, for want of a valid element, the rebuilt one is 0
D5  what the stated derivative divides by, or takes a logarithm or root of, is in its domain where D3 says something
==  ===================================================================================================================
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from redalg.proofs.checker.check import DOUBTS, Finding, Judge, Report, doubted, searched
from redalg.proofs.checker.polynomial import Unknown
from redalg.proofs.derivatives.claims import FULL_LISTS, REVERSE, Claims, check_claims, refused
from redalg.proofs.derivatives.domains import needed
from redalg.proofs.derivatives.factors import evaluated
from redalg.proofs.derivatives.rebuilding import ALWAYS, Parts, Rebuilt
from redalg.proofs.derivatives.rows import Rows
from redalg.proofs.document.document import Document, Obligation
from redalg.proofs.document.terms import Leaf, Term, base, leaves, walk
from redalg.proofs.document.work import Exhausted, metered

STEPS = 3_000_000  # for all obligations of one derivative
CHANGE = "change"
POINTS = 64  # at which what is neither proved nor refuted is evaluated


def proved(c: Claims, thorough: bool = False) -> Report:
    """The status of every obligation of a derivative; `thorough`: what is proved is evaluated at points, too.

    Raises: CertificateError where the claims are not about the derivative of their spec, assume more than they need, or
    take too much work.
    """
    try:
        with metered(STEPS):
            check_claims(c)
            proof = Proof(c)
            report = Report(tuple(proof.findings()), c.assumptions)
            if FULL_LISTS in c.assumptions and report.proved and is_proved(without(c, FULL_LISTS)):
                why = "every obligation is proved without it"
                raise refused(f"the assumption {FULL_LISTS!r}", "assumptions", why)
        with metered(DOUBTS):
            findings = tuple(map(proof.doubted, report.findings)) if thorough else report.findings
            return replace(report, findings=findings)
    except (Exhausted, Unknown, OverflowError, RecursionError) as e:
        raise refused("the document", "certificate", str(e)[:200] or type(e).__name__) from None


def is_proved(c: Claims) -> bool:
    return all(f.status == "proved" for f in Proof(c).findings())


def without(c: Claims, assumption: str) -> Claims:
    return replace(c, assumptions=tuple(a for a in c.assumptions if a != assumption))


class Proof:
    """States the obligations of one document, and has them decided."""

    def __init__(self, c: Claims) -> None:
        self.c, self.t = c, c.document.terms
        self.rebuilt, self.rows = Rebuilt(self.t), Rows(self.t)
        self.definitions: dict[str, Document] = {}  # of results: what obligations on their domains are about
        self.cancelled = [value for of, value in c.cancelled if of is None]
        self.named, self.classes = self._foreign(), c.alike(leaves(*c.roots(), op="tensor"))
        roots = [self._canonical(self._filled(n)) for n in c.smooth]
        self.stages = {t for t in walk(*roots) if t.op == "reduce"}
        self.values = [self.t.reduce("sum", tuple(sorted(r.axes)), r) if r.axes else r for r in roots]
        self.given, self.plain = self._given(), Judge(self.about({}), finite=True)

    def findings(self) -> Iterator[Finding]:
        yield from map(self._decided, self.obligations())

    def obligations(self) -> Iterator[Obligation]:
        yield from self._cancellations()
        for name, own in self.derivatives().items():
            stated = self.c.results[name]
            written = self.t.const(0) if stated is None else self._written_out(stated)
            claim = self._obligation("D3", name, written, own)
            self.definitions[name] = self._judged(claim)
            yield claim
            yield from needed(self.definitions[name], name, claim.left, self.stages)
            if name in self.c.filled and stated is not None:
                rows = self._written_out(self.rows.masked(stated))
                yield self._obligation("D4", name, self.t("where", rows, own, self.t.const(0)), self.t.const(0))

    def _obligation(self, law: str, name: str, left: Term, right: Term) -> Obligation:
        return Obligation(law, name, self._canonical(left), self._canonical(right), "observational", self.given)

    def _decided(self, o: Obligation) -> Finding:
        """Proved as an identity, or else where the outputs, at all places, and the rebuilt derivative are numbers.

        Where neither succeeds, the obligation is evaluated at points.
        """
        if o.equality == "domain":
            return self._in_domain(o)
        general = replace(o, left=self._general(o.left), right=self._general(o.right))
        if self.plain.proves(replace(general, equality="exact", given=())):
            return Finding(o, "proved")
        about = self.about({o.subject: self.t.add(general.right, *self.values)})
        return self._tested(o, Judge(about, finite=True).obstacle(general))

    def _tested(self, o: Obligation, obstacle: str) -> Finding:
        """Proved without an obstacle, else what evaluation at points says."""
        if not obstacle:
            return Finding(o, "proved")
        return searched(o, self._judged(o), obstacle, POINTS)

    def _in_domain(self, o: Obligation) -> Finding:
        about = self.definitions[o.subject]
        return self._tested(o, Judge(about, finite=True).obstacle(o))

    def doubted(self, f: Finding) -> Finding:
        return doubted(f, self._judged(f.obligation))

    def _judged(self, o: Obligation) -> Document:
        """What an obligation is evaluated by: it says nothing where the outputs or the rebuilt side are no numbers."""
        if o.equality == "domain":
            return self.definitions[o.subject]
        return self.about({o.subject: self.t.add(o.right, *self.values)})

    def _filled(self, name: str) -> Term:
        """An output, with its value for rows without a valid element."""
        root, empty = self.c.spec[name], self.c.document.empty
        return self.t("where", self.rows.masked(root), empty[name], root) if name in empty else root

    def about(self, spec: dict[str, Term]) -> Document:
        return Document(self.t, (), spec, {}, (), ())

    def _given(self) -> tuple[Term, ...]:
        """That the outputs are numbers."""
        t, low, high = self.t, self.t.special("-oo"), self.t.special("oo")
        found = [t(*side) for v in self.values for side in (("lt", low, v), ("lt", v, high))]
        return tuple(found)

    # --- the rebuilt derivative ---

    def derivatives(self) -> dict[str, Term]:
        return self._gradients() if self.c.mode == REVERSE else self._tangents()

    def _seeds(self) -> dict[Term, Parts]:
        """The cotangents; rows that are filled pass on nothing."""
        found: dict[Term, Parts] = {}
        for name, seed in self.c.seeds.items():
            held = ALWAYS
            if name in self.c.document.empty:
                rows = self.rows.masked(self.c.spec[name])
                held = frozenset() if rows.op == "false" else frozenset({self.t("not", rows)})
            found.setdefault(self.c.spec[name], {}).setdefault(held, []).append(seed)
        return found

    def _gradients(self) -> dict[str, Term]:
        wanted = {name: self.c.read(name) for name in self.c.results}
        found = self.rebuilt.adjoints(self._seeds(), [t for ts in wanted.values() for t in ts], self.cancelled)
        return {name: self.t.add(*(self._along(found[t], t, name) for t in ts)) for name, ts in wanted.items()}

    def _along(self, adjoint: Term, reading: Term, name: str) -> Term:
        """An adjoint along the axes of a reading, along those that its tensor's gradient has."""
        moved = {a: b for a, b in zip(reading.attr.axes, self.c.axes[name], strict=True) if a != b}
        return self.t.renamed(self.t.substitute(adjoint, self.named), moved) if moved else adjoint

    def _tangents(self) -> dict[str, Term]:
        seeds = {t: self._tangent_along(name, t) for name in self.c.seeds for t in self.c.read(name)}
        found = self.rebuilt.tangents([self.c.spec[n] for n in self.c.smooth], seeds, self.cancelled)
        return {n: self._unless_filled(n, found[self.c.spec[n]]) for n in self.c.smooth}

    def _tangent_along(self, name: str, reading: Term) -> Term:
        """The tangent of a tensor, read as the tensor is."""
        return self.t("tensor", attr=Leaf(self.c.seeds[name].attr.name, reading.attr.axes, frozenset()))

    def _unless_filled(self, name: str, tangent: Term) -> Term:
        if name not in self.c.document.empty:
            return tangent
        return self.t("where", self.rows.masked(self.c.spec[name]), self.t.const(0), tangent)

    # --- what is cancelled ---

    def _cancellations(self) -> Iterator[Obligation]:
        c = self.c
        if c.mode == REVERSE and self.cancelled:
            leaves = [t for name in c.results for t in c.read(name)]
            found = self.rebuilt.adjoints(self._seeds(), leaves, self.cancelled)
            for k, value in enumerate(self.cancelled):
                yield self._obligation("D2", f"cancelled[{k}]", found[value], self.t.const(0))
        for k, (of, value) in enumerate(c.cancelled):
            if of is not None or c.mode != REVERSE:
                change = self.t.state(CHANGE, sorted(value.axes))
                roots = [of] if of is not None else [c.spec[n] for n in c.smooth]
                for moved in self.rebuilt.tangents(roots, {value: change}).values():
                    yield self._obligation("D2", f"cancelled[{k}]", moved, self.t.const(0))

    # --- the same leaves on both sides ---

    def _written_out(self, root: Term) -> Term:
        return self.t.substitute(root, dict(self.c.saved))

    def _foreign(self) -> dict[Term, Term]:
        """Leaves that are a tensor under another name -> the tensor along their axes."""
        found = [t for t in list(self.t.table.values()) if t.op == "tensor" and t.attr.name in self.c.readings]
        return {t: self.t("tensor", attr=t.attr._replace(name=self.c.array(t.attr))) for t in found}

    def _canonical(self, root: Term) -> Term:
        root = self._with_axes(self.t.substitute(root, self.named))
        shares = {n: share for n in walk(root) for share in [self._share(n)] if share is not None}
        return evaluated(self.t, self.t.substitute(root, shares))

    # --- axes along which one array is read ---

    def _renamed_axis(self, axis: str) -> str:
        """Another name for an axis, one to one: axes of one class become copies of the first of them."""
        alike = self.classes.get(base(axis), [axis])
        if "~" in axis or len(alike) == 1:
            return axis
        primes = len(axis) - len(base(axis))
        return alike[0] + "'" * (primes * len(alike) + alike.index(base(axis)))

    def _with_axes(self, root: Term) -> Term:
        """The term with every axis, free or bound, under its other name, so that nothing is captured."""
        if all(len(alike) == 1 for alike in self.classes.values()):
            return root
        names = {a: self._renamed_axis(a) for t in walk(root) for a in _named(t)}
        done: dict[Term, Term] = {}
        for t in walk(root):
            attr = t.attr
            if t.op in ("tensor", "state"):
                attr = attr._replace(axes=tuple(names[a] for a in attr.axes))
            elif t.op in ("index", "size"):
                attr = names[attr]
            elif t.op == "reduce":
                extra = (attr.extra[0], names[attr.extra[1]]) if is_list(t) else attr.extra
                attr = attr._replace(axes=tuple(names[a] for a in attr.axes), extra=extra)
            done[t] = self.t(t.op, *(done[a] for a in t.args), attr=attr)
        return done[root]

    def _general(self, root: Term) -> Term:
        """The term with any values in the place of some parts: what holds for all of them holds for these.

        Any numbers for lists, where there are as many elements as entries; any truth for whether a row has an element
        that is not -oo, which normal forms, of numbers, would take for granted.
        """
        full = FULL_LISTS in self.c.assumptions
        found = {n: self._list(n) for n in walk(root) if full and is_list(n)}
        found |= {n: self._truth(n) for n in walk(root) if _is_bound(n)}
        return self.t.substitute(root, found)

    def _list(self, n: Term) -> Term:
        name = f"{n.attr.kind}:{n.attr.extra[0]}:{n.args[0].number}:{','.join(n.attr.axes)}"
        return self.t.state(name, sorted(n.axes), ("integer",) if n.attr.kind == "topk_indices" else ())

    def _truth(self, n: Term) -> Term:
        bound, limit = sorted(n.args, key=lambda a: a.op)
        found = self.t.state(f"row:{bound.number}:{limit.attr}", sorted(n.axes), ("bool",))
        return found if n.op == "eq" else self.t("not", found)

    def _share(self, n: Term) -> Term | None:
        """1/(number of arguments equal to their maximum) as 0 where none is, which is nowhere: a case less."""
        if n.op != "pow" or n.args[0].op != "add" or n.args[1] is not self.t.const(-1):
            return None
        taken = (self.t.const(1), self.t.const(0))
        tests = [x.args[0] for x in n.args[0].args if x.op == "where" and x.args[1:] == taken]
        pairs = [frozenset(c.args) for c in tests if c.op == "eq"]
        if len(pairs) < len(n.args[0].args):
            return None
        found = (m for m in pairs[0] if m.op in ("maximum", "minimum"))
        whole = any({frozenset({a, m}) for a in m.args} == set(pairs) for m in found)
        return self.t("where", self.t("or", *tests), n, self.t.const(0)) if whole else None


def _named(t: Term) -> Iterator[str]:
    """The axes that a term names itself."""
    if t.op in ("tensor", "state", "reduce"):
        yield from t.attr.axes
        yield from (t.attr.extra[1],) if is_list(t) else ()
    elif t.op in ("index", "size"):
        yield t.attr


def _is_bound(n: Term) -> bool:
    """[max e = -oo], or [min e = oo], or that it is not."""
    ops = sorted(a.op for a in n.args) if n.op in ("eq", "ne") else []
    return ops == ["reduce", "special"] and any(a.op == "reduce" and a.attr.kind in ("max", "min") for a in n.args)


def is_list(n: Term) -> bool:
    return n.op == "reduce" and n.attr.kind.startswith("topk")


__all__ = ["Proof", "is_proved", "proved", "without"]
