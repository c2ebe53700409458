"""How the functions of generated CUDA code are made: a name, typed arguments, and the LLVM or PTX they stand for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.errors import TypingError

CC = tuple[int, int]
I1, I8, I16, I32, I64 = (ir.IntType(n) for n in (1, 8, 16, 32, 64))
F16, F32, F64 = ir.HalfType(), ir.FloatType(), ir.DoubleType()
VOID = ir.VoidType()
GLOBAL, SHARED = 1, 3  # address spaces
KINDS: dict[str, Any] = {  # types of values that are exchanged, by the endings of names
    "f32": types.float32,
    "f64": types.float64,
    "i32": types.int32,
    "i64": types.int64,
    "u32": types.uint32,
    "u64": types.uint64,
    "b1": types.boolean,
}
LLVM: dict[Any, Any] = {
    types.float32: F32,
    types.float64: F64,
    types.int32: I32,
    types.int64: I64,
    types.uint32: I32,
    types.uint64: I64,
    types.boolean: I1,
}
LETTERS = {"f32": "f", "f64": "d", "i32": "r", "u32": "r", "i64": "l", "u64": "l"}  # registers, in constraints
Body = Callable[..., Any]  # (context, builder, signature, arguments) -> the value, None where there is none


def function(name: str, parameters: str, typed: Callable[..., tuple[Any, Body]]) -> Any:
    """A function for generated code. `typed` takes the types of the arguments and gives the signature and the body."""

    def definition(typing: Any, *given: Any) -> tuple[Any, Body]:
        signature, body = typed(*given)

        def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
            found = body(context, b, sig, args)
            return context.get_dummy_value() if found is None else found

        return signature, generate

    names = ("typing", *parameters.split())
    definition.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in names]
    )
    definition.__name__ = definition.__qualname__ = name
    from numba.cuda.extending import intrinsic  # numba-cuda is an extra: kernels are planned and printed without it

    return intrinsic(definition)


def numeric(name: str, takes: Sequence[str], gives: str, body: Callable[..., Any]) -> Any:
    """A function of numbers, ``body(builder, *values)``. Kinds: the keys of KINDS, "u8", "u16", "" for no result.

    Floats that would be rounded are refused.
    """
    wanted = [kind_of(k) for k in takes]
    result = kind_of(gives) if gives else types.void

    def typed(*given: Any) -> tuple[Any, Body]:
        for a, kind in zip(given, wanted, strict=True):
            real_argument(name, a, kind)
        return result(*wanted), lambda context, b, sig, args: body(b, *args)

    return function(name, " ".join("abcdefghijklmnop"[: len(takes)]), typed)


def real_argument(name: str, given: Any, wanted: Any) -> None:
    """Refuse a float that would be rounded."""
    if isinstance(given, types.Float) and (not isinstance(wanted, types.Float) or given.bitwidth > wanted.bitwidth):
        raise TypingError(f"{name} takes {wanted}, and {given} was given")


def kind_of(name: str) -> Any:
    return {"u8": types.uint8, "u16": types.uint16}.get(name) or KINDS[name]


def inline(b: Any, text: str, constraints: str, result: Any, args: Sequence[Any], effects: bool = False) -> Any:
    """PTX in place. `effects`: it must run exactly where it stands, by all threads that reach it."""
    shape = ir.FunctionType(result, [a.type for a in args])
    attributes = ("convergent", "nounwind") if effects else ("nounwind",)
    return b.call(ir.InlineAsm(shape, text, constraints, effects), list(args), attrs=attributes)


def instruction(name: str, text: str, takes: str = "", gives: str = "", *, memory: bool = True) -> Any:
    """PTX with effects as a function of numbers, whose kinds stand with spaces between them. `memory`: it reads or
    writes some, or orders what others do."""
    kinds = takes.split()
    result = LLVM[KINDS[gives]] if gives else VOID
    constraints = constrained(kinds, gives, memory)

    def body(b: Any, *args: Any) -> Any:
        found = inline(b, text, constraints, result, args, effects=True)
        return found if gives else None

    return numeric(name, kinds, gives, body)


def constrained(takes: Sequence[str], gives: str = "", memory: bool = False) -> str:
    """The registers of PTX in place: of its result, of its arguments.

    >>> constrained(["u64", "f32"], "i32", True)
    '=r,l,f,~{memory}'
    """
    return ",".join([*(["=" + LETTERS[gives]] if gives else []), *(LETTERS[k] for k in takes), *["~{memory}"] * memory])


def lazy(module: str, makers: Mapping[str, Callable[[], Any]], made: dict[str, Any]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a module whose functions are made when they are first asked for."""

    def found(name: str) -> Any:
        if name not in makers:
            raise AttributeError(f"module {module!r} has no function {name!r}")
        return made.setdefault(name, makers[name]())

    return found


def as_width(b: Any, value: Any, wanted: Any) -> Any:
    """An integer in another width, with its sign."""
    if value.type == wanted:
        return value
    return b.trunc(value, wanted) if value.type.width > wanted.width else b.sext(value, wanted)


def compute_capability() -> CC:
    """Of the target that is being compiled for."""
    from numba.cuda.core.targetconfig import ConfigStack

    found = ConfigStack().top().compute_capability
    return int(found[0]), int(found[1])


def words(b: Any, value: Any) -> list[Any]:
    """The 32-bit words of a number, lowest first."""
    if value.type in (F32, F64):
        value = b.bitcast(value, I32 if value.type == F32 else I64)
    if value.type.width < 32:
        return [b.zext(value, I32)]
    if value.type.width == 32:
        return [value]
    return [b.trunc(value, I32), b.trunc(b.lshr(value, I64(32)), I32)]


def from_words(b: Any, found: Sequence[Any], wanted: Any) -> Any:
    """The number of LLVM type `wanted` whose words these are."""
    if len(found) == 2:
        value = b.or_(b.zext(found[0], I64), b.shl(b.zext(found[1], I64), I64(32)))
        return b.bitcast(value, wanted)
    if isinstance(wanted, ir.IntType):
        return found[0] if wanted.width == 32 else b.trunc(found[0], wanted)
    return b.bitcast(found[0], wanted)
