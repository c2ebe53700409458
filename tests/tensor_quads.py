"""Runs a printed tensor-core kernel on the CPU for some quads of threads: the four that share two rows of a tile.

What tensor cores, the accelerator of copies and barriers do is stood in for by NumPy on whole arrays; everything the
kernel prints itself - which tiles and blocks, masks, folds, what moves with an anchor, results - runs as it is, in four
Python threads that meet where lanes exchange values. Every read and write is held to the array it is made in.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from redalg.kernels import twins_math
from redalg.kernels.emit_tensor import emit_merge, emit_tensor
from redalg.kernels.tensor_class import Class
from redalg.kernels.tensor_plan import Map, TensorPlan, fixed_of, maps_of
from redalg.numeric_cast import cast_array

LEFT = 0x3C003C00  # two numbers that are 1, in either type


def rounded(x: Any, dtype: str) -> Any:
    return x if dtype == "float32" else np.asarray(cast_array(np.asarray(x, np.float64), dtype), np.float32)


class Quad:
    """Four threads, or the 32 of a warp, and where they meet."""

    def __init__(self, size: int = 4) -> None:
        self.barrier = threading.Barrier(size, timeout=60)
        self.slots: list[Any] = [None] * size

    def exchanged(self, lane: int, value: Any) -> list[Any]:
        self.slots[lane] = value
        self.barrier.wait()
        found = list(self.slots)
        self.barrier.wait()
        return found


class Quads:
    """One kernel over arrays of float32, `{name: array}`; scalars by value. `blocks`: of the grid."""

    def __init__(
        self, made: Class, plan: TensorPlan, given: Mapping[str, Any], blocks: int = 1, round_weights: bool = False
    ) -> None:
        self.made, self.plan, self.given, self.blocks = made, plan, given, blocks
        self.round_weights = round_weights
        self.module = emit_tensor(made, plan)
        self.size = 32 if "bits[word]" in self.module.source else 4  # a whole warp votes on columns
        self.sizes: dict[str, int] = dict(made.program.lengths)
        for o in made.program.operands:
            self.sizes |= zip(o.axes, np.shape(given[o.name]), strict=True)
        self.fixed = fixed_of(made, plan, self.sizes)
        self.results = {
            r.name: np.full([self.sizes[a] for a in r.axes], np.nan, np.float32) for r in made.program.results
        }
        self.dtypes = {r.name: r.dtype for r in made.program.results}
        rows = int(np.prod([self.sizes[a] for a in made.program.rows]))
        self.pieces = {
            p.name: np.full(p.size * rows, np.nan, np.float32) for p in self.module.params if p.name.endswith("_pieces")
        }
        self.notes = np.full(4 * plan.teams * self.fixed["tiles"], -1)
        self.local = threading.local()
        self.problems: list[BaseException] = []

    # --- running -----------------------------------------------------------------------------------------------------

    def run(self, places: Iterable[tuple[int, int, int]]) -> dict[str, np.ndarray]:
        """Quads (team, warp, row within the warp's eight) of every block; rows of others stay NaN."""
        namespace: dict[str, Any] = {"__builtins__": {**vars(__import__("builtins")), "__import__": self.imported}}
        exec(compile(self.module.source, "<kernel>", "exec"), namespace)
        entry, args = namespace[self.module.entry], [self.argument(p) for p in self.module.params]
        for block in range(self.blocks):
            for team, warp, row in {(team, warp, row if self.size == 4 else 0) for team, warp, row in places}:
                quad = Quad(self.size)
                threads = [
                    threading.Thread(
                        target=self.one, args=(entry, args, block, 128 * (team + 1) + 32 * warp + 4 * row, k, quad)
                    )
                    for k in range(self.size)
                ]
                for t in threads:
                    t.start()
                for t in threads:
                    t.join()
                if self.problems:
                    raise next(
                        (p for p in self.problems if not isinstance(p, threading.BrokenBarrierError)), self.problems[0]
                    )
        if self.plan.pieces > 1:
            self.merge()
        return self.results

    def merge(self) -> None:
        """The kernel that merges pieces, a thread after the other."""
        module, me = emit_merge(self.made, self.plan), self.local
        namespace: dict[str, Any] = {"__builtins__": {**vars(__import__("builtins")), "__import__": self.imported}}
        exec(compile(module.source, "<merge>", "exec"), namespace)
        args = [self.argument(p) for p in module.params]
        me.block, me.tile = 0, None
        with np.errstate(all="ignore"):
            for me.t in range(int(np.prod([self.sizes[a] for a in self.made.program.rows])) * max(1, self.plan.lanes)):
                namespace[module.entry](*args)

    def one(self, entry: Callable[..., Any], args: list[Any], block: int, first: int, lane: int, quad: Quad) -> None:
        me = self.local
        me.t, me.block, me.quad, me.lane, me.tile, me.at, me.weighed = first + lane, block, quad, lane, None, 0, 0
        try:
            with np.errstate(all="ignore"):
                entry(*args)
        except BaseException as problem:
            self.problems.append(problem)
            quad.barrier.abort()

    def argument(self, p: Any) -> Any:
        if p.role == "number":
            return self.given[p.name]
        if p.role == "operand":
            return np.ascontiguousarray(self.given[p.name]).reshape(-1)
        if p.role == "result":
            return (p.name, self.results[p.name].reshape(-1))
        if p.role in ("stride", "stride_out"):
            array = self.given[p.name] if p.role == "stride" else self.results[p.name]
            return int(np.prod(np.shape(array)[p.dim + 1 :]))
        known = {
            "scratch": self.pieces.get(p.name, self.notes),
            "maps": 0,
            "size": self.sizes.get(p.name),
            "fixed": self.fixed.get(p.name),
        }
        return known[p.role]

    # --- what the source imports -------------------------------------------------------------------------------------

    def imported(self, name: str, *_: Any) -> Any:
        me = self.local
        if name == "numpy":
            return np
        if name == "numba":
            index = SimpleNamespace
            cuda = SimpleNamespace(
                jit=lambda f: f, local=SimpleNamespace(array=self.array), shared=SimpleNamespace(array=lambda *_: None),
                syncthreads=lambda: None, syncthreads_or=lambda x: 1, gridDim=index(x=self.blocks),
                blockDim=index(x=self.plan.threads), threadIdx=_Read(lambda: me.t), blockIdx=_Read(lambda: me.block),
            )  # fmt: skip
            return SimpleNamespace(cuda=cuda)
        if name == "redalg.kernels.gpu_math":
            return SimpleNamespace(**{n: _single(f) for n, f in twins_math.TWINS.items()})
        return _Named(self)

    def array(self, count: int, dtype: Any) -> Any:
        return np.full(count, np.nan, np.float32) if dtype is np.float32 else np.zeros(count, object)

    def named(self, name: str) -> Any:
        if name.startswith("load_") and name not in ("load_matrices",):
            return self.load
        if name.startswith("store_") and name != "store_matrices":
            return self.store
        if name.startswith("pack_"):
            kind = name.removeprefix("pack_") if self.round_weights else "float32"
            return lambda a, b: (rounded(a, kind), rounded(b, kind))
        found = getattr(self, f"do_{name}", None)
        return found if found is not None else lambda *a, **k: lambda *b: None if name in FACTORIES else None

    @staticmethod
    def load(array: np.ndarray, index: int) -> Any:
        assert 0 <= index < array.size, f"a read at {index} of {array.size}"
        return np.float32(array[index]) if array.dtype.kind == "f" else int(array[index])

    def store(self, array: Any, index: int, value: Any) -> None:
        if isinstance(array, np.ndarray):
            for k, v in enumerate(value if isinstance(value, tuple) else (value,)):
                array[index + k] = v
            return
        name, flat = array
        values = value if isinstance(value, tuple) else (value,)
        assert 0 <= index and index + len(values) <= flat.size and index % len(values) == 0, (index, flat.size)
        for k, v in enumerate(values):
            flat[index + k] = rounded(v, self.dtypes[name]) if self.round_weights else v

    do_uniform = do_opaque = staticmethod(lambda x: x)
    do_shared_base = do_descriptor = staticmethod(lambda *_: 0)
    do_quotient = staticmethod(lambda a, b: a // b)
    do_exp2_fast = staticmethod(lambda x: np.float32(np.exp2(np.float32(x))))
    do_fused = staticmethod(lambda a, b, c: np.float32(np.float64(a) * np.float64(b) + np.float64(c)))
    do_f32_i32 = staticmethod(lambda i: np.float32(i))

    def do_ballot(self, x: bool) -> int:
        return sum(bool(v) << k for k, v in enumerate(self.local.quad.exchanged(self.local.lane, x)))

    def do_shfl_xor_i32(self, x: Any, mask: int) -> Any:
        return self.do_shfl_xor_f32(x, mask)

    @staticmethod
    def do_has_bit(word: Any, k: int) -> bool:
        assert 0 <= k < 32
        return bool(int(word) >> k & 1)

    def do_shfl_xor_f32(self, x: Any, mask: int) -> Any:
        return self.local.quad.exchanged(self.local.lane, x)[self.local.lane ^ mask]

    @staticmethod
    def do_load_matrices(words: Any, at: int, place: int) -> None:
        words[at : at + 4] = LEFT

    # --- products ----------------------------------------------------------------------------------------------------

    def do_tile_product(self, *_: Any, fresh: bool = True, **__: Any) -> Callable[..., None]:
        if self.plan.long:
            return self.multiply if fresh else lambda *_: None  # the first chunk's product stands for all of them
        return self.multiply if fresh else self.weigh

    def matrix(self, tile: str, names: Mapping[str, Any]) -> np.ndarray:
        """What lies in a tile, at the batch of a thread: rows and the inner axes side by side."""
        return np.concatenate([self.brought(m, names) for m in maps_of(self.made, self.plan) if m.tile == tile], -1)

    def brought(self, m: Map, names: Mapping[str, Any]) -> np.ndarray:
        """A tensor that is brought as boxes: rows and the inner axis."""
        axes = next(o.axes for o in self.made.program.operands if o.name == m.operand)
        array = np.asarray(self.given[m.operand], np.float32)
        at = tuple(slice(None) if a in m.axes[:2] else int(names[f"i_{a}"]) for a in axes)
        found = array[at]
        return found if axes.index(m.axes[1]) < axes.index(m.axes[0]) else found.T

    @staticmethod
    def taken(matrix: np.ndarray, rows: Any) -> np.ndarray:
        """Rows of a matrix; those it does not have are 0."""
        inside = (rows >= 0) & (rows < len(matrix))
        return np.where(inside[:, None], matrix[np.where(inside, rows, 0)], 0)

    def multiply(self, scores: Any, left: Any, _: Any) -> None:
        names, me = sys._getframe(1).f_locals, self.local
        if me.tile != names["tile"]:
            assert me.tile is None or me.weighed is None or me.weighed == me.low - 1
            me.tile, me.at, me.low = names["tile"], names["last"] + 1, names["low"]
            me.weighed = names["last"] if self.made.values is not None else None
        me.at -= 1
        columns = self.plan.columns
        q = self.taken(self.matrix("left", names), np.array([names["row"], names["row"] + 8]))
        across = np.arange(columns // 4)
        k = self.taken(
            self.matrix("right", names), me.at * columns + 8 * (across >> 1) + 2 * (me.lane & 3) + (across & 1)
        )
        word = left[0] if self.plan.in_registers else LEFT
        q = q * {LEFT: 1, 0: 0, LEFT ^ 0x80008000: -1}[int(word)]
        found = np.asarray(q, np.float64) @ np.asarray(k, np.float64).T
        for r in range(2):
            scores[4 * (across >> 1) + 2 * r + (across & 1)] = found[r]

    def weigh(self, sums: Any, weights: Any, _: Any) -> None:
        names, me = sys._getframe(1).f_locals, self.local
        every = me.quad.exchanged(me.lane, list(weights))
        columns, lanes = self.plan.columns, self.plan.lanes
        full = np.zeros((2, columns))
        for lane, words in enumerate(every):
            for k, (a, b) in enumerate(words):
                full[k & 1, 8 * (k >> 1) + 2 * lane : 8 * (k >> 1) + 2 * lane + 2] = a, b
        assert me.weighed >= me.at
        values = self.taken(self.matrix("values", names), me.weighed * columns + np.arange(columns))
        me.weighed -= 1
        across = np.arange(lanes // 4)
        found = full @ np.asarray(values, np.float64)[:, 8 * (across >> 1) + 2 * me.lane + (across & 1)]
        for r in range(2):
            sums[4 * (across >> 1) + 2 * r + (across & 1)] += found[r].astype(np.float32)


FACTORIES = ("tile_wait", "registers", "tensor_load")


class _Read:
    def __init__(self, ask: Callable[[], int]) -> None:
        self.ask = ask

    @property
    def x(self) -> int:
        return self.ask()


class _Named:
    """A module in which every name is there."""

    def __init__(self, quads: Quads) -> None:
        self.quads = quads

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.quads.named(name)


def _single(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *a: np.float32(r) if isinstance(r := f(*a), float | np.floating) else r
