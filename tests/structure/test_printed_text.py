"""Generated code is a tree until it is printed: nothing takes apart or changes what was printed."""

from __future__ import annotations

import ast

from tests.support.modules import SOURCES, tree

PRINTERS = frozenset({"text", "render", "unparse"})  # of statements and expressions
EDITS = frozenset("replace startswith endswith removeprefix removesuffix partition rpartition split strip".split())
MATCHES = frozenset({"sub", "match", "search", "fullmatch", "findall", "split"})  # of `re`


def _printed(e: ast.expr) -> bool:
    called = e.func if isinstance(e, ast.Call) else None
    return (called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")) in PRINTERS


def edited(found: ast.AST) -> list[int]:
    """Lines on which a printed expression is edited, or looked for in."""
    lines = []
    for n in ast.walk(found):
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute):
            own = n.func.attr in EDITS and _printed(n.func.value)
            lines += [n.lineno] * (own or n.func.attr in MATCHES and any(map(_printed, n.args)))
        elif isinstance(n, ast.Compare) and any(isinstance(o, ast.In | ast.NotIn) for o in n.ops):
            lines += [n.lineno] * (isinstance(n.left, ast.Constant) and any(map(_printed, n.comparators)))
    return lines


def test_no_printed_code_is_edited() -> None:
    own = [m for m in SOURCES if m.startswith(("redalg.source", "redalg.streaming", "redalg.groups", "redalg.kernels"))]
    assert len(own) > 200
    assert {m: lines for m in own if (lines := edited(tree(m)))} == {}


def test_what_edits_printed_code_is_found() -> None:
    lines = ('text(s.over).startswith("range")', '"sync" in ast.unparse(f)', 're.sub("k", "m", render(s))', "text(x)")
    assert edited(ast.parse("\n".join(lines))) == [1, 2, 3]
