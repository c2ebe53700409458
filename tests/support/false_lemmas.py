"""Equations that are false, among them entries of published tables; no judge may prove one.

A lemma is (name, left, right[, facts]). Expressions are nested tuples of an operation and its arguments; a string is a
real variable, with "@j" an element along j, with a leading "?" a Boolean; oo and -oo are themselves.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from redalg.proofs.document.document import Obligation
from redalg.proofs.document.terms import Leaf, Term, Terms

Expression = Any


def term(t: Terms, e: Expression) -> Term:
    """The term of a nested tuple."""
    if isinstance(e, bool):
        return t("true" if e else "false")
    if isinstance(e, int | Fraction):
        return t.const(e)
    if isinstance(e, str):
        if e in ("oo", "-oo", "nan"):
            return t.special(e)
        name, _, axes = e.lstrip("?").partition("@")
        domain = frozenset({"bool"} if e.startswith("?") else ())
        return t("tensor", attr=Leaf(name, tuple(axes), domain))
    op, *args = e
    if ":" in op:  # "sum:j"
        kind, axes = op.split(":")
        return t.reduce(kind, tuple(axes), *(term(t, a) for a in args))
    if op == "size":
        return t("size", attr=args[0])
    if op == "index":
        return t("index", attr=args[0])
    if op == "neg":
        return t.mul(t.const(-1), term(t, args[0]))
    if op == "cast":
        return t("cast", term(t, args[1]), attr=args[0])
    return t(op, *(term(t, a) for a in args))


def lemma(entry: tuple[Expression, ...]) -> tuple[Terms, Obligation]:
    t = Terms()
    given = tuple(term(t, g) for g in entry[3]) if len(entry) > 3 else ()
    return t, Obligation("O4", entry[0], term(t, entry[1]), term(t, entry[2]), "exact", given)


def _argmax(a: str, b: str) -> tuple[Expression, Expression]:
    return ("maximum", f"{a}v", f"{b}v"), ("where", ("lt", f"{a}v", f"{b}v"), f"{b}i", f"{a}i")


LOW, ENDS = ("min:j", "x@j"), (("argmax:j", "x@j"), ("argmin:j", "x@j"))
FIRST, SCALED, FROM = ("minimum", *ENDS), ("mul", "c", "x@j"), ("add", "x@j", ("neg", "c"))
FAR = (("abs", ("add", ("max:j", "x@j"), ("neg", "c"))), ("abs", ("add", LOW, ("neg", "c"))))


def _at_the_ends(top: Expression, bottom: Expression, tied: Expression) -> Expression:
    return ("where", ("lt", bottom, top), ENDS[0], ("where", ("lt", top, bottom), ENDS[1], tied))


def _welford(a: str, b: str, guard: Expression) -> Expression:
    """Chan's merge of second moments, with a wrong factor."""
    d = ("add", f"{b}m", ("neg", f"{a}m"))
    total = ("add", f"{a}n", f"{b}n")
    return ("add", f"{a}s", f"{b}s", ("mul", guard, d, d, f"{a}n", f"{b}n", ("pow", total, -1)))


M, S = ("max:j", "x@j"), ("sum:j", "x@j")
MEAN = ("mul", S, ("pow", ("size", "j"), -1))
DEVIATION = ("add", "x@j", ("neg", MEAN))
E = ("exp", ("add", "x@j", ("neg", M)))
HALF = Fraction(1, 2)
SQUARES = ("sum:j", ("pow", "x@j", 2))
SPREAD = ("add", ("mul", ("size", "j"), SQUARES), ("neg", ("mul", S, S)))
OF_TWO = ("add", ("mul", SQUARES, ("sum:j", ("pow", "y@j", 2))), ("neg", ("mul", S, S)))
WIDE = ("add", ("mul", ("size", "j"), ("sum:jk", ("pow", "x@jk", 2))), ("neg", ("pow", ("sum:jk", "x@jk"), 2)))


def _spread(w: Expression) -> Expression:
    """Σw·Σw·x² - (Σw·x)²."""
    wx = ("sum:j", ("mul", w, "x@j"))
    return ("add", ("mul", ("sum:j", w), ("sum:j", ("mul", w, ("pow", "x@j", 2)))), ("neg", ("mul", wx, wx)))


APART = ("add", "a", ("neg", "b"))
TIED = ("eq", "a", "b")

FALSE: list[tuple[Expression, ...]] = [
    # quotients in the case in which nothing is divided by 0
    ("d/(d + [d = 0]) is 1 at d = 0", ("mul", APART, ("pow", ("add", APART, ("where", TIED, 1, 0)), -1)), 1),
    ("d/where(d = 0, 5, d) is 1 at d = 0", ("mul", APART, ("pow", ("where", TIED, 5, APART), -1)), 1),
    ("where(d = 0, 5, d²/d) is d at d = 0", ("where", TIED, 5, ("mul", APART, APART, ("pow", APART, -1))), APART),
    (
        "a share of ties is the difference",
        ("mul", ("where", TIED, APART, 1), ("pow", ("where", TIED, 2, 1), -1)),
        ("where", ("ne", "a", "b"), 1, ("pow", 2, -1)),
    ),
    (
        "where(c = d, a, (c - d)/(c - d)) is 1",
        ("where", ("eq", "c", "d"), "a", ("mul", ("add", "c", ("neg", "d")), ("pow", ("add", "c", ("neg", "d")), -1))),
        1,
    ),
    # order
    ("argmax commutes on ties", _argmax("a", "b")[1], _argmax("b", "a")[1]),
    ("argmax with <= is the first", ("where", ("le", "av", "bv"), "bi", "ai"), _argmax("a", "b")[1]),
    ("max is min", ("maximum", "a", "b"), ("minimum", "a", "b")),
    (
        "max distributes over a factor",
        ("mul", "c", ("maximum", "a", "b")),
        ("maximum", ("mul", "c", "a"), ("mul", "c", "b")),
    ),
    (
        "max·factor with a negative factor",
        ("maximum", ("mul", -2, "a"), ("mul", -2, "b")),
        ("mul", -2, ("maximum", "a", "b")),
    ),
    ("a factor leaves a maximum over j", ("max:j", ("mul", "c", "x@j")), ("mul", "c", M)),
    ("a negative factor leaves a maximum over j", ("max:j", ("mul", -3, "x@j")), ("mul", -3, M)),
    ("max of a sum", ("max:j", ("add", "x@j", "y@j")), ("add", M, ("max:j", "y@j"))),
    ("max of squares", ("max:j", ("pow", "x@j", 2)), ("pow", M, 2)),
    ("max of |x|", ("max:j", ("abs", "x@j")), ("abs", M)),
    ("argmax of relu", ("argmax:j", ("relu", "x@j")), ("argmax:j", "x@j")),
    ("argmax of |x|", ("argmax:j", ("abs", "x@j")), ("argmax:j", "x@j")),
    ("argmax of -x", ("argmax:j", ("neg", "x@j")), ("argmax:j", "x@j")),
    ("argmax of a scaled x", ("argmax:j", ("mul", "c", "x@j")), ("argmax:j", "x@j")),
    ("argmax of a scaled x, by its sign", ("argmax:j", SCALED), ("where", ("lt", 0, "c"), *ENDS)),
    (
        "argmax of a scaled x, without ties",
        ("argmax:j", SCALED),
        _at_the_ends(("mul", "c", M), ("mul", "c", LOW), ENDS[0]),
    ),
    (
        "argmin of a scaled x, at the largest",
        ("argmin:j", SCALED),
        _at_the_ends(("mul", "c", M), ("mul", "c", LOW), ("where", ("eq", "c", 0), 0, FIRST)),
    ),
    ("argmax of a distance, the later of two", ("argmax:j", ("abs", FROM)), _at_the_ends(*FAR, ("maximum", *ENDS))),
    ("argmax of a distance, the largest of two", ("argmax:j", ("abs", FROM)), _at_the_ends(*FAR, ENDS[0])),
    ("argmin of a distance", ("argmin:j", ("abs", FROM)), _at_the_ends(*reversed(FAR), FIRST)),
    ("argmin of a square", ("argmin:j", ("pow", FROM, 2)), _at_the_ends(*reversed(FAR), FIRST)),
    ("argmax of a square, the later of two", ("argmax:j", ("pow", FROM, 2)), _at_the_ends(*FAR, ("maximum", *ENDS))),
    ("argmax of a cube by distance", ("argmax:j", ("pow", FROM, 3)), _at_the_ends(*FAR, FIRST)),
    ("argmax of a scaled square", ("argmax:j", ("mul", "c", ("pow", "x@j", 2))), _at_the_ends(*FAR, FIRST)),
    ("argmax of a clipped x", ("argmax:j", ("minimum", "x@j", 1)), ("argmax:j", "x@j")),
    ("max identity 0", ("maximum", 0, "a"), "a"),
    ("min identity -oo", ("minimum", "-oo", "a"), "a"),
    ("an element is the maximum", "x@j", M),
    ("max subtracts", ("maximum", ("add", "a", ("neg", "b")), 0), ("add", ("maximum", "a", "b"), ("neg", "a"))),
    ("max is the sum of relu", ("maximum", "a", "b"), ("add", ("relu", "a"), ("relu", "b"))),
    (
        "max minus max",
        ("add", ("maximum", "a", "b"), ("neg", ("maximum", "a", "c"))),
        ("maximum", 0, ("add", "b", ("neg", "c"))),
    ),
    # infinities
    ("-oo - (-oo) is 0", ("add", "-oo", ("neg", "-oo")), 0),
    ("oo - oo is 0", ("add", "oo", ("neg", "oo")), 0),
    ("oo·0 is 0", ("mul", "oo", 0), 0),
    ("x·0 with an infinite x", ("mul", ("where", "?b", "x", "-oo"), 0), 0),
    ("oo/oo is 1", ("mul", "oo", ("pow", "oo", -1)), 1),
    ("masked difference", ("add", ("where", "?b", "x", "-oo"), ("neg", ("where", "?b", "x", "-oo"))), 0),
    ("log 0 is 0", ("log", 0), 0),
    ("exp(oo)·exp(-oo) is 1", ("mul", ("exp", "oo"), ("exp", "-oo")), 1),
    ("0/0 is 1", ("mul", 0, ("pow", 0, -1)), 1),
    # exponentials, logarithms, roots
    ("exp of a sum", ("exp", ("add", "a", "b")), ("add", ("exp", "a"), ("exp", "b"))),
    ("exp of a product", ("exp", ("mul", "a", "b")), ("mul", ("exp", "a"), ("exp", "b"))),
    ("mixed bases", ("exp", "a"), ("exp", ("mul", "a", ("log", 2)))),
    ("log of a sum", ("log", ("add", ("exp", "a"), ("exp", "b"))), ("add", "a", "b")),
    ("log of a product of any sign", ("log", ("mul", "a", "b")), ("add", ("log", "a"), ("log", "b"))),
    ("log of a square", ("log", ("pow", "a", 2)), ("mul", 2, ("log", "a"))),
    ("root of a square", ("pow", ("pow", "a", 2), HALF), "a"),
    (
        "root of a product of any sign",
        ("pow", ("mul", "a", "b"), HALF),
        ("mul", ("pow", "a", HALF), ("pow", "b", HALF)),
    ),
    ("root of a sum", ("pow", ("add", "a", "b"), HALF), ("add", ("pow", "a", HALF), ("pow", "b", HALF))),
    ("sin is linear", ("sin", ("add", "a", "b")), ("add", ("sin", "a"), ("sin", "b"))),
    ("cos² - sin² is 1", ("add", ("pow", ("cos", "a"), 2), ("neg", ("pow", ("sin", "a"), 2))), 1),
    ("tanh is odd and even", ("tanh", ("neg", "a")), ("tanh", "a")),
    ("sigmoid is odd", ("sigmoid", ("neg", "a")), ("neg", ("sigmoid", "a"))),
    ("relu is linear", ("relu", ("add", "a", "b")), ("add", ("relu", "a"), ("relu", "b"))),
    ("relu of a negative factor", ("relu", ("mul", -1, "a")), ("neg", ("relu", "a"))),
    ("|a + b|", ("abs", ("add", "a", "b")), ("add", ("abs", "a"), ("abs", "b"))),
    # sums
    ("sum of products", ("sum:j", ("mul", "x@j", "y@j")), ("mul", S, ("sum:j", "y@j"))),
    ("sum of squares", ("sum:j", ("pow", "x@j", 2)), ("pow", S, 2)),
    ("sum of a constant", ("sum:j", "c"), "c"),
    ("sum of exponentials", ("sum:j", ("exp", "x@j")), ("exp", S)),
    ("softmax without its maximum", ("sum:j", E), ("sum:j", ("exp", "x@j"))),
    ("softmax moves by the wrong sign", ("mul", ("exp", M), ("sum:j", ("exp", "x@j"))), ("sum:j", E)),
    ("deviations do not cancel squares", ("sum:j", ("pow", DEVIATION, 2)), 0),
    (
        "variance without n",
        ("sum:j", ("pow", DEVIATION, 2)),
        ("add", ("sum:j", ("pow", "x@j", 2)), ("neg", ("pow", S, 2))),
    ),
    ("absolute deviation", ("sum:j", ("abs", DEVIATION)), ("add", ("sum:j", ("abs", "x@j")), ("neg", ("abs", S)))),
    (
        "|x - max| has the sign of x - max",
        ("sum:j", ("abs", ("add", "x@j", ("neg", M)))),
        ("add", S, ("neg", ("mul", ("size", "j"), M))),
    ),
    ("rounding is linear", ("cast", "int8", ("mul", "c", "x@j")), ("mul", "c", ("cast", "int8", "x@j"))),
    ("a sum of ratios", ("sum:j", ("mul", "x@j", ("pow", "y@j", -1))), ("mul", S, ("pow", ("sum:j", "y@j"), -1))),
    ("bound axes are not free", ("sum:j", ("mul", "x@j", "y@i")), ("sum:j", ("mul", "x@j", "y@j"))),
    ("a sum over j is one over k", ("sum:j", ("mul", "x@j", "y@k")), ("sum:k", ("mul", "x@j", "y@k"))),
    ("positions do not shift", ("sum:j", ("mul", ("index", "j"), "x@j")), S),
    # merges
    (
        "the mean of means",
        ("mul", HALF, ("add", "am", "bm")),
        ("mul", ("add", ("mul", "an", "am"), ("mul", "bn", "bm")), ("pow", ("add", "an", "bn"), -1)),
    ),
    ("Chan's merge with a half", _welford("a", "b", HALF), _welford("a", "b", 1)),
    ("Chan's merge without weights", ("add", "as", "bs"), _welford("a", "b", 1)),
    (
        "subtraction is associative",
        ("add", ("add", "a", ("neg", "b")), ("neg", "c")),
        ("add", "a", ("neg", ("add", "b", ("neg", "c")))),
    ),
    ("subtraction is commutative", ("add", "a", ("neg", "b")), ("add", "b", ("neg", "a"))),
    (
        "averaging is associative",
        ("mul", HALF, ("add", ("mul", HALF, ("add", "a", "b")), "c")),
        ("mul", HALF, ("add", "a", ("mul", HALF, ("add", "b", "c")))),
    ),
    (
        "division is associative",
        ("mul", ("mul", "a", ("pow", "b", -1)), ("pow", "c", -1)),
        ("mul", "a", ("pow", ("mul", "b", ("pow", "c", -1)), -1)),
    ),
    ("xor distributes over or", ("ne", "?a", ("or", "?b", "?c")), ("or", ("ne", "?a", "?b"), ("ne", "?a", "?c"))),
    ("and is or", ("and", "?a", "?b"), ("or", "?a", "?b")),
    ("any is all", ("any:j", "?m@j"), ("all:j", "?m@j")),
    ("a strict bound is not met", ("where", ("lt", "a", "b"), 1, 0), ("where", ("le", "a", "b"), 1, 0)),
    ("a fact about something else", ("maximum", "a", "b"), "b", [("le", "a", "c")]),
    ("a fact the wrong way round", ("maximum", "a", "b"), "a", [("le", "a", "b")]),
    ("a chain with a gap", ("maximum", "a", "c"), "c", [("le", "a", "b"), ("le", "d", "c")]),
    ("a spread is positive", ("where", ("lt", 0, SPREAD), 1, 0), 1),
    ("a spread under weights of any sign", ("relu", _spread("w@j")), _spread("w@j")),
    ("a spread over two axes and one length", ("relu", WIDE), WIDE),
    ("a spread times a number of any sign", ("relu", ("mul", "a", SPREAD)), ("mul", "a", SPREAD)),
    ("the sums of two squares over a square", ("relu", OF_TWO), OF_TWO),
    ("a sign inside an exponential", ("exp", ("where", ("lt", 0, "a"), "a", "b")), ("exp", "a")),
    (
        "at 0 alone in an exponential",
        ("exp", ("mul", "x", ("where", ("le", 0, "a"), "a", ("neg", "a")))),
        ("exp", ("mul", "x", "a")),
    ),
    (
        "ties without order",
        ("where", ("eq", "x", "q"), 1, 0),
        ("mul", ("where", ("eq", "p", "q"), 1, 0), ("where", ("eq", "x", "p"), 1, 0)),
    ),
]

TRUE: list[tuple[Expression, ...]] = [
    ("a spread is not negative", ("relu", SPREAD), SPREAD),
    ("a weighted spread is not negative", ("relu", _spread(("pow", "w@j", 2))), _spread(("pow", "w@j", 2))),
    ("a masked spread is not negative", ("relu", _spread(("where", "?m@j", 1, 0))), _spread(("where", "?m@j", 1, 0))),
    (
        "at 0 both ends are alike",
        ("exp", ("mul", "a", ("where", ("lt", 0, "a"), "x", "y"))),
        ("exp", ("where", ("le", 0, "a"), ("mul", "a", "x"), ("mul", "a", "y"))),
    ),
    ("max is associative", ("maximum", ("maximum", "a", "b"), "c"), ("maximum", "a", ("maximum", "b", "c"))),
    (
        "the first of equals",
        ("where", ("lt", ("maximum", "av", "bv"), "cv"), "ci", _argmax("a", "b")[1]),
        ("where", ("lt", "av", ("maximum", "bv", "cv")), ("where", ("lt", "bv", "cv"), "ci", "bi"), "ai"),
    ),
    ("exp of a sum", ("exp", ("add", "a", "b")), ("mul", ("exp", "a"), ("exp", "b"))),
    ("softmax moves", ("mul", ("exp", ("neg", M)), ("sum:j", ("exp", "x@j"))), ("sum:j", E)),
    ("deviations cancel", ("sum:j", DEVIATION), 0),
    ("|x - max|", ("sum:j", ("abs", ("add", "x@j", ("neg", M)))), ("add", ("mul", ("size", "j"), M), ("neg", S))),
    (
        "max of |x - c|",
        ("max:j", ("abs", ("add", "x@j", ("neg", "c")))),
        ("maximum", ("add", M, ("neg", "c")), ("add", "c", ("neg", ("min:j", "x@j")))),
    ),
    ("root of a square", ("pow", ("pow", "a", 2), HALF), ("abs", "a")),
    (
        "addition theorem",
        ("sin", ("add", "a", "b")),
        ("add", ("mul", ("sin", "a"), ("cos", "b")), ("mul", ("cos", "a"), ("sin", "b"))),
    ),
    ("cos² + sin² is 1", ("add", ("pow", ("cos", "a"), 2), ("pow", ("sin", "a"), 2)), 1),
    ("log of an exponential", ("log", ("mul", ("exp", "a"), ("exp", "b"))), ("add", "a", "b")),
    ("a monotone map leaves", ("max:j", ("tanh", ("mul", 2, "x@j"))), ("tanh", ("mul", 2, M))),
    (
        "ties in order",
        ("where", ("eq", "x", "q"), 1, 0),
        ("mul", ("where", ("eq", "p", "q"), 1, 0), ("where", ("eq", "x", "p"), 1, 0)),
        [("le", "x", "p"), ("le", "p", "q")],
    ),
    (
        "sums change places",
        ("sum:j", ("mul", ("sum:d", ("mul", "k@jd", "m@d")), "v@j")),
        ("sum:d", ("mul", "m@d", ("sum:j", ("mul", "k@jd", "v@j")))),
    ),
    ("masked exponential", ("exp", ("where", "?b", "x", "-oo")), ("where", "?b", ("exp", "x"), 0)),
    ("distributive max", ("add", "c", ("maximum", "a", "b")), ("maximum", ("add", "c", "a"), ("add", "b", "c"))),
]

# what `and`, `or`, `not`, a choice and a quantifier make of numbers is not what sums and products do
ILL_TYPED: list[tuple[Expression, ...]] = [
    ("and of numbers", ("and", "x", "y"), ("mul", "x", "y")),
    ("and of a number and a truth", ("and", "?p", "y"), ("mul", "?p", "y")),
    ("or of numbers", ("or", "x", "y"), ("add", "x", "y", ("neg", ("mul", "x", "y")))),
    ("not of a number", ("not", "x"), ("add", 1, ("neg", "x"))),
    ("a choice by a number", ("where", "x", "y", "z"), ("add", "z", ("mul", "x", ("add", "y", ("neg", "z"))))),
    ("any of numbers", ("any:j", "x@j"), ("not", ("all:j", ("not", "x@j")))),
    ("a choice by a choice of numbers", ("where", ("where", "?p", "x", "?q"), 1, 1), 1),
]
