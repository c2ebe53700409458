"""Kernels whose PTX is on disk: a process that plans, prints and asks for them imports no compiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numba.cuda")

KERNELS = """
import json, sys
import redalg as ra
from redalg.kernels.cuda import run
from redalg.kernels.ir.layouts import View
from redalg.kernels.launch.ptx import ptx_of
from redalg.kernels.pipeline import plan
from redalg.kernels.schedule.target import H200
from redalg.kernels.launch.store import digest
CHAIN = "return E = sum[n](relu(sum[k](A[m,k]*B[k,n]))*D[n,l])"
CASES = [
    (ra.derive_incremental(ra.catalog["softmax"]), None),
    (ra.derive_incremental(ra.parse(CHAIN), axis="n", max_passes=4), "tensor"),
    (ra.derive_incremental(ra.catalog["attention"]), "tensor"),
    (ra.derive_incremental(ra.catalog["attention"]), "mma"),
]
SIZES = dict(h=2, i=128, j=128, d=64, e=64, m=256, k=64, n=128, l=64)
found = []
for form, schedule in CASES:
    views = {t.name: View.usual(t, SIZES) for t in form.spec.tensors}
    stack = [plan(form, dict.fromkeys(views, "bfloat16"), views, H200, schedule=schedule)]
    while stack:
        made = stack.pop()
        stack += [*made.before, *made.inside]
        found.append(digest(made.module.source, *ptx_of(made.module, (9, 0), made.choice.registers)))
print(json.dumps({"loaded": sorted({"numba", "llvmlite"} & set(sys.modules)), "found": found}))
"""


def process(code: str, cache: Path) -> Mapping[str, Any]:
    env = {**os.environ, "REDALG_CACHE_DIR": str(cache)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr
    found: Mapping[str, Any] = json.loads(done.stdout)
    return found


def test_the_second_process_imports_no_compiler_and_finds_the_same_ptx(tmp_path: Path) -> None:
    first, second = (process(KERNELS, tmp_path) for _ in range(2))
    assert first["loaded"] == ["llvmlite", "numba"] and second["loaded"] == []
    assert len({*second["found"]}) == 4 and first["found"] == second["found"]


BROKEN = """
import importlib.abc, json, sys
class Broken(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "numba.cuda":
            raise OSError("libsomething.so: undefined symbol")
sys.meta_path.insert(0, Broken())
import redalg as ra
from redalg.kernels.ir.program import Module
from redalg.kernels.launch.ptx import ptx_of
try:
    ptx_of(Module("def kernel(): pass", "kernel", (), 1), (9, 0))
except ra.RedalgError as refused:
    print(json.dumps([refused.what, refused.where, refused.why, refused.fix]))
"""


def test_a_broken_compiler_is_named_where_something_has_to_be_compiled(tmp_path: Path) -> None:
    what, where, why, fix = process(BROKEN, tmp_path)
    assert "kernel" in what and where and "undefined symbol" in why and "redalg[cuda]" in fix
