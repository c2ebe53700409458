"""Printed kernels as text: line lengths, and no name that is not used. What they compute is tested elsewhere."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection

import pytest

import redalg as ra
from redalg.explore import kernel
from redalg.kernels.code.dead_code import eliminated
from redalg.source.breaking import WIDTH
from redalg.source.render import render
from redalg.source.statements import Function, statements
from tests.support.printed import NAMES, printed
from tests.support.sample import by_name


@by_name(NAMES, fast=("argmax", "attention", "moe_softmax_topk", "nearest_neighbour", "softmax", "variance"))
def test_long_lines_are_broken_and_nothing_else_changes(name: str) -> None:
    for label, module in printed(name):
        assert max(map(len, module.source.splitlines())) <= WIDTH, label
        read = statements(module.source)
        assert render(read) == module.source, label
    for width in (WIDTH // 2, 10**6):
        assert _undocumented(ast.parse(render(read, width))) == _undocumented(ast.parse(module.source)), label


def _undocumented(tree: ast.AST) -> str:
    for f in ast.walk(tree):
        if isinstance(f, ast.FunctionDef) and ast.get_docstring(f) is not None:
            f.body = f.body[1:]
    return ast.dump(tree)


def test_there_are_long_lines_to_break() -> None:
    unbroken = [line for p in printed("layer_norm") for line in render(statements(p.module.source), 10**6).splitlines()]
    assert any(len(line) > WIDTH for line in unbroken)


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


@by_name(NAMES)
def test_every_name_is_used_and_every_used_name_is_there(name: str) -> None:
    for label, module in printed(name):
        entries = [stage.name for stage in getattr(module, "stages", ())]
        assert not unused(module.source, entries), label
        assert not undefined(module.source), label
        arrays = {p.name for p in module.params if p.role in ("operand", "result", "number")}
        assert {x.rstrip("_") for x in unused_parameters(module.source, entries)} <= arrays, label


@by_name(["softmax", "attention", "kl_divergence_of_logits", "moe_softmax_topk", "group_norm"])
def test_no_statement_is_left_that_nothing_needs(name: str) -> None:
    for label, module in printed(name):
        for f in statements(module.source):
            if isinstance(f, Function):
                assert render([eliminated(f)]) == render([f]), label


@pytest.mark.parametrize("returned", ["v = mean[j]((x[i,j] - m_first)**2)", "m_first"])
def test_only_averages_about_a_guess_are_approximate(returned: str) -> None:
    """Whatever stages and outputs are called."""
    form = ra.derive_incremental(ra.parse(f"m_first = mean[j](x[i,j]); return {returned}"), axis="j")
    source = kernel(form, {"i": 100, "j": 3000}, "H200", dtype="float32").source
    assert source.count("* fast_rcp_f32(") == 1 and "= div_count_f32(" in source


def test_the_checks_find_what_they_look_for() -> None:
    source = "import numpy as np\nONE, TWO = 1, 2\ndef f(x, y):\n    z = x\n    return ONE + three\n"
    assert unused(source) == {"np", "TWO", "f: z"} and undefined(source) == {"three"}
    assert unused_parameters(source) == {"y"}
