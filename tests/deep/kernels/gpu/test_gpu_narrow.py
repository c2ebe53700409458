"""Products of few rows on a GPU: every shape of cluster against the definition, twice, and chains in a graph."""

from __future__ import annotations

import pytest

import redalg as ra
from redalg.kernels.gemm import passes
from redalg.kernels.gemm.narrow import Narrow
from redalg.kernels.gemm.tiles import GemmPlan, Sharing
from redalg.kernels.launch.planned import Tile
from tests.support.chain_cases import form_of

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu


def close(name: str, rows: int) -> None:
    """The definition, in float64, and the same bits twice."""
    form, sizes = form_of(name), {"m": rows, "k": 1032, "n": 1208, "l": 520}
    torch.manual_seed(rows)
    arrays = {}
    for t in form.spec.tensors:
        x = torch.randn([sizes[a] for a in t.axes], device="cuda")
        arrays[t.name] = (x if t.name in ("A", "R") else x / x.shape[-1] ** 0.5).bfloat16()
    (truth,) = (torch.as_tensor(x) for x in _outputs(form, arrays))
    run = form.compile("cuda", schedule="tensor")
    first, second = run(**arrays), run(**arrays)
    assert torch.equal(first, second)
    bound = 2**-8 * truth.abs() + 2**-7 * truth.square().mean().sqrt() * 4
    assert bool(((first.double().cpu() - truth).abs() <= bound).all())


@pytest.mark.parametrize("rows", [1, 77, 200])
@pytest.mark.parametrize("blocks", [(1, 1), (2, 1), (4, 1), (1, 2), (1, 8), (2, 2), (2, 4), (4, 2), (8, 1)])
@pytest.mark.parametrize("name", ["glu", "gated"])
def test_every_cluster(name: str, blocks: tuple[int, int], rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    real = passes.narrow

    def pick(made: Narrow) -> GemmPlan | None:
        found = [p for p in made.plans() if (p.sharing.blocks, p.split) == blocks]
        return min(found, key=made.seconds) if found else real(made)

    monkeypatch.setattr(passes, "narrow", pick)
    close(name, rows)


@pytest.mark.parametrize("name", ["glu", "gated", "relu"])
@pytest.mark.parametrize(("rows", "consumers"), [(129, 3), (177, 3), (192, 3), (193, 4), (256, 4), (256, 3), (131, 2)])
@pytest.mark.parametrize("blocks", [(1, 1), (2, 1), (4, 1), (1, 2), (2, 2), (-2, 1), (-2, 2)])
def test_tiles_of_all_rows_and_pairs_that_share_the_right_operand(
    name: str, rows: int, consumers: int, blocks: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The widest tile there is; the right operand is shared where `blocks` are negative."""
    real = passes.narrow
    side = Tile.RIGHT if blocks[0] < 0 or blocks[0] == 1 else Tile.LEFT

    def pick(made: Narrow) -> GemmPlan | None:
        found = [p for p in made.plans() if (p.consumers, p.sharing, p.split) == (consumers, shared, blocks[1])]
        return max(found, key=lambda p: p.columns) if found else real(made)

    shared = Sharing(abs(blocks[0]), side)
    monkeypatch.setattr(passes, "narrow", pick)
    close(name, rows)


def _outputs(form: object, arrays: dict[str, object]) -> list[object]:
    found = ra.reference(form.spec, **{n: x.double().cpu().numpy() for n, x in arrays.items()})
    return list(found.values()) if isinstance(found, dict) else [found]


def test_a_chain_in_a_graph_whose_second_kernel_begins_early() -> None:
    """Replays one behind the other: what is written between two products is not read before or after its time."""
    form, sizes = form_of("gated"), {"m": 128, "k": 1024, "n": 3072, "l": 1024}
    arrays = {t.name: torch.randn([sizes[a] for a in t.axes], device="cuda").bfloat16() for t in form.spec.tensors}
    run = form.compile("cuda")
    expected = run(**arrays)
    assert run.planned.geometry.early
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(3):
            captured = run(**arrays)
    for _ in range(50):
        graph.replay()
    assert torch.equal(captured, expected)
    other = {n: x.flip(0) for n, x in arrays.items()}
    wanted = run(**other)
    for n, x in other.items():
        arrays[n].copy_(x)
    graph.replay()
    assert torch.equal(captured, wanted)
