"""From generated CPU source to machine code: translated for LLVM once, kept on disk as object code, loaded by llvmlite.

What is kept is plain object code of functions that take words (addresses, lengths, strides) and floats and return
a status, so that a later process does not compile. Code that calls anything beside the C library is not kept: no
process is handed symbols it might not have.
"""

from __future__ import annotations

import ctypes
import logging
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import llvmlite
import numpy as np

import redalg
from redalg.errors import RedalgError
from redalg.kernels.code import optimise
from redalg.kernels.code.processor import binding, machine, masks, processor
from redalg.kernels.cpu.translate import Untranslated, symbol_of, translated
from redalg.kernels.ir.program import Param
from redalg.kernels.launch.store import Disk, Once, digest

THREADS = "create join mutex_init mutex_lock mutex_unlock cond_init cond_wait cond_broadcast"
LIBRARY = frozenset("malloc free memset memcpy memmove bcmp abort".split()) | {
    *(f"pthread_{word}" for word in f"{THREADS} setaffinity_np".split()),
    *(f"sched_{word}" for word in "yield getcpu getaffinity".split()),
}
LIBRARY |= {
    name + end
    for name in "sin cos tan asin acos atan pow log2 exp2 sincos fmod floor ceil rint fma ldexp".split()
    for end in ("", "f")
}  # what object code that is kept may call
LOG = logging.getLogger("redalg")
_compiling = threading.RLock()
_once = Once()

Function = Callable[..., Any]


def functions(source: str, names: Sequence[str], params: Sequence[Param]) -> Mapping[str, Function]:
    """The functions of a generated module, compiled, by name; each takes what `params` says and then its own range.

    >>> text = '''from numba import njit
    ... from redalg.kernels.cpu.memory import pointer_int64, store_int64
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
    kinds = kinds_of(params)
    found: Mapping[str, Function] = _once(key_of(source, kinds), lambda: _made(source, tuple(names), kinds))
    return found


def kinds_of(params: Sequence[Param]) -> tuple[str, ...]:
    """What functions with these parameters take, their range included: words and floats."""
    return (*("f64" if p.role == "number" and p.dtype == "float64" else "i64" for p in params), "i64", "i64")


def key_of(source: str, kinds: Sequence[str]) -> str:
    """What determines the machine code: the text, what it calls, who compiles it, and the processor."""
    return digest("cpu", source, kinds, redalg.__version__, _helpers(), _compiler(), *processor())


@lru_cache(maxsize=1)
def _helpers() -> str:
    """What the functions are that generated code calls: a digest of the modules they are defined in, and of LLVM's
    passes."""
    files = sorted(Path(__file__).parent.rglob("*.py"))
    return digest(*(file.read_bytes() for file in (*files, Path(optimise.__file__))))


@lru_cache(maxsize=1)
def _compiler() -> tuple[object, ...]:
    return llvmlite.__version__, binding().llvm_version_info, np.__version__


def _made(source: str, names: tuple[str, ...], kinds: tuple[str, ...]) -> Mapping[str, Function]:
    key, disk, begin = key_of(source, kinds), Disk(), time.perf_counter()
    code, word = disk.read(key), "read from disk"
    if code is None or not _sound(code, names):
        code, word = _compiled(source, names, kinds), "compiled"
        if _sound(code, names):
            disk.write(key, code)
    found = _loaded(code, names, kinds)
    LOG.info("%s, %d lines: %s in %.3f s", ", ".join(names), source.count("\n"), word, time.perf_counter() - begin)
    return found


def _compiled(source: str, names: Sequence[str], kinds: Sequence[str]) -> bytes:
    """Object code with a function of C for every name."""
    with _compiling:
        return optimise.object_code(llvm_text(source, names, kinds))


def llvm_text(source: str, names: Sequence[str], kinds: Sequence[str]) -> str:
    """The functions of these names in LLVM's language, before any pass."""
    try:
        return translated(source, names, kinds, processor().triple, str(machine().target_data), masks())
    except Untranslated as statement:
        raise RedalgError(
            f"the statement {statement}",
            f"the CPU kernel of {', '.join(names)}",
            "it is none that generated code is made of: this is an error in redalg, not in the spec",
            'form.compile("numpy"), and please report the spec',
        ) from statement


# --- loading ---------------------------------------------------------------------------------------------------------

_engines: list[Any] = []  # which own the memory that functions lie in
SHAPE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64)


class Native:
    """A function of object code, called with values and its range: words and floats go to a table, which it reads.

    The lock of the interpreter is free while it runs. Raises: MemoryError where there was none for the state of a row.
    """

    def __init__(self, address: int, kinds: Sequence[str]) -> None:
        self.address, self.call = address, SHAPE(address)
        self.pack = struct.Struct("".join("d" if kind == "f64" else "q" for kind in kinds[:-2])).pack

    def __call__(self, *values: Any) -> None:
        *given, low, high = values
        require_memory(self.call(self.pack(*given), low, high))


def require_memory(status: int) -> None:
    if status:
        raise MemoryError("a CPU kernel found no memory for the state of a row")


def _loaded(code: bytes, names: Sequence[str], kinds: Sequence[str]) -> Mapping[str, Function]:
    return {name: Native(address, kinds) for name, address in _addresses(code, names).items()}


def _addresses(code: bytes, names: Sequence[str]) -> dict[str, int]:
    """Where the functions of object code lie, once it is loaded."""
    llvm = binding()
    with _compiling:
        target = llvm.Target.from_default_triple().create_target_machine(jit=True)
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target)
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        engine.finalize_object()
    _engines.append(engine)
    return {name: engine.get_function_address(symbol_of(name)) for name in names}


def loaded_text(text: str, names: Sequence[str]) -> dict[str, int]:
    """Where the functions of a module in LLVM's language lie, compiled for this processor or read from disk."""
    key, disk, begin = key_of(text, ()), Disk(), time.perf_counter()
    code, word = disk.read(key), "read from disk"
    if code is None or not _sound(code, names):
        word = "compiled"
        with _compiling:
            code = optimise.object_code(f'target triple = "{processor().triple}"\n{text}')
        if _sound(code, names):
            disk.write(key, code)
    found = _addresses(code, names)
    LOG.info("%s: %s in %.3f s", ", ".join(names), word, time.perf_counter() - begin)
    return found


# --- object code -----------------------------------------------------------------------------------------------------


def _sound(code: bytes, names: Sequence[str]) -> bool:
    """Whether object code has these functions, and all they call is in the C library; False where none can tell."""
    found = symbols(code)
    return found is not None and found.defined.issuperset(map(symbol_of, names)) and found.needed <= LIBRARY


class Symbols(NamedTuple):
    defined: set[str]
    needed: set[str]


def symbols(code: bytes) -> Symbols | None:
    """What an ELF object for 64-bit machines defines, and needs from elsewhere; None for anything else."""
    try:
        if code[:6] != b"\x7fELF\x02\x01":
            return None
        (table,) = struct.unpack_from("<Q", code, 40)
        size, count = struct.unpack_from("<HH", code, 58)
        sections = [struct.unpack_from("<IIQQQQIIQQ", code, table + i * size) for i in range(count)]
        found = Symbols(set(), set())
        for section in sections:
            if section[1] != 2:  # SHT_SYMTAB
                continue
            names = sections[section[6]]
            for at in range(section[4], section[4] + section[5], 24):
                name, _, _, home = struct.unpack_from("<IBBH", code, at)
                if name:
                    start = names[4] + name
                    (found.defined if home else found.needed).add(code[start : code.index(b"\0", start)].decode())
        return found
    except (struct.error, IndexError, ValueError):
        return None
