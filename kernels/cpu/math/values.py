"""Numbers inside a generated CPU function: Python operators that append LLVM instructions, and what is made of them.

Numba would widen int32 arithmetic to int64, which halves the lanes of a vector, and has no name for a bit cast; here
every instruction is the one that is written. All of it is free of branches, calls and tables, so that LLVM vectorises
a loop around it, and without fast-math: what generated code allows itself (``reassoc``) never reaches the range
reductions inside, although LLVM inlines them into its loops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import ir


@dataclass(frozen=True)
class Format:
    """A binary floating-point format the processor computes in: its width and the bits of its fraction."""

    name: str
    bits: int
    fraction: int
    real: Any
    integer: Any

    @property
    def bias(self) -> int:
        return int(2 ** (self.bits - self.fraction - 2)) - 1

    @property
    def shifter(self) -> float:
        """1.5·2^fraction: adding it to a small number leaves the nearest integer in the low bits."""
        return float(3 << self.fraction - 1)

    @property
    def exponent_bits(self) -> int:
        """Those of infinity."""
        return (1 << self.bits - 1) - (1 << self.fraction)


F32 = Format("f32", 32, 23, ir.FloatType(), ir.IntType(32))
F64 = Format("f64", 64, 52, ir.DoubleType(), ir.IntType(64))
FORMATS = {"f32": F32, "f64": F64}
I8, I16, HALF = ir.IntType(8), ir.IntType(16), ir.HalfType()


def lanes_of(kind: Any) -> int:
    """Numbers of a type: 0 of one that is no vector."""
    return kind.count if isinstance(kind, ir.VectorType) else 0


def element_of(kind: Any) -> Any:
    """The type of the numbers of a vector, or of a number."""
    return kind.element if isinstance(kind, ir.VectorType) else kind


def several(kind: Any, lanes: int) -> Any:
    """A vector of so many numbers of a type; of 0 the type itself."""
    return ir.VectorType(kind, lanes) if lanes else kind


def constant(kind: Any, x: Any) -> Any:
    """A number, in every lane of a vector."""
    return ir.Constant(kind, [x] * kind.count if lanes_of(kind) else x)


def intrinsic(b: Any, name: str, gives: Any, takes: Sequence[Any], of: Sequence[Any]) -> Any:
    """LLVM's function of a name for such types."""
    letters = {ir.FloatType(): "f32", ir.DoubleType(): "f64"}
    ends = []
    for kind in of:
        number = letters.get(element_of(kind)) or f"i{element_of(kind).width}"
        ends.append(f"v{kind.count}{number}" if lanes_of(kind) else number)
    full = ".".join([f"llvm.{name}", *ends])
    return b.module.globals.get(full) or ir.Function(b.module, ir.FunctionType(gives, takes), full)


class Value:
    """A float, an integer (signed) or a truth value, or a vector of such; a Python number beside it is a constant of
    its type."""

    __slots__ = ("b", "v")

    def __init__(self, builder: Any, value: Any) -> None:
        self.b, self.v = builder, value

    @property
    def form(self) -> Format:
        """The format of a float, or the one as wide as an integer."""
        return next(f for f in (F32, F64) if element_of(self.v.type) in (f.real, f.integer))

    @property
    def is_real(self) -> bool:
        return isinstance(element_of(self.v.type), ir.FloatType | ir.DoubleType)

    def like(self, x: Any) -> Any:
        """The LLVM value of a number or `Value` in this one's type."""
        return x.v if isinstance(x, Value) else constant(self.v.type, x)

    def _as(self, kind: Any) -> Value:
        """The same bits as another type."""
        return Value(self.b, self.b.bitcast(self.v, several(kind, lanes_of(self.v.type))))

    def _do(self, real: str, integer: str, x: Any, swap: bool = False) -> Value:
        a, c = self.v, self.like(x)
        name = real if self.is_real else integer
        return Value(self.b, getattr(self.b, name)(*((c, a) if swap else (a, c))))

    def _compare(self, relation: str, x: Any) -> Value:
        if self.is_real:
            method = self.b.fcmp_unordered if relation == "!=" else self.b.fcmp_ordered
        else:
            method = self.b.icmp_signed
        return Value(self.b, method(relation, self.v, self.like(x)))

    def __add__(self, x: Any) -> Value:
        return self._do("fadd", "add", x)

    __radd__ = __add__

    def __sub__(self, x: Any) -> Value:
        return self._do("fsub", "sub", x)

    def __rsub__(self, x: Any) -> Value:
        return self._do("fsub", "sub", x, swap=True)

    def __mul__(self, x: Any) -> Value:
        return self._do("fmul", "mul", x)

    __rmul__ = __mul__

    def __truediv__(self, x: Any) -> Value:
        return self._do("fdiv", "", x)

    def __rtruediv__(self, x: Any) -> Value:
        return self._do("fdiv", "", x, swap=True)

    def __neg__(self) -> Value:
        return Value(self.b, self.b.fneg(self.v) if self.is_real else self.b.neg(self.v))

    def __and__(self, x: Any) -> Value:
        return self._do("", "and_", x)

    def __or__(self, x: Any) -> Value:
        return self._do("", "or_", x)

    def __xor__(self, x: Any) -> Value:
        return self._do("", "xor", x)

    def __invert__(self) -> Value:
        return Value(self.b, self.b.not_(self.v))

    def __lshift__(self, x: Any) -> Value:
        return self._do("", "shl", x)

    def __rshift__(self, x: Any) -> Value:
        return self._do("", "ashr", x)

    def __lt__(self, x: Any) -> Value:
        return self._compare("<", x)

    def __le__(self, x: Any) -> Value:
        return self._compare("<=", x)

    def __gt__(self, x: Any) -> Value:
        return self._compare(">", x)

    def __ge__(self, x: Any) -> Value:
        return self._compare(">=", x)

    def same(self, x: Any) -> Value:
        return self._compare("==", x)

    def is_nan(self) -> Value:
        return self._compare("!=", self)

    # --- casts -------------------------------------------------------------------------------------------------------

    def bit_pattern(self) -> Value:
        """The bits of a float as an integer."""
        return self._as(self.form.integer)

    def as_real(self) -> Value:
        """The float that has these bits."""
        return self._as(self.form.real)

    def as_half(self) -> Value:
        return self._as(HALF)

    def as_cell(self) -> Value:
        """The bits of a float16."""
        return self._as(I16)

    def to(self, kind: Any) -> Value:
        """A float in another float type, an integer in another width (without sign)."""
        kind, lanes = element_of(kind), lanes_of(self.v.type)
        real, own = isinstance(kind, ir.HalfType | ir.FloatType | ir.DoubleType), element_of(self.v.type)
        width = {ir.HalfType(): 16, F32.real: 32, F64.real: 64}
        old = width[own] if real else own.width
        new = width[kind] if real else kind.width
        if old == new:
            return self
        down, up = ("fptrunc", "fpext") if real else ("trunc", "zext")
        return Value(self.b, getattr(self.b, down if new < old else up)(self.v, several(kind, lanes)))


# --- functions of values ----------------------------------------------------------------------------------------------


def call(name: str, x: Value, *others: Any, flags: Sequence[str] = ()) -> Value:
    """An LLVM intrinsic on numbers of one type."""
    kind = x.v.type
    callee = intrinsic(x.b, name, kind, [kind] * (1 + len(others)), [kind])
    return Value(x.b, x.b.call(callee, [x.v, *map(x.like, others)], fastmath=flags))


def fma(x: Value, y: Any, z: Any) -> Value:
    """x·y + z, rounded once where the processor can do that, twice elsewhere."""
    return call("fmuladd", x, y, z)


def scaled(x: Value, n: Value) -> Value:
    """x·2^n, rounded once."""
    b, kind, word = x.b, x.v.type, several(ir.IntType(32), lanes_of(x.v.type))
    callee = intrinsic(b, "ldexp", kind, [kind, word], [kind, word])
    return Value(b, b.call(callee, [x.v, n.to(word).v]))


def polynomial(x: Value, coefficients: Sequence[float]) -> Value:
    """c₀ + c₁·x + c₂·x² + … by Horner's rule."""
    total: Any = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        total = fma(x, total, c)
    return total


def select(condition: Value, a: Any, b: Any) -> Value:
    """One of two values, both computed; at least one is a `Value`."""
    one = a if isinstance(a, Value) else b
    return Value(one.b, one.b.select(condition.v, one.like(a), one.like(b)))


def clamped(x: Value, low: float | None, high: float | None) -> Value:
    """x brought into [low, high]; NaN stays NaN (and each bound is one instruction on x86)."""
    if high is not None:
        x = select(x > high, high, x)
    return x if low is None else select(x < low, low, x)


def absolute(x: Value) -> Value:
    return call("fabs", x)


def with_sign(x: Value, y: Value) -> Value:
    """|x| with the sign of y."""
    return call("copysign", x, y)


# --- operations -------------------------------------------------------------------------------------------------------

# Kinds of scalars; "*f32" is the address of cells of one, "*" that of any.
KINDS: dict[str, Any] = {
    "b1": ir.IntType(1),
    "t8": ir.IntType(8),  # a truth that lies in a byte
    **{f"{sign}{bits}": ir.IntType(bits) for sign in "iu" for bits in (8, 16, 32, 64)},
    "f32": F32.real,
    "f64": F64.real,
}


def type_of(kind: str) -> Any:
    """The LLVM type of a kind."""
    return type_of(kind[1:]).as_pointer() if kind.startswith("*") else KINDS[kind]


Emit = Callable[..., Any]


@dataclass(frozen=True)
class Operation:
    """What generated code calls by a name: the kinds it takes and gives ("": nothing), and what appends instructions.

    ``emit(builder, *values)`` gives an LLVM value. ``apart``: as a function of its own, which LLVM inlines, unless it
    is ``called``: of long functions, that would take the registers of the constants of loops around them.
    """

    takes: tuple[str, ...]
    gives: str
    emit: Emit
    apart: bool = False
    called: bool = False


def function(takes: Sequence[str], gives: str, body: Callable[..., Value]) -> Operation:
    """An operation on numbers."""
    return Operation(tuple(takes), gives, lambda b, *values: body(*(Value(b, v) for v in values)).v, apart=True)
