"""Elastic training over several hosts, one of which is cut off for a while."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.digits import last_size
from support.launched import Course, Launched, digits, read
from test_shrink_hosts import Network

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.default_of("RINGDIST_TRANSPORT", reason="hosts are reached by ucx alone"),
]

HOSTS = 4
CUT = 20.0  # seconds
LIMIT = 90.0


@contextlib.contextmanager
def _started(folder: Path, hosts: int) -> Iterator[tuple[Network, list[Launched]]]:
    """Starts a launcher with a worker on each host, and waits until all train. The first has the
    store."""
    script = [*digits.SCRIPT, f"--log={folder / 'steps'}"]
    script += ["--pause=0.1", "--epochs=1000000", f"--checkpoint={folder / 'saved'}"]
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(Network(hosts))
        rendezvous = f"--rdzv={network.address(0)}:29500"
        jobs = [
            stack.enter_context(
                Launched(
                    folder / f"host-{host}",
                    [f"--min-ranks={hosts - 1}", f"--max-ranks={hosts}", rendezvous],
                    script,
                    {"RINGDIST_PEER_TIMEOUT": "2"},
                    network.enter(host),
                )
            )
            for host in range(hosts)
        ]
        jobs[0].wait_for(lambda: last_size(folder) == hosts, LIMIT)
        yield network, jobs


@pytest.mark.timeout(240)
def test_one_is_cut_off_and_comes_back(tmp_path: Path):
    with _started(tmp_path, HOSTS) as (network, jobs):
        first = jobs[0]
        [victim] = jobs[-1].pids()
        network.pull(HOSTS - 1)
        first.wait_for(lambda: last_size(tmp_path) == HOSTS - 1, LIMIT)
        time.sleep(CUT)
        network.heal()
        first.wait_for(lambda: last_size(tmp_path) == HOSTS, LIMIT)
        [ended] = jobs[-1].events("worker_ended", worker_pid=victim)
        assert ended["again"], jobs[-1].output()
        assert "excluded in generation" in jobs[-1].output(), jobs[-1].output()
        for job in jobs:
            job.send(signal.SIGTERM)
        assert [job.end() for job in jobs] == [128 + signal.SIGTERM] * HOSTS, first.output()
    course = Course(read(tmp_path / "steps"))
    whole = max(one.epoch for one in course.steps)  # the last epoch was not finished
    course.check_epochs(digits.IMAGES, whole)
    assert not course.problems, "\n".join(course.problems)
    assert course.sizes[-3:] == [HOSTS, HOSTS - 1, HOSTS]


@pytest.mark.timeout(300)
def test_the_host_of_the_store_is_cut_off(tmp_path: Path):
    """Cuts off the store's host. It sends no RST, so the others notice only missing answers."""
    with _started(tmp_path, 3) as (network, jobs):
        network.pull(0)
        # TCP would give up after a quarter of an hour.
        jobs[1].wait_for(lambda: last_size(tmp_path) == 2, LIMIT)
        said = "".join((tmp_path / f"host-{host}" / "launcher.out").read_text() for host in (1, 2))
        assert "fell silent" in said, "the launcher shows why there is another generation"
        network.heal()
        # A newcomer has room, because the size was written when the store answered again.
        jobs[1].wait_for(lambda: last_size(tmp_path) == 3, LIMIT)
        network.pull(0)
        for job in jobs[1:]:
            job.send(signal.SIGTERM)
        assert [job.end() for job in jobs[1:]] == [128 + signal.SIGTERM] * 2, jobs[1].output()
