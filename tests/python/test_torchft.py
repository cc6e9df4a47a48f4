"""torchft over ringdist: a Manager heals a replica that was killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torchft = pytest.importorskip(
    "torchft",
    reason="torchft is not installed, which brings a torch of its own: tools/check_torchft.py "
    "installs it beside and runs this",
)

from support.launched import python_path  # noqa: E402

SCRIPT = Path(__file__).with_name("support") / "torchft_replica.py"
NAMES = ("a", "b", "c")
STEPS = 60


class Replicas:
    """Processes by name, and their lighthouse."""

    def __init__(self, how: str, folder: Path) -> None:
        from torchft.coordination import LighthouseServer

        self._how, self._folder = how, folder
        self._lighthouse = LighthouseServer(
            bind="127.0.0.1:0", min_replicas=1, quorum_tick_ms=50, join_timeout_ms=2000
        )
        port = self._lighthouse.address().rsplit(":", 1)[1]
        self._address = f"http://127.0.0.1:{port}"
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        arguments = [self._how, name, self._address, str(self._folder / name), str(STEPS)]
        with (self._folder / f"{name}.out").open("ab") as output:
            self.running[name] = subprocess.Popen(
                [sys.executable, str(SCRIPT), *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                env={
                    **os.environ,
                    "PYTHONPATH": python_path(),
                    "OMP_NUM_THREADS": "1",
                    "RUST_LOG": "warn",
                },
            )

    def kill(self, name: str) -> None:
        self.running[name].send_signal(signal.SIGKILL)
        self.running[name].wait()

    def lines(self, name: str) -> list[dict[str, Any]]:
        """Returns the committed steps of a replica."""
        log = self._folder / name
        text = log.read_text() if log.exists() else ""
        return [json.loads(line) for line in text.splitlines() if line.endswith("}")]

    def wait_for(self, condition: Callable[[], bool], seconds: float = 90) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, self.output()
            time.sleep(0.05)

    def output(self) -> str:
        files = sorted(self._folder.glob("*.out"))
        return "\n".join(f"---- {file.stem}\n{file.read_text()}" for file in files)

    def close(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()
        self._lighthouse.shutdown()


@pytest.fixture
def replicas(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Replicas]:
    made = Replicas(request.param, tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("replicas", ["ddp", "local_sgd", "diloco"], indirect=True)
def test_a_replica_that_is_killed_is_healed(replicas: Replicas):
    for name in NAMES:
        replicas.start(name)

    def sizes(name: str) -> list[int]:
        return [line["size"] for line in replicas.lines(name)]

    replicas.wait_for(lambda: sizes("a").count(3) > 3)
    replicas.kill("b")
    replicas.wait_for(lambda: 2 in sizes("a"))
    replicas.start("b")
    replicas.wait_for(lambda: sizes("a")[-1] == 3)
    for name, process in replicas.running.items():
        assert process.wait(90) == 0, f"{name}\n{replicas.output()}"
    parameters: dict[int, set[str]] = {}
    for name in NAMES:
        for line in replicas.lines(name):
            parameters.setdefault(line["step"], set()).add(line["parameters"])
    assert max(parameters) >= STEPS
    apart = {step: hashes for step, hashes in parameters.items() if len(hashes) > 1}
    assert not apart, f"{apart}\n{replicas.output()}"
