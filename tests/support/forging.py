"""Documents written by hand: a spec, a form, and every obligation the two entail, so that only their truth is open.

Expressions are nested tuples of an operation and its arguments ("sum:j" reduces over j). A string is a tensor, ``$u`` a
part of the state; axes stand in brackets, and ``+`` (positive), ``%`` (nonnegative), ``?`` (Boolean) before the name.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from fractions import Fraction
from typing import Any

from redalg.proofs.certificate import Certificate
from redalg.proofs.checker.required import required
from redalg.proofs.document.document import Anchor, Document, Monoid, Move, Output, Pass, Slot, Stage
from redalg.proofs.document.errors import CertificateError
from redalg.proofs.document.terms import Leaf, Term, Terms, walk

Expression = Any
DOMAINS = {"+": "positive", "%": "nonnegative", "?": "bool", "#": "integer"}
IDENTITY = {"sum": 0, "prod": 1, "max": "-oo", "min": "oo", "any": False, "all": True}


class Forge:
    """The terms and parts of one document."""

    def __init__(self, axis: str = "j") -> None:
        self.terms, self.axis = Terms(), tuple(axis.split(","))

    def __call__(self, e: Expression) -> Term:
        t = self.terms
        if isinstance(e, Term):
            return e
        if isinstance(e, bool):
            return t("true" if e else "false")
        if isinstance(e, int | Fraction):
            return t.const(e)
        if isinstance(e, str):
            return t.special(e) if e in ("oo", "-oo", "nan", "pi", "i") else self._leaf(e)
        op, *args = e
        if ":" in op:  # "sum:j", "topk_values:j:2:k"
            kind, axes, *extra = op.split(":")
            beside: Any = (int(extra[0]), int(extra[1]) if kind == "monoid" else extra[1]) if extra else None
            return t.reduce(kind, tuple(axes.split(",")), *map(self, args), extra=beside)
        if op in ("size", "index"):
            return t(op, attr=args[0])
        if op == "cast":
            return t("cast", self(args[1]), attr=args[0])
        if op == "neg":
            return t.mul(t.const(-1), self(args[0]))
        if op == "sub":
            return t.sub(*map(self, args))
        if op == "div":
            return t.div(*map(self, args))
        return t(op, *map(self, args))

    def _leaf(self, text: str) -> Term:
        found = re.fullmatch(r"([$]?)([+%?#]*)([^\[]+)(?:\[(.*)\])?", text)
        assert found is not None, text
        state, domain, name, axes = found.groups()
        domain = "#+" if text == "$n" else domain
        op, leaf = ("state" if state else "tensor"), frozenset(DOMAINS[c] for c in domain)
        return self.terms(op, attr=Leaf(name, tuple(axes.split(",")) if axes else (), leaf))

    # --- parts ---

    def slot(self, name: str, kind: str, lift: Expression, axes: str = "", moves: Any = (), **more: Any) -> Slot:
        lifts = tuple(map(self, lift)) if isinstance(lift, list) else (self(lift),)
        many = {"argmax": ("value", "at"), "argmin": ("value", "at"), "topk": ("values", "indices")}.get(kind)
        parts = more.pop("parts", None) or (tuple(f"{name} {x}" for x in many) if many else (name,))
        identity = None
        if kind in IDENTITY and not more.get("average"):
            identity = (self(IDENTITY[kind]),)
        identity = tuple(map(self, more.pop("identity"))) if "identity" in more else identity
        moved = tuple(Move(self(c), s) for c, s in moves)
        own = tuple(axes.split(",")) if axes else ()
        return Slot(name, kind, own, lifts, parts, identity, moves=moved, **more)

    def extremum(self, name: str, target: Expression, axes: str = "", kind: str = "add") -> Anchor:
        own = tuple(axes.split(",")) if axes else ()
        return Anchor(name, own, kind, "extremum", None, self(target), None)

    def mean(self, name: str, generator: Expression, shift: Expression, axes: str = "", kind: str = "add") -> Anchor:
        own = tuple(axes.split(",")) if axes else ()
        return Anchor(name, own, kind, "mean", self(generator), None, self(shift))

    def monoid(
        self, name: str, combined: list[Any], identity: list[Any], commutative: bool = False, **more: Any
    ) -> Any:
        acts = tuple((k, tuple(map(self, v))) for k, v in more.items())
        return Monoid(name, commutative, tuple(map(self, identity)), tuple(map(self, combined)), acts)

    def one_pass(self, *parts: Anchor | Slot, exports: dict[str, Any] | None = None) -> Pass:
        anchors = tuple(x for x in parts if isinstance(x, Anchor))
        slots = tuple(x for x in parts if isinstance(x, Slot))
        given = tuple((k, self(v)) for k, v in (exports or {}).items())
        return Pass(tuple(x.name for x in parts), anchors, slots, given)

    def stage(self, node: Expression, *pairs: tuple[Expression, Expression], name: str = "s") -> Stage:
        """A separated sum: its body is Σ coefficient·generator over the pairs."""
        generators, coefficients = tuple(self(g) for g, _ in pairs), tuple(self(h) for _, h in pairs)
        return Stage(name, self(node), "(sum, ×)", len(pairs) or None, generators, coefficients)

    def document(
        self,
        spec: dict[str, Expression],
        form: Pass | tuple[Pass, ...] | list[Anchor | Slot],
        outputs: dict[str, Expression],
        *stages: Stage,
        assumptions: tuple[str, ...] = (),
        monoids: tuple[Any, ...] = (),
        empty: dict[str, Expression] | None = None,
    ) -> Document:
        """The document with its obligations; sums of elements and other reductions are stages by themselves."""
        if isinstance(form, list):
            form = self.one_pass(*form)
        passes = form if isinstance(form, tuple) else (form,)
        terms = {k: self(v) for k, v in spec.items()}
        found = tuple(
            Output(k, self(v), tuple(sorted(terms[k].axes)), bool(terms[k].axes & set(self.axis)))
            for k, v in outputs.items()
        )
        nothing = {k: self(v) for k, v in (empty or {}).items()}
        stated = stages or tuple(self._stages(terms))
        doc = Document(self.terms, self.axis, terms, nothing, passes, found, stated, assumptions, monoids)
        try:
            return replace(doc, obligations=required(doc))
        except (CertificateError, ValueError):  # so ill-formed that it has no obligations
            return doc

    def _stages(self, spec: dict[str, Term]) -> Any:
        number = 0
        for t in walk(*spec.values()):
            if t.op == "reduce" and set(t.attr.axes) == set(self.axis):
                number += 1
                kind, (body, *_) = t.attr.kind, t.args
                pair = {"sum": "(sum, ×)", "prod": "(prod, power)", "any": "(any, and)", "all": "(all, or)"}
                pair["monoid"] = "(monoid, action)"
                alone = kind == "sum" and not any(
                    x.op == "reduce" and set(x.attr.axes) & set(self.axis) for x in walk(body)
                )
                pairs = ((body,), (self.terms.const(1),)) if alone else ((), ())
                name = pair.get(kind, f"({kind}, monotone)")
                yield Stage(f"stage{number}", t, name, 1 if alone else None, *pairs)


def text_of(doc: Document) -> str:
    """The document as anybody may hand it in."""
    return Certificate(doc).to_json()


def rewritten(doc: Document) -> Document:
    """The same document from its text, with its obligations derived anew."""
    from redalg.proofs.document.reading import Reader

    read = Reader(json.loads(text_of(doc))).document(sealed=False)
    return replace(read, obligations=required(read))
