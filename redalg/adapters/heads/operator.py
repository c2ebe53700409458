"""Loss heads for PyTorch: specs over the products of two matrices, trained through without the products in memory.

`redalg.adapters.heads.parts` and `.extrema` take a spec apart, `.slabs` and `.gathers` compute; here is what PyTorch
sees of it.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from redalg.adapters import torch_op as torch_operators
from redalg.adapters.heads.extrema import Pooled
from redalg.adapters.heads.gathers import Gathers
from redalg.adapters.heads.orders import Orders
from redalg.adapters.heads.parts import WHERE, Head
from redalg.adapters.heads.second import Second
from redalg.adapters.heads.slabs import Arrays, Gradients, Slabs
from redalg.adapters.operands import Registered, by_name, own_tensors
from redalg.adapters.torch_graphs import is_traced, nested, traced
from redalg.adapters.torch_lists import from_list, in_list, mapped_list
from redalg.adapters.torch_modes import carry_tangents, maps_gradients, over_gradients, transformed, untraced
from redalg.adapters.torch_op import cast_under_autocast, numpy_dtype, torch_dtype, torch_op
from redalg.errors import RedalgError
from redalg.gradients.calls import Vjp, derived
from redalg.graph import node as g
from redalg.graph.node import Decl
from redalg.language.spec import Spec
from redalg.numeric.dtypes import output_flows

torch: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") else None

LATER, NOW = "later", "now"


class TorchHead(Registered):
    """``op(H, W, …)`` or ``op(H=…, …)``: the outputs of a head, with gradients, and no products in memory.

    With Z = H·Wᵀ of T rows and V columns, of T×d and V×d operands, a call makes Z in slabs of rows: one product. The
    gradient is taken

    * ``gradients="later"``: in the backward pass, which makes Z again: four products in all. Slabs are columns over
      all rows where no sum runs along a row (what such sums gave was saved): dW is written once, dH added up in
      float32. Otherwise they are rows, and dW is added up in float32.
    * ``gradients="now"``: in the call, from the same slabs: three products in all. For one scalar output whose
      gradient by the values of rows is known beforehand (a sum or a mean of them, weighted or not). The backward pass
      multiplies what was computed by its cotangent, once.

    ``logits``: the dtype that Z is held in, at least float32 unless named: "bfloat16" and "float16" round every
    logit to a relative 2⁻⁹ and 2⁻¹², and halve the memory that slabs move. dZ is rounded once to the operands' dtype;
    products add in float32. ``workspace``: bytes of Z that exist at a time, 512 MiB unless said otherwise; where dW
    would be added up over slabs, as much as its sum in float32 would take, so that few tokens (2·d in 16 bits) are one
    slab and nothing is added up.

    Results have the dtype that `Form.compile` gives them; under autocast, which casts the operands, float32 (float64
    stays). The same call gives the same bits. Outputs that are whole numbers (argmax) have no gradient. Gradients of
    gradients (`redalg.adapters.heads.second`) make the products of each slab again, twice; there is no third order, and
    at extrema over rows no second. Tangents (`torch.func.jvp`) make two more products, those of each operand with the
    tangent of the other. `torch.func.grad` and `vmap` call the operators for one sample after the other.

    A spec whose products are read by an extremum over rows alone, M[b,v] = max over s of e(Σ_d H[b,s,d]·E[v,d], …), is
    taken apart there (SPLADE's Y = log(1 + relu(M + bias)), late interaction): 16-bit operands on a GPU by a kernel
    that holds no products, others in slabs. Positions are saved (ties: the lowest), and gradients are sums of rows by
    position, without the products: dE[v] = Σ_b g[b,v]·H[b, s*[b,v]], dH[b,s] = Σ_v g[b,v]·E[v] over v with s* = s.

    Slabs of logits with their gradients at once: Hsu et al., Liger Kernel, 2024; made again in a backward pass:
    Wijmans et al., Cut Your Losses in Large-Vocabulary Language Models, 2024. Both are cross-entropy; here any spec.

    Raises: RedalgError for a spec that is no head, and where ``gradients="now"`` is asked for and cannot be had.

    >>> op = ra.torch.head(ra.parse("return lse = logsumexp[v](sum[d](H[t,d]*W[v,d]))"))        # doctest: +SKIP
    >>> op(torch.zeros(2, 3), torch.zeros(4, 3)).tolist()                                       # doctest: +SKIP
    [1.3862943649291992, 1.3862943649291992]
    """

    def __init__(
        self, parts: Head | Pooled, name: str, gradients: str, logits: str | None, workspace: int | None
    ) -> None:
        self.parts, self.name = parts, name
        self.tensors = own_tensors(parts.spec)
        pooled = isinstance(parts, Pooled)
        self.slabs: Any = (Gathers if pooled else Slabs)(parts, logits, workspace)  # type: ignore[arg-type]
        self.outputs = list(parts.values.outputs)
        self._outer = None if parts.outer is None else torch_op(derived(parts.outer), f"{name}_outer")
        if gradients == NOW and isinstance(parts, Pooled):
            why = "where an extremum is taken is known when its rows are"
            where = f'{WHERE}(gradients="now")'
            raise RedalgError(f"an extremum over {parts.stream}", where, why, 'gradients="later"')
        if gradients == NOW:
            check_known_slopes(parts.spec, parts.outer, parts.values.outputs)
        self._dtypes = result_dtypes(parts.spec, self.tensors)
        slabs: Any = self.slabs
        self._second = None if pooled else Second(slabs)
        self._ops = self._defined()
        self._orders = Orders(self)
        self._apply: Callable[[list[Any]], list[Any]] = self._now() if gradients == NOW else self._later()

    def __call__(self, /, *given: Any, **named: Any) -> Any:
        if any(map(is_traced, (*given, *named.values()))):
            return traced_call(self.tensors, given, named, self.name, len(self.parts.spec.outputs))
        arrays, dtypes, device = received(self.tensors, given, named, self.name, self._dtypes)
        own = list(arrays.values())
        own = own if device is None else self._under_autocast(own, device)
        pairs = zip(self.parts.spec.outputs, self._apply(own), strict=True)
        results = [x.to(dtypes[n]) if x.is_floating_point() else x for n, x in pairs]
        return results[0] if len(results) == 1 else tuple(results)

    def _under_autocast(self, own: list[Any], device: str) -> list[Any]:
        """The operands of products in its type."""
        operands = {d.name for p in self.parts.products for d in (p.left, p.right)}
        narrow = torch.get_autocast_dtype(device)
        pairs = zip(self.tensors, own, strict=True)
        return [cast_under_autocast(a, device, narrow) if d.name in operands else a for d, a in pairs]

    def __repr__(self) -> str:
        return f"<head {self.name} of {', '.join(self.parts.spec.outputs)}>"

    def _named(self, own: Sequence[Any]) -> Arrays:
        """By name; operands of a product have one dtype, and one length along the axis that is summed."""
        arrays = {d.name: a.detach() for d, a in zip(self.tensors, own, strict=True)}
        for p in self.parts.products:
            left, right = self.slabs.matrices(p, arrays)
            if left.shape[1] != right.shape[1] or left.dtype != right.dtype:
                shapes = [f"{d} of {tuple(a.shape)}, {a.dtype}" for d, a in ((p.left, left), (p.right, right))]
                what = " and ".join(shapes)
                raise RedalgError(what, self.name, f"they are multiplied along {p.inner}", "one length and one dtype")
        return arrays

    # --- operators ---

    def _defined(self) -> dict[str, Any]:
        """What compilers and modes see, by what it does; arguments are numbered, for names may be words of schemas."""
        namespace, short = self.name.split("::")
        self._library = torch.library.Library(namespace, "FRAGMENT")  # operators live as long as it does
        own = [f"Tensor a{k}" for k in range(len(self.tensors))]
        saved, pulled = (
            [f"Tensor {x}{k}" for k in range(len(n))] for x, n in (("s", self.slabs.kept), ("c", self.slabs.cotangents))
        )
        moving = [f"Tensor? t{k}" for k in range(len(own))]
        made: dict[str, tuple[list[str], Any, Any]] = {"_values": (own, self._values, self._fake_values)}
        made["_backward"] = [*own, *saved, *pulled], self._backward, self._fake_backward
        made["_tangents"] = [*own, *saved, *moving], self._tangents, self._fake_tangents
        made["_now"] = own, self._with_gradients, self._fake_now
        if self._second is not None:
            weights = [f"Tensor w{k}" for k in range(len(own))]
            made["_second"] = [*own, *pulled, *weights], self._by_second, self._fake_second
        return {suffix: self._registered(f"{short}{suffix}", *parts) for suffix, parts in made.items()}

    def _registered(self, short: str, arguments: list[str], run: Any, fake: Any) -> Any:
        """One operator; its tensors are one list where PyTorch takes no more arguments."""
        namespace, listed = self.name.partition("::")[0], len(arguments) > torch_operators.MOST_ARGUMENTS
        schema = "Tensor?[] a" if listed else ", ".join(arguments)
        self._library.define(f"{short}({schema}) -> Tensor[]")
        operator = call = getattr(getattr(torch.ops, namespace), short).default
        if listed:
            call = in_list(operator, len(arguments))
        run, rule = untraced(run), untraced(one_by_one(call, fake))
        legacy = over_gradients(call, rule)
        if listed:
            run, fake, rule, legacy = from_list(run), from_list(fake), mapped_list(rule), from_list(legacy)
        for key in ("CPU", "CUDA"):
            self._library.impl(short, run, key)
        torch.library.register_fake(f"{namespace}::{short}", fake, lib=self._library)
        torch.library.register_vmap(f"{namespace}::{short}", rule, lib=self._library)
        self._library.impl(short, legacy, "Batched")
        return call

    def _values(self, *own: Any) -> list[Any]:
        found = self.slabs.values(self._named(own))
        return [found[n] for n in self.slabs.kept]

    def _fake_values(self, *own: Any) -> list[Any]:
        found = self.slabs.shapes({d.name: a for d, a in zip(self.tensors, own, strict=True)})
        return [found[n] for n in self.slabs.kept]

    def _backward(self, *given: Any) -> list[Any]:
        count, given = len(self.tensors), tuple(a.detach() for a in given)  # a graph of this pass may be wanted
        kept = dict(zip(self.slabs.kept, given[count:], strict=False))
        cotangents = dict(zip(self.slabs.cotangents, given[count + len(kept) :], strict=True))
        arrays = self._named(given[:count])
        found = self.slabs.gradients(arrays, kept, cotangents)
        return [found[n] if n in found else torch.zeros_like(a) for n, a in arrays.items()]

    def _tangents(self, *given: Any) -> list[Any]:
        """Of the values that have any, along those of the tensors that move."""
        count, given = len(self.tensors), tuple(None if a is None else a.detach() for a in given)
        arrays, kept = self._named(given[:count]), dict(zip(self.slabs.kept, given[count:], strict=False))
        pairs = zip(arrays.items(), given[count + len(kept) :], strict=True)
        moving = {n: t.to(a.dtype) for (n, a), t in pairs if t is not None and a.is_floating_point()}
        found = (self._second or self.slabs).tangents(arrays, kept, moving)
        return [found[n].to(kept[n].dtype) for n in self.slabs.cotangents]

    def _fake_tangents(self, *given: Any) -> list[Any]:
        kept = zip(self.slabs.kept, given[len(self.tensors) :], strict=False)
        return [
            torch.empty_like(x, memory_format=torch.contiguous_format) for n, x in kept if n in self.slabs.cotangents
        ]

    def _by_second(self, *given: Any) -> list[Any]:
        """The gradients of what `_backward` gives, weighed: by the tensors, and by the cotangents."""
        assert self._second is not None
        count, names, given = len(self.tensors), list(self.slabs.cotangents), tuple(a.detach() for a in given)
        arrays, pulled = self._named(given[:count]), given[count : count + len(names)]
        weights = {d.name: w for d, w in zip(self.tensors, given[count + len(names) :], strict=True)}
        weights = {n: w.to(arrays[n].dtype) for n, w in weights.items() if arrays[n].is_floating_point()}
        cotangents = dict(zip(names, pulled, strict=True))
        own, changes = self._second(arrays, cotangents, weights)
        return [*(own[n] if n in own else torch.zeros_like(a) for n, a in arrays.items()), *changes.values()]

    def _fake_second(self, *given: Any) -> list[Any]:
        count = len(self.tensors) + len(self.slabs.cotangents)
        return [torch.empty_like(a, memory_format=torch.contiguous_format) for a in given[:count]]

    def _fake_backward(self, *given: Any) -> list[Any]:
        return [torch.empty_like(a, memory_format=torch.contiguous_format) for a in given[: len(self.tensors)]]

    def _with_gradients(self, *own: Any) -> list[Any]:
        """The output, and its gradients by all tensors: those by the values of rows are known before these are."""
        assert isinstance(self.parts, Head)
        arrays, row = self._named(own), self.parts.row
        length = self.slabs.length(arrays, row)
        nothing = own[0].new_zeros((length,), dtype=self._value_dtype(arrays))
        slopes = self._outer_gradients(arrays, lambda n: nothing)[1]
        parts = self.slabs.row_slabs(arrays, graded=True)
        sums, values = Gradients(self.slabs, arrays, row, len(parts)), []
        for start, stop in parts:
            part = self.slabs.cut(arrays, row, start, stop)
            products = self.slabs.products(part)
            made = self.slabs.values_of(part | products, start, arrays)
            values.append(made)
            beside = {tensor: made[n] for tensor, n in self.slabs.vjp.saved_tensors.items()}
            beside |= {t: slopes[n][start:stop].to(made[n].dtype) for n, t in self.slabs.vjp.cotangents.items()}
            sums.add(part | beside, products, start, stop)
        out, more = self._outer_gradients(arrays, lambda n: torch.cat([made[n] for made in values]))
        found = sums.results()
        for n in found.keys() & more.keys():
            found[n] += more[n]
        given = more | found
        return [out, *(given[n] if n in given else torch.zeros_like(a) for n, a in arrays.items())]

    def _value_dtype(self, arrays: Arrays) -> Any:
        return self.slabs.product_dtype(arrays[self.parts.products[0].left.name].dtype)

    def _outer_gradients(self, arrays: Arrays, value: Callable[[str], Any]) -> tuple[Any, Arrays]:
        """The output from values of rows, and its gradients by these and by the tensors that it reads itself."""
        assert self._outer is not None
        leaves = {}
        for d in self._outer.tensors:
            a = value(d.name) if d.name in self.outputs else arrays[d.name]
            leaves[d.name] = a.detach().requires_grad_(a.is_floating_point())
        with torch.enable_grad():
            out = self._outer(*leaves.values())
        wanted = {n: a for n, a in leaves.items() if a.requires_grad}
        found = torch.autograd.grad(out, list(wanted.values()), allow_unused=True)
        pairs = zip(wanted, wanted.values(), found, strict=True)
        return out.detach(), {n: torch.zeros_like(a) if x is None else x for n, a, x in pairs}

    def _fake_now(self, *own: Any) -> list[Any]:
        return [own[0].new_empty((), dtype=self._value_dtype(self._named(own))), *self._fake_backward(*own)]

    # --- autograd ---

    def _later(self) -> Callable[[list[Any]], list[Any]]:
        op = self

        class Values(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, *own: Any) -> Any:
                found = tuple(op._ops["_values"](*own))
                op._orders.keep(ctx, own, found)
                return found

            @staticmethod
            def backward(ctx: Any, *gradients: Any) -> Any:
                return op._orders.pull(ctx, gradients)

        def apply(own: list[Any]) -> list[Any]:
            moving = in_forward_mode(own, op.name)
            if torch.compiler.is_compiling():
                made = Values.apply(*apart(own)) if wants_gradients(own) else op._ops["_values"](*own)
            else:
                made = (op._orders.values if moving or transformed() else Values).apply(*own)
            values = dict(zip(op.outputs, made, strict=False))
            if op._outer is None:
                return [values[n] for n in op.parts.spec.outputs]
            arrays = {d.name: a for d, a in zip(op.tensors, own, strict=True)} | values
            found = op._outer(*(arrays[d.name] for d in op._outer.tensors))
            return list(found) if isinstance(found, tuple) else [found]

        return apply

    def _now(self) -> Callable[[list[Any]], list[Any]]:
        op, later = self, self._later()

        class Loss(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, *own: Any) -> Any:
                out, *gradients = op._ops["_now"](*own)
                ctx.save_for_backward(*gradients, *own)
                return out

            @staticmethod
            def backward(ctx: Any, cotangent: Any) -> Any:
                needs, saved = ctx.needs_input_grad, ctx.saved_tensors
                gradients, own = saved[: len(needs)], saved[len(needs) :]
                if not torch.is_grad_enabled() or torch.compiler.is_compiling():
                    pairs = zip(gradients, needs, strict=True)
                    return tuple(x * cotangent.to(x.dtype) if need else None for x, need in pairs)
                (out,) = later(list(own))  # whose gradients have gradients
                wanted = [a for a, need in zip(own, needs, strict=True) if need]
                found = torch.autograd.grad(out, wanted, cotangent.to(out.dtype), create_graph=True, allow_unused=True)
                made = iter(found)
                return tuple(next(made) if need else None for need in needs)

        def apply(own: list[Any]) -> list[Any]:
            if not wants_gradients(own) or transformed() or in_forward_mode(own, op.name):
                return later(own)
            return [Loss.apply(*(apart(own) if torch.compiler.is_compiling() else own))]

        return apply


def wants_gradients(own: Sequence[Any]) -> bool:
    return torch.is_grad_enabled() and any(a.requires_grad for a in own)


def apart(own: Sequence[Any]) -> list[Any]:
    """Views where a tensor is given twice, which PyTorch compiles no function of autograd with."""
    found: list[Any] = []
    for a in own:
        found.append(a.view_as(a) if any(a is b for b in found) else a)
    return found


def in_forward_mode(own: Sequence[Any], where: str) -> bool:
    """Whether a forward-mode derivative is being taken along one of the tensors.

    Raises: RedalgError where PyTorch would lose it.
    """
    if torch.compiler.is_compiling() and torch.autograd.forward_ad._current_level >= 0:
        why = "PyTorch drops the tangents of operators of a library in what it compiles"
        raise RedalgError("forward mode inside torch.compile", where, why, "torch.func.jvp outside of it, or spec.jvp")
    moving = carry_tangents(own)
    if moving and maps_gradients():
        why = "the vmap of torch.autograd.functional has no rule for functions that have tangents"
        raise RedalgError("a tensor with a tangent inside a vmap", where, why, "torch.func.jvp, jacfwd or hessian")
    return moving


def one_by_one(operator: Any, fake: Any) -> Callable[..., Any]:
    """A rule of vmap that calls an operator for every sample, so that it has no more products at a time."""

    def rule(info: Any, places: Sequence[int | None], *given: Any) -> Any:
        moved = [a if p is None else a.movedim(p, 0) for a, p in zip(given, places, strict=True)]

        def sample(k: int) -> list[Any]:
            return [a if p is None else a[k] for a, p in zip(moved, places, strict=True)]

        if not info.batch_size:
            empty = fake(*(a if p is None else a.new_empty(a.shape[1:]) for a, p in zip(moved, places, strict=True)))
            return [x.new_empty((0, *x.shape)) for x in empty], [0] * len(empty)
        made = [operator(*sample(k)) for k in range(info.batch_size)]
        return [torch.stack(x) for x in zip(*made, strict=True)], [0] * len(made[0])

    return rule


def result_dtypes(spec: Spec, tensors: Sequence[Decl]) -> Callable[[tuple[Any, ...]], dict[str, Any]]:
    """The dtypes of the results from those of the tensors; a compiler takes what it gives as it is."""

    def found(given: tuple[Any, ...]) -> dict[str, Any]:
        dtypes = {d.name: numpy_dtype(x) for d, x in zip(tensors, given, strict=True)}
        return {n: torch_dtype(f.dtype) for n, f in output_flows(spec, dtypes).items()}

    made: Callable[[tuple[Any, ...]], dict[str, Any]] = torch.compiler.assume_constant_result(found)
    return made


def check_known_slopes(spec: Spec, outer: Spec | None, values: Iterable[str]) -> None:
    """Raises: RedalgError unless there is one scalar output whose gradient by values of rows reads none of them."""
    where = f'{WHERE}(gradients="now")'
    axes = next(iter(spec.output_axes.values()))
    if outer is None or len(spec.outputs) > 1 or axes:
        what = ", ".join(f"{n}[{','.join(a)}]" for n, a in spec.output_axes.items())
        why = "gradients are taken at once of one scalar"
        raise RedalgError(f"the outputs {what}", where, why, 'gradients="later"')
    names = set(values)
    for name, gradient in Vjp(outer, sorted(names), given=()).specs.items():
        read = names & {leaf.attr.name for n in gradient.outputs.values() for leaf in g.leaves(n)}
        if read:
            why = f"the gradient by {name} reads {', '.join(sorted(read))}, which is known when all rows are"
            raise RedalgError(f"the output {next(iter(spec.outputs))}", where, why, 'gradients="later"')


def traced_call(
    tensors: Sequence[Decl], given: Sequence[Any], named: Mapping[str, Any], where: str, results: int
) -> Any:
    """A call of a head as a node of a graph of `torch.fx`."""
    return traced(where, list(by_name(tensors, given, named, where).values()), results)


def received(
    tensors: Sequence[Decl],
    given: Sequence[Any],
    named: Mapping[str, Any],
    where: str,
    dtypes: Callable[[tuple[Any, ...]], dict[str, Any]],
) -> tuple[Arrays, dict[str, Any], str | None]:
    """The tensors of a call, the dtypes of its results, and the device whose autocast casts operands, if one does."""
    if torch.jit.is_tracing():
        why, fix = (
            "TorchScript holds no function of autograd that is written in Python",
            "torch.export, or torch.compile",
        )
        raise RedalgError("a call under torch.jit.trace", where, why, fix)
    arrays = by_name(tensors, given, named, where)
    like = next((a for a in arrays.values() if isinstance(a, torch.Tensor)), None)
    if like is None:
        raise RedalgError("a call without a tensor", where, "operators take tensors of PyTorch", "pass them")
    doubles = any(isinstance(a, torch.Tensor) and a.dtype == torch.float64 for a in arrays.values())
    floats = torch.float64 if doubles else torch.float32
    own = {d.name: _as_tensor(d, arrays[d.name], like, floats, where) for d in tensors}
    found = dtypes(tuple(a.dtype for a in own.values()))
    device = like.device.type
    if device not in ("cpu", "cuda") or not torch.is_autocast_enabled(device):
        return own, found, None
    return own, {n: x if x == torch.float64 else torch.float32 for n, x in found.items()}, device


def _as_tensor(d: Decl, value: Any, like: Any, floats: Any, where: str) -> Any:
    """A tensor; a number, or a list of them, is of `floats` unless the spec declares another kind, and an array of
    NumPy of its own dtype. Raises: RedalgError for what is no dense tensor of the tensor's axes."""
    if not isinstance(value, torch.Tensor):
        kind = next((k for k in ("integer", "bool") if k in d.domain), None)
        weak = None if hasattr(value, "dtype") else {None: floats, "integer": torch.int64, "bool": torch.bool}[kind]
        try:
            value = torch.as_tensor(value, dtype=weak, device=like.device)
        except (TypeError, ValueError, RuntimeError, OverflowError) as error:
            what, why = f"{d} given as {type(value).__name__}", str(error).splitlines()[0]
            raise RedalgError(what, where, why, "pass a tensor, or a number") from error
    if value.is_nested:
        raise nested(d, where)
    if value.layout != torch.strided:
        what, why = f"{d} of layout {value.layout}", "kernels read dense tensors by their strides"
        raise RedalgError(what, where, why, "pass x.to_dense()")
    if value.dim() != len(d.axes):
        raise RedalgError(f"{d.name} of {value.dim()} dimensions", where, f"it is {d}", "pass its axes")
    return value


__all__ = ["LATER", "NOW", "TorchHead", "check_known_slopes", "received", "result_dtypes", "traced_call"]
