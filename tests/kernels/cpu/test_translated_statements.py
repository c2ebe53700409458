"""Statements of generated code, translated for LLVM, beside Python running the same text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from redalg.kernels.cpu import build
from redalg.kernels.cpu.translate import Untranslated, translated
from redalg.kernels.ir.program import Param

HEAD = """
import numpy as np
from numba import njit
from redalg.kernels.cpu.memory import (
    free, heap_float64, load_int64, load_float64, missing, pointer_float64, pointer_int64, stack_float64, store_float64
)
f32, f64, i64 = np.float32, np.float64, np.int64
INF, NAN, STEP = f64(np.inf), f64(np.nan), 3
"""
KERNEL = """
@njit(nogil=True, error_model="numpy")
def f(a, x, y, low, high):
    a = pointer_int64(a)
    x = pointer_float64(x)
    y = pointer_float64(y)
    i, j, k = load_int64(a, 0), load_int64(a, 1), load_int64(a, 2)
    u, v, w = load_float64(x, 0), load_float64(x, 1), load_float64(x, 2)
"""
PARAMS = [Param("operand", "a", "int64"), Param("operand", "x", "float64"), Param("result", "y", "float64")]
WORDS = [(7, 3, 2), (-7, 3, -2), (7, -3, 0), (0, 0, 5), (-9, 9, 9), (2**62, -1, 1), (-(2**62), 5, -(2**40))]
FLOATS = [(1.5, -2.0, 0.25), (-0.0, 0.0, math.inf), (math.nan, 1.0, -1.0), (1.0, math.nan, 3.0), (-math.inf, 7.0, 7.0)]


def text_of(body: str) -> str:
    return HEAD + KERNEL + "".join(f"    {line}\n" for line in body.splitlines())


class _Python:
    """What the text means in Python: pointers are arrays, memory is there."""

    def __init__(self, body: str) -> None:
        same: Any = lambda x: x  # noqa: E731
        names: dict[str, Any] = {f"pointer_{kind}": same for kind in ("int64", "float64")}
        names |= {"load_int64": lambda p, n: int(p[n]), "load_float64": lambda p, n: float(p[n])}
        names |= {"store_float64": lambda p, n, x: p.__setitem__(n, x), "free": same, "missing": lambda p: False}
        names |= {"stack_float64": np.zeros, "heap_float64": np.zeros, "np": np, "njit": lambda **_: same}
        lines = text_of(body).split(")\n", 1)[1]  # what follows the imports
        exec(lines, names)
        self.function = names["f"]

    def __call__(self, a: np.ndarray, x: np.ndarray, y: np.ndarray) -> None:
        with np.errstate(all="ignore"):
            self.function(a, x, y, 0, len(y))


def both(body: str, words: Sequence[int], floats: Sequence[float]) -> tuple[list[float], list[float]]:
    """What the kernel and Python write to three cells."""
    a, x = np.array(words, np.int64), np.array(floats, np.float64)
    found = []
    kernel = build.functions(text_of(body), ["f"], PARAMS)["f"]
    for run in (lambda y: kernel(a.ctypes.data, x.ctypes.data, y.ctypes.data, 0, 3), lambda y: _Python(body)(a, x, y)):
        y = np.full(3, -1.0)
        run(y)
        found.append(y.tolist())
    return found[0], found[1]


BODIES = {
    "floor division": "store_float64(y, 0, i // j if j != 0 else 0)\nstore_float64(y, 1, i % j if j != 0 else 0)",
    "quotients of integers": "store_float64(y, 0, i / 8)\nstore_float64(y, 1, 1 / f64(3 if j == 0 else j))",
    "integers beside floats": "store_float64(y, 0, i * u)\nstore_float64(y, 1, w - j)\nstore_float64(y, 2, -k + v)",
    "truths beside integers": "store_float64(y, 0, (i < j) + 1)\nstore_float64(y, 1, i64(u < v) - (v == w))",
    "extrema of Python": "store_float64(y, 0, max(u, v))\n"
    "store_float64(y, 1, min(u, v))\nstore_float64(y, 2, max(i, j))",
    "absolute values": "store_float64(y, 0, abs(i))\nstore_float64(y, 1, abs(u))\nstore_float64(y, 2, -u)",
    "comparisons": "store_float64(y, 0, u == v)\nstore_float64(y, 1, u != v)\nstore_float64(y, 2, (u <= v) | (i > j))",
    "conditions": "store_float64(y, 0, u if i > j and not u < v or k == 0 else w)\n"
    "store_float64(y, 1, 3 if i < j else u)",
    "only what is read": "z = heap_float64(3)\nz[0] = u\n"
    "store_float64(y, 0, z[0] if i < j or x[1000000000 * (i < j)] == v else 5.0)\nfree(z)",
    "loops": "n = 0\nfor t in range(2, 11, STEP):\n    n = n + t * t\nfor t in range(5, 2):\n    n = -1\n"
    "for t in range(4):\n    n += t\nstore_float64(y, 0, n)",
    "while": "n = 1\nm = 0\nwhile n < 100 and m < 50:\n    n = n * 2\n    m += 1\n    if n == 32:\n        m = 50\n"
    "store_float64(y, 0, n)\nstore_float64(y, 1, m)",
    "arrays": "z = stack_float64(8)\nfor t in range(8):\n    z[t] = t * u\nz[3] += v\nz[2] -= w\n"
    "store_float64(y, 0, z[2])\nstore_float64(y, 1, z[3])",
    "one name of several kinds": "t = True\nfor n in range(3):\n    t = t & (load_int64(a, n) > 0)\n"
    "store_float64(y, 0, t)\ns = 0.5\nstore_float64(y, 1, s)\nif i > 0:\n    s = 1\nstore_float64(y, 2, s + 0.25)\n"
    "for r in range(2):\n    s = x\n    s = s[1]",
    "a variable that becomes a float": "t = 0\n"
    "for n in range(3):\n    t = t + load_float64(x, n)\nstore_float64(y, 0, t)",
}


@pytest.mark.parametrize("name", BODIES)
def test_statements_mean_what_they_mean_in_python(name: str) -> None:
    for words in WORDS:
        for floats in FLOATS:
            if name == "only what is read" and words[0] >= words[1]:
                continue
            found, true = both(BODIES[name], words, floats)
            np.testing.assert_array_equal(found, true, err_msg=f"{words} {floats}")
            np.testing.assert_array_equal(np.signbit(found), np.signbit(true), err_msg=f"{words} {floats}")


PAIR = """
@njit(error_model="numpy")
def larger(u, v, n):
    if n > 0:
        return u, n
    s = 0
    while s < 3:
        s = s + 1
        if v == s:
            return v, s
    return max(u, v), -1
"""


def test_functions_of_the_text_give_several_values_from_several_places() -> None:
    head = PAIR + KERNEL
    body = "p, n = larger(u, v, i)\nq, m = larger(p, w, j)\nstore_float64(y, 0, p)\nstore_float64(y, 1, q + m - n)"
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    kernel = build.functions(HEAD + head + lines, ["f"], PARAMS)["f"]
    names: dict[str, Any] = {"njit": lambda **_: lambda f: f}
    exec(PAIR, names)
    for words in WORDS:
        for floats in FLOATS:
            a, x, y = np.array(words, np.int64), np.array(floats, np.float64), np.zeros(2)
            kernel(a.ctypes.data, x.ctypes.data, y.ctypes.data, 0, 2)
            p, n = names["larger"](*floats[:2], words[0])
            q, m = names["larger"](p, floats[2], words[1])
            np.testing.assert_array_equal(y, [p, q + m - n])


def test_names_may_have_letters_of_any_script() -> None:
    text = text_of("χ = u + 1\nstore_float64(y, 0, χ)").replace("def f(", "def σ(")
    kernel = build.functions(text, ["σ"], PARAMS)["σ"]
    a, x, y = np.zeros(3, np.int64), np.ones(3), np.zeros(3)
    kernel(a.ctypes.data, x.ctypes.data, y.ctypes.data, 0, 3)
    assert y[0] == 2.0


def test_what_is_divided_by_nothing_is_nothing() -> None:
    """Processors have no quotient there; Numba's error model for NumPy gives 0."""
    for words in ((7, 0, 0), (-(2**63), -1, 0)):
        a, x, y = np.array(words, np.int64), np.zeros(3), np.full(3, 9.0)
        body = "store_float64(y, 0, i // j)\nstore_float64(y, 1, i % j)"
        build.functions(text_of(body), ["f"], PARAMS)["f"](a.ctypes.data, x.ctypes.data, y.ctypes.data, 0, 3)
        assert y.tolist() == [0.0, 0.0, 9.0]


def test_float32_stays_float32_until_it_meets_something_wider() -> None:
    a, x, y = np.zeros(3, np.int64), np.array([1.0, 2.0**-30, 3.0]), np.zeros(3)
    body = "store_float64(y, 0, f32(u) + f32(v))\nstore_float64(y, 1, f32(u) + v)\nstore_float64(y, 2, f32(1) / f32(w))"
    build.functions(text_of(body), ["f"], PARAMS)["f"](a.ctypes.data, x.ctypes.data, y.ctypes.data, 0, 3)
    assert y.tolist() == [1.0, 1 + 2.0**-30, float(np.float32(1) / np.float32(3))]


REFUSED = {
    "a list": "y = [1, 2]",
    "break": "for n in range(3):\n    break",
    "another library": "store_float64(y, 0, np.sin(u))",
    "another exception": "raise ValueError",
    "another loop": "for n in (1, 2):\n    i = n",
    "a step below": "for n in range(3, 0, -1):\n    i = n",
    "nothing assigned": "store_float64(y, 0, nowhere)",
    "a power": "store_float64(y, 0, u**v)",
    "a float's remainder": "store_float64(y, 0, u % v)",
    "a pointer as a number": "store_float64(y, 0, x)",
    "a result": "return u",
    "float32 or a word": "t = f32(u)\nif i > j:\n    t = i\nstore_float64(y, 0, t)",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_generated_is_not_translated(name: str) -> None:
    with pytest.raises(Untranslated):
        translated(text_of(REFUSED[name]), ["f"], ["i64"] * 5)
