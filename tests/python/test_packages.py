"""pyproject.toml: an installed package has all folders of the checkout."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_all_packages_are_listed():
    tomllib = pytest.importorskip("tomllib", reason="tomllib is of Python 3.11")
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    found = (ROOT / "torch_ringdist").rglob("__init__.py")
    folders = {".".join(path.parent.relative_to(ROOT).parts) for path in found}
    assert set(listed) == folders
    assert len(listed) == len(set(listed))


def test_an_editable_install_is_a_path_that_type_checkers_follow():
    """Type checkers run no import hook, which setuptools installs for some layouts."""
    found = list(Path(sysconfig.get_path("purelib")).glob("__editable__.torch_ringdist-*.pth"))
    if not found:
        pytest.skip("the package is installed as a wheel")
    [folder] = found[0].read_text().split("\n")[:1]
    assert (Path(folder) / "torch_ringdist" / "py.typed").exists(), found[0].read_text()


def test_setuptools_that_is_too_old_is_named_in_one_line():
    code = (
        "import runpy, setuptools, sys\n"
        "setuptools.__version__ = '65.5.0'\n"
        "sys.argv = ['setup.py', '--name']\n"
        "runpy.run_path('setup.py', run_name='__main__')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "needs setuptools 77 or newer" in done.stderr and "65.5.0" in done.stderr
