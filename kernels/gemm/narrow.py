"""Tiles for few rows, where a product takes as long as its weights take to arrive.

Of a left operand of fewer rows than the tensor cores multiply (64), a stage has only those that are there, a multiple
of 8: what is multiplied beyond them is whatever lies there, and nothing is written of it. (Filled by the tensor memory
accelerator with zeros, they took a third of the time of 16 rows: 139 us instead of 102, 16384 by 4096 and back, H100.)
Where that leaves room, a chunk has 256 or 512 bytes of every row of the right operand: memory gives 88, 92 and 95 % of
a copy's rate for 128, 256 and 512 bytes.

A tile has all rows, by up to four warpgroups, or a part of them, so that what is read is the right operand once, from
memory, and both again from the second-level cache, the left one for every tile beside another. Three things make that
less: columns that make one round of the multiprocessors, blocks of a cluster that bring parts of the left operand, or
halves of the right one, to each other (multicast), and blocks that take a part of the terms each, so that tiles are
wide and none waits. The plan that takes the least time is chosen, by a
model of bytes at every level; `narrow` says which plans there are, and the laws they keep.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from redalg.kernels.gemm.match import FLOAT8
from redalg.kernels.gemm.tiles import SIDES, SUMS, GemmPlan, Sharing, blocks_of
from redalg.kernels.ir.program import STORAGE
from redalg.kernels.launch.planned import Tile
from redalg.kernels.schedule.calibration import calibration_of
from redalg.kernels.schedule.choose import micro
from redalg.kernels.schedule.target import Target
from redalg.kernels.tile.plan import sums_held

ROWS = 256  # at most: more rows are bound by tensor cores or nearly
# Blocks of a cluster that every device of compute capability 9.0 takes. Each brings 8 rows of a shared tile at least, a
# whole pattern of the swizzle.
CLUSTER = 8
WARPGROUPS = 4  # that multiply, at most: with the producer 640 threads, and 112 registers for each of theirs
DEPTHS = (1, 2, 4)  # pieces of 128 bytes of a row in a stage, where rows are so few that stages have room for them
SHARING = 4  # blocks that share an operand, at most, unasked
REACHED = 0.91  # of the multiprocessors, by clusters of 4 and 8: 30 and 15 of them run at once on an H200 (2026-11-24)


class Rates(NamedTuple):
    """Bytes a second and seconds, of a Hopper device."""

    cache: float = 9.1e12  # of the second-level cache, all multiprocessors together
    filled: float = 7.7e12  # the same while memory fills it, of operands larger than a third of it
    each: float = 193e9  # that one multiprocessor takes in
    peers: float = 25e9  # that one multiprocessor sends to the shared memory of others, number by number
    late: float = 0.75e-6  # from asking for a chunk to having it, from the second-level cache
    gap: float = 0.15  # bytes under way, of those that hide the latency, at which half of memory's rate is reached
    row: float = 7.4  # bytes of memory's time lost for every row of a chunk that is read: 5 % of 128, 1 % of 512
    sector: float = 46  # that such a row takes more from the second-level cache where it crosses lines of 128 bytes
    fill: float = 0.34e-6  # until the first chunk is there, and from the last one to the results
    meet: float = 0.32e-6  # of an exchange of partial sums
    couple: float = 0.76e-6  # of blocks that share an operand, since stages wait for the slowest
    chunk: float = 0.041e-6  # of a product of a chunk by one warpgroup that waits for it, at least


RATES = Rates()
OVERLAP = 4  # the norm of what runs side by side: two that take as long are 1.19 of one, since neither is always busy


@dataclass(frozen=True)
class Narrow:
    """What is multiplied: rows, columns, terms, batches, by types and layouts as in `GemmPlan`. ``whole``: terms are
    added in one order, whatever the number of rows. ``pixels``: rows are pixels, whose terms are taps of channels.
    ``joined``: terms of other products that are added to the same sums."""

    kinds: tuple[str, str]
    flat: bool
    rows: int
    columns: int
    terms: int
    batches: int
    products: int
    target: Target
    whole: bool = False
    pixels: bool = False
    left_flat: bool = False
    joined: tuple[int, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether there are so few rows, of a type whose sums stay with the tensor cores."""
        return self.rows <= ROWS and self.kinds[0] not in FLOAT8

    def plans(self) -> Iterator[GemmPlan]:
        """Every plan that keeps the laws."""
        return (plan for plan in self.space() if not refusal(plan, self))

    def space(self) -> Iterator[GemmPlan]:
        """Every plan that is looked at."""
        counts = (1, 2, 4, 8)
        most = min(-(-self.rows // 64), WARPGROUPS)
        shared = [Sharing(), *(Sharing(n, Tile.LEFT) for n in counts[1:]), Sharing(2, Tile.RIGHT)]
        for consumers, sharing, split in product(range(1, most + 1), shared, (1,) if self.whole else counts):
            brought = -(-self.rows // 8) * 8 if consumers == 1 and self.rows <= 56 and not self.left_flat else 0
            for columns, deep in product(self.widths(), self.depths(brought)):
                plan = GemmPlan(
                    self.kinds,
                    self.flat,
                    self.terms,
                    consumers,
                    1,
                    columns,
                    False,
                    sharing,
                    staged=True,
                    most_shared=self.target.most_shared,
                    products=self.products,
                    split=split,
                    deep=deep,
                    brought=brought,
                    left_flat=self.left_flat,
                    joined=self.joined,
                )
                yield replace(plan, group=max(1, -(-self.rows // plan.rows)))

    def widths(self) -> Iterator[int]:
        """Columns of a tile: whole boxes of 64 where the columns lie contiguous."""
        step = 64 if self.flat else 16
        yield from range(step, SUMS // self.products + 1, step)

    def depths(self, brought: int) -> tuple[int, ...]:
        """Pieces of a row in a stage, of a plan that brings so few rows, 0 for all."""
        return DEPTHS if brought else DEPTHS[:1]

    def running(self, plan: GemmPlan) -> int:
        """Clusters that run at once: multiprocessors lie in groups, which clusters do not cross."""
        whole = self.target.multiprocessors if plan.cluster <= 2 else int(self.target.multiprocessors * REACHED)
        return max(1, whole // plan.cluster)

    def _astray(self, flat: bool, length: int) -> bool:
        """Whether what lies together of an operand begins anywhere in lines of 128 bytes: terms, or rows if `flat`."""
        return (length if flat else self.terms) * STORAGE[self.kinds[0]] % 128 != 0

    def seconds(self, plan: GemmPlan) -> float:
        """The time without a launch, by the bytes that pass every level."""
        count = blocks_of(plan, self.rows, self.columns, self.batches)[0]
        blocks, each = count * plan.cluster, STORAGE[self.kinds[0]]
        rounds = -(-count // self.running(plan))
        terms = self.terms + sum(self.joined)
        once = each * terms * (self.columns * self.products + self.rows) * self.batches
        run = each * plan.columns if plan.flat else 128 * plan.deep  # bytes that lie together in memory
        own = 128 * plan.deep * min(plan.rows, self.rows)  # what lies beyond the rows is filled with zeros, not read
        brings = [1 / plan.sharing.blocks if plan.shared is side else 1 for side in SIDES]
        left = own * (1 + self._astray(plan.left_flat, self.rows) * RATES.sector / (128 * plan.deep))
        right = plan.right_bytes * (1 + self._astray(plan.flat, self.columns) * RATES.sector / run)
        in_flight = plan.stages - 1.25  # stages under way: one is given back when the next one is multiplied
        under_way = blocks * in_flight * plan.right_bytes / (RATES.late * self.target.reachable)
        reached = self.target.reachable / (1 + RATES.row / run) * under_way / (under_way + RATES.gap)
        full = 3 * once > self.target.l2 and self.rows <= 128  # more rows keep memory from its full rate
        cache = RATES.filled if full else RATES.cache
        multiplied = 2 * plan.rows * plan.columns * self.products * plan.own_chunks * plan.chunk
        known = calibration_of(self.target.name)
        every = (
            once / reached,
            blocks * plan.own_chunks * (left * brings[0] + right * brings[1]) / cache,
            rounds
            * plan.own_chunks
            * (left + right)
            / min(RATES.each, in_flight * (own + plan.right_bytes) / RATES.late),
            rounds * plan.own_chunks * plan.deep * RATES.chunk * plan.products * max(1, plan.columns / 64),
            rounds * multiplied * self.target.multiprocessors / known.tensor_cores.rate,
        )
        moved = sum(x**OVERLAP for x in every) ** (1 / OVERLAP)
        meeting = RATES.meet + plan.exchanged / RATES.peers if plan.split > 1 else 0.0
        return moved + rounds * RATES.fill + meeting + RATES.couple * (plan.sharing.blocks > 1)


def told(made: Narrow, chosen: GemmPlan) -> str:
    """The search in a line, for `explain`: the plan that follows, and what every law refused."""
    ranked, refused = _searched(made)
    after = next((p for p in ranked if made.seconds(p) > made.seconds(chosen)), None)
    line = f"few rows: {len(ranked)} plans of tiles and clusters keep the laws, predicted {micro(made.seconds(chosen))}"
    if after is not None:
        shape = f"{after.columns} columns, {after.sharing.blocks} sharing, {after.split} pieces"
        line += f", the next ({shape}) {micro(made.seconds(after))}"
    return line + "; refused: " + ", ".join(f"{count} ({why})" for why, count in refused.items())


@lru_cache(maxsize=64)
def _searched(made: Narrow) -> tuple[tuple[GemmPlan, ...], Mapping[str, int]]:
    """The plans that may be taken, the fastest first, and how many each law refuses."""
    kept, refused = [], Counter[str]()
    for plan in made.space():
        if why := refusal(plan, made):
            refused[why] += 1
        elif taken(plan):
            kept.append(plan)
    return tuple(sorted(kept, key=made.seconds)), refused


def refusal(plan: GemmPlan, made: Narrow) -> str:
    """Which law a plan breaks; empty if it keeps them all."""
    return next((why for holds, why in laws(plan, made) if not holds), "")


def laws(plan: GemmPlan, made: Narrow) -> Iterator[tuple[bool, str]]:
    """Whether each law holds, and what is wrong where it does not."""
    most, count = made.target.block, blocks_of(plan, made.rows, made.columns, made.batches)[0]
    most_blocks = min(CLUSTER, most.cluster_limit, made.target.multiprocessors)
    yield plan.cluster <= most_blocks, "a cluster of more blocks than the device takes"
    along = not plan.flat and plan.deep <= -(-plan.terms // plan.box_terms)
    yield plan.deep == 1 or along, "rows lie across the stream, or are shorter than a chunk"
    yield plan.deep == 1 or not made.pixels, "a stage has the channels of one tap"
    sides = (plan.left_flat, plan.left_rows), (plan.flat, plan.columns)
    flat, length = sides[SIDES.index(plan.shared)]
    least = 64 if flat else 8
    yield length % (least * plan.sharing.blocks) == 0, f"a block brings no whole pattern of {least} rows"
    yield plan.stages >= 2, "no two stages fit shared memory"
    yield plan.sums <= sums_held(plan.consumers)[0], "sums do not fit registers"
    yield made.rows > 64 * (plan.consumers - 1), "a warpgroup without rows"
    yield plan.columns % (8 * plan.split) == 0, "a block writes no whole groups of 8 columns"
    yield (plan.split - 1) * plan.own_chunks < plan.chunks, "a block of the split has no terms"
    whole = count <= made.running(plan)
    yield plan.split == 1 or whole, "a cluster would exchange twice, over what peers still read"
    length, tile = (made.columns, plan.columns) if plan.shared is Tile.LEFT else (made.rows, plan.rows)
    yield (
        plan.sharing.blocks == 1 or length > tile * plan.sharing.blocks // 2,
        "a block of those that share has no tile",
    )


def narrow(made: Narrow) -> GemmPlan | None:
    """The plan that takes the least time, or None where another model decides.

    >>> from redalg.kernels.schedule.target import H200
    >>> kinds = "bfloat16", "bfloat16"
    >>> p = narrow(Narrow(kinds, False, 128, 512, 2048, 1, 1, H200))
    >>> p.split > 1
    True
    """
    if not made.fits:
        return None
    return next(iter(_searched(made)[0]), None)


def taken(plan: GemmPlan) -> bool:
    """Whether a plan is taken unasked: more blocks that share an operand were not faster (`benchmarks.gpu.narrow`), and
    of a few rows there is nothing to share."""
    return plan.sharing.blocks <= (1 if plan.brought else SHARING)
