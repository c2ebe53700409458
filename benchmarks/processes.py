"""Run a piece of Python in a fresh process and read one JSON value from its last line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def fresh(code: str, *arguments: str, timeout: float = 120.0) -> Any:
    """What `code` printed last, as JSON. Raises with the process's error output if it failed."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=timeout
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])
