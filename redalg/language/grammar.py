r"""Specs from text: a grammar read by recursive descent; text is never evaluated.

::

    text      = statement {(";" | newline) statement}        the last one is `return`; # starts a comment
    statement = NAME "=" expr
              | "tensors" decl {"," decl}                    declared order and domains
              | "monoid" NAME "=" group "identity" group ["commutative"] {"action" NAME "=" group}
              | "order" NAME "=" {AXIS}  |  "empty" NAME "=" expr  |  "dtype" NAME "=" NAME
              | "return" NAME ["=" expr] {"," NAME ["=" expr]}
    decl      = NAME ["[" affine {"," affine} "]"] {DOMAIN | "between" "(" expr "," expr ")"}
    affine    = [N "*"] AXIS [":" N] {"+" [N "*"] AXIS [":" N]} ["-" N]   windows: steps, lengths of axes, zeros around
    group     = expr | "(" expr "," {expr ","} ")"           over a0, a1, … and b0, b1, …, actions over a0, … and h
    expr      = or and not, < <= > >= == !=, + -, * /, - (sign), ** (binds strongest, to the right)
    atom      = NUMBER ["i"] | oo | inf | nan | pi | true | false | "(" expr ")" | NAME
              | NAME "[" affine {"," affine} "]"
              | index "[" AXIS "]" | size "[" AXIS "]"
              | MAP "(" expr {"," expr} ")"                  exp log sqrt … where cast(x, DTYPE)
              | REDUCTION "[" axes "]" "(" expr ")"          sum prod max … logsumexp
              | SPELLING "(" expr {"," expr} ")"             silu gelu clip logaddexp isnan
              | STATISTIC "[" axes [":" expr] "]" "(" … ")"  var std cov [j:ddof], norm [j:p], count softmax log_softmax
              | topk "[" axes ":" K [":" AXIS] "]" "(" expr ")" (".values" | ".indices")
              | reduce "[" axes ":" MONOID "]" "(" expr {"," expr} ")" ["." PART]
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import sympy

from redalg.errors import RedalgError
from redalg.graph import node as g
from redalg.language.expressions import Expressions
from redalg.language.leaves import check_normal, make_domain
from redalg.language.monoid import Monoid
from redalg.language.operand import number_operand
from redalg.language.spec import Spec
from redalg.language.sympy_bridge import settle, to_node
from redalg.text.words import REDUCTION_WORDS, RESERVED

OPTIONS = frozenset({"tensors", "order", "empty", "dtypes"})  # of ra.Spec


def parse(text: str) -> Spec:
    """The spec a text describes; ``parse(str(spec)) == spec``.

    Raises: RedalgError with the place, for anything that is not of the grammar (see the module).

    >>> print(parse("m = max[j](x[j]); s = sum[j](exp(x[j] - m)); return s"))
    max1 = max[j](x[j]); s = sum[j](exp(x[j] - max1)); return s
    """
    if not isinstance(text, str):
        raise RedalgError(f"a {type(text).__name__}", "ra.parse", "a spec is parsed from a string", "pass a string")
    return _Parser(text).spec()


@dataclass
class _Parser(Expressions):
    order: dict[str, list[str]] = field(default_factory=dict)
    empty: dict[str, Any] = field(default_factory=dict)
    dtypes: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, Any] = field(default_factory=dict)

    def spec(self) -> Spec:
        while not self.outputs:
            if not self.take(";"):
                self.statement()
                if self.next.kind != "end":
                    self.need(";")
        while self.take(";"):
            pass
        if self.next.kind != "end":
            raise self.unexpected("`return` is the last statement")
        used = list(self.tensors.values())
        return Spec(tensors=used, order=self.order, empty=self.empty, dtypes=self.dtypes, **self.outputs)

    def statement(self) -> None:
        if self.next.kind == "end":
            last = next(reversed(self.bound), "y")
            why, fix = "a `return` statement is missing", f"end with `return {last}`"
            raise self.error(self.next.at, f"{self.next.text!r}", why, fix)
        at = self.next.at
        name = self.kind("name", "a statement")
        if name == "return":
            return self.returned()
        if name in ("tensors", "monoid", "order", "empty", "dtype") and self.next.kind == "name":
            return getattr(self, f"{name}_statement")()
        if name in RESERVED or name in self.tensors or name in self.bound:
            raise self.error(at, f"the name {name!r}", *self.taken(name))
        self.need("=")
        self.bound[name] = self.expression()
        return None

    def taken(self, name: str) -> tuple[str, str]:
        """Why a statement cannot bind this name, and what to write instead."""
        if name not in RESERVED:
            return "it already has a meaning", "bind another name"
        if self.next.text in ("(", "["):
            call = f"{name}[j](…)" if name in REDUCTION_WORDS else f"{name}(…)"
            return "a statement is `NAME = expression` or `return`", f"return y = {call}"
        return "it is a word of the grammar", "bind another name"

    def returned(self) -> None:
        while True:
            at = self.next.at
            name = self.kind("name", "the name of an output")
            if name in self.outputs:
                raise self.error(at, f"the output {name!r}", "it is returned twice", "name each output once")
            if name in OPTIONS:
                why = "it is an argument of ra.Spec, not a name for an output"
                raise self.error(at, f"the output {name!r}", why, f"call it {name}_")
            self.outputs[name] = self.expression() if self.take("=") else self.named(name, at)
            if not self.take(","):
                return

    def tensors_statement(self) -> None:
        while True:
            at = self.next.at
            name = self.kind("name", "a tensor")
            axes, windows = self.place()
            words: dict[str, Any] = {}
            while self.next.kind == "name":
                word = self.kind("name", "a domain")
                words[word] = tuple(self.listed()) if word == "between" else True
            self.declared(name, axes, windows, at, make_domain(words, "ra.parse"))
            if not self.take(","):
                return

    def order_statement(self) -> None:
        name = self.kind("name", "an output")
        self.need("=")
        self.order[name] = []
        while self.next.kind == "name" or self.take(","):
            self.order[name].append(self.kind("name", "an axis"))

    def empty_statement(self) -> None:
        name = self.kind("name", "an output")
        self.need("=")
        self.empty[name] = self.expression()

    def dtype_statement(self) -> None:
        name = self.kind("name", "an output")
        self.need("=")
        self.dtypes[name] = self.kind("name", "a format or a tensor")

    def monoid_statement(self) -> None:
        at = self.next.at
        name = self.kind("name", "the name of a monoid")
        if name in self.monoids:
            raise self.error(at, f"the monoid {name!r}", "it is defined twice", "rename one")
        check_normal(name, "monoid", f"ra.parse, at character {at}")
        self.need("=")
        combined, single = self.group(None)
        self.need("identity")
        identity, _ = self.group(len(combined))
        commutative, acted = self.take("commutative") is not None, []
        while self.take("action"):
            action = self.kind("name", "the name of an action")
            self.need("=")
            acted.append((action, self.group(len(combined))[0]))
        self.monoids[name] = Monoid.from_nodes(name, combined, identity, commutative, tuple(acted), single)

    def group(self, width: int | None) -> tuple[tuple[g.Node, ...], bool]:
        """Expressions over the parts of a monoid's arguments."""
        at, outer = self.next.at, self.bound
        leaves = [g.state(f"{side}{i}") for side in "ab" for i in range(64)] + [g.state("h")]
        known = {sympy.Symbol(n.attr.name): n for n in leaves}
        self.bound = {s.name: s for s in known}
        single = not self.several_follow()
        values = [self.expression()] if single else self.listed()
        self.bound = outer
        if width not in (None, len(values)):
            raise self.error(at, f"{len(values)} part(s)", f"the monoid has {width}", "give as many")
        nodes = (to_node(number_operand(v, "ra.parse"), symbols=known) for v in values)
        return tuple(settle(n, known) for n in nodes), single

    def several_follow(self) -> bool:
        """Whether the parenthesis that opens here closes a list: it has a comma at its own level."""
        if self.next.text != "(":
            return False
        nesting = 0
        for token in self.tokens[self.position :]:
            nesting += (token.text in ("(", "[")) - (token.text in (")", "]"))
            if nesting == 0:
                return False
            if nesting == 1 and token.text == ",":
                return True
        return False
