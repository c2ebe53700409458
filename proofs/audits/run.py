"""`audit`: laws of an operator that somebody else wrote, checked by search, with the smallest counterexamples found."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction
from numbers import Integral, Real
from random import Random
from typing import Any

from redalg.proofs.audits.domain import KINDS, BadHint, domains, element_layout
from redalg.proofs.audits.drawing import hypothesis_of
from redalg.proofs.audits.judge import Operator, Outcome, outcome, quiet
from redalg.proofs.audits.report import AuditReport, LawReport, law_report
from redalg.proofs.audits.search import Sampler, Search
from redalg.proofs.audits.terms import ASSOCIATIVE, NOTHING, RESTS_ON, A, B, E, Law, combine, laws
from redalg.proofs.audits.values import PRECISION, Layout, Unfit, is_finite, layout_of, precision
from redalg.proofs.document.errors import RedalgError

PROBES = 12
NOT_CALLABLE = ("TypeError", "AttributeError", "UFuncTypeError", "_UFunc", "TypingError", "NotImplementedError")


def audit(
    combine: Callable[[Any, Any], Any],
    identity: Any,
    *,
    lift: Callable[[Any], Any] | None = None,
    finalize: Callable[[Any], Any] | None = None,
    definition: Callable[[Any], Any] | None = None,
    domain: Any = None,
    valid: Callable[[Any], bool] | None = None,
    commutative: bool = False,
    exact: bool | None = None,
    dtype: Any = None,
    rtol: float | None = None,
    specials: Iterable[str] = KINDS,
    samples: int = 200,
    seed: int = 0,
    name: str | None = None,
) -> AuditReport:
    """Check ``combine(a, b)`` and ``identity`` for the laws that merging in any order of brackets rests on.

    ======================  ===========================================================================================
    associativity           (a ⊕ b) ⊕ c = a ⊕ (b ⊕ c)
    commutativity           a ⊕ b = b ⊕ a; counts as broken only if `commutative` claims it
    left, right identity    e ⊕ a = a, a ⊕ e = a
    empty merge             e ⊕ e = e; no NaN and no exception where e meets a finite state, however large; the same
                            with ``lift([])`` in the place of e
    homomorphism            lift(a ++ b) = lift(a) ⊕ lift(b)   (with `lift`), also for chunks of up to 4097 elements
    definition              finalize(e ⊕ lift a ⊕ lift b ⊕ …) = definition(a ++ b ++ …)   (with `lift` and `definition`)
    large counts            the first four on states of up to 2^40 elements, every power of two among them, merged from
                            themselves (with `lift`), or with integers up to 2^40 in them
    magnitudes              the first four (with `lift`, homomorphism and definition too) on powers of two from 2^-21 to
                            2^21 (float64; fewer in narrower types) beside numbers of the order of 1
    arguments kept          a ⊕ b changes neither a nor b, nor the identity
    repetition              (a ⊕ b) ⊕ c has the same bits whenever it is computed, whatever was computed before
    infinities, nan, zeros  the first four on states that hold such numbers
    subnormals, huge        the identity laws on finite states that hold such numbers (brackets decide what overflows)
    ======================  ===========================================================================================

    States are numbers, tuples, named tuples, dicts, dataclasses or NumPy arrays, shaped like `identity`.

    * `lift(chunk)` makes a state of a list of stream elements (an array, if a list is refused), the empty one included.
      With it only reachable states are tried; without, every state of the `domain`.
    * `domain` says which numbers: words (real, positive, nonnegative, integer, count, unit, bool, finite), a set or a
      range; one for all, or a tuple or dict of them shaped like the state (with `lift`: like an element).
      `valid(state)` (with `lift`: of an element) narrows further.
    * `finalize(state)`: states are equal when their results are (observational equality).
    * Equality: two states that both hold a NaN are equal, 0.0 = -0.0. Where `combine` keeps Fractions it is judged in
      Fractions, exactly, also a Numba function by its Python source; else in floats within a forward error bound
      (`redalg.proofs.audits.judge`) for the least precise float type of the states. `exact=True` demands the former,
      ``exact=False`` the latter; `dtype` is the float type Python floats are handed over as; `rtol` replaces the
      bound by rtol × the largest number met.
    * `identity=None`: a semigroup, where emptiness is somebody else's flag; needs `lift`.

    Hypothesis draws the states and shrinks what fails (``pip install 'redalg[testing]'``). Everything is a function of
    the arguments: the same `seed` finds and shrinks to the same counterexamples. A counterexample that does not fail
    when it is judged once more says so. Laws that hold on samples are not proved.

    Raises: RedalgError where Hypothesis is not installed, for a hint that does not fit the states, for an operator that
    cannot be called on states shaped like its identity, and for ``exact=True`` where Fractions do not survive.

    >>> def mean(a, b):
    ...     n = a[0] + b[0]
    ...     return (n, (a[0] * a[1] + b[0] * b[1]) / n)
    >>> report = audit(mean, (0, 0.0), domain=("count", "real"), valid=lambda s: s[0] or not s[1])
    >>> print(report["empty merge"])
    broken: e ⊕ e = e fails: raises ZeroDivisionError: float division by zero ≠ (0, 0)
    >>> audit(max, -float("inf"), commutative=True).broken
    ('nan',)
    """
    label = name or _name(combine)
    specials = (specials,) if isinstance(specials, str) else tuple(specials)
    _check_strictness(label, rtol, samples, seed)
    _check(label, combine, identity, lift, definition, specials, exact)
    hypothesis_of(f"redalg.proofs.audit of {label}")
    op = _operator(label, locals())
    with quiet():
        op = _probed(label, op, exact)
        return _audited(label, op, specials, commutative, samples, seed)


def _audited(
    label: str, op: Operator, specials: tuple[str, ...], commutative: bool, samples: int, seed: int
) -> AuditReport:
    merges_nothing, notes = _lifts_nothing(op)
    demanded = laws(op.identity is not None, op.lift is not None, merges_nothing, op.definition is not None, specials)
    reports: dict[str, LawReport] = {}
    found = {}
    search = Search(op, samples, seed)
    for law in demanded:
        claimed = commutative or law.name != "commutativity"
        law = _without_broken(law, reports, commutative)
        result = search.law(law)
        if result is None:
            reason = "what it rests on is broken" if not law.checks else "no number of the domain is of this kind"
            reports[law.name] = LawReport(law.name, law.text(), "not judged", claimed=claimed, reason=reason)
            continue
        found[law.name] = (law, result)
        reports[law.name] = law_report(op, law, result, claimed)
    found = {n: f for n, f in found.items() if reports[n].status != "not judged"}
    return AuditReport(label, reports, op.dtype, seed, notes, op, found)


def _without_broken(law: Law, reports: dict[str, LawReport], commutative: bool) -> Law:
    """A law on special numbers rests on the ordinary ones that hold, and on commutativity only if it is claimed."""
    if not law.kind and law.name != "large counts":
        return law
    broken = {n for n, r in reports.items() if r.status == "broken"} | (set() if commutative else {"commutativity"})
    left_out = {c for n in broken for c in RESTS_ON.get(n, ())}
    return replace(law, checks=tuple(c for c in law.checks if c not in left_out))


# --- what is audited --------------------------------------------------------------------------------------------------


def _name(function: Any) -> str:
    name = getattr(function, "__name__", type(function).__name__)
    return name if name.isidentifier() else "operator"


def _refuse(what: str, label: str, why: str, fix: str) -> Exception:
    return RedalgError(what, f"redalg.proofs.audit of {label}", why, fix)


def _check(label: str, combine: Any, identity: Any, lift: Any, definition: Any, specials: Any, exact: Any) -> None:
    if not callable(combine):
        raise _refuse(f"{combine!r}", label, "it is not a function", "pass a function of two states")
    if identity is None and lift is None:
        raise _refuse("identity=None", label, "nothing says what a state looks like", "pass lift=, or an identity")
    if definition is not None and lift is None:
        raise _refuse("definition= without lift=", label, "a definition reads stream elements", "pass lift= as well")
    unknown = [s for s in specials if s not in KINDS]
    if unknown:
        raise _refuse(f"specials={specials!r}", label, f"the kinds are {', '.join(KINDS)}", 'write specials=("nan",)')
    if exact not in (None, True, False):
        raise _refuse(f"exact={exact!r}", label, "it is none of True, False, None", "leave it out")


def _check_strictness(label: str, rtol: Any, samples: Any, seed: Any) -> None:
    """A bound that is no number would let every operator pass."""
    if not isinstance(samples, Integral) or samples < 1:
        raise _refuse(f"samples={samples!r}", label, "a law is judged on one sample at least", "samples=200")
    if rtol is not None and not (isinstance(rtol, Real) and 0 <= float(rtol) < math.inf):
        raise _refuse(f"rtol={rtol!r}", label, "a relative error is a number from 0 on", "rtol=1e-9, or leave it out")
    if not isinstance(seed, Integral):
        raise _refuse(f"seed={seed!r}", label, "it is no integer", "seed=0")


def _operator(label: str, given: dict[str, Any]) -> Operator:
    lift, hint = given["lift"], given["domain"]
    try:
        cast = _cast(given["dtype"])
        element = element_layout(hint, cast) if lift is not None else None
        layout = _state_layout(given["identity"], cast, lift, element)
        kind = precision(layout)
        floats = element if element is not None else layout
        found = domains(hint, floats, kind)
        identity = None if given["identity"] is None else tuple(layout.flatten(given["identity"]))
    except (Unfit, BadHint) as error:
        what, fix = (
            f"identity={given['identity']!r}",
            "states are numbers, tuples, dicts, dataclasses, arrays",
        )
        if isinstance(error, BadHint):
            what, fix = f"domain={hint!r}", "give words, a set, a range, or a tuple of them shaped like the state"
        raise _refuse(what, label, str(error), fix) from error
    functions = {k: given[k] for k in ("combine", "lift", "finalize", "definition", "valid", "rtol")}
    exact_identity = None if identity is None else tuple(_rational(x) for x in identity)
    return Operator(identity=exact_identity, layout=layout, domains=found, dtype=kind, element=element, **functions)


def _rational(x: Any) -> Any:
    return Fraction(x) if isinstance(x, float) and math.isfinite(x) and math.copysign(1, x) * (x or 1) > 0 else x


def _cast(dtype: Any) -> Any:
    if dtype is None or dtype is float:
        return None
    import numpy

    try:
        found = numpy.dtype(dtype)
    except TypeError as error:
        raise BadHint(f"dtype={dtype!r} is no NumPy type") from error
    if found.name not in PRECISION:
        raise BadHint(f"dtype={found.name} is none of {', '.join(PRECISION)}")
    return found.type


def _state_layout(identity: Any, cast: Any, lift: Any, element: Layout | None) -> Layout:
    """Where there is no identity, a state is what the lift of one element looks like."""
    if identity is not None:
        return layout_of(identity, cast)
    assert element is not None
    one = [element.build(iter([1] * len(element.leaves())), False)]
    try:
        return layout_of(lift(one), cast)
    except (TypeError, AttributeError):
        import numpy

        return layout_of(lift(numpy.array(one)), cast)


# --- probing ----------------------------------------------------------------------------------------------------------


def _probed(label: str, op: Operator, exact: bool | None) -> Operator:
    """Whether chunks are lists or arrays, whether Fractions survive, and that the operator can be called at all."""
    if op.lift is not None:
        op = _with_chunks(label, op)
    outcomes = _outcomes(op, False)
    unfit = [o.raised for o in outcomes if o.raised.startswith("returns ")]
    if not outcomes:
        raise _refuse("a domain without states", label, "valid= takes none of the states drawn", "widen domain=")
    if unfit or all(o.raised.startswith(NOT_CALLABLE) for o in outcomes):
        why = unfit[0] if unfit else f"called on states of the domain it raised {outcomes[0].raised}"
        raise _refuse("an operator that does not combine its states", label, why, _fix(op))
    survives, always = (False, False) if exact is False else _survive(op)
    if exact and not always:
        why = f"a Fraction became {_lost(op)}"
        raise _refuse("exact=True", label, why, "leave exact= out: it is judged within an error bound then")
    twice = survives and hasattr(op.combine, "py_func")
    return replace(op, exact=survives, twice=twice)


def _fix(op: Operator) -> str:
    if op.lift is None:
        return "combine(a, b) takes two states shaped like the identity and returns one"
    return "lift takes a chunk: for f of one element pass lambda xs: functools.reduce(combine, map(f, xs), identity)"


def _with_chunks(label: str, op: Operator) -> Operator:
    failures = []
    for chunks in ("list", "array") if not hasattr(op.lift, "py_func") else ("array", "list"):
        tried = replace(op, chunks=chunks)
        found = _outcomes(tried, False, lifted=True)
        if any(not o.raised for o in found):
            return tried
        failures.append(found[0].raised if found else "no chunk")
    raise _refuse("a lift that takes no chunk", label, failures[0], _fix(op))


def _outcomes(op: Operator, exact: bool, lifted: bool = False) -> list[Outcome]:
    below = Random("probe").randrange
    sampler = Sampler(op, "")
    terms = [A] if lifted else [ASSOCIATIVE.left, combine(A, B)] + ([combine(E, A)] if op.identity is not None else [])
    cases = [drawn.case(3) for drawn in (sampler.states(below) for _ in range(PROBES)) if drawn is not None]
    cases = [c for c in cases if all(c)] or cases if lifted else cases
    return [outcome(op, t, c, exact) for c in cases for t in terms]


def _survive(op: Operator) -> tuple[bool, bool]:
    """Whether Fractions ever come out as Fractions, and whether they do wherever the operator is defined."""
    if any(leaf.kind == "complex" for leaf in op.layout.leaves()):
        return False, False
    outcomes = _outcomes(op, True)
    kept = [o for o in outcomes if o.exact]
    undefined = [o for o in outcomes if o.raised.startswith("ZeroDivisionError")]
    return bool(kept), bool(kept) and len(kept) + len(undefined) == len(outcomes)


def _lost(op: Operator) -> str:
    for o in _outcomes(op, True):
        if o.raised and not o.raised.startswith("ZeroDivisionError"):
            return f"an exception: {o.raised}"
        floats = [x for x in o.numbers if isinstance(x, float) and is_finite(x)]
        if floats:
            return f"the float {floats[0]!r}"
    return "something else (complex numbers are not rational)"


def _lifts_nothing(op: Operator) -> tuple[bool, tuple[str, ...]]:
    """Whether the lift of an empty chunk is a state; where it is none, a note says so."""
    if op.lift is None:
        return False, ()
    found = outcome(op, NOTHING, (), False, plain=True)
    if not found.raised:
        return True, ()
    return False, (f"lift([]) {'raises ' if not found.raised.startswith('returns') else ''}{found.raised}",)
