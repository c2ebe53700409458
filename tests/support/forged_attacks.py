"""Forged certificates of claims that are nearly true: ties, pads, groups, signs, exponents, passes (see
`tests.support.forged_certificates`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

from redalg.proofs.document.document import Stage
from tests.support.forged_certificates import Forged
from tests.support.forging import Expression, Forge

ATTACKS: dict[str, Callable[[], Iterator[Forged]]] = {}
TOTAL: Expression = ("sum:j", "x[j]")
HALF = Fraction(1, 2)
Pairs = list[tuple[Expression, Expression]]


def _staged(f: Forge, spec: Expression, separated: dict[str, tuple[Expression, Pairs]]) -> list[Stage]:
    """The stages of a spec, with the generators and coefficients of sums that read other stages."""
    made = {f(node): f.stage(node, *pairs, name=name) for name, (node, pairs) in separated.items()}
    return [made.get(s.node, s) for s in f._stages({"y": f(spec)})]


def forged(f: Callable[[], Iterator[Forged]]) -> Callable[[], Iterator[Forged]]:
    ATTACKS[f.__name__] = f
    return f


@forged
def places_of_ties() -> Iterator[Forged]:
    """A map that is constant somewhere makes ties, of which the first counts."""
    maps: dict[str, Callable[[Expression], Expression]] = {
        "relu": lambda x: ("relu", x),
        "floor": lambda x: ("floor", x),
        "ceil": lambda x: ("ceil", x),
        "sign": lambda x: ("sign", x),
        "square": lambda x: ("pow", x, 2),
        "size": lambda x: ("abs", x),
        "maximum": lambda x: ("maximum", x, "c"),
        "minimum": lambda x: ("minimum", x, "c"),
        "factor": lambda x: ("mul", "%h", x),
        "cosine": lambda x: ("cos", x),
        "cosh": lambda x: ("cosh", x),
        "comparison": lambda x: ("where", ("lt", x, "c"), 0, 1),
        "reciprocal": lambda x: ("neg", ("pow", ("add", 1, ("pow", x, 2)), -1)),
    }
    for name, of in maps.items():
        for kind in ("argmax", "argmin"):
            f = Forge()
            spec = {"y": (f"{kind}:j", of("x[j]"))}
            yield f"{kind} of a {name}", f.document(spec, [f.slot("m", kind, "x[j]")], {"y": "$m at"})
        f = Forge()
        spec = {"y": ("topk_indices:j:2:top", of("x[j]"))}
        slots = [f.slot("m", "topk", "x[j]", extra=(2, "top"))]
        yield f"list of a {name}", f.document(spec, slots, {"y": "$m indices[top]"})
    others: dict[str, tuple[str, Expression, Expression]] = {
        "the other end": ("argmin", "x[j]", "$m at"),
        "the opposite": ("argmax", ("neg", "x[j]"), "$m at"),
        "counted from the end": ("argmax", "x[j]", ("add", "$n", ("neg", "$m at"), -1)),
        "its value": ("argmax", "x[j]", "$m value"),
        "one further": ("argmax", "x[j]", ("minimum", ("add", "$m at", 1), ("add", "$n", -1))),
    }
    for name, (kind, lift, value) in others.items():
        f = Forge()
        yield name, f.document({"y": ("argmax:j", "x[j]")}, [f.slot("m", kind, lift)], {"y": value})


@forged
def pads_of_lists() -> Iterator[Forged]:
    """Places past the end of a short stream hold -oo, which a map after the list makes a number of."""
    maps: dict[str, Callable[[Expression], Expression]] = {
        "exp": lambda v: ("exp", v),
        "tanh": lambda v: ("tanh", v),
        "sigmoid": lambda v: ("sigmoid", v),
        "relu": lambda v: ("relu", v),
        "atan": lambda v: ("atan", v),
    }
    for name, of in maps.items():
        outputs: dict[str, tuple[Expression, Expression, Expression]] = {
            "inside": (of(("topk_values:j:3:top", "x[j]")), of("x[j]"), "$m values[top]"),
            "summed": (
                ("sum:top", of(("topk_values:j:3:top", "x[j]"))),
                of("x[j]"),
                ("sum:top", "$m values[top]"),
            ),
            "all are there": (
                ("sum:top", of(("topk_values:j:3:top", "x[j]"))),
                "x[j]",
                (
                    "sum:top",
                    (
                        "where",
                        ("lt", "$m values[top]", "c"),
                        of("$m values[top]"),
                        of("$m values[top]"),
                    ),
                ),
            ),
        }
        for where, (spec, lift, value) in outputs.items():
            if where == "all are there":
                value = ("mul", 3, of(("max:top", "$m values[top]")))
            f = Forge()
            slots = [f.slot("m", "topk", lift, extra=(3, "top"))]
            yield f"{name}, {where}", f.document({"y": spec}, slots, {"y": value})
    f = Forge()
    spec = {"y": ("sum:top", ("where", ("le", 0, ("topk_indices:j:3:top", "x[j]")), 1, 0))}
    yield "as many as the list", f.document(spec, [f.slot("m", "topk", "x[j]", extra=(3, "top"))], {"y": 3})
    f = Forge()
    spec = {"y": ("min:top", ("topk_indices:j:3:top", "x[j]"))}
    slots = [f.slot("m", "topk", "x[j]", extra=(3, "top"))]
    yield "no place before the first", f.document(spec, slots, {"y": ("relu", ("min:top", "$m indices[top]"))})


@forged
def sums_of_groups() -> Iterator[Forged]:
    """What holds of each group does not hold of all, nor of another one."""
    s, w = ("sum:j", "x[j,g]"), ("sum:j", "w[j,g]")
    positive = ("sum:j", "+p[j,g]")
    claims: dict[str, tuple[Expression, Expression]] = {
        "a square of a sum": (("sum:g", ("pow", s, 2)), ("pow", ("sum:g", "$s[g]"), 2)),
        "a product of sums": (("sum:g", ("mul", s, w)), ("mul", ("sum:g", "$s[g]"), ("sum:g", "$w[g]"))),
        "a quotient of sums": (
            ("sum:g", ("div", s, positive)),
            ("div", ("sum:g", "$s[g]"), ("sum:g", "$p[g]")),
        ),
        "a maximum of sums": (("max:g", ("add", s, w)), ("add", ("max:g", "$s[g]"), ("max:g", "$w[g]"))),
        "a size": (("sum:g", ("abs", s)), ("abs", ("sum:g", "$s[g]"))),
        "a root": (("sum:g", ("pow", positive, HALF)), ("pow", ("sum:g", "$p[g]"), HALF)),
        "a logarithm": (("sum:g", ("log", positive)), ("log", ("sum:g", "$p[g]"))),
        "any of all": (
            ("any:g", ("and", ("lt", 0, s), ("lt", 0, w))),
            ("and", ("any:g", ("lt", 0, "$s[g]")), ("any:g", ("lt", 0, "$w[g]"))),
        ),
        "all of any": (
            ("all:g", ("or", ("lt", 0, s), ("lt", 0, w))),
            ("or", ("all:g", ("lt", 0, "$s[g]")), ("all:g", ("lt", 0, "$w[g]"))),
        ),
        "a place": (("argmax:g", ("mul", s, s)), ("argmax:g", "$s[g]")),
        "without the number of groups": (("sum:g", ("add", s, "c")), ("add", ("sum:g", "$s[g]"), "c")),
        "the mean of means": (
            ("div", ("sum:g", ("div", s, positive)), ("size", "g")),
            ("sum:g", ("div", "$s[g]", "$p[g]")),
        ),
    }
    for name, (definition, value) in claims.items():
        f = Forge()
        bodies = {"s": "x[j,g]", "w": "w[j,g]", "p": "+p[j,g]"}
        slots = [f.slot(n, "sum", e, "g") for n, e in bodies.items() if f"${n}[g]" in str(value)]
        yield name, f.document({"y": definition}, slots, {"y": value})
    f = Forge()
    parts = [f.slot("s", "sum", "x[j,g]", "g")]
    yield "all groups", f.document({"y": ("sum:j", "x[j,g]")}, parts, {"y": ("sum:g", "$s[g]")})
    f = Forge()
    spec = {"y": ("add", ("sum:j", "x[j,g]"), ("mul", 2, ("sum:j", "x[j,h]")))}
    parts = [f.slot("s", "sum", "x[j,g]", "g"), f.slot("t", "sum", "x[j,h]", "h")]
    yield "another group", f.document(spec, parts, {"y": ("add", ("mul", 2, "$s[g]"), "$t[h]")})


@forged
def products_by_logarithms() -> Iterator[Forged]:
    """exp Σ log |x| has lost the signs and the zeros of Π x."""
    log = ("log", ("abs", "x[j]"))
    claims: dict[str, tuple[Expression, list[tuple[str, str, Expression]], Expression]] = {
        "without signs": (("prod:j", "x[j]"), [("l", "sum", log)], ("exp", "$l")),
        "a root of squares": (("prod:j", "x[j]"), [("u", "prod", ("pow", "x[j]", 2))], ("pow", "$u", HALF)),
        "a root of a root": (("prod:j", "x[j]"), [("u", "prod", ("pow", "x[j]", HALF))], ("pow", "$u", 2)),
        "a sum of powers": (
            ("prod:j", ("exp", "x[j]")),
            [("u", "sum", ("exp", "x[j]"))],
            "$u",
        ),
        "a factor once": (("prod:j", ("mul", "c", "x[j]")), [("u", "prod", "x[j]")], ("mul", "c", "$u")),
        "a sign by counting": (
            ("prod:j", ("sign", "x[j]")),
            [("k", "sum", ("where", ("lt", "x[j]", 0), 1, 0))],
            ("cos", ("mul", "pi", "$k")),
        ),
    }
    for name, (spec, parts, value) in claims.items():
        f = Forge()
        yield name, f.document({"y": spec}, [f.slot(*p) for p in parts], {"y": value})


@forged
def exponents_that_are_not_known() -> Iterator[Forged]:
    """0^0 is 1 and 0^-1 is oo; a power of a square is none of a negative number."""
    positive, any_sign = ("sum:j", "%x[j]"), ("sum:j", "x[j]")
    claims: dict[str, tuple[Expression, str, Expression]] = {
        "by a logarithm": (("pow", positive, "%n"), "%x[j]", ("exp", ("mul", "%n", ("log", "$s")))),
        "0 to the power 0": (("pow", positive, "%n"), "%x[j]", ("where", ("eq", "$s", 0), 0, ("pow", "$s", "%n"))),
        "a square inside": (("pow", ("pow", any_sign, 2), "n"), "x[j]", ("pow", "$s", ("mul", 2, "n"))),
        "a square outside": (("pow", "+b", ("mul", 2, "n")), "x[j]", ("pow", ("pow", "+b", "n"), 3)),
        "its size": (("pow", ("abs", any_sign), "n"), "x[j]", ("abs", ("pow", "$s", "n"))),
        "a root of a power": (("pow", ("pow", positive, "n"), HALF), "%x[j]", ("pow", "$s", "n")),
        "one less": (("pow", positive, ("add", "n", 1)), "%x[j]", ("mul", "$s", ("pow", "$s", ("sub", "n", 0)), "n")),
        "whole and negative": (("pow", any_sign, "#n"), "x[j]", ("pow", ("abs", "$s"), "#n")),
        "a norm": (
            ("pow", ("sum:j", ("pow", ("abs", "x[j]"), "+n")), ("pow", "+n", -1)),
            "x[j]",
            ("abs", "$s"),
        ),
        "hidden by a reciprocal": (
            ("pow", ("add", 1, ("pow", positive, ("neg", "+n"))), -1),
            "%x[j]",
            ("div", ("pow", "$s", "+n"), ("add", ("pow", "$s", "+n"), ("mul", "$s", ("pow", "$s", -1)))),
        ),
    }
    for name, (spec, lift, value) in claims.items():
        f = Forge()
        spec = ("add", spec, ("mul", 0, ("sum:j", lift)))
        yield name, f.document({"y": spec}, [f.slot("s", "sum", lift)], {"y": value})


@forged
def anchors_under_guards() -> Iterator[Forged]:
    """What moves with an anchor moves whatever condition holds, and where it is 0 or masked as well."""
    c = ("lt", 0, "c")
    h = "$shift:A"
    for name, coefficient in {
        "moved under a guard": ("where", c, ("neg", h), 0),
        "moved otherwise": ("where", c, ("neg", h), h),
        "moved twice": ("mul", -2, h),
        "moved by a square": ("neg", ("pow", h, 2)),
        "moved by a bounded step": ("neg", ("tanh", h)),
    }.items():
        f = Forge()
        parts = [f.slot("m", "max", "x[j]"), f.extremum("A", "$m")]
        parts.append(f.slot("u", "sum", ("sub", "z[j]", "$A"), "", [(1, "u"), (coefficient, "n")]))
        node, top = ("sum:j", ("sub", "z[j]", ("max:j", "x[j]"))), ("max:j", "x[j]")
        spec = ("add", node, ("mul", 0, "c"))
        stages = _staged(f, spec, {"u": (node, [("z[j]", 1), (1, ("neg", top))])})
        yield name, f.document({"y": spec}, parts, {"y": "$u"}, *stages)
    masked = ("where", ("lt", 0, "c[j]"), ("sub", "z[j]", "$A"), 0)
    at_once = ("where", ("lt", 0, "c[j]"), ("sub", "z[j]", ("max:j", "x[j]")), 0)
    for name, number in {
        "by the number of all": "n",
        "by another number": "k",
        "by none": None,
    }.items():
        f = Forge()
        parts = [
            f.slot("k", "sum", ("where", ("le", "c[j]", 0), 1, 0)),
            f.slot("m", "max", "x[j]"),
            f.extremum("A", "$m"),
        ]
        moves = [(1, "u")] + ([(("neg", h), number)] if number else [])
        parts.append(f.slot("u", "sum", masked, "", moves))
        chosen, spec = ("lt", 0, "c[j]"), ("sum:j", at_once)
        pairs = [(("where", chosen, "z[j]", 0), 1), (("where", chosen, 1, 0), ("neg", ("max:j", "x[j]")))]
        stages = _staged(f, spec, {"u": (spec, pairs)})
        yield f"masked, moved {name}", f.document({"y": spec}, parts, {"y": "$u"}, *stages)
    for name, target in {
        "a target under a guard": ("where", c, "$m", 0),
        "a target of another sign": ("neg", "$m"),
        "a target that is half": ("mul", HALF, "$m"),
        "a target with the count": ("add", "$m", "$n"),
    }.items():
        f = Forge()
        parts = [f.slot("m", "max", "x[j]"), f.extremum("A", target)]
        parts.append(f.slot("u", "sum", ("exp", ("sub", "x[j]", "$A")), "", [(("exp", ("neg", h)), "u")]))
        node, top = ("sum:j", ("exp", ("sub", "x[j]", ("max:j", "x[j]")))), ("max:j", "x[j]")
        spec = ("add", node, ("mul", 0, "c"))
        stages = _staged(f, spec, {"u": (node, [(("exp", "x[j]"), ("exp", ("neg", top)))])})
        yield name, f.document({"y": spec}, parts, {"y": "$u"}, *stages)


@forged
def passes_that_hand_on_otherwise() -> Iterator[Forged]:
    """A second pass reads what the first hands on, of the whole stream and of its own row."""
    mean = ("div", TOTAL, ("size", "j"))
    definition = ("sum:j", ("abs", ("sub", "x[j]", mean)))
    exports: dict[str, Expression] = {
        "the sum": "$s",
        "with one less": ("div", "$s", ("add", "$n", -1)),
        "under a guard": ("where", ("lt", 0, "$s"), ("div", "$s", "$n"), 0),
        "its size": ("abs", ("div", "$s", "$n")),
        "a midpoint": ("div", ("sub", "$m", "$l"), 2),
        "divided by itself": ("div", ("mul", ("div", "$s", "$n"), "$s"), "$s"),
        "a root of its square": ("pow", ("pow", ("div", "$s", "$n"), 2), HALF),
    }
    for name, known in exports.items():
        f = Forge()
        parts = [f.slot("s", "sum", "x[j]"), f.slot("m", "max", "x[j]"), f.slot("l", "max", ("neg", "x[j]"))]
        parts += [f.mean("A", "x[j]", ("div", "$u", "$n"))]
        parts.append(f.slot("u", "sum", ("sub", "x[j]", "$A"), "", [(1, "u"), (("neg", "$shift:A"), "n")]))
        first = f.one_pass(*parts, exports={"known": known})
        second = f.one_pass(f.slot("t", "sum", ("abs", ("sub", "x[j]", "$known"))))
        yield name, f.document({"y": definition}, (first, second), {"y": "$t"})
    for name, read in {"another row": "$known[k]", "all rows": ("sum:i", "$known[i]")}.items():
        f = Forge()
        first = f.one_pass(f.slot("s", "sum", "x[i,j]", "i"), exports={"known": ("div", "$s[i]", "$n")})
        second = f.one_pass(f.slot("t", "sum", ("abs", ("sub", "x[i,j]", read)), "i" if name == "all rows" else "i,k"))
        rows = ("sum:j", ("abs", ("sub", "x[i,j]", ("div", ("sum:j", "x[i,j]"), ("size", "j")))))
        spec = {"y": ("add", rows, ("mul", 0, ("sum:j", "x[k,j]"))) if name == "another row" else rows}
        yield name, f.document(spec, (first, second), {"y": "$t[i,k]" if name == "another row" else "$t[i]"})


@forged
def quotients_that_differ_past_a_pole() -> Iterator[Forged]:
    """What is a + r/p elsewhere may be NaN at p = 0, or of the other sign, where a map hides that."""
    p, r = ("sum:j", "w[j]"), ("sum:j", ("mul", "w[j]", "x[j]"))
    hidden: dict[str, Callable[[Expression], Expression]] = {
        "tanh": lambda v: ("tanh", v),
        "gauss": lambda v: ("exp", ("neg", ("pow", ("sub", "c", v), 2))),
        "comparison": lambda v: ("where", ("lt", "c", v), 1, 2),
    }
    inverse = ("pow", "$p", -1)
    quotients: dict[str, Expression] = {
        "and 0 of it": ("add", ("mul", "$r", inverse), ("mul", 0, inverse)),
        "in two parts": (
            "add",
            ("mul", HALF, "$r", inverse),
            ("mul", ("add", ("mul", HALF, "$r"), "c"), inverse),
            ("mul", -1, "c", inverse),
        ),
        "with its square": ("mul", "$r", "$p", ("pow", "$p", -2)),
        "of the other sign of 0": ("mul", "$r", -1, ("pow", ("neg", "$p"), -1)),
        "scaled by 0": (
            "add",
            ("mul", "c", ("add", ("mul", "$r", inverse), 1)),
            ("mul", ("sub", 1, "c"), "$r", inverse),
            ("neg", "c"),
        ),
        "twice": ("sub", ("mul", 2, "$r", inverse), ("mul", "$r", inverse)),
        "of a reciprocal": ("pow", ("mul", "$p", ("pow", "$r", -1)), -1),
    }
    for name, of in hidden.items():
        for other, quotient in quotients.items():
            if other in ("of the other sign of 0", "of a reciprocal") and name == "gauss":
                continue  # both signs are as far
            f = Forge()
            slots = [
                f.slot("s", "sum", "x[j]"),
                f.slot("p", "sum", "w[j]"),
                f.slot("r", "sum", ("mul", "w[j]", "x[j]")),
            ]
            spec = {"y": ("add", ("mul", TOTAL, of(("mul", r, ("pow", p, -1)))), ("mul", 0, "c"))}
            yield f"{name}, {other}", f.document(spec, slots, {"y": ("mul", "$s", of(quotient))})


@forged
def facts_that_hold_elsewhere() -> Iterator[Forged]:
    """A definition is no number at a pole for a reason, which a small change takes away."""
    mean = ("div", TOTAL, ("size", "j"))
    spread = ("sum:j", ("pow", ("sub", "x[j]", mean), 2))
    less = ("add", ("size", "j"), -1)
    q, k = ("sum:e", ("pow", "q[e]", 2)), ("sum:e", ("pow", "k[e]", 2))
    low, high = ("min:j", "x[j]"), ("max:j", "x[j]")
    u = ("div", "x[j]", "d")
    parts = [("s", "sum", "x[j]", "$s"), ("v", "sum", ("pow", "x[j]", 2), "$v"), ("a", "max", ("abs", "x[j]"), "$a")]
    parts += [("h", "max", "x[j]", "$h"), ("l", "min", "x[j]", "$l")]
    pole = ("pow", "d", -1)
    claims: dict[str, tuple[Expression, Expression, Expression]] = {
        "a spread of another centre": (
            ("tanh", ("div", ("sum:j", ("pow", ("sub", "x[j]", "c"), 2)), less)),
            ("pow", ("add", "$n", -1), -1),
            ("tanh", ("div", ("add", "$v", ("mul", -2, "c", "$s"), ("mul", "$n", "c", "c")), ("add", "$n", -1))),
        ),
        "a spread and more": (
            ("tanh", ("div", ("add", spread, 1), less)),
            ("pow", ("add", "$n", -1), -1),
            ("tanh", ("div", ("add", "$v", ("neg", ("div", ("pow", "$s", 2), "$n")), 1), ("add", "$n", -1))),
        ),
        "another norm": (
            ("tanh", ("div", ("sum:e", ("mul", "q[e]", "c")), ("pow", k, HALF))),
            ("pow", k, -HALF),
            ("tanh", ("div", ("sum:e", ("mul", "q[e]", "c")), ("pow", k, HALF))),
        ),
        "a norm of a part": (
            ("tanh", ("div", ("add", ("sum:e", ("mul", "q[e]", "k[e]")), "c"), ("pow", q, HALF))),
            ("pow", q, -HALF),
            ("tanh", ("div", ("add", ("sum:e", ("mul", "q[e]", "k[e]")), "c"), ("pow", q, HALF))),
        ),
        "signs that cancel": (
            ("tanh", ("div", ("sum:e", ("mul", "q[e]", "k[e]")), ("sum:e", "k[e]"))),
            ("pow", ("sum:e", "k[e]"), -1),
            ("tanh", ("div", ("sum:e", ("mul", "q[e]", "k[e]")), ("sum:e", "k[e]"))),
        ),
        "a range from elsewhere": (
            ("tanh", ("div", ("sub", "c", low), ("sub", high, low))),
            ("pow", ("sub", "$h", "$l"), -1),
            ("tanh", ("div", ("sub", "c", "$l"), ("sub", "$h", "$l"))),
        ),
        "a range of sizes": (
            ("tanh", ("div", ("sub", "c", low), ("max:j", ("abs", "x[j]")))),
            ("pow", "$a", -1),
            ("tanh", ("div", ("sub", "c", "$l"), "$a")),
        ),
        "exponentials alone": (
            ("sum:j", ("exp", ("sub", u, ("max:j", u)))),
            pole,
            ("sum:j", ("exp", ("sub", u, ("max:j", u)))),
        ),
    }
    for name, (hidden, nothing, held) in claims.items():
        f = Forge()
        slots = [f.slot(n, kind, lift) for n, kind, lift, _ in parts]
        value: Expression = ("add", ("mul", "$s", held), ("mul", 0, nothing))
        if name == "exponentials alone":
            slots += [f.slot("m", "max", u), f.extremum("A", "$m")]
            moves = [(("exp", ("neg", "$shift:A")), "w")]
            slots.append(f.slot("w", "sum", ("exp", ("sub", u, "$A")), "", moves))
            value = ("add", ("mul", "$s", "$w"), ("mul", 0, nothing))
        spec = ("add", ("mul", TOTAL, hidden), *(("mul", 0, x) for x in ("c", "d", high, low)))
        shifted = ("sum:j", ("pow", ("sub", "x[j]", "c"), 2))
        top = ("max:j", u)
        separated = {
            "v": (spread, [(("pow", "x[j]", 2), 1), ("x[j]", ("mul", -2, mean)), (1, ("pow", mean, 2))]),
            "w": (shifted, [(("pow", "x[j]", 2), 1), ("x[j]", ("mul", -2, "c")), (1, ("pow", "c", 2))]),
            "e": (("sum:j", ("exp", ("sub", u, top))), [(("exp", u), ("exp", ("neg", top)))]),
        }
        yield name, f.document({"y": spec}, slots, {"y": value}, *_staged(f, spec, separated))
    f = Forge()
    at_i = ("div", "x[i,j]", "d[i]")
    p = ("exp", ("sub", at_i, ("max:j", at_i)))
    spec = {"y": ("div", ("sum:j", ("mul", p, "v[j]")), ("sum:j", p))}
    anchors = [f.slot("m", "max", at_i, "i"), f.extremum("A", "$m[i]", "i")]
    moves = ("exp", ("neg", "$shift:A[i]"))
    held = ("exp", ("sub", at_i, "$A[i]"))
    anchors.append(f.slot("w", "sum", held, "i", [(moves, "w")]))
    anchors.append(f.slot("u", "sum", ("mul", held, "v[j]"), "i", [(moves, "u")]))
    value = ("add", ("div", "$u[i]", "$w[i]"), ("mul", 0, ("sum:i", ("pow", "d[i]", -1))))
    body = {"p": (("sum:j", p), [(("exp", at_i), ("exp", ("neg", ("max:j", at_i))))])}
    body["v"] = (("sum:j", ("mul", p, "v[j]")), [(("mul", ("exp", at_i), "v[j]"), ("exp", ("neg", ("max:j", at_i))))])
    yield "temperatures of other rows", f.document(spec, anchors, {"y": value}, *_staged(f, spec["y"], body))
    f = Forge()
    spec = {"y": ("mul", TOTAL, ("tanh", ("pow", "d", -1))), "z": ("div", TOTAL, "d")}
    value = {
        "y": ("add", ("mul", "$s", ("tanh", ("pow", "d", -1))), ("mul", 0, ("pow", "d", -1))),
        "z": ("div", "$s", "d"),
    }
    yield "a pole that another output shows", f.document(spec, [f.slot("s", "sum", "x[j]")], value)
    f = Forge()
    spec = {"y": ("where", ("lt", 0, "c"), ("div", TOTAL, "d"), ("mul", TOTAL, ("tanh", ("pow", "d", -1))))}
    value = ("where", ("lt", 0, "c"), ("div", "$s", "d"), ("mul", "$s", ("tanh", ("div", "d", ("pow", "d", 2)))))
    yield "a pole that another case shows", f.document(spec, [f.slot("s", "sum", "x[j]")], {"y": value})
