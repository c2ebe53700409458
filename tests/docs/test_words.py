"""The words of the field: none of the project's own is left in pages or in texts for users (docs/glossary.md)."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from functools import cache
from pathlib import Path

import pytest

from redalg.kernels.ir.layouts import View
from redalg.kernels.pipeline import plan
from redalg.kernels.schedule.target import H200
from tests.support.forms import form_of
from tests.support.modules import SOURCES
from tests.support.places import ROOT

PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES += [ROOT / "benchmarks" / "README.md", *sorted((ROOT / "notebooks").glob("*.md"))]
PHRASES = (  # nowhere, in no text of the library either
    r"brought (to shared memory )?ahead",
    r"cop(y|ies) that runs? behind",
    r"anchors? that stays?",
    r"blocks,? (that |which )?wait for each other",
    r"heads? over logits",
    r"optimistic",
    r"end(s|ing)? in a (product of matrices|matrix product)",
    r"abreast",
    r"with a lead of",
)
WORDS = (  # in no page
    *(
        r"lanes?",
        r"(?<!TMA )boxes",
        r"teams?",
        r"pieces?",
        r"picks",
        r"twins?",
        r"voids?",
        r"refusing",
        r"refuting",
    ),
    *(r"times NumPy", r"product of matrices", r"products of matrices"),
)
IDENTIFIERS = (  # no part of a name in the code of kernels; `lane` is a thread of a warp there
    "teams?|pieces?|notes?|again|ahead|room|lead|picks|picked|points|pointed|packing|voids|nothing|abreast|beside|laned|twins"
)
PRINTED = (  # no part of a name in printed kernels
    "teams?|room|notes|ahead|bring|brought|coming|told|theirs|missed|weigh|copies|turns?|publish|nearby|near|nth|home"
)
COMMENTED = (
    "teams?|pieces?|notes|ahead|room|lead|picks|voids?|abreast|beside|twins?|told|brought"  # in no comment there
)
HEADS = ("Grid", "Block", "Loop nest", "Shared memory")  # what a printed kernel begins with
KEPT = ROOT / "kernels" / "ir" / "schedule.py"  # the names that are deprecated


def prose(page: Path) -> str:
    """A page without its examples and code spans, which are held by running them; one line to a paragraph."""
    text = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text(), flags=re.M | re.S)
    return re.sub(r"\n(?=\S| +[^*\s-])\s*", " ", text)


@cache
def texts(path: Path) -> tuple[str, ...]:
    """The string literals of a module, docstrings too."""
    found = (n.value for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Constant))
    return tuple(" ".join(value.split()) for value in found if isinstance(value, str))


def loosened(source: str) -> str:
    """A module's text as if all of it were one literal: what literals say, however they are cut, is said in it."""
    return re.sub(r"(?:\\[nt]|[\s\"'\\])+(?:[rbf]{1,2}[\"']+)?", " ", source)


@cache
def suspected() -> dict[str, Path]:
    """The modules that may have a phrase of ours in a literal: few, so that the others need not be parsed."""
    ours = re.compile(rf"\b(?:{'|'.join(PHRASES)})\b", re.I)
    return {m: path for m, path in SOURCES.items() if path != KEPT and ours.search(loosened(path.read_text()))}


def used(pattern: str, text: str) -> list[str]:
    return [text[max(0, m.start() - 30) : m.end() + 30] for m in re.finditer(rf"\b{pattern}\b", text, re.I)]


@pytest.mark.parametrize("pattern", PHRASES + WORDS)
def test_a_page_has_no_word_of_ours(pattern: str) -> None:
    assert {page.name: found for page in PAGES if (found := used(pattern, prose(page)))} == {}


@pytest.mark.parametrize("pattern", PHRASES)
def test_no_text_of_the_library_has_a_phrase_of_ours(pattern: str) -> None:
    assert {m: hits for m, path in suspected().items() for t in texts(path) if (hits := used(pattern, t))} == {}


def test_a_phrase_is_suspected_however_its_literal_is_cut() -> None:
    for source in (
        '"rows with a lead of"',
        '"rows with "\n        f"a lead of"',
        "'with a\\nlead of'",
        '"""with\n    a lead of"""',
    ):
        assert used(PHRASES[-1], loosened(source)), source


def names(path: Path) -> set[str]:
    """The identifiers of a module's own code, without those of the text that it prints."""
    with path.open("rb") as file:
        return {t.string for t in tokenize.tokenize(file.readline) if t.type == tokenize.NAME}


def test_no_name_in_the_kernels_is_of_ours() -> None:
    ours = re.compile(rf"(?:^|_)(?:{IDENTIFIERS})(?:_|$)")
    assert ours.search("room_bytes") and ours.search("_again") and not ours.search("headroom")
    kernels = {m: path for m, path in SOURCES.items() if m.startswith("redalg.kernels")}
    assert len(kernels) > 100
    assert {m: found for m, path in kernels.items() if (found := {n for n in names(path) if ours.search(n)})} == {}


@cache
def kernels() -> dict[str, str]:
    """A kernel of every skeleton for tensor cores, and the golden ones."""
    rows = {"h": 4, "i": 4096, "j": 4096, "d": 128, "e": 128}
    wanted: list[tuple[str, dict[str, int], str]] = [
        ("attention_causal", rows, "tensor"),
        ("attention_scaled", rows, "frozen_max"),
        ("attention", {**rows, "i": 64}, "tensor"),
        ("attention", {**rows, "e": 512}, "tensor"),
        ("attention", rows, "mma"),
        ("splade", {"b": 4, "s": 256, "v": 4096, "d": 768}, "tensor"),
        ("layer_norm_gemm", {"i": 4096, "j": 4096, "k": 4096}, "fused_prologue"),
    ]
    found = {path.name: path.read_text() for path in (ROOT / "tests" / "golden").glob("*_cuda.py")}
    for name, sizes, schedule in wanted:
        form = form_of(name)
        tensors = form.spec.tensors
        dtypes = {t.name: ("bool" if "bool" in t.domain else "bfloat16") if t.axes else float for t in tensors}
        views = {t.name: View.contiguous(tuple(sizes[a] for a in t.axes)) for t in tensors if t.axes}
        planned = plan(form, dtypes, views, H200, schedule=schedule)
        found[f"{name} {sizes} {schedule}"] = planned.module.source
        if planned.second is not None:
            found[f"{name} {sizes} {schedule}, second"] = planned.second.module.source
    return found


def said(source: str) -> tuple[set[str], list[str]]:
    """The names and the comments of generated code."""
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    comments = [t.string for t in tokens if t.type == tokenize.COMMENT]
    return {t.string for t in tokens if t.type == tokenize.NAME}, comments


def test_no_word_in_a_printed_kernel_is_of_ours() -> None:
    ours = re.compile(rf"(?:^|_)(?:{PRINTED})(?:_|$)")
    assert len(kernels()) > 20
    for label, source in kernels().items():
        names, comments = said(source)
        assert not {n for n in names if ours.search(n)}, label
        assert not [c for c in comments if used(f"({COMMENTED})", c)], label
        assert not [c for c in comments for phrase in PHRASES if used(phrase, c)], label


def test_a_printed_kernel_says_who_computes_what() -> None:
    """Its grid, block, loop nest, shared memory and barriers, before its first statement."""
    for label, source in kernels().items():
        if ", second" in label and "splits" in source:
            assert "# Grid: a thread for every row" in source, label
            continue
        _, comments = said(source[source.rindex("@cuda.jit\n") :])
        heads = [c.split(":")[0].removeprefix("# ") for c in comments if re.match(r"# [A-Z]\w*( \w+)?:", c)]
        assert [h for h in heads if h in HEADS][: len(HEADS)] == list(HEADS), label
    wgmma = kernels()[next(k for k in kernels() if k.startswith("attention_causal"))]
    plain = [" ".join(part.split()) for part in wgmma.split("#")]
    assert "left_tile, byte 0: 32768 bytes, Q, 128 x 128 bfloat16" in plain
    assert "right_tile, byte 32768: 2 stages of 32768 bytes, K, 128 x 128 bfloat16" in plain


def test_a_word_is_found_where_it_stands() -> None:
    assert used("lanes?", "rows with lanes") and not used("lanes?", "planes")


def test_every_term_of_the_glossary_has_its_line() -> None:
    rows = re.findall(r"^\| (?!term|-)(.+?) \| (.+?) \|$", (ROOT / "docs" / "glossary.md").read_text(), re.M)
    assert len(rows) > 40 and len({term for term, _ in rows}) == len(rows)
    assert all(meaning for _, meaning in rows)
