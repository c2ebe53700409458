"""Pipelines of Apache Beam over a form, run by `tests/deep/adapters/test_beam.py` in Beam's own environment.

Prints "ok" after the last comparison with the definition.
"""

from __future__ import annotations

import apache_beam as beam
import numpy as np
from apache_beam.testing.util import assert_that

import redalg as ra


def compare(form: ra.Form, arrays: dict[str, np.ndarray], cuts: list[int], **options: bool) -> None:
    """One combine over blocks in any order, and the same by key."""
    wanted = ra.reference(form.spec, **arrays)
    blocks = []
    for k, (a, b) in enumerate(zip(cuts, cuts[1:], strict=False)):
        block: dict[str, object] = {n: x[a:b] for n, x in arrays.items()}
        block |= {"start": a} if options.get("placed") else {}
        blocks.append(block | ({"id": k} if options.get("named") else {}))
    blocks = [blocks[k] for k in np.random.default_rng(0).permutation(len(blocks))]

    def same(found: list[object]) -> None:
        assert len(found) == 1, found
        np.testing.assert_allclose(found[0], wanted, rtol=1e-9)

    def both(found: list[tuple[str, object]]) -> None:
        assert sorted(key for key, _ in found) == ["a", "b"]
        for _, value in found:
            np.testing.assert_allclose(value, wanted, rtol=1e-9)

    with beam.Pipeline() as p:
        data = p | beam.Create(blocks)
        assert_that(data | beam.CombineGlobally(form.beam(**options)), same, label="all")
        keyed = data | beam.FlatMap(lambda block: [("a", block), ("b", block)])
        assert_that(keyed | beam.CombinePerKey(form.beam(**options)), both, label="by key")


def main() -> None:
    rng = np.random.default_rng(1)
    x, w = rng.normal(size=500) + 1e4, rng.random(500)
    cuts = [0, 0, 3, 100, 100, 499, 500]
    covariance = ra.derive_incremental(ra.parse("return c = cov[j](x[j], w[j])"))
    compare(covariance, {"x": x, "w": w}, cuts)
    compare(covariance, {"x": x, "w": w}, cuts, named=True)
    position = ra.derive_incremental(ra.parse("return p = argmax[j](x[j])"))
    compare(position, {"x": np.round(x)}, cuts, placed=True)
    for options, block in (({"named": True}, {"x": [1.0], "id": 7}), ({"placed": True}, {"x": [1.0], "start": 7})):
        total = ra.derive_incremental(ra.parse("return s = sum[j](x[j])"))
        try:
            with beam.Pipeline() as p:
                p | beam.Create([block, block]) | beam.CombineGlobally(total.beam(**options))
        except Exception as error:  # a runner wraps what a function raises
            assert "is in both" in str(error) or "both cover" in str(error), error
        else:
            raise AssertionError("a block that came twice was counted twice")
    rows = ra.derive_incremental(ra.parse("return s = sum[j](x[j])"))
    with beam.Pipeline() as p:
        found = p | beam.Create([1.0, 2.0, 4.0]) | beam.CombineGlobally(rows.beam())
        assert_that(found | beam.Map(float), lambda values: values == [7.0] or 1 / 0)
    try:
        position.beam()
    except ra.RedalgError as refused:
        assert "order of the rows" in refused.why
    print("ok")


if __name__ == "__main__":
    main()
