"""A form as a JAX function: under `jit`, `vmap` and `grad`, by a host callback.

The kernels run on the host through `jax.pure_callback`. A foreign function (FFI) would save the callback's way through
Python, about 0.1 ms a call, but a call of a form chooses its kernel by the shapes and strides that it meets, and that
choice is Python. Arrays on an accelerator are copied to the host and back.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

from redalg.adapters.jax_linear import Linear, spread, varying, whole
from redalg.adapters.operands import (
    OnHost,
    Registered,
    Unsaved,
    as_passed,
    by_name,
    complex_tensors,
    derivative,
    in_windows,
    longer_outputs,
    mapped_form,
    own_tensors,
    refuse_complex,
    sizes_of,
)
from redalg.errors import RedalgError
from redalg.form import Form
from redalg.gradients.calls import Jvp, Vjp, assumed
from redalg.language.spec import Spec
from redalg.numeric.array_origin import NARROW_ONLY
from redalg.numeric.binding import Bound, bind, result_flows
from redalg.numeric.dtypes import promote

jax: Any = importlib.import_module("jax") if importlib.util.find_spec("jax") else None

WHERE = "the call of form.jax()"
X64 = 'jax.config.update("jax_enable_x64", True)'
Dtypes = tuple[np.dtype | None, ...]  # of results; None: what the spec gives


class JaxOp(Registered):
    """``op(Q, K, V)`` or ``op(Q=…, …)``: arrays in the spec's order; an array, or a tuple in the order of outputs.

    Scalars are 0-d arrays or numbers. Shapes and dtypes of results follow from the spec when a call is traced.
    Gradients (`jax.grad`, `jax.vjp`, `jax.jacrev`) are those of `Vjp`, tangents (`jax.jvp`, `jax.jacfwd`) those of
    `Jvp`, of any order and in any nesting (`jax.hessian`, `jax.linearize`): see `redalg.adapters.jax_linear`. `vmap`
    derives the spec with one more axis. Without ``jax_enable_x64`` results in
    float64 are refused, results in int64 come as int32 (the call fails where one does not fit), and stage values that
    are saved for the gradient are float32.

    Raises: RedalgError, when traced, for arrays that do not fit the spec, for 64-bit numbers that JAX would cut, and,
    when differentiated, for a spec without a derivative.

    >>> op = ra.derive_incremental(ra.catalog["logsumexp"]).jax()                             # doctest: +SKIP
    >>> jax.jit(jax.grad(op))(jnp.zeros(2)).tolist()                                          # doctest: +SKIP
    [0.5, 0.5]
    """

    def __init__(self, form: Form, dtypes: Dtypes | None = None, assume: Iterable[str] = ()) -> None:
        self.form, self.tensors = form, own_tensors(form.spec)
        self._dtypes, self._assume = dtypes or (None,) * len(form.spec.outputs), assume
        self._calls: dict[Any, _Call] = {}
        self._again: dict[Any, JaxOp] = {}  # of the derivative's specs
        self._maps: dict[Any, Linear] = {}
        self._op = jax.custom_jvp(self._plain)
        self._op.defjvp(self._moved, symbolic_zeros=True)
        self._saved = jax.custom_jvp(self._with_values)
        self._saved.defjvp(self._moved_with_values, symbolic_zeros=True)

    def __call__(self, /, *given: Any, **named: Any) -> Any:
        arrays = self._admitted(by_name(self.tensors, given, named, WHERE))
        if any(d.dimensions for d in self.tensors):
            held = dict(zip([d.name for d in self.tensors], arrays, strict=True))
            arrays = in_windows(self.form.spec, held, WHERE)
        arrays = [whole(a) for a in arrays]
        found = self._op(*spread(arrays, varying(arrays)))
        return found[0] if len(found) == 1 else found

    def __repr__(self) -> str:
        return f"<JAX function of {', '.join(self.form.spec.outputs)}>"

    @cached_property
    def _derivative(self) -> Vjp | RedalgError:
        return derivative(self.form.spec, self._assume)

    @cached_property
    def _complex(self) -> frozenset[str]:
        return complex_tensors(self.form.spec)

    @property
    def _vjp(self) -> Vjp:
        if isinstance(self._derivative, RedalgError):
            raise self._derivative
        return self._derivative

    # --- arguments ---------------------------------------------------------------------------------------------------

    def _admitted(self, arrays: Mapping[str, Any]) -> list[Any]:
        """As JAX's arrays; a number is of the dtype of the arrays beside it, as it is for JAX."""
        held = {d.name: _array(d, arrays[d.name]) for d in self.tensors}
        floats = promote(np.dtype(a.dtype) for a in held.values() if _is_float(a) and not a.weak_type)
        for d in self.tensors:
            if held[d.name].weak_type and floats is not None and not d.domain & {"integer", "bool", "complex"}:
                held[d.name] = held[d.name].astype(floats)
        return list(held.values())

    def _call(self, form: Form, dtypes: Dtypes, unsaved: Unsaved | None = None) -> _Call:
        key = form.spec, dtypes, unsaved
        if key not in self._calls:
            self._calls[key] = _Call(form, dtypes, unsaved)
        return self._calls[key]

    # --- running ------------------------------------------------------------------------------------------------------

    def _plain(self, *arrays: Any) -> Any:
        return self._call(self.form, self._dtypes)(*arrays)

    def _with_values(self, *arrays: Any) -> Any:
        """The outputs, and what the gradient reads, narrowed to what JAX holds."""
        forward = self._vjp.forward
        read = bound_to(forward, self._named(arrays))
        saved = [jax.dtypes.canonicalize_dtype(t) for t in list(_dtypes(forward, read))[len(self._dtypes) :]]
        return self._call(self._vjp.forms[forward], (*self._dtypes, *saved))(*arrays)

    def _named(self, arrays: Sequence[Any]) -> dict[str, Any]:
        return dict(zip((d.name for d in self.tensors), arrays, strict=True))

    # --- derivatives -------------------------------------------------------------------------------------------------

    def _moved(self, arrays: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        values, found = self._moved_with_values(arrays, tangents)
        count = len(self.form.spec.outputs)
        return values[:count], found[:count]

    def _moved_with_values(self, arrays: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        """The values, and their tangents: a linear map of those of the arrays that move. Nothing is said of tangents
        of what was saved: they are 0, since derivatives of gradients are along arrays and cotangents alone."""
        values = self._saved(*arrays)
        if self._complex:
            wanted = {d.name for d, t in zip(self.tensors, tangents, strict=True) if not _is_still(t)}
            refuse_complex(self.form.spec, self._complex, wanted, list(map(jax.numpy.iscomplexobj, values)), WHERE)
        moving = {n: t for n, t in self._named(tangents).items() if n in self._vjp.wrt and not _is_still(t)}
        held = dict(zip(self._vjp.forward.outputs, values, strict=True))
        found = {n: _zero_tangent(v) for n, v in held.items()}
        results = tuple(n for n in self._vjp.cotangents if _is_float(held[n]) and held[n].size)
        if moving and results:
            made = self._linear(tuple(moving), results)(arrays, values, tuple(moving.values()))
            found |= dict(zip(results, made, strict=True))
        return values, tuple(found.values())

    def _linear(self, names: tuple[str, ...], results: tuple[str, ...]) -> Linear:
        """Tangents of the named arrays -> those of the results; its transpose takes cotangents to gradients."""
        key = names, results
        if key not in self._maps:
            pushed, pulled = _Pushed(self, names, results), _Pulled(self, names, results)

            def to(kept: Sequence[int]) -> Linear:
                return self._linear(names, tuple(results[k] for k in kept))

            def along(kept: Sequence[int]) -> Linear:
                return self._linear(tuple(names[k] for k in kept), results).transpose

            self._maps[key] = Linear.pair(pushed, pulled, len(self.tensors), to, along)
        return self._maps[key]

    def _op_of(self, form: Form, dtypes: Dtypes) -> JaxOp:
        key = form.spec, dtypes
        if key not in self._again:
            self._again[key] = JaxOp(as_passed(form), dtypes, self._assume)
        return self._again[key]


class _Pushed:
    """Tangents of some arrays to tangents of results."""

    def __init__(self, op: JaxOp, names: tuple[str, ...], results: tuple[str, ...]) -> None:
        self.op, self.names, self.results = op, names, results

    @cached_property
    def _jvp(self) -> Jvp:
        return Jvp(self.op.form.spec, list(self.names), self.op._vjp.assumed)

    def run(self, own: Sequence[Any], values: Sequence[Any], moving: Sequence[Any]) -> tuple[Any, ...]:
        return self._tangents(own, moving, lambda form, dtypes: self.op._call(form, dtypes))

    def differentiable(self, own: Sequence[Any], values: Sequence[Any], moving: Sequence[Any]) -> tuple[Any, ...]:
        return self._tangents(own, moving, lambda form, dtypes: self.op._op_of(form, dtypes)._op)

    def _tangents(self, own: Sequence[Any], moving: Sequence[Any], of: Callable[..., Any]) -> tuple[Any, ...]:
        jvp, op = self._jvp, self.op
        arrays = op._named(own)
        bound = bound_to(op.form.spec, arrays)
        dtypes = dict(zip(op.form.spec.outputs, _results(op.form.spec, bound, op._dtypes), strict=True))
        held = {**arrays, **dict(zip((jvp.tangents[n] for n in self.names), moving, strict=True))}
        found: dict[str, Any] = {}
        if jvp.spec is not None and jvp.form is not None:
            wanted = tuple(dtypes[n] for n, t in jvp.results.items() if t in jvp.spec.outputs)
            made = of(jvp.form, wanted)(*(held[d.name] for d in own_tensors(jvp.spec)))
            found = dict(zip(jvp.spec.outputs, made, strict=True))
        return tuple(self._whole(n, found.get(jvp.results[n]), bound.sizes, dtypes[n]) for n in self.results)

    def _whole(self, name: str, value: Any, sizes: Mapping[str, int], dtype: Any) -> Any:
        """A tangent along every axis of its output."""
        axes = self.op.form.spec.output_axes[name]
        if value is None or self._jvp.spec is None:
            return jax.numpy.zeros([sizes[a] for a in axes], dtype)
        own = self._jvp.spec.output_axes[self._jvp.results[name]]
        return jax.numpy.broadcast_to(
            value.reshape([sizes[a] if a in own else 1 for a in axes]), [sizes[a] for a in axes]
        )


class _Pulled:
    """Cotangents of the outputs to gradients of some arrays, each of the dtype of its array."""

    def __init__(self, op: JaxOp, names: tuple[str, ...], results: tuple[str, ...]) -> None:
        self.op, self.names, self.results = op, names, results
        self._others: dict[Spec, tuple[Unsaved | None, Mapping[str, str]]] = {}

    def _cotangents(self, vjp: Vjp, values: Sequence[Any], pulled: Sequence[Any]) -> dict[str, Any]:
        """Of every output that the gradients read one of."""
        held = dict(zip(self.op._vjp.forward.outputs, values, strict=True))
        return {n: jax.numpy.zeros_like(held[n]) for n in vjp.cotangents} | dict(zip(self.results, pulled, strict=True))

    def run(self, own: Sequence[Any], values: Sequence[Any], pulled: Sequence[Any]) -> tuple[Any, ...]:
        op, vjp, arrays = self.op, self.op._vjp.of(self.results), self.op._named(own)
        cotangents = self._cotangents(vjp, values, pulled)

        def run(form: Form, held: Mapping[str, Any]) -> Any:
            unsaved, lengths = self._unsaved(vjp, form.spec)
            call = op._call(form, _own_dtypes(form.spec, arrays), unsaved)
            given = {**arrays, **{t: cotangents[n] for n, t in vjp.cotangents.items()}, **held}
            sizes = sizes_of(op.form.spec, arrays) if lengths else {}
            given |= {name: jax.numpy.asarray(sizes[a]) for name, a in lengths.items()}
            return dict(zip(form.spec.outputs, call(*(given[d.name] for d in call.tensors)), strict=True))

        named = dict(zip(vjp.forward.outputs, values, strict=True))
        found = vjp.pulled(arrays, named, cotangents, run, self.names)
        return tuple(found[n].astype(_gradient_dtype(arrays[n])) for n in self.names)

    def _unsaved(self, vjp: Vjp, spec: Spec) -> tuple[Unsaved | None, Mapping[str, str]]:
        """What computes a spec of gradients where its saved values are lost, and what it reads of lengths."""
        if spec not in self._others:
            specs, seen = vjp.instead(spec)
            lengths = vjp.without_saved.lengths if specs else {}
            unsaved = Unsaved(specs, seen, (), vjp.rounds(spec), vjp.hides(spec)) if specs else None
            self._others[spec] = unsaved, lengths
        return self._others[spec]

    def differentiable(self, own: Sequence[Any], values: Sequence[Any], pulled: Sequence[Any]) -> tuple[Any, ...]:
        """The gradients as functions of JAX once more: through what reads nothing saved, since what was saved depends
        on the arrays, and counts with them."""
        op, again, arrays = self.op, self._read_anew, self.op._named(own)
        cotangents = self._cotangents(again, values, pulled)
        held = {**arrays, **{t: cotangents[n] for n, t in again.cotangents.items()}}
        sizes = sizes_of(op.form.spec, arrays)
        held |= {name: jax.numpy.asarray(sizes[a]) for name, a in again.lengths.items()}
        found = {n: jax.numpy.zeros_like(arrays[n]) for n in self.names}
        for spec in dict.fromkeys(again.specs.values()):
            made = op._op_of(again.forms[spec], _own_dtypes(spec, arrays))
            for name, value in zip(spec.outputs, made._op(*(held[d.name] for d in made.tensors)), strict=True):
                of = name.removeprefix("grad_")
                found[of] = again.stretched(of, value, arrays[of])
        return tuple(found[n].astype(_gradient_dtype(arrays[n])) for n in self.names)

    @cached_property
    def _read_anew(self) -> Vjp:
        return Vjp(self.op.form.spec, list(self.names), given=(), assume=self.op._vjp.assumed).of(self.results)


class _Call:
    """A form as a callback, which `vmap` replaces by that of the spec with one more axis.

    `unsaved`: what runs in its place where the saved values that it is given are lost; it is given more tensors then.
    """

    def __init__(self, form: Form, dtypes: Dtypes, unsaved: Unsaved | None = None) -> None:
        self.form, self.dtypes, self.unsaved = form, dtypes, unsaved
        own = own_tensors(form.spec)
        self.names = frozenset(d.name for d in own)
        self.tensors = [*own, *(d for d in (unsaved.tensors if unsaved else ()) if d.name not in self.names)]
        self._mapped: dict[frozenset[str], _Call] = {}
        self._hosts: dict[Any, Callable[..., Any]] = {}  # the same function for the same kind: JAX compares them
        self._mapping = jax.custom_batching.custom_vmap(self._callback)
        self._mapping.def_vmap(self._batched)
        self._compiled = jax.jit(self._mapping)

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        return tuple(self._compiled(*arrays))

    def _callback(self, *arrays: Any) -> Any:
        """Shapes and dtypes are settled here, once for every trace.

        A barrier makes results of arrays that are spread over devices arrays that JAX takes elsewhere.
        """
        spec = self.form.spec
        given = dict(zip((d.name for d in self.tensors), arrays, strict=True))
        bound = bound_to(spec, {n: a for n, a in given.items() if n in self.names})
        dtypes = _results(spec, bound, self.dtypes)
        shapes = [tuple(bound.sizes[a] for a in axes) for axes in spec.output_axes.values()]
        kinds = tuple(np.dtype(a.dtype) for a in arrays)
        host = self._hosts.setdefault((kinds, dtypes), partial(self._on_host, kinds, dtypes))
        wanted = [jax.eval_shape(_halves, jax.ShapeDtypeStruct(s, t)) for s, t in zip(shapes, dtypes, strict=True)]
        found = jax.lax.optimization_barrier(jax.pure_callback(host, wanted, *map(_halves, arrays)))
        return tuple(spread([_whole(f, t) for f, t in zip(found, dtypes, strict=True)], varying(arrays)))

    def _on_host(self, kinds: Dtypes, dtypes: Dtypes, *arrays: Any) -> list[np.ndarray]:
        given = [_of_halves(np.asarray(a), t) for a, t in zip(arrays, kinds, strict=True)]
        named = self._found({d.name: a for d, a in zip(self.tensors, given, strict=True)})
        return [
            _in_halves(_fitted(name, np.asarray(named[name]), t))
            for name, t in zip(self.form.spec.outputs, dtypes, strict=True)
        ]

    def _found(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        def run() -> Any:
            return self._run(**{n: a for n, a in given.items() if n in self.names})

        found = self.unsaved.found(given, run) if self.unsaved else run()
        return found if isinstance(found, dict) else dict.fromkeys(self.form.spec.outputs, found)

    @cached_property
    def _run(self) -> OnHost:
        return OnHost(self.form)

    def _batched(self, length: int, mapped: Sequence[bool], *arrays: Any) -> Any:
        names = frozenset(d.name for d, m in zip(self.tensors, mapped, strict=True) if m)
        if names not in self._mapped:
            own, unsaved = names & self.names, self.unsaved and self.unsaved.over(names)
            self._mapped[names] = _Call(mapped_form(self.form, own) if own else self.form, self.dtypes, unsaved)
        call = self._mapped[names]
        return call(*arrays), tuple(longer_outputs(call.form.spec, self.form.spec))


def jax_op(form: Form, assume: Iterable[str] = ()) -> JaxOp:
    """The form as a JAX function. Raises: RedalgError without JAX, and for an assumption that there is none of."""
    if jax is None:
        raise RedalgError("a JAX function", "form.jax", "JAX cannot be imported", "pip install jax")
    made = JaxOp(form, assume=assumed(assume, "form.jax"))
    made.registered(jax_op, form, made._assume)
    return made


def bound_to(spec: Spec, arrays: Mapping[str, Any]) -> Bound:
    """The lengths of the axes and the dtypes of traced arrays: stand-ins of their shapes are validated, of no size."""
    dtypes = {n: np.dtype(a.dtype) for n, a in arrays.items()}
    plain = {n: np.dtype(np.float32) if t.name in NARROW_ONLY else t for n, t in dtypes.items()}
    stands = {n: np.broadcast_to(np.zeros((), plain[n]), np.shape(a)) for n, a in arrays.items()}
    bound = bind(spec, stands, where=WHERE)
    known = {d.name: dtypes[d.array or d.name] for d in spec.tensors}
    return Bound(bound.arrays, bound.sizes, known, bound.origin)


def _results(spec: Spec, bound: Bound, wanted: Dtypes) -> Dtypes:
    """The dtypes that results have in JAX: what is wanted, or what the spec gives."""
    pairs = zip(spec.outputs, wanted, _dtypes(spec, bound), strict=True)
    return tuple(_held(name, dtype or own) for name, dtype, own in pairs)


def _dtypes(spec: Spec, bound: Bound) -> list[np.dtype]:
    return [flow.dtype for flow in result_flows(spec, bound).values()]


def _own_dtypes(spec: Spec, arrays: Mapping[str, Any]) -> Dtypes:
    """A gradient is of the dtype of its tensor."""
    return tuple(_gradient_dtype(arrays[n.removeprefix("grad_")]) for n in spec.outputs)


def _gradient_dtype(array: Any) -> np.dtype:
    return np.dtype(array.dtype) if _is_float(array) else np.dtype(np.float32)  # of whole numbers: left out


def _is_float(array: Any) -> bool:
    return bool(jax.numpy.issubdtype(array.dtype, jax.numpy.floating))


def _is_still(tangent: Any) -> bool:
    """Whether an array does not move: it is not differentiated by, or holds whole numbers."""
    return isinstance(tangent, jax.custom_derivatives.SymbolicZero) or tangent.dtype == jax.dtypes.float0


def _zero_tangent(value: Any) -> Any:
    """Whole numbers have tangents of their own kind."""
    return jax.numpy.zeros_like(value) if _is_float(value) else np.zeros(value.shape, jax.dtypes.float0)


# --- numbers of 64 bits ----------------------------------------------------------------------------------------------


def _array(decl: Any, given: Any) -> Any:
    """As an array of JAX; refused where that would cut it."""
    for part in jax.tree.leaves(given):
        if isinstance(part, np.ndarray | np.generic):
            _uncut(decl, np.asarray(part))
    if isinstance(given, np.ndarray | np.generic):
        given = given.astype(given.dtype.newbyteorder("="), copy=False)
    elif not isinstance(given, jax.Array | bool | int | float | complex | list | tuple) or _is_key(given):
        why, fix = "it is no array of JAX or NumPy that holds numbers", "pass jax.numpy.asarray(…)"
        raise RedalgError(f"{decl} given as {type(given).__name__}", WHERE, why, fix)
    if not all(isinstance(n, int) for n in getattr(given, "shape", ())):
        why = "kernels are chosen by lengths, and here one is a symbol"
        raise RedalgError(f"{decl} of shape {given.shape}", WHERE, why, "trace with lengths that are numbers")
    try:
        return jax.numpy.asarray(given)
    except (TypeError, ValueError, OverflowError) as error:
        what = f"{decl} given as {type(given).__name__}"
        raise RedalgError(what, WHERE, str(error).splitlines()[0], "pass an array of numbers") from error


def _is_key(given: Any) -> bool:
    """Whether it is an array of JAX's own kind of elements, such as keys of random numbers."""
    return isinstance(given, jax.Array) and jax.dtypes.issubdtype(given.dtype, jax.dtypes.extended)


def _uncut(decl: Any, array: np.ndarray) -> None:
    """Integers that fit are whole in fewer bits; floats are refused by their dtype, whatever they hold."""
    if array.dtype.kind not in "biufc" and array.dtype.name not in NARROW_ONLY:
        raise RedalgError(f"{decl} with dtype {array.dtype}", WHERE, "it does not hold numbers", "pass numbers")
    narrow = jax.dtypes.canonicalize_dtype(array.dtype)
    if narrow == array.dtype or array.dtype.kind in "iu" and _fits(array, narrow):
        return
    why = f"without jax_enable_x64, JAX would cut it to {narrow.name}"
    raise RedalgError(f"{decl} with dtype {array.dtype.name}", WHERE, why, f"{X64}, or pass it as {narrow.name}")


def _held(name: str, dtype: np.dtype) -> np.dtype:
    """The dtype of a result in JAX: int64 is checked when it is there, other numbers are not cut."""
    narrow = np.dtype(jax.dtypes.canonicalize_dtype(dtype))
    if narrow == dtype or dtype.kind in "iu":
        return narrow
    why = f"the spec gives {dtype.name} for these dtypes, which JAX without jax_enable_x64 would cut to {narrow.name}"
    raise RedalgError(f"the result {name}", WHERE, why, f"{X64}, or pass all tensors in {narrow.name}")


def _fitted(name: str, array: np.ndarray, dtype: np.dtype | None) -> np.ndarray:
    if dtype is None or array.dtype == dtype:
        return array
    if dtype.kind in "iu" and not _fits(array, dtype):
        raise RedalgError(f"the result {name}", WHERE, f"it holds a number that {dtype.name} does not", X64)
    return array.astype(dtype)


# JAX cuts what a callback takes and gives where it runs on a thread that has no `jax_enable_x64` of its own (one of
# XLA's, while the caller has it by `jax.enable_x64(True)`), so numbers of 64 bits travel as pairs of 32.


def _halves(array: Any) -> Any:
    if array.dtype == "complex128":
        array = jax.numpy.stack([array.real, array.imag], -1)
    return jax.lax.bitcast_convert_type(array, np.uint32) if array.dtype.name in _WIDE else array


def _whole(array: Any, dtype: Any) -> Any:
    if dtype == "complex128":
        parts = jax.lax.bitcast_convert_type(array, np.float64)
        return jax.lax.complex(parts[..., 0], parts[..., 1])
    return jax.lax.bitcast_convert_type(array, dtype) if dtype.name in _WIDE else array


def _of_halves(array: np.ndarray, dtype: Any) -> np.ndarray:
    if dtype.name not in (*_WIDE, "complex128"):
        return array
    shape = array.shape[: -2 if dtype.kind == "c" else -1]
    return np.ascontiguousarray(array).reshape(-1).view(dtype).reshape(shape)


def _in_halves(array: np.ndarray) -> np.ndarray:
    if array.dtype.name not in (*_WIDE, "complex128"):
        return array
    shape = (*array.shape, 2, 2) if array.dtype.kind == "c" else (*array.shape, 2)
    return np.ascontiguousarray(array).reshape(-1).view(np.uint32).reshape(shape)


_WIDE = ("float64", "int64", "uint64")


def _fits(array: np.ndarray, dtype: np.dtype) -> bool:
    range_of = np.iinfo(dtype)
    return not array.size or bool(range_of.min <= array.min() and array.max() <= range_of.max)


__all__ = ["JaxOp", "jax_op"]
