"""The k largest elements of a row by sorting networks, in the registers of the threads of a warp that share it.

Every thread sorts its elements as keys (`redalg.kernels.lower.packed_keys`: equal values in the order of their
positions; keys of 32 bits where elements of 16 are selected as they were read) n at a time, n the power of two that is
not below k, and keeps the n largest: of two descending lists a and b, the largest n are max(a_i, b_(n-1-i)), in bitonic
order, which log2 n rounds of comparisons sort. Then threads exchange their lists in a butterfly, and keep the n largest
of both in the same way. (Batcher, "Sorting networks and their applications", 1968.) No thread waits for another's data,
and no branch depends on any.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from redalg.kernels.code.roles import Role
from redalg.kernels.ir.kinds import short_keys
from redalg.kernels.ir.program import Fold
from redalg.kernels.rows.access import tensor_leaves
from redalg.kernels.rows.element import shared_row
from redalg.source.names import local
from redalg.source.statements import function

if TYPE_CHECKING:
    from redalg.kernels.code.scalars import Scalars
    from redalg.kernels.rows.group import Group


def comparisons(n: int) -> Iterator[tuple[int, int]]:
    """Batcher's odd-even merge sort of n = 2^m elements.

    >>> list(comparisons(4))
    [(0, 1), (2, 3), (0, 2), (1, 3), (1, 2)]
    >>> len(list(comparisons(8))), len(list(comparisons(16)))
    (19, 63)
    """
    width = 1
    while width < n:
        step = width
        while step:
            for j in range(step % width, n - step, 2 * step):
                for i in range(j, min(j + step, n - step)):
                    if i // (2 * width) == (i + step) // (2 * width):
                        yield i, i + step
            step //= 2
        width *= 2


def cleaned(n: int) -> Iterator[tuple[int, int]]:
    """The comparisons that sort a bitonic list.

    >>> list(cleaned(4))
    [(0, 2), (1, 3), (0, 1), (2, 3)]
    """
    step = n // 2
    while step:
        yield from ((i, i + step) for i in range(n) if not i & step)
        step //= 2


def _exchanges(name: str, pairs: Iterator[tuple[int, int]]) -> list[str]:
    lines = []
    for a, b in pairs:
        lines += [f"    key = max({name}[{a}], {name}[{b}])", f"    {name}[{b}] = min({name}[{a}], {name}[{b}])"]
        lines.append(f"    {name}[{a}] = key")
    return lines


class Network:
    def __init__(self, group: Group, fold: Fold, k: int, scope: Scalars) -> None:
        self.group, self.kernel, self.scope, self.k = group, group.kernel, scope, k
        self.fold, self.name, self.n = fold, local(fold.names[0]), 1 << (k - 1).bit_length()
        self.short = short_keys(self.kernel.program, fold.bodies[0])

    def print(self) -> None:
        kernel, out, s, n = self.kernel, self.kernel.out, self.kernel.schedule, self.n
        kernel.comment(
            f"The {self.k} largest: each thread sorts its elements {n} at a time and keeps the {n} largest; then "
            f"{s.threads} threads exchange their lists in a butterfly."
        )
        sort, keep = self._functions()
        best, keys = f"{self.name}_list", f"{self.name}_keys"
        bits = 32 if self.short else 64
        out(*(f"{table} = cuda.local.array({n}, np.uint{bits})" for table in (best, keys)))
        for first in range(0, s.tile, n):
            into = best if first == 0 else keys
            for c in range(n):
                self._key(f"{into}[{c}]", first + c)
            out(f"{sort}({into})", *([f"{keep}({best}, {keys})"] if first else []))
        for step in (1 << m for m in range((s.threads - 1).bit_length())):
            with out.block(f"for c in range({n}):"):
                out(f"{keys}[c] = shfl_xor_u{bits}({best}[c], {step})")
            out(f"{keep}({best}, {keys})")
        self._told(best)

    def _key(self, into: str, k: int) -> None:
        """The key of element k of the tile; none where the row has no such element."""
        kernel, out, s, elements = self.kernel, self.kernel.out, self.kernel.schedule, self.kernel.elements
        out(f"{into} = NONE")
        if k >= s.tile:
            return
        out(f"k = {k}", f"at = first + {k // s.vector * elements.stride + k % s.vector}")
        with out.block(None if s.exact else f"if at < {elements.stop}:", Role.INSIDE):
            elements.places_along({a for leaf in tensor_leaves([self.fold.bodies[0]]) for a in leaf.axes})
            inner = kernel.folding.element_scope(self.scope)
            inner.announce([self.fold.bodies[0]])
            value = inner.atom(self.fold.bodies[0], "f")
            kernel.flush(inner)
            out(f"{into} = {f'short_key_{self.short}' if self.short else 'key_of'}({value}, at)")

    def _told(self, best: str) -> None:
        """The list to a table of shared memory, where every thread of the row can read all of it."""
        kernel, out, s = self.kernel, self.kernel.out, self.kernel.schedule
        constants = kernel.constants
        length = "K" if constants.setdefault("K", self.k) == self.k else f"K{self.k}"
        constants[length] = self.k
        table = f"{self.name}_top"
        self.group.shared_lists[self.fold.names[0]] = table, length
        out(f"{table} = cuda.shared.array({s.rows * self.k}, np.uint64)")
        with out.block("if t == 0:"):
            for c in range(self.k):
                key = f"long_key_{self.short}({best}[{c}])" if self.short else f"{best}[{c}]"
                out(f"{table}[{shared_row(kernel, length)}{c}] = {key}")
        out("cuda.syncwarp()")

    def _functions(self) -> tuple[str, str]:
        """The names of functions that sort a list, and that keep the largest of two."""
        n, functions = self.n, self.kernel.functions
        sort, keep = f"sort_keys{n}", f"keep_keys{n}"
        lines = [
            "@cuda.jit(device=True)",
            f"def {sort}(keys):",
            f'    """Sort a list of {n} keys, the largest first."""',
        ]
        functions[sort] = function("\n".join([*lines, *_exchanges("keys", comparisons(n))]))
        lines = [
            "@cuda.jit(device=True)",
            f"def {keep}(best, keys):",
            f'    """The {n} largest keys of two sorted lists, to the first."""',
            *(f"    best[{i}] = max(best[{i}], keys[{n - 1 - i}])" for i in range(n)),
        ]
        functions[keep] = function("\n".join([*lines, *_exchanges("best", cleaned(n))]))
        return sort, keep
