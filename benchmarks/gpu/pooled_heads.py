"""SPLADE's head beside PyTorch: time and memory of log1p(relu(max over tokens of H·Eᵀ + b)), with its gradients.

`python -m benchmarks.gpu.pooled_heads [--sizes 64,256,30522,768] [--out FILE] [--compile]`. One token of a text is
larger than the others (`--skew`), so that maxima share positions as trained models' do; the share of the most frequent
one is told. Gradients are compared with float64 for some texts, and with those of a second run, bit by bit. "product":
the bare H·Eᵀ of cuBLAS.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redalg as ra
from benchmarks.harness.processes import stamp

SPEC = """tensors H[b,s,d], E[v,d], bias[v], n[b] integer;
    m = max[s](where(index[s] < n[b], sum[d](H[b,s,d]*E[v,d]), -oo));
    return Y = log(1 + relu(m + bias[v]))"""


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="64,256,30522,768", help="texts, tokens, vocabulary, width; several with ;")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--compile", action="store_true", help="torch.compile, too")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--skew", type=float, default=2.0, help="times which the tokens of one place are larger")
    parser.add_argument("--shift", type=float, default=0.0, help="of the bias: how few outputs are not 0")
    options = parser.parse_args(words)
    for sizes in options.sizes.split(";"):
        for line in lines([int(n) for n in sizes.split(",")], options):
            print(json.dumps(line), flush=True)
            if options.out:
                with options.out.open("a") as f:
                    f.write(json.dumps(line | stamp()) + "\n")


def lines(sizes: list[int], options: argparse.Namespace) -> list[dict[str, Any]]:
    import torch

    texts, tokens, vocabulary, width = sizes
    torch.manual_seed(0)
    H = torch.randn(texts, tokens, width, device="cuda")
    H[:, 3 % tokens] *= options.skew
    E = torch.randn(vocabulary, width, device="cuda") / width**0.5
    bias = torch.randn(vocabulary, device="cuda") * 0.1 + options.shift
    H, E, bias = (x.bfloat16().requires_grad_() for x in (H, E, bias))
    n = torch.randint(tokens // 2, tokens + 1, (texts,), device="cuda")
    slope = torch.randn(texts, vocabulary, device="cuda").bfloat16()
    beyond = (torch.arange(tokens, device="cuda")[None] >= n[:, None])[..., None]

    def dense(H: Any, E: Any, bias: Any) -> Any:
        z = (H @ E.T).masked_fill(beyond, -torch.inf)
        return torch.log1p(torch.relu(z.amax(1) + bias))

    def first(H: Any, E: Any, bias: Any) -> Any:  # which token gets the gradient is PyTorch's max, not amax
        z = (H @ E.T).masked_fill(beyond, -torch.inf)
        return torch.log1p(torch.relu(z.max(1).values + bias))

    head = ra.torch.head(ra.parse(SPEC))
    calls: dict[str, Callable[..., Any]] = {"ours": lambda *own: head(*own, n), "torch": first, "torch, amax": dense}
    if options.compile:
        calls["torch.compile"] = torch.compile(first)
    wide = [x.detach()[:4].double() if x.dim() == 3 else x.detach().double() for x in (H, E, bias)]
    found = []
    for name, call in calls.items():
        line: dict[str, Any] = {"sizes": sizes, "who": name, "device": torch.cuda.get_device_name()}
        try:
            line |= measured(call, (H, E, bias), slope, options.rounds)
            line["error"] = error(call, (H, E, bias), slope, n, wide)
        except Exception as problem:
            line["failed"] = repr(problem)[:300]
        found.append(line)
        torch.cuda.empty_cache()
    with torch.no_grad():
        z = torch.where(beyond[:4], -torch.inf, (H[:4] @ E.T).float())
        place, value = z.argmax(1), z.amax(1) + bias
        share = max(float((place[k] == p).float().mean()) for k in range(len(place)) for p in place[k].unique()[:4])
        product = timed(lambda: H @ E.T, options.rounds)
    found.append(
        {"sizes": sizes, "who": "product", "forward ms": product, "share of a place": share}
        | {"share above 0": float((value > 0).float().mean())}
    )
    return found


def measured(call: Callable[..., Any], leaves: tuple[Any, ...], slope: Any, rounds: int) -> dict[str, Any]:
    import torch

    def forward() -> Any:
        with torch.no_grad():
            return call(*leaves)

    def both() -> Any:
        return torch.autograd.grad(call(*leaves), leaves, slope)

    one, two = both(), both()
    same = all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    del one, two
    found: dict[str, Any] = {"forward ms": timed(forward, rounds), "both ms": timed(both, rounds), "same bits": same}
    for name, f in (("forward GiB", forward), ("both GiB", both)):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        made = f()
        left = torch.cuda.memory_allocated() - before
        found[name] = round((torch.cuda.max_memory_allocated() - before - left) / 2**30, 3)
        del made
    return found


def timed(f: Callable[[], Any], rounds: int) -> float:
    import torch

    f()
    found = []
    for _ in range(rounds):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(3):
            f()
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end) / 3)
    return round(statistics.median(found), 3)


def error(call: Callable[..., Any], leaves: tuple[Any, ...], slope: Any, n: Any, wide: list[Any]) -> dict[str, float]:
    """Relative to the largest entry, over a few texts: the output, and the gradients of these texts' rows and of E."""
    import torch

    some = wide[0].shape[0]
    H, E, bias = (x.detach() for x in leaves)
    own = [H.clone(), E.clone(), bias.clone()]
    own = [x.requires_grad_() for x in own]
    y = call(*own)
    push = torch.zeros_like(slope)
    push[:some] = slope[:some]
    grads = torch.autograd.grad(y, own, push)
    h, e, b = (x.clone().requires_grad_() for x in wide)
    z = (h @ e.T).masked_fill(
        (torch.arange(h.shape[1], device=h.device)[None] >= n[:some, None])[..., None], -torch.inf
    )
    truth = torch.log1p(torch.relu(z.max(1).values + b))
    wanted = torch.autograd.grad(truth, (h, e, b), slope[:some].double())
    pairs = [("Y", y[:some], truth), ("dH", grads[0][:some], wanted[0]), ("dE", grads[1], wanted[1])]
    pairs.append(("db", grads[2], wanted[2]))
    # entries whose maximum another token may have by rounding differ by a whole row: the norm says how far that goes
    return {k: float(((a.double() - t).norm() / t.norm()).detach()) for k, a, t in pairs}


if __name__ == "__main__":
    main()
