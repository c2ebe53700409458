"""Laws over variables alone, proved once: averages merge associatively, whatever they are averages of.

Such an obligation names no tensor and no axis that is reduced, and what it says does not depend on what its variables
are called, nor on the document it is one of. Those that differ in these names alone are one lemma. A lemma is proved on
its own, by the rules for every obligation, and kept; where it is met again the steps that its proof took are counted
again, so that no verdict depends on what was proved before.
"""

from __future__ import annotations

from typing import Any

from redalg.proofs.checker.cases import Cases
from redalg.proofs.checker.normalform import Normal
from redalg.proofs.checker.polynomial import Unknown
from redalg.proofs.document.document import Obligation
from redalg.proofs.document.terms import Term, walk
from redalg.proofs.document.work import SHARE, Exhausted, metered, share, spend, spent, text

LAWS = frozenset({"O3", "O4", "O5", "O6"})  # of a transport and a combination: the others are about elements
BOUND = frozenset({"tensor", "index", "size", "reduce", "cast"})  # what a law over variables alone does not read
LARGEST = 200  # terms of a lemma
KEPT = 4096  # lemmas
_STEPS: dict[Any, int] = {}  # lemma -> steps that its proof took


def holds(o: Obligation, assumed: frozenset[str], finite: bool) -> bool:
    """Whether an obligation is a lemma with a proof, for all values of its variables; what is given is not needed.

    False says nothing: the obligation may hold for other reasons.
    """
    if o.law not in LAWS or o.equality != "exact":
        return False
    written = _written(o)
    if written is None:
        return False
    key = assumed, finite, written
    steps = _STEPS.get(key)
    if steps is not None:
        spend(steps)
        return True
    try:
        with metered(), share(SHARE // 4):
            before, n = spent(), Normal(assumed, finite)
            if not Cases(n).equal(n(o.left), n(o.right), []):
                return False
            steps = spent() - before
    except (Exhausted, Unknown, OverflowError, RecursionError):
        return False
    if len(_STEPS) >= KEPT:
        _STEPS.clear()
    _STEPS[key] = steps
    return True


def _written(o: Obligation) -> Any:
    """Both sides as data, with numbers for names; None where they are no law over variables alone, or a large one."""
    numbers: dict[Term, int] = {}
    names: dict[str, int] = {}
    found: list[tuple[Any, ...]] = []
    for t in walk(o.left, o.right):
        if t.op in BOUND or len(found) >= LARGEST:
            return None
        attr = t.attr
        if t.op == "state":
            attr = names.setdefault(attr.name, len(names)), attr.axes, attr.domain
        elif t.op == "const":
            attr = text(attr)  # numbers can be made to have one hash
        numbers[t] = len(found)
        found.append((t.op, attr, *[numbers[a] for a in t.args]))
    return numbers[o.left], numbers[o.right], tuple(found)
