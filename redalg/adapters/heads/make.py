"""Heads by name: a spec is taken apart in the way that fits it, and becomes an operator."""

from __future__ import annotations

import importlib
import importlib.util
import threading
from typing import Any

from redalg.adapters.heads.batches import Batched, BatchedHead, batched
from redalg.adapters.heads.extrema import Pooled, pooled
from redalg.adapters.heads.operator import LATER, NOW, TorchHead
from redalg.adapters.heads.parts import WHERE, Head, head
from redalg.errors import RedalgError
from redalg.language.spec import Spec

torch: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") else None

_MADE: dict[str, tuple[Any, TorchHead | BatchedHead]] = {}
_MAKING = threading.RLock()


def torch_head(
    spec: Spec, name: str | None, gradients: str, logits: str | None, workspace: int | None
) -> TorchHead | BatchedHead:
    """The operator of a head; the same spec with the same options under the same name is the same operator."""
    if torch is None:
        raise RedalgError("a head", WHERE, "PyTorch cannot be imported", "pip install torch")
    _check_options(gradients, logits, workspace)
    options = (spec, gradients, logits, workspace)
    named = name or f"redalg::head_{spec.digest}_{gradients}_{logits or 'wide'}_{workspace or 'planned'}"
    namespace, _, short = named.partition("::")
    if not namespace.isidentifier() or not short.isidentifier():
        raise RedalgError(f"the name {name!r}", WHERE, "operators are named in a namespace", '"mylib::name"')
    with _MAKING:  # threads that ask for the same head are given the same operator
        made = _MADE.get(named)
        if made is None:
            parts = _taken_apart(spec)
            kind: Any = BatchedHead if isinstance(parts, Batched) else TorchHead
            made = options, kind(parts, named, gradients, logits, workspace)
            made[1].registered(torch_head, spec, name, gradients, logits, workspace)
            _MADE[named] = made
    if made[0] != options:
        why = f"it is the head of {made[0][0]}, {', '.join(map(str, made[0][1:]))}"
        raise RedalgError(f"the name {name!r}", WHERE, why, "take another name for another head")
    return made[1]


def _check_options(gradients: str, logits: str | None, workspace: int | None) -> None:
    """Raises: RedalgError for one that is none."""
    if gradients not in (LATER, NOW):
        raise RedalgError(f"gradients={gradients!r}", WHERE, "it is 'later' or 'now'", 'gradients="later"')
    if logits not in (None, "float32", "float64", "bfloat16", "float16"):
        raise RedalgError(f"logits={logits!r}", WHERE, "products are held in floats", 'logits="bfloat16", or None')
    if workspace is not None and (not isinstance(workspace, int) or workspace <= 0):
        raise RedalgError(f"workspace={workspace!r}", WHERE, "it is a number of bytes", "workspace=1 << 29, or None")


def _taken_apart(spec: Spec) -> Head | Pooled | Batched:
    """Raises: RedalgError for a spec that is none of these."""
    try:
        return head(spec)
    except RedalgError as refusal:
        reasons = [refusal.why]
        for take in (pooled, batched):  # extrema by position first: their gradients multiply nothing
            found: Any = take(spec)
            if not isinstance(found, str):
                return found
            reasons.append(found)
        why = "; ".join(dict.fromkeys(reasons))
        raise RedalgError(refusal.what, refusal.where, why, refusal.fix) from refusal


__all__ = ["torch_head"]
