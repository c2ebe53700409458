"""What printed CUDA kernels import: every function they call, found by the table of emulations, and nothing else."""

from __future__ import annotations

import ast
from collections.abc import Collection
from importlib import import_module

import numpy as np
import pytest

import redalg as ra
from redalg.kernels.code.imports import CPU, CUDA, MMA, Modules, imports
from redalg.kernels.cpu import memory as cpu_memory
from redalg.kernels.cpu.math import functions as cpu_math
from redalg.kernels.emulate import intrinsics
from redalg.kernels.emulate import math as emulated_math
from redalg.source.names import local, operand_name
from redalg.source.render import render
from tests.support.kernel_cases import program
from tests.support.kernel_sources import Kernel, all_kernels
from tests.support.printed import modules
from tests.support.simulated import run

INTRINSICS = sorted(set(intrinsics.EMULATED) - {"syncthreads"})  # which is called as `cuda.syncthreads`
FUNCTIONS = [("cuda.intrinsics", name) for name in INTRINSICS] + [
    ("cuda.intrinsics.math", name) for name in sorted(emulated_math.EMULATED)
]


def imported(source: str) -> set[tuple[str, str]]:
    nodes = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.ImportFrom) and n.module]
    return {(n.module.removeprefix("redalg.kernels."), a.name) for n in nodes if n.module != "numba" for a in n.names}  # type: ignore[union-attr]


def said(names: Collection[str], modules: Modules = CUDA) -> list[str]:
    """What is imported from modules of kernels."""
    return [line for line in render(imports(names, modules), 10**6).splitlines() if "redalg" in line]


def test_every_function_is_found_in_the_module_that_has_it() -> None:
    for module, name in FUNCTIONS:
        assert said({name, "total"}) == [f"from redalg.kernels.{module} import {name}"]
    for module in ("cuda.intrinsics", "cuda.intrinsics.math"):
        assert set(import_module(f"redalg.kernels.{module}").names()) == {n for m, n in FUNCTIONS if m == module}


@pytest.mark.parametrize("module", sorted(MMA))
def test_functions_of_tiles_are_those_that_are_emulated(module: str) -> None:
    """Headers are printed from the emulations' names: a device needs every one of them, and all it has is emulated."""
    own = import_module(f"redalg.kernels.{module}")
    assert set(own.MAKERS) <= MMA[module]
    assert [n for n in sorted(MMA[module]) if not callable(getattr(own, n, None))] == []


def test_functions_of_cpu_kernels_are_found_too() -> None:
    for module, functions in (("cpu.memory", vars(cpu_memory)), ("cpu.math.functions", cpu_math.FUNCTIONS)):
        names = {n for n in functions if n in CPU[module]}
        assert said(names, CPU) == [f"from redalg.kernels.{module} import {', '.join(sorted(names))}"]
        own = (*emulated_math.CHEAP, "div", "quotient", "reciprocal_rest", "rsqrt")
        gpu = {n for n in CPU["cpu.math.functions"] if n.rpartition("_")[0] in own}
        assert CPU[module] - names == (gpu if module == "cpu.math.functions" else set())


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "float8_e4m3fn"])
@pytest.mark.parametrize("name", ["softmax", "attention", "cross_entropy", "layer_norm", "softmax_entropy"])
def test_what_kernels_import_is_there(name: str, dtype: str) -> None:
    for _, module in modules(program(name, dtype), 0):
        for home, function in imported(module.source):
            getattr(import_module(f"redalg.kernels.{home}"), function)


def test_what_no_module_has_is_not_imported() -> None:
    assert said({"x", "total", "load_float128", "combine", "f32", "max", "cuda", "syncthreads"}) == []


@pytest.mark.parametrize("kernel", all_kernels(), ids=lambda k: k.name)
def test_kernels_that_call_every_intrinsic_import_them(kernel: Kernel) -> None:
    tree = ast.parse(kernel.source)
    called = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    assert imported("\n".join(said(called))) == imported(kernel.source)


def test_arrays_and_values_are_never_called_like_a_function() -> None:
    for _, name in FUNCTIONS:
        assert operand_name(name) != name and local(name) != name


@pytest.mark.parametrize("name", ["lane_id", "key_of", "tx_wait", "exp_f32", "pointer_float32"])
def test_a_tensor_may_have_the_name_of_a_function(name: str) -> None:
    x = ra.tensors(f"{name}[i,j]")
    form = ra.derive_incremental(ra.Spec(y=ra.sum(ra.exp(x - ra.max(x, "j")), "j"), at=ra.argmax(x, "j")))
    values = np.random.default_rng(3).standard_normal((3, 50)).astype(np.float32)
    true = ra.reference(form.spec, **{name: values})
    for found in (run(form, {name: values})[0], form.compile("cpu")(**{name: values})):
        np.testing.assert_allclose(found["y"], true["y"], rtol=1e-5)
        np.testing.assert_array_equal(found["at"], true["at"])
