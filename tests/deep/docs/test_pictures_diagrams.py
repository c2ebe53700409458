"""`redalg.pictures`, the diagrams: boxes, edges and texts are the form's own."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

import redalg as ra
from redalg.algebra import state as symbolic
from redalg.errors import RedalgError
from redalg.graph.node import leaves

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

from redalg import pictures  # noqa: E402
from redalg.pictures.text import extent, formula, wrapped  # noqa: E402
from redalg.pictures.trees import merge_levels  # noqa: E402
from redalg.pictures.written import written  # noqa: E402

NAMES = ("softmax", "logsumexp", "attention", "variance", "linear_regression", "layer_norm_gemm", "top_k", "argmax")


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    plt.close("all")


def form_of(name: str) -> ra.Form:
    entry = ra.catalog.entry(name)
    return ra.derive_incremental(entry.spec, entry.axis, assume=entry.assume)


def gids(ax: plt.Axes, start: str = "") -> list[str]:
    artists = [*ax.patches, *ax.lines, *ax.texts]
    return sorted(g for g in (a.get_gid() for a in artists) if g and g.startswith(start))


def arrows(ax: plt.Axes, side: str) -> set[tuple[str, str]]:
    found = [g.removeprefix(f"{side}:").split("->") for g in gids(ax, side) if "->" in g and g.count(":") == 1]
    return {(a, b) for a, b in found}


def texts(ax: plt.Axes, start: str) -> list[str]:
    return [t.get_text() for t in ax.texts if (t.get_gid() or "").startswith(start)]


# --- what everything rests on ----------------------------------------------------------------------------------------


def test_stages_are_named_and_levelled_as_the_engine_does() -> None:
    for name in NAMES:
        form = form_of(name)
        cascade = written(form.spec, form.plan.axis)
        nodes = {s.name: s.node for s in cascade.stages}
        for report in form.plan.stages:
            assert nodes[report.name] is report.node
    x = ra.tensors("x[i,j]")
    u = ra.mean(x, "j")
    deep = written(ra.Spec(y=ra.sum((x - ra.max(ra.abs(x - u), "j")) ** 2, "j"), z=x - u, w=u))
    assert [(s.level, s.needs) for s in deep.stages] == [(1, ()), (2, ("stage1",)), (3, ("stage2",))]
    assert [(o.name, o.level) for o in deep.outputs] == [("y", 0), ("z", 2), ("w", 0)]


def test_formulas_fit_or_are_plain_lines() -> None:
    x = ra.tensors("x[j]")
    for body in (ra.exp(-((x - 1) ** 2) / 3), ra.where(x > 0, x, ra.erf(x)), ra.cast(x, "float8_e4m3fn")):
        node = ra.Spec(y=body).outputs["y"]
        for width in (0.6, 1.5, 4.0):
            text = formula(node, {}, width)
            assert extent(text)[0] <= max(1.25 * width, 1.0), text
    assert formula(ra.Spec(y=ra.where(x > 0, x, 0)).outputs["y"], {}, 4.0).startswith("where(")  # mathtext has no cases
    assert wrapped("a " * 400, 1.0).endswith("…") and wrapped("ab", 1.0) == "ab"
    assert extent(wrapped("$x$", 2.0))[0] > extent("$x$")[0]  # a dollar in plain text starts no formula


@pytest.mark.parametrize("pieces", [1, 2, 3, 5, 8, 13])
def test_merge_levels_is_a_tree_over_neighbours(pieces: int) -> None:
    levels = merge_levels(pieces)
    assert levels[-1] == [(0, pieces - 1)]
    for level in levels:
        assert [k for a, b in level for k in range(a, b + 1)] == list(range(pieces))


# --- data_flow -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_boxes_and_arrows_of_the_fused_side_are_the_forms(name: str) -> None:
    form = form_of(name)
    ax = pictures.data_flow(form)
    boxes = {g.split(":")[-1] for g in gids(ax, "after:slot:") + gids(ax, "after:anchor:") if g.count(":") == 2}
    assert boxes == {s.name for s in form.slots}
    found = arrows(ax, "after")
    assert {b for a, b in found if a == "read1"} == boxes
    for slot in form.slots:
        for anchor in slot.anchor.split(", ") if slot.anchor else ():
            assert (anchor, slot.name) in found
    for output, value in symbolic.outputs(form.plan).items():
        states = {n.attr.name for n in leaves(value, "state")}
        assert {a for a, b in found if b == output and not a.startswith("read")} == states
    assert len([g for g in gids(ax, "after:read") if g.endswith(":source")]) == form.passes.reads


@pytest.mark.parametrize("name", NAMES)
def test_arrows_of_the_written_side_are_the_cascades(name: str) -> None:
    form = form_of(name)
    cascade = written(form.spec, form.plan.axis)
    ax = pictures.data_flow(form)
    expected = {(a, s.name) for s in (*cascade.stages, *cascade.outputs) for a in s.needs}
    expected |= {(f"read{s.level}", s.name) for s in (*cascade.stages, *cascade.outputs) if s.level}
    assert arrows(ax, "before") == expected
    assert len([g for g in gids(ax, "before:read") if g.endswith(":source")]) == cascade.passes


def test_a_constant_of_the_spec_changes_the_texts() -> None:
    x = ra.tensors("x[j]")

    def drawn(c: int) -> str:
        m = ra.max(x, "j")
        return "\n".join(t.get_text() for t in pictures.data_flow(ra.Spec(y=ra.sum(ra.exp(c * (x - m)), "j"))).texts)

    assert "13" in drawn(13) and "13" not in drawn(17) and "17" in drawn(17)


def test_a_refused_spec_shows_its_cascade_and_why() -> None:
    x = ra.tensors("x[j]")
    spec = ra.Spec(y=ra.mean(ra.abs(x - ra.mean(x, "j")), "j"))
    ax = pictures.data_flow(spec)
    refusal = ra.verdict(spec)
    assert arrows(ax, "before") == {("read1", "stage1"), ("read2", "stage2"), ("stage1", "stage2"), ("stage2", "y")}
    assert texts(ax, "after:title") == ["fused: refused"]
    words = re.sub(r"\s+", " ", " ".join(texts(ax, "after:anchor:stage2:text")))
    assert refusal.scope in words
    two = pictures.data_flow(ra.derive_incremental(spec, max_passes=2))
    assert texts(two, "after:title") == ["fused: 2 reads of the stream"]
    assert len([g for g in gids(two, "after:read") if g.endswith(":source")]) == 2


def test_a_pure_map_reads_once() -> None:
    x = ra.tensors("x[i,j]")
    ax = pictures.data_flow(ra.Spec(y=ra.exp(x) + 1))
    assert arrows(ax, "before") == arrows(ax, "after") == {("read1", "y")}


# --- reduction_tree --------------------------------------------------------------------------------------------------


def tree_edges(ax: plt.Axes, side: str, tree: str) -> list[tuple[str, str]]:
    start = f"{side}:{tree}:"
    lines = [a.get_gid() for a in ax.lines]
    found = [g.removeprefix(start).split("->") for g in lines if g and g.startswith(start) and "->" in g]
    return [(a, b) for a, b in found]


@pytest.mark.parametrize("name", ["softmax", "variance", "attention", "argmax"])
@pytest.mark.parametrize("lengths", [(4,), (3, 0, 5, 2), (0, 0), (1, 2, 3, 0, 90)])
def test_every_stage_is_a_tree_and_the_form_is_one(name: str, lengths: tuple[int, ...]) -> None:
    form = form_of(name)
    cascade = written(form.spec, form.plan.axis)
    ax = pictures.reduction_tree(form, lengths)
    kept = [o.name for o in form.plan.outputs if o.keeps_axis]
    pieces = len(lengths)
    trees = [("before", s.name) for s in cascade.stages] + [("after", "state")]
    for side, tree in trees:
        edges = tree_edges(ax, side, tree)
        merges = [(a, b) for a, b in edges if not a.startswith("piece") and b != "root"]
        assert len([a for a, _ in edges if a.startswith("piece")]) == pieces
        parents = {b for _, b in merges}
        assert len(parents) == pieces - 1 and len(merges) == 2 * (pieces - 1)
        whole = f"{side}:{tree}:0-{pieces - 1}:count"
        assert texts(ax, whole) == [str(sum(lengths))]
    for side in ("before", "after"):
        for output in kept:
            assert len(tree_edges(ax, side, output)) == pieces
    boxes = [g for g in gids(ax, "after:") if g.endswith(":box")]
    assert len(boxes) == form.passes.reads
    inside = re.sub(r"\s+", " ", texts(ax, "after:state:text")[0])
    assert inside.split(", ") == [s.name for s in form.slots]
    waiting = {(a, s.name) for s in (*cascade.stages, *cascade.outputs) if s.level for a in s.needs}
    assert arrows(ax, "before") == waiting


def test_elements_are_ticks_up_to_a_number() -> None:
    form = form_of("logsumexp")
    few, many = pictures.reduction_tree(form, (3, 4)), pictures.reduction_tree(form, (300, 4))
    assert gids(few, "after:state:element").count("after:state:element") == 7
    assert not gids(many, "after:state:element")


def test_the_corrections_in_the_picture_are_the_forms() -> None:
    x = ra.tensors("x[j]")

    def notes(c: int) -> str:
        spec = ra.Spec(y=ra.sum(ra.exp(c * (x - ra.max(x, "j"))), "j"))
        return "\n".join(texts(pictures.reduction_tree(ra.derive_incremental(spec), (2, 3)), "after:note"))

    assert "max_x: max of both" in notes(3) and r"e^{3 \, \mathrm{max\_x\_a}" in notes(3)
    assert r"e^{5 \, " in notes(5) and r"e^{3 \, " not in notes(5)


@pytest.mark.parametrize("lengths", [(), (3, -1), (2.5,), (True,)])
def test_lengths_that_are_none_are_refused(lengths: tuple[float, ...]) -> None:
    with pytest.raises(RedalgError) as error:
        pictures.reduction_tree(form_of("logsumexp"), lengths)  # type: ignore[arg-type]
    assert error.value.what and error.value.where and error.value.why and error.value.fix


# --- the paper -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["softmax", "attention", "linear_regression"])
def test_no_text_leaves_its_box_and_no_box_the_paper(name: str) -> None:
    form = form_of(name)
    for ax in (pictures.data_flow(form), pictures.reduction_tree(form, (3, 0, 5, 2))):
        ax.figure.canvas.draw()
        paper = ax.figure.bbox
        boxes = {a.get_gid(): a.get_window_extent() for a in ax.patches if a.get_gid()}
        for text in ax.texts:
            place, gid = text.get_window_extent(), text.get_gid() or ""
            assert paper.x0 <= place.x0 and place.x1 <= paper.x1 and paper.y0 <= place.y0 and place.y1 <= paper.y1, gid
            owner = boxes.get(gid.removesuffix(":text").removesuffix(":name"))
            owner = owner or boxes.get(gid.removesuffix(":text").removesuffix(":name") + ":box")
            if owner is not None:
                assert owner.x0 <= place.x0 and place.x1 <= owner.x1 and owner.y0 - 1 <= place.y0, (
                    gid,
                    text.get_text(),
                )


def test_a_given_axes_is_drawn_on_and_text_shrinks_with_it() -> None:
    form = form_of("attention")
    ax = plt.subplots(figsize=(4, 3))[1]
    assert pictures.data_flow(form, ax=ax) is ax
    own = pictures.data_flow(form)
    assert ax.texts[0].get_fontsize() < own.texts[0].get_fontsize()
