"""Which programs run on tensor cores, and what is said of those that do not.

What is accepted is judged by evaluating the folds: at the missing score they must leave their states as they are, and
the node that stands for an element must be what the folds read. The kernels themselves:
`tests/deep/kernels/emulated/test_tensor_kernels.py`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import redalg as ra
from redalg.errors import RedalgError
from redalg.graph.node import Node, substitute, walk
from redalg.kernels.tile.match import Class, Outside, classified, folds, weight_of
from tests.support.profiles import examples
from tests.support.tensor_cases import CLASS, WEIGHED, class_of, outside, program_of, text_of

# --- the catalog -----------------------------------------------------------------------------------------------------

REASONS = {  # of everything in the catalog that multiplies matrices; the rest is refused for one of `OTHERS`
    "attention_cosine": "an element holds more than sums over one axis of tensors' products",
    "attention_differential": "an element holds 2 contractions, not their sum alone",
    "attention_latent": "an element holds 4 contractions, not their sum alone",
    "attention_linear": "the contraction is not one of two tensors",
    "attention_with_statistics": "a tile cannot be folded into a state at the new anchors",
    "cross_entropy_linear_head": "it multiplies bfloat16 and float32; tensor cores are used for bfloat16, float16, "
    "float8",
    "nearest_neighbour": "the contraction is not one of two tensors",
    "fp8_per_token_gemm": "an element holds no contraction",
}
OTHERS = {
    "an element holds no contraction",
    "its state holds more than real numbers",
    "a result keeps the stream's axis",
    "a state depends on the number of elements",
    "a tile cannot be folded into a state at the new anchors",
    "its stream has several axes",
}


@pytest.mark.parametrize("name", sorted(ra.catalog))
def test_the_catalog(name: str) -> None:
    try:
        found = outside(name)
    except RedalgError as refused:  # no form in two passes
        assert name not in CLASS, refused
        return
    assert (found == "") == (name in CLASS), found
    assert name in CLASS or found == REASONS.get(name) or name not in REASONS and found in OTHERS, found


@pytest.mark.parametrize("name", CLASS)
def test_float32_is_multiplied_elsewhere(name: str) -> None:
    refused = outside(name, "float32")
    assert refused.startswith("it multiplies float32; tensor cores are used for bfloat16, float16, float8; ")
    assert 'schedule="tf32"' in refused


def test_roles_of_the_catalog() -> None:
    made = class_of("attention_grouped_query")
    assert (made.row, made.stream, made.terms, made.column, made.batch) == ("i", "j", "d", "e", ("b", "g", "r"))
    made = class_of("splade")
    assert made.column is made.values is made.weight is None and made.guarded == frozenset()
    made = class_of("attention_with_lse", "float16")
    assert made.dtype == "float16" and [r.name for r in made.program.results] == ["O", "lse"]


# --- specs of their own ----------------------------------------------------------------------------------------------

TAIL = "m = max[j](u); p = exp(u - m); "
INSIDE = {
    "scale of head and of all": text_of("s*t[h]*g"),
    "scale of a row": text_of("s*t[i]"),
    "divided": text_of("s/g"),
    "divided by a number": text_of("s/8"),
    "a negative number times the scores": text_of("-s/8"),
    "no heads": text_of(
        "s",
        "tensors Q[i,d], K[j,d], V[j,e]; s = sum[d](Q[i,d]*K[j,d]); ",
        TAIL + "O = sum[j](p*V[j,e])/sum[j](p); return O",
    ),
    "values named as the terms": text_of(
        "s",
        "tensors Q[i,d], K[j,d], V[j,d]; s = sum[d](Q[i,d]*K[j,d]); ",
        TAIL + "O = sum[j](p*V[j,d])/sum[j](p); return O",
    ),
    "keys are values": text_of(
        "s", "tensors Q[i,d], K[j,d]; s = sum[d](Q[i,d]*K[j,d]); ", TAIL + "O = sum[j](p*K[j,d])/sum[j](p); return O"
    ),
    "or": text_of("where(index[j] <= index[i] or index[j] < 5, g*s, -oo)"),
    "not": text_of("where(not index[j] == index[i], s, -oo)"),
    "or within": text_of(
        "where((index[j] <= index[i] or index[j] < 5) and index[j] < w, s, -oo)", declared="tensors w integer; "
    ),
    "documents": text_of("where(D[h,i] == F[h,j], s, -oo)", declared="tensors D[h,i] integer, F[h,j] integer; "),
    "documents, causal": text_of(
        "where(D[i] == F[j] and index[j] <= index[i], g*s, -oo)", declared="tensors D[i] integer, F[j] integer; "
    ),
    "a prefix": text_of("where(index[j] < maximum(w, index[i] + 1), s, -oo)", declared="tensors w integer; "),
    "a prefix of each": text_of(
        "where(index[j] <= index[i] or index[j] < N[h], s, -oo)", declared="tensors N[h] integer; "
    ),
    "lengths": text_of("where(index[j] < N[h], s, -oo)", declared="tensors N[h] integer; "),
    "lengths, causal": text_of(
        "where(index[j] < N[h] and index[j] <= index[i], s, -oo)", declared="tensors N[h] integer; "
    ),
    "two masks": text_of(
        "where(near[j] and seen[h,i,j], g*s, -oo)", declared="tensors near[j] bool, seen[h,i,j] bool; "
    ),
    "masks apart": text_of(
        "where(near[j], where(seen[h,i,j], s, -oo), -oo)", declared="tensors near[j] bool, seen[h,i,j] bool; "
    ),
    "shown the other way": text_of("where(seen[j], -oo, s)", declared="tensors seen[j] bool; "),
    "added mask": text_of("s + where(index[j] <= index[i], 0, -oo)"),
    "relative bias": text_of("s + c*abs(index[i] - index[j])"),
    "bias of both": text_of("g*s + c[h,i] + b[j]"),
    "condition on scores": text_of("where(g*s > 0, g*s, -oo)"),
    "weighted elements": text_of("s", rest=TAIL + "q = p*w[j]; O = sum[j](q*V[h,j,e])/sum[j](q); return O"),
    "scaled lanes": text_of("s", rest=TAIL + "O = a[e]*sum[j](p*V[h,j,e])/sum[j](p) + c[i]; return O"),
    "output and lse": text_of(
        "g*s", rest=TAIL + "l = sum[j](p); O = sum[j](p*V[h,j,e])/l; return O = O, lse = log(l) + m"
    ),
    "output and maximum": text_of("s", rest=TAIL + "O = sum[j](p*V[h,j,e])/sum[j](p); return O = O, m = m"),
    "lse alone": text_of("g*s", rest=TAIL + "return y = log(sum[j](p)) + m"),
    "sum of a relu": text_of("relu(s + c)", rest="return y = sum[j](u)"),
    "tanh": text_of("tanh(s)", rest="O = sum[j](u*V[h,j,e]); return O"),
    "scores themselves": text_of("s", rest="O = sum[j](u*V[h,j,e]); return O"),
    "no maximum": text_of("s", rest="p = exp(u); O = sum[j](p*V[h,j,e])/sum[j](p); return O"),
    "minimum": text_of("g*s", rest="return y = min[j](u)"),
    "maximum": text_of("g*s", rest="return y = max[j](u)"),
    "extrema of both kinds": text_of("s", rest="return y = max[j](u), z = min[j](u)"),
    "a fold without scores": text_of("s", rest="return y = max[j](u), z = sum[j](w[j])"),
    "the position of the maximum": text_of("g*s", rest="return y = argmax[j](u)"),
    "the position of the minimum": text_of("s + b[j]", rest="return y = argmin[j](u)"),
    "the first of those that are seen": text_of(
        "where(seen[j], s, -oo)", declared="tensors seen[j] bool; ", rest="return y = argmax[j](u)"
    ),
    "four of the largest": text_of("s", rest="return y = topk[j:4:c](u).values, z = topk[j:4:c](u).indices"),
    "weights of the largest": text_of("s", rest=TAIL + "l = sum[j](p); return y = topk[j:4:c](p/l).values"),
    "a constant for every element": text_of("s", rest="return y = sum[j](exp(u)), z = sum[j](cos(u))"),
}
OUTSIDE = {
    "a bounded function with a mask": (
        text_of("where(index[j] <= index[i], tanh(g*s), -oo)"),
        "its state holds more than real numbers",
    ),
    "values vary along the rows": (
        text_of("s", rest=TAIL + "O = sum[j](p*V[h,i,j,e])/sum[j](p); return O"),
        "no axis numbers rows that share the right operand",
    ),
    "two tensors of values": (
        text_of("s", rest=TAIL + "l = sum[j](p); return O = sum[j](p*V[h,j,e])/l, U = sum[j](p*W[h,j,e])/l"),
        "several sums have columns",
    ),
    "a function of the values": (
        text_of("s", rest=TAIL + "O = sum[j](p*exp(V[h,j,e]))/sum[j](p); return O"),
        "what has columns is not a sum of weights times a tensor",
    ),
    "a maximum with columns": (
        text_of("s", rest="return y = max[j](u + V[h,j,e])"),
        "what has columns is not a sum of weights times a tensor",
    ),
    "the scores shifted": (
        text_of("s", rest="return y = sum[j](sigmoid(-u))"),
        "",
    ),
    "positions of both extrema": (
        text_of("s", rest="return y = argmax[j](u), z = argmin[j](u)"),
        "positions are kept of elements that other folds read in another way",
    ),
    "positions of something else": (
        text_of("s", rest="return y = argmax[j](tanh(u) + b[j]), z = max[j](u)"),
        "positions are kept of elements that other folds read in another way",
    ),
    "nine of the largest": (
        text_of("s", rest="return y = topk[j:9:c](u).values"),
        "lists of 9 entries are longer than 8",
    ),
    "the position of the maximum beside an output": (
        text_of("s", rest=TAIL + "return O = sum[j](p*V[h,j,e])/sum[j](p), x = argmax[j](u)"),
        "positions are not kept beside a sum with columns",
    ),
    "whether any is positive": (
        text_of("s", rest="return y = any[j](u > 0)"),
        "its state holds more than real numbers",
    ),
    "a mean": (
        text_of("s", rest="return y = mean[j](u)"),
        "a tile cannot be folded into a state at the new anchors",
    ),
    "every element kept": (
        text_of("s", rest="m = max[j](u); return y = exp(u - m)"),
        "a result keeps the stream's axis",
    ),
    "both sides along the stream": (
        "tensors K[j,d], G[j,d]; return y = max[j](sum[d](K[j,d]*G[j,d]))",
        "both sides of the contraction vary along the stream",
    ),
    "three factors": (
        "return y = max[j](sum[d](Q[i,d]*K[j,d]*G[d]))",
        "the contraction is not one of two tensors",
    ),
    "a contraction over two axes": (
        "return y = max[j](sum[d,c](Q[i,d,c]*K[j,d,c]))",
        "an element holds more than sums over one axis of tensors' products",
    ),
    "rows share nothing": (
        "return y = max[j](sum[d](Q[h,d]*K[h,j,d]))",
        "no axis numbers rows that share the right operand",
    ),
}


@pytest.mark.parametrize("name", INSIDE)
def test_specs_of_the_class(name: str) -> None:
    made = class_of(INSIDE[name])
    judge(made)
    assert made.row == "i" and made.stream == "j"


@pytest.mark.parametrize("name", OUTSIDE)
def test_specs_outside_say_why(name: str) -> None:
    text, why = OUTSIDE[name]
    assert outside(text) == why


def test_dtypes_decide() -> None:
    assert outside("attention", V="float16") == "the tensor with columns has dtype float16, the scores another"
    assert outside("attention", Q="float16").startswith("it multiplies bfloat16 and float16;")
    assert outside("attention_alibi", slope="float64") == "it accumulates in float64"
    assert outside("attention_bias", bias="bfloat16") == ""


def test_folds_that_no_score_leaves_alone_are_guarded() -> None:
    made = class_of("cross_entropy_linear_head", h="bfloat16")
    assert {n.removesuffix("_b") for n in made.guarded} == {"sum_if_t_u"} and made.missing.attr == "-oo"
    assert class_of(INSIDE["extrema of both kinds"]).guarded and not class_of(INSIDE["maximum"]).guarded


def test_weights_without_a_bound_are_not_rounded_to_float16() -> None:
    """65,520 and more is infinite in float16, and exp(s) below 2^-25 is 0, where float32 and bfloat16 have numbers."""
    for name in ("no maximum", "scores themselves", "weighted elements"):
        assert outside(INSIDE[name], "float16") == "weights that may be larger than 1 are not rounded to float16"
    assert outside("attention_relu", "float16") and not outside("attention_relu")
    for text in ("attention", "attention_sigmoid", "attention_sink", INSIDE["tanh"], INSIDE["lse alone"]):
        assert outside(text, "float16") == ""


def test_what_can_be_multiplied_later() -> None:
    """A factor of the scores waits, if it is the same for a tile, and nothing but exponents and maxima see them."""
    waits = {"scale of head and of all", "divided", "or", "two masks", "output and lse", "lse alone"}
    for name in waits:
        assert class_of(INSIDE[name]).scale is not None, name
    for name in ("scale of a row", "condition on scores", "minimum", "tanh", "bias of both"):
        assert class_of(INSIDE[name]).scale is None, name


# --- by evaluation ---------------------------------------------------------------------------------------------------

Number = float


def evaluate(node: Node, known: Mapping[Node, float], draw: random.Random, memo: dict[Node, float]) -> float:
    """A node at one element in Python's floats; leaves that are not known are drawn, positive or not, and kept."""
    if node in known:
        return known[node]
    if node not in memo:
        memo[node] = _evaluated(node, known, draw, memo)
    return memo[node]


def _evaluated(node: Node, known: Mapping[Node, float], draw: random.Random, memo: dict[Node, float]) -> float:
    op = node.op
    if op == "const":
        return float(node.attr)
    if op == "special":
        return {"oo": math.inf, "-oo": -math.inf, "nan": math.nan, "pi": math.pi, "e": math.e}[node.attr]
    if op in ("true", "false"):
        return float(op == "true")
    if op in ("tensor", "state", "index", "size", "reduce"):
        if op == "tensor" and "bool" in node.attr.domain:
            return float(draw.random() < 0.5)
        whole = op in ("index", "size") or "integer" in getattr(node.attr, "domain", ())
        return float(draw.randint(1, 9)) if whole else draw.uniform(0.1, 3.0) * draw.choice([1.0, -1.0])
    a = [evaluate(x, known, draw, memo) for x in node.args]
    if op == "where":
        return a[1] if a[0] else a[2]
    if op == "mul":
        return math.prod(a)
    return float(MEANING[op](*a))


def power(x: float, y: float) -> float:
    try:
        return x**y if x >= 0 or y == int(y) else math.nan
    except ZeroDivisionError:
        return math.inf


MEANING: dict[str, Any] = {
    "add": lambda *a: sum(a),
    "pow": power,
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "and": lambda *a: all(a),
    "or": lambda *a: any(a),
    "not": lambda x: not x,
    "maximum": lambda *a: max(a),
    "minimum": lambda *a: min(a),
    "abs": abs,
    "tanh": math.tanh,
    "exp": lambda x: math.exp(x) if x < 700 else math.inf,
    "log": lambda x: math.log(x) if x > 0 else -math.inf,
    "log1p": lambda x: math.log1p(x) if x > -1 else math.nan,
    "relu": lambda x: max(x, 0.0),
    "cos": math.cos,
    "sigmoid": lambda x: 0.0 if x < -700 else 1 / (1 + math.exp(-x)),
}
NUMBER = {"oo": math.inf, "-oo": -math.inf}
IDENTITY = {"sum": 0.0, "max": -math.inf, "min": math.inf}
IDENTITY |= {"argmax": -math.inf, "argmin": math.inf, "topk": -math.inf}  # beyond the end, behind every position


def judge(made: Class, seeds: int = 12) -> None:
    """What an accepted class claims, at random numbers."""
    missing = 0.0 if made.missing.op == "const" else NUMBER[made.missing.attr]
    everything = [
        (f.kind, weight_of(f, made.values) if f.axes and made.values else f.bodies[0])
        for f in folds(made.walk)
        if f.names[0] not in made.guarded
    ]
    for seed in range(seeds):
        for kind, body in everything:  # elements that do not exist change nothing
            found = evaluate(body, {made.value: missing}, random.Random(seed), {})
            assert found == IDENTITY[kind], (kind, found)
        memo: dict[Node, float] = {}
        draw = random.Random(seed)
        value, shown = (evaluate(n, {}, draw, memo) for n in (made.value, made.shown))
        if made.condition is not None:
            seen = evaluate(made.condition, {}, draw, memo)
            assert value == (shown if seen else missing)
        if made.scale is not None:
            scale, score = (evaluate(n, {}, draw, memo) for n in (made.scale, made.scores))
            assert math.isclose(shown, scale * score, rel_tol=1e-12)
    for _, body in everything:  # and all that folds read of the scores goes through the value
        assert made.scores not in set(walk(substitute(body, {made.value: Node("const", (), 0)}, raw=True)))
    assert made.row not in made.right.axes and (made.values is None or made.row not in made.values.axes)
    assert made.scale is None or not {made.row, made.stream} & made.scale.axes
    assert made.stream not in made.left.axes and made.terms in made.left.axes & made.right.axes


values = st.recursive(
    st.sampled_from(["s", "s", "s", "g*s", "s*t[h]", "s*t[i]", "s + b[j]", "s - c[h,i]", "-s"]),
    lambda inner: st.one_of(
        st.tuples(
            st.sampled_from(
                [
                    "tanh({})",
                    "relu({})",
                    "sigmoid({})",
                    "exp({})",
                    "abs({})",
                    "log1p(exp({}))",
                    "2*{}",
                    "{}/2 - 1",
                    "{}*a[j]",
                    "{}**2",
                    "-({})",
                    "cos({})",
                ]
            ),
            inner,
        ).map(lambda t: t[0].format(f"({t[1]})")),
        st.tuples(
            st.sampled_from(
                [
                    "index[j] <= index[i]",
                    "index[j] < w",
                    "s > 0",
                    "not index[j] == index[i]",
                    "index[j] < w or index[i] < index[j]",
                    "b[j] < 1",
                ]
            ),
            inner,
            st.sampled_from(["-oo", "0", "oo", "b[j]", "-1"]),
            st.booleans(),
        ).map(lambda t: f"where({t[0]}, {t[1]}, {t[2]})" if t[3] else f"where({t[0]}, {t[2]}, {t[1]})"),
        st.tuples(st.sampled_from(["({}) + ({})", "maximum({}, {})", "({})*({})"]), inner, inner).map(
            lambda t: t[0].format(t[1], t[2])
        ),
    ),
    max_leaves=3,
)
rests = st.sampled_from(
    [
        WEIGHED,
        TAIL + "return y = log(sum[j](p)) + m",
        "return y = max[j](u)",
        "return y = min[j](u)",
        "O = sum[j](u*V[h,j,e]); return O",
        "O = sum[j](exp(u)*V[h,j,e])/sum[j](exp(u)); return O",
        "return y = sum[j](sigmoid(u))",
        TAIL + "l = sum[j](p); return O = sum[j](p*V[h,j,e])/l, l = l, m = m",
        "m = max[j](s); p = exp(s - m); O = sum[j](p*(u)*V[h,j,e])/sum[j](p); return O",
    ]
)


@examples(60)
@given(values, rests)
def test_made_specs_are_refused_or_judged(value: str, rest: str) -> None:
    declared = "tensors w integer; " if " w" in value else ""
    try:
        program = program_of(text_of(value, rest=rest, declared=declared))
    except RedalgError:
        assume(False)
    try:
        made = classified(program)
    except Outside as why:
        assert len(str(why)) > 10
        return
    judge(made)


def test_a_wrong_claim_is_noticed() -> None:
    from dataclasses import replace

    made = class_of("attention_causal")
    for wrong in (
        replace(made, missing=Node("const", (), 0)),
        replace(made, scale=made.scores),
        replace(made, condition=Node("true")),
        replace(class_of("attention_relu"), missing=Node("special", (), "oo")),
        replace(made, value=made.shown),
    ):
        with pytest.raises(AssertionError):
            judge(wrong)
