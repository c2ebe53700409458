"""Printed kernels as text: line lengths, and no name that is not used. What they compute is tested elsewhere."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection

import pytest

import redalg as ra
from redalg.explore import kernel
from redalg.kernels.sweeping import swept
from redalg.kernels.wrapping import WIDTH, wrapped
from tests.printed import NAMES, printed


@pytest.mark.parametrize("name", NAMES)
def test_long_lines_are_broken_and_nothing_else_changes(name: str) -> None:
    for label, unbroken, module in printed(name):
        tree = ast.dump(ast.parse(unbroken))
        assert ast.dump(ast.parse(module.source)) == tree, label
        assert max(map(len, module.source.splitlines())) <= WIDTH, label
    assert ast.dump(ast.parse(wrapped(unbroken, WIDTH // 2))) == tree, label
    assert wrapped(module.source) == module.source, label


def test_there_are_long_lines_to_break() -> None:
    assert any(len(line) > WIDTH for p in printed("layer_norm") for line in p.unbroken.splitlines())


# --- names -----------------------------------------------------------------------------------------------------------


class Names(ast.NodeVisitor):
    """What a module or function reads, imports and defines, and what it assigns.

    `alone` are names that are assigned by themselves: what comes with others out of one call may go unread.
    """

    def __init__(self, tree: ast.AST) -> None:
        self.read: set[str] = set()
        self.assigned: set[str] = set()
        self.alone: set[str] = set()
        self.defined: set[str] = set()
        self.generic_visit(tree)

    def visit_Name(self, n: ast.Name) -> None:
        (self.read if isinstance(n.ctx, ast.Load) else self.assigned).add(n.id)

    def visit_Assign(self, n: ast.Assign) -> None:
        self.alone |= {t.id for t in n.targets if isinstance(t, ast.Name)}
        self.generic_visit(n)

    def visit_AugAssign(self, n: ast.AugAssign) -> None:
        self.alone |= {n.target.id} if isinstance(n.target, ast.Name) else set()
        self.generic_visit(n)

    def visit_alias(self, n: ast.alias) -> None:
        self.defined.add(n.asname or n.name)

    def visit_FunctionDef(self, n: ast.FunctionDef) -> None:
        inside = Names(n)
        self.read |= inside.read - inside.assigned - inside.defined
        self.defined.add(n.name)

    def visit_arg(self, n: ast.arg) -> None:
        self.defined.add(n.arg)


def unused(source: str, entries: Collection[str] = ()) -> set[str]:
    """What a module imports or defines and never reads (its entries or last function apart), and such locals."""
    tree = ast.parse(source)
    functions = {f.name: Names(f) for f in tree.body if isinstance(f, ast.FunctionDef)}
    module = Names(tree)
    found = (module.defined | module.assigned) - module.read - (set(entries) or {list(functions)[-1]})
    return found.union(*({f"{name}: {x}" for x in f.alone - f.read} for name, f in functions.items()))


def unused_parameters(source: str, entries: Collection[str] = ()) -> set[str]:
    """Parameters their function does not read; entries share theirs, and one of them has to."""
    functions = {f.name: Names(f) for f in ast.parse(source).body if isinstance(f, ast.FunctionDef)}
    shared = set().union(*(functions[name].read for name in entries))
    return {x for name, f in functions.items() for x in f.defined - f.read - (shared if name in entries else set())}


def undefined(source: str) -> set[str]:
    module = Names(ast.parse(source))
    return module.read - module.defined - module.assigned - set(dir(builtins))


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_used_and_every_used_name_is_there(name: str) -> None:
    for label, _, module in printed(name):
        entries = [stage.name for stage in getattr(module, "stages", ())]
        assert not unused(module.source, entries), label
        assert not undefined(module.source), label
        arrays = {p.name for p in module.params if p.role in ("operand", "result", "number")}
        assert {x.rstrip("_") for x in unused_parameters(module.source, entries)} <= arrays, label


@pytest.mark.parametrize("name", ["softmax", "attention", "kl_divergence_of_logits", "moe_softmax_topk", "group_norm"])
def test_no_statement_is_left_that_nothing_needs(name: str) -> None:
    for label, _, module in printed(name):
        lines = module.source.splitlines()
        for f in ast.parse(module.source).body:
            if isinstance(f, ast.FunctionDef):
                text = "\n".join(lines[f.lineno - 1 : f.end_lineno])
                assert swept(text)[0] == text, label


@pytest.mark.parametrize(
    "text, inverted", [("x[i,j] / sqrt(sum[j](x[i,j]**2))", True), ("x[i,j] / sum[j](x[i,j])", False)]
)
def test_roots_are_inverted_once_a_row(text: str, inverted: bool) -> None:
    """Their reciprocals are normal numbers; that of a sum may overflow where a quotient does not."""
    form = ra.derive_incremental(ra.parse(f"return y = {text}"), axis="j")
    source = kernel(form, {"i": 4096, "j": 1024}, "H200", dtype="float32").source
    (line,) = [x for x in source.splitlines() if "y_part[c] =" in x]
    assert ("/" not in line) == inverted and ("= f32(1) / sqrt_f32(" in source) == inverted


def test_the_checks_find_what_they_look_for() -> None:
    source = "import numpy as np\nONE, TWO = 1, 2\ndef f(x, y):\n    z = x\n    return ONE + three\n"
    assert unused(source) == {"np", "TWO", "f: z"} and undefined(source) == {"three"}
    assert unused_parameters(source) == {"y"}
