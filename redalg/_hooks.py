"""What lower folders need of higher ones, by name: with the facade, the only late imports of the project.

A call of a form loads kernels only when it is compiled for them, a display is made only where somebody looks, and
whoever runs a form below the facade (an ``empty=`` condition, the prologue of a matrix product) derives it through
here.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redalg.adapters.heads.batches import BatchedHead
    from redalg.adapters.heads.operator import TorchHead
    from redalg.adapters.jax_op import JaxOp
    from redalg.adapters.ranks.collective import Collective
    from redalg.adapters.torch_op import TorchOp
    from redalg.errors import NotDecomposable
    from redalg.form import Form
    from redalg.gradients.calls import Jvp, Vjp
    from redalg.graph.plan import Plan
    from redalg.kernels.cpu.grouped import GroupLift
    from redalg.language.spec import Spec
    from redalg.proofs.certificate import Certificate
    from redalg.proofs.refusals.document import Refusal
    from redalg.streaming.accumulator import Accumulator
    from redalg.streaming.program import Program


# --- displays --------------------------------------------------------------------------------------------------------


def bundle(thing: Any) -> dict[str, str]:
    """MIME type -> display."""
    from redalg import display

    return display.bundle(thing)


def html(thing: Any) -> str:
    from redalg import display

    return display.html(thing)


def plain(thing: Any) -> str:
    """The text for the terminal that is there, in colour where it has it."""
    from redalg import display
    from redalg.text.colour import wanted

    return display.plain(thing, wanted(sys.stdout))


def latex(form: Form) -> str:
    from redalg.display.forms import form_latex

    return form_latex(form)


def kernel(form: Form) -> tuple[Any, dict[str, int]]:
    """A kernel for a GPU, printed without one, and the typical lengths that it is for."""
    from redalg.explore import kernel
    from redalg.kernels.pipeline import typical_sizes

    sizes = typical_sizes(form)
    return kernel(form, sizes), sizes


# --- states as data --------------------------------------------------------------------------------------------------


def state_bytes(accumulator: Accumulator) -> bytes:
    from redalg.encoding.portable import to_bytes

    return to_bytes(accumulator)


def state_dict(accumulator: Accumulator) -> dict[str, Any]:
    from redalg.encoding.portable import to_dict

    return to_dict(accumulator)


def state_arrow(accumulator: Accumulator) -> Any:
    from redalg.encoding.portable import to_arrow

    return to_arrow(accumulator)


# --- expressions -----------------------------------------------------------------------------------------------------


def opaque(expr: Any) -> Any:
    """A large expression as one leaf to SymPy."""
    from redalg.language.sympy_bridge import Opaque, to_node

    return Opaque(to_node(expr, strict=False))


# --- forms and their certificates ------------------------------------------------------------------------------------


def derive(spec: Spec, *args: Any, **options: Any) -> Form:
    """`ra.derive_incremental`, for what lies below the facade."""
    from redalg.api import derive_incremental

    return derive_incremental(spec, *args, **options)


def vjp(spec: Spec, wrt: Any, given: Any, assume: Any, sizes: Any) -> Vjp:
    from redalg.gradients.calls import Vjp

    return Vjp(spec, wrt, given, assume, sizes)


def jvp(spec: Spec, wrt: Any, assume: Any) -> Jvp:
    from redalg.gradients.calls import Jvp

    return Jvp(spec, wrt, assume)


def certificate(spec: Spec, plan: Plan) -> Certificate:
    from redalg.certify.export import document
    from redalg.proofs.certificate import Certificate

    return Certificate(document(spec, plan))


def refusal(verdict: NotDecomposable) -> Refusal:
    from redalg.certify.refusal import certificate

    return certificate(verdict)


# --- groups ----------------------------------------------------------------------------------------------------------


def group_lift(program: Program, tensors: tuple[tuple[str, str], ...]) -> GroupLift | None:
    """The lift of a program as compiled loops over rows and groups; None where it has none."""
    try:
        from redalg.kernels.cpu.grouped import group_lift
    except ImportError:  # llvmlite is missing or broken
        return None
    return group_lift(program, tensors)


# --- targets ---------------------------------------------------------------------------------------------------------


def cuda_run(form: Form, schedule: Any, deterministic: bool, dump_after: str | None) -> Any:
    from redalg.kernels.cuda.run import CudaRun

    return CudaRun(form, schedule, deterministic, dump_after)


def cuda_joint(joint: Any, schedule: Any = None) -> Any:
    from redalg.kernels.cuda.joint import JointRun

    return JointRun(joint, schedule)


def torch_op(form: Form, name: str, assume: Any) -> TorchOp:
    from redalg.adapters.torch_modes import untraced
    from redalg.adapters.torch_op import torch_op

    return untraced(torch_op)(form, name, assume)


def jax_op(form: Form, assume: Any) -> JaxOp:
    from redalg.adapters.jax_op import jax_op

    return jax_op(form, assume)


def collective(form: Form, group: Any, options: dict[str, Any]) -> Collective:
    from redalg.adapters.ranks.collective import collective

    return collective(form, group, **options)


def torch_head(
    spec: Spec, name: str | None, gradients: str, logits: str | None, workspace: int | None
) -> TorchHead | BatchedHead:
    from redalg.adapters.heads.make import torch_head
    from redalg.adapters.torch_modes import untraced

    return untraced(torch_head)(spec, name, gradients, logits, workspace)


def pandas(form: Form, given: Any, by: Any, nulls: str, sort: bool, columns: dict[str, Any]) -> Any:
    from redalg.adapters.pandas import pandas

    return pandas(form, *given, by=by, nulls=nulls, sort=sort, **columns)


def polars(form: Form, given: Any, by: Any, nulls: str, sort: bool, columns: dict[str, Any]) -> Any:
    from redalg.adapters.polars import polars

    return polars(form, *given, by=by, nulls=nulls, sort=sort, **columns)


def arrow(form: Form, source: Any, by: Any, nulls: str, sort: bool, columns: dict[str, Any]) -> Any:
    from redalg.adapters.arrow import arrow

    return arrow(form, source, by=by, nulls=nulls, sort=sort, **columns)


def duckdb(form: Form, relation: Any, by: Any, nulls: str, sort: bool, columns: dict[str, Any]) -> Any:
    from redalg.adapters.duckdb import duckdb

    return duckdb(form, relation, by=by, nulls=nulls, sort=sort, **columns)


def estimator(form: Form, columns: dict[str, Any]) -> Any:
    from redalg.adapters.sklearn import estimator

    return estimator(form, columns)


def over_dask(form: Form, given: tuple[Any, ...], options: dict[str, Any], named: dict[str, Any]) -> Any:
    from redalg.adapters.dask import over_dask

    return over_dask(form, given, options, named)


def over_xarray(form: Form, given: tuple[Any, ...], by: Any, axes: Any, named: dict[str, Any]) -> Any:
    from redalg.adapters.xarray import over_xarray

    return over_xarray(form, given, by, axes, named)


def datafusion(form: Form, name: str, nulls: str, dtypes: Any, bound: dict[str, Any]) -> Any:
    from redalg.adapters.datafusion import datafusion

    return datafusion(form, name, nulls, dtypes, bound)


def beam(form: Form, options: dict[str, Any], bound: dict[str, Any]) -> Any:
    from redalg.adapters.beam import combine_fn

    return combine_fn(form, options, bound)


def ray(form: Form, name: str | None, nulls: str, columns: dict[str, Any]) -> Any:
    from redalg.adapters.ray import aggregate

    return aggregate(form, name, nulls, columns)


def torch_spec(spec: Spec, axis: Any, max_passes: int, assume: Any) -> TorchOp:
    from redalg.adapters.operands import assumptions
    from redalg.adapters.torch_modes import untraced
    from redalg.adapters.torch_op import nameless, torch_op

    def made() -> TorchOp:
        of_form, of_derivative = assumptions(assume)
        form = derive(spec, axis, max_passes, of_form)
        return torch_op(form, nameless(form, of_derivative), of_derivative)

    return untraced(made)()


def cpu_run(form: Form, schedule: Any, deterministic: bool, dump_after: str | None) -> Any:
    from redalg.kernels.cpu.run import CpuRun

    return CpuRun(form, schedule, deterministic, dump_after)


def best_target() -> str:
    """A GPU if one can be used, else generated code for the CPU, else NumPy."""
    from redalg.kernels.launch.driver import available

    return "cuda" if available() else "cpu" if find_spec("llvmlite") else "numpy"
