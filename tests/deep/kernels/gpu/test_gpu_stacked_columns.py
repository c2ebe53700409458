"""Reductions down stacked columns in two steps, and results that lie as operands do, on a GPU, against float64."""

from __future__ import annotations

from typing import Any

import pytest

import redalg as ra
from tests.support.forms import Forms

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU on this machine"),
]

SPECS = {
    "softmax": "m = max[t](x[t,c]); e = exp(x[t,c] - m); return y = e/sum[t](e)",
    "log-sum-exp": "m = max[t](x[t,c]); return y = m + log(sum[t](exp(x[t,c] - m)))",
    "variance": "u = mean[t](x[t,c]); return y = mean[t]((x[t,c] - u)**2)",
    "scores": "tensors x[t,c], w[t], b[c]; u = mean[t](x[t,c]); v = mean[t]((x[t,c] - u)**2);"
    "return y = (x[t,c] - u)/sqrt(v + 1/1000)*w[t] + b[c]",
    "extrema": "return y = max[t](abs(x[t,c]))",
}
TURNED = {f"{name}, transposed": text.replace("[t,c]", "[c,t]") for name, text in SPECS.items()}
FORMS = Forms({name: ra.parse(text) for name, text in (SPECS | TURNED).items()}, axis="t")
UNIT = {"float32": 2.0**-19, "float16": 2.0**-9, "bfloat16": 2.0**-6, "float64": 2.0**-45}
SHAPES = [(150001, 17, "float16"), (40003, 77, "float32"), (70001, 33, "bfloat16"), (30007, 41, "float64")]


def drawn(name: str, lines: int, columns: int, dtype: str) -> dict[str, Any]:
    kind = getattr(torch, dtype)
    x = torch.randn(lines, columns, device="cuda").to(kind)
    x[5, 0], x[lines - 1, columns - 1] = 3.0, -3.0
    found = {"x": x.T if name in TURNED else x}
    if "scores" in name:
        found |= {"w": torch.rand(lines, device="cuda").to(kind), "b": torch.randn(columns, device="cuda").to(kind)}
    return found


def truth(name: str, given: dict[str, Any]) -> Any:
    wide = {n: a.double() for n, a in given.items()}
    x = wide["x"].T if name in TURNED else wide["x"]
    u, v = x.mean(0), x.var(0, correction=0)
    found = {
        "softmax": lambda: torch.softmax(x, 0),
        "log-sum-exp": lambda: torch.logsumexp(x, 0),
        "variance": lambda: v,
        "scores": lambda: (x - u) / torch.sqrt(v + 1e-3) * wide["w"][:, None] + wide["b"],
        "extrema": lambda: x.abs().amax(0),
    }[name.removesuffix(", transposed")]()
    return found.T if name in TURNED and found.ndim == 2 else found


def agree(found: Any, true: Any, dtype: str) -> None:
    error = (found.double() - true).abs() - UNIT[dtype] * true.abs()
    least = torch.finfo(getattr(torch, dtype)).tiny
    assert float(error.max()) <= UNIT[dtype] * float(true.abs().mean()) + least


@pytest.mark.parametrize(("lines", "columns", "dtype"), SHAPES)
@pytest.mark.parametrize("name", [*SPECS, *TURNED])
def test_columns_are_those_of_the_definition(name: str, lines: int, columns: int, dtype: str) -> None:
    given = drawn(name, lines, columns, dtype)
    run, true = FORMS[name].compile("cuda"), truth(name, given)
    found = [run(**given) for _ in range(3)]
    agree(found[0], true, dtype)
    assert all(torch.equal(found[0], x) for x in found[1:])
    if found[0].ndim == 2:
        assert found[0].stride() == given["x"].stride()
        out = torch.empty_like(true, dtype=found[0].dtype, memory_format=torch.contiguous_format)
        assert run(**given, out=out) is out
        agree(out, true, dtype)


def test_they_are_in_two_steps_and_captured() -> None:
    given = drawn("softmax", 300001, 77, "float32")
    run = FORMS["softmax"].compile("cuda")
    first = run(**given)
    assert "read as one" in run.explain() and "# Kernel 5 of 5" in run.source
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = run(**given)
    given["x"].mul_(0.5)
    graph.replay()
    assert not torch.equal(first, found)
    agree(found, truth("softmax", given), "float32")


def test_infinities_and_nan_stay_in_their_columns() -> None:
    given = drawn("softmax", 40003, 77, "float32")
    given["x"][7, 3], given["x"][9, 4], given["x"][:, 5] = float("-inf"), float("nan"), float("-inf")
    found = FORMS["softmax"].compile("cuda")(**given)
    kept = [c for c in range(77) if c not in (4, 5)]
    assert bool(found[:, 4].isnan().all()) and not bool(found[:, kept].isnan().any())
    assert float(found[7, 3]) == 0.0 and float(found[:, 3].sum()) == pytest.approx(1.0, abs=1e-4)
    reference = ra.reference(FORMS["softmax"].spec, x=given["x"][:, 5:6].double().cpu().numpy())
    assert bool(torch.as_tensor(reference).isnan().all()) is bool(found[:, 5].isnan().all())
