"""pyproject.toml: an installed package has all folders that the checkout has."""

from __future__ import annotations

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
