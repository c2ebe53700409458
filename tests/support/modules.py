"""The project's modules as data: files, imports (late ones marked), functions with their complexity."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeGuard

from tests.support.places import ROOT

FOLDERS = {"redalg": "redalg", "redalg.kernels": "kernels", "redalg.proofs": "proofs"}  # package -> where it lies
HOOKS = "redalg._hooks"
BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.IfExp, ast.comprehension, ast.ExceptHandler, ast.match_case)


class Import(NamedTuple):
    target: str
    late: bool  # inside a function


def _found() -> dict[str, Path]:
    found = {}
    for package, folder in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            if package == "redalg" and parts[0] in ("kernels", "proofs"):
                continue  # through the link that the build makes
            found[".".join((package, *parts)).removesuffix(".__init__")] = path
    return found


SOURCES = _found()


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(SOURCES[module].read_text())


def package_of(module: str) -> str:
    """The folder a module lies in, as a dotted name; a package is its own."""
    return module if SOURCES[module].name == "__init__.py" else module.rpartition(".")[0]


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


@cache
def imports(module: str) -> frozenset[Import]:
    """What a module imports from the project, except for type checking."""
    return frozenset(i for i in _imports(module, tree(module), False) if i.target in SOURCES and i.target != module)


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """The statements directly inside a node, and its handlers and cases: what definitions and imports are among."""
    for field in ("body", "orelse", "handlers", "finalbody", "cases"):
        yield from getattr(node, field, ())


def _defined(node: ast.AST) -> Iterator[ast.AST]:
    for child in statements(node):
        yield child
        yield from _defined(child)


def _imports(module: str, node: ast.AST, late: bool) -> Iterator[Import]:
    if _is_type_checking(node):
        for child in node.orelse:  # type: ignore[attr-defined]
            yield from _imports(module, child, late)
        return
    late = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    if isinstance(node, ast.Import):
        yield from (Import(alias.name, late) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            package = package_of(module).split(".")
            base = ".".join(package[: len(package) - node.level + 1] + ([node.module] if node.module else []))
        full = [f"{base}.{alias.name}" for alias in node.names]
        yield from (Import(name if name in SOURCES else base, late) for name in full)
    for child in statements(node):
        yield from _imports(module, child, late)


def reached(module: str) -> set[str]:
    """Everything that the module's import loads, except the package root, which loads nothing."""
    seen: set[str] = set()
    todo = [module]
    while todo:
        for name in {i.target for i in imports(todo.pop()) if not i.late} - seen - {"redalg"}:
            seen.add(name)
            todo.append(name)
    return seen


def complexity(function: ast.AST) -> int:
    """1 + branches, loops, conditional expressions, comprehensions, except handlers, cases, and further operands of
    `and` and `or`; functions inside are counted by themselves."""
    count = 1
    todo = list(ast.iter_child_nodes(function))
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        count += isinstance(node, BRANCHES) + (len(node.values) - 1 if isinstance(node, ast.BoolOp) else 0)
        todo += ast.iter_child_nodes(node)
    return count


def functions(root: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Qualified name and definition of every function, methods and inner functions too."""
    for child in statements(root):
        name = f"{prefix}{getattr(child, 'name', '')}"
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield name, child
        inner = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        yield from functions(child, f"{name}." if inner else prefix)


def attributes(made: ast.ClassDef) -> set[str]:
    """The fields a class declares and the attributes that its `__init__` sets, without those of its bases."""
    found = {
        b.target.id
        for b in made.body
        if isinstance(b, ast.AnnAssign) and isinstance(b.target, ast.Name) and "ClassVar" not in ast.dump(b.annotation)
    }
    for b in made.body:
        if isinstance(b, ast.FunctionDef) and b.name in ("__init__", "__post_init__"):
            found |= {n.attr for n in ast.walk(b) if _is_set(n)}
    return found


def _is_set(node: ast.AST) -> TypeGuard[ast.Attribute]:
    """Whether the node is ``self.name`` on the left of an assignment."""
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    )


def crowded_classes(limit: int = 12) -> dict[str, int]:
    """Class -> its attributes, those of its bases counted, of those that have more."""
    classes = {(m, n.name): n for m in SOURCES for n in _defined(tree(m)) if isinstance(n, ast.ClassDef)}

    def every(module: str, name: str) -> set[str]:
        made = classes[module, name]
        homes = {
            a.asname or a.name: n.module for n in tree(module).body if isinstance(n, ast.ImportFrom) for a in n.names
        }
        found = attributes(made)
        for base in (b.id for b in made.bases if isinstance(b, ast.Name)):
            home = homes.get(base) or module
            found |= every(home, base) if (home, base) in classes else set()
        return found

    counts = {f"{m}.{name}": len(every(m, name)) for m, name in classes}
    return {name: c for name, c in sorted(counts.items(), key=lambda item: -item[1]) if c > limit}


def too_complex(limit: int = 15) -> dict[str, int]:
    """Function -> complexity, of those beyond the limit."""
    found = {f"{m}.{q}": complexity(f) for m in SOURCES for q, f in functions(tree(m))}
    return {name: c for name, c in sorted(found.items(), key=lambda item: -item[1]) if c > limit}
