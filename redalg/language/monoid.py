"""A user's monoid: an associative combination of scalars or tuples, written on SymPy expressions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import sympy

from redalg.errors import RedalgError
from redalg.graph import node as g
from redalg.graph.node import Node
from redalg.language.leaves import check_normal
from redalg.language.operand import number_operand
from redalg.language.sympy_bridge import refuse_unsupported, settle, to_node, to_sympy

Action = tuple[str, Callable[[Any, Any], Any]]
_LEFT, _RIGHT, _BY = "a", "b", "h"


def parts(side: str, width: int) -> tuple[Node, ...]:
    """The leaves that stand for the parts of one argument of `combine`: ``a0, a1, …`` and ``b0, b1, …``."""
    return tuple(g.state(f"{side}{i}") for i in range(width))


class Monoid:
    """``Monoid(name, combine, identity, commutative=False, actions=())``.

    `combine(a, b)` is a Python function on SymPy expressions (or tuples of them, as many as `identity` has), called
    once with symbols; `identity` is a number or a tuple of numbers; each of `actions` is
    ``(name, function(state, h))``, a map of the state by a scalar h that distributes over `combine`. Laws are
    obligations of a form, not claims.
    Equal content is equal; pickles by its graph, whatever the functions were.

    Raises: RedalgError if `combine`, `identity` or an action does not give numbers of the right width.

    >>> logsum = Monoid("max", lambda a, b: sympy.Max(a, b), -sympy.oo, commutative=True)
    >>> logsum.width, logsum.commutative
    (1, True)
    >>> affine = Monoid("affine", lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (1, 0))
    >>> affine.identity, affine.combine((2, 3), (4, 5)), affine.actions
    ((1, 0), (8, 17), ())
    """

    name: str
    width: int
    single: bool  # elements are scalars, not tuples of one
    commutative: bool
    combined: tuple[Node, ...]  # over the leaves a0… and b0…
    identity_nodes: tuple[Node, ...]
    acted: tuple[tuple[str, tuple[Node, ...]], ...]  # over a0… and h
    digest: str

    def __init__(
        self,
        name: str,
        combine: Callable[[Any, Any], Any],
        identity: Any,
        commutative: bool = False,
        actions: Sequence[Action] = (),
    ) -> None:
        if not isinstance(name, str) or not name.isidentifier():
            raise RedalgError(
                f"the name {name!r}", "ra.Monoid", "it is not an identifier", 'use a name such as "affine"'
            )
        check_normal(name, "monoid", "ra.Monoid")
        where = f"ra.Monoid({name!r})"
        self.single = not isinstance(identity, (tuple, list))
        neutral = (identity,) if self.single else tuple(identity)
        width = len(neutral)
        if not width:
            raise RedalgError(
                "identity=()", where, "an element has at least one part", "give a number or a tuple of them"
            )
        a, b = self._symbols(_LEFT, width), self._symbols(_RIGHT, width)
        combined = self._called(combine, (self._wrap(a), self._wrap(b)), width, f"combine of {where}")
        acted = []
        for action in actions:
            if not (isinstance(action, tuple) and len(action) == 2 and isinstance(action[0], str)):
                raise RedalgError(
                    f"the action {action!r}", where, "it is not a pair", "write (name, function(state, h))"
                )
            h = sympy.Symbol(_BY)
            acted.append((action[0], self._called(action[1], (self._wrap(a), h), width, f"an action of {where}")))
        nodes = tuple(to_node(number_operand(v, f"identity of {where}")) for v in neutral)
        self._fill(name, combined, nodes, bool(commutative), tuple(acted), self.single)

    def _fill(
        self,
        name: str,
        combined: tuple[Node, ...],
        identity: tuple[Node, ...],
        commutative: bool,
        acted: tuple[tuple[str, tuple[Node, ...]], ...],
        single: bool,
    ) -> None:
        self.name, self.combined, self.identity_nodes = name, combined, identity
        self.width, self.commutative, self.acted, self.single = len(identity), commutative, acted, single
        h = hashlib.blake2b(f"{name}|{commutative}|{single}".encode(), digest_size=16)
        for group in (combined, identity, *(nodes for _, nodes in acted)):
            h.update(b"".join(n.digest for n in group) + b";")
        h.update("|".join(n for n, _ in acted).encode())
        self.digest = h.hexdigest()

    @classmethod
    def from_nodes(cls, *content: Any) -> Monoid:
        """A monoid from its graphs: (name, combined, identity, commutative, acted, single)."""
        monoid = cls.__new__(cls)
        monoid._fill(*content)
        return monoid

    def __reduce__(self) -> tuple[Any, ...]:
        content = (self.name, self.combined, self.identity_nodes, self.commutative, self.acted, self.single)
        return Monoid.from_nodes, content

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Monoid) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Monoid({self.name!r}, width={self.width}, #{self.digest[:12]})"

    @property
    def identity(self) -> Any:
        """The neutral element: a number, or a tuple of them."""
        values = tuple(to_sympy(n) for n in self.identity_nodes)
        return values[0] if self.single else values

    @property
    def actions(self) -> tuple[Action, ...]:
        """Pairs of a name and a function of a state and a scalar."""

        def make(nodes: tuple[Node, ...]) -> Callable[[Any, Any], Any]:
            def act(state: Any, h: Any) -> Any:
                mapping = dict(zip(parts(_LEFT, self.width), self._given(state), strict=True))
                return self._result(nodes, mapping | {g.state(_BY): to_node(h, strict=False)})

            return act

        return tuple((name, make(nodes)) for name, nodes in self.acted)

    def combine(self, a: Any, b: Any) -> Any:
        """The combination of two scalars or tuples of SymPy expressions."""
        left, right = self._given(a), self._given(b)
        combined = self.combine_nodes(left, right)
        values = tuple(to_sympy(n) for n in combined)
        return values[0] if self.single else values

    def combine_nodes(self, a: Sequence[Node], b: Sequence[Node]) -> tuple[Node, ...]:
        """The combination of two tuples of nodes, evaluation order kept."""
        mapping = dict(zip(parts(_LEFT, self.width) + parts(_RIGHT, self.width), (*a, *b), strict=True))
        return tuple(g.substitute(n, mapping) for n in self.combined)

    def action_nodes(self, name: str, state: Sequence[Node], h: Node) -> tuple[Node, ...]:
        """The named action applied to a tuple of nodes."""
        mapping = dict(zip(parts(_LEFT, self.width), state, strict=True)) | {g.state(_BY): h}
        return tuple(g.substitute(n, mapping) for n in dict(self.acted)[name])

    def _given(self, value: Any) -> tuple[Node, ...]:
        values = (value,) if self.single else tuple(value)
        return tuple(to_node(number_operand(v, f"Monoid {self.name!r}"), strict=False) for v in values)

    def _result(self, nodes: tuple[Node, ...], mapping: dict[Node, Node]) -> Any:
        values = tuple(to_sympy(g.substitute(n, mapping)) for n in nodes)
        return values[0] if self.single else values

    def _wrap(self, symbols: tuple[Any, ...]) -> Any:
        return symbols[0] if self.single else symbols

    @staticmethod
    def _symbols(side: str, width: int) -> tuple[Any, ...]:
        return tuple(sympy.Symbol(f"{side}{i}") for i in range(width))

    def _called(self, function: Any, args: tuple[Any, ...], width: int, where: str) -> tuple[Node, ...]:
        if not callable(function):
            raise RedalgError(f"{function!r}", where, "it is not a function", "pass a function of two arguments")
        try:
            result = function(*args)
        except RedalgError:
            raise
        except Exception as error:
            why = f"called with {', '.join(map(str, args))} it raised {type(error).__name__}: {error}"
            raise RedalgError(f"{function!r}", where, why, "pass a function of two arguments") from error
        values = (result,) if self.single else result
        if not isinstance(values, (tuple, list)) or len(values) != width:
            raise RedalgError(f"the result {result!r}", where, f"{width} part(s) are expected", "match the identity")
        known = {sympy.Symbol(n.attr.name): n for side in (_LEFT, _RIGHT) for n in parts(side, width)}
        known[sympy.Symbol(_BY)] = g.state(_BY)
        nodes = tuple(to_node(number_operand(v, where), known, strict=False) for v in values)
        refuse_unsupported(*nodes, where=where)
        return tuple(settle(n, known) for n in nodes)
