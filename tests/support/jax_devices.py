"""Operators of JAX on arrays that are spread over several devices: ``python -m tests.support.jax_devices NAME…``.

The number of devices is settled when JAX starts, so this runs in a process of its own. Rows (axis i) are spread.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

DEVICES = 4
FLAGS = {
    "XLA_FLAGS": f"--xla_force_host_platform_device_count={DEVICES}",
    "JAX_PLATFORMS": "cpu",
    "JAX_ENABLE_X64": "1",
}


def on_devices(names: Sequence[str]) -> None:
    """The checks for these operators of the catalog, in a process that has the devices."""
    command = [sys.executable, "-m", "tests.support.jax_devices", *names]
    done = subprocess.run(command, env=os.environ | FLAGS, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def check(name: str) -> None:
    import jax

    from tests.support.jax_habits import case, close, parts

    found = case(name)
    mesh = jax.sharding.Mesh(np.array(jax.devices()), "n")

    def placed(axes: Sequence[str]) -> Any:
        return jax.sharding.PartitionSpec(*("n" if a == "i" else None for a in axes))

    def wide(a: Any, axes: Sequence[str]) -> Any:
        return np.concatenate([a * (1 + k / 8) if a.dtype == float else a for k in range(DEVICES)], axes.index("i"))

    axes = [d.axes for d in found.tensors]
    given = [jax.numpy.asarray(wide(a, x) if "i" in x else a) for a, x in zip(found.raw(), axes, strict=True)]
    at, specs = found.places, tuple(map(placed, axes))
    spread = [jax.device_put(a, jax.sharding.NamedSharding(mesh, s)) for a, s in zip(given, specs, strict=True)]
    rows = tuple(map(placed, found.spec.output_axes.values()))
    rows = rows[0] if len(rows) == 1 else rows

    def loss(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *a: sum((jax.numpy.tanh(p) ** 2).sum() for p in parts(function(*a)) if p.dtype == "float64")

    def inside(function: Callable[..., Any], out: Any, checked: bool = True) -> Callable[..., Any]:
        return jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=out, check_vma=checked)

    want, slopes = found.op(*given), jax.grad(loss(found.op), at)(*given)
    close(jax.tree.map(lambda a: a + 0, found.op(*spread)), want, 1e-12)
    close(jax.grad(loss(found.op), at)(*spread), slopes, 1e-12)
    close(jax.tree.map(lambda a: a + 0, jax.jit(found.op)(*spread)), want, 1e-12)
    close(jax.jit(inside(found.op, rows))(*spread), want, 1e-12)
    # what all devices share has the sum of their gradients
    close(jax.jit(inside(jax.grad(loss(found.op), at), tuple(specs[k] for k in at)))(*spread), slopes, 1e-12)
    for checked in (True, False):
        close(jax.jit(jax.grad(loss(inside(found.op, rows, checked)), at))(*spread), slopes, 1e-12)
    if len(at) == len(given):
        moved = jax.jit(inside(lambda *a: jax.jvp(found.op, a, a)[1], rows))(*spread)
        close(moved, jax.jvp(found.op, given, given)[1], 1e-12)
    for k in at:
        if "i" not in axes[k]:
            second = jax.jit(inside(jax.hessian(loss(found.op), k), placed(())))(*spread)
            close(second, jax.hessian(loss(found.op), k)(*given), 1e-11)
    explicit = jax.make_mesh((DEVICES,), ("n",), axis_types=(jax.sharding.AxisType.Explicit,))
    with jax.set_mesh(explicit):  # types say how arrays are spread: gradients are of the types of their arrays
        typed = [jax.device_put(a, jax.sharding.NamedSharding(explicit, s)) for a, s in zip(given, specs, strict=True)]
        for how in (lambda f: f, jax.jit):
            close(how(found.op)(*typed), want, 1e-12)
            graded = how(jax.grad(loss(found.op), at))(*typed)
            close(graded, slopes, 1e-12)
            assert [jax.typeof(g) for g in graded] == [jax.typeof(typed[k]) for k in at]
    try:
        jax.jit(inside(found.op, jax.tree.map(lambda _: placed(()), want)))(*spread)
    except ValueError as error:
        assert "require replication" in str(error)
    else:
        raise AssertionError("results that differ between devices were taken as one")


if __name__ == "__main__":
    for one in sys.argv[1:]:
        check(one)
