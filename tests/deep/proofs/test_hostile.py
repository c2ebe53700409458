"""Hostile certificates: a four-part error or "unknown", within a budget of steps, and nothing is ever executed.

`benchmarks/proofs/fuzz.py` does the same with 10^5 inputs and measures time and memory; here the steps are counted.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

import redalg as ra
from benchmarks.harness.refusals import REFUSED
from redalg.proofs.certificate import Certificate
from redalg.proofs.checker.check import DOUBTS, Judge, check
from redalg.proofs.checker.required import required
from redalg.proofs.document import work
from redalg.proofs.document.document import Document, Output
from redalg.proofs.document.errors import CertificateError
from redalg.proofs.document.reading import loads
from redalg.proofs.document.terms import Terms
from redalg.proofs.document.writing import as_json
from redalg.proofs.refusals.document import Refusal
from tests.support.false_lemmas import ILL_TYPED, lemma
from tests.support.forms import form_of
from tests.support.fuzzing import Original, damaged, judged, originals
from tests.support.hostile import EXPLOSIONS, pure, text, written
from tests.support.hostile_documents import FORMS, REFUSALS, TEXTS
from tests.support.places import ROOT

STEPS = "steps of work"


@cache
def intact(name: str) -> str:
    if name in REFUSED:
        return ra.verdict(ra.parse(REFUSED[name])).certificate.to_json()
    return form_of(name).certificate.to_json()


def refusal_of(act: Callable[[], object]) -> CertificateError:
    with pytest.raises(CertificateError) as caught:
        act()
    e = caught.value
    assert all(isinstance(part, str) and part for part in (e.what, e.where, e.why, e.fix)) and len(str(e)) < 3000
    str(e).encode()  # what is printed has no half of a surrogate in it
    return e


# --- a sample of the fuzz run ----------------------------------------------------------------------------------------

FORMS_FUZZED = (
    *("softmax_denominator", "variance", "argmax", "moe_softmax_topk", "fp8_per_token_gemm", "two_norm_safe"),
    *("attention", "ternary_quantise", "linf_distance", "geometric_mean"),
)
REFUSALS_FUZZED = ("mean absolute deviation", "regression by absolute residuals", "rounded quantisation")


@cache
def base() -> list[Original]:
    return originals([(name, intact(name)) for name in (*FORMS_FUZZED, *REFUSALS_FUZZED)])


@pytest.mark.parametrize("part", range(10))
def test_a_sample_of_the_fuzz_run_neither_crashes_nor_proves_what_is_false(part: int) -> None:
    found = [
        judged(original, damage) for original, _, damage in (damaged(base(), "test", 10 * i + part) for i in range(60))
    ]
    assert [f for f in found if f.kind in ("crashed", "false")] == []
    assert len({f.kind for f in found}) >= 3  # the inputs reach every gate


def test_the_judge_of_the_fuzz_run_sees_a_crash_an_error_without_parts_and_a_false_proof(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = base()[0]
    assert judged(original, original.text).kind == "proved, of the same spec"
    with monkeypatch.context() as m:
        m.setattr("redalg.proofs.document.reading.Reader.integer", lambda self, value, where: value)
        confused = original.text.replace('"left":', '"left":"1","x":', 1)
        assert judged(original, confused).kind == "refused when read"
        m.setattr("redalg.proofs.document.reading.Reader.record", lambda self, value, where, *keys: value)
        assert judged(original, confused).kind == "crashed"
    with monkeypatch.context() as m:
        m.setattr("redalg.proofs.checker.check.Judge.obstacle", lambda self, o: "")
        t = Terms()
        x = t("tensor", attr=t.state("x0").attr)
        assert judged(original, text(pure(t, t.add(x, t.const(1)), x))).kind == "false"
    with monkeypatch.context() as m:
        m.setattr(
            "tests.support.fuzzing.check", lambda doc: (_ for _ in ()).throw(CertificateError("what", "", "why", "fix"))
        )
        assert judged(original, original.text).kind == "crashed"


# --- texts and types -------------------------------------------------------------------------------------------------

WHY = {
    "a hundred thousand brackets": "nested more than 64",
    "deep objects": "nested more than 64",
    "a million digits": "too long",
    "a long fraction": "is not exact",
    "an exponent": "is not exact",
    "NaN": "is not exact",
    "infinity": "is not exact",
    "a key twice": "a key occurs twice",
    "too long": "at most 2000000 bytes",
    "an open string of escapes": "Unterminated string",
    "code": "Expecting value",
    "no UTF-8": "can't decode",
    "surrogates in bytes": "can't decode",
    "null": "exactly the fields",
    "a million empty lists": "exactly the fields",
    "a long string": "exactly the fields",
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_that_are_no_certificates_are_refused_in_four_parts(name: str) -> None:
    error = refusal_of(lambda: Certificate.from_json(TEXTS[name]))
    assert WHY.get(name, "") in error.why and error.where == "certificate"
    if len(TEXTS[name]) < 1000:
        assert WHY.get(name, "") in refusal_of(lambda: Refusal.from_json(TEXTS[name])).why


@pytest.mark.parametrize("value", [None, 3, [], {}, object()], ids=["None", "3", "list", "dict", "object"])
def test_what_is_no_text_is_refused(value: Any) -> None:
    assert "str or bytes" in refusal_of(lambda: Certificate.from_json(value)).why


def put(*path: Any) -> Callable[[Any], None]:
    *steps, last, value = path

    def change(data: Any) -> None:
        for step in steps:
            data = data[step]
        data[last] = value

    return change


def row(*items: Any) -> Callable[[Any], None]:
    return lambda data: data["terms"].append(list(items))


CONFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a version that is a truth": (put("version", True), "version 1"),
    "terms in an object": (put("terms", {}), "a list"),
    "a term that is a number": (put("terms", 0, 7), "a list"),
    "a term without an operation": (row(), "a text"),
    "an operation that is a list": (row(["add"], 0, 0), "a text"),
    "an unknown operation": (row("eval", 0), "no such operation"),
    "a method of the table": (row("__init__", 0), "no such operation"),
    "a term that reads itself": (lambda d: d["terms"].append(["exp", len(d["terms"])]), "stand before it"),
    "a term that reads a later one": (put("terms", 0, ["exp", 3]), "stand before it"),
    "a negative term": (row("exp", -1), "stand before it"),
    "a truth as a term": (row("exp", True), "an integer"),
    "a number of a term as text": (row("exp", "0"), "an integer"),
    "an integer of 19 digits": (row("exp", 10**18), "an integer"),
    "a number as a number": (row("const", 3), "a text"),
    "a number that is an expression": (row("const", "2**9999"), "integers or quotients"),
    "a number with an exponent": (row("const", "1e5"), "integers or quotients"),
    "a number of other digits": (row("const", "\u0663"), "integers or quotients"),
    "a number of 601 digits": (row("const", "1" * 601), "600 digits"),
    "a number of 2000 digits": (row("const", "1" * 2000), "at most 1202"),
    "a number over zero": (row("const", "1/0"), "denominator is 0"),
    "a power of one argument": (row("pow", 0), "another number"),
    "a sum of nothing": (row("add"), "another number"),
    "a cast to nothing": (row("cast"), "another number"),
    "a cast to an unknown format": (row("cast", "float7", 0), "known are"),
    "a cast to a list": (row("cast", [], 0), "known are"),
    "an unknown constant": (row("special", "tau"), "known are"),
    "an axis that is a number": (row("index", 3), "a text"),
    "a leaf without axes": (row("tensor", "x"), "a name, axes and a domain"),
    "an axis twice": (row("tensor", "x", ["i", "i"], []), "a name occurs twice"),
    "an unknown domain": (row("tensor", "x", [], ["secret"]), "known are"),
    "a leaf of 65 axes": (row("tensor", "x", [f"a{i}" for i in range(65)], []), "a list of 0 to 64"),
    "half a surrogate": (row("tensor", "\ud800", [], []), "printable"),
    "a line break in a name": (row("tensor", "x\n25 proved", [], []), "printable"),
    "an escape sequence in a name": (row("tensor", "\x1b[2K", [], []), "printable"),
    "a name of 201 characters": (row("tensor", "x" * 201, [], []), "at most 200"),
    "a reduction that is a list": (row("reduce", ["sum"], ["j"], None, 0), "known are"),
    "an unknown reduction": (row("reduce", "median", ["j"], None, 0), "known are"),
    "a reduction over nothing": (row("reduce", "sum", [], None, 0), "of the kind"),
    "a sum with parameters": (row("reduce", "sum", ["j"], [1, "k"], 0), "of the kind"),
    "a list along a number": (row("reduce", "topk_values", ["j"], [1, 2], 0), "of the kind"),
    "a list of a negative length": (row("reduce", "topk_values", ["j"], [-1, "k"], 0), "it is from 0"),
    "a list too long to count": (row("reduce", "topk_values", ["j"], [10**15, "k"], 0), "it is from 0"),
    "a monoid by name": (row("reduce", "monoid", ["j"], [0, "a"], 0), "of the kind"),
    "outputs in a list": (put("spec", "outputs", []), "an object of terms"),
    "an output of another type": (put("spec", "outputs", "var", None), "an integer"),
    "an axis that is a text": (put("spec", "axis", "j"), "a list"),
    "a flag that is a number": (put("outputs", 0, "keeps_axis", 0), "true or false"),
    "a kind that is a list": (put("passes", 0, "slots", 0, "kind", ["sum"]), "known are"),
    "a move of one part": (put("passes", 0, "slots", 0, "moves", [[0]]), "a list of 2 to 2"),
    "a further field": (put("status", "proved"), "exactly the fields"),
    "a missing field": (lambda d: d.pop("assumptions"), "exactly the fields"),
    "another hash": (put("spec_hash", "0" * 32), "has the hash"),
    "a hash that is an object": (put("spec_hash", {}), "has the hash"),
    "an assumption that is a list": (put("assumptions", [["cast_commutes"]]), "a text"),
    "variables of another type": (put("obligations", 0, "variables", [None]), "not those"),
    "3000 stages": (lambda d: put("stages", d["stages"] * 3000)(d), "a list of 0 to 2000"),
    "30,000 terms": (lambda d: d["terms"].extend([["true"]] * 30_000), "a list of 0 to 20000"),
}


@pytest.mark.parametrize("name", CONFUSED)
def test_type_confusion_is_refused_where_it_is(name: str) -> None:
    change, why = CONFUSED[name]
    data = json.loads(intact("variance"))
    change(data)
    assert why in refusal_of(lambda: Certificate.from_json(json.dumps(data)).verify()).why


# --- explosions ------------------------------------------------------------------------------------------------------


@pytest.fixture
def meters(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every meter that is opened."""
    opened: list[Any] = []
    plain = work._Meter.__init__

    def recorded(self: Any, steps: int) -> None:
        plain(self, steps)
        opened.append(self)

    monkeypatch.setattr(work._Meter, "__init__", recorded)
    return opened


REFUTABLE = {
    *("sum of maxima", "absolute values", "quantifiers", "many functions at points", "long rationals at points"),
    *("exponentials of infinities", "ties of products"),
}
PROVABLE = {
    *("root of a huge degree", "shared trees", "deep chain", "deep exponentials", "power of a cosine"),
    *("logarithm of a long number", "constants of one hash"),
}


@pytest.mark.parametrize("name", EXPLOSIONS)
def test_explosions_end_within_the_budget(name: str, meters: list[Any]) -> None:
    report = check(loads(written(name)))
    assert sorted(m.steps for m in meters) == sorted([work.STEPS, work.STEPS, DOUBTS])  # the last: to evaluate
    (finding,) = report.findings
    wanted = ("refuted",) if name in REFUTABLE else ("proved",) if name in PROVABLE else ("unknown", "tested")
    assert finding.status in wanted
    if finding.status in ("unknown", "tested"):
        assert finding.detail and isinstance(finding.detail, str)


def test_one_obligation_that_explodes_leaves_the_others_to_be_proved() -> None:
    t = Terms()
    hard, easy = EXPLOSIONS["power of a sum"](t), t.special("pi")
    doc = Document(
        t,
        ("j",),
        {"y": hard[1], "z": easy},
        {},
        (),
        (Output("y", hard[0], ()), Output("z", t.add(easy, t.const(0)), ())),
    )
    doc = replace(doc, obligations=required(doc))
    assert [f.status for f in check(loads(text(doc))).findings] == ["tested", "proved"]
    assert STEPS in str(check(loads(written("power of a sum"))))


FORMS_WHY = {
    "many slots and anchors": STEPS,
    "many moves": STEPS,
    "chain of exports": "too deeply",
    "parts that need each other": "only sums and products may read anchors",
    "many outputs": STEPS,
    "many divisors": "the spec and the form require it",
}


@pytest.mark.parametrize("name", FORMS)
def test_forms_that_are_long_to_state_are_refused_in_four_parts(name: str) -> None:
    doc = FORMS[name]()
    assert FORMS_WHY[name] in refusal_of(lambda: Certificate.from_json(json.dumps(as_json(doc))).verify()).why


LONG = {"functions of functions", "products of many factors", "derivatives without end", "derivatives of products"}


@pytest.mark.parametrize("name", sorted(set(REFUSALS) - LONG))
def test_refusals_that_are_long_to_check_are_refused_in_four_parts(name: str) -> None:
    certificate = Refusal.from_json(REFUSALS[name]())
    assert STEPS in refusal_of(certificate.verify).why


def test_the_budget_is_far_beyond_what_certificates_take(meters: list[Any]) -> None:
    for name in ("linear_regression", "attention_with_statistics", "jarque_bera"):
        meters.clear()
        assert Certificate.from_json(intact(name)).verify().proved
        assert max(m.steps - m.left for m in meters if m.steps != DOUBTS) < work.STEPS / 20


def test_steps_are_counted_inside_meters_and_shared_out() -> None:
    work.spend(10**12)  # nothing counts
    with work.metered(100):
        work.spend(40)
        with work.share(30), pytest.raises(work.Exhausted):
            work.spend(31)
        with work.metered(10**9):
            assert work.spent() == 71
            work.spend(29)
        with pytest.raises(work.Exhausted, match="100 steps"):
            work.spend()


@pytest.mark.parametrize("entry", ILL_TYPED, ids=lambda e: str(e[0]))
def test_operations_of_truths_prove_nothing_about_numbers(entry: tuple[Any, ...]) -> None:
    terms, obligation = lemma(entry)
    judge = Judge(Document(terms, ("j",), {}, {}, (), ()))
    assert "where a truth is expected" in judge.obstacle(obligation)


def test_a_chain_of_choices_is_typed_once() -> None:
    t = Terms()
    truth = t("tensor", attr=t.state("p", (), ("bool",)).attr)
    chosen = truth
    for _ in range(200):  # 2^200 paths
        chosen = t("where", truth, chosen, t("not", chosen))
    assert chosen.is_boolean


# --- nothing is executed ---------------------------------------------------------------------------------------------


def test_the_checker_calls_nothing_that_executes_text() -> None:
    forbidden = {"eval", "exec", "compile", "__import__", "getattr", "setattr", "globals", "vars", "open"}
    modules = {"importlib", "pickle", "marshal", "subprocess", "os", "ctypes", "runpy", "shelve"}
    read = {
        "reading",
        "proof",
        "document",
        "terms",
        "check",
        "normalform",
        "evaluate",
        "falsify",
        "required",
    }
    for name in sorted(read):
        for node in ast.walk(ast.parse(next((ROOT / "proofs").rglob(f"{name}.py")).read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in forbidden, f"{name}.py:{node.lineno}"
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {a.name.split(".")[0] for a in node.names} | {str(getattr(node, "module", "")).split(".")[0]}
                assert not names & modules, f"{name}.py:{node.lineno}"


WATCHED = """
import sys
from redalg.proofs.certificate import Certificate
from redalg.proofs.refusals.document import Refusal
texts = sys.stdin.read().split("\\x00")
intact = Certificate.from_json(texts[0])
intact.verify()
try:
    Certificate.from_json(texts[1]).verify()
except ValueError as e:
    str(e)
watching, acts = True, "exec compile import open os. subprocess socket ctypes shutil pickle marshal code.".split()
def hook(event, args):
    if watching and event.startswith(tuple(acts)):
        print("event", event, args, flush=True)
sys.addaudithook(hook)
for text in texts:
    try:
        print(Certificate.from_json(text).verify())
    except ValueError as e:
        print("refused" if e.what and e.where and e.why and e.fix else "crashed")
watching = False
"""


def test_reading_and_verifying_open_import_and_execute_nothing() -> None:
    evil = "__import__('os').system('touch evil')"
    good = intact("variance")
    texts = [good, good.replace('"sum"', '"max"', 1), good.replace('"avg_x"', json.dumps(evil)), evil, f'"{evil}"']
    out = subprocess.run(
        [sys.executable, "-c", WATCHED], input="\0".join(texts), capture_output=True, text=True, cwd=ROOT, check=True
    )
    lines = out.stdout.split("\n")
    assert lines[0] == "25 proved" and "refused" in lines
    assert not [x for x in lines if x.startswith(("event", "crashed"))]
