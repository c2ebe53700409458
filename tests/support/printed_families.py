"""Every family of printers with a call that makes it print, under any names for the words of its spec."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest

import redalg as ra
from redalg.gradients.steps import together
from redalg.kernels import joint, steps
from redalg.kernels.code import text as cuda_text
from redalg.kernels.cpu.kernel import emit_cpu
from redalg.kernels.cpu.plan import Kind
from redalg.kernels.cpu.schedule import CpuSchedule
from redalg.kernels.cpu_programs import cpu_program, plan_cpu, print_cpu
from redalg.kernels.ir.layouts import View
from redalg.kernels.ir.schedule import Layout, Schedule
from redalg.kernels.launch.planned import Planned
from redalg.kernels.pipeline import plan
from redalg.kernels.programs import lower
from redalg.kernels.schedule.target import H200
from redalg.kernels.tile.match import Outside
from redalg.source import names as naming
from redalg.source.render import render
from redalg.streaming import source as emit_numpy
from tests.support import joint_cases, step_cases
from tests.support.chain_cases import CHAINS
from tests.support.level_cases import TEXTS
from tests.support.tensor_wide_cases import LATENT
from tests.support.window_cases import CONVOLUTION

AHEAD = Schedule(256, 1, 8, 16, exact=True, persistent=True, prefetch=1 << 13, prefetch_distance=1)
ANYWHERE = Schedule(64, 1, 8, 8, peel=True)
PEELED = Schedule(256, 1, 8, 16, persistent=True, prefetch=1 << 13, prefetch_distance=1, peel=True)
ENTRIES = Schedule(64, 1, 1, 2, split=2, persistent=True, entries=2)
GROUPS = Schedule(1, 32, 1, 19, resident=True, staged=True)
HELD = Schedule(32, 8, 1, 32, resident=True, column=True)
ROWS = {"i": 4096, "j": 4096}
HEADS = {"h": 4, "i": 4096, "j": 4096, "d": 128, "e": 128, "b": 4, "g": 4, "s": 64, "r": 64}
PRODUCT = {"i": 4096, "j": 4096, "k": 4096}
CHAIN = {"m": 512, "k": 512, "n": 1024, "l": 512}
GRADIENT = {"h": 4, "i": 1024, "j": 1024, "d": 64, "e": 64}
COVARIANCE = "u = mean[j](X[j,a]); v = mean[j](Y[j,b]); return C = mean[j]((X[j,a] - u)*(Y[j,b] - v))"
LIKENESS = "s = sum[d](Q[i,d]*K[j,d]); return v = topk[j:4](s).values, p = topk[j:4](s).indices, m = max[j](s)"
SCORED = "return y = max[j](sum[k](A[i,k]*B[j,k])), at = argmax[j](x[i,j])"


@dataclass(frozen=True)
class Family:
    """`text`: of a spec, or a name of the catalog, or of cases of `how`; lengths; dtype of arrays; order of memory."""

    text: str
    sizes: Mapping[str, int]
    real: str = "float32"
    schedule: Any = None
    order: str = "C"
    how: str = "call"
    axis: str | None = None
    launches: int | None = None


FAMILIES = {
    "thread": Family("softmax", ROWS, "float32", "thread"),
    "warp": Family("cross_entropy", ROWS, "float32", "warp"),
    "block": Family("layer_norm", ROWS, "bfloat16", "block"),
    "gain of long rows": Family("layer_norm", {"i": 2048, "j": 8192}, "bfloat16"),
    "cluster": Family("argmax", {"i": 3, "j": 1 << 20}, "float32", "cluster"),
    "split": Family("kl_divergence", {"i": 3, "j": 1 << 20}, "float32", "split"),
    "waiting": Family("softmax", {"i": 8, "j": 1 << 20}),
    "columns": Family("variance", ROWS, "bfloat16", "column", "F"),
    "columns beside": Family("softmax", ROWS, "bfloat16", Schedule(8, 32, 1, 8, column=True, coarsen=2), "F"),
    "columns held": Family("softmax", {"i": 4096, "j": 1024}, "float32", HELD, "F"),
    "columns of a cluster": Family("softmax", {"i": 4096, "j": 1024}, "bfloat16", replace(HELD, cluster=2), "F"),
    "ahead": Family("log_softmax", {"i": 4096, "j": 8192}, "bfloat16", AHEAD),
    "lists": Family("moe_softmax_topk", {"i": 8192, "j": 128}),
    "lists of warps": Family("moe_softmax_topk", {"i": 64, "j": 8192}, "float32", "block"),
    "lists of blocks": Family("moe_softmax_topk", {"i": 3, "j": 1 << 18}, "float32", "cluster"),
    "lists of wide numbers": Family("moe_softmax_topk", {"i": 64, "j": 8192}, "float64", "block"),
    "lists of wide numbers in a cluster": Family("moe_softmax_topk", {"i": 3, "j": 1 << 18}, "float64", "cluster"),
    "lanes": Family("attention", HEADS),
    "lanes in splits": Family("attention", {**HEADS, "h": 1, "i": 4}, "float32", "split"),
    "map": Family("return y = log(relu(x[i,j] + b[j]))", ROWS),
    "wgmma": Family("attention_causal", HEADS, "bfloat16", "tensor"),
    "wgmma frozen maximum": Family("attention_scaled", HEADS, "bfloat16", "frozen_max"),
    "wgmma splits": Family("attention", {**HEADS, "i": 64, "j": 32768}, "bfloat16", "tensor"),
    "wgmma logits": Family("splade", {"b": 4, "s": 256, "v": 4096, "d": 768}, "bfloat16", "tensor"),
    "wgmma lists": Family(LIKENESS, {"i": 512, "j": 4096, "d": 64}, "bfloat16", "tensor"),
    "wgmma latent": Family(LATENT, {"b": 8, "h": 64, "j": 512, "c": 512, "r": 64}, "bfloat16", "tensor"),
    "mma": Family("attention_bias", HEADS, "bfloat16", "mma"),
    "mma lists": Family(LIKENESS, {"i": 512, "j": 4096, "d": 64}, "bfloat16", "mma"),
    "mma few queries": Family("attention", {**HEADS, "i": 1, "j": 8192}, "bfloat16", "mma"),
    "tf32": Family("attention", HEADS, "float32", "tf32"),
    "product": Family("return y = relu(sum[j](x[i,j]*w[j,k]) + c[k])", PRODUCT, "bfloat16", "tensor"),
    "product of few rows": Family(
        "return y = sum[j](x[i,j]*w[j,k]) + c[k]", {**PRODUCT, "i": 16}, "bfloat16", "tensor"
    ),
    "product after": Family("rms_norm_gemm", PRODUCT, "bfloat16", "tensor"),
    "rows that start anywhere": Family("softmax", {"i": 33, "j": 4097}, "bfloat16", ANYWHERE),
    "ahead, rows that start anywhere": Family("softmax", {"i": 4096, "j": 8191}, "bfloat16", PEELED),
    "rows in groups": Family("softmax", {"i": 4096, "j": 19}, "float32", GROUPS),
    "rows in groups, ahead": Family("softmax", {"i": 1 << 18, "j": 19}, "bfloat16", replace(GROUPS, persistent=True)),
    "chain": Family(CHAINS["relu"][0], CHAIN, "bfloat16", "tensor"),
    "chain in one kernel": Family(CHAINS["relu"][0], {**CHAIN, "m": 64}, "bfloat16", "tensor", launches=1),
    "gated chain": Family(CHAINS["gated"][0], CHAIN, "bfloat16", "tensor"),
    "gradients of keys": Family(TEXTS["dK dV"][0], GRADIENT, "bfloat16", "tensor"),
    "product with its operand": Family("layer_norm_gemm", PRODUCT, "bfloat16", "fused_prologue"),
    "shared-out states": Family(COVARIANCE, {"j": 29, "a": 6, "b": 4}, "float32", ENTRIES, axis="j"),
    "columns inside reductions": Family(SCORED, {"i": 64, "j": 1024, "k": 8}, axis="j"),
    "compensated": Family("variance", ROWS, "float32", "block", how="compensated"),
    "pixels": Family(
        CONVOLUTION, {"b": 2, "h": 8, "w": 8, "r": 3, "s": 3, "c": 64, "n": 128}, "bfloat16", how="pixels"
    ),
    "one reading of statistics": Family("statistics", {"i": 4096, "j": 1024}, how="joint"),
    "steps": Family("group norm", {"n": 8, "g": 8, "c": 16, "k": 1024}, how="steps"),
    "gradients": Family("attention", {**HEADS, "i": 256, "j": 256}, how="vjp"),
    "tangents": Family("logsumexp", ROWS, how="jvp"),
    "turned rows": Family("layer_norm", {"i": 4096, "j": 7}, how="cpu"),
    "rows side by side": Family("softmax", {"i": 4096, "j": 300}, "float32", None, "F", "cpu"),
    "splits side by side": Family("variance", {"i": 64, "j": 1 << 18}, "float32", None, "F", "cpu"),
    "positions side by side": Family("argmax", {"i": 4096, "j": 300}, "float64", None, "F", "cpu"),
    "lists in splits": Family("moe_softmax_topk", {"i": 2, "j": 1 << 18}, how="cpu"),
    "contractions": Family("attention", {**HEADS, "i": 256, "j": 256, "d": 16}, how="cpu"),
    "compensated rows": Family("variance", {"i": 64, "j": 1 << 18}, how="cpu compensated"),
}


def specs_of(family: Family) -> list[ra.Spec]:
    """The specs that are printed together."""
    if family.how == "joint":
        return list(joint_cases.joint_of(family.text).apart)
    if family.how == "steps":
        return list(step_cases.steps_of(family.text).apart)
    spec = ra.catalog[family.text] if family.text in ra.catalog else ra.parse(family.text)
    if family.how == "vjp":
        return list(dict.fromkeys(spec.vjp(given="all").specs.values()))
    return [spec.jvp().spec] if family.how == "jvp" else [spec]


def words_of(family: Family) -> dict[str, list[str]]:
    """The names of a family's specs by what they name."""
    specs = specs_of(family)
    return {
        "tensor": [*dict.fromkeys(t.array or t.name for s in specs for t in s.tensors)],
        "axis": [*dict.fromkeys(a for s in specs for a in s.axes)],
        "output": [*dict.fromkeys(n for s in specs for n in s.outputs)],
    }


def renamed(spec: ra.Spec, names: Mapping[str, str]) -> ra.Spec:
    return ra.parse(re.sub(r"[^\W\d]\w*", lambda m: names.get(m[0], m[0]), str(spec)))


def dtype_of(decl: Any, real: str) -> Any:
    word = next((w for w in ("bool", "integer") if w in decl.domain), "")
    if not decl.axes:
        return {"bool": bool, "integer": int}.get(word, float)
    return {"bool": "bool", "integer": "int64"}.get(word, real)


def printed(family: Family, names: Mapping[str, str]) -> tuple[list[Planned], tuple[str, ...]]:
    """Plans of a GPU, and what printers write before names are spelled."""
    found: list[str] = []
    spellings = naming.spellings
    with pytest.MonkeyPatch.context() as patch:
        for module in (cuda_text, emit_numpy):
            patch.setattr(module, "spellings", lambda block: found.append(render(block)) or spellings(block))
        plans = list(_printed(family, names))
    return plans, tuple(dict.fromkeys(found))


def _printed(family: Family, names: Mapping[str, str]) -> Iterator[Planned]:
    specs = [renamed(s, names) for s in specs_of(family)]
    sizes = {names[a]: n for a, n in family.sizes.items() if a in names}
    dtypes = {t.name: dtype_of(t, family.real) for s in specs for t in s.tensors}
    views = {t.name: _view(t, sizes, family.order) for s in specs for t in s.tensors if t.axes}
    if family.how in ("joint", "steps"):
        (unit,) = together(specs)
        make: Any = joint.planned if family.how == "joint" else steps.planned
        yield make(unit, dtypes, views, H200, {})
        return
    for spec in specs:
        form = ra.derive_incremental(spec, axis=names.get(_axis(family) or ""), max_passes=8)
        own = {t.name: dtypes[t.name] for t in spec.tensors}
        held = {t.name: views[t.name] for t in spec.tensors if t.axes}
        emit_numpy.numpy_source(form.spec, form.plan)
        if "compensated" in family.how:
            form = replace(form, accuracy="compensated")
        if "cpu" in family.how:
            _print_cpu(form, own, held)
            continue
        if family.how == "pixels":
            yield _of_pixels(form, own, sizes)
            continue
        yield plan(form, own, held, H200, False, family.schedule, family.launches)
        if family.schedule is None or isinstance(family.schedule, str):
            program = lower(form, {n: "float32" if d == "bfloat16" else d for n, d in own.items()})
            for way in (CpuSchedule(), CpuSchedule(split=True)):
                emit_cpu(program, Layout(), way)


def _axis(family: Family) -> str | None:
    entry = (
        ra.catalog.entry(family.text) if family.text in ra.catalog and family.how in ("call", "compensated") else None
    )
    return entry.axis if entry is not None and isinstance(entry.axis, str) else family.axis


def _view(t: Any, sizes: Mapping[str, int], order: str) -> View:
    if t.dimensions and any(len(d.terms) != 1 for d in t.dimensions):
        return View.usual(t, sizes)
    shape = tuple(sizes[a] for a in t.axes)
    return View(shape, View.contiguous(shape[::-1]).strides[::-1]) if order == "F" else View.contiguous(shape)


def _of_pixels(form: Any, dtypes: Mapping[str, Any], sizes: Mapping[str, int]) -> Planned:
    views = {t.name: View.usual(t, sizes, False) for t in form.spec.tensors}
    try:
        return plan(form, dtypes, views, H200, schedule="tensor")
    except Outside as why:
        raise AssertionError(why) from why


def _print_cpu(form: Any, dtypes: Mapping[str, Any], views: Mapping[str, View]) -> None:
    kind = Kind(tuple(dtypes.items()))
    program = cpu_program(form, kind)
    known = {a: n for o in program.operands if o.axes for a, n in zip(o.axes, views[o.name].shape, strict=True)}
    known |= program.lengths
    made = {r.key: View.contiguous(tuple(known[a] for a in r.axes)) for r in program.results}
    draft = plan_cpu(form, kind, program, known, {**views, **made})
    if draft.across and not draft.turned:
        program = cpu_program(form, kind, draft.across)
        draft = plan_cpu(form, kind, program, known, {**views, **made})
    print_cpu(draft)


@cache
def quoted(family: str, prefix: str = "qq") -> tuple[list[Planned], tuple[str, ...]]:
    """With every name of the spec prefixed."""
    words = {w for some in words_of(FAMILIES[family]).values() for w in some}
    return printed(FAMILIES[family], {w: prefix + w for w in words})
