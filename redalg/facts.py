"""Facts about functions: where they are monotone, what they return, how they treat sums. Nothing about specs.

Every row is tested by sampling (`tests/test_facts.py`). "strict" means strictly monotone over the reals on the whole
domain: only strict maps may be pulled out of argmax and top-k indices (theory, section 2.3).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fact:
    """`direction`: +1 non-decreasing, -1 non-increasing on the domain, 0 neither. `low`: lower bound of the range."""

    direction: int = 0
    strict: bool = False
    parity: str = ""  # "odd", "even" or ""
    range: str = ""  # "positive", "nonnegative" or ""
    domain: str = ""  # "", "positive", "nonnegative", "unit", "above_one", "above_minus_one"


FUNCTIONS: dict[str, Fact] = {
    "exp": Fact(+1, True, range="positive"),
    "expm1": Fact(+1, True),
    "log": Fact(+1, True, domain="positive"),
    "log1p": Fact(+1, True, domain="above_minus_one"),
    "abs": Fact(0, parity="even", range="nonnegative"),
    "sign": Fact(+1, False, parity="odd"),
    "relu": Fact(+1, False, range="nonnegative"),
    "sigmoid": Fact(+1, True, range="positive"),
    "tanh": Fact(+1, True, parity="odd"),
    "erf": Fact(+1, True, parity="odd"),
    "erfc": Fact(-1, True, range="positive"),
    "sin": Fact(parity="odd"),
    "cos": Fact(parity="even"),
    "tan": Fact(parity="odd"),
    "sinh": Fact(+1, True, parity="odd"),
    "cosh": Fact(0, parity="even", range="positive"),
    "asin": Fact(+1, True, parity="odd", domain="unit"),
    "acos": Fact(-1, True, range="nonnegative", domain="unit"),
    "atan": Fact(+1, True, parity="odd"),
    "asinh": Fact(+1, True, parity="odd"),
    "acosh": Fact(+1, True, range="nonnegative", domain="above_one"),
    "atanh": Fact(+1, True, parity="odd", domain="unit"),
    "floor": Fact(+1, False),
    "ceil": Fact(+1, False),
    "conj": Fact(),
    "re": Fact(),
    "im": Fact(),
}

# f(s + t) as a sum of products of functions of s and of t alone: (coefficient, outer on s, outer on t).
ADDITION: dict[str, tuple[tuple[int, str, str], ...]] = {
    "sin": ((1, "sin", "cos"), (1, "cos", "sin")),
    "cos": ((1, "cos", "cos"), (-1, "sin", "sin")),
}

# f(t) through exponentials: sum of coefficient · e^{rate·t}, as (numerator, denominator, rate).
EXPONENTIAL: dict[str, tuple[tuple[int, int, int], ...]] = {
    "sinh": ((1, 2, 1), (-1, 2, -1)),
    "cosh": ((1, 2, 1), (1, 2, -1)),
    "expm1": ((1, 1, 1), (-1, 1, 0)),
}
