"""Calls of a kind that was prepared before, as straight-line Python: guards, an allocation for each result, a launch.

A call that passes the guards is launched with the arguments its kind has in the general way (`Ready._go`); what any
guard refuses goes that way. Written for tensors of PyTorch, for one kernel or several one after another, of integers
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
from redalg.kernels.launch.written import MOVED

if TYPE_CHECKING:
    from redalg.kernels.cuda.run import Ready

MISS = object()  # of a call that a guard refuses
ELSEWHERE = KeyError, AttributeError, TypeError, RuntimeError  # of what is missing, or has no strides or data
Quick = Callable[[Mapping[str, Any]], Any]
SCRATCH = {"uint32": "int32"}  # PyTorch has few operations on unsigned integers; the bits are the same
_NUMBER = {float: "{0}.__class__ is float", bool: "{0}.__class__ is bool", int: "{0}.__class__ is int and L <= {0} < H"}


def _missed(arrays: Mapping[str, Any]) -> Any:
    return MISS


class Quickly(threading.local):
    """The straight-line calls of one `CudaRun`, each thread's with buffers of its own for arguments.

    ``call(arrays)`` is the one for the last kind of call, and gives the results or `MISS`. Raises: NotLaunched and
    RedalgError where the launch is refused; one of `ELSEWHERE` for arguments that cannot be asked.
    """

    call: Quick = staticmethod(_missed)

    def __init__(self) -> None:
        self._made: dict[Ready, Quick] = {}

    def remember(self, ready: Ready, arrays: Mapping[str, Any]) -> None:
        """Take the next call for one of this kind."""
        if ready not in self._made:
            self._made[ready] = _written(ready, arrays)
        self.call = self._made[ready]


def _written(ready: Ready, arrays: Mapping[str, Any]) -> Quick:
    """The function for calls like this one, which misses where there is more to do than to launch."""
    names = ready.run._names
    if ready.framework is not TORCH or len(arrays) != len(names) or not _is_launched(ready):
        return _missed
    given = [arrays[n] for n in names]
    tensors = [a for a in given if a.__class__ not in _NUMBER]
    if any(a.__class__.__name__ != "Tensor" or TORCH.enter(a) is not a for a in tensors):
        return _missed  # subclasses may mean something of their own, and of some the kernel reads a copy
    local = {"MISS": MISS, "L": -(1 << 63), "H": 1 << 63, "stream": _stream(), "activate": driver.activate}
    lines = [f"if len(arrays) != {len(names)}:", "    return MISS"]
    lines += [f"a{k} = arrays[{name!r}]" for k, name in enumerate(names)]
    body, at_once = _body(given, ready, local)
    lines += _guarded(given, ready, local, at_once) + body
    text = "".join(f"    {line}\n" for line in lines)
    exec(compile(f"def quick(arrays):\n{text}", "<a prepared call>", "exec"), local)
    quick: Quick = local["quick"]  # type: ignore[assignment]
    return quick


def _body(given: list[Any], ready: Ready, local: dict[str, Any]) -> tuple[list[str], bool]:
    """Lines that take memory for the results, launch, and return; whether the launch asks for addresses itself."""
    lines = [] if driver.is_only(ready.device) else [f"activate({ready.device})"]
    if ready.marks is not None:
        local |= {"marked": ready.marks.word, "tell": ready.marks.tell}
        lines += ["if marked.value:", "    tell()"]
    lines.append(f"where = stream({ready.device})")
    for k in range(len(ready.outputs)):
        lines.append(f"r{k} = {_allocated(k, given, ready, local)}")
    at_once = None if ready.before else _at_once(ready, given, local)
    lines += at_once if at_once is not None else _one_after_another(given, ready, local)
    found = ", ".join(f"{o[0]!r}: r{k}" for k, o in enumerate(ready.outputs))
    return [*lines, "return r0" if len(ready.outputs) == 1 else f"return {{{found}}}"], at_once is not None


def _one_after_another(given: list[Any], ready: Ready, local: dict[str, Any]) -> list[str]:
    """Lines that take scratch for what kernels before the last one leave, and launch all of them."""
    lines = []
    places = [f"p{k}" for k in range(len(given))]
    for k, (operand, view) in enumerate(ready.planned.scratch.values()):
        count = max(1, view.shape[0] * view.strides[0] if view.shape else 1)
        dtype = SCRATCH.get(operand.dtype, operand.dtype)
        lines += [f"s{k} = {_empty(f's{k}', (count,), dtype, given, ready, local)}", f"t{k} = s{k}.data_ptr()"]
        places.append(f"t{k}")
    for k in range(len(ready.outputs) if ready.before else 0):
        lines.append(f"o{k} = r{k}.data_ptr()")
    results = {o[0]: f"o{k}" if ready.before else f"r{k}.data_ptr()" for k, o in enumerate(ready.outputs)}
    results |= {name: f"t{k}" for k, name in enumerate(ready.planned.scratch)}
    for number, one in enumerate((*ready.before, ready)):
        written, values = [results[o[0]] for o in one.outputs], []
        for slot, (role, at) in enumerate(one._order):
            before, value = _value(f"{number}_{slot}", role, at, (places, written), given, one, local)
            lines += before
            values.append(value)
        for word, launch in ((f"first{number}", one.launch), (f"second{number}", one.second)):
            if launch is not None:
                lines += _launched(word, launch, values, local)
    return lines


def _is_launched(ready: Ready) -> bool:
    """Whether a call is kernels one after another, each of which may merge what it left; nothing on the host."""
    apart = ready.planned.scratch and not ready.before or ready.looking is not None or ready.zero_length
    return not apart and all(map(_is_kernel, (*ready.before, ready)))


def _is_kernel(one: Ready) -> bool:
    kernels = [k for k in (one.launch, one.second) if k is not None]
    alone = one.planned.kernel.vendor is None and not any(first.before or first.planned.scratch for first in one.before)
    return bool(kernels) and alone and all(isinstance(k, driver.Launch) for k in kernels)


def _launched(word: str, launch: Any, values: list[str], local: dict[str, Any]) -> list[str]:
    """Lines that launch with the stream and the arguments."""
    local |= {word: launch.prepared(), f"{word}_failed": launch.failed}
    return [f"error = {word}({', '.join(['where', *values])})", "if error:", f"    {word}_failed(error)"]


def _at_once(ready: Ready, given: list[Any], local: dict[str, Any]) -> list[str] | None:
    """Lines of a launch that asks tensors for their addresses itself, by the C function of PyTorch's compiled code.

    Only after guards that accept tensors which have an address: that function throws what no Python code catches.
    None where something else needs addresses, or there is no such function.
    """
    pointer = getattr(_guards(), "_torchinductor_pyobject_tensor_data_ptr", None)
    read = {at for role, at in ready._order if role == "operand"}
    tensors = {k for k, a in enumerate(given) if a.__class__ not in _NUMBER}
    plain = all(role in ("operand", "number", "result") for role, _ in ready._order)
    if not isinstance(pointer, int) or ready.second is not None or not plain or not tensors <= read:
        return None
    launch, bits, values = ready.launch, {}, []
    assert isinstance(launch, driver.Launch)
    for slot, (role, at) in zip(launch.slots, ready._order, strict=True):
        values.append(f"{'r' if role == 'result' else 'a'}{at}")
        if role != "number":
            bits[slot] = given[at].data_ptr() & 15 if role == "operand" else 0
    made = launch.prepared(bits, pointer)
    if made is None:
        return None
    local |= {"first": made, "first_failed": launch.failed}
    return [
        f"error = first({', '.join(['where', *values])})",
        "if error:",
        f"    if error == {MOVED}:",
        "        return MISS",
        "    first_failed(error)",
    ]


def _guards() -> Any:
    """PyTorch's module of what its compiled code needs, or None."""
    try:
        return sys.modules["torch"]._C._dynamo.guards
    except AttributeError:
        return None


def _stream() -> Callable[[int], int]:
    """The stream that is current on a device, as PyTorch itself says it."""
    found: Callable[[int], int] = sys.modules["torch"]._C._cuda_getCurrentRawStream
    return found


def _value(
    slot: str,
    role: str,
    at: Any,
    places: tuple[list[str], list[str]],
    given: list[Any],
    ready: Ready,
    local: dict[str, Any],
) -> tuple[list[str], str]:
    """An argument as an expression, and lines that come before. `places`: addresses of what is read and written."""
    if role in ("operand", "result"):
        return [], places[role == "result"][at]
    if role == "number":
        return [], f"a{at}"
    if role == "portion":
        which, number, more = at
        return [], f"{places[which == 'result'][number]} + {more}"
    if role == "maps":
        assert ready.maps is not None
        local[f"maps{slot}"] = ready.maps.at
        every = [x for some in places for x in some]
        return [], f"maps{slot}(({', '.join(every[i] for i in at)},))"
    if role == "counters":
        assert ready.counters is not None
        local[f"counters{slot}"] = ready.counters.at
        return [f"v{slot} = counters{slot}(where)"], f"v{slot}"
    count, dtype = at
    local["clear"] = driver.clear
    lines = [f"k{slot} = {_empty(f'k{slot}', (count,), SCRATCH.get(dtype, dtype), given, ready, local)}"]
    lines.append(f"v{slot} = k{slot}.data_ptr()")
    return [*lines, *([f"clear(v{slot}, {count}, where)"] if dtype == "uint32" else [])], f"v{slot}"


def _guarded(given: list[Any], ready: Ready, local: dict[str, Any], at_once: bool) -> list[str]:
    """Lines that refuse arguments of another kind than those that this call had.

    PyTorch compares class, dtype, device, sizes, strides and the keys of dispatch of all tensors at once (its own
    guards of compiled code); what those refuse, as in another mode of inference, is asked one by one.
    """
    numbers = [k for k, a in enumerate(given) if a.__class__ in _NUMBER]
    tensors = [k for k in range(len(given)) if k not in numbers]
    lines = []
    for k in numbers:
        lines += [f"if not ({_NUMBER[given[k].__class__].format(f'a{k}')}):", "    return MISS"]
    asked = " and ".join(_asked(k, given[k], ready, local) for k in tensors)
    local["same"] = _same([given[k] for k in tensors])
    if at_once:  # what has no address raises here
        asked += "".join(f" and a{k}.data_ptr() is not None" for k in tensors)
    if local["same"] is not None:
        asked = f"same({', '.join(f'a{k}' for k in tensors)}) or {asked}"
    lines += [f"if not ({asked}):", "    return MISS"]
    return lines if at_once else [*lines, *_aligned(given, tensors)]


def _aligned(given: list[Any], tensors: list[int]) -> list[str]:
    """Lines that take addresses, and refuse those that lie otherwise to multiples of 16 bytes."""
    lines = [f"p{k} = a{k}.data_ptr()" for k in tensors]
    bits = {k: given[k].data_ptr() & 15 for k in tensors}
    moved = [f"p{k} & 15 != {bit}" for k, bit in bits.items() if bit]
    if aligned := [f"p{k}" for k, bit in bits.items() if not bit]:
        moved.append(f"({' | '.join(aligned)}) & 15")
    return [*lines, f"if {' or '.join(moved)}:", "    return MISS"]


def _same(tensors: list[Any]) -> Callable[..., bool] | None:
    """Whether tensors are of the kind of these, in one call of PyTorch's; None where it has no such call."""
    try:
        guards = sys.modules["torch"]._C._dynamo.guards.TensorGuards
        made = guards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None)
        found: Callable[..., bool] = made.check
        return found if found(*tensors) else None
    except (AttributeError, TypeError, RuntimeError):
        return None


def _asked(k: int, a: Any, ready: Ready, local: dict[str, Any]) -> str:
    """Whether a tensor is of the kind of this one, one question after the other."""
    x = f"a{k}"
    local |= {f"C{k}": a.__class__, f"S{k}": a.shape, f"T{k}": a.stride(), f"D{k}": a.dtype}
    kind = f"{x}.__class__ is C{k} and {x}.dtype is D{k} and {x}.shape == S{k} and {x}.stride() == T{k}"
    return f"{kind} and {x}.get_device() == {ready.device} and not {x}.requires_grad and not {x}.is_neg()"


def _allocated(k: int, given: list[Any], ready: Ready, local: dict[str, Any]) -> str:
    """An expression for a new result."""
    (name, shape, dtype), turned = ready.outputs[k], bool(ready.turned[k])
    steps = ready.planned.results[name].strides if turned else View.contiguous(shape).strides
    return _empty(f"r{k}", shape, dtype, given, ready, local, steps)


def _empty(
    name: str,
    shape: tuple[int, ...],
    dtype: str,
    given: list[Any],
    ready: Ready,
    local: dict[str, Any],
    strides: tuple[int, ...] = (1,),
) -> str:
    """An expression for new memory: as PyTorch's compiled code takes it, on the one device there is; else by a tensor
    of the call, and one that has shape and dtype costs least."""
    torch = sys.modules["torch"]
    kind = getattr(torch, dtype)
    local |= {f"{name}_shape": shape, f"{name}_strides": strides, f"{name}_dtype": kind}
    try:
        local["empty"] = torch._C._dynamo.guards._empty_strided_cuda
    except AttributeError:
        local["empty"] = None
    if local["empty"] is not None and driver.is_only(ready.device):
        return f"empty({name}_shape, {name}_strides, {name}_dtype)"
    tensors = [n for n, a in enumerate(given) if a.__class__ not in _NUMBER]
    for n in tensors:
        a = given[n]
        if a.dtype is kind and tuple(a.shape) == shape and tuple(a.stride()) == strides:
            local["empty_like"] = torch.empty_like
            return f"empty_like(a{n})"
    if strides != View.contiguous(shape).strides:
        local["empty_strided"] = torch.empty_strided
        return f"empty_strided({name}_shape, {name}_strides, dtype={name}_dtype, device=a{tensors[0]}.device)"
    return f"a{tensors[0]}.new_empty({name}_shape, dtype={name}_dtype)"


__all__ = ["ELSEWHERE", "MISS", "SCRATCH", "Quickly"]
