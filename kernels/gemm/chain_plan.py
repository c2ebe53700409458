"""Plans of two products in one kernel: which pairs of tiles go together, by laws, and which pair takes the least time.

A plan is a pair of plans of few rows (`redalg.kernels.gemm.narrow`) and the home of what lies between the products.
Both products run on the same blocks and through the same ring, so their tiles have the same warpgroups, and a stage is
as large as the larger one's. Clusters are those of the product that splits its terms more; the other one has several
tiles in each. `laws` has one entry for each condition, with its reason.

Homes, from the nearest on: registers and shared memory hold the intermediate where a block computes all of it that its
results need, so that every block beside it computes the same again; distributed shared memory, where a cluster does,
which leaves as many clusters as there are tiles of rows; the second-level cache, where all blocks meet at a barrier of
the grid; memory, between two kernels. `homes` says for each why it is not taken, by the bytes that move there.

The search: of the plans of either product, the `KEPT` fastest for every split and number of warpgroups, then
all their pairs. The pruning keeps the optimum where the stage of one does not shorten the ring of the other below what
hides the latency (`tests/kernels/print/test_chain_plans.py` compares with every pair of small spaces).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from redalg.kernels.gemm.narrow import Narrow, refusal
from redalg.kernels.gemm.tiles import GemmPlan, blocks_of
from redalg.kernels.ir.program import STORAGE
from redalg.kernels.schedule.choose import micro

KEPT = 6  # plans of a product for every number of warpgroups and split of the terms
MEET = 1.2e-6  # that the barrier of the grid costs more than a second kernel, which begins while the first one ends
Pair = tuple[GemmPlan, GemmPlan]


@dataclass(frozen=True)
class Chain:
    """Two products, the second of whose left operand is the first one's result."""

    first: Narrow
    second: Narrow

    def pairs(self) -> Iterator[Pair]:
        """Every pair that is looked at, each plan with what it leaves the other one."""
        mine, other = self._kept(self.first), self._kept(self.second)
        for (warpgroups, _), plans in sorted(mine.items()):
            for (same, _), behind in sorted(other.items()):
                if warpgroups == same:
                    yield from (joint(p, q) for p in plans for q in behind)

    @staticmethod
    def _kept(made: Narrow) -> dict[tuple[int, int], list[GemmPlan]]:
        found: dict[tuple[int, int], list[GemmPlan]] = defaultdict(list)
        for plan in sorted((p for p in made.plans() if p.sharing.blocks == 1), key=made.seconds):
            key = plan.consumers, plan.split
            if len(found[key]) < KEPT:
                found[key].append(plan)
        return found

    def legal(self) -> Iterator[Pair]:
        return (pair for pair in self.pairs() if not refused(pair, self))

    def seconds(self, pair: Pair) -> float:
        """The time without the launch: both products, and the barrier."""
        p, q = pair
        return self.first.seconds(p) + self.second.seconds(q) + MEET

    def blocks(self, pair: Pair) -> int:
        """Of the grid: as many as the larger product takes, and run at once."""
        p, q = pair
        size = cluster(pair)
        count = max(p.split * tiles(p, self.first), q.split * tiles(q, self.second))
        return size * min(-(-count // size), self.first.running(p if p.split == size else q))

    @property
    def between(self) -> int:
        """Bytes of what lies between the products."""
        return STORAGE[self.second.kinds[0]] * self.second.rows * self.second.terms * self.second.batches


def cluster(pair: Pair) -> int:
    """Blocks of a cluster: those of the product that splits its terms more; the other one has several tiles in it."""
    return max(p.split for p in pair)


def tiles(plan: GemmPlan, made: Narrow) -> int:
    return blocks_of(plan, made.rows, made.columns, made.batches)[0]


def joint(p: GemmPlan, q: GemmPlan) -> Pair:
    """Both plans, each with what the other one takes of a stage and of the room for partial sums."""
    taken = [(x.left_bytes + x.right_bytes, x.exchanged) for x in (p, q)]
    return replace(p, neighbour=taken[1], early=False, followed=False), replace(q, neighbour=taken[0], early=True)


def refused(pair: Pair, chain: Chain) -> str:
    """Which law a pair breaks; empty if it keeps them all."""
    return next((why for holds, why in laws(pair, chain) if not holds), "")


def laws(pair: Pair, chain: Chain) -> Iterator[tuple[bool, str]]:
    """Whether each law holds, and what is wrong where it does not; those of a product alone are `narrow.laws`."""
    p, q = pair
    alone = [refusal(replace(x, neighbour=(0, 0)), made) for x, made in ((p, chain.first), (q, chain.second))]
    yield not any(alone), "a product alone breaks a law"
    yield p.consumers == q.consumers, "blocks have other warpgroups in the second product"
    blocks = chain.blocks(pair)
    once = all(x.split == 1 or x.split * tiles(x, y) <= blocks for x, y in ((p, chain.first), (q, chain.second)))
    yield once, "a cluster would exchange twice, over what peers still read"
    yield p.sharing.blocks == q.sharing.blocks == 1, "stages would be given back by peers that are in another product"
    yield min(p.stages, q.stages) >= 2, "no two stages fit shared memory, each as large as the larger product's"


def best(chain: Chain) -> Pair | None:
    """The pair that takes the least time, or None where none is legal."""
    return min(chain.legal(), key=chain.seconds, default=None)


def homes(pair: Pair, chain: Chain) -> Iterator[str]:
    """For every home of what lies between, whether it is taken, and why not."""
    p, q = pair
    made, after = chain.first, chain.second
    once = STORAGE[made.kinds[0]] * made.terms * made.columns * made.products
    across, down = -(-after.columns // q.columns), -(-made.rows // q.rows)
    recomputed = once * max(0, across - 1) * down
    alone = f"every one of {across} blocks beside each other would compute it again, {recomputed >> 10} KB of weights"
    yield f"registers, shared memory: not taken, {alone}"
    most = 8 * down * made.batches
    yield (
        f"distributed shared memory: not taken, a cluster would hold a row of tiles, and {most} of "
        f"{made.target.multiprocessors} multiprocessors would run"
    )
    yield f"second-level cache: taken, {chain.between >> 10} KB, written once and read {across} times"


def told(pair: Pair, chain: Chain, seconds: float, apart: float) -> list[str]:
    """The loop nest, the homes, and what was refused, for `explain`."""
    p, q = pair
    every = list(chain.pairs())
    counts = Counter(why for x in every if (why := refused(x, chain)))
    out = ", ".join(f"{n} ({why})" for why, n in counts.items()) or "none"
    lines = [
        f"chain in one kernel: {micro(seconds)} are predicted, {micro(apart)} for two kernels, the second begun early; "
        f"{len(every)} pairs of plans looked at, refused: {out}",
        f"loop nest: {_nest(p, tiles(p, chain.first))}; barrier of the grid; {_nest(q, tiles(q, chain.second))}",
    ]
    return lines + [f"between the products, {line}" for line in homes(pair, chain)]


def _nest(plan: GemmPlan, count: int) -> str:
    where = f"{plan.split} blocks of a cluster" if plan.split > 1 else "a block"
    return (
        f"for {count} tiles of {plan.rows} rows by {plan.columns} columns, by {where}: for {plan.own_chunks} chunks of "
        f"{plan.chunk} terms, {plan.stages} stages ahead"
    )
