"""Operators and heads with more tensors than PyTorch's schemas have arguments: one list, and every habit as before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import redalg as ra
from redalg.adapters import torch_op
from tests.support.torch_habits import HABITS, Case
from tests.support.torch_operators import OPERATORS

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore")
NAMES = ("masked_layer_norm", "top_two_gates")
_CASES: dict[str, Case] = {}


@pytest.fixture
def lists(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every operator that is made has more tensors than fit."""
    monkeypatch.setattr(torch_op, "MOST_ARGUMENTS", 0)
    yield


def listed(name: str) -> Case:
    if name not in _CASES:
        row = OPERATORS[name]
        form = ra.derive_incremental(row.spec, axis=row.axis)
        _CASES[name] = Case(name, row, form.torch_op(f"listed::{name}", row.assume))
    return _CASES[name]


@pytest.mark.parametrize("habit", [h for h in HABITS if h not in ("pytorchs_check_of_operators", "registered_once")])
@pytest.mark.parametrize("name", NAMES)
def test_habits(name: str, habit: str, lists: None) -> None:
    HABITS[habit](listed(name))


@pytest.mark.parametrize("name", NAMES)
def test_pytorchs_own_check(name: str, lists: None) -> None:
    given = listed(name)
    for suffix in ("", "_saved"):
        operator = getattr(torch.ops.listed, f"{name}{suffix}").default
        assert len(operator._schema.arguments) == 1
        torch.library.opcheck(operator, (given.drawn(),))


def test_seventy_tensors() -> None:
    """Values, gradients, slopes of these and a compiled step, beside plain PyTorch."""
    names = [f"x{k}" for k in range(70)]
    parts = " + ".join(f"({k + 1})*{n}[j]**2" for k, n in enumerate(names))
    op = ra.derive_incremental(ra.parse(f"return y = log(sum[j]({parts}))")).torch_op("listed::seventy")
    given = [torch.randn(3, dtype=torch.float64).requires_grad_() for _ in names]
    order = [int(d.name[1:]) for d in op.tensors]

    def plain(*own: torch.Tensor) -> torch.Tensor:
        return torch.log(sum((k + 1) * (x**2).sum() for k, x in zip(order, own, strict=True)))

    for f in (op, torch.compile(op, fullgraph=True, backend="aot_eager")):
        pairs = [torch.autograd.grad(g(*given), given) for g in (f, plain)]
        torch.testing.assert_close(pairs[0], pairs[1])
    mapped = torch.vmap(op)(*(torch.stack([x, 2 * x]) for x in given))
    torch.testing.assert_close(mapped, torch.stack([plain(*given), plain(*(2 * x for x in given))]))


@pytest.mark.parametrize("gradients", ["later", "now"])
def test_heads_of_many_tensors(gradients: str) -> None:
    """Losses of seventy weights of rows: values, gradients, slopes of these, maps, a compiled step."""
    names = [f"w{k}" for k in range(70)]
    parts = " + ".join(f"{n}[t]*({k + 1})" for k, n in enumerate(names))
    text = f"l = logsumexp[v](sum[d](H[t,d]*W[v,d])); return loss = sum[t](l*({parts}))"
    head = ra.torch.head(ra.parse(text), f"listed::head_{gradients}", gradients)
    drawn = {"H": torch.randn(3, 2), "W": torch.randn(4, 2)} | {n: torch.rand(3) for n in names}
    given = [drawn[d.name].double().requires_grad_() for d in head.tensors]

    def plain(*own: torch.Tensor) -> torch.Tensor:
        held = dict(zip((d.name for d in head.tensors), own, strict=True))
        return ((held["H"] @ held["W"].mT).logsumexp(1) * sum((k + 1) * held[n] for k, n in enumerate(names))).sum()

    def second(function: object) -> list[torch.Tensor]:
        slopes = torch.autograd.grad(function(*given), given, create_graph=True)
        return list(torch.autograd.grad(sum(s.square().sum() for s in slopes), given))

    for f in (head, torch.compile(head, fullgraph=True, backend="aot_eager")):
        torch.testing.assert_close(*(torch.autograd.grad(g(*given), given) for g in (f, plain)))
    torch.testing.assert_close(second(head), second(plain))
    many = [torch.stack([x, 2 * x]) for x in given]
    torch.testing.assert_close(torch.vmap(head)(*many), torch.stack([plain(*given), plain(*(2 * x for x in given))]))
    own, want = (torch.func.jvp(f, tuple(given), tuple(given)) for f in (head, plain))
    torch.testing.assert_close(own, want)
    mapped = torch.vmap(torch.func.grad(head))(*many)
    torch.testing.assert_close(mapped, torch.vmap(torch.func.grad(plain))(*many))
