"""Results on disk, so that a run continues where the last one stopped. There is one JSON file
per backend and per state of everything that it depends on."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import subprocess
from pathlib import Path

from tests.conformance import lists
from tests.conformance.client import ROOT, Result

FOLDER = ROOT / "build" / "conformance"


class Results:
    """Results by world size and test. Each addition is on disk when add() returns.

    Several processes may add to one file. A file that cannot be read (truncated or edited) counts
    as empty.
    """

    def __init__(self, path: Path):
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._known = self._read()

    def get(self, world_size: int, test: str) -> Result | None:
        entry = self._known.get(f"{world_size}/{test}")
        return Result(**entry) if entry else None

    def add(self, world_size: int, test: str, result: Result) -> None:
        with open(self.path.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._known = {**self._read(), f"{world_size}/{test}": result.as_dict()}
            aside = self.path.with_suffix(".new")
            aside.write_text(json.dumps(self._known, indent=1))
            os.replace(aside, self.path)

    def _read(self) -> dict[str, dict]:
        try:
            return json.loads(self.path.read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return {}


def path_for(folder: Path, backend: str, suite: str, gates: str, tested: str) -> Path:
    """Returns the path of the results. `gates` identifies the tests, `tested` the tested code,
    which for gloo is torch alone."""
    words = [backend, suite, gates, tested]
    return folder / (re.sub(r"[^\w.+-]+", "-", "-".join(filter(None, words))) + ".json")


def gates_key(gates: str) -> str:
    """Returns the gates' name and a hash of the code that opens them and runs a rank."""
    here = Path(__file__).parent
    code = [(here / name).read_bytes() for name in ("suite.py", "devices.py")]
    return f"{gates}-{_hash([json.dumps(lists.lifted()).encode(), *code])}"


def checkout_key() -> str:
    """Returns the commit and a hash of the package's present files, which may be newer."""
    git = ["git", "-C", str(ROOT), "rev-parse", "--short=10", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    package = ROOT / "torch_ringdist"
    files = [file for kind in ("*.py", "*.so") for file in sorted(package.glob(kind))]
    return f"{commit or 'no-commit'}-{_hash([file.read_bytes() for file in files])}"


def _hash(parts: list[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:8]
