"""Accumulators used again: after a result, by a second thread, with themselves, as copies, when arrays have changed."""

from __future__ import annotations

import copy
import functools
import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.streaming.accumulator import Accumulator
from redalg.streaming.snapshot import Feed
from tests.support.forms import form_of_text

TEXTS = (
    "return y = max[j](x[j]), s = sum[j](x[j])",
    "return i = argmax[j](x[j])",
    "return v = topk[j:3:t](x[j]).values, i = topk[j:3:t](x[j]).indices",
    "u = mean[j](x[j]); return v = mean[j]((x[j] - u)**2)",
    "m = max[j](x[j]); return s = m + log(sum[j](exp(x[j] - m)))",
    "return y = prod[j](x[j]), z = any[j](x[j] > 1)",
)
X = np.array([3.0, 1.0, 2.0, 7.0])


def numbers(found: Any) -> list[Any]:
    return [np.array(v).tolist() for v in (found.values() if isinstance(found, dict) else [found])]


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("text", TEXTS)
def test_nothing_that_was_given_or_got_is_shared(text: str, deterministic: bool) -> None:
    form = form_of_text(text)
    for length in (1, 4):
        x = X[:length].copy()
        a = form.accumulator(deterministic=deterministic)
        a.update(x=x)
        blob, found = a.to_bytes(), numbers(a.result())
        x[:] = -5.0
        for y in a.result().values() if isinstance(a.result(), dict) else [a.result()]:
            y[...] = 0
        for name, part in a.state_dict().items():
            part[...] = name == "redalg"
        for twin in (a.copy(), copy.deepcopy(a), pickle.loads(pickle.dumps(a))):
            twin.update(x=x)
        assert a.to_bytes() == blob and numbers(a.result()) == found


@pytest.mark.parametrize("text", TEXTS)
def test_reading_changes_nothing_and_a_merge_with_itself_is_the_stream_twice(text: str) -> None:
    form = form_of_text(text)
    a, b = form.accumulator(), form.accumulator()
    a.update(x=X)
    assert a.result() is not None and a.state and a.nbytes and a.to_bytes()
    for one in (a, b):
        one.update(x=X[:3])
    c = form.accumulator()
    c.update(x=X)
    assert c.merge(b).count == a.count and np.allclose(*map(_flat, (c, a)))
    a.merge(a)
    expected = ra.reference(form.spec, x=np.tile([*X, *X[:3]], 2))
    assert a.count == 14 and np.allclose(_flat(a), np.hstack([np.ravel(v) for v in _values(expected)]))
    groups = form.grouped()
    groups.update(by=[0, 1, 0, 1], x=X)
    twice = groups.copy().merge(groups)
    groups.merge(groups)
    assert groups.count == 8 and _groups(groups) == _groups(twice)


def _values(found: Any) -> Any:
    return found.values() if isinstance(found, dict) else [found]


def _flat(a: Accumulator) -> np.ndarray:
    return np.hstack([np.ravel(v) for v in _values(a.result())])


def _groups(groups: Any) -> Any:
    keys, found = groups.result()
    return keys.tolist(), [v.tolist() for v in _values(found)]


def test_what_is_bound_differs_by_the_sign_of_zero() -> None:
    form = form_of_text("return y = sum[j](x[j] / a)")
    p, q = form.accumulator(a=0.0), form.accumulator(a=-0.0)
    for one in (p, q):
        one.update(x=[1.0])
    with pytest.raises(ra.RedalgError, match="a differs"):
        p.merge(q)
    assert p.merge(form.from_bytes(p.to_bytes())).count == 2


# --- nothing ---------------------------------------------------------------------------------------------------------

AFFINE = ra.Monoid("affine", lambda f, h: (f[0] * h[0], f[1] * h[0] + h[1]), (1, 0))
HOSTILE = np.array([np.inf, 0.0, -0.0, -np.inf, np.nan, 5e-324, -2.0])


@functools.cache
def affine() -> ra.Form:
    x, y = ra.tensors("x[j] y[j]")
    return ra.derive_incremental(ra.Spec(q=ra.reduce((x, y), "j", monoid=AFFINE)[1]))


def held(a: Accumulator) -> dict[str, bytes]:
    return {name: x.tobytes() for name, x in a.state_dict().items() if name != "redalg"}


@given(st.data())
def test_a_merge_with_nothing_keeps_every_bit(data: st.DataObject) -> None:
    """An identity is adjoined: nothing is calculated, which 0 times an infinity would show."""
    text = data.draw(st.sampled_from(["affine", *TEXTS]))
    form = affine() if text == "affine" else form_of_text(text)
    names = [d.name for d in form.spec.tensors]
    draw = st.lists(st.sampled_from(HOSTILE.tolist()), min_size=len(names), max_size=4 * len(names))
    x = np.array(data.draw(draw))
    chunk = dict(zip(names, np.array_split(x[: len(x) // len(names) * len(names)], len(names)), strict=True))
    options = {"deterministic": data.draw(st.booleans())}
    placed = data.draw(st.booleans())
    with np.errstate(all="ignore"):
        a = form.accumulator(**options, **({"start": 4} if placed else {}))
        a.update(**chunk)
        before = held(a)
        for place in (0, 4, 30):
            empty = form.accumulator(**options, **({"start": place} if placed else {}))
            if data.draw(st.booleans()):
                empty.update(**{name: part[:0] for name, part in chunk.items()})
            nothing = form.from_bytes(empty.to_bytes())
            assert held(a + empty) == held(empty + a) == held(nothing + a) == before
            assert (a + empty).covered == (nothing + a).covered == a.covered
        groups, others = form.grouped(), form.grouped()
        groups.update(by=[7] * a.count, **chunk)
        others.update(by=[], **{name: part[:0] for name, part in chunk.items()})
        found = _groups(groups)
        assert repr(_groups(groups + others)) == repr(_groups(others + groups)) == repr(found)


# --- a second thread, where it hurts ---------------------------------------------------------------------------------


def meanwhile(patch: pytest.MonkeyPatch, owner: type, name: str, call: Callable[[], Any]) -> None:
    """Another thread makes a call when this one is inside the method, once."""
    method = getattr(owner, name)

    def entered(*given: Any) -> Any:
        patch.setattr(owner, name, method)
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        return method(*given)

    patch.setattr(owner, name, entered)


INSIDE = {"update": (Accumulator, "_advanced"), "fed": (Feed, "advanced")}


@pytest.mark.parametrize("call", ["update", "fed", "merge", "next_pass"])
def test_elements_are_not_lost_to_another_thread(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    form = form_of_text("u = mean[j](x[j]); return y = mean[j](abs(x[j] - u))", "j", 2)
    acc, other = form.accumulator(), form.accumulator()
    for one in (acc, other):
        one.update(x=X)
    if call == "update":
        acc._feeds.clear()
    calls: dict[str, Callable[[], Any]] = {"merge": lambda: acc.merge(other), "next_pass": acc.next_pass}
    meanwhile(monkeypatch, *INSIDE.get(call, (Accumulator, "_engine")), lambda: acc.update(x=[5.0]))
    with pytest.raises(ra.RedalgError, match="another thread") as caught:
        calls.get(call, lambda: acc.update(x=X))()
    assert caught.value.where.startswith("Accumulator.") and caught.value.fix
    assert acc.count == 5 and acc._now.number == 0
    assert acc.merge(other).count == 9


def test_groups_let_one_call_in_at_a_time() -> None:
    form = form_of_text(TEXTS[3])
    groups, errors = form.grouped(), list[Exception]()

    class Late(list[int]):
        """Keys that are looked at while another thread comes with rows of its own."""

        def __iter__(self) -> Any:
            if not errors:
                thread = threading.Thread(target=second)
                thread.start()
                thread.join()
            return super().__iter__()

    def second() -> None:
        try:
            groups.update(by=[1], x=[9.0])
        except ra.RedalgError as error:
            errors.append(error)

    groups.update(by=Late([0, 0, 1]), x=X[:3])
    assert groups.count == 3 and (not errors or "another thread" in str(errors[0]))
    with groups._alone("Grouped.update"), pytest.raises(ra.RedalgError, match="another thread"):
        groups.copy().merge(groups)
    pickle.loads(pickle.dumps(groups)).update(by=[4], x=[1.0])
    groups.update(by=[4], x=[1.0])
    assert groups.count == 4
