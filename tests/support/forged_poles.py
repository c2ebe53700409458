"""Forged certificates that are NaN at a pole which the definition hides (see `tests.support.forged_certificates`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

from tests.support.forged_certificates import Forged
from tests.support.forging import Expression, Forge

POLES: dict[str, Callable[[], Iterator[Forged]]] = {}
Map = Callable[[Expression], Expression]
TOTAL: Expression = ("sum:j", "x[j]")
HALF = Fraction(1, 2)
INVERSE: Map = lambda d: ("pow", d, -1)  # noqa: E731
HIDING: dict[str, Map] = {  # finite at d = 0
    "exp": lambda d: ("exp", ("neg", ("pow", d, -2))),
    "tanh": lambda d: ("tanh", ("pow", d, -2)),
    "atan": lambda d: ("atan", INVERSE(d)),
    "sigmoid": lambda d: ("sigmoid", INVERSE(d)),
    "erf": lambda d: ("erf", ("pow", d, -2)),
    "sign": lambda d: ("sign", ("pow", d, -2)),
    "reciprocal": lambda d: ("pow", ("add", 1, ("pow", d, -2)), -1),
    "root": lambda d: ("pow", ("add", 1, ("pow", d, -2)), -HALF),
    "maximum": lambda d: ("maximum", 0, ("neg", ("pow", d, -2))),
    "minimum": lambda d: ("minimum", 5, ("pow", d, -2)),
    "relu": lambda d: ("relu", ("neg", ("pow", d, -2))),
    "comparison": lambda d: ("where", ("lt", ("pow", d, -2), 5), 1, 2),
    "where": lambda d: ("where", ("ne", d, 0), INVERSE(d), 3),
    "where of a square": lambda d: ("where", ("lt", 0, ("mul", d, d)), INVERSE(d), 3),
    "exp of a logarithm": lambda d: ("exp", ("log", ("abs", d))),
    "a cast": lambda d: ("cast", "int8", ("pow", d, -2)),
    "any": lambda d: ("where", ("any:k", ("lt", ("mul", "+c[k]", ("pow", d, -2)), 5)), 1, 2),
    "a place": lambda d: ("argmax:k", ("mul", "+c[k]", ("pow", d, -2))),
}
NOTHING: dict[str, Map] = {  # 0 where it has a value; it has none at 0
    "a reciprocal": lambda d: ("mul", 0, INVERSE(d)),
    "a reciprocal square": lambda d: ("mul", 0, ("pow", d, -2)),
    "reciprocals that cancel": lambda d: ("sub", INVERSE(d), INVERSE(d)),
    "a logarithm": lambda d: ("mul", 0, ("log", ("abs", d))),
    "logarithms that cancel": lambda d: ("sub", ("log", ("abs", d)), ("log", ("abs", d))),
    "its own quotient": lambda d: ("sub", ("div", d, d), 1),
    "a square by itself": lambda d: ("sub", ("div", ("mul", d, d), d), d),
    "powers that cancel": lambda d: ("sub", ("mul", ("pow", d, 3), ("pow", d, -2)), d),
    "a root below": lambda d: ("mul", 0, ("pow", ("abs", d), -HALF)),
    "a logarithm's square": lambda d: ("mul", 0, ("log", ("pow", d, 2))),
    "a wider divisor": lambda d: ("mul", 0, ("pow", ("mul", 3, d), -1)),
    "a reciprocal of a reciprocal": lambda d: ("sub", ("div", INVERSE(d), INVERSE(d)), 1),
    "a hidden infinity times 0": lambda d: ("mul", 0, ("exp", ("pow", d, -2))),
    "maxima that cancel": lambda d: ("sub", ("maximum", 1, ("pow", d, -2)), ("maximum", 1, ("pow", d, -2))),
}
BELOW_0: dict[str, Map] = {  # the same for what is negative
    "a logarithm": lambda d: ("mul", 0, ("log", d)),
    "a root's square": lambda d: ("sub", ("pow", ("pow", d, HALF), 2), d),
    "roots that cancel": lambda d: ("sub", ("pow", d, HALF), ("pow", d, HALF)),
    "log1p": lambda d: ("mul", 0, ("log1p", d)),
    "acosh": lambda d: ("mul", 0, ("acosh", ("add", d, 1))),
}
CHOOSING: dict[str, Map] = {  # has a value where d is negative, though a part of it has none
    "where": lambda d: ("where", ("lt", 0, d), ("log", d), 1),
    "where of a root": lambda d: ("where", ("le", 0, d), ("pow", d, HALF), 1),
    "where of an element": lambda d: (
        "sum:k",
        ("where", ("lt", 0, ("mul", d, "+c[k]")), ("log", ("mul", d, "+c[k]")), 0),
    ),
    "comparison": lambda d: ("where", ("lt", ("log", d), 0), 1, 2),
    "any": lambda d: ("where", ("any:k", ("lt", 0, ("mul", "+c[k]", ("log", d)))), 1, 2),
}


def forged(f: Callable[[], Iterator[Forged]]) -> Callable[[], Iterator[Forged]]:
    POLES[f.__name__] = f
    return f


def _beside(f: Forge, hiding: Expression, nothing: Expression, where: str) -> Forged:
    """The sum of x beside what hides a pole, with nothing added to its form in one place."""
    spec = {"y": ("mul", TOTAL, hiding)}
    lift = (
        ("add", "x[j]", nothing)
        if where == "lift"
        else ("mul", "x[j]", ("add", 1, nothing))
        if where == "factor"
        else "x[j]"
    )
    value: Expression = ("mul", "$s", hiding)
    if where == "output":
        value = ("add", value, nothing)
    elif where == "inside":
        value = ("mul", "$s", ("add", hiding, nothing))
    elif where == "a guard":
        value = ("where", ("lt", nothing, 1), value, ("add", value, 1))
    return where, f.document(spec, [f.slot("s", "sum", lift)], {"y": value})


@forged
def nothing_beside_a_hidden_pole() -> Iterator[Forged]:
    for name, hiding in HIDING.items():
        for k, (other, nothing) in enumerate(NOTHING.items()):
            for where in ("output", "lift", "factor", "inside"):
                if (k + len(name) + len(where)) % 4 and name != "exp":
                    continue
                f = Forge()
                _, doc = _beside(f, hiding("d"), nothing("d"), where)
                yield f"{name}, {other}, {where}", doc


@forged
def nothing_beside_a_hidden_domain() -> Iterator[Forged]:
    for name, hiding in CHOOSING.items():
        for other, nothing in BELOW_0.items():
            for where in ("output", "lift"):
                f = Forge()
                _, doc = _beside(f, hiding("d"), nothing("d"), where)
                yield f"{name}, {other}, {where}", doc


@forged
def nothing_beside_hidden_poles_at_places() -> Iterator[Forged]:
    """The same of divisors along axes, of sums of the stream, of elements; in transports and what a pass hands on."""
    w = ("sum:j", "w[j]")
    for name in ("exp", "tanh", "where", "reciprocal", "comparison"):
        hiding = HIDING[name]
        for other in ("a reciprocal", "its own quotient", "a logarithm", "reciprocals that cancel"):
            nothing = NOTHING[other]
            f = Forge()
            spec = {"y": ("mul", TOTAL, ("sum:g", hiding("d[g]")))}
            value = ("mul", "$s", ("sum:g", ("add", hiding("d[g]"), nothing("d[g]"))))
            yield f"{name}, {other}, along g", f.document(spec, [f.slot("s", "sum", "x[j]")], {"y": value})
            f = Forge()
            spec = {"y": ("mul", TOTAL, hiding("d[g]"))}
            value = ("add", ("mul", "$s", hiding("d[g]")), ("sum:g", nothing("d[g]")))
            yield f"{name}, {other}, elsewhere", f.document(spec, [f.slot("s", "sum", "x[j]")], {"y": value})
            f = Forge()
            slots = [f.slot("s", "sum", "x[j]"), f.slot("w", "sum", "w[j]")]
            value = ("add", ("mul", "$s", hiding("$w")), nothing("$w"))
            yield f"{name}, {other}, a sum", f.document({"y": ("mul", TOTAL, hiding(w))}, slots, {"y": value})
            f = Forge()
            lift = ("add", ("mul", "x[j]", hiding("w[j]")), nothing("w[j]"))
            spec = {"y": ("sum:j", ("mul", "x[j]", hiding("w[j]")))}
            yield f"{name}, {other}, elements", f.document(spec, [f.slot("s", "sum", lift)], {"y": "$s"})
            f = Forge()
            first = f.one_pass(f.slot("s", "sum", "x[j]"), exports={"known": ("add", "$s", nothing("d"))})
            second = f.one_pass(f.slot("t", "sum", ("abs", ("sub", "x[j]", "$known"))))
            spec = {"y": ("mul", ("sum:j", ("abs", ("sub", "x[j]", TOTAL))), hiding("d"))}
            value = ("mul", "$t", hiding("d"))
            yield f"{name}, {other}, an export", f.document(spec, (first, second), {"y": value})
            f = Forge()
            moves = [(1, "u"), (("mul", ("neg", "$shift:A"), ("add", 1, nothing("d"))), "n")]
            parts = [f.mean("A", "x[j]", ("div", "$u", "$n")), f.slot("u", "sum", ("sub", "x[j]", "$A"), "", moves)]
            value = ("mul", ("add", "$u", ("mul", "$n", "$A")), hiding("d"))
            yield f"{name}, {other}, a move", f.document({"y": ("mul", TOTAL, hiding("d"))}, parts, {"y": value})


@forged
def nothing_that_another_place_chooses() -> Iterator[Forged]:
    """Where w[g] is positive y[g] is divided by d; the form does that wherever w is positive at another place."""
    chosen = ("lt", 0, "w[g]")
    for name, inverse in {"a reciprocal": INVERSE, "a logarithm": lambda d: ("log", d)}.items():

        def others(d: Expression, inverse: Map = inverse) -> Expression:
            return ("mul", 0, ("sum:g", ("where", chosen, inverse(d), 0)))

        def choice(total: Expression, d: Expression, inverse: Map = inverse) -> Expression:
            return ("where", chosen, ("mul", total, inverse(d)), total)

        f = Forge()
        value = ("add", choice("$s", "$s"), others("$s"))
        yield f"{name}, a sum", f.document({"y": choice(TOTAL, TOTAL)}, [f.slot("s", "sum", "x[j]")], {"y": value})
        f = Forge()
        value = ("add", choice("$s", "d"), others("d"))
        yield f"{name}, output", f.document({"y": choice(TOTAL, "d")}, [f.slot("s", "sum", "x[j]")], {"y": value})
        f = Forge()
        slots = [f.slot("s", "sum", ("add", "x[j]", others("d")))]
        yield f"{name}, lift", f.document({"y": choice(TOTAL, "d")}, slots, {"y": choice("$s", "d")})


@forged
def other_parts_past_a_pole() -> Iterator[Forged]:
    """What two parts are at a pole is not known from what they are beside it."""
    step = ("where", ("lt", INVERSE("d"), ("mul", 2, INVERSE("d"))), 1, 0)
    above = ("where", ("lt", 0, INVERSE("d")), 1, 0)
    finite = ("where", ("lt", ("sub", ("pow", "d", -2), 1), ("pow", "d", -2)), 1, 0)
    far = ("where", ("lt", ("add", ("pow", "d", -2), 1), ("mul", 2, ("pow", "d", -2))), 1, 0)
    near = ("where", ("lt", 1, ("pow", "d", -2)), 1, 0)
    both = ("add", ("tanh", INVERSE("d")), ("tanh", INVERSE(("neg", "d"))))
    swapped: dict[str, tuple[Expression, Expression]] = {
        "two comparisons": (("add", ("mul", TOTAL, step), above), ("add", ("mul", "$s", above), step)),
        "one for the other": (("mul", TOTAL, step), ("mul", "$s", above)),
        "a comparison that is true beside it": (("mul", TOTAL, finite), "$s"),
        "comparisons of multiples": (("mul", TOTAL, far), ("mul", "$s", near)),
        "either sign of 0": (("add", TOTAL, both), "$s"),
        "a quotient of exponentials": (
            ("mul", TOTAL, ("exp", ("neg", ("pow", "d", -2)))),
            ("mul", "$s", ("exp", ("neg", ("mul", 2, ("pow", "d", -2)))), ("exp", ("pow", "d", -2))),
        ),
        "a product apart": (
            ("mul", TOTAL, ("exp", ("mul", -3, ("pow", "d", -2)))),
            ("mul", "$s", ("exp", ("sub", ("pow", "d", -2), ("mul", 4, ("pow", "d", -2))))),
        ),
        "a sigmoid's other side": (
            ("mul", TOTAL, ("sigmoid", ("pow", "d", -2))),
            ("div", ("mul", "$s", ("exp", ("pow", "d", -2))), ("add", 1, ("exp", ("pow", "d", -2)))),
        ),
        "a number where it is 0": (
            ("mul", TOTAL, ("exp", ("neg", ("pow", "d", -2)))),
            ("where", ("eq", "d", 0), 7, ("mul", "$s", ("exp", ("neg", ("pow", "d", -2))))),
        ),
        "a maximum taken apart": (
            ("mul", TOTAL, ("maximum", -1, ("neg", ("pow", "d", -2)))),
            ("neg", ("mul", "$s", ("sub", ("pow", "d", -2), ("relu", ("sub", ("pow", "d", -2), 1))))),
        ),
    }
    for name, (definition, value) in swapped.items():
        f = Forge()
        yield name, f.document({"y": definition}, [f.slot("s", "sum", "x[j]")], {"y": value})
