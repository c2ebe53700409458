"""Epilogues of products on a GPU, against the definition in float64 and twice: numbers along columns, residuals,
several results, and rows that are reduced, by every shape of cluster."""

from __future__ import annotations

from typing import Any

import pytest

import redalg as ra
from tests.support import row_state_cases as rows
from tests.support.epilogue_cases import EPILOGUES

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

NAMES = ("bias", "gelu", "residual", "both", "two results")


def close(form: Any, given: dict[str, Any], bound: float) -> Any:
    expected = ra.reference(
        form.spec,
        **{n: x.double().cpu().numpy() if x.is_floating_point() else x.cpu().numpy() for n, x in given.items()},
    )
    expected = expected if isinstance(expected, dict) else {next(iter(form.spec.outputs)): expected}
    run = form.compile("cuda")
    found, again = (dict(zip(expected, _all(run(**given)), strict=True)) for _ in range(2))
    for n, x in expected.items():
        truth = torch.as_tensor(x)
        assert torch.equal(found[n], again[n])
        error = (found[n].double().cpu() - truth).abs()
        assert bool((error <= bound * truth.abs() + 2**-11 * truth.abs().max()).all()), (n, float(error.max()))
    return run.planned


def _all(found: Any) -> list[Any]:
    return [*found.values()] if isinstance(found, dict) else [found]


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
@pytest.mark.parametrize("sizes", [(1030, 520, 712), (2048, 1024, 1024), (700, 72, 1001), (5, 520, 712)])
@pytest.mark.parametrize("name", NAMES)
def test_epilogues(name: str, sizes: tuple[int, int, int], kind: str) -> None:
    form, lengths = ra.derive_incremental(ra.parse(EPILOGUES[name]), axis="k"), dict(zip("mkl", sizes, strict=True))
    torch.manual_seed(sum(sizes))
    given = {}
    for t in form.spec.tensors:
        x = torch.randn([lengths[a] for a in t.axes], device="cuda")
        given[t.name] = (x * lengths["k"] ** -0.5 if t.name == "W" else x).to(getattr(torch, kind))
    close(form, given, 2.0 ** (-8 if kind == "bfloat16" else -10))


@pytest.mark.parametrize("want", [(2, 128, 4), (1, 128, 4), (2, 256, 2), (1, 64, 8), (2, 64, 8)])
@pytest.mark.parametrize("name", ["rms", "softmax", "layer", "logsumexp", "loss", "statistics", "norm"])
def test_rows_that_are_reduced(name: str, want: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """More tiles than clusters run at once, the last ones with few rows and columns."""
    from redalg.kernels import pipeline

    sizes = {"m": 9001, "k": 136, "l": 500 if want[1] * want[2] > 500 else 400}
    if name in ("layer", "statistics", "loss") and want[1] > 128:
        pytest.skip("elements read more of columns than registers hold")
    taken = rows.forced(monkeypatch, want)
    folded = pipeline._rows_folded
    monkeypatch.setattr(pipeline, "_rows_folded", lambda *given: _first(folded(*given)))
    form = rows.form_of(name)
    given = {n: torch.as_tensor(x, device="cuda") for n, x in rows.drawn(name, sizes).items()}
    given = {n: x.bfloat16() if x.is_floating_point() else x for n, x in given.items()}
    made = close(form, given, 2.0**-8)
    assert taken and made.geometry.cluster == want[2] or sizes["l"] % 8


def _first(made: Any) -> Any:
    """Predicted to take no time, so that it is taken."""
    from dataclasses import replace

    return replace(made, choice=replace(made.choice, seconds=1e-9))
