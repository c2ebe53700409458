"""`laws`: what must hold of a form, a monoid or a merge function, as callables that a test runs one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from redalg.api import derive_incremental
from redalg.errors import RedalgError
from redalg.proofs import audit
from redalg.testing import sampling
from redalg.testing.arithmetic import Digits
from redalg.testing.evaluator import Evaluator
from redalg.testing.form_laws import LAWS, Subject
from redalg.testing.form_laws import Law as FormLaw

WHERE = "redalg.testing.laws"
LENGTHS = (1, 2, 3, 7)
MISSING: Any = object()


@dataclass(frozen=True)
class BoundLaw:
    """A law of one subject: `name`, `equation`, `equality`. Calling it raises AssertionError where it is broken."""

    name: str
    equation: str
    equality: str
    check: Callable[..., None]

    def __call__(self, *args: Any, **options: Any) -> None:
        self.check(*args, **options)

    def __str__(self) -> str:
        return self.name


def laws(subject: Any, identity: Any = MISSING, **options: Any) -> tuple[BoundLaw, ...]:
    """The laws of a form, of a ``ra.Monoid``, or of a merge function with its identity.

    *Of a form* (or a spec, which is derived first): results of any pieces, bracketing and order are the definition
    within a derived bound, an empty state changes nothing to the bit, and the algebra is exact in rational arithmetic
    (`redalg.testing.form_laws`). ``law()`` draws streams of lengths 1, 2, 3 and 7 (options: `lengths`, `seed`,
    `sizes`, `dtype` of the arithmetic); ``law(arrays)`` takes the arguments of a call.

    *Of a function or a monoid*: associativity, commutativity where it is claimed, identity on both sides, merges with
    empty states, special values. The options are those of `redalg.proofs.audit`; a monoid brings its identity and its
    claim along. ``law()`` raises with the smallest counterexample found.

    Raises: RedalgError for a subject that is none of these; `NotDecomposable` for a spec without a form.

    >>> import redalg as ra
    >>> x = ra.tensors("x[j]")
    >>> form = ra.derive_incremental(ra.Spec(v=ra.mean((x - ra.mean(x, "j")) ** 2, "j")))
    >>> for law in laws(form):
    ...     law()
    >>> [str(law) for law in laws(lambda a, b: a + b, 0, commutative=True)][:2]
    ['associativity', 'commutativity']
    >>> laws(lambda a, b: a - b, 0)[0]()
    Traceback (most recent call last):
        ...
    AssertionError: associativity is broken: (a ⊕ b) ⊕ c = a ⊕ (b ⊕ c) fails for a = 0, b = 0, c = 1: -1 ≠ 1
    """
    if hasattr(subject, "output_axes"):
        subject = derive_incremental(subject)
    if hasattr(subject, "plan"):
        if identity is not MISSING:
            raise RedalgError(f"identity={identity!r}", WHERE, "a form has its own", "leave it out")
        return _of_form(subject, **options)
    if hasattr(subject, "combine_nodes"):
        if identity is not MISSING:
            raise RedalgError(f"identity={identity!r}", WHERE, "a monoid has its own", "leave it out")
        return _of_function(*_monoid(subject), **{"commutative": subject.commutative, "name": subject.name, **options})
    if not callable(subject):
        why = "laws are known of forms, monoids and merge functions"
        raise RedalgError(f"a {type(subject).__name__}", WHERE, why, "pass a form, or combine and its identity")
    if identity is MISSING:
        raise RedalgError("a function without an identity", WHERE, "half of its laws are about it", "laws(combine, e)")
    return _of_function(subject, identity, **options)


# --- forms ------------------------------------------------------------------------------------------------------------


def _of_form(
    form: Any,
    lengths: tuple[int, ...] = LENGTHS,
    seed: int = 0,
    sizes: Mapping[str, int] | None = None,
    dtype: str = "float64",
) -> tuple[BoundLaw, ...]:
    def bound(law: FormLaw) -> BoundLaw:
        def check(arrays: Mapping[str, Any] | None = None) -> None:
            for n in lengths if arrays is None else lengths[:1]:
                rng = Random(f"{law.name}:{seed}:{n}")
                drawn = {**(sizes or {}), sampling.first_axis(form): n}
                law(Subject(form, arrays or sampling.arguments(form.spec, rng, **drawn), rng, dtype))

        return BoundLaw(law.name, law.equation, law.equality, check)

    return tuple(bound(law) for law in LAWS)


# --- operators --------------------------------------------------------------------------------------------------------


def _monoid(monoid: Any) -> tuple[Callable[[Any, Any], Any], Any]:
    """A monoid as a function of numbers: rational where its operations are."""
    inner = Evaluator(Digits(50), {}, {})

    def combine(a: Any, b: Any) -> Any:
        pair = ((a,), (b,)) if monoid.single else (a, b)
        given = tuple(tuple(inner.arithmetic.number(x) for x in part) for part in pair)
        found = tuple(map(_plain, inner.combine_monoid(monoid, *given)))
        return found[0] if monoid.single else found

    neutral = tuple(_plain(inner.value(node, {})) for node in monoid.identity_nodes)
    neutral = tuple(float(x) if not isinstance(x, bool) else x for x in neutral)
    return combine, neutral[0] if monoid.single else neutral


def _plain(x: Any) -> Any:
    return float(x) if hasattr(x, "_mpf_") else x


def _of_function(combine: Callable[[Any, Any], Any], identity: Any, **options: Any) -> tuple[BoundLaw, ...]:
    """The claimed laws of one audit."""
    report = audit(combine, identity, **options)
    return tuple(_audited(law) for law in report.laws.values() if law.claimed)


def _audited(law: Any) -> BoundLaw:
    def check() -> None:
        if law.status == "broken":
            raise AssertionError(f"{law.name} is {law}")

    return BoundLaw(law.name, law.equation, law.equality or law.reason, check)
