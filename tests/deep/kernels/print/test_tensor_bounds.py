"""Blocks that conditions on positions empty or leave whole: what is printed, against a walk over all positions."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redalg.graph.node import Decl, Node, add, compare, const, logical, mul, negate
from redalg.kernels.tile.bounds import bounds
from redalg.kernels.tile.kernel import TensorKernel
from redalg.source.names import plain
from tests.support.tensor_cases import class_of, planned, text_of

ROW, AT = Node("index", (), "i"), Node("index", (), "j")
W, V = (Node("tensor", (), Decl(name, (), frozenset({"integer"}))) for name in "wz")
SIZES = [Node("size", (), axis) for axis in "ij"]
TEXTS: dict[str, Callable[..., str]] = {
    "index": lambda n, row, stream: {"i": row, "j": stream}[n.attr],
    "size": lambda n, *_: f"size_{n.attr}",
    "tensor": lambda n, *_: n.attr.name,
    "const": lambda n, *_: str(n.attr),
}


def prints(node: Node, row: str, stream: str) -> str:
    """A node as Python, every operand in parentheses."""
    if node.op in TEXTS:
        return TEXTS[node.op](node, row, stream)
    if node.op in ("maximum", "minimum"):
        return f"{node.op[:3]}({', '.join(prints(a, row, stream) for a in node.args)})"
    sign = {"add": " + ", "mul": " * "}[node.op]
    return "(" + sign.join(f"({prints(a, row, stream)})" for a in node.args) + ")"


def holds(node: Node, names: dict[str, int]) -> bool:
    """A condition at one place, by the meaning of its operations."""
    if node.op in ("true", "false"):
        return node.op == "true"
    if node.op == "not":
        return not holds(node.args[0], names)
    if node.op in ("and", "or"):
        return (all if node.op == "and" else any)(holds(a, names) for a in node.args)
    if node.op == "tensor":
        return bool(names[node.attr.name])
    a, b = (eval(plain(prints(x, "i", "j")), {}, names) for x in node.args)
    return bool({"le": a <= b, "lt": a < b, "eq": a == b, "ne": a != b}[node.op])


def judge(condition: Node, names: dict[str, int], rows: tuple[int, int], first: int, last: int) -> tuple[bool, bool]:
    """Compare with all positions; whether something was bounded, and whether the block was called whole."""
    found = bounds(condition, "i", "j", prints)
    known = names | {"i_first": rows[0], "i_last": rows[1], "j_first": first, "j_last": last}
    words = {"min": min, "max": max}
    low, high = (None if t is None else eval(plain(t), words, known) for t in (found.low, found.high))
    length = names["size_j"]
    at = [(i, j) for i in range(rows[0], rows[1] + 1) for j in range(length)]
    for i, j in at:
        if holds(condition, names | {"i": i, "j": j}):
            assert low is None or j >= low, (condition, names, i, j, found)
            assert high is None or j < high, (condition, names, i, j, found)
    whole = bool(eval(plain(found.whole), {}, known))
    if whole:
        block = itertools.product(range(rows[0], rows[1] + 1), range(first, last + 1))
        assert all(holds(condition, names | {"i": i, "j": j}) for i, j in block), (condition, names, found)
    return low is not None or high is not None, whole


terms = st.sampled_from([ROW, AT, ROW, AT, W, V, *SIZES, const(1), const(-2), const(5), mul(const(2), W), mul(W, V)])
signed = st.tuples(terms, st.booleans()).map(lambda t: mul(const(-1), t[0]) if t[1] else t[0])
sums = st.lists(signed, min_size=1, max_size=3).map(lambda ts: add(*ts))
sides = sums | st.tuples(st.sampled_from(["maximum", "minimum"]), sums, sums).map(lambda t: Node(t[0], t[1:]))
comparisons = st.tuples(st.sampled_from(["le", "lt", "eq", "ne"]), sides, sides).map(lambda t: compare(*t))
masks = st.just(Node("tensor", (), Decl("seen", (), frozenset({"bool"}))))
conditions = st.recursive(
    comparisons | masks,
    lambda inner: (
        st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3)).map(
            lambda t: logical(t[0], *t[1])
        )
        | inner.map(negate)
        | inner.map(lambda c: Node("not", (c,)))
    ),
    max_leaves=5,
)


@given(conditions, st.data())
def test_blocks_hold_what_a_condition_may_show(condition: Node, data: Any) -> None:
    numbers = st.integers(-9, 9)
    names = {"w": data.draw(numbers), "z": data.draw(numbers), "seen": data.draw(st.integers(0, 1))}
    names |= {"size_i": data.draw(st.integers(1, 9)), "size_j": data.draw(st.integers(1, 12))}
    low = data.draw(st.integers(0, names["size_i"] - 1))
    rows = (low, data.draw(st.integers(low, names["size_i"] - 1)))
    first = data.draw(st.integers(0, names["size_j"] - 1))
    judge(condition, names, rows, first, data.draw(st.integers(first, names["size_j"] + 3)))


CASES = {  # whether blocks are left out, and whether some block is whole, for 8 rows of 12 positions
    "causal": (compare("le", AT, ROW), True, True),
    "strictly": (compare("lt", AT, ROW), True, True),
    "from the end": (compare("le", AT, add(ROW, SIZES[1], mul(const(-1), SIZES[0]))), True, True),
    "anticausal": (compare("lt", ROW, AT), True, True),
    "band": (logical("and", compare("le", AT, ROW), compare("lt", add(ROW, mul(const(-1), AT)), W)), True, True),
    "either side": (logical("or", compare("lt", AT, ROW), compare("lt", AT, W)), True, True),
    "prefix or causal, within": (
        logical("and", logical("or", compare("le", AT, ROW), compare("lt", AT, W)), compare("lt", AT, V)),
        True,
        True,
    ),
    "diagonal": (compare("eq", AT, ROW), True, True),
    "off the diagonal": (compare("ne", AT, ROW), False, False),
    "rows alone": (compare("lt", ROW, W), False, True),
    "twice the position": (compare("le", mul(const(2), AT), ROW), False, False),
    "sum of positions": (compare("le", add(ROW, AT), W), True, True),
    "a prefix": (compare("lt", AT, Node("maximum", (W, add(ROW, const(1))))), True, True),
    "within two": (compare("le", AT, Node("minimum", (W, ROW))), True, True),
    "after both": (compare("le", Node("maximum", (W, ROW)), AT), True, True),
    "length of a batch": (compare("lt", AT, Node("tensor", (), Decl("w", ("b",), frozenset({"integer"})))), True, True),
    "length of a row": (compare("lt", AT, Node("tensor", (), Decl("w", ("i",), frozenset({"integer"})))), False, False),
    "mask": (Node("tensor", (), Decl("seen", (), frozenset({"bool"}))), False, False),
    "nothing": (Node("false"), False, False),
    "everything": (Node("true"), False, True),
}


@pytest.mark.parametrize("name", CASES)
def test_every_block_of_named_conditions(name: str) -> None:
    condition, bounded, whole = CASES[name]
    seen = set()
    for w, v, a, first in itertools.product((-2, 0, 3, 40), (2, 9), range(0, 8, 2), range(0, 12, 3)):
        for rows, last in (((a, a), first), ((a, a + 1), first + 2), ((0, 7), first + 5)):
            names = {"w": w, "z": v, "seen": 1, "size_i": 8, "size_j": 12}
            seen.add(judge(condition, names, rows, first, last))
    assert any(b for b, _ in seen) == bounded
    assert any(w for _, w in seen) == whole


def test_a_bound_that_is_too_narrow_would_be_seen() -> None:
    """The comparison itself can fail: the bounds of j < i do not hold for j ≤ i."""
    names = {"w": 0, "v": 0, "seen": 0, "size_i": 8, "size_j": 12}
    found = bounds(compare("lt", AT, ROW), "i", "j", prints)
    assert found.high is not None and eval(plain(found.high), {}, {"i_last": 3}) == 3
    assert holds(compare("le", AT, ROW), names | {"i": 3, "j": 3})


@pytest.mark.parametrize(
    "condition",
    [
        "index[j] <= index[i]",
        "index[j] <= index[i] + z",
        "(index[j] <= index[i] or index[j] < w) and index[j] < z",
        "index[j] <= index[i] or index[j] < w",
        "index[j] < maximum(z, index[i] + 1)",
        "index[i] - index[j] < w and index[j] - index[i] < z",
        "index[j] == index[i]",
        "not index[j] < index[i] - w",
    ],
)
def test_kernels_print_the_same_bounds(condition: str) -> None:
    """As the printer of the kernels writes them: its texts are Python, and mean the same."""
    declared = "".join(f"tensors {name} integer; " for name in "wz" if f" {name}" in condition)
    made, plan = planned(class_of(text_of(f"where({condition}, s, -oo)", declared=declared)))
    kernel = TensorKernel(made, plan)
    assert made.condition is not None
    alone = bounds(made.condition, "i", "j", prints)
    texts = list(zip(*((b.low, b.high, kernel.whole(True)) for b in (alone, kernel.bounds)), strict=True))
    for w, v, rows, first in itertools.product((-3, 4), (2, 60), ((0, 7), (3, 3)), (0, 8, 11)):
        known = {"w": w, "z": v, "size_i": 9, "size_j": 12}
        known |= {"i_first": rows[0], "i_last": rows[1]}
        known |= {"j_first": first, "j_last": first + 2}
        for ours, printed in texts[:2]:
            assert (ours is None) == (printed is None)
            if ours is not None and printed is not None:
                assert eval(plain(ours), {}, known) == eval(plain(printed), {}, known)
        whole = eval(plain(kernel.whole(True)), {}, known)
        assert whole == (first + 2 < 12 and eval(plain(alone.whole), {}, known))
