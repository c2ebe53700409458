"""`form.estimator()`: an estimator by scikit-learn's own checks, whose statistics are the definition's."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from tests.support.forms import form_of_text
from tests.support.profiles import examples

base = pytest.importorskip("sklearn.base")
STANDARD = "u = mean[i](x[i,f]); v = mean[i]((x[i,f] - u)**2); return u = u, v = v, z = (x[i,f] - u)/sqrt(v)"


@examples(25)
@given(st.data())
def test_any_partition_of_samples_gives_the_definition(data: st.DataObject) -> None:
    n = data.draw(st.integers(2, 12))
    X = np.random.default_rng(data.draw(st.integers(0, 99))).normal(size=(n, 3))
    cuts = [0, *sorted(set(data.draw(st.lists(st.integers(1, n - 1), max_size=3)))), n]
    form = form_of_text(STANDARD)
    one, parts = form.estimator().fit(X), form.estimator()
    for a, b in zip(cuts, cuts[1:], strict=False):
        parts.partial_fit(X[a:b])
    again = pickle.loads(pickle.dumps(parts))
    expected = ra.reference(form.spec, x=X)
    for e in (one, parts, again):
        np.testing.assert_allclose(e.u_, expected["u"], atol=1e-14)
        np.testing.assert_allclose(e.v_, expected["v"], atol=1e-14)
        np.testing.assert_allclose(e.transform(X), expected["z"], atol=1e-12)
        assert e.n_samples_seen_ == n and e.n_features_in_ == 3
    assert not hasattr(base.clone(one), "u_")
    one.fit(X[:2])
    np.testing.assert_allclose(one.u_, X[:2].mean(axis=0))


def test_columns_targets_and_refusals() -> None:
    X = np.random.default_rng(3).normal(size=(20, 3))
    weighted = form_of_text("return m = sum[i](w[i]*x[i]) / sum[i](w[i])")
    assert weighted.estimator(x=0, w=2).fit(np.abs(X)).m_ == pytest.approx(
        np.average(np.abs(X[:, 0]), weights=np.abs(X[:, 2]))
    )
    cross = form_of_text("return c = mean[i](x[i,f]*y[i])")
    np.testing.assert_allclose(cross.estimator().fit(X, X[:, 0]).c_, (X * X[:, :1]).mean(axis=0))
    np.testing.assert_allclose(cross.estimator(x=[1, 2], y=0).fit(X).c_, (X[:, 1:] * X[:, :1]).mean(axis=0))
    with pytest.raises(ra.RedalgError, match="3 columns"):
        form_of_text("return m = mean[i](x[i])").estimator().fit(X)
    with pytest.raises(ra.RedalgError, match="2 times"):
        ra.derive_incremental(
            ra.parse("u = mean[i](x[i,f]); return y = mean[i](abs(x[i,f] - u))"), max_passes=2
        ).estimator().partial_fit(X)


@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_own_checks() -> None:
    checks = pytest.importorskip("sklearn.utils.estimator_checks")
    found = checks.check_estimator(form_of_text(STANDARD).estimator(), on_fail=None)
    failed = {r["check_name"]: str(r["exception"]) for r in found if r["status"] == "failed"}
    assert not failed and sum(r["status"] == "passed" for r in found) > 40


WEIGHTED = "return m = sum[i](w[i]*x[i,f]) / sum[i](w[i])"


@pytest.mark.parametrize("place", [7, -4, "zz", "a", ["a"], [0, 1], 1.0, True, None, np.ones(3), "twice"])
def test_columns_that_are_not_there_are_refused(place: object) -> None:
    pd = pytest.importorskip("pandas")
    X = np.arange(9.0).reshape(3, 3)
    frames = [X] if isinstance(place, str) else [X, pd.DataFrame(X, columns=["b", "twice", "c"])]
    for held in frames:
        with pytest.raises(ra.RedalgError) as caught:
            form_of_text(WEIGHTED).estimator(w=place).fit(held)
        assert caught.value.what and caught.value.why and caught.value.fix


@pytest.mark.parametrize("place", [1, -2, np.int64(1), "b"])
def test_columns_by_number_and_name_are_the_same(place: object) -> None:
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(np.arange(9.0).reshape(3, 3) + 1, columns=["a", "b", "c"])
    true = np.average(X, axis=0, weights=X["b"])
    np.testing.assert_allclose(form_of_text(WEIGHTED).estimator(w=place).fit(X).m_, true)
    for x in (["c", "a"], [2, -3]):
        np.testing.assert_allclose(form_of_text(WEIGHTED).estimator(w=place, x=x).fit(X).m_, true[[2, 0]])


@pytest.mark.parametrize("name", ["n_features_in", "n_samples_seen", "feature_names_in"])
def test_outputs_do_not_take_the_names_of_scikit_learns_own(name: str) -> None:
    with pytest.raises(ra.RedalgError, match="another name"):
        form_of_text(f"return {name} = mean[i](x[i,f])").estimator().fit(np.ones((2, 2)))


def test_integers_that_a_frame_of_floats_would_round_are_refused() -> None:
    pd = pytest.importorskip("pandas")
    form = form_of_text("return m = max[i](x[i,f])")
    large = 2**53 + 1
    assert form.estimator().fit(pd.DataFrame({"a": [large], "b": [1]})).m_.tolist() == [large, 1]
    with pytest.raises(ra.RedalgError, match="beyond 2"):
        form.estimator().fit(pd.DataFrame({"a": [large], "b": [0.5]}))
