"""Printed certificates: coqc proves what they state, from the allowed axioms, and refuses what is changed.

Every test that needs coqc is skipped with a message where there is none.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import redalg as ra
from redalg.proofs import Instance, rocq
from redalg.proofs.certificate import Certificate
from tests.rocq_tools import ALLOWED, FOR_PRINTED, axioms, check, compile_theories, needs_coqc

FORBIDDEN = re.compile(
    r"\b(?:Admitted|admit|Axioms?|Parameters?|Conjecture|Abort|Hypothes[ie]s|Context|Unset|bypass_check)\b"
)
PRINTED = [
    "softmax",
    "attention",
    "logsumexp",
    "variance",
    "softmax_entropy",
    "splade",
    "max_deviation",
    "zero_point_gemm",
]


def instance(name: str) -> Instance:
    certificate = ra.derive_incremental(ra.catalog[name]).certificate
    return rocq(Certificate.from_json(certificate.to_json()))  # what the file holds is enough


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_theories(tmp_path_factory.mktemp("printed"), FOR_PRINTED)


@needs_coqc
@pytest.mark.parametrize("name", PRINTED)
def test_a_printed_certificate_is_proved(name: str, compiled: Path) -> None:
    printed = instance(name)
    assert printed.lemmas and not FORBIDDEN.findall(printed.text)
    names = ", ".join(f"@{x.name}" for x in printed.lemmas)
    ending = f"Definition everything := ({names}).\nPrint Assumptions everything.\n"
    done = check(printed.text + ending, compiled, f"Printed_{name}")
    assert done.returncode == 0, done.stderr
    assert axioms(done.stdout) <= ALLOWED
