"""Runs settings over the hosts and keeps the results, so that later starts reuse them."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from benchmarks import kept, ranks
from benchmarks.ddp.settings import Settings
from benchmarks.net.hosts import Hosts
from benchmarks.net.launch import torchrun

# Paths that results depend on. A change of them discards results.
MEASURED = (
    *("csrc", "torch_ringdist", "cmake", "requirements.txt"),
    *("benchmarks/ddp", "benchmarks/net", "benchmarks/ranks.py"),
)


class RunError(RuntimeError):
    """The ranks failed; the text has the place of their logs."""


def commit() -> str:
    return kept.commit(MEASURED)


class Cells(kept.Kept):
    """The results in one folder, for one commit."""

    def run(self, settings: Settings, hosts: Hosts) -> dict:
        """Measures, keeps the result and returns it. Raises RunError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as temporary:
            barrier, answer = Path(temporary, "barrier"), Path(temporary, "answer.json")
            barrier.write_bytes(bytes(ranks.SLOT * settings.hosts))
            command = [
                *("-m", "benchmarks.ddp.worker", "--settings", kept.to_text(settings)),
                *("--barrier", str(barrier), "--json", str(answer)),
            ]
            logs = self.folder / "logs" / settings.name
            status = torchrun(hosts, command, logs, per_host=settings.hosts // hosts.count)
            if status:
                raise RunError(f"{settings.name}: status {status}; see above and {logs}")
            return self.keep(settings, json.loads(answer.read_text()))
