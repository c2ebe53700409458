"""Certificates of derived forms and what checks them, installed as ``redalg.proofs``.

The home of the checker, which shares no code with the engine that finds a form: it sees obligations, never kernels,
and imports with sympy, numpy, numba and every other redalg module blocked.
"""

if __name__ != "redalg.proofs":
    raise ImportError(
        f"refused: this folder cannot be imported as {__name__!r}\n"
        "where:   proofs/__init__.py of redalg\n"
        "why:     it is the package redalg.proofs and its modules import each other under that name\n"
        "try:     pip install -e . in the checkout, then import redalg.proofs"
    )

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redalg.proofs.audits.report import AuditReport as AuditReport
    from redalg.proofs.audits.run import audit as audit
    from redalg.proofs.certificate import Certificate as Certificate
    from redalg.proofs.derivatives.document import Derivative as Derivative
    from redalg.proofs.gallina.instance import Instance as Instance
    from redalg.proofs.gallina.instance import rocq as rocq
    from redalg.proofs.refusals.document import Refusal as Refusal
    from redalg.proofs.smt.smt import smt_lib as smt_lib
    from redalg.proofs.smt.smt import solve as solve

_HOME = {
    "audit": "redalg.proofs.audits.run",
    "AuditReport": "redalg.proofs.audits.report",
    "Certificate": "redalg.proofs.certificate",
    "Derivative": "redalg.proofs.derivatives.document",
    "Instance": "redalg.proofs.gallina.instance",
    "Refusal": "redalg.proofs.refusals.document",
    "rocq": "redalg.proofs.gallina.instance",
    "smt_lib": "redalg.proofs.smt.smt",
    "solve": "redalg.proofs.smt.smt",
}
__all__ = ["AuditReport", "Certificate", "Derivative", "Instance", "Refusal", "audit", "rocq", "smt_lib", "solve"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'redalg.proofs' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)
