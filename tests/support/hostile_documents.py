"""Hostile documents, by name: `FORMS` that are long to check, `TEXTS` that are none, `REFUSALS` with matrices of work.

Used by a test and a benchmark, beside `tests.support.hostile`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

from redalg.proofs.document.document import Anchor, Document, Move, Output, Pass, Slot
from redalg.proofs.document.terms import Term, Terms
from redalg.proofs.refusals.document import Refusal
from tests.support.hostile import HUGE, reals

# --- forms -----------------------------------------------------------------------------------------------------------


def _slots(t: Terms, slots: Iterable[Slot], anchors: Iterable[Anchor] = (), exports: Any = ()) -> Document:
    slots, anchors = tuple(slots), tuple(anchors)
    order = (*(a.name for a in anchors), *(s.name for s in slots))
    y = t.reduce("sum", ("j",), reals(t, 1, "x", ("j",))[0])
    passes = (Pass(order, anchors, slots, tuple(exports)),)
    return Document(t, ("j",), {"y": y}, {}, passes, (Output("y", t.state(slots[0].parts[0]), ()),))


def _sum_slot(t: Terms, name: str, lift: Term, moves: tuple[Move, ...] = ()) -> Slot:
    return Slot(name, "sum", (), (lift,), (name,), (t.const(0),), moves=moves)


def many_slots_and_anchors() -> Document:
    """Every slot moves with every anchor: the obligations are as long as there are anchors, for every slot."""
    t = Terms()
    x = reals(t, 1, "x", ("j",))[0]
    anchors = [Anchor(f"A{i}", (), "mul", "mean", x, None, t.const(1)) for i in range(800)]
    shift = t.mul(*(t.state(f"shift:A{i}") for i in range(800)))
    lift = t.mul(x, *(t.state(f"A{i}") for i in range(800)))
    slots = [_sum_slot(t, f"s{i}", lift, (Move(shift, f"s{i}"),)) for i in range(800)]
    return _slots(t, slots, anchors)


def many_moves() -> Document:
    t = Terms()
    x = reals(t, 1, "x", ("j",))[0]
    moves = tuple(Move(t.state("shift:A"), f"s{i}") for i in range(200))
    slots = [_sum_slot(t, f"s{i}", t.mul(x, t.state("A")), moves) for i in range(200)]
    return _slots(t, slots, [Anchor("A", (), "mul", "mean", x, None, t.const(1))])


def chain_of_exports() -> Document:
    """Each export reads the one before: their meanings are nested as deeply."""
    t = Terms()
    x = reals(t, 1, "x", ("j",))[0]
    passes = [Pass(("s",), (), (_sum_slot(t, "s", x),), (("e0", t.state("s")),))]
    for i in range(1900):
        passes.append(Pass((), (), (), ((f"e{i + 1}", t("tanh", t.state(f"e{i}"))),)))
    y = t.reduce("sum", ("j",), x)
    return Document(t, ("j",), {"y": y}, {}, tuple(passes), (Output("y", t.state("e1900"), ()),))


def parts_that_need_each_other() -> Document:
    t = Terms()
    x = reals(t, 1, "x", ("j",))[0]
    anchors = [Anchor(n, (), "add", "extremum", None, t.state(m), None) for n, m in (("A", "B"), ("B", "A"))]
    return _slots(t, [_sum_slot(t, "s", t.add(x, t.state("A")))], anchors)


def many_outputs() -> Document:
    t = Terms()
    x = reals(t, 1)[0]
    spec = {f"y{i}": t.add(x, t.const(i)) for i in range(1900)}
    deep = x
    for _ in range(3000):
        deep = t("tanh", deep)
    outputs = tuple(Output(name, t.add(value, t.mul(t.const(0), deep)), ()) for name, value in spec.items())
    return Document(t, ("j",), spec, {}, (), outputs)


def many_divisors() -> Document:
    t = Terms()
    value = reals(t, 1)[0]
    for x in reals(t, 900, "c"):
        value = t("where", t("lt", t.const(0), x), t.div(value, x), t.add(value, t("log", x)))
    return Document(t, ("j",), {"y": reals(t, 1)[0]}, {"y": value}, (), (Output("y", value, ()),))


FORMS: dict[str, Callable[[], Document]] = {
    f.__name__.replace("_", " "): f
    for f in (
        many_slots_and_anchors,
        many_moves,
        chain_of_exports,
        parts_that_need_each_other,
        many_outputs,
        many_divisors,
    )
}


# --- texts -----------------------------------------------------------------------------------------------------------

#: what is refused before anything of it is used
TEXTS: dict[str, str | bytes] = {
    "nothing": "",
    "an open bracket": "{",
    "no object": "[]",
    "a number": "3",
    "null": "null",
    "a hundred thousand brackets": "[" * 100_000,
    "deep objects": '{"a":' * 70 + "1" + "}" * 70,
    "a million empty lists": "[" + "[]," * 600_000 + "[]]",
    "a million empty objects": "[" + "{}," * 600_000 + "{}]",
    "lists in lists": "[" + "[[[[[[[[]]]]]]]]," * 110_000 + "[]]",
    "an open string of escapes": '"' + '\\"' * 900_000,
    "a long string": '"' + "x" * 1_900_000 + '"',
    "a long string of wide characters": '"' + "\U0001f600" * 450_000 + '"',
    "a million digits": "[" + "9" * 1_000_000 + "]",
    "a long fraction": "[0." + "3" * 1_000_000 + "]",
    "an exponent": '{"a": 1e999999999}',
    "NaN": '{"format": NaN}',
    "infinity": '{"format": -Infinity}',
    "a key twice": '{"format": 1, "format": 1}',
    "no UTF-8": b"\xff\xfe{}",
    "surrogates in bytes": '{"format": "\ud800"}'.encode("utf-8", "surrogatepass"),
    "a byte order mark": "\ufeff{}",
    "too long": " " * 3_000_000,
    "a null byte": '{"format": "\x00"}',
    "code": "__import__('os').system('true')",
}


# --- refusals --------------------------------------------------------------------------------------------------------


def refusal(body: Callable[[Terms, Term], Term], length: int, *, jacobian: bool = False, points: int = 40) -> str:
    """A certificate with a matrix as large as allowed, whose entries are stated so widely that none is wrong."""
    t = Terms()
    x = reals(t, 1, "x", ("j",))[0]
    stage = t.reduce("sum", ("j",), body(t, x))
    doc = Document(t, ("j",), {"y": stage}, {}, (), ())
    elements = tuple({"x0": Fraction(2 * i + 3, 7)} for i in range(points))
    streams = tuple((*elements, *({"x0": Fraction(q + i, 11)} for i in range(1, length))) for q in range(points))
    wide = (Fraction(-(10**60)), Fraction(10**60))
    kind = "jacobian" if jacobian else "minor"
    whole = Refusal(
        *(doc, stage, kind if jacobian else "(sum, ×)", kind, "x0" if jacobian else None, {}, {}, {}),
        *(tuple(range(points)), elements, streams, ((wide,) * points,) * points, points),
    )
    return whole.to_json()


def _mean(t: Terms, x: Term) -> Term:
    return t.div(t.reduce("sum", ("j",), x), t.size(("j",)))


def _iterated(name: str, times: int) -> Callable[[Terms, Term], Term]:
    def body(t: Terms, x: Term) -> Term:
        value = t.sub(x, _mean(t, x))
        for _ in range(times):
            value = t(name, value)
        return value

    return body


def _squares(t: Terms, x: Term) -> Term:
    value = t.sub(x, _mean(t, x))
    for i in range(40):
        value = t.add(t.mul(value, value), t.const(Fraction(1, HUGE - i)))
    return value


def _singular(t: Terms, x: Term) -> Term:
    return t.add(t("log", t.add(x, t.const(9))), t("erfc", _mean(t, x)), t("asinh", t.add(x, t.const(1))))


def _crossed(t: Terms, x: Term) -> Term:
    return t.mul(*(t("sin", t.add(x, t.mul(t.const(i), _mean(t, x)))) for i in range(1, 60)))


def _huge_axis(t: Terms, x: Term) -> Term:
    return t.add(x, t.reduce("sum", ("k",), t.mul(t("index", attr="k"), _mean(t, x))))


def _voids(t: Terms, x: Term) -> Term:
    sums = [t.add(t.mul(t.const(i), x), t.special("-oo"), t.reduce("max", ("j",), x)) for i in range(1, 30)]
    return t("exp", t.mul(*sums))


REFUSALS: dict[str, Callable[[], str]] = {
    "functions of functions": lambda: refusal(_iterated("asinh", 300), 300),
    "error functions": lambda: refusal(_iterated("erfc", 30), 300),
    "rationals that double in length": lambda: refusal(_squares, 100),
    "a rank that is never decided": lambda: refusal(_singular, 2),
    "products of many factors": lambda: refusal(_crossed, 200),
    "an axis without an array": lambda: refusal(_huge_axis, 2).replace('"sizes":{}', '"sizes":{"k":1000000000000}'),
    "exponentials of infinities again": lambda: refusal(_voids, 200),
    "derivatives of functions of functions": lambda: refusal(_iterated("atan", 300), 300, jacobian=True),
    "derivatives of rationals": lambda: refusal(_squares, 100, jacobian=True),
    "derivatives of products": lambda: refusal(_crossed, 100, jacobian=True),
    "derivatives without end": lambda: refusal(_iterated("abs", 2000), 900, jacobian=True),
}
