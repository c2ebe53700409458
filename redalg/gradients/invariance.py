"""What does not depend on a stage value, and so passes nothing on to it: identities, shown by multiplying out.

A maximum that only shifts exponents, the mean inside a variance: derivatives through them are sums that are 0. They
are left out, which saves a reading of the data, or a scatter to where a maximum lies.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from redalg.gradients.tangent import is_invariant
from redalg.graph import node as g
from redalg.graph.node import Node


def detached(
    roots: Collection[Node], where: str, assume: Collection[str]
) -> tuple[dict[Node, Node], Mapping[Node, Node]]:
    """Roots in which stages read the stage values that they do not depend on as leaves; and what the leaves stand for.

    Of a variance Σ (x - u)²: it does not depend on u, though x - u may be read elsewhere, too.
    """
    done: dict[Node, Node] = {}
    held: dict[Node, Node] = {}
    for n in g.walk(*roots):
        args = tuple(done[a] for a in n.args)
        done[n] = n if args == n.args else Node(n.op, args, n.attr)
        if n.op == "reduce":
            free = [u for u in g.outermost_reductions(*done[n].args) if is_invariant([done[n]], u, where, assume)]
            leaves = {u: g.state(f"held{len(held) + k}", sorted(u.axes)) for k, u in enumerate(free)}
            held |= {leaf: u for u, leaf in leaves.items()}
            done[n] = g.substitute(done[n], dict(leaves), raw=True) if free else done[n]
    return {r: done[r] for r in roots}, held


def restored(root: Node, held: Mapping[Node, Node]) -> Node:
    """A node with what the leaves stand for in their place."""
    while any(leaf in held for leaf in g.leaves(root, "state")):
        root = g.substitute(root, dict(held), raw=True)
    return root


__all__ = ["detached", "restored"]
