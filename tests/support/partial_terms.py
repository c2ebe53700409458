"""Operations that are not defined everywhere, of what a form or a derivative computes."""

from __future__ import annotations

import random

from redalg.proofs.document.terms import Term, Terms


def partial(t: Terms, pool: list[Term], root: Term, draw: random.Random) -> Term:
    """A power or logarithm of what a derivative or its spec computes, under their conditions, summed or not."""
    numbers = [n for n in pool if not n.is_boolean]
    conditions = [n for n in pool if n.is_boolean]

    def under(e: Term, c: Term) -> Term:
        return t("where", c, e, t.const(0)) if draw.random() < 0.7 else t("where", c, t.const(0), e)

    e = draw.choice(numbers)
    if draw.random() < 0.3:
        e = t.sub(e, draw.choice(numbers))
    half = t.div(t.const(1), t.const(2))
    powers = (t.const(-1), half, t.mul(t.const(-1), half))
    e = draw.choice([t("log", e), *(t("pow", e, p) for p in powers)])
    for _ in range(draw.choice((0, 1, 1, 2)) if conditions else 0):
        e = under(e, draw.choice(conditions))
    axes = tuple(a for a in sorted(e.axes) if a not in root.axes or draw.random() < 0.5)
    e = t.reduce("sum", axes, e) if axes else e
    own = [c for c in conditions if c.axes <= root.axes]
    return under(e, draw.choice(own)) if own and draw.random() < 0.5 else e
