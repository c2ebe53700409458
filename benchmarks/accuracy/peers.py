"""Published streaming updates, as their authors gave them: the competition in the accuracy table.

Every peer is a triple (lift, merge, finish) on a batch of streams (arrays of shape (draws,)), plus its source. A chunk
is lifted by the published two-pass formula on the chunk and merged. An update that its author gave for a single
element is the merge with a state of one element, which is the same arithmetic (Chan, Golub and LeVeque 1983, eq. 2.1),
except where a separate `step` is given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

State = tuple[Any, ...]


@dataclass(frozen=True)
class Peer:
    """An algorithm. `lift` takes {name: (draws, k)}; `step` (if any) a state and {name: (draws,)}.

    `update`: False for the textbook formulas without any correction, shown beside the published updates.
    """

    name: str
    source: str
    lift: Callable[[dict[str, np.ndarray]], State]
    merge: Callable[[State, State], State] | None
    finish: Callable[[State], dict[str, np.ndarray]]
    step: Callable[[State | None, dict[str, np.ndarray]], State] | None = None
    update: bool = True


# --- variance, skewness, kurtosis -------------------------------------------------------------------------------------


def _moments_lift(a: dict[str, np.ndarray]) -> State:
    x = a["x"]
    mean = x.sum(1) / x.shape[1]
    d = x - mean[:, None]
    return x.shape[1], mean, (d**2).sum(1), (d**3).sum(1), (d**4).sum(1)


def _pebay_merge(a: State, b: State) -> State:
    na, mean_a, m2a, m3a, m4a = a
    nb, mean_b, m2b, m3b, m4b = b
    n, d = na + nb, mean_b - mean_a
    mean = mean_a + d * nb / n
    m2 = m2a + m2b + d**2 * na * nb / n
    m3 = m3a + m3b + d**3 * na * nb * (na - nb) / n**2 + 3 * d * (na * m2b - nb * m2a) / n
    m4 = (
        m4a
        + m4b
        + d**4 * na * nb * (na**2 - na * nb + nb**2) / n**3
        + 6 * d**2 * (na**2 * m2b + nb**2 * m2a) / n**2
        + 4 * d * (na * m3b - nb * m3a) / n
    )
    return n, mean, m2, m3, m4


def _moments_finish(s: State) -> dict[str, np.ndarray]:
    n, _, m2, m3, m4 = s
    v = m2 / n
    return {"variance": v, "skewness": (m3 / n) / (v * np.sqrt(v)), "kurtosis": (m4 / n) / (v * v)}


def _welford_step(s: State | None, a: dict[str, np.ndarray]) -> State:
    x = a["x"]
    if s is None:
        return 1, x, 0 * x
    n, mean, m2 = s[0] + 1, s[1], s[2]
    d = x - mean
    mean = mean + d / n
    return n, mean, m2 + d * (x - mean)


def _variance_lift(a: dict[str, np.ndarray]) -> State:
    return _moments_lift(a)[:3]


def _chan_merge(a: State, b: State) -> State:
    (na, mean_a, m2a), (nb, mean_b, m2b) = a, b
    n, d = na + nb, mean_b - mean_a
    return n, mean_a + d * nb / n, m2a + m2b + d**2 * na * nb / n


def _variance_finish(s: State) -> dict[str, np.ndarray]:
    return {"variance": s[2] / s[0]}


def _youngs_lift(a: dict[str, np.ndarray]) -> State:
    x = a["x"]
    total = x.sum(1)
    return x.shape[1], total, ((x - (total / x.shape[1])[:, None]) ** 2).sum(1)


def _youngs_merge(a: State, b: State) -> State:
    (m, ta, sa), (n, tb, sb) = a, b
    return m + n, ta + tb, sa + sb + m / (n * (m + n)) * (n / m * ta - tb) ** 2


def _sums_lift(a: dict[str, np.ndarray]) -> State:
    return a["x"].shape[1], *((a["x"] ** k).sum(1) for k in (1, 2, 3, 4))


def _add(a: State, b: State) -> State:
    return tuple(p + q for p, q in zip(a, b, strict=True))


def _sums_finish(s: State) -> dict[str, np.ndarray]:
    n, s1, s2, s3, s4 = s
    mean = s1 / n
    v = s2 / n - mean**2
    m3 = s3 / n - 3 * mean * s2 / n + 2 * mean**3
    m4 = s4 / n - 4 * mean * s3 / n + 6 * mean**2 * s2 / n - 3 * mean**4
    return {"variance": v, "skewness": m3 / (v * np.sqrt(np.abs(v))), "kurtosis": m4 / (v * v)}


MOMENTS = (
    Peer("textbook sums", "Σx, Σx², …", _sums_lift, _add, _sums_finish, update=False),
    Peer("Welford", "Welford 1962, Technometrics 4(3)", _variance_lift, _chan_merge, _variance_finish, _welford_step),
    Peer(
        "Youngs-Cramer",
        "Youngs and Cramer 1971; Chan, Golub, LeVeque 1983, eq. 2.1",
        _youngs_lift,
        _youngs_merge,
        _variance_finish,
    ),
    Peer("Chan", "Chan, Golub and LeVeque 1979, Updating formulae", _variance_lift, _chan_merge, _variance_finish),
    Peer("Pébay", "Pébay 2008, SAND2008-6212, eq. 3.1", _moments_lift, _pebay_merge, _moments_finish),
)


# --- norms and shares -------------------------------------------------------------------------------------------------


def _scaled_lift(a: dict[str, np.ndarray]) -> State:
    """scale = max|x| and ssq = Σ(x/scale)², beside the mean and the squared deviations."""
    x = a["x"]
    scale = np.abs(x).max(1)
    return *_variance_lift(a), scale, ((x / scale[:, None]) ** 2).sum(1)


def _scaled_merge(a: State, b: State) -> State:
    scale = np.maximum(a[3], b[3])
    return *_chan_merge(a[:3], b[:3]), scale, a[4] * (a[3] / scale) ** 2 + b[4] * (b[3] / scale) ** 2


def _scaled_finish(s: State) -> dict[str, np.ndarray]:
    n, mean, m2, scale, ssq = s
    return {
        "2-norm": scale * np.sqrt(ssq),
        "Herfindahl index": ssq * (scale / mean / n) ** 2,
        "coefficient of variation": np.sqrt(m2 / n) / mean,
    }


def _squares_finish(s: State) -> dict[str, np.ndarray]:
    n, s1, s2 = s[:3]
    return {
        "2-norm": np.sqrt(s2),
        "Herfindahl index": s2 / s1**2,
        "coefficient of variation": np.sqrt(s2 / n - (s1 / n) ** 2) / (s1 / n),
    }


SHARES = (
    Peer(
        "scaled sum of squares",
        "Hammarling 1988, LAPACK dlassq; Chan, Golub and LeVeque 1983 for the deviations",
        _scaled_lift,
        _scaled_merge,
        _scaled_finish,
    ),
    Peer("textbook sums", "without any correction", _sums_lift, _add, _squares_finish, update=False),
)


# --- covariance and regression ----------------------------------------------------------------------------------------


def _pairs_lift(a: dict[str, np.ndarray]) -> State:
    x, y = a["x"], a["y"]
    n = x.shape[1]
    mx, my = x.sum(1) / n, y.sum(1) / n
    dx, dy = x - mx[:, None], y - my[:, None]
    return n, mx, my, (dx * dx).sum(1), (dx * dy).sum(1), (dy * dy).sum(1)


def _pairs_merge(a: State, b: State) -> State:
    na, mxa, mya, xxa, xya, yya = a
    nb, mxb, myb, xxb, xyb, yyb = b
    n, dx, dy = na + nb, mxb - mxa, myb - mya
    w = na * nb / n
    products = (xxa + xxb + dx * dx * w, xya + xyb + dx * dy * w, yya + yyb + dy * dy * w)
    return n, mxa + dx * nb / n, mya + dy * nb / n, *products


def _pairs_step(s: State | None, a: dict[str, np.ndarray]) -> State:
    x, y = a["x"], a["y"]
    if s is None:
        return 1, x, y, 0 * x, 0 * x, 0 * x
    n, mx, my, xx, xy, yy = s
    n, dx, dy = n + 1, x - mx, y - my
    mx, my = mx + dx / n, my + dy / n
    return n, mx, my, xx + dx * (x - mx), xy + dx * (y - my), yy + dy * (y - my)


def _pairs_finish(s: State) -> dict[str, np.ndarray]:
    n, mx, my, xx, xy, yy = s
    slope = xy / xx
    return {"covariance": xy / n, "slope": slope, "intercept": my - slope * mx, "rss": yy - xy * slope}


def _givens_step(s: State | None, a: dict[str, np.ndarray]) -> State:
    """Rotate the row (1, x | y) into the triangle [d0 r01 t0; d1 t1] (no square roots); d, r, t as in AS 75."""
    x, y = a["x"], a["y"]
    zero = 0 * x
    if s is None:
        s = (0, zero, zero, zero, zero, zero, zero)
    n, d0, r01, t0, d1, t1, rss = s
    weight, row, response = zero + 1.0, [zero + 1.0, x], y
    new = d0 + weight
    s_bar, weight = weight / new, weight * d0 / new
    row[1], r01 = row[1] - r01, r01 + s_bar * (row[1] - r01)
    response, t0 = response - t0, t0 + s_bar * (response - t0)
    new_d1 = d1 + weight * row[1] ** 2
    safe = np.where(new_d1 == 0, 1, new_d1)
    s_bar, weight_next = weight * row[1] / safe, np.where(new_d1 == 0, weight, d1 * weight / safe)
    residual = response - row[1] * t1
    t1 = np.where(new_d1 == 0, t1, t1 + s_bar * residual)
    return n + 1, new, r01, t0, new_d1, t1, rss + weight_next * residual**2


def _givens_finish(s: State) -> dict[str, np.ndarray]:
    _, _, r01, t0, _, t1, rss = s
    return {"slope": t1, "intercept": t0 - r01 * t1, "rss": rss}


def _pair_sums_lift(a: dict[str, np.ndarray]) -> State:
    x, y = a["x"], a["y"]
    return x.shape[1], x.sum(1), y.sum(1), (x * x).sum(1), (x * y).sum(1), (y * y).sum(1)


def _pair_sums_finish(s: State) -> dict[str, np.ndarray]:
    n, sx, sy, xx, xy, yy = s
    return _pairs_finish((n, sx / n, sy / n, xx - sx * sx / n, xy - sx * sy / n, yy - sy * sy / n))


PAIRS = (
    Peer("textbook sums", "Σx, Σy, Σx², Σxy, Σy²", _pair_sums_lift, _add, _pair_sums_finish, update=False),
    Peer(
        "Welford",
        "Welford 1962, eq. for corrected cross products",
        _pairs_lift,
        _pairs_merge,
        _pairs_finish,
        _pairs_step,
    ),
    Peer("Chan / Pébay", "Pébay 2008, SAND2008-6212, eq. 2.8 and 3.12", _pairs_lift, _pairs_merge, _pairs_finish),
    Peer(
        "Gentleman",
        "Gentleman 1974, AS 75, Givens rotations without square roots",
        _pairs_lift,
        None,
        _givens_finish,
        _givens_step,
    ),
)


# --- softmax statistics -----------------------------------------------------------------------------------------------


def _online_lift(a: dict[str, np.ndarray]) -> State:
    x = a["x"]
    m = x.max(1)
    p = np.exp(x - m[:, None])
    return m, p.sum(1), (p * a["v"]).sum(1) if "v" in a else 0.0


def _online_merge(a: State, b: State) -> State:
    (ma, la, oa), (mb, lb, ob) = a, b
    m = np.maximum(ma, mb)
    ca, cb = np.exp(ma - m), np.exp(mb - m)
    return m, la * ca + lb * cb, oa * ca + ob * cb


def _online_finish(s: State) -> dict[str, np.ndarray]:
    top, mass, weighted = s
    return {"logsumexp": top + np.log(mass), "attention": weighted / mass}


def _log_merge(a: State, b: State) -> State:
    return (np.logaddexp(a[0], b[0]),)


SOFTMAX = (
    Peer(
        "naive exponentials",
        "log Σ e^x",
        lambda a: (np.exp(a["x"]).sum(1), (np.exp(a["x"]) * a.get("v", 0)).sum(1)),
        _add,
        lambda s: {"logsumexp": np.log(s[0]), "attention": s[1] / s[0]},
        update=False,
    ),
    Peer(
        "Milakov-Gimelshein",
        "Milakov and Gimelshein 2018, arXiv:1805.02867, alg. 3; Rabe and Staats 2021",
        _online_lift,
        _online_merge,
        _online_finish,
    ),
    Peer(
        "logaddexp",
        "numpy.logaddexp, pairwise",
        lambda a: (np.logaddexp.reduce(a["x"], axis=1),),
        _log_merge,
        lambda s: {"logsumexp": s[0]},
    ),
)
