"""Calls of operators that are written into graphs of `torch.fx` while Python runs (`torch.fx.symbolic_trace`).

What stands for a tensor there is no tensor: it has no dtype, no shape and no device. So the call itself is written
into the graph, by the operator's name, and is an ordinary one when the graph runs, numbers and autocast included.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from typing import Any

from redalg.adapters.operands import by_operators_name
from redalg.errors import RedalgError
from redalg.graph.node import Decl

torch: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") else None


def is_traced(array: Any) -> bool:
    """Whether it stands for a tensor in a graph: a thing that PyTorch's functions ask, and no tensor."""
    return hasattr(type(array), "__torch_function__") and not isinstance(array, torch.Tensor)


def traced(name: str, arrays: Sequence[Any], results: int) -> Any:
    """The call of an operator as a node of the graph that these stand in; a tuple of nodes for several results."""
    asked = [a for a in arrays if is_traced(a)]
    found = torch.overrides.handle_torch_function(call_by_name, asked, name, *arrays)
    return found if results == 1 else tuple(found[k] for k in range(results))


def call_by_name(name: str, *given: Any) -> Any:
    """The operator or head that has been made under this name, called.

    Raises: RedalgError where there is none: a graph that was saved does not hold the spec.
    """
    op = by_operators_name(name)
    if op is None:
        why = "nothing of this name has been made in this process, and the graph holds no spec"
        raise RedalgError(f"the operator {name}", "a graph of torch.fx", why, "make the operator first")
    return op(*given)


def nested(decl: Decl, where: str) -> RedalgError:
    """Why a nested tensor is refused."""
    why = "an axis has one length, and in a nested tensor every part has its own"
    return RedalgError(f"{decl} given as a nested tensor", where, why, "pad it, and read the lengths in the spec")


__all__ = ["call_by_name", "is_traced", "nested", "traced"]
