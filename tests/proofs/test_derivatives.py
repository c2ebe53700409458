"""Certificates of derivatives: true ones are proved, without the engine; false ones are refused."""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

import redalg as ra
from redalg.errors import CertificateError
from redalg.proofs.derivatives.document import Derivative
from redalg.proofs.derivatives.rules import LEMMAS, RULES, UNPROVED
from tests.support.forged_derivatives import FORGED, LIST, MEAN, NORM, SOFTMAX, claims_of, text_of
from tests.support.places import ROOT
from tests.support.sample import by_name

TRUE = [
    SOFTMAX,
    NORM,
    LIST,
    "return y = sum[i](sum[j](A[i,j]*A[j,k])**2)",
    "return y = sum[j](x[i,j]**2)**2*exp2(x[i,k])",
    "return y = sum[j](tan(x[j]) + asinh(x[j]) + softplus(x[j])*erf(x[j]) + log1p(x[j]**2))",
    "v = topk[j:2:k](sigmoid(x[j])).values; return y = v/sum[k](v)",
    "u = mean[j](x[j]); return y = mean[j]((x[j] - u)**2) + u**3",
    "return y = x[j]**p[j] + minimum(x[j], 1, p[j])",
    "return y = x[i]*max[j](x[j])",  # one array along axes that are as long as each other
    "return y = x[i]*prod[j](x[j]) + w[i,j]*min[i](w[i,j]*x[j])",
    "return y = sum[j](A[j,i]*max[k](A[i,k]))",
    # partial operations that the definition computes, too: under conditions, in other words, in several places
    "return y = prod[j](exp(log1p(v[i,j]))*v[i,j])",
    "return y = prod[j](x[i,j]*w[j])/min[j](log1p(x[i,j])*v[i,j])",
    "return y = max[j](atan(x[i,j] + a[i])*w[j])",
    "return y = sqrt(prod[j]((w[j] - a[i])*w[j])**2 + prod[j]((v[i,j] + a[i])*w[j])**2 + 1)",
    "return y = sum[j](where(0 < x[j], log(x[j])*w[j], x[j]/w[j]))",
]


@by_name()
def test_the_catalog(name: str) -> None:
    spec = ra.catalog[name]
    if any("complex" in d.domain for d in spec.tensors):
        return
    assume = {"straight_through"} if name.endswith(("quantise", "_gemm")) else set()
    for derivative in (spec.vjp(assume=assume), spec.jvp(assume=assume)):
        c = Derivative.from_json(derivative.certificate.to_json())
        assert c.verify().proved and set(c.assumptions) <= {"straight_through", "full_lists"}


@pytest.mark.parametrize("text", TRUE)
@pytest.mark.parametrize("given", ["all", ()])
def test_derivatives_are_proved(text: str, given: object) -> None:
    spec = ra.parse(text)
    assert spec.vjp(given=given).certificate.verify().proved
    assert spec.jvp().certificate.verify().proved


def test_second_order_is_proved() -> None:
    spec = ra.parse("m = max[j](x[j]); return y = m + log(sum[j](exp(x[j] - m)))")
    first = spec.vjp(given=()).specs["x"]
    assert first.vjp(wrt="x").certificate.verify().proved
    assert first.jvp(wrt="x").certificate.verify().proved


@pytest.mark.parametrize("forgery", FORGED)
def test_forged_certificates_are_refused(forgery: str) -> None:
    with pytest.raises(CertificateError) as caught:
        Derivative.from_json(text_of(FORGED[forgery]())).verify(allow={"tested", "unknown"})
    assert caught.value.what and caught.value.where and caught.value.why


def _renamed(data: Any, old: str, new: str) -> Any:
    """The text with another name for an axis, sealed again."""
    data = json.loads(json.dumps(data).replace(f'"{old}"', f'"{new}"'))
    with pytest.raises(CertificateError) as caught:
        Derivative.from_json(json.dumps(data))
    return {**data, "spec_hash": caught.value.why.split("hash ")[1]}


def _lengths_exchanged() -> Any:
    """A mean whose gradient divides by the number of rows."""
    claims = claims_of(MEAN)
    t, root = claims.document.terms, claims.results["x"]
    assert root is not None
    other = t.substitute(root, {t.size(("j",)): t.size(("i",))})
    return json.loads(text_of(replace(claims, results={**claims.results, "x": other})))


AXES_TAKEN_FOR_OTHERS = {
    "terms that nothing reads": lambda d: {**d, "terms": [*d["terms"], *(["tensor", "q", [a], []] for a in "ij")]},
    "states that nothing reads": lambda d: {**d, "terms": [*d["terms"], *(["state", "q", [a], []] for a in "ij")]},
    "an axis named as a copy": lambda d: _renamed(d, "i", "j'"),
    "an axis named as another place": lambda d: _renamed(d, "i", "j~1"),
}


@pytest.mark.parametrize("way", AXES_TAKEN_FOR_OTHERS)
def test_no_axis_is_taken_for_another_one(way: str) -> None:
    data = AXES_TAKEN_FOR_OTHERS[way](_lengths_exchanged())
    with pytest.raises(CertificateError):
        Derivative.from_json(json.dumps(data)).verify(allow={"tested", "unknown"})


@pytest.mark.parametrize("mode", ["vjp", "jvp"])
def test_specs_of_one_array_read_twice_have_a_hash_of_their_own(mode: str) -> None:
    """The terms of A[i,j]*A[j,k] are those of two tensors, whose derivatives are others."""
    c = getattr(ra.parse("return y = sum[j](A[i,j]*A[j,k])"), mode)().certificate
    two = replace(c.claims, readings={})
    assert two.document.spec_hash == c.claims.document.spec_hash
    assert two.spec_hash == two.document.spec_hash != c.spec_hash
    data = json.loads(c.to_json())
    with pytest.raises(CertificateError, match="spec hash"):
        Derivative.from_json(json.dumps({**data, "spec_hash": two.spec_hash}))
    assert Derivative.from_json(json.dumps(data)).spec_hash == c.spec_hash


def test_what_a_certificate_says() -> None:
    c = ra.parse(SOFTMAX).vjp().certificate
    assert "max: x̄ = 0: the results do not depend on it" in c.explain()
    assert "exp: x̄ = ȳ·(y) (d_exp)" in c.explain()
    assert pickle.loads(pickle.dumps(c)) == c and repr(c) == "<Derivative: gradients of x; 8 rules>"
    with pytest.raises(CertificateError, match="allow may name"):
        c.verify(allow="refuted")


def test_damaged_texts_are_refused() -> None:
    data = json.loads(text_of(claims_of(SOFTMAX)))
    for key in data:
        for value in (None, 17, [], {}, "x", [[0, 0, 0]]):
            if value == data[key] or (key, value) in (("filled", []), ("readings", {}), ("saved", [])):
                continue
            with pytest.raises(CertificateError):
                Derivative.from_json(json.dumps({**data, key: value})).verify()
        rest = {k: v for k, v in data.items() if k != key}
        with pytest.raises(CertificateError):
            Derivative.from_json(json.dumps(rest))


@pytest.mark.parametrize("key", ["seeds", "results", "saved", "rules", "cancelled"])
def test_any_other_term_in_a_place_is_refused_or_proved(key: str) -> None:
    """A number for a cotangent, a sum for a saved value: no other error than those of certificates."""
    text = text_of(claims_of(SOFTMAX))
    for number in range(len(json.loads(text)["terms"])):
        data = json.loads(text)
        data[key] = _with_term(data[key], number)
        try:
            Derivative.from_json(json.dumps(data)).verify()
        except CertificateError as e:
            assert e.what and e.where and e.why


def _with_term(value: Any, number: int) -> Any:
    """The first reference to a term replaced."""
    if isinstance(value, dict):
        return {name: number if k == 0 else v for k, (name, v) in enumerate(value.items())}
    return [[number, *value[0][1:]], *value[1:]]


def test_every_rule_has_its_lemma() -> None:
    text = "".join((ROOT / "proofs" / "theories" / f"{name}.v").read_text() for name in ("Derivatives", "Slopes"))
    stated = set(re.findall(r"^ *Lemma (d_\w+)", text, re.MULTILINE))
    named = {r.lemma for r in RULES.values()} | {v for name, v in LEMMAS.items() if name not in UNPROVED}
    assert named - {""} <= stated
    assert {name for name, r in RULES.items() if not r.lemma} == {"leaf", "cast", "cancelled"}


BLOCKED = """
import sys
for name in ("sympy", "numpy", "numba"):
    sys.modules[name] = None
from redalg.proofs.derivatives.document import Derivative
from redalg.proofs.derivatives.rules import LEMMAS, RULES, UNPROVED
assert Derivative.from_json(sys.stdin.read()).verify().proved
others = {n for n in sys.modules if n.startswith("redalg") and sys.modules[n] is not None} - {"redalg"}
assert all(n.split(".")[1] in ("proofs", "errors", "parsing", "shown", "_hooks", "_moved") for n in others), others
"""


def test_proved_without_the_engine() -> None:
    text = ra.catalog["attention"].vjp().certificate.to_json()
    done = subprocess.run([sys.executable, "-c", BLOCKED], input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_derivatives_of_products_are_proved_to_third_order() -> None:
    spec = ra.parse("return y = prod[j](x[i,j] + w[j])")
    for _ in range(2):
        spec = spec.vjp(wrt="x", given=()).specs["x"]
        assert spec.vjp(wrt="x").certificate.verify().proved
        assert spec.jvp(wrt="x").certificate.verify().proved
