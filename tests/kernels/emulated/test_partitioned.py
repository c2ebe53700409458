"""Specs in parts (`redalg.kernels.partitioned`), emulated: their kernels one after the other give the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.kernels.ir.layouts import View
from redalg.kernels.launch.planned import Planned
from redalg.kernels.partitioned import on_tensor_cores
from redalg.kernels.pipeline import plan
from redalg.kernels.schedule.target import A100, H200, Target
from redalg.numeric.casts import cast_array
from tests.support import forms
from tests.support.chain_cases import emulated
from tests.support.sample import deep

EPS = 2.0**-8  # of bfloat16
SPECS = {  # text, stream, lengths; how often a value is rounded to bfloat16 on its way
    "adapter": (
        "return Y = sum[k](X[m,k]*W[n,k]) + sum[r](sum[k](X[m,k]*A[r,k])*B[n,r])",
        "k",
        {"m": 70, "k": 72, "n": 40, "r": 8},
        2,
    ),
    "recurrent": (
        "return Y = tanh(sum[k](X[m,k]*W[n,k]) + sum[j](H[m,j]*U[n,j]) + b[n])",
        "k",
        {"m": 66, "k": 136, "n": 24, "j": 72},
        1,
    ),
    "three": (
        "return Y = sum[k](X[m,k]*W[n,k]) + R[m,n] + sum[j](H[m,j]*U[n,j]) + sum[l](A[m,l]*B[n,l])",
        "j",
        {"m": 9, "k": 8, "n": 33, "j": 200, "l": 72},
        1,
    ),
    "statistics": (
        "y = sum[n](relu(sum[k](A[m,k]*B[n,k]))*D[l,n]); return Y = y, S = sum[l](y*y)",
        "n",
        {"m": 65, "k": 64, "n": 72, "l": 24},
        2,
    ),
    "softmax of logits": (
        "y = sum[k](X[m,k]*W[n,k]); return P = exp(y-max[n](y))/sum[n](exp(y-max[n](y)))",
        "n",
        {"m": 65, "k": 72, "n": 41},
        1,
    ),
    "heads": (
        "Y = sum[c](X[m,c]*W[h,d,c]) + R[m,h,d]*b[h,d]; order Y = m h d; return Y",
        "c",
        {"m": 65, "c": 72, "h": 3, "d": 16},
        1,
    ),
    "projected": ("return Y = sum[h,e](O[i,h,e]*W[c,h,e])", None, {"i": 9, "h": 3, "e": 24, "c": 40}, 1),
    "two results": (
        "return P = relu(sum[k](X[m,k]*W[n,k])), Q = sum[j](H[m,j]*U[l,j])",
        "k",
        {"m": 65, "k": 64, "n": 16, "j": 72, "l": 8},
        1,
    ),
    "one query": (
        "s = sum[d](q[h,d]*K[h,j,d])/4; p = exp(s - max[j](s)); "
        "return O = sum[j](p*V[h,j,e])/sum[j](p), L = max[j](s) + log(sum[j](p))",
        "j",
        {"h": 2, "j": 130, "d": 16, "e": 64},
        2,
    ),
    "one token": (
        "g = sum[k](x[k]*B[n,k]); u = sum[k](x[k]*C[n,k]); return Y = r[l] + sum[n](silu(g)*u*D[l,n])",
        "n",
        {"k": 72, "n": 136, "l": 40},
        3,
    ),
    "gated along another axis": (
        "h = relu(sum[k](A[m,k]*B[n,k])); return Y = sum[n](h*P[m,r,n]*D[l,n]), Z = h*P[m,r,n]",
        "n",
        {"m": 33, "k": 72, "n": 40, "r": 2, "l": 16},
        3,
    ),
    "cosines": (
        "q = sqrt(sum[d](Q[i,d]*Q[i,d])); k = sqrt(sum[d](K[j,d]*K[j,d])); s = sum[d](Q[i,d]*K[j,d])/(q*k)*4; "
        "p = exp(s - max[j](s)); return O = sum[j](p*V[j,e])/sum[j](p)",
        "j",
        {"i": 65, "j": 130, "d": 24, "e": 24},
        2,
    ),
    "normalised": (
        "q = Q[i,d]/sqrt(mean[d](Q[i,d]*Q[i,d]) + 0.01)*g[d]; k = K[j,d]/sqrt(mean[d](K[j,d]*K[j,d]) + 0.01); "
        "s = sum[d](q*k)/5; p = exp(s - max[j](s)); return O = sum[j](p*V[j,e])/sum[j](p)",
        "j",
        {"i": 65, "j": 130, "d": 24, "e": 24},
        8,  # scores of normalised rows are as large as √d, and exponentials have their errors
    ),
    "difference": (
        "s = sum[d](Q[i,d]*K[j,d]); t = sum[d](Z[i,d]*X[j,d]); p = exp(s - max[j](s)); q = exp(t - max[j](t)); "
        "return O = sum[j](p*V[j,e])/sum[j](p) - 0.5*sum[j](q*V[j,e])/sum[j](q), L = max[j](t) + log(sum[j](q))",
        "j",
        {"i": 33, "j": 70, "d": 24, "e": 24},
        3,
    ),
    "late": ("return S = sum[i](max[j](sum[d](Q[i,d]*X[n,j,d])))", None, {"i": 9, "n": 5, "j": 70, "d": 40}, 2),
    "scaled inside": (
        "s = sum[d](q[i,d]/4*K[j,d]) + sum[r](p[i,r]*c[j,r]*0.25); w = exp(s - max[j](s)); "
        "return O = sum[j](w*V[j,e])/sum[j](w)",
        "j",
        {"i": 65, "j": 130, "d": 16, "r": 8, "e": 24},
        2,
    ),
}


def drawn(form: Any, sizes: dict[str, int], kind: str) -> dict[str, np.ndarray]:
    """Numbers of the format, of a size at which every product is of order 1."""
    rng = np.random.default_rng(sum(sizes.values()))
    made = {}
    for t in form.spec.tensors:
        x = rng.standard_normal([sizes[a] for a in t.axes]) / (sizes[t.axes[-1]] ** 0.5 if len(t.axes) > 1 else 1)
        made[t.name] = np.asarray(cast_array(x, kind), np.float64)
    return made


def planned(
    name: str, kind: str = "bfloat16", target: Target = H200, schedule: Any = "tensor", times: int = 1
) -> Planned:
    """The plan of a call, or of one with so many times as many elements along every axis."""
    text, along, sizes, _ = SPECS[name]
    sizes = {a: n * times for a, n in sizes.items()}
    form = forms.form_of_text(text, along, 8)
    views = {t.name: View.contiguous(tuple(sizes[a] for a in t.axes)) for t in form.spec.tensors}
    return plan(form, dict.fromkeys(views, kind), views, target, schedule=schedule)


FEW = ("adapter", "late", "one query")


@pytest.mark.parametrize("name", [*FEW, *deep(sorted({*SPECS} - {*FEW}))])
def test_parts_give_the_definition(name: str) -> None:
    """Every product and result is rounded to bfloat16 once, and sums of terms of order 1/√K stay in float32: the error
    of a value of order 1 is a few roundings, of statistics (squares of them, added) as many relative ones."""
    text, along, sizes, rounds = SPECS[name]
    form = forms.form_of_text(text, along, 8)
    given = drawn(form, sizes, "bfloat16")
    made = planned(name)
    assert on_tensor_cores(made)
    found = emulated(made, given)
    expected = ra.reference(form.spec, **given)
    expected = expected if isinstance(expected, dict) else {next(iter(form.spec.outputs)): expected}
    assert found.keys() == expected.keys()
    for n, x in expected.items():
        assert found[n].shape == x.shape
        np.testing.assert_allclose(found[n], x, atol=2 * rounds * EPS * np.abs(x).max(), rtol=0)


def test_a_product_is_computed_once() -> None:
    """What a kernel of rows would compute again for every column is written to memory instead, in 16 bits where tensor
    cores alone read it, else in the precision of the sums; `explain` tells of every part."""
    made = planned("adapter", schedule=None, times=8)
    (head, *_), (operand, view) = made.choice.reasons, made.scratch["part1"]
    assert head.startswith("in parts: 2 kernels, part1[m,r] bfloat16 between them")
    assert (operand.axes, operand.dtype, view.strides) == (("m", "r"), "bfloat16", (64, 1))
    assert made.choice.reasons[-1].startswith("in one kernel, by ordinary arithmetic: ")
    operand, _ = planned("softmax of logits", times=64).scratch["part1"]
    assert operand.dtype == "float32"
    assert "reduced in the epilogue" in " ".join(planned("softmax of logits").choice.reasons)


def test_rows_do_not_depend_on_their_number() -> None:
    """Where parts are faster does: where rows are to have the same bits in every batch there are none."""
    text, along, sizes, _ = SPECS["adapter"]
    form = forms.form_of_text(text, along, 8)
    views = {t.name: View.contiguous(tuple(8 * sizes[a] for a in t.axes)) for t in form.spec.tensors}
    with pytest.warns(UserWarning, match="slow"):
        assert not plan(form, dict.fromkeys(views, "bfloat16"), views, H200, deterministic=True).before


def test_terms_of_products_that_are_added_come_to_the_same_sums() -> None:
    """One kernel, whose chunks are those of all products; tensors that lie otherwise, or are not there, keep apart."""
    for name, count in (("recurrent", 2), ("three", 3)):
        made = planned(name)
        assert not made.before and len(made.maps) == 2 * count
        assert sum("are added to the same sums" in line for line in made.choice.reasons) == count - 1
    text, along, sizes, _ = SPECS["recurrent"]
    form = forms.form_of_text(text, along, 8)
    views = {t.name: View.contiguous(tuple(sizes[a] for a in t.axes)) for t in form.spec.tensors}
    views["U"] = View(views["U"].shape, (1, sizes["n"]), 16)
    apart = plan(form, dict.fromkeys(views, "bfloat16"), views, H200, schedule="tensor")
    assert len(apart.before) == 1 and len(apart.maps) == 2


def test_axes_that_lie_one_behind_the_other_are_one() -> None:
    """Rows, columns and terms of several names; not where an array lies otherwise."""
    for name, said in (("heads", "X[m,c] * W[h_d,c]"), ("projected", "O[i,h_e] * W[c,h_e]")):
        made = planned(name)
        assert said in made.choice.reasons[0]
        assert [*made.program.results][0].axes == {"heads": ("m", "h", "d"), "projected": ("i", "c")}[name]
    text, along, sizes, _ = SPECS["heads"]
    form = forms.form_of_text(text, along, 8)
    views = {t.name: View.contiguous(tuple(sizes[a] for a in t.axes)) for t in form.spec.tensors}
    views["R"] = View(views["R"].shape, (64, 16, 1))  # rows of 48 elements, 64 apart
    assert "h_d" in "".join(plan(form, dict.fromkeys(views, "bfloat16"), views, H200, schedule="tensor").choice.reasons)
    views["R"] = View(views["R"].shape, (16, 16 * 65, 1))
    apart = plan(form, dict.fromkeys(views, "bfloat16"), views, H200, schedule="tensor")
    assert "h_d" not in "".join(apart.choice.reasons)


@pytest.mark.deep
def test_other_devices_and_types() -> None:
    """Float32 is not rounded: a part is kept in float32. By mma.sync products that are added stay apart."""
    made = planned("adapter", "float32", schedule=None, times=8)
    assert {o.dtype for o, _ in made.scratch.values()} == {"float32"} and not on_tensor_cores(made)
    assert len(planned("recurrent", target=A100, times=8).before) == 1
    for kind, schedule in (("float16", "tensor"), ("float16", None)):
        kinds = {o.dtype for o, _ in planned("adapter", kind, schedule=schedule, times=8).scratch.values()}
        assert kinds == ({kind} if schedule else {"float32"})  # 16 bits of float16 may not hold what is between


@pytest.mark.parametrize("order", ["i h e", "h i e", "e h i"])
@pytest.mark.parametrize("tensors", ["x[i,h,j] V[h,j,e]", "x[h,i,j] V[h,e,j]", "x[j,i,h] V[e,h,j]"])
def test_stages_of_batches_in_any_order(order: str, tensors: str) -> None:
    """A stage of rows of a batch lies as the kernel that makes it writes it, whatever the order of axes in the spec."""
    x, v = tensors.split()
    text = f"p = exp({x} - max[j]({x})); o = sum[j](p*{v})/sum[j](p); order o = {order}; return o"
    form, sizes = forms.form_of_text(text, "j", 4), {"h": 2, "i": 17, "j": 40, "e": 16}
    views = {t.name: View.contiguous(tuple(sizes[a] for a in t.axes)) for t in form.spec.tensors}
    made = plan(form, dict.fromkeys(views, "bfloat16"), views, H200, schedule="tensor")
    assert any(n.startswith("state") for n in made.scratch)
    given = drawn(form, sizes, "bfloat16")
    expected = ra.reference(form.spec, **given)
    # weights and result are rounded once each, relative to what is averaged
    np.testing.assert_allclose(emulated(made, given)["o"], expected, atol=4 * EPS * np.abs(given["V"]).max(), rtol=0)


@pytest.mark.deep
def test_masks_numbers_and_integers() -> None:
    """Truth values select elements, integers are compared, and numbers are arguments: parts leave each other floats.
    Sums of products of integers are exact in one kernel, and stay there."""
    attention = "p = exp(s - max[j](s)); o = sum[j](p*V[h,j,e])/sum[j](p); return Y = sum[h,e](o*W[c,h,e])"
    named, score = "Q[h,i,d], K[h,j,d], V[h,j,e], W[c,h,e]", "sum[d](Q[h,i,d]*K[h,j,d])"
    sizes = {"h": 4, "i": 512, "j": 512, "d": 64, "e": 64, "c": 256, "m": 256, "k": 256, "n": 256}
    cases = (
        (f"tensors g, {named}; s = g*{score}; {attention}", {}, True),
        (f"tensors M[i,j] bool, {named}; s = where(M[i,j], {score}/8, -oo); {attention}", {"M": "bool"}, True),
        (
            f"tensors D[i] integer, F[j] integer, {named}; s = where(D[i] == F[j], {score}, -oo); {attention}",
            {"D": "int64", "F": "int64"},
            True,
        ),
        ("tensors A[m,k] integer, B[n,k]; return y = max[n](sum[k](A[m,k]*B[n,k]))", {"A": "int64"}, False),
    )
    for text, others, parts in cases:
        form = ra.derive_incremental(ra.parse(text), max_passes=8, **({} if parts else {"axis": "n"}))
        views = {t.name: View.contiguous(tuple(sizes[a] for a in t.axes)) for t in form.spec.tensors if t.axes}
        dtypes = {t.name: others.get(t.name, "bfloat16") if t.axes else float for t in form.spec.tensors}
        assert bool(plan(form, dtypes, views, H200).before) == parts, text


def test_a_vector_stays_one_where_no_matrix_derives(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a form has an assumption that a form over one more axis would not have."""

    def refused(*given: Any) -> Any:
        raise ra.RedalgError("the spec", "here", "it does not derive", "nothing")

    monkeypatch.setattr("redalg.kernels.reshaped.form_over", refused)
    text, along, sizes, _ = SPECS["one token"]
    form = forms.form_of_text(text, along, 8)
    views = {t.name: View.contiguous(tuple(sizes[a] for a in t.axes)) for t in form.spec.tensors}
    assert not on_tensor_cores(plan(form, dict.fromkeys(views, "bfloat16"), views, H200))
