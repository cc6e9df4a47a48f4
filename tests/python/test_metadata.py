"""The package's metadata for pip. tools/wheel.sh builds a whole wheel."""

from __future__ import annotations

import os
import subprocess
import sys
from email.parser import HeaderParser
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TORCH = ".".join(version("torch").split(".")[:2])


@pytest.mark.parametrize(
    ("release", "local", "torch"), [("ON", f"+torch{TORCH}", f"torch=={TORCH}.*"), ("", "", None)]
)
def test_a_wheel_for_others_is_for_one_torch(tmp_path, release: str, local: str, torch: str | None):
    subprocess.run(
        [sys.executable, "setup.py", "--quiet", "egg_info", "--egg-base", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "RINGDIST_RELEASE": release},
        check=True,
        timeout=120,
    )
    (written,) = tmp_path.glob("*/PKG-INFO")
    told = HeaderParser().parsestr(written.read_text())
    assert told["Version"].partition("+")[1:] == (local[:1], local[1:])
    of_torch = [each for each in told.get_all("Requires-Dist") if each.startswith("torch")]
    assert of_torch == [torch or "torch>=2.11"]
    assert any(each.startswith("libucx") for each in told.get_all("Requires-Dist"))
