"""Who looks on while an operator of PyTorch runs: where nobody does, the dispatcher need not be asked.

A call through the dispatcher costs more than a small kernel. It is what modes, transforms, tracers, profilers and
tensor subclasses see operators by, so that a call goes around it only where none of them is there.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, TypeVar

torch: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") else None

Function = TypeVar("Function", bound=Callable[..., Any])

_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter}) if torch is not None else frozenset()
_ASKED = (
    "_C._len_torch_dispatch_stack",
    "_C._are_functorch_transforms_active",
    "_C._get_tracing_state",
    "_C._dispatch_tls_is_dispatch_key_included",
    "_C.DispatchKey.Functionalize",
    "_C.DispatchKey.PreDispatch",
    "_C._parse_dispatch_key",
    "_C._functorch.is_legacy_batchedtensor",
    "_C._len_torch_function_stack",
    "autograd._profiler_enabled",
    "autograd.forward_ad._current_level",
    "_C._dynamo.eval_frame.get_eval_frame_callback",
    "compiler.disable",
)


def _reached(root: Any, path: str) -> bool:
    for name in path.split("."):
        root = getattr(root, name, None)
        if root is None:
            return False
    return True


_KNOWN = torch is not None and all(_reached(torch, path) for path in _ASKED)  # else everybody may look on
if _KNOWN:  # asked at every call: bound once
    _modes, _transforms, _tracing = (
        torch._C._len_torch_dispatch_stack,
        torch._C._are_functorch_transforms_active,
        torch._C._get_tracing_state,
    )
    _included, _FUNCTIONS, _BEFORE, _GRADIENTS = (
        torch._C._dispatch_tls_is_dispatch_key_included,
        torch._C.DispatchKey.Functionalize,
        torch._C.DispatchKey.PreDispatch,
        torch._C._parse_dispatch_key("VmapMode"),  # of the vmap in `autograd.grad(is_grads_batched=True)`
    )
    _functions, _profiled = torch._C._len_torch_function_stack, torch.autograd._profiler_enabled
    _tracer = torch._C._dynamo.eval_frame.get_eval_frame_callback
    _levels, _compiling, _recording = torch.autograd.forward_ad, torch.compiler.is_compiling, torch.is_grad_enabled


def _looked_on() -> Any:
    """Whether a mode, a transform, a tracer, a profiler or a forward-mode level is there, or `torch.compile`, which
    would trace the Python below a call that it could not trace itself."""
    if _tracer() or _modes() or _transforms() or _functions() or _profiled() or _levels._current_level >= 0:
        return True
    return _included(_FUNCTIONS) or _included(_BEFORE) or _included(_GRADIENTS) or _tracing()


def untraced(function: Function) -> Function:
    """The function, which `torch.compile` does not look into: it would compile what derives forms and calls kernels."""
    found: Function = torch.compiler.disable(function) if torch is not None else function
    return found


WATCHED, QUIET, LEAVES, RECORDED, ON_GPU = 0, 1, 2, 4, 8  # what a glance finds


def glance(arrays: Iterable[Any]) -> int:
    """Who looks on at these operands: WATCHED where anybody does, or where one is no plain tensor on a CPU or a GPU.

    Else QUIET, and beside it LEAVES where one requires a gradient or is a parameter (kernels take `unrecorded` ones),
    RECORDED where autograd records that, and ON_GPU where one is on a GPU.
    """
    if not _KNOWN or _compiling():
        return WATCHED
    found, recorded = QUIET, False
    for a in arrays:
        if a.__class__ not in _PLAIN:
            return WATCHED
        if not a.is_cpu:
            if not a.is_cuda:
                return WATCHED
            found |= ON_GPU
        if a.requires_grad or a.__class__ is _PARAMETER:
            found |= LEAVES
            recorded = recorded or a.requires_grad
    if _looked_on():
        return WATCHED
    return found | RECORDED if recorded and _recording() else found


_PARAMETER = torch.nn.Parameter if torch is not None else None
_exported: Any = getattr(torch._C, "_to_dlpack_versioned", None) if torch is not None else None
_imported: Any = torch._C._from_dlpack if torch is not None else None


def unrecorded(array: Any) -> Any:
    """The tensor as kernels take it, out of sight of autograd.

    NumPy would mark the memory that it shares as one that is never resized, but a parameter that is sharded
    (`fully_shard`) is freed by that: a tensor of the same memory is marked in its place, in the time of `detach`.
    """
    if array.__class__ is _PARAMETER and array.is_cpu and _exported is not None and not array.is_neg():
        try:
            return _imported(_exported(array))
        except (BufferError, RuntimeError):  # a dtype that DLPack lacks, another layout
            pass
    return array.detach() if array.requires_grad else array


def undisturbed(arrays: Iterable[Any]) -> bool:
    """Whether plain tensors meet no mode, transform, tracer, profiler or forward-mode level on their way."""
    return glance(arrays) != WATCHED


def carry_tangents(arrays: Iterable[Any]) -> bool:
    """Whether a forward-mode derivative is being taken along one of them, by a level of `torch.autograd.forward_ad`."""
    if torch.compiler.is_compiling() or torch.autograd.forward_ad._current_level < 0:
        return False
    plain = [_innermost(a) for a in arrays if not torch._C._functorch.is_legacy_batchedtensor(a)]
    return any(torch.autograd.forward_ad.unpack_dual(a).tangent is not None for a in plain)


def _innermost(array: Any) -> Any:
    """What a transform maps over has tangents below: `unpack_dual` has no rule for a batch."""
    while torch._C._functorch.is_functorch_wrapped_tensor(array):
        array = torch._C._functorch.get_unwrapped(array)
    return array


def is_batch(array: Any) -> bool:
    """Whether a transform maps over the tensor."""
    return bool(torch._C._functorch.is_batchedtensor(array))


def differentiates() -> bool:
    """Whether a transform of `torch.func` takes derivatives, at any level: the innermost may not see what an outer one
    differentiates by, and an operator called there would be a constant for it."""
    if torch.compiler.is_compiling() or not torch._C._are_functorch_transforms_active():
        return False
    kinds = torch._C._functorch.TransformType
    return any(level.key() in (kinds.Grad, kinds.Jvp) for level in torch._C._functorch.get_interpreter_stack() or ())


def transformable(
    run: Callable[..., Any], keep: Callable[..., None], pull: Callable[..., Any], push: Callable[..., Any] | None = None
) -> Any:
    """A function of autograd as the transforms of `torch.func` want them: what `run` gives.

    Gradients are ``pull(ctx, gradients)`` of what ``keep(ctx, inputs, output)`` has saved, tangents ``push(ctx, …)``.
    """

    class Function(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        @untraced
        def forward(*given: Any) -> Any:
            return tuple(run(*given))

        @staticmethod
        @untraced
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            keep(ctx, inputs, output)

        @staticmethod
        @untraced
        def backward(ctx: Any, *gradients: Any) -> Any:
            return pull(ctx, gradients)

        if push is not None:

            @staticmethod
            @untraced
            def jvp(ctx: Any, *moving: Any) -> Any:
                return push(ctx, moving)

    return Function


def transformed() -> bool:
    """Whether a transform of `torch.func` is active."""
    return not torch.compiler.is_compiling() and bool(torch._C._are_functorch_transforms_active())


def maps_gradients() -> bool:
    """Whether the vmap that autograd has of its own is active: a Python function's graph would hold what it maps over
    behind its end, an operator's does not."""
    return _KNOWN and _included(_GRADIENTS)


def over_gradients(operator: Callable[..., Any], rule: Callable[..., Any]) -> Callable[..., Any]:
    """A rule of `torch.library.register_vmap` as the operator's kernel in the vmap that autograd has of its own.

    It maps over cotangents: `autograd.grad(is_grads_batched=True)`, Jacobians and Hessians of `autograd.functional`
    with ``vectorize=True``, batched checks of `gradcheck`. Of its levels the innermost that an operand has is mapped.
    """

    def run(*given: Any) -> Any:
        deepest = torch._C._vmapmode_increment_nesting() - 1
        torch._C._vmapmode_decrement_nesting()
        for level in range(deepest, 0, -1):
            moved = [_without(a, level) if isinstance(a, torch.Tensor) else None for a in given]
            size = next((len(m) for m in moved if m is not None), None)
            if size is None:
                continue
            places = [None if m is None else 0 for m in moved]
            values = [a if m is None else m for a, m in zip(given, moved, strict=True)]
            found, at = rule(SimpleNamespace(batch_size=size), places, *values)
            return [f if p is None else torch._add_batch_dim(f, p, level) for f, p in zip(found, at, strict=True)]
        return operator(*given)

    return run


def _without(array: Any, level: int) -> Any:
    """The tensor with the dimension of a level of that vmap first, or None where it has none: it is repeated then, as
    often as it is asked to be."""
    if not torch._C._functorch.is_legacy_batchedtensor(array):
        return None
    twice, found = (torch._remove_batch_dim(array, level, times, 0) for times in (2, 3))
    return found if len(twice) == len(found) else None


__all__ = [
    "LEAVES",
    "ON_GPU",
    "QUIET",
    "RECORDED",
    "WATCHED",
    "carry_tangents",
    "differentiates",
    "glance",
    "is_batch",
    "maps_gradients",
    "over_gradients",
    "transformable",
    "transformed",
    "undisturbed",
    "unrecorded",
    "untraced",
]
