"""The graph of folders: `ORDER` lists them, and a module imports from its own folder and from earlier ones only."""

from __future__ import annotations

from tests.support.modules import HOOKS, SOURCES, Import, imports

ORDER = """
redalg._moved redalg._hooks redalg.shown redalg.parsing redalg.graph.functions redalg.text.words redalg.errors
redalg.graph redalg.text redalg.language redalg.numeric redalg.algebra redalg.laws
redalg.engine.rules redalg.engine.anchors redalg.engine redalg.verdicts
redalg.explain redalg.source redalg.streaming.tapes redalg.streaming redalg.encoding redalg.groups
redalg.proofs.document redalg.proofs.numbers redalg.proofs.falsification redalg.proofs.checker redalg.proofs.refusals
redalg.proofs.certificate redalg.proofs.derivatives redalg.proofs.smt redalg.proofs.gallina redalg.proofs.audits
redalg.proofs
redalg.certify
redalg.kernels.ir redalg.kernels.schedule redalg.kernels.lower redalg.kernels.emulate redalg.kernels.code
redalg.kernels.cuda.intrinsics redalg.kernels.launch redalg.kernels.rows redalg.kernels.tile
redalg.kernels.tile.level redalg.kernels.gemm
redalg.kernels.cpu.math redalg.kernels.cpu redalg.kernels.cpu.products redalg.kernels.programs
redalg.kernels.cpu_programs redalg.kernels.cpu_operations redalg.kernels.cpu_partitioned redalg.kernels.cpu.run
redalg.kernels.reshaped redalg.kernels.stacked redalg.kernels.partitioned redalg.kernels.pipeline
redalg.kernels.joint redalg.kernels.steps redalg.kernels.cuda
redalg.kernels.traffic redalg.kernels
redalg.run redalg.form redalg.api redalg.joint redalg.gradients redalg.adapters redalg.adapters.heads
redalg.adapters.ranks redalg.torch
redalg.specs redalg.testing
redalg.display redalg.pictures redalg.explore redalg.data redalg.cli redalg.__main__ redalg
""".split()
RANK = {folder: rank for rank, folder in enumerate(ORDER)}
MOST = 24  # files in a folder


def folder_of(module: str) -> str:
    """The entry of `ORDER` that a module belongs to: itself, or the innermost folder around it."""
    while module not in RANK:
        module = module.rpartition(".")[0]
    return module


def against_the_order() -> list[str]:
    """Imports of later folders, late ones included; what goes through the hooks is not counted."""
    found = []
    for module in sorted(SOURCES):
        if module in (HOOKS, "redalg"):
            continue
        for i in sorted(imports(module)):
            if i.target != "redalg" and RANK[folder_of(i.target)] > RANK[folder_of(module)]:
                found.append(f"{module} -> {i.target}")
    return found


def late() -> list[str]:
    """Imports inside functions, but those of the hooks and of the facade."""
    return [f"{m} -> {i.target}" for m in sorted(SOURCES) if m not in (HOOKS, "redalg") for i in _late(m)]


def _late(module: str) -> list[Import]:
    return [i for i in sorted(imports(module)) if i.late and i.target != "redalg"]


def crowded() -> dict[str, int]:
    """Folders of too many files."""
    counts: dict[str, int] = {}
    for path in SOURCES.values():
        if path.name != "__init__.py":
            counts[str(path.parent)] = counts.get(str(path.parent), 0) + 1
    return {folder: n for folder, n in counts.items() if n > MOST}


def cycles() -> list[str]:
    """Modules whose import, late ones counted, reaches themselves; the hooks lead nowhere."""
    after = {m: {i.target for i in imports(m)} - {"redalg"} if m != HOOKS else set() for m in SOURCES}
    return [m for m in sorted(SOURCES) if m != "redalg" and m in _closure(m, after)]


def _closure(module: str, after: dict[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    todo = [module]
    while todo:
        for name in after[todo.pop()] - seen:
            seen.add(name)
            todo.append(name)
    return seen
