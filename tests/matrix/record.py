"""A plugin of pytest: says of each test how it ended, in a file, as soon as it has.

    python -m pytest -p tests.matrix.record --record FILE [--sample-seed N --until TIME]

One JSON object per line: {"collected": N}, {"begun": TEST}, and at last
{"test": TEST, "outcome": ..., "seconds": ..., "reason": ...}. With --sample-seed tests come in a
random order; after --until (time.time()) no other one begins. Where pytest-xdist spreads the tests,
its workers choose them, all alike, and the process above says how they end.
"""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", type=Path)
    parser.addoption("--known", type=Path, help="tests not to run again, one per line")
    parser.addoption("--sample-seed")
    parser.addoption("--until", type=float)


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--record"):
        config.pluginmanager.register(Recorder(config))


class Recorder:
    def __init__(self, config: pytest.Config) -> None:
        self._file: Path = config.getoption("--record")
        self._until: float | None = config.getoption("--until")
        self._seed: str | None = config.getoption("--sample-seed")
        known: Path | None = config.getoption("--known")
        self._known = set(known.read_text().splitlines()) if known else set()
        self._reports: dict[str, list[pytest.TestReport]] = {}
        worker: dict[str, str] = getattr(config, "workerinput", {})
        self._tells_how_many = worker.get("workerid", "gw0") == "gw0"
        self._tells_of_each = not worker

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._session = session

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        config.hook.pytest_deselected(items=[i for i in items if i.nodeid in self._known])
        items[:] = [item for item in items if item.nodeid not in self._known]
        if self._seed is not None:
            random.Random(self._seed).shuffle(items)
        if self._tells_how_many:
            self._write({"collected": len(items)})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._reports.setdefault(report.nodeid, []).append(report)
        if report.when == "???":  # pytest-xdist's: its worker is gone, and ends nothing more
            self.pytest_runtest_logfinish(report.nodeid)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        if self._tells_of_each:
            self._write({"begun": nodeid})

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        if not self._tells_of_each:
            return
        reports = self._reports.pop(nodeid, [])
        bad = next((report for report in reports if report.failed), None)
        skipped = next((report for report in reports if report.skipped), None)
        ended = bad or skipped
        self._write(
            {
                "test": nodeid,
                "outcome": "failed" if bad else "skipped" if skipped else "passed",
                "seconds": round(sum(report.duration for report in reports), 2),
                "reason": _reason(ended) if ended else "",
            }
        )
        if self._until is not None and time.time() > self._until:
            self._session.shouldstop = "the time is up"

    def _write(self, entry: dict[str, Any]) -> None:
        with self._file.open("a") as file:
            file.write(json.dumps(entry) + "\n")


def _reason(report: pytest.TestReport) -> str:
    """One line of what it says."""
    if report.skipped and isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash else str(report.longrepr)
    return text.strip().splitlines()[0] if text.strip() else ""
