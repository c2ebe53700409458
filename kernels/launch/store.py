"""Compiled code and measured schedules on disk, for the next process.

One file per entry, named by its key. An entry is written under a temporary name and renamed, so that no reader sees
half of one and many processes may write at once; it carries a digest, so that a damaged or foreign file reads as absent
and is written anew. The directory is private (0700, files 0600); one that others may write to is not used at all.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

MAGIC = b"redalg-entry-1\n"
LIMIT = 1 << 30  # bytes; the oldest entries go first
SUFFIX, UNFINISHED = ".entry", ".part"
STALE = 3600.0  # seconds after which nobody is still writing an entry


def directory() -> Path:
    """``REDALG_CACHE_DIR``, else ``redalg`` in the user's cache directory (XDG base directory specification)."""
    given = os.environ.get("REDALG_CACHE_DIR")
    if given:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # the specification asks to ignore relative paths
        base = os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "redalg"


def digest(*parts: object) -> str:
    """A key for what determines an entry."""
    h = hashlib.blake2b(digest_size=20)
    for part in parts:
        h.update(repr(part).encode() + b"\0")
    return h.hexdigest()


class Disk:
    """Entries in a directory. Nothing here raises: a disk that cannot be used is an empty one.

    >>> import tempfile
    >>> disk = Disk(Path(tempfile.mkdtemp()) / "entries")
    >>> disk.read("k") is None, disk.write("k", b"data"), disk.read("k")
    (True, True, b'data')
    """

    def __init__(self, root: Path | None = None, limit: int = LIMIT) -> None:
        self._root, self.limit = root, limit

    @property
    def root(self) -> Path:
        return self._root if self._root is not None else directory()

    def _usable(self) -> bool:
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = self.root.stat()
        except OSError:
            return False
        own = not hasattr(os, "getuid") or found.st_uid == os.getuid()
        return own and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)

    def _path(self, key: str) -> Path:
        return self.root / f"{key}{SUFFIX}"

    def read(self, key: str) -> bytes | None:
        if not self._usable():
            return None
        try:
            text = self._path(key).read_bytes()
        except OSError:
            return None
        size = len(MAGIC) + 20
        body = text[size:]
        sound = text[: len(MAGIC)] == MAGIC and text[len(MAGIC) : size] == _mark(key, body)
        return body if sound else None

    def write(self, key: str, body: bytes) -> bool:
        """Whether the entry is on disk now."""
        if not self._usable():
            return False
        name = None
        try:
            handle, name = tempfile.mkstemp(dir=self.root, prefix=".", suffix=UNFINISHED)  # mode 0600
            with os.fdopen(handle, "wb") as file:
                file.write(MAGIC + _mark(key, body) + body)
            os.replace(name, self._path(key))
        except OSError:
            if name is not None:
                with suppress(OSError):
                    os.unlink(name)
            return False
        self._trim()
        return self._path(key).exists()

    def _trim(self) -> None:
        """Remove the oldest entries beyond the limit, and what processes that ended while writing have left."""
        entries = []
        with suppress(OSError):
            for path in self.root.iterdir():
                with suppress(OSError):
                    found = path.stat()
                    if path.suffix == SUFFIX:
                        entries.append((found.st_mtime, found.st_size, path))
                    elif path.suffix == UNFINISHED and found.st_mtime < time.time() - STALE:
                        path.unlink()
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries):
            if total <= self.limit:
                break
            with suppress(OSError):
                path.unlink()
            total -= size

    # --- measured schedules: small mappings --------------------------------------------------------------------------

    def get(self, key: str) -> Mapping[str, Any] | None:
        body = self.read(digest("json", key))
        with suppress(ValueError):
            found = json.loads(body) if body is not None else None
            return found if isinstance(found, dict) else None
        return None

    def put(self, key: str, value: Mapping[str, Any]) -> None:
        self.write(digest("json", key), json.dumps(dict(value)).encode())


def _mark(key: str, body: bytes) -> bytes:
    return hashlib.blake2b(key.encode() + b"\0" + body, digest_size=20).digest()


class Once:
    """Values made once per key, by one thread; other keys are not held up. With a `limit`, no more are kept.

    >>> once = Once()
    >>> once("a", lambda: 1), once("a", lambda: 2)
    (1, 1)
    """

    def __init__(self, limit: int | None = None) -> None:
        self._lock, self._limit = threading.Lock(), limit
        self._locks: dict[Any, threading.Lock] = {}
        self._made: dict[Any, Any] = {}

    def __call__(self, key: Any, make: Callable[[], Any]) -> Any:
        made = self._made
        if key in made:
            return made[key]
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            if key in self._made:
                return self._made[key]
            value = make()
            if self._limit is not None and len(self._made) >= self._limit:
                self._made = {}
            self._made[key] = value
        with self._lock:
            self._locks.pop(key, None)
        return value
