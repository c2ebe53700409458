"""Modules and names of before, for one minor version: importing one warns and gives what has its place now.

`MOVED` has the modules that the README, the pages and the notebooks named. Where a module became a folder, `contents`
gives the folder the names it had. Nothing is imported before somebody asks.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MOVED = {  # under redalg: old module -> new
    "actions": "engine.rules.actions",
    "anchoring": "engine.anchors.policy",
    "assembling": "engine.assembly",
    "building": "engine.slots",
    "cascade": "engine.rules.cascade",
    "centred": "engine.anchors.centred",
    "certifying": "certify.export",
    "choices": "engine.anchors.choices",
    "compiled": "run",
    "conditions": "engine.rules.conditions",
    "corrections": "algebra.corrections",
    "definition": "numeric.definition",
    "demo": "cli.demo",
    "derive": "api",
    "emit_numpy": "streaming.source",
    "emitting": "engine.emit",
    "ends": "engine.rules.ends",
    "exact": "numeric.exact",
    "expr": "language.leaves",
    "facts": "graph.functions",
    "field": "verdicts.residues",
    "formats": "graph.formats",
    "grammar": "language.grammar",
    "homogeneous": "graph.degrees",
    "kernels.cpu_run": "kernels.cpu.run",
    "kernels.cuda_run": "kernels.cuda.run",
    "kernels.emit_cuda": "kernels.rows.kernel",
    "kernels.emit_numba": "kernels.cpu.kernel",
    "kernels.emit_tensor": "kernels.tile.level.cascade_print",
    "kernels.lower_combine": "kernels.lower.combine",
    "kernels.lower_void": "kernels.lower.masked",
    "kernels.nothing": "kernels.launch.zero_length",
    "lean": "engine.lean",
    "locations": "engine.anchors.locations",
    "lowering": "language.sympy_to_graph",
    "maps": "language.maps",
    "measured": "engine.anchors.measured",
    "monoid": "language.monoid",
    "monotone": "engine.rules.monotone",
    "normal": "algebra.polynomial",
    "normalising": "engine.normalise",
    "obligation": "laws.laws",
    "obligation_check": "laws.check",
    "opening": "engine.rules.opening",
    "plan": "graph.plan",
    "proofs.check": "proofs.checker.check",
    "proofs.inequalities": "proofs.checker.inequalities",
    "proofs.normalform": "proofs.checker.normalform",
    "proofs.polynomial": "proofs.checker.polynomial",
    "proofs.refuting": "proofs.refusals.proof",
    "proofs.required": "proofs.checker.required",
    "proofs.rocq_instance": "proofs.gallina.instance",
    "proofs.structure": "proofs.checker.structure",
    "proofs.work": "proofs.document.work",
    "quantifiers": "engine.rules.quantifiers",
    "ratios": "engine.anchors.ratios",
    "reductions": "language.reductions",
    "refusing": "verdicts.refute",
    "scaling": "engine.anchors.units",
    "scope": "algebra.scope",
    "separate": "engine.rules.separate",
    "signs": "algebra.signs",
    "spec": "language.spec",
    "void": "graph.masked",
    "witness": "verdicts.witness",
    "witness_adjoint": "verdicts.adjoint",
    "witness_ball": "verdicts.balls",
    "witness_design": "verdicts.design",
    "witness_minor": "verdicts.minors",
    "witness_search": "verdicts.search",
}
FOLDERS = {  # under redalg: a folder that was a module -> where its names are
    "graph": "graph.node",
    "kernels.ir": "kernels.ir.program",
    "kernels.schedule": "kernels.ir.schedule",
    "proofs.smt": "proofs.smt.smt",
    "specs": "specs.collection",
}
OURS = ("redalg", "dataclasses", "importlib", "_frozen_importlib")


def deprecated(old: str, new: str) -> None:
    """Warn, at the caller's first line outside the library, of a name that the next minor version drops."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in OURS:
        frame = frame.f_back
    names = frame.f_globals
    warnings.warn_explicit(
        f"{old} is deprecated and goes with redalg 0.2: use {new}",
        DeprecationWarning,
        frame.f_code.co_filename,
        frame.f_lineno,
        names.get("__name__"),
        names.setdefault("__warningregistry__", {}),
    )


class _Moved(MetaPathFinder, Loader):
    """Asked after all other finders: what is there is never taken for what has moved."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.removeprefix("redalg.") not in MOVED or not fullname.startswith("redalg."):
            return None
        return ModuleSpec(fullname, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        new = f"redalg.{MOVED[spec.name.removeprefix('redalg.')]}"
        deprecated(spec.name, new)
        module = importlib.import_module(new)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """The module has run; the machinery has given it the spec of its old name, and gets back its own."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


def install() -> None:
    if not any(isinstance(finder, _Moved) for finder in sys.meta_path):
        sys.meta_path.append(_Moved())


def contents(folder: str) -> Callable[[str], Any]:
    """The ``__getattr__`` of a folder that was a module."""
    new = f"redalg.{FOLDERS[folder.removeprefix('redalg.')]}"

    def __getattr__(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {folder!r} has no attribute {name!r}")
        module = importlib.import_module(new)
        if not hasattr(module, name):
            raise AttributeError(f"module {folder!r} has no attribute {name!r}")
        deprecated(f"{folder}.{name}", f"{new}.{name}")
        return getattr(module, name)

    return __getattr__
