"""Documents from JSON text somebody else may have written: held to their types, within bounds, never executed.

Bounds: 2 MB of text, 64 levels of nesting, numbers of 600 digits, names of 200 printable characters, 20,000 terms
along 64 axes, 2000 entries of a kind, a budget of steps (`redalg.proofs.document.work`). The largest certificate of
the catalog has 22 kB and 650 terms.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

from redalg.proofs.document import document as d
from redalg.proofs.document.errors import damaged
from redalg.proofs.document.intervals import is_end, is_sound
from redalg.proofs.document.rounding import FLOATS, INTEGERS
from redalg.proofs.document.terms import ARITY, MOST_AXES, NARY, REDUCTIONS, Leaf, Term, Terms
from redalg.proofs.document.work import Exhausted, metered, spend

BYTES, DIGITS, NAME, NESTING, ITEMS, TERMS = 2_000_000, 600, 200, 64, 2000, 20_000
FORMATS = frozenset(FLOATS) | frozenset(INTEGERS) | {"bool"}
LONGEST_LIST = 1 << 40  # of the first k
SPECIAL = frozenset({"oo", "-oo", "nan", "pi", "e", "i"})
DOMAINS = frozenset("positive nonnegative integer bool complex".split())
NUMBER = re.compile(r"-?[0-9]{1,600}(/[0-9]{1,600})?")


def loads(text: str | bytes) -> d.Document:
    """The document of a JSON text.

    Raises: CertificateError (a RedalgError) naming the place, for everything that is not a certificate of this version.
    """
    with bounded():
        return Reader(parsed(text)).document()


@contextmanager
def bounded() -> Iterator[None]:
    """Reading within the budget of steps, whatever a text holds."""
    try:
        with metered():
            yield
    except (Exhausted, RecursionError) as e:
        raise damaged("the document", "certificate", str(e)) from None


def parsed(text: str | bytes) -> Any:
    """The data of a JSON text: exact numbers, no key twice, within the bounds."""
    if not isinstance(text, str | bytes | bytearray):
        raise damaged(f"a {type(text).__name__}", "certificate", "the text of a certificate is str or bytes")
    if len(text) > BYTES:
        raise damaged(f"a text of {len(text)} bytes", "certificate", f"certificates have at most {BYTES} bytes")
    try:
        text = text if isinstance(text, str) else text.decode()
        _check_nesting(text)
        return json.loads(
            text, parse_float=_no_float, parse_constant=_no_float, parse_int=_integer, object_pairs_hook=_unique
        )
    except (ValueError, RecursionError, UnicodeDecodeError) as e:
        raise damaged("a text that is not JSON of a certificate", "certificate", str(e)[:200]) from None


def _no_float(text: str) -> Any:
    raise ValueError(f"the number {text[:40]} is not exact")


def _integer(text: str) -> int:
    if len(text) > 20:
        raise ValueError(f"the integer {text[:40]} is too long")
    return int(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice")
    return found


def _check_nesting(text: str) -> None:
    """One linear scan; a text whose strings do not end is refused by the parser."""
    depth, quoted = 0, False
    for m in re.finditer(r'\\.|["\[{\]}]', text, re.DOTALL):
        c = m.group()
        if c == '"':
            quoted = not quoted
        elif not quoted and len(c) == 1:
            depth += 1 if c in "[{" else -1
            if depth > NESTING:
                raise ValueError(f"nested more than {NESTING} levels deep")


class Reader:
    """Reads one document; every method raises a four-part error that says where."""

    def __init__(self, data: Any) -> None:
        self.data = data
        self.terms = Terms()
        self.rows: list[Term] = []

    def document(self, sealed: bool = True) -> d.Document:
        """The document; `sealed`: the hash it states must be that of its spec."""
        keys = ["format", "version", "spec_hash", "terms", "spec", "monoids", "passes", "outputs", "stages"]
        head = self.record(self.data, "certificate", *keys, "assumptions", "obligations")
        if head["format"] != d.FORMAT or head["version"] != d.VERSION or head["version"] is True:
            why = f"this version reads format {d.FORMAT!r}, version {d.VERSION}"
            raise damaged(f"format {head['format']!r:.80}, version {head['version']!r:.40}", "certificate", why)
        self._read_terms(head["terms"])
        spec = self.record(head["spec"], "spec", "axis", "outputs", "empty")
        doc = d.Document(
            self.terms,
            self.names(spec["axis"], "spec.axis", MOST_AXES),
            self.mapping(spec["outputs"], "spec.outputs"),
            self.mapping(spec["empty"], "spec.empty"),
            self.each(head["passes"], "passes", self.one_pass),
            self.each(head["outputs"], "outputs", self.output),
            self.each(head["stages"], "stages", self.stage),
            self.texts(head["assumptions"], "assumptions"),
            self.each(head["monoids"], "monoids", self.monoid),
            self.each(head["obligations"], "obligations", self.obligation),
        )
        if sealed and head["spec_hash"] != doc.spec_hash:
            why = f"the spec it holds has the hash {doc.spec_hash}"
            raise damaged(f"the spec hash {head['spec_hash']!r:.60}", "spec_hash", why)
        return doc

    # --- terms ---

    def _read_terms(self, rows: Any) -> None:
        for i, row in enumerate(self.items(rows, "terms", TERMS)):
            self.rows.append(self._term(row, f"terms[{i}]"))

    def _term(self, row: Any, where: str) -> Term:
        items = self.items(row, where, BYTES)
        spend(5 + len(items))
        op = self.text(items[0] if items else None, where)
        if op == "const":
            return self.terms("const", attr=self.fraction(items, where))
        if op in ("special", "index", "size", "true", "false"):
            return self._atom(op, items, where)
        if op in ("tensor", "state"):
            return self._leaf(op, items, where)
        if op == "reduce":
            return self._reduce(items, where)
        skip = 2 if op == "cast" else 1
        args = [self.term(i, where) for i in items[skip:]]
        if len(args) != ARITY.get(op, 1 if op == "cast" else len(args) or 1):
            raise damaged(f"{op} of {len(args)} arguments", where, "the operation has another number of them")
        if op not in NARY and op not in ARITY and op != "cast":
            raise damaged(f"the operation {op!r:.60}", where, "no such operation is known")
        return self.terms(op, *args, attr=self.word(items[1], where, *sorted(FORMATS)) if op == "cast" else None)

    def _atom(self, op: str, items: list[Any], where: str) -> Term:
        if len(items) != (1 if op in ("true", "false") else 2):
            raise damaged(f"{op} with {len(items) - 1} attributes", where, "it has another number of them")
        attr = self.text(items[1], where) if len(items) == 2 else None
        if op == "special" and attr not in SPECIAL:
            raise damaged(f"the constant {attr!r:.60}", where, f"known are {', '.join(sorted(SPECIAL))}")
        return self.terms(op, attr=attr)

    def _leaf(self, op: str, items: list[Any], where: str) -> Term:
        if len(items) != 4:
            raise damaged(f"a {op} with {len(items) - 1} attributes", where, "it has a name, axes and a domain")
        domain = frozenset(self.names(items[3], where))
        if not all(word in DOMAINS or is_end(word) for word in domain) or not is_sound(domain):
            known = f"known are {', '.join(sorted(DOMAINS))} and the ends of one interval"
            raise damaged(f"the domain {sorted(domain)}"[:120], where, known)
        return self.terms(op, attr=Leaf(self.text(items[1], where), self.names(items[2], where, MOST_AXES), domain))

    def _reduce(self, items: list[Any], where: str) -> Term:
        if len(items) < 5 or type(items[1]) is not str or items[1] not in REDUCTIONS:
            raise damaged(f"the reduction {items[1:2]!r:.60}", where, f"known are {', '.join(sorted(REDUCTIONS))}")
        kind, axes = self.text(items[1], where), self.names(items[2], where, MOST_AXES)
        extra, args = self.extra(items[3], where), [self.term(i, where) for i in items[4:]]
        wants = str if kind.startswith("topk") else int if kind == "monoid" else type(None)
        if not axes or type(extra and extra[1]) is not wants or (len(args) != 1 and kind != "monoid"):
            raise damaged(
                f"a reduction {kind}", where, "its axes, its parameters or its bodies are not those of the kind"
            )
        return self.terms.reduce(kind, axes, *args, extra=extra)

    def extra(self, value: Any, where: str) -> tuple[int, Any] | None:
        if value is None:
            return None
        first, second = self.items(value, where, 2, 2)
        if not 0 <= self.integer(first, where) <= LONGEST_LIST:
            raise damaged(f"the parameter {first}", where, f"it is from 0 to {LONGEST_LIST}")
        return first, (self.integer(second, where) if type(second) is int else self.text(second, where))

    def fraction(self, items: list[Any], where: str) -> Fraction:
        text = self.text(items[1] if len(items) == 2 else None, where, 2 * DIGITS + 2)
        if not NUMBER.fullmatch(text):
            raise damaged(f"the number {text[:60]!r}", where, f"numbers are integers or quotients of {DIGITS} digits")
        try:
            return Fraction(text)
        except ZeroDivisionError:
            raise damaged(f"the number {text[:60]!r}", where, "its denominator is 0") from None

    def term(self, value: Any, where: str) -> Term:
        number = self.integer(value, where)
        if not 0 <= number < len(self.rows):
            raise damaged(f"term {number}", where, f"{len(self.rows)} terms stand before it")
        return self.rows[number]

    def optional(self, value: Any, where: str) -> Term | None:
        return None if value is None else self.term(value, where)

    def terms_of(self, value: Any, where: str) -> tuple[Term, ...]:
        spend(len(value) if type(value) is list else 1)
        return tuple(self.term(v, where) for v in self.items(value, where))

    # --- parts of a form ---

    def monoid(self, value: Any, where: str) -> d.Monoid:
        r = self.record(value, where, "name", "commutative", "identity", "combined", "actions")
        actions = []
        for item in self.items(r["actions"], where):
            name, terms = self.items(item, where, 2, 2)
            actions.append((self.text(name, where), self.terms_of(terms, where)))
        identity, combined = self.terms_of(r["identity"], where), self.terms_of(r["combined"], where)
        commutative = self.truth(r["commutative"], where)
        return d.Monoid(self.text(r["name"], where), commutative, identity, combined, tuple(actions))

    def one_pass(self, value: Any, where: str) -> d.Pass:
        r = self.record(value, where, "order", "anchors", "slots", "exports")
        exports = [self.items(e, where, 2, 2) for e in self.items(r["exports"], where)]
        return d.Pass(
            self.names(r["order"], where),
            self.each(r["anchors"], f"{where}.anchors", self.anchor),
            self.each(r["slots"], f"{where}.slots", self.slot),
            tuple((self.text(name, where), self.term(t, where)) for name, t in exports),
        )

    def anchor(self, value: Any, where: str) -> d.Anchor:
        r = self.record(value, where, "name", "axes", "kind", "policy", "generator", "target", "shift")
        kind = self.word(r["kind"], where, "add", "mul")
        policy = self.word(r["policy"], where, "extremum", "mean", "scale")
        target, shift = self.optional(r["target"], where), self.optional(r["shift"], where)
        generator, mean = self.optional(r["generator"], where), policy == "mean"
        stated = (target is not None, shift is not None, generator is not None)
        if stated != (policy == "extremum", mean, mean) or policy == "scale" and kind != "mul":
            why = "an extremum has a target, a mean has a shift and an element to start on, a scale divides"
            raise damaged(f"an anchor of policy {policy}", where, why)
        return d.Anchor(
            self.text(r["name"], where), self.names(r["axes"], where), kind, policy, generator, target, shift
        )

    def slot(self, value: Any, where: str) -> d.Slot:
        fields = "name kind axes lift parts identity domain moves average vanishes extra monoid"
        r = self.record(value, where, *fields.split())
        kinds = ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin", "topk", "monoid")
        kind, parts, lift = (
            self.word(r["kind"], where, *kinds),
            self.names(r["parts"], where),
            self.terms_of(r["lift"], where),
        )
        extra = self.extra(r["extra"], where)
        monoid = None if r["monoid"] is None else self.integer(r["monoid"], where)
        one = kind != "monoid"
        if (one and len(lift) != 1) or len(parts) != (
            len(lift) if not one else 1 + (kind in ("argmax", "argmin", "topk"))
        ):
            raise damaged(f"a slot {kind} of {len(lift)} lifts and {len(parts)} parts", where, "its kind has others")
        if (
            (extra is not None) != (kind == "topk")
            or (monoid is not None) == one
            or (extra and type(extra[1]) is not str)
        ):
            raise damaged(f"a slot {kind}", where, "its parameters are not those of its kind")
        moves = [self.items(m, where, 2, 2) for m in self.items(r["moves"], where)]
        return d.Slot(
            self.text(r["name"], where),
            kind,
            self.names(r["axes"], where),
            lift,
            parts,
            None if r["identity"] is None else self.terms_of(r["identity"], where),
            frozenset(self.names(r["domain"], where)),
            tuple(d.Move(self.term(c, where), self.text(s, where)) for c, s in moves),
            self.truth(r["average"], where),
            self.truth(r["vanishes"], where),
            extra,
            monoid,
        )

    def output(self, value: Any, where: str) -> d.Output:
        r = self.record(value, where, "name", "value", "axes", "keeps_axis")
        axes, keeps = self.names(r["axes"], where), self.truth(r["keeps_axis"], where)
        return d.Output(self.text(r["name"], where), self.term(r["value"], where), axes, keeps)

    def stage(self, value: Any, where: str) -> d.Stage:
        r = self.record(value, where, "name", "node", "pair", "rank", "generators", "coefficients", "rules")
        generators, coefficients = self.terms_of(r["generators"], where), self.terms_of(r["coefficients"], where)
        rank = None if r["rank"] is None else self.integer(r["rank"], where)
        name, node, pair = self.text(r["name"], where), self.term(r["node"], where), self.text(r["pair"], where)
        return d.Stage(name, node, pair, rank, generators, coefficients, self.texts(r["rules"], where))

    def obligation(self, value: Any, where: str) -> d.Obligation:
        r = self.record(value, where, "law", "subject", "left", "right", "equality", "given", "variables")
        o = d.Obligation(
            self.text(r["law"], where),
            self.text(r["subject"], where),
            self.term(r["left"], where),
            self.term(r["right"], where),
            self.word(r["equality"], where, "exact", "observational", "domain"),
            self.terms_of(r["given"], where),
        )
        if self.items(r["variables"], where) != d.variables(o):
            raise damaged(f"the variables of {o}", where, "they are not those its two sides contain")
        return o

    # --- values ---

    def record(self, value: Any, where: str, *keys: str) -> dict[str, Any]:
        if type(value) is not dict or value.keys() != set(keys):
            found = sorted(map(str, value))[:20] if type(value) is dict else type(value).__name__
            raise damaged(f"an entry with {found}"[:300], where, f"it has exactly the fields {', '.join(keys)}")
        return value

    def items(self, value: Any, where: str, most: int = ITEMS, least: int = 0) -> list[Any]:
        if type(value) is not list or not least <= len(value) <= most:
            raise damaged(
                f"{type(value).__name__} {value!r:.60}", where, f"a list of {least} to {most} entries is expected"
            )
        return value

    def each(self, value: Any, where: str, read: Callable[[Any, str], Any]) -> tuple[Any, ...]:
        spend(10 * len(value) if type(value) is list else 1)
        return tuple(read(v, f"{where}[{i}]") for i, v in enumerate(self.items(value, where)))

    def mapping(self, value: Any, where: str) -> dict[str, Term]:
        if type(value) is not dict:
            raise damaged(f"{type(value).__name__} {value!r:.60}", where, "an object of terms is expected")
        return {self.text(k, where): self.term(v, f"{where}.{k[:40]}") for k, v in value.items()}

    def text(self, value: Any, where: str, most: int = NAME) -> str:
        if type(value) is not str or len(value) > most or not value.isprintable():
            why = f"a text of at most {most} printable characters is expected"
            raise damaged(f"{type(value).__name__} {value!r:.60}", where, why)
        return value

    def texts(self, value: Any, where: str) -> tuple[str, ...]:
        return tuple(self.text(v, where) for v in self.items(value, where))

    def names(self, value: Any, where: str, most: int = ITEMS) -> tuple[str, ...]:
        found = tuple(self.text(v, where) for v in self.items(value, where, most))
        if len(set(found)) != len(found):
            raise damaged(f"{list(found)}"[:120], where, "a name occurs twice")
        return found

    def word(self, value: Any, where: str, *known: str) -> str:
        if value not in known or type(value) is not str:
            raise damaged(f"{value!r:.60}", where, f"known are {', '.join(known)}")
        return value

    def integer(self, value: Any, where: str) -> int:
        if type(value) is not int or not -(10**15) <= value <= 10**15:
            raise damaged(f"{type(value).__name__} {value!r:.60}", where, "an integer is expected")
        return value

    def truth(self, value: Any, where: str) -> bool:
        if type(value) is not bool:
            raise damaged(f"{type(value).__name__} {value!r:.60}", where, "true or false is expected")
        return value
