"""Anchors that stay where the first block left them: accepted where results do not see it, refused where they do.

Both verdicts are judged by folding in float64 at anchors that are moved;
`tests/deep/kernels/emulated/test_tensor_kernels.py` runs kernels.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from fractions import Fraction

import pytest

from redalg.graph.node import Node, add, const, div, fn, mul, state, walk, where
from redalg.kernels.ir.program import Join, Let, Loop, Step
from redalg.kernels.tile.frozen_max import ANCHOR, Degree, _degree, _kept, anchor_of, frozen_steps, largest, nodes_of
from redalg.kernels.tile.level.cascade_print import emit_tensor
from redalg.kernels.tile.match import Class, Outside, weight_of
from tests.deep.kernels.print.test_tensor_class import INSIDE, TAIL, evaluate
from tests.support.tensor_cases import CLASS, OPTIMISTIC, class_of, module_of, planned, text_of

ACCEPTED = {
    **{name: name for name in OPTIMISTIC},
    **{
        name: INSIDE[name]
        for name in (
            "scale of head and of all",
            "divided",
            "no heads",
            "keys are values",
            "or within",
            "two masks",
            "bias of both",
            "scaled lanes",
            "output and lse",
            "lse alone",
        )
    },
    "squares of an average": text_of("s", rest=TAIL + "O = (sum[j](p*V[h,j,e])/sum[j](p))**2; return O"),
    "lse times two, plus a scalar": text_of("s", rest=TAIL + "return y = 2*(log(sum[j](p)) + m) + g"),
    "a chain": text_of("s", rest=TAIL + "y = exp(log(sum[j](p)) + m); return z = y/(1 + y)"),
}
REFUSED = {
    "output and maximum": (INSIDE["output and maximum"], "m depends on the anchor"),
    "sum of the weights": (
        text_of("s", rest=TAIL + "l = sum[j](p); return O = sum[j](p*V[h,j,e])/l, l = l"),
        "l depends on the anchor",
    ),
    "largest weight": (text_of("s", rest=TAIL + "return y = 1/sum[j](p)"), "y depends on the anchor"),
    "lse and half a maximum": (text_of("s", rest=TAIL + "return y = log(sum[j](p)) + m/2"), "y depends on the anchor"),
    "rows without an element are zero": ("attention_masked", "O depends on the anchor"),
    "a sink": ("attention_sink", "O depends on the anchor"),
    "no maximum": ("attention_relu", "there is not one maximum for an anchor"),
    "no exponential": ("attention_sigmoid", "there is not one maximum for an anchor"),
    "no sum": ("splade", "no sum shows whether an exponential overflowed"),
    "other weights": (INSIDE["weighted elements"], "no sum shows whether an exponential overflowed"),
    "weights that are not summed": (
        text_of("s", rest=TAIL + "O = sum[j](p*w[j]*V[h,j,e])/sum[j](p); return O"),
        "sum_V_exp_w_b is not bounded by the sum that is tested",
    ),
}


def fold(
    made: Class, kept: Sequence[Step], anchor: float, seed: int, lengths: Sequence[int] = (3, 0, 4)
) -> list[float]:
    """The results of one row after blocks of these lengths, at an anchor that is given, for one lane."""
    draw = random.Random(seed)
    nodes = [n for s in (*kept, *made.walk.exports) for n in nodes_of(s)] + [r.node for r in made.program.results]
    leaves = [n for n in walk(*nodes) if n.op in ("tensor", "index", "size")]
    varies = {n for n in leaves if made.stream in n.axes}
    row = {n: evaluate(n, {}, draw, {}) for n in sorted(set(leaves) - varies, key=lambda n: n.digest)}
    env = {part.name: 0.0 for part in made.walk.parts} | {anchor_of(made): anchor, "n": float(sum(lengths))}

    def known() -> dict[Node, float]:
        return row | {n: env[n.attr.name] for n in walk(*nodes) if n.op == "state" and n.attr.name in env}

    for length in lengths:
        elements = [
            {n: evaluate(n, {}, draw, {}) for n in sorted(varies, key=lambda n: n.digest)}
            | {made.value: draw.uniform(-3, 3)}
            for _ in range(length)
        ]
        for step in kept:
            now = known()
            if isinstance(step, Loop):
                for f in step.folds:
                    assert f.kind == "sum"
                    env[f.names[0]] = sum(evaluate(f.bodies[0], now | x, draw, {}) for x in elements)
            elif isinstance(step, Join):
                env[step.names[0]] = sum(evaluate(n, now, draw, {}) for n in (*step.a, *step.b))
            else:
                assert isinstance(step, Let)
                env[step.name] = evaluate(step.node, now, draw, {})
        env |= {name.removesuffix("_new"): x for name, x in env.items() if name.endswith("_new")}
    for let in made.walk.exports:
        env[let.name] = evaluate(let.node, known(), draw, {})
    return [evaluate(r.node, known(), draw, {}) for r in made.program.results]


def moved(made: Class, kept: Sequence[Step]) -> bool:
    """Whether any result sees where the anchor is."""
    for seed in range(4):
        first, *others = (fold(made, kept, anchor, seed) for anchor in (0.5, -7.0, 3.25, 20.0))
        for other in others:
            if not all(math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9) for a, b in zip(first, other, strict=True)):
                return True
    return False


@pytest.mark.parametrize("name", ACCEPTED)
def test_results_do_not_see_an_anchor_that_is_accepted(name: str) -> None:
    made = class_of(ACCEPTED[name])
    kept, tested = frozen_steps(made)
    assert not moved(made, kept)
    assert tested in {part.name for part in made.walk.parts} and tested in made.program.attained
    names = {f.names[0] for s in kept if isinstance(s, Loop) for f in s.folds} | {
        s.names[0] for s in kept if isinstance(s, Join)
    }
    assert not any(n.startswith(anchor_of(made)) for n in names)
    weights = [
        weight_of(f, made.values) if f.axes and made.values else f.bodies[0]
        for s in kept
        if isinstance(s, Loop)
        for f in s.folds
    ]
    assert len(set(weights)) == 1  # the sum that is tested bounds all there is


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_says_why(name: str) -> None:
    text, why = REFUSED[name]
    with pytest.raises(Outside) as error:
        frozen_steps(class_of(text))
    assert str(error.value) == why


@pytest.mark.parametrize(
    "name", ["output and maximum", "sum of the weights", "largest weight", "lse and half a maximum"]
)
def test_what_is_said_to_depend_on_the_anchor_does(name: str) -> None:
    made = class_of(REFUSED[name][0])
    assert moved(made, _kept(made, anchor_of(made)))


def test_every_spec_of_the_class_is_accepted_or_refused() -> None:
    refused = {text for text, _ in REFUSED.values()}
    assert set(CLASS) - refused == set(OPTIMISTIC)


A, SUM, OTHER, FREE = (state(name) for name in ("anchor", "sum", "other", "free"))
KNOWN = {"anchor": ANCHOR, "sum": Degree(Fraction(1)), "other": Degree(Fraction(1))}
DEGREES = {  # (k, c): moved by δ, it is e^(-kδ)·x + c·δ; None: nothing of the kind, or nothing that is shown
    "a ratio": (div(SUM, OTHER), (0, 0)),
    "a product": (mul(SUM, OTHER, FREE), (2, 0)),
    "a power": (Node("pow", (SUM, const(Fraction(1, 2)))), (Fraction(1, 2), 0)),
    "an exponential of the anchor": (fn("exp", A), (-1, 0)),
    "a logarithm": (fn("log", SUM), (0, -1)),
    "their sum": (add(fn("log", SUM), A), (0, 0)),
    "a multiple of the anchor": (mul(const(3), A), (0, 3)),
    "a sum of equal degrees": (add(SUM, OTHER), (1, 0)),
    "a comparison of equal degrees": (Node("lt", (SUM, OTHER)), (0, 0)),
    "whether a sum is zero": (where(Node("eq", (SUM, const(0))), FREE, const(1)), (0, 0)),
    "a sum of other degrees": (add(SUM, const(1)), None),
    "an anchor times what is free": (mul(A, FREE), None),
    "an anchor squared": (mul(A, A), None),
    "a sum plus the anchor": (add(SUM, A), None),
    "a comparison with a number": (Node("lt", (SUM, const(1))), None),
    "a comparison with the anchor": (Node("lt", (A, const(0))), None),
    "an exponential of a sum": (fn("exp", SUM), None),
    "a logarithm of the anchor": (fn("log", A), None),
    "a hyperbolic tangent": (fn("tanh", SUM), None),
    "a choice by a sum": (where(Node("lt", (SUM, const(1))), FREE, const(2)), None),
}


@pytest.mark.parametrize("name", DEGREES)
def test_degrees(name: str) -> None:
    node, expected = DEGREES[name]
    found = _degree(node, KNOWN)
    assert found == (None if expected is None else tuple(map(Fraction, expected)))
    for delta in (0.7, -1.3):
        before = {A: 0.4, SUM: 1.3, OTHER: 2.7, FREE: 0.6}
        after = before | {A: 0.4 + delta} | {n: before[n] * math.exp(-delta) for n in (SUM, OTHER)}
        x, y = (evaluate(node, numbers, random.Random(0), {}) for numbers in (before, after))
        if found is not None:
            assert math.isclose(y, math.exp(-float(found[0]) * delta) * x + float(found[1]) * delta, rel_tol=1e-12)


def test_the_sum_that_is_tested_bounds_weights_in_the_type_they_are_rounded_to() -> None:
    assert largest(class_of("attention")) == 64
    made = class_of("attention", "float16")
    assert 2.0 ** largest(made) < 65504 and largest(class_of(INSIDE["lse alone"], "float16")) == 64
    assert "LARGEST = f32(2.0**15)" in module_of(made, 64, anchor="frozen").source


def test_kernels_hold_what_was_decided() -> None:
    for name in ("attention_causal", "attention_with_lse"):
        made, plan = planned(class_of(name), 64, anchor="frozen")
        source = emit_tensor(made, plan).source
        later = source[source.rindex("for block in range") :]
        assert "max_u_new" not in later and "rescale" not in later and "fallback_flags" in later
        fallback = module_of(class_of(name), 64, anchor="fallback").source
        assert "failed |= load_int32(fallback_flags" in fallback and "max_u_new" in fallback
