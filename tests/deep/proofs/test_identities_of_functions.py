"""Identities of functions, powers and casts, true and false alike: what the checker accepts is what folding gives.

Nobody says here which are true; a document that is accepted and folds to another value would be a false theorem.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from fractions import Fraction

import pytest

from redalg.proofs.certificate import Certificate
from redalg.proofs.document.document import Document
from redalg.proofs.document.errors import CertificateError
from tests.support.folding import differs, drawn
from tests.support.forging import Expression, Forge, text_of

HALF, X, Y = Fraction(1, 2), "x[j]", "y[j]"
FUNCTIONS = (
    "floor ceil sign abs relu sqrt exp log tanh erf erfc atan sigmoid expm1 log1p sin cos asinh cosh exp2 log2 softplus"
).split()
FORMATS = ("float16", "bfloat16", "float32", "float8_e4m3fn", "int8", "int64")
POWERS = (Fraction(2), HALF, Fraction(1, 3), Fraction(3), Fraction(-1), Fraction(-HALF), Fraction(3, 2), Fraction(2, 3))
STREAMS = 60


def claim(spec: Expression, kind: str, lift: Expression, value: Expression) -> Document:
    """That the spec is the value, over one slot $s of this kind."""
    forge = Forge()
    return forge.document({"y": spec}, [forge.slot("s", kind, lift)], {"y": value})


def of_functions() -> Iterator[tuple[str, Document]]:
    total = lambda e: ("sum:j", e)  # noqa: E731
    for f in FUNCTIONS:
        of = lambda *e, f=f: (f, *e)  # noqa: E731
        whole = ("mul", X, Y)
        yield f"{f} of a sum", claim(total(of(X)), "sum", X, of("$s"))
        yield f"{f} is odd", claim(total(of(("neg", X))), "sum", of(X), ("neg", "$s"))
        yield f"{f} is even", claim(total(of(("neg", X))), "sum", of(X), "$s")
        yield f"{f} falls", claim(("min:j", of(X)), "max", X, of("$s"))
        yield f"{f} of the opposite", claim(("max:j", of(("neg", X))), "max", X, ("neg", of("$s")))
        yield f"{f} twice", claim(total(of(of(X))), "sum", of(X), "$s")
        yield f"{f} of a product", claim(total(of(whole)), "sum", ("mul", of(X), of(Y)), "$s")
        yield f"{f} adds", claim(total(of(whole)), "sum", ("add", of(X), of(Y)), "$s")
        yield f"{f} of a double", claim(total(of(("mul", 2, X))), "sum", ("mul", 2, of(X)), "$s")
        yield f"{f} of a square", claim(total(of(("pow", X, 2))), "sum", ("mul", 2, of(X)), "$s")
        yield f"{f} squared", claim(total(of(("pow", X, 2))), "sum", ("pow", of(X), 2), "$s")
        yield f"{f} does nothing", claim(total(of(X)), "sum", X, "$s")
        yield f"{f} of a factor", claim(total(of(("mul", "h", X))), "sum", of(X), ("mul", of("h"), "$s"))
        yield f"{f} keeps places", claim(("argmax:j", of(("mul", "h", X))), "argmax", X, "$s at")
        yield f"{f} keeps signs", claim(total(("where", ("lt", 0, of(X)), 1, 0)), "sum", _sign(X), "$s")


def _sign(e: Expression) -> Expression:
    return ("where", ("lt", 0, e), 1, 0)


def of_powers() -> Iterator[tuple[str, Document]]:
    for p in POWERS:
        for q in POWERS:
            power = ("sum:j", ("pow", ("pow", X, p), q))
            yield f"({p})({q})", claim(power, "sum", ("pow", X, p * q), "$s")
            yield f"({p})({q}) of sizes", claim(power, "sum", ("pow", ("abs", X), p * q), "$s")
        factors = ("mul", ("pow", X, p), ("pow", Y, p))
        yield f"product to the {p}", claim(("sum:j", ("pow", ("mul", X, Y), p)), "sum", factors, "$s")
        scaled = ("sum:j", ("pow", ("mul", "h", X), p))
        yield f"factor to the {p}", claim(scaled, "sum", ("pow", X, p), ("mul", ("pow", "h", p), "$s"))
        yield f"all to the {p}", claim(("prod:j", ("pow", X, p)), "prod", X, ("pow", "$s", p))
        yield f"largest to the {p}", claim(("max:j", ("pow", X, p)), "max", X, ("pow", "$s", p))


def of_casts() -> Iterator[tuple[str, Document]]:
    for t in FORMATS:
        rounded = ("cast", t, X)
        yield f"{t} of a sum", claim(("sum:j", rounded), "sum", X, ("cast", t, "$s"))
        yield f"{t} keeps places", claim(("argmax:j", rounded), "argmax", X, "$s at")
        yield f"{t} does nothing", claim(("sum:j", rounded), "sum", X, "$s")
        yield f"{t} of a factor", claim(("max:j", ("mul", rounded, "h")), "max", rounded, ("mul", "h", "$s"))
        for other in FORMATS:
            yield f"{t} by {other}", claim(("sum:j", rounded), "sum", ("cast", t, ("cast", other, X)), "$s")


@pytest.mark.parametrize("claims", [of_functions, of_powers, of_casts])
def test_no_false_identity_is_accepted(claims: object) -> None:
    accepted = refused = 0
    for name, doc in claims():  # type: ignore[operator]
        try:
            Certificate.from_json(text_of(doc)).verify()
        except CertificateError:
            refused += 1
            continue
        accepted += 1
        draw = random.Random(name)
        assert not any(differs(doc, *drawn(doc, draw), draw) for _ in range(STREAMS)), name
    assert refused > 20 and (accepted > 5 or claims is of_casts)
