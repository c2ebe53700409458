"""Build backend (PEP 517, PEP 660): setuptools, with `kernels` and `proofs` linked into the package.

The folders lie at the top level and install as ``redalg.kernels`` and ``redalg.proofs``. A link in ``redalg/`` to each
makes that true for everything that reads paths: setuptools' discovery, mypy, pyright, IDEs. An editable install names
one folder, ``.links``, that holds a link to ``redalg`` and nothing else, so that neither ``kernels`` nor ``tests``
becomes importable by itself, a new module needs no new install, and a folder called ``redalg`` above the clone does not
win as an empty namespace: an entry of ``sys.path`` with a regular package does.
"""

from __future__ import annotations

import base64
import hashlib
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from setuptools import build_meta as setuptools_backend
from setuptools.build_meta import (
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
)

ROOT = Path(__file__).resolve().parent.parent
INSIDE = ("kernels", "proofs")  # folders beside the package that are part of it
LINKS = ".links"

Settings = Mapping[str, Any] | None


def link_folders(root: Path = ROOT) -> None:
    """Link the folders beside the package into it; in an unpacked source distribution they lie there already."""
    for name in INSIDE:
        _link(root / "redalg" / name, root / name)
    (root / LINKS).mkdir(exist_ok=True)
    _link(root / LINKS / "redalg", root / "redalg")


def _link(link: Path, target: Path) -> None:
    if link.is_dir() or not target.is_dir():
        return
    if link.is_symlink():  # left by a checkout that was moved
        link.unlink()
    try:
        link.symlink_to(os.path.relpath(target, link.parent), target_is_directory=True)
    except OSError:
        if os.name != "nt":
            raise
        import _winapi  # a junction needs no privilege

        _winapi.CreateJunction(str(target), str(link))


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Settings = None) -> str:
    link_folders()
    return str(setuptools_backend.prepare_metadata_for_build_wheel(metadata_directory, config_settings))


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    link_folders()
    return str(setuptools_backend.build_wheel(wheel_directory, config_settings, metadata_directory))


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    link_folders()
    return str(setuptools_backend.build_sdist(sdist_directory, config_settings))


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """A wheel with the metadata and one ``.pth`` file, which names the folder of links."""
    link_folders()
    staging = Path(metadata_directory or wheel_directory)
    found = sorted(staging.glob("redalg-*.dist-info"))
    info = found[0] if found else staging / prepare_metadata_for_build_wheel(str(staging), config_settings)
    distribution = info.name.removesuffix(".dist-info")
    files = {f"{info.name}/{p.relative_to(info).as_posix()}": p.read_bytes() for p in info.rglob("*") if p.is_file()}
    files[f"{info.name}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: linked_build\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    files["redalg.pth"] = f"{ROOT / LINKS}\n".encode()
    record = f"{info.name}/RECORD"
    files.pop(record, None)
    lines = [f"{name},sha256={_digest(data)},{len(data)}\n" for name, data in files.items()]
    wheel = f"{distribution}-py3-none-any.whl"
    with zipfile.ZipFile(Path(wheel_directory) / wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        archive.writestr(record, "".join([*lines, f"{record},,\n"]))
    return wheel


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "link_folders",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]
