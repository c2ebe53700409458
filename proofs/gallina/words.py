"""Terms as Gallina: the words of one printed lemma, with the variables it quantifies over and their hypotheses.

A tensor is a real variable, or a function of the axes that a reduction of the lemma binds; the axis of the stream is a
list of positions of any length. What has no counterpart (an infinity, a complex number, a power of what may be 0) is
refused with `Unprintable`, never approximated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fractions import Fraction

from redalg.proofs.document.functions import FUNCTIONS, evaluated
from redalg.proofs.document.intervals import facts
from redalg.proofs.document.terms import Term, base, walk

KNOWN = {name: row.rocq for name, row in FUNCTIONS.items() if row.rocq}
# what the tactics of `Signs.v` know to be positive
POSITIVE = {"size"} | {name for name, row in FUNCTIONS.items() if row.moves and row.sign == "positive"}
COMPLEX = frozenset({"conj", "re", "im"})
ORDER = {"max": "lmax", "min": "lmin", "prod": "lprod"}
GAUGED = frozenset({"sum", "prod", "max", "min"})  # reductions of positive numbers that are positive
RELATION = {"eq": "=", "ne": "<>", "lt": "<", "le": "<="}
TEST = {"eq": "Reqb", "lt": "Rltb", "le": "Rleb"}
CASTS = {  # named assumption: what it says of a rounding
    "cast_commutes": "forall v w : R, {0} (v * w) = {0} v * w",
    "cast_left_out": "forall v : R, {0} v = v",
}
RESERVED = frozenset(
    "R nat bool list exp ln sin cos tan tanh sinh cosh sqrt relu sigmoid log1p lsum lmax lmin lprod lany lall largmax "
    "largmin ltopk INR IZR PI length true false if then else fun forall exists let in match end with return as for fix "
    "cofix Prop Set Type SProp at by using where Rmax Rmin Rabs Rpower Reqb Rltb Rleb andb orb negb xorb eqb I S O "
    "top_value top_index".split()
)


class Unprintable(Exception):
    """A term that has no counterpart over the reals; the message is the reason."""


def identifier(name: str) -> str:
    """The name as Gallina writes it: letters, digits, underscores and primes."""
    plain = re.sub(r"[^A-Za-z0-9_']", "_", name)
    plain = plain if re.match(r"[A-Za-z]", plain) else f"v{plain}"  # names of proofs begin with an underscore
    return f"{plain}_" if plain in RESERVED else plain


class Words:
    """Renders the terms of one lemma; `variables` and `hypotheses` are what it quantifies over, in order of use."""

    def __init__(self, stream: Iterable[str], roots: Iterable[Term], assumed: Iterable[str] = ()) -> None:
        self.stream = frozenset(stream)
        self.assumed = frozenset(assumed)  # the named assumptions of the certificate
        self.roots = tuple(roots)
        self.bound = {a for t in walk(*self.roots) if t.op == "reduce" for a in t.attr.axes}
        self.names: dict[object, str] = {}
        self.variables: dict[str, str] = {}
        self.domains: dict[str, None] = {}
        self.lists: dict[str, str] = {}
        self.named: dict[Term, str] = {}  # terms a proof has given a name
        self.scope: list[str] = []  # axes bound where the printer stands

    # --- names ---

    def name(self, key: object, wish: str, kind: str | None) -> str:
        """The name of a key, a new one near the wish; quantified over unless it has no type."""
        if key not in self.names:
            taken = set(self.names.values())
            name = found = identifier(wish)
            count = 1
            while found in taken:
                count += 1
                found = f"{name}_{count}"
            self.names[key] = found
        if kind is not None:
            self.variables.setdefault(self.names[key], kind)
        return self.names[key]

    def list_of(self, axis: str) -> str:
        axis = base(axis)
        stem, _, side = axis.partition("_")
        self.lists[axis] = self.name(("list", axis), f"{stem}s_{side}" if side else f"{stem}s", "list nat")
        return self.lists[axis]

    def position(self, axis: str) -> str:
        """Where a tensor is read along an axis: a bound variable, or one of the lemma."""
        return self.name(("axis", axis), axis.replace("~", "_"), None if axis in self.scope else "nat")

    # --- terms ---

    def __call__(self, t: Term) -> str:
        if t in self.named:
            return self.named[t]
        made = getattr(self, f"_{t.op}", None)
        if made is not None:
            return str(made(t))
        if t.op in TEST or t.op == "ne":
            return self._test(t)
        if len(t.args) == 1:
            return self._map(t)
        raise Unprintable(f"the operation {t.op}")

    def _const(self, t: Term) -> str:
        return number(t.attr)

    def _special(self, t: Term) -> str:
        if t.attr in ("pi", "e"):
            return "PI" if t.attr == "pi" else "(exp 1)"
        what = {"i": "a complex number", "nan": "NaN"}.get(t.attr, "an infinity")
        raise Unprintable(f"{what} is no real number")

    def _tensor(self, t: Term) -> str:
        leaf = t.attr
        if "complex" in leaf.domain:
            raise Unprintable("a complex tensor")
        along = [(k, a) for k, a in enumerate(leaf.axes) if self.functional(t.op, leaf.name, k)]
        kind = "bool" if "bool" in leaf.domain else "R"
        name = self.name((t.op, leaf.name), leaf.name, " -> ".join([*("nat" for _ in along), kind]))
        self._domain(name, leaf.domain, len(along))
        return applied(name, [self.position(a) for _, a in along])

    _state = _tensor

    def functional(self, op: str, name: str, place: int) -> bool:
        """Whether a reduction binds the axis a tensor has at this place, anywhere in the lemma."""
        leaves = (t.attr for t in walk(*self.roots) if t.op == op and t.attr.name == name)
        return any(len(x.axes) > place and x.axes[place] in self.bound for x in leaves)

    def _domain(self, name: str, domain: frozenset[str], arguments: int) -> None:
        sign = "<" if "positive" in domain else "<=" if "nonnegative" in domain else None
        if sign:
            places = [f"d{k}" for k in range(arguments)]
            all_ = f"forall {' '.join(places)}, " if places else ""
            fact = f"{all_}0 {sign} {applied(name, places)}"
            self.domains[f"({fact})" if places else fact] = None
        for end, above in facts(domain):
            places = [f"d{k}" for k in range(arguments)]
            sides = [number(end), applied(name, places)]
            fact = " < ".join(sides if above else sides[::-1])
            self.domains[f"(forall {' '.join(places)}, {fact})" if places else fact] = None

    def _index(self, t: Term) -> str:
        axis = base(t.attr)
        if t.attr in self.bound:
            return applied(self.name(("index", axis), f"index_{axis}", "nat -> R"), [self.position(t.attr)])
        return self.name(("place", axis), f"index_{axis}", "R")

    def _size(self, t: Term) -> str:
        axis = base(t.attr)
        if axis in {base(a) for a in self.bound}:
            return f"(INR (length {self.list_of(axis)}))"
        name = self.name(("size", axis), f"size_{axis}", "R")
        self.domains[f"0 < {name}"] = None
        return name

    def _add(self, t: Term) -> str:
        return f"({' + '.join(map(self, t.args))})"

    def _mul(self, t: Term) -> str:
        return f"({' * '.join(map(self, t.args))})"

    def _pow(self, t: Term) -> str:
        low, e = t.args
        if e.op != "const":
            if not positive(low):
                raise Unprintable("a power of what may be 0 or negative, with an exponent that is no number")
            return f"(Rpower {self(low)} {self(e)})"
        q = abs(e.attr)
        text = self(low)
        if q.denominator == 2:
            text = f"(sqrt {text})"
        elif q.denominator != 1:
            if not positive(low):
                raise Unprintable(f"the root {q} of what may be 0 or negative")
            text = f"(Rpower {text} {number(q)})"
        if q.numerator != 1 and q.denominator <= 2:
            text = f"({text} ^ {q.numerator})"
        return text if e.attr > 0 else f"(/ {text})"

    def _maximum(self, t: Term) -> str:
        return self._folded("Rmax", t)

    def _minimum(self, t: Term) -> str:
        return self._folded("Rmin", t)

    def _and(self, t: Term) -> str:
        return self._folded("andb", t)

    def _or(self, t: Term) -> str:
        return self._folded("orb", t)

    def _folded(self, word: str, t: Term) -> str:
        text = self(t.args[0])
        for a in t.args[1:]:
            text = f"({word} {text} {self(a)})"
        return text

    def _not(self, t: Term) -> str:
        return f"(negb {self(t.args[0])})"

    def _true(self, t: Term) -> str:
        return "true"

    def _false(self, t: Term) -> str:
        return "false"

    def _where(self, t: Term) -> str:
        c, yes, no = map(self, t.args)
        return f"(if {c} then {yes} else {no})"

    def _test(self, t: Term) -> str:
        a, b = t.args
        x, y = self(a), self(b)
        if a.is_boolean or b.is_boolean:
            if t.op not in ("eq", "ne"):
                raise Unprintable("an order of truth values")
            return f"(Bool.eqb {x} {y})" if t.op == "eq" else f"(xorb {x} {y})"
        return f"(negb (Reqb {x} {y}))" if t.op == "ne" else f"({TEST[t.op]} {x} {y})"

    def _cast(self, t: Term) -> str:
        word = self.name(("cast", t.attr), f"cast_{t.attr}", "R -> R")
        for assumption in self.assumed & CASTS.keys():
            self.domains[f"({CASTS[assumption].format(word)})"] = None
        return f"({word} {self(t.args[0])})"

    def _map(self, t: Term) -> str:
        if t.op in COMPLEX:
            raise Unprintable(f"the map {t.op} of complex numbers")
        row = FUNCTIONS[t.op]
        if row.written and not row.rocq:
            return str(evaluated(row.written, _Formulas(), self(t.args[0])))
        word = KNOWN.get(t.op) or self.name(("map", t.op), t.op, "R -> R")
        return f"({word} {self(t.args[0])})"

    def _reduce(self, t: Term) -> str:
        kind, axes, _ = t.attr
        if kind.startswith("topk"):
            return self._top(t)
        if kind in ORDER or kind == "sum":
            word = "lsum" if kind == "sum" else ORDER[kind]
        elif kind in ("argmax", "argmin"):
            word = f"l{kind}"
        elif kind in ("any", "all"):
            word = f"l{kind}"
        else:
            raise Unprintable(f"the reduction {kind} inside an expression")
        if kind != "sum" and len(axes) > 1:
            raise Unprintable(f"{kind} over several axes at once")
        for a in axes:
            self.list_of(a)
        text = self.within(axes, t.args[0])
        for a in reversed(axes):
            text = f"({word} (fun {self.names['axis', a]} : nat => {text}) {self.list_of(a)})"
        return f"(INR {text})" if kind.startswith("arg") else text

    def _top(self, t: Term) -> str:
        """An entry of the list of the k largest; the elements of the stream are their positions."""
        kind, (axis, *more), (k, top) = t.attr
        if more:
            raise Unprintable(f"{kind} over several axes at once")
        self.list_of(axis)
        body = self.within([axis], t.args[0])
        taken = f"(ltopk {k} (fun {self.names['axis', axis]} : nat => {body}) {self.list_of(axis)})"
        return f"(top_{'value' if kind == 'topk_values' else 'index'} {self.position(top)} {taken})"

    def within(self, axes: Iterable[str], body: Term, statement: bool = False) -> str:
        """The text of a body under binders of the axes."""
        self.scope += axes
        for a in axes:
            self.position(a)
        text = self.proposition(body) if statement else self(body)
        del self.scope[len(self.scope) - len(tuple(axes)) :]
        return text

    # --- propositions ---

    def proposition(self, t: Term) -> str:
        """A Boolean term as what it says."""
        if t.op in RELATION and not t.args[0].is_boolean:
            return f"{self(t.args[0])} {RELATION[t.op]} {self(t.args[1])}"
        if t.op in ("and", "or"):
            sign = " /\\ " if t.op == "and" else " \\/ "
            return sign.join(f"({self.proposition(a)})" for a in t.args)
        return f"{self(t)} = true"

    def fact(self, t: Term) -> str:
        """A hypothesis: for every position of the axes that it has and a reduction of the lemma binds."""
        free = [a for a in sorted(t.axes) if a in self.bound]
        text = self.within(free, t, statement=True)
        places = " ".join(f"({self.names['axis', a]} : nat)" for a in free)
        return f"(forall {places}, {text})" if free else text

    def quantified(self) -> str:
        """The binders of the lemma, those of one type together."""
        groups: dict[str, list[str]] = {}
        for n, k in self.variables.items():
            groups.setdefault(k, []).append(n)
        return " ".join(f"({' '.join(ns)} : {k})" for k, ns in groups.items())


class _Formulas:
    """Formulas of the table of functions in Gallina."""

    def number(self, value: Fraction) -> str:
        return number(value)

    def pi(self) -> str:
        return "PI"

    def plus(self, a: str, b: str) -> str:
        return f"({a} + {b})"

    def times(self, a: str, b: str) -> str:
        return f"({a} * {b})"

    def power(self, base: str, exponent: Fraction) -> str:
        if exponent != -1:
            raise Unprintable(f"the power {exponent} in a formula")
        return f"(/ {base})"

    def call(self, name: str, x: str) -> str:
        return f"({KNOWN[name]} {x})"


def applied(name: str, arguments: list[str]) -> str:
    return f"({' '.join([name, *arguments])})" if arguments else name


def number(q: Fraction) -> str:
    top = str(q.numerator) if q >= 0 else f"(-{-q.numerator})"
    return top if q.denominator == 1 else f"({top} / {q.denominator})"


def positive(t: Term) -> bool:
    """Whether the term is positive by the way it is written (a sum or an extremum: over a stream that is not empty)."""
    if t.op in ("tensor", "state"):
        return "positive" in t.attr.domain
    if t.op == "const":
        return bool(t.attr > 0)
    if t.op in POSITIVE:
        return True
    if t.op in ("mul", "minimum"):
        return all(map(positive, t.args))
    if t.op == "add":
        return any(map(positive, t.args)) and all(map(nonnegative, t.args))
    if t.op == "maximum":
        return any(map(positive, t.args))
    if t.op == "where":
        return positive(t.args[1]) and positive(t.args[2])
    return t.op in ("pow", "reduce") and positive(t.args[0]) and (t.op == "pow" or t.attr.kind in GAUGED)


def nonnegative(t: Term) -> bool:
    if t.op in ("tensor", "state"):
        return "nonnegative" in t.attr.domain or positive(t)
    if t.op == "const":
        return bool(t.attr >= 0)
    if t.op in ("abs", "relu"):
        return True
    if t.op in ("add", "mul", "minimum"):
        return all(map(nonnegative, t.args)) or positive(t)
    if t.op == "pow" and t.args[1].op == "const":
        e = t.args[1].attr
        return e.denominator == 2 or e.numerator % 2 == 0 or nonnegative(t.args[0])
    if t.op == "reduce" and t.attr.kind == "sum":
        return nonnegative(t.args[0])
    return positive(t)
