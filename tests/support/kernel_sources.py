"""Small kernels that use the intrinsics: run by emulation everywhere, and on a GPU, with the same results.

Each is a source, its arguments (name, dtype, array or length of a result), blocks, threads and blocks of a cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from redalg.kernels.ir.program import STORAGE, Module, Param

CELLS = {d: f"uint{8 * s}" if d in ("bfloat16", "float16") or "float8" in d else d for d, s in STORAGE.items()}
CELLS["bool"] = "uint8"
DTYPE = {
    "f32": "float32",
    "f64": "float64",
    "i32": "int32",
    "i64": "int64",
    "u32": "uint32",
    "u64": "uint64",
    "b1": "bool",
}
NUMPY = {k: "bool_" if k == "b1" else v for k, v in DTYPE.items()}


@dataclass(frozen=True)
class Kernel:
    name: str
    source: str
    inputs: tuple[tuple[str, str, Any], ...]  # name, dtype (a key of STORAGE), array of cells
    outputs: tuple[tuple[str, str, int], ...]
    blocks: int = 1
    threads: int = 32
    cluster: int = 1

    def module(self) -> Module:
        params = [Param("operand", n, d) for n, d, _ in self.inputs] + [
            Param("result", n, d) for n, d, _ in self.outputs
        ]
        return Module(self.source, "kernel", tuple(params))

    def arrays(self) -> tuple[list[Any], list[Any]]:
        """Fresh arguments: inputs, and outputs of zeros."""
        return [x.copy() for _, _, x in self.inputs], [np.zeros(n, CELLS[d]) for _, d, n in self.outputs]


def kernel(name: str, body: str, inputs: Any, outputs: Any, extra: str = "", **shape: int) -> Kernel:
    """A kernel from the lines of its body; what it calls is imported."""
    import re

    from redalg.kernels.cuda.intrinsics import names
    from redalg.kernels.cuda.intrinsics.math import names as math_names

    called = set(re.findall(r"\b(\w+)\(", body + extra))
    lines = ["import numpy as np", "from numba import cuda", ""]
    for module, known in (("cuda.intrinsics", set(names())), ("cuda.intrinsics.math", set(math_names()))):
        if found := sorted(called & known):
            lines.append(f"from redalg.kernels.{module} import {', '.join(found)}")
    lines += ["", *extra.splitlines(), "@cuda.jit"]
    lines.append(f"def kernel({', '.join(n for n, _, _ in (*inputs, *outputs))}):")
    text = "\n".join([*lines, *(f"    {line}" for line in body.strip("\n").splitlines())]) + "\n"
    return Kernel(name, text, tuple(inputs), tuple(outputs), **shape)


def values_of(kind: str, count: int) -> Any:
    rng = np.random.default_rng(7)
    dtype = np.dtype(NUMPY[kind])
    if dtype.kind == "f":
        return rng.normal(size=count).astype(dtype)
    return (
        rng.integers(0, 256, count * dtype.itemsize, np.uint8).view(dtype)
        if dtype.kind != "b"
        else rng.random(count) < 0.5
    )


def shuffles(kind: str) -> Kernel:
    """Every mode, by several amounts, over the warp and within groups."""
    dtype, lines, count = DTYPE[kind], ["t = cuda.threadIdx.x", f"v = {_as(kind)}load_{DTYPE[kind]}(x, t))"], 0
    for mode in ("xor", "down", "up", "idx"):
        for by in (0, 1, 3, 8, 17, 31):
            lines.append(f"store_{dtype}(y, {64 * count} + t, {_back(kind)}shfl_{mode}_{kind}(v, {by})))")
            count += 1
            for width in (4, 8, 16, 32):
                if by < width:
                    call = f"shfl_{mode}_some_{kind}(v, {by}, {width})"
                    lines.append(f"store_{dtype}(y, {64 * count} + t, {_back(kind)}{call}))")
                    count += 1
    cells = values_of(kind, 64)
    cells = cells.astype(np.uint8) if kind == "b1" else cells
    return kernel(f"shfl_{kind}", "\n".join(lines), [("x", dtype, cells)], [("y", dtype, 64 * count)], threads=64)


def _as(kind: str) -> str:
    """From what a load gives to the kind of a shuffle."""
    return f"np.{NUMPY[kind]}(" if kind in ("i32", "u32", "u64") else "("


def _back(kind: str) -> str:
    return "np.int64(" if kind in ("i32", "u32", "u64") else "("


APART = kernel(  # groups of 8 lanes that leave their loops at different times
    "groups_apart",
    """
t = cuda.threadIdx.x
s = load_float32(x, t)
turns = t // 8 + 1
while turns > 0:
    s = s + shfl_xor_some_f32(s, 1, 8) * np.float32(0.5)
    turns -= 1
store_float32(y, t, s)
store_uint32(m, t, group_mask(8))
""",
    [("x", "float32", values_of("f32", 64))],
    [("y", "float32", 64), ("m", "uint32", 64)],
    threads=64,
)

WHOLE = kernel(
    "whole",
    """
t = cuda.threadIdx.x
n = load_int64(x, t)
store_int64(y, t, div_u32(np.int32(n & 0x7FFFFFFF), 27))
store_int64(y, 64 + t, rem_u32(np.int32(n & 0x7FFFFFFF), 27))
store_int64(y, 128 + t, div_u64(n, 3584))
store_int64(y, 192 + t, rem_u32(np.int32(t), 32))
""",
    [("x", "int64", np.array([2**k - (k % 3) for k in range(2, 63)] + [0, 2**31 - 1, 2**63 - 1], np.int64))],
    [("y", "int64", 256)],
    threads=64,
)
VOTES = kernel(
    "votes",
    """
t = cuda.threadIdx.x
v = np.uint32(load_uint32(x, t))
w = np.int32(load_int32(z, t))
store_uint32(y, t, np.int64(ballot(t % 3 == 0)))
store_uint32(y, 64 + t, np.int64(ballot_some(t % 3 == 0, 8)))
store_uint32(y, 128 + t, np.int64(redux_max_u32(v)))
store_uint32(y, 192 + t, np.int64(redux_min_u32(v)))
store_uint32(y, 256 + t, np.int64(redux_max_i32(w)))
store_uint32(y, 320 + t, np.int64(redux_min_i32(w)))
store_uint32(y, 384 + t, np.int64(lane_id()))
""",
    [("x", "uint32", values_of("u32", 64)), ("z", "int32", values_of("i32", 64))],
    [("y", "uint32", 448)],
    threads=64,
)


def cluster(kind: str) -> Kernel:
    """Every block leaves values with its neighbours and takes some from them."""
    dtype = DTYPE[kind]
    body = f"""
t = cuda.threadIdx.x
rank = cluster_rank()
size = cluster_size()
v = {_as(kind)}load_{dtype}(x, cuda.blockIdx.x * 32 + t))
mine = cuda.shared.array(32, np.{NUMPY[kind]})
given = cuda.shared.array(32, np.{NUMPY[kind]})
mine[t] = v
cluster_sync()
dsm_store_{kind}(given, 31 - t, (rank + 1) % size, v)
cluster_sync()
store_{dtype}(y, cuda.blockIdx.x * 32 + t, {_back(kind)}dsm_load_{kind}(mine, t, (rank + size - 1) % size)))
store_{dtype}(z, cuda.blockIdx.x * 32 + t, {_back(kind)}given[t]))
cluster_sync()
"""
    cells = values_of(kind, 256)
    cells = cells.astype(np.uint8) if kind == "b1" else cells
    outputs = [("y", dtype, 256), ("z", dtype, 256)]
    return kernel(f"dsm_{kind}", body, [("x", dtype, cells)], outputs, blocks=8, threads=32, cluster=4)


def sent(kind: str) -> Kernel:
    """Every block sends values to its neighbour twice, and waits for what comes with their bytes alone."""
    dtype, size = DTYPE[kind], np.dtype(NUMPY[kind]).itemsize
    body = f"""
t = cuda.threadIdx.x
other = (cluster_rank() + 1) % cluster_size()
v = load_{dtype}(x, cuda.blockIdx.x * 32 + t)
given = cuda.shared.array(32, np.{NUMPY[kind]})
again = cuda.shared.array(32, np.{NUMPY[kind]})
bars = cuda.shared.array(2, np.int64)
if t == 0:
    for e in range(2):
        tx_init(bars, e)
cluster_arrive()
cluster_wait()
if t == 0:
    tx_expect(bars, 0, {32 * size})
dsm_send_{kind}(given, 31 - t, other, v, bars, 0)
tx_wait(bars, 0)
store_{dtype}(y, cuda.blockIdx.x * 32 + t, given[t])
if t == 0:
    tx_expect(bars, 1, {32 * size})
dsm_send_{kind}(again, t, other, given[t], bars, 1)
tx_wait(bars, 1)
store_{dtype}(z, cuda.blockIdx.x * 32 + t, again[t])
"""
    outputs = [("y", dtype, 256), ("z", dtype, 256)]
    return kernel(f"sent_{kind}", body, [("x", dtype, values_of(kind, 256))], outputs, blocks=8, threads=32, cluster=4)


LAST = kernel(  # the block that comes last adds what all have left
    "last_block",
    """
t = cuda.threadIdx.x
s = load_stream_float32(x, cuda.blockIdx.x * 32 + t)
for k in range(5):
    s += shfl_xor_f32(s, 1 << k)
if t == 0:
    store_release_float32(parts, cuda.blockIdx.x, s)
cuda.syncthreads()
arrived = cuda.shared.array(1, np.int64)
if t == 0:
    arrived[0] = atomic_inc_acq_rel(counter, 0)
cuda.syncthreads()
if arrived[0] != cuda.gridDim.x - 1:
    return
total = np.float32(0)
for k in range(cuda.gridDim.x):
    total += load_relaxed_float32(parts, k) if k % 2 else load_acquire_float32(parts, k)
if t == 0:
    store_float32(y, 0, total)
""",
    [("x", "float32", np.arange(64 * 32, dtype=np.float32) % 17)],
    [("parts", "float32", 64), ("counter", "uint32", 1), ("y", "float32", 1)],
    blocks=64,
)

_SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 3.4e38], np.float32)
KEYS = kernel(
    "keys",
    """
t = cuda.threadIdx.x
key = key_of(load_float32(x, t), 2 * t)
store_uint64(y, t, np.int64(key))
store_float32(v, t, key_value(key))
store_int64(p, t, key_place(key))
key = max(key, shfl_xor_u64(key, 1))
store_uint64(y, 64 + t, np.int64(key))
store_float32(v, 64 + t, key_value(np.uint64(0)))
store_int64(p, 64 + t, key_place(np.uint64(0)))
""",
    [("x", "float32", np.concatenate([_SPECIAL, values_of("f32", 56)]))],
    [("y", "uint64", 128), ("v", "float32", 128), ("p", "int64", 128)],
    threads=64,
)


def copies(dtype: str) -> Kernel:
    """Every width and way of one dtype: loaded, widened into a wide array, narrowed again."""
    wide = "float32" if "float" in dtype and dtype != "float64" else "float64" if dtype == "float64" else "int64"
    per, count, lines = 64, 0, ["t = cuda.threadIdx.x"]
    shared = {"bool": "uint8"}.get(dtype, CELLS[dtype])
    lines.append(f"held = cuda.shared.array({per * 32}, np.{shared}, alignment=16)")
    for width in (w for w in (1, 2, 4, 8, 16) if w * STORAGE[dtype] <= 32):
        end = f"{dtype}x{width}" if width > 1 else dtype
        for way in ("", "stream_", "shared_"):
            at = f"{width} * t"
            lines.append(f"v = load_{'' if way == 'shared_' else way}{end}(x, {at})")
            if way == "shared_":
                lines += [
                    f"store_shared_{end}(held, {at}, v)",
                    "cuda.syncthreads()",
                    f"v = load_shared_{end}(held, {at})",
                ]
            lines.append(f"store_{'' if way == 'shared_' else way}{end}(y, {per * 32 * count} + {at}, v)")
            for k in range(width if way != "shared_" else 0):
                value = f"v[{k}]" if width > 1 else "v"
                value = f"np.int64({value})" if dtype == "bool" else value
                lines.append(f"store_{wide}(w, {per * 32 * count} + {at} + {k}, {value})")
            lines.append("cuda.syncthreads()")
            count += 1
    rng = np.random.default_rng(3)
    cells = rng.integers(0, 256, per * 32 * STORAGE[dtype], np.uint8).view(CELLS[dtype])
    if dtype in ("float32", "float64"):
        cells = np.where(np.isnan(cells), 0, cells).astype(dtype)
    if dtype == "bool":
        cells = (cells > 127).astype(np.uint8)
    total = per * 32 * count
    return kernel(
        f"copy_{dtype}", "\n".join(lines), [("x", dtype, cells)], [("y", dtype, total), ("w", wide, total)], threads=per
    )


def all_kernels() -> list[Kernel]:
    kinds = list(DTYPE)
    return [
        *map(shuffles, kinds),
        APART,
        VOTES,
        WHOLE,
        *map(cluster, kinds),
        *(sent(k) for k in kinds if k != "b1"),
        LAST,
        KEYS,
        *map(copies, STORAGE),
    ]
