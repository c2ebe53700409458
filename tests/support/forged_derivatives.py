"""Certificates of derivatives that state a falsehood: by name, the spec's text, and what is done to the true claims."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import redalg as ra
from redalg.proofs.derivatives.claims import Claims
from redalg.proofs.derivatives.document import Derivative
from redalg.proofs.document.terms import Leaf, Term, Terms, walk
from tests.support.forged_poles import BELOW_0, NOTHING
from tests.support.forging import Forge

Change = Callable[[Terms, Term], Term | None]

SOFTMAX = "m = max[j](x[i,j]); p = exp(x[i,j] - m); return y = p/sum[j](p)"
LSE = "m = max[j](x[i,j]); return y = m + log(sum[j](exp(x[i,j] - m)))"
NORM = "return y = x[i,j]*w[j]/sqrt(mean[j](x[i,j]**2) + eps)"
MAX = "return y = max[j](x[i,j])"
MASKED = "tensors x[i,j], v[i,j], k[j] bool; return y = sum[j](where(k[j], x[i,j]*v[i,j], v[i,j]**2))"
TWO = "return a = sum[j](x[i,j]**2), b = sum[j](x[i,j])"
RELU = "return y = sum[j](relu(x[i,j])*w[j])"
PRODUCT = "return y = prod[j](x[i,j])"
LIST = "return y = topk[j:2:k](x[i,j]).values"
CAST = "return y = sum[j](cast(x[i,j], int8)*w[j])"
GRAM = "return y = sum[i](sum[j](A[i,j]*B[j,k])**2)"
MEAN = "return y = mean[j](x[i,j]*w[j])"
EMPTY_SUM = "tensors x[i], z[i,j], k[j] bool; return y = x[i]*exp(x[i]*sum[j](where(k[j], z[i,j], 0)))"
SUM_OF_LIST = "v = topk[j:2:k](x[j]).values; return y = sum[k](v)**2"
SQUARED = "return y = sum[j](A[i,j]*A[j,k])"
PAIR = "return y = sum[j](maximum(x[i,j], w[j]))"


def claims_of(text: str, mode: str = "vjp", **options: Any) -> Claims:
    return getattr(ra.parse(text), mode)(**options).certificate.claims


def text_of(claims: Claims) -> str:
    return Derivative(claims).to_json()


def changed(claims: Claims, change: Change, name: str | None = None, which: int = 0) -> Claims:
    """The claims, in which one term of a result, the first (or a later one) that `change` is for, is another."""
    t = claims.document.terms
    name = name or next(n for n, root in claims.results.items() if root is not None)
    root = claims.results[name]
    assert root is not None
    found = [(x, new) for x in walk(root) for new in [change(t, x)] if new is not None]
    old, new = found[which]
    return replace(claims, results={**claims.results, name: t.substitute(root, {old: new})})


def whole(claims: Claims, change: Callable[[Terms, Term], Term], name: str | None = None) -> Claims:
    name = name or next(n for n, root in claims.results.items() if root is not None)
    return replace(claims, results={**claims.results, name: change(claims.document.terms, claims.results[name])})  # type: ignore[arg-type]


# --- changes of one term ---------------------------------------------------------------------------------------------


def is_sum(x: Term) -> bool:
    return x.op == "reduce" and x.attr.kind == "sum"


def without_a_term(t: Terms, x: Term) -> Term | None:
    return t.add(*x.args[1:]) if x.op == "add" else None


def without_a_factor(t: Terms, x: Term) -> Term | None:
    return t.mul(*x.args[1:]) if x.op == "mul" and x.args[0].op != "const" else None


def then_branch(t: Terms, x: Term) -> Term | None:
    return x.args[1] if x.op == "where" else None


def exchanged(t: Terms, x: Term) -> Term | None:
    return t("where", x.args[0], x.args[2], x.args[1]) if x.op == "where" else None


def other_end(t: Terms, x: Term) -> Term | None:
    """The lowest position of the smallest element, in the place of that of the largest."""
    if x.op != "eq" or not any(a.op == "index" for a in x.args):
        return None
    own = t("tensor", attr=Leaf("x", ("i", "j"), frozenset()))
    return t("eq", t("index", attr="j"), t.reduce("argmin", ("j",), own))


def all_ties(t: Terms, x: Term) -> Term | None:
    if x.op != "eq" or not any(a.op == "index" for a in x.args):
        return None
    own = t("tensor", attr=Leaf("x", ("i", "j"), frozenset()))
    return t("eq", own, t.reduce("max", ("j",), own))


def at_the_kink(t: Terms, x: Term) -> Term | None:
    return t("le", *x.args) if x.op == "lt" else None


def another_power(t: Terms, x: Term) -> Term | None:
    return t("pow", x.args[0], t.const(x.args[1].attr - 1)) if x.op == "pow" and x.args[1].op == "const" else None


def linear_exponential(t: Terms, x: Term) -> Term | None:
    return t.add(t.const(1), x.args[0]) if x.op == "exp" else None


def another_axis(t: Terms, x: Term) -> Term | None:
    return t.reduce("sum", ("i",), *x.args) if is_sum(x) and x.attr.axes == ("j",) else None


def unsummed(t: Terms, x: Term) -> Term | None:
    return t.reduce("max", x.attr.axes, *x.args) if is_sum(x) else None


def without_length(t: Terms, x: Term) -> Term | None:
    return t.const(1) if x.op == "size" else None


CHANGES: dict[str, Change] = {
    change.__name__: change
    for change in (
        without_a_term,
        without_a_factor,
        then_branch,
        exchanged,
        at_the_kink,
        another_power,
        linear_exponential,
        another_axis,
        unsummed,
        without_length,
    )
}


# --- forgeries -------------------------------------------------------------------------------------------------------


def _saved_otherwise(c: Claims) -> Claims:
    """A saved value that is another value of the spec: the maximum for the sum."""
    first, *rest = (pair for pair in c.saved if pair[1].op == "reduce")
    t = c.document.terms
    other = t.reduce("max" if first[1].attr.kind == "sum" else "min", first[1].attr.axes, *first[1].args)
    return replace(c, saved=((first[0], other), *(p for p in c.saved if p[0] is not first[0])))


def _saved_domain(c: Claims) -> Claims:
    (leaf, value), *rest = (p for p in c.saved if not p[0].attr.domain)
    t = c.document.terms
    new = t("tensor", attr=leaf.attr._replace(domain=frozenset({"positive"})))
    results = {n: None if r is None else t.substitute(r, {leaf: new}) for n, r in c.results.items()}
    return replace(c, results=results, saved=((new, value), *(p for p in c.saved if p[0] is not leaf)))


def _swapped_seeds(c: Claims) -> Claims:
    a, b = c.seeds.values()
    return replace(c, seeds=dict(zip(c.seeds, (b, a), strict=True)))


def _transposed(c: Claims) -> Claims:
    root = c.results["A"]
    assert root is not None
    t = c.document.terms
    return replace(
        c, axes={**c.axes, "A": ("j", "i")}, results={**c.results, "A": t.renamed(root, {"i": "j", "j": "i"})}
    )


def _foreign_leaf(c: Claims) -> Claims:
    return whole(c, lambda t, r: t.mul(r, t("tensor", attr=Leaf("z", ("i",), frozenset()))))


def _named_as_a_tensor(c: Claims) -> Claims:
    (name, seed), *_ = c.seeds.items()
    t = c.document.terms
    new = t("tensor", attr=seed.attr._replace(name="x"))
    results = {n: None if r is None else t.substitute(r, {seed: new}) for n, r in c.results.items()}
    return replace(c, seeds={**c.seeds, name: new}, results=results)


def _cancels(c: Claims) -> Claims:
    """The maximum of a maximum is said to cancel, and passes nothing on."""
    stage = next(t for t, rule in c.rules if rule == "max")
    rules = tuple((t, "cancelled" if t is stage else rule) for t, rule in c.rules)
    return replace(c, rules=rules, cancelled=((None, stage),), results={"x": None})


def _cancels_inside(c: Claims) -> Claims:
    """That a sum of squares does not depend on the inner sum that it squares."""
    outer = next(t for t, rule in c.rules if rule == "sum" and t.axes == {"k"})
    inner = next(t for t, rule in c.rules if rule == "sum" and t is not outer)
    return replace(c, cancelled=((outer, inner),))


def _rules(c: Claims, change: Callable[[list[tuple[Term, str]]], list[tuple[Term, str]]]) -> Claims:
    return replace(c, rules=tuple(change(list(c.rules))))


def _other_spec(c: Claims) -> Claims:
    """The derivative of another spec, with all that belongs to it."""
    t = c.document.terms
    spec = {n: t.mul(t.const(2), root) for n, root in c.document.spec.items()}
    rules = (*c.rules, *((root, "mul") for root in spec.values()))
    return replace(c, document=replace(c.document, spec=spec), rules=rules)


def _unmasked() -> Claims:
    """The gradient of x + max where(k, z, -oo), empty rows filled, without the condition that a row is not empty."""
    x, z, k = ra.tensors("x[i] z[i,j]")[0], ra.tensors("x[i] z[i,j]")[1], ra.tensors("k[j]", bool=True)
    spec = ra.Spec(y=x + ra.max(ra.where(k, z, -ra.oo), "j"), empty={"y": 0})
    return whole(spec.vjp().certificate.claims, lambda t, r: _leaf(t, "grad_y", "i"), "x")


def _filled(c: Claims) -> Claims:
    """Rows of a gradient are said to be 0 where its own sums see no element, and it is more than those sums."""
    return replace(c, filled=("x",))


def _other_length(t: Terms, root: Term) -> Term:
    return t.substitute(root, {t.size(("j",)): t.size(("i",))})


def _alike_by_a_reading(c: Claims) -> Claims:
    """Rows are said to be as many as columns: a tensor is read, times 0, with its axes exchanged."""
    read = whole(c, lambda t, r: t.add(_other_length(t, r), t.mul(t.const(0), _leaf(t, "x_t", "j", "i"))), "x")
    return replace(read, readings={"x_t": "x"})


def _longer_list(c: Claims, axis: str) -> Claims:
    """The sum of the largest two is said to be that of the largest three; that lists are full is assumed."""
    t = c.document.terms
    old = next(x for x in walk(c.results["x"]) if x.op == "reduce" and x.attr.kind == "topk_values")  # type: ignore[arg-type]
    new = t.reduce("topk_values", old.attr.axes, *old.args, extra=(3, axis))
    sums = t.reduce("sum", (old.attr.extra[1],), old), t.reduce("sum", (axis,), new)
    return whole(c, lambda t, r: t.substitute(r, dict([sums])))


def _list_along_rows(c: Claims) -> Claims:
    """Two rows, because a list of two lies along their axis."""
    listed = ("topk_values", ("j",), (2, "i"))
    return whole(
        c,
        lambda t, r: t.add(
            t.mul(r, t.size(("i",)), t("pow", t.const(2), t.const(-1))),
            t.mul(t.const(0), t.reduce(*listed[:2], _leaf(t, "w", "j"), extra=listed[2])),
        ),
        "x",
    )


def _one_domain_of_two(c: Claims) -> Claims:
    """A tensor is positive in one of the readings of it."""
    t = c.document.terms
    old = next(x for x in c.leaves() if x.attr.name == "A_j_k")
    new = t("tensor", attr=old.attr._replace(domain=frozenset({"positive"})))
    moved = {old: new}
    doc = replace(c.document, spec={n: t.substitute(root, moved) for n, root in c.spec.items()})
    results = {n: None if r is None else t.substitute(r, moved) for n, r in c.results.items()}
    return replace(c, document=doc, results=results, rules=tuple((t.substitute(x, moved), r) for x, r in c.rules))


def _nowhere(what: Callable[[Any], Any], mode: str = "vjp") -> Claims:
    """A derivative with what is 0, where it has a value, added."""
    forge = Forge()

    def added(t: Terms, root: Term) -> Term:
        forge.terms = t
        return t.add(root, forge(what("x[j]")))

    return whole(claims_of("return y = sum[j](x[j]*w[j])", mode, **({"wrt": "x"} if mode == "vjp" else {})), added)


def _chosen_elsewhere() -> Claims:
    """Divides by 0, times 0, at a place that the gradient, where it is a number, is not read at."""

    def added(t: Terms, root: Term) -> Term:
        x = _leaf(t, "x", "j")
        distance = t.sub(x, t.reduce("min", ("j",), x))
        lowest = t("eq", t("index", attr="j"), t.reduce("argmin", ("j",), x))
        chosen = t("where", lowest, t("pow", distance, t.div(t.const(-1), t.const(2))), t.const(0))
        return t.add(root, t.mul(t.const(0), t.reduce("sum", ("j",), chosen)))

    return whole(claims_of("m = min[j](x[j]); return y = sum[j](sqrt(x[j] - m))"), added, "x")


def _two_places_of_one_axis() -> Claims:
    """The logarithm, times 0, of what is no number, under conditions on the output's place and on another one."""

    def added(t: Terms, root: Term) -> Term:
        chosen = t("lt", t.const(0), _leaf(t, "w", "i"))
        product = t.mul(_leaf(t, "grad_y"), _leaf(t, "z", "i"))
        inner = t("log", t.reduce("sum", ("i",), t("where", chosen, product, t.const(0))))
        others = t.reduce("sum", ("i",), t("where", t("not", chosen), inner, t.const(0)))
        return t.add(root, t.mul(t.const(0), t("where", chosen, others, t.const(0))))

    return whole(claims_of("m = sum[j](x[j]); return y = sum[i](where(0 < w[i], z[i] / m, z[i]))"), added, "z")


def _tied(t: Terms, root: Term) -> Term:
    """The gradient times d/(d + [d = 0]), which is 0 at d = 0."""
    d = t.sub(_leaf(t, "x", "j"), _leaf(t, "w", "j"))
    tie = t("where", t("eq", _leaf(t, "x", "j"), _leaf(t, "w", "j")), t.const(1), t.const(0))
    return t.mul(root, d, t("pow", t.add(d, tie), t.const(-1)))


FORGED: dict[str, Callable[[], Claims]] = {
    **{f"without a value where x is 0: {k}": partial(_nowhere, v) for k, v in NOTHING.items()},
    **{f"without a value where x is negative: {k}": partial(_nowhere, v) for k, v in BELOW_0.items()},
    "a sum over places that others choose": _chosen_elsewhere,
    "conditions on two places along one axis": _two_places_of_one_axis,
    "a share of ties by their difference": lambda: whole(claims_of("return y = sum[j](x[j]*w[j])"), _tied, "x"),
    "a sign": lambda: whole(claims_of(SOFTMAX), lambda t, r: t.mul(t.const(-1), r)),
    "a factor": lambda: whole(claims_of(LSE), lambda t, r: t.mul(t.const(2), r)),
    "a factor near 1": lambda: whole(
        claims_of(NORM), lambda t, r: t.mul(t.const(10**6 + 1), t("pow", t.const(10**6), t.const(-1)), r)
    ),
    "an added constant": lambda: whole(claims_of(NORM), lambda t, r: t.add(r, t.const(1))),
    "a term is missing": lambda: changed(claims_of(SOFTMAX), without_a_term),
    "a factor is missing": lambda: changed(claims_of(NORM), without_a_factor),
    "the sum over another axis": lambda: changed(claims_of(NORM), another_axis, "x"),
    "an extremum for a sum": lambda: changed(claims_of(NORM), unsummed, "w"),
    "a wrong saved value": lambda: _saved_otherwise(claims_of(LSE)),
    "a saved value said to be positive": lambda: _saved_domain(claims_of(LSE)),
    "a branch is dropped": lambda: changed(claims_of(MASKED), then_branch, "x"),
    "branches are exchanged": lambda: changed(claims_of(MASKED), exchanged, "v"),
    "the other end": lambda: changed(claims_of(MAX), other_end),
    "all ties at once": lambda: changed(claims_of(MAX), all_ties),
    "ties of a list at once": lambda: changed(claims_of(LIST), all_ties),
    "a length is missing": lambda: changed(claims_of(MEAN), without_length, "x"),
    "broadcast without a sum": lambda: whole(
        claims_of("return y = sum[j](x[i]*w[j])"), lambda t, r: t.div(r, t.size(("j",))), "x"
    ),
    "the slope at a kink": lambda: changed(claims_of(RELU), at_the_kink, "x"),
    "a wrong exponent": lambda: changed(claims_of(NORM), another_power, "x"),
    "the exponential to first order": lambda: changed(claims_of(LSE), linear_exponential),
    "a product by division": lambda: whole(claims_of(PRODUCT), _divided),
    "half of a square": lambda: whole(claims_of(TWO), lambda t, r: t.mul(t("pow", t.const(2), t.const(-1)), r)),
    "a tie in full to both": lambda: whole(
        claims_of(PAIR),
        lambda t, r: t.mul(
            t("where", t("le", *(_leaf(t, "w", "j"), _leaf(t, "x", "i", "j"))), t.const(1), t.const(0)),
            _leaf(t, "grad_y", "i"),
        ),
        "x",
    ),
    "a gradient of 0": lambda: replace(claims_of(MAX), results={"x": None}),
    "cancels, and does not": lambda: _cancels(claims_of(MAX)),
    "cancels inside, and does not": lambda: _cancels_inside(claims_of(GRAM)),
    "cotangents are exchanged": lambda: _swapped_seeds(claims_of(TWO)),
    "a cotangent is missing": lambda: replace(
        claims_of(TWO), seeds={n: s for n, s in claims_of(TWO).seeds.items() if n == "a"}
    ),
    "a gradient transposed": lambda: _transposed(claims_of(GRAM)),
    "a leaf of nothing": lambda: _foreign_leaf(claims_of(SOFTMAX)),
    "a cotangent named as a tensor": lambda: _named_as_a_tensor(claims_of(SOFTMAX)),
    "another rule": lambda: _rules(claims_of(LSE), lambda rows: [(t, "sum" if r == "exp" else r) for t, r in rows]),
    "a rule is missing": lambda: _rules(claims_of(LSE), lambda rows: rows[1:]),
    "a rule twice": lambda: _rules(claims_of(LSE), lambda rows: [*rows, rows[0]]),
    "another spec": lambda: _other_spec(claims_of(MAX)),
    "a rounding passed through": lambda: replace(claims_of(CAST, assume={"straight_through"}), assumptions=()),
    "an assumption of nothing": lambda: replace(claims_of(LSE), assumptions=("straight_through",)),
    "a list that is always full": lambda: replace(claims_of(LIST), assumptions=("full_lists",)),
    "an assumption nobody knows": lambda: replace(claims_of(LSE), assumptions=("finite",)),
    "empty rows pass something on": _unmasked,
    "rows filled that have a value": lambda: _filled(claims_of(EMPTY_SUM, given=())),
    "a tangent's sign": lambda: whole(claims_of(SOFTMAX, "jvp"), lambda t, r: t.mul(t.const(-1), r)),
    "a tangent without a term": lambda: changed(claims_of(SOFTMAX, "jvp"), without_a_term, which=-1),
    "axes of one length by a reading": lambda: _alike_by_a_reading(claims_of(MEAN)),
    "tangents of axes of one length by a reading": lambda: _tangent_alike(claims_of(MEAN, "jvp")),
    "a longer list": lambda: _longer_list(claims_of(SUM_OF_LIST, given=()), "k"),
    "a longer list along another axis": lambda: _longer_list(claims_of(SUM_OF_LIST, given=()), "l"),
    "a list along an axis of a tensor": lambda: _list_along_rows(claims_of(MEAN)),
    "a tensor of two domains": lambda: _one_domain_of_two(claims_of(SQUARED)),
    "tangents of an output are missing": lambda: replace(claims_of(TWO, "jvp"), results={}, axes={}),
}


def _tangent_alike(c: Claims) -> Claims:
    """The same of a tangent, by a tangent that is read with its axes exchanged."""
    read = whole(c, lambda t, r: t.add(_other_length(t, r), t.mul(t.const(0), _leaf(t, "moved", "j"))))
    t, root = c.document.terms, read.results["y"]
    assert root is not None
    summed = t.substitute(root, {_leaf(t, "moved", "j"): t.reduce("sum", ("j", "i"), _leaf(t, "moved", "j", "i"))})
    return replace(read, results={"y": summed}, readings={"moved": "tangent_x"})


def _divided(t: Terms, root: Term) -> Term:
    """The product of the others by division alone, which is none where an element is 0."""
    own = _leaf(t, "x", "i", "j")
    return t.mul(_leaf(t, "grad_y", "i"), t.div(t.reduce("prod", ("j",), own), own))


def _leaf(t: Terms, name: str, *axes: str) -> Term:
    return t("tensor", attr=Leaf(name, axes, frozenset()))


def mutants(claims: Claims) -> Iterator[tuple[str, Claims]]:
    """Every change at every place of every result."""
    t = claims.document.terms
    for name, root in claims.results.items():
        for x in walk(root) if root is not None else ():
            for kind, change in CHANGES.items():
                new = change(t, x)
                if new is not None and new is not x and new.axes <= x.axes:
                    results = {**claims.results, name: t.substitute(root, {x: new})}  # type: ignore[arg-type]
                    yield f"{kind} in {name}", replace(claims, results=results)


__all__ = ["CHANGES", "FORGED", "claims_of", "mutants", "text_of"]
