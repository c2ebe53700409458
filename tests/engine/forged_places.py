"""Forged certificates about where a definition has a value (see `tests.support.forged_certificates`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

from tests.support.forged_certificates import Forged
from tests.support.forging import Expression, Forge

PLACES: dict[str, Callable[[], Iterator[Forged]]] = {}
TOTAL: Expression = ("sum:j", "x[j]")
NOTHING = {  # 0 where the map has a value
    "divisor": lambda d: ("mul", 0, ("pow", d, -1)),
    "its own quotient": lambda d: ("mul", 0, ("div", d, d)),
    "logarithm": lambda d: ("mul", 0, ("log", d)),
    "logarithm of another factor": lambda d: ("mul", 0, ("log", ("mul", 2, d))),
    "root": lambda d: ("mul", 0, ("pow", d, Fraction(1, 2))),
}
PARTIAL = {
    "divisor": lambda d: ("pow", d, -1),
    "its own quotient": lambda d: ("pow", d, -1),
    "logarithm": lambda d: ("log", d),
    "logarithm of another factor": lambda d: ("log", d),
    "root": lambda d: ("pow", d, Fraction(1, 2)),
}


def forged(f: Callable[[], Iterator[Forged]]) -> Callable[[], Iterator[Forged]]:
    PLACES[f.__name__] = f
    return f


@forged
def domains_of_other_outputs() -> Iterator[Forged]:
    """What one output divides by, or takes a logarithm of, another one may be defined without."""
    for name, of in NOTHING.items():
        for where in ("output", "lift"):
            f = Forge()
            nothing = of("d")
            spec = {"y": ("add", TOTAL, ("mul", 0, "d")), "z": ("mul", TOTAL, PARTIAL[name]("d"))}
            lift = ("add", "x[j]", nothing) if where == "lift" else "x[j]"
            parts = [f.slot("s", "sum", lift), f.slot("t", "sum", "x[j]")]
            value = ("add", "$s", nothing) if where == "output" else "$s"
            yield f"{name}, {where}", f.document(spec, parts, {"y": value, "z": ("mul", "$t", PARTIAL[name]("d"))})
    f = Forge()
    spec = {"y": ("add", TOTAL, ("mul", 0, "d")), "z": ("div", TOTAL, "d")}
    value = {"y": ("where", ("eq", "d", 0), 5, "$s"), "z": ("div", "$s", "d")}
    yield "another value where it is 0", f.document(spec, [f.slot("s", "sum", "x[j]")], value)
    f = Forge()
    spec = {"y": ("sum:j", ("div", "x[j]", "d")), "z": ("max:j", "x[j]"), "w": ("max:j", ("div", "x[j]", "d"))}
    parts = [f.slot("s", "sum", ("div", "x[j]", "d")), f.slot("m", "max", ("div", "x[j]", "d"))]
    yield "a maximum of quotients", f.document(spec, parts, {"y": "$s", "z": ("mul", "$m", "d"), "w": "$m"})


@forged
def domains_of_other_positions() -> Iterator[Forged]:
    """y[g] = x/d[g] has a value wherever d[g] is not 0, whatever d is at other places along g."""
    for name, of in NOTHING.items():
        f = Forge()
        spec = {"y": ("mul", TOTAL, PARTIAL[name]("d[g]"))}
        value = ("add", ("mul", "$s", PARTIAL[name]("d[g]")), ("sum:g", of("d[g]")))
        yield f"{name} in an output", f.document(spec, [f.slot("s", "sum", "x[j]")], {"y": value})
        f = Forge()
        parts = [f.slot("s", "sum", "x[j]"), f.slot("u", "sum", ("mul", "x[j]", of("d[g]")), "g")]
        value = ("add", ("mul", "$s", PARTIAL[name]("d[g]")), ("mul", 0, ("sum:g", "$u[g]")))
        yield f"{name} in a slot that is summed", f.document(spec, parts, {"y": value})
    for shown, guard in (
        ("any", ("any:g", ("eq", "d[g]", 0))),
        ("not all", ("not", ("all:g", ("ne", "d[g]", 0)))),
        ("how many", ("lt", 0, ("sum:g", ("where", ("eq", "d[g]", 0), 1, 0)))),
    ):
        for other in ("nan", 7):
            f = Forge()
            spec = {"y": ("div", TOTAL, "d[g]")}
            value = ("where", guard, other, ("div", "$s", "d[g]"))
            yield f"{shown}, else {other}", f.document(spec, [f.slot("s", "sum", "x[j]")], {"y": value})


@forged
def zeros_at_some_place() -> Iterator[Forged]:
    """Where some W[g] is 0, a sum over g has no value if it divides by every W[g]: by no other, and not hidden."""
    w, quotient = ("sum:j", "w[j,g]"), ("div", ("sum:j", "x[j]"), ("sum:j", "w[j,g]"))
    zero = ("any:g", ("eq", w, 0))
    guards: dict[str, tuple[Expression, Expression]] = {
        "another weight": (("sum:g", quotient), ("any:g", ("eq", ("sum:j", "v[j,g]"), 0))),
        "another value": (("sum:g", quotient), ("any:g", ("eq", w, 1))),
        "not 0": (("sum:g", quotient), ("any:g", ("ne", w, 0))),
        "0, or another weight": (("sum:g", quotient), ("any:g", ("or", ("eq", w, 0), ("eq", ("sum:j", "v[j,g]"), 0)))),
        "no divisor": (("sum:g", ("mul", ("sum:j", "x[j]"), w)), zero),
        "a guarded divisor": (("sum:g", ("where", ("ne", w, 0), quotient, 0)), zero),
        "a hidden divisor": (("sum:g", ("tanh", quotient)), zero),
        "an extremum": (("max:g", ("neg", ("pow", w, -2))), zero),
        "a factor of it": (("sum:g", quotient), ("any:g", ("eq", ("mul", w, "h"), 0))),
        "below another": (("sum:g", ("div", 1, ("add", w, 1))), zero),
    }
    names = {"w": "w[j,g]", "v": "v[j,g]"}
    for name, (definition, guard) in guards.items():
        for other in ("nan", 7):
            f = Forge()
            parts = [f.slot("s", "sum", "x[j]"), *(f.slot(n, "sum", e, "g") for n, e in names.items())]
            spec = ("add", definition, ("mul", 0, TOTAL, "h"), ("mul", 0, ("sum:g", ("sum:j", "v[j,g]"))))
            value = ("where", _held(guard), other, _held(definition))
            yield f"{name}, else {other}", f.document({"y": spec}, parts, {"y": value})
    f = Forge()
    spec = {"y": ("sum:g", ("div", TOTAL, "d[g,h]"))}
    value = ("where", ("any:g,h", ("eq", "d[g,h]", 0)), "nan", ("sum:g", ("div", "$s", "d[g,h]")))
    yield "along an axis of the output too", f.document(spec, [f.slot("s", "sum", "x[j]")], {"y": value})


def _held(e: Expression) -> Expression:
    """An expression over sums of the stream, over the slots that hold them."""
    if isinstance(e, tuple) and e[0] == "sum:j":
        name = e[1].split("[")[0]
        return "$s" if name == "x" else f"${name}[g]"
    return (e[0], *map(_held, e[1:])) if isinstance(e, tuple) else e


@forged
def zeros_of_another_factor() -> Iterator[Forged]:
    """a·(p + q) is 0 where a is, whatever is divided by p + q."""
    divisor = ("add", "p", "q")
    for of in (lambda t: ("pow", ("sign", t), 2), lambda t: ("abs", ("sign", t))):
        for scale in ("a", ("pow", "a", 2)):
            f = Forge()
            size = of(("add", ("mul", scale, "p"), ("mul", scale, "q")))
            spec = {"y": ("add", ("div", TOTAL, divisor), ("mul", 0, "a"))}
            value = ("mul", ("div", "$s", divisor), size)
            yield f"{size[0]}, {scale[0]}", f.document(spec, [f.slot("s", "sum", "x[j]")], {"y": value})


C, D = ("lt", 0, "c[j]"), ("lt", 0, "d[j]")
NUMBER = {"c": ("sum:j", ("where", C, 1, 0)), "d": ("sum:j", ("where", D, 1, 0))}


@forged
def divisors_that_no_element_selects() -> Iterator[Forged]:
    """Σ where(c, x/h, 0) divides by h where c holds for some element, and shows it where no map hides it."""
    ratio = ("div", "x[j]", "h")
    below = ("neg", ("pow", "h", -2))
    claims: dict[str, tuple[str, Expression, Expression]] = {
        "a sum": ("sum", ("where", C, ratio, 0), True),
        "a product": ("prod", ("where", C, ratio, 1), True),
        "a sum, another condition": ("sum", ("where", C, ratio, 0), "d"),
        "a product, another condition": ("prod", ("where", C, ratio, 1), "d"),
        "a sum, the opposite condition": ("sum", ("where", C, 0, ratio), "c"),
        "a product, the opposite condition": ("prod", ("where", C, 1, ratio), "c"),
        "a sum, one of two conditions": ("sum", ("where", C, ("where", D, ratio, 0), 0), "c"),
        "a hidden sum": ("sum", ("where", C, ("tanh", ratio), 0), "c"),
        "a maximum": ("max", ("where", C, below, 0), "c"),
        "a place": ("argmax", ("where", C, ratio, 0), "c"),
    }
    for name, (kind, lift, chosen) in claims.items():
        f = Forge()
        parts = [f.slot(k, "sum", ("where", c, 1, 0)) for k, c in (("c", C), ("d", D))]
        parts.append(f.slot("u", kind, lift))
        guard: Expression = ("eq", "h", 0)
        if isinstance(chosen, str):
            guard = ("and", guard, ("ne", f"${chosen}", 0))
        out = "$u at" if kind == "argmax" else "$u"
        spec = ("add", (f"{kind}:j", lift), *(("mul", 0, s) for s in NUMBER.values()))
        yield name, f.document({"y": spec}, parts, {"y": ("where", guard, 7, out)})


@forged
def products_taken_apart() -> Iterator[Forged]:
    """Π where(c, x, h) = Π where(c, x, 1)·h^(number of the others), and a product over nothing is 1."""
    alone, both = ("where", C, "x[j]", 1), ("where", C, ("mul", "+h", "x[j]"), 1)
    n = "$n"
    claims: dict[str, tuple[Expression, Expression, Expression]] = {
        "with the number of the same": (("where", C, "x[j]", "+h"), alone, ("mul", "$u", ("pow", "+h", "$c"))),
        "with the number of all": (("where", C, "x[j]", "+h"), alone, ("mul", "$u", ("pow", "+h", n))),
        "with none": (("where", C, "x[j]", "+h"), alone, "$u"),
        "of two conditions": (
            ("where", C, "x[j]", ("where", D, "+h", 1)),
            alone,
            ("mul", "$u", ("pow", "+h", "$d")),
        ),
        "scaled by all": (both, alone, ("mul", "$u", ("pow", "+h", n))),
        "another value for none": (both, both, ("where", ("eq", "$c", 0), 5, "$u")),
        "another value for none of another": (both, both, ("where", ("eq", "$d", 0), 1, "$u")),
        "of all that are none": (both, both, ("where", ("eq", "$c", n), 1, "$u")),
        "one where the sum is 0": (both, both, ("where", ("eq", "$w", 0), 1, "$u")),
        "masked to 0": (("where", C, "x[j]", 0), ("where", C, "x[j]", 1), "$u"),
    }
    for name, (body, lift, value) in claims.items():
        f = Forge()
        parts = [f.slot(k, "sum", ("where", c, 1, 0)) for k, c in (("c", C), ("d", D))]
        parts += [f.slot("w", "sum", ("where", C, "d[j]", 0)), f.slot("u", "prod", lift)]
        more = (*NUMBER.values(), ("sum:j", ("where", C, "d[j]", 0)), "+h")
        spec = ("add", ("prod:j", body), *(("mul", 0, s) for s in more))
        yield name, f.document({"y": spec}, parts, {"y": value})


@forged
def powers_of_products() -> Iterator[Forged]:
    """(a·b)^n is a^n·b^n, and a^(m + n) is a^m·a^n, where all of them have a value; and nothing else."""
    product, total = ("pow", ("mul", "a", "b"), "n"), ("pow", "a", ("add", "m", "n"))
    claims: dict[str, tuple[Expression, Expression]] = {
        "factors of either sign": (product, ("mul", ("pow", "a", "n"), ("pow", "b", "n"))),
        "one factor alone": (product, ("mul", ("pow", "a", "n"), "b")),
        "a square": (("pow", ("pow", "a", 2), "n"), ("pow", ("pow", "a", "n"), 2)),
        "exponents of either sign": (total, ("mul", ("pow", "a", "m"), ("pow", "a", "n"))),
        "a sum of powers": (total, ("add", ("pow", "a", "m"), ("pow", "a", "n"))),
        "a power of a power": (total, ("pow", ("pow", "a", "m"), "n")),
        "the sign": (("pow", ("neg", "a"), "n"), ("neg", ("pow", "a", "n"))),
        "an exponent and one": (("pow", "a", ("add", "n", 1)), ("pow", "a", "n")),
    }
    for name, (definition, value) in claims.items():
        f = Forge()
        spec = {"y": ("add", ("mul", TOTAL, definition), *(("mul", 0, x) for x in ("a", "b", "m", "n")))}
        yield name, f.document(spec, [f.slot("s", "sum", "x[j]")], {"y": ("mul", "$s", value)})
    f = Forge()
    spec = {"y": ("add", ("mul", TOTAL, ("pow", "a", "n")), ("mul", 0, "a", "n"))}
    value = ("add", ("mul", "$s", ("pow", "a", "n")), ("mul", 0, ("log", "a")))
    yield "the logarithm of a base", f.document(spec, [f.slot("s", "sum", "x[j]")], {"y": value})
