"""Kinds of numbers in a program: "b" Boolean, "i" integer (int64), "f" inexact (the program's real dtype).

The rules are those of `redalg.numeric.evaluate`: Booleans count as 0 and 1, integers stay integers until they meet a
float, a division or a function of the reals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from redalg.graph.node import BOOLEAN, POSITIONS, Levels, Node
from redalg.graph.operators import Average, Custom
from redalg.kernels.ir.compensated import COMPENSATED
from redalg.kernels.ir.program import First, Join, KeyMax, KeyTop, Let, Loop, Program, Step

ORDER = "bifk"  # "k": a packed key (`redalg.kernels.lower.packed_keys`), which takes part in no arithmetic
DEEP = 64  # operations inside operations that recursion passes
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
        self._levels = Levels(DEEP)

    def learn(self, name: str, node: Node) -> str:
        """Note the kind of a name that is assigned the node."""
        kind = self.of(node)
        self.names[name] = kind
        return kind

    def of(self, node: Node) -> str:
        found = self._memo.get(node)
        if found is None:
            for inner in self._levels.below(node):
                self.of(inner)
            found = self._kind(node)
            if node.op not in ("tensor", "state"):
                self._memo[node] = found
        return found

    def _kind(self, node: Node) -> str:
        rule = RULES.get(node.op)
        return rule(self, node) if rule is not None else "f"

    def _widest(self, node: Node) -> str:
        return widest(counted(self.of(a)) for a in node.args)

    def _where(self, node: Node) -> str:
        kinds = [self.of(a) for a in node.args[1:]]
        return "b" if kinds == ["b", "b"] else widest(map(counted, kinds))

    def _power(self, node: Node) -> str:
        base, e = node.args
        whole = e.op == "const" and e.attr.denominator == 1 and e.attr > 0
        return counted(self.of(base)) if whole else "f"

    def _cast(self, node: Node) -> str:
        if node.attr == "bool":
            return "b"
        return "f" if node.attr.startswith(("float", "bfloat")) else counted(self.of(node.args[0]))

    def _named(self, node: Node) -> str:
        found = (self._tensors if node.op == "tensor" else self.names).get(node.attr.name)
        if found is not None:
            return found
        domain = node.attr.domain
        return "b" if "bool" in domain else "i" if "integer" in domain else "f"

    def reduced(self, kind: str, bodies: Iterable[Node]) -> str:
        if kind in ("any", "all"):
            return "b"
        if kind in POSITIONS:
            return "i"
        return widest(counted(self.of(b)) for b in bodies)


# By operation; every other one is a function of the reals.
RULES: dict[str, Callable[[Kinds, Node], str]] = {
    "tensor": Kinds._named,
    "state": Kinds._named,
    "size": lambda kinds, node: "i",
    "index": lambda kinds, node: "i",
    "const": lambda kinds, node: "i" if node.attr.denominator == 1 else "f",
    "where": Kinds._where,
    "reduce": lambda kinds, node: kinds.reduced(node.attr.kind, node.args),
    "pow": Kinds._power,
    "call": lambda kinds, node: "i" if node.attr == "key_place" else "f",
    "cast": Kinds._cast,
    **dict.fromkeys(BOOLEAN, lambda kinds, node: "b"),
    **dict.fromkeys(("add", "mul", "maximum", "minimum", *SAME), Kinds._widest),
}


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
        if step.op == COMPENSATED:
            kinds.names |= dict.fromkeys(step.names, "f")
        elif not isinstance(step.op, Custom) and step.names[0] not in kinds.names:
            average = isinstance(step.op, Average)
            kinds.names[step.names[0]] = "f" if average else kinds.reduced(step.kind, (*step.a, *step.b))
    elif isinstance(step, Loop):
        for fold in step.folds:
            if fold.op == COMPENSATED:
                kinds.names |= dict.fromkeys(fold.names, "f")
            elif isinstance(fold.op, KeyMax | KeyTop):
                kinds.names[fold.names[0]] = "k"
            if fold.names[0] not in kinds.names:
                kinds.names[fold.names[0]] = kinds.reduced(fold.kind.removeprefix("arg"), fold.bodies)


def short_keys(program: Program, body: Node) -> str:
    """The type of the elements that a list of the largest is made of, where 32 bits hold one of them with its place in
    the tiles of a warp (`redalg.kernels.cuda.intrinsics.packed_keys`); empty where they do not."""
    dtypes = {o.name: o.dtype for o in program.operands}
    found = dtypes[body.attr.name] if body.op == "tensor" else ""
    return found if found in ("bfloat16", "float16") else ""
