"""What users of JAX do with any function, as tests of one operator beside its definition in plain `jax.numpy`.

Each habit is a function of a `Case`, a spec of the catalog with arrays for it; `HABITS` names them.
"""

from __future__ import annotations

import copy
import functools
import importlib
import importlib.util
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.errors import RedalgError
from redalg.testing.running import named
from tests.support import jax_spec

jax: Any = importlib.import_module("jax") if importlib.util.find_spec("jax") else None
jnp: Any = jax and jax.numpy

OPERATORS = list(ra.catalog)
ROUNDED = ("fp8_quantise", "absmax_int8_gemm", "fp8_per_token_gemm", "zero_point_int8_gemm", "ternary_quantise")
UNDECIDED = ("ternary_quantise",)  # the derivative of q sums what reads the length of the axis of the sum


@dataclass(frozen=True)
class Case:
    """A spec of the catalog, its operator, and arrays for it."""

    name: str
    spec: Any
    form: Any
    op: Any

    def plain(self, *arrays: Any) -> Any:
        found = tuple(jax_spec.outputs(self.spec, dict(zip(self.names, arrays, strict=True))).values())
        return found[0] if len(found) == 1 else found

    @property
    def tensors(self) -> list[Any]:
        return [d for d in self.spec.tensors if not d.array]

    @property
    def names(self) -> list[str]:
        return [d.name for d in self.tensors]

    @property
    def places(self) -> tuple[int, ...]:
        """Of the tensors that hold reals."""
        return tuple(k for k, d in enumerate(self.tensors) if not d.domain & {"bool", "integer"})

    def raw(self, seed: int = 5) -> list[np.ndarray]:
        return list(jax_spec.drawn(self.spec, np.random.default_rng(seed)).values())

    def drawn(self, dtype: Any = None, seed: int = 5) -> list[Any]:
        raw = self.raw(seed)
        return [jnp.asarray(a, (dtype or a.dtype) if k in self.places else a.dtype) for k, a in enumerate(raw)]

    def reference(self, *arrays: Any) -> tuple[Any, ...]:
        """The definition, of the numbers that the arrays hold."""
        held = [np.asarray(a) for a in arrays]
        held = [a.astype(np.float64) if k in self.places else a for k, a in enumerate(held)]
        found = named(self.form, ra.reference(self.spec, **dict(zip(self.names, held, strict=True))))
        return tuple(found[n] for n in self.spec.outputs)

    @property
    def smooth(self) -> bool:
        """Whether any result moves."""
        return self.name not in UNDECIDED and bool(self.op._vjp.cotangents) and bool(self.places)


@functools.cache
def case(name: str) -> Case:
    spec = ra.catalog[name]
    form = ra.derive_incremental(spec, max_passes=4)
    return Case(name, spec, form, form.jax(assume={"straight_through"} if name in ROUNDED else ()))


def parts(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, tuple | list) else (result,)


def is_float(a: Any) -> bool:
    return bool(jnp.issubdtype(a.dtype, jnp.floating))


def moves(case: Case, function: Any, given: Sequence[Any]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The results that are reals as a function of the arrays that are, and these."""
    smooth = [k for k, n in enumerate(case.spec.outputs) if n in case.op._vjp.cotangents]

    def made(*some: Any) -> tuple[Any, ...]:
        arrays = list(given)
        for k, a in zip(case.places, some, strict=True):
            arrays[k] = a
        found = parts(function(*arrays))
        return tuple(found[k] for k in smooth)

    return made, tuple(given[k] for k in case.places)


def wave(a: Any) -> Any:
    return jnp.cos(jnp.arange(np.size(a))).astype(a.dtype).reshape(a.shape)


def total(result: Any) -> Any:
    """A number of all results, each element with a weight of its own."""
    found = [(p.astype(p.dtype if p.dtype.itemsize > 1 else "float32") * wave(p)).sum() for p in parts(result)]
    return sum(found, jnp.zeros((), found[0].dtype if found else None))


def loss(function: Any) -> Any:
    return lambda *some: total(function(*some))


def of_all(case: Case, function: Any) -> Any:
    """That number as a function of all arrays."""
    smooth = [k for k, n in enumerate(case.spec.outputs) if n in case.op._vjp.cotangents]

    def summed(*arrays: Any) -> Any:
        found = [parts(function(*arrays))[k] for k in smooth]
        return total([p for p in found if is_float(p)])

    return summed


def close(found: Any, wanted: Any, rtol: float = 1e-9) -> None:
    """Everywhere where the other is a number: JAX multiplies what a `where` leaves out by 0."""
    for got, want in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        got, want = (np.asarray(jax.device_get(a)) for a in (got, want))
        assert got.shape == want.shape
        if got.dtype == jax.dtypes.float0:
            assert want.dtype == got.dtype
            continue
        got, want = got.astype(np.float64), want.astype(np.float64)
        known = np.isfinite(want)
        scale = 1 + np.abs(want).max(initial=0, where=known)
        np.testing.assert_allclose(got[known], want[known], rtol, rtol * scale)


def same(found: Any, wanted: Any) -> None:
    """Bit by bit."""
    for got, want in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        got, want = np.asarray(got), np.asarray(want)
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        assert got.tobytes() == want.tobytes()


def weak(a: Any) -> Any:
    """As what is made of Python's numbers is: of a type that gives way."""
    return importlib.import_module("jax._src.lax.lax")._convert_element_type(a, weak_type=True)


def refused(call: Callable[[], Any]) -> None:
    try:
        call()
    except RedalgError as error:
        assert all((error.what, error.where, error.why, error.fix))
    else:
        raise AssertionError("it was taken")


def doubled(case: Case, dtype: Any = None) -> list[Any]:
    return [jnp.stack(pair) for pair in zip(case.drawn(dtype), case.drawn(dtype, 6), strict=True)]


def each(function: Any, many: Sequence[Any]) -> Any:
    """The function of one sample after the other."""
    rows = [function(*(a[k] for a in many)) for k in range(len(many[0]))]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows)


# --- values and compilers ---------------------------------------------------------------------------------------------


def values(case: Case) -> None:
    given = case.drawn()
    close(parts(case.op(*given)), case.reference(*given))
    close(parts(case.op(*given)), parts(case.plain(*given)))


def compiled(case: Case) -> None:
    """Under `jit`, by name, closed over, ahead of time; nothing is traced twice."""
    given = case.drawn()
    want, count = case.op(*given), []

    @jax.jit
    def step(*arrays: Any) -> Any:
        count.append(1)
        return case.op(*arrays)

    for _ in range(2):
        same(step(*given), want)
    close(parts(step(*case.drawn(seed=6))), case.reference(*case.drawn(seed=6)))
    assert len(count) == 1
    held = dict(zip(case.names, given, strict=True))
    same(case.op(**held), want)
    same(jax.jit(lambda arrays: case.op(**arrays))(held), want)
    same(jax.jit(lambda: case.op(*given))(), want)
    same(jax.jit(case.op)(*given), want)
    same(jax.jit(case.op).lower(*given).compile()(*given), want)
    same(jax.jit(functools.partial(case.op, given[0]))(*given[1:]), want)


def without_data(case: Case) -> None:
    given = case.drawn()
    want = case.op(*given)
    shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in given]
    for found in (jax.eval_shape(case.op, *shapes), jax.jit(case.op).lower(*shapes).out_info):
        for got, value in zip(parts(found), parts(want), strict=True):
            assert (got.shape, got.dtype) == (value.shape, value.dtype)
    traced = jax.make_jaxpr(case.op)(*shapes)
    assert [a.shape for a in traced.out_avals] == [p.shape for p in parts(want)]
    assert not any(a.weak_type for a in traced.out_avals)
    same(jax.core.eval_jaxpr(traced.jaxpr, traced.consts, *given), parts(want))
    same(parts(jax.jit(case.op).lower(*shapes).compile()(*given)), parts(want))
    if case.smooth:
        own, x = moves(case, case.op, given)
        slopes = jax.eval_shape(jax.grad(loss(own), tuple(range(len(x)))), *x)
        assert [(s.shape, s.dtype) for s in slopes] == [(a.shape, a.dtype) for a in x]


# --- derivatives ------------------------------------------------------------------------------------------------------


def gradients(case: Case) -> None:
    """By all arrays and by each alone, with the value, with what is beside the loss, in and out of `jit`."""
    given = case.drawn()
    own, x = moves(case, case.op, given)
    plain, _ = moves(case, case.plain, given)
    at = tuple(range(len(x)))
    want = jax.grad(loss(plain), at)(*x)
    close(jax.grad(loss(own), at)(*x), want)
    close(jax.jit(jax.grad(loss(own), at))(*x), want)
    for k in at:
        close(jax.grad(loss(own), k)(*x), want[k])
    value, found = jax.value_and_grad(jax.jit(loss(own)), at)(*x)
    close((value, found), (loss(plain)(*x), want))
    aux = jax.jit(jax.value_and_grad(lambda *a: (total(own(*a)), {"results": case.op(*given)}), at, has_aux=True))
    (_, beside), found = aux(*x)
    close(found, want)
    same(beside["results"], case.op(*given))


def of_one_result(case: Case) -> None:
    """The other cotangents are 0."""
    own, x = moves(case, case.op, case.drawn())
    plain, _ = moves(case, case.plain, case.drawn())
    for k in range(len(own(*x))):
        found, want = (jax.grad(lambda *a, f=f, k=k: total(f(*a)[k]), tuple(range(len(x))))(*x) for f in (own, plain))
        close(found, want)
        _, pull = jax.vjp(own, *x)
        _, other = jax.vjp(plain, *x)
        close(
            pull(tuple(jnp.zeros_like(r).at[...].set(j == k) for j, r in enumerate(own(*x)))),
            other(tuple(jnp.zeros_like(r).at[...].set(j == k) for j, r in enumerate(plain(*x)))),
        )


def pushed_forward(case: Case) -> None:
    own, x = moves(case, case.op, case.drawn())
    plain, _ = moves(case, case.plain, case.drawn())
    along = tuple(map(wave, x))
    found, want = jax.jvp(own, x, along), jax.jvp(plain, x, along)
    close(found[0], want[0])
    if case.name not in ROUNDED:
        close(found[1], want[1])
    close(jax.jit(lambda *t: jax.jvp(own, x, t))(*along)[1], found[1])
    value, linear = jax.linearize(own, *x)
    close(value, want[0])
    close(linear(*along), found[1])
    close(jax.jit(linear)(*along), found[1])
    _, pull = jax.vjp(own, *x)
    cotangents = tuple(map(wave, value))
    close(jax.linear_transpose(linear, *x)(cotangents), pull(cotangents))


def jacobians(case: Case) -> None:
    own, x = moves(case, case.op, case.drawn())
    plain, _ = moves(case, case.plain, case.drawn())
    at = tuple(range(len(x)))
    close(jax.jacrev(own, at)(*x), jax.jacrev(plain, at)(*x))
    close(jax.jit(jax.jacfwd(own, at))(*x), jax.jacrev(plain, at)(*x))


def hessians(case: Case) -> None:
    """Forward over reverse, and reverse over reverse; products with a vector, both ways."""
    own, x = moves(case, case.op, case.drawn())
    plain, _ = moves(case, case.plain, case.drawn())
    own, plain = (lambda a, f=f: jnp.square(total(f(a, *x[1:]))) for f in (own, plain))
    want = jax.hessian(plain)(x[0])
    close(jax.hessian(own)(x[0]), want, 1e-8)
    close(jax.jit(jax.jacrev(jax.grad(own)))(x[0]), want, 1e-8)
    product = jnp.tensordot(want, wave(x[0]), x[0].ndim)
    close(jax.jvp(jax.grad(own), x[:1], (wave(x[0]),))[1], product, 1e-8)
    close(jax.grad(lambda a: (jax.grad(own)(a) * wave(a)).sum())(x[0]), product, 1e-8)


def jaxs_check_of_gradients(case: Case) -> None:
    if case.name in ROUNDED:
        return  # the derivative is another function's
    check = importlib.import_module("jax.test_util").check_grads
    own, x = moves(case, case.op, case.drawn())
    check(own, x, 2, ("fwd", "rev"), atol=1e-4, rtol=1e-4)


def checkpoints(case: Case) -> None:
    given = case.drawn()
    own, x = moves(case, case.op, given)
    at = tuple(range(len(x)))
    want = jax.grad(lambda *a: total(jax.tree.map(jnp.tanh, own(*a))), at)(*x)
    policies = jax.checkpoint_policies
    for policy in (None, policies.everything_saveable, policies.dots_saveable, policies.save_only_these_names("y")):
        again = jax.checkpoint(lambda *a: jax.tree.map(jnp.tanh, own(*a)), policy=policy)
        close(jax.grad(loss(again), at)(*x), want, 1e-12)
        close(jax.jit(jax.grad(loss(again), at))(*x), want, 1e-12)


def linear_maps(case: Case) -> None:
    """What `linearize` gives is compiled, mapped and transposed; beside a result that is not differentiated."""
    given = case.drawn()
    own, x = moves(case, case.op, given)
    weights = tuple(map(wave, own(*x)))
    _, pushed = jax.linearize(own, *x)
    want = jax.vjp(own, *x)[1](weights)
    close(jax.linear_transpose(pushed, *x)(weights), want, 1e-12)
    close(jax.jit(pushed)(*x), jax.jvp(own, x, x)[1], 1e-12)
    many = tuple(jnp.stack([a, 2 * a]) for a in x)
    close([m[1] for m in jax.vmap(pushed)(*many)], [2 * p for p in pushed(*x)], 1e-12)
    _, pulled, beside = jax.vjp(lambda *a: (own(*a), {"given": given}), *x, has_aux=True)
    close(pulled(weights), want, 1e-12)
    assert beside["given"] is not None
    partial = jax.tree_util.Partial(case.op, given[0])
    close(jax.jit(lambda f, *a: f(*a))(partial, *given[1:]), case.op(*given), 1e-12)


def policies(case: Case) -> None:
    """Of checkpoints: results that are kept by name, and computed again."""
    names = importlib.import_module("jax.ad_checkpoint")
    own, x = moves(case, case.op, case.drawn())
    at = tuple(range(len(x)))

    def marked(*a: Any) -> Any:
        return sum((jnp.tanh(names.checkpoint_name(p, "kept")) * wave(p)).sum() for p in own(*a))

    want, kinds = jax.grad(marked, at)(*x), names.checkpoint_policies
    for policy in (kinds.save_only_these_names("kept"), kinds.nothing_saveable, kinds.everything_saveable):
        close(jax.jit(jax.grad(jax.checkpoint(marked, policy=policy), at))(*x), want, 1e-12)


def stopped(case: Case) -> None:
    given = case.drawn()
    own, x = moves(case, case.op, given)
    at = tuple(range(len(x)))
    want = jax.grad(loss(own), at)(*x)
    for k in at:
        found = jax.grad(lambda *a, k=k: total(own(*a[:k], jax.lax.stop_gradient(a[k]), *a[k + 1 :])), at)(*x)
        close(found, [jnp.zeros_like(w) if j == k else w for j, w in enumerate(want)], 1e-12)
    found = jax.grad(lambda *a: total(jax.tree.map(jax.lax.stop_gradient, own(*a))) + a[0].sum(), at)(*x)
    close(found, [jnp.full_like(w, not j) for j, w in enumerate(want)])


def whole_numbers_among_the_arrays(case: Case) -> None:
    """Labels and masks have tangents and gradients of their own kind."""
    given = case.drawn()
    at = tuple(range(len(given)))
    found, want = (jax.grad(of_all(case, f), at, allow_int=True)(*given) for f in (case.op, case.plain))
    close(found, want)
    _, pull = jax.vjp(case.op, *given)
    still = [wave(p) if is_float(p) else np.zeros(p.shape, jax.dtypes.float0) for p in parts(case.op(*given))]
    pulled = pull(tuple(still) if len(still) > 1 else still[0])
    assert [p.dtype for p in pulled] == [
        a.dtype if k in case.places else jax.dtypes.float0 for k, a in enumerate(given)
    ]
    moving = [wave(a) if k in case.places else np.zeros(a.shape, jax.dtypes.float0) for k, a in enumerate(given)]
    values, tangents = jax.jvp(case.op, given, moving)
    for value, tangent in zip(parts(values), parts(tangents), strict=True):
        assert tangent.shape == value.shape
        assert tangent.dtype == (value.dtype if is_float(value) else jax.dtypes.float0)


def one_array_twice(case: Case) -> None:
    """For two arguments of the same shape; also as the tracer of one argument."""
    given = case.drawn()
    for k in case.places:
        for m in case.places:
            if m < k and given[m].shape == given[k].shape:

                def shared(f: Any, a: Any, k: int = k, m: int = m) -> Any:
                    own, x = moves(case, f, [a if j in (k, m) else b for j, b in enumerate(given)])
                    return total(own(*x))

                found, want = (jax.jit(jax.grad(functools.partial(shared, f)))(given[m]) for f in (case.op, case.plain))
                close(found, want)


def rules_of_users(case: Case) -> None:
    """Inside functions with derivatives that users wrote, and inside other functions that take functions."""
    given = case.drawn()
    own, x = moves(case, case.op, given)
    at = tuple(range(len(x)))
    want = jax.grad(loss(own), at)(*x)

    @jax.custom_vjp
    def doubling(*a: Any) -> Any:
        return total(own(*a))

    doubling.defvjp(lambda *a: jax.vjp(loss(own), *a), lambda pull, c: pull(2 * c))
    close(jax.grad(doubling, at)(*x), jax.tree.map(lambda w: 2 * w, want), 1e-12)

    @jax.custom_jvp
    def tripling(*a: Any) -> Any:
        return total(own(*a))

    tripling.defjvp(lambda a, t: (loss(own)(*a), 3 * jax.jvp(loss(own), a, t)[1]))
    close(jax.jit(jax.grad(tripling, at))(*x), jax.tree.map(lambda w: 3 * w, want), 1e-12)
    closed, constants = jax.closure_convert(lambda a: total(own(a, *x[1:])), x[0])
    close(jax.grad(closed)(x[0], *constants), want[0], 1e-12)


# --- maps -------------------------------------------------------------------------------------------------------------


def mapped(case: Case) -> None:
    """Over all arrays, over each alone from its last axis, results with the axis elsewhere, arrays by name."""
    many = doubled(case)
    want = each(case.op, many)
    close(jax.vmap(case.op)(*many), want, 1e-12)
    close(jax.jit(jax.vmap(case.op))(*many), want, 1e-12)
    close(jax.vmap(jax.jit(case.op), out_axes=-1)(*many), jax.tree.map(lambda a: jnp.moveaxis(a, 0, -1), want), 1e-12)
    held = dict(zip(case.names, many, strict=True))
    close(jax.vmap(lambda arrays: case.op(**arrays))(held), want, 1e-12)
    given = case.drawn()
    for k, a in enumerate(given):
        other = many[k][1]
        rows = [*given[:k], jnp.stack([a, other], -1), *given[k + 1 :]]
        places = tuple(-1 if j == k else None for j in range(len(given)))
        alone = [case.op(*given[:k], b, *given[k + 1 :]) for b in (a, other)]
        close(jax.vmap(case.op, places)(*rows), jax.tree.map(lambda *p: jnp.stack(p), *alone), 1e-12)
    nowhere = jax.vmap(lambda _: case.op(*given))(jnp.arange(3))
    close(nowhere, jax.tree.map(lambda a: jnp.stack([a] * 3), case.op(*given)), 1e-12)


def maps_of_maps(case: Case) -> None:
    rows = [jnp.stack([a, a[::-1], a]) for a in doubled(case)]  # 3 of 2
    want = [[case.op(*(a[i, j] for a in rows)) for j in range(2)] for i in range(3)]
    stacked = [jax.tree.map(lambda *p: jnp.stack(p), *row) for row in want]
    want = jax.tree.map(lambda *p: jnp.stack(p), *stacked)
    close(jax.vmap(jax.vmap(case.op))(*rows), want, 1e-12)
    close(jax.jit(jax.vmap(jax.vmap(case.op), 1, 1))(*rows), want, 1e-12)
    first, rest = doubled(case)[0], case.drawn()[1:]
    grid = jax.vmap(jax.vmap(case.op, (0, *(None for _ in rest))), (None, *(0 for _ in rest)))
    found = grid(first, *(jnp.stack([a, a]) for a in rest)) if rest else case.op(first[0])
    if rest:
        close(jax.tree.map(lambda a: a[1, 1], found), case.op(first[1], *rest), 1e-12)


def maps_of_gradients(case: Case) -> None:
    """Gradients of samples, of a batch, and of parameters that samples share."""
    given = doubled(case)
    at = case.places
    slope = jax.grad(of_all(case, case.op), at)
    want = each(jax.grad(of_all(case, case.plain), at), given)
    close(jax.vmap(slope)(*given), want)
    close(jax.jit(jax.vmap(slope))(*given), want)
    close(jax.grad(lambda *a: jax.vmap(of_all(case, case.op))(*a).sum(), at)(*given), want)
    one = case.drawn()
    for k in at:
        rows = [given[j] if j == k else a for j, a in enumerate(one)]
        places = tuple(0 if j == k else None for j in range(len(one)))
        wide = [given[j] if j == k else jnp.stack([a, a]) for j, a in enumerate(one)]
        found = jax.vmap(slope, places)(*rows)
        close(found, each(jax.grad(of_all(case, case.plain), at), wide))
        shared = jax.grad(lambda *a, places=places: jax.vmap(of_all(case, case.op), places)(*a).sum(), at)(*rows)
        close(shared, [f if j == k else f.sum(0) for j, f in zip(at, found, strict=True)])


def names_of_axes(case: Case) -> None:
    """Collectives beside the operator, and `pmap`."""
    many = doubled(case)
    want = jax.tree.map(lambda a: jnp.stack([a.sum(0)] * 2), each(case.op, many))
    found = jax.vmap(lambda *a: jax.tree.map(lambda r: jax.lax.psum(r, "n"), case.op(*a)), axis_name="n")(*many)
    close(jax.tree.map(lambda a: a + 0, found), want, 1e-11)
    one = [a[None] for a in case.drawn()]
    same(jax.tree.map(lambda a: a[0], jax.pmap(case.op)(*one)), case.op(*case.drawn()))


# --- control flow -----------------------------------------------------------------------------------------------------


def scans(case: Case) -> None:
    """Over samples, and gradients by what they share; `lax.map` with and without a batch."""
    many = doubled(case)
    want = each(case.op, many)
    _, found = jax.lax.scan(lambda c, a: (c, case.op(*a)), 0, tuple(many))
    close(found, want, 1e-12)
    close(jax.lax.map(lambda a: case.op(*a), tuple(many)), want, 1e-12)
    close(jax.lax.map(lambda a: case.op(*a), tuple(many), batch_size=2), want, 1e-12)
    if not case.smooth:
        return
    own, x = moves(case, case.op, case.drawn())
    plain, _ = moves(case, case.plain, case.drawn())

    def deep(function: Any, again: bool = False) -> Any:
        def layer(c: Any, _: Any) -> Any:
            return x[0] + (c - x[0]) * 0.5 + 0.01 * jnp.tanh(total(function(c, *x[1:]))), None

        return lambda c: jax.lax.scan(jax.checkpoint(layer) if again else layer, c, None, length=3)[0].sum()

    wanted = jax.grad(deep(plain))(x[0])
    for again in (False, True):
        close(jax.jit(jax.grad(deep(own, again)))(x[0]), wanted)


def branches_and_loops(case: Case) -> None:
    given = case.drawn()
    want = parts(case.op(*given))

    def zeros(*arrays: Any) -> Any:
        return tuple(map(jnp.zeros_like, want))

    branch = jax.jit(lambda p, *a: jax.lax.cond(p, lambda *a: parts(case.op(*a)), zeros, *a))
    same(branch(True, *given), want)
    same(branch(False, *given), zeros())
    chosen = jax.vmap(lambda p: jax.lax.cond(p, lambda: parts(case.op(*given)), zeros))(jnp.array([True, False]))
    close([c[0] for c in chosen], want, 1e-12)
    assert not any(c[1].astype("float32").any() for c in chosen)
    switched = jax.jit(lambda k: jax.lax.switch(k, [zeros, lambda: parts(case.op(*given))]))
    same(switched(1), want)
    same(jax.lax.fori_loop(0, 3, lambda _, c: parts(case.op(*given)), zeros()), want)
    same(jax.lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, parts(case.op(*given))), (0, zeros()))[1], want)
    if case.smooth:
        own, x = moves(case, case.op, given)
        slope = jax.jit(jax.grad(lambda a, p: jax.lax.cond(p, lambda a: total(own(a, *x[1:])), lambda a: a.sum(), a)))
        close(slope(x[0], True), jax.grad(lambda a: total(own(a, *x[1:])))(x[0]), 1e-12)
        close(slope(x[0], False), jnp.ones_like(x[0]))
        twice = jax.grad(lambda a: jax.lax.fori_loop(0, 2, lambda _, c: c + total(own(a, *x[1:])), 0.0))(x[0])
        close(twice, 2 * slope(x[0], True), 1e-12)


# --- training ---------------------------------------------------------------------------------------------------------


def steps(case: Case) -> None:
    """Some steps of gradient descent by mapping over trees, with the arrays given away; of an ensemble at once."""
    given = case.drawn()
    own, x = moves(case, case.op, given)
    plain, _ = moves(case, case.plain, given)

    def trained(function: Any, start: Any, **options: Any) -> Any:
        def step(tree: Any) -> Any:
            slopes = jax.grad(lambda t: jnp.tanh(total(function(*t["x"]))))(tree)
            return jax.tree.map(lambda a, s: a - 1e-3 * jnp.clip(jnp.nan_to_num(s), -1, 1), tree, slopes)

        step, tree = jax.jit(step, **options), {"x": start}
        for _ in range(4):
            tree = step(tree)
        return tree["x"]

    copies = tuple(map(jnp.array, x))
    wanted = trained(plain, x)
    if all(np.isfinite(w).all() for w in jax.tree.leaves(jax.grad(loss(plain), tuple(range(len(x))))(*x))):
        close(trained(own, copies, donate_argnums=0), wanted, 1e-8)
    many = tuple(jnp.stack([a, a]) for a in x)
    update = jax.jit(jax.vmap(lambda *t: jax.grad(lambda t: total(own(*t)))(t)))
    close([u[1] for u in update(*many)], jax.grad(loss(own), tuple(range(len(x))))(*x), 1e-12)


def donated(case: Case) -> None:
    given = case.drawn()
    want = case.op(*given)
    step = jax.jit(lambda *a: case.op(*a), donate_argnums=tuple(range(len(given))))
    same(step(*map(jnp.array, given)), want)
    same(case.op(*given), want)


def static_arguments(case: Case) -> None:
    """The operator itself, and switches beside it; copies of what holds it."""
    given = case.drawn()
    want = case.op(*given)
    call = jax.jit(lambda op, on, *a: op(*a) if on else a, static_argnums=(0, 1))
    same(call(case.op, True, *given), want)
    same(call(copy.deepcopy(case.op), True, *given), want)
    same(copy.copy(case.op)(*given), want)
    leaf = jax.tree.leaves({"op": case.op})
    assert leaf == [case.op] and hash(case.op) == hash(case.op)


# --- kinds of numbers -------------------------------------------------------------------------------------------------


def narrow(case: Case, dtype: str) -> None:
    """Values and gradients beside those of the same numbers in float64: both round, and results have their type."""
    given = case.drawn(dtype)
    want = case.reference(*given)
    with jax.enable_x64(False):
        found = parts(case.op(*given))
        jitted = parts(jax.jit(case.op)(*given))
        same(jitted, found)
        slopes = None
        if case.smooth:
            own, x = moves(case, case.op, given)
            slopes = jax.grad(loss(own), tuple(range(len(x))))(*x)
            assert [(s.shape, s.dtype) for s in slopes] == [(a.shape, a.dtype) for a in x]
    unit = float(jnp.finfo(dtype).eps)
    for got, value in zip(found, want, strict=True):
        got, value = np.asarray(got).astype(np.float64), np.asarray(value).astype(np.float64)
        known = np.isfinite(value)
        scale = 1 + np.abs(value).max(initial=0, where=known)
        if case.name not in ROUNDED:
            np.testing.assert_allclose(got[known], value[known], 0, (4 * unit + 300 * 2**-24) * scale)
    if slopes is not None and case.name not in ROUNDED:
        wide = [a.astype("float64") if k in case.places else a for k, a in enumerate(given)]
        plain, x = moves(case, case.op, wide)
        for got, value in zip(slopes, jax.grad(loss(plain), tuple(range(len(x))))(*x), strict=True):
            scale = 1 + float(jnp.abs(value).max(initial=0))
            np.testing.assert_allclose(got.astype("float64"), value, 0, (20 * unit + 1000 * 2**-24) * scale)


def float32(case: Case) -> None:
    narrow(case, "float32")


def float16(case: Case) -> None:
    narrow(case, "float16")


def bfloat16(case: Case) -> None:
    narrow(case, "bfloat16")


def mixed(case: Case) -> None:
    """Several types of floats: results are of the type that was traced, gradients of that of their array."""
    types = ("float32", "bfloat16", "float64", "float16")
    for turn in range(2):
        given = case.drawn()
        given = [a.astype(types[(turn + k) % 4]) if k in case.places else a for k, a in enumerate(given)]
        found, traced = parts(case.op(*given)), parts(jax.eval_shape(case.op, *given))
        assert [f.dtype for f in found] == [t.dtype for t in traced]
        assert not any(f.dtype == "float64" and not any(a.dtype == "float64" for a in given) for f in found)
        own, x = moves(case, case.op, given)
        at = tuple(range(len(x)))
        if case.smooth:
            slopes = jax.jit(jax.grad(loss(own), at))(*x)
            assert [(s.shape, s.dtype) for s in slopes] == [(a.shape, a.dtype) for a in x]
            values, moved = jax.jvp(own, x, tuple(map(wave, x)))
            assert [v.dtype for v in values] == [m.dtype for m in moved]


def whole_numbers_for_reals(case: Case) -> None:
    """Values are those of the same reals, and the other arrays have their gradients."""
    for k in case.places:
        given = case.drawn()
        whole = jnp.abs(jnp.round(3 * given[k])).astype("int32") + 1
        mixed, real = ([*given[:k], a, *given[k + 1 :]] for a in (whole, whole.astype(float)))
        found, want = parts(case.op(*mixed)), case.reference(*real)
        assert [f.dtype for f in found] == [t.dtype for t in parts(jax.eval_shape(case.op, *mixed))]
        if case.name in ROUNDED:
            continue
        close(found, want)
        rest = tuple(j for j in case.places if j != k)
        if rest and case.smooth:
            slopes = jax.grad(of_all(case, case.op), rest)
            close(slopes(*mixed), slopes(*real))


def weak_types(case: Case) -> None:
    """Python's numbers for arrays without axes, and weakly typed arrays: of the type of the others."""
    given = case.drawn("float32")
    with jax.enable_x64(False):
        want = parts(case.op(*given))
        numbers = [a.item() if not a.ndim else a for a in given]
        close(parts(case.op(*numbers)), want, 1e-5)
        close(parts(jax.jit(case.op)(*numbers)), want, 1e-5)
        given = [weak(a) if k in case.places else a for k, a in enumerate(given)]
        found = parts(case.op(*given))
        assert [(f.dtype, f.weak_type) for f in found] == [(w.dtype, False) for w in want]
        own, x = moves(case, case.op, given)
        if case.smooth:
            slopes = jax.grad(loss(own), tuple(range(len(x))))(*x)
            assert [s.dtype for s in slopes] == [a.dtype for a in x]


def numpys_arrays(case: Case) -> None:
    """In any layout, read-only, as lists, changed after the call; in and out of `jit`."""
    raw = case.raw()
    want = case.op(*case.drawn())
    ways: list[Callable[[Any], Any]] = [
        lambda a: a,
        lambda a: np.asfortranarray(a) if a.ndim else a,
        lambda a: np.stack([a, a], -1)[..., 0],
        lambda a: np.array(a[::-1])[::-1] if a.ndim else a,
        lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
        lambda a: a.astype(a.dtype.newbyteorder()),
    ]
    for way in ways:
        close(case.op(*map(way, raw)), want, 1e-12)
    same(jax.jit(case.op)(*raw), want)
    close(case.op(*(a.tolist() for a in raw)), want, 1e-12)
    held = [np.array(a) for a in raw]
    found = case.op(*held)
    for a in held:
        a[...] = 0
    same(found, want)
    result = [np.asarray(p) for p in parts(found)]
    assert not any(np.shares_memory(r, a) for r in result for a in held)


def other_layouts(case: Case) -> None:
    """Transposed in memory, and strided views that XLA made."""
    given = case.drawn()
    want = case.op(*given)
    turned = [jnp.asarray(a.T).T for a in given]
    same(case.op(*turned), want)
    close(jax.jit(lambda *a: case.op(*(b.T for b in a)))(*(a.T for a in given)), want, 1e-12)
    close(jax.jit(lambda *a: case.op(*(b[::-1, ...][::-1] if b.ndim else b for b in a)))(*given), want, 1e-12)
    layout = importlib.import_module("jax.experimental.layout")
    single = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    laid = [
        jax.device_put(a, layout.Format(layout.Layout(tuple(range(a.ndim))[::-1]), single)) if a.ndim > 1 else a
        for a in given
    ]
    close(case.op(*laid), want, 1e-12)
    close(jax.jit(case.op)(*laid), want, 1e-12)
    wide = [jnp.broadcast_to(a[:1], a.shape) if a.ndim and k in case.places else a for k, a in enumerate(given)]
    close(parts(case.op(*wide)), case.reference(*wide))


def placed(case: Case) -> None:
    given = case.drawn()
    want = case.op(*given)
    device = jax.devices()[0]
    same(case.op(*(jax.device_put(a, device) for a in given)), want)
    with jax.default_device(device):
        same(jax.jit(case.op)(*given), want)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), "n")
    spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    same(jax.jit(case.op)(*(jax.device_put(a, spread) for a in given)), want)
    same(jax.jit(case.op, in_shardings=spread, out_shardings=spread)(*given), want)
    whole = jax.sharding.PartitionSpec()
    for checked in (True, False):
        shard = jax.shard_map(case.op, mesh=mesh, in_specs=whole, out_specs=whole, check_vma=checked)
        same(jax.jit(shard)(*given), want)
    assert all(p.devices() == {device} for p in parts(want))


def nothing(case: Case) -> None:
    """Arrays without elements along one axis, batches of none: what the definition says, of the shape traced."""
    for axis in sorted({a for d in case.tensors for a in d.axes}):
        given = [
            a[tuple(slice(0, 0) if x == axis else slice(None) for x in d.axes)]
            for d, a in zip(case.tensors, case.drawn(), strict=True)
        ]
        try:
            want = case.reference(*given)
        except RedalgError:
            refused(lambda given=given: jax.block_until_ready(case.op(*given)))
            continue
        traced = parts(jax.eval_shape(case.op, *given))
        for found in (parts(case.op(*given)), parts(jax.jit(case.op)(*given))):
            assert [(f.shape, f.dtype) for f in found] == [(t.shape, t.dtype) for t in traced]
            for got, value in zip(found, want, strict=True):
                np.testing.assert_allclose(np.asarray(got).astype(float), np.asarray(value).astype(float), 1e-9, 1e-9)
        own, x = moves(case, case.op, given)
        if case.smooth:
            for how in (jax.grad(loss(own), tuple(range(len(x)))), jax.jit(jax.grad(loss(own), tuple(range(len(x)))))):
                for a, slope in zip(x, how(*x), strict=True):
                    assert slope.shape == a.shape
            values, moved = jax.jvp(own, x, tuple(map(wave, x)))
            assert [v.shape for v in values] == [m.shape for m in moved]
    empty = [jnp.zeros((0, *a.shape), a.dtype) for a in case.drawn()]
    found = jax.vmap(case.op)(*empty)
    assert [f.shape for f in parts(found)] == [(0, *p.shape) for p in parts(case.op(*case.drawn()))]


def infinities(case: Case) -> None:
    """NaN and infinities among the numbers: what the form gives of them."""
    for odd in (np.nan, np.inf, -np.inf):
        for k in case.places:
            given = case.drawn()
            if not given[k].size:
                continue
            given[k] = given[k].ravel().at[given[k].size // 2].set(odd).reshape(given[k].shape)
            want = case.form.compile("cpu")(**dict(zip(case.names, map(np.asarray, given), strict=True)))
            want = [named(case.form, want)[n] for n in case.spec.outputs]
            found = parts(case.op(*given))
            for got, value in zip(found, want, strict=True):
                np.testing.assert_array_equal(np.asarray(got), np.asarray(value))
            same(parts(jax.jit(case.op)(*given)), found)
            mapped = jax.vmap(case.op)(*(jnp.stack([a, a]) for a in given))
            for got, value in zip(parts(mapped), found, strict=True):
                pair = [np.asarray(a).astype(float) for a in (got[1], value)]
                known = ~np.isnan(pair[0] + pair[1])  # another form, which may be NaN elsewhere
                np.testing.assert_allclose(pair[0][known], pair[1][known], 1e-12, 1e-12)


def wrong_arguments(case: Case) -> None:
    """Errors in four parts, in and out of transforms."""
    given = case.drawn()
    last = max(range(len(given)), key=lambda k: given[k].ndim)
    raw = case.raw()[last]

    def put(a: Any, k: int = last) -> list[Any]:
        return [a if j == k else b for j, b in enumerate(given)]

    refused(lambda: case.op(*given, given[0]))
    refused(lambda: case.op())
    refused(lambda: case.op(**dict(zip(case.names, given, strict=True)), other=1))
    for odd in (
        None,
        "x",
        {"a": 1},
        [[1, 2], [3]],
        np.ma.masked_array(raw, raw > 0),
        object(),
        np.array(["a"]),
        np.array([None]),
        jax.random.key(0),
        raw.astype("M8[s]"),
        raw.astype(np.longdouble),
        jax.ShapeDtypeStruct(raw.shape, raw.dtype),
    ):
        refused(lambda odd=odd: case.op(*put(odd)))
    refused(lambda: jax.eval_shape(case.op, *put(given[last][None])))
    refused(lambda: jax.jit(case.op)(*put(given[last][0])))
    symbols = jax.export.symbolic_shape(",".join("abcdef"[: given[last].ndim]))
    refused(lambda: jax.eval_shape(case.op, *put(jax.ShapeDtypeStruct(symbols, given[last].dtype))))
    refused(lambda: jax.vmap(case.op)(*(jnp.stack([a[None]] * 2) for a in given)))
    if case.places:
        refused(lambda: case.op(*put(given[case.places[0]].astype(complex), case.places[0])))
        refused(lambda: jax.grad(lambda a: case.op(*put(a, case.places[0])).sum())(1j * given[case.places[0]]))


# --- modes ------------------------------------------------------------------------------------------------------------


def debugged(case: Case) -> None:
    given = case.drawn()
    want = case.op(*given)
    finite = all(np.isfinite(np.asarray(p).astype(float)).all() for p in parts(want))
    own, x = moves(case, case.op, given)
    for mode in (jax.debug_nans, jax.debug_infs):
        if not finite:
            continue
        with mode(True):
            same(case.op(*given), want)
            same(jax.jit(case.op)(*given), want)
            if case.smooth:
                jax.grad(loss(own), tuple(range(len(x))))(*x)
    with jax.disable_jit():
        same(case.op(*given), want)
        same(jax.jit(case.op)(*given), want)
        close(jax.vmap(case.op)(*(jnp.stack([a, a]) for a in given)), jax.tree.map(lambda a: jnp.stack([a, a]), want))
        if case.smooth:
            slopes = jax.jit(jax.grad(loss(own), tuple(range(len(x)))))(*x)
            close(jax.jvp(own, x, tuple(map(wave, x)))[0], own(*x))
    if case.smooth:
        close(slopes, jax.grad(loss(own), tuple(range(len(x))))(*x), 1e-12)


def strict_modes(case: Case) -> None:
    """No promotion of types, none of ranks, no tracer that is left over, no transfers in what is compiled."""
    given, many = case.drawn(), doubled(case)
    own, x = moves(case, case.op, given)
    calls: dict[Callable[..., Any], Sequence[Any]] = {case.op: given, jax.vmap(case.op): many}
    if case.smooth:
        weights, along = tuple(map(wave, own(*x))), tuple(map(wave, x))
        calls |= {
            lambda *x: jax.vjp(own, *x)[1](weights): x,
            lambda *x: jax.jvp(own, x, along): x,
            lambda *x: jax.jvp(lambda *x: jax.vjp(own, *x)[1](weights), x, along): x,
        }
    modes = [
        functools.partial(jax.numpy_dtype_promotion, "strict"),
        functools.partial(jax.numpy_rank_promotion, "raise"),
        functools.partial(jax.check_tracer_leaks, True),
        functools.partial(jax.transfer_guard, "disallow"),
    ]
    for call, arrays in calls.items():
        want, step = call(*arrays), jax.jit(call)
        step(*arrays)
        for mode in modes:
            with mode():
                close(step(*arrays), want, 1e-12)
        for mode in modes[:3]:
            with mode():
                close(call(*arrays), want, 1e-12)


def with_and_without_64_bits(case: Case) -> None:
    """The same operator in turn, and compiled by one: results are those of the mode they were made in."""
    wide, slim = case.drawn(), case.drawn("float32")
    want = case.reference(*wide)
    step = jax.jit(case.op)
    for _ in range(2):
        close(parts(step(*wide)), want)
        with jax.enable_x64(False):
            found = parts(step(*(a if k in case.places else np.asarray(a) for k, a in enumerate(slim))))
            assert all(f.dtype.itemsize <= 4 for f in found)
            refused(lambda: case.op(*case.raw()))
            refused(
                lambda: case.op(*map(list, case.raw())) if all(a.ndim for a in case.raw()) else case.op(*case.raw())
            )


def again_the_same(case: Case) -> None:
    given = case.drawn()
    own, x = moves(case, case.op, given)
    at = tuple(range(len(x)))
    first = case.op(*given)
    slopes = jax.grad(loss(own), at)(*x) if case.smooth else None
    step = jax.jit(jax.grad(loss(own), at)) if case.smooth else jax.jit(case.op)
    found = step(*x) if case.smooth else first
    for _ in range(3):
        same(case.op(*given), first)
        same(case.form.jax(assume=case.op._assume)(*given), first)
        if case.smooth:
            same(jax.grad(loss(own), at)(*x), slopes)
            same(step(*x), found)


def threads(case: Case) -> None:
    """Several at once, with a new operator, whose first calls these are."""
    given = case.drawn()
    op = case.form.jax(assume=case.op._assume)
    own, x = moves(case, op, given)
    at = tuple(range(len(x)))
    want = case.op(*given), jax.grad(loss(moves(case, case.op, given)[0]), at)(*x) if case.smooth else ()
    found: list[Any] = []

    def work(k: int) -> None:
        with jax.enable_x64(True):
            try:
                call = jax.jit(op) if k % 2 else op
                found.append((call(*given), jax.grad(loss(own), at)(*x) if case.smooth else ()))
            except BaseException as error:
                found.append(error)

    workers = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(found) == 4
    for f in found:
        if isinstance(f, BaseException):
            raise f
        close(f, want, 1e-12)


SMOOTH = (
    *(gradients, of_one_result, pushed_forward, jacobians, hessians, jaxs_check_of_gradients, checkpoints, stopped),
    *(linear_maps, policies),
    *(whole_numbers_among_the_arrays, one_array_twice, rules_of_users, maps_of_gradients, steps),
)
"""Habits of what has a derivative."""

HABITS: dict[str, Callable[[Case], None]] = {
    f.__name__: f
    for f in (
        *(values, compiled, without_data, *SMOOTH, mapped, maps_of_maps, names_of_axes, scans, branches_and_loops),
        *(donated, static_arguments, float32, float16, bfloat16, mixed, whole_numbers_for_reals, weak_types),
        *(numpys_arrays, other_layouts),
        *(placed, nothing, infinities, wrong_arguments, debugged, strict_modes, with_and_without_64_bits),
        *(again_the_same, threads),
    )
}


def run(name: str, habit: str) -> None:
    with jax.enable_x64(True):
        found = case(name)
        if HABITS[habit] in SMOOTH and not found.smooth:
            pytest.skip("it has no derivative")
        HABITS[habit](found)
