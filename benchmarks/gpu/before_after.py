"""Two checkouts on one device, in turns: every contraction line and a sample of rows, ours alone.

`python -m benchmarks.gpu.before_after BEFORE AFTER --out FILE [--only PATTERNS] [--rows 40] [--seed 0] [--budget 240]`
starts, for every cell, a process in each checkout that builds the cell and captures our calls in CUDA graphs, then lets
the two replay in turns (A B B A …). A line holds the times of every turn: the spread of a checkout with itself beside
the ratio of the two. Cells are built some at a time in parallel and timed one after the other. A checkout may be one
from before the benchmarks had folders.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import random
import select
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

TURNS, SECONDS, TOGETHER = 5, 0.06, 7  # turns of each, seconds of a turn, cells that are built at a time
SIZE = 512 << 20  # bytes of a row cell's largest argument
SHAPES = ((4, 32, 4096, 64), (4, 8, 4096, 256))  # shapes of attention that are timed here alone


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs=2, type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="*", help="cells whose name matches (several: semicolon)")
    parser.add_argument("--rows", type=int, default=40, help="row cells, drawn by --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budget", type=float, default=240.0, help="seconds after which no cells are begun")
    options = parser.parse_args(words)
    end = time.time() + options.budget
    before, after = (Worker(c).ask("names") for c in options.checkouts)
    names = {kind: [n for n in before[kind] if n in after[kind]] for kind in before}
    random.Random(options.seed).shuffle(names["rows"])
    names["rows"] = names["rows"][: options.rows]
    only = [one.strip() for one in options.only.split(";")]
    cells = [(kind, n) for kind, own in names.items() for n in own if any(fnmatch.fnmatch(n, one) for one in only)]
    count = max(1, -(-len(cells) // TOGETHER))
    batches = [cells[k::count] for k in range(count)]  # neighbours, which are alike in size, apart
    while batches and time.time() < end:
        _run(batches.pop(0), options.checkouts, options.out)
    print("not begun:", [name for batch in batches for _, name in batch])


def _run(batch: list[tuple[str, str]], checkouts: list[Path], out: Path) -> None:
    pairs = []
    for kind, name in batch:
        workers = [Worker(c) for c in checkouts]
        for w in workers:
            w.tell("make", kind, name)
        pairs.append((kind, name, workers))
    built = [[w.answer() for w in workers] for _, _, workers in pairs]  # all of them before the first is timed
    for (kind, name, workers), made in zip(pairs, built, strict=True):
        times: list[dict[str, list[float]]] = [{}, {}]
        if not any("failed" in m for m in made):
            for turn in range(TURNS):
                for at in (0, 1) if turn % 2 == 0 else (1, 0):
                    for who, us in workers[at].ask("time").items():
                        times[at].setdefault(who, []).append(us)
        for w in workers:
            w.process.kill()
        with out.open("a") as f:
            f.write(json.dumps({"kind": kind, "cell": name, "made": made, "us": times}) + "\n")
        print(*_told(name, *times), *(m for m in made if "failed" in m), sep="\n", flush=True)


def _told(name: str, before: dict[str, list[float]], after: dict[str, list[float]]) -> list[str]:
    found = []
    for who in before.keys() & after.keys():
        a, b = before[who], after[who]
        ratio = statistics.median(b) / statistics.median(a)
        found.append(f"{ratio:.3f} (spread {max(a) / min(a):.3f}, {max(b) / min(b):.3f}) {name}, {who}")
    return found


class Worker:
    """A process in a checkout; messages are lines of JSON."""

    def __init__(self, checkout: Path) -> None:
        links = os.pathsep.join([str(checkout / ".links"), str(checkout), os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, "-u", str(Path(__file__).resolve()), "--work"]
        kept = {"REDALG_CACHE_DIR": str(checkout / ".cache" / "kernels")}  # checkouts share no compiled kernels
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": links, **kept},
        )

    def tell(self, *words: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(words) + "\n")

    def answer(self, seconds: float = 90.0) -> Any:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        line = self.process.stdout.readline() if ready else ""
        return json.loads(line) if line else {"failed": "no answer"}

    def ask(self, *words: str) -> Any:
        self.tell(*words)
        return self.answer()


# --- in a checkout ---------------------------------------------------------------------------------------------------


def work() -> None:
    """Answer `names`, `make KIND NAME` and `time`, until the input ends."""
    answers, sys.stdout = sys.stdout, sys.stderr
    replays: dict[str, Any] = {}
    for line in sys.stdin:
        what, *words = json.loads(line)
        try:
            found: Any = _names() if what == "names" else _times(replays) if what == "time" else None
            if what == "make":
                replays = {who: _captured(call) for who, call in _calls(*words).items()}
                found = {"calls": sorted(replays)}
        except Exception as problem:
            found = {"failed": repr(problem)[:300]}
        answers.write(json.dumps(found) + "\n")
        answers.flush()


def _names() -> dict[str, list[str]]:
    try:
        from benchmarks.gpu.cells import every_cell
    except ImportError:
        from benchmarks.gpu_cells import every_cell
    return {"contractions": list(_contractions()), "rows": [c.name for c in every_cell(SIZE)]}


def _attention() -> Any:
    try:
        from benchmarks.gpu import attention
    except ImportError:
        from benchmarks import gpu_attention as attention
    return attention


def _contractions() -> dict[str, Any]:
    a = _attention()
    found = a.CELLS | a.TYPES | a.PRODUCTS
    make = next(cell.func for name, cell in a.CELLS.items() if name.startswith("attention"))
    for shape in SHAPES:
        for causal, name in ((False, "attention_scaled"), (True, "attention_causal")):
            more = {"causal": True, "share": 0.5} if causal else {}
            title = f"attention ({','.join(map(str, shape))}) bf16" + (" causal" if causal else "")
            found[title] = partial(make, name, shape, **more)
    return found


def _calls(kind: str, name: str) -> dict[str, Any]:
    """Our calls, those that are right; peers are neither compiled nor run."""
    import torch

    torch.compile = lambda f=None, **_: f if f is not None else lambda g: g
    torch.manual_seed(0)
    if kind == "contractions":
        cell = _contractions()[name]()
        own = {who.replace("anchor stays", "frozen maximum"): c for who, c in cell.calls.items() if who[:4] == "ours"}
        errors = {who: _attention()._checked(call, cell) for who, call in own.items()}
        wrong = {who: e for who, e in errors.items() if not (isinstance(e, float) and e <= cell.bound)}
        if wrong:
            print(f"{name}: wrong, not timed: {wrong}", flush=True)
        torch.cuda.empty_cache()
        return {who: call for who, call in own.items() if who not in wrong}
    from benchmarks.gpu.cells import every_cell
    from benchmarks.gpu.lab import Lab

    cell = next(c for c in every_cell(SIZE) if c.name == name)
    sets = Lab("cuda", torch.device("cuda")).sets(cell, 0)
    run = cell.op.form.compile("cuda")
    return {"ours": lambda: [run(**s) for s in sets]}


def _captured(call: Any) -> Any:
    import torch

    call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def _times(replays: dict[str, Any]) -> dict[str, float]:
    """Microseconds of a replay."""
    import torch

    def timed(call: Any, count: int) -> float:
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(count):
            call()
        stop.record()
        stop.synchronize()
        return float(start.elapsed_time(stop)) / count * 1e3

    found = {}
    for who, call in replays.items():
        count = max(3, int(SECONDS * 1e6 / max(1.0, timed(call, 3))))
        timed(call, count // 4 + 1)
        found[who] = round(timed(call, count), 2)
    return found


if __name__ == "__main__":
    work() if sys.argv[1:] == ["--work"] else main()
