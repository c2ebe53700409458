"""What the blocks of a cluster, and those of a grid, do together (compute capability 9.0 for the former).

``cluster_rank()``, ``cluster_size()``; ``cluster_sync()`` is a barrier of all threads of the cluster that also orders
their memory. ``dsm_load_<t>(array, index, rank)`` reads an element of the array that block `rank` declares where this
one declares `array`, ``dsm_store_<t>(array, index, rank, value)`` writes one; between writing and reading there must
be a `cluster_sync`, and one before the block that is read ends (PTX ISA 9.0, "mapa", "barrier.cluster").

``splits_sync(pointer, i, count)`` is a barrier of all threads of `count` neighbouring blocks, the first of which has a
number that `count` divides; it orders their memory. All of them must be running, as those of a cooperative launch are.
The uint32 is 0 before the first barrier and serves for any number of them, in one launch after the other; each of them
changes its highest bit, so that nothing else may count there.
``tx_init(bars, i)`` makes element i of a shared array of int64 an mbarrier of one arrival, for all blocks of the
cluster behind their next barrier; ``tx_expect(bars, i, bytes)`` is that arrival, and says how many bytes come;
``dsm_send_<t>(array, index, rank, value, bars, i)`` stores a value as ``dsm_store_<t>`` does, and behind it counts its
bytes in at the mbarrier of that block; ``tx_wait(bars, i)`` waits for the first phase: all bytes have come.
``atomic_inc_acq_rel(pointer, i)`` adds 1 to a uint32 and gives what it held; it orders memory on both sides.
``kernel_before_wait()`` of a kernel launched to begin while the one before it ends: until that has ended, and what it
wrote is seen; ``kernel_behind_launch()``: from here on such a kernel may begin (PTX ISA 9.0, "griddepcontrol").
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from numba import types

from redalg.kernels.code.functions import (
    GLOBAL,
    I1,
    I8,
    I16,
    I32,
    I64,
    KINDS,
    LLVM,
    SHARED,
    VOID,
    as_width,
    function,
    inline,
    instruction,
    numeric,
)

# kind -> type of the instruction, register letter, LLVM type of the register
REGISTER = {
    "f32": ("b32", "r", I32),
    "f64": ("b64", "l", I64),
    "i32": ("b32", "r", I32),
    "u32": ("b32", "r", I32),
    "i64": ("b64", "l", I64),
    "u64": ("b64", "l", I64),
    "b1": ("b8", "h", I16),
}


def _remote(context: Any, b: Any, kind: Any, array: Any, index: Any, rank: Any) -> Any:
    """The address, in the cluster's shared memory, of an element in another block."""
    place = b.gep(context.make_array(kind)(context, b, array).data, [index])
    own = b.ptrtoint(b.addrspacecast(place, place.type.pointee.as_pointer(SHARED)), I32)
    return inline(b, "mapa.shared::cluster.u32 $0, $1, $2;", "=r,r,r", I32, [own, as_width(b, rank, I32)])


def _dsm_load(kind: str) -> Any:
    suffix, letter, register = REGISTER[kind]

    def typed(array: Any, index: Any, rank: Any) -> Any:
        def body(context: Any, b: Any, sig: Any, args: Any) -> Any:
            at = _remote(context, b, sig.args[0], *args)
            text = f"ld.shared::cluster.{suffix} $0, [$1];"
            found = inline(b, text, f"={letter},r,~{{memory}}", register, [at], effects=True)
            if kind == "b1":
                return b.icmp_unsigned("!=", b.trunc(found, I8), I8(0))
            return b.bitcast(found, LLVM[KINDS[kind]])

        return KINDS[kind](array, index, rank), body

    return function(f"dsm_load_{kind}", "array index rank", typed)


def _dsm_store(kind: str) -> Any:
    suffix, letter, register = REGISTER[kind]

    def typed(array: Any, index: Any, rank: Any, value: Any) -> Any:
        def body(context: Any, b: Any, sig: Any, args: Any) -> None:
            at = _remote(context, b, sig.args[0], *args[:3])
            given = b.zext(args[3], I16) if args[3].type == I1 else b.bitcast(args[3], register)
            text = f"st.shared::cluster.{suffix} [$0], $1;"
            inline(b, text, f"r,{letter},~{{memory}}", VOID, [at, given], effects=True)

        return types.void(array, index, rank, KINDS[kind]), body

    return function(f"dsm_store_{kind}", "array index rank value", typed)


def _own(context: Any, b: Any, array: Any, index: Any, kind: Any) -> Any:
    """The address, in this block's shared memory, of an element."""
    place = b.gep(context.make_array(kind)(context, b, array).data, [index])
    return b.ptrtoint(b.addrspacecast(place, place.type.pointee.as_pointer(SHARED)), I32)


# A store that counts its bytes in at the mbarrier, in place of a barrier of the cluster, whose release is a fence of
# all memory for every thread.
SEND = "st.async.shared::cluster.mbarrier::complete_tx::bytes.{} [$0], $1, [$2];"
TX_INIT = "mbarrier.init.shared::cta.b64 [$0], 1; fence.mbarrier_init.release.cluster;"
TX_EXPECT = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;"
TX_WAIT = "{ .reg .pred p; W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [$0], 0; @!p bra W; }"


def _dsm_send(kind: str) -> Any:
    suffix, letter, register = REGISTER[kind]

    def typed(array: Any, index: Any, rank: Any, value: Any, bars: Any, i: Any) -> Any:
        def body(context: Any, b: Any, sig: Any, args: Any) -> None:
            at = _remote(context, b, sig.args[0], *args[:3])
            bar = _remote(context, b, sig.args[4], args[4], args[5], args[2])
            text, given = SEND.format(suffix), b.bitcast(args[3], register)
            inline(b, text, f"r,{letter},r,~{{memory}}", VOID, [at, given, bar], effects=True)

        return types.void(array, index, rank, KINDS[kind], bars, i), body

    return function(f"dsm_send_{kind}", "array index rank value bars i", typed)


def _tx(name: str, text: str, more: str = "") -> Any:
    def typed(bars: Any, i: Any, *given: Any) -> Any:
        def body(context: Any, b: Any, sig: Any, args: Any) -> None:
            words = [_own(context, b, args[0], args[1], sig.args[0]), *(as_width(b, a, I32) for a in args[2:])]
            inline(b, text, ",".join("r" * len(words)) + ",~{memory}", VOID, words, effects=True)

        return types.void(bars, i, *given), body

    return function(name, f"bars i {more}".strip(), typed)


def _register(name: str, special: str) -> Any:
    return numeric(name, (), "i32", lambda b: inline(b, f"mov.u32 $0, %{special};", "=r", I32, []))


def _atomic_inc() -> Any:
    def typed(pointer: Any, index: Any) -> Any:
        def body(context: Any, b: Any, sig: Any, args: Any) -> Any:
            place = b.gep(args[0], [args[1]])
            at = b.ptrtoint(b.addrspacecast(place, place.type.pointee.as_pointer(GLOBAL)), I64)
            text = "atom.acq_rel.gpu.global.add.u32 $0, [$1], 1;"
            return b.zext(inline(b, text, "=r,l,~{memory}", I32, [at], effects=True), I64)

        return types.int64(pointer, index), body

    return function("atomic_inc_acq_rel", "pointer index", typed)


# The first thread of a block counts it in and waits until all are there; the others wait for that thread. The blocks of
# one barrier are neighbours. The first of them adds what makes all of their numbers 2^31, so that the highest bit
# changes once all are in and the others are 0 again: nothing has to clear the word before the next barrier.
MEET = (
    "{ .reg .pred p; .reg .u32 n, m; barrier.sync 0; mov.u32 n, %tid.x; setp.ne.u32 p, n, 0; @p bra DONE; "
    "mov.u32 n, %ctaid.x; rem.u32 n, n, $1; setp.eq.u32 p, n, 0; sub.u32 m, 0x80000001, $1; selp.u32 m, m, 1, p; "
    "fence.acq_rel.gpu; atom.acq_rel.gpu.global.add.u32 n, [$0], m; "
    "WAIT: ld.acquire.gpu.global.u32 m, [$0]; xor.b32 m, m, n; setp.ge.s32 p, m, 0; @p bra WAIT; fence.acq_rel.gpu; "
    "DONE: barrier.sync 0; }"
)


def _splits_sync() -> Any:
    def typed(pointer: Any, index: Any, count: Any) -> Any:
        def body(context: Any, b: Any, sig: Any, args: Any) -> None:
            place = b.gep(args[0], [args[1]])
            at = b.ptrtoint(b.addrspacecast(place, place.type.pointee.as_pointer(GLOBAL)), I64)
            inline(b, MEET, "l,r,~{memory}", VOID, [at, as_width(b, args[2], I32)], effects=True)

        return types.void(pointer, index, count), body

    return function("splits_sync", "pointer index count", typed)


BARRIER = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"
MAKERS: dict[str, Callable[[], Any]] = {
    "cluster_rank": partial(_register, "cluster_rank", "cluster_ctarank"),
    "cluster_size": partial(_register, "cluster_size", "cluster_nctarank"),
    "cluster_sync": partial(instruction, "cluster_sync", BARRIER),
    "cluster_arrive": partial(instruction, "cluster_arrive", "barrier.cluster.arrive.relaxed.aligned;"),
    "cluster_wait": partial(instruction, "cluster_wait", "barrier.cluster.wait.acquire.aligned;"),
    "kernel_before_wait": partial(instruction, "kernel_before_wait", "griddepcontrol.wait;"),
    "kernel_behind_launch": partial(instruction, "kernel_behind_launch", "griddepcontrol.launch_dependents;"),
    "splits_sync": _splits_sync,
    "atomic_inc_acq_rel": _atomic_inc,
    **{f"dsm_load_{k}": partial(_dsm_load, k) for k in REGISTER},
    **{f"dsm_store_{k}": partial(_dsm_store, k) for k in REGISTER},
    **{f"dsm_send_{k}": partial(_dsm_send, k) for k in REGISTER if k != "b1"},
    "tx_init": partial(_tx, "tx_init", TX_INIT),
    "tx_expect": partial(_tx, "tx_expect", TX_EXPECT, "bytes"),
    "tx_wait": partial(_tx, "tx_wait", TX_WAIT),
}
