"""SMT-LIB 2 text of lowered terms: declarations, shared parts as definitions, assertions with their reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

from redalg.proofs.document.intervals import facts
from redalg.proofs.document.terms import Term, walk

OPERATORS = {"add": "+", "mul": "*", "lt": "<", "le": "<=", "eq": "=", "and": "and", "or": "or", "not": "not"}
LOGIC = "QF_UFNRA"
SPELLED = {"maximum": "max", "minimum": "min"}
INFIX = {"add": " + ", "eq": " == ", "ne": " != ", "lt": " < ", "le": " <= ", "and": " and ", "or": " or "}


def notation(term: Term, depth: int = 0, limit: int = 40) -> str:
    """A term in the notation of specs, on one line; deep parts are left out."""
    if depth > limit:
        return "…"
    args = [notation(a, depth + 1, limit) for a in term.args]
    if term.op in INFIX:
        return f"({INFIX[term.op].join(args)})"
    if term.op in _NOTATIONS:
        return _NOTATIONS[term.op](term.attr, args)
    return f"{SPELLED.get(term.op, term.op)}({', '.join(args)})"


def _leaf(attr: Any, args: list[str]) -> str:
    return f"{attr.name}[{','.join(attr.axes)}]" if attr.axes else str(attr.name)


def _reduction(attr: Any, args: list[str]) -> str:
    beside = f" {attr.extra[0]}" if attr.extra else ""
    return f"{attr.kind}[{','.join(attr.axes)}{beside}]({', '.join(args)})"


_NOTATIONS: dict[str, Callable[[Any, list[str]], str]] = {  # of the attribute and the texts of the arguments
    "tensor": _leaf,
    "state": _leaf,
    "reduce": _reduction,
    "const": lambda attr, args: str(attr),
    "special": lambda attr, args: str(attr),
    "index": lambda attr, args: f"index({attr})",
    "size": lambda attr, args: f"size({attr})",
    "true": lambda attr, args: "true",
    "false": lambda attr, args: "false",
    "mul": lambda attr, args: "·".join(args),
    "pow": lambda attr, args: f"{args[0]}^{args[1] if args[1].isdigit() else f'({args[1]})'}",
    "root": lambda attr, args: f"{args[0]}^(1/{attr})",
    "cast": lambda attr, args: f"cast_{attr}({', '.join(args)})",
}


def number(value: Fraction) -> str:
    size = f"{abs(value.numerator)}.0"
    text = size if value.denominator == 1 else f"(/ {size} {value.denominator}.0)"
    return f"(- {text})" if value < 0 else text


def clipped(text: str, most: int = 400) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"


class Script:
    """One SMT-LIB text: formulas are added with comments, then written with everything they need."""

    def __init__(self, title: Iterable[str]) -> None:
        self.title = list(title)
        self.entries: list[tuple[str, Term, Term | None]] = []
        self._forget()

    def _forget(self) -> None:
        self.names: dict[Term, str] = {}
        self.functions: dict[tuple[str, object], str] = {}
        self.taken: set[str] = set()
        self.counts: Counter[str] = Counter()
        self.used: dict[Term, int] = {}

    def add(self, comment: str, formula: Term, premise: Term | None = None) -> None:
        self.entries.append((comment, formula, premise))

    def text(self) -> str:
        self._forget()
        roots = [x for _, f, p in self.entries for x in (f, p) if x is not None]
        order = list(walk(*roots, until=lambda x: x.op == "reduce"))
        for term in order:
            for a in () if term.op == "reduce" else term.args:
                self.used[a] = self.used.get(a, 0) + 1
        head = [f"; {clipped(line)}" for line in self.title]
        lines = [*head, f"(set-logic {LOGIC})", *self._declarations(order)]
        lines += [x for term in order for x in self._definition(term)]
        for comment, formula, premise in self.entries:
            lines += [f"; {clipped(comment)}"] if comment else []
            held = self.of(formula)
            if premise is not None and premise.op != "true":
                held = f"(=> {self.of(premise)} {held})"
            lines.append(f"(assert {held})")
        return "\n".join([*lines, "(check-sat)", ""])

    # --- declarations ---

    def _declarations(self, order: list[Term]) -> list[str]:
        lines: list[str] = []
        functions: list[str] = []
        for term in order:
            if term.op in ("tensor", "state", "index", "size", "special"):
                self.names[term] = self._symbol(term)
                sort = "Bool" if term.is_boolean else "Real"
                lines.append(f"(declare-const {self.names[term]} {sort})")
                lines += self._known(term)
            elif term.op == "reduce":
                self.names[term] = self._numbered(term.attr.kind)
                sort = "Bool" if term.is_boolean else "Real"
                lines.append(f"(declare-const {self.names[term]} {sort}) ; {clipped(notation(term))}")
            elif self._is_function(term) and (term.op, term.attr) not in self.functions:
                result = "Bool" if term.op.endswith("_defined") else "Real"
                arity = " ".join("Real" for _ in term.args)
                functions.append(f"(declare-fun {self.function(term)} ({arity}) {result})")
        return functions + lines

    def _known(self, term: Term) -> list[str]:
        name, lines = self.names[term], []
        if term.op == "size":
            lines.append(f"(assert (>= {name} 1.0))")
        elif term.op == "special":
            lines.append(f"(assert (< 3.14 {name} 3.15))")
        elif term.op == "index":
            return lines
        elif "positive" in term.attr.domain:
            lines.append(f"(assert (> {name} 0.0))")
        elif "nonnegative" in term.attr.domain:
            lines.append(f"(assert (>= {name} 0.0))")
        if term.op in ("tensor", "state"):
            for end, above in facts(term.attr.domain):
                lines.append(f"(assert ({'>' if above else '<'} {name} {number(end)}))")
        return lines

    def _symbol(self, term: Term) -> str:
        """The name of a leaf: its own where that is a free symbol, else quoted; never one that stands already."""
        written = notation(term)
        if written.isidentifier() and written.isascii() and written not in RESERVED:
            name = written
        else:  # brackets keep a quoted name apart from every generated one
            written = clipped("".join("/" if c in "|\\" or not c.isprintable() else c for c in written), 80)
            name = f"|{written if written.endswith(']') else written + '[]'}|"
        if name in self.taken:
            self.counts["leaf"] += 1
            name = f"|{name.strip('|')} ({self.counts['leaf']})|"
        self.taken.add(name)
        return name

    def _numbered(self, kind: str) -> str:
        self.counts[kind] += 1
        return f"{kind}!{self.counts[kind]}"

    def _is_function(self, term: Term) -> bool:
        return bool(term.args) and term.op not in OPERATORS and term.op not in _WRITTEN

    def function(self, term: Term) -> str:
        """Ends in "!", so that no solver takes it for a function that it knows."""
        key = (term.op, term.attr)
        if key not in self.functions:
            name = "sqrt" if key == ("root", 2) else term.op if term.attr is None else f"{term.op}!{term.attr}"
            plain = name.replace("!", "").replace("_", "")
            self.functions[key] = f"{name}!" if plain.isalnum() and plain.isascii() else self._numbered(term.op)
        return self.functions[key]

    # --- terms ---

    def _definition(self, term: Term) -> list[str]:
        """Parts that occur more than once get a name."""
        if term in self.names or not term.args or term.op == "const":
            return []
        if self.used.get(term, 0) < 2 or (term.op == "pow" and term.args[1].attr == 1):
            return []
        sort = "Bool" if self._is_bool(term) else "Real"
        text = self.of(term)
        self.names[term] = self._numbered("t")
        return [f"(define-fun {self.names[term]} () {sort} {text})"]

    def _is_bool(self, term: Term) -> bool:
        return term.is_boolean or term.op.endswith("_defined")

    def of(self, term: Term) -> str:
        if term in self.names:
            return self.names[term]
        if term.op == "const":
            return number(term.attr)
        if term.op == "pow":
            return self._power(term)
        args = [self.of(a) for a in term.args]
        return self._applied(term, args)

    def _power(self, term: Term) -> str:
        base, e = self.of(term.args[0]), int(term.args[1].attr)
        if e < 0:
            base = f"(/ 1.0 {base})"
        return base if abs(e) == 1 else f"(* {' '.join([base] * abs(e))})"

    def _applied(self, term: Term, args: list[str]) -> str:
        op = term.op
        if op in ("true", "false"):
            return op
        if op in OPERATORS:
            return f"({OPERATORS[op]} {' '.join(args)})"
        if op == "ne":
            return f"(not (= {' '.join(args)}))"
        if op == "where":
            return f"(ite {' '.join(args)})"
        if op == "maximum":
            return f"(ite (>= {args[0]} {args[1]}) {args[0]} {args[1]})"
        if op == "minimum":
            return f"(ite (<= {args[0]} {args[1]}) {args[0]} {args[1]})"
        if op == "abs":
            return f"(ite (>= {args[0]} 0.0) {args[0]} (- {args[0]}))"
        if op == "sign":
            return f"(ite (> {args[0]} 0.0) 1.0 (ite (< {args[0]} 0.0) (- 1.0) 0.0))"
        return f"({self.function(term)} {' '.join(args)})"


_WRITTEN = frozenset("ne where maximum minimum abs sign pow const true false reduce".split())
# Words of SMT-LIB 2 and names of functions that solvers know without a declaration.
RESERVED = frozenset(
    "BINARY DECIMAL HEXADECIMAL NUMERAL STRING let forall exists match par as assert push pop exit echo reset and or "
    "xor not ite true false distinct abs div mod rem divisible to_real to_int is_int is Bool Int Real String Array Seq "
    "Set select store exp log sin cos tan sec csc cot asin acos atan arcsin arccos arctan sinh cosh tanh asinh acosh "
    "atanh sqrt pi euler e if implies iff min max bvadd concat extract repeat rotate_left".split()
)
