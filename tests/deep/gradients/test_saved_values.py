"""What a backward pass is told of saved values: their sign holds for any data, and what it tells suffices to derive."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

import redalg as ra
from redalg.form import Form
from tests.support.profiles import examples

MASKED = "where(index[j] < n[i], {e}, 0)"
REAL = ["x[i,j]", "maximum(x[i,j], y[j])", "x[i,j]*y[j]", "abs(x[i,j])"]
ELEMENTS = [*REAL, "exp(x[i,j])", "w[j]", "w[j]*w[j]", "1/w[j]"]
SQUARED = ["sqrt(1 + {s})", "1 + {s}", "log(2 + {s})", "1/(1 + {s})", "(1 + {s})**(3/2)"]
REDUCED = [
    "sum[j]({e})",
    "mean[j]({e})",
    "prod[j]({e})",
    "max[j]({e})",
    "min[j](where(index[j] < n[i], {e}, oo))",
    "sum[j](({e})**2)",
    "prod[j](exp({e}))",
    "logsumexp[j]({e})",
    "sqrt(sum[j](({e})**2))",
    "-sum[j](abs({e}))",
    "sum[j](exp({e} - max[j]({e})))",
]
WHOLE = ["return o = {q}", "q = {q}; return o = q, p = q*q", "q = {q}; return o = q*z[i], p = exp(q)"]
KINDS = {"n": "n[i] integer", "w": "w[j] positive"}
EXTREME = [0.0, -0.0, 1e-300, -1e-200, 1e200, -1e300, np.inf, -np.inf, 1.0, -2.0, 0.5]


def declared(text: str) -> ra.Spec:
    kinds = [said for name, said in KINDS.items() if f"{name}[" in text.replace("mean[", "").replace("min[", "")]
    return ra.parse(f"tensors {', '.join(kinds)}; {text}" if kinds else text)


@given(
    st.sampled_from(ELEMENTS),
    st.sampled_from([MASKED, "{e}"]),
    st.sampled_from(REDUCED),
    st.sampled_from(WHOLE),
    st.data(),
)
@examples(150)
def test_they_have_the_sign_that_they_are_declared_by(
    element: str, mask: str, reduced: str, whole: str, data: st.DataObject
) -> None:
    """With elements that are infinite, underflow or overflow, of rows that are full, short, masked and empty."""
    value = data.draw(st.sampled_from(["{s}", *SQUARED])).format(s=reduced.format(e=mask.format(e=element)))
    spec = declared(whole.format(q=value))
    gradients, rows, length = spec.vjp(given="all"), 3, data.draw(st.sampled_from([0, 1, 2, 40]))
    arrays: dict[str, Any] = {}
    for d in spec.tensors:
        shape = tuple({"i": rows, "j": length}[a] for a in d.axes)
        rng = np.random.default_rng(data.draw(st.integers(0, 99)))
        numbers = rng.integers(0, length + 1, shape) if "integer" in d.domain else rng.choice(EXTREME, shape)
        arrays[d.name] = np.abs(numbers) + 1e-300 if "positive" in d.domain else numbers
    with np.errstate(all="ignore"):
        found = ra.reference(gradients.forward, **arrays)
    known = found if isinstance(found, dict) else {next(iter(gradients.forward.outputs)): found}
    for saved in gradients._saved:
        values, domain = np.asarray(known[saved.name]), saved.leaf.attr.domain
        if "integer" not in domain and domain & {"positive", "nonnegative"}:
            assert not (values < 0).any() and not ("positive" in domain and (values == 0).any()), (spec, saved, values)


@given(st.sampled_from(REAL), st.sampled_from([MASKED, "where(b[i,j], {e}, 0)"]), st.sampled_from(SQUARED))
@examples(12)
def test_what_they_are_declared_by_suffices(element: str, mask: str, value: str) -> None:
    """Gradients that read an output under a root or a logarithm, in rows of which a condition leaves something out."""
    whole = f"q = {value.format(s=f'sum[j](({mask.format(e=element)})**2)')}; return o = q, p = q*q"
    spec = ra.parse(f"tensors {'n[i] integer' if 'n[i]' in whole else 'b[i,j] bool'}; {whole}")
    rng, length = np.random.default_rng(3), 4
    arrays = {d.name: rng.uniform(-1.5, 1.5, [{"i": 3, "j": length}[a] for a in d.axes]) for d in spec.tensors}
    arrays |= {"n": np.array([0, 2, 4])} if "n" in arrays else {"b": arrays["b"] > 0}
    cotangents = {"o": rng.uniform(-1, 1, 3), "p": rng.uniform(-1, 1, 3)}
    found = {}
    for given_ in ("all", ()):
        gradients = spec.vjp(given=given_)
        for s in gradients.specs.values():
            verdict = ra.verdict(s)
            assert isinstance(verdict, Form), (s, verdict)
        found[given_] = gradients(**arrays, cotangents=cotangents, target="numpy")
    for name, value in found["all"].items():
        np.testing.assert_allclose(value, found[()][name], 1e-10, 1e-10)
