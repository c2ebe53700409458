"""The page of passes: what runs after what, what is told of a broken pass, and that nobody else calls one."""

from __future__ import annotations

import ast
import pickle
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

import redalg as ra
from redalg.errors import RedalgError
from redalg.explore import kernel
from redalg.kernels import cpu_programs, pipeline
from redalg.kernels.ir.layouts import View
from redalg.kernels.ir.program import Program
from redalg.kernels.lower.draft import ProgramDraft
from redalg.kernels.pipeline import NAMES
from redalg.kernels.programs import BrokenPass, Pass
from redalg.kernels.schedule.target import H200
from tests.kernels.cpu.test_axes_of_nothing import SPECS
from tests.support.forms import form_of_text
from tests.support.modules import SOURCES, tree
from tests.support.sample import deep

LISTS = (*pipeline.LISTS, cpu_programs.CPU_PROGRAM, cpu_programs.CPU)
SIZES = {"i": 512, "j": 1024, "k": 256, "h": 2, "d": 64, "e": 64}


def printed(name: str, dump_after: str | None = None, schedule: str | None = None) -> str:
    form = ra.derive_incremental(ra.catalog[name], max_passes=2)
    sizes = {a: SIZES.get(a, 64) for t in form.spec.tensors for a in t.axes}
    return kernel(form, sizes, "H200", "bfloat16", schedule, dump_after=dump_after).source


@pytest.mark.parametrize("name", SPECS)
def test_calls_of_no_elements_are_planned(name: str) -> None:
    form = form_of_text(*SPECS[name])
    for none in [*combinations(form.spec.axes, 1), *combinations(form.spec.axes, 2)]:
        views = {t.name: View.contiguous(tuple(0 if a in none else 64 for a in t.axes)) for t in form.spec.tensors}
        for dtype in ("float32", "bfloat16"):
            made = pipeline.plan(form, dict.fromkeys(views, dtype), views, H200)
            assert {r.name for r in made.program.results} == {*form.spec.outputs}, none


def test_a_name_stands_for_one_pass_of_a_list() -> None:
    for passes in LISTS:
        assert len({p.name for p in passes}) == len(passes)
        assert all(p.does and "\n" not in p.does and len(p.does) < 90 for p in passes)


@pytest.mark.parametrize(
    ("name", "schedule", "lists"),
    [
        ("attention", None, (pipeline.TILE_PROGRAM, pipeline.ATTENTION)),
        *deep(
            [
                ("softmax", None, (pipeline.ROW_PROGRAM, pipeline.ROWS)),
                ("layer_norm_gemm", "tensor", (pipeline.GEMM, pipeline.ROWS)),  # and of what prepares an operand
            ]
        ),
    ],
)
def test_the_draft_is_printed_after_any_pass(
    name: str, schedule: str | None, lists: tuple[tuple[Pass, ...], ...], capsys: pytest.CaptureFixture[str]
) -> None:
    source = printed(name, schedule=schedule)
    for step in (p for passes in lists for p in passes):
        assert printed(name, step.name, schedule) == source
        assert capsys.readouterr().out.strip(), step.name


@pytest.mark.parametrize("name", cpu_programs.NAMES)
def test_a_call_on_the_cpu_prints_its_draft_after_any_pass(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Once for every kind of call, and the call gives what it gives without."""
    run = ra.derive_incremental(ra.catalog["softmax"]).compile("cpu", dump_after=name)
    x = [[0.0, 1.0, 1.0], [2.0, 2.0, 2.0]]
    np.testing.assert_allclose(run(x=x), ra.reference(ra.catalog["softmax"], x=x), rtol=1e-15)
    assert capsys.readouterr().out.strip()
    run(x=x)
    assert not capsys.readouterr().out
    assert pickle.loads(pickle.dumps(run)).dump_after == name


def test_an_unknown_pass_is_refused() -> None:
    with pytest.raises(RedalgError, match="dump_after='tyles'"):
        printed("softmax", "tyles")
    assert "tiles" in NAMES and "past caches" not in NAMES


@pytest.mark.parametrize(
    ("target", "name"),
    [("cpu", "tiles"), ("cpu", "shedule"), ("cuda", "past caches"), ("numpy", "print")],
)
def test_a_target_refuses_passes_it_has_not(target: str, name: str) -> None:
    """In four parts, before anything is compiled, and for "cuda" without a GPU too."""
    with pytest.raises(RedalgError, match=f"refused: dump_after='{name}'") as caught:
        ra.derive_incremental(ra.catalog["softmax"]).compile(target, dump_after=name)
    assert caught.value.where == "form.compile" and caught.value.why and caught.value.fix
    if target != "numpy":
        assert caught.value.fix.startswith("dump_after='") and caught.value.fix[12:-1] in caught.value.why
    if name == "shedule":
        assert caught.value.fix == "dump_after='schedule'"


def test_a_pass_that_breaks_an_invariant_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(draft: ProgramDraft) -> None:
        assert isinstance(draft.program, Program)
        draft.program = replace(draft.program, results=draft.program.results * 2)

    broken = (*pipeline.ROW_PROGRAM, Pass("double", "results twice", twice))
    monkeypatch.setattr(pipeline, "ROW_PROGRAM", broken)
    form = ra.derive_incremental(ra.parse("return y = sum[j](3 * x[i,j])"))
    with pytest.raises(BrokenPass, match="results: y twice, after pass 'double'"):
        kernel(form, {"i": 8, "j": 8})


PAGES = {"redalg.kernels.pipeline", "redalg.kernels.programs", "redalg.kernels.cpu_programs"}


def test_nothing_else_calls_a_pass() -> None:
    """The functions of the lists are named on the three pages alone."""
    own = {p.run for passes in LISTS for p in passes if p.run.__module__ not in PAGES}
    homes = {(f.__module__, f.__name__) for f in own}
    assert len(homes) > 30
    for module in SOURCES:
        if not module.startswith("redalg.kernels") or module in PAGES:
            continue
        called = {n.func.id for n in ast.walk(tree(module)) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
        assert not {name for home, name in homes if home == module and name in called}, module
        for node in ast.walk(tree(module)):
            if isinstance(node, ast.ImportFrom):
                assert not {(node.module, alias.name) for alias in node.names} & homes, module
