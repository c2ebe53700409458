"""Hypothesis strategies: arrays with adversarial values, streams for a spec, partitions, bracketings, specs.

Hypothesis is imported when a strategy is built, not before; everything shrinks to short, small and ordinary.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np

from redalg.errors import RedalgError
from redalg.graph.intervals import is_interval, moved_array
from redalg.proofs.audits.drawing import hypothesis_of
from redalg.testing import sampling
from redalg.testing.adversarial import KINDS, admitted, special_values
from redalg.testing.generator import KINDS as GENERATED
from redalg.testing.generator import Generated, generate

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

Lengths = int | tuple[int, int]
PLANTED = ("zeros", "subnormals", "huge", "infinities", "nan")


def hypothesis_strategies(where: str) -> Any:
    """The module `hypothesis.strategies`. Raises: RedalgError where Hypothesis is not installed."""
    hypothesis_of(where, "a strategy")
    from hypothesis import strategies

    return strategies


def randoms() -> SearchStrategy[Random]:
    """A seeded `random.Random`: everything else in this package is a function of one."""
    return hypothesis_strategies("redalg.testing.randoms").integers(0, 2**32 - 1).map(Random)


def specs(*kinds: str) -> SearchStrategy[Any]:
    """Random specs over the streamed axis "j": cascades of sums, extrema, positions, masks, some of them not derivable.

    `kinds` restricts them: known_rank, masked, masked_scores, weighted, monotone, positions, splitting and
    near_miss_derived derive in one pass; inseparable and near_miss_refuted do not.

    Raises: RedalgError for an unknown kind, or where Hypothesis is not installed.

    >>> from hypothesis import given
    >>> import redalg as ra
    >>> @given(spec=specs("weighted", "monotone"))
    ... def test_derives(spec):
    ...     ra.derive_incremental(spec, axis="j")
    """
    return generated(*kinds).map(lambda g: g.spec)


def generated(*kinds: str) -> SearchStrategy[Generated]:
    """Generated specs of the given kinds (default: all), with what is known about them."""
    unknown = [k for k in kinds if k not in GENERATED]
    if unknown:
        why = f"the kinds are {', '.join(sorted(GENERATED))}"
        raise RedalgError(f"the kind {unknown[0]!r}", "redalg.testing.specs", why, "name some of them, or none for all")
    return hypothesis_strategies("redalg.testing.specs").integers(0, 2**32 - 1).map(lambda s: generate(s, *kinds))


def inputs(spec: Any, axis: str = "j", most: int = 9) -> SearchStrategy[dict[str, Any]]:
    """Exact small rationals for every tensor of the spec, of length 1 to `most` along the axis."""
    st = hypothesis_strategies("redalg.testing.inputs")
    lengths = st.integers(1, most)
    return st.tuples(randoms(), lengths).map(lambda drawn: sampling.arguments(spec, drawn[0], **{axis: drawn[1]}))


def partitions(n: int, most: int = 5) -> SearchStrategy[list[int]]:
    """Borders of consecutive pieces of [0, n): piece k is ``[borders[k], borders[k + 1])``; one at least is empty.

    At most `most` pieces, two at least. ``[0, 0, n]`` is the simplest.

    Raises: RedalgError for a negative n or fewer than two pieces, or where Hypothesis is not installed.

    >>> from hypothesis import given
    >>> @given(borders=partitions(7))
    ... def test(borders):
    ...     sizes = [b - a for a, b in zip(borders, borders[1:])]
    ...     assert sum(sizes) == 7 and min(sizes) == 0
    >>> test()
    """
    st = hypothesis_strategies("redalg.testing.partitions")
    if n < 0 or most < 2:
        why = "a length is not negative, and an empty piece beside another makes two"
        raise RedalgError(f"partitions({n}, most={most})", "redalg.testing.partitions", why, "partitions(n, most=5)")
    inner = st.lists(st.integers(0, n), max_size=most - 2)
    return st.tuples(inner, st.integers(0, most)).map(lambda drawn: _borders(n, sorted(drawn[0]), drawn[1]))


def _borders(n: int, inner: list[int], at: int) -> list[int]:
    borders = [0, *inner, n]
    at %= len(borders)
    return [*borders[: at + 1], *borders[at:]]


def bracketings(pieces: int) -> SearchStrategy[list[int]]:
    """Bracketings of `pieces` states for `redalg.testing.fold`: entry k merges the k-th with the next of what is left.

    ``[0, 0, …]``, the fold from the left, is the simplest.

    Raises: RedalgError for fewer than one piece, or where Hypothesis is not installed.

    >>> from hypothesis import given
    >>> from redalg.testing import fold
    >>> @given(bracketing=bracketings(4))
    ... def test(bracketing):
    ...     assert fold(lambda a, b: a + b, ["a", "b", "c", "d"], bracketing) == "abcd"
    >>> test()
    """
    st = hypothesis_strategies("redalg.testing.bracketings")
    if pieces < 1:
        why = "there is nothing to bracket"
        raise RedalgError(f"bracketings({pieces})", "redalg.testing.bracketings", why, "pass the number of states")
    return st.tuples(*(st.integers(0, left - 2) for left in range(pieces, 1, -1))).map(list)


def arrays(
    shape: int | Sequence[int] | Any,
    dtype: Any = "float64",
    *,
    domain: Sequence[str] = (),
    specials: Sequence[str] = PLANTED,
) -> SearchStrategy[np.ndarray]:
    """NumPy arrays of small dyadic numbers with ties, and among floats the special values of some kinds.

    `shape` is a length, a tuple, or a strategy for one; `domain` as in ``ra.tensors`` (positive, nonnegative,
    integer, bool); `specials` of zeros, subnormals, huge, infinities and nan, for floats (the domain permitting).

    Raises: RedalgError for an unknown kind or domain, or where Hypothesis is not installed.

    >>> from hypothesis import given
    >>> @given(x=arrays((2, 3), "float32", specials=["nan"]))
    ... def test(x):
    ...     assert x.shape == (2, 3) and x.dtype == "float32" and not np.isinf(x).any()
    >>> test()
    """
    st = hypothesis_strategies("redalg.testing.arrays")
    from hypothesis.extra import numpy as nst

    found = np.dtype(dtype)
    whole: Any = tuple(shape) if isinstance(shape, list) else shape
    return nst.arrays(found, whole, elements=_elements(st, found, frozenset(domain), specials), fill=st.nothing())


def _elements(st: Any, dtype: np.dtype, domain: frozenset[str], specials: Sequence[str]) -> Any:
    _known(specials, KINDS, "kind of special values", "specials=")
    _known(sorted(domain), ("positive", "nonnegative", "integer", "bool"), "domain", "domain=")
    if dtype.kind == "b":
        return st.booleans()
    low = 1 if "positive" in domain else 0 if "nonnegative" in domain or dtype.kind == "u" else -16
    if dtype.kind in "iu":
        return st.integers(low // 4 if low < 0 else low, 5)
    if "integer" in domain:
        return st.integers(low // 4 if low < 0 else low, 5).map(dtype.type)
    ordinary = st.integers(low, 16).map(lambda k: dtype.type(k / 8))
    planted = [v for kind in specials for v in special_values(kind, dtype) if admitted(v, domain)]
    return ordinary | st.sampled_from([dtype.type(v) for v in planted]) if planted else ordinary


def _known(words: Sequence[str], among: Sequence[str], what: str, fix: str) -> None:
    for word in words:
        if word not in among:
            raise RedalgError(f"the {what} {word!r}", "redalg.testing.arrays", f"known are {', '.join(among)}", fix)


def streams(
    spec: Any,
    axis: str | None = None,
    *,
    sizes: Mapping[str, Lengths] | None = None,
    dtype: Any = "float64",
    specials: Sequence[str] = (),
) -> SearchStrategy[dict[str, Any]]:
    """Arguments for ``ra.reference(spec, …)`` or ``form.compile()(…)``: one array per tensor, lengths that agree.

    `spec` is a spec or a form. `sizes` gives lengths of axes, or pairs (least, most); an axis that is not named has 1
    to 3, `axis` (default: the one a form streams over, or "j") 0 to 8. Scalars are Python numbers. `specials` as in
    `arrays`: none by default, so that results may be compared within error bounds.

    Raises: RedalgError for an axis the spec has not, or where Hypothesis is not installed.

    >>> from hypothesis import given
    >>> import redalg as ra
    >>> x, w = ra.tensors("x[i,j] w[j]")
    >>> @given(values=streams(ra.Spec(y=ra.sum(x * w, "j")), sizes={"i": 2}))
    ... def test(values):
    ...     assert values["x"].shape == (2, len(values["w"]))
    >>> test()
    """
    st = hypothesis_strategies("redalg.testing.streams")
    form = spec if hasattr(spec, "plan") else None
    spec = form.spec if form is not None else spec
    streamed = axis or (form.plan.axis[0] if form is not None else "j")
    _check_axes(spec, (*(sizes or ()), *((axis,) if axis else ())))
    lengths = {}
    for name in dict.fromkeys(a for d in spec.tensors for a in d.axes):
        given = (sizes or {}).get(name, (0, 8) if name == streamed else (1, 3))
        lengths[name] = st.just(given) if isinstance(given, int) else st.integers(*given)
    return st.fixed_dictionaries(lengths).flatmap(
        lambda n: st.fixed_dictionaries({d.name: _tensor(st, d, n, dtype, specials) for d in spec.tensors})
    )


def _check_axes(spec: Any, named: Iterable[str]) -> None:
    for axis in named:
        if axis not in spec.axes:
            why = f"the axes of the spec are {', '.join(spec.axes)}"
            raise RedalgError(f"the axis {axis!r}", "redalg.testing.streams", why, "name an axis of the spec")


def _tensor(st: Any, decl: Any, lengths: Mapping[str, int], dtype: Any, specials: Sequence[str]) -> Any:
    kind = bool if "bool" in decl.domain else np.int64 if "integer" in decl.domain else dtype
    words = [w for w in ("positive", "nonnegative") if w in decl.domain]
    if is_interval(decl.domain):
        found = arrays(tuple(lengths[a] for a in decl.axes), kind, domain=words)
        found = found.map(lambda a: moved_array(decl.domain, a))
    else:
        found = arrays(tuple(lengths[a] for a in decl.axes), kind, domain=words, specials=specials)
    return found if decl.axes else found.map(lambda a: a.item())
