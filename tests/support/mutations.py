"""Corrupted certificates: one change each, in a single place. Used by a test and a benchmark.

A mutant of the form or of the spec states the obligations of what it has become, with its hash sealed again
(`consistent`): nothing but the falsehood of what it says can refuse it. Mutants of the obligations state others than
their form entails.
"""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

from redalg.proofs.certificate import Certificate
from redalg.proofs.checker.check import Judge
from redalg.proofs.checker.required import required
from redalg.proofs.checker.structure import check_structure
from redalg.proofs.document.document import Document
from redalg.proofs.document.errors import CertificateError
from redalg.proofs.document.reading import Reader
from redalg.proofs.document.work import Exhausted, metered
from redalg.proofs.falsification.evaluate import TooMuch
from tests.support.folding import Undecided, differs, drawn

SWAPS = {
    "add": "mul",
    "mul": "add",
    "maximum": "minimum",
    "minimum": "maximum",
    "exp": "log",
    "log": "exp",
    "lt": "le",
    "le": "lt",
    "eq": "ne",
    "ne": "eq",
    "and": "or",
    "or": "and",
    "abs": "relu",
    "relu": "abs",
    "sigmoid": "tanh",
    "tanh": "sigmoid",
}
KINDS = ("sum", "prod", "max", "min", "argmax", "argmin", "any", "all")
ASSUMPTIONS = ("cast_commutes", "cast_left_out", "positive_log_arguments", "nonnegative_factors", "finite_stage_values")


class Mutant(NamedTuple):
    """What was changed, and the text of the changed certificate."""

    kind: str
    where: str
    text: str


class Verdict(NamedTuple):
    """What became of a mutant: "reader", "structure", "proof" or "accepted"; the document, where it is one."""

    by: str
    document: Document | None = None


def judged(m: Mutant) -> Verdict:
    """Who refuses a mutant: the reader of JSON, the checks of shape and coverage, or a proof that fails."""
    if m.where.startswith(("obligation", "given")):
        try:
            doc = Certificate.from_json(m.text).document
        except CertificateError:
            return Verdict("reader")
        return _verified(doc)
    try:
        doc = Reader(json.loads(m.text) | {"obligations": []}).document(sealed=False)
    except CertificateError:
        return Verdict("reader")
    try:
        check_structure(doc)
        doc = replace(doc, obligations=required(doc))
    except (CertificateError, OverflowError, Exhausted):
        return Verdict("structure")
    return _verified(Certificate.from_json(Certificate(doc).to_json()).document)


def _verified(doc: Document) -> Verdict:
    """A proof that fails counts as that, also where a sum is not accounted for."""
    try:
        Certificate(doc).verify()
    except CertificateError as e:
        failed = re.search("is (unknown|tested|refuted)$", e.what) or not _all_proved(doc)
        return Verdict("proof" if failed else "structure", doc)
    return Verdict("accepted", doc)


def _all_proved(doc: Document) -> bool:
    try:
        needed, judge = required(doc), Judge(doc)
        with metered():
            return needed != doc.obligations or all(judge.proves(o) for o in needed)
    except (CertificateError, OverflowError, Exhausted):
        return True


def folded(doc: Document, streams: int, seed: object) -> tuple[bool, int]:
    """Whether some stream folds to another value than the definition has, and how many could be compared until then."""
    draw, compared = random.Random(repr(seed)), 0
    for _ in range(streams):
        try:
            found = differs(doc, *drawn(doc, draw), draw)
        except (Undecided, TooMuch):
            continue
        compared += found is not None
        if found:
            return True, compared
    return False, compared


def contradicted(doc: Document, streams: int, seed: object) -> bool:
    """Whether some stream folds to another value than the definition has; some must be comparable."""
    false, compared = folded(doc, streams, seed)
    assert compared, "no stream could be compared"
    return false


Place = tuple[str, Callable[[], int], Callable[[int], None]]


def mutants(text: str, count: int, seed: object, obligations: bool = True) -> Iterator[Mutant]:
    """`count` corrupted copies of one certificate, a function of the seed; `obligations`: some in what is stated."""
    draw, original, made = random.Random(repr(seed)), json.loads(text), 0
    if not obligations:
        original["obligations"] = []
    for _ in range(40 * count):
        if made == count:
            return
        data = copy.deepcopy(original)
        change = draw.choice((_term, _term, _term, _term, _structure, _structure, _text))
        found = change(data, draw)
        if found is None or data == original:
            continue
        made += 1
        yield Mutant(*found, _sealed(data))


def _sealed(data: dict[str, Any]) -> str:
    try:
        data["spec_hash"] = Reader(data).document(sealed=False).spec_hash
    except (CertificateError, OverflowError):
        pass
    return json.dumps(data)


# --- terms: the use of a term is changed, not the term that others share -------------------------------------------


def _uses(data: dict[str, Any]) -> list[Place]:
    places: list[Place] = []

    def at(where: str, holder: Any, key: Any) -> None:
        if holder[key] is not None:
            places.append((where, lambda: holder[key], lambda v: holder.__setitem__(key, v)))

    for name in data["spec"]["outputs"]:
        at(f"spec.{name}", data["spec"]["outputs"], name)
    for p in data["passes"]:
        for a in p["anchors"]:
            for key in ("generator", "target", "shift"):
                at(f"anchor.{key}", a, key)
        for s in p["slots"]:
            for i in range(len(s["lift"])):
                at("slot.lift", s["lift"], i)
            for m in s["moves"]:
                at("slot.move", m, 0)
            for i in range(len(s["identity"] or ())):
                at("slot.identity", s["identity"], i)
    for o in data["outputs"]:
        at("output.value", o, "value")
    for s in data["stages"]:
        at("stage.node", s, "node")
        for key in ("generators", "coefficients"):
            for i in range(len(s[key])):
                at(f"stage.{key}", s[key], i)
    for o in data["obligations"]:
        at("obligation.left", o, "left")
        at("obligation.right", o, "right")
        for i in range(len(o["given"])):
            at("obligation.given", o["given"], i)
    return places


def _term(data: dict[str, Any], draw: random.Random) -> tuple[str, str] | None:
    where, get, put = draw.choice(_uses(data))
    rows = data["terms"]
    path = [get()]
    while arguments(rows[path[-1]]) and draw.random() < 0.75:
        path.append(draw.choice(arguments(rows[path[-1]])))
    found = _changed(rows[path[-1]], draw)
    if found is None:
        return None
    kind, row = found
    new = _appended(rows, row)
    made = {path[-1]: new}
    for old, child in zip(reversed(path[:-1]), reversed(path[1:]), strict=True):
        row, first, done = list(rows[old]), len(rows[old]) - len(arguments(rows[old])), False
        for i in range(first, len(row)):
            if row[i] == child and not done:
                row[i], done = new, True
        made[old] = new = _appended(rows, row)
    put(new)
    if where.startswith("spec."):  # a stage of the spec is a stage of what has become of it
        for s in data["stages"]:
            s["node"] = made.get(s["node"], s["node"])
    return kind, where


def arguments(row: list[Any]) -> list[int]:
    """The term numbers in a row."""
    if row[0] in ("const", "special", "index", "size", "tensor", "state", "true", "false"):
        return []
    return row[{"reduce": 4, "cast": 2}.get(row[0], 1) :]


def _appended(rows: list[Any], row: list[Any]) -> int:
    rows.append(row)
    return len(rows) - 1


def _changed(row: list[Any], draw: random.Random) -> tuple[str, list[Any]] | None:
    op = row[0]
    if op == "const":
        value = Fraction(row[1])
        options = {"coefficient": value + draw.choice((1, -1, Fraction(1, 2))), "sign": -value, "scale": value * 2}
        kind = draw.choice(sorted(options))
        return (kind, ["const", str(options[kind])]) if options[kind] != value else None
    if op == "special":
        return "special", ["special", draw.choice([s for s in ("oo", "-oo", "nan", "pi") if s != row[1]])]
    if op in ("tensor", "state"):
        if row[3] and draw.random() < 0.3:
            return "domain", [op, row[1], row[2], []]
        changed = [op, row[1] + draw.choice(("", "'", "_b")), list(reversed(row[2])), row[3]]
        return ("leaf", changed) if changed != row else None
    if op == "reduce":
        if row[3] is None:
            return "operator", [op, draw.choice([k for k in KINDS if k != row[1]]), *row[2:]]
        return "parameter", [op, row[1], row[2], [row[3][0] + 1, row[3][1]], *row[4:]]
    if op in ("pow", "where", "lt", "le") and draw.random() < 0.5:
        return "order", [op, *reversed(row[1:])]
    if op in SWAPS:
        return "operator", [SWAPS[op], *row[1:]]
    return None


# --- structure -------------------------------------------------------------------------------------------------------


def _structure(data: dict[str, Any], draw: random.Random) -> tuple[str, str] | None:
    lists: list[tuple[str, list[Any]]] = [("stages", data["stages"])]
    lists += [("obligations", data["obligations"])] * 3 if data["obligations"] else []
    flags: list[tuple[str, dict[str, Any], str]] = []
    for p in data["passes"]:
        lists += [("anchors", p["anchors"]), ("slots", p["slots"])]
        for s in p["slots"]:
            lists.append(("moves", s["moves"]))
            flags += [("slot", s, key) for key in ("average", "vanishes")]
    flags += [("output", o, "keeps_axis") for o in data["outputs"]]
    lists += [("given", o["given"]) for o in data["obligations"] if o["given"]]
    choice = draw.random()
    if choice < 0.2:
        name, holder, key = draw.choice(flags)
        holder[key] = not holder[key]
        return "flag", f"{name}.{key}"
    if choice < 0.3:
        data["assumptions"].append(draw.choice(ASSUMPTIONS))
        return "widened assumption", "assumptions"
    where, items = draw.choice(lists)
    if not items:
        return None
    if choice < 0.75:
        items.pop(draw.randrange(len(items)))
        return "dropped", where
    if choice < 0.85:
        items.append(copy.deepcopy(draw.choice(items)))
        return "doubled", where
    i, j = draw.randrange(len(items)), draw.randrange(len(items))
    items[i], items[j] = items[j], items[i]
    return "swapped", where


def _text(data: dict[str, Any], draw: random.Random) -> tuple[str, str] | None:
    places: list[tuple[str, dict[str, Any], str]] = []
    for p in data["passes"]:
        places += [("anchor", a, key) for a in p["anchors"] for key in ("name", "kind", "policy")]
        places += [("slot", s, key) for s in p["slots"] for key in ("name", "kind")]
    places += [("output", o, "name") for o in data["outputs"]]
    places += [("stage", s, key) for s in data["stages"] for key in ("name", "pair", "rank")]
    places += [("obligation", o, key) for o in data["obligations"] for key in ("law", "subject", "equality")]
    where, holder, key = draw.choice(places)
    other = {"add": "mul", "mul": "add", "extremum": "mean", "mean": "extremum", "exact": "observational", "max": "min"}
    old = holder[key]
    if key == "rank":
        holder[key] = (old or 0) + 1
    elif key == "law":
        holder[key] = draw.choice([f"O{i}" for i in range(1, 9) if f"O{i}" != old])
    elif key == "kind" and where == "slot":
        holder[key] = draw.choice([k for k in KINDS if k != old])
    else:
        holder[key] = other.get(old, f"{old}x")
    return "string", f"{where}.{key}"
