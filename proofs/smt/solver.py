"""One question to Z3, in this process: bounded by units of Z3's own count of work (``rlimit``), never by time."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from redalg.proofs.document.terms import Term
from redalg.proofs.smt.text import Script


@dataclass(frozen=True)
class Answer:
    """`status`: sat, unsat or unknown; the units of work that it took; what a model says of leaves if there is one."""

    status: str
    spent: int
    model: dict[Term, Fraction | bool]


def asked(z3: Any, script: Script, rlimit: int) -> Answer:
    """Z3's answer to a text as it stands, within so many units of work."""
    context = z3.Context()
    solver = z3.Solver(ctx=context)
    solver.set("rlimit", rlimit)
    solver.set("random_seed", 0)
    solver.add(*z3.parse_smt2_string(script.text(), ctx=context))
    status = str(solver.check())
    counted = solver.statistics()
    spent = next((counted.get_key_value(k) for k in counted.keys() if k == "rlimit count"), rlimit)
    return Answer(status, spent, _values(solver.model(), script) if status == "sat" else {})


def _values(model: Any, script: Script) -> dict[Term, Fraction | bool]:
    """The rational values and truths that a model gives to leaves."""
    by_name = {d.name(): model[d] for d in model.decls() if d.arity() == 0}
    found: dict[Term, Fraction | bool] = {}
    for term, name in script.names.items():
        value = by_name.get(name.strip("|"))
        if value is None or term.op not in ("tensor", "state"):
            continue
        if term.is_boolean:
            found[term] = str(value) == "True"
        elif hasattr(value, "as_fraction"):
            found[term] = value.as_fraction()
    return found
