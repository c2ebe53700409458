"""Invariants of the IR: what every `Program` keeps, tested after lowering and after every rewriting of one.

A program that breaks one is a defect of this package and never of a spec, so that `check` raises an error that says so,
before anything is printed. The invariants, by the word each error begins with::

    axes      an axis plays one part: rows, stream, columns, a list's entries, or inner to a contraction; every axis has
    a
              length; what is held per row does not vary along the stream; a value is read along the axes it has
    dtypes    of operands, results, parts, casts and the reals are known ones; an identity is a number of its kind
    names     are defined before they are read, assigned once in a list of steps, and stay apart when they are printed
    results   are written once each, at every index of their axes and at no other
    merges    lift leaves every part of a state, combine and update its new value, by the fold that made the part
    passes    read what earlier ones export; one that may not reorder elements says so; the identity is one
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import isfinite

from redalg.graph.node import Node
from redalg.graph.operators import Average, Custom, Position, TopK
from redalg.kernels.ir.check_values import Held, Values
from redalg.kernels.ir.program import STORAGE, First, Fold, Join, KeyTop, Let, Loop, Part, Pass, Program, Result, Step

NUMBERS = frozenset({"float64", "int64", "bool"})  # dtypes of numbers passed by value
LEAST, MOST = -(2**63), 2**63 - 1
IDENTITY: dict[str, tuple[tuple[float | int | bool, ...], ...]] = {  # of every value of a fold, as any kind it may have
    "sum": ((0.0, 0),),
    "prod": ((1.0, 1),),
    "max": ((float("-inf"), LEAST),),
    "min": ((float("inf"), MOST),),
    "any": ((False,),),
    "all": ((True,),),
    "keymax": ((0,),),
    "keytop": ((0,),),
    "argmax": ((float("-inf"), LEAST), (MOST,)),
    "argmin": ((float("inf"), MOST), (MOST,)),
    "topk": ((float("-inf"), LEAST), (-1,)),
}
TYPES = {"f": float, "i": int, "b": bool, "k": int}
ONE = Held()
Known = dict[str, Held]


def check(program: Program) -> Program:
    """The program itself, if it keeps every invariant of the IR.

    Raises: RedalgError that names the invariant; it is a defect of redalg, whatever the spec.

    >>> import redalg as ra
    >>> from dataclasses import replace
    >>> from redalg.kernels.programs import lower
    >>> program = lower(ra.derive_incremental(ra.catalog["logsumexp"]), {"x": "float32"})
    >>> check(program) is program
    True
    >>> check(replace(program, results=program.results * 2))
    Traceback (most recent call last):
    redalg.errors.RedalgError: refused: results: y twice
    where:   the kernel program of y, its results
    why:     a result is written by one place of a kernel
    try:     this is a defect of redalg, not of the spec: please report the spec
    """
    _Checker(program).run()
    return program


class _Checker(Values):
    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.exports: Known = {}

    def once(self, what: str, names: Iterable[str], why: str) -> None:
        names = list(names)
        for name in names if len(set(names)) < len(names) else ():
            if names.count(name) > 1:
                self.fail(f"{what}: {name} twice", why)

    def run(self) -> None:
        self.axes()
        self.arrays()
        last: Known = {}
        for number, p in enumerate(self.program.passes, 1):
            last = _Pass(self, p, number).run()
        self.results(last)

    # --- the whole program -------------------------------------------------------------------------------------------

    def axes(self) -> None:
        p = self.program
        self.once("axes", (*p.rows, *p.stream, *p.columns, *p.lengths), "an axis plays one part")
        missing = sorted(self.roles - self.sized)
        if missing:
            self.fail(f"axes: {missing[0]} without a length", "no operand has the axis, and it is not a list's")

    def arrays(self) -> None:
        p, self.place = self.program, "its arrays"
        if p.real not in ("float32", "float64"):
            self.fail(f"dtypes: reals in {p.real}", "inexact values are computed in float32 or float64")
        self.once("names", (o.name for o in p.operands), "an operand is one argument")
        for name, dtype in [(o.name, o.dtype) for o in p.operands] + [(r.name, r.dtype) for r in p.results]:
            if dtype not in STORAGE:
                self.fail(f"dtypes: {name} of {dtype}", f"kernels know {', '.join(STORAGE)}")
        for o in p.operands:
            if o.number and (o.axes or o.dtype not in NUMBERS):
                self.fail(f"dtypes: the number {o.name} of {o.dtype} along {o.axes}", "it is passed by value")

    def results(self, last: Known) -> None:
        p, self.place = self.program, "its results"
        several = {r.name for r in p.results if p.places.keys() & {*r.axes}}
        names = (f"{r.name} at {r.axes}" if r.name in several else r.name for r in p.results)
        self.once("results", names, "a result is written by one place of a kernel")
        for r in p.results:
            self.result(r, last)
        parts = {part.name for q in p.passes for part in q.parts}
        if not p.attained <= parts:
            self.fail(f"names: {min(p.attained - parts)} is attained", "it is no part of the state")

    def result(self, r: Result, last: Known) -> None:
        axes = set(r.axes)
        if not axes <= self.roles or len(axes) < len(r.axes) and self.program.places.keys().isdisjoint(axes):
            self.fail(f"results: {r.name} along {r.axes}", f"a kernel walks {sorted(self.roles)}")
        if not r.keeps and axes & self.stream:
            self.fail(f"results: {r.name} along {r.axes}, once per row", "the row has no position along the stream")
        if r.masked is not None and r.empty is None:
            self.fail(f"results: {r.name} in masked rows", "no value is written there")
        for node in (r.node,) if r.masked is None else (r.node, r.masked):
            self.read(node, last, varies=r.keeps)
            entries = {a for a, place in self.program.places.items() if not place.outer}  # which are one index each
            if not node.axes <= axes | self.program.outer(axes) | entries:
                self.fail(f"results: {r.name} along {r.axes}", f"its value varies along {sorted(node.axes - axes)} too")


class _Pass:
    """One pass: its lists of steps, the parts they leave, what it exports."""

    def __init__(self, checker: _Checker, p: Pass, number: int) -> None:
        self.checker, self.plan, self.number = checker, p, number
        self.fail = checker.fail
        self.parts = {part.name: Held(frozenset(part.axes), part.top) for part in p.parts}
        self.made: dict[str, Fold | Let] = {}  # what lift makes each name by

    def run(self) -> Known:
        c, p = self.checker, self.plan
        c.along = {}
        c.place = f"the state of pass {self.number}"
        c.once("names", (part.name for part in p.parts), "a part is stored once")
        for part in p.parts:
            self.part(part)
        state, tile = self.parts, {f"{name}_b": held for name, held in self.parts.items()}
        self.steps("lift", p.lift, {"n_b": ONE, "n_some": ONE}, "_b")
        monoids = [f.op.monoid for f in _folds(p.lift) if isinstance(f.op, Custom)]
        if not all(m.commutative for m in monoids) and not p.ordered:
            self.fail("passes: splits in any order", "one of its monoids is not commutative")
        self.steps("combine", p.combine, {"n": ONE, "n_b": ONE} | state | tile, "_new")
        if p.update:
            self.steps("update", p.update, {"n": ONE, "n_b": ONE} | state, "_new")
        return self.exported({"n": ONE} | state)

    def part(self, part: Part) -> None:
        kind = TYPES.get(part.kind)
        if kind is None or part.kind == "k" and self.checker.program.real != "float32":
            self.fail(f"dtypes: {part.name} of kind {part.kind}", f"parts of {self.checker.program.real} are f, i or b")
        if type(part.identity) is not kind:
            self.fail(f"dtypes: {part.name} begins with {part.identity!r}", f"its kind is {part.kind}")
        if not self.parts[part.name].columns <= self.checker.columns:
            self.fail(f"axes: {part.name} along {part.axes}", "an array of a row's state lies along columns")

    def exported(self, known: Known) -> Known:
        c, c.place = self.checker, f"what pass {self.number} exports"
        for let in self.plan.exports:
            c.read(let.node, {**known, **c.exports}, varies=False)
            if let.name in known or let.name in c.exports:
                self.fail(f"names: {let.name} twice", "an export is named once in a program")
            c.exports[let.name] = Held(let.node.axes & c.columns)
        return known | c.exports

    # --- steps -------------------------------------------------------------------------------------------------------

    def steps(self, what: str, steps: tuple[Step, ...], known: Known, end: str) -> None:
        """One list of steps, which reads `known` and leaves every part under `name + end`."""
        c = self.checker
        c.place = f"{what} of pass {self.number}"
        twice = min(known.keys() & c.exports.keys(), default=None)
        if twice is not None:
            self.fail(f"names: {twice} twice", "an earlier pass exports it")
        known |= c.exports
        for step in steps:
            self.step(step, known)
            for name, held in self.assigned(step):
                if name in known:
                    self.fail(f"names: {name} is assigned again", "a name has one value in a list of steps")
                known[name] = held
        for name, held in self.parts.items():
            if known.get(name + end) != held:
                found = known.get(name + end)
                why = f"{name} is {held}" if found else f"{what} leaves no {name + end}"
                self.fail(f"merges: {name + end} {f'is {found}' if found else 'is missing'}", why)
        if end == "_new" and "n_new" not in known:
            self.fail("merges: n_new is missing", f"{what} leaves how many elements there are")
        self.agree(what, steps)

    def assigned(self, step: Step) -> Iterator[tuple[str, Held]]:
        columns = self.checker.columns
        if isinstance(step, Loop):
            for f in step.folds:
                yield from _reduced(f)
        elif isinstance(step, Join):
            yield from _reduced(step)
        else:
            yield step.name, Held(step.node.axes & columns)

    def step(self, step: Step, known: Known) -> None:
        read = self.checker.read
        if isinstance(step, Let):
            read(step.node, known, varies=False)
        elif isinstance(step, First):
            read(step.node, known, varies=True)
            if self.plan.absorbs:
                self.fail(f"passes: {step.name} by its first element", "the pass says that an empty tile may be merged")
        elif isinstance(step, Join):
            self.reduction(step, (step.a, step.b))
            for node in (*step.a, *step.b):
                read(node, known, varies=False)
        else:
            for f in step.folds:
                self.reduction(f, (f.bodies,))
                for node in f.bodies:
                    read(node, known, varies=True)

    def reduction(self, f: Fold | Join, sides: tuple[tuple[Node, ...], ...]) -> None:
        """A fold or join of a known kind, with as many values as it takes, along its own columns."""
        self.widths(f, sides)
        if isinstance(f.op, TopK | KeyTop) and self.checker.lengths.get(f.op.axis) != f.op.k:
            self.fail(f"merges: {f.names} by {f.kind} of {f.op.k, f.op.axis}", "the program knows no such list")
        columns = self.checker.columns
        for node in (node for side in sides for node in side):
            if not node.axes & columns <= frozenset(f.axes):
                self.fail(f"axes: {f.names} along {f.axes}", f"values vary along {sorted(node.axes & columns)}")

    def widths(self, f: Fold | Join, sides: tuple[tuple[Node, ...], ...]) -> None:
        """As many values as a kind takes and gives; a fold takes positions from its walk."""
        width = f.op.monoid.width if isinstance(f.op, Custom) else 1 + isinstance(f.op, Position | TopK)
        if isinstance(f.op, Average) and isinstance(f, Fold):
            self.fail(f"merges: {f.names} by {f.kind}", "no printer knows it")
        given = width if isinstance(f.op, Custom) or isinstance(f, Join) else 1
        if len(f.names) != width or any(len(side) != given for side in sides):
            self.fail(f"merges: {f.names} by {f.kind}", f"it takes {given} and gives {width}")

    # --- laws --------------------------------------------------------------------------------------------------------

    def agree(self, what: str, steps: tuple[Step, ...]) -> None:
        """A part is made and merged by one ⊕, and begins with its identity."""
        if what == "lift":
            self.made = {f.names[0]: f for f in _folds(steps)} | {s.name: s for s in steps if isinstance(s, Let)}
            for part in self.plan.parts:
                self.begins(part)
            return
        for f in _folds(steps):
            if f.names[0].removesuffix("_b") in self.parts:
                self.same(f, f.names)
        for s in steps:
            if isinstance(s, Join) and s.names[0].removesuffix("_new") in self.parts:
                self.same(s, tuple(f"{name.removesuffix('_new')}_b" for name in s.names))

    def same(self, f: Fold | Join, names: tuple[str, ...]) -> None:
        made = self.made.get(names[0])
        if isinstance(f.op, Average):
            if self.plan.absorbs:
                self.fail(f"passes: {f.names} by average", "the pass says that an empty tile may be merged")
            if not isinstance(made, Let):
                self.fail(f"merges: {f.names} by average", f"{names[0]} is no quotient")
        elif not isinstance(made, Fold) or made.names != names or made.op != f.op:
            by = made.kind if isinstance(made, Fold) else "a formula"
            self.fail(f"merges: {f.names} by {f.kind}", f"{', '.join(names)} are made by {by}")

    def begins(self, part: Part) -> None:
        """The identity of a part is that of the fold that makes it; of an anchor, any finite number."""
        made = self._maker(f"{part.name}_b")
        if made is None:
            sound = part.kind == "f" and isfinite(part.identity)
        elif isinstance(made.op, Custom):
            return
        else:
            sound = part.identity in IDENTITY[made.kind][made.names.index(f"{part.name}_b")]
        if not sound:
            by = f"the identity of {made.kind} is another one" if made else "an anchor begins with a finite number"
            self.fail(f"passes: {part.name} begins with {part.identity!r}", by)

    def _maker(self, name: str) -> Fold | None:
        for f in self.made.values():
            if isinstance(f, Fold) and name in f.names:
                return f
        return None


def _folds(steps: Iterable[Step]) -> Iterator[Fold]:
    for step in steps:
        if isinstance(step, Loop):
            yield from step.folds


def _reduced(f: Fold | Join) -> Iterator[tuple[str, Held]]:
    held = Held(frozenset(f.axes), f.op.k if isinstance(f.op, TopK | KeyTop) else None)
    for name in f.names:
        yield name, held
