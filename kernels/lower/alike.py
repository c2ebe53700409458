"""Values of a state that are alike, whatever is streamed: held once.

Two values are alike where they begin alike and every step makes alike values of alike ones: what was assumed of all of
them at once then holds after any number of steps. So the finest division of the names of a pass that no step splits is
looked for, from the coarsest on, as the states of an automaton are minimised (Hopcroft; Moore). Covariances above and
below the diagonal are alike, and means along two axes of one tensor; nothing is known of names or axes here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from redalg.graph.node import Node, leaves, state, substitute, walk
from redalg.kernels.ir.program import First, Fold, Join, Let, Loop, Pass, Program, Result, Step

ENDS = ("", "_b", "_new")  # of a part: the state, a tile's, and what they make together
COMMUTE = frozenset({"add", "mul", "eq", "ne", "and", "or", "maximum", "minimum"})
Classes = dict[str, int]
Made = Let | First | Fold | Join


def alike(program: Program) -> Program:
    """An equal program in which values that are alike have one name.

    >>> import redalg as ra
    >>> from redalg.kernels.lower.unrolled import Tile, unrolled
    >>> from redalg.kernels.programs import lower
    >>> form = ra.derive_incremental(ra.parse("return s = sum[j](X[j,a] * X[j,b])"))
    >>> program = lower(form, {"X": "float32", "X_j_b": "float32"}, across=("a", "b"))
    >>> program = unrolled(program, {"a": Tile(2, 2), "b": Tile(2, 2)})
    >>> [part.name for part in alike(program).passes[0].parts]
    ['a0~b0~sum_X_X_j_b2', 'a0~b1~sum_X_X_j_b2', 'a1~b1~sum_X_X_j_b2']
    """
    names: dict[str, str] = {}
    passes = []
    for p in program.passes:
        own = _names(p)
        passes.append(_named(p, {**names, **own}))
        parts = {x.name for x in p.parts}
        names |= {n: kept for n, kept in own.items() if n in parts}  # results read the state, and no step
    results = tuple(_result(r, names) for r in program.results)
    kept = frozenset(names.get(n, n) for n in program.attained)
    return replace(program, passes=tuple(passes), results=results, attained=kept)


# --- which are alike -------------------------------------------------------------------------------------------------


def _names(p: Pass) -> dict[str, str]:
    """Every name of a pass that goes by another one."""
    classes = _divided(p)
    first: dict[object, str] = {}
    found: dict[str, str] = {}
    for x in p.parts:
        kept = first.setdefault(tuple(classes[x.name + end] for end in ENDS), x.name)
        if kept != x.name:
            found |= {x.name + end: kept + end for end in ENDS}
    own = {x.name + end for x in p.parts for end in ENDS}
    taken = {classes[n] for n in own if n in classes}
    for name, number in classes.items():
        if name not in own and number not in taken and first.setdefault(number, name) != name:
            found[name] = first[number]
    return found


def _divided(p: Pass) -> Classes:
    """The class of every name."""
    made: dict[str, list[Made]] = {}
    for name, step in _made((*p.lift, *p.combine, *p.update)):
        made.setdefault(name, []).append(step)
    several = {name for name, steps in made.items() if any(isinstance(s, Fold | Join) and s.names[1:] for s in steps)}
    classes = _first_classes(p, made, several)
    while True:
        leaves_of = {name: state(f"class {number}") for name, number in classes.items()}
        finer: dict[str, object] = {
            name: (classes[name], name if name in several else tuple(_signature(s, leaves_of) for s in steps))
            for name, steps in made.items()
        }
        finer |= {x.name: tuple(classes.get(x.name + end) for end in ENDS) for x in p.parts}
        found = _numbered(finer)
        if len({*found.values()}) == len({*classes.values()}):
            return found
        classes = found


def _first_classes(p: Pass, made: Mapping[str, list[Made]], several: set[str]) -> Classes:
    """By kinds of steps and parts; the names of a step that makes several are each its own."""
    texts: dict[str, object] = {name: name if name in several else (*map(type, steps),) for name, steps in made.items()}
    texts |= {x.name: x.name if x.name + "_b" in several else (x.kind, x.identity, x.top, x.axes) for x in p.parts}
    return _numbered(texts)


def _numbered(texts: Mapping[str, object]) -> Classes:
    numbers: dict[object, int] = {}
    return {name: numbers.setdefault(text, len(numbers)) for name, text in texts.items()}


def _made(steps: Iterable[Step]) -> Iterator[tuple[str, Made]]:
    """Every name with what makes it."""
    for step in steps:
        for made in step.folds if isinstance(step, Loop) else (step,):
            for name in (made.name,) if isinstance(made, Let | First) else made.names:
                yield name, made


def _signature(step: Made, names: Mapping[str, Node]) -> object:
    """What a step computes, of classes: equal where alike values come of alike ones."""
    if isinstance(step, Let | First):
        return type(step), _read(step.node, names)
    if isinstance(step, Fold):
        return type(step), step.op, tuple(_read(n, names) for n in step.bodies), step.axes
    sides = (tuple(_read(n, names) for n in side) for side in (step.a, step.b))
    return type(step), step.op, *sides, step.axes


def _read(node: Node, names: Mapping[str, Node]) -> Node:
    """The node over classes, terms and factors in an order that does not depend on names."""
    mapping = {}
    for leaf in leaves(node, "state"):
        if leaf.attr.name in names:
            number = names[leaf.attr.name].attr.name
            mapping[leaf] = state(number, leaf.attr.axes, leaf.attr.domain)
    return _in_order(substitute(node, mapping, raw=True))


def _in_order(root: Node) -> Node:
    """The node with arguments in one order wherever they may change places."""
    new: dict[Node, Node] = {}
    for n in walk(root):
        args = tuple(new[a] for a in n.args)
        if n.op in COMMUTE:
            args = tuple(sorted(args, key=lambda a: a.digest))
        new[n] = n if args == n.args else Node(n.op, args, n.attr)
    return new[root]


# --- programs under fewer names --------------------------------------------------------------------------------------


def _result(r: Result, names: Mapping[str, str]) -> Result:
    masked = None if r.masked is None else _renamed(r.masked, names)
    return replace(r, node=_renamed(r.node, names), masked=masked)


def _renamed(node: Node, names: Mapping[str, str]) -> Node:
    found = {n for n in leaves(node, "state") if n.attr.name in names}
    mapping = {n: state(names[n.attr.name], n.attr.axes, n.attr.domain) for n in found}
    return substitute(node, mapping, raw=True) if mapping else node


def _named(p: Pass, names: Mapping[str, str]) -> Pass:
    lift, combine, update = (_steps(steps, names) for steps in (p.lift, p.combine, p.update))
    exports = tuple(Let(let.name, _renamed(let.node, names)) for let in p.exports)
    parts = tuple(x for x in p.parts if x.name not in names)
    return replace(p, parts=parts, lift=lift, combine=combine, update=update, exports=exports)


def _steps(steps: Iterable[Step], names: Mapping[str, str]) -> tuple[Step, ...]:
    """The steps that assign names that stay."""
    found: list[Step] = []
    for step in steps:
        if isinstance(step, Loop):
            folds = [
                replace(f, bodies=tuple(_renamed(n, names) for n in f.bodies))
                for f in step.folds
                if names.keys().isdisjoint(f.names)
            ]
            found += [Loop(tuple(folds), step.part)] if folds else []
        elif isinstance(step, Join):
            if names.keys().isdisjoint(step.names):
                a, b = (tuple(_renamed(n, names) for n in side) for side in (step.a, step.b))
                found.append(replace(step, a=a, b=b))
        elif step.name not in names:
            found.append(replace(step, node=_renamed(step.node, names)))
    return tuple(found)
