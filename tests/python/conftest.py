"""Fixtures with pools of ranks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support.digits import EPOCHS
from support.launched import digits, preloaded
from support.pool import Pool


def pytest_configure(config: pytest.Config) -> None:
    """Starts the fork server that the processes of xdist share."""
    if getattr(config.option, "numprocesses", None):
        preloaded.server()


@pytest.fixture(scope="session")
def _kept() -> Iterator[dict[int, Pool]]:
    kept: dict[int, Pool] = {}
    yield kept
    for pool in kept.values():
        pool.close()


@pytest.fixture
def pools(_kept: dict[int, Pool], request: pytest.FixtureRequest) -> Iterator[Callable]:
    """pools(size): ranks shared with other tests. The test must leave them in good order."""
    used: list[Pool] = []

    def get(size: int) -> Pool:
        if size not in _kept or not _kept[size].alive:
            # A process that stalls on a busy machine must not end the tests after it.
            patience = os.environ.get("RINGDIST_PEER_TIMEOUT", "60")
            _kept[size] = Pool(size, environment={"RINGDIST_PEER_TIMEOUT": patience})
        used.append(_kept[size])
        return _kept[size]

    yield get
    # After a failure the state of the ranks is undefined.
    if request.node.stash.get(_failed, False):
        for pool in used:
            pool.discard()


@pytest.fixture
def fresh_pool() -> Iterator[Callable[..., Pool]]:
    """fresh_pool(size, **launch): ranks for this test alone, which may kill them."""
    made: list[Pool] = []

    def make(size: int, **launch: Any) -> Pool:
        made.append(Pool(size, **launch))
        return made[-1]

    yield make
    for pool in made:
        if pool.alive:
            pool.discard()


@pytest.fixture(scope="session")
def undisturbed_losses(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """Returns the losses of each step of examples/elastic_digits.py."""
    return digits.undisturbed(tmp_path_factory.mktemp("undisturbed"), EPOCHS)


@cache
def _no_hosts() -> str | None:
    """Returns the reason why this process cannot create network namespaces, or None."""
    from benchmarks.net import hosts  # support.launched has added the repository to sys.path

    return hosts.why_not()


def _may_change_user() -> bool:
    line = Path("/proc/self/status").read_text().partition("CapEff:")[2].split()[0]
    return bool(int(line, 16) >> 7 & 1)  # CAP_SETUID


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips a test if its marker (pyproject.toml) names a setting that is forced, as in make
    matrix. Also skips tests that need a privilege that this process lacks."""
    if item.get_closest_marker("hosts") and (reason := _no_hosts()):
        pytest.skip(reason)
    if item.get_closest_marker("root") and not _may_change_user():
        pytest.skip("only root can become another user")
    for mark in item.iter_markers("default_of"):
        forced = [name for name in mark.args if os.environ.get(name)]
        if forced:
            pytest.skip(f"{', '.join(forced)}: {mark.kwargs['reason']}")


_failed = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item):
    report = yield
    if report.when == "call" and report.failed:
        item.stash[_failed] = True
    return report
