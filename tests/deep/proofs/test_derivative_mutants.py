"""Every change of a certificate's derivative is refused, or changes nothing: one sweep over all terms of some specs."""

from __future__ import annotations

import pytest

from redalg.errors import CertificateError
from redalg.proofs.derivatives.proof import Proof, proved
from redalg.proofs.falsification.falsify import falsify
from tests.support import forged_derivatives as f

SPECS = {
    "softmax": f.SOFTMAX,
    "logsumexp": f.LSE,
    "norm": f.NORM,
    "maximum": f.MAX,
    "where": f.MASKED,
    "two": f.TWO,
    "relu": f.RELU,
    "product": f.PRODUCT,
    "list": f.LIST,
    "gram": f.GRAM,
    "mean": f.MEAN,
    "ties": f.PAIR,
}
POINTS = 40


@pytest.mark.parametrize("name", SPECS)
def test_mutants_are_refused_or_equal(name: str) -> None:
    refused = accepted = 0
    for what, claims in f.mutants(f.claims_of(SPECS[name])):
        try:
            report = proved(claims)
        except CertificateError:
            refused += 1
            continue
        if not report.proved:
            refused += 1
            continue
        accepted += 1  # normal forms say that nothing has changed; evaluation must not differ
        proof = Proof(claims)
        for o in proof.obligations():
            assert falsify(o, proof.about({o.subject: o.right}), POINTS)[0] != "refuted", what
    assert refused > 3 * accepted, (refused, accepted)
