"""Runs a check of tools/ on a tree that a test creates."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[3] / "tools"


def run_check(tool: str, root: Path, files: dict[str, str], *options: str) -> tuple[int, list[str]]:
    """Writes the files below `root`. Returns the check's exit status and the lines that it
    prints."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    line = [sys.executable, TOOLS / tool, root, *options]
    run = subprocess.run(line, capture_output=True, text=True, check=False)
    assert run.stderr == ""
    return run.returncode, run.stdout.splitlines()
