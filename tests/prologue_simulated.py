"""Runs what prepares an operand in the product's own launch on the CPU, thread by thread (`redalg.kernels.simulate`).

The printed function is run by blocks of one warpgroup, each of which stands for a warpgroup of the product's grid.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from redalg.kernels.cuda_imports import imports
from redalg.kernels.ir import Param
from redalg.kernels.planning import Planned
from redalg.kernels.simulate import simulate
from redalg.kernels.sweeping import names_read
from redalg.kernels.tensor_gemm_prologue import PARTS
from redalg.kernels.twins_memory import CELL

HEAD = """import numpy as np
from numba import cuda

{imports}

{constants}


def quotient(a, b):
    return a // b


{functions}

@cuda.jit
def alone({names}):
    prepare(0, {names})
"""


def source_of(planned: Planned) -> tuple[str, list[str]]:
    """A kernel that does nothing but prepare, by one warpgroup a block; the names of what it hands on."""
    text, teams = planned.module.source, planned.geometry.threads // 128
    first = min(m.start() for m in re.finditer(r"^@cuda\.jit\(device=True.*$", text, re.MULTILINE))
    body = text[first : text.index("\n@cuda.jit\n")]
    for old, new in (
        (", forceinline=True", ""), ("turn_wait(1 + team, 128)", "cuda.syncthreads()"), ("publish()", "fence_gpu()"),
        ("count_up(finished, part)", "atomic_inc_acq_rel(finished, part)"),
        (f"cuda.gridDim.x * {teams}", "cuda.gridDim.x"), (f"cuda.blockIdx.x * {teams} + team", "cuda.blockIdx.x"),
    ):  # fmt: skip
        assert old in body
        body = body.replace(old, new)
    body = re.sub(rf"array\(\({teams}, (\d+)\), (np\.\w+)\)\[team\]", r"array(\1, \2)", body)
    constants = "\n".join(re.findall(r"^(?:[A-Z_]+|[fiu]\d+(?:, \w+)*) = .*$", text[:first], re.MULTILINE))
    call = re.search(r"    prepare\(\s*team, (.*?)\)\n", text, re.DOTALL)
    assert call is not None
    names = re.findall(r"\w+", call.group(1))
    found = "\n".join(imports(names_read(body)))
    return HEAD.format(imports=found, constants=constants, functions=body, names=", ".join(names)), names


def arguments(planned: Planned) -> dict[str, Param]:
    """The arguments of the product's kernel by the names they have there."""
    entry = re.search(rf"def {planned.module.entry}\(\s*(.*?)\s*\):", planned.module.source, re.DOTALL)
    assert entry is not None
    names = re.findall(r"\w+", entry.group(1))
    return dict(zip(names, planned.module.params, strict=True))


def memory(x: Any) -> Any:
    """An array as it lies in memory: one whose last two axes are exchanged, as it was before."""
    return np.swapaxes(x, -1, -2) if isinstance(x, np.ndarray) and not x.flags.c_contiguous else x


def prepared(planned: Planned, arrays: Mapping[str, Any], parts: int = PARTS, seed: int = 0) -> dict[str, Any]:
    """What is in the results' memory after the first parts, as cells; and the counters. `arrays`: cells or numbers."""
    source, names = source_of(planned)
    source = source.replace("for part in range(PARTS)", f"for part in range({parts})")
    workers = planned.geometry.blocks * planned.geometry.threads // 128
    made = {r.name: r for r in planned.inside[0].program.results}
    found: dict[str, Any] = {"finished": np.zeros(PARTS + 1, np.uint32)}
    params, given = arguments(planned), []
    for name in names:
        p = params[name]
        if p.role == "counters":
            given.append(found["finished"])
        elif p.name in made and p.role in ("operand", "result"):
            operand, view = planned.scratch.get(p.name, (None, None))
            shape = planned.shapes[p.name] if view is None else (view.shape[0] * view.strides[0],)
            found[p.name] = np.full(shape, 0xFF, np.uint8).repeat(CELL[p.dtype].itemsize).view(CELL[p.dtype])
            given.append(found[p.name])
        elif p.role in ("operand", "number"):
            given.append(memory(arrays[p.name]))
        elif p.role == "stride":
            given.append(arrays[p.name].strides[p.dim] // arrays[p.name].itemsize)
        else:
            given.append(planned.fixed[p.name] if p.role == "fixed" else planned.sizes[p.name])
    simulate(source, "alone", workers, 128, given, seed=seed)
    return found
