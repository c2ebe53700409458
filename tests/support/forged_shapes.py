"""Forged certificates of a shape that no form has: names, axes, domains, orders (see
`tests.support.forged_certificates`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

from tests.support.forged_certificates import Forged
from tests.support.forging import Expression, Forge

SHAPES: dict[str, Callable[[], Iterator[Forged]]] = {}


def forged(f: Callable[[], Iterator[Forged]]) -> Callable[[], Iterator[Forged]]:
    SHAPES[f.__name__] = f
    return f


@forged
def domains_declared_on_shifts() -> Iterator[Forged]:
    """A leaf of the state is what it is, whatever is written on it."""
    entries: dict[str, Callable[[Expression], Expression]] = {
        "logarithm": lambda h: ("exp", ("log", h)),
        "root": lambda h: ("pow", ("pow", h, Fraction(1, 2)), 2),
        "root of 4": lambda h: ("pow", ("pow", h, Fraction(1, 4)), 4),
        "quotient": lambda h: ("div", ("pow", h, 2), h),
    }
    for name, of in entries.items():
        for domain in ("+", "%"):
            if domain == "%" and name in ("logarithm", "quotient"):
                continue
            for target, kind in (("x[j]", "min"), ("x[j]", "mean")):
                f = Forge()
                h = of(f"${domain}shift:A")
                centred = f.slot("u", "sum", ("sub", "x[j]", "$A"), "", [(1, "u"), (("neg", h), "n")])
                first = [f.slot("m", "min", target), f.extremum("A", "$m")]
                parts = [*first, centred] if kind == "min" else [f.mean("A", target, ("div", "$u", "$n")), centred]
                spec = {"y": ("add", ("sum:j", "x[j]"), ("mul", 0, ("min:j", "x[j]")) if kind == "min" else 0)}
                value = ("add", "$u", ("mul", "$n", "$A"))
                yield f"{name} {domain} {kind}", f.document(spec, parts, {"y": value})


def roundings_to_other_formats() -> Iterator[Forged]:
    """That rounding commutes is assumed of the formats of the spec alone; folding assumes it, and cannot show that."""
    for wanted, other in (("float8_e4m3fn", "int8"), ("float16", "float8_e5m2"), ("int8", "float16"), ("int8", "")):
        f = Forge()
        slot = f.slot("s", "sum", ("cast", other, "x[j]") if other else "x[j]")
        spec = {"y": ("sum:j", ("cast", wanted, "x[j]"))}
        yield f"{wanted} for {other}", f.document(spec, [slot], {"y": "$s"}, assumptions=("cast_commutes",))


@forged
def names_the_spec_lacks() -> Iterator[Forged]:
    """Tensors, lengths and axes that are not those of the spec."""
    total = {"y": ("sum:j", "x[j]")}
    values: dict[str, tuple[Expression, Expression]] = {
        "a tensor in a lift": (("sub", ("add", "x[j]", "z[j]"), "z[j]"), "$s"),
        "a positive tensor": ("x[j]", ("div", ("mul", "$s", "+z"), "+z")),
        "a length": ("x[j]", ("div", ("mul", "$s", ("size", "k")), ("size", "k"))),
        "a position": ("x[j]", ("add", "$s", ("mul", 0, ("sum:k", ("index", "k"))))),
        "the whole stream's length": (("div", "x[j]", ("size", "j")), ("mul", "$s", "$n")),
    }
    for name, (lift, value) in values.items():
        f = Forge()
        yield name, f.document(total, [f.slot("s", "sum", lift)], {"y": value})
    f = Forge()
    yield "no form at all", f.document(total, [], {"y": ("sum:j", "x[j]")})
    f = Forge()
    slots = [f.slot("s", "sum", ("sum:k", "x[k]"))]
    spec = {"y": ("mul", ("size", "j"), ("sum:j", "x[j]"))}
    yield "the stream along another axis", f.document(spec, slots, {"y": "$s"})
    for axis in ("j~1", "j'"):
        f = Forge()
        yield f"the stream along {axis}", f.document(total, [], {"y": (f"sum:{axis}", f"x[{axis}]")})
    for kind in ("max", "min", "prod", "argmax"):
        f = Forge()
        yield f"the {kind} itself", f.document({"y": (f"{kind}:j", "x[j]")}, [], {"y": (f"{kind}:j", "x[j]")})
    f = Forge()
    slots = [f.slot("s", "sum", ("mul", "x[j]", ("max:j", "x[j]")))]
    spec = {"y": ("mul", ("sum:j", "x[j]"), ("max:j", "x[j]"))}
    yield "an element that reads the stream", f.document(spec, slots, {"y": "$s"})


@forged
def conflated_axes() -> Iterator[Forged]:
    """Axes whose names differ by what the checker writes on names."""
    for a, b in (("d", "d'"), ("d", "d~1"), ("i'", "i"), ("k~", "k")):
        f = Forge()
        spec = {"y": ("sum:j", ("mul", "x[j]", (f"sum:{a},{b}", ("mul", f"c[{a},{b}]", f"g[{a}]"))))}
        lift = ("mul", "x[j]", (f"sum:{a},{b}", ("mul", f"c[{b},{a}]", f"g[{b}]")))
        yield f"{a} and {b}", f.document(spec, [f.slot("s", "sum", lift)], {"y": "$s"})
    f = Forge()
    spec = {"y": ("topk_values:j:2:d", "x[j,d]")}
    slots = [f.slot("m", "topk", "x[j,d]", "d", extra=(2, "d"))]
    yield "a list along an axis of its elements", f.document(spec, slots, {"y": "$m values[d]"})


@forged
def parts_read_before_they_are_there() -> Iterator[Forged]:
    """The order of a pass: an anchor reads what stands before it, a slot is lifted at anchors that are there."""
    f = Forge()
    h = "$shift:A"
    u = f.slot("u", "sum", ("sub", "x[j]", "$A"), "", [(1, "u"), (("neg", h), "n")])
    m, anchor = f.slot("m", "max", "x[j]"), f.extremum("A", "$m")
    spec = {"y": ("add", ("sum:j", "x[j]"), ("mul", 0, ("max:j", "x[j]")))}
    value = ("add", "$u", ("mul", "$n", "$A"))
    for name, parts in {"an anchor first": [anchor, m, u], "a slot before its anchor": [m, u, anchor]}.items():
        yield name, f.document(spec, parts, {"y": value})
    f = Forge()
    shifted = f.slot("u", "sum", ("sub", "x[j]", "$A"), "", [(1, "u"), (("neg", h), "n")])
    parts = [f.extremum("A", ("div", "$u", "$n")), shifted]
    yield (
        "an anchor that reads what it moves",
        f.document({"y": ("sum:j", "x[j]")}, parts, {"y": ("add", "$u", ("mul", "$n", "$A"))}),
    )


@forged
def numbers_that_are_not_real() -> Iterator[Forged]:
    """The imaginary unit's square is no square of a real number; a truth is no rounding."""
    f = Forge()
    spec = {"y": ("mul", ("sum:j", "x[j]"), ("where", ("le", 0, ("pow", "i", 2)), 1, 0))}
    f2 = f.slot("s", "sum", "x[j]")
    yield "a sign of i squared", f.document(spec, [f2], {"y": "$s"})
    for name in ("cast_commutes", "cast_left_out"):
        f = Forge()
        slots = [f.slot("s", "sum", "x[j]")]
        spec = {"y": ("add", ("cast", "float16", ("sum:j", "x[j]")), ("cast", "bool", ("sum:j", "x[j]")))}
        value = ("mul", 2, "$s")
        yield f"a cast to truths, {name}", f.document(spec, slots, {"y": value}, assumptions=(name,))


@forged
def monoids_of_something_else() -> Iterator[Forged]:
    """A combination reads its two sides alone, and has the parts of its slot."""
    f = Forge()
    odd = f.monoid("odd", [("add", "$a0", "$b0", "z")], [("neg", "z")], True)
    slots = [f.slot("s", "monoid", ["x[j]"], monoid=0, identity=[("neg", "z")], parts=("s",))]
    yield "a tensor", f.document({"y": ("monoid:j:0:0", "x[j]")}, slots, {"y": "$s"}, monoids=(odd,))
    f = Forge()
    add = f.monoid("add", [("add", "$a0", "$b0"), ("add", "$a1", "$b1")], [0, 0], True)
    spec = {"y": ("monoid:j:0:0", "x[j]", "z[j]")}
    slots = [f.slot("s", "monoid", ["x[j]"], monoid=0, identity=[0], parts=("s",))]
    yield "fewer parts", f.document(spec, slots, {"y": "$s"}, monoids=(add,))


@forged
def products_that_move_otherwise() -> Iterator[Forged]:
    """Π z/A moves by (A/A')^n, n the number of its factors, and A is not 0."""
    n, ratio = "$#+n", ("div", "z[j]", "$A")
    masked = ("where", ("lt", 0, "c[j]"), ratio, 1)
    counts = {"c": ("lt", 0, "c[j]"), "d": ("lt", 0, "d[j]")}
    moves: dict[str, tuple[Expression, list[Expression]]] = {
        "not at all": (ratio, []),
        "by the ratio alone": (ratio, [("$shift:A", "u")]),
        "by its square": (ratio, [(("pow", "$shift:A", 2), "u")]),
        "by the power of its square": (ratio, [(("pow", ("pow", "$shift:A", 2), n), "u")]),
        "by its inverse": (ratio, [(("pow", ("pow", "$shift:A", -1), n), "u")]),
        "with the element": (ratio, [(("pow", ("mul", "$shift:A", "z[j]"), n), "u")]),
        "with a tensor": (ratio, [(("pow", ("mul", "$shift:A", "w"), n), "u")]),
        "with all that are masked out": (masked, [(("pow", "$shift:A", n), "u")]),
        "with those of another mask": (masked, [(("pow", "$shift:A", "$kd"), "u")]),
        "with those of a mask where there is none": (ratio, [(("pow", "$shift:A", "$kc"), "u")]),
        "with a sum of elements": (ratio, [(("pow", "$shift:A", "$s"), "u")]),
        "with the count of another product": (ratio, [(("pow", "$shift:A", n), "v")]),
        "twice": (ratio, [(("pow", "$shift:A", n), "u"), (("pow", "$shift:A", n), "u")]),
    }
    for name, (lift, moved) in moves.items():
        f = Forge()
        own = [f.slot(f"k{k}", "sum", ("where", c, 1, 0)) for k, c in counts.items()]
        parts = [*own, f.slot("s", "sum", "c[j]"), f.slot("v", "prod", "d[j]"), f.slot("m", "max", "+x[j]")]
        parts += [f.extremum("A", "$m", kind="mul"), f.slot("u", "prod", lift, "", moved)]
        at_once = ("div", "z[j]", ("max:j", "+x[j]"))
        body = ("where", ("lt", 0, "c[j]"), at_once, 1) if lift is masked else at_once
        spec = {"y": ("add", ("prod:j", body), ("mul", 0, "w", ("sum:j", ("mul", "c[j]", "d[j]"))))}
        yield name, f.document(spec, parts, {"y": "$u"})
    f = Forge()
    parts = [f.slot("m", "max", "x[j]"), f.extremum("A", "$m", kind="mul")]
    parts.append(f.slot("u", "prod", ratio, "", [(("pow", "$shift:A", n), "u")]))
    guarded = ("where", ("eq", ("max:j", "x[j]"), 0), 7, ("div", "z[j]", ("max:j", "x[j]")))
    yield (
        "an anchor that may be 0",
        f.document({"y": ("prod:j", guarded)}, parts, {"y": ("where", ("eq", "$m", 0), ("pow", 7, n), "$u")}),
    )
