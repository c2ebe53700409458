"""Printed functions as LLVM: the few statements of generated CPU code, translated one by one.

Numba could compile the same text, and does in the tests that compare both bit by bit; but loading it and inferring
types takes it one to four seconds, most of it spent on what generated code does not use. Types and operations are those
Numba gives the text, with its order of evaluation: int64 for integers, float64 where an integer meets a float, and
reordering and contraction of float operations where the decorator allows them. What is not generated is not translated
(`Untranslated`).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir

from redalg.graph.functions import FUNCTIONS
from redalg.kernels.cpu.cells import OPERATIONS as CELLS
from redalg.kernels.cpu.loops import Body, Vectors
from redalg.kernels.cpu.math.table import OPERATIONS as MATH
from redalg.kernels.cpu.math.values import KINDS, Operation, type_of
from redalg.kernels.cpu.math.vectors import OPERATIONS as VECTORS
from redalg.parsing import parse

I64 = ir.IntType(64)
BIT, I32 = ir.IntType(1), ir.IntType(32)
STATUS = ir.IntType(32)  # of an entry: 0, or 1 where there was no memory
OPERATIONS = {**MATH, **CELLS, **VECTORS}
CASTS = {
    np.float32: "f32",
    np.float64: "f64",
    **{getattr(np, f"int{bits}"): f"i{bits}" for bits in (8, 16, 32, 64)},
    np.bool_: "b1",
}
FLOAT, INTEGER = frozenset({"f32", "f64"}), frozenset({"b1", "i8", "i16", "i32", "i64", "u8", "u16", "u32"})
EITHER = "either "
BUILTINS = {"min": min, "max": max, "abs": abs}
FLOATS = {ast.Add: "fadd", ast.Sub: "fsub", ast.Mult: "fmul", ast.Div: "fdiv"}
WORDS = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul"}
BITS = {ast.BitAnd: "and_", ast.BitOr: "or_"}
WHOLE = 64  # turns of a loop that whole vectors make up, several at a time, whatever its elements
LONG = 128  # turns from which on a sum is worth adding up twice: over whole vectors, and over what they leave
PART = 16  # turns that are masked together where nothing is carried from one to the next
SHORT = 24  # statements of a loop that is written out: five times, which takes LLVM as much longer
COLUMN = "m"  # what counts columns, of which there are often few
MASKED, TOGETHER = "llvm.loop.vectorize.predicate.enable", "llvm.loop.interleave.count"
WIDTH = "llvm.loop.vectorize.width"  # turns of a vector
NOT_UNROLLED = "llvm.loop.unroll.disable"
RELATIONS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}


class Untranslated(Exception):
    """A statement that generated code does not have."""


class TwoKinds(Exception):
    """A variable that is read has one kind or another, depending on the way that led there; it has to be of `kind`."""

    def __init__(self, function: str, name: str, kind: str) -> None:
        super().__init__(f"{name} of {function}: {kind}")
        self.where, self.kind = (function, name), kind


class Value(NamedTuple):
    """A value of a kind of `redalg.kernels.cpu.math.values`."""

    kind: str
    v: Any


class Function(NamedTuple):
    """A function of the text, and the fast-math flags its decorator allows."""

    tree: ast.FunctionDef
    flags: tuple[str, ...]


@dataclass
class Loop:
    """A loop whose body is being translated: kinds of the variables before it, and which of these its body has read."""

    before: Mapping[str, str]
    read: set[str] = field(default_factory=set)


@dataclass
class Scope:
    """One call of a function: of its variables by name the kind they have now and where that lies; where it ends, and
    there what it gives."""

    name: str
    flags: tuple[str, ...]
    after: Any = None
    results: list[Value] | None = None
    variables: dict[str, Value] = field(default_factory=dict)
    places: dict[tuple[str, str], Any] = field(default_factory=dict)
    loops: list[Loop] = field(default_factory=list)
    multiplies: bool = False  # inside a statement ``p = p * …`` of a loop, whose order does not matter


class Text:
    """What a text defines: its functions, constants and imported operations.

    >>> text = Text("from redalg.kernels.cpu.memory import load_float32\\nTILE = 2**10\\n@njit\\ndef f(x): pass")
    >>> text.constants["TILE"], [*text.functions], [*text.operations]
    (1024, ['f'], ['load_float32'])
    """

    def __init__(self, source: str) -> None:
        self.functions: dict[str, Function] = {}
        self.constants: dict[str, Any] = {"np": np}
        self.operations: dict[str, str] = {}
        for statement in parse(source).body:
            self._read(statement)

    def _read(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.FunctionDef):
            self.functions[statement.name] = Function(statement, _flags(statement))
        elif isinstance(statement, ast.Assign):
            exec(compile(ast.Module([statement], []), "<constants>", "exec"), self.constants)
        elif isinstance(statement, ast.ImportFrom):
            known = [one for one in statement.names if one.name in OPERATIONS]
            self.operations |= {one.asname or one.name: one.name for one in known}
        elif not isinstance(statement, ast.Import | ast.Expr):
            raise Untranslated(ast.unparse(statement))

    def known(self, e: ast.expr) -> Any:
        """What a type or a function of Python's is called."""
        if isinstance(e, ast.Attribute) and isinstance(e.value, ast.Name) and e.value.id == "np":
            return getattr(np, e.attr, None)
        return self.constants.get(e.id, BUILTINS.get(e.id)) if isinstance(e, ast.Name) else None

    def buffers(self, name: str) -> set[str]:
        """The buffers of a function that have one name each."""
        made = [s for s in ast.walk(self.functions[name].tree) if isinstance(s, ast.Assign)]
        others = {s.value.id for s in made if isinstance(s.value, ast.Name)}
        rooms = [ast.unparse(t) for s in made if self._allocates(s.value) for t in s.targets]
        others |= {ast.unparse(t) for s in made if not self._allocates(s.value) for t in s.targets}
        return {n for n in rooms if rooms.count(n) == 1} - others

    def _allocates(self, e: ast.expr) -> bool:
        word = self.operations.get(ast.unparse(e.func), "") if isinstance(e, ast.Call) else ""
        return word.startswith(("stack_", "heap_"))

    def straight(self, body: Sequence[ast.stmt]) -> bool:
        """Whether statements compute and store numbers and nothing else: no branch, no loop, no prefetch."""
        calls = [n.func for s in body for n in ast.walk(s) if isinstance(n, ast.Call)]
        return all(isinstance(s, ast.Assign | ast.AugAssign | ast.Expr) for s in body) and all(map(self._plain, calls))

    def functions_in(self, body: Sequence[ast.stmt]) -> bool:
        """Whether statements call functions such as exp."""
        calls = [n.func for s in body for n in ast.walk(s) if isinstance(n, ast.Call)]
        return any(self.dear(self.operations.get(ast.unparse(e), "")) for e in calls)

    def dear(self, word: str) -> bool:
        """Whether an operation is a function such as exp."""
        return word.rpartition("_")[0] in FUNCTIONS

    def _plain(self, e: ast.expr) -> bool:
        name = self.operations.get(ast.unparse(e))
        if name is not None:
            return bool(OPERATIONS[name].gives) or name.startswith("store_")
        known = self.known(e)
        return known in CASTS or known in (min, max, abs)


def symbol_of(name: str) -> str:
    """What the function of a name is called in object code: letters beyond ASCII by their numbers.

    >>> symbol_of("σ_rows")
    '.u03c3_rows'
    """
    return name.encode("ascii", "backslashreplace").decode().replace("\\", ".")


def translated(
    source: str, names: Sequence[str], kinds: Sequence[str], triple: str = "", layout: str = "", masks: bool = False
) -> str:
    """A module in LLVM's language with the functions of these names; they take values of these kinds and give a status.

    All values but the range, which comes last, lie in a table of words, whose address is the first argument. `masks`:
    loops of unknown length end in masked vectors, for processors that load and store parts of vectors of any elements.

    Raises: Untranslated.

    >>> text = '''
    ... from redalg.kernels.cpu.memory import pointer_float32, load_float32, store_float32
    ... @njit(fastmath={"contract"})
    ... def twice(x, low, high):
    ...     x = pointer_float32(x)
    ...     for i in range(low, high):
    ...         store_float32(x, i, load_float32(x, i) + load_float32(x, i))
    ... '''
    >>> "fadd contract float" in translated(text, ["twice"], ["i64"] * 3)
    True
    """
    text = Text(source)
    wanted: dict[tuple[str, str], str] = {}
    while True:
        module = ir.Module("redalg")
        module.triple, module.data_layout = triple, layout
        try:
            for name in names:
                made = ir.Function(module, ir.FunctionType(STATUS, [I64.as_pointer(), I64, I64]), symbol_of(name))
                Translation(text, made, wanted, masks).whole(text.functions[name], kinds)
            return str(module)
        except TwoKinds as found:
            if wanted.get(found.where) == found.kind:
                raise Untranslated(str(found)) from found
            wanted[found.where] = found.kind


def _flags(function: ast.FunctionDef) -> tuple[str, ...]:
    given = [
        k.value for d in function.decorator_list if isinstance(d, ast.Call) for k in d.keywords if k.arg == "fastmath"
    ]
    return tuple(sorted(flag for value in given for flag in ast.literal_eval(value) or ()))


class _OwnNode(ir.values.MDValue):
    """What is wished of one loop: a node that begins with itself, so that no other is the same."""

    def descr(self, buf: list[str]) -> None:
        buf.append(f"distinct !{{ {', '.join(node.get_reference() for node in (self, *self.operands))} }}\n")


class Translation:
    """One function of the module under way. What it calls in the same text is translated in place."""

    def __init__(self, text: Text, made: Any, wanted: Mapping[tuple[str, str], str], masks: bool) -> None:
        self.text, self.made, self.wanted, self.masks = text, made, wanted, masks
        self.top, begin = made.append_basic_block("entry"), made.append_basic_block("body")
        self.b = ir.IRBuilder(begin)
        self.allocas = ir.IRBuilder(self.top)  # variables are made at the top, as zeros
        self.begin = begin
        self.scope = Scope("", ())

    def whole(self, function: Function, kinds: Sequence[str]) -> None:
        table, *bounds = self.made.args
        places = [self.b.gep(table, [I64(at)]) for at in range(len(kinds) - len(bounds))]
        words = [
            self.b.load(place if kind == "i64" else self.b.bitcast(place, KINDS[kind].as_pointer()))
            for place, kind in zip(places, kinds, strict=False)
        ]
        given = [Value(kind, v) for kind, v in zip(kinds, (*words, *bounds), strict=True)]
        if self.inside(function, given):
            raise Untranslated(f"{function.tree.name} gives a value")
        self.b.ret(STATUS(0))
        self.allocas.branch(self.begin)

    def inside(self, function: Function, given: Sequence[Value]) -> list[Value]:
        """What a function gives for these arguments, its statements in place."""
        after = self.b.append_basic_block("returned")
        outer, self.scope = self.scope, Scope(function.tree.name, function.flags, after)
        for parameter, value in zip(function.tree.args.args, given, strict=True):
            self.assign(parameter.arg, value)
        self.block(function.tree.body)
        if not self.b.block.is_terminated:
            if self.scope.results:
                raise Untranslated(f"{function.tree.name} gives a value or none")
            self.b.branch(after)
        self.b.position_at_end(after)
        found, self.scope = self.scope.results or [], outer
        return [Value(place.kind, self.b.load(place.v)) for place in found]

    # --- variables ---------------------------------------------------------------------------------------------------

    def assign(self, name: str, value: Value) -> None:
        places = self.scope.places
        wanted = self.wanted.get((self.scope.name, name))
        value = value if wanted is None or value.kind.startswith("*") else self.cast(value, wanted)
        key = name, value.kind
        if key not in places:
            places[key] = self.allocas.alloca(value.v.type, name=name)
            self.allocas.store(ir.Constant(value.v.type, None), places[key])
        self.b.store(value.v, places[key])
        self.scope.variables[name] = Value(value.kind, places[key])

    def merged(self, ways: Sequence[Mapping[str, Value]]) -> None:
        """Variables after several ways, of which some may not assign what others do."""
        found: dict[str, Value] = {}
        for way in ways:
            for name, value in way.items():
                found[name] = _either(found.get(name, value), value)
        self.scope.variables = found

    def loop(self, body: Callable[[], None]) -> None:
        """The body of a loop, run any number of times: what it reads of an earlier turn has the kind it had before."""
        before = dict(self.scope.variables)
        loop = Loop({n: v.kind for n, v in before.items()})
        self.scope.loops.append(loop)
        body()
        self.scope.loops.pop()
        self.merged([before, self.scope.variables])
        for name in loop.read:
            self.one_kind(name, self.scope.variables[name])

    def one_kind(self, name: str, value: Value) -> None:
        """A variable that is read where it may have several kinds is translated anew as what all of them become."""
        if value.kind.startswith(EITHER):
            kinds = value.kind.removeprefix(EITHER).split(" ", 1)
            if "f32" in kinds:  # it would be wider wherever else the name occurs
                raise Untranslated(f"{name}, which is {' or '.join(kinds)}")
            raise TwoKinds(self.scope.name, name, common(*kinds))

    # --- statements --------------------------------------------------------------------------------------------------

    def block(self, statements: Sequence[ast.stmt]) -> None:
        for s in statements:
            visit = getattr(self, f"do_{type(s).__name__}", None)
            if visit is None or self.b.block.is_terminated:
                raise Untranslated(ast.unparse(s))
            visit(s)

    def do_Assign(self, s: ast.Assign) -> None:
        if len(s.targets) == 1 and isinstance(s.targets[0], ast.Tuple):
            for target, value in zip(s.targets[0].elts, self.several(s.value), strict=True):
                self.put(target, value)
            return
        self.scope.multiplies = bool(self.scope.loops) and _multiplies(s)
        value = self.value(s.value)
        self.scope.multiplies = False
        for target in s.targets:
            self.put(target, value)

    def do_AugAssign(self, s: ast.AugAssign) -> None:
        old = self.value(s.target)
        self.put(s.target, self.binary(type(s.op), old, self.value(s.value)))

    def put(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            self.assign(target.id, value)
        elif isinstance(target, ast.Subscript):
            place, kind = self.cell(target)
            value = self.cast(value, "b1") if kind == "t8" else value
            self.b.store(self.cast(value, kind).v, place)
        else:
            raise Untranslated(ast.unparse(target))

    def do_Expr(self, s: ast.Expr) -> None:
        if not isinstance(s.value, ast.Constant):
            self.several(s.value)

    def do_Pass(self, s: ast.Pass) -> None:
        pass

    def do_Raise(self, s: ast.Raise) -> None:
        if not (isinstance(s.exc, ast.Name) and s.exc.id == "MemoryError"):
            raise Untranslated(ast.unparse(s))
        self.b.ret(STATUS(1))

    def do_Return(self, s: ast.Return) -> None:
        given = self.several(s.value) if s.value is not None else []
        if self.scope.results is None:
            self.scope.results = [Value(v.kind, self.allocas.alloca(v.v.type)) for v in given]
        for place, value in zip(self.scope.results, given, strict=True):
            if place.kind != value.kind:
                raise Untranslated(f"a result of two kinds: {place.kind} and {value.kind}")
            self.b.store(value.v, place.v)
        self.b.branch(self.scope.after)

    def do_If(self, s: ast.If) -> None:
        then, other, after = (self.b.append_basic_block(word) for word in ("then", "else", "after"))
        self.branch(s.test, then, other)
        before, ways = dict(self.scope.variables), []
        for block, statements in ((then, s.body), (other, s.orelse)):
            self.b.position_at_end(block)
            self.scope.variables = dict(before)
            self.block(statements)
            if not self.b.block.is_terminated:
                self.b.branch(after)
                ways.append(self.scope.variables)
        self.merged(ways)
        self.b.position_at_end(after)

    def do_While(self, s: ast.While) -> None:
        body, after = self.b.append_basic_block("while"), self.b.append_basic_block("after")

        def turn() -> None:
            self.branch(s.test, body, after)
            self.b.position_at_end(body)
            self.block(s.body)
            self.branch(s.test, body, after)

        self.loop(turn)
        self.b.position_at_end(after)

    def do_For(self, s: ast.For) -> None:
        call = s.iter
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "range"):
            raise Untranslated(ast.unparse(s.iter))
        given = [self.cast(self.value(a), "i64") for a in call.args]
        start, stop, step = given if len(given) == 3 else (*([constant(0)] * (2 - len(given))), *given, constant(1))
        if not (isinstance(step.v, ir.Constant) and step.v.constant > 0):
            raise Untranslated(ast.unparse(s.iter))
        turns = self.turns(start, stop, step)
        if not self.masks or isinstance(stop.v, ir.Constant) or not self.text.straight(s.body):
            self.turned(s, start.v, step.v, turns)
        else:
            self.in_vectors(s, start.v, step.v, turns)

    def written_out(self, s: ast.For, step: Any, carries: bool) -> Body | None:
        """The body of a loop whose vectors are written out: one that adds up, in any order, or writes elements."""
        adds = carries and "reassoc" in self.scope.flags and _sums(s.body)
        if step.constant != 1 or _named(s) == COLUMN or len(s.body) > SHORT or carries and not adds:
            return None
        body = Body(self, s)
        return body if body.kind else None

    def in_vectors(self, s: ast.For, start: Any, step: Any, turns: Any) -> None:
        """A loop over whole vectors, and what they leave in masked ones."""
        b, carries = self.b, _carries(s.body)
        body = self.written_out(s, step, carries)
        if body is not None:
            Vectors(self, s, body, start, turns).run(lambda: self.turned(s, start, step, turns))
            return
        dear = not carries or self.text.functions_in(s.body)
        sums = carries and not dear and _sums(s.body)
        whole = b.and_(turns, I64(-WHOLE))
        if carries and not sums:
            whole = b.select(b.icmp_signed(">=", turns, I64(LONG)), whole, I64(0))
        self.turned(s, start, step, whole)
        begin, rest = b.add(start, b.mul(whole, step)), b.sub(turns, whole)
        if carries and not sums:
            self.turned(s, begin, step, rest, {MASKED: BIT(1)} if dear else {MASKED: BIT(1), TOGETHER: I32(4)})
        elif sums or not _written_once(s.body):
            self.guarded(s, begin, step, rest, WHOLE if sums else PART)
        else:  # masked stores of whole vectors to memory that no cache holds take AMD's processors four times as long
            parts = b.and_(rest, I64(-PART))
            self.turned(s, begin, step, parts, {WIDTH: I32(PART), TOGETHER: I32(1)})
            self.guarded(s, b.add(begin, b.mul(parts, step)), step, b.sub(rest, parts), PART)

    def turned(
        self, s: ast.For, start: Any, step: Any, turns: Any, wishes: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        """A loop that turns so often; `wishes`: what LLVM is told of it."""
        b = self.b
        left, at = self.unnamed(b, turns), self.unnamed(b, start)
        with self.repeated(lambda: b.icmp_signed(">", b.load(left), I64(0)), wishes):
            index = b.load(at)
            b.store(b.sub(b.load(left), I64(1), flags=["nsw"]), left)
            b.store(b.add(index, step), at)
            self.turn(s, index)

    def guarded(self, s: ast.For, start: Any, step: Any, turns: Any, lanes: int) -> None:
        """What is left of a loop, always so many turns at a time, of which those that there are not do nothing: masked
        vectors, whose masks are known before the rows are walked."""
        b, first = self.b, self.unnamed(self.b, I64(0))
        with self.repeated(lambda: b.icmp_signed("<", b.load(first), turns)):
            strip = b.load(first)
            b.store(b.add(strip, I64(lanes), flags=["nsw"]), first)
            left, lane = b.sub(turns, strip), self.unnamed(b, I64(0))
            wishes = {NOT_UNROLLED: None, TOGETHER: I32(lanes // PART)}
            with self.repeated(lambda: b.icmp_unsigned("<", b.load(lane), I64(lanes)), wishes):
                at = b.load(lane)
                b.store(b.add(at, I64(1), flags=["nuw", "nsw"]), lane)
                with b.if_then(b.icmp_signed("<", at, left)):
                    self.turn(s, b.add(start, b.mul(b.add(strip, at), step)))

    def turn(self, s: ast.For, index: Any) -> None:
        """One turn of a loop."""

        def body() -> None:
            self.put(s.target, Value("i64", index))
            self.block(s.body)

        self.loop(body)

    @contextmanager
    def repeated(self, more: Callable[[], Any], wishes: Mapping[str, Any] = MappingProxyType({})) -> Iterator[None]:
        """A loop for as long as there is more; what it repeats."""
        b, module = self.b, self.made.module
        head, body, after = (b.append_basic_block(word) for word in ("for", "body", "after"))
        b.branch(head)
        b.position_at_end(head)
        b.cbranch(more(), body, after)
        b.position_at_end(body)
        yield
        latch = b.branch(head)
        if wishes:
            words = [[ir.MetaDataString(module, w), *([] if v is None else [v])] for w, v in wishes.items()]
            nodes = [module.add_metadata(pair) for pair in words]
            latch.set_metadata("llvm.loop", _OwnNode(module, nodes, str(len(module.metadata))))
        b.position_at_end(after)

    def kind_of(self, name: str) -> str:
        """The kind of a constant of the text; "" where it is none of a number."""
        return CASTS.get(type(self.text.constants[name]), "")

    def valued(self, kind: str, v: Any) -> Value:
        return Value(kind, v)

    def unnamed(self, b: Any, value: Any) -> Any:
        """A variable without a name."""
        place = self.allocas.alloca(value.type)
        b.store(value, place)
        return place

    def turns(self, start: Value, stop: Value, step: Value) -> Any:
        """How often a loop turns."""
        b = self.b
        whole = b.sub(stop.v, start.v)
        some = b.icmp_signed(">", whole, I64(0))
        if step.v.constant != 1:
            more = b.icmp_signed(">", b.srem(whole, step.v), I64(0))
            whole = b.add(b.sdiv(whole, step.v), b.select(more, I64(1), I64(0)))
        return b.select(some, whole, I64(0))

    # --- conditions --------------------------------------------------------------------------------------------------

    def branch(self, test: ast.expr, then: Any, other: Any) -> None:
        """Go where a condition says, reading no more of it than has to be read."""
        if isinstance(test, ast.BoolOp):
            every = isinstance(test.op, ast.And)
            for e in test.values[:-1]:
                following = self.b.append_basic_block("and" if every else "or")
                self.branch(e, *((following, other) if every else (then, following)))
                self.b.position_at_end(following)
            self.branch(test.values[-1], then, other)
        elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self.branch(test.operand, other, then)
        else:
            self.b.cbranch(self.cast(self.value(test), "b1").v, then, other)

    def chosen(self, test: ast.expr, a: Callable[[], Value], c: Callable[[], Value]) -> Value:
        """One of two values, of which one is computed."""
        b = self.b
        after, found = b.append_basic_block("chosen"), list[tuple[Value, Any]]()
        blocks = b.append_basic_block("then"), b.append_basic_block("else")
        self.branch(test, *blocks)
        for begin, one in zip(blocks, (a, c), strict=True):
            b.position_at_end(begin)
            found.append((one(), b.block))
        kind = common(*(value.kind for value, _ in found))
        casts = []
        for value, block in found:
            b.position_at_end(block)
            casts.append((self.cast(value, kind).v, block))
            b.branch(after)
        b.position_at_end(after)
        phi = b.phi(casts[0][0].type)
        for v, block in casts:
            phi.add_incoming(v, block)
        return Value(kind, phi)

    # --- values ------------------------------------------------------------------------------------------------------

    def several(self, e: ast.expr) -> list[Value]:
        """The values of a tuple or of a call."""
        if isinstance(e, ast.Tuple):
            return [self.value(x) for x in e.elts]
        return self.call(e) if isinstance(e, ast.Call) else [self.value(e)]

    def value(self, e: ast.expr) -> Value:
        visit = getattr(self, f"value_{type(e).__name__}", None)
        if visit is None:
            raise Untranslated(ast.unparse(e))
        found: Value = visit(e)
        return found

    def value_Constant(self, e: ast.Constant) -> Value:
        return constant(e.value)

    def value_Name(self, e: ast.Name) -> Value:
        found = self.scope.variables.get(e.id)
        if found is None:
            if e.id not in self.text.constants:
                raise Untranslated(f"{e.id}, which nothing is assigned to")
            return constant(self.text.constants[e.id])
        self.one_kind(e.id, found)
        for loop in self.scope.loops:
            if loop.before.get(e.id) == found.kind:
                loop.read.add(e.id)
        return Value(found.kind, self.b.load(found.v))

    def value_Subscript(self, e: ast.Subscript) -> Value:
        place, kind = self.cell(e)
        found = Value(kind, self.b.load(place))
        return self.cast(found, "b1") if kind == "t8" else found

    def cell(self, e: ast.Subscript) -> tuple[Any, str]:
        """Where an element lies, and its kind."""
        pointer = self.value(e.value)
        if not pointer.kind.startswith("*"):
            raise Untranslated(ast.unparse(e))
        index = self.cast(self.value(e.slice), "i64")
        return self.b.gep(pointer.v, [index.v]), pointer.kind[1:]

    def value_IfExp(self, e: ast.IfExp) -> Value:
        return self.chosen(e.test, lambda: self.arm(e.body), lambda: self.arm(e.orelse))

    def arm(self, e: ast.expr) -> Value:
        """One of two values. An element of an array is not what was loaded for all that LLVM knows (`freeze`): where a
        loop writes such a choice back to the same place, x86 would store under a mask, which takes AMD's
        processors dozens of cycles."""
        found = self.value(e)
        if not isinstance(e, ast.Subscript):
            return found
        made = ir.instructions.Instruction(self.b.block, found.v.type, "freeze", [found.v])
        self.b._insert(made)
        return Value(found.kind, made)

    def value_BoolOp(self, e: ast.BoolOp) -> Value:
        return self.chosen(e, lambda: constant(True), lambda: constant(False))

    def value_Compare(self, e: ast.Compare) -> Value:
        if len(e.ops) != 1:
            raise Untranslated(ast.unparse(e))
        return self.compared(RELATIONS[type(e.ops[0])], self.value(e.left), self.value(e.comparators[0]))

    def compared(self, relation: str, a: Value, c: Value) -> Value:
        kind = common(a.kind, c.kind)
        x, y = self.cast(a, kind).v, self.cast(c, kind).v
        if kind in FLOAT:
            compare = self.b.fcmp_unordered if relation == "!=" else self.b.fcmp_ordered
            return Value("b1", compare(relation, x, y, flags=self.scope.flags))
        signed = kind.startswith("i")
        return Value("b1", (self.b.icmp_signed if signed else self.b.icmp_unsigned)(relation, x, y))

    def value_UnaryOp(self, e: ast.UnaryOp) -> Value:
        x = self.value(e.operand)
        if isinstance(e.op, ast.Not):
            return Value("b1", self.b.not_(self.cast(x, "b1").v))
        if not isinstance(e.op, ast.USub) or x.kind == "b1":
            raise Untranslated(ast.unparse(e))
        if isinstance(x.v, ir.Constant):
            return Value(x.kind, ir.Constant(x.v.type, -x.v.constant))
        if x.kind in FLOAT:
            return Value(x.kind, self.b.fsub(ir.Constant(x.v.type, -0.0), x.v, flags=self.scope.flags))
        return Value("i64", self.b.neg(self.cast(x, "i64").v))

    def value_BinOp(self, e: ast.BinOp) -> Value:
        return self.binary(type(e.op), self.value(e.left), self.value(e.right))

    def binary(self, op: type, a: Value, c: Value) -> Value:
        kind = common(a.kind, c.kind)
        if kind == "b1" and op in BITS:
            return Value(kind, getattr(self.b, BITS[op])(a.v, c.v))
        if kind not in FLOAT:
            kind = "f64" if op is ast.Div else "i64"
        x, y = self.cast(a, kind).v, self.cast(c, kind).v
        if kind in FLOAT and op in FLOATS:
            return Value(kind, getattr(self.b, FLOATS[op])(x, y, flags=self.flags_of(op)))
        if kind in FLOAT or op not in (*WORDS, *BITS, ast.FloorDiv, ast.Mod):
            raise Untranslated(f"{op.__name__} of {a.kind} and {c.kind}")
        if op in (ast.FloorDiv, ast.Mod):
            return Value(kind, self.divided(x, y)[op is ast.Mod])
        return Value(kind, getattr(self.b, WORDS.get(op) or BITS[op])(x, y))

    def flags_of(self, op: type) -> list[str]:
        """The fast-math flags of an operation: products and quotients keep their order, but what a loop multiplies up.

        LLVM makes (a/b)·a of what it may reorder (a·a)/b, which leaves the range where a/b does not.
        """
        ordered = op in (ast.Mult, ast.Div) and not self.scope.multiplies
        return [f for f in self.scope.flags if not (ordered and f == "reassoc")]

    def divided(self, x: Any, y: Any) -> tuple[Any, Any]:
        """The floor of a quotient and what remains; 0 and 0 of divisors for which processors have none."""
        b = self.b
        results = self.unnamed(b, I64(0)), self.unnamed(b, I64(0))
        lowest = b.and_(b.icmp_signed("==", x, I64(-(2**63))), b.icmp_signed("==", y, I64(-1)))
        with b.if_then(b.not_(b.or_(lowest, b.icmp_signed("==", y, I64(0)))), likely=True):
            quotient, rest = b.sdiv(x, y), b.srem(x, y)
            below = b.icmp_signed("<", b.xor(y, rest), I64(0))
            beyond = b.and_(b.icmp_signed("!=", rest, I64(0)), below)
            b.store(b.select(beyond, b.sub(quotient, I64(1)), quotient), results[0])
            b.store(b.select(beyond, b.add(rest, y), rest), results[1])
        return b.load(results[0]), b.load(results[1])

    # --- calls -------------------------------------------------------------------------------------------------------

    def value_Call(self, e: ast.Call) -> Value:
        found = self.call(e)
        if len(found) != 1:
            raise Untranslated(ast.unparse(e))
        return found[0]

    def call(self, e: ast.Call) -> list[Value]:
        spelled = ast.unparse(e.func)
        given = [self.value(a) for a in e.args]
        if spelled in self.text.operations:
            return self.operation(self.text.operations[spelled], given)
        if spelled in self.text.functions:
            return self.inside(self.text.functions[spelled], given)
        known = self.text.known(e.func)
        if known in CASTS and len(given) == 1:
            return [self.cast(given[0], CASTS[known])]
        if known in (min, max) and len(given) == 2:
            return [self.extremum("<" if known is min else ">", *given)]
        if known is abs and len(given) == 1:
            return [self.absolute(*given)]
        raise Untranslated(ast.unparse(e))

    def operation(self, name: str, given: Sequence[Value]) -> list[Value]:
        found = OPERATIONS[name]
        kinds = zip(found.takes, given, strict=True)
        values = [v.v if kind == "*" else self.cast(v, kind).v for kind, v in kinds]
        made = self.b.call(self.apart(name, found), values) if found.apart else found.emit(self.b, *values)
        return [Value(found.gives, made)] if found.gives else []

    def apart(self, name: str, found: Operation) -> Any:
        """The function of an operation."""
        known = self.made.module.globals.get(f"redalg.{name}")
        if known is not None:
            return known
        gives = type_of(found.gives) if found.gives else ir.VoidType()
        shape = ir.FunctionType(gives, [type_of(kind) for kind in found.takes])
        made = ir.Function(self.made.module, shape, f"redalg.{name}")
        made.linkage = "internal"
        made.attributes.add("noinline" if found.called else "alwaysinline")
        b = ir.IRBuilder(made.append_basic_block())
        given = found.emit(b, *made.args)
        b.ret(given) if found.gives else b.ret_void()
        return made

    def extremum(self, relation: str, a: Value, c: Value) -> Value:
        """Python's: the second number if the relation holds between it and the first."""
        kind = common(a.kind, c.kind)
        a, c = self.cast(a, kind), self.cast(c, kind)
        return Value(kind, self.b.select(self.compared(relation, c, a).v, c.v, a.v))

    def absolute(self, x: Value) -> Value:
        if x.kind in FLOAT:
            kind = x.v.type
            callee = self.made.module.declare_intrinsic("llvm.fabs", [kind])
            return Value(x.kind, self.b.call(callee, [x.v], fastmath=self.scope.flags))
        x = self.cast(x, "i64")
        return Value("i64", self.b.select(self.b.icmp_signed("<", x.v, I64(0)), self.b.neg(x.v), x.v))

    def cast(self, x: Value, kind: str) -> Value:
        if x.kind == kind:
            return x
        if x.kind.startswith("*") or kind.startswith("*"):
            raise Untranslated(f"{x.kind} as {kind}")
        if isinstance(x.v, ir.Constant) and kind in FLOAT:
            return constant((np.float32 if kind == "f32" else np.float64)(x.v.constant))
        if x.kind == "t8":
            return Value("b1", self.b.icmp_unsigned("!=", x.v, ir.Constant(x.v.type, 0)))
        if kind == "b1":
            return self.compared("!=", x, Value(x.kind, ir.Constant(x.v.type, 0)))
        return Value(kind, getattr(self.b, _instruction(x.kind, kind))(x.v, KINDS[kind]))


def _multiplies(s: ast.Assign) -> bool:
    """Whether a statement multiplies a variable up: ``p = p * x``."""
    left = s.value
    while isinstance(left, ast.BinOp) and isinstance(left.op, ast.Mult):
        left = left.left
    return left is not s.value and [ast.unparse(t) for t in s.targets] == [ast.unparse(left)]


def _carries(body: Sequence[ast.stmt]) -> bool:
    """Whether a turn of a loop reads what the one before has computed, as sums do."""
    seen: set[str] = set()
    for s in body:
        read = {n.id for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        made = {n.id for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        if isinstance(s, ast.AugAssign) or made & read - seen:
            return True
        seen |= made
    return False


def _written_once(body: Sequence[ast.stmt]) -> bool:
    """Whether a turn of a loop writes one element of an array of the call, and of no other."""
    stores = sum(isinstance(s, ast.Expr) for s in body)
    cells = [n for s in body for n in ast.walk(s) if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store)]
    return stores == 1 and not cells


def _named(s: ast.For) -> str:
    """What a loop counts by."""
    return s.target.id if isinstance(s.target, ast.Name) else ""


def _sums(body: Sequence[ast.stmt]) -> bool:
    """Whether sums are all that is carried from one turn of a loop to the next."""
    last = [s for s in body if _carries([s])]
    found = [s.value for s in last if isinstance(s, ast.Assign) and isinstance(s.value, ast.BinOp)]
    names = {ast.unparse(s.targets[0]) for s in last if isinstance(s, ast.Assign)}
    return (
        len(found) == len(last)
        and all(isinstance(v.op, ast.Add) and ast.unparse(v.left) in names for v in found)
        and not _carries([s for s in body if s not in last])
    )


def _either(a: Value, c: Value) -> Value:
    """A variable that is one or the other."""
    if c.kind.startswith(EITHER):
        return c
    return a if a == c or a.kind.startswith(EITHER) else Value(f"{EITHER}{a.kind} {c.kind}", None)


def _instruction(old: str, new: str) -> str:
    """The name of a cast between numbers that differ in kind."""
    signed, wide = old.startswith("i"), int(new[1:]) >= int(old[1:])
    if old in FLOAT and new in FLOAT:
        return "fpext" if wide else "fptrunc"
    if new in FLOAT:
        return "sitofp" if signed else "uitofp"
    if old in FLOAT:
        return "fptosi" if new.startswith("i") else "fptoui"
    if int(old[1:]) == int(new[1:]):
        return "bitcast"
    return ("sext" if signed else "zext") if wide else "trunc"


def common(a: str, c: str) -> str:
    """The kind in which two values meet."""
    if a == c:
        return a
    if a in FLOAT and c in FLOAT:
        return "f64"
    if {a, c} <= INTEGER:
        return "i64"
    if {a, c} <= FLOAT | {"i32", "i64"} or {a, c} == {"b1", "f64"}:
        return "f64"
    raise Untranslated(f"{a} with {c}")


def constant(x: Any) -> Value:
    if isinstance(x, bool | np.bool_):
        return Value("b1", KINDS["b1"](int(x)))
    kind = CASTS.get(type(x)) or {int: "i64", float: "f64"}.get(type(x))
    if kind is None:
        raise Untranslated(repr(x))
    return Value(kind, ir.Constant(KINDS[kind], float(x) if kind in FLOAT else int(x)))
