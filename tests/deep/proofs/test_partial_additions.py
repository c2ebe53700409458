"""Derivatives to which 0 times something is added that may have no value: what is proved has one wherever it should."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

import redalg as ra
from redalg.proofs.derivatives.claims import Claims
from redalg.proofs.derivatives.proof import Proof, proved
from redalg.proofs.document.terms import walk
from redalg.proofs.falsification.falsify import falsify
from redalg.testing.generator import generate
from tests.support.partial_terms import partial

SPECS = (
    "m = min[j](x[j]); return y = sum[j](sqrt(x[j] - m))",
    "tensors x[i,j], A[i,j] bool; n = sum[j](where(A[i,j], 1, 0)); y = sum[j](where(A[i,j], x[i,j], 0)) / n; "
    "empty y = 0; return y",
    "return y = where(0 < x[j], sum[j](u[j] / f[j]), log(x[j]**2))",
    "return y = sum[j](where(x[i,j] > a[i], log(x[i,j] - a[i]), x[i,j]))",
    "m = sum[j](x[j]); return y = sum[i](where(w[i] > 0, z[i] / m, z[i]))",
    "m = max[j](x[j]); return y = where(m > b[i], sqrt(m - b[i]) * c[i], sum[j](x[j] * w[j]) / b[i])",
)
FORGED = 12  # of each derivative
POINTS = 150


def forged(claims: Claims, seed: object) -> Iterator[tuple[str, Claims]]:
    t, derivatives = claims.document.terms, Proof(claims).derivatives().values()
    for name, root in claims.results.items():
        if root is None:
            continue
        draw = random.Random(f"{seed} {name}")
        pool = [n for n in walk(root, *claims.spec.values(), *derivatives) if n.args or n.op == "tensor"]
        for _ in range(FORGED):
            more = t.mul(t.const(0), partial(t, pool, root, draw))
            yield name, replace(claims, results={**claims.results, name: t.add(root, more)})


def claims_of(spec: ra.Spec) -> list[Claims]:
    return [d.certificate.claims for d in (spec.vjp(given=()), spec.jvp())]


def hold(claims: Claims, seed: object) -> int:
    """How many are proved; each of them is a number where the rebuilt derivative and the outputs are."""
    found = 0
    for k, (name, c) in enumerate(forged(claims, seed)):
        try:
            report = proved(c)
        except ra.RedalgError:
            continue  # refused before anything is judged
        if report.proved:
            found += 1
            proof = Proof(c)
            (o,) = (o for o in proof.obligations() if (o.law, o.subject) == ("D3", name))
            status, detail = falsify(o, proof._judged(o), POINTS, seed=k)
            assert status != "refuted", (name, c.results[name], detail)
    return found


@pytest.mark.parametrize("text", SPECS)
def test_what_is_proved_has_a_value(text: str) -> None:
    assert sum(hold(c, text) for c in claims_of(ra.parse(text)))


@pytest.mark.parametrize("seed", range(24))
def test_of_generated_specs(seed: int) -> None:
    for c in claims_of(generate(seed).spec):
        hold(c, seed)
