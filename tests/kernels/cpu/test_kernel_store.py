"""Entries on disk: whole or absent, private, shared by processes; values made once by several threads."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import redalg
from redalg.kernels.ir.program import Module, Param
from redalg.kernels.launch import ptx, store
from redalg.kernels.launch.store import MAGIC, SUFFIX, UNFINISHED, Disk, Once, digest, directory

KEY, BODY = digest("a key"), bytes(range(256)) * 50


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "entries")


def file_of(disk: Disk, key: str = KEY) -> Path:
    return disk.root / f"{key}{SUFFIX}"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@contextmanager
def umask(value: int) -> Iterator[None]:
    before = os.umask(value)
    try:
        yield
    finally:
        os.umask(before)


# --- where, and who may read it --------------------------------------------------------------------------------------


def test_the_directory_is_the_users_cache_or_the_one_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("REDALG_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert directory() == tmp_path / "xdg" / "redalg"
    for ignored in ("", "relative/path"):  # "All paths must be absolute. If … relative …, ignore it."
        monkeypatch.setenv("XDG_CACHE_HOME", ignored)
        assert directory() == tmp_path / ".cache" / "redalg"
    monkeypatch.setenv("REDALG_CACHE_DIR", str(tmp_path / "mine"))
    assert directory() == tmp_path / "mine" and Disk().root == tmp_path / "mine"


@pytest.mark.parametrize("open_to_all", [0o000, 0o022])
def test_directory_and_files_are_private_whatever_the_umask(disk: Disk, open_to_all: int) -> None:
    with umask(open_to_all):
        assert disk.write(KEY, BODY)
    assert mode(disk.root) == 0o700 and mode(file_of(disk)) == 0o600
    assert disk.read(KEY) == BODY and not list(disk.root.glob(f".*{UNFINISHED}"))


@pytest.mark.parametrize("rights", [0o770, 0o707, 0o777])
def test_a_directory_that_others_may_write_to_is_not_used(disk: Disk, rights: int) -> None:
    assert disk.write(KEY, BODY)
    disk.root.chmod(rights)
    assert disk.read(KEY) is None and not disk.write("other", BODY) and disk.get("json") is None
    disk.root.chmod(0o755)  # others may read: they learn nothing they could not compile
    assert disk.read(KEY) == BODY


def test_a_directory_that_belongs_to_another_user_is_not_used(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    assert disk.write(KEY, BODY)
    monkeypatch.setattr(os, "getuid", lambda: disk.root.stat().st_uid + 1)
    assert disk.read(KEY) is None and not disk.write(KEY, BODY)


@pytest.mark.parametrize("place", ["a file", "below a file"])
def test_a_place_that_cannot_be_a_directory_is_an_empty_disk(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    disk = Disk(tmp_path / "file" if place == "a file" else tmp_path / "file" / "below")
    assert not disk.write(KEY, BODY) and disk.read(KEY) is None
    disk.put("k", {"a": 1})
    assert disk.get("k") is None


# --- whole or absent -------------------------------------------------------------------------------------------------

SIZE = len(MAGIC) + 20
DAMAGES = {
    "empty": lambda whole: b"",
    "cut in the head": lambda whole: whole[: SIZE - 3],
    "cut in the body": lambda whole: whole[:-1],
    "longer": lambda whole: whole + b"\0",
    "a bit of the body": lambda whole: whole[:-1] + bytes([whole[-1] ^ 1]),
    "a bit of the digest": lambda whole: whole[: SIZE - 1] + bytes([whole[SIZE - 1] ^ 1]) + whole[SIZE:],
    "another format": lambda whole: b"redalg-entry-0\n" + whole[len(MAGIC) :],
    "another program's": lambda whole: b"\x7fELF" + bytes(1000),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_entry_reads_as_absent_and_is_written_anew(disk: Disk, name: str) -> None:
    assert disk.write(KEY, BODY)
    whole = file_of(disk).read_bytes()
    file_of(disk).write_bytes(DAMAGES[name](whole))
    assert disk.read(KEY) is None
    assert disk.write(KEY, BODY) and disk.read(KEY) == BODY and file_of(disk).read_bytes() == whole


def test_an_entry_under_another_key_reads_as_absent(disk: Disk) -> None:
    assert disk.write(KEY, BODY)
    file_of(disk).rename(file_of(disk, digest("another key")))
    assert disk.read(digest("another key")) is None and disk.read(KEY) is None


def test_a_directory_or_a_broken_link_in_an_entrys_place_is_absent(disk: Disk) -> None:
    assert disk.write("first", BODY)
    file_of(disk).mkdir()
    assert disk.read(KEY) is None and not disk.write(KEY, BODY)
    assert not list(disk.root.glob(f".*{UNFINISHED}"))
    link = file_of(disk, "link")
    link.symlink_to(disk.root / "nowhere")
    assert disk.read("link") is None and disk.write("link", BODY) and not link.is_symlink()


def test_a_write_that_fails_leaves_the_old_entry_and_nothing_else(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    assert disk.write(KEY, BODY)

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    assert not disk.write(KEY, b"new")
    assert disk.read(KEY) == BODY and [p.name for p in disk.root.iterdir()] == [file_of(disk).name]


def test_what_an_ended_process_left_is_removed_and_what_is_being_written_is_not(disk: Disk) -> None:
    assert disk.write(KEY, BODY)
    old, new = (disk.root / f".{name}{UNFINISHED}" for name in ("old", "new"))
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 7200,) * 2)
    assert disk.write("next", b"")
    assert not old.exists() and new.exists() and disk.read(KEY) == BODY


def test_the_oldest_entries_go_first_beyond_the_limit(tmp_path: Path) -> None:
    size = len(MAGIC) + 20 + 1000
    disk = Disk(tmp_path, limit=3 * size)
    for n in range(6):
        assert disk.write(f"k{n}", bytes(1000))
        os.utime(disk.root / f"k{n}{SUFFIX}", (1000 + n,) * 2)
    assert [disk.read(f"k{n}") is not None for n in range(6)] == [False] * 3 + [True] * 3
    assert not disk.write("too large", bytes(4 * size)) and disk.read("too large") is None


def test_mappings_are_kept_and_anything_else_under_their_key_is_absent(disk: Disk) -> None:
    value = {"schedule": {"threads": 128, "exact": True}, "seconds": 1.5e-6}
    assert disk.get("winner") is None
    disk.put("winner", value)
    assert disk.get("winner") == value and disk.get("another") is None
    for body in (b"[1, 2]", b"{", b"\xff\xfe", b"null"):
        assert disk.write(digest("json", "winner"), body)
        assert disk.get("winner") is None
    disk.put("winner", value)
    assert disk.get("winner") == value


# --- several processes and threads -----------------------------------------------------------------------------------

WRITER = """
import runpy, sys
from pathlib import Path
disk, who = runpy.run_path(sys.argv[3])["Disk"](Path(sys.argv[1])), int(sys.argv[2])
for turn in range(150):
    assert disk.write("k", bytes([who]) * (20_000 + 10_000 * who))
    found = disk.read("k")
    assert found is not None and len(found) == 20_000 + 10_000 * found[0] and found == found[:1] * len(found)
"""


def test_processes_that_write_one_entry_at_once_leave_a_whole_one(tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", WRITER, str(tmp_path / "entries")]
    writers = [subprocess.Popen([*arguments, str(who), str(store.__file__)]) for who in range(3)]
    assert [w.wait(timeout=60) for w in writers] == [0, 0, 0]
    disk = Disk(tmp_path / "entries")
    assert disk.read("k") is not None and [p.suffix for p in disk.root.iterdir()] == [SUFFIX]


def test_a_value_is_made_once_by_one_of_many_threads_and_other_keys_go_on() -> None:
    once, made, barrier = Once(), [], threading.Barrier(8)
    held = threading.Event()

    def make(key: str) -> Any:
        made.append(key)
        if key == "slow":
            assert held.wait(10)
        return object()

    def slow(_: int) -> Any:
        barrier.wait(10)
        return once("slow", lambda: make("slow"))

    with ThreadPoolExecutor(9) as pool:
        waiting = [pool.submit(slow, n) for n in range(8)]
        other = pool.submit(once, "other", lambda: make("other"))
        assert other.result(10) is once("other", lambda: None)  # while the first key is still being made
        assert not any(w.done() for w in waiting)
        held.set()
        assert len({id(w.result(10)) for w in waiting}) == 1
    assert sorted(made) == ["other", "slow"] and not once._locks


def test_a_value_that_failed_is_tried_again_and_none_is_a_value() -> None:
    once, tries = Once(), []

    def fail() -> None:
        tries.append(1)
        raise ValueError("not yet")

    for _ in range(2):
        with pytest.raises(ValueError, match="not yet"):
            once("k", fail)
    assert once("k", lambda: None) is None and once("k", fail) is None and len(tries) == 2


# --- compiled kernels ------------------------------------------------------------------------------------------------

MODULE = Module("def k():\n    pass\n", "k", (Param("operand", "x", "float32"),))
PTX = ".visible .entry kernel_name(\n)\n{\nret;\n}\n"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """Compiling is counted and takes a while; nothing is known yet, in memory or on disk."""
    calls: list[Any] = []

    def slowly(*what: Any) -> str:
        calls.append(what)
        time.sleep(0.05)
        return PTX

    monkeypatch.setenv("REDALG_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(ptx, "_compiled", slowly)
    monkeypatch.setattr(ptx, "_once", Once())
    return calls


def test_two_threads_compile_a_kernel_once(compiled: list[Any]) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: ptx.ptx_of(MODULE, (9, 0)), range(8)))
    assert set(found) == {(PTX, "kernel_name")} and len(compiled) == 1


def test_another_process_reads_what_one_has_compiled(compiled: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    ptx.ptx_of(MODULE, (9, 0))
    monkeypatch.setattr(ptx, "_once", Once())
    assert ptx.ptx_of(MODULE, (9, 0)) == (PTX, "kernel_name") and len(compiled) == 1
    (entry,) = directory().iterdir()
    entry.write_bytes(entry.read_bytes()[:-5])
    monkeypatch.setattr(ptx, "_once", Once())
    assert ptx.ptx_of(MODULE, (9, 0)) == (PTX, "kernel_name") and len(compiled) == 2
    assert Disk().read(entry.stem) == PTX.encode()


def test_whatever_changes_the_code_changes_the_key(compiled: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def key(module: Module = MODULE, cc: Any = (9, 0), limit: int | None = None) -> str:
        return ptx._key("ptx", module, cc, limit)

    known = {key()}
    assert key() in known
    for other in (
        key(Module(MODULE.source + "#", "k", MODULE.params)),
        key(Module(MODULE.source, "m", MODULE.params)),
        key(Module(MODULE.source, "k", (Param("operand", "x", "float64"),))),
        key(cc=(8, 0)),
        key(limit=64),
    ):
        assert other not in known
        known.add(other)
    for owner, name, value in (
        (redalg, "__version__", "9.9.9"),
        (ptx, "package_version", str),  # of each package the compiler is made of
        (ptx, "_functions", str),  # that generated code calls
    ):
        with monkeypatch.context() as changed:
            changed.setattr(owner, name, value)
            assert key() not in known
            known.add(key())
    assert len(known) == 9
