"""Whether an output changes with the value of a stage, over values that streams give it: an output that never does may
have a form although the stage has none. Nothing is proved here: where no change is seen, nothing is refuted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from redalg.errors import RedalgError
from redalg.graph import node as g
from redalg.graph.intervals import moved_array
from redalg.graph.node import Decl, Node
from redalg.numeric.definition import reference

if TYPE_CHECKING:
    from redalg.language.spec import Spec

STREAMS = 12  # drawn, and as many lengths of the axis: a stage of one of them is put in the place of another's
LENGTH = 5  # of other axes 3
CLOSE = 1e-9  # changes below this part of a value are taken for rounding


def is_seen(spec: Spec, stage: Node, axis: tuple[str, ...]) -> bool:
    """Whether some output of some stream is another with the stage's value of another stream, all else being equal.

    True where it cannot be tried: outputs without the stage, complex numbers, streams that the definition refuses.

    >>> from redalg.language.grammar import parse
    >>> text = "a = sum[j](abs(x[j] - mean[j](x[j]))); return y = "
    >>> spec = parse(text + "a + 1")
    >>> stage = next(n for n in g.walk(*spec.outputs.values()) if n.op == "reduce" and n.args[0].op == "abs")
    >>> is_seen(spec, stage, ("j",)), is_seen(parse(text + "maximum(a, 0) - a"), stage, ("j",))
    (True, False)
    """
    if any("complex" in d.domain for d in spec.tensors):
        return True
    name = "value"
    while any(d.name == name for d in spec.tensors):
        name += "_"
    held = g.tensor(name, sorted(stage.axes), {"bool"} if stage.is_boolean else ())
    outputs = {n: g.substitute(node, {stage: held}) for n, node in spec.outputs.items()}
    changed = {n: node for n, node in outputs.items() if held in set(g.walk(node))}
    if not changed:
        return True
    try:
        return _changes(spec, stage, changed, name, axis)
    except (RedalgError, ArithmeticError, LookupError, TypeError, ValueError):
        return True


def _changes(spec: Spec, stage: Node, outputs: dict[str, Node], name: str, axis: tuple[str, ...]) -> bool:
    """Whether some output over the stage's value, a tensor of that name, changes with it."""
    build = type(spec).from_nodes
    alone, swapped = build({"value": stage}), build(outputs)
    streams = [_stream(spec, axis, number) for number in range(STREAMS)]
    values = [reference(alone, **_read(alone, s)) for s in streams]
    for k, s in enumerate(streams):
        steps = [step for step in (0, 1, 5) if _fits(values, k, step)]
        own, *others = (_results(swapped, {**s, name: values[(k + step) % STREAMS]}) for step in steps)
        if any(not _same(own, other) for other in others):
            return True
    return False


def _fits(values: list[Any], k: int, step: int) -> bool:
    """Whether the value of another stream has the axes' lengths of this one."""
    return np.shape(values[k]) == np.shape(values[(k + step) % STREAMS])


def _stream(spec: Spec, axis: tuple[str, ...], number: int) -> dict[str, Any]:
    """Arrays of every tensor, in its domain; streams are of several lengths."""
    random = np.random.default_rng(number)
    lengths = {a: LENGTH + number % 3 if a in axis else 3 for a in spec.axes}
    own = [d for d in spec.tensors if not d.array]
    return {d.name: _drawn(d, [lengths[a] for a in d.axes], random) for d in own}


def _drawn(d: Decl, shape: list[int], random: Any) -> Any:
    if "bool" in d.domain:
        return random.random(shape) < 0.6
    if "integer" in d.domain:
        return moved_array(d.domain, random.integers(1 if "positive" in d.domain else 0, 5, shape))
    drawn = random.normal(size=shape) * 2
    if d.domain & {"positive", "nonnegative"}:
        drawn = np.abs(drawn) + 0.25
    return moved_array(d.domain, drawn)


def _read(spec: Spec, arrays: dict[str, Any]) -> dict[str, Any]:
    names = {d.array or d.name for d in spec.tensors}
    return {n: x for n, x in arrays.items() if n in names}


def _results(spec: Spec, arrays: dict[str, Any]) -> list[np.ndarray]:
    found = reference(spec, **_read(spec, arrays))
    return [np.asarray(x, dtype=float) for x in (found.values() if isinstance(found, dict) else [found])]


def _same(a: list[np.ndarray], b: list[np.ndarray]) -> bool:
    return all(np.allclose(x, y, rtol=CLOSE, atol=CLOSE, equal_nan=True) for x, y in zip(a, b, strict=True))
