"""The digits example of Horovod's API gives the same parameters as DistributedDataParallel."""

from __future__ import annotations

import re
from pathlib import Path

from support.torchrun import torchrun

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def _hash_after(script: str, *arguments: str) -> str:
    done = torchrun(EXAMPLES / script, "--no-progress", "--steps=20", *arguments, forked=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "parameters identical on 2 ranks" in done.stdout, done.stdout
    found = re.search(r"sha256 (\w+) after step 20", done.stdout)
    assert found, done.stdout
    return found[1]


def test_20_steps_end_with_the_parameters_of_ddp(tmp_path: Path):
    ddp = _hash_after("ddp_digits.py", f"--checkpoint={tmp_path / 'digits.pt'}")
    assert _hash_after("horovod_digits.py") == ddp
