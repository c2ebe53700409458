"""Corrupted certificates of kinds that change what a document means, not how a term is spelt.

Each kind says what is claimed falsely: another piece's anchor, an axis in place of another, a domain that nothing
proves, a guard that is gone. A change is made at one use (`_at_one_use`), or in every term of the document at once, the
spec included (`everywhere`: the claim is then about another spec, and may be true of that). The obligations are those
of what it has become, as in `tests.support.mutations`; what is accepted is folded by `contradicted` there.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

from tests.support.mutations import Mutant, _sealed, _uses, arguments

Row = list[Any]
Data = dict[str, Any]
Rewrite = Callable[[Row, list[Row], random.Random], Row | int | None]  # a row, the number of one, or no change
TERMS: dict[str, Rewrite] = {}
PARTS: dict[str, Callable[[Data, random.Random], str | None]] = {}
DOMAINS = ("positive", "nonnegative", "integer", "bool", "complex")
ULP = Fraction(1, 1 << 52)


def term(kind: str) -> Callable[[Rewrite], Rewrite]:
    def keep(f: Rewrite) -> Rewrite:
        TERMS[kind] = f
        return f

    return keep


def part(kind: str) -> Any:
    def keep(f: Callable[[Data, random.Random], str | None]) -> Callable[[Data, random.Random], str | None]:
        PARTS[kind] = f
        return f

    return keep


def changes(text: str, count: int, seed: object, kinds: tuple[str, ...] = ()) -> Iterator[Mutant]:
    """`count` changed copies of one certificate, a function of the seed; `kinds`: those alone."""
    draw, original, made = random.Random(repr(seed)), json.loads(text), 0
    original["obligations"] = []
    own = [*TERMS, *(f"{k} everywhere" for k in TERMS), *PARTS, "two at once"]
    names = [k for k in own if not kinds or k in kinds]
    for _ in range(60 * count):
        if made == count:
            return
        data, kind = copy.deepcopy(original), draw.choice(names)
        where = _made(data, kind, draw)
        if where is None or data == original:
            continue
        made += 1
        yield Mutant(kind, where, _sealed(data))


def _made(data: Data, kind: str, draw: random.Random) -> str | None:
    if kind == "two at once":
        kinds = [*TERMS, *PARTS]
        places = [_made(data, draw.choice(kinds), draw) for _ in range(2)]
        return " and ".join(p for p in places if p) or None
    if kind in PARTS:
        return PARTS[kind](data, draw)
    if kind in TERMS:
        return _at_one_use(data, TERMS[kind], draw)
    return _everywhere(data, TERMS[kind.removesuffix(" everywhere")], draw)


# --- how a term is changed -------------------------------------------------------------------------------------------


def below(rows: list[Row], root: int) -> list[int]:
    """The numbers of all terms below one, itself included."""
    seen, stack = set(), [root]
    while stack:
        k = stack.pop()
        if k not in seen:
            seen.add(k)
            stack += arguments(rows[k])
    return sorted(seen)


def _at_one_use(data: Data, change: Rewrite, draw: random.Random) -> str | None:
    where, get, put = draw.choice(_uses(data))
    rows: list[Row] = data["terms"]
    order = below(rows, get())
    for target in draw.sample(order, len(order)):
        new = change(rows[target], rows, draw)
        if new is None or new == rows[target] or new == target:
            continue
        made = {target: _number(rows, new)}
        _rebuilt(rows, order, made)
        if get() not in made:
            return None
        put(made[get()])
        if where.startswith("spec."):  # a stage of the spec is a stage of what has become of it
            for s in data["stages"]:
                s["node"] = made.get(s["node"], s["node"])
        return where
    return None


def _number(rows: list[Row], new: Row | int) -> int:
    if isinstance(new, int):
        return new
    rows.append(new)
    return len(rows) - 1


def _rebuilt(rows: list[Row], order: list[int], made: dict[int, int]) -> None:
    for k in order:
        old = rows[k]
        if k in made or not any(a in made for a in arguments(old)):
            continue
        first = len(old) - len(arguments(old))
        made[k] = _number(rows, [*old[:first], *(made.get(a, a) for a in old[first:])])


def _everywhere(data: Data, change: Rewrite, draw: random.Random) -> str | None:
    rows: list[Row] = data["terms"]
    used = sorted({k for _, get, _ in _uses(data) for k in below(rows, get())})
    for target in draw.sample(used, len(used)):
        new = change(rows[target], rows, draw)
        if new is None or new == rows[target] or new == target:
            continue
        made = {target: _number(rows, new)}
        _rebuilt(rows, used, made)
        for _, get, put in _uses(data):
            put(made.get(get(), get()))
        for p in data["passes"]:
            p["exports"] = [[name, made.get(k, k)] for name, k in p["exports"]]
        return rows[target][0]
    return None


def _leaves(rows: list[Row], op: str) -> list[Row]:
    return [r for r in rows if r[0] == op]


def _axes(rows: list[Row]) -> list[str]:
    found = {a for r in rows if r[0] in ("tensor", "state", "reduce") for a in r[2]}
    return sorted(found | {r[1] for r in rows if r[0] in ("index", "size")})


# --- kinds that change one term --------------------------------------------------------------------------------------


@term("guard dropped")
def _unguarded(row: Row, rows: list[Row], draw: random.Random) -> Row | int | None:
    return row[draw.choice((2, 3))] if row[0] == "where" else None


@term("guard denied")
def _denied(row: Row, rows: list[Row], draw: random.Random) -> Row | int | None:
    return ["where", row[1], row[3], row[2]] if row[0] == "where" else None


@term("guard that always holds")
def _held(row: Row, rows: list[Row], draw: random.Random) -> Row | int | None:
    return [draw.choice(("true", "false"))] if row[0] in ("eq", "ne", "lt", "le") else None


@term("exponent")
def _exponent(row: Row, rows: list[Row], draw: random.Random) -> Row | int | None:
    if row[0] != "pow" or rows[row[2]][0] != "const":
        return None
    e = Fraction(rows[row[2]][1])
    other = draw.choice((e + 1, -e, e * 2, e / 2, abs(e), e + Fraction(1, 2)))
    return ["pow", row[1], _number(rows, ["const", str(other)])]


@term("power of a power")
def _powers(row: Row, rows: list[Row], draw: random.Random) -> Row | int | None:
    """What is t for t > 0 alone: a root of a square, the logarithm of an exponential, the square of a root."""
    if row[0] in ("true", "false", "lt", "le", "eq", "ne", "and", "or", "not") or "bool" in row[-1:]:
        return None
    k = _number(rows, row)
    two, half = _number(rows, ["const", "2"]), _number(rows, ["const", "1/2"])
    ways: list[tuple[Row, ...]] = [
        (["pow", k, two], ["pow", -1, half]),
        (["pow", k, half], ["pow", -1, two]),
        (["log", k], ["exp", -1]),
        (["abs", k], ["mul", -1]),
        (["relu", k], ["add", -1]),
        (["pow", k, _number(rows, ["const", "-1"])], ["pow", -1, _number(rows, ["const", "-1"])]),
        (["pow", k, _number(rows, ["const", "0"])], ["mul", -1, k]),
    ]
    inner, outer = draw.choice(ways)
    below = _number(rows, inner)
    return [below if a == -1 else a for a in outer] if len(outer) > 1 else None


@term("axes exchanged")
def _exchanged(row: Row, rows: list[Row], draw: random.Random) -> Row | int | None:
    if row[0] not in ("tensor", "state") or len(row[2]) < 2:
        return None
    return [row[0], row[1], draw.sample(row[2], len(row[2])), row[3]]


@term("axis of another")
def _another_axis(row: Row, rows: list[Row], draw: random.Random) -> Row | int | None:
    if row[0] not in ("tensor", "state") or not row[2]:
        return None
    axes = list(row[2])
    axes[draw.randrange(len(axes))] = draw.choice(_axes(rows))
    return [row[0], row[1], axes, row[3]] if len(set(axes)) == len(axes) else None


@term("sum along another axis")
def _another_sum(row: Row, rows: list[Row], draw: random.Random) -> Row | int | None:
    if row[0] != "reduce":
        return None
    own, axes = list(row[2]), _axes(rows)
    change = draw.choice(("other", "more", "fewer"))
    if change == "more":
        own.append(draw.choice(axes))
    elif change == "fewer" and len(own) > 1:
        own.pop(draw.randrange(len(own)))
    else:
        own[draw.randrange(len(own))] = draw.choice(axes)
    return ["reduce", row[1], own, *row[3:]] if len(set(own)) == len(own) else None


@term("bound axis that captures")
def _captured(row: Row, rows: list[Row], draw: random.Random) -> Row | int | None:
    """The axis a reduction binds is renamed, in its body too, to one that the body has already."""
    if row[0] != "reduce" or not row[2]:
        return None
    old, new = draw.choice(row[2]), draw.choice(_axes(rows))
    if new in row[2]:
        return None
    made: dict[int, int] = {}
    order = [k for root in arguments(row) for k in below(rows, root)]
    for k in order:
        r = rows[k]
        if r[0] in ("tensor", "state") and old in r[2] and new not in r[2]:
            made[k] = _number(rows, [r[0], r[1], [new if a == old else a for a in r[2]], r[3]])
        elif r[0] in ("index", "size") and r[1] == old:
            made[k] = _number(rows, [r[0], new])
    _rebuilt(rows, sorted(set(order)), made)
    return ["reduce", row[1], [new if a == old else a for a in row[2]], row[3], *(made.get(a, a) for a in row[4:])]


@term("copy of an axis")
def _copied(row: Row, rows: list[Row], draw: random.Random) -> Row | int | None:
    """Names that obligations make: another place along an axis, a side of a merge, a later time."""
    if row[0] not in ("tensor", "state", "index"):
        return None
    if row[0] == "index":
        return ["index", row[1] + draw.choice(("~1", "_a", "_b", "'", "%"))]
    if not row[2] or draw.random() < 0.4:
        return [row[0], row[1] + draw.choice(("'", "''", "_a", "_b")), row[2], row[3]]
    i = draw.randrange(len(row[2]))
    axes = [a + draw.choice(("~1", "~2", "_a", "_b", "'", "%")) if k == i else a for k, a in enumerate(row[2])]
    return [row[0], row[1], axes, row[3]]


@term("domain")
def _domain(row: Row, rows: list[Row], draw: random.Random) -> Row | int | None:
    if row[0] not in ("tensor", "state"):
        return None
    own = set(row[3]) ^ {draw.choice(DOMAINS)}
    return [row[0], row[1], row[2], sorted(own)]


@term("another part")
def _another_part(row: Row, rows: list[Row], draw: random.Random) -> Row | int | None:
    """A part of the state, an anchor or a shift in place of another one along as many axes."""
    if row[0] != "state":
        return None
    others = [r for r in _leaves(rows, "state") if len(r[2]) == len(row[2]) and r[1] != row[1]]
    return draw.choice(others) if others else None


@term("another tensor")
def _another_tensor(row: Row, rows: list[Row], draw: random.Random) -> Row | int | None:
    if row[0] != "tensor":
        return None
    others = [r for r in _leaves(rows, "tensor") if r[1] != row[1]]
    if others and draw.random() < 0.6:
        return draw.choice(others)
    return ["tensor", row[1] + draw.choice(("0", "_", "2")), row[2], row[3]]


@term("length of another axis")
def _length(row: Row, rows: list[Row], draw: random.Random) -> Row | int | None:
    if row[0] == "size" or (row[0] == "state" and row[1] == "n"):
        return draw.choice((["size", draw.choice(_axes(rows))], ["const", str(draw.choice((1, 2, 16)))]))
    return ["size", draw.choice(_axes(rows))] if row[0] == "const" and draw.random() < 0.3 else None


@term("position")
def _position(row: Row, rows: list[Row], draw: random.Random) -> Row | int | None:
    """Positions that start elsewhere, run backwards, or along another axis."""
    if row[0] == "index":
        k = _number(rows, row)
        beside = draw.choice((["const", "1"], ["const", "-1"], ["state", "n", [], ["integer", "positive"]]))
        other = ["index", draw.choice(_axes(rows))]
        return draw.choice((["add", k, _number(rows, beside)], ["mul", k, _number(rows, ["const", "-1"])], other))
    places = row[0] == "state" and len(row) > 1 and ("at" in row[1] or "ind" in row[1] or "arg" in row[1])
    return ["add", _number(rows, row), _number(rows, ["const", draw.choice(("1", "-1"))])] if places else None


@term("one off in the last place")
def _nearly(row: Row, rows: list[Row], draw: random.Random) -> Row | int | None:
    if row[0] != "const":
        return None
    c = Fraction(row[1])
    by = draw.choice((ULP, -ULP, Fraction(1, 10**30), Fraction(1, 3), Fraction(1, 1 << 1074)))
    return ["const", str(c + by)]


@term("infinity or NaN")
def _infinite(row: Row, rows: list[Row], draw: random.Random) -> Row | int | None:
    if row[0] not in ("const", "tensor", "state", "special"):
        return None
    return ["special", draw.choice(("oo", "-oo", "nan", "pi", "e", "i"))]


@term("rounding")
def _rounded(row: Row, rows: list[Row], draw: random.Random) -> Row | int | None:
    if row[0] == "cast":
        return draw.choice((row[2], ["cast", draw.choice(("float16", "int8", "float32")), row[2]]))
    if row[0] in ("tensor", "state", "add", "mul") and "bool" not in row[-1:]:
        return [draw.choice(("floor", "ceil", "sign")), _number(rows, row)]
    return None


@term("another term of the document")
def _crossed(row: Row, rows: list[Row], draw: random.Random) -> Row | int | None:
    other = draw.randrange(len(rows))
    return list(rows[other]) if rows[other] != row else None


@term("a side left out")
def _left_out(row: Row, rows: list[Row], draw: random.Random) -> Row | int | None:
    """An operand of a sum, product, extremum or condition that is gone, or stands in place of all."""
    if row[0] not in ("add", "mul", "maximum", "minimum", "and", "or") or len(row) < 3:
        return None
    k = draw.randrange(1, len(row))
    if draw.random() < 0.3 or len(row) == 3:
        return row[k]
    return row[:k] + row[k + 1 :]


@term("ties")
def _ties(row: Row, rows: list[Row], draw: random.Random) -> Row | int | None:
    """What an extremum is where its sides are equal, and which comparison holds there."""
    if row[0] in ("maximum", "minimum") and len(row) == 3:
        a, b = row[1:]
        less = _number(rows, [draw.choice(("lt", "le")), a, b])
        tied = _number(rows, ["eq", a, b])
        at = _number(rows, ["add", a, _number(rows, ["const", "1"])])
        other = _number(rows, row)
        sides = [a, b] if row[0] == "minimum" else [b, a]
        return draw.choice((["where", less, *sides], ["where", tied, at, other], ["where", less, sides[0], at]))
    if row[0] in ("lt", "le"):
        return draw.choice(([row[0], row[2], row[1]], ["ne", *row[1:]]))
    return None


@term("function")
def _function(row: Row, rows: list[Row], draw: random.Random) -> Row | int | None:
    alike = (
        ("exp", "expm1", "exp2", "cosh", "softplus"),
        ("log", "log1p", "log2"),
        ("abs", "relu", "sign"),
        ("floor", "ceil"),
        ("sigmoid", "tanh", "erf", "atan"),
        ("sin", "cos"),
        ("maximum", "minimum", "add", "mul"),
        ("and", "or"),
        ("eq", "ne", "lt", "le"),
    )
    for group in alike:
        if row[0] in group:
            return [draw.choice([f for f in group if f != row[0]]), *row[1:]]
    return None


@term("kind of a reduction")
def _reduction(row: Row, rows: list[Row], draw: random.Random) -> Row | int | None:
    pairs = {"sum": ("prod", "max"), "prod": ("sum",), "max": ("min", "argmax"), "min": ("max", "argmin")}
    pairs |= {"any": ("all",), "all": ("any",), "argmax": ("argmin", "max"), "argmin": ("argmax", "min")}
    pairs |= {"topk_values": ("topk_indices",), "topk_indices": ("topk_values",)}
    if row[0] != "reduce" or row[1] not in pairs:
        return None
    return ["reduce", draw.choice(pairs[row[1]]), *row[2:]]


# --- kinds that change a part of the form ----------------------------------------------------------------------------


def _slots(data: Data) -> list[Data]:
    return [s for p in data["passes"] for s in p["slots"]]


def _anchors(data: Data) -> list[Data]:
    return [a for p in data["passes"] for a in p["anchors"]]


@part("axes of a part")
def _axes_of_parts(data: Data, draw: random.Random) -> str | None:
    holders = [("slot", s) for s in _slots(data)] + [("anchor", a) for a in _anchors(data)]
    holders += [("output", o) for o in data["outputs"]]
    if not holders:
        return None
    name, holder = draw.choice(holders)
    axes = list(holder["axes"])
    way = draw.choice(("permuted", "fewer", "more", "other"))
    known = _axes(data["terms"])
    if way == "permuted":
        axes = draw.sample(axes, len(axes))
    elif way == "fewer" and axes:
        axes.pop(draw.randrange(len(axes)))
    elif way == "more" and known:
        axes.append(draw.choice(known))
    elif axes and known:
        axes[draw.randrange(len(axes))] = draw.choice(known)
    if axes == holder["axes"]:
        return None
    holder["axes"] = axes
    return f"{name}.axes"


@part("anchor elsewhere")
def _elsewhere(data: Data, draw: random.Random) -> str | None:
    """An anchor of another slot, of another kind, or with the target and shift of another anchor."""
    anchors = _anchors(data)
    if not anchors:
        return None
    a, rows = draw.choice(anchors), data["terms"]
    way = draw.choice(("target", "policy", "kind", "shift", "generator", "mean"))
    states = [k for k, r in enumerate(rows) if r[0] == "state" and r[1] != a["name"]]
    if way == "target" and a["target"] is not None and states:
        a["target"] = draw.choice(states)
    elif way == "policy":
        a["policy"] = draw.choice([p for p in ("extremum", "mean", "scale") if p != a["policy"]])
    elif way == "kind":
        a["kind"] = "mul" if a["kind"] == "add" else "add"
    elif way == "mean" and states:
        a.update(policy="mean", generator=draw.choice(states), target=None, shift=draw.choice(states))
    elif way in a and a[way] is not None:
        a[way] = draw.randrange(len(rows))
    else:
        return None
    return f"anchor.{way}"


@part("order of a pass")
def _order(data: Data, draw: random.Random) -> str | None:
    p = draw.choice(data["passes"]) if data["passes"] else None
    if p is None or len(p["order"]) < 2:
        return None
    i, j = draw.sample(range(len(p["order"])), 2)
    p["order"][i], p["order"][j] = p["order"][j], p["order"][i]
    return "pass.order"


@part("vanishes or average")
def _flags(data: Data, draw: random.Random) -> str | None:
    slots = _slots(data)
    if not slots:
        return None
    s, key = draw.choice(slots), draw.choice(("vanishes", "average", "average"))
    s[key] = not s[key]
    if key == "average":
        s["identity"] = None if s["average"] else s["identity"] or [_number(data["terms"], ["const", "0"])]
    elif draw.random() < 0.5:
        s["moves"] = []
    return f"slot.{key}"


@part("source of a move")
def _source(data: Data, draw: random.Random) -> str | None:
    moves = [m for s in _slots(data) for m in s["moves"]]
    names = [s["name"] for s in _slots(data)] + ["n"]
    if not moves:
        return None
    m = draw.choice(moves)
    way = draw.choice(("slot", "coefficient"))
    if way == "slot":
        m[1] = draw.choice(names)
    else:
        m[0] = draw.choice(moves)[0]
    return f"move.{way}"


@part("a move more or less")
def _moves(data: Data, draw: random.Random) -> str | None:
    slots = [s for s in _slots(data) if s["kind"] in ("sum", "prod")]
    if not slots:
        return None
    s, rows = draw.choice(slots), data["terms"]
    if s["moves"] and draw.random() < 0.5:
        s["moves"].pop(draw.randrange(len(s["moves"])))
        return "moves"
    shifts = [f"shift:{a['name']}" for a in _anchors(data)]
    numbers = [k for k, r in enumerate(rows) if r[0] == "const" or r[0] == "state" and r[1] in shifts]
    if not numbers:
        return None
    s["moves"].append([draw.choice(numbers), draw.choice([*(x["name"] for x in slots), "n"])])
    return "moves"


@part("identity")
def _identity(data: Data, draw: random.Random) -> str | None:
    slots = [s for s in _slots(data) if s["identity"]]
    if not slots:
        return None
    s = draw.choice(slots)
    new = draw.choice((["const", "0"], ["const", "1"], ["special", "-oo"], ["special", "oo"], ["const", "-1000"]))
    s["identity"][draw.randrange(len(s["identity"]))] = _number(data["terms"], new)
    return "slot.identity"


@part("kind and parts of a slot")
def _kinds(data: Data, draw: random.Random) -> str | None:
    slots = _slots(data)
    if not slots:
        return None
    s = draw.choice(slots)
    way = draw.choice(("kind", "parts", "extra", "domain", "monoid"))
    if way == "kind":
        alike = {"argmax": "argmin", "argmin": "argmax", "any": "all", "all": "any", "sum": "prod", "prod": "sum"}
        s["kind"] = alike.get(s["kind"], "min" if s["kind"] == "max" else "max")
    elif way == "parts" and len(s["parts"]) > 1:
        s["parts"] = s["parts"][::-1]
    elif way == "extra" and s["extra"]:
        s["extra"] = draw.choice(([s["extra"][0] + 1, s["extra"][1]], [max(1, s["extra"][0] - 1), s["extra"][1]]))
    elif way == "domain":
        s["domain"] = sorted(set(s["domain"]) ^ {draw.choice(DOMAINS)})
    elif way == "monoid" and s["monoid"] is not None:
        s["monoid"] = s["monoid"] + 1
    else:
        return None
    return f"slot.{way}"


@part("value of empty rows")
def _empty(data: Data, draw: random.Random) -> str | None:
    rows = data["terms"]
    names = [*data["spec"]["outputs"], "other"]
    data["spec"]["empty"][draw.choice(names)] = draw.randrange(len(rows))
    return "spec.empty"


@part("exports and passes")
def _passes(data: Data, draw: random.Random) -> str | None:
    passes, rows = data["passes"], data["terms"]
    way = draw.choice(("export", "drop", "exchange", "join", "twice", "name"))
    exporting = [p for p in passes if p["exports"]]
    if way == "export" and exporting:
        p = draw.choice(exporting)
        k = draw.randrange(len(p["exports"]))
        p["exports"][k] = [p["exports"][k][0], draw.randrange(len(rows))]
    elif way == "name" and exporting:
        p = draw.choice(exporting)
        k = draw.randrange(len(p["exports"]))
        names = [name for q in passes for name, _ in q["exports"]] + [x["name"] for x in _slots(data)]
        p["exports"][k] = [draw.choice(names), p["exports"][k][1]]
    elif len(passes) < 2:
        return None
    elif way == "drop":
        passes.pop(draw.randrange(len(passes)))
    elif way == "exchange":
        passes.reverse()
    elif way == "twice":
        passes.insert(draw.randrange(len(passes)), copy.deepcopy(draw.choice(passes)))
    elif way == "join":
        first = passes.pop(0)
        for key in ("order", "anchors", "slots", "exports"):
            passes[0][key] = first[key] + passes[0][key]
    else:
        return None
    return f"passes.{way}"


@part("stages")
def _stages(data: Data, draw: random.Random) -> str | None:
    stages, rows = data["stages"], data["terms"]
    if not stages:
        return None
    s, way = draw.choice(stages), draw.choice(("node", "pairs", "empty", "swap", "pair", "none"))
    reductions = [k for k, r in enumerate(rows) if r[0] == "reduce"]
    if way == "node" and reductions:
        s["node"] = draw.choice(reductions)
    elif way == "pairs" and len(s["generators"]) > 1:
        s["generators"] = draw.sample(s["generators"], len(s["generators"]))
    elif way == "empty":
        s.update(generators=[], coefficients=[], rank=draw.choice((None, 0)))
    elif way == "swap" and s["generators"]:
        s["generators"], s["coefficients"] = s["coefficients"], s["generators"]
    elif way == "pair":
        s["pair"] = draw.choice([x["pair"] for x in stages] + ["(max, monotone)", "(monoid, action)", "(sum, ×)"])
    elif way == "none":
        stages.remove(s)
    else:
        return None
    return f"stages.{way}"


@part("axis of the stream")
def _stream(data: Data, draw: random.Random) -> str | None:
    axes = _axes(data["terms"])
    own = data["spec"]["axis"]
    data["spec"]["axis"] = draw.choice(([draw.choice(axes)], [*own, draw.choice(axes)], own[:-1], own[::-1]))
    return "spec.axis"


@part("assumptions")
def _assumptions(data: Data, draw: random.Random) -> str | None:
    known = ("cast_commutes", "cast_left_out", "positive_log_arguments", "nonnegative_factors", "finite_stage_values")
    own = set(data["assumptions"]) ^ {draw.choice(known)}
    data["assumptions"] = sorted(own)
    return "assumptions"
