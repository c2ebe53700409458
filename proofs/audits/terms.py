"""Laws of an operator as data: terms over states, identity and combine, and what is demanded of them.

A law is a list of checks over the same states a, b, c: either two terms are equal, or a term of finite states holds no
NaN and raises nothing. One definition serves the judge, the report and the printed test.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

NAMES = "abcd"


@dataclass(frozen=True)
class Term:
    """`op`: "state" (k-th of the case), "identity", "nothing" (lift of an empty chunk), "combine", "lifted" (lift of
    several chunks joined), "folded" (identity combined with every part in turn), "defined" (the definition of them),
    "grown" (a state combined with itself, `at` times over: 2^at of it)."""

    op: str
    args: tuple[Term, ...] = ()
    at: int = 0

    def text(self, inner: bool = False) -> str:
        if self.op == "state":
            return NAMES[self.at]
        if self.op == "combine":
            both = " ⊕ ".join(a.text(True) for a in self.args)
            return f"({both})" if inner else both
        if self.op == "grown":
            return f"2^{self.at}·{self.args[0].text(True)}"
        joined = " ++ ".join(NAMES[: self.at])
        return {
            "identity": "e",
            "nothing": "lift []",
            "lifted": f"lift({joined})",
            "defined": f"definition({joined})",
            "folded": " ⊕ ".join(("e", *(f"lift {n}" for n in NAMES[: self.at]))),
        }[self.op]

    def code(self, lifts: bool) -> str:
        """The term in Python, over functions of these names; states are made of chunks where there is a lift."""
        if self.op == "state":
            return f"lift({NAMES[self.at]})" if lifts else NAMES[self.at]
        if self.op == "combine":
            return f"combine({', '.join(a.code(lifts) for a in self.args)})"
        if self.op == "grown":
            return f"grown({self.args[0].code(lifts)}, {self.at})"
        joined = ", ".join(NAMES[: self.at])
        return {
            "identity": "identity",
            "nothing": "lift(joined())",
            "lifted": f"lift(joined({joined}))",
            "defined": f"definition(joined({joined}))",
            "folded": f"reduce(combine, map(lift, [{joined}]), identity)",
        }[self.op]


def _parts(t: Term) -> list[Term]:
    return [t, *(p for a in t.args for p in _parts(a))]


def state(k: int) -> Term:
    return Term("state", at=k)


def combine(x: Term, y: Term) -> Term:
    return Term("combine", (x, y))


def grown(x: Term, times: int) -> Term:
    return Term("grown", (x,), times)


A, B, C = state(0), state(1), state(2)
E, NOTHING = Term("identity"), Term("nothing")


@dataclass(frozen=True)
class Check:
    """`left = right`, or where `right` is None what `demand` says of `left`.

    "numbers": of finite states it holds no NaN and raises nothing; "kept": it leaves its arguments as they were;
    "same": it gives the same bits whenever it is computed. `huge`: the states may hold numbers near the largest as
    well. `long`: one chunk of many lengths, each once. `each`: one of many checks that differ in a count alone.
    """

    states: int
    left: Term
    right: Term | None = None
    huge: bool = False
    demand: str = "numbers"
    long: bool = False
    each: bool = False

    @property
    def grows(self) -> bool:
        """Whether a state is merged with itself many times: a dozen of such cases say as much as hundreds."""
        return any(t.op == "grown" for t in _parts(self.left) + _parts(self.right or self.left))

    def text(self) -> str:
        if self.demand != "numbers":
            what = {"kept": "leaves its arguments as they were", "same": "gives the same bits every time"}[self.demand]
            return f"{self.left.text()} {what}"
        return f"{self.left.text()} holds no NaN" if self.right is None else f"{self.left.text()} = {self.right.text()}"


@dataclass(frozen=True)
class Law:
    """A named law; `kind` says which special numbers its states hold ("" for ordinary ones)."""

    name: str
    checks: tuple[Check, ...]
    kind: str = ""

    def text(self) -> str:
        many = ["(2^k·a ⊕ b) ⊕ c = 2^k·a ⊕ (b ⊕ c)"] * any(c.each for c in self.checks)
        return ", ".join([c.text() for c in self.checks if not c.each] + many)


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
_HOMOMORPHISM = Check(2, Term("lifted", at=2), combine(A, B))
_DEFINITION = Check(3, Term("folded", at=3), Term("defined", at=3))
HOMOMORPHISM = Law("homomorphism", (_HOMOMORPHISM, replace(_HOMOMORPHISM, long=True)))
DEFINITION = Law("definition", (_DEFINITION, replace(_DEFINITION, long=True)))
MANY, MORE, MOST = grown(A, 10), grown(B, 24), grown(A, 40)
GROWN = (
    Check(3, combine(combine(MANY, B), C), combine(MANY, combine(B, C))),
    Check(3, combine(combine(A, MORE), C), combine(A, combine(MORE, C))),
    Check(3, combine(combine(MOST, MORE), C), combine(MOST, combine(MORE, C))),
)
EACH = tuple(  # counts of every power of two, and of a few more
    Check(3, combine(combine(grown(A, k), B), C), combine(grown(A, k), combine(B, C)), each=True) for k in range(1, 41)
)
GROWN_COMMUTE = (Check(2, combine(MOST, B), combine(B, MOST)), Check(2, combine(MANY, MORE), combine(MORE, MANY)))
GROWN_LEFT, GROWN_RIGHT = Check(1, combine(E, MOST), MOST), Check(1, combine(MOST, E), MOST)
RESTS_ON = {
    "associativity": (ASSOCIATIVE, *GROWN, *EACH, *GROWN_COMMUTE, GROWN_LEFT, GROWN_RIGHT),
    "commutativity": (COMMUTATIVE, *GROWN_COMMUTE),
    "left identity": (LEFT, GROWN_LEFT),
    "right identity": (RIGHT, GROWN_RIGHT),
    "homomorphism": (_HOMOMORPHISM,),
    "definition": (_DEFINITION,),
}


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
    found.append(_large(identity, lift, basic))
    joined = (_HOMOMORPHISM,) if lift else ()
    found.append(Law("magnitudes", (*basic.values(), *joined, *((_DEFINITION,) if definition else ())), "magnitudes"))
    kept = (combine(A, B), *((combine(E, A), combine(A, E)) if identity else ()))
    found.append(Law("arguments kept", tuple(Check(2, t, demand="kept") for t in kept)))
    found.append(Law("repetition", (Check(3, ASSOCIATIVE.left, demand="same"),)))
    return found + [_special(kind, identity, basic) for kind in specials]


def _large(identity: bool, lift: bool, basic: dict[str, Check]) -> Law:
    """Counts up to 2^40: reached by merging where states are lifted, drawn where they are not."""
    if not lift:
        return Law("large counts", tuple(basic.values()), "large")
    return Law("large counts", (*GROWN, *EACH, *GROWN_COMMUTE, *((GROWN_LEFT, GROWN_RIGHT) if identity else ())))


def _special(kind: str, identity: bool, basic: dict[str, Check]) -> Law:
    """Beyond the range where sums stay finite, bracketing decides what overflows: there only identities are laws."""
    if kind in ("huge", "subnormals"):
        return Law(kind, (LEFT, RIGHT) if identity else (), kind)
    return Law(kind, tuple(basic.values()), kind)
