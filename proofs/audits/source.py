"""How a pasted test gets at a function: an import where it has a public name, else its source with what it reads."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable
from fractions import Fraction
from types import ModuleType
from typing import Any

from redalg.proofs.document.parsing import parse


def definition_lines(function: Callable[..., Any], alias: str) -> list[str]:
    """Lines of Python after which `alias` is the function; a comment where there is no way to say it."""
    return (
        imported(function, alias)
        or _sourced(function, alias)
        or [
            f"# {alias}: it has no name to import and reads what cannot be written down; define it here",
        ]
    )


def imported(thing: Any, alias: str) -> list[str]:
    """An import of a function or class from its module, or nothing."""
    module, path = getattr(thing, "__module__", None), getattr(thing, "__qualname__", "<none>")
    if module in (None, "__main__") or "<" in path or module not in sys.modules:
        return []
    found: Any = sys.modules[module]
    for name in path.split("."):
        found = getattr(found, name, None)
    if found is not thing:
        return []
    first, _, rest = path.partition(".")
    if rest:
        return [f"from {module} import {first}", f"{alias} = {path}"]
    return [f"from {module} import {first}" + (f" as {alias}" if alias != first else "")]


def _sourced(function: Any, alias: str, seen: tuple[Any, ...] = ()) -> list[str]:
    function = getattr(function, "py_func", function)
    tree = _tree(function)
    if tree is None or function in seen:
        return []
    reads = _reads(function, (*seen, function))
    if reads is None or not _closed(tree, function):
        return []
    if isinstance(tree, ast.Lambda):
        return [*reads, f"{alias} = {ast.unparse(tree)}"]
    tree.decorator_list, tree.returns = [], None
    renamed = ["", "", f"{alias} = {tree.name}"] if alias != tree.name else []
    return [*reads, *([""] if reads else []), *ast.unparse(tree).splitlines(), *renamed]


def _closed(tree: ast.FunctionDef | ast.Lambda, function: Any) -> bool:
    """Annotations go, and defaults become the values they have: both may read names that are not there any more."""
    for argument in (*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs):
        argument.annotation = None
    values = list(function.__defaults__ or ())
    if not all(isinstance(v, bool | int | float | str | None) for v in values) or function.__kwdefaults__:
        return False
    tree.args.defaults = [parse(_plain(v), mode="eval").body for v in values]
    return True


def _plain(value: Any) -> str:
    return f"float({str(value)!r})" if isinstance(value, float) and value - value != 0 else repr(value)


def _tree(function: Any) -> ast.FunctionDef | ast.Lambda | None:
    """The syntax of a function; a lambda must be the only one on its lines."""
    try:
        source = textwrap.dedent(inspect.getsource(function)).strip()
    except (OSError, TypeError):
        return None
    wanted = ast.Lambda if getattr(function, "__name__", "") == "<lambda>" else ast.FunctionDef
    for text in (source, source.rstrip(","), f"({source})", f"({source}", source.rstrip(")"), f"f({source}"):
        try:
            found = [n for n in ast.walk(parse(text)) if isinstance(n, wanted)]
        except SyntaxError:
            continue
        if wanted is ast.FunctionDef:
            return found[0] if found else None
        return found[0] if len(found) == 1 else None
    return None


def _reads(function: Any, seen: tuple[Any, ...]) -> list[str] | None:
    """Lines that define the global and enclosing names a function reads; None where one cannot be written down."""
    names = inspect.getclosurevars(function)
    lines: list[str] = []
    for name, value in {**names.globals, **names.nonlocals}.items():
        found = _line(name, value, seen)
        if found is None:
            return None
        lines += [line for line in found if line not in lines]
    return lines


def _line(name: str, value: Any, seen: tuple[Any, ...]) -> list[str] | None:
    if isinstance(value, ModuleType):
        return [f"import {value.__name__}" + (f" as {name}" if name != value.__name__ else "")]
    if isinstance(value, Fraction):
        return [f"{name} = Fraction({value.numerator}, {value.denominator})"]
    if isinstance(value, bool | int | float | str) or value is None:
        return [f"{name} = {_plain(value)}"]
    if isinstance(value, tuple | list) and all(isinstance(v, bool | int | float | str) for v in value):
        return [f"{name} = {value!r}"]
    return (imported(value, name) or _sourced(value, name, seen) or None) if callable(value) else None
