"""Evaluate a form's SymPy expressions (`form.lift`, `.update`, `.combine`, `.finalize`) in any scalar arithmetic.

Only for expressions without axes other than the streamed one: every symbol is then a number, found by its name. The
walk goes by the name of a SymPy function, so that nothing of the library takes part in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

import sympy

from redalg.testing.arithmetic import Arithmetic
from redalg.testing.evaluator import Evaluator

COMPARISONS = {
    "StrictLessThan": ("less", False),
    "LessThan": ("less", True),
    "StrictGreaterThan": ("more", False),
    "GreaterThan": ("more", True),
    "Equality": ("equal", True),
    "Unequality": ("equal", False),
    "eq": ("equal", True),
    "ne": ("equal", False),
}
EXTREMA = {"maximum": "maximum", "minimum": "minimum", "Max": "maximum", "Min": "minimum"}
NAMES = {"Abs": "abs", "sign": "sign", "floor": "floor", "ceiling": "ceil"}


class Reader:
    """The value of expressions whose symbols are the keys of `env`."""

    def __init__(self, arithmetic: Arithmetic, env: Mapping[str, Any]) -> None:
        self.arithmetic, self.env = arithmetic, env
        self.memo: dict[sympy.Basic, Any] = {}

    def value(self, e: sympy.Basic) -> Any:
        if e not in self.memo:
            self.memo[e] = self._compute(e)
        return self.memo[e]

    def _compute(self, e: sympy.Basic) -> Any:
        ar, kind = self.arithmetic, type(e).__name__
        if isinstance(e, sympy.Symbol):
            found = self.env[e.name]
            return found if isinstance(found, bool) else ar.number(found)
        if isinstance(e, sympy.Rational):
            return ar.number(Fraction(e.p, e.q))
        if e in (sympy.oo, -sympy.oo, sympy.nan):
            return ar.number(float(e))
        if e in (sympy.true, sympy.false):
            return bool(e)
        if kind == "where":
            condition = self.value(e.args[0])
            return self.value(e.args[1 if condition else 2])
        if kind == "Piecewise":
            return self.value(next(branch for branch, condition in e.args if self.value(condition)))
        return self._apply(kind, [self.value(a) for a in e.args])

    def _apply(self, kind: str, args: list[Any]) -> Any:
        ar = self.arithmetic
        if kind in ("Add", "Mul", "Pow"):
            return {"Add": lambda: ar.add(args), "Mul": lambda: ar.mul(args), "Pow": lambda: ar.power(*args)}[kind]()
        if kind in EXTREMA:
            return Evaluator(ar, {}, {}).extremum(EXTREMA[kind], args)
        if kind in COMPARISONS:
            return self._compare(*COMPARISONS[kind], *args)
        if kind in ("And", "Or", "Not"):
            return {"And": all, "Or": any, "Not": lambda a: not a[0]}[kind](args)
        return ar.unary(NAMES.get(kind, kind), args[0])

    def _compare(self, relation: str, flag: bool, a: Any, b: Any) -> bool | None:
        if relation == "equal":
            equal = a == b if isinstance(a, bool) else self.arithmetic.equal(a, b)
            return equal if flag else not equal
        return self.arithmetic.less(a, b, flag) if relation == "less" else self.arithmetic.less(b, a, flag)


State = dict[str, Any]


def lift(form: Any, arithmetic: Arithmetic, element: Mapping[str, Any]) -> State:
    """The state of one element, by `form.lift`."""
    return _all(form.lift, arithmetic, element)


def update(form: Any, arithmetic: Arithmetic, state: State, element: Mapping[str, Any]) -> State:
    """The state after one more element, by `form.update`."""
    return _all(form.update, arithmetic, {**state, **element})


def combine(form: Any, arithmetic: Arithmetic, a: State, b: State) -> State:
    """The state of a's stream followed by b's, by `form.combine`."""
    env = {f"{k}_a": v for k, v in a.items()} | {f"{k}_b": v for k, v in b.items()}
    return _all(form.combine, arithmetic, env)


def finalize(form: Any, arithmetic: Arithmetic, state: State, parameters: Mapping[str, Any]) -> State:
    return _all(form.finalize, arithmetic, {**state, **parameters})


def _all(expressions: Mapping[str, Any], arithmetic: Arithmetic, env: Mapping[str, Any]) -> State:
    reader = Reader(arithmetic, env)
    return {name: reader.value(sympy.sympify(e)) for name, e in expressions.items()}


def fold(form: Any, arithmetic: Arithmetic, elements: Iterable[Mapping[str, Any]]) -> State:
    """lift, then update by every further element."""
    state: State | None = None
    for element in elements:
        state = lift(form, arithmetic, element) if state is None else update(form, arithmetic, state, element)
    assert state is not None, "a stream without elements has no symbolic state"
    return state
