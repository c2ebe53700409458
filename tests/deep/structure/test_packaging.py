"""The project installs as one package: the folders beside it included, and nothing under a foreign name."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.support.places import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOLDERS = ("redalg", "kernels", "proofs", "build_backend")


def test_the_changelog_knows_the_version() -> None:
    assert f"## [{PROJECT['project']['version']}]" in (ROOT / "CHANGELOG.md").read_text()


def test_the_licence_is_apache_2() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text and "Version 2.0, January 2004" in text and "END OF TERMS AND CONDITIONS" in text


def _left_out(folder: str, names: list[str]) -> list[str]:
    """What a clean checkout has not: compiled files, and the links that an installation made."""
    return [name for name in names if name == "__pycache__" or (Path(folder) / name).is_symlink()]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy of the sources, so that no build leaves anything here."""
    place = tmp_path_factory.mktemp("wheel")
    source = place / "source"
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, source / folder, ignore=_left_out)
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
        "kernels/cuda/intrinsics/wgmma.py",
        "proofs/checker/check.py",
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
        "import redalg as ra, redalg.kernels, redalg.proofs, redalg.cli.demo\n"
        "assert ra.__file__.startswith(sys.argv[1]), ra.__file__\n"
        "print(sorted(redalg.cli.demo.load_data()), len(ra.catalog))"
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


# --- an editable installation ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A checkout in a folder called redalg, and a folder of packages where ``pip install -e`` has put it."""
    place = tmp_path_factory.mktemp("editable")
    source, site = place / "redalg", place / "site"
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, source / folder, ignore=_left_out)
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, source / name)
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps", "--target", str(site)]
    done = subprocess.run([*install, "-e", str(source)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return source, site


def _run(code: str, site: Path, cwd: Path) -> str:
    """What code prints where the folder of packages is one (its ``.pth`` files are read), in a folder."""
    start = f"import site, sys; site.addsitedir({str(site)!r})\n"
    done = subprocess.run([sys.executable, "-S", "-c", start + code], capture_output=True, text=True, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_editable_installation_is_a_path_that_tools_can_read(clone: tuple[Path, Path]) -> None:
    source, site = clone
    (path,) = (site / "redalg.pth").read_text().split()
    assert sorted(p.name for p in Path(path).iterdir()) == ["redalg"]  # no kernels, proofs or tests by themselves
    assert (Path(path) / "redalg" / "kernels" / "__init__.py").samefile(source / "kernels" / "__init__.py")
    assert (Path(path) / "redalg" / "proofs" / "__init__.py").is_file()


def test_a_new_module_needs_no_new_installation(clone: tuple[Path, Path], tmp_path: Path) -> None:
    source, site = clone
    (source / "proofs" / "fresh.py").write_text("found = 41\n")
    code = "import redalg.proofs.fresh as f\nfrom importlib.util import find_spec\n"
    code += "print(f.found, find_spec('kernels'), find_spec('tests'))"
    assert _run(code, site, tmp_path) == "41 None None\n"


def test_a_folder_above_the_clone_sees_the_package_and_no_namespace(clone: tuple[Path, Path]) -> None:
    source, site = clone
    assert _run("import redalg; print(redalg.__version__)", site, source.parent) == f"{PROJECT['project']['version']}\n"
