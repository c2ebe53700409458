"""The house rules of ARCHITECTURE.md, held by reading the source."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = {"redalg": "redalg", "redalg.kernels": "kernels", "redalg.proofs": "proofs"}
LONGEST = 400


def _sources() -> dict[str, Path]:
    """Module name -> file, for everything that is installed."""
    found = {}
    for package, folder in FOLDERS.items():
        for path in (ROOT / folder).rglob("*.py"):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            found[".".join((package, *parts)).removesuffix(".__init__")] = path
    return found


SOURCES = _sources()


def _package(module: str) -> str:
    return module if SOURCES[module].name == "__init__.py" else module.rpartition(".")[0]


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def imports(module: str, lazily: bool = True) -> set[str]:
    """What a module imports from the project; without `lazily` only what its own import needs."""
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        if _is_type_checking(node):
            return
        if not lazily and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = _package(module).split(".")
                base = ".".join(package[: len(package) - node.level + 1] + ([node.module] if node.module else []))
            for alias in node.names:
                full = f"{base}.{alias.name}"
                found.add(full if full in SOURCES else base)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(SOURCES[module].read_text()))
    return {name for name in found if name in SOURCES and name != module}


def reached(module: str) -> set[str]:
    """Everything that the module's import loads, except the package root, which loads nothing."""
    seen: set[str] = set()
    todo = [module]
    while todo:
        for name in imports(todo.pop(), lazily=False) - seen - {"redalg"}:
            seen.add(name)
            todo.append(name)
    return seen


@pytest.mark.parametrize("module", sorted(SOURCES))
def test_a_file_is_short(module: str) -> None:
    assert len(SOURCES[module].read_text().splitlines()) <= LONGEST


def test_test_files_are_short() -> None:
    long = [p.name for p in (ROOT / "tests").rglob("*.py") if len(p.read_text().splitlines()) > LONGEST]
    assert not long


@pytest.mark.parametrize("module", sorted(SOURCES))
def test_there_is_no_import_cycle(module: str) -> None:
    assert module not in reached(module)


NUMBERS = {m for m in SOURCES if m.startswith(("redalg.numeric", "redalg.exact", "redalg.binding"))} | {
    "redalg.errors",
    "redalg.formats",
    "redalg.graph",
    "redalg.plan",
    "redalg.void",
}
LANGUAGE = {"redalg.expr", "redalg.lowering", "redalg.translate", "redalg.monoid", "redalg.spec", "redalg.grammar"}
ENGINE_FREE = NUMBERS | LANGUAGE | {"redalg.definition"}


def _foreign(module: str) -> set[str]:
    """Packages of others that the module imports, anywhere in it."""
    nodes = list(ast.walk(ast.parse(SOURCES[module].read_text())))
    plain = {a.name for n in nodes if isinstance(n, ast.Import) for a in n.names}
    return {name.split(".")[0] for name in plain | {n.module or "" for n in nodes if isinstance(n, ast.ImportFrom)}}


@pytest.mark.parametrize("module", sorted(NUMBERS | {"redalg.obligation_check"}))
def test_numbers_and_the_checker_of_obligations_do_without_sympy(module: str) -> None:
    assert not [name for name in {module, *reached(module)} if "sympy" in _foreign(name)]


def test_the_checker_of_obligations_does_not_import_the_finder() -> None:
    finder = {"redalg.derive", "redalg.separate", "redalg.normal", "redalg.cascade", "redalg.building"}
    assert not finder & reached("redalg.obligation_check")


@pytest.mark.parametrize("module", sorted(ENGINE_FREE))
def test_the_language_and_the_numerics_do_not_import_the_engine(module: str) -> None:
    assert not {"redalg.derive", "redalg.form", "redalg.separate", "redalg.specs"} & reached(module)


@pytest.mark.parametrize("module", sorted(m for m in SOURCES if m not in {"redalg.cli", "redalg.demo"}))
def test_nothing_imports_the_command_line(module: str) -> None:
    outside = {"redalg.cli", "redalg.demo", "redalg.__main__"} & imports(module)
    assert not outside or module == "redalg.__main__"


@pytest.mark.parametrize("module", sorted(m for m in SOURCES if m.startswith(("redalg.kernels", "redalg.proofs"))))
def test_kernels_and_proofs_do_not_know_each_other(module: str) -> None:
    other = "redalg.proofs" if module.startswith("redalg.kernels") else "redalg.kernels"
    assert not [name for name in imports(module) if name.startswith(other)]


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


def test_the_graph_needs_neither_sympy_nor_numpy() -> None:
    assert not {"sympy", "numpy"} & _loaded("import redalg.graph, redalg.plan")


# --- names -----------------------------------------------------------------------------------------------------------


def test_no_public_name_is_also_a_submodule() -> None:
    import redalg

    submodules = {name.split(".")[1] for name in SOURCES if "." in name}
    assert not submodules & set(redalg.__all__)


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
    found, todo = {"redalg.derive"}, ["redalg.derive"]
    while todo:
        for name in imports(todo.pop()) - found - ENGINE_FREE - {"redalg", "redalg.form"}:
            found.add(name)
            todo.append(name)
    return sorted(found)


def test_the_engine_contains_no_name_of_a_catalog_spec() -> None:
    """Names may occur in prose; as a string or an identifier they would be a template."""
    import redalg as ra

    names = set(ra.catalog) - ENGINE_KNOWS
    found = []
    for module in _engine():
        tree = ast.parse(SOURCES[module].read_text())
        for node in ast.walk(tree):
            word = node.value if isinstance(node, ast.Constant) else getattr(node, "name", getattr(node, "id", None))
            if isinstance(word, str) and word in names:
                found.append(f"{module}:{node.lineno} {word}")  # type: ignore[attr-defined]
    assert not found


def test_the_engine_does_not_import_the_catalog() -> None:
    assert not [m for m in _engine() if m.startswith("redalg.specs")]


def test_the_architecture_lists_every_module() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    modules = {name.removeprefix("redalg.") for name in SOURCES if SOURCES[name].name != "__init__.py"}
    assert not [name for name in sorted(modules) if f"`{name}`" not in text and f"`{name}.py`" not in text]
    listed = {line.split("`")[1] for line in text.splitlines() if line.startswith("| `")}
    assert not listed - modules
