"""Terms: the language of certificates, as interned trees that share their parts.

The operations are those of specs: ``const special true false tensor state index size add mul pow maximum minimum where
eq ne lt le and or not cast reduce`` and unary maps. A term is never simplified when it is built. Nothing but the
standard library is imported here, and nothing of the engine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from redalg.proofs.document.functions import FUNCTIONS
from redalg.proofs.document.work import Exhausted, spend, text

UNARY = frozenset(FUNCTIONS)
NARY = frozenset({"add", "mul", "maximum", "minimum", "and", "or"})
ARITY = {"pow": 2, "where": 3, "eq": 2, "ne": 2, "lt": 2, "le": 2, "not": 1} | dict.fromkeys(UNARY, 1)
BOOLEAN = frozenset({"eq", "ne", "lt", "le", "and", "or", "not", "true", "false"})
COUNTED = 32  # steps of a walk that are counted together
SMALL = 1 << 10  # a number that many terms hold
MOST_AXES = 64  # that one term may be read along
REDUCTIONS = frozenset("sum prod max min any all argmax argmin topk_values topk_indices monoid".split())


class Leaf(NamedTuple):
    """A named array: a tensor of the spec or a part of a state."""

    name: str
    axes: tuple[str, ...]
    domain: frozenset[str]


class Reduction(NamedTuple):
    """The kind, the reduced axes and what the kind needs beside: (k, new axis), or (number of the monoid, part)."""

    kind: str
    axes: tuple[str, ...]
    extra: tuple[int, Any] | None = None


class Term:
    """One operation; equal structure is the same object, so that a walk is linear."""

    __slots__ = ("op", "args", "attr", "axes", "number", "is_boolean", "reads_state")
    op: str
    args: tuple[Term, ...]
    attr: Any
    axes: frozenset[str]
    number: int
    is_boolean: bool
    reads_state: bool  # whether a part of a state is below it, or it is one

    def __repr__(self) -> str:
        return f"<Term {self.op} {self.attr if self.attr is not None else ''}>"


class Terms:
    """The table in which the terms of one document are interned."""

    def __init__(self, limit: int = 100_000) -> None:
        self.table: dict[tuple[Any, ...], Term] = {}
        self.kept: dict[frozenset[str], frozenset[str]] = {}  # sets of axes, each once
        self.whole: dict[int, Term] = {}  # small numbers, found without a text of them
        self.limit = limit

    def __call__(self, op: str, *args: Term, attr: Any = None) -> Term:
        spend(1 + (len(args) >> 3))
        key = (op, args, text(attr) if op == "const" else attr)
        found = self.table.get(key)
        if found is None:
            if len(self.table) >= self.limit:
                raise Exhausted(f"more than {self.limit} terms")
            axes = _free_axes(op, args, attr)
            if len(axes) > MOST_AXES:
                raise Exhausted(f"a term along more than {MOST_AXES} axes")
            found = object.__new__(Term)
            found.op, found.args, found.attr, found.number = op, args, attr, len(self.table)
            found.axes, found.is_boolean = self.kept.setdefault(axes, axes), _is_boolean(op, args, attr)
            found.reads_state = op == "state" or True in [a.reads_state for a in args]
            self.table[key] = found
        return found

    def const(self, value: int | Fraction) -> Term:
        found = self.whole.get(value) if type(value) is int else None
        if found is None:
            found = self("const", attr=Fraction(value))
            if type(value) is int and -SMALL < value < SMALL:
                self.whole[value] = found
        else:
            spend()  # as one that is looked up: what is counted does not depend on what came before
        return found

    def special(self, name: str) -> Term:
        return self("special", attr=name)

    def state(self, name: str, axes: Iterable[str] = (), domain: Iterable[str] = ()) -> Term:
        return self("state", attr=Leaf(name, tuple(axes), frozenset(domain)))

    def add(self, *terms: Term) -> Term:
        return terms[0] if len(terms) == 1 else self("add", *terms)

    def mul(self, *factors: Term) -> Term:
        return factors[0] if len(factors) == 1 else self("mul", *factors)

    def sub(self, a: Term, b: Term) -> Term:
        return self("add", a, self("mul", self.const(-1), b))

    def div(self, a: Term, b: Term) -> Term:
        return self("mul", a, self("pow", b, self.const(-1)))

    def reduce(self, kind: str, axes: tuple[str, ...], *bodies: Term, extra: tuple[int, Any] | None = None) -> Term:
        return self("reduce", *bodies, attr=Reduction(kind, axes, extra))

    def size(self, axes: Iterable[str]) -> Term:
        sizes = [self("size", attr=a) for a in axes]
        return self.mul(*sizes) if sizes else self.const(1)

    # --- rewriting ---

    def map(self, root: Term, change: Callable[[Term], Term | None]) -> Term:
        """The term with every subterm that `change` has a value for replaced, outermost first."""
        done: dict[Term, Term] = {}
        for t in walk(root, until=lambda t: change(t) is not None):
            new = change(t)
            if new is None:
                args = tuple(done[a] for a in t.args)
                new = t if args == t.args else self(t.op, *args, attr=t.attr)
            done[t] = new
        return done[root]

    def substitute(self, root: Term, values: Mapping[Term, Term]) -> Term:
        """The term with subterms replaced by others, outermost first."""
        if not values:
            return root
        closed = all(t.op == "state" for t in values)  # then what reads no state stays as it is
        done, stack, steps = dict(values), [root], 0
        while stack:
            t = stack[-1]
            if t in done:
                stack.pop()
                continue
            steps += 1
            if not t.args or closed and not t.reads_state:
                done[t] = t
                continue
            missing = [a for a in t.args if a not in done]
            if missing:
                stack += missing[::-1]
                continue
            args = tuple([done[a] for a in t.args])
            done[t] = t if args == t.args else self(t.op, *args, attr=t.attr)
        spend(steps)
        return done[root]

    def renamed(self, root: Term, axes: Mapping[str, str]) -> Term:
        """Free axes renamed, all at once; a tensor under a renamed axis is read along the new one.

        An axis that a reduction binds is another one: it keeps its name, or gets one of its own where an axis is
        renamed to it (sum over a of r[a]·s[b], b to a, is the sum over a' of r[a']·s[a]).
        """
        done: dict[Term, Term] = {}
        apart = axes.keys().isdisjoint
        if apart(root.axes):
            return root
        for t in walk(root, until=lambda t: t.op == "reduce" or apart(t.axes)):
            if apart(t.axes):
                done[t] = t
                continue
            attr = t.attr
            if t.op == "reduce":
                done[t] = self._renamed_reduction(t, axes)
                continue
            if t.op in ("tensor", "state"):
                attr = Leaf(attr.name, tuple(axes.get(a, a) for a in attr.axes), attr.domain)
            elif t.op == "index":
                attr = axes.get(attr, attr)
            done[t] = self(t.op, *(done[a] for a in t.args), attr=attr)
        return done[root]

    def _renamed_reduction(self, t: Term, axes: Mapping[str, str]) -> Term:
        kind, bound, extra = t.attr
        inner = {a: b for a, b in axes.items() if a in t.axes and a not in bound}
        taken = set(inner.values()) | {x for a in t.args for x in a.axes} | set(bound)
        for a in bound:
            if a in inner.values():
                inner[a] = fresh(a, taken)
        bound = tuple(inner.get(a, a) for a in bound)
        if kind.startswith("topk") and extra is not None:
            extra = (extra[0], axes.get(extra[1], extra[1]))
            inner.pop(t.attr.extra[1], None)
        return self("reduce", *(self.renamed(a, inner) for a in t.args), attr=Reduction(kind, bound, extra))


def base(axis: str) -> str:
    """The axis that a name is a copy of: positions along a' and a~1 are positions along a, and as many."""
    return axis.split("~")[0].rstrip("'")


def fresh(axis: str, taken: set[str]) -> str:
    """A name for a copy of an axis that is not taken yet, which it then is."""
    name = base(axis)
    while name in taken:
        name += "'"
    taken.add(name)
    return name


def _is_boolean(op: str, args: tuple[Term, ...], attr: Any) -> bool:
    if op == "where":
        return all(a.is_boolean for a in args[1:])
    if op == "reduce":
        return attr.kind in ("any", "all")
    return op in BOOLEAN or (op in ("tensor", "state") and "bool" in attr.domain)


def _free_axes(op: str, args: tuple[Term, ...], attr: Any) -> frozenset[str]:
    if op in ("tensor", "state"):
        return frozenset(attr.axes)
    if op == "index":
        return frozenset({attr})
    free: frozenset[str] = args[0].axes if args else frozenset()
    for a in args[1:]:
        if a.axes is not free:
            free |= a.axes
    if op == "reduce":
        free -= frozenset(attr.axes)
        if attr.kind.startswith("topk") and attr.extra:
            free |= {attr.extra[1]}
    return free


def walk(*roots: Term, until: Callable[[Term], bool] | None = None) -> Iterator[Term]:
    """Every term below the roots once, arguments first; below a term that `until` holds for nothing is visited."""
    seen: set[Term] = set()
    above: list[Term] = []  # terms that are walked, with what is left of the arguments that each stands among
    left: list[Iterator[Term]] = []
    here, steps = iter(roots), 0
    while True:
        for term in here:
            if term in seen:
                continue
            seen.add(term)
            args = term.args
            steps += 1 + (len(args) >> 3)
            if steps > COUNTED:
                spend(steps)
                steps = 0
            if args and not (until is not None and until(term)):
                above.append(term)
                left.append(here)
                here = iter(args)
                break
            yield term
        else:
            if not above:
                break
            here = left.pop()
            yield above.pop()
    spend(steps)


def leaves(*roots: Term, op: str = "state") -> list[Term]:
    """The leaves of an operation below the roots, each once, in order."""
    if op != "state":
        return [t for t in walk(*roots) if t.op == op]
    seen: dict[Term, None] = {}
    stack = list(reversed(roots))
    while stack:
        t = stack.pop()
        if t.reads_state and t not in seen:
            seen[t] = None
            stack += t.args[::-1]
    spend(1 + len(seen))
    return [t for t in seen if t.op == "state"]


def encoded(term: Term, number: Callable[[Term], int]) -> list[Any]:
    """One term as a JSON list; arguments are the numbers of earlier ones."""
    args, attr = [number(a) for a in term.args], term.attr
    if term.op == "const":
        return ["const", str(attr)]
    if term.op in ("special", "index", "size"):
        return [term.op, attr]
    if term.op in ("tensor", "state"):
        return [term.op, attr.name, list(attr.axes), sorted(attr.domain)]
    if term.op == "reduce":
        return ["reduce", attr.kind, list(attr.axes), list(attr.extra) if attr.extra else None, *args]
    return [term.op, attr, *args] if term.op == "cast" else [term.op, *args]


def digest(*parts: object) -> str:
    """The hash of data that holds terms, whatever order they are numbered in; no two different data have one text."""
    done: dict[Term, str] = {}
    for t in walk(*_terms_of(parts)):
        beside = repr(encoded(t, lambda a: 0))
        text = repr((beside, [done[a] for a in t.args]))
        done[t] = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    return hashlib.blake2b(repr(_plain(parts, done)).encode(), digest_size=16).hexdigest()


def _terms_of(data: object) -> Iterator[Term]:
    if isinstance(data, Term):
        yield data
    elif isinstance(data, Mapping):
        yield from _terms_of(list(data.values()))
    elif isinstance(data, list | tuple):
        for x in data:
            yield from _terms_of(x)


def _plain(data: object, done: Mapping[Term, str]) -> object:
    """Data with every term replaced by its hash, as lists, strings and pairs alone (`repr` quotes every string)."""
    if isinstance(data, Term):
        return ("term", done[data])
    if isinstance(data, Mapping):
        return ("mapping", [(k, _plain(v, done)) for k, v in data.items()])
    if isinstance(data, list | tuple):
        return [_plain(x, done) for x in data]
    return data
