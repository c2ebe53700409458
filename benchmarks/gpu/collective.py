"""`python -m benchmarks.gpu.collective`: forms over GPUs by NCCL: weak scaling, and the merge of a decode step.

One process for each GPU. A case has the same elements on every rank; its time on one GPU is that of a group of one
rank, which does the same (weak scaling = the one over the other), and that of ``form.compile("cuda")`` on the part,
which may keep in registers what a split row has to be read again for. Two rows of every case are compared with float64
before it is timed; times are medians of CUDA events around replays of a captured graph, the slowest rank's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import redalg as ra
from redalg.adapters.ranks.channel import Channel
from redalg.adapters.ranks.device import DeviceCollective
from redalg.adapters.ranks.links import NVLINK
from redalg.adapters.ranks.pieces import zigzag

LOSS = "m = max[j](x[i,j]); s = sum[j](exp(x[i,j] - m)); return lse = m + log(s)"
NORM = "u = mean[j](x[i,j]); v = mean[j]((x[i,j] - u)**2); return y = (x[i,j] - u)/sqrt(v + 1/100)"
MOMENTS = "u = mean[j](x[i,j]); return u = u, v = mean[j]((x[i,j] - u)**2)"
WAYS = ("gather", "reduce")
CASES: dict[str, tuple[str | None, str, dict[str, int]]] = {
    "decoding, 256 heads, 32768 keys a rank": (None, "bfloat16", {"h": 256, "i": 1, "j": 32768, "d": 128, "e": 128}),
    "decoding, 32 heads, 262144 keys a rank": (None, "bfloat16", {"h": 32, "i": 1, "j": 262144, "d": 128, "e": 128}),
    "loss head, 8192 rows of 65536 logits a rank": (LOSS, "float32", {"i": 8192, "j": 65536}),
    "statistics, 8192 rows of 65536 a rank": (MOMENTS, "float32", {"i": 8192, "j": 65536}),
    "layer norm, 8192 rows of 65536 a rank": (NORM, "float32", {"i": 8192, "j": 65536}),
}
PREFILL = "prefill, causal, 8 heads of 128, 65536 queries and keys"
ROUNDS = 100


def form_of(text: str | None) -> Any:
    return ra.derive_incremental(ra.catalog["attention"] if text is None else ra.parse(text))


def tensors(form: Any, dtype: str, sizes: dict[str, int], rank: int) -> dict[str, Any]:
    """Those along the axis differ from rank to rank, the others do not."""
    import torch

    kind, found = getattr(torch, dtype), {}
    for d in form.spec.tensors:
        torch.manual_seed(1 + rank if form.plan.axis[0] in d.axes else 0)
        found[d.name] = torch.randn([sizes[a] for a in d.axes], device="cuda", dtype=kind)
    return found


def replayed(work: Callable[[], Any], barrier: Callable[[], None]) -> float:
    """Median microseconds of a captured call."""
    import torch

    for _ in range(3):
        work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
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


def compared(form: Any, result: Any, arrays: dict[str, Any]) -> float:
    """The largest error of two rows against float64, over the largest number of the result."""
    import torch
    import torch.distributed as dist

    axis, whole = form.plan.axis[0], {}
    for d in form.spec.tensors:
        mine = arrays[d.name][:2].contiguous()
        parts = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, mine)
        found = torch.cat(parts, d.axes.index(axis)) if axis in d.axes else mine
        whole[d.name] = found.double().cpu().numpy()
    names = list(form.spec.outputs)
    expected, got = (v if isinstance(v, dict) else {names[0]: v} for v in (ra.reference(form.spec, **whole), result))
    worst = 0.0
    for name, e in expected.items():
        axes = form.spec.output_axes[name]
        mine = got[name][:2].double().cpu().numpy()
        if axis in axes:
            length = mine.shape[axes.index(axis)]
            begin = length * dist.get_rank()
            e = np.take(e, range(begin, begin + length), axis=axes.index(axis))
        worst = max(worst, float(np.abs(mine - e).max() / np.abs(e).max()))
    return worst


def written(own: Mapping[str, Any], ranks: int) -> dict[str, Callable[[], Any]]:
    """The merge of a decode step as it is written by hand with PyTorch, both ways, over the same state."""
    import torch
    import torch.distributed as dist

    top, total, values = (own[f"part_{n}"] for n in ("max_u", "sum_exp", "sum_V_exp"))
    mine = torch.cat([top[..., None], total[..., None], values], dim=-1).contiguous()
    everyone = torch.empty((ranks, *mine.shape), device=mine.device)

    def gathered() -> Any:
        dist.all_gather_into_tensor(everyone.view(-1), mine.view(-1))
        tops = everyone[..., :1]
        weights = torch.exp(tops - tops.amax(0))
        return (weights * everyone[..., 2:]).sum(0) / (weights * everyone[..., 1:2]).sum(0)

    def reduced() -> Any:
        best = top.clone()
        dist.all_reduce(best, dist.ReduceOp.MAX)
        sums = mine[..., 1:] * torch.exp(top - best)[..., None]
        dist.all_reduce(sums)
        return sums[..., 1:] / sums[..., :1]

    return {"gather": gathered, "reduce": reduced}


def case(text: str | None, dtype: str, sizes: dict[str, int], alone: Any) -> dict[str, Any]:
    """The times of one case; `alone`: a group of this rank."""
    import torch
    import torch.distributed as dist

    form = form_of(text)
    arrays = tensors(form, dtype, sizes, dist.get_rank())
    one = DeviceCollective(form, Channel(alone), "cuda", "gather")
    run = form.compile("cuda")
    line: dict[str, Any] = {}
    line["one"] = replayed(lambda: one(**arrays), dist.barrier)
    line["run"] = replayed(lambda: run(**arrays), dist.barrier)
    for way in WAYS:
        made = DeviceCollective(form, Channel(None), "cuda", way)
        line[f"{way}, error"] = error = compared(form, made(**arrays), arrays)
        assert error < (2e-2 if dtype == "bfloat16" else 1e-4), (text, way, error)
        line[f"{way}, all"] = replayed(lambda made=made: made(**arrays), dist.barrier)
        buffers = next(b for b in reversed(made._buffers.values()))
        join = made._gathered if way == "gather" else made._reduced
        merge = partial(join, buffers, arrays)
        line[f"{way}, merge"], line[f"{way}, of 20"] = replayed(merge, dist.barrier), chained(merge)
        line["state"] = buffers.choice.state_bytes
        if way == "reduce":
            line["sent"] = buffers.choice.reduce_bytes
            line["model"] = dict(buffers.choice.seconds)
    if text is None:
        by_hand = written(buffers.mine.views, dist.get_world_size())
        expected = made(**arrays)
        for way, merge in by_hand.items():
            assert torch.allclose(merge().float(), expected.float(), rtol=2e-2, atol=1e-4), way
            line[f"torch, {way}"], line[f"torch, {way}, of 20"] = replayed(merge, dist.barrier), chained(merge)
    return line


def prefill(heads: int, length: int, width: int) -> dict[str, Any]:
    """Causal attention with keys split over all ranks, in one piece each and in two from both ends; strong scaling."""
    import torch
    import torch.distributed as dist

    form, ranks, rank = ra.derive_incremental(ra.catalog["attention_causal"]), dist.get_world_size(), dist.get_rank()
    torch.manual_seed(0)
    Q, K, V = (torch.randn(heads, length, width, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    run = form.compile("cuda")
    whole = run(Q=Q, K=K, V=V, scale=width**-0.5)
    line: dict[str, Any] = {"one": replayed(lambda: run(Q=Q, K=K, V=V, scale=width**-0.5), dist.barrier)}
    batch = [x[None] for x in (Q, K, V)]  # four axes: with three PyTorch writes all scores down
    sdpa = partial(torch.nn.functional.scaled_dot_product_attention, *batch, is_causal=True)
    line["sdpa"] = replayed(sdpa, dist.barrier)
    step = length // ranks
    for cut, spans in (("one piece", [(rank * step, (rank + 1) * step)]), ("zigzag", zigzag(length, rank, ranks))):
        k, v = (torch.cat([x[:, a:b] for a, b in spans], 1) for x in (K, V))
        start = tuple(a for a, _ in spans)
        for way in WAYS:
            made = DeviceCollective(form, Channel(None), "cuda", way)
            call = partial(made, start, Q=Q, K=k, V=v, scale=width**-0.5)
            line[f"{cut}, {way}, error"] = float(
                (call().float() - whole.float()).abs().max() / whole.float().abs().max()
            )
            line[f"{cut}, {way}"] = replayed(call, dist.barrier)
            del made, call
            torch.cuda.empty_cache()
    return line


def measured(rank: int, ranks: int, folder: str, only: str) -> None:
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{folder}/meet", rank=rank, world_size=ranks)
    alone = [dist.new_group([r]) for r in range(ranks)][rank]
    found: dict[str, Any] = {"device": torch.cuda.get_device_name(), "ranks": ranks, "torch": torch.__version__}

    def told() -> None:
        Path(folder, f"{rank}.json").write_text(json.dumps(found))

    for size in (4 << 10, 64 << 10, 1 << 20, 64 << 20):
        mine = torch.zeros(size // 4, device="cuda")
        everyone = torch.zeros(size // 4 * ranks, device="cuda")
        gather, reduce = partial(dist.all_gather_into_tensor, everyone, mine), partial(dist.all_reduce, mine)
        for kind, work in (("all-gather", gather), ("all-reduce", reduce)):
            found[f"{kind} {size}"] = [replayed(work, dist.barrier), chained(work)]
    told()
    if not rank:
        print(found, flush=True)
    for name, (text, dtype, sizes) in CASES.items():
        if only not in name:
            continue
        found[name] = line = case(text, dtype, sizes, alone)
        told()
        if not rank:
            print(name, line, flush=True)
    if only in PREFILL:
        found[PREFILL] = line = prefill(8, 65536, 128)
        told()
        if not rank:
            print(PREFILL, line, flush=True)
    dist.barrier()
    dist.destroy_process_group()


def report(found: list[dict[str, Any]]) -> str:
    from benchmarks.harness.processes import conditions

    head = found[0]
    ranks = head["ranks"]
    shown = [name for name in CASES if all(name in f for f in found)]
    worst = {
        n: {k: max(f[n][k] for f in found) for k, v in head[n].items() if isinstance(v, int | float)} for n in shown
    }
    lines = ["# Forms over GPUs", "", "Written by `python -m benchmarks.gpu.collective`.", conditions()]
    lines += [f"{ranks} of {head['device']}, PyTorch {head['torch']}, NCCL. Microseconds, in captured graphs."]
    lines += [
        "`one`: a group of one GPU; `all`: of all, with as many elements on each; `run`: `form.compile` on one.",
        "",
    ]
    lines += ["## Weak scaling", "", "| | way | error | one | all | one / all | run | run / all |"]
    lines += ["|---|---|---|---|---|---|---|---|"]
    for name, w in worst.items():
        for way in WAYS:
            every = w[f"{way}, all"]
            cells = [way, f"{w[f'{way}, error']:.1e}", f"{w['one']:.0f}", f"{every:.0f}", f"{w['one'] / every:.1%}"]
            cells += [f"{w['run']:.0f}", f"{w['run'] / every:.1%}"]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += prefilled(found)
    lines += ["", "## The merge alone", ""]
    lines += ["By itself in a graph, and as one of 20 in a graph. `torch`: the same merge written by hand.", ""]
    lines += ["| | bytes of a state | way | merge | of 20 | torch | of 20 |", "|---|---|---|---|---|---|---|"]
    for name, w in worst.items():
        for way in WAYS:
            keys = (f"{way}, merge", f"{way}, of 20", f"torch, {way}", f"torch, {way}, of 20")
            cells = [f"{w[k]:.1f}" if k in w else "" for k in keys]
            lines.append(f"| {name} | {w['state']} | {way} | {' | '.join(cells)} |")
    lines += [
        "",
        "## The model of links",
        "",
        "`of 20`: one of 20 in a graph, microseconds; the model is fitted to these.",
        "",
    ]
    lines += ["| collective | bytes | by itself | of 20 | the model's |", "|---|---|---|---|---|"]
    for key, (single, one_of) in ((k, v) for k, v in head.items() if k.startswith("all-")):
        kind, size = key.split()
        model = {"all-gather": NVLINK.all_gather, "all-reduce": NVLINK.all_reduce}[kind](int(size), ranks)
        lines.append(f"| {kind} | {size} | {single:.1f} | {one_of:.1f} | {model * 1e6:.1f} |")
    return "\n".join([*lines, *predicted(head, shown)]) + "\n"


def prefilled(found: list[dict[str, Any]]) -> list[str]:
    """Strong scaling of causal attention."""
    if any(PREFILL not in f for f in found):
        return []
    worst = {k: max(f[PREFILL][k] for f in found) for k in found[0][PREFILL]}
    lines = ["", f"## Strong scaling: {PREFILL}", ""]
    lines += [
        f"One GPU: {worst['one']:.0f}; PyTorch's attention there: {worst['sdpa']:.0f}. Errors against one GPU.",
        "",
    ]
    lines += ["| keys of a rank | way | error | all | one / (ranks * all) |", "|---|---|---|---|---|"]
    for cut in ("one piece", "zigzag"):
        for way in WAYS:
            every, error = worst[f"{cut}, {way}"], worst[f"{cut}, {way}, error"]
            share = worst["one"] / len(found) / every
            lines.append(f"| {cut} | {way} | {error:.1e} | {every:.0f} | {share:.1%} |")
    return lines


def predicted(head: Mapping[str, Any], shown: list[str]) -> list[str]:
    """What the model says of more GPUs."""
    counts = (2, 8, 64, 1024)
    lines = [
        "",
        "Predicted by the model: microseconds of a merge (gather / reduce), and the weak scaling of the whole by",
    ]
    lines += [
        "the faster way, from the time of one GPU. Only two were measured; a step between nodes of 8 is assumed to"
    ]
    lines += [f"take {NVLINK.far_step * 1e6:.0f} µs, and their adapters to keep up with the links. {NVLINK}", ""]
    lines += [f"| | {' | '.join(f'{p} GPUs' for p in counts)} |", "|---|---|---|---|---|"]
    for name in shown:
        state, sent, one = head[name]["state"], head[name]["sent"], head[name]["one"]
        cells = []
        for p in counts:
            gather, reduce = NVLINK.gather_seconds(state, p) * 1e6, NVLINK.reduce_seconds(*sent, p) * 1e6
            cells.append(f"{gather:.0f} / {reduce:.0f}, {one / (one + min(gather, reduce)):.1%}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    import torch
    import torch.multiprocessing as mp

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="benchmarks/records")
    parser.add_argument("--only", default="", help="a part of the names of cases")
    options = parser.parse_args()
    out = Path(options.out)
    ranks = torch.cuda.device_count()
    with tempfile.TemporaryDirectory() as folder:
        try:
            mp.spawn(measured, (ranks, folder, options.only), ranks)
        finally:
            files = sorted(Path(folder).glob("*.json"))
            if files:
                text = report([json.loads(f.read_text()) for f in files])
                (out / "gpu_collective.md").write_text(text)
                print(text)


if __name__ == "__main__":
    main()
