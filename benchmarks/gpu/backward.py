"""Attention's gradients by tile programs, beside torch's: checked against float64, then timed by events.

    python -m benchmarks.gpu.backward check causal|dense D KIND [mma]  # in a process of its own
    python -m benchmarks.gpu.backward time ["N D causal|dense"]         # a line of JSON for every cell
    python -m benchmarks.gpu.backward assemble                          # by mma.sync, as ptxas sees it; needs no GPU

TFLOP/s are counted twice: of the products that a kernel computes (dQ three, dK with dV four), and, for both together,
of the five that one kernel would need. A causal cell counts half. Ours by wgmma and, as "mma", by mma.sync: variants of
sizes, and "mma" alone as it is chosen.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch

import redalg as ra
from redalg.kernels.cuda import run as cuda_run
from redalg.kernels.ir.layouts import View
from redalg.kernels.launch.ptx import assemble
from redalg.kernels.pipeline import by_tiles
from redalg.kernels.schedule.target import A100, H200, L40S

CASES = ((64, 4096, 128, False), (64, 4096, 128, True), (128, 2048, 64, True), (128, 2048, 64, False))
VARIANTS = {  # head dimension, tensor -> warpgroups, columns of a block, stages
    (128, "Q"): ((2, 128, 2), (2, 64, 4)),
    (128, "K"): ((2, 64, 4), (2, 64, 3)),
    (64, "Q"): ((2, 128, 4), (2, 64, 4)),
    (64, "K"): ((2, 64, 4), (2, 64, 3)),
}
MMA = {  # by mma.sync -> warps, times 16 rows of one, columns of a block
    (128, "Q"): ((4, 2, 32), (8, 1, 64), (8, 2, 32)),
    (128, "K"): ((4, 1, 64), (8, 1, 64), (8, 1, 32)),
    (64, "Q"): ((4, 2, 64), (8, 1, 64), (8, 2, 64)),
    (64, "K"): ((4, 2, 32), (8, 1, 64), (8, 2, 32)),
}
Sizes = tuple[int, int, int] | None


def ways(d: int, tensor: str) -> Iterator[tuple[str, str, Sizes]]:
    """Variants of a kernel of ours: a name, the schedule, sizes."""
    yield from ((f"{tensor} {asked}", "tensor", asked) for asked in VARIANTS[d, tensor])
    yield f"{tensor} mma", "mma", None
    yield from ((f"{tensor} mma {asked}", "mma", asked) for asked in MMA[d, tensor])


def forms(causal: bool) -> tuple[Any, Any]:
    spec = ra.catalog["attention_causal" if causal else "attention_scaled"]
    vjp = spec.vjp(wrt="Q K V")
    return vjp.forms[vjp.specs["Q"]], vjp.forms[vjp.specs["K"]]


def arrays(heads: int, rows: int, keys: int, d: int, causal: bool, kind: torch.dtype) -> dict[str, Any]:
    made = {
        n: torch.randn(heads, x, d, device="cuda", dtype=kind) for n, x in zip("QKV", (rows, keys, keys), strict=True)
    }
    made["grad_O"] = torch.randn(heads, rows, d, device="cuda", dtype=kind)
    scale = d**-0.5
    out, top, total = [], [], []
    for q, k, v in zip(made["Q"], made["K"], made["V"], strict=True):
        s = q.float() @ k.float().T * scale
        s = s.masked_fill(torch.ones_like(s).tril() == 0, float("-inf")) if causal else s
        m = s.max(-1).values
        p = (s - m[:, None]).exp()
        top.append(m)
        total.append(p.sum(-1))
        out.append((p @ v.float() / p.sum(-1)[:, None]).to(kind))
    stats = {"O": torch.stack(out), "max1": torch.stack(top), "sum2": torch.stack(total)}
    return made | stats | {"scale": scale}


def given(form: Any, held: dict[str, Any]) -> dict[str, Any]:
    return {t.name: held[t.name] for t in form.spec.tensors}


def expected(a: dict[str, Any], head: int, causal: bool) -> dict[str, tuple[Any, Any]]:
    """Of one head in float64: gradients, and what roundings of weights are relative to."""
    q, k, v, g, o = (a[n][head].double() for n in ("Q", "K", "V", "grad_O", "O"))
    s = q @ k.T * a["scale"]
    s = s.masked_fill(torch.ones_like(s).tril() == 0, float("-inf")) if causal else s
    p = (s - a["max1"][head].double()[:, None]).exp() / a["sum2"][head].double()[:, None]
    z = p * (g @ v.T - (g * o).sum(-1)[:, None])
    scale = a["scale"]
    return {
        "grad_Q": (z @ k * scale, z.abs() @ k.abs() * scale),
        "grad_K": (z.T @ q * scale, z.abs().T @ q.abs() * scale),
        "grad_V": (p.T @ g, p.T @ g.abs()),
    }


def check(causal: bool, d: int, kind: torch.dtype, schedule: str = "tensor") -> None:
    """Every gradient within a bound of roundings: of weights and results, and float32 sums of scores."""
    for rows, keys in ((1000, 1000), (512, 256), (131, 67)):
        if causal and rows != keys:
            continue
        a = arrays(3, rows, keys, d, causal, kind)
        step = 2.0**-8 if kind is torch.bfloat16 else 2.0**-11
        for form in forms(causal):
            run = form.compile("cuda", schedule=schedule)
            found = run(**given(form, a))
            found = found if isinstance(found, dict) else {next(iter(form.spec.outputs)): found}
            assert "tile program" in run.planned.choice.reasons[0], run.planned.choice.reasons
            for name, x in found.items():
                worst = 0.0
                for head in range(3):
                    want, size = expected(a, head, causal)[name]
                    bound = step * (size + want.abs()) + 2.0**-12 * size.max()
                    worst = max(worst, float(((x[head].double() - want).abs() / bound).max()))
                what = f"{schedule} causal={causal} d={d} {kind} {rows}x{keys} {name}"
                print(f"check {what}: {worst:.3f} of the bound", flush=True)
                assert worst <= 1.0


def by_operator(causal: bool) -> None:
    """The backward of `form.torch_op` takes these kernels."""
    spec = ra.catalog["attention_causal" if causal else "attention_scaled"]
    op = ra.derive_incremental(spec).torch_op(f"redalg_check::attention_{int(causal)}")
    q, k, v = (torch.randn(4, 512, 128, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    scale = 128**-0.5
    o = op(q, k, v, scale)
    o = o[0] if isinstance(o, tuple | list) else o
    g = torch.randn_like(o)
    own = torch.autograd.grad(o, (q, k, v), g)
    want = torch.nn.functional.scaled_dot_product_attention(
        *(x.double() for x in (q, k, v)), is_causal=causal, scale=scale
    )
    for x, y, name in zip(own, torch.autograd.grad(want, (q, k, v), g.double()), "QKV", strict=True):
        off = float((x.double() - y.double()).abs().max() / y.double().abs().max())
        print(f"operator causal={causal} grad_{name}: {off:.4f} of the largest", flush=True)
        assert off < 0.02


class Asked:
    """Plans of the sizes that are asked for."""

    def __init__(self, schedule: str, asked: Sizes) -> None:
        self.schedule, self.asked = schedule, asked

    def __call__(self, form: Any, dtypes: Any, views: Any, target: Any, *_: Any, **__: Any) -> Any:
        return by_tiles(form, dtypes, views, target, asked=self.asked, schedule=self.schedule).planned


def launches(form: Any, held: dict[str, Any], schedule: str, asked: Sizes) -> Callable[[], Any]:
    cuda_run.plan = Asked(schedule, asked)
    run, own = form.compile("cuda", schedule=schedule), given(form, held)
    run(**own)
    return lambda: run(**own)


def torch_backward(held: dict[str, Any], causal: bool, backend: Any) -> Callable[[], Any] | None:
    q, k, v = (held[n][None].detach().clone().requires_grad_() for n in "QKV")
    g = held["grad_O"][None]
    try:
        with torch.nn.attention.sdpa_kernel(backend):
            o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=held["scale"])
        torch.autograd.grad(o, (q, k, v), g, retain_graph=True)
    except RuntimeError:
        return None
    return lambda: torch.autograd.grad(o, (q, k, v), g, retain_graph=True)


def raced(calls: dict[str, Callable[[], Any]], rounds: int = 5, each: int = 6) -> dict[str, float]:
    """Median seconds of a call, variants in turns."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            call()
            begin.record()
            for _ in range(each):
                call()
            end.record()
            end.synchronize()
            times[name].append(begin.elapsed_time(end) / each * 1e-3)
    return {name: statistics.median(t) for name, t in times.items()}


def cells(only: str = "") -> Iterator[dict[str, Any]]:
    backends = torch.nn.attention.SDPBackend
    for heads, n, d, causal in CASES:
        if only and only not in f"{n} {d} {'causal' if causal else 'dense'}":
            continue
        held = arrays(heads, n, n, d, causal, torch.bfloat16)
        each = 2 * heads * n * n * d / (2 if causal else 1)
        calls: dict[str, Callable[[], Any]] = {}
        for form, tensor in zip(forms(causal), "QK", strict=True):
            for name, schedule, asked in ways(d, tensor):
                try:
                    calls[name] = launches(form, held, schedule, asked)
                except Exception as problem:
                    print(f"left out: {name}: {str(problem)[:200]}", flush=True)
        for name, backend in (("cudnn", backends.CUDNN_ATTENTION), ("flash", backends.FLASH_ATTENTION)):
            call = torch_backward(held, causal, backend)
            calls |= {name: call} if call else {}
        times = raced(calls)
        best = {t: min(v for k, v in times.items() if k.startswith(f"{t} (")) for t in "QK"}
        rates = {}
        for name, t in times.items():
            count = {"Q": 3, "K": 4}.get(name[0], 5)
            rates[name] = round(count * each / t / 1e12, 1)
        rates["dQ + dK,dV, five products"] = round(5 * each / sum(best.values()) / 1e12, 1)
        rates["the same by mma.sync"] = round(5 * each / (times["Q mma"] + times["K mma"]) / 1e12, 1)
        yield {
            "cell": f"({heads},{n},{d}) {'causal' if causal else 'dense'}",
            "device": torch.cuda.get_device_name(),
            "ms": {k: round(v * 1e3, 4) for k, v in times.items()},
            "TFLOP/s": rates,
        }


def assembled() -> Iterator[str]:
    """Lines of a table: tiles, registers and bytes spilt of the kernels by mma.sync."""
    for target, d, causal in product((A100, L40S, H200), (64, 128), (False, True)):
        found = []
        for form in forms(causal):
            sizes = {"h": 16, "i": 4096, "j": 4096, "d": d, "e": d}
            arrays = {t.name: View.contiguous(tuple(sizes[a] for a in t.axes)) for t in form.spec.tensors if t.axes}
            dtypes = {n: "float32" if n in ("max1", "sum2") else "bfloat16" for n in arrays} | {"scale": float}
            draft = by_tiles(form, dtypes, arrays, target, schedule="mma")
            assert draft.sizes is not None and draft.module is not None
            made = assemble(draft.module, target.cc)
            warps, tall, columns = draft.sizes.asked
            spilt = made.spill_stores + made.spill_loads
            found.append(f"{warps} × {16 * tall} × {columns}, {draft.sizes.shared}, {made.registers}, {spilt}")
        yield f"| {'.'.join(map(str, target.cc))} | {d} {'causal' if causal else 'dense'} | {' | '.join(found)} |"


def main(words: list[str]) -> None:
    if words[0] == "assemble":
        print(*assembled(), sep="\n", flush=True)
        return
    torch.manual_seed(int.from_bytes(__import__("os").urandom(4), "little"))
    if words[0] == "check":
        causal, d, kind = words[1] == "causal", int(words[2]), getattr(torch, words[3])
        check(causal, d, kind, *words[4:])
        return
    if words[0] == "warm":  # compile variants, which are kept on disk
        causal, d, tensor = words[1] == "causal", int(words[2]), words[3]
        held, form = arrays(2, 256, 256, d, causal, torch.bfloat16), forms(causal)["QK".index(tensor)]
        for _, schedule, asked in ways(d, tensor):
            launches(form, held, schedule, asked)
        torch.cuda.synchronize()
        return
    if words[0] == "operator":
        by_operator(words[1] == "causal")
        return
    for record in cells(words[1] if len(words) > 1 else ""):
        print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
