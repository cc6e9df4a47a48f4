"""Scripts as users start them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from support.launched import preloaded
from support.pool import DUMP_TIME, Hang


def torchrun(
    script: Path,
    *arguments: str,
    ranks: int = 2,
    launch: tuple[str, ...] = (),
    timeout: float = 110,
    forked: bool = False,
) -> subprocess.CompletedProcess:
    """Runs a script under torchrun. `launch` has options of torchrun. With `forked` the ranks
    are forked, which is for tests that do not depend on how ranks begin and end. After the
    timeout all ranks print their state and are killed."""
    how = [preloaded.__file__, "torchrun"] if forked else ["-m", "torch.distributed.run"]
    command = [sys.executable, *how, f"--nproc-per-node={ranks}", *launch]
    command += ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]  # any free port
    command += [str(script), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"}
    start: Any = preloaded.ForkedProcess if forked else subprocess.Popen
    with (
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
        tempfile.NamedTemporaryFile("r") as pids,
    ):
        environment[preloaded.PIDS] = pids.name
        process = start(command, env=environment, stdout=out, stderr=err)

        try:
            status = process.wait(timeout)
        except BaseException as error:
            _end([process.pid, *_descendants(process.pid), *map(int, pids)])
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise Hang(
                    "\n".join([f"not done within {timeout:.0f} s", *preloaded.texts(out, err)])
                ) from None
            raise
        return subprocess.CompletedProcess(command, status, *preloaded.texts(out, err))


def _end(processes: list[int]) -> None:
    """Ends the processes. Each prints the backend's dump and the stacks of its Python threads."""
    for pid in processes:
        if _handles(pid, signal.SIGUSR1):
            _signal(pid, signal.SIGUSR1)
    time.sleep(DUMP_TIME)
    for number in (
        signal.SIGSTOP,
        signal.SIGABRT,
        signal.SIGCONT,
    ):  # stopped first, so that no process reports a death
        for pid in processes:
            _signal(pid, number)
    time.sleep(DUMP_TIME)
    for pid in processes:
        _signal(pid, signal.SIGKILL)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _handles(pid: int, number: signal.Signals) -> bool:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def _descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
                children.setdefault(int(parent), []).append(int(entry.name))
    found, left = [], [pid]
    while left:
        found += (new := children.get(left.pop(), []))
        left += new
    return found
