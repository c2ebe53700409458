"""Forms that are derived in the middle of a call, as those of parts are, are no part of it."""

from __future__ import annotations

import redalg as ra
from redalg.streaming import repeats


def test_deriving_repeats_nothing() -> None:
    """Laws are tested on streams with infinities, which accumulators take in wider floats: of no call's numbers."""
    with repeats() as wider:
        ra.derive_incremental(ra.catalog["log_softmax"])
    assert wider == []
