"""One infinity or NaN at any place of any tensor: a form gives what the definition gives, or NaN and says so."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.engine.passes import derive_plan
from redalg.form import Form
from redalg.graph import node as g
from redalg.graph.node import Decl
from redalg.laws import drawn as numbers
from redalg.laws import infinities
from redalg.laws.batch import free_axis, plan_over, spec_over
from redalg.testing import sampling
from redalg.testing.generator import generate
from redalg.testing.running import merged, named, streamed
from tests.support.forms import form_of
from tests.support.simulated import run as simulated

pytestmark = pytest.mark.filterwarnings("ignore")
SPECIAL = (np.inf, -np.inf, np.nan)
BLOCK, DEEP = 3, 18  # seeds of one test, generated specs in all
Arrays = dict[str, Any]


def drawn(spec: Any, rng: np.random.Generator, lengths: dict[str, int]) -> Arrays:
    """No two numbers alike, so that no result hangs on a rounding."""
    found = {}
    for d in spec.tensors:
        shape = [lengths.get(a, 2) for a in d.axes]
        sign = 1 if d.domain & {"positive", "nonnegative"} else rng.choice((-1, 1), shape)
        plain = rng.random(shape) < 0.7 if "bool" in d.domain else rng.uniform(0.25, 2, shape) * sign
        found[d.name] = np.asarray(rng.integers(1, 6, shape) * sign if "integer" in d.domain else plain)
    return found


def cases(spec: Any, rng: Random, lengths: dict[str, int], per_tensor: int) -> Iterator[Arrays]:
    """Special values at random places, and alone in a streamed tensor; a declared domain is taken at its word."""
    axes = {a for a, n in lengths.items() if n}
    for d in spec.tensors:
        if d.domain & {"bool", "integer", "complex"}:
            continue
        for _ in range(per_tensor):
            arrays = drawn(spec, np.random.default_rng(rng.getrandbits(32)), lengths)
            at = tuple(rng.randrange(n) for n in arrays[d.name].shape)
            arrays[d.name][at] = rng.choice(SPECIAL[:1] if d.domain & {"positive", "nonnegative"} else SPECIAL)
            yield arrays
        values = SPECIAL[::2] if d.domain & {"positive", "nonnegative"} else SPECIAL
        for chosen in [*((v,) for v in values), SPECIAL[: len(values) - 1]]:  # nothing else in it, and both infinities
            arrays = drawn(spec, np.random.default_rng(rng.getrandbits(32)), lengths)
            if not axes.isdisjoint(d.axes):
                arrays[d.name] = np.random.default_rng(rng.getrandbits(32)).choice(chosen, arrays[d.name].shape)
                yield arrays


def agree(form: Any, results: Arrays, arrays: Arrays) -> None:
    wanted = named(form, ra.reference(form.spec, **arrays))
    rounded = "cast_commutes" in form.assumptions
    for name, value in wanted.items():
        got, want = np.asarray(results[name]), np.asarray(value)
        void = np.isnan(got) if got.dtype.kind == "f" else got == -1
        if got.dtype.kind == "b":
            void = got != want  # a condition has no NaN
        with np.errstate(invalid="ignore"):
            same = (got == want) | (void & (np.isnan(want) if want.dtype.kind == "f" else got == want))
            if got.dtype.kind == "f":
                same |= np.abs(got - want) <= 1e-6 * (1e-3 + np.abs(want))
                same |= np.isfinite(got) & np.isfinite(want) & rounded
        context = f"{name} = {got} and not {want} for {arrays}: {form.assumptions}"
        assert (same | void).all(), f"another number: {context}"
        assert same.all() or "finite_stage_values" in form.assumptions, f"nothing said: {context}"


def run(form: Any, arrays: Arrays, rng: Random) -> Iterator[Arrays]:
    axis = form.plan.axis[0]
    n = next(np.shape(arrays[d.name])[d.axes.index(axis)] for d in form.spec.tensors if axis in d.axes)
    borders = sampling.cuts(rng, n)
    if form.passes.statistics == 1:
        yield merged(form, arrays, borders, sampling.bracketing(rng, len(borders) - 1))
    yield streamed(form, arrays, borders)


def exported(form: Any) -> Any:
    """The printed NumPy program, as a callable on the arrays and the length of a block."""
    namespace: dict[str, Any] = {}
    exec(form.compile("numpy").source, namespace)
    names = [d.name for d in form.spec.tensors]
    return lambda arrays, block: named(form, namespace["run"](*(arrays[name] for name in names), block=block))


@pytest.mark.parametrize("name", sorted(ra.catalog))
def test_the_catalog(name: str) -> None:
    form = form_of(name)
    if not form.plan.passes or any("complex" in d.domain for d in form.spec.tensors):
        return
    rng, program = Random(name), exported(form)
    for arrays in cases(form.spec, rng, dict.fromkeys(form.plan.axis, 4), 1):
        for block in (1, 3):
            agree(form, program(arrays, block), arrays)
        for results in run(form, arrays, rng):
            agree(form, results, arrays)


@pytest.mark.parametrize("block", range(0, DEEP, BLOCK))
def test_generated_specs(block: int) -> None:
    for seed in range(block, min(block + BLOCK, DEEP)):
        drawn_spec = generate(1000 + seed)
        if drawn_spec.expected != "derived":
            continue
        form = ra.derive_incremental(drawn_spec.spec, axis="j")
        rng, program = Random(seed), exported(form)
        for arrays in cases(form.spec, rng, {"j": 5}, 2):
            agree(form, program(arrays, 2), arrays)
            for results in run(form, arrays, rng):
                agree(form, results, arrays)


TEXTS = (
    "return y = min[j](x[i,j] - mean[j](x[i,j]))",
    "return y = max[j](mean[j](x[i,j]) - 2*x[i,j])",
    "a = mean[j](x[i,j]); b = mean[j](w[j]); return y = mean[j]((x[i,j]-a)*(w[j]-b))",
    "m = max[j](x[i,j]); l = sum[j](exp(x[i,j]-m)); return y = argmax[j](exp(x[i,j]-m)/l)",
    "m = max[j](x[i,j]); return y = max[j](exp(x[i,j]-m)/sum[j](exp(x[i,j]-m)))",
    "return y = min[j](abs(x[i,j])/max[j](abs(x[i,j])))",
)


@pytest.mark.parametrize("text", TEXTS)
def test_extrema_covariances_and_positions(text: str) -> None:
    """At every place, in every accumulator: the infinity a mean leaves an extremum with is no number."""
    form = ra.derive_incremental(ra.parse(text), axis="j")
    rng, program = Random(7), exported(form)
    for value in SPECIAL:
        for j in range(4):
            arrays = drawn(form.spec, np.random.default_rng(j), {"j": 4})
            arrays["x"][0, j] = value
            arrays["x"][1] = value
            agree(form, named(form, form.compile("numpy")(**arrays)), arrays)
            for block in (1, 2, 3):
                agree(form, program(arrays, block), arrays)
            for results in run(form, arrays, rng):
                agree(form, results, arrays)


@pytest.mark.parametrize("text", [TEXTS[0], TEXTS[2], TEXTS[4]])
def test_kernels_keep_the_guard(text: str) -> None:
    form = ra.derive_incremental(ra.parse(text), axis="j")
    cpu = form.compile("cpu")
    for j, value in enumerate((np.inf, -np.inf, np.nan, np.inf)):
        arrays = {k: v.astype(np.float32) for k, v in drawn(form.spec, np.random.default_rng(j), {"j": 4}).items()}
        arrays["x"][0, j] = arrays["x"][1] = value
        agree(form, named(form, cpu(**arrays)), arrays)
        agree(form, simulated(form, arrays)[0], arrays)


AT_EVERY_PLACE = (
    "u = sum[j](w[j]*x[j])/sum[j](w[j]); return y = sum[j](w[j]*(x[j]-u)**2)/sum[j](w[j])",
    "m = max[j](x[j]); return y = exp(x[j]-m)/sum[j](exp(x[j]-m)), l = m + log(sum[j](exp(x[j]-m)))",
    "return y = prod[j](x[j]/mean[j](x[j])), z = sum[j]((x[j]/sum[j](x[j]))**2)",
    "s = sum[j](where(w[j] > 0, x[j], 0)); return y = sum[j](where(w[j] > 0, (x[j]/s)**2, 0))",
    "return y = topk[j:2](x[j]).values, z = sum[j](exp(x[j] - max[j](x[j]))*w[j])",
)


@pytest.mark.parametrize("text", AT_EVERY_PLACE)
def test_kernels_agree_at_every_place_of_every_tensor(text: str) -> None:
    form = ra.derive_incremental(ra.parse(text))
    cpu = form.compile("cpu")
    for d, place, value in itertools.product(form.spec.tensors, range(4), SPECIAL):
        for dtype in (np.float32, np.float64):
            plain = drawn(form.spec, np.random.default_rng(place), {"j": 4})
            arrays = {k: v.astype(dtype) for k, v in plain.items()}
            arrays[d.name][place] = value
            agree(form, named(form, cpu(**arrays)), arrays)


POSITIONS = (
    "return y = argmax[j](exp(x[i,j] - max[j](x[i,j])))",
    "return y = argmin[j](x[i,j] - mean[j](x[i,j]))",
    "return y = argmin[j](log1p(exp(min[j](x[i,j]) - x[i,j])))",
    "return y = argmax[j](exp(x[i,j])/sum[j](w[j]))",
    "m = max[j](x[i,j]); return y = topk[j:2](exp(x[i,j] - m)/sum[j](exp(x[i,j] - m))).indices",
    "return y = argmax[j](abs(x[i,j] - max[j](w[j])))",
    "return y = topk[j:3](w[j]*exp(max[j](x[i,j]))).indices",
)


def with_nan(form: Any, seed: int) -> Arrays:
    """A row without, with one NaN at random and with NaN alone; or a NaN in what all rows share."""
    rng = np.random.default_rng(seed)
    arrays = drawn(form.spec, rng, {"j": 5, "i": 3})
    arrays["x"][1, rng.integers(5)] = np.nan
    arrays["x"][2] = np.nan
    if "w" in arrays and seed % 2:
        arrays["w"][rng.integers(5)] = np.nan
    return arrays


def placed(form: Any, arrays: Arrays, offset: int, cuts: tuple[int, ...]) -> np.ndarray:
    """Two pieces of a stream that starts at an offset, the later one first."""
    parts = []
    for start, stop in zip((0, *cuts), (*cuts, 5), strict=True):
        part = form.accumulator(start=offset + start)
        part.update(**{k: v[..., start:stop] for k, v in arrays.items()})
        parts.append(part)
    for part in parts[-2::-1]:
        parts[-1].merge(part)
    return np.asarray(parts[-1].result())


@pytest.mark.parametrize("text", POSITIONS)
def test_a_position_with_nan_is_the_definitions(text: str) -> None:
    """Of a NaN among the elements, or the first where a stage value is NaN, from wherever the stream starts."""
    form = ra.derive_incremental(ra.parse(text), axis="j")
    cpu, compiled, program = form.compile("cpu"), form.compile("numpy"), exported(form)
    for seed in range(4):
        arrays = with_nan(form, seed)
        wanted = np.asarray(ra.reference(form.spec, **arrays))
        for cuts in ((), (2,), (0, 1), (4,)):
            for offset in (0, 7):
                np.testing.assert_array_equal(placed(form, arrays, offset, cuts) - offset, wanted)
        for block in (1, 2, 5):
            np.testing.assert_array_equal(program(arrays, block)["y"], wanted)
        short = {k: v.astype(np.float32) for k, v in arrays.items()}
        for got in (compiled(**arrays), cpu(**arrays), simulated(form, short)[0]["y"]):
            np.testing.assert_array_equal(got, wanted)


def test_an_infinite_element_reaches_contractions_squared() -> None:
    """An anchor that is read along two axes at once."""
    form = ra.derive_incremental(ra.parse("u = mean[j](k[j,d]); return y = sum[j]((sum[d](q[i,d]*(k[j,d]-u)))**2)"))
    for at in ((0, 0), (2, 1)):
        arrays = drawn(form.spec, np.random.default_rng(1), {"j": 4})
        arrays["k"][at] = np.inf
        for results in run(form, arrays, Random(3)):
            agree(form, results, arrays)


@pytest.mark.parametrize(
    "text",
    [
        "return y = sum[j](where(x[j] > max[j](x[j]), 1, 0))",
        "return y = sum[j](where(x[j] < min[j](x[j]), k[j], 0))",
        "return y = sum[j](where(x[j] >= max[j](x[j]), k[j], 0))",
        "return y = any[j](x[j] > max[j](x[j]))",
    ],
)
def test_conditions_with_nan_are_false_and_no_integer_is_made_of_nan(text: str) -> None:
    form = ra.derive_incremental(ra.parse(f"tensors k[j] integer; {text}" if "k[j]" in text else text))
    x = np.array([1.0, np.nan, 2.0])
    arrays = {"x": x, "k": np.array([1, 2, 3])} if "k[j]" in text else {"x": x}
    for results in run(form, arrays, Random(5)):
        for name, value in named(form, ra.reference(form.spec, **arrays)).items():
            assert results[name] == value and results[name].dtype == value.dtype


FACTORS = (
    "x[j]*{}",
    "exp(x[j])*{}",
    "exp(-x[j]*{}) + v",
    "x[j]/(1 + {})",
    "relu(x[j]*{})",
    "where(x[j] > 0, x[j]*{}, -oo)",
    "x[j]*w[j]*{}",
    "log(1 + abs(x[j]))*{}",
    "sum[d](q[j,d]*k[j,d])*{}",
    "sum[d](q[d]*k[j,d])*w[j]*{}",
)
STAGES = ("relu(u)", "u", "abs(v)", "u**2", "exp(u)", "mean[j](x[j])", "relu(min[j](x[j]))")
NUMBERS = (0.0, 0.0, -0.0, 1.5, -2.0, 3.25, np.inf, -np.inf)


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("kind", ["max", "min", "sum", "prod", "argmax", "argmin", "topk", "any"])
def test_an_infinity_that_meets_a_zero(kind: str, factor: str) -> None:
    """Infinite elements beside stage values of 0, and the reverse, which what is pulled out cannot see."""
    rng = np.random.default_rng(len(factor))
    for stage in STAGES:
        body = factor.format(stage)
        whole = {"topk": f"topk[j:2]({body}).values", "any": f"any[j]({body} > 1)"}.get(kind, f"{kind}[j]({body})")
        form = ra.verdict(ra.parse(f"u = max[j](y[j]); v = sum[j](y[j]); return r = {whole}, u = u, v = v"))
        if not isinstance(form, Form):
            continue
        for length in (1, 2, 3, 3, 5, 5, 5, 5):
            numbers = (NUMBERS, (0.0, 1.0, 1.0, -1.0))[rng.integers(2)]  # often infinities in y alone
            arrays = {t.name: rng.choice(numbers, [{"j": length}.get(a, 2) for a in t.axes]) for t in form.spec.tensors}
            arrays["y"] = rng.choice(NUMBERS, length)
            arrays["y"][:] = rng.choice([arrays["y"][0], *arrays["y"]], length)  # often the same, often nothing but 0
            for results in run(form, arrays, Random(length)):
                agree(form, results, arrays)


# --- what is decided -------------------------------------------------------------------------------------------------

DECIDED = [
    "u = mean[j](x[j]); w = mean[j](y[j]); return c = sum[j]((x[j] - u)*(y[j] - w))",
    "m = max[j](x[j]); return y = min[j](x[j] - m)",
    "u = mean[j](x[j]); return at = argmax[j](x[j] - u)",
    "u = mean[j](x[j]); return s = sum[j](x[j]*w[j]) / sum[j](w[j]), v = mean[j]((x[j] - u)**2)",
    "m = max[j](x[j]); return p = exp(x[j] - m) / sum[j](exp(x[j] - m))",
    "a = sum[j](where(k[j] > 0, x[j], 0)); return y = sum[j](x[j]*a) - a",
    "a = sum[j](x[j]); return y = sum[j](x[j] - a*w[j])",
    "m = max[j](x[j]*w[j]); return y = sum[j](w[j]*(x[j] - m))",
    "tensors x[j] positive; u = mean[j](log(x[j])); return y = mean[j]((log(x[j]) - u)**2)",
]


def strength(found: dict[str, str]) -> dict[str, int]:
    return {name: 2 if kind == "number" else 1 for name, kind in found.items()}


@pytest.mark.parametrize("text", DECIDED)
def test_other_numbers_beside_the_infinities_show_nothing_more(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of forms without guards, where there is the most to find."""
    spec = ra.parse(text)
    form = Form(spec, derive_plan(spec))
    systematic = strength(infinities.differences(form))
    kinds, data = numbers._kinds.__wrapped__, numbers.data.__wrapped__  # nothing is kept of what is drawn
    monkeypatch.setattr(numbers, "_kinds", kinds)
    monkeypatch.setattr(infinities, "data", data)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        monkeypatch.setattr(numbers, "_numbers", lambda shape, domain, *_, rng=rng: one_tensor(shape, domain, rng))
        for name, kind in strength(infinities.differences(form)).items():
            assert kind <= systematic.get(name, 0), (name, seed)


def one_tensor(shape: tuple[int, ...], domain: frozenset[str], rng: np.random.Generator) -> np.ndarray:
    lengths = {f"a{k}": length for k, length in enumerate(shape)}
    spec = type("Spec", (), {"tensors": (Decl("t", tuple(lengths), domain),)})
    return drawn(spec, rng, lengths)["t"]


@pytest.mark.parametrize("text", DECIDED)
def test_names_of_tensors_decide_nothing(text: str) -> None:
    renamed = re.sub(r"\b([xywk])(?=\[j\])", r"\1_renamed", text)
    one, other = (ra.derive_incremental(ra.parse(t)) for t in (text, renamed))
    assert dict(one.assumptions) == dict(other.assumptions)
    assert [o.guard is None for o in one.plan.outputs] == [o.guard is None for o in other.plan.outputs]


@pytest.mark.parametrize("text", DECIDED)
def test_a_form_beyond_the_budget_is_nan_at_infinities_and_says_so(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(infinities, "INFINITIES", 0)
    form = ra.derive_incremental(ra.parse(text))
    assert "budget" in form.assumptions["finite_stage_values"]
    rng = np.random.default_rng(1)
    lengths = {"j": 5}
    arrays = drawn(form.spec, rng, lengths)
    agree(form, named(form, form.compile("numpy")(**arrays)), arrays)
    for d in form.spec.tensors:
        for place, value in enumerate(SPECIAL):
            arrays = drawn(form.spec, rng, lengths)
            arrays[d.name][place] = value
            results = named(form, form.compile("numpy")(**arrays))
            agree(form, results, arrays)
            for name, result in results.items():
                read = any(leaf.attr.name == d.name for leaf in g.leaves(form.spec.outputs[name]))
                assert not read or result.dtype.kind == "i" or np.isnan(result).all(), (name, d.name, value)


def test_a_spec_with_many_axes_is_not_run_at_all() -> None:
    """Two to the power of 30 elements are more than a budget."""
    axes = ",".join(f"a{k}" for k in range(30))
    form = ra.derive_incremental(ra.parse(f"return y = sum[j](x[j,{axes}])"))
    assert "budget" in form.assumptions["finite_stage_values"]


@pytest.mark.parametrize("stage", ["max[j](x[j])", "mean[j](x[j])", "sum[j](t[j])"])
@pytest.mark.parametrize(
    "body",
    ["any[j](x[j] != m)", "all[j](x[j] == m)", "any[j](where(t[j] > 0, x[j] != m, false))", "any[j](2*x[j] + 1 != m)"],
)
def test_what_is_no_number_equals_nothing(body: str, stage: str) -> None:
    """Every stream of up to three of 0, 1, NaN, oo and -oo, beside stage values that are NaN, too."""
    form = ra.derive_incremental(ra.parse(f"m = {stage}; return o = {body}"))
    run = form.compile("numpy")
    weights = {"t": np.array([1.0, -1.0, 1.0])} if "t[j]" in body + stage else {}
    for length in (1, 2, 3):
        for elements in itertools.product((0.0, 1.0, np.nan, np.inf, -np.inf), repeat=length):
            given = {"x": np.array(elements), **{name: t[:length] for name, t in weights.items()}}
            with np.errstate(all="ignore"):
                assert bool(run(**given)) == bool(ra.reference(form.spec, **given)), elements


@pytest.mark.parametrize("name", sorted(ra.catalog))
def test_data_run_together_give_the_bits_of_each_alone(name: str) -> None:
    form, rng = form_of(name), np.random.default_rng(5)
    if any("complex" in d.domain for d in form.spec.tensors):
        return
    axis = free_axis(form.spec, form.plan)
    spec, plan = spec_over(form.spec, axis), plan_over(form.plan, axis)
    lengths = {**dict.fromkeys(form.spec.axes, 2), **dict.fromkeys(form.plan.axis, 3)}
    several = [drawn(form.spec, rng, lengths) for _ in range(4)]
    together = {d.name: np.stack([arrays[d.name] for arrays in several], axis=-1) for d in spec.tensors}
    got = named(form, Form(spec, plan).compile("numpy")(**together))
    for number, arrays in enumerate(several):
        for key, value in named(form, form.compile("numpy")(**arrays)).items():
            np.testing.assert_allclose(got[key][..., number], value, 1e-14, 1e-300, err_msg=key)


ONES = {  # bases and exponents
    "return y = prod[j](x[j]**(w[j]/sum[j](w[j])))": ("x[j]", "w[j]"),
    "s = max[t](a[t]); return y = prod[t](b[t]**(a[t]/s))": ("b[t]", "a[t]"),
}


@pytest.mark.parametrize("text", ONES)
def test_one_to_a_power_of_nan(text: str) -> None:
    """It is 1; a form that holds the power in another way differs there, and then its assumptions say so."""
    base, exponent = ONES[text]
    spec = ra.parse(f"tensors {base} positive, {exponent} positive; {text}")
    form = ra.derive_incremental(spec)
    arrays = {base[0]: np.ones(3), exponent[0]: np.array([np.inf, 1.0, 2.0])}
    with np.errstate(all="ignore"):
        got, wanted = form.compile("numpy")(**arrays), ra.reference(spec, **arrays)
    assert np.array_equal(got, wanted, equal_nan=True) or "finite_stage_values" in form.assumptions
