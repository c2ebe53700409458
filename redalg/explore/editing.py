"""`edit`: the text of a spec and, beside it, what the engine says of it: form, refusal, or what is wrong with it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from redalg.api import verdict
from redalg.display import html, plain
from redalg.display import markup as m
from redalg.errors import RedalgError
from redalg.explore.widgets import view
from redalg.language.grammar import parse
from redalg.text.colour import wanted


class Edit:
    """A text and its verdict: a `Form`, `NotDecomposable`, `Undecided`, or the error in the text.

    In a notebook with ipywidgets the text stands in a box, and the verdict follows it; ``edit.text = "…"`` does the
    same anywhere. `changes` counts how often a verdict was computed.

    >>> trial = Edit("return y = sum[j](x[j])")
    >>> trial.text = "return y = max[j](x[j])"
    >>> trial.verdict, trial.changes, "<table>" in trial.html()
    (<Form of y along j; state n, max_x; 1 read>, 2, True)
    """

    def __init__(self, text: str, **options: Any) -> None:
        self._options, self.changes = options, 0
        self.text = text

    @property
    def text(self) -> str:
        """The spec; setting it computes the verdict anew."""
        return self._text

    @text.setter
    def text(self, text: str) -> None:
        self._text = text
        self.verdict: Any = judged(text, **self._options)
        self.changes += 1

    def __str__(self) -> str:
        return f"{self._text.strip()}\n\n{self._plain(False)}"

    def __repr__(self) -> str:
        return f"<Edit {type(self.verdict).__name__}: {self._text.strip()[:60]}>"

    def _plain(self, colour: bool) -> str:
        return str(self.verdict) if type(self.verdict) is RedalgError else plain(self.verdict, colour)

    def html(self) -> str:
        """The verdict, as a notebook shows it."""
        if type(self.verdict) is not RedalgError:
            return html(self.verdict)
        e = self.verdict
        parts = [["refused", e.what], ["where", e.where], ["why", e.why], ["try", e.fix]]
        return m.page(m.Markup("<b>not a spec</b>"), m.table([row for row in parts if row[1]]))

    def _widget(self, widgets: Any) -> Any:
        layout = widgets.Layout(width="100%", height="7em")
        box = widgets.Textarea(value=self.text, continuous_update=False, layout=layout)
        page = widgets.HTMLMath(self.html())

        def changed(change: Any) -> None:
            self.text = change["new"]
            page.value = self.html()

        box.observe(changed, names="value")
        return widgets.VBox([box, widgets.Button(description="derive"), page])

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        static = m.preformatted(self.text.strip()) + self.html()
        text = f"{self.text.strip()}\n\n{self._plain(wanted(sys.stdout))}"
        return {"text/html": static, "text/plain": text} | view(self._widget)


def edit(text: str, axis: object = None, max_passes: int = 1, assume: Iterable[str] = ()) -> Edit:
    """A spec's text with its verdict; change the text, and the verdict is computed anew. Options as in `ra.verdict`.

    Nothing is raised for a text that is no spec: its error takes the verdict's place, in its four parts.

    >>> trial = edit("u = mean[j](x[j]); return y = sum[j]((x[j] - u)**2)")
    >>> trial.verdict
    <Form of y along j; state n, A_x, avg_x, avg_x2; 1 read>
    >>> trial.text = "u = mean[j](x[j]); return y = sum[j](abs(x[j] - u))"
    >>> type(trial.verdict).__name__
    'NotDecomposable'
    >>> trial.text = "u = mean[j](x[j]; return y = u"
    >>> print(str(trial.verdict).splitlines()[0][:8])
    refused:
    """
    return Edit(text, axis=axis, max_passes=max_passes, assume=tuple(assume))


def judged(text: str, **options: Any) -> Any:
    """The verdict on a text, or the error in it."""
    try:
        return verdict(parse(text), **options)
    except RedalgError as error:
        return error
