"""Laws of an operator as data: terms over states, identity and combine, and what is demanded of them.

A law is a list of checks over the same states a, b, c: either two terms are equal, or a term of finite states holds no
NaN and raises nothing. One definition serves the judge, the report and the printed test.
"""

from __future__ import annotations

from dataclasses import dataclass

NAMES = "abcd"


@dataclass(frozen=True)
class Term:
    """`op`: "state" (k-th of the case), "identity", "nothing" (lift of an empty chunk), "combine", "lifted" (lift of
    several chunks joined), "folded" (identity combined with every part in turn), "defined" (the definition of them)."""

    op: str
    args: tuple[Term, ...] = ()
    at: int = 0

    def text(self, inner: bool = False) -> str:
        if self.op == "state":
            return NAMES[self.at]
        if self.op == "combine":
            both = " ⊕ ".join(a.text(True) for a in self.args)
            return f"({both})" if inner else both
        joined = " ++ ".join(NAMES[: self.at])
        return {"identity": "e", "nothing": "lift []", "lifted": f"lift({joined})", "defined": f"definition({joined})",
                "folded": " ⊕ ".join(("e", *(f"lift {n}" for n in NAMES[: self.at])))}[self.op]  # fmt: skip

    def code(self, lifts: bool) -> str:
        """The term in Python, over functions of these names; states are made of chunks where there is a lift."""
        if self.op == "state":
            return f"lift({NAMES[self.at]})" if lifts else NAMES[self.at]
        if self.op == "combine":
            return f"combine({', '.join(a.code(lifts) for a in self.args)})"
        joined = ", ".join(NAMES[: self.at])
        return {"identity": "identity", "nothing": "lift(joined())", "lifted": f"lift(joined({joined}))",
                "defined": f"definition(joined({joined}))",
                "folded": f"reduce(combine, map(lift, [{joined}]), identity)"}[self.op]  # fmt: skip


def state(k: int) -> Term:
    return Term("state", at=k)


def combine(x: Term, y: Term) -> Term:
    return Term("combine", (x, y))


A, B, C = state(0), state(1), state(2)
E, NOTHING = Term("identity"), Term("nothing")


@dataclass(frozen=True)
class Check:
    """`left = right`, or where `right` is None: `left` of finite states holds no NaN and raises nothing.

    `huge`: the states may hold numbers near the largest as well.
    """

    states: int
    left: Term
    right: Term | None = None
    huge: bool = False

    def text(self) -> str:
        return f"{self.left.text()} holds no NaN" if self.right is None else f"{self.left.text()} = {self.right.text()}"


@dataclass(frozen=True)
class Law:
    """A named law; `kind` says which special numbers its states hold ("" for ordinary ones)."""

    name: str
    checks: tuple[Check, ...]
    kind: str = ""

    def text(self) -> str:
        return ", ".join(c.text() for c in self.checks)


ASSOCIATIVE = Check(3, combine(combine(A, B), C), combine(A, combine(B, C)))
COMMUTATIVE = Check(2, combine(A, B), combine(B, A))
LEFT, RIGHT = Check(1, combine(E, A), A), Check(1, combine(A, E), A)
BASIC = {
    "associativity": ASSOCIATIVE,
    "commutativity": COMMUTATIVE,
    "left identity": LEFT,
    "right identity": RIGHT,
}
EMPTY = (
    Check(0, combine(E, E), E),
    Check(1, combine(E, A), huge=True),
    Check(1, combine(A, E), huge=True),
)
EMPTY_LIFTED = (
    Check(0, combine(NOTHING, NOTHING), NOTHING),
    Check(1, combine(NOTHING, A), A),
    Check(1, combine(A, NOTHING), A),
    Check(1, combine(NOTHING, A), huge=True),
    Check(1, combine(A, NOTHING), huge=True),
)
HOMOMORPHISM = Law("homomorphism", (Check(2, Term("lifted", at=2), combine(A, B)),))
DEFINITION = Law("definition", (Check(3, Term("folded", at=3), Term("defined", at=3)),))


def laws(identity: bool, lift: bool, empty: bool, definition: bool, specials: tuple[str, ...]) -> list[Law]:
    """The laws of an operator with (or without) an identity, a lift, a lift of nothing, and a definition."""
    basic = {n: c for n, c in BASIC.items() if identity or "identity" not in n}
    found = [Law(name, (check,)) for name, check in basic.items()]
    merges = (*(EMPTY if identity else ()), *(EMPTY_LIFTED if empty else ()))
    if merges:
        found.append(Law("empty merge", merges))
    if lift:
        found.append(HOMOMORPHISM)
    if definition:
        found.append(DEFINITION)
    return found + [_special(kind, identity, basic) for kind in specials]


def _special(kind: str, identity: bool, basic: dict[str, Check]) -> Law:
    """Beyond the range where sums stay finite, bracketing decides what overflows: there only identities are laws."""
    if kind in ("huge", "subnormals"):
        return Law(kind, (LEFT, RIGHT) if identity else (), kind)
    return Law(kind, tuple(basic.values()), kind)
