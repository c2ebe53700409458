"""From generated CPU source to machine code: Numba compiles it once, the object code stays on disk, llvmlite loads it.

What is kept is plain object code of functions that take words (addresses, lengths, strides) and floats and return
nothing, so that a later process neither imports Numba nor compiles. Code that calls anything beside the C library is
not kept: no process is handed symbols it might not have.
"""

from __future__ import annotations

import ctypes
import linecache
import os
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

from redalg.kernels.ir import Param
from redalg.kernels.store import Disk, Once, digest

LIBRARY = frozenset("malloc free memset memcpy memmove bcmp abort".split()) | {
    name + end
    for name in "sin cos tan asin acos atan pow sincos fmod floor ceil rint fma ldexp".split()
    for end in ("", "f")
}  # what object code that is kept may call
PACKAGES = ("numba", "llvmlite", "numpy")
_compiling = threading.RLock()
_once = Once()

Function = Callable[..., Any]


def functions(source: str, names: Sequence[str], params: Sequence[Param]) -> Mapping[str, Function]:
    """The functions of a generated module, compiled, by name; each takes what `params` says and then its own range.

    >>> text = '''from numba import njit
    ... from redalg.kernels.cpu_memory import pointer_int64, store_int64
    ... @njit(nogil=True)
    ... def count(y, low, high):
    ...     y = pointer_int64(y)
    ...     for i in range(low, high):
    ...         store_int64(y, i, i)
    ... '''
    >>> import numpy as np
    >>> y = np.zeros(3, np.int64)
    >>> count = functions(text, ["count"], [Param("result", "y", "int64")])["count"]
    >>> count(y.ctypes.data, 1, 3)
    >>> y.tolist()
    [0, 1, 2]
    """
    kinds = tuple("float64" if p.role == "number" and p.dtype == "float64" else "int64" for p in params)
    kinds += ("int64", "int64")
    found: Mapping[str, Function] = _once(key_of(source, kinds), lambda: _made(source, tuple(names), kinds))
    return found


def key_of(source: str, kinds: Sequence[str]) -> str:
    """What determines the machine code: the text, what it calls, who compiles it, and the processor."""
    from redalg import __version__

    settings = sorted((n, v) for n, v in os.environ.items() if n.startswith("NUMBA_") and n not in _IDLE)
    return digest("cpu", source, kinds, __version__, _helpers(), *map(_version, PACKAGES), *processor(), settings)


_IDLE = ("NUMBA_NUM_THREADS", "NUMBA_CACHE_DIR", "NUMBA_THREADING_LAYER")


@lru_cache(maxsize=1)
def _helpers() -> str:
    """What the functions are that generated code calls: a digest of the modules they are defined in."""
    files = sorted(Path(__file__).parent.glob("cpu_*.py"))
    return digest(*(file.read_bytes() for file in files))


@lru_cache(maxsize=8)
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


@lru_cache(maxsize=1)
def processor() -> tuple[str, str, str]:
    llvm = _llvm()
    return llvm.get_default_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


def _made(source: str, names: tuple[str, ...], kinds: tuple[str, ...]) -> Mapping[str, Function]:
    key, disk = key_of(source, kinds), Disk()
    stored = disk.read(key)
    code = None if stored is None else _unpacked(stored, names)
    if code is None:
        code = _compiled(source, names, kinds)
        if all(_self_contained(text) for _, text in code.values()):
            disk.write(key, _packed(code))
    return {name: _callable(*code[name], kinds) for name in names}


# --- entries on disk: for every function its name, its symbol and its object code ------------------------------------

Code = Mapping[str, tuple[str, bytes]]  # name -> symbol, object code


def _packed(code: Code) -> bytes:
    pieces = [piece for name, (symbol, text) in code.items() for piece in (name.encode(), symbol.encode(), text)]
    return b"".join(struct.pack("<Q", len(p)) + p for p in pieces)


def _unpacked(data: bytes, names: Sequence[str]) -> Code | None:
    pieces, at = [], 0
    with suppress(struct.error, ValueError):
        while at < len(data):
            (size,) = struct.unpack_from("<Q", data, at)
            pieces.append(data[at + 8 : at + 8 + size])
            at += 8 + size
        found = {
            name.decode(): (symbol.decode(), text)
            for name, symbol, text in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True)
        }
        if set(found) == set(names) and all(_self_contained(text) for _, text in found.values()):
            return found
    return None


# --- Numba -----------------------------------------------------------------------------------------------------------


def _compiled(source: str, names: Sequence[str], kinds: Sequence[str]) -> Code:
    """Object code without wrappers: nothing in it knows of Python."""
    from numba import njit, types

    signature = types.void(*(getattr(types, kind) for kind in kinds))
    module = module_of(source)
    found = {}
    with _compiling:
        for name in names:
            printed = getattr(module, name)
            options = dict(printed.targetoptions)
            options |= {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
            options.pop("nopython", None)
            compiled = njit(signature, **options)(printed.py_func).overloads[signature.args]
            compiled.library._ensure_finalized()
            found[name] = (compiled.fndesc.llvm_func_name, compiled.library._get_compiled_object())
    return found


def module_of(source: str) -> ModuleType:
    """The generated text as a module whose lines tracebacks can show."""
    file = f"<redalg cpu kernel {digest(source)[:12]}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    made = ModuleType(file)
    with _compiling:
        exec(compile(source, file, "exec"), made.__dict__)
    return made


# --- llvmlite --------------------------------------------------------------------------------------------------------

_engines: list[Any] = []  # which own the memory that functions lie in


@lru_cache(maxsize=1)
def _llvm() -> Any:
    import llvmlite.binding as llvm

    with suppress(RuntimeError):  # newer versions do this by themselves and say so
        llvm.initialize()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


def _callable(symbol: str, code: bytes, kinds: Sequence[str]) -> Function:
    """The function at a symbol of object code; the lock of the interpreter is free while it runs."""
    llvm = _llvm()
    with _compiling:
        machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        engine.finalize_object()
    _engines.append(engine)
    words: dict[str, Any] = {"int64": ctypes.c_int64, "float64": ctypes.c_double}
    kind = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *(words[k] for k in kinds))
    native = kind(engine.get_function_address(symbol))
    unused = (ctypes.c_void_p * 2)()  # where Numba's functions leave a result and an exception; these have neither
    result, error = ctypes.addressof(unused), ctypes.addressof(unused) + ctypes.sizeof(ctypes.c_void_p)

    def call(*values: Any) -> None:
        if native(result, error, *values):
            raise MemoryError("a CPU kernel found no memory for the state of a row")

    call.kept = unused  # type: ignore[attr-defined]
    return call


def _self_contained(code: bytes) -> bool:
    """Whether everything object code calls is in the C library; False where that cannot be told."""
    found = undefined(code)
    return found is not None and found <= LIBRARY


def undefined(code: bytes) -> set[str] | None:
    """The symbols an ELF object for 64-bit machines needs from elsewhere; None for anything else."""
    try:
        if code[:6] != b"\x7fELF\x02\x01":
            return None
        (table,) = struct.unpack_from("<Q", code, 40)
        size, count = struct.unpack_from("<HH", code, 58)
        sections = [struct.unpack_from("<IIQQQQIIQQ", code, table + i * size) for i in range(count)]
        found = set()
        for section in sections:
            if section[1] != 2:  # SHT_SYMTAB
                continue
            names = sections[section[6]]
            for at in range(section[4], section[4] + section[5], 24):
                name, _, _, home = struct.unpack_from("<IBBH", code, at)
                if home == 0 and name:
                    start = names[4] + name
                    found.add(code[start : code.index(b"\0", start)].decode())
        return found
    except (struct.error, IndexError, ValueError):
        return None
