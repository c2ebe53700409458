"""Kinds of numbers in a program: "b" Boolean, "i" integer (int64), "f" inexact (the program's real dtype).

The rules are those of `redalg.numeric`: Booleans count as 0 and 1, integers stay integers until they meet a float, a
division or a function of the reals.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from redalg.graph import BOOLEAN, Node
from redalg.kernels.ir import First, Join, Let, Loop, Program, Step

ORDER = "bifk"  # "k": a packed key (`redalg.kernels.packing`), which takes part in no arithmetic
SAME = frozenset({"abs", "sign", "relu", "floor", "ceil", "conj", "re", "im"})


def widest(kinds: Iterable[str]) -> str:
    return max(kinds, key=ORDER.index, default="i")


def counted(kind: str) -> str:
    """The kind of a value in arithmetic: a Boolean is a number there."""
    return "i" if kind == "b" else kind


class Kinds:
    """The kind of every node, from the kinds of its leaves: `names` of what is computed, by name; tensors apart."""

    def __init__(self, tensors: Mapping[str, str], names: Mapping[str, str] | None = None) -> None:
        self.names: dict[str, str] = {"n": "i", "n_b": "i", "n_new": "i", "n_some": "i", **(names or {})}
        self._tensors = dict(tensors)
        self._memo: dict[Node, str] = {}

    def learn(self, name: str, node: Node) -> str:
        """Note the kind of a name that is assigned the node."""
        kind = self.of(node)
        self.names[name] = kind
        return kind

    def of(self, node: Node) -> str:
        found = self._memo.get(node)
        if found is None:
            found = self._kind(node)
            if node.op not in ("tensor", "state"):
                self._memo[node] = found
        return found

    def _kind(self, node: Node) -> str:
        op = node.op
        if op in ("tensor", "state"):
            return self._named(node)
        if op in BOOLEAN:
            return "b"
        if op in ("size", "index"):
            return "i"
        if op == "const":
            return "i" if node.attr.denominator == 1 else "f"
        if op == "special":
            return "f"
        if op == "where":
            kinds = [self.of(a) for a in node.args[1:]]
            return "b" if kinds == ["b", "b"] else widest(map(counted, kinds))
        if op == "reduce":
            return self.reduced(node.attr.kind, node.args)
        if op == "pow":
            base, e = node.args
            whole = e.op == "const" and e.attr.denominator == 1 and e.attr > 0
            return counted(self.of(base)) if whole else "f"
        if op == "call":
            return "i" if node.attr == "key_place" else "f"
        if op == "cast":
            kind = counted(self.of(node.args[0]))
            return "b" if node.attr == "bool" else "f" if node.attr.startswith(("float", "bfloat")) else kind
        if op in ("add", "mul", "maximum", "minimum") or op in SAME:
            return widest(counted(self.of(a)) for a in node.args)
        return "f"

    def _named(self, node: Node) -> str:
        found = (self._tensors if node.op == "tensor" else self.names).get(node.attr.name)
        if found is not None:
            return found
        domain = node.attr.domain
        return "b" if "bool" in domain else "i" if "integer" in domain else "f"

    def reduced(self, kind: str, bodies: Iterable[Node]) -> str:
        if kind in ("any", "all"):
            return "b"
        if kind in ("argmax", "argmin", "topk_indices"):
            return "i"
        return widest(counted(self.of(b)) for b in bodies)


def program_kinds(program: Program) -> Kinds:
    """The kinds of all names a program assigns."""
    kinds = Kinds({o.name: stored_kind(o.dtype) for o in program.operands})
    for p in program.passes:
        for part in p.parts:
            kinds.names |= {part.name + end: part.kind for end in ("", "_b", "_new", "_seen", "_first")}
        for step in (*p.lift, *p.combine, *p.update):
            _learn(kinds, step)
        for let in p.exports:
            kinds.learn(let.name, let.node)
    return kinds


def stored_kind(dtype: str) -> str:
    return "b" if dtype == "bool" else "i" if dtype.startswith(("int", "uint")) else "f"


def _learn(kinds: Kinds, step: Step) -> None:
    if isinstance(step, Let):
        kinds.learn(step.name, step.node)
    elif isinstance(step, First):
        kinds.names[step.name] = "f"
    elif isinstance(step, Join):
        if step.kind != "monoid" and step.names[0] not in kinds.names:
            kinds.names[step.names[0]] = "f" if step.kind == "average" else kinds.reduced(step.kind, (*step.a, *step.b))
    elif isinstance(step, Loop):
        for fold in step.folds:
            if fold.kind in ("keymax", "keytop"):
                kinds.names[fold.names[0]] = "k"
            if fold.names[0] not in kinds.names:
                kinds.names[fold.names[0]] = kinds.reduced(fold.kind.removeprefix("arg"), fold.bodies)
