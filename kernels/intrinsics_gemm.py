"""What the blocks of a pair do for each other in a matrix product (compute capability 9.0).

``arrive_pair(barrier, go)`` counts at the barrier of both blocks, which lies at one address in each, if `go` is not 0.
``tensor_load_pair`` makes a load whose box, and the bytes that count at the barrier, come to both blocks at the same
addresses (PTX ISA 9.0, "cp.async.bulk.tensor", ``.multicast::cluster``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from numba import types

from redalg.kernels.gpu_build import VOID, function, inline, instruction
from redalg.kernels.intrinsics_tensor import MEMORY


def tensor_load_pair(dimensions: int) -> Any:
    """``load(address, map, barrier, x, y, …)``: a box of a tensor to the shared memory of both blocks."""
    places = ", ".join(f"${3 + k}" for k in range(dimensions))
    text = (
        "{ .reg .b16 both; mov.b16 both, 3; "
        f"cp.async.bulk.tensor.{dimensions}d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        f"[$0], [$1, {{{places}}}], [$2], both; }}"
    )
    constraints = "r,l,r," + "r," * dimensions + MEMORY
    takes = (types.int32, types.uint64, types.int32, *[types.int32] * dimensions)

    def body(context: Any, b: Any, sig: Any, args: Any) -> None:
        inline(b, text, constraints, VOID, args, effects=True)

    names = "address map barrier " + " ".join(f"at{k}" for k in range(dimensions))
    return function("tensor_load_pair", names, lambda *_: (types.void(*takes), body))


ARRIVE = (
    "{ .reg .pred p; .reg .b32 a, b; setp.ne.s32 p, $1, 0; "
    "mapa.shared::cluster.u32 a, $0, 0; mapa.shared::cluster.u32 b, $0, 1; "
    "@p mbarrier.arrive.shared::cluster.b64 _, [a]; @p mbarrier.arrive.shared::cluster.b64 _, [b]; }"
)
MAKERS: dict[str, Callable[[], Any]] = {
    "arrive_pair": partial(instruction, "arrive_pair", ARRIVE, f"r,r,{MEMORY}", "", ("i32", "i32")),
}


def names() -> tuple[str, ...]:
    """Every function of this module that has one shape."""
    return tuple(MAKERS)


def __getattr__(name: str) -> Any:
    if name not in MAKERS:
        raise AttributeError(f"module {__name__!r} has no function {name!r}")
    return globals().setdefault(name, MAKERS[name]())
