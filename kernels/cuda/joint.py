"""A call of several specs over the same tensors on a GPU: in one reading or in steps where that is faster, else one by
one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from redalg.errors import RedalgError
from redalg.kernels import joint as one_reading
from redalg.kernels import steps as in_steps
from redalg.kernels.cuda.run import CudaRun, Ready
from redalg.kernels.launch import driver
from redalg.kernels.launch.driver import NotLaunched
from redalg.kernels.launch.planned import Planned
from redalg.kernels.lower.draft import Call
from redalg.kernels.schedule.choose import Override
from redalg.kernels.tile.match import Outside

if TYPE_CHECKING:
    from redalg.gradients.steps import Steps
    from redalg.joint import Joint
    from redalg.language.spec import Spec


class JointRun(CudaRun):
    """`Joint.compile("cuda")`: results by name, as `CudaRun` gives them. `explain` says whether one reading, or steps,
    were taken, and why.

    Raises: RedalgError as `CudaRun` does.
    """

    alike = False

    def __init__(self, joint: Joint | Steps, schedule: Override = None) -> None:
        self.joint = joint
        super().__init__(joint.rows, schedule)
        self.why: dict[Any, str] = {}  # kind of call -> why specs run one after the other
        self._runs: list[CudaRun] | None = None
        self._told = ""

    def __reduce__(self) -> Any:
        return JointRun, (self.joint, self.requested)

    @property
    def _planning(self) -> Any:
        return one_reading if hasattr(self.joint, "elements") else in_steps

    @property
    def spec(self) -> Spec:
        return self.joint.spec

    def __call__(self, /, *unnamed: Any, out: Any = None, stream: Any = None, **arrays: Any) -> Any:
        try:
            found = super().__call__(*unnamed, out=out, stream=stream, **arrays)
        except _Apart as apart:
            self._told = apart.why
            return self._one_by_one(out, stream, arrays)
        self._told = ""
        return found

    def _plan_of(self, call: Call) -> Planned:
        try:
            return self._planning.planned(self.joint, call.dtypes, call.views, call.target, call.schedule)
        except Outside as why:
            raise _Apart(self.joint, str(why)) from why

    def _plan_after(self, number: int, call: Call) -> Planned | None:
        raise _Apart(self.joint, "the device refused to launch the one reading")

    def _with_next(self, ready: Ready, error: NotLaunched, out: Any, stream: Any, arrays: Mapping[str, Any]) -> Any:
        self._ready.pop(ready.key, None)
        self.why[tuple((n, *_kind(a)) for n, a in arrays.items())] = f"the device refused to launch: {error.why}"
        return self(out=out, stream=stream, **arrays)

    def _prepared(self, arrays: Mapping[str, Any], stream: Any, fresh: bool = True) -> Ready:
        known = tuple((n, *_kind(a)) for n, a in arrays.items())
        if known in self.why:
            raise _Apart(self.joint, self.why[known])
        try:
            return super()._prepared(arrays, stream, fresh)
        except _Apart as apart:
            self.why[known] = apart.why
            raise

    def _one_by_one(self, out: Any, stream: Any, arrays: Mapping[str, Any]) -> dict[str, Any]:
        if self._runs is None:
            self._runs = [CudaRun(form) for form in self.joint.forms]
            for run in self._runs:
                run.alike = False
        found: dict[str, Any] = {}
        for run in self._runs:
            outputs = run.form.spec.outputs
            own = None if out is None else {n: out[n] for n in outputs}
            own = next(iter(own.values())) if own is not None and len(own) == 1 else own
            names = {d.array or d.name for d in run.form.spec.tensors}
            made = run(out=own, stream=stream, **{n: a for n, a in arrays.items() if n in names})
            found |= made if isinstance(made, dict) else {next(iter(outputs)): made}
        return found

    @property
    def planned(self) -> Planned:
        return self._last.planned if self._last is not None else self._planning.typical(self.joint, driver.target_of(0))

    def explain(self) -> str:
        if not self._told:
            return super().explain()
        told = [run.explain() for run in self._runs or ()]
        return "\n".join([*told, f"  one after the other: {self._told}\n"])


class _Apart(RedalgError):
    """That specs run one after the other, as what leaves the general way of a call."""

    def __init__(self, joint: Joint | Steps, why: str) -> None:
        super().__init__(repr(joint), "form.compile", why, "one after the other")


def _kind(a: Any) -> tuple[Any, ...]:
    strides = a.stride() if callable(getattr(a, "stride", None)) else getattr(a, "strides", None)
    return a.__class__, tuple(getattr(a, "shape", ())), strides, str(getattr(a, "dtype", ""))


__all__ = ["JointRun"]
