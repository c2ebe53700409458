"""Runs the bodies of functions of `redalg.kernels.cuda.intrinsics.mma` and `mma_types` on 32 lanes of NumPy.

What a body asks its builder for is computed on arrays of 32 values, and the few PTX instructions in it are written out
from the PTX ISA's tables of fragments: which lane holds what of which matrix is not taken from the code that is tested.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
from llvmlite import ir
from numba import types

from redalg.kernels.cuda.intrinsics import mma, mma_types
from redalg.kernels.emulate.fragments import rows_of, score_columns, tf32

LANES = np.arange(32)
GROUP, THREAD = LANES >> 2, LANES & 3
BITS = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}


def plain(x: Any) -> np.ndarray:
    """A constant of LLVM, or an array of lanes."""
    if isinstance(x, ir.Constant):
        return np.full(32, x.constant)
    return np.asarray(x)


def two_way(f: Callable[[Any, Any], Any], kind: Any = np.int64) -> Callable[..., Any]:
    return lambda self, x, y: f(plain(x).astype(kind), plain(y).astype(kind))


class Builder:
    """The part of an LLVM builder that is used, on lanes. Memory is bytes, an address an index."""

    add, sub, mul = (two_way(f) for f in (np.add, np.subtract, np.multiply))
    and_, or_, shl, lshr = (two_way(f) for f in (np.bitwise_and, np.bitwise_or, np.left_shift, np.right_shift))

    @staticmethod
    def icmp_signed(word: str, x: Any, y: Any) -> Any:
        return {"<": np.less, ">": np.greater, "!=": np.not_equal}[word](plain(x), plain(y))

    icmp_unsigned = icmp_signed

    @staticmethod
    def zext(x: Any, _: Any) -> Any:
        return plain(x).astype(np.int64)

    @staticmethod
    def trunc(x: Any, kind: Any) -> Any:
        return plain(x).astype(np.int64) & ((1 << kind.width) - 1)

    @staticmethod
    def bitcast(x: Any, kind: Any) -> Any:
        if isinstance(kind, ir.HalfType):
            return plain(x).astype(np.uint16).view(np.float16)
        return plain(x).astype(np.float32).view(np.uint32) if isinstance(kind, ir.IntType) else word_float(x)

    @staticmethod
    def fpext(x: Any, _: Any) -> Any:
        return x.astype(np.float32)

    @staticmethod
    def select(test: Any, x: Any, y: Any) -> Any:
        return np.where(test, plain(x), plain(y))

    @staticmethod
    def extract_value(made: Any, k: int) -> Any:
        return made[k]

    @staticmethod
    def gep(data: Any, at: Sequence[Any]) -> Any:
        if isinstance(data, Pointer):
            return Pointer(data.base + plain(at[0]).astype(np.int64) * data.size, data.size)
        return data, int(plain(at[0])[0])

    @staticmethod
    def ptrtoint(pointer: Any, _: Any) -> Any:
        return pointer.base

    @staticmethod
    def load(at: Any) -> Any:
        data, k = at
        return data[k]

    @staticmethod
    def store(value: Any, at: Any) -> None:
        data, k = at
        data[k] = plain(value)


class Pointer:
    def __init__(self, base: Any, size: int) -> None:
        self.base, self.size = base, size


def word_float(x: Any) -> np.ndarray:
    return plain(x).astype(np.int64).astype(np.uint32).view(np.float32)


def halves(x: Any, kind: Any) -> np.ndarray:
    """Words as two 16-bit floats each: [32, 2]."""
    return plain(x).astype(np.int64).astype(np.uint32).view(np.uint16).view(kind).reshape(32, 2)


class Machine:
    """Shared memory and global memory, and what PTX does to them; ``copies``: where memory begins that is copied."""

    copies = 0

    def __init__(self, memory: np.ndarray) -> None:
        self.memory = np.ascontiguousarray(memory).view(np.uint8).reshape(-1)

    def inline(self, b: Any, text: str, constraints: str, shape: Any, args: Any, effects: bool = False) -> Any:
        name = next(n for n in NAMES if n in text)
        return NAMES[name](self, text, [plain(a) for a in args])

    def words(self, address: Any, count: int = 1) -> Any:
        at = np.asarray(address, np.int64)
        assert at.min() >= 0 and at.max() + 4 * count <= self.memory.size and not (at % (4 * count)).any()
        found = [self.memory[at[:, None] + 4 * k + np.arange(4)].copy().view(np.uint32)[:, 0] for k in range(count)]
        return found if count > 1 else found[0]

    def ldmatrix(self, text: str, args: Any) -> Any:
        count, offset = int(re.search(r"\.x(\d)", text)[1]), int(re.search(r"\+(\d+)\]", text)[1])  # type: ignore[index]
        found = []
        for m in range(count):
            starts = args[0][8 * m : 8 * m + 8].astype(np.int64) + offset
            assert not (starts % 16).any() and starts.max() + 16 <= self.memory.size
            groups = (starts // 16) % 8
            assert len(set(groups)) == 8, "a conflict of banks"
            rows = self.memory[starts[:, None] + np.arange(16)].copy().view(np.uint16)
            rows = rows.T if ".trans" in text else rows
            low, high = rows[GROUP, 2 * THREAD], rows[GROUP, 2 * THREAD + 1]
            found.append(low.astype(np.int64) | high.astype(np.int64) << 16)
        return found

    def copy(self, text: str, args: Any) -> Any:
        """cp.async of 16 bytes, the first of them from the second address on, and zeros; addresses start at multiples
        of 16, and nothing is read of a copy without bytes."""
        to, source = (int(x) for x in re.findall(r"\+(\d+)\]", text))
        for lane in LANES if "@p" not in text else LANES[args[3] < int(re.search(r"\$3, (\d+)", text)[1])]:  # type: ignore[index]
            at, count = args[0][lane] + to, int(args[2][lane])
            assert not (at % 16 or count and (args[1][lane] + source) % 16) and 0 <= count <= 16
            first = self.copies + args[1][lane] + source if count else 0
            moved = np.zeros(16, np.uint8)
            moved[:count] = self.memory[first : first + count]
            self.memory[at : at + 16] = moved
        return None

    def shared_word(self, text: str, args: Any) -> Any:
        at = args[0] + int(re.search(r"\+(\d+)\]", text)[1])  # type: ignore[index]
        assert len(set((at // 4) % 32)) == 32, "a conflict of banks"
        return self.words(at)

    def shared_pair(self, text: str, args: Any) -> Any:
        return self.words(args[0] + int(re.search(r"\+(\d+)\]", text)[1]), 2)  # type: ignore[index]

    def global_words(self, text: str, args: Any) -> Any:
        count = 2 if ".v2." in text else 1
        at, exists = args[0] + int(re.search(r"\+(\d+)\]", text)[1]), args[1].astype(bool)  # type: ignore[index]
        found = self.words(np.where(exists, at, 0), count)
        return [np.where(exists, w, 0) for w in found] if count > 1 else np.where(exists, found, 0)

    def mma(self, text: str, args: Any) -> Any:
        """PTX ISA, "Matrix Fragments for mma.m16n8k16" with 16 bits, and "for mma.m16n8k8" with tf32."""
        a, right, c = args[:4], args[4:6], args[6:]
        deep = int(re.search(r"m16n8k(\d+)", text)[1])  # type: ignore[index]
        A, B, C = np.zeros((16, deep)), np.zeros((deep, 8)), np.zeros((16, 8))
        if deep == 8:
            for i, word in enumerate(a):
                assert not (np.asarray(word, np.int64) & 0x1FFF).any(), "not rounded to tf32"
                A[GROUP + 8 * (i & 1), THREAD + 4 * (i >> 1)] = word_float(word)
            for i, word in enumerate(right):
                assert not (np.asarray(word, np.int64) & 0x1FFF).any(), "not rounded to tf32"
                B[THREAD + 4 * i, GROUP] = word_float(word)
        else:
            kind = BITS[re.search(r"f32\.(\w+)\.", text)[1]]  # type: ignore[index]
            for i, word in enumerate(a):
                for k, x in enumerate(halves(word, kind).T):
                    A[GROUP + 8 * (i & 1), 2 * THREAD + k + 8 * (i >> 1)] = x
            for i, word in enumerate(right):
                for k, x in enumerate(halves(word, kind).T):
                    B[2 * THREAD + k + 8 * i, GROUP] = x
        at = [(GROUP + 8 * (i >> 1), 2 * THREAD + (i & 1)) for i in range(4)]
        for place, x in zip(at, c, strict=True):
            C[place] = x
        made = A @ B + C
        return [made[place].astype(np.float32) for place in at]

    def round_tf32(self, text: str, args: Any) -> Any:
        return tf32(word_float(args[0])).view(np.uint32)

    def prmt(self, text: str, args: Any) -> Any:
        selector = int(re.search(r"0x([0-9a-f]+)", text)[1], 16)  # type: ignore[index]
        bits, found = args[0].astype(np.int64), np.zeros(32, np.int64)
        for k in range(4):
            pick = selector >> 4 * k & 0xF
            found |= ((bits >> 8 * pick & 0xFF) if pick < 4 else 0) << 8 * k
        return found

    def unpack(self, text: str, args: Any) -> Any:
        found = args[0].astype(np.uint32).view(np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float16)
        pairs = np.ascontiguousarray(found).view(np.uint32).reshape(32, 2)
        return [pairs[:, 0], pairs[:, 1]]

    def compute(self, text: str, args: Any) -> Any:
        """Products of pairs of float16, one after the other, as they are written."""
        x = halves(args[0], np.float16)
        with np.errstate(all="ignore"):
            x = x * np.float16(256)
            y = x * np.float16(137)
            found = (y.astype(np.float64) * 0 + x.astype(np.float64)).astype(np.float16)
        assert re.findall("0x[0-9a-f]+", text) == ["0x5c005c00", "0x58485848"]
        return np.ascontiguousarray(found).view(np.uint32)[:, 0]

    def brain(self, text: str, args: Any) -> Any:
        with np.errstate(invalid="ignore"):
            both = np.stack([args[1], args[0]], 1).astype(np.float32).astype(ml_dtypes.bfloat16)
        return np.ascontiguousarray(both).view(np.uint32)[:, 0]

    def shuffle(self, text: str, args: Any) -> Any:
        return args[0][args[1].astype(int)]

    def lane(self, text: str, args: Any) -> Any:
        return LANES


NAMES: dict[str, Callable[[Machine, str, Any], Any]] = {
    "cp.async": Machine.copy,
    "ldmatrix": Machine.ldmatrix,
    "ld.shared.v2": Machine.shared_pair,
    "ld.shared.b32": Machine.shared_word,
    "ld.global": Machine.global_words,
    "mma.sync": Machine.mma,
    "cvt.rna.tf32": Machine.round_tf32,
    "prmt": Machine.prmt,
    "cvt.rn.f16x2.e4m3x2": Machine.unpack,
    "mul.rn.f16x2": Machine.compute,
    "cvt.rn.bf16x2.f32": Machine.brain,
    "shfl.sync.idx": Machine.shuffle,
    "%laneid": Machine.lane,
}


class Function:
    """A function that `make` makes, on lanes: arrays of registers are lists of 32 values each."""

    def __init__(self, monkeypatch: Any, make: Callable[[], Any], cc: tuple[int, int] = (9, 0)) -> None:
        for module in (mma, mma_types):
            monkeypatch.setattr(module, "function", lambda name, parameters, typed: typed)
        monkeypatch.setattr(mma_types, "compute_capability", lambda: cc)
        self.patch, self.typed = monkeypatch, make()

    def __call__(self, memory: np.ndarray, *args: Any) -> Any:
        machine = Machine(memory)
        for module in (mma, mma_types):
            self.patch.setattr(module, "inline", machine.inline)
        kinds = [types.float32[::1] if isinstance(a, list | Pointer) else types.int32 for a in args]
        sig, body = self.typed(*kinds)
        context = SimpleNamespace(make_array=lambda kind: lambda context, b, array: SimpleNamespace(data=array))
        return body(context, Builder(), SimpleNamespace(args=kinds), args)


def registers(count: int) -> list[Any]:
    return [np.zeros(32, np.float32) for _ in range(count)]


def _places(columns: int, tall: int) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of every register of a tile in every lane."""
    across = np.stack([score_columns(columns, tall, part) for part in range(4)], -1)[:, THREAD]
    return GROUP + 8 * rows_of(columns, tall)[:, None], across


def gathered(tile: Sequence[Any], columns: int, tall: int) -> np.ndarray:
    """The matrix that a tile of registers holds (`redalg.kernels.emulate.fragments`)."""
    found = np.full((16 * tall, columns), np.nan)
    found[_places(columns, tall)] = np.stack(tile)
    return found


def spread(matrix: np.ndarray, tall: int) -> list[np.ndarray]:
    """A tile of registers that holds this matrix."""
    return list(matrix[_places(matrix.shape[1], tall)])


def laid(rows: np.ndarray, pitch: int) -> np.ndarray:
    """Bytes of a tile in shared memory; what lies between rows is 0xff."""
    found = np.full((len(rows), pitch), 0xFF, np.uint8)
    found[:, : rows.shape[1] * rows.itemsize] = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), -1)
    return found.reshape(-1)
