"""Random specs together with what is known about them: the judge the engine is held against.

Every function here draws a `Generated`: a spec, the verdict it must get and, where it is known by construction, the
separation rank of its last stage. `KINDS` names the draws; `generate(seed)` is a function of the seed alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import sympy

import redalg as ra
from redalg.testing.bodies import Body, Context, World, make_world, random_body, rational


@dataclass(frozen=True)
class Generated:
    """`expected`: "derived" (must be), "refuted" (must not be derived). `rank` of stage `total`, where known."""

    spec: Any
    kind: str
    note: str
    expected: str = "derived"
    rank: int | None = None

    def __str__(self) -> str:
        return f"[{self.kind}: {self.note}; expected {self.expected}, rank {self.rank}]\n{self.spec}"


KINDS: dict[str, Callable[[Random], Generated]] = {}


def kind(f: Callable[[Random], Generated]) -> Callable[[Random], Generated]:
    KINDS[f.__name__] = f
    return f


def generate(seed: int, *kinds: str) -> Generated:
    """One generated spec, a function of `seed` and the kinds allowed (default: all)."""
    rng = Random(f"redalg:{seed}")
    return KINDS[rng.choice(kinds or tuple(sorted(KINDS)))](rng)


def _finish(rng: Random, total: Any) -> Any:
    """A harmless end of the cascade, so that the stage is not always the output itself."""
    endings: list[Callable[[Any], Any]] = [
        lambda t: t,
        lambda t: t,
        lambda t: t / ra.size("j"),
        lambda t: 2 * t - 1,
        lambda t: ra.tanh(t / 64),
    ]
    return rng.choice(endings)(total)


# --- sums of known rank -----------------------------------------------------------------------------------------------


@kind
def known_rank(rng: Random) -> Generated:
    """Σ_j F with F of rank 1 to 4 by construction."""
    world = make_world(rng)
    name, body = random_body(rng, world)
    total = ra.sum(body.expr, "j")
    return Generated(ra.Spec(y=_finish(rng, total)), "known_rank", name, rank=body.rank)


@kind
def masked(rng: Random) -> Generated:
    """Σ_j where(c(j), F, 0), c a condition on the element that is independent of F's own conditions."""
    world = make_world(rng)
    while True:
        name, body = random_body(rng, world)
        if "y" not in body.kinks:
            break
    keep = ra.tensors("keep[j]", bool=True)
    condition = rng.choice((keep, world.y > sympy.Rational(1, 2), sympy.And(keep, world.y > 0), sympy.Not(keep)))
    total = ra.sum(ra.where(condition, body.expr, 0), "j")
    return Generated(ra.Spec(y=_finish(rng, total)), "masked", name, rank=body.rank)


@kind
def masked_scores(rng: Random) -> Generated:
    """Σ_j e^{S-m}·v with S = where(mask, x, -oo) and m = max S, beside a body of the same pass."""
    world = make_world(rng)
    keep = ra.tensors("keep[j]", bool=True)
    score = ra.where(keep, sympy.Rational(rational(rng, "1 2 1/2")) * world.x, -ra.oo)
    weight = ra.exp(score - ra.max(score, "j"))
    mass = ra.sum(weight, "j")
    value = rng.choice((world.y, world.x * world.y, ra.log(world.p), world.y**2))
    mean = ra.sum(weight * value, "j") / mass
    if rng.random() < 0.4:
        spread = ra.sum(weight * (value - mean) ** 2, "j") / mass
        return Generated(ra.Spec(y=mean, v=spread), "masked_scores", "spread", rank=3)
    return Generated(ra.Spec(y=mean), "masked_scores", "mean", rank=1)


@kind
def weighted(rng: Random) -> Generated:
    """Σ w(x-a)(y-b) with weighted means a, b (weights positive): rank 4, or 3 where y is x."""
    world = make_world(rng)
    w = world.p
    total = ra.sum(w, "j")
    a = ra.sum(w * world.x, "j") / total
    square = rng.random() < 0.5
    other = world.x if square else world.y
    b = ra.sum(w * other, "j") / total
    moment = ra.sum(w * (world.x - a) * (other - b), "j")
    return Generated(ra.Spec(y=moment / total), "weighted", "moment", rank=3 if square else 4)


# --- splitting and maps of extrema ------------------------------------------------------------------------------------


def _increasing(rng: Random, world: World, e: Any, strict: bool) -> Any:
    """One random increasing map of e, from reals to reals, depending on stage values."""
    mu, nu, P, L = (world.contexts[i] for i in (0, 2, 4, 5))
    maps: list[Callable[[], Any]] = [
        lambda: e + mu.expr,
        lambda: e - 2 * nu.expr,
        lambda: e * P.expr,
        lambda: e / L.expr,
        lambda: ra.tanh(e),
        lambda: ra.sigmoid(e - nu.expr),
        lambda: ra.exp(e / 2) - mu.expr,
        lambda: ra.log(1 + ra.exp(e)),
        lambda: 3 * e + 1,
        lambda: e * (1 + mu.expr**2),
    ]
    loose: list[Callable[[], Any]] = [
        lambda: ra.relu(e - mu.expr),
        lambda: ra.maximum(e, nu.expr),
        lambda: ra.log1p(ra.relu(e)),
        lambda: ra.minimum(e, 1),
    ]
    return rng.choice(maps if strict else maps + loose)()


def _chain(rng: Random, world: World, e: Any, strict: bool) -> tuple[Any, bool]:
    """A composition of one to three monotone maps of e; True where it decreases."""
    falling = False
    for _ in range(rng.randint(1, 3)):
        e = _increasing(rng, world, e, strict)
        if rng.random() < 0.3:
            e, falling = -e, not falling
    return e, falling


@kind
def monotone(rng: Random) -> Generated:
    """max or min of a chain of monotone maps whose parameters are stage values."""
    world = make_world(rng)
    start = rng.choice((world.x, world.y, world.x + world.y, world.x * world.y))
    e, _ = _chain(rng, world, start, strict=False)
    stage = rng.choice((ra.max, ra.min))(e, "j")
    return Generated(ra.Spec(y=stage), "monotone", "extremum of a chain")


@kind
def positions(rng: Random) -> Generated:
    """argmax, argmin or top-k of a chain of *strictly* monotone maps."""
    world = make_world(rng)
    e, _ = _chain(rng, world, rng.choice((world.x, world.y)), strict=True)
    if rng.random() < 0.4:
        top = ra.topk(e, rng.choice((1, 2, 3)), "j")
        return Generated(ra.Spec(v=top.values, i=top.indices), "positions", "topk")
    return Generated(ra.Spec(i=rng.choice((ra.argmax, ra.argmin))(e, "j")), "positions", "arg")


@kind
def splitting(rng: Random) -> Generated:
    """Bodies that fall apart: |x-D| under max, (x-D)² under max, conditions under any and all, sums of sums."""
    world = make_world(rng)
    x, y, (mu, M, nu) = world.x, world.y, (c.expr for c in world.contexts[:3])
    a = sympy.Rational(rational(rng, "1 2 1/2 3"))
    choices: list[tuple[str, Any]] = [
        ("max|x-μ|", ra.max(ra.abs(a * x - mu), "j")),
        ("max (x-μ)²", ra.max((x - mu) ** 2, "j")),
        ("min of max", ra.max(ra.maximum(x - mu, y - nu), "j")),
        ("max over max", ra.max(ra.maximum(a * x, nu), "j")),
        ("any", ra.sum(y, "j") + ra.where(ra.any(x > mu + 1, "j"), 1, 0)),
        ("any or", ra.where(ra.any(sympy.Or(x > mu, y < nu), "j"), M, nu)),
        ("all and", ra.where(ra.all(sympy.And(x < mu + 2, y > nu - 2), "j"), 1, 0)),
        ("products", ra.prod(ra.exp(x / 8 - mu), "j")),
        ("powers", ra.prod(world.p**2 / (1 + mu**2), "j")),
        ("direction", ra.max(a * x * mu, "j")),
    ]
    note, stage = rng.choice(choices)
    return Generated(ra.Spec(y=stage), "splitting", note)


# --- bodies that do not separate --------------------------------------------------------------------------------------


def _inseparable_of(rng: Random, world: World) -> tuple[str, Any]:
    """f(u·x - v·D) for an f without finite rank; kinks only where the sign of the argument is really open."""
    smooth: dict[str, Callable[[Any], Any]] = {
        "tanh": ra.tanh,
        "sigmoid": ra.sigmoid,
        "gauss": lambda t: ra.exp(-(t**2)),
        "cauchy": lambda t: 1 / (1 + t**2),
        "root": lambda t: ra.sqrt(1 + t**2),
        "softplus": lambda t: ra.log(1 + ra.exp(t)),
        "erf": ra.erf,
        "log": lambda t: ra.log(1 + t**2),
        "atan": sympy.atan,
    }
    kinked: dict[str, Callable[[Any], Any]] = {
        "abs": ra.abs,
        "relu": ra.relu,
        "step": lambda t: ra.where(t > 0, 1, 0),
        "hinge": lambda t: ra.maximum(t, 0),
        "cut": lambda t: ra.where(t > 0, t, t**2),
    }
    u, v = (sympy.Rational(rational(rng, "1 2 1/2")) for _ in range(2))
    if rng.random() < 0.5:
        name = rng.choice(sorted(kinked))
        return name, kinked[name](u * world.x - v * rng.choice((world.contexts[0], world.contexts[6])).expr)
    name = rng.choice(sorted(smooth))
    return name, smooth[name](u * world.x - v * rng.choice(world.at_x).expr)


def _inseparable_with(rng: Random, world: World) -> tuple[str, Any]:
    """Bodies that mix x and D otherwise than through a difference."""
    mu, M, P = (world.contexts[i].expr for i in (0, 1, 4))
    choices: list[tuple[str, Any]] = [
        ("e^{xμ}", ra.exp(world.x * mu)),
        ("sin xμ", sympy.sin(world.x * mu)),
        ("p^μ", ra.exp(mu * ra.log(world.p))),
        ("1/(p+P)", 1 / (world.p + P)),
        ("log(p+P)", ra.log(world.p + P)),
        ("1/(1+x²+M²)", 1 / (1 + world.x**2 + M**2)),
        ("|y-xμ|", ra.abs(world.y - world.x * mu)),
        ("relu(x+yμ)", ra.relu(world.x + world.y * mu)),
        ("sqrt(p+P)", ra.sqrt(world.p + P)),
        ("e^{-(x-μ)²}", ra.exp(-((world.x - mu) ** 2))),
    ]
    return rng.choice(choices)


@kind
def inseparable(rng: Random) -> Generated:
    """Σ_j F·G·H + S with F without finite rank, G of the element, H of the context, S separable."""
    world = make_world(rng)
    note, body = rng.choice((_inseparable_of, _inseparable_with))(rng, world)
    if rng.random() < 0.3:
        body, note = body * rng.choice((world.p, 1 + world.y**2)), note + "·G"
    if rng.random() < 0.2:
        body, note = body * world.contexts[4].expr, note + "·H"
    if rng.random() < 0.2:
        body, note = body + (world.x - world.contexts[0].expr) ** 2, note + " + S"
    return Generated(ra.Spec(y=_finish(rng, ra.sum(body, "j"))), "inseparable", note, "refuted")


# --- near misses ------------------------------------------------------------------------------------------------------


def _close(world: World, a: Any) -> list[tuple[str, Any]]:
    x, y, p = world.x, world.y, world.p
    mu, M, nu, lo = (c.expr for c in world.contexts[:4])
    centred = ra.sum(x - mu, "j")
    s = lambda e: ra.sum(e, "j")  # noqa: E731
    return [
        ("Σ|x-max|", s(ra.abs(a * x - a * M))),
        ("Σ|x-max|·y", s(ra.abs(x - M) * y)),
        ("Σrelu(x-μ)-Σrelu(μ-x)", s(ra.relu(x - mu)) - s(ra.relu(mu - x))),
        ("Σrelu(max-x)", s(ra.relu(M - x))),
        ("Σ|y-min|", s(ra.abs(y - lo))),
        ("Σ max(x, max)", s(ra.maximum(x, M))),
        ("Σ min(x, max)", s(ra.minimum(x, M))),
        ("Σ tanh(x-Σ(x-μ))", s(ra.tanh(a * x - centred))),
        ("Σ[x·μ>0]", s(ra.where(a * x * mu > 0, 1, 0))),
        ("Σ[x=max]", s(ra.where(ra.eq(x, M), 1, 0))),
        ("any(x>μ)", ra.where(ra.any(x > mu, "j"), 1, 0)),
        ("max|x-μ|", ra.max(ra.abs(x - mu), "j")),
        ("Σsin²+cos²", s(sympy.sin(x - mu) ** 2 + sympy.cos(x - mu) ** 2)),
        ("Σ√((x-max)²)", s(ra.sqrt((x - M) ** 2))),
        ("Σ where(μ>0, x, y)", s(ra.where(mu > 0, x, y))),
        ("Σ e^{log p + log P}", s(ra.exp(ra.log(p) + nu))),
        ("Σ(e^x-e^μ)(e^x+e^μ)", s((ra.exp(x) - ra.exp(mu)) * (ra.exp(x) + ra.exp(mu)))),
        ("Σ e^{-(x-μ)²+x²+μ²-2xμ}", s(ra.exp(sympy.expand(-((x - mu) ** 2)) + x**2 + mu**2 - 2 * x * mu + x))),
        ("Σ|p·P|", s(ra.abs(p * world.contexts[4].expr * x))),
        ("Σ x[x≤max]", s(ra.where(x <= M, x, 0))),
    ]


def _far(world: World, a: Any) -> list[tuple[str, Any]]:
    x, y = world.x, world.y
    mu, M, nu, lo = (c.expr for c in world.contexts[:4])
    s = lambda e: ra.sum(e, "j")  # noqa: E731
    return [
        ("Σ|x-mean|", s(ra.abs(a * x - a * mu))),
        ("Σrelu(x-μ)+Σrelu(μ-x)", s(ra.relu(x - mu)) + s(ra.relu(mu - x))),
        ("Σ tanh(x-max)", s(ra.tanh(a * x - M))),
        ("Σ[x>μ]", s(ra.where(x > mu, 1, 0))),
        ("Σ|x-yμ|", s(ra.abs(x - a * y * mu))),
        ("Π(x+μ)", ra.prod(x + a * mu, "j")),
        ("Σ e^{-(x-μ)²+x²}", s(ra.exp(-((x - mu) ** 2) + x**2))),
        ("Σ|y-lo/2|", s(ra.abs(y - lo / 2))),
        ("Σ 1/(1+(x-max)²)", s(1 / (1 + (x - M) ** 2))),
        ("Σ max(x, μ)", s(ra.maximum(x, mu))),
        ("Σ|x-μ|^(3/2)", s(ra.sqrt((x - mu) ** 2) ** 3 / (1 + nu**2))),
        ("Σ√(y-lo)", s(ra.sqrt(y - lo))),
        ("Σ where(x>μ, x, y)", s(ra.where(x > mu, x, y))),
        ("Σ[x·y>μ]", s(ra.where(x * y > mu, 1, 0))),
    ]


@kind
def near_miss_derived(rng: Random) -> Generated:
    """Looks as if it did not separate, and does."""
    note, total = rng.choice(_close(make_world(rng), sympy.Rational(rational(rng, "1 2 1/2"))))
    return Generated(ra.Spec(y=_finish(rng, total)), "near_miss_derived", note)


@kind
def near_miss_refuted(rng: Random) -> Generated:
    """Looks as if it separated, and does not."""
    note, total = rng.choice(_far(make_world(rng), sympy.Rational(rational(rng, "1 2 1/2"))))
    return Generated(ra.Spec(y=_finish(rng, total)), "near_miss_refuted", note, "refuted")


__all__ = ["KINDS", "Body", "Context", "Generated", "generate"]
