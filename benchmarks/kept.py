"""Results of long benchmarks on disk: what is there is not measured again.

A result is a JSON file named after its settings and their hash; it holds the settings, the commit
it was measured at, what else it depends on, and what was found.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

ROOT = Path(__file__).resolve().parents[1]


class Named(Protocol):
    """A dataclass of settings, with a name for its file."""

    @property
    def name(self) -> str: ...


UNKNOWN = "unknown"


def commit(measured: Sequence[str]) -> str:
    """The last one that changed these paths, and a hash of what is changed in them since."""
    try:
        last = _git("log", "-1", "--format=%h", "--", *measured)
        changed = _git("diff", "HEAD", "--", *measured)
        new = _git("ls-files", "--others", "--exclude-standard", "--", *measured).splitlines()
        changed += "".join(f"{path}\n{_digest((ROOT / path).read_bytes())}" for path in new)
    except (OSError, subprocess.CalledProcessError):  # no git, or not a checkout
        return UNKNOWN
    return f"{last}-dirty-{_digest(changed.encode())}" if changed else last


def surroundings() -> dict[str, str]:
    """What ranks inherit that changes what they measure."""
    found = {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(("RINGDIST_", "UCX_", "OMPI_", "GLOO_", "OMP_"))
    }
    found["torch"] = importlib.metadata.version("torch")
    return found


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:8]


def to_text(settings: Any) -> str:
    return json.dumps(asdict(settings))


@dataclass
class Kept:
    """The results in one folder, of one commit."""

    folder: Path
    commit: str
    fresh: bool = False  # measure even what is there
    surroundings: dict[str, str] = field(default_factory=surroundings)

    def find(self, settings: Named) -> dict | None:
        """What was measured with these settings at this commit, if it was."""
        if self.fresh or self.commit == UNKNOWN:
            return None
        try:
            found = json.loads(self.path(settings).read_text())
        except (OSError, ValueError):  # none, or of a disk that was full
            return None
        same = (found["commit"], found.get("surroundings")) == (self.commit, self.surroundings)
        return found if same else None

    def keep(self, settings: Named, found: dict) -> dict:
        """With its settings and the commit."""
        self.folder.mkdir(parents=True, exist_ok=True)
        result = {
            "settings": json.loads(to_text(settings)),
            "commit": self.commit,
            "surroundings": self.surroundings,
            **found,
        }
        path = self.path(settings)
        written = path.with_suffix(".new")
        written.write_text(json.dumps(result) + "\n")
        written.replace(path)  # whole, or not at all
        return result

    def path(self, settings: Named) -> Path:
        return self.folder / f"{settings.name}-{_digest(to_text(settings).encode())}.json"
