"""The Python side of the native module: its stub torch_ringdist/_C.pyi, and docstrings."""

import os
import re
import subprocess
import sys

import pytest

import torch_ringdist

# Stubs cannot express the metaclass of pybind11 classes, nor that a class without a constructor
# accepts all arguments and raises TypeError. torch's own stub lacks the last function.
_NOT_IN_STUBS = r"""
torch_ringdist\._C\.\w+
torch_ringdist\._C\.\w+\.__init__
torch_ringdist\._C\.ProcessGroupRing\.perform_nocolor_split
"""

# Types of torch count as Any here, as all of torch would take minutes; lint has them checked.
_CONFIGURATION = """
[mypy]
[mypy-torch.*]
follow_imports = skip
"""


@pytest.mark.timeout(600)
def test_stub_equals_the_module(tmp_path):
    allowed = tmp_path / "allowed"
    allowed.write_text(_NOT_IN_STUBS)
    configuration = tmp_path / "mypy.ini"
    configuration.write_text(_CONFIGURATION)
    stubtest = [sys.executable, "-m", "mypy.stubtest", "torch_ringdist._C"]
    stubtest += ["--allowlist", str(allowed), "--ignore-unused-allowlist"]
    run = subprocess.run(
        [*stubtest, "--mypy-config-file", str(configuration)],
        env={**os.environ, "MYPY_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_docstring_of_stats_has_all_keys():
    keys = torch_ringdist.stats.__doc__.split("Keys:")[1].split("Raises:")[0]
    listed = re.findall(r"^        (\w+): ", keys, re.MULTILINE)
    assert listed == list(torch_ringdist.stats())
