"""The client of server.py. It starts one server per world size and sends it one test at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Result:
    outcome: str  # passed, failed or skipped
    reason: str = ""  # one line
    detail: str = ""  # tracebacks, or the stacks of all ranks at a timeout
    seconds: float = 0

    as_dict = asdict


class Server:
    """Runs one test at a time. Not thread-safe.

    Raises RuntimeError if the suite cannot be imported, or if the server died. Its own output
    precedes the error.
    """

    def __init__(self, suite: str, world_size: int, gates: str, logs: Path):
        logs.mkdir(parents=True, exist_ok=True)
        self._world_size = world_size
        self._logs = logs
        environment = {
            **os.environ,
            "WORLD_SIZE": str(world_size),
            "CONFORMANCE_GATES": gates,
            "OMP_NUM_THREADS": "1",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.conformance.server", suite],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        hello = self._answer("importing " + suite)
        self.suite: str = hello["suite"]
        self.tests: list[str] = hello["tests"]

    def run(self, backend: str, test: str, seconds: float) -> Result:
        request = {
            "backend": backend,
            "test": test,
            "world_size": self._world_size,
            "seconds": seconds,
            "logs": str(self._logs),
        }
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return Result(**self._answer(test))

    def close(self) -> None:
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def _answer(self, doing: str) -> dict:
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the server ended ({self._process.wait()}) while {doing}")
        return json.loads(line)
