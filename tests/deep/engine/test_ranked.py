"""Top-k that both ends of the elements decide: of |x - u|, even powers and x·u, against the definition."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.engine.rules import ranked
from redalg.proofs.checker.check import check
from redalg.streaming.accumulator import Accumulator
from tests.support.simulated import run as simulated

DISTANCES = [  # values as the definition has them, positions wherever the stage values are finite
    "abs(x[j] - u)",
    "(x[j] - u)**2",
    "(u - 2*x[j])**4",
    "cosh(x[j] - u)",
    "3 - (x[j] - u)**(-2)",
    "sqrt(abs(x[j] - u))",
    "log(abs(x[j] - u))",
    "-1/(1 + (x[j] - u)**2)",
    "abs(log(1 + exp(x[j])) - u)",
    "where(g[j] > 0, abs(x[j] - u), -oo)",
    "where(g[j] > 0, log(abs(u - x[j])), -oo)",
    "where(g[j] > 0, (x[j] - u)**2 + v, -oo)",
]
PRODUCTS = [  # so far as no element that is infinite, or no number, meets a factor 0
    "x[j]*u",
    "v - x[j]*u",
    "u*x[j]/3",
    "tanh(x[j]*u)",
    "abs(x[j]*u - v)",
    "x[j]*relu(u)",
    "relu(u)*abs(x[j] - v)",
    "u/(1 + exp(x[j]))",
    "where(g[j] > 0, x[j]*u, -oo)",
]
STAGES = {  # exact on the numbers drawn, so that ties are ties
    "own": "u = max[j](x[j]) - 1; v = min[j](x[j]);",
    "other": "u = max[j](y[j]); v = sum[j](y[j]);",
}
NUMBERS = np.array([-2.0, -1, -0.0, 0.0, 1, 2])
OFFSET = 5


@lru_cache
def form_of(body: str, stages: str, k: int) -> Any:
    top = f"topk[j:{k}:best]({body})"
    return ra.derive_incremental(
        ra.parse(f"{STAGES[stages]} return at = {top}.indices, top = {top}.values, u = u, v = v")
    )


def drawn(rng: np.random.Generator, names: list[str], broken: bool) -> dict[str, Any]:
    """Short streams with ties, zeros of both signs and, where `broken`, infinities and NaN."""
    n = int(rng.choice([1, 2, 3, 4, 7, 11]))
    arrays = {name: rng.choice(NUMBERS, n) for name in names}
    if "g" in names:
        arrays["g"] = rng.choice([-1.0, 1.0], n)
    for name in {"x", "y"} & set(names):
        for _ in range(2 if broken and rng.random() < 0.7 else 0):
            arrays[name][rng.integers(n)] = rng.choice([np.inf, -np.inf, np.nan])
    return arrays


def merged(form: Any, arrays: dict[str, Any], rng: np.random.Generator, placed: bool) -> dict[str, Any]:
    """Three pieces, of which one may be empty; pieces of a stream that starts later are merged in another order."""
    n = len(next(iter(arrays.values())))
    cuts = [0, *sorted(rng.integers(0, n + 1, 2)), n]
    parts: list[Accumulator] = []
    for start, stop in zip(cuts, cuts[1:], strict=False):
        parts.append(form.accumulator(start=OFFSET + int(start)) if placed else form.accumulator())
        parts[-1].update(**{k: v[start:stop] for k, v in arrays.items()})
    first, second, third = parts[::-1] if placed else parts
    second.merge(third)
    first.merge(second)
    return shifted(first.result(), -OFFSET) if placed else dict(first.result())


def shifted(result: dict[str, Any], by: int) -> dict[str, Any]:
    at = result["at"]
    return {**result, "at": np.where(at < 0, at, at + by)}


def agrees(got: dict[str, Any], wanted: dict[str, Any], arrays: dict[str, Any], body: str) -> bool:
    """The definition's positions and values; none and NaN where they are allowed."""
    finite = np.isfinite([wanted["u"], wanted["v"]]).all()
    product = body in PRODUCTS
    broken = product and not np.isfinite(arrays["x"]).all()
    zero = wanted["u"] == 0 or "relu(u)" in body and wanted["u"] < 0
    nowhere = (got["at"] == -1).all() and (not finite or zero and broken)
    nothing = np.isnan(got["top"]).all() and product and (not finite or broken and "relu" in body)
    at = np.array_equal(got["at"], wanted["at"]) or nowhere
    return bool(at and (np.allclose(got["top"], wanted["top"], 1e-14, 0, equal_nan=True) or nothing))


@pytest.mark.parametrize("stages", STAGES)
@pytest.mark.parametrize("body", DISTANCES + PRODUCTS)
def test_the_list_is_the_definitions(body: str, stages: str) -> None:
    rng = np.random.default_rng(7)
    for k in (1, 2, 5) if stages == "own" else (3,):
        form = form_of(body, stages, k)
        names, compiled = [d.name for d in form.spec.tensors], form.compile("numpy")
        with np.errstate(all="ignore"):
            for number in range(24):
                arrays = drawn(rng, names, broken=number % 2 == 1)
                wanted = ra.reference(form.spec, **arrays)
                for got in (compiled(**arrays), *(merged(form, arrays, rng, placed) for placed in (False, True))):
                    assert agrees(got, wanted, arrays, body), (arrays, wanted, got)


def test_ties_all_along() -> None:
    """Where all elements are tied the positions are the first, whatever the elements are."""
    for body in ("x[j]*u", "x[j]*relu(u)", "v - 5*u*x[j]"):
        form = form_of(body, "other", 3)
        x = np.array([1.0, 7, -3, 2, 7])
        assert form.compile("numpy")(x=x, y=np.array([-1.0, 0, 0, 0, -2]))["at"].tolist() == [0, 1, 2]


def test_it_runs_in_every_backend() -> None:
    spec = ra.parse(
        "u = (max[j](x[i,j]) + min[j](x[i,j]))/2; v = max[j](y[j]) - 2; m = where(x[i,j] < 2, (x[i,j] - u)**2, -oo);"
        "return far = topk[j:3:p](abs(x[i,j] - u)).indices, most = topk[j:2:q](x[i,j]*v).indices,"
        "much = topk[j:2:q](x[i,j]*v).values, plain = topk[j:3:r](x[i,j]).values, left = topk[j:4:s](m).indices"
    )
    form, rng = ra.derive_incremental(spec), np.random.default_rng(3)
    for n, top in ((37, 1.0), (37, 2.0), (37, 3.0), (1, 2.0), (2, 3.0)):  # a factor below 0, at 0 and above
        x = rng.choice(NUMBERS, (5, n)).astype(np.float32)
        y = np.full(n, top, np.float32)
        wanted = ra.reference(spec, x=x, y=y)
        found, _, _ = simulated(form, {"x": x, "y": y})
        for got in (found, form.compile("numpy")(x=x, y=y), form.compile("cpu")(x=x, y=y)):
            for name in wanted:
                np.testing.assert_array_equal(got[name], wanted[name], name)


@pytest.mark.parametrize(
    "body", ["abs(x[i,j] - u)", "(x[i,j] - u)**2", "(u - 3*x[i,j])**4", "x[i,j]*u", "abs(x[i,j]*u - v)"]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_backend_loses_an_entry_to_rounding(body: str, dtype: Any) -> None:
    """Ends about as far, and distances of three terms, which compare otherwise when they are added in another order."""
    stages = "u = mean[j](x[i,j]); v = sum[j](x[i,j]**2);"
    spec = ra.parse(f"{stages} t = topk[j:3:best]({body}); return at = t.indices, top = t.values")
    form, rng = ra.derive_incremental(spec), np.random.default_rng(11)
    for rows, n in ((200, 4), (200, 6), (100, 20)):
        x = rng.standard_normal((rows, n)).astype(dtype)
        far = np.asarray(ra.reference(ra.parse(f"{stages} return d = {body}"), x=x.astype(np.float64)))
        best = -np.sort(-far, axis=1)[:, :3]
        found = [form.compile("cpu")(x=x), form.compile("numpy")(x=x)]
        found += [simulated(form, {"x": x[:20]})[0]] if n == 6 else []
        for got in found:
            at, some = np.asarray(got["at"]), slice(len(got["at"]))
            assert at.min() >= 0 and all(len({*row}) == 3 for row in at.tolist())
            size = np.abs(far[some]).max(axis=1, keepdims=True)
            assert (np.abs(np.take_along_axis(far[some], at, 1) - best[some]) <= 256 * np.finfo(dtype).eps * size).all()
            assert (np.abs(got["top"] - best[some]) <= 256 * np.finfo(dtype).eps * size).all()


def test_one_list_read_along_several_axes() -> None:
    """The same k largest, under two names of their axis: one slot in every backend."""
    top = "topk[j:2:{}](x[i,j])"
    values, places = f"{top.format('p')}.values", f"{top.format('q')}.indices"
    form = ra.derive_incremental(ra.parse(f"return a = {values}, b = {places}, c = sum[p]({values})"))
    assert [s.kind for s in form.plan.passes[0].slots] == ["topk"]
    x = np.random.default_rng(0).integers(0, 5, (3, 9)).astype(np.float32)
    wanted, (found, _, _) = ra.reference(form.spec, x=x), simulated(form, {"x": x})
    for got in (found, form.compile("numpy")(x=x), form.compile("cpu")(x=x)):
        for name in "abc":
            np.testing.assert_array_equal(got[name], wanted[name])
    form.certificate.verify()


PROVED = [
    "abs(x[i,j] - u)",
    "(u - 3*x[i,j])**2",
    "abs(x[i,j]*u - v)",
    "x[i,j]*u",
    "v - x[i,j]*u",
    "relu(u)*abs(x[i,j] - v)",
]


@pytest.mark.parametrize("body", PROVED)
def test_the_checker_proves_it(body: str) -> None:
    """Entries past the end times a stage value of unknown sign are not followed: such certificates are tested."""
    form_for_proofs(body).certificate.verify(allow={"tested"} if body in PROVED[2:] else ())


def form_for_proofs(body: str) -> ra.Form:
    stages, top = "u = mean[j](x[i,j]*y[j]); v = sum[j](y[j]);", f"topk[j:3:best]({body})"
    return ra.derive_incremental(ra.parse(f"{stages} return at = {top}.indices, top = {top}.values"))


@pytest.mark.parametrize("body", PROVED)
@pytest.mark.parametrize("wrong", ["one end", "ties as they come", "an entry counted twice", "no ties of all"])
def test_the_checker_proves_no_other_list(body: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lists, before = ranked.Ranked._lists, ranked.before
    if wrong == "one end":
        monkeypatch.setattr(ranked.Ranked, "_lists", lambda *given: lists(*given)[:1])
    elif wrong == "ties as they come":
        monkeypatch.setattr(ranked, "before", lambda up, a, b: ranked.g.negate(before(up, b, a)))
    elif wrong == "an entry counted twice":
        monkeypatch.setattr(ranked.Ranked, "_lists", lambda *given: lists(*given)[:1] * 2)
    elif body in PROVED[:2]:
        pytest.skip("no factor that may be 0")
    else:
        monkeypatch.setattr(ranked.Ranked, "_tied", lambda *given: given[-1])
    try:
        document = form_for_proofs(body).certificate.document
    except ra.RedalgError as e:  # the engine has found it out by itself
        assert "does not hold" in str(e) or "would not be the definition" in str(e)
        return
    found = {f.obligation.subject: f.status for f in check(document).findings if f.obligation.law == "O8"}
    assert found["at"] != "proved"
    assert found["top"] != "proved" or wrong in ("ties as they come", "no ties of all")


@pytest.mark.parametrize("schedule", ["thread", "warp", "block", "cluster", "split"])
def test_lists_of_several_lengths_in_one_kernel(schedule: str) -> None:
    tops = ((3, "x[i,j]"), (2, "-x[i,j]"), (4, "abs(x[i,j])"), (3, "x[i,j]**3 - x[i,j]"))
    lists = [f"topk[j:{k}:p{n}]({body})" for n, (k, body) in enumerate(tops)]
    outputs = [f"a{n} = {top}.indices, b{n} = {top}.values" for n, top in enumerate(lists)]
    form = ra.derive_incremental(ra.parse(f"return {', '.join(outputs)}"))
    for rows, n in ((5, 37), (1, 300), (2, 1)):
        x = np.random.default_rng(n).integers(-4, 5, (rows, n)).astype(np.float32)
        wanted, (found, _, _) = ra.reference(form.spec, x=x), simulated(form, {"x": x}, schedule)
        for name, value in wanted.items():
            np.testing.assert_array_equal(found[name], value, name)


@pytest.mark.parametrize(
    "body",
    [
        "-abs(x[j] - u)",
        "1/(x[j] - u)**2",
        "u*abs(x[j] - v)",
        "abs(x[j] - u) + x[j]*v",
        "cos(x[j] - u)",
        "where(x[j] > u, x[j]*v, -oo)",
    ],
)
def test_what_the_ends_do_not_decide_is_not_derived(body: str) -> None:
    for part in ("values", "indices"):
        text = f"u = mean[j](x[j]); v = sum[j](x[j]); return at = topk[j:2]({body}).{part}"
        assert not isinstance(ra.verdict(ra.parse(text)), ra.Form)
