"""Elastic training over several hosts, of which one is cut off for a while."""

from __future__ import annotations

import contextlib
import signal
import time
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


@pytest.mark.timeout(240)
def test_one_is_cut_off_and_comes_back(tmp_path: Path):
    steps = tmp_path / "steps"
    script = [*digits.SCRIPT, f"--log={steps}"]
    script += ["--pause=0.1", "--epochs=1000000", f"--checkpoint={tmp_path / 'saved'}"]
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(Network(HOSTS))
        rendezvous = f"--rdzv={network.address(0)}:29500"
        jobs = [
            stack.enter_context(
                Launched(
                    tmp_path / f"host-{host}",
                    [f"--min-ranks={HOSTS - 1}", rendezvous],
                    script,
                    {"RINGDIST_PEER_TIMEOUT": "2"},
                    network.enter(host),
                )
            )
            for host in range(HOSTS)
        ]
        first = jobs[0]
        first.wait_for(lambda: last_size(tmp_path) == HOSTS, LIMIT)
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
    course = Course(read(steps))
    whole = max(one.epoch for one in course.steps)  # the last one was not finished
    course.check_epochs(digits.IMAGES, whole)
    assert not course.problems, "\n".join(course.problems)
    assert course.sizes[-3:] == [HOSTS, HOSTS - 1, HOSTS]
