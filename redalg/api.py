"""`derive_incremental` and `verdict`: from a spec to its incremental form, or to a verdict that says why there is none.

spec -> plan (`redalg.engine.passes`) -> laws proved, or tested -> run on streams with infinities -> form
             \\-> obstacle -> refusal with a witness, or undecided (`redalg.verdicts`)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from redalg.algebra.polynomial import TooLarge
from redalg.algebra.work import (
    INFINITE,
    INFINITIES,
    PROOF,
    SPEC,
    VERDICT,
    Exhausted,
    allowance,
    left,
    parts,
    spend,
)
from redalg.certify.export import unstated
from redalg.certify.refusal import unneeded, unproved
from redalg.engine.draft import Obstacle
from redalg.engine.parts import Part, Parts
from redalg.engine.passes import Planner
from redalg.errors import NotDecomposable, RedalgError, Undecided
from redalg.form import Form
from redalg.graph.node import walk
from redalg.graph.plan import Plan
from redalg.language.settled import as_evaluated
from redalg.language.spec import Spec
from redalg.laws.check import is_exact
from redalg.laws.infinities import (
    ALL_STAGES,
    ANYWHERE,
    DIVISORS,
    EXACT,
    FINITE,
    LEVELS,
    POLES,
    UNGUARDED,
    WORK,
    Definitions,
    Level,
    Unseen,
    assuming,
    everything,
    hides_stages,
    unchecked,
    unseen,
)
from redalg.laws.laws import InternalError, verify_plan
from redalg.proofs.checker.check import proves
from redalg.proofs.document.errors import CertificateError
from redalg.proofs.document.work import STEPS, metered
from redalg.proofs.document.work import Exhausted as TooLong
from redalg.proofs.document.work import spent as steps
from redalg.streaming import repeats
from redalg.verdicts.refute import refuse

Planned = Callable[[Mapping[str, Level]], Plan]  # from the levels of guards by output


def derive_incremental(
    spec: Spec, axis: object = None, max_passes: int = 1, assume: Iterable[str] = (), *, dump_after: str | None = None
) -> Form:
    """The incremental form of `spec` along `axis`: one state, updated by elements, merged in any bracketing.

    * `axis`: the streamed axis (a name, or a tuple for a composite one); default: the one that the outermost
      reductions of the outputs share.
    * `max_passes`: how often the data may be read for the state; the plan uses as few as possible.
    * `assume`: named assumptions, of ``cast_commutes`` (rounding commutes with the stage values).
    * `dump_after`: the name of a pass of `redalg.engine.passes`, after which the draft is printed.

    Raises: `NotDecomposable` with a witness, `Undecided` with what is missing, `RedalgError` for bad arguments.
    Source: Tang et al., RedFuser (2026) for separation of rank 1; Chan, Golub, LeVeque (1983) for what the merge
    of the variance generalises.

    >>> import redalg as ra
    >>> x = ra.tensors("x[j]")
    >>> m = ra.max(x, "j")
    >>> form = ra.derive_incremental(ra.Spec(lse=m + ra.log(ra.sum(ra.exp(x - m), "j"))))
    >>> sorted(form.combine)
    ['max_x', 'n', 'sum_exp']
    """
    evaluated = as_evaluated(spec)
    # What laws are tested on is no part of a call that derives a form on its way: that repeats nothing.
    with allowance(VERDICT, "steps for one verdict"), _held(evaluated), repeats():
        planner = Planner(evaluated, axis, max_passes, assume, dump_after)

        def planned(guards: Mapping[str, Level]) -> Plan:
            found = planner(guards)
            if isinstance(found, Obstacle):
                refuse(evaluated, found)
            return found

        try:
            form = _guarded(evaluated, planned)
            return form if evaluated is spec else replace(form, spec=spec)
        except NotDecomposable as refusal:
            raise _needed(refusal) from None


def _needed(refusal: NotDecomposable) -> RedalgError:
    """The refusal, where its witness is proved and an output is shown to need the refused stage."""
    if missing := unneeded(refusal):
        return Undecided(
            refusal.what,
            refusal.where,
            f"{refusal.reason}; {refusal.stage} has no form, and no output is shown to need it: {missing}",
            f"write the outputs without it, or {refusal.fix}",
            stage=refusal.stage,
            missing=f"whether an output needs {refusal.stage}: {missing}",
        )
    if missing := unproved(refusal):
        return Undecided(
            refusal.what,
            refusal.where,
            f"{refusal.reason}; a witness was found, and not proved: {missing}",
            refusal.fix,
            stage=refusal.stage,
            missing=f"a proof of the witness against {refusal.stage}: {missing}",
        )
    return refusal


def _guarded(spec: Spec, planned: Planned) -> Form:
    """The form with as much of a guard at each output as runs with infinities ask for."""
    whole, before = Parts(spec), left()
    spend(SPEC * sum(1 for _ in walk(*spec.outputs.values())))
    plan = planned({})
    again = 2 * (before - left())  # what a plan with guards may take
    try:
        plan = _verified(whole, plan)
    except (Undecided, InternalError) as wrong:  # a number where a divisor is 0, and not the definition's
        planned = _away_from_zero(spec, planned)  # it is to be NaN there
        try:
            plan = assuming(_verified(whole, planned({})), _finite(spec))
        except InternalError:
            raise wrong from None
    try:
        with allowance(INFINITIES, WORK, INFINITE, "the form on streams with infinities", kept=again):
            return _at_infinities(Compared(whole), plan, planned)
    except Exhausted as budget:  # unchecked, so no element may be infinite
        unknown = unchecked(str(budget))
    except Unseen as refusal:
        unknown = unseen(str(refusal))
    guarded = replace(planned(dict.fromkeys(spec.outputs, LEVELS)), assumptions=plan.assumptions)
    return Form(spec, assuming(guarded, unknown))


def _away_from_zero(spec: Spec, planned: Planned) -> Planned:
    """Plans whose outputs are NaN where a stage value is 0 that something is divided by, whatever else is asked."""
    divisors = frozenset({DIVISORS})

    def with_divisors(level: Level | None) -> Level:
        if level is None:
            return divisors
        return max(level, LEVELS) if isinstance(level, int) else level | divisors

    return lambda guards: planned({name: with_divisors(guards.get(name)) for name in spec.outputs})


class Compared:
    """What differs at infinities between plans and the definition: once for parts that are alike."""

    def __init__(self, parts: Parts) -> None:
        self.spec, self.parts = parts.spec, parts
        self.found: dict[object, list[str]] = {}  # shape of a part -> what its outputs differ in
        self.definitions = Definitions()

    def __call__(self, plan: Plan) -> dict[str, str]:
        found: dict[str, str] = {}
        for alike in self.parts.alike(plan):
            one = alike[0]
            if one.shape not in self.found:
                differ = self.definitions.differences(Form(one.spec, one.plan))
                self.found[one.shape] = [differ.get(o.name, "") for o in one.plan.outputs]
            kinds = self.found[one.shape]
            for part in alike:
                found |= {o.name: kind for o, kind in zip(part.plan.outputs, kinds, strict=True) if kind}
        return {name: found[name] for name in self.spec.outputs if name in found}


def _at_infinities(compared: Compared, plan: Plan, planned: Planned) -> Form:
    spec = compared.spec
    level = {name: ALL_STAGES for name, node in spec.outputs.items() if hides_stages(node, plan.axis)}
    plan = replace(planned(level), assumptions=plan.assumptions) if level else plan
    while True:
        found = compared(plan)
        more = {name: level.get(name, 0) + 1 for name, kind in found.items() if kind == "number"}
        if not more and max(level.values(), default=0) >= LEVELS:
            plan, found = _eased(compared, plan, found, planned, level)
        if not more or max(more.values()) > ANYWHERE:
            assumed = UNGUARDED if more else EXACT if "exact" in found.values() else FINITE
            return Form(spec, assuming(plan, assumed) if found or level else plan)
        level |= more
        plan = replace(planned(level), assumptions=plan.assumptions)


def _eased(
    compared: Compared,
    plan: Plan,
    found: dict[str, str],
    planned: Planned,
    levels: Mapping[str, int],
) -> tuple[Plan, dict[str, str]]:
    """Guards of a last level without what need not be asked: of one tensor after the other, of divisors, of poles."""
    spec = compared.spec
    asked = {name: everything(spec.outputs[name], level) for name, level in levels.items() if level >= LEVELS}
    for one in (*(d.name for d in spec.tensors), DIVISORS, POLES):
        fewer = {name: names - {one} for name, names in asked.items() if one in names}
        if not fewer:
            continue
        trial = replace(planned({**levels, **asked, **fewer}), assumptions=plan.assumptions)
        differs = compared(trial)
        enough = {name: names for name, names in fewer.items() if differs.get(name) != "number"}
        asked |= enough
        if 0 < len(enough) < len(fewer):
            trial = replace(planned({**levels, **asked}), assumptions=plan.assumptions)
            differs = compared(trial)
        plan, found = (trial, differs) if enough else (plan, found)
    return plan, found


def verdict(
    spec: Spec, axis: object = None, max_passes: int = 1, assume: Iterable[str] = ()
) -> Form | NotDecomposable | Undecided:
    """The `Form`, or the `NotDecomposable` or `Undecided` that `derive_incremental` would raise, returned.

    >>> import redalg as ra
    >>> x = ra.tensors("x[j]")
    >>> type(ra.verdict(ra.Spec(d=ra.sum(ra.abs(x - ra.mean(x, "j")), "j")))).__name__
    'NotDecomposable'
    """
    try:
        return derive_incremental(spec, axis, max_passes, assume)
    except (NotDecomposable, Undecided) as refusal:
        return refusal


@contextmanager
def _held(spec: Spec) -> Iterator[None]:
    """Budgets that are spent are `Undecided`; whatever is neither that nor an error with four parts is the engine's."""
    try:
        yield
    except RedalgError:
        raise
    except (Exhausted, TooLarge) as budget:
        raise _undecided(spec, str(budget)) from None
    except MemoryError:
        raise _undecided(spec, "the memory there is") from None
    except RecursionError:
        raise _undecided(spec, "the depth of nesting that Python allows") from None
    except Exception as failure:
        raise InternalError(
            f"{type(failure).__name__} while deriving",
            f"form of {', '.join(spec.outputs)}",
            f"{failure}" or type(failure).__name__,
            "this is an error in redalg, not in the spec; please report the spec",
        ) from failure


def _undecided(spec: Spec, budget: str) -> Undecided:
    taken = ", ".join(f"{steps} steps in {doing}" for doing, steps in parts().items())
    return Undecided(
        "a derivation that is too large",
        f"form of {', '.join(spec.outputs)}",
        f"it goes beyond {budget}" + (f" ({taken})" if taken else ""),
        "write the spec with fewer factors, smaller powers or fewer stages, or split its outputs over several specs",
        missing=f"a derivation within {budget}",
    )


def _proved(spec: Spec, plan: Plan) -> bool:
    """Whether every obligation of the form's certificate is proved, by what shares no code with the engine.

    Under all assumptions of the plan; the certificate keeps those without which not every one is.
    """
    try:
        return proves(unstated(spec, plan))
    except (CertificateError, TooLong):
        return False


def _verified(parts: Parts, plan: Plan) -> Plan:
    """The plan, its obligations proved by the checker, or else tested at exact points: once for parts that are alike.

    Where only infinities and NaN tell it from the definition, it says so: a form that is NaN there gets a named
    assumption; one that is a number there is not given out.
    """
    ones = [alike[0] for alike in parts.alike(plan)]
    with allowance(STEPS, "steps of the checker", PROOF, "the proof of its laws"):
        most = left() // PROOF
        with metered(most):
            open_ones = [one for one in ones if not _proved(one.spec, one.plan)]
            spend(min(steps(), most))
    try:
        _tested(open_ones)
        return plan
    except InternalError as found:
        wrong = found
    kind = _finite(parts.spec)
    try:
        _tested([replace(one, plan=assuming(one.plan, kind)) for one in open_ones])
        return assuming(plan, kind)
    except InternalError as failure:
        sides = {str(side).removeprefix("+") for side in (failure.left, failure.right)}
        if sides.isdisjoint({"inf", "-inf", "nan", "-1"}):  # -1: no position
            raise wrong from None
        raise Undecided(
            f"output {failure.what.split(' of ')[-1].split(' ')[0]}",
            f"form of {', '.join(parts.spec.outputs)}",
            f"where a stage value is infinite or empty the form would not be the definition: {failure.why}",
            "bound the stage values in the spec, by where or maximum",
            missing="the values of the stages on empty, masked or vanishing data",
        ) from None


def _finite(spec: Spec) -> tuple[str, str]:
    return EXACT if any(map(is_exact, spec.outputs.values())) else FINITE


def _tested(parts: Iterable[Part]) -> None:
    for part in parts:
        verify_plan(part.spec, part.plan)


__all__ = ["derive_incremental", "verdict"]
