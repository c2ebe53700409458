"""Line breaks: where they are put, what is left alone, and that the syntax tree stays the same."""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import dedent

import pytest

from redalg.kernels.wrapping import documented, wrapped

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted(p for folder in ("kernels", "redalg", "tests") for p in (ROOT / folder).rglob("*.py"))


def tree(source: str) -> str:
    return ast.dump(ast.parse(source))


def broken(source: str, width: int) -> str:
    text = wrapped(source, width)
    assert tree(text) == tree(source)
    assert wrapped(text, width) == text
    return text


@pytest.mark.parametrize("source, width, expected", [
    ("store(values, first + place, total)", 30, """
        store(
            values, first + place,
            total
        )"""),
    ("total = first * second + third * fourth - last", 30, """
        total = (
            first * second
            + third * fourth
            - last
        )"""),
    ("best = found if found > best_of_all else best_of_all", 40, """
        best = (
            found
            if found > best_of_all
            else best_of_all
        )"""),
    ("while first < length and not (finished or empty):\n    pass", 40, """
        while (
            first < length
            and not (finished or empty)
        ):
            pass"""),
    ("for k in range(first + offset, last + offset):\n    pass", 40, """
        for k in range(
            first + offset, last + offset
        ):
            pass"""),
    ("def kernel(x, y, size_i, size_j, x_s0, y_s0):\n    return x", 30, """
        def kernel(
            x, y, size_i, size_j,
            x_s0, y_s0
        ):
            return x"""),
    ("from redalg.kernels.gpu_math import exp_f32, log_f32, max_nan_f32", 40, """
        from redalg.kernels.gpu_math import (
            exp_f32, log_f32, max_nan_f32
        )"""),
    ("a[0], a[1], a[2], a[3], a[4], a[5] = load(x, at)", 24, """
        (
            a[0], a[1], a[2],
            a[3], a[4], a[5]
        ) = load(x, at)"""),
    ("mean, count = combine(mean, count, mean_b, count_b)", 40, """
        mean, count = combine(
            mean, count, mean_b, count_b
        )"""),
    ("total += weights[row + column * stride] * values[row]", 40, """
        total += (
            weights[row + column * stride]
            * values[row]
        )"""),
    ("x = f(first_name + second_name * (third_name - fourth_name), last)", 40, """
        x = f(
            first_name
            + second_name
                * (third_name - fourth_name),
            last
        )"""),
    ("share = (length + 1023) // 1024 * 512  # per piece, in whole tiles", 40, """
        # per piece, in whole tiles
        share = (length + 1023) // 1024 * 512"""),
    ("return first_result, second_result, third_result", 40, """
        return (
            first_result, second_result,
            third_result
        )"""),
    ("x = -some_value ** 2 + [a, b][index_of_it] - {key: value}[key]", 40, """
        x = (
            -some_value ** 2
            + [a, b][index_of_it]
            - {key: value}[key]
        )"""),
])  # fmt: skip
def test_a_break_is_where_a_reader_looks_for_it(source: str, width: int, expected: str) -> None:
    text = broken(source, width)
    assert text == dedent(expected).strip("\n")
    assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize("source", [
    "x = 1",
    "a_rather_long_name = another_rather_long_name",
    "total = 'a string that is longer than the width'",
    "x = [\n    first, second, third, fourth, fifth, sixth, seventh\n]",
    '"""A docstring whose lines are long,\nand (some, of, them, look, like, code) to somebody."""',
    "# a comment (of, some, length), which stands by itself",
    "first = 1; second = 2; third = 3; fourth = 4; fifth = 5",
])  # fmt: skip
def test_what_has_no_break_is_left_alone(source: str) -> None:
    assert broken(source, 24) == source


@pytest.mark.parametrize("source", [
    "first, second = third, fourth = values(of, some, function)",  # both targets stay outside parentheses
    "identity: tuple[int, float, bool] | None = None",
    "value: dict[str, tuple[int, ...]]",  # in parentheses it would be no annotation
    "found = lambda first, second: first * second + first - second",
    "found = [value for value in values if value > bound and value < limit]",
    "if first: second = function(third, fourth, fifth)",
    "single = (one_single_element_with_a_long_name,)",
    "single = one_single_element_with_a_long_name, ",
    "call(first, *second, third=fourth + fifth, **sixth)",
    "x = values[first:second, third:fourth, ::fifth]",
    "x = -first - -second * ~third ** -fourth + not_fifth",
    "x = first is not second and third not in fourth or not fifth",
    "assert first == second, (third, fourth, fifth, sixth)",
    "raise RuntimeError(first, second, third) from fourth",
    "del first[second], third[fourth], fifth[sixth]",
    "@decorator(first, second, third, fourth)\ndef f(): pass",
    "x = (yield first_name, second_name, third_name)",
    "import first.second.third as fourth, fifth.sixth",
    "from first import second as third, fourth as fifth",
    "text = f'{first(second, third)} {fourth + fifth}' + sixth",
    "for first, second in zip(third, fourth), fifth: pass",
    "for first, second in third, fourth, fifth, sixth:\n    pass",
    "if (first := second + third) > fourth + fifth:\n    pass",
])  # fmt: skip
@pytest.mark.parametrize("width", [8, 16, 24, 40])
def test_any_statement_keeps_its_tree(source: str, width: int) -> None:
    broken(source, width)


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_the_files_of_the_project_keep_their_trees(path: Path) -> None:
    source = path.read_text()
    text = wrapped(source, 48)
    assert tree(text) == tree(source)


def test_a_docstring_breaks_at_spaces_only() -> None:
    lines = documented("What it is.", ["y = " + " + ".join(["value[i,j]"] * 20), "return y"], 60)
    assert max(map(len, lines)) <= 60 and lines[0] == '    """What it is.' and lines[1] == ""
    assert " ".join(" ".join(lines[2:-2]).split()) == "y = " + " + ".join(["value[i,j]"] * 20)
    assert ast.get_docstring(ast.parse("\n".join(["def f():", *lines])).body[0]) is not None  # type: ignore[arg-type]
