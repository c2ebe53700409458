"""The project installs as one package: the folders beside it included, and nothing under a foreign name."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOLDERS = PROJECT["tool"]["setuptools"]["package-dir"]


def test_every_package_is_listed() -> None:
    found = set()
    for package, folder in FOLDERS.items():
        for init in (ROOT / folder).rglob("__init__.py"):
            found.add(".".join((package, *init.parent.relative_to(ROOT / folder).parts)))
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == found


def test_the_changelog_knows_the_version() -> None:
    assert f"## [{PROJECT['project']['version']}]" in (ROOT / "CHANGELOG.md").read_text()


def test_the_licence_is_apache_2() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text and "Version 2.0, January 2004" in text and "END OF TERMS AND CONDITIONS" in text


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy of the sources, so that no build leaves anything here."""
    place = tmp_path_factory.mktemp("wheel")
    source = place / "source"
    ignore = shutil.ignore_patterns("__pycache__")
    for folder in FOLDERS.values():
        shutil.copytree(ROOT / folder, source / folder, ignore=ignore)
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, source / name)
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-build-isolation",
        "--no-deps",
        "-w",
        str(place),
        str(source),
    ]
    done = subprocess.run(build, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return next(place.glob("redalg-*.whl"))


def test_the_wheel_holds_the_package_and_only_it(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"redalg"}
    wanted = (
        "py.typed",
        "__init__.pyi",
        "kernels/__init__.py",
        "proofs/__init__.py",
        "data/minilm_layer0.npz",
        "data/README.md",
        "proofs/theories/_CoqProject",
        "proofs/theories/Tactics.v",
    )
    assert not [name for name in wanted if f"redalg/{name}" not in names]


def test_the_installed_package_works_away_from_the_checkout(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(target)
    code = (
        "import redalg as ra, redalg.kernels, redalg.proofs, redalg.demo\n"
        "assert ra.__file__.startswith(sys.argv[1]), ra.__file__\n"
        "print(sorted(redalg.demo.load_data()), len(ra.catalog))"
    )
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, sys.argv[1])\n{code}", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "embedding" in done.stdout


@pytest.mark.parametrize("folder", ["kernels", "proofs"])
def test_a_folder_refuses_to_be_imported_under_its_bare_name(folder: str) -> None:
    done = subprocess.run([sys.executable, "-c", f"import {folder}"], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 1
    assert f"redalg.{folder}" in done.stderr and "try:" in done.stderr
