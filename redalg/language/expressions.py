"""Expressions of the text grammar: precedence climbing, each construct handed to the function that builds it."""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import sympy
from sympy.logic.boolalg import Boolean

from redalg.errors import RedalgError
from redalg.graph.node import Dimension
from redalg.language import functions as f
from redalg.language import maps, reductions
from redalg.language.arithmetic import check_power
from redalg.language.leaves import TensorSymbol, axis_names, check_name, declare, index, size
from redalg.language.monoid import Monoid
from redalg.language.operand import exact_number, number_operand, operand
from redalg.language.spellings import SPELLINGS
from redalg.language.statistics import STATISTICS
from redalg.language.sympy_bridge import CONSTRUCTORS
from redalg.language.tokens import Token, Tokens
from redalg.language.windows import dimensions, is_affine
from redalg.text.words import MAP_WORDS, REDUCTION_WORDS, RESERVED, UNARY_WORDS

_BINARY = {
    "or": 1,
    "and": 2,
    "<": 4,
    "<=": 4,
    ">": 4,
    ">=": 4,
    "==": 4,
    "!=": 4,
    "+": 5,
    "-": 5,
    "*": 6,
    "/": 6,
    "**": 8,
}
_CONSTANTS = {
    "oo": sympy.oo,
    "inf": sympy.oo,
    "nan": sympy.nan,
    "pi": sympy.pi,
    "true": sympy.true,
    "false": sympy.false,
}
_NOT, _SIGN = 3, 7
_DEPTH = 80  # nested expressions
_NEAR = 0.76  # how alike a word is that was meant: flor and floor, not foo


@dataclass
class Expressions(Tokens):
    """Reads expressions over the names bound and the tensors met so far."""

    depth: int = 0
    tensors: dict[str, TensorSymbol] = field(default_factory=dict)
    bound: dict[str, Any] = field(default_factory=dict)
    monoids: dict[str, Monoid] = field(default_factory=dict)

    def listed(self) -> list[Any]:
        self.need("(")
        values = [self.expression()]
        while self.take(","):
            if self.next.text == ")":
                break
            values.append(self.expression())
        self.need(")")
        return values

    def expression(self, least: int = 0) -> Any:
        """An expression whose operators bind at least as strongly as `least` (precedence climbing)."""
        self.depth += 1
        if self.depth > _DEPTH:
            raise self.error(self.next.at, "the nesting", f"it is deeper than {_DEPTH} levels", "bind parts to names")
        left = self.prefix()
        while self.next.kind in ("op", "name") and _BINARY.get(self.next.text, -1) >= least:
            token = self.next
            level = _BINARY[token.text]
            self.position += 1
            right = self.expression(level if token.text == "**" else level + 1)
            left = self.binary(token, left, right)
            if level == _BINARY["<"] and _BINARY.get(self.next.text) == level:
                raise self.unexpected("a comparison has two sides; join two with `and`")
        self.depth -= 1
        return left

    def prefix(self) -> Any:
        at = self.next.at
        if self.take("not"):
            c = self.condition(self.expression(_NOT), at)
            return CONSTRUCTORS["not"](c)
        if self.take("-"):
            return -self.value(self.expression(_SIGN), at)
        if self.take("+"):
            return self.value(self.expression(_SIGN), at)
        return self.postfix(self.atom(), at)

    def value(self, value: Any, at: int) -> Any:
        return number_operand(value, f"ra.parse, at character {at}")

    def condition(self, value: Any, at: int) -> Boolean:
        if isinstance(value, Boolean) and not maps.is_number(value):
            return value
        decl = getattr(value, "decl", None)
        fix = (
            f"compare it, e.g. {decl} > 0, or declare it: tensors {decl} bool" if decl else "compare it, e.g. x[j] > 0"
        )
        raise self.error(at, f"{decl or value}", "it is a number, not a condition", fix)

    def binary(self, token: Token, left: Any, right: Any) -> Any:
        op, at = token.text, token.at
        if op in ("and", "or"):
            return CONSTRUCTORS[op](self.condition(left, at), self.condition(right, at))
        if op in ("==", "!="):
            where = f"ra.parse, at character {at}"
            return (f.eq if op == "==" else f.ne)(operand(left, where), operand(right, where))
        a, b = self.value(left, at), self.value(right, at)
        if op == "**":
            return self.power(a, b, at)
        if op in ("+", "-"):
            return a + b if op == "+" else a - b
        if op in ("*", "/"):
            return a * b if op == "*" else operand(a / b, f"ra.parse, at character {at}")
        try:
            return {"<": sympy.Lt, "<=": sympy.Le, ">": sympy.Gt, ">=": sympy.Ge}[op](a, b)
        except TypeError:
            sides = f"{a} {op} {b}"
            raise self.error(at, sides, "SymPy has no order of these", "compare numbers that are no nan") from None

    def power(self, a: Any, b: Any, at: int) -> Any:
        check_power(a, b, f"ra.parse, at character {at}")
        return operand(a**b, f"ra.parse, at character {at}")

    def postfix(self, value: Any, at: int) -> Any:
        if isinstance(value, tuple) and self.take("."):
            token = self.next
            self.position += 1
            if isinstance(value, reductions.TopK) and token.text in ("values", "indices"):
                return getattr(value, token.text)
            if token.kind == "number" and token.text.isdigit() and int(token.text) < len(value):
                return value[int(token.text)]
            raise self.error(token.at, repr(token.text), "there is no such part", "use .values, .indices or .0")
        return value

    def atom(self) -> Any:
        token = self.next
        if token.kind == "number":
            return self.number()
        if self.take("("):
            value = self.expression()
            self.need(")")
            return value
        name = self.kind("name", "an expression")
        if name in ("index", "size"):
            return self.position_of(name)
        if name in REDUCTION_WORDS:
            return self.reduction(name)
        if name in _CONSTANTS:
            return _CONSTANTS[name]
        if name in RESERVED:
            return self.map(name, token.at)
        return self.spelled(name) if self.is_spelling(name) else self.named(name, token.at)

    def is_spelling(self, name: str) -> bool:
        """Whether what follows is a call of a spelling: these words are free as names of tensors and bindings."""
        if name in SPELLINGS:
            return self.next.text == "("
        if name not in STATISTICS or self.next.text != "[":
            return False
        place = self.position
        while self.tokens[place].text not in ("]", ":") and self.tokens[place].kind != "end":
            place += 1
        return self.tokens[place].text == ":" or self.tokens[min(place + 1, len(self.tokens) - 1)].text == "("

    def spelled(self, name: str) -> Any:
        if name in SPELLINGS:
            wanted, build = SPELLINGS[name]
            return build(*self.arguments(name, wanted))
        self.need("[")
        axes, (wanted, reduce, option) = self.axes(), STATISTICS[name]
        options = {option: self.option(name, option)} if self.take(":") else {}
        self.need("]")
        at, values = self.next.at, self.arguments(name, wanted)
        if name == "count":
            values[0] = self.condition(values[0], at)
        return reduce(*values, axes, **options)

    def arguments(self, name: str, wanted: int) -> list[Any]:
        at = self.next.at
        values = self.listed()
        if len(values) != wanted:
            raise self.error(at, f"{len(values)} argument(s) of {name}", f"it takes {wanted}", "see the grammar")
        return values

    def option(self, name: str, option: str) -> Any:
        at = self.next.at
        if not option:
            raise self.error(at, f"an option of {name}", "it has none", f"write {name}[j](…)")
        value = self.expression()
        return int(value) if option == "ddof" and getattr(value, "is_Integer", False) else value

    def number(self) -> Any:
        token = self.next
        self.position += 1
        try:
            value = int(token.text) if token.text.isdigit() else float(token.text)
        except ValueError:
            raise self.error(token.at, "the number", "it has too many digits", "write it in powers") from None
        if value == float("inf"):
            raise self.error(token.at, f"the number {token.text}", "it is beyond float64", "write oo for infinity")
        if not value and any(int(c) for c in token.text.lower().partition("e")[0] if c.isdigit()):
            why = "it is nearer to 0 than to any other float64"
            raise self.error(token.at, f"the number {token.text}", why, "write a power, 10**-400, which is exact, or 0")
        imaginary = self.next.text == "i" and self.next.at == token.at + len(token.text) and self.take("i")
        return exact_number(value) * (sympy.I if imaginary else 1)

    def named(self, name: str, at: int) -> Any:
        found = self.bound[name] if name in self.bound else self.declared(name, *self.place(), at)
        if self.next.text == "(":
            raise self.uncalled(name, at, reduces=self.tokens[self.position - 1].text == "]")
        return found

    def uncalled(self, name: str, at: int, reduces: bool) -> RedalgError:
        """What is written like a call and is none: a function of another library, a reduction, a forgotten ``*``."""
        if name in STATISTICS and not reduces:
            return self.without_axes(name, at)
        if name in self.bound:
            return self.error(at, f"a call of {name}", "it is a value", "write * for products")
        known = sorted({*REDUCTION_WORDS, *STATISTICS}) if reduces else sorted({*MAP_WORDS, *SPELLINGS})
        near = get_close_matches(name, known, 3, _NEAR)
        kind = "reduction" if reduces else "function"
        fix = f"write {' or '.join(near)}" if near else f"they are {', '.join(known)}"
        return self.error(at, f"the {kind} {name!r}", f"there is no {kind} of this name", fix)

    def place(self) -> tuple[tuple[str, ...], tuple[Dimension, ...]]:
        """The axes of a tensor, and the dimensions of windows of it."""
        if self.take("[") is None:
            return (), ()
        at, start = self.next.at, self.position
        texts = [""]
        while self.next.text not in ("]", "the end"):
            texts = [*texts, ""] if self.next.text == "," else [*texts[:-1], texts[-1] + self.next.text]
            self.position += 1
        if is_affine("".join(texts)):
            where = f"ra.parse, at character {at}"
            axes, windows = dimensions(texts, where)
            axes = axis_names(axes, where)
        else:
            self.position, windows = start, ()
            axes = self.axes()
        self.need("]")
        return axes, windows

    def declared(
        self,
        name: str,
        axes: tuple[str, ...],
        windows: tuple[Dimension, ...],
        at: int,
        domain: frozenset[str] | None = None,
    ) -> Any:
        found = self.tensors.get(name)
        if found is None:
            if name in self.bound:
                raise self.error(at, f"the tensor {name!r}", "the name is bound to an expression", "rename one")
            check_name(name, "tensor", f"ra.parse, at character {at}")
            found = self.tensors[name] = declare(name, axes, domain or frozenset(), False, windows)
            return found
        reading = found.reading(axes, windows, f"ra.parse, at character {at}")
        if reading is not found and found.decl.rank == reading.decl.rank and domain in (None, found.domain):
            return self.tensors.setdefault(reading.decl.name, reading)
        if reading is not found or domain is not None:
            here = f"{name}[{','.join(map(str, windows or axes))}]" if axes else name
            raise self.error(at, here, f"it was {found.decl} before: two declarations of one name", "use another name")
        return found

    def axes(self) -> tuple[str, ...]:
        names = [self.kind("name", "an axis")]
        while self.take(","):
            names.append(self.kind("name", "an axis"))
        return axis_names(names, "ra.parse")

    def position_of(self, name: str) -> Any:
        close = {"[": "]", "(": ")"}.get(self.take("[", "(") or "")
        if close is None:
            raise self.unexpected(f"{name}[axis] is expected")
        axis = self.kind("name", "an axis")
        self.need(close)
        return index(axis) if name == "index" else size(axis)

    def map(self, name: str, at: int) -> Any:
        if name == "cast":
            self.need("(")
            value = self.expression()
            self.need(",")
            result = maps.cast(value, self.kind("name", "a dtype"))
            self.need(")")
            return result
        if name not in (*UNARY_WORDS, "where", "maximum", "minimum", "eq", "ne") or self.next.text != "(":
            raise self.error(at, repr(name), "it is a word of the grammar, used out of place", "write name(arguments)")
        values = self.listed()
        fixed = {"where": 3, "eq": 2, "ne": 2, **dict.fromkeys(UNARY_WORDS, 1)}.get(name, len(values))
        if len(values) != fixed:
            raise self.error(at, f"{len(values)} argument(s) of {name}", f"it takes {fixed}", "see the grammar")
        if name == "where":
            values[0] = self.condition(values[0], at)
        return getattr(maps, name)(*values)

    def without_axes(self, name: str, at: int) -> RedalgError:
        other = {"max": ", or maximum(a, b) of two values", "min": ", or minimum(a, b) of two values"}.get(name, "")
        why, fix = "a reduction says over which axes it goes", f"write {name}[j](…){other}"
        return self.error(at, f"{name} without an axis", why, fix)

    def reduction(self, name: str) -> Any:
        at = self.next.at
        if self.take("[") is None:
            raise self.without_axes(name, at)
        axes = self.axes()
        if name == "topk":
            return self.topk(axes)
        if name == "reduce":
            return self.reduce(axes)
        self.need("]")
        values, at = self.listed(), self.next.at
        if len(values) != 1:
            raise self.error(at, f"{len(values)} arguments of {name}", "it takes one", "reduce one expression")
        body = self.condition(values[0], at) if name in ("any", "all") else values[0]
        return getattr(reductions, name)(body, axes)

    def topk(self, axes: tuple[str, ...]) -> Any:
        self.need(":")
        k, at = self.kind("number", "the number of elements"), self.next.at
        name = self.kind("name", "the new axis") if self.take(":") else None
        self.need("]")
        values = self.listed()
        if len(values) != 1 or not k.isdigit():
            raise self.error(at, "topk", "it takes one expression and an integer", "write topk[j:4](x[j]).values")
        return reductions.topk(values[0], int(k), axes, name)

    def reduce(self, axes: tuple[str, ...]) -> Any:
        self.need(":")
        at = self.next.at
        name = self.kind("name", "the name of a monoid")
        if name not in self.monoids:
            raise self.error(at, f"the monoid {name!r}", "it is not defined", f"write `monoid {name} = …` first")
        self.need("]")
        parts = reductions.reduce(self.listed(), axes, self.monoids[name])
        return parts if len(parts) > 1 or self.next.text == "." else parts[0]
