"""The lists beside this file: one entry per line, `pattern: text`, # for comments. A pattern is a
test's name, in which * stands for anything.

lifted.txt   gates that are opened for a test: some of gpu, name, world
refused.txt  what torch itself refuses to backends of other makers: a part of the error
quick.txt    the tests of --quick, without a text
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
    """The texts of all entries for a test, joined; empty if there is none."""
    return " ".join(text for pattern, text in entries.items() if fnmatch.fnmatch(name, pattern))


def lifted() -> dict[str, str]:
    return read(FOLDER / "lifted.txt")


def refused() -> dict[str, str]:
    return read(FOLDER / "refused.txt")


def quick() -> list[str]:
    return list(read(FOLDER / "quick.txt"))
