"""Drafts of matrix products: every pass of `GEMM` keeps the invariants, and a pass that breaks one is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from redalg.graph.node import Node, state
from redalg.kernels import pipeline
from redalg.kernels.gemm.passes import GemmDraft
from redalg.kernels.gemm.tiles import Sharing
from redalg.kernels.launch.planned import Lying, Vendor
from redalg.kernels.programs import BrokenPass, Pass
from redalg.kernels.tile.level.program import For, Op, Wait
from tests.support.gemm_cases import BATCHED, BIASED, GEMMS, PLAIN, SCALED, planned

SIZES = {"b": 2, "i": 384, "j": 1024, "k": 256}
SPEC = "fp8_per_token_gemm"  # one operand is prepared, with a state that the epilogue reads
Break = Callable[[GemmDraft], None]


def part(name: str, **changes: Any) -> Break:
    """What replaces fields of a part of the draft."""

    def broken(draft: GemmDraft) -> None:
        found = getattr(draft, name)
        setattr(draft, name, replace(found, **changes) if not hasattr(found, "_replace") else found._replace(**changes))

    return broken


def cut(change: Callable[[Any], dict[str, Any]]) -> Break:
    def broken(draft: GemmDraft) -> None:
        draft.made = replace(draft.made, **change(draft.made))  # type: ignore[type-var]

    return broken


def place(number: int, **changes: Any) -> Break:
    def broken(draft: GemmDraft) -> None:
        assert draft.operands is not None
        places = list(draft.operands.places)
        places[number] = replace(places[number], **changes)
        draft.operands = draft.operands._replace(places=tuple(places))

    return broken


def box(**changes: Any) -> Break:
    def broken(draft: GemmDraft) -> None:
        assert draft.product is not None
        first, *rest = draft.product.maps
        draft.product = replace(draft.product, maps=(replace(first, **changes), *rest))

    return broken


def unwaited(draft: GemmDraft) -> None:
    """Chunks are multiplied before they have come."""
    assert draft.operations is not None
    less: list[Op] = []
    for op in draft.operations.bodies["consumers"]:
        kept = (x for x in op.body if not isinstance(x, Wait) or x.products) if isinstance(op, For) else ()
        less.append(replace(op, body=tuple(kept)) if isinstance(op, For) else op)
    bodies = {**draft.operations.bodies, "consumers": tuple(less)}
    draft.operations = replace(draft.operations, bodies=bodies)


def scratch(**changes: Any) -> Break:
    def broken(draft: GemmDraft) -> None:
        assert draft.product is not None
        found = {n: (o, replace(view, **changes)) for n, (o, view) in draft.product.scratch.items()}
        draft.product = replace(draft.product, scratch=found)

    return broken


def before(draft: GemmDraft) -> None:
    first, *rest = draft.before
    draft.before = (replace(first, kernel=first.kernel._replace(geometry=replace(first.geometry, blocks=0))), *rest)


def joined(draft: GemmDraft) -> None:
    assert draft.joined and not isinstance(draft.joined, str)
    inside = draft.joined.inside
    draft.joined = draft.joined._replace(inside=replace(inside, schedule=replace(inside.schedule, rows=64)))


def module(**changes: Any) -> Break:
    def broken(draft: GemmDraft) -> None:
        assert draft.planned is not None
        kernel = draft.planned.kernel
        draft.planned = replace(draft.planned, kernel=kernel._replace(module=replace(kernel.module, **changes)))

    return broken


def vendor(**changes: Any) -> Break:
    """What a library would multiply, and what of it is wrong."""

    def broken(draft: GemmDraft) -> None:
        assert draft.product is not None and draft.operands is not None and draft.made is not None
        names = [m.operand for m in draft.product.maps]
        lying = [Lying(name, (8, 8), (8, 1)) for name in names]
        shape = draft.rows, draft.sizes[draft.made.column]
        draft.vendor = replace(Vendor(*lying, draft.operands.results[0].name, shape), **changes)

    return broken


BROKEN: list[tuple[str, str, Break]] = [
    ("cut", "axes: i, i, j", part("made", column="i")),
    ("cut", "axes: v of length 0", part("made", column="v")),
    ("cut", "epilogue: y reads other", cut(lambda made: {"outputs": {"y": state("other")}})),
    ("cut", "epilogue: y reads sums along j", cut(lambda made: {"outputs": {"y": state("sums", ("i", "j"))}})),
    ("cut", "epilogue: the state state1", part("made", given=({}, {}))),
    ("cut", "epilogue: results z", cut(lambda made: {"outputs": {"z": made.outputs["y"]}})),
    ("operands", "operands: left of float32", part("operands", kinds=("float32", "float32"))),
    ("operands", "operands: left of bfloat16", place(0, dtype="bfloat16")),
    ("operands", "operands: left has strides", place(0, strides=(1000, 1))),
    ("operands", "operands: left has strides", place(0, strides=(1024, 2))),
    ("operands", "operands: left has strides", place(0, strides=(1,))),
    ("operands", "operands: left has strides", place(0, strides=(0, 1))),
    ("operands", "epilogue: writes", part("operands", results=())),
    ("tiles", "tiles: .* sums a thread", part("tiles", columns=1024)),
    ("tiles", "tiles: 512 terms", part("tiles", terms=512)),
    ("tiles", "tiles: 2 halves", part("tiles", promoted=False, halves=2)),
    (
        "tiles",
        "tiles: .* bytes of shared memory",
        part("tiles", most_shared=1 << 20, columns=256, promoted=False, halves=1),
    ),
    ("tiles", "tiles: 1 stages", part("tiles", most_shared=40 << 10)),
    ("tiles", "tiles: 1152 threads", part("tiles", consumers=8, columns=8)),
    ("tiles", "tiles: clusters of 32", part("tiles", sharing=Sharing(32))),
    ("assemble", "boxes: 512 rows of left", box(rows=512)),
    ("assemble", "boxes: 8 rows of left", box(rows=8)),
    ("assemble", "boxes: left along", box(axes=("j", "i", "a", "b", "c", "d"))),
    ("assemble", "boxes: left along nobody", box(axes=("j", "nobody"))),
    ("assemble", "views: nobody", box(operand="nobody")),
    ("assemble", "views: left", part("product", firsts=())),
    ("assemble", "views: left of shape", scratch(shape=(384, 512))),
    ("assemble", "views: left has strides", scratch(strides=(8, 1))),
    ("assemble", "grid: 0 blocks", part("product", blocks=0)),
    ("assemble", "grid: 134 blocks", part("product", blocks=134)),
    ("assemble", "grid: {'tiles': 1}", part("product", fixed={"tiles": 1})),
    ("prepare", "launches: .* of no block", before),
    ("join", "launches: .* threads prepare rows", joined),
    ("predict", "launches: nan seconds", part("choice", seconds=float("nan"))),
    ("library", "library: reads nobody", vendor(right=Lying("nobody", (8, 8), (8, 1)))),
    ("library", "library: .* has strides", vendor(left=Lying("left", (8, 8), (0, 1)))),
    ("library", "library: writes nothing", vendor(result="nothing")),
    ("library", r"library: writes \(1, 1\)", vendor(shape=(1, 1))),
    ("compare", "launches: -1 seconds", part("choice", seconds=-1)),
    ("operations", "operations: .* is read before it is waited for", unwaited),
    ("print", "launches: .* 1048576 bytes", module(shared=1 << 20)),
    ("print", "launches: .* it is written for 64|launches: .* threads", module(threads=64)),
    ("print", "launches: the fixed tiles", part("planned", fixed={})),
    ("print", "launches: the operand", part("planned", scratch={})),
    ("sum", "launches: the fixed tiles", part("planned", fixed={})),
]


def breaking(monkeypatch: pytest.MonkeyPatch, name: str, change: Break) -> None:
    """After the pass of this name, what it has written is changed."""

    def after(step: Pass) -> Pass:
        def run(draft: Any) -> None:
            step.run(draft)
            change(draft)

        return step._replace(run=run) if step.name == name else step

    monkeypatch.setattr(pipeline, "GEMM", tuple(map(after, pipeline.GEMM)))


@pytest.mark.parametrize(("name", "words", "change"), BROKEN, ids=lambda x: x if isinstance(x, str) else "")
def test_a_pass_that_breaks_an_invariant_is_named(
    name: str, words: str, change: Break, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaking(monkeypatch, name, change)
    with pytest.raises(BrokenPass, match=f"{words}.*, after pass '{name}'") as caught:
        one = {"launches": 1, "major": ("w",)} if name == "join" else {"launches": 2}
        planned(SPEC, SIZES, w="float8_e4m3fn", **one)  # type: ignore[arg-type]
    assert "defect of redalg" in caught.value.fix and "the matrix product of y" in caught.value.where


def test_every_pass_is_broken_by_one() -> None:
    assert {name for name, _, _ in BROKEN} == {p.name for p in pipeline.GEMM}


@pytest.mark.parametrize("text", [PLAIN, BATCHED, SCALED, BIASED, *GEMMS])
@pytest.mark.parametrize("sizes", [SIZES, {"b": 1, "i": 1, "j": 8, "k": 8}, {"b": 3, "i": 1000, "j": 264, "k": 72}])
def test_passes_keep_every_invariant(text: str, sizes: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """A check after every pass, of ones that are there: single rows and columns, remainders, several batches."""
    checked: list[str] = []
    breaking(monkeypatch, "print", lambda draft: checked.append(draft.program.name))
    others = {"w": "float8_e4m3fn"} if text == SPEC else {}
    found = planned(text, sizes, **others)
    assert checked and found.module.shared > 0


def test_a_nodes_axes_are_those_of_a_result() -> None:
    """What the breaks above replace is what the cut makes: the leaf of the sums has rows and columns."""
    seen: list[Node] = []
    with pytest.MonkeyPatch.context() as patch:
        breaking(patch, "cut", lambda draft: seen.extend(draft.made.outputs.values()))  # type: ignore[union-attr]
        planned(PLAIN, SIZES)
    assert seen and seen[0].axes == {"i", "k"}
