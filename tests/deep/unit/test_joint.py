"""Which specs one reading of the rows can give, and that what is cut is what was written."""

from __future__ import annotations

import numpy as np
import pytest

import redalg as ra
from redalg.gradients.steps import together
from redalg.joint import Joint, units
from tests.support.joint_cases import FORWARD, SPECS, drawn, joint_of, truth


def sizes_of(name: str, rows: int) -> dict[str, int]:
    return {"i": rows, "j": 5, "a": rows, "b": 2, "c": 3, "d": 2}


@pytest.mark.parametrize("target", ["numpy", "cpu"])
@pytest.mark.parametrize("rows", [1, 2, 4])
@pytest.mark.parametrize("name", sorted(SPECS) + sorted(FORWARD))
def test_one_call_gives_what_the_definitions_give(name: str, rows: int, target: str) -> None:
    joint, arrays = joint_of(name), drawn(name, sizes_of(name, rows), "float64")
    found = joint.compile(target)(**arrays)
    expected = truth(name, arrays)
    assert list(found) == list(joint.spec.outputs) and set(found) == set(expected)
    for output, value in expected.items():
        np.testing.assert_allclose(found[output], value, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("given", ["all", "none"])
@pytest.mark.parametrize("name", sorted(SPECS))
def test_elements_and_their_sums_are_the_spec(name: str, given: str) -> None:
    """The definition of the cut specs, over partial sums of unequal groups of rows, one of them empty."""
    joint, rows = joint_of(name, given), 7
    arrays = drawn(name, sizes_of(name, rows), "float64", given=given)
    made = ra.reference(joint.rows_spec, **{t.name: arrays[t.name] for t in joint.rows_spec.tensors})
    count = len(made[next(iter(joint.elements))].shape) - len(joint.along)
    flat = {e: made[e].reshape(-1, *made[e].shape[count:]) for e in joint.elements}
    cuts = [0, 1, 1, 5, len(next(iter(flat.values())))]
    parts = {e: np.stack([x[a:b].sum(0) for a, b in zip(cuts, cuts[1:], strict=False)]) for e, x in flat.items()}
    rest = {t.name: arrays[t.name] for t in joint.sums_spec.tensors if t.name not in parts}
    sums = ra.reference(joint.sums_spec, **parts, **rest)
    sums = sums if isinstance(sums, dict) else {next(iter(joint.sums_spec.outputs)): sums}
    expected = truth(name, arrays, given)
    for output, value in expected.items():
        np.testing.assert_allclose(sums.get(output, made.get(output)), value, rtol=1e-12, atol=1e-12)


def test_gradients_by_one_call_agree_with_differences() -> None:
    """Central differences of the whole forward pass, along every weight."""
    spec, rng = ra.parse(SPECS["layer_norm"]), np.random.default_rng(3)
    arrays = {"x": rng.standard_normal((4, 5)), "w": rng.standard_normal(5), "b": rng.standard_normal(5)}
    cotangent, step = rng.standard_normal((4, 5)), 1e-6
    found = spec.vjp()(**arrays, cotangents={"y": cotangent}, target="numpy")
    for name in ("w", "b", "x"):
        for place in np.ndindex(arrays[name].shape):
            moved = []
            for sign in (1, -1):
                changed = {n: a.copy() for n, a in arrays.items()}
                changed[name][place] += sign * step
                moved.append(float((ra.reference(spec, **changed) * cotangent).sum()))
            assert abs(found[name][place] - (moved[0] - moved[1]) / (2 * step)) <= 1e-7 * max(1, abs(moved[0]))


def test_axes_of_weights_among_those_of_rows() -> None:
    """Sums over rows and some of their axes: one kernel's elements for weights of every set of axes."""
    spec = ra.parse(
        "tensors x[i,c,d], w[c], v[d], u[c,d]; return y = x[i,c,d]/sqrt(sum[c,d](x[i,c,d]**2) + 1)*w[c] + v[d] + u[c,d]"
    )
    (joint,) = units(dict.fromkeys(spec.vjp().specs.values()))
    assert isinstance(joint, Joint) and list(joint.elements) == ["grad_w_sum1", "grad_v_sum1"]
    assert {n: node.axes for n, node in joint.sums_spec.outputs.items()} == {
        "grad_w": {"c"},
        "grad_v": {"d"},
        "grad_u": {"c", "d"},
    }


APART = {  # a spec of rows, and one that is no sum over exactly these rows of elements
    "over some rows": ("return y = x[a,b,j]/sum[j](x[a,b,j])", "return t = sum[a](x[a,b,j]*x[a,b,j])"),
    "a product over rows": ("return y = x[i,j]/sum[j](x[i,j])", "return t = prod[i](x[i,j])"),
    "a maximum of sums": ("return y = x[i,j]/sum[j](x[i,j])", "return t = max[j](sum[i](x[i,j]))"),
    "the number of rows": ("return y = x[i,j]/sum[j](x[i,j])", "return t = mean[i](x[i,j])"),
    "rows outside the sum": ("return y = x[i,j]/sum[j](x[i,j])", "return t = x[i,j] - sum[i](x[i,j])"),
    "a number of each row": ("return y = x[i,j]/sum[j](x[i,j])", "return t = sum[i](sum[j](x[i,j]**2))"),
    "no stream": ("return y = 2*x[i,j]", "return t = sum[i](x[i,j])"),
}


@pytest.mark.parametrize("case", sorted(APART))
def test_what_is_no_sum_over_the_rows_stays_apart(case: str) -> None:
    specs = [ra.parse(text) for text in APART[case]]
    assert units(specs) == specs


ROWS = {  # a spec of rows, and elements over them
    "return y = x[i,j]/sum[j](x[i,j]**2)": ("x[i,j]*sum[i](x[i,j])", "x[i,j]*sum[i,j](x[i,j])", "x[i,j]*size(i)"),
    "return y = x[i,b,c]/sum[b,c](x[i,b,c]**2)": (
        "x[i,b,c]*sum[b](x[i,b,c])",
        "x[i,b,c]*sum[b,c](x[i,b,c])",
        "x[i,b,c]*max[c](x[i,b,c])",
        "x[i,b,c]*sum[i,c](x[i,b,c])",
        "sum[b](x[i,b,c])*w[b]",
        "sum[b](x[i,b,c])*v[i]",
    ),
}


@pytest.mark.parametrize("rows, element", [(rows, element) for rows in ROWS for element in ROWS[rows]])
def test_what_is_joined_has_forms(rows: str, element: str) -> None:
    """Whatever elements reduce: what is taken together is derived, and is the definition."""
    specs = [ra.parse(rows), ra.parse(f"return t = sum[i]({element})")]
    found, *_ = units(specs)
    if not isinstance(found, Joint):
        assert units(specs) == specs
        return
    assert found.rows.spec is found.rows_spec and found.sums.spec is found.sums_spec
    rng, sizes = np.random.default_rng(0), {"i": 3, "j": 4, "b": 2, "c": 5}
    arrays = {t.name: rng.standard_normal([sizes[a] for a in t.axes]) for t in found.spec.tensors}
    made = ra.reference(found.rows_spec, **{t.name: arrays[t.name] for t in found.rows_spec.tensors})
    given = {t.name: made[t.name] if t.name in made else arrays[t.name] for t in found.sums_spec.tensors}
    true = ra.reference(specs[1], **{t.name: arrays[t.name] for t in specs[1].tensors})
    np.testing.assert_allclose(ra.reference(found.sums_spec, **given), true, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("texts", [("x[i,j]", "x[i,j]*sum[j](x[i,j])"), ("x[i,j]/sum[j](x[i,j])", "sum[i](x[i,j])")])
def test_two_outputs_of_one_name_are_refused(texts: tuple[str, str]) -> None:
    """Results are told apart by name: one of the two would be lost, of one shape or of several."""
    specs = [ra.parse(f"return y = {text}") for text in texts]
    for make in (units, together):
        with pytest.raises(ra.RedalgError, match="the output 'y' of spec 2") as refused:
            make(specs)
        assert all(part in str(refused.value) for part in ("refused:", "where:", "why:", "try:"))


def test_outputs_join_one_by_one() -> None:
    """Of a spec with an output that cannot be cut the others are joined."""
    rows = ra.parse("return y = x[i,j]/sum[j](x[i,j])")
    both = ra.parse("return t = sum[i](x[i,j]), p = prod[i](x[i,j])")
    joint, rest = units([rows, both])
    assert isinstance(joint, Joint) and list(joint.spec.outputs) == ["y", "t"]
    assert isinstance(rest, ra.Spec) and list(rest.outputs) == ["p"]


def test_names_that_are_taken() -> None:
    """An element is not called what a tensor is, nor the axis of parts what an axis is."""
    rows = ra.parse("tensors x[i,part], t_sum1[part]; return y = x[i,part]/sum[part](x[i,part]*t_sum1[part])")
    sums = ra.parse("return t = sum[i](x[i,part])")
    (joint,) = units([rows, sums])
    assert isinstance(joint, Joint) and joint.parts == "part0" and list(joint.elements) == ["t_sum1_"]
    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert joint.compile("numpy")(x=x, t_sum1=np.ones(2))["t"].tolist() == [4.0, 6.0]
