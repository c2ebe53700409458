"""Specs that nobody would write, drawn at random: stages in stages, inner axes, top-k, complex numbers."""

from __future__ import annotations

from random import Random
from typing import Any

import sympy

import redalg as ra
from redalg.errors import RedalgError

Expr = Any
POWERS = [2, 3, 4, 9, 16, -1, -2, sympy.Rational(1, 2), sympy.Rational(-3, 2)]
MAPS = [ra.exp, ra.log, ra.abs, ra.relu, ra.sigmoid, ra.tanh]
MAPS += [sympy.sin, sympy.cos, sympy.floor, sympy.sign, sympy.conjugate]


class Draw:
    """Expressions along j over x[j], y[j,g], w[g] (and perhaps z[j], complex), and stages over them."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.complex = self.rng.random() < 0.2
        domain = self.rng.choice([{}, {"positive": True}, {"nonnegative": True}, {"integer": True}])
        self.x = ra.tensors("x[j]", **domain)
        self.y, self.w = ra.tensors("y[j,g] w[g]")
        self.tensors = [self.x, self.y, self.w, ra.scalar("q")]
        if self.complex:
            self.tensors.append(ra.tensors("z[j]", complex=True))
        self.stages: list[Expr] = []

    def spec(self) -> ra.Spec:
        for _ in range(self.rng.randint(1, 5)):
            try:
                self.stages.append(self._stage())
            except (RedalgError, TypeError):  # an order of complex numbers, an axis that is not there: not a spec
                continue
        outputs = {f"out{k}": s for k, s in enumerate(self.stages[-2:])}
        return ra.Spec(**outputs) if outputs else ra.Spec(out=ra.sum(self.x, "j"))

    def _stage(self) -> Expr:
        body, kind = self._body(3), self.rng.choice("sum mean max min prod logsumexp topk argmax any".split())
        if kind == "topk":
            found = ra.topk(body, 2, "j")
            whole = self.rng.choice([found.values, found.indices])
            return whole if self.rng.random() < 0.5 else ra.min(found.values, "j_top")
        if kind == "any":
            return ra.sum(ra.where(self._condition(1), body, 0), "j")
        return getattr(ra, kind)(body, "j")

    def _body(self, depth: int) -> Expr:
        pick = self.rng.random()
        if depth == 0 or pick < 0.15:
            number = sympy.Rational(self.rng.randint(-3, 3), 2)
            return self.rng.choice([*self.tensors, *self.stages, *self.stages, ra.index("j"), number])
        if pick < 0.35:
            return self._body(depth - 1) - self.rng.choice([*self.stages, self._body(depth - 1)])
        if pick < 0.5:
            return self._body(depth - 1) * self._body(depth - 1)
        if pick < 0.58:
            return self._body(depth - 1) / self._body(depth - 1)
        if pick < 0.7:
            return self._body(depth - 1) ** self.rng.choice(POWERS)
        if pick < 0.88:
            return self.rng.choice(MAPS)(self._body(depth - 1))
        if pick < 0.94:
            return ra.where(self._condition(depth - 1), self._body(depth - 1), self._body(depth - 1))
        return self.rng.choice([ra.sum, ra.max, ra.mean])(self._body(depth - 1), "g")

    def _condition(self, depth: int) -> Expr:
        a, b = self._body(depth), self._body(depth)
        return self.rng.choice([lambda: a > b, lambda: a <= b, lambda: ra.eq(a, b)])()


def hostile(seed: int) -> ra.Spec | None:
    """The spec of a seed, or None where the language refuses it."""
    try:
        return Draw(seed).spec()
    except (RedalgError, TypeError, ZeroDivisionError):
        return None
