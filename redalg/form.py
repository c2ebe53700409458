"""`Form`: the incremental form of a spec, with its algebra as SymPy expressions and its uses one call away."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import sympy

from redalg import _hooks
from redalg.algebra import state as symbolic
from redalg.algebra.polynomial import may_be_complex
from redalg.algebra.transport import combine_nodes, correction
from redalg.encoding import portable
from redalg.engine.lean import lean_plan
from redalg.errors import RedalgError
from redalg.explain import explanation
from redalg.graph.functions import EXACT
from redalg.graph.node import UNARY, Node, leaves, state, substitute, walk
from redalg.graph.operators import Custom, Position, Quantifier, TopK
from redalg.graph.plan import Obligation, PassPlan, Plan, Slot, nodes_of
from redalg.groups.grouped import Grouped
from redalg.language.settled import as_evaluated
from redalg.language.sympy_bridge import to_sympy
from redalg.laws.laws import obligations
from redalg.run import Run
from redalg.shown import Shown
from redalg.streaming import Accumulator
from redalg.streaming.run import Divided

if TYPE_CHECKING:
    from redalg.adapters.jax_op import JaxOp
    from redalg.adapters.ranks.collective import Collective
    from redalg.adapters.ranks.links import Links
    from redalg.adapters.torch_op import TorchOp
    from redalg.language.spec import Spec
    from redalg.proofs.certificate import Certificate

Expressions = Mapping[str, "sympy.Expr"]
TARGETS = ("numpy", "cpu", "cuda")
FRACTIONAL = UNARY - EXACT  # may leave the integers


class SlotInfo(NamedTuple):
    """One part of the state as `Form.slots` lists it. `anchor` is None, a name, or several names joined by ", "."""

    name: str
    monoid: str
    meaning: str
    anchor: str | None
    dtype: str


class Passes(NamedTuple):
    """Reads of the axis: for the state (`statistics`), and in all (`reads`, with outputs that keep the axis)."""

    statistics: int
    reads: int


@dataclass(frozen=True, repr=False)
class Form(Shown):
    """The incremental form of `spec` along `plan.axis`: identity, lift, combine and finalize over a bounded state.

    `lift`, `update`, `combine` and `finalize` map names to SymPy expressions that hold for non-empty states, exactly
    over the reals; emptiness is a flag of the runtime. In them a part of the state is the plain symbol `name`, in
    `combine` `name_a` (first in the stream) and `name_b`, and the functions are SymPy's own (Max, Piecewise, exp), so
    that they substitute, differentiate and `lambdify`. Top-k lists, which SymPy has no expression for, appear as
    functions: ``topk_single(x)`` is the list (x, identity, …) and ``topk_single_index()`` is (0, -1, …);
    ``topk_merge(a, b)`` is the first k of both lists in descending order, the lower position first among equals, and
    ``topk_merge_indices(a, i, b, j)`` the positions that belong to it.

    Frozen, picklable (as spec and plan) and safe to share between threads.

    >>> import redalg as ra
    >>> form = ra.derive_incremental(ra.parse("m = max[j](x[j]); return s = sum[j](exp(x[j] - m))"))
    >>> [slot.name for slot in form.slots]
    ['n', 'max_x', 'sum_exp']
    >>> form.lift["sum_exp"], form.update["max_x"], form.finalize["s"]
    (1, Max(max_x, x), sum_exp)
    >>> form.combine["sum_exp"]
    sum_exp_a*exp(max_x_a - Max(max_x_a, max_x_b)) + sum_exp_b*exp(max_x_b - Max(max_x_a, max_x_b))
    >>> form.corrections["sum_exp"], form.ranks["stage2"], form.passes.reads, dict(form.assumptions)
    (exp(-max_x + max_x_a), 1, 1, {})
    >>> print(form.explain().splitlines()[-1].strip())
    state: 24, whatever the length of j.
    """

    spec: Spec
    plan: Plan
    accuracy: str = ""  # of its kernels: what `compile` was told

    def __getstate__(self) -> dict[str, Any]:
        nodes = tuple(walk(*nodes_of(self.plan)))  # innermost first: no node is pickled inside of many others
        return {"nodes": nodes, "spec": self.spec, "plan": self.plan, "accuracy": self.accuracy}

    def __setstate__(self, fields: dict[str, Any]) -> None:
        self.__dict__.update({name: value for name, value in fields.items() if name != "nodes"})

    # --- the state ---

    @cached_property
    def slots(self) -> tuple[SlotInfo, ...]:
        """Every part of the state in order: the count, anchors and slots, over all passes."""
        infos = [_info(part, p, self.plan.axis) for p in self.plan.passes for part in symbolic.parts(p)]
        return tuple({info.name: info for info in infos}.values())

    @cached_property
    def lift(self) -> Expressions:
        """Part -> its value after one element, over the tensors at that element."""
        return self._stored(symbolic.lift)

    @cached_property
    def combine(self) -> Expressions:
        """Part -> its value after the stream of `name_a` followed by the stream of `name_b`."""
        return self._stored(combine_nodes)

    @cached_property
    def update(self) -> Expressions:
        """Part -> its value after one more element: combine(name, lift(element))."""
        return self._stored(symbolic.update)

    @cached_property
    def finalize(self) -> Expressions:
        """Output -> its value over the parts of the last pass and the parameters (and the axis' tensors, if kept)."""
        return _expressions(symbolic.outputs(self.plan))

    @cached_property
    def exports(self) -> Expressions:
        """Name -> value that a pass hands to later ones; empty for a single pass.

        >>> import redalg as ra
        >>> spec = ra.parse("u = mean[j](x[j]); return y = mean[j](abs(x[j] - u))")
        >>> dict(ra.derive_incremental(spec, max_passes=2).exports)
        {'known1': A_x + avg_x}
        """
        found: dict[str, Node] = {}
        for number in range(len(self.plan.passes)):
            found |= symbolic.exports(self.plan, number)
        return _expressions(found)

    def _stored(self, algebra: Any) -> Expressions:
        nodes: dict[str, Node] = {}
        for p in filter(symbolic.parts, self.plan.passes):
            values = algebra(p)
            nodes |= {part.name: values[part.name] for part in symbolic.parts(p)}
        return _expressions(nodes)

    # --- what was decided ---

    @cached_property
    def corrections(self) -> Expressions:
        """Slot -> how it moves from the anchors `A_a` to the anchors `A`.

        The factor, where a slot moves by itself (RedFuser's correction, the 1×1 transport; 1 where nothing moves it);
        else the moved slot, linear in the slots `name_a`.
        """
        return _expressions({s.name: correction(s, p) for p in self.plan.passes for s in p.slots if not s.vanishes})

    @property
    def ranks(self) -> Mapping[str, int | None]:
        """Stage -> separation rank of its body (None for stages that are not (sum, ×))."""
        return MappingProxyType({s.name: s.rank for s in self.plan.stages})

    @property
    def passes(self) -> Passes:
        """How often the axis is read: ``statistics`` for the state, ``reads`` in all."""
        statistics = sum(bool(p.order) for p in self.plan.passes)
        return Passes(statistics, max(1, statistics + any(out.keeps_axis for out in self.plan.outputs)))

    @property
    def assumptions(self) -> Mapping[str, str]:
        """Name -> what the form relies on beyond the declared domains."""
        return MappingProxyType(dict(self.plan.assumptions))

    @cached_property
    def obligations(self) -> tuple[Obligation, ...]:
        """The laws the form rests on, as unevaluated pairs of graph nodes (theory, section 6).

        >>> import redalg as ra
        >>> form = ra.derive_incremental(ra.catalog["logsumexp"])
        >>> sorted({law.name for law in form.obligations})
        ['O1', 'O2', 'O3', 'O4', 'O5', 'O6', 'O8']
        """
        return obligations(self.plan, as_evaluated(self.spec))

    @cached_property
    def certificate(self) -> Certificate:
        """What the form claims, as plain data with its own checker.

        Raises: RedalgError for a lean form, whose moves hold only where the slots it dropped vanish.

        >>> import redalg as ra
        >>> ra.derive_incremental(ra.catalog["logsumexp"]).certificate.verify()
        <Report: 15 proved>
        """
        gone = [s.name for p in self.plan.passes for s in p.slots if s.vanishes]
        if gone:
            why = f"its moves hold where {', '.join(gone)} vanish, which a certificate has no words for"
            fix = "take the certificate of the form this one is the lean form of"
            raise RedalgError("the certificate of a lean form", "form.certificate", why, fix)
        return _hooks.certificate(as_evaluated(self.spec), self.plan)

    @cached_property
    def lean(self) -> Form | None:
        """The form without the slots that vanish at their anchors (theory, section 3.2), or None if there are none.

        Equal over the reals and smaller; less accurate, because the anchor's own rounding error is no longer kept.

        >>> import redalg as ra
        >>> form = ra.derive_incremental(ra.catalog["variance"])
        >>> len(form.slots), len(form.lean.slots)
        (4, 3)
        """
        plan = lean_plan(self.plan)
        return None if plan is None else Form(self.spec, plan)

    # --- uses ---

    def accumulator(
        self,
        /,
        start: int | None = None,
        deterministic: bool = False,
        nulls: str = "propagate",
        id: str | int | None = None,
        **bound: Any,
    ) -> Accumulator:
        """An empty streaming state; tensors without the axis are bound here. `start` places it in the whole stream.

        `nulls` ("propagate", "skip", "error"): what becomes of missing elements; `id`: the name of a part that may come
        twice, which is refused then; see `redalg.streaming.Accumulator`.

        >>> import redalg as ra
        >>> scaled = ra.derive_incremental(ra.parse("return y = sum[j](w[i] * x[j])"))
        >>> acc = scaled.accumulator(w=[1.0, 10.0])
        >>> acc.update(x=[1.0, 2.0])
        >>> acc.result()
        array([ 3., 30.])
        """
        return Accumulator(self, bound, start=start, deterministic=deterministic, nulls=nulls, id=id)

    def _divided(self, arrays: Mapping[str, Any], divisions: Sequence[Sequence[int]]) -> Divided:
        """What accumulators make of one stream that is cut at these places, in one way after the other."""
        return Divided(self, arrays, divisions)

    def from_bytes(self, blob: bytes) -> Accumulator:
        """The accumulator that `Accumulator.to_bytes` saved, of this form.

        Raises: RedalgError for bytes that are no state or were changed, for a version that is too old or too new, and
        for the state of another spec or form.

        >>> import redalg as ra
        >>> form = ra.derive_incremental(ra.parse("return y = max[j](x[j])"))
        >>> acc = form.accumulator()
        >>> acc.update(x=[1.0, 7.0])
        >>> (form.from_bytes(acc.to_bytes()) + acc).count
        4
        """
        return portable.from_bytes(self, blob)

    def from_state_dict(self, state: Mapping[str, Any]) -> Accumulator:
        """The accumulator of a `Accumulator.state_dict`, or of what `np.load` or `torch.load` made of it.

        Raises: RedalgError as `from_bytes`.

        >>> import redalg as ra
        >>> form = ra.derive_incremental(ra.parse("return y = max[j](x[j])"))
        >>> acc = form.accumulator()
        >>> acc.update(x=[1.0, 7.0])
        >>> form.from_state_dict(acc.state_dict()).result()
        array(7.)
        """
        return portable.from_dict(self, state)

    def from_arrow(self, batch: Any) -> Accumulator:
        """The accumulator of a row that `Accumulator.to_arrow` made.

        Raises: RedalgError as `from_bytes`, and without pyarrow.

        >>> import redalg as ra
        >>> form = ra.derive_incremental(ra.parse("return y = max[j](x[j])"))
        >>> form.from_arrow(form.accumulator().to_arrow()).count                 # doctest: +SKIP
        0
        """
        return portable.from_arrow(self, batch)

    def grouped(self, /, nulls: str = "propagate", **bound: Any) -> Grouped:
        """An empty streaming state per key: ``update(by=keys, x=…)``, ``merge``, ``result()`` with an axis of groups.

        Tensors without the streamed axis are bound here, and shared by all groups. `nulls` as in `accumulator`.

        >>> import redalg as ra
        >>> groups = ra.derive_incremental(ra.parse("return y = max[j](x[j])")).grouped()
        >>> groups.update(by=[7, 3, 7], x=[1.0, 2.0, 4.0])
        >>> groups.result()
        (array([7, 3]), array([4., 2.]))
        """
        return Grouped(self, bound, nulls)

    def compile(
        self,
        target: str | None = None,
        schedule: Any = None,
        deterministic: bool = False,
        *,
        accuracy: str | None = None,
        dump_after: str | None = None,
    ) -> Any:
        """The form as one callable on whole arrays: ``run(x=…, out=None)``, with `run.target`, `.source`, `.explain()`.

        `target`: "numpy" (`redalg.run.Run`), "cpu" (generated Numba code, `redalg.kernels.cpu.run.CpuRun`) or
        "cuda" (a generated numba.cuda kernel, `redalg.kernels.cuda.run.CudaRun`); None takes the best that is there.
        `schedule` overrides the target's choice, `deterministic` fixes the order of every sum.

        ``accuracy="compensated"``: kernels hold every sum of inexact numbers as a pair (sums and differences by TwoSum,
        products by TwoProduct; `redalg.kernels.ir.compensated`), with |error| <= u·|S| + n²·u²·Σ|terms| of a sum S of n
        terms, u half a unit of the dtype that is computed in, where no anchor moves (its factors, and averages of
        tiles, round as they do without). Costs arithmetic and no memory; by rows alone, neither on tensor cores nor on
        NumPy.

        `dump_after`: the name of a pass of `redalg.kernels.pipeline` (on a CPU, of `redalg.kernels.cpu_programs`),
        after which each kind of call prints what there is of its kernel, once.

        Raises: RedalgError for an unknown target, accuracy or pass, for "cuda" without a usable GPU, for a schedule
        that the target lacks, and at the first call for sums that are arrays of a row's state with `accuracy`.

        >>> import redalg as ra
        >>> run = ra.derive_incremental(ra.catalog["softmax"]).compile("cpu")
        >>> run(x=[[1.0, 1.0], [0.0, 0.0]]).tolist()
        [[0.5, 0.5], [0.5, 0.5]]
        >>> exact = ra.derive_incremental(ra.parse("return y = sum[j](x[j])")).compile("cpu", accuracy="compensated")
        >>> float(exact(x=[1e16, 1.0, -1e16]))
        1.0
        >>> form = ra.derive_incremental(ra.parse("return y = sum[j](x[j])"))
        >>> form.compile("cpu", dump_after="schedule")(x=[1.0, 2.0]).tolist()  # doctest: +ELLIPSIS
        Layout(...)
        CpuSchedule(...)
        ...
        3.0
        """
        if target not in (None, *TARGETS):
            known = f"targets are {', '.join(TARGETS)}"
            raise RedalgError(f"unknown target {target!r}", "form.compile", known, 'target="numpy"')
        if accuracy not in (None, "compensated"):
            why = "sums of kernels are plain, or compensated"
            raise RedalgError(f"accuracy={accuracy!r}", "form.compile", why, 'accuracy="compensated", or leave it out')
        chosen = target or self._best_target()
        if accuracy and chosen == "numpy":
            what, why = f"accuracy={accuracy!r} on NumPy", "it adds the terms of a block pairwise"
            raise RedalgError(what, "form.compile", why, 'target="cpu"')
        run = {"cuda": _hooks.cuda_run, "cpu": _hooks.cpu_run, "numpy": Run}[chosen]
        form = self if accuracy is None else replace(self, accuracy=accuracy)
        return run(form, schedule, deterministic, dump_after)

    def torch_op(self, name: str, assume: Iterable[str] = ()) -> TorchOp:
        """The form as a PyTorch operator ``"namespace::name"``: ``op(Q, K, V)`` gives a tensor, or a tuple of them.

        With autograd of any order by `Spec.vjp`, shapes for `torch.compile(fullgraph=True)` and `torch.export`, vmap.
        Registering the same form once more under the same name gives the same operator. ``assume={"straight_through"}``
        differentiates what is rounded (`cast`) as if it were not: quantisation with straight-through gradients.

        Raises: RedalgError for a name of another kind or of another form, and without PyTorch.

        >>> import redalg as ra
        >>> op = ra.derive_incremental(ra.catalog["softmax"]).torch_op("mylib::softmax")        # doctest: +SKIP
        >>> op(torch.zeros(2, 3, requires_grad=True)).sum().backward()                          # doctest: +SKIP
        """
        return _hooks.torch_op(self, name, assume)

    def jax(self, assume: Iterable[str] = ()) -> JaxOp:
        """The form as a JAX function: ``op(Q, K, V)`` gives an array, or a tuple, under `jit`, `vmap`, `grad`, `jvp`.

        Reverse mode by `Spec.vjp`, forward mode by `Spec.jvp`, of any order; `assume` as in `torch_op`. The kernels run
        on the host, by `jax.pure_callback`.

        Raises: RedalgError without JAX.

        >>> import redalg as ra
        >>> op = ra.derive_incremental(ra.catalog["softmax"]).jax()                             # doctest: +SKIP
        >>> jax.grad(lambda x: op(x)[0, 0])(jnp.zeros((1, 2))).tolist()                         # doctest: +SKIP
        [[0.25, -0.25]]
        """
        return _hooks.jax_op(self, assume)

    def pandas(
        self, /, *given: Any, by: Any = None, nulls: str = "propagate", sort: bool = True, **columns: Any
    ) -> Any:
        """The form over columns of a pandas DataFrame: ``form.pandas(frame, x="price", by="shop")``.

        Without a frame, a function for `agg`, `apply` and `transform`. See `redalg.adapters.pandas`.

        >>> import redalg as ra
        >>> form = ra.derive_incremental(ra.parse("return v = sum[j](w[j]*x[j]) / sum[j](w[j])"))
        >>> form.pandas(frame, x="price", w="volume", by="shop")                                # doctest: +SKIP
        >>> frame.groupby("shop").apply(form.pandas(x="price", w="volume"))                     # doctest: +SKIP
        """
        return _hooks.pandas(self, given, by, nulls, sort, columns)

    def polars(
        self, /, *given: Any, by: Any = None, nulls: str = "propagate", sort: bool = False, **columns: Any
    ) -> Any:
        """The form over columns of a Polars frame, lazy or not: ``form.polars(frame, x="price", by="shop")``.

        Without a frame, an expression for `select`, `agg` and `over`. See `redalg.adapters.polars`.

        >>> import redalg as ra
        >>> form = ra.derive_incremental(ra.parse("return v = sum[j](w[j]*x[j]) / sum[j](w[j])"))
        >>> frame.group_by("shop").agg(form.polars(x="price", w="volume"))                      # doctest: +SKIP
        """
        return _hooks.polars(self, given, by, nulls, sort, columns)

    def arrow(
        self, /, source: Any, *, by: Any = None, nulls: str = "propagate", sort: bool = False, **columns: Any
    ) -> Any:
        """The form over columns of a PyArrow dataset, table, reader or batches, one batch after the other.

        See `redalg.adapters.arrow`.

        >>> import redalg as ra
        >>> form = ra.derive_incremental(ra.parse("return v = sum[j](w[j]*x[j]) / sum[j](w[j])"))
        >>> form.arrow(pyarrow.dataset.dataset("sales"), x="price", w="volume", by="shop")      # doctest: +SKIP
        """
        return _hooks.arrow(self, source, by, nulls, sort, columns)

    def duckdb(
        self, /, relation: Any, *, by: Any = None, nulls: str = "propagate", sort: bool = False, **columns: Any
    ) -> Any:
        """The form over columns of a DuckDB relation, read in Arrow batches. See `redalg.adapters.duckdb`.

        >>> import redalg as ra
        >>> form = ra.derive_incremental(ra.parse("return v = sum[j](w[j]*x[j]) / sum[j](w[j])"))
        >>> form.duckdb(duckdb.sql("FROM 'sales/*.parquet'"), x="price", w="volume")            # doctest: +SKIP
        """
        return _hooks.duckdb(self, relation, by, nulls, sort, columns)

    def estimator(self, /, **columns: Any) -> Any:
        """The form as a scikit-learn estimator with `fit`, `partial_fit` and, for outputs by sample, `transform`.

        See `redalg.adapters.sklearn`.

        >>> import redalg as ra
        >>> form = ra.derive_incremental(ra.parse("return v = mean[i](x[i,f]**2)"))
        >>> form.estimator().partial_fit(X).v_                                                  # doctest: +SKIP
        """
        return _hooks.estimator(self, columns)

    def collective(
        self,
        group: Any = None,
        *,
        way: str | None = None,
        deterministic: bool = False,
        links: Links | None = None,
    ) -> Collective:
        """The form over the ranks of a `torch.distributed` group: ``form.collective()(x=local_part)``.

        Parts may differ in length and be empty; they lie in the order of ranks, or at ``start=``. Every rank gets the
        outputs without the streamed axis for the whole, and those that keep it for its own part, in the dtypes of a
        run on the whole. States are merged by all-reduce (`way` "reduce") or by an all-gather merged in the order of
        positions ("gather"); `links`, a model of latency and bytes, chooses, and `.explain()` says which and why.
        ``deterministic=True`` gathers: the same parts give the same bits.

        Raises: RedalgError without PyTorch or a process group, and for a form without a streamed axis; a call raises
        it on every rank where calls differ or one of them is refused.

        >>> import redalg as ra
        >>> merge = ra.derive_incremental(ra.catalog["attention"]).collective()                 # doctest: +SKIP
        >>> merge(Q=queries, K=keys_of_this_rank, V=values_of_this_rank)                        # doctest: +SKIP
        """
        return _hooks.collective(self, group, {"way": way, "deterministic": deterministic, "links": links})

    def dask(
        self,
        /,
        *given: Any,
        deterministic: bool = False,
        nulls: str = "propagate",
        split_every: int = 8,
        reread: bool = False,
        by: Any = None,
        sort: bool = True,
        **named: Any,
    ) -> Any:
        """What a run gives, as lazy Dask arrays: ``form.dask(x=array)``, ``form.dask(frame, x="price", w="volume")``.

        Each block gives a state, and `split_every` neighbours are merged at a time; outputs that keep the axis, and
        further passes, read the blocks once more. With ``reread=True`` they are made anew for that, so that none waits
        in memory. Blocks along axes that nothing reduces are independent. Tensors without the axis may be NumPy's; one
        that is not named is the column of its own name, where a frame comes first.

        ``form.dask(frame, by="shop", x="price")``: by group, a lazy Series or frame on the index of groups (`sort`:
        sorted, else as they appear; rows with a null key left out). ``form.dask(x=array, by=keys)``: the keys and the
        results with a leading axis of groups, whose length is not known before they are computed.

        Raises: RedalgError without Dask, for arrays and blocks that do not fit, and for forms that read positions
        where the lengths of blocks are not known.

        >>> import redalg as ra
        >>> form = ra.derive_incremental(ra.parse("return y = mean[j](x[j])"))
        >>> form.dask(x=dask.array.arange(10, chunks=3)).compute()                              # doctest: +SKIP
        array(4.5)
        """
        options = {"deterministic": deterministic, "nulls": nulls, "split_every": split_every, "reread": reread}
        options |= {"by": by, "sort": sort}
        return _hooks.over_dask(self, given, options, named)

    def xarray(self, /, *given: Any, by: Any = None, axes: Mapping[str, str] | None = None, **named: Any) -> Any:
        """What a run gives, as a `DataArray` (a `Dataset` of several outputs) with the coordinates that still apply.

        Arrays, or variables of a dataset that comes first, are matched by the names of dimensions (`axes`: of an axis
        to a dimension); other dimensions are mapped over. Arrays in Dask's blocks give lazy results. `by`: labels along
        the streamed dimension, by which results get a first dimension of groups, sorted.

        Raises: RedalgError without xarray, for missing dimensions, and for coordinates that differ.

        >>> import redalg as ra
        >>> form = ra.derive_incremental(ra.parse("return v = var[time](x[time])"))
        >>> form.xarray(x=temperature, by=temperature.time.dt.month).dims                       # doctest: +SKIP
        ('month', 'lat', 'lon')
        """
        return _hooks.over_xarray(self, given, by, axes, named)

    def datafusion(
        self, /, name: str, nulls: str = "propagate", dtypes: Mapping[str, Any] | None = None, **bound: Any
    ) -> Any:
        """The form as a DataFusion aggregate (`udaf`) of one column for each tensor, in the spec's order.

        Columns are float64, or of `dtypes`. States are a binary column, `Accumulator.to_bytes`.

        Raises: RedalgError without DataFusion, for outputs that are no number, and for forms that need an order.

        >>> import redalg as ra
        >>> form = ra.derive_incremental(ra.parse("return c = cov[j](x[j], y[j])"))
        >>> context.register_udaf(form.datafusion("covariance"))                                # doctest: +SKIP
        """
        return _hooks.datafusion(self, name, nulls, dtypes or {}, bound)

    def beam(self, /, *, nulls: str = "propagate", placed: bool = False, named: bool = False, **bound: Any) -> Any:
        """The form as an Apache Beam `CombineFn`; an element is a block ``{"x": array, …}``, or one row.

        With `placed` a block says where it begins (``"start"``), with `named` what it is called (``"id"``): one that
        comes twice is refused then. States travel as `Accumulator.to_bytes`.

        Raises: RedalgError without Beam, for forms of several passes, and for those that need an order, unless placed.

        >>> import redalg as ra
        >>> form = ra.derive_incremental(ra.parse("return v = var[j](x[j])"))
        >>> blocks | beam.CombineGlobally(form.beam())                                          # doctest: +SKIP
        """
        return _hooks.beam(self, {"nulls": nulls, "placed": placed, "named": named}, bound)

    def ray(self, /, name: str | None = None, nulls: str = "propagate", **columns: Any) -> Any:
        """The form as an `AggregateFn` of Ray Data over columns: ``dataset.aggregate(form.ray(x="price"))``.

        Raises: RedalgError without Ray, for forms of several passes, and for those that need an order.

        >>> import redalg as ra
        >>> form = ra.derive_incremental(ra.parse("return v = var[j](x[j])"))
        >>> dataset.groupby("shop").aggregate(form.ray(x="price"))                              # doctest: +SKIP
        """
        return _hooks.ray(self, name, nulls, columns)

    def _best_target(self) -> str:
        """A GPU if one can be used, else generated code for the CPU; NumPy for complex numbers."""
        if any("complex" in t.domain for t in self.spec.tensors):
            return "numpy"
        return _hooks.best_target()

    # --- texts ---

    def explain(self) -> str:
        """What the form keeps, how it moves, what was anchored or deferred and why, passes and bytes."""
        return explanation.explain(self)

    def __str__(self) -> str:
        return explanation.summary(self)

    def _repr_latex_(self) -> str:
        return _hooks.latex(self)

    def __repr__(self) -> str:
        along = f" along {','.join(self.plan.axis)}" if self.plan.axis else ""
        reads = f"{self.passes.reads} read{'s' if self.passes.reads > 1 else ''}"
        return (
            f"<Form of {', '.join(self.spec.outputs)}{along}; state {', '.join(s.name for s in self.slots)}; {reads}>"
        )


# --- from nodes to what is shown -----------------------------------------------------------------------------------


def _info(part: symbolic.Part, p: PassPlan, axis: tuple[str, ...]) -> SlotInfo:
    if part.anchor is not None:
        return SlotInfo(part.name, "anchor", explanation.meaning(part, p, axis), None, "float")
    if part.slot is None:
        return SlotInfo(part.name, "sum", explanation.meaning(part, p, axis), None, "int64")
    slot = part.slot
    monoid = slot.op.monoid.name if isinstance(slot.op, Custom) else slot.kind
    names = {a.name: symbolic.alias(a, p) or a.name for a in p.anchors}
    anchors = ", ".join(names[a] for a in slot.anchors) or None
    return SlotInfo(part.name, monoid, explanation.meaning(part, p, axis), anchors, _dtype(slot, part))


def _dtype(slot: Slot, part: symbolic.Part) -> str:
    """The kind of number a part holds: positions and counts int64, any/all bool, else that of the tensors, summed."""
    if isinstance(slot.op, Position | TopK) and part.name == slot.parts[1]:
        return "int64"
    if isinstance(slot.op, Quantifier):
        return "bool"
    domains = [leaf.attr.domain for body in slot.lift for leaf in leaves(body)]
    if any(map(may_be_complex, slot.lift)):
        return "complex"
    ops = {n.op for body in slot.lift for n in walk(body)}
    whole = not slot.average and not ops & (FRACTIONAL | {"pow", "cast"})
    return "int64" if domains and whole and all({"integer", "bool"} & d for d in domains) else "float"


def _expressions(nodes: Mapping[str, Node]) -> Expressions:
    return MappingProxyType({name: expression(node) for name, node in nodes.items()})


def expression(node: Node) -> sympy.Expr:
    """A node in SymPy's own functions, to go on calculating with; operations on sorted lists become opaque ones."""
    calls = [n for n in walk(node) if n.op == "call"]
    stands = {n: state(f"call:{i}") for i, n in enumerate(calls)}
    shown: dict[Any, Any] = {}
    for n in calls:
        args = [to_sympy(substitute(a, stands), plain=True).xreplace(shown) for a in n.args]
        shown[to_sympy(stands[n])] = sympy.Function(n.attr)(*args)
    found = to_sympy(substitute(node, stands), plain=True)
    return found.xreplace(shown) if calls else found
