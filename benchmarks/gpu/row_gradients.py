"""Backward passes of operations on rows beside PyTorch's and torch.compile's, on shapes drawn by seed.

`python -m benchmarks.gpu.row_gradients --out gradients.jsonl` draws cells of today's date and writes one JSON line for
each; `--cells known` are the shapes that others publish. A contender is an operator under autograd: its forward pass
runs once for every set of arguments, and what is timed is `torch.autograd.grad` of its outputs alone, as replayed CUDA
graphs over sets that rotate through more than the caches hold. Gradients are compared with autograd in float64 first,
and with those of a second run, bit by bit. `--report` writes the table beside the lines. `--ways` times gradients of
rows and of sums over them in one reading and one after the other, without autograd, beside what the model predicts.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness.processes import stamp

LEAST, MOST = 1 << 20, 400 * 10**6  # bytes of the tensor whose gradient is taken
DTYPES = ("bfloat16", "float16", "float32")
BOUNDS = {"bfloat16": 2**-7, "float16": 2**-9, "float32": 2e-5}  # of the largest entry, sums over rows included
ROTATE = 256 << 20
MISSES = 0.97


Cell = tuple[str, str, int, int]


@dataclass(frozen=True)
class Operation:
    """A spec, what PyTorch users write for it, its arguments (axes by name) and those whose gradients are taken."""

    text: str
    peer: Callable[..., Any]
    arguments: dict[str, str]
    wanted: tuple[str, ...]
    kept: bool = False  # whether the result has a number for every element
    blind: bool = False  # whether gradients are written without reading elements again

    def passes(self) -> int:
        """How many arrays along rows a backward pass reads and writes, at least."""
        wide = sum({*self.arguments[n]} in ({*"ij"}, {*"ngck"}) for n in self.wanted)
        return (2 - self.blind) * wide + self.kept


def lengths(cell: Cell) -> dict[str, int]:
    """Of axes: rows i of j elements, or samples n with groups g of channels c at places k."""
    _, _, rows, length = cell
    groups, channels = (next(d for d in (32, 16, 8, 4, 2, 1) if n % d == 0) for n in (rows, length))
    return {"i": rows, "j": length, "n": rows // groups, "g": groups, "c": channels, "k": length // channels}


def _operations() -> dict[str, Operation]:
    import torch
    import torch.nn.functional as F

    def norm(x: Any, w: Any) -> Any:
        return F.rms_norm(x, (x.shape[-1],), w, 1e-5)

    def layer(x: Any, w: Any, b: Any) -> Any:
        return F.layer_norm(x, (x.shape[-1],), w, b, 1e-5)

    def group(x: Any, w: Any, b: Any) -> Any:
        n, g, c, k = x.shape
        return F.group_norm(x.view(n, g * c, k), g, w.view(-1), b.view(-1), 1e-5).view(x.shape)

    def smoothed(x: Any, t: Any) -> Any:
        return F.cross_entropy(x, t, reduction="none", label_smoothing=0.1)

    def penalised(x: Any, t: Any) -> Any:
        lse = torch.logsumexp(x.float(), -1)
        return lse - x.gather(-1, t[:, None])[:, 0].float() + 1e-4 * lse * lse

    lse = "m = max[j](x[i,j]); l = m + log(sum[j](exp(x[i,j] - m)));"
    label = "sum[j](where(index[j] == t[i], x[i,j], 0))"
    eps = "1/100000"
    x, xw, xt = {"x": "ij"}, {"x": "ij", "w": "j"}, {"x": "ij", "t": "i"}
    return {
        "softmax": Operation(
            "m = max[j](x[i,j]); e = exp(x[i,j] - m); return y = e/sum[j](e)",
            lambda x: F.softmax(x, -1),
            x,
            ("x",),
            True,
        ),
        "log_softmax": Operation(f"{lse} return y = x[i,j] - l", lambda x: F.log_softmax(x, -1), x, ("x",), True),
        "cross_entropy": Operation(
            f"tensors x[i,j], t[i] integer; {lse} return y = l - {label}",
            lambda x, t: F.cross_entropy(x, t, reduction="none"),
            xt,
            ("x",),
        ),
        "label_smoothing": Operation(
            f"tensors x[i,j], t[i] integer; {lse} return y = l - 9/10*{label} - 1/10*mean[j](x[i,j])",
            smoothed,
            xt,
            ("x",),
        ),
        "z_loss": Operation(
            f"tensors x[i,j], t[i] integer; {lse} return y = l - {label} + 1/10000*l**2", penalised, xt, ("x",)
        ),
        "rms_norm": Operation(
            f"tensors x[i,j], w[j]; return y = x[i,j]/sqrt(mean[j](x[i,j]**2) + {eps})*w[j]", norm, xw, ("x", "w"), True
        ),
        "layer_norm": Operation(
            "tensors x[i,j], w[j], b[j]; u = mean[j](x[i,j]); v = mean[j]((x[i,j] - u)**2);"
            f"return y = (x[i,j] - u)/sqrt(v + {eps})*w[j] + b[j]",
            layer,
            {"x": "ij", "w": "j", "b": "j"},
            ("x", "w", "b"),
            True,
        ),
        "group_norm": Operation(
            "tensors x[n,g,c,k], w[g,c], b[g,c]; u = mean[c,k](x[n,g,c,k]); v = mean[c,k]((x[n,g,c,k] - u)**2);"
            f"return y = (x[n,g,c,k] - u)/sqrt(v + {eps})*w[g,c] + b[g,c]",
            group,
            {"x": "ngck", "w": "gc", "b": "gc"},
            ("x", "w", "b"),
            True,
        ),
        "max_pooling": Operation("return y = max[j](x[i,j])", lambda x: x.max(-1).values, x, ("x",), blind=True),
        "log_mean_exp_pooling": Operation(
            f"{lse} return y = l - log(size[j])", lambda x: torch.logsumexp(x, -1) - math.log(x.shape[-1]), x, ("x",)
        ),
        "cosine_similarity": Operation(
            "return c = sum[j](x[i,j]*y[i,j])/sqrt(sum[j](x[i,j]**2))/sqrt(sum[j](y[i,j]**2))",
            lambda x, y: F.cosine_similarity(x, y, -1),
            {"x": "ij", "y": "ij"},
            ("x", "y"),
        ),
        "entropy": Operation(
            f"{lse} p = exp(x[i,j] - l); return h = l - sum[j](p*x[i,j])",
            lambda x: torch.logsumexp(x, -1) - (F.softmax(x, -1) * x).sum(-1),
            x,
            ("x",),
        ),
        "kl_divergence": Operation(
            f"{lse} n = max[j](z[i,j]); k = n + log(sum[j](exp(z[i,j] - n)));"
            "return d = sum[j](exp(x[i,j] - l)*(x[i,j] - l - z[i,j] + k))",
            lambda x, z: F.kl_div(F.log_softmax(z, -1), F.log_softmax(x, -1), reduction="none", log_target=True).sum(
                -1
            ),
            {"x": "ij", "z": "ij"},
            ("x", "z"),
        ),
    }


KNOWN: tuple[Cell, ...] = (
    ("rms_norm", "bfloat16", 16384, 4096),
    ("layer_norm", "bfloat16", 16384, 4096),
    ("rms_norm", "bfloat16", 8192, 8192),
    ("softmax", "bfloat16", 16384, 4096),
    ("rms_norm", "bfloat16", 4096, 16384),
    ("layer_norm", "bfloat16", 16384, 1024),
    ("rms_norm", "float32", 8192, 4096),
    ("cross_entropy", "bfloat16", 4096, 32000),
    ("log_softmax", "bfloat16", 16384, 4096),
)


def drawn(seed: str, count: int) -> Iterator[Cell]:
    """Cells of a seed (a date, say): rows and lengths log-uniform and not rounded."""
    rng = random.Random(seed)
    names = [*_operations(), "rms_norm", "layer_norm"]
    for _ in range(count):
        operation, dtype = rng.choice(names), rng.choice(DTYPES)
        size = round(math.exp(rng.uniform(math.log(LEAST), math.log(MOST)))) // (4 if dtype == "float32" else 2)
        length = round(math.exp(rng.uniform(math.log(32), math.log(min(65536, size // 8)))))
        yield operation, dtype, max(1, size // length), length


# --- measuring -------------------------------------------------------------------------------------------------------


def arguments_of(op: Operation, cell: Cell, seed: int, wide: bool = False) -> list[Any]:
    import torch

    _, kind, _, length = cell
    rng, found = torch.Generator(device="cuda").manual_seed(seed), []
    for name, axes in op.arguments.items():
        shape = [lengths(cell)[a] for a in axes]
        if name == "t":
            found.append(torch.randint(0, length, shape, device="cuda", generator=rng))
            continue
        a = torch.randn(shape, device="cuda", generator=rng, dtype=torch.float32).to(getattr(torch, kind))
        found.append((a.double() if wide else a).requires_grad_(name in op.wanted))
    return found


def pulling(op: Operation, f: Callable[..., Any], cell: Cell, count: int, wide: bool = False) -> Callable[[int], Any]:
    """What pulls cotangents back through outputs that were computed before, for so many sets of arguments."""
    import torch

    held = []
    for seed in range(count):
        arguments = arguments_of(op, cell, seed, wide)
        output = f(*arguments)
        rng = torch.Generator(device="cuda").manual_seed(1000 + seed)
        cotangent = torch.randn(output.shape, device="cuda", generator=rng, dtype=torch.float32)
        cotangent = cotangent.to(getattr(torch, cell[1])).to(output.dtype)
        inputs = [a for a, n in zip(arguments, op.arguments, strict=True) if n in op.wanted]
        held.append((output, inputs, cotangent))

    def pull(n: int) -> Any:
        output, inputs, cotangent = held[n]
        return torch.autograd.grad(output, inputs, cotangent, retain_graph=True)

    return pull


def seconds(pull: Callable[[int], Any], sets: int, repeats: int) -> float:
    """The least of some times of a backward pass, as replayed graphs over all sets."""
    import torch

    for n in range(sets):
        pull(n)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):  # the one that the forward pass ran on
        for n in range(sets):
            pull(n)
    graph.replay()
    torch.cuda.synchronize()
    found = []
    for _ in range(repeats):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(3):
            graph.replay()
        stop.record()
        stop.synchronize()
        found.append(start.elapsed_time(stop) * 1e-3 / 3 / sets)
    return min(found)


def contenders(op: Operation, modes: Sequence[str], peers: bool) -> dict[str, Callable[..., Any]]:
    import torch

    import redalg as ra
    import redalg.torch

    found: dict[str, Callable[..., Any]] = {"redalg": redalg.torch.compile(ra.parse(op.text))}
    if peers:
        found["torch"] = op.peer
        found |= {f"inductor {m}": torch.compile(op.peer, mode=m, dynamic=False) for m in modes}
    return found


def measured(op: Operation, cell: Cell, options: argparse.Namespace) -> dict[str, Any]:
    import torch

    torch._dynamo.reset()
    size = cell[2] * cell[3] * (4 if cell[1] == "float32" else 2)
    sets = max(2, min(12, 1 + ROTATE // (size * 2)))
    truth = [g.detach() for g in pulling(op, op.peer, cell, 1, wide=True)(0)]
    record: dict[str, Any] = {"bytes": op.passes() * size, "results": {}}
    for name, f in contenders(op, options.modes.split(","), options.peers).items():
        try:
            pull = pulling(op, f, cell, sets)
            made, again = pull(0), pull(0)
            errors = [
                float((a.double() - b).abs().max() / b.abs().max().clamp_min(1e-30))
                for a, b in zip(made, truth, strict=True)
            ]
            same = all(bool((a == b).all() | (a != a).any()) for a, b in zip(made, again, strict=True))
            wrong = max(errors) > BOUNDS[cell[1]] if name == "redalg" else False
            found = {"us": seconds(pull, sets, options.repeats) * 1e6, "error": max(errors), "same bits": same}
            record["results"][name] = found | ({"wrong": True} if wrong or errors != errors else {})
        except Exception as problem:
            record["results"][name] = {"failed": f"{type(problem).__name__}: {problem}"[:400]}
        pull = None  # type: ignore[assignment]
        torch.cuda.empty_cache()
    return record


@cache
def units_of(text: str, wanted: tuple[str, ...]) -> list[Any]:
    import redalg as ra

    return ra.parse(text).vjp().together(wanted)


def ways(op: Operation, cell: Cell, options: argparse.Namespace) -> dict[str, Any] | None:
    """One reading and the specs one after the other: microseconds as measured and as predicted; None where gradients
    have no sums over rows."""
    import torch

    from redalg.joint import Joint

    unit, *rest = units_of(op.text, op.wanted)
    if not isinstance(unit, Joint) or rest:
        return None
    _, kind, rows, length = cell
    sizes, size = lengths(cell), rows * length * (4 if kind == "float32" else 2)
    held: list[dict[str, Any]] = []
    for seed in range(max(2, min(12, 1 + ROTATE // (size * 2)))):
        rng = torch.Generator(device="cuda").manual_seed(seed)
        own = {}
        for d in unit.spec.tensors:
            a = torch.rand([sizes[x] for x in d.axes], device="cuda", generator=rng) + 0.5
            saved = d.name not in op.arguments and not d.name.startswith("grad_")
            own[d.name] = a if saved else a.to(getattr(torch, kind))
        held.append(own)
    together = unit.compile("cuda", schedule={})
    apart = [form.compile("cuda") for form in unit.forms]
    reads = [[d.name for d in form.spec.tensors] for form in unit.forms]

    def one(n: int) -> Any:
        return together(**held[n])

    def each(n: int) -> Any:
        return [run(**{x: held[n][x] for x in names}) for run, names in zip(apart, reads, strict=True)]

    record: dict[str, Any] = {"bytes": op.passes() * size, "results": {}}
    for name, pull in (("one reading", one), ("one after the other", each)):
        try:
            record["results"][name] = {"us": seconds(pull, len(held), options.repeats) * 1e6}
        except Exception as problem:
            record["results"][name] = {"failed": f"{type(problem).__name__}: {problem}"[:300]}
    if "us" in record["results"]["one reading"]:
        record["results"]["one reading"]["predicted"] = together.planned.choice.seconds * 1e6
        record["results"]["one reading"]["schedule"] = str(together.schedule)
    record["results"]["one after the other"]["predicted"] = [r.planned.choice.seconds * 1e6 for r in apart]
    record["results"]["one after the other"]["schedule"] = [str(r.schedule) for r in apart]
    return record


def run(options: argparse.Namespace) -> None:
    import torch
    import torch._functorch.config as functorch

    functorch.donated_buffer = False  # a graph that is kept has no buffers to give away
    began, operations, stream = time.time(), _operations(), torch.cuda.Stream()
    known = list(KNOWN) if options.cells != "drawn" else []
    cells = known + (list(drawn(options.seed, options.count)) if options.cells != "known" else [])
    part, parts = (int(n) for n in options.part.split("/"))
    measure = ways if options.ways else measured
    done = {line["cell"] for line in lines_of(options.out) if "cell" in line}
    versions = {"torch": torch.__version__, "device": torch.cuda.get_device_name(0), "python": sys.version.split()[0]}
    write(options.out, {"conditions": versions, "command": " ".join(sys.argv[1:])})
    for cell in cells[part::parts]:
        name = " ".join(map(str, cell))
        if name in done or options.only not in name:
            continue
        if time.time() - began > options.budget:
            print("the time is up; the same command goes on", flush=True)
            return
        with torch.cuda.stream(stream):
            found = measure(operations[cell[0]], cell, options)
        if found is None:
            continue
        record = {"cell": name, **found}
        write(options.out, record)
        print(told(record), flush=True)


# --- what is told ----------------------------------------------------------------------------------------------------


def lines_of(path: Path | None) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path and path.exists() else []


def write(path: Path | None, record: dict[str, Any]) -> None:
    if path is not None:
        with path.open("a") as file:
            file.write(json.dumps({**record, **stamp()}) + "\n")


def ratio(record: dict[str, Any]) -> float | None:
    """The time of the best peer over ours."""
    times = {n: r["us"] for n, r in record["results"].items() if "us" in r}
    ours = times.pop("redalg", None)
    return min(times.values()) / ours if ours and times else None


def told(record: dict[str, Any]) -> str:
    each = []
    for name, r in record["results"].items():
        text = f"{r['us']:.1f}" if "us" in r else r["failed"][:160]
        each.append(f"{name} {text}{' WRONG' if r.get('wrong') else ''}{'' if r.get('same bits', True) else ' varies'}")
    ours = record["results"].get("redalg", {}).get("us")
    rate = f" ({record['bytes'] / ours / 1e6:.2f} TB/s)" if ours else ""
    times = ratio(record)
    return f"{record['cell']:40} {'; '.join(each)}{rate}{f'; {times:.2f}x' if times else ''}"


def report(path: Path) -> str:
    """The table of a file of lines, in Markdown."""
    records = [line for line in lines_of(path) if "cell" in line]
    conditions = [line for line in lines_of(path) if "conditions" in line]
    rows = ["| cell | redalg, us | TB/s | torch | torch.compile | best peer / redalg |", "|---|---|---|---|---|---|"]
    for r in records:
        times = {n: x.get("us") for n, x in r["results"].items()}
        ours, compiled = times.get("redalg"), [t for n, t in times.items() if n.startswith("inductor") and t]
        rate = f"{r['bytes'] / ours / 1e6:.2f}" if ours else ""
        shown = [f"{t:.1f}" if t else "failed" for t in (ours, times.get("torch"), min(compiled, default=None))]
        found = ratio(r)
        last = f"{found:.2f}" if found else ""
        rows.append(f"| {r['cell']} | {shown[0]} | {rate} | {shown[1]} | {shown[2]} | {last} |")
    ratios = sorted(x for r in records if (x := ratio(r)))
    if ratios:
        low = sum(x < MISSES for x in ratios)
        rows += ["", f"{len(ratios)} cells: median {median(ratios):.2f}, least {ratios[0]:.2f}, {low} below {MISSES}."]
        ours = [r["results"]["redalg"] for r in records if "us" in r["results"].get("redalg", {})]
        same, wrong = (sum(bool(x.get(word)) for x in ours) for word in ("same bits", "wrong"))
        rows += [
            f"redalg: {same} of {len(ours)} with the same bits in a second run, {wrong} outside of the error allowed."
        ]
    return "\n".join([*(f"{c['conditions']}: `{c['command']}`\n" for c in conditions[:1]), *rows]) + "\n"


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--out", type=Path)
    add("--report", type=Path, help="write the table of such a file, and stop")
    add("--cells", default="drawn", choices=("drawn", "known", "both"))
    add("--seed", default=datetime.date.today().isoformat())
    add("--count", type=int, default=40)
    add("--only", default="")
    add("--part", default="0/1", help="k/n: every n-th cell from the k-th on")
    add("--ways", action="store_true", help="one reading beside one spec after the other")
    add("--peers", action=argparse.BooleanOptionalAction, default=True)
    add("--modes", default="default")
    add("--budget", type=float, default=540.0)
    add("--repeats", type=int, default=5)
    options = parser.parse_args(words)
    if options.report:
        options.report.with_suffix(".md").write_text(report(options.report))
        return
    run(options)


if __name__ == "__main__":
    main()
