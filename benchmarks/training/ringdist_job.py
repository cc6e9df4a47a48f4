"""examples/elastic_digits.py under ``python -m torch_ringdist run``."""

from __future__ import annotations

import os
import random
import signal
import time
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
from tests.chaos.digits import SCRIPT
from tests.chaos.launched import Launched
from tests.chaos.records import Record, committed


def kill(folder: Path, drawn: random.Random) -> Kill:
    steps = folder / "steps"
    script = [*SCRIPT, "--no-copy", f"--log={steps}", f"--pause={PAUSE}", "--epochs=1000000"]
    with Launched(folder / "job", [f"--nproc-per-node={RANKS}"], script) as job:
        wait_until(lambda: len(whole(steps)) > WARM, job.output)
        time.sleep(drawn.uniform(0, 1))
        victim = job.members()[drawn.randrange(RANKS)]
        before = whole(steps)
        killed = time.time()
        os.kill(victim, signal.SIGKILL)

        def after() -> list[Record]:
            return [one for one in committed(steps) if one.time > killed]

        wait_until(lambda: another_has_come(after()), job.output)
        return measure(killed, victim, before, after())
