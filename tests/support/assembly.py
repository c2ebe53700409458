"""Reading machine code: is a loop done with vector instructions?"""

from __future__ import annotations

import platform
import re
from typing import Any

import pytest

# Packed arithmetic; moves, logic and blends also occur in scalar code.
PACKED = {
    "x86_64": r"\bv?(?:fn?m(?:add|sub)\d+p[sd]|(?:mul|add|sub|max|min|div|sqrt|round)p[sd]"
    r"|p(?:add|sub|sll|sra|srl)[wdq]|rndscalep[sd]|cvtp[sh]2p[sh]x?)\b.*%[xyz]mm",
    "aarch64": r"\b(?:fml[as]|fmul|fadd|fsub|fmaxn?m?|fminn?m?|fdiv|fsqrt|frint\w"
    r"|fcvtn|fcvtl|add|sub|shl|[su]shr)\b.*\.[248][sdh]",
}
PACKED |= {"AMD64": PACKED["x86_64"], "arm64": PACKED["aarch64"]}


def vectorised(dispatcher: Any, signature: Any, pattern: str | None = None) -> None:
    """Assert that compiling for the signature gives packed instructions (or a line that has `pattern`).

    Skips where neither a pattern is given nor the architecture's instructions are known here.
    """
    dispatcher.compile(signature)
    packed(dispatcher.inspect_asm(dispatcher.signatures[-1]), f"{dispatcher.__name__} for {signature}", pattern)


def packed(code: str, what: str, pattern: str | None = None) -> None:
    """The same of assembly."""
    pattern = pattern or PACKED.get(platform.machine())
    if pattern is None:
        pytest.skip(f"the vector instructions of {platform.machine()} are not known to this test")
    assert re.search(pattern, code), f"no vector instruction in the code of {what}"
