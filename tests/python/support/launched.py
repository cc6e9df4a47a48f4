"""Helpers that tests of elastic training share with tests/chaos."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from tests.chaos import digits, loop, preloaded  # noqa: E402
from tests.chaos.launched import (  # noqa: E402
    EXAMPLES,
    Launched,
    newest_members,
    python_path,
    read_events,
)
from tests.chaos.records import Course, Record, committed, read  # noqa: E402

__all__ = [
    "CHAOS",
    "EXAMPLES",
    "LOOP",
    "ROOT",
    "Course",
    "Launched",
    "Record",
    "committed",
    "digits",
    "loop",
    "newest_members",
    "preloaded",
    "python_path",
    "read",
    "read_events",
    "ringdistrun",
    "run_loop",
]


CHAOS = ROOT / "tests" / "chaos"
LOOP = str(CHAOS / "loop.py")


def run_loop(folder: Path, *options: str, script: list[str]) -> Launched:
    """Runs tests/chaos/loop.py without restarts."""
    return Launched(folder, ["--max-restarts=0", *options], [LOOP, *script])


def ringdistrun(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs ringdistrun with forked ranks, for tests that do not depend on how ranks begin."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": python_path(), **variables}
    command = ["-m", "torch_ringdist._launch.ringdistrun", *arguments]
    return preloaded.run(command, env=environment, timeout=100)
