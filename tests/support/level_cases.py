"""Tile programs that the tests share: attention's gradients, chains of products; run thread by thread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import numpy as np

import redalg as ra
from redalg.kernels.emulate.arguments import Arguments
from redalg.kernels.emulate.memory import Numbers
from redalg.kernels.emulate.run import run
from redalg.kernels.emulate.tiles import TensorMap, TensorMaps
from redalg.kernels.ir.layouts import View
from redalg.kernels.pipeline import by_tiles
from redalg.kernels.schedule.target import H200, Target
from redalg.kernels.tile.level.mma_sizes import WarpSizes
from redalg.kernels.tile.level.passes import LevelDraft
from redalg.kernels.tile.level.sizes import WarpgroupSizes

SAVED = "s = sum[d](Q[h,i,d]*K[h,j,d]); p = exp(s*scale - lse[h,i]); z = p*(sum[e](G[h,i,e]*V[h,j,e]) - delta[h,i]); "
CHAIN = "return E = sum[n](relu(sum[k](A[m,k]*B[n,k]))*D[n,l])"
TEXTS = {  # hand-written gradients of attention with saved statistics, and chains; the axis that is streamed
    "dQ": (
        f"tensors Q[h,i,d], K[h,j,d], V[h,j,e], G[h,i,e], lse[h,i], delta[h,i], scale; {SAVED}"
        "return dQ = scale*sum[j](z*K[h,j,d])",
        "j",
    ),
    "dK dV": (
        f"tensors Q[h,i,d], K[h,j,d], V[h,j,e], G[h,i,e], lse[h,i], delta[h,i], scale; {SAVED}"
        "dK = scale*sum[i](z*Q[h,i,d]); dV = sum[i](p*G[h,i,e]); return dK, dV",
        "i",
    ),
    "dQ lengths": (  # of every head, and several heads of queries for one of keys
        "tensors Q[h,g,i,d], K[h,j,d], V[h,j,e], G[h,g,i,e], lse[h,g,i], delta[h,g,i], n[h] integer, scale; "
        "s = sum[d](Q[h,g,i,d]*K[h,j,d]); p = exp(where(index[j] < n[h], s*scale, -oo) - lse[h,g,i]); "
        "z = p*(sum[e](G[h,g,i,e]*V[h,j,e]) - delta[h,g,i]); return dQ = scale*sum[j](z*K[h,j,d])",
        "j",
    ),
    "shifted": (  # a number of the row is subtracted from what is no score alone
        "tensors Q[h,i,d], K[h,j,d], V[h,j,e], G[h,i,e], lse[h,i], delta[h,j]; s = sum[d](Q[h,i,d]*K[h,j,d]); "
        "return dQ = sum[j](s*(tanh(sum[e](G[h,i,e]*V[h,j,e])) - lse[h,i] + delta[h,j])*K[h,j,d])",
        "j",
    ),
    "chain": (CHAIN, "n"),
    "chain across": ("return E = sum[n](relu(sum[k](A[m,k]*B[k,n]))*D[l,n])", "n"),
}


@cache
def spec_of(name: str) -> Any:
    """A text of `TEXTS`, or "<spec of the catalog> <tensor>": the spec of a gradient of it."""
    if name in TEXTS:
        return ra.parse(TEXTS[name][0])
    base, _, wrt = name.partition(" ")
    return ra.catalog[base].vjp(wrt="Q K V").specs[wrt]


@cache
def form_of(name: str) -> Any:
    return ra.derive_incremental(spec_of(name), axis=TEXTS[name][1] if name in TEXTS else None)


def dtypes_of(name: str, kind: str = "bfloat16") -> dict[str, Any]:
    wide = {"n": "int64", "mask": "bool"}
    narrow = lambda n: n.isupper() or n == "grad_O"  # noqa: E731
    return {
        t.name: wide.get(t.name, kind if narrow(t.name) else "float32") if t.axes else float
        for t in spec_of(name).tensors
    }


def drafted(
    name: str,
    sizes: Mapping[str, int],
    kind: str = "bfloat16",
    dump_after: str | None = None,
    target: Target = H200,
    views: Mapping[str, View] | None = None,
    **more: Any,
) -> LevelDraft:
    """`views`: of tensors that are not contiguous."""
    usual = {t.name: View.contiguous(tuple(sizes[a] for a in t.axes)) for t in spec_of(name).tensors if t.axes}
    return by_tiles(form_of(name), dtypes_of(name, kind), usual | dict(views or {}), target, dump_after, **more)


def arrays_of(name: str, sizes: Mapping[str, int], seed: int = 0) -> dict[str, Any]:
    """Random tensors; saved statistics are those of the others, so that weights add up to 1."""
    rng = np.random.default_rng(seed)
    made: dict[str, Any] = {
        t.name: rng.standard_normal([sizes[a] for a in t.axes]).astype(np.float32) if t.axes else 0.3
        for t in spec_of(name).tensors
    }
    made |= {n: made[n] > -1 for n in ("mask",) if n in made}  # most of them
    made |= {n: np.arange(len(made[n])) * sizes["j"] // 2 for n in ("n",) if n in made}  # from none on
    scores = (
        None
        if np.ndim(made.get("Q")) != 3
        else np.einsum("hid,hjd->hij", made["Q"], made["K"]) * made.get("scale", 1.0)
    )
    if scores is not None:
        top = scores.max(-1)
        total = np.exp(scores - top[..., None]).sum(-1)
        made |= {"max1": top, "sum2": total, "lse": top + np.log(total)}
    return {
        n: np.float32(x) if np.ndim(x) and x.dtype.kind == "f" else x
        for n, x in made.items()
        if n in {t.name for t in spec_of(name).tensors}
    }


def emulated(
    draft: LevelDraft, given: Mapping[str, Any], blocks: int = 1, sample: Iterable[int] | None = None, seed: int = 0
) -> dict[str, np.ndarray]:
    """What the printed kernel computes, by a sample of its threads; other rows stay NaN. Numbers are not rounded.
    `blocks`: of the grid, where they take tiles in turns."""
    planned, parts = draft.planned, draft.parts
    assert planned is not None and parts is not None
    sizes = dict(planned.sizes)
    program = parts.program
    arrays = {o.name: np.ascontiguousarray(given[o.name]) for o in program.operands if o.axes and o.name in given}
    for first, node in parts.firsts.items():
        held = next(o for o in program.operands if o.name == first)
        env = {n: np.asarray(given[n], np.float64) for n in given if np.ndim(given[n])}
        arrays[first] = np.float32(_reduced(node, env, held.axes))
    operands = {o.name: Numbers(arrays[o.name], o.dtype) for o in program.operands if o.axes}
    shapes = {r.name: [sizes[a] for a in r.axes] for r in program.results}
    results = {n: np.full(s, np.nan, np.float32) for n, s in shapes.items()}
    maps = []
    for m in planned.maps:
        operand = next(o for o in program.operands if o.name == m.operand)
        turned = np.transpose(arrays[m.operand], [operand.axes.index(a) for a in reversed(m.axes)])
        maps.append(TensorMap(turned, operand.dtype, m.rows))
    arguments = Arguments(
        {**given, **operands},
        {r.name: Numbers(results[r.name], r.dtype, once=True) for r in program.results},
        {},
        sizes,
        planned.fixed,
        {n: View.contiguous(a.shape).strides for n, a in arrays.items()},
        {n: View.contiguous(a.shape).strides for n, a in results.items()},
        TensorMaps(tuple(maps)),
    )
    blocks = planned.fixed["tiles"] if draft.by_mma else blocks
    run(planned.module, arguments, blocks, seed=seed, sample=sample, rounds=False)
    return results


def _reduced(node: Any, env: Mapping[str, Any], axes: tuple[str, ...]) -> Any:
    from redalg.numeric.evaluate import evaluate

    return evaluate([node], env, orders=[axes])[0]


def quads(draft: LevelDraft, rows: Iterable[tuple[int, int, int]] = ((0, 0, 0), (0, 3, 5), (1, 1, 2))) -> set[int]:
    """Threads of some quads (warpgroup, warp, row within the warp's eight), and those that stand for others."""
    sizes = draft.sizes
    assert sizes is not None
    if isinstance(sizes, WarpSizes):  # values of the stream are read by the first threads
        firsts = {32 * (warp % sizes.warps) + 4 * r for _, warp, row in rows for r in (0, row)}
        return {first + k for first in firsts for k in range(4)} | {*range(sizes.columns if sizes.vectors else 0)}
    assert isinstance(sizes, WarpgroupSizes)
    consumers = sizes.consumers
    chosen = {q for q in rows if q[0] < consumers} | {(team, 0, 0) for team in range(consumers)}
    firsts = {128 * (team + 1) + 32 * warp + 4 * r for team, warp, row in chosen for r in (0, row)}
    return {first + k for first in firsts for k in range(4)}
