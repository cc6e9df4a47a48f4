"""The lists next to this file. They have one entry `pattern: text` per line, and # for comments. A
pattern is a test's name, in which * matches anything.

lifted.txt has the gates that are opened for a test: some of gpu, name and world.

refused.txt has errors of torch itself for backends of other vendors. The text is a part of the
error.

quick.txt has the tests of --quick, without texts.
"""

from __future__ import annotations

import fnmatch
from pathlib import Path

FOLDER = Path(__file__).parent


def read(path: Path) -> dict[str, str]:
    out: dict[str, str] = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        entry = line.partition("#")[0].strip()
        if not entry:
            continue
        pattern, _, text = (part.strip() for part in entry.partition(":"))
        if pattern in out:
            raise ValueError(f"{path.name}:{number}: {pattern} is there twice")
        out[pattern] = text
    return out


def find(entries: dict[str, str], name: str) -> str:
    """Returns the texts of all entries for a test, joined, or "" if there is none."""
    return " ".join(text for pattern, text in entries.items() if fnmatch.fnmatch(name, pattern))


def lifted() -> dict[str, str]:
    return read(FOLDER / "lifted.txt")


def refused() -> dict[str, str]:
    return read(FOLDER / "refused.txt")


def quick() -> list[str]:
    return list(read(FOLDER / "quick.txt"))
