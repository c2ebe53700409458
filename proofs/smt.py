"""Obligations as SMT-LIB 2 texts that anybody's solver can read, and their verdict by Z3 where it is installed.

The text holds the *negated* obligation over the real numbers: ``unsat`` means proved. Tensors at an element, parts of a
state and lengths are constants, reductions are constants with the instances of their laws that are needed
(`redalg.proofs.smt_instances`), ``exp``, ``log`` and roots are uninterpreted functions with theirs. The facts an
obligation rests on are asserted; so is that its definition has a value (`redalg.proofs.smt_lower` says where).
"""

from __future__ import annotations

from redalg.proofs.document import Document, Obligation
from redalg.proofs.smt_logic import Unexpressed
from redalg.proofs.smt_problem import problem
from redalg.proofs.smt_problem import text as to_smtlib
from redalg.proofs.smt_solver import Solver

RLIMIT = 2_000_000


def check_smt(obligation: Obligation, doc: Document, rlimit: int = RLIMIT) -> tuple[str, str]:
    import z3
    try:
        p = problem(obligation, doc)
    except Unexpressed as e:
        return "unknown", f"not expressed: {e}"
    solver = Solver(z3, p, rlimit)
    if solver.proved(p.goal):
        return "proved", f"{solver.spent} units of work"
    return "unknown", f"{solver.spent} units of work"


__all__ = ["check_smt", "to_smtlib"]
