"""States along axes (inertia, covariance, Gram matrices, sums of groups): what is predicted, assembled and measured.

`python -m benchmarks.gpu.states [--only 'cov*'] [--device H200] [--assemble]` prints for every cell the predicted time
beside that of reading and writing once; with `--assemble` also registers and spills as ptxas reports them. No GPU is
needed. `--run --out FILE` times the cells as captured graphs beside torch (cold operands: sets in turn that exceed the
L2), after checking them against float64; it needs an NVIDIA GPU and PyTorch. `--dtype bfloat16`: of all tensors.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import warnings
from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path
from typing import Any

import redalg as ra
from benchmarks.harness.processes import stamp
from redalg.kernels.ir.layouts import View
from redalg.kernels.ir.program import STORAGE
from redalg.kernels.launch.planned import Planned
from redalg.kernels.launch.ptx import assemble
from redalg.kernels.pipeline import plan
from redalg.kernels.programs import usual_dtypes
from redalg.kernels.schedule.target import TABLE, Target

COVARIANCE = "u = mean[j](X[j,a]); v = mean[j](X[j,b]); return C = mean[j]((X[j,a] - u)*(X[j,b] - v))"
WEIGHTED = (
    "tensors X[j,a], w[j] positive; s = sum[j](w[j]); u = sum[j](w[j]*X[j,a])/s; v = sum[j](w[j]*X[j,b])/s; "
    "return C = sum[j](w[j]*(X[j,a] - u)*(X[j,b] - v))/s"
)
CROSS = "u = mean[j](X[j,a]); v = mean[j](Y[j,b]); return C = mean[j]((X[j,a] - u)*(Y[j,b] - v))"
BATCHES = "u = mean[j](X[i,j,a]); v = mean[j](X[i,j,b]); return C = mean[j]((X[i,j,a] - u)*(X[i,j,b] - v))"
GRAM = "return C = sum[j](X[j,a]*X[j,b])"
WEIGHTS = "return C = sum[j](X[j,a]*Y[j,b])"
GROUPS = "tensors X[j,d], g[j] integer, c[k,d]; return C = sum[j](where(eq(g[j], index[k]), X[j,d] - c[k,d], 0))"
INERTIA = str(ra.catalog["moment_of_inertia"])
COLD = 256 << 20  # bytes between two uses of an operand


def _cells() -> Iterator[tuple[str, str, dict[str, int]]]:
    for length in (1000, 1 << 20, (1 << 20) + 1, 1 << 24):
        yield "inertia", INERTIA, {"j": length, "d": 3}
    for length, width in (
        (1 << 24, 3),
        (10**7 + 1, 3),
        (1 << 22, 5),
        (1 << 22, 8),
        (1 << 20, 13),
        (1 << 20, 16),
        (1 << 20, 30),
        (1 << 18, 64),
        (1 << 17, 128),
        *((n, 64) for n in (64, 128, 500, 1000, 4096)),
    ):
        yield "covariance", COVARIANCE, {"j": length, "a": width, "b": width}
    yield "cross covariance", CROSS, {"j": 1 << 19, "a": 32, "b": 16}
    for length, width in ((1 << 24, 3), (1 << 20, 16)):
        yield "weighted covariance", WEIGHTED, {"j": length, "a": width, "b": width}
    for rows, length in ((4096, 1024), (333, 7777)):
        yield "covariance of rows", BATCHES, {"i": rows, "j": length, "a": 3, "b": 3}
    for length, width in ((1 << 24, 4), (1 << 22, 8), (1 << 18, 64), (1000, 64)):
        yield "gram", GRAM, {"j": length, "a": width, "b": width}
    for length, width in ((798191, 125), (14540, 108), (65536, 512), (20000, 1000)):
        yield "wide covariance", COVARIANCE, {"j": length, "a": width, "b": width}
    for length, width in ((1 << 20, 128), (65536, 512), (798191, 125), (40000, 1000)):
        yield "wide gram", GRAM, {"j": length, "a": width, "b": width}
    for length, rows, columns in ((65536, 1024, 1024), (8192, 4096, 4096), (50000, 256, 768), (100000, 16, 4096)):
        yield "weights", WEIGHTS, {"j": length, "a": rows, "b": columns}
    for groups, width in ((8, 3), (100, 16)):
        yield "sums of groups", GROUPS, {"j": 1 << 20, "k": groups, "d": width}


CELLS = {f"{name} {' '.join(f'{a}={n}' for a, n in sizes.items())}": (text, sizes) for name, text, sizes in _cells()}


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="*")
    parser.add_argument("--device", default="H200", choices=[t.name for t in TABLE])
    parser.add_argument("--assemble", action="store_true")
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16", "float16"))
    options = parser.parse_args(words)
    target = next(t for t in TABLE if t.name == options.device)
    for name, (text, sizes) in CELLS.items():
        if not fnmatch.fnmatch(name, options.only):
            continue
        form = ra.derive_incremental(ra.parse(text), axis="j")
        line = {"cell": name} | (
            _timed(form, sizes, options.dtype)
            if options.run
            else _predicted(form, sizes, target, options.dtype, options.assemble)
        )
        print(json.dumps(line), flush=True)
        if options.out:
            with options.out.open("a") as f:
                f.write(json.dumps(line | stamp()) + "\n")


def _moved(form: Any, sizes: dict[str, int], dtype: str) -> int:
    """Bytes of every array once, integers as int64."""
    own, each = [t for t in form.spec.tensors if not t.array], STORAGE[dtype]
    read = sum((8 if "integer" in t.domain else each) * prod(sizes[a] for a in t.axes) for t in own)
    return read + sum(each * prod(sizes[a] for a in axes) for axes in form.spec.output_axes.values())


def _predicted(form: Any, sizes: dict[str, int], target: Target, dtype: str, assembled: bool) -> dict[str, Any]:
    views = {t.name: View.contiguous(tuple(sizes[a] for a in t.axes)) for t in form.spec.tensors}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made: Planned = plan(form, usual_dtypes(form, dtype), views, target)
    limit = _moved(form, sizes, dtype) / target.reachable + target.launch
    found = {"us": made.choice.seconds * 1e6, "limit_us": limit * 1e6, "of_limit": limit / made.choice.seconds}
    line: dict[str, Any] = {k: round(v, 3) for k, v in found.items()} | {"schedule": repr(made.choice.schedule)}
    if assembled:
        a = assemble(made.module, target.cc, made.choice.registers)
        line |= {"registers": a.registers, "spills": a.spill_stores + a.spill_loads, "stack": a.stack}
    return line


def _timed(form: Any, sizes: dict[str, int], dtype: str) -> dict[str, Any]:
    """Microseconds on the GPU that is there, beside the same in torch."""
    from benchmarks.gpu.chains import _captured, _raced

    own = [t for t in form.spec.tensors if not t.array]
    moved = _moved(form, sizes, dtype)
    sets = [_drawn(own, sizes, dtype) for _ in range(max(2, 1 + COLD // moved))]
    run = form.compile("cuda")
    error, peer = _error(form, run(**sets[0]), sets[0]), _peer(form)
    calls: dict[str, Any] = {"us": _captured(lambda x: run(**x), sets)}
    calls |= {"torch_us": _captured(peer, sets)} if peer else {}
    copied = {"copy_us": _captured(lambda x: [t.clone() for t in x.values()], sets)}
    return _raced({**calls, **copied}, len(sets)) | {"bytes": moved, "error": error, "schedule": repr(run.schedule)}


def _error(form: Any, made: Any, given: dict[str, Any]) -> float:
    """The largest error, relative to the largest entry in float64."""
    wide = {n: x.double() if x.is_floating_point() else x for n, x in given.items()}
    found = made if isinstance(made, dict) else {next(iter(form.spec.outputs)): made}
    if (peer := _peer(form)) is not None:
        true = {n: peer(wide).cpu().numpy() for n in found}
    else:
        exact = ra.reference(form.spec, **{n: x.cpu().numpy() for n, x in wide.items()})
        true = exact if isinstance(exact, dict) else dict.fromkeys(found, exact)
    return max(float(abs(x.double().cpu().numpy() - true[n]).max() / abs(true[n]).max()) for n, x in found.items())


def _drawn(own: list[Any], sizes: dict[str, int], dtype: str) -> dict[str, Any]:
    import torch

    found = {}
    for t in own:
        shape = [sizes[a] for a in t.axes]
        whole = "integer" in t.domain
        made = torch.randint(0, sizes.get("k", 1), shape, device="cuda") if whole else torch.rand(shape, device="cuda")
        found[t.name] = made if whole else (made + 0.5).to(getattr(torch, dtype))
    return found


def _peer(form: Any) -> Callable[[dict[str, Any]], Any] | None:
    """The same by matrix products of torch, where it is one."""
    import torch

    names = {t.name for t in form.spec.tensors}
    if names & {"r", "w", "g"}:
        return None
    centred = "size" in str(form.spec)

    def call(x: dict[str, Any]) -> Any:
        right = "Y" if "Y" in x else "X"
        if not centred:
            return torch.matmul(x["X"].mT, x[right])
        apart = {n: x[n] - x[n].mean(-2, keepdim=True) for n in dict.fromkeys(("X", right))}
        return torch.matmul(apart["X"].mT, apart[right]) / x["X"].shape[-2]

    return call


if __name__ == "__main__":
    main()
