"""Forged certificates that hold while stage values are numbers, not where nothing is selected or a list is short."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from redalg.proofs.document.document import Slot
from tests.support.forged_certificates import Forged
from tests.support.forging import Expression, Forge

INFINITIES: dict[str, Callable[[], Iterator[Forged]]] = {}
TOTAL: Expression = ("sum:j", "x[j]")
MASKED: Expression = ("where", "?b[j]", "x[j]", "-oo")
LARGEST: Expression = ("max:j", MASKED)
FIRST: Expression = ("topk_values:j:2:top", "x[j]")
HIDING: dict[str, Callable[[Expression], Expression]] = {
    "exp": lambda v: ("exp", v),
    "tanh": lambda v: ("tanh", v),
    "comparison": lambda v: ("where", ("lt", v, 3), 1, 0),
}
OF_MAXIMA: dict[str, Expression] = {  # beside Σ x, over m, the maximum of what is selected
    "times 0": ("add", "$s", ("mul", 0, "$m")),
    "less itself": ("add", "$s", ("sub", "$m", "$m")),
    "over itself": ("mul", "$s", ("div", "$m", "$m")),
    "its size less the larger side": ("add", "$s", ("sub", ("abs", "$m"), ("maximum", "$m", ("neg", "$m")))),
    "no difference": ("where", ("eq", ("sub", "$m", "$m"), 0), "$s", 7),
    "one less": ("where", ("lt", ("add", "$m", -1), "$m"), "$s", 7),
    "one more": ("where", ("lt", "$m", ("add", "$m", 1)), "$s", 7),
    "exp of both signs": ("mul", "$s", ("exp", "$m"), ("exp", ("neg", "$m"))),
    "both sides of 0": ("add", "$s", ("sub", ("sub", ("relu", "$m"), ("relu", ("neg", "$m"))), "$m")),
    "its floor": ("add", "$s", ("sub", ("floor", ("add", "$m", 1)), ("add", ("floor", ("add", "$m", 1)), 0))),
    "more than -oo": ("where", ("lt", "-oo", "$m"), "$s", 7),
    "other than -oo": ("where", ("ne", "$m", "-oo"), "$s", 7),
    "more than -1": ("where", ("lt", -1, ("tanh", "$m")), "$s", 7),
    "positive": ("where", ("lt", 0, ("exp", "$m")), "$s", 7),
    "not 0": ("where", ("eq", 0, ("exp", "$m")), 7, "$s"),
}
OF_LISTS: dict[str, Expression] = {  # over t, the first two of x
    "less itself": ("add", "$s", ("sum:top", ("sub", "$t values[top]", "$t values[top]"))),
    "times 0": ("add", "$s", ("mul", 0, ("sum:top", "$t values[top]"))),
    "all more than -oo": ("where", ("all:top", ("lt", "-oo", "$t values[top]")), "$s", 7),
    "one more": ("where", ("any:top", ("eq", ("add", "$t values[top]", 1), "$t values[top]")), 7, "$s"),
    "the least": ("where", ("lt", ("add", ("min:top", "$t values[top]"), -1), ("min:top", "$t values[top]")), "$s", 7),
    "exp of the least": ("where", ("lt", 0, ("min:top", ("exp", "$t values[top]"))), "$s", 7),
    "all are there": ("where", ("le", 0, ("min:top", "$t indices[top]")), "$s", 7),
    "squares": ("add", "$s", ("sum:top", ("sub", ("pow", "$t values[top]", 2), ("pow", ("abs", "$t values[top]"), 2)))),
}


def forged(f: Callable[[], Iterator[Forged]]) -> Callable[[], Iterator[Forged]]:
    INFINITIES[f.__name__] = f
    return f


def _maximum(f: Forge) -> list[Slot]:
    return [f.slot("s", "sum", "x[j]"), f.slot("m", "max", MASKED)]


def _list(f: Forge, lift: Expression = "x[j]") -> list[Slot]:
    return [f.slot("s", "sum", "x[j]"), f.slot("t", "topk", lift, extra=(2, "top"))]


@forged
def maxima_of_nothing() -> Iterator[Forged]:
    """Where no element is selected the maximum is -oo, which is no number to calculate with."""
    for name, value in OF_MAXIMA.items():
        f = Forge()
        spec = ("add", TOTAL, ("where", ("lt", LARGEST, 3), 0, 0))
        yield name, f.document({"y": spec}, _maximum(f), {"y": value})
    f = Forge()
    value = ("where", ("eq", ("mul", 2, "$m"), "$m"), 7, ("where", ("eq", "$m", 0), 7, "$s"))
    yield "twice", f.document({"y": ("where", ("eq", LARGEST, 0), 7, TOTAL)}, _maximum(f), {"y": value})
    for name, of in HIDING.items():
        f = Forge()
        body: Expression = ("where", "?b[j]", ("mul", "u", "x[j]"), "-oo")
        slots = [f.slot("m", "max", body)]
        yield f"a factor, {name}", f.document({"y": of(("mul", "u", LARGEST))}, slots, {"y": of("$m")})
        f = Forge()
        ends = [f.slot("m", "max", MASKED), f.slot("l", "min", ("where", "?b[j]", "x[j]", "oo"))]
        apart = ("sub", LARGEST, ("min:j", ("where", "?b[j]", "x[j]", "oo")))
        value = of(("neg", ("maximum", 0, ("sub", "$m", "$l"))))
        if name == "tanh":
            yield f"a range, {name}", f.document({"y": ("add", of(("neg", apart)), 1)}, ends, {"y": ("add", value, 1)})


@forged
def lists_that_are_short() -> Iterator[Forged]:
    """Entries past the end of the stream are -oo, and so are those of elements that are not selected."""
    for name, value in OF_LISTS.items():
        f = Forge()
        spec = ("add", TOTAL, ("sum:top", ("where", ("lt", FIRST, 3), 0, 0)))
        yield name, f.document({"y": spec}, _list(f), {"y": value})
    masked = ("topk_values:j:2:top", MASKED)
    chosen = ("where", ("eq", "$t values[top]", "-oo"), 1, ("exp", "$t values[top]"))
    f = Forge()
    yield (
        "of what is selected",
        f.document({"y": ("sum:top", ("exp", masked))}, _list(f, MASKED), {"y": ("sum:top", chosen)}),
    )
    f = Forge()
    place = ("max:top", ("where", ("eq", "$t values[top]", "-oo"), -1, "$t indices[top]"))
    yield (
        "places of what is selected",
        f.document({"y": ("max:top", ("topk_indices:j:2:top", MASKED))}, _list(f, MASKED), {"y": place}),
    )
    f = Forge()
    less = ("sum:top", ("where", ("lt", "$t indices[top]", 0), 0, ("sub", "$t values[top]", "$t values[top]")))
    spec = ("add", TOTAL, ("sum:top", ("where", ("lt", masked, 3), 0, 0)))
    yield "entries that are there", f.document({"y": spec}, _list(f, MASKED), {"y": ("add", "$s", less)})


@forged
def elements_that_are_infinite() -> Iterator[Forged]:
    """The laws of averages and of monoids are those of numbers."""
    for name, of in HIDING.items():
        f = Forge()
        mean = ("div", ("sum:j", MASKED), ("size", "j"))
        yield (
            f"an average, {name}",
            f.document({"y": of(mean)}, [f.slot("u", "sum", MASKED, average=True)], {"y": of("$u")}),
        )
    laws: dict[str, tuple[Expression, Expression]] = {
        "less itself": (("where", ("eq", ("sub", "$a0", "$a0"), 0), ("add", "$a0", "$b0"), 7), 0),
        "one less": (("where", ("lt", ("sub", "$a0", 1), "$a0"), ("add", "$a0", "$b0"), 7), 0),
    }
    for name, (combined, identity) in laws.items():
        for lift in (MASKED, ("where", "?b[j]", "x[j]", "oo")):
            f = Forge()
            monoid = f.monoid("odd", [combined], [identity])
            slots = [f.slot("u", "monoid", [lift], monoid=0, identity=[identity], parts=("u",))]
            doc = f.document({"y": ("monoid:j:0:0", lift)}, slots, {"y": "$u"}, monoids=(monoid,))
            yield f"a monoid, {name}, {lift[3]}", doc
