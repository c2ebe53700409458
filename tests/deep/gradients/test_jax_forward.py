"""Forward mode of JAX functions, and its nestings, beside JAX's own derivatives of plain implementations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import redalg as ra

jax: Any = pytest.importorskip("jax")
jnp: Any = jax.numpy


def layer_norm(x: Any, w: Any) -> Any:
    return (x - x.mean(1, keepdims=True)) / jnp.sqrt(x.var(1, keepdims=True) + 0.01) * w


def attention(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.softmax(q @ k.T, -1) @ v


def masked(x: Any, ok: Any) -> Any:
    s = jnp.where(ok, x, -jnp.inf)
    seen = ok.any(1, keepdims=True)
    return jnp.where(seen, jax.nn.softmax(jnp.where(seen, s, 0.0), -1), 0)


def cross_entropy(x: Any, t: Any) -> Any:
    return (jax.nn.logsumexp(x, 1) - jnp.take_along_axis(x, t[:, None], 1)[:, 0]).mean()


def correlation(x: Any, y: Any) -> Any:
    a, b = x - x.mean(1, keepdims=True), y - y.mean(1, keepdims=True)
    return (a * b).sum(1) / jnp.sqrt((a**2).sum(1) * (b**2).sum(1))


SPECS: dict[str, tuple[str, list[Any], Callable[..., Any]]] = {  # text, shapes (or arrays), the same in plain jnp
    "softmax": (
        "m = max[j](x[i,j]); p = exp(x[i,j] - m); return y = p/sum[j](p)",
        [(2, 3)],
        lambda x: jax.nn.softmax(x, 1),
    ),
    "attention": (
        "s = sum[d](q[i,d]*k[j,d]); m = max[j](s); p = exp(s - m); return y = sum[j](p*v[j,e])/sum[j](p)",
        [(2, 2), (3, 2), (3, 2)],
        attention,
    ),
    "layer_norm": (
        "u = mean[j](x[i,j]); v = var[j](x[i,j]); return y = (x[i,j] - u)/sqrt(v + 1/100)*w[j]",
        [(2, 3), (3,)],
        layer_norm,
    ),
    "two outputs": (
        "return a = sum[j](x[i,j]*w[j])**2, b = argmax[j](x[i,j]), c = sum[j](exp(x[i,j]))*t",
        [(2, 3), (3,), ()],
        lambda x, w, t: ((x @ w) ** 2, x.argmax(1), jnp.exp(x).sum(1) * t),
    ),
    "labels": (
        "tensors x[i,c], t[i] integer; l = logsumexp[c](x[i,c]);"
        "return loss = mean[i](l - sum[c](where(index[c] == t[i], x[i,c], 0)))",
        [(3, 4), np.array([3, 0, 2])],
        cross_entropy,
    ),
    "masked": (
        "tensors x[i,j], ok[i,j] bool; s = where(ok[i,j], x[i,j], -oo); m = max[j](s); p = exp(s - m);"
        "empty y = 0; return y = p/sum[j](p)",
        [(3, 3), np.array([[True, False, True], [False, False, False], [True, True, True]])],
        masked,
    ),
    "extrema": (
        "return top = max[j](x[i,j])*min[i](y[i,j]) + topk[j:2:k](y[i,j]).values",
        [(2, 3), (2, 3)],
        lambda x, y: x.max(1)[:, None, None] * y.min(0)[None, :, None] + jax.lax.top_k(y, 2)[0][:, None],
    ),
    "correlation": (
        "a = x[i,j] - mean[j](x[i,j]); b = y[i,j] - mean[j](y[i,j]);"
        "return r = sum[j](a*b)/sqrt(sum[j](a**2)*sum[j](b**2))",
        [(2, 4), (2, 4)],
        correlation,
    ),
    "means": (
        "tensors x[i,j], w[i]; return y = w[i]*mean[j](x[i,j])/size[i], z = w[i]*size[j]",
        [(2, 3), (2,)],
        lambda x, w: (w * x.mean(1) / len(w), w * x.shape[1]),
    ),
    "powers": (
        "tensors x[n,s] positive, p positive; return y = mean[s](x[n,s]**p)**(1/p)",
        [(2, 3), ()],
        lambda x, p: (x**p).mean(1) ** (1 / p),
    ),
}


def arrays_of(name: str) -> list[Any]:
    rng, found = np.random.default_rng(len(name)), []
    for given in SPECS[name][1]:
        drawn = rng.uniform(0.5, 2, given) if isinstance(given, tuple) else given
        found.append(jnp.asarray(drawn))
    return found


def op_of(name: str) -> Any:
    spec = ra.parse(SPECS[name][0])
    return ra.derive_incremental(spec, "j" if name in ("two outputs", "extrema") else None, max_passes=4).jax()


def of_floats(function: Any, arrays: list[Any]) -> tuple[Any, tuple[Any, ...]]:
    """The results that hold reals, as a function of the arrays that do, and these arrays."""
    at = [k for k, a in enumerate(arrays) if jnp.issubdtype(a.dtype, jnp.floating)]

    def made(*some: Any) -> Any:
        given = list(arrays)
        for k, a in zip(at, some, strict=True):
            given[k] = a
        found = function(*given)
        parts = found if isinstance(found, tuple) else (found,)
        return tuple(p for p in parts if jnp.issubdtype(p.dtype, jnp.floating))

    return made, tuple(arrays[k] for k in at)


def wave(like: Any) -> Any:
    return jnp.cos(jnp.arange(like.size, dtype=like.dtype) + 1).reshape(like.shape)


def total(function: Any) -> Any:
    return lambda *given: sum((p * wave(p)).sum() ** 2 for p in function(*given))


def close(found: Any, wanted: Any, what: str) -> int:
    pairs = list(zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True))
    for got, want in pairs:
        assert got.shape == want.shape and got.dtype == want.dtype, what
        np.testing.assert_allclose(got, want, 1e-9, 1e-11, err_msg=what)
    return len(pairs)


def places(given: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(range(len(given)))


def doubled(given: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(jnp.stack([a, a * 1.1]) for a in given)


NESTINGS: dict[str, Callable[[Any, tuple[Any, ...]], Any]] = {
    "jvp": lambda f, x: jax.jvp(f, x, tuple(map(wave, x))),
    "jvp in jit": lambda f, x: jax.jit(lambda *x: jax.jvp(f, x, tuple(map(wave, x))))(*x),
    "jvp of jit": lambda f, x: jax.jvp(jax.jit(f), x, tuple(map(wave, x))),
    "jvp along one": lambda f, x: jax.jvp(lambda a: f(a, *x[1:]), x[:1], (wave(x[0]),)),
    "linearize": lambda f, x: jax.jit(jax.linearize(f, *x)[1])(*map(wave, x)),
    "transpose of linearize": lambda f, x: jax.linear_transpose(jax.linearize(f, *x)[1], *x)(tuple(map(wave, f(*x)))),
    "jacfwd": lambda f, x: jax.jacfwd(f, places(x))(*x),
    "jacrev": lambda f, x: jax.jacrev(f, places(x))(*x),
    "hessian": lambda f, x: jax.hessian(total(f), places(x))(*x),
    "hessian in jit": lambda f, x: jax.jit(jax.hessian(total(f)))(*x),
    "reverse over reverse": lambda f, x: jax.jacrev(jax.grad(total(f)))(*x),
    "forward over forward": lambda f, x: jax.jacfwd(jax.jacfwd(total(f)))(*x),
    "reverse over forward": lambda f, x: jax.grad(lambda *x: jax.jvp(total(f), x, tuple(map(wave, x)))[1])(*x),
    "jvp of vmap": lambda f, x: jax.jvp(jax.vmap(f), doubled(x), tuple(map(wave, doubled(x)))),
    "vmap of jvp": lambda f, x: jax.vmap(lambda *x: jax.jvp(f, x, tuple(map(wave, x))))(*doubled(x)),
    "vmap of grad over one": lambda f, x: jax.vmap(jax.grad(total(f), places(x)), (0, *(None for _ in x[1:])))(
        doubled(x)[0], *x[1:]
    ),
    "checkpoint": lambda f, x: jax.grad(jax.checkpoint(total(f)), places(x))(*x),
    "scan": lambda f, x: jax.grad(
        lambda *x: jax.lax.scan(lambda c, _: (c + total(f)(x[0] + c / 100, *x[1:]), c), x[0].sum() * 0, None, length=2)[
            0
        ]
    )(*x),
}


SOME = ("jvp in jit", "transpose of linearize", "jacfwd", "hessian", "reverse over reverse", "jvp of vmap")


@pytest.mark.parametrize("name", SPECS)
def test_nestings_of_both_modes(name: str) -> None:
    """All of them for three specs, some for the others."""
    op, plain, count = op_of(name), SPECS[name][2], 0
    nestings = NESTINGS if name in ("softmax", "two outputs", "means") else {n: NESTINGS[n] for n in SOME}
    with jax.enable_x64(True):
        arrays = arrays_of(name)
        own, given = of_floats(op, arrays)
        want, _ = of_floats(plain, arrays)
        for nesting, taken in nestings.items():
            count += close(taken(own, given), taken(want, given), f"{nesting} of {name}")
    assert count >= len(nestings)


def test_third_order_by_any_way() -> None:
    op = ra.derive_incremental(ra.parse("return y = sum[j](x[j]**4)*sum[j](x[j])")).jax()
    ways = (jax.jacfwd, jax.jacrev)
    with jax.enable_x64(True):
        x = jnp.array([1.0, -2.0, 0.5])
        want = jax.jacfwd(jax.hessian(lambda x: (x**4).sum() * x.sum()))(x)
        for a in ways:
            for b in ways:
                for c in ways:
                    close(a(b(c(op)))(x), want, f"{a.__name__} of {b.__name__} of {c.__name__}")


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_tangents_are_of_the_results_type(dtype: str) -> None:
    op = op_of("layer_norm")
    x, w = (jnp.asarray(a, dtype) for a in arrays_of("layer_norm"))
    value, tangent = jax.jvp(op, (x, w), (jnp.ones_like(x), jnp.ones_like(w)))
    want = jax.jvp(layer_norm, (x.astype("float32"), w.astype("float32")), (jnp.ones(x.shape), jnp.ones(w.shape)))[1]
    assert value.dtype == tangent.dtype == x.dtype
    bound = 8 * float(jnp.finfo(dtype).eps) * max(1.0, float(jnp.abs(want).max()))
    assert float(jnp.abs(tangent.astype("float32") - want).max()) <= bound


def test_whole_numbers_do_not_move() -> None:
    op = op_of("two outputs")
    with jax.enable_x64(True):
        x, w, t = arrays_of("two outputs")
        _, tangents = jax.jvp(lambda x: op(x, w, t), (x,), (jnp.ones_like(x),))
        assert tangents[1].dtype == jax.dtypes.float0 and tangents[1].shape == (2,)
        labels = op_of("labels")
        y, at = arrays_of("labels")
        still = np.zeros(at.shape, jax.dtypes.float0)
        own = jax.jvp(labels, (y, at), (jnp.ones_like(y), still))
        close(own, jax.jvp(cross_entropy, (y, at), (jnp.ones_like(y), still)), "labels")


def test_nothing_at_all() -> None:
    """No rows: tangents have their shapes; an empty stream has those of the definition."""
    op = op_of("softmax")
    with jax.enable_x64(True):
        for shape in ((0, 3), (2, 0)):
            x = jnp.zeros(shape)
            value, tangent = jax.jvp(op, (x,), (x,))
            assert value.shape == tangent.shape == shape
            assert jax.jacfwd(lambda x: op(x).sum())(x).shape == shape


def test_quantisation_passes_straight_through() -> None:
    text = "tensors x[j], s positive; return y = cast(clip(x[j]/s, -8, 7), int8)*s"
    form = ra.derive_incremental(ra.parse(text))
    op = form.jax(assume={"straight_through"})

    def plain(x: Any, s: Any) -> Any:
        scaled = jnp.clip(x / s, -8, 7)
        return (scaled + jax.lax.stop_gradient(jnp.round(scaled) - scaled)) * s

    with jax.enable_x64(True):
        x, s = jnp.array([0.31, -2.2, 9.0]), jnp.asarray(0.4)
        for way in (jax.jacfwd, jax.jacrev):
            close(way(op, (0, 1))(x, s), way(plain, (0, 1))(x, s), "straight through")
        with pytest.raises(ra.RedalgError, match="straight_through"):
            jax.jvp(lambda x: form.jax()(x, s), (x,), (x,))
    with pytest.raises(ra.RedalgError, match="known assumptions"):
        form.jax(assume={"straight"})
