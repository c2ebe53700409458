"""Forged certificates that leave the domain of a map (see `tests.support.forged_certificates`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

from tests.support.forged_certificates import Forged
from tests.support.forging import Expression, Forge

DOMAINS: dict[str, Callable[[], Iterator[Forged]]] = {}


def forged(f: Callable[[], Iterator[Forged]]) -> Callable[[], Iterator[Forged]]:
    DOMAINS[f.__name__] = f
    return f


@forged
def terms_that_cancel_where_they_have_a_value() -> Iterator[Forged]:
    """f(u) - f(u) is 0 in the domain of f, and NaN elsewhere."""
    maps = "log log1p asin acos acosh atanh".split()
    partial: dict[str, Callable[[Expression], Expression]] = {f: lambda d, f=f: (f, d) for f in maps}  # type: ignore[misc]
    partial |= {
        "root": lambda d: ("pow", d, Fraction(1, 2)),
        "root 4": lambda d: ("pow", d, Fraction(3, 4)),
        "cube root": lambda d: ("pow", d, Fraction(1, 3)),
        "reciprocal": lambda d: ("pow", d, -1),
        "root below": lambda d: ("pow", d, Fraction(-1, 2)),
    }
    for name, of in partial.items():
        for where in ("output", "lift", "guarded"):
            f = Forge()
            total: Expression = ("sum:j", "x[j]")
            nothing = ("sub", of("u"), of("u")) if where != "lift" else ("sub", of("x[j]"), of("x[j]"))
            if where == "output":
                spec, lift, value = ("add", total, ("mul", 0, "u")), "x[j]", ("add", "$s", nothing)
            elif where == "lift":
                spec, lift, value = total, ("add", "x[j]", nothing), "$s"
            else:
                spec = ("add", total, ("where", ("lt", 2, "u"), of("u"), 0))
                lift, value = "x[j]", ("add", "$s", nothing, ("where", ("lt", 2, "u"), of("u"), 0))
                if name in ("asin", "acos", "atanh"):
                    continue
            yield f"{name}, {where}", f.document({"y": spec}, [f.slot("s", "sum", lift)], {"y": value})
