"""A launch as machine code with Python's calling convention, written for one kernel.

Arguments and the configuration lie on the stack of the call: however many threads launch at once, none reads what
another wrote. The interpreter's lock is given back around the driver's part, which may wait for the device.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import count as numbers
from typing import Any, NamedTuple

from redalg.kernels.code.processor import binding, processor

MOVED = -1  # in the place of an error: a tensor lies otherwise to a multiple of 16 bytes than its kind
STREAM = 4  # the word of a configuration that it is
FASTCALL = 0x80
READ = {  # argument in memory: Python's function that reads it, what that gives, and how it is narrowed to that
    "i64": ("PyLong_AsUnsignedLongLongMask", "i64", ""),
    "double": ("PyFloat_AsDouble", "double", ""),
    "i8": ("PyObject_IsTrue", "i32", "trunc"),
}
_NUMBER = numbers()


class _Method(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = (("name", ctypes.c_char_p), ("code", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p))


class Prepared(NamedTuple):
    """What is known of a launch before its calls.

    ``launch``, ``function``: addresses of the driver's function and its handle of the kernel; ``values``: of every
    parameter its fixed value or the type of what is given. ``tensors``: parameters given as tensors, whose addresses
    the C function at ``pointer`` says, and the last four bits of these.
    """

    launch: int
    function: int
    config: bytes
    values: Sequence[str | int]
    tensors: Mapping[int, int]
    pointer: int


def written(made: Prepared, kept: Any) -> Callable[..., int]:
    """``f(stream, *given)``, which gives the error of cuLaunchKernelEx, or `MOVED`; as it raises what Python's own
    conversions raise, then nothing is launched. ``kept`` lives as long as the function."""
    name = f"launch{next(_NUMBER)}"
    engine, llvm = _engine(), binding()
    engine.add_module(llvm.parse_assembly(_code(name, made)))
    engine.finalize_object()
    method = _Method(b"launch", engine.get_function_address(name), FASTCALL, None)
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.argtypes, make.restype = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p], ctypes.py_object
    found: Callable[..., int] = make(ctypes.addressof(method), (method, kept), None)
    return found


@lru_cache(maxsize=1)
def _engine() -> Any:
    llvm, made_for = binding(), processor()
    machine = llvm.Target.from_triple(made_for.triple).create_target_machine(codemodel="jitdefault", jit=True)
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)


def _called(address: int | str, result: str, *arguments: str) -> str:
    if isinstance(address, str):
        address = ctypes.cast(getattr(ctypes.pythonapi, address), ctypes.c_void_p).value or 0
    return f"call {result} inttoptr (i64 {address} to ptr)({', '.join(arguments)})"


def _code(name: str, made: Prepared) -> str:
    """The function in LLVM's language."""
    launch, function, config, values, tensors, pointer = made
    words = struct.unpack(f"{len(config) // 8}q", config)
    count = max(1, len(values))
    lines = [f"%config = alloca [{len(words)} x i64]", f"%values = alloca [{count} x i64]"]
    lines.append(f"%places = alloca [{count} x ptr]")
    given = iter(range(len(values) + 1))
    moved = "0"

    def read(k: int, kind: str, tensor: bool = False) -> str:
        """Lines that read a given argument; the value's name."""
        lines.append(f"%at{k} = getelementptr ptr, ptr %given, i64 {k}")
        lines.append(f"%given{k} = load ptr, ptr %at{k}")
        reader, gives, narrowed = (pointer, "i64", "") if tensor else READ[kind]
        lines.append(f"%read{k} = {_called(reader, gives, f'ptr %given{k}')}")
        if narrowed:
            lines.append(f"%narrow{k} = {narrowed} {gives} %read{k} to {kind}")
        return f"%narrow{k}" if narrowed else f"%read{k}"

    stream = read(next(given), "i64")
    for k, word in enumerate(words):
        lines.append(f"%word{k} = getelementptr i64, ptr %config, i64 {k}")
        lines.append(f"store i64 {stream if k == STREAM else word}, ptr %word{k}")
    for k, value in enumerate(values):
        kind, stored = (
            ("i64", str(value)) if isinstance(value, int) else (value, read(next(given), value, k in tensors))
        )
        if k in tensors:
            lines += [f"%off{k} = xor i64 {stored}, {tensors[k]}", f"%moved{k} = or i64 {moved}, %off{k}"]
            moved = f"%moved{k}"
        lines.append(f"%value{k} = getelementptr i64, ptr %values, i64 {k}")
        lines += [f"store {kind} {stored}, ptr %value{k}", f"%place{k} = getelementptr ptr, ptr %places, i64 {k}"]
        lines.append(f"store ptr %value{k}, ptr %place{k}")
    arguments = "ptr %config", f"ptr inttoptr (i64 {function} to ptr)", "ptr %places", "ptr null"
    lines += [
        f"%raised = {_called('PyErr_Occurred', 'ptr')}",
        "%fine = icmp eq ptr %raised, null",
        "br i1 %fine, label %read, label %fail",
        "read:",
        f"%bits = and i64 {moved}, 15",
        "%lies = icmp eq i64 %bits, 0",
        "br i1 %lies, label %go, label %away",
        "go:",
        f"%state = {_called('PyEval_SaveThread', 'ptr')}",
        f"%error = {_called(launch, 'i32', *arguments)}",
        _called("PyEval_RestoreThread", "void", "ptr %state"),
        "%wide = sext i32 %error to i64",
        "br label %end",
        "away:",
        "br label %end",
        "end:",
        f"%code = phi i64 [%wide, %go], [{MOVED}, %away]",
        f"%found = {_called('PyLong_FromLongLong', 'ptr', 'i64 %code')}",
        "ret ptr %found",
        "fail:",
        "ret ptr null",
    ]
    text = "\n".join(lines)
    return f"define ptr @{name}(ptr %self, ptr %given, i64 %many) {{\n{text}\n}}\n"


__all__ = ["MOVED", "Prepared", "written"]
