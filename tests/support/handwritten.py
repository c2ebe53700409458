"""Plans written by hand, so that forms and obligations are tested without the engine."""

from __future__ import annotations

from redalg.graph.node import ONE, Node, add, const, div, fn, mul, power, reduction, size, sub, tensor
from redalg.graph.operators import Average, Extremum, Position, Sum, TopK
from redalg.graph.plan import (
    COUNT,
    Anchor,
    ExtremumAnchor,
    MeanAnchor,
    Move,
    Output,
    PassPlan,
    Plan,
    Slot,
    StageReport,
    shift,
)

x, y, w = tensor("x", "j"), tensor("y", "j"), tensor("w", "j")
Q, K, V = tensor("Q", "id"), tensor("K", "jd"), tensor("V", "je")


def mean_of(body: Node, axis: str = "j") -> Node:
    return div(reduction("sum", axis, body), size(axis))


def mean_anchor(name: str, generator: Node, step: Node) -> Anchor:
    return MeanAnchor(name, (), generator, step, why="the mean moves with the data")


def averaged(name: str, body: Node, anchors: tuple[str, ...], *moves: tuple[Node, str]) -> Slot:
    return Slot(name, Average(), (), (body,), (name,), anchors=anchors, moves=tuple(Move(*m) for m in moves))


def variance() -> tuple[dict[str, Node], Plan]:
    h, A = shift("mu", ()), Node("state", (), mean_anchor("mu", x, ONE).leaf.attr)
    c = sub(x, A)
    r = averaged("r", c, ("mu",), (ONE, "r"), (mul(const(-1), h), "n"))
    m2 = averaged("v", power(c, 2), ("mu",), (ONE, "v"), (mul(const(-2), h), "r"), (power(h, 2), "n"))
    p = PassPlan((mean_anchor("mu", x, r.leaf()),), (r, m2), ("mu", "r", "v"))
    mu = mean_of(x)
    body = power(sub(x, mu), 2)
    stage = StageReport(
        "v",
        reduction("sum", "j", body),
        "(sum, ×)",
        3,
        1,
        ("expand",),
        (power(x, 2), x, ONE),
        (ONE, mul(const(-2), mu), power(mu, 2)),
    )
    out = Output("var", sub(m2.leaf(), power(r.leaf(), 2)), ())
    return {"var": mean_of(body)}, Plan(("j",), (p,), (out,), (stage,))


def attention() -> tuple[dict[str, Node], Plan]:
    S = reduction("sum", "d", mul(Q, K))
    m = Slot("m", Extremum("max"), ("i",), (S,), ("m",))
    A = ExtremumAnchor("M", ("i",), S, m.leaf(), why="the maximum moves with the data")
    e = fn("exp", sub(S, A.leaf))
    factor = fn("exp", mul(const(-1), shift("M", ("i",))))
    l_slot = Slot("l", Sum(), ("i",), (e,), ("l",), anchors=("M",), moves=(Move(factor, "l"),))
    o = Slot("o", Sum(), ("i", "e"), (mul(e, V),), ("o",), anchors=("M",), moves=(Move(factor, "o"),))
    p = PassPlan((A,), (m, l_slot, o), ("m", "M", "l", "o"))
    mx = reduction("max", "j", S)
    w = fn("exp", sub(S, mx))
    total = reduction("sum", "j", w)
    out = Output("O", div(o.leaf(), l_slot.leaf()), ("i", "e"))
    stages = (
        StageReport("m", mx, "(max, monotone)", None, 1),
        StageReport("l", total, "(sum, ×)", 1, 1, ("exp of a sum",), (fn("exp", S),), (fn("exp", mul(const(-1), mx)),)),
    )
    return {"O": div(reduction("sum", "j", mul(w, V)), total)}, Plan(("j",), (p,), (out,), stages)


def weighted_mean() -> tuple[dict[str, Node], Plan]:
    h = shift("mu", ())
    W = Slot("W", Sum(), (), (w,), ("W",))
    r = Slot(
        "r",
        Sum(),
        (),
        (mul(w, sub(x, mean_anchor("mu", x, ONE).leaf)),),
        ("r",),
        anchors=("mu",),
        moves=(Move(ONE, "r"), Move(mul(const(-1), h), "W")),
    )
    A = mean_anchor("mu", x, div(r.leaf(), W.leaf()))
    p = PassPlan((A,), (W, r), ("W", "mu", "r"))
    out = Output("m", add(A.leaf, div(r.leaf(), W.leaf())), ())
    return {"m": div(reduction("sum", "j", mul(w, x)), reduction("sum", "j", w))}, Plan(("j",), (p,), (out,))


def covariance() -> tuple[dict[str, Node], Plan]:
    hx, hy = shift("a", ()), shift("b", ())
    ax, by = mean_anchor("a", x, ONE).leaf, mean_anchor("b", y, ONE).leaf
    cx, cy = sub(x, ax), sub(y, by)
    r = averaged("r", cx, ("a",), (ONE, "r"), (mul(const(-1), hx), "n"))
    s = averaged("s", cy, ("b",), (ONE, "s"), (mul(const(-1), hy), "n"))
    c = averaged(
        "c",
        mul(cx, cy),
        ("a", "b"),
        (ONE, "c"),
        (mul(const(-1), hy), "r"),
        (mul(const(-1), hx), "s"),
        (mul(hx, hy), "n"),
    )
    anchors = (mean_anchor("a", x, r.leaf()), mean_anchor("b", y, s.leaf()))
    p = PassPlan(anchors, (r, s, c), ("a", "b", "r", "s", "c"))
    mx, my = mean_of(x), mean_of(y)
    out = Output("cov", sub(c.leaf(), mul(r.leaf(), s.leaf())), ())
    return {"cov": mean_of(mul(sub(x, mx), sub(y, my)))}, Plan(("j",), (p,), (out,))


def argmax() -> tuple[dict[str, Node], Plan]:
    best = Slot("best", Position("argmax"), (), (x,), ("best", "best_at"))
    p = PassPlan((), (best,), ("best",))
    return {"at": reduction("argmax", "j", x)}, Plan(("j",), (p,), (Output("at", best.leaf(1), ()),))


def top2() -> tuple[dict[str, Node], Plan]:
    best = Slot("t", TopK(2, "top"), (), (x,), ("t", "t_at"))
    p = PassPlan((), (best,), ("t",))
    return {"v": reduction("topk_values", "j", x, extra=(2, "top"))}, Plan(
        ("j",), (p,), (Output("v", best.leaf(0), ("top",)),)
    )


def deviation() -> tuple[dict[str, Node], Plan]:
    """Mean absolute deviation: two passes, the mean handed to the second."""
    from redalg.graph.node import state

    first = averaged("s", x, ())
    one = PassPlan((), (first,), ("s",), (("mean", first.leaf()),))
    second = averaged("d", fn("abs", sub(x, state("mean"))), ())
    plan = Plan(("j",), (one, PassPlan((), (second,), ("d",))), (Output("mad", second.leaf(), ()),))
    return {"mad": mean_of(fn("abs", sub(x, mean_of(x))))}, plan


def softmax() -> tuple[dict[str, Node], Plan]:
    m = Slot("m", Extremum("max"), (), (x,), ("m",))
    A = ExtremumAnchor("M", (), x, m.leaf())
    factor = fn("exp", mul(const(-1), shift("M", ())))
    l_slot = Slot("l", Sum(), (), (fn("exp", sub(x, A.leaf)),), ("l",), anchors=("M",), moves=(Move(factor, "l"),))
    p = PassPlan((A,), (m, l_slot), ("m", "M", "l"))
    out = Output("y", div(fn("exp", sub(x, m.leaf())), l_slot.leaf()), ("j",), keeps_axis=True)
    e = fn("exp", sub(x, reduction("max", "j", x)))
    return {"y": div(e, reduction("sum", "j", e))}, Plan(("j",), (p,), (out,))


def pure() -> tuple[dict[str, Node], Plan]:
    value = fn("log", fn("relu", x))
    return {"y": value}, Plan(("j",), (), (Output("y", value, ("j",), keeps_axis=True),))


ALL = {f.__name__: f for f in (variance, attention, weighted_mean, covariance, argmax, top2, deviation, softmax, pure)}

__all__ = ["ALL", "COUNT"]
