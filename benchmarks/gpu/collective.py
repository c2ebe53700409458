"""`python -m benchmarks.gpu.collective`: forms over GPUs by NCCL: weak scaling, and the merge of a decode step.

One process for each GPU. A case has the same elements on every rank; its time on one GPU is that of a group of one
rank, which does the same (weak scaling = the one over the other), and that of ``form.compile("cuda")`` on the part,
which may keep in registers what a split row has to be read again for. Every case is compared with float64 before it is
timed, on short rows; times are medians of CUDA events around replays of a captured graph, the slowest rank's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import redalg as ra
from redalg.adapters.ranks.channel import Channel
from redalg.adapters.ranks.device import DeviceCollective
from redalg.adapters.ranks.links import NCCL

LOSS = "m = max[j](x[i,j]); s = sum[j](exp(x[i,j] - m)); return lse = m + log(s)"
NORM = "u = mean[j](x[i,j]); v = mean[j]((x[i,j] - u)**2); return y = (x[i,j] - u)/sqrt(v + 1/100)"
MOMENTS = "u = mean[j](x[i,j]); return u = u, v = mean[j]((x[i,j] - u)**2)"
CASES: dict[str, tuple[str | None, str, dict[str, int]]] = {
    "decoding, 256 heads, 32768 keys a rank": (None, "bfloat16", {"h": 256, "i": 1, "j": 32768, "d": 128, "e": 128}),
    "loss head, 8192 rows of 65536 logits a rank": (LOSS, "float32", {"i": 8192, "j": 65536}),
    "statistics, 8192 rows of 65536 a rank": (MOMENTS, "float32", {"i": 8192, "j": 65536}),
    "layer norm, 8192 rows of 65536 a rank": (NORM, "float32", {"i": 8192, "j": 65536}),
}
ROUNDS = 30


def form_of(text: str | None) -> Any:
    return ra.derive_incremental(ra.catalog["attention"] if text is None else ra.parse(text))


def tensors(form: Any, dtype: str, sizes: dict[str, int], seed: int) -> dict[str, Any]:
    import torch

    torch.manual_seed(seed)
    kind = getattr(torch, dtype)
    return {d.name: torch.randn([sizes[a] for a in d.axes], device="cuda", dtype=kind) for d in form.spec.tensors}


def replayed(work: Callable[[], Any], barrier: Callable[[], None]) -> float:
    """Median microseconds of a captured call."""
    import torch

    for _ in range(3):
        work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    times = []
    for k in range(ROUNDS + 5):
        barrier()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        if k >= 5:
            times.append(begin.elapsed_time(end) * 1e3)
    del graph
    return statistics.median(times)


def chained(work: Callable[[], Any], times: int = 20) -> float:
    """Microseconds of one of many calls in one captured graph: without what starts a graph."""
    import torch

    def several() -> None:
        for _ in range(times):
            work()

    return replayed(several, lambda: torch.distributed.barrier()) / times


def compared(form: Any, made: Any, dtype: str, sizes: dict[str, int], rank: int, ranks: int) -> float:
    """The largest error against float64, over the largest number of the result."""
    short = {a: min(n, {"j": 100 + rank, "h": 4}.get(a, 16)) for a, n in sizes.items()}
    mine = tensors(form, dtype, short, rank)
    axis = form.plan.axis[0]
    whole: dict[str, list[Any]] = {}
    for r in range(ranks):
        theirs = tensors(form, dtype, {**short, axis: 100 + r}, r)
        for d in form.spec.tensors:
            whole.setdefault(d.name, []).append(theirs[d.name].double().cpu().numpy())
    fixed = {d.name for d in form.spec.tensors if axis not in d.axes}
    for name in fixed:  # the same on all ranks
        mine[name].copy_(tensors(form, dtype, {**short, axis: 100}, 0)[name])
    places = {d.name: d.axes.index(axis) for d in form.spec.tensors if axis in d.axes}
    arrays = {n: x[0] if n in fixed else np.concatenate(x, axis=places[n]) for n, x in whole.items()}
    expected, got = ra.reference(form.spec, **arrays), made(**mine)
    names = list(form.spec.outputs)
    expected, got = (v if isinstance(v, dict) else {names[0]: v} for v in (expected, got))
    low = sum(100 + r for r in range(rank))
    worst = 0.0
    for name, e in expected.items():
        axes = form.spec.output_axes[name]
        if axis in axes:
            e = np.take(e, range(low, low + 100 + rank), axis=axes.index(axis))
        worst = max(worst, float(np.abs(got[name].double().cpu().numpy() - e).max() / np.abs(e).max()))
    return worst


def measured(rank: int, ranks: int, folder: str) -> None:
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{folder}/meet", rank=rank, world_size=ranks)
    alone = [dist.new_group([r]) for r in range(ranks)][rank]
    found: dict[str, Any] = {"device": torch.cuda.get_device_name(), "ranks": ranks, "torch": torch.__version__}

    def told() -> None:
        Path(folder, f"{rank}.json").write_text(json.dumps(found))

    for name, (text, dtype, sizes) in CASES.items():
        form = form_of(text)
        made = DeviceCollective(form, Channel(None), "cuda")
        error = compared(form, made, dtype, sizes, rank, ranks)
        limit = 2e-2 if dtype == "bfloat16" else 1e-4
        assert error < limit, (name, error)
        arrays = tensors(form, dtype, sizes, 7)
        one = DeviceCollective(form, Channel(alone), "cuda")
        run = form.compile("cuda")
        line: dict[str, Any] = {"error": error}
        line["one"] = replayed(lambda one=one, x=arrays: one(**x), dist.barrier)
        line["run"] = replayed(lambda run=run, x=arrays: run(**x), dist.barrier)
        line["all"] = replayed(lambda made=made, x=arrays: made(**x), dist.barrier)
        buffers = next(b for b in reversed(made._buffers.values()))
        line["state"] = int(buffers.mine.numel())

        def merge(made: Any = made, buffers: Any = buffers, x: Any = arrays) -> None:
            made.channel.gather_into(buffers.everyone, buffers.mine)
            held = {**x, **buffers.held}
            made.merge(**{d.name: held[d.name] for d in made.specs.merge.tensors})

        line["merge"] = replayed(merge, dist.barrier)
        line["merge in a row"] = chained(merge)
        found[name] = line
        told()
        if not rank:
            print(name, line, flush=True)
    for size in (4 << 10, 64 << 10, 1 << 20, 64 << 20):
        mine = torch.zeros(size, dtype=torch.uint8, device="cuda")
        everyone = torch.zeros(size * ranks, dtype=torch.uint8, device="cuda")
        found[f"all-gather {size}"] = chained(lambda m=mine, e=everyone: dist.all_gather_into_tensor(e, m))
    told()
    dist.barrier()
    dist.destroy_process_group()


def report(found: list[dict[str, Any]]) -> str:
    from benchmarks.harness.processes import conditions

    head = found[0]
    lines = ["# Forms over GPUs", "", "Written by `python -m benchmarks.gpu.collective`.", conditions()]
    lines += [f"{head['ranks']} of {head['device']}, PyTorch {head['torch']}, NCCL. Microseconds, in captured graphs."]
    lines += ["`one`: a group of one GPU; `all`: of all, with as many elements on each; `run`: `form.compile` on one."]
    lines += ["`merge`: the all-gather and the merge alone, by itself and as one of 20 in a graph.", ""]
    lines += ["| | error | one | all | weak scaling | run | run / all | state, bytes | merge | of 20 |"]
    lines += ["|---|---|---|---|---|---|---|---|---|---|"]
    for name in CASES:
        if any(name not in f for f in found):
            continue
        worst = {k: max(f[name][k] for f in found) for k in found[0][name]}
        cells = [f"{worst['error']:.1e}", f"{worst['one']:.0f}", f"{worst['all']:.0f}"]
        cells += [f"{worst['one'] / worst['all']:.1%}", f"{worst['run']:.0f}", f"{worst['run'] / worst['all']:.1%}"]
        cells += [str(worst["state"]), f"{worst['merge']:.1f}", f"{worst['merge in a row']:.1f}"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    gathers = {int(k.split()[1]): v for k, v in head.items() if k.startswith("all-gather")}
    lines += ["", "| all-gather, bytes a rank | measured, µs (one of 20 in a graph) | the model's |", "|---|---|---|"]
    lines += [f"| {n} | {t:.1f} | {NCCL.all_gather(n, head['ranks']) * 1e6:.1f} |" for n, t in gathers.items()]
    lines += [
        "",
        "Predicted by the model, not measured (all-gather of a state and its merge at 3 TB/s, microseconds):",
        "",
    ]
    lines += ["| | 8 GPUs | 64 | 1024 |", "|---|---|---|---|"]
    for name in CASES:
        if name in head:
            n = head[name]["state"]
            cells = [f"{(NCCL.all_gather(n, p) + p * n / 3e12) * 1e6:.0f}" for p in (8, 64, 1024)]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    import torch
    import torch.multiprocessing as mp

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="benchmarks/records")
    out = Path(parser.parse_args().out)
    ranks = torch.cuda.device_count()
    with tempfile.TemporaryDirectory() as folder:
        try:
            mp.spawn(measured, (ranks, folder), ranks)
        finally:
            files = sorted(Path(folder).glob("*.json"))
            if files:
                text = report([json.loads(f.read_text()) for f in files])
                (out / "gpu_collective.md").write_text(text)
                print(text)


if __name__ == "__main__":
    main()
