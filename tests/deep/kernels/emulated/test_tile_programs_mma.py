"""Tile programs by mma.sync over sizes of tiles and of heads, by all threads or by a sample of them, beside the
definition in float64."""

from __future__ import annotations

import numpy as np
import pytest

from redalg.kernels.schedule.target import H200
from redalg.kernels.tile.contractions import Outside
from tests.kernels.emulated.test_tile_programs import NAMES, expected, sizes_of
from tests.support.level_cases import TEXTS, arrays_of, drafted, emulated, quads

CATALOG = ("", "_alibi", "_bias", "_causal", "_masked", "_relu", "_sigmoid", "_softcap", "_window")
EVERY = dict.fromkeys((*TEXTS, *NAMES, *(f"attention{name} {wrt}" for name in CATALOG for wrt in "QK")))
EVERY.pop("attention_relu Q")  # its result reads more than sums
TILES = [(8, 1, 64), (4, 2, 32), (8, 2, 16), (4, 1, 16)]


def lengths_of(name: str, d: int, e: int) -> dict[str, int]:
    square = ("causal", "window", "alibi")
    own = sizes_of(name) | dict(zip("dekl", (d, e, d, e), strict=True)) | {"i": 150, "m": 150, "n": 200, "j": 200}
    return own | ({"j": 150} if any(word in name for word in square) else {})


def judge(name: str, sizes: dict[str, int], asked: tuple[int, int, int] | None, sample: bool, kind: str) -> None:
    given = arrays_of(name, sizes, seed=sum(sizes.values()))
    given |= {n: 5 for n in given if n == "window"} | {n: 2.0 for n in given if n == "cap"}
    draft = drafted(name, sizes, kind, target=H200, schedule="mma", asked=asked)
    for output, x in emulated(draft, given, sample=quads(draft) if sample else None, seed=5).items():
        there, want = ~np.isnan(x), expected(name, given)[output]
        assert there.all() if not sample else there.sum() > 100
        np.testing.assert_allclose(x[there], want[there], rtol=0, atol=2e-5 * np.abs(want).max())


@pytest.mark.parametrize("asked", TILES, ids=str)
@pytest.mark.parametrize("name", EVERY)
def test_sizes_of_tiles(name: str, asked: tuple[int, int, int]) -> None:
    try:
        judge(name, lengths_of(name, 48, 32), asked, True, "float16")
    except Outside as why:  # positions and tensors of pairs take registers of the largest ones
        assert "no tiles" in str(why) and any(word in name for word in ("alibi", "bias")) and asked == (8, 1, 64)


@pytest.mark.parametrize(("d", "e"), [(16, 16), (80, 112), (128, 128)])
@pytest.mark.parametrize(
    "name", ["dQ", "dK dV", "dQ lengths", "attention_causal K", "attention_softcap Q", "chain across"]
)
def test_lengths_of_heads(name: str, d: int, e: int) -> None:
    judge(name, lengths_of(name, d, e), None, True, "bfloat16")


@pytest.mark.parametrize("name", ["dQ lengths", "dK dV", "attention_window Q"])
def test_every_row_by_all_threads(name: str) -> None:
    sizes = lengths_of(name, 16, 32) | {"h": 1, "g": 1, "i": 70} | ({"j": 70} if "window" in name else {"j": 90})
    judge(name, sizes, None, False, "bfloat16")
