"""Where a stated derivative has a value: it divides by nothing that may be 0 where the derivative is a number.

x·x⁻¹ and 1 have one normal form, and so have 0·log x and 0. What a stated derivative divides by, or takes a logarithm
or root of, must therefore be in its domain wherever the rebuilt one and the outputs are numbers. Nothing has to be
shown of what these compute themselves under the same conditions, or fewer, nor of stage values of the spec, which are
numbers (`redalg.proofs.derivatives.proof`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeAlias

from redalg.proofs.checker.generators import frozen
from redalg.proofs.checker.normalform import Normal
from redalg.proofs.checker.partial import conditions, is_partial
from redalg.proofs.checker.polynomial import Unknown
from redalg.proofs.document.defined import copied, shown
from redalg.proofs.document.document import Document, Obligation
from redalg.proofs.document.terms import Term, Terms, fresh, walk
from redalg.proofs.document.work import spend

SYMMETRIC = ("eq", "and", "or")
OUTSIDE = "~^"  # of an axis that is bound below: the output's own place; no axis of a document has such a name
Guards: TypeAlias = frozenset[Term]


def needed(about: Document, subject: str, stated: Term, stages: Collection[Term]) -> Iterator[Obligation]:
    """The conditions on what a stated derivative computes and its definition, in `about` under its name, does not."""
    if any(is_partial(n) and n not in stages for n in walk(stated, until=stages.__contains__)):
        yield from _Needed(about, subject, stages).obligations(stated)


class _Needed:
    """What the definition of one derivative computes wherever it is a number: terms and conditions, and where."""

    def __init__(self, about: Document, subject: str, stages: Collection[Term]) -> None:
        self.t, self.subject, self.stages = about.terms, subject, stages
        t = self.t
        self.normal = Normal(finite=True)
        self.alike: dict[Term, Term] = {}
        self.known: dict[Any, list[tuple[Guards, frozenset[str]]]] = {}
        root = about.spec[subject]
        self.truths = {self._alike(n) for n in walk(root) if n.is_boolean}
        for n, bound, chosen in shown(root):
            everywhere = bound.union(*(at for _, _, at in chosen))
            written = (t.renamed(c, _outside(bound - at)) if (c.axes & bound) - at else c for c, _, at in chosen)
            held = self._conjuncts(*(c if w[1] else t("not", c) for c, w in zip(written, chosen, strict=True)))
            self.known.setdefault(self._alike(n), []).append((held, everywhere))
            for x in conditions(self.t, n) if is_partial(n) else ():
                for c in _implied(self.t, x):
                    self.known.setdefault(self._key(c), []).append((held, everywhere))

    def obligations(self, stated: Term) -> Iterator[Obligation]:
        t = self.t
        for n, guards, bound in self._computed(stated):
            names = copied(bound)
            given = tuple(self._at_places(g, names) for g in sorted(guards, key=lambda g: g.number))
            for c in conditions(t, n):
                if self._alike(c) not in guards and not self._holds(self._key(c), c.axes, guards, bound):
                    yield Obligation("D5", self.subject, t.renamed(c, names), t("true"), "domain", given)

    def _computed(self, stated: Term) -> Iterator[tuple[Term, Guards, frozenset[str]]]:
        """The partial operations of a stated derivative, the conditions they stand under, the axes everywhere along
        which, below what is not known; each use apart."""
        seen: set[tuple[Term, Guards, frozenset[str]]] = set()
        stack: list[tuple[Term, Guards, frozenset[str]]] = [(stated, frozenset(), frozenset())]
        while stack:
            use = n, guards, bound = stack.pop()
            if use in seen or self._is_known(n, guards, bound):
                continue
            seen.add(use)
            spend(1 + len(guards))
            if is_partial(n):
                yield use
            if n.op == "reduce":
                guards = self._below(guards, bound, frozenset(n.attr.axes))
                bound |= frozenset(n.attr.axes)
            chosen = [guards] * len(n.args)
            if n.op == "where":
                c = n.args[0]
                chosen[1:] = [guards | self._conjuncts(c), guards | self._conjuncts(self.t("not", c))]
            stack += [(a, g, bound & a.axes.union(*(c.axes for c in g))) for a, g in zip(n.args, chosen, strict=True)]

    def _below(self, guards: Guards, bound: frozenset[str], axes: frozenset[str]) -> Guards:
        """What guards say below a reduction: of the place of the output, none of those along an axis bound here."""
        kept = (g for g in guards if not g.axes & axes & bound)
        return frozenset(self._alike(self.t.renamed(g, _outside(axes))) if g.axes & axes else g for g in kept)

    def _at_places(self, guard: Term, names: Mapping[str, str]) -> Term:
        """A guard as an obligation reads it: places along bound axes are copies, the output's are not."""
        return self.t.renamed(
            guard, {**names, **{a: a.removesuffix(OUTSIDE) for a in guard.axes if a.endswith(OUTSIDE)}}
        )

    def _is_known(self, n: Term, guards: Guards, bound: frozenset[str]) -> bool:
        """Whether a term is a stage value, a condition of the definition or what that computes wherever guards hold."""
        if n in self.stages or not n.args:
            return True
        return n.is_boolean and self._alike(n) in self.truths or self._holds(self._alike(n), n.axes, guards, bound)

    def _holds(self, key: Any, axes: frozenset[str], guards: Guards, bound: frozenset[str]) -> bool:
        return any(
            bound & axes.union(*(g.axes for g in also)) <= everywhere
            and all(g in guards or _is_shown(g, guards) for g in also)
            for also, everywhere in self.known.get(key, ())
        )

    def _conjuncts(self, *conditions: Term) -> Guards:
        """What holds where all conditions do, each conjunct apart: one that does not read an axis says something
        everywhere along it."""
        found, stack = set(), [self._alike(c) for c in conditions]
        while stack:
            c = stack.pop()
            of = c.args[0] if c.op == "not" else c
            if of.op == ("or" if of is not c else "and"):
                stack += [self._alike(self.t("not", a)) for a in of.args] if of is not c else of.args
            else:
                found.add(c)
        return frozenset(found)

    def _key(self, c: Term) -> Any:
        """A condition as what it says of a value in normal form: terms with one normal form are equal where both are
        numbers, and that they are is shown of each."""
        side = c.args[0] if c.op == "ne" else c.args[1]
        try:
            v = self.normal(side)
        except Unknown:
            return self._alike(c)
        return (c.op, frozen(v)) if isinstance(v, dict) else self._alike(c)

    def _alike(self, root: Term) -> Term:
        """A condition with the arguments of comparisons in one order, a ≠ b as not a = b, bound axes by first names."""
        t, done = self.t, self.alike
        for n in walk(root, until=done.__contains__):
            if n in done:
                continue
            args = [done[a] for a in n.args]
            if n.op in SYMMETRIC or n.op == "ne":
                args.sort(key=lambda a: a.number)
            if n.op == "ne":
                done[n] = t("not", t("eq", *args))
            elif n.op == "not" and args[0].op == "not":
                done[n] = args[0].args[0]
            else:
                done[n] = self._bound(n, args) if n.op == "reduce" else t(n.op, *args, attr=n.attr)
        return done[root]

    def _bound(self, n: Term, args: list[Term]) -> Term:
        taken = set(n.axes)
        names = {a: fresh(a, taken) for a in n.attr.axes}
        moved = {a: b for a, b in names.items() if a != b}
        args = [self._alike(self.t.renamed(a, moved)) for a in args] if moved else args
        return self.t("reduce", *args, attr=n.attr._replace(axes=tuple(names.values())))


def _outside(axes: frozenset[str]) -> dict[str, str]:
    """Names of the output's own place below a reduction that binds the axes."""
    return {a: a + OUTSIDE for a in axes}


def _is_shown(condition: Term, guards: Guards) -> bool:
    """Whether a condition asks for one place along an axis, and the guards hold it at this one."""
    if condition.op != "reduce" or condition.attr.kind != "any":
        return False
    body = condition.args[0]
    return all(c in guards for c in (body.args if body.op == "and" else (body,)))


def _implied(t: Terms, condition: Term) -> Iterator[Term]:
    """A condition and what follows from it: a product is not 0 where none of its factors is."""
    yield condition
    if condition.op == "lt":
        yield t("le", *condition.args)
    if condition.op in ("lt", "ne"):
        zero = t.const(0)
        stack = [condition.args[condition.op == "lt"]]
        while stack:
            a = stack.pop()
            yield t("ne", a, zero)
            if a.op == "mul":
                stack += a.args
            elif a.op == "pow" and a.args[1].op == "const" and a.args[1].attr > 0:
                stack.append(a.args[0])


__all__ = ["needed"]
