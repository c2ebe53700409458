"""Generated code as data: a dozen kinds of statements over Python's expression trees, before anything is printed.

Printers state what a function does, a line at a time; each line becomes a statement at once (`statements`), and from
there on code is a tree: what removes dead code, coarsens threads, unrolls loops or spells names maps statements to
statements, and `redalg.source.render` prints the result. Nothing edits printed text. Statements and expressions are
never changed in place; equal lines may be one object.

>>> block = statements("for k in range(n):\\n    total = total + x[k]  # in order")
>>> block[0].body[0].comment, sorted(reads(block))
('in order', ['k', 'n', 'range', 'total', 'x'])
"""

from __future__ import annotations

import ast
import copy
import io
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import lru_cache
from math import prod

from redalg.parsing import parse

Expression = ast.expr


@dataclass(frozen=True, eq=False)
class Statement:
    """What one line says; `comment` is printed behind it. `role`: what it is for, where passes ask."""

    comment: str = ""
    role: Enum | None = field(default=None, kw_only=True)


Block = tuple[Statement, ...]


@dataclass(frozen=True, eq=False)
class Comment(Statement):
    """A comment on a line of its own; also a place at which statements are put in later (`expanded`)."""


@dataclass(frozen=True, eq=False)
class Pass(Statement):
    """Nothing."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Import(Statement):
    """``from module import names``, or ``import module as names[0]`` where `whole`."""

    module: str
    names: tuple[str, ...]
    whole: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class Assign(Statement):
    """``targets = value``, or ``targets operator= value``; several targets are assigned the same value."""

    targets: tuple[Expression, ...]
    value: Expression
    operator: ast.operator | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Table(Assign):
    """``name = cuda.local.array(size, dtype)``: an array of a thread, or of a block where it is `shared`.

    >>> (table,) = statements("best = cuda.shared.array((2, 32), np.bool_)")
    >>> table.name, table.shared, table.dtype, table.entries
    ('best', True, 'bool', 64)
    """

    shared: bool

    @property
    def name(self) -> str:
        (target,) = self.targets
        assert isinstance(target, ast.Name)
        return target.id

    @property
    def call(self) -> ast.Call:
        """What makes the array, of which the table may be a part."""
        made = self.value.value if isinstance(self.value, ast.Subscript) else self.value
        assert isinstance(made, ast.Call)
        return made

    @property
    def size(self) -> Expression:
        return self.call.args[0]

    @property
    def dtype(self) -> str:
        found = self.call.args[1]
        assert isinstance(found, ast.Attribute | ast.Name)
        return (found.attr if isinstance(found, ast.Attribute) else found.id).rstrip("_")

    @property
    def entries(self) -> int:
        """How many it has; 0 where that is not a number yet."""
        lengths = self.size.elts if isinstance(self.size, ast.Tuple) else [self.size]
        numbers = [n.value if isinstance(n, ast.Constant) else 0 for n in lengths]
        return prod(n for n in numbers if isinstance(n, int))


@dataclass(frozen=True, eq=False, kw_only=True)
class Do(Statement):
    """An expression for its effect."""

    value: Expression


@dataclass(frozen=True, eq=False, kw_only=True)
class Return(Statement):
    value: Expression | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Raise(Statement):
    value: Expression


@dataclass(frozen=True, eq=False, kw_only=True)
class For(Statement):
    target: Expression
    over: Expression
    body: Block


@dataclass(frozen=True, eq=False, kw_only=True)
class While(Statement):
    test: Expression
    body: Block


@dataclass(frozen=True, eq=False, kw_only=True)
class If(Statement):
    test: Expression
    body: Block
    orelse: Block = ()


@dataclass(frozen=True)
class Parameter:
    """An argument of a function, with its default if it has one."""

    name: str
    default: Expression | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Function(Statement):
    """A function; `doc` are the paragraphs of its docstring, the first a sentence."""

    name: str
    parameters: tuple[Parameter, ...]
    body: Block
    decorators: tuple[Expression, ...] = ()
    doc: tuple[str, ...] = ()

    @property
    def arguments(self) -> tuple[str, ...]:
        return tuple(p.name for p in self.parameters)


Nested = For | While | If


# --- reading lines ---------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1 << 14)
def expression(text: str) -> Expression:
    """One expression.

    >>> sorted(names(expression("load(x, k) * 2")))
    ['k', 'load', 'x']
    """
    found = statements(text)[0]
    assert isinstance(found, Do)
    return found.value


@lru_cache(maxsize=1 << 14)
def statements(text: str) -> Block:
    """The statements that a text says, with its comments. Raises: ValueError for one that is none of these kinds."""
    tree = parse(text)
    _keep_spelling(tree, text)
    notes = dict(_comments(text)) if "#" in text else {}
    return _block(tree.body, notes, 0, len(text) + 1)


def function(text: str) -> Function:
    """One function."""
    (found,) = statements(text)
    assert isinstance(found, Function)
    return found


def parameters(names: Iterable[str]) -> tuple[Parameter, ...]:
    return tuple(Parameter(name) for name in names)


def _keep_spelling(tree: ast.AST, text: str) -> None:
    """Numbers that are written in base 16 stay so."""
    if "0x" not in text:
        return
    lines = [line.encode() for line in text.split("\n")]
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and type(node.value) is int:
            node.kind = lines[node.lineno - 1][node.col_offset : node.end_col_offset].decode()


def _comments(text: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.removeprefix("#").removeprefix(" ").rstrip()


def _block(body: Sequence[ast.stmt], notes: Mapping[int, str], after: int, until: int) -> Block:
    """Statements with the comments of their lines; those that stand alone between `after` and `until` come along."""
    found: list[Statement] = []
    for s in body:
        found += [Comment(notes[line]) for line in range(after + 1, s.lineno) if line in notes]
        found.append(_READ[type(s)](s, notes))
        after = s.end_lineno or s.lineno
    return (*found, *(Comment(notes[line]) for line in notes if after < line < until))


def _note(s: ast.stmt, notes: Mapping[int, str]) -> str:
    body = getattr(s, "body", None)
    return notes.get(s.lineno if body else s.end_lineno or s.lineno, "")


def _inside(s: ast.For | ast.While | ast.If | ast.FunctionDef, notes: Mapping[int, str]) -> Block:
    return _block(s.body, notes, s.lineno, s.body[-1].end_lineno or 0)


def _read_assign(s: ast.Assign, notes: Mapping[int, str]) -> Statement:
    targets, space = tuple(s.targets), _space(s.value)
    if space is not None:
        return Table(_note(s, notes), targets=targets, value=s.value, shared=space == "shared")
    return Assign(_note(s, notes), targets=targets, value=s.value)


def _space(e: Expression) -> str | None:
    """Where the array lies that an expression makes: ``cuda.SPACE.array(…)``."""
    made = e.func if isinstance(e, ast.Call) else None
    where = made.value if isinstance(made, ast.Attribute) and made.attr == "array" else None
    return where.attr if isinstance(where, ast.Attribute) else None


def _read_augmented(s: ast.AugAssign, notes: Mapping[int, str]) -> Statement:
    return Assign(_note(s, notes), targets=(s.target,), value=s.value, operator=s.op)


def _read_for(s: ast.For, notes: Mapping[int, str]) -> Statement:
    return For(_note(s, notes), target=s.target, over=s.iter, body=_inside(s, notes))


def _read_while(s: ast.While, notes: Mapping[int, str]) -> Statement:
    return While(_note(s, notes), test=s.test, body=_inside(s, notes))


def _read_if(s: ast.If, notes: Mapping[int, str]) -> Statement:
    after = s.body[-1].end_lineno or 0
    orelse = _block(s.orelse, notes, after, s.end_lineno or 0) if s.orelse else ()
    return If(_note(s, notes), test=s.test, body=_inside(s, notes), orelse=orelse)


def _read_function(s: ast.FunctionDef, notes: Mapping[int, str]) -> Statement:
    args = s.args.args
    defaults = [None] * (len(args) - len(s.args.defaults)) + list(s.args.defaults)
    given = tuple(Parameter(a.arg, d) for a, d in zip(args, defaults, strict=True))
    doc = ast.get_docstring(s)
    body = _without_doc(s) if doc is not None else s
    paragraphs = tuple(part for part in (doc or "").split("\n") if part)
    inside = _inside(body, notes) if body.body else (Pass(),)
    return Function(name=s.name, parameters=given, body=inside, decorators=tuple(s.decorator_list), doc=paragraphs)


def _without_doc(s: ast.FunctionDef) -> ast.FunctionDef:
    """The function without its docstring."""
    found = copy.copy(s)
    found.body = s.body[1:]
    return found


def _read_from(s: ast.ImportFrom, notes: Mapping[int, str]) -> Statement:
    return Import(module=s.module or "", names=tuple(a.name for a in s.names))


def _read_import(s: ast.Import, notes: Mapping[int, str]) -> Statement:
    return Import(module=s.names[0].name, names=(s.names[0].asname or s.names[0].name,), whole=True)


def _read_do(s: ast.Expr, notes: Mapping[int, str]) -> Statement:
    return Do(_note(s, notes), value=s.value)


def _read_return(s: ast.Return, notes: Mapping[int, str]) -> Statement:
    return Return(_note(s, notes), value=s.value)


def _read_raise(s: ast.Raise, notes: Mapping[int, str]) -> Statement:
    assert s.exc is not None
    return Raise(_note(s, notes), value=s.exc)


def _read_pass(s: ast.Pass, notes: Mapping[int, str]) -> Statement:
    return Pass(_note(s, notes))


_READ: dict[type, Callable[..., Statement]] = {
    ast.Assign: _read_assign,
    ast.AugAssign: _read_augmented,
    ast.For: _read_for,
    ast.While: _read_while,
    ast.If: _read_if,
    ast.FunctionDef: _read_function,
    ast.ImportFrom: _read_from,
    ast.Import: _read_import,
    ast.Expr: _read_do,
    ast.Return: _read_return,
    ast.Raise: _read_raise,
    ast.Pass: _read_pass,
}


# --- walking and mapping ---------------------------------------------------------------------------------------------


def walk(block: Iterable[Statement]) -> Iterator[Statement]:
    """Every statement, those inside others after what they stand in."""
    for s in block:
        yield s
        for inner in blocks(s):
            yield from walk(inner)


def blocks(s: Statement) -> tuple[Block, ...]:
    """The blocks of a statement."""
    if isinstance(s, If):
        return s.body, s.orelse
    return (s.body,) if isinstance(s, For | While | Function) else ()


def expressions(s: Statement) -> tuple[Expression, ...]:
    """The expressions of a statement's own line, those that are assigned to first."""
    if isinstance(s, Assign):
        return (*s.targets, s.value)
    if isinstance(s, For):
        return s.target, s.over
    if isinstance(s, While | If):
        return (s.test,)
    if isinstance(s, Function):
        return (*s.decorators, *(p.default for p in s.parameters if p.default is not None))
    value = s.value if isinstance(s, Do | Return | Raise) else None
    return () if value is None else (value,)


def names(e: Expression) -> set[str]:
    """Every name in an expression."""
    return {n.id for n in ast.walk(e) if isinstance(n, ast.Name)}


def assigned_names(s: Assign) -> list[str]:
    """The variables a statement assigns, not what it writes into."""
    parts = [p for t in s.targets for p in (t.elts if isinstance(t, ast.Tuple) else [t])]
    return [p.id for p in parts if isinstance(p, ast.Name)]


def reads(block: Iterable[Statement]) -> frozenset[str]:
    """Every name that is read."""
    found: set[str] = set()
    for s in walk(block):
        for e in expressions(s):
            found |= _loaded(e)
    return frozenset(found)


@lru_cache(maxsize=1 << 14)
def _loaded(e: Expression) -> frozenset[str]:
    return frozenset(n.id for n in ast.walk(e) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))


def mapped(block: Block, change: Callable[[Expression], Expression]) -> Block:
    """The same statements over changed expressions."""
    return tuple(_mapped(s, change) for s in block)


def _mapped(s: Statement, change: Callable[[Expression], Expression]) -> Statement:
    if isinstance(s, Assign):
        return replace(s, targets=tuple(map(change, s.targets)), value=change(s.value))
    if isinstance(s, For):
        return replace(s, target=change(s.target), over=change(s.over), body=mapped(s.body, change))
    if isinstance(s, While):
        return replace(s, test=change(s.test), body=mapped(s.body, change))
    if isinstance(s, If):
        return replace(s, test=change(s.test), body=mapped(s.body, change), orelse=mapped(s.orelse, change))
    if isinstance(s, Function):
        decorators = tuple(map(change, s.decorators))
        given = tuple(replace(p, default=p.default and change(p.default)) for p in s.parameters)
        return replace(s, body=mapped(s.body, change), decorators=decorators, parameters=given)
    if isinstance(s, Do | Return | Raise) and s.value is not None:
        return replace(s, value=change(s.value))
    return s


def rewritten(e: Expression, rule: Callable[[Expression], Expression | None]) -> Expression:
    """The expression with a rule applied from the top: where it gives something, that stands there as it is."""
    found = rule(e)
    if found is not None:
        return found
    changes = {name: new for name, value in ast.iter_fields(e) if (new := _field(value, rule)) is not value}
    if not changes:
        return e
    made = copy.copy(e)
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def _field(value: object, rule: Callable[[Expression], Expression | None]) -> object:
    if isinstance(value, ast.expr):
        return rewritten(value, rule)
    if isinstance(value, ast.keyword):
        inside = rewritten(value.value, rule)
        return value if inside is value.value else ast.keyword(value.arg, inside)
    if isinstance(value, list):
        made = [_field(x, rule) for x in value]
        return value if all(a is b for a, b in zip(made, value, strict=True)) else made
    return value


def renamed(block: Block, new_names: Mapping[str, str | Expression]) -> Block:
    """The statements with other names, or other expressions in the place of names."""
    return mapped(block, lambda e: with_names(e, new_names))


def with_names(e: Expression, new_names: Mapping[str, str | Expression]) -> Expression:
    """The expression with other names."""

    def rule(node: Expression) -> Expression | None:
        if not isinstance(node, ast.Name) or node.id not in new_names:
            return None
        new = new_names[node.id]
        return ast.Name(new, node.ctx) if isinstance(new, str) else new

    return rewritten(e, rule)


def changed(block: Block, change: Callable[[Statement], Iterable[Statement]]) -> Block:
    """The statements with others in the place of each, from the inside out."""
    found: list[Statement] = []
    for s in block:
        if isinstance(s, If):
            s = replace(s, body=changed(s.body, change), orelse=changed(s.orelse, change))
        elif isinstance(s, For | While | Function):
            s = replace(s, body=changed(s.body, change))
        found += change(s)
    return tuple(found)


def expanded(block: Block, place: Statement, by: Sequence[Statement]) -> Block:
    """The statements with others in the place of one that holds none."""
    return changed(block, lambda s: by if s is place else (s,))
