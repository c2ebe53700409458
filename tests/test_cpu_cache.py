"""Compiled CPU code on disk: a second process neither compiles nor imports Numba; what is not sound is made anew."""

from __future__ import annotations

import json
import os
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
from redalg.kernels import cpu_build
from redalg.kernels.ir import Param
from redalg.kernels.store import Disk, Once

CALL = """
import json, sys
import numpy as np, redalg as ra
x = np.arange(24, dtype=np.float32).reshape(4, 6) / 8
y = ra.derive_incremental(ra.catalog["softmax"]).compile("cpu")(x=x)
print(json.dumps({"numba": "numba" in sys.modules, "y": y.tobytes().hex()}))
"""


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
    assert first["numba"] and not second["numba"]
    assert first["y"] == second["y"]
    assert len(entries) == 1 and sorted(tmp_path.glob("*.entry")) == entries
    assert stat.S_IMODE(entries[0].stat().st_mode) == 0o600
    (third,) = processes(1, tmp_path, NUMBA_OPT="1")  # another compiler setting is another entry
    assert third["numba"] and len(list(tmp_path.glob("*.entry"))) == 2


def test_processes_at_once_leave_one_sound_entry(tmp_path: Path) -> None:
    found = processes(3, tmp_path)
    assert len({f["y"] for f in found}) == 1
    assert len(list(tmp_path.iterdir())) == 1
    assert not processes(1, tmp_path)[0]["numba"]


# --- within a process ------------------------------------------------------------------------------------------------


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    """Every compilation from here on, in an empty cache and with nothing remembered."""
    monkeypatch.setenv("REDALG_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(cpu_build, "_once", Once())
    made: list[str] = []
    inner = cpu_build._compiled

    def counting(source: str, names: Sequence[str], kinds: Sequence[str]) -> Any:
        made.append(source)
        return inner(source, names, kinds)

    monkeypatch.setattr(cpu_build, "_compiled", counting)
    yield made


def largest() -> Any:
    """A new run, which remembers nothing, and what it finds."""
    x = np.array([[1.0, 4.0, 2.0], [7.0, 0.0, 7.0]])
    return ra.derive_incremental(ra.Spec(m=ra.max(ra.tensors("x[i,j]"), "j"))).compile("cpu")(x=x).tolist()


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_build, "_once", Once())


def test_runs_of_equal_forms_share_their_code(compilations: list[str]) -> None:
    assert largest() == largest() == [4.0, 7.0]
    assert len(compilations) == 1


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "foreign", "unknown format"])
def test_what_is_damaged_or_foreign_is_made_anew(
    damage: str, compilations: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    largest()
    (entry,) = tmp_path.glob("*.entry")
    sound = entry.read_bytes()
    if damage == "foreign":  # a sound entry of another key
        Disk(tmp_path).write("other", cpu_build._packed({"m_rows": ("m_rows", b"\x7fELF")}))
        os.replace(tmp_path / "other.entry", entry)
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
    monkeypatch.setattr(cpu_build, "processor", lambda: ("x86_64-unknown-linux-gnu", "another", ""))
    largest()
    forget(monkeypatch)
    monkeypatch.setattr(cpu_build, "_version", lambda package: "0")
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
from redalg.kernels.cpu_memory import heap_float64, missing, free, pointer_float64, store_float64


@njit(nogil=True)
def f(y, n, low, high):
    y = pointer_float64(y)
    {room}
    for i in range(low, high):
        room[i] = i
    store_float64(y, 0, room[high - 1])
    {end}
"""
KINDS = ("int64",) * 4
HEAP = PRINTED.format(room="room = heap_float64(n)\n    if missing(room):\n        raise MemoryError", end="free(room)")


def test_code_that_calls_the_library_of_numba_is_not_kept(compilations: list[str], tmp_path: Path) -> None:
    params = [Param("result", "y", "float64"), Param("size", "n", "int64")]
    y = np.zeros(1)
    for text in (HEAP, PRINTED.format(room="room = np.empty(n)", end="")):
        cpu_build.functions(text, ["f"], params)["f"](y.ctypes.data, 8, 0, 8)
        assert y[0] == 7
        assert len(list(tmp_path.glob("*.entry"))) == 1
    managed = cpu_build._compiled(compilations[-1], ["f"], KINDS)["f"][1]
    assert any(name.startswith("NRT_") for name in cpu_build.undefined(managed) or ())
    assert cpu_build.undefined(b"MZ not ELF") is None


def test_no_memory_is_an_error_and_not_a_crash(compilations: list[str]) -> None:
    params = [Param("result", "y", "float64"), Param("size", "n", "int64")]
    y = np.zeros(1)
    with pytest.raises(MemoryError):
        cpu_build.functions(HEAP, ["f"], params)["f"](y.ctypes.data, 1 << 59, 0, 8)
