"""Tile programs: derived by structure, run whole tiles at a time, held to their laws, printed and run by threads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import redalg as ra
from redalg.explore import kernel
from redalg.kernels.ir.layouts import View
from redalg.kernels.pipeline import TILES
from redalg.kernels.programs import run_passes
from redalg.kernels.schedule.target import A100, L40S, Target
from redalg.kernels.tile.contractions import Outside
from redalg.kernels.tile.level.check import broken
from redalg.kernels.tile.level.program import Arrive, For, Home, Load, Mma, Op, TileProgram, Wait, inner
from tests.support.level_cases import TEXTS, arrays_of, drafted, emulated, form_of, quads, spec_of
from tests.support.sample import deep, one_in
from tests.support.tile_programs import Interpreter

SIZES = {"h": 2, "g": 2, "i": 141, "j": 67, "d": 32, "e": 48, "m": 141, "n": 72, "k": 32, "l": 48}
LARGE = dict.fromkeys("ijmn", 4096) | {"h": 2} | dict.fromkeys("dekl", 64)
NAMES = (*TEXTS, "attention Q", "attention K", "attention_causal Q", "attention_causal K", "attention_window K")


def expected(name: str, given: dict[str, object]) -> dict[str, np.ndarray]:
    wide = {n: np.asarray(x, np.float64) if np.ndim(x) and x.dtype.kind == "f" else x for n, x in given.items()}
    found = ra.reference(spec_of(name), **wide)
    return found if isinstance(found, dict) else {next(iter(spec_of(name).outputs)): found}


def sizes_of(name: str) -> dict[str, int]:
    return SIZES | ({"j": SIZES["i"]} if "causal" in name or "window" in name else {})


def given_of(name: str, seed: int = 1) -> dict[str, object]:
    made = arrays_of(name, sizes_of(name), seed)
    return made | {n: 5 for n in made if n in ("w", "window")}


@pytest.mark.parametrize(("name", "schedule"), one_in(3, NAMES, ("tensor", "mma")))
def test_every_program_runs_whole_tiles_at_a_time(name: str, schedule: str) -> None:
    """After the first placement, and after all passes: what is not waited for is NaN."""
    given, sizes = given_of(name), sizes_of(name)
    want = expected(name, given)
    for until in ("skip", "order", ""):
        draft = drafted(name, sizes, schedule=schedule)
        if until == "skip":
            draft.tiles = None
            run_passes(TILES, draft, until="order")
        found = Interpreter.of_draft(draft, given).run()
        for output, x in found.items():
            np.testing.assert_allclose(
                x, want[output], rtol=1e-9, atol=1e-9 * np.abs(want[output]).max(), err_msg=until
            )


@pytest.mark.parametrize("name", ["dK dV", "attention_causal Q", "shifted", "chain across"])
def test_the_printed_kernel_computes_the_definition(name: str) -> None:
    """Thread by thread, copies late and in any order: 6 quads of two tiles, unequal lengths."""
    given, sizes = given_of(name), sizes_of(name)
    draft = drafted(name, sizes)
    for output, x in emulated(draft, given, 2, quads(draft), seed=3).items():
        there, want = ~np.isnan(x), expected(name, given)[output]
        assert there.sum() > 400
        np.testing.assert_allclose(x[there], want[there], atol=2e-5 * np.abs(want).max())


MMA = (
    "chain across",
    "attention_causal Q",
    "dQ",
    "dK dV",
    "dQ lengths",
    "shifted",
    "attention_window K",
    "attention_softcap K",
)


@pytest.mark.parametrize("target", [L40S, *deep([A100])], ids=lambda t: t.name)
@pytest.mark.parametrize("name", [*MMA[:2], *deep(MMA[2:])])
def test_the_same_by_mma_sync(name: str, target: Target) -> None:
    """By the sizes that each device takes, and none of the shared memory that the smaller one lacks."""
    given, sizes = given_of(name), sizes_of(name)
    draft = drafted(name, sizes, target=target)
    assert draft.planned is not None and "mma.sync" in draft.planned.choice.reasons[0] and not draft.planned.maps
    assert draft.sizes is not None and draft.sizes.shared <= target.most_shared
    for output, x in emulated(draft, given, sample=quads(draft), seed=3).items():
        there, want = ~np.isnan(x), expected(name, given)[output]
        assert there.sum() > 400
        np.testing.assert_allclose(x[there], want[there], atol=2e-5 * np.abs(want).max())
        if name == "dQ lengths":
            assert there[0].any() and not x[0][there[0]].any()  # a stream of no element


@pytest.mark.deep
def test_what_does_not_fit_says_so() -> None:
    """Two sums of 256 columns are more than the registers of a thread, and rows that end within a copy are read as
    they lie by the copy engine alone. What does not fit in one kernel runs in parts."""
    with pytest.raises(Outside, match="no tiles of these lengths fit 101376 bytes of shared memory"):
        drafted("dK dV", SIZES | {"d": 256, "e": 256}, target=L40S)
    with pytest.raises(Outside, match="rows of B end within 16 bytes: n has length 67"):
        drafted("chain across", SIZES | {"n": 67}, views={"B": View((32, 67), (72, 1), 16)}, target=A100)
    lengths = {"h": 2, "i": 512, "j": 512, "d": 256, "e": 256}
    found = kernel(form_of("dK dV"), lengths, "L40S", "bfloat16")
    assert found.reasons[0].startswith("in parts") and any("tensor cores by mma.sync" in x for x in found.reasons)


def test_weights_that_grow_with_their_score_are_not_rounded_to_float16_unasked() -> None:
    """As of cascades: a relu's may be more than 65504. Gradients' weights are small as their scores are."""
    for name, taken in (("chain", False), ("attention_relu K", False), ("dK dV", True), ("attention_sigmoid K", True)):
        for schedule in ("tensor", "mma", None):
            if taken or schedule is not None:
                drafted(name, LARGE, "float16", schedule=schedule)
                continue
            with pytest.raises(Outside, match="not rounded to float16"):
                drafted(name, LARGE, "float16", schedule=schedule)


# --- laws ------------------------------------------------------------------------------------------------------------


def changed(program: TileProgram, keep: object) -> TileProgram:
    """The program without the operations that `keep` refuses."""

    def body(ops: tuple[Op, ...]) -> tuple[Op, ...]:
        kept = (op for op in ops if keep(op))  # type: ignore[operator]
        return tuple(replace(op, body=body(op.body)) if isinstance(op, For) else op for op in kept)

    return replace(program, bodies={role: body(ops) for role, ops in program.bodies.items()})


def test_each_wait_and_each_arrival_is_needed() -> None:
    """Of all waits and arrivals of a program, none can be left out: a law says so, and the interpreter shows NaN."""
    draft = drafted("dK dV", SIZES)
    program = draft.tiles
    assert program is not None and not list(broken(program))
    given = given_of("dK dV")
    every = [op for op in inner(program.bodies["consumers"]) if isinstance(op, Wait)]
    assert len(every) >= 6
    for wait in every:
        less = changed(program, lambda op, wait=wait: op is not wait)
        assert list(broken(less)), wait
        draft.tiles = less
        assert any(np.isnan(x).any() for x in Interpreter.of_draft(draft, given).run().values()), wait
    ring = [op for op in inner(loop(program).body) if isinstance(op, Arrive)]
    assert len(ring) == 1 and list(broken(changed(program, lambda op: op is not ring[0])))


def loop(program: TileProgram) -> For:
    return next(op for op in program.bodies["consumers"] if isinstance(op, For))


def test_an_arrival_before_the_last_product_is_seen() -> None:
    draft = drafted("dQ", SIZES)
    program = draft.tiles
    assert program is not None
    body = loop(program).body
    arrive = next(op for op in body if isinstance(op, Arrive))
    first = next(k for k, op in enumerate(body) if isinstance(op, Mma))
    early = (*body[: first + 1], arrive, *(op for op in body[first + 1 :] if op is not arrive))
    moved = tuple(replace(op, body=early) if isinstance(op, For) else op for op in program.bodies["consumers"])
    assert any("given back" in why for why in broken(replace(program, bodies={**program.bodies, "consumers": moved})))


def test_homes_and_capacities_are_laws() -> None:
    program = drafted("dQ", SIZES).tiles
    assert program is not None
    tiles = {**program.tiles, "S0": replace(program.tiles["S0"], home=Home.SHARED)}
    assert any("accumulator" in why for why in broken(replace(program, tiles=tiles)))
    tiles = {**program.tiles, "S0": replace(program.tiles["S0"], home=Home.TENSOR)}
    assert any("no home" in why for why in broken(replace(program, tiles=tiles)))
    assert any("more than" in why for why in broken(program.knows(**{"registers for tiles": 300})))
    missing = changed(program, lambda op: not (isinstance(op, Load) and op.tile == "K"))
    assert any("never written" in why for why in broken(missing))


# --- structure -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "axis", "why"),
    [
        ("return y = sum[j](x[i,j]*V[j,e])", "j", "one column axis|no contraction"),
        ("m = max[j](sum[d](Q[i,d]*K[j,d])); return y = m", "j", "column axis"),
        ("p = exp(sum[d](Q[i,d]*K[j,d])); return y = sum[j](p*V[j,e]*W[j,e])", "j", "weights times one tensor"),
    ],
)
def test_what_is_no_tile_program_is_refused(text: str, axis: str, why: str) -> None:
    TEXTS[text] = (text, axis)
    try:
        with pytest.raises(Outside, match=why):
            drafted(text, {"i": 256, "j": 256, "d": 64, "e": 64})
    finally:
        del TEXTS[text]
        spec_of.cache_clear()
        form_of.cache_clear()


def test_both_sums_share_what_they_have_in_common() -> None:
    """dK's weight reads dV's, scores are mapped while others are multiplied, and the number leaves the sum."""
    draft = drafted("attention_causal K", SIZES | {"j": SIZES["i"]})
    assert draft.tiles is not None
    ops = [type(op).__name__ for op in loop(draft.tiles).body]
    assert ops.count("Mma") == 4 and ops.index("Map") < len(ops) - 1 - ops[::-1].index("Map")
    text = draft.tiles.text()
    assert "store grad_K <- scale * A1[j,d]" in text and "skip where the condition holds nowhere" in text
