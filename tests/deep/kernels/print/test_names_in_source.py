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
import unicodedata
from collections.abc import Iterable, Iterator
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.joint import Joint, units
from redalg.kernels.ir.schedule import Schedule
from redalg.kernels.launch.planned import Planned
from redalg.source import names as naming
from redalg.source.render import render
from redalg.source.statements import statements
from tests.support.printed_families import FAMILIES, printed, quoted, words_of
from tests.support.simulated import run

PREFIX = "qq"
WORK = 150  # identifiers that are spelled for one source, about
BUILTINS = frozenset(dir(builtins))  # now: a doctest that ran in this process leaves its last value there, as `_`
ODD = [
    "None",
    "cuda",
    "np",
    "math",
    "numba",
    "__init__",
    "é",
    "e\u0301",
    "x'",
    "x_",
    "ﬁ",
    "fi",
    "µ",
    "μ",
    "X",
    "w" * 300,
]


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
        assert not keyword.iskeyword(b) and (a == b or b not in BUILTINS), (a, b)
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
    _, sources = quoted(family, PREFIX)
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
    """Words of a spec as identifiers of its source, as keywords and builtins and as names that Python reads anew."""
    taken = {*keyword.kwlist, *BUILTINS, "__debug__"}
    rng = Random(family)
    for source in quoted(family, PREFIX)[1]:
        table = naming.SymbolTable.of(statements(source))
        bearers = [*dict.fromkeys(symbol for scope in table.scopes for symbol in scope.symbols)]
        own = table.everywhere.union(*(scope.own for scope in table.scopes))
        words = dict.fromkeys(m for word in bearers for m in naming._MARKED.findall(word))
        spellings = [*dict.fromkeys(map(naming.plain, bearers)), *sorted(own), *rng.sample(sorted(taken), 12), *ODD]
        rng.shuffle(spellings)
        assert len(words) < len(spellings)
        turns = rng.sample(range(len(spellings)), min(2 + WORK // len(bearers), len(spellings)))
        for turn in turns:
            given = {m: spellings[(turn + 7 * k) % len(spellings)] for k, m in enumerate(words)}
            if len({(m[0], given[m]) for m in words}) < len(words):
                continue  # two of one kind are never called alike

            def respelled(word: re.Match[str], given: Any = given) -> str:
                new = given.get((word[1], word[2]))  # a comment names others, too
                return word[0] if new is None else naming._between(word[1], new)

            renamed = partial(naming._MARKED.sub, respelled)

            scopes = [naming.Scope(s.own, tuple(map(renamed, s.symbols))) for s in table.scopes]
            found = naming.SymbolTable(table.everywhere, scopes).spellings()
            assert len({unicodedata.normalize("NFKC", name) for name in found.values()}) == len(bearers)
            for scope in scopes:
                seen = taken | table.everywhere | scope.own
                assert seen.isdisjoint(unicodedata.normalize("NFKC", found[symbol]) for symbol in scope.symbols)
            if turn == turns[0]:
                agree(renamed(source), spelled_text(renamed(source)))


def between(plans: Iterable[Planned]) -> Iterator[str]:
    """Names of what kernels of a call read, write and run along."""
    for made in plans:
        p = made.program
        yield from (*p.rows, *p.stream, *p.columns, *(o.name for o in p.operands), *(r.name for r in p.results))
        yield from (a for array in (*p.operands, *p.results) for a in array.axes)
        yield from between((*made.before, *made.inside))


@pytest.mark.parametrize("family", FAMILIES)
def test_what_lies_between_kernels_has_names_of_its_own(family: str) -> None:
    """A tensor, an axis and an output called like what the library makes of the spec itself: as many kernels are
    printed, and nothing in them has two meanings."""
    plans, _ = quoted(family, PREFIX)
    words = words_of(FAMILIES[family])
    names = {w: PREFIX + w for some in words.values() for w in some}
    own = [name for name in between(plans) if name not in names.values() and name.isidentifier()]
    for made in dict.fromkeys(own):
        tensor, axis, output = (next((w for w in some if PREFIX + w not in made), some[0]) for some in words.values())
        for chosen in ((tensor, axis), (output,)):
            found, sources = printed(FAMILIES[family], names | dict.fromkeys(chosen, made))
            assert [len(p.before) for p in found] == [len(p.before) for p in plans], (made, chosen)
            for source in sources:
                compile(spelled_text(source), made, "exec")  # no function takes two arguments of one name


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


def test_names_of_one_reading() -> None:
    """An output called like an element of a sum, and an axis of the sums alone called like that of their parts."""
    rows = ra.parse("s = sum[j](x[i,j]**2); return y = x[i,j]/sqrt(s + 1), t_sum1 = s*x[i,j]")
    sums = ra.parse("return t = sum[i](x[i,j]*a[i]/sqrt(sum[j](x[i,j]**2) + 1))*c[part]")
    (joint,) = units([rows, sums])
    assert isinstance(joint, Joint)
    rng = np.random.default_rng(5)
    x, a, c = (rng.standard_normal(shape) for shape in ((3, 4), 3, 2))
    first = ra.reference(joint.rows_spec, x=x, a=a)
    parts = {name: first[name].sum(0, keepdims=True) for name in joint.elements}
    for name, true in ra.reference(rows, x=x).items():
        np.testing.assert_allclose(first[name], true)
    np.testing.assert_allclose(ra.reference(joint.sums_spec, c=c, **parts), ra.reference(sums, x=x, a=a, c=c))


@pytest.mark.parametrize("names", ["range cuda self é np", "X x X numba x", "fi μ fi float μ", "x_ x x_ group codes"])
def test_odd_names_give_the_definition(names: str) -> None:
    """Builtins, modules, letters beyond ASCII, names that differ by case, outputs and axes called like tensors."""
    x, w, y, i, j = names.split()
    text = f"tensors {x}[{i},{j}], {w}[{j}]; m__ = mean[{j}]({x}[{i},{j}]); "
    spec = ra.parse(f"{text} return {y} = sum[{j}](({x}[{i},{j}] - m__)**2*{w}[{j}])")
    form, rng = ra.derive_incremental(spec, axis=j), np.random.default_rng(len(names))
    arrays = {x: rng.standard_normal((3, 20)), w: rng.standard_normal(20)}
    space: dict[str, Any] = {}
    exec(form.compile("numpy").source, space)
    acc = form.accumulator()
    for low, high in ((0, 1), (1, 1), (1, 20)):
        acc.update(**{n: a[..., low:high] for n, a in arrays.items()})
    made = [form.compile("numpy")(**arrays), form.compile("cpu")(**arrays), acc.result()]
    for found in (*made, space["run"](*(arrays[t.name] for t in spec.tensors), 7)):
        np.testing.assert_allclose(found, ra.reference(spec, **arrays), rtol=1e-10)
