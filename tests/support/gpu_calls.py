"""Calls on a GPU from other streams and from graphs."""

from __future__ import annotations

from typing import Any

import pytest


def replayed(run: Any, arrays: dict[str, Any], name: str, factor: float) -> Any:
    """The result of a captured call whose array `name` was multiplied in place before the replay.

    A call from another stream must give the same bits as one from the current one.
    """
    torch = pytest.importorskip("torch")
    plain = run(**arrays)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        other = run(**arrays)
    side.synchronize()
    assert torch.equal(plain, other)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run(**arrays)
    arrays[name].mul_(factor)
    graph.replay()
    torch.cuda.synchronize()
    return captured
