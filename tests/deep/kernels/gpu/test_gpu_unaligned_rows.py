"""Rows that start anywhere, on a device: every family of schedules, dtype, offset and stride against the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from redalg.errors import RedalgError
from tests.support.forms import form_of
from tests.support.unaligned_cases import NAMES, error, schedules

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")
DTYPES = {"float32": (4, 2e-5), "bfloat16": (8, 2.0**-7), "float16": (8, 2.0**-9)}
PLACES = ((0, 0), (1, 0), (3, 0), (0, 1), (0, 3), (2, 5))  # elements before the first row, and between rows


def arrays(spec: Any, rows: int, length: int, dtype: str, offset: int, gap: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number, t in enumerate(spec.tensors):
        if not t.axes:
            found[t.name] = 1e-5
            continue
        shape = (rows, length + gap) if len(t.axes) == 2 else (length,)
        skip = offset if number == 0 else 0
        memory = torch.randn(skip + int(np.prod(shape)), device="cuda").to(getattr(torch, dtype))
        found[t.name] = memory[skip:].reshape(shape)[..., :length]
    return found


def check(name: str, dtype: str, given: dict[str, Any], schedule: Any = None) -> Any:
    form = form_of(name)
    run = form.compile("cuda", schedule=schedule)
    found = run(**given)
    found = found if isinstance(found, dict) else {next(iter(form.spec.outputs)): found}
    host = {n: a if isinstance(a, float) else a.double().cpu().numpy() for n, a in given.items()}
    beside = 3.0 if name == "kurtosis" else 0.0
    assert error(form.spec, {n: a.double().cpu().numpy() for n, a in found.items()}, host, beside) <= DTYPES[dtype][1]
    return run


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize("name", ["softmax", "layer_norm", "variance", "argmax"])
def test_every_family(name: str, dtype: str, place: tuple[int, int]) -> None:
    length = 413
    given = arrays(form_of(name).spec, 7, length, dtype, *place)
    made = 0
    for schedule in schedules(DTYPES[dtype][0], length):
        try:
            made += check(name, dtype, given, schedule).schedule == schedule
        except RedalgError as refused:  # a law of the program, or copies of rows that start elsewhere than results
            assert refused.where == "schedule=", refused
    assert made >= 3


@pytest.mark.parametrize("rows, length", [(1, 406057), (3, 3001), (50, 30007), (777, 33333), (300, 50257), (2001, 777)])
@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize("name", NAMES)
def test_what_the_library_chooses(name: str, dtype: str, rows: int, length: int) -> None:
    check(name, dtype, arrays(form_of(name).spec, rows, length, dtype, 0, 0))


@pytest.mark.parametrize("shape", [(5000, 3), (5000, 7), (3333, 26), (1000, 101), (40, 1001)])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize("name", ["softmax", "layer_norm", "variance", "absmax"])
def test_short_rows_and_transposed_ones(name: str, dtype: str, turned: bool, shape: tuple[int, int]) -> None:
    given = arrays(form_of(name).spec, *shape, dtype, 0, 0)
    if turned:
        given["x"] = given["x"].T.contiguous().T
    check(name, dtype, given)


@pytest.mark.parametrize("length", [101, 777, 5003])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["softmax", "layer_norm", "logsumexp", "variance"])
def test_bits_of_a_row_are_the_same_in_every_batch(name: str, dtype: str, length: int) -> None:
    """The promise of `deterministic=True`."""
    form = form_of(name)
    run = form.compile("cuda", deterministic=True)
    whole = arrays(form.spec, 1024, length, dtype, 0, 0)
    alone = None
    for batch in (1, 2, 3, 17, 256, 1023, 1024):
        found = run(**{n: a[:batch] if getattr(a, "ndim", 0) == 2 else a for n, a in whole.items()})
        alone = found[:1].clone() if alone is None else alone
        assert torch.equal(alone, found[:1]), batch
