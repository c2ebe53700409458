"""The main job on real input: attention and LayerNorm derived, run in unequal pieces, compared; one spec refused.

The input is what the first layer of a public sentence-embedding model computes from the Gettysburg Address
(`redalg/data/README.md`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Any

import redalg as ra
from redalg.cli.run import by_name
from redalg.text.terminal import difference, progress, refusal, table

if TYPE_CHECKING:
    from redalg.form import Form

Arrays = dict[str, Any]
CUTS = (0, 0.11, 0.11, 0.47, 0.53, 1.0)  # pieces as shares of the axis; the second one is empty
MERGE_ORDER = (3, 0, 4, 1, 2)


def load_data() -> Arrays:
    """The packaged arrays: tokens, embedding, ln_weight, ln_bias, Q, K, V, scale."""
    import numpy as np

    with as_file(files("redalg.data") / "minilm_layer0.npz") as path, np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def pieces(length: int) -> list[slice]:
    """Unequal pieces that cover the axis, one of them empty.

    >>> [(p.start, p.stop) for p in pieces(100)]
    [(0, 11), (11, 11), (11, 47), (47, 53), (53, 100)]
    """
    edges = [round(cut * length) for cut in CUTS]
    return [slice(a, b) for a, b in zip(edges, edges[1:], strict=False)]


def stream(form: Form, arrays: Mapping[str, Any], axis: str) -> Arrays:
    """Every piece through an accumulator of its own, placed where the piece starts, merged out of order.

    Outputs that keep the axis are then applied piece by piece and put together again.
    """
    import numpy as np

    position = {d.name: d.axes.index(axis) for d in form.spec.tensors if axis in d.axes}
    bound = {name: value for name, value in arrays.items() if name not in position}
    length = next(arrays[name].shape[p] for name, p in position.items())

    def chunk(piece: slice) -> Arrays:
        return {name: arrays[name][(slice(None),) * p + (piece,)] for name, p in position.items()}

    accumulators = []
    for piece in pieces(length):
        accumulator = form.accumulator(start=piece.start, **bound)
        accumulator.update(**chunk(piece))
        accumulators.append(accumulator)
    first, *rest = (accumulators[k] for k in MERGE_ORDER)
    for accumulator in rest:
        first.merge(accumulator)

    kept = {out.name: out.axes.index(axis) for out in form.plan.outputs if out.keeps_axis}
    if not kept:
        return by_name(form.spec, first.result())
    parts = [by_name(form.spec, first.apply(**chunk(p), start=p.start)) for p in pieces(length)]
    return {name: np.concatenate([part[name] for part in parts], axis=a) for name, a in kept.items()}


def numpy_attention(Q: Any, K: Any, V: Any, scale: float) -> Any:
    import numpy as np

    S = np.einsum("hid,hjd->hij", Q, K) * np.float32(scale)
    P = np.exp(S - S.max(axis=-1, keepdims=True))
    return P @ V / P.sum(axis=-1, keepdims=True)


def numpy_layer_norm(x: Any, weight: Any, bias: Any, eps: float) -> Any:
    import numpy as np

    mean = x.mean(axis=-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + np.float32(eps)) * weight + bias


def show(title: str, name: str, arguments: Arrays, plain: Any) -> None:
    """Derive a catalog spec, print its definition and form, run it in pieces, print the errors."""
    import numpy as np

    entry = ra.catalog.entry(name)
    heading(title)
    print(f"{entry.description}: {entry.source}\n")
    started = time.perf_counter()
    with progress(f"deriving {name}"):
        form = ra.derive_incremental(entry.spec, axis=entry.axis)
    print(f"derived in {time.perf_counter() - started:.2f} s:\n\n{form}\n")

    with progress(f"running {name} in pieces"):
        streamed = stream(form, arguments, str(entry.axis))
    wide: Arrays = {k: v.astype(np.float64) if isinstance(v, np.ndarray) else v for k, v in arguments.items()}
    with progress("computing the definition in float64"):
        exact = by_name(entry.spec, ra.reference(entry.spec, **wide))
    length = next(arguments[d.name].shape[d.axes.index(entry.axis)] for d in entry.spec.tensors if entry.axis in d.axes)
    cuts = ", ".join(f"[{p.start}, {p.stop})" for p in pieces(length))
    print(f"pieces along {entry.axis}: {cuts}; merged in the order {', '.join(str(k + 1) for k in MERGE_ORDER)}\n")
    for output, value in streamed.items():
        print(
            table(errors(value, exact[output], plain(**arguments)), ["max error of", "shape", "absolute", "relative"])
        )


def errors(value: Any, exact: Any, plain: Any) -> list[list[object]]:
    rows = {
        "the form against the definition in float64": (value, exact),
        "plain NumPy against the definition in float64": (plain, exact),
        "the form against plain NumPy": (value, plain),
    }
    return [[label, a.shape, *(f"{e:.2e}" for e in difference(a, b))] for label, (a, b) in rows.items()]


def show_refusal() -> None:
    x = ra.tensors("x[j]")
    spec = ra.Spec(mad=ra.mean(ra.abs(x - ra.mean(x, "j")), "j"))
    heading("A definition that no single pass computes: mean absolute deviation")
    print(f"{spec}\n")
    try:
        with progress("deriving"):
            ra.derive_incremental(spec)
    except ra.NotDecomposable as refused:
        print(refusal(refused))


def heading(text: str) -> None:
    print(f"\n{text}\n{'=' * len(text)}\n")


def demo() -> None:
    """Print the whole demonstration; under 30 s on two cores."""
    started = time.perf_counter()
    data = load_data()
    words: Sequence[str] = data["tokens"][1:9]
    print(f'Input: {len(data["tokens"])} tokens, "{" ".join(words)} …"')
    attention = {"Q": data["Q"], "K": data["K"], "V": data["V"], "scale": float(data["scale"])}
    show("Attention", "attention_scaled", attention, numpy_attention)
    norm = {"x": data["embedding"], "weight": data["ln_weight"], "bias": data["ln_bias"], "eps": 1e-12}
    show("LayerNorm", "layer_norm", norm, numpy_layer_norm)
    show_refusal()
    print(f"\n{time.perf_counter() - started:.1f} s in all")
