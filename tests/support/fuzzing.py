"""Damaged certificates, as a function of a seed and a number, and what the checker makes of them.

Three kinds: *bytes* (flipped, cut, doubled, spliced with another certificate), *types* (a value anywhere in the JSON
replaced by one of another type or size, keys added, dropped, renamed), *terms* (operations, arguments, numbers, axes,
parameters and flags changed within the grammar). In a third of the last two kinds the spec hash is sealed again, and in
another third the obligations are stated anew as well, so that what lies behind those two gates is reached.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

from redalg.proofs.certificate import Certificate
from redalg.proofs.checker.check import check
from redalg.proofs.checker.required import required
from redalg.proofs.document.errors import CertificateError
from redalg.proofs.document.reading import Reader
from redalg.proofs.document.terms import NARY, REDUCTIONS, UNARY
from redalg.proofs.document.work import metered
from redalg.proofs.document.writing import as_json
from redalg.proofs.falsification.falsify import falsify
from redalg.proofs.refusals.document import Refusal, RefusalReader

VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 7, 10**12, 10**15, 10**16, 10**30, -(10**15)),
    *("", "0", "1", "-1", "1/2", "1/0", "x", "j", "n", "add", "sum", "oo", "nan", "i", "pi", "bool", "complex"),
    *("a" * 201, "\ud800", "\n", "\u202e", "9" * 600, "-" + "9" * 600 + "/7", "1" * 5000, "__class__", "{0}", "%s"),
    *([], {}, [[]], [0], [1, 2], ["j"], ["j", "j"], [None], {"a": 1}, [[[[[[[[]]]]]]]], ["x"] * 70),
)
NUMBERS = ("0", "1", "-1", "2", "1/2", "-1/2", "1/3", "63", "64", "65", "1000", "-7", "1" + "0" * 599, "1/" + "9" * 599)
OPERATIONS = (*sorted(UNARY), *sorted(NARY), "pow", "eq", "ne", "lt", "le", "not", "where", "cast", "nothing")
LITERALS = (
    "NaN",
    "Infinity",
    "-Infinity",
    "1e999",
    "0.5",
    "-0",
    "01",
    "1E5",
    '"\\ud800"',
    "[" * 80 + "]" * 80,
    "9" * 5000,
)
READ = {"refused when read", "refused when checked"}


class Original(NamedTuple):
    """An intact certificate."""

    name: str
    text: str
    spec_hash: str
    refusal: bool


class Outcome(NamedTuple):
    """What became of one input; `detail` says of a crash, or of a false proof, what it was."""

    kind: str
    what: str
    detail: str = ""


def originals(texts: Sequence[tuple[str, str]]) -> list[Original]:
    found = []
    for name, text in texts:
        data = json.loads(text)
        found.append(Original(name, text, data["spec_hash"], "refusal" in data["format"]))
    return found


def damaged(base: Sequence[Original], seed: object, number: int) -> tuple[Original, str, str | bytes]:
    """Input `number`: the certificate it was made of, the kind of damage, and the text."""
    draw = random.Random(f"{seed}:{number}")
    original = draw.choice(base)
    kind = draw.choice(("bytes", "types", "terms"))
    if kind == "bytes":
        return original, kind, _bytes(original.text, draw.choice(base).text, draw)
    data = json.loads(original.text)
    other = json.loads(draw.choice(base).text) if draw.random() < 0.1 else data
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        (_retyped if kind == "types" else _reworded)(data, other, draw)
    text = _sealed(data, original.refusal, draw.choice(("as it is", "sealed", "restated", "restated")))
    if kind == "types" and draw.random() < 0.15:
        at = draw.choice([i for i, c in enumerate(text) if c in "0123456789"] or [0])
        text = text[:at] + draw.choice(LITERALS) + text[at + 1 :]
    return original, kind, text


def judged(original: Original, text: str | bytes) -> Outcome:
    """The outcome of reading and verifying; printing what was found is part of it."""
    kind = "refused when read"
    try:
        if original.refusal:
            refusal = Refusal.from_json(text)
            kind = "refused when checked"
            return _theorem(original, refusal.spec_hash, str(refusal.verify()))
        certificate = Certificate.from_json(text)
        kind = "refused when checked"
        report = check(certificate.document)
        if not report.proved:
            return Outcome("not proved", original.name, str(report)[:0])
        return _theorem(original, certificate.spec_hash, _counterexample(certificate))
    except CertificateError as e:
        whole = all(isinstance(p, str) and p for p in (e.what, e.where, e.why, e.fix)) and len(str(e)) < 3000
        str(e).encode()
        return (
            Outcome(kind, original.name)
            if whole
            else Outcome("crashed", original.name, f"an error lacks a part: {e!r}")
        )
    except Exception as e:  # whatever it is, it is a defect
        return Outcome("crashed", original.name, f"{type(e).__name__}: {e}"[:200])


def _theorem(original: Original, spec_hash: str, found: str) -> Outcome:
    if found.startswith("false"):
        return Outcome("false", original.name, found)
    same = spec_hash == original.spec_hash
    return Outcome("proved, of the same spec" if same else "proved, of the changed spec", original.name)


def _counterexample(c: Certificate) -> str:
    """A point at which something that was proved fails."""
    if c.document.assumptions:
        return ""
    with metered(300_000):
        for o in c.obligations:
            if o.law == "O8":
                status, found = falsify(o, c.document, points=2)
                if status == "refuted":
                    return f"false: {o} at {found}"[:300]
    return ""


# --- damage ----------------------------------------------------------------------------------------------------------


def _bytes(text: str, other: str, draw: random.Random) -> bytes:
    raw = bytearray(text.encode())
    for _ in range(draw.choice((1, 1, 2, 8))):
        i, n = draw.randrange(len(raw) + 1), draw.choice((1, 1, 2, 10, 300))
        what = draw.randrange(7)
        if what == 0:
            raw[i : i + n] = draw.randbytes(n)
        elif what == 1:
            del raw[i : i + n]
        elif what == 2:
            raw[i:i] = raw[i : i + n]
        elif what == 3:
            del raw[i:]
        elif what == 4 and i < len(raw):
            raw[i] ^= 1 << draw.randrange(8)
        elif what == 5:
            raw[i:i] = draw.choice((b"[", b"]", b"{", b"}", b",", b'"', b"\\", b"9", b"-", b"null", b"\x00", b"\xff"))
        else:
            at = draw.randrange(len(other))
            raw[i : i + n] = other[at : at + n].encode()
    return bytes(raw)


def _places(data: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in the data."""
    found: list[tuple[Any, Any]] = []
    stack = [data]
    while stack:
        node = stack.pop()
        keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
        for key in keys:
            found.append((node, key))
            stack.append(node[key])
    return found


def _retyped(data: Any, other: Any, draw: random.Random) -> None:
    places = _places(data)
    if not places:
        return
    if draw.random() < 0.5:  # the parts that are not terms are few, and as many ways to fail
        places = [
            (c, k) for c, k in places if not (isinstance(c, list) and c and isinstance(c[0], str | list))
        ] or places
    holder, key = draw.choice(places)
    what = draw.randrange(8)
    if what < 4:
        holder[key] = draw.choice(VALUES)
    elif what == 4:
        donor, k = draw.choice(_places(other) or [(holder, key)])
        holder[key] = json.loads(json.dumps(donor[k]))
    elif what == 5:
        del holder[key]
    elif isinstance(holder, dict):
        holder[draw.choice((*map(str, VALUES[:20]), "name", "axis", "value"))] = holder.pop(key)
    else:
        holder.insert(draw.randrange(len(holder) + 1), draw.choice((holder[key], draw.choice(VALUES))))


def _reworded(data: Any, other: Any, draw: random.Random) -> None:
    rows = data.get("terms") if isinstance(data, dict) else None
    if not isinstance(rows, list) or not rows or draw.random() < 0.25:
        _elsewhere(data, draw)
        return
    i = draw.randrange(len(rows))
    row, what = rows[i], draw.randrange(6)
    if not isinstance(row, list) or not row:
        return
    if row[0] == "const":
        row[1] = draw.choice((*NUMBERS, str(Fraction(draw.randint(-9, 9), draw.randint(1, 9)))))
    elif row[0] in ("tensor", "state"):
        field: int = draw.choice((1, 2, 3))
        donor = draw.choice([r for r in rows if isinstance(r, list) and r[:1] in (["tensor"], ["state"])])
        row[field] = (
            donor[field] if draw.random() < 0.7 else draw.choice((["j"], [], ["i", "j"], ["integer"], "n", "x'"))
        )
    elif row[0] == "reduce" and what < 4:
        row[1 + what % 3] = draw.choice(
            (sorted(REDUCTIONS), [["j"], ["i"], ["k", "j"]], [None, [3, "k"], [10**12, "k"], [0, 0]])[what % 3]
        )
    elif row[0] in ("special", "index", "size"):
        row[1] = draw.choice(("oo", "-oo", "nan", "pi", "e", "i", "j", "k"))
    elif what < 2:
        row[0] = draw.choice(OPERATIONS)
    elif what < 5 and len(row) > 1:
        row[draw.randrange(1, len(row))] = draw.randrange(i) if i else 0
    else:
        row.append(draw.randrange(i) if i else 0)


def _elsewhere(data: Any, draw: random.Random) -> None:
    """A number, flag, or name outside the terms, replaced by another of its type; or a part dropped or doubled."""
    rows = data.get("terms") if isinstance(data, dict) else None
    places = [
        (c, k) for c, k in _places({k: v for k, v in data.items() if k != "terms"} if isinstance(data, dict) else data)
    ]
    if not places:
        return
    holder, key = draw.choice(places)
    old = holder[key]
    if type(old) is bool:
        holder[key] = not old
    elif type(old) is int:
        holder[key] = draw.choice((0, 1, old + 1, old - 1, draw.randrange(len(rows or "a"))))
    elif type(old) is str:
        same = [c[k] for c, k in places if type(c[k]) is str]
        holder[key] = draw.choice((*same, old + "'", *NUMBERS))
    elif isinstance(old, list) and old:
        draw.choice((lambda: old.pop(), lambda: old.append(old[0]), lambda: old.reverse(), old.clear))()


def _sealed(data: Any, refusal: bool, how: str) -> str:
    if how != "as it is":
        try:
            if refusal:
                reader = RefusalReader(data)
                reader._read_terms(data["terms"])
                data["spec_hash"] = _hash_of(reader, data)
            else:
                doc = Reader({**data, "obligations": []}).document(sealed=False)
                data["spec_hash"] = doc.spec_hash
                if how == "restated":
                    with metered(200_000):
                        data = as_json(replace(doc, obligations=required(doc)))
        except Exception:  # damaged beyond that: left as it is
            return json.dumps(data)
    return json.dumps(data)


def _hash_of(reader: RefusalReader, data: Any) -> str:
    try:
        reader.about(data)
    except CertificateError as e:
        return e.why.rsplit(" ", 1)[-1]
    return str(data["spec_hash"])


Damage = Callable[[Sequence[Original], object, int], tuple[Original, str, str | bytes]]
