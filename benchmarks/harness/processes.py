"""Run a piece of Python in a fresh process and read one JSON value from its last line."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RECORDS = ROOT / "benchmarks" / "records"  # measured data, and the tables that are made of it


def conditions() -> str:
    """Time, commit, device and versions under which figures are taken."""
    device = f"{_processor()}, {os.cpu_count()} cores"
    known = versions("numpy", "sympy", "mpmath")
    return f"{moment()}, {device}, Python {platform.python_version()}, {known}."


def moment() -> str:
    """When, and at which commit: 2026-01-02 03:04 UTC, commit 1a2b3c4d5e6f."""
    return f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC, commit {commit()}"


def stamp() -> dict[str, str]:
    """The commit that is measured and the time, for every line that is recorded.

    >>> sorted(stamp())
    ['commit', 'time']
    """
    now = datetime.datetime.now(datetime.UTC)
    return {"commit": commit(), "time": now.isoformat(timespec="seconds")}


@lru_cache(maxsize=1)
def commit() -> str:
    """The commit of this tree, with a plus where files were changed since; REDALG_COMMIT where there is no git."""
    given = os.environ.get("REDALG_COMMIT")
    if given:
        return given
    try:
        head = _git("rev-parse", "--short=12", "HEAD")
        return head + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def provenance(records: Iterable[Mapping[str, Any]]) -> str:
    """Which commits the lines of a report were measured at, and when; how many lines are older than such notes.

    >>> provenance([{"commit": "1a2b", "time": "2026-01-02T03:04:05+00:00"}, {}])
    'Measured at 1a2b (1 line, 2026-01-02); 1 line without commit and time, recorded before these were.'
    """
    groups: dict[str, list[str]] = {}
    old = 0
    for record in records:
        if "commit" in record and "time" in record:
            groups.setdefault(str(record["commit"]), []).append(str(record["time"])[:10])
        else:
            old += 1
    texts = [f"{name} ({_lines(len(days))}, {_span(days)})" for name, days in groups.items()]
    found = [f"Measured at {', '.join(texts)}"] if texts else []
    found += [f"{_lines(old)} without commit and time, recorded before these were"] if old else []
    return "; ".join(found) + "." if found else ""


def _lines(count: int) -> str:
    return f"{count} line{'s' if count != 1 else ''}"


def _span(days: Sequence[str]) -> str:
    return min(days) if min(days) == max(days) else f"{min(days)} to {max(days)}"


def versions(*packages: str) -> str:
    """Names and versions of installed packages."""
    from importlib.metadata import version

    return ", ".join(f"{name} {version(name)}" for name in packages)


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def fresh(code: str, *arguments: str, timeout: float = 120.0) -> Any:
    """What `code` printed last, as JSON. Raises with the process's error output if it failed."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=timeout
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


def timed_imports(clock: str) -> str:
    """The beginning of a piece of Python: `spent` is the time on `clock` that has gone into imports since `watch()`."""
    return IMPORTS.replace("CLOCK", clock)


IMPORTS = """
import builtins, sys, time

depth, spent, plain = 0, 0.0, builtins.__import__

def timed(*what, **options):
    global depth, spent
    begin, depth = CLOCK(), depth + 1
    try:
        return plain(*what, **options)
    finally:
        depth -= 1
        if not depth:
            spent += CLOCK() - begin

def watch():
    builtins.__import__ = timed
"""
