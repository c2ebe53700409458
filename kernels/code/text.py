"""What generated kernels have in common: definitions above functions, modules, and ⊕ of single values by kind."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

from redalg.kernels.ir.program import Module
from redalg.source.names import spellings
from redalg.source.render import render
from redalg.source.statements import Block, reads, statements

Printed = TypeVar("Printed", bound=Module)
WORDS = ("int32", "int64", "uint32", "uint64")
ALIASES = {"f32": "np.float32", "f64": "np.float64"} | {f"{t[0]}{t[-2:]}": f"np.{t}" for t in WORDS}


def definitions(used: Collection[str], constants: Mapping[str, object]) -> Block:
    """What stands above the functions of a module: short names of types, and constants, as far as they are used.

    >>> print(render(definitions({"INF", "TILE"}, {"INF": "f32(np.inf)", "TILE": 4, "ROWS": 1})), end="")
    f32 = np.float32
    INF = f32(np.inf)
    TILE = 4
    """
    wanted = statements("\n".join(f"{name} = {value}" for name, value in constants.items() if name in used))
    words = {*used} | reads(wanted)
    types = [name for name in ALIASES if name in words]
    short = statements(f"{', '.join(types)} = {', '.join(ALIASES[t] for t in types)}") if types else ()
    return (*short, *wanted)


def finished(module: Printed, block: Block) -> Printed:
    """A module of statements, its names as they are spelled, as source."""
    names = spellings(block)
    return module.renamed(render(block, names=names), names)


def conjunction(conditions: Iterable[str | None]) -> str | None:
    """``if a and b:``, or None if nothing is asked."""
    found = [c for c in conditions if c]
    return f"if {' and '.join(found)}:" if found else None


# --- ⊕ of single values ----------------------------------------------------------------------------------------------


def joined(kind: str, number: str, real: str, a: str, b: str) -> str:
    """The text of a ⊕ b for a kind with one part."""
    if kind == "sum":
        return f"{a} + {b}"
    if kind == "prod":
        return f"{a} * {b}"
    if kind == "keymax":
        return f"max({a}, {b})"
    if kind in ("any", "all"):
        return f"{a} {'|' if kind == 'any' else '&'} {b}"
    return f"{kind}({a}, {b})" if number == "i" else f"{kind}_nan_{real}({a}, {b})"


def better(kind: str, number: str, a: str, b: str, a_at: str, b_at: str) -> str:
    """Whether (b, b_at) comes before (a, a_at): larger (smaller), the first NaN, the lowest position among equals."""
    relation = ">" if kind in ("argmax", "topk") else "<"
    same = f"{b} == {a}"
    if number == "f":
        same = f"({same}) | ({b} != {b}) & ({a} != {a})"
        wins = f"({b} {relation} {a}) | ({b} != {b}) & ({a} == {a})"
    else:
        wins = f"({b} {relation} {a})"
    return f"{wins} | ({same}) & ({b_at} < {a_at})"


def follows(kind: str, number: str, best: str, item: str, best_at: str) -> str:
    """Whether an element that comes later in the stream replaces the best so far: ties keep the first.

    The first element is always taken: it may be what the best begins with (-inf where all elements are masked), which
    is no larger than itself.
    """
    relation = ">" if kind in ("argmax", "topk") else "<"
    wins = f"({item} {relation} {best}) | ({best_at} == MISSING)"
    return f"{wins} | ({item} != {item}) & ({best} == {best})" if number == "f" else wins


def literal(value: float | int | bool, number: str, real: str) -> str:
    """A typed literal."""
    if number == "b":
        return str(bool(value))
    if number == "k":
        return "NONE"
    if number == "i":
        return f"i64({int(value)})"
    if value != value:
        return "NAN"
    if value in (float("inf"), float("-inf")):
        return "INF" if value > 0 else "-INF"
    return f"{real}({int(value) if value == int(value) else value!r})"
