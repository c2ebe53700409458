"""Forged forms over the newer operators: positions, lists, monoids, arrays in states, several outputs and passes.

Each is a document with all the obligations that it entails, one by one false or not provable; used as the classes of
`tests.support.forged_certificates` are. `NOT_FOLDED` are those that no stream shows to be false: a law of theirs fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from redalg.proofs.document.document import Document
from redalg.proofs.document.terms import Leaf
from tests.support.forging import Expression, Forge

Forged = tuple[str, Document]
OPERATORS: dict[str, Callable[[], Iterator[Forged]]] = {}
X, SQUARES = "x[j]", ("pow", "x[j]", 2)
TOTAL, COUNT = ("sum:j", X), ("size", "j")
MEAN = ("div", TOTAL, COUNT)
H = "$shift:A"
NOT_FOLDED = {
    "claimed to commute",
    "another identity",
    "an action that adds nothing",
    "lands at half",
    "starts at 0 and divides",
    "the first of whole numbers",
    "without a conjugate",
    "rounded otherwise",
    "an empty mask is 0",
}


def forged(f: Callable[[], Iterator[Forged]]) -> Callable[[], Iterator[Forged]]:
    OPERATORS[f.__name__] = f
    return f


def _one(spec: Expression, lift: Expression, value: Expression, kind: str = "sum", **more: Any) -> Document:
    """A form of one slot ``s``."""
    f = Forge()
    assumed = more.pop("assumptions", ())
    return f.document(
        {"y": spec}, [f.slot("s", kind, lift, more.pop("axes", ""), **more)], {"y": value}, *(), assumptions=assumed
    )


@forged
def positions_and_lists() -> Iterator[Forged]:
    largest, two, at = ("argmax:j", X), ("topk_values:j:2:t", X), ("topk_indices:j:2:t", X)
    yield "of the negated twice", _one(largest, ("neg", ("neg", X)), "$s at", "argmin")
    yield "smallest as largest", _one(("argmin:j", X), X, "$s at", "argmax")
    yield "of squares", _one(largest, SQUARES, "$s at", "argmax")
    yield "the last of equal ones", _one(largest, ("add", X, ("index", "j")), "$s at", "argmax")
    yield "the first of whole numbers", _one(largest, ("floor", X), "$s at", "argmax")
    yield "a place for a value", _one(("max:j", X), X, "$s at", "argmax")
    yield "the second is the first", _one(("min:t", two), X, "$s", "max")
    yield "a shorter list", _one(("sum:t", two), X, ("sum:t", "$s values[t]"), "topk", extra=(1, "t"))
    yield "a list that the spec lacks", _one(("max:j", X), X, ("sum:t", "$s values[t]"), "topk", extra=(2, "t"))
    yield "places of sizes", _one(("sum:t", at), ("abs", X), ("sum:t", "$s indices[t]"), "topk", extra=(2, "t"))
    group = ("where", ("eq", "g[j]", "k[g]"), X, "-oo")
    lift = ("where", ("eq", "g[j]", "k[g]"), X, 0)
    yield "of a group filled by 0", _one(("argmax:j", group), lift, "$s at[g]", "argmax", axes="g")


@forged
def truths_and_masks() -> Iterator[Forged]:
    above = ("lt", 0, X)
    yield "one is positive if all together are", _one(("any:j", above), X, ("lt", 0, "$s"))
    yield "a domain on a leaf", _one(("all:j", above), ("lt", X, 0), ("not", "$?s"), "any")
    yield "all are counted", _one(("sum:j", ("where", above, 1, 0)), 1, "$s")
    masked = ("where", "?c[j]", X, 0)
    yield "the others", _one(("sum:j", masked), ("where", "?c[j]", 0, X), "$s")
    yield "filled by 0", _one(("max:j", ("where", "?c[j]", X, "-oo")), masked, "$s", "max")
    least = ("where", "?c[j]", X, "oo")
    yield "an empty mask is 0", _one(("min:j", least), least, ("where", ("lt", "$s", "oo"), "$s", 0), "min")


@forged
def one_reduction_for_another() -> Iterator[Forged]:
    yield "a maximum for a sum", _one(TOTAL, X, "$s", "max")
    yield "a product of exponentials", _one(("prod:j", X), ("log", X), ("exp", "$s"))
    yield "of sizes", _one(("prod:j", X), ("log", ("abs", X)), ("exp", "$s"))
    yield "a soft maximum", _one(("max:j", X), ("exp", X), ("log", "$s"))
    yield "from three elements on", _one(("max:j", X), X, ("mul", "$s", ("where", ("lt", "$n", 3), 1, 2)), "max")
    yield "squares of a sum", _one(("pow", TOTAL, 2), SQUARES, "$s")
    yield "places from 1", _one(("sum:j", ("mul", X, ("index", "j"))), ("mul", X, ("add", ("index", "j"), 1)), "$s")
    wide = ("sum:j", ("cast", "float16", X))
    yield "rounded otherwise", _one(wide, ("cast", "int8", X), "$s", assumptions=("cast_commutes",))
    f = Forge()
    z = f.terms("tensor", attr=Leaf("z", ("j",), frozenset({"complex"})))
    spec = {"y": ("sum:j", ("mul", z, ("conj", z)))}
    yield "without a conjugate", f.document(spec, [f.slot("s", "sum", ("pow", z, 2))], {"y": "$s"})


@forged
def outputs_and_arrays() -> Iterator[Forged]:
    f = Forge()
    both = [f.slot("s", "sum", X), f.slot("t", "sum", SQUARES)]
    yield "exchanged", f.document({"y": TOTAL, "z": ("sum:j", SQUARES)}, both, {"y": "$t", "z": "$s"})
    f = Forge()
    both = [f.slot("s", "sum", X), f.slot("t", "max", X)]
    values = {"y": "$s", "z": ("maximum", "$t", 0)}
    yield "one of two", f.document({"y": TOTAL, "z": ("max:j", X)}, both, values)
    of_a = ("sum:j", "x[j,a]")
    share = ("div", ("sum:a", "$s[a]"), ("sum:a", "$s[a]"))
    yield "a guard that divides by 0", _one(of_a, "x[j,a]", ("mul", "$s[a]", share), axes="a")
    weighted = ("sum:j", ("mul", "x[j,a]", "v[a]"))
    yield "the sum of weights", _one(weighted, "x[j,a]", ("mul", "$s[a]", ("sum:a", "v[a]")), axes="a")
    gram = ("sum:j", ("mul", "x[j,a]", "z[j,b]"))
    yield "transposed", _one(gram, ("mul", "x[j,b]", "z[j,a]"), "$s[a,b]", axes="a,b")
    captured = ("sum:j", ("mul", "r[j,a]", ("sum:a", ("sub", "r[j,a]", "u"))))
    for name, lift, less in (
        ("u once for all", ("mul", "r[j,a]", ("sum:a", "r[j,a]")), ("mul", "u", "$t[a]")),
        ("a bound axis for a free one", ("pow", "r[j,a]", 2), ("mul", "u", ("size", "a"), "$t[a]")),
    ):
        f = Forge()
        parts = [f.slot("s", "sum", lift, "a"), f.slot("t", "sum", "r[j,a]", "a")]
        yield name, f.document({"y": captured}, parts, {"y": ("sub", "$s[a]", less)})
    f = Forge()
    parts = [f.slot("s", "sum", ("mul", "w[j]", X)), f.slot("t", "sum", "w[j]")]
    value = ("div", "$s", ("where", ("eq", "$t", 0), 1, ("abs", "$t")))
    yield (
        "positive weights",
        f.document({"y": ("div", ("sum:j", ("mul", "w[j]", X)), ("sum:j", "w[j]"))}, parts, {"y": value}),
    )
    f = Forge()
    parts = [f.slot("s", "sum", X), f.slot("t", "sum", SQUARES)]
    spread = ("sub", ("div", ("sum:j", SQUARES), COUNT), ("pow", MEAN, 2))
    value = ("sub", ("div", "$t", "$n"), ("pow", ("div", "$s", ("add", "$n", 1)), 2))
    yield "another count", f.document({"y": spread}, parts, {"y": value})
    for name, value in (("twice the element", ("mul", 2, X)), ("the place beside it", ("add", X, ("index", "j")))):
        f = Forge()
        parts = [f.slot("m", "max", X)]
        yield name, f.document({"y": ("sub", X, ("max:j", X))}, parts, {"y": ("sub", value, "$m")})


@forged
def monoids_and_their_actions() -> Iterator[Forged]:
    product, sum_ = ("mul", "$a0", "$b0"), ("add", "$a0", "$b0")
    affine = [product, ("add", ("mul", "$a1", "$b0"), "$b1")]
    turned = [product, ("add", ("mul", "$b1", "$a0"), "$a1")]
    first: dict[str, tuple[list[Any], list[Any], bool, dict[str, Any]]] = {
        "an action that adds nothing": ([product], [1], True, {"scale": [("mul", "$a0", "$h")]}),
        "another identity": ([sum_], [1], True, {}),
        "no associative one": ([("div", sum_, 2)], [0], True, {}),
        "a difference": ([("sub", "$a0", "$b0")], [0], False, {}),
    }
    for name, (combined, identity, commutes, acts) in first.items():
        f = Forge()
        own = f.monoid("own", combined, identity, commutes, **acts)
        slots = [f.slot("s", "monoid", [X], parts=("s",), monoid=0, identity=identity)]
        yield name, f.document({"y": ("monoid:j:0:0", X)}, slots, {"y": "$s"}, monoids=(own,))
    second: dict[str, tuple[list[str], str, bool, int]] = {
        "claimed to commute": ([X, "z[j]"], "$s1", True, 0),
        "another part": ([X, "z[j]"], "$s0", False, 0),
        "bodies exchanged": (["z[j]", X], "$s1", False, 0),
        "the other way round": ([X, "z[j]"], "$s1", False, 1),
    }
    for name, (bodies, value, commutes, number) in second.items():
        f = Forge()
        own = (f.monoid("affine", affine, [1, 0], commutes), f.monoid("turned", turned, [1, 0]))
        slots = [f.slot("s", "monoid", bodies, parts=("s0", "s1"), monoid=number, identity=[1, 0])]
        yield name, f.document({"y": ("monoid:j:0:1", X, "z[j]")}, slots, {"y": value}, monoids=own)


@forged
def anchors_that_move_otherwise() -> Iterator[Forged]:
    back: Expression = (("neg", H), "n")
    there = ("add", "$u", ("mul", "$n", "$A"))
    step = ("div", "$u", "$n")
    ways: dict[str, tuple[list[Any], Expression, Expression, Expression]] = {
        "the other way": ([(1, "u"), (H, "n")], X, step, there),
        "half the way": ([(1, "u"), (("div", back[0], 2), "n")], X, step, there),
        "not at all": ([(1, "u")], X, step, there),
        "by the square": ([(1, "u"), (("neg", ("pow", H, 2)), "n")], X, step, there),
        "by the count twice": ([(1, "u"), (("mul", back[0], "$n"), "n")], X, step, there),
        "lands at half": ([(1, "u"), back], X, ("div", "$u", ("mul", 2, "$n")), there),
        "read in the output": ([(1, "u"), back], X, step, ("add", "$u", "$A")),
        "one element is 1 more": ([(1, "u"), back], X, step, ("add", there, ("where", ("eq", "$n", 1), 1, 0))),
    }
    for name, (moves, start, shift, value) in ways.items():
        f = Forge()
        parts = [f.mean("A", start, shift), f.slot("u", "sum", ("sub", X, "$A"), "", moves)]
        yield name, f.document({"y": TOTAL}, parts, {"y": value})
    f = Forge()
    parts = [f.mean("A", ("sub", X, X), 1, kind="mul"), f.slot("u", "sum", ("div", X, "$A"), "", [(H, "u")])]
    yield "starts at 0 and divides", f.document({"y": TOTAL}, parts, {"y": ("mul", "$A", "$u")})


@forged
def passes_that_read_otherwise() -> Iterator[Forged]:
    around = ("sum:j", ("abs", ("sub", X, MEAN)))
    ways: dict[str, tuple[str, Expression, Expression, Expression]] = {
        "another count": ("sum", ("div", "$s", ("add", "$n", 1)), "$m", around),
        "another body": ("sum", ("div", "$s", "$n"), "$m", ("sum:j", ("relu", ("sub", X, MEAN)))),
        "a part of the pass before": ("sum", ("div", "$s", "$n"), ("div", "$s", "$n"), around),
        "a maximum for a mean": ("max", "$s", "$m", around),
    }
    for name, (kind, handed, read, spec) in ways.items():
        f = Forge()
        first = f.one_pass(f.slot("s", kind, X), exports={"m": handed})
        second = f.one_pass(f.slot("u", "sum", ("abs", ("sub", X, read))))
        yield name, f.document({"y": spec}, (first, second), {"y": "$u"})


__all__ = ["NOT_FOLDED", "OPERATORS"]
