"""Executes the notebooks of this folder, each in a clean kernel, and writes the executed copies into `executed/`.

``python notebooks/execute.py [--check] [NAME …]``: all of them, or those whose names begin so; with ``--check`` nothing
is written. Two run at a time. Exit status 1 if a cell fails; the cell and its error are printed.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LONGEST = 180  # seconds for one cell
AT_ONCE = 2
STARTS = 3  # of a kernel
NEEDS = {"8_training": "torch"}  # what no extra installs: without it the notebook is skipped, and its copy stays


def read(path: Path) -> Any:
    """The notebook of a text, with cell ids that depend on nothing but the place."""
    import jupytext

    notebook = jupytext.read(path)
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return notebook


def execute(path: Path, keep: bool = True) -> tuple[str, float, str]:
    """(name, seconds, error): runs one notebook from a clean kernel; the error is empty if every cell ran."""
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, DeadKernelError

    notebook, started = read(path), time.monotonic()
    options: dict[str, Any] = {"record_timing": False, "store_widget_state": False, "timeout": LONGEST}
    for trial in range(STARTS):
        client = NotebookClient(notebook, kernel_name="python3", resources={"metadata": {"path": str(HERE)}}, **options)
        try:
            client.execute()
            break
        except CellExecutionError as error:
            return path.stem, time.monotonic() - started, str(error)
        except DeadKernelError:
            raise
        except RuntimeError:  # no answer: a port that was free when it was chosen had been taken by another kernel
            if trial == STARTS - 1:
                raise
    if keep:
        write(notebook, HERE / "executed" / f"{path.stem}.ipynb")
    return path.stem, time.monotonic() - started, ""


def write(notebook: Any, path: Path) -> None:
    """As JSON with sorted keys; without what names this machine or a widget that is no longer there."""
    import nbformat

    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            output.get("data", {}).pop("application/vnd.jupyter.widget-view+json", None)
    notebook.metadata.pop("widgets", None)
    notebook.metadata["language_info"] = {"name": "python"}
    path.parent.mkdir(exist_ok=True)
    nbformat.write(notebook, path)


def installed(name: str) -> bool:
    """Whether what a notebook needs is there; says so if it is not."""
    needed = NEEDS.get(name)
    found = needed is None or importlib.util.find_spec(needed) is not None
    if not found:
        print(f"{name}: skipped, {needed} is not installed (pip install {needed})", flush=True)
    return found


def main(arguments: list[str]) -> int:
    names = [a for a in arguments if not a.startswith("-")]
    paths = [p for p in sorted(HERE.glob("*.md")) if not names or p.stem.startswith(tuple(names))]
    paths = [p for p in paths if p.stem[:1].isdigit() and installed(p.stem)]
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    failed, started = 0, time.monotonic()
    with ProcessPoolExecutor(AT_ONCE) as pool:
        for name, seconds, error in pool.map(execute, paths, ["--check" not in arguments] * len(paths)):
            print(f"{name}: {seconds:.0f} s{' FAILED' if error else ''}", flush=True)
            failed += bool(error)
            print(error, file=sys.stderr) if error else None
    print(f"{len(paths)} notebooks, {failed} failed, {time.monotonic() - started:.0f} s in all")
    return int(failed > 0 or not paths)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
