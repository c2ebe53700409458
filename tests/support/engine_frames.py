"""Random tables for adapters of engines: columns, keys, partitions, and the definition on the rows of each group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

import redalg as ra
from tests.support.forms import form_of_text
from tests.support.streams import assert_close

FORMS = {
    "weighted mean": "return v = sum[j](w[j]*x[j]) / sum[j](w[j])",
    "moments": "u = mean[j](x[j]); return u = u, v = mean[j]((x[j] - u)**2), n = size[j]",
    "positions": "return a = argmax[j](x[j]), m = max[j](x[j])",
    "softmax mean": "m = max[j](x[j]); s = sum[j](exp(x[j] - m)); return y = sum[j](exp(x[j] - m)*w[j])/s",
    "two passes": "u = mean[j](x[j]); return y = mean[j](abs(x[j] - u))",
}
PASSES = {"two passes": 2}


def form(name: str) -> ra.Form:
    return form_of_text(FORMS[name], max_passes=PASSES.get(name, 1))


class Table(NamedTuple):
    columns: dict[str, np.ndarray]
    keys: list[Any]
    cuts: list[int]  # of partitions, empty ones included

    @property
    def rows(self) -> int:
        return len(self.keys)

    def part(self, low: int, high: int) -> dict[str, np.ndarray]:
        return {name: x[low:high] for name, x in self.columns.items()}

    def pieces(self) -> list[tuple[int, int]]:
        return list(zip(self.cuts[:-1], self.cuts[1:], strict=True))


@st.composite
def tables(draw: Any, keys: str = "text", least: int = 0, nulls: bool = True) -> Table:
    n = draw(st.integers(least, 12))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 16)))
    words: list[Any] = list(rng.choice(["a", "b", "ccc"], n)) if keys == "text" else rng.integers(-2, 3, n).tolist()
    words = [str(w) if keys == "text" else int(w) for w in words]
    if nulls and keys == "text":
        words = [None if draw(st.integers(0, 5)) == 0 else w for w in words]
    columns = {"x": rng.integers(-8, 9, n) / 4, "w": rng.integers(1, 5, n) / 2}
    return Table(columns, words, [0, *sorted(draw(st.lists(st.integers(0, n), max_size=4))), n])


def tensors(f: ra.Form, columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {d.name: columns[d.name] for d in f.spec.tensors}


def definition(f: ra.Form, columns: Mapping[str, np.ndarray], rows: Any = slice(None)) -> dict[str, Any]:
    found = ra.reference(f.spec, **{n: x[rows] for n, x in tensors(f, columns).items()})
    return found if isinstance(found, dict) else {next(iter(f.spec.outputs)): found}


def named(f: ra.Form, value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {next(iter(f.spec.outputs)): value}


def assert_whole(f: ra.Form, value: Any, table: Table) -> None:
    assert_close({n: np.asarray(v) for n, v in named(f, value).items()}, definition(f, table.columns))


def assert_by_group(f: ra.Form, keys: list[Any], values: Mapping[str, Any], table: Table, null_group: bool) -> None:
    """One row for each key (and for the null one, if the engine keeps it), with the definition on its rows."""
    rows: dict[Any, list[int]] = {}
    for k, key in enumerate(table.keys):
        if key is not None or null_group:
            rows.setdefault(key, []).append(k)
    assert sorted(map(str, keys)) == sorted(map(str, rows)) and len(keys) == len(rows)
    for at, key in enumerate(keys):
        expected = definition(f, table.columns, np.array(rows[key], int))
        assert_close({n: np.asarray(values[n][at]) for n in expected}, expected)
