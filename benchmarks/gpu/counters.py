"""What the counters of the hardware say of our kernels: bytes from and to memory, and which part of the device is busy.

`python -m benchmarks.gpu.counters --out FILE` runs one launch of every chosen cell under Nsight Compute (`ncu`, whose
clocks are left alone) and writes one JSON line for each; `--report FILE` writes `gpu_counters.md`. *Once*: every
argument read and every result written once, of chains also what lies between their kernels, as it is planned; *fused*:
what `ra.traffic` counts, where a row whose results keep the axis is walked twice, if it is not held on the chip. Memory
is cold and data are larger than the caches, but for chains; of what is written, some MiB are in L2 still when a launch
ends. Shares are of the peak that the counter's unit can sustain; times under a profiler are no benchmark.
"""

from __future__ import annotations

import argparse
import csv
import fnmatch
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

from benchmarks.harness.processes import RECORDS, ROOT, conditions, provenance, stamp

ROWS = (
    "softmax float32 32768x4096",
    "softmax float32 2048x65536",
    "softmax float32 128x1048576",
    "softmax bfloat16 8x16777216",
    "layer_norm float32 2048x65536",
    "layer_norm bfloat16 4096x65536",
    "rms_norm float32 128x1048576",
    "cosine_similarity float32 128x1048576",
    "cross_entropy float32 16384x8192",
    "cross_entropy bfloat16 65536x4096",
    "kl_divergence bfloat16 65536x4096",
    "argmax bfloat16 65536x4096",
    "var_mean bfloat16 65536x4096",
    "column_variance bfloat16 65536x4096",
    "column_variance bfloat16 1048576x256",
    "softmax_top8 bfloat16 4096x4096",
    "softmax_top8 bfloat16 65536x128",
)
TENSOR = (
    "attention (4,16,4096,128) bf16",
    "attention (16,16,1024,128) bf16",
    "attention (128,16,512,64) fp16",
    "soft-capped (4,16,4096,128) bf16",
    "latent decode: batch 64, 128 heads, 576/512, 8k keys",
    "decode: batch 16, 32 heads, 8 of keys, 32k keys, 128",
    "SPLADE head (32,256,768) x 30528 bf16",
    "matrix product 4096^3 bf16",
)
CHAINS = ("G1", "G4", "G5", "G6", "G8", "G10", "S2", "S3", "S8")  # of 128 rows; benchmarks.gpu.chains
SHARES = {  # counter -> the column of the table
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": "memory",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed": "L2",
    "l1tex__throughput.avg.pct_of_peak_sustained_active": "L1",
    "smsp__issue_active.avg.pct_of_peak_sustained_active": "issue",
    "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active": "special",
    "sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active": "integer",
    "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active": "float",
    "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active": "tensor",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "warps",
}
MARK = "FillFunctor"
READ, WRITTEN, TIME = "dram__bytes_read.sum", "dram__bytes_write.sum", "gpu__time_duration.sum"


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--report", type=Path)
    parser.add_argument("--only", default="*", help="cells whose name matches (several patterns: semicolon)")
    parser.add_argument("--patience", type=float, default=300.0)
    parser.add_argument("--launch", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.report:
        (RECORDS / "gpu_counters.md").write_text(text(options.report))
    elif options.launch:
        import torch

        device = {"device": torch.cuda.get_device_name(), "conditions": conditions()}
        for name, moved in launches(options.only):
            print("cell", json.dumps({"cell": name, "moved": moved} | device), flush=True)
    else:
        measure(options.out, options.only, options.patience)


# --- the process that is profiled ------------------------------------------------------------------------------------


def launches(only: str) -> Iterator[tuple[str, int]]:
    """One profiled call of every cell; what it moves at least, in bytes."""
    import torch

    mark = torch.empty(1, device="cuda")
    for name, make in cells(only):
        call, moved = make()
        call()
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        call()
        mark.fill_(1)  # a kernel of `MARK`, which ends the call's
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()
        yield name, moved
        del call
        torch.cuda.empty_cache()


def cells(only: str) -> Iterator[tuple[str, Callable[[], tuple[Callable[[], Any], int]]]]:
    from benchmarks.gpu.attention_cells import CELLS
    from benchmarks.gpu.cells import MIB, every_cell
    from benchmarks.gpu.gemm_cells import CELLS as PRODUCTS

    known = {c.name: c for c in every_cell(512 * MIB)}
    patterns = only.split(";")
    for name in ROWS:
        if any(fnmatch.fnmatch(name, p) for p in patterns):
            yield name, lambda cell=known[name]: row_call(cell)
    for name in TENSOR:
        if any(fnmatch.fnmatch(name, p) for p in patterns):
            yield name, lambda make=(CELLS | PRODUCTS)[name]: tensor_call(make)
    for name in CHAINS:
        if any(fnmatch.fnmatch(f"chain {name}", p) for p in patterns):
            yield f"chain {name}", lambda name=name: chain_call(name)


def row_call(cell: Any) -> tuple[Callable[[], Any], int]:
    from benchmarks.gpu.lab import Lab

    lab = Lab.here("cuda")
    (arguments,) = lab.sets(cell, 0, count=1)
    run, out = cell.op.form.compile("cuda"), lab.poisoned(cell)
    given = out if len(out) > 1 else next(iter(out.values()))
    return lambda: run(**arguments, out=given), sum(cell.traffic)


def tensor_call(make: Callable[[], Any]) -> tuple[Callable[[], Any], int]:
    """`ours` alone; bytes are those of its arrays."""
    import torch

    ours = make().calls["ours"]
    arrays = [x for x in ours.keywords.values() if torch.is_tensor(x)]
    return ours, sum(x.numel() * x.element_size() for x in arrays)


def chain_call(name: str) -> tuple[Callable[[], Any], int]:
    """Two products of 128 rows; bytes are the planner's: of every kernel, what it reads and writes once."""
    from benchmarks.gpu.chains import operands, run_of

    given, run = operands(name, 128), run_of(name)
    run(**given)
    return lambda: run(**given), run.planned.choice.bytes


# --- the profiler ----------------------------------------------------------------------------------------------------


def measure(out: Path, only: str, patience: float) -> None:
    counters = [READ, WRITTEN, TIME, *SHARES]
    known = subprocess.run(["ncu", "--query-metrics"], capture_output=True, text=True, timeout=patience).stdout
    names = {line.split()[0] for line in known.splitlines() if line.strip()}
    counters = [c for c in counters if c.split(".")[0] in names] or counters
    command = ["ncu", "--clock-control", "none", "--profile-from-start", "off", "--csv", "--page", "raw"]
    command += ["--print-units", "base", "--metrics", ",".join(counters), "--target-processes", "all"]
    command += [sys.executable, "-m", "benchmarks.gpu.counters", "--launch", "--only", only]
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=patience
    )
    found = list(lines(done.stdout, counters))
    with out.open("a") as f:
        for line in found:
            f.write(json.dumps(line | stamp()) + "\n")
            print(json.dumps(line))
    if done.returncode or not found:
        print(done.stdout[-4000:])


def lines(printed: str, counters: list[str]) -> Iterator[dict[str, Any]]:
    """The output of `ncu`: what the profiled process says, and a table with a line for every kernel.

    A call of several kernels gives their sums of bytes and time, and the shares of the longest.
    """
    said = printed.splitlines()
    rows = iter(list(csv.DictReader(line for line in said if line.startswith('"')))[1:])  # the first gives units
    for found in re.findall(r"^.*?cell (\{.*\})", printed, re.MULTILINE):
        kernels = takewhile(lambda row: MARK not in row["Kernel Name"], rows)
        group = [{c: _number(row.get(c)) for c in counters} for row in kernels]
        if group:
            longest = max(group, key=lambda g: g.get(TIME, 0.0))
            yield json.loads(found) | {
                "kernels": len(group),
                "read": sum(g[READ] for g in group),
                "written": sum(g[WRITTEN] for g in group),
                "us": round(sum(g[TIME] for g in group) / 1e3, 1),
                "shares": {word: round(longest[c], 1) for c, word in SHARES.items() if c in longest},
            }


def planned_traffic() -> dict[str, float]:
    """MiB that `ra.traffic` counts for the cells of rows."""
    import redalg as ra
    from benchmarks.gpu.cells import MIB, every_cell

    known = {c.name: c for c in every_cell(512 * MIB) if c.name in ROWS}
    counted = {n: ra.traffic(c.op.form.spec, c.lengths, c.dtype, form=c.op.form) for n, c in known.items()}
    return {n: t.fused.bytes / MIB for n, t in counted.items()}


def _number(text: str | None) -> float:
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return 0.0


def text(file: Path) -> str:
    found = [json.loads(line) for line in file.read_text().splitlines()]
    columns = list(SHARES.values())
    about = " ".join((__doc__ or "").split("\n\n")[1].split())
    head = ["cell", "once MiB", "fused MiB", "read + written MiB", "of once", *(f"{c} %" for c in columns)]
    fused = planned_traffic()
    out = ["# Counters of the hardware", "", about, "", f"{found[0]['device']}, {found[0]['conditions']}", ""]
    out += [provenance(found), ""]
    out += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for line in found:
        moved, counted = line["moved"] / 2**20, (line["read"] + line["written"]) / 2**20
        digits = 1 if moved < 100 else 0
        cells = [line["cell"], f"{moved:.{digits}f}", f"{fused[line['cell']]:.0f}" if line["cell"] in fused else "–"]
        cells += [f"{line['read'] / 2**20:.{digits}f} + {line['written'] / 2**20:.{digits}f}"]
        cells += [f"{counted / moved:.2f}", *(str(line["shares"].get(c, "–")) for c in columns)]
        out.append("| " + " | ".join(cells) + " |")
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    main()
