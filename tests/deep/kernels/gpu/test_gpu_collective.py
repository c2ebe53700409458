"""`form.collective` on two GPUs over NCCL: unequal and empty parts against float64, repeated bits, captured graphs."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import redalg as ra
from tests.support.gloo_ranks import on_ranks
from tests.support.rank_cases import arguments, checked, form_of_case, part

torch: Any = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="fewer than two GPUs"),
    pytest.mark.filterwarnings("ignore"),
]
NAMES = ("attention", "loss", "labels", "layer norm", "covariance")
DTYPES = {"attention": ("float32", "bfloat16")}
WAYS = ("gather", "reduce")
CUTS = ([0, 13, 40], [0, 0, 40])
ROUNDING = {"float32": 3e-7, "bfloat16": 8e-3}


def sent(mine: dict[str, Any], dtype: str) -> dict[str, Any]:
    kinds = {n: torch.int64 if n == "t" else getattr(torch, dtype) for n in mine}
    return {n: torch.tensor(x, dtype=kinds[n], device="cuda") if np.ndim(x) else x for n, x in mine.items()}


def named(form: ra.Form, result: Any) -> dict[str, Any]:
    result = result if isinstance(result, dict) else {next(iter(form.spec.outputs)): result}
    return {n: x.double().cpu().numpy() for n, x in result.items()}


def everything(rank: int, ranks: int) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for name, way in product(NAMES, WAYS):
        form = form_of_case(name)
        made = form.collective(way=way)
        for dtype in DTYPES.get(name, ("float32",)):
            for cuts in CUTS:
                mine = sent(part(form, arguments(form, 1), cuts[rank], cuts[rank + 1]), dtype)
                found[name, way, dtype, cuts[1]] = [named(form, made(start=cuts[rank], **mine)) for _ in range(2)]
                assert made.choices[0].way == way
        if name in ("attention", "loss", "layer norm"):
            found[name, way, "graph"] = captured(form, made, rank)
        if name == "loss":
            found[name, way, "hostile"] = [named(form, made(**sent(x, "float32"))) for x in hostile(form, rank)]
    found |= {("causal", way): in_pieces(rank, ranks, way) for way in WAYS}
    return found


def causal() -> tuple[ra.Form, dict[str, Any]]:
    form, rng = ra.derive_incremental(ra.catalog["attention_causal"]), np.random.default_rng(6)
    sizes = {"h": 2, "i": 512, "j": 512, "d": 64, "e": 64}
    return form, {d.name: rng.normal(size=[sizes[a] for a in d.axes]) if d.axes else 0.2 for d in form.spec.tensors}


def in_pieces(rank: int, ranks: int, way: str) -> np.ndarray:
    """Causal attention on tensor cores over keys split from both ends."""
    form, arrays = causal()
    made = form.collective(way=way)
    spans = made.zigzag(512)
    mine = {n: np.concatenate([x[:, a:b] for a, b in spans], 1) if n in "KV" else x for n, x in arrays.items()}
    return made(start=[a for a, _ in spans], **sent(mine, "bfloat16")).double().cpu().numpy()


def hostile(form: ra.Form, rank: int) -> list[dict[str, Any]]:
    """Rows in which a rank has NaN, nothing but -oo, or +oo."""
    found = []
    for value, rows in ((np.nan, 1), (-np.inf, 2), (np.inf, 0)):
        whole = arguments(form, 3)
        whole["x"][rows, : CUTS[0][1]] = value
        found.append(part(form, whole, CUTS[0][rank], CUTS[0][rank + 1]))
    return found


def rounded(x: Any, dtype: str) -> np.ndarray:
    """What was sent, in float64."""
    return torch.tensor(x, dtype=getattr(torch, dtype)).double().numpy()


def captured(form: ra.Form, made: Any, rank: int) -> dict[str, Any]:
    """A call in a CUDA graph, replayed on other numbers than it was captured with."""
    cuts = CUTS[0]
    mine = sent(part(form, arguments(form, 1), cuts[rank], cuts[rank + 1]), "float32")
    made(**mine)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        result = made(**mine)
    other = sent(part(form, arguments(form, 2), cuts[rank], cuts[rank + 1]), "float32")
    for n, x in mine.items():
        if hasattr(x, "copy_"):
            x.copy_(other[n])
    graph.replay()
    torch.cuda.synchronize()
    found = named(form, result)
    del graph
    return found


def test_two_gpus_have_the_definition() -> None:
    results = on_ranks(2, everything, "nccl")
    for rank, found in enumerate(results):
        assert isinstance(found, dict), found
        for name, way in product(NAMES, WAYS):
            form = form_of_case(name)
            for dtype, cuts in product(DTYPES.get(name, ("float32",)), CUTS):
                once, again = found[name, way, dtype, cuts[1]]
                wide = arguments(form, 1)
                given = {n: rounded(x, dtype) if np.ndim(x) and n != "t" else x for n, x in wide.items()}
                checked(form, given, once, cuts[rank], cuts[rank + 1], ROUNDING[dtype])
                assert way == "reduce" or all(once[n].tobytes() == again[n].tobytes() for n in once)
            if (name, way, "graph") in found:
                a, b = CUTS[0][rank : rank + 2]
                checked(form, arguments(form, 2), found[name, way, "graph"], a, b, ROUNDING["float32"])
    form, arrays = causal()
    arrays = {n: rounded(x, "bfloat16") if np.ndim(x) else x for n, x in arrays.items()}
    expected = ra.reference(form.spec, **arrays)
    for way, found in product(WAYS, results):
        np.testing.assert_allclose(found["causal", way], expected, rtol=0, atol=2e-2)
    for way in WAYS:
        hostile_as_defined([found["loss", way, "hostile"] for found in results])


def hostile_as_defined(results: list[Any]) -> None:
    form = form_of_case("loss")
    for k, parts in enumerate(zip(hostile(form, 0), hostile(form, 1), strict=True)):
        whole = {n: np.concatenate([p[n] for p in parts], axis=np.ndim(parts[0][n]) - 1) for n in parts[0]}
        expected = ra.reference(form.spec, **whole)
        for found in results:
            for name, x in expected.items():
                np.testing.assert_allclose(found[k][name], x, rtol=1e-4, atol=1e-4)
