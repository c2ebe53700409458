"""``compile("cpu", accuracy="compensated")``: sums as pairs, against exact sums of fractions."""

from __future__ import annotations

import pickle
from math import fsum

import numpy as np
import pytest

import redalg as ra
from redalg.errors import RedalgError
from tests.support.forms import form_of, form_of_text
from tests.support.sample import deep
from tests.support.sums_of_pairs import MEANS, TEXTS, arrays, excess

LENGTHS = (0, 1, 2, 31, 127, 128, 129, 1003)


@pytest.mark.parametrize("dtype", [np.float32, *deep([np.float64])])
@pytest.mark.parametrize("name", [*TEXTS, *MEANS][:2] + deep([*TEXTS, *MEANS][2:]))
def test_within_the_bound_of_pairs(name: str, dtype: type) -> None:
    form = form_of_text((TEXTS | MEANS)[name], "j")
    run, plain = form.compile("cpu", accuracy="compensated"), form.compile("cpu")
    rng = np.random.default_rng(3)
    broken = []
    for n in LENGTHS[name in MEANS :]:  # there is no mean of nothing
        given = arrays(rng, 3, n, dtype)
        used = {t.name: given[t.name] for t in form.spec.tensors}
        found, usual = run(**used), plain(**used)
        if name == "chosen":
            assert (found["n"] == usual["n"]).all()
            found, usual = found["y"], usual["y"]
        assert found.dtype == dtype
        assert max(excess(name, found, given)) <= 1, n
        broken.append(max(excess(name, usual, given)))
    assert max(broken) > 1  # the plain sum does not keep the bound: this test can fail


def test_long_rows_in_splits() -> None:
    form = form_of_text(TEXTS["sum"], "j")
    given = arrays(np.random.default_rng(4), 2, 300_001, np.float32)
    for x in (given["x"], np.asfortranarray(given["x"])):  # rows, and rows that lie side by side
        found = form.compile("cpu", accuracy="compensated")(x=x)
        for row, y in zip(given["x"].astype(np.float64), found, strict=True):
            assert abs(float(y) - fsum(row)) <= 2.0**-24 * abs(fsum(row)) + 2 * (x.shape[1] * 2.0**-24) ** 2 * fsum(
                abs(row)
            )


@pytest.mark.parametrize("special", [[np.inf, 1], [np.inf, -np.inf], [np.nan, 1], [3e38, 3e38], [3e38, 3e38, -np.inf]])
def test_what_is_not_finite_is_what_the_definition_says(special: list[float]) -> None:
    """An infinity is no NaN, though its rounding error is one."""
    form = form_of_text(TEXTS["product"], "j")
    run = form.compile("cpu", accuracy="compensated")
    for n in (len(special), 200):
        x = np.zeros((1, n), np.float32)
        x[0, : len(special)] = special
        w = np.ones(n, np.float32)
        np.testing.assert_array_equal(run(x=x, w=w), (x * w).sum(1, dtype=np.float32))


@pytest.mark.parametrize("name", ["logsumexp", "softmax", "variance", "layer_norm", "kurtosis", "argmax"])
def test_forms_with_anchors(name: str) -> None:
    """What moves to other anchors moves as a pair, and what has no sum is as it was."""
    form = form_of(name)
    rng = np.random.default_rng(5)
    for n in (1, 2, 33, 5001):
        given = {
            t.name: rng.normal(size=(2, n)[2 - len(t.axes) :]).astype(np.float32) for t in form.spec.tensors if t.axes
        }
        given |= {t.name: 1e-5 for t in form.spec.tensors if not t.axes}
        found = form.compile("cpu", accuracy="compensated")(**given)
        wide = {k: np.asarray(v, np.float64) if np.ndim(v) else v for k, v in given.items()}
        np.testing.assert_allclose(found, ra.reference(form.spec, **wide), rtol=2e-5, atol=2e-6)


def test_said_and_kept() -> None:
    form = form_of_text(TEXTS["sum"], "j")
    run = form.compile("cpu", accuracy="compensated")
    x = np.array([[1e16, 1.0, -1e16]])
    assert run(x=x) == 1 == pickle.loads(pickle.dumps(run))(x=x)
    assert "as pairs" in run.explain() and "as pairs" not in form.compile("cpu").explain()
    assert "sum_error_f64" in run.source and "sum_error" not in form.compile("cpu").source
    with pytest.raises(RedalgError, match="accuracy='exact'"):
        form.compile("cpu", accuracy="exact")
    with pytest.raises(RedalgError, match="on NumPy"):
        form.compile("numpy", accuracy="compensated")
    with pytest.raises(RedalgError, match="along e"):
        form_of("attention").compile("cpu", accuracy="compensated")(**{n: np.ones((1, 2, 3)) for n in "QKV"})
