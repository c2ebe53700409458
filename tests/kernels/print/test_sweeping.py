"""What printed functions do not need: which statements go, which stay, and that what is done stays the same."""

from __future__ import annotations

import random
from textwrap import dedent
from typing import Any

import pytest

from redalg.kernels.code.dead_code import called, eliminated
from redalg.source.render import render
from redalg.source.statements import function


def swept(source: str) -> str:
    return render([eliminated(function(source))]).rstrip()


def remains(body: str, parameters: str = "x, y, n") -> str:
    """The lines of a function's body that are kept."""
    lines = "".join(f"    {line}\n" for line in dedent(body).strip().splitlines())
    text = swept(f"def f({parameters}):\n{lines}")
    assert swept(text) == text
    return dedent(text.partition("\n")[2]).strip()


def stays(body: str) -> None:
    assert remains(body) == dedent(body).strip()


def test_a_reduction_nobody_reads_goes_with_its_shared_memory_and_barriers_stay() -> None:
    body = """
        total = f32(0)
        most = -INF
        for k in range(4):
            total = total + load_float32(x, k)
            most = max_nan_f32(most, load_float32(x, k))
        for step in range(5):
            total = total + shfl_xor_f32(total, 1 << step)
            most = max_nan_f32(most, shfl_xor_f32(most, 1 << step))
        total_warps = cuda.shared.array(4, np.float32)
        most_warps = cuda.shared.array(4, np.float32)
        if t % 32 == 0:
            total_warps[t // 32] = total
            most_warps[t // 32] = most
        cuda.syncthreads()
        total = total_warps[t % 4]
        most = most_warps[t % 4]
        mean = total / f32(n)
        store_float32(y, 0, most)"""
    kept = [line for line in dedent(body).strip().splitlines() if "total" not in line]
    assert remains(body) == "\n".join(kept)


def test_a_comment_goes_with_what_it_tells_of() -> None:
    body = """
        # the grid
        # the block
        first = t * 4
        # a sum that nobody reads,
        #   of two lines
        total = f32(0)
        for k in range(4):
            # an element
            total = total + load_float32(x, k)
        # a maximum
        most = -INF
        for k in range(4):
            # an element
            most = max_nan_f32(most, load_float32(x, first + k))
            # its position
            last = k
        store_float32(y, 0, most)"""
    sums = body[body.index("        # a sum") : body.index("        # a maximum")]
    last = body[body.index("            # its position") : body.index("        store_float32")]
    assert remains(body) == dedent(body.replace(sums, "").replace(last, "")).strip()


@pytest.mark.parametrize(
    "body",
    [
        "x[0] = n",  # an argument: seen outside
        "held = np.empty(4)\nheld[0] = n\ninsert(held, n)\nstore_float32(y, 0, held[0])",
        "held = np.empty(4)\ninsert(held, n)",  # what a function does is not known
        "at = atomic_inc_acq_rel(n, 0)",
        "flag = load_acquire_uint32(x, 0)",
        "done = dsm_store_f32(x, 0, 0, n)",
        "if cuda.atomic.add(x, 0, 1) > 2:\n    pass",
        "first = 0\nwhile first < n:\n    store_float32(y, first, f32(0))\n    first += 4",
        "last = f32(0)\nfor k in range(n):\n    store_float32(y, k, last)\n    last = load_float32(x, k)",
        "a, b = combine(x, n)\nreturn a",
        "best = f32(0)\nif n > 2:\n    best = load_float32(x, 0)\nreturn best",
        "best = f32(0)\nif n > 2:\n    return best\nbest = f32(1)\nreturn best",
        "if n > 2:\n    best = f32(0)\nelse:\n    best = f32(1)\nreturn best",
        "total = n\ntotal += n\nreturn total",
    ],
)
def test_what_acts_or_is_read_stays(body: str) -> None:
    stays(body)


@pytest.mark.parametrize(
    "body, expected",
    [
        ("n_seen = i64(0)\nfor k in range(n):\n    n_seen = n_seen + 1\nreturn n", "return n"),
        ("at = n\nat = n + 1\nreturn at", "at = n + 1\nreturn at"),
        ("at = n\nreturn n", "return n"),
        ("return n\nat = n", "return n"),
        ("at = n  # the place\nstore_float32(y, 0, n)  # the value", "store_float32(y, 0, n)  # the value"),
        ("held = np.empty(4)\nheld[0] = n\nreturn n", "return n"),
        ("total = n\ntotal += n\nreturn n", "return n"),
        ("if n > 2:\n    a = n\nelse:\n    return n\nreturn 0", "if n > 2:\n    pass\nelse:\n    return n\nreturn 0"),
        ("if n > 2:\n    return n\nelse:\n    a = n\nreturn 0", "if n > 2:\n    return n\nreturn 0"),
        ("if n > 2:\n    a = n\nelse:\n    a = 0\nreturn 0", "return 0"),
        ("a = n\nwhile a < 4:\n    a += 1\nreturn n", "return n"),
        ("a, b = load_float32x2(x, 0)\nreturn n", "return n"),
        (
            "for k in range(n):\n    for m in range(n):\n        a = k * m\n    store_float32(y, k, n)",
            "for k in range(n):\n    store_float32(y, k, n)",
        ),
        (
            "x = pointer_float32(x)\ny = pointer_float32(y)\nstore_float32(y, 0, n)",
            "y = pointer_float32(y)\nstore_float32(y, 0, n)",
        ),
    ],
)
def test_what_nobody_reads_goes(body: str, expected: str) -> None:
    assert remains(body) == expected


def test_functions_are_printed_if_they_are_called() -> None:
    functions = {
        "insert": function("def insert(a, b):\n    a[0] = b"),
        "combine": function("def combine(a, b):\n    insert(a, b)"),
        "other": function("def other(a):\n    combine(a, a)"),
    }
    assert list(called(functions, frozenset({"combine", "x"}))) == ["insert", "combine"]
    assert list(called(functions, frozenset({"x"}))) == []


# --- functions drawn at random ---------------------------------------------------------------------------------------


class Drawn:
    """A function of assignments, loops, conditions and stores that always ends."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        lines = [f"{v} = {i}" for i, v in enumerate("abcdef")] + ["held = np.empty(4)"]
        lines += self.block(0) + [f"store_float32(y, 9, {self.value()})"]
        self.source = "def f(y, n):\n" + "".join(f"    {line}\n" for line in lines)

    def value(self) -> str:
        pick = self.random.choice
        forms = ["{0}", "{0} + {1}", "{0} * 2 - {1}", "held[{0} % 4]", "abs({0}) % 7", "n", "max({0}, {1})"]
        return pick(forms).format(pick("abcdef"), pick("abcdef"))

    def block(self, depth: int) -> list[str]:
        return [line for _ in range(self.random.randint(1, 4)) for line in self.statement(depth)]

    def statement(self, depth: int) -> list[str]:
        name, draw = self.random.choice("abcdef"), self.random.random()
        inner = [f"    {line}" for line in self.block(depth + 1)] if depth < 3 and draw < 0.45 else []
        if inner and draw < 0.2:
            return [f"for k{depth} in range({self.random.randint(0, 3)}):", *inner]
        if inner and draw < 0.3:
            at = f"w{depth}"
            return [f"{at} = 0", f"while {at} < 3:", *inner, f"    {at} += 1"]
        if inner:
            other = [f"    {line}" for line in self.block(depth + 1)] if draw < 0.4 else []
            return [f"if {self.value()} % 3 == 0:", *inner, *(["else:", *other] if other else [])]
        if draw < 0.5 and depth:
            return [f"if {self.value()} % 5 == 0:", "    return"]
        if draw < 0.6:
            return [f"store_float32(y, {depth}, {self.value()})"]
        if draw < 0.7:
            return [f"held[{name} % 4] = {self.value()}"]
        if draw < 0.8:
            return [f"{name}, {self.random.choice('abcdef')} = {self.value()}, {self.value()}"]
        return [f"{name} {self.random.choice(['=', '=', '+='])} {self.value()}"]


def done(source: str) -> list[Any]:
    """What a function stores, in order."""
    found: list[Any] = []

    class Np:
        empty = staticmethod(lambda size: [0] * size)

    names: dict[str, Any] = {"np": Np, "store_float32": lambda y, at, value: found.append((at, value % 1009))}
    exec(source, names)
    names["f"]([0] * 10, 5)
    return found


@pytest.mark.parametrize("start", range(0, 400, 100))
def test_what_a_function_stores_stays_the_same(start: int) -> None:
    shorter = 0
    for seed in range(start, start + 100):
        source = Drawn(seed).source
        text = swept(source)
        assert done(text) == done(source), source
        assert swept(text) == text
        shorter += len(text) < len(source)
    assert shorter > 50
