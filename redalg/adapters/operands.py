"""What adapters of frameworks share: arguments by place and by name, calls on the CPU, the derivative or its refusal,
mapped forms."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from redalg.api import derive_incremental
from redalg.engine.passes import ASSUMPTIONS
from redalg.errors import RedalgError
from redalg.form import Form
from redalg.gradients.calls import Vjp, assumed
from redalg.gradients.lost import Watched, any_nan, is_lost
from redalg.gradients.readings import own_tensors, under_own_names
from redalg.gradients.refusals import ASSUMPTIONS as OF_DERIVATIVES
from redalg.graph import node as g
from redalg.graph.masked import new_axes
from redalg.graph.node import Decl
from redalg.joint import derived
from redalg.language.spec import Spec
from redalg.laws.batch import free_axis, over
from redalg.laws.laws import InternalError
from redalg.numeric.binding import with_readings
from redalg.run import OnHost
from redalg.streaming import repeats


def as_passed(form: Form) -> Form:
    """The form, where a tensor that is read along other axes alone is declared by the name that it is passed by."""
    made = under_own_names(form.spec)
    if made is form.spec:
        return form
    assume = [name for name, _ in form.plan.assumptions if name in ASSUMPTIONS]
    return derive_incremental(made, form.plan.axis or None, len(form.plan.passes) or 1, assume)


def sizes_of(spec: Spec, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Axis -> its length, of the tensors by name; those of other readings and of top-k, too."""
    found: dict[str, Any] = dict(new_axes(*spec.outputs.values()))
    found |= {a: n for d in own_tensors(spec) for a, n in zip(d.axes, arrays[d.name].shape, strict=True)}
    for d in spec.tensors:
        if d.array and not d.dimensions:
            found = dict(zip(d.axes, arrays[d.array].shape, strict=True)) | found
    return found


def by_name(tensors: Sequence[Decl], given: Sequence[Any], named: Mapping[str, Any], where: str) -> dict[str, Any]:
    """One argument for every tensor, in the spec's order, passed by place or by name."""
    names = [d.name for d in tensors]
    arrays = dict(zip(names, given, strict=False)) | dict(named)
    if len(given) + len(named) != len(names) or set(arrays) != set(names):
        got = f"{len(given)} tensors, and {', '.join(named) or 'none'} by name"
        raise RedalgError(got, where, f"it takes {', '.join(map(str, tensors))}", "pass each once")
    return {n: arrays[n] for n in names}


_MADE_BY: weakref.WeakKeyDictionary[Registered, tuple[Callable[..., Any], tuple[Any, ...]]] = (
    weakref.WeakKeyDictionary()
)
_NAMED: dict[str, Any] = {}  # operators and heads, which live as long as their names do


def by_operators_name(name: str) -> Any:
    """What has been registered under this name, None where nothing has."""
    return _NAMED.get(name)


class Registered:
    """What is registered under a name: copies are the same object, and a pickle is what it was made by.

    So modules that hold one are copied (`copy.deepcopy`) and saved as they are.
    """

    def registered(self, make: Callable[..., Any], *given: Any) -> None:
        """Says what makes it: the function, and its arguments."""
        _MADE_BY[self] = make, given
        if name := getattr(self, "name", None):
            _NAMED[name] = self

    @property
    def __name__(self) -> str:  # what `torch.jit.trace` and others that take functions ask for
        return str(getattr(self, "name", type(self).__name__)).rpartition("::")[2]

    def __copy__(self) -> Registered:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Registered:
        return self

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _MADE_BY[self]


def in_windows(spec: Spec, arrays: Mapping[str, Any], where: str) -> list[Any]:
    """One argument for every tensor, windows where it is read in windows: frameworks differentiate through views."""
    found = with_readings(spec.tensors, arrays, where=where)
    return [found[d.name] for d in own_tensors(spec)]


def derivative(spec: Spec, assume: Iterable[str] = ()) -> Vjp | RedalgError:
    """Or why the spec has none: then a call refuses to be differentiated.

    Raises: RedalgError for an assumption that there is none of.
    """
    assumed(assume, "form.torch_op or form.jax")
    try:
        return Vjp(spec, assume=assume)
    except RedalgError as refusal:
        return refusal


def complex_tensors(spec: Spec) -> frozenset[str]:
    return frozenset(d.name for d in own_tensors(spec) if "complex" in d.domain)


def refuse_complex(
    spec: Spec, tensors: Collection[str], wanted: Collection[str], outputs: Sequence[bool], where: str
) -> None:
    """Raises: RedalgError where one of the complex tensors is among those that a derivative is wanted by, or an output
    that is complex reads one of these: derivatives are those of real numbers, and these would be dropped."""
    found = [n for n in wanted if n in tensors]
    for (name, node), is_complex in zip(spec.outputs.items(), outputs, strict=False):
        if is_complex and any({t.attr.name, t.attr.array}.intersection(wanted) for t in g.leaves(node)):
            found.append(name)
    if found:
        why = "derivatives are those of real numbers, and it is complex"
        fix = "declare real and imaginary parts as two tensors"
        raise RedalgError(f"a derivative by or of {found[0]}", where, why, fix)


def assumptions(given: str | Iterable[str]) -> tuple[list[str], list[str]]:
    """Named assumptions: those under which a form is derived, and those of its derivative.

    Raises: RedalgError for one that is neither.
    """
    named = [given] if isinstance(given, str) else list(given)
    for name in named:
        if name not in (*ASSUMPTIONS, *OF_DERIVATIVES):
            known = f"known assumptions are {', '.join((*ASSUMPTIONS, *OF_DERIVATIVES))}"
            raise RedalgError(f"assumption {name!r}", "assume=", known, "leave it out, or check the spelling")
    return [n for n in named if n in ASSUMPTIONS], [n for n in named if n in OF_DERIVATIVES]


def mapped_form(form: Form, names: Collection[str]) -> Form:
    """The form of the spec in which the named tensors, and what depends on them, have one more axis, the first."""
    longer = over(form.spec, free_axis(form.spec, form.plan), names)
    assume = [name for name, _ in form.plan.assumptions if name in ASSUMPTIONS]
    return derive_incremental(longer, form.plan.axis or None, len(form.plan.passes) or 1, assume)


class Unsaved:
    """Gradients that read nothing saved, in the place of a spec of gradients where a call of it is given values that
    their dtype does not hold. Derived when the first such call comes.

    `seen`: the tensors that are such values. `mapped`: names of tensors that have one more axis, for each map.
    `rounds`, `hides`: as `redalg.gradients.calls.Vjp` says of the spec.
    """

    def __init__(
        self,
        specs: Sequence[Spec],
        seen: Sequence[Watched],
        mapped: Sequence[Collection[str]] = (),
        rounds: bool = False,
        hides: bool = False,
    ) -> None:
        self.specs, self.seen, self.mapped, self.rounds, self.hides = specs, seen, mapped, rounds, hides
        self.tensors = list({d.name: d for spec in specs for d in own_tensors(spec)}.values())

    def over(self, names: Collection[str]) -> Unsaved:
        return Unsaved(self.specs, self.seen, (*self.mapped, names), self.rounds, self.hides)

    def found(self, given: Mapping[str, Any], call: Callable[[], Any]) -> Any:
        """What the call in whose place these stand gives, or these by name, if they have a form: where a saved value is
        none of its dtype, and where what the call gave is not the gradient (`redalg.gradients.calls.Vjp.after`)."""
        made = self._made(given) if is_lost(self.seen, given) else None
        if made is not None:
            return made
        with repeats() as wider:
            found = call()
        values = found.values() if isinstance(found, dict) else (found,)
        again = wider and self.rounds or self.hides and any_nan(values)
        made = self._made(given) if again else None
        return found if made is None else made

    def _made(self, given: Mapping[str, Any]) -> dict[str, Any] | None:
        made: dict[str, Any] = {}
        try:
            for form, run in self._runs:
                result = run(**{d.name: given[d.name] for d in own_tensors(form.spec)})
                made |= result if isinstance(result, dict) else dict.fromkeys(form.spec.outputs, result)
        except InternalError:
            raise
        except RedalgError:
            return None
        return made

    @cached_property
    def _runs(self) -> list[tuple[Form, OnHost]]:
        forms = [derived(spec) for spec in self.specs]
        for names in self.mapped:
            forms = [mapped_form(form, own) if (own := _within(form, names)) else form for form in forms]
        return [(form, OnHost(form)) for form in forms]


def _within(form: Form, names: Collection[str]) -> frozenset[str]:
    return frozenset(names) & {d.name for d in own_tensors(form.spec)}


def longer_outputs(mapped: Spec, spec: Spec) -> list[bool]:
    """Which results of a mapped spec have the axis that was mapped over (it is their first)."""
    pairs = zip(mapped.output_axes.values(), spec.output_axes.values(), strict=True)
    return [len(new) > len(old) for new, old in pairs]


__all__ = [
    "OnHost",
    "Registered",
    "Unsaved",
    "assumptions",
    "as_passed",
    "by_name",
    "by_operators_name",
    "complex_tensors",
    "derivative",
    "in_windows",
    "longer_outputs",
    "mapped_form",
    "own_tensors",
    "refuse_complex",
    "sizes_of",
]
