"""Who looks on while an operator of PyTorch runs: where nobody does, the dispatcher need not be asked.

A call through the dispatcher costs more than a small kernel. It is what modes, transforms, tracers, profilers and
tensor subclasses see operators by, so that a call goes around it only where none of them is there.
"""

from __future__ import annotations

import importlib
import importlib.util
import threading
from collections.abc import Iterable
from typing import Any

torch: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") else None


def _quiet() -> frozenset[int]:
    """The dispatch keys that a thread includes by itself, and in inference mode; none where this cannot be asked."""
    found: set[int] = set()

    def ask() -> None:
        found.add(_included())
        with torch.inference_mode():
            found.add(_included())

    if torch is None or not all(_reached(torch, path) for path in _ASKED):
        return frozenset()
    thread = threading.Thread(target=ask)  # a new one has no modes
    thread.start()
    thread.join()
    return frozenset(found)


_ASKED = (
    "_C._dispatch_tls_local_include_set",
    "_C._len_torch_function_stack",
    "autograd._profiler_enabled",
    "autograd.forward_ad._current_level",
)


def _reached(root: Any, path: str) -> bool:
    for name in path.split("."):
        root = getattr(root, name, None)
        if root is None:
            return False
    return True


def _included() -> int:
    """Of this thread; modes, `torch.func`, functionalisation and tracing add theirs."""
    return int(torch._C._dispatch_tls_local_include_set().raw_repr())


_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter}) if torch is not None else frozenset()
_QUIET = _quiet()
if _QUIET:  # asked at every call: bound once
    _keys, _functions, _profiled = (
        torch._C._dispatch_tls_local_include_set,
        torch._C._len_torch_function_stack,
        torch.autograd._profiler_enabled,
    )
    _levels, _compiling, _recording = torch.autograd.forward_ad, torch.compiler.is_compiling, torch.is_grad_enabled

WATCHED, PLAIN, RECORDED = range(3)  # what a glance finds: somebody looks on, nobody does, autograd alone does


def glance(arrays: Iterable[Any]) -> int:
    """Who looks on at these operands: WATCHED, PLAIN, or RECORDED where nobody does and a gradient is wanted.

    WATCHED is also said of what is no plain tensor on a CPU or a GPU.
    """
    if not _QUIET or _compiling():
        return WATCHED
    wanted = False
    for a in arrays:
        if a.__class__ not in _PLAIN or not (a.is_cpu or a.is_cuda):
            return WATCHED
        wanted = wanted or a.requires_grad
    if _keys().raw_repr() not in _QUIET or _functions() or _profiled() or _levels._current_level >= 0:
        return WATCHED
    return RECORDED if wanted and _recording() else PLAIN


def undisturbed(arrays: Iterable[Any]) -> bool:
    """Whether plain tensors meet no mode, transform, tracer, profiler or forward-mode level on their way."""
    return glance(arrays) != WATCHED


def carry_tangents(arrays: Iterable[Any]) -> bool:
    """Whether a forward-mode derivative is being taken along one of them."""
    if torch.compiler.is_compiling() or torch.autograd.forward_ad._current_level < 0:
        return False
    return any(torch.autograd.forward_ad.unpack_dual(a).tangent is not None for a in arrays)


__all__ = ["PLAIN", "RECORDED", "WATCHED", "carry_tangents", "glance", "undisturbed"]
