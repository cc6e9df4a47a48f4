"""Reports progress of the ranks from rank 0 to the process that started them, because their stderr
is a log."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tqdm import tqdm


class Progress:
    """Rank 0's end, a small file. Without a path it does nothing."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._done = self._total = 0

    def begin(self, total: int) -> None:
        self._total = total

    def step(self, note: str) -> None:
        """Records that the next step begins."""
        self._done += 1
        self.note(note)

    def note(self, note: str) -> None:
        if self._path is None:
            return
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps([self._done, self._total, note]))
        os.replace(fresh, self._path)


class Bar:
    """The other end, a bar on a terminal's stderr. show() may be called at any rate."""

    def __init__(self, path: Path, title: str) -> None:
        self._path = path
        form = "{desc}: {bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}] {postfix}"
        # With disable=None there is no bar if stderr is not a terminal.
        self._bar = tqdm(desc=title, total=1, disable=None, leave=False, bar_format=form)

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def show(self) -> None:
        if self._bar.disable or not self._path.exists():
            return
        done, total, note = json.loads(self._path.read_text())
        self._bar.total = total
        self._bar.set_postfix_str(note, refresh=False)
        self._bar.update(done - self._bar.n)
        self._bar.refresh()
