"""Runs settings over the hosts and keeps the results, so that what is there is not run again.

A result is a JSON file named after its settings and their hash; it holds the settings, the commit
it was measured at, and what the ranks said.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks import ranks
from benchmarks.ddp.settings import Settings, to_text
from benchmarks.net.hosts import Hosts
from benchmarks.net.launch import ROOT, torchrun

# Whose changes make a result old.
MEASURED = ("csrc", "torch_ringdist", "cmake", "benchmarks/ddp", "requirements.txt")


class RunError(RuntimeError):
    """The ranks failed; the text says where their logs are."""


def commit() -> str:
    """The last one that changed what is measured, with "-dirty" if that is changed since."""
    try:
        last = _git("log", "-1", "--format=%h", "--", *MEASURED)
        changed = _git("status", "--porcelain", "--", *MEASURED)
    except (OSError, subprocess.CalledProcessError):  # no git, or not a checkout
        return "unknown"
    return last + ("-dirty" if changed else "")


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@dataclass
class Cells:
    """The results in one folder, of one commit."""

    folder: Path
    commit: str
    fresh: bool = False  # run even what is there

    def find(self, settings: Settings) -> dict | None:
        """What was measured with these settings at this commit, if it was."""
        path = self.path(settings)
        if self.fresh or not path.exists():
            return None
        found = json.loads(path.read_text())
        return found if found["commit"] == self.commit else None

    def run(self, settings: Settings, hosts: Hosts) -> dict:
        """Measures and keeps the result. Raises RunError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as temporary:
            barrier, answer = Path(temporary, "barrier"), Path(temporary, "answer.json")
            barrier.write_bytes(bytes(ranks.SLOT * settings.hosts))
            command = [
                *("-m", "benchmarks.ddp.worker", "--settings", to_text(settings)),
                *("--barrier", str(barrier), "--json", str(answer)),
            ]
            logs = self.folder / "logs" / settings.name
            status = torchrun(hosts, command, logs, per_host=settings.hosts // hosts.count)
            if status:
                raise RunError(f"{settings.name}: status {status}; see above and {logs}")
            given = {"settings": json.loads(to_text(settings)), "commit": self.commit}
            result = {**given, **json.loads(answer.read_text())}
        self.path(settings).write_text(json.dumps(result) + "\n")
        return result

    def path(self, settings: Settings) -> Path:
        digest = hashlib.sha256(to_text(settings).encode()).hexdigest()[:8]
        return self.folder / f"{settings.name}-{digest}.json"
