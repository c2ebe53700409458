"""Forged certificates: documents that claim a false form, each with every obligation that its spec and form entail.

A class of forgeries is a generator of variants (other kinds, functions, names, axes). What is forged is named by the
class; `tests.proofs.test_forged_certificates` folds each of them to another value than its definition, and has it
refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

from redalg.proofs.document.document import Document
from tests.support.forging import Expression, Forge

Forged = tuple[str, Document]
CLASSES: dict[str, Callable[[], Iterator[Forged]]] = {}


def forged(f: Callable[[], Iterator[Forged]]) -> Callable[[], Iterator[Forged]]:
    CLASSES[f.__name__] = f
    return f


@forged
def orders_that_read_moving_anchors() -> Iterator[Forged]:
    """A maximum, position, list … of what is centred: nothing moves it with its anchor."""
    bodies: dict[str, tuple[Expression, Expression]] = {
        "difference": (("sub", "z[j]", "$A"), ("sub", "z[j]", ("max:j", "x[j]"))),
        "square": (("pow", ("sub", "x[j]", "$A"), 2), ("pow", ("sub", "x[j]", ("max:j", "x[j]")), 2)),
        "product": (("mul", "z[j]", "$A"), ("mul", "z[j]", ("max:j", "x[j]"))),
    }
    for name, (lift, body) in bodies.items():
        for kind in ("max", "min", "argmax", "topk", "prod"):
            if name == "square" and kind in ("min", "prod"):
                continue  # 0 at every anchor
            f = Forge()
            extra = {"extra": (2, "top")} if kind == "topk" else {}
            out = {"argmax": "$u at", "topk": "$u values[top]"}.get(kind, "$u")
            reduced = ("topk_values:j:2:top" if kind == "topk" else f"{kind}:j", body)
            parts = [f.slot("m", "max", "x[j]"), f.extremum("A", "$m"), f.slot("u", kind, lift, **extra)]
            yield f"{kind} of a {name}", f.document({"y": reduced}, parts, {"y": out})
    for kind in ("any", "all"):
        f = Forge()
        parts = [f.slot("m", "max", "x[j]"), f.extremum("A", "$m"), f.slot("u", kind, ("lt", "z[j]", "$A"))]
        spec = {"y": (f"{kind}:j", ("lt", "z[j]", ("max:j", "x[j]")))}
        yield kind, f.document(spec, parts, {"y": "$u"})
    f = Forge()
    combined, nothing = [("add", "$a0", "$b0")], [0]
    add = f.monoid("plus", combined, nothing, True)
    parts = [
        f.slot("m", "max", "x[j]"),
        f.extremum("A", "$m"),
        f.slot("u", "monoid", [("sub", "x[j]", "$A")], monoid=0, identity=[0], parts=("u",)),
    ]
    spec = {"y": ("monoid:j:0:0", ("sub", "x[j]", ("max:j", "x[j]")))}
    yield "a monoid", f.document(spec, parts, {"y": "$u"}, monoids=(add,))


@forged
def guards_that_are_dropped() -> Iterator[Forged]:
    """What a definition divides by (takes a logarithm or root of) under a condition is not so everywhere."""
    partial: dict[str, tuple[Callable[[Expression], Expression], Callable[[Expression], Expression]]] = {
        "divisor": (lambda d: ("ne", d, 0), lambda d: ("pow", d, -1)),
        "square in a divisor": (lambda d: ("ne", d, 0), lambda d: ("pow", d, -2)),
        "logarithm": (lambda d: ("lt", 0, d), lambda d: ("log", d)),
        "root": (lambda d: ("le", 0, d), lambda d: ("pow", d, Fraction(1, 2))),
    }
    for name, (condition, of) in partial.items():
        for d, parts in (("d", ()), ("d[i]", ()), (("sum:j", "w[j]"), ("w",))):
            f = Forge()
            own = "$w" if parts else d
            slots = [f.slot("s", "sum", "x[j]"), *(f.slot(p, "sum", f"{p}[j]") for p in parts)]
            spec = {"y": ("where", condition(d), ("mul", ("sum:j", "x[j]"), of(d)), 7)}
            shown = d if isinstance(d, str) else "a sum"
            yield f"{name} {shown}, dropped", f.document(spec, slots, {"y": ("mul", "$s", of(own))})
            g = Forge()
            slots = [g.slot("s", "sum", "x[j]"), *(g.slot(p, "sum", f"{p}[j]") for p in parts)]
            other = ("where", condition(own), ("mul", "$s", of(own)), 8)
            yield f"{name} {shown}, another value", g.document(spec, slots, {"y": other})
        f = Forge()
        spec = {"y": ("sum:j", ("where", condition("w[j]"), of("w[j]"), 0))}
        yield f"{name} of an element", f.document(spec, [f.slot("s", "sum", of("w[j]"))], {"y": "$s"})
    f = Forge()
    spec = {"y": ("where", ("ne", "d", 5), ("mul", ("sum:j", "x[j]"), "d"), 0)}
    value = ("where", ("ne", "d", 5), ("div", ("mul", "$s", "d", "d"), "d"), 0)
    yield "unequal to 5 is not unequal to 0", f.document(spec, [f.slot("s", "sum", "x[j]")], {"y": value})
    f = Forge()
    spec = {"y": ("add", ("sum:j", "x[j]"), ("mul", 0, ("log", "p")))}
    value = ("add", "$s", ("mul", 0, ("log", ("mul", "%w", "p"))))
    spec["y"] = ("add", spec["y"], ("mul", 0, "%w"))
    yield "a factor that may be 0", f.document(spec, [f.slot("s", "sum", "x[j]")], {"y": value})


@forged
def powers_with_symbolic_exponents() -> Iterator[Forged]:
    """x^n is no exponential where x may be negative (or 0)."""
    claims: dict[str, tuple[Callable[[Expression], Expression], Callable[[Expression], Expression]]] = {
        "is positive": (lambda p: ("where", ("lt", 0, p), 1, 0), lambda p: 1),
        "is its size": (lambda p: ("abs", p), lambda p: p),
        "is relu": (lambda p: ("relu", p), lambda p: p),
        "has a sign": (lambda p: ("sign", p), lambda p: 1),
        "is no zero": (lambda p: ("where", ("eq", p, 0), 5, 6), lambda p: 6),
        "is the root of its square": (lambda p: ("pow", ("pow", p, 2), Fraction(1, 2)), lambda p: p),
    }
    for domain in ("", "%"):
        for n in ("#n", "#+n"):
            for name, (of, claimed) in claims.items():
                if domain and name in ("is its size", "is relu", "is the root of its square"):
                    continue  # true of what is not negative
                if domain and n == "#n" and name != "is positive":
                    continue
                f = Forge()
                base = ("sum:j", f"{domain}x[j]")
                parts = [f.slot("s", "sum", f"{domain}x[j]")]
                spec, value = {"y": of(("pow", base, n))}, claimed(("pow", "$s", n))
                yield f"x {domain} ^ {n} {name}", f.document(spec, parts, {"y": value})
    for kind in ("max", "min", "topk"):
        for n in ("+n", "#+n"):
            f = Forge()
            extra = {"extra": (2, "top")} if kind == "topk" else {}
            body = ("pow", "x[j]", n)
            spec = {"y": ("topk_values:j:2:top" if kind == "topk" else f"{kind}:j", body)}
            out = "$m values[top]" if kind == "topk" else "$m"
            value = ("pow", out, n)
            yield f"{kind} of x^{n}", f.document(spec, [f.slot("m", kind, "x[j]", **extra)], {"y": value})
    f = Forge()
    spec = {"y": ("mul", ("sum:j", "x[j]"), ("where", ("lt", 0, "n"), 1, 1))}
    value = ("mul", "$s", ("pow", "x0", "n"), ("pow", "x0", ("neg", "n")))
    spec["y"] = ("add", spec["y"], ("mul", 0, "x0"))
    yield "x^n/x^n is 1 at 0", f.document(spec, [f.slot("s", "sum", "x[j]")], {"y": value})


@forged
def nan_is_nothing() -> Iterator[Forged]:
    """Two values of which nothing is known are not equal; and what is no number moves nowhere."""
    for name in ("sign", "atan", "erfc", "floor", "asinh", "sinh", "cosh", "ceil"):
        for limit in ("oo", "-oo"):
            constant = (name, limit)
            if name in ("asinh", "sinh", "floor", "ceil", "cosh"):
                constant = (
                    ("exp", ("neg", (name, limit))) if limit == "oo" or name == "cosh" else ("exp", (name, limit))
                )
            f = Forge()
            shown = ("add", ("sum:j", "x[j]"), constant)
            value = ("add", "$s", 3, constant)
            yield f"{name} of {limit}", f.document({"y": shown}, [f.slot("s", "sum", "x[j]")], {"y": value})
    for name in ("sign", "atan"):
        f = Forge()
        lift = ("mul", (name, "oo"), ("sub", "x[j]", "$A"))
        body = ("mul", (name, "oo"), ("sub", "x[j]", ("max:j", "x[j]")))
        parts = [f.slot("m", "max", "x[j]"), f.extremum("A", "$m"), f.slot("u", "sum", lift)]
        yield f"unmoved, times {name} oo", f.document({"y": ("sum:j", body)}, parts, {"y": "$u"})


@forged
def extrema_through_even_powers() -> Iterator[Forged]:
    """t² is not monotone, however it is written."""
    shift = ("add", "x[j]", "z[j]")
    for e in (-2, -4, -6):
        for kind in ("max", "min", "argmax", "argmin", "topk"):
            f = Forge()
            body = ("pow", ("pow", shift, e), -1)
            extra = {"extra": (2, "top")} if kind == "topk" else {}
            out = "$m values[top]" if kind == "topk" else "$m at" if kind.startswith("arg") else "$m"
            spec = {"y": ("topk_values:j:2:top" if kind == "topk" else f"{kind}:j", body)}
            value = out if kind.startswith("arg") else ("pow", out, -e)
            yield f"{kind} of a power {-e}", f.document(spec, [f.slot("m", kind, shift, **extra)], {"y": value})
    for h in (("pow", "h", 2), ("abs", "h"), ("relu", "h")):
        for kind, other in (("argmax", "argmin"), ("argmin", "argmax")):
            f = Forge()
            body = ("mul", -1, h, "x[j]")
            slots = [f.slot("m", other, body)]
            yield f"{kind} times -{h[0]}", f.document({"y": (f"{kind}:j", body)}, slots, {"y": "$m at"})


@forged
def slots_that_are_said_to_vanish() -> Iterator[Forged]:
    """A flag that takes a slot out of the state, and its laws with it."""
    for kind, wrong in (("sum", 1), ("max", 0), ("min", 0), ("prod", 0)):
        f = Forge()
        slots = [f.slot("s", kind, "x[j]", vanishes=True, identity=[wrong])]
        yield f"a {kind} with the identity {wrong}", f.document({"y": (f"{kind}:j", "x[j]")}, slots, {"y": "$s"})
    f = Forge()
    minus = f.monoid("minus", [("sub", "$a0", "$b0")], [0], True)
    slots = [f.slot("s", "monoid", ["x[j]"], monoid=0, identity=[0], parts=("s",), vanishes=True)]
    yield "a monoid that is none", f.document({"y": ("monoid:j:0:0", "x[j]")}, slots, {"y": "$s"}, monoids=(minus,))


@forged
def extrema_of_other_rows() -> Iterator[Forged]:
    """An anchor that is the maximum of another row bounds nothing in this one."""
    bodies: dict[str, Callable[[Expression], Expression]] = {
        "abs": lambda d: ("abs", d),
        "-relu": lambda d: ("neg", ("relu", ("neg", d))),
    }
    for kind in ("max", "min"):
        way = ("$shift:A[i,k]", -1) if kind == "max" else ("$shift:A[i,k]", 1)
        for name, of in bodies.items():
            sign = 1 if name == "abs" else -1
            if name != "abs" and kind == "min":
                continue
            for case in ("transposed", "declared transposed"):
                f = Forge()
                lift = of(("sub", "x[i,k,j]", "$A[i,k]"))
                body = of(("sub", "x[i,k,j]", (f"{kind}:j", "x[k,i,j]")))
                coefficient = ("mul", -way[1] * sign, way[0])
                anchor = (
                    f.extremum("A", "$m[k,i]", "i,k") if case == "transposed" else f.extremum("A", "$m[i,k]", "k,i")
                )
                parts = [
                    f.slot("m", kind, "x[i,k,j]", "i,k"),
                    anchor,
                    f.slot("u", "sum", lift, "i,k", [(1, "u"), (coefficient, "n")]),
                ]
                yield f"{name}, {kind}, {case}", f.document({"y": ("sum:j", body)}, parts, {"y": "$u[i,k]"})
        f = Forge()
        lift, body = ("abs", ("sub", "x[i,j]", "$A[k]")), ("abs", ("sub", "x[i,j]", (f"{kind}:j", "x[k,j]")))
        coefficient = ("mul", -way[1], "$shift:A[k]")
        parts = [
            f.slot("m", kind, "x[i,j]", "i"),
            f.extremum("A", "$m[k]", "k"),
            f.slot("u", "sum", lift, "i,k", [(1, "u"), (coefficient, "n")]),
        ]
        yield f"{kind} of every row", f.document({"y": ("sum:j", body)}, parts, {"y": "$u[i,k]"})


@forged
def anchors_without_a_value_on_pieces() -> Iterator[Forged]:
    """The whole stream's divisor is not 0; a piece's may be."""
    total, weighted = ("sum:j", "w[j]"), ("sum:j", ("mul", "w[j]", "x[j]"))
    mean = ("div", weighted, total)
    h = "$shift:A"
    for power in (1, 2):
        f = Forge()
        centred = ("sub", "x[j]", "$A")
        slots = [
            f.slot("p", "sum", ("mul", "w[j]", "x[j]")),
            f.slot("q", "sum", "w[j]"),
            f.extremum("A", ("div", "$p", "$q")),
            f.slot("u", "sum", ("mul", "w[j]", centred), "", [(1, "u"), (("neg", h), "q")]),
        ]
        moves = [(1, "v"), (("mul", -2, h), "u"), (("pow", h, 2), "q")]
        slots += [f.slot("v", "sum", ("mul", "w[j]", ("pow", centred, 2)), "", moves)] * (power == 2)
        node = ("sum:j", ("mul", "w[j]", ("pow", ("sub", "x[j]", mean), 2))) if power == 2 else ("div", weighted, total)
        value = "$v" if power == 2 else ("add", "$A", ("div", "$u", "$q"))
        stages = [
            f.stage(weighted, (("mul", "w[j]", "x[j]"), 1), name="p"),
            f.stage(total, ("w[j]", 1), name="q"),
        ]
        if power == 2:
            pairs = [
                (("mul", "w[j]", ("pow", "x[j]", 2)), 1),
                (("mul", "w[j]", "x[j]"), ("mul", -2, mean)),
                ("w[j]", ("pow", mean, 2)),
            ]
            stages.append(f.stage(node, *pairs, name="v"))
        yield f"a weighted mean, power {power}", f.document({"y": node}, slots, {"y": value}, *stages)
    targets: dict[str, tuple[Expression, Expression]] = {
        "max": ("max", "x[j]"),
        "largest size": ("max", ("abs", "x[j]")),
        "sum": ("sum", "x[j]"),
        "min": ("min", "x[j]"),
    }
    for name, (kind, lift) in targets.items():
        f = Forge()
        slots = [
            f.slot("m", str(kind), lift),
            f.extremum("A", "$m", kind="mul"),
            f.slot("u", "sum", ("div", "x[j]", "$A"), "", [("$shift:A", "u")]),
        ]
        spec = {"y": ("add", ("sum:j", "x[j]"), ("mul", 0, (f"{kind}:j", lift)))}
        yield f"scaled by the {name}", f.document(spec, slots, {"y": ("mul", "$A", "$u")})
    f = Forge()
    slots = [
        f.slot("m", "max", "x[j]"),
        f.extremum("A", ("log", "$m")),
        f.slot("u", "sum", ("sub", "x[j]", "$A"), "", [(1, "u"), (("neg", h), "n")]),
    ]
    spec = {"y": ("add", ("sum:j", "x[j]"), ("mul", 0, ("log", ("max:j", "x[j]"))))}
    yield "a logarithm of a maximum", f.document(spec, slots, {"y": ("add", "$u", ("mul", "$n", "$A"))})
    for name, generator in (("logarithm", ("log", "x[j]")), ("reciprocal", ("pow", "x[j]", -1))):
        f = Forge()
        inside = ("lt", 0, "x[j]")
        residue = ("where", inside, ("sub", generator, "$A"), 0)
        slots = [
            f.mean("A", generator, ("div", "$u", "$c")),
            f.slot("c", "sum", ("where", inside, 1, 0)),
            f.slot("u", "sum", residue, "", [(1, "u"), (("neg", h), "c")]),
        ]
        spec = {"y": ("sum:j", ("where", inside, generator, 0))}
        value = ("add", "$u", ("mul", "$c", "$A"))
        yield f"starting on a {name}", f.document(spec, slots, {"y": value})


@forged
def anchors_that_are_infinite() -> Iterator[Forged]:
    """Where nothing of a piece is selected its maximum is -oo: no number that sums can be held at."""
    selected: Expression = ("where", "?b[j]", "z[j]", 0)
    spec = {"y": ("div", ("sum:j", ("mul", ("exp", "x[j]"), selected)), ("sum:j", ("exp", "x[j]")))}
    for kind in ("max", "min"):
        for other in ("oo", "-oo", "nan"):
            for lift in (("where", "?b[j]", "x[j]", other), ("where", ("lt", "x[j]", 0), other, "z[j]")):
                for chained in (False, True):
                    f = Forge()
                    anchor = "B" if chained else "A"
                    e = ("exp", ("sub", "x[j]", f"${anchor}"))
                    move = ("exp", ("neg", f"$shift:{anchor}"))
                    parts = [f.slot("m", kind, lift), f.extremum("A", "$m")]
                    parts += [f.extremum("B", ("mul", 2, "$A"))] * chained
                    parts.append(f.slot("u", "sum", e, "", [(move, "u")]))
                    parts.append(f.slot("v", "sum", ("mul", e, selected), "", [(move, "v")]))
                    name = f"{kind} of {lift[1] if isinstance(lift[1], str) else 'a sign'}, else {other}, {chained}"
                    yield name, f.document(spec, parts, {"y": ("div", "$v", "$u")})
    for other in ("oo", "-oo", "nan"):
        f = Forge()
        start = ("where", "?b[j]", "x[j]", other)
        parts = [
            f.mean("A", start, ("div", "$u", "$n")),
            f.slot("u", "sum", ("sub", "x[j]", "$A"), "", [(1, "u"), (("neg", "$shift:A"), "n")]),
        ]
        total = {"y": ("sum:j", ("where", "?b[j]", "x[j]", "x[j]"))}
        yield f"starting on {other}", f.document(total, parts, {"y": ("add", "$u", ("mul", "$n", "$A"))})


@forged
def guards_of_other_places() -> Iterator[Forged]:
    """A condition at one place along d says nothing of the places that a sum over d binds."""
    conditions: dict[str, tuple[Expression, Expression, Expression]] = {
        "logarithm": (("lt", 0, "w[d]"), ("sum:d", "w[d]"), ("sum:d", ("exp", ("log", "w[d]")))),
        "quotient": (("ne", "w[d]", 0), ("sum:d", "w[d]"), ("sum:d", ("div", ("pow", "w[d]", 2), "w[d]"))),
        "root": (("le", 0, "w[d]"), ("sum:d", "w[d]"), ("sum:d", ("pow", ("pow", "w[d]", Fraction(1, 2)), 2))),
    }
    for name, (condition, inner, value) in conditions.items():
        f = Forge()
        spec = {"y": ("where", condition, ("mul", ("sum:j", "x[j]"), inner), 0)}
        shown = ("where", condition, ("mul", "$s", value), 0)
        yield name, f.document(spec, [f.slot("s", "sum", "x[j]")], {"y": shown})
    for size in (("abs", "w[d]"), ("pow", ("pow", "w[d]", 2), Fraction(1, 2)), ("relu", "w[d]")):
        f = Forge()
        guard = ("le", 0, "w[d]")
        root = ("pow", ("add", ("sum:d", "w[d]"), ("neg", ("sum:d", size)), 1), Fraction(1, 2))
        spec = {
            "y": (
                "where",
                guard,
                ("mul", ("sum:j", "x[j]"), ("add", ("sum:d", "w[d]"), ("neg", ("sum:d", size)), 1)),
                0,
            )
        }
        shown = ("where", guard, ("mul", "$s", ("pow", root, 2)), 0)
        yield f"a sum of {size[0]}", f.document(spec, [f.slot("s", "sum", "x[j]")], {"y": shown})


@forged
def spreads_of_something_else() -> Iterator[Forged]:
    """Σa·Σb - (Σc)² has a sign where c² = a·b, and with no other factor."""
    for k in (2, 3):
        f = Forge()
        more = ("pow", ("sum:j", "w[j]"), k)
        parts = {"a": ("pow", "x[j]", 2), "b": ("pow", "z[j]", 2), "c": ("mul", "x[j]", "z[j]"), "e": "w[j]"}
        spread = ("sub", ("mul", ("sum:j", parts["a"]), ("sum:j", parts["b"]), more), ("pow", ("sum:j", parts["c"]), 2))
        slots = [f.slot(name, "sum", body) for name, body in parts.items()]
        value = ("sub", ("mul", "$a", "$b", ("pow", "$e", k)), ("pow", "$c", 2))
        yield f"times a power {k}", f.document({"y": ("abs", spread)}, slots, {"y": value})


@forged
def values_past_an_infinity() -> Iterator[Forged]:
    """exp(-1/0) is 0: where a map hides the infinity of its divisor, a definition has a value that a form must have."""
    hiding: dict[str, Callable[[Expression], Expression]] = {
        "exp": lambda d: ("exp", ("neg", ("pow", d, -2))),
        "tanh": lambda d: ("tanh", ("pow", d, -1)),
        "atan": lambda d: ("atan", ("pow", d, -1)),
        "sigmoid": lambda d: ("sigmoid", ("pow", d, -1)),
        "reciprocal": lambda d: ("pow", ("add", 1, ("pow", d, -2)), -1),
        "maximum": lambda d: ("maximum", 0, ("neg", ("pow", d, -2))),
        "relu": lambda d: ("relu", ("neg", ("pow", d, -2))),
        "comparison": lambda d: ("where", ("lt", ("pow", d, -2), 5), 1, 0),
    }
    for name, of in hiding.items():
        for d, part in (("d", "d"), (("sum:j", "w[j]"), "$w")):
            f = Forge()
            slots = [f.slot("s", "sum", "x[j]"), *([f.slot("w", "sum", "w[j]")] if part == "$w" else [])]
            value = ("where", ("eq", part, 0), 7, ("mul", "$s", of(part)))
            yield f"{name} {part}", f.document({"y": ("mul", ("sum:j", "x[j]"), of(d))}, slots, {"y": value})


@forged
def axes_that_cancel() -> Iterator[Forged]:
    """A sum over d counts its positions where what it sums has d no more, for the sum over j of it is divided by."""
    share: Expression = ("div", "+x[j,d]", ("sum:j", "+x[j,d]"))
    open_share = ("+x[j,d~1]", ("pow", ("sum:j", "+x[j,d~1]"), -1))
    whole, each = ("sum:j", ("sum:d", share)), ("sum:j", share)
    weighted: Expression = ("sum:j", ("sum:d,c", ("mul", "w[c]", share)))
    specs: dict[str, tuple[Expression, Expression, tuple[Expression, Expression], Expression]] = {
        "shares": (whole, whole, open_share, 1),
        "shares, d outside": (("sum:d", each), each, ("+x[j,d]", ("pow", ("sum:j", "+x[j,d]"), -1)), 1),
        "weighted": (weighted, weighted, (open_share[0], ("mul", "w[c~1]", open_share[1])), ("sum:c", "w[c]")),
        "squared": (("pow", whole, 2), whole, open_share, ("size", "d")),
    }
    for name, (definition, stage, pair, value) in specs.items():
        f = Forge()
        made = f.stage(stage, pair, name="u")
        stages = [made if s.node is made.node else s for s in f._stages({"y": f(definition)})]
        yield name, f.document({"y": definition}, [f.slot("s", "sum", "+x[j,d]", "d")], {"y": value}, *stages)
