"""`Spec.vjp` and `Spec.jvp`: derivatives as specs, and as callables that derive, run and hand over what was saved."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from fractions import Fraction
from functools import cached_property
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

from redalg.algebra.work import STAGES, allowance
from redalg.engine.normalise import axes_of
from redalg.errors import RedalgError
from redalg.form import Form
from redalg.gradients.certificate import FORWARD, REVERSE, Stated, certified
from redalg.gradients.choice import Weighed, left_out
from redalg.gradients.empty import vanishes
from redalg.gradients.invariance import detached, restored
from redalg.gradients.lost import Watched, any_nan, is_hidden, is_lost, is_rounded, watched
from redalg.gradients.readings import along, readings, under_own_names
from redalg.gradients.refusals import ASSUMPTIONS
from redalg.gradients.reverse import adjoints
from redalg.gradients.saved import Saved, Stages, reused
from redalg.gradients.steps import Steps, together
from redalg.gradients.sums import Adjoint, factored
from redalg.gradients.tangent import tangents
from redalg.graph import node as g
from redalg.graph.masked import masked_row
from redalg.graph.node import Decl, Node
from redalg.graph.nonzero import settled
from redalg.joint import Joint, derived, part_of
from redalg.language.spec import Spec, lengths_beside
from redalg.laws.laws import InternalError
from redalg.numeric.array_origin import origin_of, stand_in, to_jax
from redalg.numeric.binding import bind, by_output, with_readings
from redalg.numeric.windows import folded
from redalg.proofs.derivatives.document import Derivative
from redalg.run import OnHost
from redalg.streaming import repeats

DISCRETE = frozenset({"bool", "integer", "complex"})
Names = str | Iterable[str] | None
Unit = Spec | Joint | Steps


class _Derivative:
    """What both modes do to run the specs of a derivative."""

    @cached_property
    def _prepared(self) -> dict[tuple[Spec, str | None], Any]:
        """Compiled forms by spec and target: what a kind of call needs is prepared once."""
        return {}

    def _call(self, form: Form | Joint | Steps, target: str | None, arrays: Mapping[str, Any]) -> Any:
        key = form.spec, target
        if key not in self._prepared:
            self._prepared[key] = form.compile(target) if target else OnHost(form, None)
        return self._prepared[key](**arrays)


class _Forms(dict[Spec, Form]):
    def __missing__(self, spec: Spec) -> Form:
        self[spec] = derived(spec)
        return self[spec]


class Vjp(_Derivative):
    """The reverse-mode derivative of a spec: ``specs`` by tensor, ``forward`` with what they read saved.

    With cotangents ȳ of the outputs, the gradient of a tensor T is Σ ȳ·∂y/∂T over all outputs and their elements; it
    has the axes of T. `specs` are ordinary specs over the tensors of the original one, over the cotangents (tensors
    ``grad_<output>``) and over saved values; tensors whose gradients stream alike share one. An axis that a gradient
    does not vary along is not in its spec, and a gradient that is 0 has none; a call gives both in full.

    Conventions: an extremum passes its cotangent to the lowest position of its ties, `maximum` shares it among equal
    arguments, abs'(0) = relu'(0) = sign'(0) = 0, rounding to integers has slope 0, `where` differentiates what it
    selects, rows filled by ``empty=`` pass on 0. A stage value that a result provably does not depend on (a maximum
    that only shifts exponents, the mean in a variance) passes on nothing.

    ``given`` says what the forward pass saves: "all", names, or () for nothing, which computes stage values again.
    None leaves out what makes both passes move fewer bytes (`redalg.traffic` of the gradients, and what is written for
    them) for no more matrix products, axes being as long as ``sizes`` says, or else 4096: nothing but large values
    can be worth that, such as sums over a short axis.

    ``taken`` are names of other arrays beside these: nothing that is saved is called so. ``nothing`` are axes without
    an element: through a reduction over one nothing flows, whatever its value divides or is divided by.

    A call ``g(x=…, cotangents={"y": …}, target=None)`` runs `forward`, then every spec, on a target of
    `Form.compile` (arrays on a GPU: "cuda"), and gives {tensor: gradient}; outputs without a cotangent are left out.
    The gradient of a tensor of floats has its dtype, unless that is wider than everything it is computed from. Whole
    numbers and truth values are read as real numbers: cotangents of these are taken in float64, and gradients of
    tensors of them are floats (a tensor declared integer or bool has no gradient).

    Raises: RedalgError for what has no derivative, and what `ra.derive_incremental` raises when a call derives.

    >>> import numpy as np, redalg as ra
    >>> spec = ra.parse("m = max[j](x[j]); return lse = m + log(sum[j](exp(x[j] - m)))")
    >>> g = spec.vjp()
    >>> print(g.specs["x"])  # doctest: +NORMALIZE_WHITESPACE
    tensors x[j], grad_lse, sum1 nonnegative, max1;
    grad_x = grad_lse * exp(x[j] - max1) / sum1; dtype grad_x = x; return grad_x
    >>> g(x=np.array([0.0, 0.0]), cotangents={"lse": 1.0}, target="numpy")
    {'x': array([0.5, 0.5])}
    """

    def __init__(
        self,
        spec: Spec,
        wrt: Names = None,
        given: Names = None,
        assume: Iterable[str] = (),
        sizes: Mapping[str, int] | None = None,
        taken: Iterable[str] = (),
        nothing: Iterable[str] = (),
    ) -> None:
        self.where, self.spec = "spec.vjp", (spec := under_own_names(spec))
        self.assumed, self.nothing = assumed(assume, self.where), frozenset(nothing)
        self._stages, self._readings = Stages(spec, taken), readings(spec)
        self.wrt = _wanted(spec, wrt, self.where)
        outputs = [n for n, node in spec.outputs.items() if not _is_discrete(node)]
        self.cotangents = {n: self._stages.fresh(f"grad_{n}") for n in outputs}
        nodes = self._all_but(frozenset())
        kept = self._named(given)
        if kept is not None:
            nodes = self._gradients(kept.__contains__)
        elif given is None:
            nodes = self._of_least_traffic(nodes, Weighed(spec, sizes or {}, self.where))
        self._saved = self._read(nodes.values())
        self.forward = self._with_saved()
        self.specs: Mapping[str, Spec] = MappingProxyType(self._shared(nodes, self._saved))

    # --- specs ---

    def _all_but(self, names: Set[str]) -> dict[str, Node]:
        """Tensor -> its gradient, with every value saved but those named; outputs are read where that is lighter."""

        def saves(name: str) -> bool:
            return name not in names

        return self._lightest(self._gradients(saves), self._gradients(saves, reads_outputs=False))

    def _of_least_traffic(self, nodes: dict[str, Node], weighed: Weighed) -> dict[str, Node]:
        """Of the ways to leave out saved values that take about as much as tensors do, the one of least traffic. What
        spares less than a sixty-fourth is saved, which computes less; so is what takes a matrix product to compute.

        Without a value no tensor is read less often: where reading each once is no gain, nothing is derived.
        """
        saved = self._read(nodes.values())
        best, least, before = nodes, None, self._floor(nodes, weighed)
        for names in left_out([s for s in saved if weighed.bytes(s) * 64 > before]):
            other = self._all_but(names)
            light = 64 * self._floor(other, weighed) < 63 * before
            if not light or weighed.products(other) > weighed.products(nodes):
                continue
            least = self._traffic(nodes, weighed) if least is None else least
            own = self._traffic(other, weighed)
            if own is not None and (least is None or 64 * own < 63 * least):
                best, least = other, own
        return best

    def _floor(self, nodes: Mapping[str, Node], weighed: Weighed) -> int:
        groups = [[nodes[n] for n in names] for names in self._alike(nodes)]
        return weighed.least(groups, self._read(nodes.values()))

    def _traffic(self, nodes: Mapping[str, Node], weighed: Weighed) -> int | None:
        """Bytes that the gradients move, and what the forward pass writes for them; None where one does not derive."""
        saved = self._read(nodes.values())
        try:
            moved = sum(weighed.moved(s, self.forms[s]) for s in dict.fromkeys(self._shared(nodes, saved).values()))
        except InternalError:
            raise
        except RedalgError:
            return None
        return moved + sum(weighed.bytes(s) for s in saved if s.name not in self.spec.outputs)

    def _gradients(self, saves: Callable[[str], bool], reads_outputs: bool = True) -> dict[str, Node]:
        """Tensor -> its gradient; values are read where they are saved, outputs if at all."""
        spec, assume = self.spec, self.assumed
        with allowance(STAGES, "products of tangents"):
            written, held = detached(list(spec.outputs.values()), self.where, assume)
        saved = self._stages.outputs().items()
        outputs = {written[n]: s for n, s in saved if reads_outputs and saves(s.name)}

        def read(node: Node) -> Node:
            return outputs[node].leaf if node in outputs else node

        leaves = {Node("tensor", (), d): d for name in self.wrt for d in self._readings[self.wrt[name]]}
        with allowance(STAGES, "products of tangents"):
            given = self._pulled_back(written), list(leaves), read, self._stages.reduced, self.where, assume
            found = adjoints(*given, self.nothing)
        beside = {Node("tensor", (), d) for d in (s.leaf.attr for s in outputs.values())}
        beside |= {g.tensor(t, spec.output_axes[n]) for n, t in self.cotangents.items()}
        nodes = {}
        for name, own in self.wrt.items():
            parts = [along(found[leaf].node, d, own, spec) for leaf, d in leaves.items() if (d.array or d.name) == name]
            whole = reused(factored(g.add(*parts), beside), outputs)
            nodes[name] = self._reading(restored(whole, held), beside, saves)
        return nodes

    def _pulled_back(self, written: Mapping[Node, Node]) -> dict[Node, Adjoint]:
        """The adjoints of the outputs, as they are written: rows that are filled pass on nothing."""
        found: dict[Node, Adjoint] = {}
        for name, tensor in self.cotangents.items():
            node = self.spec.outputs[name]
            part = Adjoint.of(g.tensor(tensor, self.spec.output_axes[name]))
            if name in self.spec.empty:
                part = part.where(g.negate(masked_row(node)))
            found.setdefault(written[node], Adjoint()).add(part)
        return found

    def _reading(self, root: Node, beside: Set[Node], saves: Callable[[str], bool]) -> Node:
        """The node with saved stage values in the place of what they are; lengths of axes that no tensor has, too.

        What is to be differentiated once more reads nothing saved: the rest is written as it is evaluated.
        """
        read = self._with_stages(settled(root), beside, saves)
        saved = {s.leaf for s in self._stages.saved.values() if s.node.op != "size"}
        return self._with_stages(root, beside, saves) if saved.isdisjoint(g.leaves(read)) else read

    def _with_stages(self, root: Node, beside: Set[Node], saves: Callable[[str], bool]) -> Node:
        root = self._stages.averaged(root, beside)
        found = self._stages.within(root, beside)
        read = g.substitute(root, {n: s.leaf for n, s in found.items() if saves(s.name)})
        positions = {n.attr for n in g.walk(read) if n.op == "index"} - _axes(read)
        known = _axes(read).union(*(d.axes for d in _saying(self.spec, positions)))
        lengths = {n for n in g.walk(read) if n.op == "size" and n.attr not in known}
        return g.substitute(read, {n: self._stages.size(n.attr).leaf for n in lengths})

    def _lightest(self, nodes: Mapping[str, Node], alone: Mapping[str, Node]) -> dict[str, Node]:
        """Of gradients that stream alike, those that read less: with the outputs, or without them."""
        found = dict(nodes)
        for names in self._alike(nodes):
            if self._is_lighter([alone[n] for n in names], [nodes[n] for n in names]):
                found |= {n: alone[n] for n in names}
        return found

    def _is_lighter(self, alone: Sequence[Node], nodes: Sequence[Node]) -> bool:
        """Whether gradients without the outputs read an output less, for no more reductions and no tensor of its size.

        RMSNorm's read x in any case, softmax's either x or y, attention's would stream once more.
        """
        outputs = {s.leaf for s in self._stages.outputs().values()}
        read, own = ({leaf for n in roots for leaf in g.leaves(n)} for roots in (nodes, alone))
        spared, more = read & outputs, own - read
        if not spared or any(not leaf.axes < output.axes for leaf in more for output in spared):
            return False
        count, before = (sum(n.op == "reduce" for n in g.walk(*roots)) for roots in (alone, nodes))
        return count <= before

    def _alike(self, nodes: Mapping[str, Node]) -> list[list[str]]:
        """The tensors whose gradients stream over the same axes; of those whose gradient is 0, none."""
        groups: dict[Any, list[str]] = {}
        for name, node in nodes.items():
            if not g.is_const(node, 0):
                groups.setdefault(tuple(axes_of([node], _axes(node))), []).append(name)
        return list(groups.values())

    def _named(self, given: Names) -> Collection[str] | None:
        """The names of what is saved; None for everything, or for what a default finds."""
        if given is None or given == "all":
            return None
        names = given.replace(",", " ").split() if isinstance(given, str) else list(given)
        known = sorted({s.name for s in self._stages.saved.values()})
        for name in names:
            if name not in known:
                fix = 'given="all", given=(), or some of these; nothing for what moves least'
                raise RedalgError(f"given={name!r}", self.where, f"what can be saved is {', '.join(known)}", fix)
        return names

    def _read(self, nodes: Iterable[Node]) -> list[Saved]:
        leaves = {leaf for n in nodes for leaf in g.leaves(n)}
        return [s for s in self._stages.saved.values() if s.leaf in leaves]

    def _with_saved(self) -> Spec:
        spec = self.spec
        more = {s.name: s for s in self._saved if s.name not in spec.outputs}
        outputs = {**spec.outputs, **{name: s.node for name, s in more.items()}}
        order = {**spec.output_axes, **{name: s.leaf.attr.axes for name, s in more.items()}}
        # An error of a maximum or of a norm is an error of every gradient.
        dtypes = {**spec.dtypes, **dict.fromkeys(more, "float32")}
        return Spec.from_nodes(outputs, tensors=spec.tensors, order=order, empty=spec.empty, dtypes=dtypes)

    def _shared(self, nodes: Mapping[str, Node], saved: Sequence[Saved]) -> dict[str, Spec]:
        """Gradients that stream over the same axes in one spec."""
        found: dict[str, Spec] = {}
        for names in self._alike(nodes):
            group = {n: nodes[n] for n in names}
            order = {f"grad_{n}": [a for a in self.wrt[n].axes if a in node.axes] for n, node in group.items()}
            empty = {f"grad_{n}": Fraction(0) for n, node in group.items() if self._filled and vanishes(node)}
            outputs = {f"grad_{n}": node for n, node in group.items()}
            tensors = _in_order(self.spec, outputs.values())
            formats = {f"grad_{n}": self._format(n, node) for n, node in group.items()}
            wider = any(s.leaf.attr in tensors for s in saved if s.name not in self.spec.outputs)
            dtypes = {n: word for n, word in formats.items() if word and wider}
            made = Spec.from_nodes(outputs, tensors=tensors, order=order, empty=empty, dtypes=dtypes)
            found |= dict.fromkeys(group, made)
        return {name: found[name] for name in nodes if name in found}

    def _format(self, name: str, node: Node) -> str | None:
        """What has the format of a gradient, beside saved values that may be wider: its tensor, or else a cotangent.

        Values of the tensor flow into an output whose cotangent it reads, so that no digit is lost by that.
        """
        read = {leaf.attr.name for leaf in g.leaves(node)}
        if name in read:
            return name
        own = (t for n, t in self.cotangents.items() if t in read and n not in self.spec.dtypes)
        return next(own, None)

    @cached_property
    def certificate(self) -> Derivative:
        """That the specs are the gradients of the spec, rule by rule, as claims that are proved without the engine.

        >>> import redalg as ra
        >>> print(ra.catalog["softmax"].vjp().certificate.verify())
        2 proved
        """
        seeds = {n: g.tensor(t, self.spec.output_axes[n]) for n, t in self.cotangents.items()}
        axes, read = {n: self.wrt[n].axes for n in _met(self.spec, self.wrt)}, {s.leaf: s.unsigned for s in self._saved}
        stated = {n: own.outputs[f"grad_{n}"] for n, own in self.specs.items()}
        found = {n: g.substitute(stated[n], read) if n in stated else None for n in axes}
        filled = [n for n, own in self.specs.items() if f"grad_{n}" in own.empty]
        saved = [(s.unsigned, s.node) for s in self._saved]
        reduced = self._stages.reduced
        return certified(Stated(REVERSE, self.spec, reduced, seeds, axes, found, filled, saved, self.assumed))

    # --- calls ---

    @cached_property
    def forms(self) -> Mapping[Spec, Form]:
        """The forms of `forward` and of every spec, each derived when it is asked for."""
        return _Forms()

    def of(self, outputs: Iterable[str]) -> Vjp:
        """The gradients by the cotangents of some outputs, after the same forward pass: no others are read, which may
        hold infinities. All of them where these alone need what was not saved (the length of an axis)."""
        wanted = frozenset(outputs)
        if wanted.issuperset(self.cotangents):
            return self
        if wanted not in self._some:
            part, saved = copy.copy(self), {s.name for s in self._saved}
            part.__dict__ |= {"forms": self.forms, "_prepared": self._prepared, "_units": {}}
            for cached in ("certificate", "_watched", "_rounds", "_hides"):
                part.__dict__.pop(cached, None)
            part.cotangents = {n: t for n, t in self.cotangents.items() if n in wanted}
            nodes = part._gradients(saved.__contains__)
            part.specs = MappingProxyType(part._shared(nodes, self._saved))
            self._some[wanted] = part if saved.issuperset(s.name for s in self._read(nodes.values())) else self
        return self._some[wanted]

    @cached_property
    def _some(self) -> dict[frozenset[str], Vjp]:
        return {}

    @cached_property
    def _watched(self) -> tuple[Watched, ...]:
        roots = [node for spec in set(self.specs.values()) for node in spec.outputs.values()]
        return watched(roots, self._saved, self._stages.reduced, self._filled)

    @property
    def _filled(self) -> bool:
        """Whether every output fills its rows without an element."""
        return set(self.cotangents) <= set(self.spec.empty)

    @cached_property
    def _unsaved(self) -> Vjp:
        return Vjp(self.spec, list(self.wrt), (), self.assumed, taken=self._stages.tensors, nothing=self.nothing)

    def along(self, sizes: Mapping[str, int]) -> Vjp:
        """These gradients, or where an axis has no element those through which nothing flows along it: a quotient of
        sums of nothing is 0/0, and a gradient the sum of what its elements pass on, of which there are none."""
        reduced = (n for n in g.walk(*self.spec.outputs.values()) if n.op == "reduce")
        nothing = frozenset(a for n in reduced for a in n.attr.axes if not sizes.get(a, 1))
        if not nothing:
            return self
        if nothing not in self._along:
            given = self.spec, list(self.wrt), (), self.assumed
            self._along[nothing] = Vjp(*given, taken=self._stages.tensors, nothing=nothing)
        return self._along[nothing]

    @cached_property
    def _along(self) -> dict[frozenset[str], Vjp]:
        return {}

    def without(self, values: Mapping[str, Any]) -> Vjp:
        """These gradients, or those that read nothing saved where one of the values, on the host, is none that its
        dtype holds (a sum of squares beyond the largest float) and the others have a form."""
        return self._derived_unsaved() if is_lost(self._watched, values) else self

    def after(self, wider: Collection[bool], found: Iterable[Any]) -> Vjp:
        """These gradients; those that read nothing saved where what these `found` is not theirs: a call was repeated in
        wider floats (one True each time), in which exponents are others than those that saved values are of, or there
        is a NaN beside an output that hides a stage value."""
        again = wider and self._rounds or self._hides and any_nan(found)
        return self._derived_unsaved() if again else self

    @cached_property
    def _rounds(self) -> bool:
        return any(map(self.rounds, set(self.specs.values())))

    @cached_property
    def _hides(self) -> bool:
        return any(map(self.hides, set(self.specs.values())))

    def rounds(self, spec: Spec) -> bool:
        """Whether exponents of one of the specs take saved values away from what is rounded."""
        saved = {s.leaf for s in self._saved}
        return any(is_rounded(node, saved) for node in spec.outputs.values())

    def hides(self, spec: Spec) -> bool:
        """Whether one of the specs reads an output whose slope hides infinities, and not the stage values of it."""
        reduced = self._stages.reduced
        own = {s.leaf: s.node for s in self._saved if s.name in self.spec.outputs and s.leaf.axes.isdisjoint(reduced)}
        return any(is_hidden(node, own) for node in spec.outputs.values())

    def _derived_unsaved(self) -> Vjp:
        """The gradients that read nothing saved where they have a form, else these."""
        other = self.without_saved
        try:
            all(map(other.forms.__getitem__, set(other.specs.values())))
        except InternalError:
            raise
        except RedalgError:
            return self
        return other

    def instead(self, spec: Spec) -> tuple[list[Spec], tuple[Watched, ...]]:
        """Of one of the specs, or of some of its outputs: those that read nothing saved, and what tensors to watch."""
        seen = watched(spec.outputs.values(), self._saved, self._stages.reduced, self._filled)
        tensor = {name: leaf for leaf, name in self.saved_tensors.items()}
        names = [n.removeprefix("grad_") for n in spec.outputs] if seen else []
        specs = self.without_saved.only(names) if names else []
        return specs, tuple(w._replace(name=tensor[w.name]) for w in seen)

    @property
    def without_saved(self) -> Vjp:
        """The same gradients, which read nothing saved."""
        return self._unsaved.of(self.cotangents)

    def only(self, names: Iterable[str]) -> list[Spec]:
        """The specs of some gradients: those that share a spec with others are alone in theirs."""
        wanted, found = frozenset(names), []
        for spec in dict.fromkeys(self.specs[n] for n in self.wrt if n in wanted and n in self.specs):
            key = wanted, spec
            if key not in self._parts:
                self._parts[key] = part_of(spec, [n for n in spec.outputs if n.removeprefix("grad_") in wanted])
            found.append(self._parts[key])
        return found

    def together(self, names: Iterable[str]) -> list[Unit]:
        """The specs of some gradients, those that share readings as one (`redalg.joint`, `redalg.gradients.steps`)."""
        key = frozenset(names)
        if key not in self._units:
            self._units[key] = together(self.only(key))
        return self._units[key]

    @cached_property
    def _units(self) -> dict[frozenset[str], list[Unit]]:
        return {}

    @cached_property
    def _parts(self) -> dict[tuple[frozenset[str], Spec], Spec]:
        """Specs with some of their outputs."""
        return {}

    def __call__(self, /, *, cotangents: Mapping[str, Any], target: str | None = None, **arrays: Any) -> dict[str, Any]:
        for name in cotangents:
            if name not in self.cotangents:
                known = f"outputs with a derivative are {', '.join(self.cotangents)}"
                raise RedalgError(f"a cotangent of {name!r}", "g(…, cotangents=…)", known, "leave it out")
        sizes = bind(self.spec, _described(arrays), where="g(…)").sizes
        target = target or _target_of(arrays)
        shapes = {n: np.shape(arrays[n]) for n, d in self.wrt.items() if len(np.shape(arrays[n])) < len(d.axes)}
        if any(d.dimensions for d in self.spec.tensors):  # whose windows a gradient alone may not know the length of
            arrays |= with_readings(self.spec.tensors, arrays, where="g(…)")

        def run(form: Form | Joint | Steps, given: Mapping[str, Any]) -> Any:
            return self._call(form, target, given)

        read = _read_by(self.forward, arrays)
        values = by_output(self.forward.outputs, run(self.forms[self.forward], read))

        def pulled(own: Vjp) -> dict[str, Any]:
            known = values
            if not values.keys() >= set(own.saved_tensors.values()):  # lengths of axes
                more = run(own.forms[own.forward], _read_by(own.forward, arrays))
                known = values | by_output(own.forward.outputs, more)
            return own._pulled(arrays, known, cotangents, run, list(self.wrt), own.together(self.wrt))

        full = [n for n, value in cotangents.items() if prod(np.shape(value))]
        own = self.along(sizes).of(full).without(values)
        with repeats() as wider:
            found = pulled(own)
        if (other := own.after(wider, found.values())) is not own:
            found = pulled(other)
        return found | {n: folded(self.wrt[n], found[n], shape) for n, shape in shapes.items()}

    @property
    def saved_tensors(self) -> dict[str, str]:
        """Tensor of `specs` -> the output of `forward` that it is."""
        return {s.leaf.attr.name: s.name for s in self._saved}

    @property
    def lengths(self) -> dict[str, str]:
        """Tensor of `specs` -> the axis whose length it is: of gradients that no tensor with the axis is read by."""
        return {s.leaf.attr.name: s.node.attr for s in self._saved if s.node.op == "size"}

    def pulled(
        self,
        arrays: Mapping[str, Any],
        values: Mapping[str, Any],
        cotangents: Mapping[str, Any],
        run: Callable[[Form, Mapping[str, Any]], Any],
        wanted: Sequence[str] | None = None,
    ) -> dict[str, Any]:
        """The gradients (`wanted`: of which tensors), from the values of `forward`, which ran before; `run` runs a
        form."""
        names = list(self.wrt) if wanted is None else list(wanted)
        return self._pulled(arrays, values, cotangents, run, names, self.only(names))

    def _pulled(
        self,
        arrays: Mapping[str, Any],
        values: Mapping[str, Any],
        cotangents: Mapping[str, Any],
        run: Callable[[Any, Mapping[str, Any]], Any],
        names: Sequence[str],
        parts: Iterable[Unit],
    ) -> dict[str, Any]:
        held = {tensor: values[name] for tensor, name in self.saved_tensors.items()}
        held |= {t: _real(cotangents[n] if n in cotangents else _zeros(values[n])) for n, t in self.cotangents.items()}
        found: dict[str, Any] = {}
        for unit in parts:
            form, spec = (self.forms[unit], unit) if isinstance(unit, Spec) else (unit, unit.spec)
            found |= by_output(spec.outputs, run(form, _read_by(spec, {**arrays, **held})))
        zeros = {n: _real(_zeros(arrays[n])) for n in names if f"grad_{n}" not in found}
        own = {n: self.stretched(n, found[f"grad_{n}"], arrays[n]) for n in names if n not in zeros}
        return {n: zeros[n] if n in zeros else own[n] for n in names}

    def stretched(self, name: str, value: Any, like: Any) -> Any:
        """A gradient along every axis of its tensor, and in its format where that is one of floats."""
        axes = self.specs[name].output_axes[f"grad_{name}"]
        whole = _stretched(value, axes, dict(zip(self.wrt[name].axes, np.shape(like), strict=True)))
        return _rounded(whole, like)

    def __repr__(self) -> str:
        return f"<gradients of {', '.join(self.wrt)} for {', '.join(self.cotangents)}>"


class Jvp(_Derivative):
    """The forward-mode derivative of a spec: how its outputs change as tensors change along tangents.

    With tangents ẋ of the tensors, the tangent of an output y is Σ ∂y/∂x·ẋ over all tensors and their elements.
    ``specs`` has one spec, of all tangents, over the tensors and over ``tangent_<tensor>``. A call
    ``g(x=…, tangents={"x": …}, target=None)`` gives {output: tangent}; tensors without a tangent stay. Conventions
    and errors are those of `Vjp`: tangents are floats, those of whole numbers too.

    >>> import numpy as np, redalg as ra
    >>> g = ra.parse("return y = sum[j](x[j]**2)").jvp()
    >>> print(g.spec)
    tensors x[j], tangent_x[j]; sum1 = sum[j](tangent_x[j] * x[j]); tangent_y = 2 * sum1; return tangent_y
    >>> g(x=np.array([1.0, 2.0]), tangents={"x": np.array([1.0, 1.0])}, target="numpy")
    {'y': array(6.)}
    """

    def __init__(self, spec: Spec, wrt: Names = None, assume: Iterable[str] = ()) -> None:
        where, spec = "spec.jvp", under_own_names(spec)
        assume, stages, self.primal = assumed(assume, where), Stages(spec), spec
        self.assumed, self._reduced = assume, stages.reduced
        self.wrt = _wanted(spec, wrt, where)
        self.tangents = {name: stages.fresh(f"tangent_{name}") for name in self.wrt}
        seeds: dict[Node, Node] = {}
        for name, own in self.wrt.items():
            made = Decl(self.tangents[name], own.axes, dimensions=own.dimensions)
            seeds[Node("tensor", (), own)] = Node("tensor", (), made)
            for d in readings(spec)[own][1:]:
                other = Decl("_".join((made.name, *d.axes)), d.axes, frozenset(), made.name)
                seeds[Node("tensor", (), d)] = Node("tensor", (), other)
        outputs = {n: node for n, node in spec.outputs.items() if not _is_discrete(node)}
        written, held = detached(list(outputs.values()), where, assume)
        found = tangents(written.values(), seeds, where, assume)
        self.results = {n: f"tangent_{n}" for n in outputs}
        nodes = {n: _unless_empty(spec, n, restored(found[written[node]], held)) for n, node in outputs.items()}
        moved = {n: node for n, node in nodes.items() if not g.is_const(node, 0)}
        order = {self.results[n]: [a for a in spec.output_axes[n] if a in node.axes] for n, node in moved.items()}
        made_of = {self.results[n]: node for n, node in moved.items()}
        tensors = _in_order(spec, made_of.values())
        self.spec: Spec | None = Spec.from_nodes(made_of, tensors=tensors, order=order) if moved else None
        self.specs: Mapping[str, Spec] = MappingProxyType(dict.fromkeys(moved, self.spec) if self.spec else {})

    @cached_property
    def certificate(self) -> Derivative:
        """That the spec is the tangents of the outputs, rule by rule, as claims that are proved without the engine."""
        seeds = {n: g.tensor(self.tangents[n], self.wrt[n].axes) for n in _met(self.primal, self.wrt)}
        found = {
            n: self.spec.outputs[t] if self.spec and t in self.spec.outputs else None for n, t in self.results.items()
        }
        axes = {n: self.primal.output_axes[n] for n in self.results}
        return certified(Stated(FORWARD, self.primal, self._reduced, seeds, axes, found, (), (), self.assumed))

    @cached_property
    def form(self) -> Form | None:
        return None if self.spec is None else derived(self.spec)

    def __call__(self, /, *, tangents: Mapping[str, Any], target: str | None = None, **arrays: Any) -> dict[str, Any]:
        for name in tangents:
            if name not in self.tangents:
                known = f"tensors with a tangent are {', '.join(self.tangents)}"
                raise RedalgError(
                    f"a tangent of {name!r}", "g(…, tangents=…)", known, "leave it out, or add it to wrt="
                )
        sizes, target = bind(self.primal, _described(arrays), where="g(…)").sizes, target or _target_of(arrays)
        found: dict[str, Any] = {}
        if self.spec is not None and self.form is not None:
            held = {t: _real(tangents[n] if n in tangents else _zeros(arrays[n])) for n, t in self.tangents.items()}
            given = _read_by(self.spec, {**arrays, **held})
            found = by_output(self.spec.outputs, self._call(self.form, target, given))
        like = next(iter(arrays.values()), 0.0)
        return {n: self._full(n, found.get(result), sizes, like) for n, result in self.results.items()}

    def _full(self, name: str, value: Any, sizes: Mapping[str, int], like: Any) -> Any:
        """A tangent along every axis of its output."""
        lengths = {a: sizes[a] for a in self.primal.output_axes[name]}
        if value is None or self.spec is None:
            return _stretched(_real(_zero(like)), (), lengths)
        return _stretched(value, self.spec.output_axes[self.results[name]], lengths)

    def __repr__(self) -> str:
        return f"<tangents of {', '.join(self.results)} along {', '.join(self.tangents)}>"


# --- arguments -------------------------------------------------------------------------------------------------------


def assumed(assume: Iterable[str], where: str) -> frozenset[str]:
    """The names of what a derivative assumes. Raises: RedalgError for one that is not known."""
    found = frozenset({assume} if isinstance(assume, str) else assume)
    for name in sorted(found - set(ASSUMPTIONS)):
        known = f"known assumptions are {', '.join(ASSUMPTIONS)}"
        raise RedalgError(f"assumption {name!r}", where, known, "leave it out, or check the spelling")
    return found


def _wanted(spec: Spec, wrt: Names, where: str) -> dict[str, Decl]:
    """The tensors to differentiate by, in the spec's order: those named, or all that hold real numbers."""
    own = {d.name: d for d in spec.tensors if not d.array}
    smooth = [n for n, d in own.items() if not d.domain & DISCRETE]
    names = smooth if wrt is None else wrt.replace(",", " ").split() if isinstance(wrt, str) else list(wrt)
    for name in names:
        several = [d for d in spec.tensors if name in (d.name, d.array)]
        if len(several) > 1 and any(d.dimensions for d in several):
            why = f"it is read as {' and as '.join(map(str, several))}, and gradients of windows are added up for one"
            raise RedalgError(f"wrt={name!r}", where, why, "wrt= without it, or pass the same array under two names")
        if name not in own:
            known = f"the tensors are {', '.join(own)}"
            raise RedalgError(f"wrt={name!r}", where, known, "name a tensor of the spec")
        if name not in smooth:
            why = f"{name} is declared {', '.join(sorted(own[name].domain & DISCRETE))}"
            raise RedalgError(f"wrt={name!r}", where, why, "name tensors of real numbers")
    return {n: own[n] for n in own if n in names}


def _met(spec: Spec, names: Iterable[str]) -> list[str]:
    """The tensors that an output reads: of one that only says how long an axis is certificates say nothing."""
    read = {leaf.attr.array or leaf.attr.name for n in spec.outputs.values() for leaf in g.leaves(n)}
    return [n for n in names if n in read]


def _is_discrete(node: Node) -> bool:
    return node.is_boolean or node.op == "reduce" and node.attr.kind in g.POSITIONS


def _unless_empty(spec: Spec, name: str, tangent: Node) -> Node:
    if name not in spec.empty:
        return tangent
    return g.where(masked_row(spec.outputs[name]), g.ZERO, tangent)


def _in_order(spec: Spec, nodes: Iterable[Node]) -> list[Decl]:
    """The tensors that nodes read, and those that say how long an axis is whose positions they ask for: those of the
    spec in its order, then the others as they are met."""
    roots = list(nodes)
    read = list(dict.fromkeys(leaf.attr for n in roots for leaf in g.leaves(n)))
    read += _saying(spec, lengths_beside(roots, read))
    return [*(d for d in spec.tensors if d in read), *(d for d in read if d not in spec.tensors)]


def _saying(spec: Spec, axes: Iterable[str]) -> list[Decl]:
    """The tensors of a spec that say how long axes are, the first for each; windows, and other readings of
    an array, where nothing else does."""
    whole = sorted(spec.tensors, key=lambda d: (bool(d.array), bool(d.dimensions)))
    return list(
        dict.fromkeys(next(d for d in whole if a in d.axes) for a in sorted(axes) if any(a in d.axes for d in whole))
    )


def _axes(node: Node) -> set[str]:
    return {a for leaf in g.leaves(node) for a in leaf.attr.axes}


# --- arrays ----------------------------------------------------------------------------------------------------------


def _target_of(arrays: Mapping[str, Any]) -> str | None:
    """The target that reads arrays where they lie: `Form.compile`'s choice for those on the host."""
    origins = filter(None, map(origin_of, arrays.values()))
    return "cuda" if any(found.device.startswith("cuda") for found in origins) else None


def _described(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays, and of those on a device stand-ins of their shapes and dtypes: kernels read them, a call lengths."""
    places = {name: origin_of(x) for name, x in arrays.items()}
    return {n: x if (p := places[n]) is None or p.device == "cpu" else stand_in(x) for n, x in arrays.items()}


def _read_by(spec: Spec, arrays: Mapping[str, Any]) -> dict[str, Any]:
    names = {name for d in spec.tensors for name in ((d.name, d.array) if d.dimensions else (d.array or d.name,))}
    return {k: v for k, v in arrays.items() if k in names}


def _zeros(like: Any) -> Any:
    """Zeros of the same kind, place and shape."""
    if isinstance(like, (int, float)):
        return 0.0
    return _library(like).zeros_like(like)


def _real(value: Any) -> Any:
    """Whole numbers and truth values as floats: derivatives are real numbers, and products of narrow integers wrap."""
    if isinstance(value, (int, list, tuple)):
        value = np.asarray(value)
    dtype = getattr(value, "dtype", None)
    if dtype is None or getattr(dtype, "kind", "") not in "biu":
        return value
    if hasattr(dtype, "is_floating_point"):
        return value if dtype.is_floating_point or dtype.is_complex else value.double()
    if _library(value) is not np and hasattr(value, "devices"):  # JAX's arrays, of which it would make float32
        return to_jax(np.asarray(value, float))
    return value.astype(float) if hasattr(value, "astype") else value


def _zero(like: Any) -> Any:
    """One zero of the same kind and place."""
    return like.new_zeros(()) if hasattr(like, "new_zeros") else _library(like).zeros((), getattr(like, "dtype", float))


def _stretched(value: Any, axes: Sequence[str], lengths: Mapping[str, int]) -> Any:
    """The value repeated along axes that it lacks, in memory of its own."""
    if len(axes) == len(lengths):
        return value
    library = _library(value)
    shape = tuple(n if a in axes else 1 for a, n in lengths.items())
    repeated = library.broadcast_to(value.reshape(shape), tuple(lengths.values()))
    return repeated.clone() if hasattr(repeated, "clone") else library.array(repeated)


def _rounded(value: Any, like: Any) -> Any:
    """Rounded once to the format of a tensor of floats: what is saved of the forward pass, and others beside it, may be
    wider."""
    dtype = getattr(like, "dtype", None)
    if dtype is None or dtype == value.dtype or dtype.itemsize > value.dtype.itemsize:
        return value
    if getattr(dtype, "kind", "f") in "biu":
        return value
    if not hasattr(dtype, "is_floating_point"):
        return value.astype(dtype)
    return value.to(dtype) if dtype.is_floating_point else value


def _library(array: Any) -> Any:
    name = type(array).__module__.partition(".")[0]
    if name in ("jax", "jaxlib"):
        return sys.modules["jax"].numpy
    return sys.modules[name] if name in ("torch", "cupy") else np


__all__ = ["Jvp", "Vjp", "assumed"]
