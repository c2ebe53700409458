"""Obligations as SMT-LIB 2 texts, and Z3's verdict on them: the catalog's are proved, nothing false is."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path

import pytest

import redalg as ra
from redalg.cli.main import main
from redalg.proofs import smt_lib, solve
from redalg.proofs.certificate import Certificate
from redalg.proofs.checker.check import Finding
from redalg.proofs.document.document import Document, Obligation
from redalg.proofs.document.errors import CertificateError
from redalg.proofs.document.terms import Leaf, Term, Terms
from redalg.proofs.smt.problem import premises, problem, text
from redalg.proofs.smt.smt import judged
from redalg.proofs.smt.solver import asked
from tests.support.false_lemmas import FALSE, TRUE, lemma
from tests.support.forms import form_of

try:
    import z3
except ImportError:
    z3 = None
needs_z3 = pytest.mark.skipif(z3 is None, reason="z3 is not installed: pip install 'redalg[proofs]'")

PROVED = """
    softmax logsumexp variance attention argmax top_k layer_norm entropy geometric_mean fp8_quantise
    any_all
""".split()
ANY_ALL = "return a = any[j](x[j] > 0), b = all[j](x[j] > 0)"
# What follows from instances only where a monotone map or an addition theorem is known.
UNSETTLED = {"|x - max|", "addition theorem", "cos² + sin² is 1", "a monotone map leaves"}
UNSETTLED |= {f"a {word}spread is not negative" for word in ("", "weighted ", "masked ")}  # Cauchy-Schwarz


@cache
def certificate(name: str) -> Certificate:
    if name == "any_all":
        return ra.derive_incremental(ra.parse(ANY_ALL)).certificate
    return form_of(name).certificate


def bare(t: Terms) -> Document:
    return Document(t, ("j",), {}, {}, (), ())


def status(o: Obligation, doc: Document) -> str:
    return judged(z3, o, doc).status


# --- the texts ---


def test_every_obligation_has_a_text_that_negates_it() -> None:
    c = certificate("logsumexp")
    texts = smt_lib(c)
    assert len(texts) == len(c.obligations) and list(texts) == sorted(texts)
    for o, body in zip(c.obligations, texts.values(), strict=True):
        lines = body.splitlines()
        assert o.law in lines[0] and o.subject in lines[0]
        assert lines.count("(check-sat)") == 1 and "(set-logic QF_UFNRA)" in lines
        assert lines[-2].startswith("(assert (not") and lines[-3] == "; the obligation, negated"
        assert body.count("(") == body.count(")") or "|" in body


def test_the_export_needs_the_standard_library_alone() -> None:
    code = (
        "import sys\n"
        "for name in ('sympy', 'numpy', 'numba', 'mpmath', 'z3'): sys.modules[name] = None\n"
        "from redalg.proofs import smt_lib\n"
        "from redalg.proofs.certificate import Certificate\n"
        "print(len(smt_lib(Certificate.from_json(sys.stdin.read()))))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=certificate("variance").to_json(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) == len(certificate("variance").obligations)


def test_without_z3_the_refusal_has_four_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "z3", None)
    with pytest.raises(CertificateError) as caught:
        solve(certificate("mean"))
    assert caught.value.what and caught.value.where and caught.value.why and "redalg[proofs]" in caught.value.fix


def test_verify_writes_the_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    c = certificate("mean")
    (tmp_path / "c.json").write_text(c.to_json())
    assert main(["verify", str(tmp_path / "c.json"), "--smt", str(tmp_path / "texts")]) == 0
    assert f"{len(c.obligations)} SMT-LIB texts" in capsys.readouterr().out
    written = {p.stem: p.read_text() for p in (tmp_path / "texts").glob("*.smt2")}
    assert written == smt_lib(c)


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.json").write_text(certificate("mean").to_json())
    assert main(["verify", str(tmp_path / "c.json"), "--smt", str(tmp_path / "c.json")]) != 0
    assert "refused:" in capsys.readouterr().err


@needs_z3
@pytest.mark.parametrize("name", list(ra.catalog)[::6])
def test_z3_reads_every_text(name: str) -> None:
    for body in smt_lib(certificate(name)).values():
        assert z3.parse_smt2_string(body, ctx=z3.Context()) is not None


@needs_z3
@pytest.mark.parametrize("name", ["logsumexp", "variance", "argmax", "softmax"])
def test_a_text_alone_is_enough_for_a_solver(name: str) -> None:
    """One question, no lemma (laws of split streams take several); with a wrong left side the answer is another."""
    doc = certificate(name).document
    t = doc.terms
    for o in doc.obligations:
        assert _answer(text(o, doc)) == "unsat" or o.law == "O8", str(o)
        if not o.left.is_boolean:
            assert _answer(text(replace(o, left=t.add(o.left, t.const(Fraction(1, 7)))), doc)) != "unsat"


NAMES = ["as", "t!1", "exp", "exp!", "sum!1", "a b", "a|b", "a\\b", "1x", "é", "let", "\n(assert false)\n"]


@needs_z3
def test_no_name_of_a_leaf_is_taken_for_another() -> None:
    t = Terms()
    leaves = [t("tensor", attr=Leaf(n, (), frozenset())) for n in NAMES] + [t.state(n) for n in NAMES]
    leaves += [t("tensor", attr=Leaf("as", ("j",), frozenset())), t.state("as[j]")]
    for a, b in zip(leaves, leaves[1:] + leaves[:1], strict=True):
        o = Obligation("O4", "s", t("exp", a), t("exp", b))
        assert "(assert false)" not in text(o, bare(t)).splitlines()
        assert _answer(text(o, bare(t))) != "unsat"
    whole = Obligation("O4", "s", t.add(*leaves), t.add(*reversed(leaves)))
    assert text(whole, bare(t)).count("declare-const") == len(leaves)
    assert status(whole, bare(t)) == "proved"


# --- verdicts ---


@needs_z3
@pytest.mark.parametrize("name", PROVED)
def test_z3_proves_every_obligation(name: str) -> None:
    """But how averages about a mean merge: from the text alone that is too much nonlinear arithmetic at once."""
    report = solve(certificate(name))
    merged = {s.name for p in certificate(name).document.passes for s in p.slots if s.average}
    left = {(f.obligation.law, f.obligation.subject) for f in report.findings if f.status != "proved"}
    assert left <= {("O8", slot) for slot in merged} and "refuted" not in report.counts, str(report)
    assert len(report.findings) == len(certificate(name).obligations)


@cache
def _false(n: int) -> Finding:
    t, o = lemma(FALSE[n])
    return judged(z3, o, bare(t))


@needs_z3
@pytest.mark.parametrize("n", range(len(FALSE)), ids=lambda n: FALSE[n][0])
def test_nothing_false_is_proved(n: int) -> None:
    t, o = lemma(FALSE[n])
    assert _false(n).status in ("refuted", "unknown")
    assert _answer(text(o, bare(t))) != "unsat"


def _answer(body: str) -> str:
    solver = z3.Solver(ctx=z3.Context())
    solver.set("rlimit", 200_000)
    solver.set("arith.solver", 2)
    solver.from_string(body)
    return str(solver.check())


@needs_z3
def test_most_of_what_is_false_is_refuted_by_values() -> None:
    refuted = [f for f in map(_false, range(len(FALSE))) if f.status == "refuted"]
    assert len(refuted) >= 45
    assert all(f.detail["left"] != f.detail["right"] for f in refuted)


@needs_z3
@pytest.mark.parametrize("entry", TRUE, ids=lambda e: e[0])
def test_what_is_true_is_never_refuted(entry: tuple) -> None:
    t, o = lemma(entry)
    assert status(o, bare(t)) == ("unknown" if entry[0] in UNSETTLED else "proved")


@needs_z3
@pytest.mark.parametrize("name", ["logsumexp", "variance", "argmax", "entropy"])
def test_no_altered_obligation_is_proved(name: str) -> None:
    doc = certificate(name).document
    t = doc.terms
    for o in doc.obligations:
        other = t("not", o.left) if o.left.is_boolean else t.add(o.left, t.const(Fraction(1, 7)))
        assert status(replace(o, left=other), doc) != "proved", str(o)


@needs_z3
def test_an_answer_without_enough_work_is_unknown() -> None:
    report = solve(certificate("logsumexp"), rlimit=1)
    assert report.counts["unknown"] > 0 and "refuted" not in report.counts


@needs_z3
def test_the_verdict_is_a_function_of_the_certificate() -> None:
    again = Certificate.from_json(certificate("variance").to_json())
    first, second = solve(certificate("variance")), solve(again)
    assert [(f.status, f.detail) for f in first.findings] == [(f.status, f.detail) for f in second.findings]


@needs_z3
def test_a_missing_obligation_is_refused() -> None:
    doc = certificate("variance").document
    with pytest.raises(CertificateError):
        solve(Certificate(replace(doc, obligations=doc.obligations[1:])))


# --- what must not be concluded ---


def _leaf(t: Terms, name: str, *axes: str) -> Term:
    return t("tensor", attr=Leaf(name, axes, frozenset()))


@needs_z3
def test_quotients_by_zero_are_not_cancelled() -> None:
    """1/x is a number at x = 0 for a solver, and has no value here."""
    t = Terms()
    x, y, zero = _leaf(t, "x"), _leaf(t, "y"), t.const(0)
    inverse = t("pow", x, t.const(-1))
    s = t.reduce("sum", ("j",), _leaf(t, "z", "j"))
    true = t("true")
    for left, right in (
        (t.mul(x, inverse), t.const(1)),
        (t("pow", inverse, t.const(-1)), x),
        (t.mul(x, y, inverse), y),
        (t("exp", t("log", t.mul(x, inverse))), t.const(1)),
        (t.reduce("sum", ("j",), t.div(_leaf(t, "z", "j"), s)), t.const(1)),
        (t("log", t("exp", t.mul(x, inverse))), t.const(1)),
    ):
        assert status(Obligation("O4", "s", left, right), bare(t)) != "proved"
    for nonzero in (x, s, t("pow", x, t.const(2))):
        assert status(Obligation("O7", "s", t("ne", nonzero, zero), true, "domain"), bare(t)) != "proved"
    given = (t("ne", x, zero),)
    assert status(Obligation("O4", "s", t.mul(x, y, inverse), y, given=given), bare(t)) == "proved"


@needs_z3
def test_an_arbitrary_element_is_not_a_chosen_one() -> None:
    """The element at which a maximum is attained must not stand for all of them."""
    t = Terms()
    x = _leaf(t, "x", "j")
    m = t.reduce("max", ("j",), x)
    at_max = t("where", t("eq", x, m), x, t.const(0))
    for left, right in (
        (t.reduce("sum", ("j",), at_max), t.reduce("sum", ("j",), x)),
        (t.reduce("sum", ("j",), t("maximum", x, t.const(0))), t.reduce("sum", ("j",), x)),
        (t.reduce("argmax", ("j",), at_max), t.reduce("argmax", ("j",), x)),
        (t.reduce("min", ("j",), at_max), t.reduce("min", ("j",), x)),
    ):
        assert status(Obligation("O4", "s", left, right), bare(t)) != "proved"


@needs_z3
def test_lists_of_infinities_of_either_sign_differ() -> None:
    t = Terms()
    x, c = _leaf(t, "x", "j"), t("tensor", attr=Leaf("c", ("j",), frozenset({"bool"})))
    up, down = (t("where", c, t.special(s), x) for s in ("oo", "-oo"))
    for kind in ("argmax", "argmin", "max", "min", "sum"):
        o = Obligation("O4", "s", t.reduce(kind, ("j",), up), t.reduce(kind, ("j",), down))
        assert status(o, bare(t)) != "proved"
        same = Obligation("O4", "s", t.reduce(kind, ("j",), up), t.reduce(kind, ("j",), up))
        assert status(same, bare(t)) == "proved"


@needs_z3
def test_hostile_powers_are_left_out_in_words() -> None:
    for left in (("pow", ("add", "a", 1), 10**30), ("pow", ("pow", ("pow", 3, 99), 99), 99)):
        t, o = lemma(("big", left, 1))
        assert status(o, bare(t)) == "unknown" and "not expressed" in text(o, bare(t))
        assert _answer(text(o, bare(t))) == "sat"


@needs_z3
def test_the_facts_about_a_true_obligation_have_a_model() -> None:
    """Without its negation a text is not contradictory: what is proved is not proved from nonsense."""
    for name in ("logsumexp", "variance", "argmax", "entropy"):
        doc = certificate(name).document
        for o in doc.obligations:
            assert asked(z3, premises(problem(o, doc), []), 200_000).status != "unsat"


@needs_z3
def test_a_bound_axis_is_not_moved_with_a_free_one() -> None:
    """Nested sums that bind the name of a free axis: Σ_j Σ_d over what is itself a sum over j."""
    t = Terms()
    x, y = _leaf(t, "x", "j", "d"), _leaf(t, "y", "j")
    total = t.reduce("sum", ("j",), x)
    nested = t.reduce("sum", ("d",), t.reduce("sum", ("j",), t.mul(y, total)))
    apart = t.mul(t.reduce("sum", ("j",), y), t.reduce("sum", ("d", "j"), x))
    assert status(Obligation("O4", "s", nested, apart), bare(t)) == "proved"
    wrong = t.reduce("sum", ("d", "j"), t.mul(y, x))
    assert status(Obligation("O4", "s", nested, wrong), bare(t)) != "proved"
    other = t.reduce("sum", ("d~1",), t.reduce("sum", ("j",), t.renamed(x, {"d": "d~1"})))
    whole = t.reduce("sum", ("d", "j"), x)
    assert status(Obligation("O4", "s", other, whole), bare(t)) == "proved"
    assert status(Obligation("O4", "s", other, t.reduce("sum", ("j",), x)), bare(t)) != "proved"
