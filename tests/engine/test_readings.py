"""One tensor read along several axes: every way of running it, from one array."""

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.errors import RedalgError
from redalg.explore import kernel
from tests.support.sample import deep

GRAM = "return G = sum[j](X[j,a] * X[j,b])"
COVARIANCE = "return C = cov[j:1](X[j,a], X[j,b])"
ATTENTION = "s = sum[d](X[i,d] * X[j,d]); m = max[j](s); p = exp(s - m); return O = sum[j](p * X[j,e]) / sum[j](p)"


def attention(x: np.ndarray) -> np.ndarray:
    scores = x @ x.T
    weights = np.exp(scores - scores.max(1, keepdims=True))
    return weights @ x / weights.sum(1, keepdims=True)


WANTED = {
    GRAM: lambda x: x.T @ x,
    COVARIANCE: lambda x: np.atleast_2d(np.cov(x.T)),
    ATTENTION: attention,
}
FORMS = {text: ra.derive_incremental(ra.parse(text), axis="j") for text in WANTED}


def array(rows: int, columns: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, columns))


def test_python_and_text_give_the_same_spec() -> None:
    X = ra.tensors("X[j,a]")
    spec = ra.Spec(G=ra.sum(X * X["j", "b"], "j"))
    assert spec == ra.parse(GRAM) == ra.parse(str(spec)) == pickle.loads(pickle.dumps(spec))
    assert spec.output_axes["G"] == ("a", "b") and X["j", "a"] is X
    assert "X[j,a] * X[j,b]" in str(spec)


@pytest.mark.parametrize("text", WANTED)
@pytest.mark.parametrize("rows", [2, 5, 64])
def test_every_target_reads_one_array(text: str, rows: int) -> None:
    x, form = array(rows, 3), FORMS[text]
    wanted = WANTED[text](x)
    exact = np.array(ra.reference(form.spec, X=x, exact=True), float) if rows < 6 else wanted
    for found in (ra.reference(form.spec, X=x), exact, form.compile("numpy")(X=x), form.compile("cpu")(X=x)):
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-13)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=4))
def test_streams_are_fed_by_the_tensors_name(lengths: list[int]) -> None:
    x = array(sum(lengths) + 2, 3)
    for text in (GRAM, COVARIANCE):
        parts, at = [FORMS[text].accumulator()], 0
        for n in (*lengths, 2):
            part = FORMS[text].accumulator()
            part.update(X=x[at : at + n])
            parts, at = [*parts, part], at + n
        for part in parts[1:]:
            parts[0].merge(part)
        np.testing.assert_allclose(parts[0].result(), WANTED[text](x), rtol=1e-11, atol=1e-12)


def test_a_bound_tensor_and_its_streamed_reading() -> None:
    x = array(6, 3)
    acc = FORMS[ATTENTION].accumulator(X=x)
    for chunk in (x[:1], x[1:1], x[1:]):
        acc.update(X=chunk)
    np.testing.assert_allclose(acc.result(), attention(x), rtol=1e-12)


@pytest.mark.parametrize("text", WANTED)
def test_certificates_are_proved(text: str) -> None:
    assert FORMS[text].certificate.verify(allow={"tested"} if text == ATTENTION else ())


def test_a_transposed_reading_runs_whole_and_has_no_chunks() -> None:
    form = ra.derive_incremental(ra.parse("return y = sum[j](X[i,j] * X[j,i])"), axis="j")
    x = array(4, 4)
    for found in (ra.reference(form.spec, X=x), form.compile("numpy")(X=x), form.compile("cpu")(X=x)):
        np.testing.assert_allclose(found, (x * x.T).sum(1), rtol=1e-13)
    with pytest.raises(RedalgError, match="a chunk holds the elements of one of them"):
        form.accumulator().update(X=x)
    with pytest.raises(RedalgError, match="axis j has length 3 here"):
        form.compile("numpy")(X=x[:3])


@pytest.mark.parametrize("text", [GRAM, *deep([COVARIANCE, ATTENTION])])
def test_cuda_kernels_take_the_readings_as_operands(text: str) -> None:
    sizes: dict[str, Any] = dict.fromkeys("ijabde", 16)
    source = kernel(FORMS[text], sizes, "H200", dtype="float32").source
    assert "X_j_" in source


def test_no_witness_is_given_for_arrays_that_are_one() -> None:
    spec = ra.parse("m = sum[j](X[j,b]) / size[j]; return y = sum[j](abs(X[j,a] - m))")
    assert isinstance(ra.verdict(spec), ra.Undecided)


@pytest.mark.parametrize("text", ["return y = x[j] + x[j,i]", "tensors x[j] positive, x[i]; return y = x[j] * x[i]"])
def test_other_declarations_of_one_name_stay_refused(text: str) -> None:
    with pytest.raises(RedalgError, match="two declarations of one name"):
        ra.parse(text)


def test_a_call_without_the_array_names_the_tensor() -> None:
    with pytest.raises(RedalgError, match="pass X="):
        FORMS[GRAM].compile("numpy")()
    with pytest.raises(RedalgError, match="named 'Y'"):
        FORMS[GRAM].compile("numpy")(X=array(3, 2), Y=1.0)
