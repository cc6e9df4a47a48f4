"""Keeps results of long benchmarks on disk, so that a later run does not repeat them.

A result is a JSON file named after its settings and their hash. It has the settings, the commit
that was measured, other conditions, and the results.
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
    """A dataclass of settings with a name for its file."""

    @property
    def name(self) -> str: ...


UNKNOWN = "unknown"


def commit(measured: Sequence[str]) -> str:
    """Returns the last commit that changed these paths, with a hash of uncommitted changes in
    them."""
    try:
        last = _git("log", "-1", "--format=%h", "--", *measured)
        changed = _git("diff", "HEAD", "--", *measured)
        new = _git("ls-files", "--others", "--exclude-standard", "--", *measured).splitlines()
        changed += "".join(f"{path}\n{_digest((ROOT / path).read_bytes())}" for path in new)
    except (OSError, subprocess.CalledProcessError):  # no git, or not a checkout
        return UNKNOWN
    return f"{last}-dirty-{_digest(changed.encode())}" if changed else last


def surroundings() -> dict[str, str]:
    """Returns the environment of the ranks that influences results."""
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
    """The results in one folder, for one commit."""

    folder: Path
    commit: str
    fresh: bool = False  # measure again even if a result exists
    surroundings: dict[str, str] = field(default_factory=surroundings)

    def find(self, settings: Named) -> dict | None:
        """Returns the result for these settings at this commit, or None."""
        if self.fresh or self.commit == UNKNOWN:
            return None
        try:
            found = json.loads(self.path(settings).read_text())
        except (OSError, ValueError):  # missing, or truncated by a full disk
            return None
        same = (found["commit"], found.get("surroundings")) == (self.commit, self.surroundings)
        return found if same else None

    def keep(self, settings: Named, found: dict) -> dict:
        """Writes a result with its settings and the commit, and returns it."""
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
        written.replace(path)  # atomic
        return result

    def path(self, settings: Named) -> Path:
        return self.folder / f"{settings.name}-{_digest(to_text(settings).encode())}.json"
