"""The table of functions of one number: a row says everything that the library has to know of a function.

Graph evaluation in every arithmetic, signs, the rules of the engine, the search for witnesses, the printers and cost
model of kernels, the grammar and the SymPy bridge read their rows here (`docs/adding_a_function.md` shows how a row is
added); nothing here knows of specs. Formulas are text over ``x`` (and ``y``, the value at x), read by
`redalg.graph.formula`. The checker of certificates judges by a table of its own (`redalg.proofs.document.functions`).

Every row is tested by sampling (`tests/unit/test_facts.py`). "strict" means strictly monotone over the reals on the
whole domain: only strict maps may be pulled out of argmax and top-k indices (theory, section 2.3).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

RISES, FALLS, EITHER = 1, -1, 0
INTEGERS = "integers"
# per word of a domain: where the table's tests draw arguments
SAMPLES: dict[str, tuple[float, float]] = {
    "": (-6, 6),
    "positive": (1e-6, 6),
    "unit": (-0.999, 0.999),
    "open_unit": (-0.999, 0.999),
    "above_one": (1, 6),
    "above_minus_one": (-0.999, 6),
}


@dataclass(frozen=True)
class Function:
    """One function f of one number.

    Facts, over the reals:
        direction, strict, parity: +1 non-decreasing, -1 non-increasing on the domain, 0 neither; "odd", "even" or "".
        pieces: what it does left and right of 0 where it has no one direction, as (direction, direction).
        domain, range: a key of SAMPLES; "positive", "nonnegative" or "".
        low, high, at: the limits at -oo and oo ("nan" outside the domain), exact values at some rationals.
        derivative, kinks: in x and y; where it has none ("0", INTEGERS or "").
        equal: the same function through others, for algebra (SymPy, fields of residues, enclosures).
        exponential: Σ coefficient·e^(rate·x), what the engine opens it into.
        addition: f(s + t) = Σ coefficient·g(s)·h(t).
        slope: what |f'| is at most, "" without a bound.
        exact: rationals go to rationals and integers to integers.

    How it is computed:
        computed: a formula that arrays and kernels evaluate in its place; it has no implementation of its own then.
        numpy: NumPy's name, "" for a function of `redalg.numeric.maps`.
        mpmath: mpmath's name, "" where `computed` or `equal` is evaluated.
        sympy: SymPy's class, "" for one of `redalg.language.functions`.
        cpu: "own" (`redalg.kernels.cpu.math`), "library" (the C library's, not vectorised), or "float32": own there,
            the library's in float64.
        cuda: "own" (`redalg.kernels.cuda.intrinsics.math`) or "library" (libdevice's).
        ulp: the largest error of libdevice's function from the rounded result, for float32 and float64.
        cost: instructions of one thread, `dear` where that is worth a register to keep a value.

    Words:
        latex: with {} for the argument in text, "" for an operator name; summary: one line for its documentation.
        word: whether the grammar has it (all but the engine's own).
    """

    name: str
    direction: int = EITHER
    strict: bool = False
    parity: str = ""
    pieces: tuple[int, int] | None = None
    domain: str = ""
    range: str = ""
    low: str = "nan"
    high: str = "nan"
    at: tuple[tuple[str, str], ...] = ()
    derivative: str = ""
    kinks: str = ""
    equal: str = ""
    exponential: tuple[tuple[str, str], ...] = ()
    addition: tuple[tuple[int, str, str], ...] = ()
    slope: str = ""
    exact: bool = False
    computed: str = ""
    numpy: str = ""
    mpmath: str = ""
    sympy: str = ""
    cpu: str = "own"
    cuda: str = "library"
    ulp: tuple[float, float] = (0, 0)
    cost: int = 1
    dear: bool = True
    latex: str = ""
    summary: str = ""
    word: bool = True

    @cached_property
    def values(self) -> dict[Fraction, Fraction | float]:
        """The exact values at some rationals."""
        return {Fraction(x): value(y) for x, y in self.at}

    @cached_property
    def limits(self) -> tuple[Fraction | float, Fraction | float]:
        """The values at -oo and at oo."""
        return value(self.low), value(self.high)


def value(text: str) -> Fraction | float:
    """A number of the table: a rational, or inf, -inf, nan.

    >>> value("1/2"), value("-inf")
    (Fraction(1, 2), -inf)
    """
    return float(text) if text in ("inf", "-inf", "nan") else Fraction(text)


_ZERO, _ONE = (("0", "0"),), (("0", "1"),)
_ROWS = (
    Function(
        "exp",
        RISES,
        True,
        range="positive",
        low="0",
        high="inf",
        at=_ONE,
        derivative="y",
        numpy="exp",
        mpmath="exp",
        sympy="exp",
        ulp=(2, 1),
        cost=8,
        latex="e^{{{}}}",
        summary="e**x, with exp(-oo) = 0.",
    ),
    Function(
        "exp2",
        RISES,
        True,
        range="positive",
        low="0",
        high="inf",
        at=(*_ONE, ("1", "2"), ("-1", "1/2"), ("10", "1024")),
        derivative="log(2)*y",
        equal="exp(x*log(2))",
        exponential=(("1", "log(2)"),),
        numpy="exp2",
        ulp=(2, 1),
        cost=8,
        latex="2^{{{}}}",
        summary="2**x, with exp2(-oo) = 0; powers of integers are exact.",
    ),
    Function(
        "expm1",
        RISES,
        True,
        low="-1",
        high="inf",
        at=_ZERO,
        derivative="y + 1",
        equal="exp(x) - 1",
        exponential=(("1", "1"), ("-1", "0")),
        numpy="expm1",
        mpmath="expm1",
        ulp=(1, 1),
        cost=14,
        summary="exp(x) - 1, accurate near 0.",
    ),
    Function(
        "log",
        RISES,
        True,
        domain="positive",
        low="nan",
        high="inf",
        at=(("0", "-inf"), ("1", "0")),
        derivative="1/x",
        numpy="log",
        mpmath="log",
        sympy="log",
        ulp=(1, 1),
        cost=22,
        summary="Natural logarithm; -oo at 0, NaN below.",
    ),
    Function(
        "log2",
        RISES,
        True,
        domain="positive",
        low="nan",
        high="inf",
        at=(("0", "-inf"), ("1", "0"), ("2", "1"), ("1/2", "-1"), ("1024", "10")),
        derivative="1/(x*log(2))",
        equal="log(x)/log(2)",
        numpy="log2",
        ulp=(1, 1),
        cost=22,
        latex=r"\log_2\left({}\right)",
        summary="Logarithm to base 2, -oo at 0, NaN below; exact at powers of 2.",
    ),
    Function(
        "log1p",
        RISES,
        True,
        domain="above_minus_one",
        low="nan",
        high="inf",
        at=(*_ZERO, ("-1", "-inf")),
        derivative="1/(x + 1)",
        equal="log(x + 1)",
        numpy="log1p",
        mpmath="log1p",
        ulp=(1, 1),
        cost=16,
        summary="log(1 + x), accurate near 0.",
    ),
    Function(
        "softplus",
        RISES,
        True,
        range="positive",
        low="0",
        high="inf",
        slope="1",
        derivative="sigmoid(x)",
        equal="log(exp(x) + 1)",
        computed="maximum(x, 0) + log1p(exp(-abs(x)))",
        summary="log(1 + exp(x)) without overflow, as max(x, 0) + log1p(exp(-abs(x))).",
    ),
    Function(
        "abs",
        parity="even",
        pieces=(FALLS, RISES),
        range="nonnegative",
        low="inf",
        high="inf",
        at=_ZERO,
        slope="1",
        derivative="sign(x)",
        kinks="0",
        exact=True,
        numpy="abs",
        sympy="Abs",
        cuda="own",
        dear=False,
        latex=r"\left|{}\right|",
        summary="Absolute value (modulus of complex numbers).",
    ),
    Function(
        "sign",
        RISES,
        False,
        parity="odd",
        low="-1",
        high="1",
        at=_ZERO,
        derivative="0",
        kinks="0",
        exact=True,
        numpy="sign",
        sympy="sign",
        cuda="own",
        dear=False,
        summary="-1, 0 or 1.",
    ),
    Function(
        "relu",
        RISES,
        False,
        range="nonnegative",
        low="0",
        high="inf",
        at=_ZERO,
        slope="1",
        derivative="(sign(x) + 1)/2",
        kinks="0",
        equal="maximum(x, 0)",
        exact=True,
        cuda="own",
        dear=False,
        summary="max(x, 0); NaN stays NaN.",
    ),
    Function(
        "sigmoid",
        RISES,
        True,
        range="positive",
        low="0",
        high="1",
        at=(("0", "1/2"),),
        slope="1/4",
        derivative="y - y*y",
        equal="1/(exp(-x) + 1)",
        cuda="own",
        cost=16,
        summary="1 / (1 + exp(-x)).",
    ),
    Function(
        "tanh",
        RISES,
        True,
        parity="odd",
        low="-1",
        high="1",
        at=_ZERO,
        slope="1",
        derivative="1 - y*y",
        equal="(exp(x) - exp(-x))/(exp(x) + exp(-x))",
        numpy="tanh",
        mpmath="tanh",
        sympy="tanh",
        ulp=(2, 2),
        cost=18,
        summary="Hyperbolic tangent.",
    ),
    Function(
        "erf",
        RISES,
        True,
        parity="odd",
        low="-1",
        high="1",
        at=_ZERO,
        slope="2",
        derivative="2*exp(-x*x)*pi**(-1/2)",
        mpmath="erf",
        sympy="erf",
        ulp=(2, 2),
        cost=20,
        summary="Error function 2/√π · ∫₀ˣ exp(-t²) dt.",
    ),
    Function(
        "erfc",
        FALLS,
        True,
        range="positive",
        low="2",
        high="0",
        at=_ONE,
        slope="2",
        derivative="-2*exp(-x*x)*pi**(-1/2)",
        mpmath="erfc",
        sympy="erfc",
        ulp=(4, 5),
        cost=30,
        summary="1 - erf(x), accurate where it is small.",
    ),
    Function(
        "sin",
        parity="odd",
        at=_ZERO,
        slope="1",
        derivative="cos(x)",
        addition=((1, "sin", "cos"), (1, "cos", "sin")),
        numpy="sin",
        mpmath="sin",
        sympy="sin",
        cpu="float32",
        ulp=(2, 2),
        cost=24,
        summary="Sine.",
    ),
    Function(
        "cos",
        parity="even",
        at=_ONE,
        slope="1",
        derivative="-sin(x)",
        addition=((1, "cos", "cos"), (-1, "sin", "sin")),
        numpy="cos",
        mpmath="cos",
        sympy="cos",
        cpu="float32",
        ulp=(2, 2),
        cost=24,
        summary="Cosine.",
    ),
    Function(
        "tan",
        parity="odd",
        at=_ZERO,
        derivative="y*y + 1",
        equal="sin(x)/cos(x)",
        numpy="tan",
        mpmath="tan",
        sympy="tan",
        cpu="float32",
        ulp=(4, 2),
        cost=34,
        summary="Tangent.",
    ),
    Function(
        "sinh",
        RISES,
        True,
        parity="odd",
        low="-inf",
        high="inf",
        at=_ZERO,
        derivative="cosh(x)",
        equal="(exp(x) - exp(-x))/2",
        exponential=(("1/2", "1"), ("-1/2", "-1")),
        numpy="sinh",
        mpmath="sinh",
        sympy="sinh",
        ulp=(3, 2),
        cost=24,
        summary="Hyperbolic sine.",
    ),
    Function(
        "cosh",
        parity="even",
        pieces=(FALLS, RISES),
        range="positive",
        low="inf",
        high="inf",
        at=_ONE,
        derivative="sinh(x)",
        equal="(exp(x) + exp(-x))/2",
        exponential=(("1/2", "1"), ("1/2", "-1")),
        numpy="cosh",
        mpmath="cosh",
        sympy="cosh",
        ulp=(2, 1),
        cost=20,
        summary="Hyperbolic cosine.",
    ),
    Function(
        "asin",
        RISES,
        True,
        parity="odd",
        domain="unit",
        at=_ZERO,
        derivative="(1 - x*x)**(-1/2)",
        numpy="arcsin",
        mpmath="asin",
        sympy="asin",
        ulp=(2, 2),
        cost=24,
        summary="Inverse sine.",
    ),
    Function(
        "acos",
        FALLS,
        True,
        domain="unit",
        range="nonnegative",
        at=(("1", "0"),),
        derivative="-(1 - x*x)**(-1/2)",
        numpy="arccos",
        mpmath="acos",
        sympy="acos",
        ulp=(2, 2),
        cost=24,
        summary="Inverse cosine.",
    ),
    Function(
        "atan",
        RISES,
        True,
        parity="odd",
        at=_ZERO,
        slope="1",
        derivative="1/(x*x + 1)",
        numpy="arctan",
        mpmath="atan",
        sympy="atan",
        ulp=(2, 2),
        cost=20,
        summary="Inverse tangent.",
    ),
    Function(
        "asinh",
        RISES,
        True,
        parity="odd",
        low="-inf",
        high="inf",
        at=_ZERO,
        slope="1",
        derivative="(x*x + 1)**(-1/2)",
        numpy="arcsinh",
        mpmath="asinh",
        sympy="asinh",
        ulp=(3, 3),
        cost=28,
        summary="Inverse hyperbolic sine.",
    ),
    Function(
        "acosh",
        RISES,
        True,
        domain="above_one",
        range="nonnegative",
        high="inf",
        at=(("1", "0"),),
        derivative="(x*x - 1)**(-1/2)",
        numpy="arccosh",
        mpmath="acosh",
        sympy="acosh",
        ulp=(4, 3),
        cost=28,
        summary="Inverse hyperbolic cosine.",
    ),
    Function(
        "atanh",
        RISES,
        True,
        parity="odd",
        domain="open_unit",
        at=_ZERO,
        derivative="1/(1 - x*x)",
        numpy="arctanh",
        mpmath="atanh",
        sympy="atanh",
        ulp=(3, 2),
        cost=24,
        summary="Inverse hyperbolic tangent.",
    ),
    Function(
        "floor",
        RISES,
        False,
        low="-inf",
        high="inf",
        derivative="0",
        kinks=INTEGERS,
        exact=True,
        numpy="floor",
        sympy="floor",
        dear=False,
        summary="The largest integer that is not larger.",
    ),
    Function(
        "ceil",
        RISES,
        False,
        low="-inf",
        high="inf",
        derivative="0",
        kinks=INTEGERS,
        exact=True,
        numpy="ceil",
        sympy="ceiling",
        dear=False,
        summary="The smallest integer that is not smaller.",
    ),
    Function(
        "conj",
        derivative="1",
        exact=True,
        numpy="conj",
        sympy="conjugate",
        cuda="",
        cpu="",
        dear=False,
        summary="Complex conjugate.",
    ),
    Function(
        "re",
        derivative="1",
        exact=True,
        numpy="real",
        sympy="re",
        cuda="",
        cpu="",
        dear=False,
        summary="Real part.",
    ),
    Function(
        "im",
        derivative="0",
        exact=True,
        numpy="imag",
        sympy="im",
        cuda="",
        cpu="",
        dear=False,
        summary="Imaginary part.",
    ),
    Function(
        "pow2",
        range="positive",
        low="1",
        high="1",
        cuda="own",
        cost=4,
        dear=False,
        word=False,
        summary="The largest power of 2 that is at most |x|: the unit of a scale anchor.",
    ),
)

FUNCTIONS: dict[str, Function] = {row.name: row for row in _ROWS}
UNARY = frozenset(FUNCTIONS)
EXACT = frozenset(row.name for row in _ROWS if row.exact)  # rationals to rationals
COMPUTED = {row.name: row.computed for row in _ROWS if row.computed}
POLES = {row.name: x for row in _ROWS for x, y in row.values.items() if abs(y) == float("inf")}
NOT_NEGATIVE = frozenset(row.name for row in _ROWS if row.range and not row.domain)
