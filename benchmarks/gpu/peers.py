"""What PyTorch users write for each operation; the same in float64 is the reference that results are checked against.

`PEERS[operation](**arguments)` gives the results by name, in the dtypes of the spec. Where PyTorch has a fused function
it is used. Needs PyTorch; nothing here needs a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor as T

from benchmarks.harness.operations import TOP, strict_tolerance

Results = dict[str, T]


def softmax(x: T) -> Results:
    return {"y": torch.softmax(x, -1)}


def log_softmax(x: T) -> Results:
    return {"y": torch.log_softmax(x, -1)}


def logsumexp(x: T) -> Results:
    return {"y": torch.logsumexp(x, -1)}


def layer_norm(x: T, weight: T, bias: T, eps: float) -> Results:
    return {"y": F.layer_norm(x, (x.shape[-1],), weight, bias, eps)}


def rms_norm(x: T, weight: T, eps: float) -> Results:
    return {"y": F.rms_norm(x, (x.shape[-1],), weight, eps)}


def var_mean(x: T) -> Results:
    var, mean = torch.var_mean(x, -1, correction=0)
    return {"var": var, "mean": mean}


def variance(x: T) -> Results:
    return {"var": torch.var(x, -1, correction=0)}


def column_variance(x: T) -> Results:
    return {"var": torch.var(x, 0, correction=0)}


def column_softmax(x: T) -> Results:
    return {"y": torch.softmax(x, 0)}


def cross_entropy(x: T, t: T) -> Results:
    return {"loss": F.cross_entropy(x, t, reduction="none")}


def fp8_quantise(x: T) -> Results:
    """In float32 between the narrow ends, as the quantisers of inference engines compute; values keep x's dtype."""
    wide = torch.promote_types(x.dtype, torch.float32)
    scale = x.abs().amax(-1, keepdim=True).to(wide) / 448
    q = (x.to(wide) / scale).to(torch.float8_e4m3fn)
    return {"q": q.to(x.dtype), "scale": scale[:, 0].to(x.dtype)}


def argmax(x: T) -> Results:
    return {"position": torch.argmax(x, -1)}


def absmax(x: T) -> Results:
    return {"a": x.abs().amax(-1)}


def entropy(p: T) -> Results:
    return {"H": -(p * torch.log(p)).sum(-1)}


def kl_divergence(p: T, q: T) -> Results:
    return {"D": (p * torch.log(p / q)).sum(-1)}


def kl_divergence_of_logits(x: T, z: T) -> Results:
    log_p, log_q = torch.log_softmax(x, -1), torch.log_softmax(z, -1)
    return {"D": F.kl_div(log_q, log_p, reduction="none", log_target=True).sum(-1)}


def cosine_similarity(x: T, y: T) -> Results:
    return {"c": F.cosine_similarity(x, y, dim=-1)}


def softmax_top8(x: T) -> Results:
    best = torch.topk(torch.softmax(x, -1), TOP)
    return {"gates": best.values, "experts": best.indices}


def log_relu(x: T, b: T) -> Results:
    return {"y": torch.log(torch.relu(x + b))}


PEERS: Mapping[str, Callable[..., Results]] = {
    f.__name__: f
    for f in (
        softmax,
        log_softmax,
        logsumexp,
        layer_norm,
        rms_norm,
        var_mean,
        variance,
        column_variance,
        column_softmax,
        cross_entropy,
        fp8_quantise,
        argmax,
        absmax,
        entropy,
        kl_divergence,
        kl_divergence_of_logits,
        cosine_similarity,
        softmax_top8,
        log_relu,
    )
} | {"log_relu_broadcast": log_relu}

# --- how far results are from the reference --------------------------------------------------------------------------

LOOSE = {"float64": 1e-5, "float32": 1e-3, "bfloat16": 2.0**-4, "float16": 2.0**-6}


def worst(out: T, true: T, relative: float, absolute: float) -> float:
    """max |out - true| / (absolute + relative·|true|), 0 where both are the same infinity; NaN if out has one.

    >>> worst(torch.tensor([1.0, float("inf")]), torch.tensor([1.5, float("inf")]).double(), 0.0, 0.25)
    2.0
    """
    wide = out.to(torch.float64)
    same = wide == true
    ratio = (wide - true).abs_().div_(true.abs().mul_(relative).add_(absolute))
    return float(ratio.masked_fill_(same, 0.0).max()) if ratio.numel() else 0.0


def tolerance(operation: str, dtype: str, true: T, strict: bool) -> tuple[float, float]:
    """Relative and absolute. Peers may round between operations to their own dtype: they are held to its size only."""
    if strict:
        return strict_tolerance(operation, dtype)
    finite = true[true.isfinite()]
    largest = float(finite.abs().max()) if finite.numel() else 0.0
    return LOOSE[dtype], LOOSE[dtype] * largest + 1e-12


class Judge:
    """Compares the results of a contender with the float64 reference, computed once."""

    def __init__(self, operation: str, dtype: str, shapes: Mapping[str, tuple[tuple[int, ...], str]], arguments: Any):
        self.operation, self.dtype, self.shapes = operation, dtype, shapes
        self.arguments = {
            name: a.to(torch.float64) if isinstance(a, T) and a.is_floating_point() else a
            for name, a in arguments.items()
        }
        self.true = REFERENCES.get(operation, PEERS[operation])(**self.arguments)

    def __call__(self, results: Mapping[str, Any], strict: bool) -> float:
        if set(results) != set(self.shapes):
            raise ValueError(f"results {', '.join(results)} instead of {', '.join(self.shapes)}")
        for name, (shape, dtype) in self.shapes.items():
            found = results[name]
            if tuple(found.shape) != shape or (strict and str(found.dtype) != f"torch.{dtype}"):
                raise ValueError(f"{name} has shape {tuple(found.shape)} and dtype {found.dtype}")
        special = SPECIAL.get(self.operation)
        if special is not None:
            return special(self, results, strict)
        return max(self.close(name, results[name], strict) for name in self.shapes)

    def close(self, name: str, out: T, strict: bool) -> float:
        true = self.true[name]
        return worst(out, true, *tolerance(self.operation, self.dtype, true, strict))


def _first_largest(x: T) -> Results:
    """The first position of the maximum, which torch.argmax does not promise."""
    top = x.amax(-1, keepdim=True)
    places = torch.arange(x.shape[-1], device=x.device)
    return {"position": torch.where(x == top, places, x.shape[-1]).amin(-1)}


def _judge_argmax(judge: Judge, results: Mapping[str, T], strict: bool) -> float:
    """Ours must be the first position of the maximum, a peer's any."""
    found, true = results["position"], judge.true["position"]
    if strict:
        return 0.0 if bool((found == true).all()) else float("inf")
    x = judge.arguments["x"]
    if not bool(((found >= 0) & (found < x.shape[-1])).all()):
        return float("inf")
    taken = x.gather(-1, torch.stack((found, true), -1))
    return 0.0 if bool((taken[:, 0] == taken[:, 1]).all()) else float("inf")


def _judge_top(judge: Judge, results: Mapping[str, T], strict: bool) -> float:
    """Gates are the largest probabilities in order; experts are distinct and have them. Equal ones may be swapped:

    probabilities that differ in float64 may be equal in float32.
    """
    gates, experts = results["gates"], results["experts"]
    n = judge.arguments["x"].shape[-1]
    in_order = experts.sort(-1).values
    if not bool(((experts >= 0) & (experts < n)).all()) or not bool((in_order.diff(dim=-1) > 0).all()):
        return float("inf")
    probabilities = torch.softmax(judge.arguments["x"], -1).gather(-1, experts)
    relative, absolute = tolerance(judge.operation, judge.dtype, judge.true["gates"], strict)
    return max(judge.close("gates", gates, strict), worst(probabilities, judge.true["gates"], relative, absolute))


def _judge_fp8(judge: Judge, results: Mapping[str, T], strict: bool) -> float:
    """Values of the format, at most one step away, and that for at most 1 in 1000 (float32 against float64 ties)."""
    q, true = results["q"].to(torch.float64), judge.true["q"]
    if not bool((q.to(torch.float8_e4m3fn).to(torch.float64) == q).all()):
        return float("inf")
    off = float((q != true).double().mean()) / (1e-3 if strict else 0.1)
    return max(off, worst(q, true, 0.13, 2.0**-9), judge.close("scale", results["scale"], strict))


REFERENCES: Mapping[str, Callable[..., Results]] = {"argmax": _first_largest}
SPECIAL: Mapping[str, Callable[[Judge, Mapping[str, T], bool], float]] = {
    "argmax": _judge_argmax,
    "softmax_top8": _judge_top,
    "fp8_quantise": _judge_fp8,
}
