"""What a forward pass saves by default: what moves the fewest bytes, counted here by `ra.traffic` of every choice."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

import redalg as ra
from redalg.gradients.calls import Vjp, derived
from redalg.graph.contractions import contracts
from redalg.graph.masked import new_axes
from redalg.graph.node import walk
from tests.support.sample import SAMPLE

LENGTH = 4096
TEXTS = {  # a value as large as what it is made of, one that is smaller, a list
    "short": ("n = sum[d](u[i,k,d]**2); return y = sum[j](a[i,k,j]*n)", {"d": 1}, "a"),
    "as short, with products": ("n = sum[d](u[d,k]**2); return y = sum[j](a[i,j]*exp(n*b[j,k]))", {"d": 1}, "a b"),
    "long": ("n = sum[d](u[i,k,d]**2); return y = sum[j](a[i,k,j]*n)", {"d": 64}, "a"),
    "list": ("t = topk[j:2:k](x[i,j]); return y = sum[k](exp(t.values))", {}, "x"),
}


def bytes_of(g: Vjp, sizes: dict[str, int]) -> tuple[int, int]:
    """Of the gradients, and what the forward pass writes for them; and how many walks over streamed axes that counts.

    A form that streams a short axis holds all of a long one inside, whose walks `ra.traffic` does not count.
    """
    total = walks = 0
    for spec in dict.fromkeys(g.specs.values()):
        lengths = {a: sizes[a] for a in {*spec.axes, *(a for own in spec.output_axes.values() for a in own)}}
        moved = ra.traffic(spec, lengths, form=derived(spec)).fused
        total, walks = total + moved.bytes, walks + moved.passes
    for name in g.forward.outputs.keys() - g.spec.outputs.keys():
        whole = g.forward.outputs[name].op == "reduce" and "arg" in g.forward.outputs[name].attr.kind
        total += (8 if whole else 4) * prod(sizes[a] for a in g.forward.output_axes[name])
    return total, walks


def products(g: Vjp) -> int:
    return sum(contracts(n) for s in dict.fromkeys(g.specs.values()) for n in walk(*s.outputs.values()))


def choices(spec: ra.Spec, wrt: str | None, sizes: dict[str, int]) -> list[Vjp]:
    """Everything saved, nothing, and everything but one of what is saved."""
    whole = spec.vjp(wrt=wrt, given="all", sizes=sizes)
    names = list(dict.fromkeys(whole.saved_tensors.values()))
    return [whole, *(spec.vjp(wrt=wrt, given=[n for n in names if n != left]) for left in names), spec.vjp(wrt, ())]


@pytest.mark.parametrize("name", [*sorted(SAMPLE), *TEXTS])
def test_no_other_choice_moves_fewer_bytes(name: str) -> None:
    text, more, wrt = TEXTS.get(name, ("", {}, None))
    spec = ra.parse(text) if text else ra.catalog[name]
    sizes = dict.fromkeys((a for d in spec.tensors for a in d.axes), LENGTH) | more
    try:
        chosen = spec.vjp(wrt=wrt, sizes=more)
    except ra.RedalgError:
        return  # that it has no derivative is tested elsewhere
    sizes |= new_axes(*spec.outputs.values())
    own, walked = bytes_of(chosen, sizes) if chosen.specs else (0, 0)
    for other in choices(spec, wrt, more):
        if products(other) > products(chosen):
            continue
        try:
            theirs, walks = bytes_of(other, sizes)
        except ra.RedalgError:
            continue  # what does not derive is no choice
        alike = walks >= walked or len(set(other.specs.values())) > len(set(chosen.specs.values()))
        assert not alike or own * 63 <= theirs * 64, (list(chosen.forward.outputs), list(other.forward.outputs))


def test_the_choice_follows_lengths_and_is_the_users() -> None:
    text, sizes, _ = TEXTS["short"]
    spec = ra.parse(text)
    assert list(spec.vjp(wrt="a").forward.outputs) == ["y", "sum1"]
    assert list(spec.vjp(wrt="a", sizes=sizes).forward.outputs) == ["y"]
    assert list(spec.vjp(wrt="a", sizes=sizes, given="all").forward.outputs) == ["y", "sum1"]
    assert list(spec.vjp(wrt="a", given=()).forward.outputs) == ["y"]
    assert list(spec.vjp(wrt="a", sizes=sizes, given="sum1").forward.outputs) == ["y", "sum1"]


def test_every_choice_gives_the_same_gradients() -> None:
    rng = np.random.default_rng(8)
    for text, more, wrt in TEXTS.values():
        spec = ra.parse(text)
        lengths = {a: more.get(a, 3 + k) for k, a in enumerate(spec.axes)}
        arrays = {d.name: rng.standard_normal([lengths[a] for a in d.axes]) for d in spec.tensors}
        like = ra.reference(spec, **arrays)
        cotangents = {"y": rng.standard_normal(np.shape(like))}
        ways = [spec.vjp(wrt=wrt, sizes=more), *choices(spec, wrt, more)]
        first, *others = (g(**arrays, cotangents=cotangents, target="numpy") for g in ways)
        for other in others:
            for name, value in first.items():
                np.testing.assert_allclose(other[name], value, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("sizes", ({"q": 3}, {"j": 0}))
def test_lengths_of_no_axis_are_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(ra.RedalgError, match=r"sizes=[\s\S]*spec\.vjp[\s\S]*axes are i, j"):
        ra.parse("return y = sum[j](x[i,j]**2)").vjp(sizes=sizes)
