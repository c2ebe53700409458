"""Displays: computed from what they show, well formed, and honest about corrections, witnesses and refutations."""

from __future__ import annotations

import ast
import io
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import redalg as ra
from redalg.algebra.corrections import corrected
from redalg.display import html, plain, show
from redalg.display.forms import sections
from redalg.display.formulas import part_latex
from redalg.explain.explanation import merged, statistics
from redalg.explore import kernel
from redalg.graph import node as g
from redalg.graph.node import Node, leaves, walk
from redalg.proofs import audit
from redalg.text import colour
from redalg.text.latex import spec_rows
from tests.support.forms import Forms, form_of
from tests.support.pages import well_formed
from tests.support.places import ROOT

MAD = "u = mean[j](x[j]); return y = sum[j](abs({0} * x[j] - {0} * u))"
TEXTS = {
    "anchored": "m = max[j]({0} * x[j]); return y = sum[j](exp({0} * x[j] - m))",
    "moments": "u = mean[j](x[j]); return y = sum[j]((x[j] - u)**2) / {0}",
    "plain sum": "return y = sum[j]({0} * x[j])",
    "kept axis": "m = max[j](x[i,j]); return y = exp(x[i,j] - m) / {0}",
    "top": "return y = topk[j:{0}:k](x[j]).values",
    "map": "return y = {0} * x[j]",
}
FORMS = Forms({name: text.format(3) for name, text in TEXTS.items()})
KINDS = [
    "spec",
    *(f"form, {name}" for name in TEXTS),
    *[
        "refusal",
        "undecided",
        "certificate",
        "report",
        "certificate of a refusal",
        "refuted",
        "audit",
        "run",
        "cpu run",
    ],
    *["printed kernel", "traffic"],
]
CATALOG = [
    "softmax",
    "attention_causal",
    "variance",
    "skewness",
    "linear_regression",
    "layer_norm_gemm",
    "argmax",
    "moe_renormalised",
    "softmax_entropy",
    "weighted_geometric_mean",
    "max_deviation",
    "batch_norm",
]


@cache
def everything() -> dict[str, Any]:
    """One of every kind that has a display."""
    form, refused = FORMS["anchored"], ra.verdict(ra.parse(MAD.format(1)))
    return {
        "spec": form.spec,
        **{f"form, {name}": f for name, f in FORMS.items()},
        "refusal": refused,
        "undecided": ra.Undecided("sum[j](x[j])", "stage1 of the spec", "it is <not> known", "wait", stage="stage1"),
        "certificate": form.certificate,
        "report": form.certificate.verify(),
        "certificate of a refusal": refused.certificate,
        "refuted": refused.certificate.verify(),
        "audit": audit(max, -float("inf"), commutative=True),
        "run": form.compile("numpy"),
        "cpu run": form.compile("cpu"),
        "printed kernel": kernel(form, {"j": 4096}),
        "traffic": ra.traffic(form.spec, {"j": 100}),
    }


def test_the_kinds_are_those_there_are() -> None:
    assert list(everything()) == KINDS


# --- well formed, and there at all -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_page_and_a_text(kind: str) -> None:
    thing = everything()[kind]
    found = thing._repr_mimebundle_()
    assert found["text/html"] == html(thing) and found["text/plain"] == plain(thing)
    assert len(well_formed(found["text/html"]).words.strip()) > 10 and found["text/plain"].strip()
    out = io.StringIO()
    show(thing, out)
    assert out.getvalue() == plain(thing) + "\n"


@pytest.mark.parametrize("name", CATALOG)
def test_pages_of_catalog_forms_are_well_formed(name: str) -> None:
    form = form_of(name)
    for thing in (form.spec, form, form.certificate):
        well_formed(html(thing))
    latex = form._repr_latex_()
    assert latex.count("{") == latex.count("}") and latex.count(r"\begin") == latex.count(r"\end")


def test_what_is_written_by_a_user_is_escaped() -> None:
    error = ra.Undecided("<script>alert(1)</script>", stage="<b>", missing="a & b")
    page = html(error)
    assert "<script>" not in page and "&lt;script&gt;" in page and "a &amp; b" in page


def test_an_object_without_a_display_is_refused() -> None:
    with pytest.raises(ra.RedalgError, match="a float"):
        html(1.5)


def test_a_form_has_a_short_repr() -> None:
    assert repr(form_of("variance")) == "<Form of var along j; state n, A_x, avg_x, avg_x2; 1 read>"
    assert len(repr(form_of("layer_norm_gemm").certificate.verify())) < 40


# --- computed --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TEXTS)
def test_a_changed_constant_changes_every_display(name: str) -> None:
    before, after = (ra.derive_incremental(ra.parse(TEXTS[name].format(k))) for k in (3, 7))
    for view in (html, plain):
        assert view(before) != view(after) and view(before.spec) != view(after.spec)
    assert before._repr_latex_() != after._repr_latex_()
    assert "7" in re.sub(r"<details>.*</details>", "", html(after), flags=re.S)
    assert html(before.compile("cpu")) != html(after.compile("cpu"))
    if before.slots:
        assert html(before.certificate) != html(after.certificate)


def test_a_changed_constant_changes_the_refusal() -> None:
    refused, other = (ra.verdict(ra.parse(MAD.format(n))) for n in (1, 7))
    assert isinstance(refused, ra.NotDecomposable) and isinstance(other, ra.NotDecomposable)
    assert html(refused) != html(other) and plain(refused) != plain(other)
    assert html(refused.certificate) != html(other.certificate)


@pytest.mark.parametrize("name", CATALOG)
def test_the_definition_stands_on_the_left_and_the_form_on_the_right(name: str) -> None:
    form = form_of(name)
    head, (left, right) = well_formed(html(form)).tables[0]
    assert head == ["definition", f"incremental form along {','.join(form.plan.axis)}"]
    for text, side in [*((row, left) for row in spec_rows(form.spec)), *((row, right) for row in equations(form))]:
        assert f"{text[0]} &= {text[1]}" in side
    assert [word for word in ("lift", "combine", "finalize") if word in right] == ["lift", "combine", "finalize"]


def equations(form: ra.Form) -> list[tuple[str, str]]:
    return [row for _, found in sections(form) for row in found]


def test_a_page_lists_every_slot_with_anchor_dtype_and_monoid() -> None:
    for name in CATALOG:
        form = form_of(name)
        rows = well_formed(html(form)).tables[1]
        assert rows[0] == ["slot", "⊕", "shape", "dtype", "anchor", "holds"]
        assert [row[1:4:2] for row in rows[1:]] == [[s.monoid, s.dtype] for s in form.slots]
        for row, info in zip(rows[1:], form.slots, strict=True):
            anchors = [a for a in (info.anchor or "").split(", ") if a]
            assert row[0] == f"${part_latex(info.name)}$" and row[5]
            assert row[4] == ", ".join(f"${part_latex(a)}$" for a in anchors)


def test_renaming_a_tensor_renames_it_everywhere() -> None:
    text = TEXTS["moments"].format(3)
    page = html(ra.derive_incremental(ra.parse(text.replace("x", "weird"))))
    assert r"{\mathrm{weird}}_{j}" in page and not re.search(r"\bx\b", page)


def literals(path: Path) -> list[str]:
    """Strings of a module that are not docstrings."""
    tree = ast.parse(path.read_text())
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    documented = [n.body[0] for n in ast.walk(tree) if isinstance(n, kinds) and n.body]
    docs = {id(n.value) for n in documented if isinstance(n, ast.Expr)}
    return [
        n.value
        for n in ast.walk(tree)
        if isinstance(n, ast.Constant) and isinstance(n.value, str) and id(n) not in docs
    ]


WORDS = {"min", "max", "mean", "argmax", "argmin", "entropy", "covariance", "variance", "absmax", "top_k"}


def test_no_display_holds_the_name_or_the_text_of_a_catalog_spec() -> None:
    shows = [*(ROOT / "redalg" / "display").glob("*.py"), *(ROOT / "redalg" / "explore").glob("*.py")]
    shows += [*(ROOT / "redalg" / "pictures").glob("*.py")]
    shows += [*(ROOT / "redalg" / "explain").glob("*.py"), *(ROOT / "redalg" / "text").glob("*.py")]
    names = set(ra.catalog) - WORDS
    statements = {s.strip() for n in ra.catalog for s in str(ra.catalog[n]).split(";") if len(s.strip()) > 24}
    assert len(shows) > 20 and len(statements) > 100
    for path in shows:
        for text in literals(path):
            assert not [n for n in names if re.fullmatch(rf"(redalg\.)?{n}", text)], (path.name, text)
            assert not [s for s in statements if s in text], (path.name, text)


def test_no_module_but_the_catalog_holds_the_text_of_a_catalog_spec() -> None:
    sources = [p for f in ("redalg", "kernels", "proofs") for p in (ROOT / f).rglob("*.py")]
    sources = [p for p in sources if p.parent.name != "specs" and p.name != "demo.py"]
    statements = {s.strip() for n in ra.catalog for s in str(ra.catalog[n]).split(";") if len(s.strip()) > 30}
    held = "\n".join(text for p in sources for text in literals(p))
    assert not [s for s in statements if s in held]


# --- corrections -----------------------------------------------------------------------------------------------------


def unmarked(n: Node) -> Node:
    if n.op == "marked":
        return unmarked(n.args[0])
    args = tuple(map(unmarked, n.args))
    return g.add(*args) if n.op == "add" else g.rebuild(n, args) if args else n


@pytest.mark.parametrize("name", CATALOG)
def test_marks_change_nothing_and_lie_on_anchors_alone(name: str) -> None:
    form = form_of(name)
    for _, p in statistics(form.plan):
        values = merged(p)
        found = corrected(p, values)
        anchors = {info.anchor for info in form.slots if info.anchor}
        known = {a for names in anchors for a in names.split(", ")}
        known |= {f"{a}_{side}" for a in known for side in "ab"}
        for key, node in found.items():
            assert unmarked(node) is unmarked(values[key])
            for m in walk(node):
                if m.op == "marked":
                    assert {leaf.attr.name for leaf in leaves(m, "state")} <= known


@pytest.mark.parametrize("name", CATALOG)
def test_every_slot_that_moves_shows_its_correction(name: str) -> None:
    form = form_of(name)
    for _, p in statistics(form.plan):
        found = corrected(p, merged(p))
        marked = {
            key.partition("_a'")[0].partition("_b'")[0]
            for key, n in found.items()
            if any(m.op == "marked" for m in walk(n))
        }
        moving = {part for s in p.slots for part in s.parts if s.moves and not s.vanishes}
        assert marked == moving


def test_a_page_sets_corrections_apart_and_nothing_else() -> None:
    page = html(FORMS["anchored"])
    assert page.count("#D55E00") == 3  # of both sides, and in the legend
    assert "#D55E00" not in html(FORMS["plain sum"]) and "#D55E00" not in html(FORMS["map"])


# --- terminals -------------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colour_is_where_the_terminal_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert colour.wanted(Terminal()) and not colour.wanted(io.StringIO()) and not colour.wanted(None)
    monkeypatch.setenv("TERM", "dumb")
    assert not colour.wanted(Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    out = Terminal()
    show(FORMS["anchored"], out)
    assert "\x1b" not in out.getvalue()
    monkeypatch.setenv("NO_COLOR", "")  # an empty value does not count
    show(FORMS["anchored"], out := Terminal())
    assert colour.CORRECTION in out.getvalue()


@pytest.mark.parametrize("kind", KINDS)
def test_colour_adds_nothing_but_colour(kind: str) -> None:
    thing = everything()[kind]
    coloured = plain(thing, colour=True)
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain(thing)


def test_the_coloured_part_is_the_correction() -> None:
    coloured = plain(FORMS["anchored"], colour=True)
    found = re.findall(re.escape(colour.CORRECTION) + r"(.*?)" + re.escape(colour.RESET), coloured)
    assert sorted(found) == ["exp(max_x_a - max_x)", "exp(max_x_b - max_x)"]
    assert colour.CORRECTION not in plain(FORMS["plain sum"], colour=True)


def test_importing_a_display_loads_nothing_of_what_it_shows() -> None:
    import subprocess
    import sys

    heavy = ("sympy", "numpy", "numba", "IPython")
    code = f"import redalg.display, redalg.explore, sys; print([m for m in {heavy} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT).stdout.strip() == "[]"
