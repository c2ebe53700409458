"""Calls of a kind that was prepared before, as straight-line Python: guards, an allocation for each result, a launch.

A call that passes the guards is launched with the arguments its kind has in the general way (`Ready._go`); what any
guard refuses goes that way. Written for tensors of PyTorch and one kernel whose arguments are addresses and numbers:
no scratch, nothing computed before or after, integers that cannot leave int64.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from redalg.kernels.ir.layouts import View
from redalg.kernels.launch import driver
from redalg.kernels.launch.arrays import TORCH

if TYPE_CHECKING:
    from redalg.kernels.cuda.run import Ready

MISS = object()  # of a call that a guard refuses
Quick = Callable[[Mapping[str, Any]], Any]
_ROLES = frozenset({"operand", "result", "number"})
_NUMBER = {float: "{0}.__class__ is float", bool: "{0}.__class__ is bool", int: "{0}.__class__ is int and L <= {0} < H"}


class Quickly:
    """The straight-line calls of one `CudaRun`: one for the last kind of call in every thread, which has buffers of
    its own for arguments."""

    def __init__(self) -> None:
        self._local = threading.local()

    def __call__(self, arrays: Mapping[str, Any]) -> Any:
        """The results, or `MISS`. Raises: NotLaunched and RedalgError where the launch is refused."""
        quick = getattr(self._local, "quick", None)
        if quick is None:
            return MISS
        try:
            return quick(arrays)
        except (KeyError, AttributeError, TypeError, RuntimeError):  # what is missing, or has no strides or data
            return MISS

    def remember(self, ready: Ready, arrays: Mapping[str, Any]) -> None:
        """Take the next call for one of this kind."""
        made = self._local.__dict__.setdefault("made", {})
        if ready not in made:
            made[ready] = _written(ready, arrays)
        self._local.quick = made[ready]


def _written(ready: Ready, arrays: Mapping[str, Any]) -> Quick | None:
    """The function for calls like this one; None where there is more to do than to launch one kernel."""
    launch, names = ready.launch, ready.run._names
    alone = ready.second is None and not ready.before and not ready.planned.scratch and ready.looking is None
    if ready.framework is not TORCH or not isinstance(launch, driver.Launch) or not alone or ready.zero_length:
        return None
    if len(arrays) != len(names) or any(role not in _ROLES for role, _ in ready._order):
        return None
    given = [arrays[n] for n in names]
    if any(a.__class__ not in _NUMBER and a.__class__.__name__ != "Tensor" for a in given):
        return None  # subclasses may mean something of their own
    if any(a.__class__ not in _NUMBER and TORCH.enter(a) is not a for a in given):
        return None  # the kernel read a copy
    place, local = launch.prepared(), {"MISS": MISS, "L": -(1 << 63), "H": 1 << 63}
    local |= {
        "stream": TORCH.stream,
        "launch": place.launch,
        "failed": launch.failed,
        "kept": place.kept,
        "activate": driver.activate,
    }
    lines = ["def quick(arrays):", f"    if len(arrays) != {len(names)}:", "        return MISS"]
    for k, (name, a) in enumerate(zip(names, given, strict=True)):
        lines += _guarded(k, name, a, ready, local)
    lines += [f"    activate({ready.device})"] if not driver.is_only(ready.device) else []
    for k in range(len(ready.outputs)):
        lines.append(f"    r{k} = {_allocated(k, given, ready, local)}")
    for slot, (role, at) in enumerate(ready._order):
        local[f"s{slot}"] = place.slots[slot]
        value = {"operand": f"p{at}", "number": f"a{at}", "result": f"r{at}.data_ptr()"}[role]
        lines.append(f"    s{slot}.value = {value}")
    lines += [f"    error = launch(stream({ready.device}))", "    if error[0]:", "        failed(error)"]
    found = ", ".join(f"{o[0]!r}: r{k}" for k, o in enumerate(ready.outputs))
    lines.append("    return r0" if ready.run._single else f"    return {{{found}}}")
    exec(compile("\n".join(lines), "<a prepared call>", "exec"), local)
    quick: Quick = local["quick"]  # type: ignore[assignment]
    return quick


def _guarded(k: int, name: str, a: Any, ready: Ready, local: dict[str, Any]) -> list[str]:
    """Lines that refuse an argument of another kind than the one this call had."""
    x = f"a{k}"
    local |= {f"C{k}": a.__class__}
    lines = [f"    {x} = arrays[{name!r}]"]
    if a.__class__ in _NUMBER:
        return [*lines, f"    if not ({_NUMBER[a.__class__].format(x)}):", "        return MISS"]
    local |= {f"S{k}": a.shape, f"T{k}": a.stride(), f"D{k}": a.dtype}
    kind = f"{x}.__class__ is C{k} and {x}.dtype is D{k} and {x}.shape == S{k} and {x}.stride() == T{k}"
    state = f"{x}.get_device() == {ready.device} and not {x}.requires_grad and not {x}.is_neg()"
    aligned = f"p{k} & 15 == {a.data_ptr() & 15}"
    return [
        *lines,
        f"    if not ({kind} and {state}):",
        "        return MISS",
        f"    p{k} = {x}.data_ptr()",
        f"    if not {aligned}:",
        "        return MISS",
    ]


def _allocated(k: int, given: list[Any], ready: Ready, local: dict[str, Any]) -> str:
    """An expression for a new result: like an argument where one has its shape and dtype, which costs least."""
    _, shape, name = ready.outputs[k]
    torch = sys.modules["torch"]
    dtype = getattr(torch, name)
    tensors = [n for n, a in enumerate(given) if a.__class__ not in _NUMBER]
    for n in tensors:
        like = given[n]
        if (
            like.dtype is dtype
            and tuple(like.shape) == shape
            and tuple(like.stride()) == View.contiguous(shape).strides
        ):
            local["empty_like"] = torch.empty_like
            return f"empty_like(a{n})"
    local |= {f"R{k}": shape, f"E{k}": dtype}
    return f"a{tensors[0]}.new_empty(R{k}, dtype=E{k})"


__all__ = ["MISS", "Quickly"]
