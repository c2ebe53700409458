"""`redalg.testing` as users see it: strategies, law suites, and any callable held against a spec."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import sympy
from hypothesis import find, given, settings
from hypothesis import strategies as st

import redalg as ra
import redalg.testing as testing
from redalg.errors import RedalgError
from redalg.testing import NotEquivalent, arrays, bracketings, check_equivalence, fold, laws, partitions, specs, streams
from tests.support.profiles import examples

X, W = ra.tensors("x[i,j] w[j]")
MEAN = ra.mean(X, "j")
VARIANCE = ra.Spec(v=ra.mean((X - MEAN) ** 2, "j"))
WEIGHTS = ra.exp(X - ra.max(X, "j"))
SOFTMAX = ra.Spec(y=WEIGHTS / ra.sum(WEIGHTS, "j"))
LSE = ra.Spec(y=ra.logsumexp(X, "j"))
ARGMAX = ra.Spec(i=ra.argmax(X, "j"))
SEVERAL = ra.Spec(top=ra.max(X, "j"), total=ra.sum(X * W, "j"))


def variance(x: Any) -> Any:
    return np.mean((x - x.mean(axis=1, keepdims=True)) ** 2, axis=1)


def softmax(x: Any) -> Any:
    top = x.max(axis=1, keepdims=True, initial=-np.inf)
    with np.errstate(all="ignore"):
        p = np.where((x == -np.inf) & ~np.isnan(top), 0, np.exp(x - top))
    return p / p.sum(axis=1, keepdims=True)


def failing(spec: Any, implementation: Callable[..., Any], **options: Any) -> NotEquivalent:
    with pytest.raises(NotEquivalent) as refusal:
        check_equivalence(spec, implementation, **options)
    error = refusal.value
    assert isinstance(error, AssertionError) and all((error.what, error.where, error.why, error.fix))
    return error


# --- names ------------------------------------------------------------------------------------------------------------


def test_names_are_lazy_and_none_is_a_submodule() -> None:
    code = "import sys, redalg.testing; print(sorted({'numpy', 'hypothesis', 'sympy', 'mpmath'} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
    from pkgutil import iter_modules

    assert not {m.name for m in iter_modules(testing.__path__)} & set(testing.__all__)
    assert all(getattr(testing, name) is not None for name in testing.__all__) and "laws" in dir(testing)
    with pytest.raises(AttributeError, match="nothing"):
        testing.nothing  # noqa: B018


def test_without_hypothesis_searches_and_strategies_are_refused() -> None:
    code = (
        "import sys; sys.modules['hypothesis'] = None\n"
        "import redalg as ra\nfrom redalg.testing import arrays, check_equivalence, laws\n"
        "x = ra.tensors('x[j]')\n"
        "calls = [lambda: check_equivalence(ra.Spec(y=ra.max(x, 'j')), max), lambda: laws(lambda a, b: a + b, 0)]\n"
        "for call in (*calls, lambda: arrays(3)):\n"
        "    try:\n        call()\n    except ra.RedalgError as error:\n        print(error)\n"
        "for law in laws(ra.derive_incremental(ra.Spec(y=ra.max(x, 'j')))):\n    law()\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert out.returncode == 0, out.stderr
    assert all(out.stdout.count(w) == 3 for w in ("refused:", "where:", "why:", "try:", "'redalg[testing]'"))


# --- strategies -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize(
    "seen",
    [
        np.isnan,
        lambda x: x == np.inf,
        lambda x: x == -np.inf,
        lambda x: (x == 0) & np.signbit(x),
        lambda x: (x != 0) & (np.abs(x) < np.finfo(x.dtype).tiny),
        lambda x: np.abs(x) == np.finfo(x.dtype).max,
    ],
)
def test_arrays_draw_every_kind_of_special_value(dtype: str, seen: Callable[[Any], Any]) -> None:
    found = find(arrays(3, dtype), lambda x: bool(seen(x).any()), settings=settings(max_examples=2000, database=None))
    assert found.dtype == dtype and found.shape == (3,)
    assert np.sum(found == 0) >= 1  # everything else shrinks to nothing special


def test_ties_shrink_to_zeros() -> None:
    tied = find(arrays(4), lambda x: len(set(x.tolist())) < len(x), settings=settings(database=None))
    assert tied.tolist() == [0, 0, 0, 0]


@given(x=arrays((2, 3), "float32", domain=["positive"]), n=arrays(3, "int64"), b=arrays((), bool))
def test_domains_of_arrays(x: Any, n: Any, b: Any) -> None:
    assert ((x > 0) | np.isnan(x)).all() and n.dtype == "int64" and b.dtype == bool


@given(x=arrays(5, specials=()))
def test_arrays_without_special_values_are_exact_rationals(x: Any) -> None:
    assert np.isfinite(x).all() and (x * 8 == np.round(x * 8)).all()


@given(data=st.data(), n=st.integers(0, 9))
def test_partitions_have_an_empty_part_and_bracketings_fit(data: Any, n: int) -> None:
    borders = data.draw(partitions(n))
    parts = [b - a for a, b in zip(borders, borders[1:], strict=False)]
    assert borders[0] == 0 and borders[-1] == n and min(parts) == 0 and 2 <= len(parts) <= 5
    words = [str(k) for k in range(len(parts))]
    joined = fold(lambda a, b: f"{a}{b}", words, data.draw(bracketings(len(parts))))
    assert joined == "".join(words)


def test_every_bracketing_is_drawn() -> None:
    seen = set()

    @settings(max_examples=300, database=None)
    @given(bracketing=bracketings(4))
    def draw(bracketing: list[int]) -> None:
        seen.add(fold(lambda a, b: f"({a}{b})", "abcd", bracketing))

    draw()
    assert seen == {"(((ab)c)d)", "((a(bc))d)", "((ab)(cd))", "(a((bc)d))", "(a(b(cd)))"}


@given(values=streams(SEVERAL, sizes={"i": 2, "j": (1, 4)}, dtype="float32"))
def test_streams_fit_the_spec(values: dict[str, Any]) -> None:
    top, total = values["x"].max(axis=1), values["x"].astype(float) @ values["w"].astype(float)
    found = ra.reference(SEVERAL, **values)
    np.testing.assert_array_equal(found["top"], top)
    np.testing.assert_allclose(found["total"], total, rtol=1e-6, atol=1e-6)
    assert values["x"].shape[0] == 2 and found["top"].dtype == "float32"


@examples(10)
@given(data=st.data())
def test_a_form_in_any_partition_and_bracketing_by_public_names_alone(data: Any) -> None:
    form = ra.derive_incremental(VARIANCE)
    x = data.draw(streams(form, sizes={"i": 2, "j": (1, 8)}))["x"]
    borders = data.draw(partitions(x.shape[1]))
    states = []
    for a, b in zip(borders, borders[1:], strict=False):
        states.append(form.accumulator())
        states[-1].update(x=x[:, a:b])

    def merge(a: Any, b: Any) -> Any:
        a.merge(b)
        return a

    total = fold(merge, states, data.draw(bracketings(len(states))))
    np.testing.assert_allclose(total.result(), variance(x), rtol=1e-13, atol=1e-15)


@examples(5)
@given(spec=specs("weighted", "positions"))
def test_specs_are_specs(spec: Any) -> None:
    assert isinstance(spec, ra.Spec) and "j" in spec.axes and ra.derive_incremental(spec, axis="j").slots


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: arrays(3, specials=["nans"]), "nans"),
        (lambda: arrays(3, domain=["even"]), "even"),
        (lambda: specs("unknown"), "unknown"),
        (lambda: partitions(-1), "partitions(-1"),
        (lambda: partitions(3, most=1), "most=1"),
        (lambda: bracketings(0), "bracketings(0)"),
        (lambda: fold(max, [1, 2, 3], [0]), "3 states"),
        (lambda: fold(max, [1, 2, 3], [2, 0]), "[2, 0]"),
        (lambda: streams(SEVERAL, sizes={"k": 2}), "'k'"),
        (lambda: laws(3), "int"),
        (lambda: laws(max), "identity"),
        (lambda: laws(ra.derive_incremental(VARIANCE), 0), "leave it out"),
        (lambda: check_equivalence(X, max), "Spec"),
        (lambda: check_equivalence(VARIANCE, 3), "cannot be called"),
        (lambda: check_equivalence(VARIANCE, variance, dtype="int8"), "int8"),
        (lambda: check_equivalence(VARIANCE, variance, dtype="floaty"), "floaty"),
        (lambda: check_equivalence(VARIANCE, variance, kinds=["odd"]), "odd"),
        (lambda: check_equivalence(VARIANCE, variance, kinds=[]), "none"),
        (lambda: check_equivalence(VARIANCE, variance, sizes={"k": 1}), "'k'"),
        (lambda: check_equivalence(VARIANCE, variance, sizes={"j": (-1,)}), "-1"),
    ],
)
def test_refusals_have_four_parts(call: Callable[[], Any], word: str) -> None:
    with pytest.raises(RedalgError) as refusal:
        call()
    error = refusal.value
    assert all((error.what, error.where, error.why, error.fix)) and word in str(error)


# --- laws -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", laws(VARIANCE, sizes={"i": 2}), ids=str)
def test_laws_of_a_form(law: Any) -> None:
    law()
    law({"x": np.array([[1.0, 2.0, 4.0]])})
    assert law.equation and law.equality


def test_laws_of_a_wrong_form_are_broken() -> None:
    wrong = replace(ra.derive_incremental(VARIANCE), spec=ra.Spec(v=ra.mean(X**2, "j")))
    broken = [str(law) for law in laws(wrong) if _broken(law)]
    assert "updates_give_the_definition" in broken and len(broken) >= 4


def _broken(law: Callable[[], None]) -> bool:
    try:
        law()
    except AssertionError:
        return True
    return False


def test_laws_of_monoids_and_functions() -> None:
    few: dict[str, Any] = {"domain": "finite", "samples": 40}
    affine = ra.Monoid("affine", lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (1, 0))
    assert [str(law) for law in laws(affine, **few) if _broken(law)] == []
    claimed = ra.Monoid("affine", lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (1, 0), commutative=True)
    assert [str(law) for law in laws(claimed, **few) if _broken(law)] == ["commutativity"]
    smooth = ra.Monoid("softmax", lambda a, b: ra.log(sympy.exp(a) + sympy.exp(b)), -sympy.oo, commutative=True)
    assert "associativity" not in [str(law) for law in laws(smooth, specials=(), **few) if _broken(law)]
    mean = laws(lambda a, b: (a + b) / 2, 0.0, specials=())
    assert [str(law) for law in mean if _broken(law)] == ["associativity", "left identity", "right identity"]
    with pytest.raises(AssertionError, match="associativity is broken: .* fails for a = "):
        mean[0]()


# --- check_equivalence: what is right ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_right_implementations_are_within_their_bounds(dtype: str) -> None:
    """NumPy in the type itself, or wider for 16 bits; bounds are of the size of the errors."""
    wide = "float32" if dtype == "float16" else dtype
    rounded = lambda f: lambda x: f(x.astype(wide)).astype(dtype)  # noqa: E731
    for spec, function in ((VARIANCE, variance), (SOFTMAX, softmax)):
        report = check_equivalence(spec, rounded(function), dtype=dtype, sizes={"j": (1, 2, 17)})
        assert 0.05 < report.worst <= 1 and report.compared > 80 and report.open < report.compared / 5
        assert set(report.worst_by_kind) == set(testing.check_equivalence.__kwdefaults__["kinds"])


def test_reports_count_and_read() -> None:
    report = check_equivalence(ARGMAX, lambda x: x.argmax(axis=1), sizes={"j": (1, 2, 3)})
    assert (report.cases, report.worst, report.open, report.compared) == (27, 0, 0, 81)
    assert report == check_equivalence(ARGMAX, lambda x: x.argmax(axis=1), sizes={"j": (1, 2, 3)})
    assert "27 cases, 81 numbers" in str(report) and "by kind: ordinary 0" in str(report)
    assert "-1" in str(failing(ARGMAX, lambda x: np.zeros(len(x), int)))  # the argmax of nothing


def test_several_outputs_as_dict_or_tuple_by_name_or_position() -> None:
    def by_name(w: Any, x: Any) -> Any:
        return {"total": (x * w).sum(axis=1), "top": x.max(axis=1, initial=-np.inf)}

    def by_position(a: Any, b: Any) -> Any:
        return a.max(axis=1, initial=-np.inf), (a * b).sum(axis=1)

    for function in (by_name, by_position, lambda **k: by_name(**k)):
        assert check_equivalence(SEVERAL, function, long=()).cases > 30
    swapped = failing(SEVERAL, lambda a, b: by_position(a, b)[::-1])
    assert swapped.output in ("top", "total")


def test_specs_forms_and_names_with_their_own_samples() -> None:
    form = ra.derive_incremental(SOFTMAX)
    assert check_equivalence(form, form.compile("numpy")).worst <= 1  # up to rows of thousands
    one_by_one = lambda x: streamed(form, x)  # noqa: E731
    assert check_equivalence(form, one_by_one, sizes={"j": (1, 17)}, kinds=["ordinary", "offset", "ties"]).worst <= 1
    entry = ra.catalog.entry("cross_entropy")
    assert check_equivalence("cross_entropy", lambda **k: ra.reference(entry.spec, **k), long=()).worst <= 1


def streamed(form: Any, x: Any) -> Any:
    acc = form.accumulator()
    for k in range(x.shape[1]):
        acc.update(x=x[:, k : k + 1])
    return acc.apply(x=x)


def test_generated_code_is_held_like_any_other_callable() -> None:
    form = ra.derive_incremental(VARIANCE)
    report = check_equivalence(VARIANCE, form.compile("cpu"), dtype="float32", sizes={"j": (1, 2, 17)})
    assert report.worst <= 1 and report.compared > 50


def test_arrays_of_other_libraries_are_converted() -> None:
    class Boxed:
        def __init__(self, array: Any) -> None:
            self.array = array

        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return np.asarray(self.array, dtype=dtype)

    assert check_equivalence(VARIANCE, lambda x: Boxed(variance(x.array)), convert=Boxed, kinds=["ties"]).cases == 5
    torch = pytest.importorskip("torch")
    told = {"convert": torch.from_numpy, "kinds": ["ordinary"], "long": (33,)}
    assert check_equivalence(SOFTMAX, lambda x: torch.softmax(x, 1), **told)


# --- check_equivalence: what is wrong ---------------------------------------------------------------------------------


def expanded(x: Any) -> Any:
    return (x * x).mean(axis=1) - x.mean(axis=1) ** 2


def last_of_ties(x: Any) -> Any:
    return x.shape[1] - 1 - np.argmax(x[:, ::-1], axis=1)


def test_wrong_implementations_are_found_by_the_kind_made_for_them() -> None:
    naive = lambda x: np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)  # noqa: E731
    assert failing(SOFTMAX, naive, kinds=["huge"]).kind == "huge"
    assert failing(VARIANCE, expanded, kinds=["offset"]).kind == "offset"
    assert failing(ra.Spec(y=ra.max(X, "j")), lambda x: np.nanmax(x, axis=1), kinds=["nan"]).kind == "nan"
    unmasked = lambda x: np.exp(x - x.max(axis=1, keepdims=True)).sum(axis=1)  # noqa: E731
    assert failing(ra.Spec(s=ra.sum(WEIGHTS, "j")), unmasked, kinds=["masked"]).kind == "masked"
    keeps = lambda x: np.logaddexp.reduce(x, axis=1)  # noqa: E731
    assert failing(LSE, keeps, kinds=["infinities"]).found == np.inf  # where exp(inf - inf) is NaN by definition
    flushing = lambda x: np.where(np.abs(x) < 1e-300, 0, x).max(axis=1, initial=-np.inf)  # noqa: E731
    assert failing(ra.Spec(y=ra.max(X, "j")), flushing, kinds=["subnormals"]).kind == "subnormals"
    from_zero = lambda x: x.max(axis=1, initial=0)  # noqa: E731
    assert failing(ra.Spec(y=ra.max(X, "j")), from_zero, kinds=["ordinary"]).exact < 0


def test_the_smallest_failing_input_and_its_numbers() -> None:
    error = failing(ARGMAX, last_of_ties, sizes={"j": (1, 2, 3, 17)})
    assert error.arrays["x"].tolist() == [[0.0, 0.0]] and error.kind == "ties"
    assert (error.output, error.index, error.found, error.exact, error.bound) == ("i", (0,), 1, 0, 0)
    assert "x = [[0.0, 0.0]]" in str(error) and "instead of 0.0" in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) and again.arrays["x"].tolist() == [[0.0, 0.0]]


def test_an_error_of_some_units_in_the_last_place_is_seen() -> None:
    """The bound is not slack: the mean of two, wrong by 8 units; and `units` is what it says."""
    wrong = lambda x: x.mean(axis=1) * (1 + 2.0**-49)  # noqa: E731
    spec = ra.Spec(m=MEAN)
    error = failing(spec, wrong, sizes={"j": (1, 2, 3)})
    assert error.error is not None and error.bound is not None and 1 < error.error / error.bound < 20
    assert check_equivalence(spec, wrong, sizes={"j": (1, 2, 3)}, units=20).worst > 1


def test_less_precise_arithmetic_is_seen_unless_it_is_said() -> None:
    narrow = lambda x: variance(x.astype("float32")).astype("float64")  # noqa: E731
    some = ["ordinary", "ties"]
    assert failing(VARIANCE, narrow, kinds=some).bound is not None
    narrow_input = lambda x: variance(x.astype("float16").astype("float32")).astype("float16")  # noqa: E731
    assert check_equivalence(VARIANCE, narrow_input, dtype="float16", arithmetic="float32", kinds=some).worst <= 1
    flushing = lambda x: np.where(np.abs(x) < 2.0**-1022, 0, x).sum(axis=1)  # noqa: E731
    total = ra.Spec(s=ra.sum(X * X, "j"))
    squares = lambda x: flushing(x * x)  # noqa: E731
    assert check_equivalence(total, squares, flush_subnormals=True, kinds=["subnormals"]).worst <= 1


def test_shapes_exceptions_and_written_input() -> None:
    assert "shape" in str(failing(VARIANCE, lambda x: x.mean(axis=0), sizes={"i": 2}))
    fails = failing(LSE, lambda x: 1 // 0)
    assert "ZeroDivisionError" in fails.why and fails.error is None and fails.arrays["x"].size <= 1

    def writes(x: Any) -> Any:
        x -= x.mean(axis=1, keepdims=True)
        return (x * x).mean(axis=1)

    assert "wrote to its argument x" in failing(VARIANCE, writes).why
    assert failing(VARIANCE, lambda x: variance(x[:, :16]) if x.shape[1] else variance(x)).arrays["x"].shape == (1, 17)


def test_near_ties_of_computed_values_are_open_and_true_ties_are_not() -> None:
    spec = ra.Spec(i=ra.argmax(ra.exp(X) / (1 + ra.exp(X)), "j"))
    last = lambda x: last_of_ties(1 / (1 + np.exp(-x)))  # noqa: E731
    assert check_equivalence(spec, last, kinds=["ties"], sizes={"j": (2, 17)}).open > 0
    assert failing(ARGMAX, last_of_ties, kinds=["ties"], sizes={"j": (2, 17)}).found == 1


def test_math_functions_of_numbers_and_full_reductions() -> None:
    y = ra.tensors("y[j]")
    total = ra.Spec(s=ra.sum(y, "j"))
    assert check_equivalence(total, lambda y: math.fsum(y), kinds=["ordinary", "ties", "offset"]).worst <= 1
    scaled = ra.Spec(s=ra.sum(y, "j") * ra.scalar("c"))
    assert check_equivalence(scaled, lambda y, c: c * y.sum(), long=(31,)).worst <= 1


WRONG: dict[str, Any] = {
    "units": [float("nan"), float("inf"), 0, -1.0, "2", None],
    "calls": [-1, 2.5, "many"],
    "seed": ["a", 0.5],
    "sizes": [{"j": 2.5}, {"j": "ab"}, {"j": [-1]}],
    "sample": [
        lambda sizes, seed: None,
        lambda sizes, seed: {"X": np.ones((3, 3))},
        lambda sizes, seed: {"x": np.ones(sizes["j"] + 1)},
    ],
}


CASES = [(word, value) for word, values in WRONG.items() for value in values]


@pytest.mark.parametrize(("word", "value"), CASES, ids=[f"{word} {number}" for number, (word, _) in enumerate(CASES)])
def test_arguments_that_say_no_bound_or_no_input_let_no_callable_pass(word: str, value: Any) -> None:
    for right in (True, False):
        with pytest.raises(RedalgError) as refusal:
            check_equivalence(VARIANCE, variance if right else lambda x: 2 * variance(x), **{word: value})
        assert not isinstance(refusal.value, NotEquivalent) and refusal.value.fix


def test_a_sample_may_leave_tensors_out() -> None:
    drawn: list[int] = []

    def sample(sizes: Any, seed: int) -> dict[str, Any]:
        drawn.append(sizes["j"])
        return {"w": np.full(sizes["j"], 3.0)}

    weighted = ra.Spec(y=ra.sum(X * W, "j"))
    assert check_equivalence(weighted, lambda x, w: x @ w, sample=sample, kinds=["ordinary"]).worst <= 1
    assert 17 in drawn
