"""Certificates of refusals forged by one change of what they say, the hash of the spec sealed again: by name.

`VANISHING` makes of a spec one whose output does not need the refused stage, `FALSE` changes what is stated otherwise,
`HARMLESS` is what stays true. Each takes the data of a certificate apart in place.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

from redalg.proofs.document.document import Document
from redalg.proofs.document.errors import CertificateError
from redalg.proofs.document.terms import MOST_AXES
from redalg.proofs.refusals.document import Refusal, RefusalReader

Data = dict[str, Any]
Change = Callable[[Data], object]
Expression = Any
STAGE = "stage"
FAR = "9" * 500


def forged(c: Refusal, change: Change) -> str:
    """The text of a certificate with one change."""
    data = json.loads(c.to_json())
    original = copy.deepcopy(data)
    change(data)
    assert data != original
    return json.dumps(_sealed(data))


def _sealed(data: Data) -> Data:
    reader = RefusalReader(data)
    try:
        reader._read_terms(data["terms"])
        spec = data["spec"]
        axis, empty = reader.names(spec["axis"], "", MOST_AXES), reader.mapping(spec["empty"], "")
        monoids = reader.each(data["monoids"], "", reader.monoid)
        outputs = reader.mapping(spec["outputs"], "")
        data["spec_hash"] = Document(reader.terms, axis, outputs, empty, (), (), monoids=monoids).spec_hash
    except CertificateError:
        pass  # the reader refuses it anyhow
    return data


def _row(data: Data, e: Expression) -> int:
    """The number of a term: the stage, a number, or (operation, attributes or arguments …)."""
    if e == STAGE:
        return int(data["stage"])
    if isinstance(e, int | str):
        row: list[Any] = ["const", str(e)]
    elif e[0] in ("special", "index", "size", "tensor", "state", "false"):
        row = list(e)
    else:
        literal = {"reduce": 4, "cast": 2}.get(e[0], 1)
        row = [*e[:literal], *(_row(data, a) for a in e[literal:])]
    data["terms"].append(row)
    return len(data["terms"]) - 1


def output(e: Expression) -> Change:
    """The only output is another function of the stage."""
    return lambda data: data["spec"].update(outputs={"y": _row(data, e)})


def put(*path: Any) -> Change:
    *steps, last, value = path

    def change(data: Data) -> None:
        holder: Any = data
        for step in steps:
            holder = holder[step]
        holder[last] = value

    return change


def tensors(place: int, value: Callable[[Any], Any]) -> Change:
    """Every tensor's name (1), axes (2) or domain (3)."""

    def change(data: Data) -> None:
        for row in data["terms"]:
            if row[0] == "tensor":
                row[place] = value(row[place])

    return change


def monoid(**fields: Any) -> Change:
    def change(data: Data) -> None:
        zero = _row(data, 0)
        parts: Data = {"identity": [zero], "combined": [zero], "actions": []}
        data["monoids"] = [{"name": "zero", "commutative": True} | parts | fields]

    return change


def both(*changes: Change) -> Change:
    return lambda data: [change(data) for change in changes]


def _everywhere(data: Data, name: str) -> None:
    for element in (*data["points"], *(e for stream in data["streams"] for e in stream)):
        element[name] = "1"


def _points_alike(data: Data) -> None:
    for stream in data["streams"]:
        for place in data["places"]:
            stream[place] = data["points"][0]
    data["points"] = [data["points"][0]] * len(data["points"])


def _another_stage(data: Data) -> None:
    row = list(data["terms"][data["stage"]])
    data["terms"].append([row[0], "max", *row[2:]])
    data["stage"] = len(data["terms"]) - 1


W = ("tensor", "w9", ["q"], [])
LESS = ("mul", -1, STAGE)
MIN_MAX = ("add", ("maximum", STAGE, ("mul", 2, STAGE)), ("minimum", STAGE, ("mul", 2, STAGE)), ("mul", -3, STAGE))
VANISHING: dict[str, Change] = {
    "nothing of it": output(("mul", 0, STAGE)),
    "its difference from itself": output(("add", STAGE, LESS)),
    "its ratio to itself": output(("mul", STAGE, ("pow", STAGE, -1))),
    "its power 0": output(("pow", STAGE, 0)),
    "the sign of its exponential": output(("sign", ("exp", STAGE))),
    "half of its sigmoid, rounded down": output(("floor", ("mul", "1/2", ("sigmoid", STAGE)))),
    "whether it is itself": output(("where", ("eq", STAGE, STAGE), 1, 0)),
    "larger and smaller of two less both": output(MIN_MAX),
    "sine and cosine squared": output(("add", ("pow", ("sin", STAGE), 2), ("pow", ("cos", STAGE), 2))),
    "the logarithm of its exponential less it": output(("add", ("log", ("exp", STAGE)), LESS)),
    "where nothing is": output(("where", ("false",), STAGE, 1)),
    "before the first place": output(("where", ("lt", ("index", "q"), 0), STAGE, W)),
    "the positive part of what is negative": output(("relu", ("mul", -1, ("exp", STAGE)))),
    "beside NaN": output(("add", STAGE, ("special", "nan"))),
    "beside infinity": output(("add", STAGE, ("special", "oo"))),
    "the larger of it and infinity": output(("maximum", STAGE, ("special", "oo"))),
    "its imaginary part": output(("im", STAGE)),
    "the size of a phase": output(("abs", ("exp", ("mul", ("special", "i"), STAGE)))),
    "where copies of it are largest": output(("reduce", "argmax", ["q"], None, ("mul", STAGE, ("size", "q")))),
    "where the first copy is": output(("reduce", "topk_indices", ["q"], [1, "t"], STAGE)),
    "a monoid that there is not": output(("reduce", "monoid", ["q"], [0, 0], STAGE)),
    "a monoid that forgets": both(monoid(), output(("reduce", "monoid", ["q"], [0, 0], STAGE))),
}
AT_THE_END: dict[str, Change] = {  # of stages that are never negative
    "its sign": output(("sign", STAGE)),
    "whether it is positive": output(("where", ("lt", 0, STAGE), 1, 0)),
    "whether it is 0": output(("where", ("eq", STAGE, 0), 1, 0)),
    "its exponential, rounded down": output(("floor", ("exp", LESS))),
}
FALSE: dict[str, Change] = {
    "no output": put("spec", "outputs", {}),
    "a state in an output": output(("add", STAGE, ("state", "s", [], []))),
    "another reduction as stage": _another_stage,
    "another axis": put("spec", "axis", ["q"]),
    "no axis": put("spec", "axis", []),
    "an axis of the stream more": lambda d: d["spec"]["axis"].append("q"),
    "a sum along another axis too": lambda d: [row[2].append("q") for row in d["terms"] if row[0] == "reduce"],
    "positive tensors": tensors(3, lambda _: ["positive"]),
    "tensors of truths": tensors(3, lambda _: ["bool"]),
    "tensors within an interval": tensors(3, lambda _: [">0", "<1"]),
    "tensors of other names": tensors(1, lambda name: name + "2"),
    "a tensor that the spec lacks": lambda d: _everywhere(d, "ghost"),
    "a parameter that the spec lacks": put("parameters", "ghost", "1"),
    "a length below 0": put("sizes", "q", -3),
    "a position along an axis that the spec lacks": both(put("sizes", "q", 1), put("positions", "q", 0)),
    "one place for all points": lambda d: d.update(places=[d["places"][0]] * len(d["places"])),
    "one point for all": _points_alike,
    "one stream for all": lambda d: d.update(streams=[d["streams"][0]] * len(d["streams"])),
    "an identity matrix": lambda d: d.update(
        matrix=[[str(int(a == b)) for a in range(len(d["matrix"]))] for b in range(len(d["matrix"]))]
    ),
    "a claim that is a truth": put("claim", "excluded_slots", True),
    "a claim of one slot more": lambda d: d["claim"].update(excluded_slots=len(d["matrix"]) + 1),
    "the class of products": lambda d: d.update({"class": "(sum, ×)" if "prod" in d["class"] else "(prod, power)"}),
    "a variable of a minor": put("variable", "x"),
    "a variable that the spec lacks": put("variable", "ghost"),
    "a value of no output": lambda d: d["spec"].update(empty={"ghost": _row(d, 0)}),
    "a monoid without an identity": monoid(identity=[]),
    "a monoid of a tensor": lambda d: monoid(combined=[_row(d, W)])(d),
    "an action of a tensor": lambda d: monoid(actions=[["scale", [_row(d, W)]]])(d),
}
HARMLESS: dict[str, Change] = {
    "another name of the output": lambda d: d["spec"].update(
        outputs={f"{name}2": t for name, t in d["spec"]["outputs"].items()}
    ),
    "a value of empty rows": lambda d: d["spec"].update(empty={name: _row(d, 0) for name in d["spec"]["outputs"]}),
    "entries that are hardly enclosed": lambda d: d.update(
        matrix=[[[f"-{FAR}", FAR] for _ in row] for row in d["matrix"]]
    ),
    "a monoid that nothing reads": monoid(),
}

__all__ = ["AT_THE_END", "FALSE", "HARMLESS", "VANISHING", "forged"]
