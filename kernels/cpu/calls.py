"""Calls of native code by a function of Python's own kind: arrays in, a number out.

A call by `ctypes` packs every argument again, and takes a microsecond, in which 64 Ki numbers are added up. Here the
table of arguments stays as it is from call to call; one function of native code puts the addresses of the arrays into
it, lets go of the interpreter's lock, and calls what computes.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from string import Template
from typing import Any

import numpy as np

from redalg.kernels.cpu.build import loaded_text

FASTCALL = 0x80  # METH_FASTCALL: arguments as an array of objects, and their number
NO_MEMORY, MARKED = 1, 2  # bits of what is given back
# Words of a call: functions that let go of the lock, take it again and make a number; the function, its table, how many
# of what it counts; where the mark lies that says that some row has one, or 0; a job, for functions that take one, or
# 0; pairs of a word of the table and the number of the array whose address goes there: how many, and where they begin.
HEAD = 9
TEXT = """
define ptr @redalg_called(ptr %self, ptr %arrays, i64 %given) {
entry:
  %words = getelementptr i8, ptr %self, i64 ${BYTES}
  %at4 = getelementptr i64, ptr %words, i64 4
  %table = load ptr, ptr %at4
  %at8 = getelementptr i64, ptr %words, i64 8
  %count = load i64, ptr %at8
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %each, label %ready
each:
  %n = phi i64 [ 0, %entry ], [ %n.next, %each ]
  %twice = shl i64 %n, 1
  %w.index = add i64 %twice, ${HEAD}
  %a.index = add i64 %w.index, 1
  %w.at = getelementptr i64, ptr %words, i64 %w.index
  %a.at = getelementptr i64, ptr %words, i64 %a.index
  %w = load i64, ptr %w.at
  %a = load i64, ptr %a.at
  %array.at = getelementptr ptr, ptr %arrays, i64 %a
  %array = load ptr, ptr %array.at
  %data.at = getelementptr i8, ptr %array, i64 ${DATA}
  %data = load i64, ptr %data.at
  %cell = getelementptr i64, ptr %table, i64 %w
  store i64 %data, ptr %cell
  %n.next = add i64 %n, 1
  %more = icmp slt i64 %n.next, %count
  br i1 %more, label %each, label %ready
ready:
  %at1 = getelementptr i64, ptr %words, i64 1
  %at2 = getelementptr i64, ptr %words, i64 2
  %at3 = getelementptr i64, ptr %words, i64 3
  %at5 = getelementptr i64, ptr %words, i64 5
  %at6 = getelementptr i64, ptr %words, i64 6
  %at7 = getelementptr i64, ptr %words, i64 7
  %save = load ptr, ptr %words
  %restore = load ptr, ptr %at1
  %number = load ptr, ptr %at2
  %f = load ptr, ptr %at3
  %total = load i64, ptr %at5
  %mark = load ptr, ptr %at6
  %job = load ptr, ptr %at7
  %thread = call ptr %save()
  %alone = icmp eq ptr %job, null
  br i1 %alone, label %one, label %several
one:
  %gave.one = call i32 %f(ptr %table, i64 0, i64 %total)
  br label %done
several:
  %gave.several = call i32 %f(ptr %job, ptr %table, i64 0, i64 %total)
  br label %done
done:
  %gave = phi i32 [ %gave.one, %one ], [ %gave.several, %several ]
  call void %restore(ptr %thread)
  %failed = icmp ne i32 %gave, 0
  %status = zext i1 %failed to i64
  %unwatched = icmp eq ptr %mark, null
  br i1 %unwatched, label %end, label %look
look:
  %word = load i64, ptr %mark
  %marked = icmp ne i64 %word, 0
  %two = select i1 %marked, i64 2, i64 0
  %both = or i64 %status, %two
  br label %end
end:
  %result = phi i64 [ %status, %done ], [ %both, %look ]
  %object = call ptr %number(i64 %result)
  ret ptr %object
}
"""


class _Method(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("text", ctypes.c_char_p),
    ]


def data_offset() -> int:
    """Where an array object holds the address of its data: right behind what every object begins with, in every
    version of NumPy's interface for C; 0 where that is not so."""
    offset, x = object.__basicsize__, np.empty(3)
    try:
        found = ctypes.c_void_p.from_address(id(x) + offset).value
    except (TypeError, ValueError):
        return 0
    return offset if sys.implementation.name == "cpython" and found == x.__array_interface__["data"][0] else 0


@lru_cache(maxsize=1)
def _python() -> tuple[Any, Any, list[int]] | None:
    """What makes functions, what describes them, and the addresses of what they call; None where Python has none."""
    if not data_offset() or struct.calcsize("P") != 8:
        return None
    names = "PyEval_SaveThread", "PyEval_RestoreThread", "PyLong_FromLongLong", "PyCFunction_NewEx"
    try:
        found = [getattr(ctypes.pythonapi, name) for name in names]
    except AttributeError:
        return None
    text = Template(TEXT).substitute(BYTES=bytes.__basicsize__ - 1, DATA=data_offset(), HEAD=HEAD)
    address = loaded_text(text, ["redalg_called"])["redalg_called"]
    method = _Method(b"called", address, FASTCALL, b"Run a kernel on arrays; its status.")
    # Functions borrow it for as long as they live, those of threads that come here at the same time as well, and of
    # modules that are taken down: it is never freed.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(method))
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
        ("PyCFunction_NewEx", ctypes.pythonapi)
    )
    return make, method, [ctypes.cast(f, ctypes.c_void_p).value or 0 for f in found[:3]]


def caller(
    function: int, table: int, total: int, mark: int, places: Sequence[tuple[int, int]], job: int = 0
) -> Callable[..., int] | None:
    """``called(*arrays)`` runs a function of native code with a table of arguments, once the addresses of the arrays
    are in it: 0, or the sum of `NO_MEMORY` and of `MARKED`, where the mark is set. Nothing is looked at: arrays are
    NumPy's, and as many as `places` (a word of the table, the number of an array) ask for. None where Python lacks
    such functions.
    """
    known = _python()
    if known is None:
        return None
    make, method, theirs = known
    words = [*theirs, function, table, total, mark, job, len(places), *(n for pair in places for n in pair)]
    made: Callable[..., int] = make(ctypes.addressof(method), struct.pack(f"{len(words)}q", *words), None)
    return made
