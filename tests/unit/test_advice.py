"""Errors name what is wrong in the reader's words, and what they advise is possible."""

from __future__ import annotations

import pytest
import sympy

import redalg as ra
from redalg.explore import kernel

X = ra.tensors("x[j]")
FORM = ra.derive_incremental(ra.Spec(y=ra.var(X, "j")))
SCALED = "return y = b*sum[j](x[j]*w[j])"


def call(text: str, *unnamed: object, **arrays: object) -> object:
    return ra.derive_incremental(ra.parse(text)).compile("numpy")(*unnamed, **arrays)


CASES = {
    "a keyword": (lambda: ra.tensors("lambda[j]"), "keyword", "lambda_"),
    "a digit first": (lambda: ra.tensors("1x[j]"), "identifier", "no digit first"),
    "a quote": (lambda: ra.parse("return y = x.sum('j')"), "not in the grammar", "help"),
    "a remainder": (lambda: ra.parse("return y = sum[j](x[j] % 2)"), "not in the grammar", "floor"),
    "a minus of text": (lambda: ra.parse("return y = sum[j](x[j] \N{MINUS SIGN} 1)"), "not in the grammar", "write -"),
    "a power": (lambda: ra.parse("return y = sum[j](x[j]^2)"), "not in the grammar", "**"),
    "a division by 0": (lambda: ra.parse("return y = sum[j](x[j]/0)"), "divides by zero", "where"),
    "a constant of SymPy": (lambda: ra.Spec(y=ra.sum(X, "j") * sympy.GoldenRatio), "no number of", "float"),
    "an index": (lambda: X[0], "named by a string", '"j"'),
    "another case": (lambda: call(SCALED, X=[1.0], w=[1.0], b=1.0), "are: ", "did you mean 'x'"),
    "no names": (lambda: call(SCALED, [1.0], [1.0], 2.0), "b, x, w", "b=…"),
    "an array for a number": (lambda: call(SCALED, x=[1.0], w=[1.0], b=[2.0]), "dimensions", "pass a number"),
    "bytes of a form": (lambda: ra.traffic(ra.derive_incremental(ra.parse(SCALED)), {"j": 3}), "Spec", "form.spec"),
    "half an element": (lambda: ra.traffic(ra.parse(SCALED), {"j": 3.5}), "j=3.5", "sizes="),
    "no identity": (
        lambda: call("monoid m = max(a0, b0) identity (0); return y = reduce[j:m](x[j]).0".replace("max", "maximum")),
        "identity is not neutral: 0 instead of -",
        "identity",
    ),
    "a sum without its axis": (lambda: ra.parse("return y = sum[j](x)"), "a sum of what lacks the axis", "axis"),
    "no such function": (lambda: ra.parse("return y = foo(x[j])"), "no function of this name", "they are abs, acos"),
    "a misspelling": (lambda: ra.parse("return y = flor(x[j])"), "no function of this name", "write floor"),
    **{
        f"a number asked, {c}": (
            lambda c=c: ra.parse(f"return y = {c}"),
            "a number, not a condition",
            "or declare it: tensors b[j] bool",
        )
        for c in ("where(b[j], x[j], 0)", "any[j](b[j])", "all[j](b[j] and x[j] > 0)", "count[j](b[j])")
    },
    "integers of any length": (
        lambda: call(SCALED, x=[10**30, 1], w=[1, 1], b=1),
        "computed in int64",
        "pass floats for x",
    ),
    "thousands of digits": (lambda: call(SCALED, x=[10**5000, 1], w=[1, 1], b=1), "about 5000 digits", "pass floats"),
    "a number of these": (lambda: call(SCALED, x=[1], w=[1], b=10**5000), "about 5000 digits", "pass float(b)"),
    "an axis by number": (lambda: ra.verdict(ra.parse(SCALED), axis=0), "named by a string", '"j"'),
    "a kernel of half an element": (lambda: kernel(FORM, {"j": 3.5}), "the axes are j", "sizes="),
    "a kernel of less than nothing": (lambda: kernel(FORM, {"j": -3}), "the axes are j", "sizes="),
    "a kernel of a spec": (lambda: kernel(FORM.spec, {"j": 3}), "derived forms", "derive_incremental"),
    "the length inside": (
        lambda: ra.derive_incremental(ra.parse("return y = sum[j](where(index[j] == size[j] - 1, x[j], 0))")),
        "no witness",
        "pass the length as n",
    ),
    "a stage that may cancel": (
        lambda: ra.derive_incremental(
            ra.parse(
                "tensors l[j,t], r[j], w[j,t]; a = r[j] - mean[j](r[j]); p = exp(l[j,t]);"
                "return y = sum[j](sum[t](w[j,t]*minimum(p*a, clip(p, 8/10, 12/10)*a)))"
            ),
            axis="j",
        ),
        "no output is shown to need it",
        "max_passes=2",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_errors_name_what_is_wrong_and_what_helps(case):
    run, why, fix = CASES[case]
    with pytest.raises(ra.RedalgError) as caught:
        run()
    assert why in caught.value.why and fix in caught.value.fix, caught.value
    assert caught.value.what and caught.value.where


def test_a_remainder_has_the_sign_of_the_divisor():
    spec = ra.Spec(y=ra.sum(X % 3, "j"), z=ra.sum(5 % (X - 2), "j"), even=ra.count(ra.eq(ra.index("j") % 2, 0), "j"))
    x = [4, -4, 0.5, 7]
    found = ra.derive_incremental(spec).compile("numpy")(x=x)
    assert found["y"] == sum(v % 3 for v in x) and found["z"] == sum(5 % (v - 2) for v in x) and found["even"] == 2
