"""From generated source to machine code: Numba types and lowers it, NVVM and ptxas (or the driver) do the rest.

Works without a GPU as far as the CUDA toolkit's packages do: PTX always, registers and spills where ptxas is found.
"""

from __future__ import annotations

import linecache
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import redalg
from redalg.errors import RedalgError
from redalg.kernels.ir.program import CELLS, Module
from redalg.kernels.launch.store import Disk, Once, digest

CC = tuple[int, int]
PACKAGES = ("numba", "numba-cuda", "llvmlite", "nvidia-nvvm", "nvidia-cuda-nvcc")
_compiling = threading.RLock()  # Numba's compiler is one at a time, and so is the device it asks for
_once = Once()


@dataclass(frozen=True)
class Assembled:
    """What ptxas says of a kernel. Bytes of spills and stack are 0 where everything is in registers."""

    entry: str
    registers: int
    spill_stores: int
    spill_loads: int
    stack: int
    shared: int
    serialised: bool = False  # whether products that could overlap wait for each other (ptxas warns of it)


def module_of(source: str) -> ModuleType:
    """The generated source as a module, with its lines where tracebacks and profilers look for them."""
    name = f"redalg_generated_{digest(source)[:12]}"
    file = f"<redalg kernel {name[-12:]}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    module = ModuleType(name)
    module.__file__ = file
    exec(compile(source, file, "exec"), module.__dict__)
    sys.modules[name] = module  # Numba looks the globals of a function up there
    return module


def signature(module: Module) -> tuple[Any, ...]:
    """The Numba types of a kernel's arguments."""
    from numba import types

    number = {"float64": types.float64, "int64": types.int64, "bool": types.boolean}
    found: list[Any] = []
    for p in module.params:
        if p.role in ("operand", "result", "scratch", "counters", "marks"):
            found.append(types.CPointer(getattr(types, CELLS[p.dtype])))
        elif p.role == "maps":
            found.append(types.uint64)
        else:
            found.append(number[p.dtype] if p.role == "number" else types.int64)
    return tuple(found)


@contextmanager
def _pretended(cc: CC) -> Iterator[None]:
    """Functions called by a kernel are compiled for the current device; without one, for the target asked for."""
    import numba.cuda.dispatcher as dispatcher

    before = dispatcher.get_current_device
    dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=_arch(cc))
    try:
        yield
    finally:
        dispatcher.get_current_device = before


def _arch(cc: CC) -> tuple[Any, ...]:
    return (*cc, "a") if cc >= (9, 0) else cc


def ptx_of(module: Module, cc: CC, limit: int | None = None) -> tuple[str, str]:
    """The kernel as PTX, and the name of its entry. `limit`: registers a thread may use.

    >>> import redalg as ra
    >>> from redalg.kernels.rows.kernel import emit
    >>> from redalg.kernels.programs import lower
    >>> from redalg.kernels.ir.schedule import Layout, Schedule
    >>> program = lower(ra.derive_incremental(ra.catalog["logsumexp"]), {"x": "float32"})
    >>> text, entry = ptx_of(emit(program, Schedule(threads=32, rows=4), Layout()), (9, 0))
    >>> f".entry {entry}" in text, "sm_90a" in text
    (True, True)
    """
    key = _key("ptx", module, cc, limit)
    disk = Disk()

    def make() -> tuple[str, str]:
        found = disk.read(key)
        if found is None:
            text = _compiled(module, cc, limit)
            disk.write(key, text.encode())
        else:
            text = found.decode()
        match = re.search(r"\.entry\s+(\w+)", text)
        assert match is not None
        return text, match.group(1)

    made: tuple[str, str] = _once(key, make)
    return made


def _compiled(module: Module, cc: CC, limit: int | None) -> str:
    try:
        from numba import cuda
    except Exception as problem:  # it was found, and something is wrong with it
        what, why = f"compiling the kernel {module.entry}", f"numba.cuda cannot be imported: {problem}"
        raise RedalgError(what, "redalg.kernels.launch.ptx", why, "pip install --upgrade 'redalg[cuda]'") from problem
    compile_ptx: Any = cuda.compile_ptx
    with _compiling, _pretended(cc):
        kernel = getattr(module_of(module.source), module.entry)
        bounds = (module.threads, 1) if module.threads else None
        text: str = compile_ptx(kernel.py_func, signature(module), cc=_arch(cc), launch_bounds=bounds)[0]
    return re.sub(r"(\.entry[^{]*?\))", rf"\1\n.maxnreg {limit}", text, count=1) if limit else text


def _key(what: str, module: Module, cc: CC, limit: int | None) -> str:
    made_of = module.source, module.entry, module.params, module.threads, cc, limit
    return digest(what, *made_of, redalg.__version__, _functions(), *map(package_version, PACKAGES))


@lru_cache(maxsize=1)
def _functions() -> str:
    """What the functions are that generated code calls: a digest of the modules they are defined in."""
    kernels = Path(__file__).parent.parent
    shared = kernels / "code" / "functions.py", kernels / "ir" / "tensor_cores.py"
    files = sorted([*shared, *(kernels / "cuda" / "intrinsics").glob("*.py")])
    return digest(*(file.read_bytes() for file in files))


@lru_cache(maxsize=16)
def package_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


# --- offline assembly ------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def ptxas() -> str | None:
    """Where ptxas is: the package nvidia-cuda-nvcc, or the path."""
    import shutil

    for place in map(Path, sys.path):
        for found in place.glob("nvidia/*/bin/ptxas"):
            return str(found)
    return shutil.which("ptxas")


def assemble(module: Module, cc: CC, limit: int | None = None) -> Assembled:
    """Registers and spills of a kernel, by ptxas.

    Raises: RedalgError where there is no ptxas, or where it refuses the code.
    """
    program = ptxas()
    if program is None:
        raise RedalgError(
            "assembling a kernel",
            "redalg.kernels.launch.ptx",
            "ptxas was not found",
            "pip install 'redalg[cuda]' (nvidia-cuda-nvcc)",
        )
    text, entry = ptx_of(module, cc, limit)
    arch = f"sm_{cc[0]}{cc[1]}" + ("a" if cc >= (9, 0) else "")
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "kernel.ptx"
        file.write_text(text)
        command = [program, f"-arch={arch}", "-v", str(file), "-o", str(Path(place) / "kernel.cubin")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RedalgError(
            f"the kernel {entry}", "ptxas", done.stderr.strip()[:400], "report this with the kernel's source"
        )
    return _report(entry, done.stderr)


def _report(entry: str, text: str) -> Assembled:
    def number(pattern: str) -> int:
        return max((int(x) for x in re.findall(pattern, text)), default=0)

    return Assembled(
        entry,
        number(r"Used (\d+) registers"),
        number(r"(\d+) bytes spill stores"),
        number(r"(\d+) bytes spill loads"),
        number(r"(\d+) bytes stack frame"),
        number(r"(\d+) bytes smem"),
        "are serialized" in text,
    )
