"""`derive_incremental`: from a spec to its incremental form, or to a verdict that says why there is none.

The procedure (theory, sections 1-5), one arrow after the other::

    spec -> normalised outputs -> raw cascade (which stages separate) -> anchors -> centred cascade -> plan -> form

With several passes allowed, a stage that does not join the pass of its dependencies gets the next one, in which they
are constants; this greedy assignment is minimal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from redalg import graph as g
from redalg import normal as nf
from redalg.assembling import build_pass
from redalg.cascade import Blocked, Cascade, RawBackend
from redalg.errors import NotDecomposable, RedalgError, Undecided
from redalg.graph import Node
from redalg.infinities import FINITE, LEVELS, assuming, differences, guard
from redalg.normal import TooLarge
from redalg.normalising import choose_axis, normalise
from redalg.plan import Output, PassPlan, Plan, StageReport
from redalg.spec import Spec
from redalg.work import DERIVATION, Exhausted, allowance

if TYPE_CHECKING:
    from redalg.form import Form

ASSUMPTIONS = ("cast_commutes",)
PAIRS = {
    "sum": "(sum, ×)",
    "prod": "(prod, power)",
    "any": "(any, and)",
    "all": "(all, or)",
    "monoid": "(monoid, action)",
}


def derive_incremental(spec: Spec, axis: object = None, max_passes: int = 1, assume: Iterable[str] = ()) -> Form:
    """The incremental form of `spec` along `axis`: one state, updated by elements, merged in any bracketing.

    * `axis`: the streamed axis (a name, or a tuple for a composite one); default: the one that the outermost
      reductions of the outputs share.
    * `max_passes`: how often the data may be read for the state; the plan uses as few as possible.
    * `assume`: named assumptions, of ``cast_commutes`` (rounding commutes with the stage values).

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
    from redalg.form import Form

    with _held(spec):
        plan = _verified(spec, derive_plan(spec, axis, max_passes, assume))
        level: dict[str, int] = {}
        while True:
            found = differences(Form(spec, plan))
            more = {name: level.get(name, 0) + 1 for name, kind in found.items() if kind == "number"}
            if not more or max(more.values()) > LEVELS:
                return Form(spec, assuming(plan, FINITE) if found or level else plan)
            level |= more
            plan = replace(derive_plan(spec, axis, max_passes, assume, level), assumptions=plan.assumptions)


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
    except RecursionError:
        raise _undecided(spec, "the depth of nesting that Python allows") from None
    except Exception as failure:
        from redalg.obligation import InternalError

        raise InternalError(
            f"{type(failure).__name__} while deriving",
            f"form of {', '.join(spec.outputs)}",
            f"{failure}" or type(failure).__name__,
            "this is an error in redalg, not in the spec; please report the spec",
        ) from failure


def _undecided(spec: Spec, budget: str) -> Undecided:
    return Undecided(
        "a derivation that is too large",
        f"form of {', '.join(spec.outputs)}",
        f"it goes beyond {budget}",
        "write the spec with fewer factors, smaller powers or fewer stages, or split its outputs over several specs",
        missing=f"a derivation within {budget}",
    )


def _verified(spec: Spec, plan: Plan) -> Plan:
    """The plan, its obligations tested. Where only infinities and NaN tell it from the definition, it says so.

    A form that is NaN there gets a named assumption; one that is a number there is not given out.
    """
    from redalg.obligation import InternalError, verify_plan

    try:
        verify_plan(spec, plan)
        return plan
    except InternalError as failure:
        if not any(str(side).strip("+-") in ("inf", "nan") for side in (failure.left, failure.right)):
            raise
    assumed = assuming(plan, FINITE)
    try:
        verify_plan(spec, assumed)
        return assumed
    except InternalError as failure:
        raise Undecided(
            f"output {failure.what.split(' of ')[-1].split(' ')[0]}",
            f"form of {', '.join(spec.outputs)}",
            f"where a stage value is infinite or empty the form would not be the definition: {failure.why}",
            "bound the stage values in the spec, by where or maximum",
            missing="the values of the stages on empty, masked or vanishing data",
        ) from None


def derive_plan(
    spec: Spec, axis: object = None, max_passes: int = 1, assume: Iterable[str] = (), guards: Mapping[str, int] = {}
) -> Plan:
    """The plan behind `derive_incremental`, not yet verified; `guards`: outputs by name (see `redalg.infinities`)."""
    if not isinstance(spec, Spec):
        raise RedalgError(
            f"a spec of type {type(spec).__name__}",
            "ra.derive_incremental",
            "only a Spec says which outputs are wanted",
            "ra.derive_incremental(ra.Spec(y=expression))",
        )
    assumed = _checked(max_passes, assume)
    outputs = list(spec.outputs.values())
    along = choose_axis(outputs, axis, set(spec.axes))
    nodes = [normalise(n, along) for n in outputs]
    if not along:
        return _finished(spec, (), (PassPlan(),), nodes, (), {})
    with allowance(DERIVATION, "products of terms"):
        return _Derivation(spec, along, nodes, "cast_commutes" in assumed, guards).run(max_passes)


def _checked(max_passes: int, assume: Iterable[str]) -> frozenset[str]:
    assumed = frozenset({assume} if isinstance(assume, str) else assume)
    unknown = assumed - set(ASSUMPTIONS)
    if unknown:
        raise RedalgError(
            f"assumption {sorted(unknown)[0]!r}",
            "ra.derive_incremental(assume=...)",
            f"known assumptions are {', '.join(ASSUMPTIONS)}",
            "leave it out, or check the spelling",
        )
    if isinstance(max_passes, bool) or not isinstance(max_passes, int) or max_passes < 1:
        raise RedalgError(
            f"max_passes={max_passes!r}",
            "ra.derive_incremental",
            "a form reads its data at least once",
            "max_passes=1",
        )
    return assumed


class _Derivation:
    """One run of the procedure; everything it learns is in its cascades."""

    def __init__(
        self, spec: Spec, axis: tuple[str, ...], nodes: list[Node], commute: bool, guards: Mapping[str, int]
    ) -> None:
        self.spec, self.axis, self.nodes, self.commute = spec, axis, nodes, commute
        names = list(spec.outputs)
        self.guards = {names.index(name): guard(nodes[names.index(name)], axis, k) for name, k in guards.items()}
        self.stages = [n for n in g.walk(*nodes) if n.op == "reduce" and n.attr.axes == axis]
        self.axis_order = tuple(dict.fromkeys(a for d in spec.tensors for a in d.axes))

    def run(self, max_passes: int) -> Plan:
        cascades: list[tuple[Cascade, RawBackend]] = []
        known: frozenset[Node] = frozenset()
        obstacle: Blocked | None = None
        first: tuple[Cascade, Blocked] | None = None
        while True:
            backend = RawBackend(self.axis)
            raw = Cascade(self.stages, self.axis, known, backend, self.commute)
            cascades.append((raw, backend))
            resolved, obstacle = self._resolve(raw)
            if obstacle is None:
                break
            first = first or (raw, obstacle)
            ready = known | {s for s in self.stages if s not in known and raw.value(s).blocked is None}
            if ready == known:
                break
            known = ready
        if obstacle is not None or len(cascades) > max_passes:
            assert first is not None
            self._refuse(*first, passes=len(cascades) if obstacle is None else None)
        return self._plan(cascades, resolved)

    def _resolve(self, raw: Cascade) -> tuple[list[Node], Blocked | None]:
        """The outputs over derivable stages: as written, or in normal form where that cancels what is in the way."""
        out = []
        for node in self.nodes:
            bad = raw.first_bad(node)
            if bad is not None:
                node = self._cleaned(raw, node)
                bad = raw.first_bad(node)
            if bad is not None:
                value = raw.value(bad) if raw.scope.is_stage(bad) and bad in self.stages else None
                return [], (value.blocked if value and value.blocked else self._blocked_below(raw, node))
            out.append(node)
        return out, None

    def _cleaned(self, raw: Cascade, node: Node) -> Node:
        """The node with every part in normal form whose normal form is free of what is in the way."""
        if raw.first_bad(node) is None or raw.scope.is_stage(node):
            return node
        if not raw.scope.varies(node):
            p = raw.separator.poly(node)
            if all(raw.first_bad(gen) is None for gen in p.generators()):
                return nf.poly_node(p)
        fixed = [a for a in node.args if not raw.scope.varies(a)] if node.op in ("add", "mul") else []
        if 1 < len(fixed) < len(node.args):  # what stage values have in common cancels beside elements, too
            beside = [a for a in node.args if raw.scope.varies(a)]
            whole = self._cleaned(raw, g.rebuild(node, tuple(fixed)))
            return g.rebuild(node, (whole, *(self._cleaned(raw, a) for a in beside)))
        return g.rebuild(node, tuple(self._cleaned(raw, a) for a in node.args))

    def _blocked_below(self, raw: Cascade, node: Node) -> Blocked:
        for s in g.walk(node):
            if raw.scope.is_stage(s) and s in self.stages:
                blocked = raw.value(s).blocked
                if blocked is not None:
                    return blocked
        raise AssertionError("an output is blocked, but none of its stages is")

    # --- building ---

    def _plan(self, cascades: list[tuple[Cascade, RawBackend]], resolved: list[Node]) -> Plan:
        """Plans from the last pass to the first: what a pass reads of earlier ones is what those must compute."""
        wanted: dict[Node, Node] = {}  # values of earlier passes -> their names
        done: set[Node] = set()
        passes: list[PassPlan] = []
        unanchored: dict[str, str] = {}
        nodes, emitted = resolved, None
        taken = frozenset({"n", *(d.name for d in self.spec.tensors)})
        for p in range(len(cascades) - 1, -1, -1):
            raw, backend = cascades[p]
            export, written = partial(self._export, wanted), self.nodes if emitted is None else None
            more = [node for pair in self.guards.values() for node in pair] if emitted is None else None
            plan, values, without = build_pass(raw, backend, nodes, export, self.axis_order, taken, written, more)
            unanchored |= without
            if emitted is None:
                emitted = values
            else:
                done.update(nodes)
                names = [wanted[n].attr.name for n in nodes]
                plan = PassPlan(plan.anchors, plan.slots, plan.order, tuple(zip(names, values, strict=True)))
            passes.insert(0, plan)
            taken |= _names(plan)  # one name means one thing in all passes
            earlier = cascades[p - 1][0].scope if p else raw.scope
            nodes = [n for n in wanted if n not in done and not earlier.is_known(n)]
        assert emitted is not None
        reports, assumed = self._reports(cascades, resolved), self._assumed(cascades) | unanchored
        found = _finished(self.spec, self.axis, tuple(passes), emitted[: len(resolved)], reports, assumed)
        outputs = list(found.outputs)
        for place, at in enumerate(self.guards):
            finite, otherwise = emitted[len(resolved) + 2 * place :][:2]
            outputs[at] = replace(outputs[at], finite=finite, otherwise=otherwise)
        return replace(found, outputs=tuple(outputs), known=tuple(wanted.items()))

    @staticmethod
    def _good(raw: Cascade, stage: Node) -> bool:
        return raw.scope.is_stage(stage) and raw.value(stage).blocked is None

    def _export(self, wanted: dict[Node, Node], node: Node) -> Node:
        if node not in wanted:
            axes = tuple(a for a in self.axis_order if a in node.axes)
            axes += tuple(sorted(node.axes - set(axes)))
            wanted[node] = g.state(self._unused(f"known{len(wanted) + 1}"), axes)
        return wanted[node]

    def _unused(self, name: str) -> str:
        return name + "_" if any(d.name == name for d in self.spec.tensors) else name

    def _reports(self, cascades: list[tuple[Cascade, RawBackend]], resolved: list[Node]) -> tuple[StageReport, ...]:
        reports = []
        live = set(g.walk(*resolved))
        for k, stage in enumerate(self.stages):
            home = next((p for p, (raw, _) in enumerate(cascades) if self._good(raw, stage)), None)
            if home is None or stage not in live:
                continue
            raw = cascades[home][0]
            value = raw.value(stage)
            pairs = nf.rank_factor(raw.separator.rows(value.body)) if value.body is not None else []
            factors = list(raw.contracted(pairs, stage))
            generators = tuple(nf.poly_node(a) for a, _ in factors)
            coefficients = tuple(nf.poly_node(b) for _, b in factors)
            pair = PAIRS.get(stage.attr.kind, f"({stage.attr.kind}, monotone)")
            reports.append(
                StageReport(
                    f"stage{k + 1}",
                    stage,
                    pair,
                    len(pairs) if value.body is not None else None,
                    home + 1,
                    tuple(value.trace.rules),
                    generators,
                    coefficients,
                )
            )
        return tuple(reports)

    def _assumed(self, cascades: list[tuple[Cascade, RawBackend]]) -> dict[str, str]:
        out: dict[str, str] = {}
        for raw, _ in cascades:
            for stage in self.stages:
                if self._good(raw, stage):
                    out |= raw.value(stage).trace.assumptions
        return out

    # --- refusing ---

    def _refuse(self, raw: Cascade, blocked: Blocked, passes: int | None) -> None:
        from redalg.refusing import refuse

        refuse(self.spec, raw, self.nodes, self.stages, blocked, passes)


def _names(p: PassPlan) -> frozenset[str]:
    return frozenset((*p.order, *(part for s in p.slots for part in s.parts)))


def _finished(
    spec: Spec,
    axis: tuple[str, ...],
    passes: tuple[PassPlan, ...],
    nodes: list[Node],
    reports: tuple[StageReport, ...],
    assumptions: dict[str, str],
) -> Plan:
    outputs = tuple(
        Output(name, node, tuple(spec.output_axes[name]), bool(node.axes & set(axis)), spec.empty.get(name))
        for name, node in zip(spec.outputs, nodes, strict=True)
    )
    return Plan(axis, passes, outputs, reports, tuple(sorted(assumptions.items())))


__all__ = ["derive_incremental", "derive_plan", "verdict"]
