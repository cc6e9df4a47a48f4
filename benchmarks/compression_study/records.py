"""Records finished runs, one JSON line each, by their settings and the code that made them."""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict
from pathlib import Path

from benchmarks.compression_study.training import Settings

ROOT = Path(__file__).resolve().parents[2]
# Sources that a result depends on. A commit that changes only other files keeps finished runs.
SOURCES = ("csrc", "torch_ringdist", "benchmarks/compression_study")


def commit_of_sources() -> str:
    """Returns the last commit that changed the sources, with "-dirty" if they have changed
    since."""
    try:
        commit = _git("log", "-1", "--format=%h", "--", *SOURCES)
        return commit + ("-dirty" if _git("status", "--porcelain", "--", *SOURCES) else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*words: str) -> str:
    command = ["git", "-C", str(ROOT), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


class Records:
    """Recorded runs of a folder, which one process may write. An unfinished line of a killed run is
    ignored."""

    def __init__(self, folder: Path, fresh: bool) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "runs.jsonl"
        self.commit = commit_of_sources()
        self._results: dict[str, dict] = {}
        if fresh:
            self.path.unlink(missing_ok=True)
        if self.path.exists():
            self._load()

    def _load(self) -> None:
        text = self.path.read_text()
        if text and not text.endswith("\n"):
            with self.path.open("a") as file:
                file.write("\n")
        for line in text.splitlines():
            try:
                entry = json.loads(line)
            except json.JSONDecodeError:
                continue
            self._results[self._key(entry["settings"], entry["commit"])] = entry["result"]

    def _key(self, settings: dict, commit: str) -> str:
        return json.dumps([settings, commit], sort_keys=True)

    def find(self, settings: Settings) -> dict | None:
        return self._results.get(self._key(asdict(settings), self.commit))

    def add(self, settings: Settings, result: dict) -> None:
        entry = {"settings": asdict(settings), "commit": self.commit, "result": result}
        with self.path.open("a") as file:
            file.write(json.dumps(entry) + "\n")
        self._results[self._key(entry["settings"], self.commit)] = result
