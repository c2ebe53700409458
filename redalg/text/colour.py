"""Colour in terminals: when it is wanted, and what is set apart by it."""

from __future__ import annotations

import os
import re
from typing import Any

BOLD, CORRECTION, RESET = "\x1b[1m", "\x1b[4;33m", "\x1b[0m"  # corrections are underlined too: colour is never all


def wanted(stream: Any) -> bool:
    """Whether the stream is a terminal that has colour and whose user has not declined it (https://no-color.org)."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):  # no stream at all, or one that is closed
        return False


def correction(text: str) -> str:
    return f"{CORRECTION}{text}{RESET}"


def titles(text: str) -> str:
    """Text in which every line that starts at the margin is bold: titles, where everything below them is indented."""
    return re.sub(r"^(?=\S)(.+)$", rf"{BOLD}\1{RESET}", text, flags=re.MULTILINE)


def labels(text: str) -> str:
    """Text in which the words before the first colon of a line are bold: ``reason: …``."""
    return re.sub(r"^([a-z ]+:)", rf"{BOLD}\1{RESET}", text, flags=re.MULTILINE)
