"""Printed kernel source as generators: every call that waits for other threads becomes a ``yield``.

Before, in a kernel or in a function it calls::

    s = s + shfl_xor_f32(s, 1)
    cuda.syncthreads()
    merge(table)

After (``merge`` waits too; a request goes out with its line)::

    s = s + (yield (12, shfl_xor_f32(s, 1)))
    (yield (13, cuda.syncthreads()))
    (yield from merge(table))
"""

from __future__ import annotations

import ast
import builtins
import linecache
import math
from collections.abc import Callable, Collection
from functools import lru_cache
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from redalg.errors import RedalgError
from redalg.kernels.emulate import intrinsics, mma, wgmma
from redalg.kernels.emulate import math as emulated_math
from redalg.kernels.emulate.threads import Place, Shared, SharedRows, declared, now, poison
from redalg.kernels.emulate.warp import EMULATED as WAITING
from redalg.kernels.emulate.warp import NUMBA
from redalg.parsing import parse

FILE = "<emulated kernel>"
WAITS = frozenset({*WAITING, "tx_wait", *wgmma.WAITING, *(f"cuda.{name}" for name in NUMBA)})
FACTORIES = frozenset({*wgmma.WAITING_FACTORIES, *mma.WAITING_FACTORIES})  # make what waits


def loaded(source: str) -> dict[str, Any]:
    """The names of a kernel's module, run with intrinsics in place of the GPU's functions. Kernels are generators."""
    number = abs(hash(source)) % 10**8
    file = f"{FILE[:-1]} {number}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"__builtins__": {**vars(builtins), "__import__": _imported}}
    exec(_compiled(source, file), namespace)
    return namespace


@lru_cache(maxsize=64)
def _compiled(source: str, file: str) -> Any:
    tree = parse(source, file)
    functions = {f.name: f for f in tree.body if isinstance(f, ast.FunctionDef)}
    waits = WAITS | _made(tree)
    waiting = _waiting(functions, waits)
    for name, f in functions.items():
        f.body = [_Rewriter(waits, waiting, name in waiting).visit(s) for s in f.body]
    return compile(ast.fix_missing_locations(tree), file, "exec")


def _made(tree: ast.Module) -> set[str]:
    """The names of functions that wait and are made by a call at the head of the module."""
    found = set()
    for line in tree.body:
        if isinstance(line, ast.Assign) and isinstance(line.value, ast.Call) and _called(line.value) in FACTORIES:
            found |= {name.id for name in line.targets if isinstance(name, ast.Name)}
    return found


def _waiting(functions: dict[str, ast.FunctionDef], waits: Collection[str]) -> set[str]:
    """The functions that wait, themselves or through what they call."""
    calls = {name: {_called(c) for c in ast.walk(f) if isinstance(c, ast.Call)} for name, f in functions.items()}
    found = {name for name, names in calls.items() if any(n in waits for n in names)}
    while more := {name for name, names in calls.items() if names & found} - found:
        found |= more
    return found


def _called(call: ast.Call) -> str:
    f = call.func
    if isinstance(f, ast.Attribute) and isinstance(f.value, ast.Name):
        return f"{f.value.id}.{f.attr}"
    return f.id if isinstance(f, ast.Name) else ""


class _Rewriter(ast.NodeTransformer):
    def __init__(self, waits: Collection[str], waiting: set[str], inside: bool) -> None:
        self.waits, self.waiting, self.inside = waits, waiting, inside

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = _called(node)
        self.generic_visit(node)
        if ast.unparse(node.func) == "cuda.shared.array":  # known by its place in the source
            place = [ast.Constant(node.lineno), ast.Constant(node.col_offset)]
            node.keywords.append(ast.keyword("site", ast.Tuple(list(place), ast.Load())))
        if not self.inside:
            return node
        if name in self.waits:
            return ast.Yield(ast.Tuple([ast.Constant(node.lineno), node], ast.Load()))
        return ast.YieldFrom(node) if name in self.waiting else node

    def _refuse(self, node: ast.AST) -> ast.AST:
        names = {_called(c) for c in ast.walk(node) if isinstance(c, ast.Call)}
        if any(n in self.waits or n in self.waiting for n in names):
            raise RedalgError(
                f"`{ast.unparse(node)}`", "emulation", "it waits for other threads", "call it in a statement"
            )
        return node

    visit_Lambda = visit_ListComp = visit_GeneratorExp = visit_SetComp = visit_DictComp = _refuse  # noqa: N815


# --- what the source imports -----------------------------------------------------------------------------------------


class _Index:
    """cuda.threadIdx and its kin: attributes of the running thread."""

    def __init__(self, place: Callable[[], Place]) -> None:
        self._place = place

    def __getattr__(self, axis: str) -> int:
        return int(getattr(self._place(), axis))


def _jit(function: Any = None, **options: Any) -> Any:
    return function if callable(function) else lambda f: f


def _shared(shape: Any, dtype: Any, alignment: Any = None, *, site: Any = None) -> Shared | SharedRows:
    whole = declared(site, _count(shape), dtype)
    return SharedRows(whole, shape) if isinstance(shape, tuple) and len(shape) == 2 else whole


def _local(shape: Any, dtype: Any, alignment: Any = None) -> Any:
    """Registers; where tiles lie in shared memory, those of 32 bits may hold packed numbers (`tiles.Word`)."""
    found = poison(_count(shape), dtype).reshape(shape)
    return found.astype(object) if dtype is np.uint32 and now.thread.block.tiles is not None else found


def _count(shape: Any) -> int:
    return int(math.prod(shape)) if isinstance(shape, tuple) else int(shape)


def _atomic(change: Callable[[Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    def apply(array: Any, index: Any, value: Any) -> Any:
        if isinstance(array, Shared):
            return array.atomic(index, lambda before: change(before, array.dtype.type(value)))
        before = array[index]
        array[index] = change(before, value)
        return before

    return apply


def _grid(dimensions: int) -> Any:
    t, size = now.thread, now.thread.block.grid.block
    found = [t.block.place[k] * size[k] + t.place[k] for k in range(dimensions)]
    return found[0] if dimensions == 1 else tuple(found)


CUDA = SimpleNamespace(
    jit=_jit,
    threadIdx=_Index(lambda: now.thread.place),
    blockIdx=_Index(lambda: now.thread.block.place),
    blockDim=_Index(lambda: now.thread.block.grid.block),
    gridDim=_Index(lambda: now.thread.block.grid.size),
    shared=SimpleNamespace(array=_shared),
    local=SimpleNamespace(array=_local),
    atomic=SimpleNamespace(add=_atomic(lambda a, b: a + b), max=_atomic(max), min=_atomic(min)),
    **NUMBA,
    ffs=lambda word: (int(word) & -int(word)).bit_length(),
    grid=_grid,
)
MODULES: dict[str, Any] = {
    "numpy": np,
    "math": math,
    "numba": SimpleNamespace(cuda=CUDA),
    "redalg.kernels.cuda.intrinsics": intrinsics,
    "redalg.kernels.cuda.intrinsics.math": emulated_math,
    "redalg.kernels.cuda.intrinsics.mma": mma,
    "redalg.kernels.cuda.intrinsics.mma_types": mma,
    "redalg.kernels.cuda.intrinsics.wgmma": wgmma,
}


def _imported(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
    if name in MODULES:
        return MODULES[name]
    if name.split(".")[0] in ("redalg", "numba", "cuda", "torch", "cupy", "jax"):
        raise RedalgError(
            f"import {name}", "emulation", "there is no emulation of it", f"import one of {', '.join(MODULES)} instead"
        )
    found: ModuleType = builtins.__import__(name, globals, locals, fromlist, level)
    return found
