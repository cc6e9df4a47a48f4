"""ringdistrun --min-np: hosts and ranks that come and go."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.launched import CHAOS, preloaded, python_path
from test_ringdistrun import ENVIRONMENT, RUN
from test_shrink_hosts import Network

from torch_ringdist._launch.discovery import Discovery
from torch_ringdist._launch.ringdistrun import main

LOOP = ["python", str(CHAOS / "horovod_loop.py")]
ENDLESS = [*LOOP, "--steps=100000", "--pause=0.05"]
# Two names of this machine count as two hosts.
HERE, HERE_TOO = "127.0.0.1", "127.0.0.2"


class _Job:
    """Context manager of a job. Leaving it ends all processes that the job started."""

    def __init__(self, folder: Path, *arguments: str, enter: Sequence[str] = ()) -> None:
        self._output = folder / "output"
        environment = {**ENVIRONMENT, "PYTHONPATH": python_path()}
        with self._output.open("wb") as output:
            self._process = preloaded.ForkedProcess(
                [*enter, *RUN, *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=folder,
            )

    def __enter__(self) -> _Job:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(60)
        finally:
            self._process.kill()  # then launchers end, and their ranks

    @property
    def output(self) -> str:
        return self._output.read_text(errors="replace")

    def wait_for(self, condition: Callable[[], Any], seconds: float = 90.0) -> Any:
        deadline = time.monotonic() + seconds
        while not (value := condition()):
            ended = self._process.poll() is not None
            assert not ended and time.monotonic() < deadline, self.output
            time.sleep(0.05)
        return value

    def pids(self, size: int, without: int = 0) -> dict[int, int]:
        """Waits until this many have entered the training function last, and the process `without`
        is none of them. Returns process ids by rank."""

        def newest() -> dict[int, int]:
            lines = re.findall(r"entered (\d+) (\d+) \d+ \w+ (\d+)$", self.output, re.MULTILINE)
            of_size = [line for line in lines[-size:] if int(line[1]) == size]
            return {int(rank): int(pid) for rank, _, pid in of_size if int(pid) != without}

        return self.wait_for(lambda: len(found := newest()) == size and found)

    def ask_to_end(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def end(self, seconds: float = 90.0) -> int:
        return self._process.wait(seconds)


def _say(file: Path, *lines: str) -> None:
    """Writes the file atomically."""
    draft = file.with_suffix(".draft")
    draft.write_text("".join(f"{line}\n" for line in lines))
    draft.replace(file)


def test_hosts_come_and_go_as_the_script_says(tmp_path: Path):
    hosts = tmp_path / "hosts"
    _say(hosts, f"{HERE}:2")
    arguments = ["-np", "2", "--min-np", "1", "--max-np", "3"]
    with _Job(tmp_path, *arguments, "--host-discovery-script", f"cat {hosts}", *ENDLESS) as job:
        two = job.pids(2)
        _say(hosts, f"{HERE}:2", HERE_TOO)
        three = job.pids(3)
        assert (three[0], three[1]) == (two[0], two[1]), "who was there lives on, in its order"
        _say(hosts, HERE_TOO)
        one = job.pids(1)
        assert one == {0: three[2]}
        assert f"{HERE}: 2 workers are asked to leave" in job.output
        job.ask_to_end()
        assert job.end() == 128 + signal.SIGTERM
        assert f"{HERE_TOO} [0] entered 2 3" in job.output, "output says of which host it is"


def test_more_slots_are_more_ranks_up_to_the_most(tmp_path: Path):
    hosts = tmp_path / "hosts"
    _say(hosts, f"{HERE}:1")
    arguments = ["-np", "1", "--min-np", "1", "--max-np", "2"]
    with _Job(tmp_path, *arguments, "--host-discovery-script", f"cat {hosts}", *ENDLESS) as job:
        one = job.pids(1)
        _say(hosts, f"{HERE}:5")
        two = job.pids(2)
        assert two[0] == one[0]
        assert f"{HERE} [1] entered 1 2" in job.output, "numbered within its host"
        _say(hosts, f"{HERE}:1")
        assert job.pids(1) == one


def test_the_killed_rank_alone_starts_again_until_the_limit(tmp_path: Path):
    arguments = ["-np", "2", "--min-np", "1", "--reset-limit", "2"]
    with _Job(tmp_path, *arguments, *ENDLESS) as job:
        two = job.pids(2)
        os.kill(two[0], signal.SIGKILL)
        again = job.pids(2, without=two[0])  # two resets
        assert again[0] == two[1] and again[1] not in two.values()
        os.kill(again[1], signal.SIGKILL)
        assert job.end() == 1, job.output
        assert "have changed 3 times, and --reset-limit=2: the job ends" in job.output


def test_it_ends_when_training_has(tmp_path: Path):
    with _Job(tmp_path, "-np", "2", "--min-np", "2", *LOOP) as job:
        assert job.end() == 0, job.output
        assert job.output.count("done ") == 2


def test_it_ends_when_all_fail(tmp_path: Path):
    script = "import sys, time; time.sleep(0.5); sys.exit(3)"
    with _Job(tmp_path, "-np", "2", "--min-np", "2", "python", "-c", script) as job:
        assert job.end() == 3, job.output
        assert "no host is left" in job.output


def test_hosts_that_do_not_come(tmp_path: Path):
    arguments = ["--min-np", "1", "--elastic-timeout", "2", "--host-discovery-script"]
    with _Job(tmp_path, *arguments, "echo one two", *LOOP) as job:
        assert job.end() == 1
        assert "lines must be \"HOST:SLOTS\", got 'one two'" in job.output
        assert "there are no hosts" in job.output


def test_discovery(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    file = tmp_path / "hosts"
    found = Discovery(f"cat {file}", slots=4)

    def after_a_run() -> dict[str, int]:
        found._next = 0.0
        found.poll()
        assert found._process is not None
        found._process.wait()
        found.poll()
        return found.hosts

    assert after_a_run() == {}
    assert "failed with status 1; hosts stay as they are" in capfd.readouterr().err
    file.write_text("a:2\n\nb\n[::1]:3\n")
    assert after_a_run() == {"a": 2, "b": 4, "::1": 3}
    file.write_text("a:2\n-oProxyCommand=id:1\n")
    assert after_a_run() == {"a": 2, "b": 4, "::1": 3}
    said = "'-oProxyCommand=id' is no name or address of a host; hosts stay as they are"
    assert said in capfd.readouterr().err
    file.write_text("a:0\n")
    for complaint in ("host a must have at least 1 slot", ""):
        assert after_a_run() == {"a": 2, "b": 4, "::1": 3}
        err = capfd.readouterr().err
        assert complaint in err if complaint else not err, "said once"
    file.write_text("")
    assert after_a_run() == {}
    found.close()


def test_dry_run_says_what_each_host_runs(capsys: pytest.CaptureFixture[str]):
    line = ["-np", "3", "--min-np", "2", "--max-np", "5", "-H", "a:2,b:4", "--dry-run", "x"]
    assert main(line) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert "HOROVOD_ELASTIC_TIMEOUT=600" in first
    common = "--job=ringdistrun --rdzv=a:29500 --first-worker=0 --min-ranks=2 --start-ranks=3"
    assert first.endswith(f"--nproc-per-node=2 {common} --max-ranks=5 --no-python -- x")
    assert second.endswith(f"--nproc-per-node=3 {common} --max-ranks=5 --no-python -- x")
    assert main(["--min-np", "2", "-H", "a:2,b:4", "--dry-run", "x"]) == 0
    assert capsys.readouterr().out.count("--min-ranks=2 --start-ranks=6 ") == 2, "-np: all slots"


@pytest.mark.hosts
@pytest.mark.default_of("RINGDIST_TRANSPORT", reason="hosts are reached by ucx alone")
def test_hosts_by_rsh(tmp_path: Path):
    hosts = tmp_path / "hosts"
    with Network(2) as network:
        names = [network.enter(host)[-1] for host in range(2)]
        _say(hosts, names[0])
        arguments = ["--min-np", "1", "--host-discovery-script", f"cat {hosts}"]
        arguments += ["--rsh", "ip netns exec", "--address", network.address(0)]
        with _Job(tmp_path, *arguments, *ENDLESS, enter=network.enter(0)) as job:
            one = job.pids(1)
            _say(hosts, *names)
            assert job.pids(2)[0] == one[0]
            _say(hosts, names[0])
            assert job.pids(1) == one
