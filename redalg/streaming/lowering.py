"""What `build` asks about a graph before it emits steps: contractions, void exponents, kinds."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from redalg.graph import FALSE, Node, walk, where
from redalg.streaming.tape import Array, Step, execute
from redalg.void import is_void, split_exponent

NESTED = 16  # exponentials inside exponentials that recursion may pass
RANK = {"b": 0, "i": 1, "f": 2, "c": 3}


@dataclass(frozen=True)
class Bound:
    """A name that stands for a node: the axes it is declared along, and the node."""

    axes: tuple[str, ...]
    node: Node


def widest(kinds: Iterable[str]) -> str:
    """The kind that holds all of them: b(ool) < i(nt) < f(loat) < c(omplex)."""
    return max(kinds, key=RANK.__getitem__, default="i")


def nearest_float(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return np.inf if value > 0 else -np.inf


def number(x: Array) -> Array:
    return np.equal(x, x)


def long_chain(node: Node, known: Container[Node]) -> list[Node]:
    """The exponentials inside one, innermost first, where they are too many to be emitted by recursion."""
    inner = [n for n in walk(*node.args, done=known) if n.op == "exp"] if node.op == "exp" else []
    return inner if len(inner) > NESTED else []


def contraction_groups(node: Node) -> tuple[tuple[Node, ...], tuple[Node, ...]] | None:
    """The factors of a sum of products as two groups for a matrix product, where writing them out would cost more."""
    body, reduced = node.args[0], frozenset(node.attr.axes)
    if body.op != "mul" or not reduced:
        return None
    wide = max(body.args, key=lambda f: (len(f.axes & reduced), len(f.axes)))
    one = tuple(f for f in body.args if f.axes <= wide.axes)
    other = tuple(f for f in body.args if f not in one)
    axes = frozenset().union(*(f.axes for f in other))
    if not other or not reduced <= axes or not reduced <= wide.axes or not axes - wide.axes or not wide.axes - axes:
        return None
    return one, other


def void_exponent(arg: Node) -> Node | None:
    """Where an exponent is void (see `redalg.void.split_exponent`), or None where that cannot happen."""
    if arg.op == "where":
        condition, then, other = arg.args
        a, b = void_exponent(then), void_exponent(other)
        return where(condition, a or FALSE, b or FALSE) if a or b else None
    split = split_exponent(arg)
    return is_void(split) if split else None


def guarded_exp(
    steps: tuple[Step, ...], check: int, outer: tuple[int, ...], sound: Callable[[Array], Array]
) -> Callable[..., Array]:
    """exp(plain), set to 0 where the register `check` says so; the steps run only if a `watched` value is not sound."""

    def run(plain: Array, watched: Any, *values: Any, out: Array | None = None) -> Array:
        if np.all(sound(watched)):
            return np.exp(plain, out=out)
        regs: Any = dict(zip(outer, values, strict=True))
        execute(steps, regs)
        void = regs[check]
        result = np.exp(plain, out=out)
        np.copyto(result, 0, where=void)
        return result

    return run
