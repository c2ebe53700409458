"""Operators as somebody who trains models writes them: a spec (text or Python) beside plain PyTorch.

Each row: the spec, the tensors it takes (`drawn` from a generator, float64, labels and masks as they are), and the
same in PyTorch's own functions, of the tensors in the spec's order; a tuple where there are several outputs.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import redalg as ra

torch: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") else None


@dataclass(frozen=True)
class Operator:
    """One row of the table; `axis` is the one that is streamed, `assume` what the derivative assumes."""

    written: str | Callable[[], Any]
    drawn: Callable[[Any], list[Any]]
    plain: Callable[..., Any]
    axis: Any = None
    assume: tuple[str, ...] = ()

    @property
    def spec(self) -> Any:
        return ra.parse(self.written) if isinstance(self.written, str) else self.written()


def normal(g: Any, *shape: int, scale: float = 1.0) -> Any:
    return torch.randn(shape, generator=g, dtype=torch.float64) * scale


def positive(g: Any, *shape: int) -> Any:
    return torch.rand(shape, generator=g, dtype=torch.float64) + 0.3


def weights(g: Any, *shape: int) -> Any:
    return torch.softmax(normal(g, *shape), -1)


def labels(g: Any, n: int, *shape: int) -> Any:
    return torch.randint(0, n, shape, generator=g)


def some(g: Any, *shape: int) -> Any:
    """A mask that leaves the first element of every row."""
    found = torch.rand(shape, generator=g) > 0.4
    found[..., 0] = True
    return found


# --- norms -----------------------------------------------------------------------------------------------------------


def group_norm_spec() -> Any:
    x, w, b = ra.tensors("x[n,g,c,p] w[g,c] b[g,c]")
    u = ra.mean(x, ["c", "p"])
    v = ra.var(x, ["c", "p"])
    return ra.Spec(y=(x - u) / ra.sqrt(v + 1e-3) * w + b, tensors=(x, w, b))


def group_norm(x: Any, w: Any, b: Any) -> Any:
    n, g, c, p = x.shape
    flat = torch.nn.functional.group_norm(x.reshape(n, g * c, p), g, w.reshape(-1), b.reshape(-1), 1e-3)
    return flat.reshape(x.shape)


def masked_layer_norm(x: Any, ok: Any, w: Any, b: Any) -> Any:
    n = ok.sum(1, keepdim=True)
    u = torch.where(ok, x, 0).sum(1, keepdim=True) / n
    v = torch.where(ok, (x - u) ** 2, 0).sum(1, keepdim=True) / n
    return torch.where(ok, (x - u) / (v + 1e-3).sqrt() * w + b, 0)


def weighted_standardised(x: Any, w: Any) -> Any:
    """Over two axes, by weights."""
    total = w.sum((1, 2), keepdim=True)
    u = (w * x).sum((1, 2), keepdim=True) / total
    v = (w * (x - u) ** 2).sum((1, 2), keepdim=True) / total
    return (x - u) * (v + 0.01).rsqrt()


NORMS = {
    "group_norm": Operator(
        group_norm_spec, lambda g: [normal(g, 2, 2, 3, 4), normal(g, 2, 3), normal(g, 2, 3)], group_norm
    ),
    "masked_layer_norm": Operator(
        """
        tensors x[i,j], ok[i,j] bool, w[j], b[j];
        n = sum[j](where(ok[i,j], 1, 0));
        u = sum[j](where(ok[i,j], x[i,j], 0))/n;
        v = sum[j](where(ok[i,j], (x[i,j] - u)**2, 0))/n;
        return y = where(ok[i,j], (x[i,j] - u)/sqrt(v + 1/1000)*w[j] + b[j], 0)
        """,
        lambda g: [normal(g, 3, 5), some(g, 3, 5), normal(g, 5), normal(g, 5)],
        masked_layer_norm,
    ),
    "layer_norm_channels_first": Operator(
        """
        tensors x[n,c,h,w], g[c], b[c];
        u = mean[c](x[n,c,h,w]); v = var[c](x[n,c,h,w]);
        return y = g[c]*(x[n,c,h,w] - u)/sqrt(v + 1/1000) + b[c]
        """,
        lambda g: [normal(g, 2, 3, 2, 2), normal(g, 3), normal(g, 3)],
        lambda x, g, b: torch.nn.functional.layer_norm(x.movedim(1, -1), (x.shape[1],), g, b, 1e-3).movedim(-1, 1),
    ),
    "weighted_standardised": Operator(
        """
        s = sum[h,w](a[n,h,w]);
        u = sum[h,w](a[n,h,w]*x[n,h,w])/s;
        v = sum[h,w](a[n,h,w]*(x[n,h,w] - u)**2)/s;
        order y = n, h, w;
        return y = (x[n,h,w] - u)/sqrt(v + 1/100)
        """,
        lambda g: [positive(g, 2, 3, 2), normal(g, 2, 3, 2)],
        lambda a, x: weighted_standardised(x, a),
    ),
    "rms_norm": Operator(
        "tensors x[i,j], w[j], eps; return y = w[j]*x[i,j]/sqrt(mean[j](x[i,j]**2) + eps)",
        lambda g: [normal(g, 3, 4), normal(g, 4), torch.tensor(1e-2, dtype=torch.float64)],
        lambda x, w, eps: x * (x.square().mean(1, keepdim=True) + eps).rsqrt() * w,
    ),
    "batch_norm_with_statistics": Operator(
        """
        u = mean[n,p](x[n,c,p]); v = var[n,p](x[n,c,p]);
        return y = (x[n,c,p] - u)/sqrt(v + 1/100)*w[c], mean = u, unbiased = v*size[n]*size[p]/(size[n]*size[p] - 1)
        """,
        lambda g: [normal(g, 3, 2, 4), normal(g, 2)],
        lambda x, w: (
            (x - x.mean((0, 2), keepdim=True))
            / (x.var((0, 2), unbiased=False, keepdim=True) + 0.01).sqrt()
            * w[:, None],
            x.mean((0, 2)),
            x.var((0, 2)),
        ),
    ),
}

# --- losses ----------------------------------------------------------------------------------------------------------


def pairwise(a: Any, b: Any) -> Any:
    return torch.nn.functional.normalize(a, dim=1) @ torch.nn.functional.normalize(b, dim=1).T


def info_nce_spec() -> Any:
    a, b, t = ra.tensors("a[i,d] b[j,d] t")
    s = ra.sum(a * b, "d") * ra.exp(t)
    own = ra.sum(ra.where(ra.eq(ra.index("j"), ra.index("i")), s, 0), "j")
    return ra.Spec(loss=ra.mean(ra.logsumexp(s, "j") - own, "i"), tensors=(a, b, t))


def focal(x: Any, y: Any) -> Any:
    p = torch.sigmoid(x)
    at = torch.where(y, p, 1 - p)
    return -(torch.where(y, 0.25, 0.75) * (1 - at) ** 2 * at.log()).mean()


def js(p: Any, q: Any) -> Any:
    m = (p + q) / 2
    return ((p * (p / m).log()).sum(1) + (q * (q / m).log()).sum(1)) / 2


def weighted_cross_entropy(x: Any, t: Any, w: Any) -> Any:
    ok, at = t >= 0, t.clamp(min=0)
    each = -x.log_softmax(1).gather(1, at[:, None])[:, 0]
    return torch.where(ok, w[at] * each, 0).sum() / torch.where(ok, w[at], 0).sum()


def ordinal(x: Any, cuts: Any, y: Any) -> Any:
    """Proportional odds: -log(σ(cut[y] - x) - σ(cut[y-1] - x))."""
    k = torch.arange(cuts.shape[0])
    above = torch.where(k == y[:, None], torch.sigmoid(cuts - x[:, None]), 0).sum(1)
    above = torch.where(y == cuts.shape[0], 1.0, above)
    below = torch.where(k == y[:, None] - 1, torch.sigmoid(cuts - x[:, None]), 0).sum(1)
    return -(above - below).log().mean()


LOSSES = {
    "focal": Operator(
        """
        tensors x[i], y[i] bool;
        p = sigmoid(x[i]); at = where(y[i], p, 1 - p);
        return loss = -mean[i](where(y[i], 1/4, 3/4)*(1 - at)**2*log(at))
        """,
        lambda g: [normal(g, 7), some(g, 7)],
        focal,
    ),
    "dice": Operator(
        """
        q = sigmoid(x[n,p]);
        return loss = 1 - mean[n]((2*sum[p](q*y[n,p]) + 1)/(sum[p](q) + sum[p](y[n,p]) + 1))
        """,
        lambda g: [normal(g, 2, 6), positive(g, 2, 6)],
        lambda x, y: 1 - ((2 * (x.sigmoid() * y).sum(1) + 1) / (x.sigmoid().sum(1) + y.sum(1) + 1)).mean(),
    ),
    "huber": Operator(
        """
        tensors x[i], y[i], delta positive;
        r = abs(x[i] - y[i]);
        return loss = mean[i](where(r < delta, r**2/2, delta*(r - delta/2)))
        """,
        lambda g: [normal(g, 9), normal(g, 9), torch.tensor(0.7, dtype=torch.float64)],
        lambda x, y, d: torch.where((x - y).abs() < d, (x - y) ** 2 / 2, d * ((x - y).abs() - d / 2)).mean(),
    ),
    "quantile": Operator(
        """
        tensors x[i], y[i], tau[q];
        r = y[i] - x[i];
        return loss = mean[i](maximum(tau[q]*r, (tau[q] - 1)*r))
        """,
        lambda g: [normal(g, 7), normal(g, 7), torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)],
        lambda x, y, tau: torch.maximum(tau[:, None] * (y - x), (tau[:, None] - 1) * (y - x)).mean(1),
    ),
    "info_nce": Operator(
        info_nce_spec,
        lambda g: [normal(g, 4, 3), normal(g, 4, 3), torch.tensor(0.3, dtype=torch.float64)],
        lambda a, b, t: torch.nn.functional.cross_entropy(a @ b.T * t.exp(), torch.arange(4)),
    ),
    "clip_both_ways": Operator(
        """
        tensors a[i,d], b[j,d], t;
        na = sqrt(sum[d](a[i,d]**2)); nb = sqrt(sum[d](b[j,d]**2));
        s = exp(t)*sum[d](a[i,d]*b[j,d])/(na*nb);
        hit = sum[i](sum[j](where(index[i] == index[j], s, 0)));
        return loss = (sum[i](logsumexp[j](s)) + sum[j](logsumexp[i](s)) - 2*hit)/(2*size[i])
        """,
        lambda g: [normal(g, 4, 3), normal(g, 4, 3), torch.tensor(0.5, dtype=torch.float64)],
        lambda a, b, t: (
            (
                torch.nn.functional.cross_entropy(pairwise(a, b) * t.exp(), torch.arange(4))
                + torch.nn.functional.cross_entropy(pairwise(a, b).T * t.exp(), torch.arange(4))
            )
            / 2
        ),
        axis="j",
    ),
    "triplet": Operator(
        """
        tensors a[i,d], p[i,d], n[i,d], margin;
        near = sqrt(sum[d]((a[i,d] - p[i,d])**2)); far = sqrt(sum[d]((a[i,d] - n[i,d])**2));
        return loss = mean[i](relu(near - far + margin))
        """,
        lambda g: [normal(g, 5, 3), normal(g, 5, 3), normal(g, 5, 3), torch.tensor(1.0, dtype=torch.float64)],
        lambda a, p, n, m: ((a - p).norm(dim=1) - (a - n).norm(dim=1) + m).relu().mean(),
    ),
    "kl_of_logits": Operator(
        """
        p = log_softmax[j](x[i,j]); q = log_softmax[j](y[i,j]);
        return loss = mean[i](sum[j](exp(p)*(p - q)))
        """,
        lambda g: [normal(g, 3, 5), normal(g, 3, 5)],
        lambda x, y: torch.nn.functional.kl_div(y.log_softmax(1), x.softmax(1), reduction="batchmean"),
    ),
    "jensen_shannon": Operator(
        """
        tensors p[i,j] positive, q[i,j] positive;
        m = (p[i,j] + q[i,j])/2;
        return d = (sum[j](p[i,j]*log(p[i,j]/m)) + sum[j](q[i,j]*log(q[i,j]/m)))/2
        """,
        lambda g: [weights(g, 3, 4), weights(g, 3, 4)],
        js,
    ),
    "smoothed_cross_entropy_with_z_loss": Operator(
        """
        tensors x[i,c], t[i] integer, smoothing, z;
        l = logsumexp[c](x[i,c]);
        hit = sum[c](where(index[c] == t[i], x[i,c], 0));
        nll = l - hit;
        return loss = mean[i]((1 - smoothing)*nll + smoothing*(l - mean[c](x[i,c])) + z*l**2)
        """,
        lambda g: [
            normal(g, 4, 6),
            labels(g, 6, 4),
            torch.tensor(0.1, dtype=torch.float64),
            torch.tensor(1e-2, dtype=torch.float64),
        ],
        lambda x, t, s, z: (
            (1 - s) * torch.nn.functional.cross_entropy(x, t)
            + s * (x.logsumexp(1) - x.mean(1)).mean()
            + z * x.logsumexp(1).square().mean()
        ),
    ),
    "weighted_cross_entropy_ignoring": Operator(
        """
        tensors x[i,c], t[i] integer, w[c];
        l = logsumexp[c](x[i,c]);
        ok = t[i] >= 0;
        own = sum[c](where(index[c] == t[i], w[c], 0));
        hit = sum[c](where(index[c] == t[i], x[i,c], 0));
        return loss = sum[i](where(ok, own*(l - hit), 0))/sum[i](where(ok, own, 0))
        """,
        lambda g: [normal(g, 5, 4), torch.tensor([0, 3, -100, 1, 2]), positive(g, 4)],
        weighted_cross_entropy,
    ),
    "supervised_contrastive": Operator(
        """
        tensors x[i,d], y[j,d], a[i] integer, b[j] integer, t positive;
        s = where(index[j] == index[i], -oo, sum[d](x[i,d]*y[j,d])/t);
        l = logsumexp[j](s);
        same = where(index[j] == index[i], 0, where(a[i] == b[j], 1, 0));
        return loss = mean[i](sum[j](where(same > 0, l - s, 0))/(sum[j](same) + 1))
        """,
        lambda g: [
            normal(g, 5, 3),
            normal(g, 5, 3),
            torch.tensor([0, 1, 0, 1, 2]),
            torch.tensor([0, 1, 0, 1, 2]),
            torch.tensor(0.5, dtype=torch.float64),
        ],
        lambda x, y, a, b, t: supervised(x, y, a, b, t),
    ),
    "pairwise_ranking": Operator(
        """
        tensors s[i], t[j], r[i], q[j];
        return loss = sum[i](mean[j](where(r[i] > q[j], log1p(exp(-(s[i] - t[j]))), 0)))
        """,
        lambda g: [(x := normal(g, 5)), x.clone(), (r := labels(g, 3, 5).double()), r.clone()],
        lambda s, t, r, q: torch.where(r[:, None] > q, torch.nn.functional.softplus(t - s[:, None]), 0).mean(1).sum(),
    ),
    "list_net": Operator(
        "return loss = -sum[j](softmax[j](y[i,j])*log_softmax[j](x[i,j]))",
        lambda g: [normal(g, 3, 4), normal(g, 3, 4)],
        lambda y, x: -(y.softmax(1) * x.log_softmax(1)).sum(1),
    ),
    "ordinal": Operator(
        """
        tensors x[i], cut[k], y[i] integer;
        above = where(y[i] == size[k], 1, sum[k](where(index[k] == y[i], sigmoid(cut[k] - x[i]), 0)));
        below = sum[k](where(index[k] == y[i] - 1, sigmoid(cut[k] - x[i]), 0));
        return loss = -mean[i](log(above - below))
        """,
        lambda g: [normal(g, 5), torch.tensor([-1.0, 0.3, 1.2], dtype=torch.float64), labels(g, 4, 5)],
        ordinal,
    ),
    "gaussian_nll": Operator(
        "return loss = mean[i]((log(exp(s[i])) + (x[i] - u[i])**2*exp(-s[i]))/2)",
        lambda g: [normal(g, 6), normal(g, 6), normal(g, 6)],
        lambda s, x, u: ((s + (x - u) ** 2 * (-s).exp()) / 2).mean(),
    ),
    "bce_with_logits": Operator(
        """
        tensors x[n,c], y[n,c], w[c] positive;
        soft = maximum(x[n,c], 0) - x[n,c]*y[n,c] + log1p(exp(-abs(x[n,c])));
        return loss = mean[n](mean[c](soft*w[c]))
        """,
        lambda g: [normal(g, 3, 4), torch.rand((3, 4), generator=g, dtype=torch.float64), positive(g, 4)],
        lambda x, y, w: (w * torch.nn.functional.binary_cross_entropy_with_logits(x, y, reduction="none")).mean(),
    ),
}


def supervised(x: Any, y: Any, a: Any, b: Any, t: Any) -> Any:
    eye = torch.eye(len(a), dtype=torch.bool)
    s = (x @ y.T / t).masked_fill(eye, -torch.inf)
    same = (a[:, None] == b) & ~eye
    each = torch.where(same, s.logsumexp(1, keepdim=True) - s, 0).sum(1)
    return (each / (same.sum(1) + 1)).mean()


# --- attention -------------------------------------------------------------------------------------------------------


def attended(s: Any, v: Any) -> Any:
    return torch.softmax(s, -1) @ v


def windowed(q: Any, k: Any, v: Any, sink: Any) -> Any:
    at = torch.arange(q.shape[1])
    seen = (at[None] <= at[:, None]) & (at[:, None] - at[None] < 3)
    s = (q @ k.mT).masked_fill(~seen, -torch.inf)
    s = torch.cat([s, sink[:, None, None].expand(-1, s.shape[1], 1)], -1)
    return torch.softmax(s, -1)[..., :-1] @ v


def alibi_spec() -> Any:
    q, k, v, slope = ra.tensors("q[h,i,d] k[h,j,d] v[h,j,e] slope[h]")
    s = ra.sum(q * k, "d") - slope * ra.abs(ra.index("i") - ra.index("j"))
    p = ra.softmax(s, "j")
    return ra.Spec(o=ra.sum(p * v, "j"), tensors=(q, k, v, slope))


def alibi(q: Any, k: Any, v: Any, slope: Any) -> Any:
    i, j = torch.arange(q.shape[1])[:, None], torch.arange(k.shape[1])
    return attended(q @ k.mT - slope[:, None, None] * (i - j).abs(), v)


def linear(q: Any, k: Any, v: Any) -> Any:
    a, b = torch.nn.functional.elu(q) + 1, torch.nn.functional.elu(k) + 1
    w = a @ b.mT
    return w @ v / w.sum(-1, keepdim=True)


ATTENTION = {
    "alibi": Operator(
        alibi_spec, lambda g: [normal(g, 2, 3, 2), normal(g, 2, 4, 2), normal(g, 2, 4, 3), positive(g, 2)], alibi
    ),
    "soft_cap": Operator(
        """
        tensors q[i,d], k[j,d], v[j,e], cap positive;
        s = cap*tanh(sum[d](q[i,d]*k[j,d])/cap);
        return o = sum[j](softmax[j](s)*v[j,e])
        """,
        lambda g: [normal(g, 3, 2), normal(g, 4, 2), normal(g, 4, 3), torch.tensor(2.0, dtype=torch.float64)],
        lambda q, k, v, cap: attended(cap * torch.tanh(q @ k.T / cap), v),
    ),
    "window_with_sink": Operator(
        """
        tensors q[h,i,d], k[h,j,d], v[h,j,e], sink[h];
        s = where(index[j] <= index[i], where(index[i] - index[j] < 3, sum[d](q[h,i,d]*k[h,j,d]), -oo), -oo);
        m = maximum(max[j](s), sink[h]);
        p = exp(s - m);
        return o = sum[j](p*v[h,j,e])/(sum[j](p) + exp(sink[h] - m))
        """,
        lambda g: [normal(g, 2, 5, 2), normal(g, 2, 5, 2), normal(g, 2, 5, 3), normal(g, 2)],
        windowed,
    ),
    "bool_mask": Operator(
        """
        tensors q[i,d], k[j,d], v[j,e], ok[i,j] bool;
        s = where(ok[i,j], sum[d](q[i,d]*k[j,d]), -oo);
        return o = sum[j](softmax[j](s)*v[j,e])
        """,
        lambda g: [normal(g, 3, 2), normal(g, 4, 2), normal(g, 4, 3), some(g, 3, 4)],
        lambda q, k, v, ok: attended((q @ k.T).masked_fill(~ok, -torch.inf), v),
    ),
    "additive_mask_and_scale": Operator(
        """
        tensors q[i,d], k[j,d], v[j,e], bias[i,j], scale;
        s = scale*sum[d](q[i,d]*k[j,d]) + bias[i,j];
        m = max[j](s); p = exp(s - m);
        return o = sum[j](p*v[j,e])/sum[j](p), lse = m + log(sum[j](p))
        """,
        lambda g: [
            normal(g, 3, 2),
            normal(g, 4, 2),
            normal(g, 4, 3),
            normal(g, 3, 4),
            torch.tensor(0.7, dtype=torch.float64),
        ],
        lambda q, k, v, b, c: (attended(q @ k.T * c + b, v), (q @ k.T * c + b).logsumexp(1)),
    ),
    "grouped_queries": Operator(
        """
        tensors q[b,k,g,i,d], key[b,k,j,d], v[b,k,j,e];
        s = sum[d](q[b,k,g,i,d]*key[b,k,j,d])/sqrt(size[d]);
        return o = sum[j](softmax[j](s)*v[b,k,j,e])
        """,
        lambda g: [normal(g, 2, 2, 2, 3, 2), normal(g, 2, 2, 4, 2), normal(g, 2, 2, 4, 3)],
        lambda q, k, v: attended(q @ k[:, :, None].mT / q.shape[-1] ** 0.5, v[:, :, None]),
    ),
    "linear_attention": Operator(
        """
        tensors q[h,i,d], k[h,j,d], v[h,j,e];
        a = where(q[h,i,d] > 0, q[h,i,d] + 1, exp(q[h,i,d]));
        b = where(k[h,j,d] > 0, k[h,j,d] + 1, exp(k[h,j,d]));
        w = sum[d](a*b);
        return o = sum[j](w*v[h,j,e])/sum[j](w)
        """,
        lambda g: [normal(g, 2, 3, 2), normal(g, 2, 4, 2), normal(g, 2, 4, 3)],
        linear,
    ),
    "cosine_attention": Operator(
        """
        tensors q[i,d], k[j,d], v[j,e], t;
        nq = sqrt(sum[d](q[i,d]**2)); nk = sqrt(sum[d](k[j,d]**2));
        s = exp(t)*sum[d](q[i,d]*k[j,d])/(nq*nk);
        return o = sum[j](softmax[j](s)*v[j,e])
        """,
        lambda g: [normal(g, 3, 2), normal(g, 4, 2), normal(g, 4, 3), torch.tensor(0.4, dtype=torch.float64)],
        lambda q, k, v, t: attended(t.exp() * pairwise(q, k), v),
    ),
}

# --- pooling, gates, quantisation ------------------------------------------------------------------------------------


def gates(x: Any) -> Any:
    p = x.softmax(1)
    first = torch.nn.functional.one_hot(x.argmax(1), x.shape[1]).to(x.dtype)
    return x.shape[1] * (first.mean(0) * p.mean(0)).sum(), x.logsumexp(1).square().mean()


def top_two(x: Any) -> Any:
    found = x.topk(2, 1)
    return found.values.softmax(1), found.indices


def fake_quantised(x: Any, s: Any) -> Any:
    """Learned step size with a straight-through rounding."""
    scaled = torch.clamp(x / s, -8, 7)
    return (scaled + (scaled.round() - scaled).detach()) * s


POOLING = {
    "softmax_pooling": Operator(
        """
        tensors x[b,t,d], w[d], v[b,t,e], ok[b,t] bool;
        s = where(ok[b,t], sum[d](x[b,t,d]*w[d]), -oo);
        m = max[t](s); p = exp(s - m);
        return y = sum[t](p*v[b,t,e])/sum[t](p)
        """,
        lambda g: [normal(g, 2, 4, 3), normal(g, 3), normal(g, 2, 4, 2), some(g, 2, 4)],
        lambda x, w, v, ok: ((x @ w).masked_fill(~ok, -torch.inf).softmax(1)[:, None] @ v)[:, 0],
    ),
    "gem": Operator(
        "tensors x[n,c,s] positive, p positive; return y = mean[s](x[n,c,s]**p)**(1/p)",
        lambda g: [positive(g, 2, 3, 4), torch.tensor(2.5, dtype=torch.float64)],
        lambda x, p: (x**p).mean(-1) ** (1 / p),
    ),
    "logsumexp_pooling": Operator(
        "tensors x[n,s], r positive; return y = logsumexp[s](r*x[n,s])/r - log(size[s])/r",
        lambda g: [normal(g, 3, 5), torch.tensor(1.5, dtype=torch.float64)],
        lambda x, r: (x * r).logsumexp(1) / r - torch.log(torch.tensor(x.shape[1] * 1.0, dtype=x.dtype)) / r,
    ),
    "top_k_mean": Operator(
        "t = topk[s:3:k](x[n,s]).values; return y = mean[k](t)",
        lambda g: [normal(g, 3, 6)],
        lambda x: x.topk(3, 1).values.mean(1),
    ),
    "top_two_gates": Operator(
        """
        t = topk[e:2:k](x[n,e]).values; m = max[k](t); p = exp(t - m);
        return gate = p/sum[k](p), expert = topk[e:2:k](x[n,e]).indices
        """,
        lambda g: [normal(g, 3, 5)],
        top_two,
    ),
    "balanced_gates": Operator(
        """
        m = max[e](x[n,e]); q = exp(x[n,e] - m); t = sum[e](q); first = argmax[e](x[n,e]);
        f = mean[n](where(index[e] == first, 1, 0));
        return balance = size[e]*sum[e](f*mean[n](q/t)), z = mean[n]((m + log(t))**2)
        """,
        lambda g: [normal(g, 4, 3)],
        gates,
        axis="n",
    ),
    "attention_statistics": Operator(
        """
        p = softmax[t](s[b,t]); u = sum[t](p*x[b,t,d]);
        return mean = u, std = sqrt(sum[t](p*(x[b,t,d] - u)**2) + 1/1000)
        """,
        lambda g: [normal(g, 2, 4), normal(g, 2, 4, 3)],
        lambda s, x: statistics(s, x),
    ),
    "fake_quantised": Operator(
        "tensors x[i,j], s positive; return y = cast(clip(x[i,j]/s, -8, 7), int8)*s",
        lambda g: [normal(g, 3, 4), torch.tensor(0.3, dtype=torch.float64)],
        fake_quantised,
        assume=("straight_through",),
    ),
}


def statistics(s: Any, x: Any) -> Any:
    p = s.softmax(1)[..., None]
    u = (p * x).sum(1, keepdim=True)
    return u[:, 0], ((p * (x - u) ** 2).sum(1) + 1e-3).sqrt()


# --- statistics ------------------------------------------------------------------------------------------------------


def ccc(x: Any, y: Any) -> Any:
    a, b = x - x.mean(1, keepdim=True), y - y.mean(1, keepdim=True)
    return 2 * (a * b).mean(1) / (a.square().mean(1) + b.square().mean(1) + (x.mean(1) - y.mean(1)) ** 2)


def barlow(x: Any, y: Any) -> Any:
    def z(a: Any) -> Any:
        return (a - a.mean(0)) / (a.var(0, unbiased=False) + 0.01).sqrt()

    c = z(x).T @ z(y) / len(x)
    off = c - torch.diag(torch.diagonal(c))
    return ((1 - torch.diagonal(c)) ** 2).sum() + 0.005 * off.square().sum()


def vicreg(x: Any, y: Any, a: Any) -> Any:
    u, v = x - x.mean(0), a - a.mean(0)
    c = u.T @ v / (len(x) - 1)
    off = c - torch.diag(torch.diagonal(c))
    std = (u.square().sum(0) / (len(x) - 1) + 1e-3).sqrt()
    return ((x - y) ** 2).mean(), (1 - std).relu().mean(), off.square().sum() / x.shape[1]


STATISTICS = {
    "pearson": Operator(
        """
        a = x[i,j] - mean[j](x[i,j]); b = y[i,j] - mean[j](y[i,j]);
        return r = sum[j](a*b)/sqrt(sum[j](a**2)*sum[j](b**2))
        """,
        lambda g: [normal(g, 3, 5), normal(g, 3, 5)],
        lambda x, y: torch.nn.functional.cosine_similarity(x - x.mean(1, keepdim=True), y - y.mean(1, keepdim=True), 1),
    ),
    "concordance": Operator(
        """
        u = mean[j](x[i,j]); v = mean[j](y[i,j]);
        return c = 2*cov[j](x[i,j], y[i,j])/(var[j](x[i,j]) + var[j](y[i,j]) + (u - v)**2)
        """,
        lambda g: [normal(g, 3, 5), normal(g, 3, 5)],
        ccc,
    ),
    "covariance_loss": Operator(
        """
        tensors x[n,d], y[n,e], w[d,e];
        c = cov[n:1](x[n,d], y[n,e]);
        return loss = sum[d](sum[e](w[d,e]*c**2))
        """,
        lambda g: [normal(g, 5, 3), normal(g, 5, 2), normal(g, 3, 2)],
        lambda x, y, w: (w * ((x - x.mean(0)).T @ (y - y.mean(0)) / (len(x) - 1)) ** 2).sum(),
    ),
    "barlow_twins": Operator(
        """
        u = mean[n](x[n,i]); v = mean[n](y[n,j]);
        a = (x[n,i] - u)/sqrt(var[n](x[n,i]) + 1/100); b = (y[n,j] - v)/sqrt(var[n](y[n,j]) + 1/100);
        c = mean[n](a*b);
        return loss = sum[i,j](where(index[i] == index[j], (1 - c)**2, c**2/200))
        """,
        lambda g: [normal(g, 5, 3), normal(g, 5, 3)],
        barlow,
    ),
    "vicreg": Operator(
        """
        tensors x[n,d], y[n,d], a[n,e];
        c = cov[n:1](x[n,d], a[n,e]);
        s = sqrt(var[n:1](x[n,d]) + 1/1000);
        return invariance = mean[n,d]((x[n,d] - y[n,d])**2),
               variance = mean[d](relu(1 - s)),
               covariance = sum[d](sum[e](where(index[d] == index[e], 0, c**2)))/size[d]
        """,
        lambda g: [(x := normal(g, 6, 3, scale=0.5)), normal(g, 6, 3), x.clone()],
        vicreg,
        axis="n",
    ),
    "decayed_mean": Operator(
        """
        tensors x[n,t,d], rate;
        a = sigmoid(rate); w = exp((size[t] - 1 - index[t])*log(a));
        return y = sum[t](w*x[n,t,d])/sum[t](w)
        """,
        lambda g: [normal(g, 2, 4, 3), torch.tensor(0.3, dtype=torch.float64)],
        lambda x, r: decayed(x, r),
    ),
    "rbf_layer": Operator(
        """
        tensors x[n,d], c[k,d], s[k], w[k,o];
        return y = sum[k](w[k,o]*exp(-exp(s[k])*sum[d]((x[n,d] - c[k,d])**2)))
        """,
        lambda g: [normal(g, 3, 2), normal(g, 4, 2), normal(g, 4), normal(g, 4, 2)],
        lambda x, c, s, w: torch.exp(-s.exp() * (x[:, None] - c).square().sum(-1)) @ w,
    ),
    "hat_splines": Operator(
        """
        tensors x[n,d], w[k,d,o], step positive;
        return y = sum[d](sum[k](w[k,d,o]*relu(1 - abs(x[n,d]/step - index[k] + 2))))
        """,
        lambda g: [normal(g, 3, 2), normal(g, 5, 2, 3), torch.tensor(0.9, dtype=torch.float64)],
        lambda x, w, h: torch.einsum("nkd,kdo->no", hats(x, h, w.shape[0]), w),
    ),
    "rational": Operator(
        """
        tensors x[n], a[k], b[l];
        p = sum[k](a[k]*x[n]**index[k]); q = sum[l](b[l]*x[n]**(index[l] + 1));
        return y = p/(1 + abs(q))
        """,
        lambda g: [normal(g, 5), normal(g, 3), normal(g, 2)],
        lambda x, a, b: (
            (a * x[:, None] ** torch.arange(len(a))).sum(1)
            / (1 + (b * x[:, None] ** (1 + torch.arange(len(b)))).sum(1).abs())
        ),
        axis="k",
    ),
    "maximum_mean_discrepancy": Operator(
        """
        tensors x[i,d], y[j,d], z[k,d], u[l,d], s;
        xy = mean[i,j](exp(-s*sum[d]((x[i,d] - y[j,d])**2)));
        zu = mean[k,l](exp(-s*sum[d]((z[k,d] - u[l,d])**2)));
        return d = xy - zu
        """,
        lambda g: [normal(g, 3, 2), normal(g, 4, 2), normal(g, 3, 2), normal(g, 2, 2), torch.tensor(0.5).double()],
        lambda x, y, z, u, s: between(x, y, s) - between(z, u, s),
        axis=("i", "j"),
    ),
    "moments": Operator(
        """
        u = mean[j](x[i,j]); v = var[j](x[i,j]);
        return mean = u, std = sqrt(v + 1/1000), skew = mean[j]((x[i,j] - u)**3)/(v + 1/1000)**(3/2),
               top = max[j](x[i,j]), at = argmax[j](x[i,j]), many = sum[j](where(x[i,j] > 0, 1, 0))
        """,
        lambda g: [normal(g, 3, 5)],
        lambda x: moments(x),
    ),
}


def decayed(x: Any, r: Any) -> Any:
    t = x.shape[1]
    w = r.sigmoid() ** (t - 1 - torch.arange(t))
    return (w[:, None] * x).sum(1) / w.sum()


def hats(x: Any, h: Any, n: int) -> Any:
    return (1 - (x[:, None] / h - torch.arange(n)[:, None] + 2).abs()).relu()


def between(x: Any, y: Any, s: Any) -> Any:
    return torch.exp(-s * (x[:, None] - y).square().sum(-1)).mean()


def moments(x: Any) -> Any:
    u, v = x.mean(1), x.var(1, unbiased=False) + 1e-3
    skew = ((x - u[:, None]) ** 3).mean(1) / v**1.5
    return u, v.sqrt(), skew, x.amax(1), x.argmax(1), (x > 0).sum(1)


OPERATORS: dict[str, Operator] = NORMS | LOSSES | ATTENTION | POOLING | STATISTICS
