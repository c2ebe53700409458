"""Runs a printed kernel for mma.sync on the CPU for some quads of threads, as `tests.tensor_quads` does.

Copies to shared memory are remembered with what they read, by the place they go to; products read what was copied there
and has arrived. A place that is read too early, or holds another block, gives other numbers, or none at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from redalg.kernels.emit_tensor import emit_tensor
from redalg.kernels.ir import STORAGE
from redalg.kernels.tensor_class import Class
from redalg.kernels.tensor_mma_plan import MmaPlan
from tests.tensor_quads import LEFT, Quads

SINGLE, BYTES = 0x3F800000, 0x38383838  # a number that is 1, in float32, and four in e4m3
SIGNS = {LEFT: 1, 0: 0, LEFT ^ 0x80008000: -1, SINGLE: 1, SINGLE ^ 0x80000000: -1}
SIGNS |= {BYTES: 1, BYTES ^ 0x80808080: -1}
NARROW = ("float8_e4m3fn", "float8_e5m2")


class Stored(np.ndarray):
    """The elements of an operand, and how many bytes each has in memory."""

    each = 2


def tf32(x: Any) -> Any:
    """To nearest with 10 bits of fraction, ties away from zero; float32 in, float32 out."""
    x = np.asarray(x, np.float32)
    found = ((x.view(np.uint32).astype(np.uint64) + 0x1000) & 0xFFFFE000).astype(np.uint32).view(np.float32)
    return np.where(np.isfinite(x), found, x)


@dataclass
class Copied:
    """A tile in shared memory: rows of an array from an offset on, zeros from `count` on and beyond `width`."""

    array: np.ndarray
    offset: int
    step: int
    count: int
    rows: int
    width: int
    pitch: int
    wide: int
    arrived: bool = False

    def matrix(self, first: int, rows: int, wide: int) -> np.ndarray:
        assert self.arrived, "a tile is read before it is there"
        assert 0 <= first and first + rows <= self.rows
        found = np.zeros((rows, wide))
        for r in range(rows):
            if first + r < self.count:
                at = self.offset + (first + r) * self.step
                width = min(wide, self.width)
                assert 0 <= at and at + width <= self.array.size, "a copy from beyond the array"
                found[r, :width] = self.array[at : at + width]
        return found


class MmaQuads(Quads):
    """One kernel by mma.sync. Places: (team, warp, row) of four warps each, the first team being -1."""

    plan: MmaPlan

    def __init__(self, made: Class, plan: MmaPlan, given: Mapping[str, Any], **more: Any) -> None:
        super().__init__(made, plan, given, **more)
        self.size = 32 if plan.long else 4  # whole warps: quads of all their rows, and votes
        self.blocks = self.fixed["tiles"]
        assert emit_tensor(made, plan).source == self.module.source

    def one(self, *arguments: Any) -> None:
        me = self.local
        me.places, me.group, me.groups, me.rounded = {}, [], [], False
        super().one(*arguments)

    def argument(self, p: Any) -> Any:
        found = super().argument(p)
        if p.role == "operand":
            found = found.view(Stored)
            found.each = STORAGE[p.dtype]
        return found

    def do_this_thread(self) -> int:
        return int(self.local.t)

    do_shared_start = staticmethod(lambda _: 0)
    do_left_lane = do_right_lane = staticmethod(lambda place, lane, pitch: place)
    do_row_lane = do_quad_lane = do_values_lane = do_left_lane

    # --- copies ------------------------------------------------------------------------------------------------------

    def do_tile_copy(
        self, rows: int, units: int, pitch: int, threads: int, wide: int = 0, ragged: bool = False
    ) -> Callable[..., None]:
        assert threads == self.plan.threads and pitch >= 16 * max(units, wide) and pitch // 16 % 2 == 1

        def copy(place: int, array: np.ndarray, offset: int, step: int, count: int, t: int, *inside: int) -> None:
            me = self.local
            width = 16 // array.each * (min(units, *inside) if inside else units)
            reach = 16 * max(units, wide)
            end = place + (rows - 1) * pitch + reach
            assert 0 <= place and end <= self.plan.shared and place % 16 == 0 and t == me.t
            for p, x in list(me.places.items()):  # parts of the same rows lie side by side
                over = p < end and place < p + (x.rows - 1) * x.pitch + x.wide * x.array.each
                beside = x.pitch == pitch and (p + x.wide * x.array.each <= place or place + reach <= p)
                if over and not (beside and abs(p - place) + reach <= pitch):
                    del me.places[p]
            made = Copied(array, offset, step, count, rows, width, pitch, reach // array.each)
            me.places[place] = made
            me.group.append(made)

        return copy

    def do_copies_sent(self) -> None:
        self.local.groups.append(self.local.group)
        self.local.group = []

    def do_copies_done(self, groups: int) -> Callable[[], None]:
        def done() -> None:
            for group in self.local.groups[: len(self.local.groups) - groups]:
                for copied in group:
                    copied.arrived = True

        return done

    def do_left_load(self, terms: int, there: int, tall: int = 1, first: int = 0) -> Callable[..., None]:
        begin = first

        def load(words: Any, array: np.ndarray, offset: int, step: int, count: int) -> None:
            me = self.local
            first = offset - 2 * (me.t & 3)
            before = me.left[:, :begin] if begin else np.zeros((2 * tall, 0))
            me.left = np.concatenate([before, np.zeros((2 * tall, terms))], 1)
            for r in range(2 * tall):
                if 8 * r < count:
                    me.left[r, begin : begin + there] = array[first + 8 * r * step : first + 8 * r * step + there]
            words[:] = LEFT

        return load

    def do_converted_load(
        self, terms: int, there: int, dtype: str, kind: str, tall: int = 1, first: int = 0
    ) -> Callable[..., None]:
        plain, single = self.do_left_load(terms, there, tall, first), kind == "tf32"
        assert STORAGE[dtype] == self.plan.bytes_each[0] and kind == self.made.multiplied

        def load(words: Any, array: np.ndarray, offset: int, step: int, count: int) -> None:
            quarter = self.local.t & 3  # the plain one begins at pairs, this one at single elements or at four
            plain(words, array, offset + (1 if single else -2) * quarter, step, count)
            words[:] = SINGLE if single else LEFT

        return load

    def do_word_load(self, place: int) -> int:
        return BYTES if self.made.stored[0] in NARROW else LEFT

    @staticmethod
    def do_number_load(place: int) -> int:
        return SINGLE

    def do_word_store(self, place: int, word: int) -> None:
        self.local.sign = SIGNS[int(word)]

    def do_tf32_word(self, x: Any) -> Any:
        if x is SINGLE:
            self.local.rounded = True
            return x
        return tf32(x)[()] if self.round_weights else x

    # --- products ----------------------------------------------------------------------------------------------------

    def found(self, place: int) -> tuple[Copied, int]:
        """The tile an address lies in, and the row."""
        for start, x in self.local.places.items():
            if start <= place < start + x.rows * x.pitch and (place - start) % x.pitch == 0:
                return x, (place - start) // x.pitch
        raise AssertionError("nothing was copied there")

    def beside(self, tile: Copied, first: int, rows: int, wide: int) -> np.ndarray:
        """Rows of a tile, and of those that continue them."""
        me, found, at = self.local, np.full((rows, wide), np.nan), 0
        start = next(p for p, x in me.places.items() if x is tile)
        while at < wide:
            part = me.places[start + at * tile.array.each]
            found[:, at : at + part.wide] = part.matrix(first, rows, part.wide)
            at += part.wide
        return found

    def do_tile_product(
        self, columns: int, terms: int, dtype: str, pitch: int, a: str = "registers", a_pitch: int = 0,
        fresh: bool = True, transposed: bool = False, tall: int = 1,
    ) -> Callable[..., None]:  # fmt: skip
        return self.product(columns, terms, dtype, "", "", pitch, a, fresh, transposed, tall)

    def do_converted_product(
        self, columns: int, terms: int, kind: str, right: str, pitch: int, left: str = "", a: str = "registers",
        a_pitch: int = 0, fresh: bool = True, transposed: bool = False, tall: int = 1,
    ) -> Callable[..., None]:  # fmt: skip
        """Of 8 bits the lanes of a pair of tiles come mixed; the left operand is rounded to tf32 here or before."""
        assert STORAGE[right] == self.plan.bytes_each[2 if transposed else 1]
        assert kind == (self.made.dtype if transposed else self.made.multiplied)
        made = self.product(columns, terms, kind, left, right, pitch, a, fresh, transposed, tall)

        def product(scores: Any, given: Any, place: int) -> None:
            assert kind != "tf32" or a == "registers" or left or self.local.rounded
            made(scores, given, place)

        return product

    def do_lanes_sorted(self, lanes: int, tall: int = 1) -> Callable[..., None]:
        held, across = 2 * tall, np.arange(lanes // 4)

        def sort(sums: Any) -> None:
            me = self.local
            every = me.quad.exchanged(me.lane, np.array(sums))
            for r in range(held):
                whole, at = np.zeros(lanes), 2 * held * (across >> 1) + 2 * r + (across & 1)
                for lane, other in enumerate(every):
                    whole[mixed(across, lane)] = other[at]
                sums[at] = whole[8 * (across >> 1) + 2 * (me.t & 3) + (across & 1)]

        return sort

    def product(
        self, columns: int, terms: int, kind: str, left_type: str, right_type: str, pitch: int, a: str, fresh: bool,
        transposed: bool, tall: int,
    ) -> Callable[..., None]:  # fmt: skip
        held = 2 * tall
        across = np.arange(columns // 4)
        rounds: Callable[[Any], Any] = tf32 if kind == "tf32" and self.round_weights else lambda x: x

        def rows_of(left: Any) -> np.ndarray:
            me = self.local
            if transposed:
                return self.singles(left, terms, held) if kind == "tf32" else self.weights(left, terms, held)
            if a == "registers":
                return me.left * SIGNS[int(left[0])]
            tile, first = self.found(left)
            row = first + (me.t % 32) // 4
            whole = self.beside(tile, 0, tile.rows, terms)
            return whole[[row + 8 * r for r in range(held)]] * getattr(me, "sign", 1)

        def product(scores: Any, left: Any, place: int) -> None:
            me = self.local
            tile, first = self.found(place)
            assert first == 0 and tile.pitch == pitch
            right = tile.matrix(0, tile.rows, columns).T if transposed else self.beside(tile, 0, columns, terms)
            mine = 8 * (across >> 1) + 2 * (me.t & 3) + (across & 1)
            if transposed and right_type in NARROW:
                mine = mixed(across, me.t & 3)
            made = rounds(rows_of(left)).astype(float) @ rounds(right[mine]).T.astype(float)
            for r in range(held):
                at = 2 * held * (across >> 1) + 2 * r + (across & 1)
                scores[at] = made[r].astype(np.float32) + (0 if fresh else scores[at])

        return product

    def weights(self, words: Any, terms: int, held: int) -> np.ndarray:
        every = self.local.quad.exchanged(self.local.lane, list(words))
        full = np.zeros((held, terms))
        for lane, pairs in enumerate(every):
            for k, (x, y) in enumerate(pairs):
                at = 8 * (k // held) + 2 * lane
                full[k % held, at : at + 2] = x, y
        return full

    def singles(self, words: Any, terms: int, held: int) -> np.ndarray:
        """Weights where the scores were."""
        every = self.local.quad.exchanged(self.local.lane, list(words))
        full = np.zeros((held, terms))
        for lane, found in enumerate(every):
            for k, x in enumerate(found):
                full[k // 2 % held, 8 * (k // (2 * held)) + 2 * lane + k % 2] = x
        return full


def mixed(across: np.ndarray, lane: int) -> np.ndarray:
    """The lanes of a thread's numbers before they are sorted: of 16 the even ones, then the odd ones."""
    tile = across >> 1
    return 16 * (tile >> 1) + 4 * lane + 2 * (across & 1) + (tile & 1)
