"""Printed kernels as text: line lengths, names, imports. What they compute is tested elsewhere."""

from __future__ import annotations

import ast

import pytest

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
