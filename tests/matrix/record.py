"""A pytest plugin that writes the outcome of each test to a file as soon as the test ends.

    python -m pytest -p tests.matrix.record --record FILE [--sample-seed N --until TIME]

The file has one JSON object per line: `{"collected": N}`, `{"begun": TEST}`, and finally `{"test":
TEST, "outcome": ..., "seconds": ..., "reason": ...}`. With --sample-seed the order of tests is
random. After --until (time.time()) no further test begins, unless all so far were skipped. With
pytest-xdist, every worker chooses the same tests, and the controlling process records their
outcomes.
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
    if not config.getoption("--record"):
        return
    config.pluginmanager.register(Chooser(config))
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(config))


def _write(file: Path, entry: dict[str, Any]) -> None:
    with file.open("a") as lines:
        lines.write(json.dumps(entry) + "\n")


class Chooser:
    """Chooses the tests in each process that collects. One process records their number."""

    def __init__(self, config: pytest.Config) -> None:
        self._file: Path = config.getoption("--record")
        self._seed: str | None = config.getoption("--sample-seed")
        known: Path | None = config.getoption("--known")
        self._known = set(known.read_text().splitlines()) if known else set()
        worker: dict[str, str] = getattr(config, "workerinput", {})
        self._tells = worker.get("workerid", "gw0") == "gw0"

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        config.hook.pytest_deselected(items=[i for i in items if i.nodeid in self._known])
        items[:] = [item for item in items if item.nodeid not in self._known]
        if self._seed is not None:
            random.Random(self._seed).shuffle(items)
        if self._tells:
            _write(self._file, {"collected": len(items)})


class Recorder:
    """Records how each test ends."""

    def __init__(self, config: pytest.Config) -> None:
        self._file: Path = config.getoption("--record")
        self._until: float | None = config.getoption("--until")
        self._reports: dict[str, list[pytest.TestReport]] = {}
        self._has_run = False

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._session = session

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._reports.setdefault(report.nodeid, []).append(report)
        if report.when == "???":  # set by pytest-xdist when a worker died
            self.pytest_runtest_logfinish(report.nodeid)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        _write(self._file, {"begun": nodeid})

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        reports = self._reports.pop(nodeid, [])
        bad = next((report for report in reports if report.failed), None)
        skipped = next((report for report in reports if report.skipped), None)
        ended = bad or skipped
        self._has_run |= bad is not None or skipped is None
        _write(
            self._file,
            {
                "test": nodeid,
                "outcome": "failed" if bad else "skipped" if skipped else "passed",
                "seconds": round(sum(report.duration for report in reports), 2),
                "reason": _reason(ended) if ended else "",
            },
        )
        # A sample of skipped tests alone shows nothing.
        if self._until is not None and time.time() > self._until and self._has_run:
            self._session.shouldstop = "the time is up"


def _reason(report: pytest.TestReport) -> str:
    """Returns the reason of an outcome in one line."""
    if report.skipped and isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash else str(report.longrepr)
    return text.strip().splitlines()[0] if text.strip() else ""
