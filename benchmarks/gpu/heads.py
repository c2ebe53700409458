"""Loss heads beside PyTorch: time and memory of a loss over H·Wᵀ with the gradients of H and of W, in one run.

`python -m benchmarks.gpu.heads [--sizes 8192,4096,151936] [--out FILE] [--compile]` checks values and gradients against
float64 (samples of rows and columns), then times every contender in turn, forward and backward, with fresh cotangents.
Memory is the peak above what was there before and what a call leaves (results and gradients). "products" are the bare
products of the same sizes: three with gradients in the call, four with a backward pass that makes the logits again.
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

LOSS = """tensors H[t,d], W[v,d], y[t] integer;
    z = sum[d](H[t,d]*W[v,d]);
    return loss = mean[t](logsumexp[v](z) - sum[v](where(index[v] == y[t], z, 0)))"""
ROWS = """tensors H[t,d], W[v,d], y[t] integer;
    z = sum[d](H[t,d]*W[v,d]); m = max[v](z); p = exp(z - m); l = m + log(sum[v](p));
    dtype logp = float32; dtype lse = float32; dtype entropy = float32;
    return logp = sum[v](where(index[v] == y[t], z, 0)) - l, lse = l, entropy = l - sum[v](p*z)/sum[v](p)"""
Step = Callable[[], tuple[Any, ...]]  # a loss or values of rows, and the gradients of H and of W


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--sizes", default="8192,4096,151936", help="tokens, hidden size, vocabulary; several: semicolon"
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--compile", action="store_true", help="torch.compile of the whole loss, too")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(words)
    for sizes in options.sizes.split(";"):
        tokens, hidden, vocabulary = (int(n) for n in sizes.split(","))
        for line in lines(tokens, hidden, vocabulary, options):
            print(json.dumps(line), flush=True)
            if options.out:
                with options.out.open("a") as f:
                    f.write(json.dumps(line | stamp()) + "\n")


def lines(tokens: int, hidden: int, vocabulary: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    import torch

    torch.manual_seed(0)
    H = torch.randn(tokens, hidden, device="cuda", dtype=torch.bfloat16).requires_grad_()
    W = (torch.randn(vocabulary, hidden, device="cuda") / hidden**0.5).bfloat16().requires_grad_()
    y = torch.randint(0, vocabulary, (tokens,), device="cuda")
    found = []
    for name, step in contenders(H, W, y, options.compile).items():
        line: dict[str, Any] = {
            "sizes": [tokens, hidden, vocabulary],
            "who": name,
            "device": torch.cuda.get_device_name(),
        }
        try:
            line |= {"error": checked(step(), H, W, y) if "products" not in name else None}
            line |= timed(step, options.rounds)
        except Exception as problem:
            line["failed"] = repr(problem)[:300]
        found.append(line)
        torch.cuda.empty_cache()
    return found


def contenders(H: Any, W: Any, y: Any, compiled: bool) -> dict[str, Step]:
    import torch
    import torch.nn.functional as F

    def graded(loss: Callable[[], Any]) -> Step:
        def step() -> tuple[Any, ...]:
            value = loss()
            values = value if isinstance(value, tuple) else (value,)
            slopes = [torch.ones_like(v) if v.dim() == 0 else torch.full_like(v, -1 / v.shape[0]) for v in values[:1]]
            slopes += [torch.zeros_like(v) for v in values[1:]]
            return (values[0].detach(), *torch.autograd.grad(values, (H, W), slopes))

        return step

    loss, rows = ra.parse(LOSS), ra.parse(ROWS)
    found: dict[str, Step] = {}
    for held in ("bfloat16", None):
        word = held or "float32"
        now = ra.torch.head(loss, gradients="now", logits=held)
        later = ra.torch.head(rows, logits=held)
        found[f"ours, in the call, logits {word}"] = graded(lambda now=now: now(H, W, y))
        found[f"ours, log p, lse, entropy, logits {word}"] = graded(lambda later=later: later(H, W, y))
    found["torch"] = graded(lambda: F.cross_entropy((H @ W.T).float(), y))
    if compiled:
        whole = torch.compile(lambda h, w, y: F.cross_entropy((h @ w.T).float(), y))
        found["torch.compile"] = graded(lambda: whole(H, W, y))
    found["torch in chunks"] = lambda: chunked(H.detach(), W.detach(), y)
    h, w = H.detach(), W.detach()
    for count in (3, 4):
        found[f"{count} products"] = lambda count=count: products(h, w, count)
    return found


def chunked(H: Any, W: Any, y: Any, rows: int = 1024) -> tuple[Any, ...]:
    """As training code does it by hand: logits of some tokens, their gradient at once, dW added in bfloat16."""
    import torch

    dH, dW, total = torch.empty_like(H), torch.zeros_like(W), 0.0
    for start in range(0, H.shape[0], rows):
        h, t = H[start : start + rows], y[start : start + rows]
        z = (h @ W.T).float()
        lse = torch.logsumexp(z, 1)
        total = total + (lse - z.gather(1, t[:, None])[:, 0]).sum()
        p = (z - lse[:, None]).exp_()
        p.scatter_add_(1, t[:, None], -torch.ones_like(t, dtype=p.dtype)[:, None])
        slope = (p / H.shape[0]).to(H.dtype)
        dH[start : start + rows] = slope @ W
        dW.addmm_(slope.mT, h)
    return total / H.shape[0], dH, dW


def products(h: Any, w: Any, count: int, rows: int = 2048) -> tuple[Any, ...]:
    import torch

    z = torch.empty(rows, w.shape[0], device=h.device, dtype=h.dtype)
    dW, dH = torch.empty_like(w), torch.empty_like(h)
    for start in range(0, h.shape[0], rows):
        part = h[start : start + rows]
        own = z[: part.shape[0]]
        for _ in range(count - 2):
            torch.mm(part, w.mT, out=own)
        torch.mm(own, w, out=dH[start : start + rows])
        torch.mm(own.mT, part, out=dW)
    return (dH,)


def checked(found: tuple[Any, ...], H: Any, W: Any, y: Any) -> float:
    """The largest relative error of dH and dW, over a sample, in the largest value; values of rows or their mean."""
    import torch

    value, dH, dW = found
    h, w, tokens = H.detach(), W.detach(), H.shape[0]
    lse = torch.cat(
        [torch.logsumexp((h[s : s + 256].float() @ w.float().T).double(), 1) for s in range(0, tokens, 256)]
    )
    pick = (h.double() * w[y].double()).sum(1)
    truth = (lse - pick).mean() if value.dim() == 0 else pick - lse
    errors = [float((value.double() - truth).abs().max() / truth.abs().max())]
    rows = torch.tensor([0, tokens // 2 + 1, tokens - 1], device=h.device)
    p = torch.softmax(h[rows].double() @ w.double().T, 1)
    p[torch.arange(len(rows)), y[rows]] -= 1
    expected = p @ w.double() / tokens
    errors.append(float((dH[rows].double() - expected).abs().max() / expected.abs().max()))
    columns = torch.cat([y[:2], torch.tensor([0, w.shape[0] - 1], device=h.device)])
    q = ((h.double() @ w[columns].double().T) - lse[:, None]).exp() - (y[:, None] == columns[None, :]).double()
    expected = q.T @ h.double() / tokens
    errors.append(float((dW[columns].double() - expected).abs().max() / expected.abs().max()))
    return max(errors)


def timed(step: Step, rounds: int) -> dict[str, Any]:
    import torch

    step()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    kept = step()
    torch.cuda.synchronize()
    peak, left = torch.cuda.max_memory_allocated() - before, torch.cuda.memory_allocated() - before
    del kept
    times = []
    for _ in range(rounds):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        step()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop))
    return {
        "ms": round(statistics.median(times), 2),
        "least": round(min(times), 2),
        "GiB above": round((peak - left) / 2**30, 2),
    }


if __name__ == "__main__":
    main()
