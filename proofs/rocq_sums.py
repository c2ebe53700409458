"""Proof scripts of lemmas with sums over the stream: every sum in terms of sums that no anchor and no result is in.

Σ_j (x_j - m)² = Σ x² - 2m Σ x + m² n: what does not depend on the stream leaves each sum, `expanded` says how, and Rocq
checks it; what is left is an equation between finitely many numbers.
"""

from __future__ import annotations

from fractions import Fraction

from redalg.proofs.rocq_words import Unprintable, Words, positive
from redalg.proofs.terms import Term, Terms, walk

MOST = 60  # terms of one expansion
Parts = list[tuple[Term, Term]]  # Σ coefficient (free of the stream) · monomial


class Expansion:
    """Elements as sums of coefficient times monomial of the stream."""

    def __init__(self, terms: Terms, stream: frozenset[str]) -> None:
        self.t, self.stream = terms, stream
        self.one = terms.const(1)

    def of(self, body: Term) -> Parts:
        """The parts of an element, like monomials together. Raises: Unprintable for too many."""
        found: dict[Term, list[Term]] = {}
        for c, m in self.parts(body):
            found.setdefault(self.sorted(m), []).append(c)
        return [(self.t.add(*cs), m) for m, cs in found.items()]

    def constant(self, t: Term) -> bool:
        return not t.axes & self.stream

    def parts(self, t: Term) -> Parts:
        if self.constant(t):
            return [(t, self.one)]
        if t.op == "add":
            return [p for a in t.args for p in self.parts(a)]
        if t.op == "mul":
            return self.product([self.parts(a) for a in t.args])
        if t.op == "pow" and t.args[1].op == "const":
            return self.power(t.args[0], t.args[1].attr, t)
        if t.op == "exp":
            return self.exponential(t)
        if t.op == "log":
            return self.logarithm(t)
        if t.op == "where":
            return self.choice(t)
        if t.op == "reduce" and t.attr.kind == "sum":
            return self.contraction(t)
        return [(self.one, t)]

    def product(self, factors: list[Parts]) -> Parts:
        total: Parts = [(self.one, self.one)]
        for f in factors:
            total = [(self.times(a, c), self.times(b, m)) for a, b in total for c, m in f]
            if len(total) > MOST:
                raise Unprintable(f"a sum whose element has more than {MOST} terms")
        return total

    def times(self, a: Term, b: Term) -> Term:
        if self.one in (a, b):
            return b if a is self.one else a
        left = a.args if a.op == "mul" else (a,)
        return self.t("mul", *left, *(b.args if b.op == "mul" else (b,)))

    def power(self, base: Term, e: Fraction, whole: Term) -> Parts:
        parts = self.parts(base)
        if e.denominator == 1 and 0 < e <= 8:
            return self.product([parts] * int(e))
        if e.denominator == 1 and len(parts) == 1:
            (c, m) = parts[0]
            return [(self.t("pow", c, self.t.const(e)), self.raised(m, e))]
        return [(self.one, whole)]

    def raised(self, m: Term, e: Fraction) -> Term:
        factors = m.args if m.op == "mul" else (m,)
        return self.t.mul(*(self.t("pow", f, self.t.const(e)) for f in factors))

    def exponential(self, t: Term) -> Parts:
        outer, inner = [], []
        for c, m in self.of(t.args[0]):
            (outer if m is self.one else inner).append(c if m is self.one else self.times(c, m))
        if not outer or not inner:
            return [(self.one, self.t("exp", self.t.add(*sorted(inner, key=key))))] if inner else [(t, self.one)]
        return [(self.t("exp", self.t.add(*outer)), self.t("exp", self.t.add(*sorted(inner, key=key))))]

    def logarithm(self, t: Term) -> Parts:
        arg = t.args[0]
        if arg.op == "exp":
            return self.parts(arg.args[0])
        if arg.op == "mul" and all(map(positive, arg.args)):
            return [p for a in arg.args for p in self.parts(self.t("log", a))]
        if arg.op == "pow" and positive(arg.args[0]):
            return self.product([self.parts(arg.args[1]), self.parts(self.t("log", arg.args[0]))])
        return [(self.one, t)]

    def choice(self, t: Term) -> Parts:
        c, yes, no = t.args
        zero = self.t.const(0)
        if t.is_boolean:
            return [(self.one, t)]
        found = [(a, self.t("where", c, m, zero)) for a, m in self.of(yes) if a != zero]
        return found + [(a, self.t("where", c, zero, m)) for a, m in self.of(no) if a != zero]

    def contraction(self, t: Term) -> Parts:
        """Σ_d over a monomial of the stream: what depends on neither d nor the stream leaves it."""
        own = set(t.attr.axes)
        found: Parts = []
        for c, m in self.of(t.args[0]):
            if m is self.one or c.axes & own:
                return [(self.one, t)]
            found.append((c, self.t.reduce("sum", t.attr.axes, m)))
        return found

    def sorted(self, m: Term) -> Term:
        """The factors in one order, powers and exponentials of one base together."""
        count: dict[Term, Fraction] = {}
        exponents: list[Term] = []
        for f in m.args if m.op == "mul" else (m,):
            if f.op == "exp":
                exponents.append(f.args[0])
                continue
            base, e = (f.args[0], f.args[1].attr) if f.op == "pow" and f.args[1].op == "const" else (f, Fraction(1))
            if e.denominator != 1:
                base, e = f, Fraction(1)
            count[base] = count.get(base, Fraction(0)) + e
        t = self.t
        factors = [b if e == 1 else t("pow", b, t.const(e)) for b, e in count.items() if e and b is not self.one]
        if exponents:
            inside = sorted((a for x in exponents for a in (x.args if x.op == "add" else (x,))), key=key)
            factors.append(t("exp", t.add(*inside)))
        return t.mul(*sorted(factors, key=key)) if factors else self.one


def key(t: Term) -> int:
    return t.number


def script(terms: Terms, words: Words, roots: tuple[Term, ...]) -> str:
    """The proof of a lemma: that of the tactic, after every sum over the stream is written in sums of monomials."""
    sums = [t for t in walk(*roots) if t.op == "reduce" and t.attr.kind == "sum" and words.stream & set(t.attr.axes)]
    if not sums or any(len(t.attr.axes) > 1 for t in sums):
        return "redalg_finish."
    lines = ["intros."]
    sizes = sorted(
        {t.attr.axes[0] for t in sums} | {t.attr for t in walk(*roots) if t.op == "size" and t.attr in words.stream}
    )
    for a in sizes:
        lines.append(f"redalg_count {words.list_of(a)} _n_{a}.")
        words.named[terms("size", attr=a)] = f"_n_{a}"
    for k, t in enumerate(sums):
        lines.append(f"set (_s{k} := {words(t)}) in *.")
        words.named[t] = f"_s{k}"
    basis: dict[Term, str] = {}
    stated: list[str] = []
    for k, t in enumerate(sums):
        parts = Expansion(terms, frozenset(t.attr.axes)).of(t.args[0])
        text = " + ".join(f"{words(c)} * {_total(terms, words, t.attr.axes, m, basis, lines)}" for c, m in parts)
        stated.append(f"assert (_E{k} : _s{k} = {text}) by redalg_sum. clearbody _s{k}.")
    return "\n  ".join([*lines, *stated, "redalg_forget. redalg_finish."])


def _total(terms: Terms, words: Words, axes: tuple[str, ...], m: Term, basis: dict[Term, str], lines: list[str]) -> str:
    """The name of the sum of a monomial, introduced where it is met first."""
    if m == terms.const(1):
        return f"lsum (fun _ : nat => 1) {words.list_of(axes[0])}"
    total = terms.reduce("sum", axes, m)
    if total not in basis:
        name = basis[total] = f"_b{len(basis)}"
        saved, words.named = words.named, {}
        lines.append(f"pose ({name} := {words(total)}).")
        words.named = saved
        if positive(m):
            lines.append(f"assert (0 < {name}) by redalg_total.")
    return basis[total]
