"""What is subtracted from an element of its own kind is subtracted after the element was rounded: u - max u is 0 there.

Compilers may contract x·w - m to one rounding. Where m is the largest rounded x·w, what is left then is the error of
that product instead of 0: a comparison with 0 fails, and e^(u - max u) leaves [0, 1] for large u.
"""

from __future__ import annotations

import numpy as np
import pytest

import redalg as ra
from redalg.explore import kernel
from tests.support.sample import deep

ELEMENTS = {
    "product": "x[j]*w[j]",
    "scaled": "-th*x[j]",
    "sum of products": "x[j]*w[j] + th*x[j]",
    "shifted": "x[j] + th*1000003",
    "square": "-(x[j]*w[j])**2",
    "contraction": "sum[d](q[d]*k[j,d])",
    "masked": "where(eq(index[j], 0) or w[j] < 0, x[j]*th, -oo)",
    "quotient": "x[j]*w[j]/th",
    "quotients": "x[j]/w[j]/th**2",
    "temperature": "x[j]*3/th",
    "fraction": "x[j]*w[j]/(3*th)",
    "weighed": "th*relu(x[j] + w[j])*(x[j] - w[j])",
}
DTYPES = ("float32", "float64")


def _spec(element: str, returned: str) -> ra.Spec:
    declared = "tensors th positive; " if "th" in element else ""
    return ra.parse(f"{declared}u = {element}; return {returned}")


def _drawn(spec: ra.Spec, length: int, scale: float, dtype: str, seed: int) -> dict[str, np.ndarray]:
    rng, sizes = np.random.default_rng(seed), {"j": length, "d": 5}
    drawn = {d.name: rng.normal(size=[sizes[a] for a in d.axes]) * scale for d in spec.tensors}
    return {n: np.asarray(np.abs(a) / scale + 0.5 if n == "th" else a).astype(dtype) for n, a in drawn.items()}


def _calls(spec: ra.Spec, seed: int) -> list[dict[str, np.ndarray]]:
    cases = [(n, s, d) for n in (1, 2, 3, 17, 40) for s in (1.0, 1e4, 1e8) for d in DTYPES]
    return [_drawn(spec, n, s, d, seed + at) for at, (n, s, d) in enumerate(cases)]


@pytest.mark.parametrize("kind", [*[*ELEMENTS][::2], *deep([*ELEMENTS][1::2])])
def test_exponentials_of_differences_from_the_largest_element(kind: str) -> None:
    """0 <= log Σ e^(u - max u) <= log n, however large u is."""
    spec = _spec(ELEMENTS[kind], "y = log(sum[j](exp(u - max[j](u))))")
    runs = [ra.derive_incremental(spec).compile(target) for target in ("cpu", "numpy")]
    for arrays in _calls(spec, 11):
        count = len(next(a for n, a in arrays.items() if n in "xk"))
        for run in runs:
            assert 0 <= run(**arrays) <= np.log(count) + 1e-6, arrays


@pytest.mark.parametrize(
    "element",
    [
        pytest.param(text, id=name, marks=() if name == "square" else pytest.mark.deep)
        for name, text in ELEMENTS.items()
    ],
)
def test_the_largest_element_less_itself_is_zero(element: str) -> None:
    """As the definition says: one element is the largest, and its gap to that is 0, not the error of a product."""
    equal = ra.derive_incremental(_spec(element, "y = any[j](eq(u - max[j](u), 0))"), axis="j", max_passes=2)
    gap = ra.derive_incremental(_spec(element, "y = max[j](u) - u"), axis="j")
    rise = ra.derive_incremental(_spec(element, "y = u - max[j](u)"), axis="j")
    for target in ("cpu", "numpy"):
        one, gaps, rises = (form.compile(target) for form in (equal, gap, rise))
        for arrays in _calls(gap.spec, 5):
            assert one(**arrays), arrays
            assert gaps(**arrays).min() == rises(**arrays).max() == 0, arrays


@pytest.mark.parametrize("kind", deep([n for n in ELEMENTS if n != "contraction"]))  # whose order is a kernel's own
def test_so_is_a_largest_element_that_was_saved(kind: str) -> None:
    """As gradients read it: e^(u - m) of a tensor m, which another kernel computed, is 1 at that element."""
    first, again = (_spec(ELEMENTS[kind], text) for text in ("m = max[j](u)", "y = exp(u - m)"))
    largest, powers = (ra.derive_incremental(spec).compile("cpu") for spec in (first, again))
    for arrays in _calls(first, 3):
        assert powers(**arrays, m=largest(**arrays)).max() == 1, arrays


@pytest.mark.parametrize(("element", "expected"), [("x[i,j]*w[j]", True), ("x[i,j]", False)])
def test_kernels_say_what_is_rounded_apart(element: str, expected: bool) -> None:
    """The sum is one that no compiler contracts, where the element is a product; x - max x stays what it was."""
    form = ra.derive_incremental(_spec(element, "y = sum[j](exp(u - max[j](u)))"))
    run = form.compile("cpu")
    run(**{d.name: np.ones([3] * len(d.axes), "float32") for d in form.spec.tensors})
    for source in (kernel(form, {"i": 64, "j": 300}).source, run.source):
        assert ("exact_sum_f32(" in source) is expected


@pytest.mark.parametrize(("element", "expected"), [("x[i,j]*w[j] - m[i]", True), ("x[i,j] - m[i]", False)])
def test_kernels_of_gradients_say_so_too(element: str, expected: bool) -> None:
    source = kernel(ra.derive_incremental(ra.parse(f"return y = exp({element})")), {"i": 64, "j": 300}).source
    assert ("exact_sum_f32(" in source) is expected
