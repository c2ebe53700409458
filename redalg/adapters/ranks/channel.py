"""The collectives of one group, and what ranks agree on before the first state is sent.

Every exchange has a size that all ranks know, whatever the rank's own call was: none waits for a message that another
never sends. A rank that refuses its arguments says so in the exchange, and all ranks raise.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from redalg.errors import RedalgError

torch: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") else None

WHERE = "the call of form.collective()"
TOPICS = ("the form", "the options", "the dtypes", "the lengths of axes", "the tensors without the axis", "start=")


class Channel:
    """A process group: NumPy arrays in, NumPy arrays out, by way of the device that the group's backend takes.

    What the backend raises (a rank that died, a time limit) is not caught.
    """

    def __init__(self, group: Any) -> None:
        dist = torch.distributed if torch is not None else None
        if dist is None or not dist.is_available():
            why = "PyTorch, or its torch.distributed, cannot be imported"
            raise RedalgError("a collective", "form.collective", why, "pip install torch")
        if not dist.is_initialized():
            why = "there is no process group"
            raise RedalgError("a collective", "form.collective", why, 'torch.distributed.init_process_group("gloo")')
        self.group, self.rank, self.ranks = group, dist.get_rank(group), dist.get_world_size(group)
        if self.rank < 0:
            why = f"rank {dist.get_rank()} is none of the group's"
            raise RedalgError("a collective", "form.collective", why, "call it on the ranks of the group only")
        self.backend = str(dist.get_backend(group))
        devices = str(dist.get_backend_config(group))
        self.device = torch.device("cpu") if "cpu" in devices else torch.device("cuda", torch.cuda.current_device())

    def gathered(self, mine: np.ndarray) -> list[np.ndarray]:
        """The arrays of all ranks, of one shape and dtype."""
        sent = self._sent(mine)
        received = [torch.empty_like(sent) for _ in range(self.ranks)]
        torch.distributed.all_gather(received, sent, group=self.group)
        return [x.cpu().numpy() for x in received]

    def gather_into(self, everyone: Any, mine: Any) -> None:
        """The bytes of all ranks, one after the other, in a tensor on the device where `mine` lies."""
        torch.distributed.all_gather_into_tensor(everyone, mine, group=self.group)

    def reduce_into(self, mine: Any, op: str) -> None:
        """A tensor on the device reduced by "MAX" or "SUM" where it lies."""
        torch.distributed.all_reduce(mine, getattr(torch.distributed.ReduceOp, op), group=self.group)

    def reduced(self, buffers: Sequence[tuple[np.ndarray, str]]) -> list[np.ndarray]:
        """Each buffer reduced by "MAX" or "SUM": all at once, so that their latencies overlap."""
        sent = [self._sent(buffer) for buffer, _ in buffers]
        ops = [getattr(torch.distributed.ReduceOp, op) for _, op in buffers]
        work = [
            torch.distributed.all_reduce(x, op, group=self.group, async_op=True)
            for x, op in zip(sent, ops, strict=True)
        ]
        for w in work:
            w.wait()
        return [x.cpu().numpy() for x in sent]

    def _sent(self, array: np.ndarray) -> Any:
        return torch.from_numpy(np.array(array)).to(self.device)


# --- agreement -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """What a rank says of its call: a digest for each of `TOPICS`, the length of its part, where it begins if given."""

    topics: tuple[int, ...]
    length: int
    start: int | None


def digest(*things: Any) -> int:
    """63 bits of the texts and bytes."""
    found = hashlib.blake2b(digest_size=8)
    for x in things:
        data = x if isinstance(x, bytes) else repr(x).encode()
        found.update(len(data).to_bytes(8, "little") + data)
    return int.from_bytes(found.digest(), "little") >> 1


def array_digest(x: Any) -> int:
    """Of the dtype, shape and bytes of an array, or of a Python number."""
    if not isinstance(x, np.ndarray):
        return digest(type(x).__name__, x)
    return digest(x.dtype.str, x.shape, np.ascontiguousarray(x).tobytes())


def agreed(channel: Channel, part: Part | None) -> list[Part]:
    """What all ranks say; None for a rank that refuses its own arguments, and raises after this.

    Raises: RedalgError, on every rank, if one refuses its arguments or if they differ.
    """
    message = np.full(3 + len(TOPICS), -1, np.int64)
    if part is not None:
        message[0], message[1] = 0, part.length
        message[2] = -1 if part.start is None else part.start
        message[3:] = part.topics
    found = channel.gathered(message)
    failed = [r for r, m in enumerate(found) if m[0]]
    if part is None:
        return []
    if failed:
        raise _elsewhere(failed, "refused the arguments of their call")
    for k, topic in enumerate(TOPICS):
        others = [r for r, m in enumerate(found) if m[3 + k] != found[0][3 + k]]
        if others:
            why = f"{topic} of {_named(others)} differ from those of rank 0"
            fix = "make the same call on all ranks, on arrays that differ in their lengths along the axis alone"
            raise RedalgError(f"ranks with different calls ({topic})", WHERE, why, fix)
    return [Part(tuple(map(int, m[3:])), int(m[1]), None if m[2] < 0 else int(m[2])) for m in found]


def guarded(work: Callable[[], Any]) -> tuple[Any, Exception | None]:
    """What came of a rank's own work: an error is told to the others before it is raised."""
    try:
        return work(), None
    except Exception as error:
        return None, error


def settle(failed: Sequence[int], mine: Exception | None) -> None:
    """Raises this rank's own error, or that of others."""
    if mine is not None:
        raise mine
    if failed:
        raise _elsewhere(failed, "failed while they folded their parts")


def _elsewhere(failed: Sequence[int], what: str) -> RedalgError:
    why = f"{_named(failed)} {what}"
    return RedalgError("a merge without all ranks", WHERE, why, "see the errors of these ranks")


def _named(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:8])) + (" and others" if len(ranks) > 8 else "")
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}"


__all__ = ["WHERE", "Channel", "Part", "agreed", "array_digest", "digest", "guarded", "settle"]
