"""`Grouped`: the streaming states of a form for many groups at once, by key."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from redalg.errors import RedalgError
from redalg.groups.alone import Alone
from redalg.groups.keys import Keys, as_array, coded, in_order
from redalg.groups.singly import Singly
from redalg.groups.vectorised import Vectorised
from redalg.numeric.binding import Bound, by_output, with_unnamed
from redalg.streaming import checks, promote, results
from redalg.streaming import nulls as null
from redalg.streaming.accumulator import Accumulator

if TYPE_CHECKING:
    from redalg.form import Form

UPDATE, MERGE, RESULT = "Grouped.update", "Grouped.merge", "Grouped.result"


class Grouped:
    """One streaming state per key: fed in chunks with a column of keys, merged by key, read for all groups at once.

    `arrays` are the tensors without the streamed axis; all groups share them. The stream of a group is its rows in the
    order they came; ``a.merge(b)`` lets b's rows follow a's, group by group. Groups of equal length in a chunk are
    reduced together, and states of equal counts are combined together, as arrays with a leading axis of groups. Forms
    of several passes and forms whose bodies read ``index`` of the axis have one accumulator per key instead, which
    `repr` and `explain` say. Single groups leave the arrays where sums need a larger exponent range.

    Keys are integers or anything hashable, one per row. Keys that Python calls equal are one (1 and 1.0, 0.0 and -0.0,
    integers of any width); None is a key; all NaN are one key, also inside tuples. No row is dropped.

    `nulls`: as an accumulator's; with "skip" a row is left out where any tensor is null, and a group that has no other
    rows is what the form makes of no element. A null in the keys is a key.

    `update` and `merge` complete or leave everything as it was. Pickles. Not thread-safe: while
    one thread is in such a call, those of others are refused.

    Raises: RedalgError for arrays that do not fit the spec or what came before, and for keys without a hash.

    >>> import redalg as ra
    >>> x = ra.tensors("x[j]")
    >>> groups = ra.derive_incremental(ra.Spec(v=ra.var(x, "j"))).grouped()
    >>> groups.update(by=["b", "a", "b"], x=[1.0, 5.0, 2.0])
    >>> groups.update(by=["a", "c"], x=[7.0, 0.0])
    >>> keys, v = groups.result()
    >>> keys.tolist(), v.tolist()
    (['b', 'a', 'c'], [0.25, 1.0, 0.0])
    >>> groups
    <Grouped of v, 3 groups, 5 rows, vectorised over groups>
    """

    def __init__(self, form: Form, arrays: Mapping[str, Any], nulls: str = "propagate") -> None:
        self.form = form
        self._like = Accumulator(
            form, arrays, nulls=nulls
        )  # what fits: bound tensors, sizes, dtypes; it is fed chunks of length 0
        self._keys, self._rows = Keys(), 0
        self._why = _not_vectorised(self._like)
        self._states: Vectorised | Singly = Singly(form, arrays) if self._why else Vectorised()
        self._alone = Alone()

    def update(self, /, *unnamed: Any, by: Any, **chunks: Any) -> None:
        """Take in rows: a key for each in `by`, and one array for every tensor with the streamed axis.

        Where one tensor has it, its array may come without a name.
        """
        with self._alone(UPDATE):
            self._update(unnamed, by, chunks)

    def _update(self, unnamed: Sequence[Any], by: Any, chunks: dict[str, Any]) -> None:
        like = self._like.copy()
        if unnamed:
            chunks = with_unnamed(like._streamed, unnamed, chunks, UPDATE)
        known, rows = self._keys, None
        if like._now.nulls != "propagate":
            kept, rows = null.selected(like._layout, chunks, like._now.nulls, UPDATE)
            chunks = dict(kept)
        found = checks.chunk(like._layout, like._now, chunks, UPDATE)
        checks.some_integers(like, found)
        _learn(like, found)
        states = self._states.promoted(self._like, like, UPDATE)
        codes = coded(by, found.sizes[like._layout.axis[0]] if rows is None else len(rows))
        if rows is not None:
            groups = in_order(codes)
            known = known.extended(groups.keys, groups.order[groups.starts[:-1]])[0]
            codes = codes.picked(np.flatnonzero(rows))
        with np.errstate(all="ignore"):
            quick = states.at_once(like, found, codes)
            if quick is not None:
                keys, numbers = known.extended(codes.keys_of(quick.present), quick.first)
                commit = states.updated_by(quick, like, found, codes, numbers, keys.count)
            else:
                groups = in_order(codes)
                keys, numbers = known.extended(groups.keys, groups.order[groups.starts[:-1]])
                commit = states.updated(like, found, groups, numbers, keys.count)
        commit()
        self._like, self._keys, self._states = like, keys, states
        self._rows += len(codes.rows)

    def merge(self, other: Grouped) -> Self:
        """Take in another's rows, in place, after those of the same keys here; `other` is left untouched.

        Returns: this one.
        """
        if not isinstance(other, Grouped):
            fix = "merge form.grouped(...)"
            raise RedalgError(f"a {type(other).__name__}", MERGE, "it is no accumulator by group", fix)
        with self._alone(MERGE), nullcontext() if other is self else other._alone(MERGE):
            self._merge(other)
        return self

    def _merge(self, other: Grouped) -> None:
        like = self._like.copy().merge(other._like)
        mine, added = (g._states.promoted(g._like, like, MERGE) for g in (self, other))
        theirs = other._keys.listed()
        keys, numbers = self._keys.extended(theirs, np.arange(len(theirs)))
        with np.errstate(all="ignore"):
            commit = mine.merged(like, added, numbers, keys.count)
        commit()
        self._like, self._keys, self._states = like, keys, mine
        self._rows += other._rows

    def __add__(self, other: object) -> Grouped:
        """A new one with the rows of both, this one's first."""
        return self.copy().merge(other) if isinstance(other, Grouped) else NotImplemented

    def __radd__(self, other: object) -> Grouped:
        """0 + a is a copy of a, so that `sum` adds them."""
        return self.copy() if type(other) is int and other == 0 else NotImplemented

    def next_pass(self) -> None:
        """Go on to the next pass of a plan, for all groups: the same rows are fed again, in any chunks."""
        if not isinstance(self._states, Singly):
            why = "the plan has 1 pass, and this is the last"
            raise RedalgError("a further pass", "Grouped.next_pass", why, "call result()")
        with self._alone("Grouped.next_pass"):
            self._states.next_pass()

    def result(self, sort: bool = False) -> tuple[np.ndarray, Any]:
        """The keys, and what the form gives for each group, with a leading axis of groups.

        Keys are int64, float64, bool or times of one unit where all are of that kind, else objects; in order of first
        appearance, or sorted (NaN, NaT and None last). One output gives its array, several a dict, as
        `Accumulator.result` does.

        Raises: RedalgError for keys without an order, and where every output keeps the streamed axis.
        """
        like = self._like
        wanted = [o for o in like._layout.plan.outputs if not o.keeps_axis]
        if not wanted:
            why, fix = "every output keeps the streamed axis", "form.accumulator() for each group, and its apply"
            raise RedalgError("a result by group", RESULT, why, fix)
        order = self._keys.order() if sort else np.arange(self._keys.count)
        keys = as_array(self._keys.listed())[order]
        names = [o.name for o in wanted]
        held = self._states.held(self._keys.count)[order]
        values: dict[str, np.ndarray] = {}
        if held.any():
            with np.errstate(all="ignore"):
                values = self._states.values(like, order[held], names)
        if not held.all() or not len(held):
            values = _with_empty_groups(values, held, self._of_nothing(names))
        origin = like._now.origin or like._bound.origin
        restored = {name: origin.restore(x) for name, x in values.items()}
        return keys, next(iter(restored.values())) if len(self.form.spec.outputs) == 1 else restored

    def _of_nothing(self, names: Sequence[str]) -> dict[str, np.ndarray]:
        """What the form gives for a group without an element."""
        none, now = self._like.copy(), self._like._now
        none._now = replace(now, nothing=now.dtypes or now.nothing)
        found = results.totals(none)
        return {name: np.asarray(x) for name, x in by_output(names, found).items()}

    def relabelled(self, labels: Sequence[Hashable]) -> Grouped:
        """The same groups under other keys: that of the number k is ``labels[k]``.

        Raises: RedalgError where keys are no numbers of labels, or two labels are one.
        """
        keys = self._keys.listed()
        try:
            wanted = [labels[int(k)] for k in keys]
        except (TypeError, ValueError, IndexError) as error:
            why = f"a key is no number of one of {len(labels)} labels ({error})"
            raise RedalgError("other keys", "Grouped.relabelled", why, "a label for each number") from None
        named, numbers = Keys().extended(wanted, np.arange(len(wanted)))
        if named.count != len(wanted):
            raise RedalgError("other keys", "Grouped.relabelled", "two of them are one", "distinct labels")
        assert numbers.tolist() == list(range(len(wanted)))
        twin = self.copy()
        twin._keys = named
        return twin

    def copy(self) -> Grouped:
        """An independent one with the same states."""
        twin = object.__new__(Grouped)
        twin.__dict__.update(self.__dict__)
        twin._states, twin._alone = self._states.copy(), Alone()
        return twin

    __copy__ = copy

    def __len__(self) -> int:
        """The number of groups."""
        return self._keys.count

    @property
    def count(self) -> int:
        """Rows seen, over all passes and groups."""
        return self._rows

    @property
    def nbytes(self) -> int:
        """Bytes of the states of all groups; not those of keys and bound tensors."""
        return self._states.nbytes

    def explain(self) -> str:
        """How the states of the groups are held and advanced."""
        if self._why:
            return f"{len(self)} groups, one accumulator per key: {self._why}."
        apart = len(self._states.store.apart) if isinstance(self._states, Vectorised) else 0
        also = f" {apart} groups are held one by one: they need a larger exponent range." if apart else ""
        return f"{len(self)} groups, {self.nbytes} bytes: states are arrays with a leading axis of groups.{also}"

    def __repr__(self) -> str:
        how = f"one accumulator per key ({self._why})" if self._why else "vectorised over groups"
        return f"<Grouped of {', '.join(self.form.spec.outputs)}, {len(self)} groups, {self._rows} rows, {how}>"


def _not_vectorised(like: Accumulator) -> str:
    """Why states cannot be arrays over groups; empty if they can."""
    layout = like._layout
    if layout.passes > 1:
        return f"the plan has {layout.passes} passes"
    return f"a body reads index({layout.axis[0]!r})" if layout.positional else ""


def _with_empty_groups(
    values: Mapping[str, np.ndarray], held: np.ndarray, nothing: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Results of all groups, of which those that are `held` have elements."""
    found = {}
    for name, empty in nothing.items():
        full = values.get(name)
        found[name] = np.empty((len(held), *empty.shape), empty.dtype if full is None else full.dtype)
        found[name][~held] = empty
        if full is not None:
            found[name][held] = full
    return found


def _learn(like: Accumulator, found: Bound) -> None:
    """The lengths, dtypes and kind of arrays of a chunk, for those to come."""
    now, first = like._now, like._layout.axis[0]
    sizes = {**now.sizes, **{axis: n for axis, n in found.sizes.items() if axis != first}}
    if not found.sizes[first]:
        nothing = promote.joint(now.nothing, found.dtypes)
        like._now = replace(now, sizes=sizes, origin=now.origin or checks.origin_of(found), nothing=nothing)
        return
    origin, noted = now.origin or checks.origin_of(found), promote.beyond(now.beyond, found.arrays)
    like._now = replace(now, sizes=sizes, dtypes=found.dtypes, origin=origin, beyond=noted)
