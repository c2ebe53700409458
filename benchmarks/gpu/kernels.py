"""Fused kernels on a GPU beside PyTorch, Inductor and what the memory allows, in one resumable run.

`python -m benchmarks.gpu --out cells.jsonl [--only PATTERN] [--budget SECONDS]` writes one JSON line for every cell and
skips those that the file has. Results are checked against float64 before anything is timed; who is wrong is not timed.
Table: `python -m benchmarks.gpu.report cells.jsonl`. `--target numpy --mib 1` tries the harness without a GPU.

Processes: this one starts workers that only compile (`--prepare`), then one that measures, and starts that one anew
after a broken context or a call that never ends. The cell is then tried once more without the schedules it asks for.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import subprocess
import sys
import time
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.gpu.cells import MIB, SMALL, Cell, every_cell, limit_us
from benchmarks.harness.measuring import Effort, Lines, finished, measure
from benchmarks.harness.processes import ROOT

BROKEN = 75  # exit status of a measuring process whose CUDA context is lost


def arguments_of(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--out", type=Path, required=True, help="file of JSON lines, continued where it exists")
    add("--only", default="*", help="cells whose name matches, as 'softmax*4096' (several: comma)")
    add("--budget", type=float, default=540.0, help="seconds after which no cell is begun")
    add("--again", action="store_true", help="repeat the cells in which anything of ours failed")
    add("--inductor", choices=("all", "chosen", "none"), default="all", help="the cells that torch.compile runs in")
    add("--prepare", type=float, default=150.0, help="seconds for compiling in parallel beforehand; 0: none")
    add("--workers", type=int, default=min(12, max(1, (os.cpu_count() or 2) - 2)), help="processes that compile")
    add("--patience", type=float, default=90.0, help="seconds after which a cell is given up")
    add("--mib", type=float, default=512.0, help="size of the largest argument")
    add("--target", default="cuda", help="what our forms are compiled for")
    add("--repeats", type=int, default=7)
    add("--seed", type=int, default=0)
    add("--list", action="store_true", help="print the cells and stop")
    add("--stage", choices=("all", "prepare", "measure"), default="all", help=argparse.SUPPRESS)
    add("--share", type=int, default=0, help=argparse.SUPPRESS)
    add("--began", type=float, default=time.time(), help=argparse.SUPPRESS)
    return parser.parse_args(words)


def chosen(options: argparse.Namespace) -> list[Cell]:
    patterns = [p.strip() for p in options.only.split(",")]
    return [c for c in every_cell(int(options.mib * MIB)) if any(fnmatch.fnmatch(c.name, f"*{p}*") for p in patterns)]


def pending(options: argparse.Namespace, lines: Lines) -> list[Cell]:
    """The cells that the file lacks, in order; of a cell that is listed twice, the first."""
    before = options.began if options.again else 0.0
    known = {name for name, record in lines.cells().items() if finished(record, before)}
    plain = suspects(options, lines)
    cells = {c.name: c for c in reversed(chosen(options)) if c.name not in known}
    return [replace(c, variants=()) if c.name in plain else c for c in reversed(cells.values())]


def suspects(options: argparse.Namespace, lines: Lines) -> dict[str, dict[str, Any]]:
    """The cells that took a process along, with what they asked for; `--again` forgets those of earlier runs."""
    since = options.began if options.again else 0.0
    return {r["suspect"]: r for r in lines.values("suspect") if r["when"] >= since}


def lost(lines: Lines, cell: Cell, why: str) -> None:
    """Note a cell that took its process along: without the schedules it asks for it is tried once more."""
    if cell.variants:
        lines.add({"suspect": cell.name, "variants": cell.variants, "why": why, "when": time.time()})
    else:
        lines.add({"cell": cell.name, "error": why, "results": {}, "when": time.time()})
    print(f"{cell}: {why}", flush=True)


def with_inductor(options: argparse.Namespace, cell: Cell) -> bool:
    return options.inductor == "all" or (options.inductor == "chosen" and cell.inductor)


def seed_of(options: argparse.Namespace, cell: Cell) -> int:
    return zlib.crc32(cell.name.encode()) ^ options.seed


# --- measuring -------------------------------------------------------------------------------------------------------


def measure_cells(options: argparse.Namespace) -> int:
    """All pending cells in this process; the exit status says whether another process should go on."""
    import torch

    from benchmarks.gpu.ceilings import Ceilings
    from benchmarks.gpu.lab import ROTATE, Lab

    lines, lab = Lines(options.out), Lab.here(options.target)
    torch.set_grad_enabled(False)
    lines.add({"conditions": lab.describe(), "mib": options.mib, "seed": options.seed, "target": options.target})
    ceilings = Ceilings(lines, lab.device, lab.clocks, rotate=ROTATE if lab.on_gpu else 0)
    plain = suspects(options, lines)
    for cell in pending(options, lines):
        if time.time() - options.began > options.budget:
            print("the time is up; the same command goes on")
            break
        started = time.perf_counter()
        _mark(options, cell)
        read, written = cell.traffic
        record: dict[str, Any] = {
            "cell": cell.name,
            "operation": cell.operation,
            "dtype": cell.dtype,
            "length": cell.length,
            "sizes": cell.lengths,
            "read": read,
            "written": written,
            "when": time.time(),
        }
        try:
            small = read + written < SMALL
            rates = ceilings.rates(read + written, small)
            record |= {"limit_us": round(limit_us(read, written, rates), 3), "small": small}
            record["results"] = measure_cell(options, lab, cell, small)
            if cell.name in plain:
                record["results"] |= dict.fromkeys(plain[cell.name]["variants"], {"error": plain[cell.name]["why"]})
            lab.finish()
        except Exception as problem:
            record["error"] = f"{type(problem).__name__}: {problem}"[:600]
        record["seconds"] = round(time.perf_counter() - started, 2)
        if not alive(lab):
            lost(lines, cell, f"the context was lost: {failure(record)}")
            return BROKEN
        lines.add(record)
        print(brief(record), flush=True)
    _mark(options, None)
    return 0


def failure(record: dict[str, Any]) -> str:
    """The first error of a cell."""
    errors = [r["error"] for r in (record, *record.get("results", {}).values()) if "error" in r]
    return str(errors[0]) if errors else "after the last call"


def measure_cell(options: argparse.Namespace, lab: Any, cell: Cell, small: bool) -> dict[str, Any]:
    sets = lab.sets(cell, seed_of(options, cell))
    judge = lab.judge(cell, sets[0])
    clock, graph = lab.clocks()
    return measure(
        lab.contenders(cell, sets, with_inductor(options, cell)),
        judge,
        clock,
        sets=len(sets),
        effort=Effort(repeats=options.repeats),
        graph=graph if small else None,
    )


def alive(lab: Any) -> bool:
    """Whether the context still works: an illegal access breaks it for good. Frees what the cell left."""
    try:
        import torch

        lab.finish()
        if lab.on_gpu:
            torch.cuda.empty_cache()
        return True
    except Exception as problem:
        print(f"the context is lost: {problem}", file=sys.stderr)
        return False


def prepare_cells(options: argparse.Namespace) -> int:
    """Compile for a share of the pending cells, so that the measuring process finds everything in the caches."""
    import torch

    from benchmarks.gpu.lab import Lab

    begin, lab = time.perf_counter(), Lab.here(options.target)
    torch.set_grad_enabled(False)
    for cell in pending(options, Lines(options.out))[options.share :: options.workers]:
        if time.perf_counter() - begin > options.prepare:
            break
        try:
            sets = lab.sets(cell, 0, count=1)
            for contender in lab.contenders(cell, sets, with_inductor(options, cell)):
                try:
                    contender.call(0) if contender.ours is False else contender.tries[-1]()
                except Exception as problem:  # it is reported when the cell is measured
                    print(f"{cell} {contender.name}: {problem}"[:300], file=sys.stderr)
        except Exception as problem:
            print(f"{cell}: {problem}"[:300], file=sys.stderr)
        if not alive(lab):
            return BROKEN
    return 0


def brief(record: dict[str, Any]) -> str:
    """A cell on one line of the terminal."""
    from benchmarks.gpu.report import figures

    text = " ".join(f"{k}={v}" for k, v in figures(record).items())
    return f"{record['cell']:42} {text} [{record['seconds']:.1f} s]"


# --- the process that watches ----------------------------------------------------------------------------------------


def _marker(options: argparse.Namespace) -> Path:
    return Path(f"{options.out}.now")


def _mark(options: argparse.Namespace, cell: Cell | None) -> None:
    if cell is None:
        _marker(options).unlink(missing_ok=True)
    else:
        _marker(options).write_text(json.dumps({"cell": cell.name, "since": time.time()}))


def _begun(options: argparse.Namespace) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(_marker(options).read_text())
        return found
    except (OSError, ValueError):
        return {}


def _start(words: Sequence[str], stage: str, *more: str, **options: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "benchmarks.gpu", *words, "--stage", stage, *more]
    # one thread for Inductor's compiler: a pool of its own in every process would cost more than it gives
    environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.Popen(command, env=environment, **options)


def prepare(options: argparse.Namespace, words: Sequence[str]) -> None:
    """Workers that compile, ended when the time for it is up."""
    begin = time.perf_counter()
    count = min(options.workers, len(pending(options, Lines(options.out))))
    shares = [("--share", str(k), "--workers", str(count), "--began", str(options.began)) for k in range(count)]
    workers = [_start(words, "prepare", *share, stdout=subprocess.DEVNULL) for share in shares]
    for worker in workers:
        try:
            worker.wait(timeout=max(1.0, options.prepare + 30 - (time.perf_counter() - begin)))
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()
    print(f"compiled beforehand in {time.perf_counter() - begin:.0f} s", flush=True)


def watch(options: argparse.Namespace, words: Sequence[str]) -> int:
    """Run measuring processes until no cell is left or the budget is spent."""
    lines = Lines(options.out)
    while True:
        if time.time() - options.began > options.budget or not pending(options, lines):
            return 0
        _mark(options, None)
        process = _start(words, "measure", "--began", str(options.began))
        status = _attended(process, options)
        cell = _begun(options).get("cell")
        if status == 0 or (status != BROKEN and cell is None):
            return status or 0  # done, or it failed before its first cell, as it would again
        if cell is not None and status != BROKEN:
            why = f"no answer within {options.patience:g} s" if status is None else f"the process ended with {status}"
            lost(lines, next(c for c in pending(options, lines) if c.name == cell), why)


def _attended(process: subprocess.Popen[bytes], options: argparse.Namespace) -> int | None:
    """The exit status; None where a cell took longer than the patience and the process was ended."""
    while True:
        try:
            return process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            if time.time() - _begun(options).get("since", time.time()) > options.patience:
                process.kill()
                process.wait()
                return None


def main(words: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if words is None else words)
    options = arguments_of(words)
    if options.list:
        cells = pending(options, Lines(options.out))
        print("\n".join(f"{c.name:44} {sum(c.traffic) / MIB:8.0f} MiB{' inductor' * c.inductor}" for c in cells))
        return 0
    if options.stage != "all":
        return measure_cells(options) if options.stage == "measure" else prepare_cells(options)
    if options.prepare and options.target == "cuda" and pending(options, Lines(options.out)):
        prepare(options, words)
    status = watch(options, words)
    from benchmarks.gpu.report import summary

    print(summary(Lines(options.out)))
    return status
