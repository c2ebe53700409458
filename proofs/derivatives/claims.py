"""What a certificate of a derivative states, and what it must be before its claims mean anything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from redalg.proofs.checker.scoping import Scope
from redalg.proofs.derivatives.rebuilding import moving
from redalg.proofs.derivatives.rules import FULL_LISTS, STRAIGHT_THROUGH, rule_of
from redalg.proofs.document.document import Document
from redalg.proofs.document.errors import CertificateError
from redalg.proofs.document.terms import Leaf, Term, base, digest, leaves, walk

REVERSE, FORWARD = "reverse", "forward"
SMOOTH = ("bool", "integer", "complex")  # words of domains along which nothing is differentiated
POSITIONS = ("argmax", "argmin", "topk_indices")


@dataclass(frozen=True)
class Claims:
    """The fields of a certificate, as in its text (`redalg.proofs.derivatives.document`)."""

    document: Document
    mode: str
    seeds: Mapping[str, Term]  # output -> its cotangent, or tensor -> its tangent
    axes: Mapping[str, tuple[str, ...]]  # of what has a result: a tensor (reverse), or an output (forward)
    results: Mapping[str, Term | None]  # gradients by tensor, or tangents by output; None is 0
    filled: tuple[str, ...]  # results that are 0 in rows without a valid element
    saved: tuple[tuple[Term, Term], ...]  # leaf, and the value of the forward pass that it is
    readings: Mapping[str, str]  # a leaf that is a tensor read along other axes -> that tensor
    rules: tuple[tuple[Term, str], ...]  # term of the spec, and the rule by which it passes values on
    cancelled: tuple[tuple[Term | None, Term], ...]  # (of, value): `of`, or all outputs, do not depend on value
    assumptions: tuple[str, ...]

    @property
    def spec(self) -> dict[str, Term]:
        return self.document.spec

    @property
    def spec_hash(self) -> str:
        """The hash of the spec, and of which of its tensors are one array."""
        read = sorted((t.attr.name, self.array(t.attr)) for t in self.leaves() if t.attr.name in self.readings)
        return digest(("spec", self.document.spec_hash), ("readings", read)) if read else self.document.spec_hash

    @property
    def smooth(self) -> list[str]:
        """The outputs that have a derivative."""
        return [n for n, t in self.spec.items() if not is_discrete(t)]

    def array(self, leaf: Leaf) -> str:
        return self.readings.get(leaf.name, leaf.name)

    def read(self, name: str) -> list[Term]:
        """The leaves of the spec that are a tensor, along whatever axes."""
        return [t for t in self.leaves() if self.array(t.attr) == name]

    def leaves(self) -> list[Term]:
        return leaves(*self.spec.values(), op="tensor")

    def roots(self) -> Iterator[Term]:
        """Every term that is stated: those of the spec come first."""
        yield from (*self.spec.values(), *self.document.empty.values())
        yield from (*self.seeds.values(), *(t for t in self.results.values() if t is not None))
        yield from (t for pair in self.saved for t in pair)

    def alike(self, terms: Iterable[Term]) -> dict[str, list[str]]:
        """Axis -> those along which one array is read, as it is, itself among them: they are as long as it is."""
        found: dict[str, list[str]] = {}
        first: dict[tuple[str, int], str] = {}
        for t in terms:
            for k, a in enumerate(map(base, t.attr.axes)):
                b = first.setdefault((self.array(t.attr), k), a)
                both = sorted({*found.get(a, [a]), *found.get(b, [b])})
                found |= dict.fromkeys(both, both)
        return found

    @property
    def wrt(self) -> list[str]:
        return list(self.results if self.mode == REVERSE else self.seeds)


def is_discrete(t: Term) -> bool:
    return t.is_boolean or t.op == "reduce" and t.attr.kind in POSITIONS


def refused(what: str, where: str, why: str) -> CertificateError:
    return CertificateError(what, where, why, "export the certificate again with vjp.certificate.to_json()")


def check_claims(c: Claims) -> None:
    """Raise CertificateError unless the claims are about the derivative of their spec, and whole."""
    _check_names(c)
    _check_lengths(c)
    _check_saved(c)
    _check_results(c)
    _check_rules(c)
    _check_cancelled(c)
    _check_assumptions(c)


def bearing(c: Claims) -> set[str]:
    """The assumptions that say something of what is differentiated."""
    terms = passing(c)
    casts = any(t.op == "cast" for t in terms)
    lists = any(t.op == "reduce" and t.attr.kind == "topk_values" for t in terms)
    return {name for name, has in ((STRAIGHT_THROUGH, casts), (FULL_LISTS, lists)) if has}


def _check_assumptions(c: Claims) -> None:
    known = bearing(c)
    for name in c.assumptions:
        if name not in known or c.assumptions.count(name) > 1:
            raise refused(f"the assumption {name!r:.80}", "assumptions", "nothing that is differentiated depends on it")


def _check_names(c: Claims) -> None:
    """Tensors of the spec have one set of axes under each name, and seeds have names of their own."""
    known: dict[str, Leaf] = {}
    for t in (*c.seeds.values(), *(leaf for leaf, _ in c.saved)):
        if t.op != "tensor":
            raise refused(f"the seed or saved value {t!r:.80}", "seeds", "it is a tensor of its own")
    for t in walk(*c.spec.values()):
        if t.op == "state" or t.op == "tensor" and known.setdefault(t.attr.name, t.attr) != t.attr:
            raise refused(f"the leaf {t.attr.name!r:.80}", "spec", "a spec has tensors, each along its own axes")
    arrays = {c.array(leaf) for leaf in known.values()}
    _check_readings(c, arrays)
    own = [t.attr.name for t in c.seeds.values()] + [leaf.attr.name for leaf, _ in c.saved]
    if len(set(own)) < len(own) or {*own} & {*known, *arrays, *c.readings}:
        raise refused(f"the names {own}"[:200], "seeds", "a seed or saved value has the name of something else")
    _check_seeds(c)


def _check_lengths(c: Claims) -> None:
    """What is stated gives no axis of the spec a length: not that of another one, nor that of a list."""
    scope = Scope(c.document)
    alike, known = c.alike(leaves(*c.roots(), op="tensor")), c.alike(c.leaves())
    listed = dict(scope.lists)
    for t in walk(*c.roots()):
        scope.lists_of(t, "results")
    for axis, axes in alike.items():
        own = scope.axes.intersection(axes)
        if axis in own and own != scope.axes.intersection(known.get(axis, [axis])):
            raise refused(f"the axes {axes}"[:200], "results", "in the spec they may have different lengths")
        counts = {scope.lists[a] for a in axes if a in scope.lists}
        if len(counts) > 1 or counts and own and not any(a in listed for a in axes):
            raise refused(f"a list along {axes}"[:200], "results", "what is read along it may have another length")


def _check_readings(c: Claims, arrays: set[str]) -> None:
    read = arrays | {t.attr.name for t in c.seeds.values()}
    for name, array in c.readings.items():
        if array in c.readings or array not in read or name in arrays:
            raise refused(f"the reading {name!r:.80} of {array!r:.80}", "readings", "it reads no tensor of the spec")
    for name in arrays:
        if len({(len(t.attr.axes), t.attr.domain) for t in c.read(name)}) > 1:
            raise refused(f"the readings of {name!r:.80}", "readings", "they differ in their axes or their domains")


def _check_seeds(c: Claims) -> None:
    """A cotangent for each output that has a derivative, or tangents of real tensors; along their axes."""
    wanted = set(c.smooth) if c.mode == REVERSE else {n for n in c.seeds if _differentiable(c, n)}
    if set(c.seeds) != wanted:
        why = "each output with a derivative has a cotangent" if c.mode == REVERSE else "tangents are of real tensors"
        raise refused(f"seeds for {sorted(c.seeds)}"[:200], "seeds", why)
    for name, t in c.seeds.items():
        along = t.axes == c.spec[name].axes if c.mode == REVERSE else t.attr.axes in _readings(c, name)
        if t.op != "tensor" or not along or t.attr.domain:
            raise refused(f"the seed {t!r:.80}", f"seeds.{name}"[:100], "it is a tensor of real numbers along its axes")


def _readings(c: Claims, name: str) -> list[tuple[str, ...]]:
    return [t.attr.axes for t in c.read(name)]


def _differentiable(c: Claims, name: str) -> bool:
    found = c.read(name)
    return bool(found) and not any(set(SMOOTH) & t.attr.domain for t in found)


def _check_saved(c: Claims) -> None:
    """Saved values are values of the spec, along their own axes, and of a domain that they have by their nature."""
    own = set(c.leaves())
    for leaf, value in c.saved:
        where = "saved"
        if leaf.op != "tensor" or value.axes != leaf.axes or not set(leaves(value, op="tensor")) <= own:
            raise refused(f"the saved value {leaf!r:.80}", where, "it is a value of the spec, along its axes")
        if not leaf.attr.domain <= _domain(value):
            raise refused(f"the domain of {leaf!r:.80}", where, "its value need not be of that domain")


def _domain(value: Term) -> frozenset[str]:
    if value.is_boolean:
        return frozenset({"bool"})
    if value.op == "size":
        return frozenset({"integer", "nonnegative"})
    return frozenset({"integer"} if is_discrete(value) else ())


def _check_results(c: Claims) -> None:
    """Results read what they may, along the axes of what they belong to."""
    if set(c.axes) != set(c.results) or c.mode == FORWARD and set(c.results) != set(c.smooth):
        raise refused(f"results for {sorted(c.results)}"[:200], "results", "they are those of every output, with axes")
    for name, root in c.results.items():
        axes, where = c.axes[name], f"results.{name}"[:100]
        _check_axes(c, name, axes, where)
        if root is not None and not root.axes <= set(axes):
            raise refused(f"a result along {sorted(root.axes)}"[:200], where, f"its axes are {list(axes)}"[:200])
        if root is not None:
            _check_leaves(c, root, where)
    if not set(c.filled) <= {n for n, t in c.results.items() if t is not None}:
        raise refused(f"values for empty rows of {list(c.filled)}"[:200], "filled", "no such result is stated")


def _check_axes(c: Claims, name: str, axes: tuple[str, ...], where: str) -> None:
    if c.mode == REVERSE and (not _differentiable(c, name) or axes not in _readings(c, name)):
        raise refused(f"a gradient of {name!r:.80}", where, "the spec reads no tensor of real numbers like that")
    if c.mode == FORWARD and set(axes) != c.spec[name].axes:
        raise refused(f"a tangent along {list(axes)}"[:200], where, "the output has other axes")


def _check_leaves(c: Claims, root: Term, where: str) -> None:
    own = (*c.leaves(), *c.seeds.values())
    known = {t.attr for t in (*own, *(leaf for leaf, _ in c.saved))}
    domains = {c.array(t.attr): (len(t.attr.axes), t.attr.domain) for t in own}
    for t in walk(root):
        other = t.op == "tensor" and t.attr not in known and _other_reading(c, t.attr, domains)
        if t.op == "state" or t.op == "tensor" and t.attr not in known and not other:
            raise refused(f"the leaf {t.attr.name!r:.80}", where, "it is no tensor, seed or saved value of these")


def _other_reading(c: Claims, leaf: Leaf, domains: Mapping[str, tuple[int, frozenset[str]]]) -> bool:
    return leaf.name in c.readings and domains.get(c.readings[leaf.name]) == (len(leaf.axes), leaf.domain)


def passing(c: Claims) -> list[Term]:
    """The terms of the spec that pass something on to a tensor that is differentiated."""
    leaves = [t for name in c.wrt for t in c.read(name)]
    return moving([c.spec[n] for n in c.smooth], leaves)


def _check_rules(c: Claims) -> None:
    """Each term that passes something on has its rule, that of the table, and nothing else has one."""
    terms, stated = passing(c), dict(c.rules)
    if len(stated) < len(c.rules) or set(stated) != set(terms):
        raise refused(f"rules for {len(c.rules)} terms", "rules", f"{len(terms)} terms pass something on, each by one")
    zero = {value for of, value in c.cancelled if of is None}
    for t in terms:
        rule = rule_of(t)
        wanted = "cancelled" if t in zero else rule.name if rule is not None else ""
        if t.op == "cast" and STRAIGHT_THROUGH not in c.assumptions and t not in zero:
            wanted = ""
        if not wanted or stated[t] != wanted:
            why = f"the table of rules has {wanted!r} for it" if wanted else "the table of rules has none for it"
            raise refused(f"the rule {stated[t]!r:.80} for {t!r:.80}", "rules", why)


def _check_cancelled(c: Claims) -> None:
    """What is said to cancel is a reduction, inside of what does not depend on it."""
    roots, moved = [c.spec[n] for n in c.smooth], set(passing(c))
    if len(set(c.cancelled)) < len(c.cancelled):
        raise refused("a value that is cancelled twice", "cancelled", "each is stated once")
    for of, value in c.cancelled:
        whole = roots if of is None else [of]
        inside = set(_below(whole))
        held = all(t.op == "reduce" and t in moved for t in (value, *([of] if of is not None else [])))
        if not held or value not in inside:
            raise refused(f"the cancelled value {value!r:.80}", "cancelled", "it is no reduction inside of the others")


def _below(roots: list[Term]) -> Iterator[Term]:
    return (t for t in walk(*roots) if t not in roots)


__all__ = ["FORWARD", "FULL_LISTS", "REVERSE", "Claims", "bearing", "check_claims", "is_discrete", "passing", "refused"]
