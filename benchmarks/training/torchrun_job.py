"""Runs plain DDP under ``torchrun --max-restarts``, which starts all ranks again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.training.kill import (
    PAUSE,
    RANKS,
    WARM,
    Kill,
    step_time,
    wait_until,
    whole,
)
from tests.chaos.records import committed


def kill(folder: Path, drawn: random.Random) -> Kill:
    steps, output = folder / "steps", folder / "output"
    script = [str(Path(__file__).with_name("torchrun_rank.py"))]
    script += [str(steps), str(folder / "checkpoint.pt"), str(PAUSE)]
    launch = ["-m", "torch.distributed.run", f"--nproc-per-node={RANKS}", "--max-restarts=9"]
    launch += ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
    with output.open("wb") as file:
        agent = subprocess.Popen(
            [sys.executable, *launch, *script],
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    try:
        wait_until(lambda: len(whole(steps)) > WARM, output.read_text)
        time.sleep(drawn.uniform(0, 1))
        before = whole(steps)
        old = {one.pid for one in before}
        victim = drawn.randrange(RANKS)
        killed = time.time()
        os.kill(next(one.pid for one in before if one.rank == victim), signal.SIGKILL)

        def again() -> dict[int, float]:
            first: dict[int, float] = {}
            for one in committed(steps):
                if one.pid not in old:
                    first.setdefault(one.rank, one.time)
            return first

        wait_until(lambda: len(again()) == RANKS, output.read_text)
        return Kill(max(again().values()) - killed - step_time(before), None)
    finally:
        agent.send_signal(signal.SIGTERM)
        agent.wait()
