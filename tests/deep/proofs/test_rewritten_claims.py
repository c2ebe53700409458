"""Claims that a definition is another way to write it: what the checker accepts folds to the definition's value.

The other way is found by rules drawn at random (`tests.support.rewriting`), true and false alike: for what an output
makes of a reduction, for a slot's lift, for a coefficient that is pulled out, for the places of an extremum, and for
sums, extrema and conditions over axes, whose names may be captured.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice

import pytest

from redalg.proofs.certificate import Certificate
from redalg.proofs.checker.maps import Maps
from redalg.proofs.document.document import Document
from redalg.proofs.document.errors import CertificateError
from redalg.proofs.document.terms import Term, walk
from tests.support.folding import differs, drawn
from tests.support.forging import Forge, text_of
from tests.support.rewriting import EXPONENTS, MAPS, along_axes, free, of_numbers, put, rewritten

ELEMENTS, PARAMETERS = ["x[j]", "y[j]", "%u[j]", "+v[j]"], ["h", "%w", "+p", "d"]
STREAMS = 12
OTHER = {"max": "min", "min": "max", "argmax": "argmin", "argmin": "argmax"}


def of_outputs(draw: random.Random) -> Document:
    """What an output makes of one reduction."""
    kind = draw.choice(["sum", "max", "min", "prod"])
    whole = (f"{kind}:j", lift := draw.choice(["x[j]", ("mul", "x[j]", "y[j]"), "+v[j]", ("exp", "x[j]")]))
    spec = of_numbers(draw, draw.randint(1, 3), [whole, whole, "h", "+p", 1])
    f, value = Forge(), rewritten(draw, put(spec, whole, "$s"), draw.randint(1, 3))
    return f.document({"y": spec}, [f.slot("s", kind, lift)], {"y": value})


def of_lifts(draw: random.Random) -> Document:
    """What is reduced."""
    kind = draw.choice(["sum", "max", "min", "prod", "sum"])
    body = of_numbers(draw, draw.randint(1, 3), ELEMENTS + PARAMETERS[:2])
    f, lift = Forge(), rewritten(draw, body, draw.randint(1, 3))
    return f.document({"y": (f"{kind}:j", body)}, [f.slot("s", kind, lift)], {"y": "$s"})


def of_coefficients(draw: random.Random) -> Document:
    """A map of the elements that is said to change places with a reduction."""
    kind, element = draw.choice(["sum", "max", "min", "prod"]), of_numbers(draw, draw.randint(0, 2), ELEMENTS)
    plain = [("pow", "Z", draw.choice(EXPONENTS)), (draw.choice(MAPS), "Z"), ("mul", draw.choice(PARAMETERS), "Z")]
    around = draw.choice([of_numbers(draw, draw.randint(1, 2), ["Z", "Z", *PARAMETERS]), draw.choice(plain)])
    inner = draw.choice([kind, kind, OTHER.get(kind, kind)])
    f, value = Forge(), rewritten(draw, put(around, "Z", "$s"), draw.randint(0, 2))
    spec = {"y": (f"{kind}:j", put(around, "Z", element))}
    return f.document(spec, [f.slot("s", inner, element)], {"y": value})


def of_places(draw: random.Random) -> Document:
    """A map that is said to keep the place of an extremum, or the places of a list."""
    kind, element = draw.choice(["argmax", "argmin", "topk"]), of_numbers(draw, draw.randint(0, 2), ELEMENTS)
    body = put(of_numbers(draw, draw.randint(1, 2), ["Z", "Z", *PARAMETERS]), "Z", element)
    f = Forge()
    if kind == "topk":
        slot = f.slot("s", "topk", element, extra=(2, "top"))
        return f.document({"y": ("topk_indices:j:2:top", body)}, [slot], {"y": "$s indices[top]"})
    slot = f.slot("s", draw.choice([kind, kind, OTHER[kind]]), element)
    return f.document({"y": (f"{kind}:j", body)}, [slot], {"y": "$s at"})


def of_axes(draw: random.Random) -> Document:
    """What is reduced, with sums, extrema and conditions over other axes inside it."""
    kind, body = draw.choice(["sum", "sum", "max"]), along_axes(draw, draw.randint(2, 3))
    lift = rewritten(draw, body, draw.randint(1, 3))
    along = ",".join(sorted((free(body) | free(lift)) - {"j"}))
    f = Forge()
    part = f"$s[{along}]" if along else "$s"
    return f.document({"y": (f"{kind}:j", body)}, [f.slot("s", kind, lift, along)], {"y": part})


def of_sums_in_outputs(draw: random.Random) -> Document:
    """What an output makes of a sum over the stream along other axes."""
    body = along_axes(draw, 1)
    whole, along = ("sum:j", body), ",".join(sorted(free(body) - {"j"}))
    part = f"$s[{along}]" if along else "$s"
    spec = ("mul", along_axes(draw, 1, elements=False), draw.choice([whole, ("pow", whole, 2), ("sum:a", whole)]))
    spec = draw.choice([spec, (f"sum:{draw.choice('abg')}", spec)])
    f, value = Forge(), rewritten(draw, put(spec, whole, part), draw.randint(1, 2))
    return f.document({"y": spec}, [f.slot("s", "sum", body, along)], {"y": value})


KINDS = {
    of_outputs: 250,
    of_lifts: 250,
    of_coefficients: 250,
    of_places: 150,
    of_axes: 400,
    of_sums_in_outputs: 250,
}


def claims(kind: object, count: int) -> Iterator[tuple[int, Document]]:
    """So many well-formed claims, of elements."""
    for seed in range(3 * count):
        try:
            doc = kind(random.Random(seed))  # type: ignore[operator]
        except (CertificateError, ValueError):
            continue  # no tensor, or of no shape
        if all(len(t.axes - {"j"}) <= 2 for t in doc.spec.values()) and doc.obligations:
            yield seed, doc


def accepted(kind: object) -> Iterator[tuple[Document, random.Random]]:
    """Those of so many claims that the checker proves, and some that it does not."""
    for seed, doc in islice(claims(kind, KINDS[kind]), KINDS[kind]):  # type: ignore[index]
        try:
            Certificate.from_json(text_of(doc)).verify()
        except CertificateError:
            continue
        yield doc, random.Random(seed)


def is_false(doc: Document, draw: random.Random) -> bool:
    return any("j" in t.attr.axes for t in _tensors(doc)) and any(
        differs(doc, *drawn(doc, draw), draw) for _ in range(STREAMS)
    )


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_no_claim_that_is_accepted_folds_to_another_value(kind: object) -> None:
    proved = 0
    for doc, draw in accepted(kind):
        assert not is_false(doc, draw), doc.spec
        proved += 1
    assert 10 < proved < KINDS[kind] - 20  # type: ignore[index]


def test_a_rule_that_is_wrong_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here: that roots of negative numbers are those of factors."""
    monkeypatch.setattr(Maps, "_rooted", lambda maps, m, e: ({tuple((g, x * e) for g, x in m): 1}, ()))
    assert any(is_false(doc, draw) for doc, draw in accepted(of_lifts))


def _tensors(doc: Document) -> list[Term]:
    return [t for t in walk(*doc.spec.values()) if t.op == "tensor"]
