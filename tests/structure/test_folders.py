"""The graph of folders (`tests/structure/folders.py`) and the house rules of ARCHITECTURE.md, by reading the source."""

from __future__ import annotations

import ast
import os
import subprocess
import sys

import pytest

from tests.structure.folders import ORDER, RANK, against_the_order, crowded, cycles, late
from tests.support.modules import (
    SOURCES,
    attributes,
    complexity,
    crowded_classes,
    functions,
    imports,
    package_of,
    reached,
    too_complex,
    tree,
)
from tests.support.places import ROOT


def test_every_folder_is_in_the_order() -> None:
    assert len(ORDER) == len(RANK)
    assert {package_of(m) for m in SOURCES} <= {*ORDER, "redalg"}
    assert not [folder for folder in ORDER if folder not in SOURCES]


def test_a_module_imports_from_earlier_folders_only() -> None:
    assert against_the_order() == []


def test_imports_inside_functions_are_in_the_hooks() -> None:
    assert late() == []


def test_no_module_imports_itself_by_a_detour() -> None:
    assert cycles() == []


def test_no_folder_is_crowded() -> None:
    assert crowded() == {}


def test_no_function_is_too_complex() -> None:
    assert too_complex() == {}


CROWDED = {  # class -> why it has more than 12 attributes; the bases' are counted
    "redalg.kernels.ir.schedule.Schedule": "public: `schedule={...}` names its fields",
    "redalg.proofs.audits.judge.Operator": "public: what somebody says of an operator",
    "redalg.proofs.refusals.document.Refusal": "a document: its fields are those of the format",
    "redalg.proofs.refusals.evidence.Evidence": "a document's numbers: its fields are those of the format",
    "redalg.kernels.cuda.run.Ready": "a prepared call: looks nothing up while it runs",
    "redalg.kernels.cpu.ready.Ready": "a prepared call: looks nothing up while it runs",
    "redalg.kernels.cuda.joint.JointRun": "`CudaRun`, and what runs where one reading does not",
    "redalg.kernels.tile.plan.WidePlan": "`TensorPlan` of two warpgroups: each number is decided by one pass",
    "redalg.kernels.gemm.tiles.GemmPlan": "sizes of one kernel: each number is decided by one pass",
    "redalg.kernels.tile.mma_sync_plan.MmaPlan": "`TensorPlan` of warps",
    "redalg.kernels.gemm.mma_tiles.MmaGemm": "`GemmPlan` of warps",
    "redalg.streaming.snapshot.Snapshot": "everything that changes in an accumulator, each thing by its name",
    "redalg.streaming.passes.Pass": "what a printed source says of a pass, each thing by its name",
    "redalg.graph.functions.Function": "a row of a table: its fields are the columns",
    "redalg.proofs.document.functions.Function": "a row of a table: its fields are the columns",
    "redalg.kernels.tile.level.derive.Parts": "what a program consists of, each thing by its name",
    "redalg.engine.draft.Draft": "a draft: a field for every pass",
    "redalg.kernels.gemm.passes.GemmDraft": "a draft: a field for every pass",
    "redalg.engine.draft.Read": "a draft: a field for every pass",
    "redalg.kernels.rows.plan.RowsDraft": "a draft: a field for every pass",
    "redalg.kernels.ir.program.Program": "what a kernel computes, each thing by its name",
} | dict.fromkeys(
    (
        "redalg.engine.slots.SlotBackend",
        "redalg.kernels.cpu.kernel.CpuKernel",
        "redalg.kernels.gemm.chain._Meeting",
        "redalg.kernels.gemm.kernel.GemmKernel",
        "redalg.kernels.gemm.mma_kernel.MmaGemmKernel",
        "redalg.kernels.gemm.prologue.Prologue",
        "redalg.kernels.rows.kernel.Kernel",
        "redalg.kernels.rows.outer.OuterKernel",
        "redalg.kernels.tile.kernel.TensorKernel",
        "redalg.kernels.tile.level.elements.TileKernel",
        "redalg.kernels.tile.level.mma.MmaPrinter",
        "redalg.kernels.tile.level.wgmma.KernelPrinter",
        "redalg.pictures.trees._Column",
        "redalg.streaming.tapes.build.Builder",
        "redalg.proofs.falsification.evaluate.Evaluation",
        "redalg.proofs.refusals.influence.Weighted",
        "redalg.proofs.falsification.falsify.Sample",
        "redalg.proofs.smt.refute.Placed",
    ),
    "a visitor: what it has found so far, to be split by subject",
)


def test_no_other_class_has_many_attributes() -> None:
    assert {*crowded_classes()} == {*CROWDED}


def test_the_measures_find_what_they_measure() -> None:
    """A function of each kind of branch, and an import inside a function."""
    source = "def f(x):\n    for y in x:\n        if y and x or y:\n            return [z for z in x if z]\n"
    source += "    return 1 if x else 2"
    (name, found), *_ = functions(ast.parse(source))
    assert (name, complexity(found)) == ("f", 7)
    (made,) = ast.parse("class A:\n    x: int\n    def __init__(self):\n        self.y, self.z = 1, self.x\n").body
    assert isinstance(made, ast.ClassDef) and attributes(made) == {"x", "y", "z"}
    assert [i for i in imports("redalg._hooks") if i.late] and not [i for i in imports("redalg.graph.plan") if i.late]


NUMBERS = {
    m for m in SOURCES if m.startswith(("redalg.numeric.evaluate", "redalg.numeric.exact", "redalg.numeric.binding"))
} | {
    "redalg.errors",
    "redalg.graph.formats",
    "redalg.graph.node",
    "redalg.graph.plan",
    "redalg.graph.masked",
}
LANGUAGE = {
    "redalg.language.leaves",
    "redalg.language.sympy_to_graph",
    "redalg.language.sympy_bridge",
    "redalg.language.monoid",
    "redalg.language.spec",
    "redalg.language.grammar",
}
ENGINE_FREE = NUMBERS | LANGUAGE | {"redalg.numeric.definition"}


def _foreign(module: str) -> set[str]:
    """Packages of others that the module imports, anywhere in it."""
    nodes = list(ast.walk(tree(module)))
    plain = {a.name for n in nodes if isinstance(n, ast.Import) for a in n.names}
    return {name.split(".")[0] for name in plain | {n.module or "" for n in nodes if isinstance(n, ast.ImportFrom)}}


@pytest.mark.parametrize("module", sorted(NUMBERS | {"redalg.laws.check"}))
def test_numbers_and_the_checker_of_obligations_do_without_sympy(module: str) -> None:
    assert not [name for name in {module, *reached(module)} if "sympy" in _foreign(name)]


def test_the_checker_of_obligations_does_not_import_the_finder() -> None:
    finder = {
        "redalg.engine.passes",
        "redalg.engine.rules.separate",
        "redalg.algebra.polynomial",
        "redalg.engine.rules.cascade",
        "redalg.engine.slots",
    }
    assert not finder & reached("redalg.laws.check")


@pytest.mark.parametrize("module", sorted(m for m in SOURCES if m.startswith(("redalg.kernels", "redalg.proofs"))))
def test_kernels_and_proofs_do_not_know_each_other(module: str) -> None:
    other = "redalg.proofs" if module.startswith("redalg.kernels") else "redalg.kernels"
    assert not [i.target for i in imports(module) if i.target.startswith(other)]


# --- what an import costs --------------------------------------------------------------------------------------------


def _loaded(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint('\\n'.join(sys.modules))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    return set(out.stdout.split())


def test_importing_the_package_loads_no_heavy_module() -> None:
    heavy = {"numba", "cuda", "cupy", "torch", "llvmlite", "numpy", "sympy", "mpmath"}
    assert not heavy & _loaded("import redalg")


def test_deriving_loads_neither_numba_nor_cuda() -> None:
    use = "import redalg as ra\nra.derive_incremental(ra.parse('return y = max[j](x[j])'))"
    assert not {"numba", "cuda", "cupy", "torch", "llvmlite"} & _loaded(use)


def test_kernels_for_a_gpu_load_neither_numba_nor_what_the_cpu_needs() -> None:
    """Both take longer to import than a kernel takes to be planned; compiled kernels lie on disk."""
    found = _loaded("import redalg.kernels.cuda.run")
    assert not {"numba", "cuda", "llvmlite", "redalg.kernels.cpu.plan"} & found


def test_the_graph_needs_neither_sympy_nor_numpy() -> None:
    assert not {"sympy", "numpy"} & _loaded("import redalg.graph.node, redalg.graph.plan")


# --- names -----------------------------------------------------------------------------------------------------------


def test_no_public_name_is_also_a_submodule() -> None:
    import redalg

    submodules = {name.split(".")[1] for name in SOURCES if "." in name}
    assert not submodules & set(redalg.__all__)


def test_no_function_shares_its_module_and_folder_name() -> None:
    """``from folder import name`` would give the module or the function, whichever was imported first."""
    found = []
    for module in SOURCES:
        *_, folder, name = module.split(".") if module.count(".") else ("", module)
        made = {getattr(node, "name", None) for node in tree(module).body}
        if folder == name and name in made:
            found.append(module)
    assert found == []


ENGINE_KNOWS = {
    "min",
    "max",
    "mean",
    "argmax",
    "argmin",
    "entropy",
    "covariance",
    "variance",
}  # words of the mathematics


def _engine() -> list[str]:
    """The modules between a spec and a plan: everything that deriving imports, without the language and the errors."""
    found, todo = {"redalg.engine.passes"}, ["redalg.engine.passes"]
    while todo:
        for name in {i.target for i in imports(todo.pop())} - found - ENGINE_FREE - {"redalg", "redalg.form"}:
            found.add(name)
            todo.append(name)
    return sorted(found)


def test_the_engine_contains_no_name_of_a_catalog_spec() -> None:
    """Names may occur in prose; as a string or an identifier they would be a template."""
    import redalg as ra

    names = set(ra.catalog) - ENGINE_KNOWS
    found = []
    for module in _engine():
        root = tree(module)
        for node in ast.walk(root):
            word = node.value if isinstance(node, ast.Constant) else getattr(node, "name", getattr(node, "id", None))
            if isinstance(word, str) and word in names:
                found.append(f"{module}:{node.lineno} {word}")  # type: ignore[attr-defined]
    assert not found


def test_the_engine_does_not_import_the_catalog() -> None:
    assert not [m for m in _engine() if m.startswith("redalg.specs.collection")]


def test_the_architecture_names_every_folder() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert len(text) < 12_000
    assert not [folder for folder in ORDER if f"`{folder.removeprefix('redalg.')}`" not in text and folder != "redalg"]
