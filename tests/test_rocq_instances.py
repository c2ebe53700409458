"""Printed certificates: coqc proves what they state, from the allowed axioms, and refuses what is changed.

Every test that needs coqc is skipped with a message where there is none.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import redalg as ra
from redalg.proofs import Instance, rocq
from redalg.proofs.certificate import Certificate
from redalg.proofs.document import Document, Move
from redalg.proofs.required import required
from redalg.proofs.rocq_instance import header
from redalg.proofs.rocq_lemmas import lemma
from redalg.proofs.rocq_words import Unprintable
from tests.false_lemmas import FALSE, TRUE
from tests.false_lemmas import lemma as stated
from tests.rocq_tools import ALLOWED, FOR_PRINTED, axioms, check, compile_theories, needs_coqc

FORBIDDEN = re.compile(r"\b(?:Admitted|admit|Axioms?|Parameters?|Conjecture|Abort|bypass_check|Unset)\b")
CUSTOM = {
    "third_moment": "return t = sum[j]((x[j] - sum[j](x[j])/size[j])^3)",
    "fourth_moment": "return t = sum[j]((x[j] - sum[j](x[j])/size[j])^4)",
    "splade": "return w = max[s](log1p(relu(sum[d](H[s,d]*E[v,d]) + b[v])))",
}
ASSUMED = {"absmax_int8_gemm": ("cast_commutes",), "zero_point_int8_gemm": ("cast_commutes",)}
PRINTED = {  # spec: whether every obligation and the form as a whole are printed
    "softmax": True,
    "attention": True,
    "logsumexp": True,
    "variance": True,
    "third_moment": True,
    "fourth_moment": True,
    "covariance": True,
    "layer_norm_gemm": True,
    "softmax_entropy": True,
    "absmax_int8_gemm": True,
    "zero_point_int8_gemm": True,
    "zero_point_gemm": True,
    "max_deviation": True,
    "splade": True,
    "argmax": True,
    "top_k": True,
}


def certificate(name: str) -> Certificate:
    spec = ra.parse(CUSTOM[name]) if name in CUSTOM else ra.catalog[name]
    made = ra.derive_incremental(spec, assume=ASSUMED.get(name, ())).certificate
    return Certificate.from_json(made.to_json())  # what the file holds is enough


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_theories(tmp_path_factory.mktemp("printed"), FOR_PRINTED)


def proved_names(printed: Instance) -> str:
    names = ", ".join(f"@{name}" for name in [*(x.name for x in printed.lemmas), *printed.theorems])
    return f"Definition everything := ({names}).\nPrint Assumptions everything.\n"


@needs_coqc
@pytest.mark.parametrize("name", PRINTED)
def test_a_printed_certificate_is_proved(name: str, compiled: Path) -> None:
    printed = rocq(certificate(name))
    assert not printed.skipped and not printed.without
    assert len(printed.theorems) == 2 * len(certificate(name).document.spec)
    assert not FORBIDDEN.findall(printed.text)
    done = check(printed.text + proved_names(printed), compiled, f"Printed_{name}")
    assert done.returncode == 0, done.stderr
    assert axioms(done.stdout) <= ALLOWED
