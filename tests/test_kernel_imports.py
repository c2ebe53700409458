"""What printed CUDA kernels import: every function they call, found by the table of twins, and nothing else."""

from __future__ import annotations

import ast
from importlib import import_module

import numpy as np
import pytest
from kernel_sources import Kernel, all_kernels
from simulated import run

import redalg as ra
from redalg.kernels import cpu_math, cpu_memory, twins, twins_math
from redalg.kernels.cuda_imports import CPU, imports
from redalg.naming import local, operand_name
from tests.kernel_cases import program
from tests.printed import modules

INTRINSICS = sorted(set(twins.TWINS) - {"syncthreads"})  # which is called as `cuda.syncthreads`
FUNCTIONS = [("intrinsics", name) for name in INTRINSICS] + [("gpu_math", name) for name in sorted(twins_math.TWINS)]


def imported(source: str) -> set[tuple[str, str]]:
    nodes = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.ImportFrom) and n.module]
    return {(n.module.rpartition(".")[2], a.name) for n in nodes if n.module != "numba" for a in n.names}  # type: ignore[union-attr]


def test_every_function_is_found_in_the_module_that_has_it() -> None:
    for module, name in FUNCTIONS:
        assert imports({name, "total"}) == [f"from redalg.kernels.{module} import {name}"]
    for module in ("intrinsics", "gpu_math"):
        assert set(import_module(f"redalg.kernels.{module}").names()) == {n for m, n in FUNCTIONS if m == module}


def test_functions_of_cpu_kernels_are_found_too() -> None:
    for module, functions in (("cpu_memory", vars(cpu_memory)), ("cpu_math", cpu_math.FUNCTIONS)):
        names = {n for n in functions if n in CPU[module]}
        assert imports(names, CPU) == [f"from redalg.kernels.{module} import {', '.join(sorted(names))}"]
        gpu = {n for n in CPU["cpu_math"] if n.rpartition("_")[0] in (*twins_math.CHEAP, "div", "rsqrt")}
        assert CPU[module] - names == (gpu if module == "cpu_math" else set())


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "float8_e4m3fn"])
@pytest.mark.parametrize("name", ["softmax", "attention", "cross_entropy", "layer_norm", "softmax_entropy"])
def test_what_kernels_import_is_there(name: str, dtype: str) -> None:
    for _, module in modules(program(name, dtype), 0):
        for home, function in imported(module.source):
            getattr(import_module(f"redalg.kernels.{home}"), function)


def test_what_no_module_has_is_not_imported() -> None:
    assert imports({"x", "total", "load_float128", "combine", "f32", "max", "cuda", "syncthreads"}) == []


@pytest.mark.parametrize("kernel", all_kernels(), ids=lambda k: k.name)
def test_kernels_that_call_every_intrinsic_import_them(kernel: Kernel) -> None:
    tree = ast.parse(kernel.source)
    called = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    assert imported("\n".join(imports(called))) == imported(kernel.source)


def test_arrays_and_values_are_never_called_like_a_function() -> None:
    for _, name in FUNCTIONS:
        assert operand_name(name) != name and local(name) != name


@pytest.mark.parametrize("name", ["lane_id", "key_of", "fence_gpu", "exp_f32", "pointer_float32"])
def test_a_tensor_may_have_the_name_of_a_function(name: str) -> None:
    x = ra.tensors(f"{name}[i,j]")
    form = ra.derive_incremental(ra.Spec(y=ra.sum(ra.exp(x - ra.max(x, "j")), "j"), at=ra.argmax(x, "j")))
    values = np.random.default_rng(3).standard_normal((3, 50)).astype(np.float32)
    true = ra.reference(form.spec, **{name: values})
    for found in (run(form, {name: values})[0], form.compile("cpu")(**{name: values})):
        np.testing.assert_allclose(found["y"], true["y"], rtol=1e-5)
        np.testing.assert_array_equal(found["at"], true["at"])
