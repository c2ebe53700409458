"""An output has the digits that it has alone, whatever else a spec asks for: what is centred for one output, on a
maximum for an exponential, say, is no place to look at another one from."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

import redalg as ra
from tests.support.sample import deep

EPS = 2.0**-24
Arrays = dict[str, np.ndarray]
# output -> (its text, what it is computed from, which bounds how much rounding may cost)
OUTPUTS: dict[str, tuple[str, Any]] = {
    "sum": ("sum[j](x[j]*w[j])", lambda x, w, b: np.abs(x * w).sum()),
    "read": ("sum[j](w[j]*sum[j](x[j]*w[j]))", lambda x, w, b: np.abs(x * w).sum() * w.sum()),
    "total": ("sum[j](x[j])", lambda x, w, b: np.abs(x).sum()),
    "masked": ("sum[j](where(b[j], x[j], 0))", lambda x, w, b: np.abs(x[b]).sum()),
    "average": ("sum[j](x[j]*w[j])/sum[j](w[j])", lambda x, w, b: np.abs(x * w).sum() / w.sum()),
    "selected": ("sum[j](where(b[j], x[j], 0))/count[j](b[j])", lambda x, w, b: np.abs(x[b]).mean()),
    "mean": ("mean[j](x[j])", lambda x, w, b: np.abs(x).mean()),
    "variance": ("var[j](x[j])", lambda x, w, b: x.var()),
    "logsumexp": ("logsumexp[j](x[j])", lambda x, w, b: np.abs(x).max() + np.log(x.size)),
    "below": ("sum[j](abs(x[j] - max[j](x[j])))", lambda x, w, b: np.abs(x - x.max()).sum()),
    "above": ("mean[j]((x[j] - min[j](x[j]))**2)", lambda x, w, b: ((x - x.min()) ** 2).mean()),
    "softmax": ("sum[j](softmax[j](x[j])*w[j])", lambda x, w, b: 1 + np.abs(x).max() + w.max()),
}
CENTRED = "logsumexp", "below", "above", "softmax"  # on an extremum
DRAWN = 200


def data(seed: int) -> Arrays:
    """Most elements near 1, a few far away that weights of 0 and masks hide: of either sign, at any place."""
    rng = np.random.default_rng(seed)
    x, w = 1 + rng.normal(size=DRAWN) / 8, rng.integers(0, 3, DRAWN) / 2.0
    far = rng.choice(DRAWN, 1 + seed % 2, replace=False)
    x[far] = rng.choice([1, 1, -1], far.size) * 10.0 ** rng.uniform(3, 7, far.size)
    w[far] = 0
    b = w > 0
    return {"x": x.astype(np.float32), "w": w.astype(np.float32), "b": b}


PAIRS = [" ".join(pair) for pair in combinations(OUTPUTS, 2)]
THREE = [f"{pair} {c}" for pair in PAIRS for c in CENTRED if not {*CENTRED} & {*pair.split()}]


@pytest.mark.parametrize("several", [*PAIRS, *deep(THREE)])
def test_outputs_have_the_digits_they_have_alone(several: str) -> None:
    """Rounding costs an output as many units of what it adds up as there are elements, at most."""
    names = several.split()
    text = ", ".join(f"{n} = {OUTPUTS[n][0]}" for n in names)
    form = ra.derive_incremental(ra.parse(f"tensors b[j] bool; return {text}" if "b[j]" in text else f"return {text}"))
    wanted = {t.name for t in form.spec.tensors}
    for seed in range(4):
        every = data(seed)
        given = {n: a for n, a in every.items() if n in wanted}
        true = ra.reference(form.spec, **{n: a.astype(float) if a.dtype != bool else a for n, a in given.items()})
        wide = {n: a.astype(float) if a.dtype != bool else a for n, a in every.items()}
        streamed = form.accumulator()
        for part in np.split(np.arange(DRAWN), [0, 1, 70, 71]):
            streamed.update(**{n: a[part] for n, a in given.items()})
        for found in (form.compile("numpy")(**given), streamed.result()):
            for n in names:
                bound = DRAWN * EPS * OUTPUTS[n][1](**wide)
                assert abs(float(found[n]) - float(true[n])) <= bound, (n, seed, float(found[n]), float(true[n]))
