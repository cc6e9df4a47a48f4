"""Results of long benchmarks on disk: what is there is not measured again.

A result is a JSON file named after its settings and their hash; it holds the settings, the commit
it was measured at, and what was found.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

ROOT = Path(__file__).resolve().parents[1]


class Named(Protocol):
    """A dataclass of settings, with a name for its file."""

    @property
    def name(self) -> str: ...


def commit(measured: Sequence[str]) -> str:
    """The last one that changed these paths, with "-dirty" if they are changed since."""
    try:
        last = _git("log", "-1", "--format=%h", "--", *measured)
        changed = _git("status", "--porcelain", "--", *measured)
    except (OSError, subprocess.CalledProcessError):  # no git, or not a checkout
        return "unknown"
    return last + ("-dirty" if changed else "")


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def to_text(settings: Any) -> str:
    return json.dumps(asdict(settings))


@dataclass
class Kept:
    """The results in one folder, of one commit."""

    folder: Path
    commit: str
    fresh: bool = False  # measure even what is there

    def find(self, settings: Named) -> dict | None:
        """What was measured with these settings at this commit, if it was."""
        path = self.path(settings)
        if self.fresh or not path.exists():
            return None
        found = json.loads(path.read_text())
        return found if found["commit"] == self.commit else None

    def keep(self, settings: Named, found: dict) -> dict:
        """With its settings and the commit."""
        self.folder.mkdir(parents=True, exist_ok=True)
        result = {"settings": json.loads(to_text(settings)), "commit": self.commit, **found}
        self.path(settings).write_text(json.dumps(result) + "\n")
        return result

    def path(self, settings: Named) -> Path:
        digest = hashlib.sha256(to_text(settings).encode()).hexdigest()[:8]
        return self.folder / f"{settings.name}-{digest}.json"
