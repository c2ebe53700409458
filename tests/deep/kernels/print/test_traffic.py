"""`ra.traffic`: bytes by hand, and what must hold of every spec."""

from __future__ import annotations

import pytest

import redalg as ra
from redalg.errors import RedalgError
from tests.support.forms import form_of

R, N = 10, 1000
SIZES = {"i": R, "j": N}
x = ra.tensors("x[i,j]")
m = ra.max(x, "j")
l = ra.sum(ra.exp(x - m), "j")  # noqa: E741


def elements(spec: ra.Spec) -> tuple[float, float, float]:
    found = ra.traffic(spec, SIZES, "float32")
    return tuple(getattr(found, k).bytes / 4 for k in ("op_by_op", "stage_by_stage", "fused"))


def test_a_map_counts_its_bias_at_its_own_size() -> None:
    full, row = ra.tensors("b[i,j]"), ra.tensors("c[j]")
    n = R * N
    assert elements(ra.Spec(y=ra.log(ra.relu(x + full)))) == (7 * n, 3 * n, 3 * n)
    assert elements(ra.Spec(y=ra.log(ra.relu(x + row)))) == (6 * n + N, 2 * n + N, 2 * n + N)


def test_softmax_by_hand() -> None:
    """max: n -> r; subtract: n + r -> n; exp: n -> n; sum: n -> r; divide: n + r -> n."""
    n = R * N
    assert elements(ra.Spec(y=ra.exp(x - m) / l)) == (8 * n + 4 * R, 4 * n + 5 * R, 3 * n)


def test_logsumexp_by_hand() -> None:
    """max, subtract, exp, sum; then log and add on rows."""
    n = R * N
    by_op, by_stage, fused = elements(ra.Spec(y=m + ra.log(l)))
    assert by_op == 6 * n + 8 * R and by_stage == 2 * n + 6 * R and fused == n + R


def test_times_follow_from_a_bandwidth() -> None:
    found = ra.traffic(ra.Spec(y=m), SIZES, bandwidth=1e9)
    assert found.fused.seconds == found.fused.bytes / 1e9 and "seconds" in str(found)


@pytest.mark.parametrize("name", sorted(ra.catalog))
def test_fusing_never_moves_more(name: str) -> None:
    entry = ra.catalog.entry(name)
    form = form_of(name)
    found = ra.traffic(entry.spec, entry.sizes, form=form)
    assert found.op_by_op.bytes >= found.stage_by_stage.bytes >= found.fused.bytes > 0
    assert found.op_by_op.passes >= found.stage_by_stage.passes >= 1


def test_missing_lengths_and_unknown_dtypes_are_refused() -> None:
    for sizes, dtype in (({"i": 3}, "float32"), ({"i": 3, "j": -1}, "float32"), (SIZES, "float99")):
        with pytest.raises(RedalgError) as error:
            ra.traffic(ra.Spec(y=m), sizes, dtype)
        assert error.value.what and error.value.where and error.value.why and error.value.fix
