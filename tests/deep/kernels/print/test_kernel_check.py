"""The invariants of kernel programs: the catalog keeps them, and a program that breaks any one is refused by name."""

from __future__ import annotations

import ast
import traceback
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.errors import RedalgError
from redalg.graph.node import Node, add, reduction, state, tensor
from redalg.graph.operators import Average, Extremum, NumberExtremum, Sum, TopK
from redalg.kernels.ir import check as check_module
from redalg.kernels.ir import check_values
from redalg.kernels.ir.check import check
from redalg.kernels.ir.program import First, Fold, Join, KeyTop, Let, Loop, Operand, Part, Pass, Program, Result
from redalg.kernels.lower.packed_keys import packed
from redalg.kernels.programs import lower
from redalg.testing.generator import generate
from tests.support.forms import form_of
from tests.support.kernel_cases import program
from tests.support.simulated import run


def test_the_catalog_keeps_every_invariant_also_with_packed_keys() -> None:
    for name in sorted(ra.catalog):
        entry = ra.catalog.entry(name)
        form = form_of(name)
        for dtype in ("float32", "float64"):
            p = lower(form, {t.name: _dtype(t, dtype) for t in entry.spec.tensors})
            assert check(p) is p and check(packed(p)).results


def test_generated_specs_keep_every_invariant() -> None:
    lowered = 0
    for seed in range(45):
        spec = generate(seed).spec
        try:
            form = ra.derive_incremental(spec, axis="j", max_passes=3)
        except RedalgError:  # most of the kinds are made to be refused
            continue
        lowered += bool(packed(lower(form, {t.name: _dtype(t) for t in spec.tensors})))
    assert lowered > 15


def _dtype(t: Any, real: str = "float32") -> Any:
    word = next((w for w in ("bool", "integer") if w in t.domain), "")
    return {"bool": "bool", "integer": "int64"}.get(word, real) if t.axes else float


# --- one broken program for every invariant --------------------------------------------------------------------------


def passed(p: Program, change: Callable[[Pass], Pass]) -> Program:
    """The program with its last pass changed."""
    return replace(p, passes=(*p.passes[:-1], change(p.passes[-1])))


def steps(p: Program, which: str, change: Callable[[Any], Any]) -> Program:
    """The program with every step of one list changed; None drops it, a tuple puts several in its place."""

    def changed(q: Pass) -> Pass:
        made = [change(step) for step in getattr(q, which)]
        found = [x for m in made for x in (m if isinstance(m, tuple) else (m,)) if x is not None]
        return replace(q, **{which: tuple(found)})

    return passed(p, changed)


def folds(p: Program, which: str = "lift", **fields: Any) -> Program:
    def change(s: Any) -> Any:
        return Loop(tuple(replace(f, **fields) for f in s.folds)) if isinstance(s, Loop) else s

    return steps(p, which, change)


def joins(p: Program, which: str = "combine", **fields: Any) -> Program:
    return steps(p, which, lambda s: replace(s, **fields) if isinstance(s, Join) else s)


def lets(p: Program, name: str, node: Node) -> Program:
    """The program with one more value per row at the beginning of combine."""
    return passed(p, lambda q: replace(q, combine=(Let(name, node), *q.combine)))


def part(p: Program, **fields: Any) -> Program:
    return passed(p, lambda q: replace(q, parts=(replace(q.parts[0], **fields), *q.parts[1:])))


def result(p: Program, **fields: Any) -> Program:
    return replace(p, results=(replace(p.results[0], **fields), *p.results[1:]))


def operand(p: Program, **fields: Any) -> Program:
    return replace(p, operands=(replace(p.operands[0], **fields), *p.operands[1:]))


def summed(body: Node, *operands: Operand) -> Program:
    """A sum of this body over x[i,j], written by hand."""
    fold = Loop((Fold(("s_b",), Sum(), (body,)),))
    count = Let("n_new", add(state("n"), state("n_b")))
    join = Join(("s_new",), Sum(), (S,), (S_B,))
    one = Pass((Part("s", "f", 0.0),), (fold,), (count, join), exports=(Let("half", Node("abs", (S,))),))
    all_operands = (Operand("x", ("i", "j"), "float32"), *operands)
    return Program("s", ("i",), ("j",), (), all_operands, (Result("s", ("i",), "float32", S),), (one,), "float32")


@cache
def affine() -> Program:
    """A monoid that does not commute."""
    pair = ra.Monoid("affine", lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), (1, 0))
    x, y = ra.tensors("x[i,j] y[i,j]")
    form = ra.derive_incremental(ra.Spec(s=ra.reduce((x, y), "j", monoid=pair)[1]))
    return lower(form, {"x": "float32", "y": "float32"})


X, S, S_B, N = tensor("x", ("i", "j")), state("s", ("i",)), state("s_b", ("i",)), state("n")
W = Operand("w", ("d", "j"), "float32")
INNER = reduction("sum", ("d",), tensor("w", ("d", "j")))
NESTED = reduction("sum", ("d",), Node("mul", (tensor("w", ("d", "j")), INNER)))


def soft() -> Program:
    return program("softmax")


def lse() -> Program:
    return program("logsumexp")


def deviation() -> Program:
    return program("variance")


def attention() -> Program:
    return program("attention")


def top() -> Program:
    return program("top_k")


def argmax() -> Program:
    return program("argmax")


# What is said of the program, and the program.
BROKEN: list[tuple[str, Callable[[], Program]]] = [
    ("axes: i twice", lambda: replace(soft(), columns=("i",))),
    ("axes: z without a length", lambda: replace(soft(), rows=("i", "z"))),
    ("axes: q is free", lambda: summed(tensor("x", ("i", "q")))),
    ("axes: j is free", lambda: lets(lse(), "t", X)),
    ("axes: sum over ('i',)", lambda: summed(reduction("sum", ("i",), X))),
    ("axes: sum over ('j',)", lambda: summed(reduction("sum", ("j",), X))),
    ("axes: sum over ('d',)", lambda: summed(INNER, replace(W, axes=("k", "j")))),
    ("axes: sum over ('d',)", lambda: summed(NESTED, W)),
    ("axes: sum over ('e',)", lambda: lets(attention(), "t", reduction("sum", ("e",), tensor("V", ("h", "j", "e"))))),
    ("axes: the size of q", lambda: summed(Node("mul", (X, Node("size", (), "q"))))),
    ("axes: s is read along ('i', 'j')", lambda: result(summed(X), node=state("s", ("i", "j")), keeps=True)),
    ("axes: s is read along ()", lambda: lets(summed(X), "t", Node("add", (S, state("s"))))),
    ("axes: max_x along ('i',)", lambda: part(lse(), axes=("i",))),
    ("axes: ('sum_V_exp_b',) along ()", lambda: folds(attention(), axes=())),
    ("dtypes: x of float128", lambda: operand(lse(), dtype="float128")),
    ("dtypes: y of complex64", lambda: result(lse(), dtype="complex64")),
    ("dtypes: reals in float16", lambda: replace(lse(), real="float16")),
    ("dtypes: the number x", lambda: operand(lse(), number=True)),
    ("dtypes: max_x of kind c", lambda: part(lse(), kind="c")),
    ("dtypes: argmax_x_key of kind k", lambda: replace(packed(argmax()), real="float64")),
    ("dtypes: max_x begins with 0", lambda: part(lse(), identity=0)),
    ("dtypes: a cast to float7", lambda: summed(Node("cast", (X,), "float7"))),
    ("names: s_b is read", lambda: summed(Node("mul", (X, S_B)))),
    ("names: max_x_b is read", lambda: result(lse(), node=state("max_x_b", ("i",)))),
    ("names: n_new is assigned again", lambda: steps(lse(), "combine", lambda s: (s, s))),
    ("names: max_x is assigned again", lambda: lets(lse(), "max_x", N)),
    ("names: x twice", lambda: replace(soft(), operands=soft().operands * 2)),
    ("names: max_x twice", lambda: passed(lse(), lambda q: replace(q, parts=q.parts * 2))),
    ("names: half twice", lambda: passed(summed(X), lambda q: replace(q, exports=q.exports * 2))),
    ("names: s twice", lambda: replace(summed(X), passes=(exporting("s_"), summed(X).passes[0]))),
    ("names: the tensor y[i,j]", lambda: summed(tensor("y", ("i", "j")))),
    ("names: the tensor x[j]", lambda: summed(tensor("x", ("j",)))),
    ("names: the operation gamma", lambda: summed(Node("gamma", (X,)))),
    ("names: the operation special i", lambda: summed(Node("special", (), "i"))),
    ("names: median inside an element", lambda: summed(reduction("median", ("d",), X), W)),
    ("names: sum is attained", lambda: replace(lse(), attained=frozenset({"sum"}))),
    ("results: y twice", lambda: replace(lse(), results=lse().results * 2)),
    ("results: y along ('i', 'z')", lambda: result(lse(), axes=("i", "z"))),
    ("results: y along ('i', 'i')", lambda: result(lse(), axes=("i", "i"))),
    ("results: y along ('i', 'j'), once per row", lambda: result(lse(), axes=("i", "j"))),
    ("results: y along ()", lambda: result(lse(), axes=())),
    ("results: y in masked rows", lambda: result(lse(), masked=Node("true"))),
    ("merges: max_x_b is missing", lambda: passed(lse(), lambda q: replace(q, lift=()))),
    ("merges: s_new is missing", lambda: steps(summed(X), "combine", lambda s: s if isinstance(s, Let) else None)),
    ("merges: n_new is missing", lambda: steps(summed(X), "combine", lambda s: s if isinstance(s, Join) else None)),
    ("merges: max_x_new is missing", lambda: passed(lse(), lambda q: replace(q, update=q.update[:1]))),
    ("merges: s_b is a list of 4", lambda: folds(with_list(), op=KeyTop(4, "k"))),
    ("merges: ('s_new',) by max", lambda: joins(summed(X), op=Extremum("max"))),
    ("merges: ('max_x_b',) by max", lambda: folds(lse(), "update", op=NumberExtremum("max"))),
    ("merges: ('s_new',) by average", lambda: joins(summed(X), op=Average())),
    ("merges: ('s_b',) by average", lambda: folds(summed(X), op=Average())),
    ("merges: ('argmax_x_value_new', 'argmax_x_new') by max", lambda: joins(argmax(), op=Extremum("max"))),
    ("merges: ('topk_x_values_b', 'topk_x_indices_b') by topk", lambda: folds(top(), op=TopK(3, "q"))),
    ("merges: ('topk_x_key_new',) by keytop of (3, 'q')", lambda: joins(packed(top()), op=KeyTop(3, "q"))),
    ("passes: splits in any order", lambda: passed(affine(), lambda q: replace(q, ordered=False))),
    ("passes: max_x begins with inf", lambda: part(lse(), identity=float("inf"))),
    ("passes: A_x begins with inf", lambda: part(deviation(), identity=float("inf"))),
    ("passes: A_x_first by its first element", lambda: passed(deviation(), lambda q: replace(q, absorbs=True))),
    ("passes: ('avg_x_new',) by average", lambda: passed(averaged(), lambda q: replace(q, absorbs=True))),
]


def exporting(name: str) -> Pass:
    """The pass of `summed` under another name, which exports what is called s."""
    own = {"s": name, "s_b": f"{name}_b", "s_new": f"{name}_new"}
    p = summed(X).passes[0]
    join = Join((own["s_new"],), Sum(), (state(name, ("i",)),), (state(own["s_b"], ("i",)),))
    lift = (Loop((Fold((own["s_b"],), Sum(), (X,)),)),)
    exports = (Let("s", state(name, ("i",))),)
    return replace(p, parts=(Part(name, "f", 0.0),), lift=lift, combine=(p.combine[0], join), exports=exports)


def with_list() -> Program:
    return replace(summed(X), lengths={"k": 4})


@cache
def averaged() -> Program:
    """A mean, lifted at the anchor 0."""
    p = program("mean")
    anchor = Let("A_x_b", Node("mul", (state("n_b"), Node("const", (), Fraction(0)))))
    return passed(p, lambda q: replace(q, lift=(anchor, *q.lift[-2:])))


@pytest.mark.parametrize("what, broken", BROKEN, ids=[what for what, _ in BROKEN])
def test_a_program_that_breaks_an_invariant_is_refused(what: str, broken: Callable[[], Program]) -> None:
    with pytest.raises(RedalgError) as caught:
        check(broken())
    assert caught.value.what.startswith(what) and "kernel program of" in caught.value.where
    assert caught.value.why and "defect of redalg" in caught.value.fix


def test_every_invariant_has_a_program_that_breaks_it() -> None:
    """Every line that refuses is reached by one of the programs above."""
    stated, reached = set(), set()
    for module in (check_module, check_values):
        path = str(module.__file__)
        for node in ast.walk(ast.parse(Path(path).read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "fail":
                stated.add((path, node.lineno))
    for _, broken in BROKEN:
        with pytest.raises(RedalgError) as caught:
            check(broken())
        calls = [f for f in traceback.extract_tb(caught.tb) if f.name != "fail"]
        reached.add((calls[-1].filename, calls[-1].lineno))
    assert not stated - reached


def test_the_programs_that_are_broken_are_sound() -> None:
    for p in (summed(X), summed(INNER, W), with_list(), affine(), averaged(), packed(top())):
        assert check(p) is p


# --- what the invariants have found ----------------------------------------------------------------------------------

A, B, U, Z = ra.tensors("x[j,a] w[a] u[i,j,d,a] z[i,j,a]")
INSIDE = {  # a contraction over an axis that rows, lanes or another contraction have as well
    "of rows": ra.Spec(s=ra.sum(A * ra.sum(A * B, "a"), "j")),
    "of no element": ra.Spec(s=ra.sum(A * B / ra.sqrt(ra.sum(B * B, "a")), "j")),
    "of lanes": ra.Spec(s=ra.sum(Z - ra.mean(Z, "a"), "j")),
    "of a kept result": ra.Spec(s=A * ra.sum(A, "a") / ra.sum(A, "j")),
    "nested": ra.Spec(s=ra.sum(ra.sum(U * ra.sum(U, "d"), ["d", "a"]), "j")),
}
LENGTHS = {"i": 3, "j": 40, "a": 5, "d": 4}


def drawn(spec: Any, dtype: str = "float32") -> dict[str, Any]:
    rng = np.random.default_rng(5)
    return {t.name: rng.integers(1, 5, [LENGTHS[a] for a in t.axes]).astype(dtype) for t in spec.tensors}


@pytest.mark.parametrize("name", INSIDE)
def test_a_contraction_over_an_axis_of_the_row_is_over_another_index(name: str) -> None:
    spec = INSIDE[name]
    form = ra.derive_incremental(spec, axis="j")
    true = ra.reference(spec, **drawn(spec, "float64"))
    np.testing.assert_allclose(form.compile("cpu")(**drawn(spec, "float64")), true, rtol=1e-11, atol=1e-11)
    found, planned, _ = run(form, drawn(spec))
    # Terms are small whole numbers, sums of them exact; what is not is a root, a quotient or 40 roundings of those.
    np.testing.assert_allclose(found["s"], true, rtol=2.0**-24 * 50, atol=2.0**-24 * 50 * 40)
    assert planned.program.inner


def test_two_anchors_that_see_one_weight() -> None:
    """A covariance under softmax weights: both means are seen through the same sum, which moves with the maximum."""
    x, y, s = ra.tensors("x[i,j] y[i,j] s[i,j]")
    p = ra.exp(s - ra.max(s, "j"))
    total = ra.sum(p, "j")
    spec = ra.Spec(c=ra.sum(p * (x - ra.sum(p * x, "j") / total) * (y - ra.sum(p * y, "j") / total), "j") / total)
    form = ra.derive_incremental(spec, axis="j")
    rng = np.random.default_rng(2)
    given = {name: rng.standard_normal((3, 2500)) + 100 * (name != "s") for name in ("x", "y", "s")}
    true = ra.reference(spec, **given)
    np.testing.assert_allclose(form.compile("cpu")(**given), true, rtol=1e-9, atol=1e-11)
    names = [n for s in lower(form, dict.fromkeys(given, "float64")).passes[0].combine for n in _assigned(s)]
    assert len(names) == len(set(names)) and any("_seen" in n for n in names)


def _assigned(step: Any) -> list[str]:
    if isinstance(step, Let | First):
        return [step.name]
    return list(step.names) if isinstance(step, Join) else [n for f in step.folds for n in f.names]
