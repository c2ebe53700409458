"""The shared graph: interning, canonical form, walks and renaming."""

import copy
import os
import pickle
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import pytest

from redalg.graph import node as g

x, y = g.tensor("x", ("i", "j")), g.tensor("y", ("j",))


def test_equal_structures_are_one_object():
    assert g.add(x, y) is g.add(y, x)
    assert g.mul(x, g.power(x, 2)) is g.power(x, 3)
    assert g.tensor("x", ("i", "j")) is x and g.tensor("x", ("i", "j"), ("positive",)) is not x
    assert pickle.loads(pickle.dumps(g.fn("exp", x))) is g.fn("exp", x)
    assert copy.deepcopy(x) is x and copy.copy(x) is x


def test_equal_structures_stay_one_object_while_others_come_and_go():
    """Arguments that are gone may leave their addresses to others; what is still held is found."""
    held = [g.add(x, g.const(Fraction(k, 7))) for k in range(1, 50)]
    for start in range(1, 40_000, 10_000):
        for k in range(start, start + 9_999):
            node = g.fn("exp", g.mul(g.const(Fraction(k, 40_009)), y))
            assert node.op == "exp" and y in node.args[0].args
    assert all(g.add(x, g.const(Fraction(k, 7))) is node for k, node in enumerate(held, 1))


def test_threads_build_one_object():
    def build(_: int) -> list[g.Node]:
        return [g.fn("exp", g.add(x, g.mul(g.const(Fraction(k, 13)), y))) for k in range(400)]

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(build, range(8)))
    assert all(len({id(nodes[k]) for nodes in found}) == 1 for k in range(400))


@pytest.mark.parametrize(
    ("node", "same"),
    [
        (g.add(x, x, g.neg(y)), g.sub(g.mul(g.const(2), x), y)),
        (g.add(), g.ZERO),
        (g.sub(x, x), g.ZERO),
        (g.mul(g.const(2), g.add(x, y)), g.add(g.mul(g.const(2), x), g.mul(g.const(2), y))),
        (g.mul(g.const(0), x), g.ZERO),
        (g.div(x, x), g.ONE),
        (g.power(g.const(Fraction(2, 3)), -2), g.const(Fraction(9, 4))),
        (g.power(x, 0), g.ONE),
        (g.power(g.power(x, 2), 3), g.power(x, 6)),
        (g.where(g.TRUE, x, y), x),
        (g.where(g.compare("lt", x, y), x, x), x),
        (g.compare("gt", x, y), g.compare("lt", y, x)),
        (g.compare("le", g.ONE, g.ZERO), g.FALSE),
        (g.logical("and", g.TRUE, g.compare("lt", x, y)), g.compare("lt", x, y)),
        (g.logical("or", g.TRUE, g.compare("lt", x, y)), g.TRUE),
        (g.negate(g.compare("eq", x, y)), g.compare("ne", x, y)),
        (g.negate(g.negate(g.compare("lt", x, y))), g.compare("lt", x, y)),
        (g.extremum("maximum", x, g.extremum("maximum", y, x)), g.extremum("maximum", y, x)),
        (g.fn("exp", g.ZERO), g.ONE),
        (g.size(["i", "j"]), g.mul(g.size(["j"]), g.size(["i"]))),
    ],
)
def test_canonical_form(node, same):
    assert node is same


@pytest.mark.parametrize(
    "node",
    [
        g.power(g.power(x, g.HALF), 2),  # x only where x >= 0
        g.power(g.power(x, 2), g.HALF),  # |x|
        g.negate(g.compare("lt", x, y)),  # differs from y <= x for NaN
        g.compare("eq", x, x),  # false for NaN
        g.power(g.ZERO, -1),
    ],
)
def test_laws_that_fail_for_special_values_are_not_used(node):
    assert node not in (x, g.TRUE, g.ONE, g.ZERO) and node.op in ("pow", "not", "eq")


def test_free_axes():
    assert g.reduction("sum", ["j"], g.mul(x, y)).axes == {"i"}
    assert g.reduction("topk_values", ["j"], y, extra=(2, "top")).axes == {"top"}
    assert g.add(Node := g.Node("index", (), "k"), y).axes == {"j", "k"} and Node.axes == {"k"}


def test_walk_visits_once_and_arguments_first():
    node = x
    for _ in range(200):
        node = g.add(g.mul(node, node), y)
    seen = list(g.walk(node))
    assert len(seen) == len(set(seen)) < 700
    place = {n: i for i, n in enumerate(seen)}
    assert all(place[a] < place[n] for n in seen for a in n.args)


def test_substitute_and_rename():
    node = g.reduction("sum", ["j"], g.mul(x, y))
    assert g.substitute(node, {y: g.const(2)}) is g.reduction("sum", ["j"], g.mul(g.const(2), x))
    renamed = g.rename_axes(node, {"i": "k"})
    assert renamed.axes == {"k"} and g.leaves(renamed)[0].attr.name in ("x", "y")
    assert g.rename_axes(g.reduction("topk_values", ["j"], y, extra=(2, "t")), {"t": "u"}).axes == {"u"}
    raw = g.substitute(g.add(x, y), {y: x}, raw=True)
    assert raw.op == "add" and raw.args == (x, x)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes of this system are not forked")
def test_a_fork_waits_for_no_thread_that_it_has_not() -> None:
    """A data loader's worker begins while another thread builds nodes."""
    held, done = threading.Event(), threading.Event()

    def build() -> None:
        with g._LOCK:
            held.set()
            done.wait()

    builder = threading.Thread(target=build)
    builder.start()
    held.wait()
    child = os.fork()
    if not child:
        g.tensor("made in a fork", ("j",))
        os._exit(0)
    deadline, status = time.monotonic() + 60, (0, 0)
    while not status[0] and time.monotonic() < deadline:
        time.sleep(0.01)
        status = os.waitpid(child, os.WNOHANG)
    done.set()
    builder.join()
    if not status[0]:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert status == (child, 0)
