"""Proof scripts of lemmas with sums over the stream: every sum in terms of sums that no anchor and no result is in.

Σ_j (x_j - m)² = Σ x² - 2m Σ x + m² n: what does not depend on the stream leaves each sum, `expanded` says how, and Rocq
checks it; what is left is an equation between finitely many numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction

from redalg.proofs.document.terms import Term, Terms, walk
from redalg.proofs.gallina.extrema import Extremum
from redalg.proofs.gallina.words import Unprintable, Words, nonnegative, positive

MOST = 60  # terms of one expansion
Parts = list[tuple[Term, Term]]  # Σ coefficient (free of the stream) · monomial


class Expansion:
    """Elements as sums of coefficient times monomial of the stream."""

    def __init__(self, terms: Terms, stream: Iterable[str], assumed: frozenset[str] = frozenset()) -> None:
        self.t, self.stream, self.assumed = terms, frozenset(stream), assumed
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
        rule = _RULES.get(t.op)
        return [(self.one, t)] if rule is None else rule(self, t)

    def addition(self, t: Term) -> Parts:
        return [p for a in t.args for p in self.parts(a)]

    def multiplication(self, t: Term) -> Parts:
        return self.product([self.parts(a) for a in t.args])

    def rounding(self, t: Term) -> Parts:
        """A cast, as the certificate's assumptions say of it."""
        if "cast_left_out" in self.assumed:
            return self.parts(t.args[0])
        if "cast_commutes" in self.assumed:
            return self.product([self.parts(t.args[0]), [(self.t("cast", self.one, attr=t.attr), self.one)]])
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
        return self.t("mul", *flat("mul", a), *flat("mul", b))

    def power(self, t: Term) -> Parts:
        if t.args[1].op != "const":
            return [(self.one, t)]
        parts, e = self.parts(t.args[0]), t.args[1].attr
        if e.denominator == 1 and 0 < e <= 8:
            return self.product([parts] * int(e))
        if e.denominator == 1 and len(parts) == 1:
            (c, m) = parts[0]
            return [(self.t("pow", c, self.t.const(e)), self.raised(m, e))]
        return [(self.one, t)]

    def raised(self, m: Term, e: Fraction) -> Term:
        return self.t.mul(*(self.t("pow", f, self.t.const(e)) for f in flat("mul", m)))

    def exponential(self, t: Term) -> Parts:
        outer: list[Term] = []
        inner: list[Term] = []
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
        """if c then a else b = b + [c]·(a - b)."""
        c, yes, no = t.args
        if t.is_boolean:
            return [(self.one, t)]
        here = self.t("where", c, self.one, self.t.const(0))
        if (yes, no) == here.args[1:]:
            return [(self.one, t)]
        minus = self.t.const(-1)
        last = [] if no.op == "const" and not no.attr else self.parts(no)
        first = [] if yes.op == "const" and not yes.attr else self.parts(yes)
        found = last + [(x, self.times(here, m)) for x, m in first]
        return found + [(self.times(minus, x), self.times(here, m)) for x, m in last]

    def contraction(self, t: Term) -> Parts:
        """Σ_d over a monomial of the stream: what depends on neither d nor the stream leaves it."""
        if t.attr.kind != "sum":
            return [(self.one, t)]
        own = set(t.attr.axes)
        found: Parts = []
        for c, m in self.of(t.args[0]):
            if c.axes & own and any(n.op == "reduce" and self.stream & set(n.attr.axes) for n in walk(c)):
                raise Unprintable("a contraction of results that differ along its axis")
            if m is self.one or c.axes & own:
                return [(self.one, t)]
            found.append((c, self.t.reduce("sum", t.attr.axes, m)))
        return found

    def sorted(self, m: Term) -> Term:
        """The factors in one order, powers and exponentials of one base together."""
        count: dict[Term, Fraction] = {}
        exponents: list[Term] = []
        for f in flat("mul", m):
            if f.op == "exp":
                exponents.append(f.args[0])
                continue
            base, e = base_and_exponent(f)
            count[base] = count.get(base, Fraction(0)) + e
        t = self.t
        zero = t.const(0)
        for base in count:
            if base.op == "where" and base.args[1:] == (self.one, zero) and count[base] > 0:
                count[base] = Fraction(1)  # an indicator is its own power
        factors = [b if e == 1 else t("pow", b, t.const(e)) for b, e in count.items() if e and b is not self.one]
        if exponents:
            inside = sorted((a for x in exponents for a in flat("add", x)), key=key)
            factors.append(t("exp", t.add(*inside)))
        return t.mul(*sorted(factors, key=key)) if factors else self.one


_RULES: dict[str, Callable[[Expansion, Term], Parts]] = {
    "add": Expansion.addition,
    "mul": Expansion.multiplication,
    "pow": Expansion.power,
    "exp": Expansion.exponential,
    "log": Expansion.logarithm,
    "where": Expansion.choice,
    "reduce": Expansion.contraction,
    "cast": Expansion.rounding,
}


def flat(op: str, t: Term) -> tuple[Term, ...]:
    """The operands of a sum or a product, one of anything else."""
    return t.args if t.op == op else (t,)


def base_and_exponent(factor: Term) -> tuple[Term, Fraction]:
    """A factor as a whole power."""
    if factor.op == "pow" and factor.args[1].op == "const" and factor.args[1].attr.denominator == 1:
        return factor.args[0], factor.args[1].attr
    return factor, Fraction(1)


def key(t: Term) -> int:
    return t.number


def script(
    terms: Terms, words: Words, roots: tuple[Term, ...], known: Iterable[Term] = (), units: Iterable[str] = ()
) -> tuple[str, ...]:
    """The proof of a lemma, after every reduction of the stream is written in those of monomials.

    `known`: what is nonnegative by the way it is written, where that is of use; `units`: scales that sums are in.
    """
    return Script(terms, words).text(roots, tuple(known), tuple(units))


def _has_steps(t: Term) -> bool:
    """Whether a proof can say what the reduction is (`Script.steps`)."""
    return t.attr.kind in ("sum", "max", "min") or (t.attr.kind == "prod" and positive(t))


def _check_shapes(found: list[Term]) -> None:
    """Raises: Unprintable for reductions of the stream that no proof is written for."""
    if any(len(t.attr.axes) > 1 for t in found):
        raise Unprintable("a reduction over several axes at once")
    for t in found:
        if not _has_steps(t) and any(n in found for a in t.args for n in walk(a)):
            raise Unprintable(f"{t.attr.kind} over elements that are compared with results")


class Script:
    """Writes one proof, step by step."""

    def __init__(self, terms: Terms, words: Words) -> None:
        self.terms, self.words = terms, words
        self.lines = ["intros"]
        self.basis: dict[Term, str] = {}

    def text(self, roots: tuple[Term, ...], known: tuple[Term, ...], units: tuple[str, ...]) -> tuple[str, ...]:
        words = self.words
        found = [t for t in walk(*roots) if t.op == "reduce" and words.stream & set(t.attr.axes)]
        if not found:
            return ("redalg_finish",)
        _check_shapes(found)
        self.count(roots, found)
        named = [t for t in found if _has_steps(t)]
        for k, t in enumerate(named):
            self.lines.append(f"set (_s{k} := {words(t)}) in *")
            words.named[t] = f"_s{k}"
        stated = [step for k, t in enumerate(named) for step in self.steps(k, t)]
        stated += [f"assert (0 <= {words(t)}) by redalg_sign" for t in dict.fromkeys(known)]
        stated += [f"redalg_unit {u}" for u in units]
        return (*self.lines, *stated, "redalg_forget", "redalg_finish")

    def count(self, roots: tuple[Term, ...], found: list[Term]) -> None:
        """Name the lengths of the axes that are reduced, or whose length is read."""
        words = self.words
        counted = words.stream & words.bound
        sizes = {t.attr for t in walk(*roots) if t.op == "size" and t.attr in counted}
        for a in sorted(sizes | {t.attr.axes[0] for t in found}):
            self.lines.append(f"redalg_count {words.list_of(a)} _n_{a}")
            words.named[self.terms("size", attr=a)] = f"_n_{a}"

    def steps(self, k: int, t: Term) -> Iterator[str]:
        """What a reduction is, and its sign."""
        if t.attr.kind == "sum":
            parts = Expansion(self.terms, t.attr.axes, self.words.assumed).of(t.args[0])
            text = " + ".join(f"{self.words(c)} * {self.total(t.attr.axes, m)}" for c, m in parts)
            yield f"assert (_E{k} : _s{k} = {text}) by redalg_sum"
            yield from self.sign(f"_s{k}", t)
        elif t.attr.kind == "prod":
            parts = Expansion(self.terms, t.attr.axes, self.words.assumed).of(self.terms("log", t.args[0]))
            text = " + ".join(f"{self.words(c)} * {self.total(t.attr.axes, m)}" for c, m in parts)
            yield f"assert (_E{k} : _s{k} = exp ({text})) by redalg_product"
        else:
            value = Extremum(self.terms, t.attr.axes[0]).of(t.attr.kind, t.args[0])
            by = "reflexivity" if value is t else "redalg_extremum"
            yield f"assert (_E{k} : _s{k} = {self.extrema(value, t.attr.axes[0])}) by {by}"
        yield f"clearbody _s{k}"

    def sign(self, name: str, t: Term) -> Iterator[str]:
        sign = "<" if positive(t.args[0]) else "<=" if nonnegative(t.args[0]) else ""
        if sign and t.attr.kind == "sum":
            yield f"assert (0 {sign} {name}) by (unfold {name}; redalg_total)"

    def extrema(self, value: Term, axis: str) -> str:
        """The value with the extrema of cores by the names of their own."""
        saved = dict(self.words.named)
        for core in walk(value):
            if core.op == "reduce" and core.attr.kind in ("max", "min") and core.attr.axes == (axis,):
                self.words.named[core] = self.named(core)
        text = self.words(value)
        self.words.named = saved
        return text

    def total(self, axes: tuple[str, ...], m: Term) -> str:
        """The name of the sum of a monomial."""
        if m == self.terms.const(1):
            return f"lsum (fun _ : nat => 1) {self.words.list_of(axes[0])}"
        return self.named(self.terms.reduce("sum", axes, m))

    def named(self, total: Term) -> str:
        """The name of a reduction of monomials, introduced where it is met first."""
        if total not in self.basis:
            name = self.basis[total] = f"_b{len(self.basis)}"
            saved, self.words.named = self.words.named, {}
            self.lines.append(f"pose ({name} := {self.words(total)})")
            self.words.named = saved
            self.lines += self.sign(name, total)
        return self.basis[total]
