"""`redalg.proofs.audit`: what it must find from formulas alone, and what it must leave alone."""

from __future__ import annotations

import functools
import itertools
import math
import random
import subprocess
import sys
import types
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redalg.errors import RedalgError
from redalg.proofs import audit
from redalg.proofs.audits import drawing
from tests.support import audit_families
from tests.support.audit_operators import FAMILIES, draw, texts_fail

INF, NAN = math.inf, math.nan
assert audit_families  # its families register themselves


# --- operators that a pasted test imports by name ---------------------------------------------------------------------


def welford(a: Any, b: Any) -> Any:
    """As in code generators for GPUs: only the sum of the weights is guarded."""
    (n, mean, m2), (k, other, k2) = a, b
    new, delta = n + k, other - mean
    share = k / new if new else 0.0
    return (new, mean + delta * share, m2 + k2 + delta * delta * n * share)


def argmax(a: Any, b: Any) -> Any:
    return a if a[0] >= b[0] else b


def mixed_log_sum_exp(a: Any, b: Any) -> Any:
    m = max(a[0], b[0])
    return (m, a[1] * 2.0 ** (a[0] - m) + b[1] * math.exp(b[0] - m)) if m > -INF else (m, 0.0)


def log_sum_exp(a: float, b: float) -> float:
    m = max(a, b)
    return m + math.log(math.exp(a - m) + math.exp(b - m)) if m > -INF else m


def mean(a: Any, b: Any) -> Any:
    return (a[0] + b[0], (a[0] * a[1] + b[0] * b[1]) / (a[0] + b[0]))


def guarded_mean(a: Any, b: Any) -> Any:
    return mean(a, b) if a[0] and b[0] else a if a[0] else b


class Pair(NamedTuple):
    total: float
    n: int


def pairs(a: Pair, b: Pair) -> Pair:
    return Pair(a.total + b.total, a.n + b.n)


def spoilt(a: Any, b: Any, by: float) -> Any:
    """A sum whose associativity fails by about `by`."""
    return a + b + by * ((a * b) * (a * b))


# --- what formulas alone must show ------------------------------------------------------------------------------------


def test_the_nan_of_an_empty_welford_merge() -> None:
    """An empty state and a mean whose square overflows: 0 * inf."""
    report = audit(welford, (0.0, 0.0, 0.0))
    law = report["empty merge"]
    assert law.status == "broken" and law.counterexample is not None
    assert "NaN" in law.counterexample.demand and any(x != x for x in law.counterexample.left)
    assert texts_fail(report, "empty merge") == [True]


def test_the_nan_of_a_lifted_empty_chunk() -> None:
    lift = lambda xs: (len(xs), sum(xs) / len(xs) if len(xs) else NAN, 0)  # noqa: E731
    report = audit(lambda a, b: a if not b[0] else welford(a, b), (0, 0, 0), lift=lift, specials=())
    example = report["empty merge"].counterexample
    assert "empty merge" in report.broken and example is not None
    assert example.states == {"a": [0.0]} and example.demand == "lift [] ⊕ a = a"


def test_the_tie_of_an_argmax_claimed_commutative() -> None:
    claimed = audit(argmax, (-INF, -1), domain=("finite", "count"), commutative=True)
    example = claimed["commutativity"].counterexample
    assert claimed.broken == ("commutativity",) and example is not None
    assert example.states == {"a": (0.0, 0), "b": (0.0, 1)}
    assert texts_fail(claimed) == [True]
    assert audit(argmax, (-INF, -1), domain=("finite", "count")).ok


def test_a_merge_that_mixes_bases() -> None:
    report = audit(mixed_log_sum_exp, (-INF, 0.0), domain=("finite", "finite positive"), commutative=True)
    assert set(report.broken) == {"associativity", "commutativity"}
    assert texts_fail(report) == [True, True]
    half = lambda a, b: max(a, b) + math.log(2 ** (a - max(a, b)) + 2 ** (b - max(a, b)))  # noqa: E731
    assert "associativity" in audit(half, -INF, domain="finite").broken
    assert audit(log_sum_exp, -INF, domain="finite", commutative=True).ok


def test_a_mean_that_divides_by_zero_counts() -> None:
    state = {"domain": ("count", "finite"), "valid": lambda s: s[0] or not s[1]}
    for zero in ((0, 0.0), (0.0, 0.0), (np.float64(0), np.float64(0))):
        report = audit(mean, zero, **state)
        assert "empty merge" in report.broken and report["empty merge"].counterexample.demand == "e ⊕ e = e"  # type: ignore[union-attr]
    assert audit(guarded_mean, (0, 0.0), commutative=True, **state).ok


@pytest.mark.parametrize("seed", range(60))
def test_sixty_drawn_operators(seed: int) -> None:
    """Every broken one is found, by the law that was broken; of the others none is."""
    drawn = draw(seed)
    report = audit(drawn.combine, drawn.identity, **drawn.options)
    assert (drawn.breaks in report.broken) if seed % 2 else report.ok, f"{drawn}\n{report}"
    assert set(report.broken) <= {drawn.breaks} | drawn.follows, f"{drawn}\n{report}"


def test_the_sixty_are_thirty_and_thirty_of_every_family() -> None:
    drawn = [draw(seed) for seed in range(60)]
    assert sum(bool(d.breaks) for d in drawn) == 30 and len(FAMILIES) <= 30
    assert len({d.breaks for d in drawn}) >= 7


@pytest.mark.parametrize("seed", range(0, 60, 8))
def test_texts_of_drawn_operators_run(seed: int) -> None:
    """The test of a broken operator fails, that of a lawful one passes."""
    for drawn, number in ((draw(seed), seed), (draw(seed + 1), seed + 1)):
        lines = [
            "import tests.support.audit_families",
            "from tests.support.audit_operators import draw",
            f"drawn = draw({number})",
        ]
        lines += ["combine = drawn.combine"]
        lines += [
            f"{k} = drawn.options[{k!r}]" for k in ("lift", "finalize", "definition", "valid") if k in drawn.options
        ]
        report = audit(drawn.combine, drawn.identity, samples=60, **drawn.options)
        fails = texts_fail(report, imports="\n".join(lines))
        assert fails and all(f is bool(drawn.breaks) for f in fails), f"{drawn}\n{report}"


# --- rounding is not a broken law -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_rounding_is_told_from_a_broken_law(dtype: str) -> None:
    """Lawful operators round in every type; a law broken by 2^-6 is seen in all of them, where u is 2^-11 at best."""
    assert audit(log_sum_exp, -INF, domain="finite", dtype=dtype, commutative=True).ok
    inverse = lambda a, b: 1 / (1 / a + 1 / b) if a < INF and b < INF else min(a, b)  # noqa: E731
    assert audit(inverse, INF, domain="finite positive", dtype=dtype, exact=False, specials=("zeros",)).ok
    wrong = functools.partial(spoilt, by=2.0**-6)
    assert audit(wrong, 0.0, domain="finite", dtype=dtype, exact=False, specials=()).broken == ("associativity",)


def test_a_law_broken_by_very_little_is_seen_where_the_type_can_tell() -> None:
    """2^-30 is rounding in float32 where numbers are small, and none in float64; in Fractions 2^-200 is enough."""
    little = functools.partial(spoilt, by=2.0**-30)
    options: dict[str, Any] = {"domain": "finite", "exact": False, "specials": ()}
    assert audit(little, 0.0, dtype="float64", **options).broken == ("associativity",)
    assert audit(little, 0.0, dtype="float32", **options).broken == ("magnitudes",)
    rational = lambda a, b: a + b + Fraction(1, 2**200) * (a * b) ** 2  # noqa: E731
    report = audit(rational, Fraction(0), specials=())
    assert report.broken == ("associativity",) and report["associativity"].equality == "in Fractions"
    assert texts_fail(report) == [True]


def test_rtol_replaces_the_bound() -> None:
    little = functools.partial(spoilt, by=2.0**-30)
    options: dict[str, Any] = {"domain": "finite", "exact": False, "specials": ()}
    assert audit(little, 0.0, rtol=1e-3, **options).broken == ("magnitudes",)
    assert audit(little, 0.0, rtol=1e-15, **options).broken == ("associativity",)


def test_exact_says_whether_fractions_survive() -> None:
    assert audit(guarded_mean, (0, Fraction(0)), exact=True, domain=("positive", "real")).ok
    with pytest.raises(RedalgError, match="exact=True") as refusal:
        audit(log_sum_exp, -INF, exact=True, domain="finite")
    assert all((refusal.value.what, refusal.value.where, refusal.value.why, refusal.value.fix))
    with pytest.raises(RedalgError, match="complex"):
        audit(lambda a, b: a * b, 1 + 0j, exact=True)


# --- special values ---------------------------------------------------------------------------------------------------


def test_each_kind_of_special_number_is_a_law_of_its_own() -> None:
    assert audit(max, -INF, commutative=True).broken == ("nan",)
    assert audit(np.maximum, -INF, commutative=True).ok
    assert audit(lambda a, b: a * b, 1.0, commutative=True).ok
    assert audit(lambda a, b: math.sqrt(a * a + b * b), 0.0, domain="finite nonnegative").broken == ("huge",)
    rescaled = lambda a, b: (a[0] + b[0], (a[0] * a[1] + b[0] * b[1]) / (a[0] + b[0] or 1))  # noqa: E731
    assert "infinities" in audit(rescaled, (0.0, 0.0), domain=("positive", "real")).broken
    assert "infinities" not in audit(rescaled, (0.0, 0.0), domain=("finite positive", "finite")).broken
    underflows = lambda a, b: a / (a * 1e-300) * (a * 1e-300) + b if a else b  # noqa: E731
    report = audit(underflows, np.float64(0), domain="finite nonnegative", commutative=True)
    assert report.broken == ("subnormals",) and texts_fail(report) == [True]


def test_zero_and_minus_zero_are_equal() -> None:
    assert audit(lambda a, b: -(-a - b), 0.0, domain="finite").ok
    inverse = lambda a, b: 0.0 if not a or not b else 1 / (1 / a + 1 / b)  # noqa: E731
    assert "left identity" in audit(inverse, 0.0, domain="finite nonnegative").broken


# --- the report -------------------------------------------------------------------------------------------------------


def test_reports_are_functions_of_their_arguments() -> None:
    first, second = (audit(mixed_log_sum_exp, (-INF, 0.0), domain=("finite", "positive")) for _ in range(2))
    assert str(first) == str(second) and first.hypothesis_test() == second.hypothesis_test()
    other = audit(mixed_log_sum_exp, (-INF, 0.0), domain=("finite", "positive"), seed=7)
    assert other.broken == first.broken


def test_counterexamples_are_small() -> None:
    """Known smallest ones: numbers 0, 1 and one element per chunk."""
    report = audit(lambda a, b: (a + b) / 2, 0.0, domain="finite", specials=())
    assert set(report["left identity"].counterexample.states.values()) == {1.0}  # type: ignore[union-attr]
    assert sorted(report["associativity"].counterexample.states.values()) == [0.0, 0.0, 1.0]  # type: ignore[union-attr]
    summed = audit(
        lambda a, b: a + b,
        0.0,
        lift=lambda xs: math.fsum(x for x in xs if x < 3),
        domain="finite",
        definition=math.fsum,
        specials=(),
    )
    assert summed.broken == ("definition",)
    states = summed["definition"].counterexample.states  # type: ignore[union-attr]
    assert sorted(states.values()) == [[], [], [3.0]]


def test_a_report_reads_and_requires() -> None:
    good = audit(lambda a, b: a + b, 0.0, commutative=True)
    assert good.require() is good and "holds on 200 samples, in Fractions" in str(good)
    bad = audit(argmax, (-INF, -1), domain=("finite", "count"), commutative=True)
    with pytest.raises(RedalgError, match="commutativity"):
        bad.require()
    assert "not claimed" in str(audit(argmax, (-INF, -1), domain=("finite", "count"))["commutativity"])


def test_texts_stand_alone() -> None:
    """Imports where there is something to import; else the source, with what it reads; else a place to fill in."""
    scale = 3.0

    def local(a: float, b: float, *, by: float = 1.0) -> float:
        return a + scale * b

    closed = lambda a, b: math.floor(a) + scale * b  # noqa: E731
    text = audit(argmax, (-INF, -1), domain=("finite", "count"), commutative=True).hypothesis_test()
    assert f"from {__name__} import argmax as combine" in text
    report = audit(closed, 0.0, specials=())
    assert "scale = 3.0" in report.hypothesis_test() and all(texts_fail(report))
    assert "define it here" in audit(local, 0.0, specials=()).hypothesis_test()
    assert all(texts_fail(audit(local, 0.0, specials=()), imports="combine = lambda a, b: a + 3 * b"))
    assert not any(texts_fail(audit(local, 0.0, specials=()), imports="combine = lambda a, b: a + b"))


def test_a_law_that_was_not_judged_has_no_text() -> None:
    with pytest.raises(RedalgError, match="try"):
        audit(lambda a, b: a + b, 0).hypothesis_test("huge")


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: audit(3, 0.0), "not a function"),
        (lambda: audit(max, None), "lift="),
        (lambda: audit(max, "text"), "str"),
        (lambda: audit(max, 0.0, domain="reel"), "'reel'"),
        (lambda: audit(pairs, Pair(0.0, 0), domain=("real",)), "1 hints for 2 parts"),
        (lambda: audit(lambda a, b: (a, b), 0.0), "tuple"),
        (lambda: audit(lambda a: a, 0.0), "TypeError"),
        (lambda: audit(max, 0.0, specials=("nans",)), "nans"),
        (lambda: audit(max, 0.0, samples=0), "one sample"),
        (lambda: audit(max, 0.0, dtype="int32"), "int32"),
        (lambda: audit(max, 0.0, definition=max), "lift="),
        (lambda: audit(max, 0.0, valid=lambda s: False), "valid="),
        (lambda: audit(pairs, Pair(0.0, 0), lift=lambda x: Pair(x + 1, 1)), "functools.reduce"),
        (lambda: audit(lambda a, b: a + b, {"x": 0.0}, domain={"y": "real"}), "'y'"),
    ],
)
def test_refusals_have_four_parts(call: Callable[[], Any], word: str) -> None:
    with pytest.raises(RedalgError) as refusal:
        call()
    error = refusal.value
    assert all((error.what, error.where, error.why, error.fix)) and word in str(error)


BLOCKED = """
import importlib.abc, sys
class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        foreign = name.split(".")[0] in {"sympy", "numpy", "numba", "mpmath"}
        if foreign or (name.startswith("redalg.") and not name.startswith("redalg.proofs")):
            raise ImportError("blocked: " + name)
sys.meta_path.insert(0, Blocker())
import redalg.proofs
assert "hypothesis" not in sys.modules
report = redalg.proofs.audit(lambda a, b: (a + b) / 2, 0.0)
print(report.broken, "test_operator_associativity" in report.hypothesis_test())
"""


def test_the_package_imports_and_audits_with_everything_else_blocked() -> None:
    out = subprocess.run([sys.executable, "-c", BLOCKED], capture_output=True, text=True)
    assert out.returncode == 0, out.stderr
    assert out.stdout.split("(")[1].startswith("'associativity', 'left identity'") and "True" in out.stdout


def test_without_hypothesis_an_audit_is_refused() -> None:
    code = (
        "import sys; sys.modules['hypothesis'] = None\n"
        "from redalg.errors import RedalgError\nfrom redalg.proofs import audit\n"
        "try:\n    audit(max, 0.0)\nexcept RedalgError as error:\n    print(error)\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert out.returncode == 0, out.stderr
    assert "pip install 'redalg[testing]'" in out.stdout
    assert all(w in out.stdout for w in ("refused:", "where:", "why:", "try:"))


# --- Hypothesis beneath -----------------------------------------------------------------------------------------------


def test_an_audit_within_a_test_of_hypothesis() -> None:
    """Hypothesis refuses a search within its own tests; an audit is none of theirs."""
    found = set()

    @settings(max_examples=3, database=None)
    @given(seed=st.integers(0, 5))
    def test(seed: int) -> None:
        found.add(str(audit(argmax, (-INF, -1), domain=("finite", "count"), commutative=True, samples=20)))

    test()
    assert found == {str(audit(argmax, (-INF, -1), domain=("finite", "count"), commutative=True, samples=20))}


def test_what_is_drawn_depends_on_the_word_alone() -> None:
    """Not on modules that are loaded, whose constants Hypothesis likes to draw, nor on profiles or global seeds."""
    numbers = drawing.strategy(lambda below: tuple(below(n) for n in (2, 20, 100, 101, 180, 4000, 2**32)))
    before = drawing.drawn(numbers, 300, "word")
    profile = settings.get_current_profile_name()
    settings.register_profile("other", max_examples=7, derandomize=False)
    constants = types.ModuleType("constants_of_somebody")
    try:
        sys.modules[constants.__name__] = constants
        settings.load_profile("other")
        random.seed(1)
        assert drawing.drawn(numbers, 300, "word") == before != drawing.drawn(numbers, 300, "another")
    finally:
        del sys.modules[constants.__name__]
        settings.load_profile(profile)
    assert len(before) == 300 and before[0] == (0,) * 7  # the simplest comes first
    for k, n in enumerate((2, 20, 100, 101, 180, 4000, 2**32)):
        values = [v[k] for v in before]
        assert min(values) >= 0 and max(values) < n and sum(v >= n / 2 for v in values) > 50


def test_the_rare_failures_of_a_random_operator_are_found() -> None:
    """Hypothesis seeds the global generators anew for every example: cases are judged outside of it."""
    state = random.getstate()
    random.seed(5)
    try:
        report = audit(lambda a, b: a + b + (random.random() < 0.01), 0.0, domain="finite", specials=())
    finally:
        random.setstate(state)
    assert "repetition" in report.broken


def test_a_failure_that_does_not_come_back_is_told_as_that() -> None:
    calls = itertools.count(1)
    once = lambda a, b: a + b + (next(calls) == 700)  # noqa: E731
    report = audit(once, 0.0, domain="finite", specials=())
    example = report[report.broken[0]].counterexample
    assert len(report.broken) == 1 and example is not None and not example.reproduces
    assert str(example).endswith(", but not when it was computed again")
    steady = audit(lambda a, b: a - b, 0.0, domain="finite", specials=())["associativity"].counterexample
    assert steady is not None and steady.reproduces and "again" not in str(steady)
