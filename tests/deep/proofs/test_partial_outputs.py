"""Forms to which 0 times something is added that may have no value: what is proved has one wherever it should."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

import redalg as ra
from redalg.proofs.checker.check import proves
from redalg.proofs.checker.required import required
from redalg.proofs.document.document import Document
from redalg.proofs.document.terms import walk
from redalg.proofs.falsification.falsify import falsify
from redalg.testing.generator import generate
from tests.support.partial_terms import partial

SPECS = (
    "s = sum[j](x[j]); return y = where(w[i] > 0, b[i] / s, b[i])",
    "s = sum[j](x[i,j]); y = where(w[i] > 0, log(s), s); z = sum[i](where(w[i] > 0, s**2, 1 / s)); return y, z",
    "s = sum[j](x[j]); return y = where(w[i] > 0, sum[i](b[i] / s), b[i])",
    "s = sum[j](x[i,j]); m = max[j](x[i,j]); return y = where(m > w[i], sqrt(m - w[i]) / s, s)",
    "s = sum[j](x[i,j]); return y = where(s > w[i], sum[i](where(w[i] > s, 1 / (s - w[i]), s)), 1 / (s - w[i]))",
)
FORGED = 12  # of each output
POINTS = 150


def hold(doc: Document, seed: object) -> int:
    """How many are proved; each of them is a number where the definition is."""
    t, found = doc.terms, 0
    for number, o in enumerate(doc.outputs):
        draw = random.Random(f"{seed} {o.name}")
        pool = [n for n in walk(o.value) if (n.args or n.op in ("tensor", "state")) and n.axes.isdisjoint(doc.axis)]
        for k in range(0 if o.keeps_axis or not any(not n.is_boolean for n in pool) else FORGED):
            more = t.mul(t.const(0), partial(t, pool, o.value, draw))
            outputs = list(doc.outputs)
            outputs[number] = replace(o, value=t.add(o.value, more))
            forged = replace(doc, outputs=tuple(outputs))
            try:
                if not proves(forged):
                    continue
            except ra.RedalgError:
                continue  # refused before anything is judged
            found += 1
            for claim in required(forged):
                if claim.equality == "observational" and claim.subject == o.name:
                    status, detail = falsify(claim, forged, POINTS, seed=k)
                    assert status != "refuted", (o.name, more, detail)
    return found


@pytest.mark.parametrize("text", SPECS)
def test_what_is_proved_has_a_value(text: str) -> None:
    assert hold(ra.derive_incremental(ra.parse(text), "j").certificate.document, text)


@pytest.mark.parametrize("seed", range(24))
def test_of_generated_specs(seed: int) -> None:
    try:
        form = ra.derive_incremental(generate(seed).spec, "j", max_passes=3)
    except ra.RedalgError:
        return  # no form, nothing to forge
    hold(form.certificate.document, seed)
