"""Signs: sets of possible signs, and systems of linear inequalities decided by Fourier-Motzkin elimination.

Source: Motzkin 1936. A constraint is (polynomial, strict): the polynomial, linear in its monomials, is >= 0 or > 0.
"""

from __future__ import annotations

from math import gcd, lcm

from redalg.proofs.checker.polynomial import UNIT, WORD, Mono, Number, Poly, bounded
from redalg.proofs.document.work import spend

NEG, ZERO, POS = 1, 2, 4
ANY, NONNEG = NEG | ZERO | POS, ZERO | POS
Constraint = tuple[Poly, bool]
MOST = 300  # constraints of one elimination; past it the system counts as solvable


def flipped(sign: int) -> int:
    return (sign & ZERO) | (POS if sign & NEG else 0) | (NEG if sign & POS else 0)


def product(a: int, b: int) -> int:
    found = ZERO if (a | b) & ZERO else 0
    if (a & POS and b & POS) or (a & NEG and b & NEG):
        found |= POS
    if (a & POS and b & NEG) or (a & NEG and b & POS):
        found |= NEG
    return found


def total(signs: list[int]) -> int:
    """The signs a sum can have."""
    union = 0
    for s in signs:
        union |= s
    if not union & NEG:
        return POS if POS in signs else union or ZERO
    if not union & POS:
        return NEG if NEG in signs else union
    return ANY


def solvable(constraints: list[Constraint]) -> bool:
    """False when no values of the monomials satisfy all constraints; True when they may."""
    system = constraints
    while True:
        system = _simplified(system)
        if any(not p for p, _ in system):
            return False  # `_simplified` leaves an empty one for a contradiction
        variables: dict[Mono, tuple[int, int]] = {}
        for p, _ in system:
            for m, c in p.items():
                if m != UNIT:
                    up, down = variables.get(m, (0, 0))
                    variables[m] = (up + (c > 0), down + (c < 0))
        if not variables:
            return True
        m = min(variables, key=lambda v: (variables[v][0] * variables[v][1], v))
        system = _eliminated(system, m)
        if len(system) > MOST:
            return True


def _simplified(system: list[Constraint]) -> list[Constraint]:
    """Each constraint once, over whole numbers without a common factor; one without variables is decided."""
    found: dict[frozenset[tuple[Mono, Number]], Constraint] = {}
    for p, strict in system:
        spend(1 + len(p))
        if not p or (len(p) == 1 and UNIT in p):
            value = p.get(UNIT, 0)
            if value < 0 or (strict and value == 0):
                return [({}, True)]
            continue
        q = _whole(p)
        key = frozenset(q.items())
        found[key] = (q, strict or (key in found and found[key][1]))
    return list(found.values())


def _whole(p: Poly) -> Poly:
    """A positive multiple of p."""
    values = [c for c in p.values() if type(c) is int and -WORD < c < WORD]
    if len(values) < len(p):
        bounded(*p.values())
        below = 1
        for x in p.values():
            below = lcm(below, x.denominator)
            bounded(below)
        values = [int(x * below) for x in p.values()]
        p = dict(zip(p, values, strict=True))
    shared = gcd(*values)
    return p if shared == 1 else {m: c // shared for m, c in p.items()}


def _eliminated(system: list[Constraint], m: Mono) -> list[Constraint]:
    above = [(p, s) for p, s in system if p.get(m, 0) > 0]
    below = [(p, s) for p, s in system if p.get(m, 0) < 0]
    kept = [(p, s) for p, s in system if m not in p]
    spend(len(system))
    for p, s in above:
        for q, t in below:
            kept.append((_combined(p, q, m), s or t))
    return kept


def _combined(p: Poly, q: Poly, m: Mono) -> Poly:
    a, b = p[m], -q[m]
    spend(len(p) + len(q))
    found: Poly = {k: c * b for k, c in p.items()}
    for k, c in q.items():
        found[k] = found.get(k, 0) + c * a
    return {k: c for k, c in found.items() if c}
