"""Run a piece of Python in a fresh process and read one JSON value from its last line."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def conditions() -> str:
    """Date, device and versions under which figures are taken."""
    device = f"{_processor()}, {os.cpu_count()} cores"
    known = versions("numpy", "sympy", "mpmath")
    return f"{datetime.date.today()}, {device}, Python {platform.python_version()}, {known}."


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
