"""Runs a printed matrix product on the CPU: every thread that does something, shared memory to the byte, barriers.

What the hardware does is modelled from PTX ISA 9.0: boxes arrive some time after they were asked for, in any order,
with the swizzle of 128 bytes; a product reads both operands by its descriptors, and what it reads may not be
overwritten before a wait names it; barriers count arrivals and bytes; blocks of a cluster share boxes and count at
each other's. Threads take turns at random. A kernel that waits for ever, or ends while another block still needs it,
is an error.

What prepares an operand in the same launch is not run here: its rows appear at any time (`gemm_parts`).
"""

from __future__ import annotations

import ast
import builtins
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
from gemm_parts import Parts

from redalg.kernels import twins_math
from redalg.kernels.planning import Planned

WAITS = {"count_wait", "barrier_wait", "cluster_sync", "syncwarp", "syncthreads"}
DTYPES = {
    "bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "float32": np.float32, "float64": np.float64,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2, "int32": np.int32,
}  # fmt: skip
ELSEWHERE = ("publish", "count_up", "turn_wait")  # called by what is not run here
BASE = 1024  # where shared memory begins
Thread = Iterator[Callable[[], bool]]


@dataclass
class Barrier:
    count: int
    pending: int = 0
    bytes: int = 0
    phase: int = 0

    def check(self) -> None:
        assert self.pending >= 0
        if self.pending == 0 and self.bytes == 0:
            self.phase, self.pending = self.phase ^ 1, self.count


@dataclass
class Block:
    number: int
    memory: np.ndarray
    barriers: dict[int, Barrier] = field(default_factory=dict)
    reading: dict[int, list[list[tuple[int, int]]]] = field(default_factory=dict)  # by warpgroup: groups of ranges
    slots: dict[tuple[int, int], list[Any]] = field(default_factory=dict)
    met: dict[Any, int] = field(default_factory=dict)
    alive: int = 0


class Simulated(Parts):
    """One launch. `arrays`: operands by name, scratch among them."""

    def __init__(self, planned: Planned, arrays: Mapping[str, Any], seed: int = 0) -> None:
        self.planned, self.module, self.random = planned, planned.module, random.Random(seed)
        self.operands = {o.name: o for o in (*planned.program.operands, *(o for o, _ in planned.scratch.values()))}
        self.arrays = {n: self.stored(n, x) for n, x in arrays.items()}
        Parts.__init__(self)
        outputs = [r for r in planned.program.results if f"{r.name}" in {p.name for p in self.module.params}]
        self.results = {r.name: np.full(planned.shapes[r.name], np.nan, DTYPES[r.dtype]) for r in outputs}
        self.cluster = planned.geometry.cluster
        self.blocks = [
            Block(b, np.full(self.module.shared + BASE, 0xFF, np.uint8)) for b in range(planned.geometry.blocks)
        ]
        self.pending: list[Callable[[], None]] = []
        self.products: dict[Any, np.ndarray] = {}
        self.calls: dict[tuple[int, int], int] = {}
        self.now = SimpleNamespace(block=self.blocks[0], t=0)

    def stored(self, name: str, x: Any) -> Any:
        dtype = self.operands[name].dtype
        return np.asarray(np.asarray(x, np.float64), DTYPES[dtype]) if np.ndim(x) else x

    # --- running -----------------------------------------------------------------------------------------------------

    def run(self) -> dict[str, np.ndarray]:
        tree = ast.parse(self.module.source)
        for f in tree.body:
            if isinstance(f, ast.FunctionDef):
                f.body = [_Yields().visit(s) for s in f.body]
        names: dict[str, Any] = {"__builtins__": {**vars(builtins), "__import__": self.imported}}
        exec(compile(ast.fix_missing_locations(tree), "<kernel>", "exec"), names)
        names["prepare"] = lambda *_: None
        args = [self.argument(p) for p in self.module.params]
        whole = len(self.blocks) // self.cluster
        for cluster in range(whole):
            members = self.blocks[cluster * self.cluster : (cluster + 1) * self.cluster]
            self.together(names[self.module.entry], args, members)
        while self.unfinished:
            self.unfinished.pop(0)()
        assert not self.planned.inside or not self.finished.any(), "a counter is left"
        return {n: np.asarray(x, np.float64) for n, x in self.results.items()}

    def together(self, entry: Any, args: list[Any], members: list[Block]) -> None:
        """The blocks of one cluster, to their ends."""
        which = [0, *range(128, self.planned.geometry.threads)]
        threads: list[tuple[Block, int, Thread]] = []
        for block in members:
            block.alive = len(which)
            threads += [(block, t, entry(*args)) for t in which]
        waiting: list[Callable[[], bool]] = [lambda: True] * len(threads)
        live, slow = list(range(len(threads))), self.random.choice([None, *members])
        while live:
            moved = False
            self.random.shuffle(live)
            while self.pending and self.random.random() < 0.5:
                self.pending.pop(self.random.randrange(len(self.pending)))()
                moved = True
            while self.unfinished and self.random.random() < 0.02:
                self.unfinished.pop(0)()
                moved = True
            behind = None if self.random.random() < 0.04 else slow
            for k in list(live):
                if threads[k][0] is behind or not waiting[k]():
                    continue
                moved, (self.now.block, self.now.t) = True, threads[k][:2]
                try:
                    waiting[k] = next(threads[k][2])
                except StopIteration:
                    live.remove(k)
                    threads[k][0].alive -= 1
            assert moved or self.pending or behind or self.unfinished, "every thread waits"
        assert not self.pending, "a box was on its way when its block ended"
        for block in members:
            assert all(len(s) == 0 for s in block.slots.values())

    def argument(self, p: Any) -> Any:
        if p.role == "maps":
            return 0
        if p.role == "counters":
            return self.finished
        if p.role in ("operand", "result"):
            found = self.arrays if p.role == "operand" else self.results
            return found[p.name].reshape(-1) if p.name in found else None
        if p.role == "number":
            return self.arrays[p.name]
        if p.role == "fixed":
            return self.planned.fixed[p.name]
        if p.role == "size":
            return self.planned.sizes[p.name]
        array = self.arrays[p.name] if p.role == "stride" else self.results[p.name]
        return array.strides[p.dim] // array.itemsize

    # --- what is imported --------------------------------------------------------------------------------------------

    def imported(self, name: str, *rest: Any) -> Any:
        if name == "numpy":
            return np
        if name == "numba":
            return SimpleNamespace(cuda=self.cuda())
        found = {n: getattr(self, n) for n in dir(self) if not n.startswith("_")} | dict(twins_math.TWINS)
        found |= dict.fromkeys(ELSEWHERE)
        wanted = rest[2] or ()
        return SimpleNamespace(**{n: found[n] if n in found else self.access(n) for n in wanted})

    def cuda(self) -> Any:
        now, grid = self.now, len(self.blocks)

        class Cuda:
            threadIdx = property(lambda self: SimpleNamespace(x=now.t))
            blockIdx = property(lambda self: SimpleNamespace(x=now.block.number))
            gridDim = SimpleNamespace(x=grid)
            shared = SimpleNamespace(array=lambda *_: None)
            local = SimpleNamespace(array=lambda n, dtype: np.full(n, np.nan, dtype))

        made = Cuda()
        made.jit = lambda f=None, **_: f or (lambda g: g)  # type: ignore[attr-defined]
        made.syncthreads = lambda: self._meet("block", len(self.now.block.met) * 0 + self.now.block.alive)  # type: ignore[attr-defined]
        return made

    def access(self, name: str) -> Callable[..., Any]:
        """A load or store, one element or several."""
        if name.startswith("shfl"):
            return lambda *_: None  # in what is not run here
        way, kind, width = re.fullmatch(r"(load|store)_(\w+?)(?:x(\d))?", name).groups()  # type: ignore[union-attr]

        def load(array: Any, index: int) -> Any:
            assert 0 <= index < array.size
            return np.float32(array[index])

        def store(array: Any, index: int, value: Any) -> None:
            values = value if width else (value,)
            assert 0 <= index and index + len(values) <= array.size and index % len(values) == 0
            assert np.isnan(np.asarray(array[index : index + len(values)], np.float64)).all(), "written twice"
            array[index : index + len(values)] = np.asarray(values, DTYPES[kind])

        return load if way == "load" else store

    # --- plain functions ---------------------------------------------------------------------------------------------

    def uniform(self, x: int) -> int:
        return x

    opaque = uniform

    def quotient(self, a: int, b: int) -> int:
        assert 0 <= a < 2**31 and 0 < b < 2**31
        return a // b

    def shared_base(self, room: Any) -> int:
        return BASE

    def descriptor(self, address: int, leading: int) -> tuple[int, int]:
        assert address % 1024 == 0
        return address, leading

    def registers(self, *_: Any) -> Callable[[], None]:
        return lambda: None

    def pack(self, dtype: str, a: Any, b: Any) -> int:
        x, y = np.asarray([a, b], DTYPES[dtype]).view(np.uint16)
        return int(x) | int(y) << 16

    def pack_bfloat16(self, a: Any, b: Any) -> int:
        return self.pack("bfloat16", a, b)

    def pack_float16(self, a: Any, b: Any) -> int:
        return self.pack("float16", a, b)

    # --- waiting -----------------------------------------------------------------------------------------------------

    def _meet(self, key: Any, count: int, blocks: tuple[Block, ...] = ()) -> Thread:
        place = (blocks or (self.now.block,))[0].met
        place[key] = place.get(key, 0) + 1
        turn = (place[key] - 1) // count + 1
        yield lambda: place[key] >= turn * count

    def syncwarp(self) -> Thread:
        return self._meet(("warp", self.now.t >> 5), 32)

    def cluster_sync(self) -> Thread:
        first = self.now.block.number // self.cluster * self.cluster
        members = tuple(self.blocks[first : first + self.cluster])
        assert all(b.alive for b in members)
        return self._meet("cluster", (self.planned.geometry.threads - 127) * self.cluster, members)

    def barrier_wait(self, address: int, parity: int) -> Thread:
        barrier = self.now.block.barriers[address]
        yield lambda: barrier.phase != parity

    # --- barriers ----------------------------------------------------------------------------------------------------

    def barrier_init(self, address: int, count: int) -> None:
        assert address % 8 == 0 and address not in self.now.block.barriers
        self.now.block.barriers[address] = Barrier(count, count)

    def barrier_ready(self) -> None:
        return

    def barrier_expect(self, address: int, size: int) -> None:
        barrier = self.now.block.barriers[address]
        barrier.bytes += size
        barrier.pending -= 1
        barrier.check()

    def barrier_arrive(self, address: int, go: Any) -> None:
        if go:
            self._arrived(self.now.block, address)

    def arrive_pair(self, address: int, go: Any) -> None:
        first = self.now.block.number & ~1
        for block in self.blocks[first : first + 2] if go else ():
            self._arrived(block, address)

    def _arrived(self, block: Block, address: int) -> None:
        assert block.alive, "the other block has ended"
        block.barriers[address].pending -= 1
        block.barriers[address].check()

    # --- copies ------------------------------------------------------------------------------------------------------

    def tensor_load(self, dimensions: int, pair: bool = False) -> Callable[..., None]:
        def load(address: int, maps: int, barrier: int, *at: int) -> None:
            assert len(at) == dimensions
            box = self._box(maps // 128, at)
            first = self.now.block.number & ~1
            for block in self.blocks[first : first + 2] if pair else [self.now.block]:
                self.pending.append(lambda block=block: self._arrives(block, address, barrier, box))

        return load

    def _box(self, number: int, at: tuple[int, ...]) -> np.ndarray:
        m = self.planned.maps[number]
        operand, array = self.operands[m.operand], self.arrays[m.operand]
        whole = np.transpose(array, [operand.axes.index(a) for a in reversed(m.axes)])
        for place in reversed(at[2:]):
            whole = whole[place]
        wide = 128 // array.itemsize
        found = np.zeros((m.rows, wide), array.dtype)
        assert at[0] >= 0 and at[1] >= 0
        part = whole[at[1] : at[1] + m.rows, at[0] : at[0] + wide]
        found[: part.shape[0], : part.shape[1]] = part
        return found.view(np.uint8)

    def _arrives(self, block: Block, address: int, barrier: int, box: np.ndarray) -> None:
        assert block.alive, "the block has ended"
        low, high = address, address + box.size
        for groups in block.reading.values():
            for group in groups:
                assert all(high <= a or b <= low for a, b in group), "a product still reads what is overwritten"
        places = address + np.arange(box.size)
        block.memory[places ^ ((places >> 7 & 7) << 4)] = box.reshape(-1)
        block.barriers[barrier].bytes -= box.size
        block.barriers[barrier].check()

    # --- products ----------------------------------------------------------------------------------------------------

    def tile_product(
        self, columns: int, terms: int, dtype: str, a: str = "registers", rows: int = 64, b_rows: int = 64,
        fresh: bool = True, transposed: bool = False,
    ) -> Callable[..., None]:  # fmt: skip
        kinds = [np.dtype(DTYPES[d]) for d in (dtype.split("/") * 2)[:2]]
        assert a == "shared" and terms == 64
        width = 128 // kinds[0].itemsize

        def matrix(descriptor: tuple[int, int], count: int, kind: Any, across: bool) -> tuple[np.ndarray, Any]:
            """count × width elements, and the range of bytes they lie in."""
            start, leading = descriptor
            r, k = np.meshgrid(np.arange(count), np.arange(width), indexing="ij")
            if across:  # rows of the matrix lie side by side
                at = start + r // 64 * leading + k // 8 * 1024 + k % 8 * 128 + r % 64 * kind.itemsize
            else:
                at = start + r // 8 * 1024 + r % 8 * 128 + k * kind.itemsize
            each = at[..., None] + np.arange(kind.itemsize)
            found = self.now.block.memory[each ^ ((each >> 7 & 7) << 4)].view(kind)[..., 0]
            return np.asarray(found, np.float32), (int(at.min()), int(at.max()) + kind.itemsize)

        def product(tile: np.ndarray, left: Any, right: Any) -> None:
            t, block = self.now.t, self.now.block
            team, who = t >> 7, (block.number, t)
            call = self.calls[who] = self.calls.get(who, 0) + 1
            if (block.number, team, call) not in self.products:
                x, first = matrix(left, 64, kinds[0], False)
                y, second = matrix(right, columns, kinds[1], transposed)
                self.products[block.number, team, call] = x @ y.T
                block.reading.setdefault(team, []).append([first, second])
            whole = self.products[block.number, team, call]
            e, lane = np.arange(columns // 2), t & 31
            part = whole[16 * (t >> 5 & 3) + lane // 4 + 8 * (e // 2 % 2), 8 * (e // 4) + 2 * (lane % 4) + e % 2]
            tile[:] = part if fresh else tile + part

        return product

    def tile_wait(self, groups: int, count: int) -> Callable[..., None]:
        def wait(tile: np.ndarray) -> None:
            assert len(tile) == count
            if self.now.t & 127 == 0:
                reading = self.now.block.reading.get(self.now.t >> 7, [])
                del reading[: len(reading) - groups]

        return wait

    # --- results -----------------------------------------------------------------------------------------------------

    def store_matrices(self, address: int, *words: int) -> None:
        block, who = self.now.block, (self.now.block.number, -self.now.t)
        call = self.calls[who] = self.calls.get(who, 0) + 1
        slots = block.slots.setdefault((self.now.t >> 5, call), [])
        slots.append((self.now.t & 31, address, words))
        if len(slots) < 32:
            return
        rows = {lane: at for lane, at, _ in slots}
        for lane, _, held in slots:
            for number, word in enumerate(held):
                at = rows[8 * number + lane // 4] + 4 * (lane % 4)
                block.memory[at : at + 4] = np.asarray([word], np.uint32).view(np.uint8)
        slots.clear()

    def copy_vector(self, array: np.ndarray, index: int, address: int) -> None:
        values = self.now.block.memory[address : address + 16].view(array.dtype)
        assert address % 16 == 0 and index % len(values) == 0 and index + len(values) <= array.size
        assert np.isnan(np.asarray(array[index : index + len(values)], np.float64)).all(), "written twice"
        array[index : index + len(values)] = values


class _Yields(ast.NodeTransformer):
    """Calls that wait for other threads give way to them."""

    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        return ast.YieldFrom(node) if name in WAITS else node
