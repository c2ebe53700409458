"""``python -m redalg run``: arrays from a file through a form, compared with the definition."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from redalg.errors import RedalgError
from redalg.text.terminal import difference, progress, table

if TYPE_CHECKING:
    from redalg.form import Form
    from redalg.language.spec import Spec

TOLERANCE = {"e": 0.03, "f": 1e-3, "d": 1e-6, "F": 1e-3, "D": 1e-6}  # relative to the largest value, by dtype
SHOWN = 8


def run_on_file(form: Form, data: str, settings: Sequence[str], target: str | None, out: str | None) -> bool:
    """Print every output with its error against the definition, save them if asked; whether they agree."""
    import redalg as ra

    arguments = call_arguments(form.spec, read_arrays(data), settings, data)
    run = form.compile(target)
    with progress(f"running on {run.target}"):
        results = by_name(form.spec, run(**arguments))
    with progress("computing the definition"):
        expected = by_name(form.spec, ra.reference(form.spec, **arguments))
    rows, agree = [], True
    for name, value in results.items():
        absolute, relative = difference(value, expected[name])
        agree &= relative <= TOLERANCE.get(value.dtype.char, 0.0)
        rows.append([name, value.shape, value.dtype, f"{absolute:.2e}", f"{relative:.2e}", _shown(value)])
    print(f"target {run.target}; {form.passes.statistics} pass(es), {form.passes.reads} read(s)")
    print(table(rows, ["output", "shape", "dtype", "max error", "relative", "value"]))
    for name, meaning in form.assumptions.items():
        print(f"assumed: {name}: {meaning}")
    if out is not None:
        save(out, results)
    return agree


def read_arrays(path: str) -> dict[str, Any]:
    import numpy as np

    try:
        archive = np.load(path, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise ValueError("it holds a single array without a name")
        with archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise RedalgError(
            what=f"{path!r} cannot be read as named arrays",
            where="python -m redalg run",
            why=str(error) or type(error).__name__,
            fix="write it with numpy.savez(path, NAME=array, …), without objects",
        ) from None


def call_arguments(spec: Spec, arrays: Mapping[str, Any], settings: Sequence[str], path: str) -> dict[str, Any]:
    """The spec's tensors: settings first, then the file's arrays of the same names. The file may hold more."""
    given = dict(_setting(s, arrays) for s in settings)
    names = [decl.name for decl in spec.tensors]
    missing = [n for n in names if n not in given and n not in arrays]
    unknown = [n for n in given if n not in names]
    if missing or unknown:
        raise RedalgError(
            what=f"tensors {', '.join(missing)} are missing"
            if missing
            else f"no tensor is called {', '.join(unknown)}",
            where=f"python -m redalg run, {path}",
            why=f"the spec reads {', '.join(names)}; the file holds {', '.join(arrays)}",
            fix="give a number or another key of the file: --set NAME=0.125 or --set NAME=KEY",
        )
    return {n: given[n] if n in given else _scalar(arrays[n]) for n in names}


def _setting(text: str, arrays: Mapping[str, Any]) -> tuple[str, Any]:
    name, equals, value = (part.strip() for part in text.partition("="))
    if name and equals and value in arrays:
        return name, _scalar(arrays[value])
    for number in (int, float):  # in this order: a float has 53 bits
        try:
            return name, number(value)
        except ValueError:
            continue
    raise RedalgError(
        what=f"--set {text!r} is not understood",
        where="python -m redalg run",
        why=f"{value!r} is neither a number nor a key of the file ({', '.join(arrays)})",
        fix="write --set TENSOR=NUMBER or --set TENSOR=KEY",
    )


def _scalar(array: Any) -> Any:
    """A 0-d array of the file as the number it holds, so that it does not decide the dtype of the result."""
    return array.item() if array.ndim == 0 else array


def by_name(spec: Spec, result: Any) -> dict[str, Any]:
    """Results as a dict, also where there is one output and the call gives the bare array."""
    return dict(result) if isinstance(result, Mapping) else {next(iter(spec.outputs)): result}


def _shown(value: Any) -> str:
    return str(value.tolist()) if value.size <= SHOWN else ""


def save(path: str, results: Mapping[str, Any]) -> None:
    import numpy as np

    try:
        with zipfile.ZipFile(path, "w") as archive:  # numpy.savez cannot store an output that is called "file"
            for name, value in results.items():
                with archive.open(f"{name}.npy", "w") as file:
                    np.lib.format.write_array(file, value, allow_pickle=False)
    except OSError as error:
        raise RedalgError(
            what=f"the outputs cannot be saved to {path!r}",
            where="python -m redalg run --out",
            why=str(error),
            fix="name a file in a folder that exists and may be written",
        ) from None
    print(f"saved {', '.join(results)} to {path}")
