"""Runs a test of the negotiation that counts messages, with all ranks in one process."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

_PROGRAM = Path(__file__).resolve().parents[2] / "build/release/out/negotiation_test"
_TEST = "Negotiator.ManyCallsAtOnceNeedFewMessages"


def messages(program: Path = _PROGRAM) -> str:
    """Sent and received by the busiest of 64 ranks, 500 calls at once"""
    if not program.exists():
        return "not counted: make test-cpp builds the program"
    with tempfile.TemporaryDirectory(prefix="ringdist_bench_") as folder:
        out = Path(folder, "counted.json")
        command = [str(program), f"--gtest_filter={_TEST}", f"--gtest_output=json:{out}"]
        if subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode != 0:
            raise SystemExit(f"{program.name}: {_TEST} has failed")
        (suite,) = json.loads(out.read_text())["testsuites"]
    (counted,) = suite["testsuite"]
    return f"{counted['first']} when the names are new, {counted['cached']} when they are known"
