"""Random expressions, and random ways to write one anew: identities of functions, powers, choices, sums over axes, and
what people take for identities.

Nobody says here which are true. Expressions are those of `tests.support.forging`: nested tuples and names of tensors.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

Expression = Any
HALF = Fraction(1, 2)
MAPS = (
    "floor ceil sign abs relu exp log tanh erf atan sigmoid expm1 log1p sin cos asinh cosh exp2 log2 softplus".split()
)
EXPONENTS = (2, -1, HALF, 3, -2, Fraction(1, 3), Fraction(3, 2), -HALF, 4, "h", "%w", "+p")
OTHER = {
    "lt": "le",
    "le": "lt",
    "max": "min",
    "min": "max",
    "any": "all",
    "all": "any",
    "floor": "ceil",
    "ceil": "floor",
}
AXES = "abg"
ALONG = {"x": "ja", "w": "jg", "%u": "j", "r": "ab", "q": "jab", "d": "g", "+e": "a", "?c": "jg", "?k": "a", "?t": "j"}


# --- expressions -----------------------------------------------------------------------------------------------------


def of_numbers(draw: random.Random, depth: int, leaves: list[Expression]) -> Expression:
    """An expression of maps, powers and choices over some leaves."""
    k = draw.random()
    if not depth or k < 0.15:
        return draw.choice(leaves)
    below = lambda: of_numbers(draw, depth - 1, leaves)  # noqa: E731
    if k < 0.5:
        return draw.choice(["add", "mul"]), below(), below()
    if k < 0.68:
        return "pow", below(), draw.choice(EXPONENTS)
    if k < 0.74:
        return draw.choice(["maximum", "minimum"]), below(), below()
    if k < 0.84:
        return "where", (draw.choice(["lt", "le", "eq", "ne"]), below(), draw.choice([0, 1, below()])), below(), below()
    return draw.choice(MAPS), below()


def along_axes(draw: random.Random, depth: int, elements: bool = True) -> Expression:
    """A number made of tensors along a, b and g, and of the element j; with sums, extrema and conditions over axes."""
    k = draw.random()
    if not depth or k < 0.2:
        return _tensor(draw, elements, True)
    below = lambda: along_axes(draw, depth - 1, elements)  # noqa: E731
    if k < 0.5:
        return draw.choice(["add", "mul", "mul"]), below(), below()
    if k < 0.58:
        return "pow", below(), draw.choice([2, -1])
    if k < 0.68:
        return "where", _condition(draw, depth - 1, elements), below(), draw.choice([0, below()])
    if k < 0.95:
        return f"{draw.choice(['sum', 'sum', 'sum', 'max', 'min', 'prod'])}:{draw.choice(AXES)}", below()
    return draw.choice(["abs", "relu", "exp"]), below()


def _condition(draw: random.Random, depth: int, elements: bool) -> Expression:
    k = draw.random()
    if depth <= 0 or k < 0.3:
        return _tensor(draw, elements, False)
    below = lambda: _condition(draw, depth - 1, elements)  # noqa: E731
    if k < 0.5:
        return draw.choice(["lt", "le", "eq"]), along_axes(draw, depth - 1, elements), 0
    if k < 0.7:
        return "not", below()
    if k < 0.85:
        return f"{draw.choice(['any', 'all'])}:{draw.choice(AXES)}", below()
    return draw.choice(["and", "or"]), below(), below()


def _tensor(draw: random.Random, elements: bool, number: bool) -> str:
    names = [n for n, axes in ALONG.items() if (elements or "j" not in axes) and n.startswith("?") != number]
    name = draw.choice(names)
    others = iter(draw.sample(AXES, len(AXES)))
    return f"{name}[{','.join(a if a == 'j' else next(others) for a in ALONG[name])}]"


def free(e: Expression) -> set[str]:
    """The axes an expression is along."""
    if isinstance(e, str):
        return set(e[:-1].split("[")[1].split(",")) if "[" in e else set()
    if not isinstance(e, tuple):
        return set()
    found = set().union(*map(free, e[1:]))
    return found - {e[0].split(":")[1]} if ":" in e[0] else found


def put(e: Expression, old: Expression, new: Expression) -> Expression:
    """The expression with a part replaced."""
    if e == old:
        return new
    return (e[0], *(put(x, old, new) for x in e[1:])) if isinstance(e, tuple) else e


def renamed(e: Expression, axes: dict[str, str]) -> Expression:
    """Tensors read along other axes; what a sum binds keeps its name, so that this may capture."""
    if isinstance(e, str) and "[" in e:
        name, along = e[:-1].split("[")
        return f"{name}[{','.join(axes.get(a, a) for a in along.split(','))}]"
    return (e[0], *(renamed(x, axes) for x in e[1:])) if isinstance(e, tuple) else e


# --- writing anew ----------------------------------------------------------------------------------------------------


def rewritten(draw: random.Random, e: Expression, times: int) -> Expression:
    """The expression after so many rules at random places."""
    for _ in range(times):
        places = [p for p in _places(e, ()) if not isinstance(_at(e, p), int | Fraction)]
        for place in draw.sample(places, len(places)):
            ways = list(_ways(draw, _at(e, place)))
            if ways:
                e = _placed(e, place, draw.choice(ways))
                break
    return e


def _places(e: Expression, here: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    yield here
    if isinstance(e, tuple):
        for k, x in enumerate(e[1:], 1):
            if not (e[0] == "pow" and k == 2):
                yield from _places(x, (*here, k))


def _at(e: Expression, place: tuple[int, ...]) -> Expression:
    for k in place:
        e = e[k]
    return e


def _placed(e: Expression, place: tuple[int, ...], new: Expression) -> Expression:
    if not place:
        return new
    return (*e[: place[0]], _placed(e[place[0]], place[1:], new), *e[place[0] + 1 :])


def _ways(draw: random.Random, e: Expression) -> Iterator[Expression]:
    if not isinstance(e, tuple):
        yield from _of_leaf(e)
    elif ":" in e[0]:
        yield from _of_reduction(draw, *e)
    elif e[0] in _RULES:
        yield from _RULES[e[0]](*e)
    elif e[0] in MAPS:
        yield from _of_map(*e)


def _of_leaf(e: str) -> Iterator[Expression]:
    if e.startswith("?"):
        return
    yield from (("mul", e, ("div", e, e)), ("pow", ("pow", e, 2), HALF), ("where", ("ne", e, 0), e, 0), ("abs", e))
    yield from (("exp", ("log", e)), ("log", ("exp", e)), ("div", 1, ("div", 1, e)), ("mul", ("sign", e), ("abs", e)))
    yield from (("div", ("mul", e, "h"), "h"), ("sub", ("relu", e), ("relu", ("neg", e))), ("maximum", e, 0))
    yield from (renamed(e, {a: b, b: a}) for a, b in ("ab", "ag") if "[" in e)


def _of_sum(op: str, x: Expression, y: Expression) -> Iterator[Expression]:
    yield from ((op, y, x), ("mul", x, ("add", 1, ("div", y, x))), ("log", ("mul", ("exp", x), ("exp", y))))
    yield "div", ("sub", ("pow", x, 2), ("pow", y, 2)), ("sub", x, y)


def _of_product(op: str, x: Expression, y: Expression) -> Iterator[Expression]:
    yield from ((op, y, x), ("exp", ("add", ("log", x), ("log", y))), ("div", x, ("div", 1, y)))
    yield from (
        (op, ("abs", x), ("abs", y)),
        ("where", ("eq", x, 0), 0, (op, x, y)),
        ("where", ("eq", y, 0), x, (op, x, y)),
    )
    for s, o in ((x, y), (y, x)):
        if not isinstance(s, tuple):
            continue
        if ":" in s[0]:  # the other factor may be captured
            yield s[0], (op, s[1], o)
        elif s[0] in ("add", "maximum", "minimum"):
            yield s[0], (op, s[1], o), (op, s[2], o)
        elif s[0] in ("relu", "abs"):
            yield s[0], (op, s[1], o)
        elif s[0] == "where":
            yield s[0], s[1], (op, s[2], o), (op, s[3], o)
    if all(isinstance(s, tuple) and ":" in s[0] for s in (x, y)):
        yield x[0], (op, x[1], renamed(y[1], {y[0].split(":")[1]: x[0].split(":")[1]}))


def _of_power(op: str, x: Expression, p: Expression) -> Iterator[Expression]:
    whole = (op, x, p)
    yield from ((op, ("abs", x), p), ("exp", ("mul", p, ("log", x))), ("where", ("eq", x, 0), 0, whole))
    if not isinstance(p, int | Fraction):
        yield from (("mul", x, (op, x, ("sub", p, 1))), ("where", ("eq", p, 0), 1, whole))
        yield from ((op, (op, x, ("mul", HALF, p)), 2), (op, (op, x, 2), ("mul", HALF, p)))
    else:
        yield from (("mul", (op, x, HALF), (op, x, p - HALF)), ("mul", x, (op, x, p - 1)), (op, ("neg", x), p))
        yield from (("div", 1, (op, x, -p)), (op, (op, x, Fraction(p) / 2), 2), (op, (op, x, 2), Fraction(p) / 2))
    if not isinstance(x, tuple):
        return
    if x[0] in ("mul", "maximum", "minimum"):
        yield x[0], (op, x[1], p), (op, x[2], p)
    if x[0] == "pow":
        yield (
            op,
            x[1],
            x[2] * p if isinstance(p, int | Fraction) and isinstance(x[2], int | Fraction) else ("mul", x[2], p),
        )
    if x[0] == "exp":
        yield "exp", ("mul", p, x[1])
    if x[0].startswith("sum:") and p == 2:
        a = x[0][-1]
        yield from ((x[0], (f"sum:{b}", ("mul", x[1], renamed(x[1], {a: b})))) for b in AXES if b != a)


def _of_extremum(op: str, x: Expression, y: Expression) -> Iterator[Expression]:
    other, pair = ("minimum", (y, x)) if op == "maximum" else ("maximum", (x, y))
    yield "neg", (other, ("neg", x), ("neg", y))
    yield from (("where", (relation, *pair), x, y) for relation in ("lt", "le"))
    yield "mul", HALF, ("add", ("add", x, y), ("abs", ("sub", x, y)))
    yield "pow", (op, ("pow", x, 2), ("pow", y, 2)), HALF


def _of_choice(op: str, c: Expression, x: Expression, y: Expression) -> Iterator[Expression]:
    yield from ((op, ("not", c), y, x), ("add", (op, c, x, 0), (op, c, 0, y)), (op, c, (op, c, x, 7), y), x, y)
    for k, s in ((2, x), (3, y)):
        if isinstance(s, tuple) and ":" in s[0]:
            yield s[0], tuple(s[1] if i == k else part for i, part in enumerate((op, c, x, y)))
    if not isinstance(c, tuple) or c[0] not in ("lt", "le", "eq", "ne"):
        return
    relation, a, b = c
    yield op, (OTHER.get(relation, relation), a, b), x, y
    changes: list[Callable[[Expression], Expression]] = [
        *(lambda t, f=f: (f, t) for f in ("exp", "log", "neg", "abs")),
        *(lambda t, f=f: ("mul", f, t) for f in ("+p", "h", "%w")),
        *(lambda t, e=e: ("pow", t, e) for e in (2, 3, -1)),
    ]
    yield from ((op, (relation, f(a), f(b)), x, y) for f in changes)
    yield from ((op, c, put(x, a, b), y), (op, c, x, put(y, a, b))) if isinstance(a, str) else ()


def _of_map(op: str, x: Expression) -> Iterator[Expression]:
    yield from ((op, ("neg", x)), ("neg", (op, ("neg", x))), (op, (op, x)))
    yield from _WRITTEN.get(op, lambda x: ())(x)
    if isinstance(x, tuple) and x[0] in ("add", "mul", "maximum", "minimum"):
        within = {("log", "mul"): "add", ("exp", "add"): "mul"}.get((op, x[0]), x[0])
        yield within, (op, x[1]), (op, x[2])
    if isinstance(x, tuple) and x[0] == "pow":
        yield ("mul", x[2], (op, x[1])) if op == "log" else ("pow", (op, x[1]), x[2])


def _logistic(x: Expression) -> Expression:
    return "div", 1, ("add", 1, ("exp", ("neg", x)))


_WRITTEN: dict[str, Callable[[Expression], tuple[Expression, ...]]] = {
    "log": lambda x: (("mul", HALF, ("log", ("pow", x, 2))), ("log", ("abs", x))),
    "abs": lambda x: (("mul", ("sign", x), x), ("maximum", x, ("neg", x)), ("pow", ("pow", x, 2), HALF)),
    "sign": lambda x: (("div", x, ("abs", x)), ("where", ("lt", 0, x), 1, -1), ("sign", ("mul", "%w", x))),
    "relu": lambda x: (("maximum", x, 0), ("where", ("lt", 0, x), x, 0), ("mul", HALF, ("add", x, ("abs", x)))),
    "tanh": lambda x: (("sub", 1, ("div", 2, ("add", ("exp", ("mul", 2, x)), 1))),),
    "sigmoid": lambda x: (_logistic(x), ("sub", 1, ("sigmoid", ("neg", x)))),
    "softplus": lambda x: (("log", ("add", 1, ("exp", x))), ("add", x, ("softplus", ("neg", x)))),
    "log1p": lambda x: (("log", ("add", 1, x)),),
    "expm1": lambda x: (("sub", ("exp", x), 1),),
    "exp2": lambda x: (("pow", 2, x), ("exp", ("mul", x, ("log", 2)))),
    "log2": lambda x: (("div", ("log", x), ("log", 2)),),
    "cosh": lambda x: (("mul", HALF, ("add", ("exp", x), ("exp", ("neg", x)))),),
}


def _of_reduction(draw: random.Random, op: str, x: Expression) -> Iterator[Expression]:
    kind, a = op.split(":")
    b = draw.choice(AXES)
    if a != "j":
        yield from ((f"{kind}:{b}", renamed(x, {a: b})), (f"{kind}:{b}", renamed(x, {a: b, b: a})), (f"{kind}:{b}", x))
    yield from _of_all(kind, op, a, x)
    if not isinstance(x, tuple):
        return
    if ":" in x[0]:
        yield from ((x[0], (op, x[1])), (op, x[1]), (x[0], x[1]))
    elif x[0] in ("mul", "add", "and", "or"):
        yield from ((x[0], x[1], (op, x[2])), (x[0], (op, x[1]), (op, x[2])), (x[0], (op, x[1]), x[2]))
    elif x[0] == "where":
        yield from (("where", c, (op, x[2]), (op, x[3])) for c in (x[1], (f"any:{a}", x[1]), (f"all:{a}", x[1])))
        yield "where", (f"any:{a}", x[1]), (op, x), x[3]
    elif x[0] == "not":
        yield "not", (f"{OTHER.get(kind, kind)}:{a}", x[1])
    elif x[0] in ("pow", "exp", "relu", "abs"):
        yield x[0], (op, x[1]), *x[2:]


def _of_all(kind: str, op: str, a: str, x: Expression) -> Iterator[Expression]:
    """Other words for what a reduction says of all elements."""
    whole = (op, x)
    if kind in ("max", "min"):
        yield from (("neg", (f"{OTHER[kind]}:{a}", ("neg", x))), (f"sum:{a}", ("where", ("eq", x, whole), x, 0)))
        yield "where", (f"all:{a}", ("eq", x, 0)), 0, whole
    if kind in ("any", "all"):
        chosen, left = (1, 0) if kind == "any" else (0, 1)
        some = ("lt", 0, (f"sum:{a}", ("where", x, chosen, left)))
        yield from ((some if kind == "any" else ("not", some)), ("lt", 0, (f"max:{a}", ("where", x, 1, 0))))
        yield "lt", 0, (f"min:{a}", ("where", x, 1, 0))
    if kind == "prod":
        yield from (("exp", (f"sum:{a}", ("log", x))), ("where", (f"any:{a}", ("eq", x, 0)), 0, whole))


_RULES: dict[str, Callable[..., Iterator[Expression]]] = {
    "add": _of_sum,
    "mul": _of_product,
    "pow": _of_power,
    "maximum": _of_extremum,
    "minimum": _of_extremum,
    "where": _of_choice,
}
