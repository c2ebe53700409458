"""Forms, derived once in a process: a derivation depends on nothing but its arguments, and a form is frozen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

import redalg as ra


@cache
def form_of(name: str) -> ra.Form:
    """Of a spec of the catalog, along its axis and with what its entry assumes. All of them take one pass."""
    entry = ra.catalog.entry(name)
    return ra.derive_incremental(entry.spec, axis=entry.axis, assume=entry.assume)


@cache
def form_without_assumptions(name: str) -> ra.Form:
    """Of a spec of the catalog; one that casts inside a reduction takes two passes then."""
    return ra.derive_incremental(ra.catalog[name], max_passes=2) if ra.catalog.entry(name).assume else form_of(name)


@cache
def form_of_text(text: str, axis: str | None = None, max_passes: int = 1) -> ra.Form:
    return ra.derive_incremental(ra.parse(text), axis=axis, max_passes=max_passes)


class Forms(Mapping[str, ra.Form]):
    """Forms of named specs or texts, each derived when it is asked for: collecting tests reads the names alone."""

    def __init__(self, specs: Mapping[str, ra.Spec | str], axis: str | None = None, max_passes: int = 1) -> None:
        self.specs, self.axis, self.max_passes = dict(specs), axis, max_passes
        self._derived: dict[str, ra.Form] = {}

    def __getitem__(self, name: str) -> ra.Form:
        if name not in self._derived:
            given = self.specs[name]
            spec = ra.parse(given) if isinstance(given, str) else given
            self._derived[name] = ra.derive_incremental(spec, axis=self.axis, max_passes=self.max_passes)
        return self._derived[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.specs)

    def __len__(self) -> int:
        return len(self.specs)
