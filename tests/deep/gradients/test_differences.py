"""Gradients and tangents of drawn specs (lists, also those that are not full, masks by conditions and lengths, windows)
against finite differences of the definition."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

import redalg as ra
from tests.support.profiles import examples

ELEMENTS = [
    "x[i,j]",
    "y[j]",
    "c*x[i,j]",
    "x[i,j]*x[i,j]*y[j]",
    "k[j]*x[i,j]",
    "exp(x[i,j])",
    "x[i,j] - z[i]",
    "maximum(x[i,j], y[j])",
    "where(x[i,j] > 0, x[i,j]*sqrt(x[i,j]), 0)*y[j]",
]
MASKS = ["{e}", "where(b[i,j], {e}, {o})", "where(index[j] < n[i], {e}, {o})"]
LIST = "topk[j:{k}:t]({e})"
RESULTS = {
    "sum[j]({e})": "0",
    "max[j]({e})": "-oo",
    "prod[j]({e})": "1",
    "max[j]({e}) + log(sum[j](exp({e} - max[j]({e}))))": "-oo",
    "sqrt(1 + sum[j](({e})**2))": "0",
    f"sum[t](w[t]*{LIST}.values)": "0",
    f"sum[t](exp({LIST}.values))": "-oo",
    f"sum[t](where({LIST}.indices == 1, w[t], 0))": "0",
}
WINDOWS = ["sum[r](a[2*i+r-1]*a[2*i+r-1]*u[r])", "max[r](a[i+2*r] + u[r])", "prod[r](a[3*i+r-2] + u[r])"]
WINDOWS += ["max[r](a[2*i+r:3-1])", "sum[t](topk[r:{k}:t](a[i+2*r:4]).values**2)"]
WHOLE = [
    "return o = {q}",
    "q = {q}; return o = q, p = q*q",
    "return o = z[i]*({q})",
    "return o = {q} + sum[j](x[i,j]*c)",
]
KINDS = {"k": "k[j] integer", "b": "b[i,j] bool", "n": "n[i] integer"}


@st.composite
def texts(draw: st.DrawFn, k: int) -> str:
    result = draw(st.sampled_from([*RESULTS]))
    body = draw(st.sampled_from(MASKS)).format(e=draw(st.sampled_from(ELEMENTS)), o=RESULTS[result])
    rows = result.format(e=body, k=k)
    read = draw(st.sampled_from([rows] * 8 + [w.format(k=k) for w in WINDOWS]))
    whole = WHOLE if read == rows else WHOLE[:2]  # which have no other rows than the windows
    text = draw(st.sampled_from(whole)).format(q=read)
    kinds = [said for name, said in KINDS.items() if f"{name}[" in text.replace("topk[", "")]
    return f"tensors {', '.join(kinds)}; {text}" if kinds else text


def arrays_of(spec: ra.Spec, sizes: dict[str, int], seed: int) -> dict[str, Any]:
    rng, found = np.random.default_rng(seed), {}
    for d in spec.tensors:
        shape = (9,) if d.dimensions else tuple(sizes[a] for a in d.axes)
        if "bool" in d.domain:
            found[d.array or d.name] = rng.random(shape) < 0.6
        elif "integer" in d.domain:
            found[d.name] = rng.integers(0, sizes["j"] + 1, shape)
        else:
            found[d.array or d.name] = rng.uniform(-1.5, 1.5, shape)
    return found


def along(spec: ra.Spec, arrays: dict[str, Any], name: str, step: np.ndarray) -> dict[str, np.ndarray]:
    """The central difference of fourth order of every output."""

    def at(h: float) -> dict[str, np.ndarray]:
        found = ra.reference(spec, **{**arrays, name: arrays[name] + h * step})
        return found if isinstance(found, dict) else {next(iter(spec.outputs)): found}

    h = 1e-4
    near, back, far, behind = at(h), at(-h), at(2 * h), at(-2 * h)
    return {n: (8 * (near[n] - back[n]) - (far[n] - behind[n])) / (12 * h) for n in near}


@given(st.data(), st.integers(1, 4), st.sampled_from([1, 2, 3, 5]), st.integers(0, 999))
@examples(25)
def test_they_are_the_differences_of_the_definition(data: st.DataObject, k: int, length: int, seed: int) -> None:
    spec = ra.parse(data.draw(texts(k)))
    arrays = arrays_of(spec, {"i": 2, "j": length, "t": k, "r": 2}, seed)
    vjp, rng = spec.vjp(), np.random.default_rng(seed)
    if not vjp.cotangents:
        return
    values = ra.reference(spec, **arrays)
    values = values if isinstance(values, dict) else {next(iter(spec.outputs)): values}
    cotangents = {n: rng.uniform(-1, 1, np.shape(values[n])) for n in vjp.cotangents}
    with np.errstate(all="ignore"):
        steps = {n: rng.uniform(-1, 1, np.shape(arrays[n])) for n in vjp.wrt}
        moved = {n: along(spec, arrays, n, step) for n, step in steps.items()}
        found = vjp(**arrays, cotangents=cotangents, target="numpy")
        tangents = spec.jvp()(**arrays, tangents=steps, target="numpy")
    for n, step in steps.items():
        wanted = sum(np.sum(np.where(np.isfinite(moved[n][o]), c * moved[n][o], 0)) for o, c in cotangents.items())
        if all(np.isfinite(v).all() for v in moved[n].values()):
            np.testing.assert_allclose(np.sum(step * found[n]), wanted, 1e-5, 1e-5, err_msg=f"{spec}, {n}")
    for o in cotangents:
        wanted = sum(m[o] for m in moved.values())
        known = np.isfinite(wanted)
        np.testing.assert_allclose(np.asarray(tangents[o])[known], wanted[known], 1e-5, 1e-5, err_msg=f"{spec}, {o}")


@given(st.sampled_from(["b[i,j]", "b[j]"]), st.sampled_from(["w[t]", "w[t]*w[t]"]), st.booleans())
@examples(8)
def test_a_tensor_may_only_say_how_long_an_axis_is(mask: str, weight: str, last: bool) -> None:
    terms = [
        f"sum[t](where(topk[j:2:t](where({mask}, y[j], 0)).indices == 1, {weight}, 0))",
        "sum[j](where(index[j] < n[i], c*x[i,j], 0))",
    ]
    spec = ra.parse(f"tensors {mask} bool, n[i] integer; return o = {' + '.join(terms[::-1] if last else terms)}")
    arrays = arrays_of(spec, {"i": 2, "j": 3, "t": 2}, 1)
    found = spec.vjp()(**arrays, cotangents={"o": np.ones(2)}, target="numpy")
    for n, g in found.items():
        step = np.ones(np.shape(arrays[n]))
        np.testing.assert_allclose(np.sum(g), along(spec, arrays, n, step)["o"].sum(), 1e-6, 1e-6)
