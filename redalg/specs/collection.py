"""The catalog: textbook definitions by name, each with its source. Specs only; their forms are always derived.

Sections: softmax and information theory, attention, routing and retrieval, normalisation, statistics, means and norms,
quantisation.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from redalg.errors import RedalgError
from redalg.specs import attention as specs_attention
from redalg.specs import norms as specs_norms
from redalg.specs import quantise as specs_quantise
from redalg.specs import routing as specs_routing
from redalg.specs import softmax as specs_softmax
from redalg.specs import statistics as specs_statistics
from redalg.specs import vectors as specs_vectors
from redalg.specs.entry import Entry

if TYPE_CHECKING:
    from redalg.language.spec import Spec

SECTIONS = {
    "softmax and information": specs_softmax,
    "attention": specs_attention,
    "routing and retrieval": specs_routing,
    "normalisation": specs_norms,
    "statistics": specs_statistics,
    "means, norms and distances": specs_vectors,
    "quantisation": specs_quantise,
}


class UnknownSpec(RedalgError, KeyError):
    """A name that the catalog does not hold; a `KeyError` too, as mappings raise."""

    __str__ = Exception.__str__  # a KeyError shows the repr


class Catalog(Mapping[str, "Spec"]):
    """Read-only mapping from a name to its spec; a spec is built when it is first asked for.

    >>> import redalg as ra
    >>> ra.catalog.entry("layer_norm").source
    'Ba, Kiros and Hinton 2016, Layer Normalization, eq. 3 and section 3.1'
    >>> "softmax" in ra.catalog
    True
    """

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        self._entries = dict(entries)

    def entry(self, name: str) -> Entry:
        """The entry of that name: `.spec .source .description .axis .assume .sample()`; raises `RedalgError`."""
        try:
            return self._entries[name]
        except KeyError:
            near = difflib.get_close_matches(str(name), self._entries, n=3, cutoff=0.5)
            raise UnknownSpec(
                what=f"the catalog has no spec named {name!r}",
                where="redalg.catalog",
                why=f"it holds {len(self)} specs; "
                + (f"the nearest names are {', '.join(near)}" if near else "none is near"),
                fix="list the names with list(ra.catalog) or `python -m redalg catalog`",
            ) from None

    def __getitem__(self, name: str) -> Spec:
        return self.entry(name).spec

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"<redalg.catalog: {len(self)} specs>"

    def sections(self) -> dict[str, tuple[Entry, ...]]:
        """The entries by section, in the order in which they are written down."""
        return {
            title: tuple(e for e in vars(module).values() if isinstance(e, Entry)) for title, module in SECTIONS.items()
        }


catalog = Catalog({e.name: e for module in SECTIONS.values() for e in vars(module).values() if isinstance(e, Entry)})
