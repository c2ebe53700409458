"""What kernels of a producer's warpgroup and consumers share: who is who, rings of stages, boxes, tiles in turns.

A ring is stages of shared memory with two mbarriers each: one is full when all bytes of a stage have arrived, the other
one free when every consumer warp has read it. The producer waits for the free one, says how many bytes will come, and
asks the copy engine for boxes, which count at the full one; consumers wait for that, multiply, and arrive at the free
one. Whoever passes the last stage turns a phase: the producer's begins at 1, since a wait for the phase before a fresh
mbarrier's first one returns at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import NamedTuple

from redalg.kernels.launch.planned import Map
from redalg.kernels.tile.level.lowering import Lowering
from redalg.kernels.tile.level.program import For, Free, Load, Op
from redalg.kernels.tile.plan import shares
from redalg.source.builder import Builder
from redalg.source.names import axis_name


class Ring(NamedTuple):
    """A tile's barriers, as whoever is at one of its stages writes their addresses; ``step``: to the next stage.
    ``single``: there is one stage, which comes once for a tile of the result: who has waited for it turns the phase."""

    full: str
    free: str
    phase: str
    step: tuple[str, ...]
    single: bool = False

    @property
    def filled(self) -> list[str]:
        """Until the stage is full."""
        return self._wait(self.full)

    @property
    def freed(self) -> list[str]:
        """Until the stage is free: the producer's wait."""
        return self._wait(self.free)

    @property
    def given_back(self) -> list[str]:
        """The consumer warp has read the stage."""
        return [f"mbarrier_arrive({self.free}, leader)", *([] if self.single else self.step)]

    def expected(self, size: int) -> str:
        """So many bytes will come."""
        return f"mbarrier_expect_tx({self.full}, {size})"

    def _wait(self, place: str) -> list[str]:
        return [f"mbarrier_wait({place}, {self.phase})", *(self.step if self.single else [])]


def registers(consumers: int = 2, waiting: int = 0) -> dict[str, str]:
    """What gives registers of the producer's threads to the consumers'. `waiting`: those that each consumer leaves it
    for what it has to know to wait."""
    producer, consumer = shares(consumers, waiting)
    return {"setmaxnreg_dec": f"setmaxnreg({producer}, False)", "setmaxnreg_inc": f"setmaxnreg({consumer}, True)"}


def multiplied(columns: int, terms: int, dtype: str, left: str, more: Mapping[str, object]) -> str:
    """What makes a product of tiles, whose sums lie in the registers of a warpgroup; `left`: where its left operand
    is, "" for registers, unsaid."""
    words = (f', "{left}"' if left else "") + "".join(f", {name}={value}" for name, value in more.items())
    return f'tile_product({columns}, {terms}, "{dtype}"{words})'


def described(place: str, leading: int = 16) -> str:
    """A tile in shared memory as products read it; `leading`: bytes between its chunks, where it is transposed."""
    return f"descriptor({place}, {leading})"


def barriers(full: str, free: str, arrivals: str = "4 * CONSUMERS") -> list[str]:
    """A stage's two mbarriers as they are initialised."""
    return [f"mbarrier_init({full}, 1)", f"mbarrier_init({free}, {arrivals})"]


def map_at(number: int) -> str:
    """The address of a tensor map."""
    return f"maps + {128 * number}" if number else "maps"


def at(place: str, offset: int) -> str:
    return f"{place} + {offset}" if offset else place


def indices(m: Map) -> list[str]:
    """Where a box lies along the axes of the batch."""
    return [f"i_{axis_name(a)}" for a in m.axes[2:]]


class Warpgroups(Lowering):
    """Prints a kernel of a producer's warpgroup and consumers."""

    out: Builder

    @property
    def consumers(self) -> int:
        raise NotImplementedError

    def producer(self) -> None:
        raise NotImplementedError

    def consumer(self) -> None:
        raise NotImplementedError

    def roles(self) -> None:
        out = self.out
        with out.block("if warpgroup == 0:"):
            self.producer()
        with out.block("else:"):
            self.consumer()

    def began(self) -> None:
        self.out("t = cuda.threadIdx.x", "warpgroup = warp_uniform(t >> 7)", "smem = cuda.shared.array(0, np.uint8)")

    @contextmanager
    def initialised(self, said: str = "", cluster: bool = False) -> Iterator[None]:
        """Barriers, by one thread; then all of the block, or of the cluster, see them."""
        out = self.out
        if said:
            out.comment(said)
        with out.block("if t == 0:"):
            yield
            out("fence_mbarrier_init()")
        out("cluster_sync()" if cluster else "cuda.syncthreads()")

    def producer_head(self, said: str = "") -> None:
        """`said`: what it keeps full."""
        if self.consumers > 1:
            self.out("setmaxnreg_dec()")
        if said:
            waits = "it waits for consumers only, at empty mbarriers."
            self.out.comment(f"Producer: one thread keeps {said} full; {waits}")

    def consumer_head(self, said: str = "") -> None:
        """`said`: what warpgroups are numbered by."""
        out = self.out
        if self.consumers > 1:
            out("setmaxnreg_inc()")
        if said:
            out.comment(f"Consumers: from here on {said}; lane 0 arrives for its warp.")
        out("warpgroup -= 1", "lane = t & 31", "warp = (t >> 5) & 3", "leader = lane == 0")

    @contextmanager
    def in_turns(self, tiles: str, cluster: int = 1) -> Iterator[None]:
        """A loop over the tiles of a block, or of a cluster of blocks."""
        out, shift = self.out, cluster.bit_length() - 1
        first, step = (f"{x} >> {shift}" if shift else x for x in ("cuda.blockIdx.x", "cuda.gridDim.x"))
        out(f"tile = opaque({first})")
        with out.block(f"while tile < {tiles}:"):
            yield
            out(f"tile = opaque(tile + {f'({step})' if shift else step})")

    def by_chunks(self, op: For, count: str | int) -> None:
        """Chunks of a product, which a stage has one of: the first one alone, or the others of so many. `before`: the
        stage that products which are still under way read."""
        with nullcontext() if op.blocks == "first" else self.out.block(f"for chunk in range(1, {count}):"):
            self.consume(op.body)
            self.out("before = stage", *self.step())

    # --- the producer's operations -----------------------------------------------------------------------------------

    def produce(self, body: Sequence[Op]) -> None:
        """What the producer does, in its order; a tile comes once, by all of its boxes."""
        last: Op | None = None
        for op in body:
            if isinstance(op, For):
                self.fill(op)
            elif isinstance(op, Free):
                self.free(op)
            elif isinstance(op, Load) and not (isinstance(last, Load) and last.tile == op.tile):
                self.load(op)
            last = op

    def fill(self, op: For) -> None:
        raise NotImplementedError

    def free(self, op: Free) -> None:
        raise NotImplementedError

    def load(self, op: Load) -> None:
        raise NotImplementedError
