"""Compiled CPU code on disk: a second process does not compile, none imports Numba; what is not sound is made anew."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.kernels.code.optimise import object_code
from redalg.kernels.code.processor import processor
from redalg.kernels.cpu import build
from redalg.kernels.ir.program import Param
from redalg.kernels.launch.store import Disk, Once

CALL = """
import json, logging, sys
logging.basicConfig(level=logging.INFO, stream=sys.stderr)
told = []
logging.getLogger("redalg").addFilter(lambda record: told.append(record.getMessage()) or True)
import numpy as np, redalg as ra
x = np.arange(1024, dtype=np.float32).reshape(4, 256) / 8  # rows that are not turned
y = ra.derive_incremental(ra.catalog["softmax"]).compile("cpu")(x=x)
made = [text for text in told if ": compiled in " in text or ": read from disk in " in text]
print(json.dumps({"numba": "numba" in sys.modules, "compiled": ": compiled in" in made[0], "y": y.tobytes().hex()}))
"""


KEPT = 2  # a kernel, and the function that calls it


def processes(count: int, cache: Path, **settings: str) -> list[Mapping[str, Any]]:
    """What `CALL` says in as many processes that run at once."""
    env = {**os.environ, "REDALG_CACHE_DIR": str(cache), **settings}
    command = [sys.executable, "-c", CALL]
    running = [subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    texts = [p.communicate(timeout=100)[0] for p in running]
    assert all(p.returncode == 0 for p in running)
    return [json.loads(text) for text in texts]


def test_the_second_process_does_not_compile_and_finds_the_same_bits(tmp_path: Path) -> None:
    (first,) = processes(1, tmp_path)
    entries = sorted(tmp_path.glob("*.entry"))
    (second,) = processes(1, tmp_path)
    assert first["compiled"] and not second["compiled"]
    assert not first["numba"] and not second["numba"]
    assert first["y"] == second["y"]
    assert len(entries) == KEPT and sorted(tmp_path.glob("*.entry")) == entries
    assert stat.S_IMODE(entries[0].stat().st_mode) == 0o600
    (third,) = processes(1, tmp_path, NUMBA_CPU_FEATURES="")  # for another processor is another entry
    assert third["compiled"] and len(list(tmp_path.glob("*.entry"))) == 2 * KEPT


def test_processes_at_once_leave_sound_entries(tmp_path: Path) -> None:
    found = processes(3, tmp_path)
    assert len({f["y"] for f in found}) == 1
    assert len(list(tmp_path.iterdir())) == KEPT
    assert not processes(1, tmp_path)[0]["compiled"]


# --- within a process ------------------------------------------------------------------------------------------------


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    """Every compilation from here on, in an empty cache and with nothing remembered."""
    monkeypatch.setenv("REDALG_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(build, "_once", Once())
    made: list[str] = []
    inner = build._compiled

    def counting(source: str, names: Sequence[str], kinds: Sequence[str]) -> Any:
        made.append(source)
        return inner(source, names, kinds)

    monkeypatch.setattr(build, "_compiled", counting)
    yield made


def largest() -> Any:
    """A new run, which remembers nothing, and what it finds."""
    x = np.array([[1.0, 4.0, 2.0], [7.0, 0.0, 7.0]])
    return ra.derive_incremental(ra.Spec(m=ra.max(ra.tensors("x[i,j]"), "j"))).compile("cpu")(x=x).tolist()


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "_once", Once())


def test_runs_of_equal_forms_share_their_code(compilations: list[str]) -> None:
    assert largest() == largest() == [4.0, 7.0]
    assert len(compilations) == 1


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "foreign", "another function's", "unknown format"])
def test_what_is_damaged_or_foreign_is_made_anew(
    damage: str, compilations: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    largest()
    (entry,) = tmp_path.glob("*.entry")
    sound = entry.read_bytes()
    if damage == "foreign":  # a sound entry of another key
        Disk(tmp_path).write("other", sound)
        os.replace(tmp_path / "other.entry", entry)
    elif damage == "another function's":  # sound object code under the right key, of another name
        text = build.llvm_text("@njit\ndef n_rows(low, high):\n    pass\n", ["n_rows"], ["i64", "i64"])
        Disk(tmp_path).write(entry.stem, object_code(text))
    elif damage == "unknown format":  # the right key and digest around something else
        Disk(tmp_path).write(entry.stem, b"\x05\0\0\0\0\0\0\0hello\xff\0\0\0\0\0\0\0")
    else:
        middle = len(sound) // 2
        flipped = sound[:middle] + bytes([sound[middle] ^ 1]) + sound[middle + 1 :]
        entry.write_bytes({"flip": flipped, "cut": sound[:middle], "empty": b""}[damage])
    forget(monkeypatch)
    assert largest() == [4.0, 7.0]
    assert len(compilations) == 2
    forget(monkeypatch)
    largest()
    assert len(compilations) == 2


def test_a_directory_others_may_write_to_is_not_read(
    compilations: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    largest()
    tmp_path.chmod(0o777)
    forget(monkeypatch)
    assert largest() == [4.0, 7.0] and len(compilations) == 2


def test_another_processor_or_version_is_another_entry(
    compilations: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    largest()
    forget(monkeypatch)
    monkeypatch.setattr(build, "processor", lambda: processor()._replace(features=processor().features + ",+another"))
    largest()
    forget(monkeypatch)
    monkeypatch.setattr(build, "_compiler", lambda: ("0", (0, 0, 0), "0"))
    largest()
    assert len(compilations) == 3


def test_threads_that_ask_at_once_compile_once(compilations: list[str]) -> None:
    barrier, found = threading.Barrier(4), []

    def ask() -> None:
        barrier.wait()
        found.append(largest())

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == [[4.0, 7.0]] * 4 and len(compilations) == 1


# --- which code is kept ----------------------------------------------------------------------------------------------

PRINTED = """
import numpy as np
from numba import njit
from redalg.kernels.cpu.memory import heap_float64, missing, free, pointer_float64, store_float64


@njit(nogil=True)
def f(y, n, low, high):
    y = pointer_float64(y)
    {room}
    for i in range(low, high):
        room[i] = i
    store_float64(y, 0, room[high - 1])
    {end}
"""
HEAP = PRINTED.format(room="room = heap_float64(n)\n    if missing(room):\n        raise MemoryError", end="free(room)")
PARAMS = [Param("result", "y", "float64"), Param("size", "n", "int64")]


def test_what_is_not_generated_is_an_error(compilations: list[str], tmp_path: Path) -> None:
    y = np.zeros(1)
    build.functions(HEAP, ["f"], PARAMS)["f"](y.ctypes.data, 8, 0, 8)
    assert y[0] == 7 and len(list(tmp_path.glob("*.entry"))) == 1
    with pytest.raises(ra.RedalgError, match=r"np\.empty"):
        build.functions(PRINTED.format(room="room = np.empty(n)", end=""), ["f"], PARAMS)
    assert len(list(tmp_path.glob("*.entry"))) == 1


def test_code_that_calls_what_is_not_in_the_c_library_is_not_kept(
    compilations: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(build, "LIBRARY", build.LIBRARY - {"malloc"})
    y = np.zeros(1)
    build.functions(HEAP, ["f"], PARAMS)["f"](y.ctypes.data, 8, 0, 8)
    assert y[0] == 7 and not list(tmp_path.glob("*.entry"))
    found = build.symbols(build._compiled(HEAP, ["f"], build.kinds_of(PARAMS)))
    assert found is not None and "f" in found.defined and found.needed == {"malloc", "free"}
    assert build.symbols(b"MZ not ELF") is None and build.symbols(b"\x7fELF\x02\x01") is None


def test_a_disk_that_cannot_be_written_to_costs_a_compilation(
    compilations: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REDALG_CACHE_DIR", str(tmp_path / "file" / "below"))
    for turn in (1, 2):
        forget(monkeypatch)
        assert largest() == [4.0, 7.0] and len(compilations) == turn


def test_the_log_says_what_is_compiled_and_for_how_long(
    compilations: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="redalg")
    for word in ("compiled", "read from disk"):
        caplog.clear()
        forget(monkeypatch)
        largest()
        first, second = (m for record in caplog.records if "redalg_" not in (m := record.getMessage()))
        assert re.fullmatch(rf"m(_out)?_rows, \d+ lines: {word} in \d+\.\d{{3}} s", first)
        assert re.fullmatch(r"m on cpu for x float64: .*; ready in \d+\.\d{3} s", second)


def test_no_memory_is_an_error_and_not_a_crash(compilations: list[str]) -> None:
    y = np.zeros(1)
    with pytest.raises(MemoryError):
        build.functions(HEAP, ["f"], PARAMS)["f"](y.ctypes.data, 1 << 59, 0, 8)
