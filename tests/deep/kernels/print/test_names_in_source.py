"""No name of a spec is captured by printed source: not one of the printer's names, a keyword, a builtin or an import.

Specs whose every name begins with ``qq`` are printed by every family of printers. Before names are spelled, each of
their names must stand between marks (otherwise nothing would keep it apart); then every such word is given every
identifier of its own source, and keywords and builtins, as a spelling, and the two sources must have one syntax tree
but for identifiers, which are renamed one to one.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import re
from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.kernels.code import text as cuda_text
from redalg.kernels.cpu.kernel import emit_cpu
from redalg.kernels.cpu.schedule import CpuSchedule
from redalg.kernels.ir.layouts import View
from redalg.kernels.ir.schedule import Layout, Schedule
from redalg.kernels.pipeline import plan
from redalg.kernels.programs import lower
from redalg.kernels.schedule.target import H200
from redalg.source import names as naming
from redalg.source.render import render
from redalg.source.statements import statements
from redalg.streaming import source as emit_numpy
from tests.support.chain_cases import CHAINS
from tests.support.level_cases import TEXTS
from tests.support.simulated import run

PREFIX = "qq"
AHEAD = Schedule(256, 1, 8, 16, exact=True, persistent=True, prefetch=1 << 13, prefetch_distance=1)
ROWS = {"i": 4096, "j": 4096}
HEADS = {"h": 4, "i": 4096, "j": 4096, "d": 128, "e": 128, "b": 4, "g": 4, "s": 64, "r": 64}
PRODUCT = {"i": 4096, "j": 4096, "k": 4096}
CHAIN = {"m": 512, "k": 512, "n": 1024, "l": 512}
GRADIENT = {"h": 4, "i": 1024, "j": 1024, "d": 64, "e": 64}
ANYWHERE = Schedule(64, 1, 8, 8, peel=True)
# family: what is printed, lengths, dtype of arrays, schedule, order of memory
FAMILIES: dict[str, tuple[str, dict[str, int], str, Any, str]] = {
    "thread": ("softmax", ROWS, "float32", "thread", "C"),
    "warp": ("cross_entropy", ROWS, "float32", "warp", "C"),
    "block": ("layer_norm", ROWS, "bfloat16", "block", "C"),
    "gain of long rows": ("layer_norm", {"i": 2048, "j": 8192}, "bfloat16", None, "C"),
    "cluster": ("argmax", {"i": 3, "j": 1 << 20}, "float32", "cluster", "C"),
    "split": ("kl_divergence", {"i": 3, "j": 1 << 20}, "float32", "split", "C"),
    "waiting": ("softmax", {"i": 8, "j": 1 << 20}, "float32", None, "C"),
    "columns": ("variance", ROWS, "bfloat16", "column", "F"),
    "columns beside": ("softmax", ROWS, "bfloat16", Schedule(8, 32, 1, 8, column=True, coarsen=2), "F"),
    "ahead": ("log_softmax", {"i": 4096, "j": 8192}, "bfloat16", AHEAD, "C"),
    "lists": ("moe_softmax_topk", {"i": 8192, "j": 128}, "float32", None, "C"),
    "lanes": ("attention", HEADS, "float32", None, "C"),
    "map": ("return y = log(relu(x[i,j] + b[j]))", ROWS, "float32", None, "C"),
    "wgmma": ("attention_causal", HEADS, "bfloat16", "tensor", "C"),
    "wgmma frozen maximum": ("attention_scaled", HEADS, "bfloat16", "frozen_max", "C"),
    "wgmma splits": ("attention", {**HEADS, "i": 64, "j": 32768}, "bfloat16", "tensor", "C"),
    "wgmma logits": ("splade", {"b": 4, "s": 256, "v": 4096, "d": 768}, "bfloat16", "tensor", "C"),
    "mma": ("attention_bias", HEADS, "bfloat16", "mma", "C"),
    "tf32": ("attention", HEADS, "float32", "tf32", "C"),
    "product": ("return y = relu(sum[j](x[i,j]*w[j,k]) + c[k])", PRODUCT, "bfloat16", "tensor", "C"),
    "product after": ("rms_norm_gemm", PRODUCT, "bfloat16", "tensor", "C"),
    "rows that start anywhere": ("softmax", {"i": 33, "j": 4097}, "bfloat16", ANYWHERE, "C"),
    "chain": (CHAINS["relu"][0], CHAIN, "bfloat16", "tensor", "C"),
    "gated chain": (CHAINS["gated"][0], CHAIN, "bfloat16", "tensor", "C"),
    "gradients of keys": (TEXTS["dK dV"][0], GRADIENT, "bfloat16", "tensor", "C"),
    "product with its operand": ("layer_norm_gemm", PRODUCT, "bfloat16", "fused_prologue", "C"),
}


def spec_of(name: str) -> tuple[ra.Spec, str | None]:
    if name not in ra.catalog:
        return ra.parse(name), None
    entry = ra.catalog.entry(name)
    return entry.spec, entry.axis if isinstance(entry.axis, str) else None


def quoted(spec: ra.Spec) -> ra.Spec:
    """The spec with every name of its own prefixed."""
    names = {*spec.axes, *spec.outputs, *(t.name for t in spec.tensors)}
    return ra.parse(re.sub(r"[^\W\d]\w*", lambda m: PREFIX + m[0] if m[0] in names else m[0], str(spec)))


def dtype_of(decl: Any, real: str) -> Any:
    word = next((w for w in ("bool", "integer") if w in decl.domain), "")
    if not decl.axes:
        return {"bool": bool, "integer": int}.get(word, float)
    return {"bool": "bool", "integer": "int64"}.get(word, real)


@cache
def marked(family: str) -> tuple[str, ...]:
    """What printers of a family write before names are spelled."""
    name, sizes, real, schedule, order = FAMILIES[family]
    spec, axis = spec_of(name)
    spec = quoted(spec)
    form = ra.derive_incremental(spec, axis=axis and PREFIX + axis, max_passes=3)
    dtypes = {t.name: dtype_of(t, real) for t in spec.tensors}
    views = {}
    for t in spec.tensors:
        shape = tuple(sizes[a.removeprefix(PREFIX)] for a in t.axes)
        turned = View.contiguous(shape[::-1]).strides[::-1]
        views |= {t.name: View(shape, turned) if order == "F" else View.contiguous(shape)} if t.axes else {}
    found: list[str] = []
    spellings = naming.spellings
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda_text, "spellings", lambda block: found.append(render(block)) or spellings(block))
        patch.setattr(emit_numpy, "spellings", lambda block: found.append(render(block)) or spellings(block))
        plan(form, dtypes, views, H200, False, schedule)
        if schedule is None or isinstance(schedule, str):
            program = lower(form, {n: "float32" if d == "bfloat16" else d for n, d in dtypes.items()})
            for way in (CpuSchedule(), CpuSchedule(split=True)):
                emit_cpu(program, Layout(), way)
        emit_numpy.numpy_source(form.spec, form.plan)
    return tuple(dict.fromkeys(found))


def spelled_text(source: str) -> str:
    block = statements(source)
    return render(block, names=naming.spellings(block))


def named(tree: ast.AST) -> Iterator[str]:
    """Identifiers in the order of the tree; attributes and keywords of calls are no variables."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.alias):
            yield node.asname or node.name


def bare(tree: ast.AST) -> str:
    """The tree without identifiers and strings."""
    for node in ast.walk(tree):
        for field in ("id", "arg", "name"):
            if isinstance(getattr(node, field, None), str) and not isinstance(node, ast.keyword):
                setattr(node, field, "_")
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = ""
    return ast.dump(tree)


def agree(source: str, final: str) -> None:
    """One tree but for identifiers, renamed one to one in every function, words of the spec alone."""
    before, after = ast.parse(source), ast.parse(final)
    pairs = dict.fromkeys(zip(named(before), named(after), strict=True))
    assert len({a for a, _ in pairs}) == len(pairs)
    for a, b in pairs:
        assert not keyword.iskeyword(b) and (a == b or not hasattr(builtins, b)), (a, b)
        assert a == b or naming._MARKED.search(a), (a, b)
    for one, other in zip(before.body, after.body, strict=True):
        seen: dict[str, str] = {}
        for a, b in zip(named(one), named(other), strict=True):
            assert seen.setdefault(b, a) == a, (a, seen[b], b)
    for a, b in pairs:
        assert b not in (free := _free(before)) or a == b, (a, b, free)
    assert bare(before) == bare(after)


def _free(tree: ast.Module) -> set[str]:
    """What functions read and do not bind, and what stands around them."""
    found: set[str] = set()
    for s in tree.body:
        if not isinstance(s, ast.FunctionDef):
            found |= {*named(s)}
            continue
        bound = {n.id for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        found |= {*named(s)} - bound - {a.arg for a in s.args.args} | {s.name}
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_every_name_of_a_spec_is_marked(family: str) -> None:
    sources = marked(family)
    assert len(sources) > 1
    for source in sources:
        loose = {re.sub(naming._MARKED, "", word) for word in named(ast.parse(source))}
        assert not {word for word in loose if PREFIX in word}
        words = {*named(ast.parse(source))}
        values = {m[1] for word in words for m in naming._MARKED.findall(word) if m[0] == naming.VALUE}
        assert any(naming._MARKED.search(word) for word in words)
        assert not {v for v in values if v in words or any(f"{v}{end}" in words for end in ("_b", "_new"))} - {"n"}


@pytest.mark.parametrize("family", FAMILIES)
def test_no_spelling_is_captured(family: str) -> None:
    """Every word of a spec as every identifier of its source, and as every ninth keyword or builtin."""
    taken = {*keyword.kwlist, *dir(builtins), "__debug__"}
    for source in marked(family):
        table = naming.SymbolTable.of(statements(source))
        bearers = [*dict.fromkeys(symbol for scope in table.scopes for symbol in scope.symbols)]
        own = table.everywhere.union(*(scope.own for scope in table.scopes))
        words = dict.fromkeys(m for word in bearers for m in naming._MARKED.findall(word))
        spellings = [*dict.fromkeys(map(naming.plain, bearers)), *sorted(own), *sorted(taken)[::9]]
        assert len(words) < len(spellings)
        for turn in range(len(spellings)):
            given = {m: spellings[(turn + 7 * k) % len(spellings)] for k, m in enumerate(words)}
            if len({(m[0], given[m]) for m in words}) < len(words):
                continue  # two of one kind are never called alike

            def respelled(word: re.Match[str], given: Any = given) -> str:
                return word[1] + given.get((word[1], word[2]), word[2]) + word[1]  # a comment names others, too

            renamed = partial(naming._MARKED.sub, respelled)

            scopes = [naming.Scope(s.own, tuple(map(renamed, s.symbols))) for s in table.scopes]
            found = naming.SymbolTable(table.everywhere, scopes).spellings()
            assert len({*found.values()}) == len(bearers)
            for scope in scopes:
                seen = taken | table.everywhere | scope.own
                assert seen.isdisjoint(found[symbol] for symbol in scope.symbols)
            if turn % 97 == 5:
                agree(renamed(source), spelled_text(renamed(source)))


def test_a_capture_would_be_seen() -> None:
    t = naming.operand_name("t")
    source = f"def f({t}):\n    t = load({t})\n    return t + {t}\n"
    agree(source, spelled_text(source))
    with pytest.raises(AssertionError):
        agree(source, naming.plain(source))


HOSTILE = [
    "g",
    "in_bounds",
    "element1",
    "wgmma_wait",
    "t1",
    "row",
    "f32",
    "load_float32",
    "avg_x_b_sum",
    "max_x_b",
    "x_row",
    "size_j",
    "i_i",
    "j",
    "np",
    "range",
    "y_kernel",
    "group",
    "n",
    "lambda_",
    "state",
    "block",
]


@pytest.mark.parametrize("target", ["cuda", "numpy"])
@pytest.mark.parametrize("turn", range(0, len(HOSTILE), 2))
def test_hostile_names_run(turn: int, target: str) -> None:
    """Layer normalisation with hostile names for its tensors, axes and output, by two schedules and as NumPy source."""
    x, gain, bias, out, i, j = (HOSTILE[(turn + 5 * k) % len(HOSTILE)] for k in range(6))
    x = "x" if turn % 2 else x
    text = (
        f"tensors {x}[{i},{j}], {gain}[{j}], {bias}[{j}]; m__ = mean[{j}]({x}[{i},{j}]); "
        f"v__ = mean[{j}](({x}[{i},{j}]-m__)**2); "
        f"return {out} = ({x}[{i},{j}]-m__)/sqrt(v__ + 1/8)*{gain}[{j}] + {bias}[{j}]"
    )
    spec = ra.parse(text)
    form = ra.derive_incremental(spec)
    rng = np.random.default_rng(turn)
    sizes = {i: 3, j: 64}
    arrays = {t.name: rng.standard_normal([sizes[a] for a in t.axes]).astype(np.float32) for t in spec.tensors}
    true = ra.reference(spec, **arrays)
    if target == "numpy":
        space: dict[str, Any] = {}
        exec(form.compile("numpy").source, space)
        found = space["run"](*(arrays[t.name] for t in spec.tensors), 16)
        np.testing.assert_allclose(found, true, rtol=1e-3, atol=1e-4)
        return
    for schedule in ("warp", Schedule(16, 1, 4, 4, exact=True, persistent=True, prefetch=64, prefetch_distance=1)):
        found = run(form, arrays, schedule)[0][out]
        np.testing.assert_allclose(found, true, rtol=1e-3, atol=1e-4)


def test_slots_of_tensors_that_are_named_like_parts_of_each_other() -> None:
    for one, other in (("x", "x_new"), ("x", "x_b"), ("x", "x_value"), ("x", "x_seen2"), ("x", "x_along_i")):
        spec = ra.parse(
            f"return u = max[j]({one}[i,j]) + sum[j]({other}[i,j]), at = argmax[j]({one}[i,j]), "
            f"v = argmax[j]({other}[i,j]), w = max[j]({other}[i,j])"
        )
        form = ra.derive_incremental(spec)
        rng = np.random.default_rng(3)
        arrays = {t.name: rng.integers(-8, 9, (3, 40)).astype(np.float32) for t in spec.tensors}
        true = ra.reference(spec, **arrays)
        for found in (form.compile("numpy")(**arrays), run(form, arrays)[0]):
            for name, value in true.items():
                np.testing.assert_array_equal(found[name], value)


@pytest.mark.parametrize("x, y", [("there", "low"), ("pointer_float32", "lanes"), ("n", "row")])
def test_hostile_names_on_the_cpu(x: str, y: str) -> None:
    form = ra.derive_incremental(ra.parse(f"return {y} = {x}[i,j] - max[j]({x}[i,j])"))
    array = np.arange(24, dtype=np.float32).reshape(3, 8)
    np.testing.assert_array_equal(form.compile("cpu")(**{x: array}), array - array.max(1, keepdims=True))
