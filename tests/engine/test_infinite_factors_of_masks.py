"""What multiplies a masked element is NaN or infinite: 0 times that is NaN, wherever it stands along another axis.

Masks may read positions, and what multiplies may be a stage along an axis that the result has, too.
"""

from __future__ import annotations

import warnings
from itertools import product
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.graph.functions import FUNCTIONS
from tests.support.sample import deep, one_in

MASKS = ("k[i,j]", "index[j] <= index[i]", "index[i] < index[j]", "index[j] == index[i] + 1", "z[i,j] > 100")
FACTORS = ("x[i,j]", "max[j](z[i,j])", "1/(1 + sum[j](x[i,j])**2)", "sum[j](z[i,j]*x[i,j])", "b[j]")
WRITTEN = ("sum[i]({m}*{f})", "sum[i](x[i,j] + {m}*{f})", "sum[i]({m}*{f})**2 + sum[i](z[i,j])", "max[i]({m}*{f})")


def arrays_of(spec: Any, at: dict[str, tuple[int, ...]], value: float) -> dict[str, Any]:
    rng, found = np.random.default_rng(len(str(spec))), dict[str, Any]()
    for t in spec.tensors:
        shape = [{"i": 3, "j": 4}[a] for a in t.axes]
        if "bool" in t.domain:
            found[t.name] = rng.random(shape) < 0.5
            continue
        found[t.name] = rng.integers(-8, 9, shape) / 4
        if t.name in at:
            found[t.name][at[t.name][: len(shape)] if len(shape) > 1 else at[t.name][1]] = value
    return found


@pytest.mark.parametrize(
    ("mask", "factor", "written"),
    [*one_in(3, MASKS, FACTORS, WRITTEN[:2]), *deep(product(MASKS, FACTORS, WRITTEN[2:]))],
)
def test_a_result_is_the_definition_or_nan(mask: str, factor: str, written: str) -> None:
    masked = f"where({mask}, z[i,j], 0)"
    tensors = [
        d for d in ("z[i,j]", "x[i,j]", "k[i,j] bool", "b[j]") if d.split("]")[0] in f"{mask}{factor}{written} z[i,j"
    ]
    spec = ra.parse(f"tensors {', '.join(tensors)}; return U = {written.format(m=masked, f=factor)}")
    form = ra.derive_incremental(spec, axis="i", max_passes=4)
    run = form.compile("numpy")
    for name, place, value in product("zxb", np.ndindex(3, 4), (np.nan, np.inf)):
        if name not in {t.name for t in spec.tensors} or name == "b" and place[0]:
            continue
        given = arrays_of(spec, {name: place}, value)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            wanted, found = ra.reference(spec, **given), run(**given)
        same = (found == wanted) | (np.isnan(found) & np.isnan(wanted)) | (abs(found - wanted) <= 1e-9)
        assert (same | np.isnan(found)).all(), (name, place, value, found, wanted)
        assert same.all() or "finite_stage_values" in form.assumptions


@pytest.mark.parametrize("function", [*(f.name for f in FUNCTIONS.values() if f.domain and f.word), "sqrt"])
@pytest.mark.parametrize("reduced", ["sum[j](where(c[j] > 0, x[j], 0)*{})", "sum[j](where(c[j] > 0, x[j]*{}, 0))"])
def test_masks_of_nothing_beside_what_is_out_of_its_domain(function: str, reduced: str) -> None:
    """0 times a number that there is none of is NaN; what is not selected is 0 whatever it would be."""
    for stage in ("sum[j](x[j])", "max[j](x[j])", "-max[j](x[j])"):
        text = f"tensors x[j], c[j] integer; m = {stage}; return y = {reduced.format(f'{function}(m)')}"
        form = ra.derive_incremental(ra.parse(text))
        for x, c in product(([5.0, 2.0], [-5.0, 0.5], [0.25, 0.5], [-3.0, -4.0], [0.0, 1.0]), ([0, 0], [1, 0])):
            with np.errstate(all="ignore"):
                wanted, found = ra.reference(form.spec, x=x, c=c), form.compile("numpy")(x=x, c=c)
            assert np.isnan(found) or np.isclose(found, wanted, rtol=1e-12), (text, x, c, found, wanted)
            assert np.isnan(found) == np.isnan(wanted) or "finite_stage_values" in form.assumptions


def test_positions_along_several_axes_fit_the_budget() -> None:
    """More of these would be so many runs that none counts, and every infinite element made the result NaN."""
    mask = "index[b] <= index[i] and index[j] <= index[c]"
    spec = ra.parse(f"tensors x[b,i,j,c], z[b,i,j,c]; return y = sum[c](where({mask}, x[b,i,j,c], 0)*z[b,i,j,c])")
    assert "budget" not in str(ra.derive_incremental(spec, axis="c").assumptions)
