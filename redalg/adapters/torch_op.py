"""A form as a PyTorch operator: autograd by its derived derivative, `torch.compile` without a graph break, vmap.

Three operators stand behind one name. ``ns::name`` gives the outputs, ``ns::name_saved`` the outputs and what a
backward pass reads (`redalg.gradients.calls.Vjp.forward`), ``ns::name_backward`` those gradients that are wanted (their
numbers among those there are) by the cotangents of some outputs (by number, too). They are functional,
their shapes and dtypes follow from the spec, and what a call does beside them is to look whether a gradient is wanted.
"""

from __future__ import annotations

import importlib
import importlib.util
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from redalg.adapters.operands import (
    OnHost,
    Registered,
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
from redalg.adapters.precision import multiplies_matrices, reduces, wide_outputs
from redalg.adapters.torch_graphs import is_traced, nested, traced
from redalg.adapters.torch_lists import from_list, in_list, keeping_list, mapped_list, of_list
from redalg.adapters.torch_modes import (
    LEAVES,
    ON_GPU,
    RECORDED,
    WATCHED,
    carry_tangents,
    differentiates,
    glance,
    is_batch,
    maps_gradients,
    over_gradients,
    transformable,
    transformed,
    undisturbed,
    unrecorded,
    untraced,
)
from redalg.engine.normalise import axes_of
from redalg.engine.passes import ASSUMPTIONS
from redalg.errors import RedalgError
from redalg.form import Form
from redalg.gradients.calls import Jvp, Vjp
from redalg.gradients.steps import Steps
from redalg.graph.masked import new_axes
from redalg.graph.node import Decl
from redalg.joint import Joint
from redalg.language.spec import Spec
from redalg.numeric.array_origin import BFLOAT16_BITS, NARROW_ONLY
from redalg.numeric.binding import check_kind
from redalg.numeric.dtypes import output_flows
from redalg.streaming import repeats

torch: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") else None

_MADE: dict[str, tuple[TorchOp, frozenset[str]]] = {}  # with what their derivatives assume
_MAKING = threading.RLock()
_LIBRARIES: dict[str, Any] = {}
NARROW = {"bfloat16": BFLOAT16_BITS}
WHICH = "int[] wanted", "int[] of"  # gradients, by cotangents
MOST_ARGUMENTS = 64  # of an operator of PyTorch
Gradients = tuple[Form | Joint | Steps, list[tuple[str, int]], list[tuple[str, str, bool]]]


class TorchOp(Registered):
    """``op(Q, K, V)`` or ``op(Q=…, …)``: tensors in the spec's order; a tensor, or a tuple in the order of outputs.

    Scalars are 0-d tensors or numbers. CPU tensors run the CPU target, CUDA tensors the CUDA target. Results are
    contiguous. Gradients are those of `Vjp`, of any order: a backward pass that is itself differentiated runs as
    operators of the derivative's specs. `vmap` derives the spec with one more axis.

    Under `torch.autocast`, what PyTorch does on GPUs to operators of the kind, and the kind is read off the spec: with
    a matrix product (`redalg.graph.contractions.contracts`) it takes its floats in the autocast type, and results
    whose last stage is another one (the loss of a linear head) come in float32; other reductions (norms, softmax,
    losses) take float32; specs without a reduction run in the types they meet. float64 stays float64.

    >>> op = ra.derive_incremental(ra.catalog["softmax"]).torch_op("mylib::softmax")        # doctest: +SKIP
    >>> x = torch.zeros(2, 3, requires_grad=True)                                           # doctest: +SKIP
    >>> op(x)[:, 0].sum().backward()                                                        # doctest: +SKIP
    """

    def __init__(self, form: Form, name: str, assume: Iterable[str] = ()) -> None:
        self.form, self.name = form, name
        self.tensors = own_tensors(form.spec)
        self.derivative = derivative(form.spec, assume)
        self._compiled: dict[Any, Any] = {}
        self._related: dict[Any, Any] = {}  # of derivatives, and of specs with one more axis
        self._function, self._record = self._applied(), self._recorded()
        self._mixed = self._mixed_precision()
        count, vjp = len(self.tensors), self.vjp
        self.plain = self._defined("", count, self._run_plain, self._fake_plain, self._batched_plain)
        if vjp is None:  # whoever differentiates the operator by its name has no zero in the place of a refusal
            torch.library.register_autograd(name, self._refused)
        if vjp is None or not vjp.wrt:
            return
        self.with_saved = self._defined("_saved", count, self._run_saved, self._fake_saved, self._batched_saved)
        count += len(vjp.forward.outputs) + len(vjp.cotangents)
        self.backward = self._defined(
            "_backward", count, self._run_backward, self._fake_backward, self._batched_backward, *WHICH
        )
        listed, pull, again = len(self.tensors) > MOST_ARGUMENTS, self._pull, self._pull_again
        for suffix, back, keep in (("_saved", pull, self._keep), ("", again, self._keep_tensors)):
            rule, setup = (of_list(back), keeping_list(keep)) if listed else (back, keep)
            torch.library.register_autograd(f"{name}{suffix}", rule, setup_context=setup)

    @cached_property
    def _by_name(self) -> Callable[[Sequence[Any]], dict[str, Any]]:
        """``values`` -> {name of a tensor: value}, written out: `zip` takes longer than all else beside a kernel."""
        items = ", ".join(f"{d.name!r}: values[{k}]" for k, d in enumerate(self.tensors))
        made: Callable[[Sequence[Any]], dict[str, Any]] = eval(f"lambda values: {{{items}}}")
        return made

    @cached_property
    def _forward(self) -> Form:
        """What training runs: the outputs, and what a backward pass reads."""
        assert self.vjp is not None
        return self.vjp.forms[self.vjp.forward]

    def forward_mode(self, names: tuple[str, ...]) -> tuple[Jvp, TorchOp | None]:
        """The tangents along those of the named tensors, and the operator that computes them, if they are not 0."""
        key = "jvp", names
        if key not in self._related:
            jvp = Jvp(self.spec, names, self.assumed)
            name = "_".join((self.name, "jvp", *(str(k) for k, d in enumerate(self.tensors) if d.name in names)))
            made = None if jvp.form is None else torch_op(as_passed(jvp.form), name, self.assumed)
            self._related[key] = jvp, made
        found: tuple[Jvp, TorchOp | None] = self._related[key]
        return found

    @property
    def spec(self) -> Spec:
        return self.form.spec

    @property
    def outputs(self) -> list[str]:
        return list(self.form.spec.outputs)

    @property
    def vjp(self) -> Vjp | None:
        return self.derivative if isinstance(self.derivative, Vjp) else None

    @property
    def assumed(self) -> frozenset[str]:
        """What the derivative assumes."""
        return self.derivative.assumed if isinstance(self.derivative, Vjp) else frozenset()

    @cached_property
    def _read_anew(self) -> Vjp:
        """The derivative that reads nothing saved, for derivatives of it."""
        assert self.vjp is not None
        return Vjp(self.spec, list(self.vjp.wrt), given=(), assume=self.assumed)

    def __call__(self, /, *given: Any, **named: Any) -> Any:
        arrays: Sequence[Any] = given
        if named or len(given) != len(self.tensors):
            arrays = list(by_name(self.tensors, given, named, self.name).values())
        seen = glance(arrays)
        if seen == WATCHED:
            return self._watched(arrays)
        if self._mixed is not None and torch.is_autocast_enabled("cuda" if seen & ON_GPU else "cpu"):
            return self._autocast(arrays, "cuda" if seen & ON_GPU else "cpu")
        if seen & RECORDED:
            return self._record(*arrays)
        if seen & LEAVES:
            arrays = [unrecorded(a) for a in arrays]
        run, held = self._compiled.get(seen & ON_GPU), self._by_name(arrays)
        found = self._run_first(self.form, held, seen & ON_GPU) if run is None else run(**held)
        return tuple(map(_contiguous, found.values())) if found.__class__ is dict else _contiguous(found)

    def _watched(self, arrays: Sequence[Any]) -> Any:
        """A call that others see, or with numbers."""
        if any(map(is_traced, arrays)):
            return traced(self.name, arrays, len(self.outputs))
        if not all(isinstance(a, torch.Tensor) for a in arrays):
            arrays = self._ordered(arrays, {})
        for d, a in zip(self.tensors, arrays, strict=True):
            if a.is_nested:
                raise nested(d, self.name)
        device = arrays[0].device.type if arrays else ""
        if self._mixed is not None and device in ("cpu", "cuda") and torch.is_autocast_enabled(device):
            return self._autocast(arrays, device)
        return self._called(arrays)

    def _autocast(self, arrays: Sequence[Any], device: str) -> Any:
        assert self._mixed is not None
        op, narrow = self._mixed
        dtype = torch.get_autocast_dtype(device) if narrow else torch.float32
        return op._called([cast_under_autocast(a, device, dtype) for a in arrays])

    def _called(self, arrays: Sequence[Any]) -> Any:
        found: Any
        if torch.compiler.is_compiling() and torch.autograd.forward_ad._current_level >= 0:
            why = "PyTorch drops the tangents of operators of a library in what it compiles"
            raise RedalgError(
                "forward mode inside torch.compile", self.name, why, "torch.func.jvp outside of it, or spec.jvp"
            )
        if undisturbed(arrays):
            if torch.is_grad_enabled() and any(a.requires_grad for a in arrays):
                return self._record(*arrays)
            found = self._run_plain(*arrays)
        elif differentiates():
            found = self._function.apply(*arrays)
        elif carry_tangents(arrays):
            found = (
                self._mapped_tangents(arrays) if transformed() or maps_gradients() else self._function.apply(*arrays)
            )
        elif torch.is_grad_enabled() and any(a.requires_grad for a in arrays):
            found = self._differentiable_results(arrays)
        else:
            found = self.plain(*arrays)
        found = found[: len(self.outputs)]
        return found[0] if len(found) == 1 else tuple(found)

    def _refused(self, *given: Any) -> Any:
        assert isinstance(self.derivative, RedalgError)
        raise self.derivative

    def _differentiable_results(self, arrays: Sequence[Any]) -> Any:
        if isinstance(self.derivative, RedalgError):
            raise self.derivative
        self._refuse_complex([a.requires_grad for a in arrays], ())
        if torch.jit.is_tracing():  # functions of autograd written in Python are none of TorchScript
            return self.plain(*arrays)
        differentiable = self.with_saved if torch.compiler.is_compiling() or maps_gradients() else self._function.apply
        return differentiable(*arrays)

    def _mapped_tangents(self, arrays: Sequence[Any]) -> list[Any]:
        """Under a vmap that maps over tangents of `torch.autograd.forward_ad`: each result with its own."""
        level = torch.autograd.forward_ad
        if torch.is_grad_enabled() and any(a.requires_grad for a in arrays) or any(map(is_batch, arrays)):
            why = "a gradient that is taken of it, or what is mapped over, would lose the tangent"
            fix = "torch.func.jvp, jacfwd or hessian, or reverse mode"
            raise RedalgError("a tensor with a tangent inside a vmap", self.name, why, fix)
        pairs = [level.unpack_dual(a) for a in arrays]
        values = self._called([p.primal for p in pairs])
        values = values if isinstance(values, tuple) else (values,)
        given = {d.name: p.tangent for d, p in zip(self.tensors, pairs, strict=True) if p.tangent is not None}
        found = tangents_of(self, [p.primal for p in pairs], given)
        made = zip(self.outputs, values, strict=True)
        return [level.make_dual(v, found[n]) if n in found else v for n, v in made]

    def __repr__(self) -> str:
        return f"<torch operator {self.name} of {', '.join(self.outputs)}>"

    def _mixed_precision(self) -> tuple[TorchOp, bool] | None:
        """The operator under autocast, and whether its operands are narrow; None for one that it leaves alone.

        For narrow operands it is of the same form, but for results that keep float32.
        """
        spec = self.spec
        if not multiplies_matrices(spec):
            return (self, False) if reduces(spec) else None
        wide = {n: "float32" for n in wide_outputs(spec) if n not in spec.dtypes}
        if not wide:
            return self, True
        formats = {**spec.dtypes, **wide}
        wider = Spec.from_nodes(
            spec.outputs, tensors=spec.tensors, order=spec.output_axes, empty=spec.empty, dtypes=formats
        )
        return torch_op(Form(wider, self.form.plan), f"{self.name}_autocast", self.assumed), True

    def _applied(self) -> Any:
        """The same derivative around the operators, which the transforms of `torch.func` want, and which costs less."""
        if isinstance(self.derivative, RedalgError):
            return transformable(lambda *given: self.plain(*given), lambda *kept: None, self._refused, self._refused)
        return transformable(lambda *arrays: self.with_saved(*arrays), self._keep_both_ways, self._pull, self._push)

    def _recorded(self) -> Callable[..., Any]:
        """The same where nobody looks on but autograd: a tensor or a tuple, without the dispatcher and without what
        `torch.func` needs at every call. What is saved beside the outputs is none, and has no node of its own."""
        op = self
        if isinstance(self.derivative, RedalgError):
            return self._refused
        count, several, real = len(self.form.spec.outputs), len(self.form.spec.outputs) > 1, not self._complex

        class Recorded(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, *arrays: Any) -> Any:
                kept = op._results(op._forward, arrays)
                ctx.save_for_backward(*arrays, *kept)
                if not real:
                    op._refuse_complex(ctx.needs_input_grad, kept)
                if not several:
                    if not kept[0].is_floating_point():
                        ctx.mark_non_differentiable(kept[0])
                    return kept[0]
                own = kept[:count]
                ctx.set_materialize_grads(False)
                ctx.mark_non_differentiable(*(o for o in own if not o.is_floating_point()))
                return tuple(own)

            @staticmethod
            def backward(ctx: Any, *gradients: Any) -> Any:
                return op._pull(ctx, gradients)

        # `Function.apply` asks whether a transform is active, which a glance has; what it calls then is enough.
        found: Any = getattr(super(torch.autograd.Function, Recorded), "apply", Recorded.apply)
        return found

    # --- definition --------------------------------------------------------------------------------------------------

    def _defined(self, suffix: str, count: int, run: Callable[..., Any], fake: Any, batched: Any, *more: str) -> Any:
        """One operator; its arguments are numbered, since names of tensors may be words of the schema, and one list
        of tensors where PyTorch takes no more arguments."""
        namespace, short = f"{self.name}{suffix}".split("::")
        library = _LIBRARIES.setdefault(namespace, torch.library.Library(namespace, "FRAGMENT"))
        listed = count + len(more) > MOST_ARGUMENTS
        tensors = ["Tensor[] a"] if listed else [f"Tensor a{k}" for k in range(count)]
        library.define(f"{short}({', '.join([*tensors, *more])}) -> Tensor[]")
        operator = call = getattr(getattr(torch.ops, namespace), short).default
        if listed:
            call = in_list(operator, count)
        run, batched = untraced(run), untraced(batched)
        legacy = over_gradients(call, batched)
        if listed:
            run, fake, batched, legacy = from_list(run), from_list(fake), mapped_list(batched), from_list(legacy)
        for key in ("CPU", "CUDA"):
            library.impl(short, run, key)
        torch.library.register_fake(f"{namespace}::{short}", fake, lib=library)
        torch.library.register_vmap(f"{namespace}::{short}", batched, lib=library)
        library.impl(short, legacy, "Batched")
        return call

    def _ordered(self, given: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        arrays = by_name(self.tensors, given, named, self.name)
        like = next((a for a in arrays.values() if isinstance(a, torch.Tensor)), torch.zeros(()))
        floats = next((a.dtype for a in arrays.values() if isinstance(a, torch.Tensor) and a.is_floating_point()), None)
        pairs = ((d, arrays[d.name]) for d in self.tensors)
        return [a if isinstance(a, torch.Tensor) else self._tensor(d, a, like, floats) for d, a in pairs]

    def _tensor(self, decl: Decl, given: Any, like: Any, floats: Any) -> Any:
        """What is no tensor as one; a number is of the tensors' dtype, as for PyTorch, and an array of its own."""
        weak = isinstance(given, (bool, int, float)) and not decl.domain & {"integer", "bool"}
        try:
            return torch.as_tensor(given, dtype=floats if weak else None, device=like.device)
        except (TypeError, ValueError, RuntimeError, OverflowError) as error:
            why = str(error).splitlines()[0]
            what = f"{decl} given as {type(given).__name__}"
            raise RedalgError(what, self.name, why, "pass a tensor, or a number") from error

    # --- running -----------------------------------------------------------------------------------------------------

    def _run_plain(self, *arrays: Any) -> list[Any]:
        return self._results(self.form, arrays)

    def _run_saved(self, *arrays: Any) -> list[Any]:
        return self._results(self._forward, arrays)

    def _run_backward(self, *given: Any) -> list[Any]:
        """The specs of the gradients one after the other; which arrays each of them reads is found once."""
        assert self.vjp is not None
        *arrays, wanted, of = given
        held = [unrecorded(a) for a in arrays]
        pulled = held[len(held) - len(self.vjp.cotangents) :]
        of = [k for k in of if pulled[k].numel()]  # an output without elements has no share in a gradient
        own: dict[str, Any] = dict(zip((d.name for d in self.tensors), held, strict=False))
        values = dict(zip(self.vjp.forward.outputs, held[len(own) :], strict=False))
        if not all(a.numel() for a in own.values()):
            along = self.vjp.along(sizes_of(self.spec, own))
            if along is not self.vjp:
                return self._read_again(along.of(_outputs(self.vjp, of)), own, values, pulled, wanted)
        vjp, plan = self._planned_backward(wanted, of)
        if (other := vjp.without(values)) is not vjp:
            return self._read_again(other, own, values, pulled, wanted)
        with repeats() as wider:
            gradients = self._gradients(vjp, plan, held, own)
        if (other := vjp.after(wider, gradients.values())) is not vjp:
            return self._read_again(other, own, values, pulled, wanted)
        return [gradients[n] if n in gradients else torch.zeros_like(own[n]) for n in _named(self.vjp, wanted)]

    def _gradients(
        self, vjp: Vjp, plan: Sequence[Gradients], held: Sequence[Any], own: Mapping[str, Any]
    ) -> dict[str, Any]:
        """What the forms of a plan give, as the tensors are."""
        gradients: dict[str, Any] = {}
        for form, read, made in plan:
            found = self._run(form, {name: held[at] for name, at in read})
            for name, tensor, whole in made:
                value, like = found[name] if isinstance(found, dict) else found, own[tensor]
                value = _contiguous(value if whole else vjp.stretched(tensor, value, like))
                gradients[tensor] = value if value.dtype == like.dtype else value.to(like.dtype)
        return gradients

    def _planned_backward(self, wanted: Sequence[int], of: Sequence[int]) -> tuple[Vjp, list[Gradients]]:
        """The gradients wanted of some outputs, and their plan, found once."""
        assert self.vjp is not None
        found = self._compiled.get(key := ("backward", *wanted, "of", *of))
        if found is None:
            vjp = self.vjp.of(_outputs(self.vjp, list(of)))
            found = self._compiled[key] = vjp, self._backward_plan(vjp, wanted)
        return found

    def _read_again(
        self, vjp: Vjp, own: Mapping[str, Any], values: Mapping[str, Any], pulled: Sequence[Any], wanted: Sequence[int]
    ) -> list[Any]:
        """The gradients by what reads nothing saved, where that is not in the range of its dtype."""
        assert self.vjp is not None
        sizes = sizes_of(self.spec, own)
        lengths = {vjp.saved_tensors[t]: torch.tensor(sizes[a]) for t, a in vjp.lengths.items()}
        cotangents = dict(zip(self.vjp.cotangents, pulled, strict=True))
        found = vjp.pulled(own, {**values, **lengths}, cotangents, self._run, _named(self.vjp, wanted))
        return [_contiguous(value.to(own[n].dtype)) for n, value in found.items()]

    def _backward_plan(self, vjp: Vjp, wanted: Sequence[int]) -> list[Gradients]:
        """Of every spec its form, its tensors with their places among tensors, saved values and cotangents, and its
        outputs with their tensors, and whether they have all axes of these."""
        places = {d.name: k for k, d in enumerate(self.tensors)}
        saved, cotangents = len(places), len(places) + len(vjp.forward.outputs)
        places |= {tensor: saved + list(vjp.forward.outputs).index(name) for tensor, name in vjp.saved_tensors.items()}
        assert self.vjp is not None
        places |= {tensor: cotangents + k for k, tensor in enumerate(self.vjp.cotangents.values())}
        found: list[Gradients] = []
        for unit in vjp.together(_named(vjp, wanted)):
            s = unit if isinstance(unit, Spec) else unit.spec
            named = [(n, n.removeprefix("grad_"), len(axes)) for n, axes in s.output_axes.items()]
            made = [(n, of, number == len(vjp.wrt[of].axes)) for n, of, number in named]
            form = vjp.forms[s] if isinstance(unit, Spec) else unit
            found.append((form, [(d.name, places[d.name]) for d in own_tensors(s)], made))
        return found

    def _results(self, form: Form, arrays: Sequence[Any]) -> list[Any]:
        on_gpu, own = 0, []
        for a in arrays:
            own.append(unrecorded(a))
            if not a.is_cpu:
                on_gpu = ON_GPU
        held = self._by_name(own)
        run = self._compiled.get((id(form), on_gpu))
        found = self._run_first(form, held, on_gpu) if run is None else run(**held)
        return [_contiguous(x) for x in found.values()] if found.__class__ is dict else [_contiguous(found)]

    def _run(self, form: Form | Joint | Steps, arrays: Mapping[str, Any]) -> Any:
        on_gpu = ON_GPU if any(a.is_cuda for a in arrays.values()) else 0
        run = self._compiled.get((id(form), on_gpu))
        return self._run_first(form, arrays, on_gpu) if run is None else run(**arrays)

    def _run_first(self, form: Form | Joint | Steps, arrays: Mapping[str, Any], on_gpu: int) -> Any:
        run: Any = form.compile("cuda") if on_gpu else OnHost(form)
        if on_gpu:
            run.alike = False  # results of operators are contiguous
        found = run(**arrays)
        self._compiled[id(form), on_gpu] = run  # of a form that the operator keeps
        if form is self.form:
            self._compiled[on_gpu] = run
        return found

    # --- shapes ------------------------------------------------------------------------------------------------------

    def _fake_plain(self, *arrays: Any) -> list[Any]:
        return self._shaped(self.spec, arrays)

    def _fake_saved(self, *arrays: Any) -> list[Any]:
        assert self.vjp is not None
        return self._shaped(self.vjp.forward, arrays)

    def _fake_backward(self, *given: Any) -> list[Any]:
        assert self.vjp is not None
        own = {d.name: a for d, a in zip(self.tensors, given, strict=False)}
        return [own[n].new_empty(own[n].shape) for n in _named(self.vjp, given[-2])]

    def _shaped(self, spec: Spec, arrays: Sequence[Any]) -> list[Any]:
        sizes: dict[str, Any] = dict(new_axes(*spec.outputs.values()))
        of: dict[str, Decl] = {}
        for d, a in zip(self.tensors, arrays, strict=True):
            if a.dim() != len(d.axes):
                raise RedalgError(f"{d} of {a.dim()} dimensions", self.name, f"it has {len(d.axes)}", "pass its axes")
            check_kind(d, kind_of(a.dtype), str(a.dtype).removeprefix("torch."), self.name)
            for axis, n in zip(d.axes, a.shape, strict=True):
                if sizes.setdefault(axis, n) is not n:
                    self._same_length(axis, (of[axis], sizes[axis]), (d, n))
                of.setdefault(axis, d)
        sizes = sizes_of(spec, {d.name: a for d, a in zip(self.tensors, arrays, strict=True)}) | sizes
        dtypes = {d.name: numpy_dtype(a.dtype) for d, a in zip(self.tensors, arrays, strict=True)}
        dtypes |= {d.name: dtypes[d.array] for d in spec.tensors if d.array}
        found, like = output_flows(spec, dtypes), self._on_one_device(arrays)
        return [
            like.new_empty([sizes[a] for a in spec.output_axes[n]], dtype=torch_dtype(found[n].dtype))
            for n in spec.outputs
        ]

    def _same_length(self, axis: str, one: tuple[Decl, Any], other: tuple[Decl, Any]) -> None:
        """A length that a compiler does not know yet is checked when it is there."""
        what = f"{other[0]} of length {other[1]} along {axis}"
        error = RedalgError(what, self.name, f"{one[0]} has length {one[1]} there", "pass arrays of one length")
        if isinstance(one[1], int) and isinstance(other[1], int):
            if one[1] != other[1]:
                raise error
        else:
            torch._check(one[1] == other[1], lambda: str(error))

    def _on_one_device(self, arrays: Sequence[Any]) -> Any:
        """A tensor on the device of all that are more than a number. Raises: RedalgError where there are two."""
        several = [(d, a) for d, a in zip(self.tensors, arrays, strict=True) if a.dim()]
        for d, a in several[1:]:
            if a.device != several[0][1].device:
                why = f"{several[0][0]} is on {several[0][1].device}"
                raise RedalgError(f"{d} on {a.device}", self.name, why, "move all tensors to one device")
        return several[0][1] if several else arrays[0]

    # --- autograd ----------------------------------------------------------------------------------------------------

    def _refuse_complex(self, moving: Iterable[bool], output: Sequence[Any]) -> None:
        """Raises: RedalgError for a complex tensor or result where a derivative is wanted, which would be dropped."""
        if not self._complex:
            return
        wanted = {d.name for d, m in zip(self.tensors, moving, strict=False) if m}
        refuse_complex(self.spec, self._complex, wanted, [a.is_complex() for a in output], self.name)

    @cached_property
    def _complex(self) -> frozenset[str]:
        return complex_tensors(self.spec)

    def _keep(self, ctx: Any, inputs: Any, output: Any) -> None:
        assert self.vjp is not None
        self._refuse_complex(ctx.needs_input_grad, output)
        ctx.save_for_backward(*inputs, *output)
        constant = [o for o in output if not o.dtype.is_floating_point] + list(output[len(self.form.spec.outputs) :])
        if constant:
            ctx.mark_non_differentiable(*constant)
        ctx.set_materialize_grads(False)

    def _keep_both_ways(self, ctx: Any, inputs: Any, output: Any) -> None:
        """For tangents, too. What is saved beside the outputs has tangents of 0, and is not marked as constant: under
        vmap the mark would be lost, and a missing tangent an error."""
        self._refuse_complex(ctx.needs_input_grad, output)
        ctx.save_for_backward(*inputs, *output)
        ctx.save_for_forward(*inputs, *output)
        ctx.mark_non_differentiable(*(o for o in output if not o.dtype.is_floating_point))
        ctx.set_materialize_grads(False)

    def _keep_tensors(self, ctx: Any, inputs: Any, output: Any) -> None:
        self._refuse_complex(ctx.needs_input_grad, output)
        ctx.save_for_backward(*inputs)
        ctx.mark_non_differentiable(*(o for o in output if not o.dtype.is_floating_point))

    def _pull_again(self, ctx: Any, gradients: Any) -> Any:
        """Of the operator that saves nothing, where somebody differentiates it by name."""
        with torch.enable_grad():
            own = [a.detach().requires_grad_(a.is_floating_point()) for a in ctx.saved_tensors]
            found = self.with_saved(*own)[: len(self.outputs)]
        pairs = [(o, p) for o, p in zip(found, gradients, strict=True) if p is not None and o.requires_grad]
        wanted = [a for a in own if a.requires_grad]
        pulled = iter(torch.autograd.grad([o for o, _ in pairs], wanted, [p for _, p in pairs], allow_unused=True))
        return tuple(next(pulled) if a.requires_grad else None for a in own)

    def _pull(self, ctx: Any, gradients: Any) -> Any:
        """The gradients of the tensors, None for those of whole numbers; by outputs that have one themselves."""
        assert self.vjp is not None
        saved, count = ctx.saved_tensors, len(self.tensors)
        own, kept = saved[:count], saved[count:]
        held = dict(zip(self.outputs, zip(kept, gradients, strict=False), strict=False))
        pairs = [held[name] for name in self.vjp.cotangents]
        of = [k for k, (_, gradient) in enumerate(pairs) if gradient is not None]
        pulled = [torch.zeros_like(value) if gradient is None else gradient for value, gradient in pairs]
        arrays = (*own, *kept, *pulled)
        quiet = undisturbed(arrays)
        if torch.is_grad_enabled() or not quiet and (differentiates() or carry_tangents((*own, *pulled))):
            found = self._differentiable(own, pulled, of)
        else:
            needed = zip(self.tensors, ctx.needs_input_grad, strict=False)
            names = {d.name for d, need in needed if need}
            wanted = [k for k, n in enumerate(self.vjp.wrt) if n in names]
            pull = self._run_backward if quiet else self.backward
            found = dict(zip(_named(self.vjp, wanted), pull(*arrays, wanted, of), strict=True))
        return tuple(
            found.get(d.name) if a.is_floating_point() else None for d, a in zip(self.tensors, own, strict=True)
        )

    def _push(self, ctx: Any, moving: Sequence[Any]) -> Any:
        """The tangents of the outputs along those of the tensors; None for whole numbers, and 0 for what is saved."""
        assert self.vjp is not None
        own, kept = ctx.saved_tensors[: len(self.tensors)], ctx.saved_tensors[len(self.tensors) :]
        self._refuse_complex((t is not None for t in moving), kept)
        pairs = zip(self.tensors, moving, strict=True)
        given = {d.name: t for d, t in pairs if t is not None and d.name in self.vjp.wrt and t.is_floating_point()}
        found = tangents_of(self, own, given) if given else {}
        values = zip(self.vjp.forward.outputs, kept, strict=True)
        return tuple(found.get(n, torch.zeros_like(v)) if v.is_floating_point() else None for n, v in values)

    def _differentiable(self, own: Sequence[Any], pulled: Sequence[Any], of: Sequence[int]) -> dict[str, Any]:
        """Gradients that are differentiated again: operators of the specs that read nothing saved."""
        again = self._read_anew.of(_outputs(self._read_anew, of))
        arrays = dict(zip((d.name for d in self.tensors), own, strict=True))
        held = {**arrays, **dict(zip(self._read_anew.cotangents.values(), pulled, strict=True))}
        sizes = sizes_of(self.spec, arrays)
        held |= {name: torch.tensor(sizes[a], device=own[0].device) for name, a in again.lengths.items()}
        found: dict[str, Any] = {n: torch.zeros_like(arrays[n]) for n in again.wrt}
        for spec in dict.fromkeys(again.specs.values()):
            op = self._related.get(spec)
            if op is None:
                name = f"{self.name}_grad_{spec.digest}"
                op = self._related[spec] = torch_op(as_passed(again.forms[spec]), name, self.assumed)
            results = op._called([held[d.name] for d in op.tensors])
            for name, value in zip(op.outputs, results if len(op.outputs) > 1 else [results], strict=True):
                own_name = name.removeprefix("grad_")
                found[own_name] = again.stretched(own_name, value, arrays[own_name])
        return found

    # --- vmap --------------------------------------------------------------------------------------------------------

    def _mapped_over(self, form: Form, places: Sequence[int | None]) -> TorchOp:
        """The operator of the form's spec, in which tensors that are mapped over have one more axis, the first."""
        key = form.spec, tuple(p is not None for p in places)
        op = self._related.get(key)
        if op is None:
            mapped = {d.name for d, p in zip(self.tensors, places, strict=True) if p is not None}
            made = mapped_form(form, mapped)
            op = self._related[key] = torch_op(made, nameless(made, self.assumed), self.assumed)
        return op

    def _batched_plain(self, info: Any, places: Sequence[int | None], *arrays: Any) -> Any:
        op = self._mapped_over(self.form, places)
        return op.plain(*_moved(arrays, places)), _longer(op.spec, self.spec)

    def _batched_saved(self, info: Any, places: Sequence[int | None], *arrays: Any) -> Any:
        """Every result is mapped over: PyTorch adds up the cotangents of one that is the same for all, and hands the
        sum to the backward pass of each."""
        assert self.vjp is not None
        op = self._mapped_over(self._forward, places)
        found = zip(op.plain(*_moved(arrays, places)), _longer(op.spec, self.vjp.forward), strict=True)
        whole = [x if at == 0 else x.expand(info.batch_size, *x.shape).clone() for x, at in found]
        return whole, [0] * len(whole)

    def _batched_backward(self, info: Any, places: Sequence[Any], *given: Any) -> Any:
        """Every tensor is taken as mapped over: what is the same for all has a gradient for each."""
        *arrays, wanted, of = given
        repeated = [
            a.expand(info.batch_size, *a.shape) if p is None else a.movedim(p, 0)
            for a, p in zip(arrays, places, strict=False)
        ]
        own = repeated[: len(self.tensors)]
        op = self._mapped_over(self.form, [0] * len(own))
        kept = op.with_saved(*own)
        pulled = repeated[len(repeated) - len(op.vjp.cotangents if op.vjp else ()) :]
        return op.backward(*own, *kept, *pulled, wanted, of), [0] * len(wanted)


def _named(vjp: Vjp, wanted: Sequence[int]) -> list[str]:
    names = list(vjp.wrt)
    return [names[k] for k in wanted]


def _outputs(vjp: Vjp, of: Sequence[int]) -> list[str]:
    names = list(vjp.cotangents)
    return [names[k] for k in of]


def _moved(arrays: Sequence[Any], places: Sequence[int | None]) -> list[Any]:
    return [a if p is None else a.movedim(p, 0) for a, p in zip(arrays, places, strict=True)]


def _longer(mapped: Spec, spec: Spec) -> list[int | None]:
    """Where the results of a mapped spec have the axis that was mapped over: first, or nowhere."""
    return [0 if longer else None for longer in longer_outputs(mapped, spec)]


def tangents_of(op: TorchOp, own: Sequence[Any], moving: Mapping[str, Any]) -> dict[str, Any]:
    """Output -> its tangent along those of some tensors, by an operator of its own; whole numbers have none."""
    jvp, made = op.forward_mode(tuple(moving))
    arrays = dict(zip((d.name for d in op.tensors), own, strict=True))
    sizes = sizes_of(op.spec, arrays)
    flows = output_flows(op.spec, {n: numpy_dtype(a.dtype) for n, a in arrays.items()})
    dtypes = {n: torch_dtype(flows[n].dtype) for n in jvp.results}
    found: dict[str, Any] = {}
    if made is not None:
        held = {**arrays, **{jvp.tangents[n]: t for n, t in moving.items()}}
        results = made._called([held[d.name] for d in made.tensors])
        found = dict(zip(made.outputs, results if isinstance(results, tuple) else [results], strict=True))
    whole: dict[str, Any] = {}
    for name, tangent in jvp.results.items():
        if dtypes[name].is_floating_point:
            axes = () if made is None else made.spec.output_axes.get(tangent, ())
            value = found[tangent] if tangent in found else own[0].new_zeros(())
            lengths = {a: sizes[a] for a in op.spec.output_axes[name]}
            whole[name] = _repeated(value, axes, lengths).to(dtypes[name])
    return whole


def _repeated(value: Any, axes: Sequence[str], lengths: Mapping[str, int]) -> Any:
    """A tangent along every axis of its output, repeated in memory of its own: it is no view."""
    if len(axes) == len(lengths):
        return value
    shape = [n if a in axes else 1 for a, n in lengths.items()]
    return value.reshape(shape).expand(tuple(lengths.values())).clone()


class WindowedOp(TorchOp):
    """The operator of a spec that reads windows, which PyTorch differentiates through as views."""

    def __call__(self, /, *given: Any, **named: Any) -> Any:
        if any(map(is_traced, (*given, *named.values()))):
            given = tuple(by_name(self.tensors, given, named, self.name).values())
            return traced(self.name, given, len(self.outputs))
        arrays = dict(zip([d.name for d in self.tensors], self._ordered(given, named), strict=True))
        return super().__call__(*in_windows(self.form.spec, arrays, self.name))


def torch_op(form: Form, name: str, assume: Iterable[str] = ()) -> TorchOp:
    """The operator of a form under a name ``namespace::name``; the same form under the same name is the same operator.

    Raises: RedalgError for a name that is not of this kind, or that another form has, and without PyTorch.
    """
    if torch is None:
        raise RedalgError(f"the name {name!r}", "form.torch_op", "PyTorch cannot be imported", "pip install torch")
    namespace, _, short = name.partition("::")
    if not (namespace.isidentifier() and short.isidentifier() and name.isascii()):
        raise RedalgError(f"the name {name!r}", "form.torch_op", "operators are named in a namespace", '"mylib::name"')
    wanted = frozenset({assume} if isinstance(assume, str) else assume)
    with _MAKING:  # threads that ask for the same name are given the same operator
        if name not in _MADE:
            kind = WindowedOp if any(d.dimensions for d in own_tensors(form.spec)) else TorchOp
            made = kind(form, name, wanted)
            made.registered(torch_op, form, name, wanted)
            _MADE[name] = made, wanted
        made, before = _MADE[name]
    if (made.form.spec, made.form.plan, before) != (form.spec, form.plan, wanted):
        assumes = f", which assumes {', '.join(sorted(before))}" if before else ""
        streamed = f", streamed over {', '.join(made.form.plan.axis)}" if made.form.plan.axis else ""
        why = f"it is the operator of {made.form.spec}{streamed}{assumes}"
        raise RedalgError(f"the name {name!r}", "form.torch_op", why, "take another name for another form")
    return made


def nameless(form: Form, assume: Iterable[str] = ()) -> str:
    """The name of an operator that nobody names: the spec's digest, and what else its form depends on.

    That is the axis where there are several to stream over, and what the form and its derivative assume.
    """
    streams = axes_of(form.spec.outputs.values(), {a for d in form.spec.tensors for a in d.axes})
    axis = () if streams in ([], [form.plan.axis]) else ("along", *form.plan.axis)
    held = {name for name, _ in form.plan.assumptions if name in ASSUMPTIONS} | {*assume}
    return "_".join((f"redalg::spec_{form.spec.digest}", *axis, *sorted(held)))


def cast_under_autocast(array: Any, device: str, dtype: Any) -> Any:
    """What autocast may cast: floats on its device, but float64."""
    eligible = array.is_floating_point() and array.dtype != torch.float64 and array.device.type == device
    return array.to(dtype) if eligible else array


def _contiguous(array: Any) -> Any:
    return array.contiguous() if isinstance(array, torch.Tensor) else torch.as_tensor(array)


def kind_of(dtype: Any) -> str:
    """The kind of its numbers, as NumPy calls kinds; narrow floats that NumPy lacks are floats."""
    return "c" if dtype.is_complex else "f" if dtype.is_floating_point else numpy_dtype(dtype).kind


def numpy_dtype(dtype: Any) -> np.dtype:
    name = str(dtype).removeprefix("torch.")
    return NARROW.get(name) or np.dtype("float32" if name in NARROW_ONLY else name)


def torch_dtype(dtype: np.dtype) -> Any:
    return torch.bfloat16 if dtype == BFLOAT16_BITS else getattr(torch, dtype.name)


__all__ = ["TorchOp", "cast_under_autocast", "nameless", "numpy_dtype", "torch_dtype", "torch_op"]
