"""Operators of PyTorch whose tensors are one list: a schema has at most 64 arguments.

What registers an operator is written for tensors one after the other; these put them into a list and take them out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def in_list(operator: Callable[..., Any], count: int) -> Callable[..., Any]:
    """The operator of a list, called with its ``count`` tensors one after the other."""
    return lambda *given: operator(list(given[:count]), *given[count:])


def from_list(run: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel of tensors one after the other, as one of a list."""
    return lambda arrays, *more: run(*arrays, *more)


def mapped_list(rule: Callable[..., Any]) -> Callable[..., Any]:
    """The same of a rule of `torch.library.register_vmap`, which is told where each tensor is mapped over."""

    def mapped(info: Any, places: Sequence[Any], arrays: Sequence[Any], *more: Any) -> Any:
        each = places[0] if isinstance(places[0], list | tuple) else [None] * len(arrays)
        return rule(info, [*each, *places[1:]], *arrays, *more)

    return mapped


def keeping_list(keep: Callable[..., None]) -> Callable[..., None]:
    """The same of what keeps an operator's operands for a backward pass."""
    return lambda ctx, inputs, output: keep(ctx, inputs[0], output)


def of_list(pull: Callable[..., Any]) -> Callable[..., Any]:
    """The same of a backward pass: which gradients are needed is a list, and so are the gradients."""

    def pulled(ctx: Any, gradients: Any) -> Any:
        ctx.needs_input_grad = ctx.needs_input_grad[0]  # PyTorch sets it back
        return (list(pull(ctx, gradients)),)

    return pulled


__all__ = ["from_list", "in_list", "keeping_list", "mapped_list", "of_list"]
