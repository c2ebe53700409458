"""Line breaks: where they are put, what is left alone, and that the syntax tree stays the same."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from redalg.source.breaking import documented
from redalg.source.render import render
from redalg.source.statements import statements


def tree(source: str) -> str:
    return ast.dump(ast.parse(source))


def broken(source: str, width: int) -> str:
    text = render(statements(source), width).rstrip()
    assert tree(text) == tree(source)
    assert render(statements(text), width).rstrip() == text
    return text


@pytest.mark.parametrize(
    "source, width, expected",
    [
        (
            "store(values, first + place, total)",
            30,
            """
        store(
            values, first + place,
            total
        )""",
        ),
        (
            "total = first * second + third * fourth - last",
            30,
            """
        total = (
            first * second
            + third * fourth
            - last
        )""",
        ),
        (
            "best = found if found > best_of_all else best_of_all",
            40,
            """
        best = (
            found
            if found > best_of_all
            else best_of_all
        )""",
        ),
        (
            "while first < length and not (finished or empty):\n    pass",
            40,
            """
        while (
            first < length
            and not (finished or empty)
        ):
            pass""",
        ),
        (
            "for k in range(first + offset, last + offset):\n    pass",
            40,
            """
        for k in range(
            first + offset, last + offset
        ):
            pass""",
        ),
        (
            "def kernel(x, y, size_i, size_j, x_s0, y_s0):\n    return x",
            30,
            """
        def kernel(
            x, y, size_i, size_j,
            x_s0, y_s0
        ):
            return x""",
        ),
        (
            "from redalg.kernels.cuda.intrinsics.math import exp_f32, log_f32, max_nan_f32",
            50,
            """
        from redalg.kernels.cuda.intrinsics.math import (
            exp_f32, log_f32, max_nan_f32
        )""",
        ),
        (
            "a[0], a[1], a[2], a[3], a[4], a[5] = load(x, at)",
            24,
            """
        (
            a[0], a[1], a[2],
            a[3], a[4], a[5]
        ) = load(x, at)""",
        ),
        (
            "mean, count = combine(mean, count, mean_b, count_b)",
            40,
            """
        mean, count = combine(
            mean, count, mean_b, count_b
        )""",
        ),
        (
            "total += weights[row + column * stride] * values[row]",
            40,
            """
        total += (
            weights[row + column * stride]
            * values[row]
        )""",
        ),
        (
            "x = f(first_name + second_name * (third_name - fourth_name), last)",
            40,
            """
        x = f(
            first_name
            + second_name
                * (third_name - fourth_name),
            last
        )""",
        ),
        (
            "share = (length + 1023) // 1024 * 512  # per split, in whole tiles",
            40,
            """
        # per split, in whole tiles
        share = (length + 1023) // 1024 * 512""",
        ),
        (
            "return first_result, second_result, third_result",
            40,
            """
        return (
            first_result, second_result,
            third_result
        )""",
        ),
        (
            "x = -some_value ** 2 + [a, b][index_of_it] - {key: value}[key]",
            40,
            """
        x = (
            -some_value**2
            + [a, b][index_of_it]
            - {key: value}[key]
        )""",
        ),
    ],
)
def test_a_break_is_where_a_reader_looks_for_it(source: str, width: int, expected: str) -> None:
    text = broken(source, width)
    assert text == dedent(expected).strip("\n")
    assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize(
    "source",
    [
        "x = 1",
        "a_rather_long_name = another_rather_long_name",
        'total = "a string that is longer than the width"',
        "# a comment (of, some, length), which stands by itself",
    ],
)
def test_what_has_no_break_is_left_alone(source: str) -> None:
    assert broken(source, 24) == source


@pytest.mark.parametrize(
    "source",
    [
        "first, second = third, fourth = values(of, some, function)",  # both targets stay outside parentheses
        "found = lambda first, second: first * second + first - second",
        "found = [value for value in values if value > bound and value < limit]",
        "if first: second = function(third, fourth, fifth)",
        "single = (one_single_element_with_a_long_name,)",
        "single = one_single_element_with_a_long_name, ",
        "call(first, *second, third=fourth + fifth, **sixth)",
        "x = values[first:second, third:fourth, ::fifth]",
        "x = -first - -second * ~third ** -fourth + not_fifth",
        "x = first is not second and third not in fourth or not fifth",
        "raise RuntimeError(first, second, third)",
        "@decorator(first, second, third, fourth)\ndef f(): pass",
        "import first.second.third as fourth",
        "from first import second, third, fourth, fifth",
        "x = (a < b) < c != (d == e)",
        "x = a - (b - c) / (d / (e * f)) % g",
        "x = (a ** b) ** c ** (-d) + (-a) ** b + -a ** b",
        "x = (a if b else c) if (d if e else f) else (g if h else i)",
        "x = (a | b) & c ^ d << (e >> f) | (a < b) & (c != d) | ~e",
        "x = not (a and (b or c)) or (not d and e)",
        "x = (not a) == b, (a, (b,), ()), [a, (b, c)], {a, b}",
        "x = a[b, (c, d)][:, ::2][(a,)], f(a)(b).c[d:e]",
        "x = (a, b)[0] + (lambda y: y)(c) + (a := b)",
        "x = f(a, *b, c=(d, e), **g) + f((a, b)) + 0x7fff0000 + 1e-07 + 'it\\'s' + \"two\"",
        "a = b = c, d = f(e)",
        "if a:\n    pass\nelse:\n    if b:\n        x = 1\n    else:\n        x = 2",
        "for first, second in zip(third, fourth), fifth: pass",
        "for first, second in third, fourth, fifth, sixth:\n    pass",
        "if (first := second + third) > fourth + fifth:\n    pass",
    ],
)
@pytest.mark.parametrize("width", [8, 16, 24, 40])
def test_any_statement_keeps_its_tree(source: str, width: int) -> None:
    broken(source, width)


def test_a_docstring_breaks_at_spaces_only() -> None:
    lines = documented("What it is.", ["y = " + " + ".join(["value[i,j]"] * 20), "return y"], 60)
    assert max(map(len, lines)) <= 60 and lines[0] == '    """What it is.' and lines[1] == ""
    assert " ".join(" ".join(lines[2:-2]).split()) == "y = " + " + ".join(["value[i,j]"] * 20)
    assert ast.get_docstring(ast.parse("\n".join(["def f():", *lines])).body[0]) is not None  # type: ignore[arg-type]
