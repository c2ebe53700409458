"""The four functions that Beam, Ray and DataFusion call, over any partition, order and tree, by way of bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.adapters.unordered import Unordered
from tests.support import engines
from tests.support.profiles import examples

PLACED = ("positions", "extremes", "covariance")
NAMED = ("moments", "covariance", "softmax mean", "extremes")


def leaves(parts: Unordered, columns: dict[str, Any], sizes: Any, ids: str) -> list[ra.Accumulator]:
    """The state of each block, empty ones among them."""
    found, cuts = [], np.cumsum([0, *sizes])
    for k, (a, b) in enumerate(zip(cuts, cuts[1:], strict=False)):
        block: dict[str, Any] = {n: columns[n][a:b] for n in parts.names}
        block |= {"start": int(a)} if ids == "placed" else {"id": k} if ids == "named" else {}
        found.append(parts.updated(parts.empty(), block))
    return found


@pytest.mark.parametrize(
    ("name", "ids"), [*((n, "placed") for n in PLACED), *((n, "named") for n in NAMED), *((n, "") for n in NAMED)]
)
@examples(25)
@given(st.data())
def test_any_tree_over_any_order_gives_the_definition(name: str, ids: str, data: st.DataObject) -> None:
    columns, sizes = data.draw(engines.streams(["float64", "float32", "int64"]))
    form = engines.form(name)
    parts = Unordered(form, "a test", {}, placed=ids == "placed", named=ids == "named")
    states = data.draw(st.permutations(leaves(parts, columns, sizes, ids)))
    if ids and len(states) > 1 and any(sizes):
        again = leaves(parts, columns, sizes, ids)[int(np.argmax(sizes))]
        with pytest.raises(ra.RedalgError, match="both cover|is in both"):
            parts.merged([*states, again])
    while len(states) > 1:
        k = data.draw(st.integers(0, len(states) - 2))
        joint = parts.merged(form.from_bytes(s.to_bytes()) for s in states[k : k + 2])
        states = [*states[:k], *states[k + 2 :]]
        states.insert(data.draw(st.integers(0, len(states))), joint)
    with np.errstate(all="ignore"):
        found = states[0].result()
    if not sum(sizes):  # the dtypes of what never came are not known
        return
    engines.check(form, found, columns)


@examples(15)
@given(st.data())
def test_rays_functions_over_any_partition(data: st.DataObject) -> None:
    pytest.importorskip("ray.data")
    pa = pytest.importorskip("pyarrow")
    columns, sizes = data.draw(engines.streams(["float64", "int64"]))
    form, cuts = engines.form("covariance"), np.cumsum([0, *sizes])
    fn, states = form.ray(), []
    for a, b in zip(cuts, cuts[1:], strict=False):
        block = pa.table({n: pa.array(c[a:b]) for n, c in columns.items()})
        states.append(fn.accumulate_block(fn.init(None), block))
    while len(states) > 1:
        states = [*states[2:], fn.merge(states[0], states[1])]
    if sum(sizes):
        engines.check(form, fn.finalize(states[0]), columns)
