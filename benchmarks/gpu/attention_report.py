"""`gpu_attention.md` from the JSON lines of `benchmarks.gpu.attention`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.gpu.attention_cells import MATMUL
from benchmarks.harness.processes import RECORDS, provenance

PEERS = (
    "cuDNN",
    "FlashAttention-2",
    "FlexAttention",
    "efficient attention",
    "math",
    "PyTorch",
    "dequantised",
    "FlexAttention, quick tanh",
    "Inductor",
    "Inductor, max-autotune",
    "matmul",
    "copy",
)
OWN = (
    "ours, exact tanh",
    "ours, frozen maximum, exact tanh",
    "ours, one launch",
    "ours, two launches",
    "ours, mma.sync",
    "ours, bfloat16 cache",
)
MATMUL_WORK = 2 * 8192**3


def report(file: Path) -> None:
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    (RECORDS / "gpu_attention.md").write_text(text(lines, file))


def text(lines: list[dict[str, Any]], file: Path) -> str:
    """The table, with the conditions of the first line and the dates of all."""
    c, dates = lines[0], sorted({line["date"] for line in lines})
    out = [
        "# Contractions on tensor cores",
        "",
        f"{c['device']}, torch {c['torch']}, cuDNN {c['cudnn']}, numba {c['numba']}, numba-cuda {c['numba_cuda']}, "
        f"{' and '.join(dates)}.",
        f"Written by `python -m benchmarks.gpu.attention --report {file.name}` from the lines of `--out {file.name}`; "
        "contenders take turns of a quarter of a second on the same inputs, medians over rounds; results were checked "
        "against float64 first. TFLOP/s count the multiplications a mask leaves; decoding is counted in TB/s. "
        "Inductor is `torch.compile` in its default mode, max-autotune "
        "its mode of that name without graphs. Soft caps: "
        "our kernels compute tanh by a quick exponential and quotient, FlexAttention calls the exact one; lines that "
        "say so have the exact one on our side, or the quick one on theirs. Latent attention has its projections "
        "absorbed: the spec (`benchmarks/gpu/attention_latent.py`) is written for latent vectors by hand.",
        "",
        provenance(lines),
        "",
        "| work | ours | frozen maximum | peers | ours / best peer | frozen maximum / best peer |",
        "|---|---|---|---|---|---|",
    ]
    for line in lines:
        out.append(_row(line))
    out += _states(lines)
    out += ["", *(f"- {line['cell']}: {json.dumps(line['extra'])}" for line in lines if line.get("extra"))]
    return "\n".join(out) + "\n"


def _states(lines: list[dict[str, Any]]) -> list[str]:
    """Clock, power and operations a clock and multiprocessor, of us and of the peers."""
    seen = [line for line in lines if line.get("state") and line["unit"] == "operations"]
    if not seen:
        return []
    head = (
        "while running: MHz, W, operations a clock and multiprocessor (of 4096 that its tensor cores have in 16 bits)"
    )
    out = ["", f"| work | {head} |", "|---|---|"]
    for line in seen:
        found = []
        for who, (clock, power) in line["state"].items():
            work = MATMUL_WORK if who == "matmul" and line["cell"] in MATMUL else line["work"]
            each = work / line["ms"][who] / 1e3 / clock / line["multiprocessors"]
            found.append(f"{who} {clock:.0f}, {power:.0f}, {each:.0f}")
        out.append(f"| {line['cell']} | {'; '.join(found)} |")
    return out


def _row(line: dict[str, Any]) -> str:
    if "failed" in line:
        return f"| {line['cell']} | failed: {line['failed'][:80]} | | | | |"
    ms, unit = line["ms"], "TB/s" if line["unit"] == "bytes" else "TFLOP/s"

    def rate(who: str) -> float:
        work = MATMUL_WORK if who == "matmul" and line["cell"] in MATMUL else line["work"]
        return float(work / ms[who] / 1e9)

    def shown(who: str) -> str:
        return (
            f"{ms[who]:.4f} ms, {rate(who):.0f} {unit}"
            if unit == "TFLOP/s"
            else f"{ms[who]:.4f} ms, {rate(who):.2f} TB/s"
        )

    peers = [p for p in PEERS if p in ms]
    best = max((rate(p) for p in peers), default=0.0)
    cells = [line["cell"]]
    for who in ("ours", "ours, frozen maximum"):
        cells.append(shown(who) if who in ms else "–")
    cells.append("; ".join(f"{p} {shown(p)}" for p in (*peers, *OWN) if p in ms))
    cells += [f"{rate(who) / best:.2f}" if who in ms and best else "–" for who in ("ours", "ours, frozen maximum")]
    return "| " + " | ".join(cells) + " |"
