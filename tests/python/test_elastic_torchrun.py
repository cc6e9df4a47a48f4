"""Elastic training under launchers without support for it: one torchrun per rank."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.launched import LOOP, newest_members, preloaded, python_path, read_events
from support.pool import free_port

RANKS = 2
LIMIT = 60.0  # seconds


@pytest.fixture
def rendezvous() -> Iterator[str]:
    """Returns the address of a store of ``python -m torch_ringdist store``."""
    address = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "torch_ringdist", "store", f"--rdzv={address}"]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    store = preloaded.ForkedProcess(command, **streams)
    try:
        assert store.stdout is not None
        said = f"ringdist: ranks can meet at {address}; Ctrl-C ends it\n"
        assert store.stdout.readline() == said.encode()
        yield address
        again = preloaded.run(command[1:], env=os.environ, timeout=LIMIT)
        assert again.returncode == 1
        assert f"somebody listens at {address} already" in again.stderr
        store.send_signal(signal.SIGTERM)
        assert store.wait(LIMIT) == 0
    finally:
        store.kill()


def test_the_dead_are_started_again(rendezvous: str, tmp_path: Path):
    events, hurry = tmp_path / "events", tmp_path / "hurry"
    script = [LOOP, f"--min-ranks={RANKS}", "--steps=150", f"--checkpoint={tmp_path / 'saved'}"]
    script += ["--pause=0.3", f"--hurry={hurry}"]  # training lasts until the kill
    agent = [preloaded.__file__, "torchrun", "--standalone", "--nproc-per-node=1"]
    variables = {
        "RINGDIST_RDZV": rendezvous,
        "RINGDIST_EVENTS": str(events),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": python_path(),
    }
    with contextlib.ExitStack() as stack:
        agents, output = [], tmp_path / "output"
        for _ in range(RANKS):
            file = stack.enter_context(output.open("ab"))
            one = preloaded.ForkedProcess(
                [sys.executable, *agent, "--max-restarts=3", *script],
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, **variables},
            )
            stack.callback(one.wait)
            stack.callback(one.send_signal, signal.SIGTERM)
            agents.append(one)
        before = _wait_for_members(events, output, set())
        os.kill(before[1], signal.SIGKILL)
        hurry.touch()
        after = _wait_for_members(events, output, {before[1]})
        assert before[0] in after.values()  # its agent has not noticed
        statuses = [one.wait(LIMIT) for one in agents]
        assert statuses == [0] * RANKS, output.read_text()
    assert output.read_text().count(f"trained 150 steps, {RANKS} ranks") == RANKS


def _wait_for_members(events: Path, output: Path, without: set[int]) -> dict[int, int]:
    deadline = time.monotonic() + LIMIT
    while True:
        found = newest_members(read_events([events]))
        if len(found) == RANKS and not without & set(found.values()):
            return found
        assert time.monotonic() < deadline, output.read_text()
        time.sleep(0.05)
