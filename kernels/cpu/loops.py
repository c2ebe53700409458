"""Loops over elements as vectors written out: `redalg.kernels.cpu.translate` asks for them.

LLVM makes vectors of such loops that begin wherever a row does, asks at every row whether it may, and adds up lanes
twice: those of whole vectors, and those of what they leave. Here vectors begin at lines of the caches, elements that
are added up are asked for a little ahead, what is left of a row is a masked vector, and lanes are added up once.

What is added to what follows from the numbers of elements, not from where a row lies in memory: where vectors begin
before the row does, partial sums lie in other lanes, from which they are turned back in the end.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from llvmlite import ir

from redalg.kernels.cpu.math.formats import HALVES
from redalg.kernels.cpu.math.table import OPERATIONS, VECTORISED
from redalg.kernels.cpu.math.values import KINDS, constant, intrinsic
from redalg.kernels.cpu.math.vectors import widened

if TYPE_CHECKING:
    from redalg.kernels.cpu.translate import Translation

LINE = 64  # bytes of a cache line, and of a vector of numbers
GROUP = 4  # vectors that are added to sums of their own
ALIGNED, WRITTEN = 256, 64  # elements of a row from which on loads, or stores, begin at lines
AHEAD = 8192  # bytes
FORMATS = {"float32": "f32", "float64": "f64", "bfloat16": "f32"} | ({"float16": "f32"} if HALVES else {})
ARITHMETIC = {ast.Add: "fadd", ast.Sub: "fsub", ast.Mult: "fmul", ast.Div: "fdiv"}
RELATIONS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
WHOLE_NUMBERS = (ast.Add, ast.Sub, ast.Mult)
I1, I8, I32, I64 = (ir.IntType(n) for n in (1, 8, 32, 64))


class Cell(NamedTuple):
    """An element of an array: of which, at which place, and its format ("": numbers of a buffer)."""

    array: ast.expr
    place: ast.expr
    format: str


class Body:
    """What the statements of a loop's body are: places, that is numbers of elements, and values of elements, of which
    some are added up and some are stored.

    `kind`: of all values; "" where the body has anything else.
    """

    def __init__(self, t: Translation, s: ast.For) -> None:
        assert isinstance(s.target, ast.Name)
        self.t = t
        self.steps: dict[str, int] = {s.target.id: 1}  # of integers, from one turn to the next
        self.places: list[ast.Assign] = []  # that compute them
        self.before: set[str] = set()  # names that are read as the loop finds them, or an earlier turn has left them
        self.values: dict[str, str] = {}  # names, and cells that have been written, by their kinds
        self.rest: list[ast.Assign | ast.Expr] = []
        self.cells: dict[str, Cell] = {}  # that are read and written, by how they are spelled
        self.loaded: list[str] = []  # cells that are read before they are written
        self.sums: list[str] = []
        self.stores: list[str] = []
        self.dear = False
        kinds = {self._statement(x) for x in s.body} - {"place"}
        plain = self.cells and (self.sums or self.stores) and not self.before & {*self.values, *self.sums, *self.steps}
        plain = plain and not self._may_overlap()
        self.kind = kinds.pop() if len(kinds) == 1 and plain else ""

    def _statement(self, s: ast.stmt) -> str:
        """The kind of what a statement computes, "place" of an integer; "" of what is neither."""
        if isinstance(s, ast.Expr) and isinstance(s.value, ast.Call):
            return self._store(s, s.value)
        if not (isinstance(s, ast.Assign) and len(s.targets) == 1):
            return ""
        target = s.targets[0]
        if isinstance(target, ast.Subscript):
            self.rest.append(s)
            return self._written(Cell(target.value, target.slice, ""), target, self.number(s.value))
        return self._assigned(s, target.id) if isinstance(target, ast.Name) else ""

    def _assigned(self, s: ast.Assign, name: str) -> str:
        step = self.step(s.value)
        if step is not None:
            self._looks(s.value)
            self.steps[name] = step
            self.places.append(s)
            return "place"
        self.rest.append(s)
        if name not in {n.id for n in ast.walk(s.value) if isinstance(n, ast.Name)}:
            found = self.values[name] = self.number(s.value)
            return found
        self.sums.append(name)
        added = _added(s.value, name)
        return self._outer(name) if added is not None and self._outer(name) == self.number(added) else ""

    def _store(self, s: ast.Expr, call: ast.Call) -> str:
        word = self.t.text.operations.get(ast.unparse(call.func), "")
        of = word.rpartition("_")[2]
        if not word.startswith("store_") or of not in FORMATS:
            return ""
        self.rest.append(s)
        kind = self.number(call.args[2])
        return self._written(Cell(call.args[0], call.args[1], of), call, kind if kind == FORMATS[of] else "")

    def _written(self, cell: Cell, e: ast.expr, kind: str) -> str:
        """Cells are written at every element of an array of the call, or of a buffer; steps of the former may be
        known by the call alone."""
        known = self.step(cell.place)
        if not isinstance(cell.array, ast.Name) or known not in (None, 1) or not self._holds(cell, kind):
            return ""
        spelled = ast.unparse(e) if not cell.format else f"store {ast.unparse(cell.array)} {len(self.stores)}"
        if known is None and (not cell.format or self.stores):
            return ""
        self._looks(cell.place)
        self.cells[spelled], self.values[spelled] = cell, kind
        self.stores.append(spelled)
        return kind

    def _holds(self, cell: Cell, kind: str) -> bool:
        """Whether an array has numbers of a kind."""
        array = self._outer(ast.unparse(cell.array))
        return bool(cell.format) and array.startswith("*") or array == f"*{kind}"

    def _may_overlap(self) -> bool:
        """Whether a buffer is read by one name and written by another, which may be names of the same."""
        buffers = {w for w, c in self.cells.items() if not c.format}
        arrays = {ast.unparse(self.cells[w].array) for w in buffers}
        own = self.t.text.buffers(self.t.scope.name)
        return bool(buffers & {*self.stores}) and bool(buffers - {*self.stores}) and not arrays <= own

    def step(self, e: ast.expr) -> int | None:
        """By how much an integer grows from one turn to the next, where that is known."""
        if isinstance(e, ast.Constant):
            return 0 if type(e.value) is int else None
        if isinstance(e, ast.Name):
            if e.id in self.steps:
                return self.steps[e.id]
            return 0 if self._outer(e.id).startswith("i") else None
        if not isinstance(e, ast.BinOp) or not isinstance(e.op, WHOLE_NUMBERS):
            return None
        a, c = self.step(e.left), self.step(e.right)
        if a is None or c is None or isinstance(e.op, ast.Mult):
            return 0 if a == c == 0 else None
        return a - c if isinstance(e.op, ast.Sub) else a + c

    def _outer(self, name: str) -> str:
        """The kind of what a loop leaves as it is, and of sums."""
        value = self.t.scope.variables.get(name)
        if value is None and name in self.t.text.constants:
            return self.t.kind_of(name)
        return value.kind if value is not None and name not in self.values else ""

    def _found(self, name: str) -> str:
        """The same, of what is read."""
        self.before.add(name)
        return self._outer(name)

    def _looks(self, e: ast.expr) -> None:
        """What an integer is computed from."""
        names = {n.id for n in ast.walk(e) if isinstance(n, ast.Name)}
        self.before |= names - {*self.steps, *self.values}

    # --- values ------------------------------------------------------------------------------------------------------

    def number(self, e: ast.expr) -> str:
        """The kind of a value; "" of anything else."""
        if isinstance(e, ast.Name):
            return "" if e.id in self.sums else self.values.get(e.id) or self._found(e.id)
        if isinstance(e, ast.BinOp):
            a, c = self.number(e.left), self.number(e.right)
            return a if a == c and type(e.op) in ARITHMETIC else ""
        if isinstance(e, ast.UnaryOp):
            return self.number(e.operand) if isinstance(e.op, ast.USub) else ""
        if isinstance(e, ast.Subscript):
            return self._read(e, Cell(e.value, e.slice, ""), self._outer(ast.unparse(e.value))[1:])
        if isinstance(e, ast.IfExp):
            found = self.number(e.body) if self.condition(e.test) else ""
            return found if found == self.number(e.orelse) else ""
        return self._called(e) if isinstance(e, ast.Call) else ""

    def condition(self, e: ast.expr) -> bool:
        """Whether an expression compares values."""
        if isinstance(e, ast.Compare):
            a, c = self.number(e.left), self.number(e.comparators[0])
            return len(e.ops) == 1 and type(e.ops[0]) in RELATIONS and a == c in ("f32", "f64")
        if isinstance(e, ast.BinOp) and type(e.op) in (ast.BitAnd, ast.BitOr):
            return self.condition(e.left) and self.condition(e.right)
        return isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.Not) and self.condition(e.operand)

    def _read(self, e: ast.expr, cell: Cell, kind: str) -> str:
        spelled = ast.unparse(e)
        if spelled in self.values:
            return self.values[spelled]
        if kind not in ("f32", "f64") or self.step(cell.place) != 1 or not isinstance(cell.array, ast.Name):
            return ""
        if any(ast.unparse(self.cells[w].array) == cell.array.id for w in self.stores):
            return ""
        self._looks(cell.place)
        self.cells[spelled] = cell
        self.loaded.append(spelled)
        return kind

    def _called(self, e: ast.Call) -> str:
        word = self.t.text.operations.get(ast.unparse(e.func), "")
        begin, _, end = word.rpartition("_")
        if begin == "load" and end in FORMATS:
            return self._read(e, Cell(e.args[0], e.args[1], end), FORMATS[end])
        if word in VECTORISED:
            found = OPERATIONS[word]
            self.dear |= self.t.text.dear(word)
            fits = all(self.number(a) == kind for a, kind in zip(e.args, found.takes, strict=True))
            return found.gives if fits and found.gives in ("f32", "f64") else ""
        if self.t.text.known(e.func) is abs:
            return self.number(e.args[0])
        plain = len(e.args) == 1 and isinstance(e.args[0], ast.Constant)
        return self.t.value(e).kind if plain and not word else ""


def _added(e: ast.expr, name: str) -> ast.expr | None:
    """What ``name = name + …`` adds."""
    plain = isinstance(e, ast.BinOp) and isinstance(e.op, ast.Add) and ast.unparse(e.left) == name
    return e.right if plain and isinstance(e, ast.BinOp) else None


class Vectors:
    """One loop over `turns` elements from `start` on; `otherwise`: the same loop, element by element."""

    def __init__(self, t: Translation, s: ast.For, body: Body, start: Any, turns: Any) -> None:
        assert isinstance(s.target, ast.Name)
        self.t, self.b, self.body, self.turns = t, t.b, body, turns
        self.lanes = LINE // (4 if body.kind == "f32" else 8)
        before, places = dict(t.scope.variables), []
        for n in range(2):
            t.assign(s.target.id, t.valued("i64", t.b.add(start, I64(n))))
            t.block(body.places)
            places.append({w: t.b.gep(t.value(c.array).v, [t.value(c.place).v]) for w, c in body.cells.items()})
        t.scope.variables = before
        self.firsts, self.seconds = places
        widths = [self.lanes * GROUP, self.lanes] if body.dear else [self.lanes] * GROUP
        zeros = [constant(ir.VectorType(KINDS[body.kind], n), 0.0) for n in widths]
        self.sums = {name: [t.unnamed(t.b, zero) for zero in zeros] for name in body.sums}

    @property
    def vector(self) -> Any:
        return ir.VectorType(KINDS[self.body.kind], self.lanes)

    def run(self, otherwise: Callable[[], None]) -> None:
        unknown = [w for w in self.body.stores if self.body.step(self.body.cells[w].place) is None]
        if not unknown:
            return self._walk()
        (cell,) = unknown
        bytes_apart = self.b.sub(*(self.b.ptrtoint(x[cell], I64) for x in (self.seconds, self.firsts)))
        dense = self.b.icmp_signed("==", bytes_apart, I64(self._size(cell)))
        with self.b.if_else(dense, likely=True) as (vectors, apart):
            with vectors:
                self._walk()
            with apart:
                otherwise()

    def _size(self, cell: str) -> int:
        """Bytes of an element."""
        kind = self.firsts[cell].type.pointee
        return {ir.FloatType(): 4, ir.DoubleType(): 8}.get(kind) or kind.width // 8

    # --- walks -------------------------------------------------------------------------------------------------------

    def _walk(self) -> None:
        """What begins before the row, groups of vectors, and what is left over."""
        b, group = self.b, I64(self.lanes * GROUP)
        skipped = self._skipped()
        place, apart, end = self.t.unnamed(b, I64(0)), None, self.turns
        if skipped is not None:
            end, apart = b.add(end, skipped), b.icmp_signed("!=", skipped, I64(0))
            self.firsts = {w: b.gep(first, [b.neg(skipped)]) for w, first in self.firsts.items()}
            with b.if_then(apart):
                self._begin(skipped, place)
        with self.t.repeated(lambda: b.icmp_signed("<=", b.add(b.load(place), group), end)):
            self._whole_group(b.load(place))
            b.store(b.add(b.load(place), group), place)
        self._rest(place, end)
        if self.sums and apart is not None:
            with b.if_then(apart):
                self._turn_back(skipped)
        for name, parts in self.sums.items():
            self._add_up(name, [b.load(p) for p in parts])

    def _skipped(self) -> Any:
        """Elements by which vectors begin before the row, so that they begin at lines; None where that is not worth it:
        where functions take longer than loads."""
        b, cells = self.b, self.body.cells
        of = next((w for w in self.body.stores or cells if cells[w].format or not self.body.stores), None)
        if of is None or self.body.dear and self.sums:
            return None
        long = b.icmp_signed(">=", self.turns, I64(ALIGNED if self.sums else WRITTEN))
        place = b.udiv(b.ptrtoint(self.firsts[of], I64), I64(self._size(of)))
        return b.select(long, b.and_(place, I64(self.lanes - 1)), I64(0))

    def _begin(self, skipped: Any, place: Any) -> None:
        """The first vector, which begins before the row; and its group, where there are sums."""
        mask = self.b.icmp_unsigned(">=", self._numbers(0), self._word_of(skipped))
        if self.sums:
            self._group(I64(0), mask)
        else:
            self._vector(I64(0), 0, mask)
        self.b.store(I64(self.lanes * (GROUP if self.sums else 1)), place)

    def _whole_group(self, at: Any) -> None:
        """Functions of all elements of a group are computed step by step together: LLVM has them one after the other
        where vectors do, for whose results the processor would wait."""
        if not self.body.dear:
            return self._group(at)
        self.lanes *= GROUP
        self._vector(at, 0)
        self.lanes //= GROUP

    def _rest(self, place: Any, end: Any) -> None:
        """What is left of a group: an element is added to the same sum wherever vectors begin."""
        b, lanes = self.b, I64(self.lanes)
        if self.body.dear or not self.sums:
            with self.t.repeated(lambda: b.icmp_signed("<=", b.add(b.load(place), lanes), end)):
                self._vector(b.load(place), 1)
                b.store(b.add(b.load(place), lanes), place)
        at = b.load(place)
        left = b.sub(end, at)
        with b.if_then(b.icmp_signed(">", left, I64(0))):
            word = self._word_of(left)
            if self.body.dear or not self.sums:
                return self._vector(at, 1, b.icmp_unsigned("<", self._numbers(0), word))
            masks = [b.icmp_unsigned("<", self._numbers(n), word) for n in range(GROUP)]
            for n, mask in enumerate(masks):
                self._vector(b.add(at, I64(n * self.lanes)), n, mask)

    def _numbers(self, n: int) -> Any:
        """Those that the lanes of a vector have in its group."""
        return ir.Constant(ir.VectorType(I32, self.lanes), [n * self.lanes + k for k in range(self.lanes)])

    def _word_of(self, number: Any) -> Any:
        """A number of elements of a group, for every lane."""
        return self._splat(self.b.trunc(number, I32), ir.VectorType(I32, self.lanes))

    def _group(self, at: Any, mask: Any = None) -> None:
        """A group of vectors from an element on, of which the first one may be masked."""
        if self.sums and not self.body.dear:
            self._prefetch(at)
        for n in range(GROUP):
            self._vector(self.b.add(at, I64(n * self.lanes)), n, None if n else mask)

    def _prefetch(self, at: Any) -> None:
        b, pointer = self.b, I8.as_pointer()
        name = "llvm.prefetch.p0"
        shape = ir.FunctionType(ir.VoidType(), [pointer, I32, I32, I32])
        callee = b.module.globals.get(name) or ir.Function(b.module, shape, name)
        for cell in self.body.cells:
            size = self._size(cell)
            for line in range(0, self.lanes * GROUP * size, LINE):
                place = b.gep(self.firsts[cell], [b.add(at, I64((AHEAD + line) // size))])
                b.call(callee, [b.bitcast(place, pointer), I32(0), I32(3), I32(1)])

    # --- vectors -----------------------------------------------------------------------------------------------------

    def _vector(self, at: Any, number: int, mask: Any = None) -> None:
        """The elements from one on; `number`: of the sums that they are added to."""
        known = {w: self._load(w, at, mask) for w in self.body.loaded}
        stored = 0
        for s in self.body.rest:
            if isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name):
                name = s.targets[0].id
                if name in self.sums:
                    self._sum(name, number, s.value, known, mask)
                else:
                    known[name] = self._value(s.value, known)
                continue
            cell, stored = self.body.stores[stored], stored + 1
            e = s.value.args[2] if isinstance(s, ast.Expr) and isinstance(s.value, ast.Call) else s.value
            known[cell] = self._value(e, known)
            self._store(cell, at, known[cell], mask)

    def _sum(self, name: str, number: int, e: ast.expr, known: dict[str, Any], mask: Any) -> None:
        added = _added(e, name)
        assert added is not None
        value, place = self._value(added, known), self.sums[name][number]
        if mask is not None:
            value = self.b.select(mask, value, constant(self.vector, 0.0))
        self.b.store(self.b.fadd(self.b.load(place), value, flags=self.t.scope.flags), place)

    def _place(self, cell: str, at: Any) -> Any:
        cells = ir.VectorType(self.firsts[cell].type.pointee, self.lanes)
        return self.b.bitcast(self.b.gep(self.firsts[cell], [at]), cells.as_pointer())

    def _load(self, cell: str, at: Any, mask: Any) -> Any:
        b, place = self.b, self._place(cell, at)
        cells, size = place.type.pointee, self._size(cell)
        if mask is None:
            found = b.load(place, align=size)
        else:
            callee = self._masked("load", cells, cells, [place.type, I32, mask.type, cells])
            found = b.call(callee, [place, I32(size), mask, ir.Constant(cells, None)])
        return widened(b, self.body.cells[cell].format, found, self.lanes)

    def _store(self, cell: str, at: Any, value: Any, mask: Any) -> None:
        b, place = self.b, self._place(cell, at)
        cells, size, narrow = place.type.pointee, self._size(cell), f"narrow_{self.body.cells[cell].format}_f32"
        value = OPERATIONS[narrow].emit(b, value) if narrow in OPERATIONS and size < 4 else value
        if mask is None:
            b.store(value, place, align=size)
            return
        callee = self._masked("store", cells, ir.VoidType(), [cells, place.type, I32, mask.type])
        b.call(callee, [value, place, I32(size), mask])

    def _masked(self, word: str, cells: Any, gives: Any, takes: Sequence[Any]) -> Any:
        """LLVM's masked load or store of cells."""
        number = {ir.FloatType(): "f32", ir.DoubleType(): "f64"}.get(cells.element) or f"i{cells.element.width}"
        name = f"llvm.masked.{word}.v{self.lanes}{number}.p0"
        module = self.b.module
        return module.globals.get(name) or ir.Function(module, ir.FunctionType(gives, takes), name)

    def _value(self, e: ast.expr, known: dict[str, Any]) -> Any:
        """A value of as many elements."""
        b, t, spelled = self.b, self.t, ast.unparse(e)
        if spelled in known:
            return known[spelled]
        if isinstance(e, ast.BinOp):
            a, c = self._value(e.left, known), self._value(e.right, known)
            return getattr(b, ARITHMETIC[type(e.op)])(a, c, flags=t.flags_of(type(e.op)))
        if isinstance(e, ast.UnaryOp):
            return b.fsub(constant(self.vector, -0.0), self._value(e.operand, known), flags=t.scope.flags)
        if isinstance(e, ast.Call):
            word = t.text.operations.get(ast.unparse(e.func), "")
            if word in VECTORISED:
                return OPERATIONS[word].emit(b, *(self._value(a, known) for a in e.args))
            if t.text.known(e.func) is abs:
                x = self._value(e.args[0], known)
                callee = intrinsic(b, "fabs", self.vector, [self.vector], [self.vector])
                return b.call(callee, [x], fastmath=t.scope.flags)
        if isinstance(e, ast.IfExp):
            return b.select(self._condition(e.test, known), self._value(e.body, known), self._value(e.orelse, known))
        return self._splat(t.value(e).v, self.vector)

    def _condition(self, e: ast.expr, known: dict[str, Any]) -> Any:
        b, flags = self.b, self.t.scope.flags
        if isinstance(e, ast.Compare):
            relation = RELATIONS[type(e.ops[0])]
            compare = b.fcmp_unordered if relation == "!=" else b.fcmp_ordered
            return compare(relation, self._value(e.left, known), self._value(e.comparators[0], known), flags=flags)
        if isinstance(e, ast.BinOp):
            both = b.and_ if isinstance(e.op, ast.BitAnd) else b.or_
            return both(self._condition(e.left, known), self._condition(e.right, known))
        assert isinstance(e, ast.UnaryOp)
        return b.not_(self._condition(e.operand, known))

    def _splat(self, value: Any, kind: Any) -> Any:
        one = self.b.insert_element(ir.Constant(kind, None), value, I32(0))
        return self.b.shuffle_vector(one, one, ir.Constant(ir.VectorType(I32, kind.count), [0] * kind.count))

    # --- sums --------------------------------------------------------------------------------------------------------

    def _turn_back(self, skipped: Any) -> None:
        """Partial sums to the lanes they have where vectors begin with the row."""
        b, wide = self.b, self.body.kind == "f64"
        word = I64 if wide else I32
        lanes = ir.VectorType(word, self.lanes)
        name = f"llvm.x86.avx512.vpermi2var.p{'d' if wide else 's'}.512"
        shape = ir.FunctionType(self.vector, [self.vector, lanes, self.vector])
        callee = b.module.globals.get(name) or ir.Function(b.module, shape, name)
        by = self._splat(skipped if wide else b.trunc(skipped, I32), lanes)
        at = b.add(ir.Constant(lanes, [*range(self.lanes)]), by)
        for places in self.sums.values():
            parts = [b.load(p) for p in places]
            for n, place in enumerate(places):
                b.store(b.call(callee, [parts[n], at, parts[(n + 1) % GROUP]]), place)

    def _add_up(self, name: str, parts: Sequence[Any]) -> None:
        """The sum of all lanes, added to what the variable holds."""
        b, flags = self.b, self.t.scope.flags
        if self.body.dear:
            wide, rest = parts
            numbers = [ir.Constant(ir.VectorType(I32, self.lanes), [*range(n, n + self.lanes)]) for n in self._firsts()]
            parts = [b.shuffle_vector(wide, wide, number) for number in numbers]
            parts[0] = b.fadd(parts[0], rest, flags=flags)
        while len(parts) > 1:
            half = len(parts) // 2
            parts = [b.fadd(parts[n], parts[half + n], flags=flags) for n in range(half)]
        kind = KINDS[self.body.kind]
        callee = intrinsic(b, "vector.reduce.fadd", kind, [kind, self.vector], [self.vector])
        found = b.call(callee, [ir.Constant(kind, -0.0), parts[0]], fastmath=("reassoc",))
        old = self.t.scope.variables[name]
        self.t.assign(name, self.t.valued(old.kind, b.fadd(b.load(old.v), found, flags=flags)))

    def _firsts(self) -> range:
        """The first lane of each vector of a group."""
        return range(0, self.lanes * GROUP, self.lanes)
