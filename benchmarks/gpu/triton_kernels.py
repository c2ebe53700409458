"""Copy and read kernels in Triton, candidates for the ceilings: sizes must be multiples of block·steps."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def _copy(source, target, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + at, tl.load(source + at))


@triton.jit
def _read(source, target, BLOCK: tl.constexpr, STEPS: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0).to(tl.int64) * (BLOCK * STEPS) + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in tl.static_range(STEPS):
        total += tl.load(source + at + k * BLOCK)
    tl.store(target + tl.program_id(0), tl.sum(total, 0))


def copy(source: Any, target: Any, block: int, warps: int) -> None:
    _copy[(source.numel() // block,)](source, target, block, num_warps=warps)


def read(source: Any, block: int, steps: int, warps: int) -> Any:
    blocks = source.numel() // (block * steps)
    target = torch.empty(blocks, device=source.device)
    _read[(blocks,)](source, target, block, steps, num_warps=warps)
    return target
