"""Modules of many lines are compiled without wider loops."""

from __future__ import annotations

import re

import pytest

from redalg.kernels.code import optimise

LOOP = """
define void @doubled(ptr noalias %x, ptr noalias %y, i64 %n) {
entry:
  br label %body
body:
  %k = phi i64 [0, %entry], [%next, %body]
  %from = getelementptr double, ptr %x, i64 %k
  %to = getelementptr double, ptr %y, i64 %k
  %v = load double, ptr %from
  %twice = fadd double %v, %v
  store double %twice, ptr %to
  %next = add i64 %k, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %body, label %end
end:
  ret void
}
"""


def test_loops_of_large_modules_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = str(optimise.optimised(LOOP))
    assert re.search(r"<\d+ x double>", wide)
    monkeypatch.setattr(optimise, "LARGE", LOOP.count("\n") - 1)
    plain = str(optimise.optimised(LOOP))
    assert not re.search(r"<\d+ x double>", plain) and plain.count("fadd double") == 1
