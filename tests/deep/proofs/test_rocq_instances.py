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
from redalg.proofs.checker.required import required
from redalg.proofs.document.document import Document, Move
from redalg.proofs.gallina.instance import header
from redalg.proofs.gallina.lemmas import lemma
from redalg.proofs.gallina.words import Unprintable
from tests.support.false_lemmas import FALSE, TRUE
from tests.support.false_lemmas import lemma as stated
from tests.support.rocq_tools import ALLOWED, axioms, check, needs_coqc

FORBIDDEN = re.compile(r"\b(?:Admitted|admit|Axioms?|Parameters?|Conjecture|Abort|bypass_check|Unset)\b")
CUSTOM = {
    "third_moment": "return t = sum[j]((x[j] - sum[j](x[j])/size[j])**3)",
    "fourth_moment": "return t = sum[j]((x[j] - sum[j](x[j])/size[j])**4)",
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
    "l2_normalise": True,
    "standard_deviation": True,
    "pearson_correlation": True,
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


@pytest.fixture
def compiled(theories: Path) -> Path:
    return theories


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


# --- what is false is refused ---


def with_slot(doc: Document, name: str, **changes: object) -> Document:
    """The document with one slot changed, and the obligations its form then has."""
    p = doc.passes[0]
    slots = tuple(replace(s, **changes) if s.name == name else s for s in p.slots)  # type: ignore[arg-type]
    return restated(replace(doc, passes=(replace(p, slots=slots),)))


def restated(doc: Document) -> Document:
    return replace(doc, obligations=required(doc))


def moved(name: str, at: int, factor: int) -> Callable[[Document], Document]:
    """A coefficient of a slot's move times a number."""

    def change(doc: Document) -> Document:
        (slot,) = (s for s in doc.passes[0].slots if s.name == name)
        moves = list(slot.moves)
        moves[at] = Move(doc.terms.mul(doc.terms.const(factor), moves[at].coefficient), moves[at].slot)
        return with_slot(doc, name, moves=tuple(moves))

    return change


def finalized(name: str, factor: int) -> Callable[[Document], Document]:
    """An output's finalize times a number."""

    def change(doc: Document) -> Document:
        terms = doc.terms
        outputs = (
            replace(o, value=terms.mul(terms.const(factor), o.value)) if o.name == name else o for o in doc.outputs
        )
        return restated(replace(doc, outputs=tuple(outputs)))

    return change


def kind(name: str, new: str) -> Callable[[Document], Document]:
    return lambda doc: with_slot(doc, name, kind=new)


def coefficient(stage: int, factor: int) -> Callable[[Document], Document]:
    """The first coefficient H of a separated stage times a number."""

    def change(doc: Document) -> Document:
        s = doc.stages[stage]
        first, *rest = s.coefficients
        changed = replace(s, coefficients=(doc.terms.mul(doc.terms.const(factor), first), *rest))
        return restated(replace(doc, stages=(*doc.stages[:stage], changed, *doc.stages[stage + 1 :])))

    return change


def specified(name: str, factor: int) -> Callable[[Document], Document]:
    """Another spec: one output times a number, with the form as it was."""
    return lambda doc: restated(
        replace(doc, spec=doc.spec | {name: doc.terms.mul(doc.terms.const(factor), doc.spec[name])})
    )


CHANGED: dict[str, tuple[str, Callable[[Document], Document]]] = {
    "a transport": ("softmax", moved("sum_exp", 0, 2)),
    "one term of a transport": ("variance", moved("avg_x2", 1, -1)),
    "a cross term": ("covariance", moved("avg_x_y", 0, -1)),
    "a finalize": ("logsumexp", finalized("y", -1)),
    "a spec": ("softmax_denominator", specified("l", 2)),
    "a maximum": ("softmax_statistics", kind("max_x", "min")),
    "a coefficient": ("layer_norm_gemm", coefficient(2, -1)),
    "an extremum of two": ("max_deviation", finalized("d", 2)),
}


def fails(name: str, proof: tuple[str, ...], statement: str) -> str:
    """Text that compiles exactly when the proof does not close the statement."""
    return f'Goal {statement}.\nProof. Fail solve [{"; ".join(proof)}]. idtac "open {name}". Abort.\n'


@needs_coqc
@pytest.mark.parametrize("what", CHANGED)
def test_a_changed_certificate_is_refused(what: str, compiled: Path) -> None:
    name, change = CHANGED[what]
    good = certificate(name).document
    fine = {x.statement for x in rocq(good).lemmas}
    wrong = [x for x in rocq(change(good)).lemmas if x.statement not in fine]
    assert wrong
    done = check(header() + "\n".join(map(str, wrong)), compiled, f"Changed_{'_'.join(what.split())}")
    assert done.returncode == 1
    assert "No applicable tactic" in done.stderr or "Unable to unify" in done.stderr, done.stderr


def printed_lemmas(entries: list[tuple[object, ...]]) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Those of the lemmas that have a counterpart over the reals."""
    found = {}
    for entry in entries:
        terms, o = stated(entry)
        try:
            made = lemma(Document(terms, ("j",), {}, {}, (), ()), o, "L")
        except Unprintable:
            continue
        found[o.subject] = (made.statement, made.proof)
    return found


@needs_coqc
def test_false_lemmas_do_not_close(compiled: Path) -> None:
    false = printed_lemmas(FALSE)
    assert len(false) >= 50
    text = header() + "".join(fails(str(k), proof, said) for k, (said, proof) in enumerate(false.values()))
    done = check(text, compiled, "False_lemmas")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("open") == len(false)


@needs_coqc
def test_true_lemmas_close(compiled: Path) -> None:
    true = printed_lemmas(TRUE)
    for name in ("|x - max|", "a monotone map leaves", "sums change places", "at 0 both ends are alike"):
        del true[name]  # needs x <= max x in a sum; that tanh rises; that sums commute; cases below an exponential
    for name in ("a spread", "a weighted spread", "a masked spread"):
        del true[f"{name} is not negative"]  # needs that sums of squares outweigh squares of sums
    assert len(true) >= 10
    text = "".join(f"Goal {said}.\nProof. {'. '.join(proof)}. Qed.\n" for said, proof in true.values())
    done = check(header() + text, compiled, "True_lemmas")
    assert done.returncode == 0, done.stderr


@needs_coqc
def test_an_assumption_is_needed(compiled: Path) -> None:
    """Without the named assumption the moves of a rounded slot are not proved."""
    doc = certificate("absmax_int8_gemm").document
    printed = rocq(replace(doc, assumptions=()))
    (moves,) = (x for x in printed.lemmas if x.name == "O2_sum_x_w")
    assert "cast_int8 (v * w)" not in printed.text
    done = check(header() + fails("O2", moves.proof, moves.statement), compiled, "Unassumed")
    assert done.returncode == 0, done.stderr


def test_what_cannot_be_printed_is_listed() -> None:
    printed = rocq(ra.derive_incremental(ra.catalog["weighted_variance"]).certificate)
    (o, why) = printed.skipped[0]
    assert (o.law, o.subject) == ("O8", "var") and "NaN" in why
    assert printed.without and not printed.theorems
    assert f"(* {o}: {why} *)" in printed.text


@needs_coqc
def test_names_of_specs_do_not_collide_with_words(compiled: Path) -> None:
    text = "return exp_ = sum[j](R[j]*phi[j]*lsum[j]*_s0[j]*fun[j]*t[j]*A[j])"
    printed = rocq(ra.derive_incremental(ra.parse(text)).certificate)
    assert all(f"Variable {x} : nat -> R." in printed.text for x in ("R_", "phi_2", "lsum_", "v_s0", "fun_", "t", "A"))
    done = check(printed.text, compiled, "Names")
    assert done.returncode == 0, done.stderr


def test_the_command_line_prints_an_instance(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from redalg.cli.main import main

    made = certificate("variance")
    source, out = tmp_path / "variance.json", tmp_path / "variance.v"
    source.write_text(made.to_json())
    assert main(["verify", str(source), "--rocq", str(out)]) == 0
    assert out.read_text() == rocq(made).text
    assert f"{len(rocq(made).lemmas)} lemmas for coqc" in capsys.readouterr().out
    assert main(["verify", str(source), "--rocq", str(tmp_path / "missing" / "x.v")]) != 0
