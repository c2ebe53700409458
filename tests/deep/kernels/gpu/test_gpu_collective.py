"""`form.collective` on two GPUs over NCCL: unequal and empty parts against float64, repeated bits, captured graphs."""

from __future__ import annotations

from itertools import pairwise
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
    for name in NAMES:
        form = form_of_case(name)
        made = form.collective()
        for dtype in DTYPES.get(name, ("float32",)):
            for cuts in CUTS:
                mine = sent(part(form, arguments(form, 1), cuts[rank], cuts[rank + 1]), dtype)
                found[name, dtype, cuts[1]] = [named(form, made(start=cuts[rank], **mine)) for _ in range(2)]
        if name in ("attention", "loss"):
            found[name, "graph"] = captured(form, made, rank)
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
    with torch.cuda.graph(graph):
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
        for name in NAMES:
            form = form_of_case(name)
            for dtype in DTYPES.get(name, ("float32",)):
                for cuts in CUTS:
                    a, b = list(pairwise(cuts))[rank]
                    once, again = found[name, dtype, cuts[1]]
                    wide = arguments(form, 1)
                    given = {n: rounded(x, dtype) if np.ndim(x) and n != "t" else x for n, x in wide.items()}
                    checked(form, given, once, a, b, ROUNDING[dtype])
                    assert all(once[n].tobytes() == again[n].tobytes() for n in once)
            if (name, "graph") in found:
                a, b = list(pairwise(CUTS[0]))[rank]
                checked(form, arguments(form, 2), found[name, "graph"], a, b, ROUNDING["float32"])
