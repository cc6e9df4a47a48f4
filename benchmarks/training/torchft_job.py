"""Runs torchft over gloo: four replica groups of one rank, with a manual restart of one."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.training.kill import (
    PAUSE,
    RANKS,
    WARM,
    Kill,
    another_has_come,
    measure,
    wait_until,
    whole,
)
from tests.chaos.launched import python_path
from tests.chaos.records import Record, committed

_SCRIPT = Path(__file__).with_name("torchft_rank.py")


class Replicas:
    """Context manager of processes by number, and of the lighthouse that they use."""

    def __init__(self, folder: Path) -> None:
        from torchft.coordination import LighthouseServer

        from benchmarks.recovery.torchft_rank import HOST, LIGHTHOUSE

        self._lighthouse = LighthouseServer(bind=f"{HOST}:0", **LIGHTHOUSE)
        self._address = f"http://{HOST}:{self._lighthouse.address().rsplit(':', 1)[1]}"
        self.steps, self._output = folder / "steps", folder / "output"
        self.running: list[subprocess.Popen[bytes]] = [self._start(rank) for rank in range(RANKS)]

    def __enter__(self) -> Replicas:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.running:
            process.kill()
            process.wait()
        self._lighthouse.shutdown()

    def replace(self, number: int) -> None:
        """Kills a process and starts another one in its place."""
        self.running[number].kill()
        self.running[number].wait()
        self.running[number] = self._start(number)

    def output(self) -> str:
        return self._output.read_text()

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        arguments = [str(number), self._address, str(self.steps), str(PAUSE)]
        with self._output.open("ab") as output:
            return subprocess.Popen(
                [sys.executable, str(_SCRIPT), *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                env={
                    **os.environ,
                    "PYTHONPATH": python_path(),
                    "OMP_NUM_THREADS": "1",
                    "RUST_LOG": "warn",
                },
            )


def kill(folder: Path, drawn: random.Random) -> Kill:
    with Replicas(folder) as job:
        wait_until(lambda: len(whole(job.steps)) > WARM, job.output)
        time.sleep(drawn.uniform(0, 1))
        number = drawn.randrange(RANKS)
        victim = job.running[number].pid
        before = whole(job.steps)
        killed = time.time()
        job.replace(number)

        def after() -> list[Record]:
            return [one for one in committed(job.steps) if one.time > killed]

        wait_until(lambda: another_has_come(after()), job.output)
        # The new process joins while the others recover, so they pause only once.
        return replace(measure(killed, victim, before, after()), join=None)
