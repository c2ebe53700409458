"""Products that a library computes in the place of a kernel: cuBLAS and cuDNN, as PyTorch calls them.

What a plan says of such a product (`redalg.kernels.launch.planned.Vendor`) is one call of PyTorch on views of the
arrays that the kernel would have read. PyTorch lets cuBLAS round partial sums to the operands' type, unless its flags
say otherwise; during the call they do, and they are put back after it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from redalg.kernels.launch.planned import Lying, Vendor

# Flags of `torch.backends.cuda.matmul` with which sums would not be kept in float32.
ROUNDED = (
    "allow_bf16_reduced_precision_reduction",
    "allow_fp16_reduced_precision_reduction",
    "allow_fp16_accumulation",
)
_TURNS = threading.Lock()  # threads that take a flag away put it back one after the other


class Product:
    """A call of the library. `names`: of the arrays that are held, the last one of a name is meant; `outputs`: names
    and shapes of results."""

    def __init__(self, made: Vendor, names: Sequence[str], outputs: Sequence[tuple[str, tuple[int, ...]]]) -> None:
        self.made, self.bias = made, None
        places = {name: k for k, name in enumerate(names)}
        self.left, self.right = places[made.left.name], places[made.right.name]
        self.result, self.shape = next((k, shape) for k, (name, shape) in enumerate(outputs) if name == made.result)

    def run(self, held: Sequence[Any], results: list[Any], stream: int | None, fresh: bool) -> None:
        """Its result in `results`: in the array that is there or, where it may be `fresh`, in the place of that."""
        torch = sys.modules["torch"]
        out, made = results[self.result], self.made
        with _on(torch, stream, out):
            left, right = _lying(torch, held[self.left], made.left), _lying(torch, held[self.right], made.right)
            if not made.windows:
                with _in_float32(torch):
                    torch.mm(left, right, out=out.view(made.shape))
                return
            found = self._convolved(torch, left, right).permute(0, 2, 3, 1).reshape(self.shape)
            if fresh and stream is None:
                results[self.result] = found
            else:  # memory of another stream is given on in the order of that one
                out.view(self.shape).copy_(found)

    def _convolved(self, torch: Any, left: Any, right: Any) -> Any:
        padding, step, dilation = ([w[k] for w in self.made.windows] for k in range(3))
        if self.made.relu:
            return torch.cudnn_convolution_relu(left, right, self._zeros(torch, right), step, padding, dilation, 1)
        flags = torch.backends.cudnn
        how = flags.benchmark, flags.deterministic, flags.allow_tf32
        return torch.cudnn_convolution(left, right, padding, step, dilation, 1, *how)

    def _zeros(self, torch: Any, weights: Any) -> Any:
        """A bias for every call, which PyTorch would fill anew otherwise; while a stream is captured it does."""
        if self.bias is None and weights.is_cuda and not torch.cuda.is_current_stream_capturing():
            self.bias = weights.new_zeros(weights.shape[0])
            torch.cuda.current_stream(weights.device).synchronize()
        return self.bias


def said(made: Vendor | None) -> str:
    """A line above a source that is not launched."""
    if made is None:
        return ""
    return f"# Not launched for PyTorch's tensors: {name(made)} multiplies.\n"


def name(made: Vendor) -> str:
    return "cuDNN" if made.windows else "cuBLAS"


def _lying(torch: Any, array: Any, made: Lying) -> Any:
    return torch.as_strided(array, made.shape, made.strides)


@contextmanager
def _in_float32(torch: Any) -> Iterator[None]:
    """Sums stay in float32, whatever PyTorch's flags say."""
    flags = torch.backends.cuda.matmul
    with _TURNS:
        taken = {flag: was for flag in ROUNDED if (was := getattr(flags, flag, False))}
        for flag in taken:
            setattr(flags, flag, False)
        try:
            yield
        finally:
            for flag, was in taken.items():
                setattr(flags, flag, was)


def _on(torch: Any, stream: int | None, array: Any) -> Any:
    """PyTorch's calls on a stream: on the current one, where none is given."""
    if torch.is_autocast_enabled():
        return _casting(torch, stream, array)
    if stream is None:
        return nullcontext()
    return torch.cuda.stream(torch.cuda.ExternalStream(stream, array.device))


@contextmanager
def _casting(torch: Any, stream: int | None, array: Any) -> Iterator[None]:
    """Operands keep their types where PyTorch is told to cast what its products take."""
    with torch.autocast("cuda", enabled=False), _on(torch, stream, array):
        yield
