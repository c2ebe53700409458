"""Calls of a kind that was prepared before, as straight-line Python: guards, an allocation for each result, a launch.

A call that passes the guards is launched with the arguments its kind has in the general way (`Ready._go`); what any
guard refuses goes that way. Written for tensors of PyTorch and kernels that nothing is computed before, of integers
that cannot leave int64.
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
SCRATCH = {"uint32": "int32"}  # PyTorch has few operations on unsigned integers; the bits are the same
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
    """The function for calls like this one; None where there is more to do than to launch."""
    names = ready.run._names
    if ready.framework is not TORCH or len(arrays) != len(names) or not _is_launched(ready):
        return None
    given = [arrays[n] for n in names]
    tensors = [a for a in given if a.__class__ not in _NUMBER]
    if any(a.__class__.__name__ != "Tensor" or TORCH.enter(a) is not a for a in tensors):
        return None  # subclasses may mean something of their own, and of some the kernel reads a copy
    local = {"MISS": MISS, "L": -(1 << 63), "H": 1 << 63, "stream": TORCH.stream, "activate": driver.activate}
    lines = [f"if len(arrays) != {len(names)}:", "    return MISS"]
    for k, (name, a) in enumerate(zip(names, given, strict=True)):
        lines += _guarded(k, name, a, ready, local)
    lines += _body(given, ready, local)
    text = "".join(f"    {line}\n" for line in lines)
    exec(compile(f"def quick(arrays):\n{text}", "<a prepared call>", "exec"), local)
    quick: Quick = local["quick"]  # type: ignore[assignment]
    return quick


def _body(given: list[Any], ready: Ready, local: dict[str, Any]) -> list[str]:
    """Lines that take memory for the results, launch, and return."""
    lines = [] if driver.is_only(ready.device) else [f"activate({ready.device})"]
    lines.append(f"where = stream({ready.device})")
    for k in range(len(ready.outputs)):
        lines.append(f"r{k} = {_allocated(k, given, ready, local)}")
    values = []
    for slot, (role, at) in enumerate(ready._order):
        before, value = _value(slot, role, at, given, ready, local)
        lines += before
        values.append(value)
    for word, launch in (("first", ready.launch), ("second", ready.second)):
        if launch is not None:
            lines += _launched(word, launch, values, local)
    found = ", ".join(f"{o[0]!r}: r{k}" for k, o in enumerate(ready.outputs))
    return [*lines, "return r0" if len(ready.outputs) == 1 else f"return {{{found}}}"]


def _is_launched(ready: Ready) -> bool:
    """Whether a call is one kernel, and perhaps one that merges what it left; nothing before, nothing on the host."""
    kernels = [k for k in (ready.launch, ready.second) if k is not None]
    apart = ready.before or ready.planned.scratch or ready.looking is not None or ready.zero_length
    return bool(kernels) and all(isinstance(k, driver.Launch) for k in kernels) and not apart


def _launched(word: str, launch: Any, values: list[str], local: dict[str, Any]) -> list[str]:
    """Lines that put the arguments in their places and launch."""
    place = launch.prepared()
    slots = {f"{word}{k}": slot for k, slot in enumerate(place.slots)}
    local |= {**slots, word: place.launch, f"{word}_failed": launch.failed, f"{word}_kept": place.kept}
    lines = [f"{slot}.value = {value}" for slot, value in zip(slots, values, strict=True)]
    return [*lines, f"error = {word}(where)", "if error[0]:", f"    {word}_failed(error)"]


def _value(
    slot: int, role: str, at: Any, given: list[Any], ready: Ready, local: dict[str, Any]
) -> tuple[list[str], str]:
    """An argument as an expression, and lines that come before."""
    if role == "operand":
        return [], f"p{at}"
    if role == "number":
        return [], f"a{at}"
    if role == "result":
        return [], f"r{at}.data_ptr()"
    if role == "maps":
        assert ready.maps is not None
        local["maps"] = ready.maps.at
        every = [f"p{i}" if i < len(given) else f"r{i - len(given)}.data_ptr()" for i in at]
        return [], f"maps(({', '.join(every)},))"
    if role == "counters":
        assert ready.counters is not None
        local["counters"] = ready.counters.at
        return [f"v{slot} = counters(where)"], f"v{slot}"
    count, dtype = at
    local |= {"clear": driver.clear, f"W{slot}": getattr(sys.modules["torch"], SCRATCH.get(dtype, dtype))}
    like = next(n for n, a in enumerate(given) if a.__class__ not in _NUMBER)
    lines = [f"k{slot} = a{like}.new_empty(({count},), dtype=W{slot})", f"v{slot} = k{slot}.data_ptr()"]
    return [*lines, *([f"clear(v{slot}, {count}, where)"] if dtype == "uint32" else [])], f"v{slot}"


def _guarded(k: int, name: str, a: Any, ready: Ready, local: dict[str, Any]) -> list[str]:
    """Lines that refuse an argument of another kind than the one this call had."""
    x = f"a{k}"
    local |= {f"C{k}": a.__class__}
    lines = [f"{x} = arrays[{name!r}]"]
    if a.__class__ in _NUMBER:
        return [*lines, f"if not ({_NUMBER[a.__class__].format(x)}):", "    return MISS"]
    local |= {f"S{k}": a.shape, f"T{k}": a.stride(), f"D{k}": a.dtype}
    kind = f"{x}.__class__ is C{k} and {x}.dtype is D{k} and {x}.shape == S{k} and {x}.stride() == T{k}"
    state = f"{x}.get_device() == {ready.device} and not {x}.requires_grad and not {x}.is_neg()"
    lines += [f"if not ({kind} and {state}):", "    return MISS", f"p{k} = {x}.data_ptr()"]
    return [*lines, f"if p{k} & 15 != {a.data_ptr() & 15}:", "    return MISS"]


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


__all__ = ["MISS", "SCRATCH", "Quickly"]
