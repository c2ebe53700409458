"""HTML that reads well without style sheets (code hosts remove them): tables, formulas, code, parts that fold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

LEFT = ' style="text-align:left;vertical-align:top"'


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def cell(value: object) -> str:
    return str(value) if isinstance(value, Markup) else escape(str(value), quote=False)


def formula(latex: str) -> Markup:
    """LaTeX (without dollars) as an inline formula in display style."""
    return Markup(f"${escape(latex, quote=False)}$") if latex else Markup("")


def aligned(rows: Iterable[tuple[str, str]]) -> Markup:
    """Equations below each other, aligned at the equal sign."""
    return formula(aligned_latex(rows))


def aligned_latex(rows: Iterable[tuple[str, str]]) -> str:
    lines = [f"{left} &= {right}" for left, right in rows]
    return "\\displaystyle \\begin{aligned}\n" + " \\\\\n".join(lines) + "\n\\end{aligned}" if lines else ""


def table(rows: Iterable[Sequence[object]], header: Sequence[object] = ()) -> Markup:
    """
    >>> table([["a", "x < y"]], ["name", "value"]).count("<th"), "x &lt; y" in table([["a", "x < y"]])
    (2, True)
    """
    head = f"<tr>{''.join(f'<th{LEFT}>{cell(c)}</th>' for c in header)}</tr>\n" if header else ""
    body = "\n".join(f"<tr>{''.join(f'<td{LEFT}>{cell(c)}</td>' for c in row)}</tr>" for row in rows)
    return Markup(f"<table>\n{head}{body}\n</table>")


def titled(title: str, *content: object) -> Markup:
    """A title in bold, and what follows it below."""
    return Markup(f"<b>{cell(title)}</b><br>\n" + "<br>\n".join(cell(c) for c in content if c))


def paragraph(*content: object) -> Markup:
    return Markup(f"<p>{' '.join(cell(c) for c in content)}</p>")


def folded(title: str, content: object) -> Markup:
    return Markup(f"<details><summary>{cell(title)}</summary>\n{cell(content)}\n</details>")


def preformatted(text: str) -> Markup:
    return Markup(f'<pre style="text-align:left">{escape(text.rstrip(), quote=False)}</pre>')


def python(source: str) -> Markup:
    """Python source, highlighted where Pygments is there (it is wherever IPython is)."""
    try:
        from pygments import highlight
        from pygments.formatters import HtmlFormatter
        from pygments.lexers import PythonLexer
    except ImportError:
        return preformatted(source)
    return Markup(highlight(source, PythonLexer(), HtmlFormatter(noclasses=True)))


def page(*content: object) -> str:
    return "<div>\n" + "\n".join(cell(c) for c in content if c) + "\n</div>"
