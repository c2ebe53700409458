"""Results of a tile on their way to memory: where matrices are put, and what boxes take from there."""

from __future__ import annotations

import re
import textwrap
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from redalg.kernels.ir.program import Module
from redalg.kernels.ir.tensor_cores import CHUNK
from redalg.kernels.tile.level.cascade_print import emit_tensor
from redalg.kernels.tile.match import Class
from redalg.kernels.tile.plan import STAGED, TensorPlan, fitted, maps_of, stageable
from tests.support.tensor_cases import class_of

BASE, FIRST = 4096, 256


def printed(columns: int, text: str = "attention_scaled") -> tuple[Module, Class, TensorPlan]:
    made = class_of(text)
    sizes = dict.fromkeys((a for o in made.program.operands for a in o.axes), 2)
    sizes |= {made.column or "": columns, made.row: 300, made.stream: 200, "d": 64}
    made, plan = fitted(made, sizes, 64, columns)
    plan = replace(plan, staged=True)
    return emit_tensor(made, plan), made, plan


def stored(source: str, team: int, warp: int, columns: int) -> tuple[dict[int, Any], list[tuple[int, tuple[int, ...]]]]:
    """16 bytes of shared memory by address, as (row, first column), and the boxes: address, places from the lane on."""
    begin = source.index("            tma_store_wait()")
    part = textwrap.dedent(source[begin : source.index("\n            tile = ", begin)])
    memory: dict[int, Any] = {}
    boxes: list[tuple[int, tuple[int, ...]]] = []
    held: list[list[tuple[int, tuple[Any, ...]]]] = [[] for _ in range(32)]
    for lane in range(32):
        k = np.arange(columns // 2)  # the element a register holds: row of the warp, column
        codes = list(zip(lane // 4 + 8 * (k // 2 % 2), 8 * (k // 4) + 2 * (lane % 4) + k % 2, strict=True))

        def put(address: int, *words: Any, to: list[Any] = held[lane]) -> None:
            to.append((address, words))

        def send(address: int, at: int, *places: int) -> None:
            assert at == 3 * 128
            boxes.append((address, places))

        names = {name: lambda *_: None for name in ("tma_store_wait", "syncwarp", "fence_proxy_async")}
        names |= {"stmatrix_x4": put, "store_O_rows": send, "pack_bfloat16": lambda a, b: (a, b)}
        names |= {"warpgroup": team, "warp": warp, "lane": lane, "leader": lane == 0, "sums": codes, "left_tile": BASE}
        names |= {"swizzle": ((lane >> 4) * 16) ^ ((lane & 7) * 16), "i_first": FIRST, "i_h": 1, "maps": 0}
        exec(part, names)
    for call in zip(*held, strict=True):  # lane 8·m + r gives the place of row r of matrix m
        for matrix in range(4):
            for row in range(8):
                place = call[8 * matrix + row][0]
                found = [call[4 * row + c][1][matrix] for c in range(4)]
                assert place not in memory and place % 16 == 0
                memory[place] = [code for pair in found for code in pair]
    return memory, boxes


@pytest.mark.parametrize("columns", [16, 64, 80, 128, 192, 256])
def test_boxes_hold_the_rows_of_their_warp(columns: int) -> None:
    module, made, plan = printed(columns)
    result = maps_of(made, plan)[-1]
    assert (result.operand, result.axes, result.rows) == ("O", ("e", "i", "h"), STAGED)
    seen: set[int] = set()
    for team in range(plan.consumers):
        for warp in range(4):
            memory, boxes = stored(module.source, team, warp, columns)
            assert len(boxes) == result.count == -(-columns // CHUNK)
            for address, (column, row, batch) in boxes:
                assert address % 1024 == 0 and (row, batch) == (FIRST + 64 * team + 16 * warp, 1)
                for r in range(STAGED):
                    for c in range(0, min(CHUNK, columns - column), 8):  # exchanged as the copy engine expects it
                        at = address + 128 * r + 2 * c ^ (r & 7) * 16
                        assert memory.pop(at) == [(r, column + c + k) for k in range(8)]
            assert not memory
            part = {a + k for a, _ in boxes for k in range(0, 128 * STAGED, 16)}
            assert not part & seen and max(part) < BASE + plan.shared - 1024 and min(part) >= BASE + plan.staging
            seen |= part


def test_a_wrong_place_is_noticed() -> None:
    module, _, _ = printed(128)
    wrong = re.sub(r"16 \* \(k & 7\)", "16 * (k & 3)", module.source)
    assert wrong != module.source
    with pytest.raises(AssertionError):
        stored(wrong, 0, 0, 128)


def test_results_that_are_written_without_boxes() -> None:
    made = class_of("attention_scaled")
    assert stageable(made, 128) and not stageable(made, 24) and not stageable(made, 0)
    assert not stageable(class_of("splade"), 0)
