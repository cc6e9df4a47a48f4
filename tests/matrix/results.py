"""Results of each configuration. A file of lines (record.py) per configuration and checkout lets
a run continue where the last one stopped."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.results import checkout_key
from tests.matrix.axes import Configuration

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "matrix"


@dataclass(frozen=True)
class Result:
    test: str
    outcome: str  # passed, skipped or failed
    seconds: float
    reason: str


class Results:
    """Results of one configuration. pytest writes the file line by line."""

    def __init__(self, folder: Path, configuration: Configuration):
        words = "-".join(f"{name}={value or 'default'}" for name, value in configuration.items())
        name = re.sub(r"[^\w.=+-]+", "_", words)
        self.path = folder / checkout_key() / f"{name}.jsonl"
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def forget(self) -> None:
        self.path.unlink(missing_ok=True)

    def entries(self) -> list[dict]:
        """Returns all complete lines. The last line may still be written."""
        if not self.path.exists():
            return []
        lines = self.path.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def known(self) -> dict[str, Result]:
        return {e["test"]: Result(**e) for e in self.entries() if "test" in e}

    def end_what_has_begun(self, reason: str) -> None:
        """Records a failure for each test that had begun, because the process has died."""
        entries = self.entries()
        ended = {entry["test"] for entry in entries if "test" in entry}
        begun = {entry["begun"] for entry in entries if "begun" in entry}
        with self.path.open("a") as file:
            for test in sorted(begun - ended):
                entry = {"test": test, "outcome": "failed", "seconds": 0.0, "reason": reason}
                file.write(json.dumps(entry) + "\n")
