"""What NumPy and numexpr users write, pass by pass; `NUMPY` in float64 is the reference for everyone's results.

Every function takes the arguments and `out`, a dict of arrays that it fills. `NUMPY` is the usual text, with temporary
arrays; `IN_PLACE` the careful one, which works in `out` or in `scratch`, an array of x's size that lies ready.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from benchmarks.harness.operations import TOP

A = np.ndarray
Out = Mapping[str, A]


def softmax(out: Out, x: A) -> None:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    np.divide(e, e.sum(axis=1, keepdims=True), out=out["y"])


def log_softmax(out: Out, x: A) -> None:
    d = x - x.max(axis=1, keepdims=True)
    np.subtract(d, np.log(np.exp(d).sum(axis=1, keepdims=True)), out=out["y"])


def logsumexp(out: Out, x: A) -> None:
    m = x.max(axis=1, keepdims=True)
    np.add(m[:, 0], np.log(np.exp(x - m).sum(axis=1)), out=out["y"])


def layer_norm(out: Out, x: A, weight: A, bias: A, eps: float) -> None:
    mean, var = x.mean(axis=1, keepdims=True), x.var(axis=1, keepdims=True)
    np.add((x - mean) / np.sqrt(var + eps) * weight, bias, out=out["y"])


def rms_norm(out: Out, x: A, weight: A, eps: float) -> None:
    np.multiply(x / np.sqrt((x**2).mean(axis=1, keepdims=True) + eps), weight, out=out["y"])


def variance(out: Out, x: A) -> None:
    x.var(axis=1, out=out["var"])


def var_mean(out: Out, x: A) -> None:
    x.mean(axis=1, out=out["mean"])
    x.var(axis=1, out=out["var"])


def column_variance(out: Out, x: A) -> None:
    x.var(axis=0, out=out["var"])


def argmax(out: Out, x: A) -> None:
    x.argmax(axis=1, out=out["position"])


def cross_entropy(out: Out, x: A, t: A) -> None:
    m = x.max(axis=1, keepdims=True)
    picked = np.take_along_axis(x, t[:, None], axis=1)[:, 0]
    np.subtract(m[:, 0] + np.log(np.exp(x - m).sum(axis=1)), picked, out=out["loss"])


def entropy(out: Out, p: A) -> None:
    np.negative((p * np.log(p)).sum(axis=1), out=out["H"])


def kl_divergence(out: Out, p: A, q: A) -> None:
    (p * np.log(p / q)).sum(axis=1, out=out["D"])


def cosine_similarity(out: Out, x: A, y: A) -> None:
    norms = np.sqrt((x * x).sum(axis=1)) * np.sqrt((y * y).sum(axis=1))
    np.divide((x * y).sum(axis=1), norms, out=out["c"])


def softmax_top8(out: Out, x: A) -> None:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    p = e / e.sum(axis=1, keepdims=True)
    best = np.argpartition(-p, TOP - 1, axis=1)[:, :TOP]
    order = np.argsort(-np.take_along_axis(p, best, axis=1), axis=1, kind="stable")
    out["experts"][...] = np.take_along_axis(best, order, axis=1)
    out["gates"][...] = np.take_along_axis(p, out["experts"], axis=1)


def log_relu(out: Out, x: A, b: A) -> None:
    with np.errstate(divide="ignore"):
        np.log(np.maximum(x + b, 0), out=out["y"])


Compute = Callable[..., None]
NUMPY: dict[str, Compute] = {
    f.__name__: f
    for f in (
        softmax,
        log_softmax,
        logsumexp,
        layer_norm,
        rms_norm,
        variance,
        var_mean,
        column_variance,
        argmax,
        cross_entropy,
        entropy,
        kl_divergence,
        cosine_similarity,
        softmax_top8,
        log_relu,
    )
} | {"log_relu_broadcast": log_relu}


# --- the same without temporary arrays -------------------------------------------------------------------------------


def _in_place(scratch: A) -> dict[str, Compute]:
    def softmax(out: Out, x: A) -> None:
        y = out["y"]
        np.exp(np.subtract(x, x.max(axis=1, keepdims=True), out=y), out=y)
        np.divide(y, y.sum(axis=1, keepdims=True), out=y)

    def log_softmax(out: Out, x: A) -> None:
        y = np.subtract(x, x.max(axis=1, keepdims=True), out=out["y"])
        np.subtract(y, np.log(np.exp(y, out=scratch).sum(axis=1, keepdims=True)), out=y)

    def logsumexp(out: Out, x: A) -> None:
        m = x.max(axis=1, keepdims=True)
        np.exp(np.subtract(x, m, out=scratch), out=scratch)
        np.add(m[:, 0], np.log(scratch.sum(axis=1)), out=out["y"])

    def layer_norm(out: Out, x: A, weight: A, bias: A, eps: float) -> None:
        y = np.subtract(x, x.mean(axis=1, keepdims=True), out=out["y"])
        var = np.einsum("ij,ij->i", y, y)[:, None] / x.shape[1]
        np.divide(y, np.sqrt(var + eps), out=y)
        np.add(np.multiply(y, weight, out=y), bias, out=y)

    def rms_norm(out: Out, x: A, weight: A, eps: float) -> None:
        square = np.einsum("ij,ij->i", x, x)[:, None] / x.shape[1]
        np.multiply(np.divide(x, np.sqrt(square + eps), out=out["y"]), weight, out=out["y"])

    def variance(out: Out, x: A) -> None:
        d = np.subtract(x, x.mean(axis=1, keepdims=True), out=scratch)
        np.divide(np.einsum("ij,ij->i", d, d), x.shape[1], out=out["var"])

    def cross_entropy(out: Out, x: A, t: A) -> None:
        m = x.max(axis=1, keepdims=True)
        np.exp(np.subtract(x, m, out=scratch), out=scratch)
        picked = np.take_along_axis(x, t[:, None], axis=1)[:, 0]
        np.subtract(m[:, 0] + np.log(scratch.sum(axis=1)), picked, out=out["loss"])

    def entropy(out: Out, p: A) -> None:
        np.negative(np.einsum("ij,ij->i", p, np.log(p, out=scratch)), out=out["H"])

    def kl_divergence(out: Out, p: A, q: A) -> None:
        np.log(np.divide(p, q, out=scratch), out=scratch)
        np.einsum("ij,ij->i", p, scratch, out=out["D"])

    def cosine_similarity(out: Out, x: A, y: A) -> None:
        xy, xx, yy = (np.einsum("ij,ij->i", a, b) for a, b in ((x, y), (x, x), (y, y)))
        np.divide(xy, np.sqrt(xx) * np.sqrt(yy), out=out["c"])

    def log_relu(out: Out, x: A, b: A) -> None:
        with np.errstate(divide="ignore"):
            y = np.maximum(np.add(x, b, out=out["y"]), 0, out=out["y"])
            np.log(y, out=y)

    made = (
        softmax,
        log_softmax,
        logsumexp,
        layer_norm,
        rms_norm,
        variance,
        cross_entropy,
        entropy,
        kl_divergence,
        cosine_similarity,
        log_relu,
    )
    return {f.__name__: f for f in made} | {"log_relu_broadcast": log_relu}


def in_place(shape: tuple[int, ...], dtype: str) -> dict[str, Compute]:
    """The careful versions, with scratch memory that has been written once."""
    return _in_place(np.zeros(shape, dtype) + 1)


# --- numexpr: element-wise work in blocks on all threads, reductions by NumPy or by itself ---------------------------


def numexpr_versions(threads: int) -> dict[str, Compute]:
    """Empty where numexpr is not installed."""
    try:
        import numexpr
    except ImportError:
        return {}
    numexpr.set_num_threads(threads)

    def run(text: str, out: A | None = None, **names: Any) -> A:
        result: A = numexpr.evaluate(text, local_dict=names, global_dict={}, out=out)
        return result

    def softmax(out: Out, x: A) -> None:
        e = run("exp(x - m)", out["y"], x=x, m=x.max(axis=1, keepdims=True))
        run("e / s", out["y"], e=e, s=e.sum(axis=1, keepdims=True))

    def log_softmax(out: Out, x: A) -> None:
        m = x.max(axis=1, keepdims=True)
        s = run("exp(x - m)", out["y"], x=x, m=m).sum(axis=1, keepdims=True)
        run("x - c", out["y"], x=x, c=m + np.log(s))

    def logsumexp(out: Out, x: A) -> None:
        m = x.max(axis=1, keepdims=True)
        np.add(m[:, 0], np.log(run("sum(exp(x - m), axis=1)", x=x, m=m)), out=out["y"])

    def layer_norm(out: Out, x: A, weight: A, bias: A, eps: float) -> None:
        mean = x.mean(axis=1, keepdims=True)
        var = run("sum((x - mean) ** 2, axis=1)", x=x, mean=mean)[:, None] / x.shape[1]
        scale = (1 / np.sqrt(var + eps)).astype(x.dtype)
        run("(x - mean) * scale * w + b", out["y"], x=x, mean=mean, scale=scale, w=weight, b=bias)

    def rms_norm(out: Out, x: A, weight: A, eps: float) -> None:
        square = run("sum(x * x, axis=1)", x=x)[:, None] / x.shape[1]
        run("x * scale * w", out["y"], x=x, scale=(1 / np.sqrt(square + eps)).astype(x.dtype), w=weight)

    def variance(out: Out, x: A) -> None:
        mean = x.mean(axis=1, keepdims=True)
        np.divide(run("sum((x - mean) ** 2, axis=1)", x=x, mean=mean), x.shape[1], out=out["var"])

    def column_variance(out: Out, x: A) -> None:
        mean = x.mean(axis=0, keepdims=True)
        np.divide(run("sum((x - mean) ** 2, axis=0)", x=x, mean=mean), x.shape[0], out=out["var"])

    def cross_entropy(out: Out, x: A, t: A) -> None:
        logsumexp({"y": out["loss"]}, x)
        np.subtract(out["loss"], np.take_along_axis(x, t[:, None], axis=1)[:, 0], out=out["loss"])

    def entropy(out: Out, p: A) -> None:
        np.negative(run("sum(p * log(p), axis=1)", p=p), out=out["H"])

    def kl_divergence(out: Out, p: A, q: A) -> None:
        out["D"][...] = run("sum(p * log(p / q), axis=1)", p=p, q=q)

    def log_relu(out: Out, x: A, b: A) -> None:
        run("log(where(x + b > 0, x + b, zero))", out["y"], x=x, b=b, zero=x.dtype.type(0))

    made = (
        softmax,
        log_softmax,
        logsumexp,
        layer_norm,
        rms_norm,
        variance,
        column_variance,
        cross_entropy,
        entropy,
        kl_divergence,
        log_relu,
    )
    return {f.__name__: f for f in made} | {"log_relu_broadcast": log_relu}


# --- PyTorch ---------------------------------------------------------------------------------------------------------


def torch_versions(threads: int, compiled: bool = False) -> dict[str, Compute]:
    """PyTorch's own functions over the same memory; empty where it is not installed. They make their results anew."""
    try:
        import torch

        from benchmarks.gpu.peers import PEERS
    except ImportError:
        return {}
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)

    def wrapped(function: Any) -> Compute:
        def compute(out: Out, **arguments: Any) -> None:
            results = function(**{n: torch.from_numpy(a) if isinstance(a, A) else a for n, a in arguments.items()})
            kept[0] = results

        kept = [None]
        compute.results = lambda: {n: t.numpy() for n, t in kept[0].items()}  # type: ignore[attr-defined]
        return compute

    if compiled:
        return {n: wrapped(torch.compile(f, dynamic=False, fullgraph=True)) for n, f in PEERS.items()}
    return {n: wrapped(f) for n, f in PEERS.items()}


# --- ceilings --------------------------------------------------------------------------------------------------------


def shares(x: A, threads: int) -> list[A]:
    return np.array_split(x.reshape(-1), threads)


def copies(source: A, target: A, threads: int, pool: ThreadPoolExecutor) -> dict[str, Callable[[], Any]]:
    """Ways to copy an array."""
    pairs = list(zip(shares(source, threads), shares(target, threads), strict=True))
    found: dict[str, Callable[[], Any]] = {
        "np.copyto": lambda: np.copyto(target, source),
        f"np.copyto, {threads} threads": lambda: list(pool.map(lambda p: np.copyto(p[1], p[0]), pairs)),
    }
    try:
        import torch
    except ImportError:
        return found
    a, b = torch.from_numpy(source), torch.from_numpy(target)
    return {**found, f"torch copy_, {threads} threads": lambda: b.copy_(a)}


def reads(source: A, threads: int, pool: ThreadPoolExecutor) -> dict[str, Callable[[], Any]]:
    """Ways to read an array and keep next to nothing of it."""
    parts = shares(source, threads)
    found: dict[str, Callable[[], Any]] = {
        f"np.max, {threads} threads": lambda: list(pool.map(np.max, parts)),
        f"np.sum, {threads} threads": lambda: list(pool.map(np.sum, parts)),
    }
    try:
        import numba

        @numba.njit("float32(float32[::1])", nogil=True, fastmath={"reassoc"})
        def total(x):  # type: ignore[no-untyped-def]
            s = np.float32(0)
            for i in range(x.size):
                s += x[i]
            return s

        found[f"numba sum, {threads} threads"] = lambda: list(pool.map(total, parts))
    except ImportError:
        pass
    try:
        import torch
    except ImportError:
        return found
    a = torch.from_numpy(source)
    return {**found, "torch sum": a.sum, "torch amax": a.amax}
