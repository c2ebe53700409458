"""Displays of specs, forms, verdicts, certificates and kernels: HTML with formulas, LaTeX, and text for terminals.

* `show(thing)` prints it, with colour where the terminal has it (not with ``NO_COLOR`` set, not into a file or pipe).
* `plain(thing, colour=False)` is that text, `html(thing)` what Jupyter shows, `bundle(thing)` all of it by MIME type.

Everything is computed from the object that is shown: a display knows no spec by name, and no text of one is kept.

>>> import redalg as ra
>>> form = ra.derive_incremental(ra.parse("return y = sum[j](3 * x[j])"))
>>> r"3 \\, {x}_{j}" in html(form), plain(form) == str(form)
(True, True)
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any, TextIO

from redalg.errors import RedalgError
from redalg.text.colour import wanted

# Which module shows what, by the name of a class; of an object's classes the first one that is listed counts.
_HOME = {
    "redalg.language.spec.Spec": ("redalg.display.forms", "spec"),
    "redalg.form.Form": ("redalg.display.forms", "form"),
    "redalg.errors.NotDecomposable": ("redalg.display.verdicts", "refusal"),
    "redalg.errors.Undecided": ("redalg.display.verdicts", "undecided"),
    "redalg.proofs.certificate.Certificate": ("redalg.display.certificates", "certificate"),
    "redalg.proofs.checker.check.Report": ("redalg.display.certificates", "report"),
    "redalg.proofs.derivatives.document.Derivative": ("redalg.display.certificates", "derivative"),
    "redalg.proofs.refusals.document.Refusal": ("redalg.display.certificates", "refusal"),
    "redalg.proofs.refusals.proof.Refuted": ("redalg.display.certificates", "refuted"),
    "redalg.proofs.audits.report.AuditReport": ("redalg.display.certificates", "audit"),
    "redalg.run.Run": ("redalg.display.runs", "run"),
    "redalg.kernels.cpu.run.CpuRun": ("redalg.display.runs", "run"),
    "redalg.kernels.cuda.run.CudaRun": ("redalg.display.runs", "run"),
    "redalg.explore.printing.Printed": ("redalg.display.runs", "run"),
    "redalg.kernels.traffic.Traffic": ("redalg.display.runs", "traffic"),
}


def html(thing: Any) -> str:
    """What Jupyter shows: tables and formulas (MathJax), legible without style sheets.

    Raises: RedalgError for an object that has no display.

    >>> import redalg as ra
    >>> html(ra.verdict(ra.parse("return y = max[j](x[j])")))[:5]
    '<div>'
    """
    found: str = _writer(thing, "html")(thing)
    return found


def plain(thing: Any, colour: bool = False) -> str:
    """The text for terminals; with `colour`, titles are bold and corrections coloured and underlined.

    >>> import redalg as ra
    >>> report = ra.derive_incremental(ra.parse("return y = max[j](x[j])")).certificate.verify()
    >>> print(plain(report).splitlines()[0])
    5 proved
    """
    found: str = _writer(thing, "plain")(thing, colour)
    return found


def bundle(thing: Any) -> dict[str, str]:
    """MIME type -> display, as IPython asks for it.

    >>> import redalg as ra
    >>> sorted(bundle(ra.catalog["softmax"]))
    ['text/html', 'text/latex', 'text/plain']
    """
    found = {"text/html": html(thing), "text/plain": plain(thing, wanted(sys.stdout))}
    latex = getattr(thing, "_repr_latex_", None)
    return found | ({"text/latex": latex()} if latex is not None else {})


def show(thing: Any, file: TextIO | None = None, colour: bool | None = None) -> None:
    """Print a display. `colour`: None decides by the terminal, ``NO_COLOR`` and ``TERM``.

    >>> import redalg as ra
    >>> show(ra.parse("return y = max[j](x[j])"), colour=False)
    y = max[j](x[j])
    return y
    """
    stream = sys.stdout if file is None else file
    print(plain(thing, wanted(stream) if colour is None else colour), file=stream)


def _writer(thing: Any, kind: str) -> Callable[..., Any]:
    for cls in type(thing).__mro__:
        module, name = _HOME.get(f"{cls.__module__}.{cls.__qualname__}", ("", ""))
        if module:
            writer: Callable[..., Any] = getattr(importlib.import_module(module), f"{name}_{kind}")
            return writer
    known = ", ".join(sorted({name.rpartition(".")[2] for name in _HOME}))
    raise RedalgError(f"a {type(thing).__name__}", "redalg.display", f"displays are known of {known}", "print it")


__all__ = ["bundle", "html", "plain", "show"]
