"""Products whose rows are reduced in the epilogue, that tests share: texts, plans of the one kernel, and the truth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import redalg as ra
from redalg.kernels import pipeline
from redalg.kernels.gemm import passes, row_states
from redalg.kernels.gemm.narrow import Narrow
from redalg.kernels.gemm.tiles import GemmPlan
from redalg.kernels.ir.layouts import View
from redalg.kernels.launch.planned import Planned
from redalg.kernels.schedule.target import H200, Target
from redalg.numeric.casts import cast_array
from tests.support import forms

P = "p = sum[k](x[m,k]*W[k,l])"
TEXTS = {  # all stream over l
    "rms": f"{P}; q = mean[l](p**2); return y = p/sqrt(q + 1e-6)*g[l]",
    "softmax": f"{P}; q = max[l](p); z = sum[l](exp(p - q)); return y = exp(p - q)/z",
    "layer": f"{P} + c[l] + r[m,l]; u = mean[l](p); v = mean[l]((p - u)**2); "
    "return h = p, y = (p - u)/sqrt(v + 1e-5)*g[l] + b[l]",
    "logsumexp": f"{P}; return y = logsumexp[l](p)",
    "loss": f"{P}; return y = logsumexp[l](p) - sum[l](where(index[l] == t[m], p, 0))",
    "statistics": f"{P} + r[m,l]; return h = p, s = mean[l](p**2), least = min[l](p)",
    "norm": "p = relu(sum[k](x[m,k]*W[l,k])); return y = p/sqrt(sum[l](p**2))",
    "covariance": f"{P}; u = mean[l](p); v = mean[l](w[l]); return y = sum[l]((p - u)*(w[l] - v))/size[l]",
    "batched": "p = sum[k](x[b,m,k]*W[b,k,l]); q = max[l](p); return y = p - q - log(sum[l](exp(p - q)))",
    "heads": "p = sum[k](x[m,k]*W[k,l]) / s[m]; return y = p - mean[l](p), n = size[l] * max[l](abs(p))",
}


def form_of(name: str) -> Any:
    return forms.form_of_text(TEXTS[name], "l", 4)


def views_of(name: str, sizes: Mapping[str, int]) -> dict[str, View]:
    return {t.name: View.contiguous(tuple(sizes[a] for a in t.axes)) for t in form_of(name).spec.tensors}


def dtypes_of(name: str, kind: str = "bfloat16") -> dict[str, str]:
    return {t.name: "int64" if t.name == "t" else kind for t in form_of(name).spec.tensors}


def forced(monkeypatch: Any, want: tuple[int, int, int] | None) -> list[Planned]:
    """Plans of one kernel are taken, whatever they are predicted to take. `want`: their warpgroups, columns of a tile,
    and blocks, None for any. Gives what is taken."""
    taken: list[Planned] = []
    folded = pipeline._rows_folded

    def found(*given: Any) -> Planned:
        made = folded(*given)
        taken.append(made)
        return made

    def pick(made: Narrow, states: int, broad: bool) -> GemmPlan:
        every = row_states.plans(made, states, broad)
        own = (p for p in every if want is None or (p.consumers, p.columns, p.sharing.blocks) == want)
        return min(own, key=lambda p: row_states.seconds(made, p))

    monkeypatch.setattr(pipeline, "_rows_folded", found)
    monkeypatch.setattr(passes, "tiles_of_rows", pick)
    return taken


def planned(
    name: str, sizes: Mapping[str, int], taken: list[Planned], kind: str = "bfloat16", target: Target = H200
) -> Planned:
    """The one kernel for contiguous arrays, by `forced`."""
    taken.clear()
    pipeline.plan(form_of(name), dtypes_of(name, kind), views_of(name, sizes), target)
    assert taken, "no kernel has both"
    return taken[0]


def drawn(name: str, sizes: Mapping[str, int], kind: str = "bfloat16") -> dict[str, np.ndarray]:
    """Numbers of the format, of a size at which sums are of order 1."""
    rng = np.random.default_rng(sum(sizes.values()))
    given: dict[str, np.ndarray] = {}
    for t in form_of(name).spec.tensors:
        shape = [sizes[a] for a in t.axes]
        if t.name == "t":
            given[t.name] = rng.integers(0, sizes["l"], shape)
            continue
        x = rng.standard_normal(shape) / (sizes["k"] ** 0.5 if t.name == "W" else 1.0) + (2.0 if t.name == "s" else 0.0)
        given[t.name] = np.asarray(cast_array(x, kind), np.float64)
    return given


def truth(name: str, given: Mapping[str, Any]) -> dict[str, np.ndarray]:
    found = ra.reference(form_of(name).spec, **given)
    return found if isinstance(found, dict) else {next(iter(form_of(name).spec.outputs)): found}


__all__ = ["TEXTS", "drawn", "dtypes_of", "forced", "form_of", "planned", "truth", "views_of"]
