"""Printed kernels kept as files in tests/golden, to be read and compared.

``make golden`` runs this module, which writes them; with ``--check`` it names those that differ from what is printed
now, and ends with 1 if there are any. Schedules are given here, so that a file changes when printing changes and not
when another schedule is found to be quicker.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import redalg as ra
from redalg.kernels.cpu.plan import Kind
from redalg.kernels.cpu_programs import plan_cpu, print_cpu
from redalg.kernels.ir.layouts import View
from redalg.kernels.ir.schedule import Schedule
from redalg.kernels.pipeline import plan
from redalg.kernels.programs import lower
from redalg.kernels.schedule.target import H200
from tests.support.forms import form_of
from tests.support.places import ROOT

FOLDER = ROOT / "tests" / "golden"
HOW = "If the change is meant: `make golden`, and read what it changes before you commit it."


@dataclass(frozen=True)
class Golden:
    """One spec (of the catalog, or as text), lengths of its axes, and who walks the rows on a GPU."""

    name: str
    sizes: dict[str, int]
    schedule: Schedule
    text: str | None = None
    dtype: str = "float32"

    @cached_property
    def form(self) -> ra.Form:
        if self.text is not None:
            return ra.derive_incremental(ra.parse(self.text))
        return form_of(self.name)

    def dtypes(self) -> dict[str, object]:
        """Of floating tensors as the case says; numbers without axes are Python floats."""
        fixed = {"bool": "bool", "integer": "int64"}
        kinds = {t.name: next((fixed[w] for w in fixed if w in t.domain), self.dtype) for t in self.form.spec.tensors}
        return {t.name: kinds[t.name] if t.axes else float for t in self.form.spec.tensors}

    def views(self) -> dict[str, View]:
        """All arrays contiguous."""
        tensors = [t for t in self.form.spec.tensors if t.axes]
        return {t.name: View.contiguous(tuple(self.sizes[a] for a in t.axes)) for t in tensors}

    def cpu(self) -> tuple[str, str]:
        """How rows are walked, and the source."""
        kind = Kind(tuple(self.dtypes().items()))
        program = lower(self.form, self.dtypes())
        known = {**self.sizes, **program.lengths}
        made = {r.key: View.contiguous(tuple(known[a] for a in r.axes)) for r in program.results}
        draft = plan_cpu(self.form, kind, program, known, self.views() | made)
        return str(draft.schedule), print_cpu(draft).source

    def cuda(self) -> tuple[str, str]:
        planned = plan(self.form, self.dtypes(), self.views(), H200, schedule=self.schedule)
        return repr(planned.choice.schedule), planned.module.source

    def files(self) -> Iterator[tuple[Path, str]]:
        """Where each source is kept, and what should be there."""
        sizes = ", ".join(f"{axis}={n}" for axis, n in self.sizes.items())
        for target, (schedule, source) in (("cpu", self.cpu()), ("cuda", self.cuda())):
            head = f"# {self.name} of {self.dtype}, {sizes}; {target}, {schedule}\n# Written by `make golden`.\n\n"
            yield FOLDER / f"{self.name}_{self.dtype}_{target}.py", head + source.rstrip("\n") + "\n"


ROWS, LONG = {"i": 4096, "j": 4096}, {"i": 3, "j": 1_000_000}
BLOCK = Schedule(threads=256, rows=1, vector=4, tile=16, resident=True)
CASES = [
    Golden("softmax", ROWS, BLOCK),
    Golden("softmax", ROWS, Schedule(threads=128, rows=1, vector=8, tile=32, resident=True), dtype="bfloat16"),
    Golden("logsumexp", LONG, Schedule(threads=256, rows=1, vector=4, tile=16, split=44)),
    Golden("attention", {"h": 16, "i": 1024, "j": 1000, "d": 64, "e": 64}, Schedule(tile=2, columns_per_thread=2)),
    Golden("variance", {"i": 10_000, "j": 500}, Schedule(threads=32, rows=4, vector=4, tile=8)),
    Golden("layer_norm", ROWS, BLOCK),
    Golden("layer_norm", ROWS, Schedule(threads=256, rows=1, vector=8, tile=16, resident=True), dtype="bfloat16"),
    Golden("argmax", LONG, Schedule(threads=256, rows=1, vector=4, tile=16, cluster=4)),
    Golden("moe_softmax_topk", {"i": 8192, "j": 128}, Schedule(threads=32, rows=4, vector=4, tile=4, resident=True)),
    Golden("cross_entropy", {"i": 2048, "j": 32_001}, Schedule(threads=512, rows=1, vector=1, tile=8)),
    Golden(
        "absmax_quantise",
        ROWS,
        BLOCK,
        "scale = max[j](abs(x[i,j])) / 127; q = cast(x[i,j] / scale, int8); return q, scale",
    ),
    Golden(
        "column_mean",
        {"i": 20_000, "j": 4096},
        Schedule(threads=8, rows=32, tile=8, column=True),
        "return m = mean[i](x[i,j])",
    ),
    Golden(
        "column_softmax",
        {"i": 1000, "j": 4096},
        Schedule(threads=8, rows=32, tile=8, column=True, coarsen=2),
        "e = exp(x[i,j] - max[i](x[i,j])); return y = e / sum[i](e)",
        dtype="bfloat16",
    ),
    Golden(
        "masked_mean",
        {"i": 5000, "j": 30},
        Schedule(threads=1, rows=128, tile=6, vector=2),
        "tensors x[i,j], k[i,j] bool; return m = sum[j](where(k[i,j], x[i,j], 0)) / sum[j](where(k[i,j], 1, 0))",
    ),
    Golden(
        "log_softmax",
        {"i": 4096, "j": 65536},
        Schedule(
            threads=512, rows=1, vector=8, tile=32, exact=True, persistent=True, prefetch=65536, prefetch_distance=3
        ),
        dtype="bfloat16",
    ),
    Golden("biased_log", {"i": 512, "j": 1000}, Schedule(vector=4), "return y = log(relu(x[i,j] + b[j]))"),
]


def expected() -> dict[Path, str]:
    return {path: text for case in CASES for path, text in case.files()}


def differing() -> list[Path]:
    """Files whose text is not what is printed now, files that are missing, and files nobody prints."""
    wanted = expected()
    found = {path: path.read_text() for path in FOLDER.glob("*.py")}
    return sorted(path for path in {*wanted, *found} if wanted.get(path) != found.get(path))


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        found = differing()
        print(*(path.name for path in found), sep="\n", end="\n" if found else "")
        return bool(found)
    FOLDER.mkdir(exist_ok=True)
    for path in differing():
        path.unlink(missing_ok=True)
    for path, text in expected().items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
